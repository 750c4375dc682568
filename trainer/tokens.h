/*
 * Token streams: data sets made by partune-data, Megatron's .bin/.idx files, and a synthetic
 * language; one of these, or several data sets by weight.
 *
 * A data set is a folder with meta.json, train.bin and validation.bin (format in dataset.h). A
 * split of N tokens holds (N - 1) / seq samples of seq + 1 tokens: sample k begins at token k *
 * seq, so inputs never overlap and each token but the first is predicted once an epoch.
 *
 * Sample order: index I counts samples from the start of training over all ranks and steps; epoch
 * I / n is a permutation of [0, n) that is computed for one index at a time (a Feistel network,
 * cycle-walked), keyed by (seed, epoch). So any rank can read sample I alone, and the order depends
 * on nothing but the seed.
 *
 * With several sources, I gives a source and an index of its own (blend.h), which is I above: each
 * source keeps the samples, the order and the epochs that it has alone. The validation split takes
 * the sources' validation samples by the same rule, each in file order, until one that is to be
 * taken does not exist.
 *
 * Files are mapped, never copied whole. Safe to read from several threads.
 */
#ifndef TRAINER_TOKENS_H
#define TRAINER_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "trainer/sources.h"

enum tr_split { TR_SPLIT_TRAIN, TR_SPLIT_VALIDATION, TR_SPLITS };

struct tr_tokens;

/* The path of a source is "synthetic", the name of a data set under DATA_DIR/datasets, or a path
 * (it has a '/'): a data set folder, or the prefix of a .bin and a .idx file. VOCAB and SEQ are the
 * model's. SOURCES is not kept.
 * Refused: a data set whose vocabulary is larger than VOCAB, fewer tokens than one sample in a
 * training split, files that are truncated, corrupt or of another version, each by file and offset;
 * sources whose ids differ in bytes or, where both say it, in vocabulary or tokenizer, by name.
 */
int tr_tokens_open(struct tr_tokens **ret, const char *data_dir, const struct tr_sources *sources,
                   int vocab, int seq, uint64_t seed, struct err *error);
struct tr_tokens *tr_tokens_free(struct tr_tokens *tokens);

AUTO_DEFINE(tr_tokens)

/* Samples of an epoch (of several sources: of one of each), or of a validation; 0: none. */
uint64_t tr_tokens_samples(const struct tr_tokens *tokens, enum tr_split split);
uint64_t tr_tokens_count(const struct tr_tokens *tokens, enum tr_split split); /* of all sources */
bool tr_tokens_synthetic(const struct tr_tokens *tokens);
/* What the samples depend on besides seed and seq. */
void tr_tokens_identity(struct tr_identity *ret, const struct tr_tokens *tokens);

/* Sample INDEX of the training order (any 64-bit number), or of the validation split in file order
 * (modulo its samples), into RET (seq + 1). -ERANGE names file and token offset if an id is not
 * below the vocabulary. */
int tr_tokens_sample(int32_t *ret, const struct tr_tokens *tokens, enum tr_split split,
                     uint64_t index, struct err *error);

/* That sample will be read soon: the system may begin to read its part of the file. */
void tr_tokens_ahead(const struct tr_tokens *tokens, enum tr_split split, uint64_t index);

/* Image of INDEX under permutation number KEY of [0, count), count > 0, INDEX < count. */
uint64_t tr_permute_index(uint64_t index, uint64_t count, uint64_t key);

#endif
