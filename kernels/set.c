/* The host's set, and the operations of kernels.h as calls into the set of their pool. */
#include "kernels/set.h"

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

static void host_free(void *x, size_t bytes)
{
    munmap(x, bytes);
}

static void host_copy(struct kn_pool *p, void *to, const void *from, size_t bytes)
{
    (void)p;
    memcpy(to, from, bytes);
}

static void host_wait(struct kn_pool *p)
{
    (void)p; /* operations are done when they return */
}

const struct kn_set *kn_set_host(void)
{
    static const struct kn_set host = {.name = "host",
                                       .alloc = host_alloc,
                                       .free = host_free,
                                       .copy = host_copy,
                                       .wait = host_wait,
#define HOST_OP(op) .op = kn_host_##op,
                                       KN_SET_OPS(HOST_OP)
#undef HOST_OP
    };

    return &host;
}

static const struct kn_set *in_use;

void kn_set_use(const struct kn_set *set)
{
    in_use = set;
}

const struct kn_set *kn_set(void)
{
    return in_use ? in_use : kn_set_host();
}

void *kn_alloc(size_t bytes)
{
    return kn_set()->alloc(bytes);
}

void kn_free(void *x, size_t bytes)
{
    kn_set()->free(x, bytes);
}

void kn_copy(struct kn_pool *p, void *to, const void *from, size_t bytes)
{
    kn_pool_set(p)->copy(p, to, from, bytes);
}

void kn_wait(struct kn_pool *p)
{
    kn_pool_set(p)->wait(p);
}

void kn_gemm(struct kn_pool *p, const struct kn_gemm *g)
{
    kn_pool_set(p)->gemm(p, g);
}

void kn_gemm_grouped(struct kn_pool *p, const struct kn_gemm *g, size_t groups,
                     const int32_t *offsets, size_t wstride)
{
    kn_pool_set(p)->gemm_grouped(p, g, groups, offsets, wstride);
}

void kn_rmsnorm_fwd(struct kn_pool *p, enum kn_type t, void *y, float *rrms, const void *x,
                    const void *w, size_t rows, size_t d, float eps)
{
    kn_pool_set(p)->rmsnorm_fwd(p, t, y, rrms, x, w, rows, d, eps);
}

void kn_rmsnorm_bwd(struct kn_pool *p, enum kn_type t, void *dx, float *dw, const void *dy,
                    const void *x, const void *w, const float *rrms, size_t rows, size_t d,
                    bool add)
{
    kn_pool_set(p)->rmsnorm_bwd(p, t, dx, dw, dy, x, w, rrms, rows, d, add);
}

void kn_rope(struct kn_pool *p, enum kn_type t, void *x, size_t ldx, size_t rows, size_t heads,
             size_t d, const float *cos_t, const float *sin_t, const int32_t *pos, size_t seq,
             bool backward)
{
    kn_pool_set(p)->rope(p, t, x, ldx, rows, heads, d, cos_t, sin_t, pos, seq, backward);
}

void kn_attn_fwd(struct kn_pool *p, const struct kn_attn *a, void *o, size_t ldo, float *lse)
{
    kn_pool_set(p)->attn_fwd(p, a, o, ldo, lse);
}

void kn_attn_bwd(struct kn_pool *p, const struct kn_attn *a, const struct kn_attn_grad *g,
                 void *workspace)
{
    kn_pool_set(p)->attn_bwd(p, a, g, workspace);
}

void kn_embed_fwd(struct kn_pool *p, enum kn_type t, void *y, const void *table, const int32_t *ids,
                  size_t rows, size_t d, size_t v0, size_t vocab)
{
    kn_pool_set(p)->embed_fwd(p, t, y, table, ids, rows, d, v0, vocab);
}

void kn_embed_bwd(struct kn_pool *p, enum kn_type t, float *dtable, const void *dy,
                  const int32_t *ids, size_t rows, size_t d, size_t v0, size_t vocab)
{
    kn_pool_set(p)->embed_bwd(p, t, dtable, dy, ids, rows, d, v0, vocab);
}

void kn_xent_max(struct kn_pool *p, enum kn_type t, float *max, const void *logits, size_t ld,
                 size_t rows, size_t cols)
{
    kn_pool_set(p)->xent_max(p, t, max, logits, ld, rows, cols);
}

void kn_xent_sum(struct kn_pool *p, enum kn_type t, float *sum, float *target, const void *logits,
                 size_t ld, size_t rows, size_t cols, const float *max, const int32_t *targets,
                 size_t v0)
{
    kn_pool_set(p)->xent_sum(p, t, sum, target, logits, ld, rows, cols, max, targets, v0);
}

void kn_xent_grad(struct kn_pool *p, enum kn_type t, void *logits, size_t ld, size_t rows,
                  size_t cols, size_t padded, const float *max, const float *sum,
                  const int32_t *targets, size_t v0, float scale)
{
    kn_pool_set(p)->xent_grad(p, t, logits, ld, rows, cols, padded, max, sum, targets, v0, scale);
}

void kn_swiglu_fwd(struct kn_pool *p, enum kn_type t, void *y, size_t ldy, const void *gate,
                   size_t ldg, const void *up, size_t ldu, size_t rows, size_t f)
{
    kn_pool_set(p)->swiglu_fwd(p, t, y, ldy, gate, ldg, up, ldu, rows, f);
}

void kn_swiglu_bwd(struct kn_pool *p, enum kn_type t, void *dgate, size_t lddg, void *dup,
                   size_t lddu, const void *dy, size_t lddy, const void *gate, size_t ldg,
                   const void *up, size_t ldu, size_t rows, size_t f)
{
    kn_pool_set(p)->swiglu_bwd(p, t, dgate, lddg, dup, lddu, dy, lddy, gate, ldg, up, ldu, rows, f);
}

void kn_router_fwd(struct kn_pool *p, float *probs, int32_t *idx, float *w, const float *logits,
                   size_t rows, size_t e, size_t k, bool renorm)
{
    kn_pool_set(p)->router_fwd(p, probs, idx, w, logits, rows, e, k, renorm);
}

void kn_router_bwd(struct kn_pool *p, float *dlogits, const float *dw, const float *dprobs,
                   const float *probs, const int32_t *idx, const float *w, size_t rows, size_t e,
                   size_t k, bool renorm)
{
    kn_pool_set(p)->router_bwd(p, dlogits, dw, dprobs, probs, idx, w, rows, e, k, renorm);
}

void kn_permute(struct kn_pool *p, enum kn_type t, void *y, const void *x, const int32_t *src,
                size_t n, size_t k, size_t d)
{
    kn_pool_set(p)->permute(p, t, y, x, src, n, k, d);
}

void kn_unpermute(struct kn_pool *p, enum kn_type t, void *y, const void *x, const int32_t *place,
                  const float *w, size_t rows, size_t k, size_t d, bool add)
{
    kn_pool_set(p)->unpermute(p, t, y, x, place, w, rows, k, d, add);
}

void kn_unpermute_bwd(struct kn_pool *p, enum kn_type t, void *dx, float *dw, const void *dy,
                      const void *x, const int32_t *place, const float *w, size_t rows, size_t k,
                      size_t d)
{
    kn_pool_set(p)->unpermute_bwd(p, t, dx, dw, dy, x, place, w, rows, k, d);
}

void kn_zero(struct kn_pool *p, void *x, size_t bytes)
{
    kn_pool_set(p)->zero(p, x, bytes);
}

void kn_copy2d(struct kn_pool *p, enum kn_type t, void *y, size_t ldy, const void *x, size_t ldx,
               size_t rows, size_t cols)
{
    kn_pool_set(p)->copy2d(p, t, y, ldy, x, ldx, rows, cols);
}

void kn_transpose(struct kn_pool *p, enum kn_type t, void *y, size_t ldy, const void *x, size_t ldx,
                  size_t rows, size_t cols)
{
    kn_pool_set(p)->transpose(p, t, y, ldy, x, ldx, rows, cols);
}

void kn_convert(struct kn_pool *p, enum kn_type yt, void *y, enum kn_type xt, const void *x,
                size_t n)
{
    kn_pool_set(p)->convert(p, yt, y, xt, x, n);
}

void kn_add(struct kn_pool *p, enum kn_type t, void *y, const void *a, const void *b, size_t n)
{
    kn_pool_set(p)->add(p, t, y, a, b, n);
}

void kn_scale(struct kn_pool *p, enum kn_type t, void *x, float alpha, size_t n)
{
    kn_pool_set(p)->scale(p, t, x, alpha, n);
}

void kn_axpy(struct kn_pool *p, enum kn_type yt, void *y, float alpha, enum kn_type xt,
             const void *x, size_t n)
{
    kn_pool_set(p)->axpy(p, yt, y, alpha, xt, x, n);
}

double kn_sumsq(struct kn_pool *p, enum kn_type t, const void *x, size_t n)
{
    return kn_pool_set(p)->sumsq(p, t, x, n);
}

bool kn_any_nonfinite(struct kn_pool *p, enum kn_type t, const void *x, size_t n)
{
    return kn_pool_set(p)->any_nonfinite(p, t, x, n);
}

void kn_adamw(struct kn_pool *p, const struct kn_adamw *h, float *w, kn_bf16 *low, float *m,
              float *v, const float *g, size_t n)
{
    kn_pool_set(p)->adamw(p, h, w, low, m, v, g, n);
}
