/* Projection from trials to other scales; the model is stated in project.h. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/plan.h"

static const double whole = 0.3, scale = 0.03, shape = 0.09, run = 0.04;
static const double prior_degrees = 4;

const struct pl_transfer pl_transfer_published = {.deviation = 0.20, .degrees = 7};

struct pl_calibration {
    int n;
    double centre;             /* ln N0 */
    struct pl_observation *at; /* n */
    double *chol;              /* lower triangle of the covariance, n x n */
    double *weight;            /* covariance^-1 y */
    double variance, degrees;  /* common factor, and how well it is known */
    struct pl_transfer transfer;
    double *one_chol; /* lower triangle of the covariance if all machines were one */
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

static bool same_machine(const struct pl_observation *a, const struct pl_observation *b)
{
    return a->machine == b->machine && a->layout.precision == b->layout.precision;
}

static double position(const struct pl_calibration *c, const struct pl_layout *l)
{
    return log(l->world) - c->centre;
}

/* ONE: as if all machines were one. */
static double covariance(const struct pl_calibration *c, const struct pl_observation *a,
                         const struct pl_observation *b, bool one)
{
    double apart = one || same_machine(a, b) ? 0 : c->transfer.deviation;

    return whole * whole - apart * apart +
           scale * scale * position(c, &a->layout) * position(c, &b->layout) +
           (same_shape(&a->layout, &b->layout) ? shape * shape : 0);
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

/* The Cholesky factor of the covariance of C's trials; the caller frees it. */
static double *factored(const struct pl_calibration *c, bool one)
{
    int n = c->n;
    double *a = mem_alloc((size_t)n * (size_t)n * sizeof(*a));

    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            a[i * n + k] = covariance(c, &c->at[i], &c->at[k], one) +
                           (i == k ? noise(c->at[i].relative_se) : 0);
    cholesky(a, n);
    return a;
}

struct pl_calibration *pl_calibration_new(const struct pl_observation *at, int n,
                                          const struct pl_transfer *transfer)
{
    struct pl_calibration *c = mem_alloc(sizeof(*c));
    double square = 0;

    n = n < PL_MAX_OBSERVATIONS ? n : PL_MAX_OBSERVATIONS;
    *c = (struct pl_calibration){.n = n, .variance = 1, .degrees = prior_degrees};
    c->transfer = transfer ? *transfer : pl_transfer_published;
    if (n == 0)
        return c;
    c->at = mem_alloc((size_t)n * sizeof(*c->at));
    c->weight = mem_alloc((size_t)n * sizeof(*c->weight));
    memcpy(c->at, at, (size_t)n * sizeof(*c->at));
    for (int i = 0; i < n; i++) {
        c->centre += log(at[i].layout.world) / n;
        c->weight[i] = log(at[i].measured_s / at[i].expected_s);
    }
    c->chol = factored(c, false);
    c->one_chol = factored(c, true);
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
        free(c->one_chol);
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

/* Variance of the model's error at TO, given the trials; its mean too where RET_MEAN is not NULL. */
static double posterior(double *ret_mean, const struct pl_calibration *c,
                        const struct pl_observation *to, bool one)
{
    double variance = covariance(c, to, to, one), mean = 0;
    AUTO_FREE double *k = mem_alloc((size_t)c->n * sizeof(*k));

    for (int i = 0; i < c->n; i++) {
        k[i] = covariance(c, to, &c->at[i], one);
        mean += k[i] * c->weight[i];
    }
    solve_lower(one ? c->one_chol : c->chol, k, c->n);
    for (int i = 0; i < c->n; i++)
        variance -= k[i] * k[i];
    if (ret_mean)
        *ret_mean = mean;
    return variance;
}

void pl_project(struct pl_projected *ret, const struct pl_calibration *c, const struct pl_layout *l,
                int machine, double expected_s)
{
    struct pl_observation to = {.layout = *l, .machine = machine};
    double mean = 0, within, between = 0, half;

    *ret = (struct pl_projected){.transferred = c->n > 0, .degrees = c->degrees};
    for (int i = 0; i < c->n; i++)
        ret->transferred &= !same_machine(&c->at[i], &to);
    /* Without measurements there is no centre; the spread is then that of one unknown machine. */
    within = whole * whole + shape * shape;
    if (c->n) {
        within = posterior(NULL, c, &to, true);
        between = fmax(0, posterior(&mean, c, &to, false) - within); /* below 0 by rounding only */
    }
    within = c->variance * (within + noise(0));
    if (between > 0) /* Welch and Satterthwaite */
        ret->degrees = (within + between) * (within + between) /
                       (within * within / c->degrees + between * between / c->transfer.degrees);
    ret->scale = sqrt(within + between);
    half = student(ret->degrees) * ret->scale;
    ret->factor = exp(mean);
    ret->seconds = expected_s * ret->factor;
    ret->lo = ret->seconds * exp(-half);
    ret->hi = ret->seconds * exp(half);
}

/* ---- machines ---- */

/* Facts pass through JSON, which keeps more than six digits of them. */
static bool differs(double a, double b)
{
    return fabs(a - b) > 1e-6 * fmax(fabs(a), fabs(b));
}

static bool other_device(const struct pl_device *a, const struct pl_device *b)
{
    return !str_eq(a->name, b->name) || a->cpu != b->cpu ||
           differs(a->tflops_fp32, b->tflops_fp32) || differs(a->tflops_bf16, b->tflops_bf16) ||
           differs(a->tflops_fp8, b->tflops_fp8) || differs(a->gemm_tflops, b->gemm_tflops) ||
           differs(a->sustained, b->sustained) || differs(a->memory_gib, b->memory_gib) ||
           differs(a->memory_gbs, b->memory_gbs);
}

static bool other_links(const struct pl_cluster *a, const struct pl_cluster *b)
{
    bool other = a->nlinks != b->nlinks;

    for (int i = 0; !other && i < a->nlinks; i++) {
        const struct pl_link *x = &a->link[i], *y = &b->link[i];

        other = x->span != y->span || x->per_pair != y->per_pair || differs(x->gbs, y->gbs) ||
                differs(x->share, y->share) || differs(x->latency_us, y->latency_us);
    }
    return other;
}

unsigned pl_machine_changes(const struct pl_cluster *a, const struct pl_cluster *b)
{
    bool named = !str_eq(a->device.name, "device");
    bool twice = named && a->measured && b->measured && str_eq(a->name, b->name) &&
                 str_eq(a->device.name, b->device.name);
    unsigned changes = a->devices_per_node == b->devices_per_node ? 0 : PL_OTHER_NODE;

    if (!twice && (!named || other_device(&a->device, &b->device)))
        changes |= PL_OTHER_DEVICE;
    if (!twice && other_links(a, b))
        changes |= PL_OTHER_LINKS;
    return changes;
}

/* ---- layouts ---- */

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
