/* Objectives, and the watts of a job: numbers worked out by hand. */
#include <math.h>

#include "tests/unit/plan_world.h"
#include "tests/unit/problem.h"

static struct pl_cluster cluster_of(const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_cluster c;
    struct err e = {0};

    if (pl_cluster_parse(&c, v, NULL, &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return c;
}

/* 6 s of work (forward, backward, optimizer), 4 s of waiting. */
static struct pl_cost ten_seconds(void)
{
    struct pl_cost c = {.total = 10, .tokens_per_s = 1000};

    c.seconds[PL_COST_FORWARD] = 2;
    c.seconds[PL_COST_BACKWARD] = 3;
    c.seconds[PL_COST_OPTIMIZER] = 1;
    c.seconds[PL_COST_TP] = 1.5;
    c.seconds[PL_COST_BUBBLE] = 2.5;
    return c;
}

static void gpus_draw_by_what_they_do(void **state)
{
    struct pl_cluster c =
        cluster_of("{'profile': 'dgx-h100', 'nodes': 2, 'busy_watts': 700, 'idle_watts': 100}");
    struct pl_layout l = {.world = 8, .threads = 1};
    struct pl_cost cost = ten_seconds();
    double joules[PL_COST_CLASSES], watts = pl_watts(joules, &c, &l, &cost);

    (void)state;
    /* 8 of the 16 are metered: 6 s at 8 x 700, 4 s at 8 x 100 */
    assert_float_equal(watts, (6 * 5600 + 4 * 800) / 10.0, 1e-9);
    assert_float_equal(joules[PL_COST_BACKWARD], 3 * 5600, 1e-9);
    assert_float_equal(joules[PL_COST_BUBBLE], 2.5 * 800, 1e-9);
    assert_true(pl_watts_known(&c));
    assert_float_equal(pl_objective_expected(PL_TOKENS_PER_JOULE, &c, &l, &cost), 1000 / 3680.0,
                       1e-9);
}

/* Counters are of whole hosts: 6 of 8 cores on 2 hosts of 4 leave 2 that idle. */
static void cores_draw_with_their_whole_hosts(void **state)
{
    struct pl_cluster c = cluster_of(
        "{'nodes': 4, 'devices_per_node': 4, 'device': {'kind': 'cpu', 'memory_gib': 1,"
        " 'memory_gbs': 10, 'peak_tflops': {'fp32': 1}, 'busy_watts': 10, 'idle_watts': 4},"
        " 'links': [{'span': 'all', 'gbs': 1}]}");
    struct pl_layout l = {.world = 3, .threads = 2};
    struct pl_cost cost = ten_seconds();

    (void)state;
    /* 8 x 4 W always, 6 x 6 W more for 6 of 10 s */
    assert_float_equal(pl_watts(NULL, &c, &l, &cost), 32 + 0.6 * 36, 1e-9);
    l.world = 32; /* oversubscribed: there are 16 cores */
    assert_float_equal(pl_watts(NULL, &c, &l, &cost), 64 + 0.6 * 96, 1e-9);
}

static void unknown_watts_still_count_what_is_metered(void **state)
{
    struct pl_cluster c = cluster_of("{'profile': 'dgx-h100', 'nodes': 2}");
    struct pl_layout l = {.world = 8, .threads = 1};
    struct pl_cost cost = ten_seconds();

    (void)state;
    assert_false(pl_watts_known(&c));
    assert_float_equal(pl_watts(NULL, &c, &l, &cost), 8, 1e-12);
    c = cluster_of("{'profile': 'dgx-h100', 'nodes': 2, 'busy_watts': 700}");
    assert_float_equal(pl_watts(NULL, &c, &l, &cost), 8 * 700, 1e-9); /* idle: the same */
}

static void a_cost_is_in_the_unit_of_the_objective(void **state)
{
    struct pl_cluster c =
        cluster_of("{'profile': 'dgx-h100', 'nodes': 2, 'busy_watts': 700, 'idle_watts': 100}");
    struct pl_layout l = {.world = 4, .threads = 2};
    struct pl_cost cost = ten_seconds(), in;

    (void)state;
    pl_objective_cost(&in, PL_TOKENS_PER_S, &c, &l, &cost);
    assert_memory_equal(&in, &cost, sizeof(in));
    pl_objective_cost(&in, PL_TOKENS_PER_S_PER_DEVICE, &c, &l, &cost);
    assert_float_equal(in.total, 80, 1e-9);
    assert_float_equal(in.tokens_per_s, 125, 1e-9);
    pl_objective_cost(&in, PL_TOKENS_PER_JOULE, &c, &l, &cost);
    assert_float_equal(in.total, 36800, 1e-6);
    assert_float_equal(in.tokens_per_s * in.total, cost.tokens_per_s * cost.total, 1e-6);
}

static void watts_survive_json_and_have_bounds(void **state)
{
    struct pl_cluster c =
        cluster_of("{'profile': 'dgx-h100', 'nodes': 2, 'busy_watts': 700, 'idle_watts': 100}");
    AUTO_JSON *v = pl_cluster_json(&c), *wrong = unit_json("{'profile': 'dgx-h100',"
                                                           " 'busy_watts': 50, 'idle_watts': 60}");
    struct pl_cluster back;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&back, v, NULL, &e), 0);
    assert_true(back.device.busy_watts == 700 && back.device.idle_watts == 100);
    assert_true(pl_cluster_parse(&back, wrong, NULL, &e) < 0);
    assert_string_equal(e.pointer, "/idle_watts");
}

/* On many devices a job is fast and waits for messages; on few it is slow and busy. */
static void a_plan_ranks_by_its_objective(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 8, 64, "megatron");
    struct pl_space space;
    struct pl_plan plan;
    struct err e = {0};
    AUTO_JSON *v = unit_json("{'world': [8, 64], 'tp': [1, 8], 'pp': [1, 2], 'cp': [1],"
                             " 'micro_batch': [1, 2]}");
    double best[3];

    (void)state;
    x.c.device.busy_watts = 700;
    x.c.device.idle_watts = 100;
    assert_int_equal(pl_space_parse(&space, v, problem_of(&x), &e), 0);
    for (int o = PL_TOKENS_PER_S; o <= PL_TOKENS_PER_JOULE; o++) {
        pl_plan_look(&plan, &space, problem_of(&x), 50, 0.05, (enum pl_objective)o, NULL);
        assert_true(plan.n > 4);
        best[o] = plan.at[0].layout.world;
        for (size_t i = 1; i < plan.n; i++)
            assert_true(pl_objective_expected((enum pl_objective)o, &x.c, &plan.at[i - 1].layout,
                                              &plan.at[i - 1].cost) >=
                        pl_objective_expected((enum pl_objective)o, &x.c, &plan.at[i].layout,
                                              &plan.at[i].cost));
        assert_non_null(strstr(plan.at[plan.n - 1].why, o == PL_TOKENS_PER_JOULE ? "more energy"
                                                        : o == PL_TOKENS_PER_S   ? "slower"
                                                                                 : "device-s"));
        pl_plan_done(&plan);
    }
    assert_true(best[PL_TOKENS_PER_S] == 64);
    assert_true(best[PL_TOKENS_PER_JOULE] == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_draw_by_what_they_do),
        cmocka_unit_test(cores_draw_with_their_whole_hosts),
        cmocka_unit_test(unknown_watts_still_count_what_is_metered),
        cmocka_unit_test(a_cost_is_in_the_unit_of_the_objective),
        cmocka_unit_test(watts_survive_json_and_have_bounds),
        cmocka_unit_test(a_plan_ranks_by_its_objective),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
