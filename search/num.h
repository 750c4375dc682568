/*
 * Numerics: the normal distribution, accurate in the tails, and wrappers of a few LAPACK calls.
 *
 * Matrices are column-major with leading dimension LD, as in LAPACK; only the lower
 * triangle of a symmetric one is read. OpenBLAS is told to use one thread (se_num_setup), so that
 * results do not depend on the number of cores.
 */
#ifndef SEARCH_NUM_H
#define SEARCH_NUM_H

#define SE_LOG_SQRT_2PI 0.91893853320467274178
/* The upper quartile of the standard normal distribution, the median of its absolute value. */
#define SE_UPPER_QUARTILE 0.67448975019608174

void se_num_setup(void);

double se_norm_cdf(double z);
double se_norm_logcdf(double z);
double se_norm_ratio(double z); /* pdf(z) / cdf(z), also where both underflow */
double se_norm_quantile(double prob);
/* The PROB quantile, 0 < PROB < 1, of a mixture of COUNT normals; the weights add up to 1. */
double se_mixture_quantile(const double *weight, const double *mean, const double *sd, int count,
                           double prob);

/* log(pdf(z) + z cdf(z)): log of expected improvement over sigma (Ament et al. 2023, "Unexpected
 * improvements to expected improvement", eq. 9). */
double se_log_ei(double z);

/* Factor A = L L^T in place; 0, or the order of the leading minor that is not positive. */
int se_chol(double *a, int n, int ld);
void se_chol_solve(const double *l, int n, int ld, double *b); /* b := A^-1 b */
/* b := L^-1 b, (n, nrhs) with ld n */
void se_lower_solve(const double *l, int n, int ld, double *b, int nrhs);
void se_chol_inverse(double *l, int n, int ld); /* factor in, A^-1 out, both halves */

/* Eigenvalues of the symmetric A (n x n), ascending, into RET_LAMBDA; its columns become the
 * eigenvectors. */
void se_eigen(double *ret_lambda, double *a, int n);

/* The upper median of COUNT > 0 values, which RET_SORTED holds in order afterwards. */
double se_upper_median(double *ret_sorted, int count);

double se_dot(const double *a, const double *b, int n);

#endif
