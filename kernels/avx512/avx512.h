/* Helpers of the AVX-512 files; all static, see ops.h. */
#ifndef KERNELS_AVX512_AVX512_H
#define KERNELS_AVX512_AVX512_H

#include "kernels/ops.h"

#if defined(__AVX512F__)

#include <immintrin.h>

extern const struct kn_gemm_isa kn_avx512_gemm;

/* The first N lanes, N <= 16. */
static inline __mmask16 first(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline __m512 widen(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* 16 elements of either type from element I on. */
static inline __m512 load16(enum kn_type t, const void *p, size_t i)
{
    if (t == KN_F32)
        return _mm512_loadu_ps((const float *)p + i);
    return widen(_mm256_loadu_si256((const void *)((const kn_bf16 *)p + i)));
}

static inline __m512 load16_masked(enum kn_type t, const void *p, size_t i, __mmask16 m)
{
    if (t == KN_F32)
        return _mm512_maskz_loadu_ps(m, (const float *)p + i);
    return widen(_mm256_maskz_loadu_epi16(m, (const kn_bf16 *)p + i));
}

#endif
#endif
