/*
 * out = x2 + swiglu(norm(x2) W_gu^T) W_down^T, divided over tp by the inner width f. Shared experts
 * are the same product, next to the routed ones.
 */
#include "base/base.h"
#include "trainer/layer.h"

#include <assert.h>

void tr_norm2(struct tr_rank *rank, const struct tr_layer *layer, char *slot)
{
    kn_rmsnorm_fwd(rank->pool, rank->type, tr_act(rank, layer, slot, PL_ACT_H2),
                   tr_act(rank, layer, slot, PL_ACT_RRMS2), tr_act(rank, layer, slot, PL_ACT_X2),
                   layer->norm2.w, rank->d.local_rows, rank->d.hidden, (float)rank->model.norm_eps);
}

static bool selective(const struct tr_rank *rank)
{
    return rank->layout.recompute == PL_RECOMPUTE_SELECTIVE;
}

static void swiglu(struct tr_rank *rank, const struct tr_layer *layer, char *slot, uint64_t ffn)
{
    char *gu = tr_act(rank, layer, slot, PL_ACT_GU);

    kn_swiglu_fwd(rank->pool, rank->type, tr_act(rank, layer, slot, PL_ACT_A), ffn, gu, 2 * ffn,
                  gu + ffn * rank->d.elem, 2 * ffn, rank->d.rows, ffn);
}

const void *tr_ffn_fwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot, uint64_t ffn,
                       bool all)
{
    const struct pl_dims *d = &rank->d;

    assert(ffn == (layer->moe ? d->shared_ffn : d->ffn)); /* the widths that GU and A are for */
    tr_linear(rank, tr_act(rank, layer, slot, PL_ACT_GU),
              tr_gather_rows(rank, tr_act(rank, layer, slot, PL_ACT_H2)), layer->gu.w, d->rows,
              d->hidden, 2 * ffn);
    swiglu(rank, layer, slot, ffn);
    if (!all)
        return NULL;
    tr_linear_partial(rank, tr_act(rank, layer, slot, PL_ACT_A), layer->down.w, d->rows, ffn,
                      d->hidden);
    return tr_reduce_rows(rank);
}

void tr_mlp_fwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot, void *out)
{
    const void *sum;

    tr_norm2(rank, layer, slot);
    sum = tr_ffn_fwd(rank, layer, slot, rank->d.ffn, out != NULL);
    if (out)
        kn_add(rank->pool, rank->type, out, tr_act(rank, layer, slot, PL_ACT_X2), sum,
               rank->d.local_rows * rank->d.hidden);
}

static void dw_down(struct tr_rank *rank, const struct tr_layer *layer, char *slot, uint64_t ffn,
                    const void *dy)
{
    tr_linear_dw(rank, layer->down.g, dy, tr_act(rank, layer, slot, PL_ACT_A), rank->d.rows, ffn,
                 rank->d.hidden);
}

static void dw_gu(struct tr_rank *rank, const struct tr_layer *layer, char *slot, uint64_t ffn)
{
    if (selective(rank))
        tr_norm2(rank, layer, slot);
    tr_linear_dw(rank, layer->gu.g, tr_act(rank, layer, slot, PL_ACT_GU),
                 tr_gather_rows(rank, tr_act(rank, layer, slot, PL_ACT_H2)), rank->d.rows,
                 rank->d.hidden, 2 * ffn);
}

const void *tr_ffn_bwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *keep,
                       uint64_t ffn, const void *grad)
{
    const struct pl_dims *z = &rank->d;
    char *gu = tr_act(rank, layer, slot, PL_ACT_GU);
    const void *dy = tr_gather_rows(rank, grad), *dh;

    assert(ffn == (layer->moe ? z->shared_ffn : z->ffn));
    if (selective(rank) && !keep)
        swiglu(rank, layer, slot, ffn);
    tr_linear_dx(rank, rank->work.dao, dy, layer->down.w, z->rows, ffn, z->hidden);
    if (keep)
        kn_copy(rank->pool, keep + layer->keep.dy, grad, z->local_rows * z->hidden * z->elem);
    else
        dw_down(rank, layer, slot, ffn, dy);
    /* The gradients of gate and up overwrite them: the activations are not read again. */
    kn_swiglu_bwd(rank->pool, rank->type, gu, 2 * ffn, gu + ffn * z->elem, 2 * ffn, rank->work.dao,
                  ffn, gu, 2 * ffn, gu + ffn * z->elem, 2 * ffn, z->rows, ffn);
    tr_linear_dx_partial(rank, gu, layer->gu.w, z->rows, z->hidden, 2 * ffn);
    dh = tr_reduce_rows(rank);
    if (!keep)
        dw_gu(rank, layer, slot, ffn);
    return dh;
}

void tr_ffn_dw(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *keep,
               uint64_t ffn)
{
    dw_down(rank, layer, slot, ffn, tr_gather_rows(rank, keep + layer->keep.dy));
    dw_gu(rank, layer, slot, ffn);
}

void tr_mlp_bwd(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *keep,
                void *grad)
{
    const void *dh = tr_ffn_bwd(rank, layer, slot, keep, rank->d.ffn, grad);

    kn_rmsnorm_bwd(rank->pool, rank->type, grad, layer->norm2.g, dh,
                   tr_act(rank, layer, slot, PL_ACT_X2), layer->norm2.w,
                   tr_act(rank, layer, slot, PL_ACT_RRMS2), rank->d.local_rows, rank->d.hidden,
                   true);
}

void tr_mlp_dw(struct tr_rank *rank, const struct tr_layer *layer, char *slot, char *keep)
{
    tr_ffn_dw(rank, layer, slot, keep, rank->d.ffn);
}
