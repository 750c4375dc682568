#include "trainer/window.h"

#include "base/base.h"
#include "trainer/rank.h"

#include <assert.h>

static const struct pl_bucket *bucket(const struct tr_rank *rank, int index)
{
    return &rank->params.table.bucket[index];
}

void tr_window_layer(struct tr_layer *layer, const struct tr_rank *rank, int chunk, int index)
{
    layer->bucket[0] = layer->bucket[1] = -1;
    for (int i = 0; i < rank->params.table.nbuckets; i++) {
        const struct pl_bucket *b = bucket(rank, i);

        if (b->grad.window >= 0 && b->chunk == chunk && b->layer == index)
            layer->bucket[b->kind == PL_BUCKET_EXPERT] = i;
    }
}

void tr_windows_clear(struct tr_rank *rank)
{
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < PL_WINDOWS; i++)
            rank->windows.weights[kind][i] = rank->windows.grads[kind][i] = -1;
}

static bool gathers(const struct tr_rank *rank, int index)
{
    return index >= 0 && bucket(rank, index)->weight.window >= 0;
}

/* Ask for the weights of bucket INDEX, number KIND of its layer's. */
static void fetch(struct tr_rank *rank, int index, int kind)
{
    const struct pl_bucket *b = bucket(rank, index);
    int *holds = &rank->windows.weights[kind][b->weight.window];
    size_t size = kn_type_size(rank->type);
    char *weights = rank->params.weight;

    if (*holds == index)
        return;
    if (*holds >= 0) /* asked for ahead of time, and another layer came first */
        tr_async_wait_weights(rank, *holds);
    *holds = index;
    kn_copy(rank->pool, weights + (b->weight.at + b->shard_first - b->first) * size,
            weights + b->weight.shard_at * size, b->shard_count * size);
    tr_async_gather(rank, index);
}

void tr_window_weights(struct tr_rank *rank, const struct tr_layer *layer)
{
    for (int kind = 0; kind < 2; kind++)
        if (gathers(rank, layer->bucket[kind]))
            fetch(rank, layer->bucket[kind], kind);
    for (int kind = 0; kind < 2; kind++)
        if (gathers(rank, layer->bucket[kind]))
            tr_async_wait_weights(rank, layer->bucket[kind]);
}

/* Bucket MINE of a layer that computes is in the window of bucket INDEX. */
static bool in_use(const struct tr_rank *rank, int mine, int index)
{
    return gathers(rank, mine) && mine != index &&
           bucket(rank, mine)->weight.window == bucket(rank, index)->weight.window;
}

void tr_window_prefetch(struct tr_rank *rank, const struct tr_layer *layer,
                        const struct tr_layer *next)
{
    if (!rank->layout.overlap_param_gather || !next)
        return;
    for (int kind = 0; kind < 2; kind++) {
        int index = next->bucket[kind];

        if (gathers(rank, index) && !(layer && in_use(rank, layer->bucket[kind], index)))
            fetch(rank, index, kind);
    }
    tr_async_poll(rank);
}

void tr_window_grads(struct tr_rank *rank, const struct tr_layer *layer)
{
    for (int kind = 0; kind < 2; kind++) {
        const struct pl_bucket *b;
        int index = layer->bucket[kind], *holds;

        if (index < 0)
            continue;
        b = bucket(rank, index);
        holds = &rank->windows.grads[kind][b->grad.window];
        if (*holds >= 0)
            tr_async_wait_grads(rank, *holds);
        *holds = index;
        kn_zero(rank->pool, tr_grad_at(&rank->params, rank->params.grad, b->grad.at),
                b->count * kn_type_size(rank->params.grad_type));
    }
}

void tr_window_scatter(struct tr_rank *rank, const struct tr_layer *layer)
{
    for (int kind = 0; kind < 2; kind++)
        if (layer->bucket[kind] >= 0)
            tr_async_scatter(rank, layer->bucket[kind]);
    if (rank->layout.overlap_grad_reduce) {
        tr_async_poll(rank);
        return;
    }
    for (int kind = 0; kind < 2; kind++)
        if (layer->bucket[kind] >= 0)
            tr_async_wait_grads(rank, layer->bucket[kind]);
}
