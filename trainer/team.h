/*
 * Ranks that fail together.
 *
 * Wherever a rank can fail by itself while the others go on to a collective, it is
 * `r = mine(...); r = tr_together(team, r, e); tr_require_all(team, r, e);`: all ranks have the
 * same result before any of them goes on, one of them says why, and none is left waiting. Where a
 * rank fails between the messages of a step there is nobody to agree with: tr_require() ends the
 * job.
 */
#ifndef TRAINER_TEAM_H
#define TRAINER_TEAM_H

#include "trainer/ckpt.h"
#include "trainer/comm.h"

/* The ranks of COMMS as a team; borrows COMMS. */
struct tr_team tr_team_of(struct tr_comms *comms);

/* If CODE is negative: report ERROR under the class that CODE belongs to and end the job. */
void tr_require(int code, const struct err *error);

/* The same for a CODE that all ranks have alike: rank 0 speaks. */
void tr_require_all(const struct tr_team *team, int code, const struct err *error);

#endif
