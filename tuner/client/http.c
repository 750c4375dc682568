/*
 * HTTP for the client, by libcurl: single requests and Server-Sent Events.
 *
 * Where the daemon runs on this machine without configured tokens, it listens on loopback with a
 * token that it wrote to DATA/token (0600); the client reads it there, so that the user who started
 * the daemon needs no setting.
 */
#include "tuner/client/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>

enum { MAX_ANSWER = 256 << 20, STREAM_PATIENCE_S = 30, CONNECT_S = 10, ANSWER_S = 120 };

struct answer {
    struct str text;
    long status;
    char type[64];
    bool connected; /* there was somebody to send the request to */
};

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    struct answer *a = user;

    if (a->text.len + size * n > MAX_ANSWER)
        return 0;
    str_addn(&a->text, bytes, size * n);
    return size * n;
}

static struct curl_slist *headers(const struct cl *c, bool has_body, const char *extra)
{
    struct curl_slist *h = NULL;

    if (has_body)
        h = curl_slist_append(h, "Content-Type: application/json");
    if (c->token) {
        AUTO_FREE char *bearer = mem_printf("Authorization: Bearer %s", c->token);

        h = curl_slist_append(h, bearer);
    }
    if (extra && *extra)
        h = curl_slist_append(h, extra);
    return curl_slist_append(h, "Expect:");
}

static CURL *open_curl(const struct cl *c, const char *path, char **ret_url)
{
    const char *base = c->args.server;
    CURL *h;

    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h = curl_easy_init())) {
        fprintf(stderr, "partune: libcurl does not start\n");
        return NULL;
    }
    if (str_starts(base, "unix:")) {
        curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, base + 5);
        base = "http://localhost";
    }
    *ret_url = mem_printf("%.*s%s", (int)(strlen(base) - str_ends(base, "/")), base, path);
    curl_easy_setopt(h, CURLOPT_URL, *ret_url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR,
                     "http,https"); /* libcurl knows files and mail, too */
    if (c->args.cacert)
        curl_easy_setopt(h, CURLOPT_CAINFO, c->args.cacert);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(h, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(h, CURLOPT_USERAGENT, "partune/" PACKAGE_VERSION);
    curl_easy_setopt(h, CURLOPT_ACCEPT_ENCODING, "");
    return h;
}

/* What to do about each kind of silence. */
static int say_no_server(const struct cl *c, CURLcode rc, bool connected)
{
    const char *hint = "start one with `partuned`, or name it by --server URL or $PARTUNE_SERVER";

    if (rc == CURLE_OPERATION_TIMEDOUT && connected) {
        fprintf(stderr,
                "partune: the daemon at %s took the request and has not answered it in %d s\n"
                "  it may still be at work on it: `partune doctor` and its log say what it does\n",
                c->args.server, ANSWER_S);
        return CL_NO_SERVER;
    }
    if (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL)
        hint = "--server and $PARTUNE_SERVER are http://HOST:PORT, https://HOST:PORT or unix:PATH";
    else if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE)
        hint = "name the certificate that it goes back to by --cacert FILE or $PARTUNE_CACERT";
    else if (rc == CURLE_OPERATION_TIMEDOUT)
        hint = "nothing took the connection: is the address right, is a firewall between?";
    fprintf(stderr, "partune: no daemon answers at %s: %s\n  %s\n", c->args.server,
            curl_easy_strerror(rc), hint);
    return CL_NO_SERVER;
}

static int exit_code_of(long status)
{
    switch (status) {
    case 401:
    case 403:
        return CL_NO_ACCESS;
    case 404:
        return CL_NOT_FOUND;
    default:
        return status < 400 ? CL_OK : CL_REFUSED;
    }
}

/* What to do next. */
static const struct {
    long status;
    const char *about; /* what the reason holds; NULL: whatever it is */
    const char *text;
} hints[] = {
    {401, NULL,
     "give a token by --token or $PARTUNE_TOKEN, or --data DIR of the daemon on this machine"},
    {403, NULL,
     "this needs a token of a wider scope: an administrator makes one by `partune token-add`"},
    {404, "has succeeded yet", "`partune watch ID` follows it until one has"},
    {404, "there is nothing at", "`partune get /openapi.json` lists what there is"},
    {404, NULL, "`partune ls` lists the campaigns, `partune trials ID` the trials of one"},
    {409, NULL, "`partune show ID` says what state it is in and why"},
    {422, NULL, "correct the file; `partune check FILE` looks at it without starting anything"},
    {429, "wait for their turn", "wait until one of them is answered, or end it"},
    {429, NULL, "wait a minute before the next try: too many wrong tokens came from here"},
    {503, NULL, "the daemon is busy or stopping: try again in a moment"},
};

/* Print a problem document for a person: the reason, the field, every broken rule, and a hint. */
static void say_problem(const struct cl *c, const struct answer *a)
{
    AUTO_JSON *v = NULL;
    const char *detail, *pointer;
    json_t *rule;
    size_t i;

    if (jx_parse(&v, str_text(&a->text), a->text.len, NULL) < 0 || !json_is_object(v)) {
        fprintf(stderr, "partune: %s answered %ld\n", c->args.server, a->status);
        return;
    }
    cl_make_safe(v);
    detail = cl_string(v, "detail");
    pointer = cl_string(v, "pointer");
    fprintf(stderr, "partune: %s%s%s\n", *pointer ? pointer : "", *pointer ? ": " : "",
            *detail ? detail : cl_string(v, "title"));
    json_array_foreach(json_object_get(v, "rules"), i, rule)
        fprintf(stderr, "  %s: %s\n", cl_string(rule, "rule"), cl_string(rule, "detail"));
    for (i = 0; i < ARRAY_LEN(hints); i++)
        if (hints[i].status == a->status && (!hints[i].about || strstr(detail, hints[i].about))) {
            fprintf(stderr, "  %s\n", hints[i].text);
            break;
        }
}

/* One exchange, whatever the status. */
static CURLcode exchange(const struct cl *c, const char *method, const char *path, const char *body,
                         struct answer *a)
{
    AUTO_FREE char *url = NULL;
    CURL *h = open_curl(c, path, &url);
    struct curl_slist *list;
    curl_off_t connected = 0;
    CURLcode rc;
    char *type = NULL;

    if (!h)
        return CURLE_FAILED_INIT;
    list = headers(c, body != NULL, NULL);
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, (long)ANSWER_S);
    if (body)
        curl_easy_setopt(h, CURLOPT_COPYPOSTFIELDS, body);
    rc = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &a->status);
    curl_easy_getinfo(h, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(h, CURLINFO_PRETRANSFER_TIME_T, &connected);
    a->connected = connected > 0;
    snprintf(a->type, sizeof(a->type), "%s", type ? type : "");
    curl_slist_free_all(list);
    curl_easy_cleanup(h);
    return rc;
}

static int perform(struct cl *c, const char *method, const char *path, const char *body,
                   struct answer *a)
{
    CURLcode rc = exchange(c, method, path, body, a);

    if (rc == CURLE_FAILED_INIT)
        return CL_FAILED;
    if (rc != CURLE_OK)
        return say_no_server(c, rc, a->connected);
    if (a->status >= 400)
        say_problem(c, a);
    return exit_code_of(a->status);
}

int cl_call(struct cl *c, const char *method, const char *path, const json_t *body, json_t **ret)
{
    AUTO_FREE char *text = body ? jx_dump(body) : NULL;
    struct answer a = {0};
    struct err e = {0};
    int code = perform(c, method, path, text, &a);

    *ret = NULL;
    if (code == CL_OK && a.text.len && jx_parse(ret, a.text.text, a.text.len, &e) < 0) {
        fprintf(stderr, "partune: the answer of %s is %s\n", c->args.server, e.text);
        code = CL_FAILED;
    }
    if (!c->args.json)
        cl_make_safe(*ret);
    str_done(&a.text);
    return code;
}

long cl_try(struct cl *c, const char *method, const char *path, const json_t *body, json_t **ret)
{
    AUTO_FREE char *text = body ? jx_dump(body) : NULL;
    struct answer a = {0};
    long status = exchange(c, method, path, text, &a) == CURLE_OK ? a.status : 0;

    *ret = NULL;
    if (a.text.len)
        jx_parse(ret, a.text.text, a.text.len, NULL);
    str_done(&a.text);
    return status;
}

int cl_call_text(struct cl *c, const char *path, char **ret, size_t *ret_size)
{
    struct answer a = {0};
    int code = perform(c, "GET", path, NULL, &a);

    if (code != CL_OK) {
        str_done(&a.text);
        return code;
    }
    *ret_size = a.text.len;
    *ret = str_take(&a.text);
    return CL_OK;
}

/* ---- Server-Sent Events -----------------------------------------------------------------------
 */

enum { TICK_MS = 200, RETRY_MS = 500 };

struct stream {
    struct cl *c;
    struct str line, event, data;
    char last_id[32];
    cl_event_fn fn;
    void *user;
    bool done, open;
    uint64_t alive_ns; /* when bytes last came */
    long status;
    CURL *curl;
};

static void tell(struct stream *s, enum cl_signal what, const char *event, const json_t *data)
{
    if (!s->done)
        s->done = !s->fn(s->user, what, event, data);
}

static void dispatch(struct stream *s)
{
    AUTO_JSON *v = NULL;

    if (s->data.len && jx_parse(&v, s->data.text, s->data.len, NULL) == 0) {
        if (!s->c->args.json)
            cl_make_safe(v);
        tell(s, CL_EVENT, s->event.len ? s->event.text : "message", v);
    }
    str_trunc(&s->event, 0);
    str_trunc(&s->data, 0);
}

static void on_line(struct stream *s, const char *line)
{
    if (!*line) {
        dispatch(s);
    } else if (str_starts(line, "event:")) {
        str_trunc(&s->event, 0);
        str_add(&s->event, line + 6 + (line[6] == ' '));
    } else if (str_starts(line, "data:")) {
        str_add(&s->data, line + 5 + (line[5] == ' '));
    } else if (str_starts(line, "id:")) {
        snprintf(s->last_id, sizeof(s->last_id), "%s", line + 3 + (line[3] == ' '));
    }
}

static size_t on_stream(char *bytes, size_t size, size_t n, void *user)
{
    struct stream *s = user;

    s->alive_ns = clock_mono_ns();
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &s->status);
    if (s->status >= 400)
        return size * n;
    for (size_t i = 0; i < size * n && !s->done; i++) {
        if (bytes[i] == '\n') {
            on_line(s, str_text(&s->line));
            str_trunc(&s->line, 0);
        } else if (bytes[i] != '\r') {
            str_addc(&s->line, bytes[i]);
        }
    }
    return s->done ? 0 : size * n;
}

/* Let the transfer run until it ends or FN has had enough. A key ends the waiting, not the stream.
 */
static void run(struct stream *s, CURLM *multi)
{
    struct curl_waitfd keys = {.fd = s->c->key_fd, .events = CURL_WAIT_POLLIN};
    int running = 1;

    while (running && !s->done) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return;
        if (!s->open && s->status > 0 && s->status < 400) {
            s->open = true;
            tell(s, CL_OPENED, NULL, NULL);
        }
        tell(s, CL_TICK, NULL, NULL);
        if (running && !s->done)
            curl_multi_poll(multi, &keys, keys.fd >= 0, TICK_MS, NULL);
    }
}

/* libcurl counts the end of the headers as the start of the answer, before any event comes. */
static size_t on_header(char *bytes, size_t size, size_t n, void *user)
{
    struct stream *s = user;

    if (size * n == 2 && !memcmp(bytes, "\r\n", 2)) {
        s->alive_ns = clock_mono_ns();
        curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &s->status);
    }
    return size * n;
}

static void connect_once(const char *path, struct stream *s)
{
    AUTO_FREE char *url = NULL;
    AUTO_FREE char *resume = *s->last_id ? mem_printf("Last-Event-ID: %s", s->last_id) : NULL;
    struct curl_slist *list;
    CURLM *multi;

    s->status = 0;
    s->open = false;
    s->curl = open_curl(s->c, path, &url);
    multi = curl_multi_init();
    if (s->curl && multi) {
        list = headers(s->c, false, resume);
        curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, list);
        curl_easy_setopt(s->curl, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(s->curl, CURLOPT_HEADERDATA, s);
        curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_stream);
        curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
        curl_multi_add_handle(multi, s->curl);
        run(s, multi);
        curl_multi_remove_handle(multi, s->curl);
        curl_slist_free_all(list);
    }
    curl_multi_cleanup(multi);
    curl_easy_cleanup(s->curl);
    s->curl = NULL;
    str_trunc(&s->line, 0);
    str_trunc(&s->event, 0);
    str_trunc(&s->data, 0);
}

/* Wait a little before the next try, as long as nobody presses a key. */
static void pause_before_retry(struct stream *s)
{
    struct pollfd keys = {.fd = s->c->key_fd, .events = POLLIN};

    for (int i = 0; i < RETRY_MS / TICK_MS + 1 && !s->done; i++) {
        poll(&keys, 1, TICK_MS);
        tell(s, CL_TICK, NULL, NULL);
    }
}

int cl_stream(struct cl *c, const char *path, cl_event_fn fn, void *user)
{
    struct stream s = {.c = c, .fn = fn, .user = user, .alive_ns = clock_mono_ns()};
    int code = CL_OK;

    c->trouble[0] = '\0';
    while (!s.done && code == CL_OK) {
        connect_once(path, &s);
        if (s.done)
            break;
        tell(&s, CL_LOST, NULL, NULL);
        if (s.status >= 400) {
            snprintf(c->trouble, sizeof(c->trouble), "%s answered %ld to %s", c->args.server,
                     s.status, path);
            code = exit_code_of(s.status);
        } else if (clock_mono_ns() - s.alive_ns > STREAM_PATIENCE_S * UINT64_C(1000000000)) {
            snprintf(c->trouble, sizeof(c->trouble),
                     "no daemon answers at %s any more; the campaign goes on when it is back",
                     c->args.server);
            code = CL_NO_SERVER;
        } else {
            pause_before_retry(&s);
        }
    }
    str_done(&s.line);
    str_done(&s.event);
    str_done(&s.data);
    return code;
}

void cl_say_trouble(const struct cl *c)
{
    if (c->trouble[0])
        fprintf(stderr, "partune: %s\n", c->trouble);
}
