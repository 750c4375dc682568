/* Router: scores, the choice of experts, their weights, and the way back. */
#include "tests/kncheck/checks.h"

enum { BIASED = 1, DEALT = 2, SCALED = 4 };

/* rows, experts, k, renorm, score, groups, met, BIASED | DEALT | SCALED */
static const size_t router_cases[][MAX_DIMS] = {
    {0, 4, 2, 1, KN_SOFTMAX, 1, 1, 0},        {1, 1, 1, 1, KN_SOFTMAX, 1, 1, 0},
    {7, 4, 2, 1, KN_SOFTMAX, 1, 1, 0},        {33, 8, 2, 1, KN_SOFTMAX, 1, 1, 0},
    {20, 8, 8, 0, KN_SOFTMAX, 1, 1, 0},       {600, 16, 2, 1, KN_SOFTMAX, 1, 1, 0},
    {50, 17, 3, 0, KN_SOFTMAX, 1, 1, SCALED}, {9, 64, 6, 1, KN_SOFTMAX, 1, 1, 0},
    {31, 16, 4, 0, KN_SOFTMAX, 4, 2, 0},      {12, 24, 3, 1, KN_SOFTMAX, 3, 1, BIASED},
    {19, 12, 5, 1, KN_SOFTMAX, 1, 1, DEALT},  {1, 1, 1, 1, KN_SIGMOID, 1, 1, 0},
    {40, 9, 4, 1, KN_SIGMOID, 1, 1, BIASED},  {300, 64, 8, 1, KN_SIGMOID, 8, 4, BIASED | SCALED},
    {21, 37, 5, 0, KN_SIGMOID, 1, 1, SCALED}, {10, 40, 2, 0, KN_SIGMOID, 8, 3, BIASED},
    {27, 20, 7, 1, KN_SIGMOID, 1, 1, DEALT},  {8, 30, 6, 1, KN_SIGMOID, 5, 5, 0},
};

enum { MAX_EXPERTS = 64 };

/* What DIMS say; BIAS (1, experts) is used if they do. */
static struct kn_router router_of(const struct check *c, const struct arr *bias)
{
    return (struct kn_router){.experts = c->dim[1],
                              .k = c->dim[2],
                              .renorm = c->dim[3],
                              .score = c->dim[4] ? KN_SIGMOID : KN_SOFTMAX,
                              .groups = c->dim[5],
                              .met = c->dim[6],
                              .dealt = c->dim[7] & DEALT,
                              .scale = c->dim[7] & SCALED ? 2.5f : 1.0f,
                              .bias = bias && (c->dim[7] & BIASED) ? bias->at : NULL};
}

static void score_row(double *p, const struct kn_router *router, const double *logits)
{
    double sum = 0;

    for (size_t i = 0; i < router->experts; i++)
        sum += exp(logits[i]);
    for (size_t i = 0; i < router->experts; i++)
        p[i] = router->score == KN_SIGMOID ? 1 / (1 + exp(-logits[i])) : exp(logits[i]) / sum;
}

/* The K best of P in order, the lower index first among equals, without those in OUT. True if any
 * two of what competed are equal or differ by more than any rounding. */
static bool best_of(size_t *idx, const double *p, size_t n, size_t k, const bool *out)
{
    bool used[MAX_EXPERTS] = {false}, clear = true;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            double gap = fabs(p[i] - p[j]);

            clear &= (gap <= 0 || gap > 1e-6) || (out && (out[i] || out[j]));
        }
    for (size_t j = 0; j < k; j++) {
        size_t best = n;

        for (size_t i = 0; i < n; i++)
            if (!used[i] && !(out && out[i]) && (best == n || p[i] > p[best]))
                best = i;
        used[best] = true;
        idx[j] = best;
    }
    return clear;
}

/* The choice by the scores P and BIAS: false where it hangs on a rounding. */
static bool choose(size_t *idx, const struct kn_router *router, const double *p, const double *bias)
{
    size_t each = router->experts / router->groups, many = router->k / router->met;
    size_t met[MAX_EXPERTS], in[MAX_EXPERTS];
    double score[MAX_EXPERTS], sum[MAX_EXPERTS] = {0};
    bool out[MAX_EXPERTS], clear = true;

    for (size_t i = 0; i < router->experts; i++)
        score[i] = p[i] + (router->bias ? bias[i] : 0);
    many = many < 1 ? 1 : many > each ? each : many;
    for (size_t g = 0; g < router->groups; g++) {
        best_of(in, score + g * each, each, many, NULL);
        for (size_t i = 0; i < many; i++)
            sum[g] += score[g * each + in[i]];
    }
    clear = best_of(met, sum, router->groups, router->met, NULL);
    for (size_t i = 0; i < router->experts; i++)
        out[i] = true;
    for (size_t m = 0; m < router->met; m++)
        for (size_t i = 0; i < each; i++)
            out[met[m] * each + i] = false;
    return best_of(idx, score, router->experts, router->k, out) && clear;
}

/* Logits of row R, whole 64ths so that some are equal, whose choice IDX is clear; the scores. */
static void draw_row(struct check *c, double *p, size_t *idx, struct arr *logits, size_t r,
                     const struct kn_router *router, const double *bias)
{
    double l[MAX_EXPERTS];
    bool clear;

    do {
        for (size_t i = 0; i < router->experts; i++)
            l[i] = (double)rng_below(&c->rng, 300) / 64 - (router->score == KN_SIGMOID ? 2 : 0);
        score_row(p, router, l);
        clear = choose(idx, router, p, bias);
    } while (!clear);
    for (size_t i = 0; i < router->experts; i++)
        kc_set(logits, r, i, l[i]);
}

/* Any K different experts. */
static void deal(struct check *c, size_t *idx, const struct kn_router *router)
{
    size_t first = rng_below(&c->rng, router->experts);

    for (size_t j = 0; j < router->k; j++)
        idx[j] = (first + j * (router->experts - 1)) % router->experts;
}

static void draw_bias(struct check *c, double *ret, struct arr *bias)
{
    for (size_t i = 0; i < bias->cols; i++) {
        kc_set(bias, 0, i, (double)rng_below(&c->rng, 1000) / 4096);
        ret[i] = AT(bias, 0, i);
    }
}

static void want_row(struct arr *probs, struct arr *idx, struct arr *w, size_t r,
                     const struct kn_router *router, const double *p, const size_t *chosen)
{
    double off = EPS * (double)(router->experts + 20), top = 0;

    for (size_t j = 0; j < router->k; j++)
        top += p[chosen[j]];
    for (size_t i = 0; i < router->experts; i++)
        kc_want(probs, r, i, p[i], off * p[i]);
    for (size_t j = 0; j < router->k; j++) {
        double v = (double)router->scale * p[chosen[j]] / (router->renorm ? top : 1);

        if (!router->dealt)
            kc_want(idx, r, j, (double)chosen[j], 0);
        kc_want(w, r, j, v, (2 * off + EPS) * v);
    }
}

static void router_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], e = c->dim[1], k = c->dim[2];
    struct arr *l = kc_new(c, "logits", IN, KN_F32, rows, e),
               *bias = kc_new(c, "bias", IN, KN_F32, 1, e);
    struct kn_router router = router_of(c, bias);
    struct arr *probs = kc_new(c, "probs", OUT, KN_F32, rows, e),
               *idx = kc_int(c, "idx", router.dealt ? IN : OUT, rows, k),
               *w = kc_new(c, "w", OUT, KN_F32, rows, k);
    double b[MAX_EXPERTS];

    draw_bias(c, b, bias);
    for (size_t r = 0; r < rows; r++) {
        double p[MAX_EXPERTS];
        size_t chosen[MAX_EXPERTS];

        draw_row(c, p, chosen, l, r, &router, b);
        if (router.dealt)
            deal(c, chosen, &router);
        for (size_t j = 0; j < k && router.dealt; j++)
            kc_seti(idx, r, j, (int32_t)chosen[j]);
        want_row(probs, idx, w, r, &router, p, chosen);
    }
    kc_begin(c);
    kn_router_fwd(c->pool, &router, probs->at, idx->at, w->at, l->at, rows);
}

const struct kc_op kc_router_fwd = {"router_fwd",
                                    "rows e k renorm sigmoid groups met biased+dealt+scaled",
                                    CASES(router_cases), false, router_fwd_run};

/* Probabilities and choices of a row, as a forward pass leaves them. */
static void draw_choices(struct check *c, const struct kn_router *router, struct arr *probs,
                         struct arr *idx, struct arr *w, size_t r)
{
    double l[MAX_EXPERTS], p[MAX_EXPERTS], top = 0;
    size_t chosen[MAX_EXPERTS];

    for (size_t i = 0; i < router->experts; i++)
        l[i] = rng_normal(&c->rng);
    score_row(p, router, l);
    deal(c, chosen, router);
    for (size_t i = 0; i < router->experts; i++)
        kc_set(probs, r, i, p[i]);
    for (size_t j = 0; j < router->k; j++)
        top += AT(probs, r, chosen[j]);
    for (size_t j = 0; j < router->k; j++) {
        kc_seti(idx, r, j, (int32_t)chosen[j]);
        kc_set(w, r, j,
               (double)router->scale * AT(probs, r, chosen[j]) / (router->renorm ? top : 1));
    }
}

/* A gradient with the sum of the sizes of its terms, which its error is bounded by. */
struct term {
    double value, size;
};

/* By the probabilities of row R, from those of the shares (NULL: none) and of the weights. */
static void by_probs(struct term *ret, const struct kn_router *router, const struct arr *probs,
                     const struct arr *idx, const struct arr *w, const struct arr *dw,
                     const struct arr *dshare, size_t r)
{
    double all = 0, shared = 0, sharedsize = 0, top = 0, mean = 0, meansize = 0;

    for (size_t i = 0; i < router->experts; i++)
        all += AT(probs, r, i);
    for (size_t i = 0; dshare && i < router->experts; i++) {
        shared += AT(dshare, r, i) * AT(probs, r, i) / all;
        sharedsize += fabs(AT(dshare, r, i) * AT(probs, r, i) / all);
    }
    for (size_t i = 0; i < router->experts; i++)
        ret[i] = dshare ? (struct term){(AT(dshare, r, i) - shared) / all,
                                        (fabs(AT(dshare, r, i)) + sharedsize) / all}
                        : (struct term){0, 0};
    for (size_t j = 0; j < router->k; j++) {
        top += AT(probs, r, (size_t)kc_geti(idx, r, j));
        mean += AT(dw, r, j) * AT(w, r, j);
        meansize += fabs(AT(dw, r, j) * AT(w, r, j));
    }
    for (size_t j = 0; j < router->k; j++) {
        struct term *t = &ret[kc_geti(idx, r, j)];
        double own = (double)router->scale * AT(dw, r, j);

        t->value += router->renorm ? (own - mean) / top : own;
        t->size += router->renorm ? (fabs(own) + meansize) / top : fabs(own);
    }
}

static void router_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], e = c->dim[1], k = c->dim[2];
    bool aux = e % 2 == 0;
    struct kn_router router = router_of(c, NULL);
    struct arr *probs = kc_new(c, "probs", IN, KN_F32, rows, e),
               *idx = kc_int(c, "idx", IN, rows, k);
    struct arr *w = kc_new(c, "w", IN, KN_F32, rows, k), *dw = kc_new(c, "dw", IN, KN_F32, rows, k);
    struct arr *ds = kc_new(c, "dshare", IN, KN_F32, rows, e),
               *dl = kc_new(c, "dlogits", OUT, KN_F32, rows, e);

    for (size_t r = 0; r < rows; r++) {
        struct term g[MAX_EXPERTS];
        double inner = 0, innersize = 0;

        draw_choices(c, &router, probs, idx, w, r);
        by_probs(g, &router, probs, idx, w, dw, aux ? ds : NULL, r);
        for (size_t i = 0; i < e && router.score == KN_SOFTMAX; i++) {
            inner += AT(probs, r, i) * g[i].value;
            innersize += AT(probs, r, i) * g[i].size;
        }
        for (size_t i = 0; i < e; i++) {
            double p = AT(probs, r, i), slope = router.score == KN_SIGMOID ? p * (1 - p) : p;

            kc_want(dl, r, i, slope * (g[i].value - inner),
                    (double)(e + k + 8) * EPS * slope * (g[i].size + innersize));
        }
    }
    kc_begin(c);
    kn_router_bwd(c->pool, &router, dl->at, dw->at, aux ? ds->at : NULL, probs->at, idx->at, w->at,
                  rows);
}

const struct kc_op kc_router_bwd = {"router_bwd",
                                    "rows e k renorm sigmoid groups met biased+dealt+scaled",
                                    CASES(router_cases), false, router_bwd_run};

static const size_t z_cases[][MAX_DIMS] = {{0, 4},    {1, 1},  {7, 4},    {33, 8},
                                           {600, 17}, {9, 64}, {40, 256}, {5, 300}};

/* log Z of row R, with the size of its parts. */
static double z_of(double *ret_size, const struct arr *logits, size_t r, size_t experts)
{
    double max = AT(logits, r, 0), sum = 0;

    for (size_t i = 1; i < experts; i++)
        max = fmax(max, AT(logits, r, i));
    for (size_t i = 0; i < experts; i++)
        sum += exp(AT(logits, r, i) - max);
    *ret_size = fabs(max) + log(sum) + 1; /* 1: what a relative error of the sum is of its log */
    return log(sum) + max;
}

static struct arr *z_logits(struct check *c)
{
    struct arr *logits = kc_new(c, "logits", IN, KN_F32, c->dim[0], c->dim[1]);

    for (size_t r = 0; r < c->dim[0]; r++)
        for (size_t i = 0; i < c->dim[1]; i++)
            kc_set(logits, r, i, 8 * AT(logits, r, i));
    return logits;
}

/* The largest difference from the maximum, on which the error of an exponential depends. */
enum { Z_RANGE = 100 };

static void router_z_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], e = c->dim[1];
    struct arr *logits = z_logits(c), *z = kc_new(c, "log_z", OUT, KN_F32, rows, 1);

    for (size_t r = 0; r < rows; r++) {
        double size, want = z_of(&size, logits, r, e);

        kc_want(z, r, 0, want, (double)(e + Z_RANGE) * EPS * size);
    }
    kc_begin(c);
    kn_router_z_fwd(c->pool, z->at, logits->at, rows, e);
}

const struct kc_op kc_router_z_fwd = {"router_z_fwd", "rows experts", CASES(z_cases), false,
                                      router_z_fwd_run};

static void router_z_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], e = c->dim[1];
    struct arr *logits = z_logits(c), *dl = kc_new(c, "dlogits", INOUT, KN_F32, rows, e);
    double scale = (double)0.37f;

    for (size_t r = 0; r < rows; r++) {
        double size, z = z_of(&size, logits, r, e);

        for (size_t i = 0; i < e; i++) {
            double p = exp(AT(logits, r, i) - z), old = AT(dl, r, i), more = 2 * scale * z * p;

            kc_want(dl, r, i, old + more,
                    (double)(e + Z_RANGE) * EPS * 2 * scale * size * p * 2 +
                        EPS * (fabs(old) + fabs(more)));
        }
    }
    kc_begin(c);
    kn_router_z_bwd(c->pool, dl->at, logits->at, rows, e, 0.37f);
}

const struct kc_op kc_router_z_bwd = {"router_z_bwd", "rows experts", CASES(z_cases), false,
                                      router_z_bwd_run};
