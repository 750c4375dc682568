/* Flat arrays: copies, conversions, sums of squares, optimizers. */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned THREADS = 256;
static constexpr unsigned MOST_BLOCKS = 132 * 16;
static constexpr unsigned SUM_BLOCKS = 528;

/* This thread's first element and the distance to its next: a pass with packs of V. */
#define EACH(i, count, V)                                                                          \
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;                                \
    i < (count);                                                                                   \
    i += (size_t)gridDim.x * blockDim.x * V

static unsigned blocks_for(size_t packs)
{
    return (unsigned)cu_least(cu_blocks(packs, THREADS), MOST_BLOCKS);
}

extern "C" void cu_zero(struct kn_pool *pool, void *to, size_t bytes)
{
    if (bytes)
        cu_clear(cu_stream_of(pool), to, bytes);
}

/* ---- elementwise --------------------------------------------------------- */

template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS) add(T *y, const T *a, const T *b, size_t count)
{
    for (EACH(i, count, V)) {
        float p[V], q[V];

        cu_load(p, a + i);
        cu_load(q, b + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            p[j] += q[j];
        cu_store(y + i, p);
    }
}

extern "C" void cu_add(struct kn_pool *pool, enum kn_type type, void *y, const void *a,
                       const void *b, size_t count)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(a) | cu_addr(b) | count * kn_type_size(type));

    if (count == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((add<T, V>), blocks_for(count / V), THREADS, 0, cu_stream_of(pool), (T *)y,
                  (const T *)a, (const T *)b, count);
    });
}

/* A may be NULL. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS)
    add_scaled(T *y, const T *a, float scale, const T *b, size_t count)
{
    for (EACH(i, count, V)) {
        float p[V] = {0}, q[V];

        if (a)
            cu_load(p, a + i);
        cu_load(q, b + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            p[j] = a ? p[j] + scale * q[j] : scale * q[j];
        cu_store(y + i, p);
    }
}

extern "C" void cu_add_scaled(struct kn_pool *pool, enum kn_type type, void *y, const void *a,
                              float scale, const void *b, size_t count)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(a) | cu_addr(b) | count * kn_type_size(type));

    if (count == 0)
        return;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;

        CU_LAUNCH((add_scaled<T, V>), blocks_for(count / V), THREADS, 0, cu_stream_of(pool), (T *)y,
                  (const T *)a, scale, (const T *)b, count);
    });
}

/* y = x between types, in packs of 8: the fp32 side goes by two accesses. */
template <typename Y, typename X, int V>
static __global__ void CU_BOUNDS(THREADS) convert(Y *y, const X *x, size_t count)
{
    for (EACH(i, count, V)) {
        float p[V];

        cu_load(p, x + i);
        cu_store(y + i, p);
    }
}

template <typename Y, typename X>
static void launch_convert(struct kn_pool *pool, void *y, const void *x, size_t count)
{
    cu_stream *stream = cu_stream_of(pool);

    if (count % 8 == 0 && cu_on16(cu_addr(y) | cu_addr(x)))
        CU_LAUNCH((convert<Y, X, 8>), blocks_for(count / 8), THREADS, 0, stream, (Y *)y,
                  (const X *)x, count);
    else
        CU_LAUNCH((convert<Y, X, 1>), blocks_for(count), THREADS, 0, stream, (Y *)y, (const X *)x,
                  count);
}

extern "C" void cu_convert(struct kn_pool *pool, enum kn_type yt, void *y, enum kn_type xt,
                           const void *x, size_t count)
{
    if (count == 0)
        return;
    if (yt == xt)
        cu_copy(cu_stream_of(pool), y, x, count * kn_type_size(yt));
    else if (yt == KN_F32)
        launch_convert<float, bf16>(pool, y, x, count);
    else
        launch_convert<bf16, float>(pool, y, x, count);
}

template <typename Y, typename X>
static __global__ void CU_BOUNDS(THREADS)
    convert_rows(Y *y, size_t ldy, const X *x, size_t ldx, size_t cols, size_t count)
{
    for (EACH(i, count, 1)) {
        size_t row = i / cols, col = i % cols;

        y[row * ldy + col] = cu_round<Y>(cu_float(x[row * ldx + col]));
    }
}

extern "C" void cu_convert_rows(struct kn_pool *pool, enum kn_type yt, void *y, size_t ldy,
                                enum kn_type xt, const void *x, size_t ldx, size_t rows,
                                size_t cols)
{
    size_t count = rows * cols;

    if (count == 0)
        return;
    cu_typed(xt, false, [&](auto from) {
        cu_typed(yt, false, [&](auto to) {
            typedef typename decltype(from)::T X;
            typedef typename decltype(to)::T Y;

            CU_LAUNCH((convert_rows<Y, X>), blocks_for(count), THREADS, 0, cu_stream_of(pool),
                      (Y *)y, ldy, (const X *)x, ldx, cols, count);
        });
    });
}

/* ---- keys with a shared part --------------------------------------------- */

template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    keys_join(T *k, const T *x, const T *y, size_t ldy, size_t heads, size_t own, size_t shared,
              size_t count)
{
    size_t wide = own + shared;

    for (EACH(n, count, 1)) {
        size_t row = n / wide / heads, i = n % wide;

        k[n] = i < own ? x[n / wide * own + i] : y[row * ldy + i - own];
    }
}

extern "C" void cu_keys_join(struct kn_pool *pool, enum kn_type type, void *k, const void *x,
                             const void *y, size_t ldy, size_t rows, size_t heads, size_t own,
                             size_t shared)
{
    size_t count = rows * heads * (own + shared);

    if (count == 0)
        return;
    cu_typed(type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((keys_join<T>), blocks_for(count), THREADS, 0, cu_stream_of(pool), (T *)k,
                  (const T *)x, (const T *)y, ldy, heads, own, shared, count);
    });
}

/* A thread for each element of a row of dx, then of dy. */
template <typename T, typename Y>
static __global__ void CU_BOUNDS(THREADS)
    keys_split(T *dx, size_t lddx, Y *dy, size_t lddy, const T *dk, size_t heads, size_t own,
               size_t shared, size_t count)
{
    size_t wide = own + shared, each = heads * own + shared;

    for (EACH(n, count, 1)) {
        size_t row = n / each, i = n % each;
        const T *from = dk + row * heads * wide;
        float sum = 0;

        if (i < heads * own) {
            dx[row * lddx + i] = from[i / own * wide + i % own];
            continue;
        }
        i -= heads * own;
        for (size_t h = 0; h < heads; h++)
            sum += cu_float(from[h * wide + own + i]);
        dy[row * lddy + i] = cu_round<Y>(sum);
    }
}

extern "C" void cu_keys_split(struct kn_pool *pool, enum kn_type type, void *dx, size_t lddx,
                              enum kn_type yt, void *dy, size_t lddy, const void *dk, size_t rows,
                              size_t heads, size_t own, size_t shared)
{
    size_t count = rows * (heads * own + shared);

    if (count == 0)
        return;
    cu_typed(type, false, [&](auto form) {
        cu_typed(yt, false, [&](auto sum) {
            typedef typename decltype(form)::T T;
            typedef typename decltype(sum)::T Y;

            CU_LAUNCH((keys_split<T, Y>), blocks_for(count), THREADS, 0, cu_stream_of(pool),
                      (T *)dx, lddx, (Y *)dy, lddy, (const T *)dk, heads, own, shared, count);
        });
    });
}

/* ---- sums over an array -------------------------------------------------- */

/* part[b] = this block's share of the sum. */
template <typename T, int V>
static __global__ void CU_BOUNDS(THREADS) sum_parts(double *part, const T *x, size_t count)
{
    CU_SHARED(double, place);
    double sum = 0;

    for (EACH(i, count, V)) {
        float a[V];

        cu_load(a, x + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            sum += (double)a[j] * (double)a[j];
    }
    sum = cu_block_sum(sum, place);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

static __global__ void CU_BOUNDS(THREADS) sum_all(double *sum, const double *part, unsigned parts)
{
    CU_SHARED(double, place);
    double s = 0;

    for (unsigned i = threadIdx.x; i < parts; i += blockDim.x)
        s += part[i];
    s = cu_block_sum(s, place);
    if (threadIdx.x == 0)
        *sum = s;
}

extern "C" double cu_sumsq(struct kn_pool *pool, enum kn_type type, const void *x, size_t count)
{
    cu_stream *stream = cu_stream_of(pool);
    double *part = (double *)cu_stream_scratch(stream), *sum = cu_stream_result(stream);
    bool wide = cu_on16(cu_addr(x) | count * kn_type_size(type));
    size_t shared = THREADS / CU_WARP * sizeof(double);

    if (count == 0)
        return 0;
    cu_typed(type, wide, [&](auto form) {
        typedef typename decltype(form)::T T;
        constexpr int V = decltype(form)::V;
        unsigned parts = (unsigned)cu_least(cu_blocks(count / V, THREADS), SUM_BLOCKS);

        CU_LAUNCH((sum_parts<T, V>), parts, THREADS, shared, stream, part, (const T *)x, count);
        CU_LAUNCH(sum_all, 1, THREADS, shared, stream, sum, part, parts);
    });
    cu_stream_wait(stream);
    return *sum;
}

/* ---- optimizers --------------------------------------------------------- */

/* The factors of a step, computed once in double. */
struct step {
    float beta1, beta2, keep, rate, root, eps, grad_scale, rest1, rest2;
};

template <int V>
static __global__ void CU_BOUNDS(THREADS)
    adamw(step s, float *w, bf16 *low, float *m, float *v, const float *g, size_t count)
{
    for (EACH(i, count, V)) {
        float pw[V], pm[V], pv[V], pg[V];

        cu_load(pw, w + i);
        cu_load(pm, m + i);
        cu_load(pv, v + i);
        cu_load(pg, g + i);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float gj = pg[j] * s.grad_scale;

            pm[j] = s.beta1 * pm[j] + s.rest1 * gj;
            pv[j] = s.beta2 * pv[j] + s.rest2 * gj * gj;
            pw[j] = pw[j] * s.keep - s.rate * (pm[j] / (sqrtf(pv[j]) * s.root + s.eps));
        }
        cu_store(w + i, pw);
        cu_store(m + i, pm);
        cu_store(v + i, pv);
        if (low)
            cu_store(low + i, pw);
    }
}

static step step_of(const struct kn_adamw *hyper, double keep, double rate)
{
    double b1 = (double)hyper->beta1, b2 = (double)hyper->beta2, t = (double)hyper->step;
    step s;

    s.beta1 = hyper->beta1;
    s.beta2 = hyper->beta2;
    s.rest1 = (float)(1 - b1);
    s.rest2 = (float)(1 - b2);
    s.keep = (float)keep;
    s.rate = (float)(rate / (1 - pow(b1, t)));
    s.root = (float)(1 / sqrt(1 - pow(b2, t)));
    s.eps = hyper->eps;
    s.grad_scale = hyper->grad_scale;
    return s;
}

extern "C" void cu_adamw(struct kn_pool *pool, const struct kn_adamw *hyper, float *w, kn_bf16 *low,
                         float *m, float *v, const float *g, size_t count)
{
    bool wide =
        cu_on16(cu_addr(w) | cu_addr(low) | cu_addr(m) | cu_addr(v) | cu_addr(g)) && count % 8 == 0;
    step s = step_of(hyper, 1 - (double)hyper->lr * (double)hyper->weight_decay, (double)hyper->lr);

    if (count == 0)
        return;
    if (wide)
        CU_LAUNCH(adamw<8>, blocks_for(count / 8), THREADS, 0, cu_stream_of(pool), s, w,
                  (bf16 *)low, m, v, g, count);
    else
        CU_LAUNCH(adamw<1>, blocks_for(count), THREADS, 0, cu_stream_of(pool), s, w, (bf16 *)low, m,
                  v, g, count);
}

template <int V>
static __global__ void CU_BOUNDS(THREADS)
    lamb(step s, const float *w, float *m, float *v, float *g, size_t count)
{
    for (EACH(i, count, V)) {
        float pw[V], pm[V], pv[V], pg[V];

        cu_load(pw, w + i);
        cu_load(pm, m + i);
        cu_load(pv, v + i);
        cu_load(pg, g + i);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float gj = pg[j] * s.grad_scale;

            pm[j] = s.beta1 * pm[j] + s.rest1 * gj;
            pv[j] = s.beta2 * pv[j] + s.rest2 * gj * gj;
            pg[j] = s.rate * (pm[j] / (sqrtf(pv[j]) * s.root + s.eps)) + s.keep * pw[j];
        }
        cu_store(m + i, pm);
        cu_store(v + i, pv);
        cu_store(g + i, pg);
    }
}

extern "C" void cu_lamb(struct kn_pool *pool, const struct kn_adamw *hyper, const float *w,
                        float *m, float *v, float *g, size_t count)
{
    bool wide = cu_on16(cu_addr(w) | cu_addr(m) | cu_addr(v) | cu_addr(g)) && count % 8 == 0;
    step s = step_of(hyper, (double)hyper->weight_decay, 1);

    if (count == 0)
        return;
    if (wide)
        CU_LAUNCH(lamb<8>, blocks_for(count / 8), THREADS, 0, cu_stream_of(pool), s, w, m, v, g,
                  count);
    else
        CU_LAUNCH(lamb<1>, blocks_for(count), THREADS, 0, cu_stream_of(pool), s, w, m, v, g, count);
}

template <int V>
static __global__ void CU_BOUNDS(THREADS)
    momentum(struct kn_momentum h, const float *w, float *m, float *g, size_t count)
{
    for (EACH(i, count, V)) {
        float pw[V], pm[V], pg[V];

        cu_load(pw, w + i);
        cu_load(pm, m + i);
        cu_load(pg, g + i);
        CU_UNROLL
        for (int j = 0; j < V; j++) {
            float gj = h.grad_scale * pg[j] + h.weight_decay * pw[j];

            pm[j] = h.mu * pm[j] + gj;
            pg[j] = h.nesterov ? gj + h.mu * pm[j] : pm[j];
        }
        cu_store(m + i, pm);
        cu_store(g + i, pg);
    }
}

extern "C" void cu_momentum(struct kn_pool *pool, const struct kn_momentum *hyper, const float *w,
                            float *m, float *g, size_t count)
{
    bool wide = cu_on16(cu_addr(w) | cu_addr(m) | cu_addr(g)) && count % 8 == 0;

    if (count == 0)
        return;
    if (wide)
        CU_LAUNCH(momentum<8>, blocks_for(count / 8), THREADS, 0, cu_stream_of(pool), *hyper, w, m,
                  g, count);
    else
        CU_LAUNCH(momentum<1>, blocks_for(count), THREADS, 0, cu_stream_of(pool), *hyper, w, m, g,
                  count);
}

template <int V>
static __global__ void CU_BOUNDS(THREADS)
    combine(float *y, bf16 *low, float a, const float *x, float b, const float *z, size_t count)
{
    for (EACH(i, count, V)) {
        float px[V], pz[V];

        cu_load(px, x + i);
        cu_load(pz, z + i);
        CU_UNROLL
        for (int j = 0; j < V; j++)
            px[j] = a * px[j] + b * pz[j];
        cu_store(y + i, px);
        if (low)
            cu_store(low + i, px);
    }
}

extern "C" void cu_combine(struct kn_pool *pool, float *y, kn_bf16 *low, float a, const float *x,
                           float b, const float *z, size_t count)
{
    bool wide = cu_on16(cu_addr(y) | cu_addr(low) | cu_addr(x) | cu_addr(z)) && count % 8 == 0;

    if (count == 0)
        return;
    if (wide)
        CU_LAUNCH(combine<8>, blocks_for(count / 8), THREADS, 0, cu_stream_of(pool), y, (bf16 *)low,
                  a, x, b, z, count);
    else
        CU_LAUNCH(combine<1>, blocks_for(count), THREADS, 0, cu_stream_of(pool), y, (bf16 *)low, a,
                  x, b, z, count);
}
