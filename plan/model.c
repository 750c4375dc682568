#include "plan/memory_parts.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "plan/hf.h"
#include "plan/model_name.h"
#include "plan/model_words.h"
#include "plan/shape.h"

static const char *const mlp_names[] = {"swiglu",         "gelu",      "geglu", "relu2",
                                        "swiglu-clamped", "gelu-tanh", NULL};
static const char *const norm_names[] = {"rmsnorm", "layernorm", NULL};
static const char *const position_names[] = {"rope", "learned", "none", NULL};

const char *const pl_aux_loss_names[] = {"sequence", "huggingface", "megatron", NULL};

/* Sizes above these are typing errors: the largest published models are ten times smaller. */
enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 20, MAX_SEQ = 1 << 24, MAX_VOCAB = 1 << 24 };

static int parse_moe(struct pl_moe *moe, const json_t *json, const struct pl_model *model,
                     struct err *error)
{
    static const char *const plain[] = {
        "experts",         "top_k",      "expert_ffn", "aux_loss",     "aux_loss_coef",
        "capacity_factor", "shared_ffn", "every",      "dense_layers", NULL};
    const char *keys[PL_MOST_WORDS];
    int r, aux_loss = PL_AUX_SEQUENCE;

    pl_words_names(keys, PL_OF_MOE, plain);

    moe->aux_loss_coef = 0.01;
    moe->every = 1;
    if ((r = jx_keys(json, keys, error)) < 0 || (r = jx_need(json, "experts", error)) < 0 ||
        (r = jx_need(json, "top_k", error)) < 0 || (r = jx_need(json, "expert_ffn", error)) < 0 ||
        (r = jx_get_int(&moe->experts, json, "experts", 1, 1 << 16, error)) < 0 ||
        (r = jx_get_int(&moe->top_k, json, "top_k", 1, moe->experts, error)) < 0 ||
        (r = jx_get_int(&moe->expert_ffn, json, "expert_ffn", 1, MAX_WIDTH, error)) < 0 ||
        (r = jx_get_enum(&aux_loss, json, "aux_loss", pl_aux_loss_names, error)) < 0 ||
        (r = jx_get_f64(&moe->aux_loss_coef, json, "aux_loss_coef", 0, 1e3, error)) < 0 ||
        (r = jx_get_f64(&moe->capacity_factor, json, "capacity_factor", 0.01, 1e4, error)) < 0 ||
        (r = jx_get_int(&moe->shared_ffn, json, "shared_ffn", 0, MAX_WIDTH, error)) < 0 ||
        (r = jx_get_int(&moe->every, json, "every", 1, model->layers, error)) < 0 ||
        (r = jx_get_int(&moe->dense_layers, json, "dense_layers", 0, model->layers - 1, error)) < 0)
        return r;
    moe->aux_loss = (enum pl_aux_loss)aux_loss;
    return 0;
}

static bool has_dense_layer(const struct pl_model *model)
{
    for (int l = 0; l < model->layers; l++)
        if (model->pattern[0] ? model->pattern[l] == '-' : !pl_layer_is_moe(model, l))
            return true;
    return false;
}

/* What depends on more than one field. */
static int complete(struct pl_model *model, const json_t *json, struct err *error)
{
    int r;

    if (!model->kv_heads)
        model->kv_heads = model->heads;
    if (model->mla.kv_lora_rank && !model->head_dim)
        model->head_dim = model->mla.qk_nope_head_dim + model->mla.qk_rope_head_dim;
    if (model->heads % model->kv_heads)
        return err_at(error, -EINVAL, "/kv_heads", "kv_heads %d does not divide heads %d",
                      model->kv_heads, model->heads);
    if (!model->head_dim && model->hidden % model->heads)
        return err_at(error, -EINVAL, "/head_dim",
                      "head_dim is missing and hidden %d is not a multiple of heads %d",
                      model->hidden, model->heads);
    if (!model->head_dim)
        model->head_dim = model->hidden / model->heads;
    if (model->positions == PL_ROPE && model->mla.qk_rope_head_dim % 2)
        return err_at(error, -EINVAL, "/mla/qk_rope_head_dim",
                      "qk_rope_head_dim %d is odd: rotary positions need pairs",
                      model->mla.qk_rope_head_dim);
    if (model->positions == PL_ROPE && model->head_dim % 2 && !pl_model_is_mla(model))
        return err_at(error, -EINVAL, "/head_dim",
                      "head_dim %d is odd: rotary positions need pairs", model->head_dim);
    if (model->positions == PL_ROPE && pl_rotary_dim(model) % 2)
        return err_at(error, -EINVAL, "/partial_rotary_factor",
                      "partial_rotary_factor %.10g rotates %d elements of a head: rotary positions "
                      "need pairs",
                      model->partial_rotary_factor, pl_rotary_dim(model));
    if ((r = pl_words_check(model, error)) < 0)
        return r;
    if (!model->ffn && (!model->moe.experts || has_dense_layer(model)))
        return jx_need(json, "ffn", error);
    if (!model->ffn)
        model->ffn = model->moe.expert_ffn;
    return 0;
}

static int parse_object(struct pl_model *model, const json_t *json, struct err *error)
{
    static const char *const plain[] = {
        "name", "layers", "hidden",    "heads",      "kv_heads", "head_dim", "ffn",  "vocab", "seq",
        "mlp",  "norm",   "positions", "rope_theta", "norm_eps", "init_std", "tied", "moe",   NULL};
    static const char *const needed[] = {"layers", "hidden", "heads", "vocab", "seq", NULL};
    const char *keys[PL_MOST_WORDS];
    json_t *moe = NULL;
    int r, mlp = 0, norm = 0, positions = 0;

    pl_words_names(keys, PL_OF_MODEL, plain);
    if ((r = jx_keys(json, keys, error)) < 0)
        return r;
    for (int i = 0; needed[i]; i++)
        if ((r = jx_need(json, needed[i], error)) < 0)
            return r;
    snprintf(model->name, sizeof(model->name), "custom");
    if ((r = jx_copy_str(model->name, sizeof(model->name), json, "name", error)) < 0 ||
        (r = jx_get_int(&model->layers, json, "layers", 1, MAX_LAYERS, error)) < 0 ||
        (r = jx_get_int(&model->hidden, json, "hidden", 1, MAX_WIDTH, error)) < 0 ||
        (r = jx_get_int(&model->heads, json, "heads", 1, MAX_WIDTH, error)) < 0 ||
        (r = jx_get_int(&model->kv_heads, json, "kv_heads", 1, model->heads, error)) < 0 ||
        (r = jx_get_int(&model->head_dim, json, "head_dim", 1, MAX_WIDTH, error)) < 0 ||
        (r = jx_get_int(&model->ffn, json, "ffn", 1, MAX_WIDTH, error)) < 0 ||
        (r = jx_get_int(&model->vocab, json, "vocab", 2, MAX_VOCAB, error)) < 0 ||
        (r = jx_get_int(&model->seq, json, "seq", 1, MAX_SEQ, error)) < 0 ||
        (r = jx_get_enum(&mlp, json, "mlp", mlp_names, error)) < 0 ||
        (r = jx_get_enum(&norm, json, "norm", norm_names, error)) < 0 ||
        (r = jx_get_enum(&positions, json, "positions", position_names, error)) < 0 ||
        (r = jx_get_f64(&model->rope_theta, json, "rope_theta", 1, 1e12, error)) < 0 ||
        (r = jx_get_f64(&model->norm_eps, json, "norm_eps", 1e-12, 1, error)) < 0 ||
        (r = jx_get_f64(&model->init_std, json, "init_std", 0, 10, error)) < 0 ||
        (r = jx_get_bool(&model->tied, json, "tied", error)) < 0 ||
        (r = jx_get_object(&moe, json, "moe", error)) < 0)
        return r;
    model->mlp = (enum pl_mlp)mlp;
    model->norm = (enum pl_norm)norm;
    model->positions = (enum pl_positions)positions;
    pl_words_default(model);
    if ((r = pl_words_parse(model, PL_OF_MODEL, json, error)) < 0 ||
        (r = pl_words_parse_objects(model, json, error)) < 0)
        return r;
    if (moe && ((r = parse_moe(&model->moe, moe, model, error)) < 0 ||
                (r = pl_words_parse(model, PL_OF_MOE, moe, error)) < 0))
        return err_under(error, "/moe");
    return complete(model, json, error);
}

static int unknown_preset(const char *name, struct err *error)
{
    const char *near = pl_model_like(name);

    return err_set(error, -EINVAL, "unknown model preset \"%.64s\"%s%s%s (partune presets models)",
                   name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

int pl_model_parse(struct pl_model *ret, const json_t *json, struct err *error)
{
    struct pl_model model = {.rope_theta = 10000, .norm_eps = 1e-5, .init_std = 0.02};
    AUTO_JSON *words = NULL;
    bool config = pl_hf_is_config(json);
    int r = 0;

    if (json_is_array(json))
        return err_set(error, -EINVAL,
                       "a list is not supported: name one model; to compare several, submit a "
                       "campaign for each (partune compare ID ID)");
    if (json_is_string(json)) {
        const char *name = json_string_value(json), *text = pl_model_preset(name);

        if (!text)
            return unknown_preset(name, error);
        r = jx_parse(&words, text, strlen(text), error);
    } else if (config) {
        r = pl_hf_words(&words, json, error);
    }
    if (r == 0)
        r = parse_object(&model, words ? words : json, error);
    if (r == 0)
        *ret = model;
    return r < 0 && config ? err_wrap(error, "config.json") : r;
}

static json_t *moe_json(const struct pl_model *model)
{
    const struct pl_moe *moe = &model->moe;
    json_t *v = json_pack("{s:i s:i s:i s:f}", "experts", moe->experts, "top_k", moe->top_k,
                          "expert_ffn", moe->expert_ffn, "aux_loss_coef", moe->aux_loss_coef);

    /* Left out where it is the default, so that models stored before the word was known are equal
     * to what they were. */
    if (moe->aux_loss != PL_AUX_SEQUENCE)
        json_object_set_new(v, "aux_loss", json_string(pl_aux_loss_names[moe->aux_loss]));
    json_object_set_new(v, "capacity_factor",
                        moe->capacity_factor > 0 ? json_real(moe->capacity_factor) : json_null());
    json_object_set_new(v, "shared_ffn", json_integer(moe->shared_ffn));
    json_object_set_new(v, "every", json_integer(moe->every));
    json_object_set_new(v, "dense_layers", json_integer(moe->dense_layers));
    pl_words_json(v, model, PL_OF_MOE);
    return v;
}

json_t *pl_model_json(const struct pl_model *model)
{
    json_t *v = json_pack(
        "{s:s s:i s:i s:i s:i s:i s:i s:i s:i s:s s:s s:s s:f s:f s:f s:b}", "name", model->name,
        "layers", model->layers, "hidden", model->hidden, "heads", model->heads, "kv_heads",
        model->kv_heads, "head_dim", model->head_dim, "ffn", model->ffn, "vocab", model->vocab,
        "seq", model->seq, "mlp", mlp_names[model->mlp], "norm", norm_names[model->norm],
        "positions", position_names[model->positions], "rope_theta", model->rope_theta, "norm_eps",
        model->norm_eps, "init_std", model->init_std, "tied", (int)model->tied);

    pl_words_json(v, model, PL_OF_MODEL);
    pl_words_objects_json(v, model);
    if (model->moe.experts)
        json_object_set_new(v, "moe", moe_json(model));
    return v;
}

bool pl_model_is_moe(const struct pl_model *model)
{
    return model->moe.experts > 0;
}

bool pl_model_is_mixed(const struct pl_model *model)
{
    return model->moe.experts &&
           (model->moe.every > 1 || model->moe.dense_layers > 0 || model->pattern[0]);
}

/* Gradient by a router's probability of one token, with the experts evenly used (f_e = top_k / E),
 * times the tokens of a step: top_k / layers where all pools are averaged, 1 where Megatron divides
 * by top_k and adds up the layers. */
static double aux_loss_pressure(const struct pl_model *model, enum pl_aux_loss as)
{
    return as == PL_AUX_MEGATRON ? 1.0 : (double)model->moe.top_k / pl_moe_layers(model);
}

double pl_aux_loss_coef(const struct pl_model *model, enum pl_aux_loss as)
{
    if (as == model->moe.aux_loss || pl_moe_layers(model) == 0)
        return model->moe.aux_loss_coef;
    return model->moe.aux_loss_coef * aux_loss_pressure(model, model->moe.aux_loss) /
           aux_loss_pressure(model, as);
}
