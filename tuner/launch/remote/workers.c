/*
 * What workers ask and tell: the operations behind :suggest, :heartbeat, :complete and /v1/workers.
 *
 * A worker is known by the name that it gives itself, and has one trial of a campaign at a time: if
 * it asks while it holds one, because the answer was lost on the way, it gets the same again. What
 * it tells is judged by the lease alone. A lease that has ended is refused with the reason (409),
 * except that a completion which was counted is answered again like the first time, so a worker may
 * repeat it until it has an answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/work.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/remote/remote.h"
#include "tuner/output/observe.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum { MAX_EVENTS = 10000, LOST_MS = 120000 };

/* ---- workers ------------------------------------------------------------- */

static struct tn_attempt *held_by(struct tn_service *svc, const char *worker, const char *campaign)
{
    for (struct tn_attempt *a = tn_work(svc)->attempts; a; a = a->next)
        if (a->launcher == &tn_launcher_remote && !a->ended && a->stop == TN_STOP_NONE &&
            a->job[0] && !strcmp(tn_lease_worker(a->job), worker) &&
            (!campaign || !strcmp(a->campaign->id, campaign)))
            return a;
    return NULL;
}

static json_t *worker_json(struct tn_service *svc, const struct tn_worker *worker)
{
    const struct tn_attempt *a = held_by(svc, worker->name, NULL);
    const char *state = clock_wall_ms() - worker->seen > LOST_MS ? "lost" : "idle";
    bool waits = false;

    for (const struct tn_ask *k = tn_launching(svc)->asks; k; k = k->next)
        waits |= !strcmp(k->worker, worker->name);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:i, s:I}", "name", worker->name, "state",
                     a       ? "running"
                     : waits ? "waiting"
                             : state,
                     "campaign", a ? json_string(a->campaign->id) : json_null(), "trial",
                     a ? json_integer(a->trial->n) : json_null(), "seen", tn_time(worker->seen),
                     "devices", worker->devices, "completed", (json_int_t)worker->completed);
}

json_t *tn_workers_json(struct tn_service *svc)
{
    json_t *list = json_array();

    for (const struct tn_worker *w = tn_launching(svc)->workers; w; w = w->next)
        json_array_append_new(list, worker_json(svc, w));
    return list;
}

/* A job is LEASE@WORKER. */
static bool same_lease(const char *job, const char *lease)
{
    size_t n = strlen(lease);

    return job && !strncmp(job, lease, n) && job[n] == '@';
}

/* ---- asking -------------------------------------------------------------- */

/* The same worker asks anew: it has given up the former question. */
static void supersede(struct tn_service *svc, const char *worker, const char *id)
{
    struct tn_ask *next;

    for (struct tn_ask *k = tn_launching(svc)->asks; k; k = next) {
        next = k->next;
        if (!strcmp(k->worker, worker) && !strcmp(k->campaign, id) && !k->given)
            tn_ask_answer(svc, k, 0, tn_ask_no_trial("wait", "asked again"), NULL);
    }
}

static int check_launcher(struct tn_service *svc, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign row;
    int r = db_campaign_get(&row, tn_db(svc), &a, id, error);

    if (r == 0 && strcmp(row.launcher, tn_launcher_remote.name) != 0)
        r = err_set(error, -ESTALE,
                    "campaign %s gives no trials to workers: its launcher is %s, not remote", id,
                    row.launcher);
    arena_done(&a);
    return r;
}

static int check_worker(const char *name, struct err *error)
{
    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "._:-") != strlen(name))
        return err_at(error, -EINVAL, "/worker",
                      "a worker's name must consist of letters, digits and . _ : -");
    return 0;
}

/* Of several clusters a worker must say which it is on: CLUSTER. */
static int check_cluster(struct tn_service *svc, const char *id, const char *cluster,
                         struct err *error)
{
    const struct tn_campaign *campaign = tn_campaign_find(svc, id);
    const struct se_spec *spec = campaign ? &campaign->engine->spec->se : NULL;
    AUTO_STR names = {0};

    if (!spec || spec->nclusters == 1 || se_cluster_named(spec, cluster) >= 0)
        return 0;
    for (int i = 0; i < spec->nclusters; i++)
        str_addf(&names, "%s%s", i ? ", " : "", spec->cluster[i].name);
    return err_at(error, -EINVAL, "/cluster",
                  "the campaign has several clusters: a worker says by \"cluster\" on which it is "
                  "(%s)",
                  str_text(&names));
}

int tn_remote_ask(struct tn_service *svc, const char *id, const json_t *body, tn_asked_fn *fn,
                  void *ctx, struct err *error)
{
    static const char *const keys[] = {"worker", "wait_s", "devices", "cluster", NULL};
    const char *worker = "", *cluster = "";
    double wait_s = 20;
    int devices = 0, r;
    struct tn_attempt *held;
    struct tn_worker *seen;
    struct tn_ask *k;
    json_t *answer;

    if ((r = jx_keys(body, keys, error)) < 0 || (r = jx_need(body, "worker", error)) < 0 ||
        (r = jx_get_str(&worker, body, "worker", TN_WORKER_TEXT - 1, error)) < 0 ||
        (r = check_worker(worker, error)) < 0 ||
        (r = jx_get_f64(&wait_s, body, "wait_s", 0.1, 60, error)) < 0 ||
        (r = jx_get_int(&devices, body, "devices", 0, 1 << 24, error)) < 0 ||
        (r = jx_get_str(&cluster, body, "cluster", sizeof(k->cluster) - 1, error)) < 0 ||
        (r = check_launcher(svc, id, error)) < 0 ||
        (r = check_cluster(svc, id, cluster, error)) < 0)
        return r;
    if (tn_phase(svc)->stopping)
        return err_set(error, -EAGAIN, "the daemon is stopping");
    seen = tn_worker_seen(svc, worker);
    seen->devices = devices;
    snprintf(seen->campaign, sizeof(seen->campaign), "%s", id);
    snprintf(seen->cluster, sizeof(seen->cluster), "%s", cluster);
    supersede(svc, worker, id);
    held = held_by(svc, worker, id);
    if (held)
        tn_lease_renew(held);
    answer = held ? tn_lease_json(held) : tn_ask_early(svc, id, false);
    if (answer) {
        fn(ctx, 0, answer, NULL);
        return 0;
    }
    k = mem_alloc(sizeof(*k));
    *k = (struct tn_ask){
        .devices = devices, .until = tn_now_ms() + (uint64_t)(1000 * wait_s), .fn = fn, .ctx = ctx};
    snprintf(k->campaign, sizeof(k->campaign), "%s", id);
    snprintf(k->worker, sizeof(k->worker), "%s", worker);
    snprintf(k->cluster, sizeof(k->cluster), "%s", cluster);
    for (struct tn_ask **at = &tn_launching(svc)->asks;; at = &(*at)->next)
        if (!*at) {
            *at = k; /* the longest waiting is served first */
            break;
        }
    tn_changed(svc);
    return 0;
}

/* ---- telling ------------------------------------------------------------- */

/* The live attempt of LEASE; NULL with the reason if it has ended or never was. *RET_COUNTED: its
 * completion was accepted before. */
static struct tn_attempt *find_lease(bool *ret_counted, struct tn_service *svc, const char *id,
                                     int64_t trial, const char *lease, struct err *error)
{
    struct arena arena = {0};
    struct db_attempt row;
    struct db_trial t;

    *ret_counted = false;
    for (struct tn_attempt *a = tn_work(svc)->attempts; a; a = a->next)
        if (a->trial && a->trial->n == trial && !strcmp(a->campaign->id, id) &&
            a->launcher == &tn_launcher_remote && !a->ended && a->stop == TN_STOP_NONE &&
            same_lease(a->job, lease))
            return a;
    if (db_trial_get(&t, tn_db(svc), &arena, id, trial, error) == 0) {
        int64_t number = strtoll(lease, NULL, 10);

        if (db_attempt_get(&row, tn_db(svc), &arena, id, trial, number, NULL) < 0 ||
            !same_lease(row.job, lease)) {
            err_set(error, -ESTALE, "trial %lld has no such lease", (long long)trial);
        } else if (strcmp(row.state, "ended") != 0) {
            err_set(error, -EAGAIN, "the end of this lease is being recorded");
        } else {
            *ret_counted = row.exit_code != DB_NULL;
            err_set(error, -ESTALE,
                    "this lease of trial %lld has ended (%s); the trial is %s now, and nothing "
                    "more is counted from it",
                    (long long)trial, row.outcome, t.state);
        }
    }
    arena_done(&arena);
    return NULL;
}

static int add_line(struct str *out, const json_t *event, size_t index, struct err *error)
{
    AUTO_FREE char *text = NULL;

    if (!json_is_object(event) || !json_is_string(json_object_get(event, "event")))
        return err_at(error, -EINVAL, "/events",
                      "event %zu is invalid: see docs/reference/protocol.md", index);
    text = jx_dump(event);
    if (strlen(text) >= TN_MAX_LINE)
        return err_at(error, -EINVAL, "/events", "event %zu is longer than %d bytes", index,
                      TN_MAX_LINE);
    str_add(out, text);
    str_addc(out, '\n');
    return 0;
}

/* Append whole lines, or nothing. */
static int append(const struct tn_attempt *attempt, const struct str *out, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/events", attempt->folder);
    int fd, r;
    off_t end;

    if (!out->len)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(error, -errno, "%s: %s", path, strerror(errno));
    end = lseek(fd, 0, SEEK_END);
    r = file_write_fd(fd, out->text, out->len);
    if (r < 0 && ftruncate(fd, end) < 0)
        log_warn("%s: %s", path, strerror(errno));
    close(fd);
    return r < 0 ? err_set(error, r, "%s: %s", path, strerror(-r)) : 0;
}

/* BODY's events from number `from` on; those that are there already are skipped. */
static int take_events(int64_t *ret_count, struct tn_attempt *attempt, const json_t *body,
                       struct str *lines, struct err *error)
{
    const struct tn_lease *held = attempt->launch;
    json_t *events = NULL, *event;
    int64_t from = held->lines;
    size_t i;
    int r;

    *ret_count = 0;
    if ((r = jx_get_array(&events, body, "events", MAX_EVENTS, error)) < 0 ||
        (r = jx_get_i64(&from, body, "from", 0, INT64_MAX / 2, error)) < 0)
        return r;
    if (from > held->lines)
        return err_at(error, -EINVAL, "/from", "events start at %lld, but only %lld have arrived",
                      (long long)from, (long long)held->lines);
    json_array_foreach(events, i, event) {
        if (from + (int64_t)i < held->lines)
            continue;
        if ((r = add_line(lines, event, i, error)) < 0)
            return r;
        ++*ret_count;
    }
    return 0;
}

static int take_lease(const char **ret, const json_t *body, const char *const *keys,
                      struct err *error)
{
    int r;

    *ret = "";
    if ((r = jx_keys(body, keys, error)) < 0 || (r = jx_need(body, "lease", error)) < 0)
        return r;
    return jx_get_str(ret, body, "lease", 63, error);
}

int tn_remote_heartbeat(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                        const json_t *body, struct err *error)
{
    static const char *const keys[] = {"lease", "events", "from", NULL};
    AUTO_STR lines = {0};
    struct tn_lease *held;
    struct tn_attempt *a;
    const char *lease;
    bool counted;
    int64_t count;
    int r = take_lease(&lease, body, keys, error);

    if (r < 0)
        return r;
    a = find_lease(&counted, svc, id, trial, lease, error);
    if (!a)
        return error->code;
    if ((r = take_events(&count, a, body, &lines, error)) < 0 || (r = append(a, &lines, error)) < 0)
        return r;
    held = a->launch;
    held->lines += count;
    tn_lease_renew(a);
    tn_worker_seen(svc, tn_lease_worker(a->job));
    *ret =
        json_pack("{s:s, s:f, s:I}", "state", "held", "lease_s",
                  tn_lease_seconds(a->campaign->engine->spec), "events", (json_int_t)held->lines);
    return 0;
}

/* ---- the end ------------------------------------------------------------- */

struct report {
    const char *status; /* NULL: the events and the exit code say it */
    int state;          /* row of the status; -1: it is the class of an error only, or NULL */
    double rate, se, peak, per_joule;
    const char *detail, *out, *err;
    int exit_code, signal;
};

enum { MAX_STREAM = 256 << 10 };

/* Any text: what programs print has lines and colors. */
static int take_text(const char **ret, const json_t *body, const char *key, size_t max,
                     struct err *error)
{
    const json_t *v = json_object_get(body, key);
    char pointer[32];

    snprintf(pointer, sizeof(pointer), "/%s", key);
    if (v && (!json_is_string(v) || json_string_length(v) > max))
        return err_at(error, -EINVAL, pointer, "%s must be a string of at most %zu bytes", key,
                      max);
    *ret = json_string_value(v);
    return 0;
}

void tn_report_statuses(const char *ret[DB_STATES + 2])
{
    int n = db_reported_names(ret);

    ret[n] = "comm"; /* of error events: a crash, which says so */
    ret[n + 1] = NULL;
}

static int parse_status(struct report *report, const json_t *body, struct err *error)
{
    const char *statuses[DB_STATES + 2];
    int which, r;

    if (!json_object_get(body, "status"))
        return 0;
    tn_report_statuses(statuses);
    r = jx_get_enum(&which, body, "status", statuses, error);
    if (r < 0)
        return r;
    report->status = statuses[which];
    report->state = db_state_find(report->status);
    return 0;
}

static int parse_report(struct report *report, const json_t *body, struct err *error)
{
    int r;

    *report = (struct report){
        .state = -1, .rate = NAN, .se = NAN, .peak = NAN, .per_joule = NAN, .exit_code = -1};
    if ((r = parse_status(report, body, error)) < 0)
        return r;
    if ((r = jx_get_f64(&report->rate, body, "tokens_per_s", 0, 1e18, error)) < 0 ||
        (r = jx_get_f64(&report->se, body, "tokens_per_s_se", 0, 1e18, error)) < 0 ||
        (r = jx_get_f64(&report->peak, body, "peak_memory_bytes", 0, 1e18, error)) < 0 ||
        (r = jx_get_f64(&report->per_joule, body, "tokens_per_joule", 0, 1e18, error)) < 0 ||
        (r = take_text(&report->detail, body, "detail", 2000, error)) < 0 ||
        (r = take_text(&report->out, body, "stdout", MAX_STREAM, error)) < 0 ||
        (r = take_text(&report->err, body, "stderr", MAX_STREAM, error)) < 0 ||
        (r = jx_get_int(&report->exit_code, body, "exit_code", -1, 255, error)) < 0 ||
        (r = jx_get_int(&report->signal, body, "signal", 0, 64, error)) < 0)
        return r;
    if (report->state == DB_STATE_OK && !(report->rate > 0) &&
        !json_array_size(json_object_get(body, "events")))
        return err_at(error, -EINVAL, "/tokens_per_s", "status ok needs a throughput");
    return 0;
}

/* The report as the event that a trainer would have written. */
static void add_report(struct str *lines, const struct report *report,
                       const struct tn_attempt *attempt)
{
    AUTO_JSON *v = NULL;
    AUTO_FREE char *text = NULL;

    if (report->state == DB_STATE_OK && report->rate > 0)
        v = json_pack("{s:i, s:s, s:f, s:f, s:o, s:{s:o}}", "v", 1, "event", "summary", "t",
                      clock_wall_s(), "tokens_per_s", report->rate, "tokens_per_s_se",
                      tn_number(report->se), "memory", "measured",
                      isnan(report->peak) ? json_null()
                                          : json_pack("{s:f}", "total", report->peak));
    else if (report->state == DB_STATE_PREEMPTED)
        v = json_pack("{s:i, s:s, s:f}", "v", 1, "event", "stopped", "t", clock_wall_s());
    else if (report->status && report->state != DB_STATE_OK && report->state != DB_STATE_NODE_FAIL)
        v = json_pack("{s:i, s:s, s:f, s:s, s:s}", "v", 1, "event", "error", "t", clock_wall_s(),
                      "class", report->status, "detail", report->detail ? report->detail : "");
    if (!v)
        return;
    if (report->state == DB_STATE_OK && report->per_joule > 0)
        json_object_update_new(v, json_pack("{s:i, s:f}", "steps", 1, "joules",
                                            tn_trial_tokens(attempt->trial) / report->per_joule));
    text = jx_dump(v);
    str_add(lines, text);
    str_addc(lines, '\n');
}

static void keep_stream(const struct tn_attempt *attempt, const char *name, const char *text)
{
    AUTO_FREE char *path = mem_printf("%s/%s", attempt->folder, name);
    struct err e = {0};

    if (text && file_write_atomic(path, text, strlen(text), 0600, &e) < 0)
        tn_log_attempt(LOG_WARN, attempt, ": %s", e.text);
}

static void end_attempt(struct tn_attempt *attempt, const struct report *report)
{
    keep_stream(attempt, "stdout", report->out);
    keep_stream(attempt, "stderr", report->err);
    if (report->state == DB_STATE_NODE_FAIL) {
        snprintf(attempt->trouble, sizeof(attempt->trouble), "%.399s",
                 report->detail ? report->detail : "returned by the worker");
        attempt->machine_lost = true;
    }
    attempt->exit = (struct tn_exit){.known = true,
                                     .code = report->exit_code >= 0
                                                 ? report->exit_code
                                                 : (report->status && report->state != DB_STATE_OK),
                                     .signal = report->signal,
                                     .ended = clock_wall_ms()};
    tn_worker_seen(attempt->svc, tn_lease_worker(attempt->job))->completed++;
    tn_attempt_ended(attempt);
}

int tn_remote_complete(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                       const json_t *body, struct err *error)
{
    static const char *const keys[] = {"lease",
                                       "events",
                                       "from",
                                       "status",
                                       "tokens_per_s",
                                       "tokens_per_s_se",
                                       "tokens_per_joule",
                                       "detail",
                                       "stdout",
                                       "stderr",
                                       "exit_code",
                                       "signal",
                                       "peak_memory_bytes",
                                       NULL};
    AUTO_STR lines = {0};
    struct report p;
    struct tn_attempt *a;
    const char *lease;
    bool counted = false;
    int64_t count;
    int r = take_lease(&lease, body, keys, error);

    if (r == 0)
        r = parse_report(&p, body, error);
    if (r < 0)
        return r;
    a = find_lease(&counted, svc, id, trial, lease, error);
    if (a) {
        if ((r = take_events(&count, a, body, &lines, error)) < 0)
            return r;
        add_report(&lines, &p, a);
        if ((r = append(a, &lines, error)) < 0)
            return r;
        ((struct tn_lease *)a->launch)->lines += count;
        end_attempt(a, &p);
        a = find_lease(&counted, svc, id, trial, lease, error);
    }
    return counted ? tn_trial_get(ret, svc, id, trial, error) : error->code;
}
