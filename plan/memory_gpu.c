/*
 * Memory of a rank of a GPU trainer, in bytes.
 *
 * State: Megatron's mixed precision keeps 2 bytes of weight, 4 of gradient (grad_dtype bf16: 2),
 * 4 of master weight and 8 of Adam moments for each parameter (fp32: 4 + 4 + 0 + 8);
 * plan/optimizer.c has those of other optimizers. zero 1 shards master and moments, zero 2 also
 * gradients, zero 3 also weights, less the one layer that is gathered. Under a pipeline gradients
 * stay whole until the last micro-batch, and so do the weights that zero 3 gathers for it.
 *
 * Logits: in fp32 once, where the loss works in place or is compiled. PyTorch's cross entropy keeps
 * their log-probabilities, and backward makes the gradient of those and of the logits.
 *
 * Activations: Korthikanti et al., "Reducing activation recomputation in large transformer models"
 * (2022), table 2, with each term kept apart, so that gated, grouped-query and MoE layers follow
 * from the same count. For the GPT layer (f = 4h, kv_heads = heads) the terms add up to s b h (34 +
 * 5 a s / h), over tp as in the paper.
 */
#include "plan/offload.h"
#include "plan/precision.h"
#include "plan/recompute.h"

#include <math.h>

#include "base/base.h"
#include "plan/shape.h"

/* The rank with the most tokens decides in a dropless MoE layer; a balanced router stays within
 * this share. */
static const double MOE_IMBALANCE = 1.1;

static double min(double left, double right)
{
    return left < right ? left : right;
}

static void layer_params(struct pl_layer_params *ret, const struct pl_model *model,
                         const struct pl_layout *layout, bool moe)
{
    double h = model->hidden, tp = layout->tp;
    double attention, mlp, router = moe ? h * model->moe.experts : 0;
    struct pl_mix mix;

    pl_mix_of(&mix, model, moe);
    attention = mix.attention * pl_attention_matrices(model, layout->tp);
    mlp = pl_mlp_matrices(model) * h * (moe ? model->moe.shared_ffn : mix.ffn * model->ffn) / tp;
    ret->expert = moe ? pl_mlp_matrices(model) * h * model->moe.expert_ffn * model->moe.experts /
                            ((double)layout->ep * layout->etp)
                      : 0;
    ret->dense = attention + mix.attention * pl_attention_vectors(model) +
                 mix.norms * h * (model->norm_bias ? 2 : 1) + mlp + router;
    ret->narrow = attention + mlp + ret->expert;
    if (mix.linear > 0) {
        ret->dense += mix.linear * pl_linear_params(model) / tp;
        ret->narrow += mix.linear * h * (pl_linear_in(model) + pl_linear_values(model)) / tp;
    }
    if (mix.mamba > 0) {
        ret->dense += mix.mamba * pl_mamba_params(model) / tp;
        ret->narrow += mix.mamba * h * (pl_mamba_in(model) + pl_mamba_inner(model)) / tp;
    }
}

struct pl_layer_count pl_stage_count(const struct pl_model *model, const struct pl_layout *layout,
                                     int stage)
{
    struct pl_layer_count ret = {0};
    int runs = layout->pp * layout->vp, longer = model->layers % runs, n = 0;

    if (layout->stages == PL_STAGES_EVEN && !pl_schedule_is_v(layout->schedule) &&
        !pl_is_dualpipe(layout)) { /* the first `longer` virtual stages have one more */
        n = model->layers / runs * layout->vp;
        n += longer > stage ? (longer - stage - 1) / layout->pp + 1 : 0;
    } else {
        for (int c = 0; c < pl_chunks(layout); c++)
            n += pl_stage_layers(NULL, layout, model->layers, stage, c);
    }
    if (!pl_model_is_mixed(model))
        return (struct pl_layer_count){.dense = model->moe.experts ? 0 : n,
                                       .moe = model->moe.experts ? n : 0};
    for (int c = 0; c < pl_chunks(layout); c++) {
        int first, many = pl_stage_layers(&first, layout, model->layers, stage, c);

        for (int i = first; i < first + many; i++)
            ret.moe += pl_layer_is_moe(model, i);
    }
    ret.dense = n - ret.moe;
    return ret;
}

struct pl_layer_count pl_recomputed_count(const struct pl_model *model,
                                          const struct pl_layout *layout, int stage)
{
    struct pl_layer_count ret = {0};

    for (int c = 0; c < pl_chunks(layout); c++) {
        int first, n = pl_stage_layers(&first, layout, model->layers, stage, c);
        int again = pl_recomputed_layers(layout, n);

        for (int i = first; i < first + again; i++)
            (*(pl_layer_is_moe(model, i) ? &ret.moe : &ret.dense))++;
    }
    return ret;
}

/* Does MODEL have layers without experts, or with them (MOE)? */
static bool has_layers(const struct pl_model *model, bool moe)
{
    return pl_model_is_mixed(model) || moe == (model->moe.experts > 0);
}

void pl_layer_params_of(struct pl_layer_params ret[2], const struct pl_model *model,
                        const struct pl_layout *layout)
{
    for (int moe = 0; moe < 2; moe++) {
        if (has_layers(model, moe))
            layer_params(&ret[moe], model, layout, moe);
        else
            ret[moe] = (struct pl_layer_params){0};
    }
}

/* Modules of multi-token prediction, of which the last stage has an embedding of its own. */
static void add_mtp(struct pl_held *held, const struct pl_model *model,
                    const struct pl_layout *layout)
{
    double h = model->hidden, table = (double)model->vocab * h / layout->tp;
    struct pl_layer_params one;
    struct pl_model room;

    layer_params(&one, pl_as_last(&room, model), layout, pl_layer_is_moe(model, model->layers - 1));
    held->dense += model->mtp * (one.dense + 2 * h * h / layout->tp + 3 * h) +
                   (pl_loss_stage(layout) > 0 && !model->tied ? table : 0);
    held->expert += model->mtp * one.expert;
    held->narrow += model->mtp * one.narrow;
}

void pl_held_params(struct pl_held *ret, const struct pl_model *model,
                    const struct pl_layout *layout, int stage, struct pl_layer_count count,
                    const struct pl_layer_params params[2])
{
    double h = model->hidden, table = (double)model->vocab * h / layout->tp;
    const int many[2] = {count.dense, count.moe};
    struct pl_held held = {0};

    for (int moe = 0; moe < 2; moe++) {
        const struct pl_layer_params *one = &params[moe];

        if (!many[moe])
            continue;
        held.dense += many[moe] * one->dense;
        held.expert += many[moe] * one->expert;
        held.narrow += many[moe] * one->narrow;
        if (one->dense + one->expert > held.layer)
            held.layer = one->dense + one->expert;
    }
    if (stage == 0)
        held.dense += table + (model->positions == PL_LEARNED ? (double)model->seq * h : 0);
    if (stage == pl_loss_stage(layout))
        held.dense += h + (model->tied && pl_loss_stage(layout) == 0 ? 0 : table);
    *ret = held;
    if (stage == pl_loss_stage(layout) && model->mtp)
        add_mtp(ret, model, layout);
}

double pl_dense_shards(const struct pl_layout *layout)
{
    double group =
        (double)layout->dp * layout->cp * pl_stage_copies(layout) / pl_shard_copies(layout);

    if (!layout->zero)
        return 1;
    return layout->zero_scope == PL_SCOPE_PLAIN ? group / pl_layout_expert_replicas(layout) : group;
}

double pl_expert_shards(const struct pl_layout *layout)
{
    return layout->zero ? (double)layout->edp * pl_stage_copies(layout) / pl_shard_copies(layout)
                        : 1;
}

/* Micro-batches of one chunk whose activations stage STAGE holds at once, at the worst moment. */
static double chunks_in_flight(const struct pl_layout *layout, int microbatches, int stage)
{
    switch (layout->pp == 1 ? PL_1F1B : layout->schedule) {
    case PL_GPIPE:
        return microbatches;
    case PL_INTERLEAVED:
        return min(2.0 * (layout->pp - 1 - stage) + (double)(layout->vp - 1) * layout->pp + 1,
                   (double)microbatches * layout->vp);
    case PL_ZB_V:
        return min(2.0 * layout->pp, 2.0 * microbatches);
    case PL_DUALPIPE_V:
        return min(2.0 * layout->pp + 1, 2.0 * microbatches);
    case PL_DUALPIPE:
        return min(layout->pp + 1, microbatches);
    default: /* 1f1b, and zero-bubble's ZB-H1, which keeps its memory */
        return min(layout->pp - stage, microbatches);
    }
}

/* Bytes of one token in the feed-forward of width FFN, of which an element of fc2's input takes
 * KEPT: fc1's input is counted by the caller. */
static double ffn_bytes(const struct pl_model *model, double ffn, double kept)
{
    return (2 * (pl_mlp_matrices(model) - 1) + kept) * ffn;
}

/* Bytes of a token that eager operations keep of NORMS norms and a gated feed-forward of width FFN
 * beyond what fused kernels keep: the norm's row in fp32, and normalized before it meets the
 * weights; silu(gate) next to the gate. */
static double eager_rows(const struct pl_problem *problem, double norms)
{
    return problem->trainer->eager ? norms * (4 + 2) * problem->model->hidden : 0;
}

/* Bytes of a token for keys and values that are copied out of the product of queries, keys and
 * values, which stays as long as its queries do (nanotron: CausalSelfAttention.forward). */
static double copied_kv(const struct pl_problem *problem)
{
    const struct pl_model *model = problem->model;

    return problem->trainer->copies_kv && model->kv_heads == model->heads
               ? 2.0 * model->kv_heads * (pl_key_dim(model) + pl_value_dim(model))
               : 0;
}

static double eager_ffn(const struct pl_problem *problem, double ffn)
{
    bool kept = problem->trainer->eager || problem->trainer->eager_mlp;

    return kept && pl_mlp_is_gated(problem->model->mlp) ? 2 * ffn : 0;
}

/* Dropout came with learned positions and went with them. */
static bool has_dropout(const struct pl_model *model)
{
    return model->positions == PL_LEARNED && model->norm == PL_LAYERNORM;
}

/* Bytes of a token inside a layer of a trainer that saves outputs of products, all but SHARE of
 * them, and the attention's with its fp32 logarithm of sums, and computes the rest again. Products
 * are counted in the order of the layer, from one: with a share of 1/2 the second is dropped, and
 * each other one after it (torchtitan: _get_custom_policy of _apply_ac_to_transformer_block). */
static double saved_products(const struct pl_model *model, double share)
{
    double q = (double)model->heads * model->head_dim,
           kv = (double)model->kv_heads * model->head_dim;
    const double outputs[] = {q, kv, kv, model->hidden, model->ffn, model->ffn, model->hidden};
    double kept = 2 * q + 4 * model->heads;
    int product = 0;

    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        if (i == 5 && !pl_mlp_is_gated(model->mlp))
            continue; /* no second product into the hidden rows */
        product++;
        if (floor(product * share) == floor((product - 1) * share))
            kept += 2 * outputs[i];
    }
    return kept;
}

static double tokens_of(const struct pl_problem *problem, const struct pl_layout *layout)
{
    return (double)problem->workload->seq / layout->cp * layout->micro_batch;
}

static bool keeps_scores(int recompute, unsigned again)
{
    return recompute == PL_RECOMPUTE_NONE || (again && !(again & PL_RE_CORE));
}

/* Copies of a token at the experts of one rank. */
static double copies_on_rank(const struct pl_model *model, const struct pl_layout *layout)
{
    double routed = model->moe.capacity_factor > 0 ? model->moe.capacity_factor
                    : model->moe.force_balance     ? 1
                                                   : MOE_IMBALANCE;

    return routed * model->moe.top_k / layout->tp;
}

/* Bytes of such a copy. Inputs of the experts are kept as gathered over etp, for the weights'
 * gradient; outputs as scattered again, for the router's, which needs only the hidden rows where
 * those are weighted. */
static double copy_bytes(const struct pl_problem *problem, const struct pl_layout *layout,
                         const struct pl_operands *operands)
{
    const struct pl_model *model = problem->model;
    double outputs = problem->trainer->weighs_rows ? 0 : 2.0 * model->hidden;

    return layout->etp * operands->kept * model->hidden + outputs +
           ffn_bytes(model, model->moe.expert_ffn, operands->kept);
}

/* Of a layer, if LAYOUT had RECOMPUTE. */
static double bytes_with(const struct pl_problem *problem, const struct pl_layout *layout,
                         int recompute, bool moe)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;
    double tokens = tokens_of(problem, layout), h = model->hidden, tp = layout->tp;
    double wide = layout->precision == PL_FP32 ? 2 : 1; /* formulas count 2-byte elements */
    unsigned again = recompute == layout->recompute ? pl_recompute_modules(layout) : 0;
    struct pl_operands operands;
    struct pl_dropped dropped;
    struct pl_mix mix;
    double outside, inside, copied;
    double masks = has_dropout(model) ? 2 * h : 0; /* one byte an element */
    double scores = 0;

    if (recompute == PL_RECOMPUTE_FULL)
        return wide * 2 * tokens * h / (layout->sp ? tp : 1);
    if (recompute == PL_RECOMPUTE_SELECTIVE && trainer->selective_share > 0 && !moe)
        return wide * tokens *
               (2 * h / (layout->sp ? tp : 1) +
                saved_products(model, trainer->selective_share) / tp);
    pl_mix_of(&mix, model, moe);
    pl_operands_of(&operands, trainer, layout->precision);
    copied = operands.quantized ? operands.kept : 0; /* next to what others keep */
    /* norm inputs, input of qkv or of the latents' first products, latents */
    outside =
        mix.norms * 2 * h + (mix.attention + mix.linear + mix.mamba) * operands.kept * h +
        mix.attention * (pl_latents_kept(model) -
                         (2 - operands.kept) * (model->mla.q_lora_rank + model->mla.kv_lora_rank));
    if (model->dsa.index_topk)
        outside += mix.attention * pl_indexer_kept(model, problem->workload->seq);
    outside += eager_rows(problem, mix.norms);
    inside = mix.attention * (pl_attention_kept(model) +
                              copied * model->heads * pl_value_dim(model) + copied_kv(problem));
    if (mix.linear > 0)
        inside +=
            mix.linear * (pl_linear_kept(model) - (2 - operands.kept) * pl_linear_values(model));
    if (mix.mamba > 0)
        inside += mix.mamba * (pl_mamba_kept(model) - (2 - operands.kept) * pl_mamba_inner(model));
    if (!trainer->flash && keeps_scores(recompute, again))
        scores = mix.attention * 5.0 * model->heads * problem->workload->seq / layout->cp /
                 tp; /* softmax, its mask and its dropout */
    pl_dropped_of(&dropped, model, again, &operands, moe);
    outside -= dropped.outside;
    inside -= dropped.inside;
    if (moe) {
        /* the router keeps the second norm's output, too */
        inside += 2 * h + ffn_bytes(model, model->moe.shared_ffn, operands.kept) +
                  (model->moe.shared_ffn ? copied * h : 0);
        return wide * tokens *
               (outside / (layout->sp ? tp : 1) + inside / tp + scores +
                copies_on_rank(model, layout) *
                    (dropped.copies ? 0 : copy_bytes(problem, layout, &operands) - dropped.copy));
    }
    inside +=
        mix.ffn * (ffn_bytes(model, model->ffn, operands.kept) + eager_ffn(problem, model->ffn));
    outside += mix.ffn * operands.kept * h; /* input of fc1 */
    return tokens * (wide * ((outside) / (layout->sp ? tp : 1) + inside / tp + scores) +
                     masks / (layout->sp ? tp : 1));
}

double pl_layer_activation_bytes(const struct pl_problem *problem, const struct pl_layout *layout,
                                 bool moe)
{
    return bytes_with(problem, layout, layout->recompute, moe);
}

/* Bytes of a layer without experts and with them, of one micro-batch. */
struct layer_bytes {
    double dense, moe;
};

static struct layer_bytes layer_bytes_of(const struct pl_problem *problem,
                                         const struct pl_layout *layout, int recompute)
{
    return (struct layer_bytes){bytes_with(problem, layout, recompute, false),
                                bytes_with(problem, layout, recompute, true)};
}

static double bytes_of_layers(const struct layer_bytes *each, const struct pl_model *model,
                              int first, int many)
{
    double ret = 0;

    for (int i = first; i < first + many; i++)
        ret += pl_layer_is_moe(model, i) ? each->moe : each->dense;
    return ret;
}

/* What a layer that is being repeated keeps until its backward pass: all of it, with the scores
 * where attention does not stream. */
static int repeated(const struct pl_problem *problem)
{
    return problem->trainer->flash ? PL_RECOMPUTE_SELECTIVE : PL_RECOMPUTE_NONE;
}

/* Full recomputation of some layers of each virtual stage, or in units of several: bytes that a
 * chunk keeps, in the mean of the stage's. *RET_LIVE: what one layer or unit holds beyond its input
 * while it is repeated. */
static double partly_recomputed(double *ret_live, const struct pl_problem *problem,
                                const struct pl_layout *layout, int stage)
{
    bool block = layout->recompute_method == PL_RECOMPUTE_BLOCK;
    int unit = block ? 1 : layout->recompute_num_layers;
    struct layer_bytes all = layer_bytes_of(problem, layout, PL_RECOMPUTE_NONE),
                       again = layer_bytes_of(problem, layout, repeated(problem));
    double input = pl_layer_activation_bytes(problem, layout, false), kept = 0;

    *ret_live = 0;
    for (int c = 0; c < pl_chunks(layout); c++) {
        int first, n = pl_stage_layers(&first, layout, problem->model->layers, stage, c);
        int repeated = pl_recomputed_layers(layout, n);

        kept += bytes_of_layers(&all, problem->model, first + repeated, n - repeated);
        for (int i = 0; i < repeated; i += unit) {
            int many = repeated - i < unit ? repeated - i : unit;
            double live = bytes_of_layers(&again, problem->model, first + i, many) - input;

            kept += input;
            *ret_live = live > *ret_live ? live : *ret_live;
        }
    }
    return kept / pl_chunks(layout);
}

/* Of a layer of multi-token prediction, which block never repeats. */
static double mtp_layer_bytes(const struct pl_problem *problem, const struct pl_layout *layout)
{
    bool block = layout->recompute_method == PL_RECOMPUTE_BLOCK;
    struct pl_problem last = *problem;
    struct pl_model room;

    last.model = pl_as_last(&room, problem->model);
    return bytes_with(&last, layout, block ? PL_RECOMPUTE_NONE : layout->recompute,
                      pl_layer_is_moe(last.model, last.model->layers - 1));
}

/* Full recomputation of some layers of each virtual stage, or in units of several. */
static bool is_partly(const struct pl_layout *layout)
{
    return layout->recompute_method == PL_RECOMPUTE_BLOCK || layout->recompute_num_layers > 1;
}

void pl_gpu_layers_of(struct pl_gpu_layers *ret, const struct pl_problem *problem,
                      const struct pl_layout *layout)
{
    ret->tokens = tokens_of(problem, layout);
    ret->micro_batches = pl_microbatches(layout, problem->workload);
    ret->dense_shards = pl_dense_shards(layout);
    ret->expert_shards = pl_expert_shards(layout);
    ret->context = pl_context_bytes(problem, layout);
    pl_layer_params_of(ret->params, problem->model, layout);
    for (int moe = 0; moe < 2; moe++) {
        ret->kept[moe] = ret->live[moe] = 0;
        if (is_partly(layout) || !has_layers(problem->model, moe))
            continue;
        ret->kept[moe] = pl_layer_activation_bytes(problem, layout, moe);
        if (layout->recompute == PL_RECOMPUTE_FULL) /* whose input is counted already */
            ret->live[moe] = bytes_with(problem, layout, repeated(problem), moe) - ret->kept[moe];
    }
}

/* Bytes on the device; *HOST gets more by what is in host memory instead. */
static double activations(double *host, const struct pl_problem *problem,
                          const struct pl_layout *layout, const struct pl_gpu_layers *layers,
                          struct pl_layer_count n, int stage)
{
    const struct pl_model *model = problem->model;
    double flight = chunks_in_flight(layout, layers->micro_batches, stage), chunk, live;

    if (is_partly(layout)) {
        chunk = partly_recomputed(&live, problem, layout, stage);
    } else {
        chunk = (n.dense * layers->kept[false] + n.moe * layers->kept[true]) / pl_chunks(layout);
        live = layers->live[n.moe > 0];
    }
    if (layout->offload_activations) {
        int all = n.dense + n.moe, away = pl_offloaded_layers(layout, all);

        *host += away ? flight * chunk * away / all : 0;
        chunk -= away ? chunk * (away - 1) / all : 0; /* one is on its way */
    }
    /* with the hidden row, the embedding, and both joined */
    if (model->mtp && stage == pl_loss_stage(layout))
        chunk +=
            model->mtp * (mtp_layer_bytes(problem, layout) +
                          layers->tokens * 2 * 4 * model->hidden / (layout->sp ? layout->tp : 1));
    if (stage == 0 &&
        has_dropout(model)) /* mask of the embedding's dropout, for each micro-batch in flight */
        live += layers->tokens * model->hidden / (layout->sp ? layout->tp : 1) *
                min(layout->pp, layers->micro_batches);
    if (problem->trainer->keeps_outputs && layout->pp > 1)
        live += flight / pl_chunks(layout) * 2 * layers->tokens * model->hidden /
                (layout->sp ? layout->tp : 1);
    return flight * chunk + live;
}

/* A model that is built before it is sharded is whole on the device at first: if that is the peak,
 * the weights are what it consists of. */
static void whole_start(struct pl_memory *memory, double whole, double reserve)
{
    double later = 0;

    for (int i = 0; i < PL_MEM_CLASSES; i++)
        later += memory->bytes[i];
    if (whole + reserve > later)
        memory->bytes[PL_MEM_WEIGHTS] += whole + reserve - later;
}

/* Of HELD parameters' gradients and of SPLIT parameters that this rank updates. Half-precision
 * gradients become fp32 as they meet the master weights (Megatron's 4 + 16/d bytes a parameter:
 * _copy_model_grads_to_main_grads of its distributed optimizer); fp32 sums of them stay whole. */
static double gradients(const struct pl_trainer *trainer, const struct pl_layout *layout,
                        double held, double split)
{
    bool told = layout->grad_dtype == PL_GRADS_BF16;

    if (layout->precision == PL_FP32)
        return 4 * held;
    if (trainer->summed_grads && !told)
        return (2 + 4) * held;
    return trainer->half_grads || told ? 2 * held + 4 * split : 4 * held;
}

/* Of NARROW weights what is held beyond two bytes each, in bf16. */
static double narrow_weights(const struct pl_trainer *trainer, const struct pl_layout *layout,
                             double narrow)
{
    struct pl_operands operands;

    if (layout->precision < PL_FP8)
        return 0;
    pl_operands_of(&operands, trainer, layout->precision);
    if (!operands.quantized)
        return 0;
    return (layout->fp8_param_gather ? operands.weight - 2 : operands.weight) * narrow;
}

/* Of one logit on each tp rank: in fp32 once or three times, of the rank's share; where all are
 * gathered also in half precision, and none is shared. */
static double logit_bytes(const struct pl_trainer *trainer, int tp)
{
    double each = trainer->eager_loss ? 12 : 4;

    return trainer->whole_logits && tp > 1 ? each + 2 + 2.0 / tp : each / tp;
}

/* Parameters of the largest tensor of a stage: an embedding or head, or a layer's matrix. */
static double largest_tensor(const struct pl_model *model, const struct pl_layout *layout,
                             int stage)
{
    double table = (double)model->vocab * model->hidden / layout->tp,
           matrix = (double)model->ffn * model->hidden / layout->tp;

    return (stage == 0 || stage == pl_loss_stage(layout)) && table > matrix ? table : matrix;
}

/*
 * What DeepSpeed's step allocates next to the cached blocks of activations, none of which is as
 * large, in bytes beyond gradients(). DeepSpeed of February 2022, stage_1_and_2.py: a bucket of 5e8
 * half-precision gradients to reduce; the rank's own gradients; the norm of each tensor in fp64,
 * and in the blocks that this leaves the rank's gradients flattened and in fp32. bf16_optimizer.py,
 * engine.py: buckets of 5e8 or the largest tensor, flattened in fp32.
 */
static double flat_step(const struct pl_problem *problem, const struct pl_layout *layout,
                        double split, int stage)
{
    const double bucket = 5e8;
    const struct pl_trainer *trainer = problem->trainer;
    double largest, norm, flat;

    if (!trainer->flat_step || layout->precision == PL_FP32 || !layout->zero || layout->zero > 2)
        return 0;
    largest = largest_tensor(problem->model, layout, stage);
    norm = 8 * min(largest, split);
    flat = (2 + 4) * split;
    if (!trainer->half_grads || trainer->summed_grads)
        return 4 * (largest > bucket ? largest : bucket);
    return 2 * bucket + 2 * split + (norm > flat ? norm : flat) - 4 * split;
}

/* Parameters that a rank holds gathered: of a layer; with zero 3 also of the next one where its
 * gather overlaps compute, and of FSDP what is in no layer. The stage HELD has COUNT layers. */
static double gathered(const struct pl_problem *problem, const struct pl_layout *layout,
                       const struct pl_held *held, const struct pl_gpu_layers *layers,
                       struct pl_layer_count count)
{
    const struct pl_layer_params *each = layers->params;
    double root = held->dense + held->expert - count.dense * (each[0].dense + each[0].expert) -
                  count.moe * (each[1].dense + each[1].expert);

    if (layout->zero < 3)
        return held->layer;
    return (layout->overlap_param_gather ? 2 : 1) * held->layer +
           (problem->trainer->fsdp_units ? root : 0);
}

/* Move what LAYOUT offloads of weights, gradients and state from the classes of MEMORY to its host.
 * A rank has a shard of SPLIT parameters with so many MOMENTS each, LAYER in its largest layer, and
 * GATHERED of its weights while it computes. */
static void offload(struct pl_memory *memory, const struct pl_problem *problem,
                    const struct pl_layout *layout, double split, double moments, double layer,
                    double gathered)
{
    double weight = layout->precision == PL_FP32 ? 4 : 2, share = layout->offload_optimizer / 100.0;
    double held = problem->trainer->fp32_shards ? 4 * (1 - share) : weight;

    memory->host += share * (4 + 4 + 4 * moments) * split; /* weights, gradients, moments */
    memory->bytes[PL_MEM_MASTER] *= 1 - share;
    memory->bytes[PL_MEM_OPTIMIZER] *= 1 - share;
    if (layout->pp == 1 && pl_grads_leave(problem, layout)) /* those of the layer at work */
        memory->bytes[PL_MEM_GRADS] = pl_grad_bytes(layout) * layer;
    if (layout->offload_params)
        memory->host += held * split;
    if (pl_weights_leave(problem, layout))
        memory->bytes[PL_MEM_WEIGHTS] = weight * gathered;
}

/* How many times the rows of a micro-batch are held whole on a rank of tensor parallelism: in the
 * buffers of tp_overlap, or with sp while a layer's backward pass is at work: the gathered input of
 * a product, for the weight's gradient, its gradient before that is scattered, and the gathered
 * gradient of an output (Megatron-LM: LinearWithGradAccumulationAndAsyncCommunication). */
static double whole_rows(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    if (layout->tp_overlap)
        return trainer->tp_buffers;
    return layout->sp && layout->tp > 1 ? 3 : 0;
}

void pl_memory_gpu_stage(struct pl_memory *ret, const struct pl_problem *problem,
                         const struct pl_layout *layout, const struct pl_gpu_layers *layers,
                         int rank_stage)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;
    bool fp32 = layout->precision == PL_FP32;
    int unlike = pl_unlike_stages(layout);
    int stage = rank_stage < unlike ? rank_stage : layout->pp - 1 - rank_stage;
    struct pl_layer_count count = pl_stage_count(model, layout, stage);
    double tokens = layers->tokens;
    double weight = fp32 ? 4 : 2, master = fp32 ? 0 : 4;
    const struct pl_constants *constants = pl_constants_of(trainer);
    double reserve = constants->reserve_gib * (1 << 30);
    struct pl_held p;
    double all, split, moments, whole;

    pl_held_params(&p, model, layout, stage, count, layers->params);
    all = p.dense + p.expert;
    moments = pl_optimizer_moments(problem->workload->optimizer, p.narrow, all);
    split = p.dense / layers->dense_shards + p.expert / layers->expert_shards;
    whole = gathered(problem, layout, &p, layers, count);
    if (layout->zero >= 3 && layout->pp == 1)
        ret->bytes[PL_MEM_WEIGHTS] = weight * ((trainer->fsdp_units && !fp32 ? 0 : split) + whole);
    else
        ret->bytes[PL_MEM_WEIGHTS] = weight * all + narrow_weights(trainer, layout, p.narrow);
    ret->bytes[PL_MEM_GRADS] =
        constants->gradients *
        gradients(trainer, layout, layout->zero >= 2 && layout->pp == 1 ? split : all, split);
    ret->bytes[PL_MEM_MASTER] = master * split;
    ret->bytes[PL_MEM_OPTIMIZER] = 4 * moments * split;
    ret->bytes[PL_MEM_ACTIVATIONS] =
        constants->activation * activations(&ret->host, problem, layout, layers, count, stage);
    ret->host *= constants->activation;
    if (layout->pp > 1) /* one boundary tensor each way, received while the last one is in use */
        ret->bytes[PL_MEM_COMM] =
            4 * (fp32 ? 4 : 2) * tokens * model->hidden / (layout->sp ? layout->tp : 1);
    if (layout->moe_dispatch == PL_DISPATCH_ALLGATHER) /* of all ranks, and their sums */
        ret->bytes[PL_MEM_COMM] +=
            2 * weight * tokens / layout->tp * layout->ep * layout->etp * model->hidden;
    ret->bytes[PL_MEM_COMM] +=
        layers->context + whole_rows(trainer, layout) * weight * tokens * model->hidden;
    if (stage == pl_loss_stage(layout)) /* input of the output norm and of the head, and logits */
        ret->bytes[PL_MEM_LOGITS] =
            (1 + model->mtp) *
            (4 * tokens * model->hidden / (layout->sp ? layout->tp : 1.0) +
             constants->logits * logit_bytes(trainer, layout->tp) * tokens * model->vocab);
    ret->bytes[PL_MEM_WORKSPACE] = reserve + flat_step(problem, layout, split, stage);
    if (pl_offloads(layout))
        offload(ret, problem, layout, split, moments, p.layer, whole);
    if (layout->zero >= 3 && trainer->whole_start)
        whole_start(ret, weight * all, reserve);
}
