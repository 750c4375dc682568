/*
 * out = x2 + act(norm(x2) W_gu^T + b_gu) W_down^T + b_down, or x2 + a norm of the rest, whose
 * x2 may stay as it is; what is added may have a factor. It is divided over tp by the inner width
 * f, with act a gated product of gate and up, or GELU or squared ReLU of up alone. b_gu is cut
 * like f; b_down is added after the sum over tp. Shared experts are the same product, without
 * biases, next to the routed ones.
 *
 * GU holds gate and up with their biases, and up without a gate, where the activation adds it in
 * the same pass, without.
 */
#include "base/base.h"
#include "trainer/grad_sum.h"
#include "trainer/layer.h"
#include "trainer/tp_overlap.h"

#include <assert.h>

static bool selective(const struct tr_rank *rank)
{
    return rank->layout.recompute == PL_RECOMPUTE_SELECTIVE;
}

static enum kn_act act_form(const struct tr_rank *rank)
{
    enum pl_mlp mlp = rank->model.mlp;

    assert(mlp == PL_GELU || mlp == PL_GELU_TANH || mlp == PL_RELU2);
    return mlp == PL_GELU ? KN_GELU_ERF : mlp == PL_GELU_TANH ? KN_GELU_TANH : KN_RELU2;
}

void tr_glu_fwd(struct tr_rank *rank, void *y, const char *gu, uint64_t rows, uint64_t ffn)
{
    enum pl_mlp mlp = rank->model.mlp;

    assert(mlp == PL_GEGLU || mlp == PL_SWIGLU || mlp == PL_SWIGLU_CLAMPED);
    (mlp == PL_GEGLU    ? kn_geglu_fwd
     : mlp == PL_SWIGLU ? kn_swiglu_fwd
                        : kn_swiglu_clamped_fwd)(rank->pool, rank->type, y, ffn, gu, 2 * ffn,
                                                 gu + ffn * rank->d.elem, 2 * ffn, rows, ffn);
}

void tr_glu_bwd(struct tr_rank *rank, char *gu, const void *dy, uint64_t rows, uint64_t ffn)
{
    enum pl_mlp mlp = rank->model.mlp;
    char *up = gu + ffn * rank->d.elem;

    assert(mlp == PL_GEGLU || mlp == PL_SWIGLU || mlp == PL_SWIGLU_CLAMPED);
    (mlp == PL_GEGLU    ? kn_geglu_bwd
     : mlp == PL_SWIGLU ? kn_swiglu_bwd
                        : kn_swiglu_clamped_bwd)(rank->pool, rank->type, gu, 2 * ffn, up, 2 * ffn,
                                                 dy, ffn, gu, 2 * ffn, up, 2 * ffn, rows, ffn);
}

static void activation(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       uint64_t ffn)
{
    char *gu = tr_act(rank, layer, slot, PL_ACT_GU);

    if (rank->d.gates == 1) {
        kn_act_fwd(rank->pool, rank->type, tr_act(rank, layer, slot, PL_ACT_A), ffn, gu, ffn,
                   layer->gu_bias.w, rank->d.rows, ffn, act_form(rank));
        return;
    }
    tr_glu_fwd(rank, tr_act(rank, layer, slot, PL_ACT_A), gu, rank->d.rows, ffn);
}

/* Where the first half of a split backward pass leaves the gradient of up's bias without a gate;
 * NULL: there is none, or no split (KEEP is NULL). */
static float *kept_dbias(const struct tr_layer *layer, char *keep)
{
    return keep && layer->gu_bias.w ? (float *)(void *)(keep + layer->keep.dbias) : NULL;
}

/* The gradients of gate and up overwrite them: the activations are not read again. That of their
 * bias is added, too; with KEEP, later. */
static void activation_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                           char *keep, uint64_t ffn)
{
    const struct pl_dims *d = &rank->d;
    char *gu = tr_act(rank, layer, slot, PL_ACT_GU), *dy = rank->work.dao;

    if (d->gates == 1) {
        struct tr_grad_sum dbias = {.sum = kept_dbias(layer, keep)};

        if (keep && dbias.sum)
            kn_zero(rank->pool, dbias.sum, ffn * sizeof(*dbias.sum));
        if (!keep)
            tr_grad_sum_begin(&dbias, rank, layer->gu_bias.g, ffn, 0);
        kn_act_bwd(rank->pool, rank->type, gu, ffn, dbias.sum, dy, ffn, gu, ffn, layer->gu_bias.w,
                   d->rows, ffn, act_form(rank));
        tr_grad_sum_end(rank, &dbias);
        return;
    }
    tr_glu_bwd(rank, gu, dy, d->rows, ffn);
    if (!keep)
        tr_bias_bwd(rank, &layer->gu_bias, gu, d->rows, 2 * ffn);
}

const void *tr_ffn_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       uint64_t ffn, bool all)
{
    const struct pl_dims *d = &rank->d;

    assert(ffn == (layer->moe ? d->shared_ffn : d->ffn)); /* the widths that GU and A are for */
    tr_gather_linear(rank, tr_act(rank, layer, slot, PL_ACT_GU),
                     tr_act(rank, layer, slot, PL_ACT_H2), layer->gu.w, d->gates * ffn);
    if (d->gates == 2)
        tr_bias_fwd(rank, &layer->gu_bias, tr_act(rank, layer, slot, PL_ACT_GU), d->rows, 2 * ffn);
    activation(rank, layer, slot, ffn);
    if (!all)
        return NULL;
    return tr_linear_reduce(rank, tr_act(rank, layer, slot, PL_ACT_A), layer->down.w, ffn);
}

static struct tr_residual residual(const struct tr_rank *rank, const struct tr_layer *layer,
                                   struct tr_slot slot)
{
    return (struct tr_residual){&layer->post2, &layer->down_bias,
                                tr_act(rank, layer, slot, PL_ACT_Y2),
                                tr_act(rank, layer, slot, PL_ACT_YRRMS2)};
}

void tr_mlp_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, void *out)
{
    struct tr_residual end = residual(rank, layer, slot);
    bool whole = out || end.post->scale.w; /* whose backward pass needs the output */
    const void *sum;

    tr_norm2(rank, layer, slot);
    sum = tr_ffn_fwd(rank, layer, slot, rank->d.ffn, whole);
    if (whole)
        tr_residual(rank, &end, out, tr_act(rank, layer, slot, PL_ACT_X2), sum);
}

static void dw_down(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                    uint64_t ffn, const void *dy)
{
    tr_linear_dw(rank, layer->down.g, dy, tr_act(rank, layer, slot, PL_ACT_A), rank->d.rows, ffn,
                 rank->d.hidden);
}

/* Start to gather the input of gate and up ... */
static void gather_input(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    if (selective(rank))
        tr_norm2_again(rank, layer, slot);
    tr_gather_ahead(rank, tr_act(rank, layer, slot, PL_ACT_H2));
}

/* ... for their gradients. */
static void dw_gu(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  uint64_t ffn)
{
    tr_linear_dw(rank, layer->gu.g, tr_act(rank, layer, slot, PL_ACT_GU), tr_gather_finish(rank),
                 rank->d.rows, rank->d.hidden, rank->d.gates * ffn);
}

const void *tr_ffn_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       char *keep, uint64_t ffn, const void *grad)
{
    const struct pl_dims *z = &rank->d;
    const void *dy;

    assert(ffn == (layer->moe ? z->shared_ffn : z->ffn));
    if (selective(rank) && !keep)
        activation(rank, layer, slot, ffn);
    dy = tr_gather_linear_dx(rank, rank->work.dao, grad, layer->down.w, ffn);
    if (keep) {
        kn_copy(rank->pool, keep + layer->keep.dy, grad, z->local_rows * z->hidden * z->elem);
    } else {
        dw_down(rank, layer, slot, ffn, dy);
        gather_input(rank, layer, slot);
    }
    activation_bwd(rank, layer, slot, keep, ffn);
    tr_linear_dx_reduce(rank, tr_act(rank, layer, slot, PL_ACT_GU), layer->gu.w, z->gates * ffn);
    if (!keep)
        dw_gu(rank, layer, slot, ffn);
    return tr_linear_dx_reduced(rank);
}

static void add_dbias(struct tr_rank *rank, const struct tr_layer *layer, const float *dbias,
                      uint64_t ffn)
{
    struct tr_grad_sum sum;

    tr_grad_sum_begin(&sum, rank, layer->gu_bias.g, ffn, 0);
    kn_combine(rank->pool, sum.sum, NULL, 1, sum.sum, 1, dbias, ffn);
    tr_grad_sum_end(rank, &sum);
}

void tr_ffn_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep,
               uint64_t ffn)
{
    dw_down(rank, layer, slot, ffn, tr_gather_rows(rank, keep + layer->keep.dy));
    gather_input(rank, layer, slot);
    dw_gu(rank, layer, slot, ffn);
    if (rank->d.gates == 2)
        tr_bias_bwd(rank, &layer->gu_bias, tr_act(rank, layer, slot, PL_ACT_GU), rank->d.rows,
                    2 * ffn);
    else if (layer->gu_bias.w)
        add_dbias(rank, layer, kept_dbias(layer, keep), ffn);
}

void tr_mlp_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep,
                void *grad)
{
    struct tr_residual end = residual(rank, layer, slot);
    const void *dy = tr_residual_bwd(rank, &end, grad),
               *dh = tr_ffn_bwd(rank, layer, slot, keep, rank->d.ffn, dy);

    tr_norm2_bwd(rank, layer, slot, grad, dh);
}

void tr_mlp_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep)
{
    tr_ffn_dw(rank, layer, slot, keep, rank->d.ffn);
}
