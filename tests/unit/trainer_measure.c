/* What a series of step times says. */
#include "tests/unit/unit.h"
#include "trainer/measure.h"

static void fill(struct tr_measure *m, int n)
{
    for (int i = 0; i < n; i++)
        tr_measure_add(m, 1 + (i * 7) % n); /* 1..n in another order, n not a multiple of 7 */
}

static void quantiles_do_not_depend_on_the_order(void **state)
{
    struct tr_measure m;
    struct tr_stats s;

    (void)state;
    tr_measure_init(&m, 100);
    fill(&m, 11);
    tr_measure_stats(&s, &m);
    assert_float_equal(s.median, 6, 0);
    assert_float_equal(s.p10, 2, 1e-9);
    assert_float_equal(s.p90, 10, 1e-9);
    tr_measure_done(&m);
}

/* Conover's table A3: with n = 10 values the 2nd from each end enclose the median with 97.9 %, with
 * n = 20 the 6th with 95.9 %; with 6 the extremes do with 96.9 %, and with 5 nothing does. */
static void the_interval_is_that_of_the_order_statistics(void **state)
{
    static const struct {
        int n;
        double half;
    } want[] = {{5, 2}, {6, 2.5}, {10, 3.5}, {20, 4.5}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct tr_measure m;
        struct tr_stats s;

        tr_measure_init(&m, 100);
        fill(&m, want[i].n);
        tr_measure_stats(&s, &m);
        assert_float_equal(s.ci95, want[i].half, 1e-9);
        tr_measure_done(&m);
    }
}

static void no_steps_give_zeros_and_old_steps_give_way(void **state)
{
    struct tr_measure m;
    struct tr_stats s;

    (void)state;
    tr_measure_init(&m, 3);
    tr_measure_stats(&s, &m);
    assert_float_equal(s.median, 0, 0);
    for (int i = 0; i < 6; i++)
        tr_measure_add(&m, i);
    tr_measure_stats(&s, &m);
    assert_float_equal(s.median, 4, 0);
    tr_measure_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_do_not_depend_on_the_order),
        cmocka_unit_test(the_interval_is_that_of_the_order_statistics),
        cmocka_unit_test(no_steps_give_zeros_and_old_steps_give_way),
    };

    return cmocka_run_group_tests_name("step times", tests, NULL, NULL);
}
