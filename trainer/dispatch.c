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
 * are in flight, as are the outputs of the one before on their way back. A dispatch and a collect
 * between the same two ranks may have one tag: every rank posts the dispatch first, and MPI keeps
 * the order.
 */
#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>

struct tr_route tr_route(struct tr_rank *rank, const struct tr_layer *layer, char *slot)
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

static int dispatch_expert(struct tr_rank *rank, const struct tr_route *route, void *to,
                           const void *from, uint64_t expert, int nreq)
{
    struct tr_group *g = &rank->comms.moe;
    size_t row = rank->d.hidden * rank->d.elem, at = (size_t)route->recv[expert] * row;

    for (int i = 0; i < g->size; i++) {
        struct run here = run_here(rank, route, i, expert, &at, row),
                   there = run_there(rank, route, i, expert, row);

        if (i == g->rank) {
            kn_copy(rank->pool, (char *)to + here.at, (const char *)from + there.at, here.bytes);
            continue;
        }
        if (here.bytes)
            tr_irecv(&rank->moe_req[nreq++], g, (char *)to + here.at, here.bytes, i,
                     TR_TAG_MOE + 1 + (int)expert);
        if (there.bytes)
            tr_isend(&rank->moe_req[nreq++], g, (const char *)from + there.at, there.bytes, i,
                     TR_TAG_MOE + 1 + (int)expert);
    }
    assert(at == (size_t)route->recv[expert + 1] * row);
    return nreq;
}

void tr_dispatch_start(struct tr_rank *rank, const struct tr_route *route, void *to,
                       const void *from)
{
    int nreq = 0;
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    assert(rank->moe_nreq == 0); /* one dispatch at a time */
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    for (int part = 0; part < tr_moe_parts(rank); part++) {
        struct tr_experts x = tr_moe_part(rank, part);

        for (uint64_t j = x.first; j < x.end; j++)
            nreq = dispatch_expert(rank, route, to, from, j, nreq);
        rank->moe_end[part] = nreq;
    }
    assert(nreq < rank->moe_req_cap);
    rank->moe_nreq = nreq;
    tr_phase(&rank->clock, was);
}

void tr_dispatch_wait(struct tr_rank *rank, int part)
{
    int first = part > 0 ? rank->moe_end[part - 1] : 0;
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    assert(part < tr_moe_parts(rank) && first <= rank->moe_end[part]);
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    tr_wait(&rank->comms.progress, tr_op_begin(TR_OP_ALL_TO_ALL, &rank->comms.moe),
            rank->moe_req + first, rank->moe_end[part] - first);
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

static int collect_expert(struct tr_rank *rank, const struct tr_route *route, void *to,
                          const void *from, uint64_t expert, int nreq)
{
    struct tr_group *g = &rank->comms.moe;
    size_t row = rank->d.hidden * kn_type_size(tr_slice_type(rank)),
           at = (size_t)route->recv[expert] * row;

    for (int i = 0; i < g->size; i++) {
        struct run here = run_here(rank, route, i, expert, &at, row),
                   there = run_there(rank, route, i, expert, row);
        char *in = slice_buffer(rank, to, i % rank->layout.etp);

        if (i == g->rank) {
            kn_copy(rank->pool, in + there.at, (const char *)from + here.at, here.bytes);
            continue;
        }
        if (there.bytes)
            tr_irecv(&rank->moe_req[nreq++], g, in + there.at, there.bytes, i,
                     TR_TAG_MOE + 1 + (int)expert);
        if (here.bytes)
            tr_isend(&rank->moe_req[nreq++], g, (const char *)from + here.at, here.bytes, i,
                     TR_TAG_MOE + 1 + (int)expert);
    }
    assert(at == (size_t)route->recv[expert + 1] * row);
    return nreq;
}

void tr_collect_start(struct tr_rank *rank, const struct tr_route *route, void *to,
                      const void *from, int part)
{
    struct tr_experts x = tr_moe_part(rank, part);
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    for (uint64_t j = x.first; j < x.end; j++)
        rank->moe_nreq = collect_expert(rank, route, to, from, j, rank->moe_nreq);
    assert(rank->moe_nreq < rank->moe_req_cap);
    tr_phase(&rank->clock, was);
}

void tr_collect_finish(struct tr_rank *rank, void *to)
{
    enum tr_phase was;

    if (rank->comms.moe.size == 1)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_EP);
    tr_wait(&rank->comms.progress, tr_op_begin(TR_OP_ALL_TO_ALL, &rank->comms.moe), rank->moe_req,
            rank->moe_nreq);
    rank->moe_nreq = 0;
    add_slices(rank, to);
    tr_phase(&rank->clock, was);
}
