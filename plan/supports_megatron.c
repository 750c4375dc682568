/* What Megatron-LM can run: its part of supports.c. */
#include "plan/legal.h"
#include "plan/offload.h"
#include "plan/shape.h"

#include <math.h>

#include "base/base.h"

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
 * have. Constants of Llama 3's rotation are fixed. Sigmoid scores of several experts are always
 * normalized, and that of one never; a bias that balances is added to them only. Layers without
 * rotation are counted without modules of prediction. Transformer Engine's ring passes no window.
 */
static void megatron_model(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_moe *moe = &model->moe;
    const struct pl_rope_scaling *scaling = &model->rope_scaling;
    const struct pl_layout *layout = check->layout;
    const int one = moe->top_k == 1;
    const struct {
        bool broken;
        const char *key, *why;
    } rule[] = {
        {model->out_bias != model->mlp_bias, "out_bias", "out_bias that differs from mlp_bias"},
        {model->mlp_bias && !model->qkv_bias, "qkv_bias", "qkv_bias false with mlp_bias true"},
        {moe->experts && model->mlp_bias && layout->etp > 1, "etp", "etp > 1 with mlp_bias true"},
        {moe->experts && moe->router_bias && !model->mlp_bias, "router_bias",
         "router_bias true with mlp_bias false"},
        {moe->experts && moe->router == PL_ROUTER_SIGMOID && !moe->topk_norm && !one, "topk_norm",
         "topk_norm false with router sigmoid and top_k above 1"},
        {moe->experts && moe->router == PL_ROUTER_SIGMOID && moe->topk_norm && one, "topk_norm",
         "topk_norm true with router sigmoid and top_k 1"},
        {moe->experts && moe->apply_probs_on_input && !one, "apply_probs_on_input",
         "apply_probs_on_input true with top_k above 1"},
        {moe->experts && moe->balance_bias && moe->router != PL_ROUTER_SIGMOID, "balance_bias",
         "balance_bias true with router softmax"},
        {model->no_rope_freq && model->mtp, "no_rope_freq", "no_rope_freq above 0 with mtp"},
        {model->sliding_window && layout->cp > 1, "cp", "cp > 1 with sliding_window"},
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

/* Ranks of tp and cp share the key heads of linear attention, whose first product has as many
 * outputs as fp8 aligns to. Sparse attention gathers its keys over cp, needs sequence parallelism
 * with tp, and its indexer rotates bf16 (TransformerConfig, _GDNBase, AbsorbedMLASelfAttention,
 * rotate_activation()). */
static void megatron_variants(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const bool linear = model->linear.num_value_heads > 0, dsa = model->dsa.index_topk > 0,
               narrow = layout->precision >= PL_FP8 && layout->precision != PL_NVFP4;
    const double aligned = layout->precision == PL_MXFP8 ? 32 : 16;
    const struct {
        bool broken;
        const char *key, *why;
    } rule[] = {
        {linear && model->linear.num_key_heads % ((int64_t)layout->tp * layout->cp), "cp",
         "num_key_heads of linear_attention that are not a multiple of tp x cp"},
        {linear && narrow && fmod(pl_linear_in(model), aligned) != 0, "precision",
         "fp8 with linear_attention whose first product's outputs are not a multiple of 16, mxfp8 "
         "of 32"},
        {dsa && layout->cp > 1 && layout->cp_comm != PL_CP_ALL_GATHER, "cp_comm",
         "dsa with a cp_comm other than all-gather"},
        {dsa && layout->tp > 1 && !layout->sp, "sp", "dsa with tp > 1 and sp 0"},
        {dsa && layout->precision == PL_FP32, "precision", "dsa with precision fp32"},
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

/* The hybrid optimizer is AdamW's; Megatron-FSDP keeps weights and gradients of its optimizer by
 * itself; layers that offload are of one stage, and neither repeated nor in a graph of their own
 * (transformer_config.py, arguments.py). */
static void megatron_offload(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_unoffloaded limit[] = {
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

    pl_limit_offload(check, limit, ARRAY_LEN(limit));
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
    megatron_variants(check);
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
