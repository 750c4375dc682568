/* What a layout keeps in host memory: bytes there and on the device, seconds, rules, values of a
 * space, and the profile's facts. */
#include "tests/unit/plan_world.h"

#include <math.h>

static const double GIB = 1 << 30;

static struct pl_memory memory_of(const struct world *x, const char *layout)
{
    struct pl_layout l = layout_of(x, layout);
    struct pl_memory ret;
    struct pl_verdict verdict;
    char text[512];

    if (!pl_layout_check(&verdict, problem_of(x), &l))
        fail_msg("%s: %s", layout, pl_verdict_text(text, sizeof(text), &verdict));
    pl_memory_worst(&ret, problem_of(x), &l);
    return ret;
}

static struct pl_cost cost_of(const struct world *x, const char *layout)
{
    struct pl_layout l = layout_of(x, layout);
    struct pl_cost ret;

    pl_cost(&ret, problem_of(x), &l);
    return ret;
}

static bool near(double left, double right)
{
    return fabs(left - right) < 1e-9 * fabs(right) + 1e-6;
}

/* A calibration's bandwidths are what kernels and copies reached: no share is taken of them. */
static void measured_bandwidths_are_taken_whole(void **state)
{
    struct world peak = world_of("llama-8b", "dgx-h100", 1, 64, "megatron"), measured;
    const char *layout = "{'world':8,'tp':2,'sp':1,'zero':1,'offload_activations':8}";

    (void)state;
    peak.c.host.memory_gbs = 0; /* the link bounds the copies */
    measured = peak;
    measured.c.measured = true;
    assert_true(cost_of(&measured, layout).total < cost_of(&peak, layout).total);
    measured.c.device.memory_gbs *= pl_constants_of(peak.t)->memory;
    measured.c.host.link_gbs *= 0.85;
    assert_true(near(cost_of(&measured, layout).total, cost_of(&peak, layout).total));
    measured.c.host.link_gbs /= 4;
    assert_true(cost_of(&measured, layout).total > cost_of(&peak, layout).total);
}

/* Megatron's hybrid optimizer: masters and moments go, with a copy of the gradients. */
static void a_share_of_the_state_moves_to_the_host(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_memory none = memory_of(&x, "{'world':8,'tp':2,'sp':1,'zero':1}"),
                     half =
                         memory_of(&x, "{'world':8,'tp':2,'sp':1,'zero':1,'offload_optimizer':50}"),
                     all = memory_of(&x,
                                     "{'world':8,'tp':2,'sp':1,'zero':1,'offload_optimizer':100}");
    double shard = none.bytes[PL_MEM_MASTER] / 4;

    (void)state;
    assert_true(none.host == 0 && shard > 0);
    assert_true(near(half.host, 16 * shard / 2) && near(all.host, 16 * shard));
    assert_true(near(none.total - half.total, 12 * shard / 2));
    assert_true(near(none.total - all.total, 12 * shard));
    assert_true(all.bytes[PL_MEM_MASTER] == 0 && all.bytes[PL_MEM_OPTIMIZER] == 0);
    assert_true(all.bytes[PL_MEM_GRADS] == none.bytes[PL_MEM_GRADS]);
}

/* With weights in the host DeepSpeed holds 18 bytes a parameter there, FSDP2 its masters once. */
static void sharded_weights_wait_in_the_host(void **state)
{
    static const struct {
        const char *trainer;
        double bytes,
            weights; /* of a parameter: in the host, and no more on the device as weights */
    } row[] = {{"deepspeed", 18, 2}, {"torchtitan", 16, 0}}; /* FSDP's shards are the masters */
    static const char plain[] = "{'world':8,'zero':3,'overlap_grad_reduce':1,"
                                "'overlap_param_gather':1,'precision':'bf16'",
                      more[] = ",'offload_optimizer':100,'offload_params':1}";

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("llama-8b", "dgx-h100", 1, 64, row[i].trainer);
        char text[256];
        struct pl_memory on, off;
        double shard;

        snprintf(text, sizeof(text), "%s}", plain);
        on = memory_of(&x, text);
        shard = on.bytes[PL_MEM_MASTER] / 4;
        snprintf(text, sizeof(text), "%s%s", plain, more);
        off = memory_of(&x, text);
        assert_true(near(off.host, row[i].bytes * shard));
        assert_true(fabs(on.bytes[PL_MEM_WEIGHTS] - off.bytes[PL_MEM_WEIGHTS] -
                         row[i].weights * shard) < 1);
        assert_true(off.bytes[PL_MEM_MASTER] == 0 && off.bytes[PL_MEM_OPTIMIZER] == 0);
        assert_true(off.bytes[PL_MEM_GRADS] < on.bytes[PL_MEM_GRADS]); /* a layer's */
    }
}

/* Alone a rank has nothing to share, and the whole model in the host. */
static void a_rank_alone_offloads_all_it_has(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "deepspeed");
    struct pl_memory m =
        memory_of(&x, "{'world':1,'precision':'bf16','grad_dtype':'bf16','offload_optimizer':100,"
                      "'offload_params':1}");

    (void)state;
    assert_true(fabs(m.host / (18.0 * (double)pl_model_params(&x.m)) - 1) < 1e-3);
    assert_true(m.bytes[PL_MEM_WEIGHTS] < 2.0 * (double)pl_model_params(&x.m) / 16);
}

/* Of 32 layers 10 leave; one of them is on its way. */
static void layers_that_offload_keep_one_on_the_device(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_memory all = memory_of(&x, "{'world':8,'zero':1}"),
                     some = memory_of(&x, "{'world':8,'zero':1,'offload_activations':10}");
    double kept = all.bytes[PL_MEM_ACTIVATIONS];

    (void)state;
    assert_true(near(some.bytes[PL_MEM_ACTIVATIONS], kept * (32 - 9) / 32));
    assert_true(near(some.host, kept * 10 / 32));
}

/* Copies down, update and copies up of Megatron's run at once: the slowest is what a step takes. */
static void the_hybrid_step_takes_its_slowest_part(void **state)
{
    static const char layout[] =
        "{'world':8,'tp':2,'sp':1,'zero':1,'precision':'bf16','offload_optimizer':100}";
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_memory m = memory_of(&x, layout);
    double shard = m.host / 16, update = 36 * shard / (0.5 * 614.4e9 / 8),
           down = 4 * shard / (0.85 * 63e9);

    (void)state;
    assert_true(near(cost_of(&x, layout).seconds[PL_COST_OPTIMIZER], update));
    x.c.host.memory_gbs = 0; /* unknown: the copies alone */
    assert_true(near(cost_of(&x, layout).seconds[PL_COST_OPTIMIZER], down));
    x.c.host.link_gbs = 0; /* PCIe 4.0 */
    assert_true(near(cost_of(&x, layout).seconds[PL_COST_OPTIMIZER], 2 * down));
}

/* DeepSpeed's gradients leave behind the backward pass; what is late shows, once the link is slow.
 */
static void gradients_leave_behind_the_backward_pass(void **state)
{
    static const char layout[] =
        "{'world':8,'zero':2,'overlap_grad_reduce':1,'precision':'bf16','offload_optimizer':100}";
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "deepspeed");
    double shard = memory_of(&x, layout).host / 16, update = 36 * shard / (0.5 * 614.4e9 / 8);
    double fast = cost_of(&x, layout).seconds[PL_COST_OPTIMIZER], slow;

    (void)state;
    assert_true(near(fast, update + 2 * shard / (0.85 * 63e9)));
    x.c.host.link_gbs = 0.5;
    slow = cost_of(&x, layout).seconds[PL_COST_OPTIMIZER];
    assert_true(slow > fast + 8 * 4 * shard / (0.85 * 0.5e9) / 2); /* 8 micro-batches */
}

/* A link that keeps pace costs nothing, a slow one what it is late by. */
static void activations_and_weights_hide_behind_the_passes(void **state)
{
    static const struct {
        const char *trainer, *plain, *offloaded;
        enum pl_cost_class cost;
    } row[] = {
        {"megatron", "{'world':8,'zero':1}", "{'world':8,'zero':1,'offload_activations':4}",
         PL_COST_OTHER},
        {"torchtitan", "{'world':8,'zero':3,'overlap_grad_reduce':1,'overlap_param_gather':1}",
         "{'world':8,'zero':3,'overlap_grad_reduce':1,'overlap_param_gather':1,"
         "'offload_optimizer':100,'offload_params':1}",
         PL_COST_DP},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("llama-8b", "gb200-nvl72", 2, 64, row[i].trainer);
        double plain = cost_of(&x, row[i].plain).seconds[row[i].cost], was;

        was = cost_of(&x, row[i].offloaded).seconds[row[i].cost];
        assert_true(near(was, plain));
        x.c.host.link_gbs = 1;
        assert_true(cost_of(&x, row[i].offloaded).seconds[row[i].cost] > plain + 1);
    }
}

/* The least that fits is legal, a byte less of host memory is not. */
static void the_host_bounds_what_is_offloaded(void **state)
{
    static const char layout[] = "{'world':8,'zero':1,'offload_optimizer':100}";
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_layout l = layout_of(&x, layout);
    double needs = 8 * memory_of(&x, layout).host / GIB;
    struct pl_verdict verdict;

    (void)state;
    x.c.host.memory_gib = needs * (1 + 1e-9);
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
    x.c.host.memory_gib = needs * (1 - 1e-9);
    assert_false(pl_layout_check(&verdict, problem_of(&x), &l));
    assert_string_equal(verdict.v[0].rule, "offload-fits-host");
    x.c.host.memory_gib = 0; /* unknown */
    assert_true(pl_layout_check(NULL, problem_of(&x), &l));
}

static void a_space_has_what_the_trainer_offloads(void **state)
{
    static const struct {
        const char *trainer;
        int optimizer, params, activations; /* how many values */
    } row[] = {{"megatron", 5, 1, 5}, {"deepspeed", 5, 2, 1}, {"torchtitan", 2, 2, 1}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of("llama-8b", "dgx-h100", 1, 64, row[i].trainer);
        AUTO_JSON *v = unit_json("{'offload_optimizer':'auto','offload_params':'auto',"
                                 "'offload_activations':'auto'}");
        AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
        struct err e = {0};

        assert_int_equal(pl_space_parse(space, v, problem_of(&x), &e), 0);
        assert_int_equal(space->axis[PL_KEY_OFFLOAD_OPT].n, row[i].optimizer);
        assert_int_equal(space->axis[PL_KEY_OFFLOAD_PARAMS].n, row[i].params);
        assert_int_equal(space->axis[PL_KEY_OFFLOAD_ACT].n, row[i].activations);
    }
}

/* Where nothing fits the reason names the keys, and with them something does. */
static void a_plan_without_a_layout_names_the_keys(void **state)
{
    static const struct {
        const char *space, *reason; /* NULL: something fits */
    } row[] = {
        {"{'zero':3,'micro_batch':1}", "\"offload_params\": \"auto\" in the space"},
        {"{'zero':3,'micro_batch':1,'offload_optimizer':'auto','offload_params':'auto'}", NULL},
    };
    struct world x = world_of("llama-70b", "dgx-h100", 1, 64, "torchtitan");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].space);
        AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
        struct pl_plan plan;
        struct err e = {0};
        int r;

        assert_int_equal(pl_space_parse(space, v, problem_of(&x), &e), 0);
        r = pl_plan_rank(&plan, space, problem_of(&x), 4, 0.05, PL_TOKENS_PER_S, &e);
        assert_int_equal(r < 0, row[i].reason != NULL);
        if (row[i].reason && !strstr(e.text, row[i].reason))
            fail_msg("%s", e.text);
        if (r == 0) {
            assert_true(plan.at[0].layout.offload_params);
            pl_plan_done(&plan);
        }
    }
}

static void a_profile_says_what_its_host_has(void **state)
{
    AUTO_JSON *v = unit_json("{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10,"
                             "'peak_tflops':{'fp32':1}},'host':{'memory_gib':64,'link_gbs':16}}");
    AUTO_JSON *back = NULL;
    AUTO_JSON *without = NULL;
    struct pl_cluster c, again;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&c, v, NULL, &e), 0);
    assert_true(near(c.host.memory_gib, 64) && near(c.host.link_gbs, 16) && c.host.memory_gbs == 0);
    back = pl_cluster_json(&c);
    assert_int_equal(pl_cluster_parse(&again, back, NULL, &e), 0);
    assert_true(near(again.host.memory_gib, 64) && again.host.memory_gbs == 0);
    c.host = (struct pl_host){0};
    without = pl_cluster_json(&c);
    assert_null(json_object_get(without, "host"));
}

/* "host" is beyond the total, and there only where something is. */
static void the_plan_shows_the_host_apart(void **state)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 64, "megatron");
    struct pl_memory none = memory_of(&x, "{'world':8,'zero':1}"),
                     some = memory_of(&x, "{'world':8,'zero':1,'offload_optimizer':100}");
    AUTO_JSON *without = pl_memory_json(&none);
    AUTO_JSON *with = pl_memory_json(&some);
    double sum = 0;

    (void)state;
    assert_null(json_object_get(without, "host"));
    assert_true(near(json_number_value(json_object_get(with, "host")), some.host));
    for (int i = 0; i < PL_MEM_CLASSES; i++)
        sum += some.bytes[i];
    assert_true(near(json_number_value(json_object_get(with, "total")), sum));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_bandwidths_are_taken_whole),
        cmocka_unit_test(a_share_of_the_state_moves_to_the_host),
        cmocka_unit_test(sharded_weights_wait_in_the_host),
        cmocka_unit_test(a_rank_alone_offloads_all_it_has),
        cmocka_unit_test(layers_that_offload_keep_one_on_the_device),
        cmocka_unit_test(the_hybrid_step_takes_its_slowest_part),
        cmocka_unit_test(gradients_leave_behind_the_backward_pass),
        cmocka_unit_test(activations_and_weights_hide_behind_the_passes),
        cmocka_unit_test(the_host_bounds_what_is_offloaded),
        cmocka_unit_test(a_space_has_what_the_trainer_offloads),
        cmocka_unit_test(a_plan_without_a_layout_names_the_keys),
        cmocka_unit_test(a_profile_says_what_its_host_has),
        cmocka_unit_test(the_plan_shows_the_host_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
