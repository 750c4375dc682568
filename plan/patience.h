/*
 * How long work over a whole space may take. A part of plan.h.
 */
#ifndef PLAN_PATIENCE_H
#define PLAN_PATIENCE_H

#include <stdbool.h>

/* How long work over a whole space may take: SPENT says which share of it is gone, and is asked
 * every millisecond or so; at 1 the work ends with what it has. NULL is patience without end. */
struct pl_patience {
    double (*spent)(void *arg);
    void *arg;
};

bool pl_patience_over(const struct pl_patience *patience); /* PATIENCE may be NULL */

#endif
