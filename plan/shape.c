/*
 * What a layer consists of.
 *
 * Multi-head latent attention: DeepSeek-AI, "DeepSeek-V2" (2024), section 2.1. Mamba-2: Dao and Gu,
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

bool pl_layer_has_window(const struct pl_model *model, int layer)
{
    layer = as_layer(model, layer);
    return model->sliding_window > 0 &&
           (!model->global_every || (layer + 1) % model->global_every != 0);
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
    return n;
}

int pl_attention_products(struct pl_product *ret, const struct pl_model *model)
{
    double q = (double)model->heads * model->head_dim,
           kv = (double)model->kv_heads * model->head_dim;

    if (pl_model_is_mla(model))
        return latent_products(ret, model);
    ret[0] = (struct pl_product){model->hidden, q + 2 * kv, PL_SPLIT_OUT, model->qkv_bias};
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
    return n + model->mla.q_lora_rank + model->mla.kv_lora_rank;
}

double pl_key_dim(const struct pl_model *model)
{
    return model->head_dim;
}

double pl_value_dim(const struct pl_model *model)
{
    return pl_model_is_mla(model) ? model->mla.v_head_dim : model->head_dim;
}

double pl_span(const struct pl_model *model, double seq)
{
    double window = model->sliding_window, narrow = 0;

    if (model->sliding_window <= 0 || window >= seq)
        return seq;
    for (int l = 0; l < model->layers; l++)
        narrow += pl_layer_has_window(model, l);
    /* Queries 1 .. window see as many keys as their number, the others see `window`. */
    return seq - narrow / model->layers * (seq - window * (2 - window / seq));
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

void pl_mix_of(struct pl_mix *ret, const struct pl_model *model, bool moe)
{
    const char *pattern = model->pattern;

    if (!*pattern) {
        *ret =
            (struct pl_mix){.attention = 1, .mamba = 0, .ffn = 1, .norms = pl_layer_norms(model)};
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

/* q, k and v, and the input of the output projection; q and k also before their norm. */
double pl_attention_kept(const struct pl_model *model)
{
    double key = pl_key_dim(model), value = pl_value_dim(model);
    double n = 2 * (model->heads + model->kv_heads) * (key + value);

    return model->qk_norm == PL_QK_NONE ? n : n + 2 * (model->heads + model->kv_heads) * key;
}

/* The latents of queries and of keys with values, before and after their norms, are whole on each
 * tp rank. */
double pl_latents_kept(const struct pl_model *model)
{
    return 2.0 * (2 * model->mla.q_lora_rank + 2 * model->mla.kv_lora_rank +
                  (pl_model_is_mla(model) ? model->mla.qk_rope_head_dim : 0));
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
