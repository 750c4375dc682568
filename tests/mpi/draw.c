#include "tests/mpi/draw.h"

#include "base/base.h"
#include "plan/plan.h"

static int between(struct rng *r, int lo, int hi)
{
    return lo + (int)rng_below(r, (uint64_t)(hi - lo + 1));
}

/* Divisible by much, or by nothing. */
static int width(struct rng *r, int hi)
{
    return between(r, 0, 2) ? 12 * between(r, 1, hi / 12) : between(r, 1, hi);
}

static json_t *draw_moe(struct rng *r, int layers, const char *aux_loss)
{
    int experts = between(r, 1, 8);
    int top_k = between(r, 1, experts < DRAW_TOP_K ? experts : DRAW_TOP_K);
    int every = between(r, 1, layers < 2 ? layers : 2);

    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s}", "experts", experts, "top_k", top_k,
                     "expert_ffn", width(r, 48), "shared_ffn", between(r, 0, 1) * width(r, 36),
                     "every", every, "dense_layers", every == 1 ? between(r, 0, layers - 1) : 0,
                     "aux_loss_coef", 0.02 * between(r, 0, 2), "aux_loss", aux_loss);
}

json_t *draw_model(int *ret_batch, uint64_t seed)
{
    static const int counts[] = {1, 2, 3, 4, 4, 6}, batches[] = {1, 2, 3, 4, 6, DRAW_BATCH};
    struct rng r;
    int layers, kv_heads, seq;
    json_t *v;

    rng_seed(&r, seed);
    layers = between(&r, 1, DRAW_LAYERS);
    kv_heads = counts[rng_below(&r, ARRAY_LEN(counts))];
    seq = width(&r, DRAW_SEQ);
    *ret_batch = batches[rng_below(&r, ARRAY_LEN(batches))];
    v = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "layers", layers, "hidden",
                  between(&r, 6, 50), "kv_heads", kv_heads, "heads", kv_heads * between(&r, 1, 3),
                  "head_dim", 2 * between(&r, 1, 8), "ffn", width(&r, 72), "vocab",
                  between(&r, 12, 100), "seq", seq);
    json_object_set_new(v, "name", json_sprintf("drawn-%llu", (unsigned long long)seed));
    if (seed % 2)
        json_object_set_new(v, "moe", draw_moe(&r, layers, pl_aux_loss_names[seed / 2 % 3]));
    json_object_set_new(v, "tied", json_boolean(between(&r, 0, 2) == 0));
    return v;
}
