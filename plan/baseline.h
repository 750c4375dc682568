/*
 * Baselines: the layout that a campaign's winner is compared with. A part of plan.h.
 */
#ifndef PLAN_BASELINE_H
#define PLAN_BASELINE_H

#include "base/err.h"
#include "plan/layout.h"
#include "plan/patience.h"
#include "plan/problem.h"

/* Which rule chooses a campaign's baseline; pl_baseline_names has their words. */
enum pl_baseline_rule { PL_BASELINE_DEFAULT, PL_BASELINE_NAIVE };

extern const char *const pl_baseline_names[]; /* "default", "naive", NULL */

enum { PL_BASELINE_NOTE = 224 };

/*
 * The layout that a campaign's winner is compared with, of at most MAX_WORLD ranks (0: all devices)
 * and within device memory less the share HEADROOM.
 *
 * default: what a competent engineer would start from. All devices; sharded optimizer state, and
 * sequence parallelism and overlap where the trainer has them; tp inside the fastest link; experts
 * spread inside the fast domain (pl_cluster_domain); no recomputation; tp, cp and pp of which none
 * could be smaller; then the micro-batch and the virtual stages. Where these leave a choice, the
 * cost model's fastest. What does not fit so may have tp up to the domain, experts on several,
 * recomputation, any degrees, and unused devices, in this order; RET_NOTE (may be NULL) explains
 * that one of the last was needed, and is empty otherwise.
 *
 * naive: the largest legal dp with micro_batch 1, tp = pp = ep = 1 and zero 0, then zero 1, then
 * the smallest tp * pp (the smaller pp of two) that fits, then with recomputation, then with
 * experts spread.
 *
 * The search is bounded to a few tenths of a second by counting its work, so that the same problem
 * has the same baseline on any machine. At the bound the best so far is taken, and RET_NOTE says
 * so.
 *
 * Of several batches it has the first with which something fits.
 *
 * Returns 0, -ENOENT where nothing legal fits, or -E2BIG where nothing did before the bound.
 */
int pl_baseline(struct pl_layout *ret, char ret_note[PL_BASELINE_NOTE],
                const struct pl_problem *problem, enum pl_baseline_rule rule, int max_world,
                double headroom, struct err *error);

/* The same on all devices until PATIENCE (NULL: no limit) is over, then -E2BIG or the best so far:
 * to begin a search at, and no baseline, since it depends on the clock. */
int pl_baseline_soon(struct pl_layout *ret, const struct pl_problem *problem,
                     enum pl_baseline_rule rule, double headroom,
                     const struct pl_patience *patience);

#endif
