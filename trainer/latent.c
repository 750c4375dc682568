/*
 * Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1): what comes before
 * attention, from h, the normalized input of the layer, to its queries, keys and values, and back.
 *
 *   [cq | ckv | kr] = h W_down^T        each tp rank has all of W_down, and makes its local rows
 *   q = norm(cq) W_q^T                  or h W_q^T, where queries have no latent
 *   [kn | v] = norm(ckv) W_kv^T         W_q and W_kv are divided over tp by heads
 *   a head's query and key end in rope elements, which are rotated; those of the key are kr, which
 *   all heads share
 *
 * With sp the latents are gathered, and not h, which is wider as a rule. On the way back a tp rank
 * has the gradients of the latents from its heads alone: these are added over tp, in fp32.
 *
 * Gradients, from DQKV on: dq (rows, heads head_dim), [dkn | dv] (rows, heads (nope + v_dim)), that
 * of [cq | ckv | kr] (local_rows, latent).
 */
#include "base/base.h"
#include "trainer/grad_sum.h"
#include "trainer/layer.h"

#include <assert.h>

/* MATRIX + COUNT elements. */
static char *behind(const struct tr_rank *rank, const void *matrix, uint64_t count)
{
    return (char *)(uintptr_t)matrix + count * rank->d.elem;
}

struct grads {
    char *q, *kv, *latent;
    uint64_t ldkv;
};

static struct grads grads_of(const struct tr_rank *rank, char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    struct grads g = {.q = dqkv, .ldkv = d->heads * (d->nope + d->v_dim)};

    g.kv = behind(rank, g.q, d->rows * d->heads * d->head_dim);
    g.latent = behind(rank, g.kv, d->rows * g.ldkv);
    return g;
}

void tr_latent_place(struct kn_attn *attn, const struct tr_rank *rank, const char *qkv)
{
    const struct pl_dims *d = &rank->d;
    uint64_t wide = d->heads * d->head_dim;

    assert(d->heads == d->kv_heads && d->qkv == 2 * wide + d->attn);
    attn->q = qkv;
    attn->k = behind(rank, qkv, d->rows * wide);
    attn->v = behind(rank, qkv, 2 * d->rows * wide);
    attn->ldq = attn->ldk = wide;
    attn->ldv = d->attn;
}

void tr_latent_grad_place(struct kn_attn_grad *grad, const struct tr_rank *rank, char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    struct grads g = grads_of(rank, dqkv);

    grad->dq = g.q;
    grad->dk = behind(rank, rank->work.dqkv, d->dqkv);
    grad->dv = behind(rank, g.kv, d->heads * d->nope);
    grad->lddq = grad->lddk = d->heads * d->head_dim;
    grad->lddv = g.ldkv;
}

/* The norms of the latents: of queries, 0 wide if they have none, and of keys and values. */
struct latent_norm {
    const struct tr_weight *scale;
    float *rrms;      /* (local_rows) */
    uint64_t at, dim; /* columns of a row of latents */
};

enum { NORMS = 2 };

static void norms_of(struct latent_norm ret[NORMS], struct tr_rank *rank,
                     const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    float *rrms = tr_act(rank, layer, slot, PL_ACT_LRRMS);

    ret[0] = (struct latent_norm){&layer->q_latent, rrms + d->local_rows, 0, d->q_latent};
    ret[1] = (struct latent_norm){&layer->kv_latent, rrms, d->q_latent, d->kv_latent};
}

/* LATENT -> NORMED but for what keys share. */
static void norms_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    struct latent_norm norm[NORMS];
    char *x = tr_act(rank, layer, slot, PL_ACT_LATENT),
         *y = tr_act(rank, layer, slot, PL_ACT_NORMED);

    norms_of(norm, rank, layer, slot);
    for (int i = 0; i < NORMS; i++)
        if (norm[i].dim)
            kn_headnorm_fwd(rank->pool, rank->type, behind(rank, y, norm[i].at), d->latent,
                            norm[i].rrms, behind(rank, x, norm[i].at), d->latent, norm[i].scale->w,
                            d->local_rows, 1, norm[i].dim, (float)rank->model.norm_eps, 0);
}

/* DX (local_rows, latent), the gradient of NORMED, becomes that of LATENT. */
static void norms_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                      char *dx)
{
    const struct pl_dims *d = &rank->d;
    struct latent_norm norm[NORMS];
    char *x = tr_act(rank, layer, slot, PL_ACT_LATENT);

    norms_of(norm, rank, layer, slot);
    for (int i = 0; i < NORMS; i++) {
        char *g = behind(rank, dx, norm[i].at);
        struct tr_grad_sum scale;

        if (!norm[i].dim)
            continue;
        tr_grad_sum_begin(&scale, rank, norm[i].scale->g, norm[i].dim, 0);
        kn_headnorm_bwd(rank->pool, rank->type, g, d->latent, scale.sum, g, d->latent,
                        behind(rank, x, norm[i].at), d->latent, norm[i].scale->w, norm[i].rrms,
                        d->local_rows, 1, norm[i].dim, tr_norm_offset(rank));
        tr_grad_sum_end(rank, &scale);
    }
}

/* H1 -> LATENT and NORMED. */
static void compress(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    char *x = tr_act(rank, layer, slot, PL_ACT_LATENT),
         *y = tr_act(rank, layer, slot, PL_ACT_NORMED);
    uint64_t shared = d->q_latent + d->kv_latent;

    tr_linear(rank, x, tr_act(rank, layer, slot, PL_ACT_H1), layer->latent.w, d->local_rows,
              d->hidden, d->latent);
    tr_bias_fwd(rank, &layer->latent_bias, x, d->local_rows, d->latent);
    norms_fwd(rank, layer, slot);
    kn_convert_rows(rank->pool, rank->type, behind(rank, y, shared), d->latent, rank->type,
                    behind(rank, x, shared), d->latent, d->local_rows, d->rope);
}

void tr_latent_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    char *own = rank->work.dqkv, *all, *shared;
    const void *h1 = tr_act(rank, layer, slot, PL_ACT_H1);
    struct kn_attn a = {0};

    tr_latent_place(&a, rank, tr_act(rank, layer, slot, PL_ACT_QKV));
    compress(rank, layer, slot);
    if (!d->q_latent)
        tr_linear(rank, (void *)a.q, tr_gather_rows(rank, h1), layer->q_up.w, d->rows, d->hidden,
                  a.ldq);
    all = (void *)tr_gather(rank, tr_act(rank, layer, slot, PL_ACT_NORMED), d->latent);
    shared = behind(rank, all, d->q_latent + d->kv_latent);
    if (d->q_latent)
        tr_linear_of(rank, (void *)a.q, all, d->latent, layer->q_up.w, d->rows, d->q_latent, a.ldq);
    tr_linear_of(rank, own, behind(rank, all, d->q_latent), d->latent, layer->kv_up.w, d->rows,
                 d->kv_latent, d->heads * d->nope);
    tr_linear_of(rank, (void *)a.v, behind(rank, all, d->q_latent), d->latent,
                 behind(rank, layer->kv_up.w, d->heads * d->nope * d->kv_latent), d->rows,
                 d->kv_latent, d->attn);
    tr_rotate(rank, layer, rank->type, behind(rank, a.q, d->nope), a.ldq, d->heads, d->head_dim,
              false);
    tr_rotate(rank, layer, rank->type, shared, d->latent, 1, d->rope, false);
    kn_keys_join(rank->pool, rank->type, (void *)a.k, own, shared, d->latent, d->rows, d->heads,
                 d->nope, d->rope);
}

void tr_latent_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    struct grads g = grads_of(rank, dqkv);
    float *sum = rank->work.dlatent ? rank->work.dlatent : (float *)(void *)g.latent;
    float *shared = sum + d->q_latent + d->kv_latent;
    struct kn_attn_grad a = {0};
    const void *local;

    assert(rank->work.dlatent || (rank->type == KN_F32 && d->local_rows == d->rows));
    tr_latent_grad_place(&a, rank, dqkv);
    kn_keys_split(rank->pool, rank->type, g.kv, g.ldkv, KN_F32, shared, d->latent, a.dk, d->rows,
                  d->heads, d->nope, d->rope);
    tr_rotate(rank, layer, rank->type, behind(rank, g.q, d->nope), a.lddq, d->heads, d->head_dim,
              true);
    tr_rotate(rank, layer, KN_F32, shared, d->latent, 1, d->rope, true);
    if (d->q_latent)
        tr_linear_dx_to(rank, sum, d->latent, g.q, layer->q_up.w, d->rows, d->q_latent, a.lddq);
    tr_linear_dx_to(rank, sum + d->q_latent, d->latent, g.kv, layer->kv_up.w, d->rows, d->kv_latent,
                    g.ldkv);
    local = tr_reduce(rank, sum, KN_F32, d->latent);
    if (rank->work.dlatent)
        kn_convert(rank->pool, rank->type, g.latent, KN_F32, local, d->local_rows * d->latent);
    norms_bwd(rank, layer, slot, g.latent);
}

const void *tr_latent_dh(struct tr_rank *rank, const struct tr_layer *layer, char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    struct grads g = grads_of(rank, dqkv);

    if (d->q_latent) {
        tr_linear_dx(rank, rank->work.dh, g.latent, layer->latent.w, d->local_rows, d->hidden,
                     d->latent);
        return rank->work.dh;
    }
    tr_linear_dx_partial(rank, g.q, layer->q_up.w, d->rows, d->hidden, d->heads * d->head_dim);
    return tr_reduce_rows_add(rank, g.latent, layer->latent.w, d->latent);
}

void tr_latent_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    const void *h1 = tr_act(rank, layer, slot, PL_ACT_H1);
    struct grads g = grads_of(rank, dqkv);
    uint64_t wide = d->heads * d->head_dim;
    const char *all;

    tr_linear_dw(rank, layer->latent.g, g.latent, h1, d->local_rows, d->hidden, d->latent);
    tr_bias_bwd(rank, &layer->latent_bias, g.latent, d->local_rows, d->latent);
    if (!d->q_latent)
        tr_linear_dw(rank, layer->q_up.g, g.q, tr_gather_rows(rank, h1), d->rows, d->hidden, wide);
    if (rank->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        norms_fwd(rank, layer, slot);
    all = tr_gather(rank, tr_act(rank, layer, slot, PL_ACT_NORMED), d->latent);
    if (d->q_latent)
        tr_linear_dw_of(rank, layer->q_up.g, g.q, all, d->latent, d->rows, d->q_latent, wide);
    tr_linear_dw_of(rank, layer->kv_up.g, g.kv, behind(rank, all, d->q_latent), d->latent, d->rows,
                    d->kv_latent, g.ldkv);
}
