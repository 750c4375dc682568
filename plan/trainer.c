#include "plan/legal.h"

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
        .max_zero = 3,
        .usual_zero = 1,
        .windows = true,
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
        .expert_streams = 4, /* of cuBLAS: nvte_multi_stream_cublas_gemm */
        .weighs_rows = true, /* since Transformer Engine 2.1 permutes the weights, too */
        .tp_async = true,
        .tp_buffers = 10, /* of Transformer Engine: initialize_ub makes one for each product of
                             qkv, proj, fc1 and fc2, passes apart, that has a collective */
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
        .v_schedules = true,
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
        .offloads_grads = true,
        .fp32_shards = true, /* FSDP2 casts them there, before it gathers */
        .fsdp_units = true,
        .tp_buffers = 1, /* the workspace of PyTorch's symmetric memory */
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
        .offloads_grads = true,
        .half_replicas = true,
        .experts_follow_tp = true,
        .limits = pl_deepspeed_limits,
    },
    {
        .name = "any",
        .by = PL_BY_ALL,
        .tp_async = true,
        .tp_buffers = 10,
        .fp8_delayed = true,
        .flash = true,
        .gelu = true,
        .layernorm = true,
        .learned = true,
        .tied = true,
        .capacity = true,
        .gpipe = true,
        .zero_bubble = true,
        .v_schedules = true,
        .dualpipe = true,
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
