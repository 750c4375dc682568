/*
 * tuner - campaigns and their trials: called by the HTTP handlers (tuner/api/) and by partuned's
 * main().
 *
 * Who owns what: campaigns, trials, scheduling, launching and recovery are behind this header
 * (core/, launch/, trainers/, service/). The handlers own routes, status codes, paging
 * tokens, ETags and SSE, and keep no state of a campaign.
 *
 * Threads: everything here runs on the loop's thread unless a comment says "any thread". The loop
 * waits for the commit of a change of state, never for a fit, a launch or a trial.
 *
 * Errors and their status: -EINVAL 422 (err.pointer names the field of the body), -ENOENT 404,
 * -ESTALE and -EBUSY 409 (wrong state), -E2BIG 413, -EAGAIN 503 (Retry-After), -ENOSPC, -EROFS and
 * -EIO 503 (the store cannot be written), everything else 500. RET_RULES (may be NULL) gets a new
 * array as in docs/reference/http.md ("rules") where legality is the reason, else it is left NULL.
 *
 * JSON: resources exactly as in docs/reference/http.md. Functions that end in _text give the text,
 * others new references.
 */
#ifndef TUNER_TUNER_H
#define TUNER_TUNER_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/base.h"
#include "db/db.h"
#include "plan/plan.h"

struct tn_service;

/* ---- patience ------------------------------------------------------------ */

/* SECONDS (0: no limit) from now on, ended early once *UNWANTED (may be NULL) is set. RET must not
 * be copied. Any thread. */
struct tn_patience {
    struct pl_patience plan; /* what to hand to plan/ and search/ */
    uint64_t from_ns;
    double seconds;
    const atomic_bool *unwanted;
};
void tn_patience_start(struct tn_patience *ret, double seconds, const atomic_bool *unwanted);

/* ---- the service --------------------------------------------------------- */

struct tn_config {
    const char *data_dir;     /* exists or is created, 0700 */
    const char *mpiexec;      /* program, found in PATH unless it has a slash; NULL: "mpiexec" */
    const char *train;        /* partune-train; NULL: next to this program, else in PATH */
    const char *supervisor;   /* partune-run; likewise */
    const char *hosts;        /* host file for mpiexec; NULL: this machine only */
    int cores;                /* cores for trials; 0: all that this process may use */
    const char *gpus;         /* GPUs for trials, as tn_gpu_slots_init() reads them; NULL: all */
    int grace_ms;             /* between TERM and KILL of a trial; 0: 2000 */
    int hang_s;               /* shortest silence that counts as a hang; 0: 60 */
    double retain_days;       /* campaigns that ended longer ago are removed; 0: none */
    uint64_t quota;           /* bytes of files of attempts; 0: no limit */
    uint64_t log_limit;       /* bytes of stdout and of stderr of an attempt; 0: 16 MiB */
    const char *trial_user;   /* local trials run as this user; NULL: as the daemon's */
    const char *trial_limits; /* of their processes, as tn_rlimits_parse() reads them; NULL: none */
    const struct conf *conf;  /* the administrator's file: [trainer "NAME"], [slurm], [dataset
                                 "NAME"]; may be NULL */
};

/* Is everything in the administrator's file known and within its bounds? -EINVAL names the line and
 * what was probably meant. Reads the files of webhook secrets, starts nothing. */
int tn_settings_check(const struct conf *conf, struct err *error);

/*
 * Lock and open the data directory, bring the database up to date, and take over what a former
 * daemon left: attempts that run are adopted, dead ones settled. Trials start when the loop runs.
 * -EBUSY names the process that holds the directory; -EACCES, -EROFS, -EOPNOTSUPP say why it cannot
 * be used. CONFIG is copied; conf must outlive the service.
 */
int tn_service_open(struct tn_service **ret, uv_loop_t *loop, const struct tn_config *config,
                    struct err *error);

/* What a stop does with running trials: leave them for the next daemon to adopt, or cancel and
 * re-queue them. */
enum tn_stop { TN_STOP_LEAVE, TN_STOP_REQUEUE };

/* Start no more trials; DONE is called when none is left to wait for (at once for TN_STOP_LEAVE).
 */
void tn_service_stop(struct tn_service *svc, enum tn_stop how, void (*done)(void *arg), void *arg);
/* Close everything; runs the loop's close callbacks. Running attempts keep running. */
struct tn_service *tn_service_close(struct tn_service *svc);

const char *tn_data_dir(const struct tn_service *svc);
const char *tn_instance(const struct tn_service *svc);
struct db *tn_db(const struct tn_service *svc); /* for reading, loop thread */
/* For rows of the HTTP side (answers, tokens, audit). */
struct db_writer *tn_writer(const struct tn_service *svc);
/* profiles/local.json, or NULL. */
const struct pl_cluster *tn_local_cluster(const struct tn_service *svc);
/* Is trainer NAME available here: the bundled one, or one of the configuration? */
bool tn_trainer_known(const struct tn_service *svc, const char *name);
/*
 * Name of the trainer of plan/ whose legality rules hold for trainer NAME of the configuration: its
 * key "rules", else that of the first {export:TARGET} of its command whose exporter has one. NULL:
 * nothing says so, NAME is NULL or has no section, or it is the bundled trainer. The text belongs
 * to the configuration or is static.
 */
const char *tn_trainer_rules(const struct tn_service *svc, const char *name);

/* Campaigns that are still being restored after the start: nothing is launched before all are. */
int tn_campaigns_coming(const struct tn_service *svc);

/* {"ready": bool, "checks": [{"name", "ok", "detail", "fix"}]}: database, data directory, disk,
 * mpiexec, trainer, supervisor, cores, GPUs. For /readyz and `partune doctor`. */
json_t *tn_health_json(struct tn_service *svc);

enum { TN_DELIVERY_STATES = 3 };
extern const char *const tn_delivery_states[TN_DELIVERY_STATES]; /* of webhooks' deliveries */

/* What is counted separately for simulated campaigns. */
struct tn_tally {
    int64_t campaigns_by_state[DB_CAMPAIGN_STATES]; /* in the order of db_campaign_states */
    int64_t running_attempts;
    int64_t trials_settled, attempts_started; /* since the start */
    int64_t smaller_settled;                  /* of the settled trials, those of smaller problems */
};

struct tn_stats {
    struct tn_tally all, simulated; /* the second is a part of the first */
    int64_t free_cores, cores;
    int64_t free_gpus, gpus;                  /* -1: they are not counted */
    int64_t adopted;                          /* attempts, since the start */
    double overhead_ms_last, overhead_ms_max; /* from the end of a trial to the next launch */
    int64_t events_last_id;
    int64_t deliveries[TN_DELIVERY_STATES];   /* of the last 30 days */
    int64_t files_bytes;                      /* of attempts; -1 without a quota */
    int64_t files_dropped, campaigns_removed; /* campaigns, for the quota and for their age */
};
void tn_stats(struct tn_stats *ret, struct tn_service *svc);

/* ---- campaigns ----------------------------------------------------------- */

/*
 * BODY is a campaign as in docs/reference/campaign.md. With DRY_RUN nothing is stored and *RET is
 * {"legal", "fitting", "exact", "expected_trials", "expected_s", "baseline", "reason"}, else the
 * campaign. Enumerating a large space takes time, so: CHECK (any thread, use web_offload) does what
 * takes under two seconds, and CREATE stores what was checked. The search of a space that takes
 * longer is prepared after that (revive.c). -ECANCELED once *UNWANTED (may be NULL) is set.
 */
struct tn_draft;
int tn_campaign_check(struct tn_draft **ret, json_t **ret_rules, struct tn_service *svc,
                      const json_t *body, const atomic_bool *unwanted,
                      struct err *error);            /* any thread */
json_t *tn_draft_json(const struct tn_draft *draft); /* the answer to a dry run; any thread */
/* For a request with an Idempotency-Key: its answer (201, *RET) is kept under KEY in the
 * transaction that stores the campaign. */
struct tn_once {
    const char *key, *hash, *prefix; /* prefix: of the Location */
};
/* ONCE may be NULL, and TRACEPARENT, the request's header, which is ignored where it is invalid. */
int tn_campaign_create(json_t **ret, struct tn_service *svc, struct tn_draft *owned_d,
                       const char *owner, const char *traceparent, const struct tn_once *once,
                       struct err *error);
struct tn_draft *tn_draft_free(struct tn_draft *draft);

int tn_campaign_get(json_t **ret, struct tn_service *svc, const char *id, struct err *error);
/* The same as text, from a cache while nothing has changed: the cheap way. Borrowed until the
 * loop's next turn. */
int tn_campaign_text(const char **ret, size_t *ret_size, struct tn_service *svc, const char *id,
                     struct err *error);
/* A page of campaigns without `spec`: the text of a JSON array, and in ARENA the position of the
 * next page, NULL if there is none. Filters state, tag, name; sort created, name, state. */
int tn_campaign_list(struct str *ret_items, const char **ret_next, int64_t *ret_total,
                     struct tn_service *svc, struct arena *arena, const struct db_filter *filter,
                     struct err *error);
/* BODY: {"name"?, "notes"?, "tags"?, "priority"?}. */
int tn_campaign_patch(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                      struct err *error);
/* -EBUSY while it runs. It becomes invisible at once; its rows and files are removed soon after. */
int tn_campaign_delete(struct tn_service *svc, const char *id, struct err *error);
int tn_campaign_pause(json_t **ret, struct tn_service *svc, const char *id, struct err *error);
int tn_campaign_resume(json_t **ret, struct tn_service *svc, const char *id, struct err *error);
int tn_campaign_cancel(json_t **ret, struct tn_service *svc, const char *id, struct err *error);
/* A draft body: the spec of campaign ID with the keys of BODY (may be NULL) over it. Check and
 * create it. */
int tn_campaign_clone_body(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                           struct err *error);
/* BODY: {"pairs"?: 1..50 (5), "steps"?: 1..10000}. Runs of winner and baseline are interleaved; the
 * campaign is `verifying` meanwhile. -ESTALE without a winner, or while it runs. */
int tn_campaign_verify(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                       struct err *error);

/* ---- trials -------------------------------------------------------------- */

int tn_trial_get(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                 struct err *error);
/* As tn_campaign_list(), of trials. Filters state, kind; sort n, tokens_per_s, state, memory, kind,
 * seconds. */
int tn_trial_list(struct str *ret_items, const char **ret_next, int64_t *ret_total,
                  struct tn_service *svc, const char *id, struct arena *arena,
                  const struct db_filter *filter, struct err *error);
/* The first, or the last, MAX bytes of a file that a trial may have written, or put something else
 * in the place of: no link is followed, and nobody is waited for. NULL where it is no file; the
 * caller frees. */
char *tn_file_piece(size_t *ret_n, const char *path, size_t max, bool last);
/* Items: the trainer's step events of the last attempt. */
int tn_step_list(json_t **ret_items, int64_t *ret_total, struct tn_service *svc, const char *id,
                 int64_t trial, int64_t offset, int64_t limit, struct err *error);

enum tn_log { TN_LOG_STDOUT, TN_LOG_STDERR, TN_LOG_EVENTS, TN_LOG_TIMELINE };
/* Path of a file of the last attempt, which may not exist yet: caller frees. */
int tn_trial_file(char **ret, struct tn_service *svc, const char *id, int64_t trial,
                  enum tn_log which, struct err *error);

/* ---- workers of the launcher `remote` ------------------------------------ */

/* RESULT < 0: ERROR says why; else ANSWER ("Suggestion" of the API) is the callee's. */
typedef void tn_asked_fn(void *ctx, int result, json_t *owned_answer, const struct err *error);

/*
 * A worker asks for a trial of campaign ID. FN is called exactly once unless this fails: at once,
 * or on the loop when there is a trial, when the campaign is over, or when `wait_s` of BODY is
 * over.
 */
int tn_remote_ask(struct tn_service *svc, const char *id, const json_t *body, tn_asked_fn *fn,
                  void *ctx, struct err *error);
/* Events of a running trial; renews its lease. -ESTALE when the lease has ended. */
int tn_remote_heartbeat(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                        const json_t *body, struct err *error);
/* Words that "status" of a worker's report may be, NULL at the end. */
void tn_report_statuses(const char *ret[DB_STATES + 2]);
/* The end of an attempt: *RET is the trial. The same again gives the same answer; -ESTALE when the
 * lease had ended before and nothing was counted. */
int tn_remote_complete(json_t **ret, struct tn_service *svc, const char *id, int64_t trial,
                       const json_t *body, struct err *error);
json_t *tn_workers_json(struct tn_service *svc);
void tn_asks_drop(struct tn_service *svc); /* the daemon stops: end all waiting requests */

/* ---- results ------------------------------------------------------------- */

/* -ENOENT before the first result. */
int tn_best(json_t **ret, struct tn_service *svc, const char *id, struct err *error);
int tn_baseline(json_t **ret, struct tn_service *svc, const char *id, struct err *error);
/* Every trial of campaign ID as a file, added to OUT: CSV or JSON lines, see rows.c. Any thread;
 * after a failure OUT may hold a part. -ENOENT. */
enum tn_rows_format { TN_ROWS_CSV, TN_ROWS_JSONL };
int tn_rows(struct str *out, struct tn_service *svc, const char *id, enum tn_rows_format format,
            struct err *error);
int tn_predictions(json_t **ret_items, struct tn_service *svc, const char *id, struct err *error);
int tn_pareto(json_t **ret_items, struct tn_service *svc, const char *id, struct err *error);

/* Set "simulated" of VIEW, which describes campaign ID: are its trials the simulator's? */
int tn_mark_simulated(json_t *view, struct tn_service *svc, const char *id, struct err *error);

/* What the fitted search predicts. Any thread, use web_offload_slow: the search is built anew.
 * -ECANCELED if *UNWANTED (NULL: never) is set meanwhile. */
int tn_importance(json_t **ret, struct tn_service *svc, const char *id, const atomic_bool *unwanted,
                  struct err *error);
int tn_surface(json_t **ret, struct tn_service *svc, const char *id, const char *x_key,
               const char *y_key, const atomic_bool *unwanted, struct err *error);
int tn_diagnosis(json_t **ret, struct tn_service *svc, const char *id, const atomic_bool *unwanted,
                 struct err *error);
/* What one more run of LAYOUT would give, in tokens/s (search.h, se_next_run). */
int tn_next_run(double *ret_rate, double *ret_lo, double *ret_hi, struct tn_service *svc,
                const char *id, const struct pl_layout *layout, const atomic_bool *unwanted,
                struct err *error);

/* Why a trial is faster or slower than trial AGAINST (0: the baseline), as in
 * docs/reference/http.md. Any thread, use web_offload. */
int tn_why(json_t **ret, struct tn_service *svc, const char *id, int64_t trial, int64_t against,
           struct err *error);

/*
 * A projection as in docs/reference/http.md (POST /v1/project): campaign BODY.campaign calibrates
 * the cost model, which predicts other sizes. Any thread, use web_offload. KEEP stores the answer
 * with the campaign, so that later measurements judge it (loop thread).
 */
int tn_project(json_t **ret, struct tn_service *svc, const json_t *body, struct err *error);
int tn_project_keep(struct tn_service *svc, const json_t *answer, struct err *error);

/* What an exporter needs: the winner (or the trial N > 0) with the campaign's model, cluster and
 * workload. */
struct tn_winner {
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
    struct pl_layout layout;
    const struct pl_trainer *trainer;
    char campaign[16], name[128];
    int64_t n;
    double tokens_per_s, lo, hi, mfu;
    bool simulated; /* the numbers are the simulator's */
};
int tn_winner(struct tn_winner *ret, struct tn_service *svc, const char *id, int64_t trial,
              struct err *error);

/* [{"name", "synthetic", "bytes", "tokens", "token_bytes", "vocab", …}] under datasets/ and in
 * [dataset "NAME"]. */
json_t *tn_datasets_json(struct tn_service *svc);
/* Folder of data set NAME, or -ENOENT; caller frees. NULL for `synthetic`. Any thread. */
int tn_dataset_path(char **ret, const struct tn_service *svc, const char *name, struct err *error);

/* ---- events -------------------------------------------------------------- */

/* Called on the loop after the commit of each new row of table event, in order of id. For kind
 * "step" at most two a second a trial. DATA is one line of JSON. */
typedef void tn_event_fn(void *ctx, const struct db_event *ev);

struct tn_subscription;
struct tn_subscription *tn_subscribe(struct tn_service *svc, tn_event_fn *fn, void *ctx);
struct tn_subscription *tn_unsubscribe(struct tn_subscription *subscription);
/* Rows that are older: db_event_each(tn_db(svc), …). */

/* ---- the HTTP face: tuner/api/; main() calls these ----------------------- */

struct tn_http;

struct tn_http_config {
    const char *const *listen; /* addresses as of web_server_listen(); NULL-terminated */
    const char *token_file;    /* NULL: DATA/token */
    const char *ui_dir;        /* NULL: the built-in dashboard */
    const char *tls_cert, *tls_key;
    const struct conf *conf; /* [http] prefix, allow-host, allow-origin; may be NULL */
};

/* Are the values of [http] such that a daemon can start with them? -EINVAL names the line. */
int tn_http_settings_check(const struct conf *conf, struct err *error);

/* Open the listeners and answer. Addresses in use and the like are refused with the address in the
 * text. */
int tn_http_start(struct tn_http **ret, struct tn_service *svc, uv_loop_t *loop,
                  const struct tn_http_config *config, struct err *error);
const char *tn_http_url(const struct tn_http *http); /* "http://127.0.0.1:8417" */
void tn_http_quiesce(struct tn_http *http);          /* no new connections, streams end */
struct tn_http *tn_http_stop(struct tn_http *http);

/* `partuned token …`: ARGV is what follows the word. A daemon may serve the directory meanwhile. */
int tn_token_command(const char *data_dir, int argc, char **argv, struct err *error);

#endif
