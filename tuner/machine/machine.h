/*
 * What this machine, or the hosts that it was told of, has for trials.
 */
#ifndef TUNER_MACHINE_H
#define TUNER_MACHINE_H

#include "tuner/machine/command.h"
#include "tuner/machine/gpu_slots.h"
#include "tuner/machine/mpi.h"
#include "tuner/machine/slots.h"

struct tn_hosts;

struct tn_machine {
    struct tn_mpi mpi;           /* mpiexec and the bundled trainer */
    char *supervisor;            /* partune-run, absolute, or NULL where not found */
    struct tn_hosts *hosts;      /* NULL: this machine only */
    struct tn_slots slots;       /* cores of this machine, or of all hosts */
    struct tn_gpu_slots gpus;    /* of this machine; with hosts they are not counted */
    struct tn_commands commands; /* that run now */
    int processes;               /* uv_process_t that are open */
};

#endif
