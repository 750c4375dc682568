#include "trainer/nccl_comms.h"

#include "base/base.h"
#include "trainer/sharing.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

static const char LIBRARY[] = "libnccl.so.2";

static const char *const names[] = {
    "ncclGetVersion",     "ncclGetUniqueId", "ncclCommInitRank",
    "ncclCommDestroy",    "ncclCommAbort",   "ncclCommGetAsyncError",
    "ncclGetErrorString", "ncclAllReduce",   "ncclReduceScatter",
    "ncclAllGather",      "ncclReduce",      "ncclBroadcast",
    "ncclSend",           "ncclRecv",        "ncclGroupStart",
    "ncclGroupEnd"};

_Static_assert(sizeof(struct tr_nccl_calls) == ARRAY_LEN(names) * sizeof(void *), "a name each");

/* ---- errors -------------------------------------------------------------- */

enum { PERIOD_NS = 100000000, ABORT_S = 2, IN_PROGRESS = 7 };

static void *abort_all(void *arg)
{
    struct tr_nccl *nccl = arg;

    for (int i = 0; i < nccl->comms; i++)
        (void)nccl->call.abort(nccl->comm[i]);
    return NULL;
}

/* Aside and not for long: the job has to end, and an abort that hangs must not keep it. */
static void abort_in_time(struct tr_nccl *nccl)
{
    struct timespec end;
    pthread_t thread;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ABORT_S;
    if (pthread_create(&thread, NULL, abort_all, nccl) == 0)
        (void)pthread_timedjoin_np(thread, NULL, &end);
}

void tr_nccl_must(struct tr_nccl *nccl, int code, const char *what)
{
    char text[160];

    if (code == 0)
        return;
    snprintf(text, sizeof(text), "NCCL: %s: %s (%d)", what, nccl->call.error_text(code), code);
    abort_in_time(nccl);
    nccl->fail(text);
}

/* Of every wait. */
static void ask(void *arg)
{
    struct tr_nccl *nccl = arg;
    uint64_t now = clock_mono_ns();

    if (now < nccl->asked_ns + PERIOD_NS)
        return;
    nccl->asked_ns = now;
    for (int i = 0; i < nccl->comms; i++) {
        int code = 0, r = nccl->call.async_error(nccl->comm[i], &code);

        tr_nccl_must(nccl, r ? r : code == IN_PROGRESS ? 0 : code, "another rank or its link");
    }
}

static void ask_while_waiting(struct tr_comms *comms, struct tr_nccl *nccl)
{
    struct tr_progress *progress = &comms->progress;

    progress->ask = nccl ? ask : NULL;
    progress->ask_arg = nccl;
    kn_pool_set_idle(progress->pool, nccl ? tr_idle : NULL, progress);
}

/* ---- the library --------------------------------------------------------- */

static struct tr_nccl *free_it(struct tr_nccl *nccl)
{
    kn_pool_free(nccl->aside);
    if (nccl->library)
        dlclose(nccl->library);
    free(nccl);
    return NULL;
}

/* Without a second stream where the library is missing. */
static struct tr_nccl *load(struct kn_pool *pool, tr_fail_fn *fail)
{
    struct tr_nccl *nccl = mem_alloc(sizeof(*nccl));
    struct err unused = {0};

    nccl->pool = pool;
    nccl->fail = fail;
    if (dl_functions(&nccl->library, (void **)&nccl->call, LIBRARY, names, ARRAY_LEN(names),
                     &unused) == 0 &&
        nccl->call.version(&nccl->version) == 0)
        nccl->aside = kn_pool_new(1);
    return nccl;
}

/* Every rank has a GPU of its own, and NCCL, which takes no two instances of one GPU. */
static bool all_can(struct tr_comms *comms, const struct tr_nccl *nccl)
{
    const char *word = getenv("PARTUNE_NCCL");
    struct tr_sharing sharing;
    MPI_Request req;
    int can;

    tr_sharing(&sharing, comms);
    can = sharing.on_gpu == 1 && nccl->aside && !str_eq(word, "off");
    MPI_Iallreduce(MPI_IN_PLACE, &can, 1, MPI_INT, MPI_MIN, comms->world.comm, &req);
    tr_wait(&comms->progress, tr_op_begin(TR_OP_ALL_REDUCE, &comms->world), &req, 1);
    return can;
}

struct tr_nccl *tr_nccl_open(struct tr_comms *comms, tr_fail_fn *fail)
{
    struct tr_nccl *nccl;

    if (comms->world.size == 1 || !comms->progress.staging.bytes) /* alike on all ranks */
        return NULL;
    nccl = load(comms->progress.pool, fail);
    if (!all_can(comms, nccl))
        return free_it(nccl);
    ask_while_waiting(comms, nccl);
    return nccl;
}

struct tr_nccl *tr_nccl_close(struct tr_nccl *nccl, struct tr_comms *comms)
{
    if (!nccl)
        return NULL;
    ask_while_waiting(comms, NULL);
    while (nccl->comms > 0)
        tr_nccl_must(nccl, nccl->call.destroy(nccl->comm[--nccl->comms]),
                     "the end of a communicator");
    return free_it(nccl);
}

/* ---- communicators ------------------------------------------------------- */

/* Rank 0 of the group names the communicator. */
static void share_id(struct tr_nccl_id *id, struct tr_group *group)
{
    struct tr_op op = tr_op_begin(TR_OP_SEND_RECV, group);
    int tag = group->id * TR_TAG_COLL, n = 0;

    for (int i = 1; i < group->size && group->rank == 0; i++)
        tr_isend(&group->req[n++], group, id, sizeof(*id), i, tag);
    if (group->rank > 0)
        tr_irecv(&group->req[n++], group, id, sizeof(*id), 0, tag);
    tr_wait(group->progress, op, group->req, n);
}

void *tr_nccl_comm(struct tr_nccl *nccl, struct tr_group *group)
{
    struct tr_nccl_id id = {{0}};
    void *comm = NULL;

    assert(group->size > 1 && nccl->comms < (int)ARRAY_LEN(nccl->comm));
    if (group->rank == 0)
        tr_nccl_must(nccl, nccl->call.unique_id(&id), "a name for a communicator");
    share_id(&id, group);
    tr_nccl_must(nccl, nccl->call.init(&comm, group->size, id, group->rank), "a communicator");
    nccl->comm[nccl->comms++] = comm;
    return comm;
}
