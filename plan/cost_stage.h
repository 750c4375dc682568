/* Private to plan/: the stages of a pipeline as sums, what all of them wait for, and what follows
 * on the last micro-batch. Formulas and their sources are in docs/explanation/cost-model.md. */
#ifndef PLAN_COST_STAGE_H
#define PLAN_COST_STAGE_H

#include "plan/cost_parts.h"
#include "plan/memory_parts.h"

struct pl_stage_sum {
    double fwd, bwd, weight, re, tp, cp, ep; /* of one micro-batch; weight is part of bwd */
    double forward;                          /* the forward pass with its exchanges */
    double total;
    int layers;
};

/* All stages as sums: the slowest, and the whole. Equal stages in the middle are looked at once. */
struct pl_pipeline {
    struct pl_stage_sum slow; /* the slowest stage, which sets the pace */
    int slow_stage;
    double later, later_stages;           /* totals of the stages after it, and how many */
    double last;                          /* total of the last stage */
    double others;                        /* total of one micro-batch over all other stages */
    double others_forward, others_weight; /* the same of two parts of it */
    double others_split; /* the same of forward + backward - 2 x weight gradient: zero-bubble's idle
                            time */
};

/* Put ONE, TIMES stages alike of which the last is STAGE, behind those that PIPELINE has; a zeroed
 * struct has none. */
void pl_pipeline_add(struct pl_pipeline *pipeline, const struct pl_stage_sum *one, int stage,
                     int times);
/* After the last stage. */
void pl_pipeline_end(struct pl_pipeline *pipeline);
/* Seconds beyond the slowest stage's own work in a step of MICRO micro-batches. */
double pl_bubble_s(const struct pl_pipeline *pipeline, const struct pl_layout *layout,
                   double micro);

/* What CTX knows of its machine for LAYOUT; it holds until the context is asked again. */
const struct pl_op_ctx *pl_cost_op(struct pl_cost_ctx *ctx, const struct pl_layout *layout);
/* A stage that holds the model's layers [FIRST, FIRST + N), and the embedding (HEAD) or the loss
 * (TAIL) if it is an end, on CTX's machine. LAYOUT's own division is not read. */
void pl_cost_run(struct pl_stage_sum *ret, struct pl_cost_ctx *ctx, const struct pl_layout *layout,
                 int first, int n, bool head, bool tail);
/* Parameters on a rank of STAGE, which holds the layers [FIRST, FIRST + N). */
void pl_cost_held(struct pl_held *ret, struct pl_cost_ctx *ctx, const struct pl_layout *layout,
                  int stage, int first, int n);

/* Seconds of a step that replicas of STAGE, with the parameters HELD, exchange gradients and
 * weights without computing; MICRO micro-batches pass through it. */
double pl_sync_s(const struct pl_op_ctx *op, const struct pl_layout *layout,
                 const struct pl_stage_sum *stage, const struct pl_held *held, double micro);
/* Seconds in which the two ends of a pipeline add up the gradient of a tied embedding. */
double pl_tied_embedding_s(const struct pl_op_ctx *op, const struct pl_layout *layout);
/* Seconds of the optimizer's step. */
double pl_update_s(const struct pl_op_ctx *op, const struct pl_layout *layout,
                   const struct pl_held *held);
/* Parameters of HELD whose state a rank has. */
double pl_shard_params(const struct pl_layout *layout, const struct pl_held *held);

#endif
