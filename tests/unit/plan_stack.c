/* Stacks: sets of constants by name, and what is learned of them from measured runs. */
#include "tests/unit/plan_world.h"

#include <math.h>

static struct pl_trainer stack_of(const char *text, const char *trainer)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_trainer ret;
    struct err e = {0};

    if (pl_stack_parse(&ret, v, pl_trainer_find(trainer), &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return ret;
}

static double seconds_of(const struct world *x, const struct pl_trainer *trainer,
                         const char *layout)
{
    struct pl_layout l = layout_of(x, layout);
    struct pl_cost cost;

    pl_cost(&cost, problem_with(x, trainer), &l);
    return cost.total;
}

static const char *const LAYOUT = "{'world':64,'tp':4,'pp':4,'micro_batch':1}";

static void every_preset_survives_its_json(void **state)
{
    (void)state;
    for (const char *const *name = pl_stack_presets(); *name; name++) {
        AUTO_JSON *given = json_string(*name), *back = NULL, *again = NULL;
        struct pl_trainer one, two;
        struct err e = {0};

        if (pl_stack_parse(&one, given, pl_trainer_find("any"), &e) < 0)
            fail_msg("%s: %s %s", *name, e.pointer, e.text);
        assert_string_equal(one.stack.name, *name);
        back = pl_stack_json(&one);
        assert_int_equal(pl_stack_parse(&two, back, pl_trainer_find("any"), &e), 0);
        again = pl_stack_json(&two);
        assert_true(json_equal(back, again));
    }
}

static void the_shipped_constants_change_nothing(void **state)
{
    struct world x = world_of("llama-8b", "dgx-a100", 8, 256, "megatron");
    struct pl_trainer named = stack_of("{'name':'mine'}", "megatron");

    (void)state;
    assert_float_equal(seconds_of(&x, &named, LAYOUT), seconds_of(&x, x.t, LAYOUT), 0);
}

static void constants_and_facts_are_what_a_problem_is_computed_with(void **state)
{
    struct world x = world_of("llama-8b", "dgx-a100", 8, 256, "megatron");
    struct pl_trainer slow = stack_of("{'constants':{'matrix':0.5}}", "megatron");
    struct pl_trainer big = stack_of("{'constants':{'reserve_gib':12}}", "megatron");
    struct pl_trainer unfused = stack_of("{'runs':{'tp_async':true}}", "megatron");
    struct pl_layout l = layout_of(&x, LAYOUT);
    struct pl_memory shipped, own, kept;

    (void)state;
    assert_true(seconds_of(&x, &slow, LAYOUT) > 1.5 * seconds_of(&x, x.t, LAYOUT));
    pl_memory_worst(&shipped, problem_of(&x), &l);
    pl_memory_worst(&own, problem_with(&x, &big), &l);
    assert_float_equal(own.total - shipped.total, 10 * 0x1p30, 1);
    pl_memory_worst(&kept, problem_with(&x, &unfused), &l);
    assert_true(kept.bytes[PL_MEM_ACTIVATIONS] > 1.2 * shipped.bytes[PL_MEM_ACTIVATIONS]);
}

static void each_constant_slows_or_swells_a_layout(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 8, 256, "any");
    static const char layout[] = "{'world':64,'tp':4,'pp':2,'ep':2,'micro_batch':4,'zero':1}";
    struct pl_layout l = layout_of(&x, layout);

    (void)state;
    for (const struct pl_constant_name *n = pl_constant_names; n->name; n++) {
        struct pl_trainer less = *x.t, more;
        struct pl_cost a, b;
        struct pl_memory c, d;

        snprintf(less.stack.name, sizeof(less.stack.name), "less");
        less.stack.median = pl_default_constants;
        less.tp_overlap = true; /* else tp_hidden has no bearing */
        more = less;
        *pl_constant(&less.stack.median, n) = n->min;
        *pl_constant(&more.stack.median, n) = n->max;
        pl_cost(&a, problem_with(&x, &less), &l);
        pl_cost(&b, problem_with(&x, &more), &l);
        pl_memory_rank(&c, problem_with(&x, &less), &l, l.world - 1); /* it holds the logits */
        pl_memory_rank(&d, problem_with(&x, &more), &l, l.world - 1);
        if (a.total == b.total && c.total == d.total)
            fail_msg("%s has no effect", n->name);
    }
}

static void bad_stacks_are_refused_by_pointer(void **state)
{
    static const struct {
        const char *json, *pointer, *text;
    } row[] = {
        {"'nanotro'", "", "did you mean \"nanotron\"?"},
        {"7", "", "a preset's name or an object"},
        {"{'like':'nope'}", "/like", "unknown stack"},
        {"{'runs':{'flash':1}}", "/runs/flash", ""},
        {"{'runs':{'fast':true}}", "/runs/fast", "unknown"},
        {"{'constants':{'near':2}}", "/constants/near", ""},
        {"{'constants':{'nearly':1}}", "/constants/nearly", "unknown"},
        {"{'constants':{'near':{'median':0.5,'width':1}}}", "/constants/near/width", "unknown"},
        {"{'constants':{'near':{'deviation':0.1}}}", "/constants/near/median", "missing"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].json);
        struct pl_trainer to;
        struct err e = {0};

        if (pl_stack_parse(&to, v, pl_trainer_find("any"), &e) >= 0)
            fail_msg("accepted: %s", row[i].json);
        if (strcmp(e.pointer, row[i].pointer) || !strstr(e.text, row[i].text))
            fail_msg("%s: %s %s", row[i].json, e.pointer, e.text);
    }
}

/* ---- learning ------------------------------------------------------------ */

/* Runs of layouts over tp, pp and micro_batch in a stack with these constants. */
static size_t runs_of(struct pl_sample *to, const struct world *x, const struct pl_trainer *truth,
                      int from)
{
    static const int tp[] = {1, 2, 4, 8}, pp[] = {1, 2, 4}, mb[] = {1, 2, 4};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(tp) * ARRAY_LEN(pp) * ARRAY_LEN(mb); i++) {
        char text[160];

        if ((int)(i % 5) != from)
            continue;
        snprintf(text, sizeof(text), "{'world':64,'tp':%d,'pp':%d,'micro_batch':%d,'zero':1}",
                 tp[i % 4], pp[i / 4 % 3], mb[i / 12]);
        to[n] = (struct pl_sample){
            .model = &x->m, .cluster = &x->c, .workload = &x->w, .layout = layout_of(x, text)};
        pl_sample_predict(&to[n].seconds, &to[n].bytes, truth, &to[n]);
        n++;
    }
    return n;
}

static void runs_of_a_stack_teach_its_constants(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 8, 256, "any");
    struct pl_trainer truth = stack_of("{'constants':{'matrix':0.75,'near':0.3,'attention':0.5,"
                                       "'kernel_us':9,'activation':1.6}}",
                                       "any");
    struct pl_sample learned_from[36], judged_by[36];
    size_t n = runs_of(learned_from, &x, &truth, 0), m = runs_of(judged_by, &x, &truth, 2);
    struct pl_learned learned;

    (void)state;
    assert_true(n >= 7 && m >= 7);
    pl_learn(&learned, x.t, learned_from, n, "mine");
    for (size_t i = 0; i < m; i++) {
        double seconds, bytes, before;

        pl_sample_predict(&before, NULL, x.t, &judged_by[i]);
        pl_sample_predict(&seconds, &bytes, &learned.trainer, &judged_by[i]);
        assert_true(fabs(before / judged_by[i].seconds - 1) > 0.1);
        assert_float_equal(seconds / judged_by[i].seconds, 1, 0.05);
        assert_float_equal(bytes / judged_by[i].bytes, 1, 0.05);
    }
}

static void without_runs_the_prior_is_what_is_known(void **state)
{
    struct pl_trainer base =
        stack_of("{'constants':{'near':{'median':0.5,'deviation':0.1}}}", "any");
    struct pl_learned learned;

    (void)state;
    pl_learn(&learned, &base, NULL, 0, "mine");
    assert_string_equal(learned.trainer.stack.name, "mine");
    assert_float_equal(learned.trainer.stack.median.near, 0.5, 1e-6);
    assert_float_equal(learned.trainer.stack.deviation.near, 0.1, 1e-6);
    assert_true(learned.trainer.stack.deviation.far > 0.3); /* said nowhere: of any software */
}

static void runs_narrow_what_they_depend_on(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 8, 256, "any");
    struct pl_sample run[36];
    size_t n = runs_of(run, &x, x.t, 1);
    struct pl_learned before, after;

    (void)state;
    pl_learn(&before, x.t, run, 0, "mine");
    pl_learn(&after, x.t, run, n, "mine");
    assert_true(after.trainer.stack.deviation.matrix < 0.7 * before.trainer.stack.deviation.matrix);
    assert_float_equal(after.trainer.stack.deviation.expert, before.trainer.stack.deviation.expert,
                       1e-6); /* there are none */
}

static void a_run_out_of_memory_raises_the_planned_bytes(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "any");
    struct pl_sample run = {.model = &x.m,
                            .cluster = &x.c,
                            .workload = &x.w,
                            .layout = layout_of(&x, "{'world':8,'tp':4,'micro_batch':2,'zero':1}"),
                            .oom = true};
    struct pl_learned learned;
    double planned, now;

    (void)state;
    pl_sample_predict(NULL, &planned, x.t, &run);
    assert_true(planned < pl_memory_offered(&x.c, 0));
    pl_learn(&learned, x.t, &run, 1, "mine");
    pl_sample_predict(NULL, &now, &learned.trainer, &run);
    assert_true(now > 1.05 * planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_survives_its_json),
        cmocka_unit_test(the_shipped_constants_change_nothing),
        cmocka_unit_test(constants_and_facts_are_what_a_problem_is_computed_with),
        cmocka_unit_test(each_constant_slows_or_swells_a_layout),
        cmocka_unit_test(bad_stacks_are_refused_by_pointer),
        cmocka_unit_test(runs_of_a_stack_teach_its_constants),
        cmocka_unit_test(without_runs_the_prior_is_what_is_known),
        cmocka_unit_test(runs_narrow_what_they_depend_on),
        cmocka_unit_test(a_run_out_of_memory_raises_the_planned_bytes),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
