/*
 * The Slurm launcher.
 *
 *   steps   partune-run beside the daemon supervises srun (or mpiexec), which starts a step in the
 *           campaign's allocation; watched and adopted like a local trial
 *   jobs    sbatch runs partune-run on the job's first node; the exit file in the attempt's folder,
 *           which all nodes see, says how it ended, and squeue until it is there
 *
 * The exit file is believed first. When it tells of no orderly end, or there is none, Slurm is
 * asked why before the attempt is settled: a node that failed, preemption and the end of time are
 * no crash of the trial.
 */
#include <errno.h>
#include <unistd.h>

#include "tuner/slurm.h"

enum {
    COMMAND_MS = 30000,
    SOON_MS = 300,
    ASKS = 200,
    VANISHED = 3,
    RETRY_MS = 3000,
    OBEY_MS = 20000
};

enum phase {
    LOOK,   /* is there a job of our name? */
    SUBMIT, /* sbatch */
    WATCH,  /* it is queued or runs */
    CLEAN,  /* steps of ours in the allocation are ended */
    ASK,    /* why did it end? */
};

struct tn_slurm_trial {
    struct tn_attempt *a;
    struct tn_slurm_alloc *alloc; /* of a step */
    enum phase phase;
    char name[160];
    bool jobs, busy, ran, stopped;
    int missed, over, asked;
    uint64_t next_at; /* monotonic ms: nothing before */
};

static struct tn_slurm_trial *trial_new(struct tn_attempt *a)
{
    struct tn_slurm_trial *t = mem_alloc(sizeof(*t));

    t->a = a;
    t->jobs = tn_slurm_mode(a->svc, a->campaign->engine->spec) == SLURM_JOBS;
    t->phase = WATCH;
    tn_slurm_name(t->name, a->mark);
    a->slurm = t;
    return t;
}

static int ready(struct tn_service *svc, const struct tn_spec *spec, struct err *e)
{
    (void)spec;
    if (!svc->supervisor)
        return err_set(e, -ENOENT, "partune-run was not found beside partuned");
    if (!svc->config.conf)
        return err_set(e, -ENOENT, "the daemon's configuration has no [slurm]");
    return tn_slurm_check_options(svc, e);
}

static int admit(const struct tn_service *svc, const struct tn_spec *s, struct err *e)
{
    static const char *const modes[] = {"steps", "jobs", NULL};
    json_t *v = json_object_get(s->body, "launcher");
    int mode, devices = pl_cluster_devices(&s->se.cluster), r;

    if (!svc->config.conf || !conf_has(svc->config.conf, "slurm"))
        return err_at(e, -EINVAL, "/launcher/kind",
                      "this daemon's configuration has no section [slurm]");
    r = tn_slurm_check_options(svc, e);
    if (r == 0)
        r = jx_get_enum(&mode, v, "mode", modes, e);
    if (r < 0)
        return err_under(e, "/launcher");
    if (tn_slurm_mode(svc, s) != SLURM_JOBS && devices > TN_MAX_CORES)
        return err_at(e, -EINVAL, "/cluster",
                      "an allocation is shared for up to %d devices; take \"mode\": \"jobs\"",
                      TN_MAX_CORES);
    return 0;
}

static bool reserve(struct tn_attempt *a)
{
    struct tn_slurm_shape s = tn_slurm_shape_of(a);
    struct tn_slurm_alloc *al = NULL;

    if (tn_slurm_mode(a->svc, a->campaign->engine->spec) != SLURM_JOBS) {
        al = tn_slurm_take(a, &s);
        if (!al)
            return false;
    }
    trial_new(a)->alloc = al;
    return true;
}

static void release(struct tn_attempt *a)
{
    if (a->slurm && a->slurm->alloc)
        tn_slurm_give(a->slurm->alloc, a);
    free(a->slurm);
    a->slurm = NULL;
}

/* ---- command lines ---- */

/* What is run under the supervisor. */
static int add_program(struct tn_argv *v, struct tn_attempt *a, struct err *e)
{
    const struct tn_slurm_trial *t = a->slurm;
    struct tn_slurm_shape s = tn_slurm_shape_of(a);
    bool direct = a->trainer->direct && a->trainer->direct(a);

    if (tn_slurm_uses_mpiexec(a->svc) && !direct) {
        tn_argv_add(v, a->svc->mpiexec ? a->svc->mpiexec : "mpiexec");
        tn_argv_add(v, "-ppn");
        tn_argv_addf(v, "%d", s.tasks_per_node);
        tn_argv_add(v, "-n");
        tn_argv_addf(v, "%d", s.tasks);
    } else {
        tn_slurm_srun(v, a->svc, &s, t->name, t->alloc ? t->alloc->id : NULL,
                      t->alloc ? a->cpus[0] / t->alloc->per_node : 0);
    }
    return a->trainer->prepare(a, v, e);
}

/* Hydra starts its proxies by srun where it finds itself in an allocation; steps know each other
 * by name, and overlap because Slurm counts a proxy as a step of the whole node. */
static void add_hydra(struct tn_argv *env, const struct tn_slurm_trial *t)
{
    const struct tn_slurm_alloc *al = t->alloc;
    int nodes = al->slots.count / al->per_node;

    tn_argv_addf(env, "SLURM_JOB_ID=%s", al->id);
    tn_argv_addf(env, "SLURM_JOBID=%s", al->id);
    tn_argv_addf(env, "SLURM_NODELIST=%s", al->nodes);
    tn_argv_addf(env, "SLURM_JOB_NODELIST=%s", al->nodes);
    tn_argv_addf(env, "SLURM_NNODES=%d", nodes);
    tn_argv_addf(env, "SLURM_JOB_NUM_NODES=%d", nodes);
    tn_argv_addf(env, nodes > 1 ? "SLURM_TASKS_PER_NODE=%d(x%d)" : "SLURM_TASKS_PER_NODE=%d",
                 al->per_node, nodes);
    tn_argv_addf(env, "HYDRA_LAUNCHER_EXTRA_ARGS=--overlap --job-name=%s", t->name);
}

static int start_step(struct tn_attempt *a, struct err *e)
{
    struct tn_argv v = {0}, env = {0};
    int r;

    snprintf(a->job, sizeof(a->job), "%s", a->slurm->alloc->id);
    tn_supervised_argv(&v, a, NULL);
    r = add_program(&v, a, e);
    tn_supervised_env(&env, a);
    if (tn_slurm_uses_mpiexec(a->svc))
        add_hydra(&env, a->slurm);
    if (r == 0)
        r = tn_supervised_spawn(a, v.v, env.v, e);
    tn_argv_done(&v);
    tn_argv_done(&env);
    return r;
}

/* ---- the end ---- */

/* Nothing more is to be asked: it ended as its own files say, or because we wanted it. Ranks that
 * lost each other may have lost a node. */
static bool is_clear(struct tn_attempt *a)
{
    tn_attempt_read(a);
    return a->seen.summary || a->stop != TN_STOP_NONE ||
           (a->seen.error && strcmp(a->seen.error_class, "comm") != 0) ||
           (a->exit.known && a->exit.code == 0 && !a->exit.stopped && !a->exit.signal);
}

static void verdict(struct tn_attempt *a, const char *outcome, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void verdict(struct tn_attempt *a, const char *outcome, const char *fmt, ...)
{
    va_list ap;

    a->verdict = outcome;
    va_start(ap, fmt);
    vsnprintf(a->trouble, sizeof(a->trouble), fmt, ap);
    va_end(ap);
}

/* What Slurm's own programs wrote when they killed it. */
static const char *said(const struct tn_attempt *a)
{
    static const char *const files[] = {"stderr", "slurm.out"};
    const char *v = NULL;

    for (size_t i = 0; i < ARRAY_LEN(files) && !v; i++) {
        AUTO_FREE char *path = mem_printf("%s/%s", a->folder, files[i]);
        AUTO_FREE char *text = NULL;
        size_t n;

        if (file_exists(path) && file_read_all(&text, &n, path, 64 << 20, NULL) == 0)
            v = tn_slurm_said(text);
    }
    return v;
}

static void settle_by(struct tn_slurm_trial *t, const struct tn_slurm_job *j)
{
    struct tn_attempt *a = t->a;
    const char *v = j->phase == SLURM_ENDED ? tn_slurm_verdict(j->state, t->alloc != NULL) : NULL;

    if (v) {
        verdict(a, v, "Slurm ended the %s: %s", t->alloc ? "allocation" : "job", j->state);
    } else if (j->phase == SLURM_PENDING && t->ran) {
        verdict(a, "preempted", "Slurm queued its job again: %s", j->reason);
        tn_slurm_cancel(a->svc, a->job, NULL);
    } else if (j->phase == SLURM_ABSENT && !a->exit.known) {
        verdict(a, "node_fail", "%s", "its job vanished from Slurm without a trace");
    } else if ((v = said(a))) {
        verdict(a, v, "%s",
                !strcmp(v, "oom") ? "out of memory: killed in Slurm's cgroup"
                                  : "Slurm says so in its output");
    }
    tn_attempt_ended(a);
}

static void on_accounted(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_trial *t = arg;
    struct tn_slurm_job j = {.phase = SLURM_ABSENT};

    (void)error;
    t->busy = false;
    if (status == 0)
        tn_slurm_accounted(&j, out, t->a->job);
    settle_by(t, &j);
}

/* Where accounting is off, sacct fails and nothing is known. */
static void account(struct tn_slurm_trial *t)
{
    struct tn_argv v = {0};

    tn_slurm_program(&v, t->a->svc, "sacct");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--parsable2");
    tn_argv_add(&v, "--allocations");
    tn_argv_add(&v, "--format=JobIDRaw,State");
    tn_argv_addf(&v, "--jobs=%s", t->a->job);
    t->busy = true;
    tn_command_run(t->a->svc, &v, NULL, COMMAND_MS, on_accounted, t);
    tn_argv_done(&v);
}

static void on_shown(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_trial *t = arg;
    struct tn_slurm_job j;
    bool known;

    t->busy = false;
    t->next_at = tn_now_ms() + SOON_MS;
    known = status == 0 && tn_slurm_shown(&j, out);
    if (!known && status != 0 &&
        !tn_slurm_unknown(error)) { /* the controller is away: wait for it */
        t->next_at = tn_now_ms() + RETRY_MS;
        if (t->asked < ASKS)
            return;
    }
    if (!known) {
        account(t);
        return;
    }
    if (j.phase == SLURM_ENDING && t->asked < ASKS)
        return;
    /* The job of a trial whose exit file is there is about to end. */
    if (t->jobs && j.phase == SLURM_RUNNING && t->asked < ASKS / 2)
        return;
    settle_by(t, &j);
}

static void show(struct tn_slurm_trial *t)
{
    struct tn_argv v = {0};

    t->asked++;
    tn_slurm_program(&v, t->a->svc, "scontrol");
    tn_argv_add(&v, "--oneliner");
    tn_argv_add(&v, "show");
    tn_argv_add(&v, "job");
    tn_argv_add(&v, t->a->job);
    t->busy = true;
    tn_command_run(t->a->svc, &v, NULL, COMMAND_MS, on_shown, t);
    tn_argv_done(&v);
}

static void finish(struct tn_slurm_trial *t)
{
    if (is_clear(t->a)) {
        tn_attempt_ended(t->a);
        return;
    }
    t->phase = ASK;
    t->asked = 0;
    t->next_at = 0;
}

/* ---- steps that live on without their srun ---- */

static void on_steps(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_trial *t = arg;
    int left = 0;

    t->busy = false;
    t->next_at = tn_now_ms() + SOON_MS;
    for (const char *p = out; status == 0 && *p;) {
        const char *end = p + strcspn(p, "\n"), *bar = memchr(p, '|', (size_t)(end - p));
        AUTO_FREE char *id = bar ? mem_printf("%.*s", (int)(bar - p), p) : NULL;

        if (bar && strlen(t->name) == (size_t)(end - bar - 1) &&
            !strncmp(bar + 1, t->name, strlen(t->name))) {
            tn_slurm_cancel(t->a->svc, id, NULL);
            left++;
        }
        p = *end ? end + 1 : end;
    }
    if (left == 0 && (status == 0 || tn_slurm_unknown(error) || t->asked >= ASKS))
        finish(t);
}

static void clean(struct tn_slurm_trial *t)
{
    struct tn_argv v = {0};

    t->asked++;
    tn_slurm_program(&v, t->a->svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--steps");
    tn_argv_addf(&v, "--jobs=%s", t->a->job);
    tn_argv_add(&v, "--format=%i|%j");
    t->busy = true;
    tn_command_run(t->a->svc, &v, NULL, COMMAND_MS, on_steps, t);
    tn_argv_done(&v);
}

static void gone(struct tn_attempt *a)
{
    struct tn_slurm_trial *t = a->slurm;
    bool orderly = a->exit.known && !a->exit.stopped && a->exit.leftovers == 0;

    if (orderly && is_clear(a)) {
        tn_attempt_ended(a);
        return;
    }
    t->phase = CLEAN;
    t->next_at = 0;
    tn_attempt_tick_in(a, 1);
}

/* ---- one job a trial ---- */

static void cancel_job(struct tn_slurm_trial *t)
{
    struct tn_attempt *a = t->a;

    /* The supervisor gets TERM and ends its trial in order; a job that waits just goes. */
    tn_slurm_cancel(a->svc, a->job, t->ran ? "TERM" : NULL);
    a->kill_at = tn_now_ms() +
                 (uint64_t)(a->svc->config.grace_ms > 0 ? a->svc->config.grace_ms : 2000) + OBEY_MS;
}

static void has_job(struct tn_slurm_trial *t, const char *id, int n)
{
    struct tn_attempt *a = t->a;

    snprintf(a->job, sizeof(a->job), "%.*s", n, id);
    t->phase = WATCH;
    t->missed = 0;
    log_debug("campaign %s: trial %lld is Slurm's job %s", a->campaign->id, (long long)a->trial->n,
              a->job);
    if (t->stopped)
        cancel_job(t);
}

static void on_sbatch(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_trial *t = arg;
    size_t n = strspn(out, "0123456789");

    t->busy = false;
    if (status == 0 && n > 0 && n < 24) {
        has_job(t, out, (int)n);
    } else if (status < 0 || tn_slurm_transient(error)) { /* it may be there nevertheless */
        log_warn("campaign %s: sbatch: %s", t->a->campaign->id, error);
        t->phase = LOOK;
        t->next_at = tn_now_ms() + RETRY_MS;
    } else if (t->stopped) {
        tn_attempt_ended(t->a);
    } else {
        AUTO_FREE char *line = mem_printf("%.*s", (int)strcspn(error, "\n"), error);

        verdict(t->a, "io", "Slurm refuses the job: %.300s", line);
        tn_attempt_ended(t->a);
    }
}

/* sbatch copies a script; this one is nothing but the command line that follows it. */
static int submit(struct tn_slurm_trial *t, struct err *e)
{
    static const char script[] = "#!/bin/sh\nexec \"$@\"\n";
    struct tn_attempt *a = t->a;
    AUTO_FREE char *path = mem_printf("%s/job.sh", a->folder);
    AUTO_FREE char *limit = mem_printf("%.0f", a->limits.timeout_s / 60 + 3); /* whole minutes */
    struct tn_slurm_shape s = tn_slurm_shape_of(a);
    struct tn_argv v = {0}, env = {0};
    const char *time = tn_slurm_option(a->svc, "time");
    int r = file_write_atomic(path, script, strlen(script), 0700, e);

    tn_slurm_sbatch(&v, a->svc, &s, t->name, time ? time : limit);
    tn_argv_addf(&v, "--output=%s/slurm.out", a->folder);
    tn_argv_addf(&v, "--chdir=%s",
                 a->trainer->directory && a->trainer->directory(a) ? a->trainer->directory(a)
                                                                   : a->folder);
    tn_argv_add(&v, path);
    tn_supervised_argv(&v, a, NULL);
    if (r == 0)
        r = add_program(&v, a, e);
    tn_supervised_env(&env, a);
    if (r == 0) {
        t->busy = true;
        t->phase = SUBMIT;
        tn_command_run(a->svc, &v, &env, COMMAND_MS, on_sbatch, t);
    }
    tn_argv_done(&v);
    tn_argv_done(&env);
    return r;
}

/* After a restart, or a failed sbatch: is it there? If nothing has started, nothing will when we
 * hold the claim. */
static void on_found(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_trial *t = arg;
    struct tn_attempt *a = t->a;
    struct tn_slurm_job j;
    struct err e = {0};

    t->busy = false;
    t->next_at = tn_now_ms() + RETRY_MS;
    if (status != 0) {
        log_warn("campaign %s: squeue: %s", a->campaign->id, error);
        return;
    }
    if (tn_slurm_line(&j, &out)) {
        has_job(t, j.id, (int)strlen(j.id));
        return;
    }
    if (!a->was_adopted && !t->stopped) {
        if (submit(t, &e) < 0) {
            if (!a->seen.error)
                verdict(a, "io", "%.300s", e.text);
            tn_attempt_ended(a);
        }
        return;
    }
    if (t->stopped || tn_run_claim(a->folder, NULL, a->mark, NULL) == 0) {
        verdict(a, "node_fail", "%s", "the daemon died before it was launched");
        tn_attempt_ended(a);
        return;
    }
    /* It was claimed, so it ran, and Slurm has forgotten it: its exit file is on its way, or is
     * not. */
    if (++t->missed >= VANISHED) {
        tn_exit_read(&a->exit, a->folder);
        if (!is_clear(a))
            verdict(a, "node_fail", "%s", "its job vanished from Slurm without a trace");
        tn_attempt_ended(a);
    }
}

static void look(struct tn_slurm_trial *t)
{
    struct tn_argv v = {0};

    tn_slurm_program(&v, t->a->svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--states=all");
    tn_argv_addf(&v, "--name=%s", t->name);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    t->busy = true;
    tn_command_run(t->a->svc, &v, NULL, COMMAND_MS, on_found, t);
    tn_argv_done(&v);
}

const char *tn_slurm_asks(const struct tn_attempt *a)
{
    return a->slurm && a->slurm->jobs && a->slurm->phase == WATCH && a->job[0] && !a->ended ? a->job
                                                                                            : NULL;
}

void tn_slurm_heard(struct tn_attempt *a, const struct tn_slurm_job *j)
{
    struct tn_slurm_trial *t = a->slurm;

    t->missed = j->phase == SLURM_ABSENT ? t->missed + 1 : 0;
    t->over = j->phase == SLURM_ENDED ? t->over + 1 : 0;
    /* The exit file may come a moment later than the news: file systems have caches. */
    if (t->over >= 2 || t->missed >= VANISHED || (j->phase == SLURM_PENDING && t->ran)) {
        tn_exit_read(&a->exit, a->folder);
        finish(t);
        if (!a->ended)
            tn_attempt_tick_in(a, 1);
    }
}

static void watch_job(struct tn_slurm_trial *t)
{
    struct tn_attempt *a = t->a;

    if (!t->ran) {
        AUTO_FREE char *claim = mem_printf("%s/%s", a->folder, TN_RUN_FILE);

        a->started = tn_now_ms(); /* time in the queue is not the trial's */
        if (!file_exists(claim))
            return;
        t->ran = true;
        tn_attempt_runs(a);
    }
    tn_exit_read(&a->exit, a->folder);
    if (a->exit.known)
        finish(t);
    else if (a->kill_at && tn_now_ms() > a->kill_at && a->job[0]) {
        a->kill_at = tn_now_ms() + OBEY_MS;
        tn_slurm_cancel(a->svc, a->job, NULL);
    }
}

/* ---- the table ---- */

static int start(struct tn_attempt *a, struct err *e)
{
    tn_slurm_watch(a->svc);
    if (!a->slurm->jobs)
        return start_step(a, e);
    a->waits = true;
    return submit(a->slurm, e);
}

static int adopt(struct tn_attempt *a, const struct db_attempt *row, struct err *e)
{
    struct tn_slurm_trial *t = trial_new(a);
    int r;

    tn_slurm_watch(a->svc);
    if (row->job)
        snprintf(a->job, sizeof(a->job), "%s", row->job);
    if (t->jobs) {
        a->waits = true;
        t->phase = row->job ? WATCH : LOOK;
        t->ran = row->job != NULL;
        tn_attempt_tick_in(a, 1);
        return 1;
    }
    t->alloc = tn_slurm_take_again(a, a->job);
    r = tn_supervised_adopt(a, e);
    if (r == 0 && !a->machine_lost && a->job[0]) {
        t->phase = CLEAN; /* a step may live on without its srun */
        tn_attempt_tick_in(a, 1);
        return 1;
    }
    return r;
}

static void stop(struct tn_attempt *a)
{
    struct tn_slurm_trial *t = a->slurm;

    if (!t->jobs) {
        tn_supervised_stop(a);
        return;
    }
    t->stopped = true;
    if (a->job[0])
        cancel_job(t);
}

static void tick(struct tn_attempt *a)
{
    struct tn_slurm_trial *t = a->slurm;

    if (t->busy)
        return;
    if (!t->jobs && t->phase == WATCH)
        tn_supervised_tick(a);
    if (t->jobs && t->phase == WATCH)
        watch_job(t);
    if (a->ended || t->busy || tn_now_ms() < t->next_at)
        return;
    if (t->phase == LOOK)
        look(t);
    else if (t->phase == CLEAN)
        clean(t);
    else if (t->phase == ASK)
        show(t);
}

static void on_forgotten(void *arg, int status, const char *out, const char *error)
{
    struct tn_service *svc = arg;
    struct tn_slurm_job j;

    (void)error;
    while (status == 0 && tn_slurm_line(&j, &out))
        tn_slurm_cancel(svc, j.id, NULL);
}

static void forget(struct tn_service *svc, const struct db_attempt *row)
{
    struct tn_argv v = {0};
    char mark[TN_MARK_TEXT], name[160];

    snprintf(mark, sizeof(mark), "%s/%s/%lld/%lld", svc->instance, row->campaign, (long long)row->n,
             (long long)row->attempt);
    tn_slurm_name(name, mark);
    tn_slurm_program(&v, svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_addf(&v, "--name=%s", name);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    tn_command_run(svc, &v, NULL, COMMAND_MS, on_forgotten, svc);
    tn_argv_done(&v);
}

const struct tn_launcher tn_launcher_slurm = {
    .name = "slurm",
    .ready = ready,
    .admit = admit,
    .reserve = reserve,
    .release = release,
    .start = start,
    .adopt = adopt,
    .stop = stop,
    .tick = tick,
    .gone = gone,
    .forget = forget,
};
