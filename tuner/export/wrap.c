/*
 * Job scripts around any target: Slurm batch, PBS, Kubernetes MPIJob. The target's file is carried
 * inside, so that one file is the whole job; how it is started is the target's before() and line().
 */
#include "tuner/export/internal.h"

#include <assert.h>
#include <ctype.h>

/* Of a node, for the bundled trainer. */
static int cores(const struct tn_export_in *in)
{
    return tn_cores_suffice(in) ? tn_ranks_per_node(in) * in->layout->threads
                                : in->cluster->devices_per_node;
}

/* The bundled trainer's ranks stay on cores of their own, as the daemon kept those of the trial:
 * ranks that may move to each other's core are another job. Not where there are too few cores, nor
 * where those of the trial moved. */
static bool bound(const struct tn_export_in *in)
{
    return tn_cores_suffice(in) && !(in->binding && !*in->binding);
}

/* mpiexec's options for EACH ranks on a node, RANKS in all, in the words of MPICH and its
 * relatives. With BIND each rank is on as many neighboring cores as it has threads. */
static void mpich_options(struct str *out, const struct tn_export_in *in, int ranks, int each,
                          bool bind)
{
    assert(each >= 1 && ranks >= each);
    if (bind)
        str_add(out, " -bind-to core");
    if (bind && in->layout->threads > 1)
        str_addf(out, ":%d", in->layout->threads);
    str_addf(out, " -n %d -ppn %d", ranks, each);
}

/* The same in the words of Open MPI, which hands on no environment unless told so, binds what it is
 * not told to leave alone, and gives a rank 1 s for its last checkpoint.
 * It takes twice that time to end, of the 30 s that Kubernetes and Slurm give. */
static void open_mpi_options(struct str *out, const struct tn_export_in *in, int ranks, int each,
                             bool bind)
{
    assert(each >= 1 && ranks >= each);
    str_addf(out, " --map-by ppr:%d:node", each);
    if (bind && in->layout->threads > 1)
        str_addf(out, ":PE=%d", in->layout->threads);
    if (!tn_cores_suffice(in))
        str_add(out, ":OVERSUBSCRIBE");
    str_addf(out,
             " --bind-to %s --mca odls_base_sigkill_timeout 15\n"
             "    $(compgen -e | sed '/^OMPI_/d; s/^/-x /') -n %d",
             bind ? "core" : "none", ranks);
}

/* PROGRAM (mpiexec or mpirun) and its options as the array `mpi`, whichever MPI's it is where the
 * job runs. Every variable is exported before. */
static void choose_mpi(struct str *out, const struct tn_export_in *in, const char *program,
                       int ranks, int each, bool bind)
{
    str_addf(out,
             "case $(%s --version 2>&1) in\n"
             "*'Open MPI'* | *OpenRTE*) mpi=(%s",
             program, program);
    open_mpi_options(out, in, ranks, each, bind);
    str_addf(out, ") ;;\n*) mpi=(%s", program);
    mpich_options(out, in, ranks, each, bind);
    str_add(out, ") ;;\nesac\n");
}

/* A job that runs in a container gets its image from the environment: nothing of the file changes.
 * pyxis is a plugin of srun, which starts the tasks in an image by enroot; Apptainer is a program
 * that every task starts with. GPUS: the container needs the host's driver. */
static void add_containers(struct str *out, bool srun, bool gpus)
{
    str_addf(out,
             "# To run in a container, set %sSIF_IMAGE (Apptainer).\n"
             "# CONTAINER_MOUNTS=DIR:DIR,... adds directories to the one that the job runs in.\n",
             srun ? "PYXIS_IMAGE (pyxis and enroot) or " : "");
    if (srun)
        str_add(out,
                "pyxis=()\n[ -z \"${PYXIS_IMAGE:-}\" ] || pyxis=("
                "--container-image=\"$PYXIS_IMAGE\" --container-workdir=\"$PWD\"\n"
                "    --container-mounts=\"$PWD:$PWD${CONTAINER_MOUNTS:+,$CONTAINER_MOUNTS}\")\n");
    if (gpus)
        str_add(out, "gpu=--nv\n[ ! -e /dev/kfd ] || gpu=--rocm # AMD's driver\n");
    str_addf(out,
             "inside=()\n[ -z \"${SIF_IMAGE:-}\" ] || inside=(apptainer exec%s --pwd \"$PWD\"\n"
             "    --bind \"$PWD:$PWD${CONTAINER_MOUNTS:+,$CONTAINER_MOUNTS}\" \"$SIF_IMAGE\")\n\n",
             gpus ? " $gpu" : "");
}
#define PYXIS " \"${pyxis[@]}\""
#define INSIDE " \"${inside[@]}\""

#define MPI_ARRAY "\"${mpi[@]}\""
#define MPI_NODE "NODE_RANK=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}"

/* Without the flag the other tasks would wait for a dead one until the time limit. */
#define SRUN "srun --kill-on-bad-exit=1"

/* srun does not take the job's --cpus-per-task for its own since Slurm 22.05. */
static void srun_line(struct str *out, const struct tn_export_in *in)
{
    str_add(out, SRUN " --mpi=\"$pmi\"");
    if (tn_cores_suffice(in))
        str_addf(out, " --cpus-per-task=%d", in->layout->threads);
    else
        str_add(out, " --overcommit");
    if (bound(in))
        str_add(out, " --cpu-bind=cores");
    str_add(out, PYXIS INSIDE);
}

void tn_torchrun(struct str *out, const struct tn_export_in *in)
{
    str_addf(out,
             "torchrun --nproc-per-node %d --nnodes %d --node-rank \"${NODE_RANK:-0}\" "
             "--master-addr \"${MASTER_ADDR:-127.0.0.1}\" --master-port "
             "\"${MASTER_PORT:-29500}\" ",
             tn_ranks_per_node(in), tn_nodes(in));
}

static void before(struct str *out, const struct tn_exporter *target, const struct tn_place *at)
{
    if (target->before)
        target->before(out, at);
}

/* TARGET's command, once on every node: EACH starts it there, NODE tells it which one it is. */
static void launch_on_nodes(struct str *out, const struct tn_export_in *in,
                            const struct tn_exporter *target, const struct tn_place *at,
                            const char *each, const char *node)
{
    str_addf(out, "%s bash -c '\nset -f # brackets in arguments are not patterns\nexport %s\nexec ",
             each, node);
    target->line(out, in, at);
    str_add(out, "\n'\n");
}

/* "#!/bin/bash" belongs on the first line of the job only. */
static const char *without_shebang(const char *body)
{
    const char *end = str_starts(body, "#!") ? strchr(body, '\n') : NULL;

    return end ? end + 1 : body;
}

static void here_document(struct str *out, const char *file, const char *body)
{
    str_addf(out, "cat >%s <<'PARTUNE_END'\n%s", file, without_shebang(body));
    str_add(out, "PARTUNE_END\n\n");
}

static void job_name(char buf[48], const struct tn_export_in *in)
{
    size_t n = 0;

    /* Letters, digits and inner hyphens: what Kubernetes takes for a name. */
    for (const char *p = in->campaign_name; *p && n < 40; p++) {
        bool plain = isascii((unsigned char)*p) && isalnum((unsigned char)*p);

        if (plain || n)
            buf[n++] = plain ? *p : '-';
    }
    while (n && buf[n - 1] == '-')
        n--;
    buf[n] = '\0';
    if (!n)
        snprintf(buf, 48, "partune");
}

/* The target's file in the folder that a job runs in. Its name, $job, is one that Python can
 * import.
 */
static struct tn_place in_folder(char *ret_file, size_t size, const struct tn_exporter *target,
                                 const char *mpi)
{
    snprintf(ret_file, size, "\"$job.%s\"", target->extension);
    return (struct tn_place){.file = ret_file, .folder = "$PWD", .module = "\"$job\"", .mpi = mpi};
}

/* Nodes of one segment: where a fast domain is several nodes (NVL72), Slurm's block topology places
 * equal segments inside domains, as the cost model expects; 0: a domain is a node. */
static int segment(const struct tn_export_in *in)
{
    int domain = pl_cluster_domain(in->cluster) / in->cluster->devices_per_node;
    int nodes = tn_nodes(in), each = domain < nodes ? domain : nodes;

    if (domain <= 1)
        return 0;
    while (nodes % each)
        each--;
    return each;
}

static void slurm_head(struct str *out, const struct tn_export_in *in, bool mpi)
{
    char name[48];

    job_name(name, in);
    str_addf(out, "#!/bin/bash\n#SBATCH --job-name=%s\n#SBATCH --nodes=%d\n", name, tn_nodes(in));
    if (mpi)
        str_addf(out, "#SBATCH --ntasks=%d\n", in->layout->world);
    str_addf(out, "#SBATCH --ntasks-per-node=%d\n", mpi ? tn_ranks_per_node(in) : 1);
    if (mpi && tn_cores_suffice(in))
        str_addf(out, "#SBATCH --cpus-per-task=%d\n", in->layout->threads);
    else if (mpi)
        str_add(out, "#SBATCH --overcommit\n");
    else
        str_addf(out, "#SBATCH --gpus-per-node=%d\n", tn_ranks_per_node(in));
    if (segment(in))
        str_addf(out, "#SBATCH --segment=%d\n", segment(in));
    if (mpi) /* after a lost node Slurm itself starts the job again */
        str_add(out, "#SBATCH --requeue\n");
    str_add(out, "#SBATCH --exclusive\n# Add your partition, account and time limit: sbatch -p "
                 "PARTITION -A ACCOUNT -t TIME THIS\n");
}

static void write_slurm(struct str *out, const struct tn_export_in *in,
                        const struct tn_exporter *target, const char *body)
{
    bool mpi = target->by_rank;
    AUTO_STR srun = {0};
    char file[32];
    struct tn_place at;

    srun_line(&srun, in);
    at = in_folder(file, sizeof(file), target, str_text(&srun));
    slurm_head(out, in, mpi);
    str_add(out, "set -euo pipefail\n\njob=partune_${SLURM_JOB_ID:-0}\n");
    if (!mpi)
        str_add(out, "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n "
                     "1)\nexport MASTER_ADDR\n");
    add_containers(out, true, !mpi);
    here_document(out, file, body);
    if (mpi) {
        str_add(out, "case $(\"${inside[@]}\" partune-train --version) in *'Open MPI'*) pmi=pmix "
                     ";; *) pmi=pmi2 ;; "
                     "esac\n");
        target->line(out, in, &at);
        str_addc(out, '\n');
    } else {
        str_add(out, "export job\n");
        before(out, target, &at);
        launch_on_nodes(out, in, target, &at, SRUN PYXIS INSIDE, "NODE_RANK=$SLURM_NODEID");
    }
}

static void pbs_head(struct str *out, const struct tn_export_in *in, bool mpi)
{
    char name[48];

    job_name(name, in);
    name[15] = '\0'; /* PBS takes at most 15 characters */
    str_addf(out, "#!/bin/bash\n#PBS -N %s\n#PBS -l select=%d:ncpus=%d:mpiprocs=%d\n", name,
             tn_nodes(in), cores(in), mpi ? tn_ranks_per_node(in) : 1);
    if (!mpi)
        str_addf(out, "# Add the accelerators as your site names them, for instance :ngpus=%d\n",
                 tn_ranks_per_node(in));
    str_add(out, "#PBS -l place=scatter:excl\n# Add your queue, project and walltime: qsub -q "
                 "QUEUE -A PROJECT -l walltime=TIME THIS\n");
}

static void write_pbs(struct str *out, const struct tn_export_in *in,
                      const struct tn_exporter *target, const char *body)
{
    bool mpi = target->by_rank;
    char file[32];
    struct tn_place at = in_folder(file, sizeof(file), target, MPI_ARRAY INSIDE);

    pbs_head(out, in, mpi);
    /* 123.host, and 123[4].host of an array */
    str_add(out, "set -euo pipefail\ncd \"$PBS_O_WORKDIR\"\n\njob=partune_${PBS_JOBID:-0}\n"
                 "job=${job//[!0-9A-Za-z_]/_}\n");
    if (!mpi)
        str_add(out, "MASTER_ADDR=$(sort -u \"$PBS_NODEFILE\" | head -n 1)\nexport MASTER_ADDR\n");
    add_containers(out, false, !mpi);
    here_document(out, file, body);
    if (mpi) {
        if (bound(in))
            str_add(out, "# Cray's mpiexec says --cpu-bind depth --depth THREADS for -bind-to\n");
        choose_mpi(out, in, "mpiexec", in->layout->world, tn_ranks_per_node(in), bound(in));
        target->line(out, in, &at);
        str_addc(out, '\n');
    } else {
        str_add(out, "export job\n");
        before(out, target, &at);
        choose_mpi(out, in, "mpiexec", tn_nodes(in), 1, false);
        launch_on_nodes(out, in, target, &at, MPI_ARRAY INSIDE, MPI_NODE);
    }
}

static void indented(struct str *out, const char *body, int by)
{
    for (const char *line = body; *line;) {
        size_t n = strcspn(line, "\n");

        str_addf(out, "%*s%.*s\n", n ? by : 0, "", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

/* What the launcher runs. NAME is the job's. */
static void mpijob_launch(struct str *out, const struct tn_export_in *in,
                          const struct tn_exporter *target, const char *name)
{
    AUTO_FREE char *file = mem_printf("/partune/partune_layout.%s", target->extension);
    AUTO_FREE char *node = mem_printf(MPI_NODE " MASTER_ADDR=%s-worker-0.%s", name, name);
    struct tn_place at = {.file = file, .folder = "/partune", .module = "partune_layout"};
    int ranks = target->by_rank ? in->layout->world : tn_nodes(in);

    at.mpi = MPI_ARRAY;
    at.remote = true;
    if (!target->by_rank)
        str_add(out, "set -euo pipefail\n"); /* as in the other jobs */
    /* in a container one is often root, which Open MPI must be told */
    str_add(out, "[ \"$(id -u)\" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 "
                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n");
    before(out, target, &at);
    choose_mpi(out, in, "mpirun", ranks, target->by_rank ? tn_ranks_per_node(in) : 1,
               target->by_rank && bound(in));
    if (target->by_rank)
        target->line(out, in, &at);
    else
        launch_on_nodes(out, in, target, &at, MPI_ARRAY, node);
}

static void mpijob_head(struct str *out, const struct tn_export_in *in,
                        const struct tn_exporter *target, const char *name, const char *body)
{
    str_addf(out,
             "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s-layout\ndata:\n  "
             "partune_layout.%s: |\n",
             name, target->extension);
    indented(out, without_shebang(body), 4);
    str_addf(out,
             "---\napiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: %s\nspec:\n",
             name);
    str_addf(
        out,
        "  slotsPerWorker: %d\n  mpiImplementation: %s # the image's: MPICH, OpenMPI or Intel\n"
        "  runPolicy:\n    cleanPodPolicy: "
        "Running\n  mpiReplicaSpecs:\n",
        tn_ranks_per_node(in), in->open_mpi ? "OpenMPI" : "MPICH");
}

static void write_mpijob(struct str *out, const struct tn_export_in *in,
                         const struct tn_exporter *target, const char *body)
{
    bool ranks = target->by_rank;
    AUTO_STR launch = {0};
    char name[48];

    job_name(name, in);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    mpijob_launch(&launch, in, target, name);
    mpijob_head(out, in, target, name, body);
    for (int worker = 0; worker < 2; worker++) {
        str_addf(out, "    %s:\n      replicas: %d\n      template:\n        spec:\n",
                 worker ? "Worker" : "Launcher", worker ? tn_nodes(in) : 1);
        str_add(out, "          volumes:\n          - name: layout\n            configMap:\n");
        str_addf(out, "              name: %s-layout\n          containers:\n", name);
        str_addf(out, "          - name: %s\n            image: REGISTRY/TRAINER:VERSION # yours\n",
                 worker ? "worker" : "launcher");
        str_add(out, "            volumeMounts:\n            - name: layout\n              "
                     "mountPath: /partune\n");
        if (!worker) {
            str_add(out, "            command: [\"/bin/bash\", \"-c\"]\n            args:\n        "
                         "    - |\n");
            indented(out, str_text(&launch), 14);
        } else {
            str_addf(out,
                     "            resources:\n              limits:\n                %s: %d%s\n",
                     ranks ? "cpu" : "nvidia.com/gpu", ranks ? cores(in) : tn_ranks_per_node(in),
                     !ranks      ? " # or as your devices are called"
                     : bound(in) ? " # its own under the kubelet's static policy, which wants a "
                                   "limit of memory, too"
                                 : "");
        }
    }
}

static const struct tn_wrapper slurm = {"slurm", "Slurm batch script",
                                        "text/x-shellscript; charset=utf-8", "sbatch", write_slurm};
static const struct tn_wrapper pbs = {"pbs", "PBS job script", "text/x-shellscript; charset=utf-8",
                                      "pbs", write_pbs};
static const struct tn_wrapper mpijob = {"mpijob", "Kubernetes MPIJob", "application/yaml", "yaml",
                                         write_mpijob};

const struct tn_wrapper *const tn_wrappers[] = {&slurm, &pbs, &mpijob, NULL};
