/*
 * Memory of a rank: every buffer of the plan's list (pl_buffers_build) as a view of one of two
 * allocations, of which the host reaches one (kn_alloc) and, on a GPU, does not reach the other
 * (kn_alloc_own).
 *
 * The budget is checked by walking the list before anything is mapped, so a layout that does not
 * fit fails by name and class, never by the kernel's OOM killer in the middle of a step.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "plan/plan.h"

struct tr_device {
    struct pl_buffers list;
    void **view; /* (list.n); NULL for PL_BUF_KERNEL */
    struct tr_memory {
        char *base;
        size_t bytes;
    } own, shared;         /* of the device alone, and of the host, too */
    struct pl_memory used; /* handed out, by class */
    double nccl_bytes;     /* that NCCL took of the GPU's; 0 where nobody says what is free */
};

/* 0, or -ENOMEM with the first buffer of the list that exceeds BUDGET. */
int tr_device_fits(enum pl_mem_class *ret_class, double *ret_asked, const struct pl_buffers *list,
                   uint64_t budget, struct err *error);

/* -ENOMEM and *RET_CLASS, *RET_ASKED (bytes with this buffer) where BUDGET bytes do not hold the
 * list, or the system has no such mapping. Contents are zero. */
int tr_device_init(enum pl_mem_class *ret_class, double *ret_asked, struct tr_device *device,
                   const struct pl_model *model, const struct pl_layout *layout,
                   const struct pl_workload *workload, int rank, uint64_t budget,
                   struct err *error);
void tr_device_done(struct tr_device *device);

/* The view, or NULL if the layout has no such buffer. For start-up: it searches. */
void *tr_device_get(const struct tr_device *device, enum pl_buf id, int chunk, int slot);

/* Bytes of its first view; 0: absent. */
size_t tr_device_bytes(const struct tr_device *device, enum pl_buf id);

#endif
