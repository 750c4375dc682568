/*
 * Threads next to the one that trains: they call no MPI, and take no signals but those that they
 * raise themselves. Signals that ask the run to stop are for the thread that runs it.
 */
#ifndef TRAINER_THREAD_H
#define TRAINER_THREAD_H

#include <pthread.h>

/* 0 or a negative errno. */
int tr_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

#endif
