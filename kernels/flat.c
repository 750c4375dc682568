/* Flat arrays and optimizers: spans cut into pieces that stay in the first-level cache while they
 * are converted. */
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
    double sum[MAX_THREADS];
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

struct convert_rows {
    enum kn_type yt, xt;
    void *y;
    const void *x;
    size_t ldy, ldx, cols;
};

static void convert_some_rows(void *arg, const struct kn_share *share)
{
    const struct convert_rows *c = arg;

    for (size_t i = share->lo; i < share->hi; i++) {
        void *y = kn_ptr(c->yt, c->y, i * c->ldy);
        const void *x = kn_ptr(c->xt, c->x, i * c->ldx);

        if (c->yt == c->xt)
            memcpy(y, x, c->cols * kn_type_size(c->yt));
        else if (c->yt == KN_F32)
            kn_ops()->to_f32(y, x, c->cols);
        else
            kn_ops()->to_bf16(y, x, c->cols);
        kn_row_done(share, i);
    }
}

void kn_host_convert_rows(struct kn_pool *pool, enum kn_type yt, void *y, size_t ldy,
                          enum kn_type xt, const void *x, size_t ldx, size_t rows, size_t cols)
{
    struct convert_rows c = {
        .yt = yt, .xt = xt, .y = y, .x = x, .ldy = ldy, .ldx = ldx, .cols = cols};

    assert(ldy >= cols && ldx >= cols);
    kn_parallel(pool, rows, 1, cols ? kn_max(1, GRAIN / cols) : GRAIN, convert_some_rows, &c);
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

struct add_scaled {
    struct flat flat;
    float scale;
};

static void add_scaled_span(void *arg, const struct kn_share *share)
{
    const struct add_scaled *job = arg;
    const struct flat *f = &job->flat;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        void *to = kn_ptr(f->yt, f->y, i);
        float *y = kn_out(f->yt, to, share->scratch);
        const float *b;

        n = piece(share, i, f->yt == KN_F32);
        b = kn_in(f->yt, kn_ptr(f->yt, f->x2, i), share->scratch + 2 * PIECE, n);
        if (f->x)
            kn_ops()->combine(y, 1, kn_in(f->yt, kn_ptr(f->yt, f->x, i), share->scratch + PIECE, n),
                              job->scale, b, n);
        else
            kn_ops()->scale(y, b, job->scale, n);
        kn_out_done(f->yt, to, y, n);
    }
}

void kn_host_add_scaled(struct kn_pool *pool, enum kn_type type, void *y, const void *a,
                        float scale, const void *b, size_t count)
{
    struct add_scaled job = {.flat = {.yt = type, .y = y, .x = a, .x2 = b}, .scale = scale};

    kn_parallel(pool, count, UNIT, GRAIN, add_scaled_span, &job);
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

    assert(hyper->step >= 1 && hyper->beta1 < 1 && hyper->beta2 < 1);
    kn_parallel(pool, count, UNIT, GRAIN, adamw_span, &a);
}

struct lamb {
    const struct kn_adamw *h;
    const float *w;
    float *m, *v, *g;
};

static void lamb_span(void *arg, const struct kn_share *share)
{
    const struct lamb *a = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        n = kn_min(ADAMW_PIECE, share->hi - i);
        kn_ops()->lamb(a->h, a->w + i, a->m + i, a->v + i, a->g + i, n);
        kn_pool_poll(share->pool, share->thread);
    }
}

void kn_host_lamb(struct kn_pool *pool, const struct kn_adamw *hyper, const float *w, float *m,
                  float *v, float *g, size_t count)
{
    struct lamb a = {.h = hyper, .w = w, .m = m, .v = v, .g = g};

    assert(hyper->step >= 1 && hyper->beta1 < 1 && hyper->beta2 < 1);
    kn_parallel(pool, count, UNIT, GRAIN, lamb_span, &a);
}

struct momentum {
    const struct kn_momentum *h;
    const float *w;
    float *m, *g;
};

static void momentum_span(void *arg, const struct kn_share *share)
{
    const struct momentum *a = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        n = kn_min(ADAMW_PIECE, share->hi - i);
        kn_ops()->momentum(a->h, a->w + i, a->m + i, a->g + i, n);
        kn_pool_poll(share->pool, share->thread);
    }
}

void kn_host_momentum(struct kn_pool *pool, const struct kn_momentum *hyper, const float *w,
                      float *m, float *g, size_t count)
{
    struct momentum a = {.h = hyper, .w = w, .m = m, .g = g};

    kn_parallel(pool, count, UNIT, GRAIN, momentum_span, &a);
}

struct combine {
    float *y, a, b;
    kn_bf16 *low;
    const float *x, *z;
};

static void combine_span(void *arg, const struct kn_share *share)
{
    const struct combine *c = arg;

    for (size_t i = share->lo, n; i < share->hi; i += n) {
        n = kn_min(c->low ? PIECE : ADAMW_PIECE, share->hi - i);
        kn_ops()->combine(c->y + i, c->a, c->x + i, c->b, c->z + i, n);
        if (c->low)
            kn_ops()->to_bf16(c->low + i, c->y + i, n);
        kn_pool_poll(share->pool, share->thread);
    }
}

void kn_host_combine(struct kn_pool *pool, float *y, kn_bf16 *low, float a, const float *x, float b,
                     const float *z, size_t count)
{
    struct combine c = {.y = y, .a = a, .b = b, .low = low, .x = x, .z = z};

    kn_parallel(pool, count, UNIT, GRAIN, combine_span, &c);
}
