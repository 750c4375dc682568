/*
 * Private to plan/: what a layer consists of, counted once for parameters, FLOPs, bytes and
 * seconds. Counts are doubles, exact below 2^53.
 */
#ifndef PLAN_SHAPE_H
#define PLAN_SHAPE_H

#include "plan/model.h"

/* Y(tokens, out) = X(tokens, in) W, and what tensor parallelism splits: the outputs, the inputs, or
 * nothing. */
enum pl_split { PL_SPLIT_NONE, PL_SPLIT_OUT, PL_SPLIT_IN };

struct pl_product {
    double in, out;
    enum pl_split split;
    bool bias;
};

enum { PL_MOST_PRODUCTS = 8 };

/* Products of one attention: their number. q, k, v and the output's gate are one product, or those
 * of the latents, with an indexer's. */
int pl_attention_products(struct pl_product *ret, const struct pl_model *model);
/* Elements of one of TP slices of its matrices. */
double pl_attention_matrices(const struct pl_model *model, int tp);
/* Parameters of the norms of queries, keys and latents, and of sinks. */
double pl_attention_vectors(const struct pl_model *model);
/* Widths of a head's key and value. */
double pl_key_dim(const struct pl_model *model);
double pl_value_dim(const struct pl_model *model);

/* Widths of what a head's query meets in attention's core: with dsa every head reads the latents of
 * keys and values as they are, else keys and values. */
double pl_core_key_dim(const struct pl_model *model);
double pl_core_value_dim(const struct pl_model *model);

/* Keys that a query meets, as the convention of full T x T attention counts them: twice the mean of
 * a causal mask, over the layers of the model. SEQ where every layer sees all. */
double pl_span(const struct pl_model *model, double seq);

/* Matrices of a feed-forward: 3 where it is gated, else 2. */
double pl_mlp_matrices(const struct pl_model *model);

/* Norms of hidden rows in a layer of attention and feed-forward. */
int pl_layer_norms(const struct pl_model *model);

/* Parts of the mean layer with experts, or without: of a hybrid, shares. */
struct pl_mix {
    double attention, linear, mamba, ffn;
    double norms; /* of the hidden width */
};

void pl_mix_of(struct pl_mix *ret, const struct pl_model *model, bool moe);

/* MODEL with attention of the last layer's kind in all layers, as a module of prediction has it:
 * MODEL itself where all are of one kind, else in *ROOM. */
const struct pl_model *pl_as_last(struct pl_model *room, const struct pl_model *model);

/* Bytes of one token that a layer keeps for the backward pass with elements of 2 bytes: of
 * attention inside a tp slice (the sum over all slices) and outside; of Mamba-2 (the sum). */
double pl_attention_kept(const struct pl_model *model);
double pl_latents_kept(const struct pl_model *model);
double pl_indexer_kept(const struct pl_model *model,
                       double seq); /* outside, with sequences of SEQ */
double pl_mamba_kept(const struct pl_model *model);

/* Mamba-2: elements of the matrices of its two products, all its parameters, and FLOPs of its scan
 * and convolution for one token. */
double pl_mamba_inner(const struct pl_model *model); /* heads x head_dim */
double pl_mamba_in(const struct pl_model *model);    /* outputs of the first product */
double pl_mamba_params(const struct pl_model *model);
double pl_mamba_scan_flops(const struct pl_model *model);

/* FLOPs of a token by which an indexer scores SEQ keys, all of them as full attention counts. */
double pl_indexer_flops(const struct pl_model *model, double seq);

/* Linear attention (linear.c): width of all heads' values; outputs of its first
 * product; all its parameters; FLOPs of one token in convolution and rule, as Megatron counts them,
 * and in the rule's chunks, as kernels compute them; bytes that a token keeps (the sum over tp). */
double pl_linear_values(const struct pl_model *model);
double pl_linear_in(const struct pl_model *model);
double pl_linear_params(const struct pl_model *model);
double pl_linear_rule_flops(const struct pl_model *model);
double pl_linear_chunk_flops(const struct pl_model *model);
double pl_linear_kept(const struct pl_model *model);

#endif
