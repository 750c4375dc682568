/* Private to plan/: operators of a layer that several files put together. */
#ifndef PLAN_OPERATOR_H
#define PLAN_OPERATOR_H

#include "plan/cost_parts.h"

/* Matrix units take reductions in multiples of so many half-precision elements. */
enum { PL_ALIGNED = 8 };

/* Kernels of a feed-forward of experts between its products: router, permutation, activation. */
enum { PL_MOE_KERNELS = 12 };

/* Tokens of a micro-batch on a rank of the tp group, before sp divides them. */
double pl_tokens_of(const struct pl_op_ctx *op, const struct pl_layout *layout);

/* KERNELS that do nothing but move BYTES. */
double pl_streamed_s(const struct pl_rates *rates, double bytes, double kernels);

/* The product of M x K and K x N with those of its backward pass and, where the precision is
 * narrow, the casts of their operands; and the same in half precision whatever the layout's. */
void pl_add_product(struct pl_layer_time *layer, const struct pl_rates *rates, double m, double n,
                    double k);
void pl_add_half_product(struct pl_layer_time *layer, const struct pl_rates *rates, double m,
                         double n, double k);

/*
 * Router, dispatch, experts, combine. Each rank holds tokens / tp of the micro-batch, sends top_k
 * copies of each to the ranks of its ep group, and receives as many; with etp the copies are
 * gathered over the etp group first and each rank computes all of them on its share of the width.
 * Returns the seconds of dispatch and combine in one pass, without the etp group's.
 */
double pl_moe_mlp(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                  const struct pl_layout *layout);

#endif
