#include "trainer/sharing.h"

#include "base/base.h"
#include "trainer/backend.h"

#include <errno.h>

struct place {
    uint64_t host;
    char bus[32], uuid[40]; /* empty: no GPU */
};

static bool same_gpu(const struct place *left, const struct place *right)
{
    return left->host == right->host && str_eq(left->bus, right->bus);
}

static bool same(const struct place *left, const struct place *right)
{
    return same_gpu(left, right) && str_eq(left->uuid, right->uuid);
}

void tr_sharing(struct tr_sharing *ret, struct tr_comms *comms)
{
    struct tr_group *world = &comms->world;
    AUTO_FREE struct place *all = mem_alloc(sizeof(*all) * (size_t)world->size);
    struct place mine = {.host = tr_host_hash()};
    MPI_Request req;

    *ret = (struct tr_sharing){.first = true};
    snprintf(mine.bus, sizeof(mine.bus), "%s", tr_backend_bus());
    snprintf(mine.uuid, sizeof(mine.uuid), "%s", tr_backend_gpu()->uuid);
    MPI_Iallgather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE,
                   world->comm, &req);
    tr_wait(world->progress, tr_op_begin(TR_OP_GATHER, world), &req, 1);
    for (int i = 0; i < world->size && *mine.bus; i++) {
        ret->ranks += same(&all[i], &mine);
        ret->on_gpu += same_gpu(&all[i], &mine);
        ret->first &= i >= world->rank || !same(&all[i], &mine);
    }
}

int tr_sharing_check(struct tr_comms *comms, const char *device, struct err *error)
{
    struct tr_sharing sharing;

    if (!str_eq(device, "cuda") && !str_eq(device, "auto"))
        return 0;
    tr_sharing(&sharing, comms);
    if (sharing.ranks < 2)
        return 0;
    return err_set(error, -EINVAL,
                   "--device=%s: %d ranks have the GPU at %s (ranks share GPUs by cuda:N or "
                   "cuda:all)",
                   device, sharing.ranks, tr_backend_bus());
}
