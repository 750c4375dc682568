/* Hints of earlier campaigns; the formulas are in transfer.h. */
#include "search/transfer.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"

/* By how much coefficients of two campaigns on one machine and stack differ: standard deviations of
 * the constant, the slope of the prior and the factors of the classes. */
static const struct {
    double constant, slope, share;
} differ[SE_QUANTITIES] = {[SE_THROUGHPUT] = {0.15, 0.10, 0.15}, [SE_MEMORY] = {0.10, 0.05, 0.15}};
/* A hint that takes less than this share of a coefficient's variance is left out. */
static const double LEAST_SAID = 0.05;
/* How much a source's verdict on its prior counts for this one's. */
static const double SAME_VERDICT = 0.5;

/* ---- one source ---------------------------------------------------------- */

void se_likelihood_of(struct se_likelihood *ret, const struct se_surrogate *surrogate)
{
    const struct se_hyp *h = se_surrogate_stack(surrogate);
    struct se_gp g;
    int n, m = h->gp.kern.nlin;

    memset(ret, 0, sizeof(*ret));
    ret->n = m;
    se_gp_copy(&g, &h->gp);
    memset(g.kern.lin2, 0, sizeof(g.kern.lin2));
    se_gp_factor(&g);
    n = g.n;

    double AUTO_FREE *u = mem_alloc(((size_t)n * (size_t)m + 1) * sizeof(double));
    double AUTO_FREE *y = mem_alloc(((size_t)n + 1) * sizeof(double));

    for (int i = 0; i < n; i++) {
        y[i] = g.y[i];
        for (int p = 0; p < m; p++)
            u[p * n + i] = g.lin[i * m + p];
    }
    se_lower_solve(g.l, n, g.cap, u, m);
    se_lower_solve(g.l, n, g.cap, y, 1);
    for (int p = 0; p < m; p++) {
        ret->information[p] = se_dot(u + p * n, y, n);
        for (int q = 0; q < m; q++)
            ret->precision[p * m + q] = se_dot(u + p * n, u + q * n, n);
    }
    se_gp_done(&g);
}

/*
 * With B = I + D^1/2 A D^1/2: A (I + D A)^-1 = A - (D^1/2 A)^T B^-1 D^1/2 A, and (I + A D)^-1 r =
 * r - (D^1/2 A)^T B^-1 D^1/2 r.
 */
void se_likelihood_widen(struct se_likelihood *likelihood, const double *var)
{
    int n = likelihood->n;
    double b[SE_MAX_LIN * SE_MAX_LIN], x[SE_MAX_LIN * SE_MAX_LIN], y[SE_MAX_LIN];

    for (int j = 0; j < n; j++) {
        y[j] = sqrt(var[j]) * likelihood->information[j];
        for (int i = 0; i < n; i++) {
            x[j * n + i] = sqrt(var[i]) * likelihood->precision[j * n + i];
            b[j * n + i] = x[j * n + i] * sqrt(var[j]) + (i == j);
        }
    }
    if (se_chol(b, n, n) != 0)
        assert(!"I plus a covariance has a factor");
    se_lower_solve(b, n, n, x, n);
    se_lower_solve(b, n, n, y, 1);
    for (int j = 0; j < n; j++) {
        likelihood->information[j] -= se_dot(x + j * n, y, n);
        for (int i = 0; i < n; i++)
            likelihood->precision[j * n + i] -= se_dot(x + i * n, x + j * n, n);
    }
}

int se_likelihood_hints(struct se_hint *ret, const struct se_likelihood *likelihood,
                        const double *prior_var)
{
    int n = likelihood->n, count = 0;
    double q[SE_MAX_LIN * SE_MAX_LIN], lambda[SE_MAX_LIN];

    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            q[j * n + i] =
                sqrt(prior_var[i]) * likelihood->precision[j * n + i] * sqrt(prior_var[j]);
    se_eigen(lambda, q, n);
    for (int j = n - 1; j >= 0 && lambda[j] / (1.0 + lambda[j]) >= LEAST_SAID; j--) {
        struct se_hint *o = &ret[count++];

        memset(o, 0, sizeof(*o));
        o->var = 1.0 / lambda[j];
        for (int i = 0; i < n; i++) {
            o->v[i] = q[j * n + i] / sqrt(prior_var[i]);
            o->value += q[j * n + i] * sqrt(prior_var[i]) * likelihood->information[i] / lambda[j];
        }
    }
    return count;
}

/* ---- all of them --------------------------------------------------------- */

static void add(struct se_likelihood *sum, const struct se_likelihood *likelihood)
{
    assert(sum->n == 0 || sum->n == likelihood->n);
    sum->n = likelihood->n;
    for (int i = 0; i < likelihood->n * likelihood->n; i++)
        sum->precision[i] += likelihood->precision[i];
    for (int i = 0; i < likelihood->n; i++)
        sum->information[i] += likelihood->information[i];
}

static void differences(double *var, enum se_quantity quantity)
{
    for (int p = 0; p < SE_MAX_LIN; p++) {
        double sd = p == SE_LIN_CONST   ? differ[quantity].constant
                    : p == SE_LIN_PRIOR ? differ[quantity].slope
                                        : differ[quantity].share;

        var[p] = sd * sd;
    }
}

/* The different layouts of a source's trials into LIST; how many. */
static size_t layouts_of(const struct se_source *source, struct pl_layout *list)
{
    size_t n = 0;

    for (int i = 0; i < source->n; i++) {
        size_t at = 0;

        while (at < n && !pl_layout_equal(&list[at], &source->trial[i].layout))
            at++;
        if (at == n)
            list[n++] = source->trial[i].layout;
    }
    return n;
}

/* The source as a search over the layouts that it tried, which was told all and is fitted. */
static int open_source(struct se_search **ret, const struct se_source *source,
                       enum pl_objective objective, struct err *error)
{
    struct pl_layout AUTO_FREE *list = mem_alloc(((size_t)source->n + 1) * sizeof(*list));
    size_t n = layouts_of(source, list);
    AUTO(se_search) *s = NULL;
    struct se_spec spec = source->spec;
    int r;

    spec.objective = objective;
    spec.use_prior = spec.use_memory_prior = true;
    r = se_search_alone(&s, &spec, list, n, error);
    if (r < 0)
        return r;
    for (int i = 0; i < source->n; i++)
        if (source->trial[i].outcome.status != SE_DISCARD)
            se_learn(s, (size_t)se_table_find(s->table, &source->trial[i].layout),
                     source->trial[i].fidelity, &source->trial[i].outcome);
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_surrogate_fit(&s->surrogate[q]);
    *ret = TAKE(s);
    return 0;
}

static void inform(struct se_search *search, enum se_quantity quantity,
                   const struct se_likelihood *likelihood, double source_weight, bool unfused)
{
    struct se_surrogate *b = &search->surrogate[quantity];
    struct se_hint hint[SE_MAX_LIN];
    double weight = b->nhyps > SE_PRIOR_FREE ? 1.0 - b->hyp[SE_PRIOR_FREE].prior_weight : 0.0;
    int n;

    if (b->nhyps <= SE_PRIOR_FREE)
        return;
    n = se_likelihood_hints(hint, likelihood, b->hyp[SE_PRIOR_MEAN].gp.kern.lin2);
    se_surrogate_inform(b, search->table, hint, n, weight + SAME_VERDICT * (source_weight - weight),
                        unfused);
}

/* Add the hints from the sources of SPEC to SEARCH, which has been told nothing yet. */
static int transfer(struct se_search *search, const struct se_spec *spec, struct err *error)
{
    struct se_likelihood sum[SE_QUANTITIES] = {{0}};
    double weight[SE_QUANTITIES] = {0.0}, d[SE_MAX_LIN];
    int unfused[SE_QUANTITIES] = {0}; /* sources whose stack seems to keep matrices */

    for (int i = 0; i < spec->nsources; i++) {
        AUTO(se_search) *x = NULL;
        int r = open_source(&x, &spec->source[i], spec->objective, error);

        if (r < 0)
            return r;
        for (int q = 0; q < SE_QUANTITIES; q++) {
            struct se_likelihood likelihood;

            differences(d, (enum se_quantity)q);
            se_likelihood_of(&likelihood, &x->surrogate[q]);
            se_likelihood_widen(&likelihood, d);
            add(&sum[q], &likelihood);
            unfused[q] += se_surrogate_stack(&x->surrogate[q])->unfused;
            weight[q] += se_surrogate_prior_mean_weight(&x->surrogate[q]) / spec->nsources;
        }
        search->source_trials += spec->source[i].n;
    }
    search->nsources = spec->nsources;
    for (int q = 0; q < SE_QUANTITIES && spec->nsources > 0; q++)
        inform(search, (enum se_quantity)q, &sum[q], weight[q], 2 * unfused[q] > spec->nsources);
    return 0;
}

int se_search_new_over(struct se_search **ret, const struct se_spec *spec,
                       const struct pl_layout *layouts, size_t count, struct err *error)
{
    AUTO(se_search) *search = NULL;
    int r = se_search_alone(&search, spec, layouts, count, error);

    if (r == 0)
        r = transfer(search, spec, error);
    if (r == 0)
        *ret = TAKE(search);
    return r;
}
