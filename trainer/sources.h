/*
 * The data sets that a run reads, with their weights, and how two runs know that theirs are the
 * same. No files are opened here.
 */
#ifndef TRAINER_SOURCES_H
#define TRAINER_SOURCES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TR_SOURCES_MAX = 64, TR_SOURCE_NAME = 64 };

struct tr_source {
    char *path; /* a name or a path, as tr_tokens_open() takes it; owned */
    double weight;
    uint32_t
        share; /* of the sum of all shares: the weights as whole numbers, see tr_sources_text */
};

/* In the order given. One source has the share 1. */
struct tr_sources {
    int count;
    struct tr_source v[TR_SOURCES_MAX];
};

void tr_sources_done(struct tr_sources *sources);

/*
 * "NAME", or like Megatron-LM's --data-path "WEIGHT NAME WEIGHT NAME ...": a text that begins with
 * a number and a blank, separated by blanks, so that no name has one.
 *
 * Weights are from 1e-6 to 1e11 and in any unit. Shares are the weights in millionths, rounded,
 * then divided by their greatest common divisor; where their sum S is above 10^6, after that
 * (share + c / 2) / c in whole numbers with c = ceil(S / 10^6).
 *
 * -EINVAL names /run/data: a weight outside its bounds or whose share is 0, a weight without a
 * name, a name given twice, more than TR_SOURCES_MAX, `synthetic` next to others.
 */
int tr_sources_text(struct tr_sources *ret, const char *text, struct err *error);

/* The same from an array [{"path", "weight"}, ...]; errors have the pointer of the element. */
int tr_sources_json(struct tr_sources *ret, const json_t *array, struct err *error);

/* Such an array. New reference. */
json_t *tr_sources_array(const struct tr_sources *sources);

/* What results call it: the last part of the only path, or "WEIGHT NAME WEIGHT NAME ..." of these;
 * cut at SIZE. */
void tr_sources_name(char *ret, size_t size, const struct tr_sources *sources);
/* The last part of PATH, cut. */
void tr_source_name(char ret[TR_SOURCE_NAME], const char *path);

/* What the samples of a run depend on, for a comparison by bytes: all of it is set. */
struct tr_source_id {
    char name[TR_SOURCE_NAME];
    uint32_t share;
    uint32_t crc32;     /* of meta.json, which has the checksums of the tokens, or of PREFIX.idx */
    uint64_t tokens[2]; /* of the splits (enum tr_split) */
};

struct tr_identity {
    int count; /* 0: unknown */
    struct tr_source_id v[TR_SOURCES_MAX];
};

json_t *tr_identity_json(const struct tr_identity *identity); /* new reference */
/* ARRAY absent: unknown. Errors name the key. */
int tr_identity_parse(struct tr_identity *ret, const json_t *array, struct err *error);

/* True if the sources differ: RET says in what, of THEIRS and OURS. */
bool tr_identity_differs(char *ret, size_t size, const struct tr_identity *theirs,
                         const struct tr_identity *ours);

#endif
