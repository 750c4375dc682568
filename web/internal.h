/* Shared by the files of web/ only. */
#ifndef WEB_INTERNAL_H
#define WEB_INTERNAL_H

#include <assert.h>
#include <microhttpd.h>

#include "base/base.h"
#include "web/auth.h"
#include "web/web.h"

/* ---- target.c: path and query of a request line; pure, fuzzed ------------ */

enum { WEB_MAX_SEGMENTS = 12, WEB_MAX_QUERY = 32 };

struct web_pair {
    const char *name, *value;
};

struct web_target {
    const char *path; /* decoded whole path, for logs and assets */
    int nsegments;
    const char *segment[WEB_MAX_SEGMENTS]; /* decoded one by one: %2F stays inside its segment */
    int nquery;
    struct web_pair query[WEB_MAX_QUERY];
};

/* Parse "/a/b%20c?x=1&y=". -EINVAL: bad escape, NUL, control character, not UTF-8, a "." or ".."
 * segment, a query parameter given twice; -E2BIG: too many parts. */
int web_target_parse(struct web_target *ret, const char *raw, const char *prefix,
                     struct arena *arena, struct err *error);

/* ---- route.c ------------------------------------------------------------- */

enum { WEB_MAX_PARAMS = 4 };

struct web_match {
    const struct web_route *route;
    int nparams;
    struct web_pair param[WEB_MAX_PARAMS];
};

/* The route for METHOD ("HEAD" counts as "GET"). -ENOENT: no such path; -EPERM: path without that
 * method, and *RET_ALLOW lists those that it has. */
int web_route_find(struct web_match *ret, const char **ret_allow, const struct web_route *table,
                   const char *method, const struct web_target *target, struct arena *arena);

/* ---- origin.c ------------------------------------------------------------ */

/* "host" of "host", "host:80" or "[v6]:80" in lower case into BUF; -EINVAL if it is none of these.
 */
int web_host_name(char *buf, size_t size, const char *authority);
bool web_host_allowed(const char *authority, const char *const *extra);
/* Same scheme-less authority as Host, or listed. */
bool web_origin_allowed(bool *ret_foreign, const char *origin, const char *host,
                        const char *const *listed);
/* Is WORD in a header's list, separated by commas? Parameters are ignored. */
bool web_list_has(const char *list, const char *word);

/* ---- idem.c -------------------------------------------------------------- */

enum { WEB_IDEM_KEEP = 1024, WEB_IDEM_OWNER = 16 };

struct web_idem;
struct web_idem *web_idem_new(void);
struct web_idem *web_idem_free(struct web_idem *idem);
bool web_idem_find(struct web_answer *ret, void *ctx, const char *key, struct arena *arena);
void web_idem_keep(void *ctx, const char *key, const struct web_answer *answer);

/* ---- connections and listeners: conn.c, server.c, listen.c --------------- */

struct listener;

/* A connection is in a phase that its client determines (silence between requests, a head, a body,
 * the taking of an answer), which must be over at deadline_ms, else it is shut down; or in work
 * here, or a stream: then deadline_ms is 0. When connections are scarce a phase may last no longer
 * than patience_ms. */
struct web_conn {
    struct web_conn *next, *prev;
    struct listener *listener;
    int fd;
    uint64_t peer;
    int64_t deadline_ms;
    int64_t since_ms; /* when the phase began */
    size_t held;      /* bytes of an answer that is being taken */
    int patience_ms;
};

struct listener {
    struct listener *next;
    struct web_server *server;
    struct MHD_Daemon *mhd;
    uv_poll_t poll;
    uv_timer_t timer; /* until libmicrohttpd's timeout */
    uv_idle_t idle;   /* it has more to do at once */
    bool trusted;     /* who can open the socket is the administrator */
    bool tcp;
    bool public; /* reachable from other machines */
    int fd;
    char *path; /* of a Unix socket */
    int port;
    bool quiet;   /* no longer listening */
    bool running; /* inside MHD_run() */
    bool again;   /* a connection was resumed meanwhile */
};

struct web_server {
    uv_loop_t *loop;
    struct web_config config;
    const char *prefix; /* "" or "/x" */
    struct web_auth auth;
    struct web_idempotency idem;
    struct web_idem *own_idem;
    char *openapi; /* text, made when first asked for */
    char *tls_cert, *tls_key;
    void **unpacked; /* assets.c's, by number of the asset */
    struct listener *listeners;
    struct web_conn *conns;
    struct web_stream *streams;
    struct web_request *deferred;
    uv_timer_t sweep, heartbeat;
    int nconns, nstreams, max_conns, idle_ms;
    size_t held;     /* bytes of answers that are being taken */
    size_t streamed; /* bytes of frames that wait for readers of streams */
    int open_handles;
    struct web_work *work;
    int ntasks; /* web_offload() calls that are not done */
    bool stopping;
    char url[128];
    struct web_stats stats;
};

enum {
    WEB_PATIENCE_MS = 500,         /* of a head, a body or the silence before one */
    WEB_PATIENCE_ANSWER_MS = 1000, /* of an answer */
    WEB_REPLY_MS = 300000,         /* of an answer where connections are not scarce */
    WEB_HELD_MAX = 64 << 20,       /* bytes of answers that wait to be taken; from half of it on
                                      they have the patience of scarce connections */
};

/* The client has MS for what comes now; 0: it is our turn. */
void web_conn_phase(struct web_conn *conn, int64_t ms, int patience_ms);
bool web_scarce(const struct web_server *server); /* few connections are left */
/* RQ's answer takes SIZE bytes until it is taken: -EAGAIN, and nothing is counted, where too many
 * do. */
int web_hold(struct web_request *rq, size_t size);
/* Let libmicrohttpd do what is to be done for LISTENER, and set its timer. */
void web_listener_run(struct listener *listener);
/* Resume a suspended connection on the loop's next turn. */
void web_conn_resume(struct web_conn *conn, struct MHD_Connection *mhd);

/* An open socket for ADDRESS; sets fd, tcp, trusted, path, port and public of *LISTENER. */
int web_listen_open(struct listener *listener, const char *address, struct err *error);
bool web_address_is_loopback(const char *address);

/* ---- requests: request.c, answer.c, reply.c ------------------------------ */

enum rq_phase {
    RQ_NEW,      /* only the request line is known */
    RQ_BODY,     /* headers were accepted: the body arrives */
    RQ_REFUSED,  /* an answer is made; the rest of the body is thrown away first */
    RQ_HANDLING, /* in the handler, or deferred */
    RQ_ANSWERED, /* an answer is made */
    RQ_QUEUED,   /* libmicrohttpd has it */
};

struct rq_header {
    struct rq_header *next;
    const char *name, *value;
};

struct web_request {
    struct web_server *server;
    struct web_conn *conn;
    struct MHD_Connection *mhd;
    struct arena arena;
    const char *raw; /* request target as sent; NULL if it was too long */
    struct web_target target;
    struct web_match match;
    const char *method;
    const char *principal;
    const struct web_token *token; /* that was shown, or NULL; to be compared only */
    enum web_scope scope;
    enum rq_phase phase;
    bool inside; /* libmicrohttpd is calling us: it may be given the answer at once */
    bool suspended;
    bool accepts_gzip;
    char *body;
    size_t nbody, body_cap, drained;
    json_t *json;
    struct rq_header *headers;
    struct MHD_Response *response;
    int status;
    const char *idem_key; /* unique for caller and key, or NULL */
    char idem_hash[WEB_HASH_HEX];
    int refs;             /* libmicrohttpd, and a web_offload() that is not done */
    atomic_bool unwanted; /* its client has hung up, or the server ends */
    struct web_request *next_deferred, *prev_deferred;
};

struct web_request *web_request_new(struct listener *listener, const char *raw,
                                    struct MHD_Connection *connection);
void web_request_done(struct web_request *rq); /* libmicrohttpd is through with it */
void web_request_ref(struct web_request *rq);
void web_request_unref(struct web_request *rq);
/* libmicrohttpd's access handler, for one call. */
enum MHD_Result web_request_step(struct web_request *rq, struct MHD_Connection *connection,
                                 const char *method, const char *upload, size_t *upload_size);
/* The answer: RESPONSE is taken. Called once. */
void web_request_answer(struct web_request *rq, int status, struct MHD_Response *owned_response);

/* 200 with bytes that live as long as the program, which are not copied. */
void web_reply_static(struct web_request *rq, const char *type, const void *bytes, size_t size);

/* ---- work.c -------------------------------------------------------------- */

struct web_work *web_work_new(struct web_server *server);
void web_work_sweep(struct web_work *work); /* whose client has hung up? */
void web_work_end(struct web_work *work);   /* all of it is unwanted */
/* Ends it, hands back what is done, and closes its handle. */
void web_work_close(struct web_work *work);

/* ---- stream.c ------------------------------------------------------------ */

void web_streams_heartbeat(struct web_server *server);
void web_streams_sweep(struct web_server *server); /* end those whose readers take nothing */
void web_streams_end(struct web_server *server);
/* TOKEN is revoked. */
void web_streams_end_of(struct web_server *server, const struct web_token *token);

/* ---- assets.c ------------------------------------------------------------ */

struct web_asset {
    const char *path; /* "ui/app.js" without the leading "ui/" */
    const char *type;
    const char *etag;           /* of the content */
    const unsigned char *bytes; /* gzip */
    size_t size, plain_size;
};

extern const struct web_asset web_assets[]; /* made by embed.c, ends with a NULL path */

/* Answer a GET of a path that no route has with a file of the dashboard; false if there is none. */
bool web_asset_reply(struct web_request *rq);
void web_assets_done(struct web_server *server);
const char *web_asset_type(const char *path);

#endif
