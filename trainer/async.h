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
    int bucket;
};

struct tr_lane {
    struct tr_async_op *op; /* (cap) */
    int first, count, cap;  /* [first, count) are waiting; count is reset when all are done */
    struct tr_coll now;     /* runs op[first - 1] while `busy` */
    bool busy;
};

struct tr_async {
    struct tr_lane lane[2];
    int *pending; /* (nbuckets): collectives that a bucket still waits for */
    bool *asked;  /* (nbuckets): its gradients are being or have been reduced in this step */
};

void tr_async_init(struct tr_rank *rank);
void tr_async_done(struct tr_rank *rank);

/* The gradients of BUCKET are complete on this rank: sum them over the replicas. */
void tr_async_reduce(struct tr_rank *rank, int index);
/* This rank's shard of the weights of BUCKET was updated: gather all shards. */
void tr_async_gather(struct tr_rank *rank, int index);

/* A collective was requested and is not complete. */
bool tr_async_busy(const struct tr_rank *rank);
void tr_async_poll(struct tr_rank *rank);
void tr_async_drain(struct tr_rank *rank);
/* Wait for the weights of layer LAYER of chunk CHUNK and of all layers before it. */
void tr_async_wait(struct tr_rank *rank, int chunk, int layer);

#endif
