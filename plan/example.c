/*
 * Worked examples: published studies, asked again of the cost model.
 *
 * An example is a file in examples/: a model, a space of layouts and rows of (cluster, global
 * batch), with what was published of each row where something was. For each row the whole space is
 * ranked and the best layout reported with its share of peak; weak or strong scaling efficiency is
 * tokens/s a device relative to the first row.
 */
#include "plan/preset.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/plan.h"

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
static json_t *published_of(const json_t *row, const struct pl_model *m, int seq)
{
    json_t *v = json_deep_copy(json_object_get(row, "published"));
    double hfu = json_number_value(json_object_get(v, "hfu"));

    if (!v)
        return json_null();
    if (hfu > 0)
        json_object_set_new(v, "mfu",
                            json_real(hfu * pl_model_flops_per_token(m, seq) /
                                      pl_model_hardware_flops_per_token(m, seq)));
    return v;
}

/* The best layout of one row, as JSON with what was published. */
static int best_of(json_t **ret, double *ret_per_device, const json_t *example, const json_t *row,
                   struct err *e)
{
    struct pl_model m;
    struct pl_cluster c;
    struct pl_workload w;
    struct pl_space space;
    struct pl_plan plan = {0};
    struct pl_problem p = {&m, &c, &w,
                           pl_trainer_find(json_string_value(json_object_get(example, "trainer")))};
    AUTO_JSON *workload = json_pack("{s:O}", "global_batch", json_object_get(row, "global_batch"));
    const struct pl_plan_entry *best;
    char text[160];
    double mfu;
    int r;

    if ((r = pl_model_parse(&m, json_object_get(example, "model"), e)) < 0 ||
        (r = pl_cluster_parse(&c, json_object_get(row, "cluster"), NULL, e)) < 0 ||
        (r = pl_workload_parse(&w, workload, &m, p.trainer, e)) < 0 ||
        (r = pl_space_parse(&space, json_object_get(example, "space"), &m, &c, &w, p.trainer, e)) <
            0 ||
        (r = pl_plan_rank(&plan, &space, &p, 1, 0.05, false, e)) < 0)
        return r;
    best = &plan.at[0];
    mfu = pl_mfu(&m, &c, &best->layout, &w, best->cost.tokens_per_s);
    *ret_per_device = best->cost.tokens_per_s / best->layout.world;
    *ret = json_pack("{s:i, s:i, s:o, s:s, s:f, s:f, s:o, s:f}", "devices", best->layout.world,
                     "global_batch", w.global_batch, "layout", pl_layout_json(&best->layout),
                     "text", pl_layout_text(text, &best->layout), "seconds", best->cost.total,
                     "tokens_per_s", best->cost.tokens_per_s, "mfu",
                     mfu > 0 ? json_real(mfu) : json_null(), "memory_bytes", best->memory.total);
    json_object_set_new(*ret, "published", published_of(row, &m, w.seq));
    pl_plan_done(&plan);
    return 0;
}

int pl_example_json(json_t **ret, const char *name, struct err *e)
{
    const char *text = text_of(name);
    AUTO_JSON *example = NULL;
    json_t *out, *rows, *row;
    double first = 0;
    size_t i;
    int r;

    if (!text)
        return err_set(e, -ENOENT, "there is no example \"%.64s\"", name);
    r = jx_parse(&example, text, strlen(text), e);
    if (r < 0)
        return r;
    rows = json_array();
    json_array_foreach(json_object_get(example, "rows"), i, row) {
        json_t *line = NULL;
        double per_device;

        r = best_of(&line, &per_device, example, row, e);
        if (r < 0) {
            json_decref(rows);
            return err_wrap(e, "example %s, row %zu", name, i + 1);
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
