/*
 * Token streams: data sets made by partune-data, Megatron's .bin/.idx files, and a synthetic
 * language.
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
 * Files are mapped, never copied whole. Safe to read from several threads.
 */
#ifndef TRAINER_TOKENS_H
#define TRAINER_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

enum tr_split { TR_SPLIT_TRAIN, TR_SPLIT_VALIDATION, TR_SPLITS };

struct tr_tokens;

/* NAME is "synthetic", the name of a data set under DATA_DIR/datasets, or a path (it has a '/'): a
 * data set folder, or the prefix of a .bin and a .idx file. VOCAB and SEQ are the model's.
 * Refused: a data set whose vocabulary is larger than VOCAB, fewer tokens than one sample in the
 * training split, files that are truncated, corrupt or of another version, each by file and offset.
 */
int tr_tokens_open(struct tr_tokens **ret, const char *data_dir, const char *name, int vocab,
                   int seq, uint64_t seed, struct err *error);
struct tr_tokens *tr_tokens_free(struct tr_tokens *tokens);

AUTO_DEFINE(tr_tokens)

/* Samples of one epoch; 0 if the split is empty. */
uint64_t tr_tokens_samples(const struct tr_tokens *tokens, enum tr_split split);
uint64_t tr_tokens_count(const struct tr_tokens *tokens, enum tr_split split);
bool tr_tokens_synthetic(const struct tr_tokens *tokens);

/* Sample INDEX of the training order (any 64-bit number), or of the validation split in file order
 * (modulo its samples), into RET (seq + 1). -ERANGE names file and token offset if an id is not
 * below the vocabulary. */
int tr_tokens_sample(int32_t *ret, const struct tr_tokens *tokens, enum tr_split split,
                     uint64_t index, struct err *error);

/* Image of INDEX under permutation number KEY of [0, count), count > 0, INDEX < count. */
uint64_t tr_permute_index(uint64_t index, uint64_t count, uint64_t key);

#endif
