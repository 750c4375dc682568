/*
 * The posterior of one Gaussian process at single layouts, as far as needed.
 *
 *     mean(x) = mean0(x) + k(X, x)^T alpha         var(x) = k(x,x) - sum_j v_j^2,  v = L^-1 k(X, x)
 *
 * Every partial sum of v_j^2 gives the variance given only the first j observations, an upper bound
 * of the variance given all: a variance is worked out only as far as is needed to rule a layout
 * out. sweep.h has the cheaper bounds for all layouts that come before.
 */
#ifndef SEARCH_SCAN_H
#define SEARCH_SCAN_H

#include "search/belief.h"

struct se_scan;

/* Borrows BELIEF, HYP and TABLE, which must not change. It takes up one layout at a time, so it is
 * of one thread. */
struct se_scan *se_scan_new(const struct se_belief *belief, const struct se_hyp *hyp,
                            const struct se_table *table);
/* Another one, for another thread, that shares what SCAN worked out; SCAN must outlive it. */
struct se_scan *se_scan_twin(const struct se_scan *scan);
struct se_scan *se_scan_free(struct se_scan *scan);

/* Take up layout INDEX. */
void se_scan_open(struct se_scan *scan, size_t index);
/* Its variance given the first UPTO observations or a few more; exact when *RET_DONE. */
double se_scan_tighten(bool *ret_done, struct se_scan *scan, int upto);
/* Its exact mean; *RET_VAR is the exact variance. */
double se_scan_mean(double *ret_var, struct se_scan *scan);

#endif
