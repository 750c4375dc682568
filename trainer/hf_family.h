/*
 * Families of Hugging Face's model classes, and which of them has a model: the one whose
 * config.json (hf.h) and tensors (hf_names.h) can say all that it is.
 */
#ifndef TRAINER_HF_FAMILY_H
#define TRAINER_HF_FAMILY_H

#include "base/err.h"
#include "plan/plan.h"

enum tr_hf_family {
    TR_HF_LLAMA,
    TR_HF_MISTRAL,
    TR_HF_QWEN2,
    TR_HF_QWEN3,
    TR_HF_MIXTRAL,
    TR_HF_QWEN2_MOE,
    TR_HF_QWEN3_MOE,
    TR_HF_DEEPSEEK_V2,
    TR_HF_DEEPSEEK_V3,
    TR_HF_GEMMA2,
    TR_HF_GEMMA3,
    TR_HF_GPT2,
    TR_HF_NEOX,
    TR_HF_GPT_OSS,
    TR_HF_NEMOTRON,
    TR_HF_OLMOE,
    TR_HF_OLMO2,
    TR_HF_OLMO3,
    TR_HF_SMOLLM3,
    TR_HF_EXAONE4,
    TR_HF_GRANITE,
    TR_HF_GRANITE_MOE,
    TR_HF_COHERE,
    TR_HF_COHERE2
};

/* The family that has a class for MODEL. -ENOTSUP, naming the key, where none has. */
int tr_hf_family_of(enum tr_hf_family *ret, const struct pl_model *model, struct err *error);

#endif
