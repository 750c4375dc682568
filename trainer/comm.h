/*
 * Ranks, groups and the one way to wait.
 *
 * MPICH waits by spinning, which stalls everybody once ranks outnumber cores, so nothing here
 * blocks inside MPI: every operation is started with an MPI_I... call and completed by tr_wait(),
 * which tests and yields the core.
 *
 * An MPI error cannot be repaired in the middle of a step: the handler set by tr_comms_init()
 * reports it through the caller's function and that does not return. So functions of the step path
 * are void.
 */
#ifndef TRAINER_COMM_H
#define TRAINER_COMM_H

#include <mpi.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "plan/plan.h"
#include "trainer/phase.h"
#include "trainer/staging.h"

/* How this rank waits. */
struct tr_progress {
    bool yield;                 /* ranks (with their threads) outnumber the cores of this host */
    struct tr_clock *clock;     /* waits are charged here; may be NULL */
    struct kn_pool *pool;       /* what computes the messages; transfers start when it is done */
    struct tr_staging staging;  /* of messages of POOL's memory */
    struct tr_now *now;         /* waits and operations are published here; NULL: nowhere */
    _Atomic(const char *) hung; /* the wait has to end the job, for this reason; NULL: not */
    void (*ask)(void *arg); /* every wait calls it now and then; NULL: nothing. May not return */
    void *ask_arg;
};

/*
 * Ranks along one axis: a list of ranks of the one communicator, not a communicator of its own,
 * because making those blocks inside MPI. Groups are told apart by their tags. `scratch` holds
 * pl_coll_scratch(size) floats and `req` PL_COLL_AHEAD x 2 x size requests for one collective at a
 * time.
 */
struct tr_group {
    MPI_Comm comm; /* of all ranks of the layout */
    int *member;   /* (size) ranks in comm */
    int id;        /* chooses its tags; 0: the world's, on which only MPI's collectives run */
    enum tr_kind kind;
    int rank, size;
    void *scratch;
    MPI_Request *req;
    int tag;      /* advances with every collective, alike on all members */
    bool running; /* a collective is under way */
    struct tr_progress *progress;
    /* Where its members run: `hosts` hosts with `each` members on every one, both over 1; or
     * hosts 1 and each 0, where they share one host, have one each, or are spread unevenly. */
    int hosts, each;
    int *grid;      /* (hosts, each) members by host; in the order of ranks along both sides */
    int *flat;      /* (size) 0, 1, ... */
    int host, seat; /* of this rank in grid */
    struct tr_nccl *nccl; /* between GPUs (nccl.h), or NULL */
    void *nccl_comm;
};

/* What messages between GPUs are for: over pp outputs and their gradients, from here and to here,
 * and those of the groups cp, moe and tp. */
enum tr_link_use {
    TR_LINK_ACT_OUT,
    TR_LINK_ACT_IN,
    TR_LINK_GRAD_OUT,
    TR_LINK_GRAD_IN,
    TR_LINK_CP,
    TR_LINK_EP,
    TR_LINK_TP,
    TR_LINKS
};

struct tr_comms {
    struct tr_progress progress;
    struct tr_group world, tp, cp;
    struct tr_group moe;  /* the ep x etp ranks among which tokens travel, etp fastest */
    struct tr_group tied; /* this rank's peers on the first stage and the last, if it is on one */
    /* The replicas of dense state, and of experts: those that share it (pl_cut) ... */
    struct tr_group shard[2];
    struct tr_group copy[2]; /* ... and those that hold what this rank holds; all without zero */
    int stage, prev, next;   /* pipeline stage, and world ranks of its neighbors, cyclic */
    bool first_of_host;      /* no rank before this one is on its host */
    struct tr_nccl *nccl;    /* NULL: none */
    struct tr_link *link[TR_LINKS]; /* link.h; NULL: these messages go by MPI */
};

/* FAIL gets one line of reason and does not return. It is shared by all ranks' handlers of the
 * process. */
typedef void tr_fail_fn(const char *reason);

/* Groups of the layout over PARENT, which has exactly layout->world ranks. Collective. */
void tr_comms_init(struct tr_comms *comms, MPI_Comm parent, const struct pl_layout *layout,
                   struct tr_clock *clock, tr_fail_fn *fail);
void tr_comms_done(struct tr_comms *comms);

/* Set the host of each rank: HOST (world) holds any numbers, equal for ranks of one host.
 * tr_comms_init() has asked MPI; tests pretend. Collective: a kind of groups counts as spread over
 * hosts only if all groups of the kind are in the same way, so that copies of an element in
 * different groups are added in the same order. */
void tr_comms_place(struct tr_comms *comms, const uint64_t *host);

/* "MPICH 4.0.2", "Open MPI 4.1.4". Needs no MPI_Init(). */
const char *tr_mpi_name(char *buf, size_t size);
/* A hash of the name of this process's host. */
uint64_t tr_host_hash(void);

/* First element of block INDEX, if TOTAL elements are divided over a group of PARTS members. */
uint64_t tr_block(uint64_t total, int parts, int index);

/* Complete all COUNT requests, which are those of OP. Does not return once a stop was requested and
 * its deadline has passed (stop.h), nor once PROGRESS is `hung`. */
void tr_wait(struct tr_progress *progress, struct tr_op op, MPI_Request *req, int count);
/* True if all COUNT are complete; drives progress in any case. */
bool tr_test(struct tr_progress *progress, MPI_Request *req, int count);

/* Whatever a wait has to do now and then, but to drive MPI: for kn_pool_set_idle(). */
void tr_idle(void *progress);

/* OP of GROUP: all its members take part. */
static inline struct tr_op tr_op_of(enum tr_op_name name, const struct tr_group *group)
{
    return (struct tr_op){name, group->kind, -1};
}

/* The same, and the group's next operation begins. */
static inline struct tr_op tr_op_begin(enum tr_op_name name, const struct tr_group *group)
{
    tr_now_begin(group->progress->now, group->kind);
    return tr_op_of(name, group);
}

/*
 * Start a transfer of BYTES to or from RANK of GROUP. Of a large exchange the send comes first: its
 * message is an offer, an answer and the data, and over a socket what is sent later waits behind
 * that data. If the receive came first, a peer that has made its offer already would get the answer
 * before ours, fill the socket, and answer ours only then: one way after the other.
 * Collectives, of many pieces, start their receives first.
 */
void tr_isend(MPI_Request *ret, struct tr_group *group, const void *buf, size_t bytes, int rank,
              int tag);
void tr_irecv(MPI_Request *ret, struct tr_group *group, void *buf, size_t bytes, int rank, int tag);

enum {
    TR_TAG_POOL = 0,        /* + chunk: what the "huggingface" loss pools, between stages */
    TR_TAG_ACT = 256,       /* + chunk: activations between stages */
    TR_TAG_GRAD = 512,      /* + chunk: their gradients */
    TR_TAG_POOL_BACK = 768, /* + chunk: the whole pool, on its way back */
    TR_TAG_MOE = 1024,      /* + expert + 1 */
    TR_TAG_RING = 4032,     /* + 0, 1: keys and values, their gradients, between ranks of cp */
    TR_TAG_COLL = 4096, /* x group id, from 1 to TR_GROUPS, + a running number below TR_TAG_COLL */
    TR_GROUPS = 7,      /* tp, moe, tied or cp, shard and copy of dense state and of experts */
    TR_TAG_MAX = (TR_GROUPS + 1) * TR_TAG_COLL - 1, /* 32767, which every MPI allows */
};

#endif
