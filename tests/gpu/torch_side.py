"""PyTorch's side of tests/gpu/run.

    torch_side.py cases         answers lines such as bench_device's (gemm, attn_fwd, attn_bwd, copy): {"seconds": S}
    torch_side.py train FILE    trains the model of FILE ({"model", "batch", "seq", "steps", "hugging_face"}) in bf16 with
                                torch.compile, SDPA and a fused AdamW: {"tokens_per_s": R, "compiled": B}. Layers are compiled
                                one by one: they are alike, so one compilation serves all

Weights and the optimizer's state are bf16, which is less work than the fp32 state that partune keeps.
"""
import gc
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

REPEATS, BATCH_S = 15, 4e-3


def measure(call):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def once(times):
        start.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / times

    for _ in range(3):
        once(1)
    times = max(1, int(BATCH_S / once(1)) + 1)
    return statistics.median(once(times) for _ in range(REPEATS))


def half(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def gemm(m, n, k, ta, tb, wgrad):
    a, b = half(k, m).t() if ta else half(m, k), half(n, k).t() if tb else half(k, n)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    return measure(lambda: torch.mm(a, b, out=out))


def attention(batch, seq, heads, kv, d, backward):
    """The best of SDPA's backends."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = half(batch, heads, seq, d), half(batch, heads, seq, d), half(batch, heads, seq, d)
    if kv != heads:  # its own heads share keys and values without a copy
        k, v = (half(batch, kv, 1, seq, d).expand(batch, kv, heads // kv, seq, d).reshape(batch, heads, seq, d) for _ in "kv")
    best = {}
    for backend in [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]:
        try:
            with sdpa_kernel(backend):
                if not backward:
                    best[backend.name] = measure(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
                    continue
                for tensor in (q, k, v):
                    tensor.requires_grad_()
                out, grad = F.scaled_dot_product_attention(q, k, v, is_causal=True), half(batch, heads, seq, d)
                best[backend.name] = measure(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
        except RuntimeError as error:
            print(f"{backend.name}: {error}", file=sys.stderr)
    name = min(best, key=best.get)
    return best[name], name


def copy(count):
    to, source = (torch.empty(count, dtype=torch.uint8, device="cuda") for _ in "ab")
    return measure(lambda: to.copy_(source))


def cases():
    for line in sys.stdin:
        name, *sizes = line.split()
        sizes = [int(size) for size in sizes]
        answer = {}
        try:
            if name == "gemm":
                answer["seconds"] = gemm(*sizes)
            elif name in ("attn_fwd", "attn_bwd"):
                answer["seconds"], answer["backend"] = attention(*sizes, name == "attn_bwd")
            elif name == "copy":
                answer["seconds"] = copy(*sizes)
            else:
                answer["error"] = "no reference"
        except (RuntimeError, ValueError) as error:
            answer["error"] = str(error)[:200]
        print(json.dumps(answer), flush=True)
        torch.cuda.empty_cache()


# ---- training -------------------------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, heads = model["hidden"], model["heads"]
        self.heads, self.kv = heads, model.get("kv_heads", heads)
        self.d = model.get("head_dim", hidden // heads)
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.norm1, self.norm2 = (torch.nn.RMSNorm(hidden, eps=model["norm_eps"]) for _ in "ab")
        self.qkv = linear(hidden, (heads + 2 * self.kv) * self.d)
        self.out = linear(heads * self.d, hidden)
        self.gate_up, self.down = linear(hidden, 2 * model["ffn"]), linear(model["ffn"], hidden)

    def rotate(self, x, cos, sin):
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        rows = self.qkv(self.norm1(x)).view(batch, seq, -1, self.d).transpose(1, 2)
        q, k, v = rows.split((self.heads, self.kv, self.kv), 1)
        y = F.scaled_dot_product_attention(self.rotate(q, cos, sin), self.rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.kv != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(torch.nn.Module):
    def __init__(self, model, seq):
        super().__init__()
        self.embed = torch.nn.Embedding(model["vocab"], model["hidden"])
        self.layers = torch.nn.ModuleList(Layer(model) for _ in range(model["layers"]))
        self.norm = torch.nn.RMSNorm(model["hidden"], eps=model["norm_eps"])
        self.head = torch.nn.Linear(model["hidden"], model["vocab"], bias=False)
        if model.get("tied"):
            self.head.weight = self.embed.weight
        half_d = model.get("head_dim", model["hidden"] // model["heads"]) // 2
        angle = torch.outer(torch.arange(seq), model["rope_theta"] ** (-torch.arange(half_d) / half_d))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids, targets):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.loss(x, targets)

    def loss(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def hugging_face(model):
    """Mixtral of transformers, with the sizes of MODEL."""
    from transformers import MixtralConfig, MixtralForCausalLM

    moe = model["moe"]
    config = MixtralConfig(vocab_size=model["vocab"], hidden_size=model["hidden"], intermediate_size=moe["expert_ffn"],
                           num_hidden_layers=model["layers"], num_attention_heads=model["heads"],
                           num_key_value_heads=model["kv_heads"], num_local_experts=moe["experts"],
                           num_experts_per_tok=moe["top_k"], attn_implementation="sdpa", use_cache=False)
    inner = MixtralForCausalLM(config)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, ids, targets):
            return F.cross_entropy(self.inner(ids).logits.flatten(0, 1).float(), targets.flatten())

    return Loss()


def network(job, compiled):
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        net = hugging_face(job["model"]) if job["hugging_face"] else Llama(job["model"], job["seq"])
    if compiled:
        for layer in net.inner.model.layers if job["hugging_face"] else net.layers:
            layer.compile()
        if not job["hugging_face"]:
            net.loss = torch.compile(net.loss)
    return net


def steps_per_second(job, compiled):
    net = network(job, compiled)
    ids = torch.randint(job["model"]["vocab"], (job["batch"], job["seq"] + 1), device="cuda")
    seconds = []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for number in range(job["steps"] + 3):
        torch.cuda.synchronize()
        begin = time.monotonic()
        loss = net(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if number >= 3:
            seconds.append(time.monotonic() - begin)
    return 1 / statistics.median(seconds)


def train(path):
    job = json.load(open(path))
    rate, compiled = None, True
    try:
        rate = steps_per_second(job, True)
    except Exception as error:  # torch.compile raises whatever it meets
        print(f"not compiled: {error}"[:500], file=sys.stderr)
    if rate is None:  # the first network is in circles of references
        gc.collect()
        torch.cuda.empty_cache()
        rate, compiled = steps_per_second(job, False), False
    print(json.dumps({"tokens_per_s": rate * job["batch"] * job["seq"], "compiled": compiled,
                      "memory": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    cases() if sys.argv[1] == "cases" else train(sys.argv[2])
