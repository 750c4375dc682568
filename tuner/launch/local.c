/*
 * The local launcher: Hydra's mpiexec on this machine (or over a host file), each attempt under
 * partune-run.
 */
#include <errno.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/hosts.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/slots.h"
#include "tuner/state/state.h"

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    struct tn_machine *machine = tn_machine(svc);

    (void)spec;
    if (!machine->mpiexec || !file_exists(machine->mpiexec)) {
        free(machine->mpiexec);
        machine->mpiexec = tn_find_program(tn_settings(svc)->mpiexec, "mpiexec");
    }
    if (!machine->mpiexec)
        return err_set(
            error, -ENOENT,
            "mpiexec was not found: install mpich (apt-get install mpich), or give --mpiexec PATH");
    if (!machine->supervisor)
        return err_set(error, -ENOENT, "partune-run was not found next to partuned");
    return 0;
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
                  "the cluster has %d nodes of %d devices and the host file %d hosts of as many "
                  "cores: name a smaller cluster, or choose the launcher \"simulated\"",
                  cl->nodes, cl->devices_per_node, hosts);
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    int devices = pl_cluster_devices(&spec->se.cluster);

    if (tn_machine(svc)->hosts)
        return admit_hosts(svc, &spec->se.cluster, error);
    if (spec->se.cluster.oversubscribe || devices <= tn_machine(svc)->slots.count)
        return 0;
    return err_at(
        error, -EINVAL, "/cluster",
        "the cluster has %d devices and this machine %d cores: name a smaller cluster, set its "
        "\"oversubscribe\", or choose the launcher \"simulated\"",
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
static void add_binding(struct tn_argv *argv, const struct tn_attempt *attempt)
{
    const struct pl_layout *l = &attempt->trial->run.layout;
    AUTO_STR list = {0};

    if (attempt->ncpus != l->world * l->threads)
        return;
    for (int r = 0; r < l->world; r++)
        for (int t = 0; t < l->threads; t++)
            str_addf(&list, "%s%d", t ? "+" : r ? "," : "", attempt->cpus[r * l->threads + t]);
    tn_argv_add(argv, "-bind-to");
    tn_argv_addf(argv, "user:%s", list.text);
}

static void add_hosts(struct tn_argv *argv, const struct tn_attempt *attempt)
{
    struct tn_shape shape = shape_of(attempt);
    AUTO_STR hosts = {0};

    tn_hosts_text(&hosts, tn_machine(attempt->svc)->hosts, attempt->cpus, attempt->ncpus, &shape);
    tn_argv_add(argv, "-hosts");
    tn_argv_add(argv, hosts.text);
}

static int build(struct tn_argv *argv, struct tn_attempt *attempt, struct err *error)
{
    const struct tn_service *svc = attempt->svc;
    bool here =
        !tn_machine(svc)->hosts && attempt->ncpus > 0; /* what we hold are cores of this machine */
    char cpus[4 * TN_MAX_CORES];

    tn_supervised_argv(argv, attempt,
                       here ? tn_cpus_text(cpus, sizeof(cpus), attempt->cpus, attempt->ncpus)
                            : NULL);
    if (attempt->trainer->direct && attempt->trainer->direct(attempt))
        return attempt->trainer->prepare(attempt, argv, error);
    tn_argv_add(argv, tn_machine(svc)->mpiexec);
    if (tn_machine(svc)->hosts)
        add_hosts(argv, attempt);
    else
        add_binding(argv, attempt);
    tn_argv_add(argv, "-n");
    tn_argv_addf(argv, "%d", attempt->trial->run.layout.world);
    return attempt->trainer->prepare(attempt, argv, error);
}

static int start(struct tn_attempt *attempt, struct err *error)
{
    struct tn_argv argv = {0}, env = {0};
    int r = build(&argv, attempt, error);

    tn_supervised_env(&env, attempt);
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
