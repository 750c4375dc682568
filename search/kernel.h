/*
 * The covariance of two layouts.
 *
 *     k(x, x') = sum_p w_p^2 u_p u'_p               linear: constant, prior, shares of cost classes
 *              + a_1^2 sum_d  m_d(x_d, x'_d)        main effect of each key
 *              + a_2^2 prod_d m_d(x_d, x'_d)        all interactions
 *
 *     m_d(x, x') = (1 + s + s^2/3) exp(-s)          Matern 5/2, s = sqrt(5) |x - x'| / l_d
 *
 * The position of a number is its log2; the values of a category are all at distance 1
 * (exchangeable). Every key has few values, so m_d is a table by level: a covariance costs D
 * products. The tensor product of one-dimensional Matern kernels with a length each is the ARD form
 * of Roustant et al. 2012 (DiceKriging); the additive part is Duvenaud et al. 2011 to first order.
 *
 * The level after the last of each key is a null level: its m_d with every level, and itself, is 0.
 * A point there has the linear part only.
 *
 * Hyper-parameters are logarithms, in the order of enum se_theta.
 */
#ifndef SEARCH_KERNEL_H
#define SEARCH_KERNEL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

/* The values of a key that a space names, and its standard, which layouts have in which it does
 * nothing. A level, and the one after the last, which stands for what no layout has, is a byte. */
enum { SE_MAX_DIMS = PL_LAYOUT_KEYS + 1, SE_MAX_LEVELS = PL_SPACE_VALUES + 1, SE_MAX_LIN = 16 };
static_assert(SE_MAX_LEVELS <= UINT8_MAX, "levels are bytes");

/* The key that is no layout key: `cluster` of a layout. */
enum { SE_KEY_CLUSTER = PL_LAYOUT_KEYS };

static inline int se_key_get(const struct pl_layout *layout, int key)
{
    return key == SE_KEY_CLUSTER ? layout->cluster : pl_layout_get(layout, &pl_layout_keys[key]);
}

static inline void se_key_set(struct pl_layout *layout, int key, int value)
{
    if (key == SE_KEY_CLUSTER)
        layout->cluster = value;
    else
        pl_layout_set(layout, &pl_layout_keys[key], value);
}

struct se_dim {
    const char *name;
    int key; /* row of pl_layout_keys, or SE_KEY_CLUSTER */
    bool categorical;
    bool active; /* in the kernel; others are functions of one that is */
    int nlevels;
    int value[SE_MAX_LEVELS];
    double pos[SE_MAX_LEVELS];
};

enum se_theta {
    SE_TH_NOISE, /* standard deviation beyond a trial's own error */
    SE_TH_MAIN,  /* a_1 */
    SE_TH_PROD,  /* a_2 */
    SE_TH_LIN,   /* w_p of the shares */
    SE_TH_LEN,   /* l_0 ... */
    SE_MAX_THETA = SE_TH_LEN + SE_MAX_DIMS,
};

/* Linear features: the first two have a fixed weight, the others exp(theta[SE_TH_LIN]). */
enum { SE_LIN_CONST, SE_LIN_PRIOR, SE_LIN_SHARE };

struct se_kernel {
    int ndims; /* active dims */
    int nlin;
    int nlevels[SE_MAX_DIMS];
    int stride; /* of a table row: the most levels of a dim, plus 1 */
    double pos[SE_MAX_DIMS][SE_MAX_LEVELS];
    bool categorical[SE_MAX_DIMS];
    int cluster;               /* the dim of SE_KEY_CLUSTER, or -1 */
    double sd_const, sd_prior; /* fixed weights of the first two linear features */

    double theta[SE_MAX_THETA];
    /* From theta, by se_kernel_set: */
    double noise2, main2, prod2; /* sigma^2, a_1^2, a_2^2 */
    double lin2[SE_MAX_LIN];     /* w_p^2 */
    double *m;                   /* (ndims, stride, stride): m_d */
    double *g;                   /* the same: d log m_d / d log l_d */
};

/* The kernel has the active ones of DIMS. It owns its tables: se_kernel_done(). */
void se_kernel_init(struct se_kernel *kernel, const struct se_dim *dims, int ndims, int nlin);
void se_kernel_done(struct se_kernel *kernel);
void se_kernel_copy(struct se_kernel *to, const struct se_kernel *from);
void se_kernel_set(struct se_kernel *kernel, const double *theta);
int se_kernel_ntheta(const struct se_kernel *kernel);

/* Table row of m_d at LEVEL: nlevels[dim] values. */
const double *se_kernel_row(const struct se_kernel *kernel, int dim, int level);

double se_kernel_cov(const struct se_kernel *kernel, const uint8_t *left, const double *ua,
                     const uint8_t *right, const double *ub);

/* Add weight * dk(left, right) / dtheta to GRAD, except for the noise. */
void se_kernel_grad(const struct se_kernel *kernel, const uint8_t *left, const double *ua,
                    const uint8_t *right, const double *ub, double weight, double *grad);

#endif
