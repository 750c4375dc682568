/*
 * Learning rates, compared with numbers computed apart from the code, by the formulas of Megatron's
 * OptimizerParamScheduler: peak 1e-3, minimum 1e-4, 10 steps of warm-up, the horizon at step 110.
 */
#include "tests/unit/unit.h"
#include "trainer/lr.h"

#include <math.h>

enum { POINTS = 8 };

static const int steps[POINTS] = {1, 5, 10, 35, 85, 100, 109, 110};

static const struct {
    struct tr_lr lr;
    double want[POINTS];
} cases[] = {
    {{1e-3, 1e-4, 10, 110, TR_LR_COSINE, TR_WSD_EXPONENTIAL, 0},
     {0.0001, 0.00050000000000000001, 0.001, 0.00086819805153394642, 0.00023180194846605365,
      0.00012202456766718092, 0.00010022204783542078, 0.0001}},
    {{1e-3, 1e-4, 10, 110, TR_LR_LINEAR, TR_WSD_EXPONENTIAL, 0},
     {0.0001, 0.00050000000000000001, 0.001, 0.00077500000000000008, 0.00032499999999999999,
      0.00018999999999999998, 0.00010900000000000001, 0.0001}},
    {{1e-3, 1e-4, 10, 110, TR_LR_CONSTANT, TR_WSD_EXPONENTIAL, 0},
     {0.0001, 0.00050000000000000001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001}},
    {{1e-3, 1e-4, 10, 110, TR_LR_INVERSE_SQRT, TR_WSD_EXPONENTIAL, 0},
     {0.0001, 0.00050000000000000001, 0.001, 0.00053452248382484873, 0.00034299717028501769,
      0.00031622776601683794, 0.00030289126640769133, 0.00030151134457776364}},
    {{1e-3, 1e-4, 10, 110, TR_LR_WSD, TR_WSD_EXPONENTIAL, 20},
     {0.0001, 0.00050000000000000001, 0.001, 0.001, 0.001, 0.00047279220613578561,
      0.00013173843145723984, 0.0001}},
    {{1e-3, 1e-4, 10, 110, TR_LR_WSD, TR_WSD_LINEAR, 20},
     {0.0001, 0.00050000000000000001, 0.001, 0.001, 0.001, 0.00055000000000000003,
      0.00014500000000000006, 0.0001}},
    {{1e-3, 1e-4, 10, 110, TR_LR_WSD, TR_WSD_COSINE, 20},
     {0.0001, 0.00050000000000000001, 0.001, 0.001, 0.001, 0.00055000000000000003,
      0.00010554024673218806, 0.0001}},
    {{1e-3, 1e-4, 10, 110, TR_LR_WSD, TR_WSD_MINUS_SQRT, 20},
     {0.0001, 0.00050000000000000001, 0.001, 0.001, 0.001, 0.00036360389693210719,
      0.00012278850896719329, 0.0001}},
};

static void a_schedule_has_megatrons_rates(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int k = 0; k < POINTS; k++) {
            double got = tr_lr_at(&cases[i].lr, steps[k]), want = cases[i].want[k];

            if (fabs(got - want) > 1e-14)
                fail_msg("%s %d, step %d: %.17g, not %.17g", tr_lr_style_names[cases[i].lr.style],
                         (int)cases[i].lr.wsd_style, steps[k], got, want);
        }
}

static void past_the_horizon_all_but_constant_have_the_minimum(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_float_equal(tr_lr_at(&cases[i].lr, 5000),
                           cases[i].lr.style == TR_LR_CONSTANT ? 1e-3 : 1e-4, 0);
}

/* At the end of the stable phase the rate is still the peak; one step later it is not. */
static void wsd_holds_the_peak_until_its_decay(void **state)
{
    (void)state;
    for (int w = TR_WSD_EXPONENTIAL; w <= TR_WSD_MINUS_SQRT; w++) {
        struct tr_lr lr = {1, 0, 0, 100, TR_LR_WSD, (enum tr_wsd_style)w, 20};

        for (int n = 1; n <= 80; n++)
            assert_float_equal(tr_lr_at(&lr, n), 1, 0);
        for (int n = 81; n <= 100; n++)
            assert_true(tr_lr_at(&lr, n) < tr_lr_at(&lr, n - 1));
    }
}

static void words_are_found_and_others_are_not(void **state)
{
    (void)state;
    assert_int_equal(tr_lr_word(tr_lr_style_names, "inverse-square-root"), TR_LR_INVERSE_SQRT);
    assert_int_equal(tr_lr_word(tr_wsd_style_names, "minus_sqrt"), TR_WSD_MINUS_SQRT);
    assert_int_equal(tr_lr_word(tr_lr_style_names, "WSD"), -1);
    assert_int_equal(tr_lr_word(tr_lr_style_names, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schedule_has_megatrons_rates),
        cmocka_unit_test(past_the_horizon_all_but_constant_have_the_minimum),
        cmocka_unit_test(wsd_holds_the_peak_until_its_decay),
        cmocka_unit_test(words_are_found_and_others_are_not),
    };

    return cmocka_run_group_tests_name("learning rates", tests, NULL, NULL);
}
