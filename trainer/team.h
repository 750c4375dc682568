/*
 * Ranks that fail together.
 *
 * Where a rank can fail by itself while the others continue to a collective, the code is
 *
 *     r = mine(...);
 *     r = tr_team_agree(team, r, error);
 *     tr_require_all(team, r, error);
 *
 * All ranks have the same result before any of them continues, one of them reports why, and none is
 * left waiting. Where a rank fails between the messages of a step, no agreement is possible:
 * tr_require() ends the job.
 */
#ifndef TRAINER_TEAM_H
#define TRAINER_TEAM_H

#include "trainer/ckpt.h"
#include "trainer/comm.h"

/* The ranks of COMMS as a team; borrows COMMS. */
struct tr_team tr_team_of(struct tr_comms *comms);

/* If CODE is negative: report ERROR under the class that CODE belongs to and end the job. */
void tr_require(int code, const struct err *error);

/* The same for a CODE that is equal on all ranks: rank 0 reports it. */
void tr_require_all(const struct tr_team *team, int code, const struct err *error);

#endif
