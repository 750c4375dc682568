/*
 * The load of the experts: choices that are dealt out, how many fell on each, and the bias that
 * balances them.
 *
 * Dealing (force_balance) replaces the router's choice, as Megatron-LM's
 * --moe-router-force-load-balancing does by random logits, so that a short run has the load of a
 * trained router. Here it is exact: token t of a global batch, counted over its sequences and, to
 * begin elsewhere in each layer, the layer's number, gets the next top_k experts in turn. With
 * groups, token t meets groups t, t + 1, ... and the turn is within each. So any run of tokens
 * loads the experts alike but for one choice in a group, in every layout. Weights and gradients are
 * those of the chosen experts by the router's scores.
 */
#include "trainer/balance.h"

#include "base/base.h"
#include "trainer/ring.h"

#include <assert.h>
#include <math.h>

/* DeepSeek-V3's bias update speed for most of its training, and Megatron-LM's default
 * (--moe-router-bias-update-rate). */
static const float rate = 1e-3f;

/* Choice CHOICE of token TOKEN. Its groups are taken in turn, so group number `lane` of the token
 * has every met-th choice; these follow each other in the group's turn, or they might be one
 * expert. */
static int32_t dealt(const struct kn_router *router, uint64_t token, uint64_t choice)
{
    uint64_t each = router->experts / router->groups, met = router->met, k = router->k;
    uint64_t lane = choice % met, more = lane < k % met ? lane : k % met;
    uint64_t group = (token + lane) % router->groups, turn = token / router->groups;

    return (int32_t)(group * each + (turn * k + lane * (k / met) + more + choice / met) % each);
}

void tr_balance_deal(struct tr_rank *rank, const struct tr_layer *layer,
                     const struct kn_router *router, int32_t *idx)
{
    uint64_t row0 = rank->layout.sp ? rank->d.local_rows * (uint64_t)rank->comms.tp.rank : 0;
    size_t run;

    kn_wait(rank->pool); /* the last micro-batch's choices may still be read */
    for (uint64_t i = 0; i < rank->d.local_rows; i++) {
        uint64_t row = row0 + i, sample = tr_sample_index(rank, rank->mb, (int)(row / rank->d.seq));
        uint64_t token = sample * (uint64_t)rank->workload.seq +
                         tr_ring_position(&run, rank, (size_t)(row % rank->d.seq));

        for (uint64_t j = 0; j < rank->d.top_k; j++)
            idx[i * rank->d.top_k + j] = dealt(router, token + (uint64_t)layer->global, j);
    }
}

/* ---- counts -------------------------------------------------------------- */

static uint64_t counters(const struct tr_rank *rank)
{
    return (uint64_t)rank->moe_here * rank->d.experts;
}

void tr_balance_count(struct tr_rank *rank, const struct tr_layer *layer, const float *count)
{
    uint64_t e = rank->d.experts, n = (uint64_t)rank->layout.micro_batch * e;
    float *load = rank->work.moe_load + (uint64_t)layer->moe_index * e;

    assert(layer->moe_index >= 0 && layer->moe_index < rank->moe_here);
    for (uint64_t i = 0; i < n; i++)
        load[i % e] += count[i];
}

void tr_balance_begin(struct tr_rank *rank)
{
    if (rank->work.moe_load)
        memset(rank->work.moe_load, 0, counters(rank) * sizeof(*rank->work.moe_load));
}

void tr_balance_end(struct tr_rank *rank)
{
    for (uint64_t i = 0; rank->moe_counts && i < counters(rank); i++)
        rank->work.moe_total[i] += (double)rank->work.moe_load[i];
}

double tr_balance_ratio(const double *load, uint64_t count)
{
    double most = 0, sum = 0;

    for (uint64_t i = 0; i < count; i++) {
        most = fmax(most, load[i]);
        sum += load[i];
    }
    return sum > 0 ? most * (double)count / sum : (double)NAN;
}

/* Ranks of a tp group and of a cp group have counted the same choices. TOTAL: those of all steps
 * that are counted. */
static void put_mine(double *ret, const struct tr_rank *rank, bool total)
{
    const struct tr_work *w = &rank->work;
    uint64_t e = rank->d.experts;

    memset(ret, 0, (uint64_t)rank->model.layers * e * sizeof(*ret));
    if (rank->comms.tp.rank > 0 || rank->comms.cp.rank > 0)
        return;
    for (int c = 0; c < rank->layout.vp; c++)
        for (int i = 0; i < rank->chunk[c].n + rank->chunk[c].mtp; i++) {
            const struct tr_layer *layer = &rank->chunk[c].layer[i];
            uint64_t at = (uint64_t)layer->moe_index * e, to = (uint64_t)layer->global * e;

            for (uint64_t k = 0; layer->moe && k < e; k++)
                ret[to + k] = total ? w->moe_total[at + k] : (double)w->moe_load[at + k];
        }
}

void tr_balance_loads(double *ret, const struct tr_rank *rank)
{
    kn_wait(rank->pool);
    put_mine(ret, rank, false);
}

double tr_balance_uneven(double *ret_layers, struct tr_rank *rank)
{
    uint64_t e = rank->d.experts, n = 0;
    uint64_t layers = (uint64_t)(rank->model.layers + rank->model.mtp);
    AUTO_FREE double *all = mem_alloc(layers * e * sizeof(*all));
    double sum = 0;

    put_mine(all, rank, true);
    tr_sum_double(&rank->comms.world, all, (int)(layers * e));
    for (uint64_t i = 0; i < layers; i++) {
        if (!pl_layer_is_moe(&rank->model, (int)i))
            continue;
        ret_layers[n] = tr_balance_ratio(all + i * e, e);
        sum += ret_layers[n++];
    }
    assert(n == (uint64_t)rank->moe_layers && n > 0);
    return sum / (double)n;
}

/* ---- the bias ------------------------------------------------------------ */

static void move(float *bias, const float *load, uint64_t count)
{
    double sum = 0;

    for (uint64_t i = 0; i < count; i++)
        sum += (double)load[i];
    for (uint64_t i = 0; i < count; i++) {
        double mine = (double)load[i] * (double)count;

        bias[i] += mine < sum ? rate : mine > sum ? -rate : 0;
    }
}

void tr_balance_step(struct tr_rank *rank)
{
    float *load = rank->work.moe_load, *bias = rank->params.balance;
    uint64_t e = rank->d.experts, n = counters(rank);
    enum tr_phase was;

    if (!bias)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_DP);
    kn_wait(rank->pool);
    if (rank->comms.cp.rank > 0) /* the ranks of a cp group have counted the same choices */
        memset(load, 0, n * sizeof(*load));
    tr_all_reduce(&rank->comms.shard[0], KN_F32, load, n);
    tr_all_reduce(&rank->comms.copy[0], KN_F32, load, n);
    for (int i = 0; i < rank->moe_here; i++)
        move(bias + (uint64_t)i * e, load + (uint64_t)i * e, e);
    tr_phase(&rank->clock, was);
}
