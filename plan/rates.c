/* What the constants of a cluster's profile and of the software give for one rank. */
#include "plan/cost_parts.h"
#include "plan/precision.h"

#include <math.h>

#include "base/base.h"

/* Peaks of the arithmetic units where no product was measured reach this share (A100 0.87, H100
 * 0.80). */
static const double BEST_OF_PEAK = 0.80;
static const double TILE = 128,
                    UNITS = 120;         /* output tile of a product; multiprocessors of a GPU */
static const double CORE_CACHE_GAIN = 4; /* operands of a core's products come from its cache */
static const double PACKING = 3;         /* operands are read, written as panels, read again */
static const double THREAD_LOSS = 0.9;   /* of each doubling of the threads of a rank */

static double matrix_flops(const struct pl_device *device, int precision)
{
    double bf16 =
        device->gemm_tflops > 0 ? device->gemm_tflops : BEST_OF_PEAK * device->tflops_bf16;

    double narrow = precision >= PL_FP8 ? pl_device_peak(device, precision) : 0;

    if (precision == PL_NVFP4 && narrow <= 0) /* its products are done in what is twice as wide */
        narrow = device->tflops_fp8;
    if (narrow > 0 && device->gemm_tflops_fp8 > 0)
        return device->gemm_tflops_fp8 * narrow / device->tflops_fp8 * 1e12;
    if (narrow > 0 && device->tflops_bf16 > 0)
        return bf16 * narrow / device->tflops_bf16 * 1e12;
    if (precision != PL_FP32 && bf16 > 0) /* without units for fp8, it is cast for those of bf16 */
        return bf16 * 1e12;
    if (device->tflops_fp32 > 0)
        return BEST_OF_PEAK * device->tflops_fp32 * 1e12;
    return (bf16 > 0 ? bf16 : 0.1) * 1e12;
}

static void cpu_rates(struct pl_rates *rates, const struct pl_device *device, int threads)
{
    double best =
        device->gemm_tflops > 0 ? device->gemm_tflops : BEST_OF_PEAK * device->tflops_fp32;
    double team = threads * pow(THREAD_LOSS, log2(threads));

    rates->cpu = true;
    rates->flops = best * 1e12 * team;
    rates->half_flops = rates->vector = rates->flops;
    rates->memory = device->memory_gbs * 1e9 * CORE_CACHE_GAIN * team;
    rates->passes = PACKING;
    rates->tail = 0;
    rates->kernel_s = 1e-6;
    rates->collective_s = 1e-6;
}

void pl_rates_of(struct pl_rates *ret, const struct pl_constants *constants,
                 const struct pl_problem *problem, int precision, int threads)
{
    const struct pl_device *device = &problem->cluster->device;
    struct pl_operands operands;
    double sustained = device->sustained > 0 ? device->sustained : 1;

    *ret = (struct pl_rates){.element = precision == PL_FP32 ? 4 : 2,
                             .attention = constants->attention};
    ret->operand = ret->element;
    if (device->cpu) {
        cpu_rates(ret, device, threads);
        return;
    }
    sustained *= constants->matrix;
    ret->flops = sustained * matrix_flops(device, precision);
    ret->half_flops = precision >= PL_FP8 ? sustained * matrix_flops(device, PL_BF16) : ret->flops;
    pl_operands_of(&operands, problem->trainer, precision);
    if (precision >= PL_FP8)
        ret->operand = operands.read;
    if (device->tflops_fp4 > 0) /* of Hopper's kernels the backward pass is slower in fp8 */
        ret->narrow_time = operands.attention;
    ret->cast = operands.cast;
    ret->cast_once = operands.cast_once;
    ret->each_cast = operands.each_cast;
    ret->vector =
        device->tflops_fp32 > 0 ? BEST_OF_PEAK * device->tflops_fp32 * 1e12 : ret->flops / 16;
    ret->memory =
        pl_cluster_reached(problem->cluster, constants->memory) * device->memory_gbs * 1e9;
    ret->passes = 1;
    ret->units = device->tflops_fp8 > 0 ? 3 : 2;
    ret->tail = TILE * TILE * UNITS;
    ret->kernel_s = constants->kernel_us * 1e-6;
    ret->collective_s = constants->collective_us * 1e-6;
}
