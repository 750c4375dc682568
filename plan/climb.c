/*
 * Steepest ascent over stems, and over the leaves of one. In a stem one key alone can seldom
 * change: the degrees share out the devices, and chunks and schedules follow the stages. Two can,
 * with schedule and vp as one.
 * Of leaves most keys change alone; two where one makes room in memory for the other.
 */
#include "plan/climb.h"

#include "base/base.h"

struct climb {
    const struct pl_space *space;
    const struct pl_problem *problem;
    const struct pl_layout *stem; /* of the leaves that are climbed over; NULL: over stems */
    pl_stem_worth *worth_of;
    bool (*over)(void *arg);
    void *arg;
    pl_space_visit *visit; /* look_at(), of a climb */
    void *seer;
    struct pl_layout best;
    double worth;
};

static bool look_at(void *arg, const struct pl_layout *one)
{
    struct climb *climb = arg;
    double worth = climb->worth_of(climb->arg, one);

    if (worth > climb->worth) {
        climb->worth = worth;
        climb->best = *one;
    }
    return !climb->over(climb->arg);
}

/* The first KEYS keys of the walk have only the values of LAYOUT. */
static void fix_keys(struct pl_space *space, const struct pl_layout *layout, size_t keys)
{
    for (size_t i = 0; i < keys; i++) {
        struct pl_space_axis *axis = &space->axis[pl_space_order[i]];

        axis->value[0] = pl_layout_get(layout, &pl_layout_keys[pl_space_order[i]]);
        axis->n = 1;
    }
}

/* Schedule and vp are one key here, SCHEDULE: each allows few values of the other. */
static bool is_free(const struct pl_space *space, enum pl_key key)
{
    return space->axis[key].n > 1 || (key == PL_KEY_SCHEDULE && space->axis[PL_KEY_VP].n > 1);
}

/* Look at what differs from FROM in keys ONE and OTHER; false if there is no more time. */
static bool vary(struct climb *climb, struct pl_space *near, const struct pl_layout *from,
                 enum pl_key one, enum pl_key other)
{
    fix_keys(near, from, climb->stem ? PL_WALK_KEYS : PL_STEM_KEYS);
    near->axis[one] = climb->space->axis[one];
    near->axis[other] = climb->space->axis[other];
    if (one == PL_KEY_SCHEDULE || other == PL_KEY_SCHEDULE)
        near->axis[PL_KEY_VP] = climb->space->axis[PL_KEY_VP];
    return climb->stem
               ? pl_space_leaves(near, climb->problem, climb->stem, NULL, climb->visit, climb->seer)
               : pl_space_stems(NULL, near, climb->problem, NULL, climb->visit, climb->seer);
}

/* To the best that differs in two keys, or in one (not PAIRS); false if there is no more time. */
static bool step(struct climb *climb, bool pairs)
{
    AUTO_FREE struct pl_space *near = mem_alloc(sizeof(*near));
    struct pl_layout from = climb->best;
    size_t first = climb->stem ? PL_STEM_KEYS : 0, end = climb->stem ? PL_WALK_KEYS : PL_STEM_KEYS;

    *near = *climb->space;
    for (size_t i = first; i < end; i++) {
        for (size_t k = pairs ? i + 1 : i; k < (pairs ? end : i + 1); k++) {
            enum pl_key one = pl_space_order[i], other = pl_space_order[k];

            if (one != PL_KEY_VP && other != PL_KEY_VP &&
                (is_free(climb->space, one) || is_free(climb->space, other)) &&
                !vary(climb, near, &from, one, other))
                return false;
        }
    }
    return true;
}

static void ascend(struct climb *climb, bool pairs)
{
    double before;

    do {
        before = climb->worth;
    } while (step(climb, pairs) && climb->worth > before);
}

double pl_climb(struct pl_layout *stem, double worth, const struct pl_space *space,
                const struct pl_problem *problem, pl_stem_worth *worth_of, bool (*over)(void *arg),
                void *arg)
{
    struct climb climb = {.space = space,
                          .problem = problem,
                          .worth_of = worth_of,
                          .over = over,
                          .arg = arg,
                          .visit = look_at,
                          .seer = &climb,
                          .best = *stem,
                          .worth = worth};

    ascend(&climb, true);
    *stem = climb.best;
    return climb.worth;
}

double pl_climb_leaves(struct pl_layout *leaf, double worth, const struct pl_layout *stem,
                       const struct pl_space *space, const struct pl_problem *problem,
                       pl_stem_worth *worth_of, bool (*over)(void *arg), void *arg)
{
    struct climb climb = {.space = space,
                          .problem = problem,
                          .stem = stem,
                          .worth_of = worth_of,
                          .over = over,
                          .arg = arg,
                          .visit = look_at,
                          .seer = &climb,
                          .best = *leaf,
                          .worth = worth};
    double before;

    do {
        ascend(&climb, false);
        before = climb.worth;
    } while (step(&climb, true) && climb.worth > before);
    *leaf = climb.best;
    return climb.worth;
}

void pl_climb_around(const struct pl_layout *leaf, const struct pl_layout *stem,
                     const struct pl_space *space, const struct pl_problem *problem,
                     pl_space_visit *visit, void *arg)
{
    struct climb climb = {.space = space,
                          .problem = problem,
                          .stem = stem,
                          .visit = visit,
                          .seer = arg,
                          .best = *leaf};

    step(&climb, true);
}
