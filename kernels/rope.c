/* Rotary positions. Su et al., "RoFormer", 2021; halves paired as in Hugging Face's Llama. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 16 };

void kn_rope_tables(float *cos_t, float *sin_t, size_t first, size_t positions, size_t dim,
                    const double *frequency, double amplitude)
{
    size_t half = dim / 2;

    assert(dim % 2 == 0 && amplitude > 0);
    for (size_t i = 0; i < half; i++) {
        for (size_t pos = 0; pos < positions; pos++) {
            double angle = (double)(first + pos) * frequency[i];

            cos_t[pos * half + i] = (float)(amplitude * cos(angle));
            sin_t[pos * half + i] = (float)(amplitude * sin(angle));
        }
    }
}

struct rope {
    enum kn_type t;
    void *x;
    size_t ldx, heads, d, turned, seq;
    const float *cos_t, *sin_t;
    const int32_t *pos;
    bool backward;
};

static void rope_rows(void *arg, const struct kn_share *share)
{
    const struct rope *o = arg;
    size_t n = o->heads ? (o->heads - 1) * o->d + o->turned : 0;

    for (size_t r = share->lo; r < share->hi; r++) {
        size_t at = (o->pos ? (size_t)o->pos[r] : r % o->seq) * (o->turned / 2);
        void *row = kn_ptr(o->t, o->x, r * o->ldx);
        float *x = kn_out(o->t, row, share->scratch);

        if (o->t != KN_F32)
            kn_ops()->to_f32(x, row, n);
        kn_ops()->rope_row(x, o->heads, o->d, o->turned, o->cos_t + at, o->sin_t + at, o->backward);
        kn_out_done(o->t, row, x, n);
        kn_row_done(share, r);
    }
}

void kn_host_rope(struct kn_pool *pool, enum kn_type type, void *x, size_t ldx, size_t rows,
                  size_t heads, size_t dim, size_t turned, const float *cos_t, const float *sin_t,
                  const int32_t *pos, size_t seq, bool backward)
{
    struct rope o = {.t = type,
                     .x = x,
                     .ldx = ldx,
                     .heads = heads,
                     .d = dim,
                     .turned = turned,
                     .seq = seq,
                     .cos_t = cos_t,
                     .sin_t = sin_t,
                     .pos = pos,
                     .backward = backward};

    assert(turned % 2 == 0 && turned <= dim && ldx + dim >= heads * dim + turned);
    assert(pos || seq > 0 || rows == 0);
    assert(heads * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, GRAIN, rope_rows, &o);
}
