/*
 * The local launcher: mpiexec on this machine (or over a host file), each attempt under
 * partune-run.
 */
#include <errno.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/energy.h"
#include "tuner/machine/hosts.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/slots.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    struct tn_machine *machine = tn_machine(svc);
    int r = 0;

    tn_mpi_find(&machine->mpi, tn_settings(svc)->mpiexec, tn_settings(svc)->train);
    if (!spec || !tn_trainer_direct(svc, spec))
        r = tn_mpi_ready(&machine->mpi, error);
    if (r == 0 &&
        (!spec || spec->trainer == &tn_trainer_partune)) /* others have an MPI of their own */
        r = tn_mpi_suits(&machine->mpi, error);
    if (r == 0 && !machine->supervisor)
        r = err_set(error, -ENOENT, "partune-run was not found next to partuned");
    return r;
}

/* The hosts of a trial are the nodes of its cluster, rank by rank. */
static struct tn_shape shape_of(const struct tn_attempt *attempt)
{
    const struct pl_cluster *cl = &attempt->campaign->engine->spec->se.cluster;
    const struct pl_layout *l = &attempt->trial->run.layout;

    return (struct tn_shape){l->world, cl->devices_per_node, l->threads, cl->oversubscribe};
}

static int admit_hosts(const struct tn_service *svc, const struct pl_cluster *cl, struct err *error)
{
    int hosts = tn_hosts_suiting(tn_machine(svc)->hosts, cl->devices_per_node, cl->oversubscribe);

    if (cl->nodes <= hosts)
        return 0;
    return err_at(error, -EINVAL, "/cluster",
                  "the cluster has %d nodes of %d devices, but the host file has only %d hosts "
                  "with that many cores: name a smaller cluster, or choose the launcher "
                  "\"simulated\"",
                  cl->nodes, cl->devices_per_node, hosts);
}

/* Joules of trials on CPUs are those of the whole host, which other trials must not use meanwhile.
 * What hosts elsewhere and GPUs can tell is known when a trial has run. */
static int admit_energy(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    struct err why = {0};

    if (spec->se.objective != PL_TOKENS_PER_JOULE || !spec->se.cluster.device.cpu)
        return 0;
    if (spec->se.parallel > 1)
        return err_at(error, -EINVAL, "/search/parallel",
                      "tokens_per_joule: trials next to each other on one host each count the "
                      "others' energy; search.parallel must be 1 with the launcher \"local\"");
    if (tn_machine(svc)->hosts || tn_energy_ready(&why) == 0)
        return 0;
    return err_at(error, -EINVAL, "/objective",
                  "tokens_per_joule: no energy counter: %s (partune doctor)", why.text);
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    int devices = pl_cluster_devices(&spec->se.cluster);
    int r = admit_energy(svc, spec, error);

    if (r < 0)
        return r;
    if (tn_machine(svc)->hosts)
        return admit_hosts(svc, &spec->se.cluster, error);
    if (spec->se.cluster.oversubscribe || devices <= tn_machine(svc)->slots.count)
        return 0;
    return err_at(
        error, -EINVAL, "/cluster",
        "the cluster has %d devices, but this machine has only %d cores: name a smaller cluster, "
        "set its \"oversubscribe\", or choose the launcher \"simulated\"",
        devices, tn_machine(svc)->slots.count);
}

static bool reserve(struct tn_attempt *attempt)
{
    struct tn_machine *machine = tn_machine(attempt->svc);
    struct tn_slots *slots = &machine->slots;
    struct tn_shape shape = shape_of(attempt);
    int need = shape.ranks * shape.threads;

    if (machine->hosts) {
        attempt->ncpus = tn_hosts_take(attempt->cpus, machine->hosts, slots, &shape);
        return attempt->ncpus > 0;
    }
    if (need > slots->count)
        need = slots->count;
    if (!tn_slots_take(attempt->cpus, slots, need))
        return false;
    attempt->ncpus = need;
    return true;
}

static void release(struct tn_attempt *attempt)
{
    tn_slots_give(&tn_machine(attempt->svc)->slots, attempt->cpus, attempt->ncpus);
    attempt->ncpus = 0;
}

/* ---- the command line ---------------------------------------------------- */

/* One core (or as many as it has threads) for each rank, unless ranks outnumber cores. */
static void binding(struct str *out, const struct tn_attempt *attempt)
{
    const struct pl_layout *l = &attempt->trial->run.layout;

    if (attempt->ncpus != l->world * l->threads)
        return;
    for (int r = 0; r < l->world; r++)
        for (int t = 0; t < l->threads; t++)
            str_addf(out, "%s%d", t ? "+" : r ? "," : "", attempt->cpus[r * l->threads + t]);
}

static int add_mpiexec(struct tn_argv *argv, const struct tn_attempt *attempt,
                       const struct tn_argv *env, struct err *error)
{
    struct tn_machine *machine = tn_machine(attempt->svc);
    struct tn_shape shape = shape_of(attempt);
    AUTO_STR hosts = {0}, cpus = {0};

    if (machine->hosts)
        tn_hosts_text(&hosts, machine->hosts, attempt->cpus, attempt->ncpus, &shape);
    else
        binding(&cpus, attempt);
    return tn_mpi_argv(argv, &machine->mpi,
                       &(struct tn_mpi_job){
                           .ranks = attempt->trial->run.layout.world,
                           .hosts = hosts.text,
                           .cpus = cpus.text,
                           .supervisor = machine->supervisor,
                           .env = env,
                           .grace_s = tn_supervised_grace_ms(attempt) / 1000 + 1,
                           .as_root = tn_mpi_as_root(tn_settings(attempt->svc)->trial_user),
                       },
                       error);
}

static int build(struct tn_argv *argv, struct tn_attempt *attempt, const struct tn_argv *env,
                 struct err *error)
{
    const struct tn_service *svc = attempt->svc;
    bool here =
        !tn_machine(svc)->hosts && attempt->ncpus > 0; /* what we hold are cores of this machine */
    char cpus[4 * TN_MAX_CORES];
    int r;

    tn_supervised_argv(argv, attempt,
                       here ? tn_cpus_text(cpus, sizeof(cpus), attempt->cpus, attempt->ncpus)
                            : NULL);
    if (tn_trainer_direct(svc, attempt->campaign->engine->spec))
        return attempt->trainer->prepare(attempt, argv, error);
    r = add_mpiexec(argv, attempt, env, error);
    return r < 0 ? r : attempt->trainer->prepare(attempt, argv, error);
}

static int start(struct tn_attempt *attempt, struct err *error)
{
    struct tn_argv argv = {0}, env = {0};
    int r;

    tn_supervised_env(&env, attempt);
    if (!tn_machine(attempt->svc)->hosts)
        tn_mpi_env(&env, attempt->folder);
    r = build(&argv, attempt, &env, error);
    if (r == 0)
        r = tn_supervised_spawn(attempt, argv.v, env.v, error);
    tn_argv_done(&argv);
    tn_argv_done(&env);
    return r;
}

static int adopt(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error)
{
    (void)row;
    tn_slots_take_list(&tn_machine(attempt->svc)->slots, attempt->cpus, attempt->ncpus);
    return tn_supervised_adopt(attempt, error);
}

const struct tn_launcher tn_launcher_local = {
    .name = "local",
    .runs = "on the daemon's machine or its hosts, through mpiexec",
    .state = sizeof(struct tn_supervised),
    .sets_user = true,
    .shared = true,
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = tn_supervised_stop,
    .tick = tn_supervised_tick,
    .close = tn_supervised_close,
    .forget = tn_supervised_end,
};
