/*
 * The best layouts of a whole space by the cost model, and why the others lose.
 *
 * A space may hold more layouts than there is time for. So its shapes (stems, space.h) are tried
 * first, each by a few leaves that sharding and overlap make likely winners, in an order that is
 * even over the space at any moment; then all leaves of the shapes, those first that did best. The
 * list does not depend on that order: what is done is the same as by one walk, if there is time.
 * Without the time to find and try all shapes, the best that were tried, or the baseline where none
 * fits, are where a climb (climb.h) to better ones starts.
 * Memory: up to STEMS stems of 64 bytes.
 */
#include "plan/space_walk.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/baseline.h"
#include "plan/climb.h"
#include "plan/legal.h"

static const double GIB = 1 << 30;

enum { STEMS = 1 << 18, ASKED = 64, CLIMBS = 4 };

/* Shares of the patience after which finding the stems, trying them, and climbing end. */
static const double FINDING = 0.3, TRYING = 0.6, CLIMBING = 0.8;

struct stem {
    uint64_t hash;
    int value[PL_STEM_KEYS]; /* of the first keys of the walk */
    float rate; /* of its best layout that was tried; 0: none fits, or it was not tried */
};

struct ranking {
    const struct pl_space *space;
    const struct pl_problem *problem;
    const struct pl_patience *patience;
    struct pl_cost_ctx *cost;
    struct pl_memory_ctx *memory;
    struct pl_plan *plan;
    size_t room;  /* of the list */
    bool fold;    /* a family is one entry */
    double limit; /* bytes */
    bool per_device;
    size_t asked;
    bool over;
    /* stems */
    struct stem *stem;
    size_t n, cap;
    uint64_t bound, number; /* kept while hash <= bound; number of the next one */
    double best;            /* of the stem that is tried */
    struct pl_space *few;   /* the space with the leaves that stems are tried by */
};

/* ---- the list ------------------------------------------------------------ */

static double worth(const struct ranking *ranking, const struct pl_plan_entry *one)
{
    return ranking->per_device ? one->cost.tokens_per_s / pl_layout_devices(&one->layout)
                               : one->cost.tokens_per_s;
}

/* One order for all layouts, whatever the order in which they come. */
static bool before(const struct ranking *ranking, const struct pl_plan_entry *left,
                   const struct pl_plan_entry *right)
{
    double x = worth(ranking, left), y = worth(ranking, right);

    return x > y || (!(x < y) && pl_space_compare(&left->layout, &right->layout) < 0);
}

/* Layouts that differ in a key that changes nothing here, such as selective recompute where
 * attention keeps no scores: the model cannot tell them apart. */
static bool is_equivalent(const struct pl_plan_entry *left, const struct pl_plan_entry *right)
{
    return !(left->cost.total < right->cost.total) && !(left->cost.total > right->cost.total) &&
           !(left->memory.total < right->memory.total) &&
           !(left->memory.total > right->memory.total) &&
           left->layout.world == right->layout.world &&
           left->layout.global_batch == right->layout.global_batch;
}

/* In these keys the variants of one idea differ. */
static bool is_flag(enum pl_key key)
{
    return pl_layout_keys[key].max == 1 || key == PL_KEY_ZERO_SCOPE;
}

static bool is_family(const struct pl_plan_entry *left, const struct pl_plan_entry *right)
{
    for (int key = 0; key < PL_LAYOUT_KEYS; key++)
        if (!is_flag(key) && pl_layout_get(&left->layout, &pl_layout_keys[key]) !=
                                 pl_layout_get(&right->layout, &pl_layout_keys[key]))
            return false;
    return true;
}

/* The listed entry that also represents ONE; the end of the list where there is none. */
static size_t like(const struct ranking *ranking, const struct pl_plan_entry *one)
{
    size_t i = 0;

    while (i < ranking->plan->n && !(ranking->fold ? is_family(&ranking->plan->at[i], one)
                                                   : is_equivalent(&ranking->plan->at[i], one)))
        i++;
    return i;
}

/* Entries are kept sorted: there is ROOM for few, and most layouts do not reach the list. */
static void enter(struct ranking *ranking, struct pl_plan_entry *one)
{
    struct pl_plan *plan = ranking->plan;
    const struct pl_plan_entry *last = &plan->at[plan->n - (plan->n > 0)];
    size_t i;

    if (plan->n == ranking->room && worth(ranking, one) < worth(ranking, last))
        return;
    i = like(ranking, one);
    if (i < plan->n && !before(ranking, one, &plan->at[i])) {
        plan->at[i].equivalents++;
        return;
    }
    if (i < plan->n)
        one->equivalents = plan->at[i].equivalents + 1;
    else if (plan->n == ranking->room && !before(ranking, one, last))
        return;
    else
        i = plan->n < ranking->room ? plan->n++ : plan->n - 1;
    for (; i > 0 && before(ranking, one, &plan->at[i - 1]); i--)
        plan->at[i] = plan->at[i - 1];
    plan->at[i] = *one;
}

/* Keep ONE, which fits, if it is the best of its batch, where there are several. */
static void note_batch(struct ranking *ranking, const struct pl_plan_entry *one)
{
    struct pl_plan *plan = ranking->plan;

    for (size_t i = 0; plan && i < plan->nbatches; i++)
        if (ranking->problem->workload->batch[i] == one->layout.global_batch &&
            (plan->batch[i].cost.total <= 0 || before(ranking, one, &plan->batch[i])))
            plan->batch[i] = *one;
}

static void note_smallest(struct pl_plan *plan, const struct pl_plan_entry *one)
{
    double least = plan->smallest_bytes, bytes = one->memory.total;

    if (least > 0 && (bytes > least ||
                      (!(bytes < least) && pl_space_compare(&one->layout, &plan->smallest) >= 0)))
        return;
    plan->smallest_bytes = bytes;
    plan->smallest = one->layout;
}

static double share_gone(const struct ranking *ranking)
{
    return ranking->patience ? ranking->patience->spent(ranking->patience->arg) : 0;
}

/* False when patience is over. */
static bool consider(void *arg, const struct pl_layout *layout)
{
    struct ranking *r = arg;
    struct pl_plan_entry one = {.layout = *layout};

    r->plan->legal++;
    pl_memory_at(&one.memory, r->memory, layout);
    if (one.memory.total > r->limit) {
        note_smallest(r->plan, &one);
    } else {
        r->plan->fitting++;
        if (r->room) {
            pl_cost_at(&one.cost, r->cost, layout);
            note_batch(r, &one);
            enter(r, &one);
        }
    }
    if (++r->asked % ASKED == 0)
        r->over = share_gone(r) >= 1;
    return !r->over;
}

/* ---- stems --------------------------------------------------------------- */

static void unpack(struct pl_layout *ret, const struct ranking *ranking, const struct stem *stem)
{
    pl_layout_default(ret, ranking->problem->workload);
    for (size_t i = 0; i < PL_STEM_KEYS; i++)
        pl_layout_set(ret, &pl_layout_keys[pl_space_order[i]], stem->value[i]);
    pl_layout_derive(ret);
}

static void pack(struct stem *ret, const struct pl_layout *layout, uint64_t hash)
{
    *ret = (struct stem){.hash = hash};
    for (size_t i = 0; i < PL_STEM_KEYS; i++)
        ret->value[i] = pl_layout_get(layout, &pl_layout_keys[pl_space_order[i]]);
}

static void thin(struct ranking *ranking)
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
    struct ranking *r = arg;
    uint64_t hash = rng_mix(r->number++);

    while (r->n == STEMS)
        thin(r);
    if (hash <= r->bound) {
        MEM_GROW(r->stem, r->n, r->cap);
        pack(&r->stem[r->n++], layout, hash);
    }
    return r->number % (ASKED * ASKED) || share_gone(r) < FINDING;
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

        if (!flag && key != PL_KEY_THREADS)
            continue;
        axis->value[0] = axis->value[axis->n - 1];
        axis->n = 1;
    }
    if (zero->n > 2) {
        zero->value[1] = zero->value[zero->n - 1];
        zero->n = 2;
    }
    if (scope->n > 1 && scope->value[0] == PL_SCOPE_NONE)
        scope->n = 2;
    return space;
}

static bool try_leaf(void *arg, const struct pl_layout *layout)
{
    struct ranking *r = arg;
    struct pl_plan_entry one = {.layout = *layout};

    pl_memory_at(&one.memory, r->memory, layout);
    if (one.memory.total > r->limit)
        return true;
    pl_cost_at(&one.cost, r->cost, layout);
    note_batch(r, &one);
    r->best = fmax(r->best, worth(r, &one));
    return true;
}

static int by_hash(const void *left, const void *right)
{
    const struct stem *a = left, *b = right;

    return (a->hash > b->hash) - (a->hash < b->hash);
}

static int by_rate(const void *left, const void *right)
{
    const struct stem *a = left, *b = right;

    return a->rate != b->rate ? (a->rate < b->rate) - (a->rate > b->rate) : by_hash(left, right);
}

/* Without a stem there is no array, which qsort() must not be given. */
static void sort_stems(struct ranking *ranking, int (*order)(const void *, const void *))
{
    if (ranking->n)
        qsort(ranking->stem, ranking->n, sizeof(*ranking->stem), order);
}

static double worth_of_stem(void *arg, const struct pl_layout *stem)
{
    struct ranking *r = arg;

    r->best = 0;
    pl_space_leaves(r->few, r->problem, stem, try_leaf, r);
    return r->best;
}

/* False if there was no time to try all. */
static bool try_stems(struct ranking *ranking)
{
    size_t i = 0;

    sort_stems(ranking, by_hash);
    for (; i < ranking->n && (i % ASKED || share_gone(ranking) < TRYING); i++) {
        struct pl_layout layout;

        unpack(&layout, ranking, &ranking->stem[i]);
        ranking->stem[i].rate = (float)worth_of_stem(ranking, &layout);
    }
    sort_stems(ranking, by_rate);
    return i == ranking->n;
}

static bool climbing_is_over(void *arg)
{
    struct ranking *r = arg;

    return ++r->asked % ASKED == 0 && share_gone(r) >= CLIMBING;
}

/* Climb from LAYOUT, and keep the stem where that leads to. */
static void climb_from(struct ranking *ranking, struct pl_layout *layout)
{
    struct stem top;
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

static void climb(struct ranking *ranking)
{
    struct stem start[CLIMBS];
    struct pl_layout layout;
    size_t n = 0;
    struct err e;

    while (n < CLIMBS && n < ranking->n && ranking->stem[n].rate > 0) {
        start[n] = ranking->stem[n];
        n++;
    }
    if (!n && pl_baseline(&layout, NULL, ranking->problem, PL_BASELINE_NAIVE, 0, 0, &e) == 0 &&
        pl_space_has(ranking->space, ranking->problem, &layout))
        climb_from(ranking, &layout);
    for (size_t i = 0; i < n && share_gone(ranking) < CLIMBING; i++) {
        unpack(&layout, ranking, &start[i]);
        climb_from(ranking, &layout);
    }
    sort_stems(ranking, by_rate);
}

/* A stem may have many leaves and no legal one, so that consider() never asks. False when patience
 * is over. */
static bool consider_leaves(struct ranking *ranking, const struct pl_layout *stem)
{
    pl_space_leaves(ranking->space, ranking->problem, stem, consider, ranking);
    ranking->over = ranking->over || share_gone(ranking) >= 1;
    return !ranking->over;
}

/* Leaves of a stem that was not kept. */
static bool consider_other(void *arg, const struct pl_layout *layout)
{
    struct ranking *r = arg;

    return rng_mix(r->number++) <= r->bound || consider_leaves(r, layout);
}

static void look_by_stems(struct ranking *ranking)
{
    bool all =
        pl_space_stems(NULL, ranking->space, ranking->problem, ranking->patience, keep, ranking);

    if (!try_stems(ranking) || !all)
        climb(ranking);
    for (size_t i = 0; i < ranking->n && !ranking->over; i++) {
        struct pl_layout layout;

        unpack(&layout, ranking, &ranking->stem[i]);
        consider_leaves(ranking, &layout);
    }
    ranking->number = 0;
    if (!ranking->over && all && ranking->bound != UINT64_MAX)
        all = pl_space_stems(NULL, ranking->space, ranking->problem, ranking->patience,
                             consider_other, ranking);
    ranking->plan->exact = all && !ranking->over;
    free(ranking->stem);
}

/* ---- families ------------------------------------------------------------ */

struct family {
    struct ranking *r;
    size_t n;
    double worst;
};

static bool count_member(void *arg, const struct pl_layout *layout)
{
    struct family *f = arg;
    struct pl_plan_entry one = {.layout = *layout};

    pl_memory_at(&one.memory, f->r->memory, layout);
    if (one.memory.total > f->r->limit)
        return true;
    pl_cost_at(&one.cost, f->r->cost, layout);
    f->worst = f->n++ ? fmin(f->worst, one.cost.tokens_per_s) : one.cost.tokens_per_s;
    return true;
}

/* All members of the family of HEAD that fit, HEAD among them. */
static struct family members_of(struct ranking *ranking, const struct pl_layout *head)
{
    AUTO_FREE struct pl_space *few = mem_alloc(sizeof(*few));
    struct family f = {.r = ranking};

    *few = *ranking->space;
    for (int key = 0; key < PL_LAYOUT_KEYS; key++) {
        struct pl_space_axis *axis = &few->axis[key];

        if (is_flag(key) || axis->n == 0)
            continue;
        axis->value[0] = pl_layout_get(head, &pl_layout_keys[key]);
        axis->n = 1;
    }
    pl_space_enumerate(few, ranking->problem, count_member, &f);
    return f;
}

/* The list becomes TOP families at most. One that the model cannot tell from a listed one goes,
 * with all its members: each is the equivalent of a variant there. */
static void settle_families(struct ranking *ranking, size_t top)
{
    struct pl_plan *plan = ranking->plan;
    size_t n = 0;

    for (size_t i = 0; i < plan->n; i++) {
        struct pl_plan_entry *one = &plan->at[i];
        struct family f;
        size_t k = 0;

        while (k < n && !is_equivalent(&plan->at[k], one))
            k++;
        if (k == n && n == top)
            break;
        f = members_of(ranking, &one->layout);
        if (k < n) {
            plan->at[k].equivalents += f.n;
            continue;
        }
        plan->at[n] = *one;
        plan->at[n].equivalents = 0;
        plan->at[n].variants = f.n - 1;
        plan->at[n++].worst = f.worst;
    }
    plan->n = n;
    plan->families = true;
}

/* ---- short lists --------------------------------------------------------- */

struct shortlist {
    struct pl_layout *at;
    size_t n, cap, most;
    uint64_t bound, number; /* of the leaves that come, those whose hash is in bound are taken */
    size_t seen;
};

static bool take_leaf(void *arg, const struct pl_layout *layout)
{
    struct shortlist *x = arg;

    x->seen++;
    if (rng_mix(x->number++) > x->bound)
        return true;
    if (x->n == x->most)
        return false;
    MEM_GROW(x->at, x->n, x->cap);
    x->at[x->n++] = *layout;
    return true;
}

static int by_walk(const void *left, const void *right)
{
    return pl_space_compare(left, right);
}

/* An even sample of the leaves of the stems from FIRST on, about as many as there is room for. */
static void sample_rest(struct shortlist *shortlist, const struct ranking *ranking, size_t first)
{
    double each = first ? (double)shortlist->seen / (double)first : 64;
    double share =
        (double)(shortlist->most - shortlist->n) / (each * (double)(ranking->n - first) + 1);

    shortlist->bound = share < 1 ? (uint64_t)(share * 0x1p64) : UINT64_MAX;
    for (size_t i = first; i < ranking->n && shortlist->n < shortlist->most; i++) {
        struct pl_layout layout;

        unpack(&layout, ranking, &ranking->stem[i]);
        pl_space_leaves(ranking->space, ranking->problem, &layout, take_leaf, shortlist);
    }
}

int pl_plan_shortlist(struct pl_layout **ret, size_t *ret_count, size_t most, double best,
                      const struct pl_space *space, const struct pl_problem *problem,
                      double headroom, bool per_device, const struct pl_patience *patience,
                      struct err *error)
{
    struct ranking r = {.space = space,
                        .problem = problem,
                        .limit = pl_memory_offered(problem->cluster, headroom),
                        .per_device = per_device,
                        .bound = UINT64_MAX};
    struct shortlist x = {.most = (size_t)(best * (double)most), .bound = UINT64_MAX};
    bool whole = pl_space_stems(NULL, space, problem, patience, keep, &r);
    size_t first = 0;

    assert(best >= 0 && best <= 1);
    r.cost = pl_cost_ctx_new(problem, NULL);
    r.memory = pl_memory_ctx_new(problem);
    r.few = narrowed(space);
    if (best > 0)
        try_stems(&r);
    else
        sort_stems(&r, by_hash);
    for (; first < r.n && x.n < x.most && !pl_patience_over(patience); first++) {
        struct pl_layout layout;

        unpack(&layout, &r, &r.stem[first]);
        pl_space_leaves(space, problem, &layout, take_leaf, &x);
    }
    x.most = most;
    sample_rest(&x, &r, first);
    if (x.n)
        qsort(x.at, x.n, sizeof(*x.at), by_walk);
    free(r.few);
    pl_memory_ctx_free(r.memory);
    pl_cost_ctx_free(r.cost);
    free(r.stem);
    if (!whole || pl_patience_over(patience)) {
        free(x.at);
        return err_set(error, -ECANCELED, "the space is too large for the time limit");
    }
    *ret = x.at;
    *ret_count = x.n;
    return 0;
}

/* ---- words --------------------------------------------------------------- */

/* The classes that make it slower than the first, the largest two, and what it gains: in seconds of
 * as many tokens as the first has in a step. */
static void explain(struct pl_plan_entry *one, const struct pl_plan_entry *first,
                    const struct pl_workload *workload)
{
    double steps = (double)pl_batch(workload, &first->layout) / pl_batch(workload, &one->layout);
    double more[PL_COST_CLASSES], slower = steps * one->cost.total / first->cost.total - 1;
    bool other = one->layout.global_batch != first->layout.global_batch;
    int worst[2] = {-1, -1}, best = -1;
    AUTO_STR s = {0};

    for (int i = 0; i < PL_COST_CLASSES; i++) {
        more[i] = steps * one->cost.seconds[i] - first->cost.seconds[i];
        if (more[i] > 0 && (worst[0] < 0 || more[i] > more[worst[0]])) {
            worst[1] = worst[0];
            worst[0] = i;
        } else if (more[i] > 0 && (worst[1] < 0 || more[i] > more[worst[1]])) {
            worst[1] = i;
        }
        if (more[i] < 0 && (best < 0 || more[i] < more[best]))
            best = i;
    }
    str_addf(&s, "%.1f %% slower%s:", 100 * slower, other ? " a token" : "");
    for (int i = 0; i < 2 && worst[i] >= 0; i++)
        str_addf(&s, "%s %.3g s more in %s", i ? "," : "", more[worst[i]],
                 pl_cost_class_names[worst[i]]);
    if (best >= 0)
        str_addf(&s, ", %.3g s less in %s", -more[best], pl_cost_class_names[best]);
    if (worst[0] < 0)
        str_addf(&s, " the same seconds, %.3g GiB of memory instead of %.3g",
                 one->memory.total / GIB, first->memory.total / GIB);
    snprintf(one->why, sizeof(one->why), "%s", str_text(&s));
}

/* ---- the plan ------------------------------------------------------------ */

/* The room of a list of TOP families: those that turn out to be equivalents make way for others. */
static size_t room_for(size_t top)
{
    return top + (top < 100 ? 3 * top : 300) + 16;
}

static void look(struct pl_plan *ret, struct ranking *ranking, size_t top,
                 const struct pl_patience *patience)
{
    const struct pl_workload *workload = ranking->problem->workload;
    struct pl_plan plan = {0};
    char unsupported[160];

    ranking->plan = &plan;
    ranking->patience = patience;
    ranking->room = ranking->fold && top ? room_for(top) : top;
    ranking->bound = UINT64_MAX;
    plan.at = mem_alloc((ranking->room ? ranking->room : 1) * sizeof(*plan.at));
    plan.nbatches = ranking->room ? (size_t)workload->nbatches : 0;
    plan.batch = plan.nbatches ? mem_alloc(plan.nbatches * sizeof(*plan.batch)) : NULL;
    ranking->cost = pl_cost_ctx_new(ranking->problem, NULL);
    ranking->memory = pl_memory_ctx_new(ranking->problem);
    ranking->few = narrowed(ranking->space);
    if (pl_model_unsupported(unsupported, sizeof(unsupported), ranking->problem)) {
        plan.exact = true; /* no layout is legal */
    } else if (patience) {
        look_by_stems(ranking);
    } else {
        pl_space_enumerate(ranking->space, ranking->problem, consider, ranking);
        plan.exact = true;
    }
    if (ranking->fold)
        settle_families(ranking, top);
    free(ranking->few);
    pl_memory_ctx_free(ranking->memory);
    pl_cost_ctx_free(ranking->cost);
    for (size_t i = 1; i < plan.n; i++)
        explain(&plan.at[i], &plan.at[0], workload);
    *ret = plan;
}

void pl_plan_look(struct pl_plan *ret, const struct pl_space *space,
                  const struct pl_problem *problem, size_t top, double headroom, bool per_device,
                  const struct pl_patience *patience)
{
    struct ranking r = {.space = space,
                        .problem = problem,
                        .limit = pl_memory_offered(problem->cluster, headroom),
                        .per_device = per_device};

    look(ret, &r, top, patience);
}

void pl_plan_families(struct pl_plan *ret, const struct pl_space *space,
                      const struct pl_problem *problem, size_t top, double headroom,
                      bool per_device, const struct pl_patience *patience)
{
    struct ranking r = {.space = space,
                        .problem = problem,
                        .fold = true,
                        .limit = pl_memory_offered(problem->cluster, headroom),
                        .per_device = per_device};

    look(ret, &r, top, patience);
}

int pl_plan_rank(struct pl_plan *ret, const struct pl_space *space,
                 const struct pl_problem *problem, size_t top, double headroom, bool per_device,
                 struct err *error)
{
    struct pl_plan plan;
    int r;

    pl_plan_look(&plan, space, problem, top, headroom, per_device, NULL);
    if (!plan.n) {
        r = pl_plan_nothing(&plan, space, problem, headroom, NULL, error);
        pl_plan_done(&plan);
        return r;
    }
    *ret = plan;
    return 0;
}

void pl_plan_done(struct pl_plan *plan)
{
    free(plan->at);
    free(plan->batch);
    *plan = (struct pl_plan){0};
}
