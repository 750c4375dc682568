#include "base/base.h"
#include "trainer/graphs.h"
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

static struct tr_graph_key key_of(enum tr_graph_pass pass, const struct tr_layer *layer,
                                  struct tr_slot slot, const char *keep, const void *out)
{
    struct tr_graph_key key;

    memset(&key, 0, sizeof(key));
    key.layer = layer;
    key.slot = slot;
    key.keep = keep;
    key.out = out;
    key.pass = pass;
    return key;
}

void tr_layer_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *out)
{
    struct tr_graph_key key = key_of(TR_GRAPH_FORWARD, layer, slot, NULL, out);

    if (!tr_graph_runs(rank, &key))
        return;
    tr_attention_fwd(rank, layer, slot);
    feed_forward(rank, layer, slot, out);
    tr_graph_done(rank, &key);
}

static void backward(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
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

void tr_layer_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  char *keep, void *grad)
{
    struct tr_graph_key key = key_of(TR_GRAPH_BACKWARD, layer, slot, keep, grad);

    if (!tr_graph_runs(rank, &key))
        return;
    backward(rank, layer, slot, keep, grad);
    tr_graph_done(rank, &key);
}

void tr_layer_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                 char *keep)
{
    struct tr_graph_key key = key_of(TR_GRAPH_WEIGHTS, layer, slot, keep, NULL);

    if (!tr_graph_runs(rank, &key))
        return;
    if (layer->moe)
        tr_moe_dw(rank, layer, slot, keep);
    else
        tr_mlp_dw(rank, layer, slot, keep);
    tr_attention_dw(rank, layer, slot, keep);
    tr_graph_done(rank, &key);
}
