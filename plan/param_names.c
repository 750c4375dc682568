/*
 * Names of parameters, as Hugging Face's Llama, Qwen 3 for the norms of heads, Gemma 2 for norms of
 * outputs and DeepSeek for latents would have them; DeepSeek's kv_b_proj is k_b_proj and v_b_proj
 * here.
 */
#include "plan/partune.h"

#include <stdio.h>

/* Behind the layer, or behind the expert. */
static const char *const tail[PL_TENSORS] = {
    [PL_T_NORM1] = "input_layernorm.weight",
    [PL_T_NORM1_BIAS] = "input_layernorm.bias",
    [PL_T_Q] = "self_attn.q_proj.weight",
    [PL_T_K] = "self_attn.k_proj.weight",
    [PL_T_V] = "self_attn.v_proj.weight",
    [PL_T_O] = "self_attn.o_proj.weight",
    [PL_T_Q_BIAS] = "self_attn.q_proj.bias",
    [PL_T_K_BIAS] = "self_attn.k_proj.bias",
    [PL_T_V_BIAS] = "self_attn.v_proj.bias",
    [PL_T_O_BIAS] = "self_attn.o_proj.bias",
    [PL_T_Q_NORM] = "self_attn.q_norm.weight",
    [PL_T_K_NORM] = "self_attn.k_norm.weight",
    [PL_T_NORM2] = "post_attention_layernorm.weight",
    [PL_T_NORM2_BIAS] = "post_attention_layernorm.bias",
    [PL_T_GATE] = "mlp.gate_proj.weight",
    [PL_T_UP] = "mlp.up_proj.weight",
    [PL_T_DOWN] = "mlp.down_proj.weight",
    [PL_T_GATE_BIAS] = "mlp.gate_proj.bias",
    [PL_T_UP_BIAS] = "mlp.up_proj.bias",
    [PL_T_DOWN_BIAS] = "mlp.down_proj.bias",
    [PL_T_ROUTER] = "block_sparse_moe.gate.weight",
    [PL_T_EXPERT_GATE] = "w1",
    [PL_T_EXPERT_UP] = "w3",
    [PL_T_EXPERT_DOWN] = "w2",
    [PL_T_EMBED] = "model.embed_tokens.weight",
    [PL_T_POSITIONS] = "model.embed_positions.weight",
    [PL_T_FINAL_NORM] = "model.norm.weight",
    [PL_T_FINAL_NORM_BIAS] = "model.norm.bias",
    [PL_T_HEAD] = "lm_head.weight",
    [PL_T_SHARED_GATE] = "mlp.shared_gate.weight",
    [PL_T_BALANCE] = "block_sparse_moe.gate.e_score_correction_bias",
    [PL_T_Q_DOWN] = "self_attn.q_a_proj.weight",
    [PL_T_KV_DOWN] = "self_attn.kv_a_proj_with_mqa.weight",
    [PL_T_Q_UP] = "self_attn.q_b_proj.weight",
    [PL_T_K_UP] = "self_attn.k_b_proj.weight",
    [PL_T_V_UP] = "self_attn.v_b_proj.weight",
    [PL_T_Q_DOWN_BIAS] = "self_attn.q_a_proj.bias",
    [PL_T_KV_DOWN_BIAS] = "self_attn.kv_a_proj_with_mqa.bias",
    [PL_T_Q_LATENT] = "self_attn.q_a_layernorm.weight",
    [PL_T_KV_LATENT] = "self_attn.kv_a_layernorm.weight",
    [PL_T_MTP_ENORM] = "enorm.weight",
    [PL_T_MTP_HNORM] = "hnorm.weight",
    [PL_T_MTP_PROJ] = "eh_proj.weight",
    [PL_T_MTP_NORM] = "shared_head.norm.weight",
    [PL_T_POST_NORM1] = "post_attention_layernorm.weight",
    [PL_T_POST_NORM2] = "post_feedforward_layernorm.weight",
    [PL_T_SINKS] = "self_attn.sinks",
    [PL_T_ROUTER_BIAS] = "block_sparse_moe.gate.bias",
    [PL_T_EXPERT_GATE_BIAS] = "w1",
    [PL_T_EXPERT_UP_BIAS] = "w3",
    [PL_T_EXPERT_DOWN_BIAS] = "w2",
};

void pl_param_name(struct pl_param *param, const struct pl_model *model)
{
    const char *own = model->post_norms && param->tensor == PL_T_NORM2
                          ? "pre_feedforward_layernorm.weight"
                          : tail[param->tensor];
    size_t n = sizeof(param->name);

    if (param->expert >= 0)
        snprintf(param->name, n, "model.layers.%d.block_sparse_moe.experts.%d.%s.%s", param->layer,
                 param->expert, tail[param->tensor], param->dims == 2 ? "weight" : "bias");
    else if (param->layer >= 0)
        snprintf(param->name, n, "model.layers.%d.%s", param->layer, own);
    else
        snprintf(param->name, n, "%s", tail[param->tensor]);
}
