/* The bundled trainer: `partune-train --config FILE --events FILE --device-memory BYTES`. */
#include <errno.h>

#include "tuner/internal.h"

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *e)
{
    if (!svc->train || !file_exists(svc->train)) {
        free(svc->train);
        svc->train = tn_find_program(svc->config.train, "partune-train");
    }
    if (!svc->train)
        return err_set(e, -ENOENT,
                       "partune-train was not found: build it with MPICH (libmpich-dev), or give "
                       "--train PATH");
    if (spec->data_path && !file_exists(spec->data_path))
        return err_set(e, -ENOENT, "data set %s is gone: %s", spec->se.workload.data,
                       spec->data_path);
    return 0;
}

json_t *tn_trainer_config(const struct tn_attempt *a)
{
    const struct tn_spec *s = a->campaign->engine->spec;
    const struct pl_trial_limits *l = &a->limits;

    return json_pack("{s:o, s:o, s:o, s:o, s:{s:i, s:i, s:i, s:f}}", "model",
                     pl_model_json(&s->se.model), "cluster", pl_cluster_json(&s->se.cluster),
                     "workload", pl_workload_json(&s->se.workload), "layout",
                     pl_layout_json(&a->trial->layout), "trial", "warmup_steps", l->warmup_steps,
                     "min_steps", l->min_steps, "max_steps", l->max_steps, "ci", l->ci);
}

static int prepare(struct tn_attempt *a, struct tn_argv *argv, struct err *e)
{
    const struct pl_device *device = &a->campaign->engine->spec->se.cluster.device;
    AUTO_JSON *v = tn_trainer_config(a);
    AUTO_FREE char *text = jx_dump(v);
    AUTO_FREE char *path = mem_printf("%s/config.json", a->folder);
    int r = file_write_atomic(path, text, strlen(text), 0600, e);

    if (r < 0)
        return r;
    tn_argv_add(argv, a->svc->train);
    tn_argv_add(argv, "--config");
    tn_argv_add(argv, path);
    tn_argv_add(argv, "--events");
    tn_argv_addf(argv, "%s/events", a->folder);
    tn_argv_add(argv, "--timeline");
    tn_argv_addf(argv, "%s/%s", a->folder, TN_TIMELINE_FILE);
    tn_argv_add(argv, "--data-dir");
    tn_argv_add(argv, a->svc->data_dir);
    if (a->campaign->engine->spec->data_path) { /* which an administrator may have put anywhere */
        tn_argv_add(argv, "--data");
        tn_argv_add(argv, a->campaign->engine->spec->data_path);
    }
    if (device->memory_gib > 0) {
        tn_argv_add(argv, "--device-memory");
        tn_argv_addf(argv, "%.0f", device->memory_gib * 1024 * 1024 * 1024);
    }
    return 0;
}

static enum tn_line line(struct tn_attempt *a, enum tn_stream stream, const char *text, size_t n,
                         struct tn_step_line *ret)
{
    (void)stream;
    return tn_observe(&a->seen, text, n, &ret->n, &ret->ms);
}

const struct tn_trainer tn_trainer_partune = {
    .name = "partune",
    .ready = ready,
    .prepare = prepare,
    .results = "events",
    .line = line,
};
