/*
 * Cores that trials hold, one by one. Owns nothing else: whose they are, the holder knows.
 */
#ifndef TUNER_SLOTS_H
#define TUNER_SLOTS_H

#include "base/base.h"

enum { TN_MAX_CORES = 1024 };

struct tn_slots {
    int core[TN_MAX_CORES]; /* number of the core */
    bool taken[TN_MAX_CORES];
    int count, free;
};

/* The cores that this process may use, LIMIT at most (0: all). */
void tn_slots_init(struct tn_slots *slots, int limit);
/* COUNT free cores into RET_CPUS: neighbors if there are; false, none taken, when there are
 * fewer. */
bool tn_slots_take(int *ret_cpus, struct tn_slots *slots, int count);
/* Take these very cores (adoption); those that are unknown or taken are skipped. */
void tn_slots_take_list(struct tn_slots *slots, const int *cpus, int count);
void tn_slots_give(struct tn_slots *slots, const int *cpus, int count);

#endif
