/* Names, shapes and places of tensors in the folders of families that have others than ours.
 * Source: the published model classes (transformers, models/FAMILY/modeling_FAMILY.py). */
#include "trainer/hf_names.h"

#include "base/base.h"
#include "trainer/archive.h"

#include <assert.h>

/* A tensor's name in a layer, or without one; FUSED: which of q, k, v it is, or -1. */
struct row {
    enum pl_tensor tensor;
    const char *gpt2, *neox;
    int fused;
};

static const struct row rows[] = {
    {PL_T_EMBED, "transformer.wte.weight", "gpt_neox.embed_in.weight", -1},
    {PL_T_POSITIONS, "transformer.wpe.weight", "", -1},
    {PL_T_HEAD, "lm_head.weight", "embed_out.weight", -1},
    {PL_T_FINAL_NORM, "transformer.ln_f.weight", "gpt_neox.final_layer_norm.weight", -1},
    {PL_T_FINAL_NORM_BIAS, "transformer.ln_f.bias", "gpt_neox.final_layer_norm.bias", -1},
    {PL_T_NORM1, "ln_1.weight", "input_layernorm.weight", -1},
    {PL_T_NORM1_BIAS, "ln_1.bias", "input_layernorm.bias", -1},
    {PL_T_NORM2, "ln_2.weight", "post_attention_layernorm.weight", -1},
    {PL_T_NORM2_BIAS, "ln_2.bias", "post_attention_layernorm.bias", -1},
    {PL_T_Q, "attn.c_attn.weight", "attention.query_key_value.weight", 0},
    {PL_T_K, "attn.c_attn.weight", "attention.query_key_value.weight", 1},
    {PL_T_V, "attn.c_attn.weight", "attention.query_key_value.weight", 2},
    {PL_T_Q_BIAS, "attn.c_attn.bias", "attention.query_key_value.bias", 0},
    {PL_T_K_BIAS, "attn.c_attn.bias", "attention.query_key_value.bias", 1},
    {PL_T_V_BIAS, "attn.c_attn.bias", "attention.query_key_value.bias", 2},
    {PL_T_O, "attn.c_proj.weight", "attention.dense.weight", -1},
    {PL_T_O_BIAS, "attn.c_proj.bias", "attention.dense.bias", -1},
    {PL_T_UP, "mlp.c_fc.weight", "mlp.dense_h_to_4h.weight", -1},
    {PL_T_UP_BIAS, "mlp.c_fc.bias", "mlp.dense_h_to_4h.bias", -1},
    {PL_T_DOWN, "mlp.c_proj.weight", "mlp.dense_4h_to_h.weight", -1},
    {PL_T_DOWN_BIAS, "mlp.c_proj.bias", "mlp.dense_4h_to_h.bias", -1},
};

static const struct row *row_of(enum pl_tensor tensor)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].tensor == tensor)
            return &rows[i];
    return NULL;
}

/* OLMoE's experts have Qwen's names. */
static bool is_qwen_moe(enum tr_hf_family family)
{
    return family == TR_HF_QWEN2_MOE || family == TR_HF_QWEN3_MOE || family == TR_HF_OLMOE;
}

static bool is_deepseek(enum tr_hf_family family)
{
    return family == TR_HF_DEEPSEEK_V2 || family == TR_HF_DEEPSEEK_V3;
}

/* Names of Qwen's and DeepSeek's experts and what comes with them, where they differ from ours. */
static void moe_name(char *ret, size_t size, enum tr_hf_family family, const struct pl_model *model,
                     const struct pl_param *whole)
{
    static const struct {
        enum pl_tensor tensor;
        const char *name; /* of an expert, behind its number */
        const char *shared;
    } names[] = {
        {PL_T_ROUTER, "gate.weight", ""},
        {PL_T_BALANCE, "gate.e_score_correction_bias", ""},
        {PL_T_SHARED_GATE, "shared_expert_gate.weight", ""},
        {PL_T_EXPERT_GATE, "gate_proj.weight", ""},
        {PL_T_EXPERT_UP, "up_proj.weight", ""},
        {PL_T_EXPERT_DOWN, "down_proj.weight", ""},
        {PL_T_GATE, "gate_proj.weight", "shared_expert"},
        {PL_T_UP, "up_proj.weight", "shared_expert"},
        {PL_T_DOWN, "down_proj.weight", "shared_expert"},
    };

    for (size_t i = 0; i < ARRAY_LEN(names) && whole->layer >= 0; i++) {
        char of[32] = "";

        if (names[i].tensor != whole->tensor || !pl_layer_is_moe(model, whole->layer))
            continue;
        if (whole->expert >= 0)
            snprintf(of, sizeof(of), "experts.%d.", whole->expert);
        else if (*names[i].shared)
            snprintf(of, sizeof(of), "%s%s.", names[i].shared, is_deepseek(family) ? "s" : "");
        snprintf(ret, size, "model.layers.%d.mlp.%s%s", whole->layer, of, names[i].name);
    }
}

/* Of latent attention, where it differs from ours. */
static void latent_place(struct tr_hf_place *place, const struct pl_model *model,
                         const struct pl_param *whole)
{
    const struct pl_mla *mla = &model->mla;
    uint64_t key = (uint64_t)mla->qk_nope_head_dim, value = (uint64_t)mla->v_head_dim;

    switch (whole->tensor) {
    case PL_T_Q:
    case PL_T_Q_UP:
        place->block = place->group = (uint64_t)model->head_dim;
        place->turned = (uint64_t)mla->qk_rope_head_dim;
        break;
    case PL_T_KV_DOWN:
    case PL_T_KV_DOWN_BIAS:
        place->turned = (uint64_t)mla->qk_rope_head_dim;
        break;
    case PL_T_K_UP:
    case PL_T_V_UP:
        snprintf(place->name, sizeof(place->name), "model.layers.%d.self_attn.kv_b_proj.weight",
                 whole->layer);
        place->shape[0] = (uint64_t)model->heads * (key + value);
        place->base = whole->tensor == PL_T_K_UP ? 0 : key;
        place->block = whole->tensor == PL_T_K_UP ? key : value;
        place->group = key + value;
        break;
    default:
        break;
    }
}

/* Of experts and their router; a bias is a row of the folder's matrix, as a matrix of one column is
 * a row of a transposed one. */
static void oss_place(struct tr_hf_place *place, const struct pl_model *model,
                      const struct pl_param *whole)
{
    uint64_t e = (uint64_t)model->moe.experts, f = (uint64_t)model->moe.expert_ffn,
             h = (uint64_t)model->hidden, expert = (uint64_t)whole->expert;
    bool matrix = whole->dims == 2,
         down = whole->tensor == PL_T_EXPERT_DOWN || whole->tensor == PL_T_EXPERT_DOWN_BIAS,
         up = whole->tensor == PL_T_EXPERT_UP || whole->tensor == PL_T_EXPERT_UP_BIAS;
    uint64_t each = !matrix ? 1 : down ? f : h;

    if (whole->tensor == PL_T_ROUTER || whole->tensor == PL_T_ROUTER_BIAS)
        snprintf(place->name, sizeof(place->name), "model.layers.%d.mlp.router.%s", whole->layer,
                 matrix ? "weight" : "bias");
    if (whole->expert < 0)
        return;
    snprintf(place->name, sizeof(place->name), "model.layers.%d.mlp.experts.%s_proj%s",
             whole->layer, down ? "down" : "gate_up", matrix ? "" : "_bias");
    place->dims = matrix ? 3 : 2;
    place->stack = matrix ? e : 0;
    place->shape[0] = e * each;
    place->shape[1] = down ? h : 2 * f;
    place->transposed = true;
    place->across = expert * each;
    place->base = up;
    place->block = down ? h : 1;
    place->group = down ? 0 : 2;
}

/* Matrices of a layer's experts are one tensor each, with the rows of gate before those of up. */
static void granite_place(struct tr_hf_place *place, const struct pl_model *model,
                          const struct pl_param *whole)
{
    uint64_t experts = (uint64_t)model->moe.experts, own = whole->shape[0];
    bool down = whole->tensor == PL_T_EXPERT_DOWN;
    uint64_t each = down ? own : 2 * own;

    if (whole->tensor == PL_T_ROUTER)
        snprintf(place->name, sizeof(place->name),
                 "model.layers.%d.block_sparse_moe.router.layer.weight", whole->layer);
    if (whole->expert < 0)
        return;
    snprintf(place->name, sizeof(place->name), "model.layers.%d.block_sparse_moe.%s_linear.weight",
             whole->layer, down ? "output" : "input");
    place->dims = 3;
    place->stack = experts;
    place->shape[0] = experts * each;
    place->base = (uint64_t)whole->expert * each + (whole->tensor == PL_T_EXPERT_UP ? own : 0);
}

/* All of a head rotates, in pairs of neighbors. */
static void cohere_place(struct tr_hf_place *place, const struct pl_model *model,
                         const struct pl_param *whole)
{
    uint64_t dim = (uint64_t)model->head_dim;

    if (whole->tensor == PL_T_Q || whole->tensor == PL_T_K || whole->tensor == PL_T_Q_BIAS ||
        whole->tensor == PL_T_K_BIAS)
        place->block = place->group = place->turned = dim;
}

static bool is_gpt(enum tr_hf_family family)
{
    return family == TR_HF_GPT2 || family == TR_HF_NEOX;
}

void tr_hf_place(struct tr_hf_place *ret, enum tr_hf_family family, const struct pl_model *model,
                 const struct pl_param *whole)
{
    const struct row *row = is_gpt(family) ? row_of(whole->tensor) : NULL;
    bool gpt2 = family == TR_HF_GPT2;
    uint64_t hidden = (uint64_t)model->hidden, dim = (uint64_t)model->head_dim;

    *ret = (struct tr_hf_place){
        .dims = whole->dims, .shape = {whole->shape[0], whole->shape[1]}, .block = whole->shape[0]};
    snprintf(ret->name, sizeof(ret->name), "%s", whole->name);
    if (is_qwen_moe(family) || is_deepseek(family))
        moe_name(ret->name, sizeof(ret->name), family, model, whole);
    if (is_deepseek(family))
        latent_place(ret, model, whole);
    if (family == TR_HF_GPT_OSS)
        oss_place(ret, model, whole);
    if (family == TR_HF_COHERE || family == TR_HF_COHERE2)
        cohere_place(ret, model, whole);
    if (family == TR_HF_GRANITE_MOE)
        granite_place(ret, model, whole);
    if (!is_gpt(family))
        return;
    assert(row); /* the family has no other tensors */
    snprintf(ret->name, sizeof(ret->name), "%s", gpt2 ? row->gpt2 : row->neox);
    if (whole->layer >= 0)
        snprintf(ret->name, sizeof(ret->name), "%s.%d.%s",
                 gpt2 ? "transformer.h" : "gpt_neox.layers", whole->layer,
                 gpt2 ? row->gpt2 : row->neox);
    if (row->fused >= 0) {
        ret->shape[0] = 3 * hidden;
        ret->base = (uint64_t)row->fused * (gpt2 ? hidden : dim);
        ret->block = gpt2 ? hidden : dim;
        ret->group = gpt2 ? 0 : 3 * dim;
    }
    if (gpt2 && whole->layer >= 0 && whole->dims == 2) {
        uint64_t out = ret->shape[0];

        ret->transposed = true;
        ret->shape[0] = ret->shape[1];
        ret->shape[1] = out;
    }
}

bool tr_hf_place_is_plain(const struct tr_hf_place *place, const struct pl_param *whole)
{
    return !place->transposed && !place->turned && !place->stack &&
           place->shape[0] == whole->shape[0];
}

bool tr_hf_copy(struct tr_hf_place *place, const struct pl_model *model, enum pl_tensor tensor,
                int index)
{
    bool embeds = tensor == PL_T_EMBED && index < model->mtp;
    bool projects = tensor == (model->tied ? PL_T_EMBED : PL_T_HEAD) && !embeds;
    int module = tensor == PL_T_EMBED && !embeds ? index - model->mtp : index;

    assert(index >= 0);
    if (!(embeds || projects) || module >= model->mtp)
        return false;
    snprintf(place->name, sizeof(place->name), "model.layers.%d.%s.weight", model->layers + module,
             embeds ? "embed_tokens" : "shared_head.head");
    return true;
}

static void add_tensor(struct pl_params *all, int *cap, const struct tr_hf_place *place)
{
    struct pl_param *tensor;

    MEM_GROW(all->p, all->n, *cap);
    tensor = &all->p[all->n++];
    *tensor = (struct pl_param){.dims = place->dims,
                                .shape = {place->shape[0], place->shape[1]},
                                .expert = (int)place->stack};
    snprintf(tensor->name, sizeof(tensor->name), "%s", place->name);
}

void tr_hf_tensors(struct pl_params *ret, enum tr_hf_family family, const struct pl_model *model)
{
    struct pl_params all;
    int cap = 0;

    tr_archive_whole(&all, model);
    *ret = (struct pl_params){0};
    for (int i = 0; i < all.n + all.fixed; i++) {
        struct tr_hf_place place;

        tr_hf_place(&place, family, model, &all.p[i]);
        if (!tr_archive_param(ret, place.name)) /* else a part of one that is there */
            add_tensor(ret, &cap, &place);
        for (int k = 0; tr_hf_copy(&place, model, all.p[i].tensor, k); k++)
            add_tensor(ret, &cap, &place);
    }
    pl_params_done(&all);
}

bool tr_hf_ignorable(enum tr_hf_family family, const char *name, bool tied)
{
    if (str_ends(name, "rotary_emb.inv_freq"))
        return true;
    if (is_gpt(family) &&
        (str_ends(name, ".attn.bias") || str_ends(name, ".attn.masked_bias") ||
         str_ends(name, ".attention.bias") || str_ends(name, ".attention.masked_bias")))
        return true;
    return tied && str_eq(name, family == TR_HF_NEOX ? "embed_out.weight" : "lm_head.weight");
}
