/*
 * The gradient of a vector (norms, biases) for a kernel that adds to it in fp32, whatever the type
 * of the gradients: what a micro-batch adds is rounded once.
 */
#ifndef TRAINER_GRAD_SUM_H
#define TRAINER_GRAD_SUM_H

#include <stdint.h>

struct tr_rank;

struct tr_grad_sum {
    float *sum; /* (count): GRAD itself, or where gradients are bf16 a copy of it until the end */
    void *grad; /* where that goes; NULL: nowhere */
    uint64_t count;
};

/* Of GRAD (COUNT), or NULL for none. A copy has elements [AT, AT + COUNT) of work.grad_sum: those
 * that are open at the same time have places of their own. */
void tr_grad_sum_begin(struct tr_grad_sum *ret, struct tr_rank *rank, void *grad, uint64_t count,
                       uint64_t at);
void tr_grad_sum_end(struct tr_rank *rank, const struct tr_grad_sum *sum);

#endif
