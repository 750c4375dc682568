#include "trainer/async.h"

#include "base/base.h"
#include "trainer/rank.h"

#include <assert.h>

void tr_async_init(struct tr_rank *rank)
{
    int n = rank->params.table.nbuckets;

    rank->async.pending = mem_alloc(sizeof(*rank->async.pending) * (size_t)n);
    rank->async.asked = mem_alloc(sizeof(*rank->async.asked) * (size_t)n);
    for (int i = 0; i < 2; i++) {
        struct tr_lane *l = &rank->async.lane[i];

        l->cap = 4 * n; /* a bucket takes at most four collectives */
        l->op = mem_alloc(sizeof(*l->op) * (size_t)l->cap);
    }
}

/* Nothing may be received into memory that is about to go. */
void tr_async_done(struct tr_rank *rank)
{
    tr_async_drain(rank);
    for (int i = 0; i < rank->params.table.nbuckets; i++)
        assert(rank->async.pending[i] == 0);
    free(rank->async.pending);
    free(rank->async.asked);
    free(rank->async.lane[0].op);
    free(rank->async.lane[1].op);
    rank->async = (struct tr_async){0};
}

static const struct pl_bucket *bucket(const struct tr_rank *rank, int bucket)
{
    return &rank->params.table.bucket[bucket];
}

static bool expert(const struct pl_bucket *bucket)
{
    return bucket->kind == PL_BUCKET_EXPERT;
}

static void ask(struct tr_rank *rank, int i, struct tr_group *group, bool reduce, enum kn_type type,
                void *buf, uint64_t count)
{
    struct tr_lane *l = &rank->async.lane[expert(bucket(rank, i))];

    if (group->size == 1)
        return;
    assert(l->count < l->cap);
    l->op[l->count++] = (struct tr_async_op){
        .g = group, .reduce = reduce, .type = type, .buf = buf, .n = count, .bucket = i};
    rank->async.pending[i]++;
}

static void all_reduce(struct tr_rank *rank, int bucket, struct tr_group *group, float *values,
                       uint64_t count)
{
    ask(rank, bucket, group, true, KN_F32, values, count);
    ask(rank, bucket, group, false, KN_F32, values, count);
}

void tr_async_reduce(struct tr_rank *rank, int index)
{
    const struct pl_bucket *b = bucket(rank, index);
    float *g = rank->params.grad + b->first;

    assert(!rank->async.asked[index]); /* a second sum would count every replica twice */
    rank->async.asked[index] = true;
    /* With sp a norm or router has seen this tp rank's rows only; the norms of heads have always
     * seen its heads only. */
    if ((b->kind == PL_BUCKET_SMALL && rank->layout.sp) || b->kind == PL_BUCKET_HEADS)
        tr_all_reduce(&rank->comms.tp, KN_F32, g, b->count);
    /* The first stage has looked words up in it, the last has projected with it. */
    if (b->kind == PL_BUCKET_TIED)
        tr_all_reduce(&rank->comms.tied, KN_F32, g, b->count);
    if (rank->layout.zero == 0) {
        all_reduce(rank, index, expert(b) ? &rank->comms.edp : &rank->comms.dp, g, b->count);
        return;
    }
    ask(rank, index, expert(b) ? &rank->comms.edp : &rank->comms.shard, true, KN_F32, g, b->count);
    if (!expert(b))
        all_reduce(rank, index, &rank->comms.outer, rank->params.grad + b->shard_first,
                   b->shard_count);
}

void tr_async_gather(struct tr_rank *rank, int index)
{
    const struct pl_bucket *b = bucket(rank, index);

    assert(rank->layout.zero >= 1);
    ask(rank, index, expert(b) ? &rank->comms.edp : &rank->comms.shard, false, rank->type,
        (char *)rank->params.weight + b->first * kn_type_size(rank->type), b->count);
}

/* Settle the lane's collective, and start the next. */
static void advance(struct tr_rank *rank, struct tr_lane *lane)
{
    const struct tr_async_op *op;

    if (lane->busy) {
        assert(!lane->now.active && rank->async.pending[lane->op[lane->first - 1].bucket] > 0);
        lane->busy = false;
        rank->async.pending[lane->op[lane->first - 1].bucket]--;
    }
    if (lane->first == lane->count) {
        lane->first = lane->count = 0;
        return;
    }
    assert(lane->first < lane->count && lane->count <= lane->cap);
    op = &lane->op[lane->first++];
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
    return !idle(&rank->async.lane[0]) || !idle(&rank->async.lane[1]);
}

void tr_async_poll(struct tr_rank *rank)
{
    for (int i = 0; i < 2; i++) {
        struct tr_lane *l = &rank->async.lane[i];

        if (!idle(l) && (!l->busy || tr_coll_poll(&l->now)))
            advance(rank, l);
    }
}

static void finish_one(struct tr_rank *rank, struct tr_lane *lane)
{
    if (lane->busy)
        tr_coll_wait(&lane->now);
    advance(rank, lane);
}

void tr_async_drain(struct tr_rank *rank)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_DP);

    for (int i = 0; i < 2; i++)
        while (!idle(&rank->async.lane[i]))
            finish_one(rank, &rank->async.lane[i]);
    tr_phase(&rank->clock, was);
}

/* Buckets are gathered in the order of use within each lane: norms and routers, which are needed
 * from the start, then the others as the table has them. */
void tr_async_wait(struct tr_rank *rank, int chunk, int layer)
{
    enum tr_phase was;

    if (!tr_async_busy(rank))
        return;
    was = tr_phase(&rank->clock, TR_PHASE_DP);
    for (int i = 0; i < rank->params.table.nbuckets; i++) {
        const struct pl_bucket *b = bucket(rank, i);
        bool before = b->chunk < chunk || (b->chunk == chunk && b->layer <= layer);

        while ((before || pl_bucket_is_small(b)) && rank->async.pending[i] > 0)
            finish_one(rank, &rank->async.lane[expert(b)]);
    }
    tr_phase(&rank->clock, was);
}
