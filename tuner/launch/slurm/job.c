/*
 * One Slurm job a trial: sbatch runs partune-run on the job's first node. The exit file in the
 * attempt's folder, which all nodes see, says how it ended, and squeue until it is there.
 */
#include <assert.h>
#include <errno.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign_log.h"
#include "tuner/launch/launch.h"
#include "tuner/launch/slurm/slurm.h"
#include "tuner/launch/slurm/trial.h"
#include "tuner/launch/supervised.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/command.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/state/state.h"

enum {
    VANISHED = 3, /* looks without a trace of it */
    RETRY_MS = 3000,
    OBEY_MS = 20000
};

void tn_slurm_cancel_job(struct tn_slurm_trial *trial)
{
    struct tn_attempt *a = trial->a;

    /* The supervisor gets TERM and ends its trial in order; a job that waits just goes. */
    tn_slurm_cancel(a->svc, a->job, trial->ran ? "TERM" : NULL);
    trial->kill_at =
        tn_now_ms() +
        (uint64_t)(tn_settings(a->svc)->grace_ms > 0 ? tn_settings(a->svc)->grace_ms : 2000) +
        OBEY_MS;
}

static void has_job(struct tn_slurm_trial *trial, const char *id, int count)
{
    struct tn_attempt *a = trial->a;

    assert(count > 0);
    snprintf(a->job, sizeof(a->job), "%.*s", count, id);
    trial->phase = TRIAL_WATCH;
    trial->missed = 0;
    tn_log_attempt(LOG_DEBUG, a, " is Slurm job %s", a->job);
    if (trial->stopped)
        tn_slurm_cancel_job(trial);
}

static void on_sbatch(void *arg, int status, const char *out, const char *error)
{
    struct tn_slurm_trial *t = arg;
    size_t n = strspn(out, "0123456789");

    t->busy = false;
    if (status == 0 && n > 0 && n < 24) {
        has_job(t, out, (int)n);
    } else if (status < 0 || tn_slurm_transient(error)) { /* it may be there nevertheless */
        tn_log_attempt(LOG_WARN, t->a, ": sbatch: %s", error);
        t->phase = TRIAL_LOOK;
        t->next_at = tn_now_ms() + RETRY_MS;
    } else if (t->stopped) {
        tn_attempt_ended(t->a);
    } else {
        AUTO_FREE char *line = mem_printf("%.*s", (int)strcspn(error, "\n"), error);

        tn_slurm_judge(t->a, "io", "Slurm rejected the job: %.300s", line);
        tn_attempt_ended(t->a);
    }
}

/* sbatch copies a script; this one is nothing but the command line that follows it. */
int tn_slurm_submit(struct tn_slurm_trial *trial, struct err *error)
{
    static const char script[] = "#!/bin/sh\nexec \"$@\"\n";
    struct tn_attempt *a = trial->a;
    AUTO_FREE char *path = mem_printf("%s/job.sh", a->folder);
    AUTO_FREE char *limit = mem_printf("%.0f", a->limits.timeout_s / 60 + 3); /* whole minutes */
    struct tn_slurm_shape s = tn_slurm_shape_of(a);
    struct tn_argv v = {0}, env = {0};
    const char *cluster = tn_trial_cluster(a->trial)->name;
    const char *time = tn_slurm_option_on(a->svc, cluster, "time");
    int r = file_write_atomic(path, script, strlen(script), 0700, error);

    assert(trial->jobs && !trial->busy);
    tn_slurm_sbatch(&v, a->svc, cluster, &s, trial->name, time ? time : limit);
    tn_argv_addf(&v, "--output=%s/slurm.out", a->folder);
    tn_argv_addf(&v, "--chdir=%s",
                 a->trainer->directory && a->trainer->directory(a) ? a->trainer->directory(a)
                                                                   : a->folder);
    tn_argv_add(&v, path);
    tn_supervised_argv(&v, a, NULL);
    tn_supervised_env(&env, a);
    if (r == 0)
        r = tn_slurm_add_program(&v, a, &env, error);
    if (r == 0) {
        trial->busy = true;
        trial->phase = TRIAL_SUBMIT;
        tn_command_run(&tn_machine(a->svc)->commands, &v, &env, SLURM_COMMAND_MS, on_sbatch, trial);
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
        tn_log_attempt(LOG_WARN, a, ": squeue: %s", error);
        return;
    }
    if (tn_slurm_line(&j, &out)) {
        has_job(t, j.id, (int)strlen(j.id));
        return;
    }
    if (!a->was_adopted && !t->stopped) {
        if (tn_slurm_submit(t, &e) < 0) {
            if (!a->seen.error)
                tn_slurm_judge(a, "io", "%.300s", e.text);
            tn_attempt_ended(a);
        }
        return;
    }
    if (t->stopped || tn_run_claim(a->folder, NULL, a->mark, NULL) == 0) {
        tn_slurm_judge(a, "requeued", "%s", "the daemon died before it was launched");
        tn_attempt_ended(a);
        return;
    }
    /* It was claimed, so it ran, and Slurm has forgotten it: its exit file is on its way, or is
     * not. */
    if (++t->missed >= VANISHED) {
        tn_exit_read(&a->exit, a->folder);
        if (!tn_slurm_is_clear(a))
            tn_slurm_judge(a, "node_fail", "%s", "its job vanished from Slurm without a trace");
        tn_attempt_ended(a);
    }
}

void tn_slurm_look(struct tn_slurm_trial *trial)
{
    struct tn_argv v = {0};

    tn_slurm_program(&v, trial->a->svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--states=all");
    tn_argv_addf(&v, "--name=%s", trial->name);
    tn_argv_add(&v, "--format=" TN_SLURM_FORMAT);
    trial->busy = true;
    tn_command_run(&tn_machine(trial->a->svc)->commands, &v, NULL, SLURM_COMMAND_MS, on_found,
                   trial);
    tn_argv_done(&v);
}

void tn_slurm_heard(struct tn_attempt *attempt, const struct tn_slurm_job *job)
{
    struct tn_slurm_trial *t = attempt->launch;

    t->missed = job->phase == SLURM_ABSENT ? t->missed + 1 : 0;
    t->over = job->phase == SLURM_ENDED ? t->over + 1 : 0;
    /* The exit file may come a moment later than the news: file systems have caches. */
    if (t->over >= 2 || t->missed >= VANISHED || (job->phase == SLURM_PENDING && t->ran)) {
        tn_exit_read(&attempt->exit, attempt->folder);
        tn_slurm_finish(t);
        if (!attempt->ended)
            tn_attempt_tick_in(attempt, 1);
    }
}

void tn_slurm_watch_job(struct tn_slurm_trial *trial)
{
    struct tn_attempt *a = trial->a;

    if (!trial->ran) {
        AUTO_FREE char *claim = mem_printf("%s/%s", a->folder, TN_RUN_FILE);

        a->started = tn_now_ms(); /* time in the queue is not the trial's */
        if (!file_exists(claim))
            return;
        trial->ran = true;
        tn_attempt_runs(a);
    }
    tn_exit_read(&a->exit, a->folder);
    if (a->exit.known)
        tn_slurm_finish(trial);
    else if (trial->kill_at && tn_now_ms() > trial->kill_at && a->job[0]) {
        trial->kill_at = tn_now_ms() + OBEY_MS;
        tn_slurm_cancel(a->svc, a->job, NULL);
    }
}
