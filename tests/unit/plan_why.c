/* Which changed key brought which seconds: sums, symmetry, and what is illegal in between. */
#include "tests/unit/plan_world.h"

#include <math.h>

static const char *const MANY_FROM =
    "{'tp':1,'pp':1,'ep':1,'zero':0,'micro_batch':1,'precision':'bf16'}";
static const char *const MANY_TO =
    "{'tp':4,'sp':1,'pp':2,'vp':2,'schedule':'interleaved','ep':4,'zero':1,'micro_batch':2,"
    "'recompute':'full','overlap_grad_reduce':1,'overlap_param_gather':1,'overlap_p2p':1,"
    "'tp_overlap':1,'precision':'fp8'}";

static struct pl_why why_of(const struct world *x, const char *from, const char *to)
{
    struct pl_layout a = layout_of(x, from), b = layout_of(x, to);
    struct pl_verdict verdict;
    struct pl_why why;
    char text[400];

    if (!pl_layout_check(&verdict, problem_of(x), &a) ||
        !pl_layout_check(&verdict, problem_of(x), &b))
        fail_msg("%s", pl_verdict_text(text, sizeof(text), &verdict));
    pl_why(&why, problem_of(x), &a, &b, PL_TOKENS_PER_S);
    return why;
}

static struct world moe(void)
{
    return world_of("mixtral-8x7b", "dgx-h100", 4, 256, "megatron");
}

static const struct pl_why_key *key_of(const struct pl_why *why, const char *name)
{
    for (int i = 0; i < why->count; i++)
        if (!pl_why_is_cluster(&why->key[i]) && !strcmp(why->key[i].key->name, name))
            return &why->key[i];
    fail_msg("%s has not changed", name);
    return NULL;
}

static void assert_near(double given, double expected, double scale)
{
    if (!(fabs(given - expected) <= 1e-12 * scale))
        fail_msg("%.17g is not %.17g", given, expected);
}

/* Seconds of every class, the whole, and log tokens/s. */
static void assert_adds_up(const struct pl_why *why)
{
    double whole = 0, ratio = 0;

    for (int c = 0; c < PL_COST_CLASSES; c++) {
        double sum = 0;

        for (int i = 0; i < why->count; i++)
            sum += why->key[i].seconds[c];
        assert_near(sum, why->to.seconds[c] - why->from.seconds[c], why->from.total);
    }
    for (int i = 0; i < why->count; i++) {
        whole += why->key[i].change;
        ratio += why->key[i].log_ratio;
        assert_true(why->key[i].alone >= 0 && why->key[i].alone <= 1 + 1e-12);
    }
    assert_near(whole, why->to.total - why->from.total, why->from.total);
    assert_near(ratio, log(why->to.tokens_per_s / why->from.tokens_per_s), 10);
}

static void the_parts_add_up_to_the_difference(void **state)
{
    struct world x = moe();
    struct pl_why few = why_of(&x, "{'tp':2,'sp':1,'pp':2,'ep':4,'zero':1,'precision':'bf16'}",
                               "{'tp':1,'pp':4,'ep':8,'zero':1,'micro_batch':2,"
                               "'recompute':'selective','precision':'bf16'}");
    struct pl_why many = why_of(&x, MANY_FROM, MANY_TO);

    (void)state;
    assert_true(few.exact && few.count == 6);
    assert_adds_up(&few);
    assert_true(!many.exact && many.count > 12);
    assert_adds_up(&many);
}

static void one_changed_key_gets_all(void **state)
{
    struct world x = moe();
    struct pl_why why = why_of(&x, "{'tp':2,'sp':1,'ep':4,'precision':'bf16'}",
                               "{'tp':2,'sp':1,'ep':8,'precision':'bf16'}");

    (void)state;
    assert_int_equal(why.count, 1);
    assert_string_equal(why.key[0].key->name, "ep");
    assert_int_equal(why.key[0].from, 4);
    assert_int_equal(why.key[0].to, 8);
    assert_true(why.key[0].alone == 1);
    assert_true(fabs(why.key[0].change) > 0);
    assert_adds_up(&why);
}

static void equal_layouts_differ_by_nothing(void **state)
{
    struct world x = moe();
    struct pl_why why = why_of(&x, MANY_TO, MANY_TO);
    AUTO_JSON *json = pl_why_json(&why);

    (void)state;
    assert_int_equal(why.count, 0);
    assert_int_equal(json_array_size(json_object_get(json, "keys")), 0);
    assert_true(json_array_size(json_object_get(json, "classes")) > 0);
}

/* All that lies between is legal here: the mean over the orders, one by one. */
static void legal_everywhere_they_are_shapley_values(void **state)
{
    static const char *const key[] = {"tp", "pp", "micro_batch"};
    static const int to[] = {4, 2, 2};
    static const int order[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct world x = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    struct pl_why why = why_of(&x, "{'tp':1,'pp':1,'micro_batch':1,'precision':'bf16'}",
                               "{'tp':4,'pp':2,'micro_batch':2,'precision':'bf16'}");
    double expected[3] = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        struct pl_layout layout = layout_of(&x, "{'precision':'bf16'}");
        struct pl_cost before, after;

        pl_cost(&before, problem_of(&x), &layout);
        for (int k = 0; k < 3; k++) {
            pl_layout_set(&layout, pl_layout_key_find(key[order[i][k]]), to[order[i][k]]);
            assert_true(pl_layout_derive(&layout));
            pl_layout_settle(&layout, problem_of(&x));
            assert_true(pl_layout_check(NULL, problem_of(&x), &layout));
            pl_cost(&after, problem_of(&x), &layout);
            expected[order[i][k]] += (after.total - before.total) / 6;
            before = after;
        }
    }
    assert_int_equal(why.count, 3);
    for (int k = 0; k < 3; k++) {
        assert_near(key_of(&why, key[k])->change, expected[k], why.from.total);
        assert_near(key_of(&why, key[k])->alone, 1, 1);
    }
}

static void the_way_back_has_the_other_sign(void **state)
{
    static const char *const pair[][2] = {
        {"{'tp':1,'pp':8,'ep':4,'precision':'bf16'}",
         "{'tp':2,'sp':1,'pp':2,'vp':4,'ep':8,'overlap_p2p':1,'recompute':'full',"
         "'precision':'bf16'}"},
        {MANY_FROM, MANY_TO}};
    struct world x = moe();

    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(pair); p++) {
        struct pl_why there = why_of(&x, pair[p][0], pair[p][1]);
        struct pl_why back = why_of(&x, pair[p][1], pair[p][0]);

        assert_int_equal(there.count, back.count);
        for (int i = 0; i < there.count; i++) {
            assert_near(there.key[i].change, -back.key[i].change, there.from.total);
            assert_near(there.key[i].log_ratio, -back.key[i].log_ratio, 10);
            assert_near(there.key[i].alone, back.key[i].alone, 1);
        }
    }
}

/* Lists of two and of four stages: neither goes with the other's pp. */
static void keys_that_change_only_together_share_evenly(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    struct pl_why why = why_of(&x, "{'pp':2,'stages':'15,17','precision':'bf16'}",
                               "{'pp':4,'stages':'7,8,8,9','micro_batch':2,'precision':'bf16'}");
    const struct pl_why_key *pp = key_of(&why, "pp"), *stages = key_of(&why, "stages");

    (void)state;
    assert_int_equal(why.count, 3);
    assert_true(pp->alone == 0 && stages->alone == 0);
    assert_near(pp->change, stages->change, why.from.total);
    assert_true(fabs(pp->change) > 0);
    assert_near(key_of(&why, "micro_batch")->alone, 1, 1);
    assert_adds_up(&why);
}

/* Megatron's experts need sp with tp: a way with tp alone is no way. */
static void illegal_layouts_are_walked_around(void **state)
{
    struct world x = moe();
    struct pl_why why = why_of(&x, "{'tp':1,'ep':8,'precision':'bf16'}",
                               "{'tp':2,'sp':1,'ep':8,'precision':'bf16'}");
    struct pl_layout half = layout_of(&x, "{'tp':2,'ep':8,'precision':'bf16'}");

    (void)state;
    assert_false(pl_layout_check(NULL, problem_of(&x), &half));
    assert_near(key_of(&why, "sp")->change, 0, why.from.total); /* nothing without tp */
    assert_near(key_of(&why, "tp")->change, why.to.total - why.from.total, why.from.total);
}

/* Half the devices take nearly twice the seconds, and about as many device-seconds. */
static void by_the_device_other_devices_are_no_loss(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    struct pl_layout a = layout_of(&x, "{'world':16,'tp':2,'precision':'bf16'}");
    struct pl_layout b = layout_of(&x, "{'world':8,'tp':2,'precision':'bf16'}");
    struct pl_why whole, each;

    (void)state;
    pl_why(&whole, problem_of(&x), &a, &b, PL_TOKENS_PER_S);
    pl_why(&each, problem_of(&x), &a, &b, PL_TOKENS_PER_S_PER_DEVICE);
    assert_adds_up(&each);
    assert_string_equal(each.key[0].key->name, "world");
    assert_near(each.to.total, 8 * whole.to.total, each.to.total);
    assert_near(each.from.total, 16 * whole.from.total, each.from.total);
    assert_true(whole.key[0].log_ratio < -0.5 && fabs(each.key[0].log_ratio) < 0.2);
}

/* ---- two clusters -------------------------------------------------------- */

static struct pl_why across(const struct world *here, const char *from, const struct world *there,
                            const char *to, enum pl_objective objective)
{
    struct pl_layout a = layout_of(here, from), b = layout_of(there, to);
    struct pl_why why;

    assert_true(pl_layout_check(NULL, problem_of(here), &a));
    assert_true(pl_layout_check(NULL, problem_of(there), &b));
    pl_why_across(&why, problem_of(here), &a, &there->c, &b, objective);
    return why;
}

static void of_one_layout_the_cluster_has_the_whole_difference(void **state)
{
    struct world slow = world_of("llama-8b", "dgx-a100", 2, 64, "megatron");
    struct world fast = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    struct pl_why why = across(&slow, "{'tp':2,'precision':'bf16'}", &fast,
                               "{'tp':2,'precision':'bf16'}", PL_TOKENS_PER_S);
    AUTO_JSON *json = pl_why_json(&why);
    const json_t *row = json_array_get(json_object_get(json, "keys"), 0);

    (void)state;
    assert_int_equal(why.count, 1);
    assert_adds_up(&why);
    assert_true(why.key[0].alone == 1 && why.key[0].change < 0);
    assert_string_equal(json_string_value(json_object_get(row, "key")), "cluster");
    assert_string_equal(json_string_value(json_object_get(row, "from")), "dgx-a100");
    assert_string_equal(json_string_value(json_object_get(row, "to")), "dgx-h100");
}

/* Two ways, each of which is legal: first the cluster, or first the key. */
static void the_cluster_is_a_key_like_the_others(void **state)
{
    struct world slow = world_of("llama-8b", "dgx-a100", 2, 64, "megatron");
    struct world fast = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    const char *one = "{'tp':2,'precision':'bf16'}", *two = "{'tp':4,'precision':'bf16'}";
    struct pl_why why = across(&slow, one, &fast, two, PL_TOKENS_PER_S);
    struct pl_why back = across(&fast, two, &slow, one, PL_TOKENS_PER_S);
    struct pl_why first = across(&slow, one, &fast, one, PL_TOKENS_PER_S);
    struct pl_why last = across(&slow, two, &fast, two, PL_TOKENS_PER_S);

    (void)state;
    assert_int_equal(why.count, 2);
    assert_adds_up(&why);
    assert_near(why.key[0].change, (first.key[0].change + last.key[0].change) / 2, why.from.total);
    assert_near(key_of(&why, "tp")->alone, 1, 1);
    assert_near(why.key[0].change, -back.key[0].change, why.from.total);
}

/* The other cluster has half the devices: the layout of all 16 cannot be there, so the way to it
 * starts with the number of devices, and the way back ends with it. */
static void devices_that_a_cluster_lacks_are_given_up_before(void **state)
{
    struct world large = world_of("llama-8b", "dgx-a100", 2, 64, "megatron");
    struct world small = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_why why = across(&large, "{'tp':2,'precision':'bf16'}", &small,
                               "{'tp':2,'precision':'bf16'}", PL_TOKENS_PER_S);
    struct pl_why half = across(&large, "{'world':8,'tp':2,'precision':'bf16'}", &small,
                                "{'tp':2,'precision':'bf16'}", PL_TOKENS_PER_S);

    (void)state;
    assert_int_equal(why.count, 2);
    assert_adds_up(&why);
    assert_near(why.key[0].change, half.key[0].change, why.from.total);
    assert_near(key_of(&why, "world")->alone, 1, 1);
    assert_true(key_of(&why, "world")->change > 0 && why.key[0].change < 0);
}

/* fp8 is illegal on A100s, so it never comes before the cluster: what it brings is what it brings
 * on H100s. */
static void what_one_cluster_cannot_do_comes_after_it(void **state)
{
    struct world old = world_of("llama-8b", "dgx-a100", 2, 64, "megatron");
    struct world new = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    const char *bf16 = "{'tp':2,'precision':'bf16'}", *fp8 = "{'tp':2,'precision':'fp8'}";
    struct pl_why why = across(&old, bf16, &new, fp8, PL_TOKENS_PER_S);
    struct pl_why there = why_of(&new, bf16, fp8);

    (void)state;
    assert_int_equal(why.count, 2);
    assert_adds_up(&why);
    assert_near(key_of(&why, "precision")->change, key_of(&there, "precision")->change,
                why.from.total);
}

static void each_is_paid_at_its_own_price(void **state)
{
    struct world cheap = world_of("llama-8b", "dgx-a100", 2, 64, "megatron");
    struct world dear = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    struct pl_why time, cost;

    (void)state;
    cheap.c.price = 1;
    dear.c.price = 9;
    time = across(&cheap, "{'tp':2,'precision':'bf16'}", &dear, "{'tp':2,'precision':'bf16'}",
                  PL_TOKENS_PER_S);
    cost = across(&cheap, "{'tp':2,'precision':'bf16'}", &dear, "{'tp':2,'precision':'bf16'}",
                  PL_TOKENS_PER_COST);
    assert_adds_up(&cost);
    assert_true(time.key[0].log_ratio > 0);
    assert_near(cost.key[0].log_ratio, time.key[0].log_ratio - log(9), 10);
}

static void the_same_question_has_the_same_answer(void **state)
{
    struct world x = moe();
    struct pl_why one = why_of(&x, MANY_FROM, MANY_TO), other = why_of(&x, MANY_FROM, MANY_TO);
    AUTO_JSON *a = pl_why_json(&one);
    AUTO_JSON *b = pl_why_json(&other);

    (void)state;
    assert_true(json_equal(a, b));
    assert_true(json_is_false(json_object_get(a, "exact")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_add_up_to_the_difference),
        cmocka_unit_test(one_changed_key_gets_all),
        cmocka_unit_test(equal_layouts_differ_by_nothing),
        cmocka_unit_test(legal_everywhere_they_are_shapley_values),
        cmocka_unit_test(the_way_back_has_the_other_sign),
        cmocka_unit_test(keys_that_change_only_together_share_evenly),
        cmocka_unit_test(illegal_layouts_are_walked_around),
        cmocka_unit_test(by_the_device_other_devices_are_no_loss),
        cmocka_unit_test(of_one_layout_the_cluster_has_the_whole_difference),
        cmocka_unit_test(the_cluster_is_a_key_like_the_others),
        cmocka_unit_test(devices_that_a_cluster_lacks_are_given_up_before),
        cmocka_unit_test(what_one_cluster_cannot_do_comes_after_it),
        cmocka_unit_test(each_is_paid_at_its_own_price),
        cmocka_unit_test(the_same_question_has_the_same_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
