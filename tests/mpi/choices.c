#include "tests/mpi/choices.h"

#include <assert.h>

#include "base/base.h"
#include "kernels/choose.h"
#include "trainer/ring.h"
#include "trainer/step.h"

enum { MOST_EXPERTS = 64 };

/* Sample of the batch and position in it of row ROW of this rank's micro-batch. */
static uint64_t sample_of(size_t *ret_position, const struct watch *watch,
                          const struct tr_rank *rank, int row)
{
    int seq = (int)rank->d.seq;
    int row0 = rank->layout.sp ? (int)rank->d.local_rows * rank->comms.tp.rank : 0;
    uint64_t sample = tr_sample_index(rank, rank->mb, (row0 + row) / seq);
    size_t run;

    *ret_position = tr_ring_position(&run, rank, (size_t)((row0 + row) % seq));
    return (sample + watch->shuffle) % (uint64_t)rank->workload.global_batch;
}

static bool among(const int32_t *set, int k, int32_t x)
{
    for (int i = 0; i < k; i++)
        if (set[i] == x)
            return true;
    return false;
}

void choices_record(void *arg, const struct tr_rank *rank, int layer, const int32_t *idx)
{
    struct watch *watch = arg;
    size_t k = rank->d.top_k;

    if (watch->off || watch->want)
        return;
    for (size_t i = 0; i < rank->d.local_rows; i++) {
        size_t t;
        uint64_t sample = sample_of(&t, watch, rank, (int)i);

        memcpy(watch->out->expert[watch->step][layer][sample][t], idx + i * k, k * sizeof(*idx));
    }
}

/* Scores that differ from PROBS (experts) by at most TIE choose WANT. */
static bool is_tie(const struct kn_router *router, const float *probs, const int32_t *want,
                   double tie)
{
    float moved[MOST_EXPERTS];
    int32_t idx[DRAW_TOP_K];
    int k = (int)router->k;

    assert(router->experts <= MOST_EXPERTS && k <= DRAW_TOP_K);
    for (size_t e = 0; e < router->experts; e++)
        moved[e] = probs[e] + (float)(among(want, k, (int32_t)e) ? tie : -tie);
    kn_choose(idx, router, moved);
    for (int i = 0; i < k; i++)
        if (!among(want, k, idx[i]))
            return false;
    return true;
}

bool choices_replay(void *arg, const struct tr_rank *rank, int layer,
                    const struct kn_router *router, const float *probs, int32_t *idx)
{
    struct watch *watch = arg;
    size_t k = router->k;
    bool changed = false;

    if (watch->off || !watch->want)
        return false;
    for (size_t i = 0; i < rank->d.local_rows; i++, idx += k, probs += router->experts) {
        size_t t;
        uint64_t sample = sample_of(&t, watch, rank, (int)i);
        const int32_t *want = watch->want->expert[watch->step][layer][sample][t];
        int differ = 0;

        for (size_t j = 0; j < k; j++)
            differ += !among(want, (int)k, idx[j]);
        watch->all += (double)k;
        watch->differ += differ;
        if (!differ)
            continue;
        if (router->dealt || (watch->tie > 0 && !is_tie(router, probs, want, watch->tie)))
            watch->wrong += differ;
        memcpy(idx, want, k * sizeof(*idx));
        changed = true;
    }
    return changed;
}
