/*
 * Tokens travel to their experts and back (dropless all-to-all).
 *
 * Choices are sorted by expert. Each non-empty run (source, expert) is one message, received
 * directly at the place where the grouped GEMM wants it: expert by expert, sources in order within.
 * So nothing is copied or permuted at the receiver, at the price of a latency for each run: runs x
 * alpha + (p - 1)/p rows x hidden x beta. With etp > 1 an expert is cut over etp ranks: each gets
 * the rows, and their outputs are added at the source.
 *
 * With overlap the experts here are cut into parts: while one part computes, the rows of the next
 * are on their way, and the outputs of the one before on theirs back. A dispatch and a collect
 * between the same two ranks may have one tag: every rank posts the dispatch first, and MPI keeps
 * the order.
 */
#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>

struct tr_route tr_route(struct tr_rank *r, const struct tr_layer *y, char *slot)
{
    int32_t *at = tr_act(r, y, slot, PL_ACT_COUNTS);

    return (struct tr_route){.send = at,
                             .count = at + r->d.experts + 1,
                             .recv = at + r->d.experts + 1 +
                                     (uint64_t)r->comms.moe.size * r->d.local_experts};
}

/* First expert on member MEMBER. */
static uint64_t first_expert(const struct tr_rank *r, int member)
{
    return (uint64_t)(member / r->layout.etp) * r->d.local_experts;
}

static void exchange_counts(struct tr_rank *r, struct tr_route *t)
{
    struct tr_group *g = &r->comms.moe;
    int n = (int)r->d.local_experts, nreq = 0;
    /* Counts to be sent stand where receive offsets will: not needed at the same time, but they
     * must stay until the sends are complete, so each destination needs its own; the router's
     * workspace is free here. */
    int32_t *out = (int32_t *)(void *)r->work.moe_router;

    for (uint64_t e = 0; e < r->d.experts; e++)
        out[e] = t->send[e + 1] - t->send[e];
    for (int i = 0; i < g->size; i++) {
        if (i == g->rank) {
            memcpy(t->count + i * n, out + first_expert(r, i), sizeof(*out) * (size_t)n);
            continue;
        }
        tr_irecv(g, t->count + i * n, sizeof(*out) * (size_t)n, i, TR_TAG_MOE, &r->moe_req[nreq++]);
        tr_isend(g, out + first_expert(r, i), sizeof(*out) * (size_t)n, i, TR_TAG_MOE,
                 &r->moe_req[nreq++]);
    }
    tr_wait(g->progress, r->moe_req, nreq);
}

void tr_route_exchange(struct tr_rank *r, struct tr_route *t)
{
    uint64_t n = r->d.local_experts;
    enum tr_phase was = tr_phase(&r->clock, TR_PHASE_EP);

    exchange_counts(r, t);
    t->recv[0] = 0;
    for (uint64_t j = 0; j < n; j++) {
        t->recv[j + 1] = t->recv[j];
        for (int i = 0; i < r->comms.moe.size; i++)
            t->recv[j + 1] += t->count[(uint64_t)i * n + j];
    }
    assert((uint64_t)t->recv[n] <= r->d.expert_rows);
    tr_phase(&r->clock, was);
}

/* A run of rows between the sorted choices of this rank and the experts' rows of a member. */
struct run {
    size_t at, bytes;
};

/* Rows for local expert J of member MEMBER among the sorted choices. */
static struct run run_there(const struct tr_rank *r, const struct tr_route *t, int member,
                            uint64_t j, size_t row)
{
    uint64_t e = first_expert(r, member) + j;

    return (struct run){(size_t)t->send[e] * row, (size_t)(t->send[e + 1] - t->send[e]) * row};
}

/* Rows of member MEMBER for local expert J here; AT walks the expert's rows, member by member. */
static struct run run_here(const struct tr_rank *r, const struct tr_route *t, int member,
                           uint64_t j, size_t *at, size_t row)
{
    struct run u = {*at, (size_t)t->count[(uint64_t)member * r->d.local_experts + j] * row};

    *at += u.bytes;
    return u;
}

/* Slices of an expert's output are added in fp32, like the partial sums over tp. */
enum kn_type tr_slice_type(const struct tr_rank *r)
{
    return r->layout.etp > 1 ? KN_F32 : r->type;
}

int tr_moe_parts(const struct tr_rank *r)
{
    /* Where slices are wider than rows, gradients of a part's inputs would be written over those
     * of the next part's outputs, which share their array (moe.c). */
    if (!r->layout.overlap_moe_a2a || r->comms.moe.size == 1 ||
        kn_type_size(tr_slice_type(r)) != r->d.elem)
        return 1;
    return r->d.local_experts < TR_MOE_PARTS ? (int)r->d.local_experts : TR_MOE_PARTS;
}

struct tr_experts tr_moe_part(const struct tr_rank *r, int part)
{
    int parts = tr_moe_parts(r);

    return (struct tr_experts){tr_block(r->d.local_experts, parts, part),
                               tr_block(r->d.local_experts, parts, part + 1)};
}

static int dispatch_expert(struct tr_rank *r, const struct tr_route *t, void *to, const void *from,
                           uint64_t j, int nreq)
{
    struct tr_group *g = &r->comms.moe;
    size_t row = r->d.hidden * r->d.elem, at = (size_t)t->recv[j] * row;

    for (int i = 0; i < g->size; i++) {
        struct run here = run_here(r, t, i, j, &at, row), there = run_there(r, t, i, j, row);

        if (i == g->rank) {
            kn_copy(r->pool, (char *)to + here.at, (const char *)from + there.at, here.bytes);
            continue;
        }
        if (here.bytes)
            tr_irecv(g, (char *)to + here.at, here.bytes, i, TR_TAG_MOE + 1 + (int)j,
                     &r->moe_req[nreq++]);
        if (there.bytes)
            tr_isend(g, (const char *)from + there.at, there.bytes, i, TR_TAG_MOE + 1 + (int)j,
                     &r->moe_req[nreq++]);
    }
    return nreq;
}

void tr_dispatch_start(struct tr_rank *r, const struct tr_route *t, void *to, const void *from)
{
    int nreq = 0;
    enum tr_phase was;

    if (r->comms.moe.size == 1)
        return;
    was = tr_phase(&r->clock, TR_PHASE_EP);
    for (int part = 0; part < tr_moe_parts(r); part++) {
        struct tr_experts x = tr_moe_part(r, part);

        for (uint64_t j = x.first; j < x.end; j++)
            nreq = dispatch_expert(r, t, to, from, j, nreq);
        r->moe_end[part] = nreq;
    }
    r->moe_nreq = nreq;
    tr_phase(&r->clock, was);
}

void tr_dispatch_wait(struct tr_rank *r, int part)
{
    int first = part > 0 ? r->moe_end[part - 1] : 0;
    enum tr_phase was;

    if (r->comms.moe.size == 1)
        return;
    was = tr_phase(&r->clock, TR_PHASE_EP);
    tr_wait(&r->comms.progress, r->moe_req + first, r->moe_end[part] - first);
    tr_phase(&r->clock, was);
}

/* Where the output of slice SLICE of an expert is received. */
static char *slice_buffer(struct tr_rank *r, void *to, int slice)
{
    return r->layout.etp == 1 ? to
                              : r->work.moe_part + (size_t)slice * r->d.choices * r->d.hidden * 4;
}

static void add_slices(struct tr_rank *r, void *to)
{
    uint64_t n = r->d.choices * r->d.hidden;
    void *sum = slice_buffer(r, to, 0);

    for (int s = 1; s < r->layout.etp; s++)
        kn_add(r->pool, KN_F32, sum, sum, slice_buffer(r, to, s), n);
    if (sum != to)
        kn_convert(r->pool, r->type, to, KN_F32, sum, n);
}

static int collect_expert(struct tr_rank *r, const struct tr_route *t, void *to, const void *from,
                          uint64_t j, int nreq)
{
    struct tr_group *g = &r->comms.moe;
    size_t row = r->d.hidden * kn_type_size(tr_slice_type(r)), at = (size_t)t->recv[j] * row;

    for (int i = 0; i < g->size; i++) {
        struct run here = run_here(r, t, i, j, &at, row), there = run_there(r, t, i, j, row);
        char *in = slice_buffer(r, to, i % r->layout.etp);

        if (i == g->rank) {
            kn_copy(r->pool, in + there.at, (const char *)from + here.at, here.bytes);
            continue;
        }
        if (there.bytes)
            tr_irecv(g, in + there.at, there.bytes, i, TR_TAG_MOE + 1 + (int)j,
                     &r->moe_req[nreq++]);
        if (here.bytes)
            tr_isend(g, (const char *)from + here.at, here.bytes, i, TR_TAG_MOE + 1 + (int)j,
                     &r->moe_req[nreq++]);
    }
    return nreq;
}

void tr_collect_start(struct tr_rank *r, const struct tr_route *t, void *to, const void *from,
                      int part)
{
    struct tr_experts x = tr_moe_part(r, part);
    enum tr_phase was;

    if (r->comms.moe.size == 1)
        return;
    was = tr_phase(&r->clock, TR_PHASE_EP);
    for (uint64_t j = x.first; j < x.end; j++)
        r->moe_nreq = collect_expert(r, t, to, from, j, r->moe_nreq);
    tr_phase(&r->clock, was);
}

void tr_collect_finish(struct tr_rank *r, void *to)
{
    enum tr_phase was;

    if (r->comms.moe.size == 1)
        return;
    was = tr_phase(&r->clock, TR_PHASE_EP);
    tr_wait(&r->comms.progress, r->moe_req, r->moe_nreq);
    r->moe_nreq = 0;
    add_slices(r, to);
    tr_phase(&r->clock, was);
}
