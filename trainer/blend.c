#include "trainer/blend.h"

#include <assert.h>
#include <stdlib.h>

struct tr_blend {
    int count;
    uint64_t period;
    uint32_t *share; /* (count) */
    uint8_t *source; /* (2 period) */
    uint32_t *own;   /* (2 period): samples of that source before this one */
};

static int largest_error(const struct tr_blend *blend, const int64_t *taken, uint64_t index)
{
    int64_t times = index ? (int64_t)index : 1, most = 0;
    int best = 0;

    for (int k = 0; k < blend->count; k++) {
        int64_t error = blend->share[k] * times - (int64_t)blend->period * taken[k];

        if (k == 0 || error > most) {
            most = error;
            best = k;
        }
    }
    return best;
}

static void fill(struct tr_blend *blend)
{
    AUTO_FREE int64_t *taken = mem_alloc((size_t)blend->count * sizeof(*taken));

    for (uint64_t i = 0; i < 2 * blend->period; i++) {
        int k = largest_error(blend, taken, i);

        blend->source[i] = (uint8_t)k;
        blend->own[i] = (uint32_t)taken[k]++;
    }
    for (int k = 0; k < blend->count; k++)
        assert(taken[k] == 2 * (int64_t)blend->share[k]);
}

struct tr_blend *tr_blend_new(const uint32_t *share, int count)
{
    struct tr_blend *blend = mem_alloc(sizeof(*blend));

    assert(count > 0 && count <= UINT8_MAX);
    blend->count = count;
    blend->share = mem_alloc((size_t)count * sizeof(*share));
    for (int k = 0; k < count; k++) {
        assert(share[k] > 0);
        blend->share[k] = share[k];
        blend->period += share[k];
    }
    assert(blend->period <= TR_BLEND_SUM);
    blend->source = mem_alloc(2 * blend->period * sizeof(*blend->source));
    blend->own = mem_alloc(2 * blend->period * sizeof(*blend->own));
    fill(blend);
    return blend;
}

struct tr_blend *tr_blend_free(struct tr_blend *blend)
{
    if (!blend)
        return NULL;
    free(blend->share);
    free(blend->source);
    free(blend->own);
    free(blend);
    return NULL;
}

int tr_blend_at(uint64_t *ret_own, const struct tr_blend *blend, uint64_t index)
{
    uint64_t whole = index < blend->period ? 0 : index / blend->period - 1;
    uint64_t at = index - whole * blend->period; /* of the table: its first half only once */
    int k;

    assert(at < 2 * blend->period);
    k = blend->source[at];
    *ret_own = blend->own[at] + whole * blend->share[k];
    return k;
}

uint64_t tr_blend_until(const struct tr_blend *blend, const uint64_t *have)
{
    uint64_t until = UINT64_MAX;

    for (uint64_t at = 0; at < 2 * blend->period; at++) {
        int k = blend->source[at];
        uint64_t share = blend->share[k], whole = have[k] < share ? 0 : have[k] / share - 1;

        /* Entry AT is sample HAVE[k] of its source, so the first that there is not. */
        if (blend->own[at] == have[k] - whole * share && at + whole * blend->period < until)
            until = at + whole * blend->period;
    }
    assert(until < UINT64_MAX);
    return until;
}
