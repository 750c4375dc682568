/*
 * Connections: their turns, their phases, and what their answers hold.
 *
 * A listener is run when its socket is readable, when the timeout that libmicrohttpd asks for is
 * over, or when one of its connections is resumed. server.c says what deadlines are for.
 */
#include "web/internal.h"

#include <errno.h>

static void on_timer(uv_timer_t *timer)
{
    web_listener_run(timer->data);
}

static void on_idle(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    web_listener_run(idle->data);
}

/*
 * Next time round the loop. A timer of no time would do as long as nobody kept us busy: libuv runs
 * what is due until nothing is, and does not look at anything else before.
 */
static void run_soon(struct listener *listener)
{
    uv_idle_start(&listener->idle, on_idle);
}

void web_listener_run(struct listener *listener)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool waits;

    if (listener->running || !listener->mhd)
        return;
    listener->running = true;
    listener->again = false;
    MHD_run(listener->mhd);
    listener->running = false;
    waits = MHD_get_timeout(listener->mhd, &ms) == MHD_YES;
    uv_timer_stop(&listener->timer);
    if (listener->again || (waits && ms == 0))
        run_soon(listener);
    else if (waits)
        uv_timer_start(&listener->timer, on_timer, ms, 0);
}

/* Driven from outside, libmicrohttpd does not wake itself up for a connection that is resumed. */
void web_conn_resume(struct web_conn *conn, struct MHD_Connection *mhd)
{
    struct listener *l = conn->listener;

    MHD_resume_connection(mhd);
    if (l->running)
        l->again = true;
    else if (l->mhd && !uv_is_closing((uv_handle_t *)&l->idle))
        run_soon(l);
}

void web_conn_phase(struct web_conn *conn, int64_t ms, int patience_ms)
{
    conn->since_ms = (int64_t)uv_now(conn->listener->server->loop);
    conn->deadline_ms = ms ? conn->since_ms + ms : 0;
    conn->patience_ms = patience_ms;
}

int web_hold(struct web_request *rq, size_t size)
{
    struct web_server *s = rq->server;

    if (!rq->mhd) /* the reader has gone */
        return 0;
    if (s->held + size > WEB_HELD_MAX)
        return -EAGAIN;
    s->held += size;
    rq->conn->held += size;
    return 0;
}

bool web_scarce(const struct web_server *server)
{
    return server->nconns > server->max_conns - server->max_conns / 8;
}
