/* The cost model: sums, limits that physics sets, ranking of whole spaces. */
#include "plan/cost_parts.h"
#include "tests/unit/plan_world.h"

#include <errno.h>
#include <math.h>

static struct pl_cost cost_of(const struct world *x, const char *layout)
{
    struct pl_layout l = layout_of(x, layout);
    struct pl_cost c;

    pl_cost(&c, problem_of(x), &l);
    return c;
}

static void classes_add_up_to_the_total(void **state)
{
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 4, 256, "megatron");
    struct pl_cost c =
        cost_of(&x, "{'tp':2,'sp':1,'pp':2,'vp':2,'ep':4,'zero':1,'precision':'bf16'}");
    double sum = 0;

    (void)state;
    for (int i = 0; i < PL_COST_CLASSES; i++) {
        assert_true(c.seconds[i] >= 0);
        sum += c.seconds[i];
    }
    assert_true(fabs(sum / c.total - 1) < 1e-12);
    assert_true(fabs(c.tokens_per_s * c.total / (256.0 * x.w.seq) - 1) < 1e-12);
}

static void stages_that_share_an_embedding_add_up_its_gradient(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 2, 64, "megatron");
    const char *near = "{'pp':2,'dp':8,'tp':1,'precision':'bf16'}";
    const char *whole = "{'pp':1,'dp':16,'tp':1,'precision':'bf16'}";
    double link = 1e18, bytes = 4.0 * x.m.vocab * x.m.hidden, untied, more;

    (void)state;
    for (int i = 0; i < x.c.nlinks; i++)
        link = fmin(link, x.c.link[i].gbs * 1e9);
    untied = cost_of(&x, near).seconds[PL_COST_DP];
    x.m.tied = true;
    more = cost_of(&x, near).seconds[PL_COST_DP] - untied;
    /* Across nodes a pair sends what it has once each way, in fp32, over all interfaces of neither.
     */
    assert_true(more >= bytes / link && more < 3 * bytes / link);
    more = cost_of(&x, "{'pp':2,'dp':2,'tp':4,'precision':'bf16'}").seconds[PL_COST_DP];
    x.m.tied = false;
    more -= cost_of(&x, "{'pp':2,'dp':2,'tp':4,'precision':'bf16'}").seconds[PL_COST_DP];
    assert_true(more > 0 && more < bytes / link); /* a quarter each */
    untied = cost_of(&x, whole).seconds[PL_COST_DP];
    x.m.tied = true;
    assert_true(cost_of(&x, whole).seconds[PL_COST_DP] <= untied); /* one copy on one stage */
}

static void no_layout_beats_the_peak(void **state)
{
    static const char *const model[] = {"gpt-22B", "llama-8b", "mixtral-8x7b", "llama-70b"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(model); i++) {
        struct world x = world_of(model[i], "dgx-h100", 8, 256, "megatron");
        struct pl_problem p = world_problem(&x);
        struct pl_space s;
        struct pl_plan plan;
        struct err e = {0};

        x.w.precision = PL_BF16;
        assert_int_equal(pl_space_parse(&s, NULL, problem_of(&x), &e), 0);
        assert_int_equal(pl_plan_rank(&plan, &s, &p, 5, 0.05, PL_TOKENS_PER_S, &e), 0);
        for (size_t j = 0; j < plan.n; j++) {
            const struct pl_plan_entry *one = &plan.at[j];
            double mfu = pl_mfu(problem_of(&x), &one->layout, one->cost.tokens_per_s);

            double share = pl_peak_share(problem_of(&x), &one->layout, one->cost.tokens_per_s);

            assert_true(mfu > 0.3 && mfu < 0.8);
            assert_true(share > 0 && share < mfu);
            assert_true(one->memory.total < 0.95 * 80 * (1 << 30));
            assert_true(j == 0 || one->cost.total >= plan.at[j - 1].cost.total);
            assert_true((j == 0) == (one->why[0] == '\0'));
        }
        pl_plan_done(&plan);
    }
}

static void a_large_model_on_many_devices_is_ranked_at_once(void **state)
{
    struct world x = world_of("gpt-175B", "dgx-a100", 1536, 6144, "megatron");
    struct pl_problem p = world_problem(&x);
    struct pl_space s;
    struct pl_plan plan;
    struct err e = {0};
    AUTO_JSON *v = NULL;

    (void)state;
    x.w.precision = PL_BF16;
    assert_int_equal(pl_space_parse(&s, NULL, problem_of(&x), &e), 0);
    assert_int_equal(pl_plan_rank(&plan, &s, &p, 20, 0.05, PL_TOKENS_PER_S, &e), 0);
    assert_int_equal(plan.n, 20);
    assert_true(plan.legal > 50000);
    v = pl_plan_json(&plan, &p);
    assert_int_equal(json_array_size(json_object_get(v, "layouts")), 20);
    pl_plan_done(&plan);
}

static void a_model_that_cannot_fit_is_reported_with_the_bytes(void **state)
{
    struct world x = world_of("gpt-1T", "dgx-a100", 1, 8, "megatron");
    struct pl_problem p = world_problem(&x);
    struct pl_space s;
    struct pl_plan plan = {0};
    struct err e = {0};

    (void)state;
    x.w.precision = PL_BF16;
    assert_int_equal(pl_space_parse(&s, NULL, problem_of(&x), &e), 0);
    assert_true(pl_plan_rank(&plan, &s, &p, 20, 0, PL_TOKENS_PER_S, &e) < 0);
    assert_non_null(strstr(e.text, "legal layouts fits: the smallest"));
    assert_null(strstr(e.text, "uneven"));
    assert_null(plan.at);
}

/* 126 layers have only a factor of two in common with 512 devices: what keeps the model out are
 * even stages, and with uneven ones it fits. */
static void layers_that_exclude_a_model_are_named(void **state)
{
    static const struct {
        const char *trainer, *space;
    } row[] = {
        {"megatron", "{'tp':[8],'cp':[1],'micro_batch':[1],'zero':[1],'stages':['even']}"},
        {"megatron", "{'tp':[8],'cp':[1],'micro_batch':[1],'zero':[1]}"},
        {"partune", "{'tp':[8],'cp':[1],'micro_batch':[1],'zero':[1]}"},
        {"any", "{'tp':[8],'cp':[1],'micro_batch':[1],'zero':[1]}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("llama-405b", "dgx-h100", 64, 128, row[i].trainer);
        struct pl_problem p = world_problem(&x);
        AUTO_JSON *only = unit_json(row[i].space);
        struct pl_space s;
        struct pl_plan plan = {0};
        struct err e = {0};

        x.w.precision = PL_BF16;
        assert_int_equal(pl_space_parse(&s, only, problem_of(&x), &e), 0);
        assert_int_equal(pl_plan_rank(&plan, &s, &p, 3, 0, PL_TOKENS_PER_S, &e),
                         i == 0 ? -ENOENT : 0);
        if (i == 0)
            assert_non_null(strstr(e.text,
                                   "layers 126 divide evenly over at most pp 2 on 512 devices: "
                                   "\"stages\": [\"even\", \"balanced\"]"));
        pl_plan_done(&plan);
    }
}

static void a_context_gives_what_single_calls_give_in_any_order(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 16, "any");
    struct pl_problem p = world_problem(&x);
    struct pl_cost_ctx *k = pl_cost_ctx_new(&p, NULL);
    struct pl_space s;
    struct pl_layout *l;
    size_t n;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_space_parse(&s, NULL, problem_of(&x), &e), 0);
    assert_int_equal(pl_space_list(&l, &n, 1 << 20, &s, &p, NULL, &e), 0);
    for (size_t i = 0; i < n; i += 7) {
        size_t j = i * 7919 % n;
        struct pl_cost a, b;

        pl_cost_at(&a, k, &l[j]);
        pl_cost(&b, problem_of(&x), &l[j]);
        assert_true(a.total == b.total && a.total > 0 && isfinite(a.total));
    }
    free(l);
    pl_cost_ctx_free(k);
}

static void faster_parts_never_make_an_iteration_slower(void **state)
{
    static const char *const layout[] = {
        "{'tp':8,'sp':1,'pp':2,'zero':1,'precision':'bf16','micro_batch':2}",
        "{'tp':2,'pp':4,'vp':2,'precision':'bf16','recompute':'full'}",
        "{'zero':3,'precision':'bf16'}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layout); i++) {
        struct world x = world_of("gpt-22B", "dgx-a100", 4, 64, "any"), y;
        double before = cost_of(&x, layout[i]).total;

        y = x;
        y.c.device.gemm_tflops *= 1.1;
        assert_true(cost_of(&y, layout[i]).total < before);
        y = x;
        y.c.device.memory_gbs *= 1.1;
        assert_true(cost_of(&y, layout[i]).total < before);
        y = x;
        y.c.link[0].gbs *= 1.1;
        y.c.link[1].gbs *= 1.1;
        assert_true(cost_of(&y, layout[i]).total <= before);
    }
}

/* Rows of other people's runs are measured against the cost model, whether or not their layouts are
 * legal. */
static void a_layout_that_breaks_a_rule_has_a_cost_as_well(void **state)
{
    static const char *const broken[] = {
        "{'pp':8,'schedule':'dualpipe-v','precision':'bf16'}", /* 4 micro-batches of 16 */
        "{'pp':8,'vp':1,'schedule':'dualpipe-v','precision':'bf16'}",
        "{'pp':8,'vp':1,'schedule':'zb-v','precision':'bf16'}",
    };
    struct world x = world_of("gpt-22B", "dgx-h100", 4, 16, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct pl_layout layout = layout_of(&x, broken[i]);
        struct pl_problem problem = world_problem(&x);
        struct pl_cost cost;

        assert_false(pl_layout_check(NULL, &problem, &layout));
        pl_cost(&cost, &problem, &layout);
        assert_true(isfinite(cost.total) && cost.total > 0);
    }
}

static void layouts_order_as_their_physics_does(void **state)
{
    static const struct {
        const char *faster, *slower, *why;
    } row[] = {
        {"{'pp':4,'vp':4,'precision':'bf16'}", "{'pp':4,'precision':'bf16'}",
         "interleaving shrinks the bubble"},
        {"{'pp':4,'schedule':'zero-bubble','precision':'bf16'}", "{'pp':4,'precision':'bf16'}",
         "weight steps fill it"},
        {"{'tp':8,'precision':'bf16'}", "{'tp':16,'precision':'bf16'}", "tp leaves the node"},
        {"{'tp':8,'precision':'bf16'}", "{'tp':8,'precision':'bf16','recompute':'full'}",
         "recompute is work"},
        {"{'tp':2,'pp':2,'overlap_grad_reduce':1,'precision':'bf16'}",
         "{'tp':2,'pp':2,'precision':'bf16'}", "reduction overlaps compute"},
        {"{'precision':'bf16','tp':4}", "{'precision':'fp32','tp':4}",
         "matrix units take half precision"},
        {"{'precision':'fp8','tp':2,'micro_batch':4}",
         "{'precision':'bf16','tp':2,'micro_batch':4}", "and fp8"},
    };
    struct world x = world_of("gpt-22B", "dgx-h100", 4, 128, "any");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (cost_of(&x, row[i].faster).total >= cost_of(&x, row[i].slower).total)
            fail_msg("%s: %s is not faster than %s", row[i].why, row[i].faster, row[i].slower);
}

static void ranks_that_share_cores_take_turns(void **state)
{
    struct world x = world_cpu("tiny-moe", 2, 16, "partune");
    struct pl_cost two = cost_of(&x, "{'world':2,'micro_batch':2}"), eight;

    (void)state;
    x.c.oversubscribe = true;
    eight = cost_of(&x, "{'world':8,'micro_batch':2}");
    assert_true(eight.total >
                0.95 * two.total); /* four times the ranks on the same cores gain nothing */
    x.c.devices_per_node = 8;
    assert_true(cost_of(&x, "{'world':8,'micro_batch':2}").total < 0.4 * two.total);
}

static void a_ring_passes_the_bytes_that_its_definition_says(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 4, 64, "any");
    struct pl_constants k = pl_default_constants;
    struct pl_rates rates;
    struct pl_op_ctx op = {&k, world_problem(&x), &rates};
    struct pl_group g;
    static const double BYTES = 1e9;

    (void)state;
    k.near = k.far = 1;
    x.c.link[0].latency_us = x.c.link[1].latency_us = 0;
    pl_rates_of(&rates, &k, &op.problem, PL_BF16, 1);
    rates.collective_s = 0;
    pl_group_of(&g, &op, 8, 1); /* one node: 300 GB/s */
    assert_true(fabs(pl_all_reduce_s(&g, BYTES) - 2 * BYTES * 7 / 8 / 300e9) < 1e-9);
    pl_group_of(&g, &op, 4, 8); /* a member a node: its own interface of 25 GB/s */
    assert_true(fabs(pl_gather_s(&g, BYTES) - BYTES * 3 / 4 / 25e9) < 1e-9);
    pl_group_of(&g, &op, 32, 1); /* all: eight interfaces a node */
    assert_true(fabs(pl_gather_s(&g, BYTES) - BYTES * 31 / 32 / 200e9) < 1e-9);
    assert_true(fabs(pl_all_to_all_s(&g, BYTES) - BYTES * 24 / 32 / 25e9) < 1e-9);
    pl_group_of(&g, &op, 2, 1); /* to the neighbor: all of one's own link */
    assert_true(fabs(pl_send_s(&g, BYTES) - BYTES / 300e9) < 1e-9);
    pl_group_of(&g, &op, 8, 1);
    assert_true(fabs(pl_send_s(&g, BYTES) - BYTES / 300e9) < 1e-9);
    pl_group_of(&g, &op, 2, 8);
    assert_true(fabs(pl_send_s(&g, BYTES) - BYTES / 25e9) < 1e-9);
    pl_group_of(&g, &op, 16, 1); /* a ring over two nodes waits for the slowest step */
    assert_true(fabs(pl_send_s(&g, BYTES) - BYTES / 25e9) < 1e-9);
}

/* fp8 on units that lack it computes in half precision, and casts besides. */
static void fp8_without_units_is_no_faster_than_half_and_not_far_behind(void **state)
{
    struct world x = world_of("llama-8b", "dgx-a100", 1, 64, "megatron");
    double half = cost_of(&x, "{'tp':2,'sp':1,'precision':'bf16'}").total;
    double fp8 = cost_of(&x, "{'tp':2,'sp':1,'precision':'fp8'}").total;

    (void)state;
    assert_true(x.c.device.tflops_fp8 <= 0);
    assert_true(fp8 >= half && fp8 < 1.5 * half);
}

static void a_measured_share_of_a_link_overrides_the_usual_one(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 4, 64, "any"), back;
    struct pl_rates rates;
    struct pl_op_ctx op = {&pl_default_constants, world_problem(&x), &rates};
    struct pl_group usual, measured;
    struct err e = {0};

    (void)state;
    pl_rates_of(&rates, op.constants, &op.problem, PL_BF16, 1);
    pl_group_of(&usual, &op, 4, 8);
    x.c.link[1].share = pl_default_constants.far / 2;
    pl_group_of(&measured, &op, 4, 8);
    assert_true(fabs(measured.far_bps / usual.far_bps - 0.5) < 1e-12);
    assert_true(measured.near_bps == usual.near_bps);

    AUTO_JSON *v = pl_cluster_json(&x.c);

    assert_int_equal(pl_cluster_parse(&back.c, v, NULL, &e), 0);
    assert_true(back.c.link[1].share == x.c.link[1].share && back.c.link[0].share == 0);
}

/* On H100, attention for Hopper's units before Ampere's before older ones; on A100 the first two
 * are alike, since none of its units is unused. */
/* Aurora's tiles have a link for each pair: N members of a node exchange over N - 1 of them, and
 * experts inside a node beat the same experts over two. */
static void an_exchange_uses_every_pair_of_a_full_mesh(void **state)
{
    struct world x = world_of("mula-220b-a10b", "aurora-pvc", 4, 48, "any");
    struct world back = x;
    AUTO_JSON *v = pl_cluster_json(&x.c);
    struct pl_constants k = pl_default_constants;
    struct pl_rates rates;
    struct pl_op_ctx op = {&k, world_problem(&x), &rates};
    struct pl_group g, pair;
    struct err e = {0};
    double bytes = 12e9;

    (void)state;
    assert_int_equal(pl_cluster_parse(&back.c, v, NULL, &e), 0);
    assert_true(x.c.link[1].per_pair && back.c.link[1].per_pair && !back.c.link[0].per_pair);
    k.collective_us = 0;
    x.c.link[1].latency_us = 0;
    pl_rates_of(&rates, &k, &op.problem, PL_BF16, 1);
    pl_group_of(&g, &op, 12, 1);
    pl_group_of(&pair, &op, 2, 6);
    assert_true(fabs(pl_all_to_all_s(&g, bytes) / (bytes / 12 / (17e9 * k.near)) - 1) < 1e-9);
    assert_true(fabs(pl_gather_s(&g, bytes) / (bytes / 12 / (17e9 * k.near)) - 1) < 1e-9);
    assert_true(fabs(pl_send_s(&g, 1e9) / (1e9 / (17e9 * k.near)) - 1) < 1e-9);
    assert_true(fabs(pl_all_to_all_s(&pair, bytes) / (bytes / 2 / (17e9 * k.near)) - 1) < 1e-9);
    pl_group_of(&pair, &op, 24, 1);
    assert_true(pl_all_to_all_s(&pair, bytes) > 2 * pl_all_to_all_s(&g, bytes));
}

static void attention_is_as_fast_as_the_units_that_it_was_written_for(void **state)
{
    static const char *const cluster[] = {"dgx-a100", "dgx-h100"};

    (void)state;
    for (int c = 0; c < 2; c++) {
        double seconds[4];

        for (int units = 0; units < 4; units++) {
            struct world x = world_of("llama-8b", cluster[c], 1, 64, "any");
            struct pl_trainer t = *x.t;

            t.flash_units = units;
            x.t = &t;
            seconds[units] = cost_of(&x, "{'tp':2,'sp':1,'precision':'bf16'}").total;
        }
        assert_true(seconds[1] > seconds[2] * 1.01);
        assert_true(c ? seconds[2] > seconds[3] * 1.01 : seconds[2] == seconds[3]);
        assert_true(seconds[0] == seconds[3]);
    }
}

static void zero_2_scatters_once_under_a_pipeline(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 2, 64, "any");
    double piped = cost_of(&x, "{'tp':2,'pp':2,'zero':2,'precision':'bf16'}").seconds[PL_COST_DP];
    double piped_1 = cost_of(&x, "{'tp':2,'pp':2,'zero':1,'precision':'bf16'}").seconds[PL_COST_DP];
    double flat = cost_of(&x, "{'tp':4,'zero':2,'precision':'bf16'}").seconds[PL_COST_DP];
    double flat_1 = cost_of(&x, "{'tp':4,'zero':1,'precision':'bf16'}").seconds[PL_COST_DP];

    (void)state;
    assert_true(fabs(piped / piped_1 - 1) < 1e-9);
    assert_true(flat > 4 * flat_1);
}

/* Fully sharded stages gather once a step, not for each of many micro-batches. */
/* Gathers stay in a group of `shard` ranks, gradients are added over the groups: once a step, or
 * with each micro-batch. */
static void copies_gather_inside_and_add_up_outside(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 4, 64, "megatron"), often;
    struct pl_trainer trainer = *x.t;
    const char *whole = "{'zero':3,'overlap_grad_reduce':1,'overlap_param_gather':1}",
               *node = "{'zero':3,'shard':8,'overlap_grad_reduce':1,'overlap_param_gather':1}",
               *one = "{'zero':3,'shard':8,'micro_batch':2,'overlap_grad_reduce':1,"
                      "'overlap_param_gather':1}";

    (void)state;
    trainer.copies_meet_often = true;
    x.c.link[x.c.nlinks - 1].gbs /= 8; /* one interface a node */
    often = x;
    often.t = &trainer;
    assert_true(cost_of(&often, node).seconds[PL_COST_DP] > /* two micro-batches */
                1.2 * cost_of(&x, node).seconds[PL_COST_DP]);
    assert_true(cost_of(&x, node).seconds[PL_COST_DP] < cost_of(&x, whole).seconds[PL_COST_DP]);
    assert_true(
        fabs(cost_of(&often, one).seconds[PL_COST_DP] / cost_of(&x, one).seconds[PL_COST_DP] - 1) <
        1e-9);
}

/* A ring hides behind attention, a gather does not; heads for sequence send less where ranks are
 * many; by level they stay in the node. Short sequences: attention hides little. */
static void context_ranks_exchange_in_four_ways(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 4, 64, "megatron");
    double gather = cost_of(&x, "{'cp':8,'cp_comm':'all-gather'}").seconds[PL_COST_CP],
           heads = cost_of(&x, "{'cp':8,'cp_comm':'a2a'}").seconds[PL_COST_CP],
           ring = cost_of(&x, "{'cp':16}").seconds[PL_COST_CP],
           levels = cost_of(&x, "{'cp':16,'cp_comm':'a2a+p2p'}").seconds[PL_COST_CP];
    struct pl_layout l = layout_of(&x, "{'cp':16,'cp_comm':'a2a+p2p'}");
    struct pl_memory p2p, all;

    (void)state;
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
    assert_int_equal(pl_cp_inner(&l, &x.m, &x.c), 8);
    assert_true(heads > 0 && gather > heads);
    assert_true(ring > 0 && levels > 0 && levels < ring);
    l.cp_comm = PL_CP_P2P;
    pl_memory_worst(&p2p, problem_of(&x), &l);
    l.cp_comm = PL_CP_ALL_GATHER;
    pl_memory_worst(&all, problem_of(&x), &l);
    /* keys and values of all 8,192 tokens, and their gradients, in half precision */
    assert_true(
        fabs(all.bytes[PL_MEM_COMM] - p2p.bytes[PL_MEM_COMM] - 2.0 * 8192 * 2 * 8 * 128 * 2) < 1);
}

static void zero_3_gathers_once_under_a_pipeline(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 4, 64, "torchtitan");
    double two = cost_of(&x, "{'pp':4,'zero':2,'precision':'bf16'}").seconds[PL_COST_DP];
    double three = cost_of(&x, "{'pp':4,'zero':3,'precision':'bf16'}").seconds[PL_COST_DP];
    double flat = cost_of(&x, "{'zero':3,'precision':'bf16'}").seconds[PL_COST_DP];
    struct pl_layout l = layout_of(&x, "{'pp':4,'zero':3,'precision':'bf16'}");
    struct pl_memory m;

    (void)state;
    pl_memory_worst(&m, problem_of(&x), &l);
    assert_true(fabs(three / two - 1) < 1e-9 && flat > 0);
    assert_true(m.bytes[PL_MEM_WEIGHTS] > 0.2 * 2 * (double)pl_model_params(&x.m));
}

/* A rank of a dropless layer computes 1.1 times its share of the tokens, a number that no unit of
 * hardware divides: it takes a time between those of the capacities on both sides. */
static void tokens_of_a_dropless_layer_need_no_alignment(void **state)
{
    static const double capacity[] = {1, 0, 1.25}; /* 0: dropless */
    double seconds[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct world x = world_of("mixtral-8x7b", "dgx-h100", 4, 256, "megatron");

        x.m.moe.capacity_factor = capacity[i];
        seconds[i] =
            cost_of(&x, "{'tp':2,'sp':1,'pp':2,'ep':8,'etp':1,'zero':1,'precision':'bf16'}").total;
    }
    assert_true(seconds[0] < seconds[1] && seconds[1] < seconds[2]);
}

/* Scales of earlier steps save a pass over each operand, and casts of weights but one: the more the
 * fewer tokens share a weight. */
static void delayed_scales_cast_less(void **state)
{
    double gain[2];

    (void)state;
    for (int large = 0; large < 2; large++) {
        double seconds[2];

        for (int delayed = 0; delayed < 2; delayed++) {
            struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
            struct pl_trainer t = *x.t;

            t.fp8_delayed = delayed;
            x.t = &t;
            seconds[delayed] = cost_of(&x, large ? "{'precision':'fp8','micro_batch':4}"
                                                 : "{'precision':'fp8','micro_batch':1}")
                                   .total;
        }
        gain[large] = seconds[0] / seconds[1];
    }
    assert_true(gain[1] > 1.02 && gain[0] > gain[1]);
}

/* Current scales, one a tensor, read each operand once more than delayed ones and save the
 * weights' casts. Experts are quantized one by one: the smaller they are cut, the more kernels. */
static void current_scales_lie_between_and_cost_a_kernel_an_expert(void **state)
{
    double seconds[3], more[2];

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
        struct pl_trainer t = *x.t;

        t.fp8_delayed = way == 0;
        t.fp8_current = way == 1;
        x.t = &t;
        seconds[way] = cost_of(&x, "{'precision':'fp8','micro_batch':4}").total;
    }
    assert_true(seconds[0] < seconds[1] && seconds[1] < seconds[2]);
    for (int fine = 0; fine < 2; fine++) {
        double forward[2];

        for (int current = 0; current < 2; current++) {
            struct world x = world_of("mixtral-8x7b", "dgx-h100", 1, 64, "megatron");
            struct pl_trainer t = *x.t;

            t.fp8_delayed = !current;
            t.fp8_current = current;
            x.t = &t;
            if (fine) {
                x.m.moe.experts *= 8;
                x.m.moe.top_k *= 8;
                x.m.moe.expert_ffn /= 8;
            }
            forward[current] =
                cost_of(&x, "{'ep':8,'zero':1,'precision':'fp8'}").seconds[PL_COST_FORWARD];
        }
        more[fine] = forward[1] - forward[0];
    }
    /* seven more experts a rank, two products, two kernels, 32 layers, 8 micro-batches */
    assert_true(more[1] - more[0] >
                0.99 * 7 * 2 * 2 * 32 * 8 * pl_default_constants.kernel_us * 1e-6);
}

/* What an overlapped exchange hides is a share of it, and of no more than there is to compute. */
static void an_exchange_hides_behind_no_more_than_is_computed(void **state)
{
    static const char *const blocking = "{'pp':2,'vp':4,'schedule':'interleaved','ep':16,'zero':1,"
                                        "'precision':'bf16'}";
    static const char *const overlapped =
        "{'pp':2,'vp':4,'schedule':'interleaved','ep':16,'zero':1,"
        "'overlap_moe_a2a':1,'precision':'bf16'}";
    double share = pl_default_constants.hidden;

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        struct world x = world_of("mixtral-8x7b", "dgx-h100", 4, 256, "megatron");
        struct pl_cost a, b;
        double work;

        x.m.moe.experts = 16;
        x.c.link[1].gbs = slow ? 1 : 400;
        a = cost_of(&x, blocking);
        b = cost_of(&x, overlapped);
        work = a.seconds[PL_COST_FORWARD] + a.seconds[PL_COST_BACKWARD];
        if (slow) {
            double hidden = a.seconds[PL_COST_EP] - b.seconds[PL_COST_EP];

            assert_true(a.seconds[PL_COST_EP] > work);
            assert_true(hidden > 0.9 * share * work && hidden <= share * work);
        } else {
            assert_true(fabs(b.seconds[PL_COST_EP] / a.seconds[PL_COST_EP] - (1 - share)) < 1e-9);
        }
    }
}

/* With sp a rank makes the latents of its own rows, half of all here, and so their product is half
 * of what it was in each of the three; selective recomputation normalizes them once more. */
static void latents_are_made_of_a_ranks_own_rows(void **state)
{
    struct world x = world_cpu("deepseek-v2-lite", 2, 8, "partune");
    struct pl_rates rates;
    struct pl_op_ctx op = {&pl_default_constants, world_problem(&x), &rates};
    struct pl_layout all = layout_of(&x, "{'world':2,'tp':2,'sp':0,'ep':1,'etp':2}"), own = all;
    struct pl_layer_time whole, half, plain;
    double rows = x.w.seq, flops, bytes;

    (void)state;
    pl_rates_of(&rates, op.constants, &op.problem, PL_FP32, 1);
    flops = 2 * rows / 2 * x.m.hidden * (x.m.mla.kv_lora_rank + x.m.mla.qk_rope_head_dim);
    bytes = 2 * rows * x.m.mla.kv_lora_rank * op.rates->element;
    own.sp = 1;
    pl_layer_time_of(&whole, &op, &all, false);
    pl_layer_time_of(&half, &op, &own, false);
    assert_true(whole.fwd - half.fwd >= flops / op.rates->flops);
    assert_true(whole.bwd_weight - half.bwd_weight >= flops / op.rates->flops);
    all.recompute = PL_RECOMPUTE_SELECTIVE;
    pl_layer_time_of(&whole, &op, &all, false);
    x.m.mla.kv_lora_rank = 1; /* the norms of the layer, and what is in front of its products */
    op.problem = world_problem(&x);
    pl_layer_time_of(&plain, &op, &all, false);
    assert_true(fabs((whole.re - plain.re) * op.rates->memory / bytes - 1) < 0.01);
}

/* The chunks of an interleaved stage end one after the other, so that there is work next to the
 * collectives of all but one. */
static void interleaving_hides_gradients(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-h100", 8, 64, "megatron");
    double plain = cost_of(&x, "{'tp':8,'pp':4,'zero':1,'overlap_grad_reduce':1,"
                               "'precision':'bf16'}")
                       .seconds[PL_COST_DP];
    double chunks = cost_of(&x, "{'tp':8,'pp':4,'vp':4,'schedule':'interleaved','zero':1,"
                                "'overlap_grad_reduce':1,'precision':'bf16'}")
                        .seconds[PL_COST_DP];
    double blocking = cost_of(&x, "{'tp':8,'pp':4,'vp':4,'schedule':'interleaved','zero':1,"
                                  "'precision':'bf16'}")
                          .seconds[PL_COST_DP];

    (void)state;
    assert_true(chunks < plain && plain < blocking);
}

/* A trainer that all-reduces where zero 1 would scatter moves twice the bytes, and in fp32 even if
 * it keeps gradients in half precision; then it gathers weights like any other. */
static void whole_reductions_move_four_bytes_twice(void **state)
{
    static const char text[] = "{'world':64,'tp':8,'zero':1,'precision':'bf16'}";
    struct world x = world_of("llama-8b", "dgx-h100", 8, 64, "any");
    struct pl_layout l = layout_of(&x, text);
    struct pl_trainer t = *x.t;
    double dp[3];

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct pl_cost c;

        t.half_grads = kind > 0;
        t.whole_reduce = kind > 1;
        pl_cost(&c, problem_with(&x, &t), &l);
        dp[kind] = c.seconds[PL_COST_DP];
    }
    /* scattered and gathered bytes: 4 + 2, 2 + 2, 2 x 4 + 2; what is left is latency */
    assert_true(fabs(dp[0] / dp[1] - 6 / 4.0) < 0.05 && fabs(dp[2] / dp[1] - 10 / 4.0) < 0.1);
}

/* Zero 2 is another optimizer of DeepSpeed's: it scatters what the others reduce whole. */
static void zero_2_scatters_where_zero_1_reduces_whole(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 8, 64, "any");
    struct pl_layout l = layout_of(&x, "{'world':64,'tp':8,'zero':2,'precision':'bf16'}");
    struct pl_trainer t = *x.t;
    struct pl_cost scattered, told;

    (void)state;
    t.half_grads = true;
    pl_cost(&scattered, problem_with(&x, &t), &l);
    t.whole_reduce = true;
    pl_cost(&told, problem_with(&x, &t), &l);
    assert_true(told.seconds[PL_COST_DP] == scattered.seconds[PL_COST_DP]);
}

/* grad_dtype bf16 moves the bytes of a trainer whose gradients are in half precision, in every way
 * to add them up; in a whole reduction, too, which is in fp32 otherwise. */
static void gradients_in_bf16_move_half_the_bytes(void **state)
{
    static const char *const layouts[] = {
        "{'world':64,'tp':8,'precision':'bf16'}",
        "{'world':64,'tp':8,'zero':1,'precision':'fp8'}",
        "{'world':64,'tp':8,'zero':2,'precision':'bf16','overlap_grad_reduce':1}",
        "{'world':64,'tp':4,'pp':2,'zero':1,'shard':4,'precision':'bf16'}",
    };
    struct world x = world_of("llama-8b", "dgx-h100", 8, 64, "any");
    struct pl_trainer half = *x.t, whole = *x.t;
    struct pl_cost plain, told, kept, reduced;

    (void)state;
    half.half_grads = whole.whole_reduce = true;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        struct pl_layout l = layout_of(&x, layouts[i]);

        pl_cost(&plain, problem_of(&x), &l);
        pl_cost(&kept, problem_with(&x, &half), &l);
        l.grad_dtype = PL_GRADS_BF16;
        pl_cost(&told, problem_of(&x), &l);
        assert_true(told.seconds[PL_COST_DP] == kept.seconds[PL_COST_DP]);
        assert_true(told.seconds[PL_COST_DP] < plain.seconds[PL_COST_DP]);
        pl_cost(&reduced, problem_with(&x, &whole), &l);
        l.grad_dtype = PL_GRADS_FP32;
        pl_cost(&plain, problem_with(&x, &whole), &l);
        assert_true(reduced.seconds[PL_COST_DP] < plain.seconds[PL_COST_DP]);
    }

    struct world bundled = world_of("tiny-llama", "local", 4, 64, "partune");
    struct pl_layout l = layout_of(&bundled, "{'world':4,'zero':2,'precision':'bf16'}");

    pl_cost(&plain, problem_of(&bundled), &l);
    l.grad_dtype = PL_GRADS_BF16;
    pl_cost(&told, problem_of(&bundled), &l);
    assert_true(told.seconds[PL_COST_DP] < plain.seconds[PL_COST_DP]);
}

/* Where stages exchange over a network each of a layer's collectives waits for each member: 4
 * all-reduces, with sp 10 gathers and scatters. */
static void pauses_count_members_where_stages_are_apart(void **state)
{
    static const struct {
        const char *layout;
        double pauses; /* of the slowest stage's layers, in a micro-batch */
    } cases[] = {{"{'world':64,'tp':4,'pp':2,'precision':'bf16'}", 16 * 4 * 4},
                 {"{'world':64,'tp':4,'sp':1,'pp':2,'precision':'bf16'}", 16 * 10 * 4},
                 {"{'world':64,'tp':4,'precision':'bf16'}", 0},
                 {"{'world':64,'pp':2,'precision':'bf16'}", 0},
                 {"{'world':8,'tp':4,'pp':2,'precision':'bf16'}", 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world x = world_of("llama-8b", "dgx-h100", 8, 64, "any");
        struct pl_layout l = layout_of(&x, cases[i].layout);
        struct pl_constants k = pl_default_constants;
        struct pl_cost_ctx *ctx = pl_cost_ctx_new(problem_of(&x), &k);
        struct pl_cost before, after;
        double want = cases[i].pauses * 1e-3 * 64 / l.dp;

        pl_cost_at(&before, ctx, &l);
        pl_cost_ctx_free(ctx);
        k.pause_us = 1000;
        ctx = pl_cost_ctx_new(problem_of(&x), &k);
        pl_cost_at(&after, ctx, &l);
        pl_cost_ctx_free(ctx);
        assert_true(fabs(after.seconds[PL_COST_TP] - before.seconds[PL_COST_TP] - want) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_add_up_to_the_total),
        cmocka_unit_test(stages_that_share_an_embedding_add_up_its_gradient),
        cmocka_unit_test(no_layout_beats_the_peak),
        cmocka_unit_test(a_large_model_on_many_devices_is_ranked_at_once),
        cmocka_unit_test(a_model_that_cannot_fit_is_reported_with_the_bytes),
        cmocka_unit_test(layers_that_exclude_a_model_are_named),
        cmocka_unit_test(a_context_gives_what_single_calls_give_in_any_order),
        cmocka_unit_test(faster_parts_never_make_an_iteration_slower),
        cmocka_unit_test(a_layout_that_breaks_a_rule_has_a_cost_as_well),
        cmocka_unit_test(layouts_order_as_their_physics_does),
        cmocka_unit_test(ranks_that_share_cores_take_turns),
        cmocka_unit_test(a_measured_share_of_a_link_overrides_the_usual_one),
        cmocka_unit_test(an_exchange_uses_every_pair_of_a_full_mesh),
        cmocka_unit_test(attention_is_as_fast_as_the_units_that_it_was_written_for),
        cmocka_unit_test(zero_2_scatters_once_under_a_pipeline),
        cmocka_unit_test(copies_gather_inside_and_add_up_outside),
        cmocka_unit_test(context_ranks_exchange_in_four_ways),
        cmocka_unit_test(zero_3_gathers_once_under_a_pipeline),
        cmocka_unit_test(tokens_of_a_dropless_layer_need_no_alignment),
        cmocka_unit_test(delayed_scales_cast_less),
        cmocka_unit_test(current_scales_lie_between_and_cost_a_kernel_an_expert),
        cmocka_unit_test(an_exchange_hides_behind_no_more_than_is_computed),
        cmocka_unit_test(latents_are_made_of_a_ranks_own_rows),
        cmocka_unit_test(interleaving_hides_gradients),
        cmocka_unit_test(whole_reductions_move_four_bytes_twice),
        cmocka_unit_test(zero_2_scatters_where_zero_1_reduces_whole),
        cmocka_unit_test(gradients_in_bf16_move_half_the_bytes),
        cmocka_unit_test(pauses_count_members_where_stages_are_apart),
        cmocka_unit_test(a_ring_passes_the_bytes_that_its_definition_says),
        cmocka_unit_test(fp8_without_units_is_no_faster_than_half_and_not_far_behind),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
