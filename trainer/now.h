/*
 * What a rank does now, for those who ask why a job makes no progress (hang.h).
 *
 * The rank's main thread stores it in a page that other processes of its host read, so it can be
 * read while the rank is stopped. A store is a move of a register to memory; there is no lock. A
 * reader compares `moves` before and after it has copied the rest: a rank that is stuck does not
 * change them.
 *
 * All functions accept NULL and then do nothing: a rank whose page does not exist yet, or tests.
 */
#ifndef TRAINER_NOW_H
#define TRAINER_NOW_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank waits in. */
enum tr_op_name {
    TR_OP_NONE,
    TR_OP_SEND,
    TR_OP_RECV,
    TR_OP_SEND_RECV, /* to the next member of the group and from the one before */
    TR_OP_ALL_REDUCE,
    TR_OP_REDUCE_SCATTER,
    TR_OP_ALL_GATHER,
    TR_OP_ALL_TO_ALL,
    TR_OP_GATHER,
    TR_OP_BROADCAST,
    TR_OP_GPU, /* for its GPU, and so for whomever NCCL's operations there wait for */
    TR_OPS
};

/* Kinds of groups; a rank is in one of each. */
enum tr_kind {
    TR_IN_WORLD,
    TR_IN_TP,
    TR_IN_CP,
    TR_IN_PP, /* of neighbors, by sends and receives only */
    TR_IN_EP, /* ep x etp */
    TR_IN_TIED,
    TR_IN_DP_SHARD, /* the replicas that share dense state (zero) ... */
    TR_IN_DP,       /* ... and those that hold the same */
    TR_IN_EDP_SHARD,
    TR_IN_EDP,
    TR_KINDS
};

/* Where a rank is in its run. */
enum tr_section {
    TR_AT_START,
    TR_AT_SAMPLES, /* reads the samples of a step or of a validation */
    TR_AT_STEP,
    TR_AT_VALIDATION,
    TR_AT_CHECKPOINT, /* or --save-hf */
    TR_SECTIONS
};

enum tr_pass { TR_PASS_NONE, TR_PASS_FORWARD, TR_PASS_BACKWARD, TR_PASS_WEIGHTS, TR_PASSES };

/* "all-reduce", "tp", "step", "backward" ... */
extern const char *const tr_op_names[TR_OPS], *const tr_kind_names[TR_KINDS],
                                                  *const tr_section_names[TR_SECTIONS],
                                                      *const tr_pass_names[TR_PASSES];

struct tr_op {
    enum tr_op_name name;
    enum tr_kind kind;
    int peer; /* world rank, of a send or a receive; else -1 */
};

/* The copy that a reader takes. */
struct tr_at {
    int32_t section;                /* enum tr_section */
    int32_t step;                   /* under way or, between steps, done */
    int32_t pass, mb, chunk, layer; /* enum tr_pass; layer of the model, -1: none */
    int32_t phase;                  /* enum tr_phase */
    int32_t op, kind, peer;         /* what it waits in; op TR_OP_NONE: it waits for nobody */
    uint32_t seq[TR_KINDS];         /* operations that it has begun in each of its groups */
};

struct tr_now {
    _Atomic uint64_t moves; /* grows with every store of the main thread */
    _Atomic int32_t section, step, pass, mb, chunk, layer, phase, op, kind, peer;
    _Atomic uint32_t seq[TR_KINDS];
    _Atomic uint64_t patience_ns; /* without a move of anybody for so long, the job is stuck */
    /* Of the watching thread: */
    _Atomic uint64_t beat_ns;     /* when it last ran; of this host's monotonic clock */
    _Atomic uint64_t reported_ns; /* when it last reported */
};

#define TR_NOW_SET(now, field, value)                                                              \
    atomic_store_explicit(&(now)->field, (value), memory_order_relaxed)
#define TR_NOW_GET(now, field) atomic_load_explicit(&(now)->field, memory_order_relaxed)

/* There is one writer, so this is no read-modify-write of the bus. */
static inline void tr_now_moved(struct tr_now *now)
{
    atomic_store_explicit(&now->moves, TR_NOW_GET(now, moves) + 1, memory_order_release);
}

/* It does something new; so a wait for the GPU, whose end nobody tells, has ended. */
static inline void tr_now_goes(struct tr_now *now)
{
    if (TR_NOW_GET(now, op) == TR_OP_GPU)
        TR_NOW_SET(now, op, TR_OP_NONE);
    tr_now_moved(now);
}

static inline void tr_now_phase(struct tr_now *now, int phase)
{
    if (!now)
        return;
    TR_NOW_SET(now, phase, phase);
    tr_now_goes(now);
}

static inline void tr_now_section(struct tr_now *now, enum tr_section section, int step,
                                  uint64_t patience_ns)
{
    if (!now)
        return;
    TR_NOW_SET(now, section, (int32_t)section);
    TR_NOW_SET(now, step, step);
    TR_NOW_SET(now, patience_ns, patience_ns);
    tr_now_goes(now);
}

/* A pass of micro-batch MB through CHUNK begins. */
static inline void tr_now_pass(struct tr_now *now, enum tr_pass pass, int mb, int chunk)
{
    if (!now)
        return;
    TR_NOW_SET(now, pass, (int32_t)pass);
    TR_NOW_SET(now, mb, mb);
    TR_NOW_SET(now, chunk, chunk);
    TR_NOW_SET(now, layer, -1);
    tr_now_goes(now);
}

static inline void tr_now_layer(struct tr_now *now, int layer)
{
    if (!now)
        return;
    TR_NOW_SET(now, layer, layer);
    tr_now_goes(now);
}

/* An operation of the rank's group of KIND begins; its members begin them in the same order. */
static inline void tr_now_begin(struct tr_now *now, enum tr_kind kind)
{
    if (!now)
        return;
    TR_NOW_SET(now, seq[kind], TR_NOW_GET(now, seq[kind]) + 1);
    tr_now_goes(now);
}

/* The rank waits in OP; name TR_OP_NONE: no longer. */
static inline void tr_now_wait(struct tr_now *now, struct tr_op op)
{
    if (!now)
        return;
    TR_NOW_SET(now, kind, (int32_t)op.kind);
    TR_NOW_SET(now, peer, op.peer);
    TR_NOW_SET(now, op, (int32_t)op.name);
    tr_now_moved(now);
}

/* The rank waits for its GPU, as it tells again and again. */
static inline void tr_now_gpu(struct tr_now *now)
{
    if (now && TR_NOW_GET(now, op) == TR_OP_NONE)
        tr_now_wait(now, (struct tr_op){TR_OP_GPU, TR_IN_WORLD, -1});
}

/* What NOW holds, in one piece if the rank does not move meanwhile. */
void tr_now_copy(struct tr_at *ret, const struct tr_now *now);

#endif
