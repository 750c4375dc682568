#include "base/base.h"
#include "trainer/layer.h"

static void feed_forward(struct tr_rank *r, const struct tr_layer *y, char *slot, void *out)
{
    if (y->moe)
        tr_moe_fwd(r, y, slot, out);
    else
        tr_mlp_fwd(r, y, slot, out);
}

void tr_layer_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, void *out)
{
    tr_attention_fwd(r, y, slot);
    feed_forward(r, y, slot, out);
}

void tr_layer_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep, void *d)
{
    if (r->layout.recompute == PL_RECOMPUTE_FULL) {
        tr_attention_fwd(r, y, slot);
        feed_forward(r, y, slot, NULL);
    }
    if (y->moe)
        tr_moe_bwd(r, y, slot, keep, d);
    else
        tr_mlp_bwd(r, y, slot, keep, d);
    tr_attention_bwd(r, y, slot, keep, d);
}

void tr_layer_dw(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep)
{
    if (y->moe)
        tr_moe_dw(r, y, slot, keep);
    else
        tr_mlp_dw(r, y, slot, keep);
    tr_attention_dw(r, y, slot, keep);
}
