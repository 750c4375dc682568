/* RMSNorm: a block for each row, or for every so many rows on the way back. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned ROW_THREADS = 256;
static constexpr unsigned BWD_BLOCKS = 264; /* two for each multiprocessor of an H100 */

template <typename T, int V>
static __global__ void CU_BOUNDS(ROW_THREADS)
    rmsnorm_fwd(T *y, float *rrms, const T *x, const T *w, size_t dim, float eps, float offset)
{
    CU_SHARED(float, place);
    size_t row = blockIdx.x;
    float sum = 0, r;

    x += row * dim;
    y += row * dim;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V];

        cu_load(a, x + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            sum += a[j] * a[j];
    }
    r = 1.0f / sqrtf(cu_block_sum(sum, place) / (float)dim + eps);
    if (threadIdx.x == 0)
        rrms[row] = r;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V], b[V];

        cu_load(a, x + i);
        cu_load(b, w + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] *= r * (b[j] + offset);
        cu_store(y + i, a);
    }
}

extern "C" void cu_rmsnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, float *rrms,
                               const void *x, const void *w, size_t rows, size_t dim, float eps,
                               float offset)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(x) | cu_addr(w) | dim * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), ROW_THREADS);

        CU_LAUNCH((rmsnorm_fwd<T, V>), (unsigned)rows, threads, ROW_THREADS / CU_WARP * 4,
                  cu_stream_of(pool), (T *)y, rrms, (const T *)x, (const T *)w, dim, eps, offset);
    });
}

/*
 * dx of every row b, b + blocks, ... of block b, and in PART (blocks, dim) the block's share of dw.
 * A thread always has the same columns, so their sums of dw need no barrier.
 */
template <typename T, int V>
static __global__ void CU_BOUNDS(ROW_THREADS)
    rmsnorm_bwd(T *dx, float *part, const T *dy, const T *x, const T *w, const float *rrms,
                size_t rows, size_t dim, bool add, float offset)
{
    CU_SHARED(float, place);
    float *dw = place + ROW_THREADS / CU_WARP;

    for (size_t i = threadIdx.x * V; part && i < dim; i += blockDim.x * V)
        for (int j = 0; j < V; j++)
            dw[i + j] = 0;
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *dyr = dy + row * dim, *xr = x + row * dim;
        T *dxr = dx + row * dim;
        float r = rrms[row], mean = 0;

        for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
            float g[V], a[V], b[V];

            cu_load(g, dyr + i);
            cu_load(a, xr + i);
            cu_load(b, w + i);
            CU_UNROLL
            for (int j = 0; j < V; j++) {
                mean += g[j] * (b[j] + offset) * a[j];
                if (part)
                    dw[i + j] += g[j] * a[j] * r;
            }
        }
        mean = cu_block_sum(mean, place) / (float)dim * r * r;
        for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
            float g[V], a[V], b[V], old[V] = {};

            cu_load(g, dyr + i);
            cu_load(a, xr + i);
            cu_load(b, w + i);
            if (add)
                cu_load(old, dxr + i);
            CU_UNROLL
            for (int j = 0; j < V; j++)
                old[j] += r * (g[j] * (b[j] + offset) - a[j] * mean);
            cu_store(dxr + i, old);
        }
    }
    for (size_t i = threadIdx.x * V; part && i < dim; i += blockDim.x * V)
        for (int j = 0; j < V; j++)
            part[blockIdx.x * dim + i + j] = dw[i + j];
}

static __global__ void CU_BOUNDS(ROW_THREADS)
    add_parts(float *y, const float *part, size_t parts, size_t dim, size_t ld)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;

    if (i >= dim)
        return;
    for (size_t p = 0; p < parts; p++)
        sum += part[p * ld + i];
    y[i] += sum;
}

void cu_add_parts(cu_stream *stream, float *y, const float *part, size_t parts, size_t dim,
                  size_t ld)
{
    CU_LAUNCH(add_parts, (unsigned)cu_blocks(dim, ROW_THREADS), ROW_THREADS, 0, stream, y, part,
              parts, dim, ld);
}

extern "C" void cu_rmsnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw,
                               const void *dy, const void *x, const void *w, const float *rrms,
                               size_t rows, size_t dim, bool add, float offset)
{
    bool wide =
        cu_on16(cu_addr(dx) | cu_addr(dy) | cu_addr(x) | cu_addr(w) | dim * kn_type_size(type));
    cu_stream *stream = cu_stream_of(pool);
    float *part = dw ? (float *)cu_stream_scratch(stream) : NULL;
    size_t shared = (ROW_THREADS / CU_WARP + (dw ? dim : 0)) * sizeof(float);
    size_t blocks = cu_least(rows, BWD_BLOCKS);

    if (rows == 0)
        return;
    if (dw && blocks * dim * sizeof(float) > CU_SCRATCH_BYTES)
        blocks = CU_SCRATCH_BYTES / (dim * sizeof(float));
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), ROW_THREADS);

        cu_allow_shared((const void *)rmsnorm_bwd<T, V>, shared);
        CU_LAUNCH((rmsnorm_bwd<T, V>), (unsigned)blocks, threads, shared, stream, (T *)dx, part,
                  (const T *)dy, (const T *)x, (const T *)w, rrms, rows, dim, add, offset);
    });
    if (dw)
        cu_add_parts(stream, dw, part, blocks, dim, dim);
}
