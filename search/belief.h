/*
 * What is believed of one quantity (log throughput, or log memory over capacity) after some
 * observations.
 *
 * Two hypotheses are kept side by side and weighed by their evidence:
 *     trusting   f = prior + c + b (prior - centre) + sum theta_c share_c + g     small deviations
 *     doubting   f = level + c + b (prior - centre) + g                           large ones
 * where the doubting b has mean 0: trust in the prior is inferred, down to none, and a prior that
 * ranks layouts the wrong way round is found out and then used. (Without a prior, and for memory, b
 * is 0.) Within each, hyper-parameters are maximum a
 * posteriori. Of memory the trusting one is there twice, since whether a stack keeps attention's T
 * x T matrices is a matter of yes or no: as planned, and with what they would add in its mean.
 *
 * Hints of other campaigns (transfer.h) speak of the coefficients c, b and theta alone. They are
 * believed by a hypothesis of their own, the trusting one once more; where they mislead, its weight
 * goes.
 *
 * An observation is exact (with its own variance), or one-sided: the value lies below or above a
 * bound (a trial that was stopped early; one that fitted, or did not, without a memory figure).
 * One-sided ones enter by expectation propagation (Rasmussen and Williams 2006, section 3.6): each
 * becomes a Gaussian pseudo-observation, after which a hypothesis is a plain se_gp.
 *
 * Invariant between calls: every gp matches the observations (se_belief_update was called after the
 * last add).
 */
#ifndef SEARCH_BELIEF_H
#define SEARCH_BELIEF_H

#include "search/table.h"

/* Places of hypotheses: without a prior the doubting one is the only one, and first. */
enum { SE_TRUSTING, SE_DOUBTING, SE_MAX_HYPS = 4 };

enum se_seen { SE_EXACT, SE_BELOW, SE_ABOVE };

struct se_obs {
    enum se_seen seen;
    double value;
    double var;   /* its own error; of a one-sided one, how sharp the bound is */
    double prior; /* at this layout */
    bool foreign; /* a hint: of the linear part alone, and of the informed hypothesis */
    uint8_t level[SE_MAX_DIMS];
    double u[SE_MAX_LIN];
    /* Pseudo-observations of a one-sided one when last worked out, to start from; variance 0: none
     * yet. */
    double site_y[SE_MAX_HYPS], site_var[SE_MAX_HYPS];
};

struct se_hyper { /* log-normal hyper-prior: log theta ~ N(mean, sd^2) */
    double mean, sd;
};

struct se_hyp {
    bool trusting;
    bool informed; /* by hints */
    bool unfused;  /* trusting, of a stack that keeps attention's matrices */
    double prior_weight;
    double level; /* mean of the doubting hypothesis */
    struct se_hyper hyper[SE_MAX_THETA];
    struct se_gp gp;
    double evidence; /* log p(observations, theta) */
    double weight;   /* of the two, adds up to 1 */
};

struct se_belief {
    enum se_quantity quantity;
    int nhyps;
    int unfused, informed; /* places of these hypotheses; 0: none */
    struct se_hyp hyp[SE_MAX_HYPS];
    struct se_obs *obs;
    int nobs, cap;
    int fitted; /* observations at the last fit */
    int nhints; /* the first so many observations are foreign */
};

void se_belief_init(struct se_belief *belief, const struct se_table *table,
                    enum se_quantity quantity, bool use_prior);
void se_belief_done(struct se_belief *belief);
void se_belief_copy(struct se_belief *to, const struct se_belief *from);

/* An observation of V.w with variance VAR, w being the coefficients of the linear features. */
struct se_hint {
    double v[SE_MAX_LIN];
    double value, var;
};
/* The likelier of trusting as planned and of trusting with kept matrices. */
const struct se_hyp *se_belief_stack(const struct se_belief *belief);
/* Take over the COUNT hints, before anything was observed; TRUST is what the prior is believed
 * beforehand, UNFUSED says that the hints hold for stacks that keep attention's matrices. Without a
 * trusting hypothesis: nothing. */
void se_belief_inform(struct se_belief *belief, const struct se_table *table,
                      const struct se_hint *hint, int count, double trust, bool unfused);
double se_belief_trust(const struct se_belief *belief); /* weight of all that trust the prior */

/* Hold one more observation; se_belief_update() must follow. */
void se_belief_add(struct se_belief *belief, const struct se_obs *obs);
/* Fill the place (level, u, prior) of an observation of layout INDEX of the table. */
void se_belief_place(struct se_obs *ret, const struct se_belief *belief,
                     const struct se_table *table, size_t index);

/* Match the factors, pseudo-observations and weights to the observations at the present
 * hyper-parameters. */
void se_belief_update(struct se_belief *belief);
/* Find the hyper-parameters again, then update. */
void se_belief_fit(struct se_belief *belief);
/* Take over the hyper-parameters of another belief of the same kind, then update. */
void se_belief_adopt(struct se_belief *belief, const struct se_belief *from);

/* What the unfused hypothesis adds to the mean of memory; in no kernel. */
enum { SE_LIN_UNFUSED = SE_LIN_SHARE + SE_MEMORY_UNFUSED };

/* Mean function of hypothesis HYP at layout INDEX. */
static inline double se_hyp_mean(const struct se_belief *belief, const struct se_hyp *hyp,
                                 const struct se_table *table, size_t index)
{
    if (!hyp->trusting)
        return hyp->level;
    return table->prior[belief->quantity][index] +
           (hyp->unfused ? (double)se_table_lin(table, belief->quantity, index)[SE_LIN_UNFUSED]
                         : 0.0);
}
/* Belief of hypothesis HYP about layout INDEX. RET_VAR may be NULL: the mean alone is cheap. */
void se_hyp_predict(double *ret_mean, double *ret_var, const struct se_belief *belief,
                    const struct se_hyp *hyp, const struct se_table *table, size_t index);
/* Moments of the mixture; RET_VAR may be NULL. */
void se_belief_predict(double *ret_mean, double *ret_var, const struct se_belief *belief,
                       const struct se_table *table, size_t index);
/* P(f(x_i) <= bound) by the mixture. */
double se_belief_below(const struct se_belief *belief, const struct se_table *table, size_t index,
                       double bound);

/* Believe, until se_belief_forget(), that layout INDEX was measured at its mean (a fantasy). */
void se_belief_imagine(struct se_belief *belief, const struct se_table *table, size_t index,
                       double var);
void se_belief_forget(struct se_belief *belief);

/* Expectation propagation in GP for the one-sided ones of OBS (gp->n of them; y and var of gp
 * become the pseudo-observations); returns the log evidence. MEAN0 (n) is the mean function. Public
 * for its test. */
double se_ep_run(struct se_gp *gp, const struct se_obs *obs, const double *mean0);

#endif
