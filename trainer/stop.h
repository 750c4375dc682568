/*
 * Asked to stop: SIGTERM and SIGINT.
 *
 * A stop is finished in order if it can be: a step that is under way, then a checkpoint. But a rank
 * may wait for one that will never answer, and then it must leave all the same. So what is under
 * way has a time (tr_stop_finish()), which counts from the signal, or from the beginning of the
 * next such piece of work. Who waits for other ranks, or works for long, calls tr_stop_check() now
 * and then: when the time is over it calls LATE, which does not return. A rank that does not even
 * come to that, because a file server or MPI does not let it go, is ended by an alarm with code 75.
 *
 * Before the first tr_stop_finish() there is nothing to finish: the ranks agree to leave
 * (tr_stop_now()), within seconds in any case.
 */
#ifndef TRAINER_STOP_H
#define TRAINER_STOP_H

#include <stdbool.h>

/* Take the signals from now on. */
void tr_stop_watch(void (*late)(void));
/* Give them their default meaning again: there is nothing left to finish. */
void tr_stop_over(void);

/* After a signal, finish what is under way if that takes no longer than SECONDS. */
void tr_stop_finish(double seconds);

bool tr_stop_asked(void); /* finish, then stop */
bool tr_stop_now(void);   /* asked, and there is nothing to finish */
void tr_stop_check(void); /* costs a load while nobody has asked */

#endif
