#include "trainer/jsonl.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <strings.h>

enum { PIECE = 1 << 16, MAX_LINE = 1 << 30 };

struct reader {
    const char *path, *key;
    tr_jsonl_fn *document;
    void *arg;
    struct str line;
    uint64_t number; /* of the line, from 1 */
    bool stop;
};

bool tr_jsonl_is(const char *path, bool any_json)
{
    static const char *const ends[] = {".jsonl",     ".jsonl.gz", ".ndjson",
                                       ".ndjson.gz", ".json",     ".json.gz"};

    for (size_t i = 0; i < (any_json ? ARRAY_LEN(ends) : 4); i++) {
        size_t n = strlen(path), len = strlen(ends[i]);

        if (n >= len && strcasecmp(path + n - len, ends[i]) == 0)
            return true;
    }
    return false;
}

/* The string of a line's object. New memory, its length in *RET_N. */
static int text_of(char **ret, size_t *ret_n, const struct reader *reader, const char *line,
                   size_t len, struct err *error)
{
    json_error_t je;
    AUTO_JSON *v = json_loadb(line, len, JSON_ALLOW_NUL, &je);
    const json_t *text = json_object_get(v, reader->key);

    if (!v)
        return err_set(error, -EBADMSG, "%s: line %llu is not JSON: %s (column %d)", reader->path,
                       (unsigned long long)reader->number, je.text, je.column);
    if (!json_is_object(v))
        return err_set(error, -EBADMSG, "%s: line %llu is not a JSON object", reader->path,
                       (unsigned long long)reader->number);
    if (!text)
        return err_set(error, -EBADMSG,
                       "%s: line %llu has no key \"%s\" (--json-key names the one with the text)",
                       reader->path, (unsigned long long)reader->number, reader->key);
    if (!json_is_string(text))
        return err_set(error, -EBADMSG, "%s: line %llu: \"%s\" is not a string", reader->path,
                       (unsigned long long)reader->number, reader->key);
    *ret_n = json_string_length(text);
    *ret = mem_alloc(*ret_n + 1);
    memcpy(*ret, json_string_value(text), *ret_n);
    return 0;
}

static int one_line(struct reader *reader, struct err *error)
{
    const char *line = str_text(&reader->line);
    size_t n = reader->line.len, whole = n + 1;
    AUTO_FREE char *text = NULL;
    size_t length = 0;
    int r = 0;

    reader->number++;
    if (reader->number == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) { /* a byte order mark */
        line += 3;
        n -= 3;
    }
    if (strspn(line, " \t\r") < n) {
        r = text_of(&text, &length, reader, line, n, error);
        if (r == 0)
            r = reader->document(&reader->stop, reader->arg, text, length, whole, error);
    }
    str_trunc(&reader->line, 0);
    return r;
}

/* LEN more bytes of the file. */
static int take(struct reader *reader, const char *text, size_t len, struct err *error)
{
    int r = 0;

    while (len && r == 0 && !reader->stop) {
        const char *end = memchr(text, '\n', len);
        size_t some = end ? (size_t)(end - text) : len;

        if (reader->line.len + some > MAX_LINE)
            return err_set(error, -EFBIG, "%s: line %llu is longer than %d bytes", reader->path,
                           (unsigned long long)reader->number + 1, MAX_LINE);
        str_addn(&reader->line, text, some);
        if (!end)
            break;
        r = one_line(reader, error);
        text += some + 1;
        len -= some + 1;
        assert(reader->line.len == 0);
    }
    return r;
}

int tr_jsonl_read(struct tr_gzip *file, const char *key, tr_jsonl_fn *document, void *arg,
                  struct err *error)
{
    struct reader k = {.path = file->path, .key = key, .document = document, .arg = arg};
    AUTO_FREE char *piece = mem_alloc(PIECE);
    int r = 0, got = 1;

    while (r == 0 && !k.stop && (got = tr_gzip_read(piece, file, PIECE, error)) > 0)
        r = take(&k, piece, (size_t)got, error);
    if (r == 0 && got < 0)
        r = got;
    if (r == 0 && !k.stop && k.line.len && !file->truncated) /* the last line needs no end */
        r = one_line(&k, error);
    str_done(&k.line);
    return r;
}
