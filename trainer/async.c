#include "trainer/async.h"

#include "base/base.h"
#include "trainer/rank.h"

#include <assert.h>

void tr_async_init(struct tr_rank *r)
{
    int n = r->params.table.nbuckets;

    r->async.pending = mem_alloc(sizeof(*r->async.pending) * (size_t)n);
    r->async.asked = mem_alloc(sizeof(*r->async.asked) * (size_t)n);
    for (int i = 0; i < 2; i++) {
        struct tr_lane *l = &r->async.lane[i];

        l->cap = 4 * n; /* a bucket takes at most four collectives */
        l->op = mem_alloc(sizeof(*l->op) * (size_t)l->cap);
    }
}

/* Nothing may be received into memory that is about to go. */
void tr_async_done(struct tr_rank *r)
{
    tr_async_drain(r);
    free(r->async.pending);
    free(r->async.asked);
    free(r->async.lane[0].op);
    free(r->async.lane[1].op);
    r->async = (struct tr_async){0};
}

static const struct pl_bucket *bucket(const struct tr_rank *r, int i)
{
    return &r->params.table.bucket[i];
}

static bool expert(const struct pl_bucket *b)
{
    return b->kind == PL_BUCKET_EXPERT;
}

static void ask(struct tr_rank *r, int i, struct tr_group *g, bool reduce, enum kn_type t,
                void *buf, uint64_t n)
{
    struct tr_lane *l = &r->async.lane[expert(bucket(r, i))];

    if (g->size == 1)
        return;
    assert(l->count < l->cap);
    l->op[l->count++] =
        (struct tr_async_op){.g = g, .reduce = reduce, .type = t, .buf = buf, .n = n, .bucket = i};
    r->async.pending[i]++;
}

static void all_reduce(struct tr_rank *r, int i, struct tr_group *g, float *x, uint64_t n)
{
    ask(r, i, g, true, KN_F32, x, n);
    ask(r, i, g, false, KN_F32, x, n);
}

void tr_async_reduce(struct tr_rank *r, int i)
{
    const struct pl_bucket *b = bucket(r, i);
    float *g = r->params.grad + b->first;

    r->async.asked[i] = true;
    /* With sp a norm or router has seen this tp rank's rows only. */
    if (b->kind == PL_BUCKET_SMALL && r->layout.sp)
        tr_all_reduce(&r->comms.tp, KN_F32, g, b->count);
    /* The first stage has looked words up in it, the last has projected with it. */
    if (b->kind == PL_BUCKET_TIED)
        tr_all_reduce(&r->comms.tied, KN_F32, g, b->count);
    if (r->layout.zero == 0) {
        all_reduce(r, i, expert(b) ? &r->comms.edp : &r->comms.dp, g, b->count);
        return;
    }
    ask(r, i, expert(b) ? &r->comms.edp : &r->comms.shard, true, KN_F32, g, b->count);
    if (!expert(b))
        all_reduce(r, i, &r->comms.outer, r->params.grad + b->shard_first, b->shard_count);
}

void tr_async_gather(struct tr_rank *r, int i)
{
    const struct pl_bucket *b = bucket(r, i);

    ask(r, i, expert(b) ? &r->comms.edp : &r->comms.shard, false, r->type,
        (char *)r->params.weight + b->first * kn_type_size(r->type), b->count);
}

/* Settle the lane's collective, and start the next. */
static void advance(struct tr_rank *r, struct tr_lane *l)
{
    const struct tr_async_op *op;

    if (l->busy) {
        l->busy = false;
        r->async.pending[l->op[l->first - 1].bucket]--;
    }
    if (l->first == l->count) {
        l->first = l->count = 0;
        return;
    }
    op = &l->op[l->first++];
    l->busy = true;
    if (op->reduce)
        tr_reduce_scatter_start(&l->now, op->g, op->type, op->buf, op->n);
    else
        tr_all_gather_start(&l->now, op->g, op->type, op->buf, op->n);
}

static bool idle(const struct tr_lane *l)
{
    return !l->busy && l->first == l->count;
}

bool tr_async_busy(const struct tr_rank *r)
{
    return !idle(&r->async.lane[0]) || !idle(&r->async.lane[1]);
}

void tr_async_poll(struct tr_rank *r)
{
    for (int i = 0; i < 2; i++) {
        struct tr_lane *l = &r->async.lane[i];

        if (!idle(l) && (!l->busy || tr_coll_poll(&l->now)))
            advance(r, l);
    }
}

static void finish_one(struct tr_rank *r, struct tr_lane *l)
{
    if (l->busy)
        tr_coll_wait(&l->now);
    advance(r, l);
}

void tr_async_drain(struct tr_rank *r)
{
    enum tr_phase was = tr_phase(&r->clock, TR_PHASE_DP);

    for (int i = 0; i < 2; i++)
        while (!idle(&r->async.lane[i]))
            finish_one(r, &r->async.lane[i]);
    tr_phase(&r->clock, was);
}

/* Buckets are gathered in the order of use within each lane: norms and routers, which are needed
 * from the start, then the others as the table has them. */
void tr_async_need(struct tr_rank *r, int chunk, int layer)
{
    enum tr_phase was;

    if (!tr_async_busy(r))
        return;
    was = tr_phase(&r->clock, TR_PHASE_DP);
    for (int i = 0; i < r->params.table.nbuckets; i++) {
        const struct pl_bucket *b = bucket(r, i);
        bool before = b->chunk < chunk || (b->chunk == chunk && b->layer <= layer);

        while ((before || b->kind == PL_BUCKET_SMALL) && r->async.pending[i] > 0)
            finish_one(r, &r->async.lane[expert(b)]);
    }
    tr_phase(&r->clock, was);
}
