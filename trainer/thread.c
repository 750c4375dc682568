#include "trainer/thread.h"

#include <signal.h>

int tr_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int r;

    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}
