/* The maximizer of fits on functions whose maximum is known in closed form. */
#include <math.h>

#include "base/base.h"
#include "search/kernel.h"
#include "search/maximize.h"
#include "tests/unit/unit.h"

enum { DIMS = 6 };

struct hill {
    double top[DIMS], curve[DIMS];
    int calls;
};

/* -1/2 sum curve (x - top)^2: in a box, the maximum is the top clamped to it. */
static double hill(double *ret_grad, const double *x, int count, void *context)
{
    struct hill *h = context;
    double value = 0.0;

    h->calls++;
    for (int i = 0; i < count; i++) {
        ret_grad[i] = -h->curve[i] * (x[i] - h->top[i]);
        value -= 0.5 * h->curve[i] * (x[i] - h->top[i]) * (x[i] - h->top[i]);
    }
    return value;
}

/* Minus Rosenbrock's valley, whose maximum is 0 at (1, 1). */
static double valley(double *ret_grad, const double *x, int count, void *context)
{
    double bend = x[1] - x[0] * x[0];

    (void)context;
    assert_int_equal(count, 2);
    ret_grad[0] = 400.0 * bend * x[0] + 2.0 * (1.0 - x[0]);
    ret_grad[1] = -200.0 * bend;
    return -100.0 * bend * bend - (1.0 - x[0]) * (1.0 - x[0]);
}

static void a_hill_in_a_box_ends_at_its_top_or_at_the_bounds(void **state)
{
    struct rng rng;

    (void)state;
    rng_seed(&rng, 3);
    for (int round = 0; round < 200; round++) {
        struct hill h = {.calls = 0};
        double x[DIMS], low[DIMS], high[DIMS];

        for (int i = 0; i < DIMS; i++) {
            h.top[i] = 2.0 * rng_normal(&rng);
            h.curve[i] = exp(2.0 * rng_normal(&rng));
            low[i] = -1.0 - rng_unit(&rng);
            high[i] = 1.0 + rng_unit(&rng);
            x[i] = 3.0 * rng_normal(&rng); /* outside, too */
        }
        se_maximize(x, x, DIMS, low, high, hill, &h, 500, 1e-14);
        for (int i = 0; i < DIMS; i++)
            assert_true(fabs(x[i] - fmin(fmax(h.top[i], low[i]), high[i])) <= 1e-4);
    }
}

static void a_bent_valley_is_followed_to_its_end(void **state)
{
    double x[2] = {-1.2, 1.0}, low[2] = {-2.0, -2.0}, high[2] = {2.0, 2.0};
    double value = se_maximize(x, x, 2, low, high, valley, NULL, 200, 1e-12);

    (void)state;
    assert_true(fabs(value) <= 1e-8);
    assert_true(fabs(x[0] - 1.0) <= 1e-3);
    assert_true(fabs(x[1] - 1.0) <= 1e-3);
}

/* With x_1 <= 1/4 the maximum is where d/dx_0 vanishes: 400 (1/4 - x^2) x + 2 (1 - x) = 0. */
static void a_bound_across_a_valley_holds(void **state)
{
    double x[2] = {-1.2, 0.0}, low[2] = {0.0, -2.0}, high[2] = {2.0, 0.25}, grad[2];

    (void)state;
    se_maximize(x, x, 2, low, high, valley, NULL, 200, 1e-12);
    valley(grad, x, 2, NULL);
    assert_true(x[1] == 0.25);
    assert_true(fabs(grad[0]) <= 1e-3);
    assert_true(grad[1] > 0.0);
}

static void it_evaluates_no_more_than_it_may_and_keeps_the_best(void **state)
{
    double low[DIMS], high[DIMS];

    (void)state;
    for (int evals = 1; evals < 20; evals++) {
        struct hill h = {.curve = {1, 10, 100, 1e3, 1e4, 1e5}};
        double x[DIMS], grad[DIMS], value;

        for (int i = 0; i < DIMS; i++)
            low[i] = -(high[i] = x[i] = 3.0);
        value = se_maximize(x, x, DIMS, low, high, hill, &h, evals, 0.0);
        assert_true(h.calls <= evals);
        assert_true(hill(grad, x, DIMS, &h) == value);
        assert_true(value >= -0.5 * 9.0 * 111111.0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_hill_in_a_box_ends_at_its_top_or_at_the_bounds),
    cmocka_unit_test(a_bent_valley_is_followed_to_its_end),
    cmocka_unit_test(a_bound_across_a_valley_holds),
    cmocka_unit_test(it_evaluates_no_more_than_it_may_and_keeps_the_best),
};

UNIT_MAIN(tests)
