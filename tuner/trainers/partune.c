/* The bundled trainer: `partune-train --config FILE --events FILE --device DEVICE
 * --device-memory BYTES`. */
#include <errno.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/spec.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/output/observe.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    struct tn_mpi *mpi = &tn_machine(svc)->mpi;

    tn_mpi_find(mpi, tn_settings(svc)->mpiexec, tn_settings(svc)->train);
    if (!mpi->train.path)
        return err_set(error, -ENOENT,
                       "partune-train was not found: build it with an MPI (libmpich-dev or "
                       "libopenmpi-dev), or give --train PATH");
    if (spec->data_path && !file_exists(spec->data_path))
        return err_set(error, -ENOENT, "data set %s is gone: %s", spec->se.workload.data,
                       spec->data_path);
    return 0;
}

json_t *tn_trainer_config(const struct tn_attempt *attempt)
{
    const struct pl_reduced *run = &attempt->trial->run;
    const struct pl_trial_limits *l = &attempt->limits;

    return json_pack("{s:o, s:o, s:o, s:o, s:{s:i, s:i, s:i, s:f}}", "model",
                     pl_model_json(&run->model), "cluster",
                     pl_cluster_json(tn_trial_cluster(attempt->trial)), "workload",
                     pl_workload_json(&run->workload), "layout", pl_layout_json(&run->layout),
                     "trial", "warmup_steps", l->warmup_steps, "min_steps", l->min_steps,
                     "max_steps", l->max_steps, "ci", l->ci);
}

/* The GPUs that the trial holds, in turn where ranks outnumber them. Where none are counted, those
 * that are there: the trainer says in its first event what it computes on. */
static const char *device_of(const struct tn_attempt *attempt)
{
    int held = attempt->gpus.count;

    if (pl_cluster_is_cpu(tn_trial_cluster(attempt->trial)))
        return "cpu";
    if (held)
        return held < attempt->trial->run.layout.world ? "cuda:all" : "cuda";
    return "auto";
}

static int prepare(struct tn_attempt *attempt, struct tn_argv *argv, struct err *error)
{
    const struct pl_device *device = &tn_trial_cluster(attempt->trial)->device;
    AUTO_JSON *v = tn_trainer_config(attempt);
    AUTO_FREE char *text = jx_dump(v);
    AUTO_FREE char *path = mem_printf("%s/config.json", attempt->folder);
    int r = file_write_atomic(path, text, strlen(text), 0600, error);

    if (r < 0)
        return r;
    tn_argv_add(argv, tn_machine(attempt->svc)->mpi.train.path);
    tn_argv_add(argv, "--config");
    tn_argv_add(argv, path);
    tn_argv_add(argv, "--events");
    tn_argv_addf(argv, "%s/events", attempt->folder);
    tn_argv_add(argv, "--timeline");
    tn_argv_addf(argv, "%s/%s", attempt->folder, TN_TIMELINE_FILE);
    tn_argv_add(argv, "--device");
    tn_argv_add(argv, device_of(attempt));
    tn_argv_add(argv, "--data-dir");
    tn_argv_add(argv, tn_data_dir(attempt->svc));
    if (attempt->campaign->engine->spec
            ->data_path) { /* which an administrator may have put anywhere */
        tn_argv_add(argv, "--data");
        tn_argv_add(argv, attempt->campaign->engine->spec->data_path);
    }
    if (device->memory_gib > 0) {
        tn_argv_add(argv, "--device-memory");
        tn_argv_addf(argv, "%.0f", device->memory_gib * 1024 * 1024 * 1024);
    }
    return 0;
}

static enum tn_line line(struct tn_step_line *ret, struct tn_attempt *attempt,
                         enum tn_stream stream, const char *text, size_t len)
{
    (void)stream;
    return tn_observe(&ret->n, &ret->ms, &attempt->seen, text, len);
}

const struct tn_trainer tn_trainer_partune = {
    .name = "partune",
    .ready = ready,
    .prepare = prepare,
    .results = "events",
    .line = line,
};
