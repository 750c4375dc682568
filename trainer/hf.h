/*
 * The model as Hugging Face describes it: config.json of one of the families in hf_family.h, whose
 * tensors are in hf_names.h.
 *
 * A model that no family has a class for (shared_ffn, every > 1, dense_layers) is held by our own
 * checkpoints only.
 */
#ifndef TRAINER_HF_H
#define TRAINER_HF_H

#include <jansson.h>

#include "base/err.h"
#include "plan/plan.h"

/* config.json of the model, new reference. -ENOTSUP, naming the key, for one that Hugging Face has
 * no class for. */
int tr_hf_config(json_t **ret, const struct pl_model *model, struct err *error);

/* The model that a config.json describes (plan/hf.h), or that in FOLDER. Refused by key: what
 * plan/hf.h refuses, and a model that tr_hf_config could not write back. */
int tr_hf_model(struct pl_model *ret, const json_t *config, struct err *error);
int tr_hf_model_load(struct pl_model *ret, const char *folder, struct err *error);

#endif
