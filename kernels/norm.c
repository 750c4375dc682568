/* RMSNorm over rows. Zhang and Sennrich, "Root mean square layer normalization", 2019. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16, BWD_ROWS = 16 };

struct fwd {
    enum kn_type t;
    void *y;
    float *rrms;
    const void *x, *w;
    size_t d;
    float eps, offset;
};

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct fwd *f = arg;
    float *bx = share->scratch, *by = bx + f->d;
    const float *w = kn_in_scale(f->t, f->w, by + f->d, f->d, f->offset);

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(f->t, kn_ptr(f->t, f->x, r * f->d), bx, f->d);
        void *to = kn_ptr(f->t, f->y, r * f->d);
        float *y = kn_out(f->t, to, by);

        f->rrms[r] = kn_ops()->rmsnorm_row(y, x, w, f->d, f->eps);
        kn_out_done(f->t, to, y, f->d);
        kn_row_done(share, r);
    }
}

void kn_host_rmsnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, float *rrms,
                         const void *x, const void *w, size_t rows, size_t dim, float eps,
                         float offset)
{
    struct fwd f = {
        .t = type, .y = y, .rrms = rrms, .x = x, .w = w, .d = dim, .eps = eps, .offset = offset};

    assert(3 * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &f);
}

struct bwd {
    enum kn_type t;
    void *dx;
    const void *dy, *x, *w;
    const float *rrms;
    size_t d;
    bool add;
    float offset;
    struct kn_partial dw;
};

static void bwd_rows(void *arg, const struct kn_share *share)
{
    struct bwd *b = arg;
    size_t d = b->d;
    float *dw[KN_SUMS], *bw = share->scratch + d, *bdx = bw + d, *bdy = bdx + BWD_ROWS * d,
                        *bx = bdy + BWD_ROWS * d;
    const float *w = kn_in_scale(b->t, b->w, bw, d, b->offset);
    size_t step = b->t == KN_F32 ? share->hi - share->lo : BWD_ROWS;

    kn_partial_begin(dw, &b->dw, share);
    for (size_t r = share->lo; r < share->hi; r += step) {
        size_t rows = kn_min(step, share->hi - r), n = rows * d;
        const float *dy = kn_in(b->t, kn_ptr(b->t, b->dy, r * d), bdy, n);
        const float *x = kn_in(b->t, kn_ptr(b->t, b->x, r * d), bx, n);
        void *to = kn_ptr(b->t, b->dx, r * d);
        float *dx = kn_out(b->t, to, bdx);

        if (b->t != KN_F32 && b->add)
            kn_ops()->to_f32(dx, to, n);
        kn_ops()->rmsnorm_bwd(dx, dw[0], dy, x, w, b->rrms + r, rows, d, b->add);
        kn_out_done(b->t, to, dx, n);
    }
}

void kn_host_rmsnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw,
                         const void *dy, const void *x, const void *w, const float *rrms,
                         size_t rows, size_t dim, bool add, float offset)
{
    struct bwd b = {.t = type,
                    .dx = dx,
                    .dy = dy,
                    .x = x,
                    .w = w,
                    .rrms = rrms,
                    .d = dim,
                    .add = add,
                    .offset = offset,
                    .dw = {.sum = {dw}, .count = dim}};

    assert((2 + 3 * BWD_ROWS) * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, &b);
    kn_partial_end(&b.dw, pool);
}
