/* Projection from trials to other scales; the model is stated in project.h. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/plan.h"

static const double whole = 0.3, scale = 0.03, shape = 0.09, run = 0.04;
static const double prior_degrees = 4;

const struct pl_transfer pl_transfer_published = {.deviation = 0.20, .degrees = 7};

struct pl_calibration {
    int n;
    double center;             /* ln N0 */
    struct pl_observation *at; /* n */
    double *chol;              /* lower triangle of the covariance, n x n */
    double *weight;            /* covariance^-1 y */
    double variance, degrees;  /* common factor, and how well it is known */
    struct pl_transfer transfer;
    double *one_chol; /* lower triangle of the covariance if all machines were one */
};

/* All of a layout but its size and replicas. */
static bool same_shape(const struct pl_layout *left, const struct pl_layout *right)
{
    struct pl_layout layout = *left;

    layout.world = right->world;
    layout.dp = right->dp;
    layout.edp = right->edp;
    return pl_layout_equal(&layout, right);
}

static bool same_machine(const struct pl_observation *a, const struct pl_observation *b)
{
    return a->machine == b->machine && a->layout.precision == b->layout.precision;
}

static double position(const struct pl_calibration *calibration, const struct pl_layout *layout)
{
    return log(layout->world) - calibration->center;
}

/* ONE: as if all machines were one. */
static double covariance(const struct pl_calibration *calibration, const struct pl_observation *a,
                         const struct pl_observation *b, bool one)
{
    double apart = one || same_machine(a, b) ? 0 : calibration->transfer.deviation;

    return whole * whole - apart * apart +
           scale * scale * position(calibration, &a->layout) * position(calibration, &b->layout) +
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

/* The Cholesky factor of the covariance of CALIBRATION's trials; the caller frees it. */
static double *factored(const struct pl_calibration *calibration, bool one)
{
    int n = calibration->n;
    double *a = mem_alloc((size_t)n * (size_t)n * sizeof(*a));

    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            a[i * n + k] = covariance(calibration, &calibration->at[i], &calibration->at[k], one) +
                           (i == k ? noise(calibration->at[i].relative_se) : 0);
    cholesky(a, n);
    return a;
}

struct pl_calibration *pl_calibration_new(const struct pl_observation *at, int count,
                                          const struct pl_transfer *transfer)
{
    struct pl_calibration *c = mem_alloc(sizeof(*c));
    double square = 0;

    assert(count >= 0);
    count = count < PL_MAX_OBSERVATIONS ? count : PL_MAX_OBSERVATIONS;
    *c = (struct pl_calibration){.n = count, .variance = 1, .degrees = prior_degrees};
    c->transfer = transfer ? *transfer : pl_transfer_published;
    if (count == 0)
        return c;
    c->at = mem_alloc((size_t)count * sizeof(*c->at));
    c->weight = mem_alloc((size_t)count * sizeof(*c->weight));
    memcpy(c->at, at, (size_t)count * sizeof(*c->at));
    for (int i = 0; i < count; i++) {
        c->center += log(at[i].layout.world) / count;
        c->weight[i] = log(at[i].measured_s / at[i].expected_s);
    }
    c->chol = factored(c, false);
    c->one_chol = factored(c, true);
    solve_lower(c->chol, c->weight, count);
    for (int i = 0; i < count; i++)
        square += c->weight[i] * c->weight[i]; /* y' covariance^-1 y */
    solve_upper(c->chol, c->weight, count);
    c->degrees += count;
    c->variance = (prior_degrees + square) / c->degrees;
    return c;
}

struct pl_calibration *pl_calibration_free(struct pl_calibration *calibration)
{
    if (calibration) {
        free(calibration->at);
        free(calibration->chol);
        free(calibration->one_chol);
        free(calibration->weight);
        free(calibration);
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

/* Variance of the model's error at TO, given the trials; its mean too where RET_MEAN is not
 * NULL. */
static double posterior(double *ret_mean, const struct pl_calibration *calibration,
                        const struct pl_observation *to, bool one)
{
    double variance = covariance(calibration, to, to, one), mean = 0;
    AUTO_FREE double *k = mem_alloc((size_t)calibration->n * sizeof(*k));

    for (int i = 0; i < calibration->n; i++) {
        k[i] = covariance(calibration, to, &calibration->at[i], one);
        mean += k[i] * calibration->weight[i];
    }
    solve_lower(one ? calibration->one_chol : calibration->chol, k, calibration->n);
    for (int i = 0; i < calibration->n; i++)
        variance -= k[i] * k[i];
    if (ret_mean)
        *ret_mean = mean;
    return variance;
}

void pl_project(struct pl_projected *ret, const struct pl_calibration *calibration,
                const struct pl_layout *layout, int machine, double expected_s)
{
    struct pl_observation to = {.layout = *layout, .machine = machine};
    double mean = 0, within, between = 0, half;

    assert(expected_s > 0);
    *ret =
        (struct pl_projected){.transferred = calibration->n > 0, .degrees = calibration->degrees};
    for (int i = 0; i < calibration->n; i++)
        ret->transferred &= !same_machine(&calibration->at[i], &to);
    /* Without measurements there is no center; the spread is then that of one unknown machine. */
    within = whole * whole + shape * shape;
    if (calibration->n) {
        within = posterior(NULL, calibration, &to, true);
        between = fmax(0, posterior(&mean, calibration, &to, false) -
                              within); /* below 0 by rounding only */
    }
    within = calibration->variance * (within + noise(0));
    if (between > 0) /* Welch and Satterthwaite */
        ret->degrees = (within + between) * (within + between) /
                       (within * within / calibration->degrees +
                        between * between / calibration->transfer.degrees);
    ret->scale = sqrt(within + between);
    half = student(ret->degrees) * ret->scale;
    ret->factor = exp(mean);
    ret->seconds = expected_s * ret->factor;
    ret->lo = ret->seconds * exp(-half);
    ret->hi = ret->seconds * exp(half);
}

/* ---- machines ------------------------------------------------------------ */

/* Facts pass through JSON, which keeps more than six digits of them. */
static bool differs(double a, double b)
{
    return fabs(a - b) > 1e-6 * fmax(fabs(a), fabs(b));
}

static bool other_device(const struct pl_device *left, const struct pl_device *right)
{
    return !str_eq(left->name, right->name) || left->cpu != right->cpu ||
           differs(left->tflops_fp32, right->tflops_fp32) ||
           differs(left->tflops_bf16, right->tflops_bf16) ||
           differs(left->tflops_fp8, right->tflops_fp8) ||
           differs(left->tflops_fp4, right->tflops_fp4) ||
           differs(left->gemm_tflops, right->gemm_tflops) ||
           differs(left->gemm_tflops_fp8, right->gemm_tflops_fp8) ||
           differs(left->sustained, right->sustained) ||
           differs(left->memory_gib, right->memory_gib) ||
           differs(left->memory_gbs, right->memory_gbs);
}

static bool other_links(const struct pl_cluster *left, const struct pl_cluster *right)
{
    bool other = left->nlinks != right->nlinks;

    for (int i = 0; !other && i < left->nlinks; i++) {
        const struct pl_link *x = &left->link[i], *y = &right->link[i];

        other = x->span != y->span || x->per_pair != y->per_pair || differs(x->gbs, y->gbs) ||
                differs(x->share, y->share) || differs(x->latency_us, y->latency_us) ||
                differs(x->oversubscription, y->oversubscription) || x->rails != y->rails;
    }
    return other;
}

unsigned pl_machine_changes(const struct pl_cluster *left, const struct pl_cluster *right)
{
    bool named = !str_eq(left->device.name, "device");
    bool twice = named && left->measured && right->measured && str_eq(left->name, right->name) &&
                 str_eq(left->device.name, right->device.name);
    unsigned changes = left->devices_per_node == right->devices_per_node ? 0 : PL_OTHER_NODE;

    if (!twice && (!named || other_device(&left->device, &right->device)))
        changes |= PL_OTHER_DEVICE;
    if (!twice && other_links(left, right))
        changes |= PL_OTHER_LINKS;
    return changes;
}

/* ---- layouts ------------------------------------------------------------- */

bool pl_layout_scale(struct pl_layout *ret, const struct pl_layout *layout, int world,
                     int global_batch, const struct pl_model *model)
{
    struct pl_layout x = *layout;

    x.world = world;
    if (!pl_layout_derive(&x) || global_batch % (x.micro_batch * x.dp))
        return false;
    pl_layout_canonical(&x, model);
    *ret = x;
    return true;
}
