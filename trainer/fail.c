#include "base/base.h"
#include "trainer/fail.h"

#include <mpi.h>

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

void tr_fail(enum tr_error cls, const char *detail)
{
    struct tr_events *ev = run.events;
    struct err e = {0};

    if (!ev && run.path && tr_events_open(&ev, run.path, NULL, &e) < 0)
        ev = NULL;
    tr_event_error(ev, cls, run.rank, detail);
    fprintf(stderr, "partune-train: rank %d: %s: %s\n", run.rank, tr_error_names[cls], detail);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, tr_error_exit(cls));
    abort();
}

void tr_fail_comm(const char *detail)
{
    tr_fail(TR_ERROR_COMM, detail);
}
