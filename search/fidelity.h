/*
 * Runs of smaller problems (plan/fidelity.h): what they say of the full size, and which to make.
 * Private to the engine.
 *
 * With p and p_m the priors of layout x at full size and at fidelity m, a run that measures y_m is
 * an observation of the full size's f(x):
 *
 *     y_m - (p_m(x) - p(x)) = f(x) + (u_m - u) . w + d_m + e_m(x) + noise
 *
 * where u_m are the reduced problem's linear features (a machine constant errs at both sizes alike,
 * by shares that differ), and d_m and e_m what the ratio of the priors misses (struct se_apart).
 * All but f is in the covariance between observations; a posterior at full size has none of it.
 *
 * The value of run (x, m) is the expected gain of the best posterior mean, per device-second:
 *
 *     score(x, m) = log sum_h w_h EI(mean_h(x) + log P(x fits | m fits), s_h) + log P(m fits)
 *                   - log cost
 *     s_h         = cov_h(f(x), f_m(x)) / sqrt(var_h(f_m(x)) + noise)
 *     P(x fits | m fits) = min(1, P(x fits) / P(m fits))
 *
 * s_h is what y_m moves the mean by; of two sizes one needs more memory than the other. At full
 * size, m = 0, the score is that of acquire.h with s_h in place of sigma_h. A gain counts with the
 * chance that the layout fits at all, so that small runs, which may fit where the whole does not,
 * are not spent on layouts that will not.
 *
 * (Huang, Allen, Notz and Miller 2006, "Sequential kriging optimization using multiple-fidelity
 * evaluations", whose product of ratios this is to first order; Frazier, Powell and Dayanik 2009
 * for the s of one alternative.)
 */
#ifndef SEARCH_FIDELITY_H
#define SEARCH_FIDELITY_H

#include "search/state.h"

/* A run of a layout at a fidelity, 0 being the full size. */
struct se_run {
    int fidelity;
    struct se_point point[SE_QUANTITIES];
    double shift[SE_QUANTITIES]; /* log of what it measures, less that at full size in the table's
                                    unit, by the priors */
    double log_rate;             /* log of its tokens/s, less the same */
    double log_watts;            /* of its job, by the prior; objective tokens_per_joule alone */
    double log_expense;          /* log of its devices, or of their price */
    double step_log_tokens, steps;
};

/* False where LAYOUT number INDEX has no such run. */
bool se_run_of(struct se_run *ret, const struct se_search *search, size_t index, int fidelity);

/* The layout with the best expected throughput at full size, times the chance that it fits, among
 * those that ran at any size and did not fail at full size; *RET_VALUE is the logarithm. False
 * where there is none. */
bool se_seen_best(size_t *ret_index, double *ret_value, const struct se_search *search,
                  const struct se_acquire *acquire);

struct se_choice {
    bool any;
    struct se_candidate candidate; /* at full size */
    int fidelity;
    double score; /* as above */
};
/* The best of the open candidates FOUND at every fidelity, and of the layouts that ran at a smaller
 * size alone, at full size. FULL: at full size only. */
void se_choose(struct se_choice *ret, const struct se_search *search,
               const struct se_acquire *acquire, const struct se_found *found, bool full);

/* Has layout INDEX never been tried at full size? */
bool se_unconfirmed(const struct se_search *search, size_t index);
/* Device-seconds of the smaller runs since the last full one, over those of layout INDEX at full
 * size. */
double se_small_share(const struct se_search *search, const struct se_acquire *acquire,
                      size_t index);

/* Expected device-seconds of RUN where the full size has MEAN, in the table's unit. */
double se_run_cost(const struct se_acquire *acquire, const struct se_run *run, double mean);

#endif
