/* Cores for trials: each belongs to one attempt at a time. */
#include <assert.h>
#include <sched.h>

#include "tuner/machine/slots.h"

void tn_slots_init(struct tn_slots *slots, int limit)
{
    assert(limit >= 0);
    cpu_set_t set;

    memset(slots, 0, sizeof(*slots));
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int c = 0; c < CPU_SETSIZE && slots->count < TN_MAX_CORES; c++)
        if (CPU_ISSET((size_t)c, &set) && (limit == 0 || slots->count < limit))
            slots->core[slots->count++] = c;
    slots->free = slots->count;
}

/* First index of COUNT free neighbors, or -1. */
static int free_run(const struct tn_slots *slots, int count)
{
    int run = 0;

    for (int i = 0; i < slots->count; i++) {
        run = slots->taken[i] ? 0 : run + 1;
        if (run == count)
            return i - count + 1;
    }
    return -1;
}

bool tn_slots_take(int *ret_cpus, struct tn_slots *slots, int count)
{
    int from = free_run(slots, count), got = 0;

    assert(count >= 0);
    assert(slots->free >= 0 && slots->free <= slots->count);
    if (count > slots->free)
        return false;
    for (int i = from < 0 ? 0 : from; i < slots->count && got < count; i++)
        if (!slots->taken[i]) {
            slots->taken[i] = true;
            ret_cpus[got++] = slots->core[i];
        }
    assert(got == count);
    slots->free -= got;
    return true;
}

void tn_slots_take_list(struct tn_slots *slots, const int *cpus, int count)
{
    for (int k = 0; k < count; k++)
        for (int i = 0; i < slots->count; i++)
            if (slots->core[i] == cpus[k] && !slots->taken[i]) {
                slots->taken[i] = true;
                slots->free--;
                assert(slots->free >= 0);
            }
}

void tn_slots_give(struct tn_slots *slots, const int *cpus, int count)
{
    for (int k = 0; k < count; k++)
        for (int i = 0; i < slots->count; i++)
            if (slots->core[i] == cpus[k] && slots->taken[i]) {
                slots->taken[i] = false;
                slots->free++;
                assert(slots->free <= slots->count);
            }
}
