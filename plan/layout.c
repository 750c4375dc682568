#include "plan/plan.h"
#include "plan/recompute.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>

#include "base/base.h"

static const char *const schedule_names[] = {"gpipe", "1f1b",       "interleaved", "zero-bubble",
                                             "zb-v",  "dualpipe-v", "dualpipe",    NULL};
static const char *const scope_names[] = {"none", "ep-aware", "plain", NULL};
static const char *const cp_comm_names[] = {"p2p", "all-gather", "a2a", "a2a+p2p", NULL};
static const char *const recompute_names[] = {"none", "selective", "full", NULL};
static const char *const moe_dispatch_names[] = {"alltoall", "allgather", "deepep", "hybridep",
                                                 NULL};
static const char *const cuda_graphs_names[] = {"none", "modules", "iteration", NULL};
static const char *const grad_dtype_names[] = {"fp32", "bf16", NULL};
static const char *const recompute_method_names[] = {"uniform", "block", NULL};

#define KEY(name_, field, part_, text_, words, scale, min_, max_, standard_, trainers_, when,      \
            means_)                                                                                \
    {.name = #field,                                                                               \
     .offset = offsetof(struct pl_layout, field),                                                  \
     .part = PL_##part_,                                                                           \
     .label = text_,                                                                               \
     .names = words,                                                                               \
     .log2 = SCALE_##scale == SCALE_LOG,                                                           \
     .text = SCALE_##scale == SCALE_TEXT,                                                          \
     .min = min_,                                                                                  \
     .max = max_,                                                                                  \
     .standard = standard_,                                                                        \
     .trainers = trainers_,                                                                        \
     .means = means_},
enum { SCALE_LINEAR, SCALE_LOG, SCALE_TEXT };

const struct pl_layout_key pl_layout_keys[] = {
#include "plan/keys.def"
    {.name = NULL},
};

const char *const pl_layout_key_names[] = {
#define KEY(name, field, ...) #field,
#include "plan/keys.def"
    NULL,
};

_Static_assert(offsetof(struct pl_layout, cluster) == PL_LAYOUT_KEYS * sizeof(int),
               "fields of keys are ints");

const struct pl_layout_key *pl_layout_key_find(const char *name)
{
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        if (str_eq(k->name, name))
            return k;
    return NULL;
}

void pl_layout_default(struct pl_layout *layout, const struct pl_workload *workload)
{
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        pl_layout_set(layout, k, k->standard == PL_NO_STANDARD ? 0 : k->standard);
    layout->cluster = 0;
    layout->precision = (int)workload->precision;
    layout->global_batch = workload->nbatches ? workload->global_batch : 0;
}

void pl_layout_replicas(struct pl_layout *ret, int world)
{
    assert(world >= 1);
    pl_layout_default(ret, &(struct pl_workload){.precision = PL_FP32});
    ret->world = world;
    pl_layout_derive(ret);
}

bool pl_layout_derive(struct pl_layout *layout)
{
    int64_t dense = (int64_t)layout->tp * layout->cp * layout->pp,
            expert = (int64_t)layout->etp * layout->ep * layout->pp;

    layout->dp = dense > 0 && layout->world % dense == 0 ? (int)(layout->world / dense) : 0;
    layout->edp = expert > 0 && layout->world % expert == 0 ? (int)(layout->world / expert) : 0;
    return layout->dp > 0 && layout->edp > 0;
}

/* True if zero_scope "plain" differs from "ep-aware": state outside the experts exists more often
 * than once over the expert-parallel ranks. */
static bool scope_matters(const struct pl_layout *layout)
{
    return (int64_t)layout->dp * layout->cp > 1 && pl_layout_expert_replicas(layout) > 1;
}

/* Group sizes that anything is sharded or reduced over: dense state, expert state. */
static bool has_replicas(const struct pl_layout *layout, const struct pl_model *model)
{
    return (int64_t)layout->dp * layout->cp > 1 || (model->moe.experts && layout->edp > 1);
}

bool pl_key_applies(enum pl_key key, const struct pl_layout *layout, const struct pl_model *model)
{
    switch (key) {
#define KEY(name, field, part, text, words, scale, min, max, standard, trainers, when, means)      \
    case PL_KEY_##name:                                                                            \
        return when;
#include "plan/keys.def"
    default:
        return false;
    }
}

void pl_layout_canonical(struct pl_layout *layout, const struct pl_model *model)
{
    if (!model->moe.experts)
        layout->ep = layout->etp = 1;
    pl_layout_derive(layout);
#define KEY(name, field, part, text, words, scale, min, max, standard, trainers, when, means)      \
    if (layout->field != (standard) && !(when))                                                    \
        layout->field = standard;
#include "plan/keys.def"
    if (layout->stages != PL_STAGES_EVEN)
        layout->stages = pl_stages_canonical(layout, model->layers);
    if (layout->pp > 1 && layout->vp > 1 && !pl_schedule_is_v(layout->schedule))
        layout->schedule = PL_INTERLEAVED;
    else if (layout->schedule == PL_INTERLEAVED)
        layout->schedule = PL_1F1B;
    if (layout->zero == 0)
        layout->zero_scope = PL_SCOPE_NONE;
    else if (layout->zero_scope == PL_SCOPE_NONE || !scope_matters(layout))
        layout->zero_scope = PL_SCOPE_EP_AWARE;
    if (layout->shard == (int64_t)layout->dp * layout->cp)
        layout->shard = 0;
    pl_recompute_canonical(layout, model);
}

bool pl_layout_equal(const struct pl_layout *left, const struct pl_layout *right)
{
    return !memcmp(left, right, sizeof(*left));
}

int pl_layout_word(int *ret, const struct pl_layout_key *key, const json_t *json, struct err *error)
{
    AUTO_JSON *box = json_pack("{s:O}", key->name, json);
    const char *text = NULL;
    int r;

    if (key->text) {
        struct err why = {0};
        char at[64];

        if ((r = jx_get_str(&text, box, key->name, 16 << 10, error)) < 0)
            return r;
        snprintf(at, sizeof(at), "/%s", key->name);
        return (r = pl_stages_read(ret, text, &why)) < 0 ? err_at(error, r, at, "%s", why.text) : 0;
    }
    if (key->names)
        return jx_get_enum(ret, box, key->name, key->names, error);
    return jx_get_int(ret, box, key->name, key->min, key->max, error);
}

static bool given(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);

    return value && !json_is_null(value);
}

/* Where the workload has one batch, no layout says which. */
static void settle_batch(struct pl_layout *layout, const struct pl_workload *workload)
{
    if (layout->global_batch == workload->global_batch)
        layout->global_batch = 0;
    if (layout->global_batch == 0 && workload->nbatches)
        layout->global_batch = workload->global_batch;
}

/* Derived sizes on input must be what world says. */
static int check_derived(const struct pl_layout *said, const struct pl_layout *layout,
                         const json_t *json, struct err *error)
{
    if (given(json, "dp") && said->dp != layout->dp)
        return err_at(error, -EINVAL, "/dp",
                      "dp %d does not agree with world %d, tp %d, cp %d and pp %d", said->dp,
                      layout->world, layout->tp, layout->cp, layout->pp);
    if (given(json, "edp") && said->edp != layout->edp)
        return err_at(error, -EINVAL, "/edp",
                      "edp %d does not agree with world %d, etp %d, ep %d and pp %d", said->edp,
                      layout->world, layout->etp, layout->ep, layout->pp);
    return 0;
}

int pl_layout_parse(struct pl_layout *ret, const json_t *json, const struct pl_problem *problem,
                    struct err *error)
{
    struct pl_layout layout, said;
    int r;

    assert(problem->cluster && problem->workload);
    pl_layout_default(&layout, problem->workload);
    if ((r = jx_keys(json, pl_layout_key_names, error)) < 0)
        return r;
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(&layout, k);

        if (!given(json, k->name))
            continue;
        if ((r = pl_layout_word(&value, k, json_object_get(json, k->name), error)) < 0)
            return r;
        pl_layout_set(&layout, k, value);
    }
    if (!given(json, "world")) {
        int64_t world = (int64_t)layout.tp * layout.cp * layout.pp * layout.dp;

        if (world > INT_MAX)
            return err_at(error, -ERANGE, "/dp", "dp %d is too large", layout.dp);
        layout.world = given(json, "dp") ? (int)world : pl_cluster_devices(problem->cluster);
    }
    if (!given(json, "schedule") && layout.vp > 1 && layout.pp > 1)
        layout.schedule = PL_INTERLEAVED;
    if (!given(json, "vp") && layout.pp > 1 && pl_schedule_is_v(layout.schedule))
        layout.vp = 2;
    settle_batch(&layout, problem->workload);
    said = layout;
    pl_layout_derive(&layout);
    if ((r = check_derived(&said, &layout, json, error)) < 0)
        return r;
    if (!given(json, "zero_scope"))
        layout.zero_scope = layout.zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
    *ret = layout;
    return 0;
}

/* Where nothing is sharded JSON has no scope. */
static bool is_no_scope(const struct pl_layout_key *key, int value)
{
    return key == &pl_layout_keys[PL_KEY_ZERO_SCOPE] && value == PL_SCOPE_NONE;
}

bool pl_layout_is_option(const struct pl_layout_key *key)
{
    return key->part == PL_OPTION || key == &pl_layout_keys[PL_KEY_GLOBAL_BATCH];
}

/* An option that is not used is not written, as most layouts do without; nor are even stages. */
static bool is_absent(const struct pl_layout_key *key, int value)
{
    return is_no_scope(key, value) ||
           ((pl_layout_is_option(key) || key->text) && value == key->standard);
}

const char *pl_layout_value_text(char buf[16], const struct pl_layout_key *key, int value)
{
    if (key->text)
        return pl_stages_text(value);
    if (key->names)
        return key->names[value];
    snprintf(buf, 16, "%d", value);
    return buf;
}

json_t *pl_layout_value_json(const struct pl_layout_key *key, int value)
{
    char digits[16];

    return key->text || key->names ? json_string(pl_layout_value_text(digits, key, value))
                                   : json_integer(value);
}

json_t *pl_layout_json(const struct pl_layout *layout)
{
    json_t *v = json_object();

    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(layout, k);

        if (!is_absent(k, value))
            json_object_set_new(v, k->name, pl_layout_value_json(k, value));
    }
    return v;
}

static json_t *key_schema(const struct pl_layout_key *key)
{
    json_t *v = json_pack("{s:s, s:s}", "type", key->names || key->text ? "string" : "integer",
                          "description", key->means);

    if (key->names) {
        json_t *words = json_array();

        for (int i = key->min; i <= key->max; i++)
            if (!is_no_scope(key, i))
                json_array_append_new(words, pl_layout_value_json(key, i));
        json_object_set_new(v, "enum", words);
    } else if (key->text) {
        json_object_set_new(v, "maxLength", json_integer(PL_STAGES_TEXT - 1));
    } else { /* a size that does not come out even is 0 */
        json_object_set_new(v, "minimum", json_integer(key->part == PL_DERIVED ? 0 : key->min));
        json_object_set_new(v, "maximum", json_integer(key->max));
    }
    if (key->standard != PL_NO_STANDARD)
        json_object_set_new(v, "default", pl_layout_value_json(key, key->standard));
    return v;
}

json_t *pl_layout_schema(void)
{
    json_t *keys = json_object();

    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        json_object_set_new(keys, k->name, key_schema(k));
    return json_pack("{s:s, s:s, s:o, s:b}", "type", "object", "description",
                     "A parallel layout in its canonical form; derived keys (world, dp, edp) are "
                     "always present in answers",
                     "properties", keys, "additionalProperties", 0);
}

/* Is VALUE of KEY in a layout's text? Not what is standard or follows from what is. */
static bool is_told(enum pl_key key, int value)
{
    switch (key) {
    case PL_KEY_MICRO_BATCH:
        return true;
    case PL_KEY_SCHEDULE: /* interleaved is vp > 1 */
        return value != PL_1F1B && value != PL_INTERLEAVED;
    case PL_KEY_ZERO_SCOPE:
        return value == PL_SCOPE_PLAIN;
    case PL_KEY_PRECISION:
        return value != PL_FP32;
    default:
        return value != pl_layout_keys[key].standard;
    }
}

/* *PREFIX is that of the flag before: "overlap-grad" and "overlap-p2p" make "overlap-grad-p2p". */
static void add_told(struct str *out, const struct pl_layout *layout, enum pl_key key,
                     const char **prefix)
{
    const struct pl_layout_key *k = &pl_layout_keys[key];
    int value = pl_layout_get(layout, k);
    size_t n = k->label ? strcspn(k->label, "-") : 0;
    char digits[16];

    if (!k->label || !is_told(key, value))
        return;
    if (k->max == 1 && k->label[n] && *prefix && !strncmp(*prefix, k->label, n + 1)) {
        str_add(out, k->label + n);
        return;
    }
    str_addf(out, "%s%s", out->len ? " " : "", k->label);
    if (k->max > 1)
        str_add(out, pl_layout_value_text(digits, k, value));
    if (k->max == 1)
        *prefix = k->label;
}

char *pl_layout_text(char buf[160], const struct pl_layout *layout)
{
    AUTO_STR s = {0};
    const char *prefix = NULL;

    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++)
        if (pl_layout_keys[key].log2)
            add_told(&s, layout, key, &prefix);
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        if (key == PL_KEY_RECOMPUTE) /* the two that trade memory for time are neighbors */
            add_told(&s, layout, PL_KEY_SCHEDULE, &prefix);
        if (!pl_layout_keys[key].log2 && key != PL_KEY_SCHEDULE)
            add_told(&s, layout, key, &prefix);
    }
    snprintf(buf, 160, "%s", str_text(&s));
    return buf;
}
