/* The GEMM of AVX2: 6 x 16 of C in 12 registers. */
#if defined(__AVX2__)

#include "kernels/avx2/vec.h"

enum { MR = 6 };

#include "kernels/simd/gemm.inc"

KERNEL(1)
KERNEL(2)
KERNEL(3)
KERNEL(4)
KERNEL(5)
KERNEL(6)

const struct kn_gemm_isa kn_avx2_gemm = {
    .mr = MR,
    .nr = NR,
    .ukr = {NULL, ukr_1, ukr_2, ukr_3, ukr_4, ukr_5, ukr_6},
    .rows = {pack_rows_f32, pack_rows_bf16},
    .transpose = {pack_transpose_f32, pack_transpose_bf16},
};

#endif
