/*
 * Leases (lease.c) and the workers that ask for them (workers.c). Owns the workers that wait.
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
    int devices;    /* that it has; 0: not said */
    uint64_t until; /* monotonic ms */
    bool given;     /* an attempt is being started for it */
    tn_asked_fn *fn;
    void *ctx;
};

/* What the launcher knows of an attempt. */
struct tn_lease {
    struct tn_ask *ask; /* the worker that will get it, between reserve and start */
    uint64_t until;     /* monotonic ms: the worker must be heard of before then */
    int64_t lines;      /* events that it has sent */
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

#endif
