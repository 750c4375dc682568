/*
 * Posteriors of single layouts; the formulas are in scan.h. Observations are padded to whole
 * vectors by ones whose covariance with everything is zero.
 */
#include "search/scan.h"

#include <limits.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"
#include "search/vec.h"

struct se_scan {
    const struct se_belief *b;
    const struct se_hyp *h;
    const struct se_table *t;
    const struct se_gp *g;
    int nv;       /* vectors that an observation row takes */
    vec *factor;  /* (ndims, stride, nv): m_d(level, x_id) */
    vec *scale;   /* (nv): a_2^2, 0 beyond the last observation */
    vec *lin;     /* (nlin, nv): w_p^2 u_ip */
    vec *inverse; /* L^-1: for each block of 8 rows the columns up to its last */
    /* The layout taken up: */
    size_t index;
    struct se_point point;
    double *k; /* (8 nv): its covariances, as far as DONE */
    double var;
    int done; /* blocks */
    void (*tighten)(struct se_scan *s, int upto);
};

static void set_observation(struct se_scan *s, int i)
{
    const struct se_gp *g = s->g;
    const struct se_kernel *k = &g->kern;
    const uint8_t *level = g->level + (size_t)i * (size_t)k->ndims;
    const double *u = g->lin + (size_t)i * (size_t)k->nlin;

    ((double *)s->scale)[i] = k->prod2;
    for (int p = 0; p < k->nlin; p++)
        ((double *)(s->lin + (size_t)p * (size_t)s->nv))[i] = k->lin2[p] * u[p];
    for (int d = 0; d < k->ndims; d++) {
        for (int v = 0; v < k->nlevels[d]; v++) {
            size_t at = (size_t)d * (size_t)k->stride + (size_t)v;

            ((double *)(s->factor + at * (size_t)s->nv))[i] = se_kernel_row(k, d, v)[level[d]];
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

static double prior_var(const struct se_kernel *k, const struct se_point *p)
{
    double v = k->prod2 + k->main2 * k->ndims;

    for (int q = 0; q < k->nlin; q++)
        v += k->lin2[q] * p->u[q] * p->u[q];
    return v;
}

/* ---- one layout, as far as needed ---------------------------------------------------------------
 */

/* Covariances with the observations of block B, then v_j of that block. */
static VEC_INLINE void add_block(struct se_scan *s, int b)
{
    const struct se_kernel *k = &s->g->kern;
    const vec *inverse = s->inverse + (size_t)b * (size_t)(b + 1) / 2 * LANES;
    vec prod = s->scale[b], sum = {0}, v;

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
    vec_combine(&v, inverse, s->k, (b + 1) * LANES);
    v *= v;
    s->var -= vec_sum(&v);
}

static VEC_INLINE void tighten(struct se_scan *s, int upto)
{
    while (s->done < s->nv && s->done * LANES < upto)
        add_block(s, s->done++);
}

/* ---- by processor -------------------------------------------------------------------------------
 */

static void tighten_base(struct se_scan *s, int upto)
{
    tighten(s, upto);
}

VEC_AVX2 static void tighten_avx2(struct se_scan *s, int upto)
{
    tighten(s, upto);
}

VEC_AVX512 static void tighten_avx512(struct se_scan *s, int upto)
{
    tighten(s, upto);
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
    s->scale = vec_alloc(nv);
    s->lin = vec_alloc((size_t)k->nlin * nv);
    s->inverse = vec_alloc(nv * (nv + 1) / 2 * LANES);
    s->k = mem_alloc((nv * LANES + 1) * sizeof(double));
    for (int i = 0; i < h->gp.n; i++)
        set_observation(s, i);
    set_inverse(s);
    s->tighten = VEC_CHOOSE(tighten_avx512, tighten_avx2, tighten_base);
    return s;
}

struct se_scan *se_scan_free(struct se_scan *s)
{
    if (!s)
        return NULL;
    free(s->factor);
    free(s->scale);
    free(s->lin);
    free(s->inverse);
    free(s->k);
    free(s);
    return NULL;
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
