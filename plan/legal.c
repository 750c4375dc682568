/*
 * The legality engine. One function for each rule; a rule speaks only when it is broken, with the
 * numbers. Rules that divide by dp are silent where dp could not be derived: world-dense has said
 * why.
 */
#include "plan/space.h"

#include <stdarg.h>

#include "base/base.h"

struct check {
    const struct pl_model *m;
    const struct pl_cluster *c;
    const struct pl_layout *l;
    const struct pl_workload *w;
    const struct pl_trainer *t;
    struct pl_verdict *verdict; /* NULL: only the answer matters */
    const char *rule;
    bool broken;
};

static __attribute__((format(printf, 3, 4))) void breaks(struct check *k, const char *key,
                                                         const char *fmt, ...)
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

static void world_dense(struct check *k)
{
    const struct pl_layout *l = k->l;

    if (l->world % ((int64_t)l->tp * l->cp * l->pp))
        breaks(k, "world", "world %d is not a multiple of tp %d x cp %d x pp %d", l->world, l->tp,
               l->cp, l->pp);
}

static void world_expert(struct check *k)
{
    const struct pl_layout *l = k->l;

    if (l->etp != 1 && l->etp != l->tp)
        breaks(k, "etp", "etp %d is neither 1 nor tp %d", l->etp, l->tp);
    if (l->world % ((int64_t)l->etp * l->ep * l->pp))
        breaks(k, "ep", "world %d is not a multiple of etp %d x ep %d x pp %d", l->world, l->etp,
               l->ep, l->pp);
}

static void world_fits(struct check *k)
{
    if (k->l->world > pl_cluster_devices(k->c) && !k->c->oversubscribe)
        breaks(k, "world", "world %d is more than nodes %d x devices_per_node %d", k->l->world,
               k->c->nodes, k->c->devices_per_node);
}

static void heads_tp(struct check *k)
{
    if (k->m->heads % k->l->tp)
        breaks(k, "tp", "heads %d is not a multiple of tp %d", k->m->heads, k->l->tp);
}

static void kv_heads_tp(struct check *k)
{
    if (k->m->kv_heads % k->l->tp)
        breaks(k, "tp", "kv_heads %d is not a multiple of tp %d", k->m->kv_heads, k->l->tp);
}

static void ffn_tp(struct check *k)
{
    const struct pl_model *m = k->m;
    const struct pl_layout *l = k->l;
    bool dense = !m->moe.experts || m->moe.every > 1 || m->moe.dense_layers > 0;

    if (dense && m->ffn % l->tp)
        breaks(k, "tp", "ffn %d is not a multiple of tp %d", m->ffn, l->tp);
    if (m->moe.experts && m->moe.shared_ffn % l->tp)
        breaks(k, "tp", "shared_ffn %d is not a multiple of tp %d", m->moe.shared_ffn, l->tp);
    if (m->moe.experts && m->moe.expert_ffn % l->etp)
        breaks(k, "etp", "expert_ffn %d is not a multiple of etp %d", m->moe.expert_ffn, l->etp);
}

static void experts_ep(struct check *k)
{
    if (k->m->moe.experts && k->m->moe.experts % k->l->ep)
        breaks(k, "ep", "experts %d is not a multiple of ep %d", k->m->moe.experts, k->l->ep);
}

static void layers_pp_vp(struct check *k)
{
    int64_t runs = (int64_t)k->l->pp * k->l->vp;

    if (k->m->layers < runs)
        breaks(k, "pp", "layers %d is less than pp %d x vp %d", k->m->layers, k->l->pp, k->l->vp);
    else if (k->m->layers % runs && !k->t->uneven_layers)
        breaks(k, "pp", "layers %d is not a multiple of pp %d x vp %d", k->m->layers, k->l->pp,
               k->l->vp);
}

static void batch_divides(struct check *k)
{
    if (k->l->dp && k->w->global_batch % ((int64_t)k->l->micro_batch * k->l->dp))
        breaks(k, "micro_batch", "global_batch %d is not a multiple of micro_batch %d x dp %d",
               k->w->global_batch, k->l->micro_batch, k->l->dp);
}

static void interleave_microbatches(struct check *k)
{
    const struct pl_layout *l = k->l;
    int64_t share = (int64_t)l->micro_batch * l->dp;

    if (l->schedule != PL_INTERLEAVED || l->vp == 1 || !share || k->w->global_batch % share)
        return;
    if (k->w->global_batch / share % l->pp)
        breaks(k, "vp",
               "%lld micro-batches (global_batch %d / (micro_batch %d x dp %d)) are not a multiple "
               "of pp %d",
               (long long)(k->w->global_batch / share), k->w->global_batch, l->micro_batch, l->dp,
               l->pp);
}

static void vp_needs_pp(struct check *k)
{
    if (k->l->vp > 1 && k->l->pp == 1)
        breaks(k, "vp", "vp %d needs pp > 1, pp is 1", k->l->vp);
}

static void schedule_vp(struct check *k)
{
    const struct pl_layout *l = k->l;
    bool interleaved = l->schedule == PL_INTERLEAVED;

    if (l->pp > 1 && l->vp > 1 && !interleaved)
        breaks(k, "schedule", "vp %d needs schedule interleaved, not %s", l->vp,
               pl_layout_key_find("schedule")->names[l->schedule]);
    if (l->pp > 1 && l->vp == 1 && interleaved)
        breaks(k, "schedule", "schedule interleaved needs vp > 1, vp is 1");
}

static void sp_needs_tp(struct check *k)
{
    if (k->l->sp && k->l->tp == 1)
        breaks(k, "sp", "sp 1 needs tp > 1, tp is 1");
}

static void moe_tp_needs_sp(struct check *k)
{
    if (k->m->moe.experts && k->l->tp > 1 && !k->l->sp)
        breaks(k, "sp", "a model with experts and tp %d needs sp 1", k->l->tp);
}

static void seq_sp(struct check *k)
{
    if (k->l->sp && k->w->seq % ((int64_t)k->l->cp * k->l->tp))
        breaks(k, "tp", "seq %d is not a multiple of cp %d x tp %d, as sp needs", k->w->seq,
               k->l->cp, k->l->tp);
}

static void seq_cp(struct check *k)
{
    if (k->l->cp > 1 && k->w->seq % (2 * (int64_t)k->l->cp))
        breaks(k, "cp", "seq %d is not a multiple of 2 x cp %d", k->w->seq, k->l->cp);
}

/* Something must be sharded: dense state over dp x cp ranks (less the expert replicas when plain),
 * expert state over edp. */
static void zero_needs_dp(struct check *k)
{
    const struct pl_layout *l = k->l;
    int64_t dense = (int64_t)l->dp * l->cp;

    if (!l->zero || !l->dp || !l->edp)
        return;
    if (l->zero_scope == PL_SCOPE_PLAIN)
        dense /= pl_layout_expert_replicas(l);
    if (dense <= 1 && !(k->m->moe.experts && l->edp > 1))
        breaks(k, "zero", "zero %d%s shards over %lld rank (dp %d x cp %d)", l->zero,
               l->zero_scope == PL_SCOPE_PLAIN ? " plain" : "", (long long)dense, l->dp, l->cp);
}

static void threads_fit(struct check *k)
{
    int ranks = k->l->world < k->c->devices_per_node ? k->l->world : k->c->devices_per_node;

    if (!k->c->oversubscribe && (int64_t)ranks * k->l->threads > k->c->devices_per_node)
        breaks(k, "threads", "%d ranks a node x threads %d is more than %d cores", ranks,
               k->l->threads, k->c->devices_per_node);
}

/* Sizes of a rank that the bundled trainer's kernels and messages have no room for. */
static void bundled_limits(struct check *k)
{
    const struct pl_model *m = k->m;
    const struct pl_layout *l = k->l;
    int64_t heads = (int64_t)m->heads + m->kv_heads;
    const struct {
        int64_t size;
        int most;
        const char *key;
    } limit[] = {
        {m->head_dim, PL_MAX_HEAD_DIM, "head_dim"},
        {m->hidden, PL_MAX_HIDDEN, "hidden"},
        {(m->vocab + l->tp - 1) / l->tp, PL_MAX_COLUMNS, "vocab"},
        {heads / l->tp * m->head_dim, PL_MAX_COLUMNS, "heads"},
        {m->ffn / l->tp, PL_MAX_FFN, "ffn"},
        {m->moe.expert_ffn / l->etp, PL_MAX_FFN, "expert_ffn"},
        {m->moe.shared_ffn / l->tp, PL_MAX_FFN, "shared_ffn"},
        {m->moe.experts / l->ep, PL_MAX_EXPERTS, "experts"},
        {l->vp, PL_MAX_CHUNKS, "vp"},
        {l->threads, PL_MAX_THREADS, "threads"},
    };

    for (size_t i = 0; i < ARRAY_LEN(limit); i++)
        if (limit[i].size > limit[i].most)
            breaks(k, limit[i].key, "trainer %s does not support %s > %d a rank, here %lld",
                   k->t->name, limit[i].key, limit[i].most, (long long)limit[i].size);
}

/* Model features first, then layout keys, each by the name that the trainer lacks. */
static void trainer_supports(struct check *k)
{
    const struct pl_model *m = k->m;
    const struct pl_layout *l = k->l;
    const struct pl_trainer *t = k->t;
    const struct {
        bool wanted, able;
        const char *key, *what;
    } need[] = {
        {m->mlp == PL_GELU, t->gelu, "mlp", "gelu"},
        {m->norm == PL_LAYERNORM, t->layernorm, "norm", "layernorm"},
        {m->positions == PL_LEARNED, t->learned, "positions", "learned"},
        {m->tied, t->tied, "tied", "true"},
        {m->moe.experts && m->moe.capacity_factor > 0, t->capacity, "capacity_factor", "a number"},
        {m->moe.experts && m->moe.shared_ffn > 0, t->shared_expert, "shared_ffn", "> 0"},
        {m->moe.experts && (m->moe.every > 1 || m->moe.dense_layers > 0), t->moe_every, "every",
         "> 1"},
        {l->cp > 1, t->cp, "cp", "> 1"},
        {l->pp > 1 && l->schedule == PL_INTERLEAVED, t->interleaved, "schedule", "interleaved"},
        {l->pp > 1 && l->schedule == PL_GPIPE, t->gpipe, "schedule", "gpipe"},
        {l->pp > 1 && l->schedule == PL_ZERO_BUBBLE, t->zero_bubble, "schedule", "zero-bubble"},
        {t->bundled && l->pp > 1 && l->schedule == PL_ZERO_BUBBLE &&
             l->recompute == PL_RECOMPUTE_FULL,
         false, "recompute", "full with schedule zero-bubble"},
        {l->etp > 1, t->etp, "etp", "> 1"},
        {l->recompute == PL_RECOMPUTE_SELECTIVE, t->selective, "recompute", "selective"},
        {l->overlap_grad_reduce, t->overlap_grad_reduce, "overlap_grad_reduce", "1"},
        {l->overlap_param_gather, t->overlap_param_gather, "overlap_param_gather", "1"},
        {l->overlap_p2p, t->overlap_p2p, "overlap_p2p", "1"},
        {l->overlap_moe_a2a, t->overlap_moe_a2a, "overlap_moe_a2a", "1"},
        {l->precision == PL_BF16, t->bf16, "precision", "bf16"},
        {l->precision == PL_FP8, t->fp8, "precision", "fp8"},
    };

    for (size_t i = 0; i < ARRAY_LEN(need); i++)
        if (need[i].wanted && !need[i].able)
            breaks(k, need[i].key, "trainer %s does not support %s %s", t->name, need[i].key,
                   need[i].what);
    if (l->zero > t->max_zero)
        breaks(k, "zero", "zero %d: trainer %s supports zero 0 to %d", l->zero, t->name,
               t->max_zero);
    if (t->bundled)
        bundled_limits(k);
}

/* sp with tp = 1, and a schedule that contradicts vp, have rules of their own. */
static void canonical(struct check *k)
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
            breaks(k, key->name, "%s %s is written %s here", key->name, key->names[got],
                   key->names[want]);
        else
            breaks(k, key->name, "%s %d is written %d here", key->name, got, want);
    }
}

/* In the order in which they are reported; cheap and often broken ones first. A rule with `stem`
 * reads no key of a layout but those of a walk's stems (space.h), and so holds for all their leaves
 * or for none. */
static const struct {
    const char *name;
    void (*run)(struct check *k);
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
    {"trainer-supports", trainer_supports, false},
    {"canonical", canonical, false},
};

/* A layout made in C may hold anything: no rule is asked to divide by zero. */
static bool in_range(struct check *k)
{
    k->rule = "canonical";
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        int value = pl_layout_get(k->l, key);

        if (!key->derived && (value < key->min || value > key->max))
            breaks(k, key->name, "%s %d is outside %d..%d", key->name, value, key->min, key->max);
    }
    return !k->broken;
}

bool pl_layout_check(struct pl_verdict *ret, const struct pl_model *m, const struct pl_cluster *c,
                     const struct pl_layout *l, const struct pl_workload *w,
                     const struct pl_trainer *t)
{
    struct pl_layout derived = *l;
    struct check k = {.m = m, .c = c, .l = &derived, .w = w, .t = t, .verdict = ret};

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
    struct check k = {.m = p->model, .c = p->cluster, .l = l, .w = p->workload, .t = p->trainer};

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
