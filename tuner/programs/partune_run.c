/*
 * partune-run - the supervisor of one attempt.
 *
 *     partune-run --folder DIR [--cpus LIST] [--grace MS] [--log-limit BYTES] [--limits LIST]
 *                 [--user NAME] -- PROGRAM ARG...
 *     partune-run --bind LIST -- PROGRAM ARG...
 *
 * It claims the attempt (run.json), becomes the reaper of everything that PROGRAM starts, keeps its
 * stdout and stderr in files of a bounded size, and when PROGRAM and all that carries the attempt's
 * mark is gone, writes exit.json. TERM: PROGRAM is told to stop, and after the grace everything
 * with the mark is killed, until none is left. It needs no daemon: the one that started it may die
 * and another one adopt it. PROGRAM runs as --user with --limits; the supervisor stays what it is,
 * so that no trial can kill it or write its own end. docs/reference/protocol.md is the contract.
 *
 * The second form, under mpiexec, only binds a rank to CPUs of its own and becomes PROGRAM.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/rlimits.h"
#include "tuner/programs/run_bind.h"
#include "tuner/programs/run_output.h"

enum {
    TICK_MS = 500,     /* how often orphans are looked for */
    LINGER_MS = 300,   /* what the launcher left running may end by itself so long */
    WARN_MS = 10000,   /* what was killed so long ago should be dead */
    ROOM_MS = 1000,    /* how often a full disk is tried again */
    EXIT_TAKEN = 111,  /* the attempt belongs to somebody else: nothing was started */
    EXIT_FAILED = 112, /* the attempt could not be set up */
};

struct values {
    const char *folder, *cpus, *limits, *user, *bind;
    int grace;
    uint64_t log_limit;
    bool help, manual, version;
};

static const struct opt table[] = {
    {"folder", 'f', OPT_STR, offsetof(struct values, folder), 0, 0, NULL, NULL, "DIR",
     "attempt directory"},
    {"cpus", 'c', OPT_STR, offsetof(struct values, cpus), 0, 0, NULL, NULL, "LIST",
     "cores for PROGRAM"},
    {"grace", 'g', OPT_INT, offsetof(struct values, grace), 0, 600000, "2000", NULL, "MS",
     "milliseconds between TERM and KILL"},
    {"log-limit", 'l', OPT_BYTES, offsetof(struct values, log_limit), 0, 0, "16m", NULL, "BYTES",
     "keep this much of stdout and stderr, and their last 64 KiB"},
    {"limits", 0, OPT_STR, offsetof(struct values, limits), 0, 0, NULL, NULL, "LIST",
     "resource limits of PROGRAM: core, data, fsize, nofile, nproc, cpu"},
    {"user", 'u', OPT_STR, offsetof(struct values, user), 0, 0, NULL, NULL, "NAME",
     "run PROGRAM as this user, who will own the directory"},
    {"bind", 'b', OPT_STR, offsetof(struct values, bind), 0, 0, NULL, NULL, "LIST",
     "do not supervise: run PROGRAM, a rank under mpiexec, on its entry of LIST (0+1,2+3)"},
    {"help", 'h', OPT_FLAG, offsetof(struct values, help), 0, 0, NULL, NULL, NULL,
     "print this help and exit"},
    {"manual", 0, OPT_FLAG, offsetof(struct values, manual), 0, 0, NULL, NULL, NULL,
     "print the manual page in roff and exit"},
    {"version", 0, OPT_FLAG, offsetof(struct values, version), 0, 0, NULL, NULL, NULL,
     "print the version and exit"},
};

static const struct opt_manual manual = {
    .section = 8,
    .summary = "the supervisor of one attempt of a trial",
    .description =
        "Started by\n.BR partuned (8),\nwhich sets PARTUNE_TRIAL, the mark of the attempt. It "
        "starts PROGRAM, keeps its output in files of a bounded size, and writes exit.json when "
        "PROGRAM and all processes with the mark have ended. TERM stops the attempt: first "
        "PROGRAM, then, after the grace time, everything that is left. It does not need the "
        "daemon: a restarted daemon finds it and resumes reading.",
    .more = ".SH EXIT STATUS\n0 exit.json is written, however PROGRAM ended; 2 wrong usage; 111 "
            "another process owns the attempt; 112 it could not be set up.\n"
            ".SH FILES\n.I run.json\nthe owner of the attempt,\n.I stdout\nand\n.I stderr\nof "
            "PROGRAM,\n"
            ".I exit.json\nhow it ended: all in the attempt directory.\n"
            ".SH SEE ALSO\n.BR partuned (8)\n",
};

/* --help and the like: is nothing else to be done? */
static bool told(const struct opt_set *set, const struct values *values)
{
    if (values->help)
        opt_help(set, stdout);
    else if (values->manual)
        opt_manual(set, &manual, stdout);
    else if (values->version)
        printf("partune-run %s\n", PACKAGE_VERSION);
    else
        return false;
    return true;
}

struct run {
    const char *mark;
    int child;  /* 0: it has ended */
    int status; /* of waitpid */
    int signals;
    int grace;
    uint64_t kill_at; /* 0: nobody is being stopped */
    int orphan_ticks;
    struct run_output out[2];
    struct tn_exit exit;
    struct tn_rlimits limits;
    struct tn_user user; /* name NULL: ours */
};

static uint64_t now_ms(void)
{
    return clock_mono_ns() / 1000000;
}

static int set_affinity(const char *text)
{
    int cpus[1024];
    int n = tn_cpus_parse(cpus, (int)ARRAY_LEN(cpus), text);
    cpu_set_t set;

    if (n <= 0)
        return -EINVAL;
    CPU_ZERO(&set);
    for (int i = 0; i < n; i++)
        CPU_SET((size_t)cpus[i], &set);
    return sched_setaffinity(0, sizeof(set), &set) < 0 ? -errno : 0;
}

/* ---- processes ----------------------------------------------------------- */

/* Returns the shell's code only where PROGRAM cannot be started. */
static int become(char **argv)
{
    int why;

    execvp(argv[0], argv);
    why = errno;
    fprintf(stderr, "partune-run: cannot start %s: %s\n", argv[0], strerror(why));
    return why == ENOENT ? 127 : 126;
}

static void exec_child(const struct run *run, char **argv, const int write_end[2])
{
    sigset_t none;
    int rc;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    dup2(write_end[0], STDOUT_FILENO);
    dup2(write_end[1], STDERR_FILENO);
    rc = tn_rlimits_apply(&run->limits);
    if (rc == 0 && run->user.name)
        rc = tn_user_become(&run->user);
    if (rc < 0) {
        fprintf(stderr, "partune-run: limits, or the user %s: %s\n",
                run->user.name ? run->user.name : "", strerror(-rc));
        _exit(126);
    }
    _exit(become(argv));
}

static void reap(struct run *run)
{
    int pid, status;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == run->child) {
            run->child = 0;
            run->status = status;
        }
}

static void stop(struct run *run)
{
    uint64_t at = now_ms() + (uint64_t)run->grace;

    run->exit.stopped = true;
    if (run->kill_at == 0 || at < run->kill_at)
        run->kill_at = at;
    if (run->child)
        kill(run->child, SIGTERM);
}

static void take_signals(struct run *run)
{
    struct signalfd_siginfo si;

    while (read(run->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGCHLD)
            reap(run);
        else
            stop(run);
    }
}

/* A live process whose parent we are, but that we did not start: its process manager died. */
static bool has_orphan(const struct run *run)
{
    int pids[1024];
    int n = tn_mark_find(pids, (int)ARRAY_LEN(pids), run->mark);

    for (int i = 0; i < n && i < (int)ARRAY_LEN(pids); i++)
        if (pids[i] != run->child && tn_proc_parent(pids[i]) == getpid())
            return true;
    return false;
}

/* mpiexec waits for ever when its proxy was killed. Two looks in a row rule out an orderly end in
 * between. */
static void look_for_orphans(struct run *run)
{
    if (!run->child || run->kill_at)
        return;
    run->orphan_ticks = has_orphan(run) ? run->orphan_ticks + 1 : 0;
    if (run->orphan_ticks < 2)
        return;
    run->exit.proxy_lost = true;
    run->kill_at = now_ms();
}

/* One turn: wait for a signal, output or the clock. */
static void turn(struct run *run, int timeout_ms)
{
    struct pollfd p[3] = {
        {run->signals, POLLIN, 0}, {run->out[0].pipe, POLLIN, 0}, {run->out[1].pipe, POLLIN, 0}};

    poll(p, 3, timeout_ms);
    take_signals(run);
    run_output_pump(&run->out[0]);
    run_output_pump(&run->out[1]);
}

static void wait_for_child(struct run *run)
{
    uint64_t looked = now_ms();

    while (run->child) {
        uint64_t now;

        turn(run, TICK_MS);
        now = now_ms();
        if (run->kill_at && now >= run->kill_at) {
            tn_mark_kill_all(run->mark, 10000);
            reap(run);
        } else if (now - looked >= TICK_MS) {
            look_for_orphans(run);
            looked = now;
        }
    }
}

/* What is left of the attempt, and gets SIG (0: nothing): processes with the mark, else those
 * that have thrown it away with the rest of the environment, which are our children as soon as
 * their parent is gone. */
static int remains(const struct run *run, int sig)
{
    int pids[256];
    int n = sig ? tn_mark_signal(run->mark, sig) : tn_mark_find(pids, 0, run->mark);

    if (n > 0)
        return n;
    n = tn_proc_children(pids, (int)ARRAY_LEN(pids));
    for (int i = 0; sig && i < n && i < (int)ARRAY_LEN(pids); i++)
        kill(pids[i], sig);
    return n;
}

/* What the launcher left behind may end by itself for a moment, then it is killed. */
static void clear_leftovers(struct run *run)
{
    uint64_t until = now_ms() + (run->kill_at ? 0 : LINGER_MS), warn_at = now_ms() + WARN_MS;
    int left;

    while ((left = remains(run, 0)) > 0 && now_ms() < until)
        turn(run, 10);
    run->exit.leftovers = left;
    while (remains(run, SIGKILL) > 0) {
        turn(run, 5);
        if (now_ms() > warn_at) {
            log_warn("processes of %s cannot be killed; retrying", run->mark);
            warn_at = now_ms() + WARN_MS;
        }
    }
    reap(run);
    run_output_pump(&run->out[0]);
    run_output_pump(&run->out[1]);
}

static int start(struct run *run, const struct values *values, char **argv)
{
    int write_end[2];
    sigset_t set;
    int rc;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    run->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = run_output_open(&write_end[0], &run->out[0], values->folder, "stdout", values->log_limit);
    if (rc == 0)
        rc = run_output_open(&write_end[1], &run->out[1], values->folder, "stderr",
                             values->log_limit);
    if (rc < 0)
        return rc;
    run->exit.started = clock_wall_ms();
    run->child = fork();
    if (run->child < 0)
        return -errno;
    if (run->child == 0)
        exec_child(run, argv, write_end);
    close(write_end[0]);
    close(write_end[1]);
    return 0;
}

static int supervise(struct run *run, const struct values *values, char **argv, struct err *error)
{
    int64_t oom = tn_oom_kills();
    int rc = start(run, values, argv);

    if (rc < 0)
        return err_set(error, rc, "set up %s: %s", values->folder, strerror(-rc));
    wait_for_child(run);
    clear_leftovers(run);
    run_output_close(&run->out[0]);
    run_output_close(&run->out[1]);
    run->exit.code = WIFEXITED(run->status) ? WEXITSTATUS(run->status) : -1;
    run->exit.signal = WIFSIGNALED(run->status) ? WTERMSIG(run->status) : 0;
    run->exit.oom_kills = tn_oom_kills() - oom;
    run->exit.ended = clock_wall_ms();
    /* How it ended must not be lost to a full disk, on which nobody could record it either. */
    while (((rc = tn_exit_write(values->folder, &run->exit, error)) == -ENOSPC || rc == -EDQUOT) &&
           !run->kill_at)
        turn(run, ROOM_MS);
    return rc;
}

/* Whom and what the program gets, before anything is started. */
static int prepare(struct run *run, const struct values *values, struct err *error)
{
    int rc = tn_rlimits_parse(&run->limits, values->limits, error);

    if (rc == 0 && values->user)
        rc = tn_user_find(&run->user, values->user, error);
    if (rc == 0 && values->user)
        rc = tn_user_give(&run->user, values->folder, error);
    return rc;
}

static int fail(const struct err *error, int status)
{
    fprintf(stderr, "partune-run: %s\n", error->text);
    return status;
}

/* What an attempt needs to be run. */
static int check(const struct values *values, int operands, struct err *error)
{
    if (operands == 0)
        return err_set(error, -EINVAL, "PROGRAM is missing");
    if (values->bind)
        return values->folder ? err_set(error, -EINVAL, "--bind and --folder exclude each other")
                              : run_bind(values->bind, error);
    if (!values->folder)
        return err_set(error, -EINVAL, "--folder is required");
    if (!getenv(TN_MARK_ENV))
        return err_set(error, -EINVAL, "%s is not in the environment", TN_MARK_ENV);
    if (values->cpus && set_affinity(values->cpus) < 0)
        return err_set(error, -EINVAL, "cannot run on the cores %s", values->cpus);
    return 0;
}

int main(int argc, char **argv)
{
    struct values v = {0};
    struct opt_set set = {.program = "partune-run",
                          .usage = "partune-run --folder DIR [options] -- PROGRAM [ARG...]",
                          .table = table,
                          .count = ARRAY_LEN(table),
                          .values = &v};
    struct run r = {.out = {{.pipe = -1, .file = -1}, {.pipe = -1, .file = -1}}};
    struct tn_proc self;
    struct err e = {0};
    int operands = 0;

    log_setup("partune-run", LOG_INFO);
    opt_init(&set);
    if (opt_from_argv(&operands, &set, argc, argv, 1, &e) < 0)
        return fail(&e, 2);
    if (told(&set, &v)) {
        opt_done(&set);
        return 0;
    }
    if (check(&v, operands, &e) < 0)
        return fail(&e, 2);
    argv[1 + operands] = NULL; /* the operands were moved to the front */
    if (v.bind)
        return become(argv + 1);
    r.mark = getenv(TN_MARK_ENV);
    r.grace = v.grace;
    setsid(); /* fails when the daemon made us a session leader already */
    if (tn_proc_of(&self, getpid()) < 0)
        return fail(&(struct err){.text = "/proc is not mounted"}, EXIT_FAILED);
    if (tn_run_claim(v.folder, &self, r.mark, &e) < 0)
        return fail(&e, e.code == -EEXIST ? EXIT_TAKEN : EXIT_FAILED);
    if (prepare(&r, &v, &e) < 0)
        return fail(&e, EXIT_FAILED);
    if (supervise(&r, &v, argv + 1, &e) < 0)
        return fail(&e, EXIT_FAILED);
    tn_user_done(&r.user);
    opt_done(&set);
    return 0;
}
