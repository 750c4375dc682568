/*
 * Answers: JSON, bytes, problems; with ETag, 304, gzip and the headers that every answer carries.
 */
#include "web/internal.h"

#include <errno.h>
#include <zlib.h>

enum { SMALL = 8192, GZIP_FROM = 1400 }; /* below, the answer is one packet anyway */

static const struct {
    int status;
    const char *title;
} titles[] = {
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {499, "Client Closed Request"}, /* as nginx says it; nobody reads it */
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
};

static const struct {
    int code, status;
} statuses[] = {
    {-ENOENT, 404}, {-EINVAL, 422}, {-ERANGE, 422},    {-ENOTSUP, 422}, {-EEXIST, 409},
    {-EBUSY, 409},  {-EPERM, 403},  {-EACCES, 403},    {-EFBIG, 413},   {-E2BIG, 422},
    {-ESTALE, 409}, {-ENOMEM, 503}, {-EAGAIN, 503},    {-ENOSPC, 503},  {-EDQUOT, 503},
    {-EROFS, 503},  {-EIO, 503},    {-ECANCELED, 499},
};

void web_reply_header(struct web_request *rq, const char *name, const char *value)
{
    struct rq_header *h = arena_alloc(&rq->arena, sizeof(*h));

    h->name = arena_strdup(&rq->arena, name);
    h->value = arena_strdup(&rq->arena, value);
    h->next = rq->headers;
    rq->headers = h;
}

static const char *reply_header(const struct web_request *rq, const char *name)
{
    for (const struct rq_header *h = rq->headers; h; h = h->next)
        if (!strcasecmp(h->name, name))
            return h->value;
    return NULL;
}

/* gzip of SIZE bytes, allocated; NULL where it would not be smaller or memory is out. */
static unsigned char *gzip(size_t *ret_size, const void *bytes, size_t size)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)bytes, .avail_in = (uInt)size};
    unsigned char *out;
    size_t room = size - 64;
    int r;

    if (size > UINT32_MAX / 2 ||
        deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return NULL;
    out = mem_try_alloc(room);
    z.next_out = out;
    z.avail_out = (uInt)room;
    r = out ? deflate(&z, Z_FINISH) : Z_MEM_ERROR;
    *ret_size = room - z.avail_out;
    deflateEnd(&z);
    if (r == Z_STREAM_END)
        return out;
    free(out);
    return NULL;
}

static bool may_gzip(const struct web_request *rq, const char *type, size_t len)
{
    return rq->accepts_gzip && len >= GZIP_FROM &&
           (str_starts(type, "application/") || str_starts(type, "text/")) &&
           !reply_header(rq, "Content-Encoding");
}

/* What of the request an answer depends on, besides its target. */
static void add_vary(const struct web_request *rq, struct MHD_Response *response, bool coded)
{
    bool origins = rq->server->config.origins && *rq->server->config.origins;

    if (coded || origins)
        MHD_add_response_header(response, "Vary",
                                !origins ? "Accept-Encoding"
                                : coded  ? "Accept-Encoding, Origin"
                                         : "Origin");
}

/* The answer, whose body has SIZE bytes as they are sent. */
static void answer(struct web_request *rq, int status, const char *type,
                   struct MHD_Response *owned_r, size_t size)
{
    if (!owned_r)
        abort(); /* out of memory */
    if (type)
        MHD_add_response_header(owned_r, "Content-Type", type);
    add_vary(rq, owned_r, type || status == 304);
    MHD_add_response_header(owned_r, "X-Content-Type-Options", "nosniff");
    if (!reply_header(rq, "Cache-Control"))
        MHD_add_response_header(owned_r, "Cache-Control",
                                reply_header(rq, "ETag") ? "private, no-cache" : "no-store");
    for (const struct rq_header *h = rq->headers; h; h = h->next)
        MHD_add_response_header(owned_r, h->name, h->value);
    rq->server->stats.bytes_out += size;
    web_request_answer(rq, status, owned_r);
}

static void *copy_of(const void *bytes, size_t size)
{
    void *p = mem_alloc(size + 1);

    if (size)
        memcpy(p, bytes, size);
    return p;
}

/* The answer with BODY, which is allocated and taken. */
static void send_owned(struct web_request *rq, int status, const char *type, void *owned_body,
                       size_t size)
{
    size_t ngz;
    unsigned char *gz;
    struct MHD_Response *r;

    if (size > SMALL && web_hold(rq, size) < 0) {
        static const char busy[] = "{\"title\":\"Service "
                                   "Unavailable\",\"status\":503,\"detail\":\"too many responses "
                                   "are unread\"}";

        free(owned_body);
        web_reply_header(rq, "Retry-After", "2");
        size = sizeof(busy) - 1;
        owned_body = copy_of(busy, size);
        status = 503;
        type = "application/problem+json";
    }
    gz = type && may_gzip(rq, type, size) ? gzip(&ngz, owned_body, size) : NULL;

    if (gz || size == 0) {
        free(owned_body);
        owned_body = gz;
        size = gz ? ngz : 0;
    }
    if (gz)
        web_reply_header(rq, "Content-Encoding", "gzip");
    r = MHD_create_response_from_buffer(size, owned_body,
                                        size ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    answer(rq, status, type, r, size);
}

void web_etag(char etag[40], const char *text, size_t len)
{
    snprintf(etag, 40, "\"%016llx\"", (unsigned long long)str_hash(text, len, 0));
}

/* One of the tags in LIST ("*", or "\"a\", W/\"b\"") is TAG. */
static bool tag_listed(const char *list, const char *tag, bool weak_counts)
{
    while (list && *list) {
        size_t n;

        list += strspn(list, " \t,");
        if (*list == '*')
            return true;
        if (str_starts(list, "W/")) {
            list += 2;
            if (!weak_counts) {
                list += strcspn(list, ",");
                continue;
            }
        }
        n = strcspn(list, ", \t");
        if (n == strlen(tag) && !memcmp(list, tag, n))
            return true;
        list += n;
    }
    return false;
}

/* Adds an ETag unless the handler chose one; true where the request's conditions on it were
 * answered: 412 or 304. */
static bool conditions(struct web_request *rq, int status, const char *text, size_t len)
{
    bool get = !strcmp(rq->method, "GET") || !strcmp(rq->method, "HEAD");
    const char *tag = reply_header(rq, "ETag");
    char etag[40];

    if (status != 200 || !(get || !strcmp(rq->method, "PATCH")))
        return false;
    if (!tag) {
        web_etag(etag, text, len);
        web_reply_header(rq, "ETag", etag);
        tag = etag;
    }
    if (!get)
        return false;
    if (!web_if_match(rq, tag))
        return true;
    if (!tag_listed(web_request_header(rq, "If-None-Match"), tag, true))
        return false;
    send_owned(rq, 304, NULL, mem_alloc(1), 0);
    return true;
}

static void keep_answer(struct web_request *rq, int status, const char *type, const void *body,
                        size_t size)
{
    struct web_answer a = {status, rq->idem_hash, type, reply_header(rq, "Location"), body, size};

    /* Only success is final: what was refused may be right a moment later. A question, which
     * changes nothing, is answered anew: who may only ask cannot fill the store. */
    if (rq->idem_key && status / 100 == 2 && rq->match.route->scope > WEB_READ)
        rq->server->idem.keep(rq->server->idem.ctx, rq->idem_key, &a);
}

static void reply_owned(struct web_request *rq, int status, const char *type, void *owned_body,
                        size_t size)
{
    keep_answer(rq, status, type, owned_body, size);
    if (conditions(rq, status, owned_body, size))
        free(owned_body);
    else
        send_owned(rq, status, type, owned_body, size);
}

void web_reply_json(struct web_request *rq, int status, json_t *owned_body)
{
    char *text = jx_dump(owned_body);

    json_decref(owned_body);
    reply_owned(rq, status, "application/json", text, strlen(text));
}

void web_reply_json_text(struct web_request *rq, int status, const char *text, size_t len)
{
    reply_owned(rq, status, "application/json", copy_of(text, len), len);
}

void web_reply_bytes(struct web_request *rq, int status, const char *type, const void *bytes,
                     size_t size)
{
    reply_owned(rq, status, type, copy_of(bytes, size), size);
}

void web_reply_static(struct web_request *rq, const char *type, const void *bytes, size_t size)
{
    if (!conditions(rq, 200, bytes, size))
        answer(
            rq, 200, type,
            MHD_create_response_from_buffer(size, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT),
            size);
}

void web_reply_empty(struct web_request *rq, int status)
{
    keep_answer(rq, status, "text/plain", "", 0);
    send_owned(rq, status, NULL, mem_alloc(1), 0);
}

void web_reply_problem(struct web_request *rq, int status, const struct err *error,
                       json_t *owned_extra)
{
    const char *title = "Error";
    json_t *body;
    char *text;

    for (size_t i = 0; i < ARRAY_LEN(titles); i++)
        if (titles[i].status == status)
            title = titles[i].title;
    if (status == 503)
        web_reply_header(rq, "Retry-After", "2");
    if (status >= 500)
        log_error("%s %s status=%d: %s", rq->method, rq->target.path ? rq->target.path : "", status,
                  error->text);
    body = json_pack("{s:s, s:s, s:i}", "type", "about:blank", "title", title, "status", status);
    /* A text may quote bytes of the request: those that are no UTF-8 are not repeated. */
    json_object_set_new(body, "detail",
                        str_is_utf8(error->text, strlen(error->text)) ? json_string(error->text)
                                                                      : json_string(title));
    json_object_set_new(body, "pointer",
                        *error->pointer ? json_string(error->pointer) : json_null());
    if (owned_extra) {
        json_object_update_missing(body, owned_extra);
        json_decref(owned_extra);
    }
    text = jx_dump(body);
    json_decref(body);
    reply_owned(rq, status, "application/problem+json", text, strlen(text));
}

void web_reply_error_with(struct web_request *rq, const struct err *error, json_t *owned_extra)
{
    int status = 500;

    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (statuses[i].code == error->code)
            status = statuses[i].status;
    web_reply_problem(rq, status, error, owned_extra);
}

void web_reply_error(struct web_request *rq, const struct err *error)
{
    web_reply_error_with(rq, error, NULL);
}

bool web_if_match(struct web_request *rq, const char *etag)
{
    bool get = !strcmp(rq->method, "GET") || !strcmp(rq->method, "HEAD");
    const char *list = web_request_header(rq, "If-Match");
    const char *none = get ? NULL : web_request_header(rq, "If-None-Match"); /* else it is 304 */
    struct err e;

    if ((!list || tag_listed(list, etag, false)) && !tag_listed(none, etag, true))
        return true;
    err_set(&e, -ESTALE, "the resource has changed: it is now %s", etag);
    web_reply_problem(rq, 412, &e, NULL);
    return false;
}

void web_reply_location(struct web_request *rq, const char *path)
{
    web_reply_header(rq, "Location", arena_printf(&rq->arena, "%s%s", rq->server->prefix, path));
}

const char *web_prefix(const struct web_request *rq)
{
    return rq->server->prefix;
}

bool web_idempotency_of(const char **ret_key, const char **ret_hash, const struct web_request *rq)
{
    *ret_key = rq->idem_key;
    *ret_hash = rq->idem_hash;
    return rq->idem_key != NULL;
}

void web_reply_secret(struct web_request *rq)
{
    rq->idem_key = NULL;
}
