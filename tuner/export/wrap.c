/*
 * Job scripts around any target: Slurm batch, PBS, Kubernetes MPIJob. The target's file is carried
 * inside, so that one file is the whole job; how it is started depends on the target.
 */
#include "tuner/export/internal.h"

#include <ctype.h>

/* Starts of the bundled trainer in one job: in all, and in a row that ended within QUICK_S seconds.
 * What fails so often, or again and again at once (a folder that cannot be written), will fail
 * again. */
enum { STARTS = 100, QUICK_STARTS = 5, QUICK_S = 60 };

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

/* Each rank on as many neighbouring cores as it has threads, in the words of MPICH's mpiexec. */
static void add_binding(struct str *out, const struct tn_export_in *in)
{
    if (!bound(in))
        return;
    str_add(out, " -bind-to core");
    if (in->layout->threads > 1)
        str_addf(out, ":%d", in->layout->threads);
}

/* srun does not take the job's --cpus-per-task for its own since Slurm 22.05. */
static void srun_line(struct str *out, const struct tn_export_in *in)
{
    str_add(out, "srun --mpi=pmi2");
    if (tn_cores_suffice(in))
        str_addf(out, " --cpus-per-task=%d", in->layout->threads);
    else
        str_add(out, " --overcommit");
    if (bound(in))
        str_add(out, " --cpu-bind=cores");
}

/* Processes of this node; NODE_RANK and MASTER_ADDR come from the job around it. */
static void torchrun(struct str *out, const struct tn_export_in *in)
{
    str_addf(out,
             "torchrun --nproc-per-node %d --nnodes %d --node-rank \"${NODE_RANK:-0}\" "
             "--master-addr \"${MASTER_ADDR:-127.0.0.1}\" --master-port "
             "\"${MASTER_PORT:-29500}\" ",
             tn_ranks_per_node(in), tn_nodes(in));
}

/* A lost rank takes the bundled trainer's job down; this starts it again, and it goes on from its
 * newest checkpoint. The codes are those after which it must not (docs/reference/trainer.md); 126 and 127 are
 * the shell's for a command that it cannot run. */
static void until_done(struct str *out, const char *mpi, const char *file)
{
    /* MPICH's mpiexec that was itself signalled may end with 0. Its event file lies beside FILE. */
    bool events = str_starts(mpi, "mpiexec");

    str_addf(out, "quick=0\nfor start in {1..%d}; do\n    status=0\n    begun=$SECONDS\n%s", STARTS,
             events ? "    : >\"$job.events\"\n" : "");
    str_addf(out, "    %s partune-train --config %s%s || status=$?\n", mpi, file,
             events ? " --events \"$job.events\"" : "");
    if (events)
        str_add(out, "    # mpiexec that was signalled may say 0: the last event decides.\n"
                     "    if tail -n 1 \"$job.events\" | grep -q '\"event\":\"stopped\"'; then "
                     "status=75; fi\n");
    str_addf(out,
             "    case $status in 0 | 2 | 6[5-8] | 75 | 12[67]) exit $status ;; esac\n"
             "    quick=$((SECONDS - begun < %d ? quick + 1 : 0))\n"
             "    if [ $quick -ge %d ]; then\n"
             "        echo \"$quick starts in a row ended at once, the last with $status\" >&2\n"
             "        exit $status\n    fi\n"
             "    echo \"start $start ended with $status; the next one goes on from the newest "
             "checkpoint\" >&2\n    sleep $((10 << quick))\ndone\nexit $status",
             QUICK_S, QUICK_STARTS);
}

/* The command that runs TARGET's file; FILE is its path as the shell sees it. */
static void launch_line(struct str *out, const struct tn_export_in *in,
                        const struct tn_exporter *target, const char *mpi, const char *file)
{
    const char *name = target->name;

    if (str_eq(name, "partune"))
        until_done(out, mpi, file);
    else if (str_eq(name, "megatron-script"))
        str_addf(out, "bash %s", file);
    else if (str_eq(name, "megatron")) {
        if (tn_megatron_one_connection(in))
            str_add(out, "env CUDA_DEVICE_MAX_CONNECTIONS=1 ");
        torchrun(out, in);
        str_addf(out, "\"${MEGATRON:?}/pretrain_gpt.py\" $(grep -v \"^#\" %s) ${DATA_ARGS:-}",
                 file);
    } else if (str_eq(name, "accelerate"))
        str_addf(out,
                 "accelerate launch --config_file %s --machine_rank \"${NODE_RANK:-0}\" "
                 "--main_process_ip \"${MASTER_ADDR:-127.0.0.1}\" --main_process_port "
                 "\"${MASTER_PORT:-29500}\" ${TRAIN:?your script and its arguments}",
                 file);
    else if (str_eq(name, "deepspeed")) {
        torchrun(out, in); /* its own launcher would log in to every node from every node */
        str_addf(out, "${TRAIN:?your script and its arguments} --deepspeed_config %s", file);
    } else
        str_addf(out, "${TRAIN:?your launcher}  # reads %s", file);
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

static void write_slurm(struct str *out, const struct tn_export_in *in,
                        const struct tn_exporter *target, const char *body)
{
    AUTO_FREE char *file = mem_printf("\"$job.%s\"", target->extension);
    bool mpi = str_eq(target->name, "partune");
    AUTO_STR srun = {0};
    char name[48];

    srun_line(&srun, in);
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
    if (mpi) /* after a lost node Slurm itself starts the job again */
        str_add(out, "#SBATCH --requeue\n");
    str_add(out, "#SBATCH --exclusive\n# Add your partition, account and time limit: sbatch -p "
                 "PARTITION -A ACCOUNT -t TIME THIS\n"
                 "set -euo pipefail\n\njob=partune.${SLURM_JOB_ID:-0}\n");
    if (!mpi)
        str_add(out, "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n "
                     "1)\nexport MASTER_ADDR\n");
    here_document(out, file, body);
    if (!mpi)
        str_add(out, "export job\nsrun bash -c '\nset -f # brackets in arguments are no patterns\n"
                     "export NODE_RANK=$SLURM_NODEID\nexec ");
    launch_line(out, in, target, str_text(&srun), file);
    str_add(out, mpi ? "\n" : "\n'\n");
}

static void write_pbs(struct str *out, const struct tn_export_in *in,
                      const struct tn_exporter *target, const char *body)
{
    AUTO_FREE char *file = mem_printf("\"$job.%s\"", target->extension);
    AUTO_STR mpiexec = {0};
    bool mpi = str_eq(target->name, "partune");
    char name[48];

    str_add(&mpiexec, "mpiexec");
    add_binding(&mpiexec, in);
    str_addf(&mpiexec, " -n %d -ppn %d", in->layout->world, tn_ranks_per_node(in));
    job_name(name, in);
    name[15] = '\0'; /* PBS takes at most 15 characters */
    str_addf(out, "#!/bin/bash\n#PBS -N %s\n#PBS -l select=%d:ncpus=%d:mpiprocs=%d\n", name,
             tn_nodes(in), cores(in), mpi ? tn_ranks_per_node(in) : 1);
    if (!mpi)
        str_addf(out, "# Add the accelerators as your site names them, for instance :ngpus=%d\n",
                 tn_ranks_per_node(in));
    str_add(out, "#PBS -l place=scatter:excl\n# Add your queue, project and walltime: qsub -q "
                 "QUEUE -A PROJECT -l walltime=TIME THIS\n"
                 "set -euo pipefail\ncd \"$PBS_O_WORKDIR\"\n\njob=partune.${PBS_JOBID:-0}\n");
    if (!mpi)
        str_add(out, "MASTER_ADDR=$(sort -u \"$PBS_NODEFILE\" | head -n 1)\nexport MASTER_ADDR\n");
    here_document(out, file, body);
    if (mpi) {
        if (bound(in))
            str_add(out, "# -bind-to is MPICH's; Cray's mpiexec says --cpu-bind depth --depth "
                         "THREADS\n");
        launch_line(out, in, target, str_text(&mpiexec), file);
    } else {
        str_addf(
            out,
            "export job\nmpiexec -n %d -ppn 1 bash -c '\nset -f # brackets in arguments are no "
            "patterns\nexport NODE_RANK=${PMI_RANK:-0}\nexec ",
            tn_nodes(in));
        launch_line(out, in, target, "", file);
        str_add(out, "\n'");
    }
    str_addc(out, '\n');
}

static void indented(struct str *out, const char *body, int by)
{
    for (const char *line = body; *line;) {
        size_t n = strcspn(line, "\n");

        str_addf(out, "%*s%.*s\n", n ? by : 0, "", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void write_mpijob(struct str *out, const struct tn_export_in *in,
                         const struct tn_exporter *target, const char *body)
{
    AUTO_FREE char *file = mem_printf("/partune/layout.%s", target->extension);
    bool ranks = str_eq(target->name, "partune");
    AUTO_STR launch = {0};
    AUTO_STR mpi = {0};
    char name[48];

    str_add(&mpi, "mpirun");
    add_binding(&mpi, in);
    str_addf(&mpi, " -n %d -ppn %d", in->layout->world, tn_ranks_per_node(in));
    job_name(name, in);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (!ranks) /* one launcher a node, as in the other jobs */
        str_addf(&launch,
                 "mpirun -n %d -ppn 1 bash -c '\nset -f # brackets in arguments are no patterns\n"
                 "export NODE_RANK=${PMI_RANK:-0} MASTER_ADDR=%s-worker-0.%s\nexec ",
                 tn_nodes(in), name, name);
    launch_line(&launch, in, target, str_text(&mpi), file);
    if (!ranks)
        str_add(&launch, "\n'");
    str_addf(
        out,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s-layout\ndata:\n  layout.%s: |\n",
        name, target->extension);
    indented(out, without_shebang(body), 4);
    str_addf(out,
             "---\napiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: %s\nspec:\n",
             name);
    str_addf(out,
             "  slotsPerWorker: %d\n  mpiImplementation: MPICH\n  runPolicy:\n    cleanPodPolicy: "
             "Running\n  mpiReplicaSpecs:\n",
             tn_ranks_per_node(in));
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
