/*
 * Tiles of attention: rows of bf16 in shared memory, and products of tiles by matrix instructions.
 *
 * A row of a tile has D elements and 8 more, so that the eight rows of a block that ldmatrix reads
 * lie in different banks. A warp has 16 rows of the result; with g = lane / 4 and t = lane % 4 it
 * holds rows g and g + 8 at columns 8 n + 2 t and + 1 as acc[n][0], [1] and [2], [3].
 */
#ifndef KERNELS_CUDA_ATTN_TILE_CUH
#define KERNELS_CUDA_ATTN_TILE_CUH

#include "kernels/cuda/ops.cuh"

static constexpr int TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * 32, TILE_ROWS = 16 * TILE_WARPS;

template <int D> struct tile {
    static constexpr int ld = D + 8;
    static constexpr size_t bytes(int rows)
    {
        return (size_t)rows * ld * sizeof(bf16);
    }
};

/* ROWS rows of a head from global memory, zeros from row COUNT on. */
template <int D, int ROWS>
static __device__ __forceinline__ void tile_load(bf16 *to, const bf16 *from, size_t ld,
                                                 size_t count)
{
    CU_UNROLL
    for (int i = 0; i < ROWS * D / 8 / TILE_THREADS; i++) {
        int n = i * TILE_THREADS + (int)threadIdx.x, row = n / (D / 8), col = n % (D / 8) * 8;
        uint4 x = make_uint4(0, 0, 0, 0);

        if ((size_t)row < count)
            x = *(const uint4 *)(from + (size_t)row * ld + col);
        *(uint4 *)(to + row * tile<D>::ld + col) = x;
    }
}

/* Lane's address for the four blocks of (16, 16) at (ROW, COL): the blocks in the order left upper,
 * left lower, right upper, right lower, or with the middle two exchanged. */
template <int D, bool ACROSS>
static __device__ __forceinline__ const bf16 *tile_at(const bf16 *from, int row, int col)
{
    int lane = (int)threadIdx.x % 32, a = lane / 8 % 2 * 8, b = lane / 16 * 8, r = lane % 8;

    return from + (row + r + (ACROSS ? b : a)) * tile<D>::ld + col + (ACROSS ? a : b);
}

/* acc (16, COLS) += A (16, D) at row ROW of A's tile, times B (COLS, D) transposed. */
template <int D, int COLS>
static __device__ __forceinline__ void tile_product(float (&acc)[COLS / 8][4], const bf16 *a,
                                                    int row, const bf16 *b)
{
    CU_UNROLL
    for (int k = 0; k < D; k += 16) {
        uint32_t x[4], y[4];

        cu_ldmatrix<false>(x, tile_at<D, false>(a, row, k));
        CU_UNROLL
        for (int n = 0; n < COLS; n += 16) {
            cu_ldmatrix<false>(y, tile_at<D, true>(b, n, k));
            cu_mma(acc[n / 8], x, y[0], y[1]);
            cu_mma(acc[n / 8 + 1], x, y[2], y[3]);
        }
    }
}

/* acc (16, D) += P (16, KEYS), rounded to bf16, times B (KEYS, D). */
template <int D, int KEYS>
static __device__ __forceinline__ void tile_weigh(float (&acc)[D / 8][4],
                                                  const float (&p)[KEYS / 8][4], const bf16 *b)
{
    CU_UNROLL
    for (int k = 0; k < KEYS; k += 16) {
        const float(&l)[4] = p[k / 8], (&r)[4] = p[k / 8 + 1];
        uint32_t x[4] = {cu_bf16x2(l[0], l[1]), cu_bf16x2(l[2], l[3]), cu_bf16x2(r[0], r[1]),
                         cu_bf16x2(r[2], r[3])};

        CU_UNROLL
        for (int n = 0; n < D; n += 16) {
            uint32_t y[4];

            cu_ldmatrix<true>(y, tile_at<D, false>(b, k, n));
            cu_mma(acc[n / 8], x, y[0], y[1]);
            cu_mma(acc[n / 8 + 1], x, y[2], y[3]);
        }
    }
}

/* This warp's 16 rows of acc, times LEFT for rows g and RIGHT for rows g + 8, to global memory at
 * row 0 of TO, rows below COUNT only; by way of VIA, 16 rows of shared memory of the warp's own. */
template <int D>
static __device__ __forceinline__ void tile_store(bf16 *to, size_t ld, size_t count,
                                                  const float (&acc)[D / 8][4], float upper,
                                                  float lower, bf16 *via)
{
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;

    CU_UNROLL
    for (int n = 0; n < D / 8; n++) {
        bf16 *at = via + g * tile<D>::ld + 8 * n + 2 * t;

        *(uint32_t *)at = cu_bf16x2(acc[n][0] * upper, acc[n][1] * upper);
        *(uint32_t *)(at + 8 * tile<D>::ld) = cu_bf16x2(acc[n][2] * lower, acc[n][3] * lower);
    }
    __syncwarp();
    CU_UNROLL
    for (int i = 0; i < 16 * D / 8 / 32; i++) {
        int n = i * 32 + lane, row = n / (D / 8), col = n % (D / 8) * 8;

        if ((size_t)row < count)
            *(uint4 *)(to + (size_t)row * ld + col) =
                *(const uint4 *)(via + row * tile<D>::ld + col);
    }
    __syncwarp();
}

/* The first key of tiles of KEYS that the queries from Q0 on begin with, for their window. */
static __device__ __forceinline__ size_t tile_begin(const kn_attn &a, size_t q0, size_t keys)
{
    return q0 + 1 <= a.window ? 0 : (q0 + 1 - a.window) / keys * keys;
}

/* The window as an int, or what is as good: no distance is longer. */
static __device__ __forceinline__ int tile_window(const kn_attn &a)
{
    return a.window < a.seq ? (int)a.window : (int)a.seq;
}

#endif
