/*
 * LAMB, You et al. 2019 ("Large batch optimization for deep learning", algorithm 2), in the form of
 * NVIDIA's apex.optimizers.FusedLAMB with its defaults: bias correction, gradients averaged into
 * the first moment, weight decay inside of the direction
 *
 *   u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + wd w        w = w - lr r u
 *
 * and the trust ratio r = |w| / |u| for tensors with weight decay, which are the matrices; 1 where
 * one of the norms is 0, and for all other tensors (use_nvlamb false). Gradients are clipped by
 * their global norm as for every optimizer.
 *
 * Norms are of the whole tensor: each rank adds up what it alone has to give of each, then all
 * ranks sum. The direction takes the place of the gradient.
 */
#include "base/base.h"
#include "trainer/optim_parts.h"

#include <assert.h>
#include <math.h>

/* With the modules of multi-token prediction, which have the numbers behind. */
static size_t layers_of(const struct pl_model *model)
{
    return (size_t)(model->layers + model->mtp);
}

/* The number of a tensor of the model that has a ratio, that is, decays; the same on all ranks:
 * those of a layer's experts, which are matrices, follow those of layers and of the whole model. */
static size_t tensor_number(const struct pl_param *param, const struct pl_model *model)
{
    size_t experts = (size_t)model->moe.experts,
           before = (size_t)PL_TENSORS * (layers_of(model) + 1);

    if (param->expert < 0)
        return (size_t)PL_TENSORS * (size_t)(param->layer + 1) + (size_t)param->tensor;
    assert(param->tensor >= PL_T_EXPERT_GATE && param->tensor <= PL_T_EXPERT_DOWN);
    return before + 3 * ((size_t)param->layer * experts + (size_t)param->expert) +
           (size_t)(param->tensor - PL_T_EXPERT_GATE);
}

size_t tr_lamb_norms(const struct pl_model *model)
{
    return 2 * ((size_t)PL_TENSORS * (layers_of(model) + 1) +
                3 * layers_of(model) * (size_t)model->moe.experts);
}

static void direction(struct tr_update *update, const struct tr_span_of *span)
{
    struct kn_adamw hyper = tr_update_adamw(update, span);
    struct tr_span_arrays a;

    tr_span_arrays(&a, update->rank, span);
    kn_lamb(update->rank->pool, &hyper, a.w, a.m, a.v, a.g, span->count);
}

static void add_norms(struct tr_rank *rank)
{
    const struct pl_params *t = &rank->params.table;

    for (int i = 0; i < t->n; i++) {
        struct tr_span_of span;
        struct tr_span_arrays a;
        double *norm;

        if (!t->p[i].decay || !tr_bucket_speaks(rank, &t->bucket[t->p[i].bucket]) ||
            !tr_span_of_param(&span, &rank->params, i))
            continue;
        norm = rank->tensor_norms + 2 * tensor_number(&t->p[i], &rank->model);
        tr_span_arrays(&a, rank, &span);
        norm[0] += kn_sumsq(rank->pool, KN_F32, a.w, span.count);
        norm[1] += kn_sumsq(rank->pool, KN_F32, a.g, span.count);
    }
}

static double trust(const struct tr_rank *rank, const struct pl_param *param)
{
    const double *norm;

    if (!param->decay)
        return 1;
    norm = rank->tensor_norms + 2 * tensor_number(param, &rank->model);
    return norm[0] > 0 && norm[1] > 0 ? sqrt(norm[0] / norm[1]) : 1;
}

static void step(struct tr_update *update, int from, int end)
{
    struct tr_rank *rank = update->rank;

    for (int i = from; i < end; i++) {
        struct tr_span_of span;
        struct tr_span_arrays a;
        double rate;

        if (!tr_span_of_param(&span, &rank->params, i))
            continue;
        rate = update->lr[span.group] * trust(rank, &rank->params.table.p[i]);
        tr_span_arrays(&a, rank, &span);
        kn_combine(rank->pool, a.w, a.low, 1, a.w, (float)-rate, a.g, span.count);
    }
}

tr_bucket_fn *tr_lamb_begin(struct tr_update *update)
{
    struct tr_rank *rank = update->rank;
    size_t norms = tr_lamb_norms(&rank->model);
    enum tr_phase was;

    tr_optim_spans(update, 0, rank->params.table.n, direction);
    memset(rank->tensor_norms, 0, sizeof(*rank->tensor_norms) * norms);
    add_norms(rank);
    was = tr_phase(&rank->clock, TR_PHASE_DP);
    tr_sum_double(&rank->comms.world, rank->tensor_norms, (int)norms);
    tr_phase(&rank->clock, was);
    return step;
}
