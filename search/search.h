/*
 * search - Bayesian optimization of the layout: which one to try next.
 *
 * It has all legal layouts, a prior for each of them from plan/ (throughput and memory), and the
 * measurements so far; an ask returns the next trial. docs/explanation/search.md has the method
 * with its formulas and sources. No I/O and no clock: the same spec, seed and sequence of calls
 * give the same answers.
 *
 * Life: se_spec_parse() -> se_search_new() -> { se_ask() ... se_tell() }* -> se_search_free().
 * Several trials may be outstanding. After a restart, build the search from the same spec and
 * replay: for each trial se_restore(), then se_tell() if it was settled, in the original order.
 *
 * Threads: one thread at a time may use a search. Only struct se_refit may run on another.
 */
#ifndef SEARCH_SEARCH_H
#define SEARCH_SEARCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "plan/plan.h"

/* ---- what to search ------------------------------------------------------ */

enum se_method { SE_BAYES, SE_RANDOM, SE_GRID };

extern const char *const se_method_names[]; /* "bayes" ..., NULL */

/*
 * The prior of a layout, and its sensitivities. A share says how the logarithm changes if one class
 * of cost (of memory) is mis-estimated by a factor: share[c] = d log(quantity) / d log(class c).
 * Tensor parallelism beyond a node is a separate class, with its own machine constants. After
 * the classes come binary unknowns: the change of the logarithm if true, in the scale of table.c.
 * All may be zero.
 */
enum {
    SE_COST_TP_FAR = PL_COST_CLASSES, /* share of tp beyond a node; PL_COST_TP is that inside */
    SE_COST_ONE_LINK,                 /* binary: groups beyond a node use one interface of each */
    SE_COST_SHARES
};
enum {
    SE_MEMORY_CLASSES =
        PL_MEM_SNAPSHOT, /* what follows is the driver's, and counts as workspace; no
                                          * trial has a snapshot */
    SE_MEMORY_GRADS = SE_MEMORY_CLASSES, /* binary: gradients are sharded with optimizer state */
    SE_MEMORY_UNFUSED, /* log of how much more it is with attention's T x T matrices */
    SE_MEMORY_SHARES
};
struct se_prior {
    double log_throughput; /* log tokens/s of the whole job */
    double log_memory;     /* log bytes of the worst rank */
    double log_watts;      /* of the whole job; counts with objective tokens_per_joule alone */
    double cost_share[SE_COST_SHARES];
    double memory_share[SE_MEMORY_SHARES];
};
typedef void (*se_prior_fn)(struct se_prior *ret, const struct pl_layout *layout, void *arg);

struct se_budget {
    int trials;      /* 0: no limit */
    double cost;     /* 0: no limit, or it is in device_s; the caller watches it: se_spent() */
    double wall_s;   /* 0: no limit; the caller watches the clock: se_spent() */
    double device_s; /* 0: no limit; likewise */
};

struct se_source;

enum { SE_MAX_CLUSTERS = 8 };

/* What the search reads of a campaign. A plain value except for `space` and `source`. */
struct se_spec {
    struct pl_model model;
    struct pl_cluster cluster[SE_MAX_CLUSTERS];
    int nclusters; /* of several, a layout's `cluster` says which, from 1; else that is 0 */
    struct pl_workload workload;
    const struct pl_trainer *trainer;
    struct pl_trainer stacked; /* TRAINER with the campaign's stack; no name: without one */
    struct pl_space *space;    /* owned: one for each cluster */
    enum pl_objective objective;
    enum se_method method;
    bool use_prior;        /* search.prior is "model" */
    bool use_memory_prior; /* search.memory_prior is "model" */
    uint64_t seed;
    int parallel;           /* outstanding trials at most */
    double regret_share;    /* converged below this expected regret, of the incumbent */
    double tie_share;       /* leaders closer than this are a tie */
    double memory_headroom; /* share of device memory that must stay free */
    struct se_budget budget;
    bool has_baseline; /* campaign names a baseline, or a rule for it: it is the first trial */
    struct pl_layout baseline;
    const char *baseline_rule;                      /* "default", "naive"; "given": a layout */
    char baseline_note[PL_BASELINE_NOTE];           /* what the rule had to relax, or empty */
    struct pl_trial_limits limits;                  /* of a trial's measurement */
    double trial_start_s;                           /* about: seconds before the first step */
    struct pl_fidelity fidelity[PL_MAX_FIDELITIES]; /* of smaller trials */
    int nfidelities;                                /* 0: all trials are of the full size */
    se_prior_fn prior_fn; /* NULL: the cost model and memory plan of plan/ */
    void *prior_arg;
    struct se_source *source; /* owned (nsources): earlier campaigns that inform this one */
    int nsources;
    bool async_refit; /* the caller runs struct se_refit; else se_ask() refits itself */
    const struct pl_patience *patience; /* of se_search_new(); NULL: without end */
};

/*
 * Read model, cluster, workload, trainer, rules, stack, space, baseline, objective, constraints,
 * budget, trial and search of a CAMPAIGN object; defaults as in docs/reference/campaign.md. Other
 * keys of a campaign are skipped, unknown ones are errors. LOCAL as in pl_cluster_parse(). Every
 * error has a JSON pointer.
 */
int se_spec_parse(struct se_spec *ret, const json_t *campaign, const struct pl_cluster *local,
                  struct err *error);
/*
 * *RET = the trainer of plan/ whose legality rules and cost hold for CAMPAIGN's "trainer" (default
 * partune): what its key "rules" names, else OWN_RULES (NULL: none), else the trainer's own; "any"
 * where none of them is known. -EINVAL at /rules for rules of another than the bundled trainer.
 */
int se_trainer_parse(const struct pl_trainer **ret, const json_t *campaign, const char *own_rules,
                     struct err *error);
void se_spec_done(struct se_spec *spec);
/* Let RULE choose the baseline within the device counts of the space, of several clusters on the
 * first on which something fits: their order is the caller's. -ENOENT, -E2BIG as pl_baseline(). */
int se_spec_baseline(struct se_spec *spec, enum pl_baseline_rule rule, struct err *error);
/* The problem of the first cluster, or of that of LAYOUT; both borrow from SPEC. */
struct pl_problem se_spec_problem(const struct se_spec *spec);
struct pl_problem se_layout_problem(const struct se_spec *spec, const struct pl_layout *layout);

/* ---- several clusters (clusters.c) --------------------------------------- */

/* Layouts that clusters may have in common are different ones: `cluster` tells them apart. In JSON
 * a layout of several clusters has the name of its own as "cluster", in texts "on NAME". */
const struct pl_cluster *se_cluster_of(const struct se_spec *spec, const struct pl_layout *layout);
const struct pl_space *se_space_of(const struct se_spec *spec, const struct pl_layout *layout);
json_t *se_layout_json(const struct se_spec *spec, const struct pl_layout *layout);
char *se_layout_text(char buf[160], const struct se_spec *spec, const struct pl_layout *layout);
/* As pl_layout_parse(); of several clusters a layout that names none is on the first. */
int se_layout_parse(struct pl_layout *ret, const struct se_spec *spec, const json_t *json,
                    struct err *error);
/* VALUE of KEY, a row of pl_layout_keys or SE_KEY_CLUSTER (kernel.h). */
json_t *se_key_json(const struct se_spec *spec, int key, int value);
/* Of several: index of the cluster called NAME, or -1. */
int se_cluster_named(const struct se_spec *spec, const char *name);
/* Read a campaign's "cluster" into SPEC: one, or a list of up to SE_MAX_CLUSTERS with names of
 * their own. LOCAL as in pl_cluster_parse(). */
int se_clusters_parse(struct se_spec *spec, const json_t *json, const struct pl_cluster *local,
                      struct err *error);
/* What may be parsed as the same again: an object, or a list. New reference. */
json_t *se_clusters_json(const struct se_spec *spec);
/* Do all clusters say their price? */
bool se_prices_known(const struct se_spec *spec);

/* ---- asking and telling -------------------------------------------------- */

struct se_search;

/*
 * Enumerates every legal layout and its prior: about half a second for 10^6 of them. SPEC is
 * copied; its space may be freed. Of more than SE_MAX_LAYOUTS, or of a space that pl_space_list()
 * finds too long to look through, a short list is searched, the same for the same spec:
 * SE_SHORTLIST layouts of the shapes that the cost model ranks best, a sample of the others, and
 * the baseline. -EINVAL with pointer /space when no layout is legal; the
 * text names the rules that exclude all. -ECANCELED when the spec's patience is over.
 */
int se_search_new(struct se_search **ret, const struct se_spec *spec, struct err *error);
/* The same over a list of COUNT layouts, which must be legal and distinct. */
int se_search_new_over(struct se_search **ret, const struct se_spec *spec,
                       const struct pl_layout *layouts, size_t count, struct err *error);
struct se_search *se_search_free(struct se_search *search);
AUTO_DEFINE(se_search)

enum { SE_MAX_LAYOUTS = 4000000, SE_SHORTLIST = 500000 };

struct se_predicted {
    double tokens_per_s; /* median */
    double lo, hi;       /* 95 % interval of tokens_per_s */
    double memory_bytes; /* median; 0: unknown */
    double p_fits;       /* probability that it runs: fits in memory and does not crash */
};

struct se_trial {
    int id; /* 1, 2, ... in order of asking */
    struct pl_layout layout;
    struct se_predicted predicted;
    int repeat_of; /* id of the trial that this one repeats, or 0 */
    int fidelity;  /* 0: full size; else it runs what spec.fidelity[fidelity - 1] leaves */
    char why[240]; /* one sentence for people */
};

enum se_answer {
    SE_TRIAL, /* RET is filled; the trial is outstanding until told */
    SE_WAIT,  /* everything useful is outstanding */
    SE_DONE,  /* and se_done_reason() says why */
};

enum se_answer se_ask(struct se_trial *ret, struct se_search *search);
/* What TRIAL, at a fidelity, runs. */
void se_trial_run(struct pl_reduced *ret, const struct se_search *search,
                  const struct se_trial *trial);
/* What trial ID, which succeeded at a fidelity, predicts now for its layout at full size: the
 * posterior given all trials. False for any other trial. */
bool se_inferred(struct se_predicted *ret, const struct se_search *search, int id);
/* "budget", "exhausted" or "converged"; "" before. */
const char *se_done_reason(const struct se_search *search);

/*
 * Register a trial from before a restart, or one that the caller chooses (a baseline, a
 * verification). ID must be new. REPEAT_OF as in struct se_trial. -EINVAL if the layout is not in
 * the space.
 */
int se_restore(struct se_search *search, int id, const struct pl_layout *layout, int repeat_of,
               struct err *error);
/* The same of a trial at a fidelity, as in struct se_trial. -EINVAL with pointer /fidelity if the
 * layout has no such trial. */
int se_restore_at(struct se_search *search, int id, const struct pl_layout *layout, int repeat_of,
                  int fidelity, struct err *error);

enum se_status {
    SE_OK,
    SE_OOM,        /* did not fit */
    SE_INFEASIBLE, /* illegal or numeric: will never run */
    SE_CENSORED,   /* stopped early or timed out: throughput is at most tokens_per_s_max */
    SE_CRASHED,    /* crashed again after its retry */
    SE_DISCARD,    /* no information about the layout, which may be proposed again */
};
extern const char *const se_status_names[]; /* "ok" ..., NULL */

struct se_outcome {
    enum se_status status;
    double tokens_per_s;      /* SE_OK; of the run, which may be of a smaller problem */
    double tokens_per_s_se;   /* its standard error; 0: unknown */
    double peak_memory_bytes; /* SE_OK, worst rank; 0: unknown */
    double tokens_per_s_max;  /* SE_CENSORED */
    double tokens_per_joule;  /* SE_OK, of the run; 0: unknown, which objective tokens_per_joule
                                 does not take */
};

/* Settle an outstanding trial. Errors change nothing: unknown or settled id (-ENOENT, pointer /id),
 * values that are not finite and positive (-EINVAL with their pointer). */
int se_tell(struct se_search *search, int id, const struct se_outcome *outcome, struct err *error);
/* The same from a tell object as in docs/reference/protocol.md: {"id", "status", ...}. */
int se_tell_json(struct se_search *search, const json_t *tell, struct err *error);

/*
 * An earlier campaign whose trials inform this search (docs/explanation/search.md, Warm start): its
 * model, cluster, workload and trainer in SPEC (no space), and its trials. In a campaign's "search"
 * it is a member of "warm_start":
 *     {"campaign": NAME?, "model", "cluster", "workload", "trainer"?, "rules"?, "stack"?,
 *      "constraints"?, "trial": {"fidelity"}?, "trials": [{"layout", "fidelity"?, "status",
 *      "tokens_per_s", ...}]}
 * A trial has a layout and the keys of a tell, and the number of its fidelity, from 1, unless it
 * was of the full size.
 */
enum { SE_MAX_SOURCES = 8, SE_MAX_SOURCE_TRIALS = 200 };
struct se_past {
    struct pl_layout layout;
    int fidelity; /* as in struct se_trial */
    struct se_outcome outcome;
};
struct se_source {
    struct se_spec spec;
    struct se_past *trial; /* owned (n) */
    int n;
};

/* Set the share (0..1) of the wall or device budget that is used up; at 1 the search is done. */
void se_spent(struct se_search *search, double share);

/*
 * Until the next call: while trials are outstanding, no ask names one on the clusters whose bits
 * (1 << number, numbers from 1) are set in CLUSTERS. It is for trials that wait for their cluster:
 * nothing else of the search depends on it, and no campaign ends by it. 0: any cluster.
 */
void se_avoid(struct se_search *search, unsigned clusters);

/*
 * Early stopping. Trial ID has measured MEAN tokens/s with standard error SE over N steps: false if
 * the upper end of an interval that is valid at every N (a confidence sequence) is below the
 * incumbent, with the spread between runs included on both sides. Then *RET_MAX (may be NULL) is
 * the bound to tell as SE_CENSORED.
 */
bool se_can_win(double *ret_max, const struct se_search *search, int id, double mean, double se,
                int n);

/* ---- answers ------------------------------------------------------------- */

struct se_best {
    int id; /* first trial of the layout */
    struct pl_layout layout;
    double mean, lo, hi; /* tokens/s, 95 % interval */
    int measured;        /* successful measurements */
    bool tie;            /* not separated from another measured layout */
};

/* -ENOENT before the first success. */
int se_best(struct se_best *ret, const struct se_search *search);
/* {"id", "layout", "tokens_per_s": {"mean", "lo", "hi"}, "measured", "tie"}, with objective
 * tokens_per_joule its three, too; or NULL. */
json_t *se_best_json(const struct se_search *search);

/* The posterior of any layout of the space; -EINVAL if it is not in the space. */
int se_predict(struct se_predicted *ret, const struct se_search *search,
               const struct pl_layout *layout, struct err *error);

/*
 * The prediction of one more run of LAYOUT: median and 95 % prediction interval, corrected for
 * selection bias: the highest of many measurements is too high on average (next_run.c). -EINVAL as
 * above.
 */
int se_next_run(struct se_predicted *ret, const struct se_search *search,
                const struct pl_layout *layout, struct err *error);

const struct se_spec *se_search_spec(const struct se_search *search); /* without its space */
size_t se_legal(const struct se_search *search);                      /* layouts in the search */
int se_settled(const struct se_search *search); /* trials told, without discards */
/* {"tp": share, ...}: Shapley shares of the variance of predicted log throughput over the layouts
 * that fit; and {"tp": [{"value", "ratio"}, ...], ...}: by what factor layouts with a value are
 * faster than the geometric mean of all because of it, by the same Shapley values. In the unit of
 * the objective. New references. */
void se_importance_json(json_t **ret_shares, json_t **ret_effects, const struct se_search *search);
/* [{"id", "layout", "tokens_per_s", "memory_bytes"}]: the measured layouts on the Pareto front. */
json_t *se_pareto_json(const struct se_search *search);
/* Best predicted layout for each pair of values of keys X_KEY and Y_KEY:
 * {"x", "y", "cells": [{"x": value, "y": value, "tokens_per_s", "p_fits", "layout"}]}. */
int se_surface_json(json_t **ret, const struct se_search *search, const char *x_key,
                    const char *y_key, struct err *error);
/* Diagnostics: weight of the prior-mean models, number of observations, leave-one-out errors and
 * calibration. */
json_t *se_diagnosis_json(const struct se_search *search);

/* ---- pooling repeats ----------------------------------------------------- */

/* One successful measurement; LAYOUT is a number that identifies the layout. */
struct se_measured {
    int64_t layout;
    double value, se; /* tokens/s > 0, and its own standard error; 0: unknown */
};

/* Relative standard deviation between runs of one layout, beyond their own errors, and its degrees
 * of freedom (those of the prior included). */
struct se_spread {
    double sd, degrees;
};

struct se_pooled {
    double mean, lo, hi; /* 95 % interval, above 0 */
};

/* The spread of a campaign from COUNT measurements, grouped by layout; layouts that were measured
 * once do not count. */
struct se_spread se_spread_of(const struct se_measured *measured, size_t count);
/* The throughput of one layout from its COUNT > 0 measurements. */
struct se_pooled se_pool(const struct se_measured *measured, size_t count, struct se_spread spread);
/* 97.5 % quantile of Student's t; infinite below one degree of freedom. */
double se_student_975(double degrees);

/* ---- asynchronous refit -------------------------------------------------- */

/*
 * A refit of the hyper-parameters takes up to half a second. With spec.async_refit the caller calls
 * se_refit_new() on the thread of the search, se_refit_run() on any thread, concurrently with asks
 * and tells, and se_refit_adopt(), which also frees it, on the thread of the search.
 */
struct se_refit;
bool se_refit_due(const struct se_search *search);
struct se_refit *se_refit_new(const struct se_search *search);
void se_refit_run(struct se_refit *refit);
void se_refit_adopt(struct se_search *search, struct se_refit *owned_refit);

#endif
