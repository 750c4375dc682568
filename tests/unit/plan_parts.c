/* Clusters of two parts: the division of layers against brute force, two parts of one profile
 * against the whole cluster, the closed form against the event simulator, and bad input. */
#include "plan/parts_rank.h"
#include "plan/space_walk.h"
#include "tests/unit/plan_world.h"

#include <math.h>

/* ---- the division -------------------------------------------------------- */

enum { LAYERS = 9, STAGES = 5 };

struct drawn {
    struct pl_parts_times times;
    double before[PL_PARTS][LAYERS + 1];
    int pp;
    double bytes[STAGES], offered[PL_PARTS]; /* of a layer on each stage; of a device */
};

static bool holds(void *arg, const struct pl_parts_cut *cut, int stage, int first, int n)
{
    const struct drawn *d = arg;
    int part = stage < cut->head_stages ? cut->order : 1 - cut->order;

    (void)first;
    return n * d->bytes[stage] <= d->offered[part];
}

/* Times of layers of two kinds, on parts of unlike speeds. */
static void draw(struct drawn *d, struct pl_parts_cut *cut, struct rng *rng)
{
    d->times = (struct pl_parts_times){.layers = LAYERS};
    d->pp = 2 + (int)rng_below(rng, STAGES - 1);
    *cut = (struct pl_parts_cut){.order = (int)rng_below(rng, 2)};
    cut->head_stages = 1 + (int)rng_below(rng, (uint64_t)d->pp - 1);
    for (int part = 0; part < PL_PARTS; part++) {
        double slow = part ? 1 + 3 * rng_unit(rng) : 1;

        d->before[part][0] = 0;
        for (int i = 0; i < LAYERS; i++)
            d->before[part][i + 1] = d->before[part][i] + slow * (i < 3 ? 1 : 1.7);
        d->times.before[part] = d->before[part];
        d->times.head[part] = slow * 0.2 * rng_unit(rng);
        d->times.tail[part] = slow * 2 * rng_unit(rng);
        d->offered[part] = 2 + 8 * rng_unit(rng);
    }
    for (int s = 0; s < d->pp; s++)
        d->bytes[s] = 1 + (d->pp - s) * 0.2;
}

struct best {
    bool found;
    double slowest, sum;
};

static void value_of(struct best *ret, const struct drawn *d, const struct pl_parts_cut *cut,
                     bool memory)
{
    *ret = (struct best){.found = true};
    for (int s = 0; s < d->pp; s++) {
        int n = cut->first[s + 1] - cut->first[s];
        double t = pl_parts_stage_s(cut, d->pp, &d->times, s, cut->first[s], n);

        if (n < 1 || (memory && !holds((void *)(uintptr_t)d, cut, s, cut->first[s], n)))
            ret->found = false;
        ret->slowest = fmax(ret->slowest, t);
        ret->sum += t;
    }
}

static void try_all(struct best *best, const struct drawn *d, struct pl_parts_cut *cut, int stage,
                    bool memory)
{
    struct best one;

    if (stage < d->pp) {
        for (cut->first[stage] = cut->first[stage - 1] + 1; cut->first[stage] < LAYERS;
             cut->first[stage]++)
            try_all(best, d, cut, stage + 1, memory);
        return;
    }
    cut->first[stage] = LAYERS;
    value_of(&one, d, cut, memory);
    if (one.found && (!best->found || one.slowest < best->slowest * (1 - 1e-8) ||
                      (one.slowest < best->slowest * (1 + 1e-8) && one.sum < best->sum)))
        *best = one;
}

static void the_division_is_the_one_that_brute_force_finds(void **state)
{
    struct rng rng;
    int possible = 0;

    (void)state;
    rng_seed(&rng, 3);
    for (int i = 0; i < 1000; i++) {
        struct drawn d;
        struct pl_parts_cut cut, brute;
        struct best want = {0}, got;
        bool memory = i % 2;

        draw(&d, &cut, &rng);
        brute = cut;
        try_all(&want, &d, &brute, 1, memory);
        pl_parts_divide(&cut, d.pp, &d.times, memory ? holds : NULL, &d);
        assert_int_equal(cut.possible, want.found);
        if (!want.found)
            continue;
        possible++;
        assert_int_equal(cut.first[0], 0);
        assert_int_equal(cut.first[d.pp], LAYERS);
        value_of(&got, &d, &cut, memory);
        assert_true(got.found);
        if (fabs(got.slowest / want.slowest - 1) > 1e-8 || fabs(got.sum / want.sum - 1) > 1e-8)
            fail_msg("draw %d: slowest %.12g, all %.12g; brute force %.12g, %.12g", i, got.slowest,
                     got.sum, want.slowest, want.sum);
    }
    assert_in_range(possible, 500, 999); /* some of both */
}

static void equal_layers_on_equal_stages_are_divided_evenly(void **state)
{
    double before[LAYERS + 1];
    struct pl_parts_times times = {.layers = LAYERS - 1, .before = {before, before}};
    struct pl_parts_cut cut = {.head_stages = 2};

    (void)state;
    for (int i = 0; i <= LAYERS; i++)
        before[i] = i;
    pl_parts_divide(&cut, 4, &times, NULL, NULL);
    for (int s = 0; s <= 4; s++)
        assert_int_equal(cut.first[s], 2 * s);
}

/* ---- two parts of one profile -------------------------------------------- */

static const char *const models[] = {"llama-8b", "llama-70b", "mixtral-8x7b", "deepseek-v3"};
static const char *const profiles[] = {"dgx-h100", "dgx-a100", "gb200-nvl72"};

static struct pl_parts halves(const struct pl_cluster *whole)
{
    struct pl_parts parts = {.at = {*whole, *whole}};

    parts.at[0].nodes = parts.at[1].nodes = whole->nodes / 2;
    parts.between = whole->link[whole->nlinks - 1];
    return parts;
}

static struct pl_problem of_parts(struct pl_cluster *whole, struct pl_parts *parts,
                                  const struct world *x)
{
    AUTO_JSON *json = pl_parts_json(parts);
    struct pl_problem problem = *problem_of(x);
    struct err e = {0};

    json_object_del(json, "between_given");
    if (pl_parts_parse(whole, parts, json, NULL, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    problem.cluster = whole;
    return problem;
}

static bool near(double left, double right)
{
    return fabs(left - right) <= 1e-12 * fmax(fabs(left), fabs(right));
}

/* What a ranking lists is priced again on one cluster of as many nodes. */
static int compare_halves(const char *model, const char *profile, int nodes, const char *trainer)
{
    struct world x = world_of(model, profile, nodes, 256, trainer);
    struct pl_parts parts = halves(&x.c);
    struct pl_cluster whole;
    struct pl_problem problem = of_parts(&whole, &parts, &x);
    AUTO_JSON *space_json = unit_json("{'schedule': ['1f1b', 'gpipe'], 'micro_batch': [1, 2], "
                                      "'recompute': 'full', 'cp': 1, 'overlap_grad_reduce': 1, "
                                      "'overlap_param_gather': [0, 1]}");
    struct pl_space space;
    struct pl_plan plan;
    struct err e = {0};
    int compared = 0;

    if (pl_parts_space(&space, space_json, &problem, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    pl_plan_look(&plan, &space, &problem, 400, 0.05, PL_TOKENS_PER_S, NULL);
    for (size_t i = 0; i < plan.n; i++) {
        const struct pl_plan_entry *one = &plan.at[i];
        int stride = one->layout.world / one->layout.pp;
        struct pl_memory memory;
        struct pl_cost cost;

        /* Whole nodes for each stage: else one cluster's model sees no network between stages of
         * one node and the next. */
        if (stride % pl_cluster_domain(&x.c))
            continue;
        pl_cost(&cost, problem_of(&x), &one->layout);
        pl_memory_worst(&memory, problem_of(&x), &one->layout);
        assert_int_equal(memory.rank, one->memory.rank);
        for (int c = 0; c < PL_COST_CLASSES; c++)
            if (!near(cost.seconds[c], one->cost.seconds[c]))
                fail_msg("%s on %s, entry %zu: %s %.17g, one cluster %.17g", model, profile, i,
                         pl_cost_class_names[c], one->cost.seconds[c], cost.seconds[c]);
        assert_true(near(memory.total, one->memory.total));
        assert_true(near(memory.total, one->memory.scaled));
        assert_true(near(pl_mfu(problem_of(&x), &one->layout, cost.tokens_per_s),
                         pl_mfu(&problem, &one->layout, one->cost.tokens_per_s)));
        compared++;
    }
    pl_plan_done(&plan);
    return compared;
}

static void two_parts_of_one_profile_are_one_cluster(void **state)
{
    int compared = 0;

    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (size_t p = 0; p < ARRAY_LEN(profiles); p++) {
            int domain = p == 2 ? 18 : 1; /* nodes of a fast domain */

            compared += compare_halves(models[m], profiles[p], 4 * domain, "any");
            compared += compare_halves(models[m], profiles[p], 16 * domain, "megatron");
        }
    assert_true(compared > 200);
}

/* ---- unlike parts -------------------------------------------------------- */

static const char mixed[] = "{'parts': [{'profile': 'dgx-h100', 'nodes': 2}, "
                            "{'profile': 'dgx-a100', 'nodes': 4}]}";

#define FEW "{'micro_batch': [1, 2], 'cp': 1, 'overlap_grad_reduce': 1, 'overlap_param_gather': 1}"

struct mix {
    struct world x;
    struct pl_parts parts;
    struct pl_cluster whole;
    struct pl_problem problem;
};

static void mix_of(struct mix *ret, const char *model, const char *json, const char *trainer)
{
    AUTO_JSON *v = unit_json(json);
    struct err e = {0};

    ret->x = world_of(model, "dgx-h100", 1, 256, trainer);
    if (pl_parts_parse(&ret->whole, &ret->parts, v, NULL, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    ret->problem = *problem_of(&ret->x);
    ret->problem.cluster = &ret->whole;
}

static void look(struct pl_plan *ret, const struct mix *mix, const char *space_json, size_t top)
{
    AUTO_JSON *v = space_json ? unit_json(space_json) : NULL;
    struct pl_space space;
    struct err e = {0};

    if (pl_parts_space(&space, v, &mix->problem, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    pl_plan_look(ret, &space, &mix->problem, top, 0.05, PL_TOKENS_PER_S, NULL);
}

static double alone(const struct mix *mix, int part)
{
    AUTO_JSON *few = unit_json(FEW);
    struct pl_problem problem = mix->problem;
    struct pl_space space;
    struct pl_plan plan;
    struct err e = {0};
    double best;

    problem.cluster = &mix->parts.at[part];
    assert_int_equal(pl_space_parse(&space, few, &problem, &e), 0);
    pl_plan_look(&plan, &space, &problem, 1, 0.05, PL_TOKENS_PER_S, NULL);
    best = plan.n ? plan.at[0].cost.tokens_per_s : 0;
    pl_plan_done(&plan);
    return best;
}

/* Every listed layout names all layers, gives the faster devices more of them, fits each device,
 * and is legal but for the list, which a ranking alone writes. */
static void unlike_parts_get_unlike_stages(void **state)
{
    struct mix mix;
    struct pl_plan plan;

    (void)state;
    mix_of(&mix, "llama-70b", mixed, "megatron");
    look(&plan, &mix, FEW, 50);
    assert_true(plan.n > 5);
    for (size_t i = 0; i < plan.n; i++) {
        const struct pl_layout *l = &plan.at[i].layout;
        int layers, first = plan.at[i].first_part, head, per[PL_PARTS] = {0}, n[PL_PARTS];
        struct pl_verdict verdict;
        char text[400];

        assert_int_equal(pl_stages_total(&layers, l->stages), l->pp);
        assert_int_equal(layers, mix.x.m.layers);
        head = pl_parts_stages(&mix.parts, first, l->world / l->pp);
        for (int part = 0; part < PL_PARTS; part++)
            n[part] = pl_parts_stages(&mix.parts, part, l->world / l->pp);
        assert_int_equal(n[0] + n[1], l->pp);
        for (int s = 0; s < l->pp; s++)
            per[s < head ? first : 1 - first] += pl_stage_layers(NULL, l, layers, s, 0);
        assert_true((double)per[0] / n[0] > 1.3 * per[1] / n[1]);
        if (!pl_layout_check(&verdict, &mix.problem, l))
            fail_msg("%s", pl_verdict_text(text, sizeof(text), &verdict));
        assert_true(plan.at[i].memory.scaled <= pl_memory_offered(&mix.whole, 0.05));
    }
    assert_true(plan.at[0].cost.tokens_per_s > alone(&mix, 0));
    pl_plan_done(&plan);
    /* Where both parts alone fit at ease, they are at most as fast together as side by side. */
    mix_of(&mix, "llama-8b", mixed, "megatron");
    look(&plan, &mix, FEW, 1);
    assert_true(plan.at[0].cost.tokens_per_s > alone(&mix, 0));
    assert_true(plan.at[0].cost.tokens_per_s < 1.02 * (alone(&mix, 0) + alone(&mix, 1)));
    pl_plan_done(&plan);
}

/* A slow link between the parts costs time, and never gains any; the faster part's memory is what
 * it is. */
static void a_slow_link_between_costs_time(void **state)
{
    struct mix fast, slow;
    struct pl_plan one, other;

    (void)state;
    mix_of(&fast, "llama-70b", mixed, "megatron");
    mix_of(&slow, "llama-70b",
           "{'parts': [{'profile': 'dgx-h100', 'nodes': 2}, {'profile': 'dgx-a100', 'nodes': 4}], "
           "'between': {'gbs': 0.5, 'latency_us': 100}}",
           "megatron");
    assert_false(fast.parts.between_given);
    assert_true(slow.parts.between_given);
    assert_true(fast.parts.between.gbs == fast.parts.at[1].link[1].gbs);
    look(&one, &fast, FEW, 1);
    look(&other, &slow, FEW, 1);
    assert_true(other.at[0].cost.tokens_per_s < one.at[0].cost.tokens_per_s);
    pl_plan_done(&one);
    pl_plan_done(&other);
}

/* ---- the simulator ------------------------------------------------------- */

enum { MAX_PP = 8 };

static double simulated(const struct pl_pipe *pipe)
{
    struct pl_timeline timeline;
    struct err e = {0};
    double total;

    if (pl_simulate(&timeline, pipe, &e) < 0)
        fail_msg("%s", e.text);
    total = timeline.total;
    pl_timeline_done(&timeline);
    return total;
}

/* Stages of two speeds, as a division leaves them: nearly as long, the passes in a ratio of their
 * own. */
static void stages_of_two_speeds_take_what_the_closed_form_says(void **state)
{
    static const enum pl_schedule schedules[] = {PL_1F1B, PL_GPIPE};
    double worst = 0;
    struct rng rng;

    (void)state;
    rng_seed(&rng, 8);
    for (int i = 0; i < 500; i++) {
        struct pl_stage_time at[MAX_PP];
        int pp = 2 + (int)rng_below(&rng, MAX_PP - 1), head = 1 + (int)rng_below(&rng, 7);
        struct pl_pipe pipe = {
            schedules[i % 2], pp, 1, pp * (1 + (int)rng_below(&rng, 6)), at, 0, false, NULL};
        double slower = 0.7 + 0.6 * rng_unit(&rng);

        for (int s = 0; s < pp; s++) {
            double length = s < head ? 1 : slower;

            at[s] = (struct pl_stage_time){length, 2 * length, 0};
        }
        worst = fmax(worst, fabs(simulated(&pipe) / pl_pipe_seconds(&pipe) - 1));
    }
    if (worst > 1e-9)
        fail_msg("up to %g from the event simulator", worst);
}

/* Equal stages, one slow message: the steady state of 1F1B with overlap waits for the chain. */
static void a_slow_message_delays_the_chain(void **state)
{
    struct rng rng;

    (void)state;
    rng_seed(&rng, 9);
    for (int i = 0; i < 300; i++) {
        struct pl_stage_time at[MAX_PP];
        double border[MAX_PP - 1];
        int pp = 2 + (int)rng_below(&rng, MAX_PP - 1),
            slow = (int)rng_below(&rng, (uint64_t)pp - 1);
        struct pl_pipe few = {PL_1F1B, pp, 1, 10 * pp, at, 0, true, border}, many = few;
        double step, chain;

        for (int s = 0; s < pp; s++)
            at[s] = (struct pl_stage_time){1, 2, 0};
        for (int s = 0; s < pp - 1; s++)
            border[s] = s == slow ? 0.1 + 0.3 * rng_unit(&rng) : 0.02;
        many.microbatches = 20 * pp;
        step = (simulated(&many) - simulated(&few)) / (10.0 * pp);
        chain = 3 + 2.0 * (pp - 1) / pp * pl_message_chain_s(pp, border);
        if (fabs(step / chain - 1) > 1e-9)
            fail_msg("pp %d, slow %d: %g a micro-batch by events, %g", pp, slow, step, chain);
    }
}

/* ---- bad input ----------------------------------------------------------- */

static void bad_clusters_are_refused_by_pointer(void **state)
{
    static const char *const bad[][3] = {
        {"{'parts': ['dgx-h100']}", "/parts", "must list 2 clusters, found 1"},
        {"{'parts': ['dgx-h100', 'dgx-a100', 'dgx-a100']}", "/parts", "2"},
        {"{'parts': 'dgx-h100'}", "/parts", "array"},
        {"{'parts': ['dgx-h100', 'dgx-a101']}", "/parts/1", "unknown cluster profile"},
        {"{'parts': ['dgx-h100', null]}", "/parts/1", "not null"},
        {"{'parts': ['dgx-h100', 'local']}", "/parts/1/device", "processor cores"},
        {"{'parts': [{'profile': 'dgx-h100', 'oversubscribe': true}, 'dgx-a100']}",
         "/parts/0/oversubscribe", "not supported"},
        {"{'parts': ['dgx-h100', {'profile': 'dgx-a100', 'nodes': 0}]}", "/parts/1/nodes", "0"},
        {"{'parts': ['dgx-h100', {'parts': ['dgx-a100', 'dgx-h100']}]}", "/parts/1/parts",
         "for plans only"},
        {"{'parts': ['dgx-h100', 'dgx-a100'], 'nodes': 2}", "/nodes", "nodes"},
        {"{'parts': ['dgx-h100', 'dgx-a100'], 'between': {}}", "/between/gbs", "gbs"},
        {"{'parts': ['dgx-h100', 'dgx-a100'], 'between': {'gbs': -1}}", "/between/gbs", "gbs"},
        {"{'parts': ['dgx-h100', 'dgx-a100'], 'between': {'gbs': 1, 'span': 8}}", "/between/span",
         "span"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        AUTO_JSON *v = unit_json(bad[i][0]);
        struct pl_cluster whole = {.nodes = -1};
        struct pl_parts parts;
        struct err e = {0};

        assert_true(pl_parts_are_in(v));
        assert_true(pl_parts_parse(&whole, &parts, v, NULL, &e) < 0);
        if (strcmp(e.pointer, bad[i][1]) != 0 || !strstr(e.text, bad[i][2]))
            fail_msg("%s: %s: %s", bad[i][0], e.pointer, e.text);
        assert_int_equal(whole.nodes, -1);
    }
}

/* Whatever is not asked for a plan takes one cluster. */
static void one_cluster_is_not_of_parts(void **state)
{
    AUTO_JSON *v = unit_json(mixed);
    struct pl_cluster cluster;
    struct err e = {0};

    (void)state;
    assert_true(pl_cluster_parse(&cluster, v, NULL, &e) < 0);
    assert_string_equal(e.pointer, "/parts");
    assert_non_null(strstr(e.text, "for plans only"));
}

static void a_space_leaves_out_what_follows(void **state)
{
    static const char *const bad[][2] = {{"{'world': 48}", "/world"},
                                         {"{'stages': 'balanced'}", "/stages"},
                                         {"{'dp': [1, 2]}", "/dp"},
                                         {"{'tq': 1}", "/tq"}};
    struct pl_space space;
    struct mix mix;

    (void)state;
    mix_of(&mix, "llama-8b", mixed, "megatron");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        AUTO_JSON *v = unit_json(bad[i][0]);
        struct err e = {0};

        assert_true(pl_parts_space(&space, v, &mix.problem, &e) < 0);
        assert_string_equal(e.pointer, bad[i][1]);
    }
}

static void layouts_of_parts_follow_their_rules(void **state)
{
    static const char *const broken[][2] = {
        {"{'world': 48, 'tp': 8, 'pp': 2}", "parts-stages"},
        {"{'world': 40, 'tp': 8, 'pp': 5}", "parts-stages"},
        {"{'world': 48, 'tp': 8, 'pp': 6, 'schedule': 'interleaved', 'vp': 2}", "parts-schedule"},
        {"{'world': 48, 'tp': 8, 'pp': 6, 'zero': 1, 'offload_optimizer': 100}", "parts-options"},
    };
    struct mix mix, deepspeed;
    struct pl_verdict verdict;
    char text[400];

    (void)state;
    mix_of(&mix, "llama-70b", mixed, "any");
    mix_of(&deepspeed, "llama-70b", mixed, "deepspeed");
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        AUTO_JSON *v = unit_json(broken[i][0]);
        struct pl_layout layout;
        bool found = false;
        struct err e = {0};

        assert_int_equal(pl_layout_parse(&layout, v, &mix.problem, &e), 0);
        assert_false(pl_layout_check(&verdict, &mix.problem, &layout));
        for (int k = 0; k < verdict.count; k++)
            found = found || !strcmp(verdict.v[k].rule, broken[i][1]);
        if (!found)
            fail_msg("%s: %s", broken[i][0], pl_verdict_text(text, sizeof(text), &verdict));
    }
    for (int pp = 5; pp <= 6; pp++) {
        struct pl_layout layout = layout_of(&mix.x, "{'world': 48, 'tp': 8, 'sp': 1}");

        layout.pp = pp;
        layout.world = 8 * pp;
        pl_layout_derive(&layout);
        assert_int_equal(pl_layout_check(&verdict, &mix.problem, &layout), pp == 6);
    }
    {
        struct pl_layout layout = layout_of(&mix.x, "{'world': 48, 'tp': 8, 'pp': 6}");

        assert_false(pl_layout_check(&verdict, &deepspeed.problem, &layout));
    }
}

/* The faster device, here the larger one, does not lend the other its products. */
static void a_precision_needs_both_devices(void **state)
{
    static const char *const parts[] = {
        "{'parts': [{'profile': 'dgx-b200', 'nodes': 2}, {'profile': 'dgx-h100', 'nodes': 2}]}",
        "{'parts': [{'profile': 'dgx-b200', 'nodes': 2}, {'profile': 'dgx-b300', 'nodes': 2}]}"};

    (void)state;
    for (int both = 0; both < 2; both++) {
        struct mix mix;
        struct pl_layout layout;
        struct pl_verdict verdict;
        struct pl_space space;
        struct err e = {0};
        bool listed = false;
        char text[400];

        mix_of(&mix, "llama-70b", parts[both], "any");
        layout = layout_of(&mix.x, "{'world': 8, 'tp': 8, 'sp': 1, 'precision': 'mxfp8'}");
        layout.pp = pl_cluster_devices(&mix.whole) / 8;
        layout.world = 8 * layout.pp;
        pl_layout_derive(&layout);
        assert_int_equal(pl_layout_check(&verdict, &mix.problem, &layout), both);
        pl_verdict_text(text, sizeof(text), &verdict);
        if (!both && !strstr(text, "H100"))
            fail_msg("%s", text);
        assert_int_equal(pl_parts_space(&space, NULL, &mix.problem, &e), 0);
        pl_space_widen(&space, PL_KEY_PRECISION, &mix.problem);
        for (int i = 0; i < space.axis[PL_KEY_PRECISION].n; i++)
            listed = listed || space.axis[PL_KEY_PRECISION].value[i] == PL_MXFP8;
        assert_int_equal(listed, both);
    }
}

/* Random small clusters and spaces: what is listed is whole, fits and is in order. */
static void random_parts_have_sound_plans(void **state)
{
    static const char *const names[] = {"dgx-h100", "dgx-a100", "mi300x", "gb200-nvl72"};
    struct rng rng;
    int listed = 0;

    (void)state;
    rng_seed(&rng, 12);
    for (int i = 0; i < 8; i++) {
        AUTO_FREE char *json = mem_printf(
            "{'parts': [{'profile': '%s', 'nodes': %d}, {'profile': '%s', 'nodes': %d}]}",
            names[rng_below(&rng, 4)], 1 + (int)rng_below(&rng, 5), names[rng_below(&rng, 4)],
            1 + (int)rng_below(&rng, 5));
        struct mix mix;
        struct pl_plan plan;

        mix_of(&mix, models[rng_below(&rng, 3)], json, i % 2 ? "megatron" : "any");
        look(&plan, &mix, "{'micro_batch': [1, 2], 'recompute': ['none', 'full'], 'cp': 1}", 10);
        for (size_t k = 0; k < plan.n; k++) {
            const struct pl_plan_entry *one = &plan.at[k];
            double sum = 0;
            int layers;

            for (int c = 0; c < PL_COST_CLASSES; c++) {
                assert_true(one->cost.seconds[c] >= 0 && isfinite(one->cost.seconds[c]));
                sum += one->cost.seconds[c];
            }
            assert_true(near(sum, one->cost.total));
            assert_int_equal(pl_stages_total(&layers, one->layout.stages), one->layout.pp);
            assert_int_equal(layers, mix.x.m.layers);
            assert_true(one->memory.scaled <= pl_memory_offered(&mix.whole, 0.05));
            assert_true(!k || one->cost.tokens_per_s <= plan.at[k - 1].cost.tokens_per_s);
            listed++;
        }
        pl_plan_done(&plan);
    }
    assert_true(listed > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_division_is_the_one_that_brute_force_finds),
        cmocka_unit_test(equal_layers_on_equal_stages_are_divided_evenly),
        cmocka_unit_test(two_parts_of_one_profile_are_one_cluster),
        cmocka_unit_test(unlike_parts_get_unlike_stages),
        cmocka_unit_test(a_slow_link_between_costs_time),
        cmocka_unit_test(stages_of_two_speeds_take_what_the_closed_form_says),
        cmocka_unit_test(a_slow_message_delays_the_chain),
        cmocka_unit_test(bad_clusters_are_refused_by_pointer),
        cmocka_unit_test(one_cluster_is_not_of_parts),
        cmocka_unit_test(a_space_leaves_out_what_follows),
        cmocka_unit_test(layouts_of_parts_follow_their_rules),
        cmocka_unit_test(a_precision_needs_both_devices),
        cmocka_unit_test(random_parts_have_sound_plans),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
