/*
 * The data set folder, read and written; and token ids in mapped files whatever their type. Private
 * to tokens.c, megatron.c, prepare.c and their tests.
 *
 *     meta.json        {"format": "partune-dataset", "v": 1, "name", "vocab",
 *                       "id": "u8"|"u16"|"u32", "block": 65536, "documents", "seed",
 *                       "tokenizer": {"name", "crc32", "eod"}, if one made it,
 *                       "splits": {"train": {"tokens", "crc32"}, "validation": {...}}}
 *     train.bin        token ids, little endian, nothing else
 *     train.sum        CRC-32 of each 64 KiB block of train.bin, little endian; its own CRC-32 is
 *                      "crc32" above
 *     validation.bin, validation.sum    the same of the validation split
 *
 * Documents follow each other, each ended by the id 0 in data sets of bytes, by "eod" in those of a
 * tokenizer, whose file has that CRC-32. A block is checked when it is first read, so opening costs
 * nothing and damage is named with its offset.
 */
#ifndef TRAINER_DATASET_H
#define TRAINER_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "trainer/tokenizer.h"
#include "trainer/tokens.h"

enum tr_id { TR_ID_U8, TR_ID_I8, TR_ID_U16, TR_ID_I16, TR_ID_U32, TR_ID_I32, TR_ID_I64, TR_IDS };

enum { TR_BLOCK = 1 << 16 };

extern const char *const tr_id_names[TR_IDS + 1]; /* "u8" … */
size_t tr_id_bytes(enum tr_id id);
extern const char *const tr_split_names[TR_SPLITS + 1]; /* "train", "validation" */

/* Tokens [first, first + tokens) of a mapped file. SUM, if not NULL, has a checksum for each block
 * of the file. */
struct tr_stream {
    char *path;
    const unsigned char *map;
    size_t bytes;
    enum tr_id id;
    uint64_t first, tokens;
    uint32_t *sum;
    unsigned char *seen; /* a byte a block: 1 once its checksum matched */
};

/* Map PATH, which must hold WHOLE ids of type ID (0: as many as it has). */
int tr_stream_map(struct tr_stream *stream, const char *path, enum tr_id id, uint64_t whole,
                  struct err *error);
void tr_stream_done(struct tr_stream *stream);

/* COUNT ids from token AT of the stream. -EBADMSG for a damaged block, -ERANGE for an id outside
 * [0, VOCAB); both name the file and the offset. */
int tr_stream_read(int32_t *ret, const struct tr_stream *stream, uint64_t at, size_t count,
                   int vocab, struct err *error);

/* COUNT ids from token AT on will be read soon: advice to the system, with the blocks that their
 * checksums need. */
void tr_stream_ahead(const struct tr_stream *stream, uint64_t at, size_t count);

struct tr_dataset {
    char name[64];
    int vocab;
    uint32_t crc32; /* of meta.json, where it was opened from a folder */
    struct tr_tokenizer_id tokenizer;
    int64_t documents;
    struct tr_stream split[TR_SPLITS];
};

/* Parse and check FOLDER/meta.json alone: names, sizes and sums' CRCs. RET_CRC gets the splits'
 * crc32. */
int tr_dataset_meta(struct tr_dataset *ret, enum tr_id *ret_id, uint32_t ret_crc[TR_SPLITS],
                    const char *text, size_t len, struct err *error);
int tr_dataset_open(struct tr_dataset *ret, const char *folder, struct err *error);
void tr_dataset_done(struct tr_dataset *dataset);
/* Check every block of every split. */
int tr_dataset_verify(const struct tr_dataset *dataset, struct err *error);

/* ---- writing ------------------------------------------------------------- */

struct tr_dataset_writer;

/* A data set NAME that will be FOLDER. What is there already is refused, unless REPLACE. Nothing of
 * that name is seen before tr_dataset_commit, and a writer that is freed before leaves nothing
 * behind; what a killed writer left is removed here. */
int tr_dataset_writer_new(struct tr_dataset_writer **ret, const char *folder, const char *name,
                          enum tr_id id, int vocab, bool replace, struct err *error);
struct tr_dataset_writer *tr_dataset_writer_free(struct tr_dataset_writer *writer);
/* Its ids are those of TOKENIZER. */
void tr_dataset_made_by(struct tr_dataset_writer *writer, const struct tr_tokenizer_id *tokenizer);
/* COUNT ids in the file's own form, at the end of a split. */
int tr_dataset_add(struct tr_dataset_writer *writer, enum tr_split split, const void *ids,
                   size_t count, struct err *error);
uint64_t tr_dataset_written(const struct tr_dataset_writer *writer, enum tr_split split);
int tr_dataset_commit(struct tr_dataset_writer *writer, int64_t documents, uint64_t seed,
                      struct err *error);

AUTO_DEFINE(tr_dataset_writer)

#endif
