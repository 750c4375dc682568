/*
 * partune-run --bind: a rank onto its own CPUs, for launchers that cannot be told which.
 */
#ifndef TUNER_RUN_BIND_H
#define TUNER_RUN_BIND_H

#include "base/base.h"

/* Bind this process to the entry of LIST ("0+1,2+3") that is its rank's on this host. -EINVAL: no
 * rank is known, or LIST has no entry for it; or the errno of sched_setaffinity(). */
int run_bind(const char *list, struct err *error);

#endif
