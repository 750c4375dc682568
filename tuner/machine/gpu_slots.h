/*
 * GPUs of this machine that trials hold, one by one, or the instances of GPUs that MIG divides.
 *
 * They are counted by NVML or named by the administrator. Where neither tells how many there are (a
 * machine of another vendor), they are not told apart: one trial holds them all. On a machine
 * without any, trials that ask for some hold nothing.
 */
#ifndef TUNER_GPU_SLOTS_H
#define TUNER_GPU_SLOTS_H

#include "tuner/machine/gpus.h"
#include "tuner/machine/slots.h"

enum { TN_MAX_GPUS = 64, TN_GPUS_TEXT = TN_MAX_GPUS * TN_GPU_WORD };

enum { TN_FIRST_INSTANCE = 1000 };

struct tn_gpu_slots {
    bool counted;          /* SLOTS has them */
    struct tn_slots slots; /* their numbers are nvidia-smi's, in the order of the PCI bus; of
                              instances TN_FIRST_INSTANCE and up */
    char instance[TN_MAX_GPUS][TN_GPU_WORD]; /* (instances) UUIDs of these */
    int instances;
    bool one, held; /* not counted: there are some, and a trial has them */
    bool hidden;    /* from this process, and so from trials: as if there were none */
};

/* What an attempt holds. */
struct tn_gpus_held {
    bool all; /* of a machine where they are not counted */
    int gpu[TN_MAX_GPUS], count;
};

/*
 * LIST names GPUs ("0-3,6") and MIG instances ("MIG-..."); NULL: what CUDA_VISIBLE_DEVICES of this
 * process names, and without it all whole GPUs that NVML has, or where all are divided by MIG, all
 * of their instances. The log warns of GPUs that get no trials: those that do not answer, and
 * divided ones next to whole ones. A variable that hides all ("", -1) makes this a machine without
 * any. -EINVAL: LIST is no list, or names one that NVML does not have.
 */
int tn_gpu_slots_init(struct tn_gpu_slots *ret, const char *list, struct err *error);

/* COUNT free ones, all where they are not counted, none where there are none; false, none taken:
 * fewer are free. */
bool tn_gpu_slots_take(struct tn_gpus_held *ret, struct tn_gpu_slots *gpus, int count);
/* Take these very ones (adoption). */
void tn_gpu_slots_take_held(struct tn_gpu_slots *gpus, const struct tn_gpus_held *held);
/* HELD is empty afterwards. */
void tn_gpu_slots_give(struct tn_gpu_slots *gpus, struct tn_gpus_held *held);

/* "0-3", "MIG-...,MIG-...", "all", or NULL for none, in BUF (TN_GPUS_TEXT); and back: what is not
 * understood, or is an instance that GPUS does not have by now, is none. */
const char *tn_gpus_held_text(char *buf, size_t size, const struct tn_gpu_slots *gpus,
                              const struct tn_gpus_held *held);
void tn_gpus_held_parse(struct tn_gpus_held *ret, const struct tn_gpu_slots *gpus,
                        const char *text);

#endif
