/* Gaussian processes and expectation propagation against closed forms, finite differences and
 * quadrature. */
#include <math.h>

#include "search/surrogate.h"
#include "search/num.h"
#include "tests/unit/search_help.h"

/* A process over the small table with all parts of the kernel alive. */
static void make_gp(struct se_gp *g, const struct se_table *t, int nlin)
{
    struct se_kernel k;
    double theta[SE_MAX_THETA] = {-3.0, -0.8, -0.5, -1.0};

    se_kernel_init(&k, t->dim, t->ndims, nlin);
    k.sd_const = 0.7;
    k.sd_prior = 0.3;
    for (int d = 0; d < SE_MAX_DIMS; d++)
        theta[SE_TH_LEN + d] = 0.3 + 0.1 * d;
    se_kernel_set(&k, theta);
    se_gp_init(g, &k);
}

static void fill_gp(struct se_gp *g, const struct se_table *t, int n, bool append)
{
    struct rng r;

    rng_seed(&r, 5);
    for (int i = 0; i < n; i++) {
        struct se_point p;
        size_t at = (size_t)rng_below(&r, t->n);
        double y = rng_normal(&r);

        se_table_point(&p, t, SE_THROUGHPUT, at, g->kern.nlin);
        if (append)
            se_gp_append(g, &p, y, 0.01 + 0.01 * i);
        else
            se_gp_add(g, &p, y, 0.01 + 0.01 * i);
    }
    if (!append)
        se_gp_factor(g);
}

/* C has condition number at most trace / smallest noise, so a backward-stable solve errs by about n
 * eps cond. */
static double solve_tolerance(const struct se_gp *g)
{
    double trace = 0.0, least = INFINITY;

    for (int i = 0; i < g->n; i++) {
        least = fmin(least, g->var[i]);
        trace += 6.0;
    }
    return 0x1p-52 * g->n * trace / least * 8.0;
}

static void posterior_of_one_observation_is_the_closed_form(void **state)
{
    struct se_table *t = small_table();
    struct se_gp g;
    struct se_point a, b;
    double mean, var, kaa, kab, kbb;

    (void)state;
    make_gp(&g, t, SE_LIN_SHARE + SE_COST_SHARES);
    se_table_point(&a, t, SE_THROUGHPUT, 3, g.kern.nlin);
    se_table_point(&b, t, SE_THROUGHPUT, 77, g.kern.nlin);
    se_gp_append(&g, &a, 1.5, 0.2);
    kaa = se_kernel_cov(&g.kern, a.level, a.u, a.level, a.u);
    kab = se_kernel_cov(&g.kern, a.level, a.u, b.level, b.u);
    kbb = se_kernel_cov(&g.kern, b.level, b.u, b.level, b.u);
    se_gp_predict(&mean, &var, &g, &b);
    assert_float_equal(mean, kab / (kaa + 0.2) * 1.5, 1e-12);
    assert_float_equal(var, kbb - kab * kab / (kaa + 0.2), 1e-12);
    assert_float_equal(se_gp_evidence(&g),
                       -0.5 * 2.25 / (kaa + 0.2) - 0.5 * log(kaa + 0.2) - SE_LOG_SQRT_2PI, 1e-12);
    se_gp_done(&g);
    se_table_free(t);
}

static void kernel_is_the_formula(void **state)
{
    struct se_dim dim[2] = {{.active = true, .nlevels = 3, .pos = {0, 1, 2}},
                            {.active = true, .nlevels = 2, .categorical = true, .pos = {5, 9}}};
    double theta[SE_MAX_THETA] = {0, log(0.5), log(2.0), 0, log(1.5), log(0.8)};
    double s0 = sqrt(5.0) * 2.0 / 1.5, s1 = sqrt(5.0) / 0.8, u = 0.0;
    double m0 = (1 + s0 + s0 * s0 / 3) * exp(-s0), m1 = (1 + s1 + s1 * s1 / 3) * exp(-s1);
    uint8_t a[2] = {0, 0}, b[2] = {2, 1};
    struct se_kernel k;

    (void)state;
    se_kernel_init(&k, dim, 2, 0);
    se_kernel_set(&k, theta);
    assert_float_equal(se_kernel_cov(&k, a, &u, b, &u), 0.25 * (m0 + m1) + 4.0 * m0 * m1, 1e-13);
    assert_float_equal(se_kernel_cov(&k, a, &u, a, &u), 0.5 + 4.0, 1e-13);
    se_kernel_done(&k);
}

static void appending_equals_rebuilding(void **state)
{
    struct se_table *t = small_table();
    struct se_gp a, b;
    double tol;

    (void)state;
    make_gp(&a, t, SE_LIN_SHARE + SE_COST_SHARES);
    make_gp(&b, t, SE_LIN_SHARE + SE_COST_SHARES);
    fill_gp(&a, t, 60, true);
    fill_gp(&b, t, 60, false);
    tol = solve_tolerance(&a);
    for (int i = 0; i < 60; i++)
        assert_float_equal(a.alpha[i], b.alpha[i], tol * (1.0 + fabs(b.alpha[i])));
    assert_float_equal(se_gp_evidence(&a), se_gp_evidence(&b), tol * 60);
    se_gp_truncate(&a, 30);
    se_gp_done(&b);
    make_gp(&b, t, SE_LIN_SHARE + SE_COST_SHARES);
    fill_gp(&b, t, 30, false);
    assert_float_equal(se_gp_evidence(&a), se_gp_evidence(&b), tol * 30);
    se_gp_done(&a);
    se_gp_done(&b);
    se_table_free(t);
}

/* Central differences err by h^2 f'''/6 and by rounding eps |f| / h: with h = 1e-5 both are far
 * below 1e-6 here. */
static void gradient_of_the_evidence_is_that_of_finite_differences(void **state)
{
    struct se_table *t = small_table();
    struct se_gp g;
    double grad[SE_MAX_THETA], theta[SE_MAX_THETA], own_var[40];
    bool own[40];
    int n;

    (void)state;
    make_gp(&g, t, SE_LIN_SHARE + SE_COST_SHARES);
    fill_gp(&g, t, 40, false);
    n = se_kernel_ntheta(&g.kern);
    for (int i = 0; i < 40; i++) {
        own[i] = i % 3 != 0;
        own_var[i] = g.var[i];
        g.var[i] += own[i] ? g.kern.noise2 : 0.0;
    }
    se_gp_factor(&g);
    se_gp_evidence_grad(grad, &g, own);
    memcpy(theta, g.kern.theta, sizeof(theta));
    for (int k = 0; k < n; k++) {
        double f[2], h = 1e-5;

        for (int side = 0; side < 2; side++) {
            theta[k] += side ? h : -h;
            se_kernel_set(&g.kern, theta);
            for (int i = 0; i < 40; i++)
                g.var[i] = own_var[i] + (own[i] ? g.kern.noise2 : 0.0);
            se_gp_factor(&g);
            f[side] = se_gp_evidence(&g);
            theta[k] -= side ? h : -h;
        }
        assert_float_equal(grad[k], (f[1] - f[0]) / (2 * h), 1e-6 * (1.0 + fabs(grad[k])));
    }
    se_gp_done(&g);
    se_table_free(t);
}

static void leaving_one_out_equals_doing_it(void **state)
{
    struct se_table *t = small_table();
    struct se_gp all, rest;
    struct rng r;
    struct se_point p[12];
    double y[12], mean[12], var[12], m, v;

    (void)state;
    rng_seed(&r, 9);
    make_gp(&all, t, SE_LIN_PRIOR);
    for (int i = 0; i < 12; i++) {
        se_table_point(&p[i], t, SE_THROUGHPUT, (size_t)rng_below(&r, t->n), SE_LIN_PRIOR);
        y[i] = rng_normal(&r);
        se_gp_append(&all, &p[i], y[i], 0.1);
    }
    se_gp_leave_one_out(mean, var, &all);
    for (int out = 0; out < 12; out++) {
        make_gp(&rest, t, SE_LIN_PRIOR);
        for (int i = 0; i < 12; i++)
            if (i != out)
                se_gp_append(&rest, &p[i], y[i], 0.1);
        se_gp_predict(&m, &v, &rest, &p[out]);
        assert_float_equal(mean[out], m, 1e-10);
        assert_float_equal(var[out], v, 1e-10);
        se_gp_done(&rest);
    }
    se_gp_done(&all);
    se_table_free(t);
}

/* What the residuals owe to noise, against its definition: each is linear in y, so its weights are
 * what it becomes for unit vectors. */
static void residuals_carry_the_noise_of_all_points(void **state)
{
    enum { N = 9 };
    struct se_table *t = small_table();
    struct se_gp g;
    struct rng r;
    struct se_point p;
    double err[N], noise[N], mean[N], var[N], none[N], sum[N] = {0};

    (void)state;
    rng_seed(&r, 10);
    make_gp(&g, t, SE_LIN_PRIOR);
    for (int i = 0; i < N; i++) {
        se_table_point(&p, t, SE_THROUGHPUT, (size_t)rng_below(&r, t->n), SE_LIN_PRIOR);
        se_gp_append(&g, &p, rng_normal(&r), 0.05 + 0.1 * rng_unit(&r));
    }
    se_gp_leave_one_out(mean, var, &g);
    se_gp_residuals(err, noise, &g);
    for (int i = 0; i < N; i++)
        assert_true(fabs(err[i] - (g.y[i] - mean[i])) <= 1e-12); /* cmocka compares in float */
    for (int j = 0; j < N; j++) {
        for (int i = 0; i < N; i++)
            g.y[i] = i == j;
        se_gp_resolve(&g);
        se_gp_residuals(err, none, &g);
        for (int i = 0; i < N; i++)
            sum[i] += err[i] * err[i] * g.var[j];
    }
    for (int i = 0; i < N; i++)
        assert_float_equal(noise[i], sum[i], 1e-12 * (1.0 + sum[i]));
    se_gp_done(&g);
    se_table_free(t);
}

/* One bounded observation alone: EP is exact, its evidence and moments those of a one-dimensional
 * integral. */
static void a_single_bound_has_the_moments_of_quadrature(void **state)
{
    struct se_table *t = small_table();
    struct se_gp g;
    struct se_point p;
    struct se_obs o = {.kind = SE_ABOVE, .value = 0.4, .var = 0.01};
    double mean0 = 0.1, m, v, k, z = 0, z1 = 0, z2 = 0, h = 1e-3;

    (void)state;
    make_gp(&g, t, SE_LIN_PRIOR);
    se_table_point(&p, t, SE_MEMORY, 10, SE_LIN_PRIOR);
    k = se_kernel_cov(&g.kern, p.level, p.u, p.level, p.u);
    for (double f = -12.0; f < 12.0;
         f += h) { /* midpoint rule: far below 1e-6 for so smooth a function */
        double w = h * exp(-0.5 * f * f / k) / sqrt(2 * M_PI * k) *
                   se_norm_cdf((f + mean0 - o.value) / 0.1);

        z += w;
        z1 += w * f;
        z2 += w * f * f;
    }
    se_gp_add(&g, &p, 0.0, 1e3);
    assert_float_equal(se_ep_run(&g, &o, &mean0), log(z), 1e-4);
    se_gp_predict(&m, &v, &g, &p);
    assert_float_equal(m, z1 / z, 1e-4);
    assert_float_equal(v, z2 / z - z1 * z1 / z / z, 1e-4);
    se_gp_done(&g);
    se_table_free(t);
}

static void bounds_move_the_posterior_the_right_way(void **state)
{
    struct se_table *t = small_table();
    struct se_surrogate b;
    struct se_obs o;
    double before, after;

    (void)state;
    se_surrogate_init(&b, t, SE_MEMORY, false);
    before = se_surrogate_below(&b, t, 5, 0.0);
    se_surrogate_place(&o, &b, t, 5);
    o.kind = SE_ABOVE;
    o.value = 0.0;
    o.var = 1e-4;
    se_surrogate_add(&b, &o);
    se_surrogate_update(&b);
    after = se_surrogate_below(&b, t, 5, 0.0);
    assert_true(before > 0.3 && after < 0.1);
    o.kind = SE_BELOW;
    se_surrogate_place(&o, &b, t, 40);
    o.kind = SE_BELOW;
    o.var = 1e-4;
    se_surrogate_add(&b, &o);
    se_surrogate_fit(&b);
    assert_true(se_surrogate_below(&b, t, 40, 0.0) > 0.8);
    se_surrogate_done(&b);
    se_table_free(t);
}

/* Where outcomes contradict the prior, the hypothesis that has none takes over; where they agree,
 * it does not. */
static void weights_follow_the_evidence(void **state)
{
    struct se_table *t = small_table();
    struct se_surrogate good, bad;

    (void)state;
    se_surrogate_init(&good, t, SE_THROUGHPUT, true);
    se_surrogate_init(&bad, t, SE_THROUGHPUT, true);
    for (size_t i = 0; i < 15; i++) {
        size_t at = i * t->n / 15;
        struct se_obs o;

        se_surrogate_place(&o, &good, t, at);
        o.var = 1e-4;
        o.value = o.prior + 0.02 * (double)(i % 3);
        se_surrogate_add(&good, &o);
        o.value = t->center[SE_THROUGHPUT] - 4.0 * (o.prior - t->center[SE_THROUGHPUT]) - 3.0;
        se_surrogate_add(&bad, &o);
    }
    se_surrogate_fit(&good);
    se_surrogate_fit(&bad);
    assert_true(good.hyp[0].prior_mean && good.hyp[0].weight > 0.9);
    assert_true(bad.hyp[0].weight < 0.1);
    se_surrogate_done(&good);
    se_surrogate_done(&bad);
    se_table_free(t);
}

/* The layout of the table that differs from layout AT by computing all again. */
static size_t recomputed(const struct se_table *t, size_t at)
{
    struct pl_layout l;

    se_table_layout(&l, t, at);
    l.recompute = PL_RECOMPUTE_FULL;
    return (size_t)se_table_find(t, &l);
}

static double kept_matrices(const struct se_table *t, size_t at)
{
    return se_table_lin(t, SE_MEMORY, at)[SE_LIN_SHARE + SE_MEMORY_UNFUSED];
}

/* A layout that would fit if attention kept no matrices, and does not fit, is put down to the
 * matrices: what keeps none of them loses less than half as much weight. */
static void out_of_memory_is_put_down_to_kept_matrices(void **state)
{
    struct se_table *t = small_table();
    size_t keeps = 0, again;
    double bound, fits, fits_again;
    struct se_surrogate b;
    struct se_obs o;

    (void)state;
    for (size_t i = 0; i < t->n; i++)
        if (kept_matrices(t, i) > kept_matrices(t, keeps))
            keeps = i;
    again = recomputed(t, keeps);
    bound = t->prior[SE_MEMORY][keeps] + 0.7 * kept_matrices(t, keeps);
    se_surrogate_init(&b, t, SE_MEMORY, true);
    assert_int_equal(b.unfused, 2);
    assert_true(b.hyp[b.unfused].unfused && b.hyp[b.unfused].prior_mean);
    fits = se_surrogate_below(&b, t, keeps, bound);
    fits_again = se_surrogate_below(&b, t, again, bound);
    se_surrogate_place(&o, &b, t, keeps);
    o.kind = SE_ABOVE;
    o.value = bound;
    o.var = 1e-4;
    se_surrogate_add(&b, &o);
    se_surrogate_update(&b);
    assert_true(b.hyp[b.unfused].weight / b.hyp[SE_PRIOR_MEAN].weight >
                2.0 * b.hyp[b.unfused].prior_weight / b.hyp[SE_PRIOR_MEAN].prior_weight);
    fits -= se_surrogate_below(&b, t, keeps, bound);
    fits_again -= se_surrogate_below(&b, t, again, bound);
    assert_true(fits > 0.3 && fits_again < 0.5 * fits);
    se_surrogate_done(&b);
    se_table_free(t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kernel_is_the_formula),
    cmocka_unit_test(posterior_of_one_observation_is_the_closed_form),
    cmocka_unit_test(appending_equals_rebuilding),
    cmocka_unit_test(gradient_of_the_evidence_is_that_of_finite_differences),
    cmocka_unit_test(leaving_one_out_equals_doing_it),
    cmocka_unit_test(residuals_carry_the_noise_of_all_points),
    cmocka_unit_test(a_single_bound_has_the_moments_of_quadrature),
    cmocka_unit_test(bounds_move_the_posterior_the_right_way),
    cmocka_unit_test(weights_follow_the_evidence),
    cmocka_unit_test(out_of_memory_is_put_down_to_kept_matrices),
};
UNIT_MAIN(tests)
