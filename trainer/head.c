/*
 * Both ends of the model: the embedding, and the final norm with the output projection and the
 * loss.
 *
 * The vocabulary is divided over tp. A row of the embedding is held by one rank, the others add
 * zeros. Of the logits each rank holds its columns; the loss needs, for each token, the maximum,
 * the sum of exponentials and the target's logit over all of them. The z-loss is made of the first
 * two and exchanges nothing else. Loss and gradient are computed in the forward step, so logits of
 * one micro-batch live at a time whatever the schedule.
 */
#include "base/base.h"
#include "trainer/layer.h"
#include "trainer/tp_overlap.h"

#include <assert.h>
#include <math.h>

static uint64_t vocab_first(const struct tr_rank *rank)
{
    return rank->d.vocab * (uint64_t)rank->comms.tp.rank;
}

/* Columns of this rank that are not padding. */
static uint64_t vocab_valid(const struct tr_rank *rank)
{
    uint64_t v0 = vocab_first(rank), v = (uint64_t)rank->model.vocab;

    assert(rank->d.vocab * (uint64_t)rank->comms.tp.size >= v);
    return v <= v0 ? 0 : v - v0 < rank->d.vocab ? v - v0 : rank->d.vocab;
}

/* The learned positions of this rank's rows of micro-batch MB. */
static const int32_t *positions(const struct tr_rank *rank, int mb)
{
    size_t first = rank->layout.sp ? rank->d.local_rows * (size_t)rank->comms.tp.rank : 0;

    assert(first + rank->d.local_rows <= rank->d.rows);
    return (rank->workload.reset_position_ids ? tr_ages(rank, mb) : rank->work.positions) + first;
}

/* Of embeddings. transformers has the root in the type of the activations, so bf16 rounds it, but
 * not the multiplier. */
static float embed_scale(const struct tr_rank *rank)
{
    float scale = rank->model.embed_scale ? sqrtf((float)rank->model.hidden) : 1;
    kn_bf16 low;

    if (rank->type == KN_BF16) {
        kn_convert(NULL, KN_BF16, &low, KN_F32, &scale, 1);
        kn_convert(NULL, KN_F32, &scale, KN_BF16, &low, 1);
    }
    return scale * (float)rank->model.embedding_multiplier;
}

static void add_positions(struct tr_rank *rank, void *out, int mb)
{
    const struct pl_dims *d = &rank->d;

    kn_embed_fwd(rank->pool, rank->type, rank->work.dh, rank->positions.w, positions(rank, mb),
                 d->local_rows, d->hidden, 0, (size_t)rank->model.seq, 1);
    kn_add(rank->pool, rank->type, out, out, rank->work.dh, d->local_rows * d->hidden);
}

void tr_lookup_fwd(struct tr_rank *rank, void *out, const int32_t *ids)
{
    const struct pl_dims *d = &rank->d;
    void *to = rank->comms.tp.size == 1 ? out : rank->layout.sp ? rank->work.gather : rank->work.dh;

    kn_embed_fwd(rank->pool, rank->type, to, rank->embed.w, ids, d->rows, d->hidden,
                 vocab_first(rank), d->vocab, embed_scale(rank));
    if (to != out) /* one term of each sum is not zero: exact in every type */
        kn_copy(rank->pool, out, tr_reduce(rank, to, rank->type, d->hidden),
                d->local_rows * d->hidden * d->elem);
}

void tr_lookup_bwd(struct tr_rank *rank, const void *grad, const int32_t *ids)
{
    kn_embed_bwd(rank->pool, rank->type, rank->params.grad_type, rank->embed.g,
                 tr_gather_rows(rank, grad), ids, rank->d.rows, rank->d.hidden, vocab_first(rank),
                 rank->d.vocab, embed_scale(rank));
}

void tr_embed_fwd(struct tr_rank *rank, void *out, int mb)
{
    assert(mb >= 0 && mb < rank->d.microbatches);
    tr_lookup_fwd(rank, out, rank->work.ids + (uint64_t)mb * rank->d.rows);
    if (rank->positions.w)
        add_positions(rank, out, mb);
}

void tr_embed_bwd(struct tr_rank *rank, const void *grad, int mb)
{
    assert(mb >= 0 && mb < rank->d.microbatches);
    tr_lookup_bwd(rank, grad, rank->work.ids + (uint64_t)mb * rank->d.rows);
    if (rank->positions.w)
        kn_embed_bwd(rank->pool, rank->type, rank->params.grad_type, rank->positions.g, grad,
                     positions(rank, mb), rank->d.local_rows, rank->d.hidden, 0,
                     (size_t)rank->model.seq, 1);
}

/* Cross-entropy of the logits, and their z-loss; they become its gradient, by the products from
 * which logits_of() made them, unless SCALE is 0. */
static void loss(struct tr_rank *rank, struct tr_head_loss *of)
{
    const struct pl_dims *d = &rank->d;
    const int32_t *targets = of->targets;
    float *max = rank->work.xent, *sum = max + d->rows, *target = sum + d->rows;
    uint64_t v0 = vocab_first(rank), cols = vocab_valid(rank);
    enum tr_phase was;
    size_t count;

    kn_xent_max(rank->pool, rank->type, max, rank->work.logits, d->vocab, d->rows, cols);
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    tr_all_reduce_max(&rank->comms.tp, max, d->rows);
    tr_phase(&rank->clock, was);
    kn_xent_sum(rank->pool, rank->type, sum, target, rank->work.logits, d->vocab, d->rows, cols,
                max, targets, v0);
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    tr_all_reduce(&rank->comms.tp, KN_F32, sum, 2 * d->rows);
    tr_phase(&rank->clock, was);
    kn_wait(rank->pool);
    of->sum = kn_xent_loss(NULL, &count, max, sum, target, targets, d->rows);
    if (of->z_coef > 0)
        of->z_sum = kn_xent_z(max, sum, targets, d->rows);
    if (of->scale > 0)
        kn_xent_grad(rank->pool, rank->type, rank->work.logits, d->vocab, d->rows, cols, d->vocab,
                     max, sum, targets, v0, (float)(of->scale * rank->model.logit_scale),
                     (float)of->z_coef, (float)rank->model.logit_softcap);
}

/* work.logits (rows, vocab) of the rows NORMED (local_rows, hidden). Returns these, gathered. */
static const void *logits_of(struct tr_rank *rank, const void *normed)
{
    const struct pl_dims *d = &rank->d;
    const void *rows = tr_gather_linear(rank, rank->work.logits, normed, rank->head.w, d->vocab);

    if (rank->model.logit_scale < 1 || rank->model.logit_scale > 1)
        kn_add_scaled(rank->pool, rank->type, rank->work.logits, NULL,
                      (float)rank->model.logit_scale, rank->work.logits, d->rows * d->vocab);
    if (rank->model.logit_softcap > 0)
        kn_softcap(rank->pool, rank->type, rank->work.logits, d->vocab, d->rows, vocab_valid(rank),
                   (float)rank->model.logit_softcap);
    return rows;
}

void tr_head_logits(struct tr_rank *rank)
{
    struct tr_work *w = &rank->work;

    tr_norm_fwd(rank, &rank->final_norm, w->hf, w->rrmsf, w->xf);
    logits_of(rank, w->hf);
}

const void *tr_project(struct tr_rank *rank, const void *normed, struct tr_head_loss *of)
{
    const struct pl_dims *d = &rank->d;
    void *logits = rank->work.logits;
    /* stays gathered: nothing gathers again before the gradient below */
    const void *h = logits_of(rank, normed), *grad;
    enum tr_phase was;

    loss(rank, of);
    if (!(of->scale > 0))
        return NULL;
    was = tr_phase(&rank->clock, TR_PHASE_BACKWARD);
    tr_linear_dx_reduce(rank, logits, rank->head.w, d->vocab);
    tr_linear_dw(rank, rank->head.g, logits, h, d->rows, d->hidden, d->vocab);
    grad = tr_linear_dx_reduced(rank);
    tr_phase(&rank->clock, was);
    return grad;
}

void tr_head(struct tr_rank *rank, void *dx, int mb)
{
    struct tr_work *w = &rank->work;
    struct tr_head_loss of = {.targets = w->targets + (uint64_t)mb * rank->d.rows,
                              .scale = dx ? 1.0 / rank->loss_tokens : 0,
                              .z_coef = rank->z_loss_coef};
    const void *grad;
    enum tr_phase was;

    assert(mb >= 0 && mb < rank->d.microbatches);
    tr_norm_fwd(rank, &rank->final_norm, w->hf, w->rrmsf, w->xf);
    grad = tr_project(rank, w->hf, &of);
    rank->loss_sum += of.sum;
    rank->z_sum += of.z_sum;
    if (!dx)
        return;
    was = tr_phase(&rank->clock, TR_PHASE_BACKWARD);
    tr_norm_bwd(rank, &rank->final_norm, dx, grad, w->xf, w->rrmsf, false);
    tr_phase(&rank->clock, was);
}
