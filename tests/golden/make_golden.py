#!/usr/bin/env python3
"""Golden values for tests/mpi/golden.c: logits, loss and every gradient of tiny models, by PyTorch in fp64.

    python3 tests/golden/make_golden.py tests/data/golden [CASE...]

writes for each case, or those named, a Hugging Face folder (config.json, model.safetensors) and golden.safetensors with input_ids (N, T + 1),
logits (N, T, vocab), loss, aux_loss, grad.NAME for every weight, and noise.X for each of them: how far X moves when every
weight is changed by at most one unit in its last place of fp32, the largest of 8 draws, or by computing in fp32 throughout if that
is more. A correct fp32 implementation differs by a small multiple of that; the test says which. The Mixtral of several layers and
sequences has golden.huggingface.safetensors and golden.megatron.safetensors as well: loss, aux_loss and gradients under those
load-balancing losses, all sequences in one micro-batch, and like the Llama of several documents golden.z.safetensors: z_loss and
moe_z_loss, and gradients with Z_LOSS of the one and MOE_Z_LOSS of the other added. Where samples hold several documents, `documents` is eod and three flags:
reset_attention_mask, reset_position_ids, eod_mask_loss."""
import json
import os
import sys

import torch

from model import AUX, experts_of, has_experts, is_deepseek, losses, output_z, router_z
from safetensors_plain import write

CASES = {
    # Grouped heads, sizes that no vector width divides, a head_dim that is not hidden / heads.
    "llama": dict(hidden_size=36, num_attention_heads=6, num_key_value_heads=2, head_dim=10, intermediate_size=43,
                  vocab_size=53, num_hidden_layers=3, rope_theta=10000.0, samples=3, length=17),
    # Multi-head attention, another base of the rotary positions.
    "llama-mha": dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=5, head_dim=8, intermediate_size=24,
                      vocab_size=31, num_hidden_layers=2, rope_theta=500000.0, samples=2, length=40),
    # The output projection is the embedding.
    "llama-tied": dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=1, head_dim=8, intermediate_size=27,
                       vocab_size=41, num_hidden_layers=2, rope_theta=10000.0, tie_word_embeddings=True, samples=2, length=19),
    # A window in every layer.
    "mistral": dict(model_type="mistral", hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                    intermediate_size=22, vocab_size=37, num_hidden_layers=2, rope_theta=10000.0, sliding_window=5, samples=2,
                    length=24),
    # Some pairs turn as before, some slower, some in between.
    "llama-3.1": dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=16, intermediate_size=20,
                      vocab_size=37, num_hidden_layers=2, rope_theta=500.0, samples=2, length=23,
                      rope_scaling=dict(rope_type="llama3", factor=8.0, original_max_position_embeddings=48,
                                        low_freq_factor=1.0, high_freq_factor=4.0)),
    "mixtral": dict(hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=19,
                    vocab_size=47, num_hidden_layers=3, rope_theta=1000000.0, num_local_experts=5, num_experts_per_tok=2,
                    router_aux_loss_coef=0.03, samples=3, length=21),
    # One layer, one sequence: here our auxiliary loss is Hugging Face's.
    "mixtral-one": dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=4, head_dim=6, intermediate_size=33,
                        vocab_size=29, num_hidden_layers=1, rope_theta=10000.0, num_local_experts=4,
                        num_experts_per_tok=3, router_aux_loss_coef=0.5, samples=1, length=37),
    # Norms of queries and keys, a head_dim that is not hidden / heads.
    "qwen3": dict(model_type="qwen3", hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                  intermediate_size=33, vocab_size=37, num_hidden_layers=2, rope_theta=1000000.0, samples=2, length=19),
    # Weights of the chosen experts as they are; every second layer has none.
    "qwen3-moe": dict(model_type="qwen3_moe", hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                      intermediate_size=33, vocab_size=37, num_hidden_layers=4, rope_theta=1000000.0, num_experts=6,
                      num_experts_per_tok=3, moe_intermediate_size=11, norm_topk_prob=False, decoder_sparse_step=2,
                      router_aux_loss_coef=0.05, samples=2, length=19),
    # A shared expert with a gate.
    "qwen2-moe": dict(model_type="qwen2_moe", hidden_size=24, num_attention_heads=4, num_key_value_heads=4, head_dim=6,
                      intermediate_size=31, vocab_size=37, num_hidden_layers=2, rope_theta=10000.0, num_experts=5,
                      num_experts_per_tok=2, moe_intermediate_size=13, shared_expert_intermediate_size=21, norm_topk_prob=True,
                      router_aux_loss_coef=0.02, samples=2, length=15),
    # Biases of q, k and v alone.
    "qwen2": dict(model_type="qwen2", hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                  intermediate_size=31, vocab_size=37, num_hidden_layers=2, rope_theta=10000.0, samples=2, length=15),
    # Windows of 150 tokens over sequences of more than a block, all but the second layer.
    "qwen2-window": dict(model_type="qwen2", hidden_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=6,
                         intermediate_size=11, vocab_size=19, num_hidden_layers=3, rope_theta=10000.0, samples=1, length=310,
                         use_sliding_window=True, sliding_window=150, max_window_layers=0,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    # Bounds of yarn inside of the head, another factor of the scores.
    "qwen2-yarn": dict(model_type="qwen2", hidden_size=24, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
                       intermediate_size=23, vocab_size=31, num_hidden_layers=2, rope_theta=100.0, samples=2, length=21,
                       rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=40,
                                         beta_fast=4.0, beta_slow=0.5)),
    # Latents of queries, and of keys with values; a dense layer, then experts by sigmoids in groups, with a bias; mscale.
    "deepseek-v3": dict(model_type="deepseek_v3", hidden_size=28, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=14,
                        kv_lora_rank=11, qk_nope_head_dim=7, qk_rope_head_dim=8, v_head_dim=9, intermediate_size=22,
                        moe_intermediate_size=10, n_routed_experts=8, num_experts_per_tok=4, n_shared_experts=2,
                        first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
                        topk_method="noaux_tc", scoring_func="sigmoid", aux_loss_alpha=0.01, attention_bias=True, vocab_size=37,
                        num_hidden_layers=3, rope_theta=500.0, rope_interleave=True, samples=3, length=23,
                        rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=24, beta_fast=2.0,
                                          beta_slow=0.25, mscale=1.0, mscale_all_dim=0.8)),
    # Two modules of multi-token prediction.
    "deepseek-v3-mtp": dict(model_type="deepseek_v3", hidden_size=20, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=9,
                            kv_lora_rank=7, qk_nope_head_dim=5, qk_rope_head_dim=4, v_head_dim=6, intermediate_size=18,
                            moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
                            first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
                            topk_method="noaux_tc", scoring_func="sigmoid", aux_loss_alpha=0.02, vocab_size=29,
                            num_hidden_layers=2, num_nextn_predict_layers=2, rope_theta=10000.0, rope_interleave=True, samples=2,
                            length=19),
    # Queries without a latent, more than a block of keys, experts by a softmax that is not normalized.
    "deepseek-v2": dict(model_type="deepseek_v2", hidden_size=20, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=None,
                        kv_lora_rank=9, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=11, intermediate_size=18,
                        moe_intermediate_size=7, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
                        first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.5,
                        topk_method="greedy", scoring_func="softmax", aux_loss_alpha=0.02, vocab_size=29, num_hidden_layers=2,
                        rope_theta=10000.0, samples=1, length=150),
    "gpt2": dict(model_type="gpt2", n_embd=36, n_head=4, n_inner=52, n_layer=3, vocab_size=43, n_positions=24,
                 activation_function="gelu_new", tie_word_embeddings=True, samples=3, length=18),
    # In parallel, a quarter of each head rotated, GELU by the error function.
    "neox": dict(model_type="gpt_neox", hidden_size=48, num_attention_heads=3, intermediate_size=40, vocab_size=41,
                 num_hidden_layers=2, rotary_pct=0.25, rotary_emb_base=10000.0, use_parallel_residual=True,
                 hidden_act="gelu", samples=2, length=21),
    # yarn of a part of each head, with a factor of its own; linear scaling.
    "neox-yarn": dict(model_type="gpt_neox", hidden_size=48, num_attention_heads=3, intermediate_size=28, vocab_size=41,
                      num_hidden_layers=2, rotary_pct=0.75, rotary_emb_base=1000.0, use_parallel_residual=True,
                      hidden_act="gelu", samples=2, length=17,
                      rope_scaling=dict(rope_type="yarn", factor=3.0, original_max_position_embeddings=24,
                                        beta_fast=2.0, beta_slow=0.25, mscale=0.7, mscale_all_dim=1.4)),
    "qwen3-linear": dict(model_type="qwen3", hidden_size=20, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
                         intermediate_size=18, vocab_size=29, num_hidden_layers=2, rope_theta=10000.0, samples=2, length=18,
                         rope_scaling=dict(rope_type="linear", factor=2.5)),
    # One after the other, GELU by tanh.
    "neox-serial": dict(model_type="gpt_neox", hidden_size=32, num_attention_heads=2, intermediate_size=24, vocab_size=31,
                        num_hidden_layers=2, rotary_pct=0.5, rotary_emb_base=5000.0, use_parallel_residual=False,
                        hidden_act="gelu_new", tie_word_embeddings=True, samples=2, length=16),
    # Caps of scores and logits, another factor of the scores, a window in every second layer.
    "gemma2": dict(model_type="gemma2", hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                   intermediate_size=33, vocab_size=37, num_hidden_layers=3, rope_theta=10000.0, samples=2, length=21,
                   hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=7,
                   attn_logit_softcapping=2.5, final_logit_softcapping=4.0, sliding_window=5, tie_word_embeddings=True,
                   layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    # Norms of queries and keys, local rotation, scaled global rotation, over more than a block of attention.
    "gemma3": dict(model_type="gemma3_text", hidden_size=20, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
                   intermediate_size=18, vocab_size=29, num_hidden_layers=3, rope_theta=50000.0, samples=1, length=150,
                   hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12,
                   attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=40, tie_word_embeddings=True,
                   rope_local_base_freq=1000.0, rope_scaling=dict(rope_type="linear", factor=2.5),
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
    # A sink in each head, gates and factors that the clamp cuts off, biases of experts and routers, a window in every second layer.
    "gpt-oss": dict(model_type="gpt_oss", hidden_size=20, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=9,
                    vocab_size=29, num_hidden_layers=3, rope_theta=5000.0, samples=2, length=21, num_local_experts=5,
                    num_experts_per_tok=2, router_aux_loss_coef=0.02, attention_bias=True, sliding_window=5, swiglu_limit=7.0,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=24, beta_fast=2.0, beta_slow=0.05,
                                      truncate=False)),
    # Norms of 1 + w, half of each head rotated, squared ReLU, biases; then without biases and tied, over more than a block of attention.
    "nemotron": dict(model_type="nemotron", hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                     intermediate_size=33, vocab_size=37, num_hidden_layers=2, rope_theta=10000.0, partial_rotary_factor=0.5,
                     hidden_act="relu2", attention_bias=True, mlp_bias=True, samples=2, length=19),
    "nemotron-tied": dict(model_type="nemotron", hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
                          intermediate_size=20, vocab_size=29, num_hidden_layers=2, rope_theta=5000.0, partial_rotary_factor=0.5,
                          hidden_act="relu2", attention_bias=False, mlp_bias=False, tie_word_embeddings=True, samples=1, length=150),
    # Norms of all heads' queries and of all heads' keys, weights of the chosen experts as they are.
    "olmoe": dict(model_type="olmoe", hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=11,
                  vocab_size=37, num_hidden_layers=2, rope_theta=10000.0, num_experts=6, num_experts_per_tok=3, norm_topk_prob=False,
                  attention_bias=False, router_aux_loss_coef=0.05, samples=2, length=19),
    # Norms of outputs alone; then windows, whose layers rotate plainly where the others' positions are stretched, over more than a
    # block of attention, and biases.
    "olmo2": dict(model_type="olmo2", hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=29,
                  vocab_size=37, num_hidden_layers=3, rope_theta=500000.0, attention_bias=False, samples=2, length=19),
    "olmo3": dict(model_type="olmo3", hidden_size=20, num_attention_heads=2, num_key_value_heads=1, head_dim=10, intermediate_size=18,
                  vocab_size=29, num_hidden_layers=3, rope_theta=5000.0, attention_bias=True, samples=1, length=150, sliding_window=40,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                  rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=48, beta_fast=2.0, beta_slow=0.25,
                                    attention_factor=1.1386294361119891)),
    # Layers without rotation: every third, under stretched positions; those without a window, whose queries and keys are normalized.
    "smollm3": dict(model_type="smollm3", hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=29,
                    vocab_size=37, num_hidden_layers=4, rope_theta=5000.0, attention_bias=False, mlp_bias=False, samples=2, length=19,
                    no_rope_layers=[1, 1, 0, 1], no_rope_layer_interval=3, use_sliding_window=False, sliding_window=None,
                    rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=12)),
    "exaone4": dict(model_type="exaone4", hidden_size=20, num_attention_heads=2, num_key_value_heads=1, head_dim=10,
                    intermediate_size=18, vocab_size=29, num_hidden_layers=4, rope_theta=5000.0, samples=1, length=150,
                    sliding_window=40, sliding_window_pattern="LG",
                    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                    rope_scaling=dict(rope_type="llama3", factor=8.0, original_max_position_embeddings=48, low_freq_factor=1.0,
                                      high_freq_factor=4.0)),
    # Factors of embeddings, scores, outputs and logits, with biases and tied; with experts of one tensor, over more than a block of
    # attention.
    "granite": dict(model_type="granite", hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                    intermediate_size=29, vocab_size=37, num_hidden_layers=3, rope_theta=5000.0, attention_bias=True, mlp_bias=True,
                    tie_word_embeddings=True, samples=2, length=19, embedding_multiplier=3.0, attention_multiplier=0.2,
                    residual_multiplier=0.22, logits_scaling=2.5),
    "granite-moe": dict(model_type="granitemoe", hidden_size=20, num_attention_heads=2, num_key_value_heads=1, head_dim=10,
                        intermediate_size=11, vocab_size=29, num_hidden_layers=2, rope_theta=5000.0, attention_bias=False,
                        samples=1, length=150, num_local_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.05,
                        embedding_multiplier=6.0, attention_multiplier=0.25, residual_multiplier=0.4, logits_scaling=4.0,
                        output_router_logits=True),
    # One norm without a bias for both halves of a parallel block, rotation of neighbors, scaled logits, with biases of attention; then
    # windows, whose layers alone rotate, over more than a block of attention.
    "cohere": dict(model_type="cohere", hidden_size=24, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
                   intermediate_size=29, vocab_size=37, num_hidden_layers=3, rope_theta=5000.0, attention_bias=True, use_qk_norm=False,
                   tie_word_embeddings=True, samples=2, length=19, logit_scale=0.4),
    "cohere2": dict(model_type="cohere2", hidden_size=20, num_attention_heads=2, num_key_value_heads=1, head_dim=10,
                    intermediate_size=18, vocab_size=29, num_hidden_layers=4, rope_theta=5000.0, attention_bias=False, samples=1,
                    length=150, logit_scale=0.25, sliding_window=40,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"]),
    # Samples of several documents, over more than a block of attention; with windows and attention alone; with learned positions.
    "llama-packed": dict(hidden_size=20, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=23,
                         vocab_size=29, num_hidden_layers=2, rope_theta=10000.0, samples=2, length=300,
                         documents=dict(eod=0, reset_attention_mask=True, reset_position_ids=True, eod_mask_loss=True)),
    "mistral-packed": dict(model_type="mistral", hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                           intermediate_size=22, vocab_size=17, num_hidden_layers=2, rope_theta=10000.0, sliding_window=9, samples=3,
                           length=33, documents=dict(eod=5, reset_attention_mask=True)),
    "gpt2-packed": dict(model_type="gpt2", n_embd=36, n_head=4, n_inner=52, n_layer=2, vocab_size=13, n_positions=30,
                        activation_function="gelu_new", tie_word_embeddings=True, samples=3, length=30,
                        documents=dict(eod=12, reset_position_ids=True, eod_mask_loss=True)),
}


# What else is made of a case: other load-balancing losses, and z-losses.
MORE = {"mixtral": ("huggingface", "megatron", "z"), "llama-packed": ("z",)}

CLASSES = {"gpt_oss": "GptOssForCausalLM", "nemotron": "NemotronForCausalLM", "olmoe": "OlmoeForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM", "cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM", "granite": "GraniteForCausalLM", "granitemoe": "GraniteMoeForCausalLM", "smollm3": "SmolLM3ForCausalLM", "exaone4": "Exaone4ForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gpt2": "GPT2LMHeadModel", "gpt_neox": "GPTNeoXForCausalLM"}


def config(case):
    c = {k: v for k, v in CASES[case].items() if k not in ("samples", "length")}
    if "model_type" in c:
        c.update(architectures=[CLASSES[c["model_type"]]], torch_dtype="float32")
        c.setdefault("tie_word_embeddings", False)
        if c["model_type"] == "gpt2":
            c.update(layer_norm_epsilon=1e-5)
        elif c["model_type"] == "gpt_neox":
            c.update(layer_norm_eps=1e-5, max_position_embeddings=CASES[case]["length"])
        else:
            c.setdefault("hidden_act", "silu")
            c[{"nemotron": "norm_eps", "cohere": "layer_norm_eps", "cohere2": "layer_norm_eps"}.get(c["model_type"], "rms_norm_eps")] = 1e-6 if is_deepseek(c) else 1e-5
            c.update(max_position_embeddings=CASES[case]["length"])
        return c
    moe = "num_local_experts" in c
    c.update(architectures=["MixtralForCausalLM" if moe else "LlamaForCausalLM"], model_type="mixtral" if moe else "llama",
             hidden_act="silu", rms_norm_eps=1e-5, torch_dtype="float32", max_position_embeddings=CASES[case]["length"])
    c.setdefault("tie_word_embeddings", False)
    return c


def gpt2_shapes(c):
    E, F = c["n_embd"], c["n_inner"]
    shapes = {"transformer.wte.weight": (c["vocab_size"], E), "transformer.wpe.weight": (c["n_positions"], E)}
    for i in range(c["n_layer"]):
        n = "transformer.h.%d." % i
        for norm in ("ln_1", "ln_2"):
            shapes[n + norm + ".weight"] = shapes[n + norm + ".bias"] = (E,)
        for name, rows, cols in (("attn.c_attn", E, 3 * E), ("attn.c_proj", E, E), ("mlp.c_fc", E, F), ("mlp.c_proj", F, E)):
            shapes[n + name + ".weight"], shapes[n + name + ".bias"] = (rows, cols), (cols,)
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (E,)
    return shapes


def neox_shapes(c):
    E, F = c["hidden_size"], c["intermediate_size"]
    shapes = {"gpt_neox.embed_in.weight": (c["vocab_size"], E)}
    for i in range(c["num_hidden_layers"]):
        n = "gpt_neox.layers.%d." % i
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[n + norm + ".weight"] = shapes[n + norm + ".bias"] = (E,)
        for name, rows, cols in (("attention.query_key_value", 3 * E, E), ("attention.dense", E, E),
                                 ("mlp.dense_h_to_4h", F, E), ("mlp.dense_4h_to_h", E, F)):
            shapes[n + name + ".weight"], shapes[n + name + ".bias"] = (rows, cols), (rows,)
    shapes["gpt_neox.final_layer_norm.weight"] = shapes["gpt_neox.final_layer_norm.bias"] = (E,)
    if not c["tie_word_embeddings"]:
        shapes["embed_out.weight"] = (c["vocab_size"], E)
    return shapes


def qwen_expert_shapes(c, prefix):
    F = c["intermediate_size" if c["model_type"] == "olmoe" else "moe_intermediate_size"]
    H, names = c["hidden_size"], {"experts.%d." % e: F for e in range(experts_of(c))}
    shapes = {prefix + "gate.weight": (experts_of(c), H)}
    if is_deepseek(c):
        names["shared_experts."] = c["n_shared_experts"] * c["moe_intermediate_size"]
    if c["model_type"] == "deepseek_v3":
        shapes[prefix + "gate.e_score_correction_bias"] = (experts_of(c),)
    if c["model_type"] == "qwen2_moe":
        names["shared_expert."] = c["shared_expert_intermediate_size"]
        shapes[prefix + "shared_expert_gate.weight"] = (1, H)
    for name, F in names.items():
        for part, shape in (("gate", (F, H)), ("up", (F, H)), ("down", (H, F))):
            shapes[prefix + name + part + "_proj.weight"] = shape
    return shapes


def latent_shapes(c, prefix):
    E, H, bias = c["hidden_size"], c["num_attention_heads"], c.get("attention_bias")
    key, rank = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["kv_lora_rank"]
    matrices = {"kv_a_proj_with_mqa": (rank + c["qk_rope_head_dim"], E), "kv_b_proj": (H * (c["qk_nope_head_dim"] + c["v_head_dim"]), rank),
                "o_proj": (E, H * c["v_head_dim"])}
    shapes = {prefix + "kv_a_layernorm.weight": (rank,)}
    if c["q_lora_rank"]:
        matrices.update(q_a_proj=(c["q_lora_rank"], E), q_b_proj=(H * key, c["q_lora_rank"]))
        shapes[prefix + "q_a_layernorm.weight"] = (c["q_lora_rank"],)
    else:
        matrices["q_proj"] = (H * key, E)
    for name, shape in matrices.items():
        shapes[prefix + name + ".weight"] = shape
        if bias and name in ("q_a_proj", "kv_a_proj_with_mqa", "o_proj"):
            shapes[prefix + name + ".bias"] = shape[:1]
    return shapes


def oss_shapes(c, prefix):
    E, H, F = c["num_local_experts"], c["hidden_size"], c["intermediate_size"]
    return {prefix + "router.weight": (E, H), prefix + "router.bias": (E,), prefix + "experts.gate_up_proj": (E, H, 2 * F),
            prefix + "experts.gate_up_proj_bias": (E, 2 * F), prefix + "experts.down_proj": (E, F, H),
            prefix + "experts.down_proj_bias": (E, H)}


def attention_shapes(c, prefix):
    H, A, K = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    shapes = {}
    for name, rows, cols in (("q", A, H), ("k", K, H), ("v", K, H), ("o", H, A)):
        shapes[prefix + "%s_proj.weight" % name] = (rows, cols)
        if c["model_type"] in ("qwen2", "qwen2_moe") and name != "o":
            shapes[prefix + "%s_proj.bias" % name] = (rows,)
        if c["model_type"] == "gpt_oss":
            shapes[prefix + "%s_proj.bias" % name], shapes[prefix + "sinks"] = (rows,), (c["num_attention_heads"],)
        if c["model_type"] in ("nemotron", "olmo2", "olmo3", "smollm3", "granite", "cohere") and c["attention_bias"]:
            shapes[prefix + "%s_proj.bias" % name] = (rows,)
    if c["model_type"].startswith("olmo"):
        shapes[prefix + "q_norm.weight"], shapes[prefix + "k_norm.weight"] = (A,), (K,)
    if c["model_type"] in ("qwen3", "qwen3_moe", "gemma3_text", "exaone4"):
        shapes[prefix + "q_norm.weight"] = shapes[prefix + "k_norm.weight"] = (c["head_dim"],)
    return shapes


def is_gemma(c):
    return c["model_type"].startswith("gemma")


def is_zero_centered(c):
    return is_gemma(c) or c["model_type"] == "nemotron"


def llama_shapes(c):
    H, F, V, nemotron = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["model_type"] == "nemotron"
    shapes = {"model.embed_tokens.weight": (V, H)}
    for i in range(c["num_hidden_layers"] + c.get("num_nextn_predict_layers", 0)):
        n = "model.layers.%d." % i
        if i >= c["num_hidden_layers"]:
            shapes.update({n + name + ".weight": (H,) for name in ("enorm", "hnorm", "shared_head.norm")})
            shapes[n + "eh_proj.weight"] = (H, 2 * H)
        first = "post_feedforward_layernorm.weight" if c["model_type"] in ("olmo2", "olmo3", "exaone4") else "input_layernorm.weight"
        shapes[n + first] = (H,)
        if not c["model_type"].startswith("cohere"):
            shapes[n + "post_attention_layernorm.weight"] = (H,)
        if is_gemma(c):
            shapes[n + "pre_feedforward_layernorm.weight"] = shapes[n + "post_feedforward_layernorm.weight"] = (H,)
        shapes.update((latent_shapes if is_deepseek(c) else attention_shapes)(c, n + "self_attn."))
        if c["model_type"] == "mixtral":
            shapes[n + "block_sparse_moe.gate.weight"] = (c["num_local_experts"], H)
            for e in range(c["num_local_experts"]):
                m = n + "block_sparse_moe.experts.%d." % e
                shapes[m + "w1.weight"], shapes[m + "w2.weight"], shapes[m + "w3.weight"] = (F, H), (H, F), (F, H)
        elif c["model_type"] == "granitemoe":
            m, E = n + "block_sparse_moe.", c["num_local_experts"]
            shapes.update({m + "router.layer.weight": (E, H), m + "input_linear.weight": (E, 2 * F, H), m + "output_linear.weight": (E, H, F)})
        elif c["model_type"] == "gpt_oss":
            shapes.update(oss_shapes(c, n + "mlp."))
        elif has_experts(c, i):
            shapes.update(qwen_expert_shapes(c, n + "mlp."))
        else:
            if not nemotron:
                shapes[n + "mlp.gate_proj.weight"] = (F, H)
            shapes[n + "mlp.up_proj.weight"], shapes[n + "mlp.down_proj.weight"] = (F, H), (H, F)
        if nemotron:
            shapes[n + "input_layernorm.bias"] = shapes[n + "post_attention_layernorm.bias"] = (H,)
        if c["model_type"] in ("nemotron", "granite") and c["mlp_bias"]:
            shapes[n + "mlp.up_proj.bias"], shapes[n + "mlp.down_proj.bias"] = (F,), (H,)
        if c["model_type"] == "granite" and c["mlp_bias"]:
            shapes[n + "mlp.gate_proj.bias"] = (F,)
    shapes["model.norm.weight"] = (H,)
    if nemotron:
        shapes["model.norm.bias"] = (H,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, H)
    return shapes


def weights(c, generator):
    """Random weights large enough that every path matters; scales of norms are not 1, biases not 0."""
    shapes = {"gpt2": gpt2_shapes, "gpt_neox": neox_shapes}.get(c["model_type"], llama_shapes)(c)
    out = {}
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=generator, dtype=torch.float32)
        table = "embed" in name or name.endswith((".wte.weight", ".wpe.weight"))
        if ".mlp.experts." in name and c["model_type"] == "gpt_oss":  # (experts, in, out), some products beyond 7
            out[name] = x * (4.0 if "gate_up" in name else 1.0) / (shape[1] ** 0.5 if len(shape) == 3 else 2.0)
            continue
        out[name] = 0.05 * x if name.endswith("correction_bias") else 0.2 * x if name.endswith(".bias") else (0 if is_zero_centered(c) else 1) + 0.2 * x if len(shape) == 1 \
            else x * (1.0 if table else 1.3 / shape[-1] ** 0.5)
    return out


def aux_coefficient(c, layers):
    """DeepSeek's alpha is of a loss that is divided by top_k and added up over the layers, where ours is their mean."""
    return c["aux_loss_alpha"] * layers / c["num_experts_per_tok"] if is_deepseek(c) else c["router_aux_loss_coef"]


Z_LOSS, MOE_Z_LOSS = 0.125, 0.25
MTP_LOSS = 0.1


def evaluate(c, w, samples, dtype, definition):
    w = {k: v.detach().clone().to(dtype).requires_grad_() for k, v in w.items()}
    loss, logits, routers, ahead = losses(c, w, samples)
    z = definition == "z"
    definition = "sequence" if z else definition
    aux = AUX[definition](c, routers) if experts_of(c) else None
    total = loss if aux is None else loss + aux_coefficient(c, len(routers[0])) * aux
    out = {"loss": loss, "logits": logits}
    if c.get("num_nextn_predict_layers"):
        out["mtp_loss"] = ahead
        total = total + MTP_LOSS * ahead
    if z:
        out["z_loss"] = output_z(c, logits, samples)
        total = total + Z_LOSS * out["z_loss"]
    if z and experts_of(c):
        out["moe_z_loss"] = router_z(routers)
        total = total + MOE_Z_LOSS * out["moe_z_loss"]
    total.backward()
    if aux is not None:
        out["aux_loss"] = aux
        if c["num_hidden_layers"] == 1 and len(samples) == 1:
            hf = AUX["huggingface"](c, routers)
            ours = aux * c["num_experts_per_tok"] if definition == "megatron" else aux
            assert abs(float(hf) - float(ours)) < 1e-6 * abs(float(ours)), "our auxiliary loss is not Hugging Face's"
    for k, v in w.items():
        if not k.endswith("correction_bias"):  # on which nothing but a choice depends
            out["grad." + k] = v.grad
    return {k: v.detach().to(torch.float64) for k, v in out.items()}


def tensors(c, w, samples, generator, definition):
    """Values and the noise of each of them."""
    golden = evaluate(c, w, samples, torch.float64, definition)
    noise = {k: float((v - evaluate_32[k]).abs().max())
             for evaluate_32 in [evaluate(c, w, samples, torch.float32, definition)] for k, v in golden.items()}
    for _ in range(8):
        moved = {k: v.double() * (1 + (2 * torch.rand(v.shape, generator=generator, dtype=torch.float64) - 1) * 2.0 ** -23)
                 for k, v in w.items()}
        for k, v in evaluate(c, moved, samples, torch.float64, definition).items():
            noise[k] = max(noise[k], float((v - golden[k]).abs().max()))
    out = {k: v.numpy() for k, v in golden.items()}
    out.update({"noise." + k: v for k, v in noise.items()})
    return out


def copies(c, w):
    """What the published folder repeats in each module of multi-token prediction."""
    again = {}
    for i in range(c["num_hidden_layers"], c["num_hidden_layers"] + c.get("num_nextn_predict_layers", 0)):
        again["model.layers.%d.embed_tokens.weight" % i] = w["model.embed_tokens.weight"]
        again["model.layers.%d.shared_head.head.weight" % i] = w["lm_head.weight"]
    return again


def make(case, folder):
    c = config(case)
    g = torch.Generator().manual_seed(sum(map(ord, case)))
    w = weights(c, g)
    samples = torch.randint(c["vocab_size"], (CASES[case]["samples"], CASES[case]["length"] + 1), generator=g)
    golden = tensors(c, w, samples, g, "sequence")
    more = {kind: tensors(c, w, samples, torch.Generator().manual_seed(1), kind) for kind in MORE.get(case, ())}
    how = c.pop("documents", None)
    if how:
        flags = (how.get(word, False) for word in ("reset_attention_mask", "reset_position_ids", "eod_mask_loss"))
        golden["documents"] = torch.tensor([how["eod"], *flags]).numpy()
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as f:
        json.dump(c, f, indent=2)
        f.write("\n")
    write(folder + "/model.safetensors", {k: v.numpy() for k, v in {**w, **copies(c, w)}.items()})
    write(folder + "/golden.safetensors", {"input_ids": samples.float().numpy(), **golden})
    for kind, values in more.items():
        write(folder + "/golden.%s.safetensors" % kind, {k: v for k, v in values.items() if "logits" not in k})
    print(case, "loss", float(golden["loss"]), "aux", float(golden.get("aux_loss", 0)), "noise of the loss", golden["noise.loss"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:] or CASES:
        make(name, sys.argv[1] + "/" + name)
