/* A vector of 8 floats, which the sources in simd/ are written over. All static, see ops.h. */
#ifndef KERNELS_AVX2_VEC_H
#define KERNELS_AVX2_VEC_H

#if defined(__AVX2__)

#include <immintrin.h>

#include "kernels/ops.h"

#define KN_SIMD(name) kn_avx2_##name

typedef __m256 vf;
typedef __m256i vm;
enum { VL = 8 };

/* The first COUNT lanes, and the lanes from COUNT on; COUNT <= 8. */
static inline vm v_first(size_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vm v_from(size_t count)
{
    return _mm256_cmpgt_epi32(_mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8),
                              _mm256_set1_epi32((int)count));
}

static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline vf v_loadm(const float *p, vm m)
{
    return _mm256_maskload_ps(p, m);
}

static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

/* Zen writes by a mask in 42 steps, also where the mask is full, as it is in all loops but for
 * their tails. */
static inline void v_storem(float *p, vm m, vf x)
{
    if (_mm256_movemask_ps(_mm256_castsi256_ps(m)) == 0xff)
        v_store(p, x);
    else
        _mm256_maskstore_ps(p, m, x);
}

static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf v_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}

/* The second operand where one is NaN. */
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

/* a b + c, a b - c, c - a b */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf v_fms(vf a, vf b, vf c)
{
    return _mm256_fmsub_ps(a, b, c);
}

static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* x in the lanes of M, else Y. */
static inline vf v_blend(vm m, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(m));
}

static inline vm v_less(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline bool v_equal(vf a, vf b)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NEQ_UQ)) == 0;
}

static inline float v_sum(vf x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float v_hmax(vf x)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf v_power2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* p 2^n for whole n, with overflow to infinity and gradual underflow: in two steps, each in range.
 */
static inline vf v_scale2(vf p, vf n)
{
    __m256 bounded = _mm256_min_ps(_mm256_max_ps(n, v_set(-252)), v_set(254));
    __m256i whole = _mm256_cvtps_epi32(bounded), half = _mm256_srai_epi32(whole, 1);

    return v_mul(v_mul(p, v_power2(half)), v_power2(_mm256_sub_epi32(whole, half)));
}

static inline vf v_widen(const kn_bf16 *p)
{
    __m128i x = _mm_loadu_si128((const void *)p);

    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Round to nearest even; NaN keeps its upper half with the quiet bit. */
static inline void v_narrow(kn_bf16 *p, vf x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));

    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    r = _mm256_srli_epi32(r, 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(r));
}

/* The first COUNT elements of P, widened; the others are 0. */
static inline vf v_widen_some(const kn_bf16 *p, size_t count)
{
    kn_bf16 some[8] = {0};

    memcpy(some, p, count * sizeof(*p));
    return v_widen(some);
}

/* Transpose 8 x 8 in registers. */
static inline __attribute__((always_inline)) void v_transpose(vf r[8])
{
    vf t[8];

    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i += 2)
    {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i += 4)
    {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    /* r[i + c] now holds, in its two halves, columns c and c + 4 of rows i .. i + 3. */
    _Pragma("GCC unroll 8") for (int i = 0; i < 4; i++)
    {
        t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) r[i] = t[i];
}

/*
 * The same from memory, rows LD apart. Halves of rows are loaded to where they belong, which leaves
 * only the 4 x 4 transposes inside a half to the shuffle unit.
 */
static inline __attribute__((always_inline)) void v_load_transpose(vf r[8], const float *p,
                                                                   size_t ld)
{
    _Pragma("GCC unroll 2") for (int j = 0; j < 2; j++)
    {
        __m256 q[4], t[4];

        _Pragma("GCC unroll 4") for (size_t i = 0; i < 4; i++)
        {
            const float *at = p + i * ld + 4 * j;

            q[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)),
                                        _mm_loadu_ps(at + 4 * ld), 1);
        }
        t[0] = _mm256_unpacklo_ps(q[0], q[1]);
        t[1] = _mm256_unpackhi_ps(q[0], q[1]);
        t[2] = _mm256_unpacklo_ps(q[2], q[3]);
        t[3] = _mm256_unpackhi_ps(q[2], q[3]);
        _Pragma("GCC unroll 2") for (int c = 0; c < 2; c++)
        {
            r[4 * j + 2 * c] = _mm256_shuffle_ps(t[c], t[c + 2], 0x44);
            r[4 * j + 2 * c + 1] = _mm256_shuffle_ps(t[c], t[c + 2], 0xee);
        }
    }
}

/* Sum of x^2 in double, in four lanes. */
typedef __m256d vd;

static inline vd v_zero_d(void)
{
    return _mm256_setzero_pd();
}

static inline vd v_add_squares(vd acc, vf x)
{
    __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));

    return _mm256_fmadd_pd(hi, hi, _mm256_fmadd_pd(lo, lo, acc));
}

static inline double v_sum_d(vd x)
{
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));

    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

#endif
#endif
