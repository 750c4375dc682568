/* A kernel-smoothed rate of crashes; the formula is in crash.h. */
#include "search/crash.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

static const double PRIOR_RUNS = 0.98, PRIOR_CRASHES = 0.02;

void se_crash_init(struct se_crash *crash, const struct se_table *table)
{
    double theta[SE_MAX_THETA] = {0.0};

    memset(crash, 0, sizeof(*crash));
    se_kernel_init(&crash->kern, table->dim, table->ndims, 0);
    theta[SE_TH_MAIN] = -INFINITY;
    se_kernel_set(&crash->kern, theta);
}

void se_crash_done(struct se_crash *crash)
{
    se_kernel_done(&crash->kern);
    free(crash->level);
    free(crash->ran);
    memset(crash, 0, sizeof(*crash));
}

void se_crash_add(struct se_crash *crash, const struct se_table *table, size_t index, bool ran)
{
    size_t nd = (size_t)crash->kern.ndims;

    if (crash->n == crash->cap) {
        crash->cap = crash->cap ? 2 * crash->cap : 32;
        crash->level = mem_realloc(crash->level, (size_t)crash->cap * nd + 1);
        crash->ran = mem_realloc(crash->ran, (size_t)crash->cap * sizeof(*crash->ran));
    }
    memcpy(crash->level + (size_t)crash->n * nd, se_table_row(table, index), nd);
    crash->ran[crash->n++] = ran;
    crash->crashes += !ran;
}

double se_crash_runs(const struct se_crash *crash, const struct se_table *table, size_t index)
{
    double ran = PRIOR_RUNS, all = PRIOR_RUNS + PRIOR_CRASHES;

    if (crash->crashes == 0) /* the rate matters only where it differs between layouts */
        return 1.0;
    for (int j = 0; j < crash->n; j++) {
        double w = se_kernel_cov(&crash->kern, se_table_row(table, index), NULL,
                                 crash->level + (size_t)j * (size_t)crash->kern.ndims, NULL);

        all += w;
        ran += crash->ran[j] ? w : 0.0;
    }
    assert(ran > 0.0 && ran <= all);
    return ran / all;
}
