/* Gaussian process regression; the formulas are in gp.h. */
#include "search/gp.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"

void se_gp_init(struct se_gp *g, struct se_kernel *owned_kern)
{
    memset(g, 0, sizeof(*g));
    g->kern = *owned_kern;
    owned_kern->m = owned_kern->g = NULL;
}

void se_gp_done(struct se_gp *g)
{
    se_kernel_done(&g->kern);
    free(g->level);
    free(g->lin);
    free(g->y);
    free(g->var);
    free(g->l);
    free(g->alpha);
    memset(g, 0, sizeof(*g));
}

static void reserve(struct se_gp *g, int cap)
{
    size_t c = (size_t)cap;

    g->level = mem_realloc(g->level, c * (size_t)g->kern.ndims + 1);
    g->lin = mem_realloc(g->lin, (c * (size_t)g->kern.nlin + 1) * sizeof(double));
    g->y = mem_realloc(g->y, c * sizeof(double));
    g->var = mem_realloc(g->var, c * sizeof(double));
    g->alpha = mem_realloc(g->alpha, c * sizeof(double));
    if (g->n > 0) {
        double *l = mem_alloc(c * c * sizeof(double));

        for (int j = 0; j < g->n; j++)
            memcpy(l + (size_t)j * c, g->l + (size_t)j * (size_t)g->cap,
                   (size_t)g->n * sizeof(double));
        free(g->l);
        g->l = l;
    } else {
        free(g->l);
        g->l = mem_alloc(c * c * sizeof(double));
    }
    g->cap = cap;
}

void se_gp_copy(struct se_gp *to, const struct se_gp *from)
{
    size_t c = (size_t)from->cap;

    *to = *from;
    se_kernel_copy(&to->kern, &from->kern);
    to->level = NULL;
    to->lin = to->y = to->var = to->l = to->alpha = NULL;
    to->n = 0;
    if (from->cap == 0)
        return;
    reserve(to, from->cap);
    to->n = from->n;
    memcpy(to->level, from->level, c * (size_t)from->kern.ndims);
    memcpy(to->lin, from->lin, c * (size_t)from->kern.nlin * sizeof(double));
    memcpy(to->y, from->y, c * sizeof(double));
    memcpy(to->var, from->var, c * sizeof(double));
    memcpy(to->alpha, from->alpha, c * sizeof(double));
    memcpy(to->l, from->l, c * c * sizeof(double));
}

static const uint8_t *level_of(const struct se_gp *g, int i)
{
    return g->level + (size_t)i * (size_t)g->kern.ndims;
}

static const double *lin_of(const struct se_gp *g, int i)
{
    return g->lin + (size_t)i * (size_t)g->kern.nlin;
}

void se_gp_add(struct se_gp *g, const struct se_point *p, double y, double var)
{
    assert(var >= 0.0 && isfinite(y));
    if (g->n == g->cap)
        reserve(g, g->cap ? 2 * g->cap : 32);
    memcpy(g->level + (size_t)g->n * (size_t)g->kern.ndims, p->level, (size_t)g->kern.ndims);
    memcpy(g->lin + (size_t)g->n * (size_t)g->kern.nlin, p->u,
           (size_t)g->kern.nlin * sizeof(double));
    g->y[g->n] = y;
    g->var[g->n] = var;
    g->n++;
}

void se_gp_resolve(struct se_gp *g)
{
    if (g->n == 0)
        return;
    memcpy(g->alpha, g->y, (size_t)g->n * sizeof(double));
    se_chol_solve(g->l, g->n, g->cap, g->alpha);
}

static void fill(struct se_gp *g)
{
    for (int j = 0; j < g->n; j++) {
        double *col = g->l + (size_t)j * (size_t)g->cap;

        for (int i = j; i < g->n; i++)
            col[i] =
                se_kernel_cov(&g->kern, level_of(g, i), lin_of(g, i), level_of(g, j), lin_of(g, j));
        col[j] += g->var[j] + g->jitter;
    }
}

/* Two measurements of one layout with hardly any noise make C singular to rounding; the smallest
 * jitter that helps is kept, a millionth of the largest variance at most by far. */
void se_gp_factor(struct se_gp *g)
{
    double top = 0.0;

    g->jitter = 0.0;
    fill(g);
    for (int i = 0; i < g->n; i++)
        top = fmax(top, g->l[(size_t)i * (size_t)g->cap + (size_t)i]);
    while (se_chol(g->l, g->n, g->cap) != 0) {
        g->jitter = g->jitter > 0.0 ? 10.0 * g->jitter : 1e-12 * top;
        assert(g->jitter < top);
        fill(g);
    }
    se_gp_resolve(g);
}

void se_gp_append(struct se_gp *g, const struct se_point *p, double y, double var)
{
    int n = g->n;
    double rest;
    double AUTO_FREE *row = mem_alloc(((size_t)n + 1) * sizeof(double));

    se_gp_add(g, p, y, var);
    for (int i = 0; i < n; i++)
        row[i] = se_kernel_cov(&g->kern, p->level, p->u, level_of(g, i), lin_of(g, i));
    rest = se_kernel_cov(&g->kern, p->level, p->u, p->level, p->u) + var + g->jitter;
    se_lower_solve(g->l, n, g->cap, row, 1);
    rest -= se_dot(row, row, n);
    if (rest <= 1e-12 * (var + 1e-12)) {
        se_gp_factor(g);
        return;
    }
    for (int i = 0; i < n; i++)
        g->l[(size_t)i * (size_t)g->cap + (size_t)n] = row[i];
    g->l[(size_t)n * (size_t)g->cap + (size_t)n] = sqrt(rest);
    se_gp_resolve(g);
}

void se_gp_truncate(struct se_gp *g, int n)
{
    assert(n <= g->n);
    g->n = n;
    se_gp_resolve(g);
}

void se_gp_cross(const struct se_gp *g, const struct se_point *p, double *cov)
{
    for (int i = 0; i < g->n; i++)
        cov[i] = se_kernel_cov(&g->kern, p->level, p->u, level_of(g, i), lin_of(g, i));
}

double se_gp_prior_var(const struct se_gp *g, const struct se_point *p)
{
    return se_kernel_cov(&g->kern, p->level, p->u, p->level, p->u);
}

void se_gp_predict(const struct se_gp *g, const struct se_point *p, double *mean, double *var)
{
    double AUTO_FREE *k = mem_alloc(((size_t)g->n + 1) * sizeof(double));

    se_gp_cross(g, p, k);
    *mean = se_dot(k, g->alpha, g->n);
    if (!var)
        return;
    se_lower_solve(g->l, g->n, g->cap, k, 1);
    *var = fmax(se_gp_prior_var(g, p) - se_dot(k, k, g->n), 0.0);
}

double se_gp_evidence(const struct se_gp *g)
{
    double s = -0.5 * se_dot(g->y, g->alpha, g->n) - g->n * SE_LOG_SQRT_2PI;

    for (int i = 0; i < g->n; i++)
        s -= log(g->l[(size_t)i * (size_t)g->cap + (size_t)i]);
    return s;
}

/* C^-1 of the points held, (n, n). */
static double *inverse(const struct se_gp *g)
{
    size_t n = (size_t)g->n;
    double *inv = mem_alloc((n * n + 1) * sizeof(double));

    for (size_t j = 0; j < n; j++)
        memcpy(inv + j * n + j, g->l + j * (size_t)g->cap + j, (n - j) * sizeof(double));
    se_chol_inverse(inv, g->n, g->n);
    return inv;
}

void se_gp_evidence_grad(const struct se_gp *g, const bool *own_noise, double *grad)
{
    size_t n = (size_t)g->n;
    double AUTO_FREE *inv = inverse(g);

    memset(grad, 0, (size_t)se_kernel_ntheta(&g->kern) * sizeof(double));
    for (int j = 0; j < g->n; j++) {
        for (int i = j; i < g->n; i++) {
            double w = g->alpha[i] * g->alpha[j] - inv[(size_t)j * n + (size_t)i];

            se_kernel_grad(&g->kern, level_of(g, i), lin_of(g, i), level_of(g, j), lin_of(g, j),
                           i == j ? 0.5 * w : w, grad);
            if (i == j && own_noise[i])
                grad[SE_TH_NOISE] += w * g->kern.noise2;
        }
    }
}

void se_gp_leave_one_out(const struct se_gp *g, double *mean, double *var)
{
    size_t n = (size_t)g->n;
    double AUTO_FREE *inv = inverse(g);

    for (size_t i = 0; i < n; i++) {
        double precision = inv[i * n + i];

        mean[i] = g->y[i] - g->alpha[i] / precision;
        var[i] = fmax(1.0 / precision - g->var[i] - g->jitter, 1e-12);
    }
}

void se_gp_residuals(const struct se_gp *g, double *err, double *noise)
{
    size_t n = (size_t)g->n;
    double AUTO_FREE *inv = inverse(g);

    for (size_t i = 0; i < n; i++) {
        err[i] = g->alpha[i] / inv[i * n + i];
        noise[i] = 0.0;
        for (size_t j = 0; j < n; j++) {
            double w = inv[i * n + j] / inv[i * n + i];

            noise[i] += w * w * g->var[j];
        }
    }
}
