/*
 * partune-run - the supervisor of one attempt.
 *
 *     partune-run --folder DIR [--cpus LIST] [--grace MS] [--log-limit BYTES] [--limits LIST]
 *                 [--user NAME] -- PROGRAM ARG...
 *
 * It claims the attempt (run.json), becomes the reaper of everything that PROGRAM starts, keeps its
 * stdout and stderr in files of a bounded size, and when PROGRAM and all that carries the attempt's
 * mark is gone, writes exit.json. TERM: PROGRAM is told to stop, and after the grace everything
 * with the mark is killed, until none is left. It needs no daemon: the one that started it may die
 * and another one adopt it. PROGRAM runs as --user with --limits; the supervisor stays what it is,
 * so that no trial can kill it or write its own end. docs/reference/protocol.md is the contract.
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
#include "tuner/proc.h"
#include "tuner/rlimits.h"
#include "tuner/run_output.h"

enum {
    TICK_MS = 500,     /* how often orphans are looked for */
    LINGER_MS = 300,   /* what the launcher left running may end by itself so long */
    WARN_MS = 10000,   /* what was killed so long ago should be dead */
    ROOM_MS = 1000,    /* how often a full disk is tried again */
    EXIT_TAKEN = 111,  /* the attempt belongs to somebody else: nothing was started */
    EXIT_FAILED = 112, /* the attempt could not be set up */
};

struct values {
    const char *folder, *cpus, *limits, *user;
    int grace;
    uint64_t log_limit;
    bool help, manual, version;
};

static const struct opt table[] = {
    {"folder", 'f', OPT_STR, offsetof(struct values, folder), 0, 0, NULL, NULL, "DIR",
     "folder of the attempt"},
    {"cpus", 'c', OPT_STR, offsetof(struct values, cpus), 0, 0, NULL, NULL, "LIST",
     "cores that it may use"},
    {"grace", 'g', OPT_INT, offsetof(struct values, grace), 0, 600000, "2000", NULL, "MS",
     "milliseconds between TERM and KILL"},
    {"log-limit", 'l', OPT_BYTES, offsetof(struct values, log_limit), 0, 0, "16m", NULL, "BYTES",
     "size of stdout and of stderr beyond which only their last 64 KiB are kept"},
    {"limits", 0, OPT_STR, offsetof(struct values, limits), 0, 0, NULL, NULL, "LIST",
     "resource limits of PROGRAM: core, data, fsize, nofile, nproc, cpu"},
    {"user", 'u', OPT_STR, offsetof(struct values, user), 0, 0, NULL, NULL, "NAME",
     "start PROGRAM as this user, who gets the folder"},
    {"help", 'h', OPT_FLAG, offsetof(struct values, help), 0, 0, NULL, NULL, NULL, "this text"},
    {"manual", 0, OPT_FLAG, offsetof(struct values, manual), 0, 0, NULL, NULL, NULL,
     "the manual page, as roff"},
    {"version", 0, OPT_FLAG, offsetof(struct values, version), 0, 0, NULL, NULL, NULL,
     "the version"},
};

static const struct opt_manual manual = {
    .section = 8,
    .summary = "the supervisor of one attempt of a trial",
    .description =
        "Started by\n.BR partuned (8),\nwhich sets PARTUNE_TRIAL, the mark of the attempt. It "
        "starts "
        "PROGRAM, keeps its output in files of a bounded size, and when PROGRAM and all that "
        "carries the mark is gone it writes how that ended to exit.json. TERM stops the attempt: "
        "PROGRAM first, after the grace everything that is left. It needs no daemon: a restarted "
        "one finds it and reads on.",
    .more = ".SH EXIT STATUS\n0 the end is written, however PROGRAM ended; 2 wrong usage; 111 "
            "somebody else has the attempt; 112 it could not be set up.\n"
            ".SH FILES\n.I run.json\nwho supervises,\n.I stdout\nand\n.I stderr\nof PROGRAM,\n"
            ".I exit.json\nhow it ended: all in the folder.\n"
            ".SH SEE ALSO\n.BR partuned (8)\n",
};

/* --help and the like: is nothing else to be done? */
static bool told(const struct opt_set *set, const struct values *v)
{
    if (v->help)
        opt_help(set, stdout);
    else if (v->manual)
        opt_manual(set, &manual, stdout);
    else if (v->version)
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

/* ---- processes ---- */

static void exec_child(const struct run *r, char **argv, const int write_end[2])
{
    sigset_t none;
    int rc;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    dup2(write_end[0], STDOUT_FILENO);
    dup2(write_end[1], STDERR_FILENO);
    rc = tn_rlimits_apply(&r->limits);
    if (rc == 0 && r->user.name)
        rc = tn_user_become(&r->user);
    if (rc < 0) {
        fprintf(stderr, "partune-run: limits, or the user %s: %s\n",
                r->user.name ? r->user.name : "", strerror(-rc));
        _exit(126);
    }
    execvp(argv[0], argv);
    fprintf(stderr, "partune-run: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static void reap(struct run *r)
{
    int pid, status;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == r->child) {
            r->child = 0;
            r->status = status;
        }
}

static void stop(struct run *r)
{
    uint64_t at = now_ms() + (uint64_t)r->grace;

    r->exit.stopped = true;
    if (r->kill_at == 0 || at < r->kill_at)
        r->kill_at = at;
    if (r->child)
        kill(r->child, SIGTERM);
}

static void take_signals(struct run *r)
{
    struct signalfd_siginfo si;

    while (read(r->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGCHLD)
            reap(r);
        else
            stop(r);
    }
}

/* A live process whose parent we are, but that we did not start: its process manager died. */
static bool has_orphan(const struct run *r)
{
    int pids[1024];
    int n = tn_mark_find(pids, (int)ARRAY_LEN(pids), r->mark);

    for (int i = 0; i < n && i < (int)ARRAY_LEN(pids); i++)
        if (pids[i] != r->child && tn_proc_parent(pids[i]) == getpid())
            return true;
    return false;
}

/* mpiexec waits for ever when its proxy was killed. Two looks in a row rule out an orderly end in
 * between. */
static void look_for_orphans(struct run *r)
{
    if (!r->child || r->kill_at)
        return;
    r->orphan_ticks = has_orphan(r) ? r->orphan_ticks + 1 : 0;
    if (r->orphan_ticks < 2)
        return;
    r->exit.proxy_lost = true;
    r->kill_at = now_ms();
}

/* One turn: wait for a signal, output or the clock. */
static void turn(struct run *r, int timeout_ms)
{
    struct pollfd p[3] = {
        {r->signals, POLLIN, 0}, {r->out[0].pipe, POLLIN, 0}, {r->out[1].pipe, POLLIN, 0}};

    poll(p, 3, timeout_ms);
    take_signals(r);
    run_output_pump(&r->out[0]);
    run_output_pump(&r->out[1]);
}

static void wait_for_child(struct run *r)
{
    uint64_t looked = now_ms();

    while (r->child) {
        uint64_t now;

        turn(r, TICK_MS);
        now = now_ms();
        if (r->kill_at && now >= r->kill_at) {
            tn_mark_kill_all(r->mark, 10000);
            reap(r);
        } else if (now - looked >= TICK_MS) {
            look_for_orphans(r);
            looked = now;
        }
    }
}

/* What is left of the attempt, and gets SIG (0: nothing): whoever carries the mark, else whoever
 * has thrown it away with the rest of the environment, who is our child as soon as the parent is
 * gone. */
static int remains(const struct run *r, int sig)
{
    int pids[256];
    int n = sig ? tn_mark_signal(r->mark, sig) : tn_mark_find(pids, 0, r->mark);

    if (n > 0)
        return n;
    n = tn_proc_children(pids, (int)ARRAY_LEN(pids));
    for (int i = 0; sig && i < n && i < (int)ARRAY_LEN(pids); i++)
        kill(pids[i], sig);
    return n;
}

/* What the launcher left behind may end by itself for a moment, then it is killed. */
static void clear_leftovers(struct run *r)
{
    uint64_t until = now_ms() + (r->kill_at ? 0 : LINGER_MS), warn_at = now_ms() + WARN_MS;
    int left;

    while ((left = remains(r, 0)) > 0 && now_ms() < until)
        turn(r, 10);
    r->exit.leftovers = left;
    while (remains(r, SIGKILL) > 0) {
        turn(r, 5);
        if (now_ms() > warn_at) {
            log_warn("processes of %s do not die; trying on", r->mark);
            warn_at = now_ms() + WARN_MS;
        }
    }
    reap(r);
    run_output_pump(&r->out[0]);
    run_output_pump(&r->out[1]);
}

static int start(struct run *r, const struct values *v, char **argv)
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
    r->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    rc = run_output_open(&r->out[0], v->folder, "stdout", v->log_limit, &write_end[0]);
    if (rc == 0)
        rc = run_output_open(&r->out[1], v->folder, "stderr", v->log_limit, &write_end[1]);
    if (rc < 0)
        return rc;
    r->exit.started = clock_wall_ms();
    r->child = fork();
    if (r->child < 0)
        return -errno;
    if (r->child == 0)
        exec_child(r, argv, write_end);
    close(write_end[0]);
    close(write_end[1]);
    return 0;
}

static int supervise(struct run *r, const struct values *v, char **argv, struct err *e)
{
    int64_t oom = tn_oom_kills();
    int rc = start(r, v, argv);

    if (rc < 0)
        return err_set(e, rc, "set up %s: %s", v->folder, strerror(-rc));
    wait_for_child(r);
    clear_leftovers(r);
    run_output_close(&r->out[0]);
    run_output_close(&r->out[1]);
    r->exit.code = WIFEXITED(r->status) ? WEXITSTATUS(r->status) : -1;
    r->exit.signal = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0;
    r->exit.oom_kills = tn_oom_kills() - oom;
    r->exit.ended = clock_wall_ms();
    /* How it ended must not be lost to a full disk, on which nobody could record it either. */
    while (((rc = tn_exit_write(v->folder, &r->exit, e)) == -ENOSPC || rc == -EDQUOT) &&
           !r->kill_at)
        turn(r, ROOM_MS);
    return rc;
}

/* Whom and what the program gets, before anything is started. */
static int prepare(struct run *r, const struct values *v, struct err *e)
{
    int rc = tn_rlimits_parse(&r->limits, v->limits, e);

    if (rc == 0 && v->user)
        rc = tn_user_find(&r->user, v->user, e);
    if (rc == 0 && v->user)
        rc = tn_user_give(&r->user, v->folder, e);
    return rc;
}

static int fail(const struct err *e, int status)
{
    fprintf(stderr, "partune-run: %s\n", e->text);
    return status;
}

/* What an attempt needs to be run. */
static int check(const struct values *v, int operands, struct err *e)
{
    if (!v->folder)
        return err_set(e, -EINVAL, "--folder is needed");
    if (operands == 0)
        return err_set(e, -EINVAL, "which program?");
    if (!getenv(TN_MARK_ENV))
        return err_set(e, -EINVAL, "%s is not in the environment", TN_MARK_ENV);
    if (v->cpus && set_affinity(v->cpus) < 0)
        return err_set(e, -EINVAL, "cannot run on the cores %s", v->cpus);
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
    if (opt_from_argv(&set, &operands, argc, argv, 1, &e) < 0)
        return fail(&e, 2);
    if (told(&set, &v)) {
        opt_done(&set);
        return 0;
    }
    if (check(&v, operands, &e) < 0)
        return fail(&e, 2);
    argv[1 + operands] = NULL; /* the operands were moved to the front */
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
