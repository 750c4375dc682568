/*
 * Host memory next to a device's: what is there, and what it takes to come and go.
 *
 * Optimizer's state. Its share in the host is fp32 weights, gradients and moments: 16 bytes a
 * parameter with Adam (DeepSpeed's estimate_zero2_model_states_mem_needs; Megatron-LM's
 * HybridDeviceOptimizer holds the same tensors). Down go gradients, 4 bytes a parameter, up updated
 * weights. Processors update them at the rate of their memory: the traffic of plan/optimizer.c, the
 * arriving gradient and the leaving weight.
 *   - Megatron-LM (hybrid_optimizer.py, --overlap-cpu-optimizer-d2h-h2d): after the backward pass,
 *     parameter by parameter, so that copies down, update and copies up run at once, as does the
 *     device's part.
 *   - DeepSpeed (stage_1_and_2.py, stage3.py) and FSDP2 (CPUOffloadPolicy): gradients leave in the
 *     backward pass of each micro-batch, once in fp32 or there and back in half precision; FSDP2
 *     adds them up in the host, in 12 bytes. The update follows, then the copies up.
 * Weights. DeepSpeed's offload_param holds half-precision shards, FSDP2 the masters themselves: a
 * pass that gathers brings the shard to the device first, ahead of the layer that needs it.
 * Activations. Transformer Engine's offloading (--cpu-offloading-num-layers) copies what a layer
 * keeps during the layers after it, and back during those before it in the backward pass; the
 * device holds one layer more than those that stay.
 */
#include "plan/offload.h"

#include <assert.h>

/* Of a link's rate packets leave so much (PCIe: headers of 24 bytes on payloads of 256, and flow
 * control); of a memory's peak a copy reaches as much. An update of seven streams reaches half
 * (assumed). Without a profile's word the link is taken to be PCIe 4.0 x16. */
static const double COPY_SHARE = 0.85, UPDATE_SHARE = 0.5, PCIE4_GBS = 31.5;

static double max(double left, double right)
{
    return left > right ? left : right;
}

/* Bytes a second of one device when all of its node copy, or update, at once. */
struct host_rates {
    double copy, update; /* the latter 0 where it is unknown */
};

static struct host_rates rates_of(const struct pl_cluster *cluster)
{
    const struct pl_host *host = &cluster->host;
    double link = (host->link_gbs > 0 ? host->link_gbs : PCIE4_GBS) * 1e9,
           memory = host->memory_gbs * 1e9 / cluster->devices_per_node;

    return (struct host_rates){
        .copy =
            pl_cluster_reached(cluster, COPY_SHARE) * (memory > 0 && memory < link ? memory : link),
        .update = UPDATE_SHARE * memory,
    };
}

static double at(double bytes, double rate)
{
    return rate > 0 ? bytes / rate : 0;
}

/* The part of the step that the host makes, once all gradients are final. */
static double host_step(const struct pl_op_ctx *op, const struct pl_layout *layout,
                        const struct host_rates *rates, double params)
{
    const struct pl_problem *problem = &op->problem;
    double traffic = pl_optimizer_traffic(problem->workload->optimizer) + 4 + op->rates->element;
    double down = at(4 * params, rates->copy), update = at(traffic * params, rates->update),
           up = layout->offload_params ? 0 : at(op->rates->element * params, rates->copy);

    if (!problem->trainer->offloads_grads)
        return max(max(down, up), update);
    return update + up + (pl_grads_leave(problem, layout) ? 0 : down);
}

/* What is left of the copies of gradients after the backward passes that hide them. */
static double late_grads(const struct pl_op_ctx *op, const struct pl_layout *layout,
                         const struct host_rates *rates, const struct pl_offload_work *work)
{
    double copies, sums = 0;

    if (!pl_grads_leave(&op->problem, layout))
        return 0;
    copies = at(4 * work->shard * layout->offload_optimizer / 100, rates->copy) * work->micro;
    if (op->problem.trainer->fp32_shards)
        sums = at(12 * work->shard, rates->update) * (work->micro - 1);
    return max(0, copies + sums - work->backward * work->micro);
}

/* Under a pipeline weights stay gathered for the whole step. */
static double late_weights(const struct pl_op_ctx *op, const struct pl_layout *layout,
                           const struct host_rates *rates, const struct pl_offload_work *work)
{
    double element = op->problem.trainer->fp32_shards ? 4 : op->rates->element;
    double passes = pl_weights_leave(&op->problem, layout) ? 2 : 1,
           times = layout->pp > 1 ? 1 : work->micro;

    return times * max(0, passes * at(element * work->shard, rates->copy) -
                              (work->forward + (passes > 1 ? work->backward : 0)));
}

/* Activations of one micro-batch that leave the device, in bytes. */
static double kept_away(const struct pl_op_ctx *op, const struct pl_layout *layout, int stage)
{
    struct pl_layer_count n = pl_stage_count(op->problem.model, layout, stage);
    int all = n.dense + n.moe, away = pl_offloaded_layers(layout, all);

    if (!away)
        return 0;
    return op->constants->activation * away / all *
           (n.dense * pl_layer_activation_bytes(&op->problem, layout, false) +
            n.moe * pl_layer_activation_bytes(&op->problem, layout, true));
}

void pl_offload_seconds(struct pl_cost *cost, const struct pl_op_ctx *op,
                        const struct pl_layout *layout, const struct pl_offload_work *work)
{
    struct host_rates rates = rates_of(op->problem.cluster);
    double share = layout->offload_optimizer / 100.0,
           copy = at(kept_away(op, layout, work->stage), rates.copy);

    assert(work->micro > 0 && work->shard >= 0);
    cost->seconds[PL_COST_OPTIMIZER] = max((1 - share) * cost->seconds[PL_COST_OPTIMIZER],
                                           host_step(op, layout, &rates, share * work->shard)) +
                                       late_grads(op, layout, &rates, work);
    if (layout->offload_params)
        cost->seconds[PL_COST_DP] += late_weights(op, layout, &rates, work);
    cost->seconds[PL_COST_OTHER] +=
        work->micro * (max(0, copy - work->forward) + max(0, copy - work->backward));
}
