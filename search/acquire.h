/*
 * Which layout is worth most to try: expected improvement of the noisy incumbent times the
 * probability that it runs, per device-second, over every layout of the table.
 *
 *     score(x) = log sum_h w_h EI_h(x) + 2 log [P(fits) P(does not crash)] - log cost(x)
 *     EI_h     = sigma_h (phi(z) + z Phi(z)), z = (mean_h(x) - incumbent) / sigma_h
 *     P(fits)  = sum_g w_g Phi(-mean_g(x) / sqrt(var_g + noise_g))      of log memory over capacity
 *     cost(x)  = world (start + steps seconds(x)), seconds at the mean
 *
 * The square of the probability is caution: expected improvement alone counts an out-of-memory
 * trial as no gain, but it is a loss, of its devices' time and of what a throughput would have
 * taught.
 *
 * Exact, yet few layouts get an exact posterior: a sweep gives every mean exactly and a bound on
 * every variance; EI grows with sigma and P(fits) is bounded likewise, so a layout whose bound lies
 * below the best exact score cannot be the answer (Minoux's lazy evaluation). Memory is looked at
 * only where throughput alone does not rule a layout out.
 */
#ifndef SEARCH_ACQUIRE_H
#define SEARCH_ACQUIRE_H

#include "search/belief.h"

struct se_crash; /* crash.h */

struct se_acquire {
    const struct se_table *table;
    const struct se_belief *belief[SE_QUANTITIES];
    const struct se_crash *crash;
    const uint8_t *closed;  /* (n): not to be proposed */
    bool improving;         /* there is an incumbent; else the best mean is wanted */
    double incumbent;       /* log throughput in the objective's unit */
    double widen;           /* factor on every sigma: above 1 where the search has stalled */
    double step_log_tokens; /* log of tokens a step, less the devices' where per device */
    bool per_device;
    double steps, start_s;
    const uint32_t *hot; /* (nhot): layouts that were good at the last time, or NULL */
    size_t nhot;
};

struct se_choice {
    size_t index;
    double score;
    double mean[SE_QUANTITIES], var[SE_QUANTITIES]; /* of the mixtures */
    double log_ei;                                  /* or the mean where nothing improves yet */
    double p_fits;                                  /* and does not crash */
};

struct se_found {
    struct se_choice *choice; /* owned; all layouts with an exact posterior, best score first */
    size_t count;
    size_t open; /* layouts that could have been proposed */
    bool proved; /* no other layout can have a better score */
};

/* The best layouts; empty when all are closed. AT_LEAST asks for that many exact ones. */
void se_acquire(struct se_found *ret, const struct se_acquire *acquire, size_t at_least);
/* Exact score of one layout. */
void se_acquire_one(struct se_choice *ret, const struct se_acquire *acquire, size_t index);
/*
 * What QUANTITY of one layout (of throughput or memory, as believed) stays below with probability
 * PROB. Not the mean: hypotheses may lie so far apart that their mean is what none of them expects.
 */
double se_acquire_quantile(const struct se_acquire *acquire, size_t index,
                           enum se_quantity quantity, double prob);

enum { SE_MAX_EXACT = 20000 }; /* where the bound needs more, the rest stays unproved */

#endif
