/*
 * x2 = x + attention(norm(x)) W_o^T. The q, k, v projection is divided over tp by heads, W_o by its
 * columns, so the block ends in one sum over tp.
 */
#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>
#include <math.h>

static void norm(struct tr_rank *rank, const struct tr_layer *layer, char *slot)
{
    kn_rmsnorm_fwd(rank->pool, rank->type, tr_act(rank, layer, slot, PL_ACT_H1),
                   tr_act(rank, layer, slot, PL_ACT_RRMS1), tr_act(rank, layer, slot, PL_ACT_X),
                   layer->norm1.w, rank->d.local_rows, rank->d.hidden, (float)rank->model.norm_eps);
}

static struct kn_attn problem(const struct tr_rank *rank, const char *qkv)
{
    const struct pl_dims *d = &rank->d;
    size_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;

    assert(d->qkv == q + 2 * kv && d->attn == q && d->heads % d->kv_heads == 0);
    assert(d->rows == (uint64_t)rank->layout.micro_batch * (uint64_t)rank->workload.seq);
    return (struct kn_attn){.batch = (size_t)rank->layout.micro_batch,
                            .seq = (size_t)rank->workload.seq,
                            .heads = d->heads,
                            .kv_heads = d->kv_heads,
                            .d = d->head_dim,
                            .scale = 1.0f / sqrtf((float)d->head_dim),
                            .type = rank->type,
                            .q = qkv,
                            .k = qkv + q * d->elem,
                            .v = qkv + (q + kv) * d->elem,
                            .ldq = d->qkv,
                            .ldk = d->qkv,
                            .ldv = d->qkv};
}

static void rope(struct tr_rank *rank, void *qkv, bool backward)
{
    kn_rope(rank->pool, rank->type, qkv, rank->d.qkv, rank->d.rows,
            rank->d.heads + rank->d.kv_heads, rank->d.head_dim, rank->d.head_dim,
            rank->work.rope_cos, rank->work.rope_sin, NULL, (size_t)rank->workload.seq, backward);
}

void tr_attention_fwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot)
{
    const struct pl_dims *d = &rank->d;
    void *qkv = tr_act(rank, layer, slot, PL_ACT_QKV), *o = tr_act(rank, layer, slot, PL_ACT_O);
    struct kn_attn a = problem(rank, qkv);

    norm(rank, layer, slot);
    tr_linear(rank, qkv, tr_gather_rows(rank, tr_act(rank, layer, slot, PL_ACT_H1)), layer->qkv.w,
              d->rows, d->hidden, d->qkv);
    rope(rank, qkv, false);
    kn_attn_fwd(rank->pool, &a, o, d->attn, tr_act(rank, layer, slot, PL_ACT_LSE));
    tr_linear_partial(rank, o, layer->o.w, d->rows, d->attn, d->hidden);
    kn_add(rank->pool, rank->type, tr_act(rank, layer, slot, PL_ACT_X2),
           tr_act(rank, layer, slot, PL_ACT_X), tr_reduce_rows(rank), d->local_rows * d->hidden);
}

static void core_bwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    struct kn_attn a = problem(rank, tr_act(rank, layer, slot, PL_ACT_QKV));
    struct kn_attn da = problem(rank, dqkv);
    struct kn_attn_grad g = {.o = tr_act(rank, layer, slot, PL_ACT_O),
                             .d_o = rank->work.dao,
                             .ldo = d->attn,
                             .lddo = d->attn,
                             .lse = tr_act(rank, layer, slot, PL_ACT_LSE),
                             .dq = dqkv,
                             .dk = dqkv + ((const char *)da.k - (const char *)da.q),
                             .dv = dqkv + ((const char *)da.v - (const char *)da.q),
                             .lddq = d->qkv,
                             .lddk = d->qkv,
                             .lddv = d->qkv};

    assert(kn_attn_bwd_bytes(&a) <= rank->attn_bytes);
    kn_attn_bwd(rank->pool, &a, &g, rank->work.attn);
    rope(rank, dqkv, true);
}

static void dw_out(struct tr_rank *rank, const struct tr_layer *layer, char *slot, const void *dy)
{
    tr_linear_dw(rank, layer->o.g, dy, tr_act(rank, layer, slot, PL_ACT_O), rank->d.rows,
                 rank->d.attn, rank->d.hidden);
}

static void dw_qkv(struct tr_rank *rank, const struct tr_layer *layer, char *slot, const void *dqkv)
{
    if (rank->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        norm(rank, layer, slot);
    tr_linear_dw(rank, layer->qkv.g, dqkv,
                 tr_gather_rows(rank, tr_act(rank, layer, slot, PL_ACT_H1)), rank->d.rows,
                 rank->d.hidden, rank->d.qkv);
}

void tr_attention_bwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *keep,
                      void *grad)
{
    const struct pl_dims *z = &rank->d;
    const void *dy = tr_gather_rows(rank, grad), *dh;
    char *dqkv = keep ? keep + layer->keep.dqkv : rank->work.dqkv;

    tr_linear_dx(rank, rank->work.dao, dy, layer->o.w, z->rows, z->attn, z->hidden);
    if (keep)
        kn_copy(rank->pool, keep + layer->keep.d2, grad, z->local_rows * z->hidden * z->elem);
    else
        dw_out(rank, layer, slot, dy);
    core_bwd(rank, layer, slot, dqkv);
    tr_linear_dx_partial(rank, dqkv, layer->qkv.w, z->rows, z->hidden, z->qkv);
    dh = tr_reduce_rows(rank);
    if (!keep)
        dw_qkv(rank, layer, slot, dqkv);
    kn_rmsnorm_bwd(rank->pool, rank->type, grad, layer->norm1.g, dh,
                   tr_act(rank, layer, slot, PL_ACT_X), layer->norm1.w,
                   tr_act(rank, layer, slot, PL_ACT_RRMS1), z->local_rows, z->hidden, true);
}

void tr_attention_dw(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *keep)
{
    dw_out(rank, layer, slot, tr_gather_rows(rank, keep + layer->keep.d2));
    dw_qkv(rank, layer, slot, keep + layer->keep.dqkv);
}
