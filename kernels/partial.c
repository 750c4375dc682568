/* Sums to which several threads add (pool.h). */
#include "kernels/ops.h"

void kn_partial_begin(float *ret_sum[KN_SUMS], struct kn_partial *partial,
                      const struct kn_share *share)
{
    assert(share->thread < KN_PARTIAL_THREADS);
    for (int i = 0; i < KN_SUMS; i++) {
        ret_sum[i] = partial->sum[i];
        if (!ret_sum[i] || share->thread == 0)
            continue;
        ret_sum[i] = share->scratch + (size_t)i * partial->count;
        memset(ret_sum[i], 0, partial->count * sizeof(float));
        partial->used[share->thread] = 1;
    }
}

void kn_partial_end(const struct kn_partial *partial, struct kn_pool *pool)
{
    struct kn_pool *own = kn_pool_acquire(pool);
    int threads = kn_pool_threads(own);

    assert(threads <= KN_PARTIAL_THREADS);
    for (int t = 1; t < threads; t++)
        for (int i = 0; partial->used[t] && i < KN_SUMS; i++)
            if (partial->sum[i])
                kn_ops()->add(partial->sum[i], partial->sum[i],
                              kn_pool_scratch(own, t) + (size_t)i * partial->count, partial->count);
    kn_pool_release(pool);
}
