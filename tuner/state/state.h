/*
 * What the daemon has only once: its directory, its store, its loop, and the head of each list.
 *
 * The database is the truth. What is in memory can be rebuilt from it at any time, and is after a
 * restart. Owns the store and its events; each list belongs to the module that is named beside it.
 */
#ifndef TUNER_STATE_H
#define TUNER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "tuner/machine/command.h"
#include "tuner/machine/slots.h"
#include "tuner/tuner.h"

struct tn_attempt;
struct tn_campaign;
struct tn_hosts;
struct tn_kinds;

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
    uv_prepare_t turn; /* runs the scheduler once when something changed */
    uv_async_t wake;   /* a commit brought events */
    uv_timer_t clock;  /* wall budgets, retries, housekeeping */
    struct tn_commands commands;
    const struct tn_kinds *kinds; /* the launchers and trainers that there are (core/kinds.h) */
    struct tn_slurm *slurm;       /* NULL until it is used */
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
/* Hand the rows that are new to the subscribers. */
void tn_events_deliver(struct tn_service *svc);
/* Something happened that the scheduler may want to know: a trial ended or waits, a campaign came
 * or changed. It looks on the loop's next turn; whoever says so knows nothing of it. */
void tn_changed(struct tn_service *svc);

#endif
