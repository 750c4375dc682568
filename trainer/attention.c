/*
 * x2 = x + attention(norm(x)) W_o^T. The q, k, v projection is divided over tp by heads, W_o by its
 * columns, so the block ends in one sum over tp.
 */
#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>
#include <math.h>

static void norm(struct tr_rank *r, const struct tr_layer *y, char *slot)
{
    kn_rmsnorm_fwd(r->pool, r->type, tr_act(r, y, slot, PL_ACT_H1),
                   tr_act(r, y, slot, PL_ACT_RRMS1), tr_act(r, y, slot, PL_ACT_X), y->norm1.w,
                   r->d.local_rows, r->d.hidden, (float)r->model.norm_eps);
}

static struct kn_attn problem(const struct tr_rank *r, const char *qkv)
{
    const struct pl_dims *d = &r->d;
    size_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;

    return (struct kn_attn){.batch = (size_t)r->layout.micro_batch,
                            .seq = (size_t)r->workload.seq,
                            .heads = d->heads,
                            .kv_heads = d->kv_heads,
                            .d = d->head_dim,
                            .scale = 1.0f / sqrtf((float)d->head_dim),
                            .type = r->type,
                            .q = qkv,
                            .k = qkv + q * d->elem,
                            .v = qkv + (q + kv) * d->elem,
                            .ldq = d->qkv,
                            .ldk = d->qkv,
                            .ldv = d->qkv};
}

static void rope(struct tr_rank *r, void *qkv, bool backward)
{
    kn_rope(r->pool, r->type, qkv, r->d.qkv, r->d.rows, r->d.heads + r->d.kv_heads, r->d.head_dim,
            r->work.rope_cos, r->work.rope_sin, NULL, (size_t)r->workload.seq, backward);
}

void tr_attention_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot)
{
    const struct pl_dims *d = &r->d;
    void *qkv = tr_act(r, y, slot, PL_ACT_QKV), *o = tr_act(r, y, slot, PL_ACT_O);
    struct kn_attn a = problem(r, qkv);

    norm(r, y, slot);
    tr_linear(r, qkv, tr_gather_rows(r, tr_act(r, y, slot, PL_ACT_H1)), y->qkv.w, d->rows,
              d->hidden, d->qkv);
    rope(r, qkv, false);
    kn_attn_fwd(r->pool, &a, o, d->attn, tr_act(r, y, slot, PL_ACT_LSE));
    tr_linear_partial(r, o, y->o.w, d->rows, d->attn, d->hidden);
    kn_add(r->pool, r->type, tr_act(r, y, slot, PL_ACT_X2), tr_act(r, y, slot, PL_ACT_X),
           tr_reduce_rows(r), d->local_rows * d->hidden);
}

static void core_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *dqkv)
{
    const struct pl_dims *d = &r->d;
    struct kn_attn a = problem(r, tr_act(r, y, slot, PL_ACT_QKV));
    struct kn_attn da = problem(r, dqkv);
    struct kn_attn_grad g = {.o = tr_act(r, y, slot, PL_ACT_O),
                             .d_o = r->work.dao,
                             .ldo = d->attn,
                             .lddo = d->attn,
                             .lse = tr_act(r, y, slot, PL_ACT_LSE),
                             .dq = dqkv,
                             .dk = dqkv + ((const char *)da.k - (const char *)da.q),
                             .dv = dqkv + ((const char *)da.v - (const char *)da.q),
                             .lddq = d->qkv,
                             .lddk = d->qkv,
                             .lddv = d->qkv};

    assert(kn_attn_bwd_bytes(&a) <= r->attn_bytes);
    kn_attn_bwd(r->pool, &a, &g, r->work.attn);
    rope(r, dqkv, true);
}

static void dw_out(struct tr_rank *r, const struct tr_layer *y, char *slot, const void *dy)
{
    tr_linear_dw(r, y->o.g, dy, tr_act(r, y, slot, PL_ACT_O), r->d.rows, r->d.attn, r->d.hidden);
}

static void dw_qkv(struct tr_rank *r, const struct tr_layer *y, char *slot, const void *dqkv)
{
    if (r->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        norm(r, y, slot);
    tr_linear_dw(r, y->qkv.g, dqkv, tr_gather_rows(r, tr_act(r, y, slot, PL_ACT_H1)), r->d.rows,
                 r->d.hidden, r->d.qkv);
}

void tr_attention_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep, void *d)
{
    const struct pl_dims *z = &r->d;
    const void *dy = tr_gather_rows(r, d), *dh;
    char *dqkv = keep ? keep + y->keep.dqkv : r->work.dqkv;

    tr_linear_dx(r, r->work.dao, dy, y->o.w, z->rows, z->attn, z->hidden);
    if (keep)
        kn_copy(r->pool, keep + y->keep.d2, d, z->local_rows * z->hidden * z->elem);
    else
        dw_out(r, y, slot, dy);
    core_bwd(r, y, slot, dqkv);
    tr_linear_dx_partial(r, dqkv, y->qkv.w, z->rows, z->hidden, z->qkv);
    dh = tr_reduce_rows(r);
    if (!keep)
        dw_qkv(r, y, slot, dqkv);
    kn_rmsnorm_bwd(r->pool, r->type, d, y->norm1.g, dh, tr_act(r, y, slot, PL_ACT_X), y->norm1.w,
                   tr_act(r, y, slot, PL_ACT_RRMS1), z->local_rows, z->hidden, true);
}

void tr_attention_dw(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep)
{
    dw_out(r, y, slot, tr_gather_rows(r, keep + y->keep.d2));
    dw_qkv(r, y, slot, keep + y->keep.dqkv);
}
