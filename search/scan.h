/*
 * The posterior of one Gaussian process at single layouts, as exactly as needed.
 *
 *     mean(x) = mean0(x) + k(X, x)^T alpha         var(x) = k(x,x) - sum_j v_j^2,  v = L^-1 k(X, x)
 *
 * A partial sum of v_j^2 gives the variance given the first j observations, an upper bound on the
 * variance given all: the sum stops as soon as it rules a layout out. The cheaper bounds of sweep.h
 * come first.
 */
#ifndef SEARCH_SCAN_H
#define SEARCH_SCAN_H

#include "search/surrogate.h"

struct se_scan;

/* Borrows SURROGATE, HYP and TABLE, which must not change. It has one current layout, so only one
 * thread may use it. */
struct se_scan *se_scan_new(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                            const struct se_table *table);
/* A scan for another thread that shares the precomputed tables of SCAN, which must outlive it. */
struct se_scan *se_scan_share(const struct se_scan *scan);
struct se_scan *se_scan_free(struct se_scan *scan);

/* Make INDEX the current layout. */
void se_scan_open(struct se_scan *scan, size_t index);
/* Its variance given the first UPTO observations or a few more; exact when *RET_DONE. */
double se_scan_tighten(bool *ret_done, struct se_scan *scan, int upto);
/* Its exact mean; *RET_VAR is the exact variance. */
double se_scan_mean(double *ret_var, struct se_scan *scan);

#endif
