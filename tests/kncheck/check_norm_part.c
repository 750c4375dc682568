/* RMSNorm of rows that are divided over ranks. */
#include "tests/kncheck/checks.h"

#define TINY 0x1p-126

/* rows, d, ranks that have as much, extra elements in a row */
static const size_t part_cases[][MAX_DIMS] = {
    {0, 2, 1, 0},    {1, 1, 1, 3},   {5, 6, 2, 4},    {7, 17, 3, 0},   {6, 64, 4, 64},
    {40, 120, 2, 8}, {3, 640, 8, 5}, {33, 257, 1, 1}, {600, 32, 2, 8}, {2, 1031, 1, 0},
};

static void sums_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    struct arr *x = kc_wide(c, "x", IN, c->t, rows, d, c->dim[3]),
               *sums = kc_new(c, "sums", OUT, KN_F32, rows, 1);

    for (size_t r = 0; r < rows; r++) {
        double sum = 0;

        for (size_t i = 0; i < d; i++)
            sum += AT(x, r, i) * AT(x, r, i);
        kc_want(sums, r, 0, sum, (double)(d + 2) * EPS * sum);
    }
    kc_begin(c);
    kn_rmsnorm_part_sums(c->pool, c->t, sums->at, x->at, x->ld, rows, d);
}

const struct kc_op kc_rmsnorm_part_sums = {"rmsnorm_part_sums", "rows d ranks extra",
                                           CASES(part_cases), true, sums_run};

/* In place where d is even. rrms is off by 4 u: a division, a sum, half of both by the root, which
 * is rounded, and a division; an element by that, two products and the scale's sum. */
static void fwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1], whole = d * c->dim[2];
    bool place = d % 2 == 0;
    double eps = (double)1e-5f, offset = d % 3 == 1;
    struct arr *x = kc_wide(c, "x", place ? INOUT : IN, c->t, rows, d, c->dim[3]),
               *w = kc_new(c, "w", IN, c->t, 1, d);
    struct arr *y = place ? x : kc_wide(c, "y", OUT, c->t, rows, d, c->dim[3] / 2);
    struct arr *q = kc_new(c, "rrms", INOUT, KN_F32, rows, 1);

    for (size_t r = 0; r < rows; r++) {
        double rrms;

        kc_set(q, r, 0, (double)whole * fabs(AT(q, r, 0)));
        rrms = 1 / sqrt(AT(q, r, 0) / (double)whole + eps);
        kc_want(q, r, 0, rrms, 4 * EPS * rrms);
        for (size_t i = 0; i < d; i++) {
            double v = AT(x, r, i) * rrms * (AT(w, 0, i) + offset);

            kc_want(y, r, i, v, 8 * EPS * fabs(v));
        }
    }
    kc_begin(c);
    kn_rmsnorm_part_fwd(c->pool, c->t, y->at, y->ld, q->at, x->at, x->ld, w->at, rows, d, whole,
                        1e-5f, (float)offset);
}

const struct kc_op kc_rmsnorm_part_fwd = {"rmsnorm_part_fwd", "rows d ranks extra",
                                          CASES(part_cases), true, fwd_run};

static void dots_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    double offset = d % 3 == 1;
    struct arr *x = kc_wide(c, "x", IN, c->t, rows, d, c->dim[3]),
               *dy = kc_wide(c, "dy", IN, c->t, rows, d, c->dim[3] / 2),
               *w = kc_new(c, "w", IN, c->t, 1, d);
    struct arr *sums = kc_new(c, "sums", OUT, KN_F32, rows, 1);

    for (size_t r = 0; r < rows; r++) {
        double sum = 0, size = 0;

        for (size_t i = 0; i < d; i++) {
            double p = AT(dy, r, i) * (AT(w, 0, i) + offset) * AT(x, r, i);

            sum += p;
            size += fabs(p);
        }
        kc_want(sums, r, 0, sum, (double)(d + 4) * EPS * size);
    }
    kc_begin(c);
    kn_rmsnorm_part_dots(c->pool, c->t, sums->at, dy->at, dy->ld, x->at, x->ld, w->at, rows, d,
                         (float)offset);
}

const struct kc_op kc_rmsnorm_part_dots = {"rmsnorm_part_dots", "rows d ranks extra",
                                           CASES(part_cases), true, dots_run};

/* In place where d is even. */
static void bwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1], whole = d * c->dim[2];
    bool place = d % 2 == 0;
    double offset = d % 3 == 1;
    struct arr *x = kc_wide(c, "x", IN, c->t, rows, d, c->dim[3]),
               *w = kc_new(c, "w", IN, c->t, 1, d), *q = kc_new(c, "rrms", IN, KN_F32, rows, 1),
               *sums = kc_new(c, "sums", IN, KN_F32, rows, 1);
    struct arr *dy = kc_wide(c, "dy", place ? INOUT : IN, c->t, rows, d, c->dim[3]);
    struct arr *dx = place ? dy : kc_wide(c, "dx", OUT, c->t, rows, d, 2);
    struct arr *dw = kc_new(c, "dw", INOUT, KN_F32, 1, d);

    for (size_t i = 0; i < d; i++) {
        double sum = AT(dw, 0, i), size = fabs(sum);

        for (size_t r = 0; r < rows; r++) {
            double p = AT(dy, r, i) * AT(x, r, i) * AT(q, r, 0);

            sum += p;
            size += fabs(p);
        }
        kc_want(dw, 0, i, sum, (double)(rows + 4) * EPS * size);
    }
    for (size_t r = 0; r < rows; r++) {
        double s = AT(q, r, 0), along = s * s * AT(sums, r, 0) / (double)whole;

        for (size_t i = 0; i < d; i++) {
            double g = AT(dy, r, i) * (AT(w, 0, i) + offset), a = AT(x, r, i) * along;

            kc_want(dx, r, i, s * (g - a), EPS * (5 * fabs(s * g) + 8 * fabs(s * a)) + TINY);
        }
    }
    kc_begin(c);
    kn_rmsnorm_part_bwd(c->pool, c->t, dx->at, dx->ld, dw->at, dy->at, dy->ld, x->at, x->ld, w->at,
                        q->at, sums->at, rows, d, whole, (float)offset);
}

const struct kc_op kc_rmsnorm_part_bwd = {"rmsnorm_part_bwd", "rows d ranks extra",
                                          CASES(part_cases), true, bwd_run};
