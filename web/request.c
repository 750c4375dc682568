/*
 * One request, from its first line to its handler.
 *
 * libmicrohttpd calls web_request_step() once when the head is complete, once for each piece of the
 * body, and once at its end. All that can be refused by the head alone is refused there, before a
 * byte of body is read. After an early answer libmicrohttpd closes the connection for POST and PUT;
 * for other methods we throw the rest of the body away first, so that it is never taken for the
 * next request, and cut the connection where that would be too much.
 */
#include "web/internal.h"

#include <errno.h>

enum {
    DRAIN_BYTES = 1 << 20,  /* of a refused body before the connection is cut */
    BODY_BYTES_PER_MS = 16, /* slower bodies are late */
    MAX_IDEM_KEY = 128,
};

struct web_request *web_request_new(struct listener *listener, const char *raw,
                                    struct MHD_Connection *connection)
{
    struct web_request *rq = mem_alloc(sizeof(*rq));

    rq->server = listener->server;
    rq->mhd = connection;
    rq->refs = 1;
    rq->raw = arena_strdup(&rq->arena, raw);
    rq->conn =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    rq->conn->since_ms = (int64_t)uv_now(rq->server->loop); /* the silence before it has ended */
    return rq;
}

/* ---- the head ------------------------------------------------------------ */

static void refuse(struct web_request *rq, int status, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(struct web_request *rq, int status, int code, const char *fmt, ...)
{
    struct err e;
    char text[sizeof(e.text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    err_set(&e, code, "%s", text);
    web_reply_problem(rq, status, &e, NULL);
}

struct head {
    int hosts, lengths, codings;
    bool unknown; /* a transfer coding that is not "chunked" */
};

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    struct head *h = cls;

    (void)kind;
    h->hosts += !strcasecmp(key, "Host");
    h->lengths += !strcasecmp(key, "Content-Length");
    if (!strcasecmp(key, "Transfer-Encoding")) {
        h->codings++;
        h->unknown |= !value || strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

/* Each check_ function answers and returns false where the request ends. */

/* Who passes requests on must not see another end of this one than we do. */
static bool check_framing(struct web_request *rq, const struct head *head)
{
    if (head->lengths + head->codings <= 1 && !head->unknown)
        return true;
    refuse(rq, 400, -EINVAL, "%s",
           head->unknown ? "the only supported Transfer-Encoding is chunked"
                         : "the length of the body is given more than once");
    return false;
}

static bool check_host(struct web_request *rq)
{
    const char *host = web_request_header(rq, "Host"), *origin = web_request_header(rq, "Origin");
    const struct web_config *c = &rq->server->config;
    struct head h = {0};
    bool foreign;

    MHD_get_connection_values(rq->mhd, MHD_HEADER_KIND, count_header, &h);
    if (h.hosts != 1) {
        refuse(rq, 400, -EINVAL, "the request must have one Host header, it has %d", h.hosts);
        return false;
    }
    if (!check_framing(rq, &h))
        return false;
    if (!web_host_allowed(host, c->hosts)) {
        refuse(rq, 421, -EPERM, "this server is not \"%.128s\"", host);
        return false;
    }
    if (!origin)
        return true;
    if (!web_origin_allowed(&foreign, origin, host, c->origins)) {
        refuse(rq, 403, -EPERM, "pages of origin \"%.128s\" may not call this server", origin);
        return false;
    }
    if (foreign) {
        web_reply_header(rq, "Access-Control-Allow-Origin", origin);
        web_reply_header(rq, "Access-Control-Expose-Headers", "ETag, Location, X-Log-Size");
    }
    return true;
}

static bool options(struct web_request *rq, const char *allow)
{
    if (strcmp(rq->method, "OPTIONS"))
        return false;
    web_reply_header(rq, "Allow", allow);
    if (web_request_header(rq, "Access-Control-Request-Method")) {
        web_reply_header(rq, "Access-Control-Allow-Methods", allow);
        web_reply_header(rq, "Access-Control-Allow-Headers",
                         "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, "
                         "Last-Event-ID");
        web_reply_header(rq, "Access-Control-Max-Age", "600");
    }
    web_reply_empty(rq, 204);
    return true;
}

/* "OPTIONS *": the methods that some route has. */
static bool options_of_all(struct web_request *rq)
{
    AUTO_STR allow = {0};

    if (!str_eq(rq->raw, "*") || strcmp(rq->method, "OPTIONS"))
        return false;
    str_add(&allow, "GET, HEAD, ");
    for (const struct web_route *r = rq->server->config.routes; r->method; r++)
        if (strcmp(r->method, "GET") && !strstr(allow.text, r->method))
            str_addf(&allow, "%s, ", r->method);
    str_add(&allow, "OPTIONS");
    return options(rq, allow.text);
}

static bool check_route(struct web_request *rq)
{
    const char *allow = NULL;
    int r = web_route_find(&rq->match, &allow, rq->server->config.routes, rq->method, &rq->target,
                           &rq->arena);

    if (r == 0)
        return true;
    if (r == -EPERM) {
        if (options(rq, allow))
            return false;
        web_reply_header(rq, "Allow", allow);
        refuse(rq, 405, r, "%.16s is not allowed here, only %s", rq->method, allow);
        return false;
    }
    if (web_asset_reply(rq))
        return false;
    refuse(rq, 404, r, "no such resource: %.256s", rq->target.path);
    return false;
}

static bool check_auth(struct web_request *rq)
{
    const struct web_token *t = NULL;
    const char *header = web_request_header(rq, "Authorization");
    enum web_scope need = rq->match.route->scope;
    enum web_auth_result result;

    rq->principal = "";
    if (!header && rq->conn->listener->trusted) {
        rq->principal = "local";
        rq->scope = WEB_ADMIN;
        return true;
    }
    if (need == WEB_PUBLIC && !header)
        return true;
    result = web_auth_check(&t, &rq->server->auth, header, rq->conn->peer,
                            (int64_t)uv_now(rq->server->loop));
    if (need == WEB_PUBLIC && result != WEB_AUTH_OK)
        return true; /* a wrong token is worth as much as none */
    if (result == WEB_AUTH_LIMITED) {
        web_reply_header(rq, "Retry-After", "60");
        refuse(rq, 429, -EPERM, "too many wrong tokens from this address; try again in a minute");
        return false;
    }
    if (result != WEB_AUTH_OK) {
        web_reply_header(rq, "WWW-Authenticate", "Bearer realm=\"partune\"");
        refuse(rq, 401, -EPERM,
               result == WEB_AUTH_MISSING ? "this needs a token: Authorization: Bearer TOKEN"
                                          : "unknown token");
        return false;
    }
    rq->principal = arena_strdup(&rq->arena, t->name);
    rq->token = t;
    rq->scope = t->scope;
    if (t->scope < need) {
        refuse(rq, 403, -EPERM, "this needs a token with scope %s; yours has %s",
               web_scope_names[need], web_scope_names[t->scope]);
        return false;
    }
    return true;
}

static bool check_query(struct web_request *rq)
{
    const char *names[WEB_MAX_QUERY + 1];
    size_t n = 0;
    char *list = arena_strdup(&rq->arena, rq->match.route->query), *save = NULL;

    for (char *w = list ? strtok_r(list, " ", &save) : NULL; w && n < WEB_MAX_QUERY;
         w = strtok_r(NULL, " ", &save))
        names[n++] = w;
    names[n] = NULL;
    for (int i = 0; i < rq->target.nquery; i++) {
        const char *name = rq->target.query[i].name, *near = str_nearest(name, names);
        size_t k = 0;

        while (k < n && strcmp(names[k], name))
            k++;
        if (k < n)
            continue;
        refuse(rq, 400, -EINVAL, "query parameter \"%.64s\" is unknown%s%s%s", name,
               near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        return false;
    }
    return true;
}

static bool has_body(int64_t *ret_length, struct web_request *rq)
{
    const char *text = web_request_header(rq, "Content-Length");

    *ret_length = -1;
    if (web_request_header(rq, "Transfer-Encoding"))
        return true;
    if (!text)
        return false;
    if (str_to_i64(ret_length, text, 0, INT64_MAX) < 0)
        *ret_length = INT64_MAX;
    return *ret_length > 0;
}

/* One media type, whatever its parameters: a page may send "text/plain;,application/json" without
 * asking first. */
static bool is_json(const char *type)
{
    static const char *const types[] = {"application/json", "application/merge-patch+json"};
    size_t n = type ? strcspn(type, "; \t") : 0;
    const char *rest = type ? type + n + strspn(type + n, " \t") : "";

    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (n == strlen(types[i]) && !strncasecmp(type, types[i], n))
            return !*rest || *rest == ';';
    return false;
}

static bool check_body(struct web_request *rq)
{
    const char *coding = web_request_header(rq, "Content-Encoding");
    size_t max = rq->match.route->max_body;
    int64_t length;
    bool body = has_body(&length, rq);

    if ((!strcmp(rq->method, "POST") || (body && max)) &&
        !is_json(web_request_header(rq, "Content-Type"))) {
        refuse(rq, 415, -EINVAL, "Content-Type must be application/json");
        return false;
    }
    if (body && coding && strcasecmp(coding, "identity")) {
        refuse(rq, 415, -EINVAL, "a body with Content-Encoding %.32s is not accepted", coding);
        return false;
    }
    if (body && (max == 0 || length > (int64_t)max)) {
        if (max == 0)
            refuse(rq, 413, -EFBIG, "no body is accepted here");
        else
            refuse(rq, 413, -EFBIG, "the body has %lld bytes, more than %zu", (long long)length,
                   max);
        return false;
    }
    web_conn_phase(rq->conn, rq->server->idle_ms + (int64_t)max / BODY_BYTES_PER_MS,
                   WEB_PATIENCE_MS);
    return true;
}

static bool check_idempotency(struct web_request *rq)
{
    const char *key = web_request_header(rq, "Idempotency-Key");
    AUTO_STR mix = {0};
    uint8_t hash[32];
    char *hex, owner[WEB_IDEM_OWNER + 1];

    if (!key || strcmp(rq->method, "POST"))
        return true;
    if (!*key || strlen(key) > MAX_IDEM_KEY) {
        refuse(rq, 400, -EINVAL, "Idempotency-Key must have 1 to %d characters", MAX_IDEM_KEY);
        return false;
    }
    str_addf(&mix, "%s\n%s", rq->principal, key);
    web_sha256(hash, mix.text, mix.len);
    hex = arena_alloc(&rq->arena, WEB_HASH_HEX);
    web_hex(hex, hash, sizeof(hash));
    /* begins alike for one caller, whose answers are counted by it */
    web_sha256(hash, rq->principal, strlen(rq->principal));
    web_hex(owner, hash, WEB_IDEM_OWNER / 2);
    memcpy(hex, owner, WEB_IDEM_OWNER);
    rq->idem_key = hex;
    return true;
}

static void read_head(struct web_request *rq)
{
    struct err e;
    int r;

    rq->accepts_gzip = web_list_has(web_request_header(rq, "Accept-Encoding"), "gzip");
    if (!check_host(rq) || options_of_all(rq))
        return;
    r = web_target_parse(&rq->target, rq->raw, rq->server->prefix, &rq->arena, &e);
    if (r < 0) {
        web_reply_problem(rq, r == -ENOENT ? 404 : 400, &e, NULL);
        return;
    }
    if (check_route(rq) && check_auth(rq) && check_query(rq) && check_body(rq) &&
        check_idempotency(rq))
        rq->phase = RQ_BODY;
}

/* ---- the body ------------------------------------------------------------ */

/* True while the connection may continue. */
static bool take_body(struct web_request *rq, const char *bytes, size_t len)
{
    size_t max = rq->match.route->max_body;
    char *grown;

    if (rq->nbody + len > max) { /* sent in chunks, so its length was not known before */
        refuse(rq, 413, -EFBIG, "the body is longer than %zu bytes", max);
        return true;
    }
    if (rq->nbody + len + 1 > rq->body_cap) {
        size_t cap =
            rq->body_cap * 2 > rq->nbody + len + 1 ? rq->body_cap * 2 : rq->nbody + len + 1;

        grown = mem_try_realloc(rq->body, cap);
        if (!grown) {
            refuse(rq, 503, -ENOMEM, "out of memory");
            return true;
        }
        rq->body = grown;
        rq->body_cap = cap;
    }
    memcpy(rq->body + rq->nbody, bytes, len);
    rq->nbody += len;
    rq->body[rq->nbody] = '\0';
    return true;
}

/* True where an earlier answer to the same key settles the request. */
static bool replay(struct web_request *rq)
{
    struct web_answer a;
    AUTO_STR mix = {0};
    uint8_t hash[32];

    if (!rq->idem_key)
        return false;
    str_addf(&mix, "%s %s\n", rq->method, rq->raw);
    str_addn(&mix, rq->body, rq->nbody);
    web_sha256(hash, mix.text, mix.len);
    web_hex(rq->idem_hash, hash, sizeof(hash));
    for (struct web_request *d = rq->server->deferred; d; d = d->next_deferred) {
        if (str_eq(d->idem_key, rq->idem_key)) {
            refuse(rq, 409, -EBUSY, "a request with this Idempotency-Key is still running");
            return true;
        }
    }
    if (!rq->server->idem.find(&a, rq->server->idem.ctx, rq->idem_key, &rq->arena))
        return false;
    rq->idem_key = NULL; /* what is answered now is not kept again */
    if (strcmp(a.hash, rq->idem_hash)) {
        refuse(rq, 422, -EINVAL, "this Idempotency-Key was used with another request");
        return true;
    }
    if (a.location)
        web_reply_header(rq, "Location", a.location);
    web_reply_header(rq, "Idempotency-Replayed", "true");
    web_reply_bytes(rq, a.status, a.type, a.body, a.size);
    return true;
}

static void call_handler(struct web_request *rq)
{
    const struct web_route *route = rq->match.route;
    struct err e;

    if (rq->nbody) {
        int r = jx_parse(&rq->json, rq->body, rq->nbody, &e);

        if (r < 0) {
            web_reply_problem(rq, r == -ENOMEM ? 503 : 400, &e, NULL);
            return;
        }
    } else if (route->body) {
        refuse(rq, 400, -EINVAL, "a JSON body is missing");
        return;
    }
    if (replay(rq))
        return;
    rq->phase = RQ_HANDLING;
    route->handler(rq);
}

/* ---- one call of libmicrohttpd ------------------------------------------- */

static enum MHD_Result queue_answer(struct web_request *rq)
{
    enum MHD_Result r;

    rq->phase = RQ_QUEUED;
    if (rq->conn->deadline_ms)
        web_conn_phase(rq->conn, WEB_REPLY_MS, WEB_PATIENCE_ANSWER_MS);
    if (rq->conn->deadline_ms && web_scarce(rq->server))
        MHD_add_response_header(rq->response, "Connection", "close");
    r = MHD_queue_response(rq->mhd, (unsigned)rq->status, rq->response);
    MHD_destroy_response(rq->response);
    rq->response = NULL;
    return r;
}

/* After an early answer: libmicrohttpd may have it now, or when the body has been thrown away. */
static enum MHD_Result refused(struct web_request *rq)
{
    int64_t length;
    bool body = has_body(&length, rq);

    if (body && (!strcmp(rq->method, "POST") || !strcmp(rq->method, "PUT")))
        return queue_answer(rq);
    rq->phase = RQ_REFUSED;
    if (!body)
        return MHD_YES; /* answered in the next call: then the connection is kept */
    MHD_add_response_header(rq->response, "Connection", "close");
    return length > DRAIN_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result drain(struct web_request *rq, size_t *size)
{
    rq->drained += *size;
    *size = 0;
    return rq->drained > DRAIN_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result step(struct web_request *rq, const char *upload, size_t *number)
{
    if (rq->phase == RQ_NEW) {
        read_head(rq);
        return rq->phase == RQ_ANSWERED ? refused(rq) : MHD_YES;
    }
    if (*number) {
        if (rq->phase == RQ_BODY) {
            take_body(rq, upload, *number);
            *number = 0;
            if (rq->phase == RQ_ANSWERED) {
                MHD_add_response_header(rq->response, "Connection", "close");
                rq->phase = RQ_REFUSED;
            }
            return MHD_YES;
        }
        return drain(rq, number);
    }
    if (rq->phase == RQ_BODY)
        call_handler(rq);
    if (rq->phase == RQ_HANDLING) { /* deferred */
        rq->suspended = true;
        web_conn_phase(rq->conn, 0, 0);
        MHD_suspend_connection(rq->mhd);
        return MHD_YES;
    }
    return queue_answer(rq);
}

enum MHD_Result web_request_step(struct web_request *rq, struct MHD_Connection *connection,
                                 const char *method, const char *upload, size_t *upload_size)
{
    enum MHD_Result r;

    (void)connection;
    if (!rq)
        return MHD_NO;
    rq->method = rq->method ? rq->method : arena_strdup(&rq->arena, method);
    rq->inside = true;
    r = step(rq, upload, upload_size);
    rq->inside = false;
    return r;
}
