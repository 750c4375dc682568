/*
 * How long work over a whole space may take. A part of plan.h.
 */
#ifndef PLAN_PATIENCE_H
#define PLAN_PATIENCE_H

#include <stdbool.h>

/* How long work over a whole space may take: SPENT returns the share that is used up, and is called
 * about every millisecond; at 1 the work ends with what it has. A NULL patience has no limit. */
struct pl_patience {
    double (*spent)(void *arg);
    void *arg;
};

bool pl_patience_over(const struct pl_patience *patience); /* PATIENCE may be NULL */

#endif
