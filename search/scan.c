/*
 * One pass over the table; the formulas are in scan.h.
 *
 * Vectors are of 8 doubles by the compilers' vector extension; the pass is compiled three times
 * (AVX-512, AVX2, the baseline) and chosen by what the processor has. Floats hold the results: the
 * mean is rounded towards the better (throughput up, memory down) and the variance up, so that
 * bounds stay bounds.
 */
#include "search/scan.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"

typedef double vec __attribute__((vector_size(64)));
typedef int64_t ivec __attribute__((vector_size(64)));
enum { LANES = 8 };

struct pass {
    const struct se_table *t;
    const struct se_gp *g;
    int nv;       /* vectors an observation row takes */
    vec *factor;  /* (ndims, stride, nv): m_d(level, x_id) */
    vec *prefix;  /* (ndims + 1, nv): a_2^2 times the leading factors */
    vec *alpha;   /* (nv), zero beyond n */
    double *main; /* (ndims, stride): M_d */
    double lin[SE_MAX_LIN];
    double *single; /* (n): k(x_j, x_j) + var_j */
};

static vec *vec_alloc(size_t n)
{
    vec *p = aligned_alloc(sizeof(vec), (n + 1) * sizeof(vec));

    assert(p);
    memset((void *)p, 0, (n + 1) * sizeof(vec));
    return p;
}

static void pass_init(struct pass *s, const struct se_gp *g, const struct se_table *t)
{
    const struct se_kernel *k = &g->kern;
    size_t stride = (size_t)k->stride;

    s->t = t;
    s->g = g;
    s->nv = (g->n + LANES - 1) / LANES;
    s->factor = vec_alloc((size_t)k->ndims * stride * (size_t)s->nv);
    s->prefix = vec_alloc((size_t)(k->ndims + 1) * (size_t)s->nv);
    s->alpha = vec_alloc((size_t)s->nv);
    s->main = mem_alloc((size_t)k->ndims * stride * sizeof(double) + 1);
    s->single = mem_alloc(((size_t)g->n + 1) * sizeof(double));
    memset(s->lin, 0, sizeof(s->lin));
    for (int i = 0; i < g->n; i++) {
        const uint8_t *level = g->level + (size_t)i * (size_t)k->ndims;
        const double *u = g->lin + (size_t)i * (size_t)k->nlin;

        ((double *)s->alpha)[i] = g->alpha[i];
        ((double *)s->prefix)[i] = k->prod2;
        s->single[i] = se_kernel_cov(k, level, u, level, u) + g->var[i];
        for (int p = 0; p < k->nlin; p++)
            s->lin[p] += k->lin2[p] * u[p] * g->alpha[i];
        for (int d = 0; d < k->ndims; d++) {
            for (int v = 0; v < k->nlevels[d]; v++) {
                size_t at = (size_t)d * stride + (size_t)v;
                double m = se_kernel_row(k, d, v)[level[d]];

                ((double *)(s->factor + at * (size_t)s->nv))[i] = m;
                s->main[at] += k->main2 * m * g->alpha[i];
            }
        }
    }
}

static void pass_done(struct pass *s)
{
    free(s->factor);
    free(s->prefix);
    free(s->alpha);
    free(s->main);
    free(s->single);
}

/* Product part of layout I against all observations, from the first dimension that differs from the
 * row before; returns alpha^T of it, and the observation with the largest one in *RET_NEAR. */
static inline __attribute__((always_inline)) double product(struct pass *s, const uint8_t *row,
                                                            int from, int *ret_near)
{
    int nd = s->g->kern.ndims, nv = s->nv;
    vec *last = s->prefix + (size_t)nd * (size_t)nv;
    vec acc = {0}, top = {0};
    ivec at = {0};
    int best = 0;

    for (int d = from; d < nd; d++) {
        const vec *f = s->factor + ((size_t)d * (size_t)s->g->kern.stride + row[d]) * (size_t)nv;
        const vec *p = s->prefix + (size_t)d * (size_t)nv;
        vec *q = s->prefix + (size_t)(d + 1) * (size_t)nv;

        for (int j = 0; j < nv; j++)
            q[j] = p[j] * f[j];
    }
    for (int j = 0; j < nv; j++) {
        ivec more = last[j] > top;
        ivec here = {j, j, j, j, j, j, j, j};

        acc += last[j] * s->alpha[j];
        top = (vec)(((ivec)top & ~more) | ((ivec)last[j] & more));
        at = (at & ~more) | (here & more);
    }
    for (int l = 1; l < LANES; l++)
        if (top[l] > top[best])
            best = l;
    *ret_near = (int)at[best] * LANES + best;
    return ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
}

/* K(x, x_j) less its product part, and k(x, x). */
static inline __attribute__((always_inline)) void
rest(const struct pass *s, const struct se_point *p, int j, double *cross, double *self)
{
    const struct se_kernel *k = &s->g->kern;
    const uint8_t *level = s->g->level + (size_t)j * (size_t)k->ndims;
    const double *u = s->g->lin + (size_t)j * (size_t)k->nlin;
    double main = 0.0, lin = 0.0, own = 0.0;

    for (int d = 0; d < k->ndims; d++)
        main += se_kernel_row(k, d, p->level[d])[level[d]];
    for (int i = 0; i < k->nlin; i++) {
        lin += k->lin2[i] * p->u[i] * u[i];
        own += k->lin2[i] * p->u[i] * p->u[i];
    }
    *cross = k->main2 * main + lin;
    *self = k->prod2 + k->main2 * k->ndims + own;
}

static inline __attribute__((always_inline)) void run(struct pass *s, const struct se_belief *b,
                                                      const struct se_hyp *h, float *mean,
                                                      float *var_bound)
{
    const struct se_kernel *k = &s->g->kern;
    const struct se_table *t = s->t;
    struct se_point p;

    for (size_t i = 0; i < t->n; i++) {
        const uint8_t *row = se_table_row(t, i);
        int from = 0, near = 0;
        double m = se_hyp_mean(b, h, t, i), cross, self, var;

        while (i > 0 && from < k->ndims && row[from] == row[from - t->ndims])
            from++;
        se_table_point(t, b->quantity, i, k->nlin, &p);
        if (s->g->n > 0) {
            m += product(s, row, from, &near);
            for (int d = 0; d < k->ndims; d++)
                m += s->main[(size_t)d * (size_t)k->stride + row[d]];
            for (int q = 0; q < k->nlin; q++)
                m += s->lin[q] * p.u[q];
            rest(s, &p, near, &cross, &self);
            cross += ((const double *)(s->prefix + (size_t)k->ndims * (size_t)s->nv))[near];
            var = self - cross * cross / s->single[near];
        } else {
            rest(s, &p, 0, &cross, &self);
            var = self;
        }
        mean[i] = nextafterf((float)m, b->quantity == SE_MEMORY ? -INFINITY : INFINITY);
        var_bound[i] = nextafterf((float)fmax(var, 0.0), INFINITY);
    }
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx2,fma"))) static void run_avx512(struct pass *s,
                                                                   const struct se_belief *b,
                                                                   const struct se_hyp *h,
                                                                   float *mean, float *var_bound)
{
    run(s, b, h, mean, var_bound);
}

__attribute__((target("avx2,fma"))) static void run_avx2(struct pass *s, const struct se_belief *b,
                                                         const struct se_hyp *h, float *mean,
                                                         float *var_bound)
{
    run(s, b, h, mean, var_bound);
}
#endif

void se_scan(const struct se_belief *b, const struct se_hyp *h, const struct se_table *t,
             float *mean, float *var_bound)
{
    struct pass s;

    pass_init(&s, &h->gp, t);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        run_avx512(&s, b, h, mean, var_bound);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        run_avx2(&s, b, h, mean, var_bound);
    else
#endif
        run(&s, b, h, mean, var_bound);
    pass_done(&s);
}
