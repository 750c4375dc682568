/* Flat arrays and optimizers. */
#include "tests/kncheck/checks.h"

static const size_t flat_cases[][MAX_DIMS] = {
    {0}, {1}, {15}, {16}, {17}, {63}, {64}, {65}, {1000}, {2049}, {50021},
};

static void zero_run(struct check *c)
{
    struct arr *x = kc_new(c, "x", OUT, c->t, 1, c->dim[0]);

    for (size_t i = 0; i < c->dim[0]; i++)
        kc_exact(x, 0, i, 0);
    kc_begin(c);
    kn_zero(c->pool, x->at, c->dim[0] * kn_type_size(c->t));
}

const struct kc_op kc_zero = {"zero", "n", CASES(flat_cases), true, zero_run};

/* Numbers at which rounding to bf16 decides: halves, the largest, what overflows, small ones. */
static void hard_numbers(struct arr *x)
{
    static const double hard[] = {1 + 0x1p-8,  1 + 0x3p-8,       1 + 0x1p-8 + 0x1p-23,
                                  -1 - 0x1p-8, 0x1.fep127,       0x1.fffffep127,
                                  0x1p-149,    0x1p-133,         0x1.8p-133,
                                  -0.0,        (double)INFINITY, -(double)INFINITY};

    for (size_t i = 0; i < sizeof(hard) / sizeof(hard[0]) && i < x->cols; i++)
        kc_set(x, 0, i, hard[i]);
}

/* To bf16 with fp32 input; the way back where the storage type is bf16. Exact both ways. */
static void convert_run(struct check *c)
{
    enum kn_type from = c->t, to = from == KN_F32 ? KN_BF16 : KN_F32;
    size_t n = c->dim[0];
    struct arr *x = kc_new(c, "x", IN, from, 1, n), *y = kc_new(c, "y", OUT, to, 1, n);

    hard_numbers(x);
    for (size_t i = 0; i < n; i++)
        kc_exact(y, 0, i, to == KN_F32 ? AT(x, 0, i) : kc_round_bf16(AT(x, 0, i)));
    kc_begin(c);
    kn_convert(c->pool, to, y->at, from, x->at, n);
}

const struct kc_op kc_convert = {"convert", "n", CASES(flat_cases), true, convert_run};

/* rows, columns, and elements between the rows of y and of x */
static const size_t row_cases[][MAX_DIMS] = {
    {0, 4, 0, 0}, {1, 1, 0, 0}, {3, 7, 2, 0}, {5, 64, 0, 3}, {40, 33, 5, 1}, {300, 96, 32, 160},
};

/* With an odd number of columns between equal types. */
static void convert_rows_run(struct check *c)
{
    size_t rows = c->dim[0], cols = c->dim[1];
    enum kn_type from = c->t, to = cols % 2 ? from : from == KN_F32 ? KN_BF16 : KN_F32;
    struct arr *x = kc_wide(c, "x", IN, from, rows, cols, c->dim[3]);
    struct arr *y = kc_wide(c, "y", OUT, to, rows, cols, c->dim[2]);

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            kc_exact(y, i, j, to == KN_F32 ? AT(x, i, j) : kc_round_bf16(AT(x, i, j)));
    kc_begin(c);
    kn_convert_rows(c->pool, to, y->at, y->ld, from, x->at, x->ld, rows, cols);
}

const struct kc_op kc_convert_rows = {"convert_rows", "rows cols ygap xgap", CASES(row_cases), true,
                                      convert_rows_run};

static void add_run(struct check *c)
{
    size_t n = c->dim[0];
    bool place = n % 2;
    struct arr *a = kc_new(c, "a", place ? INOUT : IN, c->t, 1, n),
               *b = kc_new(c, "b", IN, c->t, 1, n);
    struct arr *y = place ? a : kc_new(c, "y", OUT, c->t, 1, n);

    for (size_t i = 0; i < n; i++)
        kc_want(y, 0, i, AT(a, 0, i) + AT(b, 0, i), 0);
    kc_begin(c);
    kn_add(c->pool, c->t, y->at, a->at, b->at, n);
}

const struct kc_op kc_add = {"add", "n", CASES(flat_cases), true, add_run};

/* A rounded product and the sum: 2 u of the magnitudes. Y is b, a or neither; A may be absent. */
static void add_scaled_run(struct check *c)
{
    size_t n = c->dim[0];
    int place = (int)(n % 3);
    bool both = n % 4 < 2;
    struct arr *b = kc_new(c, "b", place == 0 ? INOUT : IN, c->t, 1, n);
    struct arr *a = both ? kc_new(c, "a", place == 1 ? INOUT : IN, c->t, 1, n) : NULL;
    struct arr *y = place == 0 ? b : place == 1 && a ? a : kc_new(c, "y", OUT, c->t, 1, n);
    const float scale = -0.22f;

    for (size_t i = 0; i < n; i++) {
        double p = a ? AT(a, 0, i) : 0, q = (double)scale * AT(b, 0, i);

        kc_want(y, 0, i, p + q, 2 * EPS * (fabs(p) + fabs(q)));
    }
    kc_begin(c);
    kn_add_scaled(c->pool, c->t, y->at, a ? a->at : NULL, scale, b->at, n);
}

const struct kc_op kc_add_scaled = {"add_scaled", "n", CASES(flat_cases), true, add_scaled_run};

static void sumsq_run(struct check *c)
{
    size_t n = c->dim[0];
    struct arr *x = kc_new(c, "x", IN, c->t, 1, n), *y = kc_new(c, "sum", OUT, KN_F32, 1, 1);
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += AT(x, 0, i) * AT(x, 0, i);
    kc_want(y, 0, 0, sum, (double)n * 0x1p-53 * sum);
    kc_begin(c);
    kc_set(y, 0, 0, kn_sumsq(c->pool, c->t, x->at, n));
}

const struct kc_op kc_sumsq = {"sumsq", "n", CASES(flat_cases), true, sumsq_run};

/* n, step */
static const size_t adamw_cases[][MAX_DIMS] = {
    {0, 1}, {1, 1}, {17, 1}, {63, 2}, {64, 10}, {1001, 1000}, {40007, 100000},
};

/*
 * m and v are sums of two rounded products with rounded factors: 4 u of the magnitudes. The step is
 * rate m / (sqrt(v) root + eps): the root halves v's error, and a few factors and a quotient add up
 * to 10 u.
 */
static void adamw_run(struct check *c)
{
    struct kn_adamw h = {.lr = 3e-3f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .weight_decay = 0.1f,
                         .grad_scale = 0.25f,
                         .step = c->dim[1]};
    size_t n = c->dim[0];
    bool low = c->t == KN_BF16;
    struct arr *w = kc_new(c, "w", INOUT, KN_F32, 1, n), *m = kc_new(c, "m", INOUT, KN_F32, 1, n);
    struct arr *v = kc_new(c, "v", INOUT, KN_F32, 1, n), *g = kc_new(c, "g", IN, KN_F32, 1, n);
    struct arr *l = low ? kc_new(c, "low", OUT, KN_BF16, 1, n) : NULL;
    double b1 = (double)h.beta1, b2 = (double)h.beta2, t = (double)h.step, lr = (double)h.lr;

    for (size_t i = 0; i < n; i++) {
        double gi = AT(g, 0, i) * (double)h.grad_scale, mi, vi, den, by, em, keep;

        kc_set(v, 0, i, AT(v, 0, i) * AT(v, 0, i));
        mi = b1 * AT(m, 0, i) + (1 - b1) * gi;
        em = 4 * EPS * (fabs(b1 * AT(m, 0, i)) + fabs((1 - b1) * gi));
        vi = b2 * AT(v, 0, i) + (1 - b2) * gi * gi;
        den = sqrt(vi / (1 - pow(b2, t))) + (double)h.eps;
        by = lr / (1 - pow(b1, t)) / den;
        keep = AT(w, 0, i) * (1 - lr * (double)h.weight_decay);
        kc_want(m, 0, i, mi, em);
        kc_want(v, 0, i, vi, 5 * EPS * vi);
        kc_want(w, 0, i, keep - by * mi, 2 * EPS * fabs(keep) + by * (em + 10 * EPS * fabs(mi)));
        if (low)
            kc_want(l, 0, i, keep - by * mi,
                    3 * EPS * fabs(keep) + by * (em + 11 * EPS * fabs(mi)));
    }
    kc_begin(c);
    kn_adamw(c->pool, &h, w->at, low ? l->at : NULL, m->at, v->at, g->at, n);
}

const struct kc_op kc_adamw = {"adamw", "n step", CASES(adamw_cases), true, adamw_run};

/* As adamw, and the direction is a quotient of three rounded factors and a multiple of w. */
static void lamb_run(struct check *c)
{
    struct kn_adamw h = {.beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-6f,
                         .weight_decay = 0.1f,
                         .grad_scale = 0.25f,
                         .step = c->dim[1]};
    size_t n = c->dim[0];
    struct arr *w = kc_new(c, "w", IN, KN_F32, 1, n), *m = kc_new(c, "m", INOUT, KN_F32, 1, n);
    struct arr *v = kc_new(c, "v", INOUT, KN_F32, 1, n), *g = kc_new(c, "g", INOUT, KN_F32, 1, n);
    double b1 = (double)h.beta1, b2 = (double)h.beta2, t = (double)h.step;

    for (size_t i = 0; i < n; i++) {
        double gi = AT(g, 0, i) * (double)h.grad_scale, mi, vi, by, em, decay;

        kc_set(v, 0, i, AT(v, 0, i) * AT(v, 0, i));
        mi = b1 * AT(m, 0, i) + (1 - b1) * gi;
        em = 4 * EPS * (fabs(b1 * AT(m, 0, i)) + fabs((1 - b1) * gi));
        vi = b2 * AT(v, 0, i) + (1 - b2) * gi * gi;
        by = 1 / (1 - pow(b1, t)) / (sqrt(vi / (1 - pow(b2, t))) + (double)h.eps);
        decay = (double)h.weight_decay * AT(w, 0, i);
        kc_want(m, 0, i, mi, em);
        kc_want(v, 0, i, vi, 5 * EPS * vi);
        kc_want(g, 0, i, by * mi + decay, 3 * EPS * fabs(decay) + by * (em + 11 * EPS * fabs(mi)));
    }
    kc_begin(c);
    kn_lamb(c->pool, &h, w->at, m->at, v->at, g->at, n);
}

const struct kc_op kc_lamb = {"lamb", "n step", CASES(adamw_cases), true, lamb_run};

/* n, nesterov */
static const size_t momentum_cases[][MAX_DIMS] = {
    {0, 0}, {1, 0}, {17, 1}, {63, 0}, {64, 1}, {1001, 1}, {40007, 0},
};

/* Each sum has two rounded products: 3 u of the magnitudes; with Nesterov's there are two more. */
static void momentum_run(struct check *c)
{
    struct kn_momentum h = {
        .mu = 0.95f, .weight_decay = 0.1f, .grad_scale = 0.25f, .nesterov = c->dim[1]};
    size_t n = c->dim[0];
    struct arr *w = kc_new(c, "w", IN, KN_F32, 1, n), *m = kc_new(c, "m", INOUT, KN_F32, 1, n);
    struct arr *g = kc_new(c, "g", INOUT, KN_F32, 1, n);
    double mu = (double)h.mu;

    for (size_t i = 0; i < n; i++) {
        double scaled = AT(g, 0, i) * (double)h.grad_scale;
        double decay = AT(w, 0, i) * (double)h.weight_decay;
        double gi = scaled + decay, mi = mu * AT(m, 0, i) + gi;
        double size = fabs(scaled) + fabs(decay), eg = 3 * EPS * size;
        double em = eg + 3 * EPS * (fabs(mu * AT(m, 0, i)) + size);

        kc_want(m, 0, i, mi, em);
        kc_want(g, 0, i, h.nesterov ? gi + mu * mi : mi,
                h.nesterov ? eg + em + 3 * EPS * (size + fabs(mu * mi)) : em);
    }
    kc_begin(c);
    kn_momentum(c->pool, &h, w->at, m->at, g->at, n);
}

const struct kc_op kc_momentum = {"momentum", "n nesterov", CASES(momentum_cases), true,
                                  momentum_run};

/* Two rounded products and their sum: 3 u of the magnitudes. Y is z, x, or neither. */
static void combine_run(struct check *c)
{
    size_t n = c->dim[0];
    bool low = c->t == KN_BF16;
    int place = (int)(n % 3);
    struct arr *x = kc_new(c, "x", place == 1 ? INOUT : IN, KN_F32, 1, n);
    struct arr *z = kc_new(c, "z", place == 2 ? INOUT : IN, KN_F32, 1, n);
    struct arr *y = place == 1 ? x : place == 2 ? z : kc_new(c, "y", OUT, KN_F32, 1, n);
    struct arr *l = low ? kc_new(c, "low", OUT, KN_BF16, 1, n) : NULL;
    const float a = 0.9f, b = -1.7f;

    for (size_t i = 0; i < n; i++) {
        double p = (double)a * AT(x, 0, i), q = (double)b * AT(z, 0, i);
        double bound = 3 * EPS * (fabs(p) + fabs(q));

        kc_want(y, 0, i, p + q, bound);
        if (low)
            kc_want(l, 0, i, p + q, bound);
    }
    kc_begin(c);
    kn_combine(c->pool, y->at, low ? l->at : NULL, a, x->at, b, z->at, n);
}

const struct kc_op kc_combine = {"combine", "n", CASES(flat_cases), true, combine_run};
