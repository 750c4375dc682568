/*
 * Tokens travel to their experts and back (dropless all-to-all).
 *
 * Choices are sorted by expert. Each non-empty run (source, expert) is one message, received
 * directly at the place where the grouped GEMM wants it: expert by expert, sources in order within.
 * So nothing is copied or permuted at the receiver, at the price of a latency for each run:
 *
 *     runs x alpha + (p - 1)/p rows x hidden x beta
 *
 * With etp > 1 an expert is cut over etp ranks: each gets the rows, and their outputs are added at
 * the source.
 *
 * With overlap the experts here are cut into parts: while one part computes, the rows of the next
 * are in flight, as are the outputs of the one before on their way back. Messages under way
 * together share the link, so that all of them arrive at the end; so a part is sent when the one
 * before has been, and outputs when all parts have. A dispatch and a collect between the same two
 * ranks may have one tag: every rank starts the dispatch first, and MPI keeps the order.
 *
 * By a link (link.h) each part of a dispatch, and each collect, is an exchange. Its stream has
 * them in that same order, parts one after the other and then outputs; neither the host nor, until
 * it needs the rows, the pool waits for one.
 *
 * The queue of messages is also driven from inside computations (rank.c), so functions here wait
 * for those first.
 */
#include "base/base.h"
#include "trainer/dispatch.h"
#include "trainer/layer.h"

#include <assert.h>

struct tr_route tr_route(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    int32_t *at = tr_act(rank, layer, slot, PL_ACT_COUNTS);

    return (struct tr_route){.send = at,
                             .count = at + rank->d.experts + 1,
                             .recv = at + rank->d.experts + 1 +
                                     (uint64_t)rank->comms.moe.size * rank->d.local_experts};
}

/* First expert on member MEMBER. */
static uint64_t first_expert(const struct tr_rank *rank, int member)
{
    return (uint64_t)(member / rank->layout.etp) * rank->d.local_experts;
}

static void exchange_counts(struct tr_rank *rank, struct tr_route *route)
{
    struct tr_group *g = &rank->comms.moe;
    int n = (int)rank->d.local_experts, nreq = 0;
    /* Counts to be sent must stay until the sends are complete, so each destination needs its own;
     * the router's workspace is free here. */
    int32_t *out = (int32_t *)(void *)rank->work.moe_router;

    assert(route->send[0] == 0 && (uint64_t)route->send[rank->d.experts] == rank->d.choices);
    assert(rank->moe_nreq == 0); /* the requests of a dispatch are used */
    for (uint64_t e = 0; e < rank->d.experts; e++)
        out[e] = route->send[e + 1] - route->send[e];
    for (int i = 0; i < g->size; i++) {
        if (i == g->rank) {
            memcpy(route->count + i * n, out + first_expert(rank, i), sizeof(*out) * (size_t)n);
            continue;
        }
        tr_irecv(&rank->moe_req[nreq++], g, route->count + i * n, sizeof(*out) * (size_t)n, i,
                 TR_TAG_MOE);
        tr_isend(&rank->moe_req[nreq++], g, out + first_expert(rank, i), sizeof(*out) * (size_t)n,
                 i, TR_TAG_MOE);
    }
    tr_wait(g->progress, tr_op_begin(TR_OP_ALL_TO_ALL, g), rank->moe_req, nreq);
}

void tr_route_exchange(struct tr_rank *rank, struct tr_route *route)
{
    uint64_t n = rank->d.local_experts;
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_EP);

    exchange_counts(rank, route);
    route->recv[0] = 0;
    for (uint64_t j = 0; j < n; j++) {
        route->recv[j + 1] = route->recv[j];
        for (int i = 0; i < rank->comms.moe.size; i++)
            route->recv[j + 1] += route->count[(uint64_t)i * n + j];
    }
    assert((uint64_t)route->recv[n] <= rank->d.expert_rows);
    tr_phase(&rank->clock, was);
}

/* A run of rows between the sorted choices of this rank and the experts' rows of a member. */
struct run {
    size_t at, bytes;
};

/* Rows for local EXPERT of member MEMBER among the sorted choices. */
static struct run run_there(const struct tr_rank *rank, const struct tr_route *route, int member,
                            uint64_t expert, size_t row)
{
    uint64_t e = first_expert(rank, member) + expert;

    assert(e < rank->d.experts && route->send[e] <= route->send[e + 1]);
    return (struct run){(size_t)route->send[e] * row,
                        (size_t)(route->send[e + 1] - route->send[e]) * row};
}

/* Rows of member MEMBER for local EXPERT here; AT walks the expert's rows, member by member. */
static struct run run_here(const struct tr_rank *rank, const struct tr_route *route, int member,
                           uint64_t expert, size_t *at, size_t row)
{
    struct run u = {*at,
                    (size_t)route->count[(uint64_t)member * rank->d.local_experts + expert] * row};

    *at += u.bytes;
    return u;
}

/* Slices of an expert's output are added in fp32, like the partial sums over tp. */
enum kn_type tr_slice_type(const struct tr_rank *rank)
{
    return rank->layout.etp > 1 ? KN_F32 : rank->type;
}

int tr_moe_parts(const struct tr_rank *rank)
{
    /* Where slices are wider than rows, gradients of a part's inputs would be written over those
     * of the next part's outputs, which share their array (moe.c). */
    if (!rank->layout.overlap_moe_a2a || rank->comms.moe.size == 1 ||
        kn_type_size(tr_slice_type(rank)) != rank->d.elem)
        return 1;
    return rank->d.local_experts < TR_MOE_PARTS ? (int)rank->d.local_experts : TR_MOE_PARTS;
}

struct tr_experts tr_moe_part(const struct tr_rank *rank, int part)
{
    int parts = tr_moe_parts(rank);

    assert(part >= 0 && part < parts);
    return (struct tr_experts){tr_block(rank->d.local_experts, parts, part),
                               tr_block(rank->d.local_experts, parts, part + 1)};
}

static struct tr_link *link_of(const struct tr_rank *rank)
{
    return rank->comms.link[TR_LINK_EP];
}

/* Receive BYTES, if any, from MEMBER, of EXPERT there or here. */
static void receive(struct tr_rank *rank, void *to, size_t bytes, int member, uint64_t expert)
{
    if (!bytes)
        return;
    if (link_of(rank))
        tr_link_recv(link_of(rank), to, bytes, member);
    else
        tr_irecv(&rank->moe_req[rank->moe_nreq++], &rank->comms.moe, to, bytes, member,
                 TR_TAG_MOE + 1 + (int)expert);
    assert(rank->moe_nreq < rank->moe_req_cap);
}

/* Receive the rows of EXPERT here from the other members. */
static void receive_expert(struct tr_rank *rank, const struct tr_route *route, void *to,
                           uint64_t expert)
{
    struct tr_group *g = &rank->comms.moe;
    size_t row = rank->d.hidden * rank->d.elem, at = (size_t)route->recv[expert] * row;

    for (int i = 0; i < g->size; i++) {
        struct run here = run_here(rank, route, i, expert, &at, row);

        if (i != g->rank)
            receive(rank, (char *)to + here.at, here.bytes, i, expert);
    }
    assert(at == (size_t)route->recv[expert + 1] * row);
}

/* This member's own rows for EXPERT here, of ROW bytes: among its sorted choices, and here. */
static struct run own_rows(struct run *ret_here, const struct tr_rank *rank,
                           const struct tr_route *route, uint64_t expert, size_t row)
{
    int me = rank->comms.moe.rank;
    size_t at = (size_t)route->recv[expert] * row;

    for (int i = 0; i <= me; i++)
        *ret_here = run_here(rank, route, i, expert, &at, row);
    return run_there(rank, route, me, expert, row);
}

/* A message to member MEMBER for or from EXPERT, to be sent in its turn, by a link at once. */
static void queue(struct tr_rank *rank, const char *from, size_t bytes, int member, uint64_t expert)
{
    if (bytes && link_of(rank))
        tr_link_send(link_of(rank), from, bytes, member);
    else if (bytes)
        rank->moe_out[rank->moe_outs++] = (struct tr_moe_out){from, bytes, member, (int)expert};
}

/* This member's rows for local EXPERT of every other member, to it. */
static void queue_expert(struct tr_rank *rank, const struct tr_route *route, const void *from,
                         uint64_t expert)
{
    for (int i = 0; i < rank->comms.moe.size; i++) {
        struct run there = run_there(rank, route, i, expert, rank->d.hidden * rank->d.elem);

        if (i != rank->comms.moe.rank)
            queue(rank, (const char *)from + there.at, there.bytes, i, expert);
    }
}

/* Start messages up to END of the queue. */
static struct tr_reqs send_up_to(struct tr_rank *rank, int end)
{
    struct tr_reqs ret = {.first = rank->moe_nreq};

    for (; rank->moe_sent < end; rank->moe_sent++) {
        const struct tr_moe_out *out = &rank->moe_out[rank->moe_sent];

        tr_isend(&rank->moe_req[rank->moe_nreq++], &rank->comms.moe, out->from, out->bytes,
                 out->member, TR_TAG_MOE + 1 + out->expert);
    }
    assert(rank->moe_nreq < rank->moe_req_cap);
    ret.end = rank->moe_nreq;
    return ret;
}

static bool done(struct tr_rank *rank, struct tr_reqs reqs)
{
    return tr_test(&rank->comms.progress, rank->moe_req + reqs.first, reqs.end - reqs.first);
}

/* Start what comes after the part that is under way, and has been sent: the next part of the
 * dispatch, or after the last whatever there is to collect. */
static void send_next(struct tr_rank *rank)
{
    if (rank->moe_sending < tr_moe_parts(rank)) {
        int part = rank->moe_sending++;

        rank->moe_send[part] = send_up_to(rank, rank->moe_part_end[part]);
    } else {
        send_up_to(rank, rank->moe_outs);
    }
}

/* As far as nothing is waited for. */
static void send_more(struct tr_rank *rank)
{
    int parts = tr_moe_parts(rank);

    while (rank->moe_sending < parts && done(rank, rank->moe_send[rank->moe_sending - 1]))
        send_next(rank);
    if (rank->moe_sending == parts && rank->moe_sent < rank->moe_outs &&
        done(rank, rank->moe_send[parts - 1]))
        send_next(rank);
}

bool tr_dispatch_poll(struct tr_rank *rank)
{
    if (rank->moe_sending == 0)
        return false;
    send_more(rank);
    return !tr_test(&rank->comms.progress, rank->moe_req, rank->moe_nreq) ||
           rank->moe_sent < rank->moe_outs;
}

/* The messages of PART of a dispatch: to other members, from them. */
static void queue_part(struct tr_rank *rank, const struct tr_route *route, const void *from,
                       int part)
{
    struct tr_experts x = tr_moe_part(rank, part);

    for (uint64_t j = x.first; j < x.end; j++)
        queue_expert(rank, route, from, j);
}

static void receive_part(struct tr_rank *rank, const struct tr_route *route, void *to, int part)
{
    struct tr_experts x = tr_moe_part(rank, part);

    for (uint64_t j = x.first; j < x.end; j++)
        receive_expert(rank, route, to, j);
}

static void start_linked(struct tr_rank *rank, const struct tr_route *route, void *to,
                         const void *from)
{
    for (int part = 0; part < tr_moe_parts(rank); part++) {
        tr_link_begin(link_of(rank));
        queue_part(rank, route, from, part);
        receive_part(rank, route, to, part);
        rank->moe_dispatch[part] = tr_link_end(link_of(rank));
    }
}

static void start_by_mpi(struct tr_rank *rank, const struct tr_route *route, void *to,
                         const void *from)
{
    assert(rank->moe_nreq == 0 && rank->moe_sending == 0); /* one dispatch at a time */
    rank->moe_outs = rank->moe_sent = 0;
    for (int part = 0; part < tr_moe_parts(rank); part++) {
        queue_part(rank, route, from, part);
        rank->moe_part_end[part] = rank->moe_outs;
    }
    send_next(rank);
    for (int part = 0; part < tr_moe_parts(rank); part++) {
        rank->moe_recv[part].first = rank->moe_nreq;
        receive_part(rank, route, to, part);
        rank->moe_recv[part].end = rank->moe_nreq;
    }
}

void tr_dispatch_start(struct tr_rank *rank, const struct tr_route *route, void *to,
                       const void *from)
{
    struct tr_group *g = &rank->comms.moe;
    size_t row = rank->d.hidden * rank->d.elem;
    enum tr_phase was;

    if (g->size == 1)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    if (link_of(rank))
        start_linked(rank, route, to, from);
    else
        start_by_mpi(rank, route, to, from);
    for (uint64_t j = 0; j < rank->d.local_experts; j++) {
        struct run here, there = own_rows(&here, rank, route, j, row);

        kn_copy(rank->pool, (char *)to + here.at, (const char *)from + there.at, here.bytes);
    }
    tr_phase(&rank->clock, was);
}

/* Wait until the sends of PART are complete; later ones are started. */
static void wait_sent(struct tr_rank *rank, struct tr_op op, int part)
{
    while (rank->moe_sending <= part + 1) {
        const struct tr_reqs *last = &rank->moe_send[rank->moe_sending - 1];

        tr_wait(&rank->comms.progress, op, rank->moe_req + last->first, last->end - last->first);
        if (rank->moe_sending == tr_moe_parts(rank))
            break;
        send_next(rank);
    }
}

bool tr_dispatch_arrived(struct tr_rank *rank, int part)
{
    if (rank->comms.moe.size == 1)
        return true;
    if (link_of(rank))
        return tr_link_reached(link_of(rank), rank->moe_dispatch[part]);
    kn_wait(rank->pool);
    send_more(rank);
    return rank->moe_sending > part && done(rank, rank->moe_send[part]) &&
           done(rank, rank->moe_recv[part]);
}

static void wait_linked(struct tr_rank *rank, tr_exchange exchange)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_EP);

    tr_now_begin(rank->comms.progress.now, rank->comms.moe.kind);
    tr_link_wait(link_of(rank), exchange);
    tr_phase(&rank->clock, was);
}

void tr_dispatch_wait(struct tr_rank *rank, int part)
{
    const struct tr_reqs *receives = &rank->moe_recv[part];
    struct tr_op op;
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    assert(part < tr_moe_parts(rank));
    if (link_of(rank)) {
        wait_linked(rank, rank->moe_dispatch[part]);
        return;
    }
    kn_wait(rank->pool);
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    op = tr_op_begin(TR_OP_ALL_TO_ALL, &rank->comms.moe);
    wait_sent(rank, op, part);
    tr_wait(&rank->comms.progress, op, rank->moe_req + receives->first,
            receives->end - receives->first);
    tr_phase(&rank->clock, was);
}

/* Where the output of slice SLICE of an expert is received. */
static char *slice_buffer(struct tr_rank *rank, void *to, int slice)
{
    return rank->layout.etp == 1
               ? to
               : rank->work.moe_part + (size_t)slice * rank->d.choices * rank->d.hidden * 4;
}

static void add_slices(struct tr_rank *rank, void *to)
{
    uint64_t n = rank->d.choices * rank->d.hidden;
    void *sum = slice_buffer(rank, to, 0);

    for (int s = 1; s < rank->layout.etp; s++)
        kn_add(rank->pool, KN_F32, sum, sum, slice_buffer(rank, to, s), n);
    if (sum != to)
        kn_convert(rank->pool, rank->type, to, KN_F32, sum, n);
}

/* The output of EXPERT here for the rows of the other members, back to them. */
static void return_expert(struct tr_rank *rank, const struct tr_route *route, const void *from,
                          uint64_t expert, size_t row)
{
    size_t at = (size_t)route->recv[expert] * row;

    for (int i = 0; i < rank->comms.moe.size; i++) {
        struct run here = run_here(rank, route, i, expert, &at, row);

        if (i != rank->comms.moe.rank)
            queue(rank, (const char *)from + here.at, here.bytes, i, expert);
    }
    assert(at == (size_t)route->recv[expert + 1] * row);
}

/* Receive the output of local EXPERT of the other members for this member's rows. */
static void collect_expert(struct tr_rank *rank, const struct tr_route *route, void *to,
                           uint64_t expert, size_t row)
{
    struct tr_group *g = &rank->comms.moe;

    for (int i = 0; i < g->size; i++) {
        struct run there = run_there(rank, route, i, expert, row);

        if (i != g->rank)
            receive(rank, slice_buffer(rank, to, i % rank->layout.etp) + there.at, there.bytes, i,
                    expert);
    }
}

void tr_collect_start(struct tr_rank *rank, const struct tr_route *route, void *to,
                      const void *from, int part)
{
    struct tr_experts x = tr_moe_part(rank, part);
    size_t row = rank->d.hidden * kn_type_size(tr_slice_type(rank));
    struct tr_link *link = link_of(rank);
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    if (link)
        tr_link_begin(link);
    else
        kn_wait(rank->pool);
    for (uint64_t j = x.first; j < x.end; j++)
        return_expert(rank, route, from, j, row);
    if (!link)
        send_more(rank);
    for (uint64_t j = x.first; j < x.end; j++)
        collect_expert(rank, route, to, j, row);
    if (link)
        rank->moe_collect = tr_link_end(link);
    for (uint64_t j = x.first; j < x.end; j++) {
        struct run here, there = own_rows(&here, rank, route, j, row);

        kn_copy(rank->pool,
                slice_buffer(rank, to, rank->comms.moe.rank % rank->layout.etp) + there.at,
                (const char *)from + here.at, here.bytes);
    }
    tr_phase(&rank->clock, was);
}

bool tr_collect_arrived(struct tr_rank *rank)
{
    if (link_of(rank))
        return tr_link_reached(link_of(rank), rank->moe_collect);
    kn_wait(rank->pool);
    return !tr_dispatch_poll(rank);
}

static void collect_by_mpi(struct tr_rank *rank)
{
    struct tr_op op = tr_op_begin(TR_OP_ALL_TO_ALL, &rank->comms.moe);

    wait_sent(rank, op, tr_moe_parts(rank) - 1);
    send_next(rank);
    tr_wait(&rank->comms.progress, op, rank->moe_req, rank->moe_nreq);
    rank->moe_nreq = rank->moe_sending = 0;
}

void tr_collect_finish(struct tr_rank *rank, void *to)
{
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    if (!link_of(rank))
        kn_wait(rank->pool);
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    if (link_of(rank))
        wait_linked(rank, rank->moe_collect);
    else
        collect_by_mpi(rank);
    add_slices(rank, to);
    tr_phase(&rank->clock, was);
}
