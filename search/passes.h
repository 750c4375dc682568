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
    struct se_sweep *(*sweep_new)(const struct se_belief *b, const struct se_hyp *h,
                                  const struct se_table *t, const uint32_t *row, size_t n,
                                  int members);
    struct se_sweep *(*sweep_free)(struct se_sweep *s);
    void (*sweep_run)(const struct se_sweep *s, float *mean, float *var_bound);
    struct se_scan *(*scan_new)(const struct se_belief *b, const struct se_hyp *h,
                                const struct se_table *t);
    struct se_scan *(*scan_twin)(const struct se_scan *s);
    struct se_scan *(*scan_free)(struct se_scan *s);
    void (*scan_open)(struct se_scan *s, size_t i);
    double (*scan_tighten)(struct se_scan *s, int upto, bool *ret_done);
    double (*scan_mean)(struct se_scan *s, double *ret_var);
    void (*score_bounds)(const struct se_acquire *a, const uint32_t *row, size_t n,
                         float *const mean[], float *const var[], float *ret);
};

extern const struct se_passes se_passes_base, se_passes_avx2, se_passes_avx512;

enum { SE_ISA_COUNT = 3 };

/* The I-th set, the widest first, or NULL if this processor lacks it. */
const struct se_passes *se_passes_of(int i);

/* From now on set P serves sweep.h, scan.h and bound.h; at first it is the widest. For tests: what
 * one set made, no other can use, and other threads must be quiet. */
void se_passes_use(const struct se_passes *p);

#endif
