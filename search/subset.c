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

static void work_init(struct work *work, int members, const struct se_gp *gp,
                      const struct se_table *table, enum se_quantity quantity, const uint32_t *row,
                      size_t count)
{
    size_t n = (size_t)gp->n;

    work->n = gp->n;
    work->rows = count < SAMPLE ? (int)count : SAMPLE;
    work->cov = mem_alloc(((size_t)work->rows * n + 1) * sizeof(double));
    work->own = mem_alloc(((size_t)members * n + 1) * sizeof(double));
    work->diag = mem_alloc((n + 1) * sizeof(double));
    work->gain = mem_alloc((n + 1) * sizeof(double));
    for (int r = 0; r < work->rows; r++) {
        size_t at = count * (size_t)r / (size_t)work->rows;
        struct se_point p;

        se_table_point(&p, table, quantity, row ? row[at] : at, gp->kern.nlin);
        se_gp_cross(work->cov + (size_t)r * n, gp, &p);
    }
    for (int i = 0; i < gp->n; i++) {
        struct se_point p = se_gp_point(gp, i);

        work->diag[i] = se_gp_prior_var(gp, &p) + gp->var[i] + gp->jitter;
    }
}

static void work_done(struct work *work)
{
    free(work->cov);
    free(work->own);
    free(work->diag);
    free(work->gain);
}

/* The observation with the largest gain among those that are not members, or -1. */
static int best(struct work *work)
{
    int at = -1;

    memset(work->gain, 0, (size_t)work->n * sizeof(double));
    for (int r = 0; r < work->rows; r++) {
        const double *cov = work->cov + (size_t)r * (size_t)work->n;

        for (int i = 0; i < work->n; i++)
            work->gain[i] += cov[i] * cov[i];
    }
    for (int i = 0; i < work->n; i++)
        if (work->diag[i] > 0.0 &&
            (at < 0 || work->gain[i] * work->diag[at] > work->gain[at] * work->diag[i]))
            at = i;
    return at;
}

/* Condition everything on observation AT, which becomes member PIVOT: its row of OWN is that of a
 * pivoted Cholesky factor. One whose variance is explained to rounding can add nothing. */
static void condition(struct work *work, const struct se_gp *gp, int pivot, int at)
{
    size_t n = (size_t)work->n;
    double *own = work->own + (size_t)pivot * n, root = sqrt(work->diag[at]);
    struct se_point p = se_gp_point(gp, at);

    assert(work->diag[at] > 0.0);
    se_gp_cross(own, gp, &p);
    for (int j = 0; j < pivot; j++) {
        const double *before = work->own + (size_t)j * n;
        double share = before[at];

        for (size_t i = 0; i < n; i++)
            own[i] -= share * before[i];
    }
    for (size_t i = 0; i < n; i++) {
        own[i] /= root;
        work->diag[i] -= own[i] * own[i];
        if (work->diag[i] <= ROUNDING * own[i] * own[i])
            work->diag[i] = 0.0;
    }
    work->diag[at] = 0.0;
    for (int r = 0; r < work->rows; r++) {
        double *cov = work->cov + (size_t)r * n, share = cov[at] / root;

        for (size_t i = 0; i < n; i++)
            cov[i] -= share * own[i];
    }
    own[at] = root;
}

/* L_SS has the rows of OWN at the members; its inverse by forward substitution. */
static void invert(struct se_subset *subset, const struct work *work)
{
    for (int c = 0; c < subset->n; c++) {
        for (int i = c; i < subset->n; i++) {
            double sum = i == c ? 1.0 : 0.0;

            for (int j = c; j < i; j++)
                sum -= work->own[(size_t)j * (size_t)work->n + (size_t)subset->member[i]] *
                       subset->inverse[j][c];
            subset->inverse[i][c] =
                sum / work->own[(size_t)i * (size_t)work->n + (size_t)subset->member[i]];
        }
    }
}

void se_subset_choose(struct se_subset *ret, int members, const struct se_gp *gp,
                      const struct se_table *table, enum se_quantity quantity, const uint32_t *row,
                      size_t count)
{
    struct work w;
    int at;

    memset(ret, 0, sizeof(*ret));
    assert(members <= SE_MAX_SUBSET);
    work_init(&w, members, gp, table, quantity, row, count);
    while (ret->n < members && (at = best(&w)) >= 0) {
        condition(&w, gp, ret->n, at);
        ret->member[ret->n++] = at;
    }
    invert(ret, &w);
    work_done(&w);
}
