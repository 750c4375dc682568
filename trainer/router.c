/*
 * The router of a layer with experts: softmax, top k, renormalised (Mixtral), and the
 * load-balancing loss.
 *
 * For one sequence of T tokens, f_e = choices that fell on expert e / T (so f sums to top_k) and
 * P_e = mean probability of e, the loss is E sum_e f_e P_e; reported is the mean over layers and
 * sequences, added to the objective times aux_loss_coef. f is not differentiated (Fedus et al.
 * 2021), so d/dP_e is E f_e. Under sequence parallelism a sequence lies on several tp ranks and its
 * sums are exchanged; the loss is then the same number in every layout.
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

void tr_router_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, bool count)
{
    const struct pl_dims *d = &r->d;
    uint64_t n = (uint64_t)r->layout.micro_batch * d->experts;
    float *logits = r->work.moe_router, *freq = r->work.moe_stats, *psum = freq + n;
    float *probs = tr_act(r, y, slot, PL_ACT_PROBS);
    int32_t *idx = tr_act(r, y, slot, PL_ACT_IDX);
    double t = (double)r->workload.seq, sum = 0.0;
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
    memcpy(tr_act(r, y, slot, PL_ACT_FREQ), freq, n * sizeof(*freq));
    for (uint64_t i = 0; i < n; i++)
        sum += (double)freq[i] / t * ((double)psum[i] / t);
    if (count && r->routed)
        r->routed(r->routed_arg, r, y->global, idx);
    if (count)
        r->aux_sum += (double)d->experts * sum;
}

void tr_router_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, const float *dw,
                   void *dh)
{
    const struct pl_dims *d = &r->d;
    uint64_t e = d->experts, seq = (uint64_t)r->workload.seq;
    uint64_t row0 = r->layout.sp ? d->local_rows * (uint64_t)r->comms.tp.rank : 0;
    float *dlogits = r->work.moe_router, *dprobs = dlogits + d->local_rows * e;
    const float *freq = tr_act(r, y, slot, PL_ACT_FREQ);
    double t = (double)seq, scale = r->model.moe.aux_loss_coef * (double)e / (t * t) /
                                    ((double)r->workload.global_batch * r->moe_layers);
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

    kn_wait(r->pool); /* dprobs may still be read for the layer above */
    for (uint64_t i = 0; i < d->local_rows; i++)
        for (uint64_t j = 0; j < e; j++)
            dprobs[i * e + j] = (float)(scale * (double)freq[(row0 + i) / seq * e + j]);
    kn_router_bwd(r->pool, dlogits, dw, dprobs, tr_act(r, y, slot, PL_ACT_PROBS),
                  tr_act(r, y, slot, PL_ACT_IDX), tr_act(r, y, slot, PL_ACT_W), d->local_rows, e,
                  d->top_k, true);
    kn_gemm(r->pool, &gw);
    kn_gemm(r->pool, &gx);
}
