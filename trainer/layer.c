#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>

static void feed_forward(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                         void *out)
{
    if (layer->moe)
        tr_moe_fwd(rank, layer, slot, out);
    else
        tr_mlp_fwd(rank, layer, slot, out);
}

void tr_layer_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *out)
{
    tr_attention_fwd(rank, layer, slot);
    feed_forward(rank, layer, slot, out);
}

void tr_layer_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  char *keep, void *grad)
{
    if (rank->layout.recompute == PL_RECOMPUTE_FULL) {
        assert(!keep); /* nothing would be left for the second half of a split backward pass */
        tr_attention_fwd(rank, layer, slot);
        feed_forward(rank, layer, slot, NULL);
    }
    tr_attention_ahead(rank, layer, slot);
    if (layer->moe)
        tr_moe_bwd(rank, layer, slot, keep, grad);
    else
        tr_mlp_bwd(rank, layer, slot, keep, grad);
    tr_attention_bwd(rank, layer, slot, keep, grad);
    if (rank->model.parallel_block && !rank->model.shared_norm)
        kn_add(rank->pool, rank->type, grad, grad, rank->work.dx2,
               rank->d.local_rows * rank->d.hidden);
}

void tr_layer_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                 char *keep)
{
    if (layer->moe)
        tr_moe_dw(rank, layer, slot, keep);
    else
        tr_mlp_dw(rank, layer, slot, keep);
    tr_attention_dw(rank, layer, slot, keep);
}
