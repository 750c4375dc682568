#!/usr/bin/env python3
"""Golden values for tests/mpi/golden.c: logits, loss and every gradient of tiny models, by PyTorch in fp64.

    python3 tests/golden/make_golden.py tests/data/golden

writes for each case a Hugging Face folder (config.json, model.safetensors) and golden.safetensors with input_ids (N, T + 1),
logits (N, T, vocab), loss, aux_loss, grad.NAME for every weight, and noise.X for each of them: how far X moves when every
weight is changed by at most one unit in its last place of fp32, the largest of 8 draws, or by computing in fp32 throughout if that
is more. A correct fp32 implementation differs by a small multiple of that; the test says which. The Mixtral of several layers and
sequences has golden.huggingface.safetensors and golden.megatron.safetensors as well: loss, aux_loss and gradients under those
load-balancing losses, all sequences in one micro-batch."""
import json
import os
import sys

import torch

from model import AUX, losses
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
    "mixtral": dict(hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=6, intermediate_size=19,
                    vocab_size=47, num_hidden_layers=3, rope_theta=1000000.0, num_local_experts=5, num_experts_per_tok=2,
                    router_aux_loss_coef=0.03, samples=3, length=21),
    # One layer, one sequence: here our auxiliary loss is Hugging Face's.
    "mixtral-one": dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=4, head_dim=6, intermediate_size=33,
                        vocab_size=29, num_hidden_layers=1, rope_theta=10000.0, num_local_experts=4,
                        num_experts_per_tok=3, router_aux_loss_coef=0.5, samples=1, length=37),
}


def config(case):
    c = {k: v for k, v in CASES[case].items() if k not in ("samples", "length")}
    moe = "num_local_experts" in c
    c.update(architectures=["MixtralForCausalLM" if moe else "LlamaForCausalLM"], model_type="mixtral" if moe else "llama",
             hidden_act="silu", rms_norm_eps=1e-5, torch_dtype="float32", max_position_embeddings=CASES[case]["length"])
    c.setdefault("tie_word_embeddings", False)
    return c


def weights(c, generator):
    """Random weights large enough that every path matters; norms are not 1."""
    H, F, V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    A, K = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    shapes = {"model.embed_tokens.weight": (V, H)}
    for i in range(c["num_hidden_layers"]):
        n = "model.layers.%d." % i
        shapes[n + "input_layernorm.weight"] = shapes[n + "post_attention_layernorm.weight"] = (H,)
        for name, rows, cols in (("q", A, H), ("k", K, H), ("v", K, H), ("o", H, A)):
            shapes[n + "self_attn.%s_proj.weight" % name] = (rows, cols)
        if c["model_type"] == "mixtral":
            shapes[n + "block_sparse_moe.gate.weight"] = (c["num_local_experts"], H)
            for e in range(c["num_local_experts"]):
                m = n + "block_sparse_moe.experts.%d." % e
                shapes[m + "w1.weight"], shapes[m + "w2.weight"], shapes[m + "w3.weight"] = (F, H), (H, F), (F, H)
        else:
            shapes[n + "mlp.gate_proj.weight"] = shapes[n + "mlp.up_proj.weight"] = (F, H)
            shapes[n + "mlp.down_proj.weight"] = (H, F)
    shapes["model.norm.weight"] = (H,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, H)
    out = {}
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=generator, dtype=torch.float32)
        out[name] = 1 + 0.2 * x if len(shape) == 1 else x * (1.0 if "embed" in name else 1.3 / shape[1] ** 0.5)
    return out


def evaluate(c, w, samples, dtype, definition):
    w = {k: v.detach().clone().to(dtype).requires_grad_() for k, v in w.items()}
    loss, logits, routers = losses(c, w, samples)
    aux = AUX[definition](c, routers) if c["model_type"] == "mixtral" else None
    total = loss if aux is None else loss + c["router_aux_loss_coef"] * aux
    total.backward()
    out = {"loss": loss, "logits": logits}
    if aux is not None:
        out["aux_loss"] = aux
        if c["num_hidden_layers"] == 1 and len(samples) == 1:
            hf = AUX["huggingface"](c, routers)
            ours = aux * c["num_experts_per_tok"] if definition == "megatron" else aux
            assert abs(float(hf) - float(ours)) < 1e-6 * abs(float(ours)), "our auxiliary loss is not Hugging Face's"
    for k, v in w.items():
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


def make(case, folder):
    c = config(case)
    g = torch.Generator().manual_seed(sum(map(ord, case)))
    w = weights(c, g)
    samples = torch.randint(c["vocab_size"], (CASES[case]["samples"], CASES[case]["length"] + 1), generator=g)
    golden = tensors(c, w, samples, g, "sequence")
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as f:
        json.dump(c, f, indent=2)
        f.write("\n")
    write(folder + "/model.safetensors", {k: v.numpy() for k, v in w.items()})
    write(folder + "/golden.safetensors", {"input_ids": samples.float().numpy(), **golden})
    for definition in ("huggingface", "megatron") if case == "mixtral" else ():
        more = tensors(c, w, samples, torch.Generator().manual_seed(1), definition)
        write(folder + "/golden.%s.safetensors" % definition, {k: v for k, v in more.items() if "logits" not in k})
    print(case, "loss", float(golden["loss"]), "aux", float(golden.get("aux_loss", 0)), "noise of the loss", golden["noise.loss"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in CASES:
        make(name, sys.argv[1] + "/" + name)
