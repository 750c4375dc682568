/*
 * The host file: which hosts the local launcher may use, and how many ranks fit on each.
 */
#ifndef TUNER_HOSTS_H
#define TUNER_HOSTS_H

#include "base/base.h"
#include "tuner/machine/slots.h"

struct tn_host {
    char *name;
    int first, slots; /* its cores are the slots FIRST ... FIRST + SLOTS - 1 */
};

struct tn_hosts {
    struct tn_host *host;
    int count, slots;
};

/* RANKS of THREADS threads, PER_HOST of them on each host but the last. */
struct tn_shape {
    int ranks, per_host, threads;
    bool oversubscribe; /* may share cores where a host has fewer than the ranks it gets */
};

/* A line is HOST or HOST:CORES (1 without), # begins a comment. -EINVAL names the line. */
int tn_hosts_read(struct tn_hosts **ret, const char *path, struct err *error);
void tn_hosts_free(struct tn_hosts *hosts);                              /* NULL is allowed */
void tn_hosts_slots(struct tn_slots *ret, const struct tn_hosts *hosts); /* all of them, free */
/* How many hosts may hold RANKS ranks each. */
int tn_hosts_suiting(const struct tn_hosts *hosts, int ranks, bool oversubscribe);
/* Slots for SHAPE into RET_CPUS, host by host; their number; 0, none taken, where there is no
 * room. */
int tn_hosts_take(int *ret_cpus, const struct tn_hosts *hosts, struct tn_slots *slots,
                  const struct tn_shape *shape);
/* The COUNT slots that SHAPE took as mpiexec's -hosts wants them: a:4,b:4. */
void tn_hosts_text(struct str *ret, const struct tn_hosts *hosts, const int *cpus, int count,
                   const struct tn_shape *shape);

#endif
