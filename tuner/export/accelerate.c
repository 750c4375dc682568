/*
 * Hugging Face Accelerate YAML. Two forms, chosen by what the layout needs: distributed_type
 * MEGATRON_LM where there is pipeline, expert or Megatron sequence parallelism, FSDP with
 * parallelism_config otherwise. Unknown top-level keys raise an error there, so provenance is in
 * comments. The micro-batch belongs to the user's script.
 */
#include "tuner/export/internal.h"

static const char *const carries[] = {
    "world",
    "tp",
    "sp",
    "cp",
    "pp",
    "ep",
    "etp",
    "dp",
    "edp",
    "zero",
    "shard",
    "recompute",
    "recompute_method",
    "recompute_num_layers",
    "precision",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "offload_optimizer",
    "offload_params",
    NULL,
};

static bool needs_megatron(const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    /* dp_replicate > 1 with tp or cp needs dp_shard > 1, so unsharded they are Megatron's too. */
    return l->pp > 1 || l->ep > 1 || l->sp || l->zero == 1 ||
           (l->zero == 0 && (l->tp > 1 || l->cp > 1));
}

/* Neither Megatron's engine nor FSDP: replicas of the whole model, or one process. */
static bool plain(const struct tn_export_in *in)
{
    return in->layout->zero == 0 && !needs_megatron(in);
}

/* FSDP shards over cp, too, and with cp or tp over more than that. */
static bool says_shard(const struct pl_layout *layout)
{
    return layout->shard % layout->cp == 0 && layout->shard > layout->cp;
}

static int replicate_size(const struct pl_layout *layout)
{
    return !layout->zero ? layout->dp : says_shard(layout) ? pl_shard_copies(layout) : 1;
}

/* FSDP's switch is for weights, gradients and state, Megatron-LM's for all of the state. */
static bool offloads(const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    return l->offload_optimizer == 100 && l->offload_params == !needs_megatron(in) && !plain(in);
}

static void offload_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    const char *what = needs_megatron(in) ? "megatron_lm_optimizer_cpu_offload means "
                                            "offload_optimizer 100 without offload_params"
                                          : "fsdp_offload_params means offload_optimizer 100 with "
                                            "offload_params 1";

    if (l->offload_optimizer && !offloads(in))
        tn_finding_add(findings, "offload_optimizer", "%s", what);
    if (l->offload_params && !offloads(in))
        tn_finding_add(findings, "offload_params", "%s", what);
}

static void gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    bool megatron = needs_megatron(in);

    tn_finding_add(findings, "micro_batch",
                   "the script's data loader sets the micro-batch of %d sequences", l->micro_batch);
    if (l->vp > 1)
        tn_finding_add(findings, "vp",
                       "virtual stages can be set only on the plugin class, not in the file");
    tn_gap_schedule(findings, in, false, false);
    tn_gap_scope(findings, in);
    if (megatron && l->zero > 1)
        tn_finding_add(findings, "zero", "with Megatron-LM, the distributed optimizer is zero 1");
    if (megatron && l->recompute != PL_RECOMPUTE_FULL)
        tn_finding_add(findings, "recompute",
                       "with Megatron-LM, Accelerate's plugin starts with full recomputation only");
    if (plain(in) && l->recompute != PL_RECOMPUTE_NONE)
        tn_finding_add(findings, "recompute",
                       "without sharding, the script must enable activation checkpointing");
    else if (!megatron && l->recompute == PL_RECOMPUTE_SELECTIVE)
        tn_finding_add(findings, "recompute", "FSDP activation checkpointing is on or off");
    if (megatron) {
        tn_gap_flag(findings, in, "overlap_grad_reduce", l->overlap_grad_reduce, "Accelerate");
        tn_gap_flag(findings, in, "overlap_param_gather", l->overlap_param_gather, "Accelerate");
        if (l->shard)
            tn_finding_add(findings, "shard",
                           "with Megatron-LM, the optimizer is sharded over all replicas");
    } else {
        if (l->shard && !says_shard(l))
            tn_finding_add(findings, "shard", "FSDP shards over several whole groups of cp %d",
                           l->cp);
        tn_gap_flag(findings, in, "recompute_method", l->recompute_method, "FSDP");
        tn_gap_flag(findings, in, "recompute_num_layers", l->recompute_num_layers > 1, "FSDP");
        tn_gap_fsdp_overlap(findings, in, plain(in) ? "DDP" : "FSDP");
        tn_gap_global_batch(findings, in);
    }
    tn_gap_precision(findings, in);
    tn_gap_flag(findings, in, "overlap_p2p", l->overlap_p2p, "Accelerate");
    tn_gap_flag(findings, in, "overlap_moe_a2a", l->overlap_moe_a2a, "Accelerate");
    offload_gaps(findings, in);
    tn_gap_threads(findings, in);
}

static void rules(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    if (needs_megatron(in) && l->pp > 1 && in->model->layers % l->pp)
        tn_finding_add(findings, "pp", "%d layers are not a multiple of pp %d", in->model->layers,
                       l->pp);
}

static void write_megatron(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_addf(out, "megatron_lm_config:\n  megatron_lm_tp_degree: %d\n  megatron_lm_pp_degree: %d\n",
             l->tp, l->pp);
    str_addf(out, "  megatron_lm_num_micro_batches: %d\n  megatron_lm_sequence_parallelism: %s\n",
             tn_microbatches(in), l->sp ? "true" : "false");
    str_addf(
        out,
        "  megatron_lm_use_distributed_optimizer: %s\n  megatron_lm_context_parallel_size: %d\n",
        l->zero ? "true" : "false", l->cp);
    if (pl_model_is_moe(in->model))
        str_addf(out,
                 "  megatron_lm_expert_model_parallel_size: %d\n  "
                 "megatron_lm_expert_tensor_parallel_size: %d\n",
                 l->ep, l->etp);
    if (offloads(in))
        str_add(out, "  megatron_lm_optimizer_cpu_offload: true\n");
    /* Its plugin's default, which can be changed to nothing that Megatron-LM starts with. */
    str_addf(out,
             "  megatron_lm_recompute_granularity: full\n  megatron_lm_recompute_method: %s\n"
             "  megatron_lm_recompute_num_layers: %d\n",
             tn_megatron_recompute_method(l), l->recompute_num_layers);
}

static void write_fsdp(struct str *out, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    str_addf(out, "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: %s\n",
             l->zero == 3 ? "true" : "false");
    str_addf(
        out,
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_activation_checkpointing: %s\n",
        l->recompute == PL_RECOMPUTE_FULL ? "true" : "false");
    str_addf(out, "  fsdp_offload_params: %s\n", offloads(in) ? "true" : "false");
    str_addf(out, "parallelism_config:\n  parallelism_config_dp_replicate_size: %d\n",
             replicate_size(l));
    str_addf(out, "  parallelism_config_dp_shard_size: %d\n  parallelism_config_tp_size: %d\n",
             l->dp / replicate_size(l), l->tp);
    str_addf(out, "  parallelism_config_cp_size: %d\n", l->cp);
}

static void write_yaml(struct str *out, const struct tn_export_in *in,
                       const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    const char *type = needs_megatron(in) ? "MEGATRON_LM"
                       : plain(in)        ? (l->world > 1 ? "MULTI_GPU" : "'NO'")
                                          : "FSDP";

    (void)lost;
    str_addf(out, "compute_environment: LOCAL_MACHINE\ndistributed_type: %s\n", type);
    str_addf(out, "num_machines: %d\nnum_processes: %d\nmachine_rank: 0\n", tn_nodes(in), l->world);
    str_addf(out, "mixed_precision: '%s'\n", l->precision == PL_FP32 ? "no" : "bf16");
    if (needs_megatron(in))
        write_megatron(out, in);
    else if (!plain(in))
        write_fsdp(out, in);
}

static void line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    (void)in;
    str_addf(out,
             "accelerate launch --config_file %s --machine_rank \"${NODE_RANK:-0}\" "
             "--main_process_ip \"${MASTER_ADDR:-127.0.0.1}\" --main_process_port "
             "\"${MASTER_PORT:-29500}\" ${TRAIN:?your script and its arguments}",
             at->file);
}

const struct tn_exporter tn_export_accelerate = {
    .name = "accelerate",
    .title = "Hugging Face Accelerate configuration (YAML)",
    .even_nodes = true,
    .version = "Accelerate of August 2026 (16cb6eb8)",
    .media_type = "application/yaml",
    .extension = "yaml",
    .comment = "#",
    .carries = carries,
    .gaps = gaps,
    .rules = rules,
    .write = write_yaml,
    .line = line,
};
