/*
 * The local launcher: Hydra's mpiexec on this machine (or over a host file), each attempt under
 * partune-run.
 */
#include <errno.h>

#include "tuner/internal.h"

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *e)
{
    (void)spec;
    if (!svc->mpiexec || !file_exists(svc->mpiexec)) {
        free(svc->mpiexec);
        svc->mpiexec = tn_find_program(svc->config.mpiexec, "mpiexec");
    }
    if (!svc->mpiexec)
        return err_set(
            e, -ENOENT,
            "mpiexec was not found: install mpich (apt-get install mpich), or give --mpiexec PATH");
    if (!svc->supervisor)
        return err_set(e, -ENOENT, "partune-run was not found beside partuned");
    return 0;
}

/* The hosts of a trial are the nodes of its cluster, rank by rank. */
static struct tn_shape shape_of(const struct tn_attempt *a)
{
    const struct pl_cluster *cl = &a->campaign->engine->spec->se.cluster;
    const struct pl_layout *l = &a->trial->layout;

    return (struct tn_shape){l->world, cl->devices_per_node, l->threads, cl->oversubscribe};
}

static int admit_hosts(const struct tn_service *svc, const struct pl_cluster *cl, struct err *e)
{
    int hosts = tn_hosts_suiting(svc->hosts, cl->devices_per_node, cl->oversubscribe);

    if (cl->nodes <= hosts)
        return 0;
    return err_at(e, -EINVAL, "/cluster",
                  "the cluster has %d nodes of %d devices and the host file %d hosts of as many "
                  "cores: name a smaller cluster, or choose the launcher \"simulated\"",
                  cl->nodes, cl->devices_per_node, hosts);
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *e)
{
    int devices = pl_cluster_devices(&spec->se.cluster);

    if (svc->hosts)
        return admit_hosts(svc, &spec->se.cluster, e);
    if (spec->se.cluster.oversubscribe || devices <= svc->slots.count)
        return 0;
    return err_at(
        e, -EINVAL, "/cluster",
        "the cluster has %d devices and this machine %d cores: name a smaller cluster, set its "
        "\"oversubscribe\", or choose the launcher \"simulated\"",
        devices, svc->slots.count);
}

static bool reserve(struct tn_attempt *a)
{
    struct tn_slots *slots = &a->svc->slots;
    struct tn_shape shape = shape_of(a);
    int need = shape.ranks * shape.threads;

    if (a->svc->hosts) {
        a->ncpus = tn_hosts_take(a->svc->hosts, slots, a->cpus, &shape);
        return a->ncpus > 0;
    }
    if (need > slots->count)
        need = slots->count;
    if (!tn_slots_take(slots, a->cpus, need))
        return false;
    a->ncpus = need;
    return true;
}

static void release(struct tn_attempt *a)
{
    tn_slots_give(&a->svc->slots, a->cpus, a->ncpus);
    a->ncpus = 0;
}

/* ---- the command line ---- */

/* One core (or as many as it has threads) for each rank, unless ranks outnumber cores. */
static void add_binding(struct tn_argv *v, const struct tn_attempt *a)
{
    const struct pl_layout *l = &a->trial->layout;
    AUTO_STR list = {0};

    if (a->ncpus != l->world * l->threads)
        return;
    for (int r = 0; r < l->world; r++)
        for (int t = 0; t < l->threads; t++)
            str_addf(&list, "%s%d", t ? "+" : r ? "," : "", a->cpus[r * l->threads + t]);
    tn_argv_add(v, "-bind-to");
    tn_argv_addf(v, "user:%s", list.text);
}

static void add_hosts(struct tn_argv *v, const struct tn_attempt *a)
{
    struct tn_shape shape = shape_of(a);
    AUTO_STR hosts = {0};

    tn_hosts_text(&hosts, a->svc->hosts, a->cpus, a->ncpus, &shape);
    tn_argv_add(v, "-hosts");
    tn_argv_add(v, hosts.text);
}

static int build(struct tn_argv *v, struct tn_attempt *a, struct err *e)
{
    const struct tn_service *svc = a->svc;
    bool here = !svc->hosts && a->ncpus > 0; /* what we hold are cores of this machine */
    char cpus[4 * TN_MAX_CORES];

    tn_supervised_argv(v, a, here ? tn_cpus_text(cpus, sizeof(cpus), a->cpus, a->ncpus) : NULL);
    if (a->trainer->direct && a->trainer->direct(a))
        return a->trainer->prepare(a, v, e);
    tn_argv_add(v, svc->mpiexec);
    if (svc->hosts)
        add_hosts(v, a);
    else
        add_binding(v, a);
    tn_argv_add(v, "-n");
    tn_argv_addf(v, "%d", a->trial->layout.world);
    return a->trainer->prepare(a, v, e);
}

static int start(struct tn_attempt *a, struct err *e)
{
    struct tn_argv argv = {0}, env = {0};
    int r = build(&argv, a, e);

    tn_supervised_env(&env, a);
    if (r == 0)
        r = tn_supervised_spawn(a, argv.v, env.v, e);
    tn_argv_done(&argv);
    tn_argv_done(&env);
    return r;
}

static int adopt(struct tn_attempt *a, const struct db_attempt *row, struct err *e)
{
    (void)row;
    tn_slots_take_list(&a->svc->slots, a->cpus, a->ncpus);
    return tn_supervised_adopt(a, e);
}

const struct tn_launcher tn_launcher_local = {
    .name = "local",
    .shared = true,
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = tn_supervised_stop,
    .tick = tn_supervised_tick,
};
