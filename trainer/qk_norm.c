/*
 * Norms of queries and keys before they rotate: one for each head (Qwen 3), or one for all heads
 * (OLMoE), whose rows are divided over tp: ranks add up the sums of queries and keys at once, two
 * numbers a token in each pass.
 */
#include "trainer/grad_sum.h"
#include "trainer/layer.h"

static void heads_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    const char *qkv = tr_act(rank, layer, slot, PL_ACT_QKV);
    char *qk = tr_act(rank, layer, slot, PL_ACT_QK);
    float *rrms = tr_act(rank, layer, slot, PL_ACT_QKRRMS), eps = (float)rank->model.norm_eps;
    size_t keys = d->heads * d->head_dim * d->elem;

    kn_headnorm_fwd(rank->pool, rank->type, qk, d->qk, rrms, qkv, d->qkv, layer->q_norm.w, d->rows,
                    d->heads, d->head_dim, eps, tr_norm_offset(rank));
    kn_headnorm_fwd(rank->pool, rank->type, qk + keys, d->qk, rrms + d->rows * d->heads, qkv + keys,
                    d->qkv, layer->k_norm.w, d->rows, d->kv_heads, d->head_dim, eps,
                    tr_norm_offset(rank));
}

/* DQKV, the gradient of QK and of the values, becomes that of QKV. */
static void heads_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                      char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    const char *qkv = tr_act(rank, layer, slot, PL_ACT_QKV);
    const float *rrms = tr_act(rank, layer, slot, PL_ACT_QKRRMS);
    size_t keys = d->heads * d->head_dim * d->elem;
    struct tr_grad_sum q, k;

    tr_grad_sum_begin(&q, rank, layer->q_norm.g, d->head_dim, 0);
    tr_grad_sum_begin(&k, rank, layer->k_norm.g, d->head_dim, d->head_dim);
    kn_headnorm_bwd(rank->pool, rank->type, dqkv, d->qkv, q.sum, dqkv, d->qkv, qkv, d->qkv,
                    layer->q_norm.w, rrms, d->rows, d->heads, d->head_dim, tr_norm_offset(rank));
    kn_headnorm_bwd(rank->pool, rank->type, dqkv + keys, d->qkv, k.sum, dqkv + keys, d->qkv,
                    qkv + keys, d->qkv, layer->k_norm.w, rrms + d->rows * d->heads, d->rows,
                    d->kv_heads, d->head_dim, tr_norm_offset(rank));
    tr_grad_sum_end(rank, &q);
    tr_grad_sum_end(rank, &k);
}

/* SUMS (rows) of queries, then of keys, over tp. */
static void add_up(struct tr_rank *rank, float *sums)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_TP);

    tr_all_reduce(&rank->comms.tp, KN_F32, sums, 2 * rank->d.rows);
    tr_phase(&rank->clock, was);
}

static void full_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    const struct pl_dims *d = &rank->d;
    const char *qkv = tr_act(rank, layer, slot, PL_ACT_QKV);
    char *qk = tr_act(rank, layer, slot, PL_ACT_QK);
    float *q = tr_act(rank, layer, slot, PL_ACT_QKRRMS), *k = q + d->rows;
    float eps = (float)rank->model.norm_eps, offset = tr_norm_offset(rank);
    size_t nq = d->heads * d->head_dim, nk = d->kv_heads * d->head_dim, keys = nq * d->elem,
           tp = (size_t)rank->comms.tp.size;

    kn_rmsnorm_part_sums(rank->pool, rank->type, q, qkv, d->qkv, d->rows, nq);
    kn_rmsnorm_part_sums(rank->pool, rank->type, k, qkv + keys, d->qkv, d->rows, nk);
    add_up(rank, q);
    kn_rmsnorm_part_fwd(rank->pool, rank->type, qk, d->qk, q, qkv, d->qkv, layer->q_norm.w, d->rows,
                        nq, tp * nq, eps, offset);
    kn_rmsnorm_part_fwd(rank->pool, rank->type, qk + keys, d->qk, k, qkv + keys, d->qkv,
                        layer->k_norm.w, d->rows, nk, tp * nk, eps, offset);
}

static void full_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     char *dqkv)
{
    const struct pl_dims *d = &rank->d;
    const char *qkv = tr_act(rank, layer, slot, PL_ACT_QKV);
    const float *rrms = tr_act(rank, layer, slot, PL_ACT_QKRRMS);
    float *sums = rank->work.qk_sum, offset = tr_norm_offset(rank);
    size_t nq = d->heads * d->head_dim, nk = d->kv_heads * d->head_dim, keys = nq * d->elem,
           tp = (size_t)rank->comms.tp.size;
    struct tr_grad_sum q, k;

    kn_rmsnorm_part_dots(rank->pool, rank->type, sums, dqkv, d->qkv, qkv, d->qkv, layer->q_norm.w,
                         d->rows, nq, offset);
    kn_rmsnorm_part_dots(rank->pool, rank->type, sums + d->rows, dqkv + keys, d->qkv, qkv + keys,
                         d->qkv, layer->k_norm.w, d->rows, nk, offset);
    add_up(rank, sums);
    tr_grad_sum_begin(&q, rank, layer->q_norm.g, nq, 0);
    tr_grad_sum_begin(&k, rank, layer->k_norm.g, nk, nq);
    kn_rmsnorm_part_bwd(rank->pool, rank->type, dqkv, d->qkv, q.sum, dqkv, d->qkv, qkv, d->qkv,
                        layer->q_norm.w, rrms, sums, d->rows, nq, tp * nq, offset);
    kn_rmsnorm_part_bwd(rank->pool, rank->type, dqkv + keys, d->qkv, k.sum, dqkv + keys, d->qkv,
                        qkv + keys, d->qkv, layer->k_norm.w, rrms + d->rows, sums + d->rows,
                        d->rows, nk, tp * nk, offset);
    tr_grad_sum_end(rank, &q);
    tr_grad_sum_end(rank, &k);
}

void tr_qk_norm_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    (rank->model.qk_norm == PL_QK_FULL ? full_fwd : heads_fwd)(rank, layer, slot);
}

void tr_qk_norm_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                    char *dqkv)
{
    (rank->model.qk_norm == PL_QK_FULL ? full_bwd : heads_bwd)(rank, layer, slot, dqkv);
}
