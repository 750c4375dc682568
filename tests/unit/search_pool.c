/* What repeated measurements say together. */
#include <math.h>

#include "base/base.h"
#include "search/search.h"
#include "tests/unit/unit.h"

/* Two runs 12 % apart, alone: on Student's t with one degree of freedom the interval would be
 * +-76 % and its lower end of ten times the difference negative. */
static void two_runs_alone_give_a_bound_above_zero(void **state)
{
    const struct se_measured m[] = {{1, 8000.0, 20.0}, {1, 9000.0, 20.0}};
    const struct se_measured apart[] = {{1, 100.0, 1.0}, {1, 9000.0, 1.0}};
    struct se_pooled p = se_pool(m, 2, se_spread_of(m, 2));
    double half = log(p.hi / p.mean);

    (void)state;
    assert_true(p.lo > 0.0 && p.lo < 8500.0 && p.hi > 8500.0);
    assert_true(p.mean > 8000.0 && p.mean < 9000.0);
    assert_true(half < 0.25);                                   /* not 0.76 */
    assert_true(half > 0.5 * log(9000.0 / 8000.0) / sqrt(2.0)); /* but no less than they show */
    assert_true(se_pool(apart, 2, se_spread_of(apart, 2)).lo > 0.0);
}

/* By hand: squares 2 x 0.05^2 / ... of pairs e^{+-d}: each pair adds 2 d^2 with one degree. */
static void the_spread_is_that_of_all_pairs_together(void **state)
{
    enum { PAIRS = 500 };
    const double d = 0.05;
    struct se_measured m[2 * PAIRS];
    struct se_spread s;

    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        double f = 100.0 * (1 + i % 7);

        m[2 * i] = (struct se_measured){i, f * exp(d), 1e-9 * f};
        m[2 * i + 1] = (struct se_measured){i, f * exp(-d), 1e-9 * f};
    }
    s = se_spread_of(m, 2 * PAIRS);
    assert_float_equal(s.degrees, PAIRS + 4.0, 1e-12);
    assert_float_equal(s.sd, sqrt((4.0 * 4e-4 + PAIRS * 2.0 * d * d) / (PAIRS + 4.0)), 1e-12);
}

static void what_own_errors_explain_is_no_spread(void **state)
{
    struct se_measured m[200];
    struct rng r;

    (void)state;
    rng_seed(&r, 5);
    for (int i = 0; i < 200; i++) {
        double own = 0.1;

        m[i] = (struct se_measured){i / 2, 50.0 * exp(own * rng_normal(&r)), own * 50.0};
    }
    /* SS - 100 x own^2 has the standard deviation own^2 sqrt(2 x 100): 3 of them over 104 degrees
     * are sd 0.064 */
    assert_true(se_spread_of(m, 200).sd < 0.064);
}

/* 95 % intervals of layouts with 2 runs, tau estimated from all of them: 1000 layouts, so 3 sigma
 * of the share inside are 2.1 %; the estimate of tau adds less. */
static void intervals_have_their_coverage(void **state)
{
    enum { LAYOUTS = 1000 };
    struct se_measured *m = mem_alloc(2 * LAYOUTS * sizeof(*m));
    struct se_spread s;
    struct rng r;
    int inside = 0;

    (void)state;
    rng_seed(&r, 9);
    for (int i = 0; i < 2 * LAYOUTS; i++) {
        double own = i % 2 ? 0.01 : 0.05;

        m[i] = (struct se_measured){i / 2, exp(0.08 * rng_normal(&r) + own * rng_normal(&r)), 0.0};
        m[i].se = own * m[i].value;
    }
    s = se_spread_of(m, 2 * LAYOUTS);
    assert_float_equal(s.sd, 0.08, 0.008);
    for (int i = 0; i < LAYOUTS; i++) {
        struct se_pooled p = se_pool(m + 2 * i, 2, s);

        inside += p.lo <= 1.0 && p.hi >= 1.0;
    }
    assert_true(inside > 0.95 * LAYOUTS - 30 && inside < 0.95 * LAYOUTS + 30);
    free(m);
}

/* A trainer may report any error: one above the value says nothing, and the pool stays finite. */
static void an_absurd_error_says_nothing_and_harms_nothing(void **state)
{
    struct se_measured m[] = {{0, 100.0, 1e250}, {0, 100.0, 1.0}, {0, 102.0, 1.0}};
    struct se_spread s = se_spread_of(m, ARRAY_LEN(m));
    struct se_pooled all = se_pool(m, ARRAY_LEN(m), s), one = se_pool(m, 1, s);

    (void)state;
    assert_true(isfinite(s.sd));
    assert_true(all.lo > 90.0 && all.mean > 100.0 && all.mean < 102.0 && all.hi < 112.0);
    assert_true(one.lo > 0.0 && one.lo < 50.0 && isfinite(one.hi) && one.hi > 200.0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_absurd_error_says_nothing_and_harms_nothing),
    cmocka_unit_test(two_runs_alone_give_a_bound_above_zero),
    cmocka_unit_test(the_spread_is_that_of_all_pairs_together),
    cmocka_unit_test(what_own_errors_explain_is_no_spread),
    cmocka_unit_test(intervals_have_their_coverage),
};
UNIT_MAIN(tests)
