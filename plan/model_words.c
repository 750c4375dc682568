/*
 * The optional words of a model. A word is a row: its place in JSON and in struct pl_model, its
 * bounds, and the default under which it is left out of JSON.
 */
#include "plan/model_words.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/base.h"

static const char *const qk_norm_names[] = {"none", "head", "full", "l2", NULL};
static const char *const router_names[] = {"softmax", "sigmoid", NULL};
static const char *const rope_names[] = {"plain", "linear", "llama3", "yarn", "longrope", NULL};

enum { MAX_SIZE = 1 << 20, MAX_TOKENS = 1 << 24, MAX_EXPERTS = 1 << 16, MAX_DEPTH = 64 };

/* BIAS is a FLAG whose default follows from the norm; FACTORS are a struct pl_pair_factors, of none
 * unless said. */
enum kind { WHOLE, NUMBER, FLAG, BIAS, NAME, FACTORS };

struct word {
    enum pl_section section;
    const char *name;
    enum kind kind;
    size_t offset; /* in struct pl_model */
    double low, high, standard;
    const char *const *names;
    bool needed; /* wherever its section is written */
};

#define AT(field) offsetof(struct pl_model, field)

/* clang-format off */
static const struct word words[] = {
    {PL_OF_MODEL, "qkv_bias", BIAS, AT(qkv_bias), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "out_bias", BIAS, AT(out_bias), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "mlp_bias", BIAS, AT(mlp_bias), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "norm_bias", BIAS, AT(norm_bias), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "qk_norm", NAME, AT(qk_norm), 0, 0, PL_QK_NONE, qk_norm_names, false},
    {PL_OF_MODEL, "parallel_block", FLAG, AT(parallel_block), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "shared_norm", FLAG, AT(shared_norm), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "pre_norms", FLAG, AT(pre_norms), 0, 1, 1, NULL, false},
    {PL_OF_MODEL, "post_norms", FLAG, AT(post_norms), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "zero_centered_norm", FLAG, AT(zero_centered_norm), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "attn_sinks", FLAG, AT(attn_sinks), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "attn_softcap", NUMBER, AT(attn_softcap), 0, 1e6, 0, NULL, false},
    {PL_OF_MODEL, "logit_softcap", NUMBER, AT(logit_softcap), 0, 1e6, 0, NULL, false},
    {PL_OF_MODEL, "attn_scale", NUMBER, AT(attn_scale), 0, 1e6, 0, NULL, false},
    {PL_OF_MODEL, "attention_output_gate", FLAG, AT(attention_output_gate), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "attn_temperature_tuning", FLAG, AT(attn_temperature_tuning), 0, 1, 0, NULL,
     false},
    {PL_OF_MODEL, "attn_temperature_floor", WHOLE, AT(attn_temperature_floor), 1, MAX_TOKENS, 8192,
     NULL, false},
    {PL_OF_MODEL, "attn_temperature_scale", NUMBER, AT(attn_temperature_scale), 0, 1e3, 0.1, NULL,
     false},
    {PL_OF_MODEL, "embed_scale", FLAG, AT(embed_scale), 0, 1, 0, NULL, false},
    {PL_OF_MODEL, "embedding_multiplier", NUMBER, AT(embedding_multiplier), 1e-6, 1e6, 1, NULL,
     false},
    {PL_OF_MODEL, "residual_multiplier", NUMBER, AT(residual_multiplier), 1e-6, 1e6, 1, NULL,
     false},
    {PL_OF_MODEL, "logit_scale", NUMBER, AT(logit_scale), 1e-6, 1e6, 1, NULL, false},
    {PL_OF_MODEL, "sliding_window", WHOLE, AT(sliding_window), 0, MAX_TOKENS, 0, NULL, false},
    {PL_OF_MODEL, "attention_chunk_size", WHOLE, AT(attention_chunk_size), 0, MAX_TOKENS, 0, NULL,
     false},
    {PL_OF_MODEL, "global_every", WHOLE, AT(global_every), 0, 4096, 0, NULL, false},
    {PL_OF_MODEL, "linear_attention_freq", WHOLE, AT(linear_attention_freq), 0, 4096, 0, NULL,
     false},
    {PL_OF_MODEL, "no_rope_freq", WHOLE, AT(no_rope_freq), 0, 4096, 0, NULL, false},
    {PL_OF_MODEL, "partial_rotary_factor", NUMBER, AT(partial_rotary_factor), 0.001, 1, 1, NULL,
     false},
    {PL_OF_MODEL, "rope_theta_local", NUMBER, AT(rope_theta_local), 0, 1e12, 0, NULL, false},
    {PL_OF_MODEL, "mtp", WHOLE, AT(mtp), 0, MAX_DEPTH, 0, NULL, false},
    {PL_OF_MODEL, "mtp_loss_coef", NUMBER, AT(mtp_loss_coef), 0, 1e3, 0.1, NULL, false},
    {PL_OF_MOE, "router", NAME, AT(moe.router), 0, 0, PL_ROUTER_SOFTMAX, router_names, false},
    {PL_OF_MOE, "topk_norm", FLAG, AT(moe.topk_norm), 0, 1, 1, NULL, false},
    {PL_OF_MOE, "balance_bias", FLAG, AT(moe.balance_bias), 0, 1, 0, NULL, false},
    {PL_OF_MOE, "scaling", NUMBER, AT(moe.scaling), 1e-6, 1e6, 1, NULL, false},
    {PL_OF_MOE, "n_group", WHOLE, AT(moe.n_group), 1, MAX_EXPERTS, 1, NULL, false},
    {PL_OF_MOE, "topk_group", WHOLE, AT(moe.topk_group), 1, MAX_EXPERTS, 1, NULL, false},
    {PL_OF_MOE, "router_bias", FLAG, AT(moe.router_bias), 0, 1, 0, NULL, false},
    {PL_OF_MOE, "shared_gate", FLAG, AT(moe.shared_gate), 0, 1, 0, NULL, false},
    {PL_OF_MOE, "z_loss_coef", NUMBER, AT(moe.z_loss_coef), 0, 1e3, 0, NULL, false},
    {PL_OF_MOE, "force_balance", FLAG, AT(moe.force_balance), 0, 1, 0, NULL, false},
    {PL_OF_MOE, "apply_probs_on_input", FLAG, AT(moe.apply_probs_on_input), 0, 1, 0, NULL, false},
    {PL_OF_MLA, "q_lora_rank", WHOLE, AT(mla.q_lora_rank), 0, MAX_SIZE, 0, NULL, false},
    {PL_OF_MLA, "kv_lora_rank", WHOLE, AT(mla.kv_lora_rank), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_MLA, "qk_nope_head_dim", WHOLE, AT(mla.qk_nope_head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_MLA, "qk_rope_head_dim", WHOLE, AT(mla.qk_rope_head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_MLA, "v_head_dim", WHOLE, AT(mla.v_head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_DSA, "index_n_heads", WHOLE, AT(dsa.index_n_heads), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_DSA, "index_head_dim", WHOLE, AT(dsa.index_head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_DSA, "index_topk", WHOLE, AT(dsa.index_topk), 1, MAX_TOKENS, 0, NULL, true},
    {PL_OF_DSA, "indexer_loss_coef", NUMBER, AT(dsa.indexer_loss_coef), 0, 1e3, 0.001, NULL, false},
    {PL_OF_LINEAR, "num_key_heads", WHOLE, AT(linear.num_key_heads), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_LINEAR, "num_value_heads", WHOLE, AT(linear.num_value_heads), 1, MAX_SIZE, 0, NULL,
     true},
    {PL_OF_LINEAR, "key_head_dim", WHOLE, AT(linear.key_head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_LINEAR, "value_head_dim", WHOLE, AT(linear.value_head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_LINEAR, "conv_kernel_dim", WHOLE, AT(linear.conv_kernel_dim), 1, 64, 4, NULL, false},
    {PL_OF_MAMBA, "heads", WHOLE, AT(mamba.heads), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_MAMBA, "head_dim", WHOLE, AT(mamba.head_dim), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_MAMBA, "state", WHOLE, AT(mamba.state), 1, MAX_SIZE, 0, NULL, true},
    {PL_OF_MAMBA, "groups", WHOLE, AT(mamba.groups), 1, MAX_SIZE, 8, NULL, false},
    {PL_OF_MAMBA, "conv", WHOLE, AT(mamba.conv), 1, 64, 4, NULL, false},
    {PL_OF_ROPE, "kind", NAME, AT(rope_scaling.kind), 0, 0, PL_ROPE_PLAIN, rope_names, true},
    {PL_OF_ROPE, "factor", NUMBER, AT(rope_scaling.factor), 1, 1e6, 0, NULL, true},
    {PL_OF_ROPE, "original_seq", WHOLE, AT(rope_scaling.original_seq), 0, MAX_TOKENS, 0, NULL,
     false},
    {PL_OF_ROPE, "short_factor", FACTORS, AT(rope_scaling.short_factor), 1e-6, 1e6, 0, NULL, false},
    {PL_OF_ROPE, "long_factor", FACTORS, AT(rope_scaling.long_factor), 1e-6, 1e6, 0, NULL, false},
    {PL_OF_ROPE, "low_freq_factor", NUMBER, AT(rope_scaling.low_freq_factor), 0, 1e6, 1, NULL,
     false},
    {PL_OF_ROPE, "high_freq_factor", NUMBER, AT(rope_scaling.high_freq_factor), 0, 1e6, 4, NULL,
     false},
    {PL_OF_ROPE, "beta_fast", NUMBER, AT(rope_scaling.beta_fast), 0, 1e6, 32, NULL, false},
    {PL_OF_ROPE, "beta_slow", NUMBER, AT(rope_scaling.beta_slow), 0, 1e6, 1, NULL, false},
    {PL_OF_ROPE, "truncate", FLAG, AT(rope_scaling.truncate), 0, 1, 1, NULL, false},
    {PL_OF_ROPE, "mscale", NUMBER, AT(rope_scaling.mscale), 0, 1e6, 0, NULL, false},
    {PL_OF_ROPE, "mscale_all_dim", NUMBER, AT(rope_scaling.mscale_all_dim), 0, 1e6, 0, NULL, false},
};
/* clang-format on */

static const struct {
    const char *name;
    enum pl_section section;
} objects[] = {{"mla", PL_OF_MLA},
               {"dsa", PL_OF_DSA},
               {"linear_attention", PL_OF_LINEAR},
               {"mamba", PL_OF_MAMBA},
               {"rope_scaling", PL_OF_ROPE}};

void pl_words_names(const char **ret, enum pl_section section, const char *const *plain)
{
    int n = 0;

    for (; plain && plain[n]; n++)
        ret[n] = plain[n];
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (words[i].section == section)
            ret[n++] = words[i].name;
    for (size_t i = 0; i < ARRAY_LEN(objects) && section == PL_OF_MODEL; i++)
        ret[n++] = objects[i].name;
    if (section == PL_OF_MODEL)
        ret[n++] = "pattern";
    assert(n < PL_MOST_WORDS);
    ret[n] = NULL;
}

static double standard(const struct pl_model *model, const struct word *word)
{
    return word->kind == BIAS ? model->norm == PL_LAYERNORM : word->standard;
}

static const struct pl_pair_factors *factors_of(const struct pl_model *model,
                                                const struct word *word)
{
    return (const void *)((const char *)model + word->offset);
}

/* Of FACTORS, how many. */
static double get(const struct pl_model *model, const struct word *word)
{
    const char *at = (const char *)model + word->offset;

    if (word->kind == FACTORS)
        return factors_of(model, word)->count;
    if (word->kind == NUMBER)
        return *(const double *)at;
    return word->kind == FLAG || word->kind == BIAS ? *(const bool *)at : *(const int *)at;
}

static void set(struct pl_model *model, const struct word *word, double value)
{
    char *at = (char *)model + word->offset;

    if (word->kind == FACTORS)
        ((struct pl_pair_factors *)(void *)at)->count = (int)value;
    else if (word->kind == NUMBER)
        *(double *)at = value;
    else if (word->kind == FLAG || word->kind == BIAS)
        *(bool *)at = value != 0;
    else
        *(int *)at = (int)value;
}

void pl_words_default(struct pl_model *model)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        set(model, &words[i], standard(model, &words[i]));
}

static int parse_factors(struct pl_model *model, const struct word *word, const json_t *json,
                         struct err *error)
{
    struct pl_pair_factors *to = (void *)((char *)model + word->offset);
    const json_t *list = json_object_get(json, word->name), *value;
    AUTO_FREE char *at = mem_printf("/%s", word->name);
    size_t i;

    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > PL_MAX_PAIRS)
        return err_at(error, -EINVAL, at, "%s must be a list of at most %d numbers", word->name,
                      PL_MAX_PAIRS);
    json_array_foreach((json_t *)list, i, value) {
        to->at[i] = json_number_value(value);
        if (!(to->at[i] >= word->low && to->at[i] <= word->high))
            return err_at(error, -EINVAL, at, "number %zu of %s must be %g to %g", i, word->name,
                          word->low, word->high);
    }
    to->count = (int)json_array_size(list);
    return 0;
}

static int parse_word(struct pl_model *model, const struct word *word, const json_t *json,
                      struct err *error)
{
    double number = get(model, word);
    int whole = word->kind == NUMBER ? 0 : (int)number, r;
    bool flag = number != 0;

    switch (word->kind) {
    case FACTORS:
        return parse_factors(model, word, json, error);
    case NUMBER:
        r = jx_get_f64(&number, json, word->name, word->low, word->high, error);
        break;
    case WHOLE:
        r = jx_get_int(&whole, json, word->name, (int)word->low, (int)word->high, error);
        number = whole;
        break;
    case NAME:
        r = jx_get_enum(&whole, json, word->name, word->names, error);
        number = whole;
        break;
    default:
        r = jx_get_bool(&flag, json, word->name, error);
        number = flag;
    }
    if (r == 0)
        set(model, word, number);
    return r;
}

int pl_words_parse(struct pl_model *model, enum pl_section section, const json_t *json,
                   struct err *error)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(words) && r == 0; i++) {
        if (words[i].section != section)
            continue;
        if (words[i].needed)
            r = jx_need(json, words[i].name, error);
        if (r == 0)
            r = parse_word(model, &words[i], json, error);
    }
    return r;
}

int pl_words_parse_objects(struct pl_model *model, const json_t *json, struct err *error)
{
    for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
        const char *names[PL_MOST_WORDS];
        json_t *object = NULL;
        int r = jx_get_object(&object, json, objects[i].name, error);

        if (r < 0)
            return r;
        if (!object)
            continue;
        pl_words_names(names, objects[i].section, NULL);
        if ((r = jx_keys(object, names, error)) < 0 ||
            (r = pl_words_parse(model, objects[i].section, object, error)) < 0) {
            AUTO_FREE char *under = mem_printf("/%s", objects[i].name);

            return err_under(error, under);
        }
    }
    return jx_copy_str(model->pattern, sizeof(model->pattern), json, "pattern", error);
}

static json_t *factors_json(const struct pl_pair_factors *factors)
{
    json_t *list = json_array();

    for (int i = 0; i < factors->count; i++)
        json_array_append_new(list, json_real(factors->at[i]));
    return list;
}

static json_t *word_json(const struct pl_model *model, const struct word *word, double value)
{
    switch (word->kind) {
    case FACTORS:
        return factors_json(factors_of(model, word));
    case NUMBER:
        return json_real(value);
    case WHOLE:
        return json_integer((json_int_t)value);
    case NAME:
        return json_string(word->names[(int)value]);
    default:
        return json_boolean(value != 0);
    }
}

void pl_words_json(json_t *json, const struct pl_model *model, enum pl_section section)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        double value = get(model, &words[i]);

        if (words[i].section == section && (words[i].needed || value < standard(model, &words[i]) ||
                                            value > standard(model, &words[i])))
            json_object_set_new(json, words[i].name, word_json(model, &words[i], value));
    }
}

static bool has_object(const struct pl_model *model, enum pl_section section)
{
    switch (section) {
    case PL_OF_MLA:
        return pl_model_is_mla(model);
    case PL_OF_DSA:
        return model->dsa.index_topk > 0;
    case PL_OF_LINEAR:
        return model->linear.num_value_heads > 0;
    case PL_OF_MAMBA:
        return model->mamba.heads > 0;
    default:
        return model->rope_scaling.kind != PL_ROPE_PLAIN;
    }
}

void pl_words_objects_json(json_t *json, const struct pl_model *model)
{
    for (size_t i = 0; i < ARRAY_LEN(objects); i++)
        if (has_object(model, objects[i].section)) {
            json_t *object = json_object();

            pl_words_json(object, model, objects[i].section);
            json_object_set_new(json, objects[i].name, object);
        }
    if (model->pattern[0])
        json_object_set_new(json, "pattern", json_string(model->pattern));
}

static int check_pattern(const struct pl_model *model, struct err *error)
{
    const char *pattern = model->pattern;
    size_t odd = strspn(pattern, "M*-E");

    if (!*pattern)
        return model->mamba.heads ? err_at(error, -EINVAL, "/pattern",
                                           "mamba needs a pattern that names its layers")
                                  : 0;
    if (pattern[odd])
        return err_at(
            error, -EINVAL, "/pattern",
            "layer %zu is '%c'; letters are M (Mamba-2), * (attention), - (feed-forward), "
            "E (experts)",
            odd, pattern[odd]);
    if ((int)strlen(pattern) != model->layers)
        return err_at(error, -EINVAL, "/pattern", "%zu letters for layers %d", strlen(pattern),
                      model->layers);
    if (strchr(pattern, 'M') && !model->mamba.heads)
        return err_at(error, -EINVAL, "/mamba", "mamba is missing: the pattern has M layers");
    if (!strchr(pattern, 'E') != !model->moe.experts)
        return err_at(error, -EINVAL, "/pattern", "%s",
                      model->moe.experts ? "moe needs E layers in the pattern"
                                         : "E layers need moe");
    if (model->moe.experts && (model->moe.every > 1 || model->moe.dense_layers))
        return err_at(
            error, -EINVAL, "/moe",
            "every and dense_layers contradict a pattern, which names layers with experts");
    if (model->mtp)
        return err_at(error, -EINVAL, "/mtp", "mtp is not supported with a pattern");
    if (model->mamba.heads && model->mamba.heads % model->mamba.groups)
        return err_at(error, -EINVAL, "/mamba/groups", "groups %d does not divide heads %d",
                      model->mamba.groups, model->mamba.heads);
    return 0;
}

static int check_moe(const struct pl_moe *moe, struct err *error)
{
    if (!moe->experts)
        return 0;
    if (moe->experts % moe->n_group)
        return err_at(error, -EINVAL, "/moe/n_group", "n_group %d does not divide experts %d",
                      moe->n_group, moe->experts);
    if (moe->topk_group > moe->n_group)
        return err_at(error, -EINVAL, "/moe/topk_group", "topk_group %d is more than n_group %d",
                      moe->topk_group, moe->n_group);
    if (moe->top_k > moe->experts / moe->n_group * moe->topk_group)
        return err_at(error, -EINVAL, "/moe/topk_group",
                      "top_k %d is more than the experts in topk_group %d groups", moe->top_k,
                      moe->topk_group);
    if (moe->shared_gate && !moe->shared_ffn)
        return err_at(error, -EINVAL, "/moe/shared_gate", "shared_gate needs shared_ffn");
    return 0;
}

static int check_mla(const struct pl_model *model, struct err *error)
{
    int key = model->mla.qk_nope_head_dim + model->mla.qk_rope_head_dim;

    if (!pl_model_is_mla(model))
        return 0;
    if (model->kv_heads != model->heads)
        return err_at(error, -EINVAL, "/kv_heads",
                      "kv_heads %d with mla: every head has its own keys (heads %d)",
                      model->kv_heads, model->heads);
    if (model->head_dim != key)
        return err_at(error, -EINVAL, "/head_dim",
                      "head_dim %d is not mla's qk_nope_head_dim %d + qk_rope_head_dim %d",
                      model->head_dim, model->mla.qk_nope_head_dim, model->mla.qk_rope_head_dim);
    if (model->qk_norm != PL_QK_NONE)
        return err_at(error, -EINVAL, "/qk_norm", "mla has norms of its own, qk_norm must be none");
    if (model->partial_rotary_factor < 1)
        return err_at(error, -EINVAL, "/partial_rotary_factor",
                      "partial_rotary_factor %.10g with mla: qk_rope_head_dim says what is rotated",
                      model->partial_rotary_factor);
    return 0;
}

static int check_rope_scaling(const struct pl_model *model, struct err *error)
{
    const struct pl_rope_scaling *scaling = &model->rope_scaling;

    if (scaling->kind != PL_ROPE_PLAIN && model->positions != PL_ROPE)
        return err_at(error, -EINVAL, "/rope_scaling", "rope_scaling needs positions rope");
    if (scaling->kind != PL_ROPE_PLAIN && scaling->kind != PL_ROPE_LINEAR && !scaling->original_seq)
        return err_at(error, -EINVAL, "/rope_scaling/original_seq", "original_seq is missing");
    if (scaling->kind == PL_ROPE_LLAMA3 && scaling->low_freq_factor > scaling->high_freq_factor)
        return err_at(error, -EINVAL, "/rope_scaling/low_freq_factor",
                      "low_freq_factor %g is above high_freq_factor %g", scaling->low_freq_factor,
                      scaling->high_freq_factor);
    for (int i = 0; i < 2; i++) {
        int many = i ? scaling->long_factor.count : scaling->short_factor.count;
        int want = scaling->kind == PL_ROPE_LONG ? pl_rotary_dim(model) / 2 : 0;

        if (many != want)
            return err_at(error, -EINVAL,
                          i ? "/rope_scaling/long_factor" : "/rope_scaling/short_factor",
                          "%d numbers, not %d: longrope has one for each pair that rotates, other "
                          "kinds none",
                          many, want);
    }
    if (scaling->kind == PL_ROPE_YARN && model->rope_theta <= 1)
        return err_at(error, -EINVAL, "/rope_theta",
                      "rope_theta %g must be above 1 with rope_scaling yarn", model->rope_theta);
    return 0;
}

/* Where inputs are not normalized, outputs are. */
static int check_norms(const struct pl_model *model, struct err *error)
{
    if (model->norm_bias && model->norm != PL_LAYERNORM)
        return err_at(error, -EINVAL, "/norm_bias", "norm_bias true needs norm layernorm");
    if (model->shared_norm && !(model->parallel_block && model->pre_norms))
        return err_at(error, -EINVAL, "/shared_norm",
                      "shared_norm needs parallel_block and pre_norms");
    if (model->shared_norm && model->pattern[0])
        return err_at(error, -EINVAL, "/shared_norm",
                      "shared_norm is not supported with a pattern");
    if (model->pre_norms)
        return 0;
    if (!model->post_norms)
        return err_at(error, -EINVAL, "/pre_norms", "pre_norms false needs post_norms true");
    if (model->pattern[0])
        return err_at(error, -EINVAL, "/pre_norms",
                      "pre_norms false is not supported with a "
                      "pattern");
    return 0;
}

/* Layers without rotation are some of those that rotate, and known by their numbers alone. */
static int check_no_rope(const struct pl_model *model, struct err *error)
{
    const char *without = model->positions != PL_ROPE ? "positions other than rope"
                          : pl_model_is_mla(model)    ? "mla"
                          : model->pattern[0]         ? "a pattern"
                                                      : NULL;

    if (!model->no_rope_freq)
        return 0;
    if (model->no_rope_freq == 1)
        return err_at(error, -EINVAL, "/no_rope_freq",
                      "no_rope_freq 1 rotates no layer: use positions none");
    if (without)
        return err_at(error, -EINVAL, "/no_rope_freq", "no_rope_freq is not supported with %s",
                      without);
    return 0;
}

/* What a query sees, and how its scores depend on where it is. */
static int check_span(const struct pl_model *model, struct err *error)
{
    if (model->global_every && !model->sliding_window && !model->attention_chunk_size)
        return err_at(error, -EINVAL, "/global_every",
                      "global_every needs sliding_window or attention_chunk_size");
    if (model->rope_theta_local > 0 && !model->sliding_window)
        return err_at(error, -EINVAL, "/rope_theta_local", "rope_theta_local needs sliding_window");
    if (model->attention_chunk_size && (model->sliding_window || model->pattern[0]))
        return err_at(error, -EINVAL, "/attention_chunk_size",
                      "attention_chunk_size is not supported with %s",
                      model->sliding_window ? "sliding_window" : "a pattern");
    if (model->attn_temperature_tuning && !model->no_rope_freq &&
        model->positions != PL_NO_POSITIONS)
        return err_at(error, -EINVAL, "/attn_temperature_tuning",
                      "attn_temperature_tuning needs layers that are not rotated: no_rope_freq, or "
                      "positions none");
    if (model->attention_output_gate && pl_model_is_mla(model))
        return err_at(error, -EINVAL, "/attention_output_gate",
                      "attention_output_gate is not supported with mla");
    return 0;
}

/* What sparse attention is not known with; a word, or NULL. */
static const char *check_dsa_without(const struct pl_model *model)
{
    return !pl_model_is_mla(model)       ? "needs mla"
           : !model->mla.q_lora_rank     ? "needs q_lora_rank above 0 in mla"
           : model->sliding_window       ? "is not supported with sliding_window"
           : model->attention_chunk_size ? "is not supported with attention_chunk_size"
           : model->pattern[0]           ? "is not supported with a pattern"
           : model->dsa.index_head_dim < model->mla.qk_rope_head_dim
               ? "needs index_head_dim of at least qk_rope_head_dim"
               : NULL;
}

static int check_dsa(const struct pl_model *model, struct err *error)
{
    const char *why = model->dsa.index_topk ? check_dsa_without(model) : NULL;

    return why ? err_at(error, -EINVAL, "/dsa", "dsa %s", why) : 0;
}

static int check_linear(const struct pl_model *model, struct err *error)
{
    const struct pl_linear *linear = &model->linear;
    const char *with = model->pattern[0]             ? "a pattern"
                       : pl_model_is_mla(model)      ? "mla"
                       : model->sliding_window       ? "sliding_window"
                       : model->attention_chunk_size ? "attention_chunk_size"
                       : model->no_rope_freq         ? "no_rope_freq"
                       : model->parallel_block       ? "parallel_block"
                                                     : NULL;

    if (!linear->num_value_heads != !model->linear_attention_freq)
        return err_at(
            error, -EINVAL, "/linear_attention_freq", "%s",
            linear->num_value_heads
                ? "linear_attention needs linear_attention_freq: layers n, 2n, ... are of "
                  "plain attention"
                : "linear_attention_freq needs linear_attention");
    if (!linear->num_value_heads)
        return 0;
    if (model->linear_attention_freq == 1)
        return err_at(
            error, -EINVAL, "/linear_attention_freq",
            "linear_attention_freq 1 leaves no layer of linear attention: leave both out");
    if (with)
        return err_at(error, -EINVAL, "/linear_attention",
                      "linear_attention is not supported with %s", with);
    if (linear->num_value_heads % linear->num_key_heads)
        return err_at(error, -EINVAL, "/linear_attention/num_key_heads",
                      "num_key_heads %d does not divide num_value_heads %d", linear->num_key_heads,
                      linear->num_value_heads);
    return 0;
}

int pl_words_check(struct pl_model *model, struct err *error)
{
    int r;

    if ((r = check_span(model, error)) < 0 || (r = check_norms(model, error)) < 0 ||
        (r = check_no_rope(model, error)) < 0 || (r = check_rope_scaling(model, error)) < 0)
        return r;
    if ((r = check_mla(model, error)) < 0 || (r = check_dsa(model, error)) < 0 ||
        (r = check_linear(model, error)) < 0 || (r = check_moe(&model->moe, error)) < 0)
        return r;
    return check_pattern(model, error);
}
