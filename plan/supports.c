/*
 * What a trainer can run of what our words can say: the rule trainer-supports.
 *
 * A trainer's space is what its own exporter writes without loss, so these are also the gaps of
 * that exporter (tn_gap_trainer in tuner/export/gaps.c asks for them): a fact about a trainer is
 * written here once. Single keys are columns of the table in trainer.c; what depends on several of
 * them is a function of the trainer below, or in supports_partune.c. The sources are those that the
 * exporters name.
 */
#include "plan/legal.h"
#include "plan/offload.h"

#include <math.h>

#include "base/base.h"

static int micro_batches(const struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    int batch = pl_batch(check->problem->workload, layout);
    int share = layout->micro_batch * layout->dp;

    return share > 0 && batch % share == 0 ? batch / share : 0;
}

/* Its mesh has no axis for a pipeline (megatron/core/distributed/fsdp/mcore_fsdp_adapter.py of
 * August 2026, _get_dp_tp_mesh: replicas x ep x tp is the world). */
static void megatron_fsdp(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->zero >= 2 && layout->pp > 1)
        pl_breaks(
            check, "zero",
            "trainer megatron does not support zero %d with pp %d: Megatron-FSDP runs without "
            "a pipeline",
            layout->zero, layout->pp);
}

/* What Megatron says of models that no single row of features.def can: biases are of all products,
 * of none, or of q, k and v; those of experts need whole experts; the router has one where they
 * have. Constants of Llama 3's rotation are fixed. Sigmoid scores are always normalized, and a
 * bias that balances is added to them only. Transformer Engine's ring passes no window. */
static void megatron_model(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_moe *moe = &model->moe;
    const struct pl_rope_scaling *scaling = &model->rope_scaling;
    const struct {
        bool broken;
        const char *key, *why;
    } rule[] = {
        {model->out_bias != model->mlp_bias, "out_bias", "out_bias that differs from mlp_bias"},
        {model->mlp_bias && !model->qkv_bias, "qkv_bias", "qkv_bias false with mlp_bias true"},
        {moe->experts && model->mlp_bias && check->layout->etp > 1, "etp",
         "etp > 1 with mlp_bias true"},
        {moe->experts && moe->router_bias && !model->mlp_bias, "router_bias",
         "router_bias true with mlp_bias false"},
        {moe->experts && moe->router == PL_ROUTER_SIGMOID && !moe->topk_norm, "topk_norm",
         "topk_norm false with router sigmoid"},
        {moe->experts && moe->balance_bias && moe->router != PL_ROUTER_SIGMOID, "balance_bias",
         "balance_bias true with router softmax"},
        {model->sliding_window && check->layout->cp > 1, "cp", "cp > 1 with sliding_window"},
        {scaling->kind == PL_ROPE_YARN && pl_model_is_mla(model) &&
             (scaling->original_seq != 4096 || fabs(scaling->beta_fast - 32) > 0 ||
              fabs(scaling->beta_slow - 1) > 0 || !scaling->truncate),
         "rope_scaling",
         "rope_scaling yarn with mla other than from 4096 tokens by beta_fast 32 and beta_slow 1, "
         "truncated"},
        {scaling->kind == PL_ROPE_LLAMA3 &&
             (scaling->original_seq != 8192 || fabs(scaling->low_freq_factor - 1) > 0 ||
              fabs(scaling->high_freq_factor - 4) > 0),
         "rope_scaling", "rope_scaling llama3 other than from 8192 tokens by factors 1 and 4"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rule); i++)
        if (rule[i].broken)
            pl_breaks(check, rule[i].key, "trainer megatron does not support %s", rule[i].why);
}

/* Of recomputation: modules of prediction are units by themselves (multi_token_prediction.py);
 * delayed scales are of the first pass, and fp32 has no grouped
 * products. */
static void megatron_recompute(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct {
        int value;
        const char *key;
    } narrow[] = {{layout->recompute_moe_act, "recompute_moe_act"},
                  {layout->recompute_layernorm, "recompute_layernorm"}};

    for (size_t i = 0; i < ARRAY_LEN(narrow); i++)
        if (narrow[i].value && layout->precision == PL_FP8)
            pl_breaks(check, narrow[i].key,
                      "trainer megatron does not support %s 1 with precision fp8: delayed scaling",
                      narrow[i].key);
    if (layout->recompute_moe_act && layout->precision == PL_FP32)
        pl_breaks(check, "recompute_moe_act",
                  "trainer megatron does not support recompute_moe_act 1 with precision fp32");
    if (check->problem->model->mtp && layout->recompute_method == PL_RECOMPUTE_UNIFORM &&
        layout->recompute_num_layers > 1)
        pl_breaks(check, "recompute_num_layers",
                  "trainer megatron does not support recompute_num_layers > 1 with mtp %d",
                  check->problem->model->mtp);
}

/* What a trainer does not do with what is in host memory. */
struct unoffloaded {
    bool broken;
    enum pl_key key;
    const char *with;
};

static void limit_offload(struct pl_check *check, const struct unoffloaded *limit, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct pl_layout_key *key = &pl_layout_keys[limit[i].key];
        int value = pl_layout_get(check->layout, key);

        if (value && limit[i].broken)
            pl_breaks(check, key->name, "trainer %s does not support %s %d with %s",
                      check->problem->trainer->name, key->name, value, limit[i].with);
    }
}

/* The hybrid optimizer is AdamW's; Megatron-FSDP keeps weights and gradients of its optimizer by
 * itself; layers that offload are of one stage, and neither repeated nor in a graph of their own
 * (transformer_config.py, arguments.py). */
static void megatron_offload(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct unoffloaded limit[] = {
        {check->problem->workload->optimizer != PL_ADAMW, PL_KEY_OFFLOAD_OPT,
         "an optimizer other than adamw"},
        {layout->zero >= 2, PL_KEY_OFFLOAD_OPT, "zero above 1: Megatron-FSDP"},
        {layout->fp8_param_gather && layout->precision != PL_FP8, PL_KEY_OFFLOAD_OPT,
         "fp8_param_gather 1 in a precision other than fp8"},
        {layout->pp > 1, PL_KEY_OFFLOAD_ACT, "pp > 1"},
        {layout->recompute != PL_RECOMPUTE_NONE, PL_KEY_OFFLOAD_ACT, "recompute"},
        {layout->cuda_graphs == PL_GRAPHS_MODULES, PL_KEY_OFFLOAD_ACT, "cuda_graphs modules"},
        {layout->offload_activations >= check->problem->model->layers, PL_KEY_OFFLOAD_ACT,
         "no layer left on the device"},
    };

    limit_offload(check, limit, ARRAY_LEN(limit));
}

/* A graph has fixed shapes and no wait for the device: experts without a capacity have neither.
 * What a graph of a module covers is not repeated as a whole layer. */
static void megatron_graphs(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;

    if (layout->cuda_graphs == PL_GRAPHS_ITERATION && check->problem->model->moe.experts)
        pl_breaks(check, "cuda_graphs",
                  "trainer megatron does not support cuda_graphs iteration with experts");
    if (layout->cuda_graphs == PL_GRAPHS_MODULES && layout->recompute == PL_RECOMPUTE_FULL)
        pl_breaks(check, "cuda_graphs",
                  "trainer megatron does not support cuda_graphs modules with recompute full");
}

/* Megatron's flags come with conditions of their own. */
void pl_megatron_limits(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const char *lacks = NULL;

    megatron_model(check);
    if (model->positions == PL_ROPE && model->rope_theta != floor(model->rope_theta))
        pl_breaks(check, "rope_theta",
                  "trainer megatron does not support rope_theta %.10g: it takes a "
                  "whole number",
                  model->rope_theta);
    if (layout->overlap_p2p && layout->vp == 1)
        pl_breaks(
            check, "overlap_p2p",
            "trainer megatron does not support overlap_p2p 1 with vp 1: pipeline sends overlap "
            "only when interleaved");
    if (layout->overlap_param_gather && !layout->overlap_grad_reduce)
        pl_breaks(check, "overlap_param_gather",
                  "trainer megatron does not support overlap_param_gather 1 without "
                  "overlap_grad_reduce 1");
    if (layout->pp > 1 && layout->vp == 1)
        lacks = "pp > 1 and vp 1";
    else if (layout->recompute == PL_RECOMPUTE_FULL)
        lacks = "recompute full";
    else if (layout->recompute_moe)
        lacks = "recompute_moe 1";
    else if (layout->moe_dispatch == PL_DISPATCH_ALLGATHER)
        lacks = "moe_dispatch allgather";
    else if (layout->precision == PL_FP32)
        lacks = "precision fp32";
    megatron_recompute(check);
    megatron_graphs(check);
    if (pl_offloads(layout))
        megatron_offload(check);
    if (layout->overlap_moe_a2a && lacks)
        pl_breaks(check, "overlap_moe_a2a",
                  "trainer megatron does not support overlap_moe_a2a 1 with %s", lacks);
    megatron_fsdp(check);
}

/* Its mesh: dp_replicate x dp_shard x cp x tp, and dp_shard x cp x tp = efsdp x ep for experts.
 * FSDP shards over dp_shard x cp, and experts over efsdp, whatever zero is called. */
static void torchtitan_mesh(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;

    if (!layout->zero && layout->cp > 1)
        pl_breaks(check, "zero",
                  "trainer torchtitan does not support zero 0 with cp %d: FSDP shards over cp",
                  layout->cp);
    if (!layout->zero && model->moe.experts && layout->ep > 1 && layout->ep != layout->tp)
        pl_breaks(check, "ep",
                  "trainer torchtitan does not support ep %d with zero 0 and tp %d: unsharded "
                  "experts spread over tp",
                  layout->ep, layout->tp);
    if (layout->shard % layout->cp)
        pl_breaks(check, "shard",
                  "trainer torchtitan does not support shard %d with cp %d: FSDP shards over whole "
                  "cp groups",
                  layout->shard, layout->cp);
}

/* Its products in nvfp4 take whole tiles of a rank's rows and columns. */
static void torchtitan_nvfp4(struct pl_check *check)
{
    enum { TILE = 128 };
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const int64_t widths[] = {model->hidden, (int64_t)model->heads * model->head_dim / layout->tp,
                              (int64_t)model->kv_heads * model->head_dim / layout->tp,
                              model->ffn / layout->tp};

    for (size_t i = 0; i < ARRAY_LEN(widths); i++)
        if (widths[i] % TILE) {
            pl_breaks(check, "precision",
                      "trainer torchtitan does not support precision nvfp4 with matrix products "
                      "%lld wide: not a multiple of %d",
                      (long long)widths[i], TILE);
            return;
        }
}

/* One switch of FSDP2 offloads weights, gradients and state. */
static void torchtitan_offload(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct unoffloaded limit[] = {
        {!layout->offload_params, PL_KEY_OFFLOAD_OPT, "offload_params 0: one switch does both"},
        {layout->offload_optimizer < 100, PL_KEY_OFFLOAD_PARAMS,
         "offload_optimizer below 100: one switch does both"},
        {layout->cuda_graphs != PL_GRAPHS_NONE, PL_KEY_OFFLOAD_OPT, "cuda_graphs"},
    };

    limit_offload(check, limit, ARRAY_LEN(limit));
}

/* torch.distributed.pipelining cannot split the backward pass of what torch.compile made, which
 * narrow precisions and asynchronous tensor parallelism need. */
static void torchtitan_v(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const char *schedule = pl_layout_key_find("schedule")->names[layout->schedule];

    if (layout->tp_overlap)
        pl_breaks(check, "tp_overlap",
                  "trainer torchtitan does not support tp_overlap 1 with schedule %s, which cannot "
                  "be compiled",
                  schedule);
    if (layout->precision >= PL_FP8)
        pl_breaks(check, "precision",
                  "trainer torchtitan does not support precision %s with schedule %s, which cannot "
                  "be compiled",
                  pl_precision_names[layout->precision], schedule);
}

void pl_torchtitan_limits(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const struct pl_workload *workload = check->problem->workload;
    int64_t tokens = (int64_t)layout->micro_batch * workload->seq;
    int parts = (layout->sp ? layout->tp : 1) * (layout->cp > 1 ? 2 * layout->cp : 1);

    if (model->tied && layout->pp > 1)
        pl_breaks(check, "tied", "trainer torchtitan does not support tied true with pp %d",
                  layout->pp);
    if (model->moe.experts && layout->precision >= PL_FP8)
        pl_breaks(check, "precision",
                  "trainer torchtitan does not support precision %s with experts",
                  pl_precision_names[layout->precision]);
    if (model->mtp && (layout->pp > 1 || layout->cp > 1))
        pl_breaks(check, layout->pp > 1 ? "pp" : "cp",
                  "trainer torchtitan does not support mtp %d with pp %d and cp %d: multi-token "
                  "prediction needs both to be 1",
                  model->mtp, layout->pp, layout->cp);
    if (model->attn_sinks && layout->cp > 1)
        pl_breaks(check, "cp",
                  "trainer torchtitan does not support cp %d with attn_sinks: its attention is "
                  "VarlenAttention",
                  layout->cp);
    if (layout->precision == PL_NVFP4)
        torchtitan_nvfp4(check);
    if (layout->pp > 1 && pl_schedule_is_v(layout->schedule))
        torchtitan_v(check);
    if (layout->cuda_graphs && (layout->pp > 1 || layout->ep > 1))
        pl_breaks(check, "cuda_graphs",
                  "trainer torchtitan does not support cuda_graphs iteration with pp %d and ep %d",
                  layout->pp, layout->ep);
    if (tokens % parts)
        pl_breaks(check, "tp",
                  "trainer torchtitan does not support %lld tokens a micro-batch with tp %d and cp "
                  "%d: not a multiple of %d",
                  (long long)tokens, layout->tp, layout->cp, parts);
    /* torch.distributed.pipelining since January 2026: of its schedules for one stage a rank, 1F1B
     * asks for as many micro-batches as stages, GPipe no longer. */
    if (layout->pp > 1 && layout->vp == 1 && layout->schedule != PL_GPIPE &&
        micro_batches(check) < layout->pp)
        pl_breaks(check, "micro_batch",
                  "trainer torchtitan does not support %d micro-batches with pp %d: schedule 1f1b "
                  "needs at least one a stage, gpipe does not",
                  micro_batches(check), layout->pp);
    torchtitan_mesh(check);
    if (pl_offloads(layout))
        torchtitan_offload(check);
}

/* MiCS: groups of consecutive ranks of the job (deepspeed/runtime/zero/mics_utils.py), of zero 3,
 * and not with AutoEP (engine.py). */
static void deepspeed_copies(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const char *lacks = layout->zero < 3 ? "zero below 3" : layout->tp > 1 ? "tp > 1" : NULL;

    if (layout->ep > 1)
        lacks = "ep > 1";
    if (layout->shard && layout->zero && lacks)
        pl_breaks(check, "shard", "trainer deepspeed does not support shard %d with %s: it is MiCS",
                  layout->shard, lacks);
}

/* DeepSpeedCPUAdam; runtime/zero/config.py (offload_ratio_check), mics.py, and
 * module_inject/auto_ep_folding.py. */
static void deepspeed_offload(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    bool folded = layout->tp > 1 && layout->ep > 1, mics = layout->shard && layout->zero;
    bool below = layout->zero < 3 && !pl_alone(check->problem->model, layout);
    const struct unoffloaded limit[] = {
        {check->problem->workload->optimizer != PL_ADAMW, PL_KEY_OFFLOAD_OPT,
         "an optimizer other than adamw"},
        {layout->offload_optimizer < 100 && below, PL_KEY_OFFLOAD_OPT,
         "zero below 3: it is 0 or 100 there"},
        {folded, PL_KEY_OFFLOAD_OPT, "tp > 1 and ep > 1"},
        {mics, PL_KEY_OFFLOAD_OPT, "shard: MiCS"},
        {below, PL_KEY_OFFLOAD_PARAMS, "zero below 3"},
        {folded, PL_KEY_OFFLOAD_PARAMS, "tp > 1 and ep > 1"},
        {mics, PL_KEY_OFFLOAD_PARAMS, "shard: MiCS"},
    };

    limit_offload(check, limit, ARRAY_LEN(limit));
}

void pl_deepspeed_limits(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    bool known =
        model->mlp == PL_SWIGLU && model->norm == PL_RMSNORM && model->positions == PL_ROPE;

    if (layout->overlap_grad_reduce && layout->zero == 0)
        pl_breaks(check, "overlap_grad_reduce",
                  "trainer deepspeed does not support overlap_grad_reduce 1 with zero 0");
    if (layout->overlap_param_gather && layout->zero < 3)
        pl_breaks(check, "overlap_param_gather",
                  "trainer deepspeed does not support overlap_param_gather 1 with zero %d",
                  layout->zero);
    if (layout->zero == 3 && layout->overlap_param_gather != layout->overlap_grad_reduce)
        pl_breaks(check, "overlap_param_gather",
                  "trainer deepspeed does not support overlap_param_gather %d with "
                  "overlap_grad_reduce %d: at zero 3 one switch sets both",
                  layout->overlap_param_gather, layout->overlap_grad_reduce);
    if (layout->ep > 1 && !known)
        pl_breaks(check, "ep",
                  "trainer deepspeed does not support ep > 1 for a model of this shape: AutoEP "
                  "supports swiglu, rmsnorm and rope only");
    if (layout->tp > 1 && layout->ep > 1 && layout->zero == 3)
        pl_breaks(check, "zero", "trainer deepspeed does not support zero 3 with tp %d and ep %d",
                  layout->tp, layout->ep);
    deepspeed_copies(check);
    if (pl_offloads(layout))
        deepspeed_offload(check);
}

/* Experts that are not placed are split like every other matrix, placed ones are whole: there is no
 * setting of its own for the experts' tensor parallelism. */
static int experts_tp(const struct pl_layout *layout)
{
    return layout->ep == 1 ? layout->tp : 1;
}

/* Does anything have replicas that reduce gradients or share a sharded state? */
static bool replicated(const struct pl_layout *layout, const struct pl_model *model)
{
    return (int64_t)layout->dp * layout->cp > 1 || (model->moe.experts && layout->edp > 1);
}

/* Does TRAINER overlap the reduction of LAYOUT's gradients, or its gathers, whatever it is told? */
static bool overlaps_reduction(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    return trainer->always_overlaps || (trainer->fsdp_overlaps && layout->zero >= 2);
}

static bool gathers_ahead(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    return (trainer->always_overlaps && layout->zero >= 2) ||
           (trainer->fsdp_overlaps && layout->zero >= 3);
}

bool pl_grads_are_half(const struct pl_trainer *trainer, const struct pl_layout *layout)
{
    return trainer->half_replicas && !layout->zero && layout->precision != PL_FP32;
}

/* What the trainer does by itself, and cannot be told to leave. */
static void by_itself(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;
    bool overlaps = replicated(layout, model);

    if (trainer->experts_follow_tp && model->moe.experts && layout->etp != experts_tp(layout))
        pl_breaks(check, "etp",
                  "trainer %s does not support etp %d with ep %d and tp %d: it uses %d",
                  trainer->name, layout->etp, layout->ep, layout->tp, experts_tp(layout));
    if (overlaps && overlaps_reduction(trainer, layout) && !layout->overlap_grad_reduce)
        pl_breaks(check, "overlap_grad_reduce",
                  "trainer %s does not support overlap_grad_reduce 0: FSDP always overlaps",
                  trainer->name);
    if (overlaps && gathers_ahead(trainer, layout) && !layout->overlap_param_gather)
        pl_breaks(check, "overlap_param_gather",
                  "trainer %s does not support overlap_param_gather 0: FSDP always gathers ahead",
                  trainer->name);
    if (pl_grads_are_half(trainer, layout) && layout->grad_dtype != PL_GRADS_BF16)
        pl_breaks(check, "grad_dtype",
                  "trainer %s does not support grad_dtype fp32 with zero 0: it accumulates in the "
                  "precision of the weights",
                  trainer->name);
    if (trainer->uneven_layers && layout->stages != PL_STAGES_EVEN &&
        pl_stages_are_even(layout, model->layers))
        pl_breaks(check, "stages", "trainer %s does not support stages %s: the same as even here",
                  trainer->name, pl_stages_text(layout->stages));
    if (trainer->pair_overlaps && !layout->overlap_p2p && layout->vp > 1 && layout->pp == 2)
        pl_breaks(
            check, "overlap_p2p",
            "trainer %s does not support overlap_p2p 0 with pp 2 and vp %d: it always overlaps "
            "there",
            trainer->name, layout->vp);
}

void pl_layout_settle(struct pl_layout *layout, const struct pl_problem *problem)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;

    if (trainer->experts_follow_tp && model->moe.experts)
        layout->etp = experts_tp(layout);
    pl_layout_canonical(layout, model);
    if (overlaps_reduction(trainer, layout))
        layout->overlap_grad_reduce = replicated(layout, model);
    if (trainer->always_overlaps)
        layout->overlap_param_gather = 0;
    if (gathers_ahead(trainer, layout))
        layout->overlap_param_gather = replicated(layout, model);
    if (pl_grads_are_half(trainer, layout))
        layout->grad_dtype = PL_GRADS_BF16;
    if (trainer->pair_overlaps && layout->vp > 1 && layout->pp == 2)
        layout->overlap_p2p = 1;
    if (trainer->uneven_layers && pl_stages_are_even(layout, model->layers))
        layout->stages = PL_STAGES_EVEN;
}

void pl_layout_unsaid(struct pl_layout *layout, const json_t *json,
                      const struct pl_problem *problem)
{
    struct pl_layout settled = *layout;

    pl_layout_settle(&settled, problem);
    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        const json_t *said = json_object_get(json, k->name);

        if (k->part != PL_DERIVED && (!said || json_is_null(said)))
            pl_layout_set(layout, k, pl_layout_get(&settled, k));
    }
    pl_layout_derive(layout);
}

/* What a model has, and whether the trainer can train it. */
struct need {
    bool wanted, able;
    const char *key, *what;
};

enum { MAX_NEEDS = 96 };

/* torchtitan's modules are whole models: words that no one of them has together. Those of
 * deepseek_v3 come with mla; those of gpt_oss are all there with attn_sinks, or none is. */
static size_t torchtitan_needs(struct need *ret, const struct pl_model *model)
{
    const struct pl_moe *moe = &model->moe;
    const bool oss = model->attn_sinks, mla = pl_model_is_mla(model),
               qk_norm = model->qk_norm == PL_QK_HEAD, experts = moe->experts > 0,
               yarn = model->rope_scaling.kind == PL_ROPE_YARN,
               llama3 = model->rope_scaling.kind == PL_ROPE_LLAMA3,
               plain = model->norm != PL_LAYERNORM;
    const struct need need[] = {
        {qk_norm && mla, false, "qk_norm", "head with mla"},
        {qk_norm && oss, false, "qk_norm", "head with attn_sinks"},
        {mla && oss, false, "mla", "with attn_sinks"},
        {yarn && !mla && !oss, false, "rope_scaling", "yarn without mla or attn_sinks"},
        {llama3 && (mla || oss || qk_norm), false, "rope_scaling",
         "llama3 with mla, attn_sinks or qk_norm"},
        {model->mtp && !mla, false, "mtp", "> 0 without mla"},
        {experts && moe->router == PL_ROUTER_SIGMOID && !mla, false, "router",
         "sigmoid without mla"},
        {experts && !moe->topk_norm && !mla, false, "topk_norm", "false without mla"},
        {experts && fabs(moe->scaling - 1) > 0 && !mla, false, "scaling", "without mla"},
        {experts && moe->n_group > 1 && !mla, false, "n_group", "> 1 without mla"},
        {oss != (model->mlp == PL_SWIGLU_CLAMPED), false, "mlp",
         oss ? "other than swiglu-clamped with attn_sinks" : "swiglu-clamped without attn_sinks"},
        {oss != (model->sliding_window > 0 && model->global_every == 2), false, "sliding_window",
         oss ? "other than in every second layer with attn_sinks" : "without attn_sinks"},
        {plain && oss != model->qkv_bias, false, "qkv_bias",
         oss ? "false" : "true without attn_sinks"},
        {plain && oss != model->out_bias, false, "out_bias",
         oss ? "false" : "true without attn_sinks"},
        {plain && oss != model->mlp_bias, false, "mlp_bias",
         oss ? "false" : "true without attn_sinks"},
        {oss != (experts && moe->router_bias), false, "router_bias",
         oss ? "false" : "true without attn_sinks"},
    };

    memcpy(ret, need, sizeof(need));
    return ARRAY_LEN(need);
}

static size_t needs(struct need ret[MAX_NEEDS], const struct pl_problem *problem)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;
    const bool all = trainer->by == PL_BY_ALL;
    const struct need need[] = {
        {model->mlp == PL_GELU, trainer->gelu, "mlp", "gelu"},
        {model->norm == PL_LAYERNORM, trainer->layernorm, "norm", "layernorm"},
        {model->positions == PL_LEARNED, trainer->learned, "positions", "learned"},
        {model->tied, trainer->tied, "tied", "true"},
        {model->moe.experts && model->moe.capacity_factor > 0, trainer->capacity, "capacity_factor",
         "a number"},
        {model->moe.experts && model->moe.shared_ffn > 0, trainer->shared_expert, "shared_ffn",
         "> 0"},
        {model->moe.experts && model->moe.every > 1, trainer->moe_every, "every", "> 1"},
        {model->moe.experts && model->moe.dense_layers > 0, trainer->dense_layers, "dense_layers",
         "> 0"},
#define FEATURE(key, what, trainers, wanted) {wanted, all || ((trainers)&trainer->by), key, what},
#include "plan/features.def"
    };

    _Static_assert(ARRAY_LEN(need) + 24 <= MAX_NEEDS, "needs[] is too short");
    memcpy(ret, need, sizeof(need));
    return ARRAY_LEN(need) +
           (trainer->by == PL_BY_TORCHTITAN ? torchtitan_needs(ret + ARRAY_LEN(need), model) : 0);
}

void pl_trainer_trains(struct pl_check *check)
{
    const struct pl_trainer *trainer = check->problem->trainer;
    struct need need[MAX_NEEDS];
    size_t count = needs(need, check->problem);

    for (size_t i = 0; i < count; i++)
        if (need[i].wanted && !need[i].able)
            pl_breaks(check, need[i].key, "trainer %s does not support %s %s", trainer->name,
                      need[i].key, need[i].what);
}

bool pl_model_unsupported(char *buf, size_t size, const struct pl_problem *problem)
{
    AUTO_STR lacks = {0};
    struct need need[MAX_NEEDS];
    size_t count = needs(need, problem);

    for (size_t i = 0; i < count; i++)
        if (need[i].wanted && !need[i].able)
            str_addf(&lacks, "%s%s %s", lacks.len ? ", " : "", need[i].key, need[i].what);
    if (!lacks.len)
        return false;
    snprintf(buf, size,
             "trainer %s cannot train this model in any layout: it does not support %s "
             "(rule trainer-supports); trainer \"any\" plans every model",
             problem->trainer->name, str_text(&lacks));
    return true;
}

static void unsupported(struct pl_check *check, const struct pl_layout_key *key, int value)
{
    const struct pl_trainer *trainer = check->problem->trainer;
    char digits[16];
    bool words = key->names || key->text || key->max == 1 ||
                 pl_trainer_takes(trainer, (enum pl_key)(key - pl_layout_keys), key->max);

    pl_breaks(check, key->name, "trainer %s does not support %s %s", trainer->name, key->name,
              words      ? pl_layout_value_text(digits, key, value)
              : key->min ? "> 1"
                         : "> 0");
}

static void of_the_layout(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;

    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        int value = pl_layout_get(layout, &pl_layout_keys[key]);

        if (value == pl_layout_keys[key].standard || pl_trainer_takes(trainer, key, value))
            continue;
        if (key == PL_KEY_ZERO && value < trainer->min_zero)
            pl_breaks(check, "zero", "trainer %s does not support zero 1: it shards gradients too",
                      trainer->name);
        /* vp is the interleaved schedule's; zero above all stages is told last. */
        if (key != PL_KEY_VP && key != PL_KEY_ZERO && (key != PL_KEY_SCHEDULE || layout->pp > 1))
            unsupported(check, &pl_layout_keys[key], value);
    }
    if (layout->zero > trainer->max_zero)
        pl_breaks(check, "zero", "zero %d: trainer %s supports zero 0 to %d", layout->zero,
                  trainer->name, trainer->max_zero);
}

void pl_trainer_supports(struct pl_check *check)
{
    const struct pl_trainer *trainer = check->problem->trainer;

    if (!check->model_known)
        pl_trainer_trains(check);
    of_the_layout(check);
    by_itself(check);
    if (trainer->limits)
        trainer->limits(check);
}
