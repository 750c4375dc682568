/*
 * What the options that a space does not name would bring. They are not in a space that does not
 * name them, for each is a thing to know about before it is used.
 */
#include "plan/space_walk.h"

#include "base/base.h"

/* Less is within what the cost model is wrong by from layout to layout. */
static const double WORTH_SAYING = 1.03;

/* Gradients in bf16 are another training run, not the same one faster. */
static bool is_left_out(const struct pl_space *space, enum pl_key key)
{
    const struct pl_space_axis *axis = &space->axis[key];

    return pl_layout_keys[key].part == PL_OPTION && key != PL_KEY_GRAD_DTYPE && !axis->given &&
           axis->n == 1 && axis->value[0] == pl_layout_keys[key].standard;
}

static double expected(const struct pl_plan *plan, const struct pl_problem *problem,
                       enum pl_objective objective)
{
    return pl_objective_expected(objective, problem->cluster, &plan->at[0].layout,
                                 &plan->at[0].cost);
}

bool pl_plan_beyond(struct pl_plan_entry *ret, struct str *ret_keys, const struct pl_space *space,
                    const struct pl_problem *problem, const struct pl_plan *plan, double headroom,
                    enum pl_objective objective, const struct pl_patience *patience)
{
    AUTO_FREE struct pl_space *wide = mem_alloc(sizeof(*wide));
    struct pl_plan more;
    bool better;

    *wide = *space;
    for (enum pl_key key = 0; key < PL_LAYOUT_KEYS; key++)
        if (is_left_out(space, key))
            pl_space_widen(wide, key, problem);
    pl_plan_look(&more, wide, problem, 1, headroom, objective, patience);
    better = more.n && (!plan->n || expected(&more, problem, objective) >
                                        WORTH_SAYING * expected(plan, problem, objective));
    for (enum pl_key key = 0; better && key < PL_LAYOUT_KEYS; key++) {
        const struct pl_layout_key *row = &pl_layout_keys[key];
        int value = pl_layout_get(&more.at[0].layout, row);
        char text[16];

        if (is_left_out(space, key) && value != row->standard)
            str_addf(ret_keys, "%s%s %s", ret_keys->len ? ", " : "", row->name,
                     pl_layout_value_text(text, row, value));
    }
    better = better && ret_keys->len;
    if (better)
        *ret = more.at[0];
    pl_plan_done(&more);
    return better;
}
