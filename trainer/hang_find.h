/*
 * Who is missing in a job that makes no progress, and the page that says so. Pure functions of
 * what the ranks published; hang.h collects it.
 *
 * A rank that waits in an operation awaits others: the peer of a send or a receive; of any other
 * operation each member of the group that is not waiting in the same one (the same kind and
 * number) and has not gone past it; for its GPU, where NCCL's operations may be of any group, each
 * rank that waits for nobody or has begun fewer operations of a group that both are in. Followed
 * from every waiting rank, this wait-for graph ends in ranks that wait for nobody. Missing are,
 * the first that there are:
 *
 *   ranks whose process is stopped or gone, wherever they were
 *   awaited ranks that do not wait: they compute, or are in a system call
 *   ranks that do not wait, where none is awaited (a job of one rank, or all in a system call)
 *   awaited ranks of which nothing is known: on a host that is silent
 *   awaited ranks that wait themselves: a circle, since members are in different operations
 *
 * If there are none of these, all wait in the same operation: what it sends does not arrive.
 */
#ifndef TRAINER_HANG_FIND_H
#define TRAINER_HANG_FIND_H

#include <stdbool.h>

#include "base/str.h"
#include "trainer/events.h"
#include "trainer/now.h"

enum tr_life {
    TR_LIFE_RUNS,
    TR_LIFE_STOPPED, /* the process does not run: a signal, a debugger, a frozen group */
    TR_LIFE_GONE,    /* the process has ended */
    TR_LIFE_SILENT,  /* another host has said nothing of it, lately or ever */
};

/* What is known of a rank. */
struct tr_hang_rank {
    struct tr_at at;      /* meaningless of a silent rank that never said anything */
    int leader[TR_KINDS]; /* lowest rank of its group of each kind */
    enum tr_life life;
    bool known;       /* AT was seen */
    double seconds;   /* since it moved */
    char state;       /* of its main thread, as ps has it; 0: unknown */
    char place[32];   /* where in the kernel, "pipe_read"; "": unknown */
    const char *host; /* borrowed */
};

enum tr_verdict { TR_HANG_STOPPED, TR_HANG_BUSY, TR_HANG_SILENT, TR_HANG_CIRCLE, TR_HANG_LOST };

/* Does the rank number WAITER wait for the rank number OTHER? */
bool tr_hang_awaits(const struct tr_hang_rank *ranks, int waiter, int other);

/* RET_MISSING (count) says of each rank if it is missing: at least one, or none with TR_HANG_LOST.
 */
enum tr_verdict tr_hang_find(bool *ret_missing, const struct tr_hang_rank *ranks, int count);

/* One line: what is missing, and for how long nothing has moved. */
void tr_hang_line(struct str *out, const struct tr_hang_rank *ranks, int count,
                  enum tr_verdict verdict, const bool *missing, double seconds);
/* That line and, below it, every rank's stack: missing ones first, ranks in the same place
 * together, at most a page. Each line begins with PREFIX. */
void tr_hang_page(struct str *out, const char *prefix, const struct tr_hang_rank *ranks, int count,
                  enum tr_verdict verdict, const bool *missing, double seconds);

/* The same as an event; of missing ranks the first 64. */
void tr_hang_event(struct tr_events *ev, const struct tr_hang_rank *ranks, int count,
                   enum tr_verdict verdict, const bool *missing, double seconds);

#endif
