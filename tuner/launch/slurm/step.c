/*
 * Command lines of a trial: what the supervisor runs, and a step in a shared allocation.
 */
#include <assert.h>

#include "tuner/core/attempt.h"
#include "tuner/core/engine.h"
#include "tuner/core/trainer.h"
#include "tuner/launch/slurm/slurm.h"
#include "tuner/launch/slurm/trial.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/machine.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

int tn_slurm_add_program(struct tn_argv *argv, struct tn_attempt *attempt,
                         const struct tn_argv *env, struct err *error)
{
    const struct tn_slurm_trial *t = attempt->launch;
    struct tn_slurm_shape s = tn_slurm_shape_of(attempt);
    bool direct = tn_trainer_direct(attempt->svc, attempt->campaign->engine->spec);
    int r = 0;

    if (tn_slurm_uses_mpiexec(attempt->svc) && !direct)
        r = tn_mpi_argv(argv, &tn_machine(attempt->svc)->mpi,
                        &(struct tn_mpi_job){
                            .ranks = s.tasks,
                            .per_node = s.tasks_per_node,
                            .env = env,
                            .grace_s = tn_supervised_grace_ms(attempt) / 1000 + 1,
                            .as_root = tn_mpi_as_root(NULL), /* Slurm chooses the user */
                        },
                        error);
    else
        tn_slurm_srun(argv, attempt->svc, tn_trial_cluster(attempt->trial)->name, &s, t->name,
                      t->alloc ? t->alloc->id : NULL,
                      t->alloc ? attempt->cpus[0] / t->alloc->per_node : 0);
    return r < 0 ? r : attempt->trainer->prepare(attempt, argv, error);
}

/* Hydra starts its proxies by srun where it finds itself in an allocation, Open MPI its daemons;
 * steps know each other by name, and overlap because Slurm counts a proxy as a step of the whole
 * node. */
static void add_allocation(struct tn_argv *env, const struct tn_slurm_trial *trial)
{
    const struct tn_slurm_alloc *al = trial->alloc;
    int nodes = al->slots.count / al->per_node;

    assert(al->slots.count % al->per_node == 0);
    tn_argv_addf(env, "SLURM_JOB_ID=%s", al->id);
    tn_argv_addf(env, "SLURM_JOBID=%s", al->id);
    tn_argv_addf(env, "SLURM_NODELIST=%s", al->nodes);
    tn_argv_addf(env, "SLURM_JOB_NODELIST=%s", al->nodes);
    tn_argv_addf(env, "SLURM_NNODES=%d", nodes);
    tn_argv_addf(env, "SLURM_JOB_NUM_NODES=%d", nodes);
    tn_argv_addf(env, nodes > 1 ? "SLURM_TASKS_PER_NODE=%d(x%d)" : "SLURM_TASKS_PER_NODE=%d",
                 al->per_node, nodes);
    tn_argv_addf(env, "HYDRA_LAUNCHER_EXTRA_ARGS=--overlap --job-name=%s", trial->name);
    tn_argv_addf(env, "OMPI_MCA_plm_slurm_args=--overlap --job-name=%s", trial->name);
    tn_argv_addf(env, "PRTE_MCA_plm_slurm_args=--overlap --job-name=%s", trial->name);
}

int tn_slurm_start_step(struct tn_attempt *attempt, struct err *error)
{
    const struct tn_slurm_trial *t = attempt->launch;
    struct tn_argv v = {0}, env = {0};
    int r;

    assert(t->alloc && t->alloc->id[0]);
    snprintf(attempt->job, sizeof(attempt->job), "%s", t->alloc->id);
    tn_supervised_argv(&v, attempt, NULL);
    tn_supervised_env(&env, attempt);
    r = tn_slurm_add_program(&v, attempt, &env, error);
    if (tn_slurm_uses_mpiexec(attempt->svc))
        add_allocation(&env, t);
    if (r == 0)
        r = tn_supervised_spawn(attempt, v.v, env.v, error);
    tn_argv_done(&v);
    tn_argv_done(&env);
    return r;
}
