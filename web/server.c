/*
 * The server: listeners, connections and their deadlines.
 *
 * Each listener is one libmicrohttpd daemon in external epoll mode. Its epoll descriptor is watched
 * by a uv_poll_t; when that is readable, or when the timeout that libmicrohttpd asks for is over,
 * MHD_run() does what is to be done, and calls us back for requests. Nothing here has a thread.
 *
 * Deadlines. libmicrohttpd closes a connection that is silent for idle_s; a client that sends one
 * byte at a time (slow-loris) is never silent. So every connection has a time by which its current
 * phase must be over, and a frequent sweep shuts down the sockets that are late. When connections
 * get scarce (seven of eight are in use), every phase that depends on the client has half a second,
 * the taking of an answer one, and connections are not kept: an honest client needs milliseconds,
 * so a flood of silent or slow connections is let go of as fast as it comes, while requests in work
 * and streams, for which a token was shown, stay.
 */
#include "web/internal.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEFAULT_CONNECTIONS = 4096,
    DEFAULT_IDLE_S = 30,
    HEARTBEAT_MS = 15000,
    SWEEP_MS = 250,
    POOL_BYTES = 16 << 10, /* of a connection: bounds the size of a request's head */
    SPARE_FILES = 192,     /* descriptors left to the rest of the program */
};

static void on_handle_closed(uv_handle_t *handle)
{
    struct web_server *s = handle->data;

    s->open_handles--;
}

static void destroy(struct web_server *server)
{
    while (server->listeners) {
        struct listener *l = server->listeners;

        server->listeners = l->next;
        free(l->path);
        free(l);
    }
    web_auth_done(&server->auth);
    web_idem_free(server->own_idem);
    web_assets_done(server);
    free(server->openapi);
    free(server->tls_cert);
    free(server->tls_key);
    free(server);
}

static void on_listener_handle_closed(uv_handle_t *handle)
{
    handle->data = ((struct listener *)handle->data)->server;
    on_handle_closed(handle);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    web_listener_run(poll->data);
}

static uint64_t peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = i ? i->client_addr : NULL;

    if (a && a->sa_family == AF_INET)
        return str_hash(&((const struct sockaddr_in *)a)->sin_addr, 4, 0);
    if (a && a->sa_family == AF_INET6) /* a site has a /64 */
        return str_hash(&((const struct sockaddr_in6 *)a)->sin6_addr, 8, 0);
    return 1;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct listener *l = cls;
    struct web_server *s = l->server;
    struct web_conn *c = *slot;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = mem_alloc(sizeof(*c));
        c->listener = l;
        c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->peer = peer_of(mhd);
        web_conn_phase(c, s->idle_ms, WEB_PATIENCE_MS);
        c->next = s->conns;
        if (c->next)
            c->next->prev = c;
        s->conns = c;
        s->nconns++;
        *slot = c;
    } else if (c) {
        *(c->prev ? &c->prev->next : &s->conns) = c->next;
        if (c->next)
            c->next->prev = c->prev;
        s->nconns--;
        free(c);
    }
}

static void *on_request_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    return web_request_new(cls, uri, mhd);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **slot)
{
    (void)cls;
    (void)url;
    (void)version;
    return web_request_step(*slot, mhd, method, upload, upload_size);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **slot,
                         enum MHD_RequestTerminationCode why)
{
    struct web_request *rq = *slot;

    (void)cls;
    (void)mhd;
    (void)why;
    *slot = NULL;
    if (!rq)
        return;
    rq->server->held -= rq->conn->held;
    rq->conn->held = 0;
    web_conn_phase(rq->conn, rq->server->idle_ms, WEB_PATIENCE_MS);
    web_request_done(rq);
}

static __attribute__((format(printf, 2, 0))) void on_log(void *cls, const char *fmt, va_list ap)
{
    char line[512];

    (void)cls;
    vsnprintf(line, sizeof(line), fmt, ap);
    line[strcspn(line, "\r\n")] = '\0';
    log_debug("http %s", line);
}

static void on_sweep(uv_timer_t *timer)
{
    struct web_server *s = timer->data;
    int64_t now = (int64_t)uv_now(s->loop);
    bool scarce = web_scarce(s);

    web_work_sweep(s->work);
    web_streams_sweep(s);
    for (struct web_conn *c = s->conns; c; c = c->next)
        if (c->deadline_ms &&
            (now > c->deadline_ms || ((scarce || (c->held && s->held > WEB_HELD_MAX / 2)) &&
                                      now - c->since_ms > c->patience_ms)))
            shutdown(c->fd, SHUT_RDWR);
    /* libmicrohttpd stops listening at its limit, and starts again only in its next run. */
    for (struct listener *l = s->listeners; l; l = l->next)
        web_listener_run(l);
}

static void on_heartbeat(uv_timer_t *timer)
{
    web_streams_heartbeat(timer->data);
}

static int connections_allowed(int wanted)
{
    struct rlimit files;

    if (wanted <= 0)
        wanted = DEFAULT_CONNECTIONS;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        long spare = (long)files.rlim_cur - SPARE_FILES;

        if (spare < 32)
            spare = 32;
        if (wanted > spare)
            wanted = (int)spare;
    }
    return wanted;
}

/* The key is private: a file that others may read is a mistake to name, not to serve with. */
static int load_tls(struct web_server *server, struct err *error)
{
    struct stat st;
    int r;

    if (!server->config.tls_cert != !server->config.tls_key)
        return err_set(error, -EINVAL, "TLS needs both a certificate and a key");
    if (!server->config.tls_cert)
        return 0;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return err_set(error, -ENOTSUP, "this libmicrohttpd was built without TLS");
    if (stat(server->config.tls_key, &st) == 0 && (st.st_mode & S_IRWXO))
        return err_set(error, -EPERM, "%s: others can read this private key; run chmod o= on it",
                       server->config.tls_key);
    r = file_read_all(&server->tls_cert, NULL, server->config.tls_cert, 1 << 20, error);
    if (r == 0)
        r = file_read_all(&server->tls_key, NULL, server->config.tls_key, 1 << 20, error);
    return r;
}

int web_prefix_check(const char *prefix, struct err *error)
{
    if (!*prefix)
        return 0;
    if (*prefix != '/' || str_ends(prefix, "/") || strpbrk(prefix, "?#% "))
        return err_set(error, -EINVAL, "prefix \"%s\" must be a path like /partune", prefix);
    return 0;
}

int web_server_new(struct web_server **ret, uv_loop_t *loop, const struct web_config *config,
                   struct err *error)
{
    struct web_server *s = mem_alloc(sizeof(*s));
    int r;

    s->loop = loop;
    s->config = *config;
    s->prefix = config->prefix ? config->prefix : "";
    s->max_conns = connections_allowed(config->max_connections);
    s->idle_ms = 1000 * (config->idle_s > 0 ? config->idle_s : DEFAULT_IDLE_S);
    s->idem = config->idempotency;
    r = web_prefix_check(s->prefix, error);
    if (r == 0)
        r = load_tls(s, error);
    if (r < 0) {
        free(s->tls_cert);
        free(s->tls_key);
        free(s);
        return r;
    }
    if (!s->idem.find) {
        s->own_idem = web_idem_new();
        s->idem = (struct web_idempotency){web_idem_find, web_idem_keep, s->own_idem};
    }
    s->work = web_work_new(s);
    uv_timer_init(loop, &s->sweep);
    uv_timer_init(loop, &s->heartbeat);
    s->sweep.data = s->heartbeat.data = s;
    s->open_handles = 2;
    uv_timer_start(&s->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_timer_start(&s->heartbeat, on_heartbeat, HEARTBEAT_MS, HEARTBEAT_MS);
    uv_unref((uv_handle_t *)&s->sweep);
    uv_unref((uv_handle_t *)&s->heartbeat);
    *ret = s;
    return 0;
}

static int check_tokens(const struct web_server *server, const struct listener *listener,
                        const char *address, struct err *error)
{
    bool configured = false;

    for (const struct web_token *t = server->auth.tokens; t; t = t->next)
        configured |= !t->local;
    if (listener->public && !configured)
        return err_set(error, -EPERM,
                       "other machines can reach %s and no token is configured: create "
                       "one with `partuned token add NAME`, or listen on 127.0.0.1",
                       address);
    if (listener->tcp && !server->auth.tokens)
        return err_set(error, -EPERM,
                       "%s needs a token: any user of this machine can connect to it", address);
    return 0;
}

static void listener_drop(struct listener *listener)
{
    if (listener->fd >= 0)
        close(listener->fd);
    if (listener->path)
        unlink(listener->path);
    free(listener->path);
    free(listener);
}

static struct MHD_Daemon *start_daemon(struct web_server *server, struct listener *listener)
{
    static const char versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    bool tls = server->tls_cert && listener->tcp;
    struct MHD_OptionItem tls_items[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, server->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, server->tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)versions},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0u);

    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, listener, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, listener->fd, MHD_OPTION_URI_LOG_CALLBACK, on_request_line,
        listener, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)server->max_conns,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(server->idle_ms / 1000), MHD_OPTION_ARRAY, tls ? tls_items : tls_items + 3,
        MHD_OPTION_END);
}

int web_server_listen(struct web_server *server, const char *address, struct err *error)
{
    struct listener *l = mem_alloc(sizeof(*l));
    const union MHD_DaemonInfo *info;
    int r = web_listen_open(l, address, error);

    if (r == 0)
        r = check_tokens(server, l, address, error);
    if (r < 0) {
        listener_drop(l);
        return r;
    }
    l->server = server;
    l->mhd = start_daemon(server, l);
    info = l->mhd ? MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        listener_drop(l);
        return err_set(error, -EIO, "listen on %s: libmicrohttpd refused%s", address,
                       server->tls_cert ? "; are the TLS certificate and key a pair in PEM?" : "");
    }
    uv_poll_init(server->loop, &l->poll, info->epoll_fd);
    uv_timer_init(server->loop, &l->timer);
    uv_idle_init(server->loop, &l->idle);
    l->poll.data = l->timer.data = l->idle.data = l;
    server->open_handles += 3;
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
    l->next = server->listeners;
    server->listeners = l;
    if (l->tcp && !*server->url) {
        const char *host = address;
        int n = (int)(strrchr(address, ':') - address);

        snprintf(server->url, sizeof(server->url), "%s://%.*s:%d%s",
                 server->tls_cert ? "https" : "http", n, host, l->port, server->prefix);
    }
    return 0;
}

const char *web_server_url(const struct web_server *server)
{
    return server->url;
}

void web_server_stats(struct web_stats *ret, const struct web_server *server)
{
    *ret = server->stats;
    ret->connections = server->nconns;
    ret->streams = server->nstreams;
    ret->auth_failures = server->auth.failures;
}

void web_server_quiesce(struct web_server *server)
{
    for (struct listener *l = server->listeners; l; l = l->next) {
        if (l->quiet)
            continue;
        l->quiet = true;
        MHD_quiesce_daemon(l->mhd);
        close(l->fd);
        l->fd = -1;
        if (l->path)
            unlink(l->path);
    }
    web_streams_end(server);
    web_work_end(server->work);
}

struct web_server *web_server_free(struct web_server *server)
{
    if (!server)
        return NULL;
    server->stopping = true;
    web_server_quiesce(server);
    while (server->deferred) {
        struct err e;

        err_set(&e, -EAGAIN, "the server is stopping");
        web_reply_error(server->deferred, &e);
    }
    for (struct listener *l = server->listeners; l; l = l->next) {
        uv_close((uv_handle_t *)&l->poll, on_listener_handle_closed);
        uv_close((uv_handle_t *)&l->timer, on_listener_handle_closed);
        uv_close((uv_handle_t *)&l->idle, on_listener_handle_closed);
        MHD_run(l->mhd); /* let what is resumed say good-bye */
        MHD_stop_daemon(l->mhd);
        l->mhd = NULL;
    }
    uv_close((uv_handle_t *)&server->sweep, on_handle_closed);
    uv_close((uv_handle_t *)&server->heartbeat, on_handle_closed);
    web_work_close(server->work);
    while (server->open_handles)
        uv_run(server->loop, UV_RUN_ONCE);
    destroy(server);
    return NULL;
}
