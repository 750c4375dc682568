/* Models, clusters, workloads and presets as they come from outside. */
#include "tests/unit/plan_world.h"

#include <limits.h>
#include <math.h>

/* 3 of 5 layers have experts, top_k 4: an even use gives 4 under "sequence" and "huggingface" and 3
 * under "megatron", so 0.4 there presses as 0.3 does here. */
static void load_balancing_losses_have_equal_gradients(void **state)
{
    static const double want[3][3] = {
        {0.3, 0.3, 0.3 * 4 / 3}, {0.3, 0.3, 0.3 * 4 / 3}, {0.3 * 3 / 4, 0.3 * 3 / 4, 0.3}};

    (void)state;
    for (int of = 0; of < 3; of++)
        for (int as = 0; as < 3; as++) {
            AUTO_JSON *v = unit_json("{'layers':5,'hidden':64,'vocab':64,'seq':8,'heads':4,'ffn':8,"
                                     "'moe':{'experts':8,'top_k':4,'expert_ffn':8,"
                                     "'dense_layers':2,'aux_loss_coef':0.3}}");
            AUTO_JSON *back = NULL;
            struct pl_model m, again;
            struct err e = {0};

            json_object_set_new(json_object_get(v, "moe"), "aux_loss",
                                json_string(pl_aux_loss_names[of]));
            assert_int_equal(pl_model_parse(&m, v, &e), 0);
            assert_float_equal(pl_aux_loss_coef(&m, (enum pl_aux_loss)as), want[of][as], 1e-12);
            back = pl_model_json(&m);
            assert_int_equal(pl_model_parse(&again, back, &e), 0);
            assert_int_equal(again.moe.aux_loss, of);
        }
}

static void every_model_preset_has_its_published_size(void **state)
{
    /* Parameters in 10^9 as their authors state them; half a unit of the last digit given. */
    static const struct {
        const char *name;
        double billions, within;
    } row[] = {
        {"gpt-1.4B", 1.4, 0.05},
        {"gpt-22B", 22, 0.5},
        {"gpt-175B", 175, 0.5},
        {"gpt-1T", 1008, 5},
        {"llama-8b", 8.03, 0.005},
        {"llama-70b", 70.6, 0.05},
        {"llama-405b", 405.9, 0.1},
        {"mixtral-8x7b", 46.7, 0.05},
        {"mixtral-8x22b", 140.6, 0.05},
        {"mula-7b-a1b", 6.9, 0.05},
        {"mula-20b-a2b", 20, 1},
        {"mula-100b-a7b", 100, 2},
        {"mula-220b-a10b", 220, 3},
        /* Of later models the parameters in the files that their authors publish. */
        {"llama-3.2-1b", 1.236, 0.001},
        {"llama-3.2-3b", 3.213, 0.001},
        {"llama-2-7b", 6.738, 0.001},
        {"llama-2-13b", 13.016, 0.001},
        {"llama-2-70b", 68.977, 0.001},
        {"codellama-34b", 33.744, 0.001},
        {"mistral-7b", 7.242, 0.001},
        {"qwen2.5-7b", 7.616, 0.001},
        {"qwen2.5-32b", 32.764, 0.001},
        {"qwen2.5-72b", 72.706, 0.001},
        {"qwen3-8b", 8.191, 0.001},
        {"qwen3-14b", 14.768, 0.001},
        {"qwen3-32b", 32.762, 0.001},
        {"qwen3-30b-a3b", 30.532, 0.001},
        {"qwen3-235b-a22b", 235.094, 0.001},
        {"deepseek-v2-lite", 15.706, 0.001},
        {"deepseek-v2", 235.74, 0.01},
        {"deepseek-v3", 671.0 + 11.6, 0.1}, /* with its module of prediction */
        {"kimi-k2", 1026.4, 0.5},
        /* Without the encoder of images, 0.872; the module's copies of 2 x 129280 rows. */
        {"llama-4-scout-17b-16e", 108.642 - 0.872, 0.001},
        {"llama-4-maverick-17b-128e", 401.584 - 0.872, 0.001},
        {"qwen3-next-80b-a3b", 79.674, 0.001},
        {"deepseek-v3.2", 685.4 - 1.85, 0.1},
        {"gpt-oss-20b", 20.91, 0.01},
        {"gpt-oss-120b", 116.83, 0.01},
        /* 358.34 and 110.47 with the module's copies of embedding and head, 2 x 151552 rows. */
        {"glm-4.5", 358.34 - 1.55, 0.01},
        {"glm-4.5-air", 110.47 - 1.24, 0.01},
        {"olmoe-1b-7b", 6.919, 0.001},
        {"olmo-2-7b", 7.299, 0.001},
        {"olmo-2-13b", 13.716, 0.001},
        {"olmo-2-32b", 32.234, 0.001},
        {"olmo-3-7b", 7.298, 0.001},
        {"olmo-3-32b", 32.234, 0.001},
        {"gemma-2-9b", 9.242, 0.001},
        {"gemma-2-27b", 27.227, 0.001},
        {"nemotron-4-340b", 341, 0.5},
        {"nemotron-3-nano-30b-a3b", 31.58, 0.01},
        {"gpt2-xl", 1.558, 0.001},
        {"gpt-neox-20b", 20.555, 0.001},
    };
    const char *const *name = pl_model_presets();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_cpu(row[i].name, 1, 1, "any");

        if (fabs((double)pl_model_params(&x.m) / 1e9 - row[i].billions) > row[i].within)
            fail_msg("%s has %.3f billion", row[i].name, (double)pl_model_params(&x.m) / 1e9);
    }
    for (; *name; name++) {
        struct world x = world_cpu(*name, 1, 1, "any");

        assert_string_equal(x.m.name, *name);
    }
}

static void active_parameters_are_those_of_the_chosen_experts(void **state)
{
    struct world x = world_cpu("mixtral-8x7b", 1, 1, "any"), d = world_cpu("llama-8b", 1, 1, "any");

    (void)state;
    assert_true(fabs((double)pl_model_active_params(&x.m) / 1e9 - 12.9) < 0.05);
    assert_true(pl_model_active_params(&d.m) == pl_model_params(&d.m));
}

/* Qwen3's published totals: its heads are wider together than the hidden rows. */
static void wide_heads_and_fine_experts_count_as_published(void **state)
{
    static const struct {
        const char *json;
        double billions, active;
    } row[] = {
        {"{'layers':48,'hidden':2048,'heads':32,'kv_heads':4,'head_dim':128,'vocab':151936,"
         "'seq':4096,'moe':{'experts':128,'top_k':8,'expert_ffn':768}}",
         30.5, 3.3},
        {"{'layers':94,'hidden':4096,'heads':64,'kv_heads':4,'head_dim':128,'vocab':151936,"
         "'seq':4096,'moe':{'experts':128,'top_k':8,'expert_ffn':1536}}",
         235, 22},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].json);
        struct pl_model m;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&m, v, &e), 0);
        assert_true(fabs((double)pl_model_params(&m) / 1e9 / row[i].billions - 1) < 0.02);
        assert_true(fabs((double)pl_model_active_params(&m) / 1e9 / row[i].active - 1) < 0.02);
    }
}

/* Narayanan et al. (SC21), equation 3 without recompute: 72 B s l h^2 (1 + s/(6h) + V/(12 l h)). */
static void flops_follow_the_published_formula(void **state)
{
    struct world x = world_cpu("gpt-175B", 1, 1, "any");
    double s = x.m.seq, h = x.m.hidden, l = x.m.layers, v = x.m.vocab;
    double want = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));

    (void)state;
    assert_true(fabs(pl_model_flops_per_token(&x.m, x.m.seq) / want - 1) < 1e-12);
}

static void a_model_survives_its_json(void **state)
{
    const char *const *name = pl_model_presets();

    (void)state;
    for (; *name; name++) {
        struct world x = world_cpu(*name, 1, 1, "any");
        AUTO_JSON *v = pl_model_json(&x.m), *again;
        struct pl_model back;
        struct err e = {0};

        assert_int_equal(pl_model_parse(&back, v, &e), 0);
        again = pl_model_json(&back);
        assert_true(json_equal(v, again));
    }
}

static void every_cluster_profile_survives_its_json(void **state)
{
    const char *const *name = pl_cluster_presets();

    (void)state;
    for (; *name; name++) {
        struct world x = world_of("nano-llama", *name, 2, 1, "any");
        AUTO_JSON *v = pl_cluster_json(&x.c), *again;
        struct pl_cluster back;
        struct err e = {0};

        assert_int_equal(pl_cluster_parse(&back, v, NULL, &e), 0);
        again = pl_cluster_json(&back);
        assert_true(json_equal(v, again));
    }
}

static void a_group_uses_the_slowest_link_that_it_crosses(void **state)
{
    struct world x = world_of("nano-llama", "frontier-mi250x", 4, 1, "any");

    (void)state;
    assert_int_equal(pl_cluster_link(&x.c, 2, 1)->span, 2);
    assert_int_equal(pl_cluster_link(&x.c, 2, 2)->span, 8);
    assert_int_equal(pl_cluster_link(&x.c, 8, 1)->span, 8);
    assert_int_equal(pl_cluster_link(&x.c, 4, 8)->span, 1024);
    assert_int_equal(pl_cluster_link(&x.c, 2, 1024)->span, INT_MAX);
}

static void this_machine_is_a_cluster_of_cores_with_its_memory(void **state)
{
    struct pl_cluster c;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&c, NULL, NULL, &e), 0);
    assert_true(c.device.cpu && c.devices_per_node >= 1 && c.device.memory_gib > 0);
    assert_string_equal(c.name, "local");
    assert_false(c.measured);
}

static void a_measured_local_profile_replaces_the_assumed_one(void **state)
{
    struct pl_cluster mine = {.name = "local", .nodes = 1, .devices_per_node = 3, .measured = true},
                      c;
    AUTO_JSON *v = unit_json("{'profile':'local','oversubscribe':true}");
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&c, v, &mine, &e), 0);
    assert_true(c.measured && c.oversubscribe);
    assert_int_equal(c.devices_per_node, 3);
}

static void a_price_stays_with_its_cluster(void **state)
{
    AUTO_JSON *v = unit_json("{'profile':'dgx-h100','price_per_device_hour':2.5}");
    AUTO_JSON *wrong = unit_json("{'profile':'dgx-h100','price_per_device_hour':-1}");
    AUTO_JSON *whole = NULL;
    struct pl_cluster c, again;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&c, v, NULL, &e), 0);
    assert_true(c.price == 2.5);
    whole = pl_cluster_json(&c);
    assert_int_equal(pl_cluster_parse(&again, whole, NULL, &e), 0);
    assert_true(again.price == 2.5);
    assert_true(pl_cluster_parse(&again, wrong, NULL, &e) < 0);
    assert_string_equal(e.pointer, "/price_per_device_hour");
    json_object_del(whole, "price_per_device_hour");
    assert_int_equal(pl_cluster_parse(&again, whole, NULL, &e), 0);
    assert_true(again.price == 0);
}

static int parse_model(const json_t *v, struct err *e)
{
    struct pl_model m;

    return pl_model_parse(&m, v, e);
}

static int parse_cluster(const json_t *v, struct err *e)
{
    struct pl_cluster c;

    return pl_cluster_parse(&c, v, NULL, e);
}

static int parse_workload(const json_t *v, struct err *e)
{
    struct world x = world_cpu("gpt-22B", 1, 1, "any");
    struct pl_workload w;

    return pl_workload_parse(&w, v, &x.m, x.t, e);
}

#define DEVICE "'device':{'memory_gib':1,'memory_gbs':10,'peak_tflops':{'fp32':1}}"
#define SHAPE "'layers':2,'hidden':64,'vocab':256,'seq':32"

static void precision_is_the_trainers_unless_it_is_given(void **state)
{
    AUTO_JSON *given = unit_json("{'global_batch':8,'precision':'fp32'}");
    struct world x = world_of("gpt-22B", "dgx-a100", 1, 8, "megatron");
    struct err e;

    (void)state;
    assert_int_equal(x.w.precision, PL_BF16);
    assert_int_equal(world_of("tiny-moe", "local", 1, 8, "partune").w.precision, PL_FP32);
    assert_int_equal(pl_workload_parse(&x.w, given, &x.m, x.t, &e), 0);
    assert_int_equal(x.w.precision, PL_FP32);
}

static void documents_of_a_workload_come_back(void **state)
{
    AUTO_JSON *given = unit_json("{'global_batch':8,'eod':7,'reset_attention_mask':true,"
                                 "'reset_position_ids':true,'eod_mask_loss':true}");
    AUTO_JSON *back = NULL;
    struct world x = world_of("tiny-moe", "local", 1, 8, "partune");
    struct pl_workload again;
    struct err e;

    (void)state;
    assert_false(pl_workload_has_documents(&x.w) || x.w.eod_mask_loss);
    assert_int_equal(pl_workload_parse(&x.w, given, &x.m, x.t, &e), 0);
    assert_true(pl_workload_has_documents(&x.w) && x.w.eod_mask_loss && x.w.eod == 7);
    back = pl_workload_json(&x.w);
    assert_int_equal(pl_workload_parse(&again, back, &x.m, x.t, &e), 0);
    assert_true(again.eod == 7 && again.reset_attention_mask && again.reset_position_ids &&
                again.eod_mask_loss);
}

static void bad_input_is_refused_by_pointer(void **state)
{
    static const struct {
        int (*parse)(const json_t *v, struct err *e);
        const char *json, *pointer, *text;
    } row[] = {
        {parse_model, "'mixtral-8x7'", "", "did you mean \"mixtral-8x7b\"?"},
        {parse_model, "{'layers':2}", "/hidden", "is missing"},
        {parse_model, "{" SHAPE ",'heads':4,'ffn':128,'layer':1}", "/layer",
         "did you mean \"layers\"?"},
        {parse_model, "{" SHAPE ",'heads':4}", "/ffn", "is missing"},
        {parse_model, "{" SHAPE ",'heads':3,'ffn':128}", "/head_dim",
         "hidden 64 is not a multiple of heads 3"},
        {parse_model, "{" SHAPE ",'heads':4,'kv_heads':3,'ffn':128}", "/kv_heads",
         "does not divide heads 4"},
        {parse_model, "{" SHAPE ",'heads':4,'head_dim':15,'ffn':128}", "/head_dim", "is odd"},
        {parse_model, "{" SHAPE ",'heads':4,'ffn':128,'mlp':'relu'}", "/mlp", "gelu"},
        {parse_model, "{" SHAPE ",'heads':4,'ffn':128,'tied':1}", "/tied", "true or false"},
        {parse_model, "{" SHAPE ",'heads':4,'moe':{'experts':4,'top_k':5,'expert_ffn':8}}",
         "/moe/top_k", "outside 1..4"},
        {parse_model, "{" SHAPE ",'heads':4,'moe':{'experts':4,'top_k':2}}", "/moe/expert_ffn",
         "is missing"},
        {parse_model,
         "{" SHAPE ",'heads':4,'moe':{'experts':4,'top_k':2,'expert_ffn':8,'aux_loss':'switch'}}",
         "/moe/aux_loss", "megatron"},
        {parse_model, "3", "", "expected an object"},
        {parse_cluster, "'dgx-a10'", "", "did you mean \"dgx-a100\"?"},
        {parse_cluster, "'h100'", "", "did you mean \"dgx-h100\", \"h100-"},
        {parse_cluster, "'HGX-H200'", "", "did you mean \"h200\"?"},
        {parse_cluster, "{'profile':'gb200'}", "/profile", "did you mean \"gb200-nvl72\"?"},
        {parse_cluster, "{'profile':'gh200'}", "/profile", "\"gh200\"; describe the machine"},
        {parse_cluster, "'dgx-b100'", "", "\"dgx-b100\"; describe the machine"},
        {parse_cluster, "'something-else'", "", "describe the machine"},
        {parse_cluster, "{'profile':'dgx'}", "/profile", "unknown cluster profile"},
        {parse_cluster, "{'profile':'dgx-a100','nodes':0}", "/nodes", "outside 1.."},
        {parse_cluster, "{'profile':'dgx-a100','node':1}", "/node", "did you mean \"nodes\"?"},
        {parse_cluster, "{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10}}",
         "/device/peak_tflops", "needs a peak"},
        {parse_cluster, "{'devices_per_node':1,'device':{'memory_gbs':10}}", "/device/memory_gib",
         "is missing"},
        {parse_cluster, "{'devices_per_node':1,'device':{'memory_gib':-1,'memory_gbs':10}}",
         "/device/memory_gib", "outside"},
        {parse_cluster,
         "{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10,'peak_tflops':{'fp32':1,"
         "'fp8':1e-300}}}",
         "/device/peak_tflops/fp8", "at least"},
        {parse_cluster,
         "{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10,'peak_tflops':{'fp32':1,"
         "'int8':2}}}",
         "/device/peak_tflops/int8", "int8"},
        {parse_cluster,
         "{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10,'gemm_tflops':1e-9}}",
         "/device/gemm_tflops", "at least"},
        {parse_cluster,
         "{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10,'peak_tflops':{'bf16':1,"
         "'fp8':2},'gemm_tflops_fp8':3}}",
         "/device/gemm_tflops_fp8", "above the peak in fp8 (2)"},
        {parse_cluster,
         "{'devices_per_node':1,'device':{'memory_gib':1,'memory_gbs':10,'peak_tflops':{'fp32':1},"
         "'context_gib':0.5,'library_gib':0.25,'nccl_gib':0.25}}",
         "/device/context_gib", "are 1 together; they must be less than memory_gib (1)"},
        {parse_cluster, "{'devices_per_node':2," DEVICE "}", "/links",
         "no link spans all 2 devices"},
        {parse_cluster, "{'devices_per_node':2," DEVICE ",'links':[{'span':'all','gbs':0}]}",
         "/links/0/gbs", "outside"},
        {parse_cluster,
         "{'devices_per_node':2," DEVICE ",'links':[{'span':'all','gbs':1,'per_pair':1}]}",
         "/links/0/per_pair", "\"per_pair\" must be true or false, found a number"},
        {parse_cluster,
         "{'devices_per_node':4," DEVICE ",'links':[{'span':2,'gbs':1},{'span':'all','gbs':1,"
         "'per_pair':'yes'}]}",
         "/links/1/per_pair", "\"per_pair\" must be true or false, found a string"},
        {parse_cluster,
         "{'devices_per_node':2," DEVICE ",'links':[{'span':'all','gbs':1,'per_pairs':true}]}",
         "/links/0/per_pairs", "did you mean \"per_pair\"?"},
        {parse_cluster,
         "{'devices_per_node':2," DEVICE
         ",'links':[{'span':'all','gbs':1,'oversubscription':0.5}]}",
         "/links/0/oversubscription", "outside 1.."},
        {parse_cluster, "{'devices_per_node':2," DEVICE ",'links':[{'span':'half','gbs':1}]}",
         "/links/0/span", "\"all\""},
        {parse_cluster,
         "{'devices_per_node':4," DEVICE ",'links':[{'span':4,'gbs':1},{'span':2,'gbs':1}]}",
         "/links/1", "ascending"},
        {parse_workload, "{}", "/global_batch", "is missing"},
        {parse_workload, "{'global_batch':-4}", "/global_batch", "outside 1.."},
        {parse_workload, "{'global_batch':4,'seq':4096}", "/seq", "2048 learned positions"},
        {parse_workload, "{'global_batch':4,'precision':'fp64'}", "/precision", "fp"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].json);
        struct err e = {0};

        if (row[i].parse(v, &e) >= 0)
            fail_msg("accepted: %s", row[i].json);
        if (strcmp(e.pointer, row[i].pointer) || !strstr(e.text, row[i].text))
            fail_msg("%s: %s %s", row[i].json, e.pointer, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_balancing_losses_have_equal_gradients),
        cmocka_unit_test(every_model_preset_has_its_published_size),
        cmocka_unit_test(active_parameters_are_those_of_the_chosen_experts),
        cmocka_unit_test(wide_heads_and_fine_experts_count_as_published),
        cmocka_unit_test(flops_follow_the_published_formula),
        cmocka_unit_test(a_model_survives_its_json),
        cmocka_unit_test(every_cluster_profile_survives_its_json),
        cmocka_unit_test(a_group_uses_the_slowest_link_that_it_crosses),
        cmocka_unit_test(this_machine_is_a_cluster_of_cores_with_its_memory),
        cmocka_unit_test(a_measured_local_profile_replaces_the_assumed_one),
        cmocka_unit_test(a_price_stays_with_its_cluster),
        cmocka_unit_test(precision_is_the_trainers_unless_it_is_given),
        cmocka_unit_test(documents_of_a_workload_come_back),
        cmocka_unit_test(bad_input_is_refused_by_pointer),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
