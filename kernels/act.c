/*
 * An activation without a gate over rows, with the bias before it. Threads take columns, so that
 * each column's gradient of the bias is added up by one of them, in the order of the rows.
 */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { UNIT = 64, GRAIN = 8 };

struct act {
    enum kn_type t;
    enum kn_act form;
    void *y, *dx;
    float *dbias;
    const void *x, *dy, *bias;
    size_t ldy, ldx, lddx, lddy, rows, f;
};

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct act *g = arg;
    float *b = share->scratch;
    const float *bias = g->bias ? kn_in(g->t, g->bias, b + 2 * g->f, g->f) : NULL;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *x = kn_in(g->t, kn_ptr(g->t, g->x, r * g->ldx), b, g->f);
        void *to = kn_ptr(g->t, g->y, r * g->ldy);
        float *y = kn_out(g->t, to, b + g->f);

        kn_ops()->act_row(y, x, bias, g->f, g->form);
        kn_out_done(g->t, to, y, g->f);
        kn_row_done(share, r);
    }
}

void kn_host_act_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy, const void *x,
                     size_t ldx, const void *bias, size_t rows, size_t ffn, enum kn_act form)
{
    struct act g = {
        .t = type, .form = form, .y = y, .ldy = ldy, .x = x, .ldx = ldx, .bias = bias, .f = ffn};

    assert(3 * ffn * sizeof(float) <= KN_SCRATCH_BYTES);
    assert(ldy >= ffn && ldx >= ffn && (y != x || ldy == ldx));
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &g);
}

static void bwd_columns(void *arg, const struct kn_share *share)
{
    const struct act *g = arg;
    size_t lo = share->lo, n = share->hi - lo;
    float *b = share->scratch;
    const float *bias = g->bias ? kn_in(g->t, kn_ptr(g->t, g->bias, lo), b + 3 * n, n) : NULL;

    for (size_t r = 0; r < g->rows; r++) {
        const float *dy = kn_in(g->t, kn_ptr(g->t, g->dy, r * g->lddy + lo), b, n);
        const float *x = kn_in(g->t, kn_ptr(g->t, g->x, r * g->ldx + lo), b + n, n);
        void *to = kn_ptr(g->t, g->dx, r * g->lddx + lo);
        float *dx = kn_out(g->t, to, b + 2 * n);

        kn_ops()->act_bwd_row(dx, g->dbias ? g->dbias + lo : NULL, dy, x, bias, n, g->form);
        kn_out_done(g->t, to, dx, n);
        kn_row_done(share, r);
    }
}

void kn_host_act_bwd(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx, float *dbias,
                     const void *dy, size_t lddy, const void *x, size_t ldx, const void *bias,
                     size_t rows, size_t ffn, enum kn_act form)
{
    struct act g = {.t = type,
                    .form = form,
                    .dx = dx,
                    .lddx = lddx,
                    .dbias = dbias,
                    .dy = dy,
                    .lddy = lddy,
                    .x = x,
                    .ldx = ldx,
                    .bias = bias,
                    .rows = rows,
                    .f = ffn};

    assert(4 * ffn * sizeof(float) <= KN_SCRATCH_BYTES);
    assert(lddx >= ffn && lddy >= ffn && ldx >= ffn);
    assert((dx != x || lddx == ldx) && (dx != dy || lddx == lddy));
    kn_parallel(pool, ffn, UNIT, UNIT, bwd_columns, &g);
}
