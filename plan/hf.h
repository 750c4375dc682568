/*
 * Models as Hugging Face describes them: config.json into our words. A part of plan.h.
 *
 * Every key of a config.json is read, or in the list of those that mean nothing for shape or
 * training of a pretrained language model (plan/hf.c), or refused by its name. What it leaves out
 * has the default of the published configuration class.
 */
#ifndef PLAN_HF_H
#define PLAN_HF_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Is it a config.json rather than a model in our words? */
bool pl_hf_is_config(const json_t *json);

/* The model in our words, new reference. Sizes are judged by pl_model_parse. Refused by pointer
 * into CONFIG: a model_type that is not in the table, keys without a word, values that no word has.
 */
int pl_hf_words(json_t **ret, const json_t *config, struct err *error);

#endif
