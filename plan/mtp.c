/* Multi-token prediction in the bundled trainer's tables: where its modules are, and what each of
 * them keeps. */
#include "plan/partune.h"

int pl_chunk_layers(int *ret_first, const struct pl_layout *layout, const struct pl_model *model,
                    int stage, int chunk)
{
    bool last = stage == pl_loss_stage(layout) && chunk == layout->vp - 1;

    return pl_stage_layers(ret_first, layout, model->layers, stage, chunk) +
           (last ? model->mtp : 0);
}

bool pl_embeds_twice(const struct pl_model *model, const struct pl_layout *layout)
{
    return pl_loss_stage(layout) > 0 && (model->tied || model->mtp > 0);
}

static uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t begin = *at;

    *at += (bytes + 63) / 64 * 64;
    return begin;
}

void pl_mtp_acts(struct pl_mtp_acts *ret, const struct pl_dims *dims, const struct pl_acts *layer)
{
    uint64_t rows = dims->local_rows * dims->hidden * dims->elem, at = layer->slot.acts;

    ret->embed = take(&at, rows);
    ret->enormed = take(&at, rows);
    ret->hnormed = take(&at, rows);
    ret->out = take(&at, rows);
    ret->normed = take(&at, rows);
    for (int i = 0; i < PL_MTP_NORMS; i++)
        ret->stats[i] = take(&at, dims->local_rows * dims->stats * sizeof(float));
    ret->bytes = at;
}
