#include "base/base.h"
#include "trainer/balance.h"
#include "trainer/optim_parts.h"

#include <assert.h>
#include <math.h>

void tr_grads_zero(struct tr_rank *rank)
{
    kn_zero(rank->pool, rank->params.grad,
            rank->params.table.grad.count * kn_type_size(rank->params.grad_type));
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
    return kn_sumsq(rank->pool, rank->params.grad_type,
                    tr_grad_at(&rank->params, rank->params.grad, bucket->grad.shard_at + lo),
                    hi - lo);
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

/* Whose weights are read first, or NULL. */
static const struct tr_layer *first_layer(const struct tr_rank *rank)
{
    for (int c = 0; c < rank->layout.vp; c++)
        if (rank->chunk[c].n)
            return &rank->chunk[c].layer[0];
    return NULL;
}

/* PyTorch's SGD: weight decay is part of the gradient. */
static void sgd(struct tr_update *update, const struct tr_span_of *span)
{
    const struct tr_optim *o = update->optim;
    struct kn_momentum hyper = {.mu = (float)o->sgd_momentum,
                                .weight_decay = (float)tr_update_decay(update, span),
                                .grad_scale = update->grad_scale};
    struct tr_span_arrays a;

    tr_span_arrays(&a, update->rank, span);
    kn_momentum(update->rank->pool, &hyper, a.w, a.m, a.g, span->count);
    kn_combine(update->rank->pool, a.w, a.low, 1, a.w, (float)-update->lr[span->group], a.g,
               span->count);
}

/* FN for the buckets of norms and routers (SMALL), or all others. The shards of a bucket that is
 * held whole are asked for as soon as this rank's is new. */
static void each_bucket(struct tr_update *update, bool small, tr_bucket_fn *fn)
{
    struct tr_rank *rank = update->rank;
    const struct pl_params *t = &rank->params.table;

    for (int i = 0, end; i < t->n; i = end) {
        int b = t->p[i].bucket;

        for (end = i + 1; end < t->n && t->p[end].bucket == b;)
            end++;
        if (pl_bucket_is_small(&t->bucket[b]) != small)
            continue;
        fn(update, i, end);
        if (rank->layout.zero >= 1 && t->bucket[b].weight.window < 0)
            tr_async_gather(rank, b);
    }
}

static void elementwise(struct tr_update *update, int from, int end)
{
    bool plain = update->rank->workload.optimizer == PL_SGD;

    tr_optim_spans(update, from, end, plain ? sgd : tr_optim_adamw);
}

/* What follows the new weights, or those that stay. */
static void after(struct tr_rank *rank)
{
    tr_windows_clear(rank);
    tr_window_prefetch(rank, NULL, first_layer(rank));
    if (rank->layout.overlap_param_gather)
        tr_async_poll(rank);
    else
        tr_async_drain(rank);
    kn_wait(rank->pool); /* the host may read weights, and a step's time has all of its work */
}

void tr_optim_step(struct tr_rank *rank, const struct tr_optim *optim, int step, double norm)
{
    struct tr_update update = {.rank = rank,
                               .optim = optim,
                               .lr = {tr_lr_at(&optim->schedule, step)},
                               .grad_scale = 1.0f,
                               .step = step - optim->skipped};
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_OPTIMIZER);
    tr_bucket_fn *fn = elementwise;

    assert(!optim->groups || rank->params.group);
    for (int i = 1; optim->groups && i <= optim->groups->count; i++)
        update.lr[i] = tr_param_groups_lr(optim->groups, i, &optim->schedule, step);
    if (optim->clip > 0 && norm > optim->clip)
        update.grad_scale = (float)(optim->clip / norm);
    assert(!tr_async_busy(rank) && update.grad_scale <= 1.0f); /* gradients are summed */
    assert(update.step >= 1);
    assert(rank->params.grad_type == KN_F32 || rank->workload.optimizer == PL_ADAMW);
    if (rank->workload.optimizer == PL_LAMB)
        fn = tr_lamb_begin(&update);
    if (rank->workload.optimizer == PL_MUON)
        fn = tr_muon_begin(&update);
    tr_balance_step(rank);
    /* A lane gathers in the order of asking: what the next step needs first comes first. */
    each_bucket(&update, true, fn);
    each_bucket(&update, false, fn);
    after(rank);
    tr_phase(&rank->clock, was);
}

void tr_optim_skip(struct tr_rank *rank)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_OPTIMIZER);

    assert(!tr_async_busy(rank));
    tr_balance_step(rank);
    after(rank);
    tr_phase(&rank->clock, was);
}

void tr_optim_init(struct tr_rank *rank)
{
    if (rank->workload.optimizer == PL_LAMB)
        rank->tensor_norms = mem_alloc(sizeof(*rank->tensor_norms) * tr_lamb_norms(&rank->model));
}

void tr_optim_group(struct tr_rank *rank, const struct tr_param_groups *groups)
{
    struct tr_params *params = &rank->params;

    assert(!params->group);
    params->group = mem_alloc((size_t)params->table.n);
    for (int i = 0; i < params->table.n; i++)
        params->group[i] = (uint8_t)tr_param_groups_find(groups, params->table.p[i].name);
}

void tr_optim_done(struct tr_rank *rank)
{
    free(rank->params.group);
    rank->params.group = NULL;
    free(rank->tensor_norms);
    rank->tensor_norms = NULL;
}

void tr_optim_settle(struct tr_rank *rank)
{
    tr_async_drain(rank);
}
