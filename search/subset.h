/*
 * The few observations that reduce the variance of the other layouts most.
 *
 * The variance given some of the observations is an upper bound on the variance given all of them:
 *
 *     var(x | all) <= k(x,x) - k_S(x)^T C_SS^-1 k_S(x) = k(x,x) - sum_j v_j^2,   v = L_SS^-1 k_S(x)
 *
 * for any subset S. S is grown greedily: the next member is the observation j that reduces the sum
 * of variances at a sample of layouts most,
 *
 *     gain_j = sum_x cov(x, x_j | S)^2 / (var(x_j | S) + var_j)
 *
 * (active learning of Cohn 1996, for a Gaussian process Seo et al. 2000), after which covariances
 * with the rest are conditioned on it as in a pivoted Cholesky factor.
 */
#ifndef SEARCH_SUBSET_H
#define SEARCH_SUBSET_H

#include "search/table.h"

struct se_gp;

enum { SE_MAX_SUBSET = 64 };

struct se_subset {
    int n;                     /* members: the number asked for, or all that reduce the variance */
    int member[SE_MAX_SUBSET]; /* which observations */
    double inverse[SE_MAX_SUBSET][SE_MAX_SUBSET]; /* L_SS^-1 by row; zero beyond N */
};

/* Choose at most MEMBERS for the COUNT layouts ROW of TABLE (NULL: its first COUNT), from an even
 * sample of them. */
void se_subset_choose(struct se_subset *ret, int members, const struct se_gp *gp,
                      const struct se_table *table, enum se_quantity quantity, const uint32_t *row,
                      size_t count);

#endif
