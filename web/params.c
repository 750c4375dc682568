/* What handlers ask of a request: its parameters, its body, its caller; and paging tokens. */
#include "web/internal.h"

#include <errno.h>

enum { PAGE_SIZE = 100, MAX_PAGE_SIZE = 1000, TOKEN_HEX = 48 };

const char *web_param(const struct web_request *rq, const char *name)
{
    for (int i = 0; i < rq->match.nparams; i++)
        if (!strcmp(rq->match.param[i].name, name))
            return rq->match.param[i].value;
    assert(!"the route has no such parameter");
    return "";
}

int web_param_i64(int64_t *ret, struct web_request *rq, const char *name, int64_t min, int64_t max,
                  struct err *e)
{
    const char *text = web_param(rq, name);

    if (str_to_i64(ret, text, min, max) < 0)
        return err_set(e, -ENOENT, "there is no {%s} %.64s", name, text);
    return 0;
}

const char *web_query(const struct web_request *rq, const char *name)
{
    for (int i = 0; i < rq->target.nquery; i++)
        if (!strcmp(rq->target.query[i].name, name))
            return rq->target.query[i].value;
    return NULL;
}

int web_query_i64(int64_t *ret, struct web_request *rq, const char *name, int64_t min, int64_t max,
                  struct err *e)
{
    const char *text = web_query(rq, name);

    if (text && str_to_i64(ret, text, min, max) < 0)
        return err_set(e, -EINVAL,
                       "query parameter %s is \"%.64s\", not a whole number in %lld..%lld", name,
                       text, (long long)min, (long long)max);
    return 0;
}

int web_query_bool(bool *ret, struct web_request *rq, const char *name, struct err *e)
{
    const char *text = web_query(rq, name);

    if (!text)
        return 0;
    if (strcmp(text, "true") && strcmp(text, "false"))
        return err_set(e, -EINVAL, "query parameter %s is \"%.64s\", not true or false", name,
                       text);
    *ret = *text == 't';
    return 0;
}

int web_query_enum(int *ret, struct web_request *rq, const char *name, const char *const *names,
                   struct err *e)
{
    const char *text = web_query(rq, name);
    AUTO_STR all = {0};

    if (!text)
        return 0;
    for (int i = 0; names[i]; i++) {
        if (!strcmp(names[i], text)) {
            *ret = i;
            return 0;
        }
        str_addf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(e, -EINVAL, "query parameter %s is \"%.64s\", not one of %s", name, text,
                   str_text(&all));
}

/*
 * A token is 16 hex digits of offset and 32 of a hash over the list it belongs to and that offset:
 * path, filters and order. The hash is no secret; it makes sure that a token is not carried to a
 * list for which its offset means something else.
 */
static void token_text(char out[TOKEN_HEX + 1], struct web_request *rq, int64_t offset)
{
    AUTO_STR mix = {0};
    uint8_t hash[32];

    str_addf(&mix, "%s %lld", rq->target.path, (long long)offset);
    for (int i = 0; i < rq->target.nquery; i++) {
        const struct web_pair *q = &rq->target.query[i];

        if (strcmp(q->name, "page_token") && strcmp(q->name, "page_size"))
            str_addf(&mix, "\n%s=%s", q->name, q->value);
    }
    web_sha256(hash, mix.text, mix.len);
    snprintf(out, TOKEN_HEX + 1, "%016llx", (unsigned long long)offset);
    web_hex(out + 16, hash, 16);
}

int web_page_get(struct web_page *ret, struct web_request *rq, struct err *e)
{
    const char *token = web_query(rq, "page_token");
    int64_t size = PAGE_SIZE;
    int r = web_query_i64(&size, rq, "page_size", 1, MAX_PAGE_SIZE, e);
    char want[TOKEN_HEX + 1], digits[17];

    if (r < 0)
        return r;
    *ret = (struct web_page){.size = (int)size};
    if (!token)
        return 0;
    if (strlen(token) == TOKEN_HEX) {
        int64_t offset;

        memcpy(digits, token, 16);
        digits[16] = '\0';
        offset = (int64_t)(strtoull(digits, NULL, 16) & INT64_MAX);
        token_text(want, rq, offset);
        ret->offset = offset;
        if (!strcmp(want, token))
            return 0;
    }
    return err_set(e, -EINVAL, "page_token does not belong to this list; start again without it");
}

void web_reply_list_text(struct web_request *rq, const struct web_page *page, struct str *items,
                         int count, int64_t total)
{
    int64_t next = page->offset + count;
    char token[TOKEN_HEX + 1];
    AUTO_STR s = {0};

    str_add(&s, "{\"items\":");
    str_addn(&s, str_text(items), items->len);
    if (next < total && count > 0) {
        token_text(token, rq, next);
        str_addf(&s, ",\"total\":%lld,\"next_page_token\":\"%s\"}", (long long)total, token);
    } else {
        str_addf(&s, ",\"total\":%lld,\"next_page_token\":null}", (long long)total);
    }
    web_reply_json_text(rq, 200, str_text(&s), s.len);
}

void web_reply_list(struct web_request *rq, const struct web_page *page, json_t *owned_items,
                    int64_t total)
{
    int64_t next = page->offset + (int64_t)json_array_size(owned_items);
    char token[TOKEN_HEX + 1];
    bool more = next < total && json_array_size(owned_items) > 0;

    if (more)
        token_text(token, rq, next);
    web_reply_json(rq, 200,
                   json_pack("{s:o, s:I, s:o}", "items", owned_items, "total", (json_int_t)total,
                             "next_page_token", more ? json_string(token) : json_null()));
}

/* ---- the rest of a request ---- */

void *web_ctx(const struct web_request *rq)
{
    return rq->server->config.ctx;
}

struct arena *web_arena(struct web_request *rq)
{
    return &rq->arena;
}

const char *web_method(const struct web_request *rq)
{
    return rq->method;
}

const char *web_path(const struct web_request *rq)
{
    return rq->target.path;
}

const char *web_principal(const struct web_request *rq)
{
    return rq->principal ? rq->principal : "";
}

enum web_scope web_scope(const struct web_request *rq)
{
    return rq->scope;
}

struct web_server *web_request_server(struct web_request *rq)
{
    return rq->server;
}

const char *web_request_header(struct web_request *rq, const char *name)
{
    return rq->mhd ? MHD_lookup_connection_value(rq->mhd, MHD_HEADER_KIND, name) : NULL;
}

json_t *web_body(const struct web_request *rq)
{
    return rq->json;
}
