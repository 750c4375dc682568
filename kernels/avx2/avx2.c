/* The AVX2 level of the table. */
#include "kernels/avx2/avx2.h"

void kn_ops_avx2(struct kn_ops *ops)
{
#if defined(__AVX2__)
    ops->gemm_isa = &kn_avx2_gemm;
    kn_avx2_fill_rows(ops);
    kn_avx2_fill_attn(ops);
    kn_avx2_fill_gpt(ops);
#else
    (void)ops;
#endif
}
