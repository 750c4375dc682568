/*
 * The pipeline: forward and backward passes of all micro-batches of one step, in the order of the
 * schedule (pl_schedule_steps). Tokens must be in work.ids and work.targets. Gradients are added
 * to.
 */
#ifndef TRAINER_PIPE_H
#define TRAINER_PIPE_H

#include "trainer/rank.h"

void tr_pipe_run(struct tr_rank *rank);

/* Forward passes only, micro-batch after micro-batch: adds to loss_sum and aux_sum. */
void tr_pipe_forward(struct tr_rank *rank);

#endif
