#include "tests/unit/async_backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 8192, ARGS_BYTES = 1 << 20 };

struct launch {
    void (*run)(const void *args);
    size_t args; /* offset */
};

struct stream {
    struct launch list[LAUNCHES];
    int n, waits;
    size_t used;
    _Alignas(16) char args[ARGS_BYTES]; /* of the launches, copied */
};

static int live;

static void *room(struct stream *q, size_t bytes)
{
    void *x = q->args + q->used;

    q->used += (bytes + 15) / 16 * 16;
    assert(q->used <= ARGS_BYTES);
    return x;
}

static void launch(struct kn_pool *p, void (*run)(const void *), const void *args, size_t bytes)
{
    struct stream *q = kn_pool_stream(p);
    void *kept = room(q, bytes);

    memcpy(kept, args, bytes);
    assert(q->n < LAUNCHES);
    q->list[q->n++] = (struct launch){run, (size_t)((char *)kept - q->args)};
}

static void async_wait(struct kn_pool *p)
{
    struct stream *q = kn_pool_stream(p);

    q->waits += q->n > 0;
    for (int i = 0; i < q->n; i++)
        q->list[i].run(q->args + q->list[i].args);
    q->n = 0;
    q->used = 0;
}

/* Operations of plain arguments: LATE(how many, name, type, argument, ...) keeps them in a struct.
 */
#define EACH_1(X, type, arg) X(type, arg)
#define EACH_2(X, type, arg, ...) X(type, arg) EACH_1(X, __VA_ARGS__)
#define EACH_3(X, type, arg, ...) X(type, arg) EACH_2(X, __VA_ARGS__)
#define EACH_4(X, type, arg, ...) X(type, arg) EACH_3(X, __VA_ARGS__)
#define EACH_5(X, type, arg, ...) X(type, arg) EACH_4(X, __VA_ARGS__)
#define EACH_6(X, type, arg, ...) X(type, arg) EACH_5(X, __VA_ARGS__)
#define EACH_7(X, type, arg, ...) X(type, arg) EACH_6(X, __VA_ARGS__)
#define EACH_8(X, type, arg, ...) X(type, arg) EACH_7(X, __VA_ARGS__)
#define EACH_9(X, type, arg, ...) X(type, arg) EACH_8(X, __VA_ARGS__)
#define EACH_10(X, type, arg, ...) X(type, arg) EACH_9(X, __VA_ARGS__)
#define EACH_11(X, type, arg, ...) X(type, arg) EACH_10(X, __VA_ARGS__)
#define EACH_12(X, type, arg, ...) X(type, arg) EACH_11(X, __VA_ARGS__)
#define EACH_13(X, type, arg, ...) X(type, arg) EACH_12(X, __VA_ARGS__)

#define MEMBER(type, arg) type arg;
#define PARAM(type, arg) , type arg
#define KEEP(type, arg) .arg = arg,
#define PASS(type, arg) , c->arg

#define ASYNC(n, op, ...)                                                                          \
    struct op##_args {                                                                             \
        EACH_##n(MEMBER, __VA_ARGS__)                                                              \
    };                                                                                             \
    static void run_##op(const void *args)                                                         \
    {                                                                                              \
        const struct op##_args *c = args;                                                          \
                                                                                                   \
        kn_host_##op(NULL EACH_##n(PASS, __VA_ARGS__));                                            \
    }                                                                                              \
    static void async_##op(struct kn_pool *p EACH_##n(PARAM, __VA_ARGS__))                         \
    {                                                                                              \
        launch(p, run_##op, &(struct op##_args){EACH_##n(KEEP, __VA_ARGS__)},                      \
               sizeof(struct op##_args));                                                          \
    }

/* clang-format off */
ASYNC(8, rmsnorm_fwd, enum kn_type, t, void *, y, float *, rrms, const void *, x, const void *, w,
     size_t, rows, size_t, d, float, eps)
ASYNC(10, rmsnorm_bwd, enum kn_type, t, void *, dx, float *, dw, const void *, dy, const void *, x,
     const void *, w, const float *, rrms, size_t, rows, size_t, d, bool, add)
ASYNC(11, rope, enum kn_type, t, void *, x, size_t, ldx, size_t, rows, size_t, heads, size_t, d,
     const float *, cos_t, const float *, sin_t, const int32_t *, pos, size_t, seq, bool, backward)
ASYNC(8, embed_fwd, enum kn_type, t, void *, y, const void *, table, const int32_t *, ids,
     size_t, rows, size_t, d, size_t, v0, size_t, vocab)
ASYNC(8, embed_bwd, enum kn_type, t, float *, dtable, const void *, dy, const int32_t *, ids,
     size_t, rows, size_t, d, size_t, v0, size_t, vocab)
ASYNC(6, xent_max, enum kn_type, t, float *, max, const void *, logits, size_t, ld, size_t, rows,
     size_t, cols)
ASYNC(10, xent_sum, enum kn_type, t, float *, sum, float *, target, const void *, logits,
     size_t, ld, size_t, rows, size_t, cols, const float *, max, const int32_t *, targets,
     size_t, v0)
ASYNC(11, xent_grad, enum kn_type, t, void *, logits, size_t, ld, size_t, rows, size_t, cols,
     size_t, padded, const float *, max, const float *, sum, const int32_t *, targets, size_t, v0,
     float, scale)
ASYNC(9, swiglu_fwd, enum kn_type, t, void *, y, size_t, ldy, const void *, gate, size_t, ldg,
     const void *, up, size_t, ldu, size_t, rows, size_t, f)
ASYNC(13, swiglu_bwd, enum kn_type, t, void *, dgate, size_t, lddg, void *, dup, size_t, lddu,
     const void *, dy, size_t, lddy, const void *, gate, size_t, ldg, const void *, up,
     size_t, ldu, size_t, rows, size_t, f)
ASYNC(8, router_fwd, float *, probs, int32_t *, idx, float *, w, const float *, logits,
     size_t, rows, size_t, e, size_t, k, bool, renorm)
ASYNC(10, router_bwd, float *, dlogits, const float *, dw, const float *, dprobs,
     const float *, probs, const int32_t *, idx, const float *, w, size_t, rows, size_t, e,
     size_t, k, bool, renorm)
ASYNC(7, permute, enum kn_type, t, void *, y, const void *, x, const int32_t *, src, size_t, n,
     size_t, k, size_t, d)
ASYNC(9, unpermute, enum kn_type, t, void *, y, const void *, x, const int32_t *, place,
     const float *, w, size_t, rows, size_t, k, size_t, d, bool, add)
ASYNC(10, unpermute_bwd, enum kn_type, t, void *, dx, float *, dw, const void *, dy,
     const void *, x, const int32_t *, place, const float *, w, size_t, rows, size_t, k,
     size_t, d)
ASYNC(2, zero, void *, x, size_t, bytes)
ASYNC(5, convert, enum kn_type, yt, void *, y, enum kn_type, xt, const void *, x, size_t, n)
ASYNC(5, add, enum kn_type, t, void *, y, const void *, a, const void *, b, size_t, n)
/* clang-format on */

/* Operations whose structs the caller may change as soon as they return. */

struct copy_args {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(const void *args)
{
    const struct copy_args *c = args;

    memcpy(c->to, c->from, c->bytes);
}

static void async_copy(struct kn_pool *p, void *to, const void *from, size_t bytes)
{
    launch(p, run_copy, &(struct copy_args){to, from, bytes}, sizeof(struct copy_args));
}

static void run_gemm(const void *args)
{
    kn_host_gemm(NULL, args);
}

static void async_gemm(struct kn_pool *p, const struct kn_gemm *g)
{
    launch(p, run_gemm, g, sizeof(*g));
}

struct gemm_grouped_args {
    struct kn_gemm g;
    size_t groups, wstride;
    const int32_t *offsets;
};

static void run_gemm_grouped(const void *args)
{
    const struct gemm_grouped_args *c = args;

    kn_host_gemm_grouped(NULL, &c->g, c->groups, c->offsets, c->wstride);
}

static void async_gemm_grouped(struct kn_pool *p, const struct kn_gemm *g, size_t groups,
                               const int32_t *offsets, size_t wstride)
{
    int32_t *kept = room(kn_pool_stream(p), (groups + 1) * sizeof(*kept));

    memcpy(kept, offsets, (groups + 1) * sizeof(*kept));
    launch(p, run_gemm_grouped, &(struct gemm_grouped_args){*g, groups, wstride, kept},
           sizeof(struct gemm_grouped_args));
}

struct attn_fwd_args {
    struct kn_attn a;
    void *o;
    size_t ldo;
    float *lse;
};

static void run_attn_fwd(const void *args)
{
    const struct attn_fwd_args *c = args;

    kn_host_attn_fwd(NULL, &c->a, c->o, c->ldo, c->lse);
}

static void async_attn_fwd(struct kn_pool *p, const struct kn_attn *a, void *o, size_t ldo,
                           float *lse)
{
    launch(p, run_attn_fwd, &(struct attn_fwd_args){*a, o, ldo, lse}, sizeof(struct attn_fwd_args));
}

struct attn_bwd_args {
    struct kn_attn a;
    struct kn_attn_grad g;
    void *workspace;
};

static void run_attn_bwd(const void *args)
{
    const struct attn_bwd_args *c = args;

    kn_host_attn_bwd(NULL, &c->a, &c->g, c->workspace);
}

static void async_attn_bwd(struct kn_pool *p, const struct kn_attn *a, const struct kn_attn_grad *g,
                           void *workspace)
{
    launch(p, run_attn_bwd, &(struct attn_bwd_args){*a, *g, workspace},
           sizeof(struct attn_bwd_args));
}

struct adamw_args {
    struct kn_adamw h;
    float *w;
    kn_bf16 *low;
    float *m, *v;
    const float *g;
    size_t n;
};

static void run_adamw(const void *args)
{
    const struct adamw_args *c = args;

    kn_host_adamw(NULL, &c->h, c->w, c->low, c->m, c->v, c->g, c->n);
}

static void async_adamw(struct kn_pool *p, const struct kn_adamw *h, float *w, kn_bf16 *low,
                        float *m, float *v, const float *g, size_t n)
{
    launch(p, run_adamw, &(struct adamw_args){*h, w, low, m, v, g, n}, sizeof(struct adamw_args));
}

/* The operation that returns a value. */

static double async_sumsq(struct kn_pool *p, enum kn_type t, const void *x, size_t n)
{
    async_wait(p);
    return kn_host_sumsq(NULL, t, x, n);
}

static bool async_open(struct kn_pool *p)
{
    struct stream *q = calloc(1, sizeof(*q));

    kn_pool_set_stream(p, q);
    return q != NULL;
}

static void async_close(struct kn_pool *p)
{
    free(kn_pool_stream(p));
}

static void *async_alloc(size_t bytes)
{
    live++;
    return kn_backend_host()->alloc(bytes);
}

static void async_free(void *x, size_t bytes)
{
    live--;
    kn_backend_host()->free(x, bytes);
}

const struct kn_backend *async_backend(void)
{
    static const struct kn_backend async = {.name = "async",
                                            .open = async_open,
                                            .close = async_close,
                                            .alloc = async_alloc,
                                            .free = async_free,
                                            .copy = async_copy,
                                            .wait = async_wait,
#define ASYNC_OP(op) .op = async_##op,
                                            KN_BACKEND_OPS(ASYNC_OP)
#undef ASYNC_OP
    };

    return &async;
}

int async_pending(const struct kn_pool *p)
{
    return ((const struct stream *)kn_pool_stream(p))->n;
}

int async_waits(const struct kn_pool *p)
{
    return ((const struct stream *)kn_pool_stream(p))->waits;
}

int async_live(void)
{
    return live;
}
