/*
 * Batch ramp: the global batch grows with the samples that were consumed, as Megatron-LM's
 * --rampup-batch-size START INCREMENT SAMPLES (megatron/core/num_microbatches_calculator.py).
 *
 * With n = (global_batch - start) / increment and c samples consumed, a step has
 * start + increment floor(c / (samples / n)) sequences while c <= samples, then global_batch.
 */
#ifndef TRAINER_RAMP_H
#define TRAINER_RAMP_H

#include <stdint.h>

#include "base/err.h"
#include "plan/plan.h"

enum { TR_RAMP_NUMBERS = 3 }; /* start, increment, samples */

struct tr_ramp {
    int64_t start, increment, samples;
    int64_t global_batch; /* what it ends with */
};

/* TEXT, "START,INCREMENT,SAMPLES", as a ramp up to GLOBAL_BATCH. -EINVAL names the number. */
int tr_ramp_parse(struct tr_ramp *ret, const char *text, int global_batch, struct err *error);

/* Every size can be divided as the global batch is: by micro_batch x dp, and with vp > 1 into
 * micro-batches in multiples of pp. -EINVAL names the rule and the first size that breaks it. */
int tr_ramp_check(const struct tr_ramp *ramp, const struct pl_layout *layout, struct err *error);

/* Sequences of the step that begins after SAMPLES are consumed. */
int tr_ramp_batch(const struct tr_ramp *ramp, uint64_t samples);

#endif
