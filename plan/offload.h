/*
 * Private to plan/: what of a layout is in host memory (its bytes are in plan/memory_gpu.c), and
 * the seconds that an iteration waits for it (plan/offload.c).
 */
#ifndef PLAN_OFFLOAD_H
#define PLAN_OFFLOAD_H

#include "plan/cost_parts.h"
#include "plan/memory_parts.h"

static inline bool pl_offloads(const struct pl_layout *layout)
{
    return layout->offload_optimizer || layout->offload_params || layout->offload_activations;
}

/* Of COUNT layers of a stage those whose activations are in host memory. */
static inline int pl_offloaded_layers(const struct pl_layout *layout, int count)
{
    return layout->offload_activations < count ? layout->offload_activations : count;
}

/* Alone a rank has nothing to share, and offloads as the highest stage of zero does. */
static inline bool pl_alone(const struct pl_model *model, const struct pl_layout *layout)
{
    return (int64_t)layout->dp * layout->cp == 1 && !(model->moe.experts && layout->edp > 1);
}

/* Do gradients leave the device as they are made? */
static inline bool pl_grads_leave(const struct pl_problem *problem, const struct pl_layout *layout)
{
    return problem->trainer->offloads_grads && layout->offload_optimizer &&
           (layout->zero >= 2 || pl_alone(problem->model, layout));
}

/* Do weights of the host come for each pass, and leave after it? FSDP2 keeps those that it does not
 * share. */
static inline bool pl_weights_leave(const struct pl_problem *problem,
                                    const struct pl_layout *layout)
{
    return layout->offload_params && layout->pp == 1 &&
           (layout->zero >= 3 ||
            (pl_alone(problem->model, layout) && !problem->trainer->fp32_shards));
}

/* What a rank of STAGE does in an iteration. */
struct pl_offload_work {
    int stage;
    double shard;             /* parameters whose state it has */
    double micro;             /* micro-batches */
    double forward, backward; /* seconds of one, on the device */
};

/* The optimizer's seconds in COST are those of a step on the device: make them those of the step on
 * both, and add what the device waits for the host. */
void pl_offload_seconds(struct pl_cost *cost, const struct pl_op_ctx *op,
                        const struct pl_layout *layout, const struct pl_offload_work *work);

#endif
