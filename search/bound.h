/*
 * Upper bounds on the throughput part of the score, for very many layouts.
 *
 *     log sum_h w_h EI_h - log cost,      EI_h = sigma_h (phi(z) + z Phi(z)),  z = d / sigma_h
 *
 * (acquire.h), without a call into libm for each layout. With Birnbaum's (1942) lower bound on
 * the tail of the normal distribution, Phi(-t) >= 2 phi(t) / (t + sqrt(t^2 + 4)), and t = |z|,
 *
 *     EI_h <= max(d, 0) + sigma_h phi(t) 4 sigma_h^2 / (sqrt(d^2 + 4 sigma_h^2) + |d|)^2
 *
 * which is at most 11 % too large. Logarithms, exponentials and roots are vectorized series,
 * rounded so that the bound holds.
 */
#ifndef SEARCH_BOUND_H
#define SEARCH_BOUND_H

#include "search/acquire.h"

/* Bounds RET (count) for the layouts ROW (count) whose means and variances under hypothesis H are
 * MEAN[h] and VAR[h] (count), themselves exact or upper bounds. */
void se_score_bounds(float *ret, const struct se_acquire *acquire, const uint32_t *row,
                     size_t count, float *const mean[SE_MAX_HYPS], float *const var[SE_MAX_HYPS]);

#endif
