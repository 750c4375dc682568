#!/usr/bin/env python3
"""parse.py DIR KEYS: read every file that dump wrote with the parser of its format, and hold the keys against KEYS,
where the keys of each target are listed as its own sources have them. Prints TAP, one line a target."""
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


def bridge(text):
    lines = [l for l in text.splitlines() if not l.startswith("#")]
    known("megatron-bridge", (l.split("=", 1)[0] for l in lines))
    layout = [l.split("=", 1)[1] for l in lines if l.startswith("model.pipeline_model_parallel_layout=")]
    for l in layout:
        stages = json.loads(l)
        assert stages is None or stages[0][0] == "embedding" and stages[-1][-1] == "loss" and all(stages)


def as_json(target):
    def check(text):
        value = json.loads(text)
        known(target, (k for k in flat(value) if not k.startswith("_partune.")))
        assert value["_partune"]["campaign_name"].startswith("it's")
    return check


def partune(text):
    value = json.loads(text)
    assert {"model", "cluster", "workload", "layout", "checkpoint", "promised", "provenance"} <= set(value)


def toml(text):
    known("torchtitan-toml", flat(tomllib.loads(text)))


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
        scope["with_measured_layout"](Recorder("", log))
    finally:
        for n, m in saved.items():
            sys.modules.pop(n)
            if m:
                sys.modules[n] = m
    known("torchtitan", log)
    assert log["training.num_tokens_per_train_step"] % log["training.num_tokens_per_microbatch_per_dp_rank"] == 0


def as_yaml(target):
    def check(text):
        known(target, flat(yaml.safe_load(text)))
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
            check(open(path).read())
        except Exception as e:  # noqa: BLE001 - whatever a parser throws is the finding
            bad = f"{os.path.basename(path)}: {type(e).__name__}: {e}"
            break
    print(f"{'not ok' if bad or not mine else 'ok'} {n} - {target}: {len(mine)} files are read")
    if bad or not mine:
        print("#   " + str(bad or "no file was written").replace("\n", "\n#   "))
