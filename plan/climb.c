/*
 * Steepest ascent over stems. One key alone can seldom change: the degrees share out the devices,
 * and chunks and schedules follow the stages. Two can.
 */
#include "plan/climb.h"

#include "base/base.h"

struct climb {
    pl_stem_worth *worth_of;
    bool (*over)(void *arg);
    void *arg;
    struct pl_layout best;
    double worth;
};

static bool look_at(void *arg, const struct pl_layout *stem)
{
    struct climb *climb = arg;
    double worth = climb->worth_of(climb->arg, stem);

    if (worth > climb->worth) {
        climb->worth = worth;
        climb->best = *stem;
    }
    return !climb->over(climb->arg);
}

/* The keys of a stem have only the values of STEM. */
static void fix_keys(struct pl_space *space, const struct pl_layout *stem)
{
    for (size_t i = 0; i < PL_STEM_KEYS; i++) {
        struct pl_space_axis *axis = &space->axis[pl_space_order[i]];

        axis->value[0] = pl_layout_get(stem, &pl_layout_keys[pl_space_order[i]]);
        axis->n = 1;
    }
}

/* False if there is no more time. */
static bool step(struct climb *climb, const struct pl_space *space,
                 const struct pl_problem *problem)
{
    AUTO_FREE struct pl_space *near = mem_alloc(sizeof(*near));
    struct pl_layout from = climb->best;

    *near = *space;
    for (size_t i = 0; i < PL_STEM_KEYS; i++) {
        for (size_t k = i + 1; k < PL_STEM_KEYS; k++) {
            enum pl_key one = pl_space_order[i], other = pl_space_order[k];

            if (space->axis[one].n == 1 && space->axis[other].n == 1)
                continue;
            fix_keys(near, &from);
            near->axis[one] = space->axis[one];
            near->axis[other] = space->axis[other];
            if (!pl_space_stems(NULL, near, problem, NULL, look_at, climb))
                return false;
        }
    }
    return true;
}

double pl_climb(struct pl_layout *stem, double worth, const struct pl_space *space,
                const struct pl_problem *problem, pl_stem_worth *worth_of, bool (*over)(void *arg),
                void *arg)
{
    struct climb climb = {worth_of, over, arg, *stem, worth};
    double before;

    do {
        before = climb.worth;
    } while (step(&climb, space, problem) && climb.worth > before);
    *stem = climb.best;
    return climb.worth;
}
