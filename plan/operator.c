/*
 * Seconds of the operators of one layer, from their shapes.
 *
 * A kernel takes the time of its arithmetic, plus that of its memory traffic, plus a gap: the sum
 * rather than the larger one, since loads at the start of a tile and stores at its end do not
 * overlap with arithmetic. A product also loses half a wave of tiles at its end on the average. So
 * small products, short reductions and thin slices (large tp, small micro-batches) are slower by
 * themselves, without a table of efficiencies.
 */
#include "plan/operator.h"
#include "plan/precision.h"
#include "plan/recompute.h"

#include <math.h>

#include "base/base.h"
#include "plan/shape.h"

/* Kernels of a layer's forward pass besides products: norms, rotation, activation, residuals,
 * casts. */
enum { LAYER_KERNELS = 10 };

/* Kernels of a layer of linear attention besides products: convolution, norms of q and k, gates,
 * those of the rule, norm of its output. */
enum { LINEAR_KERNELS = 10 };

/* Graphs of a layer's forward pass that stand for all but the experts' kernels: of attention, and
 * of the feed-forward or the router. */
enum { MODULE_GRAPHS = 2 };

/* Attention written for the last generation of matrix units, of the rate of what is written for
 * this one: FlashAttention-2 is twice as fast as its predecessor on A100, FlashAttention-3 1.5 to 2
 * times as fast as FlashAttention-2 on H100. */
static const double OLD_UNITS = 0.57;
/* Bytes that cross memory for one logit: the cast to fp32 (2 + 4), and PyTorch's cross entropy
 * reads and writes it once in the forward pass; backward it reads logit and gradient, writes, and
 * casts back. */
static const double LOGIT_FWD = 6 + 8, LOGIT_BWD = 12 + 6;

static double min(double left, double right)
{
    return left < right ? left : right;
}

/* CORE becomes the time with fp8 operands, to which queries, keys, values and the output's gradient
 * of TOKENS are cast. */
static void narrow_attention(struct pl_layer_time *layer, double *core, const struct pl_op_ctx *op,
                             double tokens)
{
    const struct pl_model *model = op->problem.model;
    double key = pl_key_dim(model), value = pl_value_dim(model),
           cast = op->rates->cast * tokens / op->rates->memory;

    *core *= min(1, op->rates->narrow_time * PL_NARROW_WIDTH / (key + value));
    layer->fwd += cast * (model->heads * key + model->kv_heads * (key + value));
    layer->bwd_input += cast * model->heads * value;
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
    double tokens = pl_tokens_of(op, layout), heads = (double)op->problem.model->heads / layout->tp,
           d = pl_core_key_dim(op->problem.model), value = pl_core_value_dim(op->problem.model);
    double span = pl_span(op->problem.model, op->problem.workload->seq);
    double flops = 2 * tokens * span * heads * (d + value),
           scores = tokens * op->problem.workload->seq * heads;
    bool odd = !op->rates->cpu && fmod(d, PL_ALIGNED) != 0;
    double rate = odd ? op->rates->vector : op->rates->half_flops;
    int behind =
        op->problem.trainer->flash_units ? op->rates->units - op->problem.trainer->flash_units : 0;

    if (op->problem.trainer->flash) {
        *core =
            flops / 2 / (rate * op->rates->attention * (behind > 0 ? pow(OLD_UNITS, behind) : 1)) +
            op->rates->kernel_s;
        if (op->rates->narrow_time > 0)
            narrow_attention(layer, core, op, tokens / layout->tp);
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

    return model->hidden * elem * (pl_layer_norms(model) * 2 + 2 * 3 + (dropout ? 2 * 0.5 : 0));
}

/* ATTENTION: share of layers that have it; what linear attention moves is counted with it. */
static double inner_bytes(const struct pl_model *model, double elem, double ffn, double attention)
{
    double qkv = model->heads * pl_key_dim(model) +
                 model->kv_heads * (pl_key_dim(model) + pl_value_dim(model)),
           gated = model->attention_output_gate ? 3 * model->heads * pl_value_dim(model) : 0;

    if (model->qk_norm != PL_QK_NONE) /* read and written once more */
        qkv += (double)(model->heads + model->kv_heads) * model->head_dim;
    return elem * (attention * (2 * qkv + gated) + pl_mlp_matrices(model) * ffn);
}

/* Of the bundled trainer's latent attention: a pass over the latents, each read and written, and
 * keys put together of their parts. */
static double latent_bytes(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double tokens = pl_tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1),
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
static double unfused_bytes(const struct pl_op_ctx *op, double ffn, double attention)
{
    const struct pl_trainer *trainer = op->problem.trainer;
    const struct pl_model *model = op->problem.model;
    double gate = trainer->eager_mlp && pl_mlp_is_gated(model->mlp) ? 2 * ffn : 0;
    double turned = trainer->eager_rotary && model->positions == PL_ROPE
                        ? attention * (model->heads + model->kv_heads) * model->head_dim
                        : 0;

    return trainer->eager ? 0 : op->rates->element * (gate + 8 * turned);
}

static void add_elementwise(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                            const struct pl_layout *layout, double ffn, double attention)
{
    double tokens = pl_tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1);
    double s = pl_streamed_s(
        op->rates,
        rows * row_bytes(op->problem.model, op->rates->element) + latent_bytes(op, layout) +
            tokens / layout->tp *
                inner_bytes(op->problem.model, op->rates->element, ffn, attention),
        LAYER_KERNELS);
    double unfused = tokens / layout->tp * unfused_bytes(op, ffn, attention) / op->rates->memory;

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
    double bytes = pl_tokens_of(op, layout) * op->problem.model->hidden * op->rates->element, once;

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
    once = pl_all_reduce_s(&g, 2 * pl_tokens_of(op, layout) * sizeof(float));
    layer->tp_fwd += once;
    layer->tp_bwd += once;
}

static void dense_mlp(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, double ffn)
{
    double tokens = pl_tokens_of(op, layout), h = op->problem.model->hidden,
           up = pl_mlp_is_gated(op->problem.model->mlp) ? 2 : 1;

    pl_add_product(layer, op->rates, tokens, up * ffn / layout->tp, h);
    pl_add_product(layer, op->rates, tokens, h, ffn / layout->tp);
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

/* The bundled trainer's selective recompute restores the outputs of norms that a product reads, and
 * of SwiGLU, each by one pass over memory. */
static double restored_s(const struct pl_op_ctx *op, const struct pl_layout *layout, bool moe)
{
    const struct pl_mla *mla = &op->problem.model->mla;
    double tokens = pl_tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1);
    int norms = pl_input_norms(op->problem.model);
    double normed =
        (double)norms * op->problem.model->hidden + mla->q_lora_rank + mla->kv_lora_rank;
    double inner =
        tokens / layout->tp * (moe ? op->problem.model->moe.shared_ffn : op->problem.model->ffn);

    if (moe)
        inner +=
            tokens / layout->tp * op->problem.model->moe.top_k * op->problem.model->moe.expert_ffn;
    return pl_streamed_s(op->rates, op->rates->element * (2 * rows * normed + 3 * inner),
                         1 + norms);
}

/* Seconds of the product that ends a dense feed-forward of width FFN. The backward pass does not
 * read its result, so that a compiler of whole steps does not repeat it. */
static double pruned_s(const struct pl_op_ctx *op, const struct pl_layout *layout, double ffn)
{
    struct pl_layer_time down = {0};

    if (!op->problem.trainer->prunes_repeats || ffn <= 0 || op->problem.model->pattern[0])
        return 0;
    pl_add_product(&down, op->rates, pl_tokens_of(op, layout), op->problem.model->hidden,
                   ffn / layout->tp);
    return down.fwd;
}

/* The forward pass of the feed-forward that the modules AGAIN make anew. */
static void again_ffn(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, bool moe, unsigned again)
{
    const struct pl_model *model = op->problem.model;
    double tokens = pl_tokens_of(op, layout) / layout->tp, elem = op->rates->element, dense = 0;
    bool whole = moe && (again & PL_RE_MOE);
    struct pl_layer_time part = {0};

    if (whole) {
        pl_moe_mlp(&part, op, layout);
        layer->ep_re += layer->ep_fwd;
    } else if (moe && (again & PL_RE_MOE_ACT)) {
        layer->re += pl_streamed_s(op->rates,
                                   3 * elem * tokens * model->moe.top_k * model->moe.expert_ffn, 1);
    }
    if (!moe && (again & PL_RE_MLP))
        dense = model->ffn;
    else if (whole || (moe && (again & PL_RE_SHARED)))
        dense = model->moe.shared_ffn;
    if (dense > 0) { /* half of the layer's collectives are the feed-forward's */
        dense_mlp(&part, op, layout, dense);
        layer->re += pl_streamed_s(op->rates, 3 * elem * tokens * dense, 1);
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
    double tokens = pl_tokens_of(op, layout), rows = tokens / (layout->sp ? layout->tp : 1);
    double norm = pl_streamed_s(op->rates, 2 * op->rates->element * rows * model->hidden, 1);
    struct pl_product product[PL_MOST_PRODUCTS];
    struct pl_layer_time part = {0};
    int many = (again & PL_RE_MLA) ? pl_attention_products(product, model) : 0;

    for (int i = 0; i < many; i++)
        if (product[i].in < model->hidden && product[i].split == PL_SPLIT_OUT) /* of a latent */
            pl_add_product(&part, op->rates, tokens, product[i].out / layout->tp, product[i].in);
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

/* The indexer scores every key before a query, on each tp rank all of them (Megatron-LM's
 * DSAIndexer): the causal half at attention's rate, scores that cross memory for the choice of the
 * highest, and backward the scores again and two products, as its loss has it. */
static void add_indexer(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                        const struct pl_layout *layout)
{
    double tokens = pl_tokens_of(op, layout), seq = op->problem.workload->seq;
    double scores = tokens * pl_indexer_flops(op->problem.model, seq) / 2 /
                    (op->rates->half_flops * op->rates->attention),
           chosen = pl_streamed_s(op->rates, 2 * 4 * tokens * seq / 2, 2);

    layer->fwd += scores + chosen;
    layer->bwd_input += 3 * scores;
}

/* Products and core of attention; CORE gets the seconds of the latter. */
static void add_attention_part(struct pl_layer_time *layer, double *core,
                               const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    struct pl_product product[PL_MOST_PRODUCTS];
    int many = pl_attention_products(product, op->problem.model);
    double tokens = pl_tokens_of(op, layout), own = tokens / (layout->sp ? layout->tp : 1);

    for (int i = 0; i < many; i++) {
        double in = product[i].in / (product[i].split == PL_SPLIT_IN ? layout->tp : 1),
               out = product[i].out / (product[i].split == PL_SPLIT_OUT ? layout->tp : 1);

        pl_add_product(layer, op->rates, product[i].split == PL_SPLIT_NONE ? own : tokens, out, in);
    }
    add_attention(layer, core, op, layout);
    if (op->problem.model->dsa.index_topk)
        add_indexer(layer, op, layout);
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

/* Linear attention: two products; convolution, norms and gate stream what they keep, and the rule's
 * arithmetic runs on the matrix units in chunks, whose products are small: as attention's. What is
 * kept crosses memory twice. Backward the states of the chunks are made again
 * (flash-linear-attention), and each product has two. */
static void linear_part(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                        const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double tokens = pl_tokens_of(op, layout), each = tokens / layout->tp;
    double rule =
               each * pl_linear_chunk_flops(model) / (op->rates->half_flops * op->rates->attention),
           moved = pl_streamed_s(op->rates, each * pl_linear_kept(model) * op->rates->element,
                                 LINEAR_KERNELS);

    pl_add_product(layer, op->rates, tokens, pl_linear_in(model) / layout->tp, model->hidden);
    pl_add_product(layer, op->rates, tokens, model->hidden, pl_linear_values(model) / layout->tp);
    layer->fwd += rule + moved;
    layer->bwd_input += 3 * rule + 2 * moved;
}

/* Attention of the mean layer with experts (MOE) or without: plain, linear, or shares of both. CORE
 * gets the seconds of the plain one's, of its share. */
static void add_mixer(struct pl_layer_time *layer, double *core, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, const struct pl_mix *mix)
{
    struct pl_layer_time attention = {0}, linear = {0};

    if (mix->attention > 0)
        add_attention_part(&attention, core, op, layout);
    if (mix->attention > 0)
        pl_add_context(&attention, *core, op, layout);
    if (mix->linear > 0)
        linear_part(&linear, op, layout);
    if (mix->linear > 0)
        pl_add_linear_context(&linear, op, layout);
    *core *= mix->attention;
    layer->cp_fwd += mix->attention * attention.cp_fwd + mix->linear * linear.cp_fwd;
    layer->cp_bwd += mix->attention * attention.cp_bwd + mix->linear * linear.cp_bwd;
    add_part(layer, &attention, mix->attention);
    add_part(layer, &linear, mix->linear);
}

/* Mamba-2: two products; scan and convolution stream what they keep, and the scan's arithmetic runs
 * on the matrix units in chunks, whose products are small: as attention's. */
static void mamba_part(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                       const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double tokens = pl_tokens_of(op, layout), inner = pl_mamba_inner(model) / layout->tp;
    double scan = tokens * pl_mamba_scan_flops(model) / layout->tp /
                      (op->rates->half_flops * op->rates->attention) +
                  pl_streamed_s(op->rates,
                                tokens * pl_mamba_kept(model) / layout->tp * op->rates->element, 6);

    pl_add_product(layer, op->rates, tokens, pl_mamba_in(model) / layout->tp, model->hidden);
    pl_add_product(layer, op->rates, tokens, model->hidden, inner);
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
        *exchange = pl_moe_mlp(ret, op, layout);
    if (moe ? model->moe.shared_ffn : mix.ffn > 0)
        dense_mlp(&ffn, op, layout, moe ? model->moe.shared_ffn : model->ffn);
    *core *= mix.attention;
    add_part(ret, &attention, mix.attention);
    add_part(ret, &mamba, mix.mamba);
    add_part(ret, &ffn, mix.ffn);
    attention = (struct pl_layer_time){0};
    add_elementwise(&attention, op, layout, moe ? model->moe.shared_ffn : mix.ffn * model->ffn, 1);
    add_part(ret, &attention, 0.5);
    add_tp(ret, op, layout, 0.5);
    pl_add_context(ret, *core, op, layout);
}

static void whole_layer(struct pl_layer_time *ret, double *core, double *exchange,
                        const struct pl_op_ctx *op, const struct pl_layout *layout, bool moe)
{
    const struct pl_model *model = op->problem.model;
    struct pl_mix mix;

    pl_mix_of(&mix, model, moe);
    add_mixer(ret, core, op, layout, &mix);
    if (moe) {
        *exchange = pl_moe_mlp(ret, op, layout);
        if (model->moe.shared_ffn)
            dense_mlp(ret, op, layout, model->moe.shared_ffn);
    } else {
        dense_mlp(ret, op, layout, model->ffn);
    }
    add_elementwise(ret, op, layout, moe ? model->moe.shared_ffn : model->ffn, mix.attention);
    add_tp(ret, op, layout, !moe || model->moe.shared_ffn ? 1 : 0.5);
    add_qk_sums(ret, op, layout);
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
    double kernels = (layout->cuda_graphs ? MODULE_GRAPHS : graphed) + (moe ? PL_MOE_KERNELS : 0);
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
    struct pl_op_ctx last = *op;
    struct pl_model room;

    last.problem.model = pl_as_last(&room, model);
    pl_layer_time_of(&layer, &last, layout, pl_layer_is_moe(model, model->layers - 1));
    pl_add_product(&join, op->rates, pl_tokens_of(op, layout), cut ? h / layout->tp : h, 2 * h);
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
    double tokens = pl_tokens_of(op, layout), h = op->problem.model->hidden,
           v = padded_vocab(op, layout), seen = v; /* logits that the loss of a rank reads */
    double rows = pl_streamed_s(op->rates, 2 * tokens * h * op->rates->element, 2);
    struct pl_layer_time head = {0};
    struct pl_group g;

    if (op->problem.trainer->fp8_head && layout->precision == PL_MXFP8)
        pl_add_product(&head, op->rates, tokens, v, h);
    else
        pl_add_half_product(&head, op->rates, tokens, v, h);
    ret->embed_fwd = rows;
    ret->embed_bwd = 2 * rows;
    if (op->problem.trainer->whole_logits)
        seen *= layout->tp;
    ret->head_fwd = head.fwd + pl_streamed_s(op->rates, LOGIT_FWD * tokens * seen, 6);
    ret->head_bwd =
        head.bwd_input + head.bwd_weight + pl_streamed_s(op->rates, LOGIT_BWD * tokens * seen, 2);
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
