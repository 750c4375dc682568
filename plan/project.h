/*
 * Projection: from measurements at one scale or machine to another.
 *
 * The cost model's seconds are wrong by a factor that is much the same for all layouts of one model
 * on one machine: its software is older or newer than the constants, its links better or worse. So
 * short trials at a small scale measure that factor, and the model carries it to other scales and,
 * less surely, to other machines. The logarithm of measured / expected seconds is taken for a
 * Gaussian process over (machine, devices, shape):
 *
 *   y = a + d_machine + b ln(N / N0) + u_shape + e
 *   a + d ~ N(0, 0.3^2)    how far the model may be off as a whole
 *   d     ~ N(0, delta^2)  the part of it that belongs to the machine and is lost on another one
 *   b     ~ N(0, 0.03^2)   what it may miss of scale, each time N grows e-fold
 *   u     ~ N(0, 0.09^2)   what it misses of one shape: everything of a layout but its replicas
 *   e     ~ N(0, 0.04^2)   what one run differs from the next, with the measurement's own error
 *
 * where N0 is the geometric mean of the sizes that were measured. One common variance factor with
 * an expectation of 1, worth four observations, is learned from the data, so the prediction is
 * Student's t. Without measurements the answer is the cost model's own with the uncertainty above.
 *
 * Agreement of trials on one machine tells nothing about another machine, so the factor does not
 * scale the variance that a change of machine adds. That part has its own degrees of freedom, from
 * the few machines by which delta is known; Welch and Satterthwaite's formula combines the two.
 *
 * A machine here is a kind of device in a kind of node with its links, at one precision: a layout
 * of another precision is on another machine. The number of nodes does not matter.
 * Where the numbers come from: docs/explanation/cost-model.md, section Projection.
 *
 * A part of plan.h, which is what other folders include.
 */
#ifndef PLAN_PROJECT_H
#define PLAN_PROJECT_H

#include <stdbool.h>

#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/model.h"

/* One trial. */
struct pl_observation {
    struct pl_layout layout;
    double measured_s, expected_s; /* seconds of an iteration: measured, and by pl_cost */
    double relative_se;            /* standard error of MEASURED_S over MEASURED_S */
    int machine;                   /* a number of the caller's; equal ones are one machine */
};

/* How the model's error on one machine differs from that on another, in logarithms of seconds. */
struct pl_transfer {
    double deviation; /* delta of one machine; at most the 0.3 of the model as a whole */
    double degrees;   /* of freedom: machines that it was learned from less one; at least 4 */
};

/* From the rows of tests/data that measured one model with one software on several machines;
 * tests/unit/plan_transfer.c estimates it again. */
extern const struct pl_transfer pl_transfer_published;

struct pl_projected {
    double seconds, lo, hi; /* of an iteration, with its 95 % interval */
    double factor;          /* seconds / what the cost model expects */
    double scale, degrees;  /* ln(measured / SECONDS) is Student's t of DEGREES, times SCALE */
    bool transferred;       /* none of the trials ran on this machine at this precision */
};

struct pl_calibration;

enum { PL_MAX_OBSERVATIONS = 400 };

/* Learn from the first PL_MAX_OBSERVATIONS of COUNT trials; COUNT may be 0. They are copied.
 * TRANSFER is pl_transfer_published where it is NULL. */
struct pl_calibration *pl_calibration_new(const struct pl_observation *at, int count,
                                          const struct pl_transfer *transfer);
struct pl_calibration *pl_calibration_free(struct pl_calibration *calibration);

/* LAYOUT on MACHINE, a number as that of the trials, where the cost model expects EXPECTED_S
 * seconds an iteration of it. */
void pl_project(struct pl_projected *ret, const struct pl_calibration *calibration,
                const struct pl_layout *layout, int machine, double expected_s);

/* How two clusters differ as machines, as bits; 0: the same kind of machine. */
enum { PL_OTHER_DEVICE = 1, PL_OTHER_NODE = 2, PL_OTHER_LINKS = 4 };

/*
 * Differences of LEFT and RIGHT in the facts that the cost model uses; names alone prove nothing,
 * since two sites may call different parts alike. A device that nobody named ("device") is never
 * known to be the same. Two profiles that were both measured, of one name and one device's name,
 * are one machine that was measured twice. Nodes are not compared, nor flags that allow
 * oversubscription.
 */
unsigned pl_machine_changes(const struct pl_cluster *left, const struct pl_cluster *right);

/*
 * LAYOUT on WORLD devices with the same shape: only the replicas change. Returns false where it
 * cannot be: WORLD is no multiple, or the step of GLOBAL_BATCH sequences is not divided.
 */
bool pl_layout_scale(struct pl_layout *ret, const struct pl_layout *layout, int world,
                     int global_batch, const struct pl_model *model);

#endif
