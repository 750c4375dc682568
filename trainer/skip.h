/*
 * Skipping of steps whose loss or gradient norm is a spike, as OLMo-core's SkipStepOptimizer
 * (src/olmo_core/optim/skip_step_optimizer.py): over the `interval` steps before this one, a step
 * is skipped if its loss or its gradient norm exceeds mean + sigma x standard deviation (n - 1),
 * once there are interval / 2 steps with this one. Values of skipped steps enter the window, too.
 */
#ifndef TRAINER_SKIP_H
#define TRAINER_SKIP_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* The smallest interval whose first standard deviation has two values, and the largest. */
enum { TR_SKIP_MIN = 6, TR_SKIP_MAX = 1024 };

struct tr_skip {
    double sigma; /* 0: off */
    int interval;
    int skipped; /* steps, over resumes */
    int count;   /* of the window, oldest first: at most interval + 1 */
    double loss[TR_SKIP_MAX + 1], norm[TR_SKIP_MAX + 1];
};

/* Take in the LOSS and gradient NORM of a step, both finite: true if it is to be skipped, which is
 * counted. A function of these numbers alone, so ranks with equal ones decide alike. */
bool tr_skip_step(struct tr_skip *skip, double loss, double norm);

/* Continue where SAVED was: its count of skipped steps, and what the interval holds of its window
 * (nothing while skipping is off). */
void tr_skip_resume(struct tr_skip *skip, const struct tr_skip *saved);

/* What a checkpoint keeps of it, {"skipped", "loss", "grad_norm"}; NULL where nothing has been
 * skipped and nothing is in the window. New reference. */
json_t *tr_skip_json(const struct tr_skip *skip);
/* The same from key "skip_step" of OBJECT; zeros where it is absent. -EINVAL, -ERANGE. */
int tr_skip_parse(struct tr_skip *ret, const json_t *object, struct err *error);

#endif
