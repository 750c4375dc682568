/* The space of a plan on a cluster of parts: which stages leave few devices idle. */
#include "plan/parts.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/stages.h"

/* A number of ranks for each stage, and what follows. */
struct stage_size {
    int world, pp;
};

static int by_world(const void *left, const void *right)
{
    const struct stage_size *a = left, *b = right;

    return a->world != b->world ? b->world - a->world : a->pp - b->pp;
}

/* Sizes that leave the fewest devices idle, at most MOST of them and no more than a tenth of the
 * devices below the best; returns how many. */
static int sizes_of(struct stage_size *ret, int most, const struct pl_parts *parts, int layers)
{
    int first = pl_cluster_devices(&parts->at[0]), second = pl_cluster_devices(&parts->at[1]);
    int largest = first < second ? first : second, n = 0;
    AUTO_FREE struct stage_size *all = mem_alloc((size_t)largest * sizeof(*all));

    for (int ranks = 1; ranks <= largest; ranks++) {
        int pp = first / ranks + second / ranks;

        if (pp <= layers && pp <= PL_MAX_RUNS)
            all[n++] = (struct stage_size){ranks * pp, pp};
    }
    if (!n)
        return 0;
    qsort(all, (size_t)n, sizeof(*all), by_world);
    for (int i = 0; i < n; i++) {
        if (i == most || all[i].world < 0.9 * all[0].world)
            return i;
        ret[i] = all[i];
    }
    return n;
}

static int by_value(const void *left, const void *right)
{
    const int *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

static void fill(struct pl_space_axis *axis, const struct stage_size *size, int n, bool worlds)
{
    axis->given = false;
    axis->n = 0;
    for (int i = 0; i < n; i++) {
        int value = worlds ? size[i].world : size[i].pp, k = 0;

        while (k < axis->n && axis->value[k] != value)
            k++;
        axis->value[k] = value;
        axis->n += k == axis->n;
    }
    qsort(axis->value, (size_t)axis->n, sizeof(axis->value[0]), by_value);
}

static int refuse_derived(const json_t *json, struct err *error)
{
    static const enum pl_key keys[] = {PL_KEY_WORLD, PL_KEY_STAGES, PL_KEY_DP, PL_KEY_EDP};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *name = pl_layout_keys[keys[i]].name;
        char at[32];

        snprintf(at, sizeof(at), "/%s", name);
        if (json_object_get(json, name))
            return err_at(error, -EINVAL, at,
                          "%s follows from the parts of the cluster: leave it out", name);
    }
    return 0;
}

int pl_parts_space(struct pl_space *ret, const json_t *json, const struct pl_problem *problem,
                   struct err *error)
{
    enum { MOST = 64 };
    struct stage_size size[MOST];
    AUTO_FREE struct pl_space *space = mem_alloc(sizeof(*space));
    AUTO_JSON *named = json && json_is_object(json) ? json_copy((json_t *)(uintptr_t)json) : NULL;
    int n = sizes_of(size, MOST, problem->cluster->parts, problem->model->layers), r;

    if (named && (r = refuse_derived(named, error)) < 0)
        return r;
    if (!n)
        return err_set(error, -ENOENT,
                       "the model's %d layers are too few for a pipeline over parts of %d and %d "
                       "devices: every stage has as many devices as the smaller part at most; give "
                       "the parts \"nodes\" that are more alike",
                       problem->model->layers, pl_cluster_devices(&problem->cluster->parts->at[0]),
                       pl_cluster_devices(&problem->cluster->parts->at[1]));
    if ((r = pl_space_parse(space, named ? named : json, problem, error)) < 0)
        return r;
    fill(&space->axis[PL_KEY_WORLD], size, n, true);
    if (!space->axis[PL_KEY_PP].given)
        fill(&space->axis[PL_KEY_PP], size, n, false);
    if (!space->axis[PL_KEY_VP].given)
        space->axis[PL_KEY_VP] = (struct pl_space_axis){.n = 1, .value = {1}};
    if (!space->axis[PL_KEY_SCHEDULE].given)
        space->axis[PL_KEY_SCHEDULE] = (struct pl_space_axis){.n = 1, .value = {PL_1F1B}};
    space->axis[PL_KEY_STAGES] = (struct pl_space_axis){.n = 1, .value = {PL_STAGES_EVEN}};
    *ret = *space;
    return 0;
}
