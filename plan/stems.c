/*
 * The stems of a space: which there are, how good each is by a few of its leaves, and climbs from
 * those (climb.h). Memory: up to STEMS stems of 64 bytes.
 */
#include "plan/ranking.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/baseline.h"
#include "plan/climb.h"

enum { STEMS = 1 << 18, ASKED = 64, CLIMBS = 16, WIDE = 4096 };

/* Shares of the patience after which finding the stems, trying them, and climbing end; and climbing
 * where nothing fits yet, since no walk finds what a climb from the baseline does not. */
static const double FINDING = 0.3, TRYING = 0.6, CLIMBING = 0.8, CLIMBING_ONLY = 0.95;

void pl_stem_layout(struct pl_layout *ret, const struct pl_ranking *ranking,
                    const struct pl_stem *stem)
{
    pl_layout_default(ret, ranking->problem->workload);
    for (size_t i = 0; i < PL_STEM_KEYS; i++)
        pl_layout_set(ret, &pl_layout_keys[pl_space_order[i]], stem->value[i]);
    pl_layout_derive(ret);
}

static void pack(struct pl_stem *ret, const struct pl_layout *layout, uint64_t hash)
{
    *ret = (struct pl_stem){.hash = hash};
    for (size_t i = 0; i < PL_STEM_KEYS; i++)
        ret->value[i] = pl_layout_get(layout, &pl_layout_keys[pl_space_order[i]]);
}

/* ---- which there are ----------------------------------------------------- */

static void thin(struct pl_ranking *ranking)
{
    size_t n = 0;

    ranking->bound /= 2;
    for (size_t i = 0; i < ranking->n; i++)
        if (ranking->stem[i].hash <= ranking->bound)
            ranking->stem[n++] = ranking->stem[i];
    ranking->n = n;
}

static bool keep(void *arg, const struct pl_layout *layout)
{
    struct pl_ranking *r = arg;
    uint64_t hash = rng_mix(r->number++);

    while (r->n == STEMS)
        thin(r);
    if (hash <= r->bound) {
        MEM_GROW(r->stem, r->n, r->cap);
        pack(&r->stem[r->n++], layout, hash);
    }
    return r->number % (ASKED * ASKED) || pl_ranking_spent(r) < FINDING;
}

bool pl_stems_are_whole(const struct pl_ranking *ranking)
{
    return ranking->bound == UINT64_MAX;
}

bool pl_stem_was_left(struct pl_ranking *ranking)
{
    return rng_mix(ranking->number++) > ranking->bound;
}

bool pl_stems_find(struct pl_ranking *ranking, const struct pl_patience *patience)
{
    return pl_space_stems(NULL, ranking->space, ranking->problem, patience, keep, ranking);
}

/* ---- by what they are tried ---------------------------------------------- */

static void fix(struct pl_space_axis *axis, int value)
{
    axis->value[0] = value;
    axis->n = 1;
}

static bool offloads(enum pl_key key)
{
    return key == PL_KEY_OFFLOAD_OPT || key == PL_KEY_OFFLOAD_PARAMS || key == PL_KEY_OFFLOAD_ACT;
}

/* Options as a layout has them that does not name them, else the first that is listed. LEAN: what
 * moves to the host's memory may do so as far as it goes; false if nothing may. */
static bool fix_options(struct pl_space *space, bool lean)
{
    bool moves = false;

    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        struct pl_space_axis *axis = &space->axis[key];
        int value = axis->value[0], most = axis->value[axis->n ? axis->n - 1 : 0];

        if (pl_layout_keys[key].part != PL_OPTION || axis->n < 2)
            continue;
        for (int i = 0; i < axis->n; i++)
            if (axis->value[i] == pl_layout_keys[key].standard)
                value = axis->value[i];
        fix(axis, value);
        if (!lean || !offloads(key) || most == value)
            continue;
        axis->value[axis->n++] = most;
        moves = true;
    }
    return moves;
}

/* ALL with the leaves that a stem is tried by: no sharding or most of it, all that overlaps.
 * Freed by the caller. */
static struct pl_space *narrowed(const struct pl_space *all)
{
    struct pl_space *space = mem_alloc(sizeof(*space));
    struct pl_space_axis *zero = &space->axis[PL_KEY_ZERO],
                         *scope = &space->axis[PL_KEY_ZERO_SCOPE];

    *space = *all;
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++) {
        struct pl_space_axis *axis = &space->axis[key];
        bool flag = pl_layout_keys[key].part == PL_LEAF && pl_layout_keys[key].max == 1;

        if (flag || key == PL_KEY_THREADS)
            fix(axis, axis->value[axis->n - 1]);
    }
    if (zero->n > 2) {
        zero->value[1] = zero->value[zero->n - 1];
        zero->n = 2;
    }
    if (scope->n > 1 && scope->value[0] == PL_SCOPE_NONE)
        scope->n = 2;
    return space;
}

static bool is_wide(const struct pl_space *space)
{
    double leaves = 1;

    for (size_t i = PL_STEM_KEYS; i < PL_WALK_KEYS; i++)
        leaves *= space->axis[pl_space_order[i]].n;
    return leaves > WIDE;
}

void pl_stems_begin(struct pl_ranking *ranking)
{
    ranking->bound = UINT64_MAX;
    if (ranking->problem->cluster->parts) {
        ranking->parts = pl_parts_ctx_new(ranking->problem, ranking->headroom);
    } else {
        ranking->cost = pl_cost_ctx_new(ranking->problem, NULL);
        ranking->memory = pl_memory_ctx_new(ranking->problem);
    }
    ranking->wide = is_wide(ranking->space);
    ranking->few = narrowed(ranking->space);
    ranking->lean = narrowed(ranking->space);
    if (!fix_options(ranking->lean, true)) {
        free(ranking->lean);
        ranking->lean = NULL;
    }
    fix_options(ranking->few, false);
}

void pl_stems_done(struct pl_ranking *ranking)
{
    free(ranking->few);
    free(ranking->lean);
    pl_memory_ctx_free(ranking->memory);
    pl_cost_ctx_free(ranking->cost);
    pl_parts_ctx_free(ranking->parts);
    free(ranking->stem);
}

/* ---- how good they are --------------------------------------------------- */

static bool try_leaf(void *arg, const struct pl_layout *layout)
{
    struct pl_ranking *r = arg;
    struct pl_plan_entry one = {.layout = *layout};

    if (!pl_ranking_price(r, &one))
        return true;
    pl_ranking_note_batch(r, &one);
    if (pl_ranking_worth(r, &one) > r->best) {
        r->best = pl_ranking_worth(r, &one);
        r->leaf = *layout;
    }
    return true;
}

static int by_hash(const void *left, const void *right)
{
    const struct pl_stem *a = left, *b = right;

    return (a->hash > b->hash) - (a->hash < b->hash);
}

static int by_rate(const void *left, const void *right)
{
    const struct pl_stem *a = left, *b = right;

    return a->rate != b->rate ? (a->rate < b->rate) - (a->rate > b->rate) : by_hash(left, right);
}

/* Without a stem there is no array, which qsort() must not be given. */
static void sort_stems(struct pl_ranking *ranking, int (*order)(const void *, const void *))
{
    if (ranking->n)
        qsort(ranking->stem, ranking->n, sizeof(*ranking->stem), order);
}

void pl_stems_shuffle(struct pl_ranking *ranking)
{
    sort_stems(ranking, by_hash);
}

static double worth_of_stem(void *arg, const struct pl_layout *stem)
{
    struct pl_ranking *r = arg;

    r->best = 0;
    pl_space_leaves(r->few, r->problem, stem, NULL, try_leaf, r);
    if (r->best <= 0 && r->lean)
        pl_space_leaves(r->lean, r->problem, stem, NULL, try_leaf, r);
    return r->best;
}

bool pl_stems_try(struct pl_ranking *ranking)
{
    size_t i = 0;

    pl_stems_shuffle(ranking);
    for (; i < ranking->n && (i % ASKED || pl_ranking_spent(ranking) < TRYING); i++) {
        struct pl_layout layout;

        pl_stem_layout(&layout, ranking, &ranking->stem[i]);
        ranking->stem[i].rate = (float)worth_of_stem(ranking, &layout);
    }
    sort_stems(ranking, by_rate);
    return i == ranking->n;
}

/* ---- climbs -------------------------------------------------------------- */

static bool climbing_is_over(void *arg)
{
    struct pl_ranking *r = arg;

    return ++r->asked % ASKED == 0 && pl_ranking_spent(r) >= r->climbing;
}

/* Climb from LAYOUT, and keep the stem where that leads to. */
static void climb_from(struct pl_ranking *ranking, struct pl_layout *layout)
{
    struct pl_stem top;
    double worth = pl_climb(layout, worth_of_stem(ranking, layout), ranking->space,
                            ranking->problem, worth_of_stem, climbing_is_over, ranking);
    size_t i = 0;

    pack(&top, layout, 0);
    while (i < ranking->n && memcmp(top.value, ranking->stem[i].value, sizeof(top.value)) != 0)
        i++;
    if (i == ranking->n) {
        MEM_GROW(ranking->stem, ranking->n, ranking->cap);
        ranking->stem[ranking->n++] = top;
    }
    ranking->stem[i].rate = (float)worth;
}

/* Does STEM have a degree of tp, cp, pp or ep that none of the N starts has? A climb changes two
 * keys at a time: it does not get from one of their values to another where memory or batch lie
 * between. */
static bool is_another_idea(const struct pl_ranking *ranking, const struct pl_stem *stem,
                            const struct pl_layout *start, size_t n)
{
    static const enum pl_key degrees[] = {PL_KEY_TP, PL_KEY_CP, PL_KEY_PP, PL_KEY_EP};
    struct pl_layout layout;

    pl_stem_layout(&layout, ranking, stem);
    for (size_t k = 0; k < ARRAY_LEN(degrees); k++) {
        const struct pl_layout_key *key = &pl_layout_keys[degrees[k]];
        size_t i = 0;

        while (i < n && pl_layout_get(&start[i], key) != pl_layout_get(&layout, key))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* The best stems that are ideas of their own. */
static size_t starts(struct pl_layout start[CLIMBS], const struct pl_ranking *ranking)
{
    size_t n = 0;

    for (size_t i = 0; i < ranking->n && n < CLIMBS && ranking->stem[i].rate > 0; i++)
        if (is_another_idea(ranking, &ranking->stem[i], start, n))
            pl_stem_layout(&start[n++], ranking, &ranking->stem[i]);
    return n;
}

/* The baselines that the space has. */
static size_t baselines(struct pl_layout start[CLIMBS], const struct pl_ranking *ranking)
{
    size_t n = 0;

    for (int rule = PL_BASELINE_DEFAULT; rule <= PL_BASELINE_NAIVE && !ranking->parts; rule++)
        n += pl_baseline_soon(&start[n], ranking->problem, (enum pl_baseline_rule)rule,
                              ranking->headroom, ranking->patience) == 0 &&
             pl_space_has(ranking->space, ranking->problem, &start[n]);
    return n;
}

void pl_stems_climb(struct pl_ranking *ranking)
{
    struct pl_layout start[CLIMBS];
    size_t n = starts(start, ranking);

    ranking->climbing = n ? CLIMBING : CLIMBING_ONLY;
    if (!n)
        n = baselines(start, ranking);
    for (size_t i = 0; i < n && pl_ranking_spent(ranking) < ranking->climbing; i++)
        climb_from(ranking, &start[i]);
    sort_stems(ranking, by_rate);
}

struct leaf_climb {
    struct pl_ranking *r;
    double until;
};

static double worth_of_leaf(void *arg, const struct pl_layout *leaf)
{
    struct leaf_climb *x = arg;
    struct pl_plan_entry one = {.layout = *leaf};

    if (!pl_ranking_price(x->r, &one))
        return 0;
    pl_ranking_note_batch(x->r, &one);
    return pl_ranking_worth(x->r, &one);
}

static bool leaf_climb_is_over(void *arg)
{
    struct leaf_climb *x = arg;

    return ++x->r->asked % ASKED == 0 && pl_ranking_spent(x->r) >= x->until;
}

bool pl_stem_best(struct pl_plan_entry *ret, struct pl_ranking *ranking, const struct pl_stem *stem,
                  double until)
{
    struct leaf_climb x = {ranking, until};
    struct pl_layout layout;

    pl_stem_layout(&layout, ranking, stem);
    if (worth_of_stem(ranking, &layout) <= 0)
        return false;
    *ret = (struct pl_plan_entry){.layout = ranking->leaf};
    pl_climb_leaves(&ret->layout, ranking->best, &layout, ranking->space, ranking->problem,
                    worth_of_leaf, leaf_climb_is_over, &x);
    return pl_ranking_price(ranking, ret);
}
