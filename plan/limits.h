/*
 * limits - when a trial has measured enough, or must end.
 *
 * The bounds are those of a campaign's and a configuration's "trial" object and of the trainer's
 * options alike: what a campaign accepts, every trial of it accepts.
 *
 * A part of plan.h, which is what other folders include.
 */
#ifndef PLAN_LIMITS_H
#define PLAN_LIMITS_H

#include <jansson.h>

#include "base/err.h"

enum {
    PL_LIMIT_WARMUP_MAX = 10000,
    PL_LIMIT_STEPS_MIN = 2, /* an interval needs two measurements */
    PL_LIMIT_STEPS_MAX = 100000,
    PL_LIMIT_TIMEOUT_MAX = 10000000, /* seconds; 115 days */
};

/* A trial stops when the half-width of the 95 % interval of the step time is within CI of the
 * median, but not before min_steps measured steps, and at max_steps or timeout_s in any case. */
struct pl_trial_limits {
    int warmup_steps; /* not measured */
    int min_steps, max_steps;
    double ci;
    double timeout_s; /* from the start of the program; 0: none, in the trainer only */
};

/* The defaults of a campaign. */
extern const struct pl_trial_limits pl_trial_limits_default;

/* Read the object "trial" of ROOT, a campaign or a configuration; where it or a key of it is
 * absent, the default. max_steps follows a min_steps that is above its default. -EINVAL: an unknown
 * key, a value of another type or out of its bounds, max_steps < min_steps; ERROR has the
 * pointer. */
int pl_trial_limits_parse(struct pl_trial_limits *ret_limits, const json_t *root,
                          struct err *error);

json_t *pl_trial_limits_json(const struct pl_trial_limits *limits);

/* Steps of a trial with its warm-up, for estimates of its cost: 1.6 times min_steps is a guess
 * between the least and what noisy steps take, not a measurement. */
double pl_trial_steps_expected(const struct pl_trial_limits *limits);

/* -EINVAL unless min_steps <= max_steps. */
int pl_trial_limits_check(const struct pl_trial_limits *limits, struct err *error);

#endif
