/* Seconds of a feed-forward of experts. */
#include "plan/operator.h"
#include "plan/precision.h"

#include <math.h>

#include "base/base.h"

enum { PRODUCTS = 2 }; /* of an expert in a forward pass */

static const double BALANCED = 1.1; /* tokens of the fullest expert rank over the mean, dropless */
/* The host's, for the product of one expert on one of the streams: with Transformer Engine eight
 * products that compute for a microsecond each end after 0.267 ms on sm_100 (the benchmark of its
 * pull request 3134). */
static const double ISSUE_EXPERT_S = 33e-6;

static double min(double left, double right)
{
    return left < right ? left : right;
}

/* Gaps of the kernels that cast the operands of LOCAL experts one by one: of each product one in
 * both passes. */
static void add_expert_casts(struct pl_layer_time *layer, const struct pl_rates *rates,
                             double local)
{
    double gaps = PRODUCTS * rates->each_cast * local * rates->kernel_s;

    layer->fwd += gaps;
    layer->bwd_input += gaps;
}

/* Seconds by which the host holds up the forward pass's products of LOCAL experts, which take the
 * device DEVICE: it waits for the number of each one's tokens, so that it issues them no earlier
 * than the device could start. Not where the number is known, or all kernels are in one graph. */
static double issue_lag(const struct pl_op_ctx *op, const struct pl_layout *layout, double local,
                        double device)
{
    const struct pl_trainer *trainer = op->problem.trainer;
    double host = PRODUCTS * local * ISSUE_EXPERT_S;

    if (!trainer->expert_streams || pl_fuses_experts(trainer, layout->precision) ||
        layout->cuda_graphs == PL_GRAPHS_ITERATION || op->problem.model->moe.capacity_factor > 0)
        return 0;
    return host > device ? host - device : 0;
}

/* Parts, of PARTS equal ones that hold the experts, which a token's top_k distinct experts are in,
 * on the average. */
static double parts_met(const struct pl_moe *moe, double parts)
{
    double missed = 1, elsewhere = moe->experts - moe->experts / parts;

    for (int i = 0; i < moe->top_k; i++)
        missed *= elsewhere > i ? (elsewhere - i) / (moe->experts - i) : 0;
    return parts * (1 - missed);
}

/* Dispatch and combine of a pass, each token once to a rank and to a domain. A router of groups
 * bounds the domains that a token meets, where a domain has whole groups. */
static double once_to_each(const struct pl_op_ctx *op, const struct pl_layout *layout, double own)
{
    const struct pl_moe *moe = &op->problem.model->moe;
    struct pl_group all;
    double domains, met;

    pl_group_of(&all, op, layout->ep * layout->etp, 1);
    domains = ceil((double)all.size / all.per_node);
    met = parts_met(moe, domains);
    if (moe->n_group > 1 && moe->n_group >= domains)
        met = min(met, moe->topk_group);
    return 2 * pl_dispatch_s(&all, own * op->problem.model->hidden * op->rates->element,
                             parts_met(moe, layout->ep) * layout->etp, met);
}

/* Adds the seconds in which OWN tokens of a rank, COPIES for their experts, get there and back.
 * Returns those of dispatch and combine in one pass, without the etp group's. */
static double add_exchange(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                           const struct pl_layout *layout, double own, double copies)
{
    double row = op->problem.model->hidden * op->rates->element, copied = 0, exchange;
    struct pl_group ep, etp;

    pl_group_of(&ep, op, layout->ep, layout->etp);
    pl_group_of(&etp, op, layout->etp, 1);
    if (layout->moe_dispatch == PL_DISPATCH_ALLTOALL) {
        exchange = 2 * pl_all_to_all_s(&ep, copies * row);
        copied = 2 * pl_gather_s(&etp, copies * layout->etp * row);
    } else if (layout->moe_dispatch == PL_DISPATCH_ALLGATHER) { /* tokens to all, sums back */
        pl_group_of(&ep, op, layout->ep * layout->etp, 1);
        exchange = 2 * pl_gather_s(&ep, own * ep.size * row);
    } else {
        exchange = once_to_each(op, layout, own);
    }
    layer->ep_fwd += exchange + copied;
    layer->ep_bwd += exchange + copied;
    return exchange;
}

/* What kernels with the activation in them leave out, of INNER elements between the two products:
 * in the forward pass all that it moves, and that its cast reads its result; in the backward pass
 * that the product's result is written, and all that it moves but the product's input, as much as
 * its cast reads. */
static void fuse_activation(struct pl_layer_time *layer, const struct pl_rates *rates, double inner)
{
    layer->fwd -= (3 + 1) * rates->element * inner / rates->memory;
    layer->bwd_input -= (1 + 1.5 * 3) * rates->element * inner / rates->memory;
}

double pl_moe_mlp(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                  const struct pl_layout *layout)
{
    const struct pl_moe *moe = &op->problem.model->moe;
    double own = pl_tokens_of(op, layout) / layout->tp, h = op->problem.model->hidden,
           local = (double)moe->experts / layout->ep;
    double full = moe->capacity_factor > 0 ? moe->capacity_factor
                  : moe->force_balance     ? 1
                                           : BALANCED;
    double copies = own * moe->top_k * (layout->ep > 1 || moe->capacity_factor > 0 ? full : 1);
    double rows = copies * layout->etp / local, width = (double)moe->expert_ffn / layout->etp;
    double up = pl_mlp_is_gated(op->problem.model->mlp) ? 2 : 1;
    bool fused = pl_fuses_experts(op->problem.trainer, layout->precision);
    double streams = fused ? 0 : op->problem.trainer->expert_streams,
           joined = streams > 0 ? min(streams, local) : local;
    struct pl_layer_time one = {0};
    struct pl_rates grouped = *op->rates;
    double moved;

    grouped.flops *= op->constants->expert;
    grouped.tail /= joined; /* waves of one expert's product run over into the next one's */
    grouped.kernel_s /= joined;
    pl_add_product(&one, &grouped, rows, up * width, h);
    pl_add_product(&one, &grouped, rows, h, width);
    layer->fwd += local * one.fwd;
    layer->bwd_input += local * one.bwd_input;
    layer->bwd_weight += local * one.bwd_weight;
    layer->fwd += issue_lag(op, layout, local, local * one.fwd);
    add_expert_casts(layer, op->rates, local);
    pl_add_half_product(layer, op->rates, own, moe->experts, h);
    /* permuted copies are written and read on both sides, the activation between the products
     * likewise */
    moved = pl_streamed_s(op->rates,
                          op->rates->element * (copies * h * 6 + copies * layout->etp * width * 3),
                          PL_MOE_KERNELS);
    layer->fwd += moved;
    layer->bwd_input += 1.5 * moved;
    if (fused)
        fuse_activation(layer, op->rates, copies * layout->etp * width);

    return add_exchange(layer, op, layout, own, copies);
}
