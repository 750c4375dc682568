/*
 * The HTTP face of the daemon: the table of routes, its start and its end. Handlers are in this
 * folder, one file for each family of resources; they keep no state of a campaign.
 */
#include <errno.h>

#include "tuner/api/api.h"

enum { SMALL = 4 << 10, JOB = 256 << 10, TEXT = 1 << 20 };

#define PAGE "page_size page_token"

const struct web_route tn_api_routes[] = {
    {"GET", "/v1/campaigns", tn_api_campaign_list, 0, WEB_READ, "List campaigns",
     "state tag name sort " PAGE, NULL, "CampaignSummary[]", 0, false},
    {"POST", "/v1/campaigns", tn_api_campaign_create, JOB, WEB_SUBMIT,
     "Start a campaign, or only validate it with dry_run", "dry_run", "CampaignSpec", "Campaign",
     201, false},
    {"GET", "/v1/campaigns/{id}", tn_api_campaign_show, 0, WEB_READ, "One campaign", NULL, NULL,
     "Campaign", 0, false},
    {"PATCH", "/v1/campaigns/{id}", tn_api_campaign_patch, 64 << 10, WEB_SUBMIT,
     "Change name, notes or tags", NULL, "CampaignPatch", "Campaign", 0, true},
    {"DELETE", "/v1/campaigns/{id}", tn_api_campaign_delete, 0, WEB_SUBMIT,
     "Delete a campaign that has ended, with its files", NULL, NULL, NULL, 204, true},
    {"POST", "/v1/campaigns/{id}:pause", tn_api_campaign_pause, SMALL, WEB_SUBMIT,
     "Let running trials finish and start no more", NULL, NULL, "Campaign", 0, true},
    {"POST", "/v1/campaigns/{id}:resume", tn_api_campaign_resume, SMALL, WEB_SUBMIT, "Go on", NULL,
     NULL, "Campaign", 0, true},
    {"POST", "/v1/campaigns/{id}:cancel", tn_api_campaign_cancel, SMALL, WEB_SUBMIT,
     "Stop running trials and end the campaign", NULL, NULL, "Campaign", 0, true},
    {"POST", "/v1/campaigns/{id}:clone", tn_api_campaign_clone, JOB, WEB_SUBMIT,
     "Start a campaign like this one, with changes", "dry_run", NULL, "Campaign", 201, false},
    {"POST", "/v1/campaigns/{id}:verify", tn_api_campaign_verify, SMALL, WEB_SUBMIT,
     "Run winner and baseline interleaved", NULL, NULL, "Campaign", 0, true},
    {"GET", "/v1/campaigns/{id}/trials", tn_api_trial_list, 0, WEB_READ, "Trials of a campaign",
     "state kind sort " PAGE, NULL, "Trial[]", 0, false},
    {"GET", "/v1/campaigns/{id}/trials/{n}", tn_api_trial_show, 0, WEB_READ, "One trial", NULL,
     NULL, "Trial", 0, false},
    {"GET", "/v1/campaigns/{id}/trials/{n}/steps", tn_api_trial_steps, 0, WEB_READ,
     "Steps of the last attempt", PAGE, NULL, "Step[]", 0, false},
    {"GET", "/v1/campaigns/{id}/trials/{n}/log", tn_api_trial_log, 0, WEB_READ,
     "Part of a log; X-Log-Size is the whole size", "stream offset limit", NULL, "text/plain", 0,
     false},
    {"GET", "/v1/campaigns/{id}/trials/{n}/timeline", tn_api_trial_timeline, 0, WEB_READ,
     "Timeline of a step as Chrome trace JSON", NULL, NULL, "Timeline", 0, false},
    {"POST", "/v1/campaigns/{id}:suggest", tn_api_suggest, SMALL, WEB_SUBMIT,
     "A worker asks for a trial; waits up to wait_s for one", NULL, "SuggestRequest", "Suggestion",
     0, false},
    {"POST", "/v1/campaigns/{id}/trials/{n}:heartbeat", tn_api_heartbeat, TEXT, WEB_SUBMIT,
     "A worker reports events and keeps its lease", NULL, "HeartbeatRequest", "Heartbeat", 0,
     false},
    {"POST", "/v1/campaigns/{id}/trials/{n}:complete", tn_api_complete, TEXT, WEB_SUBMIT,
     "A worker reports the end of its trial", NULL, "CompleteRequest", "Trial", 0, false},
    {"GET", "/v1/workers", tn_api_workers, 0, WEB_READ, "Workers of the last day", PAGE, NULL,
     "Worker[]", 0, false},
    {"GET", "/v1/campaigns/{id}/best", tn_api_best, 0, WEB_READ, "The best layout so far", NULL,
     NULL, "Standing", 0, false},
    {"GET", "/v1/campaigns/{id}/baseline", tn_api_baseline, 0, WEB_READ, "The baseline layout",
     NULL, NULL, "Standing", 0, false},
    {"GET", "/v1/campaigns/{id}/importance", tn_api_importance, 0, WEB_READ,
     "Share of each layout key in the variance of throughput", NULL, NULL, "Importance", 0, false},
    {"GET", "/v1/campaigns/{id}/pareto", tn_api_pareto, 0, WEB_READ,
     "Trials that no other beats in both throughput and memory", PAGE, NULL, "ParetoPoint[]", 0,
     false},
    {"GET", "/v1/campaigns/{id}/predictions", tn_api_predictions, 0, WEB_READ,
     "Predicted and measured throughput of the trials", PAGE, NULL, "Prediction[]", 0, false},
    {"GET", "/v1/campaigns/{id}/surface", tn_api_surface, 0, WEB_READ,
     "Surrogate model over two layout keys", "x y", NULL, "Surface", 0, false},
    {"GET", "/v1/campaigns/{id}/diagnosis", tn_api_diagnosis, 0, WEB_READ,
     "State of the search: its hyper-parameters and calibration", NULL, NULL, "Diagnosis", 0,
     false},
    {"GET", "/v1/campaigns/{id}/export/{target}", tn_api_export, 0, WEB_READ,
     "The winner as another program's configuration", "allow_loss allow_simulated trial", NULL,
     "text/plain", 0, false},
    {"GET", "/v1/campaigns/{id}/events", tn_api_events, 0, WEB_READ, "Events of a campaign",
     "last_event_id", NULL, "text/event-stream", 0, false},
    {"GET", "/v1/events", tn_api_events, 0, WEB_READ, "Events of all campaigns", "last_event_id",
     NULL, "text/event-stream", 0, false},
    {"POST", "/v1/check", tn_api_check, JOB, WEB_READ,
     "Rules, memory and expected time of one layout", NULL, "CheckRequest", "Check", 0, false},
    {"POST", "/v1/plan", tn_api_plan, JOB, WEB_READ,
     "Rank layouts by the cost model, without a trial", NULL, "PlanRequest", "Plan", 0, false},
    {"GET", "/v1/plan/examples", tn_api_examples, 0, WEB_READ,
     "Published studies that can be reproduced", PAGE, NULL, "Name[]", 0, false},
    {"GET", "/v1/plan/examples/{name}", tn_api_example, 0, WEB_READ,
     "A published study, reproduced by the cost model", NULL, NULL, "Example", 0, false},
    {"POST", "/v1/project", tn_api_project, JOB, WEB_SUBMIT,
     "Project throughput to other device counts", NULL, "ProjectRequest", "Projection", 0, false},
    {"POST", "/v1/compare", tn_api_compare, SMALL, WEB_READ, "Compare trials or campaigns", NULL,
     "CompareRequest", "Comparison", 0, false},
    {"GET", "/v1/exporters", tn_api_exporters, 0, WEB_READ, "Export targets", PAGE, NULL,
     "Exporter[]", 0, false},
    {"POST", "/v1/import/{target}", tn_api_import, TEXT, WEB_READ,
     "Convert another program's configuration to a layout", NULL, "ImportRequest", "Import", 0,
     false},
    {"GET", "/v1/presets/models", tn_api_models, 0, WEB_READ, "Model presets", PAGE, NULL,
     "Model[]", 0, false},
    {"GET", "/v1/presets/models/{name}", tn_api_model, 0, WEB_READ, "One model", NULL, NULL,
     "Model", 0, false},
    {"GET", "/v1/presets/clusters", tn_api_clusters, 0, WEB_READ, "Cluster presets", PAGE, NULL,
     "Cluster[]", 0, false},
    {"GET", "/v1/presets/clusters/{name}", tn_api_cluster, 0, WEB_READ, "One cluster", NULL, NULL,
     "Cluster", 0, false},
    {"GET", "/v1/datasets", tn_api_datasets, 0, WEB_READ, "Data sets", PAGE, NULL, "Dataset[]", 0,
     false},
    {"GET", "/v1/tokens", tn_api_token_list, 0, WEB_ADMIN, "Tokens, without their secrets", PAGE,
     NULL, "Token[]", 0, false},
    {"POST", "/v1/tokens", tn_api_token_create, SMALL, WEB_ADMIN,
     "Create a token; only this answer has its secret", NULL, "NewToken", "MadeToken", 201, false},
    {"DELETE", "/v1/tokens/{id}", tn_api_token_delete, 0, WEB_ADMIN, "Revoke a token", NULL, NULL,
     NULL, 204, false},
    {"GET", "/openapi.json", web_openapi, 0, WEB_PUBLIC, "This description", NULL, NULL, "OpenAPI",
     0, false},
    {"GET", "/healthz", tn_api_healthz, 0, WEB_PUBLIC, "Liveness: the daemon answers", NULL, NULL,
     "Alive", 0, false},
    {"GET", "/readyz", tn_api_readyz, 0, WEB_PUBLIC,
     "Readiness: everything that campaigns need is there; 503 if not", NULL, NULL, "Ready", 0,
     false},
    {"GET", "/metrics", tn_api_metrics, 0, WEB_READ, "Metrics for Prometheus", NULL, NULL,
     "text/plain", 0, false},
    {NULL, NULL, NULL, 0, WEB_PUBLIC, NULL, NULL, NULL, NULL, 0, false},
};

const struct web_param tn_api_params[] = {
    {"page_size", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"default\":100}",
     "items a page"},
    {"page_token", "{\"type\":\"string\"}", "next_page_token of the previous page"},
    {"sort", "{\"type\":\"string\"}", "key, or -key for descending order"},
    {"state", "{\"type\":\"string\"}", "only those in this state"},
    {"kind", "{\"type\":\"string\",\"enum\":[\"baseline\",\"search\",\"repeat\",\"verify\"]}",
     "only trials of this kind"},
    {"tag", "{\"type\":\"string\"}", "only campaigns with this tag"},
    {"name", "{\"type\":\"string\"}", "only campaigns whose name contains this, in any case"},
    {"dry_run", "{\"type\":\"boolean\",\"default\":false}",
     "only validate; answers 200 and stores nothing"},
    {"stream",
     "{\"type\":\"string\",\"enum\":[\"stdout\",\"stderr\",\"events\"],\"default\":\"stdout\"}",
     "which log"},
    {"offset", "{\"type\":\"integer\",\"minimum\":0,\"default\":0}", "first byte"},
    {"limit", "{\"type\":\"integer\",\"minimum\":1,\"maximum\":1048576,\"default\":65536}",
     "most bytes"},
    {"x", "{\"type\":\"string\"}", "layout key of the first axis"},
    {"y", "{\"type\":\"string\"}", "layout key of the second axis"},
    {"allow_loss", "{\"type\":\"boolean\",\"default\":false}",
     "write the file even if the target cannot express all; what is lost is listed in it"},
    {"allow_simulated", "{\"type\":\"boolean\",\"default\":false}",
     "write the file even if the campaign is simulated and no training job has run the layout"},
    {"trial", "{\"type\":\"integer\",\"minimum\":1}", "this trial instead of the winner"},
    {"last_event_id", "{\"type\":\"integer\",\"minimum\":0}", "as the header Last-Event-ID"},
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

/* Property KEY of schema NAME is one of WORDS. */
static void set_words(json_t *schemas, const char *name, const char *key, const char *const *words)
{
    json_t *list = json_array();

    for (; *words; words++)
        json_array_append_new(list, json_string(*words));
    json_object_set_new(
        json_object_get(json_object_get(json_object_get(schemas, name), "properties"), key), "enum",
        list);
}

/* Those of schemas.json with the layout's, which plan/ makes from its keys, and with the words of
 * the rows of db_states. */
static const char *all_schemas(struct arena *arena)
{
    AUTO_JSON *schemas = NULL;
    AUTO_FREE char *text = NULL;
    const char *words[DB_STATES + 2];

    if (jx_parse(&schemas, tn_api_schemas, strlen(tn_api_schemas), NULL) < 0)
        return tn_api_schemas; /* the server says what is wrong */
    json_object_set_new(schemas, "Layout", pl_layout_schema());
    db_trial_state_names(words);
    set_words(schemas, "Trial", "state", words);
    tn_report_statuses(words);
    set_words(schemas, "CompleteRequest", "status", words);
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
