/* A learned logit per head in attention's softmax, as of a key whose value is 0. */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { GRAIN = 8 };

struct sink {
    enum kn_type t;
    void *out;
    float *lse, *dsink;
    const void *o, *d_o, *sink;
    const float *kept; /* lse of the way back */
    size_t ldo, lddo, batch, seq, heads, dim;
};

/* Of row R of all samples, head HEAD. */
static size_t lse_at(const struct sink *sink, size_t r, size_t head)
{
    return (r / sink->seq * sink->heads + head) * sink->seq + r % sink->seq;
}

static void fwd_rows(void *arg, const struct kn_share *share)
{
    const struct sink *s = arg;
    size_t width = s->heads * s->dim;

    for (size_t r = share->lo; r < share->hi; r++) {
        void *row = kn_ptr(s->t, s->out, r * s->ldo);
        const float *x = kn_in(s->t, row, share->scratch, width);
        float *y = kn_out(s->t, row, share->scratch);

        for (size_t h = 0; h < s->heads; h++) {
            float *lse = &s->lse[lse_at(s, r, h)];
            double was = (double)*lse, own = (double)kn_at(s->t, s->sink, h), max = fmax(was, own);
            double now = max + log(exp(was - max) + exp(own - max));

            kn_ops()->scale(y + h * s->dim, x + h * s->dim, (float)exp(was - now), s->dim);
            *lse = (float)now;
        }
        kn_out_done(s->t, row, y, width);
        kn_row_done(share, r);
    }
}

void kn_host_attn_sink_fwd(struct kn_pool *pool, enum kn_type type, void *out, size_t ldo,
                           float *lse, const void *sink, size_t batch, size_t seq, size_t heads,
                           size_t dim)
{
    struct sink s = {.t = type,
                     .out = out,
                     .ldo = ldo,
                     .lse = lse,
                     .sink = sink,
                     .batch = batch,
                     .seq = seq,
                     .heads = heads,
                     .dim = dim};

    assert(ldo >= heads * dim && heads * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, batch * seq, 1, GRAIN, fwd_rows, &s);
}

/* Threads take heads: each sum has one owner and the order of the rows. */
static void bwd_heads(void *arg, const struct kn_share *share)
{
    const struct sink *s = arg;
    float *bo = share->scratch, *bd = bo + s->dim;

    for (size_t h = share->lo; h < share->hi; h++) {
        double sum = 0, own = (double)kn_at(s->t, s->sink, h);

        for (size_t r = 0; r < s->batch * s->seq; r++) {
            const float *o = kn_in(s->t, kn_ptr(s->t, s->o, r * s->ldo + h * s->dim), bo, s->dim);
            const float *d =
                kn_in(s->t, kn_ptr(s->t, s->d_o, r * s->lddo + h * s->dim), bd, s->dim);

            sum +=
                exp(own - (double)s->kept[lse_at(s, r, h)]) * (double)kn_ops()->dot(o, d, s->dim);
            kn_row_done(share, r);
        }
        s->dsink[h] = (float)((double)s->dsink[h] - sum);
    }
}

void kn_host_attn_sink_bwd(struct kn_pool *pool, enum kn_type type, float *dsink, const void *o,
                           size_t ldo, const void *d_o, size_t lddo, const float *lse,
                           const void *sink, size_t batch, size_t seq, size_t heads, size_t dim)
{
    struct sink s = {.t = type,
                     .dsink = dsink,
                     .o = o,
                     .ldo = ldo,
                     .d_o = d_o,
                     .lddo = lddo,
                     .kept = lse,
                     .sink = sink,
                     .batch = batch,
                     .seq = seq,
                     .heads = heads,
                     .dim = dim};

    assert(ldo >= heads * dim && lddo >= heads * dim &&
           2 * dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, heads, 1, 1, bwd_heads, &s);
}
