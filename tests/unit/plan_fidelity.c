/* What is left of a layout at a fidelity: a legal layout of a smaller problem. */
#include <errno.h>

#include "tests/unit/unit.h"

#include "plan/plan.h"
#include "tests/unit/plan_world.h"

struct listed {
    struct world world;
    struct pl_layout *layout;
    size_t n;
};

static void list_of(struct listed *ret, const struct world *world, const char *space_text)
{
    AUTO_JSON *v = unit_json(space_text);
    struct pl_space *space = mem_alloc(sizeof(*space));
    struct err e = {0};

    ret->world = *world;
    if (pl_space_parse(space, v, problem_of(&ret->world), &e) < 0 ||
        pl_space_list(&ret->layout, &ret->n, 1000000, space, problem_of(&ret->world), NULL, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    free(space);
    assert_true(ret->n > 50);
}

static int replica_batches(const struct pl_workload *workload, const struct pl_layout *layout)
{
    return workload->global_batch / (layout->micro_batch * layout->dp);
}

/* Keys that no fidelity touches. */
static void assert_same_shape(const struct pl_layout *small, const struct pl_layout *whole)
{
    assert_int_equal(small->tp, whole->tp);
    assert_int_equal(small->pp, whole->pp);
    assert_int_equal(small->cp, whole->cp);
    assert_int_equal(small->ep, whole->ep);
    assert_int_equal(small->vp, whole->vp);
    assert_int_equal(small->micro_batch, whole->micro_batch);
    assert_int_equal(small->schedule, whole->schedule);
    assert_int_equal(small->recompute, whole->recompute);
    assert_int_equal(small->precision, whole->precision);
}

static double device_seconds(const struct pl_problem *problem, const struct pl_layout *layout)
{
    struct pl_cost cost;

    pl_cost(&cost, problem, layout);
    return cost.total * layout->world;
}

static void assert_read_back(const struct pl_reduced *reduced, const struct pl_problem *whole)
{
    AUTO_JSON *v = pl_reduced_json(reduced);
    struct pl_reduced again;
    struct err e = {0};

    if (pl_reduced_parse(&again, v, whole, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    assert_int_equal(again.model.layers, reduced->model.layers);
    assert_int_equal(again.workload.global_batch, reduced->workload.global_batch);
    assert_true(pl_layout_equal(&again.layout, &reduced->layout));
    json_object_set_new(v, "layers", json_integer(whole->model->layers + 1));
    assert_int_equal(pl_reduced_parse(&again, v, whole, &e), -ERANGE);
    assert_string_equal(e.pointer, "/layers");
}

/* Reductions of some 500 layouts of LISTED: legal, of the same shape, cheaper. How many there
 * are. */
static int check_all(const struct listed *listed, const struct pl_fidelity *fidelity)
{
    struct pl_problem whole = world_problem(&listed->world);
    int reduced = 0;

    for (size_t i = 0; i < listed->n; i += 1 + listed->n / 500) {
        const struct pl_layout *l = &listed->layout[i];
        struct pl_reduced r;
        struct pl_problem small;
        struct pl_verdict verdict;

        if (!pl_reduce(&r, &whole, l, fidelity))
            continue;
        small = pl_reduced_problem(&r, &whole);
        if (!pl_layout_check(&verdict, &small, &r.layout))
            fail_msg("%s", verdict.v[0].text);
        assert_same_shape(&r.layout, l);
        if (fidelity->micro_batches == 0)
            assert_int_equal(replica_batches(&r.workload, &r.layout),
                             replica_batches(&listed->world.w, l));
        assert_true(device_seconds(&small, &r.layout) < device_seconds(&whole, l));
        assert_read_back(&r, &whole);
        reduced++;
    }
    return reduced;
}

static void every_reduction_is_legal_of_one_shape_and_cheaper(void **state)
{
    static const struct pl_fidelity list[] = {
        {.replicas = 1},
        {.replicas = 2},
        {.stage_layers = 1},
        {.micro_batches = 4},
        {.replicas = 2, .stage_layers = 2, .micro_batches = 8},
    };
    struct world dense = world_of("gpt-22B", "dgx-h100", 8, 128, "megatron");
    struct world experts = world_of("mixtral-8x7b", "dgx-h100", 4, 128, "megatron");
    struct world here = world_of("gpt-22B", "dgx-h100", 2, 32, "partune");
    struct listed l[3];

    (void)state;
    list_of(&l[0], &dense, "{'schedule': ['1f1b', 'interleaved'], 'world': [64]}");
    list_of(&l[1], &experts, "{'world': [32], 'zero': [0, 1]}");
    list_of(&l[2], &here, "{'world': [8, 16], 'vp': [1, 2]}");
    for (size_t k = 0; k < ARRAY_LEN(l); k++) {
        for (size_t f = 0; f < ARRAY_LEN(list); f++)
            assert_true(check_all(&l[k], &list[f]) > 0);
        free(l[k].layout);
    }
}

static void fewer_replicas_leave_the_work_of_a_replica(void **state)
{
    struct world w = world_of("gpt-22B", "dgx-h100", 8, 256, "megatron");
    struct pl_problem whole = world_problem(&w), small;
    struct pl_layout l = layout_of(&w, "{'tp': 4, 'pp': 2, 'micro_batch': 2, 'zero': 1}");
    struct pl_reduced r;
    struct pl_cost a, b;

    (void)state;
    assert_true(pl_reduce(&r, &whole, &l, &(struct pl_fidelity){.replicas = 3}));
    assert_int_equal(r.layout.dp, 2); /* the largest part of 8 that is at most 3 */
    assert_int_equal(r.layout.world, 16);
    assert_int_equal(r.layout.zero, 1);
    assert_int_equal(r.workload.global_batch, 64);
    small = pl_reduced_problem(&r, &whole);
    pl_cost(&a, &whole, &l);
    pl_cost(&b, &small, &r.layout);
    assert_float_equal(a.seconds[PL_COST_FORWARD], b.seconds[PL_COST_FORWARD], 1e-12);
    assert_float_equal(a.seconds[PL_COST_BUBBLE], b.seconds[PL_COST_BUBBLE], 1e-12);
    assert_true(pl_reduce(&r, &whole, &l, &(struct pl_fidelity){.replicas = 1}));
    assert_int_equal(r.layout.world, 8);
    assert_int_equal(r.layout.zero, 0); /* one replica has nothing to shard over */
}

static void layers_shrink_only_where_all_are_alike(void **state)
{
    struct world w = world_of("gpt-22B", "dgx-h100", 2, 64, "megatron");
    struct pl_problem p = world_problem(&w);
    struct pl_layout l = layout_of(&w, "{'tp': 4, 'pp': 4, 'micro_batch': 1}");
    struct pl_reduced r;

    (void)state;
    assert_int_equal(w.m.layers, 48);
    assert_true(pl_reduce(&r, &p, &l, &(struct pl_fidelity){.stage_layers = 3}));
    assert_int_equal(r.model.layers, 12);
    w.m.sliding_window = 512;
    w.m.global_every = 2;
    assert_false(pl_reduce(&r, &p, &l, &(struct pl_fidelity){.stage_layers = 3}));
}

static void what_cannot_shrink_has_no_trial(void **state)
{
    struct world w = world_of("gpt-22B", "dgx-h100", 2, 64, "megatron");
    struct pl_problem p = world_problem(&w);
    struct pl_layout l = layout_of(&w, "{'tp': 4, 'pp': 4, 'micro_batch': 1}");
    struct pl_reduced r;

    (void)state;
    assert_int_equal(l.dp, 1);
    assert_false(pl_reduce(&r, &p, &l, &(struct pl_fidelity){.replicas = 1}));
    assert_true(pl_reduce(&r, &p, &l, &(struct pl_fidelity){.replicas = 1, .steps = 2}));
    assert_true(pl_reduce(&r, &p, &l, &(struct pl_fidelity){.micro_batches = 3, .devices = 16}));
    assert_int_equal(r.workload.global_batch, 4); /* a whole round of the pipeline */
    assert_false(pl_reduce(&r, &p, &l, &(struct pl_fidelity){.micro_batches = 3, .devices = 8}));
}

static void parse_key(const char *text, int want, const char *pointer)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_fidelity f[PL_MAX_FIDELITIES];
    struct err e = {0};
    int n = -1, r = pl_fidelities_parse(f, &n, v, &e);

    if (pointer) {
        assert_true(r < 0);
        assert_string_equal(e.pointer, pointer);
        return;
    }
    assert_int_equal(r, 0);
    assert_int_equal(n, want);
}

static void every_member_is_read(void **state)
{
    AUTO_JSON *v = unit_json("{'fidelity': {'replicas': 2, 'stage_layers': 3, 'micro_batches': 4,"
                             " 'steps': 5, 'devices': 6}}");
    AUTO_JSON *written = NULL;
    struct pl_fidelity f[PL_MAX_FIDELITIES];
    struct err e = {0};
    int n = 0;

    (void)state;
    assert_int_equal(pl_fidelities_parse(f, &n, v, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(f[0].replicas, 2);
    assert_int_equal(f[0].stage_layers, 3);
    assert_int_equal(f[0].micro_batches, 4);
    assert_int_equal(f[0].steps, 5);
    assert_int_equal(f[0].devices, 6);
    written = pl_fidelities_json(f, n);
    assert_true(json_equal(json_array_get(written, 0), json_object_get(v, "fidelity")));
}

static void the_key_is_read_and_refused_by_pointer(void **state)
{
    (void)state;
    parse_key("{}", 0, NULL);
    parse_key("{'fidelity': 'full'}", 0, NULL);
    parse_key("{'fidelity': 'auto'}", 1, NULL);
    parse_key("{'fidelity': {'replicas': 2, 'steps': 3}}", 1, NULL);
    parse_key("{'fidelity': [{'stage_layers': 2, 'devices': 16}, {'micro_batches': 8}]}", 2, NULL);
    parse_key("{'fidelity': 'small'}", 0, "/fidelity");
    parse_key("{'fidelity': 3}", 0, "/fidelity");
    parse_key("{'fidelity': []}", 0, "/fidelity");
    parse_key("{'fidelity': {}}", 0, "/fidelity");
    parse_key("{'fidelity': {'devices': 8}}", 0, "/fidelity");
    parse_key("{'fidelity': {'layers': 8}}", 0, "/fidelity/layers");
    parse_key("{'fidelity': {'replicas': 0}}", 0, "/fidelity/replicas");
    parse_key("{'fidelity': [{'replicas': 1}, {'steps': 1}]}", 0, "/fidelity/1/steps");
}

static void fewer_steps_bound_a_trial(void **state)
{
    struct pl_trial_limits full = pl_trial_limits_default, few;

    (void)state;
    few = pl_fidelity_limits(&full, &(struct pl_fidelity){.steps = 3});
    assert_int_equal(few.min_steps, 3);
    assert_int_equal(few.max_steps, 3);
    assert_int_equal(few.warmup_steps, full.warmup_steps);
    few = pl_fidelity_limits(&full, NULL);
    assert_int_equal(few.max_steps, full.max_steps);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_reduction_is_legal_of_one_shape_and_cheaper),
    cmocka_unit_test(fewer_replicas_leave_the_work_of_a_replica),
    cmocka_unit_test(layers_shrink_only_where_all_are_alike),
    cmocka_unit_test(what_cannot_shrink_has_no_trial),
    cmocka_unit_test(every_member_is_read),
    cmocka_unit_test(the_key_is_read_and_refused_by_pointer),
    cmocka_unit_test(fewer_steps_bound_a_trial),
};

UNIT_MAIN(tests)
