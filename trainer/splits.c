/* Each step cuts the pieces of the step before, which are independent texts: a regular expression
 * sees nothing around its piece. Pieces are handed on as they are found, so nothing is held but the
 * last one. */
#include "trainer/splits.h"

#include "base/base.h"
#include "trainer/pattern.h"

#include <assert.h>
#include <errno.h>

enum { STEPS_MAX = 32 };

/* What becomes of the pieces that match, and of those between them. */
enum behavior { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

static const char *const behaviors[] = {"Isolated",       "Removed",    "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};

/* The pattern of GPT-2 (Radford et al. 2019), which ByteLevel has built in. */
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* PATTERN NULL: a piece gets a blank in front, unless it has one. */
struct step {
    struct tr_pattern *pattern;
    enum behavior behavior;
    bool invert;
};

struct tr_splits {
    struct step step[STEPS_MAX];
    int count;
    bool bytes;
};

/* ---- reading ------------------------------------------------------------- */

struct tr_splits *tr_splits_free(struct tr_splits *splits)
{
    for (int i = 0; splits && i < splits->count; i++)
        tr_pattern_free(splits->step[i].pattern);
    free(splits);
    return NULL;
}

static int add_step(struct tr_splits *splits, const char *regex, enum behavior behavior,
                    bool invert, struct err *error)
{
    struct step step = {.behavior = behavior, .invert = invert};
    int r = 0;

    if (splits->count == STEPS_MAX)
        return err_at(error, -EINVAL, "/type", "more than %d steps", STEPS_MAX);
    if (regex)
        r = tr_pattern_new(&step.pattern, regex, error);
    if (r == 0)
        splits->step[splits->count++] = step;
    return r;
}

static int read_behavior(enum behavior *ret, const json_t *json, struct err *error)
{
    int found = (int)*ret, r = jx_get_enum(&found, json, "behavior", behaviors, error);

    *ret = (enum behavior)found;
    return r;
}

static int read_split(struct tr_splits *splits, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    const json_t *pattern = json_object_get(json, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    enum behavior behavior = ISOLATED;
    bool invert = false;
    int r = jx_keys(json, keys, error);

    if (r == 0 && (r = jx_need(json, "behavior", error)) == 0)
        r = read_behavior(&behavior, json, error);
    if (r == 0)
        r = jx_get_bool(&invert, json, "invert", error);
    if (r == 0 && !regex && !(literal && *literal))
        r = err_at(error, -EINVAL, "/pattern",
                   "\"pattern\" is neither {\"Regex\": TEXT} nor {\"String\": TEXT}");
    if (r < 0)
        return r;
    r = add_step(splits, NULL, behavior, invert, error);
    if (r < 0)
        return r;
    r = regex ? tr_pattern_new(&splits->step[splits->count - 1].pattern, regex, error)
              : tr_pattern_literal(&splits->step[splits->count - 1].pattern, literal, error);
    return r < 0 ? err_under(error, "/pattern") : 0;
}

static int read_digits(struct tr_splits *splits, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "individual_digits", NULL};
    bool each = false;
    int r = jx_keys(json, keys, error);

    if (r == 0)
        r = jx_get_bool(&each, json, "individual_digits", error);
    return r < 0 ? r : add_step(splits, each ? "\\p{N}" : "\\p{N}+", ISOLATED, false, error);
}

static int read_punctuation(struct tr_splits *splits, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "behavior", NULL};
    enum behavior behavior = ISOLATED;
    int r = jx_keys(json, keys, error);

    if (r == 0)
        r = read_behavior(&behavior, json, error);
    return r < 0 ? r : add_step(splits, "[\\p{P}$+<=>\\^`|~]", behavior, false, error);
}

/* trim_offsets is about positions, which ids do not have. */
static int read_bytes(struct tr_splits *splits, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                       NULL};
    bool blank = true, regex = true;
    int r = jx_keys(json, keys, error);

    if (r == 0)
        r = jx_get_bool(&blank, json, "add_prefix_space", error);
    if (r == 0)
        r = jx_get_bool(&regex, json, "use_regex", error);
    if (r == 0 && blank)
        r = add_step(splits, NULL, ISOLATED, false, error);
    if (r == 0 && regex)
        r = add_step(splits, gpt2, ISOLATED, false, error);
    splits->bytes = r == 0;
    return r;
}

static int read_one(struct tr_splits *splits, const json_t *json, struct err *error)
{
    const char *type = json_string_value(json_object_get(json, "type"));

    if (splits->bytes)
        return err_at(error, -EINVAL, "/type", "%.40s follows ByteLevel, which must be the last",
                      type ? type : "something");
    if (str_eq(type, "Split"))
        return read_split(splits, json, error);
    if (str_eq(type, "Digits"))
        return read_digits(splits, json, error);
    if (str_eq(type, "Punctuation"))
        return read_punctuation(splits, json, error);
    if (str_eq(type, "ByteLevel"))
        return read_bytes(splits, json, error);
    return err_at(error, -EINVAL, "/type",
                  "\"type\" is %.40s, which is not supported (Split, Digits, Punctuation, "
                  "ByteLevel, and one Sequence of these)",
                  type ? type : "absent");
}

static int read_sequence(struct tr_splits *splits, const json_t *json, struct err *error)
{
    static const char *const keys[] = {"type", "pretokenizers", NULL};
    const json_t *list = json_object_get(json, "pretokenizers");
    int r = jx_keys(json, keys, error);

    if (r == 0 && !json_is_array(list))
        r = err_at(error, -EINVAL, "/pretokenizers", "\"pretokenizers\" is not an array");
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        AUTO_FREE char *at = mem_printf("/pretokenizers/%zu", i);

        r = read_one(splits, json_array_get(list, i), error);
        if (r < 0)
            err_under(error, at);
    }
    return r;
}

int tr_splits_new(struct tr_splits **ret, const json_t *json, struct err *error)
{
    AUTO(tr_splits) *splits = mem_alloc(sizeof(*splits));
    int r = 0;

    if (str_eq(json_string_value(json_object_get(json, "type")), "Sequence"))
        r = read_sequence(splits, json, error);
    else if (json && !json_is_null(json))
        r = read_one(splits, json, error);
    if (r < 0)
        return err_under(error, "/pre_tokenizer");
    *ret = TAKE(splits);
    return 0;
}

bool tr_splits_bytes(const struct tr_splits *splits)
{
    return splits->bytes;
}

/* ---- cutting ------------------------------------------------------------- */

struct cut {
    const struct tr_splits *splits;
    tr_piece_fn *word;
    void *arg;
};

/* The piece that the next one may join. */
struct piece {
    size_t start, end;
    bool match;
};

static int cut_from(const struct cut *cut, int index, const char *text, size_t len,
                    struct err *error);

static bool joins(enum behavior behavior, bool last, bool now)
{
    switch (behavior) {
    case MERGED_WITH_PREVIOUS:
        return now && !last;
    case MERGED_WITH_NEXT:
        return last && !now;
    case CONTIGUOUS:
        return last == now;
    default:
        return false;
    }
}

static int give(const struct cut *cut, int index, const char *text, const struct piece *piece,
                struct err *error)
{
    if (piece->start == piece->end ||
        (piece->match && cut->splits->step[index].behavior == REMOVED))
        return 0;
    return cut_from(cut, index + 1, text + piece->start, piece->end - piece->start, error);
}

static int put(const struct cut *cut, int index, struct piece *held, const char *text,
               struct piece piece, struct err *error)
{
    int r = 0;

    if (piece.start == piece.end)
        return 0;
    piece.match ^= cut->splits->step[index].invert;
    if (held->start < held->end &&
        joins(cut->splits->step[index].behavior, held->match, piece.match))
        piece.start = held->start;
    else
        r = give(cut, index, text, held, error);
    *held = piece;
    return r;
}

static int cut_by_pattern(const struct cut *cut, int index, const char *text, size_t len,
                          struct err *error)
{
    struct piece held = {0, 0, false};
    size_t at = 0, start, end;
    int r = 0, found = 1;

    while (r == 0 && at < len && found > 0) {
        found =
            tr_pattern_find(&start, &end, cut->splits->step[index].pattern, text, len, at, error);
        if (found < 0)
            return found;
        if (found == 0)
            start = end = len;
        r = put(cut, index, &held, text, (struct piece){at, start, false}, error);
        if (r == 0)
            r = put(cut, index, &held, text, (struct piece){start, end, true}, error);
        at = end;
    }
    return r < 0 ? r : give(cut, index, text, &held, error);
}

static int cut_from(const struct cut *cut, int index, const char *text, size_t len,
                    struct err *error)
{
    AUTO_STR blank = {0};

    assert(len > 0);
    if (index == cut->splits->count)
        return cut->word(cut->arg, text, len, error);
    if (cut->splits->step[index].pattern)
        return cut_by_pattern(cut, index, text, len, error);
    if (text[0] == ' ')
        return cut_from(cut, index + 1, text, len, error);
    str_addc(&blank, ' ');
    str_addn(&blank, text, len);
    return cut_from(cut, index + 1, blank.text, blank.len, error);
}

int tr_splits_cut(const struct tr_splits *splits, const char *text, size_t len, tr_piece_fn *word,
                  void *arg, struct err *error)
{
    struct cut cut = {splits, word, arg};

    return len ? cut_from(&cut, 0, text, len, error) : 0;
}
