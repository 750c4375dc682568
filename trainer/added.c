/* Tokens are sorted by their bytes. From a byte with which one begins, the range of those that
 * agree with the text is narrowed byte by byte; the last one that is all there is the longest. */
#include "trainer/added.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>

struct token {
    char *text; /* owned */
    size_t len;
    uint32_t id;
    bool lstrip, rstrip;
};

struct tr_added {
    struct token *token;
    size_t count, cap;
    bool first[256]; /* a token begins with this byte */
};

struct tr_added *tr_added_new(void)
{
    return mem_alloc(sizeof(struct tr_added));
}

struct tr_added *tr_added_free(struct tr_added *added)
{
    for (size_t i = 0; added && i < added->count; i++)
        free(added->token[i].text);
    if (added)
        free(added->token);
    free(added);
    return NULL;
}

void tr_added_put(struct tr_added *added, const char *text, size_t len, uint32_t id, bool lstrip,
                  bool rstrip)
{
    struct token *token;

    assert(len > 0);
    MEM_GROW(added->token, added->count, added->cap);
    token = &added->token[added->count++];
    *token = (struct token){mem_alloc(len + 1), len, id, lstrip, rstrip};
    memcpy(token->text, text, len);
    added->first[(unsigned char)text[0]] = true;
}

static int by_bytes(const void *left, const void *right)
{
    const struct token *first = left, *second = right;
    size_t least = first->len < second->len ? first->len : second->len;
    int r = memcmp(first->text, second->text, least);

    return r ? r : (first->len > second->len) - (first->len < second->len);
}

int tr_added_finish(struct tr_added *added, struct err *error)
{
    if (added->count)
        qsort(added->token, added->count, sizeof(*added->token), by_bytes);
    for (size_t i = 1; i < added->count; i++)
        if (by_bytes(&added->token[i - 1], &added->token[i]) == 0)
            return err_at(error, -EINVAL, "/added_tokens", "the token \"%.60s\" is there twice",
                          added->token[i].text);
    return 0;
}

/* First token in [LOW, HIGH) whose byte AT is not below BYTE; they agree before that byte, and are
 * longer. */
static size_t lower(const struct tr_added *added, size_t low, size_t high, size_t at, unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((unsigned char)added->token[middle].text[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct token *longest(const struct tr_added *added, const char *text, size_t len)
{
    size_t low = 0, high = added->count;
    const struct token *best = NULL;

    for (size_t at = 0; at < len && low < high; at++) {
        unsigned byte = (unsigned char)text[at];

        low = lower(added, low, high, at, byte);
        high = lower(added, low, high, at, byte + 1);
        if (low < high && added->token[low].len == at + 1) /* the shortest is the first */
            best = &added->token[low++];
    }
    return best;
}

/* Unicode's White_Space. */
static bool is_white(uint32_t point)
{
    return (point >= 9 && point <= 13) || point == ' ' || point == 0x85 || point == 0xa0 ||
           point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
           point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

/* Whether the SIZE bytes at TEXT are one white character. */
static bool white_at(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;

    if (size == 1)
        return is_white(byte[0]);
    if (size == 2)
        return is_white((byte[0] & 0x1fU) << 6 | (byte[1] & 0x3fU));
    return size == 3 &&
           is_white((byte[0] & 0x0fU) << 12 | (byte[1] & 0x3fU) << 6 | (byte[2] & 0x3fU));
}

static bool inside(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static size_t white_before(const char *text, size_t end, size_t least)
{
    while (end > least) {
        size_t start = end - 1;

        while (start > least && inside(text[start]))
            start--;
        if (!white_at(text + start, end - start))
            break;
        end = start;
    }
    return end;
}

static size_t white_behind(const char *text, size_t at, size_t len)
{
    while (at < len) {
        size_t end = at + 1;

        while (end < len && inside(text[end]))
            end++;
        if (!white_at(text + at, end - at))
            break;
        at = end;
    }
    return at;
}

int tr_added_cut(const struct tr_added *added, const char *text, size_t len, tr_piece_fn *piece,
                 tr_added_fn *token, void *arg, struct err *error)
{
    size_t given = 0, at = 0;
    int r = 0;

    while (at < len && added->count) {
        const struct token *found =
            added->first[(unsigned char)text[at]] ? longest(added, text + at, len - at) : NULL;
        size_t start = at, end;

        if (!found) {
            at++;
            continue;
        }
        at = end = start + found->len;
        if (found->lstrip)
            start = white_before(text, start, given < start ? given : start);
        if (found->rstrip)
            end = white_behind(text, end, len);
        if (start > given)
            r = piece(arg, text + given, start - given, error);
        if (r == 0)
            r = token(arg, found->id, error);
        if (r < 0)
            return r;
        given = end;
    }
    return given < len ? piece(arg, text + given, len - given, error) : 0;
}
