/*
 * The state of a run, for run*.c only.
 */
#ifndef TRAINER_RUN_STATE_H
#define TRAINER_RUN_STATE_H

#include "trainer/ckpt_async.h"
#include "trainer/config.h"
#include "trainer/meter.h"
#include "trainer/sharing.h"
#include "trainer/events.h"
#include "trainer/hang.h"
#include "trainer/layer_log.h"
#include "trainer/measure.h"
#include "trainer/optim.h"
#include "trainer/prefetch.h"
#include "trainer/rank.h"
#include "trainer/step.h"
#include "trainer/tokens.h"
#include "trainer/watch.h"

/* Of a rank in a step: of the step, busy, by phase; and then its enum tr_writer. */
enum { TIMES = 2 + TR_PHASES + 1 };

struct run {
    const struct tr_config *c;
    struct tr_events *events;
    struct tr_rank r;
    struct tr_watch *watch;      /* rank 0 */
    struct tr_layer_log *layers; /* NULL: none */
    struct tr_hang *hang;
    struct tr_tokens *tokens;
    struct tr_prefetch *prefetch; /* of the next step's samples; NULL: none */
    uint64_t *ahead;              /* (micro-batches of a rank, micro_batch): their indices */
    uint64_t samples; /* consumed: the data position, which survives a resume under another batch */
    struct tr_optim optim;
    struct tr_skip skip;
    struct tr_part *part;
    size_t nparts;
    struct tr_team team;
    struct tr_lock *lock;        /* rank 0: of the folder of checkpoints */
    struct tr_ckpt_async *async; /* NULL: checkpoints hold training until they are written */
    enum tr_writer writer;       /* the largest of all ranks at the end of the last step */
    bool said_slow;              /* that a checkpoint waited for the one before it */
    struct tr_lock *claim_hf;    /* rank 0: of --save-hf's folder */
    struct tr_measure measure;
    struct tr_meter meter;     /* of a trial's measured steps */
    struct tr_measure full_ms; /* in a batch ramp: the same times, scaled to the full batch */
    int step;                  /* done */
    int measured_from;
    uint64_t start_ns, begun_ns; /* of the run, of the step */
    double *times;               /* (world, TIMES) */
    double *busy, *sorted;       /* (world) of the last step: by rank, and for the median */
    struct tr_clock noted;       /* what the timeline shows, until it is written */
    uint64_t noted_ns;
    int noted_step;
    double loss_first, loss_last;
    double resident0, longest_s; /* resident memory at the start; the longest step */
    const char *ended;           /* why it stopped, NULL while it runs */
};

/* ---- run_samples.c -------------------------------------------------------- */

/* Open the data, which is alike on all ranks, and what reads ahead. */
void tr_run_tokens(struct run *run);

/* The global batch of the samples from FIRST on; those from END on are ignored. */
void tr_run_read(struct run *run, enum tr_split split, uint64_t first, uint64_t end);

/* The next step's samples of this rank are read while this one computes: those of a batch as large
 * as this one's, so that where a ramp grows only a part of them. */
void tr_run_prefetch(struct run *run);

/* Reported before training: what a validation will lack. */
void tr_run_check_validation(struct run *run);

/* True if somebody asked to stop: then there is no result. */
bool tr_run_validate(struct run *run);

/* ---- run_report.c --------------------------------------------------------- */

/* Resident memory of this process. */
double tr_run_resident_bytes(void);

/* Planned memory of the rank that needs most. */
void tr_run_planned(struct pl_memory *ret, const struct run *run);

/* Norms of each layer belong to the step that is done. */
bool tr_run_logs_layers(const struct run *run);

/* The step that is done: collective, as ranks exchange their times. STEP_NS is this rank's. */
void tr_run_report(struct run *run, const struct tr_result *result, bool skipped,
                   const struct tr_clock *done, uint64_t step_ns);

/* The summary: collective. */
void tr_run_summarize(struct run *run);

/* ---- run_files.c ---------------------------------------------------------- */

/* Check before training that its results can be written at the end. */
void tr_run_room(struct run *run);

/* Weights from a checkpoint, a folder or the seed, and with a checkpoint its step and position. */
void tr_run_weights(struct run *run);

/* The next checkpoints are written while the run trains, if that was asked for: before its first
 * step. */
void tr_run_async(struct run *run);

/* After a step: write a checkpoint if one is due, or what is to be done for others. True if that
 * took time from training. */
bool tr_run_checkpoint(struct run *run, bool last);

/* Write a checkpoint of the step that is done, behind those that are being written. */
void tr_run_save(struct run *run);

/* --save-hf, if it was asked for. */
void tr_run_save_hf(struct run *run);

#endif
