/* /healthz, /readyz, /metrics. */
#include <unistd.h>

#include "tuner/api/api.h"

void tn_api_healthz(struct web_request *rq)
{
    web_reply_header(rq, "Cache-Control", "no-store");
    web_reply_json(rq, 200, json_pack("{s:b, s:s}", "ok", 1, "version", PACKAGE_VERSION));
}

void tn_api_readyz(struct web_request *rq)
{
    json_t *v = tn_health_json(tn_api_svc(rq));
    bool ready = json_is_true(json_object_get(v, "ready"));

    web_reply_header(rq, "Cache-Control", "no-store");
    /* A caller that may not read campaigns learns whether, not what is where. */
    if (web_scope(rq) < WEB_READ) {
        json_t *check;
        size_t i;

        json_array_foreach(json_object_get(v, "checks"), i, check)
            json_object_set_new(check, "detail", json_string(""));
    }
    web_reply_json(rq, ready ? 200 : 503, v);
}

/* One metric: HELP, TYPE, and its only value. */
static void metric(struct str *out, const char *name, const char *type, const char *help,
                   double value)
{
    str_addf(out, "# HELP partune_%s %s\n# TYPE partune_%s %s\npartune_%s %.17g\n", name, help,
             name, type, name, value);
}

/* The same by whether it is of simulated campaigns, which are SIMULATED of ALL. */
static void split_metric(struct str *out, const char *name, const char *type, const char *help,
                         int64_t all, int64_t simulated)
{
    str_addf(out, "# HELP partune_%s %s\n# TYPE partune_%s %s\n", name, help, name, type);
    str_addf(out, "partune_%s{simulated=\"false\"} %lld\n", name, (long long)(all - simulated));
    str_addf(out, "partune_%s{simulated=\"true\"} %lld\n", name, (long long)simulated);
}

static void add_campaigns(struct str *out, const struct tn_stats *stats)
{
    str_add(out, "# HELP partune_campaigns campaigns by state\n# TYPE partune_campaigns gauge\n");
    for (int i = 0; i < DB_CAMPAIGN_STATES; i++) {
        const char *state = db_campaign_states[i];
        int64_t simulated = stats->simulated.campaigns_by_state[i];

        str_addf(out, "partune_campaigns{state=\"%s\",simulated=\"false\"} %lld\n", state,
                 (long long)(stats->all.campaigns_by_state[i] - simulated));
        str_addf(out, "partune_campaigns{state=\"%s\",simulated=\"true\"} %lld\n", state,
                 (long long)simulated);
    }
}

static double resident_bytes(void)
{
    AUTO_FREE char *text = NULL;
    const char *at;

    if (file_read_all(&text, NULL, "/proc/self/statm", 256, NULL) < 0)
        return 0;
    at = strchr(text, ' ');
    return at ? strtod(at, NULL) * (double)sysconf(_SC_PAGESIZE) : 0;
}

static void add_service(struct str *out, struct tn_service *svc)
{
    struct tn_stats t;

    tn_stats(&t, svc);
    add_campaigns(out, &t);
    split_metric(out, "running_attempts", "gauge", "running attempts", t.all.running_attempts,
                 t.simulated.running_attempts);
    metric(out, "cores", "gauge", "cores for trials", (double)t.cores);
    metric(out, "free_cores", "gauge", "cores that are free", (double)t.free_cores);
    if (t.gpus >= 0) {
        metric(out, "gpus", "gauge", "GPUs for trials", (double)t.gpus);
        metric(out, "free_gpus", "gauge", "GPUs that are free", (double)t.free_gpus);
    }
    split_metric(out, "trials_settled_total", "counter", "trials that ended since the start",
                 t.all.trials_settled, t.simulated.trials_settled);
    split_metric(out, "smaller_trials_settled_total", "counter",
                 "of those, trials of smaller problems", t.all.smaller_settled,
                 t.simulated.smaller_settled);
    split_metric(out, "attempts_started_total", "counter", "attempts launched since the start",
                 t.all.attempts_started, t.simulated.attempts_started);
    metric(out, "attempts_adopted_total", "counter", "attempts adopted from a previous daemon",
           (double)t.adopted);
    metric(out, "trial_overhead_seconds_last", "gauge",
           "time from the end of a trial to the next launch", t.overhead_ms_last / 1e3);
    metric(out, "trial_overhead_seconds_max", "gauge", "longest such time since the start",
           t.overhead_ms_max / 1e3);
    str_add(out, "# HELP partune_webhook_deliveries deliveries of the last 30 days by state\n"
                 "# TYPE partune_webhook_deliveries gauge\n");
    for (size_t i = 0; i < TN_DELIVERY_STATES; i++)
        str_addf(out, "partune_webhook_deliveries{state=\"%s\"} %lld\n", tn_delivery_states[i],
                 (long long)t.deliveries[i]);
    if (t.files_bytes >= 0)
        metric(out, "files_bytes", "gauge", "size of attempt files", (double)t.files_bytes);
    metric(out, "campaigns_files_dropped_total", "counter",
           "campaigns whose files were removed for the quota", (double)t.files_dropped);
    metric(out, "campaigns_removed_total", "counter", "campaigns removed because of their age",
           (double)t.campaigns_removed);
    metric(out, "events_last_id", "counter", "id of the newest event", (double)t.events_last_id);
}

void tn_api_metrics(struct web_request *rq)
{
    struct tn_http *h = tn_api_http(rq);
    struct web_stats w;
    AUTO_STR s = {0};

    web_server_stats(&w, h->web);
    add_service(&s, h->svc);
    metric(&s, "http_requests_total", "counter", "requests answered", (double)w.requests);
    str_add(&s, "# HELP partune_http_responses_total responses by class\n"
                "# TYPE partune_http_responses_total counter\n");
    for (int i = 1; i < 6; i++)
        str_addf(&s, "partune_http_responses_total{class=\"%dxx\"} %llu\n", i,
                 (unsigned long long)w.by_class[i]);
    metric(&s, "http_bytes_total", "counter", "bytes of responses", (double)w.bytes_out);
    metric(&s, "http_connections", "gauge", "open connections", w.connections);
    metric(&s, "http_streams", "gauge", "readers of event streams", w.streams);
    metric(&s, "http_auth_failures_total", "counter", "wrong tokens", (double)w.auth_failures);
    metric(&s, "resident_memory_bytes", "gauge", "resident memory of the daemon", resident_bytes());
    metric(&s, "start_time_seconds", "gauge", "start of the daemon, Unix time",
           (double)h->started_ms / 1e3);
    web_reply_header(rq, "Cache-Control", "no-store");
    web_reply_bytes(rq, 200, "text/plain; version=0.0.4; charset=utf-8", str_text(&s), s.len);
}
