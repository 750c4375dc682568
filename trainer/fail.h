/*
 * The end of a run that cannot continue: one error event, one line on stderr, and the whole job
 * down.
 *
 * Rank 0 owns the event file; another rank that fails in the middle of a step opens it to write its
 * one line. Set up once by main.
 */
#ifndef TRAINER_FAIL_H
#define TRAINER_FAIL_H

#include "trainer/events.h"

/* EVENTS may be NULL (other ranks): then PATH, if not NULL, is opened when needed. Both are
 * borrowed. */
void tr_fail_setup(struct tr_events *events, const char *path, int rank);

/* Report and abort the job with the class's exit code. Does not return. */
void tr_fail(enum tr_error cls, const char *detail) __attribute__((noreturn));
void tr_fail_comm(const char *detail); /* as tr_fail_fn */

/* Where every rank fails alike, rank 0 reports and thereby ends the others: those wait here for it,
 * and report only if that does not come. A signal ends a rank that waits, without a word. */
void tr_fail_await_rank_0(void);

/* Steps done, for the report of tr_fail_stopped(). */
void tr_fail_step(int step);

/* The run was asked to stop and leaves without a checkpoint of the last steps: report WHY in a
 * `stopped` event and end the job with the code of a stop. Rank 0 reports; another rank only if
 * rank 0 is no longer there to end the job. Does not return. */
void tr_fail_stopped(const char *why) __attribute__((noreturn));

#endif
