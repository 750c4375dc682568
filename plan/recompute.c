/*
 * Full recomputation keeps the input of each layer, of each unit of several (uniform), or of the
 * first layers of a virtual stage, the others of which keep everything (block): Megatron-LM's
 * --recompute-method and --recompute-num-layers (core's recompute.py, which sees a chunk's layers).
 *
 * Recomputation module by module, as Megatron-LM's --recompute-modules has it
 * (transformer_layer.py, mlp.py, experts.py, multi_latent_attention.py of core): what a module
 * keeps beyond its input is dropped and made again before its backward pass.
 *
 * mlp             the dense feed-forward with the norm that is fused into its first product
 * moe             router, dispatch, experts and shared expert
 * moe_act         the activation between the experts' products
 * shared_experts  the shared expert
 * layernorm       outputs of the norms that are not fused into a product: the one before latent
 *                 attention, and the one before a router
 * mla_up_proj     q, k and v of latent attention
 * core_attn       attention's core: its scores, where they are kept
 */
#include "plan/recompute.h"
#include "plan/memory_parts.h"
#include "plan/shape.h"

#include "base/base.h"

static unsigned named_modules(const struct pl_layout *layout)
{
    return (layout->recompute_mlp ? PL_RE_MLP : 0) | (layout->recompute_moe ? PL_RE_MOE : 0) |
           (layout->recompute_moe_act ? PL_RE_MOE_ACT : 0) |
           (layout->recompute_shared_experts ? PL_RE_SHARED : 0) |
           (layout->recompute_layernorm ? PL_RE_NORM : 0) |
           (layout->recompute_mla_up_proj ? PL_RE_MLA : 0) |
           (layout->recompute_core_attn ? PL_RE_CORE : 0);
}

unsigned pl_recompute_modules(const struct pl_layout *layout)
{
    return layout->recompute == PL_RECOMPUTE_SELECTIVE ? named_modules(layout) : 0;
}

int pl_recomputed_layers(const struct pl_layout *layout, int layers)
{
    int most = layout->recompute_num_layers;

    if (layout->recompute != PL_RECOMPUTE_FULL)
        return 0;
    return layout->recompute_method == PL_RECOMPUTE_BLOCK && most < layers ? most : layers;
}

/* Units that are longer than every virtual stage are as long as the fullest one, and so many layers
 * of each are all of them, which is what uniform has by itself. Modules of prediction are repeated
 * by uniform only (multi_token_prediction.py). */
void pl_recompute_canonical(struct pl_layout *layout, const struct pl_model *model)
{
    int longest;

    if (layout->recompute_method == PL_RECOMPUTE_UNIFORM && layout->recompute_num_layers == 1)
        return;
    longest = pl_stages_longest(layout, model->layers);
    if (!longest || layout->recompute_num_layers < longest)
        return;
    if (layout->recompute_method == PL_RECOMPUTE_UNIFORM || model->mtp) {
        layout->recompute_num_layers = longest;
    } else {
        layout->recompute_method = PL_RECOMPUTE_UNIFORM;
        layout->recompute_num_layers = 1;
    }
}

bool pl_recompute_applies(const struct pl_layout *layout, const struct pl_model *model,
                          enum pl_key key)
{
    bool moe = model->moe.experts > 0, latent = pl_model_is_mla(model);

    if (key == PL_KEY_RE_METHOD || key == PL_KEY_RE_LAYERS)
        return layout->recompute == PL_RECOMPUTE_FULL;
    if (layout->recompute != PL_RECOMPUTE_SELECTIVE)
        return false;
    switch (key) {
    case PL_KEY_RE_MLP:
        return !moe || pl_model_is_mixed(model);
    case PL_KEY_RE_MOE:
        return moe;
    case PL_KEY_RE_MOE_ACT:
        return moe && !layout->recompute_moe;
    case PL_KEY_RE_SHARED:
        return moe && model->moe.shared_ffn && !layout->recompute_moe;
    case PL_KEY_RE_NORM:
        return moe || latent;
    case PL_KEY_RE_MLA:
        return latent;
    default: /* by itself the core is what "selective" means */
        return (pl_recompute_modules(layout) & ~(unsigned)PL_RE_CORE) != 0;
    }
}

void pl_dropped_of(struct pl_dropped *ret, const struct pl_model *model, unsigned again,
                   const struct pl_operands *operands, bool moe)
{
    double h = model->hidden, e = operands->kept, copied = operands->quantized ? e : 0;
    double inner = 2 * (pl_mlp_matrices(model) - 1) + e; /* bytes of one of the hidden width */
    bool whole = again & PL_RE_MOE;

    *ret = (struct pl_dropped){0};
    if (!again)
        return;
    if ((again & PL_RE_NORM) && pl_model_is_mla(model))
        ret->outside += e * h;
    if (again & PL_RE_MLA)
        ret->inside += pl_attention_kept(model) - 2 * model->heads * pl_value_dim(model);
    if (!moe) {
        if (again & PL_RE_MLP) {
            ret->inside += inner * model->ffn;
            ret->outside += e * h;
        }
        return;
    }
    if (again & PL_RE_NORM)
        ret->inside += 2 * h;
    if ((again & PL_RE_SHARED) || whole)
        ret->inside += inner * model->moe.shared_ffn + (model->moe.shared_ffn ? copied * h : 0);
    ret->copies = whole;
    if (!whole && (again & PL_RE_MOE_ACT))
        ret->copy += e * model->moe.expert_ffn;
}
