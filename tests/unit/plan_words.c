/* Narrow precisions: what is kept, gathered and computed, by formula. */
#include "tests/unit/plan_world.h"

#include <math.h>

#include "plan/cost_parts.h"
#include "plan/memory_parts.h"

enum { GIB = 1 << 30 };

/* NVIDIA's recipe of Llama 3 70B on 64 H100 (Megatron-Bridge of September 2025 to April 2026). */
#define LLAMA_70B "{'tp':4,'sp':1,'pp':8,'vp':5,'zero':1,'micro_batch':1"

/* A token of one layer, tp 1: both norms' inputs (2 x 2h), the inputs of qkv and of fc1 in fp8
 * (2h), q, k, v and attention's output in bf16 (4q + 4kv), that output in fp8 (q), fc1's output in
 * bf16 (4f), and fc2's input in fp8 (f). In bf16: 8h + 4q + 4kv + 6f. */
static void inputs_of_products_are_kept_as_they_were_cast(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    double h = x.m.hidden, q = (double)x.m.heads * x.m.head_dim,
           kv = (double)x.m.kv_heads * x.m.head_dim, f = x.m.ffn, tokens = x.w.seq;
    static const struct {
        const char *precision;
        double kept, copied; /* of an input; of one that is kept in bf16 as well */
    } row[] = {
        {"bf16", 2, 0},
        {"fp8", 1, 1},
        {"fp8-current", 1, 1},
        {"fp8-blockwise", 1 + 1 / 32.0, 1 + 1 / 32.0},
        {"mxfp8", 1 + 1 / 32.0, 1 + 1 / 32.0},
        {"nvfp4", 9 / 16.0, 9 / 16.0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_layout l = layout_of(&x, "{'world':64}");
        double want = 4 * h + 2 * row[i].kept * h + 4 * q + 4 * kv + row[i].copied * q + 4 * f +
                      row[i].kept * f;

        while (strcmp(pl_precision_names[l.precision], row[i].precision) != 0)
            l.precision = (l.precision + 1) % PL_PRECISIONS;
        if (fabs(pl_layer_activation_bytes(problem_of(&x), &l, false) / (tokens * want) - 1) >
            1e-12)
            fail_msg("%s: %.0f bytes, not %.0f", row[i].precision,
                     pl_layer_activation_bytes(problem_of(&x), &l, false), tokens * want);
    }
    x.t = pl_trainer_find("torchtitan"); /* torchao casts for each product and keeps bf16 */
    struct pl_layout wide = layout_of(&x, "{'world':64,'precision':'bf16'}"),
                     narrow = layout_of(&x, "{'world':64,'precision':'fp8'}");

    assert_true(pl_layer_activation_bytes(problem_of(&x), &wide, false) ==
                pl_layer_activation_bytes(problem_of(&x), &narrow, false));
}

/* Weights in bf16 and, in both orders, as products read them; or only so. */
static void weights_are_kept_twice_unless_they_are_gathered_narrow(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    struct pl_layout l = layout_of(&x, LLAMA_70B ",'precision':'bf16'}");
    double matrices = x.m.hidden *
                      (2.0 * (x.m.heads + x.m.kv_heads) * x.m.head_dim + 3.0 * x.m.ffn) *
                      x.m.layers / 32;
    static const struct {
        int precision;
        double added, instead; /* bytes a weight beyond those of bf16 */
    } row[] = {
        {PL_FP8_CURRENT, 2, 0}, {PL_MXFP8, 2 + 2 / 32.0, 2 / 32.0}, {PL_NVFP4, 9 / 8.0, -7 / 8.0}};
    struct pl_memory bf16, added, instead;

    (void)state;
    pl_memory_rank(&bf16, problem_of(&x), &l, 8); /* a stage between the ends */
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        l.precision = row[i].precision;
        l.fp8_param_gather = 0;
        pl_memory_rank(&added, problem_of(&x), &l, 8);
        l.fp8_param_gather = 1;
        pl_memory_rank(&instead, problem_of(&x), &l, 8);
        assert_true(fabs((added.bytes[PL_MEM_WEIGHTS] - bf16.bytes[PL_MEM_WEIGHTS]) / matrices -
                         row[i].added) < 1e-9);
        assert_true(fabs((instead.bytes[PL_MEM_WEIGHTS] - bf16.bytes[PL_MEM_WEIGHTS]) / matrices -
                         row[i].instead) < 1e-9);
        assert_true(instead.bytes[PL_MEM_MASTER] == bf16.bytes[PL_MEM_MASTER] &&
                    instead.bytes[PL_MEM_GRADS] == bf16.bytes[PL_MEM_GRADS]);
    }
}

static void the_published_recipe_of_llama_70b_in_fp8_fits(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    struct pl_layout l = layout_of(&x, LLAMA_70B ",'precision':'fp8-current','fp8_param_gather':1,"
                                                 "'overlap_grad_reduce':1,'overlap_param_gather':1,"
                                                 "'overlap_p2p':1}");
    struct pl_memory worst;
    struct pl_verdict verdict;
    char text[512];

    (void)state;
    if (!pl_layout_check(&verdict, problem_of(&x), &l))
        fail_msg("%s", pl_verdict_text(text, sizeof(text), &verdict));
    pl_memory_worst(&worst, problem_of(&x), &l);
    print_message("# %.1f GiB of %.1f\n", worst.total / GIB, pl_memory_offered(&x.c, 0) / GIB);
    assert_true(pl_fits(problem_of(&x), &l, 0.05));
}

static double seconds_of(const struct world *x, const char *precision, int gather)
{
    char text[256];
    struct pl_layout l;
    struct pl_cost cost;

    snprintf(text, sizeof(text), LLAMA_70B ",'precision':'%s','fp8_param_gather':%d}", precision,
             gather);
    l = layout_of(x, text);
    pl_cost(&cost, problem_of(x), &l);
    return cost.total;
}

/* The word says the recipe; fp8 alone is the trainer's. */
static void a_recipe_costs_its_casts(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");

    (void)state;
    assert_true(seconds_of(&x, "fp8", 0) < seconds_of(&x, "fp8-blockwise", 0));
    assert_true(seconds_of(&x, "mxfp8", 0) < seconds_of(&x, "fp8-current", 0));
    assert_true(seconds_of(&x, "fp8-current", 0) < seconds_of(&x, "bf16", 0));
    x.c.device.tflops_fp4 = 4 * x.c.device.tflops_bf16; /* a made-up device with such units */
    assert_true(seconds_of(&x, "nvfp4", 0) < seconds_of(&x, "fp8", 0));
}

static void narrow_weights_are_gathered_in_half_the_bytes(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    double wide = seconds_of(&x, "fp8-current", 0);

    (void)state;
    assert_true(seconds_of(&x, "fp8-current", 1) < wide);
    assert_true(seconds_of(&x, "mxfp8", 1) == seconds_of(&x, "mxfp8", 0)); /* in bf16 */
    assert_true(wide - seconds_of(&x, "nvfp4", 1) > wide - seconds_of(&x, "nvfp4", 0));
}

/* An OPTION is in a default space with its standard, under "auto" with all that the trainer takes.
 */
static void options_take_part_where_a_space_names_them(void **state)
{
    static const char *const spaces[] = {"{}", "{'fp8_param_gather':'auto','precision':'fp8'}"};
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    size_t values[2] = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
        AUTO_JSON *v = unit_json(spaces[i]);
        AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
        struct err e = {0};

        assert_int_equal(pl_space_parse(space, v, problem_of(&x), &e), 0);
        values[i] = (size_t)pl_space_axis(space, "fp8_param_gather")->n;
        for (enum pl_key key = 0; i == 0 && key < PL_LAYOUT_KEYS; key++)
            if (pl_layout_keys[key].part == PL_OPTION)
                assert_true(space->axis[key].n == 1 &&
                            space->axis[key].value[0] == pl_layout_keys[key].standard);
    }
    assert_true(values[0] == 1 && values[1] == 2);
}

struct types {
    const struct pl_space *space;
    const struct pl_problem *problem;
    int met[4][2]; /* layouts by zero and grad_dtype */
};

static bool note_type(void *arg, const struct pl_layout *layout)
{
    struct types *types = arg;

    assert_true(pl_space_has(types->space, types->problem, layout));
    types->met[layout->zero][layout->grad_dtype]++;
    return true;
}

/* DeepSpeed's replicas have gradients in the type of the weights, whatever a space says; shards
 * have what it says. */
static void gradients_in_fp32_need_zero_in_deepspeed(void **state)
{
    static const char *const spaces[] = {"{}", "{'grad_dtype':'auto'}", "{'grad_dtype':'bf16'}",
                                         "{'grad_dtype':'auto','precision':'fp32'}"};
    static const bool met[][2][2] = {/* by zero > 0 and grad_dtype */
                                     {{false, true}, {true, false}},
                                     {{false, true}, {true, true}},
                                     {{false, true}, {false, true}},
                                     {{true, false}, {true, false}}};
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "deepspeed");
    struct pl_layout naive;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
        AUTO_JSON *v = unit_json(spaces[i]);
        AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
        struct types types = {.space = space, .problem = problem_of(&x)};

        assert_int_equal(pl_space_parse(space, v, types.problem, &e), 0);
        pl_space_enumerate(space, types.problem, note_type, &types);
        for (int zero = 0; zero < 4; zero++)
            for (int type = 0; type < 2; type++)
                assert_int_equal(types.met[zero][type] > 0, met[i][zero > 0][type]);
    }
    /* The smallest change that fits keeps them in fp32. */
    assert_int_equal(pl_baseline(&naive, NULL, problem_of(&x), PL_BASELINE_NAIVE, 0, 0.05, &e), 0);
    assert_true(naive.zero > 0 && naive.grad_dtype == PL_GRADS_FP32);
}

static double kept_of(const struct world *x, const char *text, bool moe)
{
    struct pl_layout l = layout_of(x, text);
    struct pl_verdict verdict;
    char all[512];

    if (!pl_layout_check(&verdict, problem_of(x), &l))
        fail_msg("%s: %s", text, pl_verdict_text(all, sizeof(all), &verdict));
    return pl_layer_activation_bytes(problem_of(x), &l, moe);
}

#define AGAIN "{'world':64,'ep':8,'recompute':'selective','"

/* What a module keeps beyond its input is dropped: bytes a token of a layer of Mixtral, by hand. */
static void modules_drop_what_they_keep(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 8, 256, "megatron");
    double tokens = x.w.seq, h = x.m.hidden, f = x.m.moe.expert_ffn, copies = 1.1 * x.m.moe.top_k;
    double plain = kept_of(&x, "{'world':64,'ep':8}", true);

    (void)state;
    x.m.moe.shared_ffn = 0;
    assert_true(fabs(plain - kept_of(&x, AGAIN "recompute_moe_act':1}", true) -
                     tokens * copies * 2 * f) < 1);
    assert_true(fabs(plain - kept_of(&x, AGAIN "recompute_moe':1}", true) -
                     tokens * copies * (2 * h + 6 * f)) < 1);
    assert_true(fabs(plain - kept_of(&x, AGAIN "recompute_layernorm':1}", true) - tokens * 2 * h) <
                1);
    x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    assert_true(fabs(kept_of(&x, "{'world':64}", false) -
                     kept_of(&x, "{'world':64,'recompute':'selective','recompute_mlp':1}", false) -
                     x.w.seq * (2.0 * x.m.hidden + 6.0 * x.m.ffn)) < 1);
}

static double recomputed(const struct world *x, const char *text)
{
    struct pl_layout l = layout_of(x, text);
    struct pl_cost cost;

    pl_cost(&cost, problem_of(x), &l);
    return cost.seconds[PL_COST_RECOMPUTE];
}

static void modules_repeat_what_they_compute(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 8, 256, "megatron");
    double full = recomputed(&x, "{'world':64,'ep':8,'recompute':'full'}"),
           moe = recomputed(&x, AGAIN "recompute_moe':1}"),
           act = recomputed(&x, AGAIN "recompute_moe_act':1}"),
           both = recomputed(&x, AGAIN "recompute_moe_act':1,'recompute_layernorm':1}");

    (void)state;
    assert_true(recomputed(&x, "{'world':64,'ep':8,'recompute':'selective'}") <= 0);
    assert_true(act > 0 && act < both && both < moe / 4 && moe < full && moe > 0.4 * full);
}

static double activation_bytes(const struct world *x, const char *text)
{
    struct pl_layout l = layout_of(x, text);
    struct pl_memory memory;

    pl_memory_rank(&memory, problem_of(x), &l, 0);
    return memory.bytes[PL_MEM_ACTIVATIONS];
}

#define FULL "{'world':64,'pp':4,'micro_batch':2,'recompute':'full'"

/* Llama 3 70B in four stages of 20 layers, four micro-batches in flight on the first, by hand. */
static void units_and_blocks_keep_what_they_keep(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    double tokens = 2.0 * x.w.seq, input = 2 * tokens * x.m.hidden;
    double layer = kept_of(&x, "{'world':64,'pp':4,'micro_batch':2}", false);

    (void)state;
    assert_true(fabs(activation_bytes(&x, FULL "}") - (4 * 20 * input + layer - input)) < 1);
    /* units of 8, 8 and 4 layers */
    assert_true(fabs(activation_bytes(&x, FULL ",'recompute_num_layers':8}") -
                     (4 * 3 * input + 8 * layer - input)) < 1);
    assert_true(
        fabs(activation_bytes(&x, FULL ",'recompute_method':'block','recompute_num_layers':8}") -
             (4 * (8 * input + 12 * layer) + layer - input)) < 1);
    /* of each of two chunks of 10 layers; 3 x 2 + 4 + 1 chunks in flight */
    assert_true(fabs(activation_bytes(
                         &x, FULL ",'vp':2,'recompute_method':'block','recompute_num_layers':8}") -
                     (11 * (8 * input + 2 * layer) + layer - input)) < 1);
}

static void blocks_repeat_their_layers_only(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    double all = recomputed(&x, FULL "}");
    const struct {
        const char *text;
        double share;
    } cases[] = {
        {FULL ",'recompute_num_layers':8}", 1},
        {FULL ",'recompute_method':'block','recompute_num_layers':8}", 8.0 / 20},
        {FULL ",'vp':2,'recompute_method':'block','recompute_num_layers':8}", 16.0 / 20},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(fabs(recomputed(&x, cases[i].text) - cases[i].share * all) < 1e-9 * all);
}

/* A stack that overlaps by itself gains nothing by the key; ten buffers of gathered tokens for the
 * three that a layer has anyway. */
static void overlapped_collectives_cost_buffers(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 8, 256, "megatron");
    struct pl_layout with = layout_of(&x, "{'world':64,'tp':8,'sp':1,'tp_overlap':1}"),
                     without = layout_of(&x, "{'world':64,'tp':8,'sp':1}");
    double hidden = pl_constants_of(x.t)->tp_hidden;
    struct pl_trainer stack = *x.t;
    struct pl_memory more, less;
    struct pl_cost fast, slow, same;

    (void)state;
    pl_cost(&fast, problem_of(&x), &with);
    pl_cost(&slow, problem_of(&x), &without);
    assert_true(fast.seconds[PL_COST_TP] < slow.seconds[PL_COST_TP] * (1 - hidden / 2) &&
                fast.seconds[PL_COST_TP] > slow.seconds[PL_COST_TP] * (1 - hidden) * 0.999);
    pl_memory_rank(&more, problem_of(&x), &with, 0);
    pl_memory_rank(&less, problem_of(&x), &without, 0);
    assert_true(fabs(more.bytes[PL_MEM_COMM] - less.bytes[PL_MEM_COMM] -
                     (10.0 - 3) * 2 * x.w.seq * x.m.hidden) < 1);
    stack.tp_overlap = true;
    x.t = &stack;
    pl_cost(&slow, problem_of(&x), &without);
    pl_cost(&same, problem_of(&x), &with);
    assert_true(fabs(slow.total - same.total) < 1e-12);
}

static double exchanged(const struct world *x, const char *text)
{
    struct pl_layout l = layout_of(x, text);
    struct pl_cost cost;

    pl_cost(&cost, problem_of(x), &l);
    return cost.seconds[PL_COST_EP];
}

/* One node of NVLink, an expert on each of eight ranks, two for a token: it goes to two ranks, in
 * 1.1 x 2 copies with the router's imbalance, or from every rank to all. But for latencies, seconds
 * are as the bytes that a rank receives. */
static void dispatchers_send_what_they_send(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 1, 64, "megatron");
    double copies = 1.1 * 2, once = 2, all = 8;
    double plain = exchanged(&x, "{'world':8,'ep':8,'micro_batch':8}"),
           deep = exchanged(&x, "{'world':8,'ep':8,'micro_batch':8,'moe_dispatch':'deepep'}"),
           hybrid = exchanged(&x, "{'world':8,'ep':8,'micro_batch':8,'moe_dispatch':'hybridep'}"),
           gather = exchanged(&x, "{'world':8,'ep':8,'micro_batch':8,'moe_dispatch':'allgather'}");

    (void)state;
    assert_true(fabs(deep - hybrid) < 1e-12);
    assert_true(fabs(deep / plain - once / copies) < 0.03);
    assert_true(fabs(gather / plain - all / copies) < 0.03 * all / copies);
    /* two experts on each rank: some tokens find both of theirs on one */
    plain = exchanged(&x, "{'world':8,'ep':4,'micro_batch':8}");
    deep = exchanged(&x, "{'world':8,'ep':4,'micro_batch':8,'moe_dispatch':'deepep'}");
    assert_true(fabs(deep / plain - 4 * (1 - 6.0 / 8 * 5 / 7) / copies) < 0.03);
}

/* Between nodes a token goes once to each: of 8 nodes with 256 experts its 8 are on 5.3, on 4 where
 * a router of groups bounds them. */
static void groups_bound_the_nodes_that_a_token_meets(void **state)
{
    struct world x = world_of("deepseek-v3", "dgx-h100", 8, 512, "megatron");
    double bounded = exchanged(&x, "{'world':64,'ep':64,'moe_dispatch':'deepep'}"), free;

    (void)state;
    assert_true(x.m.moe.n_group == 8 && x.m.moe.topk_group == 4);
    x.m.moe.n_group = x.m.moe.topk_group = 1;
    free = exchanged(&x, "{'world':64,'ep':64,'moe_dispatch':'deepep'}");
    assert_true(fabs(bounded / free - 4 / 5.3) < 0.03);
    assert_true(free < exchanged(&x, "{'world':64,'ep':64}"));
}

/* Of a stack whose host holds the device up, graphs issue less and one graph nothing. */
static void graphs_hide_the_host(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_trainer slow = *x.t;
    const char *const text[] = {"{'world':8}", "{'world':8,'cuda_graphs':'modules'}",
                                "{'world':8,'cuda_graphs':'iteration'}"};
    struct pl_cost cost[3];

    (void)state;
    slow.stack = (struct pl_stack){.name = "slow", .median = pl_default_constants};
    slow.stack.median.issue_us = 500;
    for (int held = 0; held < 2; held++) {
        for (size_t i = 0; i < ARRAY_LEN(text); i++) {
            struct pl_layout l = layout_of(&x, text[i]);

            pl_cost(&cost[i], problem_of(&x), &l);
        }
        if (held)
            assert_true(cost[0].total > 1.1 * cost[1].total && cost[1].total > cost[2].total);
        else
            assert_true(fabs(cost[0].total - cost[2].total) < 1e-12);
        x.t = &slow;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_of_products_are_kept_as_they_were_cast),
        cmocka_unit_test(weights_are_kept_twice_unless_they_are_gathered_narrow),
        cmocka_unit_test(the_published_recipe_of_llama_70b_in_fp8_fits),
        cmocka_unit_test(a_recipe_costs_its_casts),
        cmocka_unit_test(narrow_weights_are_gathered_in_half_the_bytes),
        cmocka_unit_test(options_take_part_where_a_space_names_them),
        cmocka_unit_test(gradients_in_fp32_need_zero_in_deepspeed),
        cmocka_unit_test(modules_drop_what_they_keep),
        cmocka_unit_test(modules_repeat_what_they_compute),
        cmocka_unit_test(units_and_blocks_keep_what_they_keep),
        cmocka_unit_test(blocks_repeat_their_layers_only),
        cmocka_unit_test(overlapped_collectives_cost_buffers),
        cmocka_unit_test(dispatchers_send_what_they_send),
        cmocka_unit_test(groups_bound_the_nodes_that_a_token_meets),
        cmocka_unit_test(graphs_hide_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
