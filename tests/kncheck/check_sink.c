/* The learned logit in attention's softmax. */
#include "tests/kncheck/checks.h"

/* batch, seq, heads, dim of a value, extra elements in a row */
static const size_t sink_cases[][MAX_DIMS] = {
    {0, 5, 2, 8, 0},   {1, 1, 1, 1, 0},    {2, 3, 5, 7, 3},   {1, 17, 3, 16, 0},
    {3, 40, 2, 33, 5}, {2, 300, 4, 64, 8}, {1, 9, 65, 12, 0}, {2, 5, 3, 256, 1},
};

static size_t lse_at(const struct check *c, size_t r, size_t head)
{
    size_t seq = c->dim[1];

    return (r / seq * c->dim[2] + head) * seq + r % seq;
}

/* Far above and far below all scores, too. */
static struct arr *sinks(struct check *c)
{
    struct arr *sink = kc_new(c, "sink", IN, c->t, 1, c->dim[2]);

    if (c->dim[2] > 2) {
        kc_set(sink, 0, 1, 200);
        kc_set(sink, 0, 2, -200);
    }
    return sink;
}

/* 1 / (1 + e^d): 6 u, and what u |d| of its argument make. */
static void sink_fwd_run(struct check *c)
{
    size_t rows = c->dim[0] * c->dim[1], heads = c->dim[2], dim = c->dim[3];
    struct arr *out = kc_wide(c, "out", INOUT, c->t, rows, heads * dim, c->dim[4]),
               *lse = kc_new(c, "lse", INOUT, KN_F32, 1, rows * heads), *sink = sinks(c);

    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < heads; h++) {
            double was = AT(lse, 0, lse_at(c, r, h)), own = AT(sink, 0, h), d = own - was;
            double by = 1 / (1 + exp(d)), now = fmax(was, own) + log1p(exp(-fabs(d)));

            kc_want(lse, 0, lse_at(c, r, h), now, EPS * (8 + 2 * fabs(now)));
            for (size_t i = h * dim; i < (h + 1) * dim; i++) {
                double v = AT(out, r, i) * by;

                kc_want(out, r, i, v, EPS * fabs(v) * (8 + 2 * fabs(d)) + 0x1p-126);
            }
        }
    kc_begin(c);
    kn_attn_sink_fwd(c->pool, c->t, out->at, out->ld, lse->at, sink->at, c->dim[0], c->dim[1],
                     heads, dim);
}

const struct kc_op kc_attn_sink_fwd = {"attn_sink_fwd", "batch seq heads dim extra",
                                       CASES(sink_cases), true, sink_fwd_run};

/* What the forward pass leaves: no logit is above lse. */
static void sink_bwd_run(struct check *c)
{
    size_t rows = c->dim[0] * c->dim[1], heads = c->dim[2], dim = c->dim[3];
    struct arr *o = kc_wide(c, "o", IN, c->t, rows, heads * dim, c->dim[4]),
               *d_o = kc_wide(c, "d_o", IN, c->t, rows, heads * dim, c->dim[4] / 2),
               *lse = kc_new(c, "lse", IN, KN_F32, 1, rows * heads), *sink = sinks(c),
               *dsink = kc_new(c, "dsink", INOUT, KN_F32, 1, heads);

    for (size_t h = 0; h < heads; h++) {
        double sum = AT(dsink, 0, h), size = fabs(sum), off = 0;

        for (size_t r = 0; r < rows; r++) {
            size_t at = lse_at(c, r, h);
            double own = AT(sink, 0, h), p, dot = 0, whole = 0, d;

            kc_set(lse, 0, at, fmax(own, AT(lse, 0, at)) + 0.25);
            d = own - AT(lse, 0, at);
            p = exp(d);
            for (size_t i = h * dim; i < (h + 1) * dim; i++) {
                dot += AT(o, r, i) * AT(d_o, r, i);
                whole += fabs(AT(o, r, i) * AT(d_o, r, i));
            }
            sum -= p * dot;
            size += p * fabs(dot);
            off += p * whole * EPS * (8 + fabs(d) + (double)dim) + 0x1p-126 * (1 + whole);
        }
        kc_want(dsink, 0, h, sum, off + (double)(rows + 4) * EPS * size);
    }
    kc_begin(c);
    kn_attn_sink_bwd(c->pool, c->t, dsink->at, o->at, o->ld, d_o->at, d_o->ld, lse->at, sink->at,
                     c->dim[0], c->dim[1], heads, dim);
}

const struct kc_op kc_attn_sink_bwd = {"attn_sink_bwd", "batch seq heads dim extra",
                                       CASES(sink_cases), true, sink_bwd_run};
