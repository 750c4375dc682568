/*
 * Byte pair encoding (Sennrich et al. 2016) of one word: its characters, or bytes, are the first
 * tokens; of all neighbors that are in the list of merges the pair that is first there is replaced
 * by its token, the leftmost of equal ones first, until there is none. What Hugging Face's
 * `tokenizers` call the model BPE.
 *
 * A heap holds the pairs, so a word of n characters takes O(n log n). Words of up to 64 bytes are
 * remembered with their ids, at most 2^17 words, so a common word costs one look.
 */
#ifndef TRAINER_BPE_H
#define TRAINER_BPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "trainer/tokenizer.h"

enum { TR_BPE_IDS_MAX = 1 << 24 }; /* ids are below it */

struct tr_bpe;

/* From the value of "model"; BYTES: words are bytes, and the vocabulary spells them as GPT-2's.
 * -EINVAL with the pointer: a key that is not known or not supported, an id that two tokens have,
 * a token of a merge that is missing. */
int tr_bpe_new(struct tr_bpe **ret, const json_t *json, bool bytes, struct err *error);
struct tr_bpe *tr_bpe_free(struct tr_bpe *bpe);

AUTO_DEFINE(tr_bpe)

/* The ids of a word (well-formed UTF-8, not empty) in order. -ENOMEM. Not for two threads. */
int tr_bpe_encode(struct tr_bpe *bpe, const char *word, size_t len, tr_ids_fn *ids, void *arg,
                  struct err *error);

/* Characters (or bytes) without a token so far; as in `tokenizers` they have no id. */
uint64_t tr_bpe_dropped(const struct tr_bpe *bpe);

#endif
