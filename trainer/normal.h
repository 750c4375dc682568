/*
 * The normalizer of tokenizer.json: texts before they are cut into words. Known are NFC (by
 * utf8proc), Prepend, Replace of a text, and Sequences of these, as the crate `tokenizers` of
 * Hugging Face has them.
 */
#ifndef TRAINER_NORMAL_H
#define TRAINER_NORMAL_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"

struct tr_normal;

/* From the value of "normalizer"; NULL or null changes nothing. -EINVAL or -ENOTSUP (no utf8proc in
 * this build) with the pointer of what is not supported. */
int tr_normal_new(struct tr_normal **ret, const json_t *json, struct err *error);
struct tr_normal *tr_normal_free(struct tr_normal *normal);

AUTO_DEFINE(tr_normal)

/* TEXT (well-formed UTF-8) normalized: *RET is TEXT itself, or lies in NORMAL until the next call.
 * -ENOMEM. Not for two threads. */
int tr_normal_apply(const char **ret, size_t *ret_len, struct tr_normal *normal, const char *text,
                    size_t len, struct err *error);

#endif
