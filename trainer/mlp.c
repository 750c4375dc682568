/*
 * out = x2 + swiglu(norm(x2) W_gu^T) W_down^T, divided over tp by the inner width f. The experts
 * that every token visits are the same product beside the routed ones.
 */
#include "base/base.h"
#include "trainer/layer.h"

void tr_norm2(struct tr_rank *r, const struct tr_layer *y, char *slot)
{
    kn_rmsnorm_fwd(r->pool, r->type, tr_act(r, y, slot, PL_ACT_H2),
                   tr_act(r, y, slot, PL_ACT_RRMS2), tr_act(r, y, slot, PL_ACT_X2), y->norm2.w,
                   r->d.local_rows, r->d.hidden, (float)r->model.norm_eps);
}

static bool selective(const struct tr_rank *r)
{
    return r->layout.recompute == PL_RECOMPUTE_SELECTIVE;
}

static void swiglu(struct tr_rank *r, const struct tr_layer *y, char *slot, uint64_t f)
{
    char *gu = tr_act(r, y, slot, PL_ACT_GU);

    kn_swiglu_fwd(r->pool, r->type, tr_act(r, y, slot, PL_ACT_A), f, gu, 2 * f, gu + f * r->d.elem,
                  2 * f, r->d.rows, f);
}

const void *tr_ffn_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, uint64_t f,
                       bool all)
{
    const struct pl_dims *d = &r->d;

    tr_linear(r, tr_act(r, y, slot, PL_ACT_GU), tr_gather_rows(r, tr_act(r, y, slot, PL_ACT_H2)),
              y->gu.w, d->rows, d->hidden, 2 * f);
    swiglu(r, y, slot, f);
    if (!all)
        return NULL;
    tr_linear_partial(r, tr_act(r, y, slot, PL_ACT_A), y->down.w, d->rows, f, d->hidden);
    return tr_reduce_rows(r);
}

void tr_mlp_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, void *out)
{
    const void *sum;

    tr_norm2(r, y, slot);
    sum = tr_ffn_fwd(r, y, slot, r->d.ffn, out != NULL);
    if (out)
        kn_add(r->pool, r->type, out, tr_act(r, y, slot, PL_ACT_X2), sum,
               r->d.local_rows * r->d.hidden);
}

static void dw_down(struct tr_rank *r, const struct tr_layer *y, char *slot, uint64_t f,
                    const void *dy)
{
    tr_linear_dw(r, y->down.g, dy, tr_act(r, y, slot, PL_ACT_A), r->d.rows, f, r->d.hidden);
}

static void dw_gu(struct tr_rank *r, const struct tr_layer *y, char *slot, uint64_t f)
{
    if (selective(r))
        tr_norm2(r, y, slot);
    tr_linear_dw(r, y->gu.g, tr_act(r, y, slot, PL_ACT_GU),
                 tr_gather_rows(r, tr_act(r, y, slot, PL_ACT_H2)), r->d.rows, r->d.hidden, 2 * f);
}

const void *tr_ffn_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep,
                       uint64_t f, const void *d)
{
    const struct pl_dims *z = &r->d;
    char *gu = tr_act(r, y, slot, PL_ACT_GU);
    const void *dy = tr_gather_rows(r, d), *dh;

    if (selective(r) && !keep)
        swiglu(r, y, slot, f);
    tr_linear_dx(r, r->work.dao, dy, y->down.w, z->rows, f, z->hidden);
    if (keep)
        kn_copy(r->pool, keep + y->keep.dy, d, z->local_rows * z->hidden * z->elem);
    else
        dw_down(r, y, slot, f, dy);
    /* The gradients of gate and up take their place: nobody reads the activations again. */
    kn_swiglu_bwd(r->pool, r->type, gu, 2 * f, gu + f * z->elem, 2 * f, r->work.dao, f, gu, 2 * f,
                  gu + f * z->elem, 2 * f, z->rows, f);
    tr_linear_dx_partial(r, gu, y->gu.w, z->rows, z->hidden, 2 * f);
    dh = tr_reduce_rows(r);
    if (!keep)
        dw_gu(r, y, slot, f);
    return dh;
}

void tr_ffn_dw(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep, uint64_t f)
{
    dw_down(r, y, slot, f, tr_gather_rows(r, keep + y->keep.dy));
    dw_gu(r, y, slot, f);
}

void tr_mlp_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep, void *d)
{
    const void *dh = tr_ffn_bwd(r, y, slot, keep, r->d.ffn, d);

    kn_rmsnorm_bwd(r->pool, r->type, d, y->norm2.g, dh, tr_act(r, y, slot, PL_ACT_X2), y->norm2.w,
                   tr_act(r, y, slot, PL_ACT_RRMS2), r->d.local_rows, r->d.hidden, true);
}

void tr_mlp_dw(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep)
{
    tr_ffn_dw(r, y, slot, keep, r->d.ffn);
}
