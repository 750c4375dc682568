/*
 * The remote launcher: workers anywhere ask for trials and tell their results over HTTP.
 *
 *     "launcher": {"kind": "remote", "lease_s": 60}
 *
 * A worker that asks (workers.c) waits here until the scheduler has a trial for its campaign. With
 * the trial it gets a lease: a secret that names this attempt, and that every heartbeat renews for
 * lease_s. A worker that is not heard of for that long has lost its trial: the attempt is a
 * a lost host and the trial is queued again. The lease is in the attempt's row before the worker
 * learns it, so a daemon that was killed at any instant knows it again; after a restart every lease
 * is good for another lease_s.
 *
 * What a worker reports becomes lines of the attempt's event file, exactly as a trainer of this
 * machine would have written them, and is read from there. So pruning, hangs, steps and summaries
 * are the same for all launchers, and nothing that was answered is lost by a kill.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/remote/remote.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

enum { DEFAULT_LEASE_S = 60 };

static int parse(double *ret_lease_s, const json_t *body, struct err *error)
{
    static const char *const keys[] = {"kind", "lease_s", NULL};
    const json_t *v = json_object_get(body, "launcher");
    int r;

    *ret_lease_s = DEFAULT_LEASE_S;
    if ((r = jx_keys(v, keys, error)) < 0 ||
        (r = jx_get_f64(ret_lease_s, v, "lease_s", 1, 86400, error)) < 0)
        return err_under(error, "/launcher");
    return 0;
}

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    (void)svc;
    (void)spec;
    (void)error;
    return 0;
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    double lease_s;

    (void)svc;
    return parse(&lease_s, spec->body, error);
}

double tn_lease_seconds(const struct tn_spec *spec)
{
    double lease_s;

    return parse(&lease_s, spec->body, NULL) < 0 ? DEFAULT_LEASE_S : lease_s;
}

void tn_lease_renew(struct tn_attempt *attempt)
{
    struct tn_lease *lease = attempt->launch;

    lease->until =
        tn_now_ms() + (uint64_t)(1000 * tn_lease_seconds(attempt->campaign->engine->spec));
}

/* A job is LEASE@WORKER. */
const char *tn_lease_worker(const char *job)
{
    const char *at = strchr(job, '@');

    return at ? at + 1 : "";
}

json_t *tn_lease_json(const struct tn_attempt *attempt)
{
    const struct tn_spec *s = attempt->campaign->engine->spec;
    char text[160], trace[TN_TRACEPARENT_TEXT];

    return json_pack(
        "{s:s, s:I, s:I, s:o, s:f, s:s, s:s, s:o, s:s, s:o, s:f, s:f, s:s}", "state", "trial",
        "trial", (json_int_t)attempt->trial->n, "attempt", (json_int_t)attempt->number, "lease",
        json_stringn(attempt->job, strcspn(attempt->job, "@")), "lease_s", tn_lease_seconds(s),
        "campaign", attempt->campaign->id, "kind", attempt->trial->kind, "layout",
        pl_layout_json(&attempt->trial->run.layout), "text",
        pl_layout_text(text, &attempt->trial->run.layout), "config", tn_trainer_config(attempt),
        "timeout_s", attempt->limits.timeout_s, "device_memory",
        tn_trial_cluster(attempt->trial)->device.memory_gib * 0x1p30, "traceparent",
        tn_trace_child(trace, attempt->campaign->traceparent, attempt->trial->n, attempt->number));
}

/* ---- from the queue to a worker ------------------------------------------ */

static bool suits(const struct tn_ask *ask, const struct tn_campaign *campaign,
                  const struct tn_trial *trial)
{
    const struct se_spec *spec = &campaign->engine->spec->se;

    if (ask->given || strcmp(ask->campaign, campaign->id) != 0)
        return false;
    return !trial ||
           ((ask->devices == 0 || ask->devices >= pl_layout_devices(&trial->run.layout)) &&
            (spec->nclusters == 1 || !strcmp(ask->cluster, tn_trial_cluster(trial)->name)));
}

/* The search is asked for a trial when somebody is there to run it: knowing more, it chooses
 * better. */
static bool wanted(const struct tn_campaign *campaign)
{
    for (const struct tn_ask *k = tn_launching(campaign->svc)->asks; k; k = k->next)
        if (suits(k, campaign, NULL))
            return true;
    return false;
}

/* Was a worker heard of, for the time of a lease, that could run TRIAL? One that waits gets it. */
static bool may_come(const struct tn_trial *trial)
{
    const struct tn_campaign *campaign = trial->campaign;
    bool several = campaign->engine->spec->se.nclusters > 1;
    double lease_ms = 1000 * tn_lease_seconds(campaign->engine->spec);
    int64_t now = clock_wall_ms();

    for (const struct tn_worker *w = tn_launching(campaign->svc)->workers; w; w = w->next)
        if (!strcmp(w->campaign, campaign->id) && (double)(now - w->seen) <= lease_ms &&
            (!several || !strcmp(w->cluster, tn_trial_cluster(trial)->name)) &&
            (!w->devices || w->devices >= pl_layout_devices(&trial->run.layout)))
            return true;
    return false;
}

static void lacks(struct str *ret, const struct tn_trial *trial)
{
    const struct tn_spec *spec = trial->campaign->engine->spec;
    const char *cluster = spec->se.nclusters > 1 ? tn_trial_cluster(trial)->name : NULL;
    double waited_ms = (double)(tn_now_ms() - trial->no_room);
    int devices = pl_layout_devices(&trial->run.layout);

    if (waited_ms < 1000 * tn_lease_seconds(spec) || may_come(trial))
        return;
    str_addf(ret, "a worker with %d device%s%s%s: partune worker %s%s%s", devices,
             devices == 1 ? "" : "s", cluster ? " on cluster " : "", cluster ? cluster : "",
             trial->campaign->id, cluster ? " --cluster " : "", cluster ? cluster : "");
}

static bool reserve(struct tn_attempt *attempt)
{
    struct tn_lease *lease = attempt->launch;
    unsigned char bytes[16];
    char hex[33];

    assert(!lease->ask);
    for (struct tn_ask *k = tn_launching(attempt->svc)->asks; k && !lease->ask; k = k->next)
        if (suits(k, attempt->campaign, attempt->trial))
            lease->ask = k;
    if (!lease->ask)
        return false;
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        abort();
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    lease->ask->given = true;
    snprintf(attempt->job, sizeof(attempt->job), "%lld-%s@%s", (long long)attempt->number, hex,
             lease->ask->worker);
    return true;
}

static void release(struct tn_attempt *attempt)
{
    struct tn_lease *lease = attempt->launch;

    if (lease->ask)
        lease->ask->given = false; /* it was never started */
    lease->ask = NULL;
}

static int start(struct tn_attempt *attempt, struct err *error)
{
    struct tn_lease *lease = attempt->launch;
    struct tn_ask *k = lease->ask;

    (void)error;
    attempt->trainer = &tn_trainer_partune; /* whatever runs there, it reports in our events */
    assert(k && k->given);
    lease->ask = NULL;
    tn_lease_renew(attempt);
    tn_ask_answer(attempt->svc, k, 0, tn_lease_json(attempt), NULL);
    return 0;
}

/* ---- after a restart ----------------------------------------------------- */

/* Lines of the event file that are whole; a torn last one is cut off: its worker sends it again. */
static int64_t whole_lines(const char *path)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0, end = 0;
    int64_t lines = 0;

    if (file_read_all(&text, &n, path, 1 << 30, NULL) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n') {
            lines++;
            end = i + 1;
        }
    if (end < n && truncate(path, (off_t)end) < 0)
        log_warn("%s: %s", path, strerror(errno));
    return lines;
}

static int adopt(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/events", attempt->folder);
    struct tn_lease *lease = attempt->launch;
    struct tn_worker *worker;
    int r = file_mkdirs(attempt->folder, 0700, error);

    attempt->trainer = &tn_trainer_partune;
    if (r < 0)
        return r;
    if (!row->job) {
        snprintf(attempt->trouble, sizeof(attempt->trouble),
                 "the daemon died before a worker took it");
        attempt->verdict = db_states[DB_STATE_REQUEUED].name;
        return 0;
    }
    snprintf(attempt->job, sizeof(attempt->job), "%s", row->job);
    lease->lines = whole_lines(path);
    tn_lease_renew(attempt);
    worker = tn_worker_seen(attempt->svc, tn_lease_worker(attempt->job));
    snprintf(worker->campaign, sizeof(worker->campaign), "%s", attempt->campaign->id);
    snprintf(worker->cluster, sizeof(worker->cluster), "%s",
             tn_trial_cluster(attempt->trial)->name);
    return 1;
}

/* ---- while it runs ------------------------------------------------------- */

static void tick(struct tn_attempt *attempt)
{
    const struct tn_lease *lease = attempt->launch;

    if (attempt->stop == TN_STOP_NONE && tn_now_ms() <= lease->until)
        return;
    if (attempt->stop == TN_STOP_NONE) {
        snprintf(attempt->trouble, sizeof(attempt->trouble), "worker %.80s was silent for %.0f s",
                 tn_lease_worker(attempt->job), tn_lease_seconds(attempt->campaign->engine->spec));
        attempt->machine_lost = true;
    }
    tn_attempt_ended(attempt);
}

/* The worker learns it from its next heartbeat; nobody waits for that. */
static void stop(struct tn_attempt *attempt)
{
    tn_attempt_tick_in(attempt, 0);
}

const struct tn_launcher tn_launcher_remote = {
    .name = "remote",
    .runs = "by workers that ask for them (partune worker)",
    .state = sizeof(struct tn_lease),
    .elsewhere = true,
    .several = true,
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .wanted = wanted,
    .lacks = lacks,
    .start = start,
    .adopt = adopt,
    .stop = stop,
    .tick = tick,
    .turn = tn_asks_tick,
    .closed = tn_workers_free,
};
