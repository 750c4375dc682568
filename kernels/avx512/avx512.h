/* The AVX-512 level's parts. */
#ifndef KERNELS_AVX512_AVX512_H
#define KERNELS_AVX512_AVX512_H

#include "kernels/gemm.h"

extern const struct kn_gemm_isa kn_avx512_gemm;

void kn_avx512_fill_rows(struct kn_ops *ops);
void kn_avx512_fill_attn(struct kn_ops *ops);
void kn_avx512_fill_gpt(struct kn_ops *ops);

#endif
