/* Soft capping, and cross-entropy over a split vocabulary. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned THREADS = 512;

/* Packs of 16 bytes need whole ones: a row's length counts, too. */
static bool wide_rows(enum kn_type type, const void *logits, size_t ld, size_t cols)
{
    return cu_on16(cu_addr(logits) | (ld | cols) * kn_type_size(type));
}

/* ---- soft capping: a block for each row ---------------------------------- */

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS) softcap(T *x, size_t ld, size_t cols, float cap)
{
    T *row = x + blockIdx.x * ld;

    for (size_t i = threadIdx.x * V; i < cols; i += blockDim.x * V) {
        float a[V];

        cu_load(a, row + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] = cap * tanhf(a[j] / cap);
        cu_store(row + i, a);
    }
}

extern "C" void cu_softcap(struct kn_pool *pool, enum kn_type type, void *x, size_t ld, size_t rows,
                           size_t cols, float cap)
{
    if (rows == 0)
        return;
    cu_typed(type, wide_rows(type, x, ld, cols), [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(cols, V), THREADS);

        CU_LAUNCH((softcap<T, V>), (unsigned)rows, threads, 0, cu_stream_of(pool), (T *)x, ld, cols,
                  cap);
    });
}

/* ---- cross-entropy: a block for each row --------------------------------- */

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    xent_max(float *max, const T *logits, size_t ld, size_t cols)
{
    CU_SHARED(float, place);
    const T *l = logits + blockIdx.x * ld;
    float best = -INFINITY;

    for (size_t i = threadIdx.x * V; i < cols; i += blockDim.x * V) {
        float a[V];

        cu_load(a, l + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            best = fmaxf(best, a[j]);
    }
    best = cu_block_max(best, place);
    if (threadIdx.x == 0)
        max[blockIdx.x] = best;
}

static constexpr unsigned PLACE = THREADS / CU_WARP * (int)sizeof(float);

extern "C" void cu_xent_max(struct kn_pool *pool, enum kn_type type, float *max, const void *logits,
                            size_t ld, size_t rows, size_t cols)
{
    if (rows == 0)
        return;
    cu_typed(type, wide_rows(type, logits, ld, cols), [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(cols, V), THREADS);

        CU_LAUNCH((xent_max<T, V>), (unsigned)rows, threads, PLACE, cu_stream_of(pool), max,
                  (const T *)logits, ld, cols);
    });
}

/* The column of a target on this rank, or COLS. */
static __device__ __forceinline__ size_t target_column(int32_t target, size_t v0, size_t cols)
{
    int64_t c = (int64_t)target - (int64_t)v0;

    return target >= 0 && c >= 0 && c < (int64_t)cols ? (size_t)c : cols;
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    xent_sum(float *sum, float *target, const T *logits, size_t ld, size_t cols, const float *max,
             const int32_t *targets, size_t v0)
{
    CU_SHARED(float, place);
    size_t row = blockIdx.x;
    const T *l = logits + row * ld;
    float top = max[row], s = 0;

    for (size_t i = threadIdx.x * V; i < cols; i += blockDim.x * V) {
        float a[V];

        cu_load(a, l + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            s += expf(a[j] - top);
    }
    s = cu_block_sum(s, place);
    if (threadIdx.x == 0) {
        size_t c = target_column(targets[row], v0, cols);

        sum[row] = s;
        target[row] = c < cols ? cu_float(l[c]) : 0.0f;
    }
}

extern "C" void cu_xent_sum(struct kn_pool *pool, enum kn_type type, float *sum, float *target,
                            const void *logits, size_t ld, size_t rows, size_t cols,
                            const float *max, const int32_t *targets, size_t v0)
{
    if (rows == 0)
        return;
    cu_typed(type, wide_rows(type, logits, ld, cols), [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(cols, V), THREADS);

        CU_LAUNCH((xent_sum<T, V>), (unsigned)rows, threads, PLACE, cu_stream_of(pool), sum, target,
                  (const T *)logits, ld, cols, max, targets, v0);
    });
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    xent_grad(T *logits, size_t ld, size_t cols, size_t padded, const float *max, const float *sum,
              const int32_t *targets, size_t v0, float scale, float z, float cap)
{
    size_t row = blockIdx.x, c = target_column(targets[row], v0, cols);
    size_t from = targets[row] < 0 ? 0 : cols;
    T *l = logits + row * ld;
    float top = max[row], by = scale / sum[row], inverse = cap > 0 ? 1.0f / cap : 0.0f;

    if (z > 0)
        by *= 1.0f + 2.0f * z * (logf(sum[row]) + top);

    for (size_t i = threadIdx.x * V; i < from; i += blockDim.x * V) {
        float a[V];

        cu_load(a, l + i);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float t = a[j] * inverse;

            a[j] = expf(a[j] - top) * by - (i + j == c ? scale : 0.0f);
            a[j] *= 1.0f - t * t;
        }
        cu_store(l + i, a);
    }
    for (size_t i = from + threadIdx.x; i < padded; i += blockDim.x)
        l[i] = cu_round<T>(0.0f);
}

extern "C" void cu_xent_grad(struct kn_pool *pool, enum kn_type type, void *logits, size_t ld,
                             size_t rows, size_t cols, size_t padded, const float *max,
                             const float *sum, const int32_t *targets, size_t v0, float scale,
                             float z, float cap)
{
    assert(z >= 0 && cap >= 0 && ld >= padded && padded >= cols);
    if (rows == 0)
        return;
    cu_typed(type, wide_rows(type, logits, ld, cols), [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(padded, V), THREADS);

        CU_LAUNCH((xent_grad<T, V>), (unsigned)rows, threads, 0, cu_stream_of(pool), (T *)logits,
                  ld, cols, padded, max, sum, targets, v0, scale, z, cap);
    });
}
