#include "base/base.h"
#include "trainer/balance.h"
#include "trainer/layer.h"
#include "trainer/mtp.h"
#include "trainer/pipe.h"
#include "trainer/ring.h"
#include "trainer/step.h"

#include <assert.h>
#include <math.h>

/* What documents make of a sample. */
struct documents {
    const int32_t *sample;
    size_t next, begin; /* tokens seen so far, and where the document of the next one begins */
};

/* Tokens FIRST to FIRST + RUN of the sample, FIRST >= next: AGE and TARGETS of these. */
static void documents_run(struct documents *documents, const struct tr_rank *rank, size_t first,
                          size_t run, int32_t *age, int32_t *targets)
{
    for (; documents->next < first + run; documents->next++) {
        size_t i = documents->next;
        bool last = documents->sample[i] == rank->workload.eod;

        if (i >= first && age)
            age[i - first] = (int32_t)(i - documents->begin);
        if (i >= first && last && rank->workload.eod_mask_loss)
            targets[i - first] = KN_IGNORE;
        if (last)
            documents->begin = i + 1;
    }
}

void tr_sample_put(struct tr_rank *rank, int mb, int k, const int32_t *sample)
{
    size_t seq = rank->d.seq, at = (size_t)mb * rank->d.rows + (size_t)k * seq, run;
    bool any = rank->work.age || rank->workload.eod_mask_loss;
    struct documents documents = {.sample = sample};

    assert(at + seq <= (size_t)rank->d.microbatches * rank->d.rows);
    for (size_t i = 0; i < seq; i += run) {
        size_t first = tr_ring_position(&run, rank, i);
        int32_t *targets = rank->work.targets + at + i;

        memcpy(rank->work.ids + at + i, sample + first, run * sizeof(*sample));
        memcpy(targets, sample + first + 1, run * sizeof(*sample));
        if (any)
            documents_run(&documents, rank, first, run,
                          rank->work.age ? rank->work.age + at + i : NULL, targets);
    }
    tr_mtp_put(rank, mb, k, sample);
}

void tr_sample_ignore(struct tr_rank *rank, int mb, int k)
{
    int32_t *targets = rank->work.targets + (size_t)mb * rank->d.rows;
    size_t seq = rank->d.seq;

    assert(mb < rank->d.microbatches && (size_t)(k + 1) * seq <= rank->d.rows);
    for (size_t i = (size_t)k * seq; i < (size_t)(k + 1) * seq; i++)
        targets[i] = KN_IGNORE;
}

/* What is summed over all ranks. FLAG: another thing that each of them has. */
struct totals {
    double loss, aux, z, moe_z, mtp, flag;
};

enum { TOTALS = sizeof(struct totals) / sizeof(double) };

/* All ranks of a tp group have the same sums, so one of them contributes, but for routers, which
 * see this rank's rows only with sp; ranks of a cp group have the losses of their own tokens, and
 * the load-balancing loss of all. */
static void totals(struct totals *ret, const struct tr_rank *rank, double flag)
{
    bool speaks = rank->comms.tp.rank == 0;

    *ret = (struct totals){.loss = speaks ? rank->loss_sum : 0.0,
                           .aux = speaks && rank->comms.cp.rank == 0 ? rank->aux_sum : 0.0,
                           .z = speaks ? rank->z_sum : 0.0,
                           .moe_z = speaks || rank->layout.sp ? rank->moe_z_sum : 0.0,
                           .mtp = speaks ? rank->mtp_sum : 0.0,
                           .flag = flag};
}

static void begin(struct tr_rank *rank)
{
    rank->loss_sum = rank->aux_sum = rank->z_sum = rank->moe_z_sum = rank->mtp_sum = 0.0;
}

/* This rank's share of the tokens that count: those of a cp rank are on all stages and tp ranks. */
static double my_tokens(const struct tr_rank *rank)
{
    size_t all = (size_t)rank->d.microbatches * rank->d.rows, count = 0;

    if (rank->comms.tp.rank != 0 || rank->comms.stage != 0)
        return 0;
    for (size_t i = 0; i < all; i++)
        count += rank->work.targets[i] != KN_IGNORE;
    return (double)count;
}

/* Those that each module of multi-token prediction predicts: all but the last of a sample. */
static void count_mtp(struct tr_rank *rank)
{
    const struct pl_workload *workload = &rank->workload;
    double *tokens = rank->mtp_tokens;
    int depth = rank->model.mtp;

    for (int i = 0; i < depth; i++)
        tokens[i] = (double)workload->global_batch * (workload->seq - 1 - i);
    if (workload->eod_mask_loss && depth) {
        tr_mtp_count(tokens, rank);
        tr_sum_double(&rank->comms.world, tokens, depth);
    }
    for (int i = 0; i < depth; i++)
        tokens[i] = fmax(tokens[i], 1);
}

/* Before gradients: of a training batch nothing is ignored but for documents. */
static void count_tokens(struct tr_rank *rank)
{
    double tokens = (double)rank->workload.global_batch * rank->workload.seq;

    if (rank->workload.eod_mask_loss) {
        tokens = my_tokens(rank);
        tr_sum_double(&rank->comms.world, &tokens, 1);
    }
    count_mtp(rank);
    rank->loss_tokens = fmax(tokens, 1); /* none: the loss is 0, and so is its gradient */
}

static void result(struct tr_result *ret, const struct tr_rank *rank, const struct totals *sums)
{
    ret->tokens = rank->loss_tokens;
    ret->loss = sums->loss / rank->loss_tokens;
    ret->aux = rank->moe_layers ? sums->aux / tr_router_pools(rank) : 0.0;
    ret->z = sums->z / rank->loss_tokens;
    ret->moe_z = sums->moe_z / tr_router_tokens(rank);
    ret->mtp = sums->mtp;
}

void tr_step_grads(struct tr_result *ret, struct tr_rank *rank, double flag)
{
    struct totals sums;

    begin(rank);
    tr_grads_zero(rank);
    tr_balance_begin(rank);
    count_tokens(rank);
    tr_pipe_run(rank);
    tr_balance_end(rank);
    totals(&sums, rank, flag);
    *ret = (struct tr_result){.norm = tr_grads_reduce(rank, (double *)&sums, TOTALS)};
    ret->flag = sums.flag;
    result(ret, rank, &sums);
}

void tr_step_forward(struct tr_result *ret, struct tr_rank *rank)
{
    struct totals sums;

    begin(rank);
    tr_pipe_forward(rank);
    totals(&sums, rank, my_tokens(rank));
    tr_sum_double(&rank->comms.world, (double *)&sums, TOTALS);
    rank->loss_tokens = fmax(sums.flag, 1);
    *ret = (struct tr_result){0};
    result(ret, rank, &sums);
}

void tr_step_logits(float *ret_logits, struct tr_rank *rank, int mb)
{
    struct tr_chunk *k = &rank->chunk[0];
    struct tr_slot slot = k->slot[0];
    uint64_t count = rank->d.rows * rank->d.vocab;
    float *wide = kn_alloc_own(count * sizeof(*wide));

    assert(rank->layout.world == 1 && wide);
    rank->mb = mb;
    tr_embed_fwd(rank, tr_act(rank, &k->layer[0], slot, PL_ACT_X), mb);
    for (int i = 0; i < k->n; i++)
        tr_layer_fwd(rank, &k->layer[i], slot,
                     i + 1 < k->n ? tr_act(rank, &k->layer[i + 1], slot, PL_ACT_X) : rank->work.xf);
    tr_head_logits(rank);
    kn_convert(rank->pool, KN_F32, wide, rank->type, rank->work.logits, count);
    kn_copy(rank->pool, ret_logits, wide, count * sizeof(*wide));
    kn_wait(rank->pool);
    kn_free_own(wide, count * sizeof(*wide));
}
