/*
 * Both ends of the model: the embedding, and the final norm with the output projection and the
 * loss.
 *
 * The vocabulary is divided over tp. A row of the embedding is held by one rank, the others add
 * zeros. Of the logits each rank holds its columns; the loss needs, for each token, the maximum,
 * the sum of exponentials and the target's logit over all of them. Loss and gradient are computed
 * in the forward step, so logits of one micro-batch live at a time whatever the schedule.
 */
#include "base/base.h"
#include "trainer/layer.h"

static uint64_t vocab_first(const struct tr_rank *r)
{
    return r->d.vocab * (uint64_t)r->comms.tp.rank;
}

/* Columns of this rank that are not padding. */
static uint64_t vocab_valid(const struct tr_rank *r)
{
    uint64_t v0 = vocab_first(r), v = (uint64_t)r->model.vocab;

    return v <= v0 ? 0 : v - v0 < r->d.vocab ? v - v0 : r->d.vocab;
}

void tr_embed_fwd(struct tr_rank *r, void *x, int mb)
{
    const struct pl_dims *d = &r->d;
    const int32_t *ids = r->work.ids + (uint64_t)mb * d->rows;
    void *to = r->comms.tp.size == 1 ? x : r->layout.sp ? r->work.gather : r->work.dh;

    kn_embed_fwd(r->pool, r->type, to, r->embed.w, ids, d->rows, d->hidden, vocab_first(r),
                 d->vocab);
    if (to != x) /* one term of each sum is not zero: exact in every type */
        kn_copy(r->pool, x, tr_reduce(r, to, r->type), d->local_rows * d->hidden * d->elem);
}

void tr_embed_bwd(struct tr_rank *r, const void *d, int mb)
{
    const int32_t *ids = r->work.ids + (uint64_t)mb * r->d.rows;

    kn_embed_bwd(r->pool, r->type, r->embed.g, tr_gather_rows(r, d), ids, r->d.rows, r->d.hidden,
                 vocab_first(r), r->d.vocab);
}

/* Cross-entropy of the logits; they become its gradient when GRAD. */
static void loss(struct tr_rank *r, int mb, bool grad)
{
    const struct pl_dims *d = &r->d;
    const int32_t *targets = r->work.targets + (uint64_t)mb * d->rows;
    float *max = r->work.xent, *sum = max + d->rows, *target = sum + d->rows;
    uint64_t v0 = vocab_first(r), cols = vocab_valid(r);
    double tokens = (double)r->workload.global_batch * r->workload.seq;
    enum tr_phase was;
    size_t count;

    kn_xent_max(r->pool, r->type, max, r->work.logits, d->vocab, d->rows, cols);
    was = tr_phase(&r->clock, TR_PHASE_TP);
    tr_all_reduce_max(&r->comms.tp, max, d->rows);
    tr_phase(&r->clock, was);
    kn_xent_sum(r->pool, r->type, sum, target, r->work.logits, d->vocab, d->rows, cols, max,
                targets, v0);
    was = tr_phase(&r->clock, TR_PHASE_TP);
    tr_all_reduce(&r->comms.tp, KN_F32, sum, 2 * d->rows);
    tr_phase(&r->clock, was);
    kn_wait(r->pool);
    r->loss_sum += kn_xent_loss(NULL, &count, max, sum, target, targets, d->rows);
    if (grad)
        kn_xent_grad(r->pool, r->type, r->work.logits, d->vocab, d->rows, cols, d->vocab, max, sum,
                     targets, v0, (float)(1.0 / tokens));
}

void tr_head(struct tr_rank *r, void *dx, int mb)
{
    const struct pl_dims *d = &r->d;
    struct tr_work *w = &r->work;
    const void *h;
    enum tr_phase was;

    kn_rmsnorm_fwd(r->pool, r->type, w->hf, w->rrmsf, w->xf, r->final_norm.w, d->local_rows,
                   d->hidden, (float)r->model.norm_eps);
    h = tr_gather_rows(r,
                       w->hf); /* stays gathered: nothing gathers again before the gradient below */
    tr_linear(r, w->logits, h, r->head.w, d->rows, d->hidden, d->vocab);
    loss(r, mb, dx != NULL);
    if (!dx)
        return;
    was = tr_phase(&r->clock, TR_PHASE_BACKWARD);
    tr_linear_dw(r, r->head.g, w->logits, h, d->rows, d->hidden, d->vocab);
    tr_linear_dx_partial(r, w->logits, r->head.w, d->rows, d->hidden, d->vocab);
    kn_rmsnorm_bwd(r->pool, r->type, dx, r->final_norm.g, tr_reduce_rows(r), w->xf, r->final_norm.w,
                   w->rrmsf, d->local_rows, d->hidden, false);
    tr_phase(&r->clock, was);
}
