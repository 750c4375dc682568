/* out = x2 + swiglu(norm(x2) W_gu^T) W_down^T, divided over tp by the inner width. */
#include "base/base.h"
#include "trainer/layer.h"

static void norm(struct tr_rank *r, const struct tr_layer *y, char *slot)
{
    kn_rmsnorm_fwd(r->pool, r->type, tr_act(r, y, slot, PL_ACT_H2),
                   tr_act(r, y, slot, PL_ACT_RRMS2), tr_act(r, y, slot, PL_ACT_X2), y->norm2.w,
                   r->d.local_rows, r->d.hidden, (float)r->model.norm_eps);
}

static void swiglu(struct tr_rank *r, const struct tr_layer *y, char *slot)
{
    uint64_t f = r->d.ffn;
    char *gu = tr_act(r, y, slot, PL_ACT_GU);

    kn_swiglu_fwd(r->pool, r->type, tr_act(r, y, slot, PL_ACT_A), f, gu, 2 * f, gu + f * r->d.elem,
                  2 * f, r->d.rows, f);
}

void tr_mlp_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, void *out)
{
    const struct pl_dims *d = &r->d;

    norm(r, y, slot);
    tr_linear(r, tr_act(r, y, slot, PL_ACT_GU), tr_gather_rows(r, tr_act(r, y, slot, PL_ACT_H2)),
              y->gu.w, d->rows, d->hidden, 2 * d->ffn);
    swiglu(r, y, slot);
    if (!out)
        return;
    tr_linear_partial(r, tr_act(r, y, slot, PL_ACT_A), y->down.w, d->rows, d->ffn, d->hidden);
    kn_add(r->pool, r->type, out, tr_act(r, y, slot, PL_ACT_X2), tr_reduce_rows(r),
           d->local_rows * d->hidden);
}

void tr_mlp_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, void *d)
{
    const struct pl_dims *z = &r->d;
    uint64_t f = z->ffn;
    char *gu = tr_act(r, y, slot, PL_ACT_GU);
    const void *dy = tr_gather_rows(r, d), *dh;

    if (r->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        swiglu(r, y, slot);
    tr_linear_dx(r, r->work.dao, dy, y->down.w, z->rows, f, z->hidden);
    tr_linear_dw(r, y->down.g, dy, tr_act(r, y, slot, PL_ACT_A), z->rows, f, z->hidden);
    /* The gradients of gate and up take their place: nobody reads the activations again. */
    kn_swiglu_bwd(r->pool, r->type, gu, 2 * f, gu + f * z->elem, 2 * f, r->work.dao, f, gu, 2 * f,
                  gu + f * z->elem, 2 * f, z->rows, f);
    tr_linear_dx_partial(r, gu, y->gu.w, z->rows, z->hidden, 2 * f);
    dh = tr_reduce_rows(r);
    if (r->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        norm(r, y, slot);
    tr_linear_dw(r, y->gu.g, gu, tr_gather_rows(r, tr_act(r, y, slot, PL_ACT_H2)), z->rows,
                 z->hidden, 2 * f);
    kn_rmsnorm_bwd(r->pool, r->type, d, y->norm2.g, dh, tr_act(r, y, slot, PL_ACT_X2), y->norm2.w,
                   tr_act(r, y, slot, PL_ACT_RRMS2), z->local_rows, z->hidden, true);
}
