/* `partune doctor`: is this machine ready for trials? Each finding says what was seen and how to
 * mend it. */
#include "tuner/client/client.h"

#include "tuner/machine/energy.h"
#include "tuner/machine/gpus.h"
#include "tuner/machine/mpi.h"

#include <errno.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { START_MS = 60000 };

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

/* Two processes as the local launcher starts ranks. */
static void check_start(struct report *report, const struct tn_mpi *mpi)
{
    struct tn_mpi_job job = {.ranks = 2, .grace_s = 1, .as_root = tn_mpi_as_root(NULL)};
    struct tn_argv argv = {0};
    AUTO_STR line = {0};
    char out[4096];
    bool good;

    good = tn_mpi_argv(&argv, mpi, &job, NULL) == 0;
    tn_argv_add(&argv, "/bin/echo");
    tn_argv_add(&argv, "rank");
    good = good && tn_ask(out, sizeof(out), (const char *const *)argv.v, START_MS) == 0;
    str_add(&line, "run `");
    for (int i = 0; i < argv.n; i++)
        str_addf(&line, "%s%s", i ? " " : "", argv.v[i]);
    str_add(&line, "` and read its message");
    finding(report, good, "MPI start",
            good ? "two processes started by mpiexec" : "mpiexec cannot start two processes",
            line.text);
    tn_argv_done(&argv);
}

static void check_mpi(struct report *report)
{
    const char *install = "apt-get install mpich, and put its mpiexec first in PATH";
    struct tn_mpi mpi = {0};
    struct err e = {0};

    tn_mpi_find(&mpi, NULL, NULL);
    if (mpi.train.kind == TN_MPI_OPEN)
        install = "apt-get install openmpi-bin, or give partuned --mpiexec PATH";
    if (!mpi.mpiexec.path && !mpi.train.path) {
        finding(report, true, "MPI",
                "none: the bundled trainer, and commands with launch = mpiexec, need one", "");
    } else if (tn_mpi_ready(&mpi, &e) < 0) {
        finding(report, false, "MPI", "mpiexec was not found", install);
    } else if (tn_mpi_suits(&mpi, &e) < 0) {
        finding(report, false, "MPI", e.text, install);
    } else {
        bool known = mpi.mpiexec.kind != TN_MPI_OTHER;
        bool root = mpi.mpiexec.kind == TN_MPI_OPEN && tn_mpi_as_root(NULL);
        AUTO_FREE char *seen =
            known ? mem_printf("%s: %s%s", mpi.mpiexec.name, mpi.mpiexec.path,
                               root ? ", with --allow-run-as-root because this is root" : "")
                  : mem_printf("%s belongs neither to MPICH or a derivative nor to Open MPI",
                               mpi.mpiexec.path);

        finding(report, known, "MPI", seen, install);
        check_start(report, &mpi);
    }
    tn_mpi_done(&mpi);
}

static void check_cores(struct report *report)
{
    cpu_set_t set;
    char seen[64];
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    snprintf(seen, sizeof(seen), "%d usable", n);
    finding(report, n >= 2, "cores", seen,
            "layouts need at least two ranks: give the process two or more cores");
}

static void check_instance(struct report *report, int index, const struct tn_gpu_instance *of)
{
    char seen[320], room[24], whole[24];

    snprintf(seen, sizeof(seen), "%s of GPU %d: %s, %s of %s free", of->uuid, index, of->name,
             str_human_bytes(room, (double)of->free), str_human_bytes(whole, (double)of->total));
    finding(report, true, "MIG instance", seen, "");
}

/* One that nothing else uses, whole, with its memory in order. */
static void check_gpu(struct report *report, int index, const struct tn_gpu *gpu)
{
    const char *fix = "";
    char what[24], room[24], whole[24];
    AUTO_STR seen = {0};

    snprintf(what, sizeof(what), "GPU %d", index);
    if (*gpu->error.text) {
        finding(report, false, what, gpu->error.text,
                "look for Xid in the kernel's log; reset the GPU or restart the machine");
        return;
    }
    str_addf(&seen, "%s, %s of %s free, ECC %s", gpu->name,
             str_human_bytes(room, (double)gpu->free), str_human_bytes(whole, (double)gpu->total),
             gpu->ecc == TN_GPU_ON    ? "on"
             : gpu->ecc == TN_GPU_OFF ? "off"
                                      : "none");
    if (gpu->uncorrected) {
        str_addf(&seen, ", %llu uncorrected memory errors", (unsigned long long)gpu->uncorrected);
        fix = "reset the GPU, which retires the damaged rows; replace it if they come back";
    } else if (gpu->mig == TN_GPU_ON) {
        str_addf(&seen, ", MIG on, %d instance%s", gpu->instances, gpu->instances == 1 ? "" : "s");
        if (!gpu->instances)
            fix = "make instances (nvidia-smi mig -cgi PROFILES -C), or switch MIG off (nvidia-smi "
                  "-mig 0)";
    } else if (gpu->total - gpu->free > gpu->total / 10) {
        fix = "another process holds its memory (nvidia-smi shows which): wait, or end it";
    }
    finding(report, !*fix, what, seen.text, fix);
    for (int i = 0; i < gpu->instances; i++)
        check_instance(report, index, &gpu->instance[i]);
}

/* No trial needs them, but for the objective tokens_per_joule. */
static void check_energy(struct report *report)
{
    struct err e = {0};
    int r = tn_energy_ready(&e);
    AUTO_FREE char *seen =
        r == 0 ? mem_printf("CPU packages can be read")
               : mem_printf("%s: no objective tokens_per_joule on CPUs%s", e.text,
                            r == -EACCES ? "; as root, until the next boot: chmod a+r "
                                           "/sys/class/powercap/intel-rapl:*/energy_uj"
                                         : "");

    finding(report, true, "energy counters", seen, "");
}

static void check_gpus(struct report *report)
{
    struct tn_gpus gpus;
    struct err e = {0};
    int nccl, r = tn_gpus_read(&gpus, &e);
    char seen[160];

    if (r == -ENOENT) {
        finding(report, true, "GPUs", "none: no NVIDIA driver", "");
    } else if (r < 0) {
        finding(report, false, "NVIDIA driver", e.text,
                "install NVIDIA's driver again, or load it");
    } else {
        snprintf(seen, sizeof(seen), "%s, for CUDA up to %d.%d, %d GPUs", gpus.driver,
                 gpus.cuda / 1000, gpus.cuda % 1000 / 10, gpus.count);
        finding(report, true, "NVIDIA driver", seen, "");
        for (int i = 0; i < gpus.count; i++)
            check_gpu(report, i, &gpus.gpu[i]);
        nccl = tn_nccl_version();
        snprintf(seen, sizeof(seen), "%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
        finding(report, true, "NCCL",
                nccl ? seen : "none: other trainers on several GPUs need libnccl.so.2", "");
    }
    tn_gpus_done(&gpus);
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
        const char *name;
        bool needed;
        const char *missing;
    } programs[] = {
        {"partuned", true, "not found next to this program"},
        {"partune-run", true, "not found next to this program"},
        {"partune-train", false, "none: the bundled trainer is not installed"},
        {"partune-data", false, "none: it comes with the bundled trainer"},
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

        finding(report, here || !programs[i].needed, programs[i].name,
                here ? "found" : programs[i].missing, "run make install again");
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
    check_gpus(&r);
    check_energy(&r);
    check_data(&r, client->args.data);
    check_programs(&r);
    check_server(&r);
    if (client->args.json)
        cl_print_json(r.items);
    json_decref(r.items);
    return r.bad ? CL_FAILED : CL_OK;
}
