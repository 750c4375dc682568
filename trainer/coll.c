#include "base/base.h"
#include "trainer/coll.h"

#include <assert.h>

uint64_t tr_block(uint64_t n, int p, int i)
{
    return n * (uint64_t)i / (uint64_t)p;
}

static int next_tag(struct tr_group *g)
{
    assert(g->id > 0);
    g->tag = (g->tag + 1) % TR_TAG_COLL;
    return g->id * TR_TAG_COLL + g->tag;
}

/* Who takes part in a pass, and the block of each of them: of N members, this rank is number ME. */
struct pass {
    const int *member, *block;
    int n, me, step;
};

static int at(const struct pass *p, const int *list, int i)
{
    return list[i * p->step];
}

static struct pass pass_of(const struct tr_coll *c)
{
    const struct tr_group *g = c->g;
    int inside = c->reduce ? c->pass : c->pass - 1; /* for the blocks of this host */

    if (c->passes == 1)
        return (struct pass){g->flat, g->flat, g->size, g->rank, 1};
    if (inside < 0 || inside == g->hosts)
        return (struct pass){g->grid + g->seat, g->grid + g->seat, g->hosts, g->host, g->each};
    return (struct pass){g->grid + g->host * g->each, g->grid + inside * g->each, g->each, g->seat,
                         1};
}

/* Piece PIECE of block I: its elements are [*first, *first + result). */
static uint64_t piece_of(const struct tr_coll *c, uint64_t piece, int i, uint64_t *first)
{
    uint64_t lo = tr_block(c->n, c->g->size, i) + piece * c->most;
    uint64_t hi = tr_block(c->n, c->g->size, i + 1);

    *first = lo;
    if (lo >= hi)
        return 0;
    return hi - lo < c->most ? hi - lo : c->most;
}

/* Pieces under way take turns with the parts of the group's requests and scratch. */
static int turn(uint64_t piece)
{
    return (int)(piece % PL_COLL_AHEAD);
}

static MPI_Request *requests(const struct tr_coll *c, uint64_t piece)
{
    return c->g->req + turn(piece) * 2 * c->g->size;
}

/* Where the I-th of the other members' copies of a piece is received. */
static char *copy_at(const struct tr_coll *c, uint64_t piece, int i)
{
    size_t n = (size_t)turn(piece) * (size_t)(c->g->size - 1) + (size_t)i;

    return (char *)c->g->scratch + n * c->most * kn_type_size(c->type);
}

/* Start the next piece. Reduce-scatter: each peer's copy of my block into the scratch, my copies of
 * their blocks to them. All-gather: their blocks into place, mine to all. */
static void post(struct tr_coll *c)
{
    struct tr_group *g = c->g;
    struct pass p = pass_of(c);
    size_t e = kn_type_size(c->type);
    int tag = next_tag(g), nreq = 0;
    uint64_t k = c->posted++, first, mine = piece_of(c, k, at(&p, p.block, p.me), &first);
    MPI_Request *req = requests(c, k);

    for (int d = 1; d < p.n; d++) {
        int to = (p.me + d) % p.n, from = (p.me + p.n - d) % p.n;
        uint64_t there, here, out = piece_of(c, k, at(&p, p.block, to), &there);
        uint64_t in = piece_of(c, k, at(&p, p.block, from), &here);
        char *slot = c->buf + here * e;

        if (c->reduce) {
            in = mine;
            slot = copy_at(c, k, from < p.me ? from : from - 1);
        } else {
            out = mine;
            there = first;
        }
        if (in)
            tr_irecv(g, slot, in * e, at(&p, p.member, from), tag, &req[nreq++]);
        if (out)
            tr_isend(g, c->buf + there * e, out * e, at(&p, p.member, to), tag, &req[nreq++]);
    }
    c->nreq[turn(k)] = nreq;
}

static void post_ahead(struct tr_coll *c)
{
    while (c->posted < c->pieces && c->posted < c->piece + PL_COLL_AHEAD)
        post(c);
}

/* Peers in ascending order, so that the sum does not depend on who arrives first. */
static void add_piece(struct tr_coll *c)
{
    struct pass p = pass_of(c);
    size_t e = kn_type_size(c->type);
    uint64_t first, mine = piece_of(c, c->piece, at(&p, p.block, p.me), &first);

    for (int i = 0; i < p.n - 1; i++)
        kn_add(NULL, c->type, c->buf + first * e, c->buf + first * e, copy_at(c, c->piece, i),
               mine);
}

/* Whether the saved bytes are worth the latencies: see coll.h. */
static bool by_hosts(const struct tr_group *g, uint64_t bytes)
{
    uint64_t h = (uint64_t)g->hosts, q = (uint64_t)g->each;

    return h > 1 && (q - 1) * (h - 1) * bytes > h * h * TR_LINK;
}

static void start(struct tr_coll *c, struct tr_group *g, enum kn_type t, void *buf, uint64_t n,
                  bool reduce)
{
    uint64_t block = (n + (uint64_t)g->size - 1) / (uint64_t)g->size;
    uint64_t most = reduce && g->size > 1 ? pl_coll_piece(g->size) : block + 1;

    *c = (struct tr_coll){.g = g,
                          .type = t,
                          .buf = buf,
                          .n = n,
                          .reduce = reduce,
                          .active = g->size > 1 && n > 0,
                          .most = most,
                          .pieces = reduce ? (block + most - 1) / most : 1,
                          .passes = by_hosts(g, n * kn_type_size(t)) ? g->hosts + 1 : 1};
    if (c->active)
        post_ahead(c);
}

void tr_reduce_scatter_start(struct tr_coll *c, struct tr_group *g, enum kn_type t, void *buf,
                             uint64_t n)
{
    start(c, g, t, buf, n, true);
}

void tr_all_gather_start(struct tr_coll *c, struct tr_group *g, enum kn_type t, void *buf,
                         uint64_t n)
{
    start(c, g, t, buf, n, false);
}

/* The oldest piece is here: add it, and start the next piece, the next pass, or end. */
static void step(struct tr_coll *c)
{
    if (c->reduce)
        add_piece(c);
    if (++c->piece == c->pieces) {
        c->piece = c->posted = 0;
        c->pass++;
    }
    if (c->pass < c->passes)
        post_ahead(c);
    else
        c->active = false;
}

bool tr_coll_poll(struct tr_coll *c)
{
    if (c->active && tr_test(requests(c, c->piece), c->nreq[turn(c->piece)]))
        step(c);
    return !c->active;
}

void tr_coll_wait(struct tr_coll *c)
{
    while (c->active) {
        tr_wait(c->g->progress, requests(c, c->piece), c->nreq[turn(c->piece)]);
        step(c);
    }
}

void tr_reduce_scatter(struct tr_group *g, enum kn_type t, void *buf, uint64_t n)
{
    struct tr_coll c;

    tr_reduce_scatter_start(&c, g, t, buf, n);
    tr_coll_wait(&c);
}

void tr_all_gather(struct tr_group *g, enum kn_type t, void *buf, uint64_t n)
{
    struct tr_coll c;

    tr_all_gather_start(&c, g, t, buf, n);
    tr_coll_wait(&c);
}

static void max_into(float *y, const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] ? x[i] : y[i];
}

/* N <= TR_SMALL: everything to everybody, then all add in the order of ranks. */
static void small(struct tr_group *g, enum kn_type t, char *buf, uint64_t n, bool take_max)
{
    size_t e = kn_type_size(t), bytes = n * e;
    char *in = g->scratch;
    int tag = next_tag(g), nreq = 0;

    for (int d = 1; d < g->size; d++) {
        int peer = (g->rank + d) % g->size, from = (g->rank + g->size - d) % g->size;

        tr_irecv(g, in + (size_t)from * bytes, bytes, from, tag, &g->req[nreq++]);
        tr_isend(g, buf, bytes, peer, tag, &g->req[nreq++]);
    }
    tr_wait(g->progress, g->req, nreq);
    memcpy(in + (size_t)g->rank * bytes, buf, bytes);
    memcpy(buf, in, bytes);
    for (int i = 1; i < g->size; i++) {
        if (take_max)
            max_into((float *)(void *)buf, (const float *)(const void *)(in + (size_t)i * bytes),
                     n);
        else
            kn_add(NULL, t, buf, buf, in + (size_t)i * bytes, n);
    }
}

void tr_all_reduce(struct tr_group *g, enum kn_type t, void *buf, uint64_t n)
{
    if (g->size == 1 || n == 0)
        return;
    if (n <= TR_SMALL) {
        small(g, t, buf, n, false);
        return;
    }
    tr_reduce_scatter(g, t, buf, n);
    tr_all_gather(g, t, buf, n);
}

void tr_all_reduce_max(struct tr_group *g, float *buf, uint64_t n)
{
    for (uint64_t i = 0; g->size > 1 && i < n; i += TR_SMALL)
        small(g, KN_F32, (char *)(buf + i), n - i < TR_SMALL ? n - i : TR_SMALL, true);
}

void tr_sum_double(struct tr_group *g, double *x, int n)
{
    MPI_Request r;

    assert(g->id == 0);
    if (g->size == 1)
        return;
    MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, g->comm, &r);
    tr_wait(g->progress, &r, 1);
}

void tr_max_double(struct tr_group *g, double *x, int n)
{
    MPI_Request r;

    assert(g->id == 0);
    if (g->size == 1)
        return;
    MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, g->comm, &r);
    tr_wait(g->progress, &r, 1);
}

void tr_gather_double(struct tr_group *g, const double *x, int n, double *all)
{
    MPI_Request r;

    assert(g->id == 0);
    if (g->size == 1) {
        memcpy(all, x, sizeof(*x) * (size_t)n);
        return;
    }
    MPI_Igather(x, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, g->comm, &r);
    tr_wait(g->progress, &r, 1);
}

void tr_barrier(struct tr_group *g)
{
    MPI_Request r;

    assert(g->id == 0);
    if (g->size == 1)
        return;
    MPI_Ibarrier(g->comm, &r);
    tr_wait(g->progress, &r, 1);
}
