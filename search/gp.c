/* Gaussian process regression; the formulas are in gp.h. */
#include "search/gp.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "search/num.h"

void se_gp_init(struct se_gp *gp, struct se_kernel *owned_kern)
{
    memset(gp, 0, sizeof(*gp));
    gp->kern = *owned_kern;
    owned_kern->m = owned_kern->g = NULL;
}

void se_gp_done(struct se_gp *gp)
{
    se_kernel_done(&gp->kern);
    free(gp->level);
    free(gp->lin);
    free(gp->apart);
    free(gp->y);
    free(gp->var);
    free(gp->l);
    free(gp->alpha);
    memset(gp, 0, sizeof(*gp));
}

static void reserve(struct se_gp *gp, int cap)
{
    size_t c = (size_t)cap;

    gp->level = mem_realloc(gp->level, c * (size_t)gp->kern.ndims + 1);
    gp->lin = mem_realloc(gp->lin, (c * (size_t)gp->kern.nlin + 1) * sizeof(double));
    gp->apart = mem_realloc(gp->apart, c * sizeof(*gp->apart));
    gp->y = mem_realloc(gp->y, c * sizeof(double));
    gp->var = mem_realloc(gp->var, c * sizeof(double));
    gp->alpha = mem_realloc(gp->alpha, c * sizeof(double));
    if (gp->n > 0) {
        double *l = mem_alloc(c * c * sizeof(double));

        for (int j = 0; j < gp->n; j++)
            memcpy(l + (size_t)j * c, gp->l + (size_t)j * (size_t)gp->cap,
                   (size_t)gp->n * sizeof(double));
        free(gp->l);
        gp->l = l;
    } else {
        free(gp->l);
        gp->l = mem_alloc(c * c * sizeof(double));
    }
    gp->cap = cap;
}

void se_gp_copy(struct se_gp *to, const struct se_gp *from)
{
    size_t c = (size_t)from->cap;

    *to = *from;
    se_kernel_copy(&to->kern, &from->kern);
    to->level = NULL;
    to->apart = NULL;
    to->lin = to->y = to->var = to->l = to->alpha = NULL;
    to->n = 0;
    if (from->cap == 0)
        return;
    reserve(to, from->cap);
    to->n = from->n;
    memcpy(to->level, from->level, c * (size_t)from->kern.ndims);
    memcpy(to->lin, from->lin, c * (size_t)from->kern.nlin * sizeof(double));
    memcpy(to->apart, from->apart, (size_t)from->n * sizeof(*to->apart));
    memcpy(to->y, from->y, c * sizeof(double));
    memcpy(to->var, from->var, c * sizeof(double));
    memcpy(to->alpha, from->alpha, c * sizeof(double));
    memcpy(to->l, from->l, c * c * sizeof(double));
}

static const uint8_t *level_of(const struct se_gp *gp, int index)
{
    return gp->level + (size_t)index * (size_t)gp->kern.ndims;
}

static const double *lin_of(const struct se_gp *gp, int index)
{
    return gp->lin + (size_t)index * (size_t)gp->kern.nlin;
}

/* What two runs of smaller problems have in common beyond their layouts. */
static double apart_cov(const struct se_gp *gp, const uint8_t *left, const struct se_apart *a,
                        const uint8_t *right, const struct se_apart *b)
{
    if (a->fidelity == 0 || a->fidelity != b->fidelity)
        return 0.0;
    return a->common * b->common +
           (memcmp(left, right, (size_t)gp->kern.ndims) == 0 ? a->own * b->own : 0.0);
}

static double point_cov(const struct se_gp *gp, const struct se_point *point, int index)
{
    return se_kernel_cov(&gp->kern, point->level, point->u, level_of(gp, index),
                         lin_of(gp, index)) +
           apart_cov(gp, point->level, &point->apart, level_of(gp, index), &gp->apart[index]);
}

void se_gp_add(struct se_gp *gp, const struct se_point *point, double value, double var)
{
    assert(var >= 0.0 && isfinite(value));
    if (gp->n == gp->cap)
        reserve(gp, gp->cap ? 2 * gp->cap : 32);
    memcpy(gp->level + (size_t)gp->n * (size_t)gp->kern.ndims, point->level,
           (size_t)gp->kern.ndims);
    memcpy(gp->lin + (size_t)gp->n * (size_t)gp->kern.nlin, point->u,
           (size_t)gp->kern.nlin * sizeof(double));
    gp->apart[gp->n] = point->apart;
    gp->y[gp->n] = value;
    gp->var[gp->n] = var;
    gp->n++;
}

void se_gp_resolve(struct se_gp *gp)
{
    if (gp->n == 0)
        return;
    memcpy(gp->alpha, gp->y, (size_t)gp->n * sizeof(double));
    se_chol_solve(gp->l, gp->n, gp->cap, gp->alpha);
}

static void fill(struct se_gp *gp)
{
    for (int j = 0; j < gp->n; j++) {
        double *col = gp->l + (size_t)j * (size_t)gp->cap;

        for (int i = j; i < gp->n; i++)
            col[i] = se_kernel_cov(&gp->kern, level_of(gp, i), lin_of(gp, i), level_of(gp, j),
                                   lin_of(gp, j)) +
                     apart_cov(gp, level_of(gp, i), &gp->apart[i], level_of(gp, j), &gp->apart[j]);
        col[j] += gp->var[j] + gp->jitter;
    }
}

/* Two measurements of one layout with hardly any noise make C singular to rounding; the smallest
 * jitter that helps is kept, a millionth of the largest variance at most by far. */
void se_gp_factor(struct se_gp *gp)
{
    double top = 0.0;

    gp->jitter = 0.0;
    fill(gp);
    for (int i = 0; i < gp->n; i++)
        top = fmax(top, gp->l[(size_t)i * (size_t)gp->cap + (size_t)i]);
    while (se_chol(gp->l, gp->n, gp->cap) != 0) {
        gp->jitter = gp->jitter > 0.0 ? 10.0 * gp->jitter : 1e-12 * top;
        assert(gp->jitter < top);
        fill(gp);
    }
    se_gp_resolve(gp);
}

void se_gp_append(struct se_gp *gp, const struct se_point *point, double value, double var)
{
    int n = gp->n;
    double rest;
    double AUTO_FREE *row = mem_alloc(((size_t)n + 1) * sizeof(double));

    se_gp_add(gp, point, value, var);
    for (int i = 0; i < n; i++)
        row[i] = point_cov(gp, point, i);
    rest = se_gp_prior_var(gp, point) + var + gp->jitter;
    se_lower_solve(gp->l, n, gp->cap, row, 1);
    rest -= se_dot(row, row, n);
    if (rest <= 1e-12 * (var + 1e-12)) {
        se_gp_factor(gp);
        return;
    }
    for (int i = 0; i < n; i++)
        gp->l[(size_t)i * (size_t)gp->cap + (size_t)n] = row[i];
    gp->l[(size_t)n * (size_t)gp->cap + (size_t)n] = sqrt(rest);
    se_gp_resolve(gp);
}

void se_gp_truncate(struct se_gp *gp, int count)
{
    assert(count >= 0 && count <= gp->n);
    gp->n = count;
    se_gp_resolve(gp);
}

void se_gp_cross(double *ret_cov, const struct se_gp *gp, const struct se_point *point)
{
    for (int i = 0; i < gp->n; i++)
        ret_cov[i] = point_cov(gp, point, i);
}

double se_gp_prior_var(const struct se_gp *gp, const struct se_point *point)
{
    return se_kernel_cov(&gp->kern, point->level, point->u, point->level, point->u) +
           apart_cov(gp, point->level, &point->apart, point->level, &point->apart);
}

double se_gp_covariance(const struct se_gp *gp, const struct se_point *left,
                        const struct se_point *right)
{
    size_t n = (size_t)gp->n;
    double AUTO_FREE *v = mem_alloc((2 * n + 1) * sizeof(double));

    se_gp_cross(v, gp, left);
    se_gp_cross(v + n, gp, right);
    se_lower_solve(gp->l, gp->n, gp->cap, v, 2);
    return se_kernel_cov(&gp->kern, left->level, left->u, right->level, right->u) +
           apart_cov(gp, left->level, &left->apart, right->level, &right->apart) -
           se_dot(v, v + n, gp->n);
}

struct se_point se_gp_point(const struct se_gp *gp, int index)
{
    struct se_point p = {.level = level_of(gp, index), .apart = gp->apart[index]};

    memcpy(p.u, lin_of(gp, index), (size_t)gp->kern.nlin * sizeof(double));
    return p;
}

void se_gp_predict(double *ret_mean, double *ret_var, const struct se_gp *gp,
                   const struct se_point *point)
{
    double AUTO_FREE *k = mem_alloc(((size_t)gp->n + 1) * sizeof(double));

    se_gp_cross(k, gp, point);
    *ret_mean = se_dot(k, gp->alpha, gp->n);
    if (!ret_var)
        return;
    se_lower_solve(gp->l, gp->n, gp->cap, k, 1);
    *ret_var = fmax(se_gp_prior_var(gp, point) - se_dot(k, k, gp->n), 0.0);
}

double se_gp_evidence(const struct se_gp *gp)
{
    double s = -0.5 * se_dot(gp->y, gp->alpha, gp->n) - gp->n * SE_LOG_SQRT_2PI;

    for (int i = 0; i < gp->n; i++) {
        double root = gp->l[(size_t)i * (size_t)gp->cap + (size_t)i];

        assert(root > 0.0); /* a factor's diagonal */
        s -= log(root);
    }
    return s;
}

/* C^-1 of the points held, (n, n). */
static double *inverse(const struct se_gp *gp)
{
    size_t n = (size_t)gp->n;
    double *inv = mem_alloc((n * n + 1) * sizeof(double));

    for (size_t j = 0; j < n; j++)
        memcpy(inv + j * n + j, gp->l + j * (size_t)gp->cap + j, (n - j) * sizeof(double));
    se_chol_inverse(inv, gp->n, gp->n);
    return inv;
}

void se_gp_evidence_grad(double *ret_grad, const struct se_gp *gp, const bool *own_noise)
{
    size_t n = (size_t)gp->n;
    double AUTO_FREE *inv = inverse(gp);

    memset(ret_grad, 0, (size_t)se_kernel_ntheta(&gp->kern) * sizeof(double));
    for (int j = 0; j < gp->n; j++) {
        for (int i = j; i < gp->n; i++) {
            double w = gp->alpha[i] * gp->alpha[j] - inv[(size_t)j * n + (size_t)i];

            se_kernel_grad(&gp->kern, level_of(gp, i), lin_of(gp, i), level_of(gp, j),
                           lin_of(gp, j), i == j ? 0.5 * w : w, ret_grad);
            if (i == j && own_noise[i])
                ret_grad[SE_TH_NOISE] += w * gp->kern.noise2;
        }
    }
}

void se_gp_leave_one_out(double *ret_mean, double *ret_var, const struct se_gp *gp)
{
    size_t n = (size_t)gp->n;
    double AUTO_FREE *inv = inverse(gp);

    for (size_t i = 0; i < n; i++) {
        double precision = inv[i * n + i];

        assert(precision > 0.0);
        ret_mean[i] = gp->y[i] - gp->alpha[i] / precision;
        ret_var[i] = fmax(1.0 / precision - gp->var[i] - gp->jitter, 1e-12);
    }
}

void se_gp_residuals(double *ret_error, double *ret_noise, const struct se_gp *gp)
{
    size_t n = (size_t)gp->n;
    double AUTO_FREE *inv = inverse(gp);

    for (size_t i = 0; i < n; i++) {
        assert(inv[i * n + i] > 0.0);
        ret_error[i] = gp->alpha[i] / inv[i * n + i];
        ret_noise[i] = 0.0;
        for (size_t j = 0; j < n; j++) {
            double w = inv[i * n + j] / inv[i * n + i];

            ret_noise[i] += w * w * gp->var[j];
        }
    }
}
