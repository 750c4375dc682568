/* Problems that shrink; fidelity.h says how. */
#include "plan/fidelity.h"

#include <errno.h>
#include <limits.h>

#include "base/base.h"
#include "plan/plan.h"

/* What "auto" is: one replica of thin stages, for a few steps. On generated landscapes
 * (bench_search --fidelity) a second one with all layers cost more than it told. */
static const struct pl_fidelity usual[] = {
    {.replicas = 1, .stage_layers = 2, .steps = 3},
};

static int least(int value, int limit)
{
    return limit > 0 && limit < value ? limit : value;
}

/* Are all layers of one kind? */
static bool uniform(const struct pl_model *model)
{
    return !model->pattern[0] && !model->global_every && !model->linear_attention_freq &&
           !(pl_model_is_moe(model) && (model->moe.every > 1 || model->moe.dense_layers > 0));
}

static void reduce_layers(struct pl_reduced *reduced, const struct pl_fidelity *fidelity)
{
    int stages = reduced->layout.pp * reduced->layout.vp;

    if (uniform(&reduced->model) && pl_stages_equal(&reduced->layout, reduced->model.layers))
        reduced->model.layers =
            stages * least(reduced->model.layers / stages, fidelity->stage_layers);
}

/* Micro-batches of a replica: whole rounds of the pipeline, so that it fills as it does at full
 * size and interleaved schedules exist. */
static int rounds(int micro_batches, const struct pl_layout *layout,
                  const struct pl_fidelity *fidelity)
{
    int few = least(micro_batches, fidelity->micro_batches);
    int round = layout->pp * (pl_schedule_is_v(layout->schedule) || pl_is_dualpipe(layout) ? 2 : 1);

    return least(micro_batches, (few + round - 1) / round * round);
}

/* The layout on DP replicas of MICRO_BATCHES each; false where that is not legal. */
static bool on_replicas(struct pl_reduced *reduced, const struct pl_problem *problem, int dp,
                        int micro_batches)
{
    struct pl_layout *l = &reduced->layout;
    struct pl_problem small = pl_reduced_problem(reduced, problem);

    l->world = l->world / l->dp * dp;
    reduced->workload.global_batch = l->micro_batch * dp * micro_batches;
    if (!pl_layout_derive(l))
        return false;
    if (l->dp * l->cp == 1)
        l->zero = l->zero_scope = 0; /* one rank holds all of it */
    if (l->shard > 0 && (l->zero == 0 || l->dp * l->cp % l->shard != 0))
        l->shard = 0;
    pl_layout_settle(l, &small);
    return pl_layout_check(NULL, &small, l);
}

/* The largest part of DP replicas that is at most LIMIT and legal, else the smallest above. */
static bool reduce_replicas(struct pl_reduced *reduced, const struct pl_problem *problem, int limit,
                            int micro_batches)
{
    const struct pl_layout whole = reduced->layout;
    int dp = whole.dp;

    for (int n = least(dp, limit); n >= 1; n--) {
        reduced->layout = whole;
        if (dp % n == 0 && on_replicas(reduced, problem, n, micro_batches))
            return true;
    }
    for (int n = least(dp, limit) + 1; n <= dp; n++) {
        reduced->layout = whole;
        if (dp % n == 0 && on_replicas(reduced, problem, n, micro_batches))
            return true;
    }
    return false;
}

void pl_whole(struct pl_reduced *ret, const struct pl_problem *problem,
              const struct pl_layout *layout)
{
    *ret = (struct pl_reduced){*problem->model, *problem->workload, *layout};
    pl_batch_settle(&ret->workload, &ret->layout);
}

bool pl_reduce(struct pl_reduced *ret, const struct pl_problem *problem,
               const struct pl_layout *layout, const struct pl_fidelity *fidelity)
{
    int micro_batches = pl_microbatches(layout, problem->workload);

    pl_whole(ret, problem, layout);
    reduce_layers(ret, fidelity);
    if (!reduce_replicas(ret, problem, fidelity->replicas, rounds(micro_batches, layout, fidelity)))
        return false;
    if (fidelity->devices > 0 && ret->layout.world > fidelity->devices)
        return false;
    return fidelity->steps > 0 || ret->layout.world < layout->world ||
           ret->model.layers < problem->model->layers ||
           ret->workload.global_batch < pl_batch(problem->workload, layout);
}

struct pl_problem pl_reduced_problem(const struct pl_reduced *reduced,
                                     const struct pl_problem *problem)
{
    return (struct pl_problem){&reduced->model, problem->cluster, &reduced->workload,
                               problem->trainer};
}

struct pl_trial_limits pl_fidelity_limits(const struct pl_trial_limits *limits,
                                          const struct pl_fidelity *fidelity)
{
    struct pl_trial_limits few = *limits;

    if (fidelity && fidelity->steps > 0) {
        few.min_steps = least(few.min_steps, fidelity->steps);
        few.max_steps = least(few.max_steps, fidelity->steps);
    }
    return few;
}

/* ---- as JSON ------------------------------------------------------------- */

static const char *const keys[] = {"replicas", "stage_layers", "micro_batches",
                                   "steps",    "devices",      NULL};

json_t *pl_reduced_json(const struct pl_reduced *reduced)
{
    return json_pack("{s:i, s:i, s:o}", "layers", reduced->model.layers, "global_batch",
                     reduced->workload.global_batch, "layout", pl_layout_json(&reduced->layout));
}

int pl_reduced_parse(struct pl_reduced *ret, const json_t *json, const struct pl_problem *problem,
                     struct err *error)
{
    struct pl_reduced reduced = {*problem->model, *problem->workload, {0}};
    struct pl_problem small = pl_reduced_problem(&reduced, problem);
    int most = problem->workload->global_batch, r;

    reduced.workload.nbatches = 0;
    for (int i = 0; i < problem->workload->nbatches; i++)
        most = problem->workload->batch[i] > most ? problem->workload->batch[i] : most;
    if ((r = jx_need(json, "layers", error)) < 0 || (r = jx_need(json, "global_batch", error)) < 0)
        return r;
    if ((r = jx_get_int(&reduced.model.layers, json, "layers", 1, problem->model->layers, error)) <
            0 ||
        (r = jx_get_int(&reduced.workload.global_batch, json, "global_batch", 1, most, error)) < 0)
        return r;
    r = pl_layout_parse(&reduced.layout, json_object_get(json, "layout"), &small, error);
    if (r < 0)
        return err_under(error, "/layout");
    *ret = reduced;
    return 0;
}

static json_t *fidelity_json(const struct pl_fidelity *fidelity)
{
    const int values[] = {fidelity->replicas, fidelity->stage_layers, fidelity->micro_batches,
                          fidelity->steps, fidelity->devices};
    json_t *v = json_object();

    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (values[i] > 0)
            json_object_set_new(v, keys[i], json_integer(values[i]));
    return v;
}

json_t *pl_fidelities_json(const struct pl_fidelity *fidelity, int count)
{
    json_t *v = count > 0 ? json_array() : json_string("full");

    for (int i = 0; i < count; i++)
        json_array_append_new(v, fidelity_json(&fidelity[i]));
    return v;
}

static int parse_one(struct pl_fidelity *ret, const json_t *json, struct err *error)
{
    struct pl_fidelity f = {0};
    int r;

    if (!json_is_object(json))
        return err_at(error, -EINVAL, "", "a fidelity must be an object");
    if ((r = jx_keys(json, keys, error)) < 0 ||
        (r = jx_get_int(&f.replicas, json, "replicas", 1, INT_MAX, error)) < 0 ||
        (r = jx_get_int(&f.stage_layers, json, "stage_layers", 1, INT_MAX, error)) < 0 ||
        (r = jx_get_int(&f.micro_batches, json, "micro_batches", 1, INT_MAX, error)) < 0 ||
        (r = jx_get_int(&f.steps, json, "steps", PL_LIMIT_STEPS_MIN, PL_LIMIT_STEPS_MAX, error)) <
            0 ||
        (r = jx_get_int(&f.devices, json, "devices", 1, INT_MAX, error)) < 0)
        return r;
    if (!f.replicas && !f.stage_layers && !f.micro_batches && !f.steps)
        return err_at(error, -EINVAL, "",
                      "a fidelity must reduce something: replicas, stage_layers, micro_batches or "
                      "steps");
    *ret = f;
    return 0;
}

static int parse_list(struct pl_fidelity *ret, int *ret_count, const json_t *list,
                      struct err *error)
{
    size_t n = json_array_size(list);
    char at[16];

    if (n == 0 || n > PL_MAX_FIDELITIES)
        return err_at(error, -EINVAL, "", "must be 1 to %d fidelities", PL_MAX_FIDELITIES);
    for (size_t i = 0; i < n; i++) {
        int r = parse_one(&ret[i], json_array_get(list, i), error);

        if (r < 0) {
            snprintf(at, sizeof(at), "/%zu", i);
            return err_under(error, at);
        }
    }
    *ret_count = (int)n;
    return 0;
}

int pl_fidelities_parse(struct pl_fidelity *ret, int *ret_count, const json_t *trial,
                        struct err *error)
{
    const json_t *v = trial ? json_object_get(trial, "fidelity") : NULL;
    const char *word = json_string_value(v);
    int r = 0;

    *ret_count = 0;
    if (!v || str_eq(word, "full"))
        return 0;
    if (str_eq(word, "auto")) {
        *ret_count = ARRAY_LEN(usual);
        memcpy(ret, usual, sizeof(usual));
        return 0;
    }
    if (json_is_array(v)) {
        r = parse_list(ret, ret_count, v, error);
    } else if (json_is_object(v)) {
        *ret_count = 1;
        r = parse_one(ret, v, error);
    } else {
        return err_at(error, -EINVAL, "/fidelity",
                      "must be \"auto\", \"full\", a fidelity or an array of them");
    }
    return r < 0 ? err_under(error, "/fidelity") : 0;
}
