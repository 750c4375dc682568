/*
 * The local launcher: Hydra's mpiexec on this machine (or over a host file), each attempt under
 * partune-run.
 *
 * The supervisor is watched by its pidfd, so a child and an adopted process of a former daemon are
 * the same case.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tuner/internal.h"

enum { OBEY_MS = 10000 }; /* beyond its grace: then the supervisor itself is killed */

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

    tn_argv_add(v, svc->supervisor);
    tn_argv_add(v, "--folder");
    tn_argv_add(v, a->folder);
    tn_argv_add(v, "--grace");
    tn_argv_addf(v, "%d", svc->config.grace_ms > 0 ? svc->config.grace_ms : 2000);
    if (a->ncpus > 0) {
        tn_argv_add(v, "--cpus");
        tn_argv_add(v, tn_cpus_text(cpus, sizeof(cpus), a->cpus, a->ncpus));
    }
    tn_argv_add(v, "--");
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

/* What a trial may see of our environment. */
static bool passes(const char *entry)
{
    static const char *const names[] = {
        "PATH=", "HOME=",    "LANG=",        "LC_",           "TMPDIR=",        "LD_LIBRARY_PATH=",
        "USER=", "LOGNAME=", "UCX_",         "MPICH_",        "MPIR_CVAR_",     "HYDRA_",
        "FI_",   "OMP_",     "PARTUNE_ISA=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS="};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_starts(entry, names[i]))
            return true;
    return false;
}

static void build_env(struct tn_argv *env, const struct tn_attempt *a)
{
    for (char **p = environ; *p; p++)
        if (passes(*p))
            tn_argv_add(env, *p);
    tn_argv_addf(env, "%s=%s", TN_MARK_ENV, a->mark);
}

/* ---- watching ---- */

struct cleaning {
    uv_work_t work;
    struct tn_service *svc;
    struct tn_attempt *a;
    char mark[TN_MARK_TEXT];
};

static void clean_work(uv_work_t *w)
{
    struct cleaning *cl = w->data;

    tn_mark_kill_all(cl->mark, 20000);
}

static void clean_done(uv_work_t *w, int status)
{
    struct cleaning *cl = w->data;

    (void)status;
    cl->svc->works--;
    if (!cl->svc->closing)
        tn_attempt_ended(cl->a);
    free(cl);
}

/* The supervisor is gone. If it could not say how it ended, what it left behind is killed first. */
static void gone(struct tn_attempt *a)
{
    struct cleaning *cl;

    if (a->ended || a->killing)
        return;
    if (a->handles > 1)
        uv_poll_stop(&a->poll);
    tn_exit_read(&a->exit, a->folder);
    if (a->exit.known) {
        tn_attempt_ended(a);
        return;
    }
    a->killing = true;
    cl = mem_alloc(sizeof(*cl));
    cl->work.data = cl;
    cl->svc = a->svc;
    cl->a = a;
    snprintf(cl->mark, sizeof(cl->mark), "%s", a->mark);
    a->svc->works++;
    uv_queue_work(a->svc->loop, &cl->work, clean_work, clean_done);
}

static void on_pidfd(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    gone(p->data);
}

static int watch(struct tn_attempt *a, int pid)
{
    a->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (a->pidfd < 0)
        return -errno;
    uv_poll_init(a->svc->loop, &a->poll, a->pidfd);
    a->poll.data = a;
    a->handles++;
    uv_poll_start(&a->poll, UV_READABLE, on_pidfd);
    return 0;
}

/* ---- start ---- */

void tn_process_closed(uv_handle_t *h)
{
    struct tn_service *svc = h->data;

    svc->processes--;
    free(h);
}

static void on_reaped(uv_process_t *p, int64_t status, int sig)
{
    (void)status;
    (void)sig;
    uv_close((uv_handle_t *)p, tn_process_closed);
}

static int spawn(struct tn_attempt *a, char **argv, char **env, struct err *e)
{
    uv_stdio_container_t io[3] = {{.flags = UV_IGNORE}, {.flags = UV_IGNORE}, {.flags = UV_IGNORE}};
    uv_process_options_t o = {.exit_cb = on_reaped,
                              .file = argv[0],
                              .args = argv,
                              .env = env,
                              .cwd = a->folder,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio = io,
                              .stdio_count = 3};
    uv_process_t *p = mem_alloc(sizeof(*p));
    const char *directory = a->trainer->directory ? a->trainer->directory(a) : NULL;
    int r;

    if (directory)
        o.cwd = directory;

    p->data = a->svc;
    r = uv_spawn(a->svc->loop, p, &o);
    a->svc->processes++;
    if (r < 0) {
        uv_close((uv_handle_t *)p, tn_process_closed);
        return err_set(e, r, "cannot start %s: %s", argv[0], uv_strerror(r));
    }
    a->proc.pid = p->pid;
    r = watch(a, p->pid);
    return r < 0 ? err_set(e, r, "watch process %d: %s", p->pid, strerror(-r)) : 0;
}

static int start(struct tn_attempt *a, struct err *e)
{
    struct tn_argv argv = {0}, env = {0};
    int r = build(&argv, a, e);

    build_env(&env, a);
    if (a->trainer->environment)
        a->trainer->environment(a, &env);
    if (r == 0)
        r = spawn(a, argv.v, env.v, e);
    tn_argv_done(&argv);
    tn_argv_done(&env);
    return r;
}

/* ---- adopt ---- */

static int dead(struct tn_attempt *a, const char *why)
{
    tn_exit_read(&a->exit, a->folder);
    if (!a->exit.known) {
        tn_mark_kill_all(a->mark, 20000);
        if (why) {
            snprintf(a->trouble, sizeof(a->trouble), "%s", why);
            a->machine_lost = true;
        }
    }
    return 0;
}

static int adopt(struct tn_attempt *a, const struct db_attempt *row, struct err *e)
{
    struct tn_proc here;
    int r;

    (void)row;
    tn_slots_take_list(&a->svc->slots, a->cpus, a->ncpus);
    /* Was it started at all? If nobody claimed it, we do, and then nobody will. */
    r = file_exists(a->folder) ? tn_run_claim(a->folder, NULL, a->mark, NULL) : 0;
    if (r == 0)
        return dead(a, "the daemon died before it was launched");
    if (r != -EEXIST)
        return err_set(e, r, "claim %s: %s", a->folder, strerror(-r));
    r = tn_run_read(&a->proc, a->folder, e);
    if (r < 0)
        return dead(a, "run.json is damaged");
    if (a->proc.pid == 0)
        return dead(a, "the daemon died before it was launched");
    if (tn_proc_of(&here, getpid()) == 0 && strcmp(here.boot, a->proc.boot) != 0)
        return dead(a, "the machine was restarted");
    if (!tn_proc_alive(&a->proc) || watch(a, a->proc.pid) < 0)
        return dead(a, NULL);
    return 1; /* if it dies right now, its pidfd says so */
}

/* ---- stop ---- */

static void stop(struct tn_attempt *a)
{
    if (a->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, a->pidfd, SIGTERM, NULL, 0);
    a->kill_at = tn_now_ms() +
                 (uint64_t)(a->svc->config.grace_ms > 0 ? a->svc->config.grace_ms : 2000) + OBEY_MS;
}

static void tick(struct tn_attempt *a)
{
    if (a->kill_at && tn_now_ms() > a->kill_at && !a->killing) {
        log_warn("campaign %s: the supervisor of trial %lld does not obey: killing it",
                 a->campaign->id, (long long)a->trial->n);
        a->kill_at = 0;
        if (a->pidfd >= 0)
            syscall(SYS_pidfd_send_signal, a->pidfd, SIGKILL, NULL, 0);
    }
}

const struct tn_launcher tn_launcher_local = {
    .name = "local",
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = stop,
    .tick = tick,
};
