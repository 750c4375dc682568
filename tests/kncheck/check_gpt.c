/* LayerNorm, RMSNorm of heads, GELU, squared ReLU, GeGLU, the clamped SwiGLU, biases. */
#include "tests/kncheck/checks.h"

#define TINY 0x1p-126 /* smallest normal fp32: below it only absolute accuracy is asked */

/* rows, d */
static const size_t row_cases[][MAX_DIMS] = {
    {0, 8},  {1, 1},   {3, 7},   {2, 16},  {5, 17},   {33, 31},  {17, 32},
    {9, 33}, {70, 64}, {4, 100}, {3, 257}, {20, 512}, {2, 1031},
};

/* ---- LayerNorm ----------------------------------------------------------- */

/* The mean of d elements is off by at most d u times their mean size, MOVE; the mean square of the
 * differences by (d + 4) u relatively and the square of MOVE, its root by half of that. */
static void layernorm_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    double eps = (double)1e-5f, offset = d % 3 == 1;
    bool bias = rows % 3 > 0;
    struct arr *x = kc_new(c, "x", IN, c->t, rows, d), *w = kc_new(c, "w", IN, c->t, 1, d),
               *b = bias ? kc_new(c, "b", IN, c->t, 1, d) : NULL;
    struct arr *y = kc_new(c, "y", OUT, c->t, rows, d),
               *stats = kc_new(c, "stats", OUT, KN_F32, rows, 2);

    for (size_t r = 0; r < rows; r++) {
        double mean = 0, move = 0, ss = 0, rstd, off;

        for (size_t i = 0; i < d; i++) {
            mean += AT(x, r, i) / (double)d;
            move += EPS * fabs(AT(x, r, i));
        }
        for (size_t i = 0; i < d; i++)
            ss += (AT(x, r, i) - mean) * (AT(x, r, i) - mean) / (double)d;
        rstd = 1 / sqrt(ss + eps);
        off = ((double)d / 2 + 8) * EPS + move * move * rstd * rstd / 2;
        kc_want(stats, r, 0, mean, move + EPS * fabs(mean));
        kc_want(stats, r, 1, rstd, off * rstd);
        for (size_t i = 0; i < d; i++) {
            double n = (AT(x, r, i) - mean) * rstd, s = AT(w, 0, i) + offset, v = n * s,
                   all = v + (b ? AT(b, 0, i) : 0);

            kc_want(y, r, i, all,
                    fabs(v) * (off + 5 * EPS) + move * rstd * fabs(s) + EPS * fabs(all));
        }
    }
    kc_begin(c);
    kn_layernorm_fwd(c->pool, c->t, y->at, stats->at, x->at, w->at, b ? b->at : NULL, rows, d,
                     1e-5f, (float)offset);
}

const struct kc_op kc_layernorm_fwd = {"layernorm_fwd", "rows d", CASES(row_cases), true,
                                       layernorm_fwd_run};

static void layernorm_dx(struct arr *dx, const struct arr *dy, const struct arr *x,
                         const struct arr *w, const struct arr *stats, size_t r, bool add,
                         double offset)
{
    double all = 0, along = 0, all_size = 0, along_size = 0, m = AT(stats, r, 0),
           s = AT(stats, r, 1);
    size_t d = x->cols;

    for (size_t i = 0; i < d; i++) {
        double g = AT(dy, r, i) * (AT(w, 0, i) + offset) / (double)d, n = (AT(x, r, i) - m) * s;

        all += g;
        along += g * n;
        all_size += fabs(g);
        along_size += fabs(g * n);
    }
    for (size_t i = 0; i < d; i++) {
        double g = AT(dy, r, i) * (AT(w, 0, i) + offset), n = (AT(x, r, i) - m) * s,
               old = add ? AT(dx, r, i) : 0;

        kc_want(dx, r, i, old + s * (g - all - n * along),
                EPS * (fabs(old) + 7 * fabs(s * g) +
                       (double)(d + 13) * fabs(s) * (all_size + fabs(n) * along_size)));
    }
}

static void layernorm_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    bool add = d % 2 == 0, bias = rows % 3 > 0;
    double offset = d % 3 == 1;
    struct arr *x = kc_new(c, "x", IN, c->t, rows, d), *w = kc_new(c, "w", IN, c->t, 1, d);
    struct arr *dy = kc_new(c, "dy", IN, c->t, rows, d),
               *stats = kc_new(c, "stats", IN, KN_F32, rows, 2);
    struct arr *dx = kc_new(c, "dx", add ? INOUT : OUT, c->t, rows, d);
    struct arr *dw = kc_new(c, "dw", INOUT, KN_F32, 1, d),
               *db = bias ? kc_new(c, "db", INOUT, KN_F32, 1, d) : NULL;

    for (size_t r = 0; r < rows; r++)
        layernorm_dx(dx, dy, x, w, stats, r, add, offset);
    for (size_t i = 0; i < d; i++) {
        double scale = AT(dw, 0, i), shift = db ? AT(db, 0, i) : 0, scale_size = fabs(scale),
               shift_size = fabs(shift);

        for (size_t r = 0; r < rows; r++) {
            double n = (AT(x, r, i) - AT(stats, r, 0)) * AT(stats, r, 1);

            scale += AT(dy, r, i) * n;
            scale_size += fabs(AT(dy, r, i) * n);
            shift += AT(dy, r, i);
            shift_size += fabs(AT(dy, r, i));
        }
        kc_want(dw, 0, i, scale, (double)(rows + 6) * EPS * scale_size);
        if (db)
            kc_want(db, 0, i, shift, (double)(rows + 2) * EPS * shift_size);
    }
    kc_begin(c);
    kn_layernorm_bwd(c->pool, c->t, dx->at, dw->at, db ? db->at : NULL, dy->at, x->at, w->at,
                     stats->at, rows, d, add, (float)offset);
}

const struct kc_op kc_layernorm_bwd = {"layernorm_bwd", "rows d", CASES(row_cases), true,
                                       layernorm_bwd_run};

/* ---- RMSNorm of heads ---------------------------------------------------- */

/* rows, heads, d, extra elements in a row */
static const size_t head_cases[][MAX_DIMS] = {
    {0, 1, 2, 0},   {1, 1, 1, 3},   {5, 2, 6, 4},    {7, 3, 17, 0},  {6, 2, 64, 64},
    {40, 4, 30, 8}, {3, 5, 128, 5}, {33, 1, 257, 1}, {600, 4, 8, 8}, {3, 65, 6, 0},
};

/* As for whole rows (check_rows.c). */
static void headnorm_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], heads = c->dim[1], d = c->dim[2];
    double eps = (double)1e-5f, off = ((double)d / 2 + 9) * EPS;
    double offset = d % 3 == 1;
    struct arr *x = kc_wide(c, "x", IN, c->t, rows, heads * d, c->dim[3]),
               *w = kc_new(c, "w", IN, c->t, 1, d);
    struct arr *y = kc_wide(c, "y", OUT, c->t, rows, heads * d, c->dim[3] / 2),
               *q = kc_new(c, "rrms", OUT, KN_F32, rows, heads);

    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < heads; h++) {
            double ss = 0, rrms;

            for (size_t i = 0; i < d; i++)
                ss += AT(x, r, h * d + i) * AT(x, r, h * d + i);
            rrms = 1 / sqrt(ss / (double)d + eps);
            kc_want(q, r, h, rrms, off * rrms);
            for (size_t i = 0; i < d; i++) {
                double v = AT(x, r, h * d + i) * rrms * (AT(w, 0, i) + offset);

                kc_want(y, r, h * d + i, v, off * fabs(v));
            }
        }
    kc_begin(c);
    kn_headnorm_fwd(c->pool, c->t, y->at, y->ld, q->at, x->at, x->ld, w->at, rows, heads, d, 1e-5f,
                    (float)offset);
}

const struct kc_op kc_headnorm_fwd = {"headnorm_fwd", "rows heads d extra", CASES(head_cases), true,
                                      headnorm_fwd_run};

/* In place where d is even: the gradient of the output becomes that of the input. */
static void headnorm_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], heads = c->dim[1], d = c->dim[2];
    bool place = d % 2 == 0;
    double offset = d % 3 == 1;
    struct arr *x = kc_wide(c, "x", IN, c->t, rows, heads * d, c->dim[3]),
               *w = kc_new(c, "w", IN, c->t, 1, d), *q = kc_new(c, "rrms", IN, KN_F32, rows, heads);
    struct arr *dy = kc_wide(c, "dy", place ? INOUT : IN, c->t, rows, heads * d, c->dim[3]);
    struct arr *dx = place ? dy : kc_wide(c, "dx", OUT, c->t, rows, heads * d, 2);
    struct arr *dw = kc_new(c, "dw", INOUT, KN_F32, 1, d);

    for (size_t i = 0; i < d; i++) {
        double sum = AT(dw, 0, i), size = fabs(sum);

        for (size_t n = 0; n < rows * heads; n++) {
            size_t r = n / heads, at = n % heads * d + i;
            double p = AT(dy, r, at) * AT(x, r, at) * AT(q, r, n % heads);

            sum += p;
            size += fabs(p);
        }
        kc_want(dw, 0, i, sum, (double)(rows * heads + 4) * EPS * size);
    }
    for (size_t n = 0; n < rows * heads; n++) {
        size_t r = n / heads, first = n % heads * d;
        double mean = 0, size = 0, s = AT(q, r, n % heads);

        for (size_t i = 0; i < d; i++) {
            double p =
                AT(dy, r, first + i) * (AT(w, 0, i) + offset) * AT(x, r, first + i) / (double)d;

            mean += p;
            size += fabs(p);
        }
        for (size_t i = 0; i < d; i++) {
            double g = AT(dy, r, first + i) * (AT(w, 0, i) + offset), a = AT(x, r, first + i);

            kc_want(dx, r, first + i, s * (g - a * s * s * mean),
                    EPS * (7 * fabs(s * g) + (double)(d + 11) * fabs(s * s * s * a) * size));
        }
    }
    kc_begin(c);
    kn_headnorm_bwd(c->pool, c->t, dx->at, dx->ld, dw->at, dy->at, dy->ld, x->at, x->ld, w->at,
                    q->at, rows, heads, d, (float)offset);
}

const struct kc_op kc_headnorm_bwd = {"headnorm_bwd", "rows heads d extra", CASES(head_cases), true,
                                      headnorm_bwd_run};

/* ---- GELU and squared ReLU ----------------------------------------------- */

/* rows, ffn, form, bias, in place */
static const size_t act_cases[][MAX_DIMS] = {
    {0, 8, 0, 0, 0},   {1, 1, 0, 1, 0},   {1, 1, 1, 1, 1},    {3, 7, 1, 0, 0},    {2, 16, 0, 0, 1},
    {5, 17, 0, 1, 0},  {33, 31, 1, 1, 0}, {17, 32, 0, 1, 1},  {9, 33, 1, 1, 1},   {70, 64, 0, 0, 0},
    {4, 100, 1, 0, 1}, {3, 257, 0, 1, 1}, {20, 512, 1, 1, 0}, {2, 1031, 0, 1, 0}, {3, 7, 2, 1, 0},
    {17, 33, 2, 1, 1}, {5, 64, 2, 0, 0},  {2, 1031, 2, 1, 0},
};

/* Some elements at the ends, where exponentials over- and underflow and the polynomial ends. */
static void extreme(struct arr *a)
{
    static const double ends[] = {0,    -20, 20,   88.8, -88.8, 100, -100, 1e4,
                                  -1e4, 5.9, -5.9, 6.5,  -6.5,  3,   -3,   -13};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) && a->rows > 1; i++)
        if (i < a->cols)
            kc_set(a, 1, i, ends[i]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const double LINE = 1.5957691216057307, CUBE = 1.5957691216057307 * 0.044715;

/* Squares of ReLU are off by 3 u, of which two are of x + bias.
 * The normal distribution is off by 3 u absolutely, a sigmoid by 8 u relatively and by what 4 u of
 * its argument make; x + bias is rounded once, and no slope is above 1.2. */
static void act_want(double *ret_value, double *ret_bound, double x, enum kn_act form)
{
    double inner = x * (LINE + CUBE * x * x), s = sigmoid(inner);

    if (form == KN_RELU2) {
        *ret_value = fmax(x, 0) * fmax(x, 0);
        *ret_bound = 4 * EPS * *ret_value + TINY;
        return;
    }
    if (form == KN_GELU_ERF) {
        *ret_value = x * erfc(-x * M_SQRT1_2) / 2;
        *ret_bound = 8 * EPS * fabs(x) + 200 * TINY;
        return;
    }
    *ret_value = x * s;
    *ret_bound = EPS * fabs(x) * (12 * s + 4 * fabs(inner) * s * (1 - s) + 2) + 200 * TINY;
}

/* The slope of FORM at x and how far off it may be. tanh: of s the error is ES, of 1 - s that and a
 * rounding, and where s is 1 nothing is left. */
static void slope_want(double *ret_value, double *ret_bound, double x, enum kn_act form)
{
    double inner = x * (LINE + CUBE * x * x), s = sigmoid(inner), left = sigmoid(-inner);
    double t = LINE + 3 * CUBE * x * x, p = exp(-x * x / 2) / sqrt(2 * M_PI), es;

    if (form == KN_RELU2) {
        *ret_value = 2 * fmax(x, 0);
        *ret_bound = 2 * EPS * *ret_value;
        return;
    }
    if (form == KN_GELU_ERF) {
        *ret_value = erfc(-x * M_SQRT1_2) / 2 + x * p;
        *ret_bound = EPS * (6 + fabs(x) * p * (2 * x * x + 14));
        return;
    }
    es = EPS * (8 * s + 6 * fabs(inner) * s * left);
    *ret_value = s + (left > 0 ? x * s * left * t : 0);
    *ret_bound = es + EPS;
    if (left > EPS / 4)
        *ret_bound += fabs(x * t) * (es * left + s * (es + EPS)) + 8 * EPS * fabs(x * s * left * t);
}

static void act_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    enum kn_act form = (enum kn_act)c->dim[2];
    bool place = c->dim[4];
    struct arr *x = kc_wide(c, "x", place ? INOUT : IN, c->t, rows, f, extra),
               *bias = c->dim[3] ? kc_new(c, "bias", IN, c->t, 1, f) : NULL;
    struct arr *y = place ? x : kc_wide(c, "y", OUT, c->t, rows, f, extra);

    if (!place)
        extreme(x);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < f; i++) {
            double v, bound;

            act_want(&v, &bound, AT(x, r, i) + (bias ? AT(bias, 0, i) : 0), form);
            kc_want(y, r, i, v, bound);
        }
    kc_begin(c);
    kn_act_fwd(c->pool, c->t, y->at, y->ld, x->at, x->ld, bias ? bias->at : NULL, rows, f, form);
}

const struct kc_op kc_act_fwd = {"act_fwd", "rows f form bias place", CASES(act_cases), true,
                                 act_fwd_run};

static void act_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    enum kn_act form = (enum kn_act)c->dim[2];
    bool place = c->dim[4];
    struct arr *x = kc_wide(c, "x", place ? INOUT : IN, c->t, rows, f, extra),
               *dy = kc_wide(c, "dy", IN, c->t, rows, f, extra);
    struct arr *bias = c->dim[3] ? kc_new(c, "bias", IN, c->t, 1, f) : NULL;
    struct arr *dbias = bias ? kc_new(c, "dbias", INOUT, KN_F32, 1, f) : NULL;
    struct arr *dx = place ? x : kc_wide(c, "dx", OUT, c->t, rows, f, extra);

    if (!place)
        extreme(x);
    for (size_t i = 0; i < f; i++) {
        double sum = dbias ? AT(dbias, 0, i) : 0, size = fabs(sum), off = 0;

        for (size_t r = 0; r < rows; r++) {
            double v, bound, d = AT(dy, r, i);

            slope_want(&v, &bound, AT(x, r, i) + (bias ? AT(bias, 0, i) : 0), form);
            bound = fabs(d) * bound + EPS * fabs(d * v) + 200 * TINY;
            kc_want(dx, r, i, d * v, bound);
            sum += d * v;
            size += fabs(d * v);
            off += bound;
        }
        if (dbias)
            kc_want(dbias, 0, i, sum, off + (double)(rows + 2) * EPS * size);
    }
    kc_begin(c);
    kn_act_bwd(c->pool, c->t, dx->at, dx->ld, dbias ? dbias->at : NULL, dy->at, dy->ld, x->at,
               x->ld, bias ? bias->at : NULL, rows, f, form);
}

const struct kc_op kc_act_bwd = {"act_bwd", "rows f form bias place", CASES(act_cases), true,
                                 act_bwd_run};

/* ---- GeGLU --------------------------------------------------------------- */

static void geglu_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    struct arr *g = kc_wide(c, "gate", IN, c->t, rows, f, extra),
               *u = kc_wide(c, "up", IN, c->t, rows, f, extra);
    struct arr *y = kc_wide(c, "y", OUT, c->t, rows, f, extra);

    extreme(g);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < f; i++) {
            double v, bound, by = fabs(AT(u, r, i));

            act_want(&v, &bound, AT(g, r, i), KN_GELU_TANH);
            kc_want(y, r, i, v * AT(u, r, i), by * (bound + EPS * fabs(v)) + 200 * TINY);
        }
    kc_begin(c);
    kn_geglu_fwd(c->pool, c->t, y->at, y->ld, g->at, g->ld, u->at, u->ld, rows, f);
}

const struct kc_op kc_geglu_fwd = {"geglu_fwd", "rows f", CASES(row_cases), true, geglu_fwd_run};

/* In place where f is even: the gradients overwrite gate and up. */
static void geglu_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    bool place = f % 2 == 0;
    struct arr *g = kc_wide(c, "gate", place ? INOUT : IN, c->t, rows, f, extra);
    struct arr *u = kc_wide(c, "up", place ? INOUT : IN, c->t, rows, f, extra);
    struct arr *dy = kc_wide(c, "dy", IN, c->t, rows, f, extra);
    struct arr *dg = place ? g : kc_wide(c, "dgate", OUT, c->t, rows, f, extra);
    struct arr *du = place ? u : kc_wide(c, "dup", OUT, c->t, rows, f, extra);

    extreme(g);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < f; i++) {
            double d = AT(dy, r, i), k = d * AT(u, r, i), v, bound;

            slope_want(&v, &bound, AT(g, r, i), KN_GELU_TANH);
            kc_want(dg, r, i, k * v, fabs(k) * (bound + 2 * EPS * fabs(v)) + 200 * TINY);
            act_want(&v, &bound, AT(g, r, i), KN_GELU_TANH);
            kc_want(du, r, i, d * v, fabs(d) * (bound + EPS * fabs(v)) + 200 * TINY);
        }
    kc_begin(c);
    kn_geglu_bwd(c->pool, c->t, dg->at, dg->ld, du->at, du->ld, dy->at, dy->ld, g->at, g->ld, u->at,
                 u->ld, rows, f);
}

const struct kc_op kc_geglu_bwd = {"geglu_bwd", "rows f", CASES(row_cases), true, geglu_bwd_run};

/* ---- the clamped SwiGLU -------------------------------------------------- */

static const double ALPHA = (double)KN_CLAMP_ALPHA, LIMIT = (double)KN_CLAMP_LIMIT;

/* Some elements at the limits and just beyond, of the gate and of what it is multiplied by. */
static void at_limits(struct arr *gate, struct arr *up)
{
    static const double ends[] = {7, -7, 7.03125, -7.03125, 100, -100, 6.96875, -6.96875, -1};

    extreme(gate);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) && gate->rows > 2; i++)
        if (i < gate->cols) {
            kc_set(gate, 0, i, ends[i]);
            kc_set(up, 2, i, ends[i]);
        }
}

/* up between the limits, plus 1: rounded once. */
static double clamped_up(double up)
{
    return fmax(-LIMIT, fmin(LIMIT, up)) + 1;
}

/* g sigmoid(x), x = alpha g with g at most the limit: x is rounded, so a sigmoid is off by 8 u and
 * what 2 u of its argument make. */
static void clamped_want(double *ret_value, double *ret_bound, double gate)
{
    double g = fmin(LIMIT, gate), x = ALPHA * g, s = sigmoid(x);

    *ret_value = g * s;
    *ret_bound = EPS * fabs(g * s) * (10 + 2 * fabs(x) * sigmoid(-x)) + 200 * TINY;
}

static void swiglu_clamped_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    struct arr *g = kc_wide(c, "gate", IN, c->t, rows, f, extra),
               *u = kc_wide(c, "up", IN, c->t, rows, f, extra);
    struct arr *y = kc_wide(c, "y", OUT, c->t, rows, f, extra);

    at_limits(g, u);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < f; i++) {
            double v, bound, by = clamped_up(AT(u, r, i));

            clamped_want(&v, &bound, AT(g, r, i));
            kc_want(y, r, i, v * by, fabs(by) * (bound + 2 * EPS * fabs(v)) + 200 * TINY);
        }
    kc_begin(c);
    kn_swiglu_clamped_fwd(c->pool, c->t, y->at, y->ld, g->at, g->ld, u->at, u->ld, rows, f);
}

const struct kc_op kc_swiglu_clamped_fwd = {"swiglu_clamped_fwd", "rows f", CASES(row_cases), true,
                                            swiglu_clamped_fwd_run};

/* The slope s + x s (1 - s): 8 u of s, of 1 - s that and a rounding, and 2 u |x| times its own
 * slope s (1 - s) (2 + x (1 - 2 s)). */
static double clamped_slope(double *ret_bound, double gate)
{
    double x = ALPHA * gate, s = sigmoid(x), left = sigmoid(-x), size = fabs(x);

    *ret_bound = EPS * s * (12 + size * left * (20 + 2 * size) + 9 * size * s);
    return s + x * s * left;
}

/* In place where f is even: the gradients overwrite gate and up. */
static void swiglu_clamped_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], f = c->dim[1], extra = f % 2 ? 3 : 0;
    bool place = f % 2 == 0;
    struct arr *g = kc_wide(c, "gate", place ? INOUT : IN, c->t, rows, f, extra);
    struct arr *u = kc_wide(c, "up", place ? INOUT : IN, c->t, rows, f, extra);
    struct arr *dy = kc_wide(c, "dy", IN, c->t, rows, f, extra);
    struct arr *dg = place ? g : kc_wide(c, "dgate", OUT, c->t, rows, f, extra);
    struct arr *du = place ? u : kc_wide(c, "dup", OUT, c->t, rows, f, extra);

    at_limits(g, u);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < f; i++) {
            double d = AT(dy, r, i), gate = AT(g, r, i), up = AT(u, r, i), k = d * clamped_up(up),
                   v, bound;

            v = clamped_slope(&bound, gate);
            if (gate <= LIMIT)
                kc_want(dg, r, i, k * v,
                        fabs(k) * (bound + 4 * EPS * fabs(v) + 200 * TINY) + 200 * TINY);
            else
                kc_exact(dg, r, i, 0);
            clamped_want(&v, &bound, gate);
            if (fabs(up) <= LIMIT)
                kc_want(du, r, i, d * v, fabs(d) * (bound + EPS * fabs(v)) + 200 * TINY);
            else
                kc_exact(du, r, i, 0);
        }
    kc_begin(c);
    kn_swiglu_clamped_bwd(c->pool, c->t, dg->at, dg->ld, du->at, du->ld, dy->at, dy->ld, g->at,
                          g->ld, u->at, u->ld, rows, f);
}

const struct kc_op kc_swiglu_clamped_bwd = {"swiglu_clamped_bwd", "rows f", CASES(row_cases), true,
                                            swiglu_clamped_bwd_run};

/* ---- biases -------------------------------------------------------------- */

static void bias_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    bool place = d % 2 == 0;
    struct arr *x = kc_new(c, "x", place ? INOUT : IN, c->t, rows, d),
               *bias = kc_new(c, "bias", IN, c->t, 1, d);
    struct arr *y = place ? x : kc_new(c, "y", OUT, c->t, rows, d);

    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < d; i++) {
            double v = AT(x, r, i) + AT(bias, 0, i);

            kc_want(y, r, i, v, EPS * fabs(v));
        }
    kc_begin(c);
    kn_bias_fwd(c->pool, c->t, y->at, x->at, bias->at, rows, d);
}

const struct kc_op kc_bias_fwd = {"bias_fwd", "rows d", CASES(row_cases), true, bias_fwd_run};

static void bias_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1];
    struct arr *dy = kc_new(c, "dy", IN, c->t, rows, d);
    struct arr *dbias = kc_new(c, "dbias", INOUT, KN_F32, 1, d);

    for (size_t i = 0; i < d; i++) {
        double sum = AT(dbias, 0, i), size = fabs(sum);

        for (size_t r = 0; r < rows; r++) {
            sum += AT(dy, r, i);
            size += fabs(AT(dy, r, i));
        }
        kc_want(dbias, 0, i, sum, (double)(rows + 2) * EPS * size);
    }
    kc_begin(c);
    kn_bias_bwd(c->pool, c->t, dbias->at, dy->at, rows, d);
}

const struct kc_op kc_bias_bwd = {"bias_bwd", "rows d", CASES(row_cases), true, bias_bwd_run};
