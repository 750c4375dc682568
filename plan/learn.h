/*
 * Learning a stack: its constants from a handful of measured runs. A part of plan.h.
 */
#ifndef PLAN_LEARN_H
#define PLAN_LEARN_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/cost.h"
#include "plan/layout.h"
#include "plan/problem.h"

/* One run. What it points to is borrowed. */
struct pl_sample {
    const struct pl_model *model;
    const struct pl_cluster *cluster;
    const struct pl_workload *workload;
    struct pl_layout layout;
    double seconds;                /* of an iteration; 0: not measured */
    double bytes;                  /* that the fullest device held; 0: not measured */
    bool allocator;                /* bytes are what the caching allocator reports */
    bool first_rank;               /* bytes are those of rank 0 */
    bool oom;                      /* it ran out of memory: seconds and bytes are 0 */
    const struct pl_trainer *runs; /* facts of this run; NULL: those of the trainer at hand */
};

struct pl_learned {
    struct pl_trainer trainer; /* BASE's row with the learned stack */
    double noise;              /* deviation of log(measured seconds) about the learned model */
    double memory_noise;       /* the same of bytes */
};

/*
 * Maximum a posteriori constants of one stack, given SAMPLES. Each has a log-normal prior: median
 * and deviation of BASE's stack if it has a deviation, else those of any software (start and other
 * of pl_constant_names). BASE says how the stack runs. COUNT may be 0: the prior.
 * Samples must be layouts that exist (dp > 0); they need not fit.
 */
void pl_learn(struct pl_learned *ret, const struct pl_trainer *base,
              const struct pl_sample *samples, size_t count, const char *name);

/* What TRAINER's stack predicts for a sample; either result may be NULL. */
void pl_sample_predict(double *ret_seconds, double *ret_bytes, const struct pl_trainer *trainer,
                       const struct pl_sample *sample);

#endif
