/*
 * All launchers: the rows of the registry.
 */
#ifndef TUNER_LAUNCH_H
#define TUNER_LAUNCH_H

#include "tuner/core/kinds.h"

extern const struct tn_launcher tn_launcher_local;
extern const struct tn_launcher tn_launcher_simulated;
extern const struct tn_launcher tn_launcher_remote;
extern const struct tn_launcher tn_launcher_slurm;
extern const struct tn_kinds tn_kinds; /* all of them, with the trainers */

#endif
