/*
 * Vectors of 8 doubles by the compilers' vector extension, and how a pass over them is compiled
 * three times (AVX-512, AVX2, the baseline) and chosen by what the processor has. The passes are
 * always_inline so that each of the three is compiled for its own processor.
 */
#ifndef SEARCH_VEC_H
#define SEARCH_VEC_H

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef double vec __attribute__((vector_size(64)));
typedef int64_t ivec __attribute__((vector_size(64)));
typedef float half_vec __attribute__((vector_size(32)));
enum { LANES = 8 };

#define VEC_INLINE inline __attribute__((always_inline, unused))

#ifdef __x86_64__
#define VEC_AVX2 __attribute__((target("avx2,fma")))
#define VEC_AVX512 __attribute__((target("avx512f,avx2,fma")))
#define VEC_CHOOSE(avx512, avx2, base)                                                             \
    (__builtin_cpu_supports("avx512f")                                                             \
         ? (avx512)                                                                                \
         : (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? (avx2) : (base)))
#else
#define VEC_AVX2
#define VEC_AVX512
#define VEC_CHOOSE(avx512, avx2, base) (base)
#endif

/* N vectors of zeros; free() them. */
static inline vec *vec_alloc(size_t n)
{
    vec *p = aligned_alloc(sizeof(vec), (n + 1) * sizeof(vec));

    assert(p);
    memset((void *)p, 0, (n + 1) * sizeof(vec));
    return p;
}

/* By pointer: the baseline's calling convention knows no such vectors. */
static VEC_INLINE double vec_sum(const vec *v)
{
    const double *x = (const double *)v;

    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* sum_c COLUMN[c] x[c] over N columns, a multiple of 4; by four sums, as one would wait for itself.
 */
static VEC_INLINE void vec_combine(vec *ret, const vec *column, const double *x, int n)
{
    vec a = {0}, b = {0}, c = {0}, d = {0};

    for (int i = 0; i < n; i += 4) {
        a += column[i] * x[i];
        b += column[i + 1] * x[i + 1];
        c += column[i + 2] * x[i + 2];
        d += column[i + 3] * x[i + 3];
    }
    *ret = (a + b) + (c + d);
}

/* 8 floats as doubles. */
static VEC_INLINE void vec_widen(vec *ret, const float *p)
{
    half_vec h;

    memcpy(&h, p, sizeof(h));
    *ret = __builtin_convertvector(h, vec);
}

#endif
