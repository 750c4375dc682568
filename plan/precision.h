/* Private to plan/: what the narrow precisions do to the operands of products. */
#ifndef PLAN_PRECISION_H
#define PLAN_PRECISION_H

#include "plan/plan.h"

struct pl_operands {
    double read;      /* bytes an element of an input as products read it */
    double kept;      /* the same as it waits for its weight's gradient */
    double weight;    /* bytes a weight, in all copies that products read */
    double gathered;  /* bytes a weight as ranks gather it with fp8_param_gather */
    double cast;      /* bytes moved to cast one element of an operand; 0: nothing is cast */
    bool quantized;   /* inputs are kept as they were cast, next to what other operations keep */
    bool cast_once;   /* weights once a step, other operands once for all their products */
    double each_cast; /* kernels in a row that cast an operand of one expert; 0: one for all */
    double attention; /* time of attention with fp8 operands over that in half precision, for keys
                         and values of PL_NARROW_WIDTH together; 0: it has no fp8 operands */
};

enum { PL_NARROW_WIDTH = 256 };

/* Of PRECISION in TRAINER. */
void pl_operands_of(struct pl_operands *ret, const struct pl_trainer *trainer, int precision);

/* One kernel multiplies all experts of a rank, applies their activation and casts its result. */
bool pl_fuses_experts(const struct pl_trainer *trainer, int precision);

/* Elements of a dimension that share a scale: sizes of products are multiples of it; 1: any. */
int pl_scale_block(int precision);

/* The first device of CLUSTER, which may have parts, that does not multiply operands of PRECISION;
 * NULL: all do. Of fp8 it is one whose profile has no peak in fp8; where blocks have scales of
 * their own (mxfp8, nvfp4) one without a peak in fp4, since the first that multiply them, NVIDIA's
 * sm_100 and AMD's gfx950, were the first with that. Transformer Engine and torchao refuse earlier
 * ones. */
const struct pl_device *pl_device_without(const struct pl_cluster *cluster, int precision);

#endif
