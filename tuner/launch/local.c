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

static const char VISIBLE[] = "CUDA_VISIBLE_DEVICES=";

/* Does the administrator's file say itself which GPUs trials of SPEC see? */
static bool names_gpus(const struct tn_service *svc, const struct tn_spec *spec)
{
    const struct conf *conf = tn_settings(svc)->conf;

    for (size_t i = 0; conf && i < conf->count; i++)
        if (str_eq(conf->entry[i].section, "trainer") &&
            str_eq(conf->entry[i].name, spec->trainer_name) && str_eq(conf->entry[i].key, "env") &&
            str_starts(conf->entry[i].value, VISIBLE))
            return true;
    return false;
}

/* A campaign on GPUs needs as many as its cluster has. */
static int suit_gpus(const struct tn_service *svc, const struct tn_spec *spec, struct err *error)
{
    const struct tn_gpu_slots *gpus = &tn_machine(svc)->gpus;
    const struct pl_cluster *cl = spec->se.cluster;
    int devices = pl_cluster_devices(cl), count = gpus->slots.count;

    if (cl->device.cpu || !gpus->counted)
        return 0;
    if (names_gpus(svc, spec))
        return err_at(error, -EINVAL, "/trainer",
                      "env of trainer \"%s\" sets CUDA_VISIBLE_DEVICES, but GPUs are handed out to "
                      "trials one by one: say by --gpus of partuned which ones",
                      spec->trainer_name);
    if (cl->oversubscribe ? count > 0 : devices <= count)
        return 0;
    return err_at(error, -EINVAL, "/cluster",
                  "the cluster has %d devices, but this machine has only %d GPUs for trials "
                  "(partune doctor, --gpus of partuned): name a smaller cluster, or choose the "
                  "launcher \"simulated\"",
                  devices, count);
}

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
    if (r == 0 && spec)
        r = suit_gpus(svc, spec, error);
    return r;
}

/* The hosts of a trial are the nodes of its cluster, rank by rank. */
static struct tn_shape shape_of(const struct tn_attempt *attempt)
{
    const struct pl_cluster *cl = tn_trial_cluster(attempt->trial);
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

    if (spec->se.objective != PL_TOKENS_PER_JOULE || !spec->se.cluster[0].device.cpu)
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
    int devices = pl_cluster_devices(spec->se.cluster);
    int r = admit_energy(svc, spec, error);

    if (r < 0)
        return r;
    if (tn_machine(svc)->hosts)
        return admit_hosts(svc, spec->se.cluster, error);
    r = suit_gpus(svc, spec, error);
    if (r < 0)
        return r;
    if (spec->se.cluster[0].oversubscribe || devices <= tn_machine(svc)->slots.count)
        return 0;
    return err_at(
        error, -EINVAL, "/cluster",
        "the cluster has %d devices, but this machine has only %d cores: name a smaller cluster, "
        "set its \"oversubscribe\", or choose the launcher \"simulated\"",
        devices, tn_machine(svc)->slots.count);
}

static bool on_gpus(const struct tn_attempt *attempt)
{
    return !tn_trial_cluster(attempt->trial)->device.cpu;
}

/* GPUs for its ranks, as many as there are if ranks share them. */
static bool take_gpus(struct tn_attempt *attempt, struct tn_gpu_slots *gpus)
{
    int ranks = attempt->trial->run.layout.world;
    bool fewer = gpus->counted && gpus->slots.count < ranks;

    return !on_gpus(attempt) ||
           tn_gpu_slots_take(&attempt->gpus, gpus, fewer ? gpus->slots.count : ranks);
}

/* Cores: one for each thread, and next to GPUs these GPUs' share of the machine, since other
 * threads of a rank feed it. Without a count the cluster's devices are all that the machine has. */
static int cores_for(const struct tn_attempt *attempt, const struct tn_machine *machine)
{
    struct tn_shape shape = shape_of(attempt);
    int need = shape.ranks * shape.threads, all = machine->slots.count, share = 0;

    if (attempt->gpus.count)
        share = all * attempt->gpus.count / machine->gpus.slots.count;
    else if (attempt->gpus.all)
        share = all * shape.ranks / pl_cluster_devices(tn_trial_cluster(attempt->trial));
    need = share > need ? share : need;
    return need < all ? need : all;
}

static void release(struct tn_attempt *attempt)
{
    struct tn_machine *machine = tn_machine(attempt->svc);

    tn_slots_give(&machine->slots, attempt->cpus, attempt->ncpus);
    tn_gpu_slots_give(&machine->gpus, &attempt->gpus);
    attempt->ncpus = 0;
}

static bool reserve(struct tn_attempt *attempt)
{
    struct tn_machine *machine = tn_machine(attempt->svc);
    struct tn_shape shape = shape_of(attempt);
    int need;

    if (!take_gpus(attempt, &machine->gpus))
        return false;
    need = cores_for(attempt, machine);
    if (machine->hosts)
        attempt->ncpus = tn_hosts_take(attempt->cpus, machine->hosts, &machine->slots, &shape);
    else if (tn_slots_take(attempt->cpus, &machine->slots, need))
        attempt->ncpus = need;
    if (attempt->ncpus == 0)
        release(attempt);
    return attempt->ncpus > 0;
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

/* Its GPUs are all that a trial sees: HIP, too, knows the first variable. */
static void show_gpus(struct tn_argv *env, const struct tn_gpu_slots *gpus,
                      const struct tn_gpus_held *held)
{
    char text[TN_GPUS_TEXT];

    if (gpus->hidden)
        tn_argv_addf(env, "%s-1", VISIBLE);
    if (held->count == 0)
        return;
    tn_argv_addf(env, "%s%s", VISIBLE, tn_gpus_held_text(text, sizeof(text), gpus, held));
    tn_argv_add(env, "CUDA_DEVICE_ORDER=PCI_BUS_ID"); /* as NVML counts */
}

static int start(struct tn_attempt *attempt, struct err *error)
{
    struct tn_argv argv = {0}, env = {0};
    int r;

    tn_supervised_env(&env, attempt);
    show_gpus(&env, &tn_machine(attempt->svc)->gpus, &attempt->gpus);
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
    tn_gpu_slots_take_held(&tn_machine(attempt->svc)->gpus, &attempt->gpus);
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
