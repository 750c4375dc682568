/* Which attention runs: in tiles where matrix instructions take it, else by the definition, as
 * parts of it, documents and caps always are; and the logit that is added to the softmax's sum. */
#include "kernels/cuda/ops.cuh"

static bool tiled(const struct kn_attn *a)
{
    return a->type == KN_BF16 && !a->age && !(a->cap > 0) && a->dv == a->d &&
           (a->d == 64 || a->d == 128) &&
           cu_on16(cu_addr(a->q) | cu_addr(a->k) | cu_addr(a->v) |
                   (a->ldq | a->ldk | a->ldv) * sizeof(kn_bf16));
}

extern "C" void cu_attn_fwd(struct kn_pool *pool, const struct kn_attn *attn, void *out, size_t ldo,
                            float *lse)
{
    cu_stream *stream = cu_stream_of(pool);

    assert(attn->d <= KN_MAX_HEAD_DIM && attn->dv <= KN_MAX_HEAD_DIM &&
           attn->heads % attn->kv_heads == 0);
    if (attn->batch == 0 || attn->seq == 0)
        return;
    if (tiled(attn) && cu_on16(cu_addr(out) | ldo * sizeof(kn_bf16)))
        cu_attn_fwd_tiled(stream, attn, out, ldo, lse);
    else
        cu_attn_fwd_plain(stream, attn, out, ldo, lse);
}

extern "C" void cu_attn_bwd(struct kn_pool *pool, const struct kn_attn *attn,
                            const struct kn_attn_grad *grad, void *workspace)
{
    cu_stream *stream = cu_stream_of(pool);
    float *delta = (float *)workspace; /* the first of what kn_attn_bwd_bytes asks for */
    uintptr_t bits = cu_addr(grad->d_o) | cu_addr(grad->dq) | cu_addr(grad->dk) |
                     cu_addr(grad->dv) |
                     (grad->lddo | grad->lddq | grad->lddk | grad->lddv) * sizeof(kn_bf16);

    if (attn->batch == 0 || attn->seq == 0)
        return;
    cu_attn_delta(stream, attn, attn->seq, grad, delta);
    if (tiled(attn) && cu_on16(bits))
        cu_attn_bwd_tiled(stream, attn, grad, delta);
    else
        cu_attn_bwd_plain(stream, attn, grad, delta);
}

extern "C" void cu_attn_part_fwd(struct kn_pool *pool, const struct kn_attn *attn,
                                 const struct kn_attn_part *part, float *out, size_t ldo,
                                 float *lse)
{
    assert(attn->d <= KN_MAX_HEAD_DIM && attn->dv <= KN_MAX_HEAD_DIM &&
           attn->heads % attn->kv_heads == 0);
    if (attn->batch && attn->seq)
        cu_attn_part_fwd_plain(cu_stream_of(pool), attn, part, out, ldo, lse);
}

extern "C" void cu_attn_part_bwd(struct kn_pool *pool, const struct kn_attn *attn,
                                 const struct kn_attn_part *part, const struct kn_attn_grad *grad,
                                 void *workspace)
{
    cu_stream *stream = cu_stream_of(pool);

    if (attn->batch == 0 || attn->seq == 0)
        return;
    cu_attn_delta(stream, attn, part->q_rows, grad, (float *)workspace);
    cu_attn_part_bwd_plain(stream, attn, part, grad, (const float *)workspace);
}

/* ---- attention sinks ----------------------------------------------------- */

static constexpr unsigned THREADS = 256;
static constexpr size_t SLICES = 264; /* of the rows: two for each multiprocessor of an H100 */

/* Row R's place in lse for HEAD. */
static __device__ __forceinline__ size_t lse_at(size_t r, size_t head, size_t heads, size_t seq)
{
    return (r / seq * heads + head) * seq + r % seq;
}

/* A warp for each head of each row; lse is written by another kernel, after all have read it. */
template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    sink_fwd(T *out, size_t ldo, const float *lse, const T *sink, size_t count, size_t seq,
             size_t heads, size_t dim)
{
    size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / CU_WARP;
    size_t r = warp / heads, h = warp % heads;
    T *row = out + r * ldo + h * dim;
    float by;

    if (warp >= count)
        return;
    by = 1.0f / (1.0f + expf(cu_float(sink[h]) - lse[lse_at(r, h, heads, seq)]));
    for (size_t i = threadIdx.x % CU_WARP; i < dim; i += CU_WARP)
        row[i] = cu_round<T>(cu_float(row[i]) * by);
}

template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    sink_lse(float *lse, const T *sink, size_t count, size_t seq, size_t heads)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float was, own;

    if (i >= count)
        return;
    was = lse[i];
    own = cu_float(sink[i / seq % heads]);
    lse[i] = fmaxf(was, own) + log1pf(expf(-fabsf(was - own)));
}

extern "C" void cu_attn_sink_fwd(struct kn_pool *pool, enum kn_type type, void *out, size_t ldo,
                                 float *lse, const void *sink, size_t batch, size_t seq,
                                 size_t heads, size_t dim)
{
    cu_stream *stream = cu_stream_of(pool);
    size_t count = batch * seq * heads;

    if (count == 0)
        return;
    cu_typed(type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((sink_fwd<T>), (unsigned)cu_blocks(count * CU_WARP, THREADS), THREADS, 0, stream,
                  (T *)out, ldo, lse, (const T *)sink, count, seq, heads, dim);
        CU_LAUNCH((sink_lse<T>), (unsigned)cu_blocks(count, THREADS), THREADS, 0, stream, lse,
                  (const T *)sink, count, seq, heads);
    });
}

/* A warp for each head of every so-manyth row, whose sum is an element of PART (slices, heads). */
template <typename T>
static __global__ void CU_BOUNDS(THREADS)
    sink_bwd(float *part, const T *o, size_t ldo, const T *d_o, size_t lddo, const float *lse,
             const T *sink, size_t rows, size_t seq, size_t heads, size_t dim, size_t slices)
{
    size_t warp = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / CU_WARP;
    size_t slice = warp / heads, h = warp % heads;
    unsigned lane = threadIdx.x % CU_WARP;
    float all = 0;

    if (slice >= slices)
        return;
    for (size_t r = slice; r < rows; r += slices) {
        const T *a = o + r * ldo + h * dim, *b = d_o + r * lddo + h * dim;
        float sum = 0;

        for (size_t i = lane; i < dim; i += CU_WARP)
            sum += cu_float(a[i]) * cu_float(b[i]);
        all -= expf(cu_float(sink[h]) - lse[lse_at(r, h, heads, seq)]) * cu_warp_sum(sum);
    }
    if (lane == 0)
        part[warp] = all;
}

extern "C" void cu_attn_sink_bwd(struct kn_pool *pool, enum kn_type type, float *dsink,
                                 const void *o, size_t ldo, const void *d_o, size_t lddo,
                                 const float *lse, const void *sink, size_t batch, size_t seq,
                                 size_t heads, size_t dim)
{
    cu_stream *stream = cu_stream_of(pool);
    float *part = (float *)cu_stream_scratch(stream);
    size_t rows = batch * seq, slices;

    if (rows == 0 || heads == 0)
        return;
    slices = cu_least(cu_least(rows, SLICES), CU_SCRATCH_BYTES / (heads * sizeof(float)));
    cu_typed(type, false, [&](auto form) {
        typedef typename decltype(form)::T T;

        CU_LAUNCH((sink_bwd<T>), (unsigned)cu_blocks(slices * heads * CU_WARP, THREADS), THREADS, 0,
                  stream, part, (const T *)o, ldo, (const T *)d_o, lddo, lse, (const T *)sink, rows,
                  seq, heads, dim, slices);
    });
    cu_add_parts(stream, dsink, part, slices, heads, heads);
}
