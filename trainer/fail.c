#include "base/base.h"
#include "trainer/fail.h"

#include <mpi.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* One process, one run: MPI's error handler carries no argument of ours. */
static struct {
    struct tr_events *events;
    const char *path;
    int rank;
} run;

void tr_fail_setup(struct tr_events *events, const char *path, int rank)
{
    run.events = events;
    run.path = path;
    run.rank = rank;
}

/* Hydra's proxy hears of the abort by another way than of the last line, and drops what it has not
 * read by then: wait until it has. */
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

void tr_fail(enum tr_error cls, const char *detail)
{
    struct tr_events *ev = run.events;
    struct err e = {0};

    if (!ev && run.path && tr_events_open(&ev, run.path, NULL, &e) < 0)
        ev = NULL;
    tr_event_error(ev, cls, run.rank, detail);
    fprintf(stderr, "partune-train: rank %d: %s: %s\n", run.rank, tr_error_names[cls], detail);
    fflush(NULL);
    wait_until_read(STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, tr_error_exit(cls));
    abort();
}

void tr_fail_comm(const char *detail)
{
    tr_fail(TR_ERROR_COMM, detail);
}
