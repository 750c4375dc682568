/* What the bundled trainer can run: its part of supports.c. */
#include "plan/legal.h"

#include "base/base.h"

/* Sizes of a rank that the bundled trainer's kernels and messages have no room for. */
static void bundled_limits(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    const struct pl_layout *layout = check->layout;
    const struct pl_trainer *trainer = check->problem->trainer;
    int64_t heads = (int64_t)model->heads + model->kv_heads;
    const struct {
        int64_t size;
        int most;
        const char *key;
    } limit[] = {
        {model->head_dim, PL_MAX_HEAD_DIM, "head_dim"},
        {model->mla.v_head_dim, PL_MAX_HEAD_DIM, "v_head_dim"},
        {model->mla.q_lora_rank, PL_MAX_LATENT, "q_lora_rank"},
        {model->mla.kv_lora_rank, PL_MAX_LATENT, "kv_lora_rank"},
        {model->hidden, PL_MAX_HIDDEN, "hidden"},
        {(model->vocab + layout->tp - 1) / layout->tp, PL_MAX_COLUMNS, "vocab"},
        {heads / layout->tp * model->head_dim, PL_MAX_COLUMNS, "heads"},
        {model->ffn / layout->tp, PL_MAX_FFN, "ffn"},
        {model->moe.expert_ffn / layout->etp, PL_MAX_FFN, "expert_ffn"},
        {model->moe.shared_ffn / layout->tp, PL_MAX_FFN, "shared_ffn"},
        {model->moe.experts / layout->ep, PL_MAX_EXPERTS, "experts"},
        {model->moe.n_group, PL_MAX_GROUPS, "n_group"},
        {layout->vp, PL_MAX_CHUNKS, "vp"},
        {layout->threads, PL_MAX_THREADS, "threads"},
    };

    for (size_t i = 0; i < ARRAY_LEN(limit); i++)
        if (limit[i].size > limit[i].most)
            pl_breaks(check, limit[i].key, "trainer %s does not support %s > %d a rank, here %lld",
                      trainer->name, limit[i].key, limit[i].most, (long long)limit[i].size);
}

/* Modules have RMSNorms and no positions of their own; each needs a token to predict. */
static void partune_mtp(struct pl_check *check)
{
    const struct pl_model *model = check->problem->model;
    int seq = check->problem->workload->seq;

    if (!model->mtp)
        return;
    if (model->norm != PL_RMSNORM)
        pl_breaks(check, "norm", "trainer partune does not support mtp %d with norm layernorm",
                  model->mtp);
    if (model->positions == PL_LEARNED)
        pl_breaks(check, "positions",
                  "trainer partune does not support mtp %d with positions learned", model->mtp);
    if (model->mtp >= seq)
        pl_breaks(check, "mtp",
                  "trainer partune does not support mtp %d with seq %d: a sample has no token so "
                  "far on",
                  model->mtp, seq);
}

/* A layer's pass becomes a graph where nothing in it changes from one micro-batch to the next or
 * needs the host: no exchange, no routes, no window of weights, no documents. */
static void partune_graphs(struct pl_check *check)
{
    const struct pl_workload *workload = check->problem->workload;
    const struct pl_cluster *cluster = check->problem->cluster;
    const struct pl_layout *layout = check->layout;
    const struct {
        bool forbids;
        const char *key, *with;
    } row[] = {
        {cluster && cluster->device.cpu, "cuda_graphs", "on a cluster of CPUs"},
        {layout->tp > 1, "tp", "with tp > 1"},
        {layout->cp > 1, "cp", "with cp > 1"},
        {layout->zero > 1, "zero", "with zero > 1"},
        {check->problem->model->moe.experts > 0, "experts", "with experts"},
        {workload->reset_position_ids, "reset_position_ids", "with reset_position_ids"},
        {workload->reset_attention_mask, "reset_attention_mask", "with reset_attention_mask"},
    };

    for (size_t i = 0; layout->cuda_graphs == PL_GRAPHS_MODULES && i < ARRAY_LEN(row); i++)
        if (row[i].forbids)
            pl_breaks(check, row[i].key, "trainer partune does not support cuda_graphs modules %s",
                      row[i].with);
}

void pl_partune_limits(struct pl_check *check)
{
    const struct pl_layout *layout = check->layout;
    const struct pl_model *model = check->problem->model;

    if (layout->pp > 1 && layout->schedule == PL_ZERO_BUBBLE &&
        layout->recompute == PL_RECOMPUTE_FULL)
        pl_breaks(check, "recompute",
                  "trainer partune does not support recompute full with schedule zero-bubble");
    if (model->moe.experts && model->mlp != PL_SWIGLU && model->mlp != PL_SWIGLU_CLAMPED)
        pl_breaks(check, "mlp",
                  "trainer partune does not support experts with an mlp other than swiglu and "
                  "swiglu-clamped");
    if (model->moe.experts && model->moe.shared_ffn && model->mlp_bias)
        pl_breaks(check, "mlp_bias",
                  "trainer partune does not support mlp_bias true with shared experts");
    if (pl_model_is_mla(model) && model->norm != PL_RMSNORM)
        pl_breaks(check, "norm", "trainer partune does not support mla with norm layernorm");
    partune_mtp(check);
    if (layout->grad_dtype == PL_GRADS_BF16 && check->problem->workload->optimizer != PL_ADAMW)
        pl_breaks(check, "grad_dtype",
                  "trainer partune does not support grad_dtype bf16 with optimizer %s: only adamw",
                  pl_optimizer_names[check->problem->workload->optimizer]);
    if (model->post_norms && model->moe.experts)
        pl_breaks(check, "post_norms", "trainer partune does not support post_norms with experts");
    if (model->post_norms && model->parallel_block)
        pl_breaks(check, "post_norms",
                  "trainer partune does not support post_norms with parallel_block true");
    if (pl_residual_is_scaled(model) && model->parallel_block)
        pl_breaks(check, "residual_multiplier",
                  "trainer partune does not support residual_multiplier with parallel_block true");
    if (model->post_norms && model->norm == PL_LAYERNORM)
        pl_breaks(check, "norm", "trainer partune does not support post_norms with norm layernorm");
    partune_graphs(check);
    bundled_limits(check);
}
