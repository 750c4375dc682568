/*
 * config.json of Hugging Face into our words.
 *
 * A family is a row of plan/hf_tables.c: what holds for all its models, as a model in our words,
 * and the sets of keys that it has. A key is a row of a set: its word here. What a key decides
 * together with others (activation, windows, rotation, biases) is a function.
 */
#include "plan/hf.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/hf_reader.h"
#include "plan/model.h"

enum { MOST_FAMILIES = 63 };

/* Names of the families, NULL-terminated. */
static const char *const *family_types(void)
{
    static const char *names[MOST_FAMILIES + 1];

    for (size_t i = 0; i < MOST_FAMILIES && pl_hf_families[i].type; i++)
        names[i] = pl_hf_families[i].type;
    return names;
}

bool pl_hf_is_config(const json_t *json)
{
    return json_object_get(json, "model_type") || json_object_get(json, "architectures");
}

static bool str_in(const char *text, const char *const *names)
{
    while (*names && strcmp(*names, text) != 0)
        names++;
    return *names != NULL;
}

/* TEXT with ' for ". */
static json_t *json_of(const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text);

    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return json_loads(copy, 0, NULL);
}

/* The other way: our word has no value. */
static void drop(struct pl_hf_reader *reader, const char *ours)
{
    const char *dot = strchr(ours, '.');
    AUTO_FREE char *object = dot ? mem_printf("%.*s", (int)(dot - ours), ours) : NULL;

    json_object_del(dot ? json_object_get(reader->out, object) : reader->out, dot ? dot + 1 : ours);
}

static void put_usual(struct pl_hf_reader *reader, const struct pl_hf_row *row)
{
    for (; row->hf; row++) {
        json_t *value = json_object_get(reader->usual, row->hf);

        if (value)
            pl_hf_put(reader, row->ours, json_deep_copy(value));
    }
}

/* A key that is null takes away what the class has where it is absent. */
static void take_rows(struct pl_hf_reader *reader, const struct pl_hf_row *row)
{
    for (; row->hf; row++) {
        bool there = json_object_get(reader->config, row->hf);
        json_t *value = there ? pl_hf_take(reader, row->hf) : NULL;

        if (value)
            pl_hf_put(reader, row->ours, json_deep_copy(value));
        else if (there && json_object_get(reader->usual, row->hf))
            drop(reader, row->ours);
    }
}

static int take_activation(struct pl_hf_reader *reader, struct err *error)
{
    static const char *const keys[] = {"hidden_act", "hidden_activation", "mlp_hidden_act",
                                       "activation_function"};
    static const struct {
        const char *hf;
        bool gated; /* does a family with this activation gate it? */
        const char *ours;
    } names[] = {
        {"silu", true, "swiglu"},
        {"gelu", false, "gelu"},
        {"gelu_new", false, "gelu-tanh"},
        {"gelu_fast", false, "gelu-tanh"},
        {"gelu_pytorch_tanh", false, "gelu-tanh"},
        {"gelu_pytorch_tanh", true, "geglu"},
        {"gelu", true, "geglu"},
        {"relu2", false, "relu2"},
    };
    const char *now = json_string_value(json_object_get(reader->out, "mlp"));
    bool gated = !now || !strcmp(now, "geglu") || !strncmp(now, "swiglu", 6);
    bool clamped = now && !strcmp(now, "swiglu-clamped"); /* pl_hf_put() frees what NOW points to */

    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        json_t *value = pl_hf_take(reader, keys[k]);
        const char *text = json_string_value(value), *ours = NULL;

        if (!value)
            continue;
        for (size_t i = 0; text && i < ARRAY_LEN(names); i++)
            if (names[i].gated == gated && !strcmp(names[i].hf, text))
                ours = names[i].ours;
        if (!ours)
            return pl_hf_refuse(error, keys[k], "%s is not supported",
                                text ? text : "of this kind");
        /* GPT-OSS says silu of its own clamped function. */
        if (!clamped)
            pl_hf_put(reader, "mlp", json_string(ours));
    }
    return 0;
}

static void take_biases(struct pl_hf_reader *reader)
{
    json_t *all = reader->flags & PL_HF_USE_BIAS ? pl_hf_take(reader, "use_bias") : NULL;
    json_t *bias = all ? all : pl_hf_take(reader, "attention_bias"), *norm;

    if (bias) {
        pl_hf_put(reader, "qkv_bias", json_deep_copy(bias));
        if (all || reader->flags & PL_HF_OUT_BIAS)
            pl_hf_put(reader, "out_bias", json_deep_copy(bias));
    }
    if (all)
        pl_hf_put(reader, "mlp_bias", json_deep_copy(bias));
    norm =
        reader->flags & (PL_HF_QK_NORM | PL_HF_L2_NORM) ? pl_hf_take(reader, "use_qk_norm") : NULL;
    if (json_is_true(norm))
        pl_hf_put(reader, "qk_norm", json_string(reader->flags & PL_HF_L2_NORM ? "l2" : "head"));
}

/* A factor of cosine and sine that yarn's own rule does not give has no word. */
static int check_amplitude(const char *key, const json_t *scaling, const char *kind,
                           struct err *error)
{
    const struct pl_rope_scaling ours = {.factor = pl_hf_number(scaling, "factor"),
                                         .mscale = pl_hf_number(scaling, "mscale"),
                                         .mscale_all_dim = pl_hf_number(scaling, "mscale_all_dim")};
    const json_t *given = json_object_get(scaling, "attention_factor");
    double usual = pl_yarn_amplitude(&ours), value = json_number_value(given);

    if (!given || json_is_null(given))
        return 0;
    if (strcmp(kind, "yarn") != 0)
        return pl_hf_refuse(error, key, "of type %s has attention_factor, which is not supported",
                            kind);
    if (!json_is_number(given) || fabs(value - usual) > 1e-6 * usual)
        return pl_hf_refuse(
            error, key,
            "has attention_factor %g, which is not supported: only yarn's own, here %.10g", value,
            usual);
    return 0;
}

static const char *const long_lists[] = {"short_factor", "long_factor", NULL};

/* Of longrope the longest sequence before is the scaling's, or the model's; the factor is what
 * sequences are longer by. Its name was "su". */
static int take_long(struct pl_hf_reader *reader, const char *key, const json_t *scaling,
                     struct err *error)
{
    const char *const name = "original_max_position_embeddings";
    double original = pl_hf_number(scaling, name), seq = pl_hf_number(reader->out, "seq");

    if (original <= 0)
        original = pl_hf_number(reader->config, name);
    if (!(original > 0 && original < 1e9))
        return pl_hf_refuse(error, key, "of type longrope needs %s", name);
    pl_hf_put(reader, "rope_scaling.kind", json_string("longrope"));
    pl_hf_put(reader, "rope_scaling.original_seq", json_integer((json_int_t)original));
    pl_hf_put(reader, "rope_scaling.factor", json_real(seq > original ? seq / original : 1));
    for (size_t i = 0; long_lists[i]; i++) {
        AUTO_FREE char *word = mem_printf("rope_scaling.%s", long_lists[i]);
        json_t *list = json_object_get(scaling, long_lists[i]);

        if (list)
            pl_hf_put(reader, word, json_deep_copy(list));
    }
    return 0;
}

/* {"type" or "rope_type": ..., "factor": ...} */
static int take_scaling(struct pl_hf_reader *reader, const char *key, const json_t *scaling,
                        struct err *error)
{
    static const struct pl_hf_row rows[] = {
        {"factor", "factor"},
        {"original_max_position_embeddings", "original_seq"},
        {"low_freq_factor", "low_freq_factor"},
        {"high_freq_factor", "high_freq_factor"},
        {"beta_fast", "beta_fast"},
        {"beta_slow", "beta_slow"},
        {"truncate", "truncate"},
        {"mscale", "mscale"},
        {"mscale_all_dim", "mscale_all_dim"},
    };
    static const char *const passed[] = {
        "type", "rope_type", "rope_theta", "partial_rotary_factor", "attention_factor", NULL};
    const char *kind = json_string_value(json_object_get(scaling, "rope_type")), *name;
    AUTO_JSON *ours = json_object();
    json_t *value;
    bool lengths;
    int r;

    if (!kind)
        kind = json_string_value(json_object_get(scaling, "type"));
    if (!kind || !strcmp(kind, "default"))
        return 0;
    lengths = str_eq(kind, "longrope") || str_eq(kind, "su");
    if (strcmp(kind, "linear") && strcmp(kind, "llama3") && strcmp(kind, "yarn") && !lengths)
        return pl_hf_refuse(error, key, "of type %s is not supported", kind);
    if ((r = check_amplitude(key, scaling, kind, error)) < 0)
        return r;
    json_object_set_new(ours, "kind", json_string(kind));
    json_object_foreach((json_t *)scaling, name, value) {
        const char *word = NULL;

        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            if (!strcmp(rows[i].hf, name))
                word = rows[i].ours;
        if (word && !json_is_null(value))
            json_object_set(ours, word, value);
        else if (!word && !str_in(name, passed) && !json_is_null(value) &&
                 !(lengths && str_in(name, long_lists)))
            return pl_hf_refuse(error, key, "has %s, which is not supported", name);
    }
    if (lengths)
        return take_long(reader, key, scaling, error);
    pl_hf_put(reader, "rope_scaling", json_incref(ours));
    return 0;
}

/* rope_scaling, or rope_parameters of newer releases: of all layers, or of layers by their kind.
 * What a class scales by is where a file has neither; null is none, as in the releases before
 * rope_parameters. */
static int take_rotation(struct pl_hf_reader *reader, struct err *error)
{
    json_t *all = pl_hf_take(reader, "rope_parameters"),
           *scaling = all && !json_object_get(reader->config, "rope_scaling")
                          ? NULL
                          : pl_hf_take(reader, "rope_scaling");
    json_t *local = json_object_get(all, "sliding_attention"), *theta;
    const char *kind = json_string_value(json_object_get(local, "rope_type"));
    int r = scaling ? take_scaling(reader, "rope_scaling", scaling, error) : 0;

    if (r < 0 || !all)
        return r;
    if (kind && strcmp(kind, "default") != 0)
        return pl_hf_refuse(error, "rope_parameters",
                            "of layers with a window are of type %s, which is not supported", kind);
    if (json_object_get(all, "full_attention"))
        all = json_object_get(all, "full_attention");
    if ((theta = json_object_get(local, "rope_theta")))
        pl_hf_put(reader, "rope_theta_local", json_deep_copy(theta));
    if ((theta = json_object_get(all, "rope_theta")))
        pl_hf_put(reader, "rope_theta", json_deep_copy(theta));
    if ((theta = json_object_get(all, "partial_rotary_factor")))
        pl_hf_put(reader, "partial_rotary_factor", json_deep_copy(theta));
    return take_scaling(reader, "rope_parameters", all, error);
}

/* Where the other layers' positions are scaled, layers with a window need a base of their own, and
 * else none: it is the same. */
static void rotate_windows_plainly(struct pl_hf_reader *reader)
{
    json_t *out = reader->out, *theta = json_object_get(out, "rope_theta"),
           *local = json_object_get(out, "rope_theta_local");

    if (json_object_get(out, "rope_scaling")) {
        if (!local)
            pl_hf_put(reader, "rope_theta_local", json_deep_copy(theta));
    } else if (local && json_number_value(local) == json_number_value(theta)) {
        json_object_del(out, "rope_theta_local");
    }
}

/* rotary_dim is the same in numbers of a head, where no factor is given. */
static int take_rotary_dim(struct pl_hf_reader *reader, struct err *error)
{
    json_t *dim = pl_hf_take(reader, "rotary_dim");
    double head = pl_hf_number(reader->out, "head_dim"), rotated = json_number_value(dim);

    if (!dim || json_object_get(reader->out, "partial_rotary_factor"))
        return 0;
    if (!(rotated >= 1 && rotated <= head))
        return pl_hf_refuse(error, "rotary_dim", "must be 1 to head_dim, which is %g", head);
    pl_hf_put(reader, "partial_rotary_factor", json_real(rotated / head));
    return 0;
}

/* Modules of multi-token prediction that use_mtp switches on. */
static void take_mtp(struct pl_hf_reader *reader)
{
    json_t *many = pl_hf_take(reader, "num_mtp_modules");

    if (json_is_true(pl_hf_take(reader, "use_mtp")) && many)
        pl_hf_put(reader, "mtp", json_deep_copy(many));
}

/* The shared experts are one of their joint width. */
static int take_experts(struct pl_hf_reader *reader, struct err *error)
{
    json_t *moe = json_object_get(reader->out, "moe"),
           *shared = pl_hf_take(reader, "n_shared_experts"),
           *method = pl_hf_take(reader, "topk_method");
    const char *name = json_string_value(method);
    double many = json_number_value(shared ? shared : pl_hf_take(reader, "moe_num_shared_experts")),
           width = json_number_value(json_object_get(
               moe, json_object_get(moe, "shared_ffn") ? "shared_ffn" : "expert_ffn"));

    if (many > 0 && many < 1e4 && width < 1e6)
        pl_hf_put(reader, "moe.shared_ffn", json_integer((json_int_t)(many * width)));
    if (!method)
        return 0;
    if (!name || (strcmp(name, "noaux_tc") && strcmp(name, "greedy") &&
                  strcmp(name, "group_limited_greedy")))
        return pl_hf_refuse(error, "topk_method", "%s is not supported",
                            name ? name : "of this kind");
    pl_hf_put(reader, "moe.balance_bias", json_boolean(!strcmp(name, "noaux_tc")));
    if (!strcmp(name, "greedy")) {
        json_object_del(moe, "n_group");
        json_object_del(moe, "topk_group");
    }
    return 0;
}

/* Factors of scores, as such or as the number whose root divides them, and of logits, as such or as
 * the number that divides them. A factor of scores that is the usual one is none. */
static int take_scale(struct pl_hf_reader *reader, struct err *error)
{
    double scalar = json_number_value(pl_hf_take(reader, "query_pre_attn_scalar")),
           head = pl_hf_number(reader->out, "head_dim"),
           scale = pl_hf_number(reader->out, "attn_scale");
    json_t *divisor = pl_hf_take(reader, "logits_scaling");

    if (scalar > 0 && scalar < 1e6 && head != scalar)
        pl_hf_put(reader, "attn_scale", json_real(1 / sqrt(scalar)));
    if (head <= 0)
        head = pl_hf_number(reader->out, "hidden") / pl_hf_number(reader->out, "heads");
    if (scale > 0 && fabs(scale * scale * head - 1) < 1e-12)
        json_object_del(reader->out, "attn_scale");
    if (!divisor)
        return 0;
    if (!(json_number_value(divisor) > 0))
        return pl_hf_refuse(error, "logits_scaling", "must be a number above 0");
    pl_hf_put(reader, "logit_scale", json_real(1 / json_number_value(divisor)));
    return 0;
}

static bool same(const json_t *left, const char *text)
{
    AUTO_JSON *right = json_loads(text, JSON_DECODE_ANY, NULL);

    if (json_is_number(left) && json_is_number(right))
        return fabs(json_number_value(left) - json_number_value(right)) < 1e-12;
    return json_equal(left, right);
}

static int refuse_value(struct err *error, const char *key, const json_t *value)
{
    AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

    return pl_hf_refuse(error, key, "%.60s is not supported", text);
}

static int check_fixed(struct pl_hf_reader *reader, const char *own, struct err *error)
{
    AUTO_JSON *fixed = own ? json_of(own) : json_object();
    const char *key;
    json_t *want;

    json_object_foreach(fixed, key, want) {
        AUTO_FREE char *text = json_dumps(want, JSON_ENCODE_ANY);
        json_t *value = pl_hf_take(reader, key);

        if (value && !same(value, text))
            return refuse_value(error, key, value);
    }
    for (size_t i = 0; pl_hf_fixed[i].key; i++) {
        json_t *value;

        if (str_eq(pl_hf_fixed[i].key, "use_bias") && reader->flags & PL_HF_USE_BIAS)
            continue;
        value = pl_hf_take(reader, pl_hf_fixed[i].key);
        if (value && !same(value, pl_hf_fixed[i].value))
            return refuse_value(error, pl_hf_fixed[i].key, value);
    }
    return 0;
}

static int check_rest(const struct pl_hf_reader *reader, struct err *error)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)reader->config, key, value) {
        if (!json_is_null(value) && !json_object_get(reader->taken, key) &&
            !str_in(key, pl_hf_ignored)) {
            return pl_hf_refuse(error, key, "of model_type %s is not supported", reader->type);
        }
    }
    return 0;
}

/* DeepSeek's aux_loss_alpha weighs a sequence's loss that is divided by top_k and added up over the
 * layers, modules of multi-token prediction too; aux_loss_coef, one that is neither
 * (pl_aux_loss_coef). */
static void settle_balance(const struct pl_hf_reader *reader, json_t *moe)
{
    bool added = str_starts(reader->type, "deepseek") || str_eq(reader->type, "kimi_k2");
    double alpha = pl_hf_number(moe, "aux_loss_coef"),
           layers = pl_hf_number(reader->out, "layers") + pl_hf_number(reader->out, "mtp") -
                    pl_hf_number(moe, "dense_layers"),
           top_k = pl_hf_number(moe, "top_k");

    if (added && alpha > 0 && layers > 0 && top_k > 0)
        json_object_set_new(moe, "aux_loss_coef", json_real(alpha * layers / top_k));
}

/* Keys that repeat or replace others once all are known. */
static void settle(struct pl_hf_reader *reader)
{
    json_t *out = reader->out, *moe = json_object_get(out, "moe");
    double hidden = pl_hf_number(out, "hidden");

    if (json_object_get(json_object_get(out, "mla"), "kv_lora_rank")) {
        json_object_del(out, "head_dim"); /* the rotated part, or that of plain attention */
        json_object_del(out, "kv_heads");
    } else {
        json_object_del(out, "mla");
    }
    if (moe && !json_object_get(moe, "experts"))
        json_object_del(out, "moe"); /* a dense model of a family that may have experts */
    else
        settle_balance(reader, moe);
    if (!json_object_get(json_object_get(out, "mamba"), "heads"))
        json_object_del(out, "mamba");
    if (!strcmp(reader->type, "gpt2") && !json_object_get(out, "ffn") && hidden > 0 && hidden < 1e6)
        json_object_set_new(out, "ffn", json_integer((json_int_t)(4 * hidden)));
}

/* Sizes without a default, by the family's own name. */
static int check_needed(const struct pl_hf_reader *reader, const struct pl_hf_family *family,
                        struct err *error)
{
    static const char *const needed[] = {"layers", "hidden", "heads", "vocab", NULL};

    for (size_t i = 0; i < ARRAY_LEN(family->sets) && family->sets[i]; i++)
        for (const struct pl_hf_row *row = family->sets[i]; row->hf; row++)
            if (str_in(row->ours, needed) && !json_object_get(reader->out, row->ours))
                return jx_need(reader->config, row->hf, error);
    return 0;
}

static int read_all(struct pl_hf_reader *reader, const struct pl_hf_family *family,
                    struct err *error)
{
    int r;

    for (size_t i = 0; i < ARRAY_LEN(family->sets) && family->sets[i]; i++)
        put_usual(reader, family->sets[i]);
    for (size_t i = 0; i < ARRAY_LEN(family->sets) && family->sets[i]; i++)
        take_rows(reader, family->sets[i]);
    take_biases(reader);
    take_mtp(reader);
    if ((r = take_scale(reader, error)) < 0 || (r = take_activation(reader, error)) < 0 ||
        (r = take_rotation(reader, error)) < 0 || (r = take_rotary_dim(reader, error)) < 0)
        return r;
    if (family->flags & PL_HF_PLAIN_WINDOWS)
        rotate_windows_plainly(reader);
    if ((r = pl_hf_take_layers(reader, error)) < 0 || (r = take_experts(reader, error)) < 0 ||
        (r = check_fixed(reader, family->fixed, error)) < 0)
        return r;
    settle(reader);
    r = check_rest(reader, error);
    return r < 0 ? r : check_needed(reader, family, error);
}

static const struct pl_hf_family *family_of(const char *type)
{
    for (const struct pl_hf_family *family = pl_hf_families; family->type; family++)
        if (str_eq(family->type, type))
            return family;
    return NULL;
}

/* A model of images or sound has that of its language in an object of its own. */
static int refuse_type(const json_t *config, const char *type, struct err *error)
{
    const json_t *text = json_object_get(config, "text_config");
    const char *within = json_string_value(json_object_get(text, "model_type"));
    const char *near = str_nearest(type, family_types());

    if (within && family_of(within))
        return err_at(error, -ENOTSUP, "/model_type",
                      "unsupported model_type %s; its language model is the object text_config, of "
                      "model_type %s: give that",
                      type, within);
    return err_at(error, -ENOTSUP, "/model_type", "unsupported model_type %s%s%s", type,
                  near ? "; the nearest is " : "", near ? near : "");
}

/* The words of a configuration that is of TYPE where it does not say its own. */
static int words_of(json_t **ret, const json_t *config, const char *type, struct err *error)
{
    AUTO_JSON *taken = json_object(), *out = NULL, *usual = NULL;
    struct pl_hf_reader reader = {.config = config, .taken = taken, .type = type ? type : ""};
    const struct pl_hf_family *family;
    int r;

    if (!json_is_object(config))
        return err_set(error, -EINVAL, "config.json is not an object");
    if ((!type && (r = jx_need(config, "model_type", error)) < 0) ||
        (r = jx_get_str(&reader.type, config, "model_type", 60, error)) < 0)
        return r;
    family = family_of(reader.type);
    if (!family)
        return refuse_type(config, reader.type, error);
    reader.flags = family->flags;
    reader.out = out = json_of(family->base);
    reader.usual = usual = json_of(family->usual);
    json_object_set_new(out, "name", json_string(family->type));
    r = read_all(&reader, family, error);
    if (r < 0)
        return r;
    *ret = json_incref(out);
    return 0;
}

/* Keys next to text_config: of the other senses, of tokens, or without meaning anywhere. */
static int check_beside(const json_t *config, const struct pl_hf_nested *nested, struct err *error)
{
    static const char *const others[] = {"text_config", "vision_config", "tie_word_embeddings",
                                         NULL};
    const char *const tie = "tie_word_embeddings";
    const json_t *text = json_object_get(config, "text_config");
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)config, key, value)
        if (!str_ends(key, "_token_id") && !str_ends(key, "_token_index") && !str_in(key, others) &&
            !str_in(key, pl_hf_ignored))
            return pl_hf_refuse(error, key, "of model_type %s is not supported", nested->type);
    if (json_is_true(json_object_get(config, tie)) != json_is_true(json_object_get(text, tie)))
        return pl_hf_refuse(error, tie, "differs from that of text_config");
    return 0;
}

int pl_hf_words(json_t **ret, const json_t *config, struct err *error)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const struct pl_hf_nested *nested = pl_hf_nested;
    int r;

    while (nested->type && !str_eq(nested->type, type))
        nested++;
    if (!nested->type)
        return words_of(ret, config, NULL, error);
    if ((r = jx_need(config, "text_config", error)) < 0 ||
        (r = check_beside(config, nested, error)) < 0)
        return r;
    r = words_of(ret, json_object_get(config, "text_config"), nested->text, error);
    return r < 0 ? err_under(error, "/text_config") : r;
}
