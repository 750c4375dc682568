/* `partune doctor`: is this machine ready for trials? Each finding says what was seen and how to
 * mend it. */
#include "tuner/client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct report {
    struct cl *c;
    json_t *items; /* for --json */
    int bad;
};

static void finding(struct report *report, bool good, const char *what, const char *seen,
                    const char *fix)
{
    if (report->c->args.json)
        json_array_append_new(report->items, json_pack("{s:s, s:b, s:s, s:s}", "check", what, "ok",
                                                       good, "seen", seen, "fix", good ? "" : fix));
    else
        printf("%-7s %-16s %s\n", good ? "ok" : "PROBLEM", what, seen);
    if (!good && !report->c->args.json)
        printf("%-7s %-16s fix: %s\n", "", "", fix);
    report->bad += !good;
}

/* Run ARGV with output into a buffer; exit status, or -1 where it does not start. */
static int run(const char *const *argv, char *out, size_t size)
{
    posix_spawn_file_actions_t fa;
    int fd[2], status = -1;
    size_t n = 0;
    pid_t pid;

    out[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -1;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&fa, fd[1], STDERR_FILENO);
    posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (posix_spawnp(&pid, argv[0], &fa, NULL, (char **)(uintptr_t)argv, environ) == 0) {
        ssize_t got;

        close(fd[1]);
        fd[1] = -1;
        while ((got = read(fd[0], out + n, size - 1 - n)) > 0)
            n += (size_t)got;
        out[n] = '\0';
        if (waitpid(pid, &status, 0) == pid)
            status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    posix_spawn_file_actions_destroy(&fa);
    close(fd[0]);
    if (fd[1] >= 0)
        close(fd[1]);
    return status;
}

static void check_mpi(struct report *report)
{
    static const char *const version[] = {"mpiexec", "-version", NULL};
    static const char *const two[] = {"mpiexec", "-n", "2", "/bin/echo", "rank", NULL};
    char out[4096];
    const char *mpich;

    if (run(version, out, sizeof(out)) != 0) {
        finding(report, false, "MPI", "mpiexec does not start",
                "apt-get install mpich, and put its mpiexec first in PATH");
        return;
    }
    mpich = strstr(out, "HYDRA") || strstr(out, "MPICH") ? "mpiexec is MPICH's Hydra" : NULL;
    finding(report, mpich != NULL, "MPI", mpich ? mpich : "mpiexec is not MPICH's",
            "install mpich and put its mpiexec before others in PATH");
    finding(report, run(two, out, sizeof(out)) == 0, "MPI start",
            "two processes started by mpiexec",
            "run `mpiexec -n 2 /bin/echo rank` and read its message");
}

static void check_cores(struct report *report)
{
    cpu_set_t set;
    char seen[64];
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    snprintf(seen, sizeof(seen), "%d usable", n);
    finding(report, n >= 2, "cores", seen,
            "layouts need at least two ranks; give the process two cores or more");
}

static void check_data(struct report *report, const char *dir)
{
    struct statvfs fs;
    struct err e = {0};
    AUTO_FREE char *probe = mem_printf("%s/.doctor", dir);
    const char *network;
    char seen[160], free_bytes[24];

    if (file_mkdirs(dir, 0700, &e) < 0 || file_write_atomic(probe, "x", 1, 0600, &e) < 0) {
        finding(report, false, "data directory", e.text,
                "choose another by --data DIR or $PARTUNE_DATA, or change its owner");
        return;
    }
    unlink(probe);
    snprintf(seen, sizeof(seen), "%.120s is writable", dir);
    finding(report, true, "data directory", seen, "");
    network = file_network_fs(dir);
    if (network) {
        snprintf(seen, sizeof(seen), "%.100s is on %s, where SQLite's WAL is not safe", dir,
                 network);
        finding(report, false, "file system", seen, "put the data directory on a local disk");
    }
    if (statvfs(dir, &fs) == 0) {
        double bytes = (double)fs.f_bavail * (double)fs.f_frsize;

        snprintf(seen, sizeof(seen), "%s free", str_human_bytes(free_bytes, bytes));
        finding(report, bytes > 512.0 * (1 << 20), "disk", seen,
                "free at least 512 MiB, or choose another data directory");
    }
}

static void check_programs(struct report *report)
{
    static const struct {
        const char *name, *fix;
    } programs[] = {
        {"partuned", "run make install again"},
        {"partune-run", "run make install again"},
        {"partune-train", "install libmpich-dev, then configure, make and make install again"},
        {"partune-data", "install libmpich-dev, then configure, make and make install again"},
    };
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        AUTO_FREE char *sibling = mem_printf("%s/%s", self, programs[i].name);
        bool here = access(sibling, X_OK) == 0;

        finding(report, here, programs[i].name, here ? "found" : "not found next to this program",
                programs[i].fix);
    }
}

static void check_server(struct report *report)
{
    AUTO_JSON *v = NULL;
    AUTO_FREE char *seen = mem_printf("%s", report->c->args.server);
    int code = cl_call(&v, report->c, "GET", "/healthz", NULL);

    finding(report, code == CL_OK, "daemon", seen, "start it with: partuned");
}

int cl_doctor(struct cl *client)
{
    struct report r = {.c = client, .items = json_array()};

    check_mpi(&r);
    check_cores(&r);
    check_data(&r, client->args.data);
    check_programs(&r);
    check_server(&r);
    if (client->args.json)
        cl_print_json(r.items);
    json_decref(r.items);
    return r.bad ? CL_FAILED : CL_OK;
}
