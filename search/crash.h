/*
 * Will a layout crash, or prove illegal, for reasons that neither rules nor memory explain?
 *
 * A Beta-Bernoulli rate smoothed over layouts: each settled trial counts as w = prod_d m(x_d, x_id)
 * of a trial here, m being the Matern kernel at one doubling's length: P(runs) = (a + sum of w over
 * those that ran) / (a + b + sum of w over all) with a + b = 1 trial's worth of prior and b / (a +
 * b) = 1/50.
 */
#ifndef SEARCH_CRASH_H
#define SEARCH_CRASH_H

#include "search/table.h"

struct se_crash {
    struct se_kernel kern;
    uint8_t *level; /* (n, nactive) */
    bool *ran;
    int n, cap, crashes;
};

void se_crash_init(struct se_crash *crash, const struct se_table *table);
void se_crash_done(struct se_crash *crash);
void se_crash_add(struct se_crash *crash, const struct se_table *table, size_t index, bool ran);
double se_crash_runs(const struct se_crash *crash, const struct se_table *table,
                     size_t index); /* P(runs) */

#endif
