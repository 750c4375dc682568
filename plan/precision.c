/*
 * The narrow precisions: products read operands of 8 or 4 bits, all else stays in half precision.
 *
 * precision      scales                                 bytes an element, with its scales
 * fp8            one a tensor: in Transformer Engine    1
 *                delayed, in torchao of its rows
 * fp8-current    one a tensor, of this very tensor      1
 * fp8-blockwise  1 x 128, of weights 128 x 128          1 + 4/128, of weights 1
 * mxfp8          1 x 32, one byte each                  1 + 1/32
 * nvfp4          1 x 16, one byte each, one a tensor    1/2 + 1/16
 *
 * Transformer Engine casts an input once, in the two orders that its products need, keeps the one
 * for the weight's gradient instead of the input, and keeps weights in both orders for all
 * micro-batches of a step: next to the bf16 weight, or with fp8_param_gather in its place. torchao
 * keeps inputs and weights as they were, and casts both for each product.
 *
 * Transformer Engine casts the operands of experts one by one, unless scales are delayed (one
 * kernel for all): with a scale for the tensor two kernels each, for its largest element and for
 * the cast, else one, on four streams in turn (split_quantize, nvte_multi_tensor_quantize). Its
 * kernels for a whole feed-forward of experts (ForwardGroupedMLP, BackwardGroupedMLP) cast all with
 * one.
 *
 * Attention with fp8 operands (fp8_dpa) takes a time that hardly depends on the width of a head,
 * since its products are no longer what it waits for: cuDNN's own table (NVIDIA/cudnn-frontend,
 * benchmark/sdpa_benchmark_training/results of 24 April 2026: GB200 and GB300, causal, 4,096 to
 * 32,768 tokens, heads of 128 + 128 and 192 + 128) has 0.91 (0.83 to 1.03) of the time in bf16 with
 * scales of blocks and 0.75 (0.66 to 0.93) with one a tensor, times 256 over the width of key and
 * value. With mxfp8 scales are of blocks, with nvfp4 one a tensor.
 */
#include "plan/precision.h"

#include <assert.h>

enum { HALF = 2, CAST_STREAMS = 4 };

static const double BLOCK_ATTENTION = 0.91, TENSOR_ATTENTION = 0.75;

/* Bytes of an element as products read it; scales of a weight's blocks are fewer. */
static double narrow_bytes(int precision, bool weight)
{
    switch (precision) {
    case PL_FP8_BLOCKWISE:
        return weight ? 1 : 1 + 4 / 128.0;
    case PL_MXFP8:
        return 1 + 1 / 32.0;
    case PL_NVFP4:
        return 0.5 + 1 / 16.0;
    default:
        return 1;
    }
}

/* Times that the operand is read before it is written in all its orders: once more for the largest
 * element of the whole tensor, unless that of steps before stands for it; in Transformer Engine
 * each order of nvfp4 by a kernel of its own, since one of them is rotated first. */
static int reads(int precision, bool delayed, bool engine)
{
    bool per_tensor = precision == PL_FP8 || precision == PL_FP8_CURRENT || precision == PL_NVFP4;

    return (per_tensor && !delayed ? 2 : 1) + (engine && precision == PL_NVFP4);
}

bool pl_fuses_experts(const struct pl_trainer *trainer, int precision)
{
    return trainer->fused_experts && precision == PL_MXFP8;
}

void pl_operands_of(struct pl_operands *ret, const struct pl_trainer *trainer, int precision)
{
    bool engine = trainer->fp8_delayed || trainer->fp8_current;
    bool delayed = precision == PL_FP8 && trainer->fp8_delayed && !trainer->fp8_current;
    double input = narrow_bytes(precision, false), weight = narrow_bytes(precision, true);

    assert(precision >= PL_FP32 && precision < PL_PRECISIONS);
    *ret = (struct pl_operands){.read = HALF, .kept = HALF, .weight = HALF, .gathered = HALF};
    if (precision < PL_FP8)
        return;
    ret->read = input;
    if (!engine) {
        ret->cast = reads(precision, false, false) * HALF + input;
        return;
    }
    ret->kept = input;
    ret->weight = 2 * weight;
    ret->gathered = precision == PL_MXFP8 ? HALF : weight; /* both its orders come from bf16 */
    ret->cast = reads(precision, delayed, true) * HALF + 2 * input;
    ret->quantized = ret->cast_once = true;
    if (trainer->fp8_attention)
        ret->attention = precision == PL_MXFP8 ? BLOCK_ATTENTION : TENSOR_ATTENTION;
    if (pl_fuses_experts(trainer, precision))
        ret->each_cast = 0;
    else if (precision == PL_FP8_CURRENT || (precision == PL_FP8 && trainer->fp8_current))
        ret->each_cast = 2;
    else if (precision != PL_FP8)
        ret->each_cast = 1.0 / CAST_STREAMS;
}

int pl_scale_block(int precision)
{
    return precision == PL_MXFP8 ? 32 : precision == PL_NVFP4 ? 16 : 1;
}

const struct pl_device *pl_device_without(const struct pl_cluster *cluster, int precision)
{
    const struct pl_cluster *part = cluster->parts ? cluster->parts->at : cluster;

    if (precision < PL_FP8)
        return NULL;
    for (int i = 0; i < (cluster->parts ? PL_PARTS : 1); i++) {
        const struct pl_device *device = &part[i].device;

        if (!((pl_scale_block(precision) > 1 ? device->tflops_fp4 : device->tflops_fp8) > 0))
            return device;
    }
    return NULL;
}

double pl_device_peak(const struct pl_device *device, int precision)
{
    double peak = precision == PL_NVFP4  ? device->tflops_fp4
                  : precision >= PL_FP8  ? device->tflops_fp8
                  : precision == PL_BF16 ? device->tflops_bf16
                                         : device->tflops_fp32;

    return peak > 0 ? peak : 0;
}
