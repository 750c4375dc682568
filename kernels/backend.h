/*
 * A backend: the operations and memory of one kind of device. Layers call kernels.h and do not know
 * which backend runs them.
 *
 * A pool (struct kn_pool) is a stream of the backend that was current when it was made. Operations
 * are launched on the stream that they are given: they take effect in the order of the calls and
 * may return before they are done. Structs, scalars and the offsets of groups are read before the
 * call returns; other arrays must not change until kn_wait. An operation that returns a value waits
 * for it. Without a pool (NULL) an operation runs on the host, whatever the current backend.
 *
 * A backend has memory that the host reaches, too, and may have memory of its own, which only
 * operations and kn_copy reach. The host may read and write the former between kn_wait and the next
 * launch that uses it; operations may be slow in it.
 *
 * A new backend is one struct kn_backend and a call of kn_backend_use() at the start of the
 * program. It may take kn_host_* for operations that it lacks, if it waits before them.
 */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H

#include "kernels/kernels.h"

#include <string.h>

struct kn_backend {
    const char *name;
    /* POOL is a new stream; false: the device refuses. NULL: nothing to do */
    bool (*open)(struct kn_pool *pool);
    void (*close)(struct kn_pool *pool); /* after the last wait; NULL: nothing to do */
    void *(*alloc)(size_t bytes);        /* zeros; NULL if there is no room */
    void (*free)(void *memory, size_t bytes);
    void *(*alloc_own)(size_t bytes); /* as alloc, of its own memory; NULL: the backend has none */
    void (*free_own)(void *memory, size_t bytes);
    size_t (*unused_own)(void); /* bytes; NULL, or 0: unknown */
    void (*copy)(struct kn_pool *pool, void *to, const void *from, size_t bytes);
    void (*wait)(struct kn_pool *pool); /* until all operations on POOL are done */
    /* As kn_pool_set_idle, kn_mark, kn_follow, kn_reached and kn_native; NULL, all of them:
     * operations are done when they return */
    void (*set_idle)(struct kn_pool *pool, void (*fn)(void *arg), void *arg);
    void (*mark)(struct kn_pool *pool, unsigned n);
    void (*follow)(struct kn_pool *follower, struct kn_pool *pool, unsigned n);
    bool (*reached)(struct kn_pool *pool, unsigned n);
    void *(*native)(const struct kn_pool *pool);
    /* As kn_stamp and kn_stamped; NULL, both: the same */
    void (*stamp)(struct kn_pool *pool, unsigned n);
    bool (*stamped)(uint64_t *ret_ns, struct kn_pool *pool, unsigned from, unsigned to);
    /* As kn_gemm_library, kn_gemm_algos and kn_gemm_use; NULL, all of them: there is no library */
    const char *(*gemm_library)(void);
    size_t (*gemm_algos)(struct kn_algo *ret, size_t most, const struct kn_gemm *gemm);
    bool (*gemm_use)(const struct kn_algo *algo);
    /* As kn_graph_begin, _end, _launch and _free; NULL, all of them: there are no graphs */
    void (*graph_begin)(struct kn_pool *pool);
    struct kn_graph *(*graph_end)(struct kn_pool *pool);
    void (*graph_launch)(struct kn_pool *pool, struct kn_graph *graph);
    void (*graph_free)(struct kn_graph *graph);
#define KN_BACKEND_MEMBER(op) __typeof__(kn_##op) *op;
    KN_BACKEND_OPS(KN_BACKEND_MEMBER)
#undef KN_BACKEND_MEMBER
};

/* GEMM's product. */
static inline struct kn_product kn_product_of(const struct kn_gemm *gemm)
{
    struct kn_product ret;

    memset(&ret, 0, sizeof(ret));
    ret.m = gemm->m;
    ret.n = gemm->n;
    ret.k = gemm->k;
    ret.lda = gemm->lda;
    ret.ldb = gemm->ldb;
    ret.ldc = gemm->ldc;
    ret.ta = gemm->ta;
    ret.tb = gemm->tb;
    ret.add = gemm->beta != 0;
    ret.at = (uint8_t)gemm->at;
    ret.bt = (uint8_t)gemm->bt;
    ret.ct = (uint8_t)gemm->ct;
    return ret;
}

/* The CPU backend, made of this folder's drivers: memory of the host, every operation done when it
 * returns. */
const struct kn_backend *kn_backend_host(void);

/* The current backend: what kn_backend_use was given last, or the host's. */
const struct kn_backend *kn_backend(void);

const struct kn_backend *kn_pool_backend(const struct kn_pool *pool); /* NULL: the host's */
/* The backend's own object for the stream, such as a cudaStream_t. */
void kn_pool_set_stream(struct kn_pool *pool, void *stream);
void *kn_pool_stream(const struct kn_pool *pool);

/* The host's implementations, for backends that lack some operations. */
#define KN_BACKEND_HOST(op) __typeof__(kn_##op) kn_host_##op;
KN_BACKEND_OPS(KN_BACKEND_HOST)
#undef KN_BACKEND_HOST

#endif
