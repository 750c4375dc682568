/*
 * Why an attempt under Slurm ended.
 *
 * The exit file is believed first. When it tells of no orderly end, or there is none, Slurm is
 * asked before the attempt is settled: a node that failed, preemption and the end of time are no
 * crash of the trial. Of a step whose srun died, what lives on in the allocation is ended first.
 */
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/launch/slurm/slurm.h"
#include "tuner/launch/slurm/trial.h"
#include "tuner/machine/argv.h"
#include "tuner/machine/command.h"
#include "tuner/machine/machine.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

enum {
    SOON_MS = 300,
    ASKS = 200,
    RETRY_MS = 3000,
};

/* Ranks that lost each other may have lost a node. */
bool tn_slurm_is_clear(struct tn_attempt *attempt)
{
    tn_attempt_read(attempt);
    return attempt->seen.summary || attempt->stop != TN_STOP_NONE ||
           (attempt->seen.error && strcmp(attempt->seen.error_class, "comm") != 0) ||
           (attempt->exit.known && attempt->exit.code == 0 && !attempt->exit.stopped &&
            !attempt->exit.signal);
}

void tn_slurm_judge(struct tn_attempt *attempt, const char *outcome, const char *fmt, ...)
{
    va_list ap;

    attempt->verdict = outcome;
    va_start(ap, fmt);
    vsnprintf(attempt->trouble, sizeof(attempt->trouble), fmt, ap);
    va_end(ap);
}

/* What Slurm's own programs wrote when they killed it. */
static const char *said(const struct tn_attempt *attempt)
{
    static const char *const files[] = {"stderr", "slurm.out"};
    const char *v = NULL;

    for (size_t i = 0; i < ARRAY_LEN(files) && !v; i++) {
        AUTO_FREE char *path = mem_printf("%s/%s", attempt->folder, files[i]);
        size_t n;
        AUTO_FREE char *text = tn_file_piece(&n, path, 1 << 20, true);

        if (text)
            v = tn_slurm_said(text);
    }
    return v;
}

static void settle_by(struct tn_slurm_trial *trial, const struct tn_slurm_job *job)
{
    struct tn_attempt *a = trial->a;
    const char *v =
        job->phase == SLURM_ENDED ? tn_slurm_verdict(job->state, trial->alloc != NULL) : NULL;

    if (v) {
        tn_slurm_judge(a, v, "Slurm ended the %s: %s", trial->alloc ? "allocation" : "job",
                       job->state);
    } else if (job->phase == SLURM_PENDING && trial->ran) {
        tn_slurm_judge(a, "preempted", "Slurm queued its job again: %s", job->reason);
        tn_slurm_cancel(a->svc, a->job, NULL);
    } else if (job->phase == SLURM_ABSENT && !a->exit.known) {
        tn_slurm_judge(a, "node_fail", "%s", "its job vanished from Slurm without a trace");
    } else if ((v = said(a))) {
        tn_slurm_judge(a, v, "%s",
                       !strcmp(v, "oom") ? "out of memory: killed in Slurm's cgroup"
                                         : "reported by Slurm's output");
    }
    if (trial->alloc &&
        (job->phase == SLURM_ENDED || (a->verdict && strcmp(a->verdict, "oom") != 0)))
        tn_slurm_close_alloc(trial->alloc);
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
static void account(struct tn_slurm_trial *trial)
{
    struct tn_argv v = {0};

    tn_slurm_program(&v, trial->a->svc, "sacct");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--parsable2");
    tn_argv_add(&v, "--allocations");
    tn_argv_add(&v, "--format=JobIDRaw,State");
    tn_argv_addf(&v, "--jobs=%s", trial->a->job);
    trial->busy = true;
    tn_command_run(&tn_machine(trial->a->svc)->commands, &v, NULL, SLURM_COMMAND_MS, on_accounted,
                   trial);
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

void tn_slurm_ask_why(struct tn_slurm_trial *trial)
{
    struct tn_argv v = {0};

    trial->asked++;
    tn_slurm_program(&v, trial->a->svc, "scontrol");
    tn_argv_add(&v, "--oneliner");
    tn_argv_add(&v, "show");
    tn_argv_add(&v, "job");
    tn_argv_add(&v, trial->a->job);
    trial->busy = true;
    tn_command_run(&tn_machine(trial->a->svc)->commands, &v, NULL, SLURM_COMMAND_MS, on_shown,
                   trial);
    tn_argv_done(&v);
}

void tn_slurm_finish(struct tn_slurm_trial *trial)
{
    if (tn_slurm_is_clear(trial->a)) {
        tn_attempt_ended(trial->a);
        return;
    }
    trial->phase = TRIAL_ASK;
    trial->asked = 0;
    trial->next_at = 0;
}

/* ---- steps that live on without their srun ------------------------------- */

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
        tn_slurm_finish(t);
}

void tn_slurm_clean_steps(struct tn_slurm_trial *trial)
{
    struct tn_argv v = {0};

    trial->asked++;
    tn_slurm_program(&v, trial->a->svc, "squeue");
    tn_argv_add(&v, "--noheader");
    tn_argv_add(&v, "--steps");
    tn_argv_addf(&v, "--jobs=%s", trial->a->job);
    tn_argv_add(&v, "--format=%i|%j");
    trial->busy = true;
    tn_command_run(&tn_machine(trial->a->svc)->commands, &v, NULL, SLURM_COMMAND_MS, on_steps,
                   trial);
    tn_argv_done(&v);
}

void tn_slurm_step_gone(struct tn_attempt *attempt)
{
    struct tn_slurm_trial *t = attempt->launch;
    bool orderly = attempt->exit.known && !attempt->exit.stopped && attempt->exit.leftovers == 0;

    if (orderly && tn_slurm_is_clear(attempt)) {
        tn_attempt_ended(attempt);
        return;
    }
    t->phase = TRIAL_CLEAN;
    t->next_at = 0;
    tn_attempt_tick_in(attempt, 1);
}
