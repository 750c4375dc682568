/* A kernel-smoothed rate of crashes; the formula is in crash.h. */
#include "search/crash.h"

#include <math.h>

#include "base/base.h"

static const double PRIOR_RUNS = 0.98, PRIOR_CRASHES = 0.02;

void se_crash_init(struct se_crash *c, const struct se_table *t)
{
    double theta[SE_MAX_THETA] = {0.0};

    memset(c, 0, sizeof(*c));
    se_kernel_init(&c->kern, t->dim, t->ndims, 0);
    theta[SE_TH_MAIN] = -INFINITY;
    se_kernel_set(&c->kern, theta);
}

void se_crash_done(struct se_crash *c)
{
    se_kernel_done(&c->kern);
    free(c->level);
    free(c->ran);
    memset(c, 0, sizeof(*c));
}

void se_crash_add(struct se_crash *c, const struct se_table *t, size_t i, bool ran)
{
    size_t nd = (size_t)c->kern.ndims;

    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 32;
        c->level = mem_realloc(c->level, (size_t)c->cap * nd + 1);
        c->ran = mem_realloc(c->ran, (size_t)c->cap * sizeof(*c->ran));
    }
    memcpy(c->level + (size_t)c->n * nd, se_table_row(t, i), nd);
    c->ran[c->n++] = ran;
    c->crashes += !ran;
}

double se_crash_runs(const struct se_crash *c, const struct se_table *t, size_t i)
{
    double ran = PRIOR_RUNS, all = PRIOR_RUNS + PRIOR_CRASHES;

    if (c->crashes == 0) /* the rate matters only where it differs between layouts */
        return 1.0;
    for (int j = 0; j < c->n; j++) {
        double w = se_kernel_cov(&c->kern, se_table_row(t, i), NULL,
                                 c->level + (size_t)j * (size_t)c->kern.ndims, NULL);

        all += w;
        ran += c->ran[j] ? w : 0.0;
    }
    return ran / all;
}
