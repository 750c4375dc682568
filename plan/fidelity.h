/*
 * Fidelities: trials that cost less. A part of plan.h.
 *
 * A fidelity says what of a problem may shrink while tp, pp, cp, ep, micro-batch, schedule and all
 * other keys of a layout stay as they are. What is left is a smaller problem with its own legal
 * layout, so everything in this folder applies to it: bytes, seconds, rules.
 * docs/adr/0018 says why, docs/explanation/search.md how the search uses it.
 */
#ifndef PLAN_FIDELITY_H
#define PLAN_FIDELITY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "plan/layout.h"
#include "plan/limits.h"
#include "plan/problem.h"

enum { PL_MAX_FIDELITIES = 4 };

/* 0 of any of them: as in the whole problem. */
struct pl_fidelity {
    int replicas;      /* dp at most, or the fewest above it that are legal (experts need some) */
    int stage_layers;  /* layers of a virtual stage at most */
    int micro_batches; /* of a replica at most, rounded up to a multiple of pp */
    int steps;         /* measured steps */
    int devices;       /* layouts that need more devices even so have no such trial */
};

/* What problem is left of a layout; a plain value. */
struct pl_reduced {
    struct pl_model model;
    struct pl_workload workload; /* of one batch */
    struct pl_layout layout;     /* canonical; names no batch */
};

/* All of LAYOUT's problem: what a trial of the full size runs. */
void pl_whole(struct pl_reduced *ret, const struct pl_problem *problem,
              const struct pl_layout *layout);

/*
 * Reduce LAYOUT, legal in PROBLEM, by FIDELITY. False, and RET undefined, where there is no such
 * trial: nothing shrinks, too many devices are left, or no smaller layout is legal.
 *
 * Layers shrink only if the rest represents the whole: all virtual stages hold the same number of
 * layers, and all layers of the model are of one kind.
 */
bool pl_reduce(struct pl_reduced *ret, const struct pl_problem *problem,
               const struct pl_layout *layout, const struct pl_fidelity *fidelity);

/* The reduced problem: borrows from REDUCED, and cluster and trainer from PROBLEM. */
struct pl_problem pl_reduced_problem(const struct pl_reduced *reduced,
                                     const struct pl_problem *problem);

/* LIMITS of a trial at FIDELITY (NULL: the full size): with fewer steps, min_steps and max_steps
 * are at most those. */
struct pl_trial_limits pl_fidelity_limits(const struct pl_trial_limits *limits,
                                          const struct pl_fidelity *fidelity);

/* What is left as JSON: {"layers", "global_batch", "layout"}. New reference. */
json_t *pl_reduced_json(const struct pl_reduced *reduced);
/* The same read back: the rest of RET is as in PROBLEM. Its layout need not be legal. Errors have a
 * pointer below JSON. */
int pl_reduced_parse(struct pl_reduced *ret, const json_t *json, const struct pl_problem *problem,
                     struct err *error);

/* What may be parsed as COUNT fidelities; without any, "full". New reference. */
json_t *pl_fidelities_json(const struct pl_fidelity *fidelity, int count);

/*
 * Read the key "fidelity" of TRIAL, a campaign's object "trial" or NULL: absent or "full" is
 * none, "auto" those that suit most problems, else one object of limits or an array of up to
 * PL_MAX_FIDELITIES. Into RET (that many) and *RET_COUNT. -EINVAL with a pointer below TRIAL.
 */
int pl_fidelities_parse(struct pl_fidelity *ret, int *ret_count, const json_t *trial,
                        struct err *error);
#endif
