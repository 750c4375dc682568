/*
 * Threads, for the drivers of this folder: a pool's scratch memory, an operation divided over its
 * threads, and sums to which several of them add. kernels.h has what callers see of a pool.
 */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include <stdatomic.h>

#include "kernels/kernels.h"

/* ---- pool.c -------------------------------------------------------------- */

/* As kn_pool_new(), on a stream of BACKEND; and that backend, NULL of the built-in pool. */
struct kn_pool *kn_pool_on(const struct kn_backend *backend, int threads);
const struct kn_backend *kn_pool_made_on(const struct kn_pool *pool);

/* Scratch memory of one thread, KN_SCRATCH_BYTES, page-aligned. */
float *kn_pool_scratch(struct kn_pool *pool, int thread);
/* Called by thread 0 between blocks of work. */
void kn_pool_poll(struct kn_pool *pool, int thread);
/* POOL, or if NULL the built-in pool, locked until kn_pool_release. */
struct kn_pool *kn_pool_acquire(struct kn_pool *pool);
void kn_pool_release(struct kn_pool *pool);

/* Spin until *COUNTER, which another thread of the same job increases, is above BOUND. Acquire:
 * what that thread wrote before is then visible. */
void kn_wait_above(atomic_uint *counter, unsigned bound);

/* One thread's share of an operation: elements [lo, hi), and KN_SCRATCH_BYTES of its own. */
struct kn_share {
    struct kn_pool *pool;
    int thread, threads;
    size_t lo, hi;
    float *scratch;
};

/* Call after each ROW of a share: polls every few rows. */
static inline void kn_row_done(const struct kn_share *share, size_t row)
{
    if (row % 16 == 15)
        kn_pool_poll(share->pool, share->thread);
}

/* Split [0, count) over the threads in multiples of UNIT and run FN(ARG, share) on each non-empty
 * part. A thread gets at least GRAIN elements, so small work stays on the caller. */
void kn_parallel(struct kn_pool *pool, size_t count, size_t unit, size_t grain,
                 void (*fn)(void *arg, const struct kn_share *share), void *arg);

/* ---- partial.c ----------------------------------------------------------- */

/*
 * Sums over rows, such as the gradient of a weight that all rows share. Thread 0 adds straight to
 * the results; each other thread to partial sums of its own at the start of its scratch, which are
 * added to the results in the order of threads. So results repeat for a given number of threads.
 */
enum { KN_SUMS = 2, KN_PARTIAL_THREADS = 256 };

struct kn_partial {
    float *sum[KN_SUMS]; /* (count) the results; NULL: not wanted */
    size_t count;
    unsigned char used[KN_PARTIAL_THREADS]; /* threads that have partial sums */
};

/* Where SHARE adds, into RET_SUM (NULL where the result is); zeroed unless they are the results.
 * The first KN_SUMS x count elements of its scratch are taken. */
void kn_partial_begin(float *ret_sum[KN_SUMS], struct kn_partial *partial,
                      const struct kn_share *share);
/* After kn_parallel(): complete the results. */
void kn_partial_end(const struct kn_partial *partial, struct kn_pool *pool);

/* ---- gather.c ------------------------------------------------------------ */

/* Gather the share's rows of Y, BYTES each: row r is copied from FROM(ARG, r), or zeroed where that
 * is NULL. */
void kn_gather_rows(void *y, const void *(*from)(const void *arg, size_t row), const void *arg,
                    size_t bytes, const struct kn_share *share);

#endif
