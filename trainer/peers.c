#include "trainer/peers.h"

#include "base/base.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

struct peer {
    uint64_t where; /* host and PID namespace */
    int64_t pid;
};

static struct {
    struct peer *all; /* by rank; NULL before tr_peers_meet() */
    int size, rank;
} peers;

static uint64_t pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void tr_peers_meet(struct tr_group *world)
{
    struct peer mine = {.where = rng_mix(tr_host_hash() ^ pid_namespace()), .pid = getpid()};
    MPI_Request req;

    peers.all = mem_alloc(sizeof(*peers.all) * (size_t)world->size);
    peers.size = world->size;
    peers.rank = world->rank;
    MPI_Iallgather(&mine, (int)sizeof(mine), MPI_BYTE, peers.all, (int)sizeof(mine), MPI_BYTE,
                   world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_ALL_GATHER, world), &req, 1);
}

bool tr_peers_near(int rank)
{
    return peers.all && peers.all[rank].where == peers.all[peers.rank].where;
}

long tr_peers_pid(int rank)
{
    assert(peers.all && rank >= 0 && rank < peers.size);
    return (long)peers.all[rank].pid;
}

int tr_peers_gone(void)
{
    for (int i = 0; peers.all && i < peers.size; i++)
        if (tr_peers_near(i) && kill((pid_t)peers.all[i].pid, 0) < 0 && errno == ESRCH)
            return i;
    return -1;
}

void tr_peers_done(void)
{
    free(peers.all);
    peers.all = NULL;
}
