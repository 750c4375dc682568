/* RMSNorm of each head of a row: the heads are rows of the level's RMSNorm. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16, HEADS = 32 /* at a time */ };

struct headnorm {
    enum kn_type t;
    void *y, *dx;
    float *rrms_out;
    const float *rrms;
    const void *x, *dy, *w;
    size_t ldy, ldx, lddx, lddy, heads, d;
    float eps, offset;
    struct kn_partial dw;
};

/* Some heads of row R, from head H on. */
static void fwd_heads(const struct headnorm *head, float *buf, const float *w, size_t r, size_t h)
{
    size_t heads = kn_min(HEADS, head->heads - h), n = heads * head->d, at = h * head->d;
    const float *x = kn_in(head->t, kn_ptr(head->t, head->x, r * head->ldx + at), buf, n);
    void *to = kn_ptr(head->t, head->y, r * head->ldy + at);
    float *y = kn_out(head->t, to, buf + n);

    for (size_t i = 0; i < heads; i++)
        head->rrms_out[r * head->heads + h + i] =
            kn_ops()->rmsnorm_row(y + i * head->d, x + i * head->d, w, head->d, head->eps);
    kn_out_done(head->t, to, y, n);
}

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct headnorm *head = arg;
    const float *w = kn_in_scale(head->t, head->w, share->scratch, head->d, head->offset);

    for (size_t r = share->lo; r < share->hi; r++) {
        for (size_t h = 0; h < head->heads; h += HEADS)
            fwd_heads(head, share->scratch + head->d, w, r, h);
        kn_row_done(share, r);
    }
}

void kn_host_headnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy, float *rrms,
                          const void *x, size_t ldx, const void *w, size_t rows, size_t heads,
                          size_t dim, float eps, float offset)
{
    struct headnorm h = {.t = type,
                         .y = y,
                         .ldy = ldy,
                         .rrms_out = rrms,
                         .x = x,
                         .ldx = ldx,
                         .w = w,
                         .heads = heads,
                         .d = dim,
                         .eps = eps,
                         .offset = offset};

    assert((2 * HEADS + 1) * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    assert(ldx >= heads * dim && ldy >= heads * dim && (y != x || ldy == ldx));
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &h);
}

static void bwd_heads(const struct headnorm *head, float *buf, float *dw, const float *w, size_t r,
                      size_t h)
{
    size_t heads = kn_min(HEADS, head->heads - h), n = heads * head->d, at = h * head->d;
    const float *dy = kn_in(head->t, kn_ptr(head->t, head->dy, r * head->lddy + at), buf, n);
    const float *x = kn_in(head->t, kn_ptr(head->t, head->x, r * head->ldx + at), buf + n, n);
    void *to = kn_ptr(head->t, head->dx, r * head->lddx + at);
    float *dx = kn_out(head->t, to, buf + 2 * n);

    kn_ops()->rmsnorm_bwd(dx, dw, dy, x, w, head->rrms + r * head->heads + h, heads, head->d,
                          false);
    kn_out_done(head->t, to, dx, n);
}

static void bwd_rows(void *arg, const struct kn_share *share)
{
    struct headnorm *head = arg;
    float *dw[KN_SUMS], *bw = share->scratch + head->d;
    const float *w = kn_in_scale(head->t, head->w, bw, head->d, head->offset);

    kn_partial_begin(dw, &head->dw, share);
    for (size_t r = share->lo; r < share->hi; r++) {
        for (size_t h = 0; h < head->heads; h += HEADS)
            bwd_heads(head, bw + head->d, dw[0], w, r, h);
        kn_row_done(share, r);
    }
}

void kn_host_headnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx, float *dw,
                          const void *dy, size_t lddy, const void *x, size_t ldx, const void *w,
                          const float *rrms, size_t rows, size_t heads, size_t dim, float offset)
{
    struct headnorm h = {.t = type,
                         .dx = dx,
                         .lddx = lddx,
                         .dy = dy,
                         .lddy = lddy,
                         .x = x,
                         .ldx = ldx,
                         .w = w,
                         .rrms = rrms,
                         .heads = heads,
                         .d = dim,
                         .offset = offset,
                         .dw = {.sum = {dw}, .count = dim}};

    assert((3 * HEADS + 2) * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    assert(lddx >= heads * dim && lddy >= heads * dim && ldx >= heads * dim);
    assert(dx != dy || lddx == lddy);
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, &h);
    kn_partial_end(&h.dw, pool);
}
