/* Spaces: what a campaign's "space" means, the walk over its legal layouts, why one is empty, the
 * baseline. */
#include "plan/space_walk.h"
#include "tests/unit/plan_world.h"

#include <errno.h>
#include <math.h>
#include <time.h>

static struct pl_space space_of(const struct world *x, const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_space s;
    struct err e = {0};

    if (pl_space_parse(&s, v, problem_of(x), &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return s;
}

static void absent_keys_take_every_value_that_the_trainer_supports(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 12, "partune");
    struct pl_space s = space_of(&x, "{}");
    AUTO_JSON *got = pl_space_json(&s);
    AUTO_JSON *tp = unit_json("[1,2,4]"), *mb = unit_json("[1,2,3,4,6,12]"),
              *world = unit_json("[4]");

    (void)state;
    assert_true(json_equal(json_object_get(got, "tp"), tp));
    assert_true(json_equal(json_object_get(got, "ep"), tp));
    assert_true(json_equal(json_object_get(got, "micro_batch"), mb));
    assert_true(json_equal(json_object_get(got, "world"), world));
    assert_int_equal(pl_space_axis(&s, "threads")->n, 1);
    assert_int_equal(pl_space_axis(&s, "cp")->n, 1);
}

/* 1.41 x was missed at 131,072 tokens where cp was 1 only. */
static void long_sequences_may_be_split(void **state)
{
    struct world x = world_of("llama-70b", "dgx-h100", 2, 64, "megatron");
    struct world none = world_of("llama-70b", "dgx-h100", 2, 64, "deepspeed");
    AUTO_JSON *want = unit_json("[1,2,4,8,16]");
    struct pl_space s = space_of(&x, "{}");
    AUTO_JSON *got = pl_space_json(&s);

    (void)state;
    assert_int_equal(x.w.seq, 8192);
    assert_true(json_equal(json_object_get(got, "cp"), want));
    x.w.seq = 8191;
    s = space_of(&x, "{}");
    assert_int_equal(pl_space_axis(&s, "cp")->n, 1);
    s = space_of(&none, "{}"); /* has no context parallelism */
    assert_int_equal(pl_space_axis(&s, "cp")->n, 1);
}

struct walked {
    const struct world *x;
    struct pl_layout seen[20000];
    size_t n;
};

static bool keep(void *arg, const struct pl_layout *l)
{
    struct walked *k = arg;

    assert_true(pl_layout_check(NULL, problem_of(k->x), l));
    assert_true(k->n < ARRAY_LEN(k->seen));
    k->seen[k->n++] = *l;
    return true;
}

/* Every combination of the values, put to the rules one by one. */
static size_t brute_force(const struct world *x)
{
    size_t n = 0;
    struct pl_layout l;

    pl_layout_default(&l, &x->w);
    l.world = 4;
    for (l.tp = 1; l.tp <= 4; l.tp++)
        for (l.pp = 1; l.pp <= 4; l.pp++)
            for (l.vp = 1; l.vp <= 4; l.vp++)
                for (l.ep = 1; l.ep <= 4; l.ep++)
                    for (l.etp = 1; l.etp <= 4; l.etp++)
                        for (int bits = 0; bits < PL_SCHEDULES * 2 * 2 * 3 * 3; bits++)
                            for (l.micro_batch = 1; l.micro_batch <= 8; l.micro_batch++) {
                                int rest = bits / PL_SCHEDULES;

                                l.schedule = bits % PL_SCHEDULES;
                                l.sp = rest % 2;
                                l.zero = rest / 2 % 2;
                                l.zero_scope = rest / 4 % 3;
                                l.recompute = rest / 12 % 3;
                                if (l.recompute == PL_RECOMPUTE_SELECTIVE)
                                    continue;
                                pl_layout_derive(&l);
                                n += pl_layout_check(NULL, problem_of(x), &l);
                            }
    return n;
}

static void the_walk_visits_each_legal_layout_once(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 8, "any");
    struct pl_space s =
        space_of(&x, "{'overlap_grad_reduce':0,'overlap_param_gather':0,'overlap_p2p':0,"
                     "'overlap_moe_a2a':0,'zero':[0,1],'recompute':['none','full']}");
    struct pl_problem p = world_problem(&x);
    AUTO_FREE struct walked *k = mem_alloc(sizeof(*k));
    size_t n;

    (void)state;
    k->x = &x;
    n = pl_space_enumerate(&s, &p, keep, k);
    assert_int_equal(n, k->n);
    for (size_t i = 0; i < k->n; i++) {
        assert_true(pl_space_has(&s, &p, &k->seen[i]));
        for (size_t j = 0; j < i; j++)
            assert_false(pl_layout_equal(&k->seen[i], &k->seen[j]));
    }
    assert_int_equal(k->n, brute_force(&x));
}

static void a_list_longer_than_its_limit_is_refused(void **state)
{
    struct world x = world_cpu("tiny-llama", 4, 8, "any");
    struct pl_space s = space_of(&x, "{}");
    struct pl_problem p = world_problem(&x);
    struct pl_layout *l = NULL;
    size_t n = 0;
    struct err e = {0};

    (void)state;
    assert_true(pl_space_list(&l, &n, 10, &s, &p, NULL, &e) < 0);
    assert_null(l);
    assert_int_equal(pl_space_list(&l, &n, 1 << 20, &s, &p, NULL, &e), 0);
    assert_int_equal(n, pl_space_enumerate(&s, &p, NULL, NULL));
    free(l);
}

static void keys_without_meaning_do_not_exclude(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 8, "any");
    struct pl_problem p = world_problem(&x);
    struct pl_space s = space_of(
        &x, "{'tp':[1,2],'sp':[1],'zero':[0,1],'zero_scope':['plain'],'pp':1,'ep':1,'etp':1,"
            "'micro_batch':1,'recompute':'none','schedule':'gpipe','overlap_grad_reduce':0,"
            "'overlap_param_gather':0}");

    (void)state;
    /* tp 1 and 2, zero 0 and 1; scope and schedule say nothing here */
    assert_int_equal(pl_space_enumerate(&s, &p, NULL, NULL), 4);
}

static void derived_keys_restrict(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 8, "partune");
    struct pl_problem p = world_problem(&x);
    struct pl_space s = space_of(&x, "{'dp':[4]}");
    struct pl_layout *l;
    size_t n;
    struct err e = {0};

    (void)state;
    assert_int_equal(pl_space_list(&l, &n, 10000, &s, &p, NULL, &e), 0);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(l[i].dp, 4);
    free(l);
}

static void an_empty_space_says_which_rules_exclude_it_and_what_would_help(void **state)
{
    static const struct {
        const char *space, *rule, *change;
        int batch;
    } row[] = {
        {"{'tp':[3]}", "kv-heads-tp", "\"tp\": [4] instead of [3];", 8},
        {"{'micro_batch':[5]}", "batch-divides", "\"micro_batch\": [4] instead of [5];", 8},
        {"{'cp':[2],'cp_comm':['a2a']}", "trainer-supports", "\"cp\": [1] instead of [2];", 8},
        {"{'pp':[3],'world':[3],'stages':['even']}", "layers-pp-vp", "", 9},
        {"{'tp':1,'pp':1,'micro_batch':1,'ep':1}", "batch-divides", "\"world\": [1]", 7},
        {"{'tp':[3],'micro_batch':[5]}", "kv-heads-tp", "] and \"micro_batch\": [", 8},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_cpu("tiny-moe", 4, row[i].batch, "partune");
        struct pl_problem p = world_problem(&x);
        struct pl_space s = space_of(&x, row[i].space);
        char text[2048];

        assert_true(pl_space_explain(text, sizeof(text), &s, &p, NULL));
        if (!strstr(text, row[i].rule) || !strstr(text, row[i].change))
            fail_msg("%s: %s", row[i].space, text);
    }
}

static void a_model_that_the_trainer_cannot_train_is_named_whole(void **state)
{
    struct world x = world_of("deepseek-v3", "dgx-h100", 16, 512, "deepspeed");
    struct pl_problem p = world_problem(&x);
    struct pl_space s = space_of(&x, "{}");
    char text[2048];

    (void)state;
    assert_true(pl_space_explain(text, sizeof(text), &s, &p, NULL));
    assert_non_null(strstr(
        text,
        "trainer deepspeed cannot train this model in any layout: it does not support mtp > 0 "));
    assert_non_null(strstr(text, "trainer \"any\""));
    assert_null(strstr(text, "candidates"));
}

static void a_space_with_a_layout_has_nothing_to_explain(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 8, "partune");
    struct pl_problem p = world_problem(&x);
    struct pl_space s = space_of(&x, "{}");
    char text[256];

    (void)state;
    assert_false(pl_space_explain(text, sizeof(text), &s, &p, NULL));
    assert_string_equal(text, "");
}

static double over(void *arg)
{
    (void)arg;
    return 1;
}

/* Sizing asks for many: 20,000 candidates of each were 0.25 s, whatever time was left. */
static void an_explanation_is_shorter_when_patience_is_over(void **state)
{
    struct world x = world_of("deepseek-v2-lite", "dgx-a100", 64, 2048, "megatron");
    struct pl_problem p = world_problem(&x);
    struct pl_space s;
    struct pl_patience none = {over, NULL};
    char text[2048];

    (void)state;
    x.w.precision = PL_FP8; /* which an A100 has no products for */
    s = space_of(&x, "{}");
    assert_true(pl_space_explain(text, sizeof(text), &s, &p, NULL));
    assert_non_null(strstr(text, "among the first 20000 candidates"));
    assert_true(pl_space_explain(text, sizeof(text), &s, &p, &none));
    if (!strstr(text, "among the first 1024 candidates") || !strstr(text, "; nearest: ") ||
        !strstr(text, "; broken rules: "))
        fail_msg("%s", text);
}

static void bad_spaces_are_refused_by_pointer(void **state)
{
    static const struct {
        const char *space, *pointer, *text;
    } row[] = {
        {"{'tensor_parallel':[1]}", "/tensor_parallel", "is unknown"},
        {"{'tp':[]}", "/tp", "needs 1..254 values"},
        {"{'tp':[1,2,1]}", "/tp/2", "given twice"},
        {"{'tp':[1,0]}", "/tp/1", "outside"},
        {"{'tp':'all'}", "/tp", "must be an integer"},
        {"{'schedule':['1f1b','pipedream']}", "/schedule/1", "not one of"},
        {"{'tp':[null]}", "/tp/0", "null"},
        {"[1]", "", "expected an object"},
    };
    struct world x = world_cpu("tiny-moe", 4, 8, "partune");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].space);
        struct pl_space s;
        struct err e = {0};

        assert_true(pl_space_parse(&s, v, problem_of(&x), &e) < 0);
        if (strcmp(e.pointer, row[i].pointer) || !strstr(e.text, row[i].text))
            fail_msg("%s: %s %s", row[i].space, e.pointer, e.text);
    }
}

static void the_naive_baseline_is_the_largest_dp(void **state)
{
    struct world x = world_cpu("tiny-moe", 4, 8, "partune");
    struct pl_problem p = world_problem(&x);
    struct pl_layout l;
    struct err e = {0};
    struct pl_memory need;

    (void)state;
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0, &e), 0);
    assert_true(l.dp == 4 && l.world == 4 && l.micro_batch == 1 && l.zero == 0 &&
                l.tp * l.pp * l.ep == 1);
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 2, 0, &e), 0);
    assert_int_equal(l.world, 2);

    x.w.global_batch = 6; /* 4 does not divide it */
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0, &e), 0);
    assert_int_equal(l.dp, 3);

    x.w.global_batch = 8;
    pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0, &e);
    pl_memory_worst(&need, problem_of(&x), &l);
    x.c.device.memory_gib =
        (need.total - 1) / (1 << 30); /* a byte too little: the state must be sharded */
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0, &e), 0);
    assert_true(l.zero == 1 && l.tp * l.pp == 1);

    x.c.device.memory_gib = 1e-3;
    assert_true(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0, &e) < 0);
    assert_non_null(strstr(e.text, "no legal layout with micro_batch 1 fits"));
    assert_true(pl_baseline(&l, NULL, &p, PL_BASELINE_DEFAULT, 0, 0, &e) < 0);
    assert_non_null(strstr(e.text, "no legal layout with micro_batch 1 fits"));
}

static void the_naive_baseline_of_a_large_model_is_split(void **state)
{
    struct world x = world_of("gpt-175B", "dgx-a100", 128, 1536, "megatron");
    struct pl_problem p = world_problem(&x);
    struct pl_layout l;
    struct err e = {0};

    (void)state;
    x.w.precision = PL_BF16;
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0.05, &e), 0);
    assert_true(l.tp * l.pp > 8 && pl_fits(&p, &l, 0.05));
}

static double modeled(const struct pl_problem *p, const struct pl_layout *l)
{
    struct pl_cost cost;

    pl_cost(&cost, p, l);
    return cost.total;
}

/* Whether a flag could be on as well. */
static bool lacks_overlap(const struct pl_problem *p, const struct pl_layout *l)
{
    static const char *const flag[] = {"overlap_grad_reduce", "overlap_param_gather", "overlap_p2p",
                                       "overlap_moe_a2a"};

    for (size_t i = 0; i < ARRAY_LEN(flag); i++) {
        struct pl_layout more = *l;

        pl_layout_set(&more, pl_layout_key_find(flag[i]), 1);
        if (!pl_layout_equal(&more, l) && pl_layout_check(NULL, p, &more))
            return true;
    }
    return false;
}

/* What holds of every default baseline; DEVICES is for the message. */
static void check_default(const struct world *x, int devices)
{
    struct pl_problem p = world_problem(x);
    double headroom = x->t->bundled ? 0 : 0.05;
    char note[PL_BASELINE_NOTE], text[160];
    struct pl_layout naive, l;
    struct err e = {0};
    bool any = pl_baseline(&naive, NULL, &p, PL_BASELINE_NAIVE, 0, headroom, &e) == 0;
    int node = x->c.devices_per_node;

    if (pl_baseline(&l, note, &p, PL_BASELINE_DEFAULT, 0, headroom, &e) < 0) {
        if (any)
            fail_msg("%s %d %s: %s", x->m.name, devices, x->t->name, e.text);
        return;
    }
    pl_layout_text(text, &l);
    if (!pl_layout_check(NULL, &p, &l) || !pl_fits(&p, &l, headroom))
        fail_msg("%s %d %s: %s is illegal or does not fit", x->m.name, devices, x->t->name, text);
    if ((l.world < pl_cluster_devices(p.cluster) || l.recompute) != (*note != 0) ||
        (any && modeled(&p, &l) > modeled(&p, &naive) * (1 + 1e-9)))
        fail_msg("%s %d %s: %s, \"%s\", %g s where naive takes %g", x->m.name, devices, x->t->name,
                 text, note, modeled(&p, &l), any ? modeled(&p, &naive) : NAN);
    /* Without pipeline and recomputation tp is all that is left to a model of many layers. */
    if (!*note && (lacks_overlap(&p, &l) ||
                   (l.tp > node && pl_trainer_takes(x->t, PL_KEY_PP, 2) && x->t->full) ||
                   (!l.zero && l.dp > 1 && x->t->max_zero && pl_model_params(&x->m) > 1000000000)))
        fail_msg("%s %d %s: %s", x->m.name, devices, x->t->name, text);
}

static void the_default_baseline_is_legal_fits_and_beats_the_naive_one(void **state)
{
    static const char *const cluster[] = {"dgx-a100", "dgx-h100", "h200", "frontier-mi250x",
                                          "aurora-pvc"};

    bool all = getenv("PT_LONG") != NULL; /* else each model on one of the clusters */
    size_t turn = 0;

    (void)state;
    for (const char *const *m = pl_model_presets(); *m; m++, turn++)
        for (size_t c = 0; c < ARRAY_LEN(cluster); c++)
            for (const char *const *t = pl_trainer_names();
                 *t && (all || turn % ARRAY_LEN(cluster) == c); t++)
                for (int nodes = 1; nodes <= 1024; nodes *= c ? 32 : 4) {
                    struct world x = world_of(*m, cluster[c], nodes, 1, *t);

                    x.w.global_batch = pl_cluster_devices(&x.c) * 4;
                    check_default(&x, pl_cluster_devices(&x.c));
                }
}

static struct pl_layout default_of(struct world *x, const char *note)
{
    struct pl_problem p = world_problem(x);
    char got[PL_BASELINE_NOTE];
    struct pl_layout l;
    struct err e = {0};

    if (pl_baseline(&l, got, &p, PL_BASELINE_DEFAULT, 0, 0.05, &e) < 0)
        fail_msg("%s: %s", x->m.name, e.text);
    if (!*note ? *got != 0 : !strstr(got, note))
        fail_msg("%s: \"%s\" instead of \"%s\"", x->m.name, got, note);
    return l;
}

/* Mixtral 8x22B ran with tp2 pp8 vp7 ep8 on H100 (Megatron-Core's own table). */
static void the_default_baseline_is_what_an_engineer_starts_from(void **state)
{
    struct world moe = world_of("mixtral-8x22b", "dgx-h100", 64, 1024, "megatron");
    struct pl_problem p = world_problem(&moe);
    struct pl_layout l = default_of(&moe, ""),
                     published = layout_of(&moe, "{'tp':2,'sp':1,'pp':8,'vp':7,'schedule':"
                                                 "'interleaved','ep':8,'zero':1}");
    struct world dense = world_of("llama-70b", "dgx-h100", 16, 512, "megatron");
    struct world small = world_of("llama-8b", "dgx-h100", 4, 512, "torchtitan");
    struct world far = world_of("llama-70b", "dgx-h100", 32, 64, "megatron");
    struct world prime = world_of("deepseek-v3", "dgx-h100", 256, 8192, "megatron");

    (void)state;
    assert_true(l.world == 512 && l.ep == 8 && l.tp == 2 && l.sp && l.pp > 1 && l.vp > 1 &&
                l.zero && l.overlap_grad_reduce && l.overlap_moe_a2a && !l.recompute);
    assert_true(modeled(&p, &l) < 1.02 * modeled(&p, &published));

    l = default_of(&dense, "");
    assert_true(l.world == 128 && l.tp > 1 && l.tp <= 8 && l.sp && l.pp > 1 && l.zero == 1);
    l = default_of(&small, "");
    assert_true(l.world == 32 && l.pp == 1 && l.zero && l.overlap_grad_reduce);
    far.w.seq = 131072;
    l = default_of(&far, "");
    assert_true(l.world == 256 && l.cp > 1 && l.tp <= 8);
    l = default_of(&prime, ""); /* 61 layers: interleaved, with stages of several lengths */
    assert_true(l.world == 2048 && l.vp > 1 && l.stages != PL_STAGES_EVEN && l.overlap_moe_a2a);
}

/* Inside a package of two before the node; and the largest batch that fits where nothing is piped.
 */
static void the_default_baseline_follows_links_and_memory(void **state)
{
    struct world x = world_of("gpt-22B", "frontier-mi250x", 16, 1024, "megatron");
    struct world one = world_of("gpt-1.4B", "dgx-h100", 1, 512, "megatron");
    struct pl_problem p = world_problem(&one);
    struct pl_layout l = default_of(&x, ""), more;

    (void)state;
    assert_int_equal(l.tp, 2);
    more = l = default_of(&one, "");
    assert_true(l.dp == 8 && l.micro_batch > 1);
    more.micro_batch *= 2;
    assert_true(!pl_fits(&p, &more, 0.05) || modeled(&p, &more) > modeled(&p, &l));
}

static void the_default_baseline_says_where_it_gives_way(void **state)
{
    struct world odd = world_of("llama-8b", "dgx-h100", 3, 16, "megatron");
    struct world tight = world_of("llama-70b", "dgx-a100", 2, 64, "megatron");
    struct world none = world_of("gpt-22B", "dgx-a100", 2, 64, "torchtitan");
    struct pl_problem p = world_problem(&none);
    struct err e = {0};
    struct pl_layout l;

    (void)state;
    l = default_of(&odd, "on 16 of 24 devices: no legal layout that fits uses all of them");
    assert_int_equal(l.world, 16); /* 24 devices share no batch of 16 */
    tight.c.device.memory_gib = 85;
    l = default_of(&tight, "with recomputation: nothing fits without it");
    assert_true(l.recompute != PL_RECOMPUTE_NONE && l.world == 16);
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_DEFAULT, 0, 0, &e), -ENOENT);
    assert_non_null(strstr(e.text, "does not support mlp gelu"));
}

/* More choices than anybody would wait for: to look at all of them takes minutes. */
static void a_baseline_of_too_many_layouts_is_bounded(void **state)
{
    static const char *const trainers[] = {"any", "megatron", "torchtitan"};
    struct world x = world_of("mixtral-8x7b", "dgx-h100", 1024, 720720, "partune");
    struct pl_problem p = world_problem(&x);
    char note[PL_BASELINE_NOTE] = "";
    struct err e = {0};
    struct pl_layout l;

    (void)state;
    x.m.layers = x.m.heads = x.m.kv_heads = x.m.moe.experts = 720;
    x.m.hidden = 11520;
    x.m.head_dim = 16;
    x.m.seq = x.w.seq = 131072;
    assert_int_equal(pl_baseline(&l, note, &p, PL_BASELINE_DEFAULT, 0, 0, &e), -E2BIG);
    assert_non_null(strstr(e.text, "too many layouts on 8192 ranks"));
    assert_int_equal(pl_baseline(&l, NULL, &p, PL_BASELINE_NAIVE, 0, 0, &e), -E2BIG);
    for (size_t i = 0; i < ARRAY_LEN(trainers); i++) {
        int r;

        p.trainer = x.t = pl_trainer_find(trainers[i]);
        r = pl_baseline(&l, note, &p, PL_BASELINE_DEFAULT, 0, 0.05, &e);
        assert_true(r == 0 || r == -E2BIG);
        if (r < 0)
            continue;
        assert_true(pl_layout_check(NULL, problem_of(&x), &l));
        assert_true(pl_fits(&p, &l, 0.05));
    }
}

/* Where nothing fits, a search may begin at a baseline, for which it has little time left. */
static void a_baseline_to_begin_at_ends_with_the_patience(void **state)
{
    struct world x = world_of("deepseek-v2-lite", "dgx-a100", 512, 16384, "megatron");
    struct pl_patience none = {over, NULL};
    struct pl_problem p = world_problem(&x);
    struct timespec from, to;
    struct pl_layout l;

    (void)state;
    x.w.precision = PL_FP8; /* which an A100 has no products for */
    assert_int_equal(pl_baseline_soon(&l, &p, PL_BASELINE_NAIVE, 0.05, NULL), -ENOENT);
    for (int rule = PL_BASELINE_DEFAULT; rule <= PL_BASELINE_NAIVE; rule++)
        assert_int_equal(pl_baseline_soon(&l, &p, (enum pl_baseline_rule)rule, 0.05, &none),
                         -E2BIG);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < 100; i++)
        pl_baseline_soon(&l, &p, PL_BASELINE_DEFAULT, 0.05, &none);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    assert_true((double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9 < 5);
}

struct broken {
    const struct world *x;
    const char *rule;
    uint64_t candidates, count;
};

/* The same product walked by hand: tp x pp x micro_batch on four ranks. */
static void break_by_hand(struct broken *b, const int *tp, const int *pp, const int *mb)
{
    for (int i = 0; i < 9; i++) {
        char text[96];
        struct pl_layout l;
        struct pl_verdict v;

        snprintf(text, sizeof(text), "{'world':4,'tp':%d,'pp':%d,'micro_batch':%d}", *tp, pp[i / 3],
                 mb[i % 3]);
        l = layout_of(b->x, text);
        pl_layout_check(&v, problem_of(b->x), &l);
        b->candidates++;
        for (int j = 0; j < v.count; j++)
            if (str_eq(v.v[j].rule, b->rule)) {
                b->count++;
                break;
            }
    }
}

static void rules_are_counted_over_the_whole_product(void **state)
{
    static const int tp[] = {1, 3}, pp[] = {1, 2, 3}, mb[] = {1, 2, 5};
    struct world x = world_cpu("tiny-llama", 4, 12, "partune");
    struct pl_problem p = world_problem(&x);
    struct pl_space s = space_of(
        &x, "{'tp':[1,3],'sp':0,'pp':[1,2,3],'vp':1,'schedule':'1f1b','micro_batch':[1,2,5],"
            "'zero':0,'recompute':'none','overlap_grad_reduce':0,'overlap_p2p':0}");
    struct pl_exclusion got[PL_MAX_EXCLUSIONS];
    uint64_t candidates;
    bool whole;
    size_t n = pl_space_excluded(got, &candidates, &whole, &s, &p, NULL);

    (void)state;
    assert_true(whole && n >= 3);
    for (size_t i = 0; i < n; i++) {
        struct broken b = {.x = &x, .rule = got[i].rule};

        break_by_hand(&b, &tp[0], pp, mb);
        break_by_hand(&b, &tp[1], pp, mb);
        assert_int_equal(candidates, b.candidates);
        assert_int_equal(got[i].count, b.count);
        assert_true(strlen(got[i].example) > 10);
        assert_true(i == 0 || got[i].count <= got[i - 1].count);
    }
}

struct exact {
    const struct pl_problem *p;
    const struct pl_exclusion *rule;
    size_t n;
    uint64_t count[PL_MAX_EXCLUSIONS];
};

static bool count_exactly(void *arg, const struct pl_layout *l)
{
    struct exact *x = arg;
    struct pl_verdict v;

    pl_layout_check(&v, x->p, l);
    for (size_t i = 0; i < x->n; i++)
        for (int j = 0; j < v.count; j++)
            if (str_eq(v.v[j].rule, x->rule[i].rule)) {
                x->count[i]++;
                break;
            }
    return true;
}

/* Above what is looked at one by one, each share is within five standard errors of a sample of
 * 8,192, whatever the order of the walk. */
static void large_products_are_sampled_evenly(void **state)
{
    struct world x = world_of("gpt-22B", "dgx-a100", 2, 24, "megatron");
    struct pl_problem p = world_problem(&x);
    struct pl_space s = space_of(&x, "{'recompute':['none','full']}");
    struct pl_exclusion got[PL_MAX_EXCLUSIONS];
    struct exact exact = {.p = &p, .rule = got};
    uint64_t candidates;
    bool whole;
    size_t n;

    (void)state;
    exact.n = pl_space_excluded(got, &candidates, &whole, &s, &p, NULL);
    assert_true(whole && exact.n > 3);
    assert_true(pl_space_product(&n, &s, &p, 0, NULL, count_exactly, &exact));
    assert_int_equal(n, candidates);
    assert_true(candidates > 30000);
    for (size_t i = 0; i < exact.n; i++) {
        double share = (double)exact.count[i] / (double)candidates;
        double off = (double)got[i].count / (double)candidates - share;

        if (fabs(off) > 5 * sqrt(share * (1 - share) / 8192))
            fail_msg("%s: %.5f of the candidates instead of %.5f", got[i].rule, share + off, share);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_take_every_value_that_the_trainer_supports),
        cmocka_unit_test(long_sequences_may_be_split),
        cmocka_unit_test(the_walk_visits_each_legal_layout_once),
        cmocka_unit_test(a_list_longer_than_its_limit_is_refused),
        cmocka_unit_test(keys_without_meaning_do_not_exclude),
        cmocka_unit_test(derived_keys_restrict),
        cmocka_unit_test(an_empty_space_says_which_rules_exclude_it_and_what_would_help),
        cmocka_unit_test(a_model_that_the_trainer_cannot_train_is_named_whole),
        cmocka_unit_test(a_space_with_a_layout_has_nothing_to_explain),
        cmocka_unit_test(an_explanation_is_shorter_when_patience_is_over),
        cmocka_unit_test(rules_are_counted_over_the_whole_product),
        cmocka_unit_test(large_products_are_sampled_evenly),
        cmocka_unit_test(bad_spaces_are_refused_by_pointer),
        cmocka_unit_test(the_naive_baseline_is_the_largest_dp),
        cmocka_unit_test(the_naive_baseline_of_a_large_model_is_split),
        cmocka_unit_test(the_default_baseline_is_legal_fits_and_beats_the_naive_one),
        cmocka_unit_test(the_default_baseline_is_what_an_engineer_starts_from),
        cmocka_unit_test(the_default_baseline_follows_links_and_memory),
        cmocka_unit_test(the_default_baseline_says_where_it_gives_way),
        cmocka_unit_test(a_baseline_of_too_many_layouts_is_bounded),
        cmocka_unit_test(a_baseline_to_begin_at_ends_with_the_patience),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
