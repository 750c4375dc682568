/*
 * Spaces: a walk over the legal layouts of the product of the values that each key may take.
 *
 * The walk fixes one key after another, in the order of pl_space_order. A key that has no meaning
 * with the keys fixed so far (sp with tp = 1, zero_scope with zero = 0, overlap of what does not
 * happen) takes its canonical value whatever the list says, so that each layout appears once.
 * Partial layouts that can no longer become legal are left at once. The rules of legal.c stay the
 * only judge: those that read the keys of a stem only are asked once for each stem, the others for
 * each layout.
 */
#include "plan/space_walk.h"

#include <errno.h>

#include "base/base.h"

enum {
    STEPS = 4096,       /* of a walk, after which its patience is asked: less than a millisecond */
    REFUSALS = 8 << 20, /* of a list, some seconds: then it is too long to be looked through */
};

struct walk {
    const struct pl_space *space;
    const struct pl_problem *problem;
    pl_space_visit *visit;
    void *arg;
    const struct pl_patience *patience; /* or NULL */
    bool legal_only;
    size_t end;                    /* keys of what is visited */
    size_t levels, whole;          /* keys that are walked, and so many if all of a layout */
    enum pl_key key[PL_WALK_KEYS]; /* them, in their order */
    size_t count, steps;
    size_t refused, refusals; /* by the rules so far; after so many it ends, 0: never */
    struct pl_layout layout;
};

static bool has(const struct pl_space_axis *axis, int value)
{
    for (int i = 0; i < axis->n; i++)
        if (axis->value[i] == value)
            return true;
    return false;
}

bool pl_space_applies(int *ret, const struct pl_space *space, const struct pl_problem *problem,
                      const struct pl_layout *layout, enum pl_key key)
{
    *ret = pl_layout_keys[key].standard;
    switch (key) {
    case PL_KEY_STAGES:
        if (layout->pp > 1 && !space->axis[key].given)
            *ret = pl_stages_auto(problem, layout->pp, layout->vp);
        return layout->pp > 1 && space->axis[key].given;
    case PL_KEY_ZERO_SCOPE:
        *ret = layout->zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
        return layout->zero && (int64_t)layout->dp * layout->cp > 1 &&
               pl_layout_expert_replicas(layout) > 1;
    case PL_KEY_GRAD_DTYPE:
        if (!pl_grads_are_half(problem->trainer, layout))
            return pl_key_applies(key, layout, problem->model);
        *ret = PL_GRADS_BF16;
        return false;
    default:
        return pl_key_applies(key, layout, problem->model);
    }
}

/* May DP replicas share the sequences of a step, of one of the batches? */
static bool divides_a_batch(const struct walk *walk, int64_t dp)
{
    const struct pl_space_axis *axis = &walk->space->axis[PL_KEY_GLOBAL_BATCH];

    for (int i = 0; i < axis->n; i++)
        if ((axis->value[i] ? axis->value[i] : walk->problem->workload->global_batch) % dp == 0)
            return true;
    return false;
}

/* False where no legal layout follows from the keys fixed so far, KEY being the last of them. */
static bool may_continue(struct walk *walk, enum pl_key key)
{
    struct pl_layout *layout = &walk->layout;
    const struct pl_model *model = walk->problem->model;
    int64_t dense = (int64_t)layout->tp * layout->cp * layout->pp;

    switch (key) {
    case PL_KEY_TP:
        return model->kv_heads % layout->tp == 0 && layout->world % layout->tp == 0;
    case PL_KEY_PP:
        return layout->world % dense == 0 && model->layers + 2 >= layout->pp &&
               divides_a_batch(walk, layout->world / dense);
    case PL_KEY_VP: /* the ends may hold the embedding alone, and the loss */
        return (layout->vp == 1 || layout->pp > 1) &&
               (int64_t)layout->pp * layout->vp <= model->layers + 2;
    case PL_KEY_STAGES:
        return layout->stages != PL_STAGES_EVEN ||
               (layout->pp * layout->vp <= model->layers &&
                (walk->problem->trainer->uneven_layers || walk->problem->cluster->parts ||
                 model->layers % (layout->pp * layout->vp) == 0));
    case PL_KEY_ETP:
        return pl_layout_derive(layout) && (layout->etp == 1 || layout->etp == layout->tp) &&
               !(walk->problem->trainer->experts_follow_tp && model->moe.experts &&
                 layout->etp != (layout->ep == 1 ? layout->tp : 1)) &&
               (!walk->space->axis[PL_KEY_DP].n ||
                has(&walk->space->axis[PL_KEY_DP], layout->dp)) &&
               (!walk->space->axis[PL_KEY_EDP].n ||
                has(&walk->space->axis[PL_KEY_EDP], layout->edp));
    case PL_KEY_GLOBAL_BATCH:
        return pl_batch(walk->problem->workload, layout) % layout->dp == 0;
    case PL_KEY_MICRO_BATCH:
        return pl_batch(walk->problem->workload, layout) %
                   ((int64_t)layout->micro_batch * layout->dp) ==
               0;
    case PL_KEY_SCHEDULE:
        if (pl_schedule_is_v(layout->schedule))
            return layout->vp == 2;
        return layout->pp == 1 || (layout->vp > 1) == (layout->schedule == PL_INTERLEAVED);
    default:
        return true;
    }
}

static bool arrive(struct walk *walk)
{
    walk->count++;
    return !walk->visit || walk->visit(walk->arg, &walk->layout);
}

/* What rules there are to ask when the keys before LEVEL are fixed. */
static bool is_sound(const struct walk *walk, size_t level)
{
    if (!walk->legal_only || (level != PL_STEM_KEYS && level != walk->whole))
        return true;
    return pl_layout_check_part(walk->problem, &walk->layout, level == PL_STEM_KEYS);
}

bool pl_patience_over(const struct pl_patience *patience)
{
    return patience && patience->spent(patience->arg) >= 1;
}

/* Options that keep their standard, as most do, are no levels of the walk, unless the trainer
 * decides about one. */
static void set_levels(struct walk *walk)
{
    for (size_t i = 0; i < walk->end; i++) {
        const struct pl_layout_key *row = &pl_layout_keys[pl_space_order[i]];
        const struct pl_space_axis *axis = &walk->space->axis[pl_space_order[i]];

        if (row->part != PL_OPTION || axis->n != 1 || axis->value[0] != row->standard ||
            (row == &pl_layout_keys[PL_KEY_GRAD_DTYPE] && walk->problem->trainer->half_replicas))
            walk->key[walk->levels++] = pl_space_order[i];
    }
    walk->whole = walk->end == PL_WALK_KEYS ? walk->levels : SIZE_MAX;
}

/* False ends the walk. */
static bool descend(struct walk *walk, size_t level)
{
    enum pl_key key;
    const struct pl_space_axis *axis;
    int only;
    bool chosen;

    if (++walk->steps % STEPS == 0 && pl_patience_over(walk->patience))
        return false;
    if (!is_sound(walk, level))
        return ++walk->refused != walk->refusals;
    if (level == walk->levels)
        return arrive(walk);
    key = walk->key[level];
    axis = &walk->space->axis[key];
    chosen = pl_space_applies(&only, walk->space, walk->problem, &walk->layout, key);
    for (int i = 0; i < (chosen ? axis->n : 1); i++) {
        int value = chosen ? axis->value[i] : only;

        if (key == PL_KEY_ZERO_SCOPE && chosen && value == PL_SCOPE_NONE)
            continue; /* says nothing where the scope matters */
        pl_layout_set(&walk->layout, &pl_layout_keys[key], value);
        if (key == PL_KEY_ETP)
            pl_layout_derive(&walk->layout);
        if ((level >= PL_STEM_KEYS || !walk->legal_only || may_continue(walk, key)) &&
            !descend(walk, level + 1))
            return false;
    }
    return true;
}

static bool walk(size_t *ret_count, const struct pl_space *space, const struct pl_problem *problem,
                 const struct walk *how)
{
    struct walk k = *how;
    bool whole;

    k.space = space;
    k.problem = problem;
    pl_layout_default(&k.layout, problem->workload);
    set_levels(&k);
    whole = descend(&k, 0);
    if (ret_count)
        *ret_count = k.count;
    return whole;
}

size_t pl_space_enumerate(const struct pl_space *space, const struct pl_problem *problem,
                          pl_space_visit *visit, void *arg)
{
    size_t n;

    pl_space_visit_all(&n, space, problem, NULL, visit, arg);
    return n;
}

bool pl_space_visit_all(size_t *ret_count, const struct pl_space *space,
                        const struct pl_problem *problem, const struct pl_patience *patience,
                        pl_space_visit *visit, void *arg)
{
    const struct walk how = {
        .visit = visit, .arg = arg, .patience = patience, .legal_only = true, .end = PL_WALK_KEYS};

    return walk(ret_count, space, problem, &how);
}

bool pl_space_product(size_t *ret_count, const struct pl_space *space,
                      const struct pl_problem *problem, size_t keys,
                      const struct pl_patience *patience, pl_space_visit *visit, void *arg)
{
    const struct walk how = {
        .visit = visit, .arg = arg, .patience = patience, .end = keys ? keys : PL_WALK_KEYS};

    return walk(ret_count, space, problem, &how);
}

bool pl_space_stems(size_t *ret_count, const struct pl_space *space,
                    const struct pl_problem *problem, const struct pl_patience *patience,
                    pl_space_visit *visit, void *arg)
{
    const struct walk how = {
        .visit = visit, .arg = arg, .patience = patience, .legal_only = true, .end = PL_STEM_KEYS};

    return walk(ret_count, space, problem, &how);
}

bool pl_space_leaves(const struct pl_space *space, const struct pl_problem *problem,
                     const struct pl_layout *stem, const struct pl_patience *patience,
                     pl_space_visit *visit, void *arg)
{
    struct walk k = {.space = space,
                     .problem = problem,
                     .patience = patience,
                     .visit = visit,
                     .arg = arg,
                     .legal_only = true,
                     .end = PL_WALK_KEYS,
                     .layout = *stem};

    set_levels(&k);
    return descend(&k, PL_STEM_KEYS);
}

int pl_space_compare(const struct pl_layout *left, const struct pl_layout *right)
{
    for (size_t i = 0; i < PL_WALK_KEYS; i++) {
        int x = pl_layout_get(left, &pl_layout_keys[pl_space_order[i]]);
        int y = pl_layout_get(right, &pl_layout_keys[pl_space_order[i]]);

        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

struct list {
    struct pl_layout *at;
    size_t n, cap, max;
};

static bool append(void *arg, const struct pl_layout *layout)
{
    struct list *x = arg;

    if (x->n == x->max)
        return false;
    MEM_GROW(x->at, x->n, x->cap);
    x->at[x->n++] = *layout;
    return true;
}

int pl_space_list(struct pl_layout **ret, size_t *ret_count, size_t max,
                  const struct pl_space *space, const struct pl_problem *problem,
                  const struct pl_patience *patience, struct err *error)
{
    struct list x = {.max = max};
    const struct walk how = {.visit = append,
                             .arg = &x,
                             .patience = patience,
                             .legal_only = true,
                             .end = PL_WALK_KEYS,
                             .refusals = REFUSALS};

    if (!walk(NULL, space, problem, &how)) {
        free(x.at);
        if (pl_patience_over(patience))
            return err_set(error, -ECANCELED, "the space is too large for the time limit");
        return err_set(error, -E2BIG,
                       "the space has more than %zu legal layouts, or too many others", max);
    }
    *ret = x.at;
    *ret_count = x.n;
    return 0;
}

void pl_space_outside(struct str *ret, const struct pl_space *space,
                      const struct pl_problem *problem, const struct pl_layout *layout)
{
    int only;

    for (size_t i = 0; i < PL_WALK_KEYS; i++) {
        enum pl_key key = pl_space_order[i];
        const struct pl_layout_key *row = &pl_layout_keys[key];
        char value[16];

        if (space->axis[key].given && pl_space_applies(&only, space, problem, layout, key) &&
            !has(&space->axis[key], pl_layout_get(layout, row)))
            str_addf(ret, "%s%s %s", ret->len ? ", " : "", row->name,
                     pl_layout_value_text(value, row, pl_layout_get(layout, row)));
    }
}

bool pl_space_has(const struct pl_space *space, const struct pl_problem *problem,
                  const struct pl_layout *layout)
{
    int only;

    for (size_t i = 0; i < PL_WALK_KEYS; i++) {
        int value = pl_layout_get(layout, &pl_layout_keys[pl_space_order[i]]);

        if (pl_space_applies(&only, space, problem, layout, pl_space_order[i])
                ? !has(&space->axis[pl_space_order[i]], value)
                : value != only)
            return false;
    }
    if ((space->axis[PL_KEY_DP].n && !has(&space->axis[PL_KEY_DP], layout->dp)) ||
        (space->axis[PL_KEY_EDP].n && !has(&space->axis[PL_KEY_EDP], layout->edp)))
        return false;
    return pl_layout_check(NULL, problem, layout);
}
