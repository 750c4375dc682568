/* Shared by the HTTP handlers of this folder only. */
#ifndef TUNER_API_H
#define TUNER_API_H

#include "tuner/tuner.h"
#include "web/web.h"

struct tn_watcher;

/* web_ctx() of every request. */
struct tn_http {
    struct tn_service *svc;
    struct web_server *web;
    uv_loop_t *loop;
    char *token;
    char *local_hash; /* of the token file's token, which is not in the database */
    uv_timer_t token_timer;
    json_t *tokens; /* {hash: id} of those that the server knows */
    struct tn_watcher *watchers;
    struct tn_subscription *subscription;
    struct arena arena; /* of what lives as long as this */
    int64_t started_ms;
    bool closing;
};

extern const struct web_route tn_api_routes[];
extern const struct web_param tn_api_params[];

/* ---- answer.c ------------------------------------------------------------ */

struct tn_http *tn_api_http(struct web_request *rq);
struct tn_service *tn_api_svc(struct web_request *rq);

/* 400 for a wrong query parameter. */
void tn_api_bad_query(struct web_request *rq, const struct err *error);
/* A problem with the broken rules, which are taken (NULL: none). */
void tn_api_rules(struct web_request *rq, const struct err *error, json_t *owned_rules);
/* RESULT is what an operation returned: V (taken on success) with STATUS, or the problem. */
void tn_api_answer(struct web_request *rq, int result, int status, json_t *owned_v,
                   const struct err *error);
/* What web_offload() did not call its work for: -ECANCELED, to be set beforehand. */
int tn_api_unwanted(struct err *error);
/* All of a short list as one page, which is taken; still takes page_size and page_token. */
void tn_api_whole(struct web_request *rq, json_t *owned_all);
/* Filter, order and page of a list; SORTS are the keys that sort= may name, STATES what state= may
 * be. False: 400 was answered. */
bool tn_api_filter(struct db_filter *ret, struct web_request *rq, const char *const *sorts,
                   const char *const *states);

/* ---- plan.c -------------------------------------------------------------- */

/* Model, cluster, workload, trainer and stack of a body that describes a job. */
struct tn_api_job {
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
    const struct pl_trainer *trainer;
    struct pl_trainer stacked; /* TRAINER as the body's stack runs it; no name: as by itself */
    double headroom;           /* share of device memory that is left free */
    bool takes_parts;          /* a cluster may have parts: set beforehand, in a job that stays */
    struct pl_parts parts;     /* of such a cluster */
};

int tn_api_job_parse(struct tn_api_job *ret, struct tn_service *svc, const json_t *body,
                     struct err *error);
/* Points into JOB. */
struct pl_problem tn_api_job_problem(const struct tn_api_job *job);

/* ---- plan_item.c --------------------------------------------------------- */

/* One layout of a plan of JOB, or of PART of its cluster's parts alone (-1: of the whole). New
 * reference. */
json_t *tn_api_plan_item(const struct pl_plan_entry *entry, const struct tn_api_job *job, int part,
                         bool families);
/* {"name", "devices", "best": item or null, "reason"}: PART of JOB's parts without the other, of
 * SPACE, while PATIENCE lasts. New reference. */
json_t *tn_api_plan_alone(const struct tn_api_job *job, int part, const struct pl_space *space,
                          enum pl_objective objective, const struct pl_patience *patience);

/* ---- tokens, answers, audit: token.c; events: event.c -------------------- */

int tn_api_tokens_load(struct tn_http *http, struct err *error);
void tn_api_tokens_watch(struct tn_http *http);
struct web_idempotency tn_api_answers(struct tn_http *http);
void tn_api_audit(void *ctx, struct web_request *rq, int status);
void tn_api_events_start(struct tn_http *http);
void tn_api_events_stop(struct tn_http *http);

/* ---- handlers ------------------------------------------------------------ */

web_handler tn_api_campaign_list, tn_api_campaign_create, tn_api_campaign_show,
    tn_api_campaign_patch, tn_api_campaign_delete, tn_api_campaign_pause, tn_api_campaign_resume,
    tn_api_campaign_cancel, tn_api_campaign_clone, tn_api_campaign_verify;
web_handler tn_api_trial_list, tn_api_trial_show, tn_api_trial_steps, tn_api_trial_log,
    tn_api_trial_timeline, tn_api_trial_why;
web_handler tn_api_best, tn_api_baseline, tn_api_importance, tn_api_pareto, tn_api_predictions,
    tn_api_surface, tn_api_diagnosis, tn_api_export, tn_api_compare;
web_handler tn_api_suggest, tn_api_heartbeat, tn_api_complete, tn_api_workers;
web_handler tn_api_results_csv, tn_api_results_jsonl;
web_handler tn_api_events;
web_handler tn_api_check, tn_api_size, tn_api_plan, tn_api_project, tn_api_example, tn_api_examples,
    tn_api_models, tn_api_model, tn_api_clusters, tn_api_cluster, tn_api_stacks, tn_api_stack,
    tn_api_datasets, tn_api_exporters, tn_api_import;
web_handler tn_api_healthz, tn_api_readyz, tn_api_metrics;
web_handler tn_api_token_list, tn_api_token_create, tn_api_token_delete;

#endif
