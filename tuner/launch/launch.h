/*
 * All launchers: the rows of launchers.def.
 */
#ifndef TUNER_LAUNCH_H
#define TUNER_LAUNCH_H

#include "tuner/core/kinds.h"

#define LAUNCHER(name, ...) extern const struct tn_launcher tn_launcher_##name;
#include "tuner/launch/launchers.def"
extern const struct tn_kinds tn_kinds; /* all of them, with the trainers */

#endif
