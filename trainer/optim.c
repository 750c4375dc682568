#include "base/base.h"
#include "trainer/optim_parts.h"

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

void tr_span_arrays(struct tr_span_arrays *ret, const struct tr_rank *rank,
                    const struct tr_span_of *span)
{
    const struct tr_params *t = &rank->params;
    const struct pl_bucket *b = span->bucket;
    uint64_t at = b->weight.shard_at + span->first, state = b->state_first + span->first;

    assert(span->first + span->count <= b->shard_count &&
           at + span->count <= t->table.weight.count);
    *ret = (struct tr_span_arrays){.w = t->master ? t->master + state : (float *)t->weight + at,
                                   .low = t->master ? (kn_bf16 *)t->weight + at : NULL,
                                   .m = t->m + state,
                                   .v = t->v && !span->muon ? t->v + span->second : NULL,
                                   .g = t->grad + b->grad.shard_at + span->first};
}

bool tr_span_of_param(struct tr_span_of *ret, const struct tr_params *params, int index)
{
    const struct pl_param *p = &params->table.p[index];
    const struct pl_bucket *b = &params->table.bucket[p->bucket];
    uint64_t first, state, n = tr_param_state(&first, &state, params, index);
    bool muon = tr_param_is_muon(params, index);

    if (n == 0)
        return false;
    *ret = (struct tr_span_of){
        .bucket = b, .first = state - b->state_first, .count = n, .decay = p->decay, .muon = muon};
    if (params->optimizer != PL_SGD && !muon)
        ret->second = tr_param_second(params, index, state);
    return true;
}

void tr_optim_spans(struct tr_update *update, int from, int end, tr_span_fn *fn)
{
    struct tr_span_of run = {0}, next;

    for (int i = from; i < end; i++) {
        if (!tr_span_of_param(&next, &update->rank->params, i))
            continue;
        if (run.count && (next.bucket != run.bucket || next.first != run.first + run.count ||
                          next.decay != run.decay || next.muon != run.muon)) {
            fn(update, &run);
            run.count = 0;
        }
        if (run.count == 0)
            run = next;
        else
            run.count += next.count;
    }
    if (run.count)
        fn(update, &run);
}

/* Whose weights are read first, or NULL. */
static const struct tr_layer *first_layer(const struct tr_rank *rank)
{
    for (int c = 0; c < rank->layout.vp; c++)
        if (rank->chunk[c].n)
            return &rank->chunk[c].layer[0];
    return NULL;
}

struct kn_adamw tr_update_adamw(const struct tr_update *update, bool decay)
{
    const struct tr_optim *o = update->optim;

    return (struct kn_adamw){.lr = (float)update->lr,
                             .beta1 = (float)o->beta1,
                             .beta2 = (float)o->beta2,
                             .eps = (float)o->eps,
                             .weight_decay = decay ? (float)o->weight_decay : 0.0f,
                             .grad_scale = update->grad_scale,
                             .step = (uint64_t)update->step};
}

void tr_optim_adamw(struct tr_update *update, const struct tr_span_of *span)
{
    struct kn_adamw hyper = tr_update_adamw(update, span->decay);
    struct tr_span_arrays a;

    tr_span_arrays(&a, update->rank, span);
    kn_adamw(update->rank->pool, &hyper, a.w, a.low, a.m, a.v, a.g, span->count);
}

/* PyTorch's SGD: weight decay is part of the gradient. */
static void sgd(struct tr_update *update, const struct tr_span_of *span)
{
    const struct tr_optim *o = update->optim;
    struct kn_momentum hyper = {.mu = (float)o->sgd_momentum,
                                .weight_decay = span->decay ? (float)o->weight_decay : 0.0f,
                                .grad_scale = update->grad_scale};
    struct tr_span_arrays a;

    tr_span_arrays(&a, update->rank, span);
    kn_momentum(update->rank->pool, &hyper, a.w, a.m, a.g, span->count);
    kn_combine(update->rank->pool, a.w, a.low, 1, a.w, (float)-update->lr, a.g, span->count);
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

void tr_optim_step(struct tr_rank *rank, const struct tr_optim *optim, int step, double norm)
{
    struct tr_update update = {.rank = rank,
                               .optim = optim,
                               .lr = tr_lr_at(&optim->schedule, step),
                               .grad_scale = 1.0f,
                               .step = step};
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_OPTIMIZER);
    tr_bucket_fn *fn = elementwise;

    if (optim->clip > 0 && norm > optim->clip)
        update.grad_scale = (float)(optim->clip / norm);
    assert(!tr_async_busy(rank) && update.grad_scale <= 1.0f); /* gradients are summed */
    if (rank->workload.optimizer == PL_LAMB)
        fn = tr_lamb_begin(&update);
    if (rank->workload.optimizer == PL_MUON)
        fn = tr_muon_begin(&update);
    /* A lane gathers in the order of asking: what the next step needs first comes first. */
    each_bucket(&update, true, fn);
    each_bucket(&update, false, fn);
    tr_windows_clear(rank);
    tr_window_prefetch(rank, NULL, first_layer(rank));
    if (rank->layout.overlap_param_gather)
        tr_async_poll(rank);
    else
        tr_async_drain(rank);
    kn_wait(rank->pool); /* the host may read weights, and a step's time has all of its work */
    tr_phase(&rank->clock, was);
}

void tr_optim_init(struct tr_rank *rank)
{
    if (rank->workload.optimizer == PL_LAMB)
        rank->tensor_norms = mem_alloc(sizeof(*rank->tensor_norms) * tr_lamb_norms(&rank->model));
}

void tr_optim_done(struct tr_rank *rank)
{
    free(rank->tensor_norms);
    rank->tensor_norms = NULL;
}

void tr_optim_settle(struct tr_rank *rank)
{
    tr_async_drain(rank);
}
