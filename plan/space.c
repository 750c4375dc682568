/*
 * Spaces: the values that each key may take, and a walk over the legal layouts of their product.
 *
 * The walk fixes one key after another in the order below. A key that has no meaning with the keys
 * fixed so far (sp with tp = 1, zero_scope with zero = 0, overlap of what does not happen) takes
 * its canonical value whatever the list says, so that each layout appears once. Partial layouts
 * that can no longer become legal are left at once. The rules of legal.c stay the only judge: those
 * that read the keys of a stem only are asked once for each stem, the others for each layout.
 */
#include "plan/recompute.h"
#include "plan/space_walk.h"

#include <assert.h>
#include <errno.h>

#include "base/base.h"

#define WALKED_STEM(key)
#define WALKED_LEAF(key) key,
#define WALKED_OPTION(key) key,
#define WALKED_DERIVED(key)

/* Degrees first, since most of what cannot become legal is left there. */
const enum pl_key pl_space_order[] = {
    PL_KEY_WORLD, PL_KEY_TP,  PL_KEY_CP,          PL_KEY_PP,       PL_KEY_VP, PL_KEY_STAGES,
    PL_KEY_EP,    PL_KEY_ETP, PL_KEY_MICRO_BATCH, PL_KEY_SCHEDULE, PL_KEY_SP,
#define KEY(name, field, part, ...) WALKED_##part(PL_KEY_##name)
#include "plan/keys.def"
};

_Static_assert(ARRAY_LEN(pl_space_order) == PL_WALK_KEYS,
               "every STEM of plan/keys.def is in this list");

enum {
    STEPS = 4096 /* of a walk, after which its patience is asked: less than a millisecond */
};

/* ---- values -------------------------------------------------------------- */

static void add(struct pl_space_axis *axis, int value)
{
    int i = axis->n;

    for (int j = 0; j < axis->n; j++)
        if (axis->value[j] == value)
            return;
    if (axis->n == PL_SPACE_VALUES)
        return; /* the rest are larger micro-batches than any memory holds */
    for (; i > 0 && axis->value[i - 1] > value; i--)
        axis->value[i] = axis->value[i - 1];
    axis->value[i] = value;
    axis->n++;
}

static void add_divisors(struct pl_space_axis *axis, int64_t total, int max)
{
    for (int d = 1; d <= max && d <= total; d++)
        if (total % d == 0)
            add(axis, d);
}

static void add_upto(struct pl_space_axis *axis, int first, int last)
{
    for (int v = first; v <= last; v++)
        add(axis, v);
}

static int largest_world(const struct pl_space *space)
{
    const struct pl_space_axis *axis = &space->axis[PL_KEY_WORLD];

    return axis->n ? axis->value[axis->n - 1] : 1;
}

/* From here on attention and its activations outgrow a device's share of a long sequence, and
 * published runs split it (Llama 3 at 8,192 with cp 1 and at 131,072 with cp 16). */
enum { LONG_SEQUENCE = 8192 };

bool pl_long_sequences(const struct pl_problem *problem)
{
    return pl_trainer_takes(problem->trainer, PL_KEY_CP, 2) &&
           problem->workload->seq >= LONG_SEQUENCE;
}

/* Stages from which on a pipeline of even ones is deep enough. */
enum { DEEP = 8 };

int pl_stages_auto(const struct pl_problem *problem, int pp, int vp)
{
    int layers = problem->model->layers;

    if (pp == 1 || problem->trainer->uneven_layers || layers % pp == 0 ||
        (int64_t)pp * vp > layers || pl_gcd(layers, pl_cluster_devices(problem->cluster)) >= DEEP ||
        !pl_trainer_takes(problem->trainer, PL_KEY_STAGES, PL_STAGES_BALANCED))
        return PL_STAGES_EVEN;
    return PL_STAGES_BALANCED;
}

/* Chunks of stages that are balanced, as far as they are tried or named. */
static void add_balanced(struct pl_space *space, const struct pl_problem *problem)
{
    const struct pl_space_axis *pp = &space->axis[PL_KEY_PP];
    int layers = problem->model->layers;

    for (int i = 0; i < pp->n; i++)
        if (pl_stages_auto(problem, pp->value[i], 1) != PL_STAGES_EVEN)
            add_divisors(&space->axis[PL_KEY_VP], layers + 2, layers / 2);
}

/* Of stages that are not listed, those that some pipeline is tried with. */
static void add_stages(struct pl_space *space, const struct pl_problem *problem)
{
    const struct pl_space_axis *pp = &space->axis[PL_KEY_PP];

    add(&space->axis[PL_KEY_STAGES], PL_STAGES_EVEN);
    for (int i = 0; i < pp->n; i++)
        add(&space->axis[PL_KEY_STAGES], pl_stages_auto(problem, pp->value[i], 1));
}

static void add_degrees(struct pl_space *space, enum pl_key key, const struct pl_problem *problem)
{
    const struct pl_model *model = problem->model;
    const struct pl_trainer *trainer = problem->trainer;
    struct pl_space_axis *axis = &space->axis[key];
    int world = largest_world(space);
    bool takes = pl_trainer_takes(trainer, key, 2);

    switch (key) {
    case PL_KEY_TP:
        add_divisors(axis, model->kv_heads, world); /* kv_heads divides heads */
        break;
    case PL_KEY_CP:
        add_divisors(axis, takes ? problem->workload->seq : 1, world);
        break;
    case PL_KEY_PP:
        add(axis, 1);
        for (int i = 0; takes && i < space->axis[PL_KEY_WORLD].n; i++)
            add_divisors(axis, space->axis[PL_KEY_WORLD].value[i], model->layers);
        break;
    case PL_KEY_VP:
        add_divisors(axis, model->layers, takes ? model->layers / 2 : 1);
        if (takes && trainer->uneven_layers) /* embedding and loss counted as a layer each */
            add_divisors(axis, model->layers + 2, model->layers / 2);
        if (takes && !trainer->uneven_layers)
            add_balanced(space, problem);
        add(axis, 1);
        break;
    case PL_KEY_EP:
        add_divisors(axis, model->moe.experts ? model->moe.experts : 1, world);
        break;
    case PL_KEY_ETP:
        add(axis, 1);
        for (int i = 0; model->moe.experts && takes && i < space->axis[PL_KEY_TP].n; i++)
            add(axis, space->axis[PL_KEY_TP].value[i]);
        break;
    default:
        break;
    }
}

/* Of few values, or of quarters, those that the trainer runs. */
static void add_taken(struct pl_space *space, enum pl_key key, const struct pl_trainer *trainer)
{
    for (int v = pl_layout_keys[key].min; v <= pl_layout_keys[key].max;
         v += key == PL_KEY_OFFLOAD_OPT ? 25 : 1)
        if (pl_trainer_takes(trainer, key, v))
            add(&space->axis[key], v);
}

/* All replicas, or a divisor of them, which divides the world. */
static void add_shards(struct pl_space *space, const struct pl_trainer *trainer)
{
    const struct pl_space_axis *world = &space->axis[PL_KEY_WORLD];
    struct pl_space_axis *axis = &space->axis[PL_KEY_SHARD];

    add(axis, 0);
    for (int i = 0; pl_trainer_takes(trainer, PL_KEY_SHARD, 2) && i < world->n; i++)
        for (int size = 2; size <= world->value[i] / 2; size++)
            if (world->value[i] % size == 0)
                add(axis, size);
}

void pl_space_widen(struct pl_space *space, enum pl_key key, const struct pl_problem *problem)
{
    const struct pl_trainer *trainer = problem->trainer;
    struct pl_space_axis *axis = &space->axis[key];

    *axis = (struct pl_space_axis){.given = axis->given};
    switch (key) {
    case PL_KEY_WORLD:
        for (int n = 1; n < pl_cluster_devices(problem->cluster); n *= 2)
            add(axis, n);
        add(axis, pl_cluster_devices(problem->cluster));
        break;
    case PL_KEY_MICRO_BATCH:
        add_divisors(axis, problem->workload->global_batch, problem->workload->global_batch);
        break;
    case PL_KEY_STAGES:
        if (!axis->given)
            add_stages(space, problem);
        else
            add_upto(axis, PL_STAGES_EVEN,
                     pl_trainer_takes(trainer, key, PL_STAGES_BALANCED) ? PL_STAGES_WORDS - 1
                                                                        : PL_STAGES_EVEN);
        break;
    case PL_KEY_THREADS:
        add_upto(axis, 1,
                 pl_trainer_takes(trainer, key, 2) && problem->cluster->device.cpu
                     ? problem->cluster->devices_per_node
                     : 1);
        break;
    case PL_KEY_SHARD:
        add_shards(space, trainer);
        break;
    case PL_KEY_OFFLOAD_ACT:
        for (int q = 0; q <= 4 && pl_trainer_takes(trainer, key, q); q++)
            add(axis, problem->model->layers * q / 4);
        break;
    case PL_KEY_RE_LAYERS:
        add_upto(axis, 1, pl_trainer_takes(trainer, key, 2) ? problem->model->layers : 1);
        break;
    default:
        if (pl_layout_keys[key].log2)
            add_degrees(space, key, problem);
        else
            add_taken(space, key, trainer);
    }
}

static void add_powers(struct pl_space_axis *axis, int max)
{
    for (int v = 1; v <= max; v *= 2)
        add(axis, v);
}

static void add_usual_zero(struct pl_space_axis *axis, const struct pl_trainer *trainer)
{
    for (int value = 0; value <= pl_usual_zero(trainer); value++)
        if (pl_trainer_takes(trainer, PL_KEY_ZERO, value))
            add(axis, value);
}

static void fill_default(struct pl_space *space, enum pl_key key, const struct pl_problem *problem)
{
    if (key == PL_KEY_WORLD)
        add(&space->axis[key], pl_cluster_devices(problem->cluster));
    else if (key == PL_KEY_CP)
        add_powers(&space->axis[key], pl_long_sequences(problem) ? largest_world(space) : 1);
    else if (key == PL_KEY_THREADS)
        add(&space->axis[key], 1);
    else if (key == PL_KEY_PRECISION)
        add(&space->axis[key], (int)problem->workload->precision);
    else if (key == PL_KEY_ZERO)
        add_usual_zero(&space->axis[key], problem->trainer);
    else if (pl_layout_keys[key].part == PL_OPTION)
        add(&space->axis[key], pl_layout_keys[key].standard);
    else if (pl_layout_keys[key].part != PL_DERIVED)
        pl_space_widen(space, key, problem);
}

/* ---- JSON ---------------------------------------------------------------- */

static int parse_values(struct pl_space_axis *axis, const struct pl_layout_key *key,
                        const json_t *json, struct err *error)
{
    char at[64];

    if (json_array_size(json) == 0 || json_array_size(json) > PL_SPACE_VALUES) {
        snprintf(at, sizeof(at), "/%s", key->name);
        return err_at(error, -EINVAL, at, "%s needs 1..%d values, found %zu", key->name,
                      PL_SPACE_VALUES, json_array_size(json));
    }
    for (size_t i = 0; i < json_array_size(json); i++) {
        int value = 0, before = axis->n;
        struct err why = {.text = "null is not a value"};

        snprintf(at, sizeof(at), "/%s/%zu", key->name, i);
        if (json_is_null(json_array_get(json, i)) ||
            pl_layout_word(&value, key, json_array_get(json, i), &why) < 0)
            return err_at(error, -EINVAL, at, "%s", why.text);
        add(axis, value);
        if (axis->n == before)
            return err_at(error, -EINVAL, at, "value %zu of %s is given twice", i, key->name);
    }
    return 0;
}

static bool is_auto(const json_t *json)
{
    return json_is_string(json) && !strcmp(json_string_value(json), "auto");
}

/* SAID is the space's object. */
static int parse_axis(struct pl_space *space, enum pl_key key, const json_t *said,
                      const struct pl_problem *problem, struct err *error)
{
    const struct pl_layout_key *k = &pl_layout_keys[key];
    const json_t *json = json_object_get(said, k->name);
    struct pl_space_axis *axis = &space->axis[key];
    int value, r;

    if (!json || json_is_null(json)) {
        fill_default(space, key, problem);
        return 0;
    }
    if (is_auto(json)) {
        pl_space_widen(space, key, problem);
        return 0;
    }
    axis->given = true;
    if (json_is_array(json))
        return parse_values(axis, k, json, error);
    if ((r = pl_layout_word(&value, k, json, error)) < 0)
        return r;
    add(axis, value);
    return 0;
}

int pl_space_parse(struct pl_space *ret, const json_t *json, const struct pl_problem *problem,
                   struct err *error)
{
    AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
    int r;

    assert(problem->model && problem->cluster && problem->workload && problem->trainer);
    if (json && !json_is_null(json) && (r = jx_keys(json, pl_layout_key_names, error)) < 0)
        return r;
    /* The walk's order: what follows from world and tp comes after them. */
    for (size_t i = 0; i < PL_WALK_KEYS; i++)
        if ((r = parse_axis(space, pl_space_order[i], json, problem, error)) < 0)
            return r;
    for (int key = PL_KEY_DP; key <= PL_KEY_EDP; key++)
        if (!is_auto(json_object_get(json, pl_layout_keys[key].name)) &&
            (r = parse_axis(space, (enum pl_key)key, json, problem, error)) < 0)
            return r;
    *ret = *space;
    return 0;
}

json_t *pl_space_json(const struct pl_space *space)
{
    json_t *v = json_object();

    for (int i = 0; i < PL_LAYOUT_KEYS; i++) {
        const struct pl_layout_key *k = &pl_layout_keys[i];
        bool only_standard = space->axis[i].n == 1 && space->axis[i].value[0] == k->standard;
        json_t *list = json_array();

        for (int j = 0; j < space->axis[i].n; j++) {
            int value = space->axis[i].value[j];

            json_array_append_new(list, pl_layout_value_json(k, value));
        }
        if (space->axis[i].n && !(k->part == PL_OPTION && only_standard))
            json_object_set(v, k->name, list);
        json_decref(list);
    }
    return v;
}

const struct pl_space_axis *pl_space_axis(const struct pl_space *space, const char *key)
{
    const struct pl_layout_key *k = pl_layout_key_find(key);

    return k ? &space->axis[k - pl_layout_keys] : NULL;
}

/* ---- the walk ------------------------------------------------------------ */

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
    const struct pl_model *model = problem->model;
    bool replicas = (int64_t)layout->dp * layout->cp > 1 || (model->moe.experts && layout->edp > 1);

    *ret = 0;
    switch (key) {
    case PL_KEY_RE_LAYERS:
        *ret = 1;
        return pl_recompute_applies(layout, model, key);
    case PL_KEY_SP:
    case PL_KEY_TP_OVERLAP:
        return layout->tp > 1;
    case PL_KEY_CP_COMM:
        return layout->cp > 1;
    case PL_KEY_STAGES:
        if (layout->pp > 1 && !space->axis[key].given)
            *ret = pl_stages_auto(problem, layout->pp, layout->vp);
        return layout->pp > 1 && space->axis[key].given;
    case PL_KEY_SCHEDULE:
        *ret = PL_1F1B;
        return layout->pp > 1;
    case PL_KEY_ZERO_SCOPE:
        *ret = layout->zero ? PL_SCOPE_EP_AWARE : PL_SCOPE_NONE;
        return layout->zero && (int64_t)layout->dp * layout->cp > 1 &&
               pl_layout_expert_replicas(layout) > 1;
    case PL_KEY_SHARD:
        return layout->zero && (int64_t)layout->dp * layout->cp > 1;
    case PL_KEY_OVERLAP_GRAD:
        return replicas;
    case PL_KEY_OVERLAP_PARAM:
        return replicas && layout->zero;
    case PL_KEY_OVERLAP_P2P:
        return layout->pp > 1;
    case PL_KEY_OVERLAP_MOE:
    case PL_KEY_MOE_DISPATCH:
        return model->moe.experts && layout->ep > 1;
    case PL_KEY_RE_METHOD:
    case PL_KEY_RE_MLP:
    case PL_KEY_RE_MOE:
    case PL_KEY_RE_MOE_ACT:
    case PL_KEY_RE_SHARED:
    case PL_KEY_RE_NORM:
    case PL_KEY_RE_MLA:
    case PL_KEY_RE_CORE:
        return pl_recompute_applies(layout, model, key);
    case PL_KEY_FP8_PARAMS:
        return layout->precision >= PL_FP8 && layout->zero;
    default:
        return true;
    }
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
               walk->problem->workload->global_batch % (layout->world / dense) == 0;
    case PL_KEY_VP: /* the ends may hold the embedding alone, and the loss */
        return (layout->vp == 1 || layout->pp > 1) &&
               (int64_t)layout->pp * layout->vp <= model->layers + 2;
    case PL_KEY_STAGES:
        return layout->stages != PL_STAGES_EVEN ||
               (layout->pp * layout->vp <= model->layers &&
                (walk->problem->trainer->uneven_layers ||
                 model->layers % (layout->pp * layout->vp) == 0));
    case PL_KEY_ETP:
        return pl_layout_derive(layout) && (layout->etp == 1 || layout->etp == layout->tp) &&
               !(walk->problem->trainer->experts_follow_tp && model->moe.experts &&
                 layout->etp != (layout->ep == 1 ? layout->tp : 1)) &&
               (!walk->space->axis[PL_KEY_DP].n ||
                has(&walk->space->axis[PL_KEY_DP], layout->dp)) &&
               (!walk->space->axis[PL_KEY_EDP].n ||
                has(&walk->space->axis[PL_KEY_EDP], layout->edp));
    case PL_KEY_MICRO_BATCH:
        return walk->problem->workload->global_batch %
                   ((int64_t)layout->micro_batch * layout->dp) ==
               0;
    case PL_KEY_SCHEDULE:
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

/* Options that keep their standard, as most do, are no levels of the walk. */
static void set_levels(struct walk *walk)
{
    for (size_t i = 0; i < walk->end; i++) {
        const struct pl_layout_key *row = &pl_layout_keys[pl_space_order[i]];
        const struct pl_space_axis *axis = &walk->space->axis[pl_space_order[i]];

        if (row->part != PL_OPTION || axis->n != 1 || axis->value[0] != row->standard)
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
        return true;
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
                     const struct pl_layout *stem, pl_space_visit *visit, void *arg)
{
    struct walk k = {.space = space,
                     .problem = problem,
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
    size_t n;

    if (!pl_space_visit_all(&n, space, problem, patience, append, &x)) {
        free(x.at);
        if (n > max)
            return err_set(error, -E2BIG, "the space has more than %zu legal layouts", max);
        return err_set(error, -ECANCELED, "the space is too large for the time limit");
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
