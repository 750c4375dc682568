/* What the arguments that only Megatron-DeepSpeed has say (megatron_deepspeed.c). */
#ifndef TUNER_EXPORT_MEGATRON_DEEPSPEED_H
#define TUNER_EXPORT_MEGATRON_DEEPSPEED_H

#include "tuner/export/internal.h"

struct tn_megatron_deepspeed {
    bool used;        /* --deepspeed */
    bool no_pipeline; /* --no-pipeline-parallel */
    bool expert_tp;   /* --enable-expert-tensor-parallelism */
    bool zb_h1, exact_zb_h1;
    bool cpu_optimizer;
    int ep, ulysses;                 /* 0: not said */
    int zero_stage;                  /* what --zero-stage says and 1; 0: not said */
    bool configured;                 /* --deepspeed_config */
    const struct tn_written *config; /* what the script has written there; NULL: another file */
};

/* The field of the argument FLAG without a value, or NULL; and with a number, or NULL. */
bool *tn_megatron_deepspeed_flag(struct tn_megatron_deepspeed *deepspeed, const char *flag);
int *tn_megatron_deepspeed_number(struct tn_megatron_deepspeed *deepspeed, const char *flag);

/* Is FLAG --deepspeed_config? Notes which of the files of WORDS is VALUE, which may be NULL. */
bool tn_megatron_deepspeed_config(struct tn_megatron_deepspeed *deepspeed,
                                  const struct tn_words *words, const char *flag,
                                  const char *value);

/* Is FLAG --zero-stage? Notes VALUE, which may be NULL; -EINVAL where it is no stage. */
int tn_megatron_deepspeed_word(bool *ret_known, struct tn_megatron_deepspeed *deepspeed,
                               const char *flag, const char *value, struct err *error);

/* All of them together in OUT, whose precision, tp and sharding by Megatron are set. FP16: that is
 * the precision. -EINVAL where DeepSpeed's configuration decides the sharding and is not known. */
int tn_megatron_deepspeed_read(struct tn_imported *out,
                               const struct tn_megatron_deepspeed *deepspeed, bool fp16,
                               struct err *error);

#endif
