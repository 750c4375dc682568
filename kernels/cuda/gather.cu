/* Rows that come from anywhere: embedding, permutation of tokens, and the ways back. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned THREADS = 256;

/* ---- embedding ----------------------------------------------------------- */

/* The row of this rank's table, or VOCAB. */
static __device__ __forceinline__ size_t local_id(int32_t id, size_t v0, size_t vocab)
{
    int64_t i = (int64_t)id - (int64_t)v0;

    return i >= 0 && i < (int64_t)vocab ? (size_t)i : vocab;
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    embed_fwd(T *y, const T *table, const int32_t *ids, size_t dim, size_t v0, size_t vocab,
              float scale)
{
    size_t row = blockIdx.x, id = local_id(ids[row], v0, vocab);

    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V] = {};

        if (id < vocab)
            cu_load(a, table + id * dim + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] *= scale;
        cu_store(y + row * dim + i, a);
    }
}

extern "C" void cu_embed_fwd(struct kn_pool *pool, enum kn_type type, void *y, const void *table,
                             const int32_t *ids, size_t rows, size_t dim, size_t v0, size_t vocab,
                             float scale)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(table) | dim * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);

        CU_LAUNCH((embed_fwd<T, V>), (unsigned)rows, threads, 0, cu_stream_of(pool), (T *)y,
                  (const T *)table, ids, dim, v0, vocab, scale);
    });
}

/*
 * Without atomics, workspace or sorting: the block of a token's first occurrence adds up all its
 * rows, in their order; the blocks of later ones end at once. Each block (a warp) reads ids before
 * its row until it finds its own, then those after it: at most 4 rows^2 bytes for each of gridDim.y
 * slices of the columns. They come from the cache, which has no room for the host's memory: so ids
 * are copied to the device's first.
 */
template <typename T, int V, typename W>
static __global__ void CU_BOUNDS(CU_WARP)
    embed_bwd(W *dtable, const T *dy, const int32_t *ids, size_t rows, size_t dim, size_t v0,
              size_t vocab, float scale)
{
    size_t first = blockIdx.x, id = local_id(ids[first], v0, vocab);
    size_t i = ((size_t)blockIdx.y * CU_WARP + threadIdx.x) * V;
    unsigned lane = threadIdx.x;
    bool mine = i < dim;
    float sum[V] = {};

    if (id == vocab)
        return;
    for (size_t r = 0; r < first; r += CU_WARP)
        if (__ballot_sync(CU_ALL, r + lane < first && ids[r + lane] == ids[first]))
            return;
    if (mine) {
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float one[1];

            cu_load(one, dtable + id * dim + i + j);
            sum[j] = one[0];
        }
    }
    for (size_t r = first; r < rows; r += CU_WARP) {
        unsigned hits = __ballot_sync(CU_ALL, r + lane < rows && ids[r + lane] == ids[first]);

        for (; hits; hits &= hits - 1) {
            float a[V];

            if (!mine)
                continue;
            cu_load(a, dy + (r + __ffs((int)hits) - 1) * dim + i);
            CU_UNROLL
            for (int j = 0; j < V; j++)
                sum[j] += scale * a[j];
        }
    }
    if (mine) {
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float one[1] = {sum[j]};

            cu_store(dtable + id * dim + i + j, one);
        }
    }
}

extern "C" void cu_embed_bwd(struct kn_pool *pool, enum kn_type type, enum kn_type tt, void *dtable,
                             const void *dy, const int32_t *ids, size_t rows, size_t dim, size_t v0,
                             size_t vocab, float scale)
{
    bool wide = cu_on16(cu_addr(dy) | dim * kn_type_size(type));
    cu_stream *stream = cu_stream_of(pool);
    size_t bytes = rows * sizeof(*ids);

    if (rows == 0 || dim == 0)
        return;
    if (bytes <= CU_SCRATCH_BYTES) {
        void *near = cu_stream_scratch(stream);

        cu_copy(stream, near, ids, bytes);
        ids = (const int32_t *)near;
    }
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        dim3 grid((unsigned)rows, (unsigned)cu_blocks(dim, CU_WARP * V));

        if (tt == KN_F32)
            CU_LAUNCH((embed_bwd<T, V, float>), grid, CU_WARP, 0, stream, (float *)dtable,
                      (const T *)dy, ids, rows, dim, v0, vocab, scale);
        else
            CU_LAUNCH((embed_bwd<T, V, bf16>), grid, CU_WARP, 0, stream, (bf16 *)dtable,
                      (const T *)dy, ids, rows, dim, v0, vocab, scale);
    });
}

/* ---- permutation --------------------------------------------------------- */

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    permute(T *y, const T *x, const int32_t *src, size_t k, size_t dim)
{
    const T *from = x + (size_t)src[blockIdx.x] / k * dim;
    T *to = y + (size_t)blockIdx.x * dim;

    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V];

        cu_load(a, from + i);
        cu_store(to + i, a);
    }
}

extern "C" void cu_permute(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                           const int32_t *src, size_t count, size_t k, size_t dim)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(x) | dim * kn_type_size(type));

    if (count == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);

        CU_LAUNCH((permute<T, V>), (unsigned)count, threads, 0, cu_stream_of(pool), (T *)y,
                  (const T *)x, src, k, dim);
    });
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS) unpermute(T *y, const T *x, const int32_t *place,
                                                    const float *w, size_t k, size_t dim, bool add)
{
    size_t row = blockIdx.x;

    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float sum[V] = {};

        if (add)
            cu_load(sum, y + row * dim + i);
        for (size_t c = row * k; c < row * k + k; c++) {
            float a[V], by = w ? w[c] : 1.0f;

            if (place[c] < 0)
                continue;
            cu_load(a, x + (size_t)place[c] * dim + i);
            CU_UNROLL
            for (int j = 0; j < V; j++)
                sum[j] += by * a[j];
        }
        cu_store(y + row * dim + i, sum);
    }
}

extern "C" void cu_unpermute(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                             const int32_t *place, const float *w, size_t rows, size_t k,
                             size_t dim, bool add)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(x) | dim * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);

        CU_LAUNCH((unpermute<T, V>), (unsigned)rows, threads, 0, cu_stream_of(pool), (T *)y,
                  (const T *)x, place, w, k, dim, add);
    });
}

/* A block for each choice. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    unpermute_bwd(T *dx, float *dw, const T *dy, const T *x, const int32_t *place, const float *w,
                  size_t k, size_t dim)
{
    CU_SHARED(float, shared);
    size_t choice = blockIdx.x;
    int32_t at = place[choice];
    float by = w ? w[choice] : 1.0f, sum = 0;

    dy += choice / k * dim;
    for (size_t i = threadIdx.x * V; at >= 0 && i < dim; i += blockDim.x * V) {
        float g[V], a[V];

        cu_load(g, dy + i);
        if (dw) {
            cu_load(a, x + (size_t)at * dim + i);
            CU_UNROLL
            for (int j = 0; j < V; j++)
                sum += g[j] * a[j];
        }
        CU_UNROLL
        for (int j = 0; j < V; j++)
            g[j] *= by;
        cu_store(dx + (size_t)at * dim + i, g);
    }
    if (!dw)
        return;
    sum = cu_block_sum(sum, shared);
    if (threadIdx.x == 0)
        dw[choice] = sum;
}

extern "C" void cu_unpermute_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw,
                                 const void *dy, const void *x, const int32_t *place,
                                 const float *w, size_t rows, size_t k, size_t dim)
{
    bool wide =
        cu_on16(cu_addr(dx) | cu_addr(dy) | (dw ? cu_addr(x) : 0) | dim * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);

        CU_LAUNCH((unpermute_bwd<T, V>), (unsigned)(rows * k), threads,
                  THREADS / CU_WARP * sizeof(float), cu_stream_of(pool), (T *)dx, dw, (const T *)dy,
                  (const T *)x, place, w, k, dim);
    });
}
