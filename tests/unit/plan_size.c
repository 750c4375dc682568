/* Sizing: the best layout of each number of devices, what more bring, how many suffice. */
#include "tests/unit/plan_world.h"

#include <math.h>

enum { SIZES = 6 };

/* llama-70b on 1, 2, 4 … nodes; nothing fits on the first. */
static void size_all(struct pl_size sizes[SIZES])
{
    for (int i = 0; i < SIZES; i++) {
        struct world x = world_of("llama-70b", "dgx-h100", 1 << i, 64, "megatron");
        struct pl_space space;
        struct err e = {0};

        assert_int_equal(pl_space_parse(&space, NULL, problem_of(&x), &e), 0);
        pl_size_of(&sizes[i], &space, problem_of(&x), 0.05, NULL);
        assert_int_equal(sizes[i].devices, 8 << i);
        assert_true(sizes[i].exact);
    }
    pl_sizes_compare(sizes, SIZES);
}

static void a_size_has_its_best_layout(void **state)
{
    struct pl_size sizes[SIZES];

    (void)state;
    size_all(sizes);
    assert_false(sizes[0].fits);
    assert_non_null(strstr(sizes[0].reason.text, "fits: the smallest"));
    for (int i = 0; i < SIZES; i++) {
        struct world x = world_of("llama-70b", "dgx-h100", 1 << i, 64, "megatron");
        struct pl_space space;
        struct pl_plan plan;
        struct err e = {0};

        if (!sizes[i].fits)
            continue;
        assert_int_equal(pl_space_parse(&space, NULL, problem_of(&x), &e), 0);
        assert_int_equal(pl_plan_rank(&plan, &space, problem_of(&x), 1, 0.05, PL_TOKENS_PER_S, &e),
                         0);
        assert_true(pl_layout_equal(&plan.at[0].layout, &sizes[i].layout));
        assert_true(plan.at[0].cost.tokens_per_s == sizes[i].tokens_per_s);
        assert_true(plan.at[0].memory.total == sizes[i].bytes);
        assert_int_equal(sizes[i].layout.world, sizes[i].devices);
        /* As wide as the model may be off without a trial: by 30 % as a whole, and more. */
        assert_true(sizes[i].lo < 0.7 * sizes[i].tokens_per_s);
        assert_true(sizes[i].hi > sizes[i].tokens_per_s / 0.7);
        pl_plan_done(&plan);
    }
}

static void further_devices_are_compared_with_the_first(void **state)
{
    struct pl_size sizes[SIZES];
    double brought = 0, each;
    int first = 0;

    (void)state;
    size_all(sizes);
    while (!sizes[first].fits)
        first++;
    assert_true(first > 0 && first < SIZES - 2);
    each = sizes[first].tokens_per_s / sizes[first].devices;
    for (int i = first, before = 0; i < SIZES; before = sizes[i++].devices) {
        assert_true(sizes[i].fits);
        assert_true(fabs(sizes[i].efficiency * each * sizes[i].devices / sizes[i].tokens_per_s -
                         1) < 1e-12);
        brought += sizes[i].marginal * each * (sizes[i].devices - before);
        assert_true(fabs(brought / sizes[i].tokens_per_s - 1) < 1e-12); /* they add up */
    }
    /* A batch of 64 is little work for 256 devices. */
    assert_true(sizes[SIZES - 1].efficiency < 1 && sizes[SIZES - 1].marginal < 1);
    assert_false(sizes[0].efficiency > 0);
}

static void the_fewest_devices_reach_what_is_wanted(void **state)
{
    struct pl_size at[] = {{.devices = 8, .fits = false},
                           {.devices = 16, .fits = true, .tokens_per_s = 100, .lo = 60},
                           {.devices = 32, .fits = true, .tokens_per_s = 190, .lo = 110},
                           {.devices = 64, .fits = false},
                           {.devices = 128, .fits = true, .tokens_per_s = 400, .lo = 210}};
    int n = ARRAY_LEN(at);

    (void)state;
    assert_int_equal(pl_sizes_fewest(at, n, 100, false), 1);
    assert_int_equal(pl_sizes_fewest(at, n, 100, true), 2);
    assert_int_equal(pl_sizes_fewest(at, n, 191, false), 4);
    assert_int_equal(pl_sizes_fewest(at, n, 401, false), -1);
    pl_sizes_compare(at, n);
    assert_true(fabs(at[2].marginal - 0.9) < 1e-12); /* 90 more from 16 more, of 100 from 16 */
    assert_true(fabs(at[4].marginal - 210.0 / 96 / 6.25) < 1e-12);
    assert_int_equal(pl_sizes_paying(at, n, 0.95), 1);
    assert_int_equal(pl_sizes_paying(at, n, 0.9 - 1e-9), 2);
    assert_int_equal(pl_sizes_paying(at, n, 0.3), 4);
    assert_int_equal(pl_sizes_paying(at, 1, 0.3), -1);
    assert_int_equal(pl_sizes_paying(at, 2, 0.3), -1); /* one size has no step */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_has_its_best_layout),
        cmocka_unit_test(further_devices_are_compared_with_the_first),
        cmocka_unit_test(the_fewest_devices_reach_what_is_wanted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
