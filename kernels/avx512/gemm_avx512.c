/* The GEMM of AVX-512: 14 x 32 of C in 28 registers. */
#if defined(__AVX512F__)

#include "kernels/avx512/vec.h"

enum { MR = 14 };

#include "kernels/simd/gemm.inc"

KERNEL(1)
KERNEL(2)
KERNEL(3)
KERNEL(4)
KERNEL(5)
KERNEL(6)
KERNEL(7)
KERNEL(8)
KERNEL(9)
KERNEL(10)
KERNEL(11)
KERNEL(12)
KERNEL(13)
KERNEL(14)

const struct kn_gemm_isa kn_avx512_gemm = {
    .mr = MR,
    .nr = NR,
    .ukr = {NULL, ukr_1, ukr_2, ukr_3, ukr_4, ukr_5, ukr_6, ukr_7, ukr_8, ukr_9, ukr_10, ukr_11,
            ukr_12, ukr_13, ukr_14},
    .rows = {pack_rows_f32, pack_rows_bf16},
    .transpose = {pack_transpose_f32, pack_transpose_bf16},
};

#endif
