/*
 * Why one layout is faster or slower than another: the cost model's difference, by class and by
 * changed key. A part of plan.h.
 */
#ifndef PLAN_WHY_H
#define PLAN_WHY_H

#include <jansson.h>
#include <stdbool.h>

#include "plan/cost.h"
#include "plan/layout.h"
#include "plan/objective.h"
#include "plan/problem.h"

struct pl_why_key {
    const struct pl_layout_key *key; /* NULL: the cluster, which is then the first row */
    int from, to;                    /* its values; of the cluster unused */
    double seconds[PL_COST_CLASSES]; /* that the change adds to each class */
    double change;                   /* their sum */
    double log_ratio;                /* that it adds to log tokens/s */
    double alone;                    /* on which share of the ways no other key changes with it */
};

struct pl_why {
    struct pl_cost from, to;
    const struct pl_cluster *cluster_from, *cluster_to; /* borrowed */
    enum pl_objective
        objective; /* in its unit are all seconds (device-seconds, joules, price), and its
                                    value is in place of tokens/s */
    int count; /* changed keys, in the order of pl_layout_keys; derived ones follow from others */
    struct pl_why_key key[PL_LAYOUT_KEYS + 1];
    bool exact; /* else a sample of the ways */
};

/*
 * Seconds and log ratios of the keys add up to the difference between TO and FROM, both legal: they
 * are Shapley values, the mean over the orders in which the keys may be changed one after another,
 * so far as what lies between is legal (why.c). With FROM and TO exchanged all change sign.
 */
void pl_why(struct pl_why *ret, const struct pl_problem *problem, const struct pl_layout *from,
            const struct pl_layout *to, enum pl_objective objective);
/* The same of FROM on PROBLEM's cluster and TO on CLUSTER, each legal there. Where these are not
 * one, the cluster is a changed key like the others (why.c). RET
 * borrows both clusters. */
void pl_why_across(struct pl_why *ret, const struct pl_problem *problem,
                   const struct pl_layout *from, const struct pl_cluster *cluster,
                   const struct pl_layout *to, enum pl_objective objective);

static inline bool pl_why_is_cluster(const struct pl_why_key *key)
{
    return !key->key;
}

/* {"unit": "seconds", "device_seconds", "joules" or "price", "exact", "predicted": {"from_s",
 * "to_s", "ratio"}, "clusters": null, "trials": null, "classes": [{"class", "from_s", "to_s",
 * "trial_from_s": null, "trial_to_s": null}], "keys": [{"key", "from", "to", "change_s", "ratio",
 * "alone", "classes": {NAME: seconds}}]}; keys that change most come first, classes that neither
 * layout has are left out. The key of two clusters is "cluster", its values their names. New
 * reference. */
json_t *pl_why_json(const struct pl_why *why);

#endif
