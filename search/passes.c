/* Which of the versions of the passes this processor runs. */
#include "search/passes.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct se_passes *chosen;

const struct se_passes *se_passes_of(int index)
{
#if defined(__x86_64__)
    if (index == 0)
        return __builtin_cpu_supports("avx512f") ? &se_passes_avx512 : NULL;
    if (index == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &se_passes_avx2
                                                                               : NULL;
#endif
    return index == 2 ? &se_passes_base : NULL;
}

static void choose(void)
{
    for (int i = 0; !chosen; i++)
        chosen = se_passes_of(i);
}

static const struct se_passes *passes(void)
{
    pthread_once(&once, choose);
    return chosen;
}

void se_passes_use(const struct se_passes *p)
{
    passes();
    chosen = p;
}

struct se_sweep *se_sweep_new(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                              const struct se_table *table, const uint32_t *row, size_t count,
                              int members)
{
    return passes()->sweep_new(surrogate, hyp, table, row, count, members);
}

struct se_sweep *se_sweep_free(struct se_sweep *sweep)
{
    return passes()->sweep_free(sweep);
}

void se_sweep_run(float *ret_mean, float *ret_var_bound, const struct se_sweep *sweep)
{
    passes()->sweep_run(ret_mean, ret_var_bound, sweep);
}

struct se_scan *se_scan_new(const struct se_surrogate *surrogate, const struct se_hyp *hyp,
                            const struct se_table *table)
{
    return passes()->scan_new(surrogate, hyp, table);
}

struct se_scan *se_scan_share(const struct se_scan *scan)
{
    return passes()->scan_share(scan);
}

struct se_scan *se_scan_free(struct se_scan *scan)
{
    return passes()->scan_free(scan);
}

void se_scan_open(struct se_scan *scan, size_t index)
{
    passes()->scan_open(scan, index);
}

double se_scan_tighten(bool *ret_done, struct se_scan *scan, int upto)
{
    return passes()->scan_tighten(ret_done, scan, upto);
}

double se_scan_mean(double *ret_var, struct se_scan *scan)
{
    return passes()->scan_mean(ret_var, scan);
}

void se_score_bounds(float *ret, const struct se_acquire *acquire, const uint32_t *row,
                     size_t count, float *const mean[SE_MAX_HYPS], float *const var[SE_MAX_HYPS])
{
    passes()->score_bounds(ret, acquire, row, count, mean, var);
}
