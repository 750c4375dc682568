/*
 * Megatron-LM's indexed data sets: PREFIX.bin with token ids and PREFIX.idx. Private to tokens.c
 * and tests.
 *
 *     9 bytes   "MMIDIDX\0\0"
 *     8         version, 1
 *     1         type of ids: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16
 *     8         number of sequences n
 *     8         number of document boundaries d (one more than documents)
 *     4 n       tokens of each sequence (i32)
 *     8 n       byte offset of each sequence in .bin (i64)
 *     8 d       index of the first sequence of each document, then n (i64)
 *
 * all little endian. Sequences are read as one stream, as Megatron's GPT data set does, so they
 * must follow each other in .bin without hole or overlap.
 */
#ifndef TRAINER_MEGATRON_H
#define TRAINER_MEGATRON_H

#include "trainer/dataset.h"

struct tr_megatron_index {
    enum tr_id id;
    uint64_t sequences, documents;
    uint64_t tokens;
    uint64_t cut; /* tokens before the last sequence boundary that leaves at least SHARE of the
                     tokens behind it */
};

/* Parse and check the bytes of an index. PATH is for messages. SHARE in [0, 1) sets `cut`. */
int tr_megatron_index(struct tr_megatron_index *ret, const unsigned char *bytes, size_t len,
                      double share, const char *path, struct err *error);

/* PREFIX.bin as two streams: the last 1/20 of it, from a sequence boundary on, is the validation
 * split. RET_CRC is that of PREFIX.idx. */
int tr_megatron_open(struct tr_stream ret[TR_SPLITS], uint32_t *ret_crc, const char *prefix,
                     struct err *error);

#endif
