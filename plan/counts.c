/* Parameters and FLOPs of a model, and what share of its devices' peak a layout makes of them. */
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/precision.h"
#include "plan/shape.h"

#include "base/base.h"

/* What layer LAYER is: of a hybrid one part, elsewhere attention, which may be linear (L), and a
 * feed-forward. */
static bool has_part(const struct pl_model *model, int layer, char letter)
{
    if (model->pattern[0])
        return model->pattern[layer] == letter;
    return letter == (pl_layer_is_linear(model, layer) ? 'L' : '*') ||
           letter == (pl_layer_is_moe(model, layer) ? 'E' : '-');
}

static int count_parts(const struct pl_model *model, char letter)
{
    int n = 0;

    for (int l = 0; l < model->layers; l++)
        n += has_part(model, l, letter);
    return n;
}

static uint64_t norm_params(const struct pl_model *model)
{
    return (uint64_t)model->hidden * (model->norm_bias ? 2 : 1);
}

static uint64_t mlp_params(const struct pl_model *model, uint64_t width)
{
    uint64_t matrices = (uint64_t)pl_mlp_matrices(model), h = (uint64_t)model->hidden;

    return matrices * h * width + (model->mlp_bias ? (matrices - 1) * width + h : 0);
}

static uint64_t attention_params(const struct pl_model *model)
{
    struct pl_product product[PL_MOST_PRODUCTS];
    int many = pl_attention_products(product, model);
    uint64_t n = (uint64_t)(pl_attention_matrices(model, 1) + pl_attention_vectors(model));

    for (int i = 0; i < many; i++)
        n += product[i].bias ? (uint64_t)product[i].out : 0;
    return n;
}

/* Feed-forward with EXPERTS experts, its router and what all tokens share. */
static uint64_t moe_params(const struct pl_model *model, int experts)
{
    const struct pl_moe *moe = &model->moe;
    uint64_t h = (uint64_t)model->hidden, all = (uint64_t)moe->experts;
    uint64_t n = (uint64_t)experts * mlp_params(model, (uint64_t)moe->expert_ffn) + h * all;

    if (moe->router_bias)
        n += all;
    if (moe->shared_ffn)
        n += mlp_params(model, (uint64_t)moe->shared_ffn) + (moe->shared_gate ? h : 0);
    return n;
}

static uint64_t layer_params(const struct pl_model *model, int layer, int experts)
{
    uint64_t n = (uint64_t)(model->pattern[0] ? 1 : pl_layer_norms(model)) * norm_params(model);

    if (has_part(model, layer, '*'))
        n += attention_params(model);
    if (has_part(model, layer, 'L'))
        n += (uint64_t)pl_linear_params(model);
    if (has_part(model, layer, 'M'))
        n += (uint64_t)pl_mamba_params(model);
    if (has_part(model, layer, '-'))
        n += mlp_params(model, (uint64_t)model->ffn);
    if (has_part(model, layer, 'E'))
        n += moe_params(model, experts);
    return n;
}

/* Parameters with EXPERTS experts in each MoE layer. A module of multi-token prediction has two
 * norms, a product that joins hidden row and embedding, a layer like the last and a norm; embedding
 * and head are the model's. */
static uint64_t count_params(const struct pl_model *model, int experts)
{
    uint64_t h = (uint64_t)model->hidden, norm = norm_params(model);
    uint64_t n = (uint64_t)model->vocab * h * (model->tied ? 1 : 2) + norm;

    if (model->positions == PL_LEARNED)
        n += (uint64_t)model->seq * h;
    for (int l = 0; l < model->layers; l++)
        n += layer_params(model, l, experts);
    if (model->mtp)
        n += (uint64_t)model->mtp *
             (2 * h * h + 3 * norm + layer_params(model, model->layers - 1, experts));
    return n;
}

uint64_t pl_model_params(const struct pl_model *model)
{
    return count_params(model, model->moe.experts);
}

uint64_t pl_model_active_params(const struct pl_model *model)
{
    return count_params(model, model->moe.top_k);
}

static double attention_flops(const struct pl_model *model, double seq)
{
    return 2 * pl_attention_matrices(model, 1) +
           2 * pl_span(model, seq) * model->heads * (pl_key_dim(model) + pl_value_dim(model)) +
           pl_indexer_flops(model, seq);
}

static double linear_flops(const struct pl_model *model)
{
    return 2 * model->hidden * (pl_linear_in(model) + pl_linear_values(model)) +
           pl_linear_rule_flops(model);
}

static double mlp_flops(const struct pl_model *model, double width)
{
    return 2 * pl_mlp_matrices(model) * model->hidden * width;
}

static double moe_flops(const struct pl_model *model)
{
    const struct pl_moe *moe = &model->moe;

    return mlp_flops(model, (double)moe->top_k * moe->expert_ffn + moe->shared_ffn) +
           2.0 * model->hidden * moe->experts;
}

static double mamba_flops(const struct pl_model *model)
{
    return 2.0 * model->hidden * (pl_mamba_in(model) + pl_mamba_inner(model)) +
           pl_mamba_scan_flops(model);
}

static double head_flops(const struct pl_model *model)
{
    return 2.0 * model->hidden * model->vocab;
}

/* Of one module of multi-token prediction, its pass through the head included. */
static double mtp_flops(const struct pl_model *model, double seq)
{
    int last = model->layers - 1;

    return 4.0 * model->hidden * model->hidden +
           (pl_layer_is_linear(model, last) ? linear_flops(model) : attention_flops(model, seq)) +
           (pl_layer_is_moe(model, last) ? moe_flops(model) : mlp_flops(model, model->ffn)) +
           head_flops(model);
}

double pl_model_flops_per_token(const struct pl_model *model, int seq)
{
    double forward = count_parts(model, '*') * attention_flops(model, seq) +
                     count_parts(model, 'L') * linear_flops(model) +
                     count_parts(model, 'M') * mamba_flops(model) +
                     count_parts(model, '-') * mlp_flops(model, model->ffn) +
                     count_parts(model, 'E') * moe_flops(model) + head_flops(model) +
                     model->mtp * mtp_flops(model, seq);

    return 3 * forward;
}

double pl_model_hardware_flops_per_token(const struct pl_model *model, int seq)
{
    double flops = pl_model_flops_per_token(model, seq);

    return flops + (flops / 3 - (1 + model->mtp) * head_flops(model));
}

/* Of a device in the mean of those that LAYOUT uses; 0: unknown. */
static double peak_of(const struct pl_cluster *cluster, const struct pl_layout *layout)
{
    int ranks = layout->world / layout->pp;
    double sum = 0;

    if (!cluster->parts)
        return pl_device_peak(&cluster->device, layout->precision);
    for (int i = 0; i < PL_PARTS; i++) {
        double peak = pl_device_peak(&cluster->parts->at[i].device, layout->precision);

        if (peak <= 0)
            return 0;
        sum += peak * pl_parts_stages(cluster->parts, i, ranks) * ranks;
    }
    return sum / layout->world;
}

/* Share of the peak of LAYOUT's devices that FLOPS a token at TOKENS_PER_S are; negative:
 * unknown. */
static double share_of_peak(const struct pl_cluster *cluster, const struct pl_layout *layout,
                            double flops, double tokens_per_s)
{
    double peak = peak_of(cluster, layout);

    if (peak <= 0 || layout->world <= 0)
        return -1;
    return flops * tokens_per_s / (peak * 1e12 * layout->world);
}

double pl_mfu(const struct pl_problem *problem, const struct pl_layout *layout, double tokens_per_s)
{
    double flops = pl_model_flops_per_token(problem->model, problem->workload->seq);

    return share_of_peak(problem->cluster, layout, flops, tokens_per_s);
}

double pl_peak_share(const struct pl_problem *problem, const struct pl_layout *layout,
                     double tokens_per_s)
{
    const struct pl_model *model = problem->model;
    int seq = problem->workload->seq;
    /* Scores and their product with the values: 2 x 2 seq heads head_dim a token forward, three
     * times that with the backward pass; half of it is masked. */
    double masked = 3 * 2.0 * seq * model->heads * model->head_dim * model->layers;

    return share_of_peak(problem->cluster, layout, pl_model_flops_per_token(model, seq) - masked,
                         tokens_per_s);
}
