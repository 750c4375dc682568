/*
 * web - an HTTP service on a libuv loop, independent of campaigns.
 *
 * A program describes itself by a table of routes (method, path template, handler, limits, scope
 * and the words for OpenAPI) and opens one or more listeners. Connections, parsing and TLS are
 * libmicrohttpd's, driven from the loop by its epoll descriptor; everything here runs on the loop's
 * thread, and so does every handler.
 *
 *     web_server_new(&s, loop, &config, &e);
 *     web_server_listen(s, "unix:/run/x.sock", &e);   // 0600: who can open it is trusted
 *     web_server_listen(s, "127.0.0.1:8417", &e);     // needs a token first, see web_token_file()
 *     uv_run(loop, UV_RUN_DEFAULT);
 *     web_server_free(s);
 *
 * Before a handler runs, the server has checked: Host and Origin, method (405 with Allow), token
 * and scope (401, 403, 429), Content-Type and size of the body (415, 413), JSON (400), query
 * parameters by the route's list (400), If-Match and If-None-Match on the way out (412, 304), and
 * Idempotency-Key on POST. A handler answers exactly once, at once or later.
 */
#ifndef WEB_WEB_H
#define WEB_WEB_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct web_server;
struct web_request; /* lives until its response is sent; its arena is freed with it */
struct web_stream;

/* ---- routes -------------------------------------------------------------- */

/* Each scope includes those before it. */
enum web_scope { WEB_PUBLIC, WEB_READ, WEB_SUBMIT, WEB_ADMIN };

extern const char *const web_scope_names[]; /* "public" "read" "submit" "admin", NULL */

typedef void web_handler(struct web_request *rq);

/*
 * One route. A path is made of literal segments and {name} segments; a segment may end in a literal
 * ":verb". HEAD is served by GET, OPTIONS by the table itself.
 */
struct web_route {
    const char *method;
    const char *path; /* "/v1/campaigns/{id}:pause" */
    web_handler *handler;
    size_t max_body; /* bytes of JSON; 0: a body is refused */
    enum web_scope scope;
    const char *summary; /* one line for OpenAPI */
    const char *query;   /* names of accepted query parameters, separated by spaces; NULL: none */
    const char *body;    /* schema of the request body; NULL: any object, or no body */
    const char *reply;   /* schema of the answer, "Trial[]" for a page of them, or a media type;
                            NULL: no body */
    int status;          /* of success; 0: 200 */
    bool guarded;        /* its handler honors If-Match */
};

/* What a query parameter means, wherever a route names it. */
struct web_param {
    const char *name;
    const char *schema; /* JSON Schema as text: {"type":"integer","minimum":1} */
    const char *help;
};

/* ---- server -------------------------------------------------------------- */

/* A store of answers by Idempotency-Key; see web_config.idempotency. KEY is unique for caller and
 * key, HASH is that of method, path and body. */
struct web_answer {
    int status;
    const char *hash, *type, *location, *body; /* location may be NULL */
    size_t size;
};

struct web_idempotency {
    /* True and *RET (text in ARENA) if KEY has an answer. */
    bool (*find)(struct web_answer *ret, void *ctx, const char *key, struct arena *arena);
    void (*keep)(void *ctx, const char *key, const struct web_answer *answer);
    void *ctx;
};

struct web_config {
    const struct web_route *routes; /* ends with a NULL method; outlives the server */
    const struct web_param *params; /* ends with a NULL name */
    const char *schemas; /* JSON text: an object of named schemas, for OpenAPI; NULL: none */
    const char *title, *version;
    void *ctx; /* web_ctx() of every request */

    const char *prefix;       /* "/partune" when served below a path; NULL: "" */
    const char *ui_dir;       /* serve the dashboard from this folder, not from the program; NULL */
    const char *const *hosts; /* names for Host besides loopback's; NULL-terminated or NULL */
    const char *const *origins; /* foreign origins that browsers may call from (CORS); NULL: none */
    const char *tls_cert, *tls_key;     /* files in PEM; NULL: no TLS */
    int max_connections;                /* 0: 4096, or what the limit on open files allows */
    int idle_s;                         /* a connection without a complete request; 0: 30 */
    struct web_idempotency idempotency; /* find NULL: kept in memory, the last 1024 */
    /* Called when an answer has gone to a request that may change something; NULL: none. For the
     * audit log. */
    void (*on_change)(void *ctx, struct web_request *rq, int status);
};

/* Can the service live below PREFIX: a path that starts with '/' and does not end with one, or ""?
 */
int web_prefix_check(const char *prefix, struct err *error);

int web_server_new(struct web_server **ret, uv_loop_t *loop, const struct web_config *config,
                   struct err *error);

/* Listen on "HOST:PORT", "[V6]:PORT" or "unix:PATH"; port 0 picks a free one. HOST is an address or
 * "localhost". -EPERM: not a loopback address and no token is known, or a loopback address and no
 * token at all. -EADDRINUSE, -EACCES… as the system says. A stale socket file is replaced, a living
 * one is -EADDRINUSE. */
int web_server_listen(struct web_server *server, const char *address, struct err *error);

/* "http://127.0.0.1:8417", or https, of the first TCP listener, or "". */
const char *web_server_url(const struct web_server *server);

/* Connections, subscribers and requests answered, for /metrics. */
struct web_stats {
    uint64_t requests, by_class[6]; /* by_class[4]: answers 4xx */
    uint64_t bytes_out, auth_failures;
    int connections, streams;
};
void web_server_stats(struct web_stats *ret, const struct web_server *server);

/* Close the listeners and end all streams; requests in flight are finished, but for work
 * on other threads, which becomes unwanted. For a graceful stop. */
void web_server_quiesce(struct web_server *server);
/* End everything: streams are stopped, deferred requests get 503. Runs the loop until the last
 * handle is closed and the last offloaded work is done, so it must not be called from a callback of
 * the loop. */
struct web_server *web_server_free(struct web_server *server);

/* ---- tokens -------------------------------------------------------------- */

enum { WEB_HASH_HEX = 65, WEB_TOKEN_TEXT = 48 };

/* A new token of 240 random bits, "pt_" and 40 characters, and its hash. */
int web_token_make(char ret_token[WEB_TOKEN_TEXT], char ret_hash[WEB_HASH_HEX], struct err *error);
void web_token_hash(char hash[WEB_HASH_HEX], const char *token); /* SHA-256 in hex */

/* Accept the token whose hash is HASH, for NAME (who, in the audit log) with SCOPE; and forget it
 * again. */
int web_server_add_token(struct web_server *server, const char *name, const char *hash,
                         enum web_scope scope, struct err *error);
void web_server_drop_token(struct web_server *server, const char *hash);

/* Make an admin token named "local", keep it in PATH (0600, replaced atomically) and accept it. The
 * token that PATH already holds is kept, so that open dashboards stay signed in. *RET_TOKEN: caller
 * frees; may be NULL. */
int web_server_token_file(char **ret_token, struct web_server *server, const char *path,
                          struct err *error);

/* ---- requests ------------------------------------------------------------ */

void *web_ctx(const struct web_request *rq);
struct arena *web_arena(struct web_request *rq);
const char *web_method(const struct web_request *rq);
const char *web_path(const struct web_request *rq);      /* decoded, without prefix and query */
const char *web_principal(const struct web_request *rq); /* name of the token, "local", or "" */
enum web_scope web_scope(const struct web_request *rq);
const char *web_request_header(struct web_request *rq, const char *name); /* or NULL */

/* Value of {name} in the route's path; never NULL for a name that the route has. */
const char *web_param(const struct web_request *rq, const char *name);
/* The same as a number in [MIN, MAX]; -ENOENT otherwise: such a resource cannot exist. */
int web_param_i64(int64_t *ret, struct web_request *rq, const char *name, int64_t min, int64_t max,
                  struct err *error);

/* Value of a query parameter, or NULL. */
const char *web_query(const struct web_request *rq, const char *name);
/* Unchanged when absent; -EINVAL with the name and the bound otherwise. */
int web_query_i64(int64_t *ret, struct web_request *rq, const char *name, int64_t min, int64_t max,
                  struct err *error);
int web_query_bool(bool *ret, struct web_request *rq, const char *name, struct err *error);
int web_query_enum(int *ret, struct web_request *rq, const char *name, const char *const *names,
                   struct err *error);

/* The parsed body, borrowed; NULL where the request had none. */
json_t *web_body(const struct web_request *rq);

/* ---- paging -------------------------------------------------------------- */

/* page_size and page_token of a list. A token carries a position and is bound to path, filters and
 * order: one that belongs to another list, or that nobody issued, is refused by -EINVAL. */
struct web_page {
    int size;          /* 1..1000, 100 unless the request says */
    int64_t offset;    /* rows to skip, in a list of web_reply_list() */
    const char *after; /* the position that web_reply_rows() was given, in the request's arena;
                          NULL: the first page */
};

int web_page_get(struct web_page *ret, struct web_request *rq, struct err *error);

/* {"items": ITEMS, "total": TOTAL, "next_page_token": …}. ITEMS is taken. */
void web_reply_list(struct web_request *rq, const struct web_page *page, json_t *owned_items,
                    int64_t total);
/* The same where ITEMS is the text of the array, and pages continue by a position of the list's
 * own: NEXT is that of the next page, without an "@" at its beginning; NULL: this is the last one.
 */
void web_reply_rows(struct web_request *rq, const char *items, int64_t total, const char *next);

/* ---- answers ------------------------------------------------------------- */

/* Add a header; before the answer. */
void web_reply_header(struct web_request *rq, const char *name, const char *value);

/* A JSON answer; it gets an ETag (unless the handler gave one by web_reply_header()), 304 where
 * If-None-Match has it, and gzip where large and accepted. */
void web_reply_json(struct web_request *rq, int status, json_t *owned_body);
/* The same from text that is JSON already; TEXT is copied. */
void web_reply_json_text(struct web_request *rq, int status, const char *text, size_t len);
/* Any other text or bytes, copied. */
void web_reply_bytes(struct web_request *rq, int status, const char *type, const void *bytes,
                     size_t size);
void web_reply_empty(struct web_request *rq, int status);

/* The key under which the answer to RQ is kept, and the hash of the request; false: it has none.
 * For a handler that keeps its answer in the transaction that makes what it answers: else a kill
 * between the two would leave a thing that the next request with that key makes again. */
bool web_idempotency_of(const char **ret_key, const char **ret_hash, const struct web_request *rq);

/* The answer holds a secret: it is not kept for the request's Idempotency-Key. */
void web_reply_secret(struct web_request *rq);

/* problem+json. The status is chosen from error->code (-ENOENT 404, -EINVAL -ERANGE 422, -EEXIST
 * -EBUSY 409, -ESTALE 409, -EPERM 403, -EFBIG 413, -ENOTSUP -E2BIG 422, -ENOMEM -EAGAIN -ENOSPC
 * -EROFS -EIO 503, else 500); 500 and 503 are logged. EXTRA's keys (such as "rules") are added to
 * the body; NULL: none. */
void web_reply_error(struct web_request *rq, const struct err *error);
void web_reply_error_with(struct web_request *rq, const struct err *error, json_t *owned_extra);
/* With a status of the handler's own choice. */
void web_reply_problem(struct web_request *rq, int status, const struct err *error,
                       json_t *owned_extra);

/* ETag of a JSON text as web_reply_json() would send it. */
void web_etag(char etag[40], const char *text, size_t len);
/* True if the request may change a resource whose tag now is ETAG: neither If-Match nor
 * If-None-Match forbids it. Otherwise 412 was answered. Readers are judged when they are
 * answered. */
bool web_if_match(struct web_request *rq, const char *etag);
/* Location of a new resource; PATH is without the prefix. */
void web_reply_location(struct web_request *rq, const char *path);
const char *web_prefix(const struct web_request *rq); /* "" or "/x" */

/*
 * Run WORK on another thread, of low priority, then DONE on the loop's thread, which answers. WORK
 * may use the arena and the body, and nothing of the server. It is not called if the client hangs
 * up, or the server ends, before its turn; DONE is called in any case, and its answer is dropped if
 * no client waits any more. Returns false, and calls neither, if the caller has eight such requests
 * running or waiting: it was answered 429.
 */
bool web_offload(struct web_request *rq, void (*work)(struct web_request *rq, void *arg),
                 void (*done)(struct web_request *rq, void *arg), void *arg);
/* The same for work that may take longer than seconds: nothing of web_offload() waits for it. */
bool web_offload_slow(struct web_request *rq, void (*work)(struct web_request *rq, void *arg),
                      void (*done)(struct web_request *rq, void *arg), void *arg);
/* Set once no client waits for the answer any more. Any thread. */
const atomic_bool *web_unwanted(const struct web_request *rq);

/* Keep a request open: the handler returns without an answer, and one of the web_reply functions is
 * called later on the loop's thread. */
void web_defer(struct web_request *rq);

/* ---- server-sent events -------------------------------------------------- */

/* One event as it goes over the wire, formatted once for all its readers; counted by reference. */
struct web_frame;

/* ID < 0: the event has no id. DATA is one line of JSON. */
struct web_frame *web_frame_new(const char *event, int64_t id, const char *data);
struct web_frame *web_frame_unref(struct web_frame *frame);

/*
 * The producer of a stream. proceed: all frames so far have gone to the socket (and at the start);
 * push more now, or later when there is something. stop: the reader has gone or the server ends;
 * CTX may be freed.
 */
struct web_stream_ops {
    void (*proceed)(void *ctx, struct web_stream *stream);
    void (*stop)(void *ctx);
};

/* Answer with an event stream. Heartbeat comments are sent while nothing else is. */
void web_reply_stream(struct web_request *rq, const struct web_stream_ops *ops, void *ctx);
/* -1, or the id that the reader saw last, from Last-Event-ID or ?last_event_id=. */
int64_t web_last_event_id(struct web_request *rq);
/* Borrow FRAME's text (a reference is taken). False, and FRAME is not queued, when the reader is
 * too slow and its queue is full, or too much waits for all readers together: catch up in
 * proceed(). In the latter case a stream whose queue is empty is ended; its reader reconnects. */
bool web_stream_push(struct web_stream *stream, struct web_frame *frame);
void web_stream_end(struct web_stream *stream); /* after what is queued */

/* ---- handlers of the library --------------------------------------------- */

/* GET /openapi.json: made from the route table. */
web_handler web_openapi;

#endif
