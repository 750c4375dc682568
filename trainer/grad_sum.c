#include "trainer/grad_sum.h"

#include "trainer/rank.h"

#include <assert.h>

void tr_grad_sum_begin(struct tr_grad_sum *ret, struct tr_rank *rank, void *grad, uint64_t count,
                       uint64_t at)
{
    enum kn_type type = rank->params.grad_type;

    *ret = (struct tr_grad_sum){.sum = grad};
    if (!grad || type == KN_F32)
        return;
    assert(at + count <= pl_grad_sum(&rank->d));
    *ret = (struct tr_grad_sum){rank->work.grad_sum + at, grad, count};
    kn_convert(rank->pool, KN_F32, ret->sum, type, grad, count);
}

void tr_grad_sum_end(struct tr_rank *rank, const struct tr_grad_sum *sum)
{
    if (sum->grad)
        kn_convert(rank->pool, rank->params.grad_type, sum->grad, KN_F32, sum->sum, sum->count);
}
