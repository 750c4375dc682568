/*
 * What a run is to do: one struct from a JSON file (--config) and the command line over it.
 *
 * The file has the keys model, cluster, workload, layout, trial, train, checkpoint, expected and
 * provenance (docs/reference/trainer.md); it is what the daemon passes and what `partune export
 * --to partune` writes. Everything is parsed, bounded and checked by the legality engine here,
 * before MPI starts work: the number of ranks comes from the launcher's environment
 * (struct tr_launch).
 *
 * Strings in struct tr_config live as long as it does; NULL: not given.
 */
#ifndef TRAINER_CONFIG_H
#define TRAINER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "plan/plan.h"
#include "trainer/lr.h"
#include "trainer/param_groups.h"
#include "trainer/ramp.h"
#include "trainer/sources.h"

enum tr_mode {
    TR_MODE_TRIAL,     /* "trial" or --trial: measure until the interval is narrow enough */
    TR_MODE_TRAIN,     /* train.steps steps with checkpoints */
    TR_MODE_CALIBRATE, /* --calibrate OUT */
    TR_MODE_HELP,      /* --help, --manual or --version was printed: exit 0 */
};

struct tr_train {
    int steps;          /* 100; the step number to reach, also after a resume */
    int lr_decay_steps; /* the horizon; 0: the checkpoint's, or `steps` of a fresh run */
    double lr, min_lr;  /* 3e-4, 3e-5 */
    /* Words of lr.h; the style NULL: the checkpoint's, or cosine; of wsd NULL: exponential. */
    const char *lr_decay_style, *lr_wsd_decay_style;
    int lr_wsd_decay_steps;             /* of wsd, which needs it */
    int warmup_steps;                   /* 10 */
    double weight_decay;                /* 0.1; matrices only */
    double beta1, beta2, eps;           /* 0.9, 0.95, 1e-8 */
    double sgd_momentum, muon_momentum; /* 0.9, 0.95 */
    double clip;                        /* 1.0; 0: none */
    double z_loss_coef;                 /* 0; of the output's (log Z)^2 */
    int seed;                           /* 1; initial weights and order of samples */
    int validate_every;                 /* steps; 0: never */
    int validate_samples;               /* 64 sequences */
    int layer_metrics_every;            /* steps; 0: never (layer_log.h) */
    const char *rampup_batch_size;      /* "start,increment,samples"; NULL: none */
    const char *param_groups;           /* a JSON array; NULL: none */
    double skip_step_sigma;             /* 0: no step is skipped (skip.h) */
    int skip_step_interval;             /* 128 steps */
};

struct tr_checkpointing {
    const char *dir;  /* NULL: none */
    int every;        /* steps; 0: at the end and on a stop only */
    int keep;         /* newest ones kept; 0: all */
    bool async;       /* written while training continues (ckpt_async.h) */
    bool resume;      /* from the newest checkpoint in dir; a fresh start where there is none */
    const char *load; /* --resume-from FOLDER: this very checkpoint, and it must exist */
};

/* What the campaign measured, for a warning when the run is slower; zeros where not given. */
struct tr_interval {
    double tokens_per_s, lo, hi;
};

struct tr_config {
    enum tr_mode mode;
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
    struct pl_layout layout;      /* canonical and legal */
    struct pl_trial_limits trial; /* timeout_s 0: none */
    struct tr_train train;
    struct tr_ramp ramp; /* of train.rampup_batch_size; start 0: none, as in every trial */
    struct tr_param_groups groups; /* of train.param_groups */
    struct tr_checkpointing checkpoint;
    struct tr_interval expected;
    uint64_t device_memory;    /* budget of one rank in bytes; never 0 */
    uint64_t host_memory;      /* a rank's share of its host; 0: the budget was given */
    const char *device;        /* NULL: the CPU; backend.h */
    const char *data;          /* as --data, run.data or workload.data has it */
    struct tr_sources sources; /* the data sets; workload.data is their name */
    const char *data_dir;      /* holds datasets/ and profiles/ */
    const char *events;        /* event file */
    const char *init;          /* Hugging Face folder to start from */
    const char *save_hf;       /* Hugging Face folder to write at the end */
    const char *calibrate;     /* profile to write */
    const char *timeline;      /* Chrome trace of one measured step */
    const char *metrics;       /* one JSON object a step, for people's own tools */
    const char *prometheus;    /* node exporter's textfile, replaced at most once a second */
    double hang_report_s;      /* 10: report a hang after so many seconds; 0: never (hang.h) */
    double distributed_timeout_minutes; /* 0: a hang ends no job */
    bool quiet;                         /* no text on stdout */
    bool log_all_ranks;
    bool cluster_given;         /* the file or the command line named a cluster */
    struct tr_options *options; /* owner of the strings */
};

/* What the layout is judged for. Borrows from CONFIG; the trainer is the bundled one. */
struct pl_problem tr_config_problem(const struct tr_config *config);
/* Of the budget what is for a rank's buffers: all but what the driver holds by the plan. */
uint64_t tr_config_buffers(const struct tr_config *config);

/* Who this process is, before MPI is started (ranks_from_env). */
struct tr_launch {
    int rank, size;
    const char *by;  /* as in struct ranks */
    const char *mpi; /* name of the MPI library; NULL: none is linked */
};

/* Read argv (and the file it names). On failure RET_EXIT is TR_EXIT_USAGE for a command line or a
 * file that cannot be read, TR_EXIT_ILLEGAL for a layout that breaks a rule (ERROR then names every
 * broken one), TR_EXIT_DATA or TR_EXIT_IO. RET_CONFIG is set on success only; on a failure
 * RET_EVENTS, unless NULL, gets the events path as far as it was understood (caller frees), so that
 * the reason can be sent there.
 * --help, --manual and --version print to stdout on rank 0 and give TR_MODE_HELP. */
int tr_config_load(struct tr_config **ret_config, int *ret_exit, char **ret_events, int argc,
                   char **argv, const struct tr_launch *launch, struct err *error);
struct tr_config *tr_config_free(struct tr_config *config);

AUTO_DEFINE(tr_config)

/* The settings of the learning rate: -EINVAL names the key. TRAINS: a training, whose steps are the
 * horizon where no other is given. */
int tr_train_check(const struct tr_train *train, bool trains, struct err *error);

/* What settings of CONFIG's train are made of that depend on its model and workload, which are
 * there: its ramp and its groups. -EINVAL names the key. */
int tr_train_take(struct tr_config *config, struct err *error);
/* The settings of checkpoints: -EINVAL names the key. */
int tr_checkpointing_check(const struct tr_checkpointing *checkpoint, struct err *error);

/* A run with them keeps room for a copy: some checkpoint is written while it trains. */
bool tr_checkpointing_copies(const struct tr_checkpointing *checkpoint);

/* The schedule of a fresh run, of checked settings. */
struct tr_lr tr_train_lr(const struct tr_train *train);

/* The whole configuration as a file that --config reads back to the same one. New reference. */
json_t *tr_config_json(const struct tr_config *config);

#endif
