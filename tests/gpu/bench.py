"""Steps of tests/gpu/run that say how fast it is, each next to its reference in the same run."""
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from lab import Failed, objects

TORCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_side.py")

# hidden, heads, kv_heads, head width, ffn, vocabulary; the products of a layer's forward pass, each with its gradients.
LLAMAS = {"1B": (2048, 32, 8, 64, 8192, 128256), "8B": (4096, 32, 8, 128, 14336, 128256),
          "70B": (8192, 64, 8, 128, 28672, 128256)}
TOKENS = 8192


def gemms(tokens):
    for name, (hidden, heads, kv, width, ffn, _) in LLAMAS.items():
        products = {"qkv": ((heads + 2 * kv) * width, hidden), "out": (hidden, heads * width), "gate_up": (2 * ffn, hidden),
                    "down": (hidden, ffn)}
        for product, (out, inner) in products.items():
            yield f"{name} {product} forward", f"gemm {tokens} {out} {inner} 0 1 0"
            yield f"{name} {product} dgrad", f"gemm {tokens} {inner} {out} 0 0 0"
            yield f"{name} {product} wgrad", f"gemm {out} {inner} {tokens} 1 0 1"


def attentions(small):
    for width in (64, 128):
        for seq in ([128] if small else [2048, 4096, 8192, 16384, 32768]):
            heads = 2 if small else 2048 // width
            yield f"head {width}, {seq} tokens", f"{1 if small else 32768 // seq} {seq} {heads} {max(1, heads // 4)} {width}"


def by_memory(scale):
    rows = 8192 // scale
    return {"rmsnorm_fwd": f"{rows} 4096", "rmsnorm_bwd": f"{rows} 4096", "swiglu_fwd": f"{rows} 14336",
            "swiglu_bwd": f"{rows} 14336", "rope": f"{rows} 40 128 {min(rows, 4096)}", "xent": f"{rows} {128256 // scale}",
            "embed_fwd": f"{rows} 4096 {128256 // scale}", "permute": f"{rows} 2 4096", "unpermute": f"{rows} 2 4096",
            "add": f"{rows * 16384}", "adamw": f"{rows * 16384}"}


class Side:
    """A program that answers a case a line."""

    def __init__(self, lab, command):
        self.lab, self.command, self.child = lab, command, None

    def start(self):
        self.child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.lab.log_file,
                                      env=self.lab.environment(), cwd=self.lab.work, start_new_session=True)
        self.timer = threading.Timer(self.lab.left(), self.child.kill)
        self.timer.start()

    def ask(self, case):
        """Its answer. An error of the device ends a program: the next case gets a new one."""
        if self.lab.left() <= 0:
            return {"error": "time is up"}
        if not self.child:
            self.start()
        try:
            self.child.stdin.write((case + "\n").encode())
            self.child.stdin.flush()
            answer = self.child.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if answer:
            return json.loads(answer)
        self.close()
        return {"error": "the program ended, see log.txt"}

    def close(self):
        if not self.child:
            return
        self.timer.cancel()
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        self.child = None


def ours(lab):
    name = "tests/gpu/bench_device" if lab.mode == "cuda" else "tests/gpu/bench_device-host"
    return Side(lab, [lab.program(name), f"--repeats={15 if lab.mode == 'cuda' else 1}"])


def has_torch(lab):
    return lab.mode == "cuda" and lab.has_torch()


def line(lab, bench, case, mine, reference, **more):
    """One line of the report; returns reference time over ours."""
    fields = {"bench": bench, "case": case, **more}
    if "error" in mine:
        lab.report(**fields, error=mine["error"])
        return None
    fields["seconds"] = mine["seconds"]
    if mine["flops"]:
        fields["tflops"] = mine["flops"] / mine["seconds"] / 1e12
    fields["gbs"] = mine["bytes"] / mine["seconds"] / 1e9
    ratio = reference["seconds"] / mine["seconds"] if reference and "seconds" in reference else None
    if reference:
        fields["reference"] = reference.get("backend", "PyTorch")
        fields["reference_seconds"], fields["reference_error"] = reference.get("seconds"), reference.get("error")
    lab.report(**fields, ratio=ratio)
    return ratio


def bar(lab, bench, ratios, least):
    ratios = [ratio for ratio in ratios if ratio is not None]
    median = statistics.median(ratios) if ratios else None
    lab.report(bench=bench, cases=len(ratios), median=median, least=least, met=median >= least if ratios else None,
               **({} if ratios else {"note": "not run: no reference"}))


def kernels(lab):
    """Products, attention, and what memory bounds."""
    small = lab.mode == "shim"
    mine, theirs = ours(lab), Side(lab, [sys.executable, TORCH, "cases"]) if has_torch(lab) else None

    def compare(bench, case, text):
        return line(lab, bench, case, mine.ask(text), theirs.ask(text) if theirs else None)

    try:
        copy = mine.ask(f"copy {1 << (16 if small else 31)}")
        if "error" in copy:
            raise Failed("bench_device: " + copy["error"])
        rate = copy["bytes"] / copy["seconds"]
        lab.report(bench="copy", gbs=rate / 1e9)
        shares = []
        for name, sizes in by_memory(1024 if small else 1).items():
            answer = mine.ask(f"{name} {sizes}")
            shares.append(answer["bytes"] / answer["seconds"] / rate if "error" not in answer else None)
            line(lab, "memory", name, answer, None, share_of_copy=shares[-1])
        bar(lab, "memory", shares, 0.85)
        for direction, least in [("fwd", 0.75), ("bwd", 0.70)]:
            bar(lab, "attn_" + direction, [compare("attn_" + direction, case, f"attn_{direction} {sizes}")
                                          for case, sizes in attentions(small)], least)
        products = list(gemms(TOKENS))[: 2 if small else None]
        if small:
            products = [(case, "gemm 32 32 32 0 1 0") for case, _ in products]
        bar(lab, "gemm", [compare("gemm", case, text) for case, text in products], 0.97)
        line(lab, "gemm_grouped", "8 experts", mine.ask("gemm_grouped 2 32 32 32" if small else
                                                        "gemm_grouped 8 16384 14336 4096"), None)
    finally:
        mine.close()
        if theirs:
            theirs.close()


# ---- training -------------------------------------------------------------------------------------------------------

STATE_BYTES = 18  # of a parameter: weight 2, gradient, master weight and two moments 4 each


def layer_params(model):
    hidden, width = model["hidden"], model.get("head_dim", model["hidden"] // model["heads"])
    ffn = 3 * hidden * model["ffn"]
    if "moe" in model:
        ffn = model["moe"]["experts"] * (3 * hidden * model["moe"]["expert_ffn"] + hidden)
    return hidden * width * (2 * model["heads"] + 2 * model["kv_heads"]) + ffn


def layers_that_fit(model, bytes_free):
    tables = model["hidden"] * model["vocab"] * (1 if model.get("tied") else 2) * STATE_BYTES
    logits = 4096 * model["vocab"] * 6
    activations = 4096 * (34 * model["hidden"] + 8 * model["ffn"])
    return int((0.85 * bytes_free - tables - logits) // (layer_params(model) * STATE_BYTES + activations))


def flops_per_token(model, seq):
    """Forward and backward, full attention, no recomputation (Megatron's convention)."""
    width = model.get("head_dim", model["hidden"] // model["heads"])
    params = layer_params(model)
    if "moe" in model:
        moe = model["moe"]
        params -= (moe["experts"] - moe["top_k"]) * 3 * model["hidden"] * moe["expert_ffn"]
    forward = model["layers"] * (2 * params + 4 * model["heads"] * width * seq) + 2 * model["hidden"] * model["vocab"]
    return 3 * forward


class Watch(threading.Thread):
    """The most memory that the driver reports while a job runs, and its clocks and power."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples, self.over = [], False

    def run(self):
        query = "memory.used,clocks.sm,power.draw,temperature.gpu"
        while not self.over:
            try:
                out = subprocess.run(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits", "-i", "0"],
                                     capture_output=True, text=True, timeout=5).stdout
                self.samples.append([float(word) for word in out.split(",")])
            except (OSError, ValueError, subprocess.TimeoutExpired):
                pass
            time.sleep(0.2)

    def end(self):
        self.over = True
        self.join()
        columns = list(zip(*self.samples)) or [[0]] * 4
        return {"memory_before": columns[0][0] * 2**20, "memory_most": max(columns[0]) * 2**20,
                "clock_least": min(columns[1][len(columns[1]) // 2:]), "power_most": max(columns[2]),
                "temperature_most": max(columns[3])}


def trial(lab, path, seq, batch, precision, limit):
    """partune's side: (tokens/s or None, facts)."""
    events = lab.work + "/bench.events"
    if os.path.exists(events):
        os.unlink(events)
    watch = Watch() if lab.mode == "cuda" else None
    if watch:
        watch.start()
    steps = ["--warmup-steps", "2", "--min-steps", "5", "--max-steps", "10"]
    code, out = lab.call(lab.job("gpu", 1, ["--trial", "--model", path, "--seq", str(seq), "-b", str(batch), "--micro-batch", "1",
                                            "--precision", precision, "--events", events, *steps]), limit=limit)
    facts = watch.end() if watch else {}
    lines = []
    if os.path.exists(events):
        with open(events) as text:
            lines = objects(text.read())
    for event in lines:
        if event["event"] == "memory":
            facts["planned"] = event["planned"]["total"]
        if event["event"] == "summary":
            return event["tokens_per_s"], {**facts, "step_ms": event["step_ms"]["median"]}
    steps = [event["ms"] for event in lines if event["event"] == "step"]
    return None, {**facts, "steps_ms": steps, "detail": "time is up" if code is None else out.strip()[-300:]}


def theirs(lab, model, seq, batch, hugging_face, limit):
    job = lab.work + "/torch.json"
    with open(job, "w") as out:
        json.dump({"model": model, "batch": batch, "seq": seq, "steps": 8, "hugging_face": hugging_face}, out)
    code, out = lab.call([sys.executable, TORCH, "train", job], limit=limit)
    answers = objects(out)
    if code != 0 or not answers:
        return {"error": "time is up" if code is None else out.strip()[-300:]}
    return answers[-1]


PEAK = 989e12  # dense bf16 of an H100 or H200 (SXM), NVIDIA's data sheet


def train(lab):
    """Tokens/s of whole steps next to PyTorch's, and the driver's memory next to the plan."""
    free = 60 << 30
    if lab.mode == "cuda":
        from steps import nvidia_smi
        free = float(nvidia_smi(lab, "memory.free")[0]) * 2**20
    cases = [("1B", "llama-3.2-1b", False, 1.0), ("8B", "llama-8b", False, 1.0), ("Mixtral", "mixtral-8x7b", True, 1.5)]
    with_torch = has_torch(lab)
    for number, (case, preset, hugging_face, least) in enumerate(cases):
        share = lab.left() / (len(cases) - number)
        end = time.monotonic() + share
        _, model = lab.model(preset)
        layers = min(model["layers"], layers_that_fit(model, free))
        seq, batch, precision = 4096, 4, "bf16"
        changes = {"layers": layers}
        if lab.mode == "shim":
            seq, batch, precision = 32, 1, "fp32"
            changes = {"layers": 1, "hidden": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "ffn": 64, "vocab": 64}
            if "moe" in model:
                changes["moe"] = {**model["moe"], "expert_ffn": 32}
        path, model = lab.model(preset, **{"seq": seq, **changes})
        rate, facts = trial(lab, path, seq, batch, precision, share * 0.6)
        reference = {"error": "not run: no PyTorch"}
        if with_torch:
            reference = theirs(lab, model, seq, batch, hugging_face, end - time.monotonic())
        ratio = rate / reference["tokens_per_s"] if rate and "tokens_per_s" in reference else None
        lab.report(bench="train", case=case, layers=model["layers"], seq=seq, batch=batch, tokens_per_s=rate, reference=reference,
                   ratio=ratio, least=least, met=None if ratio is None else ratio >= least,
                   mfu=rate * flops_per_token(model, seq) / PEAK if rate else None, **facts)

