#include "base/base.h"
#include "trainer/measure.h"

#include <assert.h>
#include <math.h>

void tr_measure_init(struct tr_measure *measure, int cap)
{
    *measure = (struct tr_measure){.cap = cap};
    measure->ms = mem_alloc(sizeof(*measure->ms) * (size_t)cap);
    measure->tmp = mem_alloc(sizeof(*measure->tmp) * (size_t)cap);
}

void tr_measure_done(struct tr_measure *measure)
{
    free(measure->ms);
    free(measure->tmp);
    *measure = (struct tr_measure){0};
}

void tr_measure_add(struct tr_measure *measure, double ms)
{
    measure->ms[measure->n++ % measure->cap] = ms;
}

static int ascending(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;

    return (x > y) - (x < y);
}

static double quantile(const double *sorted, int count, double share)
{
    double at = share * (count - 1);
    int i = (int)at;

    assert(share >= 0 && share <= 1 && count > 0);
    return i + 1 < count ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[count - 1];
}

/* The largest j (from 0) with P(Binomial(n, 1/2) <= j) <= 2.5 %, or -1: then values j + 1 from each
 * end enclose the median with 95 %. */
static int interval_rank(int n)
{
    double p = exp2(-n), sum = 0;
    int j = -1;

    for (int i = 0; i <= n; i++) {
        sum += p;
        if (sum > 0.025)
            break;
        j = i;
        p = p * (n - i) / (i + 1);
    }
    return j;
}

void tr_measure_stats(struct tr_stats *ret, const struct tr_measure *measure)
{
    int n = measure->n < measure->cap ? measure->n : measure->cap, j;
    double *x = measure->tmp;

    *ret = (struct tr_stats){0};
    if (n == 0)
        return;
    memcpy(x, measure->ms, sizeof(*x) * (size_t)n);
    qsort(x, (size_t)n, sizeof(*x), ascending);
    j = n > 1000 ? (int)(0.5 * n - 0.98 * sqrt(n)) - 1 : interval_rank(n);
    if (j < 0)
        j = 0;
    assert(j <= n - 1 - j && x[j] <= x[n - 1 - j]);
    *ret = (struct tr_stats){.median = quantile(x, n, 0.5),
                             .p10 = quantile(x, n, 0.1),
                             .p90 = quantile(x, n, 0.9),
                             .ci95 = (x[n - 1 - j] - x[j]) / 2};
}
