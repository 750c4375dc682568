/* Names, shapes and places of tensors in the folders of families that have others than ours.
 * Source: the published model classes (transformers, models/FAMILY/modeling_FAMILY.py). */
#include "trainer/hf_names.h"

#include "base/base.h"
#include "trainer/archive.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

/* ---- families ------------------------------------------------------------ */

static int lacks(struct err *error, const char *key, const char *what)
{
    AUTO_FREE char *at = mem_printf("/%s", key);

    return err_at(error, -ENOTSUP, at, "no Hugging Face class supports %s %s in such a model", key,
                  what);
}

/* Both have heads of hidden / heads, with keys of their own, and biases everywhere. */
static int check_gpt(const struct pl_model *model, struct err *error)
{
    if (model->mlp != PL_GELU && model->mlp != PL_GELU_TANH)
        return lacks(error, "mlp", "other than gelu and gelu-tanh");
    if (pl_model_is_moe(model))
        return lacks(error, "moe", "with layernorm");
    if (pl_model_is_mla(model))
        return lacks(error, "mla", "with layernorm");
    if (model->positions == PL_NO_POSITIONS)
        return lacks(error, "positions", "none with layernorm");
    if (model->kv_heads != model->heads)
        return lacks(error, "kv_heads", "other than heads");
    if (model->heads * model->head_dim != model->hidden)
        return lacks(error, "head_dim", "other than hidden / heads");
    if (model->qk_norm != PL_QK_NONE)
        return lacks(error, "qk_norm", "with layernorm");
    if (model->sliding_window)
        return lacks(error, "sliding_window", "with layernorm");
    if (model->mtp)
        return lacks(error, "mtp", "above 0 with layernorm");
    if (!model->mlp_bias)
        return lacks(error, "mlp_bias", "false");
    if (model->qkv_bias != model->out_bias)
        return lacks(error, "out_bias", "other than qkv_bias");
    return 0;
}

static int gpt_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    int r = check_gpt(model, error);

    if (r < 0)
        return r;
    *ret = model->positions == PL_LEARNED ? TR_HF_GPT2 : TR_HF_NEOX;
    if (*ret == TR_HF_GPT2 && !model->qkv_bias)
        return lacks(error, "qkv_bias", "false with learned positions");
    if (*ret == TR_HF_GPT2 && model->parallel_block)
        return lacks(error, "parallel_block", "true with learned positions");
    return 0;
}

/* What families with experts have, of what a model may have here. */
static const struct moe_family {
    enum tr_hf_family family;
    const char *class;
    enum pl_qk_norm qk_norm;
    bool qkv_bias, out_bias; /* true: may have */
    bool dense;              /* some layers may have no experts */
    bool shared;             /* and has shared experts with a gate */
} moe_families[] = {
    {TR_HF_MIXTRAL, "Mixtral", PL_QK_NONE, false, false, false, false},
    {TR_HF_QWEN2_MOE, "Qwen2-MoE", PL_QK_NONE, true, false, true, true},
    {TR_HF_QWEN3_MOE, "Qwen3-MoE", PL_QK_HEAD, true, true, true, false},
    {TR_HF_OLMOE, "OLMoE", PL_QK_FULL, true, true, false, false},
};

static int check_moe(const struct pl_model *model, const struct moe_family *family,
                     struct err *error)
{
    const struct pl_moe *moe = &model->moe;
    bool mixtral = family->family == TR_HF_MIXTRAL, olmoe = family->family == TR_HF_OLMOE;
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {moe->router != PL_ROUTER_SOFTMAX, "moe/router", "router sigmoid"},
        {moe->balance_bias, "moe/balance_bias", "balance_bias true"},
        {moe->scaling < 1 || moe->scaling > 1, "moe/scaling", "scaling"},
        {moe->n_group > 1, "moe/n_group", "n_group"},
        {mixtral && !moe->topk_norm, "moe/topk_norm", "topk_norm false"},
        {!family->shared && moe->shared_ffn, "moe/shared_ffn", "shared_ffn"},
        {family->shared && !moe->shared_gate, "moe/shared_gate", "shared_gate false"},
        {!family->dense && moe->every > 1, "moe/every", "every > 1"},
        {moe->dense_layers > 0, "moe/dense_layers", "dense_layers"},
        {model->mlp_bias, "mlp_bias", "mlp_bias"},
        {model->global_every > 0, "global_every", "layers without the window"},
        {!mixtral && model->sliding_window > 0, "sliding_window", "sliding_window here"},
        {model->qk_norm != family->qk_norm, "qk_norm", "such a qk_norm"},
        {model->qkv_bias && !family->qkv_bias, "qkv_bias", "biases"},
        {model->out_bias && !family->out_bias, "out_bias", "out_bias"},
        {!model->qkv_bias && family->qkv_bias && !family->out_bias, "qkv_bias", "qkv_bias false"},
        {family->out_bias && model->out_bias != model->qkv_bias, "out_bias",
         "out_bias other than qkv_bias"},
        {olmoe && model->heads * model->head_dim != model->hidden, "head_dim",
         "head_dim other than hidden / heads"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "%s has no %s", family->class, rule[i].what);
        }
    return 0;
}

/* Llama has no window; Mistral has one and no biases. */
static int check_mistral(const struct pl_model *model, struct err *error)
{
    if (model->global_every)
        return lacks(error, "global_every", "without qk_norm or biases of q, k and v");
    if (model->qkv_bias || model->out_bias)
        return lacks(error, "sliding_window", "with biases of attention's output");
    if (model->mlp_bias)
        return lacks(error, "sliding_window", "with mlp_bias");
    return 0;
}

/* The class that is nearest to MODEL says what it lacks. */
static int moe_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct moe_family *family = &moe_families[model->qk_norm == PL_QK_FULL   ? 3
                                                    : model->qk_norm == PL_QK_HEAD ? 2
                                                    : model->moe.shared_gate       ? 1
                                                                                   : 0];

    *ret = family->family;
    return check_moe(model, family, error);
}

/* What DeepSeek-V2 and V3 have of latent attention and experts. Latents are normalized with an
 * epsilon of the class, whatever the config says. V2 limits groups by their best expert, V3 by
 * their best two. */
static int deepseek_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct pl_moe *moe = &model->moe;
    bool experts = pl_model_is_moe(model), v2 = experts && moe->router == PL_ROUTER_SOFTMAX;
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {fabs(model->norm_eps - 1e-6) > 1e-12, "norm_eps", "norm_eps other than 1e-6"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->mlp_bias, "mlp_bias", "mlp_bias"},
        {model->sliding_window > 0, "sliding_window", "sliding_window"},
        {v2 && model->mtp > 0, "mtp", "mtp above 0"},
        {experts && moe->every > 1, "moe/every", "every > 1"},
        {experts && !moe->shared_ffn, "moe/shared_ffn", "shared_ffn 0"},
        {experts && moe->shared_ffn % moe->expert_ffn, "moe/shared_ffn",
         "shared_ffn that is no multiple of expert_ffn"},
        {experts && moe->shared_gate, "moe/shared_gate", "shared_gate"},
        {experts && moe->balance_bias == v2, "moe/balance_bias",
         v2 ? "balance_bias true" : "balance_bias false"},
        {v2 && moe->topk_norm, "moe/topk_norm", "topk_norm true"},
        {experts && !v2 && moe->experts / moe->n_group < 2, "moe/n_group", "groups of one expert"},
        {experts && moe->n_group > 1 &&
             (v2 ? moe->top_k / moe->topk_group > 1 : moe->top_k / moe->topk_group != 2),
         "moe/topk_group", v2 ? "2 top_k > topk_group" : "top_k / topk_group other than 2"},
    };

    *ret = v2 ? TR_HF_DEEPSEEK_V2 : TR_HF_DEEPSEEK_V3;
    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "DeepSeek-%s has no %s", v2 ? "V2" : "V3",
                          rule[i].what);
        }
    return 0;
}

/* A norm's scale is 1 + its weight in Gemma 2 and 3, which have everything that makes a Gemma or
 * nothing of it. Gemma 3 rotates layers with a window by a base of their own, unscaled. */
static int gemma_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool gemma3 = model->qk_norm == PL_QK_HEAD;
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {!model->post_norms, "post_norms", "post_norms false"},
        {!model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm false"},
        {!model->embed_scale, "embed_scale", "embed_scale false"},
        {model->mlp != PL_GEGLU, "mlp", "mlp other than geglu"},
        {model->norm != PL_RMSNORM, "norm", "norm layernorm"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {pl_model_is_moe(model), "moe", "experts"},
        {pl_model_is_mla(model), "mla", "mla"},
        {model->mlp_bias, "mlp_bias", "mlp_bias"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->qk_norm == PL_QK_FULL, "qk_norm", "qk_norm full"},
        {gemma3 && model->attn_softcap > 0, "attn_softcap", "attn_softcap"},
        {!gemma3 && model->rope_theta_local > 0, "rope_theta_local", "rope_theta_local"},
        {gemma3 && model->sliding_window && !(model->rope_theta_local > 0), "rope_theta_local",
         "rope_theta_local 0"},
    };

    *ret = gemma3 ? TR_HF_GEMMA3 : TR_HF_GEMMA2;
    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "Gemma %d has no %s", gemma3 ? 3 : 2, rule[i].what);
        }
    return 0;
}

/* LayerNorm whose scale is 1 + its weight, squared ReLU without a gate, rotation of a part. */
static int nemotron_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {!model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm false"},
        {model->mlp != PL_RELU2, "mlp", "mlp other than relu2"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {model->rope_scaling.kind != PL_ROPE_PLAIN, "rope_scaling", "rope_scaling"},
        {model->qk_norm != PL_QK_NONE, "qk_norm", "qk_norm"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {model->post_norms, "post_norms", "post_norms"},
        {model->embed_scale, "embed_scale", "embed_scale"},
        {model->sliding_window > 0, "sliding_window", "sliding_window"},
        {pl_model_is_moe(model), "moe", "experts"},
        {pl_model_is_mla(model), "mla", "mla"},
        {model->mtp > 0, "mtp", "mtp above 0"},
    };

    *ret = TR_HF_NEMOTRON;
    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "Nemotron has no %s", rule[i].what);
        }
    return 0;
}

static bool is_nemotron(const struct pl_model *model)
{
    return model->norm == PL_LAYERNORM && (model->zero_centered_norm || model->mlp == PL_RELU2);
}

/* GPT-OSS has all of it, in every layer. */
static int oss_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct pl_moe *moe = &model->moe;
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {!pl_model_is_moe(model), "moe", "layers without experts"},
        {!model->attn_sinks, "attn_sinks", "attn_sinks false"},
        {!moe->router_bias, "moe/router_bias", "router_bias false"},
        {model->mlp != PL_SWIGLU_CLAMPED, "mlp", "mlp other than swiglu-clamped"},
        {!model->mlp_bias, "mlp_bias", "mlp_bias false"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->norm != PL_RMSNORM, "norm", "norm layernorm"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {model->qk_norm != PL_QK_NONE, "qk_norm", "qk_norm"},
        {pl_model_is_mla(model), "mla", "mla"},
        {model->mtp > 0, "mtp", "mtp above 0"},
        {moe->every > 1, "moe/every", "every > 1"},
        {moe->dense_layers > 0, "moe/dense_layers", "dense_layers"},
        {moe->shared_ffn > 0, "moe/shared_ffn", "shared_ffn"},
        {moe->router != PL_ROUTER_SOFTMAX, "moe/router", "router sigmoid"},
        {!moe->topk_norm, "moe/topk_norm", "topk_norm false"},
        {moe->balance_bias, "moe/balance_bias", "balance_bias true"},
        {moe->scaling < 1 || moe->scaling > 1, "moe/scaling", "scaling"},
        {moe->n_group > 1, "moe/n_group", "n_group"},
    };

    *ret = TR_HF_GPT_OSS;
    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "GPT-OSS has no %s", rule[i].what);
        }
    return 0;
}

static bool is_oss(const struct pl_model *model)
{
    return model->attn_sinks || model->mlp == PL_SWIGLU_CLAMPED ||
           (pl_model_is_moe(model) && model->moe.router_bias);
}

/* Norms of outputs alone, and of whole queries and keys. OLMo 3 is an OLMo 2 with windows, whose
 * layers rotate by the same base, never scaled. */
static int olmo_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool windows = model->sliding_window > 0, scaled = model->rope_scaling.kind != PL_ROPE_PLAIN;
    double local = model->rope_theta_local;
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {model->qk_norm != PL_QK_FULL, "qk_norm", "qk_norm other than full"},
        {model->mlp != PL_SWIGLU, "mlp", "mlp other than swiglu"},
        {model->norm != PL_RMSNORM, "norm", "norm layernorm"},
        {model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {model->embed_scale, "embed_scale", "embed_scale"},
        {model->attn_sinks, "attn_sinks", "attn_sinks"},
        {pl_model_is_moe(model), "moe", "experts"},
        {pl_model_is_mla(model), "mla", "mla"},
        {model->mtp > 0, "mtp", "mtp above 0"},
        {model->mlp_bias, "mlp_bias", "mlp_bias"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {windows && scaled && !(local > 0), "rope_theta_local",
         "rope_scaling of layers with a window: rope_theta_local must be rope_theta"},
        {local > 0 && (local < model->rope_theta || local > model->rope_theta), "rope_theta_local",
         "rope_theta_local other than rope_theta"},
        {local > 0 && !scaled, "rope_theta_local", "rope_theta_local without rope_scaling"},
    };

    *ret = windows ? TR_HF_OLMO3 : TR_HF_OLMO2;
    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "OLMo %d has no %s", windows ? 3 : 2, rule[i].what);
        }
    return 0;
}

static bool is_gemma(const struct pl_model *model)
{
    return model->post_norms || model->zero_centered_norm || model->embed_scale;
}

/* What only Gemma has of these families; OLMo 3 has the last. */
static int check_others(const struct pl_model *model, struct err *error)
{
    const struct {
        bool broken;
        const char *key, *what;
    } rule[] = {
        {model->mlp == PL_GEGLU, "mlp", "geglu"},
        {model->attn_softcap > 0, "attn_softcap", "above 0"},
        {model->logit_softcap > 0, "logit_softcap", "above 0"},
        {model->attn_scale > 0, "attn_scale", "above 0"},
        {model->rope_theta_local > 0 && model->pre_norms, "rope_theta_local", "above 0"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken)
            return lacks(error, rule[i].key, rule[i].what);
    return 0;
}

static int llama_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool qwen3 = model->qk_norm == PL_QK_HEAD, qwen2 = model->qkv_bias && !model->out_bias;

    if (model->mlp != PL_SWIGLU)
        return lacks(error, "mlp", "other than swiglu with rmsnorm");
    if (model->positions != PL_ROPE)
        return lacks(error, "positions", "other than rope with rmsnorm");
    if (model->parallel_block)
        return lacks(error, "parallel_block", "true with rmsnorm");
    if (pl_model_is_mla(model))
        return deepseek_family(ret, model, error);
    if (model->mtp)
        return lacks(error, "mtp", "above 0 without mla");
    if (pl_rotary_dim(model) != model->head_dim)
        return lacks(error, "partial_rotary_factor", "below 1 with rmsnorm");
    if (pl_model_is_moe(model))
        return moe_family(ret, model, error);
    if (model->qk_norm == PL_QK_FULL)
        return lacks(error, "qk_norm", "full without experts");
    if (model->out_bias && !model->qkv_bias)
        return lacks(error, "out_bias", "true without qkv_bias");
    if ((qwen2 || qwen3) && model->mlp_bias)
        return lacks(error, "mlp_bias", "true with these biases and norms of attention");
    if (qwen2 && qwen3)
        return lacks(error, "qkv_bias", "true without out_bias next to qk_norm");
    *ret = qwen3                   ? TR_HF_QWEN3
           : qwen2                 ? TR_HF_QWEN2
           : model->sliding_window ? TR_HF_MISTRAL
                                   : TR_HF_LLAMA;
    return *ret == TR_HF_MISTRAL ? check_mistral(model, error) : 0;
}

int tr_hf_family_of(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool olmo = !model->pre_norms, nemotron = !olmo && is_nemotron(model),
         gemma = !olmo && !nemotron && is_gemma(model);
    int r = gemma ? 0 : check_others(model, error);

    if (r < 0)
        return r;
    if (olmo)
        return olmo_family(ret, model, error);
    if (nemotron)
        return nemotron_family(ret, model, error);
    if (gemma)
        return gemma_family(ret, model, error);
    if (is_oss(model))
        return oss_family(ret, model, error);
    return model->norm == PL_LAYERNORM ? gpt_family(ret, model, error)
                                       : llama_family(ret, model, error);
}

/* ---- places -------------------------------------------------------------- */

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
    return !place->transposed && !place->turned && place->shape[0] == whole->shape[0];
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
