/*
 * Feed-forward units with a gate: y of a gate and of what goes up, element by element, and the two
 * gradients. One kernel of each direction for all of them. UNIT is a type with
 *
 *   static float forward(float gate, float up)
 *   static void backward(float &gate, float &up, float dy)   both become their own gradients
 */
#ifndef KERNELS_CUDA_GATED_CUH
#define KERNELS_CUDA_GATED_CUH

#include "kernels/cuda/ops.cuh"

static constexpr unsigned CU_GATED_THREADS = 256;

static __device__ __forceinline__ float cu_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Blocks of columns across, rows down. */
template <typename Unit, typename T, int V>
static __global__ void CU_BOUNDS(CU_GATED_THREADS)
    gated_fwd(T *y, size_t ldy, const T *gate, size_t ldg, const T *up, size_t ldu, size_t rows,
              size_t ffn)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;

    if (i >= ffn)
        return;
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        float g[V], u[V];

        cu_load(g, gate + row * ldg + i);
        cu_load(u, up + row * ldu + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            g[j] = Unit::forward(g[j], u[j]);
        cu_store(y + row * ldy + i, g);
    }
}

template <typename Unit, typename T, int V>
static __global__ void CU_BOUNDS(CU_GATED_THREADS)
    gated_bwd(T *dgate, size_t lddg, T *dup, size_t lddu, const T *dy, size_t lddy, const T *gate,
              size_t ldg, const T *up, size_t ldu, size_t rows, size_t ffn)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;

    if (i >= ffn)
        return;
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        float d[V], g[V], u[V];

        cu_load(d, dy + row * lddy + i);
        cu_load(g, gate + row * ldg + i);
        cu_load(u, up + row * ldu + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            Unit::backward(g[j], u[j], d[j]);
        cu_store(dgate + row * lddg + i, g);
        cu_store(dup + row * lddu + i, u);
    }
}

/* The shape of a launch: F(form, grid, threads). */
template <typename F>
static void cu_gated_launch(enum kn_type type, bool wide, size_t rows, size_t ffn, F f)
{
    if (rows == 0 || ffn == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), CU_GATED_THREADS);

        f(form,
          dim3((unsigned)cu_blocks(ffn, (size_t)threads * V), (unsigned)cu_least(rows, 65535)),
          threads);
    });
}

/* The arguments of kn_swiglu_fwd and kn_swiglu_bwd. */
template <typename Unit>
static void cu_gated_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                         const void *gate, size_t ldg, const void *up, size_t ldu, size_t rows,
                         size_t ffn)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(gate) | cu_addr(up) |
                        (ldy | ldg | ldu | ffn) * kn_type_size(type));

    cu_gated_launch(type, wide, rows, ffn, [&](auto form, dim3 grid, unsigned threads) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((gated_fwd<Unit, T, V>), grid, threads, 0, cu_stream_of(pool), (T *)y, ldy,
                  (const T *)gate, ldg, (const T *)up, ldu, rows, ffn);
    });
}

template <typename Unit>
static void cu_gated_bwd(struct kn_pool *pool, enum kn_type type, void *dgate, size_t lddg,
                         void *dup, size_t lddu, const void *dy, size_t lddy, const void *gate,
                         size_t ldg, const void *up, size_t ldu, size_t rows, size_t ffn)
{
    bool wide = cu_on16(cu_addr(dgate) | cu_addr(dup) | cu_addr(dy) | cu_addr(gate) | cu_addr(up) |
                        (lddg | lddu | lddy | ldg | ldu | ffn) * kn_type_size(type));

    cu_gated_launch(type, wide, rows, ffn, [&](auto form, dim3 grid, unsigned threads) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((gated_bwd<Unit, T, V>), grid, threads, 0, cu_stream_of(pool), (T *)dgate, lddg,
                  (T *)dup, lddu, (const T *)dy, lddy, (const T *)gate, ldg, (const T *)up, ldu,
                  rows, ffn);
    });
}

/* cu_NAME_fwd and cu_NAME_bwd by UNIT. */
#define CU_GATED(name, unit)                                                                       \
    extern "C" void cu_##name##_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,  \
                                    const void *gate, size_t ldg, const void *up, size_t ldu,      \
                                    size_t rows, size_t ffn)                                       \
    {                                                                                              \
        cu_gated_fwd<unit>(pool, type, y, ldy, gate, ldg, up, ldu, rows, ffn);                     \
    }                                                                                              \
    extern "C" void cu_##name##_bwd(struct kn_pool *pool, enum kn_type type, void *dgate,          \
                                    size_t lddg, void *dup, size_t lddu, const void *dy,           \
                                    size_t lddy, const void *gate, size_t ldg, const void *up,     \
                                    size_t ldu, size_t rows, size_t ffn)                           \
    {                                                                                              \
        cu_gated_bwd<unit>(pool, type, dgate, lddg, dup, lddu, dy, lddy, gate, ldg, up, ldu, rows, \
                           ffn);                                                                   \
    }

#endif
