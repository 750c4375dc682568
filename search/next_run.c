/*
 * The throughput to expect of a layout that was picked for the highest of many measurements.
 *
 * Where it was measured again, the repeats are unbiased: the prediction is their mean, and
 * one more run lies within t sd sqrt(1 + 1/k) of it, sd being what runs of one layout differ by.
 *
 * Measured once, nothing in the campaign says how much of a measurement is the run's: not more than
 * what other trials leave unexplained of it, whose standard deviation s comes from the
 * leave-one-out residuals. So tau, by which runs differ, is uniform from 0 to s beforehand (Gelman
 * 2006, "Prior distributions for variance parameters"), and repeats of other layouts weigh it
 * (their squares / tau^2 are chi-squared). Given tau, the highest of these measurements is too high
 * by a bias that a parametric bootstrap finds: noise of tau on all of them, the highest picked, its
 * noise on average. One more run is then at measured - bias, with variance 2 tau^2: the
 * measurement's and its own. The prediction is the mean over tau. An average of the variances
 * would hold for an average tau; the interval is that of the largest which is still likely, so that
 * it holds for runs that differ by all that the trials leave unexplained.
 */
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "search/state.h"

#include <assert.h>

static void set(struct se_predicted *ret, double log_rate, double half)
{
    assert(half >= 0.0);
    ret->tokens_per_s = exp(log_rate);
    ret->lo = exp(log_rate - half);
    ret->hi = exp(log_rate + half);
}

/* Log of what a trial of layout INDEX measures, less that of its value by the objective. */
static double shift_of(const struct se_search *search, size_t index)
{
    return search->table->log_watts ? 0.0 : se_unit(search, index);
}

/* Tokens/s from what layout INDEX measures. */
static void to_rate(struct se_predicted *predicted, const struct se_search *search, size_t index)
{
    double unit = exp(se_unit(search, index) - shift_of(search, index));

    predicted->tokens_per_s *= unit;
    predicted->lo *= unit;
    predicted->hi *= unit;
}

/* Measurements of layout INDEX in order of asking into RET (log, room for all records); returns
 * how many. */
static int runs_of(double *ret, const struct se_search *search, size_t index)
{
    int n = 0;

    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];

        if (se_record_counts(r) && r->index == index)
            ret[n++] = se_log_measured(search, &r->outcome);
    }
    return n;
}

/* Standard deviation of what a trial measures from what the other trials say of it; -1 with too few
 * of them. Trials that differ from all others weigh as much as the surrogate is sure of them. */
static double unexplained(const struct se_search *search)
{
    const struct se_surrogate *b = &search->surrogate[SE_THROUGHPUT];
    const struct se_hyp *h = &b->hyp[0];
    double AUTO_FREE *mean = NULL, *var = NULL;
    double sum = 0.0, weight = 0.0;
    int n = 0;

    for (int k = 1; k < b->nhyps; k++)
        if (b->hyp[k].weight > h->weight)
            h = &b->hyp[k];
    mean = mem_alloc(((size_t)h->gp.n + 1) * sizeof(double));
    var = mem_alloc(((size_t)h->gp.n + 1) * sizeof(double));
    se_gp_leave_one_out(mean, var, &h->gp);
    for (int i = 0; i < h->gp.n && i < b->nobs; i++) {
        const struct se_obs *o = &b->obs[b->nobs - 1 - i]; /* the newest is the first row */
        double r = h->gp.y[i] - mean[i], v = var[i] + h->gp.var[i];

        if (o->kind != SE_EXACT || o->is_hint)
            continue;
        sum += r * r / v;
        weight += 1.0 / v;
        n++;
    }
    return n < 3 ? -1.0 : sqrt(sum / weight);
}

/* The layouts that were measured, by what they are picked by: logarithms of their means. */
struct field {
    double *y;
    size_t n, top;
    bool picked; /* the layout in question is the highest */
};

static void field_init(struct field *field, const struct se_search *search,
                       const struct se_measured *measured, size_t count)
{
    *field = (struct field){.y = mem_alloc((count + 1) * sizeof(*field->y))};
    for (size_t i = 0, end; i < count; i = end) {
        double sum = 0.0;

        for (end = i; end < count && measured[end].layout == measured[i].layout; end++)
            sum += log(measured[end].value);
        field->y[field->n] = sum / (double)(end - i) - shift_of(search, (size_t)measured[i].layout);
        if (field->y[field->n] > field->y[field->top])
            field->top = field->n;
        field->n++;
    }
}

/* By how much the highest of FIELD with noise of TAU exceeds what it is without, on average. */
static double bias(const struct field *field, double tau)
{
    enum { DRAWS = 200 };
    double sum = 0.0;

    if (!field->picked)
        return 0.0;
    for (uint64_t d = 0; d < DRAWS; d++) {
        double top = -INFINITY, noise = 0.0;

        for (size_t i = 0; i < field->n; i++) {
            double z = tau * rng_normal_at(d, i);

            if (field->y[i] + z > top) {
                top = field->y[i] + z;
                noise = z;
            }
        }
        sum += noise;
    }
    return sum / DRAWS;
}

/* Over tau by midpoints: the prediction is its mean, the interval its 95th percentile. */
static void picked(struct se_predicted *ret, double value, double sd, const struct field *field,
                   struct se_repeats seen)
{
    enum { POINTS = 20 };
    double weight[POINTS], mean = 0.0, all = 0.0, below = 0.0, likely = sd;

    for (int i = 0; i < POINTS; i++) {
        double tau = (i + 0.5) / POINTS * sd;

        weight[i] = exp(-seen.degrees * log(tau / sd) - 0.5 * seen.squares / (tau * tau));
        all += weight[i];
        mean += weight[i] * (value - bias(field, tau));
    }
    if (!(all > 0.0)) { /* repeats differ by far more than sd: then runs do */
        set(ret, value - bias(field, sd), 1.96 * sqrt(2.0) * sd);
        return;
    }
    for (int i = 0; i < POINTS && below < 0.95 * all; i++) {
        below += weight[i];
        likely = (i + 1.0) / POINTS * sd;
    }
    set(ret, mean / all, 1.96 * sqrt(2.0) * likely);
}

/* The same for a layout that was measured once, VALUE, and may be the highest of all COUNT. */
static int measured_once(struct se_predicted *ret, const struct se_search *search, size_t index,
                         double value, const struct se_measured *measured, size_t count)
{
    struct se_repeats seen = se_repeats_of(measured, count);
    double sd = unexplained(search);
    struct field f;

    if (sd < 0.0)
        return -ENODATA;
    if (seen.degrees > 0.0)
        sd = fmax(sd, 2.0 * sqrt(seen.squares / seen.degrees));
    field_init(&f, search, measured, count);
    f.picked = value - shift_of(search, index) >= f.y[f.top];
    picked(ret, value, sd, &f, seen);
    free(f.y);
    return 0;
}

int se_next_run(struct se_predicted *ret, const struct se_search *search,
                const struct pl_layout *layout, struct err *error)
{
    double AUTO_FREE *y = mem_alloc(((size_t)search->nrecords + 1) * sizeof(*y));
    struct se_measured AUTO_FREE *m = NULL;
    struct se_spread spread = se_spread_now(search);
    struct se_predicted p;
    double mean = 0.0, t = se_student_975(spread.degrees);
    size_t count, index;
    int n, k = se_predict(&p, search, layout, error);

    if (k < 0)
        return k;
    index = (size_t)se_table_find(search->table, layout);
    n = runs_of(y, search, index);
    m = se_measured_list(&count, search);
    for (int i = 1; i < n; i++)
        mean += y[i] / (n - 1);
    *ret = p;
    if (n > 1)
        set(ret, mean, t * spread.sd * sqrt(1.0 + 1.0 / (n - 1)));
    if (n > 1 || (n == 1 && measured_once(ret, search, index, y[0], m, count) == 0))
        to_rate(ret, search, index);
    else
        set(ret, log(p.tokens_per_s), t * hypot(log(p.hi / p.tokens_per_s) / 1.96, spread.sd));
    return 0;
}
