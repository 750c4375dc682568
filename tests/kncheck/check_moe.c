/* Router, sorting and permutation of tokens. */
#include "tests/kncheck/checks.h"

/* rows, experts, k, renorm */
static const size_t router_cases[][MAX_DIMS] = {
    {0, 4, 2, 1},  {1, 1, 1, 1},    {7, 4, 2, 1},   {33, 8, 2, 1},
    {20, 8, 8, 0}, {600, 16, 2, 1}, {50, 17, 3, 0}, {9, 64, 6, 1},
};

enum { MAX_EXPERTS = 64 };

/* Whole 64ths: two logits are equal, which must tie, or differ by more than any rounding. */
static struct arr *draw_logits(struct check *c, size_t rows, size_t e)
{
    struct arr *l = kc_new(c, "logits", IN, KN_F32, rows, e);

    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < e; i++)
            kc_set(l, r, i, (double)rng_below(&c->rng, 300) / 64);
    return l;
}

/* The K best of P in order, the lower index first among equals. */
static void choose(const double *p, size_t e, size_t k, size_t *idx)
{
    bool used[MAX_EXPERTS] = {false};

    for (size_t j = 0; j < k; j++) {
        size_t best = e;

        for (size_t i = 0; i < e; i++)
            if (!used[i] && (best == e || p[i] > p[best]))
                best = i;
        used[best] = true;
        idx[j] = best;
    }
}

static void router_fwd_run(struct check *c)
{
    size_t rows = c->dim[0], e = c->dim[1], k = c->dim[2], idx[MAX_EXPERTS];
    bool renorm = c->dim[3];
    struct arr *l = draw_logits(c, rows, e), *probs = kc_new(c, "probs", OUT, KN_F32, rows, e);
    struct arr *ix = kc_int(c, "idx", OUT, rows, k), *w = kc_new(c, "w", OUT, KN_F32, rows, k);

    for (size_t r = 0; r < rows; r++) {
        double p[MAX_EXPERTS], sum = 0, top = 0, off = EPS * (double)(e + 20);

        for (size_t i = 0; i < e; i++)
            sum += p[i] = exp(AT(l, r, i));
        choose(p, e, k, idx);
        for (size_t i = 0; i < e; i++)
            kc_want(probs, r, i, p[i] / sum, off * p[i] / sum);
        for (size_t j = 0; j < k; j++)
            top += p[idx[j]];
        for (size_t j = 0; j < k; j++) {
            double v = p[idx[j]] / (renorm ? top : sum);

            kc_want(ix, r, j, (double)idx[j], 0);
            kc_want(w, r, j, v, 2 * off * v);
        }
    }
    kc_begin(c);
    kn_router_fwd(c->pool, probs->at, ix->at, w->at, l->at, rows, e, k, renorm);
}

const struct kc_op kc_router_fwd = {"router_fwd", "rows e k renorm", CASES(router_cases), false,
                                    router_fwd_run};

/* Probabilities and choices as a forward pass leaves them. */
static void draw_choices(struct check *c, struct arr *probs, struct arr *idx, struct arr *w,
                         bool renorm)
{
    for (size_t r = 0; r < probs->rows; r++) {
        double p[MAX_EXPERTS], sum = 0, top = 0;
        size_t ix[MAX_EXPERTS];

        for (size_t i = 0; i < probs->cols; i++)
            sum += p[i] = exp(rng_normal(&c->rng));
        choose(p, probs->cols, idx->cols, ix);
        for (size_t i = 0; i < probs->cols; i++)
            kc_set(probs, r, i, p[i] / sum);
        for (size_t j = 0; j < idx->cols; j++)
            top += AT(probs, r, ix[j]);
        for (size_t j = 0; j < idx->cols; j++) {
            kc_seti(idx, r, j, (int32_t)ix[j]);
            kc_set(w, r, j, AT(probs, r, ix[j]) / (renorm ? top : 1));
        }
    }
}

static void router_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], e = c->dim[1], k = c->dim[2];
    bool renorm = c->dim[3], aux = e % 2 == 0;
    struct arr *probs = kc_new(c, "probs", IN, KN_F32, rows, e),
               *idx = kc_int(c, "idx", IN, rows, k);
    struct arr *w = kc_new(c, "w", IN, KN_F32, rows, k), *dw = kc_new(c, "dw", IN, KN_F32, rows, k);
    struct arr *dp = kc_new(c, "dprobs", IN, KN_F32, rows, e),
               *dl = kc_new(c, "dlogits", OUT, KN_F32, rows, e);

    draw_choices(c, probs, idx, w, renorm);
    for (size_t r = 0; r < rows; r++) {
        double g[MAX_EXPERTS], size[MAX_EXPERTS], top = 0, mean = 0, abs = 0, inner = 0,
                                                  innersize = 0;

        for (size_t j = 0; j < k; j++) {
            top += AT(probs, r, (size_t)kc_geti(idx, r, j));
            mean += AT(dw, r, j) * AT(w, r, j);
            abs += fabs(AT(dw, r, j) * AT(w, r, j));
        }
        for (size_t i = 0; i < e; i++) {
            g[i] = aux ? AT(dp, r, i) : 0;
            size[i] = fabs(g[i]);
        }
        for (size_t j = 0; j < k; j++) {
            size_t i = (size_t)kc_geti(idx, r, j);

            g[i] += renorm ? (AT(dw, r, j) - mean) / top : AT(dw, r, j);
            size[i] += renorm ? (fabs(AT(dw, r, j)) + abs) / top : fabs(AT(dw, r, j));
        }
        for (size_t i = 0; i < e; i++) {
            inner += AT(probs, r, i) * g[i];
            innersize += AT(probs, r, i) * size[i];
        }
        for (size_t i = 0; i < e; i++)
            kc_want(dl, r, i, AT(probs, r, i) * (g[i] - inner),
                    (double)(e + k + 8) * EPS * AT(probs, r, i) * (size[i] + innersize));
    }
    kc_begin(c);
    kn_router_bwd(c->pool, dl->at, dw->at, aux ? dp->at : NULL, probs->at, idx->at, w->at, rows, e,
                  k, renorm);
}

const struct kc_op kc_router_bwd = {"router_bwd", "rows e k renorm", CASES(router_cases), false,
                                    router_bwd_run};

/* n, groups, drop every so many (0: none) */
static const size_t sort_cases[][MAX_DIMS] = {
    {0, 3, 0}, {1, 1, 0}, {100, 7, 0}, {97, 5, 4}, {20, 30, 1}};

static void sort_run(struct check *c)
{
    size_t n = c->dim[0], groups = c->dim[1], drop = c->dim[2], at = 0;
    struct arr *key = kc_int(c, "key", IN, n, 1), *place = kc_int(c, "place", OUT, n, 1);
    struct arr *offsets = kc_int(c, "offsets", OUT, groups + 1, 1), *src;

    for (size_t i = 0; i < n; i++)
        kc_seti(key, i, 0, drop && i % drop == 0 ? -1 : (int32_t)rng_below(&c->rng, groups));
    for (size_t i = 0; i < n; i++)
        at += kc_geti(key, i, 0) >= 0;
    src = kc_int(c, "src", OUT, at, 1);
    at = 0;
    for (size_t g = 0; g < groups; g++) {
        kc_want(offsets, g, 0, (double)at, 0);
        for (size_t i = 0; i < n; i++) {
            if (kc_geti(key, i, 0) == (int32_t)g) {
                kc_want(place, i, 0, (double)at, 0);
                kc_want(src, at++, 0, (double)i, 0);
            }
        }
    }
    for (size_t i = 0; i < n; i++)
        if (kc_geti(key, i, 0) < 0)
            kc_want(place, i, 0, -1, 0);
    kc_want(offsets, groups, 0, (double)at, 0);
    kc_begin(c);
    kn_sort_by_key(offsets->at, src->at, place->at, key->at, n, groups);
}

const struct kc_op kc_sort = {"sort_by_key", "n groups drop", CASES(sort_cases), false, sort_run};

/* rows, k, d, mode: 0 plain, 1 weights, 2 weights and drops, 3 plain added */
static const size_t permute_cases[][MAX_DIMS] = {
    {0, 2, 8, 0},  {1, 1, 1, 0},   {9, 2, 16, 1},  {40, 2, 33, 2},
    {17, 3, 7, 3}, {33, 8, 65, 1}, {50, 1, 64, 2},
};

/* A random arrangement of the n choices; with drops every fifth has no place. Returns how many have
 * one. */
static size_t arrange(struct check *c, struct arr *place, bool drops)
{
    size_t n = place->rows * place->cols, kept = 0;
    int32_t *order = mem_alloc((n + 1) * sizeof(*order));

    for (size_t i = 0; i < n; i++) {
        size_t j = rng_below(&c->rng, i + 1);

        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    for (size_t i = 0; i < n; i++) {
        bool dropped = drops && order[i] % 5 == 0;

        kc_seti(place, (size_t)order[i] / place->cols, (size_t)order[i] % place->cols,
                dropped ? -1 : (int32_t)kept);
        kept += !dropped;
    }
    free(order);
    return kept;
}

static void permute_run(struct check *c)
{
    size_t rows = c->dim[0], k = c->dim[1], d = c->dim[2], n;
    struct arr *place = kc_int(c, "place", IN, rows, k), *x = kc_new(c, "x", IN, c->t, rows, d),
               *src, *y;

    n = arrange(c, place, c->dim[3] == 2);
    src = kc_int(c, "src", IN, n, 1);
    y = kc_new(c, "y", OUT, c->t, n, d);
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < k; j++) {
            int32_t at = kc_geti(place, r, j);

            for (size_t i = 0; at >= 0 && i < d; i++)
                kc_exact(y, (size_t)at, i, AT(x, r, i));
            if (at >= 0)
                kc_seti(src, (size_t)at, 0, (int32_t)(r * k + j));
        }
    }
    kc_begin(c);
    kn_permute(c->pool, c->t, y->at, x->at, src->at, n, k, d);
}

const struct kc_op kc_permute = {"permute", "rows k d mode", CASES(permute_cases), true,
                                 permute_run};

static void unpermute_run(struct check *c)
{
    size_t rows = c->dim[0], k = c->dim[1], d = c->dim[2], mode = c->dim[3], n;
    bool weights = mode == 1 || mode == 2, add = mode == 3;
    struct arr *place = kc_int(c, "place", IN, rows, k), *w = kc_new(c, "w", IN, KN_F32, rows, k);
    struct arr *y = kc_new(c, "y", add ? INOUT : OUT, c->t, rows, d), *x;

    n = arrange(c, place, mode == 2);
    x = kc_new(c, "x", IN, c->t, n, d);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < d; i++) {
            double sum = add ? AT(y, r, i) : 0, size = fabs(sum);

            for (size_t j = 0; j < k; j++) {
                int32_t at = kc_geti(place, r, j);
                double v = at < 0 ? 0 : (weights ? AT(w, r, j) : 1) * AT(x, (size_t)at, i);

                sum += v;
                size += fabs(v);
            }
            kc_want(y, r, i, sum, (double)(k + 1) * EPS * size);
        }
    }
    kc_begin(c);
    kn_unpermute(c->pool, c->t, y->at, x->at, place->at, weights ? w->at : NULL, rows, k, d, add);
}

const struct kc_op kc_unpermute = {"unpermute", "rows k d mode", CASES(permute_cases), true,
                                   unpermute_run};

static void unpermute_bwd_run(struct check *c)
{
    size_t rows = c->dim[0], k = c->dim[1], d = c->dim[2], n;
    bool weights = c->dim[3] == 1 || c->dim[3] == 2;
    struct arr *place = kc_int(c, "place", IN, rows, k), *w = kc_new(c, "w", IN, KN_F32, rows, k);
    struct arr *dy = kc_new(c, "dy", IN, c->t, rows, d), *x, *dx;
    struct arr *dw = weights ? kc_new(c, "dw", OUT, KN_F32, rows, k) : NULL;

    n = arrange(c, place, c->dim[3] == 2);
    x = kc_new(c, "x", IN, c->t, n, d);
    dx = kc_new(c, "dx", OUT, c->t, n, d);
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < k; j++) {
            int32_t at = kc_geti(place, r, j);
            double sum = 0, size = 0, by = weights ? AT(w, r, j) : 1;

            for (size_t i = 0; at >= 0 && i < d; i++) {
                kc_want(dx, (size_t)at, i, by * AT(dy, r, i), 0);
                sum += AT(dy, r, i) * AT(x, (size_t)at, i);
                size += fabs(AT(dy, r, i) * AT(x, (size_t)at, i));
            }
            if (weights)
                kc_want(dw, r, j, sum, (double)d * EPS * size);
        }
    }
    kc_begin(c);
    kn_unpermute_bwd(c->pool, c->t, dx->at, weights ? dw->at : NULL, dy->at, x->at, place->at,
                     weights ? w->at : NULL, rows, k, d);
}

const struct kc_op kc_unpermute_bwd = {"unpermute_bwd", "rows k d mode", CASES(permute_cases), true,
                                       unpermute_bwd_run};
