#include "trainer/bpe.h"

#include "base/base.h"
#include "trainer/bpe_parts.h"
#include "trainer/utf8.h"

#include <assert.h>
#include <errno.h>

enum { WORD_MAX = 64, WORDS_MAX = 1 << 17, SYMBOLS_MAX = 1 << 30 };

struct tr_bpe *tr_bpe_free(struct tr_bpe *bpe)
{
    if (!bpe)
        return NULL;
    tr_bytemap_done(&bpe->vocab);
    tr_bytemap_done(&bpe->words);
    free(bpe->merges.slot);
    free(bpe->word);
    free(bpe->ids);
    free(bpe->symbol);
    free(bpe->heap);
    free(bpe);
    return NULL;
}

uint64_t tr_bpe_dropped(const struct tr_bpe *bpe)
{
    return bpe->dropped;
}

struct tr_merge *tr_merges_find(const struct tr_merges *merges, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;

    for (size_t i = rng_mix(pair) & (merges->slots - 1);; i = (i + 1) & (merges->slots - 1)) {
        struct tr_merge *merge = &merges->slot[i];

        if (merge->id == TR_BPE_NONE || merge->pair == pair)
            return merge;
    }
}

/* ---- the heap of pairs --------------------------------------------------- */

static void push(struct tr_bpe *bpe, struct tr_pair pair)
{
    size_t at = bpe->pairs;

    assert(at < bpe->pairs_cap);
    bpe->pairs++;
    while (at && pair.order < bpe->heap[(at - 1) / 2].order) {
        bpe->heap[at] = bpe->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    bpe->heap[at] = pair;
}

static struct tr_pair pop(struct tr_bpe *bpe)
{
    struct tr_pair first = bpe->heap[0], last = bpe->heap[--bpe->pairs];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < bpe->pairs) {
        child += child + 1 < bpe->pairs && bpe->heap[child + 1].order < bpe->heap[child].order;
        if (last.order <= bpe->heap[child].order)
            break;
        bpe->heap[at] = bpe->heap[child];
        at = child;
    }
    bpe->heap[at] = last;
    return first;
}

/* The pair of the symbol at PLACE and the next one, if it is in the list. */
static void push_pair(struct tr_bpe *bpe, int32_t place)
{
    const struct tr_symbol *left = &bpe->symbol[place];
    const struct tr_merge *merge;

    assert(place >= 0 && (size_t)place < bpe->symbols);
    if (left->next < 0)
        return;
    merge = tr_merges_find(&bpe->merges, left->id, bpe->symbol[left->next].id);
    if (merge->id != TR_BPE_NONE)
        push(bpe, (struct tr_pair){(uint64_t)merge->rank << 32 | (uint32_t)place, merge->id});
}

/* ---- one word ------------------------------------------------------------ */

/* Room for the symbols of LEN bytes and all pairs that they ever make: one for each neighborhood at
 * the start, two more with each merge. */
static int make_room(struct tr_bpe *bpe, size_t len, struct err *error)
{
    size_t cap = len + len / 4 + WORD_MAX;
    struct tr_symbol *symbol;
    struct tr_pair *heap;

    if (len > SYMBOLS_MAX)
        return err_set(error, -EFBIG, "a word of %zu bytes is too long", len);
    if (len <= bpe->symbols_cap)
        return 0;
    symbol = mem_try_realloc(bpe->symbol, mem_mul(cap, sizeof(*symbol), 1));
    if (symbol)
        bpe->symbol = symbol;
    heap = mem_try_realloc(bpe->heap, mem_mul(cap, sizeof(*heap), 3));
    if (heap)
        bpe->heap = heap;
    if (!symbol || !heap)
        return err_set(error, -ENOMEM, "no memory for a word of %zu bytes", len);
    bpe->symbols_cap = cap;
    bpe->pairs_cap = 3 * cap;
    return 0;
}

static void add_symbol(struct tr_bpe *bpe, uint32_t id)
{
    int32_t place = (int32_t)bpe->symbols++;

    assert(bpe->symbols <= bpe->symbols_cap);
    bpe->symbol[place] = (struct tr_symbol){id, place - 1, -1};
    if (place)
        bpe->symbol[place - 1].next = place;
}

/* The tokens of a character that the vocabulary lacks; *UNK: the one before lacked, too. */
static void add_unknown(struct tr_bpe *bpe, bool *unk, const char *text, size_t len)
{
    if (bpe->byte_fallback) {
        for (size_t i = 0; i < len; i++)
            add_symbol(bpe, bpe->byte_id[(unsigned char)text[i]]);
    } else if (bpe->unk == TR_BPE_NONE) {
        bpe->dropped++;
    } else {
        if (!*unk || !bpe->fuse_unk)
            add_symbol(bpe, bpe->unk);
        *unk = true;
    }
}

static void first_symbols(struct tr_bpe *bpe, const char *word, size_t len)
{
    bool unk = false;

    bpe->symbols = 0;
    for (size_t at = 0, some; at < len; at += some) {
        uint32_t id = TR_BPE_NONE;

        some = bpe->bytes ? 1 : tr_utf8_length(word + at);
        assert(some <= len - at);
        if (bpe->bytes)
            id = bpe->byte_id[(unsigned char)word[at]];
        else
            tr_bytemap_get(&id, &bpe->vocab, word + at, some);
        if (id == TR_BPE_NONE) {
            add_unknown(bpe, &unk, word + at, some);
        } else {
            add_symbol(bpe, id);
            unk = false;
        }
    }
}

/* A pair in the heap may be gone; it counts as long as the neighbors there become the same token,
 * as in `tokenizers`. */
static void merge_symbols(struct tr_bpe *bpe)
{
    bpe->pairs = 0;
    for (size_t i = 0; i + 1 < bpe->symbols; i++)
        push_pair(bpe, (int32_t)i);
    while (bpe->pairs) {
        struct tr_pair pair = pop(bpe);
        int32_t place = (int32_t)(uint32_t)pair.order;
        struct tr_symbol *left = &bpe->symbol[place], *right;

        if (left->id == TR_BPE_NONE || left->next < 0)
            continue;
        right = &bpe->symbol[left->next];
        if (tr_merges_find(&bpe->merges, left->id, right->id)->id != pair.id)
            continue;
        left->id = pair.id;
        left->next = right->next;
        right->id = TR_BPE_NONE;
        if (left->next >= 0)
            bpe->symbol[left->next].previous = place;
        if (left->previous >= 0)
            push_pair(bpe, left->previous);
        push_pair(bpe, place);
    }
}

/* Put the ids that are left at the end of bpe->ids; *RET_COUNT of them. */
static int collect(size_t *ret_count, struct tr_bpe *bpe, struct err *error)
{
    size_t count = 0;

    if (bpe->nids + bpe->symbols > bpe->ids_cap) {
        size_t cap = 2 * (bpe->nids + bpe->symbols);
        uint32_t *ids = mem_try_realloc(bpe->ids, mem_mul(cap, sizeof(*ids), 1));

        if (!ids)
            return err_set(error, -ENOMEM, "no memory for %zu ids", cap);
        bpe->ids = ids;
        bpe->ids_cap = cap;
    }
    for (int32_t i = bpe->symbols ? 0 : -1; i >= 0; i = bpe->symbol[i].next)
        bpe->ids[bpe->nids + count++] = bpe->symbol[i].id;
    *ret_count = count;
    return 0;
}

static void remember(struct tr_bpe *bpe, const char *word, size_t len, size_t count)
{
    MEM_GROW(bpe->word, bpe->nwords, bpe->words_cap);
    bpe->word[bpe->nwords] = (struct tr_word){(uint32_t)bpe->nids, (uint32_t)count};
    tr_bytemap_put(&bpe->words, word, len, (uint32_t)bpe->nwords++);
    bpe->nids += count;
}

static int encode_word(struct tr_bpe *bpe, const char *word, size_t len, tr_ids_fn *ids, void *arg,
                       struct err *error)
{
    uint64_t dropped = bpe->dropped;
    uint32_t number;
    size_t count = 0;
    int r;

    if (bpe->ignore_merges && tr_bytemap_get(&number, &bpe->vocab, word, len))
        return ids(arg, &number, 1, error);
    if (len <= WORD_MAX && tr_bytemap_get(&number, &bpe->words, word, len))
        return ids(arg, bpe->ids + bpe->word[number].at, bpe->word[number].count, error);
    r = make_room(bpe, len, error);
    if (r < 0)
        return r;
    if (bpe->nwords == WORDS_MAX) {
        tr_bytemap_clear(&bpe->words);
        bpe->nwords = bpe->nids = 0;
    }
    first_symbols(bpe, word, len);
    merge_symbols(bpe);
    r = collect(&count, bpe, error);
    if (r < 0)
        return r;
    r = ids(arg, bpe->ids + bpe->nids, count, error);
    if (len <= WORD_MAX && bpe->dropped == dropped)
        remember(bpe, word, len, count);
    return r;
}

/* The first place after byte 0 where a U+2581 follows another character, or LEN. */
static size_t next_break(const char *text, size_t len)
{
    enum { SIZE = sizeof(TR_BPE_SPACE) - 1 };
    size_t at = 0;
    const char *found;

    while (len - at >= SIZE && memcmp(text + at, TR_BPE_SPACE, SIZE) == 0)
        at += SIZE;
    found = memmem(text + at, len - at, TR_BPE_SPACE, SIZE);
    return found ? (size_t)(found - text) : len;
}

int tr_bpe_encode(struct tr_bpe *bpe, const char *word, size_t len, tr_ids_fn *ids, void *arg,
                  struct err *error)
{
    int r = 0;

    while (len && r == 0) {
        size_t some = bpe->breaks ? next_break(word, len) : len;

        r = encode_word(bpe, word, some, ids, arg, error);
        word += some;
        len -= some;
    }
    return r;
}
