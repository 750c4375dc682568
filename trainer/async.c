#include "trainer/async.h"

#include "base/base.h"
#include "trainer/nccl.h"
#include "trainer/rank.h"

#include <assert.h>

void tr_async_init(struct tr_rank *rank)
{
    int n = rank->params.table.nbuckets;

    rank->async.weights = mem_alloc(sizeof(*rank->async.weights) * (size_t)n);
    rank->async.grads = mem_alloc(sizeof(*rank->async.grads) * (size_t)n);
    rank->async.asked = mem_alloc(sizeof(*rank->async.asked) * (size_t)n);
    for (int i = 0; i < 2; i++) {
        struct tr_lane *l = &rank->async.lane[i];

        /* a bucket takes at most three for its gradients and one for its weights; and one runs */
        l->cap = 4 * n + 1;
        l->op = mem_alloc(sizeof(*l->op) * (size_t)l->cap);
    }
}

/* Nothing may be received into memory that is about to go. */
void tr_async_done(struct tr_rank *rank)
{
    tr_async_drain(rank);
    for (int i = 0; i < rank->params.table.nbuckets; i++)
        assert(rank->async.weights[i] == 0 && rank->async.grads[i] == 0);
    free(rank->async.weights);
    free(rank->async.grads);
    free(rank->async.asked);
    free(rank->async.lane[0].op);
    free(rank->async.lane[1].op);
    rank->async = (struct tr_async){0};
}

static const struct pl_bucket *bucket(const struct tr_rank *rank, int bucket)
{
    return &rank->params.table.bucket[bucket];
}

/* Where the second stream of NCCL is when it has done what bucket I has asked for, or later. */
static unsigned point(int index)
{
    return (unsigned)index % KN_MARKS;
}

static bool expert(const struct pl_bucket *bucket)
{
    return bucket->kind == PL_BUCKET_EXPERT;
}

/* OP of bucket I, aside, and what is to be done with its sum. */
static void launch(struct tr_rank *rank, int i, const struct tr_async_op *op)
{
    struct kn_pool *aside = tr_nccl_aside(&rank->comms);
    uint64_t lo = tr_block(op->n, op->g->size, op->g->rank),
             hi = tr_block(op->n, op->g->size, op->g->rank + 1);

    if (op->reduce)
        tr_nccl_reduce_scatter(op->g, op->type, op->buf, op->n, true);
    else
        tr_nccl_all_gather(op->g, op->type, op->buf, op->n, true);
    if (op->into)
        kn_add(aside, op->type, op->into, op->into, (char *)op->buf + lo * kn_type_size(op->type),
               hi - lo);
    kn_mark(aside, point(i));
    rank->async.aside++;
}

/* Queue OP of bucket I, unless its group has one member. */
static void ask(struct tr_rank *rank, int i, struct tr_async_op op)
{
    struct tr_lane *l = &rank->async.lane[expert(bucket(rank, i))];

    if (op.g->size == 1)
        return;
    ++*op.pending;
    if (tr_nccl_takes(op.g, op.buf)) {
        launch(rank, i, &op);
        return;
    }
    assert(l->count - l->first < l->cap - 1);
    l->op[l->count++ % l->cap] = op;
}

static void all_reduce(struct tr_rank *rank, int i, struct tr_group *group, void *values,
                       uint64_t count)
{
    struct tr_async_op op = {.g = group,
                             .type = rank->params.grad_type,
                             .buf = values,
                             .n = count,
                             .pending = &rank->async.grads[i]};

    op.reduce = true;
    ask(rank, i, op);
    op.reduce = false;
    ask(rank, i, op);
}

static void *grad_at(const struct tr_rank *rank, uint64_t at)
{
    return tr_grad_at(&rank->params, rank->params.grad, at);
}

static void reduce_scatter(struct tr_rank *rank, int i, void *into)
{
    const struct pl_bucket *b = bucket(rank, i);

    ask(rank, i,
        (struct tr_async_op){.g = &rank->comms.shard[expert(b)],
                             .reduce = true,
                             .type = rank->params.grad_type,
                             .buf = grad_at(rank, b->grad.at),
                             .n = b->count,
                             .into = into,
                             .pending = &rank->async.grads[i]});
}

void tr_async_scatter(struct tr_rank *rank, int index)
{
    const struct pl_bucket *b = bucket(rank, index);

    assert(b->grad.window >= 0 && !rank->async.asked[index]);
    reduce_scatter(rank, index, grad_at(rank, b->grad.shard_at));
}

void tr_async_reduce(struct tr_rank *rank, int index)
{
    const struct pl_bucket *b = bucket(rank, index);
    enum kn_type type = rank->params.grad_type;
    void *g = grad_at(rank, b->grad.at);

    assert(!rank->async.asked[index]); /* a second sum would count every replica twice */
    rank->async.asked[index] = true;
    /* With sp a norm or router has seen this tp rank's rows only; the norms of heads have always
     * seen its heads only. */
    if ((b->kind == PL_BUCKET_SMALL && rank->layout.sp) || b->kind == PL_BUCKET_HEADS)
        tr_all_reduce(&rank->comms.tp, type, g, b->count);
    /* The first stage has looked words up in it, the last has projected with it. */
    if (b->kind == PL_BUCKET_TIED)
        tr_all_reduce(&rank->comms.tied, type, g, b->count);
    if (b->grad.window < 0)
        reduce_scatter(rank, index, NULL);
    all_reduce(rank, index, &rank->comms.copy[expert(b)], grad_at(rank, b->grad.shard_at),
               b->shard_count);
}

void tr_async_gather(struct tr_rank *rank, int index)
{
    const struct pl_bucket *b = bucket(rank, index);

    assert(rank->layout.zero >= 1);
    ask(rank, index,
        (struct tr_async_op){.g = &rank->comms.shard[expert(b)],
                             .type = rank->type,
                             .buf = (char *)rank->params.weight +
                                    b->weight.at * kn_type_size(rank->type),
                             .n = b->count,
                             .pending = &rank->async.weights[index]});
}

/* The lane's collective is done. */
static void settle(struct tr_lane *lane)
{
    const struct tr_async_op *op = &lane->op[(lane->first - 1) % lane->cap];
    uint64_t lo = tr_block(op->n, op->g->size, op->g->rank),
             hi = tr_block(op->n, op->g->size, op->g->rank + 1);

    assert(!lane->now.active && *op->pending > 0);
    if (op->into)
        kn_add(tr_coll_adder(op->g, op->into), op->type, op->into, op->into,
               (char *)op->buf + lo * kn_type_size(op->type), hi - lo);
    lane->busy = false;
    --*op->pending;
}

/* Settle the lane's collective, and start the next. */
static void advance(struct tr_lane *lane)
{
    const struct tr_async_op *op;

    if (lane->busy)
        settle(lane);
    if (lane->first == lane->count) {
        lane->first = lane->count = 0;
        return;
    }
    assert(lane->first < lane->count && lane->count - lane->first < lane->cap);
    op = &lane->op[lane->first++ % lane->cap];
    lane->busy = true;
    if (op->reduce)
        tr_reduce_scatter_start(&lane->now, op->g, op->type, op->buf, op->n);
    else
        tr_all_gather_start(&lane->now, op->g, op->type, op->buf, op->n);
}

static bool idle(const struct tr_lane *lane)
{
    return !lane->busy && lane->first == lane->count;
}

bool tr_async_busy(const struct tr_rank *rank)
{
    return rank->async.aside || !idle(&rank->async.lane[0]) || !idle(&rank->async.lane[1]);
}

void tr_async_poll(struct tr_rank *rank)
{
    for (int i = 0; i < 2; i++) {
        struct tr_lane *l = &rank->async.lane[i];

        if (!idle(l) && (!l->busy || tr_coll_poll(&l->now)))
            advance(l);
    }
}

static void finish_one(struct tr_lane *lane)
{
    if (lane->busy)
        tr_coll_wait(&lane->now);
    advance(lane);
}

/* The stream waits for the second one of NCCL. */
static void follow(struct tr_rank *rank, int index)
{
    uint64_t since = tr_clock_waits(&rank->clock);

    kn_follow(rank->pool, tr_nccl_aside(&rank->comms), point(index));
    tr_clock_waited(&rank->clock, since);
}

/* Until PENDING of bucket INDEX is 0. */
static void finish(struct tr_rank *rank, int index, int *pending)
{
    struct tr_lane *lane = &rank->async.lane[expert(bucket(rank, index))];
    enum tr_phase was;

    if (*pending == 0)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_DP);
    if (rank->async.aside) {
        follow(rank, index);
        rank->async.aside -= *pending;
        *pending = 0;
    }
    while (*pending > 0)
        finish_one(lane);
    tr_phase(&rank->clock, was);
}

void tr_async_wait_weights(struct tr_rank *rank, int index)
{
    finish(rank, index, &rank->async.weights[index]);
}

void tr_async_wait_grads(struct tr_rank *rank, int index)
{
    finish(rank, index, &rank->async.grads[index]);
}

void tr_async_drain(struct tr_rank *rank)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_DP);

    for (int i = 0; i < rank->params.table.nbuckets && rank->async.aside; i++) {
        tr_async_wait_weights(rank, i);
        tr_async_wait_grads(rank, i);
    }
    for (int i = 0; i < 2; i++)
        while (!idle(&rank->async.lane[i]))
            finish_one(&rank->async.lane[i]);
    tr_phase(&rank->clock, was);
}

/* Buckets are gathered in the order of use within each lane: norms and routers, which are needed
 * from the start, then the others as the table has them. */
void tr_async_wait(struct tr_rank *rank, int chunk, int layer)
{
    if (!tr_async_busy(rank))
        return;
    for (int i = 0; i < rank->params.table.nbuckets; i++) {
        const struct pl_bucket *b = bucket(rank, i);
        bool before = b->chunk < chunk || (b->chunk == chunk && b->layer <= layer);

        if (b->weight.window < 0 && (before || pl_bucket_is_small(b)))
            tr_async_wait_weights(rank, i);
    }
}
