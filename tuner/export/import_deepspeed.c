/* DeepSpeed's JSON as a layout (deepspeed/runtime/config.py). The pipeline is not in the file. */
#include "tuner/export/internal.h"

#include <errno.h>

/* Keys of OBJECT that are not in KNOWN, listed as PREFIXkey. Off is the same as absent. */
static void list_ignored(struct tn_imported *out, const char *prefix, const json_t *object,
                         const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        AUTO_FREE char *name = mem_printf("%s%s", prefix, key);
        size_t i = 0;

        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i] && !json_is_false(value) && !json_is_null(value))
            tn_finding_add(&out->ignored, name, "not a setting of the layout");
    }
}

static bool is_auto(const json_t *object, const char *key)
{
    return str_eq(json_string_value(json_object_get(object, key)), "auto");
}

/* "auto" is a placeholder that Hugging Face's integration fills in from the script's arguments: the
 * file does not say, and that is said. NAME ends in the key. */
static int number_or_auto(struct tn_imported *out, int *ret, const json_t *object, const char *name,
                          int min, int max, struct err *e)
{
    const char *dot = strchr(name, '.'), *key = dot ? dot + 1 : name;

    if (!is_auto(object, key))
        return jx_get_int(ret, object, key, min, max, e);
    tn_finding_add(&out->ignored, name, "auto: the script decides");
    return 0;
}

/* A switch keeps its default. */
static int switch_or_auto(struct tn_imported *out, bool *ret, const json_t *object,
                          const char *name, struct err *e)
{
    const char *dot = strchr(name, '.');

    if (!object || !is_auto(object, dot + 1))
        return object ? jx_get_bool(ret, object, dot + 1, e) : 0;
    tn_finding_add(&out->ignored, name, "auto: the script decides; taken as %s",
                   *ret ? "true" : "false");
    return 0;
}

enum { MAX_BATCH = 1 << 24 };

/* train_batch_size = micro-batch x accumulation x replicas: two of them give the third. */
static int deepspeed_batch(struct tn_imported *out, json_t *v, struct err *e)
{
    struct pl_layout *l = &out->layout;
    int replicas = l->world / l->tp > 0 ? l->world / l->tp : 1;
    int micro = 0, steps = 0, r;
    int64_t once; /* sequences of a step with a micro-batch of one */

    if ((r = number_or_auto(out, &out->global_batch, v, "train_batch_size", 1, MAX_BATCH, e)) < 0 ||
        (r = number_or_auto(out, &micro, v, "train_micro_batch_size_per_gpu", 1, MAX_BATCH, e)) <
            0 ||
        (r = number_or_auto(out, &steps, v, "gradient_accumulation_steps", 1, MAX_BATCH, e)) < 0)
        return r;
    once = (int64_t)(steps ? steps : 1) * replicas;
    if (!micro && out->global_batch) {
        if (out->global_batch % once)
            return err_set(e, -EINVAL,
                           "train_batch_size %d is not a multiple of %d accumulation steps x %d "
                           "replicas",
                           out->global_batch, steps ? steps : 1, replicas);
        micro = (int)(out->global_batch / once);
    }
    l->micro_batch = micro ? micro : 1;
    if (!out->global_batch && micro && once * micro <= MAX_BATCH)
        out->global_batch = (int)once * micro;
    if (out->global_batch && micro && steps && out->global_batch != once * micro)
        return err_set(e, -EINVAL,
                       "train_batch_size %d is not micro-batch %d x accumulation %d x %d replicas",
                       out->global_batch, micro, steps, replicas);
    return 0;
}

struct deepspeed {
    json_t *zero, *tp, *ep, *bf16, *fp16;
    json_t *old_tp, *old_bf16; /* "tensor_parallel.tp" and "bfloat16", as they were called before */
};

static int deepspeed_sections(struct deepspeed *s, json_t *v, struct err *e)
{
    int r;

    if ((r = jx_get_object(&s->zero, v, "zero_optimization", e)) < 0 ||
        (r = jx_get_object(&s->tp, v, "tensor_parallel", e)) < 0 ||
        (r = jx_get_object(&s->ep, v, "expert_parallel", e)) < 0 ||
        (r = jx_get_object(&s->bf16, v, "bf16", e)) < 0 ||
        (r = jx_get_object(&s->old_bf16, v, "bfloat16", e)) < 0 ||
        (r = s->tp ? jx_get_object(&s->old_tp, s->tp, "tp", e) : 0) < 0 ||
        (r = jx_get_object(&s->fp16, v, "fp16", e)) < 0)
        return r;
    return 0;
}

static int deepspeed_degrees(struct tn_imported *out, const struct deepspeed *s, struct err *e)
{
    struct pl_layout *l = &out->layout;
    bool overlap = false, on = false;
    int r;

    if (s->zero &&
        (r = number_or_auto(out, &l->zero, s->zero, "zero_optimization.stage", 0, 3, e)) < 0)
        return r;
    overlap = l->zero == 3; /* the default of overlap_comm */
    if ((r = switch_or_auto(out, &overlap, s->zero, "zero_optimization.overlap_comm", e)) < 0 ||
        (s->tp && (r = jx_get_int(&l->tp, s->tp, "autotp_size", 0, 1 << 20, e)) < 0) ||
        (s->old_tp && (r = jx_get_int(&l->tp, s->old_tp, "tp_size", 1, 1 << 20, e)) < 0) ||
        (s->ep && (r = jx_get_bool(&on, s->ep, "enabled", e)) < 0) ||
        (s->ep && on && (r = jx_get_int(&l->ep, s->ep, "autoep_size", 1, 1 << 20, e)) < 0))
        return r;
    if (s->ep && !on && json_object_get(s->ep, "autoep_size"))
        tn_finding_add(&out->ignored, "expert_parallel.autoep_size",
                       "counts with \"enabled\": true only");
    if (s->ep && on && /* reserved there: other values are refused */
        (r = jx_get_int(&l->etp, s->ep, "expert_tensor_parallel_size", 1, 1, e)) < 0)
        return r;
    l->tp = l->tp ? l->tp : 1;
    l->overlap_grad_reduce = overlap && l->zero;
    l->overlap_param_gather = overlap && l->zero == 3;
    return 0;
}

int tn_import_deepspeed(struct tn_imported *out, const char *text, const struct pl_model *m,
                        struct err *e)
{
    static const char *const known[] = {"train_batch_size",
                                        "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps",
                                        "zero_optimization",
                                        "tensor_parallel",
                                        "expert_parallel",
                                        "bf16",
                                        "bfloat16",
                                        "fp16",
                                        "_partune",
                                        NULL};
    static const char *const zero[] = {"stage", "overlap_comm", "contiguous_gradients",
                                       "reduce_scatter", NULL};
    static const char *const tp[] = {"autotp_size", "tp", "preset_model", NULL};
    static const char *const ep[] = {"enabled", "autoep_size", "expert_tensor_parallel_size",
                                     "preset_model", NULL};
    static const char *const old_tp[] = {"tp_size", NULL};
    static const char *const half[] = {"enabled", NULL};
    struct pl_layout *l = &out->layout;
    struct deepspeed s = {0};
    AUTO_JSON *v = NULL;
    bool bf16 = false, fp16 = false;
    int r = jx_parse(&v, text, strlen(text), e);

    if (r < 0)
        return r;
    if (!json_is_object(v))
        return err_set(e, -EINVAL, "a DeepSpeed configuration is a JSON object");
    if ((r = deepspeed_sections(&s, v, e)) < 0 || (r = deepspeed_degrees(out, &s, e)) < 0 ||
        (r = deepspeed_batch(out, v, e)) < 0 ||
        (r = switch_or_auto(out, &bf16, s.old_bf16, "bfloat16.enabled", e)) < 0 ||
        (r = switch_or_auto(out, &bf16, s.bf16, "bf16.enabled", e)) < 0 ||
        (r = switch_or_auto(out, &fp16, s.fp16, "fp16.enabled", e)) < 0)
        return r;
    l->precision = bf16 || fp16 ? PL_BF16 : PL_FP32;
    if (fp16)
        tn_finding_add(&out->ignored, "fp16", "taken as bf16, which needs the same bytes");
    tn_import_split_experts(l, m);
    list_ignored(out, "", v, known);
    list_ignored(out, "zero_optimization.", s.zero, zero);
    list_ignored(out, "tensor_parallel.", s.tp, tp);
    list_ignored(out, "tensor_parallel.tp.", s.old_tp, old_tp);
    list_ignored(out, "expert_parallel.", s.ep, ep);
    list_ignored(out, "bf16.", bf16 ? s.bf16 : NULL, half); /* when off they count for nothing */
    list_ignored(out, "fp16.", fp16 ? s.fp16 : NULL, half);
    return 0;
}
