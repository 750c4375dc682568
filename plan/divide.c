/*
 * Stages cut by cost, as nanotron does (build_model of its Llama): a layer weighs its matrices, of
 * attention as if each head had keys of its own, and the head hidden x vocabulary. A stage takes
 * layers until their sum exceeds its share of the whole, so that a stage with a layer too many is
 * before one with the head: 32 layers and a head of 2.2 on 4 stages are 9, 9, 8 and 6, on 32 the
 * first has 2.
 */
#include "plan/divide.h"

#include "base/base.h"
#include "plan/plan.h"
#include "plan/shape.h"

static void cut(int *ret_layers, const struct pl_model *model, int pp)
{
    double h = model->hidden;
    double layer =
        4.0 * model->heads * model->head_dim * h + pl_mlp_matrices(model) * h * model->ffn;
    double all = model->layers * layer + h * model->vocab, sum = 0;
    int stage = 0;

    for (int i = 0; i < model->layers; i++) {
        ret_layers[stage]++;
        sum += layer;
        if (sum > all * (stage + 1) / pp && stage < pp - 1)
            stage++;
    }
}

static const struct pl_layout *cut_by_cost(struct pl_layout *store, const struct pl_model *model,
                                           const struct pl_layout *layout)
{
    int layers[PL_MAX_RUNS] = {0};
    struct err error;

    *store = *layout;
    cut(layers, model, layout->pp);
    return pl_stages_list(&store->stages, layers, layout->pp, &error) < 0 ? layout : store;
}

const struct pl_layout *pl_divided(struct pl_layout *store, const struct pl_problem *problem,
                                   const struct pl_layout *layout)
{
    if (!problem->trainer->cost_stages || layout->pp == 1 || layout->vp > 1 ||
        layout->pp > PL_MAX_RUNS || layout->stages != PL_STAGES_EVEN ||
        pl_model_is_moe(problem->model))
        return layout;
    return cut_by_cost(store, problem->model, layout);
}
