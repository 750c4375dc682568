/* Choosing the observations that say most; the formulas are in subset.h. */
#include "search/subset.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "search/gp.h"

enum { SAMPLE = 64 };
/* A variance that falls to this share of what is taken from it is nothing but rounding. */
static const double ROUNDING = 1e-10;

/* Covariances given the members chosen so far; a row holds all observations, so that the inner
 * loops run along it. */
struct work {
    int n, rows;  /* observations; layouts of the sample */
    double *cov;  /* (rows, n): of the sample's layouts with the observations */
    double *own;  /* (members, n): rows of the pivoted factor, one for each member */
    double *diag; /* (n): var(x_j | S) + var_j; 0 for members */
    double *gain; /* (n) */
};

static struct se_point point_of(const struct se_gp *g, int i)
{
    struct se_point p = {.level = g->level + (size_t)i * (size_t)g->kern.ndims};

    memcpy(p.u, g->lin + (size_t)i * (size_t)g->kern.nlin, (size_t)g->kern.nlin * sizeof(double));
    return p;
}

static void work_init(struct work *w, int members, const struct se_gp *g, const struct se_table *t,
                      enum se_quantity q, const uint32_t *row, size_t count)
{
    size_t n = (size_t)g->n;

    w->n = g->n;
    w->rows = count < SAMPLE ? (int)count : SAMPLE;
    w->cov = mem_alloc(((size_t)w->rows * n + 1) * sizeof(double));
    w->own = mem_alloc(((size_t)members * n + 1) * sizeof(double));
    w->diag = mem_alloc((n + 1) * sizeof(double));
    w->gain = mem_alloc((n + 1) * sizeof(double));
    for (int r = 0; r < w->rows; r++) {
        size_t at = count * (size_t)r / (size_t)w->rows;
        struct se_point p;

        se_table_point(t, q, row ? row[at] : at, g->kern.nlin, &p);
        se_gp_cross(g, &p, w->cov + (size_t)r * n);
    }
    for (int i = 0; i < g->n; i++) {
        struct se_point p = point_of(g, i);

        w->diag[i] = se_gp_prior_var(g, &p) + g->var[i] + g->jitter;
    }
}

static void work_done(struct work *w)
{
    free(w->cov);
    free(w->own);
    free(w->diag);
    free(w->gain);
}

/* The observation with the largest gain among those that are not members, or -1. */
static int best(struct work *w)
{
    int at = -1;

    memset(w->gain, 0, (size_t)w->n * sizeof(double));
    for (int r = 0; r < w->rows; r++) {
        const double *cov = w->cov + (size_t)r * (size_t)w->n;

        for (int i = 0; i < w->n; i++)
            w->gain[i] += cov[i] * cov[i];
    }
    for (int i = 0; i < w->n; i++)
        if (w->diag[i] > 0.0 && (at < 0 || w->gain[i] * w->diag[at] > w->gain[at] * w->diag[i]))
            at = i;
    return at;
}

/* Condition everything on observation AT, which becomes member K: its row of OWN is that of a
 * pivoted Cholesky factor. One whose variance is explained to rounding can add nothing. */
static void condition(struct work *w, const struct se_gp *g, int k, int at)
{
    size_t n = (size_t)w->n;
    double *own = w->own + (size_t)k * n, root = sqrt(w->diag[at]);
    struct se_point p = point_of(g, at);

    se_gp_cross(g, &p, own);
    for (int j = 0; j < k; j++) {
        const double *before = w->own + (size_t)j * n;
        double share = before[at];

        for (size_t i = 0; i < n; i++)
            own[i] -= share * before[i];
    }
    for (size_t i = 0; i < n; i++) {
        own[i] /= root;
        w->diag[i] -= own[i] * own[i];
        if (w->diag[i] <= ROUNDING * own[i] * own[i])
            w->diag[i] = 0.0;
    }
    w->diag[at] = 0.0;
    for (int r = 0; r < w->rows; r++) {
        double *cov = w->cov + (size_t)r * n, share = cov[at] / root;

        for (size_t i = 0; i < n; i++)
            cov[i] -= share * own[i];
    }
    own[at] = root;
}

/* L_SS has the rows of OWN at the members; its inverse by forward substitution. */
static void invert(struct se_subset *s, const struct work *w)
{
    for (int c = 0; c < s->n; c++) {
        for (int i = c; i < s->n; i++) {
            double sum = i == c ? 1.0 : 0.0;

            for (int j = c; j < i; j++)
                sum -= w->own[(size_t)j * (size_t)w->n + (size_t)s->member[i]] * s->inverse[j][c];
            s->inverse[i][c] = sum / w->own[(size_t)i * (size_t)w->n + (size_t)s->member[i]];
        }
    }
}

void se_subset_choose(struct se_subset *ret, int members, const struct se_gp *g,
                      const struct se_table *t, enum se_quantity q, const uint32_t *row, size_t n)
{
    struct work w;
    int at;

    memset(ret, 0, sizeof(*ret));
    assert(members <= SE_MAX_SUBSET);
    work_init(&w, members, g, t, q, row, n);
    while (ret->n < members && (at = best(&w)) >= 0) {
        condition(&w, g, ret->n, at);
        ret->member[ret->n++] = at;
    }
    invert(ret, &w);
    work_done(&w);
}
