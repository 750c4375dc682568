/* RMSNorm of rows that are divided over ranks: a block for each row, or for every so many rows
 * where the scale's gradient is added up. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned THREADS = 256;
static constexpr unsigned BWD_BLOCKS = 264; /* two for each multiprocessor of an H100 */
static constexpr size_t PLACE = THREADS / CU_WARP * sizeof(float);

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS) part_sums(float *sums, const T *x, size_t ldx, size_t dim)
{
    CU_SHARED(float, place);
    float sum = 0;

    x += blockIdx.x * ldx;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V];

        cu_load(a, x + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            sum += a[j] * a[j];
    }
    sum = cu_block_sum(sum, place);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

extern "C" void cu_rmsnorm_part_sums(struct kn_pool *pool, enum kn_type type, float *sums,
                                     const void *x, size_t ldx, size_t rows, size_t dim)
{
    bool wide = cu_on16(cu_addr(x) | (ldx | dim) * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((part_sums<T, V>), (unsigned)rows, cu_threads(cu_blocks(dim, V), THREADS), PLACE,
                  cu_stream_of(pool), sums, (const T *)x, ldx, dim);
    });
}

/* RRMS of the row becomes what it is of its sums before any thread needs it again. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    part_fwd(T *y, size_t ldy, float *rrms, const T *x, size_t ldx, const T *w, size_t dim,
             size_t whole, float eps, float offset)
{
    float r = 1.0f / sqrtf(rrms[blockIdx.x] / (float)whole + eps);

    x += blockIdx.x * ldx;
    y += blockIdx.x * ldy;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V], b[V];

        cu_load(a, x + i);
        cu_load(b, w + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] *= r * (b[j] + offset);
        cu_store(y + i, a);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        rrms[blockIdx.x] = r;
}

extern "C" void cu_rmsnorm_part_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                                    float *rrms, const void *x, size_t ldx, const void *w,
                                    size_t rows, size_t dim, size_t whole, float eps, float offset)
{
    bool wide =
        cu_on16(cu_addr(y) | cu_addr(x) | cu_addr(w) | (ldy | ldx | dim) * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((part_fwd<T, V>), (unsigned)rows, cu_threads(cu_blocks(dim, V), THREADS), 0,
                  cu_stream_of(pool), (T *)y, ldy, rrms, (const T *)x, ldx, (const T *)w, dim,
                  whole, eps, offset);
    });
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    part_dots(float *sums, const T *dy, size_t lddy, const T *x, size_t ldx, const T *w, size_t dim,
              float offset)
{
    CU_SHARED(float, place);
    float sum = 0;

    x += blockIdx.x * ldx;
    dy += blockIdx.x * lddy;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float g[V], a[V], b[V];

        cu_load(g, dy + i);
        cu_load(a, x + i);
        cu_load(b, w + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            sum += g[j] * (b[j] + offset) * a[j];
    }
    sum = cu_block_sum(sum, place);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

extern "C" void cu_rmsnorm_part_dots(struct kn_pool *pool, enum kn_type type, float *sums,
                                     const void *dy, size_t lddy, const void *x, size_t ldx,
                                     const void *w, size_t rows, size_t dim, float offset)
{
    bool wide =
        cu_on16(cu_addr(dy) | cu_addr(x) | cu_addr(w) | (lddy | ldx | dim) * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((part_dots<T, V>), (unsigned)rows, cu_threads(cu_blocks(dim, V), THREADS), PLACE,
                  cu_stream_of(pool), sums, (const T *)dy, lddy, (const T *)x, ldx, (const T *)w,
                  dim, offset);
    });
}

/* dx of every row b, b + blocks, ... of block b, and in PART (blocks, dim) its share of dw. A
 * thread always has the same columns, so their sums need no barrier. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    part_bwd(T *dx, size_t lddx, float *part, const T *dy, size_t lddy, const T *x, size_t ldx,
             const T *w, const float *rrms, const float *sums, size_t rows, size_t dim,
             size_t whole, float offset)
{
    float *dw = part + blockIdx.x * dim;

    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float b[V], sum[V] = {};

        cu_load(b, w + i);
        for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
            float g[V], a[V], r = rrms[row], along = r * r * sums[row] / (float)whole;

            cu_load(g, dy + row * lddy + i);
            cu_load(a, x + row * ldx + i);
            CU_UNROLL
            for (int j = 0; j < V; j++) {
                sum[j] += g[j] * a[j] * r;
                g[j] = r * (g[j] * (b[j] + offset) - a[j] * along);
            }
            cu_store(dx + row * lddx + i, g);
        }
        for (int j = 0; j < V; j++)
            dw[i + j] = sum[j];
    }
}

extern "C" void cu_rmsnorm_part_bwd(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx,
                                    float *dw, const void *dy, size_t lddy, const void *x,
                                    size_t ldx, const void *w, const float *rrms, const float *sums,
                                    size_t rows, size_t dim, size_t whole, float offset)
{
    bool wide = cu_on16(cu_addr(dx) | cu_addr(dy) | cu_addr(x) | cu_addr(w) |
                        (lddx | lddy | ldx | dim) * kn_type_size(type));
    cu_stream *stream = cu_stream_of(pool);
    float *part = (float *)cu_stream_scratch(stream);
    size_t blocks = cu_least(rows, BWD_BLOCKS);

    if (rows == 0)
        return;
    blocks = cu_least(blocks, CU_SCRATCH_BYTES / (dim * sizeof(float)));
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((part_bwd<T, V>), (unsigned)blocks, cu_threads(cu_blocks(dim, V), THREADS), 0,
                  stream, (T *)dx, lddx, part, (const T *)dy, lddy, (const T *)x, ldx, (const T *)w,
                  rrms, sums, rows, dim, whole, offset);
    });
    cu_add_parts(stream, dw, part, blocks, dim, dim);
}
