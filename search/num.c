/* The normal distribution in the tails, and LAPACK. */
#include "search/num.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

/* Fortran interfaces of BLAS and LAPACK, and OpenBLAS's own switch, NULL with another LAPACK. */
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info);
void dpotri_(const char *uplo, const int *n, double *a, const int *lda, int *info);
void dtrsm_(const char *side, const char *uplo, const char *trans, const char *diag, const int *m,
            const int *n, const double *alpha, const double *a, const int *lda, double *b,
            const int *ldb);
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w,
            double *work, const int *lwork, int *info);
__attribute__((weak)) void openblas_set_num_threads(int threads);

void se_num_setup(void)
{
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
}

static double norm_pdf(double z)
{
    return exp(-0.5 * z * z - SE_LOG_SQRT_2PI);
}

double se_norm_cdf(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

double se_mixture_quantile(const double *weight, const double *mean, const double *sd, int count,
                           double prob)
{
    double z = se_norm_quantile(prob), lo = INFINITY, hi = -INFINITY;

    /* It lies between the quantiles of the components. */
    for (int i = 0; i < count; i++) {
        lo = fmin(lo, mean[i] + z * sd[i]);
        hi = fmax(hi, mean[i] + z * sd[i]);
    }
    for (;;) {
        double mid = 0.5 * (lo + hi), below = 0.0;

        if (!(mid > lo && mid < hi))
            return mid;
        for (int i = 0; i < count; i++)
            below += weight[i] * se_norm_cdf((mid - mean[i]) / sd[i]);
        *(below < prob ? &lo : &hi) = mid;
    }
}

/* exp(x^2) erfc(x), x >= 0 */
static double erfcx(double x)
{
    double r = 1.0 / (x * x);

    assert(x >= 0.0);
    /* Below 20 neither factor leaves the range of a double; above, five terms of the asymptotic
     * series are exact to 1e-13. */
    if (x < 20.0)
        return exp(x * x) * erfc(x);
    return 1.0 / (x * sqrt(M_PI)) *
           (1.0 - 0.5 * r * (1.0 - 1.5 * r * (1.0 - 2.5 * r * (1.0 - 3.5 * r))));
}

double se_norm_logcdf(double z)
{
    if (z > -5.0)
        return log(se_norm_cdf(z));
    return log(0.5 * erfcx(-z * M_SQRT1_2)) - 0.5 * z * z;
}

double se_norm_ratio(double z)
{
    if (z > -5.0)
        return norm_pdf(z) / se_norm_cdf(z);
    return exp(-SE_LOG_SQRT_2PI) / (0.5 * erfcx(-z * M_SQRT1_2));
}

/* Acklam's start (relative error 1e-9 after one step of Halley's method). */
double se_norm_quantile(double prob)
{
    double z, e, u;

    assert(prob > 0.0 && prob < 1.0);
    z = prob < 0.5 ? -sqrt(-2.0 * log(prob)) : sqrt(-2.0 * log(1.0 - prob));
    z -= z * 0.2 / (1.0 + 0.2 * fabs(z));
    for (int i = 0; i < 60; i++) {
        e = se_norm_cdf(z) - prob;
        u = e / fmax(norm_pdf(z), 1e-300);
        u /= 1.0 + fmin(fmax(0.5 * z * u, -0.9), 10.0);
        z -= fmin(fmax(u, -1.0), 1.0);
        if (fabs(u) < 1e-12)
            break;
    }
    return z;
}

double se_log_ei(double z)
{
    double t;

    if (z > -1.0)
        return log(norm_pdf(z) + z * se_norm_cdf(z));
    if (z < -1e4) /* 1 - |z| sqrt(pi/2) erfcx(|z|/sqrt 2) -> 1/z^2 */
        return -0.5 * z * z - SE_LOG_SQRT_2PI - 2.0 * log(-z);
    t = -z * sqrt(M_PI_2) * erfcx(-z * M_SQRT1_2);
    return -0.5 * z * z - SE_LOG_SQRT_2PI + log1p(-t);
}

int se_chol(double *a, int n, int ld)
{
    int info = 0;

    assert(n <= ld);
    if (n > 0)
        dpotrf_("L", &n, a, &ld, &info);
    assert(info >= 0);
    return info;
}

void se_lower_solve(const double *l, int n, int ld, double *b, int nrhs)
{
    double one = 1.0;

    assert(n <= ld);
    if (n > 0 && nrhs > 0)
        dtrsm_("L", "L", "N", "N", &n, &nrhs, &one, l, &ld, b, &n);
}

void se_chol_solve(const double *l, int n, int ld, double *b)
{
    double one = 1.0;
    int nrhs = 1;

    if (n == 0)
        return;
    dtrsm_("L", "L", "N", "N", &n, &nrhs, &one, l, &ld, b, &n);
    dtrsm_("L", "L", "T", "N", &n, &nrhs, &one, l, &ld, b, &n);
}

void se_chol_inverse(double *l, int n, int ld)
{
    int info = 0;

    if (n == 0)
        return;
    dpotri_("L", &n, l, &ld, &info);
    assert(info == 0);
    for (int j = 0; j < n; j++)
        for (int i = j + 1; i < n; i++)
            l[(size_t)i * (size_t)ld + (size_t)j] = l[(size_t)j * (size_t)ld + (size_t)i];
}

void se_eigen(double *ret_lambda, double *a, int n)
{
    int info = 0, size = 64 * n;
    double AUTO_FREE *work = mem_alloc(((size_t)size + 1) * sizeof(double));

    if (n > 0)
        dsyev_("V", "L", &n, a, &n, ret_lambda, work, &size, &info);
    assert(info == 0);
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

double se_upper_median(double *ret_sorted, int count)
{
    assert(count > 0);
    qsort(ret_sorted, (size_t)count, sizeof(double), by_value);
    return ret_sorted[count / 2];
}

double se_dot(const double *a, const double *b, int n)
{
    double s = 0.0;

    for (int i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}
