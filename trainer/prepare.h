/*
 * From text files, or files of ids, to a data set folder: what `partune-data prepare` does.
 *
 * Text: each operand is a file or a folder, which is walked in the order of names; symbolic links
 * inside folders are left alone, files that gzip packed are unpacked, files with a NUL among their
 * first bytes are not text and are skipped. Each file is a document, ended by the id 0; of JSON
 * lines (trainer/jsonl.h) each line. Ids: raw little-endian numbers, each file a document.
 *
 * With a tokenizer text becomes ids of it, and documents end with its eod. A document is then in
 * memory as a whole, at most 1 GiB. What is not UTF-8 in it becomes U+FFFD (tr_utf8_repair).
 *
 * The validation split is chosen by a hash of (seed, number) of the document, or of the run of 4096
 * tokens in the whole: the same input gives the same split everywhere.
 */
#ifndef TRAINER_PREPARE_H
#define TRAINER_PREPARE_H

#include "trainer/dataset.h"

struct tr_prepare {
    const char *folder, *name;
    const char *const *path; /* files and folders */
    int npaths;
    enum tr_id id; /* TR_ID_U8: bytes of text */
    int vocab;
    struct tr_tokenizer *tokenizer; /* borrowed, or NULL; ID is u16 or u32, VOCAB its own */
    const char *json_key;           /* of the text in JSON lines */
    bool any_json;                  /* .json files are JSON lines, too */
    double validation;              /* share of the tokens, about */
    bool by_document;               /* else by run */
    uint64_t seed;
    uint64_t max_bytes; /* of input read; 0: all */
    bool replace;
};

struct tr_prepared {
    int64_t files, skipped, documents;
    int64_t json_as_text; /* .json files among the documents */
    uint64_t dropped;     /* characters for which the tokenizer has no id */
    uint64_t tokens[TR_SPLITS];
};

int tr_prepare(struct tr_prepared *ret, const struct tr_prepare *prepare, struct err *error);

#endif
