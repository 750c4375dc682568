#include "base/base.h"
#include "trainer/optim.h"

#include <assert.h>
#include <math.h>

double tr_optim_lr(const struct tr_optim *o, int n)
{
    double t;

    if (n <= o->warmup_steps)
        return o->lr * n / o->warmup_steps;
    if (n >= o->decay_steps)
        return o->min_lr;
    t = (double)(n - o->warmup_steps) / (o->decay_steps - o->warmup_steps);
    return o->min_lr + (o->lr - o->min_lr) * 0.5 * (1.0 + cos(M_PI * t));
}

void tr_grads_zero(struct tr_rank *r)
{
    kn_zero(r->pool, r->params.grad, r->params.table.count * sizeof(float));
    memset(r->async.asked, 0, sizeof(*r->async.asked) * (size_t)r->params.table.nbuckets);
}

static struct tr_group *replicas(struct tr_rank *r, const struct pl_bucket *b)
{
    return b->kind == PL_BUCKET_EXPERT ? &r->comms.edp : &r->comms.dp;
}

/* Sum of squares of what this rank answers for: each element of the model is counted by one rank.
 */
static double bucket_sumsq(struct tr_rank *r, const struct pl_bucket *b)
{
    const struct tr_group *g = replicas(r, b);
    uint64_t lo = b->shard_first, hi = lo + b->shard_count;

    if ((b->kind == PL_BUCKET_SMALL && r->comms.tp.rank != 0) ||
        (b->kind == PL_BUCKET_TIED && r->comms.tied.rank != 0))
        return 0.0;
    if (r->layout.zero == 0) {
        lo = b->first + tr_block(b->count, g->size, g->rank);
        hi = b->first + tr_block(b->count, g->size, g->rank + 1);
    } else if (b->kind != PL_BUCKET_EXPERT && r->comms.outer.rank != 0) {
        return 0.0;
    }
    return kn_sumsq(r->pool, KN_F32, r->params.grad + lo, hi - lo);
}

double tr_grads_reduce(struct tr_rank *r, double *sums, int n)
{
    double all[8] = {0};
    enum tr_phase was = tr_phase(&r->clock, TR_PHASE_DP);

    for (int i = r->params.table.nbuckets - 1; i >= 0; i--)
        if (!r->async.asked[i])
            tr_async_reduce(r, i);
    tr_async_drain(r);
    tr_phase(&r->clock, TR_PHASE_OPTIMIZER);
    for (int i = 0; i < r->params.table.nbuckets; i++)
        all[0] += bucket_sumsq(r, &r->params.table.bucket[i]);
    assert(n < (int)ARRAY_LEN(all));
    memcpy(all + 1, sums, sizeof(*sums) * (size_t)n);
    tr_phase(&r->clock, TR_PHASE_DP);
    tr_sum_double(&r->comms.world, all, n + 1);
    tr_phase(&r->clock, was);
    memcpy(sums, all + 1, sizeof(*sums) * (size_t)n);
    return sqrt(all[0]);
}

/* AdamW on elements [first, first + n) of the flat buffers, whose state is at STATE. */
static void update(struct tr_rank *r, const struct kn_adamw *h, uint64_t first, uint64_t state,
                   uint64_t n)
{
    struct tr_params *t = &r->params;
    float *w = t->master ? t->master + state : (float *)t->weight + first;
    kn_bf16 *low = t->master ? (kn_bf16 *)t->weight + first : NULL;

    kn_adamw(r->pool, h, w, low, t->m + state, t->v + state, t->grad + first, n);
}

/* Parameters [from, end) of the table; neighbours with the same decay are updated by one call. */
static void update_some(struct tr_rank *r, const struct tr_optim *o, struct kn_adamw *h, int from,
                        int end)
{
    const struct pl_params *t = &r->params.table;
    uint64_t run_first = 0, run_state = 0, run = 0;
    bool run_decay = false;

    for (int i = from; i < end; i++) {
        uint64_t first, state, n = tr_param_state(&r->params, i, &first, &state);

        if (n == 0)
            continue;
        first += t->p[i].offset;
        if (run &&
            (first != run_first + run || state != run_state + run || t->p[i].decay != run_decay)) {
            h->weight_decay = run_decay ? (float)o->weight_decay : 0.0f;
            update(r, h, run_first, run_state, run);
            run = 0;
        }
        if (run == 0) {
            run_first = first;
            run_state = state;
            run_decay = t->p[i].decay;
        }
        run += n;
    }
    h->weight_decay = run_decay ? (float)o->weight_decay : 0.0f;
    if (run)
        update(r, h, run_first, run_state, run);
}

/* Buckets of norms and routers, or all others. With zero 1 a bucket's shards are asked for as soon
 * as this rank's is new. */
static void update_buckets(struct tr_rank *r, const struct tr_optim *o, struct kn_adamw *h,
                           bool small)
{
    const struct pl_params *t = &r->params.table;

    for (int i = 0, end; i < t->n; i = end) {
        int b = t->p[i].bucket;

        for (end = i + 1; end < t->n && t->p[end].bucket == b;)
            end++;
        if ((t->bucket[b].kind == PL_BUCKET_SMALL) != small)
            continue;
        update_some(r, o, h, i, end);
        if (r->layout.zero >= 1)
            tr_async_gather(r, b);
    }
}

void tr_optim_step(struct tr_rank *r, const struct tr_optim *o, int n, double norm)
{
    struct kn_adamw h = {.lr = (float)tr_optim_lr(o, n),
                         .beta1 = (float)o->beta1,
                         .beta2 = (float)o->beta2,
                         .eps = (float)o->eps,
                         .grad_scale = 1.0f,
                         .step = (uint64_t)n};
    enum tr_phase was = tr_phase(&r->clock, TR_PHASE_OPTIMIZER);

    if (o->clip > 0 && norm > o->clip)
        h.grad_scale = (float)(o->clip / norm);
    /* A lane gathers in the order of asking: what the next step needs first comes first. */
    update_buckets(r, o, &h, true);
    update_buckets(r, o, &h, false);
    if (r->layout.overlap_param_gather)
        tr_async_poll(r);
    else
        tr_async_drain(r);
    kn_wait(r->pool); /* the host may read weights, and a step's time has all of its work */
    tr_phase(&r->clock, was);
}

void tr_optim_settle(struct tr_rank *r)
{
    tr_async_drain(r);
}
