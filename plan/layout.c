#include "plan/plan.h"

#include <errno.h>
#include <limits.h>

#include "base/base.h"

static const char *const schedule_names[] = {"gpipe", "1f1b", "interleaved", "zero-bubble", NULL};
static const char *const scope_names[] = {"none", "ep-aware", "plain", NULL};
static const char *const recompute_names[] = {"none", "selective", "full", NULL};

#define KEY(field) #field, offsetof(struct pl_layout, field)

const struct pl_layout_key pl_layout_keys[] = {
    {KEY(world), NULL, false, true, 1, INT_MAX},
    {KEY(tp), NULL, false, true, 1, 1 << 16},
    {KEY(sp), NULL, false, false, 0, 1},
    {KEY(cp), NULL, false, true, 1, 1 << 16},
    {KEY(pp), NULL, false, true, 1, 1 << 16},
    {KEY(vp), NULL, false, true, 1, 1 << 16},
    {KEY(schedule), schedule_names, false, false, 0, 3},
    {KEY(ep), NULL, false, true, 1, 1 << 16},
    {KEY(etp), NULL, false, true, 1, 1 << 16},
    {KEY(dp), NULL, true, true, 1, INT_MAX},
    {KEY(edp), NULL, true, true, 1, INT_MAX},
    {KEY(zero), NULL, false, false, 0, 3},
    {KEY(zero_scope), scope_names, false, false, 0, 2},
    {KEY(micro_batch), NULL, false, true, 1, 1 << 24},
    {KEY(recompute), recompute_names, false, false, 0, 2},
    {KEY(overlap_grad_reduce), NULL, false, false, 0, 1},
    {KEY(overlap_param_gather), NULL, false, false, 0, 1},
    {KEY(overlap_p2p), NULL, false, false, 0, 1},
    {KEY(overlap_moe_a2a), NULL, false, false, 0, 1},
    {KEY(precision), pl_precision_names, false, false, 0, 2},
    {KEY(threads), NULL, false, true, 1, 1 << 16},
    {NULL, 0, NULL, false, false, 0, 0},
};

_Static_assert(ARRAY_LEN(pl_layout_keys) == PL_LAYOUT_KEYS + 1, "a row for each key");
_Static_assert(sizeof(struct pl_layout) == PL_LAYOUT_KEYS * sizeof(int), "a row for each field");

int pl_layout_get(const struct pl_layout *layout, const struct pl_layout_key *key)
{
    int value;

    memcpy(&value, (const char *)layout + key->offset, sizeof(value));
    return value;
}

void pl_layout_set(struct pl_layout *layout, const struct pl_layout_key *key, int value)
{
    memcpy((char *)layout + key->offset, &value, sizeof(value));
}

const struct pl_layout_key *pl_layout_key_find(const char *name)
{
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        if (str_eq(k->name, name))
            return k;
    return NULL;
}

void pl_layout_default(struct pl_layout *layout, const struct pl_workload *workload)
{
    *layout = (struct pl_layout){
        .tp = 1,
        .cp = 1,
        .pp = 1,
        .vp = 1,
        .schedule = PL_1F1B,
        .ep = 1,
        .etp = 1,
        .micro_batch = 1,
        .recompute = PL_RECOMPUTE_NONE,
        .precision = (int)workload->precision,
        .threads = 1,
    };
}

void pl_layout_replicas(struct pl_layout *ret, int world)
{
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

void pl_layout_canonical(struct pl_layout *layout, const struct pl_model *model)
{
    if (!model->moe.experts)
        layout->ep = layout->etp = 1;
    if (layout->tp == 1)
        layout->sp = 0;
    pl_layout_derive(layout);
    if (layout->pp == 1)
        layout->schedule = PL_1F1B;
    else if (layout->vp > 1)
        layout->schedule = PL_INTERLEAVED;
    else if (layout->schedule == PL_INTERLEAVED)
        layout->schedule = PL_1F1B;
    if (layout->zero == 0)
        layout->zero_scope = PL_SCOPE_NONE;
    else if (layout->zero_scope == PL_SCOPE_NONE || !scope_matters(layout))
        layout->zero_scope = PL_SCOPE_EP_AWARE;
    if (!has_replicas(layout, model))
        layout->overlap_grad_reduce = layout->overlap_param_gather = 0;
    if (layout->zero == 0)
        layout->overlap_param_gather = 0;
    if (layout->pp == 1)
        layout->overlap_p2p = 0;
    if (!model->moe.experts || layout->ep == 1)
        layout->overlap_moe_a2a = 0;
}

bool pl_layout_equal(const struct pl_layout *left, const struct pl_layout *right)
{
    return !memcmp(left, right, sizeof(*left));
}

int pl_layout_word(int *ret, const struct pl_layout_key *key, const json_t *json, struct err *error)
{
    AUTO_JSON *box = json_pack("{s:O}", key->name, json);

    if (key->names)
        return jx_get_enum(ret, box, key->name, key->names, error);
    return jx_get_int(ret, box, key->name, key->min, key->max, error);
}

static int check_keys(const json_t *json, struct err *error)
{
    const char *names[PL_LAYOUT_KEYS + 1] = {0};

    for (int i = 0; i < PL_LAYOUT_KEYS; i++)
        names[i] = pl_layout_keys[i].name;
    return jx_keys(json, names, error);
}

static bool given(const json_t *json, const char *key)
{
    const json_t *x = json_object_get(json, key);

    return x && !json_is_null(x);
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

int pl_layout_parse(struct pl_layout *ret, const json_t *json, const struct pl_model *model,
                    const struct pl_cluster *cluster, const struct pl_workload *workload,
                    struct err *error)
{
    struct pl_layout l, said;
    int r;

    pl_layout_default(&l, workload);
    if ((r = check_keys(json, error)) < 0)
        return r;
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(&l, k);

        if (!given(json, k->name))
            continue;
        if ((r = pl_layout_word(&value, k, json_object_get(json, k->name), error)) < 0)
            return r;
        pl_layout_set(&l, k, value);
    }
    if (!given(json, "world")) {
        int64_t world = (int64_t)l.tp * l.cp * l.pp * l.dp;

        if (world > INT_MAX)
            return err_at(error, -ERANGE, "/dp", "dp %d is absurd", l.dp);
        l.world = given(json, "dp") ? (int)world : pl_cluster_devices(cluster);
    }
    if (!given(json, "schedule") && l.vp > 1 && l.pp > 1)
        l.schedule = PL_INTERLEAVED;
    said = l;
    pl_layout_derive(&l);
    if ((r = check_derived(&said, &l, json, error)) < 0)
        return r;
    if (!given(json, "zero_scope"))
        l.zero_scope = l.zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
    (void)model;
    *ret = l;
    return 0;
}

void pl_layout_unsaid(struct pl_layout *layout, const json_t *json, const struct pl_model *model,
                      const struct pl_trainer *trainer)
{
    struct pl_layout settled = *layout;

    pl_layout_settle(&settled, model, trainer);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        if (!k->derived && !given(json, k->name))
            pl_layout_set(layout, k, pl_layout_get(&settled, k));
    pl_layout_derive(layout);
}

json_t *pl_layout_json(const struct pl_layout *layout)
{
    json_t *v = json_object();

    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(layout, k);

        if (k->offset == offsetof(struct pl_layout, zero_scope) && value == PL_SCOPE_NONE)
            continue;
        json_object_set_new(v, k->name,
                            k->names ? json_string(k->names[value]) : json_integer(value));
    }
    return v;
}

char *pl_layout_text(char buf[160], const struct pl_layout *layout)
{
    static const struct {
        const char *text;
        size_t offset;
    } sizes[] = {
        {"tp", offsetof(struct pl_layout, tp)},
        {"cp", offsetof(struct pl_layout, cp)},
        {"pp", offsetof(struct pl_layout, pp)},
        {"vp", offsetof(struct pl_layout, vp)},
        {"ep", offsetof(struct pl_layout, ep)},
        {"etp", offsetof(struct pl_layout, etp)},
        {"dp", offsetof(struct pl_layout, dp)},
        {"mb", offsetof(struct pl_layout, micro_batch)},
        {"threads", offsetof(struct pl_layout, threads)},
    };
    AUTO_STR s = {0};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        int value;

        memcpy(&value, (const char *)layout + sizes[i].offset, sizeof(value));
        if (value != 1 || !strcmp(sizes[i].text, "dp") || !strcmp(sizes[i].text, "mb"))
            str_addf(&s, "%s%s%d", s.len ? " " : "", sizes[i].text, value);
    }
    if (layout->sp)
        str_add(&s, " sp");
    if (layout->zero)
        str_addf(&s, " zero%d%s", layout->zero,
                 layout->zero_scope == PL_SCOPE_PLAIN ? " plain" : "");
    if (layout->schedule == PL_GPIPE || layout->schedule == PL_ZERO_BUBBLE)
        str_addf(&s, " %s", schedule_names[layout->schedule]);
    if (layout->recompute)
        str_addf(&s, " recompute-%s", recompute_names[layout->recompute]);
    if (layout->overlap_grad_reduce || layout->overlap_param_gather || layout->overlap_p2p ||
        layout->overlap_moe_a2a)
        str_addf(&s, " overlap%s%s%s%s", layout->overlap_grad_reduce ? "-grad" : "",
                 layout->overlap_param_gather ? "-param" : "", layout->overlap_p2p ? "-p2p" : "",
                 layout->overlap_moe_a2a ? "-moe" : "");
    if (layout->precision)
        str_addf(&s, " %s", pl_precision_names[layout->precision]);
    snprintf(buf, 160, "%s", str_text(&s));
    return buf;
}
