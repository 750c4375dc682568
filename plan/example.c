/*
 * Worked examples: published studies, reproduced by the cost model.
 *
 * An example is a file in examples/: a model, a space of layouts and rows of (cluster, global
 * batch), with what was published of each row where something was. For each row the whole space is
 * ranked and the best layout reported with its share of peak; weak or strong scaling efficiency is
 * tokens/s a device relative to the first row. The keys of the layout that the study printed do not
 * narrow the space: where they rank in it is part of the answer.
 */
#include "plan/preset.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/plan.h"

static const double HEADROOM = 0.05; /* share of a device's memory that is left free */

const char *const *pl_examples(void)
{
    return pl_example_preset_names;
}

static const char *text_of(const char *name)
{
    for (const struct pl_preset *p = pl_example_preset_table; p->name; p++)
        if (!strcmp(p->name, name))
            return p->text;
    return NULL;
}

/* What was published of a row, with the share of peak that MFU counts where the source's counts
 * recomputation, too (hfu): like is compared with like. New reference. */
static json_t *published_of(const json_t *row, const struct pl_model *model, int seq)
{
    json_t *v = json_deep_copy(json_object_get(row, "published"));
    double hfu = json_number_value(json_object_get(v, "hfu"));

    if (!v)
        return json_null();
    if (hfu > 0)
        json_object_set_new(v, "mfu",
                            json_real(hfu * pl_model_flops_per_token(model, seq) /
                                      pl_model_hardware_flops_per_token(model, seq)));
    return v;
}

/* A row of an example, read. */
struct study {
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
    struct pl_problem problem; /* borrows from the members above */
    struct pl_space space;
};

static int parse_row(struct study *ret, const json_t *example, const json_t *row, struct err *error)
{
    const char *trainer = json_string_value(json_object_get(example, "trainer"));
    AUTO_JSON *workload = json_pack("{s:O}", "global_batch", json_object_get(row, "global_batch"));
    int r;

    ret->problem =
        (struct pl_problem){&ret->model, &ret->cluster, &ret->workload, pl_trainer_find(trainer)};
    if ((r = pl_model_parse(&ret->model, json_object_get(example, "model"), error)) < 0 ||
        (r = pl_cluster_parse(&ret->cluster, json_object_get(row, "cluster"), NULL, error)) < 0 ||
        (r = pl_workload_parse(&ret->workload, workload, &ret->model, ret->problem.trainer,
                               error)) < 0)
        return r;
    return pl_space_parse(&ret->space, json_object_get(example, "space"), &ret->problem, error);
}

/* What the model says of a layout of a row: new reference. */
static json_t *entry_json(const struct pl_plan_entry *entry, const struct study *study)
{
    char text[160];
    double mfu = pl_mfu(&study->problem, &entry->layout, entry->cost.tokens_per_s);

    return json_pack("{s:o, s:s, s:f, s:f, s:o, s:f}", "layout", pl_layout_json(&entry->layout),
                     "text", pl_layout_text(text, &entry->layout), "seconds", entry->cost.total,
                     "tokens_per_s", entry->cost.tokens_per_s, "mfu",
                     mfu > 0 ? json_real(mfu) : json_null(), "memory_bytes", entry->memory.total);
}

/* ---- where the published layout ranks ------------------------------------ */

struct faster {
    struct pl_cost_ctx *cost;
    struct pl_memory_ctx *memory;
    double seconds, bytes; /* of the published layout; offered by a device */
    size_t count;
};

static bool count_faster(void *arg, const struct pl_layout *layout)
{
    struct faster *f = arg;
    struct pl_memory memory;
    struct pl_cost cost;

    pl_cost_at(&cost, f->cost, layout);
    if (cost.total < f->seconds * (1 - 1e-9)) {
        pl_memory_at(&memory, f->memory, layout);
        f->count += memory.total <= f->bytes;
    }
    return true;
}

/* Layouts of the row's space that fit and take less than SECONDS. */
static size_t faster_than(double seconds, const struct study *study)
{
    struct faster f = {.cost = pl_cost_ctx_new(&study->problem, NULL),
                       .memory = pl_memory_ctx_new(&study->problem),
                       .seconds = seconds,
                       .bytes = pl_memory_offered(&study->cluster, HEADROOM)};

    pl_space_enumerate(&study->space, &study->problem, count_faster, &f);
    pl_cost_ctx_free(f.cost);
    pl_memory_ctx_free(f.memory);
    return f.count;
}

/* SPACE with the keys of LAYOUT at its values. New reference. */
static json_t *pinned_of(const json_t *space, const json_t *layout)
{
    json_t *pinned = json_deep_copy(space), *value;
    const char *key;

    json_object_foreach((json_t *)(uintptr_t)layout, key, value)
        json_object_set_new(pinned, key, json_pack("[O]", value));
    return pinned;
}

/*
 * The fastest layout with the keys that were published, and its rank among all FITTING ones of the
 * free space; where none fits, its rank is null and "reason" says why. Null where no layout was
 * published. New reference into *RET.
 */
static int published_layout(json_t **ret, const json_t *example, struct study *study,
                            const struct pl_plan *best, struct err *error)
{
    const json_t *keys = json_object_get(example, "published_layout");
    AUTO_JSON *pinned = pinned_of(json_object_get(example, "space"), keys);
    struct pl_space space;
    struct pl_plan plan = {0};
    struct err why = {0};
    json_t *v;
    int r;

    if (!keys) {
        *ret = json_null();
        return 0;
    }
    r = pl_space_parse(&space, pinned, &study->problem, error);
    if (r < 0)
        return err_under(error, "/published_layout");
    r = pl_plan_rank(&plan, &space, &study->problem, 1, HEADROOM, PL_TOKENS_PER_S, &why);
    if (r < 0) {
        *ret = json_pack("{s:n, s:I, s:s}", "rank", "of", (json_int_t)best->fitting, "reason",
                         why.text);
        return 0;
    }
    v = entry_json(&plan.at[0], study);
    json_object_set_new(v, "rank",
                        json_integer((json_int_t)faster_than(plan.at[0].cost.total, study) + 1));
    json_object_set_new(v, "of", json_integer((json_int_t)best->fitting));
    json_object_set_new(v, "slowdown",
                        json_real(plan.at[0].cost.total / best->at[0].cost.total - 1));
    pl_plan_done(&plan);
    *ret = v;
    return 0;
}

/* The best layout of one row, as JSON with what was published. */
static int best_of(json_t **ret, double *ret_per_device, const json_t *example, const json_t *row,
                   struct err *error)
{
    struct study study;
    struct pl_plan plan = {0};
    json_t *v, *layout = NULL;
    int r = parse_row(&study, example, row, error);

    if (r < 0)
        return r;
    r = pl_plan_rank(&plan, &study.space, &study.problem, 1, HEADROOM, PL_TOKENS_PER_S, error);
    if (r < 0)
        return r;
    r = published_layout(&layout, example, &study, &plan, error);
    if (r == 0) {
        v = entry_json(&plan.at[0], &study);
        json_object_set_new(v, "devices", json_integer(plan.at[0].layout.world));
        json_object_set_new(v, "global_batch", json_integer(study.workload.global_batch));
        json_object_set_new(v, "published", published_of(row, &study.model, study.workload.seq));
        json_object_set_new(v, "published_layout", layout);
        *ret_per_device = plan.at[0].cost.tokens_per_s / plan.at[0].layout.world;
        *ret = v;
    }
    pl_plan_done(&plan);
    return r;
}

int pl_example_json(json_t **ret, const char *name, struct err *error)
{
    const char *text = text_of(name);
    AUTO_JSON *example = NULL;
    json_t *out, *rows, *row;
    double first = 0;
    size_t i;
    int r;

    if (!text)
        return err_set(error, -ENOENT, "unknown example \"%.64s\"", name);
    r = jx_parse(&example, text, strlen(text), error);
    if (r < 0)
        return r;
    rows = json_array();
    json_array_foreach(json_object_get(example, "rows"), i, row) {
        json_t *line = NULL;
        double per_device;

        r = best_of(&line, &per_device, example, row, error);
        if (r < 0) {
            json_decref(rows);
            return err_wrap(error, "example %s, row %zu", name, i + 1);
        }
        first = i ? first : per_device;
        json_object_set_new(line, "efficiency", json_real(per_device / first));
        json_array_append_new(rows, line);
    }
    out =
        json_pack("{s:s, s:O, s:O, s:o}", "name", name, "title", json_object_get(example, "title"),
                  "source", json_object_get(example, "source"), "rows", rows);
    *ret = out;
    return 0;
}
