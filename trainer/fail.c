#include "base/base.h"
#include "trainer/fail.h"
#include "trainer/stop.h"

#include <mpi.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* One process, one run: MPI's error handler carries no argument of ours. */
static struct {
    struct tr_events *events;
    const char *path;
    int rank, step;
} run;

void tr_fail_setup(struct tr_events *events, const char *path, int rank)
{
    run.events = events;
    run.path = path;
    run.rank = rank;
}

/* The abort reaches Hydra's proxy by another channel than the last line, and the proxy drops what
 * it has not read by then: wait until it has. */
static void wait_until_read(int fd)
{
    enum { PATIENCE_MS = 1000 };
    struct stat st;
    int left;

    if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return;
    for (int i = 0; i < PATIENCE_MS && ioctl(fd, FIONREAD, &left) == 0 && left > 0; i++)
        usleep(1000);
}

/* Rank 0's events, or those that another rank opens for its one line. */
static struct tr_events *event_file(void)
{
    struct tr_events *ev = run.events;

    if (!ev && run.path && tr_events_open(&ev, run.path, NULL, NULL) < 0)
        return NULL;
    return ev;
}

static _Noreturn void end_job(int code)
{
    fflush(NULL);
    wait_until_read(STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, code);
    abort();
}

void tr_fail(enum tr_error cls, const char *detail)
{
    tr_stop_over();
    tr_event_error(event_file(), cls, run.rank, detail);
    fprintf(stderr, "partune-train: rank %d: %s: %s\n", run.rank, tr_error_names[cls], detail);
    end_job(tr_error_exit(cls));
}

void tr_fail_await_rank_0(void)
{
    enum { PATIENCE_S = 10 }; /* it has one line to write */

    tr_stop_over(); /* Open MPI ends a job by TERM */
    sleep(PATIENCE_S);
}

void tr_fail_step(int step)
{
    run.step = step;
}

void tr_fail_stopped(const char *why)
{
    enum { RANK_0_S = 1 };

    tr_stop_over();
    if (run.rank != 0)
        sleep(RANK_0_S);
    tr_event_stopped(event_file(), run.step, why);
    fprintf(stderr, "partune-train: rank %d: stopped: %s\n", run.rank, why);
    end_job(TR_EXIT_STOPPED);
}

void tr_fail_comm(const char *detail)
{
    tr_fail(TR_ERROR_COMM, detail);
}
