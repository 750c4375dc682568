/*
 * The values that each key of a space may take: by default, all that a trainer supports, and as a
 * campaign lists them; and the order in which a walk (space.c) fixes the keys.
 */
#include "plan/space_walk.h"

#include <assert.h>
#include <errno.h>

#include "base/base.h"
#include "plan/precision.h"

#define WALKED_STEM(key)
#define WALKED_LEAF(key) key,
#define WALKED_OPTION(key) key,
#define WALKED_DERIVED(key)

/* Degrees first, since most of what cannot become legal is left there. */
const enum pl_key pl_space_order[] = {
    PL_KEY_WORLD,        PL_KEY_TP,          PL_KEY_CP,       PL_KEY_PP,
    PL_KEY_VP,           PL_KEY_STAGES,      PL_KEY_EP,       PL_KEY_ETP,
    PL_KEY_GLOBAL_BATCH, PL_KEY_MICRO_BATCH, PL_KEY_SCHEDULE, PL_KEY_SP,
#define KEY(name, field, part, ...) WALKED_##part(PL_KEY_##name)
#include "plan/keys.def"
};

_Static_assert(ARRAY_LEN(pl_space_order) == PL_WALK_KEYS,
               "every STEM of plan/keys.def is in this list");

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

    if (pp == 1 || problem->cluster->parts || problem->trainer->uneven_layers || layers % pp == 0 ||
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

/* Of few values, or of quarters, those that the trainer and the devices run. */
static void add_taken(struct pl_space *space, enum pl_key key, const struct pl_problem *problem)
{
    for (int v = pl_layout_keys[key].min; v <= pl_layout_keys[key].max;
         v += key == PL_KEY_OFFLOAD_OPT ? 25 : 1)
        if (pl_trainer_takes(problem->trainer, key, v) &&
            (key != PL_KEY_PRECISION || !pl_device_without(problem->cluster, v)))
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

static void add_batches(struct pl_space_axis *axis, const struct pl_workload *workload)
{
    for (int i = 0; i < workload->nbatches; i++)
        add(axis, workload->batch[i]);
    if (!workload->nbatches)
        add(axis, 0);
}

/* What divides one of the batches. */
static void add_micro_batches(struct pl_space_axis *axis, const struct pl_workload *workload)
{
    int largest = 0;

    if (!workload->nbatches)
        add_divisors(axis, workload->global_batch, workload->global_batch);
    for (int i = 0; i < workload->nbatches; i++)
        largest = workload->batch[i] > largest ? workload->batch[i] : largest;
    for (int size = 1; size <= largest && axis->n < PL_SPACE_VALUES; size++)
        for (int i = 0; i < workload->nbatches; i++)
            if (workload->batch[i] % size == 0)
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
        add_micro_batches(axis, problem->workload);
        break;
    case PL_KEY_GLOBAL_BATCH:
        add_batches(axis, problem->workload);
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
            add_taken(space, key, problem);
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

/* A space may name some of the workload's batches. */
static int known_batches(struct pl_space_axis *axis, const struct pl_workload *workload,
                         struct err *error)
{
    char text[160];

    for (int i = 0; i < axis->n; i++) {
        if (!workload->nbatches && axis->value[i] == workload->global_batch)
            axis->value[i] = 0; /* which no layout says */
        if (!pl_batch_known(workload, axis->value[i]))
            return err_at(error, -EINVAL, "/global_batch",
                          "global_batch %d is not in the workload, which has %s", axis->value[i],
                          pl_batches_text(text, workload));
    }
    if (!workload->nbatches)
        axis->n = 1;
    return 0;
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
    if ((r = known_batches(&space->axis[PL_KEY_GLOBAL_BATCH], problem->workload, error)) < 0)
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
        if (space->axis[i].n && !(pl_layout_is_option(k) && only_standard))
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
