/* Covariance of two layouts from tables by level; the formulas are in kernel.h. */
#include "search/kernel.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

static size_t table_size(const struct se_kernel *k)
{
    return (size_t)k->ndims * (size_t)k->stride * (size_t)k->stride;
}

void se_kernel_init(struct se_kernel *k, const struct se_dim *dims, int ndims, int nlin)
{
    assert(ndims <= SE_MAX_DIMS && nlin <= SE_MAX_LIN);
    memset(k, 0, sizeof(*k));
    for (int d = 0; d < ndims; d++) {
        if (!dims[d].active)
            continue;
        k->nlevels[k->ndims] = dims[d].nlevels;
        if (k->stride < dims[d].nlevels + 1)
            k->stride = dims[d].nlevels + 1;
        k->categorical[k->ndims] = dims[d].categorical;
        memcpy(k->pos[k->ndims], dims[d].pos, sizeof(dims[d].pos));
        k->ndims++;
    }
    k->nlin = nlin;
    k->m = mem_alloc(table_size(k) * sizeof(double) + 1);
    k->g = mem_alloc(table_size(k) * sizeof(double) + 1);
}

void se_kernel_done(struct se_kernel *k)
{
    free(k->m);
    free(k->g);
    k->m = k->g = NULL;
}

void se_kernel_copy(struct se_kernel *to, const struct se_kernel *from)
{
    size_t bytes = table_size(from) * sizeof(double);

    *to = *from;
    to->m = mem_alloc(bytes + 1);
    to->g = mem_alloc(bytes + 1);
    memcpy(to->m, from->m, bytes);
    memcpy(to->g, from->g, bytes);
}

int se_kernel_ntheta(const struct se_kernel *k)
{
    return SE_TH_LEN + k->ndims;
}

/* Row V of the table of dimension D in TABLE (m or g). */
static double *cell(const struct se_kernel *k, double *table, int d, int v)
{
    return table + ((size_t)d * (size_t)k->stride + (size_t)v) * (size_t)k->stride;
}

const double *se_kernel_row(const struct se_kernel *k, int d, int v)
{
    return cell(k, k->m, d, v);
}

static void fill_table(struct se_kernel *k, int d)
{
    double length = exp(k->theta[SE_TH_LEN + d]);

    for (int i = 0; i < k->nlevels[d]; i++) {
        for (int j = 0; j < k->nlevels[d]; j++) {
            double r = k->categorical[d] ? (i != j) : fabs(k->pos[d][i] - k->pos[d][j]);
            double s = sqrt(5.0) * r / length;
            double poly = 1.0 + s + s * s / 3.0;

            cell(k, k->m, d, i)[j] = poly * exp(-s);
            cell(k, k->g, d, i)[j] = s * s * (1.0 + s) / (3.0 * poly);
        }
    }
}

void se_kernel_set(struct se_kernel *k, const double *theta)
{
    memmove(k->theta, theta, (size_t)se_kernel_ntheta(k) * sizeof(double));
    k->noise2 = exp(2.0 * theta[SE_TH_NOISE]);
    k->main2 = exp(2.0 * theta[SE_TH_MAIN]);
    k->prod2 = exp(2.0 * theta[SE_TH_PROD]);
    for (int p = 0; p < k->nlin; p++)
        k->lin2[p] = p == SE_LIN_CONST   ? k->sd_const * k->sd_const
                     : p == SE_LIN_PRIOR ? k->sd_prior * k->sd_prior
                                         : exp(2.0 * theta[SE_TH_LIN]);
    for (int d = 0; d < k->ndims; d++)
        fill_table(k, d);
}

double se_kernel_cov(const struct se_kernel *k, const uint8_t *a, const double *ua,
                     const uint8_t *b, const double *ub)
{
    double prod = k->prod2, sum = 0.0;

    for (int d = 0; d < k->ndims; d++) {
        double m = se_kernel_row(k, d, a[d])[b[d]];

        sum += m;
        prod *= m;
    }
    sum = prod + k->main2 * sum;
    for (int p = 0; p < k->nlin; p++)
        sum += k->lin2[p] * ua[p] * ub[p];
    return sum;
}

void se_kernel_grad(const struct se_kernel *k, const uint8_t *a, const double *ua, const uint8_t *b,
                    const double *ub, double weight, double *grad)
{
    double prod = k->prod2, sum = 0.0, lin = 0.0;

    for (int d = 0; d < k->ndims; d++) {
        double m = se_kernel_row(k, d, a[d])[b[d]];

        sum += m;
        prod *= m;
    }
    for (int d = 0; d < k->ndims; d++) {
        double m = se_kernel_row(k, d, a[d])[b[d]];

        grad[SE_TH_LEN + d] += weight * (k->main2 * m + prod) * cell(k, k->g, d, a[d])[b[d]];
    }
    for (int p = SE_LIN_SHARE; p < k->nlin; p++)
        lin += k->lin2[p] * ua[p] * ub[p];
    grad[SE_TH_MAIN] += weight * 2.0 * k->main2 * sum;
    grad[SE_TH_PROD] += weight * 2.0 * prod;
    grad[SE_TH_LIN] += weight * 2.0 * lin;
}
