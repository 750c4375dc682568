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
#include <stdarg.h>
#include <string.h>

#include "base/base.h"
#include "plan/hf_tables.h"
#include "plan/model.h"

enum { MOST_FAMILIES = 63 };

struct reader {
    const json_t *config;
    const json_t *usual; /* what its class has where it has no such key */
    json_t *out;         /* the model in our words */
    json_t *taken;       /* keys that were read */
    const char *type;
    unsigned flags; /* of its family */
};

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

__attribute__((format(printf, 3, 4))) static int refuse(struct err *error, const char *key,
                                                        const char *fmt, ...)
{
    AUTO_FREE char *at = mem_printf("/%.100s", key);
    char why[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    return err_at(error, -ENOTSUP, at, "%.100s %s", key, why);
}

/* TEXT with ' for ". */
static json_t *json_of(const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text);

    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return json_loads(copy, 0, NULL);
}

/* The value of KEY, which counts as read, or that of the class where it is absent; NULL: none. */
static json_t *take(struct reader *reader, const char *key)
{
    json_t *value = json_object_get(reader->config, key);

    if (value)
        json_object_set_new(reader->taken, key, json_true());
    else
        value = json_object_get(reader->usual, key);
    return value && !json_is_null(value) ? value : NULL;
}

static void put(struct reader *reader, const char *ours, json_t *value)
{
    const char *dot = strchr(ours, '.');
    AUTO_FREE char *object = dot ? mem_printf("%.*s", (int)(dot - ours), ours) : NULL;

    if (dot && !json_object_get(reader->out, object))
        json_object_set_new(reader->out, object, json_object());
    json_object_set_new(dot ? json_object_get(reader->out, object) : reader->out,
                        dot ? dot + 1 : ours, value);
}

/* The other way: our word has no value. */
static void drop(struct reader *reader, const char *ours)
{
    const char *dot = strchr(ours, '.');
    AUTO_FREE char *object = dot ? mem_printf("%.*s", (int)(dot - ours), ours) : NULL;

    json_object_del(dot ? json_object_get(reader->out, object) : reader->out, dot ? dot + 1 : ours);
}

static void put_usual(struct reader *reader, const struct pl_hf_row *row)
{
    for (; row->hf; row++) {
        json_t *value = json_object_get(reader->usual, row->hf);

        if (value)
            put(reader, row->ours, json_deep_copy(value));
    }
}

/* A key that is null takes away what the class has where it is absent. */
static void take_rows(struct reader *reader, const struct pl_hf_row *row)
{
    for (; row->hf; row++) {
        bool there = json_object_get(reader->config, row->hf);
        json_t *value = there ? take(reader, row->hf) : NULL;

        if (value)
            put(reader, row->ours, json_deep_copy(value));
        else if (there && json_object_get(reader->usual, row->hf))
            drop(reader, row->ours);
    }
}

static int take_activation(struct reader *reader, struct err *error)
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
    bool clamped = now && !strcmp(now, "swiglu-clamped"); /* put() frees what NOW points to */

    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        json_t *value = take(reader, keys[k]);
        const char *text = json_string_value(value), *ours = NULL;

        if (!value)
            continue;
        for (size_t i = 0; text && i < ARRAY_LEN(names); i++)
            if (names[i].gated == gated && !strcmp(names[i].hf, text))
                ours = names[i].ours;
        if (!ours)
            return refuse(error, keys[k], "%s is not supported", text ? text : "of this kind");
        /* GPT-OSS says silu of its own clamped function. */
        if (!clamped)
            put(reader, "mlp", json_string(ours));
    }
    return 0;
}

static void take_biases(struct reader *reader)
{
    json_t *all = reader->flags & PL_HF_USE_BIAS ? take(reader, "use_bias") : NULL;
    json_t *bias = all ? all : take(reader, "attention_bias"), *norm;

    if (bias) {
        put(reader, "qkv_bias", json_deep_copy(bias));
        if (all || reader->flags & PL_HF_OUT_BIAS)
            put(reader, "out_bias", json_deep_copy(bias));
    }
    if (all)
        put(reader, "mlp_bias", json_deep_copy(bias));
    norm = reader->flags & PL_HF_QK_NORM ? take(reader, "use_qk_norm") : NULL;
    if (json_is_true(norm))
        put(reader, "qk_norm", json_string("head"));
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* A factor of cosine and sine that yarn's own rule does not give has no word. */
static int check_amplitude(const char *key, const json_t *scaling, const char *kind,
                           struct err *error)
{
    const struct pl_rope_scaling ours = {.factor = number_of(scaling, "factor"),
                                         .mscale = number_of(scaling, "mscale"),
                                         .mscale_all_dim = number_of(scaling, "mscale_all_dim")};
    const json_t *given = json_object_get(scaling, "attention_factor");
    double usual = pl_yarn_amplitude(&ours), value = json_number_value(given);

    if (!given || json_is_null(given))
        return 0;
    if (strcmp(kind, "yarn") != 0)
        return refuse(error, key, "of type %s has attention_factor, which is not supported", kind);
    if (!json_is_number(given) || fabs(value - usual) > 1e-6 * usual)
        return refuse(
            error, key,
            "has attention_factor %g, which is not supported: only yarn's own, here %.10g", value,
            usual);
    return 0;
}

/* {"type" or "rope_type": ..., "factor": ...} */
static int take_scaling(struct reader *reader, const char *key, const json_t *scaling,
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
    int r;

    if (!kind)
        kind = json_string_value(json_object_get(scaling, "type"));
    if (!kind || !strcmp(kind, "default"))
        return 0;
    if (strcmp(kind, "linear") && strcmp(kind, "llama3") && strcmp(kind, "yarn"))
        return refuse(error, key, "of type %s is not supported", kind);
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
        else if (!word && !str_in(name, passed) && !json_is_null(value))
            return refuse(error, key, "has %s, which is not supported", name);
    }
    put(reader, "rope_scaling", json_incref(ours));
    return 0;
}

/* rope_scaling, or rope_parameters of newer releases: of all layers, or of layers by their kind.
 * What a class scales by is where a file has neither; null is none, as in the releases before
 * rope_parameters. */
static int take_rotation(struct reader *reader, struct err *error)
{
    json_t *all = take(reader, "rope_parameters"),
           *scaling = all && !json_object_get(reader->config, "rope_scaling")
                          ? NULL
                          : take(reader, "rope_scaling");
    json_t *local = json_object_get(all, "sliding_attention"), *theta;
    const char *kind = json_string_value(json_object_get(local, "rope_type"));
    int r = scaling ? take_scaling(reader, "rope_scaling", scaling, error) : 0;

    if (r < 0 || !all)
        return r;
    if (kind && strcmp(kind, "default") != 0)
        return refuse(error, "rope_parameters",
                      "of layers with a window are of type %s, which is not supported", kind);
    if (json_object_get(all, "full_attention"))
        all = json_object_get(all, "full_attention");
    if ((theta = json_object_get(local, "rope_theta")))
        put(reader, "rope_theta_local", json_deep_copy(theta));
    if ((theta = json_object_get(all, "rope_theta")))
        put(reader, "rope_theta", json_deep_copy(theta));
    if ((theta = json_object_get(all, "partial_rotary_factor")))
        put(reader, "partial_rotary_factor", json_deep_copy(theta));
    return take_scaling(reader, "rope_parameters", all, error);
}

/* Where the other layers' positions are scaled, layers with a window need a base of their own, and
 * else none: it is the same. */
static void rotate_windows_plainly(struct reader *reader)
{
    json_t *out = reader->out, *theta = json_object_get(out, "rope_theta"),
           *local = json_object_get(out, "rope_theta_local");

    if (json_object_get(out, "rope_scaling")) {
        if (!local)
            put(reader, "rope_theta_local", json_deep_copy(theta));
    } else if (local && json_number_value(local) == json_number_value(theta)) {
        json_object_del(out, "rope_theta_local");
    }
}

/* rotary_dim is the same in numbers of a head, where no factor is given. */
static int take_rotary_dim(struct reader *reader, struct err *error)
{
    json_t *dim = take(reader, "rotary_dim");
    double head = number_of(reader->out, "head_dim"), rotated = json_number_value(dim);

    if (!dim || json_object_get(reader->out, "partial_rotary_factor"))
        return 0;
    if (!(rotated >= 1 && rotated <= head))
        return refuse(error, "rotary_dim", "must be 1 to head_dim, which is %g", head);
    put(reader, "partial_rotary_factor", json_real(rotated / head));
    return 0;
}

/* The n of layers n, 2n, ... that layer_types calls full attention and no other; 0: none is, 1: all
 * are, -1: it is another pattern. */
static int full_every(const json_t *types)
{
    int every = 0, many = (int)json_array_size(types);

    for (int i = 0; i < many; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool full = type && !strcmp(type, "full_attention");

        if (!full && (!type || strcmp(type, "sliding_attention") != 0))
            return -1;
        if (full && !every)
            every = i + 1;
        if (every && full != ((i + 1) % every == 0))
            return -1;
    }
    return every;
}

static int take_windows(struct reader *reader, struct err *error)
{
    json_t *window = take(reader, "sliding_window"), *use = take(reader, "use_sliding_window"),
           *types = take(reader, "layer_types"), *pattern = take(reader, "sliding_window_pattern");
    json_t *other = take(reader, "_sliding_window_pattern");
    int every = types ? full_every(types) : -2;
    /* one that no sequence is longer than, unless its layers rotate otherwise */
    bool idle = window && !json_object_get(reader->out, "rope_theta_local") &&
                json_integer_value(window) >= number_of(reader->out, "seq");
    bool chosen = reader->flags & PL_HF_CHOSEN_WINDOWS;
    json_t *late = reader->flags & PL_HF_LATE_WINDOWS ? take(reader, "max_window_layers") : NULL;

    if (types && json_array_size(types) !=
                     (size_t)json_integer_value(json_object_get(reader->out, "layers")))
        return refuse(error, "layer_types", "must have one entry for each layer");
    if (every == -1)
        return refuse(error, "layer_types",
                      "must be sliding windows, with every n-th layer global");
    if (every < -1 && chosen && json_is_true(use))
        return refuse(error, "use_sliding_window", "needs layer_types to say which layers");
    if (every < -1 && late && window && !idle) {
        if (number_of(reader->out, "layers") > json_number_value(late))
            return refuse(error, "max_window_layers",
                          "of fewer than all layers needs layer_types to say which layers");
        idle = true;
    }
    if (!window || !json_integer_value(window) || every == 1 || idle ||
        (chosen && !json_is_true(use))) {
        json_object_del(reader->out, "global_every");
        json_object_del(reader->out, "rope_theta_local");
        return every > 1 && !window ? refuse(error, "layer_types", "needs sliding_window") : 0;
    }
    put(reader, "sliding_window", json_deep_copy(window));
    if (every >= 0)
        put(reader, "global_every", json_integer(every));
    else if (pattern || other)
        put(reader, "global_every", json_deep_copy(pattern ? pattern : other));
    return 0;
}

/* Which layers have experts: mlp_layer_types names the first ones dense, and moe_layer_end_index
 * is the last of all layers. */
static int take_expert_layers(struct reader *reader, struct err *error)
{
    json_t *types = take(reader, "mlp_layer_types"), *end = take(reader, "moe_layer_end_index");
    double layers = number_of(reader->out, "layers"), last = json_number_value(end);
    size_t dense = 0, many = json_array_size(types);

    if (end && last != -1 && last != layers - 1)
        return refuse(error, "moe_layer_end_index", "before the last layer is not supported");
    if (!types)
        return 0;
    if ((double)many != layers)
        return refuse(error, "mlp_layer_types", "must have one entry for each layer");
    while (dense < many && str_eq(json_string_value(json_array_get(types, dense)), "dense"))
        dense++;
    for (size_t i = dense; i < many; i++)
        if (!str_eq(json_string_value(json_array_get(types, i)), "sparse"))
            return refuse(error, "mlp_layer_types", "must be dense first, then sparse");
    put(reader, "moe.dense_layers", json_integer((json_int_t)dense));
    return 0;
}

/* Modules of multi-token prediction that use_mtp switches on. */
static void take_mtp(struct reader *reader)
{
    json_t *many = take(reader, "num_mtp_modules");

    if (json_is_true(take(reader, "use_mtp")) && many)
        put(reader, "mtp", json_deep_copy(many));
}

/* attn_type_list of an older release: 1 is full attention. */
static int check_attention_types(struct reader *reader, struct err *error)
{
    json_t *types = take(reader, "attn_type_list"), *type;
    size_t i;

    json_array_foreach(types, i, type)
        if (json_integer_value(type) != 1)
            return refuse(error, "attn_type_list",
                          "has layers of another kind than 1, full attention");
    return 0;
}

/* The shared experts are one of their joint width. */
static int take_experts(struct reader *reader, struct err *error)
{
    json_t *moe = json_object_get(reader->out, "moe"), *shared = take(reader, "n_shared_experts"),
           *method = take(reader, "topk_method");
    const char *name = json_string_value(method);
    double many = json_number_value(shared ? shared : take(reader, "moe_num_shared_experts")),
           width = json_number_value(json_object_get(
               moe, json_object_get(moe, "shared_ffn") ? "shared_ffn" : "expert_ffn"));

    if (many > 0 && many < 1e4 && width < 1e6)
        put(reader, "moe.shared_ffn", json_integer((json_int_t)(many * width)));
    if (!method)
        return 0;
    if (!name || (strcmp(name, "noaux_tc") && strcmp(name, "greedy") &&
                  strcmp(name, "group_limited_greedy")))
        return refuse(error, "topk_method", "%s is not supported", name ? name : "of this kind");
    put(reader, "moe.balance_bias", json_boolean(!strcmp(name, "noaux_tc")));
    if (!strcmp(name, "greedy")) {
        json_object_del(moe, "n_group");
        json_object_del(moe, "topk_group");
    }
    return 0;
}

static void take_scale(struct reader *reader)
{
    double scalar = json_number_value(take(reader, "query_pre_attn_scalar"));

    if (scalar > 0 && scalar < 1e6 && number_of(reader->out, "head_dim") != scalar)
        put(reader, "attn_scale", json_real(1 / sqrt(scalar)));
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

    return refuse(error, key, "%.60s is not supported", text);
}

static int check_fixed(struct reader *reader, const char *own, struct err *error)
{
    AUTO_JSON *fixed = own ? json_of(own) : json_object();
    const char *key;
    json_t *want;

    json_object_foreach(fixed, key, want) {
        AUTO_FREE char *text = json_dumps(want, JSON_ENCODE_ANY);
        json_t *value = take(reader, key);

        if (value && !same(value, text))
            return refuse_value(error, key, value);
    }
    for (size_t i = 0; pl_hf_fixed[i].key; i++) {
        json_t *value;

        if (str_eq(pl_hf_fixed[i].key, "use_bias") && reader->flags & PL_HF_USE_BIAS)
            continue;
        value = take(reader, pl_hf_fixed[i].key);
        if (value && !same(value, pl_hf_fixed[i].value))
            return refuse_value(error, pl_hf_fixed[i].key, value);
    }
    return 0;
}

static int check_rest(const struct reader *reader, struct err *error)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)reader->config, key, value) {
        if (!json_is_null(value) && !json_object_get(reader->taken, key) &&
            !str_in(key, pl_hf_ignored)) {
            return refuse(error, key, "of model_type %s is not supported", reader->type);
        }
    }
    return 0;
}

/* DeepSeek's aux_loss_alpha weighs a sequence's loss that is divided by top_k and added up over the
 * layers, modules of multi-token prediction too; aux_loss_coef, one that is neither
 * (pl_aux_loss_coef). */
static void settle_balance(const struct reader *reader, json_t *moe)
{
    bool added = str_starts(reader->type, "deepseek") || str_eq(reader->type, "kimi_k2");
    double alpha = number_of(moe, "aux_loss_coef"),
           layers = number_of(reader->out, "layers") + number_of(reader->out, "mtp") -
                    number_of(moe, "dense_layers"),
           top_k = number_of(moe, "top_k");

    if (added && alpha > 0 && layers > 0 && top_k > 0)
        json_object_set_new(moe, "aux_loss_coef", json_real(alpha * layers / top_k));
}

/* Keys that repeat or replace others once all are known. */
static void settle(struct reader *reader)
{
    json_t *out = reader->out, *moe = json_object_get(out, "moe");
    double hidden = number_of(out, "hidden");

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
static int check_needed(const struct reader *reader, const struct pl_hf_family *family,
                        struct err *error)
{
    static const char *const needed[] = {"layers", "hidden", "heads", "vocab", NULL};

    for (size_t i = 0; i < ARRAY_LEN(family->sets) && family->sets[i]; i++)
        for (const struct pl_hf_row *row = family->sets[i]; row->hf; row++)
            if (str_in(row->ours, needed) && !json_object_get(reader->out, row->ours))
                return jx_need(reader->config, row->hf, error);
    return 0;
}

static int read_all(struct reader *reader, const struct pl_hf_family *family, struct err *error)
{
    int r;

    for (size_t i = 0; i < ARRAY_LEN(family->sets) && family->sets[i]; i++)
        put_usual(reader, family->sets[i]);
    for (size_t i = 0; i < ARRAY_LEN(family->sets) && family->sets[i]; i++)
        take_rows(reader, family->sets[i]);
    take_biases(reader);
    take_scale(reader);
    take_mtp(reader);
    if ((r = take_activation(reader, error)) < 0 || (r = take_rotation(reader, error)) < 0 ||
        (r = take_rotary_dim(reader, error)) < 0)
        return r;
    if (family->flags & PL_HF_PLAIN_WINDOWS)
        rotate_windows_plainly(reader);
    if ((r = take_windows(reader, error)) < 0 || (r = check_attention_types(reader, error)) < 0 ||
        (r = take_expert_layers(reader, error)) < 0 || (r = take_experts(reader, error)) < 0 ||
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

int pl_hf_words(json_t **ret, const json_t *config, struct err *error)
{
    AUTO_JSON *taken = json_object(), *out = NULL, *usual = NULL;
    struct reader reader = {.config = config, .taken = taken, .type = ""};
    const struct pl_hf_family *family;
    int r;

    if (!json_is_object(config))
        return err_set(error, -EINVAL, "config.json is not an object");
    if ((r = jx_need(config, "model_type", error)) < 0 ||
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
