/*
 * The passes over very many layouts (sweep.h, scan.h, bound.h), compiled from simd/ once for each
 * instruction set.
 */
#ifndef SEARCH_PASSES_H
#define SEARCH_PASSES_H

#include "search/bound.h"
#include "search/scan.h"
#include "search/sweep.h"

struct se_passes {
    struct se_sweep *(*sweep_new)(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                                  const struct se_table *table, const uint32_t *row, size_t count,
                                  int members);
    struct se_sweep *(*sweep_free)(struct se_sweep *sweep);
    void (*sweep_run)(float *ret_mean, float *ret_var_bound, const struct se_sweep *sweep);
    struct se_scan *(*scan_new)(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                                const struct se_table *table);
    struct se_scan *(*scan_share)(const struct se_scan *scan);
    struct se_scan *(*scan_free)(struct se_scan *scan);
    void (*scan_open)(struct se_scan *scan, size_t index);
    double (*scan_tighten)(bool *ret_done, struct se_scan *scan, int upto);
    double (*scan_mean)(double *ret_var, struct se_scan *scan);
    void (*score_bounds)(float *ret, const struct se_acquire *acquire, const uint32_t *row,
                         size_t count, float *const mean[], float *const var[]);
};

extern const struct se_passes se_passes_base, se_passes_avx2, se_passes_avx512;

enum { SE_ISA_COUNT = 3 };

/* The I-th version, the widest vectors first, or NULL if this processor lacks it. */
const struct se_passes *se_passes_of(int index);

/* Use version P for sweep.h, scan.h and bound.h from now on; the default is the widest. For tests:
 * versions cannot use each other's objects, and no other thread may be in a search. */
void se_passes_use(const struct se_passes *p);

#endif
