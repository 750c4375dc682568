/*
 * The router of a layer with experts: softmax, top k, renormalised (Mixtral), and the
 * load-balancing loss, of which enum pl_aux_loss says what is pooled and what averaged.
 *
 * Choices are not differentiated, so the gradient by the probability of expert e of one token is
 * the same for all tokens of a pool: scale() x the pool's choices of e. A pool lies in one
 * micro-batch; under sequence parallelism that is spread over the tp ranks and its sums are
 * exchanged, and a pool over layers gathers them from stage to stage (trainer/pipe.c). So the loss
 * depends on the layout by its micro-batch alone, and "sequence" not even by that.
 */
#include "base/base.h"
#include "trainer/layer.h"

/* Choices and probabilities by sequence, over this rank's rows, then over tp. */
static void stats(struct tr_rank *r, const float *probs, const int32_t *idx, float *count,
                  float *psum)
{
    const struct pl_dims *d = &r->d;
    uint64_t e = d->experts, seq = (uint64_t)r->workload.seq;
    uint64_t n = (uint64_t)r->layout.micro_batch * e;
    uint64_t row0 = r->layout.sp ? d->local_rows * (uint64_t)r->comms.tp.rank : 0;
    enum tr_phase was;

    kn_wait(r->pool);
    memset(count, 0, 2 * n * sizeof(*count)); /* psum follows */
    for (uint64_t i = 0; i < d->local_rows; i++) {
        uint64_t s = (row0 + i) / seq;

        for (uint64_t j = 0; j < d->top_k; j++)
            count[s * e + (uint64_t)idx[i * d->top_k + j]] += 1.0f;
        for (uint64_t j = 0; j < e; j++)
            psum[s * e + j] += probs[i * e + j];
    }
    if (!r->layout.sp)
        return;
    was = tr_phase(&r->clock, TR_PHASE_TP);
    tr_all_reduce(&r->comms.tp, KN_F32, count, 2 * n);
    tr_phase(&r->clock, was);
}

static bool by_sequence(const struct tr_rank *r)
{
    return r->model.moe.aux_loss == PL_AUX_SEQUENCE;
}

/* Tokens of a pool, over all its layers. */
static double pool_tokens(const struct tr_rank *r)
{
    double seq = r->workload.seq;

    switch (r->model.moe.aux_loss) {
    case PL_AUX_HUGGINGFACE:
        return seq * r->layout.micro_batch * r->moe_layers;
    case PL_AUX_MEGATRON:
        return seq * r->layout.micro_batch;
    case PL_AUX_SEQUENCE:
        break;
    }
    return seq;
}

/* A pool's loss is this times the sum over the experts of choices times probabilities. */
static double scale(const struct tr_rank *r)
{
    double tokens = pool_tokens(r), each = (double)r->d.experts / (tokens * tokens);

    return r->model.moe.aux_loss == PL_AUX_MEGATRON ? each / (double)r->d.top_k : each;
}

double tr_router_pools(const struct tr_rank *r)
{
    double batch = r->workload.global_batch;

    return by_sequence(r) ? batch * r->moe_layers : batch / r->layout.micro_batch;
}

size_t tr_router_pool_bytes(const struct tr_rank *r)
{
    return 2 * r->d.experts * sizeof(double);
}

double *tr_router_pool(const struct tr_rank *r, int mb)
{
    return r->work.moe_pool ? r->work.moe_pool + 2 * (uint64_t)mb * r->d.experts : NULL;
}

void tr_router_pooled(struct tr_rank *r, int mb)
{
    const double *count = tr_router_pool(r, mb), *psum = count + r->d.experts;
    double sum = 0.0;

    for (uint64_t j = 0; j < r->d.experts; j++)
        sum += count[j] * psum[j];
    r->aux_sum += scale(r) * sum;
}

/* The sequences' sums COUNT and PSUM (micro_batch, experts) by pool. COUNT's first row becomes the
 * choices of the micro-batch where that is a pool. */
static void pool(struct tr_rank *r, float *count, const float *psum, bool first_time)
{
    uint64_t e = r->d.experts, n = (uint64_t)r->layout.micro_batch * e;
    double *whole = tr_router_pool(r, r->mb), sum = 0.0;

    for (uint64_t j = 0; j < e && !by_sequence(r); j++) {
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
    for (uint64_t i = 0; i < n && by_sequence(r); i++)
        sum += (double)count[i] * (double)psum[i];
    if (first_time && !whole)
        r->aux_sum += scale(r) * sum;
}

void tr_router_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, bool count)
{
    const struct pl_dims *d = &r->d;
    uint64_t n = (uint64_t)r->layout.micro_batch * d->experts;
    float *logits = r->work.moe_router, *freq = r->work.moe_stats, *psum = freq + n;
    float *probs = tr_act(r, y, slot, PL_ACT_PROBS);
    int32_t *idx = tr_act(r, y, slot, PL_ACT_IDX);
    struct kn_gemm g = {.m = d->local_rows,
                        .n = d->experts,
                        .k = d->hidden,
                        .a = tr_act(r, y, slot, PL_ACT_H2),
                        .b = y->router.w,
                        .c = logits,
                        .lda = d->hidden,
                        .ldb = d->hidden,
                        .ldc = d->experts,
                        .tb = true,
                        .at = r->type,
                        .bt = r->type};

    kn_gemm(r->pool, &g);
    kn_router_fwd(r->pool, probs, idx, tr_act(r, y, slot, PL_ACT_W), logits, d->local_rows,
                  d->experts, d->top_k, true);
    stats(r, probs, idx, freq, psum);
    pool(r, freq, psum, count);
    memcpy(tr_act(r, y, slot, PL_ACT_FREQ), freq, n * sizeof(*freq));
    if (count && r->routed)
        r->routed(r->routed_arg, r, y->global, idx);
}

/* Gradient of the load-balancing loss by the probabilities (local_rows, experts). */
static void balance_bwd(struct tr_rank *r, float *dprobs, const float *freq)
{
    uint64_t e = r->d.experts, seq = (uint64_t)r->workload.seq;
    uint64_t row0 = r->layout.sp ? r->d.local_rows * (uint64_t)r->comms.tp.rank : 0;
    const double *whole = tr_router_pool(r, r->mb);
    double each = r->model.moe.aux_loss_coef * scale(r) / tr_router_pools(r);

    kn_wait(r->pool); /* dprobs may still be read for the layer above */
    for (uint64_t i = 0; i < r->d.local_rows; i++) {
        const float *mine = by_sequence(r) ? freq + (row0 + i) / seq * e : freq;

        for (uint64_t j = 0; j < e; j++)
            dprobs[i * e + j] = (float)(each * (whole ? whole[j] : (double)mine[j]));
    }
}

void tr_router_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, const float *dw,
                   void *dh)
{
    const struct pl_dims *d = &r->d;
    uint64_t e = d->experts;
    float *dlogits = r->work.moe_router, *dprobs = dlogits + d->local_rows * e;
    struct kn_gemm gw = {.m = e,
                         .n = d->hidden,
                         .k = d->local_rows,
                         .a = dlogits,
                         .b = tr_act(r, y, slot, PL_ACT_H2),
                         .c = y->router.g,
                         .lda = e,
                         .ldb = d->hidden,
                         .ldc = d->hidden,
                         .ta = true,
                         .beta = 1.0f,
                         .bt = r->type};
    struct kn_gemm gx = {.m = d->local_rows,
                         .n = d->hidden,
                         .k = e,
                         .a = dlogits,
                         .b = y->router.w,
                         .c = dh,
                         .lda = e,
                         .ldb = d->hidden,
                         .ldc = d->hidden,
                         .beta = 1.0f,
                         .bt = r->type,
                         .ct = r->type};

    balance_bwd(r, dprobs, tr_act(r, y, slot, PL_ACT_FREQ));
    kn_router_bwd(r->pool, dlogits, dw, dprobs, tr_act(r, y, slot, PL_ACT_PROBS),
                  tr_act(r, y, slot, PL_ACT_IDX), tr_act(r, y, slot, PL_ACT_W), d->local_rows, e,
                  d->top_k, true);
    kn_gemm(r->pool, &gw);
    kn_gemm(r->pool, &gx);
}
