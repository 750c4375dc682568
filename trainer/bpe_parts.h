/* A BPE model as bpe_read.c makes it and bpe.c uses it; private to these two. */
#ifndef TRAINER_BPE_PARTS_H
#define TRAINER_BPE_PARTS_H

#include "trainer/bpe.h"
#include "trainer/bytemap.h"

#define TR_BPE_NONE UINT32_MAX
#define TR_BPE_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's blank */

/* The pair of ids LEFT << 32 | RIGHT becomes ID; RANK is its place in the list. */
struct tr_merge {
    uint64_t pair;
    uint32_t rank, id;
};

/* Open hash table of a power of two slots; a free one has the id TR_BPE_NONE. */
struct tr_merges {
    struct tr_merge *slot;
    size_t slots;
};

struct tr_word {
    uint32_t at, count; /* its ids in `ids` */
};

/* A token of the word that is encoded; free where ID is TR_BPE_NONE. */
struct tr_symbol {
    uint32_t id;
    int32_t previous, next; /* -1: none */
};

struct tr_pair {
    uint64_t order; /* rank << 32 | place of the left symbol */
    uint32_t id;    /* that the pair becomes */
};

struct tr_bpe {
    bool bytes, byte_fallback, fuse_unk, ignore_merges;
    bool breaks;           /* no merge reaches over a U+2581 behind another character */
    uint32_t byte_id[256]; /* bytes: of the byte; else of <0x..>; or TR_BPE_NONE */
    uint32_t unk;          /* or TR_BPE_NONE */
    struct tr_bytemap vocab;
    struct tr_merges merges;
    uint64_t dropped;

    struct tr_bytemap words; /* number in `word` */
    struct tr_word *word;
    size_t nwords, words_cap;
    uint32_t *ids;
    size_t nids, ids_cap;

    struct tr_symbol *symbol;
    size_t symbols, symbols_cap;
    struct tr_pair *heap;
    size_t pairs, pairs_cap;
};

/* The merge of LEFT and RIGHT, or the free slot where it would be. */
struct tr_merge *tr_merges_find(const struct tr_merges *merges, uint32_t left, uint32_t right);

#endif
