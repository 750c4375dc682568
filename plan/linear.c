/*
 * Linear attention by a gated delta rule, counted (Yang, Kautz, Hatamizadeh, "Gated Delta Networks:
 * Improving Mamba2 with Delta Rule", 2024).
 *
 * A product makes q, k, v and the output's gate z, and for each value head the strength b of a
 * write and the step a of the decay; a causal convolution mixes neighbors of q, k and v; the rule
 * updates a state of key_head_dim x value_head_dim in each value head; its output is normalized,
 * multiplied by silu(z) and projected. Facts: transformers' modeling_qwen3_next.py and Megatron-LM
 * of August 2026 (d98e8a64), megatron/core/ssm/gated_delta_net/.
 */
#include "plan/shape.h"

#include "base/base.h"

/* Tokens of a chunk, in which the rule is matrix products (flash-linear-attention). */
static const double CHUNK = 64;

static double all_keys(const struct pl_model *model)
{
    return (double)model->linear.num_key_heads * model->linear.key_head_dim;
}

double pl_linear_values(const struct pl_model *model)
{
    return (double)model->linear.num_value_heads * model->linear.value_head_dim;
}

double pl_linear_in(const struct pl_model *model)
{
    return 2 * all_keys(model) + 2 * pl_linear_values(model) + 2.0 * model->linear.num_value_heads;
}

static double convolved(const struct pl_model *model)
{
    return 2 * all_keys(model) + pl_linear_values(model);
}

/* The convolution has no bias; a decay and a step's bias of each head; the norm's weights are those
 * of one head. */
double pl_linear_params(const struct pl_model *model)
{
    const struct pl_linear *linear = &model->linear;
    double h = model->hidden;

    return h * pl_linear_in(model) + convolved(model) * linear->conv_kernel_dim +
           2.0 * linear->num_value_heads + linear->value_head_dim + pl_linear_values(model) * h;
}

/* Four products with the state: what a key recalls, its correction, the write, and what a query
 * reads (num_floating_point_operations() in megatron/training/training.py). */
double pl_linear_rule_flops(const struct pl_model *model)
{
    const struct pl_linear *linear = &model->linear;

    return 2.0 * linear->conv_kernel_dim * convolved(model) +
           2.0 * 4 * linear->num_value_heads * linear->key_head_dim * linear->value_head_dim;
}

/* In chunks of C a token of a head of key width K and value width V takes part in products with C
 * others, K K^T, Q K^T and the rows of both that meet the chunk's inverse (3 C K, 2 C V), and in
 * three with the state (section 3.3 of the paper). */
double pl_linear_chunk_flops(const struct pl_model *model)
{
    double k = model->linear.key_head_dim, v = model->linear.value_head_dim;

    return 2.0 * model->linear.num_value_heads * (CHUNK * (3 * k + 2 * v) + 3 * k * v);
}

/* Outputs of the product and of the convolution; queries and keys, normalized and copied to every
 * value head; the chunk's inverse; decay and strength in fp32; output of the rule, and of its norm
 * and gate. */
double pl_linear_kept(const struct pl_model *model)
{
    double heads = model->linear.num_value_heads, values = pl_linear_values(model);

    return 2 * (pl_linear_in(model) + convolved(model) + 2 * heads * model->linear.key_head_dim +
                CHUNK * heads + 2 * values) +
           2 * 4 * heads;
}
