/*
 * config.json both ways. Source: the published configuration classes of Llama and Mixtral; what
 * they default to where a key is absent is in one table.
 */
#include "trainer/hf.h"

#include "base/base.h"

#include <errno.h>

static int refuse_foreign(const struct pl_model *model, struct err *error)
{
    if (model->mlp != PL_SWIGLU)
        return err_at(error, -ENOTSUP, "/mlp",
                      "neither Llama nor Mixtral has mlp other than swiglu");
    if (model->norm != PL_RMSNORM)
        return err_at(error, -ENOTSUP, "/norm",
                      "neither Llama nor Mixtral has norm other than rmsnorm");
    if (model->positions != PL_ROPE)
        return err_at(error, -ENOTSUP, "/positions",
                      "neither Llama nor Mixtral has positions other than rope");
    if (!pl_model_is_moe(model))
        return 0;
    if (model->moe.shared_ffn)
        return err_at(error, -ENOTSUP, "/moe/shared_ffn", "Mixtral has no shared_ffn (%d)",
                      model->moe.shared_ffn);
    if (model->moe.every > 1)
        return err_at(error, -ENOTSUP, "/moe/every",
                      "Mixtral has experts in every layer, not every %d", model->moe.every);
    if (model->moe.dense_layers)
        return err_at(error, -ENOTSUP, "/moe/dense_layers", "Mixtral has no dense_layers (%d)",
                      model->moe.dense_layers);
    return 0;
}

int tr_hf_config(json_t **ret, const struct pl_model *model, struct err *error)
{
    bool moe = pl_model_is_moe(model);
    json_t *o;
    int r = refuse_foreign(model, error);

    if (r < 0)
        return r;
    o = json_pack("{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:b, "
                  "s:b, s:f, s:s}",
                  "architectures", moe ? "MixtralForCausalLM" : "LlamaForCausalLM", "model_type",
                  moe ? "mixtral" : "llama", "hidden_act", "silu", "hidden_size", model->hidden,
                  "intermediate_size", moe ? model->moe.expert_ffn : model->ffn,
                  "num_hidden_layers", model->layers, "num_attention_heads", model->heads,
                  "num_key_value_heads", model->kv_heads, "head_dim", model->head_dim, "vocab_size",
                  model->vocab, "max_position_embeddings", model->seq, "rms_norm_eps",
                  model->norm_eps, "rope_theta", model->rope_theta, "initializer_range",
                  model->init_std, "tie_word_embeddings", (int)model->tied, "use_cache", 1,
                  "attention_dropout", 0.0, "torch_dtype", "float32");
    if (moe) {
        json_object_set_new(o, "num_local_experts", json_integer(model->moe.experts));
        json_object_set_new(o, "num_experts_per_tok", json_integer(model->moe.top_k));
        json_object_set_new(o, "router_aux_loss_coef",
                            json_real(pl_aux_loss_coef(model, PL_AUX_HUGGINGFACE)));
        json_object_set_new(o, "output_router_logits", json_true());
        json_object_set_new(o, "sliding_window", json_null());
    } else {
        json_object_set_new(o, "attention_bias", json_false());
        json_object_set_new(o, "mlp_bias", json_false());
        json_object_set_new(o, "pretraining_tp", json_integer(1));
    }
    *ret = o;
    return 0;
}

static int refuse_true(const json_t *config, const char *key, struct err *error)
{
    AUTO_FREE char *at = mem_printf("/%s", key);

    if (json_is_true(json_object_get(config, key)))
        return err_at(error, -ENOTSUP, at, "%s is true: a model with biases is not supported", key);
    return 0;
}

/* What would make the same weights another model than ours. */
static int refuse_variants(const json_t *config, struct err *error)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    const char *rope =
        json_string_value(json_object_get(json_object_get(config, "rope_parameters"), "rope_type"));
    const char *act = "silu";
    int window = 0, positions = 2048, r;

    r = jx_get_str(&act, config, "hidden_act", 40, error);
    if (r == 0 && !str_eq(act, "silu"))
        r = err_at(error, -ENOTSUP, "/hidden_act", "hidden_act is %s, not silu", act);
    if (r == 0)
        r = refuse_true(config, "attention_bias", error);
    if (r == 0)
        r = refuse_true(config, "mlp_bias", error);
    if (r == 0 && ((scaling && !json_is_null(scaling)) || (rope && !str_eq(rope, "default"))))
        r = err_at(error, -ENOTSUP, "/rope_scaling", "scaled rotary positions are not supported");
    if (r == 0)
        r = jx_get_int(&positions, config, "max_position_embeddings", 1, 1 << 24, error);
    if (r == 0)
        r = jx_get_int(&window, config, "sliding_window", 0, 1 << 24, error);
    if (r == 0 && window && window < positions)
        r = err_at(error, -ENOTSUP, "/sliding_window",
                   "a sliding window of %d tokens is not supported", window);
    return r;
}

/* HF key -> our key, copied as it is; what is absent gets our parser's default or refusal. */
static const struct {
    const char *hf, *ours;
} plain_keys[] = {
    {"num_hidden_layers", "layers"},  {"hidden_size", "hidden"},
    {"num_attention_heads", "heads"}, {"vocab_size", "vocab"},
    {"rms_norm_eps", "norm_eps"},     {"initializer_range", "init_std"},
    {"head_dim", "head_dim"},         {"num_key_value_heads", "kv_heads"},
    {"rope_theta", "rope_theta"},     {"max_position_embeddings", "seq"},
    {"tie_word_embeddings", "tied"},  {"intermediate_size", "ffn"},
};

static json_t *moe_keys(const json_t *config)
{
    json_t *moe = json_object();
    const json_t *aux = json_object_get(config, "router_aux_loss_coef");
    const json_t *top_k = json_object_get(config, "num_experts_per_tok");

    json_object_set(moe, "experts", json_object_get(config, "num_local_experts"));
    if (top_k)
        json_object_set_new(moe, "top_k", json_copy((json_t *)top_k));
    else
        json_object_set_new(moe, "top_k", json_integer(2));
    json_object_set(moe, "expert_ffn", json_object_get(config, "intermediate_size"));
    json_object_set_new(moe, "aux_loss", json_string(pl_aux_loss_names[PL_AUX_HUGGINGFACE]));
    /* The published default where config.json does not say. */
    json_object_set_new(moe, "aux_loss_coef", aux ? json_copy((json_t *)aux) : json_real(0.001));
    return moe;
}

/* Where a key is absent the published classes have these, which are not always our parser's
 * defaults. */
static void published_defaults(json_t *config, bool mixtral)
{
    if (!json_object_get(config, "norm_eps"))
        json_object_set_new(config, "norm_eps", json_real(mixtral ? 1e-5 : 1e-6));
    if (!json_object_get(config, "rope_theta"))
        json_object_set_new(config, "rope_theta", json_real(mixtral ? 1e6 : 1e4));
    if (!json_object_get(config, "kv_heads") && mixtral)
        json_object_set_new(config, "kv_heads", json_integer(8));
    if (!json_object_get(config, "seq"))
        json_object_set_new(config, "seq", json_integer(mixtral ? 4096 * 32 : 2048));
}

int tr_hf_model(struct pl_model *ret, const json_t *config, struct err *error)
{
    const json_t *rope;

    AUTO_JSON *o = json_object();
    const char *type = "";
    int r;

    if (!json_is_object(config))
        return err_set(error, -EINVAL, "config.json is not an object");
    r = jx_need(config, "model_type", error);
    if (r == 0)
        r = jx_get_str(&type, config, "model_type", 60, error);
    if (r < 0)
        return r;
    if (!str_eq(type, "llama") && !str_eq(type, "mixtral"))
        return err_at(error, -ENOTSUP, "/model_type", "model_type %s is neither llama nor mixtral",
                      type);
    r = refuse_variants(config, error);
    if (r < 0)
        return r;
    json_object_set_new(o, "name", json_string(type));
    for (size_t i = 0; i < ARRAY_LEN(plain_keys); i++) {
        json_t *v = json_object_get(config, plain_keys[i].hf);

        if (v && !json_is_null(v))
            json_object_set(o, plain_keys[i].ours, v);
    }
    rope = json_object_get(config, "rope_parameters"); /* where newer releases keep it */
    if (json_object_get(rope, "rope_theta"))
        json_object_set(o, "rope_theta", json_object_get(rope, "rope_theta"));
    published_defaults(o, str_eq(type, "mixtral"));
    if (str_eq(type, "mixtral"))
        json_object_set_new(o, "moe", moe_keys(config));
    r = pl_model_parse(ret, o, error);
    return r < 0 ? err_wrap(error, "config.json") : 0;
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
