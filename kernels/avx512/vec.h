/* A vector of 16 floats, which the sources in simd/ are written over. All static, see ops.h. */
#ifndef KERNELS_AVX512_VEC_H
#define KERNELS_AVX512_VEC_H

#if defined(__AVX512F__)

#include <immintrin.h>

#include "kernels/ops.h"

#define KN_SIMD(name) kn_avx512_##name

typedef __m512 vf;
typedef __mmask16 vm;
enum { VL = 16 };

/* The first COUNT lanes, and the lanes from COUNT on; COUNT <= 16. */
static inline vm v_first(size_t count)
{
    return (vm)((1u << count) - 1);
}

static inline vm v_from(size_t count)
{
    return (vm)(0xffffu << count);
}

static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf v_loadm(const float *p, vm m)
{
    return _mm512_maskz_loadu_ps(m, p);
}

static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

static inline void v_storem(float *p, vm m, vf x)
{
    _mm512_mask_storeu_ps(p, m, x);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}

/* The second operand where one is NaN. */
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

/* a b + c, a b - c, c - a b */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf v_fms(vf a, vf b, vf c)
{
    return _mm512_fmsub_ps(a, b, c);
}

static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* x in the lanes of M, else Y. */
static inline vf v_blend(vm m, vf x, vf y)
{
    return _mm512_mask_mov_ps(y, m, x);
}

static inline vm v_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

static inline bool v_equal(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) == 0;
}

static inline float v_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}

static inline float v_hmax(vf x)
{
    return _mm512_reduce_max_ps(x);
}

static inline vf v_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* p 2^n for whole n, with overflow to infinity and gradual underflow. */
static inline vf v_scale2(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}

static inline vf v_widen(const kn_bf16 *p)
{
    __m256i x = _mm256_loadu_si256((const void *)p);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Round to nearest even; NaN keeps its upper half with the quiet bit. */
static inline void v_narrow(kn_bf16 *p, vf x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

/* The first COUNT elements of P, widened; the others are 0. */
static inline vf v_widen_some(const kn_bf16 *p, size_t count)
{
    __m256i x = _mm256_maskz_loadu_epi16(v_first(count), p);

    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Transpose 16 x 16 in registers. */
static inline __attribute__((always_inline)) void v_transpose(__m512 r[16])
{
    __m512 t[16];

    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i += 4)
    {
        _Pragma("GCC unroll 16") for (int j = 0; j < 2; j++)
        {
            __m512d x = _mm512_castps_pd(t[i + j]), y = _mm512_castps_pd(t[i + j + 2]);

            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    /* r[i + c] now holds, in its four lanes, columns c, c + 4, c + 8, c + 12 of rows i .. i + 3. */
    _Pragma("GCC unroll 16") for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 4; i++)
    {
        r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/*
 * The same from memory, rows LD apart. Quarters of rows are loaded to where they belong, which
 * leaves only the 4 x 4 transposes inside a quarter to the shuffle units.
 */
static inline __attribute__((always_inline)) void v_load_transpose(__m512 r[16], const float *p,
                                                                   size_t ld)
{
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++)
    {
        __m512 q[4], t[4];

        _Pragma("GCC unroll 4") for (size_t i = 0; i < 4; i++)
        {
            const float *at = p + i * ld + 4 * j;

            q[i] = _mm512_castps128_ps512(_mm_loadu_ps(at));
            q[i] = _mm512_insertf32x4(q[i], _mm_loadu_ps(at + 4 * ld), 1);
            q[i] = _mm512_insertf32x4(q[i], _mm_loadu_ps(at + 8 * ld), 2);
            q[i] = _mm512_insertf32x4(q[i], _mm_loadu_ps(at + 12 * ld), 3);
        }
        t[0] = _mm512_unpacklo_ps(q[0], q[1]);
        t[1] = _mm512_unpackhi_ps(q[0], q[1]);
        t[2] = _mm512_unpacklo_ps(q[2], q[3]);
        t[3] = _mm512_unpackhi_ps(q[2], q[3]);
        _Pragma("GCC unroll 2") for (int c = 0; c < 2; c++)
        {
            __m512d x = _mm512_castps_pd(t[c]), y = _mm512_castps_pd(t[c + 2]);

            r[4 * j + 2 * c] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            r[4 * j + 2 * c + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
}

/* Sum of x^2 in double, in eight lanes. */
typedef __m512d vd;

static inline vd v_zero_d(void)
{
    return _mm512_setzero_pd();
}

static inline vd v_add_squares(vd acc, vf x)
{
    __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));

    return _mm512_fmadd_pd(hi, hi, _mm512_fmadd_pd(lo, lo, acc));
}

static inline double v_sum_d(vd x)
{
    return _mm512_reduce_add_pd(x);
}

#endif
#endif
