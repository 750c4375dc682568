/* Biases: a vector added to every row, and the sum of the rows as its gradient. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { UNIT = 64, GRAIN = 16, PIECE = 1 << 16 };

struct bias {
    enum kn_type t;
    void *y;
    float *dbias;
    const void *x, *bias, *dy;
    size_t rows, d;
};

/* In pieces of a row, so that any width fits the scratch. */
static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct bias *s = arg;
    float *b = share->scratch;

    for (size_t c = 0; c < s->d; c += PIECE) {
        size_t n = kn_min(PIECE, s->d - c);
        const float *bias = kn_in(s->t, kn_ptr(s->t, s->bias, c), b + 2 * PIECE, n);

        for (size_t r = share->lo; r < share->hi; r++) {
            const float *x = kn_in(s->t, kn_ptr(s->t, s->x, r * s->d + c), b, n);
            void *to = kn_ptr(s->t, s->y, r * s->d + c);
            float *y = kn_out(s->t, to, b + PIECE);

            kn_ops()->add(y, x, bias, n);
            kn_out_done(s->t, to, y, n);
            kn_row_done(share, r);
        }
    }
}

void kn_host_bias_fwd(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                      const void *bias, size_t rows, size_t dim)
{
    struct bias s = {.t = type, .y = y, .x = x, .bias = bias, .d = dim};

    kn_parallel(pool, rows, 1, GRAIN, fwd_rows, &s);
}

/* Threads take columns: each sum has one owner and the order of the rows. */
static void bwd_columns(void *arg, const struct kn_share *share)
{
    const struct bias *s = arg;
    size_t lo = share->lo, n = share->hi - lo;

    for (size_t r = 0; r < s->rows; r++) {
        const float *dy = kn_in(s->t, kn_ptr(s->t, s->dy, r * s->d + lo), share->scratch, n);

        kn_ops()->add(s->dbias + lo, s->dbias + lo, dy, n);
        kn_row_done(share, r);
    }
}

void kn_host_bias_bwd(struct kn_pool *pool, enum kn_type type, float *dbias, const void *dy,
                      size_t rows, size_t dim)
{
    struct bias s = {.t = type, .dbias = dbias, .dy = dy, .rows = rows, .d = dim};

    assert(dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, dim, UNIT, UNIT, bwd_columns, &s);
}
