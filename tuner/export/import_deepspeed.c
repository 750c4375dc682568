/* DeepSpeed's JSON as a layout (deepspeed/runtime/config.py). The pipeline is not in the file. */
#include "tuner/export/grads.h"
#include "tuner/export/offload.h"

#include <errno.h>

/* Settings of DeepSpeed's own that number something else than the layout's degrees. */
static bool numbers_no_degree(const char *name)
{
    return str_eq(name, "zero_optimization.zero_hpz_partition_size") ||
           str_eq(name, "tensor_parallel.tp.tp_grain_size") || str_starts(name, "hybrid_engine.");
}

/* A degree at NAME, or in what is below it, would be another layout. */
static int refuse_degree(const char *name, const json_t *value, struct err *error)
{
    const char *dot = strrchr(name, '.'), *key;
    AUTO_FREE char *text =
        json_is_integer(value) ? mem_printf("%lld", (long long)json_integer_value(value)) : NULL;
    json_t *inner;
    int r = 0;

    if (str_eq(name, "pipeline.stages") && text && !str_eq(text, "1"))
        return err_set(
            error, -EINVAL,
            "`pipeline.stages`: %.20s: the program defines the stages (PipelineModule), and a "
            "pipeline cannot be read from this file",
            text);
    if (text && !numbers_no_degree(name) && tn_import_is_degree(dot ? dot + 1 : name, text))
        return err_set(error, -EINVAL,
                       "`%.80s`: %.20s looks like a degree, but is unknown here: use "
                       "tensor_parallel, expert_parallel or sequence_parallel_size",
                       name, text);
    json_object_foreach((json_t *)(uintptr_t)value, key, inner) {
        AUTO_FREE char *below = mem_printf("%.200s.%.100s", name, key);

        if (r == 0)
            r = refuse_degree(below, inner, error);
    }
    return r;
}

/* Keys of OBJECT that are not in KNOWN, listed as PREFIXkey. Off is the same as absent. */
static int list_ignored(struct tn_imported *out, const char *prefix, const json_t *object,
                        const char *const *known, struct err *error)
{
    const char *key;
    json_t *value;
    int r = 0;

    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        AUTO_FREE char *name = mem_printf("%s%s", prefix, key);
        size_t i = 0;

        while (known[i] && strcmp(known[i], key))
            i++;
        if (known[i] || json_is_false(value) || json_is_null(value) || r < 0)
            continue;
        r = refuse_degree(name, value, error);
        tn_finding_add(&out->ignored, name, "not a setting of the layout");
    }
    return r;
}

static bool is_auto(const json_t *object, const char *key)
{
    return str_eq(json_string_value(json_object_get(object, key)), "auto");
}

/* "auto" is a placeholder that Hugging Face's integration fills in from the script's arguments: the
 * file does not say, and that is said. NAME ends in the key. */
static int number_or_auto(int *ret, struct tn_imported *out, const json_t *object, const char *name,
                          int min, int max, struct err *error)
{
    const char *dot = strchr(name, '.'), *key = dot ? dot + 1 : name;

    if (!is_auto(object, key))
        return jx_get_int(ret, object, key, min, max, error);
    tn_finding_add(&out->ignored, name, "auto: the script decides");
    return 0;
}

/* A switch keeps its default. */
static int switch_or_auto(bool *ret, struct tn_imported *out, const json_t *object,
                          const char *name, struct err *error)
{
    const char *dot = strchr(name, '.');

    if (!object || !is_auto(object, dot + 1))
        return object ? jx_get_bool(ret, object, dot + 1, error) : 0;
    tn_finding_add(&out->ignored, name, "auto: the script decides; taken as %s",
                   *ret ? "true" : "false");
    return 0;
}

enum { MAX_BATCH = 1 << 24 };

/* Is BATCH so many steps of COUNTED micro-batches? STEPS 0: any number of them. */
static bool makes(int batch, int micro, int steps, int64_t counted)
{
    return steps ? batch == steps * counted * micro : batch % (counted * micro) == 0;
}

/* train_batch_size = micro-batch x accumulation x replicas: two of them give the third. DeepSpeed
 * takes the ranks of its own tensor parallelism for replicas, so its batch has every sequence tp
 * times, unless it is given the mesh of a program that counts them itself. */
static int batch_of_file(struct tn_imported *out, int batch, int micro, int steps,
                         struct err *error)
{
    struct pl_layout *l = &out->layout;
    int replicas = l->world / (l->tp * l->cp), once = steps ? steps : 1;
    int64_t counted = (int64_t)replicas * l->tp, most = (int64_t)MAX_BATCH * 2;

    if (batch && !micro) {
        if (batch % (once * counted))
            return err_set(error, -EINVAL,
                           "train_batch_size %d is not a multiple of %d accumulation steps x %d "
                           "replicas%s",
                           batch, once, (int)counted,
                           l->tp > 1 ? " (DeepSpeed counts the ranks of tp too)" : "");
        micro = (int)(batch / (once * counted));
    }
    l->micro_batch = micro ? micro : 1;
    if (!batch)
        return micro ? tn_import_global_batch(
                           out, micro, (int)(once * counted < most ? replicas * once : most), error)
                     : 0;
    out->global_batch = makes(batch, micro, steps, counted) ? batch / l->tp : batch;
    if (!makes(batch, micro, steps, counted) && !makes(batch, micro, steps, replicas))
        return err_set(error, -EINVAL,
                       "train_batch_size %d is not micro-batch %d x accumulation %d x %d replicas",
                       batch, micro, once, (int)counted);
    return 0;
}

static int deepspeed_batch(struct tn_imported *out, json_t *json, struct err *error)
{
    const struct pl_layout *l = &out->layout;
    int batch = 0, micro = 0, steps = 0, r;

    if ((r = number_or_auto(&batch, out, json, "train_batch_size", 1, MAX_BATCH, error)) < 0 ||
        (r = number_or_auto(&micro, out, json, "train_micro_batch_size_per_gpu", 1, MAX_BATCH,
                            error)) < 0 ||
        (r = number_or_auto(&steps, out, json, "gradient_accumulation_steps", 1, MAX_BATCH,
                            error)) < 0)
        return r;
    if ((int64_t)l->tp * l->cp > l->world || l->world % (l->tp * l->cp))
        return tn_import_degrees(l, error);
    return batch_of_file(out, batch, micro, steps, error);
}

/* Sequence parallelism of Ulysses, with the replicas of its mesh. */
static int sequence_parallel(struct tn_imported *out, json_t *json, struct err *error)
{
    struct pl_layout *l = &out->layout;
    int replicas = 0, r;

    if ((r = jx_get_int(&l->cp, json, "sequence_parallel_size", 1, 1 << 20, error)) < 0 ||
        (r = jx_get_int(&replicas, json, "data_parallel_size", 1, 1 << 24, error)) < 0)
        return r;
    if (l->cp > 1)
        tn_finding_add(&out->ignored, "sequence_parallel_size", TN_ULYSSES);
    if (replicas && (int64_t)replicas * l->cp * l->tp != l->world)
        return err_at(error, -EINVAL, "/data_parallel_size",
                      "data_parallel_size %d x sequence_parallel_size %d x tp %d is not "
                      "the %d devices",
                      replicas, l->cp, l->tp, l->world);
    return 0;
}

struct deepspeed {
    json_t *zero, *tp, *ep, *bf16, *fp16;
    json_t *old_tp, *old_bf16; /* "tensor_parallel.tp" and "bfloat16", as they were called before */
};

static int deepspeed_sections(struct deepspeed *import, json_t *json, struct err *error)
{
    int r;

    if ((r = jx_get_object(&import->zero, json, "zero_optimization", error)) < 0 ||
        (r = jx_get_object(&import->tp, json, "tensor_parallel", error)) < 0 ||
        (r = jx_get_object(&import->ep, json, "expert_parallel", error)) < 0 ||
        (r = jx_get_object(&import->bf16, json, "bf16", error)) < 0 ||
        (r = jx_get_object(&import->old_bf16, json, "bfloat16", error)) < 0 ||
        (r = import->tp ? jx_get_object(&import->old_tp, import->tp, "tp", error) : 0) < 0 ||
        (r = jx_get_object(&import->fp16, json, "fp16", error)) < 0)
        return r;
    return 0;
}

/* MiCS. -1, the default, is off. */
static int mics(struct pl_layout *layout, const json_t *zero, struct tn_imported *out,
                struct err *error)
{
    int size = -1, r = jx_get_int(&size, zero, "mics_shard_size", -1, 1 << 16, error);

    if (r < 0)
        return r;
    if (size > 0 && layout->zero == 3)
        layout->shard = size;
    else if (size > 0)
        tn_finding_add(&out->ignored, "zero_optimization.mics_shard_size",
                       "applies only with stage 3");
    return 0;
}

/* Is what SECTION of ZERO describes offloaded? The deprecated SWITCH says so, too. */
static int offloads(bool *ret, json_t **ret_section, struct tn_imported *out, const json_t *zero,
                    const char *const names[2], struct err *error)
{
    static const char *const devices[] = {"none", "cpu", "nvme", NULL};
    AUTO_FREE char *setting = mem_printf("zero_optimization.%s", names[0]);
    int device = 0, r;

    if ((r = jx_get_bool(ret, zero, names[1], error)) < 0 ||
        (r = jx_get_object(ret_section, zero, names[0], error)) < 0 ||
        (r = *ret_section ? jx_get_enum(&device, *ret_section, "device", devices, error) : 0) < 0)
        return r;
    *ret |= device > 0;
    if (device == 2)
        tn_finding_add(&out->ignored, setting, "device nvme taken as cpu (host memory)");
    return 0;
}

static int offload(struct tn_imported *out, const json_t *zero, struct err *error)
{
    static const char *const state[] = {"offload_optimizer", "cpu_offload"},
                             *const weights[] = {"offload_param", "cpu_offload_param"};
    struct pl_layout *l = &out->layout;
    json_t *section = NULL, *params = NULL;
    bool optimizer = false, held = false;
    double ratio = 1;
    int r;

    if ((r = offloads(&optimizer, &section, out, zero, state, error)) < 0 ||
        (r = offloads(&held, &params, out, zero, weights, error)) < 0 ||
        (r = section ? jx_get_f64(&ratio, section, "ratio", 0, 1, error) : 0) < 0)
        return r;
    if (optimizer && l->zero)
        l->offload_optimizer =
            tn_offload_percent(out, "zero_optimization.offload_optimizer.ratio", ratio);
    else if (optimizer)
        tn_finding_add(&out->ignored, "zero_optimization.offload_optimizer",
                       "applies only with stage 1 and above");
    l->offload_params = held && l->zero == 3;
    if (held && l->zero < 3)
        tn_finding_add(&out->ignored, "zero_optimization.offload_param",
                       "applies only with stage 3");
    return 0;
}

/* How ZERO shards; NULL: not at all. */
static int zero_sharding(struct tn_imported *out, json_t *zero, struct err *error)
{
    struct pl_layout *l = &out->layout;
    bool overlap;
    int r;

    if (zero &&
        ((r = number_or_auto(&l->zero, out, zero, "zero_optimization.stage", 0, 3, error)) < 0 ||
         (r = mics(l, zero, out, error)) < 0 || (r = offload(out, zero, error)) < 0))
        return r;
    overlap = l->zero == 3; /* the default of overlap_comm */
    if ((r = switch_or_auto(&overlap, out, zero, "zero_optimization.overlap_comm", error)) < 0)
        return r;
    l->overlap_grad_reduce = overlap && l->zero;
    l->overlap_param_gather = overlap && l->zero == 3;
    return 0;
}

static int deepspeed_degrees(struct tn_imported *out, const struct deepspeed *import,
                             struct err *error)
{
    struct pl_layout *l = &out->layout;
    bool on = false;
    int r = zero_sharding(out, import->zero, error);

    if (r < 0 ||
        (import->tp &&
         (r = jx_get_int(&l->tp, import->tp, "autotp_size", 0, 1 << 20, error)) < 0) ||
        (import->old_tp &&
         (r = jx_get_int(&l->tp, import->old_tp, "tp_size", 1, 1 << 20, error)) < 0) ||
        (import->ep && (r = jx_get_bool(&on, import->ep, "enabled", error)) < 0) ||
        (import->ep && on &&
         (r = jx_get_int(&l->ep, import->ep, "autoep_size", 1, 1 << 20, error)) < 0))
        return r;
    if (import->ep && !on && json_object_get(import->ep, "autoep_size"))
        tn_finding_add(&out->ignored, "expert_parallel.autoep_size",
                       "applies only with \"enabled\": true");
    if (import->ep && on && /* reserved there: other values are refused */
        (r = jx_get_int(&l->etp, import->ep, "expert_tensor_parallel_size", 1, 1, error)) < 0)
        return r;
    l->tp = l->tp ? l->tp : 1;
    return 0;
}

/* Products in half precision by PyTorch's or Apex's means: NAME.enabled. */
static int autocast(bool *ret, struct tn_imported *out, const json_t *json, const char *name,
                    struct err *error)
{
    json_t *section = NULL;
    bool on = false;
    int r = jx_get_object(&section, json, name, error);

    if (r == 0 && section)
        r = jx_get_bool(&on, section, "enabled", error);
    if (r < 0)
        return r;
    if (on)
        tn_finding_add(&out->ignored, name,
                       "taken as bf16: there, matrix products are in half precision and weights "
                       "stay in fp32");
    *ret |= on;
    return 0;
}

/* The word under KEY as one of fp32, bf16 and fp16, as far as one is there: several spell a type
 * (class DtypeEnum). */
static int type_word(const char **ret, const json_t *object, const char *key, struct err *error)
{
    static const struct {
        const char *word, *type;
    } words[] = {
        {"fp32", "fp32"},           {"float32", "fp32"},       {"float", "fp32"},
        {"torch.float32", "fp32"},  {"bf16", "bf16"},          {"bfloat16", "bf16"},
        {"torch.bfloat16", "bf16"}, {"fp16", "fp16"},          {"half", "fp16"},
        {"float16", "fp16"},        {"torch.float16", "fp16"},
    };
    const char *word = NULL;
    int r = object ? jx_get_str(&word, object, key, 32, error) : 0;

    if (r < 0 || !word)
        return r;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!strcasecmp(words[i].word, word)) {
            *ret = words[i].type;
            return 0;
        }
    return err_set(error, -EINVAL, "%s must be fp32, bf16 or fp16, not \"%s\"", key, word);
}

/* grad_dtype, of weights in half precision or (with autocast) in fp32: both of DeepSpeed's types
 * are the weights' unless the file says otherwise (engine.py: get_data_types,
 * communication_data_type). Ulysses has a type of its own, which is fp32. */
static int grad_types(struct tn_imported *out, json_t *json, bool half, struct err *error)
{
    struct pl_layout *layout = &out->layout;
    const char *name =
        layout->cp > 1 ? "seq_parallel_communication_data_type" : "communication_data_type";
    const char *accumulate = half ? "bf16" : "fp32",
               *reduce = half && layout->cp == 1 ? "bf16" : "fp32";
    json_t *types = NULL;
    int r;

    if ((r = jx_get_object(&types, json, "data_types", error)) < 0 ||
        (r = type_word(&accumulate, types, "grad_accum_dtype", error)) < 0 ||
        (r = type_word(&reduce, json, name, error)) < 0)
        return r;
    if (layout->precision != PL_FP32 && !str_eq(accumulate, "fp32"))
        layout->grad_dtype = PL_GRADS_BF16;
    if (str_eq(accumulate, "fp32") != str_eq(reduce, "fp32"))
        tn_grads_differ(out, name, reduce, accumulate);
    return 0;
}

/* Precision, and grad_dtype. RET_HALF: the sections bf16 and fp16 are on. */
static int precision(bool ret_half[2], struct tn_imported *out, json_t *json,
                     const struct deepspeed *import, struct err *error)
{
    bool bf16 = false, fp16 = false, cast = false;
    int r;

    if ((r = switch_or_auto(&bf16, out, import->old_bf16, "bfloat16.enabled", error)) < 0 ||
        (r = switch_or_auto(&bf16, out, import->bf16, "bf16.enabled", error)) < 0 ||
        (r = switch_or_auto(&fp16, out, import->fp16, "fp16.enabled", error)) < 0 ||
        (r = autocast(&cast, out, json, "torch_autocast", error)) < 0 ||
        (r = autocast(&cast, out, json, "amp", error)) < 0)
        return r;
    out->layout.precision = bf16 || fp16 || cast ? PL_BF16 : PL_FP32;
    if (fp16)
        tn_finding_add(&out->ignored, "fp16", "taken as bf16, which needs the same bytes");
    ret_half[0] = bf16 || cast;
    ret_half[1] = fp16;
    return grad_types(out, json, bf16 || fp16, error);
}

static int is_configuration(const json_t *json, const char *const *known, struct err *error)
{
    for (; *known; known++)
        if (json_object_get(json, *known))
            return 0;
    return err_set(error, -EINVAL, "this file has none of DeepSpeed's layout settings");
}

/* What is read of zero_optimization. */
static const char *const zero_keys[] = {"stage",
                                        "overlap_comm",
                                        "contiguous_gradients",
                                        "reduce_scatter",
                                        "mics_shard_size",
                                        "offload_optimizer",
                                        "offload_param",
                                        "cpu_offload",
                                        "cpu_offload_param",
                                        NULL};

/* What a script writes may be of variables that are not known: strings here (tn_sh_json). */
static int refuse_unknown(const json_t *zero, struct err *error)
{
    for (int i = 0; zero_keys[i]; i++) {
        const char *value = json_string_value(json_object_get(zero, zero_keys[i]));

        if (value && (*value == '$' || *value == '`'))
            return err_set(error, -EINVAL,
                           "zero_optimization.%s is `%.64s`, which is not known here: add a line "
                           "that sets it, or replace it with its value",
                           zero_keys[i], value);
    }
    return 0;
}

int tn_deepspeed_sharding(struct tn_imported *out, const char *text, struct err *error)
{
    /* what the arguments of Megatron-DeepSpeed say, too, and it refuses to differ */
    static const char *const known[] = {"train_batch_size",
                                        "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps",
                                        "zero_optimization",
                                        "bf16",
                                        "bfloat16",
                                        "fp16",
                                        NULL};
    AUTO_JSON *v = NULL;
    json_t *zero = NULL;
    int r = jx_parse(&v, text, strlen(text), error);

    if (r == 0 && !json_is_object(v))
        r = err_set(error, -EINVAL, "a DeepSpeed configuration is a JSON object");
    if (r < 0 || (r = jx_get_object(&zero, v, "zero_optimization", error)) < 0)
        return r;
    out->layout.zero = 0;
    if ((r = refuse_unknown(zero, error)) < 0 || (r = zero_sharding(out, zero, error)) < 0 ||
        (r = list_ignored(out, "zero_optimization.", zero, zero_keys, error)) < 0)
        return r;
    return list_ignored(out, "", v, known, error);
}

int tn_import_deepspeed(struct tn_imported *out, const char *text, const struct pl_model *model,
                        struct err *error)
{
    static const char *const known[] = {"train_batch_size",
                                        "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps",
                                        "sequence_parallel_size",
                                        "data_parallel_size",
                                        "zero_optimization",
                                        "tensor_parallel",
                                        "expert_parallel",
                                        "bf16",
                                        "bfloat16",
                                        "fp16",
                                        "torch_autocast",
                                        "amp",
                                        "data_types",
                                        "communication_data_type",
                                        "seq_parallel_communication_data_type",
                                        "_partune",
                                        NULL};
    static const char *const tp[] = {"autotp_size", "tp", "preset_model", NULL};
    static const char *const ep[] = {"enabled", "autoep_size", "expert_tensor_parallel_size",
                                     "preset_model", NULL};
    static const char *const old_tp[] = {"tp_size", NULL};
    static const char *const half[] = {"enabled", NULL};
    static const char *const types[] = {"grad_accum_dtype", NULL};
    struct deepspeed s = {0};
    AUTO_JSON *v = NULL;
    bool on[2];
    int r = jx_parse(&v, text, strlen(text), error);

    if (r < 0)
        return r;
    if (!json_is_object(v))
        return err_set(error, -EINVAL, "a DeepSpeed configuration is a JSON object");
    if ((r = deepspeed_sections(&s, v, error)) < 0 || (r = deepspeed_degrees(out, &s, error)) < 0 ||
        (r = sequence_parallel(out, v, error)) < 0 || (r = deepspeed_batch(out, v, error)) < 0 ||
        (r = precision(on, out, v, &s, error)) < 0)
        return r;
    tn_import_split_experts(&out->layout, model);
    if ((r = list_ignored(out, "", v, known, error)) < 0 ||
        (r = list_ignored(out, "data_types.", json_object_get(v, "data_types"), types, error)) <
            0 ||
        (r = list_ignored(out, "zero_optimization.", s.zero, zero_keys, error)) < 0 ||
        (r = list_ignored(out, "tensor_parallel.", s.tp, tp, error)) < 0 ||
        (r = list_ignored(out, "tensor_parallel.tp.", s.old_tp, old_tp, error)) < 0 ||
        (r = list_ignored(out, "expert_parallel.", s.ep, ep, error)) < 0 ||
        /* when off they count for nothing */
        (r = list_ignored(out, "bf16.", on[0] ? s.bf16 : NULL, half, error)) < 0 ||
        (r = list_ignored(out, "fp16.", on[1] ? s.fp16 : NULL, half, error)) < 0)
        return r;
    return is_configuration(v, known, error);
}
