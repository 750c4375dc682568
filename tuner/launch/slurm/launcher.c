/*
 * The Slurm launcher.
 *
 *   steps   partune-run next to the daemon supervises srun (or mpiexec), which starts a step in the
 *           campaign's allocation (alloc.c, step.c); watched and adopted like a local trial
 *   jobs    sbatch runs partune-run on the job's first node (job.c)
 *
 * Why an attempt ended: end.c.
 */
#include <errno.h>

#include "tuner/core/attempt.h"
#include "tuner/core/engine.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/slurm/slurm.h"
#include "tuner/launch/slurm/trial.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/command.h"
#include "tuner/machine/machine.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

/* The id of the job that ATTEMPT is, which is to be asked for; NULL: none now. */
static const char *asks(const struct tn_attempt *attempt)
{
    const struct tn_slurm_trial *t =
        attempt->launcher == &tn_launcher_slurm ? attempt->launch : NULL;

    return t && t->a && t->jobs && t->phase == TRIAL_WATCH && attempt->job[0] && !attempt->ended
               ? attempt->job
               : NULL;
}

static void watch(struct tn_service *svc)
{
    static const struct tn_slurm_trials trials = {.asks = asks, .heard = tn_slurm_heard};

    tn_slurm_watch(svc, &trials);
}

static struct tn_slurm_trial *trial_new(struct tn_attempt *attempt)
{
    struct tn_slurm_trial *t = attempt->launch;

    t->a = attempt;
    t->jobs = tn_slurm_mode(attempt->svc, attempt->campaign->engine->spec) == SLURM_JOBS;
    t->phase = TRIAL_WATCH;
    tn_slurm_name(t->name, attempt->mark);
    return t;
}

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    if (!tn_machine(svc)->supervisor)
        return err_set(error, -ENOENT, "partune-run was not found next to partuned");
    if (!tn_settings(svc)->conf)
        return err_set(error, -ENOENT, "the daemon's configuration has no [slurm]");
    if (tn_slurm_uses_mpiexec(svc) && spec->trainer == &tn_trainer_partune)
        return tn_mpi_suits(&tn_machine(svc)->mpi, error);
    return 0;
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    const struct tn_config *settings = tn_settings(svc);
    static const char *const modes[] = {"steps", "jobs", NULL};
    json_t *v = json_object_get(spec->body, "launcher");
    int mode, r;

    if (!settings->conf || !conf_has(settings->conf, "slurm"))
        return err_at(error, -EINVAL, "/launcher/kind",
                      "this daemon's configuration has no section [slurm]");
    r = jx_get_enum(&mode, v, "mode", modes, error);
    if (r < 0)
        return err_under(error, "/launcher");
    return tn_slurm_admit_clusters(svc, spec, error);
}

static bool reserve(struct tn_attempt *attempt)
{
    struct tn_slurm_shape s = tn_slurm_shape_of(attempt);
    struct tn_slurm_alloc *al = NULL;

    if (tn_slurm_mode(attempt->svc, attempt->campaign->engine->spec) != SLURM_JOBS) {
        watch(attempt->svc);
        al = tn_slurm_take(attempt, &s);
        if (!al)
            return false;
    }
    trial_new(attempt)->alloc = al;
    return true;
}

static void release(struct tn_attempt *attempt)
{
    struct tn_slurm_trial *t = attempt->launch;

    if (t->alloc)
        tn_slurm_give(t->alloc, attempt);
    t->alloc = NULL;
}

static int start(struct tn_attempt *attempt, struct err *error)
{
    struct tn_slurm_trial *t = attempt->launch;

    watch(attempt->svc);
    if (!t->jobs)
        return tn_slurm_start_step(attempt, error);
    attempt->waits = true;
    return tn_slurm_submit(t, error);
}

static int adopt(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error)
{
    struct tn_slurm_trial *t = attempt->launch;
    int r;

    if (!t->a)
        trial_new(attempt);
    watch(attempt->svc);
    if (row->job)
        snprintf(attempt->job, sizeof(attempt->job), "%s", row->job);
    if (t->jobs) {
        attempt->waits = true;
        t->phase = row->job ? TRIAL_WATCH : TRIAL_LOOK;
        t->ran = row->job != NULL;
        tn_attempt_tick_in(attempt, 1);
        return 1;
    }
    if (!t->alloc)
        t->alloc = tn_slurm_take_again(attempt, attempt->job);
    r = tn_supervised_adopt(attempt, error);
    if (r == 0 && !attempt->machine_lost && !attempt->verdict && attempt->job[0]) {
        t->phase = TRIAL_CLEAN; /* a step may live on without its srun */
        tn_attempt_tick_in(attempt, 1);
        return 1;
    }
    return r;
}

static void stop(struct tn_attempt *attempt)
{
    struct tn_slurm_trial *t = attempt->launch;

    if (!t->jobs) {
        tn_supervised_stop(attempt);
        return;
    }
    t->stopped = true;
    if (attempt->job[0])
        tn_slurm_cancel_job(t);
}

static void tick(struct tn_attempt *attempt)
{
    struct tn_slurm_trial *t = attempt->launch;

    if (t->busy)
        return;
    if (!t->jobs && t->phase == TRIAL_WATCH)
        tn_supervised_tick(attempt);
    if (t->jobs && t->phase == TRIAL_WATCH)
        tn_slurm_watch_job(t);
    if (attempt->ended || t->busy || tn_now_ms() < t->next_at)
        return;
    if (t->phase == TRIAL_LOOK)
        tn_slurm_look(t);
    else if (t->phase == TRIAL_CLEAN)
        tn_slurm_clean_steps(t);
    else if (t->phase == TRIAL_ASK)
        tn_slurm_ask_why(t);
}

static void on_forgotten(void *arg, int status, const char *out, const char *error)
{
    struct tn_service *svc = arg;
    struct tn_slurm_job j;

    (void)error;
    while (status == 0 && tn_slurm_line(&j, &out))
        tn_slurm_cancel(svc, j.id, NULL);
}

static void forget(struct tn_service *svc, const char *folder, const char *mark)
{
    struct tn_argv v = {0};
    char name[160];

    tn_supervised_end(svc, folder, mark);
    tn_slurm_name(name, mark);
    tn_slurm_program(&v, svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_addf(&v, "--name=%s", name);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    tn_command_run(&tn_machine(svc)->commands, &v, NULL, SLURM_COMMAND_MS, on_forgotten, svc);
    tn_argv_done(&v);
}

/* A former daemon may have left jobs that nobody wants. */
static void opened(struct tn_service *svc)
{
    const struct tn_config *settings = tn_settings(svc);

    if (settings->conf && conf_has(settings->conf, "slurm"))
        watch(svc);
}

static int health(const struct tn_service *svc, struct err *error)
{
    const struct tn_config *settings = tn_settings(svc);

    if (!settings->conf || !conf_has(settings->conf, "slurm"))
        return -ENOTSUP;
    return tn_slurm_health(svc, error);
}

const struct tn_launcher tn_launcher_slurm = {
    .name = "slurm",
    .runs = "through Slurm",
    .several = true,
    .state = sizeof(struct tn_slurm_trial),
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = stop,
    .tick = tick,
    .gone = tn_slurm_step_gone,
    .close = tn_supervised_close,
    .forget = forget,
    .opened = opened,
    .closed = tn_slurm_close,
    .health = health,
    .health_fix = "check [slurm] bin and the controller (scontrol ping)",
};
