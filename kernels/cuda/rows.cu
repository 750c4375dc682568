/* Rotary positions, SwiGLU and the clamped SwiGLU. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned THREADS = 256;

/* ---- rotary positions ---------------------------------------------------- */

/* A block for each row, a thread for V pairs of each head. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    rope(T *x, size_t ldx, size_t heads, size_t dim, size_t turned, const float *cos_t,
         const float *sin_t, const int32_t *pos, size_t seq, bool backward)
{
    size_t row = blockIdx.x, half = turned / 2, packs = half / V;
    size_t at = (pos ? (size_t)pos[row] : row % seq) * half;

    x += row * ldx;
    for (size_t p = threadIdx.x; p < heads * packs; p += blockDim.x) {
        size_t i = p % packs * V;
        T *lo = x + p / packs * dim + i, *hi = lo + half;
        float a[V], b[V];

        cu_load(a, lo);
        cu_load(b, hi);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float c = cos_t[at + i + j], s = backward ? -sin_t[at + i + j] : sin_t[at + i + j];
            float was = a[j];

            a[j] = was * c - b[j] * s;
            b[j] = b[j] * c + was * s;
        }
        cu_store(lo, a);
        cu_store(hi, b);
    }
}

extern "C" void cu_rope(struct kn_pool *pool, enum kn_type type, void *x, size_t ldx, size_t rows,
                        size_t heads, size_t dim, size_t turned, const float *cos_t,
                        const float *sin_t, const int32_t *pos, size_t seq, bool backward)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(x) | ldx * elem | dim * elem | turned / 2 * elem);

    assert(turned % 2 == 0 && turned <= dim && (pos || seq > 0));
    if (rows == 0 || turned == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(heads * (turned / 2 / V), THREADS);

        CU_LAUNCH((rope<T, V>), (unsigned)rows, threads, 0, cu_stream_of(pool), (T *)x, ldx, heads,
                  dim, turned, cos_t, sin_t, pos, seq, backward);
    });
}

/* ---- SwiGLU -------------------------------------------------------------- */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Blocks of columns across, rows down. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    swiglu_fwd(T *y, size_t ldy, const T *gate, size_t ldg, const T *up, size_t ldu, size_t rows,
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
            g[j] = g[j] * sigmoid(g[j]) * u[j];
        cu_store(y + row * ldy + i, g);
    }
}

static unsigned rows_down(size_t rows)
{
    return (unsigned)cu_least(rows, 65535);
}

extern "C" void cu_swiglu_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                              const void *gate, size_t ldg, const void *up, size_t ldu, size_t rows,
                              size_t ffn)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(y) | cu_addr(gate) | cu_addr(up) | (ldy | ldg | ldu | ffn) * elem);

    if (rows == 0 || ffn == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), THREADS);
        dim3 grid((unsigned)cu_blocks(ffn, (size_t)threads * V), rows_down(rows));

        CU_LAUNCH((swiglu_fwd<T, V>), grid, threads, 0, cu_stream_of(pool), (T *)y, ldy,
                  (const T *)gate, ldg, (const T *)up, ldu, rows, ffn);
    });
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    swiglu_bwd(T *dgate, size_t lddg, T *dup, size_t lddu, const T *dy, size_t lddy, const T *gate,
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
        for (int j = 0; j < V; j++) {
            float s = sigmoid(g[j]), k = d[j] * u[j];

            u[j] = d[j] * (g[j] * s);
            g[j] = k * s * (1.0f + g[j] * (1.0f - s));
        }
        cu_store(dgate + row * lddg + i, g);
        cu_store(dup + row * lddu + i, u);
    }
}

extern "C" void cu_swiglu_bwd(struct kn_pool *pool, enum kn_type type, void *dgate, size_t lddg,
                              void *dup, size_t lddu, const void *dy, size_t lddy, const void *gate,
                              size_t ldg, const void *up, size_t ldu, size_t rows, size_t ffn)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(dgate) | cu_addr(dup) | cu_addr(dy) | cu_addr(gate) | cu_addr(up) |
                        (lddg | lddu | lddy | ldg | ldu | ffn) * elem);

    if (rows == 0 || ffn == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), THREADS);
        dim3 grid((unsigned)cu_blocks(ffn, (size_t)threads * V), rows_down(rows));

        CU_LAUNCH((swiglu_bwd<T, V>), grid, threads, 0, cu_stream_of(pool), (T *)dgate, lddg,
                  (T *)dup, lddu, (const T *)dy, lddy, (const T *)gate, ldg, (const T *)up, ldu,
                  rows, ffn);
    });
}

/* ---- the clamped SwiGLU -------------------------------------------------- */

static __device__ __forceinline__ float clamped(float gate)
{
    return fminf(gate, KN_CLAMP_LIMIT);
}

static __device__ __forceinline__ float clamped_up(float up)
{
    return fmaxf(fminf(up, KN_CLAMP_LIMIT), -KN_CLAMP_LIMIT) + 1.0f;
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    swiglu_clamped_fwd(T *y, size_t ldy, const T *gate, size_t ldg, const T *up, size_t ldu,
                       size_t rows, size_t ffn)
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
            g[j] = clamped_up(u[j]) * (clamped(g[j]) * sigmoid(KN_CLAMP_ALPHA * clamped(g[j])));
        cu_store(y + row * ldy + i, g);
    }
}

extern "C" void cu_swiglu_clamped_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                                      const void *gate, size_t ldg, const void *up, size_t ldu,
                                      size_t rows, size_t ffn)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(y) | cu_addr(gate) | cu_addr(up) | (ldy | ldg | ldu | ffn) * elem);

    if (rows == 0 || ffn == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), THREADS);
        dim3 grid((unsigned)cu_blocks(ffn, (size_t)threads * V), rows_down(rows));

        CU_LAUNCH((swiglu_clamped_fwd<T, V>), grid, threads, 0, cu_stream_of(pool), (T *)y, ldy,
                  (const T *)gate, ldg, (const T *)up, ldu, rows, ffn);
    });
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    swiglu_clamped_bwd(T *dgate, size_t lddg, T *dup, size_t lddu, const T *dy, size_t lddy,
                       const T *gate, size_t ldg, const T *up, size_t ldu, size_t rows, size_t ffn)
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
        for (int j = 0; j < V; j++) {
            float a = clamped(g[j]), x = KN_CLAMP_ALPHA * a, s = sigmoid(x),
                  k = d[j] * clamped_up(u[j]);

            u[j] = fabsf(u[j]) <= KN_CLAMP_LIMIT ? d[j] * (a * s) : 0.0f;
            g[j] = g[j] <= KN_CLAMP_LIMIT ? k * s * (1.0f + x * (1.0f - s)) : 0.0f;
        }
        cu_store(dgate + row * lddg + i, g);
        cu_store(dup + row * lddu + i, u);
    }
}

extern "C" void cu_swiglu_clamped_bwd(struct kn_pool *pool, enum kn_type type, void *dgate,
                                      size_t lddg, void *dup, size_t lddu, const void *dy,
                                      size_t lddy, const void *gate, size_t ldg, const void *up,
                                      size_t ldu, size_t rows, size_t ffn)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(dgate) | cu_addr(dup) | cu_addr(dy) | cu_addr(gate) | cu_addr(up) |
                        (lddg | lddu | lddy | ldg | ldu | ffn) * elem);

    if (rows == 0 || ffn == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), THREADS);
        dim3 grid((unsigned)cu_blocks(ffn, (size_t)threads * V), rows_down(rows));

        CU_LAUNCH((swiglu_clamped_bwd<T, V>), grid, threads, 0, cu_stream_of(pool), (T *)dgate,
                  lddg, (T *)dup, lddu, (const T *)dy, lddy, (const T *)gate, ldg, (const T *)up,
                  ldu, rows, ffn);
    });
}
