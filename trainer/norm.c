/* A norm of rows by the model's kind. */
#include "trainer/grad_sum.h"
#include "trainer/layer.h"

#include <assert.h>

float tr_norm_offset(const struct tr_rank *rank)
{
    return rank->model.zero_centered_norm ? 1.0f : 0.0f;
}

void tr_norm_fwd(struct tr_rank *rank, const struct tr_norm *norm, void *y, float *stats,
                 const void *x)
{
    const struct pl_dims *d = &rank->d;
    float eps = (float)rank->model.norm_eps;

    assert((rank->model.norm == PL_LAYERNORM) == (d->stats == 2));
    if (rank->model.norm == PL_LAYERNORM)
        kn_layernorm_fwd(rank->pool, rank->type, y, stats, x, norm->scale.w, norm->bias.w,
                         d->local_rows, d->hidden, eps, tr_norm_offset(rank));
    else
        kn_rmsnorm_fwd(rank->pool, rank->type, y, stats, x, norm->scale.w, d->local_rows, d->hidden,
                       eps, tr_norm_offset(rank));
}

void tr_norm_bwd(struct tr_rank *rank, const struct tr_norm *norm, void *dx, const void *dy,
                 const void *x, const float *stats, bool add)
{
    const struct pl_dims *d = &rank->d;
    struct tr_grad_sum scale, bias = {0};

    tr_grad_sum_begin(&scale, rank, norm->scale.g, d->hidden, 0);
    if (norm->bias.w)
        tr_grad_sum_begin(&bias, rank, norm->bias.g, d->hidden, d->hidden);
    if (rank->model.norm == PL_LAYERNORM) {
        kn_layernorm_bwd(rank->pool, rank->type, dx, scale.sum, bias.sum, dy, x, norm->scale.w,
                         stats, d->local_rows, d->hidden, add, tr_norm_offset(rank));
        tr_grad_sum_end(rank, &bias);
    } else {
        kn_rmsnorm_bwd(rank->pool, rank->type, dx, scale.sum, dy, x, norm->scale.w, stats,
                       d->local_rows, d->hidden, add, tr_norm_offset(rank));
    }
    tr_grad_sum_end(rank, &scale);
}

/* GRAD += DH, where an input goes on without a norm. */
static void add_grad(struct tr_rank *rank, void *grad, const void *dh)
{
    kn_add(rank->pool, rank->type, grad, grad, dh, rank->d.local_rows * rank->d.hidden);
}

void tr_norm1(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    if (rank->model.pre_norms)
        tr_norm_fwd(rank, &layer->norm1, tr_act(rank, layer, slot, PL_ACT_H1),
                    tr_act(rank, layer, slot, PL_ACT_RRMS1), tr_act(rank, layer, slot, PL_ACT_X));
}

void tr_norm1_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *grad, const void *dh)
{
    if (rank->model.shared_norm) {
        add_grad(rank, rank->work.dx2, dh);
        dh = rank->work.dx2;
    }
    if (!rank->model.pre_norms)
        add_grad(rank, grad, dh);
    else
        tr_norm_bwd(rank, &layer->norm1, grad, dh, tr_act(rank, layer, slot, PL_ACT_X),
                    tr_act(rank, layer, slot, PL_ACT_RRMS1), true);
}

static const void *norm2_input(struct tr_rank *rank, const struct tr_layer *layer,
                               struct tr_slot slot)
{
    return tr_act(rank, layer, slot, rank->model.parallel_block ? PL_ACT_X : PL_ACT_X2);
}

void tr_norm2(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    if (pl_input_norms(&rank->model) > 1)
        tr_norm_fwd(rank, &layer->norm2, tr_act(rank, layer, slot, PL_ACT_H2),
                    tr_act(rank, layer, slot, PL_ACT_RRMS2), norm2_input(rank, layer, slot));
}

void tr_norm2_again(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    if (rank->model.shared_norm)
        tr_norm1(rank, layer, slot);
    else
        tr_norm2(rank, layer, slot);
}

void tr_norm2_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  void *grad, const void *dh)
{
    bool parallel = rank->model.parallel_block;

    assert(rank->model.pre_norms || !parallel);
    if (!rank->model.pre_norms) {
        add_grad(rank, grad, dh);
        return;
    }
    if (rank->model.shared_norm) {
        kn_copy(rank->pool, rank->work.dx2, dh, rank->d.local_rows * rank->d.hidden * rank->d.elem);
        return;
    }
    tr_norm_bwd(rank, &layer->norm2, parallel ? rank->work.dx2 : grad, dh,
                norm2_input(rank, layer, slot), tr_act(rank, layer, slot, PL_ACT_RRMS2), !parallel);
}

void tr_add_output(struct tr_rank *rank, void *out, const void *x, const void *y)
{
    size_t n = rank->d.local_rows * rank->d.hidden;

    if (pl_residual_is_scaled(&rank->model))
        kn_add_scaled(rank->pool, rank->type, out, x, (float)rank->model.residual_multiplier, y, n);
    else
        kn_add(rank->pool, rank->type, out, x, y, n);
}

const void *tr_output_grad(struct tr_rank *rank, const void *grad)
{
    if (!pl_residual_is_scaled(&rank->model))
        return grad;
    assert(!rank->model.parallel_block); /* which has a gradient in work.dx2 */
    kn_add_scaled(rank->pool, rank->type, rank->work.dx2, NULL,
                  (float)rank->model.residual_multiplier, grad,
                  rank->d.local_rows * rank->d.hidden);
    return rank->work.dx2;
}

void tr_residual(struct tr_rank *rank, const struct tr_residual *block, void *out, const void *x,
                 const void *sum)
{
    size_t n = rank->d.local_rows * rank->d.hidden;

    if (!block->post->scale.w && pl_residual_is_scaled(&rank->model)) {
        if (block->bias->w)
            kn_bias_fwd(rank->pool, rank->type, out, sum, block->bias->w, rank->d.local_rows,
                        rank->d.hidden);
        tr_add_output(rank, out, x, block->bias->w ? out : sum);
        return;
    }
    if (!block->post->scale.w) {
        kn_add(rank->pool, rank->type, out, x, sum, n);
        tr_bias_fwd(rank, block->bias, out, rank->d.local_rows, rank->d.hidden);
        return;
    }
    kn_copy(rank->pool, block->y, sum, n * rank->d.elem);
    tr_bias_fwd(rank, block->bias, block->y, rank->d.local_rows, rank->d.hidden);
    tr_norm_fwd(rank, block->post, out ? out : rank->work.dx2, block->stats, block->y);
    if (out)
        tr_add_output(rank, out, x, out);
}

const void *tr_residual_bwd(struct tr_rank *rank, const struct tr_residual *block, const void *grad)
{
    const void *dy = tr_output_grad(rank, grad);

    if (block->post->scale.w) {
        tr_norm_bwd(rank, block->post, rank->work.dx2, dy, block->y, block->stats, false);
        dy = rank->work.dx2;
    }
    tr_bias_bwd(rank, block->bias, dy, rank->d.local_rows, rank->d.hidden);
    return dy;
}

void tr_bias_fwd(struct tr_rank *rank, const struct tr_weight *bias, void *y, uint64_t rows,
                 uint64_t dim)
{
    if (bias->w)
        kn_bias_fwd(rank->pool, rank->type, y, y, bias->w, rows, dim);
}

void tr_bias_bwd(struct tr_rank *rank, const struct tr_weight *bias, const void *dy, uint64_t rows,
                 uint64_t dim)
{
    struct tr_grad_sum sum;

    if (!bias->w)
        return;
    tr_grad_sum_begin(&sum, rank, bias->g, dim, 0);
    kn_bias_bwd(rank->pool, rank->type, sum.sum, dy, rows, dim);
    tr_grad_sum_end(rank, &sum);
}
