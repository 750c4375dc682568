#include "base/base.h"
#include "trainer/optim.h"

#include <assert.h>
#include <math.h>

void tr_grads_zero(struct tr_rank *rank)
{
    kn_zero(rank->pool, rank->params.grad, rank->params.table.grad.count * sizeof(float));
    memset(rank->async.asked, 0, sizeof(*rank->async.asked) * (size_t)rank->params.table.nbuckets);
}

/* Sum of squares of this rank's part: each element of the model is counted by one rank. */
static double bucket_sumsq(struct tr_rank *rank, const struct pl_bucket *bucket)
{
    const struct tr_group *copies = &rank->comms.copy[bucket->kind == PL_BUCKET_EXPERT];
    uint64_t lo = tr_block(bucket->shard_count, copies->size, copies->rank),
             hi = tr_block(bucket->shard_count, copies->size, copies->rank + 1);

    if ((pl_bucket_is_small(bucket) && rank->comms.tp.rank != 0) ||
        (bucket->kind == PL_BUCKET_TIED && rank->comms.tied.rank != 0))
        return 0.0;
    assert(bucket->grad.shard_at + hi <= rank->params.table.grad.count);
    return kn_sumsq(rank->pool, KN_F32, rank->params.grad + bucket->grad.shard_at + lo, hi - lo);
}

double tr_grads_reduce(struct tr_rank *rank, double *sums, int count)
{
    double all[8] = {0};
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_DP);

    for (int i = rank->params.table.nbuckets - 1; i >= 0; i--)
        if (!rank->async.asked[i])
            tr_async_reduce(rank, i);
    tr_async_drain(rank);
    tr_phase(&rank->clock, TR_PHASE_OPTIMIZER);
    for (int i = 0; i < rank->params.table.nbuckets; i++)
        all[0] += bucket_sumsq(rank, &rank->params.table.bucket[i]);
    assert(count < (int)ARRAY_LEN(all));
    memcpy(all + 1, sums, sizeof(*sums) * (size_t)count);
    tr_phase(&rank->clock, TR_PHASE_DP);
    tr_sum_double(&rank->comms.world, all, count + 1);
    tr_phase(&rank->clock, was);
    memcpy(sums, all + 1, sizeof(*sums) * (size_t)count);
    return sqrt(all[0]);
}

/* AdamW on COUNT elements of the shard of BUCKET, from its element FIRST on. */
static void update(struct tr_rank *rank, const struct kn_adamw *hyper,
                   const struct pl_bucket *bucket, uint64_t first, uint64_t count)
{
    struct tr_params *t = &rank->params;
    uint64_t at = bucket->weight.shard_at + first, state = bucket->state_first + first;
    float *w = t->master ? t->master + state : (float *)t->weight + at;
    kn_bf16 *low = t->master ? (kn_bf16 *)t->weight + at : NULL;

    assert(first + count <= bucket->shard_count && at + count <= t->table.weight.count);
    kn_adamw(rank->pool, hyper, w, low, t->m + state, t->v + state,
             t->grad + bucket->grad.shard_at + first, count);
}

/* Parameters [from, end) of the table, all of BUCKET; neighbors with the same decay are updated by
 * one call. */
static void update_some(struct tr_rank *rank, const struct tr_optim *optim, struct kn_adamw *hyper,
                        const struct pl_bucket *bucket, int from, int end)
{
    const struct pl_params *t = &rank->params.table;
    uint64_t run_first = 0, run = 0;
    bool run_decay = false;

    for (int i = from; i < end; i++) {
        uint64_t first, state, n = tr_param_state(&first, &state, &rank->params, i);

        if (n == 0)
            continue;
        state -= bucket->state_first;
        if (run && (state != run_first + run || t->p[i].decay != run_decay)) {
            hyper->weight_decay = run_decay ? (float)optim->weight_decay : 0.0f;
            update(rank, hyper, bucket, run_first, run);
            run = 0;
        }
        if (run == 0) {
            run_first = state;
            run_decay = t->p[i].decay;
        }
        run += n;
    }
    hyper->weight_decay = run_decay ? (float)optim->weight_decay : 0.0f;
    if (run)
        update(rank, hyper, bucket, run_first, run);
}

/* Whose weights are read first, or NULL. */
static const struct tr_layer *first_layer(const struct tr_rank *rank)
{
    for (int c = 0; c < rank->layout.vp; c++)
        if (rank->chunk[c].n)
            return &rank->chunk[c].layer[0];
    return NULL;
}

/* Buckets of norms and routers, or all others. The shards of a bucket that is held whole are asked
 * for as soon as this rank's is new. */
static void update_buckets(struct tr_rank *rank, const struct tr_optim *optim,
                           struct kn_adamw *hyper, bool small)
{
    const struct pl_params *t = &rank->params.table;

    for (int i = 0, end; i < t->n; i = end) {
        int b = t->p[i].bucket;

        for (end = i + 1; end < t->n && t->p[end].bucket == b;)
            end++;
        if (pl_bucket_is_small(&t->bucket[b]) != small)
            continue;
        update_some(rank, optim, hyper, &t->bucket[b], i, end);
        if (rank->layout.zero >= 1 && t->bucket[b].weight.window < 0)
            tr_async_gather(rank, b);
    }
}

void tr_optim_step(struct tr_rank *rank, const struct tr_optim *optim, int step, double norm)
{
    struct kn_adamw h = {.lr = (float)tr_lr_at(&optim->schedule, step),
                         .beta1 = (float)optim->beta1,
                         .beta2 = (float)optim->beta2,
                         .eps = (float)optim->eps,
                         .grad_scale = 1.0f,
                         .step = (uint64_t)step};
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_OPTIMIZER);

    if (optim->clip > 0 && norm > optim->clip)
        h.grad_scale = (float)(optim->clip / norm);
    assert(!tr_async_busy(rank) && h.grad_scale <= 1.0f); /* gradients are summed */
    /* A lane gathers in the order of asking: what the next step needs first comes first. */
    update_buckets(rank, optim, &h, true);
    update_buckets(rank, optim, &h, false);
    tr_windows_clear(rank);
    tr_window_prefetch(rank, NULL, first_layer(rank));
    if (rank->layout.overlap_param_gather)
        tr_async_poll(rank);
    else
        tr_async_drain(rank);
    kn_wait(rank->pool); /* the host may read weights, and a step's time has all of its work */
    tr_phase(&rank->clock, was);
}

void tr_optim_settle(struct tr_rank *rank)
{
    tr_async_drain(rank);
}
