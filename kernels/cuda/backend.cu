/* The backend as a whole: its table, and its streams as pools. */
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/gemm.cuh"

#include <stdio.h>
#include <stdlib.h>

static const struct kn_plugin_host *host;
static int gpu;

void cu_lost(const char *what)
{
    char text[256];

    snprintf(text, sizeof(text), "GPU %d is lost: %s", gpu, what);
    if (host->lost)
        host->lost(text);
    fprintf(stderr, "cuda: %s\n", text);
    abort();
}

cu_stream *cu_stream_of(const struct kn_pool *pool)
{
    return (cu_stream *)host->pool_stream(pool);
}

static bool backend_open(struct kn_pool *pool)
{
    cu_stream *stream = cu_stream_open(host->pool_threads(pool) > 0);

    if (stream)
        host->pool_set_stream(pool, stream);
    return stream != NULL;
}

static void backend_close(struct kn_pool *pool)
{
    cu_stream_close(cu_stream_of(pool));
}

static void backend_free(void *memory, size_t)
{
    cu_free(memory);
}

static void backend_free_own(void *memory, size_t bytes)
{
    cu_free_own(memory, bytes);
}

static void backend_copy(struct kn_pool *pool, void *to, const void *from, size_t bytes)
{
    if (bytes)
        cu_copy(cu_stream_of(pool), to, from, bytes);
}

static void backend_wait(struct kn_pool *pool)
{
    cu_stream_wait(cu_stream_of(pool));
}

static void backend_mark(struct kn_pool *pool, unsigned n)
{
    cu_stream_mark(cu_stream_of(pool), n);
}

static void backend_follow(struct kn_pool *follower, struct kn_pool *pool, unsigned n)
{
    cu_stream_follow(cu_stream_of(follower), cu_stream_of(pool), n);
}

static bool backend_reached(struct kn_pool *pool, unsigned n)
{
    return cu_stream_reached(cu_stream_of(pool), n);
}

static void backend_set_idle(struct kn_pool *pool, void (*fn)(void *arg), void *arg)
{
    cu_stream_set_idle(cu_stream_of(pool), fn, arg);
}

static void backend_stamp(struct kn_pool *pool, unsigned n)
{
    cu_stream_stamp(cu_stream_of(pool), n);
}

static bool backend_stamped(uint64_t *ret_ns, struct kn_pool *pool, unsigned from, unsigned to)
{
    return cu_stream_stamped(ret_ns, cu_stream_of(pool), from, to);
}

static void *backend_native(const struct kn_pool *pool)
{
    return cu_stream_handle(cu_stream_of(pool));
}

static void backend_graph_begin(struct kn_pool *pool)
{
    cu_graph_begin(cu_stream_of(pool));
}

static struct kn_graph *backend_graph_end(struct kn_pool *pool)
{
    return cu_graph_end(cu_stream_of(pool));
}

static void backend_graph_launch(struct kn_pool *pool, struct kn_graph *graph)
{
    cu_graph_launch(cu_stream_of(pool), graph);
}

static struct kn_backend backend;

bool cu_has_room(struct kn_plugin_refusal *ret_why, size_t unused)
{
    ret_why->full = unused < CU_SCRATCH_BYTES;
    if (ret_why->full)
        snprintf(ret_why->text, sizeof(ret_why->text),
                 "%zu bytes of its memory are free, %d are needed: other processes fill it", unused,
                 (int)CU_SCRATCH_BYTES);
    return !ret_why->full;
}

const struct kn_backend *cu_backend(struct kn_plugin_refusal *ret_why,
                                    const struct kn_plugin_host *asked, int index)
{
    if (!cu_device(ret_why, index))
        return NULL;
    host = asked;
    gpu = index;
    backend.name = "cuda";
    backend.open = backend_open;
    backend.close = backend_close;
    backend.alloc = cu_alloc;
    backend.free = backend_free;
    backend.alloc_own = cu_alloc_own;
    backend.free_own = backend_free_own;
    backend.unused_own = cu_unused_own;
    backend.copy = backend_copy;
    backend.wait = backend_wait;
    backend.mark = backend_mark;
    backend.follow = backend_follow;
    backend.reached = backend_reached;
    backend.set_idle = backend_set_idle;
    backend.native = backend_native;
    backend.stamp = backend_stamp;
    backend.stamped = backend_stamped;
    backend.gemm_library = cu_lib_name;
    backend.gemm_algos = cu_gemm_algos;
    backend.gemm_use = cu_gemm_use;
    backend.graph_begin = backend_graph_begin;
    backend.graph_end = backend_graph_end;
    backend.graph_launch = backend_graph_launch;
    backend.graph_free = cu_graph_free;
#define CU_OP(op) backend.op = cu_##op;
    KN_BACKEND_OPS(CU_OP)
#undef CU_OP
    return &backend;
}
