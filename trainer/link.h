/*
 * Links: messages between two ranks whose arrays lie in the memory of GPUs, by NCCL (nccl_comms.h),
 * where collectives go by it, too; else these messages are MPI's (comm.h), through the host.
 *
 * A link has a communicator and a stream of its own. An exchange on it, of one or several messages,
 * begins when the operations of the rank's pool so far are done, and whoever needs it makes the
 * pool wait for it: both are events between streams, and the host waits for neither. So a buffer is
 * written again only after its message has left, in the order of streams, and the host is some
 * launches ahead. Only if KN_MARKS exchanges of a link are under way does it wait for the oldest.
 *
 * NCCL's messages have no tags. Between two ranks, the n-th that one sends on a communicator is the
 * n-th that the other receives, and the two are one rendezvous: a send ends when its receive takes
 * it. What the stream holds after it waits, even if its own partner is ready; so do all operations
 * of the communicator, on whatever stream.
 *
 * WHY NO ORDER CAN DEADLOCK. Operations wait for what is before them in their stream, for events of
 * operations that their rank launched before, and for their partner. Compare the same program with
 * MPI, where the host stops at every wait: it ends, with sends that end only when received and as
 * many buffers as here (tests/unit/plan_schedule.c). The order in which it completes operations is
 * one in which none of the waits here looks ahead, if the order of a stream adds none:
 *
 *   pp   Each way of each pair of neighbors, outputs and gradients apart, is a link that one of the
 *        two only sends on and the other only receives on, in the same order: that of the steps,
 *        which plan_schedule.c compares for all schedules. On one stream for all of a stage, or for
 *        a pair, it would matter who sends first: in 1F1B a stage sends an output while the next
 *        sends a gradient, and a receive that is posted ahead (overlap_p2p) would be before a send
 *        that its sender waits for. As it is, a message waits for those before it on its way alone,
 *        and MPI completes these before it, too.
 *   cp, ep, tp_overlap   An exchange is symmetric: all members of the group start it, with all its
 *        sends and receives in one group of NCCL, in which they progress together; what one of them
 *        sends to another, that one receives in the same exchange. The program is the same on all
 *        members, so they start exchanges in one order. An exchange can wait only for its members
 *        to come to it, as they do with MPI, where they stop at the same places.
 *
 * So the waits have no circle, whatever the streams of a rank interleave, the host's own waits (for
 * counts of tokens, sums of few numbers) among them: it waits where it does with MPI, or later. The
 * collectives of nccl.h are on the pool's stream or aside, in the order of the program.
 *
 * That takes kernels of NCCL that can all be on the GPU at once: up to nine (pool, aside, four of
 * pp, one each of the others), of one block of threads per channel, at most 32, which wait for
 * other ranks only while no kernel of ours holds a place that it does not give back by itself. And
 * streams that do not share a queue of the device: backend.c asks for 32 of these. The connections
 * of a communicator are made at the start (tr_links_init), because NCCL makes them on the host,
 * inside of the first message between two ranks, which would stop it until the other launches its
 * own.
 */
#ifndef TRAINER_LINK_H
#define TRAINER_LINK_H

#include "trainer/comm.h"

/* An exchange that was started, the first being 1; 0: none. */
typedef uint64_t tr_exchange;

/* Which links a rank has: those of a pipeline between STAGE and its neighbors PREV and NEXT (world
 * ranks), cyclic if WRAPS, if there are several STAGES; and those of groups, NULL: none. */
struct tr_link_plan {
    int stage, stages, prev, next;
    bool wraps;
    struct tr_group *cp, *ep, *tp;
};

/* Of a layout over COMMS. */
struct tr_link_plan tr_link_plan(struct tr_comms *comms, const struct pl_layout *layout);

/* The links of PLAN, connected, if COMMS has NCCL. Collective, after tr_nccl_init(); so is
 * tr_links_done(), before tr_nccl_done(), when nothing is under way. */
void tr_links_init(struct tr_comms *comms, const struct tr_link_plan *plan);
void tr_links_done(struct tr_comms *comms);

/*
 * One exchange of LINK: its messages, of arrays in the GPU's own memory, between tr_link_begin()
 * and tr_link_end(). PEER is a member of the group; in a pipeline the sender is 0, the receiver 1.
 * The arrays do not change until it is waited for; BYTES > 0.
 */
void tr_link_begin(struct tr_link *link);
void tr_link_send(struct tr_link *link, const void *from, size_t bytes, int peer);
void tr_link_recv(struct tr_link *link, void *to, size_t bytes, int peer);
tr_exchange tr_link_end(struct tr_link *link);

/* What is launched on the rank's pool from now on begins after EXCHANGE of LINK. */
void tr_link_wait(struct tr_link *link, tr_exchange exchange);
/* It is done; never waits. */
bool tr_link_reached(struct tr_link *link, tr_exchange exchange);
/* The next exchange of LINK begins after EXCHANGE of OTHER. */
void tr_link_after(struct tr_link *link, struct tr_link *other, tr_exchange exchange);

/* ---- one message, by a link or by MPI ------------------------------------ */

/* Zeroed except for REQ: none is under way. */
struct tr_message {
    MPI_Request req; /* MPI_REQUEST_NULL: done, or by LINK */
    struct tr_link *link;
    tr_exchange exchange;
};

#define TR_NO_MESSAGE ((struct tr_message){.req = MPI_REQUEST_NULL})

/* Start to send to, or to receive from, the neighbor PEER (world rank) of a pipeline, on link USE
 * or as tr_isend(), tr_irecv() with TAG. */
void tr_message_send(struct tr_message *ret, struct tr_comms *comms, enum tr_link_use use,
                     const void *from, size_t bytes, int peer, int tag);
void tr_message_recv(struct tr_message *ret, struct tr_comms *comms, enum tr_link_use use, void *to,
                     size_t bytes, int peer, int tag);
/* It is not done, as far as MPI goes, whose progress is driven; by a link: never. */
bool tr_message_open(struct tr_progress *progress, struct tr_message *message);
/* The host waits for it, or by a link the pool. OP is the message. */
void tr_message_wait(struct tr_progress *progress, struct tr_op op, struct tr_message *message);

#endif
