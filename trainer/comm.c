#include "base/base.h"
#include "trainer/comm.h"
#include "trainer/stop.h"

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* The MPI error handler has no argument of ours, so the function it calls lives here. */
static tr_fail_fn *fail_fn;

static void on_mpi_error(MPI_Comm *comm, int *code, ...)
{
    char text[MPI_MAX_ERROR_STRING + 32] = "mpi: ";
    int n = 0;

    (void)comm;
    MPI_Error_string(*code, text + 5, &n);
    for (char *p = text; *p; p++)
        if (*p == '\n')
            *p = ' ';
    if (fail_fn)
        fail_fn(text);
    MPI_Abort(MPI_COMM_WORLD, TR_EXIT_COMM);
}

/* MPI_STATUSES_IGNORE is the address 1, which gcc takes for a real, too small array. */
static bool all_done(struct tr_progress *progress, MPI_Request *req, int count)
{
    static MPI_Status *volatile ignore = MPI_STATUSES_IGNORE;
    struct tr_staging *staging = &progress->staging;
    int done = 0;

    if (!staging->flying) {
        MPI_Testall(count, req, &done, ignore);
        return done;
    }
    tr_staging_mark(staging, req, count);
    MPI_Testall(count, req, &done, ignore);
    if (done)
        tr_staging_land(staging, progress->pool);
    return done;
}

enum {
    SPIN_NS = 2000000, /* with a core for every rank: a yield lets other programs in for a whole
                        * time slice, so it comes only when the peer is far behind */
    YIELDS = 32,       /* with fewer cores: peers on this core first ... */
    SLEEP_NS = 20000,  /* ... then sleep: a rank that only yields looks busy to the kernel, which
                        * then has no reason to move one with work here. 8 ranks on 2 cores that
                        * only yield take as long alone, and a tenth to a third longer beside
                        * other programs. With 4 yields a step with experts is a tenth shorter on 8
                        * ranks, but small models under tp take three times as long */
    SLEEP_MAX_NS = 160000
};

static void pause_between(const struct tr_progress *progress, unsigned tests, uint64_t since)
{
    long ns = SLEEP_NS;

    if (!progress->yield) {
        if (tests % 64 == 0 && clock_mono_ns() - since > SPIN_NS)
            sched_yield();
        return;
    }
    if (tests < YIELDS) {
        sched_yield();
        return;
    }
    for (unsigned i = YIELDS; i < tests && ns < SLEEP_MAX_NS; i += 8)
        ns *= 2;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void check_hung(struct tr_progress *progress)
{
    const char *why = atomic_load_explicit(&progress->hung, memory_order_acquire);

    if (why)
        fail_fn(why);
}

static void look(struct tr_progress *progress)
{
    tr_stop_check();
    check_hung(progress);
    if (progress->ask)
        progress->ask(progress->ask_arg);
}

void tr_idle(void *progress)
{
    const struct tr_progress *own = progress;

    tr_now_gpu(own->now);
    if (own->yield)
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    look(progress);
}

void tr_wait(struct tr_progress *progress, struct tr_op op, MPI_Request *req, int count)
{
    uint64_t t = tr_clock_waits(progress->clock);
    unsigned tests = 1;

    for (; !all_done(progress, req, count); tests++) {
        if (tests == 1)
            tr_now_wait(progress->now, op);
        pause_between(progress, tests, t);
        look(progress);
    }
    if (tests > 1)
        tr_now_wait(progress->now, (struct tr_op){.name = TR_OP_NONE});
    tr_clock_waited(progress->clock, t);
}

bool tr_test(struct tr_progress *progress, MPI_Request *req, int count)
{
    return all_done(progress, req, count);
}

uint64_t tr_block(uint64_t total, int parts, int index)
{
    assert(index >= 0 && index <= parts && total <= UINT64_MAX / (uint64_t)parts);
    return total * (uint64_t)index / (uint64_t)parts;
}

/* MPI counts are int: a larger message travels as 8-byte words. Buffers here of more than 2^31
 * bytes have a size that is a multiple of 64. */
static MPI_Datatype unit(size_t *bytes)
{
    if (*bytes <= INT_MAX)
        return MPI_BYTE;
    assert(*bytes % 8 == 0 && *bytes / 8 <= INT_MAX);
    *bytes /= 8;
    return MPI_INT64_T;
}

/* The message of BUFFER is STAGED, if there was memory for that. */
static void need(const struct tr_staged *staged)
{
    if (!staged)
        fail_fn("no memory of the host for a message from or to the GPU");
}

void tr_isend(MPI_Request *ret, struct tr_group *group, const void *buf, size_t bytes, int rank,
              int tag)
{
    struct tr_staging *staging = &group->progress->staging;
    struct kn_pool *pool = group->progress->pool;
    struct tr_staged *staged = NULL;
    void *room = NULL;
    size_t size = bytes;
    MPI_Datatype t = unit(&bytes);

    assert(rank >= 0 && rank < group->size && tag >= 0 && tag <= TR_TAG_MAX);
    if (tr_staging_has(staging, buf))
        need(staged = tr_stage_send(&room, staging, pool, buf, size));
    kn_wait(pool);
    MPI_Isend(staged ? room : buf, (int)bytes, t, group->member[rank], tag, group->comm, ret);
    if (staged)
        tr_staged_as(staged, *ret);
}

void tr_irecv(MPI_Request *ret, struct tr_group *group, void *buf, size_t bytes, int rank, int tag)
{
    struct tr_staging *staging = &group->progress->staging;
    struct tr_staged *staged = NULL;
    size_t size = bytes;
    MPI_Datatype t = unit(&bytes);

    assert(rank >= 0 && rank < group->size && tag >= 0 && tag <= TR_TAG_MAX);
    if (tr_staging_has(staging, buf))
        need(staged = tr_stage_receive(&buf, staging, buf, size));
    else
        kn_wait(group->progress->pool);
    MPI_Irecv(buf, (int)bytes, t, group->member[rank], tag, group->comm, ret);
    if (staged)
        tr_staged_as(staged, *ret);
}

static void group_init(struct tr_group *group, struct tr_comms *comms, MPI_Comm comm, int id,
                       int size, int rank)
{
    assert(rank >= 0 && rank < size && id >= 0 && id <= TR_GROUPS);
    *group = (struct tr_group){
        .comm = comm, .id = id, .rank = rank, .size = size, .progress = &comms->progress};
    group->member = mem_alloc(sizeof(*group->member) * (size_t)size);
    group->req = mem_alloc(sizeof(*group->req) * PL_COLL_AHEAD * 2 * (size_t)size);
    group->flat = mem_alloc(sizeof(*group->flat) * (size_t)size);
    group->grid = mem_alloc(sizeof(*group->grid) * (size_t)size);
    group->hosts = 1;
    for (int i = 0; i < size; i++)
        group->flat[i] = i;
}

static void axis_init(struct tr_group *group, struct tr_comms *comms, MPI_Comm comm,
                      const struct pl_layout *layout, enum pl_axis axis, int rank, int id)
{
    group_init(group, comms, comm, id, pl_axis_size(layout, axis),
               pl_axis_coord(layout, axis, rank));
    for (int i = 0; i < group->size; i++)
        group->member[i] = pl_axis_peer(layout, axis, rank, i);
    assert(group->member[group->rank] == rank);
}

static void moe_init(struct tr_comms *comms, MPI_Comm comm, const struct pl_layout *layout,
                     int rank, int id)
{
    struct tr_group *g = &comms->moe;

    group_init(g, comms, comm, id, layout->ep * layout->etp,
               pl_axis_coord(layout, PL_EP, rank) * layout->etp +
                   pl_axis_coord(layout, PL_ETP, rank));
    for (int i = 0; i < g->size; i++)
        g->member[i] = pl_axis_peer(
            layout, PL_ETP, pl_axis_peer(layout, PL_EP, rank, i / layout->etp), i % layout->etp);
    assert(g->member[g->rank] == rank);
}

/* The replicas of dense state or of experts: groups ID and ID + 1. */
static void replicas_init(struct tr_comms *comms, MPI_Comm comm, const struct pl_layout *layout,
                          int rank, bool expert, int id)
{
    struct tr_group *shard = &comms->shard[expert], *copy = &comms->copy[expert];
    struct pl_cut cut;
    int at, low, block;

    pl_cut(&cut, layout, expert);
    at = pl_axis_coord(layout, cut.axis, rank);
    low = at % cut.stride;
    block = at / (cut.stride * cut.size);
    group_init(shard, comms, comm, id, cut.size, at / cut.stride % cut.size);
    for (int i = 0; i < shard->size; i++)
        shard->member[i] =
            pl_axis_peer(layout, cut.axis, rank, (block * cut.size + i) * cut.stride + low);
    group_init(copy, comms, comm, id + 1, pl_axis_size(layout, cut.axis) / cut.size,
               low + cut.stride * block);
    for (int i = 0; i < copy->size; i++)
        copy->member[i] =
            pl_axis_peer(layout, cut.axis, rank,
                         (i / cut.stride * cut.size + shard->rank) * cut.stride + i % cut.stride);
    assert(shard->member[shard->rank] == rank && copy->member[copy->rank] == rank);
}

static void tied_init(struct tr_comms *comms, MPI_Comm comm, const struct pl_layout *layout,
                      int rank, int id)
{
    int last = layout->pp - 1, stage = pl_axis_coord(layout, PL_PP, rank);
    bool pair = layout->pp > 1 && (stage == 0 || stage == last);

    group_init(&comms->tied, comms, comm, id, pair ? 2 : 1, pair && stage == last);
    comms->tied.member[0] = pair ? pl_axis_peer(layout, PL_PP, rank, 0) : rank;
    if (pair)
        comms->tied.member[1] = pl_axis_peer(layout, PL_PP, rank, last);
    assert(comms->tied.member[comms->tied.rank] == rank);
}

/* The launcher says how many of its processes share the host, of which PARENT may be only a part.
 */
static bool outnumbered(MPI_Comm parent, int threads)
{
    struct ranks ranks;
    MPI_Comm host;
    int n;

    ranks_from_env(&ranks);
    n = ranks.locals;
    if (n <= 0) {
        MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
        MPI_Comm_size(host, &n);
        MPI_Comm_free(&host);
    }
    return n * threads > (int)sysconf(_SC_NPROCESSORS_ONLN);
}

struct seat {
    uint64_t host;
    int member;
};

static int by_host_then_member(const void *left, const void *right)
{
    const struct seat *x = left, *y = right;

    return x->host != y->host ? (x->host > y->host) - (x->host < y->host)
                              : (x->member > y->member) - (x->member < y->member);
}

static int by_member(const void *left, const void *right)
{
    const struct seat *x = left, *y = right;

    return (x->member > y->member) - (x->member < y->member);
}

/* Members of one host after those of another, hosts in the order of their first members. Returns
 * how many each host has, 0: not alike. By sorting: a group may have thousands of hosts. */
static int by_host(struct tr_group *group, const uint64_t *host)
{
    size_t size = (size_t)group->size, hosts = 0, each = 0;
    AUTO_FREE struct seat *seat = mem_alloc(sizeof(*seat) * size * 2);
    struct seat *first = seat + size; /* (hosts): the place of its seats, its first member */

    for (size_t i = 0; i < size; i++)
        seat[i] = (struct seat){host[group->member[i]], (int)i};
    qsort(seat, size, sizeof(*seat), by_host_then_member);
    for (size_t i = 0, end; i < size; i = end) {
        for (end = i + 1; end < size && seat[end].host == seat[i].host;)
            end++;
        if (each && end - i != each)
            return 0;
        each = end - i;
        first[hosts++] = (struct seat){i, seat[i].member};
    }
    assert(hosts * each == size);
    qsort(first, hosts, sizeof(*first), by_member);
    for (size_t i = 0; i < size; i++)
        group->grid[i] = seat[first[i / each].host + i % each].member;
    return (int)each;
}

static uint64_t place(struct tr_group *group, const uint64_t *host)
{
    int each = by_host(group, host);
    uint64_t h = 0;

    group->hosts = 1;
    group->each = 0;
    if (each < 2 || each == group->size)
        return 0;
    group->each = each;
    group->hosts = group->size / each;
    assert(group->hosts * group->each == group->size);
    for (int i = 0; i < group->size; i++) {
        h = rng_mix(h ^ (uint64_t)group->grid[i]);
        if (group->grid[i] == group->rank) {
            group->host = i / each;
            group->seat = i % each;
        }
    }
    return h ^ (uint64_t)each;
}

void tr_comms_place(struct tr_comms *comms, const uint64_t *host)
{
    /* the world's collectives are MPI's */
    struct tr_group *g[] = {&comms->tp,      &comms->cp,       &comms->moe,     &comms->copy[0],
                            &comms->copy[1], &comms->shard[0], &comms->shard[1]};
    uint64_t way[2 * ARRAY_LEN(g)], most[2 * ARRAY_LEN(g)];
    MPI_Request req;

    for (size_t i = 0; i < ARRAY_LEN(g); i++) {
        way[2 * i] = place(g[i], host);
        way[2 * i + 1] = ~way[2 * i];
    }
    MPI_Iallreduce(way, most, (int)ARRAY_LEN(way), MPI_UINT64_T, MPI_MAX, comms->world.comm, &req);
    tr_wait(&comms->progress, tr_op_begin(TR_OP_ALL_REDUCE, &comms->world), &req, 1);
    for (size_t i = 0; i < ARRAY_LEN(g); i++)
        if (most[2 * i] != ~most[2 * i + 1]) {
            g[i]->hosts = 1;
            g[i]->each = 0;
        }
}

/* The first line of what the library says of itself, up to a comma, without its filling words. */
const char *tr_mpi_name(char *buf, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING], *word, *rest = text;
    int n = 0;

    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = '\0';
    buf[0] = '\0';
    while ((word = strtok_r(rest, " \t", &rest))) {
        size_t len = strlen(buf);

        if (!str_starts(word, "Version"))
            snprintf(buf + len, size - len, "%s%s", len ? " " : "",
                     word + (word[0] == 'v' && word[1] >= '0' && word[1] <= '9'));
    }
    return buf;
}

uint64_t tr_host_hash(void)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    uint64_t h = 0;
    int n = 0;

    MPI_Get_processor_name(name, &n);
    for (int i = 0; i < n; i++)
        h = rng_mix(h ^ (unsigned char)name[i]);
    return h;
}

static void ask_hosts(struct tr_comms *comms)
{
    AUTO_FREE uint64_t *host = mem_alloc(sizeof(*host) * (size_t)comms->world.size);
    uint64_t mine = tr_host_hash();
    MPI_Request req;

    MPI_Iallgather(&mine, 1, MPI_UINT64_T, host, 1, MPI_UINT64_T, comms->world.comm, &req);
    tr_wait(&comms->progress, tr_op_begin(TR_OP_ALL_GATHER, &comms->world), &req, 1);
    comms->first_of_host = true;
    for (int i = 0; i < comms->world.rank; i++)
        comms->first_of_host &= host[i] != mine;
    tr_comms_place(comms, host);
}

static void name_groups(struct tr_comms *comms)
{
    comms->world.kind = TR_IN_WORLD;
    comms->tp.kind = TR_IN_TP;
    comms->cp.kind = TR_IN_CP;
    comms->moe.kind = TR_IN_EP;
    comms->tied.kind = TR_IN_TIED;
    comms->shard[0].kind = TR_IN_DP_SHARD;
    comms->copy[0].kind = TR_IN_DP;
    comms->shard[1].kind = TR_IN_EDP_SHARD;
    comms->copy[1].kind = TR_IN_EDP;
}

void tr_comms_init(struct tr_comms *comms, MPI_Comm parent, const struct pl_layout *layout,
                   struct tr_clock *clock, tr_fail_fn *fail)
{
    MPI_Errhandler h;
    int rank, size;

    fail_fn = fail;
    MPI_Comm_create_errhandler(on_mpi_error, &h);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, h);
    MPI_Comm_set_errhandler(parent, h);
    MPI_Errhandler_free(&h);
    MPI_Comm_rank(parent, &rank);
    MPI_Comm_size(parent, &size);
    assert(size == layout->world);

    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* sleeps end when they say, not 50 us later */
    *comms = (struct tr_comms){
        .progress = {.yield = outnumbered(parent, layout->threads), .clock = clock}};
    group_init(&comms->world, comms, parent, 0, layout->world, rank);
    for (int i = 0; i < layout->world; i++)
        comms->world.member[i] = i;
    axis_init(&comms->tp, comms, parent, layout, PL_TP, rank, 1);
    replicas_init(comms, parent, layout, rank, false, 2);
    replicas_init(comms, parent, layout, rank, true, 4);
    moe_init(comms, parent, layout, rank, 6);
    tied_init(comms, parent, layout, rank, 7);
    /* the number of `tied`: no two ranks are in both, which lie along a stage and across stages */
    axis_init(&comms->cp, comms, parent, layout, PL_CP, rank, 7);
    comms->stage = pl_axis_coord(layout, PL_PP, rank);
    comms->prev = pl_axis_peer(layout, PL_PP, rank, (comms->stage + layout->pp - 1) % layout->pp);
    comms->next = pl_axis_peer(layout, PL_PP, rank, (comms->stage + 1) % layout->pp);
    name_groups(comms);
    ask_hosts(comms);
}

static void group_done(struct tr_group *group)
{
    free(group->member);
    free(group->req);
    free(group->flat);
    free(group->grid);
    *group = (struct tr_group){0};
}

void tr_comms_done(struct tr_comms *comms)
{
    tr_staging_done(&comms->progress.staging);
    group_done(&comms->cp);
    group_done(&comms->tied);
    for (int i = 0; i < 2; i++) {
        group_done(&comms->copy[i]);
        group_done(&comms->shard[i]);
    }
    group_done(&comms->moe);
    group_done(&comms->tp);
    group_done(&comms->world);
}
