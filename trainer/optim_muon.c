/*
 * Muon: hidden matrices by the orthogonalized momentum, all else by AdamW.
 *
 * Keller Jordan's Muon (2024) as Moonlight has it ("Muon is scalable for LLM training", Liu et al.
 * 2025): the gradient G and the momentum M of a matrix W (rows, cols) give
 *
 *   M = mu M + G        U = G + mu M (Nesterov)        w = w (1 - lr wd) - lr s N(U)
 *
 * with s = 0.2 sqrt(max(rows, cols)), so that lr and weight decay of AdamW fit (Megatron's
 * --muon-scale-mode spectral with --muon-extra-scale-factor 0.2). N is five steps of Newton-Schulz,
 * in fp32, from X = U / (|U| + 1e-7): X = a X + (b A + c A A) X with A = X X^T, or of the
 * transposed matrix where it has more rows than columns.
 *
 * N is of the whole matrix, as the model has it: queries, keys, values, gate, up and each expert's
 * matrices for themselves. U takes the place of the gradient; where the ranks that share a bucket
 * have a shard of it each, they gather it in the place of the bucket's gradients, and the ranks of
 * tp or etp exchange their slices. A rank does this for matrices that its shard has a part of,
 * keeps that part, and so sharding also divides the work; all ranks of tp do the same work.
 */
#include "base/base.h"
#include "trainer/optim_parts.h"

#include <assert.h>
#include <math.h>

enum { NS_STEPS = 5 };

/* Of Jordan's quintic. */
static const float NS_A = 3.4445f, NS_B = -4.7750f, NS_C = 2.0315f;

/* Buffers: two of the largest matrix, two of the square of the shorter side. */
struct room {
    float *x, *y, *a, *b;
};

static struct room room_of(const struct tr_rank *rank)
{
    struct pl_muon_room size;
    float *at = tr_device_get(&rank->device, PL_BUF_MUON, 0, 0);

    pl_muon_room(&size, &rank->model);
    assert(tr_device_bytes(&rank->device, PL_BUF_MUON) >=
           2 * (size.matrix + size.square) * sizeof(float));
    return (struct room){at, at + size.matrix, at + 2 * size.matrix,
                         at + 2 * size.matrix + size.square};
}

/* Momentum of matrices, all of AdamW for the rest. */
static void direct(struct tr_update *update, const struct tr_span_of *span)
{
    struct kn_momentum hyper = {.mu = (float)update->optim->muon_momentum,
                                .grad_scale = update->grad_scale,
                                .nesterov = true};
    struct tr_span_arrays a;

    if (!span->muon) {
        tr_optim_adamw(update, span);
        return;
    }
    tr_span_arrays(&a, update->rank, span);
    kn_momentum(update->rank->pool, &hyper, a.w, a.m, a.g, span->count);
}

/* The shards of the directions of BUCKET to all ranks that share it, each into its gradients'
 * place. */
static void gather(struct tr_rank *rank, const struct pl_bucket *bucket)
{
    float *grad = rank->params.grad;
    enum tr_phase was;

    if (bucket->shards == 1)
        return;
    if (bucket->grad.window >= 0)
        kn_copy(rank->pool, grad + bucket->grad.at + (bucket->shard_first - bucket->first),
                grad + bucket->grad.shard_at, bucket->shard_count * sizeof(*grad));
    was = tr_phase(&rank->clock, TR_PHASE_DP);
    tr_all_gather(&rank->comms.shard[bucket->kind == PL_BUCKET_EXPERT], KN_F32,
                  grad + bucket->grad.at, bucket->count);
    tr_phase(&rank->clock, was);
}

/* The ranks among which PARAM is cut: SIZE members of a group from member FIRST on, of which this
 * one is ME. */
struct cut {
    struct tr_group *group;
    int first, size, me;
};

static struct cut cut_of(struct tr_rank *rank, const struct pl_param *param)
{
    struct tr_comms *c = &rank->comms;
    int etp = rank->layout.etp;

    if (param->split < 0)
        return (struct cut){.size = 1};
    if (param->axis == PL_TP)
        return (struct cut){&c->tp, 0, c->tp.size, c->tp.rank};
    return (struct cut){&c->moe, c->moe.rank / etp * etp, etp, c->moe.rank % etp};
}

/* Each member's slice of COUNT elements to INTO + its number x COUNT on all of them. */
static void exchange(struct tr_rank *rank, const struct cut *cut, float *into, const float *mine,
                     size_t count)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_TP);
    int n = 0;

    kn_copy(rank->pool, into + (size_t)cut->me * count, mine, count * sizeof(*into));
    for (int i = 0; i < cut->size; i++) {
        if (i == cut->me)
            continue;
        tr_irecv(&cut->group->req[n++], cut->group, into + (size_t)i * count, count * sizeof(*into),
                 cut->first + i, TR_TAG_MOE);
        tr_isend(&cut->group->req[n++], cut->group, mine, count * sizeof(*into), cut->first + i,
                 TR_TAG_MOE);
    }
    if (n > 0)
        tr_wait(&rank->comms.progress, tr_op_begin(TR_OP_ALL_GATHER, cut->group), cut->group->req,
                n);
    tr_phase(&rank->clock, was);
}

/* The whole direction of PARAM, whose slice is MINE, in ROOM->x. */
static void assemble(struct tr_rank *rank, const struct room *room, const struct pl_param *param,
                     const float *mine)
{
    struct cut cut = cut_of(rank, param);
    size_t rows = param->shape[0], cols = param->shape[1], each = param->local[1];

    assert(param->count * (uint64_t)cut.size == param->shape[0] * param->shape[1]);
    if (param->split != 1 || cut.size == 1) {
        exchange(rank, &cut, room->x, mine, param->count);
        return;
    }
    exchange(rank, &cut, room->y, mine, param->count);
    for (int i = 0; i < cut.size; i++)
        kn_convert_rows(rank->pool, KN_F32, room->x + (size_t)i * each, cols, KN_F32,
                        room->y + (size_t)i * param->count, each, rows, each);
}

/* x = N(x), (rows, cols). */
static void newton_schulz(struct kn_pool *pool, const struct room *room, size_t rows, size_t cols)
{
    bool tall = rows > cols;
    size_t n = rows * cols, side = tall ? cols : rows, other = tall ? rows : cols;
    float *x = room->x, *y = room->y, *a = room->a, *b = room->b;
    double norm = sqrt(kn_sumsq(pool, KN_F32, x, n));

    kn_combine(pool, x, NULL, (float)(1 / (norm + 1e-7)), x, 0, x, n);
    for (int i = 0; i < NS_STEPS; i++) {
        kn_gemm_f32(pool, tall, !tall, side, side, other, x, cols, x, cols, 0, a, side);
        kn_gemm_f32(pool, false, false, side, side, side, a, side, a, side, 0, b, side);
        kn_combine(pool, b, NULL, NS_B, a, NS_C, b, side * side);
        if (tall)
            kn_gemm_f32(pool, false, false, rows, cols, side, x, cols, b, side, 0, y, cols);
        else
            kn_gemm_f32(pool, false, false, rows, cols, side, b, side, x, cols, 0, y, cols);
        kn_combine(pool, x, NULL, NS_A, x, 1, y, n);
    }
}

/* This rank's slice of the whole matrix in ROOM->x, contiguous. */
static const float *slice(struct tr_rank *rank, const struct room *room,
                          const struct pl_param *param)
{
    if (param->split == 0)
        return room->x + param->first * param->shape[1];
    if (param->split < 0 || param->local[1] == param->shape[1])
        return room->x;
    kn_convert_rows(rank->pool, KN_F32, room->y, param->local[1], KN_F32, room->x + param->first,
                    param->shape[1], param->shape[0], param->local[1]);
    return room->y;
}

static void step_matrix(struct tr_update *update, const struct room *room, int index)
{
    struct tr_rank *rank = update->rank;
    const struct pl_param *p = &rank->params.table.p[index];
    size_t rows = p->shape[0], cols = p->shape[1];
    double scale = 0.2 * sqrt((double)(rows > cols ? rows : cols));
    struct tr_span_of span;
    struct tr_span_arrays a;
    uint64_t first, state;
    double lr;

    if (!tr_span_of_param(&span, &rank->params, index)) /* so it is on all ranks of the cut */
        return;
    tr_param_state(&first, &state, &rank->params, index);
    assemble(rank, room, p, tr_param_grad(&rank->params, index));
    newton_schulz(rank->pool, room, rows, cols);
    tr_span_arrays(&a, rank, &span);
    lr = update->lr[span.group];
    kn_combine(rank->pool, a.w, a.low, (float)(1 - lr * tr_update_decay(update, &span)), a.w,
               (float)(-lr * scale), slice(rank, room, p) + first, span.count);
}

/* Buckets one after the other: layers with zero 2 and 3 take turns with the window. */
static void step_matrices(struct tr_update *update)
{
    struct tr_rank *rank = update->rank;
    const struct pl_params *t = &rank->params.table;
    struct room room = room_of(rank);
    int gathered = -1;

    for (int i = 0; i < t->n; i++) {
        if (!tr_param_is_muon(&rank->params, i))
            continue;
        if (gathered != t->p[i].bucket)
            gather(rank, &t->bucket[gathered = t->p[i].bucket]);
        step_matrix(update, &room, i);
    }
}

static void done(struct tr_update *update, int from, int end)
{
    (void)update;
    (void)from;
    (void)end;
}

tr_bucket_fn *tr_muon_begin(struct tr_update *update)
{
    tr_optim_spans(update, 0, update->rank->params.table.n, direct);
    step_matrices(update);
    return done;
}
