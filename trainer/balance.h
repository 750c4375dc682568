/*
 * The load of the experts: choices that are dealt out, how many fell on each, and the bias that
 * balances them (private to trainer/).
 */
#ifndef TRAINER_BALANCE_H
#define TRAINER_BALANCE_H

#include "trainer/rank.h"

/* IDX (local_rows, top_k): the choices of LAYER in the current micro-batch where the model has
 * force_balance. */
void tr_balance_deal(struct tr_rank *rank, const struct tr_layer *layer,
                     const struct kn_router *router, int32_t *idx);

/* A step's choices: begin, add those of each micro-batch and layer, COUNT (micro_batch, experts)
 * summed over tp and cp, and end. */
void tr_balance_begin(struct tr_rank *rank);
void tr_balance_count(struct tr_rank *rank, const struct tr_layer *layer, const float *count);
void tr_balance_end(struct tr_rank *rank);

/* This step's choices after its end, of the ranks of the job each counted by one of them: what this
 * one counts to RET (layers, experts), in the order of the model's layers; zeros for all else. */
void tr_balance_loads(double *ret, const struct tr_rank *rank);
/* Largest over mean of the COUNT loads; NaN without any. */
double tr_balance_ratio(const double *load, uint64_t count);

/* After a step: move the biases of the choice, if the model has balance_bias. Collective. */
void tr_balance_step(struct tr_rank *rank);

/* Of each layer with experts, the choices of the most used expert over the mean, in the steps with
 * moe_counts, to RET_LAYERS (moe_layers); NaN without such steps. Returns their mean. Collective.
 */
double tr_balance_uneven(double *ret_layers, struct tr_rank *rank);

#endif
