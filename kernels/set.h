/*
 * The seam for devices: what a set of kernels provides, so that layers neither know nor care where
 * their arrays are and who computes on them.
 *
 * A pool (struct kn_pool) is a queue of the set that was in use when it was made. Operations of
 * kernels.h are launched on the queue that they are given: they take effect in the order of the
 * calls and may return before they are done. Structs, scalars and the offsets of groups are read
 * before the call returns; other arrays must stay as they are until kn_wait. Operations that return
 * a value wait for it. Without a pool (NULL) an operation is the host's, whatever set is in use.
 *
 * Memory of a set has addresses that the host may read and write between kn_wait and the next
 * launch that uses them (CUDA calls it managed). MPI and checkpoints rely on it.
 *
 * A new set is one struct kn_set and, at the start of the program, kn_set_use(). It may take
 * kn_host_* for operations that it lacks, if it waits before them.
 */
#ifndef KERNELS_SET_H
#define KERNELS_SET_H

#include "kernels/kernels.h"

/* The operations of kernels.h that are launched, each with the type it has there. */
/* clang-format off */
#define KN_SET_OPS(X)                                                                              \
    X(gemm) X(gemm_grouped) X(rmsnorm_fwd) X(rmsnorm_bwd) X(rope) X(attn_fwd) X(attn_bwd)          \
    X(embed_fwd) X(embed_bwd) X(xent_max) X(xent_sum) X(xent_grad) X(swiglu_fwd)                   \
    X(swiglu_bwd) X(router_fwd) X(router_bwd) X(permute) X(unpermute) X(unpermute_bwd)             \
    X(zero) X(copy2d) X(transpose) X(convert) X(add) X(scale) X(axpy) X(sumsq)                     \
    X(any_nonfinite) X(adamw)
/* clang-format on */

struct kn_set {
    const char *name;
    bool (*open)(
        struct kn_pool
            *pool); /* POOL is a new queue; false: the device refuses. NULL: nothing to do */
    void (*close)(struct kn_pool *pool); /* after the last wait; NULL: nothing to do */
    void *(*alloc)(size_t bytes);        /* zeros; NULL if there is no room */
    void (*free)(void *memory, size_t bytes);
    void (*copy)(struct kn_pool *pool, void *to, const void *from, size_t bytes);
    void (*wait)(struct kn_pool *pool); /* until all that POOL was given is done */
#define KN_SET_MEMBER(op) __typeof__(kn_##op) *op;
    KN_SET_OPS(KN_SET_MEMBER)
#undef KN_SET_MEMBER
};

/* The set of this folder's drivers: memory of the host, every operation done when it returns. */
const struct kn_set *kn_set_host(void);

/* What kn_set_use was given. */
const struct kn_set *kn_set(void);

const struct kn_set *kn_pool_set(const struct kn_pool *pool); /* NULL: the host's */
/* What the set keeps for the queue, a stream for example. */
void kn_pool_set_queue(struct kn_pool *pool, void *queue);
void *kn_pool_queue(const struct kn_pool *pool);

/* The host's implementations, for sets that have an operation of their own only for some. */
#define KN_SET_HOST(op) __typeof__(kn_##op) kn_host_##op;
KN_SET_OPS(KN_SET_HOST)
#undef KN_SET_HOST

#endif
