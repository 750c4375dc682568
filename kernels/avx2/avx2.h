/* The AVX2 level's parts. */
#ifndef KERNELS_AVX2_AVX2_H
#define KERNELS_AVX2_AVX2_H

#include "kernels/gemm.h"

extern const struct kn_gemm_isa kn_avx2_gemm;

void kn_avx2_fill_rows(struct kn_ops *ops);
void kn_avx2_fill_attn(struct kn_ops *ops);
void kn_avx2_fill_gpt(struct kn_ops *ops);

#endif
