/* Private to plan/: what a layout is worth on a cluster of two parts (parts.h): the division of the
 * layers over its stages, the bytes of each and the seconds of all. */
#ifndef PLAN_PARTS_RANK_H
#define PLAN_PARTS_RANK_H

#include "plan/cost_stage.h"
#include "plan/parts.h"
#include "plan/rank.h"

/* The parts in one of the two orders, and how the layers are divided for a layout. Stages [0,
 * HEAD_STAGES) are on part ORDER, the others on the other one. */
struct pl_parts_cut {
    int order, head_stages;
    bool possible; /* each stage has at least one layer, and fits if memory was asked */
    int first[PL_MAX_RUNS + 1]; /* stage s has the layers [first[s], first[s + 1]) */
};

struct pl_parts_ctx;

/* For many layouts of PROBLEM, whose cluster has parts and which must outlive the context, as must
 * what it points to. A device offers its memory less the share HEADROOM. Not thread-safe. */
struct pl_parts_ctx *pl_parts_ctx_new(const struct pl_problem *problem, double headroom);
struct pl_parts_ctx *pl_parts_ctx_free(struct pl_parts_ctx *ctx);

/* Memory, and if it fits seconds, of ENTRY's layout in the better order, which becomes its
 * first_part. Its stages are even there: the division is found here. Does it fit? */
bool pl_parts_price(struct pl_parts_ctx *ctx, struct pl_plan_entry *entry);
/* Write the division that pl_parts_price found into ENTRY's stages. -E2BIG: a text too long, or too
 * many lists. */
int pl_parts_write(struct pl_parts_ctx *ctx, struct pl_plan_entry *entry, struct err *error);

/* ---- the division (parts_cut.c) ------------------------------------------ */

/* Seconds of one micro-batch: of the first i layers on each part, and of the ends beside them. */
struct pl_parts_times {
    int layers;
    double *before[PL_PARTS]; /* (layers + 1) */
    double head[PL_PARTS], tail[PL_PARTS];
};

/* Does STAGE fit with the layers [FIRST, FIRST + N) of CUT? More layers never fit where fewer do
 * not. */
typedef bool pl_parts_fits(void *arg, const struct pl_parts_cut *cut, int stage, int first, int n);

/*
 * Sets possible and first of CUT, of PP stages, whose order and head_stages are given: each stage
 * has a layer, and fits if FITS is not NULL. The slowest stage is as fast as can be; of all such
 * divisions it is one in which the stages together need the least time. Within a part stages take
 * alike times.
 */
void pl_parts_divide(struct pl_parts_cut *cut, int pp, const struct pl_parts_times *times,
                     pl_parts_fits *fits, void *arg);
/* Seconds of STAGE of PP with the layers [FIRST, FIRST + N). */
double pl_parts_stage_s(const struct pl_parts_cut *cut, int pp, const struct pl_parts_times *times,
                        int stage, int first, int n);

#endif
