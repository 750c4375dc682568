/*
 * What optimizers need beyond AdamW's: state, traffic of a step, and the work of Newton-Schulz.
 *
 * State in elements of fp32 a parameter: adamw and lamb two moments, sgd one, muon one for hidden
 * matrices and two for all else. Bytes that cross memory a parameter, with fp32 gradients and
 * masters and a bf16 copy of the weights:
 *   adamw  gradient, master and two moments in, all but the gradient and the copy out: 30
 *   sgd    the same with one moment: 22
 *   lamb   30, but a direction out in place of master and copy: 28; both norms 8; the step from
 *          direction and master to master and copy 14
 *   muon   gradient and moment in, moment and direction out 16; the step 14
 * Newton-Schulz of a matrix with sides m <= n is 5 steps of two products with the shorter side's
 * square, X X^T and (...) X, of 2 m m n FLOPs each, and one of two squares, 2 m m m.
 */
#include "plan/memory_parts.h"

#include "base/base.h"
#include "plan/shape.h"

#include <assert.h>

enum { NS_STEPS = 5 };

/* The shapes of the hidden matrices of a layer, without experts or with them: rows, columns, and
 * how many there are. Attention of another kind than of heads or latents counts as of heads. */
struct matrix {
    double rows, cols, many;
};

enum { MOST_MATRICES = 9 };

static int attention_matrices(struct matrix *ret, const struct pl_model *model)
{
    const struct pl_mla *mla = &model->mla;
    double h = model->hidden, heads = model->heads, q = heads * model->head_dim,
           kv = (double)model->kv_heads * model->head_dim, in = mla->q_lora_rank;
    int n = 0;

    if (mla->q_lora_rank)
        ret[n++] = (struct matrix){in, h, 1};
    ret[n++] =
        (struct matrix){model->attention_output_gate ? 2 * q : q, mla->q_lora_rank ? in : h, 1};
    if (pl_model_is_mla(model)) {
        ret[n++] = (struct matrix){mla->kv_lora_rank + mla->qk_rope_head_dim, h, 1};
        ret[n++] = (struct matrix){heads * mla->qk_nope_head_dim, mla->kv_lora_rank, 1};
        ret[n++] = (struct matrix){heads * mla->v_head_dim, mla->kv_lora_rank, 1};
    } else {
        ret[n++] = (struct matrix){kv, h, 2};
    }
    ret[n++] = (struct matrix){h, heads * pl_value_dim(model), 1};
    return n;
}

static int matrices(struct matrix ret[MOST_MATRICES], const struct pl_model *model, bool moe)
{
    double up = pl_mlp_matrices(model) - 1, ffn = moe ? model->moe.shared_ffn : model->ffn,
           h = model->hidden;
    int n = attention_matrices(ret, model);

    if (ffn > 0)
        ret[n++] = (struct matrix){ffn, h, up + 1}; /* down is the transpose */
    if (moe) {
        ret[n++] = (struct matrix){model->moe.experts, h, 1};
        ret[n++] = (struct matrix){model->moe.expert_ffn, h, model->moe.experts * (up + 1)};
    }
    return n;
}

bool pl_tensor_is_hidden(enum pl_tensor tensor)
{
    return tensor == PL_T_Q || tensor == PL_T_K || tensor == PL_T_V || tensor == PL_T_O ||
           tensor == PL_T_GATE || tensor == PL_T_UP || tensor == PL_T_DOWN ||
           tensor == PL_T_ROUTER || tensor == PL_T_EXPERT_GATE || tensor == PL_T_EXPERT_UP ||
           tensor == PL_T_EXPERT_DOWN || tensor == PL_T_Q_DOWN || tensor == PL_T_KV_DOWN ||
           tensor == PL_T_Q_UP || tensor == PL_T_K_UP || tensor == PL_T_V_UP ||
           tensor == PL_T_MTP_PROJ;
}

void pl_muon_room(struct pl_muon_room *ret, const struct pl_model *model)
{
    uint64_t hidden = model->mtp ? (uint64_t)model->hidden : 0;

    *ret = (struct pl_muon_room){.matrix = 2 * hidden * hidden, .square = hidden * hidden};
    for (int i = 0; i < model->layers; i++) {
        struct matrix m[MOST_MATRICES];
        int n = matrices(m, model, pl_layer_is_moe(model, i));

        for (int k = 0; k < n; k++) {
            uint64_t rows = (uint64_t)m[k].rows, cols = (uint64_t)m[k].cols;
            uint64_t side = rows < cols ? rows : cols;

            if (ret->matrix < rows * cols)
                ret->matrix = rows * cols;
            if (ret->square < side * side)
                ret->square = side * side;
        }
        if (!pl_model_is_mixed(model))
            return;
    }
}

/* Of one layer with experts (MOE) or without: of its experts (EXPERT), or of all others. */
static double muon_flops(const struct pl_model *model, bool moe, bool expert)
{
    struct matrix m[MOST_MATRICES];
    int n = matrices(m, model, moe);
    double ret = 0;

    for (int k = 0; k < n; k++) {
        bool of_expert = moe && k == n - 1;
        double a = m[k].rows < m[k].cols ? m[k].rows : m[k].cols;
        double b = m[k].rows < m[k].cols ? m[k].cols : m[k].rows;

        if (of_expert == expert)
            ret += m[k].many * NS_STEPS * (4 * a * a * b + 2 * a * a * a);
    }
    return ret;
}

double pl_optimizer_traffic(enum pl_optimizer optimizer)
{
    static const double bytes[PL_OPTIMIZERS] = {
        [PL_ADAMW] = 30, [PL_SGD] = 22, [PL_LAMB] = 50, [PL_MUON] = 30};

    assert(optimizer < PL_OPTIMIZERS);
    return bytes[optimizer];
}

double pl_optimizer_moments(enum pl_optimizer optimizer, double hidden, double all)
{
    return optimizer == PL_SGD ? 1 : optimizer == PL_MUON ? 2 - hidden / all : 2;
}

double pl_muon_rank_flops(const struct pl_model *model, const struct pl_layout *layout,
                          double dense_shards, double expert_shards)
{
    double flops = 0;

    for (int i = 0; i < model->layers; i++) {
        bool moe = pl_layer_is_moe(model, i);

        flops += muon_flops(model, moe, false) / dense_shards;
        if (moe)
            flops += muon_flops(model, moe, true) / layout->ep / expert_shards;
    }
    return flops / layout->pp;
}
