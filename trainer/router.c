/*
 * The router of a layer with experts: scores by a softmax or by sigmoids, the top k, perhaps of the
 * best groups and by a bias, their weights (struct kn_router), the load-balancing loss, of which
 * enum pl_aux_loss says what is pooled and what averaged, and the z-loss.
 *
 * Choices are not differentiated, so the gradient by the probability of expert e of one token is
 * the same for all tokens of a pool: scale() x the pool's choices of e. A pool lies in one
 * micro-batch; under sequence and context parallelism that is spread over the tp and cp ranks and
 * its sums are exchanged, and a pool over layers gathers them from stage to stage (trainer/pipe.c).
 * So the loss depends on the layout by its micro-batch alone, and "sequence" not even by that.
 *
 * The z-loss, kn_router_z_fwd()'s, is a mean over all tokens of the global batch, added up over the
 * layers: each rank has that of its own rows, and what is exchanged is a step's sum of it.
 */
#include "base/base.h"
#include "trainer/balance.h"
#include "trainer/layer.h"

#include <assert.h>

static bool sigmoid(const struct tr_rank *rank)
{
    return rank->model.moe.router == PL_ROUTER_SIGMOID;
}

/* What the scores P (experts) are to be multiplied by to add up to 1. */
static float to_share(const struct tr_rank *rank, const float *p)
{
    double sum = 1e-20; /* as the kernels have it */

    for (uint64_t j = 0; j < rank->d.experts && sigmoid(rank); j++)
        sum += (double)p[j];
    return sigmoid(rank) ? (float)(1 / sum) : 1.0f;
}

/* Choices and probabilities by sequence, over this rank's rows, then over tp and cp. */
static void stats(struct tr_rank *rank, const float *probs, const int32_t *idx, float *count,
                  float *psum)
{
    const struct pl_dims *d = &rank->d;
    uint64_t e = d->experts, seq = d->seq, n = (uint64_t)rank->layout.micro_batch * e;
    uint64_t row0 = rank->layout.sp ? d->local_rows * (uint64_t)rank->comms.tp.rank : 0;
    enum tr_phase was;

    assert(row0 + d->local_rows <= (uint64_t)rank->layout.micro_batch * seq && psum == count + n);
    kn_wait(rank->pool);
    memset(count, 0, 2 * n * sizeof(*count)); /* psum follows */
    for (uint64_t i = 0; i < d->local_rows; i++) {
        uint64_t s = (row0 + i) / seq;
        float by = to_share(rank, probs + i * e);

        for (uint64_t j = 0; j < d->top_k; j++)
            count[s * e + (uint64_t)idx[i * d->top_k + j]] += 1.0f;
        for (uint64_t j = 0; j < e; j++)
            psum[s * e + j] += by * probs[i * e + j];
    }
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    if (rank->layout.sp)
        tr_all_reduce(&rank->comms.tp, KN_F32, count, 2 * n);
    tr_phase(&rank->clock, TR_PHASE_CP);
    if (rank->comms.cp.size > 1)
        tr_all_reduce(&rank->comms.cp, KN_F32, count, 2 * n);
    tr_phase(&rank->clock, was);
}

static bool by_sequence(const struct tr_rank *rank)
{
    return rank->model.moe.aux_loss == PL_AUX_SEQUENCE;
}

/* Tokens of a pool, over all its layers. */
static double pool_tokens(const struct tr_rank *rank)
{
    double seq = rank->workload.seq;

    switch (rank->model.moe.aux_loss) {
    case PL_AUX_HUGGINGFACE:
        return seq * rank->layout.micro_batch * rank->moe_layers;
    case PL_AUX_MEGATRON:
        return seq * rank->layout.micro_batch;
    case PL_AUX_SEQUENCE:
        break;
    }
    return seq;
}

/* A pool's loss is this times the sum over the experts of choices times probabilities. */
static double scale(const struct tr_rank *rank)
{
    double tokens = pool_tokens(rank), each = (double)rank->d.experts / (tokens * tokens);

    return rank->model.moe.aux_loss == PL_AUX_MEGATRON ? each / (double)rank->d.top_k : each;
}

double tr_router_pools(const struct tr_rank *rank)
{
    double batch = rank->workload.global_batch;

    assert(rank->moe_layers > 0);
    return by_sequence(rank) ? batch * rank->moe_layers : batch / rank->layout.micro_batch;
}

double tr_router_tokens(const struct tr_rank *rank)
{
    return (double)rank->workload.global_batch * rank->workload.seq;
}

size_t tr_router_pool_bytes(const struct tr_rank *rank)
{
    return 2 * rank->d.experts * sizeof(double);
}

double *tr_router_pool(const struct tr_rank *rank, int mb)
{
    assert(mb >= 0 && mb < rank->d.microbatches);
    return rank->work.moe_pool ? rank->work.moe_pool + 2 * (uint64_t)mb * rank->d.experts : NULL;
}

void tr_router_pooled(struct tr_rank *rank, int mb)
{
    const double *count = tr_router_pool(rank, mb), *psum = count + rank->d.experts;
    double sum = 0.0;

    assert(rank->model.moe.aux_loss == PL_AUX_HUGGINGFACE && rank->work.moe_pool);
    for (uint64_t j = 0; j < rank->d.experts; j++)
        sum += count[j] * psum[j];
    rank->aux_sum += scale(rank) * sum;
}

/* The sequences' sums COUNT and PSUM (micro_batch, experts) by pool. COUNT's first row becomes the
 * choices of the micro-batch where that is a pool. */
static void pool(struct tr_rank *rank, float *count, const float *psum, bool first_time)
{
    uint64_t e = rank->d.experts, n = (uint64_t)rank->layout.micro_batch * e;
    double *whole = tr_router_pool(rank, rank->mb), sum = 0.0;

    for (uint64_t j = 0; j < e && !by_sequence(rank); j++) {
        double c = 0.0, p = 0.0;

        for (uint64_t i = j; i < n; i += e) {
            c += (double)count[i];
            p += (double)psum[i];
        }
        count[j] = (float)c;
        sum += c * p;
        if (whole && first_time) {
            whole[j] += c;
            whole[e + j] += p;
        }
    }
    for (uint64_t i = 0; i < n && by_sequence(rank); i++)
        sum += (double)count[i] * (double)psum[i];
    if (first_time && !whole)
        rank->aux_sum += scale(rank) * sum;
}

/* What the kernels are told of the model's router. */
static struct kn_router router_of(const struct tr_rank *rank, const struct tr_layer *layer)
{
    const struct pl_moe *moe = &rank->model.moe;

    return (struct kn_router){.experts = rank->d.experts,
                              .k = rank->d.top_k,
                              .score = sigmoid(rank) ? KN_SIGMOID : KN_SOFTMAX,
                              .renorm = moe->topk_norm,
                              .dealt = moe->force_balance,
                              .scale = (float)moe->scaling,
                              .groups = (size_t)moe->n_group,
                              .met = (size_t)moe->topk_group,
                              .bias = layer->balance};
}

/* logits = h2 x weights^T [+ bias] of the layer's router. */
static void product(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                    float *logits)
{
    const struct pl_dims *d = &rank->d;
    struct kn_gemm g = {.m = d->local_rows,
                        .n = d->experts,
                        .k = d->hidden,
                        .a = tr_act(rank, layer, slot, PL_ACT_H2),
                        .b = layer->router.w,
                        .c = logits,
                        .lda = d->hidden,
                        .ldb = d->hidden,
                        .ldc = d->experts,
                        .tb = true,
                        .at = rank->type,
                        .bt = rank->type};
    struct kn_gemm bias = {.m = d->local_rows,
                           .n = d->experts,
                           .k = 1,
                           .a = rank->work.ones,
                           .b = layer->router_bias.w,
                           .c = logits,
                           .lda = 1,
                           .ldb = d->experts,
                           .ldc = d->experts,
                           .beta = 1.0f,
                           .at = rank->type,
                           .bt = rank->type};

    kn_gemm(rank->pool, &g);
    if (layer->router_bias.w)
        kn_gemm(rank->pool, &bias);
}

/* From the gradient of the logits that of their bias. */
static void bias_bwd(struct tr_rank *rank, const struct tr_layer *layer, const float *dlogits)
{
    const struct pl_dims *d = &rank->d;
    struct kn_gemm g = {.m = 1,
                        .n = d->experts,
                        .k = d->local_rows,
                        .a = rank->work.ones,
                        .b = dlogits,
                        .c = layer->router_bias.g,
                        .lda = 1,
                        .ldb = d->experts,
                        .ldc = d->experts,
                        .ta = true,
                        .beta = 1.0f,
                        .at = rank->type,
                        .ct = rank->params.grad_type};

    if (layer->router_bias.w)
        kn_gemm(rank->pool, &g);
}

/* The z-loss of this rank's rows. */
static void z_loss(struct tr_rank *rank, const float *logits)
{
    uint64_t rows = rank->d.local_rows;
    float *log_z = rank->work.moe_router + rows * rank->d.experts; /* of the way back, free here */

    kn_router_z_fwd(rank->pool, log_z, logits, rows, rank->d.experts);
    kn_wait(rank->pool);
    for (uint64_t i = 0; i < rows; i++)
        rank->moe_z_sum += (double)log_z[i] * (double)log_z[i];
}

/* dlogits += its gradient. Logits are computed again: a sigmoid's scores do not give them back. */
static void z_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  float *dlogits, float *logits)
{
    double each = rank->model.moe.z_loss_coef / tr_router_tokens(rank);

    product(rank, layer, slot, logits);
    kn_router_z_bwd(rank->pool, dlogits, logits, rank->d.local_rows, rank->d.experts, (float)each);
}

/* Others' choices in place of those that ROUTER has made of LOGITS. */
static void replay(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   struct kn_router router, const float *logits)
{
    float *probs = tr_act(rank, layer, slot, PL_ACT_PROBS);
    int32_t *idx = tr_act(rank, layer, slot, PL_ACT_IDX);

    if (!rank->replay)
        return;
    kn_wait(rank->pool);
    if (!rank->replay(rank->routed_arg, rank, layer->global, &router, probs, idx))
        return;
    router.dealt = true;
    kn_router_fwd(rank->pool, &router, probs, idx, tr_act(rank, layer, slot, PL_ACT_W), logits,
                  rank->d.local_rows);
}

void tr_router_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   bool count)
{
    const struct pl_dims *d = &rank->d;
    uint64_t n = (uint64_t)rank->layout.micro_batch * d->experts;
    float *logits = rank->work.moe_router, *freq = rank->work.moe_stats, *psum = freq + n;
    float *probs = tr_act(rank, layer, slot, PL_ACT_PROBS);
    int32_t *idx = tr_act(rank, layer, slot, PL_ACT_IDX);
    struct kn_router router = router_of(rank, layer);

    product(rank, layer, slot, logits);
    if (count && rank->model.moe.z_loss_coef > 0)
        z_loss(rank, logits);
    if (router.dealt)
        tr_balance_deal(rank, layer, &router, idx);
    kn_router_fwd(rank->pool, &router, probs, idx, tr_act(rank, layer, slot, PL_ACT_W), logits,
                  d->local_rows);
    replay(rank, layer, slot, router, logits);
    stats(rank, probs, idx, freq, psum);
    if (count)
        tr_balance_count(rank, layer, freq);
    pool(rank, freq, psum, count);
    memcpy(tr_act(rank, layer, slot, PL_ACT_FREQ), freq, n * sizeof(*freq));
    if (count && rank->routed)
        rank->routed(rank->routed_arg, rank, layer->global, idx);
}

/* Gradient of the load-balancing loss by the probabilities (local_rows, experts). */
static void balance_bwd(struct tr_rank *rank, float *dshare, const float *freq)
{
    uint64_t e = rank->d.experts, seq = rank->d.seq;
    uint64_t row0 = rank->layout.sp ? rank->d.local_rows * (uint64_t)rank->comms.tp.rank : 0;
    const double *whole = tr_router_pool(rank, rank->mb);
    double each = rank->model.moe.aux_loss_coef * scale(rank) / tr_router_pools(rank);

    kn_wait(rank->pool); /* dshare may still be read for the layer above */
    for (uint64_t i = 0; i < rank->d.local_rows; i++) {
        const float *mine = by_sequence(rank) ? freq + (row0 + i) / seq * e : freq;

        for (uint64_t j = 0; j < e; j++)
            dshare[i * e + j] = (float)(each * (whole ? whole[j] : (double)mine[j]));
    }
}

void tr_router_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                   const float *dw, void *dh)
{
    const struct pl_dims *d = &rank->d;
    uint64_t e = d->experts;
    float *dlogits = rank->work.moe_router, *dshare = dlogits + d->local_rows * e;
    struct kn_router router = router_of(rank, layer);
    struct kn_gemm gw = {.m = e,
                         .n = d->hidden,
                         .k = d->local_rows,
                         .a = dlogits,
                         .b = tr_act(rank, layer, slot, PL_ACT_H2),
                         .c = layer->router.g,
                         .lda = e,
                         .ldb = d->hidden,
                         .ldc = d->hidden,
                         .ta = true,
                         .beta = 1.0f,
                         .bt = rank->type,
                         .ct = rank->params.grad_type};
    struct kn_gemm gx = {.m = d->local_rows,
                         .n = d->hidden,
                         .k = e,
                         .a = dlogits,
                         .b = layer->router.w,
                         .c = dh,
                         .lda = e,
                         .ldb = d->hidden,
                         .ldc = d->hidden,
                         .beta = 1.0f,
                         .bt = rank->type,
                         .ct = rank->type};

    balance_bwd(rank, dshare, tr_act(rank, layer, slot, PL_ACT_FREQ));
    kn_router_bwd(rank->pool, &router, dlogits, dw, dshare, tr_act(rank, layer, slot, PL_ACT_PROBS),
                  tr_act(rank, layer, slot, PL_ACT_IDX), tr_act(rank, layer, slot, PL_ACT_W),
                  d->local_rows);
    if (rank->model.moe.z_loss_coef > 0)
        z_bwd(rank, layer, slot, dlogits, dshare);
    kn_gemm(rank->pool, &gw);
    bias_bwd(rank, layer, dlogits);
    kn_gemm(rank->pool, &gx);
}
