/*
 * What the daemon has only once: its directory, its store, its loop; and the parts that its modules
 * own. A function asks for the part that it needs; service.h has them all.
 *
 * The database is the truth. What is in memory can be rebuilt from it at any time, and is after a
 * restart.
 */
#ifndef TUNER_STATE_H
#define TUNER_STATE_H

#include <stdatomic.h>

#include "tuner/tuner.h"

/* ---- parts --------------------------------------------------------------- */

/* How far the daemon is on its way: service/ sets it, everybody looks. */
struct tn_phase {
    bool stopping, closing;
    enum tn_stop stop_how;
    bool kicked;        /* something changed: the scheduler looks on the loop's next turn */
    int works;          /* jobs in libuv's pool, and campaigns that are being brought back */
    atomic_bool ending; /* work on other threads is no longer wanted. Any thread */
};
struct tn_phase *tn_phase(const struct tn_service *svc);

struct tn_kinds;
struct tn_launching;
struct tn_machine;
struct tn_work;
const struct tn_kinds *tn_kinds_of(const struct tn_service *svc); /* core/kinds.h */
struct tn_work *tn_work(const struct tn_service *svc);            /* core/work.h */
struct tn_launching *tn_launching(const struct tn_service *svc);  /* launch/launch.h */
struct tn_machine *tn_machine(const struct tn_service *svc);      /* machine/machine.h */

const struct tn_config *tn_settings(const struct tn_service *svc);
uv_loop_t *tn_loop(const struct tn_service *svc);

/* ---- time, store, events ------------------------------------------------- */

uint64_t tn_now_ms(void);
/* Run JOB on the writer, wait, and wake the subscribers. */
int tn_write(struct tn_service *svc, db_job_fn *job, void *arg, struct err *error);
void tn_events_ready(struct tn_service *svc); /* any thread */
/* Hand the rows that are new to the subscribers. */
void tn_events_deliver(struct tn_service *svc);
/* Something happened that the scheduler may want to know: a trial ended or waits, a campaign came
 * or changed. It looks on the loop's next turn; the caller knows nothing of it. */
void tn_changed(struct tn_service *svc);

#endif
