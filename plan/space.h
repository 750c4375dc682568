/* Private to plan/: how a space is walked. */
#ifndef PLAN_SPACE_H
#define PLAN_SPACE_H

#include "plan/plan.h"

/* Row of pl_layout_keys, and of pl_space.axis, of each key. */
enum pl_key {
    PL_KEY_WORLD,
    PL_KEY_TP,
    PL_KEY_SP,
    PL_KEY_CP,
    PL_KEY_PP,
    PL_KEY_VP,
    PL_KEY_SCHEDULE,
    PL_KEY_EP,
    PL_KEY_ETP,
    PL_KEY_DP,
    PL_KEY_EDP,
    PL_KEY_ZERO,
    PL_KEY_ZERO_SCOPE,
    PL_KEY_MICRO_BATCH,
    PL_KEY_RECOMPUTE,
    PL_KEY_OVERLAP_GRAD,
    PL_KEY_OVERLAP_PARAM,
    PL_KEY_OVERLAP_P2P,
    PL_KEY_OVERLAP_MOE,
    PL_KEY_PRECISION,
    PL_KEY_THREADS
};

/* Replace axis KEY by every value that the trainer supports. */
void pl_space_widen(struct pl_space *s, enum pl_key key, const struct pl_problem *p);

/* Visit every member of the product, legal or not, in the order of pl_space_enumerate. */
size_t pl_space_product(const struct pl_space *s, const struct pl_problem *p, pl_space_visit *visit,
                        void *arg);

#endif
