/* Sorting and permutation of tokens. */
#include "tests/kncheck/checks.h"

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
