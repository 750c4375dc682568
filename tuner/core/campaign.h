/*
 * Campaigns that are in memory (campaign_memory.c), and the operations on them (campaign.c).
 * Owns each campaign with its engine and the trials of its queue.
 */
#ifndef TUNER_CAMPAIGN_H
#define TUNER_CAMPAIGN_H

#include "search/search.h"
#include "tuner/core/campaign_log.h"
#include "tuner/results/trace.h"
#include "tuner/tuner.h"

struct tn_engine;
struct tn_spec;
struct tn_tell;

enum { TN_ID_TEXT = 16 };

/* A trial that waits for its next attempt, or has one. */
struct tn_trial {
    struct tn_trial *next;
    struct tn_campaign *campaign;
    int64_t n, search_id, attempts;
    char kind[12];
    int fidelity;            /* number of the campaign's fidelity; 0: the full size */
    struct pl_layout layout; /* at full size: what it is about */
    struct pl_reduced run;   /* what is run: the campaign's problem, or what the fidelity leaves */
    uint64_t not_before;     /* monotonic ms: a pause before the next attempt */
    uint64_t no_room;        /* monotonic ms: since when it waits for cores; 0: it does not */
};

/* Verification at work: pairs of trials, winner first in even pairs, baseline first in odd ones. */
struct tn_verify {
    int pairs, steps;
    int64_t winner_n, baseline_n;
    struct pl_layout winner, baseline;
    int64_t first_n; /* its trials are those of kind verify from here on */
    int added;
};

/* How the reason of a running campaign starts whose next trial nobody there can run. */
#define TN_AWAITS "waiting for "

struct tn_campaign {
    struct tn_campaign *next;
    struct tn_service *svc;
    char id[TN_ID_TEXT];
    char traceparent[TN_TRACEPARENT_TEXT];
    const char *state; /* running, paused or verifying; others are in memory only to drain */
    struct tn_engine *engine;
    struct tn_trial *queue; /* ascending n */
    int running;            /* attempts */
    int open;               /* trials that are not settled, verification excepted */
    int asked;              /* trials added, as the budget counts them */
    struct tn_tell *tells;
    bool asking, refitting, waiting;
    bool wanting;     /* what it asks for is a trial */
    unsigned avoided; /* clusters that it was not asked for, as se_avoid() */
    const char *done; /* why the search ends, or NULL */
    double active_s;
    uint64_t active_since; /* monotonic ms; 0: not active */
    double device_s;
    double cost;       /* of its ended attempts, where budget.cost limits it */
    char awaits[240];  /* its reason, which starts with TN_AWAITS; "": it awaits nothing */
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
/* Change the state in the database and in memory, with its event. */
int tn_campaign_change(struct tn_service *svc, const char *id, const char *from, const char *to,
                       const char *reason, struct err *error);
/* Tell what CAMPAIGN, which is running or verifying, awaits (a reason as above; "": nothing) in the
 * database and in memory, with its event; where it is told already, nothing happens. */
int tn_campaign_await(struct tn_campaign *campaign, const char *awaits, struct err *error);
/* RUN: what it runs, of ROW's fidelity; NULL: LAYOUT at full size, in SPEC's problem. */
struct tn_trial *tn_trial_new(const struct db_trial *row, const struct tn_spec *spec,
                              const struct pl_layout *layout, const struct pl_reduced *run);
void tn_campaign_clear_queue(struct tn_campaign *campaign);
void tn_campaign_enqueue(struct tn_campaign *campaign, struct tn_trial *trial);

/* Add the trial CHOSEN of the search to the store and the queue; its number. RUN: what it runs, at
 * a fidelity. */
int tn_trial_add_chosen(int64_t *ret_n, struct tn_campaign *campaign, const struct se_trial *chosen,
                        const struct pl_reduced *run, int64_t repeat_of, const char *kind,
                        struct err *error);
/* Add a trial that the search did not choose (verification). */
int tn_trial_add(int64_t *ret_n, struct tn_campaign *campaign, const struct pl_layout *layout,
                 int64_t repeat_of, const char *kind, const char *why, struct err *error);

/* ---- run.c --------------------------------------------------------------- */

/* The problem that TRIAL runs; borrows from it and its campaign. */
struct pl_problem tn_trial_problem(const struct tn_trial *trial);
/* The cluster that it runs on. */
const struct pl_cluster *tn_trial_cluster(const struct tn_trial *trial);
double tn_trial_tokens(const struct tn_trial *trial); /* a step, as it is run */
/* {"layers", "global_batch", "layout", "text", "devices"} of RUN, as a trial's "run". */
json_t *tn_run_json(const struct pl_reduced *run);
/* The trial of ROW, which is ENGINE's. */
int tn_trial_read(struct tn_trial **ret, const struct db_trial *row, const struct tn_engine *engine,
                  struct err *error);

#endif
