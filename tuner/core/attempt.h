/*
 * One launch of a trial, from start or adoption to its end. Owns its folder, its handles and, while
 * it lives, its trial.
 */
#ifndef TUNER_ATTEMPT_H
#define TUNER_ATTEMPT_H

#include <uv.h>

#include "tuner/machine/gpu_slots.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/slots.h"
#include "tuner/output/log_state.h"
#include "tuner/output/observe.h"
#include "tuner/tuner.h"

struct tn_batch;
struct tn_campaign;
struct tn_launcher;
struct tn_trainer;
struct tn_trial;

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
    char job[160]; /* id in a foreign scheduler, or LEASE@WORKER of a remote one */
    struct pl_trial_limits limits;
    int cpus[TN_MAX_CORES], ncpus;
    struct tn_gpus_held gpus;
    struct tn_seen seen;
    struct tn_reader reader[TN_STREAMS];
    struct tn_log_state log;
    int64_t stored;         /* events before this offset are in the database */
    struct tn_batch *batch; /* steps of this turn, on their way into the database */
    uint64_t started, last_event, last_step_event; /* monotonic ms */
    enum tn_stop_reason stop;
    double bound; /* tokens/s at most, of a pruned one */
    bool run_recorded, ended;
    bool unadopted; /* it could not be told yet whether it lives: try again */
    struct tn_exit exit;
    char trouble[400]; /* what the launcher found, for the failure's detail */
    bool machine_lost; /* it is no fault of the trial */
    bool was_adopted;
    /* The outcome that a foreign scheduler knows better than the exit code does, and whether the
     * job may still wait in its queue. */
    const char *verdict;
    bool waits;
    void *launch; /* what the launcher alone knows: launcher->state bytes, zero at first */
    uv_timer_t tick;
    int handles; /* open libuv handles, the launcher's too: freed at 0 */
};

/* Close callback of a launcher's handle: its data is the attempt, and it counts in `handles`. */
void tn_attempt_closed(uv_handle_t *handle);

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
/* The daemon ends: close handles, leave processes. */
void tn_attempt_abandon(struct tn_attempt *attempt);

/* Record the end of an attempt: one transaction. Negative: the store cannot be written, try again.
 */
int tn_settle(struct tn_attempt *attempt, struct err *error);

#endif
