/*
 * The pre_tokenizer of tokenizer.json: how a text is cut into words, which the model encodes each
 * for itself. Known are Split, Digits, Punctuation, ByteLevel (last) and Sequences of these, as the
 * crate `tokenizers` of Hugging Face has them.
 */
#ifndef TRAINER_SPLITS_H
#define TRAINER_SPLITS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"

struct tr_splits;

/* Some of a text, LEN bytes, which are the callee's until it returns. Negative: an error. */
typedef int tr_piece_fn(void *arg, const char *text, size_t len, struct err *error);

/* From the value of "pre_tokenizer"; NULL or null cuts nothing. -EINVAL or -ENOTSUP with the
 * pointer of what is not supported. */
int tr_splits_new(struct tr_splits **ret, const json_t *json, struct err *error);
struct tr_splits *tr_splits_free(struct tr_splits *splits);

AUTO_DEFINE(tr_splits)

/* Whether words are made of bytes (ByteLevel), not of characters. */
bool tr_splits_bytes(const struct tr_splits *splits);

/* The words of TEXT (well-formed UTF-8) in order. */
int tr_splits_cut(const struct tr_splits *splits, const char *text, size_t len, tr_piece_fn *word,
                  void *arg, struct err *error);

#endif
