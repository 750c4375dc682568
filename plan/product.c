/* Seconds of the kernels that operators are made of: products, and what only moves bytes. */
#include "plan/operator.h"

#include <math.h>

static const double HALF_WAVE = 0.5;

/* HALF: in half precision, whatever the layout's. ODD: the matrix units do not take it, because
 * rows of its operands are no multiple of PL_ALIGNED elements long. */
static double product_s(const struct pl_rates *rates, bool half, bool odd, double m, double n,
                        double k)
{
    double flops = half ? rates->half_flops : rates->flops,
           operand = half ? rates->element : rates->operand;

    return 2 * k * (m * n + HALF_WAVE * rates->tail) / (odd ? rates->vector : flops) +
           (operand * rates->passes * (m * k + k * n) + rates->element * m * n) / rates->memory +
           rates->kernel_s;
}

/* Weights are stored with N and K contiguous in one product or another of a pass; the number of
 * tokens is a stride of none. */
static bool is_odd(const struct pl_rates *rates, double n, double k)
{
    return !rates->cpu && (fmod(n, PL_ALIGNED) != 0 || fmod(k, PL_ALIGNED) != 0);
}

/* The three products of Y(m,n) = X(m,k) W(k,n): forward, input's gradient, weight's gradient. */
static void add_three(struct pl_layer_time *layer, const struct pl_rates *rates, bool half,
                      double m, double n, double k)
{
    bool odd = is_odd(rates, n, k);

    layer->fwd += product_s(rates, half, odd, m, n, k);
    layer->bwd_input += product_s(rates, half, odd, m, k, n);
    layer->bwd_weight += product_s(rates, half, odd, k, n, m);
}

void pl_add_half_product(struct pl_layer_time *layer, const struct pl_rates *rates, double m,
                         double n, double k)
{
    add_three(layer, rates, true, m, n, k);
}

/* Under fp8 operands are cast for each product, unless weights are cast after the optimizer's step:
 * then input and output's gradient are cast once, each in both orders. */
void pl_add_product(struct pl_layer_time *layer, const struct pl_rates *rates, double m, double n,
                    double k)
{
    add_three(layer, rates, false, m, n, k);
    if (rates->cast_once) {
        layer->fwd += rates->cast * m * k / rates->memory;
        layer->bwd_input += rates->cast * m * n / rates->memory;
        return;
    }
    layer->fwd += rates->cast * (m * k + k * n) / rates->memory;
    layer->bwd_input += rates->cast * (m * n + n * k) / rates->memory;
    layer->bwd_weight += rates->cast * (k * m + m * n) / rates->memory;
}

double pl_streamed_s(const struct pl_rates *rates, double bytes, double kernels)
{
    return bytes / rates->memory + kernels * rates->kernel_s;
}

double pl_tokens_of(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    return (double)op->problem.workload->seq / layout->cp * layout->micro_batch;
}
