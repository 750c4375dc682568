#include "base/base.h"
#include "trainer/coll.h"

#include <assert.h>

uint64_t tr_block(uint64_t n, int p, int i)
{
    return n * (uint64_t)i / (uint64_t)p;
}

static int next_tag(struct tr_group *g)
{
    g->tag = (g->tag + 1) % TR_TAG_COLL;
    return (1 + g->id) * TR_TAG_COLL + g->tag;
}

/* Piece PIECE of block I as [*first, *first + result). */
static uint64_t piece_of(const struct tr_coll *c, int i, uint64_t *first)
{
    uint64_t lo = tr_block(c->n, c->g->size, i) + c->piece * PL_COLL_PIECE;
    uint64_t hi = tr_block(c->n, c->g->size, i + 1);

    *first = lo;
    if (lo >= hi)
        return 0;
    return hi - lo < PL_COLL_PIECE ? hi - lo : PL_COLL_PIECE;
}

/* Post one piece: mine from every peer into the scratch, and each peer's to it. */
static void post_piece(struct tr_coll *c)
{
    struct tr_group *g = c->g;
    size_t e = kn_type_size(c->type);
    int tag = next_tag(g);
    uint64_t first, mine = piece_of(c, g->rank, &first);
    char *in = g->scratch;

    c->nreq = 0;
    for (int d = 1; d < g->size; d++) {
        int peer = (g->rank + d) % g->size, from = (g->rank + g->size - d) % g->size;
        uint64_t n = piece_of(c, peer, &first);

        if (mine)
            tr_irecv(g, in + (size_t)(from < g->rank ? from : from - 1) * PL_COLL_PIECE * e,
                     mine * e, from, tag, &g->req[c->nreq++]);
        if (n)
            tr_isend(g, c->buf + first * e, n * e, peer, tag, &g->req[c->nreq++]);
    }
}

/* Peers in ascending order, so that the sum does not depend on who arrives first. */
static void add_piece(struct tr_coll *c)
{
    size_t e = kn_type_size(c->type);
    uint64_t first, mine = piece_of(c, c->g->rank, &first);

    for (int i = 0; i < c->g->size - 1; i++)
        kn_add(NULL, c->type, c->buf + first * e, c->buf + first * e,
               (char *)c->g->scratch + (size_t)i * PL_COLL_PIECE * e, mine);
}

void tr_reduce_scatter_start(struct tr_coll *c, struct tr_group *g, enum kn_type t, void *buf,
                             uint64_t n)
{
    uint64_t most = (n + (uint64_t)g->size - 1) / (uint64_t)g->size;

    *c = (struct tr_coll){.g = g,
                          .type = t,
                          .buf = buf,
                          .n = n,
                          .reduce = true,
                          .active = g->size > 1 && n > 0,
                          .pieces = (most + PL_COLL_PIECE - 1) / PL_COLL_PIECE};
    if (c->active)
        post_piece(c);
}

void tr_all_gather_start(struct tr_coll *c, struct tr_group *g, enum kn_type t, void *buf,
                         uint64_t n)
{
    size_t e = kn_type_size(t);
    int tag;
    uint64_t lo = tr_block(n, g->size, g->rank), hi = tr_block(n, g->size, g->rank + 1);

    *c = (struct tr_coll){.g = g, .type = t, .buf = buf, .n = n, .active = g->size > 1 && n > 0};
    if (!c->active)
        return;
    tag = next_tag(g);
    for (int d = 1; d < g->size; d++) {
        int peer = (g->rank + d) % g->size, from = (g->rank + g->size - d) % g->size;
        uint64_t flo = tr_block(n, g->size, from), fhi = tr_block(n, g->size, from + 1);

        tr_irecv(g, c->buf + flo * e, (fhi - flo) * e, from, tag, &g->req[c->nreq++]);
        tr_isend(g, c->buf + lo * e, (hi - lo) * e, peer, tag, &g->req[c->nreq++]);
    }
}

/* What follows the completed requests: the next piece, or the end. */
static void step(struct tr_coll *c)
{
    if (c->reduce) {
        add_piece(c);
        if (++c->piece < c->pieces) {
            post_piece(c);
            return;
        }
    }
    c->active = false;
}

bool tr_coll_poll(struct tr_coll *c)
{
    if (c->active && tr_test(c->g->req, c->nreq))
        step(c);
    return !c->active;
}

void tr_coll_wait(struct tr_coll *c)
{
    while (c->active) {
        tr_wait(c->g->progress, c->g->req, c->nreq);
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
