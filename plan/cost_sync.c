/* What replicas of a stage exchange, and the optimizer's step. docs/explanation/cost-model.md
 * explains the terms. */
#include "plan/cost_stage.h"
#include "plan/precision.h"

#include "base/base.h"

/* Tensors of a layer that a trainer without layer-wise gathering fetches one by one: weights and
 * biases. */
enum { LAYER_TENSORS = 12 };

/* The exposed part of a collective that overlaps COMPUTE seconds of work. */
static double exposed(const struct pl_op_ctx *op, bool overlapped, double comm, double compute)
{
    double hidden = comm < compute ? comm : compute;

    return overlapped ? comm - op->constants->hidden * hidden : comm;
}

struct sync {
    struct pl_group dense, expert;               /* that share one copy of the state */
    struct pl_group dense_copies, expert_copies; /* members of one rank's shard in all copies */
    double dense_bytes, expert_bytes;            /* parameters of this rank */
};

static void sync_of(struct sync *ret, const struct pl_op_ctx *op, const struct pl_layout *layout,
                    const struct pl_held *held)
{
    int copies = pl_shard_copies(layout);
    int twice = pl_stage_copies(layout), dense = layout->dp * layout->cp * twice / copies,
        expert = layout->edp * twice > copies ? layout->edp * twice / copies : 1;

    *ret = (struct sync){.dense_bytes = held->dense, .expert_bytes = held->expert};
    ret->expert.size = ret->dense_copies.size = ret->expert_copies.size = 1;
    pl_group_of(&ret->dense, op, dense, layout->tp);
    if (held->expert > 0)
        pl_group_of(&ret->expert, op, expert, layout->etp * layout->ep);
    if (copies == 1)
        return;
    pl_group_of(&ret->dense_copies, op, copies, layout->tp * dense);
    if (held->expert > 0)
        pl_group_of(&ret->expert_copies, op, copies, layout->etp * layout->ep * expert);
}

/* Gradients of a rank's shard meet those of the other copies. */
static double across_copies(const struct sync *sync, double each)
{
    double dense = sync->dense_bytes * each / sync->dense.size,
           expert = sync->expert_bytes * each / sync->expert.size;

    return pl_all_reduce_s(&sync->dense_copies, dense) +
           (sync->expert_bytes > 0 ? pl_all_reduce_s(&sync->expert_copies, expert) : 0);
}

static double both(const struct sync *sync, double (*seconds_of)(const struct pl_group *, double),
                   double each)
{
    double t = sync->dense.size > 1 ? seconds_of(&sync->dense, sync->dense_bytes * each) : 0;

    return t + (sync->expert_bytes > 0 && sync->expert.size > 1
                    ? seconds_of(&sync->expert, sync->expert_bytes * each)
                    : 0);
}

/* zero 3: every micro-batch gathers the weights for each pass and scatters the gradients. */
static double sharded_weights(const struct pl_op_ctx *op, const struct sync *sync,
                              const struct pl_layout *layout, const struct pl_stage_sum *stage,
                              double micro, double grad)
{
    double pieces = op->problem.trainer->tensor_gather ? LAYER_TENSORS : 1;
    double gather = both(sync, pl_gather_s, op->rates->element),
           scatter = both(sync, pl_gather_s, grad);
    double latency = both(sync, pl_gather_s, 0);
    double each = (stage->layers * pieces - 1) * latency; /* as many collectives as pieces */
    double fwd = gather + each, bwd = gather + scatter + 2 * each;

    if (op->problem.trainer->tensor_gather &&
        stage->re > 0) /* released after use, gathered again for the second forward pass */
        bwd += fwd;

    return micro *
           (exposed(op, layout->overlap_param_gather, fwd, stage->fwd + stage->tp + stage->ep) +
            exposed(op, layout->overlap_grad_reduce, bwd, stage->bwd + stage->re));
}

/* Passes of one micro-batch that the reduction of gradients and the gathering of weights overlap:
 * the last and the first. Interleaved, a chunk sees its last micro-batch pp steps before the next
 * chunk does, and its first likewise, so that all but the outermost chunk have pp passes. */
static double overlapped_passes(const struct pl_layout *layout, double micro)
{
    return layout->schedule == PL_INTERLEAVED && layout->vp > 1
               ? (micro < layout->pp ? micro : layout->pp)
               : 1;
}

/* Zero 2 scatters gradients whatever zero 0 and 1 do. */
static bool reduces_whole(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    return op->problem.trainer->whole_reduce && layout->zero < 2;
}

/* Bytes of one parameter's gradient where replicas add them up. */
static double gradient_element(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    bool half = op->problem.trainer->half_grads && !reduces_whole(op, layout);

    return half || layout->precision == PL_FP32 ? op->rates->element : pl_grad_bytes(layout);
}

/* The first stage and the last, which may both hold the embedding, add up its gradient at the end
 * of a step: two ranks half the job or more apart, with no work to overlap
 * (docs/explanation/trainer.md). */
double pl_tied_embedding_s(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    struct pl_group pair;

    if (!pl_embeds_twice(op->problem.model, layout))
        return 0;
    pl_group_of(&pair, op, 2, layout->world / 2);
    return pl_all_reduce_s(&pair, (double)op->problem.model->vocab / layout->tp *
                                      op->problem.model->hidden * gradient_element(op, layout));
}

/* Bytes of one of the parameters HELD as ranks gather them. */
static double gathered_element(const struct pl_op_ctx *op, const struct pl_layout *layout,
                               const struct pl_held *held)
{
    double all = held->dense + held->expert;
    struct pl_operands operands;

    if (!layout->fp8_param_gather || all <= 0)
        return op->rates->element;
    pl_operands_of(&operands, op->problem.trainer, layout->precision);
    return op->rates->element + (operands.gathered - op->rates->element) * held->narrow / all;
}

/* What the scope "plain" adds: gradients meet over all replicas, weights within the smaller group.
 */
static double plain_scope(const struct sync *sync, const struct pl_layout *layout,
                          const struct pl_held *held, double grad)
{
    return layout->zero_scope == PL_SCOPE_PLAIN && sync->dense.size > 1
               ? pl_gather_s(&sync->dense, held->dense * grad)
               : 0;
}

/* zero 2 and 3 with windows: a layer's gradients start at zero and are scattered and added to the
 * shard by every micro-batch; zero 3 gathers its weights for each pass. Embedding, output
 * projection, norms and routers are as with zero 1. */
static double windowed(const struct pl_op_ctx *op, const struct sync *sync,
                       const struct pl_layout *layout, const struct pl_stage_sum *stage,
                       const struct pl_held *held, double micro, double grad)
{
    struct sync layers = *sync, whole = *sync;
    double element = gathered_element(op, layout, held), once, add, each, t;

    layers.dense_bytes = held->narrow - held->expert;
    whole.dense_bytes = held->dense - layers.dense_bytes;
    whole.expert_bytes = 0;
    once = both(&whole, pl_gather_s, grad) + across_copies(sync, grad) +
           plain_scope(sync, layout, held, grad);
    add = micro * grad *
          (held->narrow +
           3 * (layers.dense_bytes / sync->dense.size + layers.expert_bytes / sync->expert.size)) /
          op->rates->memory;
    each = micro *
           (both(&layers, pl_gather_s, grad) + (stage->layers - 1) * both(&layers, pl_gather_s, 0));
    if (layout->zero == 3)
        t = sharded_weights(op, &layers, layout, stage, micro, grad);
    else
        t = exposed(op, layout->overlap_grad_reduce, each, stage->bwd * micro) +
            exposed(op, layout->overlap_param_gather, both(&layers, pl_gather_s, element),
                    stage->fwd);
    return add + t + exposed(op, layout->overlap_grad_reduce, once, stage->bwd) +
           exposed(op, layout->overlap_param_gather, both(&whole, pl_gather_s, element),
                   stage->fwd);
}

double pl_sync_s(const struct pl_op_ctx *op, const struct pl_layout *layout,
                 const struct pl_stage_sum *stage, const struct pl_held *held, double micro)
{
    double grad = gradient_element(op, layout);
    struct sync s;
    double reduce, gather, each, passes, across;

    sync_of(&s, op, layout, held);
    across = across_copies(&s, grad) *
             (op->problem.trainer->copies_meet_often && layout->pp == 1 ? micro : 1);
    if (layout->zero >= 2 && op->problem.trainer->windows)
        return windowed(op, &s, layout, stage, held, micro, grad);
    if (layout->zero == 3 &&
        layout->pp == 1) /* under a pipeline weights stay gathered from one micro-batch
                                       to the next, as with zero 2 */
        return sharded_weights(op, &s, layout, stage, micro, grad) +
               exposed(op, layout->overlap_grad_reduce, across, stage->bwd);
    if (layout->zero == 0)
        return exposed(op, layout->overlap_grad_reduce, both(&s, pl_all_reduce_s, grad),
                       stage->bwd * overlapped_passes(layout, micro));
    /* zero 2 scatters what each micro-batch adds; under a pipeline it waits for the last one */
    each = layout->zero == 2 && layout->pp == 1 ? micro : 1;
    passes = each > 1 ? each : overlapped_passes(layout, micro);
    reduce =
        both(&s, reduces_whole(op, layout) ? pl_all_reduce_s : pl_gather_s, grad) * each + across;
    gather = both(&s, pl_gather_s, gathered_element(op, layout, held));
    reduce += plain_scope(&s, layout, held, grad);
    return exposed(op, layout->overlap_grad_reduce, reduce, stage->bwd * passes) +
           exposed(op, layout->overlap_param_gather, gather, stage->fwd * passes);
}

/* Parameters whose state a rank has. */
double pl_shard_params(const struct pl_layout *layout, const struct pl_held *held)
{
    return held->dense / pl_dense_shards(layout) + held->expert / pl_expert_shards(layout);
}

/* The optimizer's traffic (plan/optimizer.c); the clipping norm reads all gradients of the rank. */
double pl_update_s(const struct pl_op_ctx *op, const struct pl_layout *layout,
                   const struct pl_held *held)
{
    double state = pl_shard_params(layout, held);
    double norm = layout->zero >= 2 ? state : held->dense + held->expert;
    enum pl_optimizer word = op->problem.workload->optimizer;

    return (pl_optimizer_traffic(word) * state + 4 * norm) / op->rates->memory +
           10 * op->rates->kernel_s +
           (word == PL_MUON ? pl_muon_rank_flops(op->problem.model, layout, pl_dense_shards(layout),
                                                 pl_expert_shards(layout)) /
                                  op->rates->flops
                            : 0);
}
