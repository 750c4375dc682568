/* Embedding, soft capping and cross-entropy. */
#include "tests/kncheck/checks.h"

/* rows, d, v0, vocab, sixteenths of the scale (0: 1); ids are drawn from 0 .. 59 */
static const size_t embed_cases[][MAX_DIMS] = {
    {0, 4, 0, 60},     {1, 1, 0, 60}, {7, 16, 0, 60},     {40, 33, 20, 20},
    {90, 129, 40, 20}, {5, 8, 0, 1},  {7, 16, 0, 60, 89}, {40, 33, 20, 20, 7},
};

static double scale_of(const struct check *c)
{
    return c->dim[4] ? (double)c->dim[4] / 16 : 1;
}

static struct arr *draw_ids(struct check *c, size_t rows, size_t below)
{
    struct arr *ids = kc_int(c, "ids", IN, rows, 1);

    for (size_t r = 0; r < rows; r++)
        kc_seti(ids, r, 0, (int32_t)rng_below(&c->rng, below));
    return ids;
}

/* The row of the table, or -1 if another rank has it. */
static ptrdiff_t local(const struct arr *ids, size_t r, size_t v0, size_t vocab)
{
    ptrdiff_t i = kc_geti(ids, r, 0) - (ptrdiff_t)v0;

    return i >= 0 && i < (ptrdiff_t)vocab ? i : -1;
}

static void embed_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1], v0 = c->dim[2], vocab = c->dim[3];
    struct arr *ids = draw_ids(c, rows, 60), *table = kc_new(c, "table", IN, c->t, vocab, d);
    struct arr *y = kc_new(c, "y", OUT, c->t, rows, d);

    for (size_t r = 0; r < rows; r++) {
        ptrdiff_t at = local(ids, r, v0, vocab);

        for (size_t i = 0; i < d; i++) {
            double v = at < 0 ? 0 : AT(table, (size_t)at, i);

            if (c->dim[4])
                kc_want(y, r, i, scale_of(c) * v, EPS * scale_of(c) * fabs(v));
            else
                kc_exact(y, r, i, v);
        }
    }
    kc_begin(c);
    kn_embed_fwd(c->pool, c->t, y->at, table->at, ids->at, rows, d, v0, vocab, (float)scale_of(c));
}

const struct kc_op kc_embed_fwd = {"embed_fwd", "rows d v0 vocab scale", CASES(embed_cases), true,
                                   embed_fwd_run};

/* the same, and whether the table is bf16; of 600 rows most have an id that others have, too */
static const size_t embed_bwd_cases[][MAX_DIMS] = {
    {0, 4, 0, 60},           {1, 1, 0, 60},       {7, 16, 0, 60},          {40, 33, 20, 20},
    {90, 129, 40, 20},       {5, 8, 0, 1},        {7, 16, 0, 60, 89},      {40, 33, 20, 20, 7},
    {0, 4, 0, 60, 0, 1},     {1, 1, 0, 60, 0, 1}, {7, 16, 0, 60, 0, 1},    {40, 33, 20, 20, 0, 1},
    {90, 129, 40, 20, 0, 1}, {5, 8, 0, 1, 0, 1},  {600, 72, 3, 50, 89, 1},
};

static void embed_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], d = c->dim[1], v0 = c->dim[2], vocab = c->dim[3];
    enum kn_type tt = c->dim[5] ? KN_BF16 : KN_F32;
    struct arr *ids = draw_ids(c, rows, 60), *dy = kc_new(c, "dy", IN, c->t, rows, d);
    struct arr *dt = kc_new(c, "dtable", INOUT, tt, vocab, d);

    for (size_t v = 0; v < vocab; v++) {
        for (size_t i = 0; i < d; i++) {
            double sum = AT(dt, v, i), size = fabs(sum);

            for (size_t r = 0; r < rows; r++) {
                if (local(ids, r, v0, vocab) == (ptrdiff_t)v) {
                    sum += scale_of(c) * AT(dy, r, i);
                    size += scale_of(c) * fabs(AT(dy, r, i));
                }
            }
            kc_want(dt, v, i, sum, (double)(rows + 1) * EPS * size);
        }
    }
    kc_begin(c);
    kn_embed_bwd(c->pool, c->t, tt, dt->at, dy->at, ids->at, rows, d, v0, vocab,
                 (float)scale_of(c));
}

const struct kc_op kc_embed_bwd = {"embed_bwd", "rows d v0 vocab scale bf16",
                                   CASES(embed_bwd_cases), true, embed_bwd_run};

/* rows, cols, tenths of the cap */
static const size_t cap_cases[][MAX_DIMS] = {
    {0, 5, 10},  {1, 1, 5},     {3, 7, 300},   {9, 33, 5},
    {40, 64, 1}, {5, 257, 300}, {2, 1031, 20}, {17, 16, 10},
};

/* x / cap is off by 2 u relatively, which tanh does not enlarge; of tanh itself 8 u: 2 / (e^2x + 1)
 * is off by 8 u, and at most 4/5 of what is left of 1; and the product with cap. */
static void softcap_run(struct check *c)
{
    static const double ends[] = {0, 1e-30, -1e-3, 0.6249, -0.6251, 3, -9.5, 10, -88.8, 100, 1e4};
    size_t rows = c->dim[0], cols = c->dim[1];
    double cap = (double)((float)c->dim[2] / 10);
    struct arr *x = kc_wide(c, "x", INOUT, c->t, rows, cols, 3);

    for (size_t i = 0; rows > 1 && i < cols && i < sizeof(ends) / sizeof(ends[0]); i++)
        kc_set(x, 1, i, cap * ends[i]);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i++) {
            double v = cap * tanh(AT(x, r, i) / cap);

            kc_want(x, r, i, v, 11 * EPS * fabs(v));
        }
    kc_begin(c);
    kn_softcap(c->pool, c->t, x->at, x->ld, rows, cols, (float)cap);
}

const struct kc_op kc_softcap = {"softcap", "rows cols cap", CASES(cap_cases), true, softcap_run};

/* rows, cols, padded, v0; targets are drawn from -1 .. 299 */
static const size_t xent_cases[][MAX_DIMS] = {
    {0, 5, 5, 0},        {1, 1, 1, 0},       {3, 15, 16, 0}, {9, 33, 40, 0},    {40, 300, 300, 0},
    {21, 100, 128, 200}, {17, 257, 258, 30}, {5, 0, 4, 300}, {6, 600, 603, 10},
};

struct xent {
    size_t rows, cols, padded, v0;
    struct arr *logits, *targets;
};

static struct xent xent_of(struct check *c, enum role role)
{
    struct xent x = {c->dim[0], c->dim[1], c->dim[2], c->dim[3], NULL, NULL};

    x.logits = kc_wide(c, "logits", role, c->t, x.rows, x.padded, 3);
    x.targets = kc_int(c, "targets", IN, x.rows, 1);
    for (size_t r = 0; r < x.rows; r++) {
        kc_seti(x.targets, r, 0, (int32_t)rng_below(&c->rng, 301) - 1);
        for (size_t i = 0; i < x.padded; i++) /* padding must not be read */
            kc_set(x.logits, r, i, i < x.cols ? 8 * AT(x.logits, r, i) : (double)NAN);
    }
    return x;
}

static double row_max(const struct xent *x, size_t r)
{
    double max = -INFINITY;

    for (size_t i = 0; i < x->cols; i++)
        max = fmax(max, AT(x->logits, r, i));
    return max;
}

static void xent_max_run(struct check *c)
{
    struct xent x = xent_of(c, IN);
    struct arr *max = kc_new(c, "max", OUT, KN_F32, x.rows, 1);

    for (size_t r = 0; r < x.rows; r++)
        kc_exact(max, r, 0, row_max(&x, r));
    kc_begin(c);
    kn_xent_max(c->pool, c->t, max->at, x.logits->at, x.logits->ld, x.rows, x.cols);
}

const struct kc_op kc_xent_max = {"xent_max", "rows cols padded v0", CASES(xent_cases), true,
                                  xent_max_run};

/* The global maximum may be another rank's: a little more than this rank's own. */
static struct arr *global_max(struct check *c, const struct xent *x)
{
    struct arr *max = kc_new(c, "max", IN, KN_F32, x->rows, 1);

    for (size_t r = 0; r < x->rows; r++)
        kc_set(max, r, 0, x->cols ? row_max(x, r) + (double)(r % 3) : 0);
    return max;
}

static ptrdiff_t target_column(const struct xent *x, size_t r)
{
    ptrdiff_t t = kc_geti(x->targets, r, 0), c = t - (ptrdiff_t)x->v0;

    return t >= 0 && c >= 0 && c < (ptrdiff_t)x->cols ? c : -1;
}

/* exp(l - max): the difference is rounded, hence |l - max| u, and 5 u for the exponential. */
static void xent_sum_run(struct check *c)
{
    struct xent x = xent_of(c, IN);
    struct arr *max = global_max(c, &x);
    struct arr *sum = kc_new(c, "sum", OUT, KN_F32, x.rows, 1);
    struct arr *target = kc_new(c, "target", OUT, KN_F32, x.rows, 1);

    for (size_t r = 0; r < x.rows; r++) {
        double s = 0, off = 0;
        ptrdiff_t at = target_column(&x, r);

        for (size_t i = 0; i < x.cols; i++) {
            double t = AT(x.logits, r, i) - AT(max, r, 0);

            s += exp(t);
            off += exp(t) * (fabs(t) + 5 + (double)x.cols) * EPS;
        }
        kc_want(sum, r, 0, s, off);
        kc_exact(target, r, 0, at < 0 ? 0 : AT(x.logits, r, (size_t)at));
    }
    kc_begin(c);
    kn_xent_sum(c->pool, c->t, sum->at, target->at, x.logits->at, x.logits->ld, x.rows, x.cols,
                max->at, x.targets->at, x.v0);
}

const struct kc_op kc_xent_sum = {"xent_sum", "rows cols padded v0", CASES(xent_cases), true,
                                  xent_sum_run};

static void xent_grad_run(struct check *c)
{
    struct xent x = xent_of(c, INOUT);
    struct arr *max = global_max(c, &x), *sum = kc_new(c, "sum", IN, KN_F32, x.rows, 1);
    double scale = (double)0.37f;
    float z = x.rows % 2 ? 0.02f : 0.0f, cap = x.rows % 3 ? 0.0f : 30.0f;

    for (size_t r = 0; r < x.rows; r++) {
        ptrdiff_t at = target_column(&x, r);
        bool ignored = kc_geti(x.targets, r, 0) < 0;
        double more;

        kc_set(sum, r, 0, 1 + 5 * rng_unit(&c->rng));
        more = 2 * (double)z * (log(AT(sum, r, 0)) + AT(max, r, 0));
        for (size_t i = 0; i < x.padded; i++) {
            double t, p, b, off, cut;

            if (ignored || i >= x.cols) {
                kc_exact(x.logits, r, i, 0);
                continue;
            }
            t = AT(x.logits, r, i) - AT(max, r, 0);
            p = exp(t) / AT(sum, r, 0) * scale;
            /* with bf16 storage the result is rounded once more before the target's 1 is taken off;
             * log Z is a logarithm, a sum and a product, and may cancel the 1 that it is added to;
             * the square of l / cap is off by 5 u of itself
             */
            b = p * (1 + more) - (at == (ptrdiff_t)i ? scale : 0);
            off = p * (1 + fabs(more)) * (fabs(t) + (z > 0 ? 14 : 8)) * EPS +
                  (at == (ptrdiff_t)i ? EPS * scale : 0);
            cut = cap > 0 ? pow(AT(x.logits, r, i) / (double)cap, 2) : 0;
            kc_want(x.logits, r, i, b * (1 - cut),
                    off * fabs(1 - cut) + (cap > 0 ? EPS * fabs(b) * (6 * cut + 2) : 0));
        }
    }
    kc_begin(c);
    kn_xent_grad(c->pool, c->t, x.logits->at, x.logits->ld, x.rows, x.cols, x.padded, max->at,
                 sum->at, x.targets->at, x.v0, 0.37f, z, cap);
}

const struct kc_op kc_xent_grad = {"xent_grad", "rows cols padded v0", CASES(xent_cases), true,
                                   xent_grad_run};

static const size_t loss_cases[][MAX_DIMS] = {{0}, {1}, {50}};

static void xent_loss_run(struct check *c)
{
    size_t rows = c->dim[0], count = 0, counted;
    struct arr *max = kc_new(c, "max", IN, KN_F32, rows, 1),
               *sum = kc_new(c, "sum", IN, KN_F32, rows, 1);
    struct arr *target = kc_new(c, "target", IN, KN_F32, rows, 1), *ids = draw_ids(c, rows, 9);
    struct arr *loss = kc_new(c, "loss", OUT, KN_F32, rows, 1), *n = kc_int(c, "count", OUT, 1, 1);
    struct arr *total = kc_new(c, "total", OUT, KN_F32, 1, 1);
    double all = 0, size = 0, got;

    for (size_t r = 0; r < rows; r++) {
        double one;

        kc_set(sum, r, 0, 1 + 9 * rng_unit(&c->rng));
        if (r % 4 == 3)
            kc_seti(ids, r, 0, KN_IGNORE);
        one = r % 4 == 3 ? 0 : log(AT(sum, r, 0)) + AT(max, r, 0) - AT(target, r, 0);
        kc_want(loss, r, 0, one, 0);
        all += one;
        size += fabs(one);
        count += r % 4 != 3;
    }
    kc_want(total, 0, 0, all, 0x1p-50 * (size + 1));
    kc_want(n, 0, 0, (double)count, 0);
    kc_begin(c);
    got = kn_xent_loss(loss->at, &counted, max->at, sum->at, target->at, ids->at, rows);
    kc_set(total, 0, 0, got);
    kc_seti(n, 0, 0, (int32_t)counted);
}

const struct kc_op kc_xent_loss = {"xent_loss", "rows", CASES(loss_cases), false, xent_loss_run};

static void xent_z_run(struct check *c)
{
    size_t rows = c->dim[0];
    struct arr *max = kc_new(c, "max", IN, KN_F32, rows, 1),
               *sum = kc_new(c, "sum", IN, KN_F32, rows, 1);
    struct arr *ids = draw_ids(c, rows, 9), *total = kc_new(c, "total", OUT, KN_F32, 1, 1);
    double all = 0;

    for (size_t r = 0; r < rows; r++) {
        kc_set(sum, r, 0, 1 + 9 * rng_unit(&c->rng));
        if (r % 4 == 3)
            kc_seti(ids, r, 0, KN_IGNORE);
        all += r % 4 == 3 ? 0 : pow(log(AT(sum, r, 0)) + AT(max, r, 0), 2);
    }
    kc_want(total, 0, 0, all, 0x1p-50 * (all + 1));
    kc_begin(c);
    kc_set(total, 0, 0, kn_xent_z(max->at, sum->at, ids->at, rows));
}

const struct kc_op kc_xent_z = {"xent_z", "rows", CASES(loss_cases), false, xent_z_run};
