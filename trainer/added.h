/*
 * The added_tokens of tokenizer.json: texts that are one id wherever they are, before the rest is
 * cut and encoded, such as <|endoftext|>. Those with "normalized" are looked for, normalized
 * themselves, in normalized text, the others before that. Of several that begin at one place the
 * longest counts.
 */
#ifndef TRAINER_ADDED_H
#define TRAINER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "trainer/splits.h"

struct tr_added;

struct tr_added *tr_added_new(void);
struct tr_added *tr_added_free(struct tr_added *added);

AUTO_DEFINE(tr_added)

/* TEXT (not empty) is the token ID; with LSTRIP or RSTRIP it takes the white space before or
 * behind it. */
void tr_added_put(struct tr_added *added, const char *text, size_t len, uint32_t id, bool lstrip,
                  bool rstrip);
/* After the last one. -EINVAL names a text that is there twice. */
int tr_added_finish(struct tr_added *added, struct err *error);

/* An id in a text. Negative: an error. */
typedef int tr_added_fn(void *arg, uint32_t id, struct err *error);

/* The tokens in TEXT (well-formed UTF-8) and the pieces between them, in order. */
int tr_added_cut(const struct tr_added *added, const char *text, size_t len, tr_piece_fn *piece,
                 tr_added_fn *token, void *arg, struct err *error);

#endif
