/*
 * Transfer from earlier campaigns: hints for the coefficients of the prior-mean models.
 *
 * A source is fitted as a campaign of its own, over the layouts that it tried. With U its linear
 * features at its observations, y its observations less the prior and C the covariance of all but
 * the linear part (small deviations, noise, sites of bounds), the likelihood of its coefficients is
 *
 *     log p(y | w_s) = -1/2 w_s^T A w_s + r^T w_s,     A = U^T C^-1 U,  r = U^T C^-1 y
 *
 * They differ from this campaign's: w_s = w + d, d ~ N(0, D), D diagonal (transfer.c). So
 *
 *     precision  A (I + D A)^-1,     information  (I + A D)^-1 r
 *
 * of w, added up over sources. That is the exact regression over all campaigns at once. The sum
 * (L, h) enters the surrogate as independent observations. With W the prior variances of the
 * coefficients and W^1/2 L W^1/2 = Q diag(lambda) Q^T, hint j is
 *
 *     v_j . w = z_j  with variance 1 / lambda_j,
 *     v_j = W^-1/2 q_j,    z_j = q_j^T W^1/2 h / lambda_j
 *
 * Hints with next to no information are left out.
 */
#ifndef SEARCH_TRANSFER_H
#define SEARCH_TRANSFER_H

#include "search/state.h"

/* A Gaussian likelihood of N coefficients, as precision (n x n, column-major) and information. */
struct se_likelihood {
    int n;
    double precision[SE_MAX_LIN * SE_MAX_LIN];
    double information[SE_MAX_LIN];
};

/* The likelihood of the coefficients of SURROGATE's prior-mean model, from its observations. */
void se_likelihood_of(struct se_likelihood *ret, const struct se_surrogate *surrogate);
/* Make it that of coefficients that differ from those by independent N(0, VAR[p]). */
void se_likelihood_widen(struct se_likelihood *likelihood, const double *var);
/* Hints for coefficients with prior variances PRIOR_VAR[p], into RET (SE_MAX_LIN); how many. */
int se_likelihood_hints(struct se_hint *ret, const struct se_likelihood *likelihood,
                        const double *prior_var);

#endif
