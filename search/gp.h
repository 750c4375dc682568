/*
 * A Gaussian process over layouts with a noise variance for each observation.
 *
 *     f ~ GP(0, k),  y_i = f(x_i) + e_i,  e_i ~ N(0, var_i)        C = K + diag(var) = L L^T
 *     f(x) | y ~ N(k^T C^-1 y, k(x,x) - k^T C^-1 k)                 k = k(X, x)
 *     log p(y) = -1/2 y^T C^-1 y - sum log L_ii - n/2 log 2 pi
 *     d log p / d theta = 1/2 tr((alpha alpha^T - C^-1) dC/d theta), alpha = C^-1 y
 *
 * (Rasmussen and Williams 2006, chapter 2 and section 5.4.) Y is the observation less the mean
 * function.
 *
 * Invariant: L and alpha match the points held. se_gp_append extends the factor in O(n^2),
 * se_gp_factor rebuilds it in O(n^3), se_gp_truncate forgets the last points in O(n^2). Not
 * thread-safe; se_gp_copy for another thread.
 */
#ifndef SEARCH_GP_H
#define SEARCH_GP_H

#include "search/kernel.h"

/*
 * How a run of a smaller problem (plan/fidelity.h) differs from the layout at full size: by d,
 * common to all runs of that fidelity, and by e, which is the layout's own. Both are independent of
 * f, so only two runs of one fidelity have more in common than their layouts:
 *
 *     cov += common common' + own own' [same layout]
 */
struct se_apart {
    int fidelity;       /* 0: full size, which has neither */
    double common, own; /* standard deviations */
};

/* A layout as the kernel sees it, or a run of a smaller problem: U is that problem's then. */
struct se_point {
    const uint8_t *level; /* kern.ndims of them */
    double u[SE_MAX_LIN];
    struct se_apart apart;
};

struct se_gp {
    struct se_kernel kern;
    int n, cap;
    uint8_t *level;         /* (cap, ndims) */
    double *lin;            /* (cap, nlin) */
    struct se_apart *apart; /* (cap) */
    double *y;              /* (cap) */
    double *var;            /* (cap) */
    double *l;              /* (cap, cap), column-major, lower */
    double *alpha;          /* (cap) */
    double jitter;          /* added to the diagonal to make it positive; 0 normally */
};

/* Takes ownership of the kernel's tables. */
void se_gp_init(struct se_gp *gp, struct se_kernel *owned_kern);
void se_gp_done(struct se_gp *gp);
void se_gp_copy(struct se_gp *to, const struct se_gp *from);

/* Add a point but not to the factor: se_gp_factor() must follow. */
void se_gp_add(struct se_gp *gp, const struct se_point *point, double value, double var);
void se_gp_factor(struct se_gp *gp);
/* Add a point and extend the factor. */
void se_gp_append(struct se_gp *gp, const struct se_point *point, double value, double var);
void se_gp_truncate(struct se_gp *gp, int count);
/* Recompute alpha after a change of y. */
void se_gp_resolve(struct se_gp *gp);

/* RET_VAR may be NULL: the mean alone is cheap. */
void se_gp_predict(double *ret_mean, double *ret_var, const struct se_gp *gp,
                   const struct se_point *point);
/* Covariances of POINT with all points held, into RET_COV (n). */
void se_gp_cross(double *ret_cov, const struct se_gp *gp, const struct se_point *point);
double se_gp_prior_var(const struct se_gp *gp, const struct se_point *point);
/* Posterior covariance of LEFT and RIGHT. */
double se_gp_covariance(const struct se_gp *gp, const struct se_point *left,
                        const struct se_point *right);
/* Point INDEX of those held; LEVEL is borrowed from GP. */
struct se_point se_gp_point(const struct se_gp *gp, int index);

double se_gp_evidence(const struct se_gp *gp);
/* Gradient with respect to theta into RET_GRAD; OWN_NOISE[i] says whether theta's noise is part of
 * var_i. */
void se_gp_evidence_grad(double *ret_grad, const struct se_gp *gp, const bool *own_noise);

/* Posterior of f(x_i) given all other points (the cavity of expectation propagation; leave-one-out:
 * Rasmussen and Williams, eq. 5.12, less the noise). RET_MEAN and RET_VAR have n entries. */
void se_gp_leave_one_out(double *ret_mean, double *ret_var, const struct se_gp *gp);
/*
 * Leave-one-out residuals, linear in y with weight 1 at i, and their variance from the points'
 * noise alone; n entries each:
 *
 *     RET_ERROR[i] = alpha_i / C^-1_ii
 *     RET_NOISE[i] = sum_j (C^-1_ij / C^-1_ii)^2 var_j
 */
void se_gp_residuals(double *ret_error, double *ret_noise, const struct se_gp *gp);

#endif
