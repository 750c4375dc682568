/*
 * What an instruction set gives the GEMM driver (gemm.c): a micro-kernel, its packing functions and
 * its register blocking, together, as in BLIS.
 */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "kernels/ops.h"

enum { KN_MAX_MR = 14, KN_MAX_NR = 64, KN_PREFETCH_STEPS = 4 };

/* Cache lines of the next product, which a micro-kernel prefetches into the second-level cache, one
 * every KN_PREFETCH_STEPS steps over k. */
struct kn_prefetch {
    const char *at;
    size_t lines, step; /* step in bytes */
};

/*
 * c (mr, nr) = [c +] sum over l < k of a(i, l) b(l, j); nr is at most the kernel's width.
 * a(i, l) is at byte i rs + l cs of A, so that A may be packed or a matrix of either orientation.
 * Row l of b is at byte l bs, and has at least nr elements.
 */
typedef void kn_ukr(size_t k, const float *a, size_t rs, size_t cs, const float *b, size_t bs,
                    float *c, size_t ldc, size_t nr, bool add, struct kn_prefetch prefetch);

/* Pack a matrix of K slices of WIDTH elements, as fp32, into panels: each holds PANEL elements of
 * every slice, slice after slice; the last panel may have fewer. Element i of slice l comes from
 * l ld + i (rows) or i ld + l (transpose). Nothing is written beyond the last element. */
typedef void kn_pack(float *to, size_t panel, size_t width, const void *from, size_t ld, size_t k);

struct kn_gemm_isa {
    size_t mr, nr;
    kn_ukr *ukr[KN_MAX_MR + 1];      /* by number of rows, 1 .. mr */
    kn_pack *rows[2], *transpose[2]; /* by enum kn_type */
};

#endif
