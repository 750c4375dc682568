/*
 * Rankings: the best layouts of a space by the cost model. A part of plan.h.
 */
#ifndef PLAN_RANK_H
#define PLAN_RANK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "plan/cost.h"
#include "plan/memory.h"
#include "plan/objective.h"
#include "plan/space.h"

struct pl_plan_entry {
    struct pl_layout layout;
    struct pl_cost cost;
    struct pl_memory memory; /* of the worst rank */
    char why[200];           /* why it is not the first: where the seconds go; "" for the first */
    /* Layouts left out because the model cannot tell them from this one: same seconds, same
     * memory. */
    size_t equivalents;
    int first_part; /* of a cluster of parts: the one that has the first stages */
    /* Of a plan of families: further layouts of its family that fit, and their least tokens/s; none
     * where the patience of a space with many options was over before they were counted. */
    size_t variants;
    double worst;
};

struct pl_plan {
    struct pl_plan_entry *at; /* best first; all fit in memory */
    size_t n;
    size_t legal;   /* layouts that were looked at */
    size_t fitting; /* of those, how many fit */
    bool exact;     /* they are all that the space has; else it has more, perhaps better ones */
    bool families;  /* each entry is the best of its family */
    /* Of each batch of a workload that lists several (nbatches), in its order, the best layout that
     * fits: a step of no seconds where none does. */
    struct pl_plan_entry *batch;
    size_t nbatches;
    struct pl_layout smallest; /* of those that do not fit, the one that needs least */
    double smallest_bytes;     /* 0: none was too large */
};

/*
 * The TOP best layouts of the space by the cost model, among those that fit in memory less the
 * share HEADROOM. Layouts are ranked by OBJECTIVE. On a cluster of parts the space is that of
 * pl_parts_space(), and each entry has the list of stages that its order of the parts needs. Of
 * layouts that
 * the model cannot tell apart (they differ in a key that changes nothing here) only the first is
 * listed. The caller calls pl_plan_done, which accepts a zeroed struct.
 *
 * When PATIENCE (may be NULL) is over the list is of what was looked at so far: first the shapes
 * (degrees, micro_batch, schedule) evenly, each by a few of its layouts, and where that took too
 * long what a climb from the best of them finds; then all layouts of the shapes in order of how
 * they did.
 */
void pl_plan_look(struct pl_plan *ret, const struct pl_space *space,
                  const struct pl_problem *problem, size_t top, double headroom,
                  enum pl_objective objective, const struct pl_patience *patience);
/* The same, but an entry is a family: layouts that differ only in zero_scope and in flags, keys
 * that are 0 or 1 (sp, overlap). The best of a family is listed, with the number of its variants.
 */
void pl_plan_families(struct pl_plan *ret, const struct pl_space *space,
                      const struct pl_problem *problem, size_t top, double headroom,
                      enum pl_objective objective, const struct pl_patience *patience);
/*
 * Would options that SPACE does not name be more than 3 % better by OBJECTIVE than PLAN, its plan,
 * or fit where nothing does? *RET = the best found while PATIENCE lasted, RET_KEYS gets its options
 * ("moe_dispatch deepep, tp_overlap 1"). None changes what is computed: not grad_dtype.
 */
bool pl_plan_beyond(struct pl_plan_entry *ret, struct str *ret_keys, const struct pl_space *space,
                    const struct pl_problem *problem, const struct pl_plan *plan, double headroom,
                    enum pl_objective objective, const struct pl_patience *patience);
/* Why PLAN lists nothing: -ENOENT with the reason. */
int pl_plan_nothing(const struct pl_plan *plan, const struct pl_space *space,
                    const struct pl_problem *problem, double headroom,
                    const struct pl_patience *patience, struct err *error);
/* pl_plan_look of the whole space; -ENOENT with the reason where nothing is legal or fits. */
int pl_plan_rank(struct pl_plan *ret, const struct pl_space *space,
                 const struct pl_problem *problem, size_t top, double headroom,
                 enum pl_objective objective, struct err *error);
void pl_plan_done(struct pl_plan *plan);

/*
 * At most MOST layouts of a space that has more, in the order of its walk; the caller frees them.
 * The share BEST (0..1) of them are all layouts of the shapes that do best by the cost model among
 * those that fit, the others an even sample of the rest. The same arguments give the same list,
 * which is not cut short: -ECANCELED if PATIENCE (may be NULL) is over before it is whole.
 */
int pl_plan_shortlist(struct pl_layout **ret, size_t *ret_count, size_t most, double best,
                      const struct pl_space *space, const struct pl_problem *problem,
                      double headroom, enum pl_objective objective,
                      const struct pl_patience *patience, struct err *error);
/* {"legal":…, "fitting":…, "exact":…, "layouts":[{"rank":1, "layout":…, "tokens_per_s":…, "mfu":…,
 * "cost":…, "memory":…, "why":…}]}. New reference. */
json_t *pl_plan_json(const struct pl_plan *plan, const struct pl_problem *problem);

#endif
