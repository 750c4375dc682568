/* SwiGLU, GeGLU and the clamped SwiGLU over rows. Shazeer, "GLU variants improve transformer",
 * 2020. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 8 };

struct glu {
    enum kn_type t;
    void (*row)(float *y, const float *gate, const float *up, size_t count);
    void (*bwd_row)(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                    size_t count);
    void *y, *dgate, *dup;
    const void *dy, *gate, *up;
    size_t ldy, lddg, lddu, lddy, ldg, ldu, f;
};

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct glu *w = arg;
    float *b = share->scratch;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *gate = kn_in(w->t, kn_ptr(w->t, w->gate, r * w->ldg), b, w->f);
        const float *up = kn_in(w->t, kn_ptr(w->t, w->up, r * w->ldu), b + w->f, w->f);
        void *to = kn_ptr(w->t, w->y, r * w->ldy);
        float *y = kn_out(w->t, to, b + 2 * w->f);

        w->row(y, gate, up, w->f);
        kn_out_done(w->t, to, y, w->f);
        kn_row_done(share, r);
    }
}

static void forward(struct kn_pool *pool, struct glu *glu, size_t rows)
{
    assert(3 * glu->f * sizeof(float) <= KN_SCRATCH_BYTES);
    assert(glu->ldy >= glu->f && glu->ldg >= glu->f && glu->ldu >= glu->f);
    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, glu);
}

void kn_host_swiglu_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                        const void *gate, size_t ldg, const void *up, size_t ldu, size_t rows,
                        size_t ffn)
{
    struct glu w = {
        .t = type, .y = y, .ldy = ldy, .gate = gate, .ldg = ldg, .up = up, .ldu = ldu, .f = ffn};

    w.row = kn_ops()->swiglu_row;
    forward(pool, &w, rows);
}

void kn_host_geglu_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                       const void *gate, size_t ldg, const void *up, size_t ldu, size_t rows,
                       size_t ffn)
{
    struct glu w = {
        .t = type, .y = y, .ldy = ldy, .gate = gate, .ldg = ldg, .up = up, .ldu = ldu, .f = ffn};

    w.row = kn_ops()->geglu_row;
    forward(pool, &w, rows);
}

void kn_host_swiglu_clamped_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                                const void *gate, size_t ldg, const void *up, size_t ldu,
                                size_t rows, size_t ffn)
{
    struct glu w = {
        .t = type, .y = y, .ldy = ldy, .gate = gate, .ldg = ldg, .up = up, .ldu = ldu, .f = ffn};

    w.row = kn_ops()->clamped_row;
    forward(pool, &w, rows);
}

static void bwd_rows(void *arg, const struct kn_share *share)
{
    const struct glu *w = arg;
    float *b = share->scratch;
    size_t f = w->f;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *dy = kn_in(w->t, kn_ptr(w->t, w->dy, r * w->lddy), b, f);
        const float *gate = kn_in(w->t, kn_ptr(w->t, w->gate, r * w->ldg), b + f, f);
        const float *up = kn_in(w->t, kn_ptr(w->t, w->up, r * w->ldu), b + 2 * f, f);
        void *to_gate = kn_ptr(w->t, w->dgate, r * w->lddg);
        void *to_up = kn_ptr(w->t, w->dup, r * w->lddu);
        float *dgate = kn_out(w->t, to_gate, b + 3 * f), *dup = kn_out(w->t, to_up, b + 4 * f);

        w->bwd_row(dgate, dup, dy, gate, up, f);
        kn_out_done(w->t, to_gate, dgate, f);
        kn_out_done(w->t, to_up, dup, f);
        kn_row_done(share, r);
    }
}

static void backward(struct kn_pool *pool, struct glu *glu, size_t rows)
{
    size_t f = glu->f;

    assert(5 * f * sizeof(float) <= KN_SCRATCH_BYTES);
    assert(glu->lddg >= f && glu->lddu >= f && glu->lddy >= f && glu->ldg >= f && glu->ldu >= f);
    assert((glu->dgate != glu->gate || glu->lddg == glu->ldg) &&
           (glu->dup != glu->up || glu->lddu == glu->ldu));
    kn_parallel(pool, rows, 1, GRAIN, bwd_rows, glu);
}

static struct glu gradient(enum kn_type type, void *dgate, size_t lddg, void *dup, size_t lddu,
                           const void *dy, size_t lddy, const void *gate, size_t ldg,
                           const void *up, size_t ldu, size_t ffn)
{
    return (struct glu){.t = type,
                        .dgate = dgate,
                        .lddg = lddg,
                        .dup = dup,
                        .lddu = lddu,
                        .dy = dy,
                        .lddy = lddy,
                        .gate = gate,
                        .ldg = ldg,
                        .up = up,
                        .ldu = ldu,
                        .f = ffn};
}

void kn_host_swiglu_bwd(struct kn_pool *pool, enum kn_type type, void *dgate, size_t lddg,
                        void *dup, size_t lddu, const void *dy, size_t lddy, const void *gate,
                        size_t ldg, const void *up, size_t ldu, size_t rows, size_t ffn)
{
    struct glu w = gradient(type, dgate, lddg, dup, lddu, dy, lddy, gate, ldg, up, ldu, ffn);

    w.bwd_row = kn_ops()->swiglu_bwd_row;
    backward(pool, &w, rows);
}

void kn_host_geglu_bwd(struct kn_pool *pool, enum kn_type type, void *dgate, size_t lddg, void *dup,
                       size_t lddu, const void *dy, size_t lddy, const void *gate, size_t ldg,
                       const void *up, size_t ldu, size_t rows, size_t ffn)
{
    struct glu w = gradient(type, dgate, lddg, dup, lddu, dy, lddy, gate, ldg, up, ldu, ffn);

    w.bwd_row = kn_ops()->geglu_bwd_row;
    backward(pool, &w, rows);
}

void kn_host_swiglu_clamped_bwd(struct kn_pool *pool, enum kn_type type, void *dgate, size_t lddg,
                                void *dup, size_t lddu, const void *dy, size_t lddy,
                                const void *gate, size_t ldg, const void *up, size_t ldu,
                                size_t rows, size_t ffn)
{
    struct glu w = gradient(type, dgate, lddg, dup, lddu, dy, lddy, gate, ldg, up, ldu, ffn);

    w.bwd_row = kn_ops()->clamped_bwd_row;
    backward(pool, &w, rows);
}
