/*
 * All launchers: the rows of launchers.def, which tuner/rows.awk makes.
 */
#ifndef TUNER_LAUNCH_H
#define TUNER_LAUNCH_H

#include "tuner/core/kinds.h"

#define LAUNCHER(name, ...) extern const struct tn_launcher tn_launcher_##name;
#include "tuner/launch/launchers.def"
extern const struct tn_kinds tn_kinds; /* all of them, with the trainers */

/* What launchers keep for the whole daemon. */
struct tn_launching {
    struct tn_slurm *slurm;    /* slurm/alloc.c; NULL until it is used */
    struct tn_ask *asks;       /* remote/asks.c: workers that wait, the longest first */
    struct tn_worker *workers; /* remote/asks.c: heard of in the last day */
};

#endif
