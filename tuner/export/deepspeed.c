/*
 * DeepSpeed JSON (deepspeed/runtime/config.py, runtime/zero/config.py, module_inject/auto_ep*.py).
 *
 * Pipeline parallelism is not in the JSON: PipelineModule(num_stages=…) is the user's code, so pp >
 * 1 is a gap. Activation checkpointing is called by the model's code too. train_batch_size =
 * micro-batch x accumulation x data-parallel size, and is left out with tensor parallelism, whose
 * ranks DeepSpeed takes for replicas when it checks that.
 */
#include "tuner/export/internal.h"

/* The names by which AutoTP and AutoEP know models of this shape, or NULL. Where both are said they
 * must be one; a model with shared experts is told apart by AutoEP only. */
static bool known(const struct pl_model *model)
{
    return model->mlp == PL_SWIGLU && model->norm == PL_RMSNORM && model->positions == PL_ROPE;
}

static const char *tp_preset(const struct pl_layout *layout, const struct pl_model *model)
{
    if (!known(model))
        return NULL;
    if (!pl_model_is_moe(model))
        return "llama";
    if (!model->moe.shared_ffn)
        return "mixtral";
    return layout->ep > 1 ? NULL : "deepseek_v2";
}

static const char *ep_preset(const struct pl_model *model)
{
    return !known(model) ? NULL : model->moe.shared_ffn ? "deepseek_v3" : "mixtral";
}

/* Its own data-parallel size: without context parallelism those ranks are replicas too. */
static int replicas(const struct pl_layout *layout)
{
    return layout->world / (layout->tp * layout->pp);
}

/* With loss allowed ZeRO 3 of placed experts below tensor parallelism would not start: a rule. */
static void gaps(struct tn_findings *findings, const struct tn_export_in *in)
{
    static const char *const but[] = {"zero", NULL};

    tn_gap_trainer(findings, in, "deepspeed", but);
}

static void rules(struct tn_findings *findings, const struct tn_export_in *in)
{
    static const char *const only[] = {"zero", NULL};
    const struct pl_layout *l = in->layout;

    if (l->tp > 1 && l->pp > 1)
        tn_finding_add(findings, "tp", "AutoTP does not work with pipeline parallelism");
    if (l->pp > 1 && l->zero > 1)
        tn_finding_add(findings, "zero", "the pipeline engine works up to ZeRO 1");
    if (in->workload->global_batch % (l->micro_batch * replicas(l)))
        tn_finding_add(findings, "micro_batch",
                       "train_batch_size %d is not a multiple of micro-batch %d x %d replicas",
                       in->workload->global_batch, l->micro_batch, replicas(l));
    if (l->ep > 1 && (l->world / l->pp) % l->ep)
        tn_finding_add(findings, "ep", "autoep_size %d does not divide world / pp", l->ep);
    if (l->ep > 1 && in->model->moe.experts % l->ep)
        tn_finding_add(findings, "ep", "autoep_size %d does not divide %d experts", l->ep,
                       in->model->moe.experts);
    tn_rule_trainer(findings, in, "deepspeed", only);
}

/* Alone a rank offloads as the lowest stage with its settings does. */
static int stage_of(const struct pl_layout *layout)
{
    bool part = layout->offload_optimizer && layout->offload_optimizer < 100;

    if (layout->zero)
        return layout->zero;
    return layout->offload_params || part ? 3 : layout->offload_optimizer ? 2 : 0;
}

/* What is a gap would not start. */
static void offload(json_t *zero, const struct pl_layout *layout)
{
    bool starts = (!layout->shard || !layout->zero) && (layout->tp == 1 || layout->ep == 1);
    json_t *state;

    if (starts && layout->offload_params && stage_of(layout) == 3)
        json_object_set_new(zero, "offload_param",
                            json_pack("{s:s, s:b}", "device", "cpu", "pin_memory", 1));
    if (!starts || !layout->offload_optimizer ||
        (layout->offload_optimizer < 100 && stage_of(layout) < 3))
        return;
    state = json_pack("{s:s, s:b}", "device", "cpu", "pin_memory", 1);
    if (layout->offload_optimizer < 100)
        json_object_set_new(state, "ratio", json_real(layout->offload_optimizer / 100.0));
    json_object_set_new(zero, "offload_optimizer", state);
}

static json_t *zero_json(const struct pl_layout *layout)
{
    json_t *z = json_pack("{s:i}", "stage", stage_of(layout));

    offload(z, layout);
    if (stage_of(layout)) {
        json_object_set_new(z, "overlap_comm", json_boolean(layout->overlap_grad_reduce));
        json_object_set_new(z, "contiguous_gradients", json_true());
        json_object_set_new(z, "reduce_scatter", json_true());
    }
    if (layout->shard && layout->zero == 3 && layout->tp == 1 && layout->ep == 1)
        json_object_set_new(z, "mics_shard_size", json_integer(layout->shard));
    return z;
}

static void add_preset(json_t *object, const char *name)
{
    if (name)
        json_object_set_new(object, "preset_model", json_string(name));
}

/* In TYPE gradients are accumulated, and reduced. Stage 0 of bf16 starts with bf16 only. */
static void add_grad_types(json_t *object, const char *type)
{
    json_object_set_new(object, "communication_data_type", json_string(type));
    json_object_set_new(object, "data_types", json_pack("{s:s}", "grad_accum_dtype", type));
}

static void write_json(struct str *out, const struct tn_export_in *in,
                       const struct tn_findings *lost)
{
    const struct pl_layout *l = in->layout;
    json_t *v = json_object(), *part;
    char *text;

    /* DeepSpeed counts every rank of tensor parallelism as a replica when it checks the product. */
    if (l->tp == 1)
        json_object_set_new(v, "train_batch_size", json_integer(in->workload->global_batch));
    json_object_set_new(v, "train_micro_batch_size_per_gpu", json_integer(l->micro_batch));
    json_object_set_new(v, "gradient_accumulation_steps",
                        json_integer(in->workload->global_batch / (l->micro_batch * replicas(l))));
    json_object_set_new(v, "zero_optimization", zero_json(l));
    if (l->tp > 1) {
        part = json_pack("{s:i}", "autotp_size", l->tp);
        add_preset(part, tp_preset(l, in->model));
        json_object_set_new(v, "tensor_parallel", part);
    }
    if (l->ep > 1) {
        part = json_pack("{s:b, s:i, s:i}", "enabled", 1, "autoep_size", l->ep,
                         "expert_tensor_parallel_size", 1);
        add_preset(part, ep_preset(in->model));
        json_object_set_new(v, "expert_parallel", part);
    }
    json_object_set_new(v, "bf16", json_pack("{s:b}", "enabled", l->precision != PL_FP32));
    if (l->precision != PL_FP32) /* without them both are the precision of the weights */
        add_grad_types(v, l->grad_dtype == PL_GRADS_BF16 || stage_of(l) == 0 ? "bf16" : "fp32");
    json_object_set_new(v, "_partune", tn_export_provenance(in, lost));
    text = json_dumps(v, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    str_addf(out, "%s\n", text);
    free(text);
    json_decref(v);
}

/* Its own launcher would log in to every node from every node. */
static void line(struct str *out, const struct tn_export_in *in, const struct tn_place *at)
{
    tn_torchrun(out, in);
    str_addf(out, "${TRAIN:?your script and its arguments} --deepspeed_config %s", at->file);
}

const struct tn_exporter tn_export_deepspeed = {
    .name = "deepspeed",
    .title = "DeepSpeed configuration",
    .version = "DeepSpeed of August 2026 (edaa7221)",
    .media_type = "application/json",
    .extension = "json",
    .trainer = "deepspeed",
    .says_batch = true,
    .gaps = gaps,
    .rules = rules,
    .write = write_json,
    .line = line,
};
