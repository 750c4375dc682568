/*
 * The "model" of a tokenizer.json to the tables of bpe.c.
 *
 * GPT-2's spelling of bytes: the printable bytes of Latin-1 ('!' to '~', 0xa1 to 0xac, 0xae to
 * 0xff) are the characters of these numbers, all others, in order, U+0100 and the following ones.
 */
#include "trainer/bpe.h"

#include "base/base.h"
#include "trainer/bpe_parts.h"
#include "trainer/utf8.h"

#include <assert.h>
#include <errno.h>

enum { SPELLED = 0x100 + 68 }; /* characters of that spelling are below it */

struct reading {
    struct tr_bpe *bpe;
    const json_t *vocab;
    int16_t byte_of[SPELLED]; /* -1: of no byte */
};

/* ---- vocabulary ---------------------------------------------------------- */

static void spell(int16_t byte_of[SPELLED])
{
    int next = 0x100;

    memset(byte_of, -1, SPELLED * sizeof(*byte_of));
    for (int i = 0; i < 256; i++) {
        bool printable =
            (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || (i >= 0xae && i <= 0xff);

        byte_of[printable ? i : next++] = (int16_t)i;
    }
    assert(next == SPELLED);
}

/* The bytes that TOKEN spells; false if it has a character that spells none. */
static bool bytes_of(struct str *ret, const struct reading *reading, const char *token)
{
    for (size_t some; *token; token += some) {
        unsigned point = (unsigned char)token[0];

        some = tr_utf8_length(token);
        if (some == 2)
            point = (point & 0x1f) << 6 | ((unsigned char)token[1] & 0x3f);
        if (some > 2 || point >= SPELLED || reading->byte_of[point] < 0)
            return false;
        str_addc(ret, (char)reading->byte_of[point]);
    }
    return true;
}

static int id_of(uint32_t *ret, const char *token, const json_t *value, struct err *error)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;

    if (id < 0 || id >= TR_BPE_IDS_MAX)
        return err_at(error, -EINVAL, "/vocab", "the id of \"%.60s\" is not a number in [0, %d)",
                      token, TR_BPE_IDS_MAX);
    *ret = (uint32_t)id;
    return 0;
}

static int check_ids(const struct reading *reading, struct err *error)
{
    AUTO_FREE const char **owner = mem_try_alloc(TR_BPE_IDS_MAX * sizeof(*owner));
    const char *token;
    json_t *value;

    if (!owner)
        return err_set(error, -ENOMEM, "no memory for a vocabulary");
    json_object_foreach((json_t *)reading->vocab, token, value) {
        uint32_t id = 0;
        int r = id_of(&id, token, value, error);

        if (r < 0)
            return r;
        if (owner[id])
            return err_at(error, -EINVAL, "/vocab", "\"%.60s\" and \"%.60s\" both have the id %u",
                          owner[id], token, id);
        owner[id] = token;
    }
    return 0;
}

static int read_vocab(struct reading *reading, const json_t *model, struct err *error)
{
    struct tr_bpe *bpe = reading->bpe;
    const char *token;
    json_t *value;
    int r;

    reading->vocab = json_object_get(model, "vocab");
    if (!json_is_object(reading->vocab) || json_object_size(reading->vocab) == 0)
        return err_at(error, -EINVAL, "/vocab", "\"vocab\" is not an object of tokens");
    r = check_ids(reading, error);
    if (r < 0)
        return r;
    json_object_foreach((json_t *)reading->vocab, token, value) {
        AUTO_STR bytes = {0};
        uint32_t id = (uint32_t)json_integer_value(value);

        if (!bpe->bytes)
            tr_bytemap_put(&bpe->vocab, token, strlen(token), id);
        else if (bytes_of(&bytes, reading, token))
            tr_bytemap_put(&bpe->vocab, str_text(&bytes), bytes.len, id);
    }
    return 0;
}

/* The ids of single bytes, or of their stand-ins <0x00> to <0xFF>. */
static int read_bytes(struct reading *reading, struct err *error)
{
    struct tr_bpe *bpe = reading->bpe;

    for (int i = 0; i < 256; i++) {
        char byte = (char)i, name[8];
        bool found;

        bpe->byte_id[i] = TR_BPE_NONE;
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)i);
        found = bpe->bytes ? tr_bytemap_get(&bpe->byte_id[i], &bpe->vocab, &byte, 1)
                           : tr_bytemap_get(&bpe->byte_id[i], &bpe->vocab, name, strlen(name));
        if (!found && bpe->byte_fallback)
            return err_at(error, -EINVAL, "/byte_fallback",
                          "\"byte_fallback\" is true, but \"vocab\" has no token %s", name);
    }
    return 0;
}

/* ---- merges -------------------------------------------------------------- */

/* The halves of a merge: "LEFT RIGHT" or ["LEFT", "RIGHT"]. New memory. */
static int halves(char **ret_left, char **ret_right, const json_t *merge)
{
    const char *text = json_string_value(merge), *blank = text ? strchr(text, ' ') : NULL;
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));

    if (blank && blank > text && blank[1] && !strchr(blank + 1, ' ')) {
        *ret_left = mem_printf("%.*s", (int)(blank - text), text);
        *ret_right = mem_strdup(blank + 1);
        return 0;
    }
    if (text || json_array_size(merge) != 2 || !left || !right || !*left || !*right)
        return -EINVAL;
    *ret_left = mem_strdup(left);
    *ret_right = mem_strdup(right);
    return 0;
}

static int token_id(uint32_t *ret, const struct reading *reading, const char *token,
                    const char *what, struct err *error)
{
    const json_t *value = json_object_get(reading->vocab, token);

    *ret = (uint32_t)json_integer_value(value);
    return value ? 0
                 : err_set(error, -EINVAL, "the %s \"%.60s\" of a merge is not in \"vocab\"", what,
                           token);
}

static bool begins_with_space(const char *token)
{
    return str_starts(token, TR_BPE_SPACE);
}

static int read_merge(struct reading *reading, const json_t *merge, uint32_t rank,
                      struct err *error)
{
    AUTO_FREE char *left = NULL, *right = NULL, *both = NULL;
    uint32_t first = 0, second = 0, id = 0;
    struct tr_merge *slot;
    int r = halves(&left, &right, merge);

    if (r < 0)
        return err_set(error, r, "a merge is neither \"LEFT RIGHT\" nor [\"LEFT\", \"RIGHT\"]");
    both = mem_printf("%s%s", left, right);
    r = token_id(&first, reading, left, "left half", error);
    if (r == 0)
        r = token_id(&second, reading, right, "right half", error);
    if (r == 0)
        r = token_id(&id, reading, both, "token", error);
    if (r < 0)
        return r;
    if (begins_with_space(right) && !str_ends(left, TR_BPE_SPACE))
        reading->bpe->breaks = false;
    slot = tr_merges_find(&reading->bpe->merges, first, second);
    *slot = (struct tr_merge){(uint64_t)first << 32 | second, rank, id}; /* the last one counts */
    return 0;
}

static int read_merges(struct reading *reading, const json_t *model, struct err *error)
{
    const json_t *list = json_object_get(model, "merges");
    struct tr_merges *merges = &reading->bpe->merges;
    size_t count = json_array_size(list);

    if (!json_is_array(list) || count >= TR_BPE_IDS_MAX)
        return err_at(error, -EINVAL, "/merges", "\"merges\" is not an array of less than %d",
                      TR_BPE_IDS_MAX);
    merges->slots = 64;
    while (merges->slots < 2 * count)
        merges->slots *= 2;
    merges->slot = mem_alloc(merges->slots * sizeof(*merges->slot));
    for (size_t i = 0; i < merges->slots; i++)
        merges->slot[i].id = TR_BPE_NONE;
    for (size_t i = 0; i < count; i++) {
        int r = read_merge(reading, json_array_get(list, i), (uint32_t)i, error);

        if (r < 0) {
            AUTO_FREE char *at = mem_printf("/merges/%zu", i);

            return err_under(error, at);
        }
    }
    return 0;
}

/* ---- the rest ------------------------------------------------------------ */

/* KEY must be absent, null, "", false or 0. */
static int need_none(const json_t *model, const char *key, const char *why, struct err *error)
{
    const json_t *value = json_object_get(model, key);
    AUTO_FREE char *at = mem_printf("/%s", key);
    bool none = !value || json_is_null(value) || json_is_false(value) ||
                (json_is_string(value) && json_string_length(value) == 0) ||
                (json_is_number(value) && json_number_value(value) == 0);

    return none ? 0 : err_at(error, -EINVAL, at, "\"%s\" is not supported: %s", key, why);
}

static int read_unk(struct reading *reading, const json_t *model, struct err *error)
{
    const json_t *unk = json_object_get(model, "unk_token");
    const json_t *id = json_object_get(reading->vocab, json_string_value(unk));

    reading->bpe->unk = TR_BPE_NONE;
    if (!unk || json_is_null(unk))
        return 0;
    if (!id)
        return err_at(error, -EINVAL, "/unk_token", "\"unk_token\" %.60s is not in \"vocab\"",
                      json_is_string(unk) ? json_string_value(unk) : "(no text)");
    reading->bpe->unk = (uint32_t)json_integer_value(id);
    return 0;
}

static int read_switches(struct tr_bpe *bpe, const json_t *model, struct err *error)
{
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    const json_t *type = json_object_get(model, "type");
    int r;

    if (type && !str_eq(json_string_value(type), "BPE"))
        return err_at(error, -EINVAL, "/type",
                      "\"type\" is %.40s: of tokenizer.json only BPE is supported (Unigram: give "
                      "the SentencePiece .model)",
                      json_is_string(type) ? json_string_value(type) : "no text");
    r = jx_keys(model, keys, error);
    if (r == 0)
        r = need_none(model, "dropout", "ids would be random", error);
    if (r == 0)
        r = need_none(model, "continuing_subword_prefix", "words have one spelling", error);
    if (r == 0)
        r = need_none(model, "end_of_word_suffix", "words have one spelling", error);
    if (r == 0)
        r = jx_get_bool(&bpe->fuse_unk, model, "fuse_unk", error);
    if (r == 0)
        r = jx_get_bool(&bpe->byte_fallback, model, "byte_fallback", error);
    if (r == 0)
        r = jx_get_bool(&bpe->ignore_merges, model, "ignore_merges", error);
    if (r == 0 && bpe->byte_fallback && bpe->bytes)
        r = err_at(error, -EINVAL, "/byte_fallback",
                   "\"byte_fallback\" next to ByteLevel is not supported");
    return r;
}

int tr_bpe_new(struct tr_bpe **ret, const json_t *json, bool bytes, struct err *error)
{
    AUTO(tr_bpe) *bpe = mem_alloc(sizeof(*bpe));
    struct reading reading = {.bpe = bpe};
    uint32_t space;
    int r;

    spell(reading.byte_of);
    bpe->bytes = bytes;
    bpe->breaks = true;
    r = read_switches(bpe, json, error);
    if (r == 0)
        r = read_vocab(&reading, json, error);
    if (r == 0)
        r = read_bytes(&reading, error);
    if (r == 0)
        r = read_unk(&reading, json, error);
    if (r == 0)
        r = read_merges(&reading, json, error);
    if (r < 0)
        return err_under(error, "/model");
    bpe->breaks = bpe->breaks && !bytes && !bpe->ignore_merges &&
                  tr_bytemap_get(&space, &bpe->vocab, TR_BPE_SPACE, strlen(TR_BPE_SPACE));
    *ret = TAKE(bpe);
    return 0;
}
