#!/usr/bin/env python3
"""targets.py TARGET SOURCE DIR: have TARGET's own code, of the checkout SOURCE, parse and validate DIR's exported files, and
compare what it then holds with the layout that each file was made from. DIR is of `dump`, or of `tuner_lossless` with
PT_EXPORTS. Prints a TAP line for every finding's kind; the last line counts.

Nothing of a target is played by a stand-in except the device and its libraries: see `a_device`."""
import argparse, collections, importlib.abc, importlib.machinery, importlib.util, json, os, re, sys, tempfile, types, typing

STANDARD = {"recompute_num_layers": 1, "zero_scope": "ep-aware"}  # of options, which a layout's JSON leaves out; others are 0
WORDS = {"cp_comm": "p2p", "recompute_method": "uniform", "moe_dispatch": "alltoall", "cuda_graphs": "none", "grad_dtype": "fp32"}
DERIVED = {"world", "global_batch", "edp", "dp", "threads"}


def expected(facts, key):
    return facts["layout"].get(key, WORDS.get(key, STANDARD.get(key, 0)))


def differences(back, facts, lost):
    """Keys that arrive as another value, or that the layout sets and nothing of the target holds."""
    unscheduled = facts["layout"]["pp"] == 1 or "vp" in lost
    for key, value in back.items():
        if key in lost or (key == "shard" and "zero" in lost) or (key == "schedule" and unscheduled):
            continue
        want = facts["stages"] if key == "stages" else facts["workload"][key] if key in ("seq", "global_batch") else expected(facts, key)
        if value != want:
            yield key, f"{key}: {want} arrives as {value}"
    for key, value in facts["layout"].items():
        unset = (key == "schedule" and unscheduled) or value in (0, 1, "none", "p2p", "uniform", "alltoall", "fp32", "even", "ep-aware", "plain")
        if key not in back and key not in lost and key not in DERIVED and not unset:
            yield key, f"{key} {value} arrives nowhere"


def a_device(torch, precision):
    """This machine may have no GPU: what the target asks of one is answered as the oldest does that has PRECISION, an H100 or
    a B200."""
    major = 10 if precision in ("mxfp8", "nvfp4") else 9
    device = types.SimpleNamespace(name="NVIDIA", major=major, minor=0, total_memory=80 << 30, multi_processor_count=132)
    torch.cuda.get_device_properties = lambda *which: device
    torch.cuda.get_device_capability = lambda *which: (major, 0)


class BooleanOptional(argparse.BooleanOptionalAction):
    """As Python 3.13 has it: 3.14 refuses arguments that it ignored, and Megatron-LM still passes."""

    def __init__(self, option_strings, dest, type=None, choices=None, metavar=None, **known):
        super().__init__(option_strings, dest, **known)


class Nothing:
    """What a call of such a name gives: a decorator without effect, or something that nobody asks."""

    def __init__(self, *args, **options):
        pass

    def __call__(self, decorated=None, *args, **options):
        return decorated


class Name(type(typing.Protocol)):
    """A name of a library that is not installed: has any attribute, can be called and be a base of classes."""

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Name(name, (Nothing,), {"is_name": True})

    def __call__(cls, *args, **options):
        if "is_name" in vars(cls) and len(args) == 1 and callable(args[0]):
            return args[0]
        return super().__call__(*args, **options)


class Named(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Libraries of kernels and of data that a target imports where it starts, and calls in training only: names without
    content where they are not installed, so that nothing of them is validated."""

    def __init__(self, *libraries):
        self.libraries = [library for library in libraries if not importlib.util.find_spec(library)]
        sys.meta_path.append(self)

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.libraries else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__version__ = "3.5.0"
        module.__getattr__ = lambda name: getattr(Name(spec.name, (Nothing,), {}), name)
        return module

    def exec_module(self, module):
        module.__path__ = []


# ---- Megatron-LM ----

def megatron(source):
    """parse_args, validate_args, and the configurations that pretrain_gpt.py makes from them."""
    sys.path.insert(0, source)
    import torch._dynamo.testing, torch._inductor.compile_fx  # they ask whether there is a triton
    Named("triton")
    argparse.BooleanOptionalAction = BooleanOptional
    from packaging.version import Version
    from megatron.core import utils
    from megatron.core.models.common.embeddings import rope_utils
    # Transformer Engine is taken as installed: its version, and that it has the one kernel that is asked for.
    utils._te_version = Version("2.10.0")
    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb or len
    from megatron.training import argument_utils, arguments, training
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    def read(path, facts):
        words = [w for line in open(path) if not line.startswith("#") for w in line.split()]
        data = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", str(facts["model"]["vocab"]),
                "--train-iters", "10", "--lr", "1e-4"]
        a_device(torch, facts["layout"]["precision"])
        sys.argv = ["pretrain_gpt.py", *words, *data]
        os.environ.update(WORLD_SIZE=str(facts["layout"]["world"]), RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
        if "--use-megatron-fsdp" in words:
            os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS")
        args = arguments.parse_args()
        arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
        args.padded_vocab_size = facts["model"]["vocab"]
        model = argument_utils.gpt_config_from_args(args)
        argument_utils.pretrain_cfg_container_from_args(args, model)
        return megatron_layout(args, model.transformer, training.get_megatron_ddp_config(args),
                               training.get_megatron_optimizer_config(args)[0], get_num_layers_to_build)
    return "megatron", read


def megatron_layout(args, config, ddp, optimizer, layers_of):
    modules = config.recompute_modules if config.recompute_granularity == "selective" else []
    chunks = config.virtual_pipeline_model_parallel_size or 1
    layout = config.pipeline_model_parallel_layout
    at = lambda stage, chunk: (sum(l.name == "decoder" for l in layout.layout[stage][chunk]) if layout
                               else layers_of(config, chunk if chunks > 1 else None, stage))
    replicas = args.data_parallel_size * config.context_parallel_size
    instances = ddp.num_distributed_optimizer_instances
    fsdp = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    graphs = {"transformer_engine": "modules", "full_iteration": "iteration", "none": "none"}
    back = {
        "tp": config.tensor_model_parallel_size, "pp": config.pipeline_model_parallel_size, "vp": chunks,
        "cp": config.context_parallel_size, "ep": config.expert_model_parallel_size, "dp": args.data_parallel_size,
        "sp": int(config.sequence_parallel), "micro_batch": args.micro_batch_size,
        "global_batch": args.global_batch_size, "seq": args.seq_length,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
        "stages": [[at(stage, chunk) for chunk in range(chunks)] for stage in range(config.pipeline_model_parallel_size)],
        "zero": (fsdp[ddp.data_parallel_sharding_strategy] if ddp.use_megatron_fsdp
                 else int(ddp.use_distributed_optimizer and (replicas > 1 or not optimizer.optimizer_cpu_offload))),
        "shard": replicas // instances if instances > 1 else 0,
        "recompute": config.recompute_granularity or "none",
        "overlap_grad_reduce": int(ddp.overlap_grad_reduce), "overlap_param_gather": int(ddp.overlap_param_gather),
        "overlap_p2p": int(config.overlap_p2p_comm), "overlap_moe_a2a": int(config.overlap_moe_expert_parallel_comm),
        "tp_overlap": int(config.tp_comm_overlap), "cuda_graphs": graphs[config.cuda_graph_impl],
        "precision": megatron_precision(config), "grad_dtype": megatron_grads(args, ddp),
        "fp8_param_gather": int(bool(config.fp8_param or config.fp4_param)),
        "offload_optimizer": round(optimizer.optimizer_offload_fraction * 100) if optimizer.optimizer_cpu_offload else 0,
        "offload_activations": (config.cpu_offloading_num_layers or 0) if config.cpu_offloading else 0,
    }
    if config.recompute_granularity == "full":
        back.update(recompute_method=config.recompute_method, recompute_num_layers=config.recompute_num_layers)
    for module in ("mlp", "moe", "moe_act", "shared_experts", "layernorm", "mla_up_proj", "core_attn"):
        if modules and modules != ["core_attn"]:  # which selective means by itself
            back["recompute_" + module] = int(module in modules)
    if config.num_moe_experts:
        flex = config.moe_token_dispatcher_type == "flex"
        experts = config.expert_tensor_parallel_size * config.expert_model_parallel_size * config.pipeline_model_parallel_size
        back.update(etp=config.expert_tensor_parallel_size, edp=args.world_size // experts,
                    moe_dispatch=config.moe_flex_dispatcher_backend if flex else config.moe_token_dispatcher_type)
    if config.context_parallel_size > 1:
        kind = config.cp_comm_type if isinstance(config.cp_comm_type, str) else config.cp_comm_type[0]
        back["cp_comm"] = kind.replace("_", "-")
    return back


def megatron_precision(config):
    if config.fp4:
        return "nvfp4"
    if config.fp8:
        recipe = getattr(config.fp8_recipe, "value", config.fp8_recipe)
        return {"delayed": "fp8", "tensorwise": "fp8-current", "blockwise": "fp8-blockwise", "mxfp8": "mxfp8"}[recipe]
    return "bf16" if config.bf16 else "fp32"


def megatron_grads(args, ddp):
    if not args.bf16:
        return "fp32"
    if ddp.use_megatron_fsdp:
        return "bf16" if "bfloat16" in str(ddp.megatron_fsdp_main_grads_dtype) else "fp32"
    return "fp32" if ddp.grad_reduce_in_fp32 else "bf16"


# ---- torchtitan ----

TITAN_DATA = ("datasets", "torchdata", "grain", "torch_checkpointing", "tensorboard", "google", "wandb", "torchvision", "torchao", "triton")
TITAN_SCHEDULES = {"GPipe": "gpipe", "1F1B": "1f1b", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb-v", "DualPipeV": "dualpipe-v"}


def titan_sharding(p):
    """zero, dp and shard of the data-parallel degrees: FSDP2 wraps wherever dp_shard x cp is over 1."""
    ranks = p.data_parallel_shard_degree * p.context_parallel_degree
    zero = 0 if ranks == 1 else {"always": 3, "never": 2}[p.fsdp_reshard_after_forward]
    return {"zero": zero, "dp": p.data_parallel_replicate_degree * p.data_parallel_shard_degree,
            "shard": ranks if zero and p.data_parallel_replicate_degree > 1 else 0}


def titan_stages(parts, chunks_of, pp):
    layers = [sum(name.startswith("layers.") for name in part) for part in parts]
    return [[layers[i] for i in chunks_of(rank)] for rank in range(pp)]


class NoRecipe(Exception):
    """The file says that torchtitan ships no recipe of this model."""


def torchtitan(source):
    """Its ConfigManager, ParallelDims, the model's check of the configuration, and how it cuts the model into stages."""
    sys.path.insert(0, source)
    os.chdir(source)  # recipes name files of it
    import torch._dynamo.testing, torch._inductor.compile_fx
    Named(*TITAN_DATA)
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed import ParallelDims, pipeline_parallel
    folder = tempfile.mkdtemp()
    sys.path.insert(0, folder)

    def read(path, facts):
        text = open(path).read()
        if 'os.environ.get("TORCHTITAN_RECIPE", "")' in text:
            raise NoRecipe
        name = "layout_" + os.path.basename(path).split(".")[0]
        with open(os.path.join(folder, name + ".py"), "w") as f:
            f.write(text)
        importlib.invalidate_caches()
        a_device(torch, facts["layout"]["precision"])
        torch.cuda.is_available = lambda: True
        config = ConfigManager().parse_args(["--module", name, "--config", "partune_layout"])
        dims = ParallelDims.from_config(config.parallelism, facts["layout"]["world"])
        config.model_spec.model.update_from_config(config=config)
        type(config).__post_init__(config)  # after the file has changed it, as a recipe's own is checked
        return titan_layout(config, dims, facts, pipeline_parallel)
    return "torchtitan", read


def titan_layout(config, dims, facts, pipeline):
    p, t, seq = config.parallelism, config.training, facts["workload"]["seq"]
    back = {
        "tp": p.tensor_parallel_degree, "cp": p.context_parallel_degree, "pp": p.pipeline_parallel_degree,
        "ep": p.expert_parallel_degree, "sp": int(p.enable_sequence_parallel and p.tensor_parallel_degree > 1),
        "micro_batch": t.num_tokens_per_microbatch_per_dp_rank / seq, "global_batch": t.num_tokens_per_train_step / seq,
        "seq": t.max_context_length, "tp_overlap": int(config.compile.enable_async_tensor_parallel),
        "cuda_graphs": "none" if t.disable_cuda_graphs else "iteration",
        "offload_params": int(t.enable_cpu_offload), "offload_optimizer": 100 * t.enable_cpu_offload,
        "recompute": {"FullAC": "full", "SelectiveAC": "selective", "NoneType": "none"}[
            type(config.activation_checkpoint).__qualname__.split(".")[0]],
        "precision": titan_precision(config), **titan_sharding(p),
    }
    if facts["model"].get("moe"):
        back["etp"] = 1 if p.expert_parallel_degree > 1 else p.tensor_parallel_degree
    if dims.pp > 1:
        stages, layers, first, last = pipeline._get_pipeline_metadata(dims, p, config.model_spec.model)
        parts = p.module_fqns_per_model_part or pipeline._generate_llm_fqn_per_model_part(stages, layers, first, last)
        chunks = lambda rank: pipeline._get_pp_rank_to_stage_indices_mapping(rank, dims.pp, p.pipeline_parallel_schedule, len(parts))
        back.update(schedule=TITAN_SCHEDULES[p.pipeline_parallel_schedule], vp=len(parts) // dims.pp,
                    stages=titan_stages(parts, chunks, dims.pp))
        rounds = back["global_batch"] / (back["micro_batch"] * back["dp"])
        assert rounds % p.num_pp_microbatches == 0, f"{rounds} micro-batches, {p.num_pp_microbatches} in a pipeline"
    return back


def titan_precision(config):
    from torchtitan.components.quantization import utils
    if not utils.has_quantization(config.model_spec.model):
        return {"bfloat16": "bf16", "float32": "fp32"}[config.training.mixed_precision_param]
    from torchtitan.models.common import Linear
    kinds = {type(node).__qualname__ for _, node, *_ in config.model_spec.model.traverse(Linear.Config)}
    narrow = [precision for word, precision in (("NVFP4", "nvfp4"), ("MXFP8", "mxfp8"), ("Float8", "fp8"))
              if any(word in kind for kind in kinds)]
    assert len(narrow) == 1, kinds
    return narrow[0]


def torchtitan_toml(source):
    """The releases up to v0.2.2: the TOML, the job's configuration and ParallelDims."""
    sys.path.insert(0, source)
    os.chdir(source)
    import torch._dynamo.testing, torch._inductor.compile_fx  # noqa: F401
    Named(*TITAN_DATA)
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed import pipeline_parallel as pipeline

    def read(path, facts):
        config = ConfigManager().parse_args(["--job.config_file", path])
        p, t = config.parallelism, config.training
        dims = ParallelDims(dp_replicate=p.data_parallel_replicate_degree, dp_shard=p.data_parallel_shard_degree,
                            cp=p.context_parallel_degree, tp=p.tensor_parallel_degree, pp=p.pipeline_parallel_degree,
                            ep=p.expert_parallel_degree, etp=p.expert_tensor_parallel_degree, world_size=facts["layout"]["world"])
        mode = config.activation_checkpoint.mode
        back = {"tp": dims.tp, "cp": dims.cp, "pp": dims.pp, "ep": dims.ep, "seq": t.seq_len,
                "global_batch": t.global_batch_size, "tp_overlap": int(p.enable_async_tensor_parallel),
                "micro_batch": p.pipeline_parallel_microbatch_size if dims.pp > 1 else t.local_batch_size, "recompute": mode,
                "offload_params": int(t.enable_cpu_offload), "offload_optimizer": 100 * t.enable_cpu_offload, "sp": int(dims.tp > 1),
                "precision": {"bfloat16": "bf16", "float32": "fp32"}[t.mixed_precision_param], **titan_sharding(p)}
        if facts["model"].get("moe"):
            back["etp"] = dims.etp if dims.ep > 1 else dims.tp
        if dims.pp > 1:
            layers, per = facts["model"]["layers"], p.pipeline_parallel_layers_per_stage
            first, last = p.pipeline_parallel_first_stage_less_layers, p.pipeline_parallel_last_stage_less_layers
            parts = p.module_fqns_per_model_part or pipeline.generate_llm_fqn_per_model_part(
                -(-(layers + first + last) // per), layers, first, last)
            v = p.pipeline_parallel_schedule in ("ZBVZeroBubble", "DualPipeV")
            chunks = lambda rank: (rank, len(parts) - 1 - rank) if v else range(rank, len(parts), dims.pp)
            back.update(schedule=TITAN_SCHEDULES[p.pipeline_parallel_schedule], vp=len(parts) // dims.pp,
                        stages=titan_stages(parts, chunks, dims.pp))
        return back
    return "torchtitan-toml", read


# ---- DeepSpeed ----

def deepspeed(source):
    """DeepSpeedConfig with the world of the layout, and what the engine asks of tensor and expert parallelism. Ranks are those
    of PyTorch's own fake process group: they are counted, and never talk."""
    sys.path.insert(0, source)
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK="0")
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore
    import deepspeed as package
    from deepspeed import comm
    package.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # ranks that are counted share no memory
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.pipe.topology import PipeDataParallelTopology, PipelineParallelGrid
    from deepspeed.module_inject.auto_ep_config import validate_autoep_config

    def read(path, facts):
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=facts["layout"]["world"])
        comm.init_distributed("fake", dist_init_required=False)
        stages = facts["layout"]["pp"]  # of a PipelineModule, which is the user's code
        grid = PipelineParallelGrid(PipeDataParallelTopology(stages, facts["layout"]["world"] // stages)) if stages > 1 else None
        c = DeepSpeedConfig(path, grid)
        assert c.world_size == facts["layout"]["world"] // stages
        zero, tp, experts = c.zero_config, c.tensor_parallel_config.autotp_size or 1, c.expert_parallel_config
        if experts:
            validate_autoep_config(experts, c.world_size, 1, tp, 1, zero_stage=c.zero_optimization_stage,
                                   tp_preset_model=getattr(c.tensor_parallel_config, "preset_model", None),
                                   zero_offload_optimizer=zero.offload_optimizer is not None,
                                   zero_offload_param=zero.offload_param is not None)
        back = deepspeed_layout(c, tp, experts)
        if facts["model"].get("moe"):
            back["etp"] = tp if back["ep"] == 1 else experts.expert_tensor_parallel_size
        if stages > 1:
            back["schedule"] = facts["layout"]["schedule"]  # is the user's code, too
        alone = facts["layout"]["dp"] * facts["layout"]["cp"] == 1 and (back["offload_params"] or back["offload_optimizer"])
        return {**back, "zero": 0} if alone else back
    return "deepspeed", read


def deepspeed_layout(c, tp, experts):
    zero, state = c.zero_config, c.zero_config.offload_optimizer
    dp = c.world_size // tp
    back = {
        "tp": tp, "ep": experts.autoep_size if experts else 1, "micro_batch": c.train_micro_batch_size_per_gpu,
        "global_batch": c.train_micro_batch_size_per_gpu * c.gradient_accumulation_steps * dp,
        "zero": int(c.zero_optimization_stage), "shard": max(zero.mics_shard_size, 0),
        "precision": "bf16" if c.bfloat16_config.enabled else "fp32",
        "offload_params": int(zero.offload_param is not None and zero.offload_param.device == "cpu"),
        "offload_optimizer": round(100 * state.ratio) if state is not None and state.device == "cpu" else 0,
        "overlap_grad_reduce": int(bool(zero.overlap_comm)) if c.zero_optimization_stage else 0,
    }
    if c.bfloat16_config.enabled:
        back["grad_dtype"] = str(c.grad_accum_dtype)
        assert {"torch.bfloat16": "bf16", "torch.float32": "fp32"}[str(c.communication_data_type)] == c.grad_accum_dtype
    return back


# ---- Accelerate ----

def accelerate(_):
    """What `accelerate launch` reads of the file, and the plugins that the training script then builds from its environment."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands import launch
    from accelerate.utils import FullyShardedDataParallelPlugin, MegatronLMPlugin
    from accelerate.parallelism_config import ParallelismConfig

    def read(path, facts):
        yaml = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        yaml.write(open(path).read())
        yaml.flush()
        load_config_from_file(yaml.name)
        args = launch.launch_command_parser().parse_args(["--config_file", yaml.name, "train.py"])
        args, defaults, mixed = launch._validate_launch_command(args)
        env = launch.prepare_multi_gpu_env(args)
        back = {"precision": {"no": "fp32", "bf16": "bf16"}[env.get("ACCELERATE_MIXED_PRECISION", mixed and args.mixed_precision)]}
        assert args.num_processes == facts["layout"]["world"]
        saved = dict(os.environ)
        os.environ.update(env)
        try:
            if args.use_fsdp:
                back.update(accelerate_fsdp(FullyShardedDataParallelPlugin(), ParallelismConfig()))
            elif args.use_megatron_lm:
                back.update(accelerate_megatron(MegatronLMPlugin(), facts))
            else:
                back.update(tp=1, pp=1, cp=1, ep=1, zero=0)
        finally:
            os.environ.clear()
            os.environ.update(saved)
        return back
    return "accelerate", read


def accelerate_fsdp(plugin, mesh):
    return {"tp": mesh.tp_size, "cp": mesh.cp_size, "dp": mesh.dp_replicate_size * mesh.dp_shard_size,
            "zero": 3 if plugin.reshard_after_forward else 2, "recompute": "full" if plugin.activation_checkpointing else "none",
            "offload_params": int(type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"),
            "offload_optimizer": 100 * (type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"),
            "shard": mesh.dp_shard_size * mesh.cp_size if mesh.dp_replicate_size > 1 else 0}


def accelerate_megatron(plugin, facts):
    back = {"tp": plugin.tp_degree, "pp": plugin.pp_degree, "sp": int(bool(plugin.sequence_parallelism)),
            "offload_optimizer": 100 * bool(plugin.optimizer_cpu_offload), "cp": plugin.context_parallel_size or 1, "zero": int(bool(plugin.use_distributed_optimizer)),
            "recompute": plugin.recompute_granularity or "none", "schedule": "1f1b"}
    if facts["model"].get("moe"):
        back.update(ep=plugin.expert_model_parallel_size, etp=plugin.expert_tensor_parallel_size)
    if back["recompute"] == "full":
        back.update(recompute_method=plugin.recompute_method, recompute_num_layers=plugin.recompute_num_layers)
    return back


TARGETS = {"megatron": megatron, "torchtitan": torchtitan, "torchtitan-toml": torchtitan_toml, "deepspeed": deepspeed,
           "accelerate": accelerate}


def main():
    name, source, directory = sys.argv[1:]
    quiet, sys.stdout = sys.stdout, sys.stderr  # targets talk
    target, read = TARGETS[name](source)
    seen, count, skipped, kinds = 0, 0, 0, collections.defaultdict(list)
    for path in sorted(os.listdir(directory)):
        if path.split(".", 1)[1:] != [target]:
            continue
        seen += 1
        if seen % int(os.environ.get("PT_EVERY", 1)):
            continue
        count += 1
        facts = json.load(open(os.path.join(directory, path.split(".")[0] + ".facts")))
        try:
            back = read(os.path.join(directory, path), facts)
        except NoRecipe:
            skipped += 1
            continue
        except (Exception, SystemExit) as e:  # noqa: BLE001 - whatever it refuses by is the finding
            text = f"{type(e).__name__}: {e}".splitlines()[0]
            kinds["refused: " + re.sub(r"\d+", "N", text)].append(f"{path}: {text}")
            if os.environ.get("PT_TRACE"):
                import traceback
                traceback.print_exc()
            continue
        for key, text in differences(back, facts, facts["lost"][target]):
            kinds[key].append(f"{path}: {text}")
    sys.stdout = quiet
    for kind, found in sorted(kinds.items()):
        print(*found, sep="\n", file=sys.stderr)
        print(f"# {len(found)} x {kind}: {found[0]}")
    print(f"{'ok' if count and not kinds else 'not ok'} - {name}: {count} files, {skipped} of them of models without a recipe, {len(kinds)} kinds of findings")
    sys.exit(bool(kinds) or not count)


if __name__ == "__main__":
    main()
