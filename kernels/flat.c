/* Flat arrays and AdamW: spans cut into pieces that stay in the first-level cache while they are
 * converted. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum {
    UNIT = 64,
    GRAIN = 16384,
    PIECE = 2048,
    ZERO_PIECE = 1 << 20,
    ADAMW_PIECE = 1 << 16,
    MAX_THREADS = 256
};

struct flat {
    enum kn_type yt, xt;
    void *y;
    const void *x, *x2;
    float alpha;
    size_t ldy, ldx, cols;
    double sum[MAX_THREADS];
    bool bad[MAX_THREADS];
};

static size_t piece(const struct kn_share *share, size_t i, bool direct)
{
    return direct ? share->hi - i : kn_min(PIECE, share->hi - i);
}

static void zero_span(void *arg, const struct kn_share *share)
{
    for (size_t i = share->lo, n; i < share->hi; i += n) {
        n = kn_min(ZERO_PIECE, share->hi - i);
        memset((char *)arg + i, 0, n);
        kn_pool_poll(share->pool, share->thread);
    }
}

void kn_host_zero(struct kn_pool *pool, void *to, size_t bytes)
{
    kn_parallel(pool, bytes, UNIT, 4 * GRAIN, zero_span, to);
}

static void copy_rows(void *arg, const struct kn_share *share)
{
    const struct flat *f = arg;

    for (size_t r = share->lo; r < share->hi; r++)
        memcpy(kn_ptr(f->yt, f->y, r * f->ldy), kn_ptr(f->yt, f->x, r * f->ldx),
               f->cols * kn_type_size(f->yt));
}

void kn_host_copy2d(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy, const void *x,
                    size_t ldx, size_t rows, size_t cols)
{
    struct flat f = {.yt = type, .y = y, .ldy = ldy, .x = x, .ldx = ldx, .cols = cols};

    if (cols > 0)
        kn_parallel(pool, rows, 1, GRAIN / cols, copy_rows, &f);
}

/* Tiles of 16 x 16, so that both sides use whole cache lines. */
static void transpose_rows(void *arg, const struct kn_share *share)
{
    const struct flat *f = arg;
    enum { TILE = 16 };

    for (size_t r0 = share->lo; r0 < share->hi; r0 += TILE) {
        for (size_t c0 = 0; c0 < f->cols; c0 += TILE) {
            size_t r1 = kn_min(r0 + TILE, share->hi), c1 = kn_min(c0 + TILE, f->cols);

            for (size_t c = c0; c < c1; c++) {
                for (size_t r = r0; r < r1; r++) {
                    if (f->yt == KN_F32)
                        ((float *)f->y)[c * f->ldy + r] = ((const float *)f->x)[r * f->ldx + c];
                    else
                        ((kn_bf16 *)f->y)[c * f->ldy + r] = ((const kn_bf16 *)f->x)[r * f->ldx + c];
                }
            }
        }
    }
}

void kn_host_transpose(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy, const void *x,
                       size_t ldx, size_t rows, size_t cols)
{
    struct flat f = {.yt = type, .y = y, .ldy = ldy, .x = x, .ldx = ldx, .cols = cols};

    if (cols > 0)
        kn_parallel(pool, rows, 16, GRAIN / cols, transpose_rows, &f);
}

static void convert_span(void *arg, const struct kn_share *share)
{
    const struct flat *f = arg;
    size_t n = share->hi - share->lo;
    void *y = kn_ptr(f->yt, f->y, share->lo);
    const void *x = kn_ptr(f->xt, f->x, share->lo);

    if (f->yt == f->xt)
        memcpy(y, x, n * kn_type_size(f->yt));
    else if (f->yt == KN_F32)
        kn_ops()->to_f32(y, x, n);
    else
        kn_ops()->to_bf16(y, x, n);
}

void kn_host_convert(struct kn_pool *pool, enum kn_type yt, void *y, enum kn_type xt, const void *x,
                     size_t count)
{
    struct flat f = {.yt = yt, .y = y, .xt = xt, .x = x};

    kn_parallel(pool, count, UNIT, GRAIN, convert_span, &f);
}

static void add_span(void *arg, const struct kn_share *share)
{
    const struct flat *f = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        void *to = kn_ptr(f->yt, f->y, i);
        float *y = kn_out(f->yt, to, share->scratch);

        n = piece(share, i, f->yt == KN_F32);
        kn_ops()->add(y, kn_in(f->yt, kn_ptr(f->yt, f->x, i), share->scratch + PIECE, n),
                      kn_in(f->yt, kn_ptr(f->yt, f->x2, i), share->scratch + 2 * PIECE, n), n);
        kn_out_done(f->yt, to, y, n);
    }
}

void kn_host_add(struct kn_pool *pool, enum kn_type type, void *y, const void *a, const void *b,
                 size_t count)
{
    struct flat f = {.yt = type, .y = y, .x = a, .x2 = b};

    kn_parallel(pool, count, UNIT, GRAIN, add_span, &f);
}

static void scale_span(void *arg, const struct kn_share *share)
{
    const struct flat *f = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        void *to = kn_ptr(f->yt, f->y, i);
        float *y = kn_out(f->yt, to, share->scratch);

        n = piece(share, i, f->yt == KN_F32);
        kn_ops()->scale(y, kn_in(f->yt, to, share->scratch, n), f->alpha, n);
        kn_out_done(f->yt, to, y, n);
    }
}

void kn_host_scale(struct kn_pool *pool, enum kn_type type, void *x, float alpha, size_t count)
{
    struct flat f = {.yt = type, .y = x, .alpha = alpha};

    kn_parallel(pool, count, UNIT, GRAIN, scale_span, &f);
}

static void axpy_span(void *arg, const struct kn_share *share)
{
    const struct flat *f = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        void *to = kn_ptr(f->yt, f->y, i);
        float *y = kn_out(f->yt, to, share->scratch);

        n = piece(share, i, f->yt == KN_F32 && f->xt == KN_F32);
        if (f->yt != KN_F32)
            kn_ops()->to_f32(y, to, n);
        kn_ops()->axpy(y, f->alpha, kn_in(f->xt, kn_ptr(f->xt, f->x, i), share->scratch + PIECE, n),
                       n);
        kn_out_done(f->yt, to, y, n);
    }
}

void kn_host_axpy(struct kn_pool *pool, enum kn_type yt, void *y, float alpha, enum kn_type xt,
                  const void *x, size_t count)
{
    struct flat f = {.yt = yt, .y = y, .alpha = alpha, .xt = xt, .x = x};

    kn_parallel(pool, count, UNIT, GRAIN, axpy_span, &f);
}

static void sumsq_span(void *arg, const struct kn_share *share)
{
    struct flat *f = arg;
    double sum = 0;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        n = piece(share, i, f->xt == KN_F32);
        sum += kn_ops()->sumsq(kn_in(f->xt, kn_ptr(f->xt, f->x, i), share->scratch, n), n);
    }
    f->sum[share->thread] = sum;
}

double kn_host_sumsq(struct kn_pool *pool, enum kn_type type, const void *x, size_t count)
{
    struct flat f = {.xt = type, .x = x};
    double sum = 0;

    assert(kn_pool_threads(pool) <= MAX_THREADS);
    kn_parallel(pool, count, UNIT, GRAIN, sumsq_span, &f);
    for (int i = 0; i < kn_pool_threads(pool); i++)
        sum += f.sum[i];
    return sum;
}

static void nonfinite_span(void *arg, const struct kn_share *share)
{
    struct flat *f = arg;
    bool bad = false;

    for (size_t i = share->lo, n; i < share->hi && !bad; i += n) {
        n = piece(share, i, f->xt == KN_F32);
        bad = kn_ops()->any_nonfinite(kn_in(f->xt, kn_ptr(f->xt, f->x, i), share->scratch, n), n);
    }
    f->bad[share->thread] = bad;
}

bool kn_host_any_nonfinite(struct kn_pool *pool, enum kn_type type, const void *x, size_t count)
{
    struct flat f = {.xt = type, .x = x};

    assert(kn_pool_threads(pool) <= MAX_THREADS);
    kn_parallel(pool, count, UNIT, GRAIN, nonfinite_span, &f);
    for (int i = 0; i < kn_pool_threads(pool); i++)
        if (f.bad[i])
            return true;
    return false;
}

struct adamw {
    const struct kn_adamw *h;
    float *w, *m, *v;
    kn_bf16 *low;
    const float *g;
};

static void adamw_span(void *arg, const struct kn_share *share)
{
    const struct adamw *a = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        n = kn_min(a->low ? PIECE : ADAMW_PIECE, share->hi - i);
        kn_ops()->adamw(a->h, a->w + i, a->m + i, a->v + i, a->g + i, n);
        if (a->low)
            kn_ops()->to_bf16(a->low + i, a->w + i, n);
        kn_pool_poll(share->pool, share->thread);
    }
}

void kn_host_adamw(struct kn_pool *pool, const struct kn_adamw *hyper, float *w, kn_bf16 *low,
                   float *m, float *v, const float *g, size_t count)
{
    struct adamw a = {.h = hyper, .w = w, .low = low, .m = m, .v = v, .g = g};

    assert(hyper->step >= 1);
    kn_parallel(pool, count, UNIT, GRAIN, adamw_span, &a);
}
