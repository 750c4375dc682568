/*
 * Paths to handlers. The table is short, so a look-up walks it; the first row that fits wins, hence
 * literal rows stand before templates.
 */
#include "web/internal.h"

#include <errno.h>

const char *const web_scope_names[] = {"public", "read", "submit", "admin", NULL};

/* One template segment ("{id}", "{id}:pause", "campaigns") against one segment of the path. */
static bool segment_fits(struct web_match *match, const char *tmpl, size_t size,
                         const char *segment, struct arena *arena)
{
    const char *close, *verb;
    size_t nverb, len = strlen(segment), nvalue;

    if (*tmpl != '{')
        return len == size && !memcmp(tmpl, segment, size);
    close = memchr(tmpl, '}', size);
    verb = close + 1;
    nverb = size - (size_t)(verb - tmpl);
    if (len <= nverb || memcmp(segment + len - nverb, verb, nverb))
        return false;
    nvalue = len - nverb;
    if (memchr(segment, ':', nvalue)) /* "x:pause" is never an id */
        return false;
    match->param[match->nparams++] = (struct web_pair){
        arena_strndup(arena, tmpl + 1, (size_t)(close - tmpl - 1)),
        arena_strndup(arena, segment, nvalue),
    };
    return true;
}

/* True if the path fits ROUTE's template; fills *RET. */
static bool fits(struct web_match *ret, const struct web_route *route,
                 const struct web_target *target, struct arena *arena)
{
    const char *p = route->path;

    ret->nparams = 0;
    for (int i = 0; i < target->nsegments; i++) {
        size_t n;

        if (*p != '/')
            return false;
        p++;
        n = strcspn(p, "/");
        if (!segment_fits(ret, p, n, target->segment[i], arena))
            return false;
        p += n;
    }
    if (*p && !(target->nsegments == 0 && !strcmp(p, "/")))
        return false;
    ret->route = route;
    return true;
}

int web_route_find(struct web_match *ret, const char **ret_allow, const struct web_route *table,
                   const char *method, const struct web_target *target, struct arena *arena)
{
    const char *want = strcmp(method, "HEAD") ? method : "GET";
    AUTO_STR allow = {0};

    for (const struct web_route *route = table; route->method; route++) {
        struct web_match m;

        if (!fits(&m, route, target, arena))
            continue;
        if (!strcmp(route->method, want)) {
            *ret = m;
            return 0;
        }
        str_addf(&allow, "%s%s%s", allow.len ? ", " : "", route->method,
                 strcmp(route->method, "GET") ? "" : ", HEAD");
    }
    if (!allow.len)
        return -ENOENT;
    str_add(&allow, ", OPTIONS");
    *ret_allow = arena_strdup(arena, allow.text);
    return -EPERM;
}
