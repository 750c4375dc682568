/*
 * A small service on web/ for tests: a list of things in memory.
 *
 *     web_server DIR ADDRESS... : token in DIR/token, tokens "reader" and "writer" in DIR/reader
 * and DIR/writer; prints "ready URL", and "refused TEXT" with exit code 3 where an address is
 * refused. Ends on TERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "base/base.h"
#include "web/web.h"

enum { MAX_THINGS = 4096, TICK_MS = 10 };

static struct {
    struct web_server *server;
    json_t *things[MAX_THINGS];
    int count;
    struct web_frame *history[MAX_THINGS];
    int nhistory;
    struct watcher *watchers;
    int64_t ticked_ns, longest_ns; /* on_tick() */
} app;

/* ---- events: each new thing ---------------------------------------------- */

struct watcher {
    struct watcher *next;
    struct web_stream *stream;
    int at; /* history that it has */
};

static void feed(struct watcher *w)
{
    while (w->stream && w->at < app.nhistory && web_stream_push(w->stream, app.history[w->at]))
        w->at++;
}

static void watch_proceed(void *ctx, struct web_stream *stream)
{
    struct watcher *w = ctx;

    w->stream = stream;
    feed(w);
}

static void watch_stop(void *ctx)
{
    struct watcher **p = &app.watchers;

    while (*p != ctx)
        p = &(*p)->next;
    *p = (*p)->next;
    free(ctx);
}

static void events(struct web_request *rq)
{
    static const struct web_stream_ops ops = {watch_proceed, watch_stop};
    struct watcher *w = mem_alloc(sizeof(*w));
    int64_t last = web_last_event_id(rq);

    w->at = last < 0 ? app.nhistory : (int)last + 1;
    w->next = app.watchers;
    app.watchers = w;
    web_reply_stream(rq, &ops, w);
}

/* ---- things -------------------------------------------------------------- */

static json_t *find(struct web_request *rq)
{
    struct err e;
    int64_t n;
    int r = web_param_i64(&n, rq, "id", 0, INT32_MAX, &e);

    if (r == 0 && n < app.count && app.things[n])
        return app.things[n];
    if (r == 0)
        err_set(&e, -ENOENT, "there is no thing %lld", (long long)n);
    web_reply_error(rq, &e);
    return NULL;
}

static void list(struct web_request *rq)
{
    struct web_page page;
    struct err e;
    json_t *items;

    if (web_page_get(&page, rq, &e) < 0) {
        web_reply_problem(rq, 400, &e, NULL);
        return;
    }
    items = json_array();
    for (int64_t i = page.offset; i < app.count && i < page.offset + page.size; i++)
        json_array_append(items, app.things[i]);
    web_reply_list(rq, &page, items, app.count);
}

static void create(struct web_request *rq)
{
    static const char *const keys[] = {"name", "size", NULL};
    const char *name = NULL;
    struct err e;
    int size = 1;
    json_t *thing;
    char *text;

    if (jx_keys(web_body(rq), keys, &e) < 0 || jx_need(web_body(rq), "name", &e) < 0 ||
        jx_get_str(&name, web_body(rq), "name", 64, &e) < 0 ||
        jx_get_int(&size, web_body(rq), "size", 1, 100, &e) < 0) {
        web_reply_error(rq, &e);
        return;
    }
    if (app.count == MAX_THINGS) {
        err_set(&e, -ENOSPC, "no room for another thing");
        web_reply_error(rq, &e);
        return;
    }
    thing = json_pack("{s:i, s:s, s:i, s:s}", "id", app.count, "name", name, "size", size, "owner",
                      web_principal(rq));
    app.things[app.count++] = thing;
    text = jx_dump(thing);
    app.history[app.nhistory] = web_frame_new("thing", app.nhistory, text);
    app.nhistory++;
    free(text);
    for (struct watcher *w = app.watchers; w; w = w->next)
        feed(w);
    web_reply_location(rq, arena_printf(web_arena(rq), "/v1/things/%d", app.count - 1));
    web_reply_json(rq, 201, json_incref(thing));
}

static void show(struct web_request *rq)
{
    json_t *thing = find(rq);

    if (thing)
        web_reply_json(rq, 200, json_incref(thing));
}

static void change(struct web_request *rq)
{
    json_t *thing = find(rq);
    char *text, etag[40];

    if (!thing)
        return;
    text = jx_dump(thing);
    web_etag(etag, text, strlen(text));
    free(text);
    if (!web_if_match(rq, etag))
        return;
    json_object_update_existing(thing, web_body(rq));
    web_reply_json(rq, 200, json_incref(thing));
}

static void touch(struct web_request *rq)
{
    if (find(rq))
        web_reply_empty(rq, 204);
}

static void big(struct web_request *rq)
{
    json_t *items = json_array();

    for (int i = 0; i < 5000; i++)
        json_array_append_new(items, json_pack("{s:i, s:s}", "n", i, "text", "the same again"));
    web_reply_json(rq, 200, items);
}

static void slow_work(struct web_request *rq, void *arg)
{
    for (int i = 0; i < 200 && !atomic_load(web_unwanted(rq)); i++)
        usleep(1000);
    *(int *)arg = 42;
}

static void slow_done(struct web_request *rq, void *arg)
{
    web_reply_json(rq, 200, json_pack("{s:i}", "answer", *(int *)arg));
}

static void slow(struct web_request *rq)
{
    int *answer = arena_alloc(web_arena(rq), sizeof(*answer));

    if (!web_offload(rq, slow_work, slow_done, answer))
        return; /* was answered */
}

/* How long the rest of the process waited for the server: the longest time between two ticks. */
static void on_tick(uv_timer_t *timer)
{
    int64_t now = (int64_t)clock_mono_ns();

    (void)timer;
    if (app.ticked_ns && now - app.ticked_ns > app.longest_ns)
        app.longest_ns = now - app.ticked_ns;
    app.ticked_ns = now;
}

static void health(struct web_request *rq)
{
    web_reply_json(
        rq, 200,
        json_pack("{s:b, s:I}", "ok", 1, "longest_ms", (json_int_t)(app.longest_ns / 1000000)));
}

static const struct web_route routes[] = {
    {"GET", "/healthz", health, 0, WEB_PUBLIC, "is it alive", NULL, NULL, "Health", 0, false},
    {"GET", "/openapi.json", web_openapi, 0, WEB_PUBLIC, "this description", NULL, NULL, NULL, 0,
     false},
    {"GET", "/v1/things", list, 0, WEB_READ, "list things", "page_size page_token", NULL, "Thing[]",
     0, false},
    {"POST", "/v1/things", create, 4096, WEB_SUBMIT, "make a thing", NULL, "NewThing", "Thing", 201,
     false},
    {"GET", "/v1/things/{id}", show, 0, WEB_READ, "one thing", NULL, NULL, "Thing", 0, false},
    {"PATCH", "/v1/things/{id}", change, 4096, WEB_SUBMIT, "change it", NULL, NULL, "Thing", 0,
     false},
    {"POST", "/v1/things/{id}:touch", touch, 64, WEB_SUBMIT, "touch it", NULL, NULL, NULL, 204,
     false},
    {"GET", "/v1/big", big, 0, WEB_READ, "a large answer", NULL, NULL, NULL, 0, false},
    {"GET", "/v1/slow", slow, 0, WEB_READ, "an answer from another thread", NULL, NULL, NULL, 0,
     false},
    {"GET", "/v1/events", events, 0, WEB_READ, "new things", "last_event_id", NULL,
     "text/event-stream", 0, false},
    {"DELETE", "/v1/things/{id}", touch, 0, WEB_ADMIN, "pretend to delete", NULL, NULL, NULL, 204,
     false},
    {NULL, NULL, NULL, 0, WEB_PUBLIC, NULL, NULL, NULL, NULL, 0, false},
};

static const struct web_param params[] = {
    {"page_size", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000}", "items a page"},
    {"page_token", "{\"type\":\"string\"}", "where the next page starts"},
    {"last_event_id", "{\"type\":\"integer\"}", "events after this one"},
    {NULL, NULL, NULL},
};

static const char schemas[] =
    "{\"Thing\":{\"type\":\"object\",\"required\":[\"id\",\"name\"]},"
    "\"NewThing\":{\"type\":\"object\"},\"Health\":{\"type\":\"object\"}}";

static int keep_token(const char *dir, const char *name, enum web_scope scope)
{
    AUTO_FREE char *path = mem_printf("%s/%s", dir, name);
    char token[WEB_TOKEN_TEXT], hash[WEB_HASH_HEX];
    struct err e;

    if (web_token_make(token, hash, &e) < 0 ||
        file_write_atomic(path, token, strlen(token), 0600, &e) < 0 ||
        web_server_add_token(app.server, name, hash, scope, &e) < 0) {
        log_error("%s", e.text);
        return 1;
    }
    return 0;
}

static void on_signal(uv_signal_t *h, int n)
{
    (void)n;
    uv_close((uv_handle_t *)h, NULL);
    uv_stop(h->loop);
}

int main(int argc, char **argv)
{
    static const char *const origins[] = {"https://friend.example", NULL};
    struct web_config config = {
        .routes = routes,
        .params = params,
        .schemas = schemas,
        .title = "things",
        .version = "1",
        .prefix = getenv("THINGS_PREFIX"),
        .idle_s = 2,
        .origins = origins,
        .ui_dir = getenv("THINGS_UI"),
    };
    int64_t connections = 0;
    uv_loop_t loop;
    uv_signal_t term;
    uv_timer_t tick;
    struct err e;
    AUTO_FREE char *token = argc > 1 ? mem_printf("%s/token", argv[1]) : NULL;
    int r = 0;

    log_setup("web_server", getenv("THINGS_DEBUG") ? LOG_DEBUG : LOG_INFO);
    str_to_i64(&connections, getenv("THINGS_CONNECTIONS"), 1, 100000);
    config.max_connections = (int)connections;
    uv_loop_init(&loop);
    if (argc < 3 || web_server_new(&app.server, &loop, &config, &e) < 0)
        return 2;
    if (!getenv("THINGS_NO_TOKENS") &&
        (web_server_token_file(NULL, app.server, token, &e) < 0 ||
         (!getenv("THINGS_ONLY_LOCAL") &&
          (keep_token(argv[1], "reader", WEB_READ) || keep_token(argv[1], "writer", WEB_SUBMIT)))))
        return 2;
    for (int i = 2; i < argc && r == 0; i++)
        r = web_server_listen(app.server, argv[i], &e);
    if (r < 0) {
        printf("refused %s\n", e.text);
    } else {
        printf("ready %s\n", web_server_url(app.server));
        fflush(stdout);
        uv_signal_init(&loop, &term);
        uv_signal_start(&term, on_signal, SIGTERM);
        uv_timer_init(&loop, &tick);
        uv_timer_start(&tick, on_tick, TICK_MS, TICK_MS);
        uv_unref((uv_handle_t *)&tick);
    }
    if (r == 0) {
        uv_run(&loop, UV_RUN_DEFAULT);
        uv_close((uv_handle_t *)&tick, NULL);
    }
    app.server = web_server_free(app.server);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < app.count; i++) {
        json_decref(app.things[i]);
        web_frame_unref(app.history[i]);
    }
    if (uv_loop_close(&loop) != 0) {
        fprintf(stderr, "a handle was left open\n");
        return 4;
    }
    return r < 0 ? 3 : 0;
}
