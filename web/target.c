/*
 * The request target: "/path/of/segments?name=value&…" into decoded parts.
 *
 * A path is split before it is decoded, so an escaped slash stays inside its segment. What could
 * mean two things to two programs is refused rather than repaired: bad escapes, control characters,
 * bytes that are not UTF-8, dot segments, a query parameter given twice.
 */
#include "web/internal.h"

#include <errno.h>

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    ch |= 0x20;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* Decode SIZE bytes of RAW; PLUS turns '+' into a space, as forms do in queries. */
static int decode(const char **ret, const char *raw, size_t size, bool plus, struct arena *arena,
                  struct err *error)
{
    char *out = arena_alloc(arena, size + 1);
    size_t len = 0;

    for (size_t i = 0; i < size; i++) {
        int c = (unsigned char)raw[i];

        if (c == '%') {
            int hi = i + 2 < size ? hex_digit(raw[i + 1]) : -1;
            int lo = hi < 0 ? -1 : hex_digit(raw[i + 2]);

            if (lo < 0)
                return err_set(error, -EINVAL, "the request target has a broken %% escape");
            c = hi * 16 + lo;
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c < ' ' || c == 0x7f)
            return err_set(error, -EINVAL, "the request target contains a control character");
        out[len++] = (char)c;
    }
    if (!str_is_utf8(out, len))
        return err_set(error, -EINVAL, "the request target is not UTF-8");
    *ret = out;
    return 0;
}

static int parse_query(struct web_target *target, const char *raw, struct arena *arena,
                       struct err *error)
{
    while (*raw) {
        size_t n = strcspn(raw, "&"), eq = strcspn(raw, "=&");
        const char *name, *value = "";
        int r;

        if (n > 0) {
            if (target->nquery == WEB_MAX_QUERY)
                return err_set(error, -E2BIG, "more than %d query parameters", WEB_MAX_QUERY);
            r = decode(&name, raw, eq, true, arena, error);
            if (r == 0 && eq < n)
                r = decode(&value, raw + eq + 1, n - eq - 1, true, arena, error);
            if (r < 0)
                return r;
            for (int i = 0; i < target->nquery; i++)
                if (!strcmp(target->query[i].name, name))
                    return err_set(error, -EINVAL, "query parameter \"%.64s\" is given twice",
                                   name);
            target->query[target->nquery++] = (struct web_pair){name, value};
        }
        raw += n;
        if (*raw == '&')
            raw++;
    }
    return 0;
}

static int parse_path(struct web_target *target, const char *raw, size_t size, struct arena *arena,
                      struct err *error)
{
    size_t i = 1;
    int r = decode(&target->path, raw, size, false, arena, error);

    while (r == 0 && i < size) {
        size_t len = 0;
        const char *segment;

        while (i + len < size && raw[i + len] != '/')
            len++;
        if (target->nsegments == WEB_MAX_SEGMENTS)
            return err_set(error, -E2BIG, "the path has more than %d segments", WEB_MAX_SEGMENTS);
        r = decode(&segment, raw + i, len, false, arena, error);
        if (r == 0 && (!strcmp(segment, ".") || !strcmp(segment, "..")))
            r = err_set(error, -EINVAL, "the path has a dot segment");
        if (r == 0)
            target->segment[target->nsegments++] = segment;
        i += len + 1;
    }
    /* "/a/" has an empty last segment, so that it is not the same resource as "/a". */
    if (r == 0 && size > 1 && raw[size - 1] == '/' && target->nsegments < WEB_MAX_SEGMENTS)
        target->segment[target->nsegments++] = "";
    return r;
}

int web_target_parse(struct web_target *ret, const char *raw, const char *prefix,
                     struct arena *arena, struct err *error)
{
    size_t n, skip = strlen(prefix);
    int r;

    *ret = (struct web_target){.path = ""};
    if (*raw != '/')
        return err_set(error, -EINVAL, "the request target must be a path");
    if (strncmp(raw, prefix, skip) || (raw[skip] && !strchr("/?", raw[skip])))
        return err_set(error, -ENOENT, "nothing is served outside %s/", prefix);
    raw += skip;
    if (*raw != '/')
        return err_set(error, -ENOENT, "nothing is served at %s; use %s/", prefix, prefix);
    n = strcspn(raw, "?#");
    r = parse_path(ret, raw, n, arena, error);
    if (r == 0 && raw[n] == '?')
        r = parse_query(ret, raw + n + 1, arena, error);
    return r;
}
