/*
 * Inside tuner/: what the daemon's parts know of each other.
 *
 *   spec.c       a campaign's JSON, checked and completed; warm.c: by earlier campaigns' trials
 *   engine.c     the search of one campaign, its lock and its work beside the loop
 *   campaign.c   operations on campaigns; campaign_create.c: new ones;
 *                campaign_memory.c: those of them that are in memory
 *   scheduler.c  who may start what, when
 *   attempt.c    one launch of a trial, from start or adoption to its end
 *   settle.c     why an attempt ended, what that means, and the one transaction that records it
 *   verify.c     winner and baseline, alternately
 *   revive.c     stored campaigns come back to work; recover.c: all of them, after a restart
 *   retain.c     how long results, and how much of files, are kept
 *   removal.c    what was deleted, and old events, leave the database
 *
 * Of other folders: output/ (events), results/ (views), machine/ (cores, hosts, commands), launch/,
 * trainers/, service/.
 *
 * The database is the truth. What is in memory can be rebuilt from it at any time, and is after a
 * restart.
 */
#ifndef TUNER_INTERNAL_H
#define TUNER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "search/search.h"
#include "tuner/trainers/log.h"
#include "tuner/machine/proc.h"
#include "tuner/tuner.h"

struct tn_attempt;
struct tn_campaign;
struct tn_launcher;
struct tn_removal;
struct tn_retain;
struct tn_revival;
struct tn_slurm;
struct tn_slurm_trial;
struct tn_trainer;
struct tn_webhooks;

/* ---- spec.c -------------------------------------------------------------------------------------
 */

enum { TN_MAX_PRIORITY = 100 }; /* either way; 0 is usual */

struct tn_spec {
    json_t *body;     /* as submitted */
    json_t *resolved; /* the same with every default of today, and what earlier campaigns said */
    struct se_spec se;
    char name[128], trainer_name[64];
    const struct tn_launcher *launcher;
    const struct tn_trainer *trainer;
    int64_t priority;
    char *data_path; /* folder of the data set; NULL: synthetic */
};

int tn_spec_parse(struct tn_spec **ret, const struct tn_service *svc, const json_t *body,
                  json_t **ret_rules, struct err *error); /* any thread */
/* BODY with each id in its "search.warm_start" replaced by that campaign's work and trials. Any
 * thread. -EINVAL, or -ENOENT, with the pointer of the id. */
int tn_warm_start(json_t **ret, const struct tn_service *svc, const json_t *body,
                  struct err *error);
struct tn_spec *tn_spec_free(struct tn_spec *spec);
struct pl_problem tn_spec_problem(const struct tn_spec *spec);
AUTO_DEFINE(tn_spec)

/* ---- engine.c -----------------------------------------------------------------------------------
 */

/* The search of a campaign. Counted by reference; `lock` guards the search, which the loop never
 * waits for. */
struct tn_engine {
    atomic_int refs;
    pthread_mutex_t lock;
    struct tn_spec *spec;
    struct se_search *search;
    int64_t *n_of; /* trial number by search id */
    int ids, cap;
};

/* *SPEC is taken (and NULL afterwards) on success. -ECANCELED if PATIENCE (may be NULL) is over. */
int tn_engine_new(struct tn_engine **ret, struct tn_spec **spec, const struct pl_patience *patience,
                  struct err *error); /* any thread */
struct tn_engine *tn_engine_ref(struct tn_engine *en);
struct tn_engine *tn_engine_unref(struct tn_engine *en);
void tn_engine_name(struct tn_engine *en, int search_id, int64_t trial); /* lock held */
/* The layout TEXT of one of its trials. */
int tn_engine_layout(struct pl_layout *ret, const struct tn_engine *en, const char *text,
                     struct err *error);
/* Replay what the database knows of the campaign; any thread, DB of that thread. */
int tn_engine_replay(struct tn_engine *en, struct db *db, const char *campaign, struct err *error);
/* The search of a stored campaign, built anew; any thread, DB of that thread, or a connection of
 * its own. AT_WORK: it is to go on, not to be asked only. */
int tn_engine_rebuild(struct tn_engine **ret, const struct tn_service *svc, struct db *db,
                      const char *id, bool at_work, struct err *error);
int tn_engine_rebuild_beside(struct tn_engine **ret, const struct tn_service *svc, const char *id,
                             bool at_work, struct err *error);

struct tn_tell {
    struct tn_tell *next;
    int id;
    struct se_outcome outcome;
};
/* What a settled trial teaches; false: nothing at all (it was cancelled). */
bool tn_outcome_of(struct se_outcome *ret, const struct db_trial *trial);

/* What is known of a campaign's space: LEGAL and FITTING layouts, at least so many unless EXACT. */
struct tn_space {
    size_t legal, fitting;
    bool exact;
    char reason[sizeof(((struct err *)0)->text)]; /* why none is fitting, or "" */
};
/* {"legal", "fitting", "exact", "keys"}, as a campaign's "space". */
json_t *tn_space_json(const struct tn_space *space, const struct tn_spec *spec);
/* Will the search of SPEC hold LAYOUT? */
bool tn_searches(const struct tn_spec *spec, const struct pl_problem *problem,
                 const struct pl_layout *layout);

/* ---- campaign.c, campaign_memory.c --------------------------------------------------------------
 */

enum { TN_ID_TEXT = 16 };

/* A trial that waits for its next attempt, or has one. */
struct tn_trial {
    struct tn_trial *next;
    struct tn_campaign *campaign;
    int64_t n, search_id, attempts;
    char kind[12];
    struct pl_layout layout;
    uint64_t not_before; /* monotonic ms: a pause before the next attempt */
    uint64_t no_room;    /* monotonic ms: since when it waits for cores; 0: it does not */
};

/* Verification at work: pairs of trials, winner first in even pairs, baseline first in odd ones. */
struct tn_verify {
    int pairs, steps;
    int64_t winner_n, baseline_n;
    struct pl_layout winner, baseline;
    int64_t first_n; /* its trials are those of kind verify from here on */
    int added;
};

struct tn_campaign {
    struct tn_campaign *next;
    struct tn_service *svc;
    char id[TN_ID_TEXT];
    const char
        *state; /* DB_RUNNING, DB_PAUSED or DB_VERIFYING; others are not in memory but to drain */
    struct tn_engine *engine;
    struct tn_trial *queue; /* ascending n */
    int running;            /* attempts */
    int open;               /* trials that are not settled, verification excepted */
    int asked;              /* trials added, as the budget counts them */
    struct tn_tell *tells;
    bool asking, refitting, waiting;
    bool wanting;     /* what it asks for is a trial */
    const char *done; /* why the search ends, or NULL */
    double active_s;
    uint64_t active_since; /* monotonic ms; 0: not active */
    double device_s;
    uint64_t retry_at; /* monotonic ms: the store failed, try again then */
    int64_t best_n;
    int64_t priority; /* the highest is served first */
    double share;     /* device-seconds, for fair share between those of one priority */
    struct tn_verify verify;
};

struct tn_campaign *tn_campaign_find(struct tn_service *svc, const char *id);
/* Bring a campaign into memory, with its engine; used at creation, resume, verify and recovery. */
struct tn_campaign *tn_campaign_load(struct tn_service *svc, const struct db_campaign *row,
                                     struct tn_engine *owned_en);
void tn_campaign_unload_idle(struct tn_service *svc);
void tn_campaign_set_state(struct tn_campaign *campaign, const char *state);
/* Whoever comes, or comes back, is as far as the one that has used least of those at work: it
 * claims nothing for the time when it was not there. */
void tn_campaign_join_share(struct tn_campaign *campaign);
/* Change the state in the database and in memory, with its event. */
int tn_campaign_change(struct tn_service *svc, const char *id, const char *from, const char *to,
                       const char *reason, struct err *error);
struct tn_trial *tn_trial_new(const struct db_trial *row, const struct pl_layout *layout);
void tn_campaign_clear_queue(struct tn_campaign *campaign);
void tn_campaign_enqueue(struct tn_campaign *campaign, struct tn_trial *trial);

/* ---- scheduler.c --------------------------------------------------------------------------------
 */

/* Look for something to start, on the loop's next turn. */
void tn_sched_kick(struct tn_service *svc);
void tn_sched_run(struct tn_service *svc);

/* Add a trial that the search did not choose (verification). */
int tn_trial_add(struct tn_campaign *campaign, const struct pl_layout *layout, int64_t repeat_of,
                 const char *kind, const char *why, int64_t *ret_n, struct err *error);

/* ---- slots.c ------------------------------------------------------------------------------------
 */

enum { TN_MAX_CORES = 1024 };

struct tn_slots {
    int core[TN_MAX_CORES]; /* number of the core */
    bool taken[TN_MAX_CORES];
    int count, free;
};

void tn_slots_init(struct tn_slots *slots,
                   int limit); /* cores that this process may use, LIMIT at most (0: all) */
/* COUNT free cores into CPUS: neighbours if there are; false, none taken, when there are fewer. */
bool tn_slots_take(struct tn_slots *slots, int *cpus, int count);
/* Take these very cores (adoption); those that are unknown or taken are skipped. */
void tn_slots_take_list(struct tn_slots *slots, const int *cpus, int count);
void tn_slots_give(struct tn_slots *slots, const int *cpus, int count);

/* ---- hosts.c ------------------------------------------------------------------------------------
 */

struct tn_host {
    char *name;
    int first, slots; /* its cores are the slots FIRST ... FIRST + SLOTS - 1 */
};

struct tn_hosts {
    struct tn_host *host;
    int count, slots;
};

/* RANKS of THREADS threads, PER_HOST of them on each host but the last. */
struct tn_shape {
    int ranks, per_host, threads;
    bool oversubscribe; /* may share cores where a host has fewer than the ranks it gets */
};

/* A line is HOST or HOST:CORES (1 without), # begins a comment. -EINVAL names the line. */
int tn_hosts_read(struct tn_hosts **ret, const char *path, struct err *error);
void tn_hosts_free(struct tn_hosts *hosts);                                /* NULL is allowed */
void tn_hosts_slots(const struct tn_hosts *hosts, struct tn_slots *slots); /* all of them, free */
/* How many hosts may hold RANKS ranks each. */
int tn_hosts_suiting(const struct tn_hosts *hosts, int ranks, bool oversubscribe);
/* Slots for SHAPE into CPUS, host by host; their number; 0, none taken, where there is no room. */
int tn_hosts_take(const struct tn_hosts *hosts, struct tn_slots *slots, int *cpus,
                  const struct tn_shape *shape);
/* The COUNT slots that SHAPE took as mpiexec's -hosts wants them: a:4,b:4. */
void tn_hosts_text(struct str *ret, const struct tn_hosts *hosts, const int *cpus, int count,
                   const struct tn_shape *shape);

/* ---- observe.c ----------------------------------------------------------------------------------
 */

enum { TN_PHASES = 8, TN_RECENT = 64, TN_MAX_STEPS = 20000 };

extern const char *const tn_phase_names[TN_PHASES + 1];

/* What the events of an attempt have said so far. */
struct tn_seen {
    bool hello, summary, error, stopped;
    int steps, measured;        /* step events; those after the warm-up */
    double recent[TN_RECENT];   /* ms of the last measured steps */
    double sum, sum2;           /* of their milliseconds, all of them */
    double phase_ms[TN_PHASES]; /* sums over measured steps */
    double loss_first, loss_last;
    double tokens_least, tokens_most; /* of a step, where the trainer says it; NAN: it does not */
    double tokens_per_s, tokens_per_s_se, ms_median, ms_p10, ms_p90, ms_ci95;
    json_t *planned, *reached; /* memory by class */
    char error_class[16], detail[400];
    int error_rank; /* -1: none in particular */
};

void tn_seen_init(struct tn_seen *seen);
void tn_seen_done(struct tn_seen *seen);
/* One line of an event file. Anything that is no event of ours is TN_LINE_NOTHING. *RET_N is the
 * step's number. */
enum tn_line tn_observe(struct tn_seen *seen, const char *line, size_t len, int64_t *ret_n,
                        double *ret_ms);
void tn_seen_step(struct tn_seen *seen, double ms, double loss, bool warmup); /* count a step */
double
tn_seen_median_ms(const struct tn_seen *seen); /* of the last measured steps; NAN without one */

/* Whole lines of a growing file. A line over the limit is skipped; a torn last line waits for its
 * end. */
struct tn_reader {
    int fd;         /* -1: not open yet */
    int64_t offset; /* all before it was handed out */
    char *buf;
    size_t len, cap;
    bool skipping; /* inside a line that is too long */
    bool returns;  /* a carriage return ends a line, too: a terminal's progress bars */
};

enum { TN_MAX_LINE = 64 << 10 };

/* In an attempt's folder: one step as a Chrome trace, where the trainer made one. */
#define TN_TIMELINE_FILE "timeline.json"

void tn_reader_init(struct tn_reader *reader);
void tn_reader_done(struct tn_reader *reader);
/* Hand out whole lines, about BUDGET bytes of them; returns true when there may be more at once. */
bool tn_reader_poll(struct tn_reader *reader, const char *path, size_t budget,
                    void (*line)(void *ctx, const char *text, size_t len, int64_t end), void *ctx);

/* ---- attempt.c ----------------------------------------------------------------------------------
 */

enum tn_stop_reason {
    TN_STOP_NONE,
    TN_STOP_CANCEL,
    TN_STOP_TIMEOUT,
    TN_STOP_HANG,
    TN_STOP_PRUNED,
    TN_STOP_MEASURED, /* an external trainer has run long enough */
    TN_STOP_SERVICE,  /* the daemon ends and wants it re-queued */
};

struct tn_attempt {
    struct tn_attempt *next;
    struct tn_service *svc;
    struct tn_campaign *campaign;
    struct tn_trial *trial;
    const struct tn_launcher *launcher;
    const struct tn_trainer *trainer;
    int64_t number;
    char *folder, *relative; /* absolute; below the data directory */
    char mark[TN_MARK_TEXT];
    char job[160];        /* id in a foreign scheduler, or LEASE@WORKER of a remote one */
    struct tn_ask *ask;   /* the worker that will get it, between reserve and start */
    uint64_t lease_until; /* monotonic ms: a worker must be heard of before then */
    int64_t lines;        /* events that a worker has sent */
    struct pl_trial_limits limits;
    int cpus[TN_MAX_CORES], ncpus;
    struct tn_seen seen;
    struct tn_reader reader[TN_STREAMS];
    struct tn_log_state log;
    int64_t stored;         /* events before this offset are in the database */
    struct tn_batch *batch; /* steps read in this turn */
    uint64_t started, last_event, last_step_event; /* monotonic ms */
    enum tn_stop_reason stop;
    uint64_t end_at;  /* monotonic ms: the end of a simulated one */
    uint64_t kill_at; /* monotonic ms: the supervisor did not obey */
    double bound;     /* tokens/s at most, of a pruned one */
    bool run_recorded, ended, killing;
    bool unadopted; /* it could not be told yet whether it lives: try again */
    struct tn_exit exit;
    char trouble[400]; /* what the launcher found, for the failure's detail */
    bool machine_lost; /* it is no fault of the trial */
    bool was_adopted;
    /* The outcome that a foreign scheduler knows better than the exit code does, and whether the
     * job may still wait in its queue. */
    const char *verdict;
    bool waits;
    struct tn_slurm_trial *slurm;
    struct tn_proc proc; /* of the supervisor (local) */
    uv_timer_t tick;
    uv_poll_t poll;
    int pidfd;
    int handles; /* open libuv handles: freed at 0 */
};

/* Launch a trial: 0, -EBUSY when there is no room now, or why it cannot be. */
int tn_attempt_start(struct tn_trial *trial, struct err *error);
/* Take over an attempt of a former daemon, or settle it if it is dead. */
int tn_attempt_recover(struct tn_campaign *campaign, struct tn_trial *trial,
                       const struct db_attempt *row, struct err *error);
void tn_attempt_stop(struct tn_attempt *attempt, enum tn_stop_reason why);
/* From the launcher: the last process is gone (attempt->exit says how). */
void tn_attempt_ended(struct tn_attempt *attempt);
void tn_attempt_read(struct tn_attempt *attempt); /* take in new events */
/* From the launcher: what waited in a queue has begun. */
void tn_attempt_runs(struct tn_attempt *attempt);
void tn_attempt_tick_in(struct tn_attempt *attempt, uint64_t ms); /* look again soon */
void tn_attempt_abandon(
    struct tn_attempt *attempt); /* the daemon ends: close handles, leave processes */

/* Steps of one turn on their way into the database. */
struct tn_batch;

/* ---- settle.c -----------------------------------------------------------------------------------
 */

/* Record the end of an attempt: one transaction. Negative: the store cannot be written, try again.
 */
int tn_settle(struct tn_attempt *attempt, struct err *error);

/* ---- verify.c -----------------------------------------------------------------------------------
 */

/* Next trial of the verification, or the end of it. */
void tn_verify_step(struct tn_campaign *campaign);
/* Geometric mean of COUNT ratios with its 95 % interval. */
/* "holds" (the interval lies above 1), "does not hold" (below), "within noise" (it contains 1), or
 * "same" where the winner is the baseline itself. */
const char *tn_verdict(double lo, double hi, bool same);
void tn_ratio_interval(const double *ratio, int count, double *mean, double *lo, double *hi);
/* Geometric mean of throughputs and the 95 % interval of one more; infinite for COUNT = 1. */
void tn_promise_interval(const double *rate, int count, double *mean, double *lo, double *hi);

/* After a restart: what the verification in ROW had done. */
int tn_verify_restore(struct tn_campaign *campaign, const struct db_campaign *row,
                      struct err *error);

/* ---- revive.c -----------------------------------------------------------------------------------
 */

/* Bring a stored campaign back to work, at once or (0, and it is not in memory yet) a while later.
 */
int tn_campaign_revive(struct tn_service *svc, const struct db_campaign *row, bool at_start,
                       struct err *error);
/* A new campaign that is stored and not in memory: build its search. Its reason until then: */
#define TN_PREPARING "preparing the space"
void tn_campaign_prepare(struct tn_service *svc, const char *id, struct tn_space space);
bool tn_campaign_reviving(const struct tn_service *svc, const char *id);
int tn_campaign_is_back(const struct tn_service *svc, const char *id,
                        struct err *error); /* -EAGAIN */
int tn_reviving(const struct tn_service *svc,
                bool at_start); /* campaigns; only those of the start */
/* It cannot be brought back: it is paused for that reason. */
void tn_campaign_give_up(struct tn_service *svc, const struct db_campaign *row,
                         const struct err *why);

/* ---- recover.c ----------------------------------------------------------------------------------
 */

/* Those attempts of a campaign that have not ended: adopted, settled, or ended if it is not back.
 */
void tn_recover_attempts(struct tn_service *svc, const char *id);
/* After a restart: all campaigns that are not over, and all attempts that have not ended. */
int tn_recover(struct tn_service *svc, struct err *error);

/* ---- view.c, results.c --------------------------------------------------------------------------
 */

/* Are the results of campaign ID the simulator's, no measurements? Its launcher says so. */
int tn_simulated(bool *ret, struct db *db, const char *id, struct err *error);
/* What stands behind a campaign's id in the log: nothing, or that it is simulated. */
const char *tn_simulated_mark(const struct tn_launcher *launcher);
int tn_campaign_view(json_t **ret, struct db *db, const struct db_campaign *campaign,
                     bool with_spec, struct err *error);
/* A trial of a campaign that is SIMULATED, or is not. */
json_t *tn_trial_view(const struct db_trial *trial, bool simulated);
/* The same as text; trial_text.c. */
void tn_trial_text(struct str *out, const struct db_trial *trial, bool simulated);
json_t *tn_number(double number); /* null for NAN */
json_t *tn_time(int64_t ms);      /* RFC 3339, null for DB_NULL */

enum { TN_BASELINE = 1 }; /* which trial of every campaign the baseline is */

/* All measurements of one layout, pooled. */
struct tn_measure {
    int64_t n; /* the first trial of the layout */
    const char *layout, *text;
    double mean, lo, hi, mfu, memory;
    int count;
};
int tn_measure_get(struct db *db, struct arena *arena, struct tn_measure *ret, const char *campaign,
                   int64_t trial, struct err *error); /* -ENOENT without a success */
int tn_measure_best(struct db *db, struct arena *arena, struct tn_measure *ret, json_t **ret_tied,
                    const struct db_campaign *campaign, struct err *error);
/* BASELINE: its tokens/s, NAN where it has none. SIMULATED: so is the campaign. */
/* Who chose the campaign's baseline: "default", "naive", or "given" as a layout. */
const char *tn_baseline_rule(const struct db_campaign *campaign);
json_t *tn_measure_json(const struct tn_measure *measure, double baseline, bool simulated);

/* Add an event with the resource's present form; WRITER is the writer's connection. */
int tn_event_campaign(struct db *writer, const char *id, struct err *error);
int tn_event_trial(struct db *writer, const char *id, int64_t trial, struct err *error);
int tn_event_best(struct db *writer, const char *id, struct err *error);

/* ---- launchers and trainers: two tables of functions, one file each
 * ------------------------------ */

/* A command line: argv as a NULL-terminated list of owned strings. */
struct tn_argv {
    char **v;
    int n, cap;
};
void tn_argv_add(struct tn_argv *argv, const char *text);
void tn_argv_addf(struct tn_argv *argv, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tn_argv_done(struct tn_argv *argv);

/* How a trial is put onto machines. */
struct tn_launcher {
    const char *name;
    bool shared;    /* trials of all campaigns compete for the same cores */
    bool rehearsal; /* nothing is run by this daemon: no trainer, no data are needed here */
    /* Can it start anything now? The reason pauses the campaign. */
    int (*ready)(struct tn_service *svc, const struct tn_spec *spec, struct err *error);
    /* Is a campaign possible at all on what it has? */
    int (*admit)(const struct tn_service *svc, const struct tn_spec *spec, struct err *error);
    /* Hold the cores (or what else it needs) of layout L: false when they are busy. */
    bool (*reserve)(struct tn_attempt *attempt);
    void (*release)(struct tn_attempt *attempt);
    /* Would somebody run another trial of this campaign now? NULL: as many as search.parallel. */
    bool (*wanted)(const struct tn_campaign *campaign);
    int (*start)(struct tn_attempt *attempt, struct err *error);
    /* Find it again after a restart: 1 it lives and is watched, 0 it is dead and attempt->exit is
     * set. */
    int (*adopt)(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error);
    void (*stop)(struct tn_attempt *attempt);
    /* The rest may be NULL. Every tick of a live attempt. */
    void (*tick)(struct tn_attempt *attempt);
    /* The last process that ran under a supervisor here is gone; NULL: the attempt has ended. */
    void (*gone)(struct tn_attempt *attempt);
    /* End what an attempt of a former daemon left running elsewhere: its campaign cannot be brought
     * back. */
    void (*forget)(struct tn_service *svc, const struct db_attempt *row);
};

/* A step that a line told of. */
struct tn_step_line {
    int64_t n;
    double ms;
    char *json; /* owned; NULL: the line itself is the step's JSON */
};

/* What is run in a trial, and how its results are read. */
struct tn_trainer {
    const char *name;
    int (*ready)(struct tn_service *svc, const struct tn_spec *spec, struct err *error);
    /* Write what the program needs into attempt->folder, and give its command line (without
     * mpiexec). Where it fails for the layout's own fault, attempt->seen has the error. */
    int (*prepare)(struct tn_attempt *attempt, struct tn_argv *argv, struct err *error);
    /* File of the attempt's folder that is followed (NULL: none but stdout and stderr), whether
     * those are read, too, and the reading of one line. */
    const char *results;
    bool logs;
    enum tn_line (*line)(struct tn_attempt *attempt, enum tn_stream stream, const char *text,
                         size_t len, struct tn_step_line *ret);
    /* The rest may be NULL. */
    bool (*direct)(const struct tn_attempt *attempt); /* no mpiexec: it starts its ranks itself */
    void (*environment)(const struct tn_attempt *attempt, struct tn_argv *env);
    const char *(*directory)(
        const struct tn_attempt *attempt); /* to start in; NULL: the attempt's folder */
    const char *(*results_of)(const struct tn_attempt *attempt);
    void (*tick)(struct tn_attempt *attempt);
    void (*finish)(struct tn_attempt *attempt); /* its last process is gone, all lines are read */
};

/* An attempt under partune-run on this machine (supervised.c): the common part of launchers. */

/* partune-run's own command line up to "--"; CPUS, which may be NULL, is the list it is bound to.
 */
void tn_supervised_argv(struct tn_argv *argv, const struct tn_attempt *attempt, const char *cpus);
/* What a trial may see of our environment, its mark and its trainer's variables. */
void tn_supervised_env(struct tn_argv *env, const struct tn_attempt *attempt);
/* Start and watch; the launcher's gone(), or tn_attempt_ended(), is called at its end. */
int tn_supervised_spawn(struct tn_attempt *attempt, char **argv, char **env, struct err *error);
/* 1: it lives and is watched, 0: it is dead, or will never start. */
int tn_supervised_adopt(struct tn_attempt *attempt, struct err *error);
void tn_supervised_stop(struct tn_attempt *attempt);
void tn_supervised_tick(struct tn_attempt *attempt);
/* End the attempt in FOLDER, of which there is nothing in memory, and wait until it is gone. */
void tn_supervised_end(struct tn_service *svc, const char *folder, const char *mark);
void tn_process_closed(uv_handle_t *handle); /* of a supervisor that was our child */

extern const struct tn_launcher tn_launcher_local;
extern const struct tn_launcher tn_launcher_simulated;
extern const struct tn_launcher tn_launcher_remote;
extern const struct tn_launcher tn_launcher_slurm;
void tn_slurm_watch(struct tn_service *svc); /* ask after its jobs from now on */
void tn_slurm_close(struct tn_service *svc);
/* Are Slurm's commands there, and did its controller answer the last time it was asked? */
int tn_slurm_health(const struct tn_service *svc, struct err *error);
extern const struct tn_trainer tn_trainer_partune;
/* What the bundled trainer reads by --config. */
json_t *tn_trainer_config(const struct tn_attempt *attempt);
const struct tn_trainer *tn_trainer_external(const struct tn_service *svc,
                                             const char *name); /* or NULL */
const struct tn_launcher *tn_launcher_find(const char *name);
const struct tn_trainer *tn_trainer_find(const struct tn_service *svc, const char *name);
const char *const *tn_launcher_names(void);

/* ---- launch/remote/ -----------------------------------------------------------------------------
 */

enum { TN_WORKER_TEXT = 64 };

/* A worker that waits for a trial. */
struct tn_ask {
    struct tn_ask *next;
    char campaign[TN_ID_TEXT], worker[TN_WORKER_TEXT];
    int devices;    /* that it has; 0: not said */
    uint64_t until; /* monotonic ms */
    bool given;     /* an attempt is being started for it */
    tn_asked_fn *fn;
    void *ctx;
};

/* Answer ASK, which is freed. */
void tn_ask_answer(struct tn_service *svc, struct tn_ask *ask, int result, json_t *owned_answer,
                   const struct err *error);
void tn_asks_tick(struct tn_service *svc); /* answer those that have waited long enough */
double tn_lease_seconds(const struct tn_spec *spec);
void tn_lease_renew(struct tn_attempt *attempt);
json_t *tn_lease_json(const struct tn_attempt *attempt); /* what the worker gets */
const char *tn_lease_worker(const char *job);
struct tn_worker;
struct tn_worker *tn_worker_seen(struct tn_service *svc, const char *name);
void tn_workers_free(struct tn_service *svc);

/* ---- command.c ----------------------------------------------------------------------------------
 */

/* STATUS: of the program's exit, 128 + signal, or a negative errno when it could not be run to its
 * end. */
typedef void tn_command_fn(void *arg, int status, const char *out, const char *error);
/* Run ARGV for its answer; FN is called once, from the loop, unless the service closes first. ENV
 * NULL: ours. */
void tn_command_run(struct tn_service *svc, const struct tn_argv *argv, const struct tn_argv *env,
                    int timeout_ms, tn_command_fn *fn, void *arg);
/* The service closes: no answer will come. */
void tn_command_forget_all(struct tn_service *svc);

/* ---- retain.c -----------------------------------------------------------------------------------
 */

void tn_retain_open(struct tn_service *svc);
void tn_retain_tick(struct tn_service *svc); /* remove what is kept for too long, or too much */
/* -EDQUOT: no file of a trial may be made now. */
int tn_retain_room(const struct tn_service *svc, struct err *error);
void tn_retain_stats(const struct tn_service *svc, struct tn_stats *ret);
/* Remove the folder PATH of the data directory: it is gone at once, its files a while later. */
int tn_trash(struct tn_service *svc, const char *path, struct err *error);

/* ---- removal.c ----------------------------------------------------------------------------------
 */

int tn_removal_open(struct tn_service *svc, struct err *error); /* go on with what is left */
void tn_removal_go(struct tn_service *svc); /* something was deleted, or has become old */
void tn_removal_close(struct tn_service *svc);

/* ---- webhook.c ----------------------------------------------------------------------------------
 */

/* Read [webhook "NAME"], and tell the store's triggers what to make deliveries of. */
int tn_webhooks_open(struct tn_service *svc, struct err *error);
int tn_webhooks_check(const struct conf *conf, struct err *error); /* only read it */
void tn_webhooks_tick(struct tn_service *svc);                     /* send what is due */
void tn_webhooks_close(struct tn_service *svc);

/* ---- service.c ----------------------------------------------------------------------------------
 */

struct tn_service {
    uv_loop_t *loop;
    struct tn_config config; /* strings are owned */
    char *data_dir, *instance;
    char *mpiexec, *train, *supervisor; /* absolute, or NULL where not found */
    int lock_fd;
    struct db *db;
    struct db_writer *writer;
    struct pl_cluster *local;
    struct tn_hosts *hosts; /* of config.hosts; NULL: this machine only */
    struct tn_slots slots;  /* cores of this machine, or of all hosts */
    struct tn_campaign *campaigns;
    struct tn_revival *revivals; /* campaigns that are being brought back */
    struct tn_attempt *attempts;
    uv_prepare_t turn;           /* runs the scheduler once when something changed */
    uv_async_t wake;             /* a commit brought events */
    uv_timer_t clock;            /* wall budgets, retries, housekeeping */
    struct tn_command *commands; /* that have not answered */
    struct tn_slurm *slurm;      /* NULL until it is used */
    struct tn_subscription *subscriptions;
    int64_t delivered; /* last event id */
    int works;         /* jobs in libuv's pool, and campaigns that are being brought back */
    int processes;     /* uv_process_t that are open */
    bool kicked, stopping, closing;
    atomic_bool ending; /* work beside the loop is no longer wanted. Any thread */
    enum tn_stop stop_how;
    void (*stopped)(void *arg);
    void *stopped_arg;
    uint64_t last_end; /* monotonic us of the last trial's end, for the overhead */
    struct tn_stats stats;
    pthread_mutex_t text_lock;
    struct tn_ask *asks;       /* workers that wait, the longest first */
    struct tn_worker *workers; /* heard of in the last day */
    struct tn_webhooks *webhooks;
    uint64_t trim_at; /* monotonic ms: when old events go next */
    struct tn_retain *retain;
    struct tn_removal *removal;
    json_t *texts; /* cache of tn_campaign_text: id -> {rev, text} */
};

uint64_t tn_now_ms(void);
/* Run JOB on the writer, wait, and wake the subscribers. */
int tn_write(struct tn_service *svc, db_job_fn *job, void *arg, struct err *error);
void tn_events_ready(struct tn_service *svc); /* any thread */
void tn_check_stopped(struct tn_service *svc);

#endif
