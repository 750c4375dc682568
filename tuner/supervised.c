/*
 * An attempt under partune-run on this machine: started, watched, adopted, stopped.
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

static int grace_ms(const struct tn_attempt *a)
{
    return a->svc->config.grace_ms > 0 ? a->svc->config.grace_ms : 2000;
}

/* ---- the command line ---- */

void tn_supervised_argv(struct tn_argv *v, const struct tn_attempt *a, const char *cpus)
{
    tn_argv_add(v, a->svc->supervisor);
    tn_argv_add(v, "--folder");
    tn_argv_add(v, a->folder);
    tn_argv_add(v, "--grace");
    tn_argv_addf(v, "%d", grace_ms(a));
    if (a->svc->config.log_limit) {
        tn_argv_add(v, "--log-limit");
        tn_argv_addf(v, "%llu", (unsigned long long)a->svc->config.log_limit);
    }
    if (a->svc->config.trial_limits) {
        tn_argv_add(v, "--limits");
        tn_argv_add(v, a->svc->config.trial_limits);
    }
    if (a->svc->config.trial_user && a->launcher == &tn_launcher_local) {
        tn_argv_add(v, "--user"); /* under Slurm it is Slurm that chooses the user */
        tn_argv_add(v, a->svc->config.trial_user);
    }
    if (cpus) {
        tn_argv_add(v, "--cpus");
        tn_argv_add(v, cpus);
    }
    tn_argv_add(v, "--");
}

/* What a trial may see of our environment. */
static bool passes(const char *entry)
{
    static const char *const names[] = {
        "PATH=",        "HOME=",    "LANG=", "LC_",          "TMPDIR=",       "LD_LIBRARY_PATH=",
        "USER=",        "LOGNAME=", "UCX_",  "MPICH_",       "MPIR_CVAR_",    "HYDRA_",
        "SLURM_CONF=",  "FI_",      "OMP_",  "PARTUNE_ISA=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=",
        "LSAN_OPTIONS="};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_starts(entry, names[i]))
            return true;
    return false;
}

void tn_supervised_env(struct tn_argv *env, const struct tn_attempt *a)
{
    for (char **p = environ; *p; p++)
        if (passes(*p))
            tn_argv_add(env, *p);
    tn_argv_addf(env, "%s=%s", TN_MARK_ENV, a->mark);
    if (a->trainer->environment)
        a->trainer->environment(a, env);
}

/* ---- watching ---- */

/* The last process of it on this machine is gone. */
static void last_gone(struct tn_attempt *a)
{
    if (a->launcher->gone)
        a->launcher->gone(a);
    else
        tn_attempt_ended(a);
}

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
        last_gone(cl->a);
    free(cl);
}

/* The supervisor is gone. If it could not say how it ended, what it left behind is killed first. */
static void gone(struct tn_attempt *a)
{
    struct cleaning *cl;

    if (a->handles > 1)
        uv_poll_stop(&a->poll);
    if (a->ended || a->killing)
        return;
    tn_exit_read(&a->exit, a->folder);
    if (a->exit.known) {
        last_gone(a);
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

int tn_supervised_spawn(struct tn_attempt *a, char **argv, char **env, struct err *e)
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
    if (r == 0)
        return 0;
    uv_process_kill(p, SIGKILL); /* nobody would know of its end */
    tn_mark_kill_all(a->mark, OBEY_MS);
    return err_set(e, r, "watch process %d: %s", p->pid, strerror(-r));
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

/* It says nothing about trial or machine, however often daemons die so early. */
static int never_launched(struct tn_attempt *a)
{
    dead(a, NULL);
    snprintf(a->trouble, sizeof(a->trouble), "the daemon died before it was launched");
    a->verdict = "requeued";
    return 0;
}

int tn_supervised_adopt(struct tn_attempt *a, struct err *e)
{
    struct tn_proc here;
    uint64_t age;
    int r;

    /* Was it started at all? If nobody claimed it, we do, and then nobody will. */
    r = file_exists(a->folder) ? tn_run_claim(a->folder, NULL, a->mark, NULL) : 0;
    if (r == 0)
        return never_launched(a);
    if (r != -EEXIST)
        return err_set(e, r, "claim %s: %s", a->folder, strerror(-r));
    r = tn_run_read(&a->proc, a->folder, e);
    if (r < 0)
        return dead(a, "run.json is damaged");
    if (a->proc.pid == 0)
        return never_launched(a);
    if (tn_proc_of(&here, getpid()) == 0 && strcmp(here.boot, a->proc.boot) != 0)
        return dead(a, "the machine was restarted");
    /* Alive after it is watched: else the pid might be somebody else's by then. */
    if (!tn_proc_alive(&a->proc) || watch(a, a->proc.pid) < 0 || !tn_proc_alive(&a->proc))
        return dead(a, NULL);
    age = tn_proc_age_ms(&a->proc);
    if (age < tn_now_ms()) /* the wall clock may have been set meanwhile */
        a->started = tn_now_ms() - age;
    return 1; /* if it dies right now, its pidfd says so */
}

/* ---- stop ---- */

void tn_supervised_stop(struct tn_attempt *a)
{
    if (a->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, a->pidfd, SIGTERM, NULL, 0);
    a->kill_at = tn_now_ms() + (uint64_t)grace_ms(a) + OBEY_MS;
}

void tn_supervised_tick(struct tn_attempt *a)
{
    if (a->kill_at && tn_now_ms() > a->kill_at && !a->killing) {
        log_warn("campaign %s: the supervisor of trial %lld does not obey: killing it",
                 a->campaign->id, (long long)a->trial->n);
        a->kill_at = 0;
        if (a->pidfd >= 0)
            syscall(SYS_pidfd_send_signal, a->pidfd, SIGKILL, NULL, 0);
    }
}

/* ---- end without an attempt in memory ---- */

void tn_supervised_end(struct tn_service *svc, const char *folder, const char *mark)
{
    int grace = svc->config.grace_ms > 0 ? svc->config.grace_ms : 2000;
    uint64_t until = tn_now_ms() + (uint64_t)grace + OBEY_MS;
    struct tn_proc p;

    /* Whoever has not claimed it by now will not start anything. */
    if (!file_exists(folder) || tn_run_claim(folder, NULL, mark, NULL) == 0)
        return;
    if (tn_run_read(&p, folder, NULL) == 0 && tn_proc_alive(&p) && kill(p.pid, SIGTERM) == 0)
        while (tn_proc_alive(&p) && tn_now_ms() < until)
            usleep(20000);
    if (tn_mark_kill_all(mark, 20000) < 0)
        log_error("processes of %s do not die", mark);
}
