#include "plan/legal.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"

/* One row a trainer: a capability is switched on in the commit that brings it. */
static const struct pl_trainer trainers[] = {
    {
        .name = "partune",
        .by = PL_BY_PARTUNE,
        .bundled = true,
        .flash = true,
        .gelu = true,
        .layernorm = true,
        .learned = true,
        .tied = true,
        .moe_every = true,
        .gpipe = true,
        .zero_bubble = true,
        .shared_expert = true,
        .selective = true,
        .bf16 = true,
        .max_zero = 1,
        .full = true,
        .dense_layers = true,
        .min_zero = 1,
        .limits = pl_partune_limits,
    },
    {
        .name = "megatron",
        .by = PL_BY_MEGATRON,
        .flash_units = 3, /* cuDNN, through Transformer Engine */
        .fp8_delayed = true,
        .weighs_rows = true, /* since Transformer Engine 2.1 permutes the weights, too */
        .tp_async = true,
        .flash = true,
        .gelu = true,
        .layernorm = true,
        .learned = true,
        .tied = true,
        .capacity = true,
        .selective = true,
        .bf16 = true,
        .fp8 = true,
        .fp8_recipes = true,
        .mxfp8 = true,
        .nvfp4 = true,
        .shared_expert = true,
        .moe_every = true,
        .max_zero = 3,
        .usual_zero = 1, /* Megatron-FSDP is another program than what most of its users run */
        .full = true,
        .dense_layers = true,
        .min_zero = 1,
        .pair_overlaps = true,
        .fsdp_overlaps = true,
        .limits = pl_megatron_limits,
    },
    {
        .name = "torchtitan",
        .by = PL_BY_TORCHTITAN,
        .flash_units = 2,       /* PyTorch's scaled_dot_product_attention */
        .selective_share = 0.5, /* every second product is saved */
        .flash = true,
        .tied = true,
        .gpipe = true,
        .selective = true,
        .bf16 = true,
        .fp8 = true,
        .mxfp8 = true,
        .nvfp4 = true,
        .shared_expert = true,
        .uneven_layers = true,
        .max_zero = 3,
        .full = true,
        .dense_layers = true,
        .min_zero = 2, /* FSDP shards gradients, too */
        .always_overlaps = true,
        .copies_meet_often = true,
        .experts_follow_tp = true,
        .limits = pl_torchtitan_limits,
    },
    {
        .name = "deepspeed",
        .by = PL_BY_DEEPSPEED,
        .flash_units = 2,
        .flash = true,
        .gelu = true,
        .layernorm = true,
        .learned = true,
        .tied = true,
        .capacity = true,
        .bf16 = true,
        .shared_expert = true,
        .moe_every = true,
        .max_zero = 3,
        .dense_layers = true,
        .min_zero = 1,
        .experts_follow_tp = true,
        .limits = pl_deepspeed_limits,
    },
    {
        .name = "any",
        .by = PL_BY_ALL,
        .tp_async = true,
        .fp8_delayed = true,
        .flash = true,
        .gelu = true,
        .layernorm = true,
        .learned = true,
        .tied = true,
        .capacity = true,
        .gpipe = true,
        .zero_bubble = true,
        .selective = true,
        .bf16 = true,
        .fp8 = true,
        .fp8_recipes = true,
        .mxfp8 = true,
        .nvfp4 = true,
        .shared_expert = true,
        .moe_every = true,
        .uneven_layers = true,
        .max_zero = 3,
        .full = true,
        .dense_layers = true,
        .min_zero = 1,
    },
};

const struct pl_trainer *pl_trainer_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(trainers); i++)
        if (str_eq(trainers[i].name, name))
            return &trainers[i];
    return NULL;
}

const char *const *pl_trainer_names(void)
{
    static const char *const names[] = {"partune",   "megatron", "torchtitan",
                                        "deepspeed", "any",      NULL};

    return names;
}

static bool takes_precision(const struct pl_trainer *trainer, int value)
{
    switch (value) {
    case PL_FP32:
        return true;
    case PL_BF16:
        return trainer->bf16;
    case PL_FP8:
        return trainer->fp8;
    case PL_MXFP8:
        return trainer->mxfp8;
    case PL_NVFP4:
        return trainer->nvfp4;
    default:
        return trainer->fp8_recipes;
    }
}

bool pl_trainer_takes(const struct pl_trainer *trainer, enum pl_key key, int value)
{
    const struct pl_layout_key *row = &pl_layout_keys[key];

    if (value == row->standard)
        return true;
    switch (key) {
    case PL_KEY_SCHEDULE:
        return value == PL_INTERLEAVED ? pl_trainer_takes(trainer, PL_KEY_VP, 2)
               : value == PL_GPIPE     ? trainer->gpipe
                                       : trainer->zero_bubble;
    case PL_KEY_ZERO:
        return value >= trainer->min_zero && value <= trainer->max_zero;
    case PL_KEY_ZERO_SCOPE:
        return value != PL_SCOPE_PLAIN || (row->trainers & trainer->by);
    case PL_KEY_RECOMPUTE:
        return value == PL_RECOMPUTE_FULL ? trainer->full : trainer->selective;
    case PL_KEY_PRECISION:
        return takes_precision(trainer, value);
    default:
        return row->trainers & trainer->by;
    }
}

int pl_usual_zero(const struct pl_trainer *trainer)
{
    return trainer->usual_zero ? trainer->usual_zero : trainer->max_zero;
}

const char *const pl_precision_names[] = {"fp32",          "bf16",  "fp8",   "fp8-current",
                                          "fp8-blockwise", "mxfp8", "nvfp4", NULL};

int pl_workload_parse(struct pl_workload *ret, const json_t *json, const struct pl_model *model,
                      const struct pl_trainer *trainer, struct err *error)
{
    static const char *const keys[] = {"global_batch", "seq", "precision", "data", NULL};
    struct pl_workload workload = {.seq = model->seq, .data = "synthetic"};
    int r, precision = trainer->bundled ? PL_FP32 : PL_BF16;

    if ((r = jx_keys(json, keys, error)) < 0 || (r = jx_need(json, "global_batch", error)) < 0 ||
        (r = jx_get_int(&workload.global_batch, json, "global_batch", 1, 1 << 24, error)) < 0 ||
        (r = jx_get_int(&workload.seq, json, "seq", 1, 1 << 24, error)) < 0 ||
        (r = jx_get_enum(&precision, json, "precision", pl_precision_names, error)) < 0 ||
        (r = jx_copy_str(workload.data, sizeof(workload.data), json, "data", error)) < 0)
        return r;
    if (model->positions == PL_LEARNED && workload.seq > model->seq)
        return err_at(error, -ERANGE, "/seq",
                      "seq %d is longer than the model's %d learned positions", workload.seq,
                      model->seq);
    workload.precision = (enum pl_precision)precision;
    *ret = workload;
    return 0;
}

json_t *pl_workload_json(const struct pl_workload *workload)
{
    return json_pack("{s:i s:i s:s s:s}", "global_batch", workload->global_batch, "seq",
                     workload->seq, "precision", pl_precision_names[workload->precision], "data",
                     workload->data);
}
