/* The AVX-512 level of the table. */
#include "kernels/avx512/avx512.h"

void kn_ops_avx512(struct kn_ops *ops)
{
#if defined(__AVX512F__)
    ops->gemm_isa = &kn_avx512_gemm;
    kn_avx512_fill_rows(ops);
    kn_avx512_fill_attn(ops);
    kn_avx512_fill_gpt(ops);
#else
    (void)ops;
#endif
}
