/*
 * Server-sent events: rows of table event, to each reader those of its campaign.
 *
 * A reader is live or behind. Live: each new row is pushed to it as it happens, as one frame for
 * all readers. Behind (at its start, or after its queue was full): it is fed from the database, a
 * batch each time its queue has drained, until no row is left; then it is live. So nothing is lost,
 * nothing is sent twice, and a slow reader costs a bounded amount of memory.
 */
#include "tuner/api/api.h"

enum { BATCH = 128 };

struct tn_watcher {
    struct tn_watcher *next;
    struct tn_http *http;
    struct web_stream *stream; /* set at its first proceed() */
    const char *campaign;      /* "" for all */
    char *owned;
    int64_t seen; /* id of the last row that it has, or that is not for it */
    bool live;
};

struct feed {
    struct tn_watcher *w;
    int rows;
    bool full;
};

static struct web_frame *frame_of(const struct db_event *ev)
{
    return web_frame_new(ev->kind, ev->id, ev->data);
}

static bool feed_row(void *ctx, const struct db_event *ev)
{
    struct feed *f = ctx;
    struct web_frame *frame = frame_of(ev);

    f->full = !web_stream_push(f->w->stream, frame);
    web_frame_unref(frame);
    if (f->full)
        return false;
    f->w->seen = ev->id;
    f->rows++;
    return true;
}

static void proceed(void *ctx, struct web_stream *stream)
{
    struct tn_watcher *w = ctx;
    struct feed f = {.w = w};
    struct err e;

    w->stream = stream;
    if (w->live)
        return;
    if (db_event_each(tn_db(w->http->svc), *w->campaign ? w->campaign : NULL, w->seen, BATCH,
                      feed_row, &f, &e) < 0) {
        log_error("events: %s", e.text);
        web_stream_end(stream);
        return;
    }
    w->live = !f.full && f.rows < BATCH;
}

static void stop(void *ctx)
{
    struct tn_watcher *w = ctx, **p = &w->http->watchers;

    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    free(w->owned);
    free(w);
}

static void publish(void *ctx, const struct db_event *ev)
{
    struct tn_http *h = ctx;
    struct web_frame *frame = NULL;

    for (struct tn_watcher *w = h->watchers; w; w = w->next) {
        if (!w->live || ev->id <= w->seen || (*w->campaign && !str_eq(w->campaign, ev->campaign)))
            continue;
        if (!frame)
            frame = frame_of(ev);
        w->live = web_stream_push(w->stream, frame);
        if (w->live)
            w->seen = ev->id;
    }
    web_frame_unref(frame);
}

void tn_api_events(struct web_request *rq)
{
    static const struct web_stream_ops ops = {proceed, stop};
    struct tn_http *h = tn_api_http(rq);
    bool one = strcmp(web_path(rq), "/v1/events") != 0;
    struct tn_watcher *w;
    int64_t last = web_last_event_id(rq), newest = db_event_last(tn_db(h->svc)), given;
    struct err e;

    if (web_query_i64(&given, rq, "last_event_id", 0, INT64_MAX, &e) < 0) {
        tn_api_bad_query(rq, &e);
        return;
    }
    if (one) {
        const char *text;
        size_t n;

        if (tn_campaign_text(&text, &n, h->svc, web_param(rq, "id"), &e) < 0) {
            web_reply_error(rq, &e);
            return;
        }
    }
    w = mem_alloc(sizeof(*w));
    w->http = h;
    w->owned = one ? mem_strdup(web_param(rq, "id")) : NULL;
    w->campaign = w->owned ? w->owned : "";
    /* An id that is not there yet is of a database that was replaced by its backup. */
    w->seen = last >= 0 && last < newest ? last : newest;
    w->next = h->watchers;
    h->watchers = w;
    web_reply_stream(rq, &ops, w);
}

void tn_api_events_start(struct tn_http *http)
{
    http->subscription = tn_subscribe(http->svc, publish, http);
}

void tn_api_events_stop(struct tn_http *http)
{
    if (http->subscription)
        http->subscription = tn_unsubscribe(http->subscription);
}
