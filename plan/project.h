/*
 * projection - measured here, run there.
 *
 * The cost model's seconds are wrong by a factor that is much the same for all layouts of one model
 * on one machine: its software is older or newer than the constants, its links better or worse. So
 * short trials at a small scale measure that factor, and the model carries it to other scales. The
 * logarithm of measured / expected seconds is taken for a Gaussian process over (devices, shape):
 *
 *   y = a + b ln(N / N0) + u_shape + e
 *   a ~ N(0, 0.3^2)    how far the model may be off as a whole
 *   b ~ N(0, 0.03^2)   what it may miss of scale, each time N grows e-fold
 *   u ~ N(0, 0.09^2)   what it misses of one shape: everything of a layout but its replicas
 *   e ~ N(0, 0.04^2)   what one run differs from the next, with the measurement's own error
 *
 * where N0 is the geometric mean of the sizes that were measured. One common variance factor with
 * an expectation of 1, worth four observations, is learned from the data, so the prediction is
 * Student's t. Without measurements the answer is the cost model's own with the uncertainty above.
 * Where the numbers come from: docs/explanation/cost-model.md, section Projection.
 *
 * A part of plan.h, which is what other folders include.
 */
#ifndef PLAN_PROJECT_H
#define PLAN_PROJECT_H

#include "plan/plan.h"

/* One trial. */
struct pl_observation {
    struct pl_layout layout;
    double measured_s, expected_s; /* seconds of an iteration: measured, and by pl_cost */
    double relative_se;            /* standard error of MEASURED_S over MEASURED_S */
};

struct pl_projected {
    double seconds, lo, hi; /* of an iteration, with its 95 % interval */
    double factor;          /* seconds / what the cost model expects */
};

struct pl_calibration;

enum { PL_MAX_OBSERVATIONS = 400 };

/* Learn from N trials, at most PL_MAX_OBSERVATIONS; none is allowed. They are copied. */
struct pl_calibration *pl_calibration_new(const struct pl_observation *at, int n);
struct pl_calibration *pl_calibration_free(struct pl_calibration *c);

/* Layout L, of which the cost model expects EXPECTED_S seconds an iteration on its own cluster. */
void pl_project(struct pl_projected *ret, const struct pl_calibration *c, const struct pl_layout *l,
                double expected_s);

/*
 * L on WORLD devices with the same shape: only the replicas change. Returns false where it cannot
 * be: WORLD is no multiple, or the step of GLOBAL_BATCH sequences is not divided.
 */
bool pl_layout_scale(struct pl_layout *ret, const struct pl_layout *l, int world, int global_batch,
                     const struct pl_model *m);

#endif
