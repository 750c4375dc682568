/*
 * What a search holds between calls. Shared by the files that make up the engine; nobody else
 * includes it.
 *
 * Invariants: closed[i] is set if layout i was handed out and not discarded; every belief matches
 * what was told, without fantasies; trials are in order of their registration.
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
    bool settled;
    struct se_outcome outcome;
};

enum { SE_HOT = 64 };

struct se_search {
    struct se_spec spec;
    struct se_table *table;
    struct se_belief belief[SE_QUANTITIES];
    struct se_crash crash;
    uint8_t *closed;
    struct se_record *record;
    int nrecords, cap;
    int outstanding, settled, succeeded, repeats;
    int next_id;
    struct rng rng;              /* of the random method */
    size_t cursor;               /* of the grid */
    int nsources, source_trials; /* campaigns that it was informed by */
    double log_capacity;
    double spent;
    double regret;        /* expected, relative, at the last ask; negative before */
    size_t exact;         /* exact posteriors at the last ask */
    uint32_t hot[SE_HOT]; /* the best layouts of the last ask */
    size_t nhot;
    bool proved;
    const char *done;
};

struct se_record *se_record_find(const struct se_search *search, int id);
/* Observe what OUTCOME says of layout INDEX; se_belief_update() or _fit() must follow. */
void se_learn(struct se_search *search, size_t index, const struct se_outcome *outcome);
/* An outcome from an object like {"status", "tokens_per_s", ...}. */
int se_outcome_parse(struct se_outcome *ret, const json_t *json, struct err *error);
double se_unit(const struct se_search *search,
               size_t index); /* log of devices where per device, else 0 */
/* Expected improvement of the best of CHOICE over the incumbent, relative, by joint samples;
 * deviations are taken WIDEN times as large as fitted. */
double se_expected_regret(const struct se_search *search, const struct se_choice *choice,
                          size_t count, size_t incumbent, double widen);
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
/* Which of the leaders to measure again so that the winner is separated; NULL when it is, or is a
 * tie. */
const struct se_leader *se_unresolved(const struct se_search *search,
                                      const struct se_leader *leader, size_t count);
bool se_is_tie(const struct se_search *search, const struct se_leader *leader, size_t count);
void se_acquire_setup(struct se_acquire *ret, const struct se_search *search);

/* What is believed of every layout, by one pass: the mean exactly, P(fits) by the bound on the
 * variance. */
struct se_map {
    float *mean;   /* (n): log throughput in the objective's unit */
    float *p_fits; /* (n) */
};
void se_map_init(struct se_map *map, const struct se_search *search);
void se_map_done(struct se_map *map);

/* Successful measurements, those of one layout side by side. Caller frees. */
struct se_measured *se_measured_list(size_t *ret_n, const struct se_search *search);
/* What differs from run to run: by the repeats so far, and at least what the fit needed. */
struct se_spread se_spread_now(const struct se_search *search);

/* Of N such measurements: squares of logarithms about the means of their layouts, less what their
 * own errors explain, and how many degrees of freedom they have. */
struct se_repeats {
    double squares, degrees;
};
struct se_repeats se_repeats_of(const struct se_measured *measured, size_t count);

#endif
