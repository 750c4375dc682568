/* Private to plan/: a better stem near one that is known. */
#ifndef PLAN_CLIMB_H
#define PLAN_CLIMB_H

#include "plan/space_walk.h"

/* What a stem is worth: the larger the better, 0 if none of its leaves fits. */
typedef double pl_stem_worth(void *arg, const struct pl_layout *stem);

/*
 * Change *STEM, worth WORTH, to the best stem of SPACE that differs from it in two keys, and again,
 * until none is better or OVER(ARG) says that there is no more time. Returns what it is worth then.
 */
double pl_climb(struct pl_layout *stem, double worth, const struct pl_space *space,
                const struct pl_problem *problem, pl_stem_worth *worth_of, bool (*over)(void *arg),
                void *arg);

#endif
