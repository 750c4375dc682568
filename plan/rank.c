/*
 * The best layouts of a whole space by the cost model, and why the others lose.
 *
 * A space may hold more layouts than there is time for. So its shapes (stems, space.h) are tried
 * first, each by a few leaves that sharding and overlap make likely winners, in an order that is
 * even over the space at any moment; then all leaves of the shapes, those first that did best. The
 * list does not depend on that order: what is done is the same as by one walk, if there is time.
 * Without the time, or the room, to find and try all shapes, the best that were tried, or the
 * baselines where none fits, are where climbs (climb.h) to better ones start. Where one shape has
 * more leaves than there may be time for, climbs over them come before the walk, and are listed if
 * it was not ended.
 */
#include "plan/ranking.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/legal.h"

static const double GIB = 1 << 30;

enum { ASKED = 64 };

/* Of a space with many leaves a shape: shares of the patience after which climbing over them, and
 * walking through them, end. The rest is for the families. */
static const double CLIMBING = 0.75, WALKING = 0.9;

/* ---- the list ------------------------------------------------------------ */

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
static size_t like(const struct pl_ranking *ranking, const struct pl_plan_entry *one)
{
    size_t i = 0;

    while (i < ranking->plan->n && !(ranking->fold ? is_family(&ranking->plan->at[i], one)
                                                   : is_equivalent(&ranking->plan->at[i], one)))
        i++;
    return i;
}

/* Entries are kept sorted: there is ROOM for few, and most layouts do not reach the list. */
static void enter(struct pl_ranking *ranking, struct pl_plan_entry *one)
{
    struct pl_plan *plan = ranking->plan;
    const struct pl_plan_entry *last = &plan->at[plan->n - (plan->n > 0)];
    size_t i;

    if (plan->n == ranking->room &&
        pl_ranking_worth(ranking, one) < pl_ranking_worth(ranking, last))
        return;
    i = like(ranking, one);
    if (i < plan->n && !pl_ranking_before(ranking, one, &plan->at[i])) {
        plan->at[i].equivalents += pl_space_compare(&one->layout, &plan->at[i].layout) != 0;
        return;
    }
    if (i < plan->n)
        one->equivalents = plan->at[i].equivalents + 1;
    else if (plan->n == ranking->room && !pl_ranking_before(ranking, one, last))
        return;
    else
        i = plan->n < ranking->room ? plan->n++ : plan->n - 1;
    for (; i > 0 && pl_ranking_before(ranking, one, &plan->at[i - 1]); i--)
        plan->at[i] = plan->at[i - 1];
    plan->at[i] = *one;
}

static void note_smallest(struct pl_plan *plan, const struct pl_plan_entry *one)
{
    double least = plan->smallest_bytes, bytes = one->memory.scaled;

    if (least > 0 && (bytes > least ||
                      (!(bytes < least) && pl_space_compare(&one->layout, &plan->smallest) >= 0)))
        return;
    plan->smallest_bytes = bytes;
    plan->smallest = one->layout;
}

/* False when patience is over. */
static bool consider(void *arg, const struct pl_layout *layout)
{
    struct pl_ranking *r = arg;
    struct pl_plan_entry one = {.layout = *layout};

    r->plan->legal++;
    if (!(r->room ? pl_ranking_price(r, &one) : pl_ranking_fits(r, &one))) {
        note_smallest(r->plan, &one);
    } else {
        r->plan->fitting++;
        if (r->room) {
            pl_ranking_note_batch(r, &one);
            enter(r, &one);
        }
    }
    if (++r->asked % ASKED == 0)
        r->over = pl_ranking_spent(r) >= (r->wide ? WALKING : 1);
    return !r->over;
}

/* ---- all leaves of the stems -------------------------------------------- */

/* A stem may have many leaves and no legal one, so that consider() never asks. False when patience
 * is over. */
static bool consider_leaves(struct pl_ranking *ranking, const struct pl_layout *stem)
{
    pl_space_leaves(ranking->space, ranking->problem, stem, ranking->patience, consider, ranking);
    ranking->over = ranking->over || pl_ranking_spent(ranking) >= (ranking->wide ? WALKING : 1);
    return !ranking->over;
}

/* Leaves of a stem that was not kept. */
static bool consider_other(void *arg, const struct pl_layout *layout)
{
    struct pl_ranking *r = arg;

    return !pl_stem_was_left(r) || consider_leaves(r, layout);
}

static void consider_stems(struct pl_ranking *ranking, bool all)
{
    for (size_t i = 0; i < ranking->n && !ranking->over; i++) {
        struct pl_layout layout;

        pl_stem_layout(&layout, ranking, &ranking->stem[i]);
        consider_leaves(ranking, &layout);
    }
    ranking->number = 0;
    if (!ranking->over && all && !pl_stems_are_whole(ranking))
        all = pl_space_stems(NULL, ranking->space, ranking->problem, ranking->patience,
                             consider_other, ranking);
    ranking->plan->exact = all && !ranking->over;
}

/* The best leaves of the best stems, in an array that the caller frees. */
static struct pl_plan_entry *climb_over_leaves(size_t *ret_n, struct pl_ranking *ranking)
{
    size_t most = ranking->room < ranking->n ? ranking->room : ranking->n, n = 0;
    struct pl_plan_entry *top = mem_alloc((most + 1) * sizeof(*top));

    for (size_t i = 0; i < most && pl_ranking_spent(ranking) < CLIMBING; i++)
        n += pl_stem_best(&top[n], ranking, &ranking->stem[i], CLIMBING);
    *ret_n = n;
    return top;
}

static void look_by_stems(struct pl_ranking *ranking)
{
    bool all = pl_stems_find(ranking, ranking->patience), tried = pl_stems_try(ranking);
    AUTO_FREE struct pl_plan_entry *top = NULL;
    size_t n = 0;

    if (!tried || !all || !pl_stems_are_whole(ranking))
        pl_stems_climb(ranking);
    if (ranking->wide)
        top = climb_over_leaves(&n, ranking);
    consider_stems(ranking, all);
    for (size_t i = 0; i < n && !ranking->plan->exact; i++)
        enter(ranking, &top[i]);
}

/* ---- families ------------------------------------------------------------ */

struct family {
    struct pl_ranking *r;
    size_t n;
    double worst;
};

static bool count_member(void *arg, const struct pl_layout *layout)
{
    struct family *f = arg;
    struct pl_plan_entry one = {.layout = *layout};

    if (!pl_ranking_price(f->r, &one))
        return true;
    f->worst = f->n++ ? fmin(f->worst, one.cost.tokens_per_s) : one.cost.tokens_per_s;
    return true;
}

/* All members of the family of HEAD that fit, HEAD among them; without the time it alone. */
static struct family members_of(struct pl_ranking *ranking, const struct pl_plan_entry *head)
{
    AUTO_FREE struct pl_space *few = mem_alloc(sizeof(*few));
    struct family f = {.r = ranking};

    if (ranking->wide && pl_ranking_spent(ranking) >= 1)
        return (struct family){ranking, 1, head->cost.tokens_per_s};
    *few = *ranking->space;
    for (int key = 0; key < PL_LAYOUT_KEYS; key++) {
        struct pl_space_axis *axis = &few->axis[key];

        if (is_flag(key) || axis->n == 0)
            continue;
        axis->value[0] = pl_layout_get(&head->layout, &pl_layout_keys[key]);
        axis->n = 1;
    }
    pl_space_enumerate(few, ranking->problem, count_member, &f);
    return f;
}

/* The list becomes TOP families at most. One that the model cannot tell from a listed one goes,
 * with all its members: each is the equivalent of a variant there. */
static void settle_families(struct pl_ranking *ranking, size_t top)
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
        f = members_of(ranking, one);
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

/* ---- words --------------------------------------------------------------- */

/* The classes that make it worse than the first, the largest two, and what it gains: in the unit of
 * the objective, of as many tokens as the first has in a step. */
static void explain(struct pl_plan_entry *one, const struct pl_plan_entry *first,
                    const struct pl_ranking *ranking)
{
    static const char *const words[][2] = {{"slower", "s"},
                                           {"more device-seconds", "device-s"},
                                           {"more energy", "J"},
                                           {"more expensive", "of the price"}};
    const struct pl_workload *workload = ranking->problem->workload;
    const char *const *word = words[ranking->objective];
    double steps = (double)pl_batch(workload, &first->layout) / pl_batch(workload, &one->layout);
    double more[PL_COST_CLASSES], worse;
    bool other = one->layout.global_batch != first->layout.global_batch;
    int worst[2] = {-1, -1}, best = -1;
    struct pl_cost ours, theirs;
    AUTO_STR s = {0};

    pl_objective_cost(&ours, ranking->objective, ranking->problem->cluster, &one->layout,
                      &one->cost);
    pl_objective_cost(&theirs, ranking->objective, ranking->problem->cluster, &first->layout,
                      &first->cost);
    worse = steps * ours.total / theirs.total - 1;
    for (int i = 0; i < PL_COST_CLASSES; i++) {
        more[i] = steps * ours.seconds[i] - theirs.seconds[i];
        if (more[i] > 0 && (worst[0] < 0 || more[i] > more[worst[0]])) {
            worst[1] = worst[0];
            worst[0] = i;
        } else if (more[i] > 0 && (worst[1] < 0 || more[i] > more[worst[1]])) {
            worst[1] = i;
        }
        if (more[i] < 0 && (best < 0 || more[i] < more[best]))
            best = i;
    }
    str_addf(&s, "%.1f %% %s%s:", 100 * worse, word[0], other ? " a token" : "");
    for (int i = 0; i < 2 && worst[i] >= 0; i++)
        str_addf(&s, "%s %.3g %s more in %s", i ? "," : "", more[worst[i]], word[1],
                 pl_cost_class_names[worst[i]]);
    if (best >= 0)
        str_addf(&s, ", %.3g %s less in %s", -more[best], word[1], pl_cost_class_names[best]);
    if (worst[0] < 0)
        str_addf(&s, " the same seconds, %.3g GiB of memory instead of %.3g",
                 one->memory.total / GIB, first->memory.total / GIB);
    snprintf(one->why, sizeof(one->why), "%s", str_text(&s));
}

/* ---- clusters of parts --------------------------------------------------- */

/* An entry whose list of stages has no text goes. */
static void write_divisions(struct pl_ranking *ranking)
{
    struct pl_plan *plan = ranking->plan;
    size_t n = 0;
    struct err e;

    for (size_t i = 0; i < plan->n; i++) {
        plan->at[n] = plan->at[i];
        n += pl_parts_write(ranking->parts, &plan->at[n], &e) == 0;
    }
    plan->n = n;
    for (size_t i = 0; i < plan->nbatches; i++)
        if (plan->batch[i].cost.total > 0 &&
            pl_parts_write(ranking->parts, &plan->batch[i], &e) < 0)
            plan->batch[i].cost.total = 0;
}

/* ---- the plan ------------------------------------------------------------ */

/* The room of a list of TOP families: those that turn out to be equivalents make way for others. */
static size_t room_for(size_t top)
{
    return top + (top < 100 ? 3 * top : 300) + 16;
}

static void look(struct pl_plan *ret, struct pl_ranking *ranking, size_t top,
                 const struct pl_patience *patience)
{
    const struct pl_workload *workload = ranking->problem->workload;
    struct pl_plan plan = {0};
    char unsupported[160];

    ranking->plan = &plan;
    ranking->patience = patience;
    ranking->room = ranking->fold && top ? room_for(top) : top;
    plan.at = mem_alloc((ranking->room ? ranking->room : 1) * sizeof(*plan.at));
    plan.nbatches = ranking->room ? (size_t)workload->nbatches : 0;
    plan.batch = plan.nbatches ? mem_alloc(plan.nbatches * sizeof(*plan.batch)) : NULL;
    pl_stems_begin(ranking);
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
    if (ranking->parts)
        write_divisions(ranking);
    pl_stems_done(ranking);
    for (size_t i = 1; i < plan.n; i++)
        explain(&plan.at[i], &plan.at[0], ranking);
    *ret = plan;
}

void pl_plan_look(struct pl_plan *ret, const struct pl_space *space,
                  const struct pl_problem *problem, size_t top, double headroom,
                  enum pl_objective objective, const struct pl_patience *patience)
{
    struct pl_ranking r = {.space = space,
                           .problem = problem,
                           .headroom = headroom,
                           .limit = pl_memory_offered(problem->cluster, headroom),
                           .objective = objective};

    look(ret, &r, top, patience);
}

void pl_plan_families(struct pl_plan *ret, const struct pl_space *space,
                      const struct pl_problem *problem, size_t top, double headroom,
                      enum pl_objective objective, const struct pl_patience *patience)
{
    struct pl_ranking r = {.space = space,
                           .problem = problem,
                           .fold = true,
                           .headroom = headroom,
                           .limit = pl_memory_offered(problem->cluster, headroom),
                           .objective = objective};

    look(ret, &r, top, patience);
}

int pl_plan_rank(struct pl_plan *ret, const struct pl_space *space,
                 const struct pl_problem *problem, size_t top, double headroom,
                 enum pl_objective objective, struct err *error)
{
    struct pl_plan plan;
    int r;

    pl_plan_look(&plan, space, problem, top, headroom, objective, NULL);
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
