/* Which samples of a global batch a rank has. */
#include "trainer/rank.h"

#include <assert.h>

uint64_t tr_sample_index(const struct tr_rank *rank, int mb, int k)
{
    const struct pl_layout *l = &rank->layout;
    int dp = pl_axis_coord(l, PL_DP, rank->rank);

    assert(mb >= 0 && mb < rank->d.microbatches && k >= 0 && k < l->micro_batch);
    assert(rank->d.microbatches * l->dp * l->micro_batch == rank->workload.global_batch);
    return ((uint64_t)mb * (uint64_t)l->dp + (uint64_t)dp) * (uint64_t)l->micro_batch + (uint64_t)k;
}
