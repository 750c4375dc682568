/*
 * Arguments of Megatron-DeepSpeed (its megatron/arguments.py). Its ZeRO stage is said twice, here
 * and in DeepSpeed's configuration file, which the engine follows: that file is read where the
 * script itself writes it (shell_documents.c). Sequences are split by Ulysses; experts
 * have a tensor parallelism of 1 or tp.
 */
#include "tuner/export/megatron_deepspeed.h"

#include <errno.h>

static const char ZERO_STAGE[] = "--zero-stage", CONFIG[] = "--deepspeed_config";

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

/* The last part of a path. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool tn_megatron_deepspeed_config(struct tn_megatron_deepspeed *deepspeed,
                                  const struct tn_words *words, const char *flag, const char *value)
{
    if (!str_eq(flag, CONFIG) && !str_eq(flag, "--deepspeed-config"))
        return false;
    deepspeed->configured = value != NULL;
    deepspeed->config = NULL;
    for (size_t i = 0; value && i < words->nfiles; i++) {
        const struct tn_written *file = &words->files[i];

        if (str_eq(file->name, value)) {
            deepspeed->config = file;
            break;
        }
        if (str_eq(base_of(file->name), base_of(value))) /* $PWD/ds.json is ./ds.json */
            deepspeed->config = file;
    }
    return true;
}

/* What DeepSpeed's configuration says, to *RET_STAGE and OUT; -1: it is not in this text. */
static int configuration(int *ret_stage, struct tn_imported *out,
                         const struct tn_megatron_deepspeed *deepspeed, struct err *error)
{
    const struct tn_written *file = deepspeed->config;
    int r;

    *ret_stage = -1;
    if (!file && deepspeed->configured)
        tn_finding_add(&out->ignored, CONFIG, "this file is not in the script, and is not read");
    if (!file)
        return 0;
    if (!file->text && !deepspeed->zero_stage)
        return err_set(error, -EINVAL,
                       "%s %.80s: what the script writes there depends on more than the script: "
                       "write the file by one here-document without conditions, or add "
                       "--zero-stage",
                       CONFIG, file->name);
    if (!file->text) {
        tn_finding_add(&out->ignored, CONFIG, "what the script writes there is unknown here");
        return 0;
    }
    r = tn_deepspeed_sharding(out, file->text, error);
    if (r < 0)
        return err_wrap(error, "%s %.80s", CONFIG, file->name);
    *ret_stage = out->layout.zero;
    return 0;
}

/* With bf16 and stage 0 the pipeline engine has a BF16_Optimizer, which shards its states as stage
 * 1 does (deepspeed/runtime/bf16_optimizer.py). */
static int sharding(struct tn_imported *out, const struct tn_megatron_deepspeed *deepspeed,
                    bool fp16, struct err *error)
{
    int stage = deepspeed->zero_stage - 1, file, r;

    if (!deepspeed->used) {
        if (stage > 0)
            tn_finding_add(&out->ignored, ZERO_STAGE, "applies only with --deepspeed");
        return 0;
    }
    r = configuration(&file, out, deepspeed, error);
    if (r < 0)
        return r;
    if (file >= 0 && stage >= 0 && stage != file)
        tn_finding_add(&out->ignored, ZERO_STAGE,
                       "%d, but %s has stage %d, which DeepSpeed follows", stage, CONFIG, file);
    stage = file >= 0 ? file : stage;
    if (stage < 0) {
        tn_finding_add(&out->ignored, "--deepspeed",
                       "its configuration file is not read, and no --zero-stage is said");
    } else if (stage == 0 && !deepspeed->no_pipeline && !fp16 && out->layout.precision != PL_FP32) {
        out->layout.zero = 1;
        tn_finding_add(&out->ignored, ZERO_STAGE,
                       "0, but in bf16 DeepSpeed's pipeline engine shards states as with 1");
    } else {
        out->layout.zero = stage;
    }
    return 0;
}

int tn_megatron_deepspeed_read(struct tn_imported *out,
                               const struct tn_megatron_deepspeed *deepspeed, bool fp16,
                               struct err *error)
{
    struct pl_layout *l = &out->layout;
    int r = sharding(out, deepspeed, fp16, error);

    if (r < 0)
        return r;
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
    return 0;
}
