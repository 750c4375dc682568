/*
 * x2 = x + attention(norm(x)) W_o^T + b_o, or x + a norm of the rest, whose x may stay as it is
 * (OLMo 2); what is added may have a factor. The q, k, v projection is divided over tp by heads,
 * W_o by its columns, so the block ends in one sum over tp, after which b_o is added.
 *
 * Queries and keys that have norms of their own (qk_norm.c) are kept twice: in QKV as projected,
 * for the norms' backward pass, and in QK as attention reads them. Those of latent attention are
 * latent.c's.
 */
#include "base/base.h"
#include "trainer/grad_sum.h"
#include "trainer/layer.h"
#include "trainer/ring.h"
#include "trainer/tp_overlap.h"

#include <assert.h>
#include <math.h>

/* Of LAYER's attention; 0 where the sequence is no longer. */
static size_t window(const struct tr_rank *rank, const struct tr_layer *layer)
{
    const struct pl_model *model = &rank->model;

    return pl_layer_has_window(model, layer->global) && model->sliding_window < rank->workload.seq
               ? (size_t)model->sliding_window
               : 0;
}

/* Factor of the scores. */
static float scale_of(const struct pl_model *model)
{
    if (model->attn_scale > 0)
        return (float)model->attn_scale;
    return (float)(tr_rope_score_factor(model) / sqrt(model->head_dim));
}

static struct kn_attn problem(const struct tr_rank *rank, const struct tr_layer *layer,
                              struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    size_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    const char *qkv = tr_act(rank, layer, slot, PL_ACT_QKV);
    const char *qk = layer->q_norm.w ? tr_act(rank, layer, slot, PL_ACT_QK) : qkv;
    size_t ld = layer->q_norm.w ? d->qk : d->qkv;
    struct kn_attn a = {.batch = (size_t)rank->layout.micro_batch,
                        .seq = d->seq,
                        .heads = d->heads,
                        .kv_heads = d->kv_heads,
                        .d = d->head_dim,
                        .dv = d->v_dim,
                        .scale = scale_of(&rank->model),
                        .cap = (float)rank->model.attn_softcap,
                        .type = rank->type,
                        .q = qk,
                        .k = qk + q * d->elem,
                        .v = qkv + (q + kv) * d->elem,
                        .ldq = ld,
                        .ldk = ld,
                        .ldv = d->qkv,
                        .window = window(rank, layer),
                        .age =
                            rank->workload.reset_attention_mask ? tr_ages(rank, rank->mb) : NULL};

    assert(d->attn == d->heads * d->v_dim && d->heads % d->kv_heads == 0);
    assert(d->rows == (uint64_t)rank->layout.micro_batch * d->seq);
    if (d->latent)
        tr_latent_place(&a, rank, qkv);
    return a;
}

/* Queries, then keys, in rows of LD elements. */
static void rope(struct tr_rank *rank, const struct tr_layer *layer, void *qk, size_t ld,
                 bool backward)
{
    tr_rotate(rank, layer, rank->type, qk, ld, rank->d.heads + rank->d.kv_heads, rank->d.head_dim,
              backward);
}

/* H1 -> QKV and QK. */
static void project(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    void *qkv = tr_act(rank, layer, slot, PL_ACT_QKV);

    tr_gather_linear(rank, qkv, tr_act(rank, layer, slot, PL_ACT_H1), layer->qkv.w, d->qkv);
    tr_bias_fwd(rank, &layer->qkv_bias, qkv, d->rows, d->qkv);
    if (layer->q_norm.w) {
        tr_qk_norm_fwd(rank, layer, slot);
        rope(rank, layer, tr_act(rank, layer, slot, PL_ACT_QK), d->qk, false);
    } else {
        rope(rank, layer, qkv, d->qkv, false);
    }
}

/* What the heads' sinks make of O and LSE, once all keys have been met: so ring attention may meet
 * them in any order. */
static void sinks_fwd(struct tr_rank *rank, const struct tr_layer *layer,
                      const struct kn_attn *attn, void *o, float *lse)
{
    if (layer->sinks.w)
        kn_attn_sink_fwd(rank->pool, rank->type, o, rank->d.attn, lse, layer->sinks.w, attn->batch,
                         attn->seq, attn->heads, attn->dv);
}

static void sinks_bwd(struct tr_rank *rank, const struct tr_layer *layer,
                      const struct kn_attn *attn, const struct kn_attn_grad *grad)
{
    struct tr_grad_sum sum;

    if (!layer->sinks.w)
        return;
    tr_grad_sum_begin(&sum, rank, layer->sinks.g, attn->heads, 0);
    kn_attn_sink_bwd(rank->pool, rank->type, sum.sum, grad->o, grad->ldo, grad->d_o, grad->lddo,
                     grad->lse, layer->sinks.w, attn->batch, attn->seq, attn->heads, attn->dv);
    tr_grad_sum_end(rank, &sum);
}

static struct tr_residual residual(const struct tr_rank *rank, const struct tr_layer *layer,
                                   struct tr_slot slot)
{
    return (struct tr_residual){&layer->post1, &layer->o_bias, tr_act(rank, layer, slot, PL_ACT_Y1),
                                tr_act(rank, layer, slot, PL_ACT_YRRMS1)};
}

void tr_attention_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    void *o = tr_act(rank, layer, slot, PL_ACT_O), *x2 = tr_act(rank, layer, slot, PL_ACT_X2);
    float *lse = tr_act(rank, layer, slot, PL_ACT_LSE);
    struct kn_attn a = problem(rank, layer, slot);
    struct tr_residual end = residual(rank, layer, slot);

    tr_norm1(rank, layer, slot);
    if (d->latent)
        tr_latent_fwd(rank, layer, slot);
    else
        project(rank, layer, slot);
    if (rank->comms.cp.size > 1)
        tr_ring_fwd(rank, &a, o, lse);
    else
        kn_attn_fwd(rank->pool, &a, o, d->attn, lse);
    sinks_fwd(rank, layer, &a, o, lse);
    tr_residual(rank, &end, x2, tr_act(rank, layer, slot, PL_ACT_X),
                tr_linear_reduce(rank, o, layer->o.w, d->attn));
}

static void core_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    struct kn_attn a = problem(rank, layer, slot);
    size_t q = d->heads * d->head_dim * d->elem, kv = d->kv_heads * d->head_dim * d->elem;
    struct kn_attn_grad g = {.o = tr_act(rank, layer, slot, PL_ACT_O),
                             .d_o = rank->work.dao,
                             .ldo = d->attn,
                             .lddo = d->attn,
                             .lse = tr_act(rank, layer, slot, PL_ACT_LSE),
                             .dq = dqkv,
                             .dk = dqkv + q,
                             .dv = dqkv + q + kv,
                             .lddq = d->qkv,
                             .lddk = d->qkv,
                             .lddv = d->qkv};

    sinks_bwd(rank, layer, &a, &g);
    if (d->latent)
        tr_latent_grad_place(&g, rank, dqkv);
    if (rank->comms.cp.size > 1) {
        tr_ring_bwd(rank, &a, &g);
    } else {
        assert(kn_attn_bwd_bytes(&a) <= rank->attn_bytes);
        kn_attn_bwd(rank->pool, &a, &g, rank->work.attn);
    }
    if (d->latent) {
        tr_latent_bwd(rank, layer, slot, dqkv);
        return;
    }
    rope(rank, layer, dqkv, d->qkv, true);
    if (layer->q_norm.w)
        tr_qk_norm_bwd(rank, layer, slot, dqkv);
}

static void dw_out(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   const void *dy)
{
    tr_linear_dw(rank, layer->o.g, dy, tr_act(rank, layer, slot, PL_ACT_O), rank->d.rows,
                 rank->d.attn, rank->d.hidden);
}

/* Start to gather the input of q, k and v ... */
static void gather_input(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    if (rank->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        tr_norm1(rank, layer, slot);
    if (!rank->d.latent)
        tr_gather_ahead(rank, tr_act(rank, layer, slot, PL_ACT_H1));
}

/* ... for their gradients. */
static void dw_qkv(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   char *dqkv)
{
    if (rank->d.latent) {
        tr_latent_dw(rank, layer, slot, dqkv);
        return;
    }
    tr_linear_dw(rank, layer->qkv.g, dqkv, tr_gather_finish(rank), rank->d.rows, rank->d.hidden,
                 rank->d.qkv);
    tr_bias_bwd(rank, &layer->qkv_bias, dqkv, rank->d.rows, rank->d.qkv);
}

void tr_attention_ahead(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    if (rank->comms.cp.size > 1) {
        struct kn_attn a = problem(rank, layer, slot);

        tr_ring_ahead(rank, &a);
    }
}

void tr_attention_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                      char *keep, void *grad)
{
    const struct pl_dims *z = &rank->d;
    struct tr_residual end = residual(rank, layer, slot);
    const void *own = tr_residual_bwd(rank, &end, grad), *dh = NULL,
               *dy = tr_gather_linear_dx(rank, rank->work.dao, own, layer->o.w, z->attn);
    char *dqkv = keep ? keep + layer->keep.dqkv : rank->work.dqkv;

    if (keep) {
        kn_copy(rank->pool, keep + layer->keep.d2, own, z->local_rows * z->hidden * z->elem);
    } else {
        dw_out(rank, layer, slot, dy);
        gather_input(rank, layer, slot);
    }
    core_bwd(rank, layer, slot, dqkv);
    if (z->latent)
        dh = tr_latent_dh(rank, layer, dqkv);
    else
        tr_linear_dx_reduce(rank, dqkv, layer->qkv.w, z->qkv);
    if (!keep)
        dw_qkv(rank, layer, slot, dqkv);
    if (!z->latent)
        dh = tr_linear_dx_reduced(rank);
    tr_norm1_bwd(rank, layer, slot, grad, dh);
}

void tr_attention_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     char *keep)
{
    dw_out(rank, layer, slot, tr_gather_rows(rank, keep + layer->keep.d2));
    gather_input(rank, layer, slot);
    dw_qkv(rank, layer, slot, keep + layer->keep.dqkv);
}
