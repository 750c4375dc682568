/* The host's backend, memory and waits. What calls the backend of a pool is made by calls.awk. */
#include "kernels/backend.h"
#include "kernels/pool.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

static void *host_alloc(size_t bytes)
{
    /* Pages that are never touched cost nothing. */
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    if (m == MAP_FAILED)
        return NULL;
    (void)madvise(m, bytes, MADV_HUGEPAGE); /* fewer TLB misses; harmless if refused */
    return m;
}

static void host_free(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

static void host_copy(struct kn_pool *pool, void *to, const void *from, size_t bytes)
{
    (void)pool;
    memcpy(to, from, bytes);
}

static void host_wait(struct kn_pool *pool)
{
    (void)pool; /* operations are done when they return */
}

const struct kn_backend *kn_backend_host(void)
{
    static const struct kn_backend host = {.name = "host",
                                           .alloc = host_alloc,
                                           .free = host_free,
                                           .copy = host_copy,
                                           .wait = host_wait,
#define HOST_OP(op) .op = kn_host_##op,
                                           KN_BACKEND_OPS(HOST_OP)
#undef HOST_OP
    };

    return &host;
}

static const struct kn_backend *in_use;

void kn_backend_use(const struct kn_backend *backend)
{
    in_use = backend;
}

const struct kn_backend *kn_backend(void)
{
    return in_use ? in_use : kn_backend_host();
}

struct kn_pool *kn_pool_new(int threads)
{
    return kn_pool_on(kn_backend(), threads);
}

struct kn_pool *kn_pool_new_host(int threads)
{
    return kn_pool_on(kn_backend_host(), threads);
}

const struct kn_backend *kn_pool_backend(const struct kn_pool *pool)
{
    const struct kn_backend *own = pool ? kn_pool_made_on(pool) : NULL;

    return own ? own : kn_backend_host(); /* the built-in pool has none */
}

void *kn_alloc(size_t bytes)
{
    return kn_backend()->alloc(bytes);
}

void kn_free(void *memory, size_t bytes)
{
    kn_backend()->free(memory, bytes);
}

void *kn_alloc_own(size_t bytes)
{
    const struct kn_backend *backend = kn_backend();

    return backend->alloc_own ? backend->alloc_own(bytes) : backend->alloc(bytes);
}

void kn_free_own(void *memory, size_t bytes)
{
    const struct kn_backend *backend = kn_backend();

    if (backend->alloc_own)
        backend->free_own(memory, bytes);
    else
        backend->free(memory, bytes);
}

size_t kn_unused_own(void)
{
    const struct kn_backend *backend = kn_backend();

    return backend->unused_own ? backend->unused_own() : 0;
}

const char *kn_gemm_library(void)
{
    const struct kn_backend *backend = kn_backend();

    return backend->gemm_library ? backend->gemm_library() : "";
}

size_t kn_gemm_algos(struct kn_algo *ret, size_t most, const struct kn_gemm *gemm)
{
    const struct kn_backend *backend = kn_backend();

    assert(gemm->beta == 0 || gemm->beta == 1);
    return backend->gemm_algos ? backend->gemm_algos(ret, most, gemm) : 0;
}

bool kn_gemm_use(const struct kn_algo *algo)
{
    const struct kn_backend *backend = kn_backend();

    return backend->gemm_use && backend->gemm_use(algo);
}

bool kn_graphs(const struct kn_pool *pool)
{
    return kn_pool_backend(pool)->graph_begin != NULL;
}

void kn_graph_begin(struct kn_pool *pool)
{
    assert(kn_graphs(pool));
    kn_pool_backend(pool)->graph_begin(pool);
}

struct kn_graph *kn_graph_end(struct kn_pool *pool)
{
    return kn_pool_backend(pool)->graph_end(pool);
}

void kn_graph_launch(struct kn_pool *pool, struct kn_graph *graph)
{
    assert(graph);
    kn_pool_backend(pool)->graph_launch(pool, graph);
}

struct kn_graph *kn_graph_free(struct kn_pool *pool, struct kn_graph *graph)
{
    if (graph)
        kn_pool_backend(pool)->graph_free(graph);
    return NULL;
}

bool kn_apart(const struct kn_pool *pool)
{
    return kn_pool_backend(pool)->alloc_own != NULL;
}

void kn_copy(struct kn_pool *pool, void *to, const void *from, size_t bytes)
{
    kn_pool_backend(pool)->copy(pool, to, from, bytes);
}

void kn_wait(struct kn_pool *pool)
{
    kn_pool_backend(pool)->wait(pool);
}

void kn_mark(struct kn_pool *pool, unsigned n)
{
    const struct kn_backend *backend = kn_pool_backend(pool);

    if (backend->mark)
        backend->mark(pool, n);
}

void kn_follow(struct kn_pool *follower, struct kn_pool *pool, unsigned n)
{
    const struct kn_backend *backend = kn_pool_backend(follower);

    if (backend->follow)
        backend->follow(follower, pool, n);
}

bool kn_reached(struct kn_pool *pool, unsigned n)
{
    const struct kn_backend *backend = kn_pool_backend(pool);

    assert(n < KN_MARKS);
    return !backend->reached || backend->reached(pool, n);
}

void kn_pool_set_idle(struct kn_pool *pool, void (*fn)(void *), void *arg)
{
    const struct kn_backend *backend = kn_pool_backend(pool);

    if (backend->set_idle)
        backend->set_idle(pool, fn, arg);
}

bool kn_stamps(const struct kn_pool *pool)
{
    return kn_pool_backend(pool)->stamp != NULL;
}

void kn_stamp(struct kn_pool *pool, unsigned n)
{
    assert(n < KN_STAMPS);
    kn_pool_backend(pool)->stamp(pool, n);
}

bool kn_stamped(uint64_t *ret_ns, struct kn_pool *pool, unsigned from, unsigned to)
{
    assert(from < KN_STAMPS && to < KN_STAMPS);
    return kn_pool_backend(pool)->stamped(ret_ns, pool, from, to);
}

void *kn_native(const struct kn_pool *pool)
{
    const struct kn_backend *backend = kn_pool_backend(pool);

    return backend->native ? backend->native(pool) : NULL;
}
