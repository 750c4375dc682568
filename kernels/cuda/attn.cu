/* Which attention runs: in tiles where matrix instructions take it, else by the definition, as
 * parts of it, documents and caps always are. */
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
