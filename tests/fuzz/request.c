/*
 * Bytes on a connection: the whole server, from the request line to the parsed body and the answer.
 * Whatever comes, the server lives, lets go of the connection, and every answer is HTTP.
 */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "web/web.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    uv_loop_t loop;
    struct web_server *server;
    struct sockaddr_un at;
} app;

static void echo(struct web_request *rq)
{
    web_reply_json(rq, 200, web_body(rq) ? json_incref(web_body(rq)) : json_null());
}

static void list(struct web_request *rq)
{
    struct web_page page;
    struct err e;

    if (web_page_get(&page, rq, &e) < 0)
        web_reply_problem(rq, 400, &e, NULL);
    else
        web_reply_list(rq, &page, json_array(), 3);
}

static void thing(struct web_request *rq)
{
    struct err e;
    int64_t n;

    if (web_param_i64(&n, rq, "n", 1, 1 << 20, &e) < 0)
        web_reply_error(rq, &e);
    else
        web_reply_json(rq, 200, json_integer(n));
}

static const struct web_route routes[] = {
    {"GET", "/v1/list", list, 0, WEB_READ, "", "page_size page_token", NULL, NULL, 0, false},
    {"POST", "/v1/echo", echo, 4096, WEB_SUBMIT, "", NULL, NULL, NULL, 0, false},
    {"GET", "/v1/things/{n}", thing, 0, WEB_READ, "", NULL, NULL, NULL, 0, false},
    {"POST", "/v1/things/{n}:verb", thing, 64, WEB_SUBMIT, "", NULL, NULL, NULL, 0, false},
    {NULL, NULL, NULL, 0, WEB_PUBLIC, NULL, NULL, NULL, NULL, 0, false},
};
static const struct web_param params[] = {{"page_size", "{\"type\":\"integer\"}", ""},
                                          {"page_token", "{\"type\":\"string\"}", ""},
                                          {NULL, NULL, NULL}};

static void clean(void)
{
    unlink(app.at.sun_path);
}

static void setup(void)
{
    struct web_config config = {.routes = routes, .params = params, .title = "t", .version = "1"};
    AUTO_FREE char *address = NULL;
    struct err e = {0};

    log_setup("fuzz", LOG_ERROR);
    atexit(clean);
    app.at.sun_family = AF_UNIX;
    snprintf(app.at.sun_path, sizeof(app.at.sun_path), "fuzz-request.%d", (int)getpid());
    address = mem_printf("unix:%s", app.at.sun_path);
    uv_loop_init(&app.loop);
    if (web_server_new(&app.server, &app.loop, &config, &e) < 0 ||
        web_server_listen(app.server, address, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char answer[4096];
    struct web_stats stats;
    ssize_t n, got = 0;
    int fd;

    if (!app.server)
        setup();
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&app.at, sizeof(app.at)) < 0)
        abort();
    if (size > 32768)
        size = 32768;
    if (send(fd, data, size, MSG_NOSIGNAL) < 0)
        size = 0;
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 64; i++) {
        uv_run(&app.loop, UV_RUN_NOWAIT);
        n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        if (n == 0)
            break;
        if (n >= 8 && got == 0 && memcmp(answer, "HTTP/1.", 7) != 0)
            abort();
        got += n > 0 ? n : 0;
    }
    close(fd);
    for (int i = 0; i < 64; i++) {
        uv_run(&app.loop, UV_RUN_NOWAIT);
        web_server_stats(&stats, app.server);
        if (stats.connections == 0)
            break;
    }
    if (stats.connections > 64)
        abort();
    return 0;
}
