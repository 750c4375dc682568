/*
 * Context parallelism: how the ranks that share a sequence exchange what attention needs.
 *
 * p2p         keys and values go round a ring while a rank's own queries meet them
 * all-gather  all keys and values are gathered before attention; nothing overlaps
 * a2a         heads are scattered and the sequence is gathered (DeepSpeed Ulysses): queries, keys
 *             and values before attention, its output after it
 * a2a+p2p     a2a among neighbors, a ring over their groups
 *
 * The backward pass gathers again and scatters the gradients, or exchanges output, its gradient and
 * the gradients of queries, keys and values. Facts: Megatron-LM of August 2026 (d98e8a64),
 * megatron/core/transformer/transformer_config.py (cp_comm_type), and Transformer Engine.
 */
#include "plan/cost_parts.h"
#include "plan/memory_parts.h"
#include "plan/shape.h"

#include "base/base.h"

int pl_cp_inner(const struct pl_layout *layout, const struct pl_model *model,
                const struct pl_cluster *cluster)
{
    int64_t tp = layout->tp;

    for (int size = layout->cp / 2; size > 1; size--)
        if (layout->cp % size == 0 && tp * size <= cluster->devices_per_node &&
            model->heads % (tp * size) == 0 && model->kv_heads % (tp * size) == 0)
            return size;
    return 1;
}

/* Elements of one token on one rank: keys and values; queries; attention's output. */
struct parts {
    double kv, query, output;
};

static struct parts parts_of(const struct pl_model *model, const struct pl_layout *layout)
{
    double key = pl_key_dim(model), value = pl_value_dim(model), tp = layout->tp;

    return (struct parts){.kv = model->kv_heads * (key + value) / tp,
                          .query = model->heads * key / tp,
                          .output = model->heads * value / tp};
}

static double excess(double comm, double compute)
{
    return comm > compute ? comm - compute : 0;
}

/* SIZE ranks in the ring, each of which holds BYTES of keys and values, and GRADIENTS of theirs;
 * CORE seconds of attention in all its steps. */
static void add_ring(struct pl_layer_time *layer, const struct pl_group *group, double bytes,
                     double gradients, double core, int size)
{
    double step = pl_send_s(group, bytes), back = step + pl_send_s(group, gradients);

    layer->cp_fwd += (size - 1) * excess(step, core / size);
    layer->cp_bwd += (size - 1) * excess(back, 2.5 * core / size);
}

static void add_exchange(struct pl_layer_time *layer, const struct pl_group *group,
                         const struct parts *parts, double bytes)
{
    double inputs = pl_all_to_all_s(group, bytes * (parts->query + parts->kv)),
           output = pl_all_to_all_s(group, bytes * parts->output);

    layer->cp_fwd += inputs + output;
    layer->cp_bwd += inputs + 2 * output;
}

void pl_add_context(struct pl_layer_time *layer, double core, const struct pl_op_ctx *op,
                    const struct pl_layout *layout)
{
    const struct pl_problem *problem = &op->problem;
    struct parts parts = parts_of(problem->model, layout);
    double bytes = (double)problem->workload->seq / layout->cp * layout->micro_batch *
                   op->rates->element; /* of one element of every token */
    /* the bundled trainer's gradients travel in fp32 */
    double wide = problem->trainer->bundled ? 4 / op->rates->element : 1;
    struct pl_group all, ring;
    int inner;

    if (layout->cp == 1)
        return;
    pl_group_of(&all, op, layout->cp, layout->tp);
    switch (layout->cp_comm) {
    case PL_CP_ALL_GATHER:
        layer->cp_fwd += pl_gather_s(&all, bytes * layout->cp * parts.kv);
        layer->cp_bwd += 2 * pl_gather_s(&all, bytes * layout->cp * parts.kv);
        break;
    case PL_CP_A2A:
        add_exchange(layer, &all, &parts, bytes);
        break;
    case PL_CP_A2A_P2P:
        inner = pl_cp_inner(layout, problem->model, problem->cluster);
        pl_group_of(&all, op, inner, layout->tp);
        pl_group_of(&ring, op, layout->cp / inner, layout->tp * inner);
        add_exchange(layer, &all, &parts, bytes);
        add_ring(layer, &ring, bytes * parts.kv, wide * bytes * parts.kv, core, layout->cp / inner);
        break;
    default:
        add_ring(layer, &all, bytes * parts.kv, wide * bytes * parts.kv, core, layout->cp);
    }
}

/* Its first product's output is exchanged for whole sequences of some heads, its result back,
 * whatever cp_comm says (a2a_cp_to_hp() and a2a_hp_to_cp() of megatron/core/ssm/gated_delta_net/
 * common.py); backward the gradients of both. */
void pl_add_linear_context(struct pl_layer_time *layer, const struct pl_op_ctx *op,
                           const struct pl_layout *layout)
{
    const struct pl_model *model = op->problem.model;
    double bytes = (double)op->problem.workload->seq / layout->cp * layout->micro_batch *
                   op->rates->element / layout->tp,
           moved;
    struct pl_group all;

    if (layout->cp == 1)
        return;
    pl_group_of(&all, op, layout->cp, layout->tp);
    moved = pl_all_to_all_s(&all, bytes * pl_linear_in(model)) +
            pl_all_to_all_s(&all, bytes * pl_linear_values(model));
    layer->cp_fwd += moved;
    layer->cp_bwd += moved;
}

double pl_context_bytes(const struct pl_problem *problem, const struct pl_layout *layout)
{
    double tokens = (double)problem->workload->seq / layout->cp * layout->micro_batch;
    double elements = 0;
    struct parts parts;

    if (layout->cp == 1)
        return 0;
    parts = parts_of(problem->model, layout);
    if (layout->cp_comm == PL_CP_ALL_GATHER)
        elements = 2 * parts.kv * layout->cp;
    else if (layout->cp_comm != PL_CP_P2P)
        elements = parts.query + parts.kv + 2 * parts.output;
    return tokens * elements * (layout->precision == PL_FP32 ? 4 : 2);
}
