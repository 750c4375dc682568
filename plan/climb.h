/* Private to plan/: a better stem, or leaf, near one that is known. */
#ifndef PLAN_CLIMB_H
#define PLAN_CLIMB_H

#include "plan/space_walk.h"

/* What a stem is worth, or a leaf: the larger the better, 0 if none of its leaves fits. */
typedef double pl_stem_worth(void *arg, const struct pl_layout *stem);

/*
 * Change *STEM, worth WORTH, to the best stem of SPACE that differs from it in two keys, and again,
 * until none is better or OVER(ARG) says that there is no more time. Returns what it is worth then.
 */
double pl_climb(struct pl_layout *stem, double worth, const struct pl_space *space,
                const struct pl_problem *problem, pl_stem_worth *worth_of, bool (*over)(void *arg),
                void *arg);
/*
 * Change *LEAF, worth WORTH, a leaf of STEM, to the best that differs from it in one key behind the
 * stem, or where none is better in two, and again, as pl_climb() does.
 */
double pl_climb_leaves(struct pl_layout *leaf, double worth, const struct pl_layout *stem,
                       const struct pl_space *space, const struct pl_problem *problem,
                       pl_stem_worth *worth_of, bool (*over)(void *arg), void *arg);
/* Visit the legal layouts that differ from LEAF in two keys behind its STEM at most, some of them
 * more than once. */
void pl_climb_around(const struct pl_layout *leaf, const struct pl_layout *stem,
                     const struct pl_space *space, const struct pl_problem *problem,
                     pl_space_visit *visit, void *arg);

#endif
