/*
 * The surrogate of one quantity, log throughput or log memory over capacity: a mixture of Gaussian
 * processes.
 *
 * Two models, weighted by their evidence:
 *     prior-mean   f = prior + c + b (prior - center) + sum theta_c share_c + g   small deviations
 *     prior-free   f = level + c + b (prior - center) + g                         large ones
 * In the prior-free model b has mean 0, so the data decide how much the prior counts; a prior that
 * ranks layouts in reverse is detected and then used. (Without a prior, and for memory, b is 0.)
 * Hyper-parameters of each model are maximum a posteriori. Memory has two prior-mean models, since
 * whether a stack keeps attention's T x T matrices is binary: as planned, and with those matrices
 * in the mean.
 *
 * Hints of other campaigns (transfer.h) are observations of the coefficients c, b and theta alone.
 * They enter a further prior-mean model, the informed one, which loses its weight if they mislead.
 *
 * An observation is exact (with its own variance) or one-sided: the value lies below or above a
 * bound (a trial that was stopped early; one that fitted, or did not, without a memory figure).
 * One-sided ones enter by expectation propagation (Rasmussen and Williams 2006, section 3.6): each
 * becomes a Gaussian pseudo-observation, after which a model is a plain se_gp.
 *
 * Invariant between calls: every gp matches the observations (se_surrogate_update was called after
 * the last add).
 */
#ifndef SEARCH_SURROGATE_H
#define SEARCH_SURROGATE_H

#include "search/table.h"

/* Indices of models. Without a prior the prior-free one is the only one, at index 0. */
enum { SE_PRIOR_MEAN, SE_PRIOR_FREE, SE_MAX_HYPS = 4 };

enum se_obs_kind { SE_EXACT, SE_BELOW, SE_ABOVE };

struct se_obs {
    enum se_obs_kind kind;
    double value;
    double var;   /* of its own error; if one-sided, how sharp the bound is */
    double prior; /* at this layout */
    bool is_hint; /* of the linear part alone, for the informed model only */
    uint8_t level[SE_MAX_DIMS];
    double u[SE_MAX_LIN];
    struct se_apart apart; /* of a run of a smaller problem, whose VALUE is as at full size */
    /* Pseudo-observations of a one-sided one, where the next update starts; variance 0: none yet */
    double site_y[SE_MAX_HYPS], site_var[SE_MAX_HYPS];
};

struct se_hyper { /* log-normal hyper-prior: log theta ~ N(mean, sd^2) */
    double mean, sd;
};

struct se_hyp {
    bool prior_mean;
    bool informed; /* by hints */
    bool unfused;  /* with the attention matrices that the stack keeps */
    double prior_weight;
    double level; /* mean of the prior-free model */
    struct se_hyper hyper[SE_MAX_THETA];
    struct se_gp gp;
    double evidence; /* log p(observations, theta) */
    double weight;   /* all add up to 1 */
};

struct se_surrogate {
    enum se_quantity quantity;
    int nhyps;
    int unfused, informed; /* indices of these models; 0: none */
    struct se_hyp hyp[SE_MAX_HYPS];
    struct se_obs *obs;
    int nobs, cap;
    int fitted; /* observations at the last fit */
    int nhints; /* the first NHINTS observations are hints */
};

void se_surrogate_init(struct se_surrogate *surrogate, const struct se_table *table,
                       enum se_quantity quantity, bool use_prior);
void se_surrogate_done(struct se_surrogate *surrogate);
void se_surrogate_copy(struct se_surrogate *to, const struct se_surrogate *from);

/* An observation of v . w with variance VAR, w being the coefficients of the linear features. */
struct se_hint {
    double v[SE_MAX_LIN];
    double value, var;
};
/* The likelier of the prior-mean models with and without the attention matrices. */
const struct se_hyp *se_surrogate_stack(const struct se_surrogate *surrogate);
/* Add COUNT hints, before any observation. WEIGHT is the prior weight of the prior-mean models;
 * UNFUSED: the hints are from stacks that keep attention's matrices. No effect without a prior-mean
 * model. */
void se_surrogate_inform(struct se_surrogate *surrogate, const struct se_table *table,
                         const struct se_hint *hint, int count, double weight, bool unfused);
/* Weight of all prior-mean models. */
double se_surrogate_prior_mean_weight(const struct se_surrogate *surrogate);

/* Add an observation; se_surrogate_update() must follow. */
void se_surrogate_add(struct se_surrogate *surrogate, const struct se_obs *obs);
/* Set where an observation is (level, u, prior): at layout INDEX of the table. */
void se_surrogate_place(struct se_obs *ret, const struct se_surrogate *surrogate,
                        const struct se_table *table, size_t index);

/* Update factors, pseudo-observations and weights for the observations, with the current
 * hyper-parameters. */
void se_surrogate_update(struct se_surrogate *surrogate);
/* Refit the hyper-parameters, then update. */
void se_surrogate_fit(struct se_surrogate *surrogate);
/* Copy the hyper-parameters of another surrogate of the same kind, then update. */
void se_surrogate_adopt(struct se_surrogate *surrogate, const struct se_surrogate *from);

/* What the unfused model adds to the mean of memory; in no kernel. */
enum { SE_LIN_UNFUSED = SE_LIN_SHARE + SE_MEMORY_UNFUSED };

/* Mean function of model HYP at layout INDEX. */
static inline double se_hyp_mean(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                                 const struct se_table *table, size_t index)
{
    if (!hyp->prior_mean)
        return hyp->level;
    return table->prior[surrogate->quantity][index] +
           (hyp->unfused ? (double)se_table_lin(table, surrogate->quantity, index)[SE_LIN_UNFUSED]
                         : 0.0);
}
/* Posterior of model HYP at layout INDEX. RET_VAR may be NULL: the mean alone is cheap. */
void se_hyp_predict(double *ret_mean, double *ret_var, const struct se_surrogate *surrogate,
                    const struct se_hyp *hyp, const struct se_table *table, size_t index);
/* Moments of the mixture; RET_VAR may be NULL. */
void se_surrogate_predict(double *ret_mean, double *ret_var, const struct se_surrogate *surrogate,
                          const struct se_table *table, size_t index);
/* P(f(x_i) <= bound) by the mixture. */
double se_surrogate_below(const struct se_surrogate *surrogate, const struct se_table *table,
                          size_t index, double bound);

/* Condition, until se_surrogate_drop_fantasies(), on a measurement at POINT (of the table, or of a
 * smaller problem) that is its mean. */
void se_surrogate_fantasize(struct se_surrogate *surrogate, const struct se_point *point,
                            double var);
void se_surrogate_drop_fantasies(struct se_surrogate *surrogate);

/* Expectation propagation in GP for the one-sided ones of its n observations OBS: they become
 * pseudo-observations in y and var of GP. Returns the log evidence. MEAN0 (n) is the mean function.
 * Public for its test. */
double se_ep_run(struct se_gp *gp, const struct se_obs *obs, const double *mean0);

#endif
