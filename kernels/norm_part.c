/* RMSNorm of rows that are divided over ranks, in two steps each way: sums, then what is made of
 * those of all ranks. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16 };

struct part {
    enum kn_type t;
    void *y, *dx;
    float *rrms_out, *sums_out;
    const float *rrms, *sums;
    const void *x, *dy, *w;
    size_t ldy, ldx, lddx, lddy, d, whole;
    float eps, offset;
    struct kn_partial dw;
};

static void sums_rows(void *arg, const struct kn_share *share)
{
    const struct part *p = arg;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(p->t, kn_ptr(p->t, p->x, r * p->ldx), share->scratch, p->d);

        p->sums_out[r] = kn_ops()->dot(x, x, p->d);
        kn_row_done(share, r);
    }
}

void kn_host_rmsnorm_part_sums(struct kn_pool *pool, enum kn_type type, float *sums, const void *x,
                               size_t ldx, size_t rows, size_t dim)
{
    struct part p = {.t = type, .sums_out = sums, .x = x, .ldx = ldx, .d = dim};

    assert(dim * sizeof(float) <= KN_SCRATCH_BYTES && ldx >= dim);
    kn_parallel(pool, rows, 1, GRAIN, sums_rows, &p);
}

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct part *p = arg;
    float *bx = share->scratch, *by = bx + p->d;
    const float *w = kn_in_scale(p->t, p->w, by + p->d, p->d, p->offset);

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(p->t, kn_ptr(p->t, p->x, r * p->ldx), bx, p->d);
        void *to = kn_ptr(p->t, p->y, r * p->ldy);
        float *y = kn_out(p->t, to, by);

        p->rrms_out[r] = 1 / sqrtf(p->rrms_out[r] / (float)p->whole + p->eps);
        kn_ops()->norm_row(y, x, w, p->rrms_out[r], p->d);
        kn_out_done(p->t, to, y, p->d);
        kn_row_done(share, r);
    }
}

void kn_host_rmsnorm_part_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                              float *rrms, const void *x, size_t ldx, const void *w, size_t rows,
                              size_t dim, size_t whole, float eps, float offset)
{
    struct part p = {.t = type,
                     .y = y,
                     .ldy = ldy,
                     .rrms_out = rrms,
                     .x = x,
                     .ldx = ldx,
                     .w = w,
                     .d = dim,
                     .whole = whole,
                     .eps = eps,
                     .offset = offset};

    assert(3 * dim * sizeof(float) <= KN_SCRATCH_BYTES && dim <= whole);
    assert(ldx >= dim && ldy >= dim && (y != x || ldy == ldx));
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &p);
}

static void dots_rows(void *arg, const struct kn_share *share)
{
    const struct part *p = arg;
    float *bx = share->scratch, *bdy = bx + p->d;
    const float *w = kn_in_scale(p->t, p->w, bdy + p->d, p->d, p->offset);

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(p->t, kn_ptr(p->t, p->x, r * p->ldx), bx, p->d);
        const float *dy = kn_in(p->t, kn_ptr(p->t, p->dy, r * p->lddy), bdy, p->d);

        p->sums_out[r] = kn_ops()->dot3(dy, w, x, p->d);
        kn_row_done(share, r);
    }
}

void kn_host_rmsnorm_part_dots(struct kn_pool *pool, enum kn_type type, float *sums, const void *dy,
                               size_t lddy, const void *x, size_t ldx, const void *w, size_t rows,
                               size_t dim, float offset)
{
    struct part p = {.t = type,
                     .sums_out = sums,
                     .dy = dy,
                     .lddy = lddy,
                     .x = x,
                     .ldx = ldx,
                     .w = w,
                     .d = dim,
                     .offset = offset};

    assert(3 * dim * sizeof(float) <= KN_SCRATCH_BYTES && ldx >= dim && lddy >= dim);
    kn_parallel(pool, rows, 1, GRAIN, dots_rows, &p);
}

static void bwd_rows(void *arg, const struct kn_share *share)
{
    struct part *p = arg;
    float *dw[KN_SUMS], *bw = share->scratch + p->d, *bx = bw + p->d, *bdy = bx + p->d,
                        *bdx = bdy + p->d;
    const float *w = kn_in_scale(p->t, p->w, bw, p->d, p->offset);

    kn_partial_begin(dw, &p->dw, share);
    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(p->t, kn_ptr(p->t, p->x, r * p->ldx), bx, p->d);
        const float *dy = kn_in(p->t, kn_ptr(p->t, p->dy, r * p->lddy), bdy, p->d);
        void *to = kn_ptr(p->t, p->dx, r * p->lddx);
        float *dx = kn_out(p->t, to, bdx), q = p->rrms[r];

        kn_ops()->norm_bwd_row(dx, dw[0], dy, x, w, q, q * q * p->sums[r] / (float)p->whole, p->d);
        kn_out_done(p->t, to, dx, p->d);
        kn_row_done(share, r);
    }
}

void kn_host_rmsnorm_part_bwd(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx,
                              float *dw, const void *dy, size_t lddy, const void *x, size_t ldx,
                              const void *w, const float *rrms, const float *sums, size_t rows,
                              size_t dim, size_t whole, float offset)
{
    struct part p = {.t = type,
                     .dx = dx,
                     .lddx = lddx,
                     .dy = dy,
                     .lddy = lddy,
                     .x = x,
                     .ldx = ldx,
                     .w = w,
                     .rrms = rrms,
                     .sums = sums,
                     .d = dim,
                     .whole = whole,
                     .offset = offset,
                     .dw = {.sum = {dw}, .count = dim}};

    assert(5 * dim * sizeof(float) <= KN_SCRATCH_BYTES && dim <= whole);
    assert(lddx >= dim && lddy >= dim && ldx >= dim && (dx != dy || lddx == lddy));
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, &p);
    kn_partial_end(&p.dw, pool);
}
