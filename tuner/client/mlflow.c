/*
 * MLflow's tracking server by its REST API 2.0: one experiment for a campaign, "partune/<name>", a
 * run for each trial. Calls: experiments/get-by-name and create, runs/search, create, log-batch
 * (at most 1,000 metrics and 100 parameters each) and update. $MLFLOW_TRACKING_TOKEN is the token,
 * where the server wants one.
 */
#include "tuner/client/log_to.h"

#include <errno.h>
#include <math.h>

enum { MOST_METRICS = 1000, MOST_PARAMETERS = 100 };

struct mlflow {
    struct cl server; /* the address and token of MLflow, none of the daemon's */
    char *experiment;
};

/* POST OWNED_BODY, or GET where it is NULL. *RET is the answer. */
static int call(json_t **ret, struct mlflow *mlflow, const char *path, json_t *owned_body)
{
    AUTO_FREE char *full = mem_printf("/api/2.0/mlflow/%s", path);
    struct cl_answer answer;
    int code =
        cl_exchange(&answer, &mlflow->server, owned_body ? "POST" : "GET", full, owned_body, NULL);

    *ret = NULL;
    json_decref(owned_body);
    if (answer.text.len)
        jx_parse(ret, str_text(&answer.text), answer.text.len, NULL);
    str_done(&answer.text);
    if (code != CL_OK) {
        fprintf(stderr, "partune: no MLflow server answers at %s: %s\n", mlflow->server.args.server,
                answer.why);
        return code;
    }
    if (answer.status < 400)
        return CL_OK;
    if (str_eq(cl_string(*ret, "error_code"), "RESOURCE_DOES_NOT_EXIST"))
        return CL_NOT_FOUND; /* said by whoever does not expect it */
    fprintf(stderr, "partune: %s answered %ld to %s: %s %s\n", mlflow->server.args.server,
            answer.status, full, cl_string(*ret, "error_code"), cl_string(*ret, "message"));
    return answer.status == 401 || answer.status == 403 ? CL_NO_ACCESS : CL_REFUSED;
}

static int find_experiment(struct mlflow *mlflow, const char *name)
{
    AUTO_FREE char *query = cl_path("experiments/get-by-name?experiment_name=", name, "");
    AUTO_JSON *found = NULL, *made = NULL;
    int code = call(&found, mlflow, query, NULL);
    const char *id = cl_string(found, "experiment.experiment_id");

    if (code == CL_NOT_FOUND) {
        code = call(&made, mlflow, "experiments/create", json_pack("{s:s}", "name", name));
        id = cl_string(made, "experiment_id");
    }
    if (code != CL_OK)
        return code;
    if (!*id) {
        fprintf(stderr, "partune: %s is not an MLflow server: its response has no experiment_id\n",
                mlflow->server.args.server);
        return CL_REFUSED;
    }
    mlflow->experiment = mem_strdup(id);
    return CL_OK;
}

/* ---- runs ---------------------------------------------------------------- */

static void add_pair(json_t *list, const char *key, const char *value)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "key", key, "value", value));
}

/* Is there a run with tag KEY? */
static int is_logged(bool *ret, struct mlflow *mlflow, const char *key)
{
    AUTO_FREE char *filter = mem_printf("tags.`partune.trial` = '%s'", key);
    AUTO_JSON *found = NULL;
    int code = call(&found, mlflow, "runs/search",
                    json_pack("{s:[s], s:s, s:i}", "experiment_ids", mlflow->experiment, "filter",
                              filter, "max_results", 1));

    *ret = json_array_size(json_object_get(found, "runs")) > 0;
    return code;
}

static int create_run(char **ret_run, struct mlflow *mlflow, const char *key, const json_t *trial)
{
    AUTO_JSON *made = NULL;
    json_t *tags = json_array();
    int code;

    add_pair(tags, "partune.trial", key);
    add_pair(tags, "partune.state", cl_string(trial, "state"));
    add_pair(tags, "partune.kind", cl_string(trial, "kind"));
    add_pair(tags, "partune.simulated", *cl_simulated_word(trial) ? "true" : "false");
    if (*cl_string(trial, "failure.detail"))
        add_pair(tags, "partune.failure", cl_string(trial, "failure.detail"));
    code = call(&made, mlflow, "runs/create",
                json_pack("{s:s, s:I, s:s, s:o}", "experiment_id", mlflow->experiment, "start_time",
                          (json_int_t)log_to_started_ms(trial), "run_name",
                          cl_string(trial, "text"), "tags", tags));
    *ret_run = mem_strdup(cl_string(made, "run.info.run_id"));
    return code;
}

static void add_metric(json_t *list, const char *name, double value, double at_ms, int64_t step)
{
    if (isfinite(value))
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:I, s:I}", "key", name, "value", value,
                                        "timestamp", (json_int_t)at_ms, "step", (json_int_t)step));
}

/* All metrics of a trial, new reference; *RET_END is when it ended, in ms. */
static json_t *metrics_of(double *ret_end, const json_t *trial, const json_t *steps)
{
    double at = (double)log_to_started_ms(trial);
    json_t *list = json_array(), *step;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)steps, i, step) {
        if (isfinite(cl_number(step, "ms")))
            at += cl_number(step, "ms");
        for (int k = 0; log_to_step[k][0]; k++)
            add_metric(list, log_to_step[k][1], cl_number(step, log_to_step[k][0]), at,
                       (int64_t)cl_number(step, "n"));
    }
    for (int k = 0; log_to_results[k][0]; k++)
        add_metric(list, log_to_results[k][1], cl_number(trial, log_to_results[k][0]), at, 0);
    *ret_end = at;
    return list;
}

static json_t *parameters_of(const json_t *trial)
{
    json_t *list = json_array(), *setting;
    const char *key;

    json_object_foreach(json_object_get(trial, "layout"), key, setting) {
        AUTO_FREE char *text = log_to_value(setting);

        if (json_array_size(list) < MOST_PARAMETERS)
            add_pair(list, key, text);
    }
    return list;
}

static int log_batches(struct mlflow *mlflow, const char *run, const json_t *metrics,
                       json_t *owned_parameters)
{
    size_t n = json_array_size(metrics);
    int code = CL_OK;

    for (size_t from = 0; code == CL_OK && (from < n || from == 0); from += MOST_METRICS) {
        AUTO_JSON *answer = NULL;
        json_t *part = json_array(),
               *body = json_pack("{s:s, s:o}", "run_id", run, "metrics", part);

        if (!from)
            json_object_set(body, "params", owned_parameters);

        for (size_t i = from; i < n && i < from + MOST_METRICS; i++)
            json_array_append(part, json_array_get(metrics, i));
        code = call(&answer, mlflow, "runs/log-batch", body);
    }
    json_decref(owned_parameters);
    return code;
}

static int log_run(bool *ret_fresh, void *ctx, const json_t *campaign, const json_t *trial,
                   const json_t *steps)
{
    struct mlflow *mlflow = ctx;
    AUTO_FREE char *key = mem_printf("%s/%.0f", cl_string(campaign, "id"), cl_number(trial, "n"));
    AUTO_FREE char *run = NULL;
    AUTO_JSON *metrics = NULL, *updated = NULL;
    bool there = false;
    double end;
    int code = is_logged(&there, mlflow, key);

    *ret_fresh = !there;
    if (code != CL_OK || there)
        return code;
    code = create_run(&run, mlflow, key, trial);
    if (code != CL_OK)
        return code;
    metrics = metrics_of(&end, trial, steps);
    code = log_batches(mlflow, run, metrics, parameters_of(trial));
    if (code != CL_OK)
        return code;
    return call(&updated, mlflow, "runs/update",
                json_pack("{s:s, s:s, s:I}", "run_id", run, "status",
                          str_eq(cl_string(trial, "state"), "ok") ? "FINISHED" : "FAILED",
                          "end_time", (json_int_t)end));
}

int log_to_mlflow_open(struct cl *client, const json_t *campaign, const char *url,
                       log_to_each *each)
{
    struct mlflow mlflow = {.server = {.args = {.server = url, .cacert = client->args.cacert},
                                       .token = getenv("MLFLOW_TRACKING_TOKEN")}};
    AUTO_FREE char *name = mem_printf("partune/%s", cl_string(campaign, "name"));
    int code = find_experiment(&mlflow, name);

    if (code == CL_OK)
        code = each(client, campaign, log_run, &mlflow);
    if (code == CL_NOT_FOUND)
        fprintf(stderr, "partune: %s no longer has the experiment %s\n", url, name);
    free(mlflow.experiment);
    return code;
}
