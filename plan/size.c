#include "plan/plan.h"

#include <assert.h>

#include "base/base.h"

/* What is known of a job without a trial: the cost model, and how far it may be off. */
static void expect(struct pl_size *ret, const struct pl_problem *problem,
                   const struct pl_cost *cost)
{
    struct pl_calibration *none = pl_calibration_new(NULL, 0, NULL);
    double tokens = cost->tokens_per_s * cost->total; /* of an iteration */
    struct pl_projected projected;

    pl_project(&projected, none, &ret->layout, 0, cost->total);
    pl_calibration_free(none);
    ret->tokens_per_s = cost->tokens_per_s;
    ret->lo = tokens / projected.hi;
    ret->hi = tokens / projected.lo;
    ret->mfu = pl_mfu(problem, &ret->layout, cost->tokens_per_s);
}

void pl_size_of(struct pl_size *ret, const struct pl_space *space, const struct pl_problem *problem,
                double headroom, const struct pl_patience *patience)
{
    struct pl_plan plan;

    *ret = (struct pl_size){.devices = pl_cluster_devices(problem->cluster)};
    pl_plan_look(&plan, space, problem, 1, headroom, PL_TOKENS_PER_S, patience);
    ret->exact = plan.exact;
    if (plan.n) {
        ret->fits = true;
        ret->layout = plan.at[0].layout;
        ret->bytes = plan.at[0].memory.total;
        expect(ret, problem, &plan.at[0].cost);
    } else {
        pl_plan_nothing(&plan, space, problem, headroom, patience, &ret->reason);
    }
    pl_plan_done(&plan);
}

void pl_sizes_compare(struct pl_size *sizes, int count)
{
    const struct pl_size *first = NULL, *before = NULL;

    for (int i = 0; i < count; i++) {
        struct pl_size *size = &sizes[i];
        double each;

        assert(i == 0 || size->devices > sizes[i - 1].devices);
        if (!size->fits)
            continue;
        if (!first)
            first = before = size;
        each = first->tokens_per_s / first->devices;
        size->efficiency = size->tokens_per_s / size->devices / each;
        size->marginal = size == first ? 1
                                       : (size->tokens_per_s - before->tokens_per_s) /
                                             (size->devices - before->devices) / each;
        before = size;
    }
}

int pl_sizes_fewest(const struct pl_size *sizes, int count, double tokens_per_s, bool sure)
{
    for (int i = 0; i < count; i++)
        if (sizes[i].fits && (sure ? sizes[i].lo : sizes[i].tokens_per_s) >= tokens_per_s)
            return i;
    return -1;
}

int pl_sizes_paying(const struct pl_size *sizes, int count, double least)
{
    int last = -1, fitting = 0;
    bool pays = true;

    for (int i = 0; i < count; i++) {
        if (!sizes[i].fits)
            continue;
        fitting++;
        pays = pays && sizes[i].marginal >= least;
        if (pays)
            last = i;
    }
    return fitting > 1 ? last : -1;
}
