/* What the cost model says of a row, under a set of constants; and how such a set is fitted. */
#ifndef TESTS_BENCH_PLAN_PREDICT_H
#define TESTS_BENCH_PLAN_PREDICT_H

#include "tests/bench/plan_rows.h"

/* Everything that may be fitted: the constants of all software and machines, and for each kind of
 * device the share of its best product that a long run sustains. */
enum { TUNING_DEVICES = 32 };

struct tuning {
    struct pl_constants k;
    size_t ndevices;
    struct {
        const char *name; /* borrowed from the rows */
        double sustained;
    } device[TUNING_DEVICES];
};

/* As the tree has them; and as they were known before any row was looked at. */
void tuning_shipped(struct tuning *ret, const struct rows *rows);
void tuning_prior(struct tuning *ret, const struct rows *rows);

/*
 * Fit to the timed rows of all families but LEFT_OUT (NULL: all), from the prior: the least sum of
 * the mean over families of the mean absolute log error, so that a family of many rows does not
 * rule, and of the squared distances from the prior in its own widths.
 */
void tuning_fit(struct tuning *ret, const struct rows *rows, const char *left_out);

/* Value I of a tuning with its name, its prior and the prior's width (relative); NULL ends. */
double *tuning_value(struct tuning *t, size_t i, const char **ret_name, double *ret_prior,
                     double *ret_width);

struct guess {
    double seconds;
    struct pl_cost cost;
    struct pl_layout layout; /* with what the row leaves open chosen */
    bool fits;
};

/* What the row leaves open is chosen by one rule for all: the fastest legal value that fits in
 * memory, by the model itself. */
void predict(struct guess *ret, const struct row *r, const struct tuning *t);

enum { MAX_FAMILIES = 256 };
/* Names of the families with timed rows, borrowed; returns how many. */
size_t families_of(const char *ret[MAX_FAMILIES], const struct rows *rows);

#endif
