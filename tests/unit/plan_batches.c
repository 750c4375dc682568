/* Workloads that list several global batches: each layout has its own, in every part of plan/. */
#include "plan/space_walk.h"
#include "tests/unit/plan_world.h"

#include <errno.h>
#include <math.h>

static void take_batches(struct world *x, const char *text)
{
    AUTO_FREE char *json = mem_printf("{'global_batch':%s}", text);
    AUTO_JSON *v = unit_json(json);
    struct err e = {0};

    if (pl_workload_parse(&x->w, v, &x->m, x->t, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
}

static struct world world_with(const char *model, int nodes, const char *trainer,
                               const char *batches)
{
    struct world x = world_of(model, "dgx-h100", nodes, 1, trainer);

    take_batches(&x, batches);
    return x;
}

static struct pl_space space_of(const struct world *x, const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_space s;
    struct err e = {0};

    if (pl_space_parse(&s, v, problem_of(x), &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return s;
}

static void a_list_is_read_and_written_as_it_is(void **state)
{
    struct world x = world_with("tiny-llama", 1, "any", "[64,16,32]");
    AUTO_JSON *v = pl_workload_json(&x.w), *want = unit_json("[64,16,32]");

    (void)state;
    assert_int_equal(x.w.nbatches, 3);
    assert_int_equal(x.w.global_batch, 64);
    assert_true(json_equal(json_object_get(v, "global_batch"), want));
    take_batches(&x, "[32]"); /* one of several is one */
    assert_int_equal(x.w.nbatches, 0);
    AUTO_JSON *one = pl_workload_json(&x.w);
    assert_int_equal(json_integer_value(json_object_get(one, "global_batch")), 32);
}

static void a_wrong_list_is_refused_by_pointer(void **state)
{
    static const char *const row[][3] = {
        {"[]", "/global_batch", "lists 1 to 16 values, not 0"},
        {"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "/global_batch", "not 17"},
        {"[8,16,8]", "/global_batch/2", "global_batch 8 is listed twice"},
        {"[8,0]", "/global_batch/1", "must be an integer in 1..16777216"},
        {"[8,-8]", "/global_batch/1", "must be an integer in 1..16777216"},
        {"[8,'16']", "/global_batch/1", "must be an integer in 1..16777216"},
        {"[8,1.5]", "/global_batch/1", "must be an integer in 1..16777216"},
        {"[8,33554432]", "/global_batch/1", "must be an integer in 1..16777216"},
        {"'8'", "/global_batch", "global_batch"},
        {"0", "/global_batch", "global_batch"},
    };
    struct world x = world_of("tiny-llama", "dgx-h100", 1, 8, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_FREE char *json = mem_printf("{'global_batch':%s}", row[i][0]);
        AUTO_JSON *v = unit_json(json);
        struct err e = {0};

        if (pl_workload_parse(&x.w, v, &x.m, x.t, &e) >= 0)
            fail_msg("%s is accepted", row[i][0]);
        assert_string_equal(e.pointer, row[i][1]);
        if (!strstr(e.text, row[i][2]))
            fail_msg("%s: %s", row[i][0], e.text);
    }
}

static void a_layout_says_its_batch_only_where_there_are_several(void **state)
{
    struct world several = world_with("tiny-llama", 1, "any", "[16,32]"),
                 one = world_with("tiny-llama", 1, "any", "32");
    struct pl_layout first = layout_of(&several, "{}"),
                     named = layout_of(&several, "{'global_batch':32}"),
                     only = layout_of(&one, "{}"), same = layout_of(&one, "{'global_batch':32}");
    AUTO_JSON *with = pl_layout_json(&named), *without = pl_layout_json(&only);
    char text[160];

    (void)state;
    assert_int_equal(pl_batch(&several.w, &first), 16);
    assert_int_equal(pl_batch(&several.w, &named), 32);
    assert_int_equal(json_integer_value(json_object_get(with, "global_batch")), 32);
    assert_non_null(strstr(pl_layout_text(text, &named), " gb32"));
    assert_int_equal(pl_batch(&one.w, &only), 32);
    assert_true(pl_layout_equal(&only, &same));
    assert_null(json_object_get(without, "global_batch"));
    assert_null(strstr(pl_layout_text(text, &only), "gb"));
}

static void rules_use_the_layouts_own_batch(void **state)
{
    static const struct {
        const char *layout, *text; /* NULL: legal */
    } row[] = {
        {"{'world':4,'micro_batch':4,'global_batch':16}", NULL},
        {"{'world':4,'micro_batch':8,'global_batch':16}",
         "global_batch 16 is not a multiple of micro_batch 8 x dp 4"},
        {"{'world':4,'micro_batch':8,'global_batch':32}", NULL},
        {"{'world':2,'pp':2,'vp':2,'micro_batch':16,'global_batch':16}",
         "1 micro-batches (global_batch 16 / (micro_batch 16 x dp 1)) are not a multiple of pp 2"},
        {"{'world':2,'pp':2,'vp':2,'micro_batch':16,'global_batch':32}", NULL},
        {"{'world':2,'global_batch':24}", "global_batch 24 is not one of 16 and 32"},
    };
    struct world x = world_with("tiny-llama", 1, "any", "[16,32]"),
                 titan = world_with("tiny-llama", 1, "torchtitan", "[16,32]"),
                 one = world_with("tiny-llama", 1, "any", "32");
    struct pl_verdict verdict;
    struct pl_layout l;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        l = layout_of(&x, row[i].layout);
        assert_int_equal(pl_layout_check(&verdict, problem_of(&x), &l), row[i].text == NULL);
        if (row[i].text && !strstr(verdict.v[0].text, row[i].text))
            fail_msg("%s: %s", row[i].layout, verdict.v[0].text);
    }
    /* fewer micro-batches than stages */
    l = layout_of(&titan,
                  "{'world':4,'pp':4,'micro_batch':8,'global_batch':16,'precision':'bf16'}");
    assert_false(pl_layout_check(&verdict, problem_of(&titan), &l));
    assert_non_null(strstr(verdict.v[0].text, "does not support 2 micro-batches with pp 4"));
    l.global_batch = 32;
    assert_true(pl_layout_check(&verdict, problem_of(&titan), &l));
    l = layout_of(&one, "{'world':2,'global_batch':16}");
    assert_false(pl_layout_check(&verdict, problem_of(&one), &l));
    assert_string_equal(verdict.v[0].text, "global_batch 16 is not the workload's 32");
}

/* The layouts of SPACE with each of BATCHES alone, and how many. */
static void spaces_add_up(const char *model, const char *trainer, const char *space,
                          const char *list, const char *const *alone)
{
    struct world several = world_with(model, 2, trainer, list);
    struct pl_space s = space_of(&several, space);
    struct pl_layout *all = NULL;
    struct err e = {0};
    size_t n, sum = 0;

    assert_int_equal(pl_space_list(&all, &n, 4000000, &s, problem_of(&several), NULL, &e), 0);
    for (; *alone; alone++) {
        struct world one = world_with(model, 2, trainer, *alone);
        struct pl_space of_one = space_of(&one, space);
        size_t count = 0;

        for (size_t i = 0; i < n; i++) {
            struct pl_layout l = all[i];

            if (l.global_batch != one.w.global_batch)
                continue;
            l.global_batch = 0;
            count++;
            assert_true(pl_space_has(&s, problem_of(&several), &all[i]));
            assert_true(pl_space_has(&of_one, problem_of(&one), &l));
        }
        assert_true(count > 0);
        assert_int_equal(count, pl_space_enumerate(&of_one, problem_of(&one), NULL, NULL));
        sum += count;
    }
    assert_int_equal(sum, n);
    free(all);
}

static void a_space_is_the_sum_of_those_of_each_batch(void **state)
{
    (void)state;
    spaces_add_up("tiny-moe", "any", "{'zero':[0,1],'precision':'bf16'}", "[48,20,64]",
                  (const char *const[]){"48", "20", "64", NULL});
    spaces_add_up("llama-8b", "torchtitan", "{'zero':[0,2]}", "[32,96]",
                  (const char *const[]){"32", "96", NULL});
}

static void a_space_may_name_some_of_the_batches(void **state)
{
    struct world x = world_with("tiny-llama", 1, "any", "[16,32,64]"),
                 one = world_with("tiny-llama", 1, "any", "16");
    struct pl_space some = space_of(&x, "{'global_batch':[64,16]}"),
                    same = space_of(&one, "{'global_batch':16}"), plain = space_of(&one, "{}");
    AUTO_JSON *got = pl_space_json(&some), *want = unit_json("[16,64]"), *absent,
              *wrong = unit_json("{'global_batch':[16,24]}");
    struct pl_space s;
    struct err e = {0};

    (void)state;
    assert_true(json_equal(json_object_get(got, "global_batch"), want));
    absent = pl_space_json(&same);
    assert_null(json_object_get(absent, "global_batch"));
    assert_int_equal(pl_space_enumerate(&same, problem_of(&one), NULL, NULL),
                     pl_space_enumerate(&plain, problem_of(&one), NULL, NULL));
    assert_int_equal(pl_space_parse(&s, wrong, problem_of(&x), &e), -EINVAL);
    assert_string_equal(e.pointer, "/global_batch");
    assert_string_equal(e.text, "global_batch 24 is not in the workload, which has 16, 32 and 64");
    assert_int_equal(pl_space_parse(&s, wrong, problem_of(&one), &e), -EINVAL);
}

static void an_empty_space_names_a_batch_that_helps(void **state)
{
    struct world x = world_with("tiny-llama", 1, "any", "[9,15]");
    struct pl_space s = space_of(&x, "{'world':4,'tp':1,'pp':1,'micro_batch':2}");
    char text[640];

    (void)state;
    assert_true(pl_space_explain(text, sizeof(text), &s, problem_of(&x), NULL));
    assert_non_null(strstr(text, "\"global_batch\": 16 instead of 15"));
}

/* Seconds, tokens and bytes of a layout are those of its batch alone. */
static void cost_and_memory_are_those_of_the_batch(void **state)
{
    static const char *const trainer[] = {"megatron", "partune"};
    static const char *const layout[] = {
        "{'world':16,'tp':2,'pp':4,'micro_batch':1,'precision':'bf16'",
        "{'world':4,'pp':2,'vp':2,'micro_batch':2"};
    static const char *const model[] = {"llama-8b", "tiny-llama"};

    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(trainer); t++) {
        struct world several = world_with(model[t], 2, trainer[t], "[32,64,256]");
        struct pl_cost_ctx *ctx = pl_cost_ctx_new(problem_of(&several), NULL);
        struct pl_memory_ctx *memory = pl_memory_ctx_new(problem_of(&several));

        for (int i = 0; i < several.w.nbatches; i++) {
            AUTO_FREE char *text =
                mem_printf("%s,'global_batch':%d}", layout[t], several.w.batch[i]);
            AUTO_FREE char *plain = mem_printf("%s}", layout[t]);
            AUTO_FREE char *alone = mem_printf("%d", several.w.batch[i]);
            struct world one = world_with(model[t], 2, trainer[t], alone);
            struct pl_layout l = layout_of(&several, text), only = layout_of(&one, plain);
            struct pl_cost got, want;
            struct pl_memory bytes, bytes_want;

            pl_cost_at(&got, ctx, &l);
            pl_cost(&want, problem_of(&one), &only);
            assert_memory_equal(&got, &want, sizeof(got));
            assert_float_equal(got.tokens_per_s * got.total,
                               (double)several.w.batch[i] * several.w.seq, 1e-6);
            pl_memory_at(&bytes, memory, &l);
            pl_memory_worst(&bytes_want, problem_of(&one), &only);
            assert_true(same_memory(&bytes, &bytes_want));
        }
        pl_memory_ctx_free(memory);
        pl_cost_ctx_free(ctx);
    }
}

static double never(void *arg)
{
    (void)arg;
    return 0;
}

/* The best of each batch is the first of a plan of that batch alone, also of families and by
 * stems. */
static void a_plan_has_the_best_of_each_batch(void **state)
{
    static const char space[] = "{'zero':[0,1],'overlap_p2p':0}";
    const struct pl_patience endless = {.spent = never};
    struct world x = world_with("llama-8b", 2, "megatron", "[64,1024,16]");
    struct pl_space s = space_of(&x, space);
    double best = 0;

    (void)state;
    for (int how = 0; how < 3; how++) {
        struct pl_plan all;

        (how == 1 ? pl_plan_families : pl_plan_look)(&all, &s, problem_of(&x), 5, 0.05,
                                                     PL_TOKENS_PER_S, how == 2 ? &endless : NULL);
        assert_int_equal(all.nbatches, 3);
        for (size_t i = 0; i < all.nbatches; i++) {
            AUTO_FREE char *alone = mem_printf("%d", x.w.batch[i]);
            struct world one = world_with("llama-8b", 2, "megatron", alone);
            struct pl_space of_one = space_of(&one, space);
            struct pl_layout l = all.batch[i].layout;
            struct pl_plan plan;

            pl_plan_look(&plan, &of_one, problem_of(&one), 1, 0.05, PL_TOKENS_PER_S, NULL);
            assert_int_equal(plan.nbatches, 0);
            assert_int_equal(l.global_batch, x.w.batch[i]);
            l.global_batch = 0;
            assert_true(pl_layout_equal(&l, &plan.at[0].layout));
            assert_memory_equal(&all.batch[i].cost, &plan.at[0].cost, sizeof(plan.at[0].cost));
            best = fmax(best, plan.at[0].cost.tokens_per_s);
            pl_plan_done(&plan);
        }
        assert_true(all.at[0].cost.tokens_per_s >= best && all.at[0].cost.tokens_per_s <= best);
        pl_plan_done(&all);
    }
}

/* A token of a small batch costs more: the words compare as many tokens, not steps. */
static void why_compares_tokens_not_steps(void **state)
{
    struct world x = world_with("llama-8b", 2, "megatron", "[16,1024]");
    struct pl_space s = space_of(&x, "{'tp':4,'pp':4,'sp':1,'micro_batch':1,'zero':0,'vp':1,"
                                     "'overlap_grad_reduce':0,'recompute':'none'}");
    struct pl_plan plan;

    (void)state;
    pl_plan_look(&plan, &s, problem_of(&x), 20, 0.05, PL_TOKENS_PER_S, NULL);
    assert_true(plan.n >= 2);
    assert_int_equal(plan.at[0].layout.global_batch, 1024);
    for (size_t i = 1; i < plan.n; i++) {
        AUTO_FREE char *want =
            mem_printf("%.1f %% slower%s:",
                       100 * (plan.at[0].cost.tokens_per_s / plan.at[i].cost.tokens_per_s - 1),
                       plan.at[i].layout.global_batch == 16 ? " a token" : "");

        if (!str_starts(plan.at[i].why, want))
            fail_msg("%s, not %s", plan.at[i].why, want);
    }
    pl_plan_done(&plan);
}

/* A comparison of two batches, too: its seconds are of as many tokens. */
static void a_reason_compares_as_many_tokens(void **state)
{
    struct world x = world_with("llama-8b", 2, "megatron", "[16,1024]");
    struct pl_layout from = layout_of(&x, "{'world':16,'tp':4,'sp':1,'pp':4,'precision':'bf16'}"),
                     to = from;
    struct pl_cost large;
    struct pl_why why;

    (void)state;
    to.global_batch = 1024;
    pl_cost(&large, problem_of(&x), &to);
    pl_why(&why, problem_of(&x), &from, &to, PL_TOKENS_PER_S);
    assert_int_equal(why.count, 1);
    assert_float_equal(why.to.total, large.total / 64, 1e-9);
    assert_float_equal(why.from.total / why.to.total, why.to.tokens_per_s / why.from.tokens_per_s,
                       1e-9);
    assert_float_equal(why.key[0].change, why.to.total - why.from.total, 1e-9);
}

static void a_baseline_has_the_first_batch_that_something_fits(void **state)
{
    struct world x = world_with("llama-8b", 1, "megatron", "[64,512]");
    struct pl_layout l;
    struct err e = {0};

    (void)state;
    for (int rule = 0; pl_baseline_names[rule]; rule++) {
        assert_int_equal(
            pl_baseline(&l, NULL, problem_of(&x), (enum pl_baseline_rule)rule, 0, 0.05, &e), 0);
        assert_int_equal(l.global_batch, 64);
        assert_true(pl_layout_check(NULL, problem_of(&x), &l));
    }
    x = world_with("llama-70b", 1, "megatron", "[8]");
    assert_int_equal(pl_baseline(&l, NULL, problem_of(&x), PL_BASELINE_DEFAULT, 0, 0.05, &e),
                     -ENOENT);
    x = world_of("mixtral-8x22b", "dgx-h100", 16, 1, "megatron"); /* nothing legal fits with 1 */
    take_batches(&x, "[1,128]");
    assert_int_equal(pl_baseline(&l, NULL, problem_of(&x), PL_BASELINE_NAIVE, 0, 0.05, &e), 0);
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
}

static void fidelities_shrink_each_batch(void **state)
{
    struct world x = world_with("gpt-22B", 8, "megatron", "[64,256]");
    const struct pl_fidelity few = {.replicas = 1, .micro_batches = 8}, same = {.steps = 2};

    (void)state;
    for (int i = 0; i < 2; i++) {
        AUTO_FREE char *text = mem_printf("{'world':64,'tp':8,'pp':2,'sp':1,'micro_batch':1,"
                                          "'precision':'bf16','global_batch':%d}",
                                          x.w.batch[i]);
        struct pl_layout l = layout_of(&x, text);
        struct pl_reduced r, again;
        AUTO_JSON *v = NULL;
        struct err e = {0};

        assert_true(pl_reduce(&r, problem_of(&x), &l, &same));
        assert_int_equal(r.workload.global_batch, x.w.batch[i]);
        assert_int_equal(r.workload.nbatches, 0);
        assert_int_equal(r.layout.global_batch, 0);
        assert_true(pl_reduce(&r, problem_of(&x), &l, &few));
        assert_int_equal(r.workload.global_batch, 8);
        assert_int_equal(r.layout.dp, 1);
        v = pl_reduced_json(&r);
        if (pl_reduced_parse(&again, v, problem_of(&x), &e) < 0)
            fail_msg("%s %s", e.pointer, e.text);
        assert_int_equal(again.workload.nbatches, 0);
        assert_int_equal(again.workload.global_batch, 8);
        assert_true(pl_layout_equal(&again.layout, &r.layout));
        pl_whole(&r, problem_of(&x), &l);
        assert_int_equal(r.workload.global_batch, x.w.batch[i]);
        assert_true(pl_layout_check(NULL, &(struct pl_problem){&r.model, &x.c, &r.workload, x.t},
                                    &r.layout));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_read_and_written_as_it_is),
        cmocka_unit_test(a_wrong_list_is_refused_by_pointer),
        cmocka_unit_test(a_layout_says_its_batch_only_where_there_are_several),
        cmocka_unit_test(rules_use_the_layouts_own_batch),
        cmocka_unit_test(a_space_is_the_sum_of_those_of_each_batch),
        cmocka_unit_test(a_space_may_name_some_of_the_batches),
        cmocka_unit_test(an_empty_space_names_a_batch_that_helps),
        cmocka_unit_test(cost_and_memory_are_those_of_the_batch),
        cmocka_unit_test(a_plan_has_the_best_of_each_batch),
        cmocka_unit_test(why_compares_tokens_not_steps),
        cmocka_unit_test(a_reason_compares_as_many_tokens),
        cmocka_unit_test(a_baseline_has_the_first_batch_that_something_fits),
        cmocka_unit_test(fidelities_shrink_each_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
