/*
 * The posterior of one Gaussian process at every layout of the table, cheaply: the mean exactly,
 * the variance as an upper bound.
 *
 *     mean(x)  = mean0(x) + sum_p u_p W_p + sum_d M_d[x_d] + sum_i alpha_i a_2^2 prod_d m_d(x_d,
 * x_id) var(x) <= k(x,x) - k(x,x_j)^2 / (k(x_j,x_j) + var_j)          for any one observation j
 *
 * W and M are sums over the observations made once; the product part shares its leading factors
 * between successive rows of the table. The bound is the variance given observation j alone, and
 * conditioning on more never adds variance; j is the one whose product part is largest. About 20 ns
 * a layout for 200 observations with AVX-512.
 */
#ifndef SEARCH_SCAN_H
#define SEARCH_SCAN_H

#include "search/belief.h"

/* MEAN and VAR_BOUND have t->n entries. */
void se_scan(const struct se_belief *b, const struct se_hyp *h, const struct se_table *t,
             float *mean, float *var_bound);

#endif
