/*
 * The layers' forward and backward passes (private to trainer/).
 *
 * Forward functions read and write activations of one slot (tr_act). Backward functions take
 * GRAD (local_rows, hidden), the gradient of the block's output, and turn it in place into the
 * gradient of its input; weight gradients are added to. With sp, GRAD and everything between the
 * blocks holds this tp rank's share of the rows; without it every tp rank holds all.
 */
#ifndef TRAINER_LAYER_H
#define TRAINER_LAYER_H

#include "trainer/rank.h"

/* ---- linear.c ------------------------------------------------------------ */

/* output (rows, out) = input (rows, in) weight^T, weight (out, in). */
void tr_linear(struct tr_rank *rank, void *output, const void *input, const void *weight,
               uint64_t rows, uint64_t in, uint64_t out);
/* The same of an input in rows of LD elements. */
void tr_linear_of(struct tr_rank *rank, void *output, const void *input, uint64_t ld,
                  const void *weight, uint64_t rows, uint64_t in, uint64_t out);
/* dx (rows, in) = dy (rows, out) weight. */
void tr_linear_dx(struct tr_rank *rank, void *dx, const void *dy, const void *weight, uint64_t rows,
                  uint64_t in, uint64_t out);
/* The same in fp32 into rows of LD elements. */
void tr_linear_dx_to(struct tr_rank *rank, void *dx, uint64_t ld, const void *dy,
                     const void *weight, uint64_t rows, uint64_t in, uint64_t out);
/* dW (out, in) += dy^T input. */
void tr_linear_dw(struct tr_rank *rank, void *dw, const void *dy, const void *input, uint64_t rows,
                  uint64_t in, uint64_t out);
void tr_linear_dw_of(struct tr_rank *rank, void *dw, const void *dy, const void *input, uint64_t ld,
                     uint64_t rows, uint64_t in, uint64_t out);

/* All rows of INPUT (local_rows, hidden): INPUT itself, or with sp the gather of every tp rank's
 * share, in a workspace that the next call overwrites. */
const void *tr_gather_rows(struct tr_rank *rank, const void *input);
/* The same of rows of WIDTH, at most the wider of hidden and latent. */
const void *tr_gather(struct tr_rank *rank, const void *input, uint64_t width);
/*
 * A block whose weight is cut over tp by its input ends in a partial sum (rows, hidden) ...
 *   tr_linear_partial      x W^T
 *   tr_linear_dx_partial   dy W
 * ... in a workspace, which tr_reduce_rows() adds over tp: (local_rows, hidden), valid until the
 * next of these.
 */
void tr_linear_partial(struct tr_rank *rank, const void *input, const void *weight, uint64_t rows,
                       uint64_t in, uint64_t out);
void tr_linear_dx_partial(struct tr_rank *rank, const void *dy, const void *weight, uint64_t rows,
                          uint64_t in, uint64_t out);
const void *tr_reduce_rows(struct tr_rank *rank);
/* The sum plus dy (local_rows, out) weight. */
const void *tr_reduce_rows_add(struct tr_rank *rank, const void *dy, const void *weight,
                               uint64_t out);
/* The same for any buffer (rows, WIDTH) of TYPE; the sum stays in BUF. */
const void *tr_reduce(struct tr_rank *rank, void *buf, enum kn_type type, uint64_t width);
/* SUM (local_rows, hidden) over tp in the type of activations, which may be work.dh. */
const void *tr_narrow(struct tr_rank *rank, const void *sum);

/* ---- norm.c -------------------------------------------------------------- */

/* What weights of the model's norms are a distance from: 1 where they are zero-centered, else 0. */
float tr_norm_offset(const struct tr_rank *rank);
/* Y, which may be X, and STATS (local_rows, stats) from X (local_rows, hidden). */
void tr_norm_fwd(struct tr_rank *rank, const struct tr_norm *norm, void *y, float *stats,
                 const void *x);
/* DX = [DX +] the gradient of X from DY; ADD: with what is there. */
void tr_norm_bwd(struct tr_rank *rank, const struct tr_norm *norm, void *dx, const void *dy,
                 const void *x, const float *stats, bool add);
/* X -> H1. Without norms of inputs H1 is X and H2 is X2 (struct pl_acts): nothing to do.
 */
void tr_norm1(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* From DH, the gradient of H1: GRAD += that of X, with a shared norm also from that of H2. */
void tr_norm1_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *grad, const void *dh);
/* X2 -> H2; X -> H2 in a parallel block. With a shared norm H2 is H1: nothing to do. */
void tr_norm2(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* H2 again, where selective recompute has not kept it. */
void tr_norm2_again(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* From DH, the gradient of H2: GRAD += that of X2. In a parallel block that of X is left in
 * work.dx2, since attention needs GRAD as it is; tr_layer_bwd() adds it. With a shared norm DH
 * itself is left there. */
void tr_norm2_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *grad, const void *dh);

/* How a block ends: with a bias and a norm of its output, either of which may hold NULL; the norm
 * keeps that output in Y (local_rows, hidden) and STATS. */
struct tr_residual {
    const struct tr_norm *post;
    const struct tr_weight *bias;
    void *y;
    float *stats;
};

/* OUT = X + Y residual_multiplier, all (local_rows, hidden); OUT may be Y. */
void tr_add_output(struct tr_rank *rank, void *out, const void *x, const void *y);
/* From GRAD, that of such an OUT, the gradient of Y: GRAD itself, or with a multiplier work.dx2,
 * valid until the next of these. */
const void *tr_output_grad(struct tr_rank *rank, const void *grad);
/* OUT = X + norm(SUM + bias) residual_multiplier, all (local_rows, hidden); without a norm SUM +
 * bias. OUT NULL, with a norm only: make Y and STATS again. */
void tr_residual(struct tr_rank *rank, const struct tr_residual *block, void *out, const void *x,
                 const void *sum);
/* The gradient of SUM: GRAD itself, or work.dx2, valid until the next of these. */
const void *tr_residual_bwd(struct tr_rank *rank, const struct tr_residual *block,
                            const void *grad);

/* Y (rows, dim) += BIAS in every row, and BIAS's gradient; nothing where there is no bias. */
void tr_bias_fwd(struct tr_rank *rank, const struct tr_weight *bias, void *y, uint64_t rows,
                 uint64_t dim);
void tr_bias_bwd(struct tr_rank *rank, const struct tr_weight *bias, const void *dy, uint64_t rows,
                 uint64_t dim);

/* ---- rotate.c ------------------------------------------------------------ */

/* Rotate the first elements of HEADS heads of DIM elements of TYPE, in all rows of X (rows, LD), as
 * LAYER has it. */
void tr_rotate(struct tr_rank *rank, const struct tr_layer *layer, enum kn_type type, void *x,
               uint64_t ld, uint64_t heads, uint64_t dim, bool backward);

/* ---- qk_norm.c ----------------------------------------------------------- */

/* QKV -> QK and QKRRMS; of a model with norms of queries and keys, as the next. */
void tr_qk_norm_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* DQKV, the gradient of QK and of the values, becomes that of QKV. */
void tr_qk_norm_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                    char *dqkv);

/* ---- latent.c ------------------------------------------------------------ */

/* H1 -> LATENT, NORMED, LRRMS and QKV. */
void tr_latent_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* Queries, keys and values in QKV, and where attention writes their gradients: some in DQKV. */
void tr_latent_place(struct kn_attn *attn, const struct tr_rank *rank, const char *qkv);
void tr_latent_grad_place(struct kn_attn_grad *grad, const struct tr_rank *rank, char *dqkv);
/* From these the rest of DQKV and the gradients of the norms ... */
void tr_latent_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   char *dqkv);
/* ... and from DQKV the gradient of H1 (local_rows, hidden), valid until the next sum over tp, and
 * those of the matrices. */
const void *tr_latent_dh(struct tr_rank *rank, const struct tr_layer *layer, char *dqkv);
void tr_latent_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  char *dqkv);

/* ---- attention.c, mlp.c, moe.c ------------------------------------------- */

void tr_attention_fwd(struct tr_rank *rank, const struct tr_layer *layer,
                      struct tr_slot slot); /* X -> X2 */
/* Before the layer's backward pass: what it exchanges over cp first travels behind the rest. */
void tr_attention_ahead(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot);
/* KEEP, if not NULL, is the gradient slot of a split backward pass: what the weights' gradients
 * need is kept there, and the _dw function is called later. Otherwise they are computed at once. */
void tr_attention_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                      char *keep, void *grad);
void tr_attention_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     char *keep);

/* X2 -> OUT (local_rows, hidden); OUT NULL: stop before the last product, which the backward pass
 * does not need unless its output has a norm. */
void tr_mlp_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, void *out);
void tr_mlp_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep,
                void *grad);
void tr_mlp_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep);

/* The same without norm and residual, for the experts that every token visits: from H2 to the sum
 * over tp ... */
const void *tr_ffn_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       uint64_t ffn, bool all);
/* ... and back from GRAD to the gradient of H2; neither is changed. */
const void *tr_ffn_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       char *keep, uint64_t ffn, const void *grad);
void tr_ffn_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep,
               uint64_t ffn);

/* Y (rows, ffn) of GU (rows, 2 ffn), gate and up, by the model's gated activation ... */
void tr_glu_fwd(struct tr_rank *rank, void *y, const char *gu, uint64_t rows, uint64_t ffn);
/* ... and from DY (rows, ffn) the gradients of gate and up, in their places. */
void tr_glu_bwd(struct tr_rank *rank, char *gu, const void *dy, uint64_t rows, uint64_t ffn);

void tr_moe_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, void *out);
void tr_moe_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep,
                void *grad);
void tr_moe_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep);
/* Compute the gradients of experts that tr_moe_bwd() has delayed: before they are reduced, and
 * before a slot is used again. */
void tr_moe_wgrad(struct tr_rank *rank);

/* ---- router.c ------------------------------------------------------------ */

/* H2 -> PROBS, IDX, W, FREQ. With COUNT (the first time through, not a recomputation) the
 * micro-batch's load-balancing loss is added to aux_sum, or with the "huggingface" loss the layer
 * to its pool. */
void tr_router_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   bool count);
/*
 * The pool of the "huggingface" loss of micro-batch MB: (2, experts) double, choices and then
 * probabilities of each expert, added over the micro-batch's tokens and the layers so far; NULL for
 * the other losses. It travels with the activations from stage to stage, and back, then whole, with
 * the gradients, which need it. On the last virtual stage tr_router_pooled() adds its loss to
 * aux_sum.
 */
double *tr_router_pool(const struct tr_rank *rank, int mb);
size_t tr_router_pool_bytes(const struct tr_rank *rank);
void tr_router_pooled(struct tr_rank *rank, int mb);
/* What aux_sum of all ranks is to be divided by: the pools that the loss is a mean over, as
 * enum pl_aux_loss has them. */
double tr_router_pools(const struct tr_rank *rank);
/* The same of moe_z_sum: all tokens of the global batch. */
double tr_router_tokens(const struct tr_rank *rank);
/* From DW (local_rows, top_k): DH (local_rows, hidden) += gradient, router's gradient. */
void tr_router_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   const float *dw, void *dh);

/* ---- head.c -------------------------------------------------------------- */

/* Rows of the embedding, OUT (local_rows, hidden), of the words IDS (rows), and its gradient. */
void tr_lookup_fwd(struct tr_rank *rank, void *out, const int32_t *ids);
void tr_lookup_bwd(struct tr_rank *rank, const void *grad, const int32_t *ids);
/* Those of micro-batch MB, with learned positions. */
void tr_embed_fwd(struct tr_rank *rank, void *out, int mb);
void tr_embed_bwd(struct tr_rank *rank, const void *grad, int mb);

/* A loss behind the output projection. */
struct tr_head_loss {
    const int32_t *targets; /* (rows) */
    double scale;           /* of the gradient; 0: none is wanted */
    double z_coef;          /* of the z-loss, in the gradient */
    double sum, z_sum;      /* results: cross-entropy and (log Z)^2 over the tokens that count */
};

/* Loss of the rows NORMED (local_rows, hidden). Returns their gradient, valid until the next sum
 * over tp, having added that of the projection; NULL without a scale. */
const void *tr_project(struct tr_rank *rank, const void *normed, struct tr_head_loss *of);
/* From the input in work.xf work.logits (rows, vocab). */
void tr_head_logits(struct tr_rank *rank);
/* The input is in work.xf. Adds the micro-batch's cross-entropy to loss_sum; DX (local_rows,
 * hidden), unless NULL, gets the gradient of the input, and the weights their gradients. */
void tr_head(struct tr_rank *rank, void *dx, int mb);

/* ---- layer.c ------------------------------------------------------------- */

void tr_layer_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *out);
void tr_layer_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  char *keep, void *grad);
void tr_layer_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                 char *keep);

#endif
