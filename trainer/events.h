/*
 * The event file: what the trainer reports to the program that started it
 * (docs/reference/protocol.md).
 *
 * Rank 0 opens it with O_APPEND and writes one JSON object a line, each line in one write(), so a
 * reader sees whole lines but for a torn last one after a crash. Every line begins
 * {"v":1,"event":…,"t":…}, t in Unix seconds. A number that is not finite is written as null. With
 * a console, the events that a person wants to see are also printed there as text.
 *
 * After the first line of each kind nothing is allocated: the line buffer only grows. The first
 * failed write is kept and returned by tr_events_status(); later events are dropped, and training
 * continues. Not thread-safe. A NULL struct tr_events is accepted everywhere and does nothing:
 * ranks other than 0.
 */
#ifndef TRAINER_EVENTS_H
#define TRAINER_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "plan/plan.h"

struct tr_events;

/* PATH may be NULL: no file. CONSOLE may be NULL: no text for people. */
int tr_events_open(struct tr_events **ret, const char *path, FILE *console, struct err *error);
struct tr_events *tr_events_free(struct tr_events *ev);
int tr_events_status(const struct tr_events *ev); /* 0, or errno of the first failed write */
/* The clock of "t", in Unix seconds; tests set their own. */
void tr_events_clock(struct tr_events *ev, double (*now)(void));

AUTO_DEFINE(tr_events)

/* ---- hello: what runs where, before anything else ------------------------ */

struct tr_hello {
    const char *program;
    const char *version;
    const char *build; /* compiler, instruction set, MPI: "12.2.0, avx512, MPICH 4.0.2" */
    const struct pl_model *model; /* its name is sent */
    const struct pl_layout *layout;
    const struct pl_workload *workload;
    int ranks;
    const char *const *host; /* nhosts names */
    int nhosts;
    const char *device;         /* the GPU's name on rank 0, or "cpu" */
    const char *const *binding; /* one for each rank: "0-1" (CPU list), or NULL */
    const char *const *mig;     /* one for each rank: its MIG instance's UUID; NULL: none has one */
};

void tr_event_hello(struct tr_events *ev, const struct tr_hello *hello);

/* ---- memory: planned bytes by class of the worst rank, before the buffers are made ---- */

void tr_event_memory(struct tr_events *ev, const struct pl_memory *planned, double budget_bytes);

/* ---- step ---------------------------------------------------------------- */

enum tr_phase {
    TR_PHASE_FORWARD,
    TR_PHASE_BACKWARD,
    TR_PHASE_TP,
    TR_PHASE_CP,
    TR_PHASE_EP,
    TR_PHASE_PP_WAIT,
    TR_PHASE_DP,
    TR_PHASE_OPTIMIZER,
    TR_PHASE_OTHER,
    TR_PHASES
};

extern const char *const tr_phase_names[TR_PHASES + 1]; /* "forward" …, NULL */

/* What the log says of one layer. */
struct tr_layer_stats {
    int layer; /* from 0; -1: what is of no layer (embedding, positions, final norm, output) */
    double grad_norm;     /* before clipping */
    double params_norm;   /* of the weights that the gradient is of */
    const double *tokens; /* (experts) choices of each in the global batch; NULL: no experts */
    int experts;
    double imbalance; /* the most used expert's over their mean */
};

struct tr_step {
    int n;           /* from 1, over resumes */
    bool warmup;     /* not part of the measurement */
    double ms;       /* wall time of the step: the slowest rank's */
    int64_t tokens;  /* of the whole job in this step */
    int64_t trained; /* tokens since the start of training, over resumes */
    bool skips;      /* spikes are skipped in this run, as this step was: */
    bool skipped;
    double loss;       /* mean cross-entropy a token, and nothing else */
    double aux_loss;   /* load-balancing loss without its coefficient; NaN without experts */
    double z_loss;     /* of the output, without its coefficient; NaN: not said, it is off */
    double moe_z_loss; /* of the routers, the same */
    double mtp_loss;   /* of multi-token prediction, a mean over depths; NaN: the model has none */
    double grad_norm;  /* global, before clipping */
    double lr;
    double phase_ms[TR_PHASES]; /* mean over ranks; they add up to ms but for rounding */
    double rank_ms_min, rank_ms_median, rank_ms_max; /* busy time of a rank: step less its waits */
    int slowest;                                     /* rank number */
    const double *busy_ms; /* (ranks) the busy times behind these three, or NULL */
    int ranks;
    const struct tr_layer_stats *layer; /* (nlayers); NULL: not of this step */
    int nlayers;
};

/* At most so many busy times go into a step event: with more ranks, each number is that of the
 * slowest of as many consecutive ranks as need be. */
enum { TR_BUSY_MAX = 64 };

void tr_event_step(struct tr_events *ev, const struct tr_step *step);

/* ---- layer: norms and loads, behind a step that has them; an event for each ---- */

void tr_event_layers(struct tr_events *ev, const struct tr_step *step);
/* The members of LAYER's object, without braces. */
void tr_layer_stats_add(struct str *out, const struct tr_layer_stats *layer);

/* ---- validation: mean loss over the validation samples after step n ------ */

void tr_event_validation(struct tr_events *ev, int step, double loss, int64_t tokens);

/* ---- summary: the result of a trial or a training run -------------------- */

struct tr_summary {
    int steps, warmup_steps; /* measured and not measured */
    double tokens_per_s;     /* global_batch * seq / median seconds of the measured steps; in a
                                batch ramp the median of the steps' own */
    double tokens_per_s_se;  /* its standard error, same unit */
    double ms_median, ms_p10, ms_p90;
    double ms_ci95;                             /* half-width of the 95 % interval of the median */
    const struct pl_memory *planned, *measured; /* worst ranks; measured is the high-water mark */
    double resident_growth_bytes; /* growth of resident memory after MPI_Init, worst rank; NaN
                                     unknown */
    double joules;       /* of all hosts, in the measured steps; said only if it is above 0 */
    char disturbed[200]; /* what else slowed its devices; empty: nothing known */
    double loss_first, loss_last;
    bool skips; /* spikes are skipped in this run: so many of so many steps, over resumes */
    int skipped, trained;
    /* Choices of the most used expert over the mean of its layer, in the measured steps: of each
     * layer with experts, and their mean. moe_layers 0: a dense model. */
    double imbalance;
    const double *uneven; /* (moe_layers) */
    int moe_layers;
    const char *ended; /* "ci", "max_steps", "steps", "timeout" */
};

void tr_event_summary(struct tr_events *ev, const struct tr_summary *summary);

/* ---- checkpoint: PATH is complete on disk -------------------------------- */

/* MS after it was due; training was held for HELD_MS of them. */
void tr_event_checkpoint(struct tr_events *ev, int step, const char *path, double bytes, double ms,
                         double held_ms);

/* ---- resumed: the run continues from checkpoint PATH, of STEP ------------ */

void tr_event_resumed(struct tr_events *ev, int step, const char *path);

/* ---- warning: worth a look, the run continues (straggler, below expected throughput) ---- */

void tr_event_warning(struct tr_events *ev, const char *what, const char *detail);

/* ---- hang: no rank has made progress for a while (hang.h); the run waits on ---- */

/* One rank that the others wait for. */
struct tr_stuck {
    int rank;
    const char *host, *state; /* "stopped by a signal" */
    const char *phase;        /* of tr_phase_names; NULL: unknown, as what follows */
    const char *operation, *group;
    int step;
    double seconds; /* since it made progress */
};

struct tr_hang_event {
    const char *reason; /* "stopped", "busy", "silent", "mismatch", "lost" */
    const char *detail; /* one line for people */
    double seconds;     /* since any rank made progress */
    int waiting;        /* ranks that wait for others */
    const struct tr_stuck *missing;
    int nmissing;
};

void tr_event_hang(struct tr_events *ev, const struct tr_hang_event *hang);

/* ---- error and stopped: the last line ------------------------------------ */

enum tr_error {
    TR_ERROR_ILLEGAL,
    TR_ERROR_OOM,
    TR_ERROR_NUMERIC,
    TR_ERROR_DATA,
    TR_ERROR_COMM,
    TR_ERROR_IO,
    TR_ERROR_NODE_FAIL, /* a GPU is lost */
    TR_ERRORS
};

extern const char *const tr_error_names[TR_ERRORS + 1]; /* "illegal" …, NULL */

enum {
    TR_EXIT_OK = 0,
    TR_EXIT_USAGE = 2,
    TR_EXIT_ILLEGAL = 65,
    TR_EXIT_OOM = 66,
    TR_EXIT_NUMERIC = 67,
    TR_EXIT_DATA = 68,
    TR_EXIT_COMM = 69,
    TR_EXIT_IO = 70,
    TR_EXIT_NODE_FAIL = 71,
    TR_EXIT_STOPPED = 75,
};

int tr_error_exit(enum tr_error cls);

/* CLS with the rank that saw it (-1: all) and one line of detail. */
void tr_event_error(struct tr_events *ev, enum tr_error cls, int rank, const char *detail);
/* An error of class OOM names the memory class that did not fit and the bytes it asked for. */
void tr_event_oom(struct tr_events *ev, int rank, enum pl_mem_class cls, double asked_bytes,
                  double budget_bytes, const char *detail);

void tr_event_stopped(struct tr_events *ev, int step, const char *reason);

#endif
