#include "trainer/stop.h"

#include "base/base.h"
#include "trainer/events.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum {
    LEAVE_S = 3, /* with nothing to finish: for the ranks to agree */
    LAST_S = 5,  /* after that or the time of what is under way: a rank that does not check */
};

static volatile sig_atomic_t asked, working;
/* Written with the signals blocked or by their handler. */
static volatile uint64_t deadline_ns;
static volatile double allowed_s = LEAVE_S;
static void (*on_late)(void);
static pthread_t watcher; /* the thread that ON_LATE is for */

/* Async-signal-safe. */
static void arm(void)
{
    deadline_ns = clock_mono_ns() + (uint64_t)(allowed_s * 1e9);
    alarm((unsigned)allowed_s + LAST_S);
}

static void on_stop(int sig)
{
    (void)sig;
    if (!asked)
        arm();
    asked = 1;
}

static void on_alarm(int sig)
{
    static const char text[] = "partune-train: did not stop in time after a signal: aborted\n";

    (void)sig;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(TR_EXIT_STOPPED);
}

void tr_stop_watch(void (*late)(void))
{
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    struct sigaction end = {.sa_handler = on_alarm};

    on_late = late;
    watcher = pthread_self();
    sigaction(SIGALRM, &end, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
}

void tr_stop_over(void)
{
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    alarm(0);
}

void tr_stop_finish(double seconds)
{
    sigset_t signals, former;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, &former);
    working = 1;
    allowed_s = seconds;
    if (asked)
        arm();
    sigprocmask(SIG_SETMASK, &former, NULL);
}

bool tr_stop_requested(void)
{
    return asked;
}

bool tr_stop_now(void)
{
    return asked && !working;
}

void tr_stop_check(void)
{
    if (asked && on_late && clock_mono_ns() > deadline_ns && pthread_equal(watcher, pthread_self()))
        on_late();
}
