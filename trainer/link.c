#include "trainer/link.h"

#include "base/base.h"
#include "trainer/nccl_comms.h"

#include <assert.h>

struct tr_link {
    struct tr_nccl *nccl;
    struct tr_progress *progress;
    void *comm;
    struct kn_pool *pool; /* its stream */
    tr_exchange begun;
};

/* ---- exchanges ----------------------------------------------------------- */

/* The mark of EXCHANGE on the link's stream, which is made anew KN_MARKS later. */
static unsigned mark_of(tr_exchange exchange)
{
    return (unsigned)(exchange % KN_MARKS);
}

/* Its mark is another's by now, which was made only when it was done. */
static bool long_done(const struct tr_link *link, tr_exchange exchange)
{
    assert(exchange <= link->begun);
    return exchange == 0 || link->begun - exchange >= KN_MARKS;
}

void tr_link_begin(struct tr_link *link)
{
    struct tr_nccl *nccl = link->nccl;

    link->begun++;
    while (link->begun > KN_MARKS && !kn_reached(link->pool, mark_of(link->begun)))
        tr_idle(link->progress);
    kn_mark(nccl->pool, 0);
    kn_follow(link->pool, nccl->pool, 0);
    tr_nccl_must(nccl, nccl->call.group_start(), "messages");
}

void tr_link_send(struct tr_link *link, const void *from, size_t bytes, int peer)
{
    assert(bytes > 0 && tr_staging_has(&link->progress->staging, from));
    tr_nccl_must(
        link->nccl,
        link->nccl->call.send(from, bytes, TR_NCCL_BYTES, peer, link->comm, kn_native(link->pool)),
        "a send");
}

void tr_link_recv(struct tr_link *link, void *to, size_t bytes, int peer)
{
    assert(bytes > 0 && tr_staging_has(&link->progress->staging, to));
    tr_nccl_must(
        link->nccl,
        link->nccl->call.recv(to, bytes, TR_NCCL_BYTES, peer, link->comm, kn_native(link->pool)),
        "a receive");
}

tr_exchange tr_link_end(struct tr_link *link)
{
    tr_nccl_must(link->nccl, link->nccl->call.group_end(), "messages");
    kn_mark(link->pool, mark_of(link->begun));
    return link->begun;
}

void tr_link_wait(struct tr_link *link, tr_exchange exchange)
{
    uint64_t since;

    if (long_done(link, exchange))
        return;
    since = tr_clock_waits(link->progress->clock);
    kn_follow(link->nccl->pool, link->pool, mark_of(exchange));
    tr_clock_waited(link->progress->clock, since);
}

bool tr_link_reached(struct tr_link *link, tr_exchange exchange)
{
    return long_done(link, exchange) || kn_reached(link->pool, mark_of(exchange));
}

void tr_link_after(struct tr_link *link, struct tr_link *other, tr_exchange exchange)
{
    if (!long_done(other, exchange))
        kn_follow(link->pool, other->pool, mark_of(exchange));
}

/* ---- set up -------------------------------------------------------------- */

struct tr_link_plan tr_link_plan(struct tr_comms *comms, const struct pl_layout *layout)
{
    return (struct tr_link_plan){
        .stage = comms->stage,
        .stages = layout->pp,
        .prev = comms->prev,
        .next = comms->next,
        .wraps = layout->vp > 1,
        .cp = comms->cp.size > 1 ? &comms->cp : NULL,
        .ep = comms->moe.size > 1 ? &comms->moe : NULL,
        .tp = layout->tp_overlap && comms->tp.size > 1 && comms->tp.hosts == 1 ? &comms->tp : NULL};
}

/* Bytes of the GPU that connections are made with: those that are sent, and room for each member's.
 */
struct probe {
    char *own;
    size_t bytes;
};

enum { PROBE_BYTES = 256 };

/* A message to every member of PEERS that this rank sends to, and one from each that sends here. */
static void connect_to(struct tr_link *link, const struct probe *probe, int peer, bool sends,
                       bool receives)
{
    assert((size_t)(peer + 2) * PROBE_BYTES <= probe->bytes);
    if (sends)
        tr_link_send(link, probe->own, PROBE_BYTES, peer);
    if (receives)
        tr_link_recv(link, probe->own + (size_t)(peer + 1) * PROBE_BYTES, PROBE_BYTES, peer);
}

/* Links of a GROUP: USE says which members exchange messages. */
static void link_init(struct tr_comms *comms, enum tr_link_use use, struct tr_group *group,
                      const struct probe *probe)
{
    struct tr_link *link = mem_alloc(sizeof(*link));
    int n = group->size;

    *link = (struct tr_link){.nccl = comms->nccl,
                             .progress = &comms->progress,
                             .comm = tr_nccl_comm(comms->nccl, group),
                             .pool = kn_pool_new(0)};
    if (!link->pool)
        comms->nccl->fail("NCCL: no stream for messages");
    kn_pool_set_idle(link->pool, tr_idle, &comms->progress);
    tr_link_begin(link);
    for (int i = 0; i < n; i++) {
        bool ring = use == TR_LINK_CP, hop = use <= TR_LINK_GRAD_IN;

        if (i != group->rank)
            connect_to(link, probe, i, hop ? group->rank == 0 : !ring || i == (group->rank + 1) % n,
                       hop ? group->rank == 1 : !ring || (i + 1) % n == group->rank);
    }
    (void)tr_link_end(link);
    kn_wait(link->pool);
    comms->link[use] = link;
}

/* From world rank FROM to TO, of which this rank is one. */
static void hop_init(struct tr_comms *comms, enum tr_link_use use, int from, int to,
                     const struct probe *probe)
{
    MPI_Request req[2];
    int member[] = {from, to};
    struct tr_group pair = {.comm = comms->world.comm,
                            .member = member,
                            .id = 1,
                            .kind = TR_IN_PP,
                            .rank = comms->world.rank == to,
                            .size = 2,
                            .req = req,
                            .progress = &comms->progress};

    link_init(comms, use, &pair, probe);
}

/* Hop i is between stage i and the next. A hop is set up by both stages together, and no stage has
 * two of one color. */
static int color(const struct tr_link_plan *plan, int hop)
{
    return hop == plan->stages - 1 && plan->stages % 2 ? 2 : hop % 2;
}

static void hops_init(struct tr_comms *comms, const struct tr_link_plan *plan,
                      const struct probe *probe)
{
    int me = comms->world.rank, before = (plan->stage + plan->stages - 1) % plan->stages;
    bool out = plan->wraps || plan->stage < plan->stages - 1, in = plan->wraps || plan->stage > 0;

    for (int c = 0; c < 3; c++) {
        if (out && color(plan, plan->stage) == c) {
            hop_init(comms, TR_LINK_ACT_OUT, me, plan->next, probe);
            hop_init(comms, TR_LINK_GRAD_IN, plan->next, me, probe);
        }
        if (in && color(plan, before) == c) {
            hop_init(comms, TR_LINK_ACT_IN, plan->prev, me, probe);
            hop_init(comms, TR_LINK_GRAD_OUT, me, plan->prev, probe);
        }
    }
}

void tr_links_init(struct tr_comms *comms, const struct tr_link_plan *plan)
{
    struct tr_staging *staging = &comms->progress.staging, was = *staging;
    struct probe probe = {.bytes = (size_t)(comms->world.size + 2) * PROBE_BYTES};

    if (!comms->nccl)
        return;
    probe.own = kn_alloc_own(probe.bytes);
    if (!probe.own)
        comms->nccl->fail("NCCL: no memory of the GPU to connect with");
    staging->own = probe.own;
    staging->bytes = probe.bytes;
    if (plan->stages > 1)
        hops_init(comms, plan, &probe);
    if (plan->cp)
        link_init(comms, TR_LINK_CP, plan->cp, &probe);
    if (plan->ep)
        link_init(comms, TR_LINK_EP, plan->ep, &probe);
    if (plan->tp)
        link_init(comms, TR_LINK_TP, plan->tp, &probe);
    staging->own = was.own;
    staging->bytes = was.bytes;
    kn_free_own(probe.own, probe.bytes);
}

void tr_links_done(struct tr_comms *comms)
{
    for (int i = 0; i < TR_LINKS; i++) {
        if (!comms->link[i])
            continue;
        kn_wait(comms->link[i]->pool);
        kn_pool_free(comms->link[i]->pool);
        free(comms->link[i]);
        comms->link[i] = NULL;
    }
}

/* ---- one message, by a link or by MPI ------------------------------------ */

void tr_message_send(struct tr_message *ret, struct tr_comms *comms, enum tr_link_use use,
                     const void *from, size_t bytes, int peer, int tag)
{
    struct tr_link *link = comms->link[use];

    *ret = TR_NO_MESSAGE;
    if (!link) {
        tr_isend(&ret->req, &comms->world, from, bytes, peer, tag);
        return;
    }
    tr_link_begin(link);
    tr_link_send(link, from, bytes, 1);
    *ret = (struct tr_message){MPI_REQUEST_NULL, link, tr_link_end(link)};
}

void tr_message_recv(struct tr_message *ret, struct tr_comms *comms, enum tr_link_use use, void *to,
                     size_t bytes, int peer, int tag)
{
    struct tr_link *link = comms->link[use];

    *ret = TR_NO_MESSAGE;
    if (!link) {
        tr_irecv(&ret->req, &comms->world, to, bytes, peer, tag);
        return;
    }
    tr_link_begin(link);
    tr_link_recv(link, to, bytes, 0);
    *ret = (struct tr_message){MPI_REQUEST_NULL, link, tr_link_end(link)};
}

bool tr_message_open(struct tr_progress *progress, struct tr_message *message)
{
    return message->req != MPI_REQUEST_NULL && !tr_test(progress, &message->req, 1);
}

void tr_message_wait(struct tr_progress *progress, struct tr_op op, struct tr_message *message)
{
    if (message->link)
        tr_link_wait(message->link, message->exchange);
    else
        tr_wait(progress, op, &message->req, 1);
    *message = TR_NO_MESSAGE;
}
