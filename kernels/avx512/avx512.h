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

/*
 * 2^x with a relative error of 2^-23: x = n + r with |r| <= 1/2, polynomial of degree 6 through the Chebyshev
 * nodes (2.5e-9), scaled by 2^n, which also does overflow and underflow. x = -inf gives 0.
 */
static inline __m512 exp2_512(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(_mm512_max_ps(_mm512_set1_ps(-1e4f), x), 0);
    __m512 r = _mm512_sub_ps(_mm512_max_ps(_mm512_set1_ps(-1e4f), x), n);
    __m512 p = _mm512_set1_ps(0.000154614447f);

    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00134004282f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00961805668f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0555032723f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240226509f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693147207f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

void kn_avx512_attn_softmax(float *s, size_t keys, size_t queries, ptrdiff_t diag, float scale, float *max,
                            float *sum, float *ot, size_t d);
void kn_avx512_attn_dscore(float *s, float *ds, size_t keys, size_t queries, ptrdiff_t diag, float scale,
                           const float *lse, const float *delta);

#endif
#endif
