#include "tuner/core/engine.h"
#include "tuner/core/spec.h"
#include "tuner/core/trainer.h"
#include "tuner/launch/slurm/slurm.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/machine.h"
#include "tuner/state/state.h"
#include "tuner/trainers/trainers.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>

/* ---- states -------------------------------------------------------------- */

static const struct {
    const char *state;
    enum tn_slurm_phase phase;
    const char *verdict, *shared; /* outcome of a trial that the job was, that ran in it */
} states[] = {
    {"PENDING", SLURM_PENDING, NULL, NULL},
    {"CONFIGURING", SLURM_PENDING, NULL, NULL},
    {"REQUEUED", SLURM_PENDING, NULL, NULL},
    {"REQUEUE_HOLD", SLURM_PENDING, NULL, NULL},
    {"REQUEUE_FED", SLURM_PENDING, NULL, NULL},
    {"RESV_DEL_HOLD", SLURM_PENDING, NULL, NULL},
    {"SPECIAL_EXIT", SLURM_PENDING, NULL, NULL},
    {"RUNNING", SLURM_RUNNING, NULL, NULL},
    {"RESIZING", SLURM_RUNNING, NULL, NULL},
    {"SIGNALING", SLURM_RUNNING, NULL, NULL},
    {"SUSPENDED", SLURM_RUNNING, NULL, NULL},
    {"STOPPED", SLURM_RUNNING, NULL, NULL},
    {"STAGE_OUT", SLURM_ENDING, NULL, NULL},
    {"COMPLETING", SLURM_ENDING, NULL, NULL},
    {"COMPLETED", SLURM_ENDED, NULL, NULL},
    {"FAILED", SLURM_ENDED, NULL, NULL},
    {"CANCELLED", SLURM_ENDED, "preempted", "preempted"},
    {"PREEMPTED", SLURM_ENDED, "preempted", "preempted"},
    {"REVOKED", SLURM_ENDED, "preempted", "preempted"},
    {"TIMEOUT", SLURM_ENDED, "timeout", "preempted"},
    {"DEADLINE", SLURM_ENDED, "timeout", "preempted"},
    {"NODE_FAIL", SLURM_ENDED, "node_fail", "node_fail"},
    {"BOOT_FAIL", SLURM_ENDED, "node_fail", "node_fail"},
    {"OUT_OF_MEMORY", SLURM_ENDED, "oom", "oom"},
};

static int find_state(const char *state)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (!strcmp(states[i].state, state))
            return (int)i;
    return -1;
}

enum tn_slurm_phase tn_slurm_phase(const char *state)
{
    int i = find_state(state);

    return i < 0 ? SLURM_RUNNING : states[i].phase; /* unknown: wait for one that we know */
}

const char *tn_slurm_verdict(const char *state, bool shared)
{
    int i = find_state(state);

    return i < 0 ? NULL : shared ? states[i].shared : states[i].verdict;
}

const char *tn_slurm_said(const char *text)
{
    static const struct {
        const char *words, *verdict;
    } sentences[] = {
        {"oom_kill event", "oom"},
        {"oom-kill event", "oom"},
        {"OOM Killed", "oom"},
        {"DUE TO NODE FAILURE", "node_fail"},
        {"Node failure on", "node_fail"},
        {"DUE TO PREEMPTION", "preempted"},
        /* Of a step: the time of its allocation is over, which squeue calls running for up to half
         * a minute longer. */
        {"Job/step already completing or completed", "preempted"},
    };

    for (size_t i = 0; i < ARRAY_LEN(sentences); i++)
        if (strstr(text, sentences[i].words))
            return sentences[i].verdict;
    return NULL;
}

/* ---- answers ------------------------------------------------------------- */

/* Copy up to a separator, which is passed over. */
static const char *field(char *buf, size_t size, const char *pos, const char *separators)
{
    size_t n = strcspn(pos, separators);

    snprintf(buf, size, "%.*s", (int)(n < size ? n : size - 1), pos);
    pos += n;
    return *pos && *pos != '\n' ? pos + 1 : pos;
}

/* "CANCELLED by 0", "CANCELLED+" */
static void set_state(struct tn_slurm_job *job)
{
    job->state[strcspn(job->state, " +")] = '\0';
    job->phase = tn_slurm_phase(job->state);
}

bool tn_slurm_line(struct tn_slurm_job *ret, const char **text)
{
    const char *p = *text;

    while (*p) {
        const char *end = p + strcspn(p, "\n");

        memset(ret, 0, sizeof(*ret));
        p = field(ret->id, sizeof(ret->id), p, "|\n");
        p = field(ret->state, sizeof(ret->state), p, "|\n");
        p = field(ret->name, sizeof(ret->name), p, "|\n");
        p = field(ret->reason, sizeof(ret->reason), p, "|\n");
        field(ret->nodes, sizeof(ret->nodes), p, "|\n");
        p = *end ? end + 1 : end;
        *text = p;
        set_state(ret);
        if (isdigit((unsigned char)ret->id[0]) && ret->state[0])
            return true;
    }
    return false;
}

static bool value_of(char *buf, size_t size, const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *p = strstr(text, key); p; p = strstr(p + n, key))
        if (p == text || isspace((unsigned char)p[-1])) {
            field(buf, size, p + n, " \n");
            return true;
        }
    return false;
}

bool tn_slurm_shown(struct tn_slurm_job *ret, const char *text)
{
    memset(ret, 0, sizeof(*ret));
    if (!value_of(ret->id, sizeof(ret->id), text, "JobId=") ||
        !value_of(ret->state, sizeof(ret->state), text, "JobState="))
        return false;
    value_of(ret->name, sizeof(ret->name), text, "JobName=");
    value_of(ret->reason, sizeof(ret->reason), text, "Reason=");
    value_of(ret->nodes, sizeof(ret->nodes), text, "NodeList=");
    set_state(ret);
    return true;
}

bool tn_slurm_accounted(struct tn_slurm_job *ret, const char *text, const char *id)
{
    bool found = false;

    for (const char *p = text; *p;) {
        const char *end = p + strcspn(p, "\n");
        struct tn_slurm_job j = {.id = ""};

        p = field(j.id, sizeof(j.id), p, "|\n");
        field(j.state, sizeof(j.state), p, "|\n");
        if (!strcmp(j.id, id) && j.state[0]) {
            set_state(&j);
            *ret = j;
            found = true;
        }
        p = *end ? end + 1 : end;
    }
    return found;
}

bool tn_slurm_unknown(const char *error)
{
    return strstr(error, "Invalid job id") != NULL;
}

bool tn_slurm_transient(const char *error)
{
    static const char *const words[] = {"Unable to contact slurm controller",
                                        "Socket timed out",
                                        "Connection refused",
                                        "Connection timed out",
                                        "Resource temporarily unavailable",
                                        "Zero Bytes were transmitted",
                                        "Slurm temporarily unable to accept job",
                                        "System/resource temporarily",
                                        "connect failure",
                                        "Slurm backup controller in standby mode"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strstr(error, words[i]))
            return true;
    return false;
}

/* ---- [slurm] ------------------------------------------------------------- */

const char *tn_slurm_option(const struct tn_service *svc, const char *key)
{
    const struct tn_config *settings = tn_settings(svc);

    return settings->conf ? conf_get(settings->conf, "slurm", "", key) : NULL;
}

const char *tn_slurm_option_on(const struct tn_service *svc, const char *cluster, const char *key)
{
    const struct tn_config *settings = tn_settings(svc);
    const char *own = settings->conf ? conf_get(settings->conf, "slurm", cluster, key) : NULL;

    return own ? own : tn_slurm_option(svc, key);
}

static bool has_section(const struct tn_service *svc, const char *cluster)
{
    const struct conf *conf = tn_settings(svc)->conf;

    for (size_t i = 0; conf && i < conf->count; i++)
        if (!strcmp(conf->entry[i].section, "slurm") && !strcmp(conf->entry[i].name, cluster))
            return true;
    return false;
}

/* All values of KEY in the cluster's section, where it has one, else in [slurm]. */
static void add_all(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                    const char *key)
{
    const struct conf *c = tn_settings(svc)->conf;
    const char *section = conf_get(c, "slurm", cluster, key) ? cluster : "";

    for (size_t i = 0; i < c->count; i++)
        if (!strcmp(c->entry[i].section, "slurm") && !strcmp(c->entry[i].name, section) &&
            !strcmp(c->entry[i].key, key))
            tn_argv_add(argv, c->entry[i].value);
}

/* Does KEY have the same values, in the same order, for two clusters? */
static bool same_all(const struct tn_service *svc, const char *left, const char *right,
                     const char *key)
{
    struct tn_argv a = {0}, b = {0};
    bool same;

    add_all(&a, svc, left, key);
    add_all(&b, svc, right, key);
    same = a.n == b.n;
    for (int i = 0; same && i < a.n; i++)
        same = !strcmp(a.v[i], b.v[i]);
    tn_argv_done(&a);
    tn_argv_done(&b);
    return same;
}

/* Clusters of one campaign are on different nodes: a partition may have several kinds, but then the
 * jobs differ by what they ask of it. */
static int check_nodes(const struct tn_service *svc, const struct se_spec *spec, int index,
                       const char *pointer, struct err *error)
{
    static const char *const keys[] = {"partition", "gres", "qos", "account", "extra"};
    const char *name = spec->cluster[index].name;

    for (int i = 0; i < index; i++) {
        const char *other = spec->cluster[i].name;
        const char *partition = tn_slurm_option_on(svc, name, "partition");
        bool same = true;

        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            same = same && same_all(svc, name, other, keys[k]);
        if (same)
            return err_at(error, -EINVAL, pointer,
                          "[slurm \"%s\"] and [slurm \"%s\"] of this daemon's configuration ask "
                          "for the same nodes (partition %s): give one of them another partition, "
                          "gres, or extra (such as --constraint=NAME)",
                          other, name, partition ? partition : "by default");
    }
    return 0;
}

int tn_slurm_admit_clusters(const struct tn_service *svc, const struct tn_spec *spec,
                            struct err *error)
{
    const struct se_spec *se = &spec->se;
    bool list = json_is_array(json_object_get(spec->body, "cluster"));
    char at[48];

    if (se->nclusters > 1 && tn_slurm_mode(svc, spec) == SLURM_INSIDE)
        return err_at(error, -EINVAL, "/cluster",
                      "the daemon runs trials inside its own allocation ([slurm] mode = inside), "
                      "which is one cluster, not %d: name one",
                      se->nclusters);
    for (int i = 0; i < se->nclusters; i++) {
        const struct pl_cluster *cluster = &se->cluster[i];
        const char *most = tn_slurm_option_on(svc, cluster->name, "nodes");
        double limit;

        snprintf(at, sizeof(at), list ? "/cluster/%d/name" : "/cluster", i);
        if (se->nclusters > 1 && !has_section(svc, cluster->name))
            return err_at(error, -EINVAL, at,
                          "this daemon's configuration has no section [slurm \"%s\"], without "
                          "which the clusters would share a partition",
                          cluster->name);
        if (check_nodes(svc, se, i, at, error) < 0)
            return error->code;
        snprintf(at, sizeof(at), list ? "/cluster/%d/nodes" : "/cluster/nodes", i);
        if (most && str_to_f64(&limit, most) == 0 && cluster->nodes > limit)
            return err_at(error, -EINVAL, at,
                          "%d nodes are more than the %g that the daemon's configuration allows "
                          "on cluster %s",
                          cluster->nodes, limit, cluster->name);
        if (tn_slurm_mode(svc, spec) != SLURM_JOBS && pl_cluster_devices(cluster) > TN_MAX_CORES) {
            snprintf(at, sizeof(at), list ? "/cluster/%d" : "/cluster", i);
            return err_at(error, -EINVAL, at,
                          "a shared allocation has at most %d devices; use \"mode\": \"jobs\"",
                          TN_MAX_CORES);
        }
    }
    return 0;
}

enum tn_slurm_mode tn_slurm_mode(const struct tn_service *svc, const struct tn_spec *spec)
{
    const json_t *launcher = spec ? json_object_get(spec->body, "launcher") : NULL;
    const char *mine = tn_slurm_option(svc, "mode"),
               *wish = json_string_value(json_object_get(launcher, "mode"));

    if (str_eq(mine, "inside"))
        return SLURM_INSIDE;
    return str_eq(wish ? wish : mine, "jobs") ? SLURM_JOBS : SLURM_STEPS;
}

bool tn_slurm_uses_mpiexec(const struct tn_service *svc)
{
    return str_eq(tn_slurm_option(svc, "launch"), "mpiexec");
}

/* ---- command lines ------------------------------------------------------- */

void tn_slurm_program(struct tn_argv *argv, const struct tn_service *svc, const char *name)
{
    const char *bin = tn_slurm_option(svc, "bin");

    if (bin)
        tn_argv_addf(argv, "%s/%s", bin, name);
    else
        tn_argv_add(argv, name);
}

struct tn_slurm_shape tn_slurm_shape_of(const struct tn_attempt *attempt)
{
    const struct pl_layout *l = &attempt->trial->run.layout;
    const struct tn_spec *s = attempt->campaign->engine->spec;
    const struct pl_cluster *cluster = tn_trial_cluster(attempt->trial);
    int per_node = cluster->devices_per_node, tasks = l->world;
    int each = pl_cluster_is_cpu(cluster) ? l->threads : 1; /* on a CPU a device is a core */
    int fit = per_node / each > 0 ? per_node / each : 1;
    bool over = cluster->oversubscribe && (tasks + fit - 1) / fit > cluster->nodes;

    if (over) {
        fit = (tasks + cluster->nodes - 1) / cluster->nodes;
        each = 1;
    }
    /* Ranks that share a node are as many as the cost model and the cluster's links suppose. */
    if (fit > tasks)
        fit = tasks;
    assert(fit > 0 && fit <= tasks);
    if (tn_trainer_direct(attempt->svc, s)) {
        int nodes = (tasks + fit - 1) / fit;

        return (struct tn_slurm_shape){nodes, nodes, 1, nodes > 1 ? per_node : fit * each, over};
    }
    return (struct tn_slurm_shape){(tasks + fit - 1) / fit, tasks, fit, each, over};
}

int tn_slurm_devices(const struct tn_slurm_shape *shape, int per_node)
{
    int one = shape->tasks * shape->devices_per_task;

    assert(shape->nodes > 0 && shape->tasks >= shape->nodes && per_node > 0);
    return shape->nodes > 1 ? shape->nodes * per_node : one < per_node ? one : per_node;
}

static void add_option(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                       const char *key)
{
    const char *value = tn_slurm_option_on(svc, cluster, key);

    if (value)
        tn_argv_addf(argv, "--%s=%s", key, value);
}

static void add_shape(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                      const struct tn_slurm_shape *shape)
{
    const char *cpus = tn_slurm_option_on(svc, cluster, "cpus-per-device"),
               *gres = tn_slurm_option_on(svc, cluster, "gres");
    int64_t each = 1;

    if (cpus)
        str_to_i64(&each, cpus, 1, 1024);
    tn_argv_addf(argv, "--nodes=%d", shape->nodes);
    tn_argv_addf(argv, "--ntasks=%d", shape->tasks);
    tn_argv_addf(argv, "--ntasks-per-node=%d", shape->tasks_per_node);
    tn_argv_addf(argv, "--cpus-per-task=%lld", (long long)(each * shape->devices_per_task));
    if (shape->overcommit)
        tn_argv_add(argv, "--overcommit");
    if (gres)
        tn_argv_addf(argv, "--gres=%s:%d", gres, shape->tasks_per_node * shape->devices_per_task);
}

void tn_slurm_sbatch(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                     const struct tn_slurm_shape *shape, const char *name, const char *time)
{
    tn_slurm_program(argv, svc, "sbatch");
    tn_argv_add(argv, "--parsable");
    tn_argv_addf(argv, "--job-name=%s", name);
    /* A second run in the same folder would find the attempt claimed; we try again ourselves. */
    tn_argv_add(argv, "--no-requeue");
    tn_argv_add(argv, "--export=ALL");
    add_shape(argv, svc, cluster, shape);
    if (time)
        tn_argv_addf(argv, "--time=%s", time);
    add_option(argv, svc, cluster, "partition");
    add_option(argv, svc, cluster, "account");
    add_option(argv, svc, cluster, "qos");
    add_all(argv, svc, cluster, "extra");
}

void tn_slurm_srun(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                   const struct tn_slurm_shape *shape, const char *name, const char *job, int first)
{
    const char *mpi = tn_slurm_option_on(svc, cluster, "mpi");

    tn_slurm_program(argv, svc, "srun");
    tn_argv_addf(argv, "--job-name=%s", name);
    if (!mpi) /* what the bundled trainer's MPI can be started by */
        mpi = tn_machine(svc)->mpi.train.kind == TN_MPI_OPEN ? "pmix" : "pmi2";
    tn_argv_addf(argv, "--mpi=%s", mpi);
    tn_argv_add(argv, "--kill-on-bad-exit=1"); /* the others would wait for a dead rank for ever */
    tn_argv_add(argv, "--distribution=block:block");
    add_shape(argv, svc, cluster, shape);
    if (job) {
        tn_argv_addf(argv, "--jobid=%s", job);
        tn_argv_addf(argv, "--relative=%d", first);
        tn_argv_add(argv, "--exact");
    }
    add_all(argv, svc, cluster, "step-extra");
}
