/*
 * torchtitan, in its two forms: TOML up to v0.2.2, a Python function that changes a shipped recipe
 * after it.
 *
 * Units differ: the TOML counts sequences a data-parallel rank (local_batch_size), the later form
 * tokens. FSDP2 shards parameters and gradients with the optimizer's state: zero 1 does not exist
 * there, zero 2 is sharding without resharding after the forward pass, zero 3 with it, zero 0 is
 * replication. Gradient reduction and parameter gathers always overlap. The first and last stage
 * are told to be as long as the others, since our layers lie so; torchtitan cuts them as we do
 * where it comes to the same number of stages, and takes a list of modules elsewhere.
 *
 * In the TOML local_batch_size is what a replica holds of a step: with pp it is cut into
 * micro-batches of pipeline_parallel_microbatch_size, without pp it is one micro-batch and
 * global_batch_size says how many are accumulated.
 */
#include "tuner/export/internal.h"

/* FSDP2's one switch for weights, gradients and state. */
static bool offloads(const struct pl_layout *layout)
{
    return layout->offload_params && layout->offload_optimizer == 100;
}

/* Up to v0.2.2 a rank alone is not wrapped. */
static bool toml_offloads(const struct pl_layout *layout)
{
    return offloads(layout) && layout->zero;
}

static void offload_gaps(struct tn_findings *findings, const struct pl_layout *layout)
{
    static const char one[] =
        "enable_cpu_offload is offload_optimizer 100 with offload_params 1, of a sharded model";

    if (layout->offload_optimizer && !toml_offloads(layout))
        tn_finding_add(findings, "offload_optimizer", one);
    if (layout->offload_params && !toml_offloads(layout))
        tn_finding_add(findings, "offload_params", one);
}

static void toml_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    tn_gap_schedule(findings, in, true, true);
    if (l->zero == 1)
        tn_finding_add(findings, "zero", "FSDP shards gradients too: the nearest is zero 2");
    if (l->zero > 1 && l->dp * l->cp == 1)
        tn_finding_add(findings, "zero",
                       "sharding follows the data-parallel size of the whole model, which is 1");
    if (l->zero == 0 && l->cp > 1)
        tn_finding_add(findings, "zero", "with context parallelism FSDP shards over its %d ranks",
                       l->cp);
    tn_gap_split_experts(findings, in, "torchtitan");
    tn_gap_fsdp_overlap(findings, in, "torchtitan");
    tn_gap_precision(findings, in);
    tn_gap_scope(findings, in);
    if (l->shard % l->cp)
        tn_finding_add(findings, "shard", "FSDP shards over whole groups of cp %d", l->cp);
    tn_gap_flag(findings, in, "overlap_p2p", l->overlap_p2p, "torchtitan");
    tn_gap_flag(findings, in, "overlap_moe_a2a", l->overlap_moe_a2a, "torchtitan of August 2026");
    tn_gap_threads(findings, in);
    offload_gaps(findings, l);
    tn_gap_flag(findings, in, "cuda_graphs", l->cuda_graphs, "torchtitan up to v0.2.2");
    if (in->model->mtp)
        tn_finding_add(findings, "model.mtp", "torchtitan up to v0.2.2 predicts one token");
    if (in->model->moe.experts && in->model->moe.force_balance)
        tn_finding_add(findings, "model.moe.force_balance",
                       "its section differs between the releases up to v0.2.2: set it by hand");
    if (l->tp > 1 && !l->sp)
        tn_finding_add(findings, "sp", "sequence parallelism is always on with tensor parallelism");
    if (l->etp > 1 && l->etp != l->tp)
        tn_finding_add(findings, "etp", "expert_tensor_parallel_degree is 1 or tp");
}

/* Keys whose limits torchtitan raises itself: such a file would not start. NVFP4 asks for whole
 * tiles of every linear layer, the routers among them; fp8 leaves out what does not fit. */
static const char *const *raises(const struct pl_layout *layout)
{
    static const char *const keys[] = {"tp", "tied", "micro_batch", "pp", "cp", NULL};
    static const char *const tiled[] = {"tp", "tied", "micro_batch", "pp", "cp", "precision", NULL};

    return layout->precision == PL_NVFP4 ? tiled : keys;
}

static void python_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    tn_gap_trainer(findings, in, "torchtitan", raises(l));
    if (l->zero == 1 && l->overlap_param_gather != (l->dp * l->cp > 1))
        tn_finding_add(findings, "overlap_param_gather",
                       "zero 1 is written as FSDP, which gathers parameters ahead wherever dp x cp "
                       "is over 1, and only there");
    if (l->zero > 1 && l->dp * l->cp == 1 && l->ep == 1) /* placed experts are sharded over tp */
        tn_finding_add(findings, "zero",
                       "sharding follows the data-parallel size of the whole model, which is 1");
}

static int shard_degree(const struct pl_layout *layout)
{
    int copies = layout->shard % layout->cp ? 1 : pl_shard_copies(layout);

    return layout->zero ? layout->dp / copies : 1;
}

/* What is not sharded is replicated. */
static int replicate_degree(const struct pl_layout *layout)
{
    return layout->dp / shard_degree(layout);
}

/* Layers that the first and the last stage have less than the others. */
static int first_less(const struct pl_layout *layout)
{
    return layout->stages == PL_STAGES_BALANCED || layout->stages == PL_STAGES_BALANCED_EMBEDDING;
}

static int last_less(const struct pl_layout *layout)
{
    return layout->stages == PL_STAGES_BALANCED || layout->stages == PL_STAGES_BALANCED_LOSS;
}

/* Layers a stage as both forms take them, stages being then ceil((layers + what the ends have less)
 * / this); 0 where no number comes to our stages, which are listed then. */
static int layers_per_stage(const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    int stages = l->pp * l->vp, layers = in->model->layers + first_less(l) + last_less(l);
    int per = (layers + stages - 1) / stages;

    return l->stages < PL_STAGES_WORDS && (layers + per - 1) / per == stages ? per : 0;
}

/* ["tok_embeddings", "layers.0", ...]: what virtual stage RUN holds. HEAD is the name of the output
 * projection. */
static void add_modules(struct str *out, const struct tn_export_in *in, int run, const char *head)
{
    const struct pl_layout *l = in->layout;
    int first, n = pl_run_layers(&first, l, in->model->layers, run);
    bool last = run == l->pp * l->vp - 1;

    str_add(out, "[");
    if (run == 0)
        str_addf(out, "\"tok_embeddings\"%s", n ? ", " : "");
    for (int i = 0; i < n; i++)
        str_addf(out, "%s\"layers.%d\"", i ? ", " : "", first + i);
    if (last)
        str_addf(out, "%s\"norm\", \"%s\"", n ? ", " : "", head);
    str_add(out, "]");
}

/* ETP of the experts as the form has it: the later one has none. */
static void rules(struct tn_findings *findings, const struct tn_export_in *in, int etp)
{
    const struct pl_layout *l = in->layout;

    if ((shard_degree(l) * l->cp * l->tp) % (l->ep * etp))
        tn_finding_add(
            findings, "ep", "dp_shard x cp x tp = %d is not a multiple of ep %d x etp %d%s",
            shard_degree(l) * l->cp * l->tp, l->ep, etp, l->zero ? "" : " (zero 0 has dp_shard 1)");
    if (in->workload->global_batch % (l->micro_batch * l->dp))
        tn_finding_add(findings, "micro_batch",
                       "the global batch is not a multiple of micro-batch x dp");
}

static void toml_rules(struct tn_findings *findings, const struct tn_export_in *in)
{
    static const char *const only[] = {"micro_batch", NULL};
    const struct pl_layout *l = in->layout;

    rules(findings, in, l->etp);
    tn_rule_trainer(findings, in, "torchtitan", only);
    if (in->workload->seq % ((int64_t)2 * l->tp * l->cp))
        tn_finding_add(findings, "workload.seq",
                       "%d tokens are not a multiple of 2 x tp %d x cp %d", in->workload->seq,
                       l->tp, l->cp);
}

static void python_rules(struct tn_findings *findings, const struct tn_export_in *in)
{
    rules(findings, in, 1);
    tn_rule_trainer(findings, in, "torchtitan", raises(in->layout));
}

static const char *schedule(const struct pl_layout *layout)
{
    switch (layout->schedule) {
    case PL_GPIPE:
        return "GPipe";
    case PL_INTERLEAVED:
        return "Interleaved1F1B";
    case PL_ZB_V:
        return "ZBVZeroBubble";
    case PL_DUALPIPE_V:
        return "DualPipeV";
    default: /* zero-bubble is a gap: with loss allowed it becomes the nearest that exists with one
                stage a rank */
        return "1F1B";
    }
}

static const char *reshard(const struct pl_layout *layout)
{
    return layout->zero == 3 ? "always" : "never";
}

static void toml_pipeline(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    int per = layers_per_stage(in);

    str_addf(out, "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %d\n",
             schedule(l), l->micro_batch);
    if (l->schedule == PL_DUALPIPE_V && l->ep > 1)
        str_add(out, "pipeline_parallel_expert_parallel_overlap = false\n");
    if (per) {
        str_addf(out,
                 "pipeline_parallel_layers_per_stage = %d\n"
                 "pipeline_parallel_first_stage_less_layers = %d\n"
                 "pipeline_parallel_last_stage_less_layers = %d\n",
                 per, first_less(l), last_less(l));
        return;
    }
    str_add(out, "module_fqns_per_model_part = [");
    for (int run = 0; run < l->pp * l->vp; run++) {
        str_add(out, run ? ", " : "");
        add_modules(out, in, run, "output");
    }
    str_add(out, "]\n");
}

static void write_toml(struct str *out, const struct tn_export_in *in,
                       const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    int local = l->pp > 1 ? l->micro_batch * tn_microbatches(in) : l->micro_batch;

    (void)lost;
    str_add(out, "# Overrides the job file of a ");
    tn_add_clean(out, in->model->name);
    str_add(out, " flavor; the model's sizes are the flavor's.\n\n");
    str_addf(out, "[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n",
             local, in->workload->global_batch, in->workload->seq);
    str_addf(out, "mixed_precision_param = \"%s\"\n%s\n",
             l->precision == PL_FP32 ? "float32" : "bfloat16",
             toml_offloads(l) ? "enable_cpu_offload = true\n" : "");
    str_addf(
        out,
        "[parallelism]\ndata_parallel_replicate_degree = %d\ndata_parallel_shard_degree = %d\n",
        replicate_degree(l), shard_degree(l));
    str_addf(out, "fsdp_reshard_after_forward = \"%s\"\n", reshard(l));
    str_addf(out, "tensor_parallel_degree = %d\ncontext_parallel_degree = %d\n", l->tp, l->cp);
    str_addf(out, "expert_parallel_degree = %d\nexpert_tensor_parallel_degree = %d\n", l->ep,
             l->etp);
    str_addf(out, "pipeline_parallel_degree = %d\n", l->pp);
    if (l->tp_overlap)
        str_add(out, "enable_async_tensor_parallel = true\n");
    if (l->pp > 1)
        toml_pipeline(out, in);
    if (l->tp_overlap) /* it is a pass of the compiler */
        str_add(out, "\n[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n");
    str_addf(out, "\n[activation_checkpoint]\nmode = \"%s\"\n",
             l->recompute == PL_RECOMPUTE_FULL        ? "full"
             : l->recompute == PL_RECOMPUTE_SELECTIVE ? "selective"
                                                      : "none");
    if (l->recompute == PL_RECOMPUTE_SELECTIVE)
        str_add(out, "selective_ac_option = \"op\"\n");
}

/* Arguments go over the file, which has no model. */
static void toml_line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    tn_torchrun(out, in);
    str_addf(out,
             "-m torchtitan.train --job.config_file %s ${TRAIN_ARGS:?set it to the model and what "
             "else the job needs, such as --model.name llama3 --model.flavor 8B}",
             at->file);
}

/* What else is a gap would not start. */
static bool graphed(const struct pl_layout *layout)
{
    return layout->cuda_graphs == PL_GRAPHS_ITERATION && layout->pp == 1 && layout->ep == 1;
}

static void set_training(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    long long micro = (long long)l->micro_batch * in->workload->seq;

    str_addf(out,
             "    training = config.training\n    training.num_tokens_per_microbatch_per_dp_rank = "
             "%lld\n",
             micro);
    str_addf(
        out,
        "    training.num_tokens_per_train_step = %lld\n    training.max_context_length = %d\n",
        (long long)in->workload->global_batch * in->workload->seq, in->workload->seq);
    str_addf(out, "    training.dtype = \"float32\"\n    training.mixed_precision_param = \"%s\"\n",
             l->precision == PL_FP32 ? "float32" : "bfloat16");
    str_addf(out, "    training.enable_cpu_offload = %s\n", offloads(l) ? "True" : "False");
    str_addf(out, "    training.disable_cuda_graphs = %s\n", graphed(l) ? "False" : "True");
    if (in->model->moe.experts)
        str_addf(out, "    config.debug.moe_force_load_balance = %s\n",
                 in->model->moe.force_balance ? "True" : "False");
}

/* Our own cut, module by module. */
static void set_modules(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_add(out, "    parallelism.pipeline_parallel_layers_per_stage = None\n"
                 "    parallelism.module_fqns_per_model_part = [\n");
    for (int run = 0; run < l->pp * l->vp; run++) {
        str_add(out, "        ");
        add_modules(out, in, run, "lm_head");
        str_add(out, ",\n");
    }
    str_add(out, "    ]\n");
}

static void set_pipeline(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    int per = layers_per_stage(in);

    str_addf(out, "    parallelism.pipeline_parallel_schedule = \"%s\"\n", schedule(l));
    str_add(out, "    parallelism.pipeline_parallel_schedule_csv = \"\"\n");
    if (per)
        str_addf(out,
                 "    parallelism.module_fqns_per_model_part = None\n"
                 "    parallelism.pipeline_parallel_layers_per_stage = %d\n",
                 per);
    else
        set_modules(out, in);
    str_addf(out,
             "    parallelism.pipeline_parallel_first_stage_less_layers = %d\n"
             "    parallelism.pipeline_parallel_last_stage_less_layers = %d\n"
             "    parallelism.num_pp_microbatches = %d\n",
             first_less(l), last_less(l), tn_microbatches(in));
}

static void set_parallelism(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_add(out, "    parallelism = config.parallelism\n");
    str_addf(out,
             "    parallelism.data_parallel_replicate_degree = %d\n    "
             "parallelism.data_parallel_shard_degree = %d\n",
             replicate_degree(l), shard_degree(l));
    str_addf(out, "    parallelism.fsdp_reshard_after_forward = \"%s\"\n", reshard(l));
    str_addf(out,
             "    parallelism.tensor_parallel_degree = %d\n    "
             "parallelism.enable_sequence_parallel = %s\n",
             l->tp, l->tp == 1 || l->sp ? "True" : "False");
    str_addf(out,
             "    parallelism.context_parallel_degree = %d\n    parallelism.expert_parallel_degree "
             "= %d\n",
             l->cp, l->ep);
    str_addf(out, "    parallelism.pipeline_parallel_degree = %d\n", l->pp);
    if (l->pp > 1)
        set_pipeline(out, in);
}

static void set_recompute(struct str *out, const struct pl_layout *layout)
{
    const char *kind = layout->recompute == PL_RECOMPUTE_FULL ? "FullAC" : "SelectiveAC";

    if (layout->recompute == PL_RECOMPUTE_NONE)
        str_add(out, "    config.activation_checkpoint = None\n");
    else
        str_addf(out, "    config.activation_checkpoint = %s.Config()\n", kind);
}

/* What makes the linear layers of a model narrow; those of the layers alone, not the head. */
static const char *converter(int precision)
{
    return precision == PL_NVFP4   ? "NVFP4LinearConverter"
           : precision == PL_MXFP8 ? "MXFP8LinearConverter"
                                   : "Float8LinearConverter";
}

/* A recipe's linear layers may be quantized already, and it has no modules of prediction: unless it
 * is as the layout and the model have it, its model is made anew. */
static void set_model(struct str *out, const struct pl_model *model, const struct pl_layout *layout)
{
    bool narrow = layout->precision >= PL_FP8;
    bool always = layout->precision >= PL_MXFP8 || model->mtp;
    const char *indent = always ? "    " : "        ";

    if (!always)
        str_addf(out, "    if %shas_quantization(config.model_spec.model):\n",
                 narrow ? "not " : "");
    str_addf(out,
             "%smodels = importlib.import_module(f\"torchtitan.models."
             "{config.model_spec.name}\")\n",
             indent);
    if (narrow)
        str_addf(out, "%snarrow = %s.Config(%s, model_compile_enabled=True)\n", indent,
                 converter(layout->precision),
                 layout->precision >= PL_MXFP8 ? "fqns=[\"layers.\"]"
                                               : "filter_fqns=[\"lm_head\"]");
    str_addf(out, "%sconfig.model_spec = models.model_registry(config.model_spec.flavor%s", indent,
             narrow ? ", converters=[narrow]" : "");
    if (model->mtp)
        str_addf(out,
                 ", num_mtp_layers=%d)\n    config.loss = models.MTPLoss.Config(mtp_scale=%g, "
                 "global_vocab_size=decoder_vocab_size(config.model_spec)",
                 model->mtp, model->mtp_loss_coef);
    str_add(out, ")\n");
}

static void set_compile(struct str *out, const struct pl_layout *layout)
{
    if (layout->precision >= PL_FP8 || layout->tp_overlap)
        str_add(out, "    config.compile.enable = True\n"
                     "    config.compile.components = [\"model\", \"loss\"]\n");
    str_addf(out, "    config.compile.enable_async_tensor_parallel = %s\n",
             layout->tp_overlap ? "True" : "False");
}

/* A shipped recipe of a model of these sizes, or "". */
static const char *recipe(const struct pl_model *model)
{
    static const struct {
        int layers, hidden, ffn, vocab, experts;
        const char *name;
    } known[] = {
        {32, 4096, 14336, 128256, 0, "llama3:llama3_8b"},
        {80, 8192, 28672, 128256, 0, "llama3:llama3_70b"},
        {126, 16384, 53248, 128256, 0, "llama3:llama3_405b"},
        {27, 2048, 10944, 102400, 64, "deepseek_v3:deepseek_v3_16b"},
        {61, 7168, 18432, 129280, 256, "deepseek_v3:deepseek_v3_671b"},
        {28, 1024, 3072, 151936, 0, "qwen3:qwen3_0_6b"},
        {28, 2048, 6144, 151936, 0, "qwen3:qwen3_1_7b"},
        {40, 5120, 17408, 151936, 0, "qwen3:qwen3_14b"},
        {64, 5120, 25600, 151936, 0, "qwen3:qwen3_32b"},
        {48, 2048, 0, 151936, 128, "qwen3:qwen3_30b_a3b"},
        {24, 2880, 0, 201088, 32, "gpt_oss:gpt_oss_20b"},
        {36, 2880, 0, 201088, 128, "gpt_oss:gpt_oss_120b"},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (model->layers == known[i].layers && model->hidden == known[i].hidden &&
            model->ffn == known[i].ffn && model->vocab == known[i].vocab &&
            model->moe.experts == known[i].experts)
            return known[i].name;
    return "";
}

static void write_imports(struct str *out, const struct pl_model *model,
                          const struct pl_layout *layout)
{
    str_add(out, "\nimport importlib\nimport os\n\n");
    if (layout->precision >= PL_FP8)
        str_addf(out, "from torchtitan.components.quantization import %s\n",
                 converter(layout->precision));
    if (layout->precision < PL_MXFP8 && !model->mtp)
        str_add(out, "from torchtitan.components.quantization.utils import has_quantization\n");
    if (layout->recompute != PL_RECOMPUTE_NONE)
        str_addf(out, "from torchtitan.distributed.activation_checkpoint import %s\n",
                 layout->recompute == PL_RECOMPUTE_FULL ? "FullAC" : "SelectiveAC");
    if (model->mtp)
        str_add(out, "from torchtitan.models.common.config_utils import decoder_vocab_size\n");
    str_add(out, "from torchtitan.trainer import Trainer\n");
}

static void write_python(struct str *out, const struct tn_export_in *in,
                         const struct tn_findings *lost)
{
    (void)lost;
    str_add(out, "#\n# PYTHONPATH=FOLDER_OF_THIS_FILE torchrun ... -m torchtitan.train --module "
                 "NAME_OF_THIS_FILE --config partune_layout\n");
    write_imports(out, in->model, in->layout);
    str_addf(out,
             "\n# module:function of a shipped recipe of the same model\n"
             "RECIPE = os.environ.get(\"TORCHTITAN_RECIPE\", \"%s\")\n",
             recipe(in->model));
    str_add(out, "\n\ndef with_partune_layout(config: Trainer.Config) -> Trainer.Config:\n"
                 "    \"\"\"Put this layout on CONFIG, a shipped recipe of the same model, "
                 "and return it.\"\"\"\n");
    str_addf(out,
             "    model = config.model_spec.model\n"
             "    if (len(model.layers), model.dim) != (%d, %d):\n"
             "        raise ValueError(f\"{RECIPE} has {len(model.layers)} layers of width "
             "{model.dim}, the layout is for %d of %d\")\n",
             in->model->layers, in->model->hidden, in->model->layers, in->model->hidden);
    set_training(out, in);
    set_parallelism(out, in);
    set_recompute(out, in->layout);
    set_compile(out, in->layout);
    set_model(out, in->model, in->layout);
    str_add(
        out,
        "    return config\n\n\ndef partune_layout() -> Trainer.Config:\n"
        "    \"\"\"The recipe with this layout.\"\"\"\n"
        "    module, _, function = RECIPE.partition(\":\")\n    if not function:\n"
        "        raise ValueError(\"set TORCHTITAN_RECIPE to module:function of a recipe of this "
        "model, such as llama3:llama3_8b\")\n"
        "    registry = importlib.import_module(f\"torchtitan.models.{module}"
        ".config_registry\")\n"
        "    return with_partune_layout(getattr(registry, function)())\n");
}

/* torchtitan imports what --module names and calls what --config names, without arguments. */
static void python_line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    str_addf(out, "env PYTHONPATH=\"%s${PYTHONPATH:+:$PYTHONPATH}\" ", at->folder);
    tn_torchrun(out, in);
    str_addf(out, "-m torchtitan.train --module %s --config partune_layout ${TRAIN_ARGS:-}",
             at->module);
}

const struct tn_exporter tn_export_torchtitan = {
    .name = "torchtitan",
    .title = "torchtitan configuration function (Python)",
    .words = "--module export --config partune_layout",
    .version = "torchtitan of August 2026 (b5bcd76c)",
    .media_type = "text/x-python; charset=utf-8",
    .extension = "py",
    .comment = "#",
    .trainer = "torchtitan",
    .says_batch = true,
    .gaps = python_gaps,
    .rules = python_rules,
    .write = write_python,
    .line = python_line,
};

const struct tn_exporter tn_export_torchtitan_toml = {
    .name = "torchtitan-toml",
    .title = "torchtitan job file",
    .version = "torchtitan up to v0.2.2",
    .media_type = "application/toml",
    .extension = "toml",
    .comment = "#",
    .trainer = "torchtitan",
    .says_batch = true,
    .gaps = toml_gaps,
    .rules = toml_rules,
    .write = write_toml,
    .line = toml_line,
};
