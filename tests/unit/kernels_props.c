/* Properties that need no oracle: inverses, sums, and that gradients are what the chain rule says.
 */
#include "tests/unit/unit.h"

#include <math.h>

#include "kernels/kernels.h"

enum { ROWS = 37, K = 2, E = 8, D = 48 };

static void fill(float *x, size_t n, uint64_t seed)
{
    struct rng r;

    rng_seed(&r, seed);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_normal(&r);
}

static void unpermuting_what_was_permuted_gives_k_times_the_rows(void **state)
{
    static float x[ROWS * D], y[ROWS * K * D], back[ROWS * D];
    int32_t key[ROWS * K], offsets[E + 1], src[ROWS * K], place[ROWS * K];

    (void)state;
    fill(x, ROWS * D, 1);
    for (size_t i = 0; i < ROWS * K; i++)
        key[i] = (int32_t)(i * 7 % E);
    kn_sort_by_key(offsets, src, place, key, ROWS * K, E);
    assert_int_equal(offsets[E], ROWS * K);
    kn_permute(NULL, KN_F32, y, x, src, ROWS * K, K, D);
    kn_unpermute(NULL, KN_F32, back, y, place, NULL, ROWS, K, D, false);
    for (size_t i = 0; i < ROWS * D; i++)
        assert_true(back[i] == K * x[i]);
}

static void the_router_gives_a_distribution_and_its_gradient_sums_to_zero(void **state)
{
    static float logits[ROWS * E], probs[ROWS * E], w[ROWS * K], dw[ROWS * K], dl[ROWS * E];
    const struct kn_router router = {
        .experts = E, .k = K, .renorm = true, .scale = 1, .groups = 1, .met = 1};
    int32_t idx[ROWS * K];

    (void)state;
    fill(logits, ROWS * E, 2);
    fill(dw, ROWS * K, 3);
    kn_router_fwd(NULL, &router, probs, idx, w, logits, ROWS);
    kn_router_bwd(NULL, &router, dl, dw, NULL, probs, idx, w, ROWS);
    for (size_t r = 0; r < ROWS; r++) {
        double p = 0, top = 0, g = 0, size = 0;

        for (size_t i = 0; i < E; i++) {
            p += (double)probs[r * E + i];
            g += (double)dl[r * E + i]; /* adding a constant to all logits changes nothing */
            size += fabs((double)dl[r * E + i]);
        }
        for (size_t j = 0; j < K; j++)
            top += (double)w[r * K + j];
        assert_true(fabs(p - 1) <= E * 0x1p-23);
        assert_true(fabs(top - 1) <= K * 0x1p-23);
        assert_true(fabs(g) <= 16 * 0x1p-23 * (size + 1));
    }
}

static void rotating_back_undoes_the_rotation(void **state)
{
    static float c[64 * D / 2], s[64 * D / 2], x[ROWS * D], y[ROWS * D];
    double frequency[D / 2];

    (void)state;
    for (size_t i = 0; i < D / 2; i++)
        frequency[i] = pow(10000, -2.0 * (double)i / D);
    kn_rope_tables(c, s, 0, 64, D, frequency, 1);
    assert_true(c[0] == 1 && s[0] == 0);
    assert_true(fabsf(c[D / 2] - cosf(1)) < 0x1p-23 && fabsf(s[D / 2] - sinf(1)) < 0x1p-23);
    fill(x, ROWS * D, 4);
    memcpy(y, x, sizeof(x));
    kn_rope(NULL, KN_F32, y, D, ROWS, 1, D, D, c, s, NULL, ROWS, false);
    assert_true(y[D] != x[D]);
    kn_rope(NULL, KN_F32, y, D, ROWS, 1, D, D, c, s, NULL, ROWS, true);
    for (size_t i = 0; i < ROWS * D;
         i++) /* six roundings each way of magnitudes of at most 2 |x| */
        assert_true(fabsf(y[i] - x[i]) <= 12 * 0x1p-24f * 8);
}

/* L = sum of g f(x); its slope along a direction U by a central difference against the analytic
 * gradient. The difference is off by the third derivative times h^2 and by rounding over h: with h
 * = 2^-5 and values of about unit size, both stay below 2 %. */
static void assert_slope(double up, double down, double h, double analytic, double size)
{
    double numeric = (up - down) / (2 * h);

    if (fabs(numeric - analytic) > 0.02 * size)
        fail_msg("slope %.6g by differences, %.6g by the gradient (size %.3g)", numeric, analytic,
                 size);
}

/* All operations of a block's shape at once: y = swiglu(norm(x) W1, norm(x) W2) and back. */
static double chain(const float *x, const float *nw, const float *w, const float *g, float *keep)
{
    float *n = keep, *rrms = n + ROWS * D, *gu = rrms + ROWS, *y = gu + ROWS * 2 * D;
    double sum = 0;

    kn_rmsnorm_fwd(NULL, KN_F32, n, rrms, x, nw, ROWS, D, 1e-5f, 0);
    kn_gemm_f32(NULL, false, true, ROWS, 2 * D, D, n, D, w, D, 0, gu, 2 * D);
    kn_swiglu_fwd(NULL, KN_F32, y, D, gu, 2 * D, gu + D, 2 * D, ROWS, D);
    for (size_t i = 0; i < ROWS * D; i++)
        sum += (double)g[i] * (double)y[i];
    return sum;
}

static void gradients_follow_the_chain_rule(void **state)
{
    enum { KEEP = ROWS * D * 4 + ROWS };
    static float x[ROWS * D], u[ROWS * D], nw[D], w[2 * D * D], g[ROWS * D], keep[KEEP],
        moved[ROWS * D];
    static float dgu[ROWS * 2 * D], dn[ROWS * D], dx[ROWS * D], dnw[D];
    float *n = keep, *rrms = n + ROWS * D, *gu = rrms + ROWS;
    const double h = 0x1p-5;
    double up, down, analytic = 0, size = 0;

    (void)state;
    (void)n;
    fill(x, ROWS * D, 5);
    fill(u, ROWS * D, 6);
    fill(nw, D, 7);
    fill(w, 2 * D * D, 8);
    fill(g, ROWS * D, 9);
    for (size_t i = 0; i < 2 * D * D; i++)
        w[i] *= 0.15f;
    for (size_t i = 0; i < ROWS * D; i++)
        moved[i] = x[i] + (float)h * u[i];
    up = chain(moved, nw, w, g, keep);
    for (size_t i = 0; i < ROWS * D; i++)
        moved[i] = x[i] - (float)h * u[i];
    down = chain(moved, nw, w, g, keep);
    chain(x, nw, w, g, keep);
    kn_swiglu_bwd(NULL, KN_F32, dgu, 2 * D, dgu + D, 2 * D, g, D, gu, 2 * D, gu + D, 2 * D, ROWS,
                  D);
    kn_gemm_f32(NULL, false, false, ROWS, D, 2 * D, dgu, 2 * D, w, D, 0, dn, D);
    kn_rmsnorm_bwd(NULL, KN_F32, dx, dnw, dn, x, nw, rrms, ROWS, D, false, 0);
    for (size_t i = 0; i < ROWS * D; i++) {
        analytic += (double)dx[i] * (double)u[i];
        size += (double)dx[i] * (double)dx[i];
    }
    assert_slope(up, down, h, analytic, sqrt(size));
}

static void blocking_out_of_bounds_is_refused(void **state)
{
    const struct kn_blocking *c;
    struct kn_blocking was = kn_blocking_get(), bad = {1 << 20, 512, 256}, odd = {1024, 500, 256};
    size_t n = kn_blocking_candidates(&c);

    (void)state;
    assert_false(kn_blocking_set(&bad));
    assert_false(kn_blocking_set(&odd));
    assert_int_equal(kn_blocking_get().rows, was.rows);
    assert_true(n > 1);
    for (size_t i = 0; i < n; i++)
        assert_true(kn_blocking_set(&c[i]));
    assert_true(kn_blocking_set(&was));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(unpermuting_what_was_permuted_gives_k_times_the_rows),
    cmocka_unit_test(the_router_gives_a_distribution_and_its_gradient_sums_to_zero),
    cmocka_unit_test(rotating_back_undoes_the_rotation),
    cmocka_unit_test(gradients_follow_the_chain_rule),
    cmocka_unit_test(blocking_out_of_bounds_is_refused),
};

UNIT_MAIN(tests)
