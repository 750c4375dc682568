/*
 * Attention by its definition, for any width and type: a warp for each query, or for each key on
 * the way back, with the row's elements spread over the lanes. For what attn_tiled.cu does not
 * take.
 */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned WARPS = 4, THREADS = WARPS * CU_WARP, MOST = KN_MAX_HEAD_DIM / CU_WARP;

/* Where a warp is: token AT of sample B, head H of HEADS. */
struct spot {
    size_t b, h, at, row;
    bool in;
};

static __device__ __forceinline__ spot spot_of(size_t batch, size_t heads, size_t seq)
{
    size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / CU_WARP;
    spot s;

    s.at = i % seq;
    s.h = i / seq % heads;
    s.b = i / seq / heads;
    s.row = s.b * seq + s.at;
    s.in = s.b < batch;
    return s;
}

/* This lane's elements of head H of a row. */
template <typename T>
static __device__ __forceinline__ void get(float (&y)[MOST], const void *x, size_t ld, size_t row,
                                           size_t h, size_t d)
{
    const T *p = (const T *)x + row * ld + h * d;

    CU_UNROLL
    for (unsigned j = 0; j < MOST; j++) {
        unsigned i = j * CU_WARP + threadIdx.x % CU_WARP;

        y[j] = i < d ? cu_float(p[i]) : 0.0f;
    }
}

template <typename T>
static __device__ __forceinline__ void put(void *x, size_t ld, size_t row, size_t h, size_t d,
                                           const float (&y)[MOST])
{
    T *p = (T *)x + row * ld + h * d;

    CU_UNROLL
    for (unsigned j = 0; j < MOST; j++) {
        unsigned i = j * CU_WARP + threadIdx.x % CU_WARP;

        if (i < d)
            p[i] = cu_round<T>(y[j]);
    }
}

static __device__ __forceinline__ float dot(const float (&x)[MOST], const float (&y)[MOST])
{
    float sum = 0;

    CU_UNROLL
    for (unsigned j = 0; j < MOST; j++)
        sum += x[j] * y[j];
    return cu_warp_sum(sum);
}

static __device__ __forceinline__ void axpy(float (&y)[MOST], float a, const float (&x)[MOST])
{
    CU_UNROLL
    for (unsigned j = 0; j < MOST; j++)
        y[j] += a * x[j];
}

template <typename T>
static __global__ void CU_BOUNDS(THREADS) fwd(kn_attn a, void *out, size_t ldo, float *lse)
{
    spot s = spot_of(a.batch, a.heads, a.seq);
    size_t first = s.row - s.at, kv = s.h / (a.heads / a.kv_heads);
    float q[MOST], k[MOST], v[MOST], o[MOST] = {}, max = -INFINITY, sum = 0;

    if (!s.in)
        return;
    get<T>(q, a.q, a.ldq, s.row, s.h, a.d);
    for (size_t l = 0; l <= s.at; l++) {
        float x, top, keep, p;

        get<T>(k, a.k, a.ldk, first + l, kv, a.d);
        get<T>(v, a.v, a.ldv, first + l, kv, a.d);
        x = a.scale * dot(q, k);
        top = fmaxf(max, x);
        keep = expf(max - top);
        p = expf(x - top);
        sum = sum * keep + p;
        CU_UNROLL
        for (unsigned j = 0; j < MOST; j++)
            o[j] = o[j] * keep + p * v[j];
        max = top;
    }
    CU_UNROLL
    for (unsigned j = 0; j < MOST; j++)
        o[j] /= sum;
    put<T>(out, ldo, s.row, s.h, a.d, o);
    if (threadIdx.x % CU_WARP == 0)
        lse[(s.b * a.heads + s.h) * a.seq + s.at] = max + logf(sum);
}

/* delta (batch, heads, seq) = sum over d of o d_o; for attn_tiled.cu, too. */
template <typename T>
static __global__ void CU_BOUNDS(THREADS) dots(kn_attn a, kn_attn_grad g, float *delta)
{
    spot s = spot_of(a.batch, a.heads, a.seq);
    float o[MOST], y[MOST], sum;

    if (!s.in)
        return;
    get<T>(o, g.o, g.ldo, s.row, s.h, a.d);
    get<T>(y, g.d_o, g.lddo, s.row, s.h, a.d);
    sum = dot(o, y);
    if (threadIdx.x % CU_WARP == 0)
        delta[(s.b * a.heads + s.h) * a.seq + s.at] = sum;
}

template <typename T>
static __global__ void CU_BOUNDS(THREADS) grad_q(kn_attn a, kn_attn_grad g, const float *delta)
{
    spot s = spot_of(a.batch, a.heads, a.seq);
    size_t first = s.row - s.at, kv = s.h / (a.heads / a.kv_heads);
    size_t at = (s.b * a.heads + s.h) * a.seq + s.at;
    float q[MOST], k[MOST], v[MOST], y[MOST], dq[MOST] = {};

    if (!s.in)
        return;
    get<T>(q, a.q, a.ldq, s.row, s.h, a.d);
    get<T>(y, g.d_o, g.lddo, s.row, s.h, a.d);
    for (size_t l = 0; l <= s.at; l++) {
        get<T>(k, a.k, a.ldk, first + l, kv, a.d);
        get<T>(v, a.v, a.ldv, first + l, kv, a.d);
        axpy(dq, a.scale * expf(a.scale * dot(q, k) - g.lse[at]) * (dot(y, v) - delta[at]), k);
    }
    put<T>(g.dq, g.lddq, s.row, s.h, a.d, dq);
}

template <typename T>
static __global__ void CU_BOUNDS(THREADS) grad_kv(kn_attn a, kn_attn_grad g, const float *delta)
{
    spot s = spot_of(a.batch, a.kv_heads, a.seq);
    size_t first = s.row - s.at, group = a.heads / a.kv_heads;
    float q[MOST], k[MOST], v[MOST], y[MOST], dk[MOST] = {}, dv[MOST] = {};

    if (!s.in)
        return;
    get<T>(k, a.k, a.ldk, s.row, s.h, a.d);
    get<T>(v, a.v, a.ldv, s.row, s.h, a.d);
    for (size_t h = s.h * group; h < (s.h + 1) * group; h++) {
        for (size_t t = s.at; t < a.seq; t++) {
            size_t at = (s.b * a.heads + h) * a.seq + t;
            float p;

            get<T>(q, a.q, a.ldq, first + t, h, a.d);
            get<T>(y, g.d_o, g.lddo, first + t, h, a.d);
            p = expf(a.scale * dot(q, k) - g.lse[at]);
            axpy(dv, p, y);
            axpy(dk, a.scale * p * (dot(y, v) - delta[at]), q);
        }
    }
    put<T>(g.dk, g.lddk, s.row, s.h, a.d, dk);
    put<T>(g.dv, g.lddv, s.row, s.h, a.d, dv);
}

static unsigned blocks_of(const struct kn_attn *attn, size_t heads)
{
    return (unsigned)cu_blocks(attn->batch * attn->seq * heads, WARPS);
}

void cu_attn_fwd_plain(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo,
                       float *lse)
{
    kn_attn a = *attn;

    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((fwd<T>), blocks_of(attn, a.heads), THREADS, 0, stream, a, out, ldo, lse);
    });
}

void cu_attn_delta(cu_stream *stream, const struct kn_attn *attn, const struct kn_attn_grad *grad,
                   float *delta)
{
    kn_attn a = *attn;
    kn_attn_grad g = *grad;

    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((dots<T>), blocks_of(attn, a.heads), THREADS, 0, stream, a, g, delta);
    });
}

void cu_attn_bwd_plain(cu_stream *stream, const struct kn_attn *attn,
                       const struct kn_attn_grad *grad, const float *delta)
{
    kn_attn a = *attn;
    kn_attn_grad g = *grad;

    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((grad_q<T>), blocks_of(attn, a.heads), THREADS, 0, stream, a, g, delta);
        CU_LAUNCH((grad_kv<T>), blocks_of(attn, a.kv_heads), THREADS, 0, stream, a, g, delta);
    });
}
