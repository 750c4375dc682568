/*
 * torchtitan, in its two forms: TOML up to v0.2.2, a Python function that changes a shipped recipe
 * after it.
 *
 * Units differ: the TOML counts sequences a data-parallel rank (local_batch_size), the later form
 * tokens. FSDP2 shards parameters and gradients with the optimizer's state: zero 1 does not exist
 * there, zero 2 is sharding without resharding after the forward pass, zero 3 with it, zero 0 is
 * replication. Gradient reduction and parameter gathers always overlap. The first and last stage
 * are told to be as long as the others, since our layers lie so.
 *
 * In the TOML local_batch_size is what a replica holds of a step: with pp it is cut into
 * micro-batches of pipeline_parallel_microbatch_size, without pp it is one micro-batch and
 * global_batch_size says how many are accumulated.
 */
#include "tuner/export/internal.h"

static const char *const carries_toml[] = {
    "world",
    "tp",
    "cp",
    "pp",
    "vp",
    "schedule",
    "ep",
    "etp",
    "dp",
    "edp",
    "zero",
    "micro_batch",
    "recompute",
    "precision",
    "sp",
    "overlap_grad_reduce",
    "overlap_param_gather",
    NULL,
};

static const char *const carries_python[] = {
    "world",
    "tp",
    "sp",
    "cp",
    "pp",
    "vp",
    "schedule",
    "ep",
    "dp",
    "edp",
    "zero",
    "micro_batch",
    "recompute",
    "precision",
    "overlap_grad_reduce",
    "overlap_param_gather",
    NULL,
};

static void common_gaps(struct tn_findings *f, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    tn_gap_schedule(f, in, true, false);
    if (l->zero == 1)
        tn_finding_add(f, "zero", "FSDP shards gradients too: the nearest is zero 2");
    if (l->zero > 1 && l->dp * l->cp == 1)
        tn_finding_add(f, "zero",
                       "sharding follows the data-parallel size of the whole model, which is 1");
    if (l->zero == 0 && l->cp > 1)
        tn_finding_add(f, "zero", "with context parallelism FSDP shards over its %d ranks", l->cp);
    tn_gap_split_experts(f, in, "torchtitan");
    tn_gap_fsdp_overlap(f, in, "torchtitan");
    tn_gap_precision(f, in);
    tn_gap_scope(f, in);
    tn_gap_flag(f, in, "overlap_p2p", l->overlap_p2p, "torchtitan");
    tn_gap_flag(f, in, "overlap_moe_a2a", l->overlap_moe_a2a, "torchtitan outside DualPipeV");
    tn_gap_threads(f, in);
    if (l->pp > 1 && in->model->layers % (l->pp * l->vp))
        tn_finding_add(f, "pp",
                       "%d layers do not divide into %d equal stages; the first ones are longer",
                       in->model->layers, l->pp * l->vp);
}

static void toml_gaps(struct tn_findings *f, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    common_gaps(f, in);
    if (l->tp > 1 && !l->sp)
        tn_finding_add(f, "sp", "sequence parallelism is always on with tensor parallelism");
    if (l->etp > 1 && l->etp != l->tp)
        tn_finding_add(f, "etp", "expert_tensor_parallel_degree is 1 or tp");
}

static void python_gaps(struct tn_findings *f, const struct tn_export_in *in)
{
    common_gaps(f, in);
    if (in->layout->etp > 1)
        tn_finding_add(f, "etp", "expert tensor parallelism was removed in April 2026");
}

static int shard_degree(const struct pl_layout *l)
{
    return l->zero ? l->dp : 1;
}

/* Layers a stage as both forms take them: stages are then ceil(layers / this). */
static int layers_per_stage(const struct tn_export_in *in)
{
    int stages = in->layout->pp * in->layout->vp;

    return (in->model->layers + stages - 1) / stages;
}

/* ETP of the experts as the form has it: the later one has none. */
static void rules(struct tn_findings *f, const struct tn_export_in *in, int etp)
{
    const struct pl_layout *l = in->layout;
    int per = layers_per_stage(in), stages = (in->model->layers + per - 1) / per;

    if ((shard_degree(l) * l->cp * l->tp) % (l->ep * etp))
        tn_finding_add(f, "ep", "dp_shard x cp x tp = %d is not a multiple of ep %d x etp %d%s",
                       shard_degree(l) * l->cp * l->tp, l->ep, etp,
                       l->zero ? "" : " (zero 0 has dp_shard 1)");
    if (l->pp > 1 && stages != l->pp * l->vp)
        tn_finding_add(f, "pp", "%d layers cut by %d make %d stages, not pp %d x vp %d",
                       in->model->layers, per, stages, l->pp, l->vp);
    if (in->workload->global_batch % (l->micro_batch * l->dp))
        tn_finding_add(f, "micro_batch", "the global batch is not a multiple of micro-batch x dp");
    if (in->workload->seq % ((int64_t)2 * l->tp * l->cp))
        tn_finding_add(f, "workload.seq", "%d tokens are not a multiple of 2 x tp %d x cp %d",
                       in->workload->seq, l->tp, l->cp);
}

static void toml_rules(struct tn_findings *f, const struct tn_export_in *in)
{
    rules(f, in, in->layout->etp);
}

static void python_rules(struct tn_findings *f, const struct tn_export_in *in)
{
    rules(f, in, 1);
}

static const char *schedule(const struct pl_layout *l)
{
    switch (l->schedule) {
    case PL_GPIPE:
        return "GPipe";
    case PL_INTERLEAVED:
        return "Interleaved1F1B";
    default: /* zero-bubble is a gap: with loss allowed it becomes the nearest that exists with one
                stage a rank */
        return "1F1B";
    }
}

static const char *reshard(const struct pl_layout *l)
{
    return l->zero == 3 ? "always" : "never";
}

static void write_toml(struct str *out, const struct tn_export_in *in,
                       const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    int local = l->pp > 1 ? l->micro_batch * tn_microbatches(in) : l->micro_batch;

    (void)lost;
    str_add(out, "# Goes over the job file of a ");
    tn_add_clean(out, in->model->name);
    str_add(out, " flavor: the model's own sizes are the flavor's.\n\n");
    str_addf(out, "[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n",
             local, in->workload->global_batch, in->workload->seq);
    str_addf(out, "mixed_precision_param = \"%s\"\n\n",
             l->precision == PL_FP32 ? "float32" : "bfloat16");
    str_addf(
        out,
        "[parallelism]\ndata_parallel_replicate_degree = %d\ndata_parallel_shard_degree = %d\n",
        l->zero ? 1 : l->dp, shard_degree(l));
    str_addf(out, "fsdp_reshard_after_forward = \"%s\"\n", reshard(l));
    str_addf(out, "tensor_parallel_degree = %d\ncontext_parallel_degree = %d\n", l->tp, l->cp);
    str_addf(out, "expert_parallel_degree = %d\nexpert_tensor_parallel_degree = %d\n", l->ep,
             l->etp);
    str_addf(out, "pipeline_parallel_degree = %d\n", l->pp);
    if (l->pp > 1)
        str_addf(out,
                 "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %d\n"
                 "pipeline_parallel_layers_per_stage = "
                 "%d\npipeline_parallel_first_stage_less_layers = 0\n"
                 "pipeline_parallel_last_stage_less_layers = 0\n",
                 schedule(l), l->micro_batch, layers_per_stage(in));
    str_addf(out, "\n[activation_checkpoint]\nmode = \"%s\"\n",
             l->recompute == PL_RECOMPUTE_FULL        ? "full"
             : l->recompute == PL_RECOMPUTE_SELECTIVE ? "selective"
                                                      : "none");
    if (l->recompute == PL_RECOMPUTE_SELECTIVE)
        str_add(out, "selective_ac_option = \"op\"\n");
}

const struct tn_exporter tn_export_torchtitan_toml = {
    .name = "torchtitan-toml",
    .title = "torchtitan job file",
    .version = "torchtitan up to v0.2.2",
    .media_type = "application/toml",
    .extension = "toml",
    .comment = "#",
    .carries = carries_toml,
    .gaps = toml_gaps,
    .rules = toml_rules,
    .write = write_toml,
};

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
    str_addf(out, "    training.mixed_precision_param = \"%s\"\n",
             l->precision == PL_FP32 ? "float32" : "bfloat16");
    if (l->pp > 1 || l->ep > 1)
        str_add(out, "    training.disable_cuda_graphs = True\n");
}

static void set_parallelism(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_add(out, "    parallelism = config.parallelism\n");
    str_addf(out,
             "    parallelism.data_parallel_replicate_degree = %d\n    "
             "parallelism.data_parallel_shard_degree = %d\n",
             l->zero ? 1 : l->dp, shard_degree(l));
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
        str_addf(out,
                 "    parallelism.pipeline_parallel_schedule = \"%s\"\n"
                 "    parallelism.module_fqns_per_model_part = None\n"
                 "    parallelism.pipeline_parallel_layers_per_stage = %d\n"
                 "    parallelism.pipeline_parallel_first_stage_less_layers = 0\n"
                 "    parallelism.pipeline_parallel_last_stage_less_layers = 0\n"
                 "    parallelism.num_pp_microbatches = %d\n",
                 schedule(l), layers_per_stage(in), tn_microbatches(in));
}

static void write_python(struct str *out, const struct tn_export_in *in,
                         const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    const char *ac = l->recompute == PL_RECOMPUTE_FULL        ? "FullAC"
                     : l->recompute == PL_RECOMPUTE_SELECTIVE ? "SelectiveAC"
                                                              : NULL;

    (void)lost;
    str_add(out, "\nfrom torchtitan.trainer import Trainer\n");
    if (ac)
        str_addf(out, "from torchtitan.distributed.activation_checkpoint import %s\n", ac);
    str_add(out, "\n\ndef with_partune_layout(config: Trainer.Config) -> Trainer.Config:\n"
                 "    \"\"\"Put this layout on CONFIG, a shipped recipe of the same model, "
                 "and return it.\"\"\"\n");
    set_training(out, in);
    set_parallelism(out, in);
    if (ac)
        str_addf(out, "    config.activation_checkpoint = %s.Config()\n", ac);
    else
        str_add(out, "    config.activation_checkpoint = None\n");
    str_add(out, "    return config\n");
}

const struct tn_exporter tn_export_torchtitan = {
    .name = "torchtitan",
    .title = "torchtitan configuration function (Python)",
    .version = "torchtitan of August 2026 (b5bcd76c)",
    .media_type = "text/x-python; charset=utf-8",
    .extension = "py",
    .comment = "#",
    .carries = carries_python,
    .gaps = python_gaps,
    .rules = python_rules,
    .write = write_python,
};
