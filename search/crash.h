/*
 * The probability that a layout crashes, or is refused, for reasons other than rules and memory.
 *
 * A Beta-Bernoulli rate, smoothed over layouts. Settled trial i counts as w_i of a trial at x:
 *
 *     w_i     = prod_d m(x_d, x_id)                                Matern, length one doubling
 *     P(runs) = (a + sum of w_i that ran) / (a + b + sum of w_i)   a + b = 1, b = 1/50
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
/* P(runs) */
double se_crash_runs(const struct se_crash *crash, const struct se_table *table, size_t index);

#endif
