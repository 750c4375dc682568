#include "trainer/layer_log.h"

#include "base/base.h"
#include "trainer/balance.h"
#include "trainer/optim_parts.h"

#include <assert.h>
#include <math.h>

struct tr_layer_log {
    int count;    /* rows: the layers, then the rest */
    int numbers;  /* of sums */
    double *sums; /* (count) squares of gradients, (count) of weights, (layers, experts) tokens */
    struct tr_layer_stats *row; /* (count) */
};

struct tr_layer_log *tr_layer_log_new(const struct tr_rank *rank)
{
    struct tr_layer_log *log = mem_alloc(sizeof(*log));
    int layers = rank->model.layers, experts = (int)rank->d.experts;

    log->count = layers + 1;
    log->numbers = 2 * log->count + layers * experts;
    log->sums = mem_alloc(sizeof(*log->sums) * (size_t)log->numbers);
    log->row = mem_alloc(sizeof(*log->row) * (size_t)log->count);
    for (int i = 0; i < log->count; i++) {
        log->row[i].layer = i < layers ? i : -1;
        if (i >= layers || !pl_layer_is_moe(&rank->model, i))
            continue;
        log->row[i].tokens = log->sums + 2 * log->count + i * experts;
        log->row[i].experts = experts;
    }
    return log;
}

struct tr_layer_log *tr_layer_log_free(struct tr_layer_log *log)
{
    if (!log)
        return NULL;
    free(log->sums);
    free(log->row);
    free(log);
    return NULL;
}

/* Of what this rank alone counts. */
static void add_squares(struct tr_layer_log *log, const struct tr_rank *rank)
{
    const struct pl_params *t = &rank->params.table;

    for (int i = 0; i < t->n; i++) {
        int row = t->p[i].layer < 0 ? log->count - 1 : t->p[i].layer;
        struct tr_span_of span;
        struct tr_span_arrays a;

        assert(row < log->count);
        if (!tr_bucket_speaks(rank, &t->bucket[t->p[i].bucket]) ||
            !tr_span_of_param(&span, &rank->params, i))
            continue;
        tr_span_arrays(&a, rank, &span);
        log->sums[row] += kn_sumsq(rank->pool, rank->params.grad_type, a.g, span.count);
        log->sums[log->count + row] += kn_sumsq(rank->pool, KN_F32, a.w, span.count);
    }
}

void tr_layer_log_take(struct tr_layer_log *log, struct tr_rank *rank)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_OPTIMIZER);

    memset(log->sums, 0, sizeof(*log->sums) * (size_t)log->numbers);
    add_squares(log, rank);
    if (rank->moe_layers)
        tr_balance_loads(log->sums + 2 * log->count, rank);
    tr_phase(&rank->clock, TR_PHASE_DP);
    tr_sum_double(&rank->comms.world, log->sums, log->numbers);
    tr_phase(&rank->clock, was);
    for (int i = 0; i < log->count; i++) {
        struct tr_layer_stats *row = &log->row[i];

        row->grad_norm = sqrt(log->sums[i]);
        row->params_norm = sqrt(log->sums[log->count + i]);
        if (row->tokens)
            row->imbalance = tr_balance_ratio(row->tokens, (uint64_t)row->experts);
    }
}

const struct tr_layer_stats *tr_layer_log(int *ret_count, const struct tr_layer_log *log)
{
    *ret_count = log->count;
    return log->row;
}
