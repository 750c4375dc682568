/*
 * config.json both ways. Reading is plan/hf.c's, for every family that it knows; here are the two
 * whose weights we read and write.
 */
#include "trainer/hf.h"

#include "base/base.h"

#include <errno.h>

/* Words of a model, and of its experts, that the two classes have. A word that has its default is
 * not in a model's JSON. */
static const char *const model_words[] = {
    "name", "layers", "hidden",    "heads",      "kv_heads", "head_dim", "ffn",  "vocab", "seq",
    "mlp",  "norm",   "positions", "rope_theta", "norm_eps", "init_std", "tied", "moe",   NULL};
static const char *const moe_words[] = {
    "experts",         "top_k",      "expert_ffn", "aux_loss",     "aux_loss_coef",
    "capacity_factor", "shared_ffn", "every",      "dense_layers", NULL};

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
            return err_at(error, -ENOTSUP, at, "neither Llama nor Mixtral has %s", word);
    }
    return 0;
}

static int refuse_foreign(const struct pl_model *model, struct err *error)
{
    AUTO_JSON *json = pl_model_json(model);
    int r = refuse_others(json, model_words, "", error);

    if (r == 0)
        r = refuse_others(json_object_get(json, "moe"), moe_words, "/moe", error);
    if (r < 0)
        return r;
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

int tr_hf_model(struct pl_model *ret, const json_t *config, struct err *error)
{
    AUTO_JSON *words = NULL;
    struct pl_model model;
    const char *type;
    int r = pl_hf_words(&words, config, error);

    if (r < 0)
        return r;
    type = json_string_value(json_object_get(config, "model_type"));
    if (!str_eq(type, "llama") && !str_eq(type, "mixtral"))
        return err_at(error, -ENOTSUP, "/model_type",
                      "weights of model_type %s are not read: it is neither llama nor mixtral",
                      type);
    if ((r = pl_model_parse(&model, words, error)) < 0 || (r = refuse_foreign(&model, error)) < 0)
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
