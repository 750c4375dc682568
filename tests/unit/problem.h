/* Problems of what tests have at hand. Both are pointers that are good in the enclosing block. */
#ifndef TESTS_UNIT_PROBLEM_H
#define TESTS_UNIT_PROBLEM_H

#include <string.h>

#include "plan/memory_parts.h"
#include "plan/plan.h"

/* WORLD points to a struct of a model m, a cluster c and a workload w. */
#define problem_with(world, trainer)                                                               \
    (&(const struct pl_problem){&(world)->m, &(world)->c, &(world)->w, (trainer)})

/* The same, and a pointer t to the trainer. */
#define problem_of(world) problem_with(world, (world)->t)

/* What a rank of STAGE holds. */
static inline void held_on(struct pl_held *ret, const struct pl_model *model,
                           const struct pl_layout *layout, int stage)
{
    struct pl_layer_params params[2];

    pl_layer_params_of(params, model, layout);
    pl_held_params(ret, model, layout, stage, pl_stage_count(model, layout, stage), params);
}

/* Byte for byte, but for the padding of the struct. */
static inline bool same_memory(const struct pl_memory *left, const struct pl_memory *right)
{
    return !memcmp(left->bytes, right->bytes, sizeof(left->bytes)) && left->total == right->total &&
           left->host == right->host && left->rank == right->rank;
}

#endif
