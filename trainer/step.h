/*
 * One training step of one rank, and the single forward and backward pass that tests compare with
 * reference values.
 */
#ifndef TRAINER_STEP_H
#define TRAINER_STEP_H

#include "trainer/optim.h"
#include "trainer/rank.h"

struct tr_result {
    double loss; /* mean cross-entropy over the tokens of the global batch that count */
    double
        tokens; /* how many these are: all, but for ignored samples and what eod_mask_loss leaves */
    double aux; /* load-balancing loss (enum pl_aux_loss), without its coefficient; 0 if dense */
    double z;   /* z-loss: mean (log Z)^2 over the tokens that count, without its coefficient */
    double
        moe_z;  /* routers' z-loss: mean (log Z)^2 over all tokens, the layers added up, without its
                     coefficient. Both are 0 where the coefficient is */
    double mtp; /* loss of multi-token prediction, a mean over depths, without its coefficient; 0
                 * without gradients, where it is not computed, nor what its routers add to aux */
    double norm; /* of the whole gradient, before clipping; 0 in a forward pass */
    double flag; /* sum over ranks of the FLAG given to tr_step_grads */
};

/* Store sample K of micro-batch MB (tr_sample_index), seq + 1 tokens, as inputs and targets, and
 * where its documents begin. A document that reaches into the sample begins with it. */
void tr_sample_put(struct tr_rank *rank, int mb, int k, const int32_t *sample);

/* That sample only fills its batch: it adds nothing to the loss. */
void tr_sample_ignore(struct tr_rank *rank, int mb, int k);

/* Gradients of the global batch in work.ids and work.targets: zeroed, added over micro-batches,
 * summed over replicas. Results are the same on every rank. FLAG is summed on the way (1: this rank
 * was asked to stop, else 0). */
void tr_step_grads(struct tr_result *ret, struct tr_rank *rank, double flag);

/* Losses only. */
void tr_step_forward(struct tr_result *ret, struct tr_rank *rank);

/*
 * For tests, on one rank (world 1): after tr_step_grads() or tr_step_forward() with the samples
 * set, logits of micro-batch MB are computed again into RET_LOGITS (rows, vocab), without changing
 * gradients.
 */
void tr_step_logits(float *ret_logits, struct tr_rank *rank, int mb);

#endif
