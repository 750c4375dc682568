#include "trainer/nccl.h"

#include "base/base.h"
#include "trainer/nccl_comms.h"

/* ---- communicators ------------------------------------------------------- */

/* Those whose collectives take arrays of the GPU: on every rank in this order. */
#define GROUPS(c) &(c)->tp, &(c)->tied, &(c)->shard[0], &(c)->copy[0], &(c)->shard[1], &(c)->copy[1]

void tr_nccl_init(struct tr_comms *comms, tr_fail_fn *fail)
{
    struct tr_group *all[] = {GROUPS(comms)};

    comms->nccl = tr_nccl_open(comms, fail);
    for (size_t i = 0; comms->nccl && i < ARRAY_LEN(all); i++)
        if (all[i]->size > 1) {
            all[i]->nccl_comm = tr_nccl_comm(comms->nccl, all[i]);
            all[i]->nccl = comms->nccl;
        }
}

void tr_nccl_done(struct tr_comms *comms)
{
    struct tr_group *all[] = {GROUPS(comms)};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i]->nccl = NULL;
    comms->nccl = tr_nccl_close(comms->nccl, comms);
}

int tr_nccl_version(const struct tr_comms *comms)
{
    return comms->nccl ? comms->nccl->version : 0;
}

/* ---- collectives --------------------------------------------------------- */

bool tr_nccl_takes(const struct tr_group *group, const void *array)
{
    return group->nccl && tr_staging_has(&group->progress->staging, array);
}

struct kn_pool *tr_nccl_aside(const struct tr_comms *comms)
{
    return comms->nccl->aside;
}

static int type_of(enum kn_type type)
{
    return type == KN_F32 ? TR_NCCL_FLOAT32 : TR_NCCL_BFLOAT16;
}

/* The stream to launch on. */
static void *stream(struct tr_group *group, bool aside)
{
    struct tr_nccl *nccl = group->nccl;

    tr_now_begin(group->progress->now, group->kind);
    if (!aside)
        return kn_native(nccl->pool);
    kn_mark(nccl->pool, 0);
    kn_follow(nccl->aside, nccl->pool, 0);
    return kn_native(nccl->aside);
}

/* Block INDEX of GROUP. */
struct block {
    char *at;
    size_t count;
};

static struct block block(const struct tr_group *group, enum kn_type type, void *buf,
                          uint64_t count, int index)
{
    uint64_t first = tr_block(count, group->size, index);

    return (struct block){(char *)buf + first * kn_type_size(type),
                          tr_block(count, group->size, index + 1) - first};
}

void tr_nccl_reduce_scatter(struct tr_group *group, enum kn_type type, void *buf, uint64_t count,
                            bool aside)
{
    struct tr_nccl *nccl = group->nccl;
    struct block mine = block(group, type, buf, count, group->rank);
    void *on = stream(group, aside);

    if (count % (uint64_t)group->size == 0) {
        tr_nccl_must(nccl,
                     nccl->call.reduce_scatter(buf, mine.at, mine.count, type_of(type), TR_NCCL_SUM,
                                               group->nccl_comm, on),
                     "reduce-scatter");
        return;
    }
    tr_nccl_must(nccl, nccl->call.group_start(), "reduce-scatter");
    for (int i = 0; i < group->size; i++) {
        struct block b = block(group, type, buf, count, i);

        tr_nccl_must(nccl,
                     nccl->call.reduce(b.at, b.at, b.count, type_of(type), TR_NCCL_SUM, i,
                                       group->nccl_comm, on),
                     "reduce-scatter");
    }
    tr_nccl_must(nccl, nccl->call.group_end(), "reduce-scatter");
}

void tr_nccl_all_gather(struct tr_group *group, enum kn_type type, void *buf, uint64_t count,
                        bool aside)
{
    struct tr_nccl *nccl = group->nccl;
    struct block mine = block(group, type, buf, count, group->rank);
    void *on = stream(group, aside);

    if (count % (uint64_t)group->size == 0) {
        tr_nccl_must(
            nccl,
            nccl->call.all_gather(mine.at, buf, mine.count, type_of(type), group->nccl_comm, on),
            "all-gather");
        return;
    }
    tr_nccl_must(nccl, nccl->call.group_start(), "all-gather");
    for (int i = 0; i < group->size; i++) {
        struct block b = block(group, type, buf, count, i);

        tr_nccl_must(
            nccl, nccl->call.broadcast(b.at, b.at, b.count, type_of(type), i, group->nccl_comm, on),
            "all-gather");
    }
    tr_nccl_must(nccl, nccl->call.group_end(), "all-gather");
}

void tr_nccl_all_reduce(struct tr_group *group, enum kn_type type, void *buf, uint64_t count)
{
    struct tr_nccl *nccl = group->nccl;

    tr_nccl_must(nccl,
                 nccl->call.all_reduce(buf, buf, count, type_of(type), TR_NCCL_SUM,
                                       group->nccl_comm, stream(group, false)),
                 "all-reduce");
}
