/* Megatron-LM's names of dispatchers and of the modules that CUDA graphs cover. */
#include "tuner/export/dispatch.h"

#include <assert.h>

const char *tn_megatron_dispatcher(const char **ret_backend, const struct pl_layout *layout)
{
    static const char *const types[] = {"alltoall", "allgather", "flex", "flex"};
    static const char *const backends[] = {NULL, NULL, "deepep", "hybridep"};

    assert(layout->moe_dispatch >= 0 && layout->moe_dispatch < (int)ARRAY_LEN(types));
    *ret_backend = backends[layout->moe_dispatch];
    return types[layout->moe_dispatch];
}

int tn_megatron_graphed(const struct tn_export_in *in)
{
    const struct pl_layout *l = in->layout;

    if ((l->cuda_graphs == PL_GRAPHS_ITERATION && pl_model_is_moe(in->model)) ||
        (l->cuda_graphs == PL_GRAPHS_MODULES && l->recompute == PL_RECOMPUTE_FULL))
        return PL_GRAPHS_NONE;
    return l->cuda_graphs;
}

/* Conditions of transformer_config.py: no graph over what is repeated as a whole, nor of a
 * feed-forward whose exchanges overlap; with a capacity the router's preparation copies to the
 * host. */
static bool is_graphed(const struct tn_export_in *in, const char *module)
{
    const struct pl_layout *l = in->layout;
    const struct pl_moe *moe = &in->model->moe;
    bool dense = !moe->experts || moe->every > 1 || moe->dense_layers > 0;
    bool router = moe->experts && !l->recompute_moe;

    if (str_eq(module, "attn"))
        return true;
    if (str_eq(module, "mlp"))
        return dense && !l->overlap_moe_a2a;
    if (str_eq(module, "moe_preprocess"))
        return router && (moe->capacity_factor <= 0 || l->moe_dispatch != PL_DISPATCH_ALLTOALL);
    return router;
}

void tn_megatron_graphs(struct str *out, const struct tn_export_in *in, const char *separator,
                        const char *quote)
{
    static const char *const modules[] = {"attn", "mlp", "moe_router", "moe_preprocess"};
    size_t before = out->len;

    for (size_t i = 0; i < ARRAY_LEN(modules); i++)
        if (tn_megatron_graphed(in) == PL_GRAPHS_MODULES && is_graphed(in, modules[i]))
            str_addf(out, "%s%s%s%s", out->len > before ? separator : "", quote, modules[i], quote);
}
