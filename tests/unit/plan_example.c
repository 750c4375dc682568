/* Worked examples: each is complete, legal and consistent with itself. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "plan/plan.h"

static void every_example_gives_a_layout_for_each_row(void **state)
{
    (void)state;
    for (const char *const *name = pl_examples(); *name; name++) {
        AUTO_JSON *v = NULL;
        struct err e = {0};
        json_t *rows, *row;
        size_t i;

        if (pl_example_json(&v, *name, &e) < 0)
            fail_msg("%s", e.text);
        rows = json_object_get(v, "rows");
        assert_true(json_array_size(rows) >= 3);
        json_array_foreach(rows, i, row) {
            double tokens = json_number_value(json_object_get(row, "tokens_per_s"));
            double seconds = json_number_value(json_object_get(row, "seconds"));
            double mfu = json_number_value(json_object_get(row, "mfu"));

            assert_true(tokens > 0 && seconds > 0);
            assert_true(mfu > 0 && mfu < 1);
            assert_int_equal(
                json_integer_value(json_object_get(row, "devices")),
                json_integer_value(json_object_get(json_object_get(row, "layout"), "world")));
        }
        assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "efficiency")) == 1);
    }
}

static void an_unknown_example_is_not_found(void **state)
{
    json_t *v = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_example_json(&v, "frontier-2t", &e), -ENOENT);
    assert_null(v);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_example_gives_a_layout_for_each_row),
    cmocka_unit_test(an_unknown_example_is_not_found),
};

UNIT_MAIN(tests)
