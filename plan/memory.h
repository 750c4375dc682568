/*
 * The memory plan: bytes of a rank. A part of plan.h.
 */
#ifndef PLAN_MEMORY_H
#define PLAN_MEMORY_H

#include <jansson.h>
#include <stdbool.h>

#include "plan/layout.h"
#include "plan/problem.h"

enum pl_mem_class {
    PL_MEM_WEIGHTS,
    PL_MEM_GRADS,
    PL_MEM_MASTER,
    PL_MEM_OPTIMIZER,
    PL_MEM_ACTIVATIONS,
    PL_MEM_COMM,
    PL_MEM_LOGITS,
    PL_MEM_WORKSPACE,
    PL_MEM_SNAPSHOT, /* of asynchronous checkpoints: never in a trial */
    /* What the driver holds next to a trainer's buffers, where the cluster's profile measured it;
     * else a GPU trainer's workspace has an estimate of all three, and the bundled one's nothing */
    PL_MEM_CONTEXT,
    PL_MEM_LIBRARY,
    PL_MEM_NCCL,
    PL_MEM_CLASSES
};

extern const char *const pl_mem_class_names[PL_MEM_CLASSES + 1]; /* "weights" …, NULL */

struct pl_memory {
    double bytes[PL_MEM_CLASSES];
    double total;  /* of the device */
    double scaled; /* what pl_memory_offered() is compared with: total, but of a rank on the smaller
                      devices of a cluster of parts that times the ratio of the two sizes */
    double host;   /* what the rank offloads into the memory of its node, beyond total */
    int rank;      /* whose bytes these are; for a worst case, the worst rank */
};

/* Bytes of one rank. Exact for the bundled trainer, which allocates from the same arithmetic. Of
 * the problem's cluster (NULL: none) both read what its device's driver holds, and no more. */
void pl_memory_rank(struct pl_memory *ret, const struct pl_problem *problem,
                    const struct pl_layout *layout, int rank);
/* The rank that needs most. */
void pl_memory_worst(struct pl_memory *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout);

/* Of these what the driver holds: of the cluster's profile, 0 where that has not measured it. */
double pl_memory_driver(const struct pl_problem *problem, const struct pl_layout *layout);

/* Of the total of MEMORY what the caching allocator of TRAINER's framework holds, in bytes: all but
 * the device context, communication buffers and fragments, which only the driver reports. */
double pl_memory_allocator(const struct pl_memory *memory, const struct pl_trainer *trainer);

/* The same for many layouts of one problem: what they share is computed once. What PROBLEM points
 * to must outlive the context. Not thread-safe. */
struct pl_memory_ctx;
struct pl_memory_ctx *pl_memory_ctx_new(const struct pl_problem *problem);
struct pl_memory_ctx *pl_memory_ctx_free(struct pl_memory_ctx *ctx);
void pl_memory_at(struct pl_memory *ret, struct pl_memory_ctx *ctx, const struct pl_layout *layout);

/* constraints.memory_headroom of BODY, the share of a device that layouts leave free; absent: the
 * bundled trainer's plan is exact and leaves none, others' are formulas. */
int pl_headroom_of(double *ret, const json_t *body, const struct pl_trainer *trainer,
                   struct err *error);

/* Bytes of a device of CLUSTER less the share HEADROOM: the limit for a rank. */
double pl_memory_offered(const struct pl_cluster *cluster, double headroom);

/* {"total":…, "rank":…, "<class>":…}: bytes; what is behind "workspace", and "host", only where
 * there are any. New reference. */
json_t *pl_memory_json(const struct pl_memory *memory);

/* Does the worst rank of LAYOUT fit in a device's memory less the share HEADROOM? */
bool pl_fits(const struct pl_problem *problem, const struct pl_layout *layout, double headroom);

#endif
