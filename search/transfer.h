/*
 * What earlier campaigns say about this one: hints of the coefficients of its trusting hypotheses.
 *
 * A source is fitted as a campaign of its own, over the layouts that it tried. With U its linear
 * features at its observations, y what its prior left and C the covariance of all but the linear
 * part (small deviations, noise, sites of bounds), its observations say of its coefficients w_s
 *
 *     log p(y | w_s) = -1/2 w_s^T A w_s + r^T w_s,     A = U^T C^-1 U,  r = U^T C^-1 y
 *
 * They differ from this campaign's: w_s = w + d, d ~ N(0, D), D diagonal (transfer.c). So
 *
 *     precision  A (I + D A)^-1,     information  (I + A D)^-1 r
 *
 * of w, added up over sources. That is the exact regression over all campaigns at once. The sum
 * (L, h) goes to the surrogate as independent observations. With W the coefficients' variances
 * beforehand and W^1/2 L W^1/2 = Q diag(lambda) Q^T, hint j is
 *
 *     v_j . w = z_j  with variance 1 / lambda_j,
 *     v_j = W^-1/2 q_j,    z_j = q_j^T W^1/2 h / lambda_j
 *
 * Hints that carry next to no information are left out.
 */
#ifndef SEARCH_TRANSFER_H
#define SEARCH_TRANSFER_H

#include "search/state.h"

/* Precision (n x n, column-major) and information of N coefficients. */
struct se_told {
    int n;
    double precision[SE_MAX_LIN * SE_MAX_LIN];
    double information[SE_MAX_LIN];
};

/* What the observations of BELIEF say of the coefficients of its trusting hypothesis. */
void se_told_of(struct se_told *ret, const struct se_belief *belief);
/* The same of coefficients that differ from those by independent N(0, VAR[p]). */
void se_told_blur(struct se_told *told, const double *var);
/* Hints for coefficients of variances PRIOR_VAR[p] beforehand, into RET (SE_MAX_LIN); how many. */
int se_told_hints(struct se_hint *ret, const struct se_told *told, const double *prior_var);

/* Read LIST, a campaign's "search.warm_start", into SPEC; pointers of refusals are under it. After
 * a refusal, too, se_sources_done() frees what was read. */
int se_sources_parse(struct se_spec *spec, const json_t *list, const struct pl_cluster *local,
                     struct err *error);
void se_sources_done(struct se_spec *spec);

/* Inform the beliefs of SEARCH, which was told nothing yet, by the sources of SPEC. */
int se_transfer(struct se_search *search, const struct se_spec *spec, struct err *error);

#endif
