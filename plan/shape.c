/*
 * What a layer consists of.
 *
 * Multi-head latent attention: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1. Sparse attention and
 * its indexer: DeepSeek-AI, "DeepSeek-V3.2" (2025), section 2.1. Mamba-2: Dao and Gu,
 * "Transformers are SSMs" (2024); its FLOPs as Megatron-LM counts them (mamba_layer_flops() in
 * megatron/training/training.py). Multi-token prediction: DeepSeek-AI, "DeepSeek-V3" (2024),
 * section 2.2.
 */
#include "plan/shape.h"

#include <math.h>

#include "base/base.h"

bool pl_mlp_is_gated(enum pl_mlp mlp)
{
    return mlp == PL_SWIGLU || mlp == PL_GEGLU || mlp == PL_SWIGLU_CLAMPED;
}

int pl_input_norms(const struct pl_model *model)
{
    return model->shared_norm ? 1 : 2 * model->pre_norms;
}

int pl_rotary_dim(const struct pl_model *model)
{
    return pl_model_is_mla(model) ? model->mla.qk_rope_head_dim
                                  : (int)(model->head_dim * model->partial_rotary_factor);
}

bool pl_residual_is_scaled(const struct pl_model *model)
{
    return model->residual_multiplier < 1 || model->residual_multiplier > 1;
}

double pl_yarn_term(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double pl_yarn_amplitude(const struct pl_rope_scaling *scaling)
{
    double factor = scaling->factor;

    if (scaling->mscale > 0 && scaling->mscale_all_dim > 0)
        return pl_yarn_term(factor, scaling->mscale) /
               pl_yarn_term(factor, scaling->mscale_all_dim);
    return pl_yarn_term(factor, 1);
}

int pl_rope_tables(const struct pl_model *model)
{
    return model->rope_theta_local > 0 ? 2 : 1;
}

bool pl_model_is_mla(const struct pl_model *model)
{
    return model->mla.kv_lora_rank > 0;
}

/* A module of multi-token prediction, numbered after the layers, has a layer like the last. */
static int as_layer(const struct pl_model *model, int layer)
{
    return layer < model->layers ? layer : model->layers - 1;
}

/* By a window or chunks. */
static bool is_local(const struct pl_model *model, int layer)
{
    layer = as_layer(model, layer);
    return (model->sliding_window > 0 || model->attention_chunk_size > 0) &&
           (!model->global_every || (layer + 1) % model->global_every != 0);
}

bool pl_layer_has_window(const struct pl_model *model, int layer)
{
    return model->sliding_window > 0 && is_local(model, layer);
}

bool pl_layer_is_linear(const struct pl_model *model, int layer)
{
    return model->linear_attention_freq &&
           (as_layer(model, layer) + 1) % model->linear_attention_freq != 0;
}

bool pl_layer_has_rope(const struct pl_model *model, int layer)
{
    return model->positions == PL_ROPE &&
           (!model->no_rope_freq || (as_layer(model, layer) + 1) % model->no_rope_freq != 0);
}

bool pl_layer_is_moe(const struct pl_model *model, int layer)
{
    layer = as_layer(model, layer);
    if (model->pattern[0])
        return model->pattern[layer] == 'E';
    return model->moe.experts > 0 && layer >= model->moe.dense_layers &&
           (layer + 1) % model->moe.every == 0;
}

int pl_moe_layers(const struct pl_model *model)
{
    int n = 0;

    for (int l = 0; l < model->layers + model->mtp; l++)
        n += pl_layer_is_moe(model, l);
    return n;
}

/* Queries of the indexer's heads, the key that they share, and a weight of each head. */
static int indexer_products(struct pl_product *ret, const struct pl_model *model)
{
    const struct pl_dsa *dsa = &model->dsa;
    double h = model->hidden;

    ret[0] =
        (struct pl_product){model->mla.q_lora_rank,
                            (double)dsa->index_n_heads * dsa->index_head_dim, PL_SPLIT_NONE, false};
    ret[1] = (struct pl_product){h, dsa->index_head_dim, PL_SPLIT_NONE, false};
    ret[2] = (struct pl_product){h, dsa->index_n_heads, PL_SPLIT_NONE, false};
    return 3;
}

static int latent_products(struct pl_product *ret, const struct pl_model *model)
{
    const struct pl_mla *mla = &model->mla;
    double h = model->hidden, heads = model->heads;
    int n = 0;

    if (mla->q_lora_rank) {
        ret[n++] = (struct pl_product){h, mla->q_lora_rank, PL_SPLIT_NONE, model->qkv_bias};
        ret[n++] =
            (struct pl_product){mla->q_lora_rank, heads * model->head_dim, PL_SPLIT_OUT, false};
    } else {
        ret[n++] = (struct pl_product){h, heads * model->head_dim, PL_SPLIT_OUT, false};
    }
    ret[n++] = (struct pl_product){h, mla->kv_lora_rank + mla->qk_rope_head_dim, PL_SPLIT_NONE,
                                   model->qkv_bias};
    ret[n++] = (struct pl_product){
        mla->kv_lora_rank, heads * (mla->qk_nope_head_dim + mla->v_head_dim), PL_SPLIT_OUT, false};
    ret[n++] = (struct pl_product){heads * mla->v_head_dim, h, PL_SPLIT_IN, model->out_bias};
    return model->dsa.index_topk ? n + indexer_products(ret + n, model) : n;
}

int pl_attention_products(struct pl_product *ret, const struct pl_model *model)
{
    double q = (double)model->heads * model->head_dim,
           kv = (double)model->kv_heads * model->head_dim;

    if (pl_model_is_mla(model))
        return latent_products(ret, model);
    ret[0] = (struct pl_product){model->hidden, (model->attention_output_gate ? 2 : 1) * q + 2 * kv,
                                 PL_SPLIT_OUT, model->qkv_bias};
    ret[1] = (struct pl_product){q, model->hidden, PL_SPLIT_IN, model->out_bias};
    return 2;
}

double pl_attention_matrices(const struct pl_model *model, int tp)
{
    struct pl_product product[PL_MOST_PRODUCTS];
    int many = pl_attention_products(product, model);
    double n = 0;

    for (int i = 0; i < many; i++)
        n += product[i].in * product[i].out / (product[i].split == PL_SPLIT_NONE ? 1 : tp);
    return n;
}

double pl_attention_vectors(const struct pl_model *model)
{
    double d = model->head_dim, n = model->attn_sinks ? model->heads : 0;

    if (model->qk_norm == PL_QK_HEAD)
        n += 2 * d;
    if (model->qk_norm == PL_QK_FULL)
        n += d * (model->heads + model->kv_heads);
    /* the norm of the indexer's key has a bias */
    return n + model->mla.q_lora_rank + model->mla.kv_lora_rank + 2.0 * model->dsa.index_head_dim;
}

double pl_key_dim(const struct pl_model *model)
{
    return model->head_dim;
}

double pl_value_dim(const struct pl_model *model)
{
    return pl_model_is_mla(model) ? model->mla.v_head_dim : model->head_dim;
}

double pl_core_key_dim(const struct pl_model *model)
{
    return model->dsa.index_topk ? model->mla.kv_lora_rank + model->mla.qk_rope_head_dim
                                 : pl_key_dim(model);
}

double pl_core_value_dim(const struct pl_model *model)
{
    return model->dsa.index_topk ? model->mla.kv_lora_rank : pl_value_dim(model);
}

/* Queries 1 .. MOST see as many keys as their number, the others see MOST. */
static double span_of_window(double most, double seq)
{
    return most < seq ? most * (2 - most / seq) : seq;
}

/* Whole chunks of SIZE, and what is left of a sequence. */
static double span_of_chunks(double size, double seq)
{
    double whole = floor(seq / size), rest = seq - whole * size;

    return (whole * size * size + rest * rest) / seq;
}

double pl_span(const struct pl_model *model, double seq)
{
    double span = seq, local = 0;

    if (model->dsa.index_topk)
        return span_of_window(model->dsa.index_topk, seq);
    if (model->sliding_window)
        span = span_of_window(model->sliding_window, seq);
    else if (model->attention_chunk_size)
        span = span_of_chunks(model->attention_chunk_size, seq);
    else
        return seq;
    for (int l = 0; l < model->layers; l++)
        local += is_local(model, l);
    return seq - local / model->layers * (seq - span);
}

double pl_mlp_matrices(const struct pl_model *model)
{
    return pl_mlp_is_gated(model->mlp) ? 3 : 2;
}

int pl_layer_norms(const struct pl_model *model)
{
    return pl_input_norms(model) + 2 * model->post_norms;
}

static int count(const char *pattern, char letter)
{
    int n = 0;

    for (; *pattern; pattern++)
        n += *pattern == letter;
    return n;
}

/* Of the layers with experts (MOE) or without. */
static double linear_share(const struct pl_model *model, bool moe)
{
    double linear = 0, all = 0;

    for (int l = 0; l < model->layers && model->linear_attention_freq; l++) {
        bool counts = pl_layer_is_moe(model, l) == moe;

        all += counts;
        linear += counts && pl_layer_is_linear(model, l);
    }
    return all > 0 ? linear / all : 0;
}

void pl_mix_of(struct pl_mix *ret, const struct pl_model *model, bool moe)
{
    const char *pattern = model->pattern;

    if (!*pattern) {
        double linear = linear_share(model, moe);

        *ret = (struct pl_mix){
            .attention = 1 - linear, .linear = linear, .ffn = 1, .norms = pl_layer_norms(model)};
    } else if (moe) {
        *ret = (struct pl_mix){.ffn = 1, .norms = 1};
    } else {
        double all = model->layers - count(pattern, 'E');

        *ret = (struct pl_mix){.norms = 1};
        if (all > 0) {
            ret->attention = count(pattern, '*') / all;
            ret->mamba = count(pattern, 'M') / all;
            ret->ffn = count(pattern, '-') / all;
        }
    }
}

const struct pl_model *pl_as_last(struct pl_model *room, const struct pl_model *model)
{
    bool linear = pl_layer_is_linear(model, model->layers - 1);

    if (!model->linear_attention_freq)
        return model;
    *room = *model;
    room->linear_attention_freq = linear ? model->layers + 1 : 0;
    return room;
}

/* q, k and v, and the input of the output projection; q and k also before their norm, and of a
 * gated output the gate and what it multiplies. With dsa, whose keys and values are the latents
 * (pl_latents_kept), queries before and after they meet the keys' up projection, and the output
 * before and after the values'. */
double pl_attention_kept(const struct pl_model *model)
{
    double key = pl_key_dim(model), value = pl_value_dim(model), heads = model->heads;
    double n = 2 * (heads + model->kv_heads) * (key + value);

    if (model->dsa.index_topk)
        return 2 * heads * (key + pl_core_key_dim(model) + pl_core_value_dim(model) + value);
    if (model->attention_output_gate)
        n += 2 * 2 * heads * value;
    return model->qk_norm == PL_QK_NONE ? n : n + 2 * (heads + model->kv_heads) * key;
}

/* The latents of queries and of keys with values, before and after their norms, are whole on each
 * tp rank. */
double pl_latents_kept(const struct pl_model *model)
{
    return 2.0 * (2 * model->mla.q_lora_rank + 2 * model->mla.kv_lora_rank +
                  (pl_model_is_mla(model) ? model->mla.qk_rope_head_dim : 0));
}

double pl_indexer_flops(const struct pl_model *model, double seq)
{
    return 2 * seq * model->dsa.index_n_heads * model->dsa.index_head_dim;
}

/* Queries and key of the indexer, the key also before its norm; its weights in fp32; and the places
 * of the chosen keys, in 4 bytes each. */
double pl_indexer_kept(const struct pl_model *model, double seq)
{
    const struct pl_dsa *dsa = &model->dsa;

    return 2.0 * ((double)dsa->index_n_heads * dsa->index_head_dim + 2.0 * dsa->index_head_dim) +
           4.0 * dsa->index_n_heads + 4 * (dsa->index_topk < seq ? dsa->index_topk : seq);
}

/* Outputs of the first product and of the convolution, of the scan, of the norm; the state between
 * chunks of 128 tokens in fp32. */
double pl_mamba_kept(const struct pl_model *model)
{
    double inner = pl_mamba_inner(model), state = model->mamba.state;

    return 2 * (pl_mamba_in(model) + (inner + 2.0 * model->mamba.groups * state) + 2 * inner) +
           4 * inner * state / 128;
}

double pl_mamba_inner(const struct pl_model *model)
{
    return (double)model->mamba.heads * model->mamba.head_dim;
}

/* Input and gate, B and C of the groups, and a step for each head. */
double pl_mamba_in(const struct pl_model *model)
{
    return 2 * pl_mamba_inner(model) + 2.0 * model->mamba.groups * model->mamba.state +
           model->mamba.heads;
}

double pl_mamba_params(const struct pl_model *model)
{
    double inner = pl_mamba_inner(model), h = model->hidden;
    double convolved = inner + 2.0 * model->mamba.groups * model->mamba.state;

    /* convolution with its bias; A, D and the step's bias of each head; the norm before the output
     */
    return h * pl_mamba_in(model) + convolved * (model->mamba.conv + 1) + 3.0 * model->mamba.heads +
           inner + inner * h;
}

double pl_mamba_scan_flops(const struct pl_model *model)
{
    return 7 * pl_mamba_inner(model) * model->mamba.state;
}
