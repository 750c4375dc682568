/*
 * The AVX-512 micro-kernel: 14 x 32 of C in 28 registers. Each step over k loads two vectors of B
 * and broadcasts 14 elements of A, one load for two multiply-adds, which two load ports keep up
 * with.
 */
#include "kernels/gemm.h"
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#define UNROLL _Pragma("GCC unroll 16")

static inline __attribute__((always_inline)) void tile(const size_t mr, const size_t nv, size_t k,
                                                       const char *a, size_t rs, size_t cs,
                                                       const char *b, size_t bs, float *c,
                                                       size_t ldc, __mmask16 last, bool add)
{
    const char *a7 = a + 7 * rs;
    size_t rs3 = 3 * rs, rs5 = 5 * rs;
    size_t at[7] = {0, rs, 2 * rs, rs3, 4 * rs, rs5, 2 * rs3};
    __m512 s[KN_MAX_MR][2];

    UNROLL for (size_t i = 0; i < mr; i++)
    {
        UNROLL for (size_t v = 0; v < nv; v++) s[i][v] = _mm512_setzero_ps();
        __builtin_prefetch(c + i * ldc, 1, 3);
        if (nv > 1)
            __builtin_prefetch(c + i * ldc + 16, 1, 3);
    }
    for (; k > 0; k--, a += cs, a7 += cs, b += bs) {
        __m512 b0, b1;

        if (nv > 1) {
            b0 = _mm512_loadu_ps(b);
            b1 = _mm512_maskz_loadu_ps(last, b + 64);
        } else {
            b0 = b1 = _mm512_maskz_loadu_ps(last, b);
        }
        UNROLL for (size_t i = 0; i < mr; i++)
        {
            __m512 x =
                _mm512_set1_ps(*(const float *)(const void *)(i < 7 ? a + at[i] : a7 + at[i - 7]));

            s[i][0] = _mm512_fmadd_ps(x, b0, s[i][0]);
            if (nv > 1)
                s[i][1] = _mm512_fmadd_ps(x, b1, s[i][1]);
        }
    }
    UNROLL for (size_t i = 0; i < mr; i++, c += ldc)
    {
        UNROLL for (size_t v = 0; v < nv; v++)
        {
            __mmask16 m = v + 1 < nv ? 0xffff : last;

            if (add)
                s[i][v] = _mm512_add_ps(s[i][v], _mm512_maskz_loadu_ps(m, c + 16 * v));
            _mm512_mask_storeu_ps(c + 16 * v, m, s[i][v]);
        }
    }
}

#define KERNEL(mr)                                                                                 \
    static void ukr_##mr(size_t k, const float *a, size_t rs, size_t cs, const float *b,           \
                         size_t bs, float *c, size_t ldc, size_t nr, bool add)                     \
    {                                                                                              \
        if (nr > 16)                                                                               \
            tile(mr, 2, k, (const char *)a, rs, cs, (const char *)b, bs, c, ldc, first(nr - 16),   \
                 add);                                                                             \
        else                                                                                       \
            tile(mr, 1, k, (const char *)a, rs, cs, (const char *)b, bs, c, ldc, first(nr), add);  \
    }

KERNEL(1)
KERNEL(2)
KERNEL(3)
KERNEL(4)
KERNEL(5)
KERNEL(6)
KERNEL(7)
KERNEL(8)
KERNEL(9)
KERNEL(10)
KERNEL(11)
KERNEL(12)
KERNEL(13)
KERNEL(14)

enum { AHEAD = 16 };

#define INLINE static inline __attribute__((always_inline))

/*
 * A store of 16 elements where the slice has fewer runs into the next slice, which is written
 * later; only the last slice of a panel needs a mask. Masked stores are slow on some CPUs, masked
 * loads on none.
 */
INLINE void put(float *to, __m512 x, bool last, __mmask16 m)
{
    if (last)
        _mm512_mask_storeu_ps(to, m, x);
    else
        _mm512_storeu_ps(to, x);
}

INLINE void pack_rows(enum kn_type t, float *to, size_t panel, size_t width, const void *from,
                      size_t ld, size_t k)
{
    for (size_t p = 0; p < width; p += panel) {
        size_t w = kn_min(panel, width - p);

        for (size_t l = 0; l < k; l++, to += panel) {
            /* Slices are far apart, beyond what the hardware follows. */
            _mm_prefetch(kn_ptr(t, from, (l + AHEAD) * ld + p), _MM_HINT_T0);
            _mm_prefetch(kn_ptr(t, from, (l + AHEAD) * ld + p + w - 1), _MM_HINT_T0);
            for (size_t i = 0; i < w; i += 16) {
                __mmask16 m = first(kn_min(16, w - i));

                put(to + i, load16_masked(t, from, l * ld + p + i, m), l + 1 == k, m);
            }
        }
    }
}

/* 16 rows of 16 become 16 columns. */
static inline __attribute__((always_inline)) void turn16(__m512 r[16])
{
    __m512 t[16];

    UNROLL for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        UNROLL for (int j = 0; j < 2; j++)
        {
            __m512d x = _mm512_castps_pd(t[i + j]), y = _mm512_castps_pd(t[i + j + 2]);

            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    /* r[i + c] now holds, in its four lanes, columns c, c + 4, c + 8, c + 12 of rows i .. i + 3. */
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* Up to 16 rows (W) by up to 16 columns (N), both constant 16 in the common case. */
INLINE void turn_block(enum kn_type t, float *to, size_t w, size_t stride, const void *from,
                       size_t at, size_t ld, size_t n, bool last)
{
    __mmask16 in = first(n), out = first(w);
    __m512 r[16];

    UNROLL for (size_t i = 0; i < 16; i++) if (i < w)
        _mm_prefetch(kn_ptr(t, from, at + i * ld + 128), _MM_HINT_T0);
    UNROLL for (size_t i = 0; i < 16; i++) r[i] =
        i < w ? load16_masked(t, from, at + i * ld, in) : _mm512_setzero_ps();
    turn16(r);
    UNROLL for (size_t i = 0; i < 16; i++) if (i < n) put(to + i * stride, r[i], last, out);
}

INLINE void turn_panel(enum kn_type t, float *to, size_t stride, size_t width, const void *from,
                       size_t at, size_t ld, size_t k)
{
    for (size_t l = 0; l < k; l += 16) {
        for (size_t i = 0; i < width; i += 16) {
            size_t w = kn_min(16, width - i), n = kn_min(16, k - l);
            float *slice = to + l * stride + i;
            size_t corner = at + i * ld + l;

            if (w == 16 && n == 16)
                turn_block(t, slice, 16, stride, from, corner, ld, 16, false);
            else if (w == 14 && n == 16 && l + 16 < k && stride == 14)
                turn_block(t, slice, 14, stride, from, corner, ld, 16, false);
            else
                turn_block(t, slice, w, stride, from, corner, ld, n, true);
        }
    }
}

INLINE void pack_turn(enum kn_type t, float *to, size_t panel, size_t width, const void *from,
                      size_t ld, size_t k)
{
    for (size_t p = 0; p < width; p += panel)
        turn_panel(t, to + p * k, panel, kn_min(panel, width - p), from, p * ld, ld, k);
}

#define PACK(name, type, suffix)                                                                   \
    static void name##suffix(float *to, size_t panel, size_t width, const void *from, size_t ld,   \
                             size_t k)                                                             \
    {                                                                                              \
        name(type, to, panel, width, from, ld, k);                                                 \
    }

PACK(pack_rows, KN_F32, _f32)
PACK(pack_rows, KN_BF16, _bf16)
PACK(pack_turn, KN_F32, _f32)
PACK(pack_turn, KN_BF16, _bf16)

const struct kn_gemm_isa kn_avx512_gemm = {
    .mr = 14,
    .nr = 32,
    .ukr = {NULL, ukr_1, ukr_2, ukr_3, ukr_4, ukr_5, ukr_6, ukr_7, ukr_8, ukr_9, ukr_10, ukr_11,
            ukr_12, ukr_13, ukr_14},
    .rows = {pack_rows_f32, pack_rows_bf16},
    .turn = {pack_turn_f32, pack_turn_bf16},
};

#endif
