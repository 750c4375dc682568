/*
 * The table between the drivers of this folder and the instruction sets.
 *
 * A driver (gemm.c, norm.c, ...) splits the work over threads, converts bf16 to fp32 and back a few
 * rows at a time, and calls the functions below, which are serial and fp32. ref fills the whole
 * table; avx2 and avx512 overwrite what they have.
 *
 * The files of a level are compiled with their own flags. They include only headers of this folder,
 * intrinsics and static helpers: the linker could keep an external inline copy that was compiled
 * for AVX-512, and an older machine would crash in it.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/attn_job.h"
#include "kernels/pool.h"

struct kn_gemm_isa;

struct kn_ops {
    /* The micro-kernel with its packing; NULL: use gemm, the whole product, serial. */
    const struct kn_gemm_isa *gemm_isa;
    void (*gemm)(const struct kn_gemm *gemm);

    /* Rows: n elements each. */
    /* Returns rrms. */
    float (*rmsnorm_row)(float *y, const float *x, const float *w, size_t dim, float eps);
    void (*rmsnorm_bwd)(float *dx, float *dw, const float *dy, const float *x, const float *w,
                        const float *rrms, size_t rows, size_t dim, bool add);
    /* y = x r w; dx = r (dy w - x along), dw += dy x r. y may be x, dx may be dy. */
    void (*norm_row)(float *y, const float *x, const float *w, float r, size_t dim);
    void (*norm_bwd_row)(float *dx, float *dw, const float *dy, const float *x, const float *w,
                         float r, float along, size_t dim);
    void (*layernorm_row)(float *y, float stats[2], const float *x, const float *w, const float *b,
                          size_t dim, float eps);
    void (*layernorm_bwd)(float *dx, float *dw, float *db, const float *dy, const float *x,
                          const float *w, const float *stats, size_t rows, size_t dim, bool add);
    void (*rope_row)(float *x, size_t heads, size_t dim, size_t turned, const float *c,
                     const float *s, bool backward);
    /* An activation without a gate; bias and dbias may be NULL. */
    void (*act_row)(float *y, const float *x, const float *bias, size_t count, enum kn_act form);
    void (*act_bwd_row)(float *dx, float *dbias, const float *dy, const float *x, const float *bias,
                        size_t count, enum kn_act form);
    void (*swiglu_row)(float *y, const float *gate, const float *up, size_t count);
    void (*swiglu_bwd_row)(float *dgate, float *dup, const float *dy, const float *gate,
                           const float *up, size_t count);
    /* gelu by tanh in place of silu */
    void (*geglu_row)(float *y, const float *gate, const float *up, size_t count);
    void (*geglu_bwd_row)(float *dgate, float *dup, const float *dy, const float *gate,
                          const float *up, size_t count);
    /* kn_swiglu_clamped_fwd's */
    void (*clamped_row)(float *y, const float *gate, const float *up, size_t count);
    void (*clamped_bwd_row)(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, size_t count);
    /* y = cap tanh(x / cap), y may be x; dx = dx (1 - (y / cap)^2) */
    void (*softcap_row)(float *y, const float *x, size_t count, float cap);
    void (*softcap_bwd_row)(float *dx, const float *y, size_t count, float cap);
    float (*max_row)(const float *x, size_t count);               /* -inf when count is 0 */
    float (*sumexp_row)(const float *x, size_t count, float max); /* sum of exp(x - max) */
    /* exp(x - max) factor */
    void (*softmax_row)(float *y, const float *x, size_t count, float max, float factor);
    float (*dot)(const float *x, const float *y, size_t count);
    float (*dot3)(const float *x, const float *y, const float *z, size_t count); /* sum of x y z */

    /* Attention by its definition. delta (heads, seq) of the sample: sum over d of o d_o. With
     * job->sums dq, dk and dv are added to. */
    void (*attn_fwd)(const struct kn_attn_job *job, void *out, size_t ldo, float *lse);
    void (*attn_bwd)(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                     const float *delta);
    /* Attention in tiles (attn_tiled.c), for levels with gemm_isa; else NULL. A tile is
     * (keys, KN_ATTN_LD), of which QUERIES columns are used; query b sees key a if a + diag <= b.
     * Masked elements become 0.
     *   softmax   s = 2^(scale log2(e) s - max) with running max and sum; rescales ot (dim, .)
     *   dscore    s = p = exp(scale s - lse), ds = scale p (ds - delta) */
    void (*attn_softmax)(float *s, size_t keys, size_t queries, ptrdiff_t diag, float scale,
                         float *max, float *sum, float *ot, size_t dim);
    void (*attn_dscore)(float *s, float *ds, size_t keys, size_t queries, ptrdiff_t diag,
                        float scale, const float *lse, const float *delta);

    /* Router, over a range of rows. */
    void (*router_fwd)(const struct kn_router *router, float *probs, int32_t *idx, float *w,
                       const float *logits, size_t rows);
    void (*router_bwd)(const struct kn_router *router, float *dlogits, const float *dw,
                       const float *dshare, const float *probs, const int32_t *idx, const float *w,
                       size_t rows);

    /* Flat arrays. */
    void (*to_f32)(float *y, const kn_bf16 *x, size_t count);
    void (*to_bf16)(kn_bf16 *y, const float *x, size_t count);
    void (*add)(float *y, const float *a, const float *b, size_t count);
    void (*scale)(float *y, const float *x, float alpha, size_t count);
    void (*axpy)(float *y, float alpha, const float *x, size_t count);
    /* a x + b z */
    void (*combine)(float *y, float a, const float *x, float b, const float *z, size_t count);
    double (*sumsq)(const float *x, size_t count);
    void (*adamw)(const struct kn_adamw *hyper, float *w, float *m, float *v, const float *g,
                  size_t count);
    void (*lamb)(const struct kn_adamw *hyper, const float *w, float *m, float *v, float *g,
                 size_t count);
    void (*momentum)(const struct kn_momentum *hyper, const float *w, float *m, float *g,
                     size_t count);

    /* ROUNDS rounds of independent multiply-adds; returns how many FLOPs that is. */
    double (*fma_loop)(size_t rounds);
};

/* The members that the reference has, each as kn_ref_NAME. */
/* clang-format off */
#define KN_REF_OPS(X)                                                                              \
    X(gemm) X(rmsnorm_row) X(rmsnorm_bwd) X(rope_row) X(swiglu_row) X(swiglu_bwd_row) X(max_row)   \
    X(sumexp_row) X(softmax_row) X(dot) X(attn_fwd) X(attn_bwd) X(router_fwd) X(router_bwd)        \
    X(to_f32) X(to_bf16) X(add) X(scale) X(axpy) X(combine) X(sumsq) X(adamw) X(lamb)              \
    X(momentum) X(fma_loop) X(layernorm_row) X(layernorm_bwd) X(act_row) X(act_bwd_row)          \
    X(geglu_row) X(geglu_bwd_row) X(softcap_row) X(softcap_bwd_row) X(dot3) X(norm_row)          \
    X(norm_bwd_row) X(clamped_row) X(clamped_bwd_row)
/* clang-format on */

void kn_ops_ref(struct kn_ops *ops);
void kn_ops_avx2(struct kn_ops *ops);
void kn_ops_avx512(struct kn_ops *ops);

/* The table in use. */
const struct kn_ops *kn_ops(void);

/* ---- helpers ------------------------------------------------------------- */

static inline size_t kn_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t kn_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline float kn_from_bf16(kn_bf16 value)
{
    uint32_t u = (uint32_t)value << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

/* Round to nearest even. A NaN gets its quiet bit, so that truncation cannot make it infinite. */
static inline kn_bf16 kn_round_bf16(float value)
{
    uint32_t u;

    memcpy(&u, &value, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (kn_bf16)(u >> 16 | 0x40);
    return (kn_bf16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Element I of an array of either type. */
static inline float kn_at(enum kn_type type, const void *array, size_t i)
{
    return type == KN_F32 ? ((const float *)array)[i] : kn_from_bf16(((const kn_bf16 *)array)[i]);
}

static inline void kn_put(enum kn_type type, void *array, size_t i, float value)
{
    if (type == KN_F32)
        ((float *)array)[i] = value;
    else
        ((kn_bf16 *)array)[i] = kn_round_bf16(value);
}

/* Prefetch a row of BYTES at ARRAY: the hardware cannot predict indexed rows. At most a page: more
 * would evict lines in use. */
static inline void kn_prefetch_row(const void *array, size_t bytes)
{
    for (size_t b = 0; b < kn_min(bytes, 4096); b += 64)
        __builtin_prefetch((const char *)array + b);
}

/* ARRAY + I elements. */
static inline void *kn_ptr(enum kn_type type, const void *array, size_t i)
{
    return (char *)(uintptr_t)array + i * kn_type_size(type);
}

/*
 * fp32 views of typed rows. kn_in returns fp32 ARRAY itself, or COUNT bf16 elements converted into
 * BUF. kn_out returns where to compute a result in fp32; kn_out_done then rounds it into ARRAY.
 */
static inline const float *kn_in(enum kn_type type, const void *array, float *buf, size_t count)
{
    if (type == KN_F32)
        return array;
    kn_ops()->to_f32(buf, array, count);
    return buf;
}

/* The same of a norm's scale W + OFFSET; in BUF, too, where something is added. */
static inline const float *kn_in_scale(enum kn_type type, const void *w, float *buf, size_t count,
                                       float offset)
{
    const float *scale = kn_in(type, w, buf, count);

    if (!(offset > 0))
        return scale;
    for (size_t i = 0; i < count; i++)
        buf[i] = scale[i] + offset;
    return buf;
}

static inline float *kn_out(enum kn_type type, void *array, float *buf)
{
    return type == KN_F32 ? array : buf;
}

static inline void kn_out_done(enum kn_type type, void *array, const float *buf, size_t count)
{
    if (type != KN_F32)
        kn_ops()->to_bf16(array, buf, count);
}

#endif
