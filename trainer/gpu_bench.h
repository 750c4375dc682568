/*
 * How calibration times operations of GPUs (gpu_rates.h says what its times mean). Private to the
 * files of gpu_rates.c.
 */
#ifndef TRAINER_GPU_BENCH_H
#define TRAINER_GPU_BENCH_H

#include "trainer/comm.h"
#include "trainer/gpu_rates.h"
#include "trainer/meter.h"

enum { TR_BENCH_LEAST = 1 << 20, TR_BENCH_HOST = 64 << 20 }; /* bytes */

/* Seconds: a run that takes longer is not made larger. */
static const double TR_BENCH_PATIENCE = 0.05;

struct tr_bench {
    struct tr_comms comms;
    struct tr_clock clock;
    struct tr_meter meter;
    struct kn_pool *pool;
    char *own;     /* (room) the GPU's memory that operations work in */
    char *host;    /* (TR_BENCH_HOST) random numbers in memory that the host reaches, too */
    char *scratch; /* of all-reduces by MPI */
    size_t room, scratch_bytes;
    double unused, nccl; /* free bytes of the GPU's memory at first, and what NCCL took */
};

/* What a run works on. */
struct tr_bench_job {
    size_t bytes;
    char *to;
    const char *from;
    struct kn_gemm gemm;
};

typedef void tr_bench_run(struct tr_bench *bench, const struct tr_bench_job *job);

/* All functions are collective over the bench's ranks. */

/* VALUE by the operation WHICH of all ranks. */
double tr_bench_agree(struct tr_bench *bench, double value, MPI_Op which);

/* Seconds of COUNT runs on the rank that took longest. Ranks begin together. */
double tr_bench_batch(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job,
                      int count);
/* Seconds of one run: the best of several batches, all of which take up to 0.3 s or so; QUICK: up
 * to 0.03 s, enough to compare. */
double tr_bench_time(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job);
double tr_bench_quick(struct tr_bench *bench, tr_bench_run *run, const struct tr_bench_job *job);

/* Set the job's bytes: as many as MOST, but for what a run may take. */
void tr_bench_grow(struct tr_bench *bench, tr_bench_run *run, struct tr_bench_job *job,
                   size_t most);

/* Random numbers into the first BYTES of the GPU's. */
void tr_bench_fill(struct tr_bench *bench, size_t bytes);
void tr_bench_draw(char *to, size_t bytes);

/* Of gpu_products.c; MODEL NULL: only what every profile has. */
void tr_bench_products(struct tr_gpu_rates *ret, struct tr_bench *bench,
                       const struct pl_model *model);
/* Before anything else, and after the products. */
void tr_bench_idle_watts(struct tr_gpu_rates *ret, struct tr_bench *bench);
void tr_bench_busy_watts(struct tr_gpu_rates *ret, struct tr_bench *bench);

#endif
