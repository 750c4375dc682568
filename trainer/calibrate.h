/*
 * Calibration: what this machine can do, measured by the trainer's own kernels and communication,
 * as a cluster profile (plan's JSON) that the cost model, MFU and the search use as `local`.
 *
 *     mpiexec -n 2 partune-train --calibrate FILE
 *     mpiexec -n GPUS partune-train --calibrate FILE --device cuda
 *
 * Rates are those of one core, or of one GPU, while all are busy, as in training. `stamp` records
 * where the file comes from (CPU or GPU, build, date) and what the profile has no field for. Of
 * cores: the rates of a core alone, transfers between two ranks, the cost of giving the core away,
 * and the GEMM blocking that was fastest. Of GPUs: each product, the all-reduce by size, transfers.
 */
#ifndef TRAINER_CALIBRATE_H
#define TRAINER_CALIBRATE_H

#include "base/base.h"
#include "trainer/config.h"

/* Collective over MPI_COMM_WORLD, which needs at least two ranks on this host; about ten seconds.
 * Rank 0 writes the file and prints what it found, unless quiet. Returns an exit code; ERROR says
 * why.
 */
int tr_calibrate_cpu(const struct tr_config *config, struct err *error);

/* The same of GPUs, when the backend of CUDA is current: of a rank for each, all on this host. */
int tr_calibrate_gpu(const struct tr_config *config, struct err *error);

/* Use the GEMM blocking of profiles/local.json in DATA_DIR if it was measured on this CPU by this
 * build. */
void tr_calibrate_use(const char *data_dir);

/* PROFILE, which becomes the function's, at PATH, with the directories on the way there. */
int tr_profile_write(const char *path, json_t *profile, struct err *error);

/* For `stamp`: the processor; and partune, compiler and KERNELS. */
void tr_cpu_name(char buf[128]);
void tr_build_name(char buf[128], const char *kernels);

#endif
