/*
 * Which changed key brought which seconds.
 *
 * With v(S) the seconds of the layout whose keys in S have the new values and all others the old
 * ones, the Shapley value of a key is the mean, over all orders of the keys, of what v changes by
 * when the key joins those before it (Shapley 1953). The values add up to v(all) - v(none), a key
 * that changes nothing gets 0, and a single changed key gets all. v is a vector, the classes of
 * seconds and log tokens/s, so each key's part is known by class.
 *
 * A layout between the two is settled (a key that means nothing there takes its canonical value)
 * and may still be illegal; the cost model says nothing of those. So this is a walk from the old
 * layout to the new one over legal layouts, which changes as few keys at a time as possible, all
 * such steps being equally likely. Where all is legal, that is every order of the keys and the
 * Shapley value. Keys that must change together share the step evenly; `alone` says how often a
 * key had a step of its own. Which steps there are depends on where one comes from, so the result
 * is the mean of the walk there and of the walk back, which also makes it antisymmetric.
 *
 * Where the two are on different clusters, the cluster is one more such key: a layout in between is
 * judged, settled and timed by the cluster that it is on.
 *
 * Up to EXACT_KEYS the law of the walk is computed, above a fixed stream samples WALKS of it.
 */
#include "plan/why.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "plan/rules.h"

enum { EXACT_KEYS = 12, WALKS = 128, MOST_AT_ONCE = 3 };
enum { LOG_RATE = PL_COST_CLASSES, VALUES };

/* A cluster, and the cost model there. */
struct site {
    struct pl_problem problem;
    struct pl_cost_ctx *cost; /* owned */
};

/* A set of changed keys is a mask over the rows of WHY. */
struct walk {
    const struct site *site_from, *site_to;
    const struct pl_layout *from, *to;
    const struct pl_why *why;
    uint64_t all;
    uint64_t *step; /* (count) layouts that can be the next */
    size_t count, cap;
    double effect[PL_LAYOUT_KEYS][VALUES], alone[PL_LAYOUT_KEYS];
};

static int size_of(uint64_t mask)
{
    return __builtin_popcountll(mask);
}

/* Where the layout with the keys of MASK changed is. */
static const struct site *site_at(const struct walk *walk, uint64_t mask)
{
    bool moved = pl_why_is_cluster(&walk->why->key[0]) && mask & 1;

    return moved ? walk->site_to : walk->site_from;
}

/* The layout with the keys of MASK changed; false where it is illegal. */
static bool layout_at(struct pl_layout *ret, const struct walk *walk, uint64_t mask)
{
    const struct pl_problem *problem = &site_at(walk, mask)->problem;

    *ret = mask == walk->all ? *walk->to : *walk->from;
    if (mask == 0 || mask == walk->all)
        return true;
    for (int i = 0; i < walk->why->count; i++)
        if (mask >> i & 1 && !pl_why_is_cluster(&walk->why->key[i]))
            pl_layout_set(ret, walk->why->key[i].key,
                          pl_layout_get(walk->to, walk->why->key[i].key));
    if (!pl_layout_derive(ret))
        return false;
    pl_layout_settle(ret, problem);
    return pl_layout_derive(ret) && pl_layout_check(NULL, problem, ret);
}

/* In the unit of OBJECTIVE, of as many tokens as a step of the workload's first batch has. */
static void cost_at(struct pl_cost *ret, const struct site *site, const struct pl_layout *layout,
                    enum pl_objective objective)
{
    const struct pl_workload *workload = site->problem.workload;
    double unit = (double)workload->global_batch / pl_batch(workload, layout);
    struct pl_cost seconds;

    pl_cost_at(&seconds, site->cost, layout);
    pl_objective_cost(ret, objective, site->problem.cluster, layout, &seconds);
    for (int c = 0; c < PL_COST_CLASSES; c++)
        ret->seconds[c] *= unit;
    ret->total *= unit;
}

static void value_at(double ret[VALUES], const struct walk *walk, uint64_t mask)
{
    struct pl_layout layout;
    struct pl_cost cost;
    bool legal = layout_at(&layout, walk, mask);

    assert(legal);
    cost_at(&cost, site_at(walk, mask), &layout, walk->why->objective);
    memcpy(ret, cost.seconds, sizeof(cost.seconds));
    ret[LOG_RATE] = log(cost.tokens_per_s);
}

/* ---- steps --------------------------------------------------------------- */

/* Legal layouts with MORE further keys of REST changed. */
static void add_steps(struct walk *walk, uint64_t at, uint64_t rest, int more)
{
    struct pl_layout layout;

    if (more > 0) {
        for (; rest; rest &= rest - 1)
            add_steps(walk, at | (rest & -rest), rest & (rest - 1), more - 1);
    } else if (layout_at(&layout, walk, at)) {
        MEM_GROW(walk->step, walk->count, walk->cap);
        walk->step[walk->count++] = at;
    }
}

/* The steps from AT that change the fewest keys; where more than a few must change, the last one.
 */
static void find_steps(struct walk *walk, uint64_t at)
{
    uint64_t rest = walk->all & ~at;

    walk->count = 0;
    for (int n = 1; n <= MOST_AT_ONCE && n <= size_of(rest) && walk->count == 0; n++)
        add_steps(walk, at, rest, n);
    if (walk->count == 0)
        add_steps(walk, walk->all, 0, 0);
    assert(walk->count > 0);
}

/* A share WEIGHT of the ways goes from AT, which has the values BEFORE, to NEXT. */
static void take_step(struct walk *walk, uint64_t at, uint64_t next, const double before[VALUES],
                      const double after[VALUES], double weight)
{
    int size = size_of(next & ~at);

    for (int i = 0; i < walk->why->count; i++) {
        if (!((next & ~at) >> i & 1))
            continue;
        for (int v = 0; v < VALUES; v++)
            walk->effect[i][v] += weight * (after[v] - before[v]) / size;
        walk->alone[i] += size == 1 ? weight : 0;
    }
}

/* ---- the two ways to walk ------------------------------------------------ */

static void walk_all(struct walk *walk)
{
    size_t n = (size_t)1 << walk->why->count;
    double *share = mem_alloc(n * sizeof(*share)); /* of the ways that pass a layout */
    double(*value)[VALUES] = mem_alloc(n * sizeof(*value));

    share[0] = 1;
    value_at(value[0], walk, 0);
    for (uint64_t at = 0; at < walk->all; at++) { /* what a step leads to has a larger mask */
        if (share[at] <= 0)
            continue;
        find_steps(walk, at);
        for (size_t i = 0; i < walk->count; i++) {
            uint64_t next = walk->step[i];
            double weight = share[at] / (double)walk->count;

            if (share[next] <= 0)
                value_at(value[next], walk, next);
            share[next] += weight;
            take_step(walk, at, next, value[at], value[next], weight);
        }
    }
    free(share);
    free(value);
}

static void walk_some(struct walk *walk)
{
    struct rng rng;

    rng_seed(&rng, 11);
    for (int i = 0; i < WALKS; i++) {
        double before[VALUES], after[VALUES];

        value_at(before, walk, 0);
        for (uint64_t at = 0, next; at != walk->all; at = next) {
            find_steps(walk, at);
            next = walk->step[rng_below(&rng, walk->count)];
            value_at(after, walk, next);
            take_step(walk, at, next, before, after, 1.0 / WALKS);
            memcpy(before, after, sizeof(before));
        }
    }
}

/* Add half of what a walk from FROM to TO says, times SIGN, to WHY. */
static void add_walk(struct pl_why *why, const struct walk *way, double sign)
{
    struct walk *walk = mem_alloc(sizeof(*walk));

    *walk = *way;
    walk->why = why;
    walk->all = ((uint64_t)1 << why->count) - 1;
    if (why->exact)
        walk_all(walk);
    else
        walk_some(walk);
    for (int i = 0; i < why->count; i++) {
        for (int c = 0; c < PL_COST_CLASSES; c++)
            why->key[i].seconds[c] += sign * walk->effect[i][c] / 2;
        why->key[i].log_ratio += sign * walk->effect[i][LOG_RATE] / 2;
        why->key[i].alone += walk->alone[i] / 2;
    }
    free(walk->step);
    free(walk);
}

static void find_changes(struct pl_why *ret, const struct pl_layout *from,
                         const struct pl_layout *to)
{
    if (ret->cluster_from != ret->cluster_to)
        ret->key[ret->count++] = (struct pl_why_key){.key = NULL};
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++)
        if (key->part != PL_DERIVED && pl_layout_get(from, key) != pl_layout_get(to, key))
            ret->key[ret->count++] = (struct pl_why_key){
                .key = key, .from = pl_layout_get(from, key), .to = pl_layout_get(to, key)};
    assert(ret->count < 64);
    ret->exact = ret->count <= EXACT_KEYS;
}

void pl_why_across(struct pl_why *ret, const struct pl_problem *problem,
                   const struct pl_layout *from, const struct pl_cluster *cluster,
                   const struct pl_layout *to, enum pl_objective objective)
{
    struct site here = {.problem = *problem}, there = {.problem = *problem};
    bool moves = cluster != problem->cluster;

    there.problem.cluster = cluster;
    here.cost = pl_cost_ctx_new(&here.problem, NULL);
    there.cost = moves ? pl_cost_ctx_new(&there.problem, NULL) : here.cost;
    *ret = (struct pl_why){
        .objective = objective, .cluster_from = problem->cluster, .cluster_to = cluster};
    cost_at(&ret->from, &here, from, objective);
    cost_at(&ret->to, &there, to, objective);
    find_changes(ret, from, to);
    if (ret->count > 0) {
        add_walk(ret, &(struct walk){.site_from = &here, .site_to = &there, .from = from, .to = to},
                 1);
        add_walk(ret, &(struct walk){.site_from = &there, .site_to = &here, .from = to, .to = from},
                 -1);
    }
    for (int i = 0; i < ret->count; i++)
        for (int c = 0; c < PL_COST_CLASSES; c++)
            ret->key[i].change += ret->key[i].seconds[c];
    pl_cost_ctx_free(here.cost);
    if (moves)
        pl_cost_ctx_free(there.cost);
}

void pl_why(struct pl_why *ret, const struct pl_problem *problem, const struct pl_layout *from,
            const struct pl_layout *to, enum pl_objective objective)
{
    pl_why_across(ret, problem, from, problem->cluster, to, objective);
}

/* ---- as JSON ------------------------------------------------------------- */

static json_t *key_json(const struct pl_why *why, const struct pl_why_key *key)
{
    bool moves = pl_why_is_cluster(key);
    json_t *classes = json_object();

    for (int c = 0; c < PL_COST_CLASSES; c++)
        if (fabs(key->seconds[c]) > 0)
            json_object_set_new(classes, pl_cost_class_names[c], json_real(key->seconds[c]));
    return json_pack(
        "{s:s, s:o, s:o, s:f, s:f, s:f, s:o}", "key", moves ? "cluster" : key->key->name, "from",
        moves ? json_string(why->cluster_from->name) : pl_layout_value_json(key->key, key->from),
        "to", moves ? json_string(why->cluster_to->name) : pl_layout_value_json(key->key, key->to),
        "change_s", key->change, "ratio", exp(key->log_ratio), "alone", key->alone, "classes",
        classes);
}

static int by_change(const void *left, const void *right)
{
    const struct pl_why_key *a = left, *b = right;
    double more = fabs(b->change) - fabs(a->change);

    return more > 0 ? 1 : more < 0 ? -1 : a->key < b->key ? -1 : a->key > b->key;
}

json_t *pl_why_json(const struct pl_why *why)
{
    static const char *const units[] = {"seconds", "device_seconds", "joules", "price"};
    struct pl_why sorted = *why;
    json_t *classes = json_array(), *keys = json_array();

    qsort(sorted.key, (size_t)sorted.count, sizeof(sorted.key[0]), by_change);
    for (int i = 0; i < sorted.count; i++)
        json_array_append_new(keys, key_json(why, &sorted.key[i]));
    for (int c = 0; c < PL_COST_CLASSES; c++)
        if (why->from.seconds[c] > 0 || why->to.seconds[c] > 0)
            json_array_append_new(
                classes, json_pack("{s:s, s:f, s:f, s:n, s:n}", "class", pl_cost_class_names[c],
                                   "from_s", why->from.seconds[c], "to_s", why->to.seconds[c],
                                   "trial_from_s", "trial_to_s"));
    return json_pack("{s:s, s:b, s:{s:f, s:f, s:f}, s:n, s:n, s:o, s:o}", "unit",
                     units[why->objective], "exact", why->exact, "predicted", "from_s",
                     why->from.total, "to_s", why->to.total, "ratio",
                     why->to.tokens_per_s / why->from.tokens_per_s, "clusters", "trials", "classes",
                     classes, "keys", keys);
}
