/* The AVX-512 level of the table. */
#include "kernels/avx512/avx512.h"

void kn_ops_avx512(struct kn_ops *o)
{
#if defined(__AVX512F__)
    o->gemm_isa = &kn_avx512_gemm;
    kn_avx512_fill_rows(o);
    kn_avx512_fill_attn(o);
#else
    (void)o;
#endif
}
