/*
 * Reductions of gradients and gathers of weights, bucket by bucket, that may overlap computation.
 *
 * There are two lanes, one for each scratch buffer: buckets of the dense mesh, and experts. A lane
 * does one collective at a time in the order of asking, which must be the same on all members of
 * its groups; it is, because that order follows from the schedule. tr_async_poll() makes progress
 * and never waits: the kernels call it from inside long operations when the layout asks for
 * overlap. Without overlap the same queue is filled and drained at the end of the step.
 */
#ifndef TRAINER_ASYNC_H
#define TRAINER_ASYNC_H

#include "trainer/coll.h"

struct tr_rank;

struct tr_async_op {
    struct tr_group *g;
    bool reduce; /* reduce-scatter, else all-gather */
    enum kn_type type;
    void *buf;
    uint64_t n;
    void *into;   /* this rank's block is added there at the end; NULL: it stays in BUF */
    int *pending; /* counts this op */
};

struct tr_lane {
    struct tr_async_op *op; /* (cap), used in turn */
    int first, count, cap; /* [first, count) are waiting, modulo cap; both are reset when none is */
    struct tr_coll now;    /* runs op[first - 1] while `busy` */
    bool busy;
};

struct tr_async {
    struct tr_lane lane[2];
    /* (nbuckets): collectives that a bucket's weights, and its gradients, still wait for */
    int *weights, *grads;
    int aside;   /* of these, on the second stream of NCCL, in place of the lanes */
    bool *asked; /* (nbuckets): its gradients are being or have been reduced in this step */
};

void tr_async_init(struct tr_rank *rank);
void tr_async_done(struct tr_rank *rank);

/* The gradients of bucket INDEX are complete on this rank: sum them over the replicas. Those of a
 * window have been added to the shard (tr_async_scatter), which only its copies have yet to sum. */
void tr_async_reduce(struct tr_rank *rank, int index);
/* What a micro-batch adds to the gradients of bucket INDEX is complete in its window: add it,
 * summed over the ranks that share the bucket, to this rank's shard. */
void tr_async_scatter(struct tr_rank *rank, int index);
/* This rank's shard of the weights of bucket INDEX is in its place in the whole: gather all. */
void tr_async_gather(struct tr_rank *rank, int index);
/* Wait for the weights of bucket INDEX, or for what is done with its gradients. */
void tr_async_wait_weights(struct tr_rank *rank, int index);
void tr_async_wait_grads(struct tr_rank *rank, int index);

/* A collective was requested and is not complete. */
bool tr_async_busy(const struct tr_rank *rank);
void tr_async_poll(struct tr_rank *rank);
void tr_async_drain(struct tr_rank *rank);
/* Wait for the weights of layer LAYER of chunk CHUNK and of all layers before it. */
void tr_async_wait(struct tr_rank *rank, int chunk, int layer);

#endif
