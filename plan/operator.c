/*
 * Seconds of the operators of one layer, from their shapes.
 *
 * A kernel takes the time of its arithmetic, plus that of its memory traffic, plus a gap: the sum
 * rather than the larger one, since loads at the start of a tile and stores at its end do not
 * overlap with arithmetic. A product also loses half a wave of tiles at its end on the average. So
 * small products, short reductions and thin slices (large tp, small micro-batches) are slower by
 * themselves, without a table of efficiencies.
 */
#include "plan/cost.h"

#include <math.h>

#include "base/base.h"

/* Kernels of a layer's forward pass besides products: norms, rotation, activation, residuals,
 * casts. */
enum { LAYER_KERNELS = 10, MOE_KERNELS = 12 };

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

static double max(double a, double b)
{
    return a > b ? a : b;
}

static double min(double a, double b)
{
    return a < b ? a : b;
}

/* ODD: the matrix units do not take it, because rows of its operands are no multiple of ALIGNED
 * elements long. */
static double product_s(const struct pl_rates *r, double flops, bool odd, double m, double n,
                        double k)
{
    return 2 * k * (m * n + HALF_WAVE * r->tail) / (odd ? r->vector : flops) +
           r->element * (r->passes * (m * k + k * n) + m * n) / r->memory + r->kernel_s;
}

/* Weights are stored with N and K contiguous in one product or another of a pass; the number of
 * tokens is a stride of none. */
static bool is_odd(const struct pl_rates *r, double n, double k)
{
    return !r->cpu && (fmod(n, ALIGNED) != 0 || fmod(k, ALIGNED) != 0);
}

/* The three products of Y(m,n) = X(m,k) W(k,n): forward, input's gradient, weight's gradient. */
static void add_three(struct pl_layer_time *x, const struct pl_rates *r, double flops, double m,
                      double n, double k)
{
    bool odd = is_odd(r, n, k);

    x->fwd += product_s(r, flops, odd, m, n, k);
    x->bwd_input += product_s(r, flops, odd, m, k, n);
    x->bwd_weight += product_s(r, flops, odd, k, n, m);
}

static void add_half_product(struct pl_layer_time *x, const struct pl_rates *r, double m, double n,
                             double k)
{
    add_three(x, r, r->half_flops, m, n, k);
}

/* Under fp8 operands are cast. With scales of the moment for each product anew. Where weights are
 * cast after the optimizer's step, input and output's gradient are cast once, each in both orders.
 */
static void add_product(struct pl_layer_time *x, const struct pl_rates *r, double m, double n,
                        double k)
{
    add_three(x, r, r->flops, m, n, k);
    if (r->cast_once) {
        x->fwd += r->cast * m * k / r->memory;
        x->bwd_input += r->cast * m * n / r->memory;
        return;
    }
    x->fwd += r->cast * (m * k + k * n) / r->memory;
    x->bwd_input += r->cast * (m * n + n * k) / r->memory;
    x->bwd_weight += r->cast * (k * m + m * n) / r->memory;
}

static double streamed(const struct pl_rates *r, double bytes, double kernels)
{
    return bytes / r->memory + kernels * r->kernel_s;
}

static double tokens_of(const struct pl_op_ctx *x, const struct pl_layout *l)
{
    return (double)x->w->seq / l->cp * l->micro_batch;
}

/*
 * Softmax(Q K^T) V. Streaming: causal half of the products, no scores in memory, 2.5 x in the
 * backward pass (scores again, then four products; Dao 2022). Otherwise all of T x T, and the
 * scores cross the memory: written, scaled and masked and normalised, dropped out, read: 13 bytes
 * an element in half precision, twice that backward.
 */
static void add_attention(struct pl_layer_time *y, double *core, const struct pl_op_ctx *x,
                          const struct pl_layout *l)
{
    double tokens = tokens_of(x, l), heads = (double)x->m->heads / l->tp, d = x->m->head_dim;
    double flops = 4 * tokens * x->w->seq * heads * d, scores = tokens * x->w->seq * heads;
    bool odd = !x->r.cpu && fmod(d, ALIGNED) != 0;
    double rate = odd ? x->r.vector : x->r.half_flops;
    int behind = x->t->flash_units ? x->r.units - x->t->flash_units : 0;

    if (x->t->flash) {
        *core = flops / 2 / (rate * x->r.attention * (behind > 0 ? pow(OLD_UNITS, behind) : 1)) +
                x->r.kernel_s;
        y->fwd += *core;
        y->bwd_input += 2.5 * *core;
        return;
    }
    *core = flops / rate + scores * 13 / 2 * x->r.element / x->r.memory + 5 * x->r.kernel_s;
    y->fwd += *core;
    y->bwd_input += 2 * *core;
}

/* Bytes of norms, residuals and dropout (each token's hidden row), and of what lies between the
 * products. */
static double row_bytes(const struct pl_model *m, double e)
{
    bool dropout = m->positions == PL_LEARNED && m->norm == PL_LAYERNORM;

    return m->hidden * e * (2 * 2 + 2 * 3 + (dropout ? 2 * 0.5 : 0));
}

static double inner_bytes(const struct pl_model *m, double e, double ffn)
{
    double qkv = (double)(m->heads + 2 * m->kv_heads) * m->head_dim;

    return e * (2 * qkv + (m->mlp == PL_SWIGLU ? 3 : 2) * ffn);
}

static void add_elementwise(struct pl_layer_time *y, const struct pl_op_ctx *x,
                            const struct pl_layout *l, double ffn)
{
    double tokens = tokens_of(x, l), rows = tokens / (l->sp ? l->tp : 1);
    double s = streamed(&x->r,
                        rows * row_bytes(x->m, x->r.element) +
                            tokens / l->tp * inner_bytes(x->m, x->r.element, ffn),
                        LAYER_KERNELS);

    if (x->t->eager)
        s *= 2;
    y->fwd += s;
    y->bwd_input += 1.5 * s;
}

/* Two all-reduces a pass, or as many gathers and scatters with sp, SHARE of them in this part of
 * the layer. */
static void add_tp(struct pl_layer_time *y, const struct pl_op_ctx *x, const struct pl_layout *l,
                   double share)
{
    struct pl_group g;
    double bytes = tokens_of(x, l) * x->m->hidden * x->r.element, once;

    if (l->tp == 1)
        return;
    pl_group_of(&g, x->k, x->c, &x->r, l->tp, 1);
    once = l->sp ? 2 * pl_gather_s(&g, bytes) : pl_all_reduce_s(&g, bytes);
    if (x->t->tp_overlap)
        once *= 1 - x->k->tp_hidden;
    y->tp_fwd += 2 * share * once;
    y->tp_bwd += 2 * share * once * (x->t->tp_async ? 1 - x->k->hidden : 1);
}

/* Keys and values go round the ring while the rank's own queries meet them: only the excess shows.
 */
static void add_cp(struct pl_layer_time *y, double core, const struct pl_op_ctx *x,
                   const struct pl_layout *l)
{
    struct pl_group g;
    double bytes = tokens_of(x, l) * 2 * x->m->kv_heads * x->m->head_dim / l->tp * x->r.element;
    double step;

    if (l->cp == 1)
        return;
    pl_group_of(&g, x->k, x->c, &x->r, l->cp, l->tp);
    step = pl_send_s(&g, bytes);
    y->cp_fwd = (l->cp - 1) * max(0, step - core / l->cp);
    y->cp_bwd = (l->cp - 1) * max(0, 2 * step - 2.5 * core / l->cp);
}

static void dense_mlp(struct pl_layer_time *y, const struct pl_op_ctx *x, const struct pl_layout *l,
                      double ffn)
{
    double tokens = tokens_of(x, l), h = x->m->hidden, up = x->m->mlp == PL_SWIGLU ? 2 : 1;

    add_product(y, &x->r, tokens, up * ffn / l->tp, h);
    add_product(y, &x->r, tokens, h, ffn / l->tp);
}

/* Experts are quantized one by one where scales are of the moment and weights are cast once a step:
 * a kernel for the largest element, one for the cast, of each product's operand in both passes. */
static void add_expert_casts(struct pl_layer_time *y, const struct pl_rates *r, double local)
{
    const double products = 2, kernels = 2;

    if (!r->current)
        return;
    y->fwd += products * kernels * local * r->kernel_s;
    y->bwd_input += products * kernels * local * r->kernel_s;
}

/*
 * Router, dispatch, experts, combine. Each rank holds tokens / tp of the micro-batch, sends top_k
 * copies of each to the ranks of its ep group, and receives as many; with etp the copies are
 * gathered over the etp group first and each rank computes all of them on its share of the width.
 * Returns the seconds of dispatch and combine in one pass, without the etp group's.
 */
static double moe_mlp(struct pl_layer_time *y, const struct pl_op_ctx *x, const struct pl_layout *l)
{
    const struct pl_moe *e = &x->m->moe;
    double own = tokens_of(x, l) / l->tp, h = x->m->hidden, local = (double)e->experts / l->ep;
    double full = e->capacity_factor > 0 ? e->capacity_factor : BALANCED;
    double copies = own * e->top_k * (l->ep > 1 || e->capacity_factor > 0 ? full : 1);
    double rows = copies * l->etp / local, width = (double)e->expert_ffn / l->etp;
    double up = x->m->mlp == PL_SWIGLU ? 2 : 1;
    struct pl_layer_time one = {0};
    struct pl_rates grouped = x->r;
    struct pl_group ep, etp;
    double exchange, copied, moved;

    grouped.flops *= x->k->expert;
    grouped.tail /= local; /* one launch for all experts: waves run over into the next expert */
    grouped.kernel_s /= local;
    add_product(&one, &grouped, rows, up * width, h);
    add_product(&one, &grouped, rows, h, width);
    y->fwd += local * one.fwd;
    y->bwd_input += local * one.bwd_input;
    y->bwd_weight += local * one.bwd_weight;
    add_expert_casts(y, &x->r, local);
    add_half_product(y, &x->r, own, e->experts, h);
    /* permuted copies are written and read on both sides, the activation between the products
     * likewise */
    moved =
        streamed(&x->r, x->r.element * (copies * h * 6 + copies * l->etp * width * 3), MOE_KERNELS);
    y->fwd += moved;
    y->bwd_input += 1.5 * moved;

    pl_group_of(&ep, x->k, x->c, &x->r, l->ep, l->etp);
    pl_group_of(&etp, x->k, x->c, &x->r, l->etp, 1);
    exchange = 2 * pl_all_to_all_s(&ep, copies * h * x->r.element);
    copied = 2 * pl_gather_s(&etp, copies * l->etp * h * x->r.element);
    y->ep_fwd += exchange + copied;
    y->ep_bwd += exchange + copied;
    return exchange;
}

/* Overlapped, the exchange of one micro-batch runs beside the other pass of its neighbour, and
 * hides behind no more than what a layer computes in both. */
static void hide_exchange(struct pl_layer_time *y, double exchange, const struct pl_op_ctx *x)
{
    double compute = y->fwd + y->bwd_input + y->bwd_weight;
    double hidden = x->k->hidden * min(exchange, compute / 2);

    y->ep_fwd -= hidden;
    y->ep_bwd -= hidden;
}

/* The bundled trainer's selective recompute restores the outputs of the norms and of SwiGLU, each
 * by one pass over memory. */
static double restored_s(const struct pl_op_ctx *x, const struct pl_layout *l, bool moe)
{
    double tokens = tokens_of(x, l), rows = tokens / (l->sp ? l->tp : 1);
    double inner = tokens / l->tp * (moe ? x->m->moe.shared_ffn : x->m->ffn);

    if (moe)
        inner += tokens / l->tp * x->m->moe.top_k * x->m->moe.expert_ffn;
    return streamed(&x->r, x->r.element * (4 * rows * x->m->hidden + 3 * inner), 3);
}

/* What is computed again: all of the forward pass, or what the trainer's selective mode gives up,
 * by default the core of attention where it keeps its scores. */
static void add_recompute(struct pl_layer_time *y, double core, const struct pl_op_ctx *x,
                          const struct pl_layout *l, bool moe)
{
    if (l->recompute == PL_RECOMPUTE_FULL) {
        y->re = y->fwd;
        y->tp_re = y->tp_fwd;
        y->cp_re = y->cp_fwd;
        y->ep_re = y->ep_fwd;
    } else if (l->recompute == PL_RECOMPUTE_SELECTIVE) {
        if (x->t->bundled)
            y->re = restored_s(x, l, moe);
        else if (x->t->selective_share > 0)
            y->re = x->t->selective_share * y->fwd;
        else
            y->re = x->t->flash ? 0 : core;
    }
}

void pl_layer_time_of(struct pl_layer_time *ret, const struct pl_op_ctx *x,
                      const struct pl_layout *l, bool moe)
{
    const struct pl_model *m = x->m;
    double q = (double)m->heads * m->head_dim / l->tp,
           kv = (double)m->kv_heads * m->head_dim / l->tp;
    double tokens = tokens_of(x, l), core = 0, exchange = 0;

    *ret = (struct pl_layer_time){0};
    add_product(ret, &x->r, tokens, q + 2 * kv, m->hidden);
    add_product(ret, &x->r, tokens, m->hidden, q);
    add_attention(ret, &core, x, l);
    if (moe) {
        exchange = moe_mlp(ret, x, l);
        if (m->moe.shared_ffn)
            dense_mlp(ret, x, l, m->moe.shared_ffn);
    } else {
        dense_mlp(ret, x, l, m->ffn);
    }
    add_elementwise(ret, x, l, moe ? m->moe.shared_ffn : m->ffn);
    add_tp(ret, x, l, !moe || m->moe.shared_ffn ? 1 : 0.5);
    add_cp(ret, core, x, l);
    if (l->overlap_moe_a2a)
        hide_exchange(ret, exchange, x);
    add_recompute(ret, core, x, l, moe);
}

/* GPU trainers pad the vocabulary of each tp rank to whole tiles. */
static double padded_vocab(const struct pl_op_ctx *x, const struct pl_layout *l)
{
    double grain = x->r.cpu ? 1 : 128;

    return ceil(x->m->vocab / (grain * l->tp)) * grain;
}

/* Embedding: rows read, written and, backward, added; head: a product, and logits that cross memory
 * in fp32 for maximum, exponential and gradient. */
void pl_ends_time_of(struct pl_ends_time *ret, const struct pl_op_ctx *x, const struct pl_layout *l)
{
    double tokens = tokens_of(x, l), h = x->m->hidden, v = padded_vocab(x, l);
    double rows = streamed(&x->r, 2 * tokens * h * x->r.element, 2);
    struct pl_layer_time head = {0};
    struct pl_group g;

    add_half_product(&head, &x->r, tokens, v, h);
    ret->embed_fwd = rows;
    ret->embed_bwd = 2 * rows;
    ret->head_fwd = head.fwd + streamed(&x->r, LOGIT_FWD * tokens * v, 6);
    ret->head_bwd = head.bwd_input + head.bwd_weight + streamed(&x->r, LOGIT_BWD * tokens * v, 2);
    ret->tp_head = 0;
    if (l->tp > 1) {
        pl_group_of(&g, x->k, x->c, &x->r, l->tp, 1);
        ret->tp_head = 2 * pl_all_reduce_s(&g, tokens * h * x->r.element);
    }
}
