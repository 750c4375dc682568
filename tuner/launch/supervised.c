/*
 * An attempt under partune-run on this machine: started, watched, adopted, stopped.
 *
 * The supervisor is watched by its pidfd, so a child and an adopted process of a former daemon are
 * the same case.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/launcher.h"
#include "tuner/core/trainer.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/state/state.h"

enum { OBEY_MS = 10000 }; /* beyond its grace: then the supervisor itself is killed */

static struct tn_supervised *of(const struct tn_attempt *attempt)
{
    return attempt->launch;
}

int tn_supervised_grace_ms(const struct tn_attempt *attempt)
{
    const struct tn_config *settings = tn_settings(attempt->svc);

    return settings->grace_ms > 0 ? settings->grace_ms : 2000;
}

/* ---- the command line ---------------------------------------------------- */

void tn_supervised_argv(struct tn_argv *argv, const struct tn_attempt *attempt, const char *cpus)
{
    const struct tn_config *settings = tn_settings(attempt->svc);

    tn_argv_add(argv, tn_machine(attempt->svc)->supervisor);
    tn_argv_add(argv, "--folder");
    tn_argv_add(argv, attempt->folder);
    tn_argv_add(argv, "--grace");
    tn_argv_addf(argv, "%d", tn_supervised_grace_ms(attempt));
    if (settings->log_limit) {
        tn_argv_add(argv, "--log-limit");
        tn_argv_addf(argv, "%llu", (unsigned long long)settings->log_limit);
    }
    if (settings->trial_limits) {
        tn_argv_add(argv, "--limits");
        tn_argv_add(argv, settings->trial_limits);
    }
    if (settings->trial_user && attempt->launcher->sets_user) {
        tn_argv_add(argv, "--user"); /* under Slurm it is Slurm that chooses the user */
        tn_argv_add(argv, settings->trial_user);
    }
    if (cpus) {
        tn_argv_add(argv, "--cpus");
        tn_argv_add(argv, cpus);
    }
    tn_argv_add(argv, "--");
}

/* What a trial may see of our environment. */
static bool passes(const char *entry)
{
    static const char *const names[] = {"PATH=",         "HOME=",
                                        "LANG=",         "LC_",
                                        "TMPDIR=",       "LD_LIBRARY_PATH=",
                                        "USER=",         "LOGNAME=",
                                        "UCX_",          "MPICH_",
                                        "MPIR_CVAR_",    "HYDRA_",
                                        "I_MPI_",        "OMPI_MCA_",
                                        "OPAL_PREFIX=",  "PMIX_MCA_",
                                        "PRTE_MCA_",     "SLURM_CONF=",
                                        "FI_",           "OMP_",
                                        "NCCL_",         "PARTUNE_NCCL=",
                                        "PARTUNE_CUDA=", "PARTUNE_ISA=",
                                        "ASAN_OPTIONS=", "UBSAN_OPTIONS=",
                                        "LSAN_OPTIONS=", "PARTUNE_POWERCAP="};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_starts(entry, names[i]))
            return true;
    return false;
}

void tn_supervised_env(struct tn_argv *env, const struct tn_attempt *attempt)
{
    char trace[TN_TRACEPARENT_TEXT];

    for (char **p = environ; *p; p++)
        if (passes(*p))
            tn_argv_add(env, *p);
    tn_argv_addf(env, "%s=%s", TN_MARK_ENV, attempt->mark);
    tn_argv_addf(
        env, "%s=%s", TN_TRACE_ENV,
        tn_trace_child(trace, attempt->campaign->traceparent, attempt->trial->n, attempt->number));
    if (attempt->trainer->environment)
        attempt->trainer->environment(attempt, env);
}

/* ---- watching ------------------------------------------------------------ */

/* The last process of it on this machine is gone. */
static void last_gone(struct tn_attempt *attempt)
{
    if (attempt->launcher->gone)
        attempt->launcher->gone(attempt);
    else
        tn_attempt_ended(attempt);
}

struct cleaning {
    uv_work_t work;
    struct tn_service *svc;
    struct tn_attempt *a;
    char mark[TN_MARK_TEXT];
};

static void clean_work(uv_work_t *work)
{
    struct cleaning *cl = work->data;

    tn_mark_kill_all(cl->mark, 20000);
}

static void clean_done(uv_work_t *work, int status)
{
    struct cleaning *cl = work->data;

    assert(tn_phase(cl->svc)->works > 0);
    (void)status;
    tn_phase(cl->svc)->works--;
    if (!tn_phase(cl->svc)->closing)
        last_gone(cl->a);
    free(cl);
}

/* The supervisor is gone. If it could not say how it ended, what it left behind is killed first. */
static void gone(struct tn_attempt *attempt)
{
    struct tn_supervised *sv = of(attempt);
    struct cleaning *cl;

    assert(attempt->handles > 0);
    if (sv->watched)
        uv_poll_stop(&sv->poll);
    if (attempt->ended || sv->killing)
        return;
    tn_exit_read(&attempt->exit, attempt->folder);
    if (attempt->exit.known) {
        last_gone(attempt);
        return;
    }
    sv->killing = true;
    cl = mem_alloc(sizeof(*cl));
    cl->work.data = cl;
    cl->svc = attempt->svc;
    cl->a = attempt;
    snprintf(cl->mark, sizeof(cl->mark), "%s", attempt->mark);
    tn_phase(attempt->svc)->works++;
    uv_queue_work(tn_loop(attempt->svc), &cl->work, clean_work, clean_done);
}

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    gone(poll->data);
}

static int watch(struct tn_attempt *attempt, int pid)
{
    struct tn_supervised *sv = of(attempt);

    assert(!sv->watched);
    sv->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (sv->pidfd < 0)
        return -errno;
    uv_poll_init(tn_loop(attempt->svc), &sv->poll, sv->pidfd);
    sv->poll.data = attempt;
    sv->watched = true;
    attempt->handles++;
    uv_poll_start(&sv->poll, UV_READABLE, on_pidfd);
    return 0;
}

static void poll_closed(uv_handle_t *handle)
{
    close(of(handle->data)->pidfd);
    tn_attempt_closed(handle);
}

void tn_supervised_close(struct tn_attempt *attempt)
{
    struct tn_supervised *sv = of(attempt);

    if (sv->watched && !uv_is_closing((uv_handle_t *)&sv->poll))
        uv_close((uv_handle_t *)&sv->poll, poll_closed);
}

/* ---- start --------------------------------------------------------------- */

void tn_process_closed(uv_handle_t *handle)
{
    struct tn_service *svc = handle->data;

    assert(tn_machine(svc)->processes > 0);
    tn_machine(svc)->processes--;
    free(handle);
}

static void on_reaped(uv_process_t *process, int64_t status, int sig)
{
    (void)status;
    (void)sig;
    uv_close((uv_handle_t *)process, tn_process_closed);
}

int tn_supervised_spawn(struct tn_attempt *attempt, char **argv, char **env, struct err *error)
{
    uv_stdio_container_t io[3] = {{.flags = UV_IGNORE}, {.flags = UV_IGNORE}, {.flags = UV_IGNORE}};
    uv_process_options_t o = {.exit_cb = on_reaped,
                              .file = argv[0],
                              .args = argv,
                              .env = env,
                              .cwd = attempt->folder,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio = io,
                              .stdio_count = 3};
    uv_process_t *p = mem_alloc(sizeof(*p));
    const char *directory =
        attempt->trainer->directory ? attempt->trainer->directory(attempt) : NULL;
    int r;

    assert(attempt->launcher->close == tn_supervised_close);
    if (directory)
        o.cwd = directory;

    p->data = attempt->svc;
    r = uv_spawn(tn_loop(attempt->svc), p, &o);
    tn_machine(attempt->svc)->processes++;
    if (r < 0) {
        uv_close((uv_handle_t *)p, tn_process_closed);
        return err_set(error, r, "cannot start %s: %s", argv[0], uv_strerror(r));
    }
    of(attempt)->proc.pid = p->pid;
    r = watch(attempt, p->pid);
    if (r == 0)
        return 0;
    uv_process_kill(p, SIGKILL); /* nobody would know of its end */
    tn_mark_kill_all(attempt->mark, OBEY_MS);
    return err_set(error, r, "watch process %d: %s", p->pid, strerror(-r));
}

/* ---- adopt --------------------------------------------------------------- */

static int dead(struct tn_attempt *attempt, const char *why)
{
    tn_exit_read(&attempt->exit, attempt->folder);
    if (!attempt->exit.known) {
        tn_mark_kill_all(attempt->mark, 20000);
        if (why) {
            snprintf(attempt->trouble, sizeof(attempt->trouble), "%s", why);
            attempt->machine_lost = true;
        }
    }
    return 0;
}

/* It says nothing about trial or machine, however often daemons die so early. */
static int never_launched(struct tn_attempt *attempt)
{
    dead(attempt, NULL);
    snprintf(attempt->trouble, sizeof(attempt->trouble), "the daemon died before it was launched");
    attempt->verdict = db_states[DB_STATE_REQUEUED].name;
    return 0;
}

int tn_supervised_adopt(struct tn_attempt *attempt, struct err *error)
{
    struct tn_proc *proc = &of(attempt)->proc, here;
    uint64_t age;
    int r;

    assert(attempt->launcher->close == tn_supervised_close);
    /* Was it started at all? If nobody claimed it, we do, and then nobody will. */
    r = file_exists(attempt->folder) ? tn_run_claim(attempt->folder, NULL, attempt->mark, NULL) : 0;
    if (r == 0)
        return never_launched(attempt);
    if (r != -EEXIST)
        return err_set(error, r, "claim %s: %s", attempt->folder, strerror(-r));
    r = tn_run_read(proc, attempt->folder, error);
    if (r < 0)
        return dead(attempt, "run.json is damaged");
    if (proc->pid == 0)
        return never_launched(attempt);
    if (tn_proc_of(&here, getpid()) == 0 && strcmp(here.boot, proc->boot) != 0)
        return dead(attempt, "the machine was restarted");
    /* Alive after it is watched: else the pid might be somebody else's by then. */
    if (!tn_proc_alive(proc) || watch(attempt, proc->pid) < 0 || !tn_proc_alive(proc))
        return dead(attempt, NULL);
    age = tn_proc_age_ms(proc);
    if (age < tn_now_ms()) /* the wall clock may have been set meanwhile */
        attempt->started = tn_now_ms() - age;
    return 1; /* if it dies right now, its pidfd says so */
}

/* ---- stop ---------------------------------------------------------------- */

void tn_supervised_stop(struct tn_attempt *attempt)
{
    struct tn_supervised *sv = of(attempt);

    assert(attempt->launcher->close == tn_supervised_close);
    if (sv->watched)
        syscall(SYS_pidfd_send_signal, sv->pidfd, SIGTERM, NULL, 0);
    sv->kill_at = tn_now_ms() + (uint64_t)tn_supervised_grace_ms(attempt) + OBEY_MS;
}

void tn_supervised_tick(struct tn_attempt *attempt)
{
    struct tn_supervised *sv = of(attempt);

    if (sv->kill_at && tn_now_ms() > sv->kill_at && !sv->killing) {
        tn_log_attempt(LOG_WARN, attempt, ": its supervisor does not respond to TERM: killing it");
        sv->kill_at = 0;
        if (sv->watched)
            syscall(SYS_pidfd_send_signal, sv->pidfd, SIGKILL, NULL, 0);
    }
}

/* ---- end without an attempt in memory ------------------------------------ */

void tn_supervised_end(struct tn_service *svc, const char *folder, const char *mark)
{
    const struct tn_config *settings = tn_settings(svc);
    int grace = settings->grace_ms > 0 ? settings->grace_ms : 2000;
    uint64_t until = tn_now_ms() + (uint64_t)grace + OBEY_MS;
    struct tn_proc p;

    /* A supervisor that has not claimed it by now will not start anything. */
    if (!file_exists(folder) || tn_run_claim(folder, NULL, mark, NULL) == 0)
        return;
    if (tn_run_read(&p, folder, NULL) == 0 && tn_proc_alive(&p) && kill(p.pid, SIGTERM) == 0)
        while (tn_proc_alive(&p) && tn_now_ms() < until)
            usleep(20000);
    if (tn_mark_kill_all(mark, 20000) < 0)
        log_error("processes of %s cannot be killed", mark);
}
