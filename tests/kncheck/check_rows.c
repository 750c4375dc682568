/* RMSNorm, rotary positions, SwiGLU. */
#include "tests/kncheck/checks.h"

#define TINY 0x1p-126 /* smallest normal fp32: below it only absolute accuracy is asked */

/* rows, d */
static const size_t row_cases[][MAX_DIMS] = {
    {0, 8},  {1, 1},   {3, 7},   {2, 16},  {5, 17},   {33, 31},  {17, 32},
    {9, 33}, {70, 64}, {4, 100}, {3, 257}, {20, 512}, {2, 1031},
};

/* Every third width has weights around 0, to which 1 is added: one more rounding. */
static float offset_of(size_t width)
{
    return width % 3 == 1 ? 1.0f : 0.0f;
}

/* The mean of d squares is off by at most (d + 1) u relatively, its root by half of that; four more
 * roundings. */
static void rmsnorm_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    double eps = (double)1e-5f, off = ((double)d / 2 + 9) * EPS, offset = (double)offset_of(d);
    struct arr *x = kc_new(c, "x", IN, c->t, rows, d), *w = kc_new(c, "w", IN, c->t, 1, d);
    struct arr *y = kc_new(c, "y", OUT, c->t, rows, d),
               *q = kc_new(c, "rrms", OUT, KN_F32, rows, 1);

    for (size_t r = 0; r < rows; r++) {
        double ss = 0, rrms;

        for (size_t i = 0; i < d; i++)
            ss += AT(x, r, i) * AT(x, r, i);
        rrms = 1 / sqrt(ss / (double)d + eps);
        kc_want(q, r, 0, rrms, off * rrms);
        for (size_t i = 0; i < d; i++) {
            double v = AT(x, r, i) * rrms * (AT(w, 0, i) + offset);

            kc_want(y, r, i, v, off * fabs(v));
        }
    }
    kc_begin(c);
    kn_rmsnorm_fwd(c->pool, c->t, y->at, q->at, x->at, w->at, rows, d, 1e-5f, offset_of(d));
}

const struct kc_op kc_rmsnorm_fwd = {"rmsnorm_fwd", "rows d", CASES(row_cases), true,
                                     rmsnorm_fwd_run};

static void rmsnorm_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    bool add = d % 2 == 0, weight = d % 3 != 0;
    double offset = (double)offset_of(d);
    struct arr *x = kc_new(c, "x", IN, c->t, rows, d), *w = kc_new(c, "w", IN, c->t, 1, d);
    struct arr *dy = kc_new(c, "dy", IN, c->t, rows, d),
               *q = kc_new(c, "rrms", IN, KN_F32, rows, 1);
    struct arr *dx = kc_new(c, "dx", add ? INOUT : OUT, c->t, rows, d);
    struct arr *dw = kc_new(c, "dw", INOUT, KN_F32, 1, d);

    for (size_t r = 0; r < rows; r++) {
        double mean = 0, size = 0, s = AT(q, r, 0);

        for (size_t i = 0; i < d; i++) {
            double p = AT(dy, r, i) * (AT(w, 0, i) + offset) * AT(x, r, i) / (double)d;

            mean += p;
            size += fabs(p);
        }
        for (size_t i = 0; i < d; i++) {
            double g = AT(dy, r, i) * (AT(w, 0, i) + offset), old = add ? AT(dx, r, i) : 0;
            double v = s * (g - AT(x, r, i) * s * s * mean);

            kc_want(dx, r, i, old + v,
                    EPS * (fabs(old) + 7 * fabs(s * g) +
                           (double)(d + 11) * fabs(s * s * s * AT(x, r, i)) * size));
        }
    }
    for (size_t i = 0; i < d; i++) {
        double sum = AT(dw, 0, i), size = fabs(sum);

        for (size_t r = 0; weight && r < rows; r++) {
            sum += AT(dy, r, i) * AT(x, r, i) * AT(q, r, 0);
            size += fabs(AT(dy, r, i) * AT(x, r, i) * AT(q, r, 0));
        }
        kc_want(dw, 0, i, sum, (double)(rows + 4) * EPS * size);
    }
    kc_begin(c);
    kn_rmsnorm_bwd(c->pool, c->t, dx->at, weight ? dw->at : NULL, dy->at, x->at, w->at, q->at, rows,
                   d, add, offset_of(d));
}

const struct kc_op kc_rmsnorm_bwd = {"rmsnorm_bwd", "rows d", CASES(row_cases), true,
                                     rmsnorm_bwd_run};

/* rows, heads, d, seq (0: positions given), backward, elements of a head that do not turn, of which
 * so many come first */
static const size_t rope_cases[][MAX_DIMS] = {
    {0, 1, 2, 4, 0},        {1, 1, 2, 1, 0},       {5, 2, 6, 3, 0},    {5, 3, 6, 0, 1},
    {7, 1, 32, 4, 0},       {7, 2, 34, 0, 0},      {6, 2, 64, 3, 1},   {40, 4, 30, 8, 0},
    {3, 5, 128, 2, 1},      {33, 1, 62, 40, 1},    {5, 3, 7, 4, 0, 1}, {6, 2, 64, 3, 0, 48},
    {9, 2, 96, 0, 1, 64},   {4, 1, 128, 4, 1, 96}, {3, 2, 8, 3, 0, 8}, {6, 3, 24, 4, 0, 16, 16},
    {5, 2, 19, 0, 1, 9, 7},
};

static void rope_run(struct check *c)
{
    size_t rows = c->dim[0], heads = c->dim[1], d = c->dim[2], seq = c->dim[3];
    size_t turned = d - c->dim[5], half = turned / 2, skip = c->dim[6];
    bool back = c->dim[4];
    struct arr *x = kc_wide(c, "x", INOUT, c->t, rows, heads * d, d),
               *pos = kc_int(c, "pos", IN, rows, 1);
    struct arr *ct = kc_new(c, "cos", IN, KN_F32, 64, half),
               *st = kc_new(c, "sin", IN, KN_F32, 64, half);

    for (size_t r = 0; r < rows; r++) {
        size_t at = seq ? r % seq : rng_below(&c->rng, 64);

        kc_seti(pos, r, 0, (int32_t)at);
        for (size_t k = 0; k < heads * d; k++)
            if (k % d < skip || k % d >= skip + turned)
                kc_exact(x, r, k, AT(x, r, k));
        for (size_t k = 0; k < heads * half; k++) {
            size_t h = k / half, i = k % half + skip;
            double a = AT(x, r, h * d + i), b = AT(x, r, h * d + half + i);
            double co = AT(ct, at, i - skip), si = AT(st, at, i - skip) * (back ? -1 : 1);

            kc_want(x, r, h * d + i, a * co - b * si, EPS * (fabs(a * co) + fabs(b * si)));
            kc_want(x, r, h * d + half + i, b * co + a * si, EPS * (fabs(b * co) + fabs(a * si)));
        }
    }
    kc_begin(c);
    kn_rope(c->pool, c->t, (char *)x->at + skip * kn_type_size(c->t), x->ld, rows, heads, d, turned,
            ct->at, st->at, seq ? NULL : pos->at, seq, back);
}

const struct kc_op kc_rope = {"rope", "rows heads d seq backward still before", CASES(rope_cases),
                              true, rope_run};

/* Some gates at the ends, where the exponential over- and underflows. */
static void extreme(struct arr *a)
{
    static const double ends[] = {0, -20, 20, 88.8, -88.8, 100, -100, 1e4, -1e4};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) && a->rows > 1; i++)
        if (i < a->cols)
            kc_set(a, 1, i, ends[i]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* A sigmoid is off by at most 8 u: 4 for the exponential, and a sum and a quotient. */
static void swiglu_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    struct arr *g = kc_wide(c, "gate", IN, c->t, rows, f, extra),
               *u = kc_wide(c, "up", IN, c->t, rows, f, extra);
    struct arr *y = kc_wide(c, "y", OUT, c->t, rows, f, extra);

    extreme(g);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < f; i++) {
            double v = AT(g, r, i) * sigmoid(AT(g, r, i)) * AT(u, r, i);

            kc_want(y, r, i, v, 10 * EPS * fabs(v) + 200 * TINY * (1 + fabs(AT(u, r, i))));
        }
    }
    kc_begin(c);
    kn_swiglu_fwd(c->pool, c->t, y->at, y->ld, g->at, g->ld, u->at, u->ld, rows, f);
}

const struct kc_op kc_swiglu_fwd = {"swiglu_fwd", "rows f", CASES(row_cases), true, swiglu_fwd_run};

/* In place where f is even: the gradients overwrite gate and up. */
static void swiglu_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    bool place = f % 2 == 0;
    struct arr *g = kc_wide(c, "gate", place ? INOUT : IN, c->t, rows, f, extra);
    struct arr *u = kc_wide(c, "up", place ? INOUT : IN, c->t, rows, f, extra);
    struct arr *dy = kc_wide(c, "dy", IN, c->t, rows, f, extra);
    struct arr *dg = place ? g : kc_wide(c, "dgate", OUT, c->t, rows, f, extra);
    struct arr *du = place ? u : kc_wide(c, "dup", OUT, c->t, rows, f, extra);

    extreme(g);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < f; i++) {
            double x = AT(g, r, i), s = sigmoid(x), k = AT(dy, r, i) * AT(u, r, i),
                   y = AT(dy, r, i);

            kc_want(dg, r, i, k * s * (1 + x * (1 - s)),
                    EPS * fabs(k) * s * (14 + 16 * fabs(x) * (1 - s) + 9 * fabs(x) * s) +
                        200 * TINY * (1 + fabs(k)));
            kc_want(du, r, i, y * x * s, 10 * EPS * fabs(y * x * s) + 200 * TINY * (1 + fabs(y)));
        }
    }
    kc_begin(c);
    kn_swiglu_bwd(c->pool, c->t, dg->at, dg->ld, du->at, du->ld, dy->at, dy->ld, g->at, g->ld,
                  u->at, u->ld, rows, f);
}

const struct kc_op kc_swiglu_bwd = {"swiglu_bwd", "rows f", CASES(row_cases), true, swiglu_bwd_run};

/* rows, heads, elements of their own, shared ones, elements between rows of what is shared and of
 * dx */
static const size_t keys_cases[][MAX_DIMS] = {
    {0, 2, 4, 4, 0}, {1, 1, 1, 2, 0},   {5, 3, 7, 4, 3},     {33, 4, 16, 8, 0},
    {9, 2, 5, 0, 1}, {40, 5, 0, 6, 16}, {70, 16, 24, 18, 9}, {3, 128, 32, 16, 512},
};

static void keys_join_run(struct check *c)
{
    size_t rows = c->dim[0], heads = c->dim[1], own = c->dim[2], shared = c->dim[3];
    size_t wide = own + shared;
    struct arr *x = kc_new(c, "x", IN, c->t, rows, heads * own);
    struct arr *y = kc_wide(c, "y", IN, c->t, rows, shared, c->dim[4]);
    struct arr *k = kc_new(c, "k", OUT, c->t, rows, heads * wide);

    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < heads * wide; i++)
            kc_exact(k, r, i,
                     i % wide < own ? AT(x, r, i / wide * own + i % wide)
                                    : AT(y, r, i % wide - own));
    kc_begin(c);
    kn_keys_join(c->pool, c->t, k->at, x->at, y->at, y->ld, rows, heads, own, shared);
}

const struct kc_op kc_keys_join = {"keys_join", "rows heads own shared gap", CASES(keys_cases),
                                   true, keys_join_run};

/* With an odd number of heads sums are fp32. */
static void keys_split_run(struct check *c)
{
    size_t rows = c->dim[0], heads = c->dim[1], own = c->dim[2], shared = c->dim[3];
    size_t wide = own + shared;
    enum kn_type sums = heads % 2 ? KN_F32 : c->t;
    struct arr *dk = kc_new(c, "dk", IN, c->t, rows, heads * wide);
    struct arr *dx = kc_wide(c, "dx", OUT, c->t, rows, heads * own, c->dim[4]);
    struct arr *dy = kc_wide(c, "dy", OUT, sums, rows, shared, c->dim[4]);

    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < heads * own; i++)
            kc_exact(dx, r, i, AT(dk, r, i / own * wide + i % own));
        for (size_t i = 0; i < shared; i++) {
            double sum = 0, size = 0;

            for (size_t h = 0; h < heads; h++) {
                sum += AT(dk, r, h * wide + own + i);
                size += fabs(AT(dk, r, h * wide + own + i));
            }
            kc_want(dy, r, i, sum, (double)heads * EPS * size);
        }
    }
    kc_begin(c);
    kn_keys_split(c->pool, c->t, dx->at, dx->ld, sums, dy->at, dy->ld, dk->at, rows, heads, own,
                  shared);
}

const struct kc_op kc_keys_split = {"keys_split", "rows heads own shared gap", CASES(keys_cases),
                                    true, keys_split_run};
