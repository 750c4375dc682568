"""Llama, Qwen 2 and 3, both with experts, Mixtral, OLMoE, OLMo 2 and 3, DeepSeek-V2 and V3, Gemma 2 and 3, Nemotron, GPT-OSS, GPT-2 and GPT-NeoX written from their published definitions, in plain PyTorch, readable rather than quick.

RMSNorm, rotary positions in the rotate-half form, grouped-query causal attention, SwiGLU; for Mixtral a softmax router whose
top_k probabilities are renormalized. The load-balancing losses are of E * sum_e f_e * P_e, where f_e is the share of the tokens
that chose expert e (so f sums to top_k) and P_e the mean router probability: by sequence and layer (`AUX["sequence"]`, their mean),
over all layers and all tokens at once (Hugging Face's), or by layer, divided by top_k and added up (Megatron's)."""
import math

import torch


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def yarn_amplitude(s):
    def term(mscale):
        return 1.0 if s["factor"] <= 1 else 0.1 * mscale * math.log(s["factor"]) + 1.0
    if s.get("mscale") and s.get("mscale_all_dim"):
        return term(s["mscale"]) / term(s["mscale_all_dim"])
    return term(1.0)


def scaled(inv, theta, s):
    """Frequencies of a rope_scaling as published, and the factor of cosine and sine."""
    D = 2 * len(inv)
    if not s:
        return inv, 1.0
    if s["rope_type"] == "linear":
        return inv / s["factor"], 1.0
    old = s["original_max_position_embeddings"]
    if s["rope_type"] == "llama3":
        low, high, out = s["low_freq_factor"], s["high_freq_factor"], []
        for f in inv.tolist():
            length = 2 * math.pi / f
            smooth = (old / length - low) / (high - low)
            out.append(f if length < old / high else f / s["factor"] if length > old / low
                       else (1 - smooth) * f / s["factor"] + smooth * f)
        return torch.tensor(out, dtype=torch.float64), 1.0
    first, last = (D * math.log(old / (s.get(beta, standard) * 2 * math.pi)) / (2 * math.log(theta))
                   for beta, standard in (("beta_fast", 32), ("beta_slow", 1)))
    if s.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, D - 1)
    slow = ((torch.arange(D // 2, dtype=torch.float64) - first) / (last - first or 0.001)).clamp(0, 1)
    return inv / s["factor"] * slow + inv * (1 - slow), yarn_amplitude(s)


def documents(c, ids):
    """Where the tokens of a sample of several documents are, each ended by an end of document that belongs to it: positions, a mask
    (T, T) of what queries do not see, and the tokens whose successor counts. By c["documents"], as Megatron-LM's --reset-position-ids,
    --reset-attention-mask and --eod-mask-loss; without it one document."""
    how, T = c.get("documents", {}), len(ids)
    positions, apart, counts, begin = list(range(T)), torch.zeros(T, T, dtype=torch.bool), [True] * T, 0
    for t in range(T):
        if how.get("reset_position_ids"):
            positions[t] = t - begin
        if how.get("reset_attention_mask"):
            apart[t, :begin] = True
        if how and int(ids[t]) == how["eod"]:
            begin = t + 1
            counts[t] = not how.get("eod_mask_loss")
    return torch.tensor(positions), apart, torch.tensor(counts)


def rope(x, theta, positions, scaling=None):
    """x (T, heads, head_dim)."""
    D = x.shape[-1]
    inv, amplitude = scaled(1.0 / theta ** (torch.arange(0, D, 2, dtype=torch.float64) / D), theta, scaling)
    angle = positions.to(torch.float64)[:, None] * inv[None, :]
    angle = torch.cat((angle, angle), dim=-1)[:, None, :]
    return x * (amplitude * angle.cos()).to(x.dtype) + rotate_half(x) * (amplitude * angle.sin()).to(x.dtype)


def rope_pairs(x, theta, positions, scaling):
    """x (T, heads, D), whose neighbors turn together, as DeepSeek has it."""
    D = x.shape[-1]
    inv, amplitude = scaled(1.0 / theta ** (torch.arange(0, D, 2, dtype=torch.float64) / D), theta, scaling)
    angle = (positions.to(torch.float64)[:, None] * inv[None, :])[:, None, :]
    cos, sin = (amplitude * angle.cos()).to(x.dtype), (amplitude * angle.sin()).to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def latent_attention(c, w, prefix, x, positions, apart):
    """DeepSeek-V2's, section 2.1: queries by way of a latent or not, keys and values of one, and a rotated part of keys that all
    heads share."""
    T, H, eps, s = x.shape[0], c["num_attention_heads"], c["rms_norm_eps"], c.get("rope_scaling")
    nope, turned, V, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]

    def product(y, name):
        return y @ w[prefix + name + ".weight"].T + w.get(prefix + name + ".bias", 0)
    if c.get("q_lora_rank"):
        q = product(rms_norm(product(x, "q_a_proj"), w[prefix + "q_a_layernorm.weight"], eps), "q_b_proj")
    else:
        q = product(x, "q_proj")
    q = q.view(T, H, nope + turned)
    latent = product(x, "kv_a_proj_with_mqa")
    kv = product(rms_norm(latent[:, :rank], w[prefix + "kv_a_layernorm.weight"], eps), "kv_b_proj").view(T, H, nope + V)
    shared = rope_pairs(latent[:, None, rank:], c["rope_theta"], positions, s).expand(T, H, turned)
    q = torch.cat((q[..., :nope], rope_pairs(q[..., nope:], c["rope_theta"], positions, s)), dim=-1)
    k = torch.cat((kv[..., :nope], shared), dim=-1)
    scale = 1 / math.sqrt(nope + turned)
    if s and s.get("mscale_all_dim"):
        scale *= (0.1 * s["mscale_all_dim"] * math.log(s["factor"]) + 1) ** 2
    mask = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1).masked_fill(apart, float("-inf"))
    heads = [torch.softmax(scale * q[:, h] @ k[:, h].T + mask, dim=-1) @ kv[:, h, nope:] for h in range(H)]
    return product(torch.stack(heads, 1).reshape(T, H * V), "o_proj")


def window_of(c, layer):
    """Tokens that a query of the layer sees, itself included; None: all before it."""
    if c["model_type"].startswith("qwen") and not c.get("use_sliding_window"):
        return None
    if "layer_types" in c and c["layer_types"][layer] == "full_attention":
        return None
    return c.get("sliding_window")


def turns(c, layer):
    """Has the layer positions? SmolLM3 names those that have; of EXAONE 4's and Cohere 2's, those with a window, or all."""
    if c["model_type"] == "smollm3":
        return c["no_rope_layers"][layer] == 1
    return c["model_type"] not in ("exaone4", "cohere2") or not c["sliding_window"] or window_of(c, layer) is not None


def attention(c, w, prefix, x, layer, positions, apart):
    T, window = x.shape[0], window_of(c, layer)
    H, K, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q, k, v = (x @ w[prefix + n + "_proj.weight"].T + w.get(prefix + n + "_proj.bias", 0) for n in "qkv")
    if c["model_type"].startswith("olmo"):
        q, k = (rms_norm(y, w[prefix + n], c["rms_norm_eps"]) for y, n in ((q, "q_norm.weight"), (k, "k_norm.weight")))
    q, k, v = q.view(T, H, D), k.view(T, K, D), v.view(T, K, D)
    if c["model_type"] in ("qwen3", "qwen3_moe", "exaone4"):
        q, k = (rms_norm(y, w[prefix + n], c["rms_norm_eps"]) for y, n in ((q, "q_norm.weight"), (k, "k_norm.weight")))
    # OLMo 3 scales positions of layers without a window alone.
    scaling = None if c["model_type"] == "olmo3" and window else c.get("rope_scaling")
    if turns(c, layer):
        turn = rope_pairs if c["model_type"].startswith("cohere") else rope
        q, k = (turn(y, c["rope_theta"], positions, scaling) for y in (q, k))
    mask = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1).masked_fill(apart, float("-inf"))
    if window:
        far = torch.arange(T)[:, None] - torch.arange(T)[None, :] >= window
        mask = mask.masked_fill(far, float("-inf"))
    heads = []
    for h in range(H):
        g = h // (H // K)
        scores = c.get("attention_multiplier", 1 / math.sqrt(D)) * q[:, h] @ k[:, g].T + mask
        if prefix + "sinks" in w:  # of one more key, whose value is 0
            scores = torch.cat((scores, w[prefix + "sinks"][h].expand(T, 1)), dim=-1)
        heads.append(torch.softmax(scores, dim=-1)[:, :T] @ v[:, g])
    return torch.stack(heads, 1).reshape(T, H * D) @ w[prefix + "o_proj.weight"].T + w.get(prefix + "o_proj.bias", 0)


def oss_expert(c, w, prefix, x, e):
    """The clamped SwiGLU of expert e: columns of gate and up alternate."""
    both = x @ w[prefix + "gate_up_proj"][e] + w[prefix + "gate_up_proj_bias"][e]
    gate, up = both[:, ::2].clamp(max=c["swiglu_limit"]), both[:, 1::2].clamp(-c["swiglu_limit"], c["swiglu_limit"])
    return ((up + 1) * gate * torch.sigmoid(1.702 * gate)) @ w[prefix + "down_proj"][e] + w[prefix + "down_proj_bias"][e]


def swiglu(x, gate, up, down):
    a = x @ gate.T
    return (a * torch.sigmoid(a) * (x @ up.T)) @ down.T


def experts_of(c):
    return c.get("num_local_experts", c.get("num_experts", c.get("n_routed_experts", 0)))


def has_experts(c, layer):
    """Every `decoder_sparse_step`-th layer, or all but the first."""
    return experts_of(c) > 0 and (layer + 1) % c.get("decoder_sparse_step", 1) == 0 and layer >= c.get("first_k_dense_replace", 0)


def is_deepseek(c):
    return c["model_type"].startswith("deepseek")


def deepseek_choice(c, w, prefix, logits):
    """Experts of each token, their weights, and each expert's share of the scores, with the choice as an attribute."""
    k = c["num_experts_per_tok"]
    v3 = c["model_type"] == "deepseek_v3"
    scores = torch.sigmoid(logits) if v3 else torch.softmax(logits, dim=-1)
    free = (scores + w[prefix + "gate.e_score_correction_bias"] if v3 else scores).detach()
    if c["n_group"] > 1:
        groups = free.view(len(free), c["n_group"], -1)
        best = torch.topk(groups.topk(2 if v3 else 1, dim=-1).values.sum(-1), c["topk_group"], dim=-1).indices
        free = torch.full_like(groups, float("-inf")).scatter(1, best[..., None].expand(-1, -1, groups.shape[-1]),
                                                              groups.gather(1, best[..., None].expand(-1, -1, groups.shape[-1]))).flatten(1)
    chosen = torch.topk(free, k, dim=-1).indices
    top = scores.gather(1, chosen)
    if c["norm_topk_prob"]:
        top = top / (top.sum(-1, keepdim=True) + 1e-20)
    share = scores / scores.sum(-1, keepdim=True)
    share.chosen = chosen
    return chosen, top * c["routed_scaling_factor"], share


def shared_expert(w, prefix, x):
    """Weighed by a sigmoid of its own."""
    weight = torch.sigmoid(x @ w[prefix + "shared_expert_gate.weight"].T)
    return weight * swiglu(x, *(w[prefix + "shared_expert.%s_proj.weight" % n] for n in ("gate", "up", "down")))


def granite_expert(w, prefix, x, e):
    """The SwiGLU of expert e: rows of gate, then of up."""
    gate, up = w[prefix + "input_linear.weight"][e].chunk(2)
    return swiglu(x, gate, up, w[prefix + "output_linear.weight"][e])


def experts(c, w, prefix, x, router):
    oss, granite = c["model_type"] == "gpt_oss", c["model_type"] == "granitemoe"
    logits = x @ w[prefix + "router.weight"].T + w[prefix + "router.bias"] if oss \
        else x @ w[prefix + ("router.layer.weight" if granite else "gate.weight")].T
    if is_deepseek(c):
        chosen, top, p = deepseek_choice(c, w, prefix, logits)
    else:
        p = torch.softmax(logits, dim=-1)
        top, chosen = torch.topk(p, c["num_experts_per_tok"], dim=-1)
        if c.get("norm_topk_prob", True):
            top = top / top.sum(-1, keepdim=True)
    p.z = torch.logsumexp(logits, dim=-1) ** 2
    router.append(p)
    gate, up, down = ("w1", "w3", "w2") if c["model_type"] == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    y = torch.zeros_like(x)
    for e in range(experts_of(c)):
        token, slot = torch.where(chosen == e)
        if len(token):
            n = prefix + "experts.%d." % e
            out = oss_expert(c, w, prefix + "experts.", x[token], e) if oss else granite_expert(w, prefix, x[token], e) if granite else swiglu(x[token], *(w[n + name + ".weight"] for name in (gate, up, down)))
            y = y.index_add(0, token, out * top[token, slot][:, None])
    return y


def layer_norm(x, w, name, eps):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(v + eps) * w[name + ".weight"] + w[name + ".bias"]


def gelu(c, x):
    """By the error function, or "gelu_new" by tanh."""
    if c.get("activation_function", c.get("hidden_act")) == "gelu":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def causal(q, k, v, apart):
    """q, k, v (T, heads, head_dim) to (T, heads * head_dim)."""
    T, H, D = q.shape
    mask = torch.full((T, T), float("-inf"), dtype=q.dtype).triu(1).masked_fill(apart, float("-inf"))
    heads = [torch.softmax(q[:, h] @ k[:, h].T / math.sqrt(D) + mask, dim=-1) @ v[:, h] for h in range(H)]
    return torch.stack(heads, 1).reshape(T, H * D)


def forward_gpt2(c, w, ids):
    """Matrices are (in, out); c_attn has q, k and v side by side."""
    T, E, eps = len(ids), c["n_embd"], c["layer_norm_epsilon"]
    positions, apart, _ = documents(c, ids)
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][positions]
    for i in range(c["n_layer"]):
        n = "transformer.h.%d." % i
        h = layer_norm(x, w, n + "ln_1", eps) @ w[n + "attn.c_attn.weight"] + w[n + "attn.c_attn.bias"]
        q, k, v = (part.view(T, c["n_head"], E // c["n_head"]) for part in h.split(E, dim=-1))
        x = x + causal(q, k, v, apart) @ w[n + "attn.c_proj.weight"] + w[n + "attn.c_proj.bias"]
        h = gelu(c, layer_norm(x, w, n + "ln_2", eps) @ w[n + "mlp.c_fc.weight"] + w[n + "mlp.c_fc.bias"])
        x = x + h @ w[n + "mlp.c_proj.weight"] + w[n + "mlp.c_proj.bias"]
    x = layer_norm(x, w, "transformer.ln_f", eps)
    return x @ (w["transformer.wte.weight"] if c["tie_word_embeddings"] else w["lm_head.weight"]).T, []


def partial_rope(x, theta, share, positions, scaling):
    turned = int(x.shape[-1] * share)
    return torch.cat((rope(x[..., :turned], theta, positions, scaling), x[..., turned:]), dim=-1)


def forward_neox(c, w, ids):
    """query_key_value has the rows of q, k and v head by head."""
    T, E, H, eps = len(ids), c["hidden_size"], c["num_attention_heads"], c["layer_norm_eps"]
    positions, apart, _ = documents(c, ids)
    x = w["gpt_neox.embed_in.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        n = "gpt_neox.layers.%d." % i
        a, m = n + "attention.", n + "mlp."
        h = layer_norm(x, w, n + "input_layernorm", eps) @ w[a + "query_key_value.weight"].T + w[a + "query_key_value.bias"]
        q, k, v = h.view(T, H, 3, E // H).unbind(2)
        q, k = (partial_rope(y, c["rotary_emb_base"], c["rotary_pct"], positions, c.get("rope_scaling")) for y in (q, k))
        attended = causal(q, k, v, apart) @ w[a + "dense.weight"].T + w[a + "dense.bias"]
        before = x if c["use_parallel_residual"] else x + attended
        h = layer_norm(before, w, n + "post_attention_layernorm", eps)
        h = gelu(c, h @ w[m + "dense_h_to_4h.weight"].T + w[m + "dense_h_to_4h.bias"])
        x = x + attended + h @ w[m + "dense_4h_to_h.weight"].T + w[m + "dense_4h_to_h.bias"]
    x = layer_norm(x, w, "gpt_neox.final_layer_norm", eps)
    return x @ (w["gpt_neox.embed_in.weight"] if c["tie_word_embeddings"] else w["embed_out.weight"]).T, []


def gemma_norm(x, w, name, eps):
    """The scale is 1 + the weight."""
    return rms_norm(x, 1 + w[name + ".weight"], eps)


def softcap(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def gemma_attention(c, w, prefix, x, layer, positions, apart):
    """Layers with a window rotate by a base of their own in Gemma 3, without scaling."""
    T, H, K, D, eps = x.shape[0], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"]
    local = c["layer_types"][layer] == "sliding_attention"
    q, k, v = (x @ w[prefix + n + "_proj.weight"].T + w.get(prefix + n + "_proj.bias", 0) for n in "qkv")
    q, k, v = q.view(T, H, D), k.view(T, K, D), v.view(T, K, D)
    theta, scaling = c["rope_theta"], c.get("rope_scaling")
    if c["model_type"] == "gemma3_text":
        q, k = gemma_norm(q, w, prefix + "q_norm", eps), gemma_norm(k, w, prefix + "k_norm", eps)
        if local:
            theta, scaling = c["rope_local_base_freq"], None
    q, k = rope(q, theta, positions, scaling), rope(k, theta, positions, scaling)
    mask = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1).masked_fill(apart, float("-inf"))
    if local:
        far = torch.arange(T)[:, None] - torch.arange(T)[None, :] >= c["sliding_window"]
        mask = mask.masked_fill(far, float("-inf"))
    heads = []
    for h in range(H):
        g = h // (H // K)
        scores = softcap(q[:, h] @ k[:, g].T / math.sqrt(c["query_pre_attn_scalar"]), c.get("attn_logit_softcapping"))
        heads.append(torch.softmax(scores + mask, dim=-1) @ v[:, g])
    return torch.stack(heads, 1).reshape(T, H * D) @ w[prefix + "o_proj.weight"].T + w.get(prefix + "o_proj.bias", 0)


def forward_gemma(c, w, ids):
    """Four norms a layer, embeddings times sqrt(hidden), GELU by tanh as the gate, capped logits."""
    eps = c["rms_norm_eps"]
    positions, apart, _ = documents(c, ids)
    x = w["model.embed_tokens.weight"][ids] * math.sqrt(c["hidden_size"])
    for i in range(c["num_hidden_layers"]):
        n = "model.layers.%d." % i
        h = gemma_attention(c, w, n + "self_attn.", gemma_norm(x, w, n + "input_layernorm", eps), i, positions, apart)
        x = x + gemma_norm(h, w, n + "post_attention_layernorm", eps)
        h = gemma_norm(x, w, n + "pre_feedforward_layernorm", eps)
        h = gelu(c, h @ w[n + "mlp.gate_proj.weight"].T) * (h @ w[n + "mlp.up_proj.weight"].T)
        x = x + gemma_norm(h @ w[n + "mlp.down_proj.weight"].T, w, n + "post_feedforward_layernorm", eps)
    head = w["model.embed_tokens.weight"] if c.get("tie_word_embeddings") else w["lm_head.weight"]
    return softcap(gemma_norm(x, w, "model.norm", eps) @ head.T, c.get("final_logit_softcapping")), []


def layer_norm_1p(x, w, name, eps):
    """The scale is 1 + the weight."""
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(v + eps) * (1 + w[name + ".weight"]) + w[name + ".bias"]


def forward_nemotron(c, w, ids):
    """A part of each head rotates; the MLP is a squared ReLU without a gate."""
    T, H, K, D, eps = len(ids), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["norm_eps"]
    positions, apart, _ = documents(c, ids)
    x = w["model.embed_tokens.weight"][ids]

    def product(y, name):
        return y @ w[name + ".weight"].T + w.get(name + ".bias", 0)
    for i in range(c["num_hidden_layers"]):
        n = "model.layers.%d." % i
        a, m = n + "self_attn.", n + "mlp."
        h = layer_norm_1p(x, w, n + "input_layernorm", eps)
        q, k, v = (product(h, a + part + "_proj").view(T, -1, D) for part in "qkv")
        q, k = (partial_rope(y, c["rope_theta"], c["partial_rotary_factor"], positions, None) for y in (q, k))
        k, v = (y.repeat_interleave(H // K, dim=1) for y in (k, v))
        x = x + product(causal(q, k, v, apart), a + "o_proj")
        h = layer_norm_1p(x, w, n + "post_attention_layernorm", eps)
        x = x + product(torch.relu(product(h, m + "up_proj")) ** 2, m + "down_proj")
    return layer_norm_1p(x, w, "model.norm", eps) @ head(c, w).T, []


def forward_olmo(c, w, ids):
    """Norms of outputs alone: attention and MLP read the rows as they are."""
    eps = c["rms_norm_eps"]
    positions, apart, _ = documents(c, ids)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        n = "model.layers.%d." % i
        h = attention(c, w, n + "self_attn.", x, i, positions, apart)
        x = x + rms_norm(h, w[n + "post_attention_layernorm.weight"], eps)
        h = swiglu(x, *(w[n + "mlp.%s_proj.weight" % part] for part in ("gate", "up", "down")))
        x = x + rms_norm(h, w[n + "post_feedforward_layernorm.weight"], eps)
    return rms_norm(x, w["model.norm.weight"], eps) @ head(c, w).T, []


def center_norm(x, weight, eps):
    """LayerNorm without a bias."""
    m = x.mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(((x - m) ** 2).mean(-1, keepdim=True) + eps) * weight


def forward_cohere(c, w, ids):
    """Attention and MLP read one norm of the layer's input; neighbors of a head turn together."""
    eps = c["layer_norm_eps"]
    positions, apart, _ = documents(c, ids)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        n = "model.layers.%d." % i
        h = center_norm(x, w[n + "input_layernorm.weight"], eps)
        x = x + attention(c, w, n + "self_attn.", h, i, positions, apart) + mlp(w, n + "mlp.", h)
    return center_norm(x, w["model.norm.weight"], eps) @ head(c, w).T * c["logit_scale"], []


OTHERS = {"cohere": forward_cohere, "cohere2": forward_cohere, "olmo2": forward_olmo, "olmo3": forward_olmo, "exaone4": forward_olmo, "gpt2": forward_gpt2, "gpt_neox": forward_neox, "gemma2": forward_gemma, "gemma3_text": forward_gemma, "nemotron": forward_nemotron}


def mlp(w, prefix, x):
    a, up = (x @ w[prefix + name + ".weight"].T + w.get(prefix + name + ".bias", 0) for name in ("gate_proj", "up_proj"))
    return (a * torch.sigmoid(a) * up) @ w[prefix + "down_proj.weight"].T + w.get(prefix + "down_proj.bias", 0)


def layer(c, w, i, x, router, positions, apart):
    """Output of layer i; what its router says is added to the list."""
    n, eps, times = "model.layers.%d." % i, c["rms_norm_eps"], c.get("residual_multiplier", 1)
    h = rms_norm(x, w[n + "input_layernorm.weight"], eps)
    x = x + times * (latent_attention(c, w, n + "self_attn.", h, positions, apart) if is_deepseek(c)
                     else attention(c, w, n + "self_attn.", h, i, positions, apart))
    h = rms_norm(x, w[n + "post_attention_layernorm.weight"], eps)
    if has_experts(c, i):
        m = n + ("block_sparse_moe." if c["model_type"] in ("mixtral", "granitemoe") else "mlp.")
        more = shared_expert(w, m, h) if c["model_type"] == "qwen2_moe" else 0
        if is_deepseek(c):
            more = swiglu(h, *(w[m + "shared_experts.%s_proj.weight" % part] for part in ("gate", "up", "down")))
        return x + times * (experts(c, w, m, h, router) + more)
    return x + times * mlp(w, n + "mlp.", h)


def trunk(c, w, ids):
    """Hidden rows of one sequence after the final norm, and the router probabilities of its layers."""
    positions, apart, _ = documents(c, ids)
    x, router = w["model.embed_tokens.weight"][ids] * c.get("embedding_multiplier", 1), []
    for i in range(c["num_hidden_layers"]):
        x = layer(c, w, i, x, router, positions, apart)
    return rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"]), router


def head(c, w):
    return w["model.embed_tokens.weight"] if c.get("tie_word_embeddings") else w["lm_head.weight"]


def forward(c, w, ids):
    """Logits of one sequence, and the router probabilities of its layers."""
    if c["model_type"] in OTHERS:
        return OTHERS[c["model_type"]](c, w, ids)
    x, router = trunk(c, w, ids)
    return x @ head(c, w).T / c.get("logits_scaling", 1), router


def further(c, w, tokens, x, router):
    """DeepSeek-V3's multi-token prediction over the hidden rows X of a sample's tokens but the last: for each depth k the
    cross-entropies of the token k + 1 further on, where there is one. As in Megatron-LM, ids are rolled and filled with 0."""
    eps, ids, out = c["rms_norm_eps"], tokens[:-1], []
    positions, apart, _ = documents(c, ids)
    for k in range(1, c.get("num_nextn_predict_layers", 0) + 1):
        n = "model.layers.%d." % (c["num_hidden_layers"] + k - 1)
        ahead = torch.cat([ids[k:], ids.new_zeros(k)])
        both = torch.cat([rms_norm(w["model.embed_tokens.weight"][ahead], w[n + "enorm.weight"], eps),
                          rms_norm(x, w[n + "hnorm.weight"], eps)], -1)
        x = layer(c, w, c["num_hidden_layers"] + k - 1, both @ w[n + "eh_proj.weight"].T, router, positions, apart)
        x = rms_norm(x, w[n + "shared_head.norm.weight"], eps)
        logits = x @ head(c, w).T
        out.append(torch.nn.functional.cross_entropy(logits[:-k], tokens[k + 1:], reduction="none"))
    return out


def balance(c, p):
    """E * sum_e f_e * P_e of the tokens P (T, experts)."""
    E, k = experts_of(c), c["num_experts_per_tok"]
    chosen = getattr(p, "chosen", None)
    if chosen is None:
        chosen = torch.topk(p, k, dim=-1).indices
    f = torch.nn.functional.one_hot(chosen, E).to(p.dtype).sum(1).mean(0)
    return E * (f * p.mean(0)).sum()


def hf_aux(c, samples):
    """The published load_balancing_loss_func over the concatenated router probabilities of all layers and tokens."""
    p = torch.cat([p for router in samples for p in router], 0)
    E, k = experts_of(c), c["num_experts_per_tok"]
    mask = torch.nn.functional.one_hot(torch.topk(p, k, dim=-1).indices, E).to(p.dtype)
    return (mask.mean(0) * p.mean(0)[None, :]).sum() * E


def sequence_aux(c, samples):
    return sum(balance(c, p) for router in samples for p in router) / sum(len(router) for router in samples)


def megatron_aux(c, samples):
    return sum(balance(c, torch.cat(layer, 0)) for layer in zip(*samples)) / c["num_experts_per_tok"]


def router_z(samples):
    """ST-MoE's z-loss of each layer over all tokens, as z_loss_func of Megatron-LM has it, the layers added up."""
    return sum(torch.cat([p.z for p in layer], 0).mean() for layer in zip(*samples))


def output_z(c, logits, samples):
    """PaLM's z-loss: the mean of (log Z)^2 over the tokens that count."""
    counts = torch.stack([torch.as_tensor(documents(c, s[:-1])[2]) for s in samples])
    return (torch.logsumexp(logits, dim=-1) ** 2)[counts].mean()


AUX = {"sequence": sequence_aux, "huggingface": hf_aux, "megatron": megatron_aux}


def losses(c, w, samples):
    """Mean cross-entropy over all tokens that count, logits of each sequence, the router probabilities of each sequence's
    layers, and the mean over depths of the loss of multi-token prediction (0: none)."""
    ce, all_logits, routers, tokens, ahead = 0.0, [], [], 0, []
    for s in samples:
        logits, router = forward(c, w, s[:-1])
        if c.get("num_nextn_predict_layers"):
            x, router = trunk(c, w, s[:-1])
            ahead.append(further(c, w, s, x, router))
        all_logits.append(logits)
        counts = documents(c, s[:-1])[2]
        ce = ce + torch.nn.functional.cross_entropy(logits[counts], s[1:][counts], reduction="sum")
        tokens += int(counts.sum())
        routers.append(router)
    depths = [torch.cat(depth).mean() for depth in zip(*ahead)]
    return ce / tokens, torch.stack(all_logits), routers, sum(depths) / len(depths) if depths else 0.0
