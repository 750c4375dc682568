/* Covariance of two layouts from tables by level; the formulas are in kernel.h. */
#include "search/kernel.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

static size_t table_size(const struct se_kernel *kernel)
{
    return (size_t)kernel->ndims * (size_t)kernel->stride * (size_t)kernel->stride;
}

void se_kernel_init(struct se_kernel *kernel, const struct se_dim *dims, int ndims, int nlin)
{
    assert(ndims <= SE_MAX_DIMS && nlin <= SE_MAX_LIN);
    memset(kernel, 0, sizeof(*kernel));
    kernel->cluster = -1;
    for (int d = 0; d < ndims; d++) {
        if (!dims[d].active)
            continue;
        assert(dims[d].nlevels > 0 && dims[d].nlevels <= SE_MAX_LEVELS);
        kernel->nlevels[kernel->ndims] = dims[d].nlevels;
        if (kernel->stride < dims[d].nlevels + 1)
            kernel->stride = dims[d].nlevels + 1;
        kernel->categorical[kernel->ndims] = dims[d].categorical;
        if (dims[d].key == SE_KEY_CLUSTER)
            kernel->cluster = kernel->ndims;
        memcpy(kernel->pos[kernel->ndims], dims[d].pos, sizeof(dims[d].pos));
        kernel->ndims++;
    }
    kernel->nlin = nlin;
    kernel->m = mem_alloc(table_size(kernel) * sizeof(double) + 1);
    kernel->g = mem_alloc(table_size(kernel) * sizeof(double) + 1);
}

void se_kernel_done(struct se_kernel *kernel)
{
    free(kernel->m);
    free(kernel->g);
    kernel->m = kernel->g = NULL;
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

int se_kernel_ntheta(const struct se_kernel *kernel)
{
    return SE_TH_LEN + kernel->ndims;
}

/* Row LEVEL of the table of dimension DIM in TABLE (m or g). */
static double *cell(const struct se_kernel *kernel, double *table, int dim, int level)
{
    return table + ((size_t)dim * (size_t)kernel->stride + (size_t)level) * (size_t)kernel->stride;
}

const double *se_kernel_row(const struct se_kernel *kernel, int dim, int level)
{
    return cell(kernel, kernel->m, dim, level);
}

static void fill_table(struct se_kernel *kernel, int dim)
{
    double length = exp(kernel->theta[SE_TH_LEN + dim]);

    assert(length > 0.0);
    for (int i = 0; i < kernel->nlevels[dim]; i++) {
        for (int j = 0; j < kernel->nlevels[dim]; j++) {
            double r = kernel->categorical[dim] ? (i != j)
                                                : fabs(kernel->pos[dim][i] - kernel->pos[dim][j]);
            double s = sqrt(5.0) * r / length;
            double poly = 1.0 + s + s * s / 3.0;

            cell(kernel, kernel->m, dim, i)[j] = poly * exp(-s);
            cell(kernel, kernel->g, dim, i)[j] = s * s * (1.0 + s) / (3.0 * poly);
        }
    }
}

void se_kernel_set(struct se_kernel *kernel, const double *theta)
{
    memmove(kernel->theta, theta, (size_t)se_kernel_ntheta(kernel) * sizeof(double));
    kernel->noise2 = exp(2.0 * theta[SE_TH_NOISE]);
    kernel->main2 = exp(2.0 * theta[SE_TH_MAIN]);
    kernel->prod2 = exp(2.0 * theta[SE_TH_PROD]);
    assert(kernel->noise2 >= 0.0 && kernel->main2 >= 0.0 && kernel->prod2 >= 0.0); /* no NaN */
    for (int p = 0; p < kernel->nlin; p++)
        kernel->lin2[p] = p == SE_LIN_CONST   ? kernel->sd_const * kernel->sd_const
                          : p == SE_LIN_PRIOR ? kernel->sd_prior * kernel->sd_prior
                                              : exp(2.0 * theta[SE_TH_LIN]);
    for (int d = 0; d < kernel->ndims; d++)
        fill_table(kernel, d);
}

double se_kernel_cov(const struct se_kernel *kernel, const uint8_t *left, const double *ua,
                     const uint8_t *right, const double *ub)
{
    double prod = kernel->prod2, sum = 0.0;

    for (int d = 0; d < kernel->ndims; d++) {
        double m = se_kernel_row(kernel, d, left[d])[right[d]];

        sum += m;
        prod *= m;
    }
    sum = prod + kernel->main2 * sum;
    for (int p = 0; p < kernel->nlin; p++)
        sum += kernel->lin2[p] * ua[p] * ub[p];
    return sum;
}

void se_kernel_grad(const struct se_kernel *kernel, const uint8_t *left, const double *ua,
                    const uint8_t *right, const double *ub, double weight, double *grad)
{
    double prod = kernel->prod2, sum = 0.0, lin = 0.0;

    for (int d = 0; d < kernel->ndims; d++) {
        double m = se_kernel_row(kernel, d, left[d])[right[d]];

        sum += m;
        prod *= m;
    }
    for (int d = 0; d < kernel->ndims; d++) {
        double m = se_kernel_row(kernel, d, left[d])[right[d]];

        grad[SE_TH_LEN + d] +=
            weight * (kernel->main2 * m + prod) * cell(kernel, kernel->g, d, left[d])[right[d]];
    }
    for (int p = SE_LIN_SHARE; p < kernel->nlin; p++)
        lin += kernel->lin2[p] * ua[p] * ub[p];
    grad[SE_TH_MAIN] += weight * 2.0 * kernel->main2 * sum;
    grad[SE_TH_PROD] += weight * 2.0 * prod;
    grad[SE_TH_LIN] += weight * 2.0 * lin;
}
