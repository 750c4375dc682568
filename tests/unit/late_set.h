/*
 * A set of kernels that works as a device does: operations and copies are written down when they
 * are launched, and run, by the host's kernels on one thread, when somebody waits. Whoever looks at
 * a result, or changes what an operation reads, without kn_wait gets wrong numbers; so a program
 * that gives the same bits on this set and on the host's has every wait that it needs.
 */
#ifndef TESTS_UNIT_LATE_SET_H
#define TESTS_UNIT_LATE_SET_H

#include "kernels/set.h"

const struct kn_set *late_set(void);

int late_pending(const struct kn_pool *p); /* launched and not yet run */
int late_waits(const struct kn_pool *p);   /* with something to run, since the pool was made */
int late_live(void);                       /* allocations of the set that were not freed */

#endif
