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
static int all_done(MPI_Request *req, int n)
{
    static MPI_Status *volatile ignore = MPI_STATUSES_IGNORE;
    int done = 0;

    MPI_Testall(n, req, &done, ignore);
    return done;
}

enum {
    SPIN_NS = 2000000, /* with a core for every rank: a yield lets other programs in for a whole
                        * time slice, so it comes only when the peer is far behind */
    YIELDS = 32,       /* with fewer cores: peers on this core first ... */
    SLEEP_NS =
        20000, /* ... then sleep: a rank that only yields looks busy to the kernel, which
                * then  has no reason to move one with work here. Reasoned, not measured:
                * neither  the sleep nor its lengths have been compared with yielding alone */
    SLEEP_MAX_NS = 160000
};

static void pause_between(const struct tr_progress *p, unsigned tests, uint64_t since)
{
    long ns = SLEEP_NS;

    if (!p->yield) {
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

void tr_wait(struct tr_progress *p, MPI_Request *req, int n)
{
    uint64_t t = clock_mono_ns();

    for (unsigned tests = 1; !all_done(req, n); tests++) {
        pause_between(p, tests, t);
        tr_stop_check();
    }
    if (p->clock)
        p->clock->wait_ns += clock_mono_ns() - t;
}

bool tr_test(MPI_Request *req, int n)
{
    return all_done(req, n) != 0;
}

/* MPI counts are int: a larger message travels as units of 1 KiB, and no buffer here has a size
 * over 2^31 bytes that is not a multiple of 64. */
static MPI_Datatype unit(size_t *bytes)
{
    if (*bytes <= INT_MAX)
        return MPI_BYTE;
    assert(*bytes % 8 == 0 && *bytes / 8 <= INT_MAX);
    *bytes /= 8;
    return MPI_INT64_T;
}

void tr_isend(struct tr_group *g, const void *buf, size_t bytes, int rank, int tag,
              MPI_Request *ret)
{
    MPI_Datatype t = unit(&bytes);

    kn_wait(g->progress->pool);
    MPI_Isend(buf, (int)bytes, t, g->member[rank], tag, g->comm, ret);
}

void tr_irecv(struct tr_group *g, void *buf, size_t bytes, int rank, int tag, MPI_Request *ret)
{
    MPI_Datatype t = unit(&bytes);

    kn_wait(g->progress->pool);
    MPI_Irecv(buf, (int)bytes, t, g->member[rank], tag, g->comm, ret);
}

static void group_init(struct tr_group *g, struct tr_comms *c, MPI_Comm comm, int id, int size,
                       int rank)
{
    *g = (struct tr_group){
        .comm = comm, .id = id, .rank = rank, .size = size, .progress = &c->progress};
    g->member = mem_alloc(sizeof(*g->member) * (size_t)size);
    g->req = mem_alloc(sizeof(*g->req) * PL_COLL_AHEAD * 2 * (size_t)size);
    g->flat = mem_alloc(sizeof(*g->flat) * (size_t)size);
    g->grid = mem_alloc(sizeof(*g->grid) * (size_t)size);
    g->hosts = 1;
    for (int i = 0; i < size; i++)
        g->flat[i] = i;
}

static void axis_init(struct tr_group *g, struct tr_comms *c, MPI_Comm comm,
                      const struct pl_layout *l, enum pl_axis axis, int rank, int id)
{
    group_init(g, c, comm, id, pl_axis_size(l, axis), pl_axis_coord(l, axis, rank));
    for (int i = 0; i < g->size; i++)
        g->member[i] = pl_axis_peer(l, axis, rank, i);
}

static void moe_init(struct tr_comms *c, MPI_Comm comm, const struct pl_layout *l, int rank, int id)
{
    struct tr_group *g = &c->moe;

    group_init(g, c, comm, id, l->ep * l->etp,
               pl_axis_coord(l, PL_EP, rank) * l->etp + pl_axis_coord(l, PL_ETP, rank));
    for (int i = 0; i < g->size; i++)
        g->member[i] =
            pl_axis_peer(l, PL_ETP, pl_axis_peer(l, PL_EP, rank, i / l->etp), i % l->etp);
}

static void shard_init(struct tr_comms *c, MPI_Comm comm, const struct pl_layout *l, int rank,
                       int id)
{
    int period = pl_zero_period(l), dp = pl_axis_coord(l, PL_DP, rank);

    group_init(&c->shard, c, comm, id, l->dp / period, dp / period);
    for (int i = 0; i < c->shard.size; i++)
        c->shard.member[i] = pl_axis_peer(l, PL_DP, rank, i * period + dp % period);
    group_init(&c->outer, c, comm, id + 1, period, dp % period);
    for (int i = 0; i < period; i++)
        c->outer.member[i] = pl_axis_peer(l, PL_DP, rank, dp / period * period + i);
}

static void tied_init(struct tr_comms *c, MPI_Comm comm, const struct pl_layout *l, int rank,
                      int id)
{
    int last = l->pp - 1, stage = pl_axis_coord(l, PL_PP, rank);
    bool pair = l->pp > 1 && (stage == 0 || stage == last);

    group_init(&c->tied, c, comm, id, pair ? 2 : 1, pair && stage == last);
    c->tied.member[0] = pair ? pl_axis_peer(l, PL_PP, rank, 0) : rank;
    if (pair)
        c->tied.member[1] = pl_axis_peer(l, PL_PP, rank, last);
}

/* Hydra says how many of its processes share the host, of which PARENT may be only a part. */
static bool outnumbered(MPI_Comm parent, int threads)
{
    const char *hydra = getenv("MPI_LOCALNRANKS");
    MPI_Comm host;
    int n = hydra ? (int)strtol(hydra, NULL, 10) : 0;

    if (n <= 0) {
        MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
        MPI_Comm_size(host, &n);
        MPI_Comm_free(&host);
    }
    return n * threads > (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Members of one host after those of another. Returns how many each host has, 0: not alike. */
static int by_host(struct tr_group *g, const uint64_t *host)
{
    int n = 0, each = 0;

    for (int i = 0; i < g->size; i++) {
        int first = 0, k = 0;

        while (host[g->member[first]] != host[g->member[i]])
            first++;
        if (first < i)
            continue;
        for (int j = i; j < g->size; j++)
            if (host[g->member[j]] == host[g->member[i]])
                g->grid[n + k++] = j;
        if (each && k != each)
            return 0;
        each = k;
        n += k;
    }
    return each;
}

static uint64_t place(struct tr_group *g, const uint64_t *host)
{
    int each = by_host(g, host);
    uint64_t h = 0;

    g->hosts = 1;
    g->each = 0;
    if (each < 2 || each == g->size)
        return 0;
    g->each = each;
    g->hosts = g->size / each;
    for (int i = 0; i < g->size; i++) {
        h = rng_mix(h ^ (uint64_t)g->grid[i]);
        if (g->grid[i] == g->rank) {
            g->host = i / each;
            g->seat = i % each;
        }
    }
    return h ^ (uint64_t)each;
}

void tr_comms_place(struct tr_comms *c, const uint64_t *host)
{
    struct tr_group *g[] = {&c->world, &c->tp, &c->dp, &c->edp, &c->moe, &c->shard, &c->outer};
    uint64_t way[2 * ARRAY_LEN(g)], most[2 * ARRAY_LEN(g)];
    MPI_Request req;

    for (size_t i = 0; i < ARRAY_LEN(g); i++) {
        way[2 * i] = place(g[i], host);
        way[2 * i + 1] = ~way[2 * i];
    }
    MPI_Iallreduce(way, most, (int)ARRAY_LEN(way), MPI_UINT64_T, MPI_MAX, c->world.comm, &req);
    tr_wait(&c->progress, &req, 1);
    for (size_t i = 0; i < ARRAY_LEN(g); i++)
        if (most[2 * i] != ~most[2 * i + 1]) {
            g[i]->hosts = 1;
            g[i]->each = 0;
        }
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

static void ask_hosts(struct tr_comms *c)
{
    AUTO_FREE uint64_t *host = mem_alloc(sizeof(*host) * (size_t)c->world.size);
    uint64_t mine = tr_host_hash();
    MPI_Request req;

    MPI_Iallgather(&mine, 1, MPI_UINT64_T, host, 1, MPI_UINT64_T, c->world.comm, &req);
    tr_wait(&c->progress, &req, 1);
    tr_comms_place(c, host);
}

void tr_comms_init(struct tr_comms *c, MPI_Comm parent, const struct pl_layout *l,
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
    assert(size == l->world);

    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* sleeps end when they say, not 50 us later */
    *c = (struct tr_comms){.progress = {.yield = outnumbered(parent, l->threads), .clock = clock}};
    group_init(&c->world, c, parent, 0, l->world, rank);
    for (int i = 0; i < l->world; i++)
        c->world.member[i] = i;
    axis_init(&c->tp, c, parent, l, PL_TP, rank, 1);
    axis_init(&c->dp, c, parent, l, PL_DP, rank, 2);
    axis_init(&c->edp, c, parent, l, PL_EDP, rank, 3);
    moe_init(c, parent, l, rank, 4);
    shard_init(c, parent, l, rank, 5);
    tied_init(c, parent, l, rank, 7);
    c->stage = pl_axis_coord(l, PL_PP, rank);
    c->prev = pl_axis_peer(l, PL_PP, rank, (c->stage + l->pp - 1) % l->pp);
    c->next = pl_axis_peer(l, PL_PP, rank, (c->stage + 1) % l->pp);
    ask_hosts(c);
}

static void group_done(struct tr_group *g)
{
    free(g->member);
    free(g->req);
    free(g->flat);
    free(g->grid);
    *g = (struct tr_group){0};
}

void tr_comms_done(struct tr_comms *c)
{
    group_done(&c->tied);
    group_done(&c->outer);
    group_done(&c->shard);
    group_done(&c->moe);
    group_done(&c->edp);
    group_done(&c->dp);
    group_done(&c->tp);
    group_done(&c->world);
}
