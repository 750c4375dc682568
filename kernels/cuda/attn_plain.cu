/*
 * Attention by its definition, for any width and type: a warp for each query, or for each key on
 * the way back, with the row's elements spread over the lanes. For what attn_tiled.cu does not
 * take.
 */
#include "kernels/cuda/ops.cuh"

static constexpr unsigned WARPS = 4, THREADS = WARPS * CU_WARP, MOST = KN_MAX_HEAD_DIM / CU_WARP;

/* Where a warp is: token AT of SEQ of sample B, whose samples begin every ROWS rows, head H of
 * HEADS.
 */
struct spot {
    size_t b, h, at, row;
    bool in;
};

static __device__ __forceinline__ spot spot_of(size_t batch, size_t heads, size_t seq, size_t rows)
{
    size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / CU_WARP;
    spot s;

    s.at = i % seq;
    s.h = i / seq % heads;
    s.b = i / seq / heads;
    s.row = s.b * rows + s.at;
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

/* What a row holds, plus Y. */
static __device__ __forceinline__ void add_to(void *x, size_t ld, size_t row, size_t h, size_t d,
                                              float (&y)[MOST])
{
    float was[MOST];

    get<float>(was, x, ld, row, h, d);
    axpy(y, 1, was);
    put<float>(x, ld, row, h, d, y);
}

/* Keys that query T sees. */
static __device__ __forceinline__ size_t seen(const kn_attn_part &p, size_t t)
{
    return p.causal ? t + 1 : p.keys;
}

/* How many of these are too far behind for its window or its document: the first ones. Its sample
 * begins at row FIRST of q. */
static __device__ __forceinline__ size_t behind(const kn_attn &a, const kn_attn_part &p,
                                                size_t first, size_t t)
{
    size_t end = t + p.lead + 1, sees = a.window ? a.window : end;

    if (a.age && (size_t)a.age[first + t] + 1 < sees)
        sees = (size_t)a.age[first + t] + 1;
    return end <= sees ? 0 : end - sees < p.keys ? end - sees : p.keys;
}

/* The score of a product of a query and a key. */
static __device__ __forceinline__ float score(const kn_attn &a, float product)
{
    float s = a.scale * product;

    return a.cap > 0 ? a.cap * tanhf(s / a.cap) : s;
}

/* How much it moves with what the cap is put on. */
static __device__ __forceinline__ float slope(const kn_attn &a, float score)
{
    float t = a.cap > 0 ? score / a.cap : 0.0f;

    return 1.0f - t * t;
}

/* Y: type of out. A merge continues with a key whose score is the lse of the others and whose value
 * is their output. */
template <typename T, typename Y>
static __global__ void CU_BOUNDS(THREADS)
    fwd(kn_attn a, kn_attn_part part, void *out, size_t ldo, float *lse)
{
    spot s = spot_of(a.batch, a.heads, a.seq, part.q_rows);
    size_t first = s.b * part.k_rows, kv = s.h / (a.heads / a.kv_heads), end = seen(part, s.at);
    size_t at = (s.b * a.heads + s.h) * part.q_rows + s.at;
    float q[MOST], k[MOST], v[MOST], o[MOST] = {}, max = -INFINITY, sum = 0;

    if (!s.in)
        return;
    if (part.merge) {
        get<Y>(o, out, ldo, s.row, s.h, a.dv);
        max = lse[at];
        sum = 1;
    }
    get<T>(q, a.q, a.ldq, s.row, s.h, a.d);
    for (size_t l = behind(a, part, s.b * part.q_rows, s.at); l < end; l++) {
        float x, top, keep, p;

        get<T>(k, a.k, a.ldk, first + l, kv, a.d);
        get<T>(v, a.v, a.ldv, first + l, kv, a.dv);
        x = score(a, dot(q, k));
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
        o[j] = sum > 0 ? o[j] / sum : 0.0f;
    put<Y>(out, ldo, s.row, s.h, a.dv, o);
    if (threadIdx.x % CU_WARP == 0)
        lse[at] = sum > 0 ? max + logf(sum) : -INFINITY;
}

/* delta (batch, heads, seq) = sum over dv of o d_o; for attn_tiled.cu, too. */
template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    dots(kn_attn a, size_t q_rows, kn_attn_grad g, float *delta)
{
    spot s = spot_of(a.batch, a.heads, a.seq, q_rows);
    float o[MOST], y[MOST], sum;

    if (!s.in)
        return;
    get<T>(o, g.o, g.ldo, s.row, s.h, a.dv);
    get<T>(y, g.d_o, g.lddo, s.row, s.h, a.dv);
    sum = dot(o, y);
    if (threadIdx.x % CU_WARP == 0)
        delta[(s.b * a.heads + s.h) * a.seq + s.at] = sum;
}

template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    grad_q(kn_attn a, kn_attn_part part, bool sums, kn_attn_grad g, const float *delta)
{
    spot s = spot_of(a.batch, a.heads, a.seq, part.q_rows);
    size_t first = s.b * part.k_rows, kv = s.h / (a.heads / a.kv_heads), end = seen(part, s.at);
    size_t at = (s.b * a.heads + s.h) * a.seq + s.at;
    size_t lse = (s.b * a.heads + s.h) * part.q_rows + s.at;
    float q[MOST], k[MOST], v[MOST], y[MOST], dq[MOST] = {};

    if (!s.in)
        return;
    get<T>(q, a.q, a.ldq, s.row, s.h, a.d);
    get<T>(y, g.d_o, g.lddo, s.row, s.h, a.dv);
    for (size_t l = behind(a, part, s.b * part.q_rows, s.at); l < end; l++) {
        float x;

        get<T>(k, a.k, a.ldk, first + l, kv, a.d);
        get<T>(v, a.v, a.ldv, first + l, kv, a.dv);
        x = score(a, dot(q, k));
        axpy(dq, a.scale * expf(x - g.lse[lse]) * (dot(y, v) - delta[at]) * slope(a, x), k);
    }
    if (sums)
        add_to(g.dq, g.lddq, s.row, s.h, a.d, dq);
    else
        put<T>(g.dq, g.lddq, s.row, s.h, a.d, dq);
}

template <typename T>
static __global__ void CU_BOUNDS(THREADS, 1)
    grad_kv(kn_attn a, kn_attn_part part, bool sums, kn_attn_grad g, const float *delta)
{
    spot s = spot_of(a.batch, a.kv_heads, part.keys, part.k_rows);
    size_t first = s.b * part.q_rows, group = a.heads / a.kv_heads;
    float q[MOST], k[MOST], v[MOST], y[MOST], dk[MOST] = {}, dv[MOST] = {};

    if (!s.in)
        return;
    get<T>(k, a.k, a.ldk, s.row, s.h, a.d);
    get<T>(v, a.v, a.ldv, s.row, s.h, a.dv);
    for (size_t h = s.h * group; h < (s.h + 1) * group; h++) {
        for (size_t t = part.causal ? s.at : 0; t < a.seq && behind(a, part, first, t) <= s.at;
             t++) { /* what is behind only grows */
            size_t at = (s.b * a.heads + h) * a.seq + t;
            float x, p;

            get<T>(q, a.q, a.ldq, first + t, h, a.d);
            get<T>(y, g.d_o, g.lddo, first + t, h, a.dv);
            x = score(a, dot(q, k));
            p = expf(x - g.lse[(s.b * a.heads + h) * part.q_rows + t]);
            axpy(dv, p, y);
            axpy(dk, a.scale * p * (dot(y, v) - delta[at]) * slope(a, x), q);
        }
    }
    if (sums) {
        add_to(g.dk, g.lddk, s.row, s.h, a.d, dk);
        add_to(g.dv, g.lddv, s.row, s.h, a.dv, dv);
    } else {
        put<T>(g.dk, g.lddk, s.row, s.h, a.d, dk);
        put<T>(g.dv, g.lddv, s.row, s.h, a.dv, dv);
    }
}

/* For SEQ tokens of each sample. */
static unsigned blocks_of(const struct kn_attn *attn, size_t heads, size_t seq)
{
    return (unsigned)cu_blocks(attn->batch * seq * heads, WARPS);
}

static kn_attn_part whole(const kn_attn &a)
{
    return {a.seq, a.seq, a.seq, 0, true, false};
}

void cu_attn_fwd_plain(cu_stream *stream, const struct kn_attn *attn, void *out, size_t ldo,
                       float *lse)
{
    kn_attn a = *attn;

    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((fwd<T, T>), blocks_of(attn, a.heads, a.seq), THREADS, 0, stream, a, whole(a),
                  out, ldo, lse);
    });
}

void cu_attn_part_fwd_plain(cu_stream *stream, const struct kn_attn *attn,
                            const struct kn_attn_part *part, float *out, size_t ldo, float *lse)
{
    kn_attn a = *attn;
    kn_attn_part p = *part;

    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((fwd<T, float>), blocks_of(attn, a.heads, a.seq), THREADS, 0, stream, a, p, out,
                  ldo, lse);
    });
}

void cu_attn_delta(cu_stream *stream, const struct kn_attn *attn, size_t q_rows,
                   const struct kn_attn_grad *grad, float *delta)
{
    kn_attn a = *attn;
    kn_attn_grad g = *grad;

    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((dots<T>), blocks_of(attn, a.heads, a.seq), THREADS, 0, stream, a, q_rows, g,
                  delta);
    });
}

static void backward(cu_stream *stream, const kn_attn &a, const kn_attn_part &p, bool sums,
                     const kn_attn_grad &g, const float *delta)
{
    cu_typed(a.type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((grad_q<T>), blocks_of(&a, a.heads, a.seq), THREADS, 0, stream, a, p, sums, g,
                  delta);
        CU_LAUNCH((grad_kv<T>), blocks_of(&a, a.kv_heads, p.keys), THREADS, 0, stream, a, p, sums,
                  g, delta);
    });
}

void cu_attn_bwd_plain(cu_stream *stream, const struct kn_attn *attn,
                       const struct kn_attn_grad *grad, const float *delta)
{
    backward(stream, *attn, whole(*attn), false, *grad, delta);
}

void cu_attn_part_bwd_plain(cu_stream *stream, const struct kn_attn *attn,
                            const struct kn_attn_part *part, const struct kn_attn_grad *grad,
                            const float *delta)
{
    backward(stream, *attn, *part, true, *grad, delta);
}
