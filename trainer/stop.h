/*
 * Stopping on SIGTERM and SIGINT.
 *
 * A stop is orderly if it can be: the current step ends, then a checkpoint is written. But a rank
 * may wait for one that will never answer, and must exit nevertheless. So the work at hand has a
 * deadline (tr_stop_finish()), counted from the signal, or from the start of the next such piece of
 * work. Code that waits for other ranks, or works for long, calls tr_stop_check() now and then:
 * past the deadline it calls LATE, which does not return. A rank that does not get there, because a
 * file server or MPI blocks it, is ended by an alarm with code 75.
 *
 * Before the first tr_stop_finish() there is nothing to finish: the ranks agree to leave
 * (tr_stop_now()), within seconds in any case.
 */
#ifndef TRAINER_STOP_H
#define TRAINER_STOP_H

#include <stdbool.h>

/* Handle the signals from now on; LATE is called by this thread alone. */
void tr_stop_watch(void (*late)(void));
/* Restore their default action: there is nothing left to finish. */
void tr_stop_over(void);

/* After a signal, the work at hand may take SECONDS to finish. */
void tr_stop_finish(double seconds);

bool tr_stop_requested(void); /* finish, then stop */
bool tr_stop_now(void);       /* asked, and there is nothing to finish */
void tr_stop_check(void);     /* costs a load unless a stop was requested */

#endif
