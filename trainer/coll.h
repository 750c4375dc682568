/*
 * Collectives over one group, made of point-to-point transfers so that they can run behind
 * computation and add in any type of ours.
 *
 * With p members and n bytes, alpha the latency and beta the time a byte:
 *   tr_reduce_scatter  (p - 1) alpha + (p - 1)/p n beta, each rank adds what it receives
 *   tr_all_gather      (p - 1) alpha + (p - 1)/p n beta
 *   tr_all_reduce      the two in turn; up to TR_SMALL elements every rank sends all to all
 *                      instead: (p - 1) (alpha + n beta), one latency less
 *
 * A group of h hosts with q members each, whose q members share the host's link (a', b'):
 *   as above           every member sends to every other: the link carries q (h - 1)/h n
 *   by hosts           reduce-scatter: inside the hosts, one pass for the blocks of each host, then
 *                      across them between members of the same seat; all-gather the other way
 *                      round. (h - 1) a' + (h - 1)/h n b', 1/q of the bytes, after h passes of
 *                      (q - 1) alpha + (q - 1)/p n beta
 * The second saves (q - 1)(h - 1)/h n b' and costs h latencies more, so it is chosen for n over
 * h^2 / ((q - 1)(h - 1)) x TR_LINK, where TR_LINK stands for a'/b', the bytes that a link carries
 * in one latency: 6 KB at 1 Gbit/s and 50 us, 120 KB at 100 Gbit/s and 10 us.
 *
 * A reduce-scatter works in pieces, PL_COLL_AHEAD of them in flight: it is polled from inside
 * computations, which is seldom, and a piece needs several tests (offer, answer, the data in
 * several reads, end). pl_coll_piece() is its size.
 *
 * An element is added by one member, or with hosts by one member a host and then by one of them,
 * in the order of ranks, and then handed on: so an all-reduce leaves identical bits everywhere.
 *
 * Block i of n elements in a group of p is [i n / p, (i + 1) n / p).
 */
#ifndef TRAINER_COLL_H
#define TRAINER_COLL_H

#include "trainer/comm.h"

enum { TR_SMALL = 4096, TR_LINK = 1 << 16 };

/* A reduce-scatter or all-gather that was started; poll it until done. One at a time in a group. */
struct tr_coll {
    struct tr_group *g;
    enum kn_type type;
    char *buf;
    uint64_t n;
    uint64_t most, pieces;  /* elements of a piece, and how many make the largest block */
    uint64_t piece, posted; /* of this pass: the oldest under way, and the next to start */
    int pass, passes;
    int nreq[PL_COLL_AHEAD];
    bool reduce, active;
};

/* The pool whose operations add to MEMORY: GROUP's, where the host does not reach that; else NULL,
 * so that this thread does, from inside an operation, too. */
struct kn_pool *tr_coll_adder(const struct tr_group *group, const void *memory);

/* The tag of the group's next collective. */
int tr_coll_tag(struct tr_group *group);

/* Afterwards this rank's block of BUF (count) holds the sum; other blocks hold what it takes to get
 * there. */
void tr_reduce_scatter_start(struct tr_coll *coll, struct tr_group *group, enum kn_type type,
                             void *buf, uint64_t count);
/* Afterwards every rank has every block. */
void tr_all_gather_start(struct tr_coll *coll, struct tr_group *group, enum kn_type type, void *buf,
                         uint64_t count);
/* True once it is done; never waits. */
bool tr_coll_poll(struct tr_coll *coll);
void tr_coll_wait(struct tr_coll *coll);

void tr_reduce_scatter(struct tr_group *group, enum kn_type type, void *buf, uint64_t count);
void tr_all_gather(struct tr_group *group, enum kn_type type, void *buf, uint64_t count);
void tr_all_reduce(struct tr_group *group, enum kn_type type, void *buf, uint64_t count);
void tr_all_reduce_max(struct tr_group *group, float *buf, uint64_t count);

/* A few numbers over all ranks (GROUP is the world group); MPI's own algorithm. */
void tr_sum_double(struct tr_group *group, double *values, int count);
/* RET_ALL (size x count) gets every member's VALUES (count); on rank 0 only. */
void tr_gather_double(double *ret_all, struct tr_group *group, const double *values, int count);

#endif
