/*
 * Seconds of the operators of one layer, from their shapes.
 *
 * A kernel takes the time of its arithmetic, plus that of its memory traffic, plus a gap: the sum
 * rather than the larger one, since loads at the start of a tile and stores at its end do not
 * overlap with arithmetic. A product also loses half a wave of tiles at its end on the average. So
 * small products, short reductions and thin slices (large tp, small micro-batches) are slower by
 * themselves, without a table of efficiencies.
 */
#include "plan/cost_parts.h"
#include "plan/recompute.h"

#include <math.h>

#include "base/base.h"
#include "plan/shape.h"

/* Kernels of a layer's forward pass besides products: norms, rotation, activation, residuals,
 * casts. */
enum { LAYER_KERNELS = 10, MOE_KERNELS = 12 };

/* Graphs of a layer's forward pass that stand for all but the experts' kernels: of attention, and
 * of the feed-forward or the router. */
enum { MODULE_GRAPHS = 2 };

static const double ALIGNED =
    8; /* matrix units take reductions in multiples of 8 half-precision elements */
static const double HALF_WAVE = 0.5;
/* Attention written for the last generation of matrix units, of the rate of what is written for
 * this one: FlashAttention-2 is twice as fast as its predecessor on A100, FlashAttention-3 1.5 to 2
 * times as fast as FlashAttention-2 on H100. */
static const double OLD_UNITS = 0.57;
/* Bytes that cross memory for one logit: the cast to fp32 (2 + 4), and PyTorch's cross entropy
 * reads and writes it once in the forward pass; backward it reads logit and gradient, writes, and
 * casts back. */
static const double LOGIT_FWD = 6 + 8, LOGIT_BWD = 12 + 6;
static const double BALANCED = 1.1; /* tokens of the fullest expert rank over the mean, dropless */

static double min(double left, double right)
{
    return left < right ? left : right;
}

/* ODD: the matrix units do not take it, because rows of its operands are no multiple of ALIGNED
 * elements long. */
static double product_s(const struct pl_rates *rates, double flops, bool odd, double m, double n,
                        double k)
{
    return 2 * k * (m * n + HALF_WAVE * rates->tail) / (odd ? rates->vector : flops) +
           rates->element * (rates->passes * (m * k + k * n) + m * n) / rates->memory +
           rates->kernel_s;
}

/* Weights are stored with N and K contiguous in one product or another of a pass; the number of
 * tokens is a stride of none. */
static bool is_odd(const struct pl_rates *rates, double n, double k)
{
    return !rates->cpu && (fmod(n, ALIGNED) != 0 || fmod(k, ALIGNED) != 0);
}

/* The three products of Y(m,n) = X(m,k) W(k,n): forward, input's gradient, weight's gradient. */
static void add_three(struct pl_layer_time *layer, const struct pl_rates *rates, double flops,
                      double m, double n, double k)
{
    bool odd = is_odd(rates, n, k);

    layer->fwd += product_s(rates, flops, odd, m, n, k);
    layer->bwd_input += product_s(rates, flops, odd, m, k, n);
    layer->bwd_weight += product_s(rates, flops, odd, k, n, m);
}

static void add_half_product(struct pl_layer_time *layer, const struct pl_rates *rates, double m,
                             double n, double k)
{
    add_three(layer, rates, rates->half_flops, m, n, k);
}

/* Under fp8 operands are cast for each product, unless weights are cast after the optimizer's step:
 * then input and output's gradient are cast once, each in both orders. */
static void add_product(struct pl_layer_time *layer, const struct pl_rates *rates, double m,
                        double n, double k)
{
    add_three(layer, rates, rates->flops, m, n, k);
    if (rates->cast_once) {
        layer->fwd += rates->cast * m * k / rates->memory;
        layer->bwd_input += rates->cast * m * n / rates->memory;
        return;
    }
    layer->fwd += rates->cast * (m * k + k * n) / rates->memory;
    layer->bwd_input += rates->cast * (m * n + n * k) / rates->memory;
    layer->bwd_weight += rates->cast * (k * m + m * n) / rates->memory;
}

static double streamed(const struct pl_rates *rates, double bytes, double kernels)
{
    return bytes / rates->memory + kernels * rates->kernel_s;
}

static double tokens_of(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    return (double)op->problem.workload->seq / layout->cp * layout->micro_batch;
}

/*
 * Softmax(Q K^T) V. Streaming: causal half of the products, no scores in memory, 2.5 x in the
 * backward pass (scores again, then four products; Dao 2022). Otherwise all of T x T, and the
 * scores cross the memory: written, scaled and masked and normalized, dropped out, read: 13 bytes
 * an element in half precision, twice that backward.
 */
static void add_attention(struct pl_layer_time *layer, double *core, const struct pl_op_ctx *op,
                          const struct pl_layout *layout)
{
    double tokens = tokens_of(op, layout), heads = (double)op->problem.model->heads / layout->tp,
           d = pl_key_dim(op->problem.model), value = pl_value_dim(op->problem.model);
    double span = pl_span(op->problem.model, op->problem.workload->seq);
    double flops = 2 * tokens * span * heads * (d + value),
           scores = tokens * op->problem.workload->seq * heads;
    bool odd = !op->rates->cpu && fmod(d, ALIGNED) != 0;
    double rate = odd ? op->rates->vector : op->rates->half_flops;
    int behind =
        op->problem.trainer->flash_units ? op->rates->units - op->problem.trainer->flash_units : 0;

    if (op->problem.trainer->flash) {
        *core =
            flops / 2 / (rate * op->rates->attention * (behind > 0 ? pow(OLD_UNITS, behind) : 1)) +
            op->rates->kernel_s;
        layer->fwd += *core;
        layer->bwd_input += 2.5 * *core;
        return;
    }
    *core = flops / rate + scores * 13 / 2 * op->rates->element / op->rates->memory +
            5 * op->rates->kernel_s;
    layer->fwd += *core;
    layer->bwd_input += 2 * *core;
}

/* Bytes of norms, residuals and dropout (each token's hidden row), and of what lies between the
 * products. */
static double row_bytes(const struct pl_model *model, double elem)
{
    bool dropout = model->positions == PL_LEARNED && model->norm == PL_LAYERNORM;

    return model->hidden * elem * (2 * 2 + 2 * 3 + (dropout ? 2 * 0.5 : 0));
}

static double inner_bytes(const struct pl_model *model, double elem, double ffn)
{
    double qkv = model->heads * pl_key_dim(model) +
                 model->kv_heads * (pl_key_dim(model) + pl_value_dim(model));

    if (model->qk_norm != PL_QK_NONE) /* read and written once more */
        qkv += (double)(model->heads + model->kv_heads) * model->head_dim;
    return elem * (2 * qkv + pl_mlp_matrices(model) * ffn);
}

/* Of the bundled trainer's latent attention: a pass over the latents, each read and written, and
 * keys put together of their parts. */
static double latent_bytes(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double tokens = tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1),
           latents = model->mla.q_lora_rank + model->mla.kv_lora_rank;

    if (!pl_model_is_mla(model) || !op->problem.trainer->bundled)
        return 0;
    return op->rates->element *
           (2 * rows * latents + 2 * tokens / layout->tp * model->heads * pl_key_dim(model));
}

/* Bytes a token of a rank that unfused operations move beyond the fused ones, as much in each pass:
 * of a gated feed-forward its gate's activation, written and read again; of the rotation of queries
 * and keys, t cos + rotate_half(t) sin, two products, a negated half, a concatenation and a sum:
 * 5.5 reads and 4.5 writes for one of each. */
static double unfused_bytes(const struct pl_op_ctx *op, double ffn)
{
    const struct pl_trainer *trainer = op->problem.trainer;
    const struct pl_model *model = op->problem.model;
    double gate = trainer->eager_mlp && pl_mlp_is_gated(model->mlp) ? 2 * ffn : 0;
    double turned = trainer->eager_rotary && model->positions == PL_ROPE
                        ? (double)(model->heads + model->kv_heads) * model->head_dim
                        : 0;

    return trainer->eager ? 0 : op->rates->element * (gate + 8 * turned);
}

static void add_elementwise(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                            const struct pl_layout *layout, double ffn)
{
    double tokens = tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1);
    double s = streamed(
        op->rates,
        rows * row_bytes(op->problem.model, op->rates->element) + latent_bytes(op, layout) +
            tokens / layout->tp * inner_bytes(op->problem.model, op->rates->element, ffn),
        LAYER_KERNELS);
    double unfused = tokens / layout->tp * unfused_bytes(op, ffn) / op->rates->memory;

    if (op->problem.trainer->eager)
        s *= 2;
    layer->fwd += s + unfused;
    layer->bwd_input += 1.5 * s + unfused;
}

/* Two all-reduces a pass, or as many gathers and scatters with sp, SHARE of them in this part of
 * the layer. */
static void add_tp(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                   const struct pl_layout *layout, double share)
{
    struct pl_group g;
    double bytes = tokens_of(op, layout) * op->problem.model->hidden * op->rates->element, once;

    if (layout->tp == 1)
        return;
    pl_group_of(&g, op, layout->tp, 1);
    once = layout->sp ? 2 * pl_gather_s(&g, bytes) : pl_all_reduce_s(&g, bytes);
    if (op->problem.trainer->tp_overlap || layout->tp_overlap)
        once *= 1 - op->constants->tp_hidden;
    layer->tp_fwd += 2 * share * once;
    layer->tp_bwd +=
        2 * share * once * (op->problem.trainer->tp_async ? 1 - op->constants->hidden : 1);
}

/* Norms of whole queries and keys: ranks of tp add up two numbers a token in each pass, and wait
 * for them. */
static void add_qk_sums(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                        const struct pl_layout *layout)
{
    struct pl_group g;
    double once;

    if (layout->tp == 1 || op->problem.model->qk_norm != PL_QK_FULL)
        return;
    pl_group_of(&g, op, layout->tp, 1);
    once = pl_all_reduce_s(&g, 2 * tokens_of(op, layout) * sizeof(float));
    layer->tp_fwd += once;
    layer->tp_bwd += once;
}

static void dense_mlp(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, double ffn)
{
    double tokens = tokens_of(op, layout), h = op->problem.model->hidden,
           up = pl_mlp_is_gated(op->problem.model->mlp) ? 2 : 1;

    add_product(layer, op->rates, tokens, up * ffn / layout->tp, h);
    add_product(layer, op->rates, tokens, h, ffn / layout->tp);
}

/* Gaps of the kernels that cast the operands of LOCAL experts one by one: of each product one in
 * both passes. */
static void add_expert_casts(struct pl_layer_time *layer, const struct pl_rates *rates,
                             double local)
{
    const double products = 2;
    double gaps = products * rates->each_cast * local * rates->kernel_s;

    layer->fwd += gaps;
    layer->bwd_input += gaps;
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

/*
 * Router, dispatch, experts, combine. Each rank holds tokens / tp of the micro-batch, sends top_k
 * copies of each to the ranks of its ep group, and receives as many; with etp the copies are
 * gathered over the etp group first and each rank computes all of them on its share of the width.
 * Returns the seconds of dispatch and combine in one pass, without the etp group's.
 */
static double moe_mlp(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                      const struct pl_layout *layout)
{
    const struct pl_moe *moe = &op->problem.model->moe;
    double own = tokens_of(op, layout) / layout->tp, h = op->problem.model->hidden,
           local = (double)moe->experts / layout->ep;
    double full = moe->capacity_factor > 0 ? moe->capacity_factor
                  : moe->force_balance     ? 1
                                           : BALANCED;
    double copies = own * moe->top_k * (layout->ep > 1 || moe->capacity_factor > 0 ? full : 1);
    double rows = copies * layout->etp / local, width = (double)moe->expert_ffn / layout->etp;
    double up = pl_mlp_is_gated(op->problem.model->mlp) ? 2 : 1;
    double streams = op->problem.trainer->expert_streams,
           joined = streams > 0 ? min(streams, local) : local;
    struct pl_layer_time one = {0};
    struct pl_rates grouped = *op->rates;
    double moved;

    grouped.flops *= op->constants->expert;
    grouped.tail /= joined; /* waves of one expert's product run over into the next one's */
    grouped.kernel_s /= joined;
    add_product(&one, &grouped, rows, up * width, h);
    add_product(&one, &grouped, rows, h, width);
    layer->fwd += local * one.fwd;
    layer->bwd_input += local * one.bwd_input;
    layer->bwd_weight += local * one.bwd_weight;
    add_expert_casts(layer, op->rates, local);
    add_half_product(layer, op->rates, own, moe->experts, h);
    /* permuted copies are written and read on both sides, the activation between the products
     * likewise */
    moved = streamed(op->rates,
                     op->rates->element * (copies * h * 6 + copies * layout->etp * width * 3),
                     MOE_KERNELS);
    layer->fwd += moved;
    layer->bwd_input += 1.5 * moved;

    return add_exchange(layer, op, layout, own, copies);
}

/* The exchange of one micro-batch overlaps the other pass of its neighbor, and hides behind no more
 * than what a layer computes in both. */
static void hide_exchange(struct pl_layer_time *layer, double exchange, const struct pl_op_ctx *op)
{
    double compute = layer->fwd + layer->bwd_input + layer->bwd_weight;
    double hidden = op->constants->hidden * min(exchange, compute / 2);

    layer->ep_fwd -= hidden;
    layer->ep_bwd -= hidden;
}

/* The bundled trainer's selective recompute restores the outputs of the norms and of SwiGLU, each
 * by one pass over memory. */
static double restored_s(const struct pl_op_ctx *op, const struct pl_layout *layout, bool moe)
{
    const struct pl_mla *mla = &op->problem.model->mla;
    double tokens = tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1);
    double normed = 2 * op->problem.model->hidden + mla->q_lora_rank + mla->kv_lora_rank;
    double inner =
        tokens / layout->tp * (moe ? op->problem.model->moe.shared_ffn : op->problem.model->ffn);

    if (moe)
        inner +=
            tokens / layout->tp * op->problem.model->moe.top_k * op->problem.model->moe.expert_ffn;
    return streamed(op->rates, op->rates->element * (2 * rows * normed + 3 * inner), 3);
}

/* Seconds of the product that ends a dense feed-forward of width FFN. The backward pass does not
 * read its result, so that a compiler of whole steps does not repeat it. */
static double pruned_s(const struct pl_op_ctx *op, const struct pl_layout *layout, double ffn)
{
    struct pl_layer_time down = {0};

    if (!op->problem.trainer->prunes_repeats || ffn <= 0 || op->problem.model->pattern[0])
        return 0;
    add_product(&down, op->rates, tokens_of(op, layout), op->problem.model->hidden,
                ffn / layout->tp);
    return down.fwd;
}

/* The forward pass of the feed-forward that the modules AGAIN make anew. */
static void again_ffn(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, bool moe, unsigned again)
{
    const struct pl_model *model = op->problem.model;
    double tokens = tokens_of(op, layout) / layout->tp, elem = op->rates->element, dense = 0;
    bool whole = moe && (again & PL_RE_MOE);
    struct pl_layer_time part = {0};

    if (whole) {
        moe_mlp(&part, op, layout);
        layer->ep_re += layer->ep_fwd;
    } else if (moe && (again & PL_RE_MOE_ACT)) {
        layer->re +=
            streamed(op->rates, 3 * elem * tokens * model->moe.top_k * model->moe.expert_ffn, 1);
    }
    if (!moe && (again & PL_RE_MLP))
        dense = model->ffn;
    else if (whole || (moe && (again & PL_RE_SHARED)))
        dense = model->moe.shared_ffn;
    if (dense > 0) { /* half of the layer's collectives are the feed-forward's */
        dense_mlp(&part, op, layout, dense);
        layer->re += streamed(op->rates, 3 * elem * tokens * dense, 1);
        layer->tp_re += layer->tp_fwd / 2;
    }
    layer->re += part.fwd - pruned_s(op, layout, dense);
}

/* Module by module, in addition. */
static void add_modules(struct pl_layer_time *layer, double core, const struct pl_op_ctx *op,
                        const struct pl_layout *layout, bool moe)
{
    const struct pl_model *model = op->problem.model;
    unsigned again = pl_recompute_modules(layout);
    double tokens = tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1);
    double norm = streamed(op->rates, 2 * op->rates->element * rows * model->hidden, 1);
    struct pl_product product[PL_MOST_PRODUCTS];
    struct pl_layer_time part = {0};
    int many = (again & PL_RE_MLA) ? pl_attention_products(product, model) : 0;

    for (int i = 0; i < many; i++)
        if (product[i].in < model->hidden && product[i].split == PL_SPLIT_OUT) /* of a latent */
            add_product(&part, op->rates, tokens, product[i].out / layout->tp, product[i].in);
    layer->re += part.fwd;
    if (again & PL_RE_NORM)
        layer->re += norm * (pl_model_is_mla(model) + moe);
    if (again & PL_RE_CORE)
        layer->re += core;
    again_ffn(layer, op, layout, moe, again);
}

/* What is computed again: all of the forward pass, or what the trainer's selective mode gives up,
 * by default the core of attention where it keeps its scores. */
static void add_recompute(struct pl_layer_time *layer, double core, const struct pl_op_ctx *op,
                          const struct pl_layout *layout, bool moe)
{
    if (layout->recompute == PL_RECOMPUTE_FULL) {
        layer->re = layer->fwd - pruned_s(op, layout, moe ? 0 : op->problem.model->ffn);
        layer->tp_re = layer->tp_fwd;
        layer->cp_re = layer->cp_fwd;
        layer->ep_re = layer->ep_fwd;
    } else if (layout->recompute == PL_RECOMPUTE_SELECTIVE) {
        if (op->problem.trainer->bundled)
            layer->re = restored_s(op, layout, moe);
        else if (op->problem.trainer->selective_share > 0)
            layer->re = op->problem.trainer->selective_share * layer->fwd;
        else if (pl_recompute_modules(layout))
            add_modules(layer, core, op, layout, moe);
        else
            layer->re = op->problem.trainer->flash ? 0 : core;
    }
}

/* Products and core of attention; CORE gets the seconds of the latter. */
static void add_attention_part(struct pl_layer_time *layer, double *core,
                               const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    struct pl_product product[PL_MOST_PRODUCTS];
    int many = pl_attention_products(product, op->problem.model);
    double tokens = tokens_of(op, layout), own = tokens / (layout->sp ? layout->tp : 1);

    for (int i = 0; i < many; i++) {
        double in = product[i].in / (product[i].split == PL_SPLIT_IN ? layout->tp : 1),
               out = product[i].out / (product[i].split == PL_SPLIT_OUT ? layout->tp : 1);

        add_product(layer, op->rates, product[i].split == PL_SPLIT_NONE ? own : tokens, out, in);
    }
    add_attention(layer, core, op, layout);
}

static void scale(struct pl_layer_time *layer, double share)
{
    layer->fwd *= share;
    layer->bwd_input *= share;
    layer->bwd_weight *= share;
}

static void add_part(struct pl_layer_time *layer, struct pl_layer_time *part, double share)
{
    scale(part, share);
    layer->fwd += part->fwd;
    layer->bwd_input += part->bwd_input;
    layer->bwd_weight += part->bwd_weight;
}

/* Mamba-2: two products; scan and convolution stream what they keep, and the scan's arithmetic runs
 * on the matrix units in chunks, whose products are small: as attention's. */
static void mamba_part(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                       const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double tokens = tokens_of(op, layout), inner = pl_mamba_inner(model) / layout->tp;
    double scan =
        tokens * pl_mamba_scan_flops(model) / layout->tp /
            (op->rates->half_flops * op->rates->attention) +
        streamed(op->rates, tokens * pl_mamba_kept(model) / layout->tp * op->rates->element, 6);

    add_product(layer, op->rates, tokens, pl_mamba_in(model) / layout->tp, model->hidden);
    add_product(layer, op->rates, tokens, model->hidden, inner);
    layer->fwd += scan;
    layer->bwd_input += 2 * scan;
}

/* The mean layer of a hybrid without experts, or its layer with experts: one part and one norm
 * each. */
static void hybrid_layer(struct pl_layer_time *ret, double *core, double *exchange,
                         const struct pl_op_ctx *op, const struct pl_layout *layout, bool moe)
{
    const struct pl_model *model = op->problem.model;
    struct pl_layer_time attention = {0}, mamba = {0}, ffn = {0};
    struct pl_mix mix;

    pl_mix_of(&mix, model, moe);
    if (mix.attention > 0)
        add_attention_part(&attention, core, op, layout);
    if (mix.mamba > 0)
        mamba_part(&mamba, op, layout);
    if (moe)
        *exchange = moe_mlp(ret, op, layout);
    if (moe ? model->moe.shared_ffn : mix.ffn > 0)
        dense_mlp(&ffn, op, layout, moe ? model->moe.shared_ffn : model->ffn);
    *core *= mix.attention;
    add_part(ret, &attention, mix.attention);
    add_part(ret, &mamba, mix.mamba);
    add_part(ret, &ffn, mix.ffn);
    attention = (struct pl_layer_time){0};
    add_elementwise(&attention, op, layout, moe ? model->moe.shared_ffn : mix.ffn * model->ffn);
    add_part(ret, &attention, 0.5);
    add_tp(ret, op, layout, 0.5);
    pl_add_context(ret, *core, op, layout);
}

static void whole_layer(struct pl_layer_time *ret, double *core, double *exchange,
                        const struct pl_op_ctx *op, const struct pl_layout *layout, bool moe)
{
    const struct pl_model *model = op->problem.model;

    add_attention_part(ret, core, op, layout);
    if (moe) {
        *exchange = moe_mlp(ret, op, layout);
        if (model->moe.shared_ffn)
            dense_mlp(ret, op, layout, model->moe.shared_ffn);
    } else {
        dense_mlp(ret, op, layout, model->ffn);
    }
    add_elementwise(ret, op, layout, moe ? model->moe.shared_ffn : model->ffn);
    add_tp(ret, op, layout, !moe || model->moe.shared_ffn ? 1 : 0.5);
    add_qk_sums(ret, op, layout);
    pl_add_context(ret, *core, op, layout);
}

/* Seconds by which a host that takes HOST to issue the kernels holds up a device that takes DEVICE
 * to run them: the slower of both, and something more where they are close. */
static double held_up(double device, double host)
{
    double share = host / device;

    return device > 0 ? device * (sqrt(sqrt(1 + share * share * share * share)) - 1) : host;
}

/* The host issues products, attention and what lies between them, and a tp group's collectives;
 * twice as many in the backward pass. */
static void add_host(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                     const struct pl_layout *layout, bool moe)
{
    const double products = 5, collectives = layout->tp > 1 ? 4 : 0;
    double graphed = LAYER_KERNELS + products + collectives;
    double kernels = (layout->cuda_graphs ? MODULE_GRAPHS : graphed) + (moe ? MOE_KERNELS : 0);
    double host = kernels * op->constants->issue_us * 1e-6;

    layer->fwd += held_up(layer->fwd + layer->tp_fwd + layer->cp_fwd + layer->ep_fwd, host);
    layer->bwd_input += held_up(layer->bwd_input + layer->bwd_weight + layer->tp_bwd +
                                    layer->cp_bwd + layer->ep_bwd,
                                2 * host);
}

void pl_layer_time_of(struct pl_layer_time *ret, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, bool moe)
{
    double core = 0, exchange = 0;

    *ret = (struct pl_layer_time){0};
    if (op->problem.model->pattern[0])
        hybrid_layer(ret, &core, &exchange, op, layout, moe);
    else
        whole_layer(ret, &core, &exchange, op, layout, moe);
    if (layout->overlap_moe_a2a)
        hide_exchange(ret, exchange, op);
    if (op->constants->issue_us > 0 && layout->cuda_graphs != PL_GRAPHS_ITERATION)
        add_host(ret, op, layout, moe);
    add_recompute(ret, core, op, layout, moe);
}

/* GPU trainers pad the vocabulary of each tp rank to whole tiles. */
static double padded_vocab(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    double grain = op->rates->cpu ? 1 : 128;

    return ceil(op->problem.model->vocab / (grain * layout->tp)) * grain;
}

/* Multi-token prediction on the last stage, with its collectives: each module an embedding, the
 * product that joins it with the hidden row, a layer like the last, and the head again. The bundled
 * trainer does not cut the product over tp, but with sp computes its own rows. */
static void add_mtp(struct pl_ends_time *ends, const struct pl_op_ctx *op,
                    const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double modules = model->mtp, h = model->hidden;
    bool cut = op->problem.trainer->by != PL_BY_PARTUNE || layout->sp;
    struct pl_layer_time layer, join = {0};

    pl_layer_time_of(&layer, op, layout, pl_layer_is_moe(model, model->layers - 1));
    add_product(&join, op->rates, tokens_of(op, layout), cut ? h / layout->tp : h, 2 * h);
    ends->head_fwd += modules * (ends->head_fwd + ends->embed_fwd + join.fwd + layer.fwd +
                                 layer.tp_fwd + layer.cp_fwd + layer.ep_fwd);
    ends->head_bwd +=
        modules * (ends->head_bwd + ends->embed_bwd + join.bwd_input + join.bwd_weight +
                   layer.bwd_input + layer.bwd_weight + layer.tp_bwd + layer.cp_bwd + layer.ep_bwd);
    ends->tp_head += modules * ends->tp_head;
}

/* Embedding: rows read, written and, backward, added; head: a product, and logits that cross memory
 * in fp32 for maximum, exponential and gradient. */
void pl_ends_time_of(struct pl_ends_time *ret, const struct pl_op_ctx *op,
                     const struct pl_layout *layout)
{
    double tokens = tokens_of(op, layout), h = op->problem.model->hidden,
           v = padded_vocab(op, layout), seen = v; /* logits that the loss of a rank reads */
    double rows = streamed(op->rates, 2 * tokens * h * op->rates->element, 2);
    struct pl_layer_time head = {0};
    struct pl_group g;

    add_half_product(&head, op->rates, tokens, v, h);
    ret->embed_fwd = rows;
    ret->embed_bwd = 2 * rows;
    if (op->problem.trainer->whole_logits)
        seen *= layout->tp;
    ret->head_fwd = head.fwd + streamed(op->rates, LOGIT_FWD * tokens * seen, 6);
    ret->head_bwd =
        head.bwd_input + head.bwd_weight + streamed(op->rates, LOGIT_BWD * tokens * seen, 2);
    ret->tp_head = 0;
    if (layout->tp > 1) {
        pl_group_of(&g, op, layout->tp, 1);
        ret->tp_head = 2 * pl_all_reduce_s(&g, tokens * h * op->rates->element);
        if (op->problem.trainer->whole_logits)
            ret->tp_head += pl_gather_s(&g, tokens * seen * op->rates->element);
    }
    if (op->problem.model->mtp)
        add_mtp(ret, op, layout);
}
