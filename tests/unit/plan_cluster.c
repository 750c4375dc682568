/* Clusters: profiles and their names, fast domains, and what a group of ranks sees of the links. */
#include "plan/cost_parts.h"
#include "tests/unit/plan_world.h"

#include <limits.h>
#include <math.h>

static struct pl_cluster cluster_of(const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_cluster c;
    struct err e = {0};

    if (pl_cluster_parse(&c, v, NULL, &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return c;
}

/* What is said of NAME, which is no profile. */
static const char *said_of(struct err *e, const char *name)
{
    AUTO_JSON *v = json_string(name);
    struct pl_cluster c;

    *e = (struct err){0};
    assert_true(pl_cluster_parse(&c, v, NULL, e) < 0);
    return e->text;
}

static void every_profile_says_where_its_facts_are_from(void **state)
{
    (void)state;
    for (const char *const *name = pl_cluster_presets(); *name; name++) {
        const char *text = pl_cluster_preset(*name);
        AUTO_JSON *v = NULL;
        struct err e = {0};
        const json_t *source;

        assert_int_equal(jx_parse(&v, text, strlen(text), &e), 0);
        assert_string_equal(json_string_value(json_object_get(v, "name")), *name);
        source = json_object_get(v, "source");
        if (json_array_size(source) == 0 || !json_is_string(json_array_get(source, 0)))
            fail_msg("%s names no source", *name);
    }
}

static void peaks_of_narrow_formats_survive_json(void **state)
{
    struct pl_cluster c = cluster_of("'gb300-nvl72'"), back;
    AUTO_JSON *v = pl_cluster_json(&c);
    struct err e = {0};

    (void)state;
    assert_true(c.device.tflops_fp4 > 3 * c.device.tflops_fp8 - 1);
    assert_int_equal(pl_cluster_parse(&back, v, NULL, &e), 0);
    assert_true(back.device.tflops_fp4 == c.device.tflops_fp4);
    assert_int_equal(pl_machine_changes(&c, &back), 0);
    back.device.tflops_fp4 *= 1.5;
    assert_int_equal(pl_machine_changes(&c, &back), PL_OTHER_DEVICE);
    c = cluster_of("'dgx-h100'");
    assert_true(c.device.tflops_fp4 == 0);
}

static void a_device_leads_to_its_profiles(void **state)
{
    static const char *const row[][2] = {
        {"gb200", "did you mean \"gb200-nvl72\"?"},
        {"nvl72", "did you mean \"gb200-nvl72\", \"gb300-nvl72\"?"},
        {"b200", "did you mean \"dgx-b200\"?"},
        {"hgx-b300", "did you mean \"dgx-b300\"?"},
        {"MI300X-8", "did you mean \"mi300x\"?"},
        {"v5p", "did you mean \"tpu-v5p\"?"},
        {"tpu", "did you mean \"tpu-v5p\", \"tpu-v6e\"?"},
        {"trn2", "did you mean \"trainium2\"?"},
        {"ironwood", "did you mean \"tpu7x\"?"},
        {"mi250", "did you mean \"frontier-mi250x\"?"},
        {"b100", "describe the machine"},
        {"gh200", "describe the machine"},
        {"mi300a", "describe the machine"},
        {"gaudi2", "describe the machine"},
        {"v5e", "describe the machine"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct err e;

        if (!strstr(said_of(&e, row[i][0]), row[i][1]))
            fail_msg("%s: %s", row[i][0], e.text);
    }
}

/* By its driver's name, as a calibration finds it; what no profile has stays unknown. */
static void a_gpu_is_known_by_its_drivers_name(void **state)
{
    static const char *const known[][2] = {{"NVIDIA A100-SXM4-40GB", "a100-40g-1600g"},
                                           {"NVIDIA A100-SXM4-80GB", "dgx-a100"},
                                           {"NVIDIA H100 80GB HBM3", "dgx-h100"},
                                           {"NVIDIA H200", "h200"},
                                           {"NVIDIA B200", "dgx-b200"},
                                           {"NVIDIA GB300", "gb300-nvl72"}};
    static const char *const other[] = {"NVIDIA H100 PCIe", "NVIDIA H100", "H200", ""};
    struct pl_device device;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        AUTO_STR quoted = {0};
        struct pl_cluster profile;

        str_addf(&quoted, "'%s'", known[i][1]);
        profile = cluster_of(str_text(&quoted));
        assert_string_equal(pl_device_known(&device, known[i][0]), known[i][1]);
        assert_string_equal(device.name, known[i][0]);
        assert_true(device.tflops_bf16 == profile.device.tflops_bf16 && device.tflops_bf16 > 0);
        assert_true(device.sustained == profile.device.sustained);
    }
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        assert_null(pl_device_known(&device, other[i]));
        assert_string_equal(device.name, other[i]);
        assert_true(device.tflops_bf16 == 0 && device.tflops_fp32 == 0 && device.gemm_tflops == 0);
    }
}

static void a_domain_is_as_wide_as_the_link_inside_a_node(void **state)
{
    static const struct {
        const char *cluster;
        int domain;
    } row[] = {
        {"'dgx-h100'", 8},
        {"'frontier-mi250x'", 8},
        {"'aurora-pvc'", 12},
        {"'gb200-nvl72'", 72},
        {"{'profile':'gb300-nvl72','devices_per_node':2}", 72},
        {"'tpu-v6e'", 256},
        {"'trainium2'", 16},
        {"{'profile':'dgx-h100','devices_per_node':4}", 4},
        {"{'profile':'frontier-mi250x','devices_per_node':2}", 2},
        {"{'profile':'dgx-h100','devices_per_node':1}", 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct pl_cluster c = cluster_of(row[i].cluster);

        if (pl_cluster_domain(&c) != row[i].domain)
            fail_msg("%s: %d devices", row[i].cluster, pl_cluster_domain(&c));
    }
}

/* NVLink ends at the node: two nodes of four do not become one of eight. */
static void a_smaller_node_keeps_its_links_inside(void **state)
{
    struct pl_cluster four = cluster_of("{'profile':'dgx-h100','devices_per_node':4}");
    struct pl_cluster two = cluster_of("{'profile':'frontier-mi250x','devices_per_node':2}");

    (void)state;
    assert_true(pl_cluster_link(&four, 4, 1)->gbs > 400);
    assert_int_equal(pl_cluster_link(&four, 8, 1)->span, INT_MAX);
    assert_true(pl_cluster_link(&two, 2, 1)->gbs > 100);
    assert_true(pl_cluster_link(&two, 4, 1)->gbs < 20);
}

/* ---- groups -------------------------------------------------------------- */

/* A problem on CLUSTER in which links reach all of their rate without latency or start. */
static void ideal(struct world *x, struct pl_op_ctx *op, struct pl_constants *k,
                  struct pl_rates *rates)
{
    for (int i = 0; i < x->c.nlinks; i++)
        x->c.link[i].latency_us = 0;
    *k = pl_default_constants;
    k->near = k->far = 1;
    *op = (struct pl_op_ctx){.constants = k, .problem = world_problem(x), .rates = rates};
    pl_rates_of(rates, k, &op->problem, PL_BF16, 1);
    rates->collective_s = 0;
}

static void near_to(double got, double want)
{
    if (!(fabs(got / want - 1) < 1e-9))
        fail_msg("%.9g where %.9g is right", got, want);
}

static void a_group_of_an_nvl72_stays_on_nvlink(void **state)
{
    struct world x = world_of("deepseek-v3-like", "gb200-nvl72", 128, 512, "any");
    struct pl_constants k;
    struct pl_op_ctx op;
    struct pl_rates rates;
    struct pl_group g;
    const double bytes = 1e9;

    (void)state;
    ideal(&x, &op, &k, &rates);
    pl_group_of(&g, &op, 8, 1); /* tp 8 over two hosts */
    near_to(pl_gather_s(&g, bytes), bytes * 7 / 8 / 900e9);
    pl_group_of(&g, &op, 64, 1); /* ep 64 over sixteen */
    near_to(pl_all_to_all_s(&g, bytes), bytes * 63 / 64 / 900e9);
    near_to(pl_send_s(&g, bytes), bytes / 900e9);
    pl_group_of(&g, &op, 8, 8); /* every eighth rank of 64 */
    near_to(pl_gather_s(&g, bytes), bytes * 7 / 8 / 900e9);
    /* 512 ranks: eight segments of 64, whose 64 interfaces carry 64 rings */
    pl_group_of(&g, &op, 512, 1);
    assert_int_equal(g.per_node, 64);
    near_to(pl_gather_s(&g, bytes), bytes * 511 / 512 / 900e9);
    near_to(pl_all_to_all_s(&g, bytes), bytes * 448 / 512 / 50e9);
    pl_group_of(&g, &op, 64, 8); /* eight members in each segment of 64, though 9 would fit in 72 */
    assert_int_equal(g.per_node, 8);
    near_to(pl_gather_s(&g, bytes), bytes * 63 / 64 / (8 * 50e9));
    pl_group_of(&g, &op, 36, 1); /* and a half of 72 is a half */
    assert_int_equal(g.per_node, 36);
}

/* What the domain is good for: the same devices with NVLink inside the host only. */
static void experts_spread_over_a_domain_as_inside_a_node(void **state)
{
    struct world wide = world_of("deepseek-v3-like", "gb200-nvl72", 64, 512, "any"), narrow = wide;
    struct pl_layout l =
        layout_of(&wide, "{'tp':1,'pp':4,'ep':64,'etp':1,'zero':1,'precision':'bf16'}");
    struct pl_cost on_wide, on_narrow;

    (void)state;
    narrow.c.link[0].span = 4;
    pl_cost(&on_wide, problem_of(&wide), &l);
    pl_cost(&on_narrow, problem_of(&narrow), &l);
    assert_true(on_wide.seconds[PL_COST_EP] < 0.2 * on_narrow.seconds[PL_COST_EP]);
    assert_true(on_wide.total < 0.8 * on_narrow.total);
}

/* The default baseline spreads experts inside the domain before it cuts the model otherwise. */
static void a_baseline_spreads_experts_over_the_domain(void **state)
{
    struct world wide = world_of("deepseek-v3-like", "gb200-nvl72", 64, 512, "megatron");
    struct world narrow = wide;
    struct pl_layout on_wide, on_narrow;
    char note[PL_BASELINE_NOTE];
    struct err e = {0};

    (void)state;
    narrow.c.link[0].span = 4;
    assert_int_equal(
        pl_baseline(&on_wide, note, problem_of(&wide), PL_BASELINE_DEFAULT, 0, 0.05, &e), 0);
    assert_string_equal(note, "");
    assert_true(on_wide.ep * on_wide.etp > 4 && on_wide.ep * on_wide.etp <= 72);
    assert_int_equal(
        pl_baseline(&on_narrow, note, problem_of(&narrow), PL_BASELINE_DEFAULT, 0, 0.05, &e), 0);
    assert_true(on_narrow.ep * on_narrow.etp <= 4 || note[0]);
}

/* Each of a mesh's pairs has its own link: 64 GB/s of one, 448 of seven. */
static void a_mesh_uses_as_many_links_as_a_group_has_pairs(void **state)
{
    struct world x = world_of("llama-8b", "mi300x", 2, 64, "any");
    struct pl_constants k;
    struct pl_op_ctx op;
    struct pl_rates rates;
    struct pl_group g;
    const double bytes = 1e9;

    (void)state;
    ideal(&x, &op, &k, &rates);
    pl_group_of(&g, &op, 8, 1);
    near_to(pl_all_reduce_s(&g, bytes), 2 * bytes * 7 / 8 / 448e9);
    near_to(pl_send_s(&g, bytes), bytes / 64e9);
    pl_group_of(&g, &op, 4, 2);
    near_to(pl_gather_s(&g, bytes), bytes * 3 / 4 / 192e9);
    pl_group_of(&g, &op, 2, 1);
    near_to(pl_all_to_all_s(&g, bytes), bytes / 2 / 64e9);
    pl_group_of(&g, &op, 16, 1); /* across nodes the interfaces are the slower part */
    near_to(pl_gather_s(&g, bytes), bytes * 15 / 16 / 400e9);
}

/* ---- uplinks ------------------------------------------------------------- */

/* dgx-h100 in blocks of 64 devices whose uplinks carry a quarter; with rails if so. */
static struct world tapered(bool rails)
{
    struct world x = world_of("gpt-22B", "dgx-h100", 64, 512, "any");
    struct pl_link far = x.c.link[1];

    x.c.link[1].span = 64;
    far.oversubscription = 4;
    far.rails = rails;
    x.c.link[x.c.nlinks++] = far;
    return x;
}

static void a_ring_passes_an_oversubscribed_uplink_at_full_rate(void **state)
{
    struct world x = tapered(false);
    struct pl_constants k;
    struct pl_op_ctx op;
    struct pl_rates rates;
    struct pl_group g;
    const double bytes = 1e9;

    (void)state;
    ideal(&x, &op, &k, &rates);
    pl_group_of(&g, &op, 512, 1); /* one ring per interface leaves each block of eight nodes once */
    near_to(pl_gather_s(&g, bytes), bytes * 511 / 512 / 400e9);
    pl_group_of(&g, &op, 64, 8); /* eight groups, each with one */
    near_to(pl_gather_s(&g, bytes), bytes * 63 / 64 / 50e9);
    /* 32 groups of 16, two members of each in a block: 32 rings want the 16 devices' worth */
    pl_group_of(&g, &op, 16, 32);
    near_to(pl_gather_s(&g, bytes), bytes * 15 / 16 / 25e9);
    /* messages of all ranks of a stage cross at once */
    pl_group_of(&g, &op, 2, 64);
    near_to(pl_send_s(&g, bytes), bytes / 12.5e9);
    pl_group_of(&g, &op, 2, 256);
    near_to(pl_send_s(&g, bytes), bytes / 12.5e9);
    pl_group_of(&g, &op, 2, 16); /* inside a block they do not */
    near_to(pl_send_s(&g, bytes), bytes / 50e9);
}

static void an_exchange_waits_for_the_uplink(void **state)
{
    struct world x = tapered(false);
    struct pl_constants k;
    struct pl_op_ctx op;
    struct pl_rates rates;
    struct pl_group g;
    const double bytes = 1e9;

    (void)state;
    ideal(&x, &op, &k, &rates);
    pl_group_of(&g, &op, 64, 1);
    near_to(pl_all_to_all_s(&g, bytes), bytes * 56 / 64 / 50e9);
    pl_group_of(&g, &op, 128, 1); /* half of it is for the other block */
    near_to(pl_all_to_all_s(&g, bytes), bytes / 2 / 12.5e9);
    x.c.link[2].oversubscription = 1.5; /* an uplink that is no narrower than half */
    pl_group_of(&g, &op, 128, 1);
    near_to(pl_all_to_all_s(&g, bytes), bytes * 120 / 128 / 50e9);
}

/* On rails an exchange changes to the right rank inside the node, and rings need no uplink. */
static void rails_bypass_the_uplink(void **state)
{
    struct world x = tapered(true);
    struct pl_constants k;
    struct pl_op_ctx op;
    struct pl_rates rates;
    struct pl_group g;
    const double bytes = 1e9;

    (void)state;
    ideal(&x, &op, &k, &rates);
    pl_group_of(&g, &op, 2, 256);
    near_to(pl_send_s(&g, bytes), bytes / 50e9);
    pl_group_of(&g, &op, 16, 32);
    near_to(pl_gather_s(&g, bytes), bytes * 15 / 16 / 50e9);
    pl_group_of(&g, &op, 128, 1);
    near_to(pl_all_to_all_s(&g, bytes), bytes * 120 / 128 / 50e9);
    x.c.link[0].gbs = 20; /* a slow node: what it relays takes longer than the uplink would */
    pl_group_of(&g, &op, 128, 1);
    near_to(pl_all_to_all_s(&g, bytes), bytes * (7 + 105) / 128 / 20e9);
    x.c.link[2].oversubscription = 1.2;
    pl_group_of(&g, &op, 128, 1);
    near_to(pl_all_to_all_s(&g, bytes), bytes * 105 / 128 * 1.2 / 50e9);
}

static void uplinks_survive_json(void **state)
{
    struct world x = tapered(true);
    AUTO_JSON *v = pl_cluster_json(&x.c);
    struct pl_cluster back;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_cluster_parse(&back, v, NULL, &e), 0);
    assert_true(back.link[2].oversubscription == 4 && back.link[2].rails);
    assert_false(back.link[1].oversubscription > 1 || back.link[1].rails);
    assert_int_equal(pl_machine_changes(&x.c, &back), 0);
    back.link[2].oversubscription = 2;
    assert_int_equal(pl_machine_changes(&x.c, &back), PL_OTHER_LINKS);
}

/* A ratio of one is no ratio. */
static void an_even_uplink_changes_no_prediction(void **state)
{
    static const char *const layout[] = {
        "{'tp':8,'sp':1,'pp':2,'zero':1,'precision':'bf16'}",
        "{'tp':2,'pp':4,'vp':2,'precision':'bf16','recompute':'full'}",
        "{'zero':3,'precision':'bf16'}"};
    struct world x = world_of("gpt-22B", "dgx-h100", 64, 512, "any"), y = tapered(false);

    (void)state;
    y.c.link[2].oversubscription = 1;
    for (size_t i = 0; i < ARRAY_LEN(layout); i++) {
        struct pl_layout l = layout_of(&x, layout[i]);
        struct pl_cost a, b;

        pl_cost(&a, problem_of(&x), &l);
        pl_cost(&b, problem_of(&y), &l);
        assert_true(a.total == b.total);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_profile_says_where_its_facts_are_from),
    cmocka_unit_test(peaks_of_narrow_formats_survive_json),
    cmocka_unit_test(a_device_leads_to_its_profiles),
    cmocka_unit_test(a_gpu_is_known_by_its_drivers_name),
    cmocka_unit_test(a_domain_is_as_wide_as_the_link_inside_a_node),
    cmocka_unit_test(a_smaller_node_keeps_its_links_inside),
    cmocka_unit_test(a_group_of_an_nvl72_stays_on_nvlink),
    cmocka_unit_test(experts_spread_over_a_domain_as_inside_a_node),
    cmocka_unit_test(a_baseline_spreads_experts_over_the_domain),
    cmocka_unit_test(a_mesh_uses_as_many_links_as_a_group_has_pairs),
    cmocka_unit_test(a_ring_passes_an_oversubscribed_uplink_at_full_rate),
    cmocka_unit_test(an_exchange_waits_for_the_uplink),
    cmocka_unit_test(rails_bypass_the_uplink),
    cmocka_unit_test(uplinks_survive_json),
    cmocka_unit_test(an_even_uplink_changes_no_prediction),
};

UNIT_MAIN(tests)
