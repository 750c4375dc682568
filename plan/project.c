/* Projection from trials to other scales; the model is stated in project.h. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/plan.h"

static const double whole = 0.3, scale = 0.03, shape = 0.09, run = 0.04;
static const double prior_degrees = 4;

struct pl_calibration {
    int n;
    double centre;             /* ln N0 */
    struct pl_observation *at; /* n */
    double *chol;              /* lower triangle of the covariance, n x n */
    double *weight;            /* covariance^-1 y */
    double variance, degrees;  /* common factor, and how well it is known */
};

/* All of a layout but its size and replicas. */
static bool same_shape(const struct pl_layout *a, const struct pl_layout *b)
{
    struct pl_layout x = *a;

    x.world = b->world;
    x.dp = b->dp;
    x.edp = b->edp;
    return pl_layout_equal(&x, b);
}

static double position(const struct pl_calibration *c, const struct pl_layout *l)
{
    return log(l->world) - c->centre;
}

static double covariance(const struct pl_calibration *c, const struct pl_layout *a,
                         const struct pl_layout *b)
{
    return whole * whole + scale * scale * position(c, a) * position(c, b) +
           (same_shape(a, b) ? shape * shape : 0);
}

static double noise(double relative_se)
{
    return run * run + relative_se * relative_se;
}

/* L with L L' = A, in place; A is a covariance with noise on its diagonal, so it is definite. */
static void cholesky(double *a, int n)
{
    for (int j = 0; j < n; j++) {
        for (int k = 0; k < j; k++)
            for (int i = j; i < n; i++)
                a[i * n + j] -= a[i * n + k] * a[j * n + k];
        for (int i = n - 1; i >= j; i--)
            a[i * n + j] /= sqrt(a[j * n + j]);
    }
}

/* x := L^-1 x */
static void solve_lower(const double *l, double *x, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            x[i] -= l[i * n + k] * x[k];
        x[i] /= l[i * n + i];
    }
}

/* x := L'^-1 x */
static void solve_upper(const double *l, double *x, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            x[i] -= l[k * n + i] * x[k];
        x[i] /= l[i * n + i];
    }
}

struct pl_calibration *pl_calibration_new(const struct pl_observation *at, int n)
{
    struct pl_calibration *c = mem_alloc(sizeof(*c));
    double square = 0;

    n = n < PL_MAX_OBSERVATIONS ? n : PL_MAX_OBSERVATIONS;
    *c = (struct pl_calibration){.n = n, .variance = 1, .degrees = prior_degrees};
    if (n == 0)
        return c;
    c->at = mem_alloc((size_t)n * sizeof(*c->at));
    c->chol = mem_alloc((size_t)n * (size_t)n * sizeof(*c->chol));
    c->weight = mem_alloc((size_t)n * sizeof(*c->weight));
    memcpy(c->at, at, (size_t)n * sizeof(*c->at));
    for (int i = 0; i < n; i++)
        c->centre += log(at[i].layout.world) / n;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            c->chol[i * n + k] = covariance(c, &at[i].layout, &at[k].layout) +
                                 (i == k ? noise(at[i].relative_se) : 0);
        c->weight[i] = log(at[i].measured_s / at[i].expected_s);
    }
    cholesky(c->chol, n);
    solve_lower(c->chol, c->weight, n);
    for (int i = 0; i < n; i++)
        square += c->weight[i] * c->weight[i]; /* y' covariance^-1 y */
    solve_upper(c->chol, c->weight, n);
    c->degrees += n;
    c->variance = (prior_degrees + square) / c->degrees;
    return c;
}

struct pl_calibration *pl_calibration_free(struct pl_calibration *c)
{
    if (c) {
        free(c->at);
        free(c->chol);
        free(c->weight);
        free(c);
    }
    return NULL;
}

/* 97.5 % quantile of Student's t with at least four degrees of freedom: Cornish-Fisher in 1/n
 * (Abramowitz and Stegun 26.7.5), within 0.3 % from four on. */
static double student(double n)
{
    const double z = 1.959964;

    return z + (pow(z, 3) + z) / (4 * n) + (5 * pow(z, 5) + 16 * pow(z, 3) + 3 * z) / (96 * n * n) +
           (3 * pow(z, 7) + 19 * pow(z, 5) + 17 * pow(z, 3) - 15 * z) / (384 * n * n * n);
}

void pl_project(struct pl_projected *ret, const struct pl_calibration *c, const struct pl_layout *l,
                double expected_s)
{
    double mean = 0, variance, half;

    /* Without measurements there is no centre; the spread is then that of one unknown machine. */
    variance = c->n ? covariance(c, l, l) : whole * whole + shape * shape;
    if (c->n) {
        AUTO_FREE double *k = mem_alloc((size_t)c->n * sizeof(*k));

        for (int i = 0; i < c->n; i++) {
            k[i] = covariance(c, l, &c->at[i].layout);
            mean += k[i] * c->weight[i];
        }
        solve_lower(c->chol, k, c->n);
        for (int i = 0; i < c->n; i++)
            variance -= k[i] * k[i];
    }
    half = student(c->degrees) * sqrt(c->variance * (variance + noise(0)));
    ret->factor = exp(mean);
    ret->seconds = expected_s * ret->factor;
    ret->lo = ret->seconds * exp(-half);
    ret->hi = ret->seconds * exp(half);
}

bool pl_layout_scale(struct pl_layout *ret, const struct pl_layout *l, int world, int global_batch,
                     const struct pl_model *m)
{
    struct pl_layout x = *l;

    x.world = world;
    if (!pl_layout_derive(&x) || global_batch % (x.micro_batch * x.dp))
        return false;
    pl_layout_canonical(&x, m);
    *ret = x;
    return true;
}
