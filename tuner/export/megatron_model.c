/*
 * Megatron-LM's arguments for what models have had since 2024: attention, rotation, routers,
 * multi-token prediction. Names are those of megatron/training/arguments.py and of the fields of
 * TransformerConfig and MLATransformerConfig (megatron/core/transformer/transformer_config.py),
 * from which the rest of its arguments are made; d98e8a64. What it cannot train is in
 * plan/features.def and pl_megatron_limits.
 */
#include "tuner/export/internal.h"

static void number(struct str *out, const char *name, int value)
{
    str_addf(out, "%s %d\n", name, value);
}

static void real(struct str *out, const char *name, double value)
{
    str_addf(out, "%s %.10g\n", name, value);
}

/* All products have a bias, or none, or those of q, k and v. */
static void write_biases(struct str *out, const struct pl_model *model)
{
    if (model->mlp_bias)
        return;
    str_add(out, "--disable-bias-linear\n");
    if (model->qkv_bias)
        str_add(out, "--add-qkv-bias\n");
}

/* A number must divide the layers; a list has 1 for each layer that is not rotated. */
static void write_no_rope(struct str *out, const struct pl_model *model)
{
    if (!model->no_rope_freq)
        return;
    if (model->layers % model->no_rope_freq == 0) {
        number(out, "--no-rope-freq", model->no_rope_freq);
        return;
    }
    str_add(out, "--no-rope-freq [");
    for (int layer = 0; layer < model->layers; layer++)
        str_addf(out, "%s%d", layer ? "," : "", !pl_layer_has_rope(model, layer));
    str_add(out, "]\n");
}

static void write_linear(struct str *out, const struct pl_model *model)
{
    const struct pl_linear *linear = &model->linear;

    if (!linear->num_value_heads)
        return;
    str_add(out, "--experimental-attention-variant gdn\n");
    number(out, "--linear-attention-freq", model->linear_attention_freq);
    number(out, "--linear-num-key-heads", linear->num_key_heads);
    number(out, "--linear-num-value-heads", linear->num_value_heads);
    number(out, "--linear-key-head-dim", linear->key_head_dim);
    number(out, "--linear-value-head-dim", linear->value_head_dim);
    number(out, "--linear-conv-kernel-dim", linear->conv_kernel_dim);
}

/* Its loss is over all keys unless told otherwise. */
static void write_indexer(struct str *out, const struct pl_dsa *dsa)
{
    if (!dsa->index_topk)
        return;
    str_add(out, "--experimental-attention-variant dsa\n");
    number(out, "--dsa-indexer-n-heads", dsa->index_n_heads);
    number(out, "--dsa-indexer-head-dim", dsa->index_head_dim);
    number(out, "--dsa-indexer-topk", dsa->index_topk);
    real(out, "--dsa-indexer-loss-coeff", dsa->indexer_loss_coef);
    str_add(out, "--dsa-indexer-use-sparse-loss\n");
}

/* The fused kernel of latent attention rotates by yarn only, and not with sparse attention. */
static void write_latents(struct str *out, const struct pl_model *model)
{
    bool yarn = model->rope_scaling.kind == PL_ROPE_YARN;

    str_addf(out, "--multi-latent-attention\n--rope-type %s\n", yarn ? "yarn" : "rope");
    if (!yarn || model->dsa.index_topk)
        str_add(out, "--no-rope-fusion\n");
    if (model->mla.q_lora_rank)
        number(out, "--q-lora-rank", model->mla.q_lora_rank);
    number(out, "--kv-lora-rank", model->mla.kv_lora_rank);
    number(out, "--qk-head-dim", model->mla.qk_nope_head_dim);
    number(out, "--qk-pos-emb-head-dim", model->mla.qk_rope_head_dim);
    number(out, "--v-head-dim", model->mla.v_head_dim);
    write_indexer(out, &model->dsa);
}

/* Its window is the number of tokens before the query's own. */
static void write_attention(struct str *out, const struct pl_model *model)
{
    if (model->qk_norm == PL_QK_HEAD || pl_model_is_mla(model)) /* mla: the norms of the latents */
        str_add(out, "--qk-layernorm\n");
    if (model->qk_norm == PL_QK_L2)
        str_add(out, "--qk-l2-norm\n");
    if (model->attention_output_gate)
        str_add(out, "--attention-output-gate\n");
    write_linear(out, model);
    if (model->sliding_window)
        str_addf(out, "--window-size %d,0\n", model->sliding_window - 1);
    if (model->sliding_window && model->global_every)
        number(out, "--window-attn-skip-freq", model->global_every);
    write_no_rope(out, model);
    if (model->attn_sinks)
        str_add(out, "--softmax-type learnable\n");
    if (pl_model_is_mla(model))
        write_latents(out, model);
}

static void write_rotation(struct str *out, const struct pl_model *model)
{
    const struct pl_rope_scaling *scaling = &model->rope_scaling;

    if (model->partial_rotary_factor < 1)
        real(out, "--rotary-percent", model->partial_rotary_factor);
    if (scaling->kind == PL_ROPE_LLAMA3)
        str_addf(out, "--use-rope-scaling\n--rope-scaling-factor %.10g\n", scaling->factor);
    if (scaling->kind != PL_ROPE_YARN)
        return;
    real(out, "--rotary-scaling-factor", scaling->factor);
    if (!pl_model_is_mla(model)) { /* which has no arguments for these */
        number(out, "--yarn-original-max-position-embeddings", scaling->original_seq);
        real(out, "--yarn-beta-fast", scaling->beta_fast);
        real(out, "--yarn-beta-slow", scaling->beta_slow);
        if (!scaling->truncate)
            str_add(out, "--no-yarn-correction-range-round-to-int\n");
    }
    if (scaling->mscale > 0)
        real(out, "--mscale", scaling->mscale);
    if (scaling->mscale_all_dim > 0)
        real(out, "--mscale-all-dim", scaling->mscale_all_dim);
}

static void write_router(struct str *out, const struct pl_moe *moe)
{
    if (moe->router == PL_ROUTER_SIGMOID)
        str_add(out, "--moe-router-score-function sigmoid\n");
    else if (!moe->topk_norm)
        str_add(out, "--moe-router-pre-softmax\n");
    if (moe->balance_bias)
        str_add(out, "--moe-router-enable-expert-bias\n");
    if (moe->scaling < 1 || moe->scaling > 1)
        real(out, "--moe-router-topk-scaling-factor", moe->scaling);
    if (moe->n_group > 1) {
        number(out, "--moe-router-num-groups", moe->n_group);
        number(out, "--moe-router-group-topk", moe->topk_group);
    }
    if (moe->shared_gate)
        str_add(out, "--moe-shared-expert-gate\n");
    if (moe->apply_probs_on_input)
        str_add(out, "--moe-apply-probs-on-input\n");
    if (moe->force_balance)
        str_add(out, "--moe-router-force-load-balancing\n");
}

void tn_megatron_model(struct str *out, const struct pl_model *model)
{
    write_biases(out, model);
    if (model->mlp == PL_RELU2)
        str_add(out, "--squared-relu\n");
    if (model->mlp == PL_SWIGLU_CLAMPED)
        str_add(out, "--quick-geglu\n--activation-func-clamp-value 7\n--glu-linear-offset 1\n");
    if (model->zero_centered_norm)
        str_add(out, "--apply-layernorm-1p\n");
    write_attention(out, model);
    write_rotation(out, model);
    if (model->mtp) {
        number(out, "--mtp-num-layers", model->mtp);
        real(out, "--mtp-loss-scaling-factor", model->mtp_loss_coef);
    }
    if (pl_model_is_moe(model))
        write_router(out, &model->moe);
}
