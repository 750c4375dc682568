"""What exported Python functions are run against: configurations that have the fields of Megatron-Bridge (067f987d, over
Megatron-LM d98e8a64) and torchtitan (b5bcd76c) by name, as recipes leave them, with everything switched on that a layout has
to switch off. A field that the target does not have is an error here, too."""
import dataclasses, types


def record(title, slots=False, **fields):
    return dataclasses.make_dataclass(title, [(k, object, dataclasses.field(default_factory=lambda v=v: v)) for k, v in fields.items()],
                                      slots=slots)


# ---- Megatron-Bridge ----

PARALLEL = dict(tensor_model_parallel_size=8, pipeline_model_parallel_size=4, virtual_pipeline_model_parallel_size=5,
                context_parallel_size=2, cp_comm_type="a2a", hierarchical_context_parallel_sizes=[2, 1], expert_model_parallel_size=4, expert_tensor_parallel_size=2, sequence_parallel=False,
                pipeline_dtype="the recipe's", pipeline_model_parallel_layout="Et|tL", num_layers_in_first_pipeline_stage=3,
                num_layers_in_last_pipeline_stage=2, account_for_embedding_in_pipeline_split=True,
                account_for_loss_in_pipeline_split=True, microbatch_group_size_per_vp_stage=7)
TRANSFORMER = dict(num_layers=0, hidden_size=0, recompute_granularity="full", recompute_method="block", recompute_num_layers=4,
                   recompute_modules=["moe", "mlp"], overlap_p2p_comm=True, batch_p2p_comm=True,
                   overlap_moe_expert_parallel_comm=True, delay_wgrad_compute=True, tp_comm_overlap=True,
                   defer_embedding_wgrad_compute=True, gradient_accumulation_fusion=True, init_model_with_meta_device=True,
                   mtp_num_layers=1, cuda_graph_impl="local", cuda_graph_modules="full", cuda_graph_scope=["full_iteration"],
                   moe_flex_dispatcher_backend="deepep", moe_router_dtype=None, cpu_offloading=True, cpu_offloading_num_layers=9, cpu_offloading_activations=False,
                   cpu_offloading_weights=True, fine_grained_activation_offloading=True,
                   moe_token_dispatcher_type="flex", moe_grouped_gemm=True, moe_shared_expert_overlap=True,
                   moe_router_load_balancing_type="global_aux_loss", moe_aux_loss_coeff=0.5, moe_z_loss_coeff=None, **PARALLEL)
Transformer = record("TransformerConfig", **TRANSFORMER)
Provider = record("GPTModelProvider", seq_length=1, vocab_size=100, **TRANSFORMER)


@dataclasses.dataclass
class Model:
    """The later form: sizes lie on the model's transformer and are seen through it."""
    transformer: object = dataclasses.field(default_factory=Transformer)
    seq_length: int = 1
    vocab_size: int = 100

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "transformer"), name)


Ddp = record("DistributedDataParallelConfig", use_distributed_optimizer=True, use_megatron_fsdp=True,
             data_parallel_sharding_strategy="optim_grads_params", num_distributed_optimizer_instances=2,
             check_for_nan_in_grad=True, overlap_grad_reduce=True, overlap_param_gather=True, align_param_gather=True, average_in_collective=True,
             grad_reduce_in_fp32=True, megatron_fsdp_main_grads_dtype="the recipe's", megatron_fsdp_grad_comm_dtype="the recipe's")
Optimizer = record("OptimizerConfig", use_distributed_optimizer=True, overlap_param_gather=True,
                   overlap_param_gather_with_optimizer_step=True, optimizer_cpu_offload=True, optimizer_offload_fraction=0.0,
                   overlap_cpu_optimizer_d2h_h2d=False, use_precision_aware_optimizer=False, lr=1e-4)
Dist = record("DistributedInitConfig", use_megatron_fsdp=True, use_torch_fsdp2=True)
Checkpoint = record("CheckpointConfig", ckpt_format="fsdp_dtensor", save=None)
Train = record("TrainingConfig", micro_batch_size=9, global_batch_size=9, train_iters=9)
Dataset = record("GPTDatasetConfig", seq_length=1)
Rng = record("RNGConfig", te_rng_tracker=False)
Rerun = record("RerunStateMachineConfig", check_for_nan_in_loss=True)
Mixed = record("MixedPrecisionConfig", name=None, grad_reduce_in_fp32=True, fp8_param_gather="the recipe's", fp4_param_gather="the recipe's",
               first_last_layers_bf16="the recipe's", reuse_grad_buf_for_mxfp8_param_ag="the recipe's")
Container = record("ConfigContainer", model=None, ddp=None, optimizer=None, dist=None, checkpoint=None, train=None, dataset=None,
                   rng=None, rerun_state_machine=None, comm_overlap="the recipe's", mixed_precision="bf16_with_mxfp8_mixed",
                   env_vars=None)


def bridge_recipe(facts, form):
    model = form()
    sizes = model.transformer if form is Model else model
    sizes.num_layers, sizes.hidden_size = facts["model"]["layers"], facts["model"]["hidden"]
    return Container(model=model, ddp=Ddp(), optimizer=Optimizer(), dist=Dist(), checkpoint=Checkpoint(), train=Train(),
                     dataset=Dataset(), rng=Rng(), rerun_state_machine=Rerun(), env_vars={"CUDA_DEVICE_MAX_CONNECTIONS": 8, "NCCL_DEBUG": "WARN"})


def bridge_modules():
    torch = types.ModuleType("torch")
    torch.bfloat16, torch.float32 = "torch.bfloat16", "torch.float32"
    mixed = types.ModuleType("megatron.bridge.training.mixed_precision")
    mixed.MixedPrecisionConfig = lambda **k: types.SimpleNamespace(**k)
    mixed.get_mixed_precision_config = lambda name: Mixed(name=name)
    return {"torch": torch, "megatron": types.ModuleType("megatron"), "megatron.bridge": types.ModuleType("megatron.bridge"),
            "megatron.bridge.training": types.ModuleType("megatron.bridge.training"), mixed.__name__: mixed}


# ---- torchtitan: its configurations have slots, so that a name that they lack is an error by itself ----

Training = record("TrainingConfig", True, num_tokens_per_microbatch_per_dp_rank=1, num_tokens_per_train_step=-1,
                  max_context_length=1, max_norm=1.0, steps=9, enable_cpu_offload=True, disable_cuda_graphs=False,
                  dtype="bfloat16", mixed_precision_param="float32", mixed_precision_reduce="float32")
Parallelism = record("ParallelismConfig", True, data_parallel_replicate_degree=3, data_parallel_shard_degree=-1,
                     fsdp_reshard_after_forward="default", tensor_parallel_degree=8, enable_sequence_parallel=True,
                     spmd_backend="spmd_types", pipeline_parallel_degree=1, module_fqns_per_model_part=[["layers.0"]],
                     pipeline_parallel_first_stage_less_layers=1, pipeline_parallel_last_stage_less_layers=1,
                     pipeline_parallel_layers_per_stage=7, pipeline_parallel_schedule="DualPipeV",
                     pipeline_parallel_schedule_csv="the recipe's", num_pp_microbatches=1, context_parallel_degree=1,
                     context_parallel_load_balancer="headtail", expert_parallel_degree=1)
Compile = record("CompileConfig", True, enable=True, enable_async_tensor_parallel=True, components=["model"], backend="inductor")
Debug = record("DebugConfig", True, moe_force_load_balance="the recipe's")
Trainer = record("Config", True, model_spec=None, loss="the recipe's", training=None, parallelism=None, compile=None, debug=None,
                 activation_checkpoint="the recipe's")
MTPLoss = types.SimpleNamespace(Config=record("MTPLoss", True, mtp_scale=0.1, global_vocab_size=None))
Spec = record("ModelSpec", name="made_up", flavor="9B", model=None)


def titan_recipe(facts, quantized):
    model = types.SimpleNamespace(layers=list(range(facts["model"]["layers"])), dim=facts["model"]["hidden"], quantized=quantized, mtp_layers=0)
    return Trainer(model_spec=Spec(model=model), training=Training(), parallelism=Parallelism(), compile=Compile(), debug=Debug())


def titan_modules(facts, recipe):
    def module(name, **contents):
        made[name] = types.ModuleType(name)
        made[name].__dict__.update(contents)

    def registry(flavor, converters=(), num_mtp_layers=0):
        again = titan_recipe(facts, [c.kind for c in converters]).model_spec
        again.flavor = flavor
        again.model.mtp_layers = num_mtp_layers
        return again

    policy = lambda kind: type(kind, (), {"Config": staticmethod(lambda: kind)})
    converter = lambda name, kind: type(name, (), {"Config": staticmethod(lambda **k: types.SimpleNamespace(kind=kind, **k))})
    made = {}
    for name in ("torchtitan", "torchtitan.components", "torchtitan.distributed", "torchtitan.models", "torchtitan.models.common"):
        module(name)
    module("torchtitan.models.common.config_utils", decoder_vocab_size=lambda spec: facts["model"]["vocab"])
    module("torchtitan.trainer", Trainer=type("Trainer", (), {"Config": Trainer}))
    module("torchtitan.distributed.activation_checkpoint", FullAC=policy("full"), SelectiveAC=policy("selective"))
    module("torchtitan.components.quantization", Float8LinearConverter=converter("Float8LinearConverter", "fp8"),
           MXFP8LinearConverter=converter("MXFP8LinearConverter", "mxfp8"),
           NVFP4LinearConverter=converter("NVFP4LinearConverter", "nvfp4"))
    module("torchtitan.components.quantization.utils", has_quantization=lambda m: bool(m.quantized))
    module("torchtitan.models.made_up", model_registry=registry, MTPLoss=MTPLoss)
    module("torchtitan.models.made_up.config_registry", a_recipe=lambda: recipe)
    return made
