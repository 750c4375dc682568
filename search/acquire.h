/*
 * The acquisition function: expected improvement over the noisy incumbent, times the probability
 * that the layout runs, per device-second, maximized over every layout of the table.
 *
 *     score(x) = log sum_h w_h EI_h(x) + 2 log [P(fits) P(does not crash)] - log cost(x)
 *     EI_h     = sigma_h (phi(z) + z Phi(z)), z = (mean_h(x) - incumbent) / sigma_h
 *     P(fits)  = sum_g w_g Phi(-mean_g(x) / sqrt(var_g + noise_g))      of log memory over capacity
 *     cost(x)  = devices (start + steps seconds(x)), seconds at the mean
 *
 * The probability is squared for caution: to expected improvement an out-of-memory trial is merely
 * no gain, but it loses device time and the throughput that another trial would have measured.
 *
 * The maximum is exact, yet few layouts need an exact posterior. A sweep gives every mean exactly
 * and a bound on every variance; EI grows with sigma and P(fits) is bounded likewise, so a layout
 * whose bound is below the best exact score is ruled out (Minoux's lazy evaluation). Memory is
 * evaluated only where throughput alone does not rule a layout out.
 */
#ifndef SEARCH_ACQUIRE_H
#define SEARCH_ACQUIRE_H

#include "search/surrogate.h"

struct se_crash; /* crash.h */

struct se_acquire {
    const struct se_table *table;
    const struct se_surrogate *surrogate[SE_QUANTITIES];
    const struct se_crash *crash;
    const uint8_t *closed;  /* (n): not to be proposed */
    bool improving;         /* there is an incumbent; else the score is the mean */
    double incumbent;       /* log throughput in the objective's unit */
    double widen;           /* factor on every sigma: above 1 where the search has stalled */
    double step_log_tokens; /* log of tokens a step of the workload's first batch */
    const float *log_unit;  /* (table.n) log of what the objective divides tokens/s by; NULL: 1 */
    double steps, start_s;
    uint64_t draw;       /* decides between layouts of the same score */
    const uint32_t *hot; /* (nhot): the best layouts of the last call, or NULL */
    size_t nhot;
};

struct se_candidate {
    size_t index;
    double score;
    double mean[SE_QUANTITIES], var[SE_QUANTITIES]; /* of the mixtures */
    double log_ei;                                  /* or the mean, without an incumbent */
    double p_fits;                                  /* and does not crash */
    uint32_t tie; /* of layouts of the same score, that of the least comes first */
};

struct se_found {
    struct se_candidate *candidate; /* owned; those with an exact posterior, best score first */
    size_t count;
    size_t open; /* layouts that may be proposed */
    bool proved; /* no other layout has a better score */
};

/* The best layouts, at least AT_LEAST with exact scores; empty when all are closed. */
void se_acquire(struct se_found *ret, const struct se_acquire *acquire, size_t at_least);
/* log of the expected improvement over the incumbent, as in the score, for one layout's means and
 * variances of throughput by hypothesis; the mixture's mean without an incumbent. */
double se_log_improvement(const struct se_acquire *acquire, const double *mean, const double *var);
/* Exact score of one layout. */
void se_acquire_one(struct se_candidate *ret, const struct se_acquire *acquire, size_t index);
/*
 * The PROB quantile of QUANTITY of one layout. Use its median rather than the mean: models may be
 * so far apart that none of them expects their mean.
 */
double se_acquire_quantile(const struct se_acquire *acquire, size_t index,
                           enum se_quantity quantity, double prob);

enum { SE_MAX_EXACT = 20000 }; /* beyond so many exact scores, `proved` is false */

#endif
