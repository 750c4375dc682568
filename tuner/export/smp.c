/*
 * SageMaker: the SMP v2 parameters (JSON), and the model section of a HyperPod recipe (YAML).
 *
 * The recipes are those of the releases 1.x, which train through SMP by the training adapter for
 * NeMo; those of 2.0 and later start other programs, which have other keys.
 *
 * hybrid_shard_degree: 0 is native FSDP, 1 is no sharding, n >= 2 shards over n devices. Expert
 * parallelism excludes tensor parallelism, and there is no pipeline parallelism at all.
 */
#include "tuner/export/internal.h"

static const char *const carries_smp[] = {"world",
                                          "tp",
                                          "sp",
                                          "cp",
                                          "ep",
                                          "dp",
                                          "edp",
                                          "zero",
                                          "shard",
                                          "overlap_grad_reduce",
                                          "overlap_param_gather",
                                          "offload_activations",
                                          NULL};
static const char *const carries_hyperpod[] = {
    "world",
    "tp",
    "sp",
    "cp",
    "ep",
    "dp",
    "edp",
    "zero",
    "shard",
    "micro_batch",
    "recompute",
    "precision",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "offload_activations",
    NULL,
};

static int shard_degree(const struct pl_layout *layout)
{
    int dense = layout->dp * layout->cp / pl_shard_copies(layout);

    return layout->zero ? dense / (layout->ep > 1 ? layout->ep : 1) : 1;
}

/* What every checkpointed layer keeps. */
static bool offloads(const struct tn_export_in *in)
{
    return in->layout->offload_activations == in->model->layers &&
           in->layout->recompute == PL_RECOMPUTE_FULL;
}

static void common_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    if (l->pp > 1)
        tn_finding_add(findings, "pp", "the target has no pipeline parallelism");
    if (l->vp > 1)
        tn_finding_add(findings, "vp", "the target has no pipeline parallelism");
    if (l->etp > 1)
        tn_finding_add(findings, "etp", "experts are not split by tensor parallelism");
    if (l->tp > 1 && !l->sp)
        tn_finding_add(findings, "sp", "tensor parallelism implies sequence parallelism");
    if (l->zero && shard_degree(l) <= 1)
        tn_finding_add(findings, "zero", "ep %d of dp x cp %d ranks leaves nothing to shard over",
                       l->ep, l->dp * l->cp);
    if (l->ep > 1 &&
        (in->model->moe.shared_ffn || in->model->moe.every > 1 || in->model->moe.dense_layers))
        tn_finding_add(
            findings, "ep",
            "experts are supported only in models like Mixtral: in all layers, without a shared "
            "expert");
    tn_gap_fsdp_overlap(findings, in, "SMP");
    tn_gap_global_batch(findings, in);
    tn_gap_scope(findings, in);
    tn_gap_flag(findings, in, "overlap_p2p", l->overlap_p2p, "SMP");
    tn_gap_flag(findings, in, "overlap_moe_a2a", l->overlap_moe_a2a, "SMP");
    if (l->offload_activations && !offloads(in))
        tn_finding_add(findings, "offload_activations",
                       "activations are offloaded for all layers, with recompute full, or for "
                       "none");
    tn_gap_threads(findings, in);
}

static void smp_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    common_gaps(findings, in);
    if ((l->zero == 1 || l->zero == 2) && shard_degree(l) > 1)
        tn_finding_add(findings, "zero",
                       "hybrid_shard_degree above 1 shards parameters and gradients too: zero 3");
    tn_finding_add(findings, "micro_batch",
                   "the batch of %d sequences is set in the script, not in the JSON",
                   l->micro_batch);
    if (l->recompute != PL_RECOMPUTE_NONE)
        tn_finding_add(findings, "recompute",
                       "the script wraps modules for checkpointing, not the JSON");
    if (l->precision != PL_FP32)
        tn_finding_add(findings, "precision",
                       "mixed precision is set in the script, not in the JSON");
}

static void hyperpod_gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    common_gaps(findings, in);
    if (in->layout->zero == 1)
        tn_finding_add(findings, "zero", "FSDP shards gradients too: the nearest is zero 2");
    if (in->layout->recompute == PL_RECOMPUTE_SELECTIVE)
        tn_finding_add(findings, "recompute",
                       "activation_checkpointing is on or off: there is no selective form");
    if (in->layout->precision == PL_FP32)
        tn_finding_add(findings, "precision", "recipes train in bf16; fp32 has no key");
}

static void rules(struct tn_findings *findings, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;
    int shard = shard_degree(l) > 0 ? shard_degree(l) : 1;

    if (l->ep > 1 && l->tp > 1)
        tn_finding_add(findings, "ep", "expert parallelism does not work with tensor parallelism");
    if (l->world % (shard * l->tp * l->ep))
        tn_finding_add(findings, "world", "world %d is not a multiple of shard %d x tp %d x ep %d",
                       l->world, shard, l->tp, l->ep);
    if (l->cp > 1 && l->cp > shard)
        tn_finding_add(findings, "cp", "context_parallel_degree %d exceeds the shard degree %d",
                       l->cp, shard);
}

static void write_smp(struct str *out, const struct tn_export_in *in,
                      const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    json_t *v =
        json_pack("{s:i, s:i, s:i, s:i, s:b}", "tensor_parallel_degree", l->tp,
                  "expert_parallel_degree", l->ep, "context_parallel_degree", l->cp,
                  "hybrid_shard_degree", shard_degree(l), "sm_activation_offloading", offloads(in));
    char *text;

    json_object_set_new(v, "_partune", tn_export_provenance(in, lost));
    text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    str_addf(out, "%s\n", text);
    free(text);
    json_decref(v);
}

/* Without our own keys, which begin with _. */
static void smp_before(struct str *out, const struct tn_place *at)
{
    str_addf(out,
             "SM_HP_MP_PARAMETERS=$(python3 -c 'import json, sys\n"
             "print(json.dumps({key: value for key, value in json.load(open(sys.argv[1])).items() "
             "if key[0] != \"_\"}))' %s)\nexport SM_HP_MP_PARAMETERS\n",
             at->file);
}

static void smp_line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    (void)at;
    tn_torchrun(out, in);
    str_add(out, "${TRAIN:?your script and its arguments}");
}

const struct tn_exporter tn_export_smp = {
    .name = "smp",
    .title = "SageMaker SMP v2 parameters",
    .version = "SMP v2 (2.3 or later for experts)",
    .media_type = "application/json",
    .extension = "json",
    .carries = carries_smp,
    .gaps = smp_gaps,
    .rules = rules,
    .write = write_smp,
    .before = smp_before,
    .line = smp_line,
};

static const char *strategy(const struct pl_layout *layout)
{
    switch (layout->zero) {
    case 0:
        return "no_shard";
    case 3:
        return layout->shard ? "hybrid_shard" : "full_shard";
    default:
        return layout->shard ? "_hybrid_shard_zero2" : "shard_grad_op";
    }
}

static void write_hyperpod(struct str *out, const struct tn_export_in *in,
                           const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;

    (void)lost;
    str_addf(out, "trainer:\n  num_nodes: %d\n  devices: %d\n\nuse_smp_model: true\n\nmodel:\n",
             tn_nodes(in), tn_ranks_per_node(in));
    str_addf(out, "  train_batch_size: %d\n  max_context_width: %d\n", l->micro_batch,
             in->workload->seq);
    str_addf(out, "  tensor_model_parallel_degree: %d\n  expert_model_parallel_degree: %d\n", l->tp,
             l->ep);
    str_addf(out, "  context_parallel_degree: %d\n  shard_degree: %d\n", l->cp, shard_degree(l));
    str_addf(out, "  sharding_strategy: %s\n", strategy(l));
    str_addf(out, "  activation_checkpointing: %s\n  offload_activations: %s\n",
             l->recompute == PL_RECOMPUTE_NONE ? "false" : "true", offloads(in) ? "true" : "false");
    str_addf(out, "  fp8: %s\n", l->precision == PL_FP8 ? "true" : "false"); /* some have it on */
    if (pl_model_is_moe(in->model))
        str_add(out, "  moe: true\n  moe_load_balancing: aux_loss\n");
}

/* Hydra's overrides, which add what the recipe lacks: model.fp8 of a section that holds fp8. */
static void hyperpod_before(struct str *out, const struct tn_place *at)
{
    str_addf(out,
             "overrides=$(awk -F ': *' '/^#/ || !NF { next }\n"
             "$2 == \"\" { section = $1 \".\"; next }\n"
             "{ inside = sub(/^ +/, \"\", $1); printf \" ++%%s%%s=%%s\", inside ? section : \"\", "
             "$1, $2 "
             "}' %s)\nexport overrides\n",
             at->file);
}

/* Lightning would take the tasks of srun for its ranks. */
static void hyperpod_line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    (void)at;
    str_add(out, "env -u SLURM_NTASKS ");
    tn_torchrun(out, in);
    str_add(out,
            "${TRAIN:?a script of the training adapter, --config-path and --config-name of the "
            "recipe} $overrides");
}

const struct tn_exporter tn_export_hyperpod = {
    .name = "hyperpod",
    .title = "HyperPod recipe overrides (YAML)",
    .even_nodes = true,
    .version = "SageMaker HyperPod recipes 1.x (1.5.1, training adapter 1.1.0 to 1.4.0)",
    .media_type = "application/yaml",
    .extension = "yaml",
    .comment = "#",
    .carries = carries_hyperpod,
    .gaps = hyperpod_gaps,
    .rules = rules,
    .write = write_hyperpod,
    .before = hyperpod_before,
    .line = hyperpod_line,
};
