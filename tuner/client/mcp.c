/*
 * JSON-RPC 2.0 by lines, as the Model Context Protocol's stdio transport has it.
 *
 * Two eras of the protocol are served, each request by itself: revision 2026-07-28 puts its version
 * and the client's capabilities into _meta of every request; earlier ones begin with initialize.
 * What a request says decides, not what came before it, but that without _meta the list and the
 * calls of tools need an initialize before.
 *
 * One thread reads; each call of a tool has a thread of its own, so that pings and cancellations
 * are answered while the daemon plans. A cancelled call gives up its request and is not answered.
 * `lock` guards the list of calls and standard output. Calls under way at the end of the input are
 * answered before the program ends.
 */
#include "tuner/client/mcp.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { MAX_LINE = 4 << 20, MAX_CALLS = 16 };
enum {
    PARSE_ERROR = -32700,
    INVALID_REQUEST = -32600,
    UNKNOWN_METHOD = -32601,
    INVALID_PARAMS = -32602,
    INTERNAL_ERROR = -32603,
    UNSUPPORTED_VERSION = -32022,
};

#define META "io.modelcontextprotocol/"
#define CURRENT "2026-07-28"

/* Of initialize, the newest first. */
static const char *const earlier[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", NULL};

struct server;

struct call {
    struct server *server;
    const struct mcp_tool *tool;
    json_t *id, *arguments;
    bool modern;
    atomic_bool unwanted;
    struct call *next;
};

struct server {
    const struct cl *client;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a call has */
    struct call *calls;   /* under way */
    int ncalls;
    bool initialized;
};

/* ---- answers ------------------------------------------------------------- */

static void put(struct server *server, json_t *owned_message)
{
    AUTO_FREE char *line = json_dumps(owned_message, JSON_COMPACT);

    json_decref(owned_message);
    puts(line);
    fflush(stdout);
    (void)server; /* whose lock is held, or which has no other thread */
}

static void send_locked(struct server *server, json_t *owned_message)
{
    pthread_mutex_lock(&server->lock);
    put(server, owned_message);
    pthread_mutex_unlock(&server->lock);
}

static json_t *error_message(json_t *id, int code, const char *text, json_t *owned_data)
{
    json_t *v = json_pack("{s:s, s:O?, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error", "code",
                          code, "message", text);

    if (!id)
        json_object_set_new(v, "id", json_null());
    if (owned_data)
        json_object_set_new(json_object_get(v, "error"), "data", owned_data);
    return v;
}

static void fail(struct server *server, json_t *id, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void fail(struct server *server, json_t *id, int code, const char *fmt, ...)
{
    AUTO_STR text = {0};
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(&text, fmt, ap);
    va_end(ap);
    send_locked(server, error_message(id, code, str_text(&text), NULL));
}

static json_t *identity(void)
{
    return json_pack("{s:s, s:s, s:s}", "name", "partune", "title", "partune", "version",
                     PACKAGE_VERSION);
}

/* RESULT, which is taken, as the request's era has it. */
static json_t *success_message(json_t *id, json_t *result, bool modern)
{
    if (modern) {
        json_object_set_new(result, "resultType", json_string("complete"));
        json_object_set_new(result, "_meta", json_pack("{s:o}", META "serverInfo", identity()));
    }
    return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
}

static void succeed(struct server *server, json_t *id, json_t *result, bool modern)
{
    send_locked(server, success_message(id, result, modern));
}

/* ---- versions ------------------------------------------------------------ */

static json_t *all_versions(void)
{
    json_t *list = json_pack("[s]", CURRENT);

    for (const char *const *version = earlier; *version; version++)
        json_array_append_new(list, json_string(*version));
    return list;
}

static json_t *capabilities(void)
{
    return json_pack("{s:{}}", "tools");
}

static const char *instructions(const struct server *server)
{
    return server->client->args.allow_submit
               ? "partune finds the parallel layout that trains a language model fastest. Use plan "
                 "and check before submit: submit runs real training jobs."
               : "partune finds the parallel layout that trains a language model fastest. These "
                 "tools only read; campaigns can be started if the server runs with "
                 "--allow-submit.";
}

static void initialize(struct server *server, json_t *id, const json_t *params)
{
    const char *asked = json_string_value(json_object_get(params, "protocolVersion")),
               *chosen = earlier[0];

    if (!asked) {
        fail(server, id, INVALID_PARAMS, "protocolVersion is missing, or not a string");
        return;
    }
    for (const char *const *version = earlier; *version; version++)
        if (str_eq(*version, asked))
            chosen = *version;
    server->initialized = true;
    succeed(server, id,
            json_pack("{s:s, s:o, s:o, s:s}", "protocolVersion", chosen, "capabilities",
                      capabilities(), "serverInfo", identity(), "instructions",
                      instructions(server)),
            false);
}

/* Is the request of the current era, and as that demands? *RET_MODERN on true. Else it was
 * answered. */
static bool judge_meta(bool *ret_modern, struct server *server, json_t *id, const json_t *params)
{
    const json_t *meta = json_object_get(params, "_meta");
    const json_t *version = json_object_get(meta, META "protocolVersion");

    *ret_modern = version != NULL;
    if (!version)
        return true;
    if (!json_is_string(version)) {
        fail(server, id, INVALID_PARAMS, "_meta: " META "protocolVersion is not a string");
        return false;
    }
    if (strcmp(json_string_value(version), CURRENT) != 0) {
        send_locked(server, error_message(id, UNSUPPORTED_VERSION, "Unsupported protocol version",
                                          json_pack("{s:o, s:s}", "supported", all_versions(),
                                                    "requested", json_string_value(version))));
        return false;
    }
    if (!json_is_object(json_object_get(meta, META "clientCapabilities"))) {
        fail(server, id, INVALID_PARAMS,
             "_meta: " META "clientCapabilities is missing, or not an object");
        return false;
    }
    return true;
}

/* ---- calls --------------------------------------------------------------- */

/* The link to the call with ID, or to the end. */
static struct call **find_call(struct server *server, const json_t *id)
{
    struct call **at = &server->calls;

    while (*at && !json_equal((*at)->id, (json_t *)(uintptr_t)id))
        at = &(*at)->next;
    return at;
}

static void *run_call(void *arg)
{
    struct call *call = arg;
    struct server *server = call->server;
    json_t *result = mcp_tool_call(server->client, call->tool, call->arguments, &call->unwanted);

    pthread_mutex_lock(&server->lock);
    if (atomic_load(&call->unwanted))
        json_decref(result);
    else
        put(server, success_message(call->id, result, call->modern));
    assert(server->ncalls > 0 && *find_call(server, call->id) == call);
    *find_call(server, call->id) = call->next;
    server->ncalls--;
    pthread_cond_signal(&server->ended);
    pthread_mutex_unlock(&server->lock);
    json_decref(call->id);
    json_decref(call->arguments);
    free(call);
    return NULL;
}

static void start_call(struct server *server, json_t *id, const struct mcp_tool *tool,
                       const json_t *arguments, bool modern)
{
    struct call *call = mem_alloc(sizeof(*call));
    pthread_attr_t attr;
    pthread_t thread;
    bool taken, full;
    int r = 0;

    /* A thread's own copies: counts of references are not atomic between threads. */
    *call = (struct call){.server = server,
                          .tool = tool,
                          .id = json_deep_copy(id),
                          .arguments = arguments ? json_deep_copy(arguments) : json_object(),
                          .modern = modern};
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_mutex_lock(&server->lock);
    taken = *find_call(server, id) != NULL;
    full = server->ncalls == MAX_CALLS;
    if (!taken && !full && (r = pthread_create(&thread, &attr, run_call, call)) == 0) {
        call->next = server->calls;
        server->calls = call;
        server->ncalls++;
        call = NULL;
    }
    pthread_mutex_unlock(&server->lock);
    pthread_attr_destroy(&attr);
    if (!call)
        return;
    json_decref(call->id);
    json_decref(call->arguments);
    free(call);
    if (taken)
        fail(server, id, INVALID_REQUEST, "a request with this id is in progress");
    else if (full)
        fail(server, id, INTERNAL_ERROR, "%d calls are in progress: wait for one of them",
             MAX_CALLS);
    else
        fail(server, id, INTERNAL_ERROR, "no thread: %s", strerror(r));
}

static void call_tool(struct server *server, json_t *id, const json_t *params, bool modern)
{
    const char *name = json_string_value(json_object_get(params, "name"));
    const json_t *arguments = json_object_get(params, "arguments");
    const struct mcp_tool *tool;

    if (!name) {
        fail(server, id, INVALID_PARAMS, "name is missing, or not a string");
        return;
    }
    if (arguments && !json_is_object(arguments)) {
        fail(server, id, INVALID_PARAMS, "arguments is not an object");
        return;
    }
    tool = mcp_tool_find(name, server->client->args.allow_submit);
    if (tool)
        start_call(server, id, tool, arguments, modern);
    else if (mcp_tool_find(name, true))
        fail(server, id, INVALID_PARAMS, "Unknown tool: %s (needs partune mcp --allow-submit)",
             name);
    else
        fail(server, id, INVALID_PARAMS, "Unknown tool: %s", name);
}

static void cancel(struct server *server, const json_t *params)
{
    const json_t *id = json_object_get(params, "requestId");
    struct call *call;

    pthread_mutex_lock(&server->lock);
    call = id ? *find_call(server, id) : NULL;
    if (call)
        atomic_store(&call->unwanted, true);
    pthread_mutex_unlock(&server->lock);
}

/* ---- requests ------------------------------------------------------------ */

static void list_tools(struct server *server, json_t *id, const json_t *params, bool modern)
{
    json_t *result;

    if (json_object_get(params, "cursor")) { /* none was ever given out */
        fail(server, id, INVALID_PARAMS, "unknown cursor");
        return;
    }
    result = json_pack("{s:o}", "tools", mcp_tool_list(server->client->args.allow_submit));
    if (modern) { /* the list is that of the program's version */
        json_object_set_new(result, "ttlMs", json_integer(3600000));
        json_object_set_new(result, "cacheScope", json_string("public"));
    }
    succeed(server, id, result, modern);
}

static void discover(struct server *server, json_t *id, bool modern)
{
    if (!modern) {
        fail(server, id, INVALID_PARAMS, "_meta: " META "protocolVersion is missing");
        return;
    }
    succeed(server, id,
            json_pack("{s:o, s:o, s:o, s:s, s:i, s:s}", "supportedVersions", all_versions(),
                      "capabilities", capabilities(), "serverInfo", identity(), "instructions",
                      instructions(server), "ttlMs", 3600000, "cacheScope", "public"),
            true);
}

static void answer(struct server *server, json_t *id, const char *method, const json_t *params)
{
    bool modern;

    if (!judge_meta(&modern, server, id, params))
        return;
    if (str_eq(method, "initialize"))
        initialize(server, id, params);
    else if (str_eq(method, "server/discover"))
        discover(server, id, modern);
    else if (str_eq(method, "ping") && !modern)
        succeed(server, id, json_object(), false);
    else if (strcmp(method, "tools/list") != 0 && strcmp(method, "tools/call") != 0)
        fail(server, id, UNKNOWN_METHOD, "unknown method \"%.80s\"", method);
    else if (!modern && !server->initialized)
        fail(server, id, INVALID_PARAMS,
             "_meta: " META "protocolVersion is missing, and there was no initialize");
    else if (str_eq(method, "tools/list"))
        list_tools(server, id, params, modern);
    else
        call_tool(server, id, params, modern);
}

static void take_message(struct server *server, const char *line, size_t size)
{
    AUTO_JSON *message = NULL;
    struct err e = {0};
    json_t *id, *params;
    const char *method;

    if (jx_parse(&message, line, size, &e) < 0) {
        fail(server, NULL, PARSE_ERROR, "%s", e.text);
        return;
    }
    method = json_string_value(json_object_get(message, "method"));
    params = json_object_get(message, "params");
    id = json_object_get(message, "id");
    if (!json_is_string(id) && !json_is_integer(id) && id) {
        fail(server, NULL, INVALID_REQUEST, "id is neither a string nor an integer");
        return;
    }
    if (!str_eq(json_string_value(json_object_get(message, "jsonrpc")), "2.0") || !method) {
        fail(server, id, INVALID_REQUEST, "not a JSON-RPC 2.0 request");
        return;
    }
    if (id && params && !json_is_object(params))
        fail(server, id, INVALID_PARAMS, "params is not an object");
    else if (id)
        answer(server, id, method, params);
    else if (str_eq(method, "notifications/cancelled"))
        cancel(server, params);
}

/* ---- lines --------------------------------------------------------------- */

/* Take the whole lines of TEXT, and keep the rest. A line that is too long is skipped to its end.
 */
static void take_lines(struct server *server, struct str *text, bool *skipping)
{
    size_t from = 0;

    for (char *end;
         from < text->len && (end = memchr(text->text + from, '\n', text->len - from));) {
        size_t size = (size_t)(end - text->text) - from;

        if (*skipping)
            *skipping = false;
        else if (size > strspn(text->text + from, " \t\r\n"))
            take_message(server, text->text + from, size);
        from += size + 1;
    }
    memmove(text->text, text->text + from, text->len - from);
    str_trunc(text, text->len - from);
    if (text->len > MAX_LINE) {
        if (!*skipping)
            fail(server, NULL, INVALID_REQUEST, "a message is longer than %d bytes", MAX_LINE);
        *skipping = true;
        str_trunc(text, 0);
    }
}

static void wait_for_calls(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    while (server->ncalls)
        pthread_cond_wait(&server->ended, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

int cl_mcp(struct cl *client)
{
    struct server server = {
        .client = client, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    AUTO_STR text = {0};
    bool skipping = false;
    char bytes[16384];
    ssize_t n;

    json_object_seed(0); /* once, before there are threads */
    while ((n = read(STDIN_FILENO, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0)
            continue;
        str_addn(&text, bytes, (size_t)n);
        take_lines(&server, &text, &skipping);
    }
    if (text.len && !skipping) {
        str_addc(&text, '\n');
        take_lines(&server, &text, &skipping);
    }
    wait_for_calls(&server);
    assert(!server.calls);
    return n < 0 || ferror(stdout) ? CL_FAILED : CL_OK;
}
