/* Private to plan/: what the narrow precisions do to the operands of products. */
#ifndef PLAN_PRECISION_H
#define PLAN_PRECISION_H

#include "plan/plan.h"

struct pl_operands {
    double kept;     /* bytes an element of an input that waits for its weight's gradient */
    double weight;   /* bytes a weight, in all copies that products read */
    double gathered; /* bytes a weight as ranks gather it with fp8_param_gather */
    double cast;     /* bytes moved to cast one element of an operand; 0: nothing is cast */
    bool quantized;  /* inputs are kept as they were cast, next to what other operations keep */
    bool cast_once;  /* weights once a step, other operands once for all their products */
    bool current;    /* per-tensor scales of this very operand, for experts one by one */
};

/* Of PRECISION in TRAINER. */
void pl_operands_of(struct pl_operands *ret, const struct pl_trainer *trainer, int precision);

/* Elements of a dimension that share a scale: sizes of products are multiples of it; 1: any. */
int pl_scale_block(int precision);

/* Whether DEVICE multiplies blocks with their scales, where PRECISION (mxfp8, nvfp4) has such; true
 * of all others. The first that do, NVIDIA's sm_100 and AMD's gfx950, were the first with a peak in
 * fp4; Transformer Engine and torchao refuse earlier ones. */
bool pl_device_scales(const struct pl_device *device, int precision);

#endif
