/*
 * Models of SentencePiece (Kudo and Richardson 2018), unigram and BPE, by its own library, which is
 * C++.
 */
#ifndef TRAINER_SENTENCEPIECE_H
#define TRAINER_SENTENCEPIECE_H

#include "trainer/tokenizer.h"

/* From the LEN bytes of a .model; EOD is a piece of it, NULL its eos. RET lacks name and checksum.
 * -EINVAL: no such model or piece; -ENOTSUP: this build has no SentencePiece. */
int tr_sentencepiece_new(struct tr_tokenizer **ret, const char *model, size_t len, const char *eod,
                         struct err *error);

#endif
