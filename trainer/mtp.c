#include "trainer/mtp.h"

#include "base/base.h"
#include "trainer/layer.h"
#include "trainer/ring.h"

#include <assert.h>

enum { OF_EMBED, OF_HIDDEN, OF_OUT };           /* norms of a module */
enum { OF_LAYER, OF_NORMED, OF_BEFORE, GRADS }; /* work.mtp_grad */

_Static_assert((int)OF_OUT + 1 == (int)PL_MTP_NORMS && (int)GRADS == (int)PL_MTP_GRADS,
               "the plan counts norms and gradients");

static struct tr_weight weight(const struct tr_rank *rank, enum pl_tensor tensor, int layer)
{
    int i = tr_param_find(&rank->params, tensor, layer, -1);

    assert(i >= 0);
    return (struct tr_weight){tr_param_weight(&rank->params, i), tr_param_grad(&rank->params, i)};
}

void tr_mtp_init(struct tr_rank *rank, const struct tr_chunk *chunk)
{
    struct tr_work *w = &rank->work;

    if (!chunk->mtp)
        return;
    rank->mtp = mem_alloc((size_t)chunk->mtp * sizeof(*rank->mtp));
    for (int i = 0; i < chunk->mtp; i++) {
        const struct tr_layer *layer = &chunk->layer[chunk->n + i];

        assert(layer->global == rank->model.layers + i && layer->at.acts == 0);
        rank->mtp[i] =
            (struct tr_mtp){.layer = layer,
                            .slot = {tr_device_get(&rank->device, PL_BUF_MTP, 0, i),
                                     tr_device_get(&rank->device, PL_BUF_MTP_ROUTES, 0, i)},
                            .norm[OF_EMBED].scale = weight(rank, PL_T_MTP_ENORM, layer->global),
                            .norm[OF_HIDDEN].scale = weight(rank, PL_T_MTP_HNORM, layer->global),
                            .norm[OF_OUT].scale = weight(rank, PL_T_MTP_NORM, layer->global),
                            .join = weight(rank, PL_T_MTP_PROJ, layer->global)};
        pl_mtp_acts(&rank->mtp[i].at, &rank->d, layer->acts);
    }
    for (int i = 0; i < GRADS; i++)
        w->mtp_grad[i] = tr_device_get(&rank->device, PL_BUF_MTP_GRAD, 0, i);
    w->mtp_ids = tr_device_get(&rank->device, PL_BUF_MTP_TOKENS, 0, 0);
    w->mtp_targets = w->mtp_ids + (uint64_t)(chunk->mtp * rank->d.microbatches) * rank->d.rows;
}

void tr_mtp_done(struct tr_rank *rank)
{
    free(rank->mtp);
    rank->mtp = NULL;
}

/* ---- tokens -------------------------------------------------------------- */

/* Of depth DEPTH, micro-batch MB, in an array of inputs or targets; a smaller step leaves the
 * others alone. */
static int32_t *tokens(const struct tr_rank *rank, int32_t *all, int depth, int mb)
{
    assert(depth >= 1 && depth <= rank->model.mtp && mb < rank->most);
    return all + ((uint64_t)(depth - 1) * (uint64_t)rank->most + (uint64_t)mb) * rank->d.rows;
}

void tr_mtp_put(struct tr_rank *rank, int mb, int k, const int32_t *sample)
{
    size_t length = (size_t)rank->workload.seq, seq = rank->d.seq, run;
    const struct pl_workload *w = &rank->workload;

    for (int depth = 1; rank->mtp && depth <= rank->model.mtp; depth++) {
        int32_t *ids = tokens(rank, rank->work.mtp_ids, depth, mb) + (size_t)k * seq;
        int32_t *targets = tokens(rank, rank->work.mtp_targets, depth, mb) + (size_t)k * seq;

        for (size_t i = 0; i < seq; i += run) {
            size_t first = tr_ring_position(&run, rank, i) + (size_t)depth;

            for (size_t j = 0; j < run; j++) {
                size_t at = first + j;
                bool there = at < length;

                ids[i + j] = there ? sample[at] : 0;
                targets[i + j] = there && !(w->eod_mask_loss && sample[at] == w->eod)
                                     ? sample[at + 1]
                                     : KN_IGNORE;
            }
        }
    }
}

void tr_mtp_count(double *ret, const struct tr_rank *rank)
{
    size_t all = (size_t)rank->d.microbatches * rank->d.rows;

    for (int depth = 1; depth <= rank->model.mtp; depth++) {
        const int32_t *targets;

        ret[depth - 1] = 0;
        if (!rank->mtp || rank->comms.tp.rank != 0)
            continue;
        targets = tokens(rank, rank->work.mtp_targets, depth, 0);
        for (size_t i = 0; i < all; i++)
            ret[depth - 1] += targets[i] != KN_IGNORE;
    }
}

/* ---- the join ------------------------------------------------------------ */

/* The half of the product that FROM, a row's first or last elements, meets. */
enum half { EMBEDDING, HIDDEN };

static struct kn_gemm gemm(const struct tr_rank *rank)
{
    size_t h = rank->d.hidden;

    return (struct kn_gemm){.lda = h, .ldb = h, .ldc = h, .at = rank->type, .bt = rank->type};
}

/* X (local_rows, hidden) = [X +] HALF's part of the product. */
static void join_fwd(struct tr_rank *rank, const struct tr_mtp *mtp, enum half half, void *x,
                     const void *from)
{
    const struct pl_dims *d = &rank->d;
    struct kn_gemm g = gemm(rank);

    g.m = d->local_rows;
    g.n = g.k = d->hidden;
    g.a = from;
    g.b = (const char *)mtp->join.w + half * d->hidden * d->elem;
    g.c = x;
    g.ldb = 2 * d->hidden;
    g.tb = true;
    g.beta = half == EMBEDDING ? 0 : 1;
    g.ct = rank->type;
    kn_gemm(rank->pool, &g);
}

/* DFROM (local_rows, hidden) from DX, and the product's gradient by FROM. */
static void join_bwd(struct tr_rank *rank, const struct tr_mtp *mtp, enum half half, void *dfrom,
                     const void *dx, const void *from)
{
    const struct pl_dims *d = &rank->d;
    struct kn_gemm g = gemm(rank);

    g.m = g.n = d->hidden;
    g.k = d->local_rows;
    g.a = dx;
    g.b = from;
    g.c = tr_grad_at(&rank->params, mtp->join.g, half * d->hidden);
    g.ct = rank->params.grad_type;
    g.ldc = 2 * d->hidden;
    g.ta = true;
    g.beta = 1;
    kn_gemm(rank->pool, &g);
    g = gemm(rank);
    g.m = d->local_rows;
    g.n = g.k = d->hidden;
    g.a = dx;
    g.b = (const char *)mtp->join.w + half * d->hidden * d->elem;
    g.c = dfrom;
    g.ldb = 2 * d->hidden;
    g.ct = rank->type;
    kn_gemm(rank->pool, &g);
}

/* ---- passes -------------------------------------------------------------- */

static void *kept(const struct tr_mtp *mtp, uint64_t at)
{
    return mtp->slot.acts + at;
}

/* The normalized hidden rows that module INDEX reads. */
static const void *before(const struct tr_rank *rank, int index)
{
    return index ? kept(&rank->mtp[index - 1], rank->mtp[index - 1].at.normed) : rank->work.hf;
}

static void norm_fwd(struct tr_rank *rank, const struct tr_mtp *mtp, int which, uint64_t to,
                     const void *from)
{
    tr_norm_fwd(rank, &mtp->norm[which], kept(mtp, to), kept(mtp, mtp->at.stats[which]), from);
}

static void norm_bwd(struct tr_rank *rank, const struct tr_mtp *mtp, int which, void *dx,
                     const void *dy, const void *x, bool add)
{
    tr_norm_bwd(rank, &mtp->norm[which], dx, dy, x, kept(mtp, mtp->at.stats[which]), add);
}

/* The layer that is next in the same step, or NULL. */
static const struct tr_layer *next(const struct tr_rank *rank, int index)
{
    return index >= 0 && index < rank->model.mtp ? rank->mtp[index].layer : NULL;
}

void tr_mtp_fwd(struct tr_rank *rank, int mb)
{
    for (int i = 0; i < rank->model.mtp; i++) {
        const struct tr_mtp *mtp = &rank->mtp[i];
        void *x = tr_act(rank, mtp->layer, mtp->slot, PL_ACT_X);

        tr_lookup_fwd(rank, kept(mtp, mtp->at.embed), tokens(rank, rank->work.mtp_ids, i + 1, mb));
        norm_fwd(rank, mtp, OF_EMBED, mtp->at.enormed, kept(mtp, mtp->at.embed));
        norm_fwd(rank, mtp, OF_HIDDEN, mtp->at.hnormed, before(rank, i));
        join_fwd(rank, mtp, EMBEDDING, x, kept(mtp, mtp->at.enormed));
        join_fwd(rank, mtp, HIDDEN, x, kept(mtp, mtp->at.hnormed));
        tr_window_weights(rank, mtp->layer);
        tr_window_prefetch(rank, mtp->layer, next(rank, i + 1));
        tr_layer_fwd(rank, mtp->layer, mtp->slot, kept(mtp, mtp->at.out));
        norm_fwd(rank, mtp, OF_OUT, mtp->at.normed, kept(mtp, mtp->at.out));
    }
}

/* The loss of module INDEX, and in GRAD the gradient of its layer's output: what the loss says and,
 * but for the last module, the next one's of the normalized rows. */
static void loss(struct tr_rank *rank, int index, int mb, void *grad)
{
    const struct tr_mtp *mtp = &rank->mtp[index];
    double each = 1 / (rank->mtp_tokens[index] * rank->model.mtp);
    struct tr_head_loss of = {.targets = tokens(rank, rank->work.mtp_targets, index + 1, mb),
                              .scale = each * rank->model.mtp_loss_coef};
    const void *out = kept(mtp, mtp->at.out),
               *dnormed = tr_project(rank, kept(mtp, mtp->at.normed), &of);

    rank->mtp_sum += each * of.sum;
    if (dnormed)
        norm_bwd(rank, mtp, OF_OUT, grad, dnormed, out, false);
    else
        kn_zero(rank->pool, grad, rank->d.local_rows * rank->d.hidden * rank->d.elem);
    if (index + 1 < rank->model.mtp)
        norm_bwd(rank, mtp, OF_OUT, grad, rank->work.mtp_grad[OF_BEFORE], out, true);
}

/* From GRAD, that of the layer's input, the gradients of what was joined. */
static void joined_bwd(struct tr_rank *rank, int index, int mb, void *grad)
{
    const struct tr_mtp *mtp = &rank->mtp[index];
    char *dnormed = rank->work.mtp_grad[OF_NORMED];

    join_bwd(rank, mtp, HIDDEN, dnormed, grad, kept(mtp, mtp->at.hnormed));
    norm_bwd(rank, mtp, OF_HIDDEN, rank->work.mtp_grad[OF_BEFORE], dnormed, before(rank, index),
             false);
    join_bwd(rank, mtp, EMBEDDING, dnormed, grad, kept(mtp, mtp->at.enormed));
    norm_bwd(rank, mtp, OF_EMBED, grad, dnormed, kept(mtp, mtp->at.embed), false);
    tr_lookup_bwd(rank, grad, tokens(rank, rank->work.mtp_ids, index + 1, mb));
}

void tr_mtp_bwd(struct tr_rank *rank, void *dx, int mb)
{
    enum tr_phase was = tr_phase(&rank->clock, TR_PHASE_BACKWARD);
    char *grad = rank->work.mtp_grad[OF_LAYER];

    for (int i = rank->model.mtp - 1; i >= 0; i--) {
        const struct tr_mtp *mtp = &rank->mtp[i];

        loss(rank, i, mb, grad);
        tr_window_weights(rank, mtp->layer);
        tr_window_prefetch(rank, mtp->layer, next(rank, i - 1));
        tr_window_grads(rank, mtp->layer);
        tr_layer_bwd(rank, mtp->layer, mtp->slot, NULL, grad);
        tr_moe_wgrad(rank);
        tr_window_scatter(rank, mtp->layer);
        joined_bwd(rank, i, mb, grad);
    }
    tr_norm_bwd(rank, &rank->final_norm, dx, rank->work.mtp_grad[OF_BEFORE], rank->work.xf,
                rank->work.rrmsf, true);
    tr_phase(&rank->clock, was);
}
