#!/usr/bin/env python3
"""parse.py DIR KEYS: read every file that dump wrote with the parser of its format, hold the keys against KEYS, where the
keys of each target are listed as its own sources have them, and the values against the rules by which the target would
refuse to start. Prints TAP, one line a target."""
import collections, json, os, re, subprocess, sys, tomllib

import standins

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
    assert lines and all(re.fullmatch(r"--(recompute|cuda-graph)-modules( [a-z_]+)+|--[a-z0-9-]+( [^ ]+)?", l) for l in lines), lines
    known("megatron", (l.split()[0] for l in lines))
    assert len({l.split()[0] for l in lines}) == len(lines), "an argument twice"
    return {l.split()[0]: l.split(" ", 1)[1] if " " in l else True for l in lines}


def as_json(target):
    def check(text):
        value = json.loads(text)
        known(target, (k for k in flat(value) if not k.startswith("_partune.")))
        assert value["_partune"]["campaign_name"].startswith("it's")
        return value
    return check


def partune(text):
    value = json.loads(text)
    assert {"model", "cluster", "workload", "layout", "checkpoint", "expected", "provenance"} <= set(value)


def toml(text):
    value = tomllib.loads(text)
    known("torchtitan-toml", flat(value))
    return value


def run(text, modules, environment, use):
    """USE of the names that the program TEXT defines, with MODULES in the place of the target's."""
    saved = {n: sys.modules.get(n) for n in modules}
    before = dict(os.environ)
    sys.modules.update(modules)
    os.environ.update(environment)
    try:
        scope = {"__name__": "export"}
        exec(compile(text, "export", "exec"), scope)
        return use(scope)
    finally:
        os.environ.clear()
        os.environ.update(before)
        for n, m in saved.items():
            sys.modules.pop(n)
            if m:
                sys.modules[n] = m


def raises(error, call, *args):
    try:
        call(*args)
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def bridge(text, facts):
    """The same settings, whether the recipe keeps sizes on the model or on its transformer; a field that is not there, or a
    recipe of another model, is an error."""
    def use(scope):
        put = scope["with_partune_layout"]
        made = [put(standins.bridge_recipe(facts, form)) for form in (standins.Provider, standins.Model)]
        provider, model = made[0].model, made[1].model
        for name in standins.TRANSFORMER:
            assert getattr(provider, name) == getattr(model.transformer, name), name
            assert name not in vars(model), name
        poorer = standins.bridge_recipe(facts, standins.Provider)
        poorer.ddp = standins.record("Ddp", use_megatron_fsdp=False)()
        raises(AttributeError, put, poorer)
        other = standins.bridge_recipe(facts, standins.Provider)
        other.model.num_layers += 1
        raises(ValueError, put, other)
        return made[0]
    return run(text, standins.bridge_modules(), {}, use)


def python(text, facts):
    """As torchtitan calls it: without arguments, on the recipe that the environment names."""
    def made(quantized):
        recipe = standins.titan_recipe(facts, quantized)
        return run(text, standins.titan_modules(facts, recipe), {"TORCHTITAN_RECIPE": "made_up:a_recipe"},
                   lambda scope: scope["partune_layout"]())
    plain, quantized = made([]), made(["mx"])
    assert (plain.training, plain.parallelism) == (quantized.training, quantized.parallelism)
    other = dict(facts, model=dict(facts["model"], layers=facts["model"]["layers"] + 1))
    raises(ValueError, lambda: run(text, standins.titan_modules(other, standins.titan_recipe(other, [])),
                                   {"TORCHTITAN_RECIPE": "made_up:a_recipe"}, lambda scope: scope["partune_layout"]()))
    precision = facts["layout"]["precision"]
    narrow, fp8 = precision not in ("fp32", "bf16"), precision.startswith("fp8")  # it has one recipe for fp8
    assert plain.model_spec.model.quantized == (["fp8"] if fp8 else [precision] if narrow else [])
    depth = facts["model"].get("mtp", 0)
    assert quantized.model_spec.model.quantized == (["mx"] if fp8 and not depth else plain.model_spec.model.quantized)
    assert quantized.model_spec.flavor == "9B" and not plain.compile.enable_async_tensor_parallel
    assert plain.compile.enable if narrow else True
    assert plain.model_spec.model.mtp_layers == quantized.model_spec.model.mtp_layers == depth
    if depth:
        assert (plain.loss.mtp_scale, plain.loss.global_vocab_size) == (facts["model"]["mtp_loss_coef"], facts["model"]["vocab"])
    else:
        assert plain.loss == "the recipe's"
    experts = facts["model"].get("moe")
    assert plain.debug.moe_force_load_balance == (bool(experts.get("force_balance")) if experts else "the recipe's")
    return plain


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
        if w == "--no-rope-freq":
            assert json.loads(value) == [int((i + 1) % 4 == 0) for i in range(10)], value
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


def megatron_balance(f, kind, coefficient):
    """The load-balancing loss presses as hard there, where the sum over layers with experts is divided by the choices of a
    token (docs/reference/trainer.md). Modules of multi-token prediction have layers like the last."""
    m = f["model"]
    e = m["moe"]
    has_experts = [i >= e.get("dense_layers", 0) and (i + 1) % e.get("every", 1) == 0 for i in range(m["layers"])]
    with_experts = sum(has_experts) + has_experts[-1] * m.get("mtp", 0)
    want = e["aux_loss_coef"] * (1 if e.get("aux_loss") == "megatron" else e["top_k"] / with_experts)
    assert kind == ("aux_loss" if "aux_loss" in e else "seq_aux_loss"), kind
    assert abs(coefficient - want) <= 1e-9 * want, f"{coefficient} is not {want}"


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
        megatron_balance(f, v["--moe-router-load-balancing-type"], float(v["--moe-aux-loss-coeff"]))
        assert float(v.get("--moe-z-loss-coeff", 0)) == f["model"]["moe"].get("z_loss_coef", 0)
        assert "--expert-tensor-parallel-size" in v and (tp == 1 or "--sequence-parallel" in v)
        assert "--moe-grouped-gemm" not in v or "--bf16" in v
    assert tp > 1 or "--sequence-parallel" not in v
    assert "--overlap-param-gather" not in v or "--overlap-grad-reduce" in v and (
        "--use-distributed-optimizer" in v or "--use-megatron-fsdp" in v)
    assert "--use-megatron-fsdp" not in v or v["--ckpt-format"] == "fsdp_dtensor" and pp == 1
    divides(n("num-distributed-optimizer-instances"), f["layout"]["dp"] * f["layout"]["cp"], "copies")
    assert n("num-distributed-optimizer-instances") == 1 or "--use-distributed-optimizer" in v
    assert "--use-megatron-fsdp" not in v or "--use-distributed-optimizer" in v
    sizes = v.get("--hierarchical-context-parallel-sizes", "").split()
    assert (len(sizes) == 2) == (v.get("--cp-comm-type") == "a2a+p2p")
    assert not sizes or int(sizes[0]) * int(sizes[1]) == n("context-parallel-size") and "1" not in sizes
    assert ("--use-megatron-fsdp" in v) == ("--init-model-with-meta-device" in v), "built whole on every device"
    assert megatron_grads(v, f) == f["layout"].get("grad_dtype", "fp32")
    granularity = v.get("--recompute-granularity")
    assert (granularity == "full") == ("--recompute-method" in v) == ("--recompute-num-layers" in v)
    graphs = {"transformer_engine": "modules", "full_iteration": "iteration"}.get(v.get("--cuda-graph-impl"), "none")
    assert graphs == graphed(f)
    assert (graphs == "modules") == ("--cuda-graph-modules" in v)
    assert (graphs == "iteration") == ("--no-check-for-nan-in-loss-and-grad" in v)
    dispatch = v.get("--moe-flex-dispatcher-backend", v.get("--moe-token-dispatcher-type", "alltoall"))
    assert dispatch == f["layout"].get("moe_dispatch", "alltoall")
    assert (v.get("--moe-token-dispatcher-type") == "flex") == ("--moe-router-dtype" in v)
    assert ("--tp-comm-overlap" in v) == bool(f["layout"].get("tp_overlap")) <= ("--sequence-parallel" in v)
    assert v.get("--recompute-method", "uniform") == f["layout"].get("recompute_method", "uniform")
    assert n("recompute-num-layers") == f["layout"].get("recompute_num_layers", 1)
    offloaded = megatron_offloads(f)
    assert ("--optimizer-cpu-offload" in v) == ("--use-precision-aware-optimizer" in v) == (offloaded[0] > 0)
    assert float(v.get("--optimizer-offload-fraction", 0)) * 100 == offloaded[0] <= 100 * ("--use-distributed-optimizer" in v)
    assert int(v.get("--cpu-offloading-num-layers", 0)) == offloaded[1]
    assert n("max-position-embeddings") >= n("seq-length")
    latent, rotation = "--multi-latent-attention" in v, v.get("--rope-type")  # MLATransformerConfig
    variant, sparse = v.get("--experimental-attention-variant"), f["model"].get("dsa", {})
    assert ("--no-rope-fusion" in v) == (latent and (rotation != "yarn" or bool(sparse))) and latent == (rotation is not None)
    megatron_variant(v, f, variant, sparse)
    if "--overlap-moe-expert-parallel-comm" in v:
        assert ep > 1 and (pp == 1 or interleaved) and granularity != "full" and "--bf16" in v


def megatron_variant(v, f, variant, sparse):
    """Attention of other kinds, by TransformerConfig.__post_init__ of d98e8a64."""
    linear, cp = f["model"].get("linear_attention", {}), int(v.get("--context-parallel-size", 1))
    assert variant == ("gdn" if linear else "dsa" if sparse else None)
    names = {"num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"}
    assert all(int(v[f"--linear-{name.replace('_', '-')}"]) == linear[name] for name in names & linear.keys())
    assert not linear or int(v["--linear-attention-freq"]) == f["model"]["linear_attention_freq"]
    assert not linear or linear["num_key_heads"] % (int(v["--tensor-model-parallel-size"]) * cp) == 0
    assert not sparse or [int(v[f"--dsa-indexer-{name}"]) for name in ("n-heads", "head-dim", "topk")] == [
        sparse[name] for name in ("index_n_heads", "index_head_dim", "index_topk")]
    assert not sparse or "--q-lora-rank" in v and "--disable-bias-linear" in v and "--bf16" in v and (
        cp == 1 or v.get("--cp-comm-type", "p2p").replace("_", "") == "allgather") and (
        v["--tensor-model-parallel-size"] == "1" or "--sequence-parallel" in v)


def megatron_grads(v, f):
    """In what gradients are accumulated and reduced, by arguments.py and Megatron-FSDP's MixedPrecisionPolicy."""
    if "--bf16" not in v:
        return "fp32"
    if "--use-megatron-fsdp" in v:
        assert "--grad-reduce-in-bf16" not in v
        return v["--megatron-fsdp-main-grads-dtype"]
    return "bf16" if "--grad-reduce-in-bf16" in v else "fp32"


def graphed(f):
    """What starts of cuda_graphs: no whole iteration of experts, no module of a layer that is recomputed whole."""
    graphs = f["layout"].get("cuda_graphs", "none")
    refused = graphs == "iteration" and f["model"].get("moe") or graphs == "modules" and f["layout"]["recompute"] == "full"
    return "none" if refused else graphs


def megatron_offloads(f):
    """What starts of offload_optimizer and offload_activations, by arguments.py and transformer_config.py."""
    l, gathers = f["layout"], f["layout"].get("fp8_param_gather") and f["layout"]["precision"] != "fp8"
    layers = l.get("offload_activations", 0)
    stays = l["pp"] == 1 and l["recompute"] == "none" and graphed(f) != "modules" and layers < f["model"]["layers"]
    return 0 if l["zero"] >= 2 or gathers else l.get("offload_optimizer", 0), layers if stays else 0


def bridge_precision(mixed, layout, fsdp):
    names = {"fp8": "fp8_delayed_scaling", "fp8-current": "fp8_current_scaling", "fp8-blockwise": "fp8_subchannel_scaling",
             "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
    half = layout.get("grad_dtype") == "bf16" and not fsdp
    if layout["precision"] == "bf16":
        assert (mixed.name if half else mixed) == "bf16_mixed"
    elif layout["precision"] == "fp32":
        assert mixed.params_dtype == "torch.float32"
    else:
        gathers = mixed.fp4_param_gather if layout["precision"] == "nvfp4" else mixed.fp8_param_gather
        assert mixed.name == f"bf16_with_{names[layout['precision']]}_mixed"
        assert gathers == bool(layout.get("fp8_param_gather")) and mixed.first_last_layers_bf16 is False
        assert mixed.grad_reduce_in_fp32 is not half
        assert layout["precision"] != "mxfp8" or mixed.reuse_grad_buf_for_mxfp8_param_ag == gathers


def bridge_rules(c, f):
    """What Megatron-Bridge makes of the configuration is the layout: of two switches for the distributed optimizer one is
    enough, and comm_overlap would go over the rest."""
    m, l, layers = c.model, f["layout"], f["model"]["layers"]
    one = lambda value: value or 1
    tp, pp, vp = m.tensor_model_parallel_size, m.pipeline_model_parallel_size, one(m.virtual_pipeline_model_parallel_size)
    count = megatron_world(f, tp, pp, m.context_parallel_size, m.expert_model_parallel_size, m.expert_tensor_parallel_size,
                           c.train.micro_batch_size, c.train.global_batch_size)
    assert c.comm_overlap is None
    sharded = c.ddp.use_distributed_optimizer or c.optimizer.use_distributed_optimizer
    fsdp = c.ddp.use_megatron_fsdp or c.dist.use_megatron_fsdp
    strategy = {"no_shard": int(sharded), "optim_grads": 2, "optim_grads_params": 3}[c.ddp.data_parallel_sharding_strategy]
    alone = not l["zero"] and megatron_offloads(f)[0] > 0  # the distributed optimizer of one rank
    assert strategy == (min(l["zero"], 1) if pp > 1 else l["zero"]) + alone, "Megatron-FSDP has no pipeline: zero 2 is a gap"
    assert fsdp == (strategy >= 2) and (not fsdp or sharded)
    main, comm = c.ddp.megatron_fsdp_main_grads_dtype, c.ddp.megatron_fsdp_grad_comm_dtype
    want = "torch.bfloat16" if l.get("grad_dtype") == "bf16" else "torch.float32"
    assert (main, comm) == ((want, None) if fsdp else ("the recipe's", "the recipe's"))
    copies = c.ddp.num_distributed_optimizer_instances
    divides(copies, l["dp"] * l["cp"], "copies")
    assert l.get("shard", 0) == (l["dp"] * l["cp"] // copies if copies > 1 else 0)
    assert m.init_model_with_meta_device == fsdp and (c.checkpoint.ckpt_format == "fsdp_dtensor") == fsdp
    assert not fsdp or c.env_vars.get("CUDA_DEVICE_MAX_CONNECTIONS") is None and not c.ddp.average_in_collective
    assert fsdp or (tp == 1 and m.context_parallel_size == 1) or c.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] == 1
    assert c.env_vars["NCCL_DEBUG"] == "WARN"
    assert pp == 1 or m.pipeline_dtype.startswith("torch.")
    assert vp == 1 or pp > 1 and count % pp == 0
    stages = m.pipeline_model_parallel_layout
    assert stages is None or len(stages) == pp * vp and sum(s.count("decoder") for s in stages) == layers
    assert stages is None or stages[0][0] == "embedding" and stages[-1][-1] == "loss" and all(stages)
    assert stages is not None or layers % (pp * vp) == 0
    assert m.seq_length == c.dataset.seq_length == f["workload"]["seq"]
    full = m.recompute_granularity == "full"
    assert full == (m.recompute_method is not None) == (m.recompute_num_layers is not None)
    assert not full or (m.recompute_method, m.recompute_num_layers) == (
        l.get("recompute_method", "uniform"), l.get("recompute_num_layers", 1))
    assert (m.recompute_granularity or "none") == l["recompute"]
    assert not c.ddp.overlap_param_gather or c.ddp.overlap_grad_reduce and sharded
    assert c.optimizer.overlap_param_gather == c.ddp.overlap_param_gather
    assert m.overlap_p2p_comm == (vp > 1 and (bool(l["overlap_p2p"]) or pp == 2)) and not (m.overlap_p2p_comm and m.batch_p2p_comm)
    assert not m.overlap_moe_expert_parallel_comm or not m.moe_shared_expert_overlap and not full
    if f["model"].get("moe"):
        megatron_balance(f, m.moe_router_load_balancing_type, m.moe_aux_loss_coeff)
        assert m.moe_z_loss_coeff == f["model"]["moe"].get("z_loss_coef")
    off = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "account_for_loss_in_pipeline_split",
           "account_for_embedding_in_pipeline_split", "microbatch_group_size_per_vp_stage", "delay_wgrad_compute",
           "defer_embedding_wgrad_compute", "fine_grained_activation_offloading")
    assert not any(getattr(m, name) for name in off) and m.cuda_graph_scope is None
    assert m.mtp_num_layers == (f["model"].get("mtp") or None)
    graphs = graphed(f)
    assert m.cuda_graph_impl == {"modules": "transformer_engine", "iteration": "full_iteration"}.get(graphs, "none")
    assert bool(m.cuda_graph_modules) == (graphs == "modules") and bool(c.rng.te_rng_tracker) == (graphs != "none")
    assert c.rerun_state_machine.check_for_nan_in_loss == c.ddp.check_for_nan_in_grad == (graphs != "iteration")
    assert bool(m.tp_comm_overlap) == bool(l.get("tp_overlap"))
    if f["model"].get("moe"):
        flex = m.moe_token_dispatcher_type == "flex"
        assert l.get("moe_dispatch", "alltoall") == (m.moe_flex_dispatcher_backend if flex else m.moe_token_dispatcher_type)
        assert flex == (m.moe_router_dtype == "fp32")
    percent, offloaded = megatron_offloads(f)
    assert not c.dist.use_torch_fsdp2 and c.optimizer.optimizer_cpu_offload == (percent > 0)
    assert not percent or c.optimizer.optimizer_offload_fraction * 100 == percent and sharded
    assert not percent or c.optimizer.use_precision_aware_optimizer and c.optimizer.overlap_cpu_optimizer_d2h_h2d
    assert m.cpu_offloading == (offloaded > 0)
    assert not offloaded or m.cpu_offloading_num_layers == offloaded and m.cpu_offloading_activations > m.cpu_offloading_weights
    bridge_precision(c.mixed_precision, l, fsdp)


def deepspeed_rules(v, f):
    world, pp = f["layout"]["world"], f["layout"]["pp"]
    tp, ep = v.get("tensor_parallel", {}).get("autotp_size", 1), v.get("expert_parallel", {}).get("autoep_size", 1)
    stage = v["zero_optimization"]["stage"]
    assert tp == 1 or pp == 1
    assert pp == 1 or stage <= 1
    accumulate, reduce = v.get("data_types", {}).get("grad_accum_dtype"), v.get("communication_data_type")
    want = "bf16" if stage == 0 else f["layout"].get("grad_dtype", "fp32")  # engine.py: unsupported mix
    assert (accumulate, reduce) == ((want, want) if v["bf16"]["enabled"] else (None, None))
    divides(tp * pp, world, "tp x pp")
    # Its parser multiplies by every rank of the stage, those of tensor parallelism among them, where the product is said.
    steps = v["train_micro_batch_size_per_gpu"] * v["gradient_accumulation_steps"]
    assert v.get("train_batch_size", steps * world // pp) == steps * world // pp
    assert steps * (world // (tp * pp)) == f["workload"]["global_batch"]
    if ep > 1:
        divides(ep, world // pp, "autoep_size")
        divides(ep, f["model"]["moe"]["experts"], "autoep_size")
        assert v["expert_parallel"]["enabled"] and v["expert_parallel"]["expert_tensor_parallel_size"] == 1
        assert tp == 1 or stage <= 2
        presets = v.get("tensor_parallel", {}).get("preset_model"), v["expert_parallel"].get("preset_model")
        assert None in presets or presets[0] == presets[1]
        shared = f["model"]["moe"].get("shared_ffn")
        assert presets[1] in (None, "deepseek_v3" if shared else "mixtral")
    state, params, l = v["zero_optimization"].get("offload_optimizer"), v["zero_optimization"].get("offload_param"), f["layout"]
    assert not state or state["device"] == "cpu" and stage >= 1 and state.get("ratio", 1) * 100 == l["offload_optimizer"]
    assert not state or "ratio" not in state or stage == 3
    assert not params or params["device"] == "cpu" and stage == 3 and l["offload_params"]
    assert not (state or params) or "mics_shard_size" not in v["zero_optimization"] and (tp == 1 or ep == 1)
    assert v.get("tensor_parallel", {}).get("preset_model", "llama") in ("llama", "mixtral", "deepseek_v2")


def titan_rules(p, f, etp):
    g = lambda key: p[key + "_degree"]
    dp = g("data_parallel_replicate") * g("data_parallel_shard")
    cp, tp, pp, ep = g("context_parallel"), g("tensor_parallel"), g("pipeline_parallel"), g("expert_parallel")
    assert dp * cp * tp * pp == f["layout"]["world"]
    divides(ep * etp, g("data_parallel_shard") * cp * tp, "ep x etp")
    return dp, cp, tp, pp, ep


def titan_cut(stages, layers):
    """torchtitan's own: every stage as many layers, the first ones one more."""
    return [layers // stages + (i < layers % stages) for i in range(stages)]


def our_cut(f):
    l = f["layout"]
    return titan_cut(l["pp"] * l["vp"], f["model"]["layers"])  # pl_stage_layers


def enough_for_1f1b(schedule, micro_batches, pp):
    assert schedule != "1F1B" or micro_batches >= pp, f"{micro_batches} micro-batches for {pp} stages"


def titan_offloads(layout):
    """FSDP2 has one switch for weights and the whole state."""
    return (layout.get("offload_optimizer"), layout.get("offload_params")) == (100, 1)


def toml_rules(v, f):
    p, t = v["parallelism"], v["training"]
    assert t.get("enable_cpu_offload", False) == (titan_offloads(f["layout"]) and f["layout"]["zero"] > 0)
    etp = p["expert_tensor_parallel_degree"]
    assert etp in (1, p["tensor_parallel_degree"])
    dp, cp, tp, pp, _ = titan_rules(p, f, etp)
    divides(2 * tp * cp, f["workload"]["seq"], "2 x tp x cp")
    if pp > 1:
        layers, parts = f["model"]["layers"], p.get("module_fqns_per_model_part")
        if parts:
            assert [n for part in parts for n in part if n.startswith("layers.")] == [f"layers.{i}" for i in range(layers)]
        stages = len(parts) if parts else -(-layers // p["pipeline_parallel_layers_per_stage"])
        divides(pp, stages, "pp")
        titan_chunks(p["pipeline_parallel_schedule"], stages // pp)
    divides(t["local_batch_size"] * dp, t["global_batch_size"], "local batch x dp")
    if pp > 1:
        divides(p["pipeline_parallel_microbatch_size"], t["local_batch_size"], "micro-batch")
        enough_for_1f1b(p["pipeline_parallel_schedule"], t["local_batch_size"] // p["pipeline_parallel_microbatch_size"], pp)
    assert ("selective_ac_option" in v["activation_checkpoint"]) == (v["activation_checkpoint"]["mode"] == "selective")


def titan_chunks(schedule, chunks):
    """Of a rank, as torch.distributed.pipelining asks for them: classes with one stage, with several, and V with two."""
    v = schedule in ("ZBVZeroBubble", "DualPipeV")
    assert chunks == 2 if v else (chunks >= 2) == (schedule == "Interleaved1F1B")


def python_rules(v, f):
    p, t, l = {k: getattr(v.parallelism, k) for k in v.parallelism.__slots__}, v.training, f["layout"]
    dp, cp, tp, pp, ep = titan_rules(p, f, 1)
    micro, layers = t.num_tokens_per_microbatch_per_dp_rank, f["model"]["layers"]
    divides(f["workload"]["seq"], micro, "tokens of a sequence")
    divides(tp * (2 * cp if cp > 1 else 1) if p["enable_sequence_parallel"] else 2 * cp if cp > 1 else 1, micro, "tokens of a rank")
    divides(micro * dp * (p["num_pp_microbatches"] if pp > 1 else 1), t.num_tokens_per_train_step, "tokens of a micro-batch")
    assert t.disable_cuda_graphs == (f["layout"].get("cuda_graphs") != "iteration" or pp > 1 or ep > 1)
    assert v.compile.enable_async_tensor_parallel == bool(l.get("tp_overlap")) <= v.compile.enable
    assert t.enable_cpu_offload == titan_offloads(l) and t.dtype == "float32"
    assert v.activation_checkpoint == (l["recompute"] if l["recompute"] != "none" else None)
    if pp == 1:
        return
    parts = p["module_fqns_per_model_part"]
    enough_for_1f1b(p["pipeline_parallel_schedule"], p["num_pp_microbatches"], pp)
    assert not p["pipeline_parallel_schedule_csv"]
    per = p["pipeline_parallel_layers_per_stage"]
    stages = -(-layers // per) if per else len(parts)
    divides(pp, stages, "pp")
    titan_chunks(p["pipeline_parallel_schedule"], stages // pp)
    if parts:
        assert [m for part in parts for m in part] == ["tok_embeddings", *(f"layers.{i}" for i in range(layers)), "norm", "lm_head"]
    cut = [sum(m.startswith("layers.") for m in part) for part in parts] if parts else titan_cut(stages, layers)
    assert cut == our_cut(f), f"{cut} is not {our_cut(f)}"


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
    assert m["max_context_width"] == f["workload"]["seq"]
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
            with open(os.path.join(directory, os.path.basename(path).split(".")[0] + ".facts")) as f:
                facts = json.load(f)
            value = check(open(path).read(), facts) if check in (bridge, python) else check(open(path).read())
            if target in rules:
                rules[target](value, facts)
        except Exception as e:  # noqa: BLE001 - whatever a parser throws is the finding
            bad = f"{os.path.basename(path)}: {type(e).__name__}: {e} (line {e.__traceback__.tb_next.tb_lineno if e.__traceback__.tb_next else 0})"
            break
    print(f"{'not ok' if bad or not mine else 'ok'} {n} - {target}: {len(mine)} files are read")
    if bad or not mine:
        print("#   " + str(bad or "no file was written").replace("\n", "\n#   "))
