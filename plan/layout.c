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

int pl_layout_get(const struct pl_layout *l, const struct pl_layout_key *k)
{
    int value;

    memcpy(&value, (const char *)l + k->offset, sizeof(value));
    return value;
}

void pl_layout_set(struct pl_layout *l, const struct pl_layout_key *k, int value)
{
    memcpy((char *)l + k->offset, &value, sizeof(value));
}

const struct pl_layout_key *pl_layout_key_find(const char *name)
{
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        if (str_eq(k->name, name))
            return k;
    return NULL;
}

void pl_layout_default(struct pl_layout *l, const struct pl_workload *w)
{
    *l = (struct pl_layout){
        .tp = 1,
        .cp = 1,
        .pp = 1,
        .vp = 1,
        .schedule = PL_1F1B,
        .ep = 1,
        .etp = 1,
        .micro_batch = 1,
        .recompute = PL_RECOMPUTE_NONE,
        .precision = (int)w->precision,
        .threads = 1,
    };
}

void pl_layout_replicas(struct pl_layout *ret, int world)
{
    pl_layout_default(ret, &(struct pl_workload){.precision = PL_FP32});
    ret->world = world;
    pl_layout_derive(ret);
}

bool pl_layout_derive(struct pl_layout *l)
{
    int64_t dense = (int64_t)l->tp * l->cp * l->pp, expert = (int64_t)l->etp * l->ep * l->pp;

    l->dp = dense > 0 && l->world % dense == 0 ? (int)(l->world / dense) : 0;
    l->edp = expert > 0 && l->world % expert == 0 ? (int)(l->world / expert) : 0;
    return l->dp > 0 && l->edp > 0;
}

/* True if zero_scope "plain" differs from "ep-aware": state outside the experts exists more often
 * than once over the expert-parallel ranks. */
static bool scope_matters(const struct pl_layout *l)
{
    return (int64_t)l->dp * l->cp > 1 && pl_layout_expert_replicas(l) > 1;
}

/* Group sizes that anything is sharded or reduced over: dense state, expert state. */
static bool has_replicas(const struct pl_layout *l, const struct pl_model *m)
{
    return (int64_t)l->dp * l->cp > 1 || (m->moe.experts && l->edp > 1);
}

void pl_layout_canonical(struct pl_layout *l, const struct pl_model *m)
{
    if (!m->moe.experts)
        l->ep = l->etp = 1;
    if (l->tp == 1)
        l->sp = 0;
    pl_layout_derive(l);
    if (l->pp == 1)
        l->schedule = PL_1F1B;
    else if (l->vp > 1)
        l->schedule = PL_INTERLEAVED;
    else if (l->schedule == PL_INTERLEAVED)
        l->schedule = PL_1F1B;
    if (l->zero == 0)
        l->zero_scope = PL_SCOPE_NONE;
    else if (l->zero_scope == PL_SCOPE_NONE || !scope_matters(l))
        l->zero_scope = PL_SCOPE_EP_AWARE;
    if (!has_replicas(l, m))
        l->overlap_grad_reduce = l->overlap_param_gather = 0;
    if (l->zero == 0)
        l->overlap_param_gather = 0;
    if (l->pp == 1)
        l->overlap_p2p = 0;
    if (!m->moe.experts || l->ep == 1)
        l->overlap_moe_a2a = 0;
}

bool pl_layout_equal(const struct pl_layout *a, const struct pl_layout *b)
{
    return !memcmp(a, b, sizeof(*a));
}

int pl_layout_word(int *ret, const struct pl_layout_key *k, const json_t *v, struct err *e)
{
    AUTO_JSON *box = json_pack("{s:O}", k->name, v);

    if (k->names)
        return jx_get_enum(ret, box, k->name, k->names, e);
    return jx_get_int(ret, box, k->name, k->min, k->max, e);
}

static int check_keys(const json_t *v, struct err *e)
{
    const char *names[PL_LAYOUT_KEYS + 1] = {0};

    for (int i = 0; i < PL_LAYOUT_KEYS; i++)
        names[i] = pl_layout_keys[i].name;
    return jx_keys(v, names, e);
}

static bool given(const json_t *v, const char *key)
{
    const json_t *x = json_object_get(v, key);

    return x && !json_is_null(x);
}

/* Derived sizes on input must be what world says. */
static int check_derived(const struct pl_layout *said, const struct pl_layout *l, const json_t *v,
                         struct err *e)
{
    if (given(v, "dp") && said->dp != l->dp)
        return err_at(e, -EINVAL, "/dp",
                      "dp %d does not agree with world %d, tp %d, cp %d and pp %d", said->dp,
                      l->world, l->tp, l->cp, l->pp);
    if (given(v, "edp") && said->edp != l->edp)
        return err_at(e, -EINVAL, "/edp",
                      "edp %d does not agree with world %d, etp %d, ep %d and pp %d", said->edp,
                      l->world, l->etp, l->ep, l->pp);
    return 0;
}

int pl_layout_parse(struct pl_layout *ret, const json_t *v, const struct pl_model *m,
                    const struct pl_cluster *c, const struct pl_workload *w, struct err *e)
{
    struct pl_layout l, said;
    int r;

    pl_layout_default(&l, w);
    if ((r = check_keys(v, e)) < 0)
        return r;
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(&l, k);

        if (!given(v, k->name))
            continue;
        if ((r = pl_layout_word(&value, k, json_object_get(v, k->name), e)) < 0)
            return r;
        pl_layout_set(&l, k, value);
    }
    if (!given(v, "world")) {
        int64_t world = (int64_t)l.tp * l.cp * l.pp * l.dp;

        if (world > INT_MAX)
            return err_at(e, -ERANGE, "/dp", "dp %d is absurd", l.dp);
        l.world = given(v, "dp") ? (int)world : pl_cluster_devices(c);
    }
    if (!given(v, "schedule") && l.vp > 1 && l.pp > 1)
        l.schedule = PL_INTERLEAVED;
    said = l;
    pl_layout_derive(&l);
    if ((r = check_derived(&said, &l, v, e)) < 0)
        return r;
    if (!given(v, "zero_scope"))
        l.zero_scope = l.zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
    (void)m;
    *ret = l;
    return 0;
}

void pl_layout_unsaid(struct pl_layout *l, const json_t *v, const struct pl_model *m,
                      const struct pl_trainer *t)
{
    struct pl_layout settled = *l;

    pl_layout_settle(&settled, m, t);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++)
        if (!k->derived && !given(v, k->name))
            pl_layout_set(l, k, pl_layout_get(&settled, k));
    pl_layout_derive(l);
}

json_t *pl_layout_json(const struct pl_layout *l)
{
    json_t *v = json_object();

    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        int value = pl_layout_get(l, k);

        if (k->offset == offsetof(struct pl_layout, zero_scope) && value == PL_SCOPE_NONE)
            continue;
        json_object_set_new(v, k->name,
                            k->names ? json_string(k->names[value]) : json_integer(value));
    }
    return v;
}

char *pl_layout_text(char buf[160], const struct pl_layout *l)
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

        memcpy(&value, (const char *)l + sizes[i].offset, sizeof(value));
        if (value != 1 || !strcmp(sizes[i].text, "dp") || !strcmp(sizes[i].text, "mb"))
            str_addf(&s, "%s%s%d", s.len ? " " : "", sizes[i].text, value);
    }
    if (l->sp)
        str_add(&s, " sp");
    if (l->zero)
        str_addf(&s, " zero%d%s", l->zero, l->zero_scope == PL_SCOPE_PLAIN ? " plain" : "");
    if (l->schedule == PL_GPIPE || l->schedule == PL_ZERO_BUBBLE)
        str_addf(&s, " %s", schedule_names[l->schedule]);
    if (l->recompute)
        str_addf(&s, " recompute-%s", recompute_names[l->recompute]);
    if (l->overlap_grad_reduce || l->overlap_param_gather || l->overlap_p2p || l->overlap_moe_a2a)
        str_addf(&s, " overlap%s%s%s%s", l->overlap_grad_reduce ? "-grad" : "",
                 l->overlap_param_gather ? "-param" : "", l->overlap_p2p ? "-p2p" : "",
                 l->overlap_moe_a2a ? "-moe" : "");
    if (l->precision)
        str_addf(&s, " %s", pl_precision_names[l->precision]);
    snprintf(buf, 160, "%s", str_text(&s));
    return buf;
}
