/* Pages of a list, and the tokens that name their positions. */
#include "web/internal.h"

#include <errno.h>

enum { PAGE_SIZE = 100, MAX_PAGE_SIZE = 1000, TOKEN_HASH = 32, MAX_TOKEN = 4096 };

/*
 * A token is a position in a list and half of a hash over the list it belongs to (path, filters and
 * order) and that position, in hex digits. A position is "@" and an offset, or a text of the list's
 * own. The hash is no secret; it makes sure that a token is not carried to a list for which its
 * position means something else.
 */
static void token_text(struct str *out, struct web_request *rq, const char *position)
{
    AUTO_STR mix = {0};
    uint8_t hash[32];
    char hex[TOKEN_HASH + 1];
    size_t n = strlen(position);

    str_addf(&mix, "%s\n%s", rq->target.path, position);
    for (int i = 0; i < rq->target.nquery; i++) {
        const struct web_pair *q = &rq->target.query[i];

        if (strcmp(q->name, "page_token") && strcmp(q->name, "page_size"))
            str_addf(&mix, "\n%s=%s", q->name, q->value);
    }
    web_sha256(hash, mix.text, mix.len);
    for (size_t i = 0; i < n; i++) {
        web_hex(hex, (const uint8_t *)position + i, 1);
        str_add(out, hex);
    }
    web_hex(hex, hash, TOKEN_HASH / 2);
    str_add(out, hex);
}

/* The position in TOKEN, in RQ's arena; NULL where it is none of this list. */
static const char *position_of(struct web_request *rq, const char *token)
{
    size_t n = strlen(token);
    AUTO_STR want = {0};
    AUTO_FREE char *hex = NULL;
    char *position;

    if (n <= TOKEN_HASH || n > MAX_TOKEN || n % 2)
        return NULL;
    n -= TOKEN_HASH;
    hex = mem_printf("%.*s", (int)n, token);
    position = arena_alloc(&rq->arena, n / 2 + 1);
    if (web_unhex((uint8_t *)position, n / 2, hex) < 0)
        return NULL;
    position[n / 2] = '\0';
    token_text(&want, rq, position);
    return strcmp(want.text, token) ? NULL : position;
}

int web_page_get(struct web_page *ret, struct web_request *rq, struct err *error)
{
    const char *token = web_query(rq, "page_token"), *position;
    int64_t size = PAGE_SIZE;
    int r = web_query_i64(&size, rq, "page_size", 1, MAX_PAGE_SIZE, error);

    if (r < 0)
        return r;
    *ret = (struct web_page){.size = (int)size};
    if (!token)
        return 0;
    position = position_of(rq, token);
    if (!position || (*position == '@' && str_to_i64(&ret->offset, position + 1, 0, INT64_MAX) < 0))
        return err_set(error, -EINVAL,
                       "page_token does not belong to this list; start again without it");
    if (*position != '@')
        ret->after = position;
    return 0;
}

void web_reply_rows(struct web_request *rq, const char *items, int64_t total, const char *next)
{
    AUTO_STR s = {0};

    str_addf(&s, "{\"items\":");
    str_add(&s, items);
    str_addf(&s, ",\"total\":%lld,\"next_page_token\":", (long long)total);
    str_add(&s, next ? "\"" : "null");
    if (next)
        token_text(&s, rq, next);
    str_add(&s, next ? "\"}" : "}");
    web_reply_json_text(rq, 200, str_text(&s), s.len);
}

void web_reply_list(struct web_request *rq, const struct web_page *page, json_t *owned_items,
                    int64_t total)
{
    int64_t next = page->offset + (int64_t)json_array_size(owned_items);
    bool more = next < total && json_array_size(owned_items) > 0;
    AUTO_FREE char *items = jx_dump(owned_items);
    AUTO_FREE char *position = more ? mem_printf("@%lld", (long long)next) : NULL;

    json_decref(owned_items);
    web_reply_rows(rq, items, total, position);
}
