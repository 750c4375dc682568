/* Which class of Hugging Face's has a model, by what each has and lacks.
 * Source: the published model classes (transformers, models/FAMILY/configuration_FAMILY.py and
 * modeling_FAMILY.py). */
#include "trainer/hf_family.h"

#include "base/base.h"

#include <errno.h>
#include <math.h>

/* What keeps a model out of a family: its KEY, and the value of that which the family has not. */
struct rule {
    bool broken;
    const char *key, *what;
};

/* The first of COUNT rules that is broken is why FAMILY does not have the model. */
static int check(const char *family, const struct rule *rule, size_t count, struct err *error)
{
    for (size_t i = 0; i < count; i++)
        if (rule[i].broken) {
            AUTO_FREE char *at = mem_printf("/%s", rule[i].key);

            return err_at(error, -ENOTSUP, at, "%s has no %s", family, rule[i].what);
        }
    return 0;
}

static int lacks(struct err *error, const char *key, const char *what)
{
    AUTO_FREE char *at = mem_printf("/%s", key);

    return err_at(error, -ENOTSUP, at, "no Hugging Face class supports %s %s in such a model", key,
                  what);
}

/* The same where no family is near the model. */
static int check_any(const struct rule *rule, size_t count, struct err *error)
{
    for (size_t i = 0; i < count; i++)
        if (rule[i].broken)
            return lacks(error, rule[i].key, rule[i].what);
    return 0;
}

/* GPT-2 and GPT-NeoX have heads of hidden / heads, with keys of their own, and biases everywhere.
 */
static int check_gpt(const struct pl_model *model, struct err *error)
{
    const struct rule rule[] = {
        {model->mlp != PL_GELU && model->mlp != PL_GELU_TANH, "mlp",
         "other than gelu and gelu-tanh"},
        {pl_model_is_moe(model), "moe", "with layernorm"},
        {pl_model_is_mla(model), "mla", "with layernorm"},
        {model->positions == PL_NO_POSITIONS, "positions", "none with layernorm"},
        {model->kv_heads != model->heads, "kv_heads", "other than heads"},
        {model->heads * model->head_dim != model->hidden, "head_dim", "other than hidden / heads"},
        {model->qk_norm != PL_QK_NONE, "qk_norm", "with layernorm"},
        {model->sliding_window > 0, "sliding_window", "with layernorm"},
        {model->mtp > 0, "mtp", "above 0 with layernorm"},
        {!model->mlp_bias, "mlp_bias", "false"},
        {model->qkv_bias != model->out_bias, "out_bias", "other than qkv_bias"},
    };

    return check_any(rule, ARRAY_LEN(rule), error);
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
    const struct rule rule[] = {
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

    return check(family->class, rule, ARRAY_LEN(rule), error);
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
    const struct rule rule[] = {
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
    return check(v2 ? "DeepSeek-V2" : "DeepSeek-V3", rule, ARRAY_LEN(rule), error);
}

/* A norm's scale is 1 + its weight in Gemma 2 and 3, which have everything that makes a Gemma or
 * nothing of it. Gemma 3 rotates layers with a window by a base of their own, unscaled. */
static int gemma_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool gemma3 = model->qk_norm == PL_QK_HEAD;
    const struct rule rule[] = {
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
    return check(gemma3 ? "Gemma 3" : "Gemma 2", rule, ARRAY_LEN(rule), error);
}

/* LayerNorm whose scale is 1 + its weight, squared ReLU without a gate, rotation of a part. */
static int nemotron_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct rule rule[] = {
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
    return check("Nemotron", rule, ARRAY_LEN(rule), error);
}

static bool is_nemotron(const struct pl_model *model)
{
    return model->norm == PL_LAYERNORM && (model->zero_centered_norm || model->mlp == PL_RELU2);
}

/* GPT-OSS has all of it, in every layer. */
static int oss_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct pl_moe *moe = &model->moe;
    const struct rule rule[] = {
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
    return check("GPT-OSS", rule, ARRAY_LEN(rule), error);
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
    const struct rule rule[] = {
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
    return check(windows ? "OLMo 3" : "OLMo 2", rule, ARRAY_LEN(rule), error);
}

/* Norms of outputs, and of each query and key. Where some layers have a window, the others are not
 * rotated. */
static int exaone_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    int unrotated = model->sliding_window ? model->global_every : 0;
    const struct rule rule[] = {
        {model->qk_norm != PL_QK_HEAD, "qk_norm", "qk_norm other than head"},
        {model->pre_norms, "pre_norms", "pre_norms"},
        {model->no_rope_freq != unrotated, "no_rope_freq", "no_rope_freq other than global_every"},
        {model->mlp != PL_SWIGLU, "mlp", "mlp other than swiglu"},
        {model->norm != PL_RMSNORM, "norm", "norm layernorm"},
        {model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->rope_theta_local > 0, "rope_theta_local", "rope_theta_local"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {model->embed_scale, "embed_scale", "embed_scale"},
        {model->attn_sinks, "attn_sinks", "attn_sinks"},
        {pl_model_is_moe(model), "moe", "experts"},
        {model->mtp > 0, "mtp", "mtp above 0"},
        {model->mlp_bias, "mlp_bias", "mlp_bias"},
        {model->qkv_bias, "qkv_bias", "qkv_bias"},
        {model->out_bias, "out_bias", "out_bias"},
    };

    *ret = TR_HF_EXAONE4;
    return check("EXAONE 4", rule, ARRAY_LEN(rule), error);
}

/* A Llama some of whose layers are not rotated. */
static int smollm_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct rule rule[] = {
        {model->qk_norm != PL_QK_NONE, "qk_norm", "qk_norm"},
        {model->sliding_window > 0, "sliding_window", "sliding_window"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->mlp != PL_SWIGLU, "mlp", "mlp other than swiglu"},
        {model->norm != PL_RMSNORM, "norm", "norm layernorm"},
        {model->post_norms, "post_norms", "post_norms"},
        {model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {model->embed_scale, "embed_scale", "embed_scale"},
        {model->attn_sinks, "attn_sinks", "attn_sinks"},
        {pl_model_is_moe(model), "moe", "experts"},
        {model->mtp > 0, "mtp", "mtp above 0"},
    };

    *ret = TR_HF_SMOLLM3;
    return check("SmolLM3", rule, ARRAY_LEN(rule), error);
}

/* A Llama, or with experts a Mixtral, with factors of embeddings, scores, outputs and logits. Its
 * older releases have heads of hidden / heads alone. */
static int granite_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    const struct pl_moe *moe = &model->moe;
    bool experts = pl_model_is_moe(model);
    const struct rule rule[] = {
        {pl_model_is_mla(model), "mla", "mla"},
        {model->heads * model->head_dim != model->hidden, "head_dim",
         "head_dim other than hidden / heads"},
        {model->qk_norm != PL_QK_NONE, "qk_norm", "qk_norm"},
        {model->sliding_window > 0, "sliding_window", "sliding_window"},
        {model->no_rope_freq > 0, "no_rope_freq", "no_rope_freq"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->mlp != PL_SWIGLU, "mlp", "mlp other than swiglu"},
        {model->norm != PL_RMSNORM, "norm", "norm layernorm"},
        {model->post_norms, "post_norms", "post_norms"},
        {model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->parallel_block, "parallel_block", "parallel_block"},
        {model->embed_scale, "embed_scale", "embed_scale"},
        {model->attn_softcap > 0, "attn_softcap", "attn_softcap"},
        {model->logit_softcap > 0, "logit_softcap", "logit_softcap"},
        {model->attn_sinks, "attn_sinks", "attn_sinks"},
        {model->mtp > 0, "mtp", "mtp above 0"},
        {experts && model->mlp_bias, "mlp_bias", "mlp_bias"},
        {experts && moe->every > 1, "moe/every", "every > 1"},
        {experts && moe->dense_layers > 0, "moe/dense_layers", "dense_layers"},
        {experts && moe->shared_ffn > 0, "moe/shared_ffn", "shared_ffn"},
        {experts && moe->router != PL_ROUTER_SOFTMAX, "moe/router", "router sigmoid"},
        {experts && !moe->topk_norm, "moe/topk_norm", "topk_norm false"},
        {experts && moe->balance_bias, "moe/balance_bias", "balance_bias true"},
        {experts && moe->router_bias, "moe/router_bias", "router_bias"},
        {experts && (moe->scaling < 1 || moe->scaling > 1), "moe/scaling", "scaling"},
        {experts && moe->n_group > 1, "moe/n_group", "n_group"},
    };

    *ret = experts ? TR_HF_GRANITE_MOE : TR_HF_GRANITE;
    return check(experts ? "Granite-MoE" : "Granite", rule, ARRAY_LEN(rule), error);
}

static bool is_other(double value, double usual)
{
    return value < usual || value > usual;
}

/* One LayerNorm without a bias for both halves of a parallel block. Cohere 2 is one with windows,
 * whose other layers are not rotated. Heads are of hidden / heads. */
static int cohere_family(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool windows = model->sliding_window > 0;
    int unrotated = windows ? model->global_every : 0;
    const struct rule rule[] = {
        {model->norm != PL_LAYERNORM, "norm", "norm rmsnorm"},
        {model->norm_bias, "norm_bias", "norm_bias"},
        {!model->shared_norm, "shared_norm", "shared_norm false"},
        {model->heads * model->head_dim != model->hidden, "head_dim",
         "head_dim other than hidden / heads"},
        {model->mlp != PL_SWIGLU, "mlp", "mlp other than swiglu"},
        {model->mlp_bias, "mlp_bias", "mlp_bias"},
        {model->qkv_bias != model->out_bias, "out_bias", "out_bias other than qkv_bias"},
        {model->no_rope_freq != unrotated, "no_rope_freq",
         windows ? "no_rope_freq other than global_every" : "no_rope_freq"},
        {model->rope_theta_local > 0, "rope_theta_local", "rope_theta_local"},
        {model->positions != PL_ROPE, "positions", "positions other than rope"},
        {pl_rotary_dim(model) != model->head_dim, "partial_rotary_factor",
         "partial_rotary_factor below 1"},
        {model->zero_centered_norm, "zero_centered_norm", "zero_centered_norm"},
        {model->post_norms, "post_norms", "post_norms"},
        {model->qk_norm != PL_QK_NONE, "qk_norm", "qk_norm"},
        {model->attn_scale > 0, "attn_scale", "attn_scale"},
        {model->attn_softcap > 0, "attn_softcap", "attn_softcap"},
        {model->logit_softcap > 0, "logit_softcap", "logit_softcap"},
        {model->embed_scale, "embed_scale", "embed_scale"},
        {is_other(model->embedding_multiplier, 1), "embedding_multiplier", "embedding_multiplier"},
        {pl_residual_is_scaled(model), "residual_multiplier", "residual_multiplier"},
        {model->attn_sinks, "attn_sinks", "attn_sinks"},
        {pl_model_is_moe(model), "moe", "experts"},
        {pl_model_is_mla(model), "mla", "mla"},
        {model->mtp > 0, "mtp", "mtp above 0"},
    };

    *ret = windows ? TR_HF_COHERE2 : TR_HF_COHERE;
    return check(windows ? "Cohere 2" : "Cohere", rule, ARRAY_LEN(rule), error);
}

static bool is_cohere(const struct pl_model *model)
{
    return model->shared_norm || (model->norm == PL_LAYERNORM && !model->norm_bias);
}

static bool is_multiplied(const struct pl_model *model)
{
    return is_other(model->embedding_multiplier, 1) || is_other(model->logit_scale, 1) ||
           pl_residual_is_scaled(model);
}

static bool is_exaone(const struct pl_model *model)
{
    return !model->pre_norms && (model->qk_norm == PL_QK_HEAD || model->no_rope_freq);
}

static bool is_gemma(const struct pl_model *model)
{
    return model->post_norms || model->zero_centered_norm || model->embed_scale;
}

/* What only Gemma has of these families; OLMo 3 has the last. */
static int check_others(const struct pl_model *model, struct err *error)
{
    const struct rule rule[] = {
        {model->mlp == PL_GEGLU, "mlp", "geglu"},
        {model->attn_softcap > 0, "attn_softcap", "above 0"},
        {model->logit_softcap > 0, "logit_softcap", "above 0"},
        {model->rope_theta_local > 0 && model->pre_norms, "rope_theta_local", "above 0"},
    };

    return check_any(rule, ARRAY_LEN(rule), error);
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

/* Values of words that families here have with others. */
static int check_values(const struct pl_model *model, struct err *error)
{
    const struct rule rule[] = {
        {model->rope_scaling.kind == PL_ROPE_LONG, "rope_scaling", "longrope"},
        {model->qk_norm == PL_QK_L2, "qk_norm", "l2"},
    };

    return check_any(rule, ARRAY_LEN(rule), error);
}

int tr_hf_family_of(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    bool olmo = !model->pre_norms, nemotron = !olmo && is_nemotron(model),
         gemma = !olmo && !nemotron && is_gemma(model);
    int r = check_values(model, error);

    if (r < 0)
        return r;
    if (is_cohere(model))
        return cohere_family(ret, model, error);
    if (is_multiplied(model) || (model->attn_scale > 0 && !gemma))
        return granite_family(ret, model, error);
    r = gemma ? 0 : check_others(model, error);
    if (r < 0)
        return r;
    if (is_exaone(model))
        return exaone_family(ret, model, error);
    if (model->no_rope_freq)
        return smollm_family(ret, model, error);
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
