#!/usr/bin/env python3
"""parse.py DIR KEYS: read every file that dump wrote with the parser of its format, hold the keys against KEYS, where the
keys of each target are listed as its own sources have them, and the values against the rules by which the target would
refuse to start. Prints TAP, one line a target."""
import collections, json, os, re, subprocess, sys, tomllib, types

try:
    import yaml
except ImportError:
    yaml = None
directory, keys_path = sys.argv[1], sys.argv[2]
keys = {}
for line in open(keys_path):
    if line.strip() and not line.startswith("#"):
        target, words = line.split(":", 1)
        keys.setdefault(target, set()).update(words.split())


def known(target, used):
    unknown = sorted(set(used) - keys[target])
    assert not unknown, f"not a key of {target}: {unknown}"


def flat(value, prefix=""):
    for key, v in value.items():
        if isinstance(v, dict):
            yield from flat(v, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def megatron(text):
    lines = [l for l in text.splitlines() if not l.startswith("#")]
    assert lines and all(re.fullmatch(r"--[a-z0-9-]+( [^ ]+)?", l) for l in lines), lines
    known("megatron", (l.split()[0] for l in lines))
    assert len({l.split()[0] for l in lines}) == len(lines), "an argument twice"
    return {l.split()[0]: l.split()[1] if " " in l else True for l in lines}


def bridge(text):
    lines = [l for l in text.splitlines() if not l.startswith("#")]
    known("megatron-bridge", (l.split("=", 1)[0] for l in lines))
    layout = [l.split("=", 1)[1] for l in lines if l.startswith("model.pipeline_model_parallel_layout=")]
    for l in layout:
        stages = json.loads(l)
        assert stages is None or stages[0][0] == "embedding" and stages[-1][-1] == "loss" and all(stages)
    return {k: None if v == "null" else v for k, v in (l.split("=", 1) for l in lines)}


def as_json(target):
    def check(text):
        value = json.loads(text)
        known(target, (k for k in flat(value) if not k.startswith("_partune.")))
        assert value["_partune"]["campaign_name"].startswith("it's")
        return value
    return check


def partune(text):
    value = json.loads(text)
    assert {"model", "cluster", "workload", "layout", "checkpoint", "promised", "provenance"} <= set(value)


def toml(text):
    value = tomllib.loads(text)
    known("torchtitan-toml", flat(value))
    return value


class Recorder(types.SimpleNamespace):
    def __init__(self, name, log):
        object.__setattr__(self, "_", (name, log))

    def __getattr__(self, key):
        name, log = object.__getattribute__(self, "_")
        return Recorder(f"{name}{key}.", log)

    def __setattr__(self, key, value):
        name, log = object.__getattribute__(self, "_")
        log[name + key] = value


def python(text):
    """Run the function against a configuration that records what is set."""
    modules = {}
    for name in re.findall(r"^from (\S+) import (\S+)", text, re.M):
        module = modules[name[0]] = types.ModuleType(name[0])
        setattr(module, name[1], type(name[1], (), {"Config": type("Config", (), {})}))
    for name in list(modules):
        for i in range(1, name.count(".") + 1):
            parent = ".".join(name.split(".")[:i])
            modules.setdefault(parent, types.ModuleType(parent))
    saved = {n: sys.modules.get(n) for n in modules}
    sys.modules.update(modules)
    try:
        scope = {}
        exec(compile(text, "export", "exec"), scope)
        log = {}
        scope["with_partune_layout"](Recorder("", log))
    finally:
        for n, m in saved.items():
            sys.modules.pop(n)
            if m:
                sys.modules[n] = m
    known("torchtitan", log)
    return log


def as_yaml(target):
    def check(text):
        value = yaml.safe_load(text)
        known(target, flat(value))
        return value
    return check


def shell(text):
    r = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert r.returncode == 0, r.stderr


def script(text):
    """With torchrun played by a program that prints its arguments, each must arrive as it is in the list."""
    shell(text)
    stub = os.path.join(directory, "bin")
    os.makedirs(stub, exist_ok=True)
    with open(os.path.join(stub, "torchrun"), "w") as f:
        f.write('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    os.chmod(os.path.join(stub, "torchrun"), 0o755)
    env = {"PATH": stub + ":" + os.environ["PATH"], "MEGATRON": "/m"}
    out = subprocess.run(["bash", "-c", text], text=True, capture_output=True, env=env, cwd=directory)
    assert out.returncode == 0, out.stderr
    words = out.stdout.splitlines()
    known("megatron", (w for w in words[words.index("/m/pretrain_gpt.py") + 1:] if w.startswith("--")))
    for w, value in zip(words, words[1:]):
        if w == "--moe-layer-freq":
            assert set(json.loads(value)) <= {0, 1}
        if w == "--pipeline-model-parallel-layout":
            assert re.fullmatch(r"E[t|]*L", value), value


def mpijob(text):
    config, job = yaml.safe_load_all(text)
    assert config["kind"] == "ConfigMap" and job["kind"] == "MPIJob" and job["apiVersion"] == "kubeflow.org/v2beta1"
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"]), job["metadata"]["name"]
    replicas = job["spec"]["mpiReplicaSpecs"]
    assert replicas["Launcher"]["replicas"] == 1 and replicas["Worker"]["replicas"] >= 1
    shell(replicas["Launcher"]["template"]["spec"]["containers"][0]["args"][0])


# ---- rules: V is what was read, F what the file was made from ----

def divides(a, b, what):
    assert b % a == 0, f"{what}: {a} does not divide {b}"


def megatron_world(f, tp, pp, cp, ep, etp, micro, batch):
    """Both meshes, the batch and the heads; returns the number of micro-batches."""
    world, m = f["layout"]["world"], f["model"]
    divides(tp * pp * cp, world, "tp x pp x cp")
    dp = world // (tp * pp * cp)
    divides(etp * ep * pp, world, "etp x ep x pp")
    divides(micro * dp, batch, "micro-batch x dp")
    divides(tp, m["heads"], "heads")
    assert m["kv_heads"] % tp == 0 or tp % m["kv_heads"] == 0
    assert cp == 1 or f["workload"]["seq"] % (2 * cp) == 0
    divides(ep, m["moe"]["experts"] if m.get("moe") else 1, "experts")
    return batch // (micro * dp)


def megatron_rules(v, f):
    n = lambda key, fallback=1: int(v.get("--" + key, fallback))
    tp, pp, layers = n("tensor-model-parallel-size"), n("pipeline-model-parallel-size"), n("num-layers")
    ep, virtual = n("expert-model-parallel-size"), n("num-layers-per-virtual-pipeline-stage", 0)
    m = megatron_world(f, tp, pp, n("context-parallel-size"), ep, n("expert-tensor-parallel-size", tp), n("micro-batch-size"),
                       n("global-batch-size"))
    stages = v["--pipeline-model-parallel-layout"].split("|") if "--pipeline-model-parallel-layout" in v else None
    assert not (virtual and stages)
    if stages:
        divides(pp, len(stages), "stages")
        assert sum(s.count("t") for s in stages) == layers and stages[0][0] == "E" and stages[-1][-1] == "L"
    else:
        divides(pp, layers, "layers")
    interleaved = bool(virtual) or bool(stages) and len(stages) > pp
    if virtual:
        divides(virtual, layers // pp, "layers a stage")
    if interleaved:
        divides(pp, m, "micro-batches of interleaving")
    assert not interleaved or pp > (2 if "--no-overlap-p2p-communication" in v else 1)
    if "--num-experts" in v:
        assert "--expert-tensor-parallel-size" in v and (tp == 1 or "--sequence-parallel" in v)
        assert "--moe-grouped-gemm" not in v or "--bf16" in v
    assert tp > 1 or "--sequence-parallel" not in v
    assert "--overlap-param-gather" not in v or "--overlap-grad-reduce" in v and (
        "--use-distributed-optimizer" in v or "--use-megatron-fsdp" in v)
    assert "--use-megatron-fsdp" not in v or v["--ckpt-format"] == "fsdp_dtensor"
    assert "--use-megatron-fsdp" not in v or "--use-distributed-optimizer" in v
    granularity = v.get("--recompute-granularity")
    assert (granularity == "full") == ("--recompute-method" in v) == ("--recompute-num-layers" in v)
    assert n("max-position-embeddings") >= n("seq-length")
    if "--overlap-moe-expert-parallel-comm" in v:
        assert ep > 1 and (pp == 1 or interleaved) and granularity != "full" and "--bf16" in v


def bridge_rules(v, f):
    n = lambda key: int(v.get(key) or 1)
    tp, pp, vp = (n(f"model.{k}_parallel_size") for k in ("tensor_model", "pipeline_model", "virtual_pipeline_model"))
    m = megatron_world(f, tp, pp, n("model.context_parallel_size"), n("model.expert_model_parallel_size"),
                       n("model.expert_tensor_parallel_size"), n("train.micro_batch_size"), n("train.global_batch_size"))
    assert pp == 1 or "model.pipeline_dtype" in v
    assert vp == 1 or pp > 1 and m % pp == 0
    stages = json.loads(v["model.pipeline_model_parallel_layout"] or "null")
    assert stages is None or len(stages) == pp * vp and sum(s.count("decoder") for s in stages) == f["model"]["layers"]
    assert stages is not None or f["model"]["layers"] % (pp * vp) == 0
    assert v["model.seq_length"] == v["dataset.seq_length"]
    full = v["model.recompute_granularity"] == "full"
    assert full == (v["model.recompute_method"] is not None) == (v["model.recompute_num_layers"] is not None)
    assert v["ddp.overlap_param_gather"] == "false" or v["ddp.overlap_grad_reduce"] == "true"


def deepspeed_rules(v, f):
    world, pp = f["layout"]["world"], f["layout"]["pp"]
    tp, ep = v.get("tensor_parallel", {}).get("autotp_size", 1), v.get("expert_parallel", {}).get("autoep_size", 1)
    stage = v["zero_optimization"]["stage"]
    assert tp == 1 or pp == 1
    assert pp == 1 or stage <= 1
    divides(tp * pp, world, "tp x pp")
    assert v["train_batch_size"] == v["train_micro_batch_size_per_gpu"] * v["gradient_accumulation_steps"] * (world // (tp * pp))
    if ep > 1:
        divides(ep, world // pp, "autoep_size")
        divides(ep, f["model"]["moe"]["experts"], "autoep_size")
        assert v["expert_parallel"]["enabled"] and v["expert_parallel"]["expert_tensor_parallel_size"] == 1
        assert tp == 1 or stage <= 2
        assert tp == 1 or v["tensor_parallel"].get("preset_model") == v["expert_parallel"].get("preset_model")


def titan_rules(p, f, etp):
    g = lambda key: p[key + "_degree"]
    dp = g("data_parallel_replicate") * g("data_parallel_shard")
    cp, tp, pp, ep = g("context_parallel"), g("tensor_parallel"), g("pipeline_parallel"), g("expert_parallel")
    assert dp * cp * tp * pp == f["layout"]["world"]
    divides(ep * etp, g("data_parallel_shard") * cp * tp, "ep x etp")
    divides(2 * tp * cp, f["workload"]["seq"], "2 x tp x cp")
    if pp > 1:
        stages = -(-f["model"]["layers"] // p["pipeline_parallel_layers_per_stage"])
        divides(pp, stages, "pp")
        assert (stages // pp >= 2) == (p["pipeline_parallel_schedule"] == "Interleaved1F1B")
    return dp, pp, ep


def toml_rules(v, f):
    p, t = v["parallelism"], v["training"]
    etp = p["expert_tensor_parallel_degree"]
    assert etp in (1, p["tensor_parallel_degree"])
    dp, pp, _ = titan_rules(p, f, etp)
    divides(t["local_batch_size"] * dp, t["global_batch_size"], "local batch x dp")
    if pp > 1:
        divides(p["pipeline_parallel_microbatch_size"], t["local_batch_size"], "micro-batch")
    assert ("selective_ac_option" in v["activation_checkpoint"]) == (v["activation_checkpoint"]["mode"] == "selective")


def python_rules(v, f):
    p = {k[len("parallelism."):]: x for k, x in v.items() if k.startswith("parallelism.")}
    t = {k[len("training."):]: x for k, x in v.items() if k.startswith("training.")}
    dp, pp, ep = titan_rules(p, f, 1)
    micro = t["num_tokens_per_microbatch_per_dp_rank"]
    divides(f["workload"]["seq"], micro, "tokens of a sequence")
    divides(micro * dp * (p["num_pp_microbatches"] if pp > 1 else 1), t["num_tokens_per_train_step"], "tokens of a micro-batch")
    assert t.get("disable_cuda_graphs", False) == (pp > 1 or ep > 1)


def smp_world(world, shard, tp, ep, cp):
    divides(max(shard, 1) * tp * ep, world, "shard x tp x ep")
    assert tp == 1 or ep == 1
    assert cp == 1 or cp <= shard


def smp_rules(v, f):
    smp_world(f["layout"]["world"], *(v[k] for k in ("hybrid_shard_degree", "tensor_parallel_degree", "expert_parallel_degree",
                                                     "context_parallel_degree")))


def hyperpod_rules(v, f):
    m = v["model"]
    assert v["trainer"]["num_nodes"] * v["trainer"]["devices"] == f["layout"]["world"]
    smp_world(f["layout"]["world"], *(m[k] for k in ("shard_degree", "tensor_model_parallel_degree",
                                                     "expert_model_parallel_degree", "context_parallel_degree")))


def accelerate_rules(v, f):
    divides(v["num_machines"], v["num_processes"], "num_machines")
    assert v["num_processes"] == f["layout"]["world"]
    if v["distributed_type"] == "FSDP":
        replicate, shard, tp, cp = (v["parallelism_config"][f"parallelism_config_{k}_size"] for k in
                                    ("dp_replicate", "dp_shard", "tp", "cp"))
        assert replicate * shard * tp * cp == v["num_processes"]
        assert replicate == 1 or tp * cp == 1 or shard > 1
    elif v["distributed_type"] == "MEGATRON_LM":
        n = lambda key, fallback=1: v["megatron_lm_config"].get("megatron_lm_" + key, fallback)
        tp, pp = n("tp_degree"), n("pp_degree")
        megatron_world(f, tp, pp, n("context_parallel_size"), n("expert_model_parallel_size"),
                       n("expert_tensor_parallel_size", tp), f["layout"]["micro_batch"], f["workload"]["global_batch"])
        divides(pp, f["model"]["layers"], "layers")
        assert tp > 1 or not n("sequence_parallelism")


rules = {"megatron": megatron_rules, "megatron-bridge": bridge_rules, "deepspeed": deepspeed_rules, "torchtitan": python_rules,
         "torchtitan-toml": toml_rules, "smp": smp_rules, "hyperpod": hyperpod_rules, "accelerate": accelerate_rules}

targets = {"megatron": megatron, "megatron-script": script, "megatron-bridge": bridge, "partune": partune,
           "deepspeed": as_json("deepspeed"), "smp": as_json("smp"), "torchtitan": python, "torchtitan-toml": toml,
           "hyperpod": as_yaml("hyperpod"), "accelerate": as_yaml("accelerate")}
files = collections.defaultdict(list)
for name in sorted(os.listdir(directory)):
    if re.match(r"\d+\.", name):
        files[name.split(".", 1)[1]].append(os.path.join(directory, name))

names = sorted(targets) + ["slurm+*", "pbs+*", "mpijob+*"]
print(f"1..{len(names)}")
for n, target in enumerate(names, 1):
    mine = [f for t, fs in files.items() for f in fs if (t.startswith(target[:-1]) if target.endswith("*") else t == target)]
    check = targets.get(target) or (mpijob if target.startswith("mpijob") else shell)
    if yaml is None and check not in (shell, megatron, script, bridge, partune, toml, python) and target in ("hyperpod", "accelerate", "mpijob+*"):
        print(f"ok {n} - {target} # SKIP there is no python3-yaml")
        continue
    bad = None
    # A job script differs from its target's file by a few lines: every fourth is enough, and bash is slow to start.
    for path in mine[::4] if target.endswith("*") else mine:
        try:
            value = check(open(path).read())
            if target in rules:
                with open(os.path.join(directory, os.path.basename(path).split(".")[0] + ".facts")) as facts:
                    rules[target](value, json.load(facts))
        except Exception as e:  # noqa: BLE001 - whatever a parser throws is the finding
            bad = f"{os.path.basename(path)}: {type(e).__name__}: {e}"
            break
    print(f"{'not ok' if bad or not mine else 'ok'} {n} - {target}: {len(mine)} files are read")
    if bad or not mine:
        print("#   " + str(bad or "no file was written").replace("\n", "\n#   "))
