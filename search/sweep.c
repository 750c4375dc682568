/* Posteriors of many layouts by two-step contraction; the formulas are in sweep.h. */
#include "search/sweep.h"

#include <math.h>

#include "base/base.h"
#include "search/subset.h"
#include "search/vec.h"

enum { MAX_BLOCKS = SE_MAX_SUBSET / LANES };

struct se_sweep {
    const struct se_belief *b;
    const struct se_hyp *h;
    const struct se_table *t;
    const struct se_gp *g;
    const uint32_t *row;
    size_t n;
    int lead; /* leading keys */

    /* Observations in the order of their classes, each class padded to whole vectors by ones whose
     * covariance with everything is zero. */
    int nv;      /* vectors */
    vec *factor; /* (lead, stride, nv): m_d(level, x_id) */
    vec *prefix; /* (lead + 1, nv): a_2^2 times the leading factors */
    vec *alpha;  /* (nv) */

    int nclasses, cv; /* classes, and vectors that they take */
    int *begin;       /* (nclasses + 1): vectors of each class */
    vec *trail;       /* (ndims, stride, cv): m_d(level, c_d) of trailing keys */
    vec *tail;        /* (ndims + 1, cv): the trailing factors */
    vec *sum;         /* (cv): S_c */

    double *main;     /* (ndims, stride): M_d */
    double *main_sum; /* (ndims + 1): of the keys before */
    vec w[2], lin2[2];

    struct se_subset subset;
    int blocks;           /* vectors that its members take */
    vec *near;            /* (ndims, stride, blocks): m_d(level, x_jd) of the subset's members */
    vec *product, *total; /* (ndims + 1, blocks): a_2^2 times the factors, and their sum */
    int nfeatures;        /* linear features that any member has */
    int feature[SE_MAX_LIN];
    vec *near_lin; /* (nfeatures, blocks): w_p^2 u_jp */
    vec *inverse;  /* (blocks, LANES blocks): columns of L_SS^-1 by blocks of rows */

    void (*run)(struct se_sweep *s, float *mean, float *var_bound);
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

    for (int p = 0; p < k->nlin; p++)
        ((double *)s->w)[p] += k->lin2[p] * u[p] * s->g->alpha[i];
    for (int d = 0; d < k->ndims; d++)
        for (int v = 0; v < k->nlevels[d]; v++)
            s->main[table_at(k, d, v)] +=
                k->main2 * se_kernel_row(k, d, v)[level[d]] * s->g->alpha[i];
}

/* What the members of the subset have in common with each level. */
static void set_subset(struct se_sweep *s)
{
    const struct se_kernel *k = &s->g->kern;
    size_t blocks = (size_t)s->blocks;

    for (int j = 0; j < s->subset.n; j++) {
        int i = s->subset.member[j];
        const double *u = s->g->lin + (size_t)i * (size_t)k->nlin;
        double *inverse = (double *)(s->inverse + (size_t)(j / LANES) * blocks * LANES);

        ((double *)s->product)[j] = k->prod2;
        for (int d = 0; d < k->ndims; d++)
            for (int v = 0; v < k->nlevels[d]; v++)
                ((double *)(s->near + table_at(k, d, v) * blocks))[j] =
                    se_kernel_row(k, d, v)[level_of(s->g, i)[d]];
        for (int f = 0; f < s->nfeatures; f++)
            ((double *)(s->near_lin + (size_t)f * blocks))[j] =
                k->lin2[s->feature[f]] * u[s->feature[f]];
        for (int c = 0; c <= j; c++)
            inverse[c * LANES + j % LANES] = s->subset.inverse[j][c];
    }
}

/* ---- the pass -----------------------------------------------------------------------------------
 */

/* S_c of each class, for a group whose leading keys are those of LEVEL and
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
        vec sum = {0};

        for (int j = s->begin[c]; j < s->begin[c + 1]; j++)
            sum += last[j] * s->alpha[j];
        ((double *)s->sum)[c] = vec_sum(&sum);
    }
}

/* Carry the products and sums of a row on to LEVEL, which differs from the row before from key FROM
 * on; those of the mean, if MEANS. One loop for all, as its length is hard to predict. */
static VEC_INLINE void advance(struct se_sweep *s, const uint8_t *level, int from, int blocks,
                               bool means)
{
    const struct se_kernel *k = &s->g->kern;
    size_t cv = (size_t)s->cv;

    if (means && from < s->lead)
        enter_group(s, level, from);
    for (int d = from; d < k->ndims; d++) {
        size_t at = table_at(k, d, level[d]);
        const vec *f = s->near + at * (size_t)blocks;
        vec *p = s->product + d * blocks, *t = s->total + d * blocks;

        for (int j = 0; j < blocks; j++) {
            p[blocks + j] = p[j] * f[j];
            t[blocks + j] = t[j] + f[j];
        }
        if (means)
            s->main_sum[d + 1] = s->main_sum[d] + s->main[at];
        if (means && d >= s->lead) {
            f = s->trail + at * cv;
            p = s->tail + (size_t)d * cv;
            for (size_t j = 0; j < cv; j++)
                p[cv + j] = p[j] * f[j];
        }
    }
}

/* The mean of row I less its linear part. */
static VEC_INLINE double mean_of(const struct se_sweep *s, size_t i)
{
    int ndims = s->g->kern.ndims;
    const vec *last = s->tail + ndims * s->cv;
    vec sum = {0};

    for (int j = 0; j < s->cv; j++)
        sum += last[j] * s->sum[j];
    return se_hyp_mean(s->b, s->h, s->t, i) + s->main_sum[ndims] + vec_sum(&sum);
}

/* How much of the variance of a row with linear features U the subset explains. */
static VEC_INLINE double explained(const struct se_sweep *s, const float *u, int blocks)
{
    const struct se_kernel *k = &s->g->kern;
    const vec *product = s->product + k->ndims * blocks, *total = s->total + k->ndims * blocks;
    vec cov[MAX_BLOCKS], all = {0};

    for (int j = 0; j < blocks; j++)
        cov[j] = product[j] + k->main2 * total[j];
    for (int f = 0; f < s->nfeatures; f++)
        for (int j = 0; j < blocks; j++)
            cov[j] += s->near_lin[f * blocks + j] * (double)u[s->feature[f]];
    for (int j = 0; j < blocks; j++) {
        vec v;

        vec_combine(&v, s->inverse + j * blocks * LANES, (const double *)cov, (j + 1) * LANES);
        all += v * v;
    }
    return vec_sum(&all);
}

static VEC_INLINE void one_row(struct se_sweep *s, size_t i, int from, int blocks, float *mean,
                               float *var_bound)
{
    double better = s->b->quantity == SE_MEMORY ? -ULP : ULP;
    const struct se_kernel *k = &s->g->kern;
    const float *lin = se_table_lin(s->t, s->b->quantity, i);
    vec u[2], first, second;
    double m, v;

    vec_widen(&u[0], lin);
    vec_widen(&u[1], lin + LANES);
    advance(s, se_table_row(s->t, i), from, blocks, mean != NULL);
    if (mean) {
        first = u[0] * s->w[0] + u[1] * s->w[1];
        m = mean_of(s, i) + vec_sum(&first);
        *mean = (float)(m + better * fabs(m));
    }
    second = u[0] * u[0] * s->lin2[0] + u[1] * u[1] * s->lin2[1];
    v = k->prod2 + k->main2 * k->ndims + vec_sum(&second) - explained(s, lin, blocks);
    *var_bound = (float)((v > 0.0 ? v : 0.0) * (1.0 + ULP));
}

/* First key in which row I differs from row LAST, if there was one. */
static VEC_INLINE int first_change(const struct se_sweep *s, size_t last, size_t i)
{
    int d = 0;

    while (last != SIZE_MAX && d < s->g->kern.ndims &&
           se_table_row(s->t, i)[d] == se_table_row(s->t, last)[d])
        d++;
    return d;
}

static VEC_INLINE void run(struct se_sweep *s, float *mean, float *var_bound)
{
    size_t last = SIZE_MAX; /* the row before */

    if (s->lead == 0)
        enter_group(s, NULL, 0);
    for (size_t r = 0; r < s->n; r++) {
        size_t i = s->row ? s->row[r] : r;
        int from = last == i - 1 ? s->t->first[i] : first_change(s, last, i);

        if (s->blocks == 2) /* most rows by far: known to the compiler */
            one_row(s, i, from, 2, mean ? mean + r : NULL, var_bound + r);
        else
            one_row(s, i, from, s->blocks, mean ? mean + r : NULL, var_bound + r);
        last = i;
    }
}

static void run_base(struct se_sweep *s, float *mean, float *var)
{
    run(s, mean, var);
}

VEC_AVX2 static void run_avx2(struct se_sweep *s, float *mean, float *var)
{
    run(s, mean, var);
}

VEC_AVX512 static void run_avx512(struct se_sweep *s, float *mean, float *var)
{
    run(s, mean, var);
}

/* ---- public -------------------------------------------------------------------------------------
 */

/* Features that all members lack explain nothing: a dense model has no exchange of experts. */
static void find_features(struct se_sweep *s)
{
    const struct se_gp *g = s->g;

    for (int p = 0; p < g->kern.nlin; p++) {
        bool any = false;

        for (int j = 0; j < s->subset.n && !any; j++)
            any = g->lin[(size_t)s->subset.member[j] * (size_t)g->kern.nlin + (size_t)p] != 0.0;
        if (any)
            s->feature[s->nfeatures++] = p;
    }
}

static void allocate(struct se_sweep *s)
{
    const struct se_kernel *k = &s->g->kern;
    size_t cells = (size_t)k->ndims * (size_t)k->stride, nv = (size_t)s->nv, cv = (size_t)s->cv;
    size_t blocks = (size_t)s->blocks;

    s->factor = vec_alloc(cells * nv);
    s->prefix = vec_alloc((size_t)(s->lead + 1) * nv);
    s->alpha = vec_alloc(nv);
    s->begin = mem_alloc(((size_t)s->nclasses + 1) * sizeof(int));
    s->trail = vec_alloc(cells * cv);
    s->tail = vec_alloc((size_t)(k->ndims + 1) * cv);
    s->sum = vec_alloc(cv);
    s->main = mem_alloc((cells + 1) * sizeof(double));
    s->main_sum = mem_alloc(((size_t)k->ndims + 1) * sizeof(double));
    s->near = vec_alloc(cells * blocks);
    s->product = vec_alloc((size_t)(k->ndims + 1) * blocks);
    s->total = vec_alloc((size_t)(k->ndims + 1) * blocks);
    s->near_lin = vec_alloc((size_t)s->nfeatures * blocks);
    s->inverse = vec_alloc(blocks * blocks * LANES);
}

struct se_sweep *se_sweep_new(const struct se_belief *b, const struct se_hyp *h,
                              const struct se_table *t, const uint32_t *row, size_t n, int members)
{
    struct se_sweep *s = aligned_alloc(sizeof(vec), (sizeof(*s) + 63) / 64 * 64);
    int AUTO_FREE *order = mem_alloc(((size_t)h->gp.n + 1) * sizeof(int));

    assert(s);
    memset((void *)s, 0, sizeof(*s));
    s->b = b;
    s->h = h;
    s->t = t;
    s->g = &h->gp;
    s->row = row;
    s->n = n;
    s->lead = choose_lead(t, s->g, order);
    s->nclasses = classify(s->g, s->lead, order, &s->nv);
    s->cv = (s->nclasses + LANES - 1) / LANES;
    se_subset_choose(&s->subset, members, s->g, t, b->quantity, row, n);
    s->blocks = (s->subset.n + LANES - 1) / LANES;
    find_features(s);
    allocate(s);
    set_places(s, order);
    for (int i = 0; i < s->g->n; i++)
        set_sums(s, i);
    set_subset(s);
    for (int p = 0; p < s->g->kern.nlin; p++)
        ((double *)s->lin2)[p] = s->g->kern.lin2[p];
    s->run = VEC_CHOOSE(run_avx512, run_avx2, run_base);
    return s;
}

struct se_sweep *se_sweep_free(struct se_sweep *s)
{
    if (!s)
        return NULL;
    free(s->factor);
    free(s->prefix);
    free(s->alpha);
    free(s->begin);
    free(s->near);
    free(s->trail);
    free(s->tail);
    free(s->sum);
    free(s->main);
    free(s->main_sum);
    free(s->product);
    free(s->total);
    free(s->near_lin);
    free(s->inverse);
    free(s);
    return NULL;
}

void se_sweep_run(struct se_sweep *s, float *mean, float *var_bound)
{
    s->run(s, mean, var_bound);
}
