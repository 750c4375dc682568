/* Cores for trials: each belongs to one attempt at a time. */
#include <sched.h>

#include "tuner/internal.h"

void tn_slots_init(struct tn_slots *s, int limit)
{
    cpu_set_t set;

    memset(s, 0, sizeof(*s));
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int c = 0; c < CPU_SETSIZE && s->count < TN_MAX_CORES; c++)
        if (CPU_ISSET((size_t)c, &set) && (limit == 0 || s->count < limit))
            s->core[s->count++] = c;
    s->free = s->count;
}

/* First index of N free neighbours, or -1. */
static int free_run(const struct tn_slots *s, int n)
{
    int run = 0;

    for (int i = 0; i < s->count; i++) {
        run = s->taken[i] ? 0 : run + 1;
        if (run == n)
            return i - n + 1;
    }
    return -1;
}

bool tn_slots_take(struct tn_slots *s, int *cpus, int n)
{
    int from = free_run(s, n), got = 0;

    if (n > s->free)
        return false;
    for (int i = from < 0 ? 0 : from; i < s->count && got < n; i++)
        if (!s->taken[i]) {
            s->taken[i] = true;
            cpus[got++] = s->core[i];
        }
    s->free -= got;
    return true;
}

void tn_slots_take_list(struct tn_slots *s, const int *cpus, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < s->count; i++)
            if (s->core[i] == cpus[k] && !s->taken[i]) {
                s->taken[i] = true;
                s->free--;
            }
}

void tn_slots_give(struct tn_slots *s, const int *cpus, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < s->count; i++)
            if (s->core[i] == cpus[k] && s->taken[i]) {
                s->taken[i] = false;
                s->free++;
            }
}
