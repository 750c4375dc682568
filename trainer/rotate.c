/* The rotation of queries and keys, by the tables of the rank. */
#include "trainer/layer.h"

void tr_rotate(struct tr_rank *rank, const struct tr_layer *layer, enum kn_type type, void *x,
               uint64_t ld, uint64_t heads, uint64_t dim, bool backward)
{
    enum tr_rope kind = tr_rope_of(&rank->model, layer->global);

    if (pl_layer_has_rope(&rank->model, layer->global))
        kn_rope(rank->pool, type, x, ld, rank->d.rows, heads, dim,
                (size_t)pl_rotary_dim(&rank->model), rank->work.rope_cos[kind],
                rank->work.rope_sin[kind],
                rank->workload.reset_position_ids ? tr_ages(rank, rank->mb) : NULL, rank->d.seq,
                backward);
}
