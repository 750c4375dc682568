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

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    struct cl_answer *a = user;

    if (a->text.len + size * count > MAX_ANSWER)
        return 0;
    str_addn(&a->text, bytes, size * count);
    return size * count;
}

static struct curl_slist *headers(const struct cl *client, bool has_body, const char *extra)
{
    struct curl_slist *h = NULL;

    if (has_body)
        h = curl_slist_append(h, "Content-Type: application/json");
    if (client->token) {
        AUTO_FREE char *bearer = mem_printf("Authorization: Bearer %s", client->token);

        h = curl_slist_append(h, bearer);
    }
    if (extra && *extra)
        h = curl_slist_append(h, extra);
    return curl_slist_append(h, "Expect:");
}

static CURL *open_curl(char **ret_url, const struct cl *client, const char *path)
{
    const char *base = client->args.server;
    CURL *h;

    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h = curl_easy_init())) {
        fprintf(stderr, "partune: libcurl cannot be initialized\n");
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
    if (client->args.cacert)
        curl_easy_setopt(h, CURLOPT_CAINFO, client->args.cacert);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(h, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(h, CURLOPT_USERAGENT, "partune/" PACKAGE_VERSION);
    curl_easy_setopt(h, CURLOPT_ACCEPT_ENCODING, "");
    return h;
}

/* What to do about each kind of silence. */
static int say_no_server(const struct cl *client, CURLcode rc, bool connected)
{
    const char *hint =
        "start one with `partuned`, or give its address with --server URL or $PARTUNE_SERVER";

    if (rc == CURLE_OPERATION_TIMEDOUT && connected) {
        fprintf(stderr,
                "partune: the daemon at %s accepted the request but has not answered in %d s\n"
                "  it may still be working on it: see `partune doctor` and its log\n",
                client->args.server, ANSWER_S);
        return CL_NO_SERVER;
    }
    if (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL)
        hint =
            "--server and $PARTUNE_SERVER must be http://HOST:PORT, https://HOST:PORT or unix:PATH";
    else if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE)
        hint = "name its CA certificate with --cacert FILE or $PARTUNE_CACERT";
    else if (rc == CURLE_OPERATION_TIMEDOUT)
        hint = "the connection timed out: check the address and firewalls";
    fprintf(stderr, "partune: no daemon answers at %s: %s\n  %s\n", client->args.server,
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
    const char *path; /* of the request; NULL: whatever it is */
} hints[] = {
    {401, NULL,
     "give a token with --token or $PARTUNE_TOKEN, or --data DIR of a daemon on this machine",
     NULL},
    {403, NULL,
     "this needs a token with a wider scope: an administrator creates one with `partune token-add`",
     NULL},
    {404, "has succeeded yet", "`partune watch ID` follows it until one has", NULL},
    {404, " succeeded", "`partune trials ID` says how each ended", NULL},
    {404, "no such resource:", "`partune get /openapi.json` lists the resources", NULL},
    {404, "unknown export target", "`partune exporters` describes them", NULL},
    {404, NULL, "`partune ls` lists the campaigns, `partune trials ID` the trials of one", NULL},
    {409, NULL, "`partune show ID` says what state it is in and why", NULL},
    {422, NULL, "`partune check FILE` checks a campaign without starting it", "/v1/campaigns"},
    {429, "are running or queued", "wait for one of them, or stop it", NULL},
    {429, NULL, "too many wrong tokens from this address: wait a minute and try again", NULL},
    {503, NULL, "the daemon is busy or stopping: try again in a moment", NULL},
};

/* Print a problem document for a person: the reason, the field, every broken rule, and a hint. */
static void say_problem(const struct cl *client, const char *path, const struct cl_answer *answer)
{
    AUTO_JSON *v = NULL;
    const char *detail, *pointer;
    json_t *rule;
    size_t i;

    if (jx_parse(&v, str_text(&answer->text), answer->text.len, NULL) < 0 || !json_is_object(v)) {
        fprintf(stderr, "partune: %s answered %ld\n", client->args.server, answer->status);
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
        if (hints[i].status == answer->status &&
            (!hints[i].about || strstr(detail, hints[i].about)) &&
            (!hints[i].path || str_eq(hints[i].path, path))) {
            fprintf(stderr, "  %s\n", hints[i].text);
            break;
        }
}

/* Asked again and again while an exchange is under way; 1 ends it. */
static int on_progress(void *user, curl_off_t expected, curl_off_t received, curl_off_t to_send,
                       curl_off_t sent)
{
    const atomic_bool *unwanted = user;

    (void)expected;
    (void)received;
    (void)to_send;
    (void)sent;
    return unwanted && atomic_load(unwanted);
}

/* One exchange, whatever the status. */
static CURLcode exchange(const struct cl *client, const char *method, const char *path,
                         const char *body, const atomic_bool *unwanted, struct cl_answer *answer)
{
    AUTO_FREE char *url = NULL;
    CURL *h = open_curl(&url, client, path);
    struct curl_slist *list;
    curl_off_t connected = 0;
    CURLcode rc;
    char *type = NULL;

    if (!h)
        return CURLE_FAILED_INIT;
    list = headers(client, body != NULL, NULL);
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, (long)ANSWER_S);
    if (body)
        curl_easy_setopt(h, CURLOPT_COPYPOSTFIELDS, body);
    if (unwanted) {
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, unwanted);
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    }
    rc = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_easy_getinfo(h, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(h, CURLINFO_PRETRANSFER_TIME_T, &connected);
    answer->connected = connected > 0;
    snprintf(answer->type, sizeof(answer->type), "%s", type ? type : "");
    curl_slist_free_all(list);
    curl_easy_cleanup(h);
    return rc;
}

static int perform(struct cl *client, const char *method, const char *path, const char *body,
                   struct cl_answer *answer)
{
    CURLcode rc = exchange(client, method, path, body, NULL, answer);

    if (rc == CURLE_FAILED_INIT)
        return CL_FAILED;
    if (rc != CURLE_OK)
        return say_no_server(client, rc, answer->connected);
    if (answer->status >= 400)
        say_problem(client, path, answer);
    return exit_code_of(answer->status);
}

int cl_call(json_t **ret, struct cl *client, const char *method, const char *path,
            const json_t *body)
{
    AUTO_FREE char *text = body ? jx_dump(body) : NULL;
    struct cl_answer a = {0};
    struct err e = {0};
    int code = perform(client, method, path, text, &a);

    *ret = NULL;
    if (code == CL_OK && a.text.len && jx_parse(ret, a.text.text, a.text.len, &e) < 0) {
        fprintf(stderr, "partune: bad answer from %s: %s\n", client->args.server, e.text);
        code = CL_FAILED;
    }
    if (!client->args.json)
        cl_make_safe(*ret);
    str_done(&a.text);
    return code;
}

long cl_try(json_t **ret, struct cl *client, const char *method, const char *path,
            const json_t *body)
{
    AUTO_FREE char *text = body ? jx_dump(body) : NULL;
    struct cl_answer a = {0};
    long status = exchange(client, method, path, text, NULL, &a) == CURLE_OK ? a.status : 0;

    *ret = NULL;
    if (a.text.len)
        jx_parse(ret, a.text.text, a.text.len, NULL);
    str_done(&a.text);
    return status;
}

int cl_exchange(struct cl_answer *ret, const struct cl *client, const char *method,
                const char *path, const json_t *body, const atomic_bool *unwanted)
{
    AUTO_FREE char *text = body ? jx_dump(body) : NULL;
    CURLcode rc;

    *ret = (struct cl_answer){0};
    rc = exchange(client, method, path, text, unwanted, ret);
    if (rc == CURLE_OK)
        return CL_OK;
    snprintf(ret->why, sizeof(ret->why), "%s", curl_easy_strerror(rc));
    return CL_NO_SERVER;
}

int cl_call_text(char **ret, size_t *ret_size, struct cl *client, const char *path)
{
    struct cl_answer a = {0};
    int code = perform(client, "GET", path, NULL, &a);

    if (code != CL_OK) {
        str_done(&a.text);
        return code;
    }
    *ret_size = a.text.len;
    *ret = str_take(&a.text);
    return CL_OK;
}

/* ---- Server-Sent Events -------------------------------------------------- */

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

static void tell(struct stream *stream, enum cl_signal what, const char *event, const json_t *data)
{
    if (!stream->done)
        stream->done = !stream->fn(stream->user, what, event, data);
}

static void dispatch(struct stream *stream)
{
    AUTO_JSON *v = NULL;

    if (stream->data.len && jx_parse(&v, stream->data.text, stream->data.len, NULL) == 0) {
        if (!stream->c->args.json)
            cl_make_safe(v);
        tell(stream, CL_EVENT, stream->event.len ? stream->event.text : "message", v);
    }
    str_trunc(&stream->event, 0);
    str_trunc(&stream->data, 0);
}

static void on_line(struct stream *stream, const char *line)
{
    if (!*line) {
        dispatch(stream);
    } else if (str_starts(line, "event:")) {
        str_trunc(&stream->event, 0);
        str_add(&stream->event, line + 6 + (line[6] == ' '));
    } else if (str_starts(line, "data:")) {
        str_add(&stream->data, line + 5 + (line[5] == ' '));
    } else if (str_starts(line, "id:")) {
        snprintf(stream->last_id, sizeof(stream->last_id), "%s", line + 3 + (line[3] == ' '));
    }
}

static size_t on_stream(char *bytes, size_t size, size_t count, void *user)
{
    struct stream *s = user;

    s->alive_ns = clock_mono_ns();
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &s->status);
    if (s->status >= 400)
        return size * count;
    for (size_t i = 0; i < size * count && !s->done; i++) {
        if (bytes[i] == '\n') {
            on_line(s, str_text(&s->line));
            str_trunc(&s->line, 0);
        } else if (bytes[i] != '\r') {
            str_addc(&s->line, bytes[i]);
        }
    }
    return s->done ? 0 : size * count;
}

/* Let the transfer run until it ends or FN has had enough. A key ends the waiting, not the stream.
 */
static void run(struct stream *stream, CURLM *multi)
{
    struct curl_waitfd keys = {.fd = stream->c->key_fd, .events = CURL_WAIT_POLLIN};
    int running = 1;

    while (running && !stream->done) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return;
        if (!stream->open && stream->status > 0 && stream->status < 400) {
            stream->open = true;
            tell(stream, CL_OPENED, NULL, NULL);
        }
        tell(stream, CL_TICK, NULL, NULL);
        if (running && !stream->done)
            curl_multi_poll(multi, &keys, keys.fd >= 0, TICK_MS, NULL);
    }
}

/* libcurl counts the end of the headers as the start of the answer, before any event comes. */
static size_t on_header(char *bytes, size_t size, size_t count, void *user)
{
    struct stream *s = user;

    if (size * count == 2 && !memcmp(bytes, "\r\n", 2)) {
        s->alive_ns = clock_mono_ns();
        curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &s->status);
    }
    return size * count;
}

static void connect_once(const char *path, struct stream *stream)
{
    AUTO_FREE char *url = NULL;
    AUTO_FREE char *resume =
        *stream->last_id ? mem_printf("Last-Event-ID: %s", stream->last_id) : NULL;
    struct curl_slist *list;
    CURLM *multi;

    stream->status = 0;
    stream->open = false;
    stream->curl = open_curl(&url, stream->c, path);
    multi = curl_multi_init();
    if (stream->curl && multi) {
        list = headers(stream->c, false, resume);
        curl_easy_setopt(stream->curl, CURLOPT_HTTPHEADER, list);
        curl_easy_setopt(stream->curl, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(stream->curl, CURLOPT_HEADERDATA, stream);
        curl_easy_setopt(stream->curl, CURLOPT_WRITEFUNCTION, on_stream);
        curl_easy_setopt(stream->curl, CURLOPT_WRITEDATA, stream);
        curl_multi_add_handle(multi, stream->curl);
        run(stream, multi);
        curl_multi_remove_handle(multi, stream->curl);
        curl_slist_free_all(list);
    }
    curl_multi_cleanup(multi);
    curl_easy_cleanup(stream->curl);
    stream->curl = NULL;
    str_trunc(&stream->line, 0);
    str_trunc(&stream->event, 0);
    str_trunc(&stream->data, 0);
}

/* Wait a little before the next try, as long as nobody presses a key. */
static void pause_before_retry(struct stream *stream)
{
    struct pollfd keys = {.fd = stream->c->key_fd, .events = POLLIN};

    for (int i = 0; i < RETRY_MS / TICK_MS + 1 && !stream->done; i++) {
        poll(&keys, 1, TICK_MS);
        tell(stream, CL_TICK, NULL, NULL);
    }
}

int cl_stream(struct cl *client, const char *path, cl_event_fn fn, void *user)
{
    struct stream s = {.c = client, .fn = fn, .user = user, .alive_ns = clock_mono_ns()};
    int code = CL_OK;

    client->trouble[0] = '\0';
    while (!s.done && code == CL_OK) {
        connect_once(path, &s);
        if (s.done)
            break;
        tell(&s, CL_LOST, NULL, NULL);
        if (s.status >= 400) {
            snprintf(client->trouble, sizeof(client->trouble), "%s answered %ld to %s",
                     client->args.server, s.status, path);
            code = exit_code_of(s.status);
        } else if (clock_mono_ns() - s.alive_ns > STREAM_PATIENCE_S * UINT64_C(1000000000)) {
            snprintf(client->trouble, sizeof(client->trouble),
                     "the daemon at %s stopped answering; the campaign resumes when it is back",
                     client->args.server);
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

void cl_say_trouble(const struct cl *client)
{
    if (client->trouble[0])
        fprintf(stderr, "partune: %s\n", client->trouble);
}
