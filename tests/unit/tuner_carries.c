/*
 * No key of a layout is lost without a word: for every target, every key and every value that is
 * not the default, legal layouts that differ in that key (and what follows from it) give other
 * files, or the key is among the gaps. Layouts are drawn at random; PT_SEED draws others.
 */
#include "tests/unit/problem.h"
#include "tests/unit/unit.h"

#include <math.h>

#include "tuner/export/internal.h"

enum {
    DRAWN = 100000,
    VALUES = 4 /* of a key of many values all others count as one */
};

struct world {
    struct pl_model m;
    struct pl_cluster c;
    struct pl_workload w;
};

static void open_world(struct world *world, const char *model)
{
    AUTO_JSON *m = json_string(model);
    AUTO_JSON *c = unit_json("{'profile':'dgx-h100','nodes':2,'oversubscribe':true}");
    AUTO_JSON *w = unit_json("{'global_batch':[96, 192]}");
    struct err e = {0};

    if (pl_model_parse(&world->m, m, &e) < 0 || pl_cluster_parse(&world->c, c, NULL, &e) < 0 ||
        pl_workload_parse(&world->w, w, &world->m, pl_trainer_find("any"), &e) < 0)
        fail_msg("%s: %s %s", model, e.pointer, e.text);
}

static bool is_legal(const struct world *world, const struct pl_layout *layout)
{
    return pl_layout_check(NULL, problem_with(world, pl_trainer_find("any")), layout);
}

/* Every key from its own row: the default for most of them, else any of few values, or a small
 * degree. */
static void draw(struct pl_layout *ret, const struct world *world, struct rng *rng)
{
    static const int degree[] = {2, 2, 4, 3};

    pl_layout_default(ret, &world->w);
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        const struct pl_layout_key *row = &pl_layout_keys[key];
        int few = row->max - row->min + 1;

        if (row->part == PL_DERIVED || rng_below(rng, 3))
            continue;
        if (key == PL_KEY_GLOBAL_BATCH) {
            ret->global_batch = world->w.batch[rng_below(rng, (uint64_t)world->w.nbatches)];
            continue;
        }
        if (row->text) {
            ret->stages = (int)rng_below(rng, PL_STAGES_WORDS);
            continue;
        }
        pl_layout_set(ret, row,
                      few <= VALUES ? row->min + (int)rng_below(rng, (uint64_t)few)
                                    : degree[rng_below(rng, ARRAY_LEN(degree))]);
    }
    ret->world = ret->tp * ret->cp * ret->pp * (1 << rng_below(rng, 3));
    pl_layout_canonical(ret, &world->m);
}

/* WORKLOAD and LAYOUT become what an export is made from. */
static struct tn_export_in input(const struct world *world, struct pl_workload *workload,
                                 struct pl_layout *layout)
{
    *workload = world->w;
    pl_batch_settle(workload, layout);
    return (struct tn_export_in){
        .model = &world->m,
        .cluster = &world->c,
        .layout = layout,
        .workload = workload,
        .campaign = "k3v9qw2m",
        .campaign_name = "drawn",
        .tokens_per_s = NAN,
        .lo = NAN,
        .hi = NAN,
        .date = "2026-03-01T09:30:00.000Z",
    };
}

/* What the target reads: the body that it writes, without comments and lists of what is lost. False
 * where a rule of the target refuses the layout. */
static bool export_one(char **ret, struct tn_findings *ret_lost, const struct tn_exporter *target,
                       const struct world *world, const struct pl_layout *layout)
{
    struct pl_layout own = *layout;
    struct pl_workload workload;
    struct tn_export_in in = input(world, &workload, &own);
    AUTO_FREE char *whole = NULL;
    AUTO_STR body = {0};
    const char *type;

    if (tn_export(&whole, &type, ret_lost, target->name, &in, true, NULL) < 0)
        return false;
    target->write(&body, &in, &(struct tn_findings){0});
    *ret = str_take(&body);
    return true;
}

static bool names(const struct tn_findings *findings, const char *key)
{
    for (int i = 0; i < findings->count; i++)
        if (str_eq(findings->v[i].setting, key))
            return true;
    return false;
}

static bool loses_more(const struct tn_findings *left, const struct tn_findings *right)
{
    for (int i = 0; i < left->count; i++)
        if (!names(right, left->v[i].setting))
            return true;
    return false;
}

/* LAYOUT with the default of KEY, and what follows from that. */
static struct pl_layout without(const struct pl_layout *layout, const struct world *world,
                                enum pl_key key)
{
    struct pl_layout ret = *layout, standard;

    pl_layout_default(&standard, &(struct pl_workload){.precision = PL_FP32});
    standard.global_batch = world->w.global_batch;
    if (layout->zero)
        standard.zero_scope = PL_SCOPE_EP_AWARE;
    pl_layout_set(&ret, &pl_layout_keys[key], pl_layout_get(&standard, &pl_layout_keys[key]));
    if (key == PL_KEY_SCHEDULE) /* interleaved is what vp says */
        ret.vp = 1;
    if (ret.pp == 1)
        ret.vp = 1;
    if (ret.etp != 1)
        ret.etp = ret.tp;
    pl_layout_canonical(&ret, &world->m);
    return ret;
}

/* Exports met: by key and value; a value above the list is the last. */
struct met {
    int of[PL_LAYOUT_KEYS][VALUES];
    bool drawn[PL_LAYOUT_KEYS]; /* with another value than the default */
};

static void compare(struct met *met, const struct tn_exporter *target, const struct world *world,
                    const struct pl_layout *layout, enum pl_key key)
{
    const struct pl_layout_key *row = &pl_layout_keys[key];
    struct pl_layout plain = without(layout, world, key);
    int value = pl_layout_get(layout, row), slot = value < VALUES ? value : VALUES - 1;
    AUTO_FREE char *text = NULL;
    AUTO_FREE char *plain_text = NULL;
    struct tn_findings lost, plain_lost;
    const char *setting = key == PL_KEY_GLOBAL_BATCH ? "workload.global_batch" : row->name;
    char words[160];

    met->drawn[key] |= pl_layout_get(&plain, row) != value;
    if (pl_layout_get(&plain, row) == value || met->of[key][slot] > 20 || !is_legal(world, &plain))
        return;
    if (!export_one(&text, &lost, target, world, layout)) {
        met->of[key][slot] += names(&lost, row->name); /* refused by name */
        return;
    }
    if (!export_one(&plain_text, &plain_lost, target, world, &plain))
        return;
    met->of[key][slot]++;
    if (key == PL_KEY_SCHEDULE && value == PL_INTERLEAVED) /* what vp > 1 is called */
        setting = pl_layout_keys[PL_KEY_VP].name;
    /* Of a target that always does it the default is the gap, under its own name or that of what it
     * goes with. */
    if (!strcmp(text, plain_text) && !names(&lost, setting) && !loses_more(&plain_lost, &lost))
        fail_msg("%s drops %s %d of %s", target->name, row->name, value,
                 pl_layout_text(words, layout));
}

static void is_met(const struct met *met, const struct tn_exporter *target)
{
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        const struct pl_layout_key *row = &pl_layout_keys[key];
        int values = 0, few = row->max < VALUES;

        for (int value = 0; value < VALUES; value++)
            values += met->of[key][value] > 0;
        if (row->part == PL_DERIVED || key == PL_KEY_WORLD)
            continue;
        if (row->part == PL_OPTION && !met->drawn[key]) /* of models that are not among these */
            continue;
        if (values < (few ? row->max - row->min - (key == PL_KEY_ZERO_SCOPE) : 1))
            fail_msg("%s: %d values of %s were met", target->name, values, row->name);
    }
}

static void no_key_is_dropped_without_a_word(void **state)
{
    static const char *const models[] = {"mixtral-8x7b", "llama-8b"};
    const char *seed = getenv("PT_SEED");
    struct met met[16] = {0};
    struct rng rng;

    (void)state;
    seed = seed ? seed : "20261123";
    print_message("# PT_SEED=%s\n", seed);
    rng_seed(&rng, strtoull(seed, NULL, 10));
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct world world;

        open_world(&world, models[m]);
        for (int i = 0; i < DRAWN; i++) {
            struct pl_layout layout;

            draw(&layout, &world, &rng);
            if (!is_legal(&world, &layout))
                continue;
            for (size_t t = 0; tn_exporters()[t]; t++)
                for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++)
                    if (pl_layout_keys[key].part != PL_DERIVED && key != PL_KEY_WORLD)
                        compare(&met[t], tn_exporters()[t], &world, &layout, key);
        }
    }
    for (size_t t = 0; tn_exporters()[t]; t++)
        is_met(&met[t], tn_exporters()[t]);
}

/* The common path, on a target whose author remembered nothing. */
static void a_target_that_carries_nothing_names_every_key(void **state)
{
    static const char *const none[] = {NULL}, *const some[] = {"tp", "zero", NULL};
    struct pl_layout layout = {.world = 64,
                               .tp = 2,
                               .sp = 1,
                               .cp = 2,
                               .cp_comm = PL_CP_A2A,
                               .pp = 4,
                               .vp = 2,
                               .schedule = PL_INTERLEAVED,
                               .stages = PL_STAGES_BALANCED,
                               .ep = 2,
                               .etp = 2,
                               .dp = 4,
                               .edp = 4,
                               .zero = 1,
                               .zero_scope = PL_SCOPE_PLAIN,
                               .shard = 2,
                               .micro_batch = 2,
                               .recompute = PL_RECOMPUTE_FULL,
                               .overlap_grad_reduce = 1,
                               .overlap_param_gather = 1,
                               .overlap_p2p = 1,
                               .overlap_moe_a2a = 1,
                               .precision = PL_FP8,
                               .threads = 2};
    struct tn_exporter target = {.name = "new", .carries = none};
    struct tn_findings lost = {0};
    struct world world;
    struct pl_workload workload;
    struct tn_export_in in;

    (void)state;
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++)
        if (pl_layout_keys[key].max == 1 || pl_layout_keys[key].part == PL_OPTION)
            pl_layout_set(&layout, &pl_layout_keys[key],
                          pl_layout_keys[key].standard + 1); /* of keys to come, too */
    open_world(&world, "mixtral-8x7b");
    in = input(&world, &workload, &layout);
    layout.global_batch = 2; /* of a target that is not told */
    tn_finding_add(&lost, "cp", "the target's own words");
    tn_gap_uncarried(&lost, &in, &target);
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        const char *name = pl_layout_keys[key].name;
        bool follows = pl_layout_keys[key].part == PL_DERIVED || key == PL_KEY_WORLD ||
                       key == PL_KEY_SCHEDULE; /* interleaved is vp > 1 */

        if (names(&lost, name) == follows)
            fail_msg("%s is %s named", name, follows ? "" : "not");
    }
    assert_string_equal(lost.v[0].detail, "the target's own words");
    assert_string_equal(lost.v[1].detail, "new has no setting for tp 2");
    assert_int_equal(lost.count, PL_LAYOUT_KEYS - 4); /* cp once */

    lost = (struct tn_findings){0};
    target.carries = some;
    tn_gap_uncarried(&lost, &in, &target);
    assert_false(names(&lost, "tp") || names(&lost, "zero"));
    assert_true(names(&lost, "pp") && names(&lost, "recompute"));
}

static void carried_keys_are_keys(void **state)
{
    (void)state;
    for (const struct tn_exporter *const *target = tn_exporters(); *target; target++)
        for (const char *const *key = (*target)->carries; key && *key; key++)
            if (!pl_layout_key_find(*key))
                fail_msg("%s carries %s, which is no key", (*target)->name, *key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_key_is_dropped_without_a_word),
        cmocka_unit_test(a_target_that_carries_nothing_names_every_key),
        cmocka_unit_test(carried_keys_are_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
