#include "trainer/nccl.h"

#include "base/base.h"
#include "trainer/sharing.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>

static const char LIBRARY[] = "libnccl.so.2";

/* Of nccl.h. */
enum { SUM = 0, FLOAT32 = 7, BFLOAT16 = 9 };

struct id {
    char bytes[128];
};

struct functions { /* as nccl.h declares them; 0 is success */
    int (*version)(int *version);
    int (*unique_id)(struct id *id);
    int (*init)(void **comm, int size, struct id id, int rank);
    int (*destroy)(void *comm);
    const char *(*error_text)(int code);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                      void *stream);
    int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int op, void *comm,
                          void *stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type, void *comm, void *stream);
    int (*reduce)(const void *from, void *to, size_t count, int type, int op, int root, void *comm,
                  void *stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, void *comm,
                     void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
};

static const char *const names[] = {"ncclGetVersion",    "ncclGetUniqueId",    "ncclCommInitRank",
                                    "ncclCommDestroy",   "ncclGetErrorString", "ncclAllReduce",
                                    "ncclReduceScatter", "ncclAllGather",      "ncclReduce",
                                    "ncclBroadcast",     "ncclGroupStart",     "ncclGroupEnd"};

_Static_assert(sizeof(struct functions) == ARRAY_LEN(names) * sizeof(void *), "a name each");

struct tr_nccl {
    struct functions f;
    void *library;
    int version;
    struct kn_pool *pool, *aside;
    tr_fail_fn *fail;
};

static void must(const struct tr_nccl *nccl, int code, const char *what)
{
    char text[160];

    if (code == 0)
        return;
    snprintf(text, sizeof(text), "NCCL: %s: %s (%d)", what, nccl->f.error_text(code), code);
    nccl->fail(text);
}

/* ---- communicators ------------------------------------------------------- */

/* The library and a second stream; NULL without them. */
static struct tr_nccl *nccl_open(struct kn_pool *pool, tr_fail_fn *fail)
{
    struct tr_nccl *nccl = mem_alloc(sizeof(*nccl));
    struct err unused = {0};

    nccl->pool = pool;
    nccl->fail = fail;
    if (dl_functions(&nccl->library, (void **)&nccl->f, LIBRARY, names, ARRAY_LEN(names),
                     &unused) == 0 &&
        nccl->f.version(&nccl->version) == 0)
        nccl->aside = kn_pool_new(1);
    return nccl;
}

static struct tr_nccl *nccl_free(struct tr_nccl *nccl)
{
    if (!nccl)
        return NULL;
    kn_pool_free(nccl->aside);
    if (nccl->library)
        dlclose(nccl->library);
    free(nccl);
    return NULL;
}

/* Rank 0 of the group names the communicator. */
static void share_id(struct id *id, struct tr_group *group)
{
    struct tr_op op = tr_op_begin(TR_OP_SEND_RECV, group);
    int tag = group->id * TR_TAG_COLL, n = 0;

    for (int i = 1; i < group->size && group->rank == 0; i++)
        tr_isend(&group->req[n++], group, id, sizeof(*id), i, tag);
    if (group->rank > 0)
        tr_irecv(&group->req[n++], group, id, sizeof(*id), 0, tag);
    tr_wait(group->progress, op, group->req, n);
}

/* Those whose collectives take arrays of the GPU: on every rank in this order. */
#define GROUPS(c) &(c)->tp, &(c)->tied, &(c)->shard[0], &(c)->copy[0], &(c)->shard[1], &(c)->copy[1]

static void group_init(struct tr_group *group, struct tr_nccl *nccl)
{
    struct id id = {{0}};

    if (group->size == 1)
        return;
    if (group->rank == 0)
        must(nccl, nccl->f.unique_id(&id), "a name for a communicator");
    share_id(&id, group);
    must(nccl, nccl->f.init(&group->nccl_comm, group->size, id, group->rank), "a communicator");
    group->nccl = nccl;
}

static void group_done(struct tr_group *group)
{
    if (group->nccl)
        must(group->nccl, group->nccl->f.destroy(group->nccl_comm), "the end of a communicator");
    group->nccl = NULL;
}

/* Every rank has a GPU of its own, and NCCL. */
static bool all_can(struct tr_comms *comms, const struct tr_nccl *nccl)
{
    const char *word = getenv("PARTUNE_NCCL");
    struct tr_sharing sharing;
    MPI_Request req;
    int can;

    tr_sharing(&sharing, comms);
    can = sharing.ranks == 1 && nccl->aside && !str_eq(word, "off");
    MPI_Iallreduce(MPI_IN_PLACE, &can, 1, MPI_INT, MPI_MIN, comms->world.comm, &req);
    tr_wait(&comms->progress, tr_op_begin(TR_OP_ALL_REDUCE, &comms->world), &req, 1);
    return can;
}

void tr_nccl_init(struct tr_comms *comms, tr_fail_fn *fail)
{
    struct tr_group *all[] = {GROUPS(comms)};

    if (comms->world.size == 1 || !comms->progress.staging.bytes) /* alike on all ranks */
        return;
    comms->nccl = nccl_open(comms->progress.pool, fail);
    if (!all_can(comms, comms->nccl)) {
        comms->nccl = nccl_free(comms->nccl);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        group_init(all[i], comms->nccl);
}

void tr_nccl_done(struct tr_comms *comms)
{
    struct tr_group *all[] = {GROUPS(comms)};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        group_done(all[i]);
    comms->nccl = nccl_free(comms->nccl);
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
    return type == KN_F32 ? FLOAT32 : BFLOAT16;
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
    const struct tr_nccl *nccl = group->nccl;
    struct block mine = block(group, type, buf, count, group->rank);
    void *on = stream(group, aside);

    if (count % (uint64_t)group->size == 0) {
        must(nccl,
             nccl->f.reduce_scatter(buf, mine.at, mine.count, type_of(type), SUM, group->nccl_comm,
                                    on),
             "reduce-scatter");
        return;
    }
    must(nccl, nccl->f.group_start(), "reduce-scatter");
    for (int i = 0; i < group->size; i++) {
        struct block b = block(group, type, buf, count, i);

        must(nccl, nccl->f.reduce(b.at, b.at, b.count, type_of(type), SUM, i, group->nccl_comm, on),
             "reduce-scatter");
    }
    must(nccl, nccl->f.group_end(), "reduce-scatter");
}

void tr_nccl_all_gather(struct tr_group *group, enum kn_type type, void *buf, uint64_t count,
                        bool aside)
{
    const struct tr_nccl *nccl = group->nccl;
    struct block mine = block(group, type, buf, count, group->rank);
    void *on = stream(group, aside);

    if (count % (uint64_t)group->size == 0) {
        must(nccl,
             nccl->f.all_gather(mine.at, buf, mine.count, type_of(type), group->nccl_comm, on),
             "all-gather");
        return;
    }
    must(nccl, nccl->f.group_start(), "all-gather");
    for (int i = 0; i < group->size; i++) {
        struct block b = block(group, type, buf, count, i);

        must(nccl, nccl->f.broadcast(b.at, b.at, b.count, type_of(type), i, group->nccl_comm, on),
             "all-gather");
    }
    must(nccl, nccl->f.group_end(), "all-gather");
}

void tr_nccl_all_reduce(struct tr_group *group, enum kn_type type, void *buf, uint64_t count)
{
    const struct tr_nccl *nccl = group->nccl;

    must(nccl,
         nccl->f.all_reduce(buf, buf, count, type_of(type), SUM, group->nccl_comm,
                            stream(group, false)),
         "all-reduce");
}
