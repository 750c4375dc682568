/*
 * LayerNorm, RMSNorm of heads, GELU, squared ReLU, GeGLU and biases. Sums over rows: block (., p)
 * of a grid adds up every so-manyth row from p on, and cu_add_parts() the blocks, in a fixed order.
 */
#include "kernels/cuda/gated.cuh"

static constexpr unsigned THREADS = 256;
static constexpr unsigned SLICES = 264; /* of the rows: two for each multiprocessor of an H100 */
static constexpr unsigned PLACE = THREADS / CU_WARP * 4;

/* Slices of ROWS whose sums of COLUMNS elements find room in the stream's scratch. */
static unsigned slices(size_t rows, size_t columns)
{
    size_t room = CU_SCRATCH_BYTES / (columns * sizeof(float));

    return (unsigned)cu_least(cu_least(rows, SLICES), room ? room : 1);
}

/* ---- LayerNorm ----------------------------------------------------------- */

/* A block for each row. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    layernorm_fwd(T *y, float *stats, const T *x, const T *w, const T *b, size_t dim, float eps,
                  float offset)
{
    CU_SHARED(float, place);
    size_t row = blockIdx.x;
    float sum = 0, spread = 0, mean, r;

    x += row * dim;
    y += row * dim;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V];

        cu_load(a, x + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            sum += a[j];
    }
    mean = cu_block_sum(sum, place) / (float)dim;
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V];

        cu_load(a, x + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            spread += (a[j] - mean) * (a[j] - mean);
    }
    r = 1.0f / sqrtf(cu_block_sum(spread, place) / (float)dim + eps);
    if (threadIdx.x == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = r;
    }
    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
        float a[V], scale[V], shift[V] = {};

        cu_load(a, x + i);
        cu_load(scale, w + i);
        if (b)
            cu_load(shift, b + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] = (a[j] - mean) * r * (scale[j] + offset) + shift[j];
        cu_store(y + i, a);
    }
}

extern "C" void cu_layernorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, float *stats,
                                 const void *x, const void *w, const void *b, size_t rows,
                                 size_t dim, float eps, float offset)
{
    bool wide =
        cu_on16(cu_addr(y) | cu_addr(x) | cu_addr(w) | cu_addr(b) | dim * kn_type_size(type));

    if (rows == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);

        CU_LAUNCH((layernorm_fwd<T, V>), (unsigned)rows, threads, PLACE, cu_stream_of(pool), (T *)y,
                  stats, (const T *)x, (const T *)w, (const T *)b, dim, eps, offset);
    });
}

/* dx of rows p, p + blocks, ... of block p, and in PART (blocks, 2 dim) its share of dw, then of
 * db. A thread always has the same columns, so their sums need no barrier. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    layernorm_bwd(T *dx, float *part, const T *dy, const T *x, const T *w, const float *stats,
                  size_t rows, size_t dim, bool add, float offset)
{
    CU_SHARED(float, place);
    float *dw = part + blockIdx.x * 2 * dim, *db = dw + dim;

    for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V)
        for (int j = 0; j < V; j++)
            dw[i + j] = db[i + j] = 0;
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *dyr = dy + row * dim, *xr = x + row * dim;
        T *dxr = dx + row * dim;
        float mean = stats[2 * row], r = stats[2 * row + 1], all = 0, along = 0;

        for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
            float g[V], a[V], b[V];

            cu_load(g, dyr + i);
            cu_load(a, xr + i);
            cu_load(b, w + i);
            CU_UNROLL
            for (int j = 0; j < V; j++) {
                float n = (a[j] - mean) * r, scale = b[j] + offset;

                all += g[j] * scale;
                along += g[j] * scale * n;
                dw[i + j] += g[j] * n;
                db[i + j] += g[j];
            }
        }
        all = cu_block_sum(all, place) / (float)dim;
        along = cu_block_sum(along, place) / (float)dim;
        for (size_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
            float g[V], a[V], b[V], old[V] = {};

            cu_load(g, dyr + i);
            cu_load(a, xr + i);
            cu_load(b, w + i);
            if (add)
                cu_load(old, dxr + i);
            CU_UNROLL
            for (int j = 0; j < V; j++)
                old[j] += r * (g[j] * (b[j] + offset) - all - (a[j] - mean) * r * along);
            cu_store(dxr + i, old);
        }
    }
}

extern "C" void cu_layernorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, float *dw,
                                 float *db, const void *dy, const void *x, const void *w,
                                 const float *stats, size_t rows, size_t dim, bool add,
                                 float offset)
{
    bool wide =
        cu_on16(cu_addr(dx) | cu_addr(dy) | cu_addr(x) | cu_addr(w) | dim * kn_type_size(type));
    cu_stream *stream = cu_stream_of(pool);
    float *part = (float *)cu_stream_scratch(stream);
    unsigned blocks;

    if (rows == 0)
        return;
    blocks = slices(rows, 2 * dim);
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);

        CU_LAUNCH((layernorm_bwd<T, V>), blocks, threads, PLACE, stream, (T *)dx, part,
                  (const T *)dy, (const T *)x, (const T *)w, stats, rows, dim, add, offset);
    });
    cu_add_parts(stream, dw, part, blocks, dim, 2 * dim);
    if (db)
        cu_add_parts(stream, db, part + dim, blocks, dim, 2 * dim);
}

/* ---- RMSNorm of heads ---------------------------------------------------- */

/* A warp for each head of each row. */
template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    headnorm_fwd(T *y, size_t ldy, float *rrms, const T *x, size_t ldx, const T *w, size_t count,
                 size_t heads, size_t dim, float eps, float offset)
{
    size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / CU_WARP;
    unsigned lane = threadIdx.x % CU_WARP;
    const T *from = x + warp / heads * ldx + warp % heads * dim;
    T *to = y + warp / heads * ldy + warp % heads * dim;
    float sum = 0, r;

    if (warp >= count)
        return;
    for (size_t i = lane; i < dim; i += CU_WARP)
        sum += cu_float(from[i]) * cu_float(from[i]);
    r = 1.0f / sqrtf(cu_warp_sum(sum) / (float)dim + eps);
    if (lane == 0)
        rrms[warp] = r;
    for (size_t i = lane; i < dim; i += CU_WARP)
        to[i] = cu_round<T>(cu_float(from[i]) * r * (cu_float(w[i]) + offset));
}

extern "C" void cu_headnorm_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                                float *rrms, const void *x, size_t ldx, const void *w, size_t rows,
                                size_t heads, size_t dim, float eps, float offset)
{
    size_t count = rows * heads;

    if (count == 0)
        return;
    cu_typed(type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((headnorm_fwd<T>), (unsigned)cu_blocks(count * CU_WARP, THREADS), THREADS, 0,
                  cu_stream_of(pool), (T *)y, ldy, rrms, (const T *)x, ldx, (const T *)w, count,
                  heads, dim, eps, offset);
    });
}

/* A warp for every so-manyth head, and in PART (warps, dim) its share of dw. */
template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    headnorm_bwd(T *dx, size_t lddx, float *part, const T *dy, size_t lddy, const T *x, size_t ldx,
                 const T *w, const float *rrms, size_t count, size_t heads, size_t dim,
                 size_t warps, float offset)
{
    size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / CU_WARP;
    unsigned lane = threadIdx.x % CU_WARP;
    float *dw = part + warp * dim;

    if (warp >= warps)
        return;
    for (size_t i = lane; i < dim; i += CU_WARP)
        dw[i] = 0;
    for (size_t n = warp; n < count; n += warps) {
        const T *xr = x + n / heads * ldx + n % heads * dim;
        const T *dyr = dy + n / heads * lddy + n % heads * dim;
        T *dxr = dx + n / heads * lddx + n % heads * dim;
        float r = rrms[n], mean = 0;

        for (size_t i = lane; i < dim; i += CU_WARP) {
            float g = cu_float(dyr[i]), a = cu_float(xr[i]);

            mean += g * (cu_float(w[i]) + offset) * a;
            dw[i] += g * a * r;
        }
        mean = cu_warp_sum(mean) / (float)dim * r * r;
        for (size_t i = lane; i < dim; i += CU_WARP)
            dxr[i] = cu_round<T>(
                r * (cu_float(dyr[i]) * (cu_float(w[i]) + offset) - cu_float(xr[i]) * mean));
    }
}

extern "C" void cu_headnorm_bwd(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx,
                                float *dw, const void *dy, size_t lddy, const void *x, size_t ldx,
                                const void *w, const float *rrms, size_t rows, size_t heads,
                                size_t dim, float offset)
{
    cu_stream *stream = cu_stream_of(pool);
    float *part = (float *)cu_stream_scratch(stream);
    size_t count = rows * heads, warps;

    if (count == 0)
        return;
    warps = cu_least(count, SLICES * THREADS / CU_WARP);
    warps = cu_least(warps, CU_SCRATCH_BYTES / (dim * sizeof(float)));
    cu_typed(type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((headnorm_bwd<T>), (unsigned)cu_blocks(warps * CU_WARP, THREADS), THREADS, 0,
                  stream, (T *)dx, lddx, part, (const T *)dy, lddy, (const T *)x, ldx, (const T *)w,
                  rrms, count, heads, dim, warps, offset);
    });
    cu_add_parts(stream, dw, part, warps, dim, dim);
}

/* ---- GELU and squared ReLU ----------------------------------------------- */

/* 2 sqrt(2 / pi), and that times 0.044715. */
static constexpr float LINE = 1.59576912f, CUBE = 0.0713548163f;

static __device__ __forceinline__ float gelu(float x, bool tanh_form)
{
    if (!tanh_form)
        return 0.5f * x * (1.0f + erff(x * 0.707106781f));
    return x * cu_sigmoid(x * (LINE + CUBE * x * x));
}

static __device__ __forceinline__ float gelu_slope(float x, bool tanh_form)
{
    float s;

    if (!tanh_form)
        return 0.5f * (1.0f + erff(x * 0.707106781f)) + x * 0.398942280f * expf(-0.5f * x * x);
    x = fminf(fmaxf(x, -20.0f), 20.0f); /* beyond, the slope is 0 or 1 */
    s = cu_sigmoid(x * (LINE + CUBE * x * x));
    return s + x * s * (1.0f - s) * (LINE + 3.0f * CUBE * x * x);
}

static __device__ __forceinline__ float act(float x, enum kn_act form)
{
    if (form == KN_RELU2)
        return x <= 0.0f ? 0.0f : x * x; /* NaN stays NaN */
    return gelu(x, form == KN_GELU_TANH);
}

static __device__ __forceinline__ float act_slope(float x, enum kn_act form)
{
    if (form == KN_RELU2)
        return x <= 0.0f ? 0.0f : 2.0f * x;
    return gelu_slope(x, form == KN_GELU_TANH);
}

/* Blocks of columns across, rows down. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    act_fwd(T *y, size_t ldy, const T *x, size_t ldx, const T *bias, size_t rows, size_t ffn,
            enum kn_act form)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float b[V] = {};

    if (i >= ffn)
        return;
    if (bias)
        cu_load(b, bias + i);
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        float a[V];

        cu_load(a, x + row * ldx + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] = act(a[j] + b[j], form);
        cu_store(y + row * ldy + i, a);
    }
}

extern "C" void cu_act_fwd(struct kn_pool *pool, enum kn_type type, void *y, size_t ldy,
                           const void *x, size_t ldx, const void *bias, size_t rows, size_t ffn,
                           enum kn_act form)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(y) | cu_addr(x) | cu_addr(bias) | (ldy | ldx | ffn) * elem);

    if (rows == 0 || ffn == 0)
        return;
    cu_typed(type, wide, [&](auto pack) {
        typedef typename decltype(pack)::T T;
        constexpr int V = decltype(pack)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), THREADS);
        dim3 grid((unsigned)cu_blocks(ffn, (size_t)threads * V), (unsigned)cu_least(rows, 65535));

        CU_LAUNCH((act_fwd<T, V>), grid, threads, 0, cu_stream_of(pool), (T *)y, ldy, (const T *)x,
                  ldx, (const T *)bias, rows, ffn, form);
    });
}

/* The same, and in PART (slices, ffn), unless NULL, the slice's share of dbias. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    act_bwd(T *dx, size_t lddx, float *part, const T *dy, size_t lddy, const T *x, size_t ldx,
            const T *bias, size_t rows, size_t ffn, enum kn_act form)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float b[V] = {}, sum[V] = {};

    if (i >= ffn)
        return;
    if (bias)
        cu_load(b, bias + i);
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        float a[V], d[V];

        cu_load(a, x + row * ldx + i);
        cu_load(d, dy + row * lddy + i);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            d[j] *= act_slope(a[j] + b[j], form);
            sum[j] += d[j];
        }
        cu_store(dx + row * lddx + i, d);
    }
    for (int j = 0; part && j < V; j++)
        part[blockIdx.y * ffn + i + j] = sum[j];
}

extern "C" void cu_act_bwd(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx,
                           float *dbias, const void *dy, size_t lddy, const void *x, size_t ldx,
                           const void *bias, size_t rows, size_t ffn, enum kn_act form)
{
    size_t elem = kn_type_size(type);
    bool wide = cu_on16(cu_addr(dx) | cu_addr(dy) | cu_addr(x) | cu_addr(bias) |
                        (lddx | lddy | ldx | ffn) * elem);
    cu_stream *stream = cu_stream_of(pool);
    float *part = dbias ? (float *)cu_stream_scratch(stream) : NULL;
    unsigned down;

    if (rows == 0 || ffn == 0)
        return;
    down = dbias ? slices(rows, ffn) : (unsigned)cu_least(rows, 65535);
    cu_typed(type, wide, [&](auto pack) {
        typedef typename decltype(pack)::T T;
        constexpr int V = decltype(pack)::V;
        unsigned threads = cu_threads(cu_blocks(ffn, V), THREADS);
        dim3 grid((unsigned)cu_blocks(ffn, (size_t)threads * V), down);

        CU_LAUNCH((act_bwd<T, V>), grid, threads, 0, stream, (T *)dx, lddx, part, (const T *)dy,
                  lddy, (const T *)x, ldx, (const T *)bias, rows, ffn, form);
    });
    if (dbias)
        cu_add_parts(stream, dbias, part, down, ffn, ffn);
}

/* ---- GeGLU --------------------------------------------------------------- */

struct geglu {
    static __device__ __forceinline__ float forward(float gate, float up)
    {
        return gelu(gate, true) * up;
    }
    static __device__ __forceinline__ void backward(float &gate, float &up, float dy)
    {
        float k = dy * up;

        up = dy * gelu(gate, true);
        gate = k * gelu_slope(gate, true);
    }
};

CU_GATED(geglu, geglu)

/* ---- biases -------------------------------------------------------------- */

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    bias_fwd(T *y, const T *x, const T *bias, size_t rows, size_t dim)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float b[V];

    if (i >= dim)
        return;
    cu_load(b, bias + i);
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        float a[V];

        cu_load(a, x + row * dim + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            a[j] += b[j];
        cu_store(y + row * dim + i, a);
    }
}

extern "C" void cu_bias_fwd(struct kn_pool *pool, enum kn_type type, void *y, const void *x,
                            const void *bias, size_t rows, size_t dim)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(x) | cu_addr(bias) | dim * kn_type_size(type));

    if (rows == 0 || dim == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);
        dim3 grid((unsigned)cu_blocks(dim, (size_t)threads * V), (unsigned)cu_least(rows, 65535));

        CU_LAUNCH((bias_fwd<T, V>), grid, threads, 0, cu_stream_of(pool), (T *)y, (const T *)x,
                  (const T *)bias, rows, dim);
    });
}

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    bias_bwd(float *part, const T *dy, size_t rows, size_t dim)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float sum[V] = {};

    if (i >= dim)
        return;
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        float d[V];

        cu_load(d, dy + row * dim + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            sum[j] += d[j];
    }
    for (int j = 0; j < V; j++)
        part[blockIdx.y * dim + i + j] = sum[j];
}

extern "C" void cu_bias_bwd(struct kn_pool *pool, enum kn_type type, float *dbias, const void *dy,
                            size_t rows, size_t dim)
{
    bool wide = cu_on16(cu_addr(dy) | dim * kn_type_size(type));
    cu_stream *stream = cu_stream_of(pool);
    float *part = (float *)cu_stream_scratch(stream);
    unsigned down;

    if (rows == 0 || dim == 0)
        return;
    down = slices(rows, dim);
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned threads = cu_threads(cu_blocks(dim, V), THREADS);
        dim3 grid((unsigned)cu_blocks(dim, (size_t)threads * V), down);

        CU_LAUNCH((bias_bwd<T, V>), grid, threads, 0, stream, part, (const T *)dy, rows, dim);
    });
    cu_add_parts(stream, dbias, part, down, dim, dim);
}
