/*
 * A trainer's space is what its own exporter writes without loss: random legal layouts of ten
 * models and more through the trainer's own targets, none refused, none with a gap. The keys are
 * drawn from all that may be written, not from a space; 50 layouts a model and trainer, 1,000 with
 * PT_LONG. PT_SEED draws others. PT_EXPORTS names a directory that then holds them through all
 * targets, for tests/export/targets.py.
 */
#include "tests/unit/problem.h"
#include "tests/unit/unit.h"

#include <math.h>

#include "tests/export/files.h"
#include "tests/unit/import_text.h"

static const char *const models[] = {
    "gpt-22B",
    "gpt-175B",
    "llama-8b",
    "llama-70b",
    "llama-405b",
    "mixtral-8x7b",
    "mixtral-8x22b",
    "mula-20b-a2b",
    "deepseek-v3-like",
    "deepseek-v3",
    "gpt-oss-20b",
    "qwen3-8b",
    "tiny-llama",
    "tiny-moe",
    "nano-llama",
    "nano-moe",
    /* layers divide by little, tied, a fraction in theta */
    "{'name':'tied','layers':10,'hidden':768,'heads':12,'kv_heads':6,'ffn':1920,'vocab':1000,"
    "'seq':240,'tied':true}",
    "{'name':'theta','layers':22,'hidden':512,'heads':8,'ffn':1536,'vocab':1000,'seq':128,"
    "'rope_theta':10000.5}",
    "{'name':'gelu-moe','layers':12,'hidden':512,'heads':8,'ffn':1536,'vocab':1000,'seq':96,"
    "'mlp':'gelu','norm':'layernorm','positions':'learned','moe':{'experts':12,'top_k':2,"
    "'expert_ffn':768,'every':2}}",
    "{'name':'capacity','layers':9,'hidden':512,'heads':8,'kv_heads':4,'ffn':1536,'vocab':1000,"
    "'seq':64,'moe':{'experts':8,'top_k':2,'expert_ffn':768,'shared_ffn':512,'dense_layers':1,"
    "'capacity_factor':1.25}}",
    "{'name':'latent','layers':12,'hidden':512,'heads':8,'ffn':1536,'vocab':1000,'seq':128,"
    "'mla':{'kv_lora_rank':64,'qk_nope_head_dim':48,'qk_rope_head_dim':16,'v_head_dim':48},"
    "'rope_scaling':{'kind':'yarn','factor':40,'original_seq':4096,'mscale_all_dim':1}}",
    "{'name':'unrotated','layers':10,'hidden':512,'heads':8,'kv_heads':4,'ffn':1536,'vocab':1000,"
    "'seq':96,'no_rope_freq':4}",
    "{'name':'shared','layers':13,'hidden':512,'heads':16,'kv_heads':8,'ffn':1536,'vocab':1000,"
    "'seq':96,'moe':{'experts':12,'top_k':3,'expert_ffn':384,'shared_ffn':384}}",
    "{'name':'linear','layers':12,'hidden':512,'heads':8,'kv_heads':4,'ffn':1536,'vocab':1000,"
    "'seq':96,'attention_output_gate':true,'linear_attention_freq':4,'linear_attention':{"
    "'num_key_heads':8,'num_value_heads':16,'key_head_dim':32,'value_head_dim':32},"
    "'moe':{'experts':12,'top_k':3,'expert_ffn':384,'shared_ffn':384,'shared_gate':true}}",
    "{'name':'sparse','layers':12,'hidden':512,'heads':8,'ffn':1536,'vocab':1000,'seq':128,"
    "'mla':{'q_lora_rank':64,'kv_lora_rank':64,'qk_nope_head_dim':48,'qk_rope_head_dim':16,"
    "'v_head_dim':48},'dsa':{'index_n_heads':4,'index_head_dim':32,'index_topk':64}}",
};

/* Own targets of each trainer, and the models that it cannot run in any layout: all others have
 * WANTED ones. */
static const struct {
    const char *trainer, *cluster, *target[3], *without[9];
} own[] = {
    {"partune", "local", {"partune"}, {"gelu-moe", "capacity", "linear", "sparse"}},
    {"megatron", "dgx-b200", {"megatron", "megatron-bridge"}, {"theta"}},
    {"torchtitan",
     "dgx-b200",
     {"torchtitan"},
     {"gpt-22B", "gpt-175B", "gelu-moe", "capacity", "unrotated", "linear", "sparse"}},
    /* its module of prediction; its indexer */
    {"deepspeed", "dgx-h100", {"deepspeed"}, {"deepseek-v3", "sparse"}},
};

enum {
    EACH = 50,
    EACH_LONG = 1000,
    TRIES = 40000,
    LISTS = 32,
    MANY = 40,        /* of one in four something is met: all but 1e-5 of the seeds */
    MANY_SIZES = 640, /* one in four is drawn, but few sizes are legal and not the standard */
};

struct world {
    struct pl_model m;
    struct pl_cluster c;
    struct pl_workload w;
    const struct pl_trainer *t;
};

static void open_world(struct world *x, const char *model, const char *cluster, const char *trainer)
{
    AUTO_JSON *m = *model == '{' ? unit_json(model) : json_string(model);
    AUTO_JSON *c = json_string(cluster);
    AUTO_JSON *w = json_pack("{s:i}", "global_batch", 96);
    struct err e = {0};

    x->t = pl_trainer_find(trainer);
    if (pl_model_parse(&x->m, m, &e) < 0 || pl_cluster_parse(&x->c, c, NULL, &e) < 0 ||
        pl_workload_parse(&x->w, w, &x->m, x->t, &e) < 0)
        fail_msg("%s: %s %s", model, e.pointer, e.text);
    x->c.nodes = 6;
    x->c.devices_per_node = 8;
}

/* A divisor of N, small ones more often than large ones. */
static int divisor(struct rng *r, int n)
{
    int d = 1 + (int)rng_below(r, 1 + rng_below(r, 48));

    while (n % d)
        d--;
    return d;
}

/* A value of 0..MAX for every second layout, 0 for the others: so that few keys are at odds. */
static int sometimes(struct rng *r, int max)
{
    return rng_below(r, 2) ? (int)rng_below(r, (uint64_t)max + 1) : 0;
}

/* Options, each with another value in one of four layouts; sizes divide the replicas. */
static void draw_options(struct pl_layout *l, struct rng *r)
{
    int replicas = l->world / (l->tp * l->pp);

    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        const struct pl_layout_key *row = &pl_layout_keys[key];
        int few = row->max - row->min + 1;

        pl_layout_set(l, row, row->part != PL_OPTION ? pl_layout_get(l, row) : row->standard);
        if (key == PL_KEY_OFFLOAD_OPT && rng_below(r, 4) == 0)
            l->offload_optimizer = 25 * (1 + (int)rng_below(r, 4)); /* all of it is a case */
        else if (row->part == PL_OPTION && rng_below(r, 4) == 0)
            pl_layout_set(l, row,
                          few < 16 ? row->min + 1 + (int)rng_below(r, (uint64_t)few - 1)
                                   : divisor(r, replicas));
    }
}

/* A word, or a list: the even division with some layers moved from one stage to another. A process
 * holds 65,536 lists at most, so that there are LISTS of each number of stages. */
static int division(struct rng *r, const struct pl_layout *layout, int layers)
{
    int count[64], runs = layout->pp * layout->vp, ret;
    struct rng moves;

    if (rng_below(r, 2) || runs > (int)ARRAY_LEN(count))
        return (int)rng_below(r, PL_STAGES_WORDS);
    rng_seed(&moves, rng_below(r, LISTS));
    for (int run = 0; run < runs; run++)
        count[run] = pl_stage_layers(NULL, layout, layers, run % layout->pp, run / layout->pp);
    for (int i = 0; i < 4; i++) {
        int from = (int)rng_below(&moves, (uint64_t)runs), some = sometimes(&moves, count[from]);

        count[from] -= some;
        count[rng_below(&moves, (uint64_t)runs)] += some;
    }
    if (pl_stages_list(&ret, count, runs, NULL) < 0)
        fail_msg("a list of %d stages is refused", runs);
    return ret;
}

/* Every key from its whole range; degrees divide what they must, or nothing would be legal. Half of
 * the layouts are then written canonically. */
static void draw(struct pl_layout *l, const struct world *x, struct rng *r)
{
    int experts = x->m.moe.experts ? x->m.moe.experts : 1;

    *l = (struct pl_layout){
        .tp = rng_below(r, 2) ? divisor(r, x->m.kv_heads) : 1,
        .sp = (int)rng_below(r, 2),
        .cp = rng_below(r, 2) ? divisor(r, 8) : 1,
        .pp = rng_below(r, 2) ? divisor(r, x->m.layers) : 1 + sometimes(r, 5),
        .vp = rng_below(r, 2) ? divisor(r, x->m.layers) : 1 + sometimes(r, 3),
        .schedule = (int)rng_below(r, PL_SCHEDULES),
        .ep = rng_below(r, 2) ? divisor(r, experts) : 1,
        .zero = sometimes(r, 3),
        .zero_scope = sometimes(r, PL_SCOPE_PLAIN),
        .micro_batch = divisor(r, x->w.global_batch),
        .recompute = sometimes(r, PL_RECOMPUTE_FULL),
        .overlap_grad_reduce = (int)rng_below(r, 2),
        .overlap_param_gather = (int)rng_below(r, 2),
        .overlap_p2p = sometimes(r, 1),
        .overlap_moe_a2a = sometimes(r, 1),
        .precision = (int)rng_below(r, PL_PRECISIONS),
        .threads = 1 + (rng_below(r, 4) == 0),
    };
    if (rng_below(r, 3) == 0) /* no pipeline */
        l->pp = l->vp = 1;
    if (rng_below(r, 3) == 0)
        l->stages = division(r, l, x->m.layers);
    l->etp = rng_below(r, 2) ? l->tp : 1;
    l->world = l->tp * l->cp * l->pp * divisor(r, x->w.global_batch);
    draw_options(l, r);
    if (rng_below(r, 4))
        pl_layout_canonical(l, &x->m);
    pl_layout_derive(l);
}

struct seen {
    bool value[PL_LAYOUT_KEYS][8];
    int able[PL_LAYOUT_KEYS]; /* layouts whose other keys leave this one a choice */
};

static void note(struct seen *s, const struct pl_layout *l, const struct pl_model *model)
{
    for (int i = 0; i < PL_LAYOUT_KEYS; i++) {
        int value = pl_layout_get(l, &pl_layout_keys[i]);
        struct pl_layout with = *l;

        pl_layout_set(&with, &pl_layout_keys[i], pl_layout_keys[i].standard + 1);
        pl_layout_canonical(&with, model);
        s->able[i] += pl_layout_get(&with, &pl_layout_keys[i]) == pl_layout_keys[i].standard + 1;
        s->value[i][value < 7 ? value : 7] = true;
    }
}

/* Importers read the stages that the exporters write, in whatever form that was, and what is in
 * host memory. */
static void comes_back(const struct world *x, const struct pl_layout *l, const char *target,
                       const char *text)
{
    struct tn_imported back;
    char words[160];
    struct err e = {0};

    if (!str_eq(target, "megatron") && !str_eq(target, "torchtitan") &&
        !str_eq(target, "deepspeed"))
        return;
    if (import_text(&back, target, text, l->world, &x->m, &e) < 0)
        fail_msg("%s of %s, %s: %s", target, x->m.name, pl_layout_text(words, l), e.text);
    if (back.layout.pp != l->pp || back.layout.vp != l->vp || back.layout.stages != l->stages ||
        back.layout.schedule != l->schedule)
        fail_msg("%s of %s, %s: pp %d vp %d stages %s schedule %d come back", target, x->m.name,
                 pl_layout_text(words, l), back.layout.pp, back.layout.vp,
                 pl_stages_text(back.layout.stages), back.layout.schedule);
    if (back.layout.offload_optimizer != l->offload_optimizer ||
        back.layout.offload_params != l->offload_params ||
        back.layout.offload_activations != l->offload_activations ||
        (l->dp * l->cp > 1 && back.layout.zero != l->zero))
        fail_msg("%s of %s, %s: zero %d offload %d %d %d come back", target, x->m.name,
                 pl_layout_text(words, l), back.layout.zero, back.layout.offload_optimizer,
                 back.layout.offload_params, back.layout.offload_activations);
}

/* One numbered set of files a layout, where PT_EXPORTS says. */
static void keep(const struct tn_export_in *in)
{
    static int number;
    const char *dir = getenv("PT_EXPORTS");

    if (dir)
        files_write(dir, number++, in, false);
}

static void export_all(const struct world *x, const struct pl_layout *l, const char *const *target)
{
    struct tn_export_in in = {
        .model = &x->m,
        .cluster = &x->c,
        .layout = l,
        .workload = &x->w,
        .campaign = "k3v9qw2m",
        .campaign_name = "drawn",
        .tokens_per_s = NAN,
        .lo = NAN,
        .hi = NAN,
        .date = "2026-03-01T09:30:00.000Z",
    };

    keep(&in);
    for (; *target; target++) {
        AUTO_FREE char *text = NULL;
        struct tn_findings lost;
        const char *type;
        char words[160];
        struct err e = {0};

        if (tn_export(&text, &type, &lost, *target, &in, false, &e) < 0)
            fail_msg("trainer %s, %s, %s: %s", x->t->name, x->m.name, pl_layout_text(words, l),
                     e.text);
        assert_int_equal(lost.count, 0);
        comes_back(x, l, *target, text);
    }
}

/* The models of memory and time know every legal layout, too. */
static void is_modeled(const struct world *x, const struct pl_layout *l)
{
    struct pl_memory memory;
    struct pl_cost cost;

    pl_memory_worst(&memory, problem_of(x), l);
    pl_cost(&cost, problem_of(x), l);
    assert_true(isfinite(cost.tokens_per_s) && cost.tokens_per_s > 0);
}

/* WANTED legal layouts of one model, or fewer where TRIES drawn ones for each have no more. */
static int of_model(const struct world *x, size_t o, struct rng *r, int wanted, struct seen *seen)
{
    int found = 0;

    for (int64_t i = 0; i < (int64_t)TRIES * (found ? wanted : 1) && found < wanted; i++) {
        struct pl_layout l;

        draw(&l, x, r);
        if (!pl_layout_check(NULL, problem_of(x), &l))
            continue;
        found++;
        note(seen, &l, &x->m);
        export_all(x, &l, own[o].target);
        if (found <= EACH)
            is_modeled(x, &l);
    }
    return found;
}

/* How many values of KEY were met. */
static int met(const struct seen *s, const char *key)
{
    const struct pl_layout_key *k = pl_layout_key_find(key);
    int n = 0;

    for (int i = 0; i < 8; i++)
        n += s->value[k - pl_layout_keys][i];
    return n;
}

static bool is_without(size_t o, const char *model)
{
    for (size_t i = 0; i < ARRAY_LEN(own[o].without); i++)
        if (str_eq(own[o].without[i], model))
            return true;
    return false;
}

/* So many layouts leave KEY a choice that another value than the standard must have been met. */
static int many(enum pl_key key)
{
    return pl_layout_keys[key].max - pl_layout_keys[key].min < 15 ? MANY : MANY_SIZES;
}

static void every_legal_layout_is_exported_without_loss(void **state)
{
    const char *seed = getenv("PT_SEED");
    int wanted = getenv("PT_LONG") ? EACH_LONG : EACH;
    struct rng r;

    (void)state;
    seed = seed ? seed : "20260821";
    print_message("# PT_SEED=%s\n", seed);
    rng_seed(&r, strtoull(seed, NULL, 10));
    for (size_t o = 0; o < ARRAY_LEN(own); o++) {
        struct seen seen = {0};
        int layouts = 0;

        for (size_t i = 0; i < ARRAY_LEN(models); i++) {
            struct world x;
            int found;

            open_world(&x, models[i], own[o].cluster, own[o].trainer);
            found = of_model(&x, o, &r, wanted, &seen);
            layouts += found;
            assert_int_equal(found, is_without(o, x.m.name) ? 0 : wanted);
            print_message("# %s, %s: %d\n", own[o].trainer, x.m.name, found);
        }
        print_message("# %s: %d layouts\n", own[o].trainer, layouts);
        /* what every one of these trainers can do was met */
        assert_true(met(&seen, "tp") > 2 && met(&seen, "ep") > 2 && met(&seen, "micro_batch") > 2);
        for (int i = 0; i < PL_PRECISIONS; i++)
            assert_int_equal(
                seen.value[PL_KEY_PRECISION][i],
                pl_trainer_takes(pl_trainer_find(own[o].trainer), PL_KEY_PRECISION, i));
        assert_int_equal(met(&seen, "overlap_grad_reduce"), 2);
        for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) /* options among them */
            if (pl_layout_keys[key].part == PL_OPTION && seen.able[key] > many(key) &&
                pl_trainer_takes(pl_trainer_find(own[o].trainer), key, 2) &&
                met(&seen, pl_layout_keys[key].name) < 2)
                fail_msg("%s: one value of %s", own[o].trainer, pl_layout_keys[key].name);
    }
}

/* What the targets have no word for is refused by the key, the trainer's name with it. */
static void what_a_trainer_cannot_run_is_refused_by_key_and_trainer(void **state)
{
    static const struct {
        const char *trainer, *model, *layout, *key, *text;
    } row[] = {
        {"megatron", "mixtral-8x7b", "{'ep':2,'zero':1,'zero_scope':'plain','micro_batch':1}",
         "zero_scope", "trainer megatron does not support zero_scope plain"},
        {"megatron", "llama-8b", "{'pp':2,'micro_batch':1,'overlap_p2p':1}", "overlap_p2p",
         "trainer megatron does not support overlap_p2p 1 with vp 1: pipeline sends overlap only "
         "when interleaved"},
        {"megatron", "llama-8b", "{'pp':2,'vp':2,'micro_batch':1,'overlap_p2p':0}", "overlap_p2p",
         "trainer megatron does not support overlap_p2p 0 with pp 2 and vp 2: it always overlaps "
         "there"},
        {"torchtitan", "llama-8b", "{'zero':1,'micro_batch':1,'overlap_grad_reduce':1}", "zero",
         "trainer torchtitan does not support zero 1: it shards gradients too"},
        {"torchtitan", "llama-8b", "{'pp':2,'schedule':'zero-bubble','micro_batch':1}", "schedule",
         "trainer torchtitan does not support schedule zero-bubble"},
        {"torchtitan", "llama-8b", "{'micro_batch':1}", "overlap_grad_reduce",
         "trainer torchtitan does not support overlap_grad_reduce 0: FSDP always overlaps"},
        {"torchtitan", "mixtral-8x7b", "{'tp':2,'sp':1,'zero':2,'micro_batch':1}", "etp",
         "trainer torchtitan does not support etp 1 with ep 1 and tp 2: it uses 2"},
        {"torchtitan", "llama-8b", "{'world':4,'pp':4,'micro_batch':48}", "micro_batch",
         "trainer torchtitan does not support 2 micro-batches with pp 4: schedule 1f1b needs at "
         "least one a stage, gpipe does not"},
        {"deepspeed", "llama-8b", "{'pp':2,'micro_batch':1}", "pp",
         "trainer deepspeed does not support pp > 1"},
        {"deepspeed", "llama-8b", "{'tp':2,'sp':1,'micro_batch':1}", "sp",
         "trainer deepspeed does not support sp 1"},
        {"deepspeed", "llama-8b", "{'micro_batch':1,'recompute':'full'}", "recompute",
         "trainer deepspeed does not support recompute full"},
        {"deepspeed", "llama-8b", "{'micro_batch':1,'overlap_grad_reduce':1}",
         "overlap_grad_reduce",
         "trainer deepspeed does not support overlap_grad_reduce 1 with zero 0"},
        {"deepspeed", "llama-8b", "{'micro_batch':1,'threads':2}", "threads",
         "trainer deepspeed does not support threads > 1"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        AUTO_JSON *v = unit_json(row[i].layout);
        struct pl_verdict verdict;
        struct pl_layout l;
        struct world x;
        struct err e = {0};
        bool said = false;
        char all[1024];

        open_world(&x, row[i].model, "dgx-h100", row[i].trainer);
        assert_int_equal(pl_layout_parse(&l, v, problem_of(&x), &e), 0);
        assert_false(pl_layout_check(&verdict, problem_of(&x), &l));
        for (int k = 0; k < verdict.count; k++)
            said |= !strcmp(verdict.v[k].rule, "trainer-supports") &&
                    !strcmp(verdict.v[k].key, row[i].key) &&
                    !strcmp(verdict.v[k].text, row[i].text);
        if (!said)
            fail_msg("%s: %s", row[i].text, pl_verdict_text(all, sizeof(all), &verdict));
    }
}

/* What keeps one schedule of torchtitan from few micro-batches does not keep the other. */
static void gpipe_takes_fewer_micro_batches_than_stages(void **state)
{
    AUTO_JSON *v = unit_json("{'world':4,'pp':4,'micro_batch':48,'schedule':'gpipe'}");
    struct pl_verdict verdict;
    struct pl_layout l;
    struct world x;
    struct err e = {0};
    char all[1024];

    (void)state;
    open_world(&x, "llama-8b", "dgx-h100", "torchtitan");
    assert_int_equal(pl_layout_parse(&l, v, problem_of(&x), &e), 0);
    if (!pl_layout_check(&verdict, problem_of(&x), &l))
        fail_msg("%s", pl_verdict_text(all, sizeof(all), &verdict));
    export_all(&x, &l, own[2].target);
}

/* What a trainer does by itself need not be said; what is said is judged. */
static void what_a_trainer_always_does_may_be_left_out(void **state)
{
    struct world x;
    struct pl_layout l;
    struct err e = {0};
    AUTO_JSON *silent = unit_json("{'world':8,'tp':2,'zero':2}");
    AUTO_JSON *said = unit_json("{'world':8,'tp':2,'zero':2,'overlap_grad_reduce':0}");

    (void)state;
    open_world(&x, "mixtral-8x7b", "dgx-h100", "torchtitan");
    assert_int_equal(pl_layout_parse(&l, silent, problem_of(&x), &e), 0);
    pl_layout_unsaid(&l, silent, problem_of(&x));
    assert_int_equal(l.overlap_grad_reduce + l.overlap_param_gather, 2);
    assert_int_equal(l.etp, 2);
    assert_int_equal(l.edp, 4);
    assert_int_equal(pl_layout_parse(&l, said, problem_of(&x), &e), 0);
    pl_layout_unsaid(&l, said, problem_of(&x));
    assert_int_equal(l.overlap_grad_reduce, 0);
}

/* And every model has a layout to begin with. */
static void every_trainer_has_a_baseline(void **state)
{
    static const char *const model[] = {"llama-8b", "mixtral-8x7b"};

    (void)state;
    for (size_t o = 1; o < ARRAY_LEN(own); o++)
        for (size_t i = 0; i < ARRAY_LEN(model); i++) {
            struct world x;
            struct pl_layout l;
            struct err e = {0};

            open_world(&x, model[i], "dgx-h100", own[o].trainer);
            x.c.nodes = 4;
            for (int rule = PL_BASELINE_DEFAULT; rule <= PL_BASELINE_NAIVE; rule++) {
                if (pl_baseline(&l, NULL, problem_of(&x), (enum pl_baseline_rule)rule, 0, 0.1, &e) <
                    0)
                    fail_msg("%s %s: %s", own[o].trainer, model[i], e.text);
                export_all(&x, &l, own[o].target);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_legal_layout_is_exported_without_loss),
        cmocka_unit_test(what_a_trainer_cannot_run_is_refused_by_key_and_trainer),
        cmocka_unit_test(gpipe_takes_fewer_micro_batches_than_stages),
        cmocka_unit_test(what_a_trainer_always_does_may_be_left_out),
        cmocka_unit_test(every_trainer_has_a_baseline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
