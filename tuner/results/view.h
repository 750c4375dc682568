/*
 * Resources as JSON, what the measurements say, and their events. Owns nothing: all is read from
 * the store.
 */
#ifndef TUNER_VIEW_H
#define TUNER_VIEW_H

#include "search/search.h"
#include "tuner/tuner.h"

/* ---- field.c ------------------------------------------------------------- */

json_t *tn_number(double number); /* null for NAN */
json_t *tn_time(int64_t ms);      /* RFC 3339, null for DB_NULL */

/* ---- simulated.c --------------------------------------------------------- */

/* The launcher whose results are no measurements: so do the store and the API call it. */
#define TN_SIMULATED "simulated"
bool tn_is_simulated(const char *launcher); /* its name; NULL: no */
/* Are the results of campaign ID the simulator's, no measurements? Its launcher says so. */
int tn_simulated(bool *ret, struct db *db, const char *id, struct err *error);
/* What the log puts behind a campaign's id: nothing, or that it is simulated. */
const char *tn_simulated_mark(const char *launcher);

/* ---- measure.c ----------------------------------------------------------- */

enum { TN_BASELINE = 1 }; /* which trial of every campaign the baseline is */

/* What a campaign's results are judged by. RESOLVED: its column of that name, parsed. */
struct tn_terms {
    enum pl_objective objective;
    const json_t *cluster; /* RESOLVED's: an object, or a list of several */
    bool simulated;
};
/* Borrows from RESOLVED. */
struct tn_terms tn_terms_of(const struct db_campaign *campaign, const json_t *resolved);

/* All measurements of one layout, pooled. */
struct tn_measure {
    int64_t n; /* the first trial of the layout */
    const char *layout, *text;
    double mean, lo, hi, mfu, memory;
    struct se_pooled per_joule; /* tokens/J with its own interval; NAN: some run had no joules */
    int count, devices;
    double price; /* of a device-hour; known with objective tokens_per_cost, else NAN */
};
/* Price of a device-hour where LAYOUT, a text of JSON, runs; NAN: unknown. */
double tn_price(const struct tn_terms *terms, const char *layout);
int tn_measure_get(struct tn_measure *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, struct err *error); /* -ENOENT without a success */
/* *RET_TIED (may be NULL): the trials whose interval reaches that of the best. -ENOENT while there
 * is none. */
int tn_measure_best(struct tn_measure *ret, json_t **ret_tied, struct db *db, struct arena *arena,
                    const struct db_campaign *campaign, struct err *error);
/* The same of the layouts in SLICE; NULL: of all. */
int tn_measure_best_of(struct tn_measure *ret, json_t **ret_tied, struct db *db,
                       struct arena *arena, const struct db_campaign *campaign,
                       const struct db_slice *slice, struct err *error);
/* The pooled value by OBJECTIVE; in tokens_per_joule it may be NAN. PRICE as tn_price(). */
struct se_pooled tn_measure_value(const struct tn_measure *measure, enum pl_objective objective,
                                  double price);
/* What a million tokens cost, in device-seconds. */
double tn_device_s_per_mtoken(const struct tn_measure *measure);
/* As a Standing. BASELINE: NULL where it has not succeeded. */
json_t *tn_measure_json(const struct tn_measure *measure, const struct tn_measure *baseline,
                        const struct tn_terms *terms);

/* ---- earlier.c ----------------------------------------------------------- */

#define TN_PROJECTION "projection-" /* how names of artifacts that are projections start */
/* *RET = a Projection's "earlier", a new reference on errors, too. */
int tn_project_earlier(json_t **ret, struct db *db, struct arena *arena, struct err *error);

/* ---- trial_text.c -------------------------------------------------------- */

/* A trial as text, of a campaign that is SIMULATED, or is not. */
void tn_trial_text(struct str *out, const struct db_trial *trial, bool simulated);

/* ---- view.c -------------------------------------------------------------- */

json_t *tn_trial_view(const struct db_trial *trial, bool simulated); /* the same as JSON */
int tn_campaign_view(json_t **ret, struct db *db, const struct db_campaign *campaign,
                     bool with_spec, struct err *error);
/* Who chose the campaign's baseline: "default", "naive", or "given" as a layout. */
const char *tn_baseline_rule(const struct db_campaign *campaign);

/* Add an event with the resource's present form; WRITER is the writer's connection. */
int tn_event_campaign(struct db *writer, const char *id, struct err *error);
int tn_event_trial(struct db *writer, const char *id, int64_t trial, struct err *error);
int tn_event_best(struct db *writer, const char *id, struct err *error);

#endif
