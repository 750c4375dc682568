/*
 * Megatron-Bridge: a Python function that puts the layout on a recipe's configuration, and the
 * program that trains with it.
 *
 * A recipe has settings of its own, and not every one can be said on a command line: its
 * comm_overlap may be None, its sizes lie on the model or on the model's transformer. So every
 * field of the layout is set on the configuration itself, what the layout does not use is reset (a
 * pipeline layout, prediction of several tokens, overlap of tensor parallelism, CUDA graphs,
 * offloading), and a field that the configuration does not have is an error.
 */
#include "tuner/export/offload.h"
#include "tuner/export/switches.h"

static void put(struct str *out, const char *owner)
{
    str_addf(out, "    put(config.%s,\n", owner);
}

static void put_end(struct str *out)
{
    str_add(out, "        )\n");
}

static void number(struct str *out, const char *name, int value)
{
    str_addf(out, "        %s=%d,\n", name, value);
}

static void flag(struct str *out, const char *name, bool value)
{
    str_addf(out, "        %s=%s,\n", name, value ? "True" : "False");
}

static void text(struct str *out, const char *name, const char *value)
{
    if (value)
        str_addf(out, "        %s=\"%s\",\n", name, value);
    else
        str_addf(out, "        %s=None,\n", name);
}

/* The layers of every stage, where they neither divide nor are counted with embedding and loss. */
static void stages(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    int last = l->pp * l->vp - 1;
    bool embedding, loss;

    if (tn_megatron_even(in) || tn_megatron_counts(&embedding, &loss, in)) {
        text(out, "pipeline_model_parallel_layout", NULL);
        return;
    }
    str_add(out, "        pipeline_model_parallel_layout=[\n");
    for (int run = 0; run <= last; run++) {
        int first, n = pl_run_layers(&first, l, in->model->layers, run);

        str_addf(out, "            %s[\"decoder\"] * %d", run ? "" : "[\"embedding\"] + ", n);
        if (run == last && in->model->mtp)
            str_addf(out, " + [\"mtp\"] * %d", in->model->mtp);
        str_addf(out, "%s,\n", run == last ? " + [\"loss\"]" : "");
    }
    str_add(out, "        ],\n");
}

static void write_parallel(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    bool embedding, loss;

    tn_megatron_counts(&embedding, &loss, in);
    number(out, "tensor_model_parallel_size", l->tp);
    number(out, "context_parallel_size", l->cp);
    if (l->cp > 1)
        text(out, "cp_comm_type", tn_megatron_cp_comm(l));
    if (l->cp_comm == PL_CP_A2A_P2P)
        str_addf(out, "        hierarchical_context_parallel_sizes=[%d, %d],\n", tn_cp_inner(in),
                 l->cp / tn_cp_inner(in));
    else if (l->cp > 1)
        text(out, "hierarchical_context_parallel_sizes", NULL);
    number(out, "pipeline_model_parallel_size", l->pp);
    if (l->vp > 1)
        number(out, "virtual_pipeline_model_parallel_size", l->vp);
    else
        text(out, "virtual_pipeline_model_parallel_size", NULL);
    stages(out, in);
    text(out, "num_layers_in_first_pipeline_stage", NULL);
    text(out, "num_layers_in_last_pipeline_stage", NULL);
    flag(out, "account_for_embedding_in_pipeline_split", embedding);
    flag(out, "account_for_loss_in_pipeline_split", loss);
    text(out, "microbatch_group_size_per_vp_stage", NULL);
    str_addf(out, "        pipeline_dtype=%s,\n",
             l->pp == 1                ? "None"
             : l->precision == PL_FP32 ? "torch.float32"
                                       : "torch.bfloat16");
    number(out, "expert_model_parallel_size", l->ep);
    number(out, "expert_tensor_parallel_size", l->etp);
}

static void write_recompute(struct str *out, const struct pl_layout *layout)
{
    bool full = layout->recompute == PL_RECOMPUTE_FULL,
         selective = layout->recompute == PL_RECOMPUTE_SELECTIVE;

    text(out, "recompute_granularity", full ? "full" : selective ? "selective" : NULL);
    text(out, "recompute_method", full ? tn_megatron_recompute_method(layout) : NULL);
    if (full)
        number(out, "recompute_num_layers", layout->recompute_num_layers);
    else
        text(out, "recompute_num_layers", NULL);
    if (!selective) {
        text(out, "recompute_modules", NULL);
        return;
    }
    str_add(out, "        recompute_modules=[");
    tn_megatron_modules(out, layout, ", ", "\"");
    str_add(out, "],\n");
}

/* The scope, which came before the modules, may say what no implementation does. */
static void write_graphs(struct str *out, const struct tn_export_in *in)
{
    static const char *const impl[] = {"none", "transformer_engine", "full_iteration"};

    text(out, "cuda_graph_impl", impl[tn_megatron_graphed(in)]);
    text(out, "cuda_graph_scope", NULL);
    str_add(out, "        cuda_graph_modules=[");
    tn_megatron_graphs(out, in, ", ", "\"");
    str_add(out, "],\n");
}

static void write_offloading(struct str *out, const struct tn_export_in *in)
{
    int layers = tn_megatron_offloaded_layers(in);

    flag(out, "cpu_offloading", layers > 0);
    if (!layers)
        return;
    number(out, "cpu_offloading_num_layers", layers);
    flag(out, "cpu_offloading_activations", true);
    flag(out, "cpu_offloading_weights", false);
}

static void write_model(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    const char *backend;

    put(out, "model");
    write_parallel(out, in);
    number(out, "seq_length", in->workload->seq);
    write_recompute(out, l);
    flag(out, "overlap_p2p_comm", tn_megatron_overlaps_p2p(l));
    flag(out, "batch_p2p_comm", l->pp > 1 && !tn_megatron_overlaps_p2p(l));
    flag(out, "overlap_moe_expert_parallel_comm", tn_megatron_overlaps_experts(l));
    tn_bridge_switches(out, l, "model");
    if (pl_model_is_moe(in->model)) {
        text(out, "moe_router_load_balancing_type", tn_megatron_aux_loss(in->model));
        str_addf(out, "        moe_aux_loss_coeff=%.10g,\n",
                 pl_aux_loss_coef(in->model, PL_AUX_MEGATRON));
        if (in->model->moe.z_loss_coef > 0)
            str_addf(out, "        moe_z_loss_coeff=%.10g,\n", in->model->moe.z_loss_coef);
        text(out, "moe_token_dispatcher_type", tn_megatron_dispatcher(&backend, l));
        if (backend) {
            text(out, "moe_flex_dispatcher_backend", backend);
            text(out, "moe_router_dtype", "fp32");
        }
        flag(out, "moe_grouped_gemm", l->precision != PL_FP32); /* its kernels know no fp32 */
    }
    if (tn_megatron_fsdp(l)) /* else the recipe's own kernels decide */
        flag(out, "gradient_accumulation_fusion", false);
    flag(out, "init_model_with_meta_device", tn_megatron_fsdp(l));
    if (in->model->mtp)
        number(out, "mtp_num_layers", in->model->mtp);
    else
        text(out, "mtp_num_layers", NULL);
    if (in->model->moe.force_balance)
        flag(out, "moe_router_force_load_balancing", true);
    write_graphs(out, in);
    write_offloading(out, in);
    flag(out, "fine_grained_activation_offloading", false);
    put_end(out);
}

/* The hybrid optimizer takes the path of the precision-aware one, of the distributed optimizer. */
static void write_optimizer(struct str *out, const struct tn_export_in *in, bool sharded)
{
    bool offloads = tn_megatron_offloads_optimizer(in);

    str_addf(out,
             "    put(config.optimizer, use_distributed_optimizer=%s, overlap_param_gather=%s,\n"
             "        overlap_param_gather_with_optimizer_step=False, optimizer_cpu_offload=%s)\n",
             sharded ? "True" : "False", tn_megatron_gathers(in->layout) ? "True" : "False",
             offloads ? "True" : "False");
    if (offloads)
        str_addf(
            out,
            "    put(config.optimizer, optimizer_offload_fraction=%.2f,\n"
            "        overlap_cpu_optimizer_d2h_h2d=True, use_precision_aware_optimizer=True)\n",
            in->layout->offload_optimizer / 100.0);
}

static void write_sharding(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *layout = in->layout;
    bool fsdp = tn_megatron_fsdp(layout),
         sharded = layout->zero > 0 || tn_megatron_offloads_optimizer(in);

    put(out, "ddp");
    flag(out, "use_distributed_optimizer", sharded);
    flag(out, "use_megatron_fsdp", fsdp);
    text(out, "data_parallel_sharding_strategy",
         !fsdp               ? "no_shard"
         : layout->zero == 2 ? "optim_grads"
                             : "optim_grads_params");
    number(out, "num_distributed_optimizer_instances", pl_shard_copies(layout));
    tn_bridge_switches(out, layout, "ddp");
    flag(out, "overlap_param_gather", tn_megatron_gathers(layout));
    flag(out, "align_param_gather", layout->vp > 1 && tn_megatron_gathers(layout));
    if (fsdp) {
        flag(out, "average_in_collective", false);
        str_addf(
            out,
            "        megatron_fsdp_main_grads_dtype=torch.%s, megatron_fsdp_grad_comm_dtype=None,"
            "\n",
            layout->grad_dtype == PL_GRADS_BF16 ? "bfloat16" : "float32");
    }
    put_end(out);
    write_optimizer(out, in, sharded);
    str_addf(out, "    put(config.dist, use_megatron_fsdp=%s, use_torch_fsdp2=False)\n",
             fsdp ? "True" : "False");
    str_addf(out, "    put(config.checkpoint, ckpt_format=\"%s\")\n",
             fsdp ? "fsdp_dtensor" : "torch_dist");
}

/* Its recipes gather narrow weights, and keep layers at the ends in bf16, unless told otherwise. */
static void write_narrow(struct str *out, const struct pl_layout *layout)
{
    static const char *const recipes[PL_PRECISIONS] = {
        [PL_FP8] = "fp8_delayed_scaling",
        [PL_FP8_CURRENT] = "fp8_current_scaling",
        [PL_FP8_BLOCKWISE] = "fp8_subchannel_scaling",
        [PL_MXFP8] = "mxfp8",
        [PL_NVFP4] = "nvfp4",
    };
    const char *gather = layout->fp8_param_gather ? "True" : "False";

    str_addf(out,
             "    mixed_precision = get_mixed_precision_config(\"bf16_with_%s_mixed\")\n"
             "    put(mixed_precision, %s_param_gather=%s, first_last_layers_bf16=False",
             recipes[layout->precision], layout->precision == PL_NVFP4 ? "fp4" : "fp8", gather);
    if (layout->precision == PL_MXFP8)
        str_addf(out, ", reuse_grad_buf_for_mxfp8_param_ag=%s", gather);
    str_add(out, ")\n");
}

/* Gradients of Megatron-FSDP have fields of their own (grads.c). */
static bool has_half_grads(const struct pl_layout *layout)
{
    return layout->grad_dtype == PL_GRADS_BF16 && !tn_megatron_fsdp(layout);
}

/* Is the mixed precision an object rather than the name of one? */
static bool has_mixed(const struct pl_layout *layout)
{
    return layout->precision >= PL_FP8 || has_half_grads(layout);
}

static void write_precision(struct str *out, const struct pl_layout *layout)
{
    if (layout->precision == PL_FP32)
        str_add(out, "    mixed_precision = MixedPrecisionConfig(\n"
                     "        params_dtype=torch.float32, pipeline_dtype=torch.float32)\n");
    else if (layout->precision == PL_BF16)
        str_add(out, has_mixed(layout)
                         ? "    mixed_precision = get_mixed_precision_config(\"bf16_mixed\")\n"
                         : "    mixed_precision = \"bf16_mixed\"\n");
    else
        write_narrow(out, layout);
    if (has_half_grads(layout))
        str_add(out, "    put(mixed_precision, grad_reduce_in_fp32=False)\n");
    str_add(out, "    put(config, mixed_precision=mixed_precision)\n");
}

/* What graphs need: random numbers of Transformer Engine's, and in that of an iteration none of the
 * checks that wait for the device. */
static void write_graphs_needs(struct str *out, int graphs)
{
    if (graphs)
        str_add(out, "    put(config.rng, te_rng_tracker=True)\n");
    if (graphs == PL_GRAPHS_ITERATION)
        str_add(out, "    put(config.rerun_state_machine, check_for_nan_in_loss=False)\n"
                     "    put(config.ddp, check_for_nan_in_grad=False)\n");
}

/* A recipe's may be what the layout cannot run with. */
static void write_environment(struct str *out, const struct tn_export_in *in)
{
    str_add(out, "    environment = dict(config.env_vars)\n");
    if (tn_megatron_one_connection(in))
        str_add(out, "    environment[\"CUDA_DEVICE_MAX_CONNECTIONS\"] = 1  # before Blackwell\n");
    else if (tn_megatron_fsdp(in->layout))
        str_add(out, "    environment.pop(\"CUDA_DEVICE_MAX_CONNECTIONS\", None)\n");
    str_add(out, "    put(config, env_vars=environment)\n");
}

static void write_function(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_add(out, "\n\ndef put(config, **values):\n"
                 "    \"\"\"Set fields of CONFIG or of its transformer: one that neither has is an "
                 "error.\"\"\"\n"
                 "    for name, value in values.items():\n"
                 "        for owner in (config, getattr(config, \"transformer\", None)):\n"
                 "            if owner is not None and name in {field.name for field in "
                 "dataclasses.fields(owner)}:\n"
                 "                setattr(owner, name, value)\n"
                 "                break\n"
                 "        else:\n"
                 "            raise AttributeError(f\"{type(config).__name__} has no {name}: this "
                 "file is for another version\")\n");
    str_add(out, "\n\n# For a recipe of ");
    tn_add_clean(out, in->model->name);
    str_add(out, "\ndef with_partune_layout(config):\n    \"\"\"Put this layout on CONFIG, "
                 "the ConfigContainer of a recipe, and return it.\"\"\"\n");
    str_addf(
        out,
        "    sizes = (config.model.num_layers, config.model.hidden_size)\n"
        "    if sizes != (%d, %d):\n"
        "        raise ValueError(f\"the recipe has {sizes[0]} layers of width {sizes[1]}, the "
        "layout is for %d of %d\")\n",
        in->model->layers, in->model->hidden, in->model->layers, in->model->hidden);
    str_add(out, "    put(config, comm_overlap=None)  # it would override the settings below\n");
    write_model(out, in);
    str_addf(out, "    put(config.dataset, seq_length=%d)\n", in->workload->seq);
    str_addf(out, "    put(config.train, micro_batch_size=%d, global_batch_size=%d)\n",
             l->micro_batch, in->workload->global_batch);
    write_sharding(out, in);
    write_precision(out, l);
    write_graphs_needs(out, tn_megatron_graphed(in));
    write_environment(out, in);
    str_add(out, "    return config\n");
}

static void write_python(struct str *out, const struct tn_export_in *in,
                         const struct tn_findings *lost)
{
    (void)lost;
    str_add(
        out,
        "#\n# torchrun ... THIS_FILE RECIPE [KEY=VALUE ...]: train with the layout on RECIPE, a "
        "function of\n# megatron.bridge.recipes; KEY=VALUE are its overrides "
        "(train.train_iters=50); the layout takes precedence over them.\n\n"
        "import dataclasses\nimport sys\n");
    if (in->layout->pp > 1 || in->layout->precision == PL_FP32 || tn_megatron_fsdp(in->layout))
        str_add(out, "\nimport torch\n");
    if (in->layout->precision == PL_FP32)
        str_add(out, "from megatron.bridge.training.mixed_precision import MixedPrecisionConfig\n");
    if (has_mixed(in->layout))
        str_add(out, "\nfrom megatron.bridge.training.mixed_precision import "
                     "get_mixed_precision_config\n");
    write_function(out, in);
    str_add(out, "\n\nif __name__ == \"__main__\":\n"
                 "    from megatron.bridge import recipes\n"
                 "    from megatron.bridge.training.gpt_step import forward_step\n"
                 "    from megatron.bridge.training.pretrain import pretrain\n"
                 "    from megatron.bridge.training.utils.omegaconf_utils import "
                 "process_config_with_overrides\n\n"
                 "    if len(sys.argv) < 2:\n"
                 "        sys.exit(\"no recipe: name a function of megatron.bridge.recipes, such "
                 "as llama3_8b_pretrain_config\")\n"
                 "    recipe = getattr(recipes, sys.argv[1])()\n"
                 "    recipe = process_config_with_overrides(recipe, cli_overrides=sys.argv[2:] or "
                 "None)\n"
                 "    pretrain(config=with_partune_layout(recipe), "
                 "forward_step_func=forward_step)\n");
}

/* The model's own sizes are the recipe's; what would not start is a rule. */
static void gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const char *const *raised = tn_megatron_raises(in->model);
    const char *but[8] = {"rope_theta"};

    for (int i = 0; raised[i]; i++)
        but[i + 1] = raised[i];
    tn_gap_trainer(findings, in, "megatron", but);
}

/* The file is a program that sets the environment itself. */
static void line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    tn_torchrun(out, in);
    str_addf(out,
             "%s \"${RECIPE:?set it to a function of megatron.bridge.recipes, such as "
             "llama3_8b_pretrain_config}\" ${TRAIN_ARGS:-}",
             at->file);
}

const struct tn_exporter tn_export_bridge = {
    .name = "megatron-bridge",
    .title = "Megatron-Bridge configuration function and program (Python)",
    .version = "Megatron-Bridge of August 2026 (067f987d)",
    .media_type = "text/x-python; charset=utf-8",
    .extension = "py",
    .comment = "#",
    .trainer = "megatron",
    .says_batch = true,
    .gaps = gaps,
    .rules = tn_megatron_rules,
    .write = write_python,
    .line = line,
};
