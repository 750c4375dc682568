/*
 * partune calibrate-stack: learn how well a trainer runs from a handful of measured runs.
 *
 * The file is a campaign (model, cluster, workload, trainer, stack) with its measured "rows". All
 * is computed here: no daemon is asked.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "plan/plan.h"
#include "tuner/client/client.h"

enum { MOST_ROWS = 1000, LEFT_OUT_ROWS = 40 };

/* What rows share, unless they say otherwise. */
struct job {
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
};

struct study {
    struct pl_trainer trainer; /* with the stack that the file starts from */
    struct job *job;           /* (n), and pointed to by sample */
    struct pl_sample *sample;
    size_t n;
};

static void study_done(struct study *study)
{
    free(study->job);
    free(study->sample);
}

/* KEY of ROW, or of what all rows share. */
static const json_t *of_either(const json_t *row, const json_t *file, const char *key)
{
    const json_t *own = json_object_get(row, key);

    return own ? own : json_object_get(file, key);
}

static int parse_job(struct job *job, const json_t *row, const json_t *file,
                     const struct pl_trainer *trainer, struct err *error)
{
    const json_t *model = of_either(row, file, "model"),
                 *workload = of_either(row, file, "workload");

    if (!model || !workload)
        return err_set(error, -EINVAL, "\"%s\" is missing", model ? "workload" : "model");
    if (pl_model_parse(&job->model, model, error) < 0)
        return err_under(error, "/model");
    if (pl_cluster_parse(&job->cluster, of_either(row, file, "cluster"), NULL, error) < 0)
        return err_under(error, "/cluster");
    if (pl_workload_parse(&job->workload, workload, &job->model, trainer, error) < 0)
        return err_under(error, "/workload");
    return 0;
}

static int parse_row(struct study *study, const json_t *row, const json_t *file, struct err *error)
{
    static const char *const keys[] = {"layout", "seconds", "memory_gib", "oom",
                                       "model",  "cluster", "workload",   NULL};
    struct job *job = &study->job[study->n];
    struct pl_problem problem = {&job->model, &job->cluster, &job->workload, &study->trainer};
    struct pl_sample sample = {
        .model = &job->model, .cluster = &job->cluster, .workload = &job->workload};
    double gib = 0;
    int r;

    if (!json_is_object(row))
        return err_set(error, -EINVAL, "a row must be an object");
    if ((r = jx_keys(row, keys, error)) < 0 || (r = jx_need(row, "layout", error)) < 0 ||
        (r = jx_get_f64(&sample.seconds, row, "seconds", 1e-6, 1e9, error)) < 0 ||
        (r = jx_get_f64(&gib, row, "memory_gib", 1e-3, 1e6, error)) < 0 ||
        (r = jx_get_bool(&sample.oom, row, "oom", error)) < 0 ||
        (r = parse_job(job, row, file, &study->trainer, error)) < 0)
        return r;
    if (sample.oom ? sample.seconds > 0 || gib > 0 : sample.seconds <= 0 && gib <= 0)
        return err_set(error, -EINVAL, "a row has seconds, memory_gib or both, or \"oom\": true");
    if (pl_layout_parse(&sample.layout, json_object_get(row, "layout"), &problem, error) < 0)
        return err_under(error, "/layout");
    if (sample.layout.dp < 1)
        return err_at(error, -EINVAL, "/layout/world", "world %d is not a multiple of the degrees",
                      sample.layout.world);
    sample.bytes = gib * 0x1p30;
    assert(study->n < MOST_ROWS); /* a row each of /rows, whose length was checked */
    study->sample[study->n++] = sample;
    return 0;
}

/* The trainer's rules and the stack that learning starts from. */
static int parse_trainer(struct pl_trainer *ret, const json_t *file, struct err *error)
{
    const char *name = "any", *rules = NULL;
    const struct pl_trainer *row;
    int r;

    if ((r = jx_get_str(&name, file, "trainer", 64, error)) < 0 ||
        (r = jx_get_str(&rules, file, "rules", 64, error)) < 0)
        return r;
    row = pl_trainer_find(rules ? rules : name);
    row = row ? row : pl_trainer_find("any");
    if (row->bundled)
        return err_at(error, -EINVAL, "/trainer", "trainer %s has no stack to learn", row->name);
    *ret = *row;
    if (json_object_get(file, "stack") &&
        pl_stack_parse(ret, json_object_get(file, "stack"), row, error) < 0)
        return err_under(error, "/stack");
    return 0;
}

static int parse_study(struct study *study, const json_t *file, struct err *error)
{
    json_t *rows = NULL;
    int r;

    if ((r = parse_trainer(&study->trainer, file, error)) < 0 ||
        (r = jx_need(file, "rows", error)) < 0 ||
        (r = jx_get_array(&rows, file, "rows", MOST_ROWS, error)) < 0)
        return r;
    study->job = mem_alloc((json_array_size(rows) + 1) * sizeof(*study->job));
    study->sample = mem_alloc((json_array_size(rows) + 1) * sizeof(*study->sample));
    for (size_t i = 0; i < json_array_size(rows); i++)
        if ((r = parse_row(study, json_array_get(rows, i), file, error)) < 0) {
            char at[32];

            snprintf(at, sizeof(at), "/rows/%zu", i);
            return err_under(error, at);
        }
    return study->n ? 0 : err_at(error, -EINVAL, "/rows", "there is no row to learn from");
}

/* ---- how good it is ------------------------------------------------------ */

struct score {
    double seconds, bytes; /* sums of absolute relative errors */
    size_t timed, sized, ran_out, foreseen;
};

static void score_add(struct score *score, const struct pl_trainer *trainer,
                      const struct pl_sample *sample)
{
    double seconds = 0, bytes;

    pl_sample_predict(sample->seconds > 0 ? &seconds : NULL, &bytes, trainer, sample);
    if (sample->seconds > 0) {
        score->seconds += fabs(seconds / sample->seconds - 1);
        score->timed++;
    }
    if (sample->bytes > 0) {
        score->bytes += fabs(bytes / sample->bytes - 1);
        score->sized++;
    }
    if (sample->oom) {
        score->ran_out++;
        score->foreseen += bytes > pl_memory_offered(sample->cluster, 0);
    }
}

/* Each row as predicted by what the others teach. */
static struct score left_out(const struct study *study)
{
    AUTO_FREE struct pl_sample *others = mem_alloc(study->n * sizeof(*others));
    struct score score = {0};

    for (size_t i = 0; i < study->n && i < LEFT_OUT_ROWS; i++) {
        struct pl_learned learned;
        size_t k = 0;

        for (size_t j = 0; j < study->n; j++)
            if (j != i)
                others[k++] = study->sample[j];
        pl_learn(&learned, &study->trainer, others, k, "left out");
        score_add(&score, &learned.trainer, &study->sample[i]);
    }
    return score;
}

static void say_score(struct cl_table *table, int row, const char *what, const struct score *score)
{
    (void)row;
    cl_table_add(table, 0, "%s", what);
    cl_table_add(table, 1, score->timed ? "%.1f %%" : "-",
                 100 * score->seconds / (double)(score->timed ? score->timed : 1));
    cl_table_add(table, 2, score->sized ? "%.1f %%" : "-",
                 100 * score->bytes / (double)(score->sized ? score->sized : 1));
    cl_table_add(table, 3, score->ran_out ? "%zu of %zu" : "-", score->foreseen, score->ran_out);
}

static void print_scores(const struct cl *client, const struct study *study,
                         const struct pl_learned *learned)
{
    static const struct cl_column columns[] = {{"mean error", CL_LEFT, false, 0, false},
                                               {"seconds", CL_RIGHT, false, 0, false},
                                               {"memory", CL_RIGHT, false, 0, false},
                                               {"out of memory", CL_RIGHT, false, 0, false}};
    struct cl_table table = {columns, ARRAY_LEN(columns), NULL, 0, 0};
    struct score before = {0}, after = {0}, others = left_out(study);

    for (size_t i = 0; i < study->n; i++) {
        score_add(&before, &study->trainer, &study->sample[i]);
        score_add(&after, &learned->trainer, &study->sample[i]);
    }
    say_score(&table, 0, "before", &before);
    say_score(&table, 1, "learned, in-sample", &after);
    say_score(&table, 2, "learned, leave-one-out", &others);
    cl_table_print(client, &table, stdout);
    cl_table_done(&table);
}

static void print_constants(const struct cl *client, const struct study *study,
                            const struct pl_learned *learned)
{
    static const struct cl_column columns[] = {{"constant", CL_LEFT, false, 0, false},
                                               {"before", CL_RIGHT, false, 0, false},
                                               {"learned", CL_RIGHT, false, 0, false},
                                               {"95 % interval", CL_LEFT, false, 0, false}};
    struct cl_table table = {columns, ARRAY_LEN(columns), NULL, 0, 0};
    const struct pl_stack *stack = &learned->trainer.stack;

    for (const struct pl_constant_name *n = pl_constant_names; n->name; n++) {
        double median = pl_constant_get(&stack->median, n),
               factor = exp(1.96 * pl_constant_get(&stack->deviation, n));

        cl_table_add(&table, 0, "%s", n->name);
        cl_table_add(&table, 1, "%.3g", pl_constant_get(pl_constants_of(&study->trainer), n));
        cl_table_add(&table, 2, "%.3g", median);
        cl_table_add(&table, 3, "%.3g - %.3g", fmax(median / factor, n->min),
                     fmin(median * factor, n->max));
    }
    cl_table_print(client, &table, stdout);
    cl_table_done(&table);
}

static int write_stack(const struct cl *client, const struct pl_learned *learned)
{
    AUTO_JSON *stack = pl_stack_json(&learned->trainer);
    AUTO_FREE char *text = json_dumps(stack, JSON_INDENT(2) | JSON_REAL_PRECISION(4));
    AUTO_FREE char *line = mem_printf("%s\n", text);
    struct err e = {0};

    if (client->args.output &&
        file_write_atomic(client->args.output, line, strlen(line), 0644, &e) < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    if (client->args.output && client->args.json)
        return cl_say_done(client, "wrote", client->args.output);
    if (!client->args.output)
        fputs(line, stdout);
    return CL_OK;
}

int cl_calibrate_stack(struct cl *client)
{
    const char *name = client->args.name ? client->args.name : "learned";
    AUTO_JSON *file = NULL;
    struct study study = {0};
    struct pl_learned learned;
    struct err e = {0};
    int code = cl_load(&file, client->operand[0]);

    if (code != CL_OK)
        return code;
    if (parse_study(&study, file, &e) < 0) {
        fprintf(stderr, "partune: %s%s%s\n", e.pointer, e.pointer[0] ? ": " : "", e.text);
        study_done(&study);
        return CL_REFUSED;
    }
    pl_learn(&learned, &study.trainer, study.sample, study.n, name);
    if (!client->args.json) {
        print_constants(client, &study, &learned);
        puts("");
        print_scores(client, &study, &learned);
        puts("");
    }
    code = write_stack(client, &learned);
    study_done(&study);
    return code;
}
