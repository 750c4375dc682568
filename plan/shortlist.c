/*
 * Short lists of spaces that are too large to be searched whole: the leaves of the stems that do
 * best, and of the others a sample.
 */
#include "plan/ranking.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/climb.h"

struct shortlist {
    struct pl_layout *at;
    size_t n, cap, most;
    uint64_t bound, number; /* of the leaves that come, those whose hash is in bound are taken */
    size_t seen;
    uint64_t drawn; /* numbers at random so far */
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

/* From FROM on, sorted as a walk would come by them, each once. */
static void settle(struct shortlist *shortlist, size_t from)
{
    struct pl_layout *at = shortlist->at;
    size_t n = from;

    if (shortlist->n > from)
        qsort(at + from, shortlist->n - from, sizeof(*at), by_walk);
    for (size_t i = from; i < shortlist->n; i++)
        if (n == from || by_walk(&at[n - 1], &at[i]) != 0)
            at[n++] = at[i];
    shortlist->n = n;
}

/* About as many of those that are to come as there is room for. */
static void take_share(struct shortlist *shortlist, double each, size_t stems)
{
    double share = (double)(shortlist->most - shortlist->n) / (each * (double)stems + 1);

    shortlist->bound = share < 1 ? (uint64_t)(share * 0x1p64) : UINT64_MAX;
}

/* All leaves of the best stems, as many as BEST has room for, and an even sample of the others. */
static void take_leaves(struct shortlist *shortlist, const struct pl_ranking *ranking, size_t best,
                        const struct pl_patience *patience)
{
    size_t most = shortlist->most;

    shortlist->most = best;
    for (size_t i = 0; i < ranking->n && !pl_patience_over(patience); i++) {
        struct pl_layout layout;

        if (shortlist->most == best && shortlist->n >= best) {
            shortlist->most = most;
            take_share(shortlist, i ? (double)shortlist->seen / (double)i : 64, ranking->n - i);
        }
        if (shortlist->n >= shortlist->most)
            return;
        pl_stem_layout(&layout, ranking, &ranking->stem[i]);
        pl_space_leaves(ranking->space, ranking->problem, &layout, patience, take_leaf, shortlist);
    }
}

/* DRAWS leaves of STEM at most, each key behind it at random. NEAR is a copy of the space. */
static void draw_leaves(struct shortlist *shortlist, const struct pl_ranking *ranking,
                        struct pl_space *near, const struct pl_layout *stem, int draws)
{
    for (int i = 0; i < draws; i++) {
        for (size_t k = PL_STEM_KEYS; k < PL_WALK_KEYS; k++) {
            const struct pl_space_axis *all = &ranking->space->axis[pl_space_order[k]];
            struct pl_space_axis *axis = &near->axis[pl_space_order[k]];

            axis->value[0] = all->value[rng_mix(shortlist->drawn++) % (uint64_t)all->n];
            axis->n = 1;
        }
        pl_space_leaves(near, ranking->problem, stem, NULL, take_leaf, shortlist);
    }
}

enum { MOST_DRAWS = 64, TRIES = 4 /* draws for each layout that there is room for */ };

/* The same where one stem has more leaves than the list has room for: of the best stems what is
 * near their best leaf, of the others what is drawn. */
static void take_near(struct shortlist *shortlist, struct pl_ranking *ranking, size_t best,
                      const struct pl_patience *patience)
{
    AUTO_FREE struct pl_space *near = mem_alloc(sizeof(*near));
    size_t most = shortlist->most, i = 0, draws;
    struct pl_layout stem;

    *near = *ranking->space;
    shortlist->most = best;
    for (; i < ranking->n && shortlist->n < best && !pl_patience_over(patience); i++) {
        size_t from = shortlist->n;
        struct pl_plan_entry top;

        pl_stem_layout(&stem, ranking, &ranking->stem[i]);
        if (!pl_stem_best(&top, ranking, &ranking->stem[i], INFINITY))
            break; /* nor does one of those behind it fit */
        pl_climb_around(&top.layout, &stem, ranking->space, ranking->problem, take_leaf, shortlist);
        settle(shortlist, from);
    }
    shortlist->most = most;
    draws = TRIES * (most - shortlist->n) / (ranking->n - i + 1) + 1;
    draws = draws < MOST_DRAWS ? draws : MOST_DRAWS;
    for (; i < ranking->n && shortlist->n < most && !pl_patience_over(patience); i++) {
        pl_stem_layout(&stem, ranking, &ranking->stem[i]);
        draw_leaves(shortlist, ranking, near, &stem, (int)draws);
    }
}

int pl_plan_shortlist(struct pl_layout **ret, size_t *ret_count, size_t most, double best,
                      const struct pl_space *space, const struct pl_problem *problem,
                      double headroom, enum pl_objective objective,
                      const struct pl_patience *patience, struct err *error)
{
    struct pl_ranking r = {.space = space,
                           .problem = problem,
                           .limit = pl_memory_offered(problem->cluster, headroom),
                           .objective = objective};
    struct shortlist x = {.most = most, .bound = UINT64_MAX};
    bool whole;

    assert(best >= 0 && best <= 1);
    pl_stems_begin(&r);
    whole = pl_stems_find(&r, patience);
    if (best > 0)
        pl_stems_try(&r);
    else
        pl_stems_shuffle(&r);
    (r.wide ? take_near(&x, &r, (size_t)(best * (double)most), patience)
            : take_leaves(&x, &r, (size_t)(best * (double)most), patience));
    settle(&x, 0);
    pl_stems_done(&r);
    if (!whole || pl_patience_over(patience)) {
        free(x.at);
        return err_set(error, -ECANCELED, "the space is too large for the time limit");
    }
    *ret = x.at;
    *ret_count = x.n;
    return 0;
}
