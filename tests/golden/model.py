"""Llama and Mixtral written from their published definitions, in plain PyTorch, readable rather than quick.

RMSNorm, rotary positions in the rotate-half form, grouped-query causal attention, SwiGLU; for Mixtral a softmax router whose
top_k probabilities are renormalised. The load-balancing losses are of E * sum_e f_e * P_e, where f_e is the share of the tokens
that chose expert e (so f sums to top_k) and P_e the mean router probability: by sequence and layer (`AUX["sequence"]`, their mean),
over all layers and all tokens at once (Hugging Face's), or by layer, divided by top_k and added up (Megatron's)."""
import math

import torch


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rope(x, theta):
    """x (T, heads, head_dim)."""
    T, _, D = x.shape
    inv = 1.0 / theta ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * inv[None, :]
    angle = torch.cat((angle, angle), dim=-1)[:, None, :]
    return x * angle.cos().to(x.dtype) + rotate_half(x) * angle.sin().to(x.dtype)


def attention(c, w, prefix, x):
    T = x.shape[0]
    H, K, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q = rope((x @ w[prefix + "q_proj.weight"].T).view(T, H, D), c["rope_theta"])
    k = rope((x @ w[prefix + "k_proj.weight"].T).view(T, K, D), c["rope_theta"])
    v = (x @ w[prefix + "v_proj.weight"].T).view(T, K, D)
    mask = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
    heads = []
    for h in range(H):
        g = h // (H // K)
        scores = q[:, h] @ k[:, g].T / math.sqrt(D) + mask
        heads.append(torch.softmax(scores, dim=-1) @ v[:, g])
    return torch.stack(heads, 1).reshape(T, H * D) @ w[prefix + "o_proj.weight"].T


def swiglu(x, gate, up, down):
    a = x @ gate.T
    return (a * torch.sigmoid(a) * (x @ up.T)) @ down.T


def experts(c, w, prefix, x, router):
    logits = x @ w[prefix + "gate.weight"].T
    p = torch.softmax(logits, dim=-1)
    router.append(p)
    top, chosen = torch.topk(p, c["num_experts_per_tok"], dim=-1)
    top = top / top.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(c["num_local_experts"]):
        token, slot = torch.where(chosen == e)
        if len(token):
            n = prefix + "experts.%d." % e
            out = swiglu(x[token], w[n + "w1.weight"], w[n + "w3.weight"], w[n + "w2.weight"])
            y = y.index_add(0, token, out * top[token, slot][:, None])
    return y


def forward(c, w, ids):
    """Logits of one sequence, and the router probabilities of its layers."""
    x = w["model.embed_tokens.weight"][ids]
    eps, router = c["rms_norm_eps"], []
    for i in range(c["num_hidden_layers"]):
        n = "model.layers.%d." % i
        x = x + attention(c, w, n + "self_attn.", rms_norm(x, w[n + "input_layernorm.weight"], eps))
        h = rms_norm(x, w[n + "post_attention_layernorm.weight"], eps)
        if c["model_type"] == "mixtral":
            x = x + experts(c, w, n + "block_sparse_moe.", h, router)
        else:
            m = n + "mlp."
            x = x + swiglu(h, w[m + "gate_proj.weight"], w[m + "up_proj.weight"], w[m + "down_proj.weight"])
    x = rms_norm(x, w["model.norm.weight"], eps)
    head = w["model.embed_tokens.weight"] if c.get("tie_word_embeddings") else w["lm_head.weight"]
    return x @ head.T, router


def balance(c, p):
    """E * sum_e f_e * P_e of the tokens P (T, experts)."""
    E, k = c["num_local_experts"], c["num_experts_per_tok"]
    chosen = torch.topk(p, k, dim=-1).indices
    f = torch.nn.functional.one_hot(chosen, E).to(p.dtype).sum(1).mean(0)
    return E * (f * p.mean(0)).sum()


def hf_aux(c, samples):
    """The published load_balancing_loss_func over the concatenated router probabilities of all layers and tokens."""
    p = torch.cat([p for router in samples for p in router], 0)
    E, k = c["num_local_experts"], c["num_experts_per_tok"]
    mask = torch.nn.functional.one_hot(torch.topk(p, k, dim=-1).indices, E).to(p.dtype)
    return (mask.mean(0) * p.mean(0)[None, :]).sum() * E


def sequence_aux(c, samples):
    return sum(balance(c, p) for router in samples for p in router) / sum(len(router) for router in samples)


def megatron_aux(c, samples):
    return sum(balance(c, torch.cat(layer, 0)) for layer in zip(*samples)) / c["num_experts_per_tok"]


AUX = {"sequence": sequence_aux, "huggingface": hf_aux, "megatron": megatron_aux}


def losses(c, w, samples):
    """Mean cross-entropy over all tokens, logits of each sequence, and the router probabilities of each sequence's layers."""
    ce, all_logits, routers = 0.0, [], []
    for s in samples:
        logits, router = forward(c, w, s[:-1])
        all_logits.append(logits)
        ce = ce + torch.nn.functional.cross_entropy(logits, s[1:])
        routers.append(router)
    return ce / len(samples), torch.stack(all_logits), routers
