/*
 * When to stop, and whom to measure again.
 *
 * Expected regret: with f drawn from the joint posterior over the most promising layouts C and the
 * incumbent x*, regret = E[ max(0, max_{x in C, x fits} f(x) - f(x*)) ] of log
 * throughput, so a share by a fixed number of samples of a fixed stream for each hypothesis,
 * weighed as the hypotheses are. A layout fits in a sample with its P(fits). (Frazier's knowledge
 * of the optimum; as a stopping rule: Wilson 2024, "Stopping Bayesian optimization with
 * probabilistic regret bounds".)
 *
 * Leaders: the winner is separated when no other measured layout could be better by more than
 * tie_share at 95 %. Until then the less certain of the winner and its closest rival is measured
 * again, within limits.
 */
#include <math.h>

#include "base/base.h"
#include "search/num.h"
#include "search/state.h"

#include <assert.h>

enum { SAMPLES = 256, MAX_MEASURED = 4 };
static const double ONE_SIDED_95 = 1.6448536269514722;
/* Weight of a hypothesis in the expected regret at least: a search does not end by the word of one
 * side. On warped generated landscapes a quarter ended 6 % of the campaigns before 1 %, a half 2.6.
 */
static const double HEARD = 0.5;
/* Trials without improvement before a campaign may end, at least. */
enum { PATIENCE = 5 };

/* ---- expected regret ----------------------------------------------------- */

/* Joint posterior covariance of COUNT layouts, factored in place: (count, count); means into
 * RET_MEAN.
 */
static double *joint(double *ret_mean, const struct se_search *search, const struct se_hyp *hyp,
                     const size_t *index, size_t count)
{
    const struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];
    const struct se_gp *g = &hyp->gp;
    size_t n = (size_t)g->n;
    struct se_point *p = mem_alloc(count * sizeof(*p));
    double *v = mem_alloc((n * count + 1) * sizeof(double));
    double *c = mem_alloc(count * count * sizeof(double));

    for (size_t i = 0; i < count; i++) {
        se_table_point(&p[i], search->table, SE_THROUGHPUT, index[i], g->kern.nlin);
        se_gp_cross(v + i * n, g, &p[i]);
        ret_mean[i] =
            se_hyp_mean(b, hyp, search->table, index[i]) + se_dot(v + i * n, g->alpha, g->n);
    }
    se_lower_solve(g->l, g->n, g->cap, v, (int)count);
    for (size_t j = 0; j < count; j++)
        for (size_t i = j; i < count; i++)
            c[j * count + i] = se_kernel_cov(&g->kern, p[i].level, p[i].u, p[j].level, p[j].u) -
                               se_dot(v + i * n, v + j * n, g->n) + (i == j ? 1e-9 : 0.0);
    free(p);
    free(v);
    if (se_chol(c, (int)count, (int)count) != 0) {
        free(c);
        return NULL;
    }
    return c;
}

/* Mean over samples of the improvement over layout 0. */
static double sample_regret(const double *mean, const double *chol, const double *p_fits,
                            size_t count, double widen)
{
    struct rng r;
    double sum = 0.0;
    double AUTO_FREE *f = mem_alloc(count * sizeof(double));
    bool AUTO_FREE *fits = mem_alloc(count * sizeof(bool));

    rng_seed(&r, 1);
    for (int k = 0; k < SAMPLES; k++) {
        double top = 0.0;

        memcpy(f, mean, count * sizeof(double));
        for (size_t j = 0; j < count; j++) {
            double z = widen * rng_normal(&r);

            fits[j] = j > 0 && rng_unit(&r) < p_fits[j];
            for (size_t i = j; i < count; i++)
                f[i] += chol[j * count + i] * z;
        }
        for (size_t i = 1; i < count; i++)
            if (fits[i])
                top = fmax(top, f[i] - f[0]);
        sum += expm1(top);
    }
    return sum / SAMPLES;
}

/* The weight of HYP if prior-mean and prior-free models have at least HEARD in all. */
static double heard(const struct se_surrogate *surrogate, const struct se_hyp *hyp)
{
    double weight = se_surrogate_prior_mean_weight(surrogate),
           side = hyp->prior_mean ? weight : 1.0 - weight;

    return side > 0.0 ? hyp->weight / side * fmax(side, HEARD) : 0.0;
}

double se_expected_regret(const struct se_search *search, const struct se_candidate *candidate,
                          size_t count, size_t incumbent, double widen)
{
    size_t index[64 + 1], n = 1;
    double mean[64 + 1], p_fits[64 + 1], regret = 0.0;
    const struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];

    assert(widen >= 1.0);
    index[0] = incumbent;
    p_fits[0] = 1.0;
    for (size_t i = 0; i < count && n <= 64; i++, n++) {
        index[n] = candidate[i].index;
        p_fits[n] = candidate[i].p_fits;
    }
    for (int h = 0; h < b->nhyps; h++) {
        double AUTO_FREE *l = joint(mean, search, &b->hyp[h], index, n);

        if (l)
            regret += heard(b, &b->hyp[h]) * sample_regret(mean, l, p_fits, n, widen);
    }
    return regret;
}

/* ---- patience ------------------------------------------------------------ */

int se_own_residuals(double *ret_error, double *ret_noise, const struct se_surrogate *surrogate,
                     const struct se_hyp *hyp)
{
    double AUTO_FREE *error = mem_alloc(((size_t)hyp->gp.n + 1) * sizeof(double));
    double AUTO_FREE *noise = mem_alloc(((size_t)hyp->gp.n + 1) * sizeof(double));
    int n = 0, at = 0;

    se_gp_residuals(error, noise, &hyp->gp);
    /* A GP has the last observation first. */
    for (int i = surrogate->nobs - 1; i >= 0; i--) {
        const struct se_obs *o = &surrogate->obs[i];

        if (o->is_hint && !hyp->informed)
            continue;
        if (o->kind == SE_EXACT && !o->is_hint) {
            ret_error[n] = error[at];
            ret_noise[n++] = noise[at];
        }
        at++;
    }
    return n;
}

/* By how much log throughput differs from what the likeliest hypothesis predicts of it from the
 * other trials, beyond noise: a standard deviation, by medians, as a single outlier tells little.
 */
static double unforeseen(const struct se_surrogate *surrogate)
{
    const struct se_hyp *h = &surrogate->hyp[0];
    double AUTO_FREE *error = mem_alloc(((size_t)surrogate->nobs + 1) * sizeof(double));
    double AUTO_FREE *noise = mem_alloc(((size_t)surrogate->nobs + 1) * sizeof(double));
    double sd;
    int n;

    for (int k = 1; k < surrogate->nhyps; k++)
        if (surrogate->hyp[k].weight > h->weight)
            h = &surrogate->hyp[k];
    n = se_own_residuals(error, noise, surrogate, h);
    if (n == 0)
        return 0.0;
    for (int i = 0; i < n; i++)
        error[i] = fabs(error[i]);
    sd = se_upper_median(error, n) / SE_UPPER_QUARTILE;
    return sqrt(fmax(sd * sd - se_upper_median(noise, n), 0.0));
}

/*
 * A surrogate that expects a small regret may be wrong, and trials that gain nothing test it. After
 * k of them the next one gains with probability 1 / (k + 2) (Laplace's rule of succession), and
 * then about as much as predictions err: until that is below SE_GAIN.
 */
int se_patience(const struct se_search *search)
{
    double trials = ceil(unforeseen(&search->surrogate[SE_THROUGHPUT]) / SE_GAIN) - 2.0;

    return (int)fmin(fmax(trials, PATIENCE), 1e6);
}

/* ---- leaders ------------------------------------------------------------- */

static int by_mean(const void *left, const void *right)
{
    const struct se_leader *a = left, *b = right;

    if (a->mean != b->mean)
        return a->mean < b->mean ? 1 : -1;
    return a->id - b->id;
}

size_t se_leaders(struct se_leader **ret, const struct se_search *search)
{
    struct se_leader *list = mem_alloc(((size_t)search->nrecords + 1) * sizeof(*list));
    size_t count = 0;

    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];
        size_t at = 0;

        if (!se_record_counts(r))
            continue;
        while (at < count && list[at].index != r->index)
            at++;
        if (at == count) {
            list[count++] = (struct se_leader){.index = r->index, .id = r->id};
            se_surrogate_predict(&list[at].mean, &list[at].var, &search->surrogate[SE_THROUGHPUT],
                                 search->table, r->index);
        }
        list[at].measured++;
    }
    qsort(list, count, sizeof(*list), by_mean);
    *ret = list;
    return count;
}

bool se_incumbent(size_t *ret_index, double *ret_mean, const struct se_search *search)
{
    bool any = false;

    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];
        double mean;

        if (!se_record_counts(r))
            continue;
        se_surrogate_predict(&mean, NULL, &search->surrogate[SE_THROUGHPUT], search->table,
                             r->index);
        if (any && mean <= *ret_mean)
            continue;
        any = true;
        *ret_index = r->index;
        *ret_mean = mean;
    }
    return any;
}

/* By how much RIVAL may be better than leader WINNER, at 95 %. */
static double may_gain(const struct se_leader *winner, const struct se_leader *rival)
{
    return rival->mean - winner->mean + ONE_SIDED_95 * sqrt(rival->var + winner->var);
}

bool se_is_tie(const struct se_search *search, const struct se_leader *leader, size_t count)
{
    (void)search;
    assert(count < 2 || leader[0].mean >= leader[1].mean);
    for (size_t i = 1; i < count; i++)
        if (may_gain(&leader[0], &leader[i]) > 0.0)
            return true;
    return false;
}

const struct se_leader *se_unresolved(const struct se_search *search,
                                      const struct se_leader *leader, size_t count)
{
    const struct se_leader *rival = NULL;
    double gain = log1p(search->spec.tie_share);

    assert(count < 2 || leader[0].mean >= leader[1].mean);
    for (size_t i = 1; i < count; i++) {
        if (may_gain(&leader[0], &leader[i]) > gain &&
            (leader[i].measured < MAX_MEASURED || leader[0].measured < MAX_MEASURED)) {
            gain = may_gain(&leader[0], &leader[i]);
            rival = &leader[i];
        }
    }
    if (!rival)
        return NULL;
    if (rival->measured >= MAX_MEASURED)
        return leader[0].measured < MAX_MEASURED ? &leader[0] : NULL;
    return leader[0].measured < rival->measured ? &leader[0] : rival;
}
