/*
 * The legality engine. One function for each rule; a rule speaks only when it is broken, with the
 * numbers. Rules that divide by dp are silent where dp could not be derived: world-dense has said
 * why.
 */
#include "plan/legal.h"
#include "plan/space.h"

#include <stdarg.h>

#include "base/base.h"

void pl_breaks(struct pl_check *check, const char *key, const char *fmt, ...)
{
    struct pl_violation *v;
    va_list ap;

    check->broken = true;
    if (!check->verdict || check->verdict->count == PL_MAX_VIOLATIONS)
        return;
    v = &check->verdict->v[check->verdict->count++];
    v->rule = check->rule;
    v->key = key;
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof(v->text), fmt, ap);
    va_end(ap);
}

static void world_dense(struct pl_check *check)
{
    const struct pl_layout *l = check->l;

    if (l->world % ((int64_t)l->tp * l->cp * l->pp))
        pl_breaks(check, "world", "world %d is not a multiple of tp %d x cp %d x pp %d", l->world,
                  l->tp, l->cp, l->pp);
}

static void world_expert(struct pl_check *check)
{
    const struct pl_layout *l = check->l;

    if (l->etp != 1 && l->etp != l->tp)
        pl_breaks(check, "etp", "etp %d is neither 1 nor tp %d", l->etp, l->tp);
    if (l->world % ((int64_t)l->etp * l->ep * l->pp))
        pl_breaks(check, "ep", "world %d is not a multiple of etp %d x ep %d x pp %d", l->world,
                  l->etp, l->ep, l->pp);
}

static void world_fits(struct pl_check *check)
{
    if (check->l->world > pl_cluster_devices(check->c) && !check->c->oversubscribe)
        pl_breaks(check, "world", "world %d is more than nodes %d x devices_per_node %d",
                  check->l->world, check->c->nodes, check->c->devices_per_node);
}

static void heads_tp(struct pl_check *check)
{
    if (check->m->heads % check->l->tp)
        pl_breaks(check, "tp", "heads %d is not a multiple of tp %d", check->m->heads,
                  check->l->tp);
}

static void kv_heads_tp(struct pl_check *check)
{
    if (check->m->kv_heads % check->l->tp)
        pl_breaks(check, "tp", "kv_heads %d is not a multiple of tp %d", check->m->kv_heads,
                  check->l->tp);
}

static void ffn_tp(struct pl_check *check)
{
    const struct pl_model *m = check->m;
    const struct pl_layout *l = check->l;
    bool dense = !m->moe.experts || m->moe.every > 1 || m->moe.dense_layers > 0;

    if (dense && m->ffn % l->tp)
        pl_breaks(check, "tp", "ffn %d is not a multiple of tp %d", m->ffn, l->tp);
    if (m->moe.experts && m->moe.shared_ffn % l->tp)
        pl_breaks(check, "tp", "shared_ffn %d is not a multiple of tp %d", m->moe.shared_ffn,
                  l->tp);
    if (m->moe.experts && m->moe.expert_ffn % l->etp)
        pl_breaks(check, "etp", "expert_ffn %d is not a multiple of etp %d", m->moe.expert_ffn,
                  l->etp);
}

static void experts_ep(struct pl_check *check)
{
    if (check->m->moe.experts && check->m->moe.experts % check->l->ep)
        pl_breaks(check, "ep", "experts %d is not a multiple of ep %d", check->m->moe.experts,
                  check->l->ep);
}

static void layers_pp_vp(struct pl_check *check)
{
    int64_t runs = (int64_t)check->l->pp * check->l->vp;

    if (check->m->layers < runs)
        pl_breaks(check, "pp", "layers %d is less than pp %d x vp %d", check->m->layers,
                  check->l->pp, check->l->vp);
    else if (check->m->layers % runs && !check->t->uneven_layers)
        pl_breaks(check, "pp", "layers %d is not a multiple of pp %d x vp %d", check->m->layers,
                  check->l->pp, check->l->vp);
}

static void batch_divides(struct pl_check *check)
{
    if (check->l->dp && check->w->global_batch % ((int64_t)check->l->micro_batch * check->l->dp))
        pl_breaks(check, "micro_batch",
                  "global_batch %d is not a multiple of micro_batch %d x dp %d",
                  check->w->global_batch, check->l->micro_batch, check->l->dp);
}

static void interleave_microbatches(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    int64_t share = (int64_t)l->micro_batch * l->dp;

    if (l->schedule != PL_INTERLEAVED || l->vp == 1 || !share || check->w->global_batch % share)
        return;
    if (check->w->global_batch / share % l->pp)
        pl_breaks(
            check, "vp",
            "%lld micro-batches (global_batch %d / (micro_batch %d x dp %d)) are not a multiple "
            "of pp %d",
            (long long)(check->w->global_batch / share), check->w->global_batch, l->micro_batch,
            l->dp, l->pp);
}

static void vp_needs_pp(struct pl_check *check)
{
    if (check->l->vp > 1 && check->l->pp == 1)
        pl_breaks(check, "vp", "vp %d needs pp > 1, pp is 1", check->l->vp);
}

static void schedule_vp(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    bool interleaved = l->schedule == PL_INTERLEAVED;

    if (l->pp > 1 && l->vp > 1 && !interleaved)
        pl_breaks(check, "schedule", "vp %d needs schedule interleaved, not %s", l->vp,
                  pl_layout_key_find("schedule")->names[l->schedule]);
    if (l->pp > 1 && l->vp == 1 && interleaved)
        pl_breaks(check, "schedule", "schedule interleaved needs vp > 1, vp is 1");
}

static void sp_needs_tp(struct pl_check *check)
{
    if (check->l->sp && check->l->tp == 1)
        pl_breaks(check, "sp", "sp 1 needs tp > 1, tp is 1");
}

/* Not of a trainer without sequence parallelism, whose experts do without. */
static void moe_tp_needs_sp(struct pl_check *check)
{
    if (pl_trainer_takes(check->t, PL_KEY_SP, 1) && check->m->moe.experts && check->l->tp > 1 &&
        !check->l->sp)
        pl_breaks(check, "sp", "a model with experts and tp %d needs sp 1", check->l->tp);
}

static void seq_sp(struct pl_check *check)
{
    if (check->l->sp && check->w->seq % ((int64_t)check->l->cp * check->l->tp))
        pl_breaks(check, "tp", "seq %d is not a multiple of cp %d x tp %d, as sp needs",
                  check->w->seq, check->l->cp, check->l->tp);
}

static void seq_cp(struct pl_check *check)
{
    if (check->l->cp > 1 && check->w->seq % (2 * (int64_t)check->l->cp))
        pl_breaks(check, "cp", "seq %d is not a multiple of 2 x cp %d", check->w->seq,
                  check->l->cp);
}

/* Something must be sharded: dense state over dp x cp ranks (less the expert replicas when plain),
 * expert state over edp. */
static void zero_needs_dp(struct pl_check *check)
{
    const struct pl_layout *l = check->l;
    int64_t dense = (int64_t)l->dp * l->cp;

    if (!l->zero || !l->dp || !l->edp)
        return;
    if (l->zero_scope == PL_SCOPE_PLAIN)
        dense /= pl_layout_expert_replicas(l);
    if (dense <= 1 && !(check->m->moe.experts && l->edp > 1))
        pl_breaks(check, "zero", "zero %d%s shards over %lld rank (dp %d x cp %d)", l->zero,
                  l->zero_scope == PL_SCOPE_PLAIN ? " plain" : "", (long long)dense, l->dp, l->cp);
}

static void threads_fit(struct pl_check *check)
{
    int ranks =
        check->l->world < check->c->devices_per_node ? check->l->world : check->c->devices_per_node;

    if (!check->c->oversubscribe && (int64_t)ranks * check->l->threads > check->c->devices_per_node)
        pl_breaks(check, "threads", "%d ranks a node x threads %d is more than %d cores", ranks,
                  check->l->threads, check->c->devices_per_node);
}

/* sp with tp = 1, and a schedule that contradicts vp, have rules of their own. */
static void canonical(struct pl_check *check)
{
    struct pl_layout form = *check->l;

    if (!check->l->dp || !check->l->edp)
        return;
    pl_layout_canonical(&form, check->m);
    form.dp = check->l->dp;
    form.edp = check->l->edp;
    if (pl_layout_equal(&form, check->l))
        return;
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int got = pl_layout_get(check->l, key), want = pl_layout_get(&form, key);
        bool spoken = key->offset == offsetof(struct pl_layout, sp) ||
                      (key->offset == offsetof(struct pl_layout, schedule) && check->l->pp > 1);

        if (got == want || spoken || key->part == PL_DERIVED)
            continue;
        if (key->names)
            pl_breaks(check, key->name, "%s %s is written %s here", key->name, key->names[got],
                      key->names[want]);
        else
            pl_breaks(check, key->name, "%s %d is written %d here", key->name, got, want);
    }
}

/* In the order in which they are reported; cheap and often broken ones first. A rule with `stem`
 * reads no key of a layout but those of a walk's stems (space.h), and so holds for all their leaves
 * or for none. */
static const struct {
    const char *name;
    void (*run)(struct pl_check *check);
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
static bool in_range(struct pl_check *check)
{
    check->rule = "canonical";
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int value = pl_layout_get(check->l, key);

        if (key->part != PL_DERIVED && (value < key->min || value > key->max))
            pl_breaks(check, key->name, "%s %d is outside %d..%d", key->name, value, key->min,
                      key->max);
    }
    return !check->broken;
}

bool pl_layout_check(struct pl_verdict *ret, const struct pl_model *model,
                     const struct pl_cluster *cluster, const struct pl_layout *layout,
                     const struct pl_workload *workload, const struct pl_trainer *trainer)
{
    struct pl_layout derived = *layout;
    struct pl_check k = {
        .m = model, .c = cluster, .l = &derived, .w = workload, .t = trainer, .verdict = ret};

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

bool pl_layout_check_part(const struct pl_problem *problem, const struct pl_layout *layout,
                          bool stem)
{
    struct pl_check k = {.m = problem->model,
                         .c = problem->cluster,
                         .l = layout,
                         .w = problem->workload,
                         .t = problem->trainer};

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

char *pl_verdict_text(char *buf, size_t size, const struct pl_verdict *verdict)
{
    AUTO_STR s = {0};

    for (int i = 0; i < verdict->count; i++)
        str_addf(&s, "%s%s: %s", i ? "; " : "", verdict->v[i].rule, verdict->v[i].text);
    snprintf(buf, size, "%s", str_text(&s));
    return buf;
}
