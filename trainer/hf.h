/*
 * The model as Hugging Face describes it: Llama for dense models, Mixtral for models with experts.
 * Tensor names are those of the parameter table (plan/partune.h); all matrices are (out, in),
 * row-major.
 *
 * A model with shared_ffn, every > 1 or dense_layers is neither: our own checkpoints hold it,
 * config.json cannot.
 */
#ifndef TRAINER_HF_H
#define TRAINER_HF_H

#include <jansson.h>

#include "base/err.h"
#include "plan/plan.h"

/* config.json of the model, new reference. -ENOTSUP, naming the key, for one that Hugging Face has
 * no class for. */
int tr_hf_config(json_t **ret, const struct pl_model *model, struct err *error);

/* The model that a config.json describes (plan/hf.h). Refused by key: other families, and words
 * that tr_hf_config could not write back: biases, sliding windows shorter than the positions,
 * scaled RoPE. */
int tr_hf_model(struct pl_model *ret, const json_t *config, struct err *error);
int tr_hf_model_load(struct pl_model *ret, const char *folder, struct err *error);

#endif
