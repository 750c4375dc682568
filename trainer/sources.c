#include "trainer/sources.h"

#include "base/base.h"
#include "trainer/blend.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#define AT "/run/data"
#define WEIGHT_MIN 1e-6
#define WEIGHT_MAX 1e11

enum { MILLION = 1000000, PATH_LEN_MAX = 4000 };

static_assert(MILLION + TR_SOURCES_MAX <= TR_BLEND_SUM, "each share may be rounded up by one half");

void tr_sources_done(struct tr_sources *sources)
{
    for (int i = 0; i < sources->count; i++)
        free(sources->v[i].path);
    *sources = (struct tr_sources){0};
}

void tr_source_name(char ret[TR_SOURCE_NAME], const char *path)
{
    const char *slash = strrchr(path, '/');

    snprintf(ret, TR_SOURCE_NAME, "%.*s", TR_SOURCE_NAME - 1, slash && slash[1] ? slash + 1 : path);
}

/* ---- one after the other ------------------------------------------------- */

static int add(struct tr_sources *sources, const char *path, double weight, const char *at,
               struct err *error)
{
    if (sources->count == TR_SOURCES_MAX)
        return err_at(error, -EINVAL, AT, "more than %d sources of data", TR_SOURCES_MAX);
    if (!(weight >= WEIGHT_MIN && weight <= WEIGHT_MAX))
        return err_at(error, -EINVAL, at, "the weight %g of %.80s is not in [%g, %g]", weight, path,
                      WEIGHT_MIN, WEIGHT_MAX);
    for (int i = 0; i < sources->count; i++)
        if (str_eq(sources->v[i].path, path))
            return err_at(error, -EINVAL, at, "the data set %.80s is given twice", path);
    sources->v[sources->count++] = (struct tr_source){mem_strdup(path), weight, 1};
    return 0;
}

static uint64_t greatest_divisor(uint64_t left, uint64_t right)
{
    while (right) {
        uint64_t rest = left % right;

        left = right;
        right = rest;
    }
    return left;
}

static void reduce(uint64_t *share, int count)
{
    uint64_t divisor = 0;

    for (int i = 0; i < count; i++)
        divisor = greatest_divisor(divisor, share[i]);
    for (int i = 0; i < count && divisor; i++)
        share[i] /= divisor;
}

static int set_shares(struct tr_sources *sources, struct err *error)
{
    uint64_t share[TR_SOURCES_MAX], sum = 0, by;

    for (int i = 0; i < sources->count; i++)
        share[i] = (uint64_t)llround(sources->v[i].weight * MILLION);
    reduce(share, sources->count);
    for (int i = 0; i < sources->count; i++)
        sum += share[i]; /* at most 64 x 10^17 */
    by = (sum + MILLION - 1) / MILLION;
    for (int i = 0; i < sources->count; i++) {
        sources->v[i].share = (uint32_t)((share[i] + by / 2) / by);
        if (sources->v[i].share == 0)
            return err_at(error, -EINVAL, AT,
                          "the weight %g of %.80s is less than a millionth of all weights",
                          sources->v[i].weight, sources->v[i].path);
    }
    return 0;
}

static int finish(struct tr_sources *ret, struct tr_sources *sources, int status, struct err *error)
{
    for (int i = 0; i < sources->count && status == 0 && sources->count > 1; i++)
        if (str_eq(sources->v[i].path, "synthetic"))
            status = err_at(error, -EINVAL, AT,
                            "synthetic has no files: it is not one of several sources");
    if (status == 0)
        status = set_shares(sources, error);
    if (status < 0) {
        tr_sources_done(sources);
        return status;
    }
    assert(sources->count > 0);
    *ret = *sources;
    return 0;
}

/* ---- text ---------------------------------------------------------------- */

static const char *const blanks = " \t\n";

static bool is_list(const char *text)
{
    const char *first = text + strspn(text, blanks);
    size_t len = strcspn(first, blanks);
    AUTO_FREE char *word = mem_printf("%.*s", (int)len, first);
    double weight;

    return first[len + strspn(first + len, blanks)] && str_to_f64(&weight, word) == 0;
}

int tr_sources_text(struct tr_sources *ret, const char *text, struct err *error)
{
    AUTO_FREE char *copy = mem_strdup(text);
    char *rest = NULL;
    struct tr_sources s = {0};
    int r = 0;

    if (!is_list(text))
        return finish(ret, &s, add(&s, text, 1, AT, error), error);
    for (char *word = strtok_r(copy, blanks, &rest); word && r == 0;
         word = strtok_r(NULL, blanks, &rest)) {
        const char *path = strtok_r(NULL, blanks, &rest);
        double weight;

        if (str_to_f64(&weight, word) < 0)
            r = err_at(error, -EINVAL, AT, "\"%.80s\" is no weight: WEIGHT NAME WEIGHT NAME ...",
                       word);
        else if (!path)
            r = err_at(error, -EINVAL, AT, "no data set follows the weight %s", word);
        else
            r = add(&s, path, weight, AT, error);
    }
    return finish(ret, &s, r, error);
}

/* ---- JSON ---------------------------------------------------------------- */

static int add_json(struct tr_sources *sources, const json_t *object, struct err *error)
{
    static const char *const keys[] = {"path", "weight", NULL};
    const char *path = NULL;
    double weight = NAN;
    int r = jx_keys(object, keys, error);

    if (r == 0 && (r = jx_need(object, "path", error)) == 0)
        r = jx_get_str(&path, object, "path", PATH_LEN_MAX, error);
    if (r == 0 && (r = jx_need(object, "weight", error)) == 0)
        r = jx_get_f64(&weight, object, "weight", WEIGHT_MIN, WEIGHT_MAX, error);
    return r < 0 ? r : add(sources, path, weight, "", error);
}

int tr_sources_json(struct tr_sources *ret, const json_t *array, struct err *error)
{
    struct tr_sources s = {0};
    int r = 0;

    if (json_array_size(array) == 0)
        r = err_at(error, -EINVAL, AT, "data is an empty array");
    for (size_t i = 0; i < json_array_size(array) && r == 0; i++) {
        AUTO_FREE char *at = mem_printf(AT "/%zu", i);

        r = add_json(&s, json_array_get(array, i), error);
        if (r < 0 && s.count < TR_SOURCES_MAX)
            err_under(error, at);
    }
    return finish(ret, &s, r, error);
}

json_t *tr_sources_array(const struct tr_sources *sources)
{
    json_t *array = json_array();

    for (int i = 0; i < sources->count; i++)
        json_array_append_new(array, json_pack("{s:s, s:f}", "path", sources->v[i].path, "weight",
                                               sources->v[i].weight));
    return array;
}

void tr_sources_name(char *ret, size_t size, const struct tr_sources *sources)
{
    AUTO_STR text = {0};

    for (int i = 0; i < sources->count; i++) {
        char name[TR_SOURCE_NAME];

        tr_source_name(name, sources->v[i].path);
        if (sources->count > 1)
            str_addf(&text, "%s%.15g ", i ? " " : "", sources->v[i].weight);
        str_add(&text, name);
    }
    snprintf(ret, size, "%s", str_text(&text));
}

/* ---- identity ------------------------------------------------------------ */

json_t *tr_identity_json(const struct tr_identity *identity)
{
    json_t *array = json_array();

    for (int i = 0; i < identity->count; i++) {
        const struct tr_source_id *s = &identity->v[i];

        json_array_append_new(array,
                              json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", s->name, "weight",
                                        (json_int_t)s->share, "tokens", (json_int_t)s->tokens[0],
                                        "validation_tokens", (json_int_t)s->tokens[1], "crc32",
                                        (json_int_t)s->crc32));
    }
    return array;
}

static int parse_id(struct tr_source_id *ret, const json_t *object, struct err *error)
{
    int64_t share = 0, crc = 0, tokens[2] = {0, 0};
    int r = jx_copy_str(ret->name, sizeof(ret->name), object, "name", error);

    if (r == 0)
        r = jx_get_i64(&share, object, "weight", 1, TR_BLEND_SUM, error);
    if (r == 0)
        r = jx_get_i64(&crc, object, "crc32", 0, UINT32_MAX, error);
    if (r == 0)
        r = jx_get_i64(&tokens[0], object, "tokens", 0, INT64_MAX, error);
    if (r == 0)
        r = jx_get_i64(&tokens[1], object, "validation_tokens", 0, INT64_MAX, error);
    ret->share = (uint32_t)share;
    ret->crc32 = (uint32_t)crc;
    ret->tokens[0] = (uint64_t)tokens[0];
    ret->tokens[1] = (uint64_t)tokens[1];
    return r;
}

int tr_identity_parse(struct tr_identity *ret, const json_t *array, struct err *error)
{
    struct tr_identity identity = {0};
    size_t n = json_array_size(array);
    int r = 0;

    if (n > TR_SOURCES_MAX)
        return err_at(error, -EINVAL, "/sources", "%zu sources are more than %d", n,
                      TR_SOURCES_MAX);
    for (size_t i = 0; i < n && r == 0; i++) {
        AUTO_FREE char *at = mem_printf("/sources/%zu", i);

        r = parse_id(&identity.v[i], json_array_get(array, i), error);
        if (r < 0)
            err_under(error, at);
    }
    identity.count = (int)n;
    if (r == 0)
        *ret = identity;
    return r;
}

static void describe(char *ret, size_t size, const struct tr_identity *identity, int index)
{
    const struct tr_source_id *s = &identity->v[index];

    if (index >= identity->count)
        snprintf(ret, size, "nothing");
    else
        snprintf(ret, size,
                 "%s (weight %" PRIu32 ", %" PRIu64 " tokens, %" PRIu64
                 " to validate, crc32 %08" PRIx32 ")",
                 s->name, s->share, s->tokens[0], s->tokens[1], s->crc32);
}

bool tr_identity_differs(char *ret, size_t size, const struct tr_identity *theirs,
                         const struct tr_identity *ours)
{
    char was[200], now[200];

    for (int i = 0; i < theirs->count || i < ours->count; i++) {
        if (i < theirs->count && i < ours->count &&
            memcmp(&theirs->v[i], &ours->v[i], sizeof(ours->v[i])) == 0)
            continue;
        describe(was, sizeof(was), theirs, i);
        describe(now, sizeof(now), ours, i);
        snprintf(ret, size, "source %d is %s, not %s", i + 1, now, was);
        return true;
    }
    return false;
}
