#include "base/base.h"
#include "trainer/coll.h"
#include "trainer/nccl.h"

#include <assert.h>

int tr_coll_tag(struct tr_group *group)
{
    assert(group->id > 0); /* the world's group has no tags: only MPI's collectives run on it */
    group->tag = (group->tag + 1) % TR_TAG_COLL;
    return group->id * TR_TAG_COLL + group->tag;
}

/* Who takes part in a pass, and the block of each of them: of N members, this rank is number ME. */
struct pass {
    const int *member, *block;
    int n, me, step;
};

static int at(const struct pass *pass, const int *list, int index)
{
    return list[index * pass->step];
}

static struct pass pass_of(const struct tr_coll *coll)
{
    const struct tr_group *g = coll->g;
    int inside = coll->reduce ? coll->pass : coll->pass - 1; /* for the blocks of this host */

    assert(coll->pass < coll->passes);
    if (coll->passes == 1)
        return (struct pass){g->flat, g->flat, g->size, g->rank, 1};
    if (inside < 0 || inside == g->hosts)
        return (struct pass){g->grid + g->seat, g->grid + g->seat, g->hosts, g->host, g->each};
    return (struct pass){g->grid + g->host * g->each, g->grid + inside * g->each, g->each, g->seat,
                         1};
}

/* Piece PIECE of block INDEX: its elements are [*ret_first, *ret_first + result). */
static uint64_t piece_of(uint64_t *ret_first, const struct tr_coll *coll, uint64_t piece, int index)
{
    uint64_t lo = tr_block(coll->n, coll->g->size, index) + piece * coll->most;
    uint64_t hi = tr_block(coll->n, coll->g->size, index + 1);

    *ret_first = lo;
    if (lo >= hi)
        return 0;
    return hi - lo < coll->most ? hi - lo : coll->most;
}

/* Pieces under way take turns with the parts of the group's requests and scratch. */
static int turn(uint64_t piece)
{
    return (int)(piece % PL_COLL_AHEAD);
}

static MPI_Request *requests(const struct tr_coll *coll, uint64_t piece)
{
    return coll->g->req + turn(piece) * 2 * coll->g->size;
}

/* Where the I-th of the other members' copies of a piece is received. */
static char *copy_at(const struct tr_coll *coll, uint64_t piece, int index)
{
    size_t n = (size_t)turn(piece) * (size_t)(coll->g->size - 1) + (size_t)index;

    assert(index >= 0 && index < coll->g->size - 1);
    assert((n + 1) * coll->most <= pl_coll_scratch(coll->g->size)); /* floats, the widest type */
    return (char *)coll->g->scratch + n * coll->most * kn_type_size(coll->type);
}

/* Start the next piece. Reduce-scatter: each peer's copy of my block into the scratch, my copies of
 * their blocks to them. All-gather: their blocks into place, mine to all. */
static void post(struct tr_coll *coll)
{
    struct tr_group *g = coll->g;
    struct pass p = pass_of(coll);
    size_t e = kn_type_size(coll->type);
    int tag = tr_coll_tag(g), nreq = 0;
    uint64_t k = coll->posted++, first, mine = piece_of(&first, coll, k, at(&p, p.block, p.me));
    MPI_Request *req = requests(coll, k);

    for (int d = 1; d < p.n; d++) {
        int to = (p.me + d) % p.n, from = (p.me + p.n - d) % p.n;
        uint64_t there, here, out = piece_of(&there, coll, k, at(&p, p.block, to));
        uint64_t in = piece_of(&here, coll, k, at(&p, p.block, from));
        char *slot = coll->buf + here * e;

        if (coll->reduce) {
            in = mine;
            slot = copy_at(coll, k, from < p.me ? from : from - 1);
        } else {
            out = mine;
            there = first;
        }
        if (in)
            tr_irecv(&req[nreq++], g, slot, in * e, at(&p, p.member, from), tag);
        if (out)
            tr_isend(&req[nreq++], g, coll->buf + there * e, out * e, at(&p, p.member, to), tag);
    }
    assert(nreq <= 2 * (g->size - 1));
    coll->nreq[turn(k)] = nreq;
}

static void post_ahead(struct tr_coll *coll)
{
    while (coll->posted < coll->pieces && coll->posted < coll->piece + PL_COLL_AHEAD)
        post(coll);
}

struct kn_pool *tr_coll_adder(const struct tr_group *group, const void *memory)
{
    return tr_staging_has(&group->progress->staging, memory) ? group->progress->pool : NULL;
}

/* Peers in ascending order, so that the sum does not depend on who arrives first. */
static void add_piece(struct tr_coll *coll)
{
    struct pass p = pass_of(coll);
    size_t e = kn_type_size(coll->type);
    uint64_t first, mine = piece_of(&first, coll, coll->piece, at(&p, p.block, p.me));
    char *sum = coll->buf + first * e;
    struct kn_pool *pool = tr_coll_adder(coll->g, sum);

    for (int i = 0; i < p.n - 1; i++)
        kn_add(pool, coll->type, sum, sum, copy_at(coll, coll->piece, i), mine);
    kn_wait(pool); /* the copies' place is taken by the next ones */
}

/* Whether the saved bytes are worth the latencies: see coll.h. */
static bool by_hosts(const struct tr_group *group, uint64_t bytes)
{
    uint64_t h = (uint64_t)group->hosts, q = (uint64_t)group->each;

    return h > 1 && (q - 1) * (h - 1) * bytes > h * h * TR_LINK;
}

static void start(struct tr_coll *coll, struct tr_group *group, enum kn_type type, void *buf,
                  uint64_t count, bool reduce)
{
    uint64_t block = (count + (uint64_t)group->size - 1) / (uint64_t)group->size;
    uint64_t most = reduce && group->size > 1 ? pl_coll_piece(group->size) : block + 1;

    *coll = (struct tr_coll){
        .g = group,
        .type = type,
        .buf = buf,
        .n = count,
        .reduce = reduce,
        .active = group->size > 1 && count > 0,
        .most = most,
        .pieces = reduce ? (block + most - 1) / most : 1,
        .passes = by_hosts(group, count * kn_type_size(type)) ? group->hosts + 1 : 1};
    assert(!group->running);
    group->running = coll->active;
    if (!coll->active)
        return;
    tr_now_begin(group->progress->now, group->kind);
    post_ahead(coll);
}

void tr_reduce_scatter_start(struct tr_coll *coll, struct tr_group *group, enum kn_type type,
                             void *buf, uint64_t count)
{
    start(coll, group, type, buf, count, true);
}

void tr_all_gather_start(struct tr_coll *coll, struct tr_group *group, enum kn_type type, void *buf,
                         uint64_t count)
{
    start(coll, group, type, buf, count, false);
}

/* The oldest piece is here: add it, and start the next piece, the next pass, or end. */
static void step(struct tr_coll *coll)
{
    assert(coll->active && coll->g->running && coll->piece < coll->posted);
    if (coll->reduce)
        add_piece(coll);
    if (++coll->piece == coll->pieces) {
        coll->piece = coll->posted = 0;
        coll->pass++;
    }
    if (coll->pass < coll->passes)
        post_ahead(coll);
    else
        coll->active = coll->g->running = false;
}

bool tr_coll_poll(struct tr_coll *coll)
{
    if (coll->active &&
        tr_test(coll->g->progress, requests(coll, coll->piece), coll->nreq[turn(coll->piece)]))
        step(coll);
    return !coll->active;
}

void tr_coll_wait(struct tr_coll *coll)
{
    struct tr_op op = tr_op_of(coll->reduce ? TR_OP_REDUCE_SCATTER : TR_OP_ALL_GATHER, coll->g);

    while (coll->active) {
        tr_wait(coll->g->progress, op, requests(coll, coll->piece), coll->nreq[turn(coll->piece)]);
        step(coll);
    }
}

void tr_reduce_scatter(struct tr_group *group, enum kn_type type, void *buf, uint64_t count)
{
    struct tr_coll c;

    if (tr_nccl_takes(group, buf)) {
        uint64_t since = tr_clock_waits(group->progress->clock);

        tr_nccl_reduce_scatter(group, type, buf, count, false);
        tr_clock_waited(group->progress->clock, since);
        return;
    }
    tr_reduce_scatter_start(&c, group, type, buf, count);
    tr_coll_wait(&c);
}

void tr_all_gather(struct tr_group *group, enum kn_type type, void *buf, uint64_t count)
{
    struct tr_coll c;

    if (tr_nccl_takes(group, buf)) {
        uint64_t since = tr_clock_waits(group->progress->clock);

        tr_nccl_all_gather(group, type, buf, count, false);
        tr_clock_waited(group->progress->clock, since);
        return;
    }
    tr_all_gather_start(&c, group, type, buf, count);
    tr_coll_wait(&c);
}

static void max_into(float *into, const float *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        into[i] = from[i] > into[i] ? from[i] : into[i];
}

/* COUNT <= TR_SMALL: everything to everybody, then all add in the order of ranks. */
static void small(struct tr_group *group, enum kn_type type, char *buf, uint64_t count,
                  bool take_max)
{
    size_t e = kn_type_size(type), bytes = count * e;
    char *in = group->scratch;
    struct kn_pool *pool = tr_coll_adder(group, buf);
    struct tr_op op = tr_op_begin(TR_OP_ALL_REDUCE, group);
    int tag = tr_coll_tag(group), nreq = 0;

    assert(!group->running && count <= TR_SMALL);
    assert((uint64_t)group->size * count <= pl_coll_scratch(group->size));
    for (int d = 1; d < group->size; d++) {
        int peer = (group->rank + d) % group->size,
            from = (group->rank + group->size - d) % group->size;

        tr_irecv(&group->req[nreq++], group, in + (size_t)from * bytes, bytes, from, tag);
        tr_isend(&group->req[nreq++], group, buf, bytes, peer, tag);
    }
    tr_wait(group->progress, op, group->req, nreq);
    kn_copy(pool, in + (size_t)group->rank * bytes, buf, bytes);
    kn_wait(pool);
    for (int i = 1; i < group->size; i++) {
        if (take_max)
            max_into((float *)(void *)in, (const float *)(const void *)(in + (size_t)i * bytes),
                     count);
        else
            kn_add(NULL, type, in, in, in + (size_t)i * bytes, count);
    }
    kn_copy(pool, buf, in, bytes);
    kn_wait(pool);
}

void tr_all_reduce(struct tr_group *group, enum kn_type type, void *buf, uint64_t count)
{
    if (group->size == 1 || count == 0)
        return;
    if (tr_nccl_takes(group, buf)) {
        uint64_t since = tr_clock_waits(group->progress->clock);

        tr_nccl_all_reduce(group, type, buf, count);
        tr_clock_waited(group->progress->clock, since);
        return;
    }
    if (count <= TR_SMALL) {
        small(group, type, buf, count, false);
        return;
    }
    tr_reduce_scatter(group, type, buf, count);
    tr_all_gather(group, type, buf, count);
}

void tr_all_reduce_max(struct tr_group *group, float *buf, uint64_t count)
{
    for (uint64_t i = 0; group->size > 1 && i < count; i += TR_SMALL)
        small(group, KN_F32, (char *)(buf + i), count - i < TR_SMALL ? count - i : TR_SMALL, true);
}

void tr_sum_double(struct tr_group *group, double *values, int count)
{
    MPI_Request r;

    assert(group->id == 0);
    if (group->size == 1)
        return;
    MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, group->comm, &r);
    tr_wait(group->progress, tr_op_begin(TR_OP_ALL_REDUCE, group), &r, 1);
}

void tr_gather_double(double *ret_all, struct tr_group *group, const double *values, int count)
{
    MPI_Request r;

    assert(group->id == 0);
    if (group->size == 1) {
        memcpy(ret_all, values, sizeof(*values) * (size_t)count);
        return;
    }
    MPI_Igather(values, count, MPI_DOUBLE, ret_all, count, MPI_DOUBLE, 0, group->comm, &r);
    tr_wait(group->progress, tr_op_begin(TR_OP_GATHER, group), &r, 1);
}
