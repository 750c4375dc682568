/* The AVX2 level of the table. */
#include "kernels/avx2/avx2.h"

void kn_ops_avx2(struct kn_ops *o)
{
#if defined(__AVX2__)
    o->gemm_isa = &kn_avx2_gemm;
    kn_avx2_fill_rows(o);
    kn_avx2_fill_attn(o);
#else
    (void)o;
#endif
}
