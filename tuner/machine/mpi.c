#include "tuner/machine/mpi.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tuner/machine/proc.h"

enum { ASK_MS = 5000 };

/* ---- what a program says ------------------------------------------------- */

static uint64_t now_ms(void)
{
    return clock_mono_ns() / 1000000;
}

static pid_t spawn(const char *const *argv, const int fd[2])
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int r;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fd[1], STDERR_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    r = posix_spawnp(&pid, argv[0], &actions, NULL, (char **)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return r ? -r : pid;
}

/* To the end of the output, which what the program left behind may keep open: until then, or the
 * deadline. */
static bool read_until(char *out, size_t size, int fd, uint64_t deadline)
{
    size_t n = 0;
    ssize_t got = 1;

    while (got > 0) {
        uint64_t now = now_ms();
        struct pollfd p = {fd, POLLIN, 0};
        char rest[512];

        if (now >= deadline || poll(&p, 1, (int)(deadline - now)) <= 0)
            break;
        got = n < size - 1 ? read(fd, out + n, size - 1 - n) : read(fd, rest, sizeof(rest));
        if (got > 0 && n < size - 1)
            n += (size_t)got;
    }
    out[n] = '\0';
    return got == 0;
}

int tn_ask(char *out, size_t size, const char *const *argv, int timeout_ms)
{
    uint64_t deadline = now_ms() + (uint64_t)timeout_ms;
    int fd[2], status = 0;
    bool ended;
    pid_t pid;

    assert(size > 0);
    out[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -errno;
    pid = spawn(argv, fd);
    close(fd[1]);
    ended = pid > 0 && read_until(out, size, fd[0], deadline);
    close(fd[0]);
    if (pid < 0)
        return (int)pid;
    if (!ended)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!ended)
        return -ETIMEDOUT;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const struct known {
    const char *words, *name;
    enum tn_mpi_kind kind;
} known[] = {
    {"Open MPI", "Open MPI", TN_MPI_OPEN},
    {"OpenRTE", "Open MPI", TN_MPI_OPEN}, /* mpiexec before 5.0 */
    {"Spectrum MPI", "Spectrum MPI", TN_MPI_OPEN},
    {"Intel(R) MPI", "Intel MPI", TN_MPI_HYDRA},
    {"MVAPICH2", "MVAPICH2", TN_MPI_HYDRA},
    {"MVAPICH", "MVAPICH", TN_MPI_HYDRA},
    {"MPICH", "MPICH", TN_MPI_HYDRA},
    {"HYDRA", "MPICH", TN_MPI_HYDRA}, /* its mpiexec, and MVAPICH's */
};

static const struct known *known_in(const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strstr(text, known[i].words))
            return &known[i];
    return NULL;
}

enum tn_mpi_kind tn_mpi_kind_of(const char *text)
{
    const struct known *k = known_in(text);

    return k ? k->kind : TN_MPI_OTHER;
}

/* The name and, after the words by which it was known, the first number with a dot. */
static void name_of(char ret[TN_MPI_NAME], const char *text)
{
    const struct known *k = known_in(text);
    const char *p = k ? strstr(text, k->words) : "";
    size_t digits, n;

    for (; *p; p += digits ? digits : 1) {
        digits = strspn(p, "0123456789");
        n = strspn(p, "0123456789.");
        if (digits && n > digits)
            break;
    }
    snprintf(ret, TN_MPI_NAME, "%s%s%.*s", k ? k->name : "", *p ? " " : "",
             (int)strspn(p, "0123456789."), p);
}

/* ---- which programs ------------------------------------------------------ */

static uint64_t stamp_of(const char *path)
{
    struct stat st;

    if (!path || stat(path, &st) < 0)
        return 0;
    return rng_mix(rng_mix((uint64_t)st.st_ino ^ rng_mix((uint64_t)st.st_mtim.tv_sec)) ^
                   (uint64_t)st.st_mtim.tv_nsec ^ rng_mix((uint64_t)st.st_size)) |
           1;
}

static void forget(struct tn_mpi_program *program)
{
    free(program->path);
    *program = (struct tn_mpi_program){0};
}

/* Takes PATH. */
static void ask(struct tn_mpi_program *program, char *path)
{
    const char *const argv[] = {path, "--version", NULL};
    char text[4096];

    forget(program);
    if (!path)
        return;
    program->path = path;
    program->stamp = stamp_of(path);
    (void)tn_ask(text, sizeof(text), argv, ASK_MS);
    program->kind = tn_mpi_kind_of(text);
    name_of(program->name, text);
}

static bool unchanged(const struct tn_mpi_program *program)
{
    return program->path && program->stamp == stamp_of(program->path);
}

static bool suits(const struct tn_mpi *mpi, enum tn_mpi_kind kind)
{
    return kind == mpi->train.kind || kind == TN_MPI_OTHER || mpi->train.kind == TN_MPI_OTHER;
}

/* The plain name first: it is what the administrator chose; then as distributions call those that
 * are installed next to each other. */
static void choose(struct tn_mpi *mpi)
{
    static const char *const names[] = {"mpiexec", "mpiexec.openmpi", "mpiexec.mpich",
                                        "mpiexec.hydra", "mpirun"};

    forget(&mpi->mpiexec);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct tn_mpi_program other = {0};

        ask(&other, tn_find_program(NULL, names[i]));
        if (other.path && (!mpi->mpiexec.path || suits(mpi, other.kind))) {
            forget(&mpi->mpiexec);
            mpi->mpiexec = other;
        } else {
            forget(&other);
        }
        if (mpi->mpiexec.path && suits(mpi, mpi->mpiexec.kind))
            return;
    }
}

void tn_mpi_find(struct tn_mpi *mpi, const char *given_mpiexec, const char *given_train)
{
    bool same = unchanged(&mpi->train);

    if (!same)
        ask(&mpi->train, tn_find_program(given_train, "partune-train"));
    if (unchanged(&mpi->mpiexec) && (same || given_mpiexec))
        return;
    if (given_mpiexec)
        ask(&mpi->mpiexec, tn_find_program(given_mpiexec, NULL));
    else
        choose(mpi);
}

void tn_mpi_done(struct tn_mpi *mpi)
{
    forget(&mpi->mpiexec);
    forget(&mpi->train);
}

int tn_mpi_ready(const struct tn_mpi *mpi, struct err *error)
{
    if (mpi->mpiexec.path)
        return 0;
    return err_set(error, -ENOENT,
                   "mpiexec was not found: install %s, or give its path with --mpiexec",
                   mpi->train.kind == TN_MPI_OPEN ? "Open MPI's (apt-get install openmpi-bin)"
                                                  : "mpich (apt-get install mpich)");
}

int tn_mpi_suits(const struct tn_mpi *mpi, struct err *error)
{
    bool open = mpi->train.kind == TN_MPI_OPEN;

    if (!mpi->mpiexec.path || !mpi->train.path || suits(mpi, mpi->mpiexec.kind))
        return 0;
    return err_set(error, -EINVAL,
                   "%s is from %s, but %s is linked with %s: each rank would run alone; install "
                   "%s, or give the mpiexec of %s with --mpiexec PATH",
                   mpi->mpiexec.path, mpi->mpiexec.name, mpi->train.path, mpi->train.name,
                   open ? "openmpi-bin" : "mpich", mpi->train.name);
}

/* ---- the command line ---------------------------------------------------- */

bool tn_mpi_as_root(const char *trial_user)
{
    return geteuid() == 0 && !trial_user;
}

void tn_mpi_env(struct tn_argv *env, const char *folder)
{
    tn_argv_addf(env, "OMPI_MCA_orte_tmpdir_base=%s", folder); /* Open MPI 4, and 5 */
    tn_argv_addf(env, "PRTE_MCA_prte_tmpdir_base=%s", folder);
}

static void hydra(struct tn_argv *argv, const struct tn_mpi_job *job)
{
    if (job->hosts) {
        tn_argv_add(argv, "-hosts");
        tn_argv_add(argv, job->hosts);
    } else if (job->cpus) {
        tn_argv_add(argv, "-bind-to");
        tn_argv_addf(argv, "user:%s", job->cpus);
    }
    if (job->per_node) {
        tn_argv_add(argv, "-ppn");
        tn_argv_addf(argv, "%d", job->per_node);
    }
    tn_argv_add(argv, "-n");
    tn_argv_addf(argv, "%d", job->ranks);
}

/* Hydra hands the environment on, Open MPI only what begins with OMPI_ and what it is told to. */
static void open_forward(struct tn_argv *argv, const struct tn_argv *env)
{
    for (int i = 0; i < env->n; i++)
        if (!str_starts(env->v[i], "OMPI_")) {
            tn_argv_add(argv, "-x");
            tn_argv_addf(argv, "%.*s", (int)strcspn(env->v[i], "="), env->v[i]);
        }
}

/* Its own counts and cores know nothing of other jobs on the machine: it would put every job's
 * first rank on core 0. */
static void open_mpi(struct tn_argv *argv, const struct tn_mpi_job *job)
{
    if (job->as_root)
        tn_argv_add(argv, "--allow-run-as-root");
    tn_argv_add(argv, "--map-by");
    if (job->per_node)
        tn_argv_addf(argv, "ppr:%d:node:OVERSUBSCRIBE", job->per_node);
    else
        tn_argv_add(argv, "slot:OVERSUBSCRIBE");
    tn_argv_add(argv, "--bind-to");
    tn_argv_add(argv, "none");
    tn_argv_add(argv, "--mca"); /* else 1 s: what a rank has to finish is lost */
    tn_argv_add(argv, "odls_base_sigkill_timeout");
    tn_argv_addf(argv, "%d", job->grace_s);
    if (job->hosts) {
        tn_argv_add(argv, "--host");
        tn_argv_add(argv, job->hosts);
    }
    if (job->env && (job->hosts || job->per_node))
        open_forward(argv, job->env);
    tn_argv_add(argv, "-n");
    tn_argv_addf(argv, "%d", job->ranks);
}

int tn_mpi_argv(struct tn_argv *argv, const struct tn_mpi *mpi, const struct tn_mpi_job *job,
                struct err *error)
{
    enum tn_mpi_kind kind = mpi->mpiexec.kind;

    assert(job->ranks > 0 && !(job->hosts && job->cpus));
    tn_argv_add(argv, mpi->mpiexec.path ? mpi->mpiexec.path : "mpiexec");
    if (kind == TN_MPI_OTHER && (job->hosts || job->per_node))
        return err_set(error, -EINVAL,
                       "the --version of %s names neither MPICH nor Open MPI, so its options for "
                       "several hosts are unknown: give another mpiexec with --mpiexec PATH",
                       argv->v[argv->n - 1]);
    if (kind == TN_MPI_OPEN)
        open_mpi(argv, job);
    else
        hydra(argv, &(struct tn_mpi_job){.ranks = job->ranks,
                                         .per_node = job->per_node,
                                         .hosts = job->hosts,
                                         .cpus = kind == TN_MPI_HYDRA ? job->cpus : NULL});
    if (kind != TN_MPI_HYDRA && job->cpus) {
        tn_argv_add(argv, job->supervisor);
        tn_argv_add(argv, "--bind");
        tn_argv_add(argv, job->cpus);
        tn_argv_add(argv, "--");
    }
    return 0;
}
