/*
 * The legality engine. One function for each rule; a rule speaks only when it is broken, with the
 * numbers. Rules that divide by dp are silent where dp could not be derived: world-dense has said
 * why.
 */
#include "plan/legal.h"
#include "plan/space.h"

#include <stdarg.h>

#include "base/base.h"

void pl_breaks(struct pl_check *k, const char *key, const char *fmt, ...)
{
    struct pl_violation *v;
    va_list ap;

    k->broken = true;
    if (!k->verdict || k->verdict->count == PL_MAX_VIOLATIONS)
        return;
    v = &k->verdict->v[k->verdict->count++];
    v->rule = k->rule;
    v->key = key;
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof(v->text), fmt, ap);
    va_end(ap);
}

static void world_dense(struct pl_check *k)
{
    const struct pl_layout *l = k->l;

    if (l->world % ((int64_t)l->tp * l->cp * l->pp))
        pl_breaks(k, "world", "world %d is not a multiple of tp %d x cp %d x pp %d", l->world,
                  l->tp, l->cp, l->pp);
}

static void world_expert(struct pl_check *k)
{
    const struct pl_layout *l = k->l;

    if (l->etp != 1 && l->etp != l->tp)
        pl_breaks(k, "etp", "etp %d is neither 1 nor tp %d", l->etp, l->tp);
    if (l->world % ((int64_t)l->etp * l->ep * l->pp))
        pl_breaks(k, "ep", "world %d is not a multiple of etp %d x ep %d x pp %d", l->world, l->etp,
                  l->ep, l->pp);
}

static void world_fits(struct pl_check *k)
{
    if (k->l->world > pl_cluster_devices(k->c) && !k->c->oversubscribe)
        pl_breaks(k, "world", "world %d is more than nodes %d x devices_per_node %d", k->l->world,
                  k->c->nodes, k->c->devices_per_node);
}

static void heads_tp(struct pl_check *k)
{
    if (k->m->heads % k->l->tp)
        pl_breaks(k, "tp", "heads %d is not a multiple of tp %d", k->m->heads, k->l->tp);
}

static void kv_heads_tp(struct pl_check *k)
{
    if (k->m->kv_heads % k->l->tp)
        pl_breaks(k, "tp", "kv_heads %d is not a multiple of tp %d", k->m->kv_heads, k->l->tp);
}

static void ffn_tp(struct pl_check *k)
{
    const struct pl_model *m = k->m;
    const struct pl_layout *l = k->l;
    bool dense = !m->moe.experts || m->moe.every > 1 || m->moe.dense_layers > 0;

    if (dense && m->ffn % l->tp)
        pl_breaks(k, "tp", "ffn %d is not a multiple of tp %d", m->ffn, l->tp);
    if (m->moe.experts && m->moe.shared_ffn % l->tp)
        pl_breaks(k, "tp", "shared_ffn %d is not a multiple of tp %d", m->moe.shared_ffn, l->tp);
    if (m->moe.experts && m->moe.expert_ffn % l->etp)
        pl_breaks(k, "etp", "expert_ffn %d is not a multiple of etp %d", m->moe.expert_ffn, l->etp);
}

static void experts_ep(struct pl_check *k)
{
    if (k->m->moe.experts && k->m->moe.experts % k->l->ep)
        pl_breaks(k, "ep", "experts %d is not a multiple of ep %d", k->m->moe.experts, k->l->ep);
}

static void layers_pp_vp(struct pl_check *k)
{
    int64_t runs = (int64_t)k->l->pp * k->l->vp;

    if (k->m->layers < runs)
        pl_breaks(k, "pp", "layers %d is less than pp %d x vp %d", k->m->layers, k->l->pp,
                  k->l->vp);
    else if (k->m->layers % runs && !k->t->uneven_layers)
        pl_breaks(k, "pp", "layers %d is not a multiple of pp %d x vp %d", k->m->layers, k->l->pp,
                  k->l->vp);
}

static void batch_divides(struct pl_check *k)
{
    if (k->l->dp && k->w->global_batch % ((int64_t)k->l->micro_batch * k->l->dp))
        pl_breaks(k, "micro_batch", "global_batch %d is not a multiple of micro_batch %d x dp %d",
                  k->w->global_batch, k->l->micro_batch, k->l->dp);
}

static void interleave_microbatches(struct pl_check *k)
{
    const struct pl_layout *l = k->l;
    int64_t share = (int64_t)l->micro_batch * l->dp;

    if (l->schedule != PL_INTERLEAVED || l->vp == 1 || !share || k->w->global_batch % share)
        return;
    if (k->w->global_batch / share % l->pp)
        pl_breaks(
            k, "vp",
            "%lld micro-batches (global_batch %d / (micro_batch %d x dp %d)) are not a multiple "
            "of pp %d",
            (long long)(k->w->global_batch / share), k->w->global_batch, l->micro_batch, l->dp,
            l->pp);
}

static void vp_needs_pp(struct pl_check *k)
{
    if (k->l->vp > 1 && k->l->pp == 1)
        pl_breaks(k, "vp", "vp %d needs pp > 1, pp is 1", k->l->vp);
}

static void schedule_vp(struct pl_check *k)
{
    const struct pl_layout *l = k->l;
    bool interleaved = l->schedule == PL_INTERLEAVED;

    if (l->pp > 1 && l->vp > 1 && !interleaved)
        pl_breaks(k, "schedule", "vp %d needs schedule interleaved, not %s", l->vp,
                  pl_layout_key_find("schedule")->names[l->schedule]);
    if (l->pp > 1 && l->vp == 1 && interleaved)
        pl_breaks(k, "schedule", "schedule interleaved needs vp > 1, vp is 1");
}

static void sp_needs_tp(struct pl_check *k)
{
    if (k->l->sp && k->l->tp == 1)
        pl_breaks(k, "sp", "sp 1 needs tp > 1, tp is 1");
}

/* Not of a trainer without sequence parallelism, whose experts do without. */
static void moe_tp_needs_sp(struct pl_check *k)
{
    if (k->t->sp && k->m->moe.experts && k->l->tp > 1 && !k->l->sp)
        pl_breaks(k, "sp", "a model with experts and tp %d needs sp 1", k->l->tp);
}

static void seq_sp(struct pl_check *k)
{
    if (k->l->sp && k->w->seq % ((int64_t)k->l->cp * k->l->tp))
        pl_breaks(k, "tp", "seq %d is not a multiple of cp %d x tp %d, as sp needs", k->w->seq,
                  k->l->cp, k->l->tp);
}

static void seq_cp(struct pl_check *k)
{
    if (k->l->cp > 1 && k->w->seq % (2 * (int64_t)k->l->cp))
        pl_breaks(k, "cp", "seq %d is not a multiple of 2 x cp %d", k->w->seq, k->l->cp);
}

/* Something must be sharded: dense state over dp x cp ranks (less the expert replicas when plain),
 * expert state over edp. */
static void zero_needs_dp(struct pl_check *k)
{
    const struct pl_layout *l = k->l;
    int64_t dense = (int64_t)l->dp * l->cp;

    if (!l->zero || !l->dp || !l->edp)
        return;
    if (l->zero_scope == PL_SCOPE_PLAIN)
        dense /= pl_layout_expert_replicas(l);
    if (dense <= 1 && !(k->m->moe.experts && l->edp > 1))
        pl_breaks(k, "zero", "zero %d%s shards over %lld rank (dp %d x cp %d)", l->zero,
                  l->zero_scope == PL_SCOPE_PLAIN ? " plain" : "", (long long)dense, l->dp, l->cp);
}

static void threads_fit(struct pl_check *k)
{
    int ranks = k->l->world < k->c->devices_per_node ? k->l->world : k->c->devices_per_node;

    if (!k->c->oversubscribe && (int64_t)ranks * k->l->threads > k->c->devices_per_node)
        pl_breaks(k, "threads", "%d ranks a node x threads %d is more than %d cores", ranks,
                  k->l->threads, k->c->devices_per_node);
}

/* sp with tp = 1, and a schedule that contradicts vp, have rules of their own. */
static void canonical(struct pl_check *k)
{
    struct pl_layout form = *k->l;

    if (!k->l->dp || !k->l->edp)
        return;
    pl_layout_canonical(&form, k->m);
    form.dp = k->l->dp;
    form.edp = k->l->edp;
    if (pl_layout_equal(&form, k->l))
        return;
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int got = pl_layout_get(k->l, key), want = pl_layout_get(&form, key);
        bool spoken = key->offset == offsetof(struct pl_layout, sp) ||
                      (key->offset == offsetof(struct pl_layout, schedule) && k->l->pp > 1);

        if (got == want || spoken || key->derived)
            continue;
        if (key->names)
            pl_breaks(k, key->name, "%s %s is written %s here", key->name, key->names[got],
                      key->names[want]);
        else
            pl_breaks(k, key->name, "%s %d is written %d here", key->name, got, want);
    }
}

/* In the order in which they are reported; cheap and often broken ones first. A rule with `stem`
 * reads no key of a layout but those of a walk's stems (space.h), and so holds for all their leaves
 * or for none. */
static const struct {
    const char *name;
    void (*run)(struct pl_check *k);
    bool stem;
} rules[] = {
    {"world-dense", world_dense, true},
    {"world-expert", world_expert, true},
    {"world-fits", world_fits, true},
    {"heads-tp", heads_tp, true},
    {"kv-heads-tp", kv_heads_tp, true},
    {"ffn-tp", ffn_tp, true},
    {"experts-ep", experts_ep, true},
    {"layers-pp-vp", layers_pp_vp, true},
    {"batch-divides", batch_divides, true},
    {"interleave-microbatches", interleave_microbatches, true},
    {"vp-needs-pp", vp_needs_pp, true},
    {"schedule-vp", schedule_vp, true},
    {"sp-needs-tp", sp_needs_tp, true},
    {"moe-tp-needs-sp", moe_tp_needs_sp, true},
    {"seq-sp", seq_sp, true},
    {"seq-cp", seq_cp, true},
    {"zero-needs-dp", zero_needs_dp, false},
    {"threads-fit", threads_fit, false},
    {"trainer-supports", pl_trainer_supports, false},
    {"canonical", canonical, false},
};

/* A layout made in C may hold anything: no rule is asked to divide by zero. */
static bool in_range(struct pl_check *k)
{
    k->rule = "canonical";
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int value = pl_layout_get(k->l, key);

        if (!key->derived && (value < key->min || value > key->max))
            pl_breaks(k, key->name, "%s %d is outside %d..%d", key->name, value, key->min,
                      key->max);
    }
    return !k->broken;
}

bool pl_layout_check(struct pl_verdict *ret, const struct pl_model *m, const struct pl_cluster *c,
                     const struct pl_layout *l, const struct pl_workload *w,
                     const struct pl_trainer *t)
{
    struct pl_layout derived = *l;
    struct pl_check k = {.m = m, .c = c, .l = &derived, .w = w, .t = t, .verdict = ret};

    if (ret)
        ret->count = 0;
    if (!in_range(&k))
        return false;
    pl_layout_derive(&derived);
    for (size_t i = 0; i < ARRAY_LEN(rules) && (ret || !k.broken); i++) {
        k.rule = rules[i].name;
        rules[i].run(&k);
    }
    return !k.broken;
}

bool pl_layout_check_part(const struct pl_problem *p, const struct pl_layout *l, bool stem)
{
    struct pl_check k = {.m = p->model, .c = p->cluster, .l = l, .w = p->workload, .t = p->trainer};

    for (size_t i = 0; i < ARRAY_LEN(rules) && !k.broken; i++)
        if (rules[i].stem == stem)
            rules[i].run(&k);
    return !k.broken;
}

const char *const *pl_rule_names(void)
{
    static const char *names[ARRAY_LEN(rules) + 1];

    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        names[i] = rules[i].name;
    return names;
}

char *pl_verdict_text(char *buf, size_t size, const struct pl_verdict *v)
{
    AUTO_STR s = {0};

    for (int i = 0; i < v->count; i++)
        str_addf(&s, "%s%s: %s", i ? "; " : "", v->v[i].rule, v->v[i].text);
    snprintf(buf, size, "%s", str_text(&s));
    return buf;
}
