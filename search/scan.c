/*
 * Passes over the table; the formulas are in scan.h.
 *
 * Vectors are of 8 doubles by the compilers' vector extension; each pass is compiled three times
 * (AVX-512, AVX2, the baseline) and chosen by what the processor has. Observations are padded to
 * whole vectors by ones whose covariance with everything is zero.
 */
#include "search/scan.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "search/num.h"

typedef double vec __attribute__((vector_size(64)));
typedef int64_t ivec __attribute__((vector_size(64)));
enum { LANES = 8 };

struct se_scan {
    const struct se_belief *b;
    const struct se_hyp *h;
    const struct se_table *t;
    const struct se_gp *g;
    int nv;         /* vectors that an observation row takes */
    vec *factor;    /* (ndims, stride, nv): m_d(level, x_id) */
    vec *prefix;    /* (ndims + 1, nv): a_2^2 times the leading factors */
    vec *alpha;     /* (nv) */
    vec *lin;       /* (nlin, nv): w_p^2 u_ip */
    vec *inverse;   /* L^-1: for each block of 8 rows the columns up to its last */
    double *main;   /* (ndims, stride): M_d */
    double *single; /* (n): k(x_j, x_j) + var_j */
    double w[SE_MAX_LIN];
    /* The layout taken up: */
    size_t index;
    struct se_point point;
    double *k; /* (8 nv): its covariances, as far as DONE */
    double var;
    int done; /* blocks */
    /* By processor: */
    void (*all)(struct se_scan *s, float *mean, float *var_bound);
    void (*tighten)(struct se_scan *s, int upto);
};

static vec *vec_alloc(size_t n)
{
    vec *p = aligned_alloc(sizeof(vec), (n + 1) * sizeof(vec));

    assert(p);
    memset((void *)p, 0, (n + 1) * sizeof(vec));
    return p;
}

static void set_observation(struct se_scan *s, int i)
{
    const struct se_gp *g = s->g;
    const struct se_kernel *k = &g->kern;
    const uint8_t *level = g->level + (size_t)i * (size_t)k->ndims;
    const double *u = g->lin + (size_t)i * (size_t)k->nlin;

    ((double *)s->alpha)[i] = g->alpha[i];
    ((double *)s->prefix)[i] = k->prod2;
    s->single[i] = se_kernel_cov(k, level, u, level, u) + g->var[i];
    for (int p = 0; p < k->nlin; p++) {
        s->w[p] += k->lin2[p] * u[p] * g->alpha[i];
        ((double *)(s->lin + (size_t)p * (size_t)s->nv))[i] = k->lin2[p] * u[p];
    }
    for (int d = 0; d < k->ndims; d++) {
        for (int v = 0; v < k->nlevels[d]; v++) {
            size_t at = (size_t)d * (size_t)k->stride + (size_t)v;
            double m = se_kernel_row(k, d, v)[level[d]];

            ((double *)(s->factor + at * (size_t)s->nv))[i] = m;
            s->main[at] += k->main2 * m * g->alpha[i];
        }
    }
}

/* Columns of L^-1 by solving for the columns of the identity, stored by blocks of rows. */
static void set_inverse(struct se_scan *s)
{
    int n = s->g->n;
    double AUTO_FREE *inv = mem_alloc(((size_t)n * (size_t)n + 1) * sizeof(double));

    for (int i = 0; i < n; i++)
        inv[(size_t)i * (size_t)n + (size_t)i] = 1.0;
    se_lower_solve(s->g->l, n, s->g->cap, inv, n);
    for (int b = 0; b < s->nv; b++) {
        double *block = (double *)(s->inverse + (size_t)b * (size_t)(b + 1) / 2 * LANES);

        for (int j = 0; j < (b + 1) * LANES; j++)
            for (int l = 0; l < LANES; l++)
                if (b * LANES + l < n && j < n)
                    block[j * LANES + l] = inv[(size_t)j * (size_t)n + (size_t)(b * LANES + l)];
    }
}

/* ---- one pass over all --------------------------------------------------------------------------
 */

/* Product part of a row against all observations, from the first dimension that differs from the
 * row before; returns alpha^T of it, and the observation with the largest one in *RET_NEAR. */
static inline __attribute__((always_inline)) double product(struct se_scan *s, const uint8_t *row,
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

/* The mean less its product part. */
static double rest_of_mean(const struct se_scan *s, size_t i, const struct se_point *p)
{
    const struct se_kernel *k = &s->g->kern;
    double m = se_hyp_mean(s->b, s->h, s->t, i);

    for (int d = 0; d < k->ndims; d++)
        m += s->main[(size_t)d * (size_t)k->stride + p->level[d]];
    for (int q = 0; q < k->nlin; q++)
        m += s->w[q] * p->u[q];
    return m;
}

static double prior_var(const struct se_kernel *k, const struct se_point *p)
{
    double v = k->prod2 + k->main2 * k->ndims;

    for (int q = 0; q < k->nlin; q++)
        v += k->lin2[q] * p->u[q] * p->u[q];
    return v;
}

/* The variance given observation J alone, whose product part is PROD. */
static double var_given(const struct se_scan *s, const struct se_point *p, int j, double prod)
{
    const struct se_kernel *k = &s->g->kern;
    const uint8_t *level = s->g->level + (size_t)j * (size_t)k->ndims;
    const double *u = s->g->lin + (size_t)j * (size_t)k->nlin;
    double main = 0.0;

    for (int d = 0; d < k->ndims; d++)
        main += se_kernel_row(k, d, p->level[d])[level[d]];
    prod += k->main2 * main;
    for (int q = 0; q < k->nlin; q++)
        prod += k->lin2[q] * p->u[q] * u[q];
    return prior_var(k, p) - prod * prod / s->single[j];
}

static inline __attribute__((always_inline)) void all(struct se_scan *s, float *mean,
                                                      float *var_bound)
{
    const struct se_kernel *k = &s->g->kern;
    const struct se_table *t = s->t;
    float better = s->b->quantity == SE_MEMORY ? -INFINITY : INFINITY;
    struct se_point p;

    for (size_t i = 0; i < t->n; i++) {
        const uint8_t *row = se_table_row(t, i);
        int from = 0, near = 0;
        double m, var;

        while (i > 0 && from < k->ndims && row[from] == row[from - t->ndims])
            from++;
        se_table_point(t, s->b->quantity, i, k->nlin, &p);
        m = rest_of_mean(s, i, &p);
        if (s->g->n > 0) {
            m += product(s, row, from, &near);
            var = var_given(s, &p, near,
                            ((const double *)(s->prefix + (size_t)k->ndims * (size_t)s->nv))[near]);
        } else {
            var = prior_var(k, &p);
        }
        mean[i] = nextafterf((float)m, better);
        var_bound[i] = nextafterf((float)fmax(var, 0.0), INFINITY);
    }
}

/* ---- one layout, as far as needed ---------------------------------------------------------------
 */

/* Covariances with the observations of block B, then v_j of that block. */
static inline __attribute__((always_inline)) void add_block(struct se_scan *s, int b)
{
    const struct se_kernel *k = &s->g->kern;
    const vec *inverse = s->inverse + (size_t)b * (size_t)(b + 1) / 2 * LANES;
    vec prod = s->prefix[b], sum = {0}, v = {0};

    for (int d = 0; d < k->ndims; d++) {
        vec f = s->factor[((size_t)d * (size_t)k->stride + s->point.level[d]) * (size_t)s->nv +
                          (size_t)b];

        prod *= f;
        sum += f;
    }
    sum = prod + k->main2 * sum;
    for (int p = 0; p < k->nlin; p++)
        sum += s->lin[(size_t)p * (size_t)s->nv + (size_t)b] * s->point.u[p];
    memcpy(s->k + b * LANES, &sum, sizeof(sum));
    for (int j = 0; j < (b + 1) * LANES; j++)
        v += inverse[j] * s->k[j];
    v *= v;
    s->var -= ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

static inline __attribute__((always_inline)) void tighten(struct se_scan *s, int upto)
{
    while (s->done < s->nv && s->done * LANES < upto)
        add_block(s, s->done++);
}

/* ---- by processor -------------------------------------------------------------------------------
 */

#define FOR_PROCESSOR(suffix, attribute)                                                           \
    attribute static void all_##suffix(struct se_scan *s, float *mean, float *var_bound)           \
    {                                                                                              \
        all(s, mean, var_bound);                                                                   \
    }                                                                                              \
    attribute static void tighten_##suffix(struct se_scan *s, int upto)                            \
    {                                                                                              \
        tighten(s, upto);                                                                          \
    }

FOR_PROCESSOR(base, )
#ifdef __x86_64__
FOR_PROCESSOR(avx2, __attribute__((target("avx2,fma"))))
FOR_PROCESSOR(avx512, __attribute__((target("avx512f,avx2,fma"))))
#endif

static void choose(struct se_scan *s)
{
    s->all = all_base;
    s->tighten = tighten_base;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        s->all = all_avx512;
        s->tighten = tighten_avx512;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        s->all = all_avx2;
        s->tighten = tighten_avx2;
    }
#endif
}

/* ---- public -------------------------------------------------------------------------------------
 */

struct se_scan *se_scan_new(const struct se_belief *b, const struct se_hyp *h,
                            const struct se_table *t)
{
    const struct se_kernel *k = &h->gp.kern;
    struct se_scan *s = mem_alloc(sizeof(*s));
    size_t nv;

    s->b = b;
    s->h = h;
    s->t = t;
    s->g = &h->gp;
    s->nv = (h->gp.n + LANES - 1) / LANES;
    nv = (size_t)s->nv;
    s->factor = vec_alloc((size_t)k->ndims * (size_t)k->stride * nv);
    s->prefix = vec_alloc((size_t)(k->ndims + 1) * nv);
    s->alpha = vec_alloc(nv);
    s->lin = vec_alloc((size_t)k->nlin * nv);
    s->inverse = vec_alloc(nv * (nv + 1) / 2 * LANES);
    s->main = mem_alloc((size_t)k->ndims * (size_t)k->stride * sizeof(double) + 1);
    s->single = mem_alloc((nv * LANES + 1) * sizeof(double));
    s->k = mem_alloc((nv * LANES + 1) * sizeof(double));
    for (int i = 0; i < h->gp.n; i++)
        set_observation(s, i);
    set_inverse(s);
    choose(s);
    return s;
}

struct se_scan *se_scan_free(struct se_scan *s)
{
    if (!s)
        return NULL;
    free(s->factor);
    free(s->prefix);
    free(s->alpha);
    free(s->lin);
    free(s->inverse);
    free(s->main);
    free(s->single);
    free(s->k);
    free(s);
    return NULL;
}

void se_scan_all(struct se_scan *s, float *mean, float *var_bound)
{
    s->all(s, mean, var_bound);
}

void se_scan_open(struct se_scan *s, size_t i)
{
    s->index = i;
    se_table_point(s->t, s->b->quantity, i, s->g->kern.nlin, &s->point);
    s->var = prior_var(&s->g->kern, &s->point);
    s->done = 0;
}

double se_scan_tighten(struct se_scan *s, int upto, bool *ret_done)
{
    s->tighten(s, upto);
    *ret_done = s->done == s->nv;
    return fmax(s->var, 0.0);
}

double se_scan_mean(struct se_scan *s, double *ret_var)
{
    s->tighten(s, INT_MAX);
    *ret_var = fmax(s->var, 0.0);
    return se_hyp_mean(s->b, s->h, s->t, s->index) + se_dot(s->k, s->g->alpha, s->g->n);
}
