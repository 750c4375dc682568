/*
 * What a resumed run reports: where it resumes, and which settings have changed.
 */
#ifndef TRAINER_RESUMED_H
#define TRAINER_RESUMED_H

#include "trainer/ckpt.h"
#include "trainer/config.h"
#include "trainer/events.h"
#include "trainer/optim.h"

/* Send the events of a resume from checkpoint PATH with STATE, of a run that reads SOURCES; EVENTS
 * may be NULL. OPTIM, which has
 * the settings of CONFIG, gets the checkpoint's horizon and style of the learning rate where CONFIG
 * names none. */
void tr_resumed(struct tr_events *events, const struct tr_config *config,
                const struct tr_ckpt_state *state, const struct tr_identity *sources,
                const char *path, struct tr_optim *optim);

#endif
