/* What NVIDIA's management library (NVML) and NCCL say of this machine. Both are opened when asked:
 * nothing links them, and a machine without them has no GPUs to speak of. */
#ifndef TUNER_GPUS_H
#define TUNER_GPUS_H

#include "base/base.h"

enum { TN_GPU_UNKNOWN = -1, TN_GPU_OFF, TN_GPU_ON };

enum { TN_GPU_WORD = 96 };

/* A part of a GPU that is divided (MIG), with compute units and memory of its own. */
struct tn_gpu_instance {
    char uuid[TN_GPU_WORD]; /* "MIG-...", as CUDA_VISIBLE_DEVICES takes it */
    char name[96];
    uint64_t total, free; /* bytes of its memory */
};

struct tn_gpu {
    char name[96];
    struct err error;     /* why it does not answer; empty: it does, and what follows is set */
    uint64_t total, free; /* bytes of its memory */
    int mig, ecc;         /* TN_GPU_UNKNOWN: this kind of GPU has none */
    uint64_t uncorrected; /* memory errors that ECC could not correct since the driver was loaded */
    struct tn_gpu_instance *instance; /* (instances) with mig TN_GPU_ON */
    int instances;
};

struct tn_gpus {
    char driver[80]; /* version */
    int cuda;        /* the CUDA that the driver supports: 1000 major + 10 minor */
    struct tn_gpu *gpu;
    int count;
};

/* -ENOENT without the library libnvidia-ml.so.1 (ERROR says so), -ENOSYS if it lacks a function,
 * -EIO with NVML's text where it or the driver refuses. RET is freed by tn_gpus_done. */
int tn_gpus_read(struct tn_gpus *ret, struct err *error);
void tn_gpus_done(struct tn_gpus *gpus);

/* Of libnccl.so.2, as NCCL counts: 10000 major + 100 minor + patch; 0 without the library. */
int tn_nccl_version(void);

#endif
