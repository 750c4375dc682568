/*
 * tokenizer.json, the file of Hugging Face's `tokenizers`: added tokens, normalizer, pre_tokenizer
 * and a BPE model, applied in this order. What of it would change ids and is not known is refused
 * by its key. Ignored: decoder (turns ids back to text), post_processor (special tokens around a
 * text; documents get their eod alone), truncation and padding (of batches).
 */
#ifndef TRAINER_HF_TOKENIZER_H
#define TRAINER_HF_TOKENIZER_H

#include "trainer/tokenizer.h"

/* From the file's LEN bytes; EOD is a token of it. RET lacks name and checksum. -EINVAL or -ENOTSUP
 * with the pointer of the key. */
int tr_hf_tokenizer_new(struct tr_tokenizer **ret, const char *json, size_t len, const char *eod,
                        struct err *error);

#endif
