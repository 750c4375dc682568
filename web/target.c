/*
 * The request target: "/path/of/segments?name=value&…" into decoded parts.
 *
 * A path is split before it is decoded, so an escaped slash stays inside its segment. What could
 * mean two things to two programs is refused rather than repaired: bad escapes, control characters,
 * bytes that are not UTF-8, dot segments, a query parameter given twice.
 */
#include "web/internal.h"

#include <errno.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decode N bytes of RAW; PLUS turns '+' into a space, as forms do in queries. */
static int decode(const char **ret, const char *raw, size_t n, bool plus, struct arena *a,
                  struct err *e)
{
    char *out = arena_alloc(a, n + 1);
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)raw[i];

        if (c == '%') {
            int hi = i + 2 < n ? hex_digit(raw[i + 1]) : -1;
            int lo = hi < 0 ? -1 : hex_digit(raw[i + 2]);

            if (lo < 0)
                return err_set(e, -EINVAL, "the request target has a broken %% escape");
            c = hi * 16 + lo;
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c < ' ' || c == 0x7f)
            return err_set(e, -EINVAL, "the request target holds a control character");
        out[len++] = (char)c;
    }
    if (!str_is_utf8(out, len))
        return err_set(e, -EINVAL, "the request target is not UTF-8");
    *ret = out;
    return 0;
}

static int parse_query(struct web_target *t, const char *raw, struct arena *a, struct err *e)
{
    while (*raw) {
        size_t n = strcspn(raw, "&"), eq = strcspn(raw, "=&");
        const char *name, *value = "";
        int r;

        if (n > 0) {
            if (t->nquery == WEB_MAX_QUERY)
                return err_set(e, -E2BIG, "more than %d query parameters", WEB_MAX_QUERY);
            r = decode(&name, raw, eq, true, a, e);
            if (r == 0 && eq < n)
                r = decode(&value, raw + eq + 1, n - eq - 1, true, a, e);
            if (r < 0)
                return r;
            for (int i = 0; i < t->nquery; i++)
                if (!strcmp(t->query[i].name, name))
                    return err_set(e, -EINVAL, "query parameter \"%.64s\" is given twice", name);
            t->query[t->nquery++] = (struct web_pair){name, value};
        }
        raw += n;
        if (*raw == '&')
            raw++;
    }
    return 0;
}

static int parse_path(struct web_target *t, const char *raw, size_t n, struct arena *a,
                      struct err *e)
{
    size_t i = 1;
    int r = decode(&t->path, raw, n, false, a, e);

    while (r == 0 && i < n) {
        size_t len = 0;
        const char *segment;

        while (i + len < n && raw[i + len] != '/')
            len++;
        if (t->nsegments == WEB_MAX_SEGMENTS)
            return err_set(e, -E2BIG, "the path has more than %d segments", WEB_MAX_SEGMENTS);
        r = decode(&segment, raw + i, len, false, a, e);
        if (r == 0 && (!strcmp(segment, ".") || !strcmp(segment, "..")))
            r = err_set(e, -EINVAL, "the path has a dot segment");
        if (r == 0)
            t->segment[t->nsegments++] = segment;
        i += len + 1;
    }
    /* "/a/" has an empty last segment, so that it is not the same resource as "/a". */
    if (r == 0 && n > 1 && raw[n - 1] == '/' && t->nsegments < WEB_MAX_SEGMENTS)
        t->segment[t->nsegments++] = "";
    return r;
}

int web_target_parse(struct web_target *ret, const char *raw, const char *prefix, struct arena *a,
                     struct err *e)
{
    size_t n, skip = strlen(prefix);
    int r;

    *ret = (struct web_target){.path = ""};
    if (*raw != '/')
        return err_set(e, -EINVAL, "the request target must be a path");
    if (strncmp(raw, prefix, skip) || (raw[skip] && !strchr("/?", raw[skip])))
        return err_set(e, -ENOENT, "nothing is served outside %s/", prefix);
    raw += skip;
    if (*raw != '/')
        return err_set(e, -ENOENT, "nothing is served at %s; use %s/", prefix, prefix);
    n = strcspn(raw, "?#");
    r = parse_path(ret, raw, n, a, e);
    if (r == 0 && raw[n] == '?')
        r = parse_query(ret, raw + n + 1, a, e);
    return r;
}
