/*
 * The HTTP face of the daemon: the table of routes, its start and its end. Handlers are in this
 * folder, one file for each family of resources; they keep no state of a campaign.
 */
#include <errno.h>

#include "tuner/api/api.h"
#include "tuner/api/schemas.h"

enum { SMALL = 4 << 10, JOB = 256 << 10, TEXT = 1 << 20 };

const struct web_route tn_api_routes[] = {
#define ROUTE(...) {__VA_ARGS__},
#include "tuner/api/routes.def"
    {NULL, NULL, NULL, 0, WEB_PUBLIC, NULL, NULL, NULL, NULL, 0, false},
};

const struct web_param tn_api_params[] = {
#define PARAM(...) {__VA_ARGS__},
#include "tuner/api/routes.def"
    {NULL, NULL, NULL},
};

/* ---- start and stop ------------------------------------------------------ */

/* All values of `key` in [http] as a list in ARENA, or NULL. */
static const char *const *conf_list(const struct conf *conf, const char *key, struct arena *arena)
{
    const char **list;
    size_t n = 0;

    for (size_t i = 0; conf && i < conf->count; i++)
        n += str_eq(conf->entry[i].section, "http") && str_eq(conf->entry[i].key, key);
    if (!n)
        return NULL;
    list = arena_alloc(arena, (n + 1) * sizeof(*list));
    n = 0;
    for (size_t i = 0; i < conf->count; i++)
        if (str_eq(conf->entry[i].section, "http") && str_eq(conf->entry[i].key, key))
            list[n++] = arena_strdup(arena, conf->entry[i].value);
    return list;
}

int tn_http_settings_check(const struct conf *conf, struct err *error)
{
    for (size_t i = 0; i < conf->count; i++) {
        const struct conf_entry *it = &conf->entry[i];
        struct err why = {0};

        if (str_eq(it->section, "http") && str_eq(it->key, "prefix") &&
            web_prefix_check(it->value, &why) < 0)
            return err_set(error, -EINVAL, "%s:%d: %s", conf->path, it->line, why.text);
    }
    return 0;
}

/* Those that the client knows, too, with the words of a worker's reports. */
static const char *all_schemas(struct arena *arena)
{
    AUTO_JSON *schemas = tn_api_schema_tree();
    AUTO_FREE char *text = NULL;
    const char *words[DB_STATES + 2];

    if (!schemas)
        return tn_api_schemas; /* the server says what is wrong */
    tn_report_statuses(words);
    tn_api_schema_words(schemas, "CompleteRequest", "status", words);
    text = json_dumps(schemas, JSON_COMPACT);
    return arena_strdup(arena, text);
}

static int start_server(struct tn_http *http, const struct tn_http_config *config,
                        struct err *error)
{
    struct web_config w = {
        .routes = tn_api_routes,
        .params = tn_api_params,
        .schemas = all_schemas(&http->arena),
        .title = "partune",
        .version = PACKAGE_VERSION,
        .ctx = http,
        .prefix = config->conf ? conf_get(config->conf, "http", "", "prefix") : NULL,
        .ui_dir = config->ui_dir,
        .hosts = conf_list(config->conf, "allow-host", &http->arena),
        .origins = conf_list(config->conf, "allow-origin", &http->arena),
        .tls_cert = config->tls_cert,
        .tls_key = config->tls_key,
        .idempotency = tn_api_answers(http),
        .on_change = tn_api_audit,
    };
    AUTO_FREE char *path = config->token_file ? mem_strdup(config->token_file)
                                              : mem_printf("%s/token", tn_data_dir(http->svc));
    char hash[WEB_HASH_HEX];
    int r = web_server_new(&http->web, http->loop, &w, error);

    if (r == 0)
        r = web_server_token_file(&http->token, http->web, path, error);
    if (r < 0)
        return r;
    web_token_hash(hash, http->token);
    http->local_hash = mem_strdup(hash);
    r = tn_api_tokens_load(http, error);
    for (int i = 0; r == 0 && config->listen[i]; i++)
        r = web_server_listen(http->web, config->listen[i], error);
    return r;
}

int tn_http_start(struct tn_http **ret, struct tn_service *svc, uv_loop_t *loop,
                  const struct tn_http_config *config, struct err *error)
{
    struct tn_http *h = mem_alloc(sizeof(*h));
    int r;

    h->svc = svc;
    h->loop = loop;
    h->tokens = json_object();
    h->started_ms = clock_wall_ms();
    uv_timer_init(loop, &h->token_timer);
    h->token_timer.data = h;
    r = start_server(h, config, error);
    if (r < 0) {
        tn_http_stop(h);
        return r;
    }
    tn_api_tokens_watch(h);
    tn_api_events_start(h);
    *ret = h;
    return 0;
}

const char *tn_http_url(const struct tn_http *http)
{
    return web_server_url(http->web);
}

void tn_http_quiesce(struct tn_http *http)
{
    tn_asks_drop(http->svc);
    web_server_quiesce(http->web);
}

static void on_timer_closed(uv_handle_t *handle)
{
    ((struct tn_http *)handle->data)->closing = false;
}

struct tn_http *tn_http_stop(struct tn_http *http)
{
    if (!http)
        return NULL;
    tn_api_events_stop(http);
    http->closing = true;
    uv_close((uv_handle_t *)&http->token_timer, on_timer_closed);
    tn_asks_drop(http->svc);
    http->web = web_server_free(http->web);
    while (http->closing)
        uv_run(http->loop, UV_RUN_ONCE);
    json_decref(http->tokens);
    free(http->token);
    free(http->local_hash);
    arena_done(&http->arena);
    free(http);
    return NULL;
}
