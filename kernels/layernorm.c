/* LayerNorm over rows. Ba, Kiros and Hinton, "Layer normalization", 2016. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16, BWD_ROWS = 15 };

struct fwd {
    enum kn_type t;
    void *y;
    float *stats;
    const void *x, *w, *b;
    size_t d;
    float eps, offset;
};

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct fwd *f = arg;
    float *bx = share->scratch, *by = bx + f->d;
    const float *w = kn_in_scale(f->t, f->w, by + f->d, f->d, f->offset),
                *b = f->b ? kn_in(f->t, f->b, by + 2 * f->d, f->d) : by + 2 * f->d;

    if (!f->b)
        memset(by + 2 * f->d, 0, f->d * sizeof(*by));

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(f->t, kn_ptr(f->t, f->x, r * f->d), bx, f->d);
        void *to = kn_ptr(f->t, f->y, r * f->d);
        float *y = kn_out(f->t, to, by);

        kn_ops()->layernorm_row(y, f->stats + 2 * r, x, w, b, f->d, f->eps);
        kn_out_done(f->t, to, y, f->d);
        kn_row_done(share, r);
    }
}

void kn_host_layernorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, float *stats,
                           const void *x, const void *w, const void *b, size_t rows, size_t dim,
                           float eps, float offset)
{
    struct fwd f = {.t = type,
                    .y = y,
                    .stats = stats,
                    .x = x,
                    .w = w,
                    .b = b,
                    .d = dim,
                    .eps = eps,
                    .offset = offset};

    assert(4 * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &f);
}

struct bwd {
    enum kn_type t;
    void *dx;
    const void *dy, *x, *w;
    const float *stats;
    size_t d;
    bool add;
    float offset;
    struct kn_partial sums; /* dw, db */
};

static void bwd_rows(void *arg, const struct kn_share *share)
{
    struct bwd *b = arg;
    size_t d = b->d;
    float *sum[KN_SUMS], *bw = share->scratch + 2 * d, *bdx = bw + d, *bdy = bdx + BWD_ROWS * d,
                         *bx = bdy + BWD_ROWS * d;
    const float *w = kn_in_scale(b->t, b->w, bw, d, b->offset);

    kn_partial_begin(sum, &b->sums, share);
    for (size_t r = share->lo; r < share->hi; r += BWD_ROWS) {
        size_t rows = kn_min(BWD_ROWS, share->hi - r), n = rows * d;
        const float *dy = kn_in(b->t, kn_ptr(b->t, b->dy, r * d), bdy, n);
        const float *x = kn_in(b->t, kn_ptr(b->t, b->x, r * d), bx, n);
        void *to = kn_ptr(b->t, b->dx, r * d);
        float *dx = kn_out(b->t, to, bdx);

        if (b->t != KN_F32 && b->add)
            kn_ops()->to_f32(dx, to, n);
        kn_ops()->layernorm_bwd(dx, sum[0], sum[1], dy, x, w, b->stats + 2 * r, rows, d, b->add);
        kn_out_done(b->t, to, dx, n);
        kn_pool_poll(share->pool, share->thread);
    }
}

void kn_host_layernorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw, float *db,
                           const void *dy, const void *x, const void *w, const float *stats,
                           size_t rows, size_t dim, bool add, float offset)
{
    struct bwd b = {.t = type,
                    .dx = dx,
                    .dy = dy,
                    .x = x,
                    .w = w,
                    .stats = stats,
                    .d = dim,
                    .add = add,
                    .offset = offset,
                    .sums = {.sum = {dw, db}, .count = dim}};

    assert((3 + 3 * BWD_ROWS) * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, &b);
    kn_partial_end(&b.sums, pool);
}
