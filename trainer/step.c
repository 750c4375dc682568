#include "base/base.h"
#include "trainer/layer.h"
#include "trainer/pipe.h"
#include "trainer/step.h"

#include <assert.h>
#include <math.h>

uint64_t tr_sample_index(const struct tr_rank *r, int mb, int k)
{
    const struct pl_layout *l = &r->layout;
    int dp = pl_axis_coord(l, PL_DP, r->rank);

    return ((uint64_t)mb * (uint64_t)l->dp + (uint64_t)dp) * (uint64_t)l->micro_batch + (uint64_t)k;
}

void tr_sample_put(struct tr_rank *r, int mb, int k, const int32_t *sample)
{
    size_t seq = (size_t)r->workload.seq, at = (size_t)mb * r->d.rows + (size_t)k * seq;

    memcpy(r->work.ids + at, sample, seq * sizeof(*sample));
    memcpy(r->work.targets + at, sample + 1, seq * sizeof(*sample));
}

void tr_sample_ignore(struct tr_rank *r, int mb, int k)
{
    int32_t *targets = r->work.targets + (size_t)mb * r->d.rows;
    size_t seq = (size_t)r->workload.seq;

    for (size_t i = (size_t)k * seq; i < (size_t)(k + 1) * seq; i++)
        targets[i] = KN_IGNORE;
}

/* Every tp rank knows the same sums, so one of them speaks. */
static void totals(struct tr_rank *r, double sums[2])
{
    bool speaks = r->comms.tp.rank == 0;

    sums[0] = speaks ? r->loss_sum : 0.0;
    sums[1] = speaks ? r->aux_sum : 0.0;
}

static void result(const struct tr_rank *r, struct tr_result *ret, const double sums[2])
{
    ret->loss = sums[0] / ((double)r->workload.global_batch * r->workload.seq);
    ret->aux = r->moe_layers ? sums[1] / tr_router_pools(r) : 0.0;
}

void tr_step_grads(struct tr_rank *r, struct tr_result *ret, double flag)
{
    double sums[3];

    r->loss_sum = r->aux_sum = 0.0;
    tr_grads_zero(r);
    tr_pipe_run(r);
    totals(r, sums);
    sums[2] = flag;
    *ret = (struct tr_result){.norm = tr_grads_reduce(r, sums, 3)};
    ret->flag = sums[2];
    result(r, ret, sums);
}

void tr_step_forward(struct tr_rank *r, struct tr_result *ret)
{
    double sums[2];

    r->loss_sum = r->aux_sum = 0.0;
    tr_pipe_forward(r);
    totals(r, sums);
    tr_sum_double(&r->comms.world, sums, 2);
    *ret = (struct tr_result){0};
    result(r, ret, sums);
}

void tr_step_logits(struct tr_rank *r, int mb, float *logits)
{
    struct tr_chunk *k = &r->chunk[0];
    char *slot = k->slot[0];

    assert(r->layout.world == 1);
    tr_embed_fwd(r, tr_act(r, &k->layer[0], slot, PL_ACT_X), mb);
    for (int i = 0; i < k->n; i++)
        tr_layer_fwd(r, &k->layer[i], slot,
                     i + 1 < k->n ? tr_act(r, &k->layer[i + 1], slot, PL_ACT_X) : r->work.xf);
    kn_rmsnorm_fwd(r->pool, r->type, r->work.hf, r->work.rrmsf, r->work.xf, r->final_norm.w,
                   r->d.local_rows, r->d.hidden, (float)r->model.norm_eps);
    tr_linear(r, r->work.logits, r->work.hf, r->head.w, r->d.rows, r->d.hidden, r->d.vocab);
    kn_convert(r->pool, KN_F32, logits, r->type, r->work.logits, r->d.rows * r->d.vocab);
    kn_wait(r->pool);
}
