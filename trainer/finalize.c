#include "trainer/finalize.h"

#include "base/base.h"
#include "trainer/comm.h"

#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
enum { RACE = 1 };
#else
enum { RACE = 0 };
#endif

static void finish(MPI_Request *req)
{
    int done = 0;

    while (MPI_Test(req, &done, MPI_STATUS_IGNORE), !done)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* Also the barrier after which no rank waits for this one. */
static bool several_hosts(void)
{
    uint64_t h = tr_host_hash(), mine[2] = {h, ~h}, most[2];
    MPI_Request req;

    MPI_Iallreduce(mine, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD, &req);
    finish(&req);
    return most[0] != ~most[1];
}

/* One line to the process manager, and the line that it answers with; MPICH's own conversation is
 * over. */
static bool ask(int fd, const char *line, const char *wanted)
{
    size_t len = strlen(line), n = 0;
    char answer[256];

    if (write(fd, line, len) != (ssize_t)len)
        return false;
    while (n < sizeof(answer) - 1) {
        ssize_t k = read(fd, answer + n, 1);

        if (k < 0 && errno == EINTR)
            continue;
        if (k != 1)
            return false;
        if (answer[n] == '\n')
            break;
        n++;
    }
    answer[n] = '\0';
    return str_eq(answer, wanted);
}

/* Hydra's side of MPI_Finalize: no rank leaves before all are here, since a connection that breaks
 * could lose a peer's last messages. */
static bool tell_hydra(void)
{
    const char *fd = getenv("PMI_FD");
    int64_t n;

    if (!fd || !getenv("MPI_LOCALNRANKS") || str_to_i64(&n, fd, 0, 1 << 20) < 0)
        return false;
    if (!ask((int)n, "cmd=barrier_in\n", "cmd=barrier_out"))
        return false;
    (void)ask((int)n, "cmd=finalize\n", "cmd=finalize_ack"); /* it hears us, whatever it says */
    return true;
}

void tr_finalize(void)
{
    if (RACE && several_hosts() && tell_hydra())
        return;
    MPI_Finalize();
}
