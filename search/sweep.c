/* Posteriors of many layouts by two-step contraction; the formulas are in sweep.h. */
#include "search/sweep.h"

#include <math.h>

#include "base/base.h"
#include "search/num.h"
#include "search/vec.h"

struct se_sweep {
    const struct se_belief *b;
    const struct se_hyp *h;
    const struct se_table *t;
    const struct se_gp *g;
    int lead; /* leading keys */

    /* Observations in the order of their classes, each class padded to whole vectors by ones whose
     * covariance with everything is zero. */
    int nv;      /* vectors */
    int *of;     /* (nv * LANES): observation at each place, or -1 */
    vec *factor; /* (lead, stride, nv): m_d(level, x_id) */
    vec *prefix; /* (lead + 1, nv): a_2^2 times the leading factors */
    vec *alpha;  /* (nv) */

    int nclasses, cv; /* classes, and vectors that they take */
    int *begin;       /* (nclasses + 1): vectors of each class */
    vec *trail;       /* (ndims, stride, cv): m_d(level, c_d) of trailing keys */
    vec *tail;        /* (ndims + 1, cv): the trailing factors */
    vec *sum, *top;   /* (cv): S_c, and the largest leading product of each class */
    int *near;        /* (nclasses): place of that, or -1: not looked for yet */

    double *main;   /* (ndims, stride): M_d */
    double *single; /* (n): k(x_j, x_j) + var_j */
    vec *lin;       /* (n, 2): w_p^2 u_jp */
    vec w[2], lin2[2];

    void (*rows)(struct se_sweep *s, const uint32_t *row, size_t n, float *mean, float *var_bound);
};

static const uint8_t *level_of(const struct se_gp *g, int i)
{
    return g->level + (size_t)i * (size_t)g->kern.ndims;
}

static size_t table_at(const struct se_kernel *k, int d, int v)
{
    return (size_t)d * (size_t)k->stride + (size_t)v;
}

/* Twice what rounding to float may take away, relatively. */
static const double ULP = 0x1p-23;

/* ---- classes ------------------------------------------------------------------------------------
 */

/* Order of the observations by their levels from key LEAD on (insertion, N is a few hundred);
 * returns the number of distinct ones, and the vectors that padded classes take. */
static int classify(const struct se_gp *g, int lead, int *order, int *ret_vectors)
{
    size_t bytes = (size_t)(g->kern.ndims - lead);
    int classes = 0, run = 0;

    for (int i = 0; i < g->n; i++) {
        int at = i;

        for (;
             at > 0 && memcmp(level_of(g, order[at - 1]) + lead, level_of(g, i) + lead, bytes) > 0;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    *ret_vectors = 0;
    for (int i = 0; i < g->n; i++) {
        if (i == 0 ||
            memcmp(level_of(g, order[i - 1]) + lead, level_of(g, order[i]) + lead, bytes) != 0) {
            classes++;
            run = 0;
        }
        *ret_vectors += run++ % LANES == 0;
    }
    return classes;
}

/* Leading keys that make a pass over all layouts cheapest, counted in vector operations. */
static int choose_lead(const struct se_table *t, const struct se_gp *g, int *order)
{
    double groups = 1.0, least = INFINITY;
    int best = 0;

    for (int lead = 0; lead <= g->kern.ndims; lead++) {
        int vectors, classes = classify(g, lead, order, &vectors);
        double cost = groups * (4.0 * vectors + 8.0 * classes) +
                      (double)t->n * 4.0 * ((classes + LANES - 1) / LANES);

        if (cost < least) {
            least = cost;
            best = lead;
        }
        groups += lead < g->kern.ndims ? (double)t->changes[lead] : 0.0;
    }
    return best;
}

static void set_place(struct se_sweep *s, int place, int i)
{
    const struct se_kernel *k = &s->g->kern;

    s->of[place] = i;
    ((double *)s->alpha)[place] = s->g->alpha[i];
    ((double *)s->prefix)[place] = k->prod2;
    for (int d = 0; d < s->lead; d++)
        for (int v = 0; v < k->nlevels[d]; v++)
            ((double *)(s->factor + table_at(k, d, v) * (size_t)s->nv))[place] =
                se_kernel_row(k, d, v)[level_of(s->g, i)[d]];
}

static void set_class(struct se_sweep *s, int c, int i)
{
    const struct se_kernel *k = &s->g->kern;

    ((double *)(s->tail + (size_t)s->lead * (size_t)s->cv))[c] = 1.0;
    for (int d = s->lead; d < k->ndims; d++)
        for (int v = 0; v < k->nlevels[d]; v++)
            ((double *)(s->trail + table_at(k, d, v) * (size_t)s->cv))[c] =
                se_kernel_row(k, d, v)[level_of(s->g, i)[d]];
}

static void set_places(struct se_sweep *s, const int *order)
{
    const struct se_gp *g = s->g;
    size_t bytes = (size_t)(g->kern.ndims - s->lead);
    int place = 0, c = -1;

    for (int i = 0; i < s->nv * LANES; i++)
        s->of[i] = -1;
    for (int i = 0; i < g->n; i++) {
        if (i == 0 || memcmp(level_of(g, order[i - 1]) + s->lead, level_of(g, order[i]) + s->lead,
                             bytes) != 0) {
            place = (place + LANES - 1) / LANES * LANES;
            s->begin[++c] = place / LANES;
            set_class(s, c, order[i]);
        }
        set_place(s, place++, order[i]);
    }
    s->begin[s->nclasses] = s->nv;
}

/* What every observation adds to the parts of the mean that are not products. */
static void set_sums(struct se_sweep *s, int i)
{
    const struct se_kernel *k = &s->g->kern;
    const uint8_t *level = level_of(s->g, i);
    const double *u = s->g->lin + (size_t)i * (size_t)k->nlin;

    s->single[i] = se_kernel_cov(k, level, u, level, u) + s->g->var[i];
    for (int p = 0; p < k->nlin; p++) {
        ((double *)s->w)[p] += k->lin2[p] * u[p] * s->g->alpha[i];
        ((double *)(s->lin + 2 * i))[p] = k->lin2[p] * u[p];
    }
    for (int d = 0; d < k->ndims; d++)
        for (int v = 0; v < k->nlevels[d]; v++)
            s->main[table_at(k, d, v)] +=
                k->main2 * se_kernel_row(k, d, v)[level[d]] * s->g->alpha[i];
}

/* ---- the pass -----------------------------------------------------------------------------------
 */

/* S_c and the largest product of each class, for a group whose leading keys are those of LEVEL and
 * differ from the last group's from key FROM on. */
static VEC_INLINE void enter_group(struct se_sweep *s, const uint8_t *level, int from)
{
    const struct se_kernel *k = &s->g->kern;
    size_t nv = (size_t)s->nv;
    const vec *last = s->prefix + (size_t)s->lead * nv;

    for (int d = from; d < s->lead; d++) {
        const vec *f = s->factor + table_at(k, d, level[d]) * nv, *p = s->prefix + (size_t)d * nv;
        vec *q = s->prefix + (size_t)(d + 1) * nv;

        for (size_t j = 0; j < nv; j++)
            q[j] = p[j] * f[j];
    }
    for (int c = 0; c < s->nclasses; c++) {
        vec sum = {0}, top = {0};
        double most = 0.0;

        for (int j = s->begin[c]; j < s->begin[c + 1]; j++) {
            sum += last[j] * s->alpha[j];
            vec_max(&top, &last[j]);
        }
        for (int l = 0; l < LANES; l++)
            most = top[l] > most ? top[l] : most;
        ((double *)s->sum)[c] = vec_sum(&sum);
        ((double *)s->top)[c] = most;
        s->near[c] = -1;
    }
}

/* The observation with the largest product of class C in this group. */
static int nearest(struct se_sweep *s, int c)
{
    const double *last = (const double *)(s->prefix + (size_t)s->lead * (size_t)s->nv);
    int best = s->begin[c] * LANES;

    if (s->near[c] >= 0)
        return s->near[c];
    for (int i = best + 1; i < s->begin[c + 1] * LANES; i++)
        if (s->of[i] >= 0 && last[i] > last[best])
            best = i;
    return s->near[c] = s->of[best];
}

/* The product part of the mean at LEVEL, whose trailing keys differ from the last row's from FROM
 * on; the nearest observation and its product. */
static VEC_INLINE double contract(struct se_sweep *s, const uint8_t *level, int from,
                                  int *ret_class, double *ret_product)
{
    const struct se_kernel *k = &s->g->kern;
    size_t cv = (size_t)s->cv;
    const vec *last = s->tail + (size_t)k->ndims * cv;
    vec acc = {0}, top = {0};
    ivec at = {0};
    int best = 0;

    for (int d = from; d < k->ndims; d++) {
        const vec *f = s->trail + table_at(k, d, level[d]) * cv, *p = s->tail + (size_t)d * cv;
        vec *q = s->tail + (size_t)(d + 1) * cv;

        for (size_t j = 0; j < cv; j++)
            q[j] = p[j] * f[j];
    }
    for (size_t j = 0; j < cv; j++) {
        vec product = last[j] * s->top[j];
        ivec more = product > top;
        int64_t n = (int64_t)j;
        ivec here = {n, n, n, n, n, n, n, n};

        acc += last[j] * s->sum[j];
        top = (vec)(((ivec)top & ~more) | ((ivec)product & more));
        at = (at & ~more) | (here & more);
    }
    for (int l = 1; l < LANES; l++)
        if (top[l] > top[best])
            best = l;
    *ret_class = (int)at[best] * LANES + best;
    *ret_product = top[best];
    return vec_sum(&acc);
}

/* The variance given observation J alone, whose product part is PRODUCT. */
static VEC_INLINE double var_given(const struct se_sweep *s, const uint8_t *level, const vec *u,
                                   double prior_var, int j, double product)
{
    const struct se_kernel *k = &s->g->kern;
    const uint8_t *other = level_of(s->g, j);
    vec lin = u[0] * s->lin[2 * j] + u[1] * s->lin[2 * j + 1];
    double main = 0.0;

    for (int d = 0; d < k->ndims; d++)
        main += k->m[table_at(k, d, level[d]) * (size_t)k->stride + other[d]];
    product += k->main2 * main + vec_sum(&lin);
    return prior_var - product * product / s->single[j];
}

struct moments {
    double mean, var;
};

static VEC_INLINE void one_row(struct se_sweep *s, size_t i, int from, struct moments *ret)
{
    const struct se_kernel *k = &s->g->kern;
    const uint8_t *level = se_table_row(s->t, i);
    const float *lin = se_table_lin(s->t, s->b->quantity, i);
    vec u[2], first, second;
    double m, v, product;
    int c;

    vec_widen(&u[0], lin);
    vec_widen(&u[1], lin + LANES);
    first = u[0] * s->w[0] + u[1] * s->w[1];
    second = u[0] * u[0] * s->lin2[0] + u[1] * u[1] * s->lin2[1];
    m = se_hyp_mean(s->b, s->h, s->t, i) + vec_sum(&first);
    v = k->prod2 + k->main2 * k->ndims + vec_sum(&second);
    if (s->g->n > 0) {
        if (from < s->lead)
            enter_group(s, level, from);
        m += contract(s, level, from > s->lead ? from : s->lead, &c, &product);
        for (int d = 0; d < k->ndims; d++)
            m += s->main[table_at(k, d, level[d])];
        /* Where nothing is near, any observation is as good as another. */
        v = var_given(s, level, u, v, product > 0.0 ? nearest(s, c) : 0,
                      product > 0.0 ? product : 0.0);
    }
    ret->mean = m;
    ret->var = v > 0.0 ? v : 0.0;
}

static VEC_INLINE void rows(struct se_sweep *s, const uint32_t *row, size_t n, float *mean,
                            float *var_bound)
{
    double better = s->b->quantity == SE_MEMORY ? -ULP : ULP;
    const uint8_t *before = NULL;

    if (s->g->n > 0 && s->lead == 0)
        enter_group(s, NULL, 0);
    for (size_t r = 0; r < n; r++) {
        size_t i = row ? row[r] : r;
        const uint8_t *level = se_table_row(s->t, i);
        struct moments m;
        int from = 0;

        while (before && from < s->g->kern.ndims && level[from] == before[from])
            from++;
        one_row(s, i, from, &m);
        mean[r] = (float)(m.mean + better * fabs(m.mean));
        var_bound[r] = (float)(m.var * (1.0 + ULP));
        before = level;
    }
}

static void rows_base(struct se_sweep *s, const uint32_t *row, size_t n, float *mean, float *var)
{
    rows(s, row, n, mean, var);
}

VEC_AVX2 static void rows_avx2(struct se_sweep *s, const uint32_t *row, size_t n, float *mean,
                               float *var)
{
    rows(s, row, n, mean, var);
}

VEC_AVX512 static void rows_avx512(struct se_sweep *s, const uint32_t *row, size_t n, float *mean,
                                   float *var)
{
    rows(s, row, n, mean, var);
}

/* ---- public -------------------------------------------------------------------------------------
 */

static void allocate(struct se_sweep *s)
{
    const struct se_kernel *k = &s->g->kern;
    size_t cells = (size_t)k->ndims * (size_t)k->stride, nv = (size_t)s->nv, cv = (size_t)s->cv;

    s->of = mem_alloc((nv * LANES + 1) * sizeof(int));
    s->factor = vec_alloc(cells * nv);
    s->prefix = vec_alloc((size_t)(s->lead + 1) * nv);
    s->alpha = vec_alloc(nv);
    s->begin = mem_alloc(((size_t)s->nclasses + 1) * sizeof(int));
    s->near = mem_alloc(((size_t)s->nclasses + 1) * sizeof(int));
    s->trail = vec_alloc(cells * cv);
    s->tail = vec_alloc((size_t)(k->ndims + 1) * cv);
    s->sum = vec_alloc(cv);
    s->top = vec_alloc(cv);
    s->main = mem_alloc((cells + 1) * sizeof(double));
    s->single = mem_alloc(((size_t)s->g->n + 1) * sizeof(double));
    s->lin = vec_alloc(2 * (size_t)s->g->n);
}

struct se_sweep *se_sweep_new(const struct se_belief *b, const struct se_hyp *h,
                              const struct se_table *t)
{
    struct se_sweep *s = aligned_alloc(sizeof(vec), (sizeof(*s) + 63) / 64 * 64);
    int AUTO_FREE *order = mem_alloc(((size_t)h->gp.n + 1) * sizeof(int));

    assert(s);
    memset((void *)s, 0, sizeof(*s));
    s->b = b;
    s->h = h;
    s->t = t;
    s->g = &h->gp;
    s->lead = choose_lead(t, s->g, order);
    s->nclasses = classify(s->g, s->lead, order, &s->nv);
    s->cv = (s->nclasses + LANES - 1) / LANES;
    allocate(s);
    set_places(s, order);
    for (int i = 0; i < s->g->n; i++)
        set_sums(s, i);
    for (int p = 0; p < s->g->kern.nlin; p++)
        ((double *)s->lin2)[p] = s->g->kern.lin2[p];
    s->rows = VEC_CHOOSE(rows_avx512, rows_avx2, rows_base);
    return s;
}

struct se_sweep *se_sweep_free(struct se_sweep *s)
{
    if (!s)
        return NULL;
    free(s->of);
    free(s->factor);
    free(s->prefix);
    free(s->alpha);
    free(s->begin);
    free(s->near);
    free(s->trail);
    free(s->tail);
    free(s->sum);
    free(s->top);
    free(s->main);
    free(s->single);
    free(s->lin);
    free(s);
    return NULL;
}

void se_sweep_rows(struct se_sweep *s, const uint32_t *row, size_t n, float *mean, float *var_bound)
{
    s->rows(s, row, n, mean, var_bound);
}
