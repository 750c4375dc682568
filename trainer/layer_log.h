/*
 * The log of each layer: norms of its gradients and weights, and how many tokens each of its
 * experts got. Names as Megatron-LM's --log-params-norm and --moe-per-layer-logging.
 *
 * A norm is the square root of a sum of squares over the layer's tensors, whole and each counted
 * once, whatever the layout: so the squares of all rows add up to that of the step's grad_norm.
 * Gradients are those of the global batch before clipping; weights are those before the update, in
 * fp32. Tokens of a layer's experts add up to the tokens of the global batch x top_k.
 *
 * One all-reduce of 2 (layers + 1) + layers x experts doubles, in the steps that ask for it.
 */
#ifndef TRAINER_LAYER_LOG_H
#define TRAINER_LAYER_LOG_H

#include "trainer/events.h"
#include "trainer/rank.h"

struct tr_layer_log;

struct tr_layer_log *tr_layer_log_new(const struct tr_rank *rank);
struct tr_layer_log *tr_layer_log_free(struct tr_layer_log *log);

/* Between tr_step_grads() and the optimizer, which overwrites gradients. Collective. */
void tr_layer_log_take(struct tr_layer_log *log, struct tr_rank *rank);

/* The last ones taken, the same on every rank: *RET_COUNT rows, the model's layers in order and
 * then what is of no layer. Borrowed. */
const struct tr_layer_stats *tr_layer_log(int *ret_count, const struct tr_layer_log *log);

#endif
