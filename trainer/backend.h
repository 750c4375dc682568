/* Which device a rank computes on: --device. */
#ifndef TRAINER_BACKEND_H
#define TRAINER_BACKEND_H

#include "base/base.h"

/*
 * Make the backend of DEVICE current: NULL or "cpu"; "cuda", the GPU of the rank's number on its
 * host, which the launcher's environment says (MPI_LOCALRANKID, SLURM_LOCALID; else 0); "cuda:N",
 * GPU N. The CUDA backend is the library that PARTUNE_CUDA names, or the installed one. -EINVAL for
 * another word; else kn_plugin_load's errors.
 */
int tr_backend_use(const char *device, struct err *error);

#endif
