/* The end of a request: its answer goes to libmicrohttpd, at once or later, and its memory goes. */
#include "web/internal.h"

void web_request_ref(struct web_request *rq)
{
    rq->refs++;
}

void web_request_unref(struct web_request *rq)
{
    if (--rq->refs > 0)
        return;
    json_decref(rq->json);
    free(rq->body);
    arena_done(&rq->arena);
    free(rq);
}

static void undefer(struct web_request *rq)
{
    struct web_server *s = rq->server;

    if (s->deferred != rq && !rq->prev_deferred)
        return;
    *(rq->prev_deferred ? &rq->prev_deferred->next_deferred : &s->deferred) = rq->next_deferred;
    if (rq->next_deferred)
        rq->next_deferred->prev_deferred = rq->prev_deferred;
    rq->next_deferred = rq->prev_deferred = NULL;
}

void web_request_done(struct web_request *rq)
{
    undefer(rq);
    if (rq->response && rq->phase != RQ_QUEUED)
        MHD_destroy_response(rq->response);
    rq->response = NULL;
    rq->mhd = NULL;
    rq->conn = NULL;
    web_request_unref(rq);
}

static void resume(struct web_request *rq)
{
    if (!rq->suspended)
        return;
    rq->suspended = false;
    web_conn_phase(rq->conn, WEB_REPLY_MS, WEB_PATIENCE_ANSWER_MS);
    web_conn_resume(rq->conn, rq->mhd);
}

void web_request_answer(struct web_request *rq, int status, struct MHD_Response *owned_response)
{
    struct web_server *s = rq->server;

    if (!rq->mhd) { /* the reader has gone */
        MHD_destroy_response(owned_response);
        return;
    }
    assert(!rq->response && rq->phase != RQ_QUEUED); /* a handler answers once */
    undefer(rq);
    rq->status = status;
    rq->response = owned_response;
    rq->phase = RQ_ANSWERED;
    s->stats.requests++;
    s->stats.by_class[status / 100 % 6]++;
    if (s->config.on_change && rq->match.route && strcmp(rq->method, "GET") &&
        strcmp(rq->method, "HEAD"))
        s->config.on_change(s->config.ctx, rq, status);
    if (!rq->inside)
        resume(rq);
}

void web_defer(struct web_request *rq)
{
    struct web_server *s = rq->server;

    rq->next_deferred = s->deferred;
    if (s->deferred)
        s->deferred->prev_deferred = rq;
    s->deferred = rq;
}
