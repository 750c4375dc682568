/*
 * Slurm as its commands speak: command lines to give, answers to read. No processes, no state.
 */
#ifndef TUNER_SLURM_H
#define TUNER_SLURM_H

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/launcher.h"
#include "tuner/machine/argv.h"

/* What a job's state means for us. */
enum tn_slurm_phase {
    SLURM_ABSENT, /* Slurm does not know it (any more) */
    SLURM_PENDING,
    SLURM_RUNNING,
    SLURM_ENDING, /* COMPLETING: why is not known yet */
    SLURM_ENDED,
};

struct tn_slurm_job {
    char id[24];
    char state[24]; /* "RUNNING"; "CANCELLED by 0" is cut at the blank */
    char name[160];
    char reason[120];
    char nodes[4096]; /* as Slurm writes lists of hosts */
    enum tn_slurm_phase phase;
};

enum tn_slurm_phase tn_slurm_phase(const char *state);

/* The outcome that follows from the final state of the job that a trial ran in, or NULL where the
 * trial's own exit must tell. SHARED: the job is an allocation that outlives trials, so that the
 * end of its time says nothing about the trial. */
const char *tn_slurm_verdict(const char *state, bool shared);
/* The same from what slurmstepd and srun print when they kill something. */
const char *tn_slurm_said(const char *text);

/* One line of `squeue -o TN_SLURM_FORMAT`; false for anything else. *TEXT moves on. */
#define TN_SLURM_FORMAT "%A|%T|%j|%r|%N"
bool tn_slurm_line(struct tn_slurm_job *ret, const char **text);
/* The answer of `scontrol -o show job ID`. */
bool tn_slurm_shown(struct tn_slurm_job *ret, const char *text);
/* The answer of `sacct -n -P -X -o JobIDRaw,State -j ID`: its last line about ID, which is the last
 * run of a job that was requeued. */
bool tn_slurm_accounted(struct tn_slurm_job *ret, const char *text, const char *id);
/* Did squeue fail because it does not know the job, and not because it could not ask? */
bool tn_slurm_unknown(const char *error);
/* May the same command succeed later? */
bool tn_slurm_transient(const char *error);

/* ---- the administrator's [slurm] ----------------------------------------- */

enum tn_slurm_mode {
    SLURM_STEPS,  /* one allocation a campaign, trials are its steps */
    SLURM_JOBS,   /* one job a trial */
    SLURM_INSIDE, /* steps of the allocation that the daemon itself runs in */
};

const char *tn_slurm_option(const struct tn_service *svc, const char *key);
/* KEY of [slurm "CLUSTER"], where it has that key, else of [slurm]. */
const char *tn_slurm_option_on(const struct tn_service *svc, const char *cluster, const char *key);
/* Can the sections serve all clusters of SPEC, each in its own? -EINVAL names the first that they
 * cannot. */
int tn_slurm_admit_clusters(const struct tn_service *svc, const struct tn_spec *spec,
                            struct err *error);
enum tn_slurm_mode tn_slurm_mode(const struct tn_service *svc, const struct tn_spec *spec);
bool tn_slurm_uses_mpiexec(const struct tn_service *svc);
/* First word of a command line: the program in [slurm] bin, else in PATH. */
void tn_slurm_program(struct tn_argv *argv, const struct tn_service *svc, const char *name);

/* How many tasks of how many devices are put on how many nodes. */
struct tn_slurm_shape {
    int nodes, tasks, tasks_per_node, devices_per_task;
    bool overcommit; /* more tasks than devices: the cluster says that it oversubscribes */
};
struct tn_slurm_shape tn_slurm_shape_of(const struct tn_attempt *attempt);
/* Devices that it takes from an allocation: all of each node when there are several. */
int tn_slurm_devices(const struct tn_slurm_shape *shape, int per_node);

/* sbatch up to the program: options for a job of SHAPE on CLUSTER. TIME is a limit as Slurm writes
 * it. */
void tn_slurm_sbatch(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                     const struct tn_slurm_shape *shape, const char *name, const char *time);
/* srun up to the program. JOB NULL: in the job where it is called, which has the right shape; else
 * a step in allocation JOB from node FIRST on. */
void tn_slurm_srun(struct tn_argv *argv, const struct tn_service *svc, const char *cluster,
                   const struct tn_slurm_shape *shape, const char *name, const char *job,
                   int first);

/* ---- alloc.c: allocations, and what Slurm says of all jobs --------------- */

/* How the trials that are jobs of their own take part in the one question. */
struct tn_slurm_trials {
    /* The id of the job that ATTEMPT is, which is to be asked for; NULL: none now. */
    const char *(*asks)(const struct tn_attempt *attempt);
    /* Slurm's word on that job; phase SLURM_ABSENT when it has none. */
    void (*heard)(struct tn_attempt *attempt, const struct tn_slurm_job *job);
};

/* An allocation that the trials of a campaign share that run on one cluster. */
struct tn_slurm_alloc {
    struct tn_slurm_alloc *next;
    struct tn_slurm *slurm;
    char campaign[TN_ID_TEXT]; /* "" : the allocation that the daemon runs in */
    char cluster[64];          /* whose section of the configuration is used */
    int at;                    /* of several clusters: which, from 1; 0: there is one */
    char id[24];               /* "" : not known yet */
    char nodes[4096];
    enum { ALLOC_LOOK, ALLOC_SUBMIT, ALLOC_WAIT, ALLOC_READY, ALLOC_OVER } phase;
    bool busy;   /* a command is on its way */
    bool closed; /* no more steps: it ends, or has ended, whatever squeue still says */
    int missed, per_node, users;
    uint64_t retry_at, idle_since; /* monotonic ms */
    struct tn_slots slots;         /* its devices, node by node */
};

/* Devices for ATTEMPT in its campaign's allocation, into attempt->cpus; NULL: none now. The service
 * is being watched (tn_slurm_watch). */
struct tn_slurm_alloc *tn_slurm_take(struct tn_attempt *attempt,
                                     const struct tn_slurm_shape *shape);
/* The same after a restart: the devices that it held in allocation ID. */
struct tn_slurm_alloc *tn_slurm_take_again(struct tn_attempt *attempt, const char *id);
void tn_slurm_give(struct tn_slurm_alloc *al, struct tn_attempt *attempt);
/* A trial has learnt that it is at its end. It is cancelled when its last trial has left. */
void tn_slurm_close_alloc(struct tn_slurm_alloc *al);
/* Start to watch the jobs of the service; harmless when it watches already. TRIALS is static. */
void tn_slurm_watch(struct tn_service *svc, const struct tn_slurm_trials *trials);
void tn_slurm_close(struct tn_service *svc);
/* Are Slurm's commands there, and did its controller answer the last time it was asked? */
int tn_slurm_health(const struct tn_service *svc, struct err *error);
/* scancel ID, with further options or NULL. */
void tn_slurm_cancel(struct tn_service *svc, const char *id, const char *option);
/* Name of the job of a campaign's allocation, or of an attempt with that mark. */
void tn_slurm_name(char name[160], const char *mark);

#endif
