/* The host's backend, and the operations of kernels.h as calls into the backend of their pool. */
#include "kernels/backend.h"

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

void *kn_alloc(size_t bytes)
{
    return kn_backend()->alloc(bytes);
}

void kn_free(void *memory, size_t bytes)
{
    kn_backend()->free(memory, bytes);
}

void kn_copy(struct kn_pool *pool, void *to, const void *from, size_t bytes)
{
    kn_pool_backend(pool)->copy(pool, to, from, bytes);
}

void kn_wait(struct kn_pool *pool)
{
    kn_pool_backend(pool)->wait(pool);
}

void kn_gemm(struct kn_pool *pool, const struct kn_gemm *gemm)
{
    kn_pool_backend(pool)->gemm(pool, gemm);
}

void kn_gemm_grouped(struct kn_pool *pool, const struct kn_gemm *gemm, size_t groups,
                     const int32_t *offsets, size_t wstride)
{
    kn_pool_backend(pool)->gemm_grouped(pool, gemm, groups, offsets, wstride);
}

void kn_rmsnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, float *rrms, const void *x,
                    const void *w, size_t rows, size_t dim, float eps)
{
    kn_pool_backend(pool)->rmsnorm_fwd(pool, type, y, rrms, x, w, rows, dim, eps);
}

void kn_rmsnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw, const void *dy,
                    const void *x, const void *w, const float *rrms, size_t rows, size_t dim,
                    bool add)
{
    kn_pool_backend(pool)->rmsnorm_bwd(pool, type, dx, dw, dy, x, w, rrms, rows, dim, add);
}

void kn_rope(struct kn_pool *pool, enum kn_type type, void *x, size_t ldx, size_t rows,
             size_t heads, size_t dim, const float *cos_t, const float *sin_t, const int32_t *pos,
             size_t seq, bool backward)
{
    kn_pool_backend(pool)->rope(pool, type, x, ldx, rows, heads, dim, cos_t, sin_t, pos, seq,
                                backward);
}

void kn_attn_fwd(struct kn_pool *pool, const struct kn_attn *attn, void *out, size_t ldo,
                 float *lse)
{
    kn_pool_backend(pool)->attn_fwd(pool, attn, out, ldo, lse);
}

void kn_attn_bwd(struct kn_pool *pool, const struct kn_attn *attn, const struct kn_attn_grad *grad,
                 void *workspace)
{
    kn_pool_backend(pool)->attn_bwd(pool, attn, grad, workspace);
}

void kn_embed_fwd(struct kn_pool *pool, enum kn_type type, void *y, const void *table,
                  const int32_t *ids, size_t rows, size_t dim, size_t v0, size_t vocab)
{
    kn_pool_backend(pool)->embed_fwd(pool, type, y, table, ids, rows, dim, v0, vocab);
}

void kn_embed_bwd(struct kn_pool *pool, enum kn_type type, float *dtable, const void *dy,
                  const int32_t *ids, size_t rows, size_t dim, size_t v0, size_t vocab)
{
    kn_pool_backend(pool)->embed_bwd(pool, type, dtable, dy, ids, rows, dim, v0, vocab);
}

void kn_xent_max(struct kn_pool *pool, enum kn_type type, float *max, const void *logits, size_t ld,
                 size_t rows, size_t cols)
{
    kn_pool_backend(pool)->xent_max(pool, type, max, logits, ld, rows, cols);
}

void kn_xent_sum(struct kn_pool *pool, enum kn_type type, float *sum, float *target,
                 const void *logits, size_t ld, size_t rows, size_t cols, const float *max,
                 const int32_t *targets, size_t v0)
{
    kn_pool_backend(pool)->xent_sum(pool, type, sum, target, logits, ld, rows, cols, max, targets,
                                    v0);
}

void kn_xent_grad(struct kn_pool *pool, enum kn_type type, void *logits, size_t ld, size_t rows,
                  size_t cols, size_t padded, const float *max, const float *sum,
                  const int32_t *targets, size_t v0, float scale)
{
    kn_pool_backend(pool)->xent_grad(pool, type, logits, ld, rows, cols, padded, max, sum, targets,
                                     v0, scale);
}

void kn_swiglu_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy, const void *gate,
                   size_t ldg, const void *up, size_t ldu, size_t rows, size_t ffn)
{
    kn_pool_backend(pool)->swiglu_fwd(pool, type, y, ldy, gate, ldg, up, ldu, rows, ffn);
}

void kn_swiglu_bwd(struct kn_pool *pool, enum kn_type type, void *dgate, size_t lddg, void *dup,
                   size_t lddu, const void *dy, size_t lddy, const void *gate, size_t ldg,
                   const void *up, size_t ldu, size_t rows, size_t ffn)
{
    kn_pool_backend(pool)->swiglu_bwd(pool, type, dgate, lddg, dup, lddu, dy, lddy, gate, ldg, up,
                                      ldu, rows, ffn);
}

void kn_router_fwd(struct kn_pool *pool, float *probs, int32_t *idx, float *w, const float *logits,
                   size_t rows, size_t experts, size_t k, bool renorm)
{
    kn_pool_backend(pool)->router_fwd(pool, probs, idx, w, logits, rows, experts, k, renorm);
}

void kn_router_bwd(struct kn_pool *pool, float *dlogits, const float *dw, const float *dprobs,
                   const float *probs, const int32_t *idx, const float *w, size_t rows,
                   size_t experts, size_t k, bool renorm)
{
    kn_pool_backend(pool)->router_bwd(pool, dlogits, dw, dprobs, probs, idx, w, rows, experts, k,
                                      renorm);
}

void kn_permute(struct kn_pool *pool, enum kn_type type, void *y, const void *x, const int32_t *src,
                size_t count, size_t k, size_t dim)
{
    kn_pool_backend(pool)->permute(pool, type, y, x, src, count, k, dim);
}

void kn_unpermute(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                  const int32_t *place, const float *w, size_t rows, size_t k, size_t dim, bool add)
{
    kn_pool_backend(pool)->unpermute(pool, type, y, x, place, w, rows, k, dim, add);
}

void kn_unpermute_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw, const void *dy,
                      const void *x, const int32_t *place, const float *w, size_t rows, size_t k,
                      size_t dim)
{
    kn_pool_backend(pool)->unpermute_bwd(pool, type, dx, dw, dy, x, place, w, rows, k, dim);
}

void kn_zero(struct kn_pool *pool, void *to, size_t bytes)
{
    kn_pool_backend(pool)->zero(pool, to, bytes);
}

void kn_convert(struct kn_pool *pool, enum kn_type yt, void *y, enum kn_type xt, const void *x,
                size_t count)
{
    kn_pool_backend(pool)->convert(pool, yt, y, xt, x, count);
}

void kn_add(struct kn_pool *pool, enum kn_type type, void *y, const void *a, const void *b,
            size_t count)
{
    kn_pool_backend(pool)->add(pool, type, y, a, b, count);
}

double kn_sumsq(struct kn_pool *pool, enum kn_type type, const void *x, size_t count)
{
    return kn_pool_backend(pool)->sumsq(pool, type, x, count);
}

void kn_adamw(struct kn_pool *pool, const struct kn_adamw *hyper, float *w, kn_bf16 *low, float *m,
              float *v, const float *g, size_t count)
{
    kn_pool_backend(pool)->adamw(pool, hyper, w, low, m, v, g, count);
}
