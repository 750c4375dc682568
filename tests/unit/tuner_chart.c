/* Axes of a report's charts, for the ranges that measured numbers have. */
#include "tests/unit/unit.h"

#include <float.h>
#include <math.h>

#include "tuner/client/chart.h"

static void every_range_gets_an_extent_and_steps(void **state)
{
    static const double ranges[][2] = {
        {-3, 7},           {0, 0},
        {1e18, 1e18},      {1e5, 1e5 + 1e-9},
        {-1e-5, 0},        {DBL_TRUE_MIN, DBL_TRUE_MIN},
        {0, DBL_TRUE_MIN}, {-DBL_MAX, DBL_MAX},
        {NAN, NAN},        {INFINITY, -INFINITY}, /* nothing was seen */
    };
    FILE *out = fopen("/dev/null", "w");

    (void)state;
    assert_non_null(out);
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        double min = ranges[i][0], max = ranges[i][1];
        struct chart c = {.title = "",
                          .x_axis = "",
                          .y_axis = "",
                          .x_min = min,
                          .x_max = max,
                          .y_min = min,
                          .y_max = max};

        chart_open(&c, out);
        assert_true(c.x_min < c.x_max && c.x_step > 0);
        assert_true((c.x_max - c.x_min) / c.x_step < 10);
        if (isfinite(max - min))
            assert_true(c.x_min <= min && c.x_max >= max);
        assert_true(c.y_min == c.x_min && c.y_max == c.x_max && c.y_step == c.x_step);
        chart_close(&c);
    }
    fclose(out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_range_gets_an_extent_and_steps),
};

UNIT_MAIN(tests)
