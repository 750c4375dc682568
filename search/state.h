/*
 * The state of a search, shared by the files of the engine and private to them.
 *
 * Invariants: closed[i] is set if layout i was handed out and not discarded; every surrogate
 * matches the outcomes told, without fantasies; trials are in order of registration.
 */
#ifndef SEARCH_STATE_H
#define SEARCH_STATE_H

#include "base/rng.h"
#include "search/acquire.h"
#include "search/crash.h"

struct se_record {
    int id;
    size_t index; /* of the table */
    int repeat_of;
    int fidelity;    /* 0: full size, else of the spec's fidelities, from 1 */
    double shift;    /* log of what it measures, less that at full size in the table's unit */
    double device_s; /* that it is expected to cost */
    bool settled;
    struct se_outcome outcome;
};

/* A bound on memory or throughput is as sharp as one allocation, or one step, of a trial. */
#define SE_SHARPNESS 0.01

enum { SE_HOT = 64 };

struct se_search {
    struct se_spec spec;
    struct se_table *table;
    struct se_surrogate surrogate[SE_QUANTITIES];
    struct se_crash crash;
    uint8_t *closed;
    struct se_record *record;
    int nrecords, cap;
    int outstanding, settled, succeeded, repeats;
    int next_id;
    struct rng rng;              /* of the random method */
    size_t cursor;               /* of the grid */
    int nsources, source_trials; /* earlier campaigns that inform it */
    struct {
        int n; /* trials that told watts; of the log of those over the prior's: */
        double sum, squares;
    } watts;
    double spent;
    unsigned avoided;     /* clusters, as se_avoid() */
    double regret;        /* expected, relative, at the last ask; negative before */
    size_t exact;         /* exact posteriors at the last ask */
    uint32_t hot[SE_HOT]; /* the best layouts of the last ask */
    size_t nhot;
    bool proved;
    const char *done;
};

/* se_search_new_over() without the earlier campaigns. */
int se_search_alone(struct se_search **ret, const struct se_spec *spec,
                    const struct pl_layout *layouts, size_t count, struct err *error);
struct se_record *se_record_find(const struct se_search *search, int id);
/* Is layout INDEX on a cluster that is avoided now? */
bool se_avoids(const struct se_search *search, size_t index);
/* A success at full size: what winners are chosen from. */
static inline bool se_record_counts(const struct se_record *record)
{
    return record->settled && record->fidelity == 0 && record->outcome.status == SE_OK;
}

/* Add the observations in OUTCOME of layout INDEX at FIDELITY; se_surrogate_update() or _fit() must
 * follow. */
void se_learn(struct se_search *search, size_t index, int fidelity,
              const struct se_outcome *outcome);
/* An outcome from an object like {"status", "tokens_per_s", ...}. */
int se_outcome_parse(struct se_outcome *ret, const json_t *json, struct err *error);
/* Log of its tokens/s less that of their value by the objective, of layout INDEX. */
double se_unit(const struct se_search *search, size_t index);
/* Log of what a success measured of the objective: tokens/joule, else tokens/s. */
double se_log_measured(const struct se_search *search, const struct se_outcome *outcome);
/* With objective tokens_per_joule: what OUTCOME of RUN says of the prior's watts; log of the factor
 * by which they err; log of the watts that a job of LOG_WATTS by the prior draws at least (minus
 * infinity: not known yet). With others: nothing, 0 and 0. */
struct se_run;
void se_watts_learn(struct se_search *search, const struct se_run *run,
                    const struct se_outcome *outcome);
double se_watts_error(const struct se_search *search);
double se_watts_least(const struct se_search *search, double log_watts);
/* Expected relative improvement of the best of CANDIDATE over the incumbent, by joint samples with
 * WIDEN times the fitted standard deviations. */
double se_expected_regret(const struct se_search *search, const struct se_candidate *candidate,
                          size_t count, size_t incumbent, double widen);
/* Trials without improvement by SE_GAIN before a campaign may end: the more, the more its surrogate
 * errs. */
#define SE_GAIN 0.01
int se_patience(const struct se_search *search);
/* Leave-one-out residuals of HYP at the exact observations, without hints, and their variance from
 * noise alone, as se_gp_residuals(); room for SURROGATE->nobs each. How many. */
int se_own_residuals(double *ret_error, double *ret_noise, const struct se_surrogate *surrogate,
                     const struct se_hyp *hyp);
/* Measured layouts: their posterior. */
struct se_leader {
    size_t index;
    int id;       /* first trial that measured it */
    int measured; /* successes */
    double mean, var;
};
/* All of them, best mean first; *RET is freed by the caller. */
size_t se_leaders(struct se_leader **ret, const struct se_search *search);
/* The first of them, in log throughput; false before any success. */
bool se_incumbent(size_t *ret_index, double *ret_mean, const struct se_search *search);
/* Which leader to measure again to separate the winner; NULL when it is separated, or a tie. */
const struct se_leader *se_unresolved(const struct se_search *search,
                                      const struct se_leader *leader, size_t count);
bool se_is_tie(const struct se_search *search, const struct se_leader *leader, size_t count);

/* The posterior of every layout in one pass: exact means, P(fits) by the bound on the variance. */
struct se_map {
    float *mean;   /* (n): log throughput in the objective's unit */
    float *p_fits; /* (n) */
};
void se_map_init(struct se_map *map, const struct se_search *search);
void se_map_done(struct se_map *map);

/* Successful measurements, grouped by layout. The caller frees them. */
struct se_measured *se_measured_list(size_t *ret_n, const struct se_search *search);
/* The spread between runs: from the repeats so far, and at least the fitted noise. */
struct se_spread se_spread_now(const struct se_search *search);

/* Of COUNT such measurements: the sum of squares of logarithms about their layouts' means, less
 * their own errors, and its degrees of freedom. */
struct se_repeats {
    double squares, degrees;
};
struct se_repeats se_repeats_of(const struct se_measured *measured, size_t count);

#endif
