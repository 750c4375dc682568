/*
 * Vectors of doubles by the compilers' vector extension, as wide as those of the processor that the
 * including file is compiled for: it defines LANES (doubles in a vector) and PASS(name), the name
 * of a function in its version; those below are for every processor. A wider vector than the
 * processor's would be correct and several times slower, as compilers keep such ones in memory.
 */
#ifndef SEARCH_SIMD_VEC_H
#define SEARCH_SIMD_VEC_H

#ifndef LANES
#define LANES 2
#define PASS(name) name##_base
#endif

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef double vec __attribute__((vector_size(LANES * sizeof(double))));
typedef uint64_t uvec __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t mask_vec __attribute__((vector_size(LANES * sizeof(double))));
typedef float half_vec __attribute__((vector_size(LANES * sizeof(float))));

#define VEC_INLINE inline __attribute__((always_inline, unused))

/* COUNT vectors of zeros; free() them. */
static inline vec *vec_alloc(size_t count)
{
    size_t bytes = ((count + 1) * sizeof(vec) + 63) / 64 * 64;
    vec *p = aligned_alloc(64, bytes);

    assert(p);
    memset((void *)p, 0, bytes);
    return p;
}

static VEC_INLINE double vec_sum(vec v)
{
#if LANES == 8
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
#elif LANES == 4
    return (v[0] + v[1]) + (v[2] + v[3]);
#else
    return v[0] + v[1];
#endif
}

/* sum_c COLUMN[c] weight[c] over COLUMNS columns, by four sums, as one would wait for itself. */
static VEC_INLINE vec vec_combine(const vec *column, const double *weight, int columns)
{
    vec a = {0}, b = {0}, c = {0}, d = {0};
    int i = 0;

#pragma GCC unroll 16
    for (; i + 4 <= columns; i += 4) {
        a += column[i] * weight[i];
        b += column[i + 1] * weight[i + 1];
        c += column[i + 2] * weight[i + 2];
        d += column[i + 3] * weight[i + 3];
    }
    for (; i < columns; i++)
        a += column[i] * weight[i];
    return (a + b) + (c + d);
}

/* sum_j x[j] y[j] over COUNT vectors. */
static VEC_INLINE double vec_dot(const vec *x, const vec *y, int count)
{
    vec a = {0}, b = {0}, c = {0}, d = {0};
    int j = 0;

    for (; j + 4 <= count; j += 4) {
        a += x[j] * y[j];
        b += x[j + 1] * y[j + 1];
        c += x[j + 2] * y[j + 2];
        d += x[j + 3] * y[j + 3];
    }
    for (; j < count; j++)
        a += x[j] * y[j];
    return vec_sum((a + b) + (c + d));
}

/* LANES floats as doubles. */
static VEC_INLINE vec vec_widen(const float *from)
{
    half_vec h;

    memcpy(&h, from, sizeof(h));
    return __builtin_convertvector(h, vec);
}

#endif
