/*
 * One attempt's dealings with Slurm: what launcher.c, job.c, step.c and end.c know of it.
 */
#ifndef TUNER_SLURM_TRIAL_H
#define TUNER_SLURM_TRIAL_H

#include "tuner/launch/slurm/slurm.h"
#include "tuner/launch/supervised.h"

enum { SLURM_COMMAND_MS = 30000 }; /* a command that takes longer is given up */

/* What the launcher knows of an attempt. */
struct tn_slurm_trial {
    struct tn_supervised supervised; /* of a step: first, as supervised.h wants it */
    struct tn_attempt *a;            /* NULL before reserve() or adopt() */
    struct tn_slurm_alloc *alloc;    /* of a step */
    enum {
        TRIAL_LOOK,   /* is there a job of our name? */
        TRIAL_SUBMIT, /* sbatch */
        TRIAL_WATCH,  /* it is queued or runs */
        TRIAL_CLEAN,  /* steps of ours in the allocation are ended */
        TRIAL_ASK,    /* why did it end? */
    } phase;
    char name[160];
    bool jobs; /* a job of its own */
    bool busy; /* a command is on its way */
    bool ran, stopped;
    int missed, over, asked;
    uint64_t next_at; /* monotonic ms: nothing before */
    uint64_t kill_at; /* monotonic ms: its job did not obey; 0: it was not told anything */
};

/* ---- step.c -------------------------------------------------------------- */

/* What is run under the supervisor, in the environment ENV. */
int tn_slurm_add_program(struct tn_argv *argv, struct tn_attempt *attempt,
                         const struct tn_argv *env, struct err *error);
int tn_slurm_start_step(struct tn_attempt *attempt, struct err *error);

/* ---- job.c --------------------------------------------------------------- */

int tn_slurm_submit(struct tn_slurm_trial *trial, struct err *error);
void tn_slurm_look(struct tn_slurm_trial *trial);      /* in phase TRIAL_LOOK */
void tn_slurm_watch_job(struct tn_slurm_trial *trial); /* in phase TRIAL_WATCH */
void tn_slurm_cancel_job(struct tn_slurm_trial *trial);
/* Slurm's word on the job of ATTEMPT; phase SLURM_ABSENT when it has none. */
void tn_slurm_heard(struct tn_attempt *attempt, const struct tn_slurm_job *job);

/* ---- end.c --------------------------------------------------------------- */

/* Nothing more is to be asked: it ended as its own files say, or because we wanted it. */
bool tn_slurm_is_clear(struct tn_attempt *attempt);
/* OUTCOME is the attempt's, whatever its exit code says. */
void tn_slurm_judge(struct tn_attempt *attempt, const char *outcome, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* It has ended: settled at once if that is clear, else by what Slurm says (phase TRIAL_ASK). */
void tn_slurm_finish(struct tn_slurm_trial *trial);
void tn_slurm_ask_why(struct tn_slurm_trial *trial);     /* in phase TRIAL_ASK */
void tn_slurm_clean_steps(struct tn_slurm_trial *trial); /* in phase TRIAL_CLEAN */
/* The srun of a step is gone. */
void tn_slurm_step_gone(struct tn_attempt *attempt);

#endif
