/*
 * What the kernels of this folder are written with: numbers, packs of 16 bytes, sums over a warp
 * and over a block, matrix instructions.
 *
 * The sources are compiled twice: by nvcc for GPUs, and by a C++ compiler against shim.cuh, which
 * runs the same functions on the host, so that kncheck judges them where there is no GPU.
 *
 * Rules. A block has whole warps, and every thread of a warp or block reaches every exchange and
 * barrier. Shared memory is dynamic (CU_SHARED). No atomics: sums have a fixed order, so a result
 * is bit for bit the same in every run on one kind of GPU. Where a pointer or a leading dimension
 * is not a multiple of 16 bytes, the same kernel runs with packs of one element.
 */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define CU_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
    do {                                                                                           \
        kernel<<<(grid), (block), (shared), (cudaStream_t)cu_stream_handle(stream)>>>(             \
            __VA_ARGS__);                                                                          \
        cu_launched(#kernel);                                                                      \
    } while (0)
/* NAME points to the block's dynamic shared memory. */
#define CU_SHARED(type, name)                                                                      \
    extern __shared__ uint4 cu_shared_bytes[];                                                     \
    type *name = (type *)cu_shared_bytes
/* Threads of a block[, blocks that a multiprocessor must have room for]. Without the second, ptxas
 * may spill to make room for more. */
#define CU_BOUNDS(...) __launch_bounds__(__VA_ARGS__)
#define CU_UNROLL _Pragma("unroll")
#else
#include "kernels/cuda/shim.cuh"
#define CU_BOUNDS(...)
#define CU_UNROLL
#endif

static constexpr unsigned CU_WARP = 32;
static constexpr unsigned CU_ALL = 0xffffffffu;

/* ---- numbers ------------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float cu_float(float x)
{
    return x;
}

static __device__ __forceinline__ float cu_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

/* Two numbers rounded to nearest even, A in the lower half. */
static __device__ __forceinline__ uint32_t cu_bf16x2(float a, float b)
{
#ifdef __CUDACC__
    uint32_t packed;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(b), "f"(a));
    return packed;
#else
    return shim_bf16(a) | (uint32_t)shim_bf16(b) << 16;
#endif
}

template <typename T> static __device__ __forceinline__ T cu_round(float x);

template <> __device__ __forceinline__ float cu_round<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ bf16 cu_round<bf16>(float x)
{
    return bf16{(uint16_t)cu_bf16x2(x, 0.0f)};
}

/* ---- packs --------------------------------------------------------------- */

/* Elements of T in 16 bytes. */
template <typename T> struct cu_wide {
    static const int n = 16 / (int)sizeof(T);
};

/* V consecutive elements as fp32: one access of 16 bytes, or V = 1. */
template <int V> static __device__ __forceinline__ void cu_load(float (&y)[V], const float *x)
{
    if (V % 4 == 0) {
        CU_UNROLL
        for (int i = 0; i < V / 4; i++) {
            float4 p = ((const float4 *)x)[i];

            y[4 * i & (V - 1)] = p.x;
            y[(4 * i + 1) & (V - 1)] = p.y;
            y[(4 * i + 2) & (V - 1)] = p.z;
            y[(4 * i + 3) & (V - 1)] = p.w;
        }
    } else {
        CU_UNROLL
        for (int i = 0; i < V; i++)
            y[i] = x[i];
    }
}

template <int V> static __device__ __forceinline__ void cu_load(float (&y)[V], const bf16 *x)
{
    if (V == 8) {
        uint4 p = *(const uint4 *)x;
        uint32_t q[4] = {p.x, p.y, p.z, p.w};

        CU_UNROLL
        for (int i = 0; i < V; i++)
            y[i] = __uint_as_float(i & 1 ? q[i / 2 & 3] & 0xffff0000u : q[i / 2 & 3] << 16);
    } else {
        CU_UNROLL
        for (int i = 0; i < V; i++)
            y[i] = cu_float(x[i]);
    }
}

template <int V> static __device__ __forceinline__ void cu_store(float *y, const float (&x)[V])
{
    if (V % 4 == 0) {
        CU_UNROLL
        for (int i = 0; i < V / 4; i++)
            ((float4 *)y)[i] = make_float4(x[4 * i & (V - 1)], x[(4 * i + 1) & (V - 1)],
                                           x[(4 * i + 2) & (V - 1)], x[(4 * i + 3) & (V - 1)]);
    } else {
        CU_UNROLL
        for (int i = 0; i < V; i++)
            y[i] = x[i];
    }
}

template <int V> static __device__ __forceinline__ void cu_store(bf16 *y, const float (&x)[V])
{
    if (V == 8) {
        uint32_t q[4];

        CU_UNROLL
        for (int i = 0; i < 4; i++)
            q[i] = cu_bf16x2(x[2 * i & (V - 1)], x[(2 * i + 1) & (V - 1)]);
        *(uint4 *)y = make_uint4(q[0], q[1], q[2], q[3]);
    } else {
        CU_UNROLL
        for (int i = 0; i < V; i++)
            y[i] = cu_round<bf16>(x[i]);
    }
}

/* ---- sums and maxima ----------------------------------------------------- */

/* Every lane gets the sum, always in the same order. */
template <typename F> static __device__ __forceinline__ F cu_warp_sum(F x)
{
#ifdef __CUDACC__
    CU_UNROLL
    for (int d = 16; d; d >>= 1)
        x += __shfl_xor_sync(CU_ALL, x, d);
    return x;
#else
    return shim_sum(x); /* the same sum by one exchange */
#endif
}

static __device__ __forceinline__ float cu_warp_max(float x)
{
    CU_UNROLL
    for (int d = 16; d; d >>= 1)
        x = fmaxf(x, __shfl_xor_sync(CU_ALL, x, d));
    return x;
}

/* Every thread gets the sum; PLACE is shared memory for one F of each warp. */
template <typename F> static __device__ __forceinline__ F cu_block_sum(F x, F *place)
{
    unsigned warps = blockDim.x / CU_WARP;
    F sum = 0;

    x = cu_warp_sum(x);
    __syncthreads(); /* PLACE may still be read for the sum before */
    if (threadIdx.x % CU_WARP == 0)
        place[threadIdx.x / CU_WARP] = x;
    __syncthreads();
    for (unsigned i = 0; i < warps; i++)
        sum += place[i];
    return sum;
}

static __device__ __forceinline__ float cu_block_max(float x, float *place)
{
    unsigned warps = blockDim.x / CU_WARP;

    x = cu_warp_max(x);
    __syncthreads();
    if (threadIdx.x % CU_WARP == 0)
        place[threadIdx.x / CU_WARP] = x;
    __syncthreads();
    for (unsigned i = 0; i < warps; i++)
        x = fmaxf(x, place[i]);
    return x;
}

/* ---- matrix instructions ------------------------------------------------- */

/*
 * D = A B + D with A (16, 16), B (16, 8) in bf16 and D in fp32, spread over a warp as the PTX ISA
 * says of mma.m16n8k16: with g = lane / 4 and t = lane % 4,
 *
 *   a[0] A(g, 2t..)   a[1] A(g + 8, 2t..)   a[2] A(g, 2t + 8..)   a[3] A(g + 8, 2t + 8..)
 *   b[0] B(2t.., g)   b[1] B(2t + 8.., g)
 *   d[0], d[1] D(g, 2t..)   d[2], d[3] D(g + 8, 2t..)
 *
 * where ".." is that element and the next (of the row in A and D, of the column in B), the first in
 * the lower half.
 */
static __device__ __forceinline__ void cu_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    shim_mma(d, a, b0, b1);
#endif
}

/*
 * Four 8 x 8 blocks of bf16 from shared memory: lanes 8 j .. 8 j + 7 give the addresses of block
 * j's rows, each a multiple of 16 bytes, and y[j] gets elements (g, 2t..) of block j, or of its
 * transpose: (2t, g) and (2t + 1, g).
 */
template <bool TRANSPOSED>
static __device__ __forceinline__ void cu_ldmatrix(uint32_t (&y)[4], const bf16 *row)
{
#ifdef __CUDACC__
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                     : "r"(at)
                     : "memory");
#else
    shim_ldmatrix(y, row, TRANSPOSED);
#endif
}

#endif
