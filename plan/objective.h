/*
 * What layouts are compared by, and the energy of a step. A part of plan.h.
 */
#ifndef PLAN_OBJECTIVE_H
#define PLAN_OBJECTIVE_H

#include "plan/cost.h"

enum pl_objective {
    PL_TOKENS_PER_S,
    PL_TOKENS_PER_S_PER_DEVICE,
    PL_TOKENS_PER_JOULE,
    PL_TOKENS_PER_COST
};

extern const char *const pl_objective_names[];              /* "tokens_per_s" ..., NULL */
enum pl_objective pl_objective_of(const char *name);        /* one of them; else the first */
const char *pl_objective_unit(enum pl_objective objective); /* "tokens/s" ..., for people */

/* Value of TOKENS_PER_S on DEVICES that draw WATTS together and cost PRICE an hour each, higher is
 * better: every comparison of layouts uses it. WATTS counts in PL_TOKENS_PER_JOULE alone, PRICE in
 * PL_TOKENS_PER_COST. */
double pl_objective_value(enum pl_objective objective, double tokens_per_s, int devices,
                          double watts, double price);

/*
 * Average watts of LAYOUT's job, of which COST is the cost, as energy counters see it
 * (docs/reference/protocol.md, Energy): with U the share of the step in which devices compute
 * (forward, backward, recompute, optimizer; in all other classes they wait),
 *
 *     watts = metered x idle + U x devices x (busy - idle)
 *
 * metered being the job's devices, on CPUs, whose counters are of whole hosts, all cores of its
 * hosts. Where the cluster does not say watts, those of one metered device are 1: a ratio of two
 * layouts of one cluster still means something. RET_JOULES (may be NULL) gets the joules of a step
 * by class.
 */
double pl_watts(double ret_joules[PL_COST_CLASSES], const struct pl_cluster *cluster,
                const struct pl_layout *layout, const struct pl_cost *cost);
/* Does CLUSTER say its watts? */
bool pl_watts_known(const struct pl_cluster *cluster);

/* COST in the unit of OBJECTIVE: seconds, device-seconds, joules or price by class and in total,
 * and in place of tokens/s the value. */
void pl_objective_cost(struct pl_cost *ret, enum pl_objective objective,
                       const struct pl_cluster *cluster, const struct pl_layout *layout,
                       const struct pl_cost *cost);
/* pl_objective_value of what the cost model expects: the last of these. */
double pl_objective_expected(enum pl_objective objective, const struct pl_cluster *cluster,
                             const struct pl_layout *layout, const struct pl_cost *cost);

#endif
