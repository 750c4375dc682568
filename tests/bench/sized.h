/*
 * What campaigns cost with smaller trials and without, on landscapes that have all sizes
 * (generate.h).
 */
#ifndef TESTS_BENCH_SIZED_H
#define TESTS_BENCH_SIZED_H

#include <stdbool.h>

#include "base/err.h"

struct sized_options {
    int from, count;      /* landscapes */
    int trials;           /* of a campaign at most */
    double noise;         /* relative standard deviation of a measurement */
    const char *fidelity; /* "auto", or JSON as in a campaign's trial.fidelity */
    bool verbose;
};

/*
 * Print one JSON line. Device-seconds of a campaign run up to the end of its first full-size trial
 * within 5 % of the best, in full-size trials of the best layout: "units" and "units_without" are
 * means over landscapes, "value" their ratio; "geometric" and "median" are of the ratios of single
 * landscapes, "seen" is geometric and counts a trial of such a layout at any size. A campaign that
 * ends without one has cost what it has, and is counted in "missed"; in "wrong" if its winner is
 * more than 3 % below the best. -EINVAL if FIDELITY is none.
 */
int sized_bench(const struct sized_options *options, struct err *error);

#endif
