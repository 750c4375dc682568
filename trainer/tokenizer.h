/*
 * From texts to token ids, with the tokenizer of a model: Hugging Face's tokenizer.json
 * (hf_tokenizer.h) or a model of SentencePiece (sentencepiece.h).
 */
#ifndef TRAINER_TOKENIZER_H
#define TRAINER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

/* What a data set says of its tokenizer. */
struct tr_tokenizer_id {
    char name[64];  /* of its file or folder, cut; "": made of bytes, or of ids */
    uint32_t crc32; /* of its file */
    int eod;        /* the id that ends a document */
};

/* COUNT ids, which are the callee's until it returns. Negative: an error. */
typedef int tr_ids_fn(void *arg, const uint32_t *ids, size_t count, struct err *error);

/* Each kind of tokenizer begins with this. */
struct tr_tokenizer {
    struct tr_tokenizer_id id;
    int vocab;        /* ids are in [0, vocab) */
    uint64_t dropped; /* characters so far that have no id */

    /* Ids of TEXT (LEN bytes of well-formed UTF-8) in order, as the tokenizer's own program gives
     * them without special tokens at the ends. */
    int (*encode)(struct tr_tokenizer *tokenizer, const char *text, size_t len, tr_ids_fn *ids,
                  void *arg, struct err *error);
    void (*release)(struct tr_tokenizer *tokenizer);
};

/* PATH is a file of either kind, or a folder with tokenizer.json or tokenizer.model. EOD is the
 * token that ends documents; NULL: the eos_token of a tokenizer_config.json next to the file, or
 * the model's own. -EINVAL or -ENOTSUP names file and key that cannot be used. */
int tr_tokenizer_open(struct tr_tokenizer **ret, const char *path, const char *eod,
                      struct err *error);

static inline struct tr_tokenizer *tr_tokenizer_free(struct tr_tokenizer *tokenizer)
{
    if (tokenizer)
        tokenizer->release(tokenizer);
    return NULL;
}

AUTO_DEFINE(tr_tokenizer)

#endif
