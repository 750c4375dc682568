/*
 * The cost model: seconds per iteration, and utilization of the peak. A part of plan.h.
 */
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include <jansson.h>
#include <stddef.h>

#include "plan/layout.h"
#include "plan/problem.h"

enum pl_cost_class {
    PL_COST_FORWARD,
    PL_COST_BACKWARD,
    PL_COST_RECOMPUTE,
    PL_COST_TP,
    PL_COST_CP,
    PL_COST_EP,
    PL_COST_PP,
    PL_COST_BUBBLE,
    PL_COST_DP,
    PL_COST_OPTIMIZER,
    PL_COST_OTHER,
    PL_COST_CLASSES
};

extern const char *const pl_cost_class_names[PL_COST_CLASSES + 1];

struct pl_cost {
    double seconds[PL_COST_CLASSES]; /* exposed, on the critical path; they add up to total */
    double total;                    /* seconds an iteration */
    double tokens_per_s;             /* of the whole job */
};

/* Expected seconds of one iteration of a legal layout. */
void pl_cost(struct pl_cost *ret, const struct pl_problem *problem, const struct pl_layout *layout);
/* {"total": seconds, "tokens_per_s", "<class>": seconds}. New reference. */
json_t *pl_cost_json(const struct pl_cost *cost);

/* The same for many layouts of one problem: what they share is computed once. What PROBLEM points
 * to and CONSTANTS (may be NULL: those of the problem's stack) must outlive the context. Not
 * thread-safe. */
struct pl_cost_ctx;
struct pl_cost_ctx *pl_cost_ctx_new(const struct pl_problem *problem,
                                    const struct pl_constants *constants);
struct pl_cost_ctx *pl_cost_ctx_free(struct pl_cost_ctx *ctx);
void pl_cost_at(struct pl_cost *ret, struct pl_cost_ctx *ctx, const struct pl_layout *layout);

/* Model FLOP utilization of TOKENS_PER_S on WORLD devices; negative where the peak is unknown. */
double pl_mfu(const struct pl_problem *problem, const struct pl_layout *layout,
              double tokens_per_s);

/* Dense peak of a device in PRECISION (PL_FP32 ...), TFLOP/s; 0 where it is unknown. */
double pl_device_peak(const struct pl_device *device, int precision);

/*
 * Share of its devices' peak, in its precision, that LAYOUT needs at the least for TOKENS_PER_S:
 * the FLOPs of pl_mfu without the half of the attention matrix that a causal mask hides, which
 * kernels may leave out. Above 1 no machine can have done it, while at long sequences pl_mfu may be
 * above 1. Negative where the peak is unknown.
 */
double pl_peak_share(const struct pl_problem *problem, const struct pl_layout *layout,
                     double tokens_per_s);

#endif
