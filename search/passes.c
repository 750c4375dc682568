/* Which of the versions of the passes this processor runs. */
#include "search/passes.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct se_passes *chosen;

const struct se_passes *se_passes_of(int i)
{
#if defined(__x86_64__)
    if (i == 0)
        return __builtin_cpu_supports("avx512f") ? &se_passes_avx512 : NULL;
    if (i == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &se_passes_avx2
                                                                               : NULL;
#endif
    return i == 2 ? &se_passes_base : NULL;
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

struct se_sweep *se_sweep_new(const struct se_belief *b, const struct se_hyp *h,
                              const struct se_table *t, const uint32_t *row, size_t n, int members)
{
    return passes()->sweep_new(b, h, t, row, n, members);
}

struct se_sweep *se_sweep_free(struct se_sweep *s)
{
    return passes()->sweep_free(s);
}

void se_sweep_run(const struct se_sweep *s, float *mean, float *var_bound)
{
    passes()->sweep_run(s, mean, var_bound);
}

struct se_scan *se_scan_new(const struct se_belief *b, const struct se_hyp *h,
                            const struct se_table *t)
{
    return passes()->scan_new(b, h, t);
}

struct se_scan *se_scan_twin(const struct se_scan *s)
{
    return passes()->scan_twin(s);
}

struct se_scan *se_scan_free(struct se_scan *s)
{
    return passes()->scan_free(s);
}

void se_scan_open(struct se_scan *s, size_t i)
{
    passes()->scan_open(s, i);
}

double se_scan_tighten(struct se_scan *s, int upto, bool *ret_done)
{
    return passes()->scan_tighten(s, upto, ret_done);
}

double se_scan_mean(struct se_scan *s, double *ret_var)
{
    return passes()->scan_mean(s, ret_var);
}

void se_score_bounds(const struct se_acquire *a, const uint32_t *row, size_t n,
                     float *const mean[SE_MAX_HYPS], float *const var[SE_MAX_HYPS], float *ret)
{
    passes()->score_bounds(a, row, n, mean, var, ret);
}
