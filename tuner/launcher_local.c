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

static int cores_of(const struct tn_service *svc, const struct pl_layout *l)
{
    int need = l->world * l->threads;

    return need < svc->slots.count ? need : svc->slots.count;
}

static int admit(const struct tn_service *svc, const struct tn_spec *spec, struct err *e)
{
    int devices = pl_cluster_devices(&spec->se.cluster);

    if (svc->config.hosts || spec->se.cluster.oversubscribe || devices <= svc->slots.count)
        return 0;
    return err_at(
        e, -EINVAL, "/cluster",
        "the cluster has %d devices and this machine %d cores: name a smaller cluster, set its "
        "\"oversubscribe\", or choose the launcher \"simulated\"",
        devices, svc->slots.count);
}

static bool reserve(struct tn_attempt *a)
{
    int need = a->svc->config.hosts ? 0 : cores_of(a->svc, &a->trial->layout);

    if (!tn_slots_take(&a->svc->slots, a->cpus, need))
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

static int build(struct tn_argv *v, struct tn_attempt *a, struct err *e)
{
    const struct tn_service *svc = a->svc;
    char cpus[4 * TN_MAX_CORES];

    tn_supervised_argv(v, a,
                       a->ncpus > 0 ? tn_cpus_text(cpus, sizeof(cpus), a->cpus, a->ncpus) : NULL);
    if (a->trainer->direct && a->trainer->direct(a))
        return a->trainer->prepare(a, v, e);
    tn_argv_add(v, svc->mpiexec);
    if (svc->config.hosts) {
        tn_argv_add(v, "-f");
        tn_argv_add(v, svc->config.hosts);
    } else {
        add_binding(v, a);
    }
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
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = tn_supervised_stop,
    .tick = tn_supervised_tick,
};
