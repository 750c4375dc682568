/* Softmax of transposed score tiles, (keys, queries): 16 queries in a register, keys one after the other. */
#include "kernels/attn.h"
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

enum { LD = KN_ATTN_TILE };

/* Of the keys, those that all lanes of queries q .. q + 15 may see, and those that at least one may. */
struct span {
    size_t all, some;
};

static size_t clamp(ptrdiff_t x, size_t max)
{
    return x < 0 ? 0 : kn_min((size_t)x, max);
}

static struct span visible(size_t keys, size_t q, ptrdiff_t diag)
{
    ptrdiff_t n = (ptrdiff_t)q - diag + 1;

    return (struct span){ clamp(n, keys), clamp(n + 15, keys) };
}

/* Lanes whose query may see key K: lane >= k + diag - q, which is between 1 and 15 here. */
static __mmask16 lanes(size_t k, size_t q, ptrdiff_t diag)
{
    return (__mmask16)(0xffffu << ((ptrdiff_t)k + diag - (ptrdiff_t)q));
}

static __m512 max_of(const float *s, struct span n, size_t q, ptrdiff_t diag)
{
    __m512 a = _mm512_set1_ps(-INFINITY), b = a, c = a, d = a;
    size_t k = 0;

    for (; k + 4 <= n.all; k += 4) {
        a = _mm512_max_ps(a, _mm512_loadu_ps(s + k * LD));
        b = _mm512_max_ps(b, _mm512_loadu_ps(s + (k + 1) * LD));
        c = _mm512_max_ps(c, _mm512_loadu_ps(s + (k + 2) * LD));
        d = _mm512_max_ps(d, _mm512_loadu_ps(s + (k + 3) * LD));
    }
    for (; k < n.all; k++)
        a = _mm512_max_ps(a, _mm512_loadu_ps(s + k * LD));
    for (; k < n.some; k++)
        a = _mm512_mask_max_ps(a, lanes(k, q, diag), a, _mm512_loadu_ps(s + k * LD));
    return _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
}

/* s = 2^(s c - max), 0 where masked; returns the sums. */
static __m512 exp_of(float *s, size_t keys, struct span n, size_t q, ptrdiff_t diag, __m512 c, __m512 max)
{
    __m512 a = _mm512_setzero_ps(), b = a;
    size_t k = 0;

    for (; k + 2 <= n.all; k += 2) {
        __m512 x = exp2_512(_mm512_fmsub_ps(_mm512_loadu_ps(s + k * LD), c, max));
        __m512 y = exp2_512(_mm512_fmsub_ps(_mm512_loadu_ps(s + (k + 1) * LD), c, max));

        _mm512_storeu_ps(s + k * LD, x);
        _mm512_storeu_ps(s + (k + 1) * LD, y);
        a = _mm512_add_ps(a, x);
        b = _mm512_add_ps(b, y);
    }
    for (; k < n.some; k++) {
        __mmask16 m = k < n.all ? 0xffff : lanes(k, q, diag);
        __m512    x = exp2_512(_mm512_fmsub_ps(_mm512_loadu_ps(s + k * LD), c, max));

        x = _mm512_maskz_mov_ps(m, x);
        _mm512_storeu_ps(s + k * LD, x);
        a = _mm512_add_ps(a, x);
    }
    for (; k < keys; k++)
        _mm512_storeu_ps(s + k * LD, _mm512_setzero_ps());
    return _mm512_add_ps(a, b);
}

void kn_avx512_attn_softmax(float *s, size_t keys, size_t queries, ptrdiff_t diag, float scale, float *max,
                            float *sum, float *ot, size_t d)
{
    __m512 c = _mm512_set1_ps(scale * (float)M_LOG2E);

    for (size_t q = 0; q < queries; q += 16) {
        struct span n = visible(keys, q, diag);
        __m512      old = _mm512_loadu_ps(max + q);
        __m512      now = _mm512_max_ps(old, _mm512_mul_ps(max_of(s + q, n, q, diag), c));
        __m512      shrink = exp2_512(_mm512_sub_ps(old, now));
        __m512      add = exp_of(s + q, keys, n, q, diag, c, now);

        _mm512_storeu_ps(sum + q, _mm512_fmadd_ps(_mm512_loadu_ps(sum + q), shrink, add));
        _mm512_storeu_ps(max + q, now);
        if (_mm512_cmpneq_ps_mask(old, now) == 0)
            continue;
        for (size_t i = 0; i < d; i++)
            _mm512_storeu_ps(ot + i * LD + q, _mm512_mul_ps(_mm512_loadu_ps(ot + i * LD + q), shrink));
    }
}

void kn_avx512_attn_dscore(float *s, float *ds, size_t keys, size_t queries, ptrdiff_t diag, float scale,
                           const float *lse, const float *delta)
{
    __m512 c = _mm512_set1_ps(scale * (float)M_LOG2E), by = _mm512_set1_ps(scale);

    for (size_t q = 0; q < queries; q += 16) {
        struct span n = visible(keys, q, diag);
        __m512      l = _mm512_mul_ps(_mm512_loadu_ps(lse + q), _mm512_set1_ps((float)M_LOG2E));
        __m512      dl = _mm512_loadu_ps(delta + q);
        size_t      k = 0;

        for (; k < n.some; k++) {
            __mmask16 m = k < n.all ? 0xffff : lanes(k, q, diag);
            float    *sk = s + k * LD + q, *dk = ds + k * LD + q;
            __m512    p = exp2_512(_mm512_fmsub_ps(_mm512_loadu_ps(sk), c, l));
            __m512    g = _mm512_mul_ps(p, _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(dk), dl), by));

            _mm512_storeu_ps(sk, _mm512_maskz_mov_ps(m, p));
            _mm512_storeu_ps(dk, _mm512_maskz_mov_ps(m, g));
        }
        for (; k < keys; k++) {
            _mm512_storeu_ps(s + k * LD + q, _mm512_setzero_ps());
            _mm512_storeu_ps(ds + k * LD + q, _mm512_setzero_ps());
        }
    }
}

#endif
