/*
 * config.json both ways. Reading is plan/hf.c's, for every family that it knows; here are those
 * whose weights we read and write.
 */
#include "trainer/hf.h"

#include "base/base.h"
#include "kernels/kernels.h"
#include "trainer/hf_family.h"

#include <errno.h>
#include <math.h>

/* Words of a model, and of its experts, that some family here has (hf_family.c says which has
 * what). A word that has its default is not in a model's JSON. */
static const char *const model_words[] = {"name",
                                          "layers",
                                          "hidden",
                                          "heads",
                                          "kv_heads",
                                          "head_dim",
                                          "ffn",
                                          "vocab",
                                          "seq",
                                          "mlp",
                                          "norm",
                                          "positions",
                                          "rope_theta",
                                          "norm_eps",
                                          "init_std",
                                          "tied",
                                          "moe",
                                          "qkv_bias",
                                          "out_bias",
                                          "mlp_bias",
                                          "qk_norm",
                                          "norm_bias",
                                          "parallel_block",
                                          "shared_norm",
                                          "partial_rotary_factor",
                                          "rope_scaling",
                                          "sliding_window",
                                          "global_every",
                                          "no_rope_freq",
                                          "rope_theta_local",
                                          "mla",
                                          "mtp",
                                          "mtp_loss_coef",
                                          "pre_norms",
                                          "post_norms",
                                          "zero_centered_norm",
                                          "attn_softcap",
                                          "logit_softcap",
                                          "attn_scale",
                                          "embed_scale",
                                          "embedding_multiplier",
                                          "residual_multiplier",
                                          "logit_scale",
                                          "attn_sinks",
                                          NULL};
static const char *const moe_words[] = {
    "experts",         "top_k",        "expert_ffn",    "aux_loss",     "aux_loss_coef",
    "capacity_factor", "shared_ffn",   "every",         "dense_layers", "router",
    "topk_norm",       "balance_bias", "scaling",       "n_group",      "topk_group",
    "shared_gate",     "z_loss_coef",  "force_balance", "router_bias",  NULL};

static int refuse_others(const json_t *json, const char *const *words, const char *under,
                         struct err *error)
{
    const char *word;
    json_t *value;

    json_object_foreach((json_t *)json, word, value) {
        AUTO_FREE char *at = mem_printf("%s/%s", under, word);
        const char *const *known = words;

        while (*known && !str_eq(*known, word))
            known++;
        if (!*known)
            return err_at(error, -ENOTSUP, at, "folders of models with %s are not supported", word);
    }
    return 0;
}

/* The family of MODEL, if folders can hold it. */
static int family_of(enum tr_hf_family *ret, const struct pl_model *model, struct err *error)
{
    AUTO_JSON *json = pl_model_json(model);
    int r = refuse_others(json, model_words, "", error);

    if (r == 0)
        r = refuse_others(json_object_get(json, "moe"), moe_words, "/moe", error);
    return r < 0 ? r : tr_hf_family_of(ret, model, error);
}

static const struct {
    const char *class, *type;
} families[] = {
    [TR_HF_LLAMA] = {"LlamaForCausalLM", "llama"},
    [TR_HF_MISTRAL] = {"MistralForCausalLM", "mistral"},
    [TR_HF_QWEN2] = {"Qwen2ForCausalLM", "qwen2"},
    [TR_HF_QWEN3] = {"Qwen3ForCausalLM", "qwen3"},
    [TR_HF_MIXTRAL] = {"MixtralForCausalLM", "mixtral"},
    [TR_HF_QWEN2_MOE] = {"Qwen2MoeForCausalLM", "qwen2_moe"},
    [TR_HF_QWEN3_MOE] = {"Qwen3MoeForCausalLM", "qwen3_moe"},
    [TR_HF_DEEPSEEK_V2] = {"DeepseekV2ForCausalLM", "deepseek_v2"},
    [TR_HF_DEEPSEEK_V3] = {"DeepseekV3ForCausalLM", "deepseek_v3"},
    [TR_HF_GEMMA2] = {"Gemma2ForCausalLM", "gemma2"},
    [TR_HF_GEMMA3] = {"Gemma3ForCausalLM", "gemma3_text"},
    [TR_HF_GPT2] = {"GPT2LMHeadModel", "gpt2"},
    [TR_HF_NEOX] = {"GPTNeoXForCausalLM", "gpt_neox"},
    [TR_HF_GPT_OSS] = {"GptOssForCausalLM", "gpt_oss"},
    [TR_HF_NEMOTRON] = {"NemotronForCausalLM", "nemotron"},
    [TR_HF_OLMOE] = {"OlmoeForCausalLM", "olmoe"},
    [TR_HF_OLMO2] = {"Olmo2ForCausalLM", "olmo2"},
    [TR_HF_OLMO3] = {"Olmo3ForCausalLM", "olmo3"},
    [TR_HF_SMOLLM3] = {"SmolLM3ForCausalLM", "smollm3"},
    [TR_HF_EXAONE4] = {"Exaone4ForCausalLM", "exaone4"},
    [TR_HF_GRANITE] = {"GraniteForCausalLM", "granite"},
    [TR_HF_COHERE] = {"CohereForCausalLM", "cohere"},
    [TR_HF_COHERE2] = {"Cohere2ForCausalLM", "cohere2"},
    [TR_HF_GRANITE_MOE] = {"GraniteMoeForCausalLM", "granitemoe"},
};

static const char *gelu_name(const struct pl_model *model, const char *tanh_name)
{
    return model->mlp == PL_GELU_TANH ? tanh_name : "gelu";
}

static json_t *gpt2_config(const struct pl_model *model)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:s, s:b, s:f, s:f, s:f}",
                     "n_layer", model->layers, "n_embd", model->hidden, "n_head", model->heads,
                     "n_inner", model->ffn, "n_positions", model->seq, "vocab_size", model->vocab,
                     "layer_norm_epsilon", model->norm_eps, "initializer_range", model->init_std,
                     "tie_word_embeddings", (int)model->tied, "activation_function",
                     gelu_name(model, "gelu_new"), "scale_attn_weights", 1, "attn_pdrop", 0.0,
                     "embd_pdrop", 0.0, "resid_pdrop", 0.0);
}

static json_t *neox_config(const struct pl_model *model)
{
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:s, s:f, s:f}",
        "num_hidden_layers", model->layers, "hidden_size", model->hidden, "num_attention_heads",
        model->heads, "intermediate_size", model->ffn, "vocab_size", model->vocab,
        "max_position_embeddings", model->seq, "layer_norm_eps", model->norm_eps,
        "initializer_range", model->init_std, "rotary_pct", model->partial_rotary_factor,
        "rotary_emb_base", model->rope_theta, "tie_word_embeddings", (int)model->tied,
        "use_parallel_residual", (int)model->parallel_block, "attention_bias", (int)model->qkv_bias,
        "hidden_act", gelu_name(model, "gelu_new"), "attention_dropout", 0.0, "hidden_dropout",
        0.0);
}

static void put_layer_types(json_t *config, const struct pl_model *model)
{
    json_t *types = json_array();

    for (int i = 0; i < model->layers; i++)
        json_array_append_new(types, json_string(pl_layer_has_window(model, i) ? "sliding_attention"
                                                                               : "full_attention"));
    json_object_set_new(config, "layer_types", types);
}

static bool is_granite(enum tr_hf_family family)
{
    return family == TR_HF_GRANITE || family == TR_HF_GRANITE_MOE;
}

static bool is_cohere(enum tr_hf_family family)
{
    return family == TR_HF_COHERE || family == TR_HF_COHERE2;
}

/* Qwen names the kind of each layer; older releases count those without a window, of which these
 * have none before the first with one. */
static void put_window(json_t *config, const struct pl_model *model, enum tr_hf_family family)
{
    bool qwen = family != TR_HF_MISTRAL && family != TR_HF_MIXTRAL;

    if (family == TR_HF_LLAMA || family == TR_HF_OLMOE || family == TR_HF_SMOLLM3 ||
        is_granite(family))
        return;
    if (qwen)
        json_object_set_new(config, "use_sliding_window", json_boolean(model->sliding_window > 0));
    if (!model->sliding_window) {
        if (!qwen)
            json_object_set_new(config, "sliding_window", json_null());
        return;
    }
    json_object_set_new(config, "sliding_window", json_integer(model->sliding_window));
    if (!qwen)
        return;
    put_layer_types(config, model);
    json_object_set_new(config, "max_window_layers", json_integer(0));
}

static void put_experts(json_t *config, const struct pl_model *model, enum tr_hf_family family)
{
    const struct pl_moe *moe = &model->moe;
    bool mixtral = family == TR_HF_MIXTRAL || family == TR_HF_GRANITE_MOE;

    json_object_set_new(config, mixtral ? "num_local_experts" : "num_experts",
                        json_integer(moe->experts));
    json_object_set_new(config, "num_experts_per_tok", json_integer(moe->top_k));
    json_object_set_new(config, "router_aux_loss_coef",
                        json_real(pl_aux_loss_coef(model, PL_AUX_HUGGINGFACE)));
    json_object_set_new(config, "output_router_logits", json_true());
    if (mixtral)
        return;
    json_object_set_new(config, "norm_topk_prob", json_boolean(moe->topk_norm));
    if (family == TR_HF_OLMOE)
        return;
    json_object_set_new(config, "moe_intermediate_size", json_integer(moe->expert_ffn));
    json_object_set_new(config, "decoder_sparse_step", json_integer(moe->every));
    json_object_set_new(config, "mlp_only_layers", json_array());
    if (moe->shared_ffn)
        json_object_set_new(config, "shared_expert_intermediate_size",
                            json_integer(moe->shared_ffn));
}

static json_t *llama_config(const struct pl_model *model, enum tr_hf_family family)
{
    bool only_experts =
        family == TR_HF_MIXTRAL || family == TR_HF_OLMOE || family == TR_HF_GRANITE_MOE;
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:b, s:f}",
                          "hidden_act", "silu", "hidden_size", model->hidden, "intermediate_size",
                          only_experts ? model->moe.expert_ffn : model->ffn, "num_hidden_layers",
                          model->layers, "num_attention_heads", model->heads, "num_key_value_heads",
                          model->kv_heads, "head_dim", model->head_dim, "vocab_size", model->vocab,
                          "max_position_embeddings", model->seq, "rms_norm_eps", model->norm_eps,
                          "rope_theta", model->rope_theta, "initializer_range", model->init_std,
                          "tie_word_embeddings", (int)model->tied, "attention_dropout", 0.0);

    if (family != TR_HF_GEMMA2)
        put_window(o, model, family);
    if (family == TR_HF_QWEN3 || family == TR_HF_QWEN3_MOE || family == TR_HF_LLAMA ||
        family == TR_HF_OLMOE || family == TR_HF_SMOLLM3 || is_granite(family))
        json_object_set_new(o, "attention_bias", json_boolean(model->qkv_bias));
    if (family == TR_HF_LLAMA || family == TR_HF_SMOLLM3 || family == TR_HF_GRANITE)
        json_object_set_new(o, "mlp_bias", json_boolean(model->mlp_bias));
    if (family == TR_HF_LLAMA)
        json_object_set_new(o, "pretraining_tp", json_integer(1));
    if (pl_model_is_moe(model))
        put_experts(o, model, family);
    return o;
}

static json_t *nemotron_config(const struct pl_model *model)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:b, s:b, "
                     "s:b, s:f}",
                     "hidden_act", "relu2", "hidden_size", model->hidden, "intermediate_size",
                     model->ffn, "num_hidden_layers", model->layers, "num_attention_heads",
                     model->heads, "num_key_value_heads", model->kv_heads, "head_dim",
                     model->head_dim, "vocab_size", model->vocab, "max_position_embeddings",
                     model->seq, "norm_eps", model->norm_eps, "rope_theta", model->rope_theta,
                     "partial_rotary_factor", model->partial_rotary_factor, "initializer_range",
                     model->init_std, "tie_word_embeddings", (int)model->tied, "attention_bias",
                     (int)model->qkv_bias, "mlp_bias", (int)model->mlp_bias, "attention_dropout",
                     0.0);
}

static bool is_gemma(enum tr_hf_family family)
{
    return family == TR_HF_GEMMA2 || family == TR_HF_GEMMA3;
}

static json_t *cap_of(double cap)
{
    return cap > 0 ? json_real(cap) : json_null();
}

/* Scores are divided by the root of query_pre_attn_scalar. A window that no layer has must be a
 * number all the same; releases without layer_types count the layers of a pattern. */
static json_t *gemma_config(const struct pl_model *model, enum tr_hf_family family)
{
    json_t *o = llama_config(model, TR_HF_GEMMA2);
    double scalar = model->attn_scale > 0 ? 1 / (model->attn_scale * model->attn_scale)
                                          : (double)model->head_dim;
    bool whole = fabs(scalar - round(scalar)) < 1e-9 * scalar;

    json_object_set_new(o, "hidden_act", json_string("gelu_pytorch_tanh"));
    json_object_set_new(o, "hidden_activation", json_string("gelu_pytorch_tanh"));
    json_object_set_new(o, "attention_bias", json_boolean(model->qkv_bias));
    json_object_set_new(o, "query_pre_attn_scalar",
                        whole ? json_integer((json_int_t)round(scalar)) : json_real(scalar));
    json_object_set_new(o, "final_logit_softcapping", cap_of(model->logit_softcap));
    json_object_set_new(o, "attn_logit_softcapping", cap_of(model->attn_softcap));
    json_object_set_new(o, "sliding_window",
                        json_integer(model->sliding_window ? model->sliding_window : model->seq));
    put_layer_types(o, model);
    if (family == TR_HF_GEMMA2)
        return o;
    if (model->rope_theta_local > 0)
        json_object_set_new(o, "rope_local_base_freq", json_real(model->rope_theta_local));
    if (model->global_every > 0)
        json_object_set_new(o, "sliding_window_pattern", json_integer(model->global_every));
    return o;
}

/* As transformers' modeling_rope_utils.py reads it. */
static json_t *scaling_config(const struct pl_rope_scaling *scaling)
{
    static const char *const kinds[] = {
        [PL_ROPE_LINEAR] = "linear", [PL_ROPE_LLAMA3] = "llama3", [PL_ROPE_YARN] = "yarn"};
    json_t *o =
        json_pack("{s:s, s:f}", "rope_type", kinds[scaling->kind], "factor", scaling->factor);

    if (scaling->original_seq)
        json_object_set_new(o, "original_max_position_embeddings",
                            json_integer(scaling->original_seq));
    if (scaling->kind == PL_ROPE_LLAMA3) {
        json_object_set_new(o, "low_freq_factor", json_real(scaling->low_freq_factor));
        json_object_set_new(o, "high_freq_factor", json_real(scaling->high_freq_factor));
    }
    if (scaling->kind == PL_ROPE_YARN) {
        json_object_set_new(o, "beta_fast", json_real(scaling->beta_fast));
        json_object_set_new(o, "beta_slow", json_real(scaling->beta_slow));
        if (!scaling->truncate)
            json_object_set_new(o, "truncate", json_false());
        if (scaling->mscale > 0)
            json_object_set_new(o, "mscale", json_real(scaling->mscale));
        if (scaling->mscale_all_dim > 0)
            json_object_set_new(o, "mscale_all_dim", json_real(scaling->mscale_all_dim));
    }
    return o;
}

/* Layers with a window rotate by rope_theta, too. Releases of transformers that know rotations of
 * kinds of layers (rope_parameters) look for rope_theta in one of them alone, and have their own
 * for the others: so both kinds say it where it is another. */
static void put_rotations(json_t *config, const struct pl_model *model)
{
    bool scaled = model->rope_scaling.kind != PL_ROPE_PLAIN;
    json_t *full =
        scaled ? scaling_config(&model->rope_scaling) : json_pack("{s:s}", "rope_type", "default");

    json_object_set_new(full, "rope_theta", json_real(model->rope_theta));
    json_object_set_new(config, "rope_parameters",
                        json_pack("{s:o, s:{s:s, s:f}}", "full_attention", full,
                                  "sliding_attention", "rope_type", "default", "rope_theta",
                                  model->rope_theta));
}

static json_t *olmo_config(const struct pl_model *model, enum tr_hf_family family)
{
    static const double olmo3_theta = 500000;
    json_t *o = llama_config(model, TR_HF_GEMMA2);

    json_object_set_new(o, "attention_bias", json_boolean(model->qkv_bias));
    if (family == TR_HF_OLMO2)
        return o;
    json_object_set_new(o, "sliding_window", json_integer(model->sliding_window));
    put_layer_types(o, model);
    if (model->rope_theta < olmo3_theta || model->rope_theta > olmo3_theta)
        put_rotations(o, model);
    return o;
}

/* Where nothing is said, every fourth layer is not rotated. */
static json_t *smollm3_config(const struct pl_model *model)
{
    json_t *o = llama_config(model, TR_HF_SMOLLM3), *rotated = json_array();

    for (int i = 0; i < model->layers; i++)
        json_array_append_new(rotated, json_integer(pl_layer_has_rope(model, i)));
    json_object_set_new(o, "no_rope_layers", rotated);
    json_object_set_new(o, "no_rope_layer_interval", json_integer(model->no_rope_freq));
    json_object_set_new(o, "use_sliding_window", json_false());
    json_object_set_new(o, "sliding_window", json_null());
    return o;
}

/* Where nothing is said, every fourth layer has no window. A release without layer_types counts by
 * the pattern. */
static json_t *cohere_config(const struct pl_model *model, enum tr_hf_family family)
{
    json_t *o = llama_config(model, TR_HF_GEMMA2);

    json_object_del(o, "rms_norm_eps");
    json_object_set_new(o, "layer_norm_eps", json_real(model->norm_eps));
    json_object_set_new(o, "logit_scale", json_real(model->logit_scale));
    json_object_set_new(o, "attention_bias", json_boolean(model->qkv_bias));
    if (family == TR_HF_COHERE) {
        json_object_set_new(o, "use_qk_norm", json_false());
        return o;
    }
    json_object_set_new(o, "sliding_window", json_integer(model->sliding_window));
    if (model->global_every)
        json_object_set_new(o, "sliding_window_pattern", json_integer(model->global_every));
    put_layer_types(o, model);
    return o;
}

static json_t *granite_config(const struct pl_model *model, enum tr_hf_family family)
{
    json_t *o = llama_config(model, family);
    double scale = model->attn_scale > 0 ? model->attn_scale : 1 / sqrt(model->head_dim);

    json_object_set_new(o, "attention_multiplier", json_real(scale));
    json_object_set_new(o, "embedding_multiplier", json_real(model->embedding_multiplier));
    json_object_set_new(o, "residual_multiplier", json_real(model->residual_multiplier));
    json_object_set_new(o, "logits_scaling", json_real(1 / model->logit_scale));
    return o;
}

/* Where nothing is said, there are windows. A release without layer_types counts by the pattern. */
static json_t *exaone4_config(const struct pl_model *model)
{
    json_t *o = llama_config(model, TR_HF_GEMMA2);
    bool windows = model->sliding_window > 0;

    json_object_set_new(o, "sliding_window",
                        windows ? json_integer(model->sliding_window) : json_null());
    json_object_set_new(o, "sliding_window_pattern",
                        windows && model->global_every ? json_integer(model->global_every)
                                                       : json_null());
    put_layer_types(o, model);
    return o;
}

/* Where nothing is said, transformers has windows, and positions stretched by yarn; from release 5
 * on also where rope_scaling is null. */
static json_t *oss_config(const struct pl_model *model)
{
    json_t *o = llama_config(model, TR_HF_MIXTRAL);

    json_object_set_new(o, "attention_bias", json_boolean(model->qkv_bias));
    json_object_set_new(o, "swiglu_limit", json_real((double)KN_CLAMP_LIMIT));
    json_object_set_new(o, "sliding_window",
                        json_integer(model->sliding_window ? model->sliding_window : model->seq));
    put_layer_types(o, model);
    json_object_set_new(o, "rope_scaling", json_pack("{s:s}", "rope_type", "default"));
    return o;
}

/* The shared experts are so many of a routed one's width; aux_loss_alpha is of a loss that is
 * divided by top_k and added up over the layers. */
static void put_deepseek_experts(json_t *config, const struct pl_model *model,
                                 enum tr_hf_family family)
{
    const struct pl_moe *moe = &model->moe;
    bool v3 = family == TR_HF_DEEPSEEK_V3, groups = moe->n_group > 1;
    json_t *more =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:b, s:f, s:s, s:s, s:f, s:b}", "n_routed_experts",
                  moe->experts, "num_experts_per_tok", moe->top_k, "moe_intermediate_size",
                  moe->expert_ffn, "n_shared_experts", moe->shared_ffn / moe->expert_ffn,
                  "first_k_dense_replace", moe->dense_layers, "norm_topk_prob", (int)moe->topk_norm,
                  "routed_scaling_factor", moe->scaling, "topk_method",
                  v3       ? "noaux_tc"
                  : groups ? "group_limited_greedy"
                           : "greedy",
                  "scoring_func", v3 ? "sigmoid" : "softmax", "aux_loss_alpha",
                  pl_aux_loss_coef(model, PL_AUX_MEGATRON), "seq_aux", 1);

    json_object_set_new(more, "n_group", json_integer(moe->n_group));
    json_object_set_new(more, "topk_group", json_integer(moe->topk_group));
    json_object_set_new(more, "moe_layer_freq", json_integer(1));
    json_object_update(config, more);
    json_decref(more);
}

static json_t *deepseek_config(const struct pl_model *model, enum tr_hf_family family)
{
    const struct pl_mla *mla = &model->mla;
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:b, s:b, s:f}",
                          "hidden_act", "silu", "hidden_size", model->hidden, "intermediate_size",
                          model->ffn, "num_hidden_layers", model->layers, "num_attention_heads",
                          model->heads, "num_key_value_heads", model->kv_heads, "vocab_size",
                          model->vocab, "max_position_embeddings", model->seq, "rms_norm_eps",
                          model->norm_eps, "rope_theta", model->rope_theta, "initializer_range",
                          model->init_std, "tie_word_embeddings", (int)model->tied,
                          "attention_bias", (int)model->qkv_bias, "attention_dropout", 0.0);

    json_object_set_new(o, "q_lora_rank",
                        mla->q_lora_rank ? json_integer(mla->q_lora_rank) : json_null());
    json_object_set_new(o, "kv_lora_rank", json_integer(mla->kv_lora_rank));
    json_object_set_new(o, "qk_nope_head_dim", json_integer(mla->qk_nope_head_dim));
    json_object_set_new(o, "qk_rope_head_dim", json_integer(mla->qk_rope_head_dim));
    json_object_set_new(o, "v_head_dim", json_integer(mla->v_head_dim));
    if (family == TR_HF_DEEPSEEK_V3)
        json_object_set_new(o, "rope_interleave", json_true());
    if (model->mtp)
        json_object_set_new(o, "num_nextn_predict_layers", json_integer(model->mtp));
    if (pl_model_is_moe(model)) {
        put_deepseek_experts(o, model, family);
    } else {
        json_object_set_new(o, "n_routed_experts", json_null());
        json_object_set_new(o, "first_k_dense_replace", json_integer(model->layers));
    }
    return o;
}

int tr_hf_config(json_t **ret, const struct pl_model *model, struct err *error)
{
    enum tr_hf_family family;
    json_t *o;
    int r = family_of(&family, model, error);

    if (r < 0)
        return r;
    o = family == TR_HF_GPT2       ? gpt2_config(model)
        : family == TR_HF_NEOX     ? neox_config(model)
        : family == TR_HF_GPT_OSS  ? oss_config(model)
        : family == TR_HF_NEMOTRON ? nemotron_config(model)
        : pl_model_is_mla(model)   ? deepseek_config(model, family)
        : is_gemma(family)         ? gemma_config(model, family)
        : family == TR_HF_SMOLLM3  ? smollm3_config(model)
        : family == TR_HF_EXAONE4  ? exaone4_config(model)
        : is_granite(family)       ? granite_config(model, family)
        : is_cohere(family)        ? cohere_config(model, family)
        : !model->pre_norms        ? olmo_config(model, family)
                                   : llama_config(model, family);
    if (model->rope_scaling.kind != PL_ROPE_PLAIN)
        json_object_set_new(o, "rope_scaling", scaling_config(&model->rope_scaling));
    json_object_set_new(o, "architectures", json_pack("[s]", families[family].class));
    json_object_set_new(o, "model_type", json_string(families[family].type));
    json_object_set_new(o, "use_cache", json_true());
    json_object_set_new(o, "torch_dtype", json_string("float32"));
    *ret = o;
    return 0;
}

/* A rotation that has no word in a model: halves where DeepSeek has pairs. */
static int check_rotation(const json_t *config, struct err *error)
{
    if (json_is_false(json_object_get(config, "rope_interleave")))
        return err_at(error, -ENOTSUP, "/rope_interleave",
                      "rope_interleave false is not supported with weights");
    return 0;
}

/* Such weights come in blocks with scales: those of GPT-OSS as published, in mxfp4, are read
 * (trainer/mxfp4.h). */
static int check_quantization(const json_t *config, enum tr_hf_family family, struct err *error)
{
    const json_t *how = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));

    if (!how || json_is_null(how) || (family == TR_HF_GPT_OSS && str_eq(method, "mxfp4")))
        return 0;
    return err_at(
        error, -ENOTSUP, "/quantization_config",
        "weights quantized by %s are not supported, only F32, BF16, F16, and GPT-OSS in mxfp4",
        method ? method : "an unknown method");
}

int tr_hf_model(struct pl_model *ret, const json_t *config, struct err *error)
{
    AUTO_JSON *words = NULL;
    enum tr_hf_family family;
    struct pl_model model;
    const char *type;
    size_t known = 0;
    int r = pl_hf_words(&words, config, error);

    if (r < 0)
        return r;
    type = json_string_value(json_object_get(config, "model_type"));
    while (known < ARRAY_LEN(families) && !str_eq(families[known].type, type))
        known++;
    if (known == ARRAY_LEN(families))
        return err_at(
            error, -ENOTSUP, "/model_type",
            "weights of model_type %s are not supported, only those of llama, mistral, "
            "qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gemma2, "
            "gemma3_text, gpt2, gpt_neox, nemotron, olmoe, olmo2, olmo3, smollm3, exaone4, "
            "granite, "
            "granitemoe, cohere, cohere2, gpt_oss",
            type);
    if ((r = check_quantization(config, (enum tr_hf_family)known, error)) < 0)
        return err_wrap(error, "config.json");
    if ((r = check_rotation(config, error)) < 0 || (r = pl_model_parse(&model, words, error)) < 0 ||
        (r = family_of(&family, &model, error)) < 0)
        return err_wrap(error, "config.json");
    *ret = model;
    return 0;
}

int tr_hf_model_load(struct pl_model *ret, const char *folder, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/config.json", folder);
    AUTO_JSON *config = NULL;
    int r = jx_load(&config, path, 1 << 20, error);

    if (r == 0)
        r = tr_hf_model(ret, config, error);
    return r < 0 ? err_wrap(error, "%s", folder) : 0;
}
