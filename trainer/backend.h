/* Which device a rank computes on: --device. */
#ifndef TRAINER_BACKEND_H
#define TRAINER_BACKEND_H

#include "base/base.h"
#include "kernels/kernels.h"

/*
 * Make the backend of DEVICE current: NULL or "cpu"; "cuda", the GPU of the rank's number on its
 * host, which the launcher's environment says (MPI_LOCALRANKID, SLURM_LOCALID; else 0); "cuda:N",
 * GPU N; "cuda:all", all GPUs of the host in turn, so that ranks share them; "auto", as "cuda", but
 * no error: tr_backend_agree follows. The CUDA backend is the library that PARTUNE_CUDA names, or
 * the installed one. -EINVAL for another word; else kn_plugin_load's errors. A GPU that is lost
 * later ends the job by tr_fail.
 *
 * Where CUDA_VISIBLE_DEVICES lists MIG instances, N is the N-th of them: CUDA shows a process one
 * alone, so the variable becomes that one's UUID before the driver is asked.
 */
int tr_backend_use(const char *device, struct err *error);

/* Where "auto" found no GPU for one of the RANKS, the CPU becomes the backend of all; rank 0 says
 * why on stderr. MPI is up; collective over MPI_COMM_WORLD. Other words: nothing happens. */
void tr_backend_agree(const char *device, int ranks, int rank);

/* What computes: "cpu", or the name of this rank's GPU, without characters that JSON escapes. */
const char *tr_backend_device(void);
/* A rank's share of what is free of that GPU's memory, in bytes; 0: unknown, or no GPU. */
uint64_t tr_backend_memory(void);
/* Bytes of its memory that were not free when this rank had made its context, but no tensor: what
 * that takes, and what other programs had; 0: unknown, or ranks share it. */
uint64_t tr_backend_context(void);
/* The MIG instance that this rank computes on, "MIG-..." as CUDA_VISIBLE_DEVICES named it; NULL:
 * none. */
const char *tr_backend_instance(void);
/* The PCI bus address of that GPU; empty: none. */
const char *tr_backend_bus(void);
/* All that the driver says of it; all but the name, "cpu", is 0 without one. */
const struct kn_gpu *tr_backend_gpu(void);

#endif
