/*
 * The posterior of one Gaussian process at very many layouts of the table.
 *
 *     mean(x) = mean0(x) + sum_p u_p W_p + sum_d M_d[x_d]
 *               + sum_i alpha_i a_2^2 prod_d m_d(x_d, x_id)
 *     var(x) <= k(x,x) - |L_SS^-1 k_S(x)|^2        for a few observations S (subset.h)
 *
 * W and M are sums over the observations made once. The product part is contracted in two steps:
 * rows of the table come in groups that agree in the leading keys (tp, pp, micro_batch ...), and
 * observations fall into few classes that agree in the trailing ones (flags mostly):
 *
 *     sum_i alpha_i prod_d m_d = sum_c [ prod_{d trailing} m_d(x_d, c_d) ] S_c,
 *     S_c = sum_{i in class c} alpha_i prod_{d leading} m_d(x_d, x_id)       once for each group
 *
 * so that a layout costs a few operations for each class, not for each observation. The split into
 * leading and trailing keys is the one with the least work. Covariances with S are likewise updated
 * from the first key that differs from the previous row.
 */
#ifndef SEARCH_SWEEP_H
#define SEARCH_SWEEP_H

#include "search/surrogate.h"

struct se_sweep;

/* The usual MEMBERS below: the fastest. */
enum { SE_USUAL_MEMBERS = 16 };

/* A sweep over the COUNT layouts ROW (ascending; NULL: the first COUNT of the table) whose bounds
 * rest on MEMBERS observations, a multiple of 8 up to SE_MAX_SUBSET. Borrows SURROGATE, HYP, TABLE
 * and ROW, which must not change. */
struct se_sweep *se_sweep_new(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                              const struct se_table *table, const uint32_t *row, size_t count,
                              int members);
struct se_sweep *se_sweep_free(struct se_sweep *sweep);
AUTO_DEFINE(se_sweep)

/* For each layout the mean, rounded towards the better (throughput up, memory down), unless
 * RET_MEAN is NULL, and an upper bound on the variance. Runs on several threads; the results do not
 * depend on their number. */
void se_sweep_run(float *ret_mean, float *ret_var_bound, const struct se_sweep *sweep);

#endif
