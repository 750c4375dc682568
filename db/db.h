/*
 * db - the rows of partune.db: campaigns, trials, attempts, steps, events, artifacts.
 *
 * Owner of the schema: this folder (db/schema.c, numbered migrations). Nothing here knows what a
 * campaign means; what must hold between rows is held by SQL: every change of state names the state
 * that it leaves, and zero rows changed is the answer -ESTALE.
 *
 * Connections. One process writes, through one connection that belongs to the writer thread (struct
 * db_writer); any number of threads read, each through its own struct db. The file is in WAL mode,
 * so readers never wait for the writer nor the writer for them. A job of the writer is one
 * transaction; jobs that wait together are committed together.
 *
 * Durability: synchronous=NORMAL. A commit survives the death of any process at any instant; after
 * a power cut the database is consistent and may lack the last commits, whose trials died with the
 * machine anyway.
 *
 * Times are milliseconds since the Unix epoch. A null integer is DB_NULL, a null real is NAN, a
 * null text is NULL. Texts of a row that is read live in the caller's arena; texts of a row that is
 * written are borrowed.
 */
#ifndef DB_DB_H
#define DB_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "db/states.h"

#define DB_NULL INT64_MIN

struct db;
struct db_writer;

/* ---- opening ------------------------------------------------------------- */

enum { DB_READ = 0, DB_WRITE = 1 };

/*
 * Open the database PATH. DB_WRITE creates it, brings its schema up to date and checks its
 * integrity (quick_check); exactly one connection of a process may be opened so, and the caller
 * holds the data directory's lock. -EOPNOTSUPP on a network file system, where WAL cannot work;
 * -EUCLEAN when the file is damaged or is no database; -EPROTO when it was written by a newer
 * partune.
 */
int db_open(struct db **ret, const char *path, int mode, struct err *error);
struct db *db_close(struct db *db);
static inline void db_auto_close(struct db **db)
{
    db_close(*db);
}
#define AUTO_DB __attribute__((cleanup(db_auto_close))) struct db

int db_version(struct db *db); /* number of the last migration */
int db_latest_version(void);   /* that this program knows */

/* A consistent copy of a database that may be in use; FILE must not exist. Any connection will do.
 */
int db_backup(struct db *db, const char *file, struct err *error);

/* Full integrity check: -EUCLEAN with the first finding. */
int db_check(struct db *db, struct err *error);

/* Small named values, such as the instance's id. *RET is in ARENA, NULL if there is none. */
int db_meta_get(const char **ret, struct db *db, struct arena *arena, const char *key,
                struct err *error);
int db_meta_set(struct db *db, const char *key, const char *value, struct err *error);

/* ---- the writer thread --------------------------------------------------- */

/* Work on the writer's connection, rolled back if it returns a negative code. */
typedef int db_job_fn(struct db *writer, void *arg, struct err *error);

/* Takes over WRITER (opened with DB_WRITE). */
int db_writer_start(struct db_writer **ret, struct db *owned_w, struct err *error);
/* Finishes all jobs, checkpoints, closes. */
struct db_writer *db_writer_stop(struct db_writer *wr);

/* Run JOB and wait for its commit. Microseconds, unless a disk is slow. */
int db_writer_call(struct db_writer *wr, db_job_fn *job, void *arg, struct err *error);

/* Queue JOB; ARG is freed by FREE_ARG (NULL: not) on the writer's thread afterwards. A failure is
 * kept for db_writer_failure(). */
void db_writer_post(struct db_writer *wr, db_job_fn *job, void *arg, void (*free_arg)(void *arg));

/* First failure of a posted job since the last call, or 0. */
int db_writer_failure(struct db_writer *wr, struct err *error);

/* Wait until everything posted before is committed. */
void db_writer_flush(struct db_writer *wr);

/* ---- campaigns ----------------------------------------------------------- */

/* States of a campaign, in the order of docs/reference/http.md. */
#define DB_RUNNING "running"
#define DB_PAUSED "paused"
#define DB_VERIFYING "verifying"
#define DB_DONE "done"
#define DB_CANCELLED "cancelled"
#define DB_FAILED "failed"
enum { DB_CAMPAIGN_STATES = 6 };
extern const char *const db_campaign_states[DB_CAMPAIGN_STATES + 1]; /* all of them, then NULL */

struct db_campaign {
    const char *id, *name, *state, *reason;
    const char *spec;     /* JSON as submitted */
    const char *resolved; /* JSON: model, cluster, workload, trial, budget, with all defaults */
    const char *objective, *trainer, *launcher;
    const char *baseline; /* JSON layout */
    const char *space;    /* JSON: {"legal", "keys"} */
    const char *verify;   /* JSON as in docs/reference/http.md, or NULL */
    const char *tags;     /* JSON array */
    const char *notes, *owner;
    const char *traceparent; /* W3C Trace Context: the campaign's trace, and who submitted it */
    int64_t created, started, ended;
    int64_t budget_trials; /* DB_NULL: none */
    int64_t priority;      /* higher first */
    double active_s; /* time in which it was running or verifying, up to the last change of state */
    int64_t active_since; /* DB_NULL while it is not */
    int64_t rev;          /* grows with every change of the campaign or one of its trials */
    int64_t trials;       /* search trials so far: baseline, search and repeat */
    double device_s;      /* devices x seconds of all ended attempts */
};

struct db_filter {
    const char *state, *tag, *name, *kind; /* NULL: any */
    const char *sort; /* one of the keys named at the function; NULL: the first */
    bool descending;
    const char *after; /* continue after this position; NULL: from OFFSET on */
    int64_t offset, limit;
};

int db_campaign_add(struct db *writer, const struct db_campaign *campaign, struct err *error);
int db_campaign_get(struct db_campaign *ret, struct db *db, struct arena *arena, const char *id,
                    struct err *error);
/* Its launcher and traceparent alone, also of one that is deleted and not removed yet. */
int db_campaign_trace(struct db_campaign *ret, struct db *db, struct arena *arena, const char *id,
                      struct err *error);
int db_campaign_rev(int64_t *ret, struct db *db, const char *id, struct err *error); /* -ENOENT */
/* Is LAUNCHER the launcher of campaign ID, which may be deleted but not removed yet? -ENOENT. */
int db_campaign_launched_by(bool *ret, struct db *db, const char *id, const char *launcher,
                            struct err *error);
/* Sort: created, name, state. *RET_TOTAL counts all that match. Rows are in ARENA. */
int db_campaign_list(struct db_campaign **ret, int *ret_count, int64_t *ret_total, struct db *db,
                     struct arena *arena, const struct db_filter *filter, struct err *error);
/* The position of CAMPAIGN in the list of FILTER, in ARENA: FILTER with it as `after` lists what
 * follows. */
const char *db_campaign_position(struct arena *arena, const struct db_filter *filter,
                                 const struct db_campaign *campaign);
/* FROM is a list of states ("running paused"); -ESTALE if the campaign is in none of them. Keeps
 * the times (started, ended, active) in step with the state. */
int db_campaign_move(struct db *writer, const char *id, const char *from, const char *to,
                     const char *reason, int64_t now, struct err *error);
/* NULL leaves a field alone. */
int db_campaign_describe(struct db *writer, const char *id, const char *name, const char *notes,
                         const char *tags, struct err *error);
/* Why it is in its state, one of STATES (words with blanks between), else nothing changes. */
int db_campaign_set_reason(struct db *writer, const char *id, const char *states,
                           const char *reason, struct err *error);
/* What is known of its space now; a running campaign no longer has a reason. */
int db_campaign_set_space(struct db *writer, const char *id, const char *space_json,
                          struct err *error);
int db_campaign_set_priority(struct db *writer, const char *id, int64_t priority,
                             struct err *error);
int db_campaign_set_verify(struct db *writer, const char *id, const char *verify_json,
                           struct err *error);
/* End a running verification in STATE, which says how it ended. */
int db_campaign_end_verify(struct db *writer, const char *id, const char *state, struct err *error);
/* Ids of campaigns that ended before BEFORE, the first to end first, LIMIT at most, in ARENA. */
int db_campaign_ended(const char ***ret, int *ret_count, struct db *db, struct arena *arena,
                      int64_t before, int64_t limit, struct err *error);
/* With all its trials, attempts, steps, events and artifacts: no query sees them from now on, and
 * db_removal_piece() removes them. -EBUSY while it runs or verifies. */
int db_campaign_delete(struct db *writer, const char *id, struct err *error);
/* Remove rows of deleted campaigns for some milliseconds: 1 if there were any, 0 if none is left.
 */
int db_removal_piece(struct db *writer, struct err *error);
/* Ids of deleted campaigns that have not been removed to the end, in ARENA. */
int db_removal_list(const char ***ret, int *ret_count, struct db *db, struct arena *arena,
                    struct err *error);
/* Rows of (state, count): calls FN for each. */
int db_campaign_counts(struct db *db, const char *id,
                       void (*fn)(void *ctx, const char *state, int64_t count), void *ctx,
                       struct err *error);

/* ---- trials -------------------------------------------------------------- */

struct db_trial {
    const char *campaign;
    int64_t n;
    const char *kind; /* baseline search repeat verify */
    const char *state;
    int64_t repeat_of; /* n of the trial that is measured again */
    int64_t search_id; /* id inside the search; DB_NULL for verify */
    int64_t attempts;
    const char *layout, *layout_text, *why; /* layout: canonical JSON */
    double predicted_tokens_per_s, predicted_memory, predicted_fits;
    double tokens_per_s, tokens_per_s_se, tokens_per_s_max; /* max: the bound of a censored trial */
    double mfu;
    double step_ms, step_ms_p10, step_ms_p90, step_ms_ci95;
    const char *phases;                           /* JSON */
    const char *memory_planned, *memory_measured; /* JSON */
    double memory; /* bytes of the worst rank, measured if known, else planned */
    double loss_first, loss_last;
    double imbalance; /* of the experts: load of the busiest over the mean */
    double tokens_per_joule;
    const char *failure; /* JSON */
    int64_t created, started, ended;
    double seconds;
    int64_t rev;
    int64_t fidelity;     /* number of the campaign's fidelity, from 1; DB_NULL: the full size */
    const char *run;      /* JSON: the smaller problem that it runs, and what that measured */
    const char *inferred; /* JSON: what the search infers from it for the full size */
    int64_t devices;      /* held while it runs */
    double device_s;      /* devices x seconds of its attempts that have ended */
};

/* An empty row: every measurement NAN, every time and reference DB_NULL. */
void db_trial_blank(struct db_trial *ret);
/* Adds a queued trial with the campaign's next n, which is put into TRIAL and *RET_N. The campaign
 * must be running or verifying (-ESTALE). */
int db_trial_add(int64_t *ret_n, struct db *writer, struct db_trial *trial, struct err *error);
/* The number that the campaign's next trial will have. */
int db_trial_next(int64_t *ret_n, struct db *db, const char *campaign, struct err *error);
int db_trial_get(struct db_trial *ret, struct db *db, struct arena *arena, const char *campaign,
                 int64_t trial, struct err *error);
/* Sort: n, tokens_per_s, state, memory, kind, seconds. Filters: state, kind. */
int db_trial_list(struct db_trial **ret, int *ret_count, int64_t *ret_total, struct db *db,
                  struct arena *arena, const char *campaign, const struct db_filter *filter,
                  struct err *error);
const char *db_trial_position(struct arena *arena, const struct db_filter *filter,
                              const struct db_trial *trial);

/* queued -> starting -> running, and back to queued for another attempt: -ESTALE when the trial is
 * elsewhere. */
int db_trial_start(struct db *writer, const char *campaign, int64_t trial, int64_t now,
                   struct err *error);
int db_trial_run(struct db *writer, const char *campaign, int64_t trial, struct err *error);
int db_trial_requeue(struct db *writer, const char *campaign, int64_t trial, struct err *error);
/* Any state that is not final -> TRIAL->state, which is final, with all measurements of TRIAL.
 * -ESTALE if the trial was settled before: nothing is ever counted twice. */
int db_trial_settle(struct db *writer, const struct db_trial *trial, struct err *error);
/* All queued trials of a campaign become cancelled. */
int db_trial_cancel_queued(struct db *writer, const char *campaign, int64_t now, struct err *error);
/* Planned memory as the trainer reported it, before the trial ends. */
int db_trial_planned(struct db *writer, const char *campaign, int64_t trial,
                     const char *memory_json, struct err *error);
/* What the search infers from smaller TRIAL for the full size. */
int db_trial_infer(struct db *writer, const char *campaign, int64_t trial,
                   const char *inferred_json, struct err *error);
/* Smaller trials of a campaign that have begun, and their device-seconds. */
int db_trial_smaller(int64_t *ret_count, double *ret_device_s, struct db *db, const char *campaign,
                     struct err *error);
/* All successful measurements of the layout of TRIAL: TRIAL itself and its repeats, in order.
 * Smaller trials do not count. */
int db_trial_group(struct db_trial **ret, int *ret_count, struct db *db, struct arena *arena,
                   const char *campaign, int64_t trial, struct err *error);
/* All successful measurements of the layouts that were measured again, verification excepted, those
 * of one layout together. */
int db_trial_repeated(struct db_trial **ret, int *ret_count, struct db *db, struct arena *arena,
                      const char *campaign, struct err *error);
/* The trials of a campaign whose layout has VALUE for KEY. */
struct db_slice {
    const char *key; /* of a layout: global_batch, world, cluster */
    int64_t value;
    const char *text; /* in place of VALUE; NULL: it is a number */
};

/* First trials (no repeats) of the MAX layouts with the highest single measurement at full size by
 * a campaign's OBJECTIVE, verification excepted; of those in SLICE (NULL: of all). */
int db_trial_leaders(int64_t *ret, int *ret_count, struct db *db, int max, const char *campaign,
                     const char *objective, const struct db_slice *slice, struct err *error);
/* The same by tokens for a price. PRICES: JSON {cluster: price}, of layouts that name theirs; NULL:
 * they all cost the same. */
int db_trial_cheapest(int64_t *ret, int *ret_count, struct db *db, int max, const char *campaign,
                      const char *prices, const struct db_slice *slice, struct err *error);
/* How many trials of a campaign are in SLICE, verification excepted, and the device-seconds of all
 * of its attempts, verification included: as the campaign counts both. */
int db_trial_spent(int64_t *ret_count, double *ret_device_s, struct db *db, const char *campaign,
                   const struct db_slice *slice, struct err *error);

/* ---- attempts ------------------------------------------------------------ */

struct db_attempt {
    const char *campaign;
    int64_t n, attempt;
    const char *state;  /* starting running ended */
    const char *folder; /* below the data directory */
    const char *cpus;   /* "0-1": cores that it holds, or NULL */
    const char *gpus;   /* "0-1" or "all": GPUs that it holds, or NULL */
    const char *job;    /* id in a foreign scheduler, or NULL */
    int64_t devices;
    int64_t offset; /* of the event file: all before it is in table step */
    int64_t created, started, ended;
    const char *outcome; /* final state of this attempt, also when another one follows */
    const char *failure; /* JSON */
    int64_t exit_code, signal;
};

int db_attempt_add(struct db *writer, const struct db_attempt *at, struct err *error);
/* Progress: the event file is read up to OFFSET. Belongs in the job that adds those steps. */
int db_attempt_progress(struct db *writer, const char *campaign, int64_t trial, int64_t attempt,
                        int64_t offset, struct err *error);
int db_attempt_run(struct db *writer, const char *campaign, int64_t trial, int64_t attempt,
                   const char *job, int64_t now, struct err *error);
/* -ESTALE if it has ended before. Adds its device-seconds to its trial and the campaign. */
int db_attempt_end(struct db *writer, const struct db_attempt *at, struct err *error);
/* All attempts that have not ended. */
int db_attempt_open_list(struct db_attempt **ret, int *ret_count, struct db *db,
                         struct arena *arena, struct err *error);
/* Attempts of the trial that ended with OUTCOME. */
int db_attempt_outcomes(int64_t *ret, struct db *db, const char *campaign, int64_t trial,
                        const char *outcome, struct err *error);
int db_attempt_get(struct db_attempt *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, int64_t attempt, struct err *error);

/* ---- steps --------------------------------------------------------------- */

struct db_step {
    int64_t attempt, n; /* number of the step */
    double ms;
    const char *data; /* the step event's JSON */
};

int db_step_add(struct db *writer, const char *campaign, int64_t trial, const struct db_step *step,
                struct err *error);
/* Steps of the trial's last attempt, in order. */
int db_step_list(struct db_step **ret, int *ret_count, int64_t *ret_total, struct db *db,
                 struct arena *arena, const char *campaign, int64_t trial, int64_t offset,
                 int64_t limit, struct err *error);

/* ---- events -------------------------------------------------------------- */

struct db_event {
    int64_t id; /* grows, never used twice */
    const char *campaign;
    int64_t trial;    /* DB_NULL: about the campaign */
    const char *kind; /* campaign trial step best */
    const char *data; /* JSON on one line */
    int64_t t;
};

int db_event_add(int64_t *ret_id, struct db *writer, const struct db_event *ev, struct err *error);
/* Events with id > AFTER, of one campaign or (NULL) of all. FN returning false stops. Texts live
 * during the call. */
int db_event_each(struct db *db, const char *campaign, int64_t after, int64_t limit,
                  bool (*fn)(void *ctx, const struct db_event *ev), void *ctx, struct err *error);
int64_t db_event_last(struct db *db); /* highest id so far; 0: none */
/* Forget some of those before the last KEEP: 1 where there may be more of them, 0 if none is left.
 */
int db_event_trim(struct db *writer, int64_t keep, struct err *error);

/* ---- artifacts: files and results kept with a campaign ------------------- */

struct db_artifact {
    const char *campaign, *name, *type; /* media type */
    const char *path;                   /* below the data directory, or NULL: BODY */
    const char *body;
    int64_t created;
};

int db_artifact_put(struct db *writer, const struct db_artifact *ar, struct err *error);

/* The newest LIMIT artifacts of all campaigns whose name begins with PREFIX. */
int db_artifact_list(struct db_artifact **ret, int *ret_count, struct db *db, struct arena *arena,
                     const char *prefix, int64_t limit, struct err *error);

/* ---- for the HTTP side: answers by Idempotency-Key, tokens, audit -------- */

struct db_answer {
    const char *key, *hash, *type, *location, *body;
    int64_t status, created;
};

/* KEY begins with 16 characters that are the same for one caller: of each caller the newest 1,000
 * answers are kept, and no more than 8 MiB of them. */
int db_answer_put(struct db *writer, const struct db_answer *an, struct err *error);
int db_answer_get(struct db_answer *ret, struct db *db, struct arena *arena, const char *key,
                  struct err *error);
int db_answer_trim(struct db *writer, int64_t before, struct err *error);

struct db_token {
    const char *id, *name, *scope, *hash; /* hash: hexadecimal */
    int64_t created, expires, used;
};

int db_token_put(struct db *writer, const struct db_token *token, struct err *error);
int db_token_list(struct db_token **ret, int *ret_count, struct db *db, struct arena *arena,
                  struct err *error);
int db_token_delete(struct db *writer, const char *id, struct err *error);

/* One line of the audit log: who did what to which resource, with which result. */
int db_audit_add(struct db *writer, int64_t time_ms, const char *who, const char *what,
                 const char *resource, const char *result, struct err *error);

/* ---- webhooks ------------------------------------------------------------ */

/* Triggers make a row of it, for each hook that wants the event, when a campaign changes its state
 * or a trial ends. */
struct db_delivery {
    int64_t id;
    const char *uuid; /* the same in every attempt */
    const char *hook, *event, *campaign;
    int64_t trial;      /* DB_NULL: about the campaign */
    const char *state;  /* that it came into, */
    const char *reason; /* and why */
    int64_t created, attempts;
    int64_t due;        /* not before */
    const char *body;   /* what is posted; NULL until the first attempt */
    const char *status; /* pending delivered failed */
    const char *detail;
};

/* The hooks are those of the running daemon's configuration: events are words with a blank between.
 */
int db_hook_clear(struct db *writer, struct err *error);
int db_hook_add(struct db *writer, const char *name, const char *events, struct err *error);
/* Fail pending deliveries of hooks that no longer exist. */
int db_delivery_orphans(struct db *writer, struct err *error);
/* Pending deliveries that are due, the longest due first. */
int db_delivery_due(struct db_delivery **ret, int *ret_count, struct db *db, struct arena *arena,
                    int64_t now, int64_t limit, struct err *error);
/* An attempt begins: BODY becomes the delivery's if it has none, and the next is not before DUE. */
int db_delivery_try(struct db *writer, int64_t id, const char *body, int64_t due,
                    struct err *error);
int db_delivery_end(struct db *writer, int64_t id, const char *status, const char *detail,
                    struct err *error);
/* Delete those that ended before BEFORE. */
int db_delivery_trim(struct db *writer, int64_t before, struct err *error);

/* ---- numbers for /metrics and the list page ------------------------------ */

/* Campaigns in STATE: all into RET, those of LAUNCHER into RET_OF. */
void db_campaign_count(int64_t *ret, int64_t *ret_of, struct db *db, const char *state,
                       const char *launcher);
void db_delivery_count(int64_t *ret, struct db *db, const char *status); /* that are in it */
/* Rows of one of the tables above; -1 on failure. */
int64_t db_count(struct db *db, const char *table);

#endif
