/*
 * DeepSpeed JSON (deepspeed/runtime/config.py, runtime/zero/config.py, module_inject/auto_ep*.py).
 *
 * Pipeline parallelism is not in the JSON: PipelineModule(num_stages=…) is the user's code, so pp >
 * 1 is a gap. Activation checkpointing is called by the model's code too. train_batch_size =
 * micro-batch x accumulation x data-parallel size.
 */
#include "tuner/export/internal.h"

static const char *const carries[] = {
    "world",
    "tp",
    "ep",
    "dp",
    "edp",
    "zero",
    "micro_batch",
    "precision",
    "overlap_grad_reduce",
    "overlap_param_gather",
    NULL,
};

/* The name by which AutoTP and AutoEP know models of this shape, or NULL. */
static const char *preset(const struct pl_model *m)
{
    if (m->mlp != PL_SWIGLU || m->norm != PL_RMSNORM || m->positions != PL_ROPE)
        return NULL;
    if (!pl_model_is_moe(m))
        return "llama";
    return m->moe.shared_ffn ? "deepseek_v2" : "mixtral";
}

/* Its own data-parallel size: without context parallelism those ranks are replicas too. */
static int replicas(const struct pl_layout *l)
{
    return l->world / (l->tp * l->pp);
}

static void gaps(struct tn_findings *f, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    if (l->pp > 1)
        tn_finding_add(f, "pp", "stages are given in code: PipelineModule(num_stages=%d)", l->pp);
    if (l->vp > 1)
        tn_finding_add(f, "vp", "there is no interleaved pipeline");
    tn_gap_schedule(f, in, false, false);
    if (l->cp > 1)
        tn_finding_add(f, "cp",
                       "sequence_parallel_size is Ulysses, another thing than context parallelism");
    if (l->sp)
        tn_finding_add(f, "sp", "AutoTP has no Megatron sequence parallelism");
    if (l->etp > 1)
        tn_finding_add(f, "etp", "expert_tensor_parallel_size must be 1");
    tn_gap_split_experts(f, in, "AutoTP");
    if (l->recompute != PL_RECOMPUTE_NONE)
        tn_finding_add(f, "recompute",
                       "the model's code enables activation checkpointing, not the JSON");
    if (l->overlap_grad_reduce && l->zero == 0)
        tn_finding_add(f, "overlap_grad_reduce", "overlap_comm exists only with ZeRO");
    tn_gap_flag(f, in, "overlap_param_gather", l->overlap_param_gather && l->zero < 3,
                "DeepSpeed below stage 3");
    if (l->zero == 3 && l->overlap_param_gather != l->overlap_grad_reduce)
        tn_finding_add(f, "overlap_param_gather",
                       "at stage 3 overlap_comm is one switch for reduction and gathers");
    if (l->ep > 1 && !preset(in->model))
        tn_finding_add(f, "ep",
                       "AutoEP knows no model of this shape: the script must place experts");
    tn_gap_precision(f, in);
    tn_gap_flag(f, in, "overlap_p2p", l->overlap_p2p, "DeepSpeed");
    tn_gap_flag(f, in, "overlap_moe_a2a", l->overlap_moe_a2a, "DeepSpeed");
    tn_gap_scope(f, in);
    tn_gap_threads(f, in);
}

static void rules(struct tn_findings *f, const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    if (l->tp > 1 && l->pp > 1)
        tn_finding_add(f, "tp", "AutoTP does not work with pipeline parallelism");
    if (l->pp > 1 && l->zero > 1)
        tn_finding_add(f, "zero", "the pipeline engine works up to ZeRO 1");
    if (in->workload->global_batch % (l->micro_batch * replicas(l)))
        tn_finding_add(f, "micro_batch",
                       "train_batch_size %d is not a multiple of micro-batch %d x %d replicas",
                       in->workload->global_batch, l->micro_batch, replicas(l));
    if (l->ep > 1 && (l->world / l->pp) % l->ep)
        tn_finding_add(f, "ep", "autoep_size %d does not divide world / pp", l->ep);
    if (l->ep > 1 && in->model->moe.experts % l->ep)
        tn_finding_add(f, "ep", "autoep_size %d does not divide %d experts", l->ep,
                       in->model->moe.experts);
    if (l->tp > 1 && l->ep > 1 && l->zero > 2)
        tn_finding_add(f, "zero", "AutoTP with AutoEP works up to ZeRO 2");
}

static json_t *zero_json(const struct pl_layout *l)
{
    json_t *z = json_pack("{s:i}", "stage", l->zero);

    if (l->zero) {
        json_object_set_new(z, "overlap_comm", json_boolean(l->overlap_grad_reduce));
        json_object_set_new(z, "contiguous_gradients", json_true());
        json_object_set_new(z, "reduce_scatter", json_true());
    }
    return z;
}

static void add_preset(json_t *object, const struct pl_model *m)
{
    if (preset(m))
        json_object_set_new(object, "preset_model", json_string(preset(m)));
}

static void write_json(struct str *out, const struct tn_export_in *in,
                       const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    json_t *v = json_object(), *part;
    char *text;

    json_object_set_new(v, "train_batch_size", json_integer(in->workload->global_batch));
    json_object_set_new(v, "train_micro_batch_size_per_gpu", json_integer(l->micro_batch));
    json_object_set_new(v, "gradient_accumulation_steps",
                        json_integer(in->workload->global_batch / (l->micro_batch * replicas(l))));
    json_object_set_new(v, "zero_optimization", zero_json(l));
    if (l->tp > 1) {
        part = json_pack("{s:i}", "autotp_size", l->tp);
        add_preset(part, in->model);
        json_object_set_new(v, "tensor_parallel", part);
    }
    if (l->ep > 1) {
        part = json_pack("{s:b, s:i, s:i}", "enabled", 1, "autoep_size", l->ep,
                         "expert_tensor_parallel_size", 1);
        add_preset(part, in->model);
        json_object_set_new(v, "expert_parallel", part);
    }
    json_object_set_new(v, "bf16", json_pack("{s:b}", "enabled", l->precision != PL_FP32));
    json_object_set_new(v, "_partune", tn_export_provenance(in, lost));
    text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    str_addf(out, "%s\n", text);
    free(text);
    json_decref(v);
}

const struct tn_exporter tn_export_deepspeed = {
    .name = "deepspeed",
    .title = "DeepSpeed configuration",
    .version = "DeepSpeed of August 2026 (edaa7221)",
    .media_type = "application/json",
    .extension = "json",
    .carries = carries,
    .gaps = gaps,
    .rules = rules,
    .write = write_json,
};
