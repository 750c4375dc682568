/* Runs of smaller problems; the formulas are in fidelity.h. */
#include "search/fidelity.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"

/* What the ratio of the priors misses for each e-fold of device-seconds, as standard deviations:
 * common to a fidelity, as projections between sizes do (plan/project.h), and a layout's own. */
static const struct {
    double common, own;
} apart[SE_QUANTITIES] = {[SE_THROUGHPUT] = {0.03, 0.01}, [SE_MEMORY] = {0.02, 0.01}};
/* Of a measurement that is not made yet. */
static const double OWN_ERROR = 0.01;
/* A smaller run is worth its time if it costs at most this share of the full size, where it would
 * have to be repeated. */
static const double WORTH = 0.4;
/* Candidates that are looked at at every fidelity. */
enum { LOOKED_AT = 64 };

/* ---- runs ---------------------------------------------------------------- */

static double log_tokens(const struct pl_workload *workload, const struct pl_layout *layout)
{
    return log((double)pl_batch(workload, layout) * workload->seq);
}

static void set_point(struct se_run *run, const struct se_table *table, enum se_quantity quantity,
                      const struct se_prior *prior, double efolds)
{
    struct se_point *p = &run->point[quantity];
    const double *share = quantity == SE_THROUGHPUT ? prior->cost_share : prior->memory_share;

    for (int i = SE_LIN_SHARE; i < table->nlin[quantity]; i++)
        p->u[i] = share[i - SE_LIN_SHARE];
    p->apart = (struct se_apart){.fidelity = run->fidelity,
                                 .common = apart[quantity].common * efolds,
                                 .own = apart[quantity].own * efolds};
}

/* Make RUN, that of the full size so far, the run of what is left. */
static void shrink(struct se_run *run, const struct se_search *search, size_t index,
                   const struct pl_reduced *reduced, int fidelity)
{
    const struct se_table *t = search->table;
    struct pl_trial_limits limits =
        pl_fidelity_limits(&search->spec.limits, &search->spec.fidelity[fidelity - 1]);
    double whole =
        run->log_expense + run->step_log_tokens - run->log_rate - t->prior[SE_THROUGHPUT][index];
    struct se_spec small = search->spec;
    struct pl_layout layout;
    struct se_prior prior;
    int devices;

    se_table_layout(&layout, t, index);
    devices = pl_layout_devices(&layout);
    small.model = reduced->model;
    small.workload = reduced->workload;
    se_prior_of(&prior, &small, &reduced->layout);
    run->fidelity = fidelity;
    run->log_expense += log((double)pl_layout_devices(&reduced->layout) / devices);
    run->step_log_tokens = log_tokens(&reduced->workload, &reduced->layout);
    run->steps = pl_trial_steps_expected(&limits);
    run->log_rate = prior.log_throughput - t->prior[SE_THROUGHPUT][index] + se_watts_error(search);
    run->log_watts = prior.log_watts;
    run->shift[SE_THROUGHPUT] = prior.log_throughput - t->prior[SE_THROUGHPUT][index] -
                                (t->log_watts ? prior.log_watts : 0.0);
    run->shift[SE_MEMORY] = prior.log_memory -
                            se_table_capacity(search->table, &search->spec, index) -
                            t->prior[SE_MEMORY][index];
    whole -= run->log_expense + run->step_log_tokens - prior.log_throughput;
    for (int q = 0; q < SE_QUANTITIES; q++)
        set_point(run, t, (enum se_quantity)q, &prior, fmax(whole, 0.0));
}

bool se_run_of(struct se_run *ret, const struct se_search *search, size_t index, int fidelity)
{
    const struct se_table *t = search->table;
    struct pl_reduced reduced;
    struct pl_layout layout;

    assert(fidelity >= 0 && fidelity <= search->spec.nfidelities);
    se_table_layout(&layout, t, index);
    if (fidelity > 0 && !se_reduce(&reduced, &search->spec, &layout, fidelity))
        return false;
    *ret = (struct se_run){.log_rate = se_unit(search, index),
                           .log_watts = t->log_watts ? t->log_watts[index] : 0.0,
                           .log_expense =
                               t->log_price ? t->log_price[index] : log(pl_layout_devices(&layout)),
                           .step_log_tokens = log_tokens(&search->spec.workload, &layout),
                           .steps = pl_trial_steps_expected(&search->spec.limits),
                           .shift[SE_THROUGHPUT] = t->log_watts ? 0.0 : se_unit(search, index)};
    for (int q = 0; q < SE_QUANTITIES; q++)
        se_table_point(&ret->point[q], t, (enum se_quantity)q, index, t->nlin[q]);
    if (fidelity > 0)
        shrink(ret, search, index, &reduced, fidelity);
    return true;
}

double se_run_cost(const struct se_acquire *acquire, const struct se_run *run, double mean)
{
    double seconds = exp(run->step_log_tokens - mean - run->log_rate);

    return exp(run->log_expense) * (acquire->start_s + run->steps * seconds);
}

void se_trial_run(struct pl_reduced *ret, const struct se_search *search,
                  const struct se_trial *trial)
{
    if (!se_reduce(ret, &search->spec, &trial->layout, trial->fidelity))
        assert(!"a trial that was handed out");
}

/* ---- the value of a run -------------------------------------------------- */

/* By what RUN is expected to move the mean of layout INDEX, as a variance, under every hypothesis;
 * their means into RET_MEAN. */
static void moves(double *ret_mean, double *ret_var, const struct se_acquire *acquire,
                  const struct se_run *run, size_t index)
{
    const struct se_surrogate *b = acquire->surrogate[SE_THROUGHPUT];
    struct se_point whole;

    se_table_point(&whole, acquire->table, SE_THROUGHPUT, index,
                   acquire->table->nlin[SE_THROUGHPUT]);
    for (int h = 0; h < b->nhyps; h++) {
        const struct se_gp *g = &b->hyp[h].gp;
        const struct se_point *p = &run->point[SE_THROUGHPUT];
        double cov = se_gp_covariance(g, &whole, p), var = se_gp_covariance(g, p, p);

        se_hyp_predict(&ret_mean[h], NULL, b, &b->hyp[h], acquire->table, index);
        ret_var[h] = cov * cov / (fmax(var, 0.0) + g->kern.noise2 + OWN_ERROR * OWN_ERROR);
    }
}

/* P(RUN fits): as at full size, at its own point and with its own plan. */
static double run_fits(const struct se_acquire *acquire, const struct se_run *run, size_t index)
{
    const struct se_surrogate *b = acquire->surrogate[SE_MEMORY];
    const struct se_point *point = &run->point[SE_MEMORY];
    double sum = 0.0;

    for (int h = 0; h < b->nhyps; h++) {
        const struct se_hyp *hyp = &b->hyp[h];
        double mean, var, at = hyp->level + run->shift[SE_MEMORY];

        if (hyp->prior_mean)
            at = acquire->table->prior[SE_MEMORY][index] + run->shift[SE_MEMORY] +
                 (hyp->unfused ? point->u[SE_LIN_UNFUSED] : 0.0);
        se_gp_predict(&mean, &var, &hyp->gp, point);
        sum += hyp->weight * se_norm_cdf(-(at + mean) / sqrt(var + hyp->gp.kern.noise2));
    }
    return fmin(sum, 1.0);
}

static double mix(const struct se_surrogate *surrogate, const double *mean)
{
    double sum = 0.0;

    for (int h = 0; h < surrogate->nhyps; h++)
        sum += surrogate->hyp[h].weight * mean[h];
    return sum;
}

static double log_chance(double p)
{
    return log(fmin(fmax(p, 1e-150), 1.0));
}

/* Score of RUN of a layout whose P(fits) at full size is P_FITS. */
static double value_of(const struct se_acquire *acquire, const struct se_run *run, size_t index,
                       double p_fits)
{
    double mean[SE_MAX_HYPS], var[SE_MAX_HYPS], cost, fits;

    moves(mean, var, acquire, run, index);
    cost = log(se_run_cost(acquire, run, mix(acquire->surrogate[SE_THROUGHPUT], mean)));
    if (run->fidelity == 0)
        return se_log_improvement(acquire, mean, var) + 2.0 * log_chance(p_fits) - cost;
    fits = run_fits(acquire, run, index);
    for (int h = 0; h < acquire->surrogate[SE_THROUGHPUT]->nhyps; h++)
        mean[h] += log_chance(p_fits / fmax(fits, 1e-150));
    return se_log_improvement(acquire, mean, var) + log_chance(fits) - cost;
}

static double cost_at(const struct se_acquire *acquire, const struct se_search *search,
                      const struct se_candidate *candidate, int fidelity)
{
    struct se_run run;

    return se_run_of(&run, search, candidate->index, fidelity)
               ? se_run_cost(acquire, &run, candidate->mean[SE_THROUGHPUT])
               : INFINITY;
}

static bool worth(const struct se_acquire *acquire, const struct se_search *search,
                  const struct se_candidate *candidate, int fidelity)
{
    return fidelity == 0 || cost_at(acquire, search, candidate, fidelity) <=
                                WORTH * cost_at(acquire, search, candidate, 0);
}

static void offer(struct se_choice *best, const struct se_search *search,
                  const struct se_acquire *acquire, const struct se_candidate *candidate,
                  int fidelity)
{
    struct se_run run;
    double score;

    if (!worth(acquire, search, candidate, fidelity) ||
        !se_run_of(&run, search, candidate->index, fidelity))
        return;
    score = value_of(acquire, &run, candidate->index, candidate->p_fits);
    if (!best->any || score > best->score)
        *best = (struct se_choice){true, *candidate, fidelity, score};
}

/* Before anything ran there is no gain to compare: the first candidate, at the least cost that is
 * thought to fit. */
static void choose_first(struct se_choice *ret, const struct se_search *search,
                         const struct se_acquire *acquire, const struct se_candidate *candidate)
{
    double least = INFINITY;

    *ret = (struct se_choice){true, *candidate, 0, 0.0};
    for (int m = 0; m <= search->spec.nfidelities; m++) {
        struct se_run run;
        double cost = cost_at(acquire, search, candidate, m);

        if (cost < least && worth(acquire, search, candidate, m) &&
            se_run_of(&run, search, candidate->index, m) &&
            (m == 0 || run_fits(acquire, &run, candidate->index) > 0.5)) {
            least = cost;
            ret->fidelity = m;
        }
    }
}

/* ---- what ran ------------------------------------------------------------ */

enum { RAN_SMALL = 1, RAN_FULL = 2, FAILED_FULL = 4, OPEN_FULL = 8, FAILED_SMALL = 16 };

/* What is known of layout INDEX, as bits. */
static unsigned known(const struct se_search *search, size_t index)
{
    unsigned bits = 0;

    for (int i = 0; i < search->nrecords; i++) {
        const struct se_record *r = &search->record[i];
        bool ok = r->outcome.status == SE_OK;

        if (r->index != index || (r->settled && r->outcome.status == SE_DISCARD))
            continue;
        if (r->fidelity > 0)
            bits |= !r->settled ? 0 : ok ? RAN_SMALL : FAILED_SMALL;
        else
            bits |= !r->settled ? OPEN_FULL : ok ? RAN_FULL : FAILED_FULL;
    }
    return bits;
}

/* Record I is the first of its layout. */
static bool first_of(const struct se_search *search, int i)
{
    for (int j = 0; j < i; j++)
        if (search->record[j].index == search->record[i].index)
            return false;
    return true;
}

bool se_seen_best(size_t *ret_index, double *ret_value, const struct se_search *search,
                  const struct se_acquire *acquire)
{
    double best = -INFINITY;

    for (int i = 0; i < search->nrecords; i++) {
        size_t index = search->record[i].index;
        unsigned bits = known(search, index);
        struct se_candidate c;
        double value;

        if (!first_of(search, i) || !(bits & (RAN_SMALL | RAN_FULL)) ||
            (!(bits & RAN_FULL) && (bits & FAILED_FULL)))
            continue;
        se_acquire_one(&c, acquire, index);
        value = c.mean[SE_THROUGHPUT] + (bits & RAN_FULL ? 0.0 : log_chance(c.p_fits));
        if (value <= best)
            continue;
        best = value;
        *ret_index = index;
        *ret_value = value;
    }
    return best > -INFINITY;
}

void se_choose(struct se_choice *ret, const struct se_search *search,
               const struct se_acquire *acquire, const struct se_found *found, bool full)
{
    int most = full ? 0 : search->spec.nfidelities;
    size_t count = found->count < LOOKED_AT ? found->count : LOOKED_AT;

    *ret = (struct se_choice){0};
    if (!acquire->improving) {
        if (count > 0)
            choose_first(ret, search, acquire, &found->candidate[0]);
        return;
    }
    for (size_t i = 0; i < count; i++)
        for (int m = 0; m <= most; m++)
            offer(ret, search, acquire, &found->candidate[i], m);
    for (int i = 0; i < search->nrecords; i++) {
        struct se_candidate c;

        if (!first_of(search, i) || se_avoids(search, search->record[i].index) ||
            !(known(search, search->record[i].index) & (RAN_SMALL | FAILED_SMALL)) ||
            (known(search, search->record[i].index) & (RAN_FULL | FAILED_FULL | OPEN_FULL)))
            continue;
        se_acquire_one(&c, acquire, search->record[i].index);
        offer(ret, search, acquire, &c, 0);
    }
}

double se_small_share(const struct se_search *search, const struct se_acquire *acquire,
                      size_t index)
{
    double spent = 0.0;
    struct se_candidate c;

    for (int i = 0; i < search->nrecords; i++)
        spent = search->record[i].fidelity > 0 ? spent + search->record[i].device_s : 0.0;
    se_acquire_one(&c, acquire, index);
    return spent / cost_at(acquire, search, &c, 0);
}

bool se_unconfirmed(const struct se_search *search, size_t index)
{
    return !(known(search, index) & (RAN_FULL | FAILED_FULL | OPEN_FULL));
}
