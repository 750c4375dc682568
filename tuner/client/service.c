/* Commands about the service itself: tokens, events of everything, any resource by its path. */
#include "tuner/client/client.h"

#include <signal.h>

static const struct cl_column token_columns[] = {
    {.title = "id"},      {.title = "name", .shrink = true},
    {.title = "scope"},   {.title = "created", .drop = 1},
    {.title = "expires"},
};

int cl_tokens(struct cl *client)
{
    struct cl_table t = {.column = token_columns, .ncolumns = ARRAY_LEN(token_columns)};
    AUTO_JSON *v = NULL;
    json_t *it;
    size_t i;
    int code = cl_call(&v, client, "GET", "/v1/tokens?page_size=1000", NULL);

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    json_array_foreach(json_object_get(v, "items"), i, it) {
        cl_table_add(&t, 0, "%s", cl_string(it, "id"));
        cl_table_add(&t, 1, "%s", cl_string(it, "name"));
        cl_table_add(&t, 2, "%s", cl_string(it, "scope"));
        cl_table_add(&t, 3, "%.19s", cl_string(it, "created"));
        cl_table_add(&t, 4, "%.19s",
                     *cl_string(it, "expires") ? cl_string(it, "expires") : "never");
    }
    if (t.rows)
        cl_table_print(client, &t, stdout);
    else
        puts("no token was created; the daemon uses the one in its data directory");
    cl_table_done(&t);
    return CL_OK;
}

int cl_token_add(struct cl *client)
{
    AUTO_JSON *body =
        json_pack("{s:s, s:s}", "name", client->operand[0], "scope", client->args.scope);
    AUTO_JSON *v = NULL;
    int code;

    if (client->args.expires)
        json_object_set_new(body, "expires_s", json_integer(client->args.expires));
    code = cl_call(&v, client, "POST", "/v1/tokens", body);
    if (code != CL_OK)
        return code;
    if (client->args.json)
        cl_print_json(v);
    else
        printf("%s\n", cl_string(v, "token"));
    if (!client->args.json && client->tty)
        fputs("keep it now: it is not shown again\n", stderr);
    return CL_OK;
}

int cl_token_rm(struct cl *client)
{
    AUTO_FREE char *path = cl_path("/v1/tokens/", client->operand[0], "");
    AUTO_JSON *v = NULL;
    int code = cl_call(&v, client, "DELETE", path, NULL);

    return code == CL_OK ? cl_say_done(client, "revoked", client->operand[0]) : code;
}

int cl_get(struct cl *client)
{
    AUTO_FREE char *text = NULL;
    AUTO_JSON *v = NULL;
    size_t n = 0;
    int code;

    if (client->operand[0][0] != '/') {
        fprintf(stderr, "partune: a path begins with a slash: /v1/campaigns; /openapi.json lists "
                        "them\n");
        return CL_USAGE;
    }
    code = cl_call_text(&text, &n, client, client->operand[0]);
    if (code != CL_OK)
        return code;
    if (jx_parse(&v, text, n, NULL) == 0)
        cl_print_json(v);
    else
        cl_write_text(client, text, n);
    return CL_OK;
}

/* ---- events -------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static bool print_event(void *user, enum cl_signal what, const char *event, const json_t *data)
{
    (void)user;
    if (what == CL_EVENT)
        cl_print_event(event, data);
    return !interrupted && !ferror(stdout);
}

int cl_events(struct cl *client)
{
    AUTO_FREE char *path = client->noperands
                               ? cl_path("/v1/campaigns/", client->operand[0], "/events")
                               : mem_strdup("/v1/events");
    int code;

    signal(SIGINT, on_interrupt);
    code = cl_stream(client, path, print_event, NULL);
    cl_say_trouble(client);
    return code;
}
