#include "plan/plan.h"

#include "base/base.h"

const char *const pl_cost_class_names[PL_COST_CLASSES + 1] = {
    "forward", "backward", "recompute", "tp",        "cp",    "ep",
    "pp",      "bubble",   "dp",        "optimizer", "other", NULL};

static double peak_flops(const struct pl_cluster *c, int precision)
{
    const struct pl_device *d = &c->device;
    double tflops = precision == PL_FP8    ? d->tflops_fp8
                    : precision == PL_BF16 ? d->tflops_bf16
                                           : d->tflops_fp32;

    return tflops * 1e12;
}

double pl_mfu(const struct pl_model *m, const struct pl_cluster *c, const struct pl_layout *l,
              const struct pl_workload *w, double tokens_per_s)
{
    double peak = peak_flops(c, l->precision);

    if (peak <= 0 || l->world <= 0)
        return -1;
    return pl_model_flops_per_token(m, w->seq) * tokens_per_s / (peak * l->world);
}

json_t *pl_cost_json(const struct pl_cost *c)
{
    json_t *v = json_pack("{s:f s:f}", "total", c->total, "tokens_per_s", c->tokens_per_s);

    for (int i = 0; i < PL_COST_CLASSES; i++)
        json_object_set_new(v, pl_cost_class_names[i], json_real(c->seconds[i]));
    return v;
}

/* Compute at half the best rate, the pipeline's bubble, and gradients over the slowest link of the
 * replicas. */
void pl_cost(struct pl_cost *ret, const struct pl_model *m, const struct pl_cluster *c,
             const struct pl_layout *l, const struct pl_workload *w, const struct pl_trainer *t)
{
    double tokens = (double)w->global_batch * w->seq,
           micro = (double)w->global_batch / (l->micro_batch * l->dp);
    double rate =
        c->device.gemm_tflops > 0 ? c->device.gemm_tflops * 1e12 : peak_flops(c, l->precision);
    double flops = pl_model_flops_per_token(m, w->seq) * tokens;
    double ranks = l->world > pl_cluster_devices(c) ? pl_cluster_devices(c) : l->world;
    double fwd = flops / 3 / (ranks * (rate > 0 ? rate : 1e12) * 0.5);
    const struct pl_link *dp = pl_cluster_link(c, l->dp, pl_axis_stride(l, PL_DP));
    const struct pl_link *tp = pl_cluster_link(c, l->tp, 1);

    (void)t;
    *ret = (struct pl_cost){0};
    ret->seconds[PL_COST_FORWARD] = fwd;
    ret->seconds[PL_COST_BACKWARD] = 2 * fwd;
    ret->seconds[PL_COST_RECOMPUTE] = l->recompute == PL_RECOMPUTE_FULL ? fwd : 0;
    ret->seconds[PL_COST_BUBBLE] =
        (l->pp - 1) / (micro * l->vp) * (3 * fwd + ret->seconds[PL_COST_RECOMPUTE]);
    if (l->tp > 1)
        ret->seconds[PL_COST_TP] = 8.0 * m->layers / l->pp * 2 * tokens / l->dp * m->hidden *
                                   (l->tp - 1) / l->tp / (tp->gbs * 1e9);
    if (l->dp > 1)
        ret->seconds[PL_COST_DP] = 8.0 * (double)pl_model_params(m) / ((double)l->tp * l->pp) *
                                   (l->dp - 1) / l->dp / (dp->gbs * 1e9);
    for (int i = 0; i < PL_COST_CLASSES; i++)
        ret->total += ret->seconds[i];
    ret->tokens_per_s = tokens / ret->total;
}
