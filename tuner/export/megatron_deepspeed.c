/*
 * Arguments of Megatron-DeepSpeed (its megatron/arguments.py). Its ZeRO stage is said twice, here
 * and in DeepSpeed's configuration file, which is not read. Sequences are split by Ulysses; experts
 * have a tensor parallelism of 1 or tp.
 */
#include "tuner/export/megatron_deepspeed.h"

#include <errno.h>

static const char ZERO_STAGE[] = "--zero-stage";

bool *tn_megatron_deepspeed_flag(struct tn_megatron_deepspeed *deepspeed, const char *flag)
{
    const struct {
        const char *flag;
        bool *field;
    } rows[] = {
        {"--deepspeed", &deepspeed->used},
        {"--no-pipeline-parallel", &deepspeed->no_pipeline},
        {"--enable-expert-tensor-parallelism", &deepspeed->expert_tp},
        {"--enable-zbh1-pipeline", &deepspeed->zb_h1},
        {"--enable-zbh1-exact-semantics", &deepspeed->exact_zb_h1},
        {"--cpu-optimizer", &deepspeed->cpu_optimizer},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_eq(rows[i].flag, flag))
            return rows[i].field;
    return NULL;
}

int *tn_megatron_deepspeed_number(struct tn_megatron_deepspeed *deepspeed, const char *flag)
{
    if (str_eq(flag, "--moe-expert-parallel-size"))
        return &deepspeed->ep;
    return str_eq(flag, "--ds-sequence-parallel-size") ? &deepspeed->ulysses : NULL;
}

int tn_megatron_deepspeed_word(bool *ret_known, struct tn_megatron_deepspeed *deepspeed,
                               const char *flag, const char *value, struct err *error)
{
    int64_t stage;

    *ret_known = str_eq(flag, ZERO_STAGE);
    if (!*ret_known)
        return 0;
    if (!value || str_to_i64(&stage, value, 0, 3) < 0)
        return err_set(error, -EINVAL, "%s must be 0 to 3, not `%.40s`", flag, value ? value : "");
    deepspeed->zero_stage = (int)stage + 1;
    return 0;
}

/* With bf16 and stage 0 the pipeline engine has a BF16_Optimizer, which shards its states as stage
 * 1 does (deepspeed/runtime/bf16_optimizer.py). */
static void sharding(struct tn_imported *out, const struct tn_megatron_deepspeed *deepspeed,
                     bool fp16)
{
    int stage = deepspeed->zero_stage - 1;

    if (!deepspeed->used) {
        if (stage > 0)
            tn_finding_add(&out->ignored, ZERO_STAGE, "applies only with --deepspeed");
    } else if (stage < 0) {
        tn_finding_add(&out->ignored, "--deepspeed",
                       "its configuration file is not read, and no --zero-stage is said");
    } else if (stage == 0 && !deepspeed->no_pipeline && !fp16 && out->layout.precision != PL_FP32) {
        out->layout.zero = 1;
        tn_finding_add(&out->ignored, ZERO_STAGE,
                       "0, but in bf16 DeepSpeed's pipeline engine shards states as with 1");
    } else {
        out->layout.zero = stage;
    }
}

void tn_megatron_deepspeed_read(struct tn_imported *out,
                                const struct tn_megatron_deepspeed *deepspeed, bool fp16)
{
    struct pl_layout *l = &out->layout;

    sharding(out, deepspeed, fp16);
    if (deepspeed->ep)
        l->ep = deepspeed->ep;
    if (deepspeed->used)
        l->etp = deepspeed->expert_tp ? l->tp : 1;
    if (deepspeed->zb_h1)
        l->schedule = PL_ZERO_BUBBLE;
    if (deepspeed->cpu_optimizer)
        l->offload_optimizer = 100;
    if (deepspeed->ulysses > 1) {
        l->cp = deepspeed->ulysses;
        tn_finding_add(&out->ignored, "--ds-sequence-parallel-size", TN_ULYSSES);
    }
}
