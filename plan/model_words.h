/* Private to plan/: the optional words of a model, a row each. Reading a model from JSON and
 * writing it both walk these rows. */
#ifndef PLAN_MODEL_WORDS_H
#define PLAN_MODEL_WORDS_H

#include "plan/model.h"

/* Where in a model's JSON a word is. */
enum pl_section {
    PL_OF_MODEL,
    PL_OF_MOE,
    PL_OF_MLA,
    PL_OF_DSA,
    PL_OF_LINEAR,
    PL_OF_MAMBA,
    PL_OF_ROPE
};

/* NULL-terminated names of PLAIN, then those of SECTION, into RET, which has room for
 * PL_MOST_WORDS. */
enum { PL_MOST_WORDS = 64 };
void pl_words_names(const char **ret, enum pl_section section, const char *const *plain);

/* Defaults of all words, in all sections. Biases follow from the norm, which must be known. */
void pl_words_default(struct pl_model *model);

/* The words of SECTION that JSON has; those it has not stay as they are. Errors are relative to
 * JSON. */
int pl_words_parse(struct pl_model *model, enum pl_section section, const json_t *json,
                   struct err *error);

/* The objects among the words ("mla", "dsa", "linear_attention", "mamba", "rope_scaling") of the
 * model's JSON, with their words. */
int pl_words_parse_objects(struct pl_model *model, const json_t *json, struct err *error);

/* Adds to JSON the words of SECTION that differ from their defaults: models stored before a word
 * was known are equal to what they were. */
void pl_words_json(json_t *json, const struct pl_model *model, enum pl_section section);
void pl_words_objects_json(json_t *json, const struct pl_model *model);

/* What depends on more than one word. */
int pl_words_check(struct pl_model *model, struct err *error);

#endif
