/* Divisions of layers over virtual stages: texts, words, rules, spaces, bytes and seconds. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "plan/divide.h"
#include "tests/unit/plan_world.h"

static int read_stages(const char *text)
{
    struct err e = {0};
    int stages = -1;

    if (pl_stages_read(&stages, text, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return stages;
}

/* "7,8,8,7": what the virtual stages of LAYOUT hold. */
static char *divided(char buf[256], const struct pl_layout *layout, int layers)
{
    size_t n = 0;
    int next = 0;

    for (int run = 0; run < layout->pp * layout->vp; run++) {
        int first,
            many = pl_stage_layers(&first, layout, layers, run % layout->pp, run / layout->pp);

        if (many)
            assert_int_equal(first, next);
        next += many;
        n += (size_t)snprintf(buf + n, 256 - n, "%s%d", run ? "," : "", many);
    }
    assert_int_equal(next, layers);
    return buf;
}

static void a_list_has_one_canonical_text(void **state)
{
    static const char *const same[] = {"7,8*14,7", "7*1,8*7,8*7,7", "07,8*13,8,7"};
    char long_text[4096] = "1";

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        assert_int_equal(read_stages(same[i]), read_stages(same[0]));
        assert_string_equal(pl_stages_text(read_stages(same[i])), same[0]);
    }
    assert_string_equal(pl_stages_text(read_stages("balanced-loss")), "balanced-loss");
    assert_true(pl_stages_known(read_stages(same[0])) && !pl_stages_known(INT_MAX));
    for (int i = 2; i < 100; i++)
        snprintf(long_text + strlen(long_text), 16, ",%d", i);
    assert_int_equal(pl_stages_read(&(int){0}, long_text, NULL), -E2BIG);
}

static void bad_texts_are_refused(void **state)
{
    static const char *const bad[] = {"",       "odd",   ",",        "8,",   "8*",
                                      "8*0",    "8**2",  "-1",       "8 ,7", "8;7",
                                      "8*1025", "65537", "8,8*1024", "+8",   "8*2x"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        int stages = 77;

        if (pl_stages_read(&stages, bad[i], &e) == 0)
            fail_msg("\"%s\" was read", bad[i]);
        assert_int_equal(stages, 77);
        assert_non_null(strstr(e.text, "stages"));
    }
}

static void words_count_what_they_say(void **state)
{
    static const struct {
        int layers, pp, vp;
        const char *stages, *divided;
    } row[] = {
        {30, 4, 1, "even", "8,8,7,7"},
        {30, 4, 1, "balanced", "7,8,8,7"},
        {31, 4, 1, "balanced-embedding", "7,8,8,8"},
        {31, 4, 1, "balanced-loss", "8,8,8,7"},
        {14, 2, 4, "balanced", "1,2,2,2,2,2,2,1"},
        {61, 4, 1, "balanced", "15,16,16,14"}, /* 63 = 4 x 15 + 3: the first ones are longer */
        {6, 4, 2, "balanced", "0,1,1,1,1,1,1,0"},
        {61, 4, 1, "20,20,20,1", "20,20,20,1"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_layout l = {
            .pp = row[i].pp, .vp = row[i].vp, .stages = read_stages(row[i].stages)};
        char buf[256];

        assert_string_equal(divided(buf, &l, row[i].layers), row[i].divided);
    }
}

static void the_first_word_for_a_division_is_canonical(void **state)
{
    static const struct {
        int layers, pp, vp;
        const char *stages, *canonical;
    } row[] = {
        {32, 4, 1, "8*4", "even"},
        {32, 2, 1, "balanced", "even"}, /* 34 over 2, less one at either end */
        {30, 4, 1, "7,8*2,7", "balanced"},
        {31, 4, 1, "7,8*3", "balanced-embedding"},
        {31, 4, 1, "8*3,7", "balanced"},      /* 33 = 4 x 8 + 1 */
        {62, 4, 1, "16*2,15*2", "16*2,15*2"}, /* even is a name only where layers divide */
        {30, 4, 1, "10,8,6,6", "10,8,6*2"},
        {30, 1, 1, "balanced", "even"},
        {30, 4, 1, "7,8*2,8", "7,8*3"}, /* of another model: the rule says so */
        {30, 4, 1, "10*3", "10*3"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_layout l = {
            .pp = row[i].pp, .vp = row[i].vp, .stages = read_stages(row[i].stages)};

        assert_string_equal(pl_stages_text(pl_stages_canonical(&l, row[i].layers)),
                            row[i].canonical);
    }
}

static void rules_name_what_does_not_fit(void **state)
{
    static const struct {
        const char *trainer, *layout, *rule, *text;
    } row[] = {
        {"megatron", "{'pp':8}", "layers-pp-vp", "layers 126 is not a multiple of pp 8 x vp 1"},
        {"megatron", "{'pp':8,'stages':'16*4,31*2'}", "stages-fit",
         "stages lists 6 virtual stages, not pp 8 x vp 1"},
        {"megatron", "{'pp':8,'stages':'16*8'}", "stages-fit",
         "stages lists 128 layers, the model has 126"},
        {"megatron", "{'pp':8,'stages':'63,0*6,63'}", "stages-fit",
         "stages 63,0*6,63 leaves virtual stage 1 of 8 without a layer"},
        {"megatron", "{'pp':8,'stages':'15,16*6,15'}", "canonical",
         "stages 15,16*6,15 is not canonical here: use balanced"},
        {"any", "{'pp':4,'stages':'32*2,31*2'}", "trainer-supports",
         "trainer any does not support stages 32*2,31*2: the same as even here"},
        {"deepspeed", "{'pp':8,'stages':'balanced'}", "trainer-supports",
         "trainer deepspeed does not support stages balanced"},
        {"partune", "{'pp':8}", "layers-pp-vp", "layers 126 is not a multiple of pp 8 x vp 1"},
        {"partune", "{'pp':8,'stages':'15,16*6,15'}", "canonical",
         "stages 15,16*6,15 is not canonical here: use balanced"},
        {"partune", "{'pp':8,'stages':'balanced'}", NULL, NULL},
        {"partune", "{'pp':8,'stages':'0,21*6,0','schedule':'zero-bubble'}", NULL, NULL},
        {"partune", "{'pp':8,'vp':16,'schedule':'interleaved','stages':'0,1*126,0'}", "canonical",
         "stages 0,1*126,0 is not canonical here: use balanced"},
        {"megatron", "{'pp':8,'stages':'balanced'}", NULL, NULL},
        {"megatron", "{'pp':8,'vp':8,'stages':'balanced'}", NULL, NULL},
        {"megatron", "{'pp':8,'stages':'0,18*7'}", NULL, NULL},
        {"megatron", "{'pp':8,'stages':'0,21*6,0'}", NULL, NULL},
        {"torchtitan",
         "{'pp':8,'stages':'balanced','zero':2,'overlap_grad_reduce':1,"
         "'overlap_param_gather':1}",
         NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("llama-405b", "dgx-h100", 8, 64, row[i].trainer);
        struct pl_layout l = layout_of(&x, row[i].layout);
        struct pl_verdict v;
        bool found = false;
        char text[2048];

        l.precision = PL_BF16;
        if (pl_layout_check(&v, problem_of(&x), &l) != !row[i].rule)
            fail_msg("%s: %s", row[i].layout, pl_verdict_text(text, sizeof(text), &v));
        for (int j = 0; j < v.count; j++)
            found |= str_eq(v.v[j].rule, row[i].rule) && str_eq(v.v[j].text, row[i].text);
        if (row[i].rule && !found)
            fail_msg("%s: %s", row[i].layout, pl_verdict_text(text, sizeof(text), &v));
    }
}

static void json_has_the_text_and_nothing_where_stages_are_even(void **state)
{
    struct world x = world_of("llama-405b", "dgx-h100", 8, 64, "megatron");
    struct pl_layout l = layout_of(&x, "{'pp':8,'stages':'20,16*5,13*2'}"), back;
    AUTO_JSON *v = pl_layout_json(&l), *even = NULL;
    struct err e = {0};
    char buf[160];

    (void)state;
    assert_string_equal(json_string_value(json_object_get(v, "stages")), "20,16*5,13*2");
    assert_int_equal(pl_layout_parse(&back, v, problem_of(&x), &e), 0);
    assert_true(pl_layout_equal(&l, &back));
    assert_non_null(strstr(pl_layout_text(buf, &l), " stages-20,16*5,13*2"));
    l.stages = PL_STAGES_EVEN;
    even = pl_layout_json(&l);
    assert_null(json_object_get(even, "stages"));
    json_object_set_new(v, "stages", json_string("8,x"));
    assert_int_equal(pl_layout_parse(&back, v, problem_of(&x), &e), -EINVAL);
    assert_string_equal(e.pointer, "/stages");
    json_object_set_new(v, "stages", json_integer(8));
    assert_int_equal(pl_layout_parse(&back, v, problem_of(&x), &e), -EINVAL);
}

struct seen {
    int pipelines, uneven, words, deepest;
};

static bool see(void *arg, const struct pl_layout *layout)
{
    struct seen *seen = arg;

    seen->pipelines += layout->pp > 1;
    seen->uneven += layout->stages != PL_STAGES_EVEN;
    seen->words |= 1 << (layout->stages < PL_STAGES_WORDS ? layout->stages : PL_STAGES_WORDS);
    if (layout->pp > seen->deepest)
        seen->deepest = layout->pp;
    return true;
}

static struct seen seen_in(const struct world *world, const char *space)
{
    AUTO_JSON *json = unit_json(space);
    struct pl_space s;
    struct seen seen = {0};
    struct err e = {0};

    if (pl_space_parse(&s, json, problem_of(world), &e) < 0)
        fail_msg("%s: %s", space, e.text);
    pl_space_enumerate(&s, problem_of(world), see, &seen);
    return seen;
}

/* Where no deep pipeline is even, and only there, a space that does not name the key has uneven
 * ones. */
static void balanced_stages_are_tried_where_even_ones_are_illegal(void **state)
{
    struct world llama = world_of("llama-405b", "dgx-h100", 64, 512, "megatron");
    struct world seventy = world_of("llama-70b", "dgx-h100", 64, 512, "megatron");
    struct world titan = world_of("llama-405b", "dgx-h100", 64, 512, "torchtitan");
    struct seen seen;

    (void)state;
    seen = seen_in(&llama, "{'tp':[8],'cp':[1],'zero':[1],'recompute':'none'}");
    assert_true(seen.uneven > 0 && seen.deepest >= 16);
    assert_int_equal(seen.words, 1 << PL_STAGES_EVEN | 1 << PL_STAGES_BALANCED);
    seen = seen_in(&seventy, "{'tp':[8],'cp':[1],'zero':[1],'recompute':'none'}");
    assert_true(seen.pipelines > 0 && seen.uneven == 0);
    seen = seen_in(&titan, "{'tp':[8],'cp':[1],'zero':[2],'recompute':'none'}");
    assert_true(seen.pipelines > 0 && seen.uneven == 0);
}

static void a_space_that_names_stages_has_those(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 512, "megatron");
    struct seen seen;

    (void)state;
    seen = seen_in(&x, "{'tp':[8],'pp':[1,4],'vp':[1],'cp':[1],'zero':[1],'recompute':'none',"
                       "'stages':['even','balanced','16,24*2,16']}");
    assert_int_equal(seen.words,
                     1 << PL_STAGES_EVEN | 1 << PL_STAGES_BALANCED | 1 << PL_STAGES_WORDS);
    assert_int_equal(3 * (seen.pipelines - seen.uneven), seen.pipelines);
}

/* A large vocabulary weighs as much as layers do: a division that allows for it is faster, and the
 * closed form and the event simulator agree about it. */
static void the_best_division_is_the_fastest_one(void **state)
{
    static const char *const divisions[] = {"even", "balanced", "1,10*3", "4,9*3", "10*3,1"};
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_problem p = world_problem(&x);
    struct pl_cost_ctx *ctx = pl_cost_ctx_new(&p, NULL);
    double seconds[ARRAY_LEN(divisions)];

    (void)state;
    x.m.layers = 31;
    pl_cost_ctx_free(ctx);
    ctx = pl_cost_ctx_new(&p, NULL);
    for (size_t i = 0; i < ARRAY_LEN(divisions); i++) {
        struct pl_layout l = layout_of(&x, "{'pp':4,'zero':1,'precision':'bf16'}");
        struct pl_timeline timeline;
        struct pl_stage_time *store;
        struct pl_pipe pipe;
        struct pl_cost cost;
        struct err e = {0};

        l.stages = read_stages(divisions[i]);
        pl_cost_at(&cost, ctx, &l);
        seconds[i] = cost.total;
        pl_pipe_of(&pipe, &store, ctx, &l);
        assert_int_equal(pl_simulate(&timeline, &pipe, &e), 0);
        assert_true(fabs(pl_pipe_seconds(&pipe) / timeline.total - 1) < 0.03);
        pl_timeline_done(&timeline);
        free(store);
    }
    for (size_t i = 2; i < ARRAY_LEN(divisions); i++)
        assert_true(seconds[1] < seconds[i]);
    assert_true(seconds[1] <= seconds[0]);
    pl_cost_ctx_free(ctx);
}

/* Of the bundled trainer too, whose last stage may have the loss alone: the closed form is within
 * these shares of the events, which run the steps that the trainer runs. */
static void seconds_of_words_are_near_the_events(void **state)
{
    static const struct {
        const char *layout;
        double apart;
    } row[] = {
        {"{'world':4,'pp':4,'schedule':'gpipe'}", 0.005},
        {"{'world':4,'pp':4,'schedule':'1f1b'}", 0.02},
        {"{'world':4,'pp':4,'schedule':'zero-bubble'}", 0.03},
        {"{'world':4,'pp':4,'vp':2,'schedule':'interleaved'}", 0.07},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (int layers = 9; layers < 48; layers += 2)
            for (int word = PL_STAGES_BALANCED; word < PL_STAGES_WORDS; word++) {
                struct world x = world_cpu("tiny-llama", 4, 32, "partune");
                struct pl_problem p = world_problem(&x);
                struct pl_layout l = layout_of(&x, row[i].layout);
                struct pl_stage_time *store;
                struct pl_cost_ctx *ctx;
                struct pl_timeline events;
                struct pl_pipe pipe;
                struct err e = {0};

                x.m.layers = layers;
                x.m.vocab = layers % 4 == 1 ? 512 : 16384;
                l.stages = word;
                ctx = pl_cost_ctx_new(&p, NULL);
                pl_pipe_of(&pipe, &store, ctx, &l);
                assert_int_equal(pl_simulate(&events, &pipe, &e), 0);
                if (fabs(pl_pipe_seconds(&pipe) / events.total - 1) > row[i].apart)
                    fail_msg("%s, %d layers, %s: %g by events, %g", row[i].layout, layers,
                             pl_stages_words[word], events.total, pl_pipe_seconds(&pipe));
                pl_timeline_done(&events);
                free(store);
                pl_cost_ctx_free(ctx);
            }
}

/* Every stage is looked at, and the whole model is held once however it is divided. */
static void memory_is_of_the_worst_of_uneven_stages(void **state)
{
    static const char *const divisions[] = {"even", "balanced", "4,4,20,4", "0,16,16,0"};
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    double whole[ARRAY_LEN(divisions)] = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(divisions); i++) {
        struct pl_layout l = layout_of(&x, "{'pp':4,'zero':1,'precision':'bf16'}");
        struct pl_memory worst, one;
        double most = 0;

        l.stages = read_stages(divisions[i]);
        pl_memory_worst(&worst, problem_of(&x), &l);
        for (int rank = 0; rank < l.world; rank += l.world / l.pp) {
            pl_memory_rank(&one, problem_of(&x), &l, rank);
            most = one.total > most ? one.total : most;
            whole[i] += one.bytes[PL_MEM_WEIGHTS];
        }
        assert_true(fabs(worst.total - most) < 1);
        assert_true(fabs(whole[i] / whole[0] - 1) < 1e-12);
    }
}

/* nanotron's rule, by hand for a layer of 4 x 4096^2 + 3 x 4096 x 14336 and a head of 131072 x
 * 4096, 2.2 layers: shares of 34.2 / pp layers, and a stage ends with the layer that exceeds its
 * own. */
static void stages_cut_by_cost_weigh_the_head(void **state)
{
    static const struct {
        const char *layout, *text;
    } cases[] = {{"{'pp':2,'zero':1,'precision':'bf16'}", "18,14"},
                 {"{'pp':4,'zero':1,'precision':'bf16'}", "9*2,8,6"},
                 {"{'pp':8,'zero':1,'precision':'bf16'}", "5,4*2,5,4*3,2"}};
    struct world x = world_of("llama-8b", "dgx-h100", 8, 64, "any");
    struct pl_trainer by_cost = *x.t;
    struct pl_layout l, to;
    struct pl_memory even, cut;

    (void)state;
    x.m.vocab = 131072;
    by_cost.cost_stages = true;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        l = layout_of(&x, cases[i].layout);
        assert_ptr_equal(pl_divided(&to, problem_of(&x), &l), &l);
        assert_ptr_equal(pl_divided(&to, problem_with(&x, &by_cost), &l), &to);
        assert_string_equal(pl_stages_text(to.stages), cases[i].text);
        assert_ptr_equal(pl_divided(&to, problem_with(&x, &by_cost), &to), &to);
    }
    l = layout_of(&x, "{'pp':2,'zero':1,'precision':'bf16'}");
    pl_memory_worst(&cut, problem_with(&x, &by_cost), &l);
    l.stages = read_stages("18,14");
    pl_memory_worst(&even, problem_of(&x), &l);
    assert_true(cut.total == even.total);
    l.pp = 1;
    l.stages = PL_STAGES_EVEN;
    assert_ptr_equal(pl_divided(&to, problem_with(&x, &by_cost), &l), &l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_cut_by_cost_weigh_the_head),
        cmocka_unit_test(a_list_has_one_canonical_text),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(words_count_what_they_say),
        cmocka_unit_test(the_first_word_for_a_division_is_canonical),
        cmocka_unit_test(rules_name_what_does_not_fit),
        cmocka_unit_test(json_has_the_text_and_nothing_where_stages_are_even),
        cmocka_unit_test(balanced_stages_are_tried_where_even_ones_are_illegal),
        cmocka_unit_test(a_space_that_names_stages_has_those),
        cmocka_unit_test(the_best_division_is_the_fastest_one),
        cmocka_unit_test(seconds_of_words_are_near_the_events),
        cmocka_unit_test(memory_is_of_the_worst_of_uneven_stages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
