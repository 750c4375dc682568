/*
 * The search of one campaign, its lock and its work on other threads. Owns the search and its spec.
 */
#ifndef TUNER_ENGINE_H
#define TUNER_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "search/search.h"
#include "tuner/core/spec.h"

/* The search of a campaign. Counted by reference; `lock` guards the search, which the loop never
 * waits for. */
struct tn_engine {
    atomic_int refs;
    pthread_mutex_t lock;
    struct tn_spec *spec;
    struct se_search *search;
    int64_t *n_of; /* trial number by search id */
    int ids, cap;
    struct se_predicted *said; /* what was last said of smaller trials, by search id (infer.c) */
    int said_cap;
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
/* The search of a stored campaign, built anew; any thread, DB of that thread, or a connection of
 * its own. AT_WORK: it will propose trials; else it only answers questions. -ECANCELED once
 * *UNWANTED is set. */
int tn_engine_rebuild(struct tn_engine **ret, const struct tn_service *svc, struct db *db,
                      const char *id, bool at_work, const atomic_bool *unwanted, struct err *error);
int tn_engine_rebuild_from_file(struct tn_engine **ret, const struct tn_service *svc,
                                const char *id, bool at_work, const atomic_bool *unwanted,
                                struct err *error);

struct tn_tell {
    struct tn_tell *next;
    int id;
    struct se_outcome outcome;
};
/* What the search makes of smaller trials for the full size (infer.c). */
struct tn_inferred {
    int64_t n; /* the trial */
    struct se_predicted full;
};
/* Those of which it expects something else than was last said, which is said now: *RET_COUNT of
 * them, to be freed. Any thread, lock held. */
struct tn_inferred *tn_infer(int *ret_count, struct tn_engine *en);
/* Store COUNT of them with their trials. Loop thread. */
void tn_infer_store(struct tn_service *svc, const char *campaign, const struct tn_inferred *list,
                    int count);
/* What a settled trial teaches (outcome.c); SE_DISCARD: nothing. */
void tn_outcome_of(struct se_outcome *ret, const struct db_trial *trial);

/* What is known of a campaign's space: LEGAL and FITTING layouts, at least so many unless EXACT. */
struct tn_space {
    size_t legal, fitting;
    size_t fitting_on[SE_MAX_CLUSTERS]; /* of fitting, on each cluster */
    bool exact;
    char reason[sizeof(((struct err *)0)->text)]; /* why none is fitting, or "" */
};
/* {"legal", "fitting", "exact", "keys"}, as a campaign's "space". */
json_t *tn_space_json(const struct tn_space *space, const struct tn_spec *spec);
/* Will the search of SPEC hold LAYOUT? */
bool tn_searches(const struct tn_spec *spec, const struct pl_layout *layout);
/* Count the spaces of all clusters of SPEC, as /v1/plan counts one; without a reason. */
void tn_space_count(struct tn_space *ret, const struct tn_spec *spec,
                    const struct pl_patience *patience);

#endif
