/*
 * Exchanges over tp behind the products next to them (tp_overlap), as Transformer Engine's user
 * buffers and PyTorch's asynchronous tensor parallelism have them.
 *
 * Rows of a product are computed in blocks, one for each tp rank's share of them:
 *
 *   gather, then product  own rows first, then those of each peer as they arrive
 *   product, then sum     those of each peer first, which are sent at once, own rows last
 *
 * The gradient of a weight adds over all rows, so it needs them at once: its input is gathered
 * behind the products before it, and the sum of the gradient of that input is waited for after it.
 *
 * Own terms and those of the peers are added in the order of tr_reduce_scatter() on one level, so
 * results are the same bits. A group of several hosts with several members each has two levels,
 * which save bytes on their link (coll.h), and does without.
 */
#include "trainer/tp_overlap.h"

#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>

static bool overlaps(const struct tr_rank *rank)
{
    assert(!rank->layout.tp_overlap || rank->layout.sp);
    return rank->layout.tp_overlap && rank->comms.tp.hosts == 1;
}

static int peers(const struct tr_rank *rank)
{
    return rank->comms.tp.size - 1;
}

/* The DISTANCE-th tp rank after this one, and before it. */
static int after(const struct tr_rank *rank, int distance)
{
    return (rank->comms.tp.rank + distance) % rank->comms.tp.size;
}

static int before(const struct tr_rank *rank, int distance)
{
    return (rank->comms.tp.rank + rank->comms.tp.size - distance) % rank->comms.tp.size;
}

/* The rows of tp rank OWNER. */
static void product_of(struct tr_rank *rank, const struct tr_product *product, int owner)
{
    uint64_t rows = rank->d.local_rows;

    tr_product_rows(rank, product, (uint64_t)owner * rows, rows);
}

static void wait_for(struct tr_rank *rank, enum tr_op_name name, MPI_Request *req, int count)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_TP);

    tr_wait(&rank->comms.progress, tr_op_of(name, &rank->comms.tp), req, count);
    tr_phase(&rank->clock, was);
}

/* What the D-th rank before this one sends is here. */
static void wait_for_peer(struct tr_rank *rank, enum tr_op_name name, MPI_Request *req,
                          const tr_exchange *linked, int d)
{
    struct tr_link *link = rank->comms.link[TR_LINK_TP];
    enum tr_phase was;

    if (!link) {
        wait_for(rank, name, &req[d - 1], 1);
        return;
    }
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    tr_link_wait(link, linked[d - 1]);
    tr_phase(&rank->clock, was);
}

/* All of them are, and what was sent has left. */
static void wait_for_all(struct tr_rank *rank, enum tr_op_name name, MPI_Request *req,
                         const tr_exchange *linked)
{
    if (rank->comms.link[TR_LINK_TP])
        wait_for_peer(rank, name, req, linked, peers(rank));
    else
        wait_for(rank, name, req, 2 * peers(rank));
}

/* BYTES of OUT to the D-th rank after this one, and into IN from the D-th before it. */
static void exchange(struct tr_rank *rank, MPI_Request *req, tr_exchange *linked, int d,
                     const void *out, void *in, size_t bytes, int tag)
{
    struct tr_link *link = rank->comms.link[TR_LINK_TP];
    struct tr_group *tp = &rank->comms.tp;

    if (link) {
        tr_link_begin(link);
        tr_link_send(link, out, bytes, after(rank, d));
        tr_link_recv(link, in, bytes, before(rank, d));
        linked[d - 1] = tr_link_end(link);
        return;
    }
    tr_isend(&req[peers(rank) + d - 1], tp, out, bytes, after(rank, d), tag);
    tr_irecv(&req[d - 1], tp, in, bytes, before(rank, d), tag);
}

/* ---- gather -------------------------------------------------------------- */

static void gather_start(struct tr_rank *rank, const void *input)
{
    struct tr_group *tp = &rank->comms.tp;
    size_t bytes = rank->d.local_rows * rank->d.hidden * rank->d.elem;
    char *all = rank->work.gather, *own = all + (size_t)tp->rank * bytes;
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_TP);
    int tag = tr_coll_tag(tp);

    tr_now_begin(tp->progress->now, tp->kind);
    kn_copy(rank->pool, own, input, bytes);
    for (int d = 1; d <= peers(rank); d++)
        exchange(rank, rank->tp.gather, rank->tp.linked_gather, d, own,
                 all + (size_t)before(rank, d) * bytes, bytes, tag);
    tr_phase(&rank->clock, was);
}

static const void *gather_product(struct tr_rank *rank, struct tr_product *product)
{
    if (!overlaps(rank)) {
        product->from = tr_gather_rows(rank, product->from);
        tr_product_rows(rank, product, 0, rank->d.rows);
        return product->from;
    }
    gather_start(rank, product->from);
    product->from = rank->work.gather;
    product_of(rank, product, rank->comms.tp.rank);
    for (int d = 1; d <= peers(rank); d++) {
        wait_for_peer(rank, TR_OP_ALL_GATHER, rank->tp.gather, rank->tp.linked_gather, d);
        product_of(rank, product, before(rank, d));
    }
    wait_for_all(rank, TR_OP_ALL_GATHER, rank->tp.gather, rank->tp.linked_gather);
    return rank->work.gather;
}

const void *tr_gather_linear(struct tr_rank *rank, void *output, const void *input,
                             const void *weight, uint64_t out)
{
    struct tr_product product = {.type = rank->type,
                                 .from = input,
                                 .weight = weight,
                                 .to = output,
                                 .in = rank->d.hidden,
                                 .out = out};

    return gather_product(rank, &product);
}

const void *tr_gather_linear_dx(struct tr_rank *rank, void *dx, const void *dy, const void *weight,
                                uint64_t in)
{
    struct tr_product product = {.back = true,
                                 .type = rank->type,
                                 .from = dy,
                                 .weight = weight,
                                 .to = dx,
                                 .in = rank->d.hidden,
                                 .out = in};

    return gather_product(rank, &product);
}

void tr_gather_ahead(struct tr_rank *rank, const void *input)
{
    assert(!rank->tp.input);
    rank->tp.input = input;
    if (overlaps(rank))
        gather_start(rank, input);
}

const void *tr_gather_finish(struct tr_rank *rank)
{
    const void *input = rank->tp.input;

    assert(input);
    rank->tp.input = NULL;
    if (!overlaps(rank))
        return tr_gather_rows(rank, input);
    wait_for_all(rank, TR_OP_ALL_GATHER, rank->tp.gather, rank->tp.linked_gather);
    return rank->work.gather;
}

/* ---- sum ----------------------------------------------------------------- */

static size_t sum_bytes(const struct tr_rank *rank)
{
    return rank->d.local_rows * rank->d.hidden * sizeof(float);
}

/* Where the terms of tp rank FROM arrive. */
static char *terms_of(const struct tr_rank *rank, int from)
{
    return rank->work.tp_recv +
           (size_t)(from < rank->comms.tp.rank ? from : from - 1) * sum_bytes(rank);
}

static void product_sum(struct tr_rank *rank, struct tr_product *product)
{
    struct tr_group *tp = &rank->comms.tp;
    size_t bytes = sum_bytes(rank);
    int tag = tr_coll_tag(tp);

    assert(rank->work.partial && product->out == rank->d.hidden);
    product->type = KN_F32;
    product->to = rank->work.partial;
    tr_now_begin(tp->progress->now, tp->kind);
    for (int d = 1; d <= peers(rank); d++) {
        int to = after(rank, d);

        product_of(rank, product, to);
        exchange(rank, rank->tp.reduce, rank->tp.linked_reduce, d,
                 (char *)product->to + (size_t)to * bytes, terms_of(rank, before(rank, d)), bytes,
                 tag);
    }
    product_of(rank, product, tp->rank);
}

/* Peers in ascending order, as tr_reduce_scatter() adds them. */
static const void *sum_finish(struct tr_rank *rank)
{
    int me = rank->comms.tp.rank;
    char *own = (char *)rank->work.partial + (size_t)me * sum_bytes(rank);
    enum tr_phase was;

    wait_for_all(rank, TR_OP_REDUCE_SCATTER, rank->tp.reduce, rank->tp.linked_reduce);
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    for (int i = 0; i <= peers(rank); i++)
        if (i != me)
            kn_add(rank->pool, KN_F32, own, own, terms_of(rank, i),
                   rank->d.local_rows * rank->d.hidden);
    tr_phase(&rank->clock, was);
    return tr_narrow(rank, own);
}

const void *tr_linear_reduce(struct tr_rank *rank, const void *input, const void *weight,
                             uint64_t in)
{
    struct tr_product product = {.from = input, .weight = weight, .in = in, .out = rank->d.hidden};

    if (overlaps(rank)) {
        product_sum(rank, &product);
        return sum_finish(rank);
    }
    tr_linear_partial(rank, input, weight, rank->d.rows, in, rank->d.hidden);
    return tr_reduce_rows(rank);
}

void tr_linear_dx_reduce(struct tr_rank *rank, const void *dy, const void *weight, uint64_t out)
{
    struct tr_product product = {
        .back = true, .from = dy, .weight = weight, .in = out, .out = rank->d.hidden};

    assert(!rank->tp.sum);
    if (overlaps(rank)) {
        product_sum(rank, &product);
        rank->tp.sum = rank->work.partial;
        return;
    }
    tr_linear_dx_partial(rank, dy, weight, rank->d.rows, rank->d.hidden, out);
    rank->tp.sum = tr_reduce_rows(rank);
}

const void *tr_linear_dx_reduced(struct tr_rank *rank)
{
    const void *sum = rank->tp.sum;

    assert(sum);
    rank->tp.sum = NULL;
    return overlaps(rank) ? sum_finish(rank) : sum;
}

/* ---- requests ------------------------------------------------------------ */

void tr_tp_init(struct tr_rank *rank)
{
    int n = 2 * peers(rank);

    rank->tp.gather = mem_alloc(sizeof(*rank->tp.gather) * (size_t)(2 * n + 1));
    rank->tp.reduce = rank->tp.gather + n;
    for (int i = 0; i < 2 * n; i++)
        rank->tp.gather[i] = MPI_REQUEST_NULL;
    rank->tp.linked_gather = mem_alloc(sizeof(*rank->tp.linked_gather) * (size_t)(n + 1));
    rank->tp.linked_reduce = rank->tp.linked_gather + peers(rank);
}

void tr_tp_done(struct tr_rank *rank)
{
    free(rank->tp.gather);
    free(rank->tp.linked_gather);
}
