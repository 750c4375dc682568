/*
 * One step of every rank as a Chrome trace (chrome://tracing, Perfetto): a row for each rank, a bar
 * for each stretch of a phase.
 *
 * The clock notes every switch of phase while it has room; times count from the beginning of the
 * step on each rank's own clock, so rows of different hosts agree as far as the ranks begin the
 * step together.
 */
#ifndef TRAINER_TIMELINE_H
#define TRAINER_TIMELINE_H

#include "trainer/comm.h"

/* Record the switches of CLOCK from now on, at most CAP of them. tr_timeline_end frees the records.
 */
void tr_timeline_begin(struct tr_clock *clock, int cap);
void tr_timeline_end(struct tr_clock *clock);

/* Collective over GROUP: what was noted since BEGUN_NS, written to PATH by rank 0. */
int tr_timeline_write(const char *path, struct tr_group *group, const struct tr_clock *clock,
                      uint64_t begun_ns, const char *title, struct err *error);

#endif
