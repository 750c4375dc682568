/*
 * Sizing: one job at several device counts, each with its best layout. A part of plan.h.
 *
 * With R tokens/s on N devices, R_0 on the N_0 of the first size that fits, and R' on the N' of the
 * one before:
 *
 *   efficiency   (R / N) / (R_0 / N_0)
 *   marginal     (R - R') / (N - N') / (R_0 / N_0)     throughput of each added device
 *
 * T tokens take T / R seconds, and N times that in device-seconds.
 */
#ifndef PLAN_SIZE_H
#define PLAN_SIZE_H

#include <stdbool.h>

#include "base/err.h"
#include "plan/layout.h"
#include "plan/space.h"

struct pl_size {
    int devices;
    bool fits; /* else nothing legal fits, and all that follows but EXACT and REASON is 0 */
    struct pl_layout layout;
    double bytes;                /* of the worst rank */
    double tokens_per_s, lo, hi; /* by the cost model; the 95 % interval of a job without a trial */
    double mfu;                  /* negative: unknown */
    double efficiency, marginal; /* by pl_sizes_compare; of the first size that fits 1 */
    bool exact;                  /* the whole space was looked at */
    struct err reason;           /* why nothing fits */
};

/* The best layout on all devices of the problem's cluster, in memory less the share HEADROOM. When
 * PATIENCE (may be NULL) is over, the best that was looked at. */
void pl_size_of(struct pl_size *ret, const struct pl_space *space, const struct pl_problem *problem,
                double headroom, const struct pl_patience *patience);

/* Set efficiency and marginal of COUNT sizes in ascending order of devices. */
void pl_sizes_compare(struct pl_size *sizes, int count);

/* The first size that reaches TOKENS_PER_S, by the lower end of its interval if SURE; -1: none. */
int pl_sizes_fewest(const struct pl_size *sizes, int count, double tokens_per_s, bool sure);

/* The last size up to which each step brings at least LEAST a device (marginal); -1: fewer than
 * two fit, and there is no step. */
int pl_sizes_paying(const struct pl_size *sizes, int count, double least);

#endif
