/*
 * Workers and their leases: who waits (asks.c), the launcher and what it leases (lease.c), the
 * operations of the API (workers.c). Owns the workers that wait.
 */
#ifndef TUNER_REMOTE_H
#define TUNER_REMOTE_H

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"

struct tn_spec;

enum { TN_WORKER_TEXT = 64 };

/* A worker that waits for a trial. */
struct tn_ask {
    struct tn_ask *next;
    char campaign[TN_ID_TEXT], worker[TN_WORKER_TEXT];
    char cluster[64]; /* that it is on; "": not said */
    int devices;      /* that it has; 0: not said */
    uint64_t until;   /* monotonic ms */
    bool given;       /* an attempt is being started for it */
    tn_asked_fn *fn;
    void *ctx;
};

/* What the launcher knows of an attempt. */
struct tn_lease {
    struct tn_ask *ask; /* the worker that will get it, between reserve and start */
    uint64_t until;     /* monotonic ms: the worker must be heard of before then */
    int64_t lines;      /* events that it has sent */
};

/* A worker that was heard of. */
struct tn_worker {
    struct tn_worker *next;
    char name[TN_WORKER_TEXT];
    char campaign[TN_ID_TEXT], cluster[64]; /* of which it has asked last, and where it is */
    int64_t seen;                           /* wall clock */
    int devices;
    int64_t completed;
};

/* ---- asks.c -------------------------------------------------------------- */

/* Worker NAME was heard of just now. */
struct tn_worker *tn_worker_seen(struct tn_service *svc, const char *name);
void tn_workers_free(struct tn_service *svc);

/* Answer ASK, which is freed. */
void tn_ask_answer(struct tn_service *svc, struct tn_ask *ask, int result, json_t *owned_answer,
                   const struct err *error);
/* An answer without a trial: STATE is "wait" or "done", REASON may be NULL. */
json_t *tn_ask_no_trial(const char *state, const char *reason);
/* What a worker that asks for campaign ID is told without a trial: an answer, or NULL while one may
 * still come. LATE: it has waited as long as it wanted. */
json_t *tn_ask_early(struct tn_service *svc, const char *id, bool late);
void tn_asks_tick(struct tn_service *svc); /* answer those that have waited long enough */

/* ---- lease.c ------------------------------------------------------------- */

double tn_lease_seconds(const struct tn_spec *spec);
void tn_lease_renew(struct tn_attempt *attempt);
json_t *tn_lease_json(const struct tn_attempt *attempt); /* what the worker gets */
const char *tn_lease_worker(const char *job);            /* its name; "" where JOB has none */

#endif
