/*
 * out = x2 + sum over the token's top k experts of w_e expert_e(norm(x2)), an expert being a gated
 * MLP, perhaps with biases [+ the shared experts, perhaps weighed by a gate]. What is added to x2
 * may have a factor.
 *
 * Biases are products with a column of ones, grouped like the others; each rank of etp adds that of
 * the output to its own columns of its slice.
 *
 * Buffers by stage, with p = members of the group that tokens travel in:
 *   p = 1   sorted rows are the experts' input, their output is what the tokens gather from
 *   p > 1   sorted rows are in moe_send and travel to EX; outputs are in moe_recv and travel back
 *           to EY; the backward pass goes the same two ways with gradients
 *
 * With overlap the gradients of w1 and w3 are delayed: nothing waits for them, so they are computed
 * expert by expert when this rank would wait for rows. That hides an exchange behind them, and lets
 * a rank with more rows in one layer catch up while the others wait for it. What they are made of
 * stays in the slot until the micro-batch has passed backwards, so they take no memory; where it
 * does not stay (full recomputation), or where gradients leave with the layer (windows), they are
 * delayed to the end of the layer only.
 */
#include "base/base.h"
#include "trainer/dispatch.h"
#include "trainer/layer.h"

#include <assert.h>

static bool travels(const struct tr_rank *rank)
{
    return rank->comms.moe.size > 1;
}

/* Weight matrices of the experts here: w1 and w3 as one (2 f, hidden), and w2 (hidden, f). */
static void *w13(const struct tr_layer *layer)
{
    return layer->expert.w;
}

static size_t w2_at(const struct tr_rank *rank)
{
    return 2 * rank->d.expert_ffn * rank->d.hidden;
}

/* EXPERTS with all their rows here. Offsets of rows count from the first expert's, weights (B, or
 * with ta their gradients C) are given for the first expert and STRIDE elements apart. */
static void grouped_by(struct tr_rank *rank, const struct tr_route *route,
                       struct tr_experts experts, enum kn_type out, struct kn_gemm gemm,
                       uint64_t stride)
{
    assert(experts.first < experts.end && experts.end <= rank->d.local_experts);
    gemm.ct = out;
    gemm.at = gemm.bt = rank->type;
    if (gemm.ta)
        gemm.c = tr_grad_at(&rank->params, gemm.c, experts.first * stride);
    else
        gemm.b = (const char *)gemm.b + experts.first * stride * rank->d.elem;
    kn_gemm_grouped(rank->pool, &gemm, experts.end - experts.first, route->recv + experts.first,
                    stride);
}

static void grouped(struct tr_rank *rank, const struct tr_route *route, struct tr_experts experts,
                    enum kn_type out, struct kn_gemm gemm)
{
    grouped_by(rank, route, experts, out, gemm, 3 * rank->d.expert_ffn * rank->d.hidden);
}

/* Biases BIAS, of WIDTH elements STRIDE apart, to the rows Y of TYPE in rows of LD. */
static void bias_fwd(struct tr_rank *rank, const struct tr_route *route, struct tr_experts experts,
                     const struct tr_weight *bias, uint64_t width, uint64_t stride, void *y,
                     enum kn_type type, uint64_t ld)
{
    if (bias->w && width)
        grouped_by(rank, route, experts, type,
                   (struct kn_gemm){.a = rank->work.ones,
                                    .lda = 1,
                                    .b = bias->w,
                                    .ldb = width,
                                    .c = y,
                                    .ldc = ld,
                                    .n = width,
                                    .k = 1,
                                    .beta = 1.0f},
                   stride);
}

/* Their gradients from the rows DY. */
static void bias_bwd(struct tr_rank *rank, const struct tr_route *route, struct tr_experts experts,
                     const struct tr_weight *bias, uint64_t width, uint64_t stride, const void *dy,
                     uint64_t ld)
{
    if (bias->w && width)
        grouped_by(rank, route, experts, rank->params.grad_type,
                   (struct kn_gemm){.a = rank->work.ones,
                                    .lda = 1,
                                    .b = dy,
                                    .ldb = ld,
                                    .c = bias->g,
                                    .ldc = width,
                                    .m = 1,
                                    .n = width,
                                    .ta = true,
                                    .beta = 1.0f},
                   stride);
}

static uint64_t rows_of(const struct tr_route *route, struct tr_experts experts)
{
    assert(route->recv[experts.first] <= route->recv[experts.end]);
    return (uint64_t)(route->recv[experts.end] - route->recv[experts.first]);
}

/* Rows of EXPERTS in activation ACT, WIDTH elements each. */
static char *rows_at(const struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     enum pl_act act, const struct tr_route *route, struct tr_experts experts,
                     uint64_t width)
{
    return (char *)tr_act(rank, layer, slot, act) +
           (uint64_t)route->recv[experts.first] * width * rank->d.elem;
}

static void activation(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       const struct tr_route *route, struct tr_experts experts)
{
    uint64_t f = rank->d.expert_ffn;

    tr_glu_fwd(rank, rows_at(rank, layer, slot, PL_ACT_EA, route, experts, f),
               rows_at(rank, layer, slot, PL_ACT_EGU, route, experts, 2 * f),
               rows_of(route, experts), f);
}

static void experts_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                        const struct tr_route *route, struct tr_experts experts, void *out)
{
    uint64_t f = rank->d.expert_ffn, h = rank->d.hidden;
    const char *w = w13(layer);

    grouped(rank, route, experts, rank->type,
            (struct kn_gemm){.a = tr_act(rank, layer, slot, PL_ACT_EX),
                             .lda = h,
                             .b = w,
                             .ldb = h,
                             .tb = true,
                             .c = tr_act(rank, layer, slot, PL_ACT_EGU),
                             .ldc = 2 * f,
                             .n = 2 * f,
                             .k = h});
    bias_fwd(rank, route, experts, &layer->expert_gu_bias, 2 * f, 2 * f,
             tr_act(rank, layer, slot, PL_ACT_EGU), rank->type, 2 * f);
    activation(rank, layer, slot, route, experts);
    grouped(rank, route, experts, tr_slice_type(rank),
            (struct kn_gemm){.a = tr_act(rank, layer, slot, PL_ACT_EA),
                             .lda = f,
                             .b = w + w2_at(rank) * rank->d.elem,
                             .ldb = f,
                             .tb = true,
                             .c = out,
                             .ldc = h,
                             .n = h,
                             .k = f});
    bias_fwd(rank, route, experts, &layer->expert_down_bias, layer->out.count, layer->out.held,
             (char *)out + layer->out.first * kn_type_size(tr_slice_type(rank)),
             tr_slice_type(rank), h);
}

static void dw_2(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                 const struct tr_route *route, struct tr_experts experts, const void *dy)
{
    uint64_t f = rank->d.expert_ffn, h = rank->d.hidden;

    grouped(rank, route, experts, rank->params.grad_type,
            (struct kn_gemm){.a = dy,
                             .lda = h,
                             .b = tr_act(rank, layer, slot, PL_ACT_EA),
                             .ldb = f,
                             .c = tr_grad_at(&rank->params, layer->expert.g, w2_at(rank)),
                             .ldc = f,
                             .m = h,
                             .n = f,
                             .ta = true,
                             .beta = 1.0f});
    bias_bwd(rank, route, experts, &layer->expert_down_bias, layer->out.count, layer->out.held,
             (const char *)dy + layer->out.first * rank->d.elem, h);
}

/* EGU holds the gradient of gate and up by now. */
static void dw_13(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                  const struct tr_route *route, struct tr_experts experts)
{
    uint64_t f = rank->d.expert_ffn, h = rank->d.hidden;

    grouped(rank, route, experts, rank->params.grad_type,
            (struct kn_gemm){.a = tr_act(rank, layer, slot, PL_ACT_EGU),
                             .lda = 2 * f,
                             .b = tr_act(rank, layer, slot, PL_ACT_EX),
                             .ldb = h,
                             .c = layer->expert.g,
                             .ldc = h,
                             .m = 2 * f,
                             .n = h,
                             .ta = true,
                             .beta = 1.0f});
    bias_bwd(rank, route, experts, &layer->expert_gu_bias, 2 * f, 2 * f,
             tr_act(rank, layer, slot, PL_ACT_EGU), 2 * f);
}

/* The gradients of w1 and w3 of a layer are to be computed. */
static void wgrad_put(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot)
{
    assert(rank->wgrad_end < rank->moe_here);
    rank->wgrad[rank->wgrad_end++] = (struct tr_wgrad){layer, slot, 0};
}

/* Those of up to COUNT experts of one layer; false if none are left. In the order in which layers
 * were put, so that a weight gets its micro-batches in their order. */
static bool wgrad_some(struct tr_rank *rank, uint64_t count)
{
    struct tr_wgrad *w = &rank->wgrad[rank->wgrad_first];
    struct tr_experts experts;
    struct tr_route route;

    if (rank->wgrad_first == rank->wgrad_end)
        return false;
    experts = (struct tr_experts){w->expert, w->expert + count};
    if (experts.end > rank->d.local_experts)
        experts.end = rank->d.local_experts;
    route = tr_route(rank, w->layer, w->slot);
    dw_13(rank, w->layer, w->slot, &route, experts);
    w->expert = experts.end;
    if (w->expert == rank->d.local_experts && ++rank->wgrad_first == rank->wgrad_end)
        rank->wgrad_first = rank->wgrad_end = 0;
    return true;
}

void tr_moe_wgrad(struct tr_rank *rank)
{
    while (wgrad_some(rank, rank->d.local_experts))
        ;
}

/* They may be computed after the layer. */
static bool outlasts(const struct tr_layer *layer)
{
    return layer->acts->saved[PL_ACT_EX] && layer->acts->saved[PL_ACT_EGU] && layer->bucket[1] < 0;
}

/* From DY (rows, hidden), gradient of the outputs, to DX, that of the inputs, which may be the same
 * array. The gradient of w1 and w3 is left to the caller. */
static void experts_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                        const struct tr_route *route, struct tr_experts experts, const void *dy,
                        void *dx, bool with_dw)
{
    uint64_t f = rank->d.expert_ffn, h = rank->d.hidden;
    const char *w = w13(layer),
               *dea = rank->work.moe_dea + (uint64_t)route->recv[experts.first] * f * rank->d.elem;
    char *gu = rows_at(rank, layer, slot, PL_ACT_EGU, route, experts, 2 * f);

    if (rank->layout.recompute == PL_RECOMPUTE_SELECTIVE && with_dw)
        activation(rank, layer, slot, route, experts);
    grouped(rank, route, experts, rank->type,
            (struct kn_gemm){.a = dy,
                             .lda = h,
                             .b = w + w2_at(rank) * rank->d.elem,
                             .ldb = f,
                             .c = rank->work.moe_dea,
                             .ldc = f,
                             .n = f,
                             .k = h});
    if (with_dw)
        dw_2(rank, layer, slot, route, experts, dy);
    tr_glu_bwd(rank, gu, dea, rows_of(route, experts), f);
    grouped(rank, route, experts, tr_slice_type(rank),
            (struct kn_gemm){.a = tr_act(rank, layer, slot, PL_ACT_EGU),
                             .lda = 2 * f,
                             .b = w,
                             .ldb = h,
                             .c = dx,
                             .ldc = h,
                             .n = h,
                             .k = 2 * f});
}

/*
 * The gate of the shared experts is a router of one expert that every token meets: its sigmoid is
 * the weight of that expert's output.
 */
static const struct kn_router gate_router = {
    .experts = 1, .k = 1, .score = KN_SIGMOID, .dealt = true, .scale = 1, .groups = 1, .met = 1};

/* out += sigmoid(H2 gate) SHARED, which is kept for the way back; OUT NULL: only that. */
static void gate_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     const void *shared, void *out)
{
    const struct pl_dims *d = &rank->d;
    float *score = tr_act(rank, layer, slot, PL_ACT_GATE), *w = score + d->local_rows;
    void *kept = tr_act(rank, layer, slot, PL_ACT_SHARED);
    struct kn_gemm g = {.m = d->local_rows,
                        .n = 1,
                        .k = d->hidden,
                        .a = tr_act(rank, layer, slot, PL_ACT_H2),
                        .b = layer->shared_gate.w,
                        .c = rank->work.gate_logit,
                        .lda = d->hidden,
                        .ldb = d->hidden,
                        .ldc = 1,
                        .tb = true,
                        .at = rank->type,
                        .bt = rank->type};

    kn_copy(rank->pool, kept, shared, d->local_rows * d->hidden * d->elem);
    kn_gemm(rank->pool, &g);
    kn_router_fwd(rank->pool, &gate_router, score, rank->work.gate_zero, w, rank->work.gate_logit,
                  d->local_rows);
    if (out)
        kn_unpermute(rank->pool, rank->type, out, kept, rank->work.gate_place, w, d->local_rows, 1,
                     d->hidden, true);
}

/* From GRAD, of the layer's output, to that of the shared experts' output, in work.gate, and of the
 * gate's logits. */
static void gate_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                     const void *grad)
{
    const struct pl_dims *d = &rank->d;
    const float *score = tr_act(rank, layer, slot, PL_ACT_GATE), *w = score + d->local_rows;

    kn_unpermute_bwd(rank->pool, rank->type, rank->work.gate, rank->work.gate_dw, grad,
                     tr_act(rank, layer, slot, PL_ACT_SHARED), rank->work.gate_place, w,
                     d->local_rows, 1, d->hidden);
    kn_router_bwd(rank->pool, &gate_router, rank->work.gate_logit, rank->work.gate_dw, NULL, score,
                  rank->work.gate_zero, w, d->local_rows);
}

/* From the gradient of its logits: DH += that of H2, and the gate's own. */
static void gate_weight_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                            void *dh)
{
    const struct pl_dims *d = &rank->d;
    struct kn_gemm gw = {.m = 1,
                         .n = d->hidden,
                         .k = d->local_rows,
                         .a = rank->work.gate_logit,
                         .b = tr_act(rank, layer, slot, PL_ACT_H2),
                         .c = layer->shared_gate.g,
                         .lda = 1,
                         .ldb = d->hidden,
                         .ldc = d->hidden,
                         .ta = true,
                         .beta = 1.0f,
                         .bt = rank->type,
                         .ct = rank->params.grad_type};
    struct kn_gemm gx = {.m = d->local_rows,
                         .n = d->hidden,
                         .k = 1,
                         .a = rank->work.gate_logit,
                         .b = layer->shared_gate.w,
                         .c = dh,
                         .lda = 1,
                         .ldb = d->hidden,
                         .ldc = d->hidden,
                         .beta = 1.0f,
                         .bt = rank->type,
                         .ct = rank->type};

    kn_gemm(rank->pool, &gw);
    kn_gemm(rank->pool, &gx);
}

/* out = x2 [+ the shared experts], to which the routed ones are added; with a multiplier of outputs
 * without x2. */
static void base(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, void *out)
{
    const void *x2 = tr_act(rank, layer, slot, PL_ACT_X2), *shared;
    uint64_t n = rank->d.local_rows * rank->d.hidden;
    bool gated = layer->shared_gate.w != NULL, scaled = pl_residual_is_scaled(&rank->model);

    if (out && (!rank->d.shared_ffn || gated) && !scaled)
        kn_copy(rank->pool, out, x2, n * rank->d.elem);
    if (out && (!rank->d.shared_ffn || gated) && scaled)
        kn_zero(rank->pool, out, n * rank->d.elem);
    if (!rank->d.shared_ffn)
        return;
    shared = tr_ffn_fwd(rank, layer, slot, rank->d.shared_ffn, out || gated);
    if (gated)
        gate_fwd(rank, layer, slot, shared, out);
    else if (out && scaled)
        kn_copy(rank->pool, out, shared, n * rank->d.elem);
    else if (out)
        kn_add(rank->pool, rank->type, out, x2, shared, n);
}

void tr_moe_fwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, void *out)
{
    const struct pl_dims *d = &rank->d;
    struct tr_route t = tr_route(rank, layer, slot);
    int32_t *src = tr_act(rank, layer, slot, PL_ACT_SRC),
            *place = tr_act(rank, layer, slot, PL_ACT_PLACE);
    void *ex = tr_act(rank, layer, slot, PL_ACT_EX), *ey = tr_act(rank, layer, slot, PL_ACT_EY);
    void *sorted = travels(rank) ? (void *)rank->work.moe_send : ex;
    void *made = travels(rank) ? (void *)rank->work.moe_recv : ey;

    tr_norm2(rank, layer, slot);
    tr_router_fwd(rank, layer, slot, out != NULL);
    kn_sort_by_key(t.send, src, place, tr_act(rank, layer, slot, PL_ACT_IDX), d->choices,
                   d->experts);
    kn_permute(rank->pool, rank->type, sorted, tr_act(rank, layer, slot, PL_ACT_H2), src,
               d->choices, d->top_k, d->hidden);
    tr_route_exchange(rank, &t);
    tr_dispatch_start(rank, &t, ex, sorted);
    for (int part = 0; part < tr_moe_parts(rank); part++) {
        tr_dispatch_wait(rank, part);
        experts_fwd(rank, layer, slot, &t, tr_moe_part(rank, part), made);
        tr_collect_start(rank, &t, ey, made, part);
    }
    if (!rank->layout.overlap_moe_a2a)
        tr_collect_finish(rank, ey);
    base(rank, layer, slot, out);
    if (rank->layout.overlap_moe_a2a)
        tr_collect_finish(rank, ey);
    if (out)
        kn_unpermute(rank->pool, rank->type, out, ey, place, tr_act(rank, layer, slot, PL_ACT_W),
                     d->local_rows, d->top_k, d->hidden, true);
    if (out && pl_residual_is_scaled(&rank->model))
        tr_add_output(rank, out, tr_act(rank, layer, slot, PL_ACT_X2), out);
}

/* Gradients of the routed experts: DH (local_rows, hidden) = [DH +] that of H2. */
static void routed_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot,
                       char *keep, const void *grad, bool add)
{
    const struct pl_dims *z = &rank->d;
    struct tr_route t = tr_route(rank, layer, slot);
    const int32_t *place = tr_act(rank, layer, slot, PL_ACT_PLACE);
    float *dw = rank->work.moe_router + 2 * z->local_rows * z->experts;
    char *dx = travels(rank) ? rank->work.moe_recv : rank->work.moe_send;
    char *dy = keep ? keep + layer->keep.dey : dx,
         *sorted = travels(rank) ? rank->work.moe_send : dy;

    kn_unpermute_bwd(rank->pool, rank->type, sorted, dw, grad, tr_act(rank, layer, slot, PL_ACT_EY),
                     place, tr_act(rank, layer, slot, PL_ACT_W), z->local_rows, z->top_k,
                     z->hidden);
    tr_dispatch_start(rank, &t, dy, sorted);
    for (int part = 0; part < tr_moe_parts(rank); part++) {
        while (!tr_dispatch_arrived(rank, part) && wgrad_some(rank, 1))
            ;
        tr_dispatch_wait(rank, part);
        experts_bwd(rank, layer, slot, &t, tr_moe_part(rank, part), dy, dx, !keep);
        tr_collect_start(rank, &t, rank->work.moe_send, dx, part);
    }
    if (!keep)
        wgrad_put(rank, layer, slot);
    while (rank->layout.overlap_moe_a2a && !tr_collect_arrived(rank) && wgrad_some(rank, 1))
        ;
    tr_collect_finish(rank, rank->work.moe_send);
    if (!rank->layout.overlap_moe_a2a || !outlasts(layer))
        tr_moe_wgrad(rank);
    kn_unpermute(rank->pool, rank->type, rank->work.dh, rank->work.moe_send, place, NULL,
                 z->local_rows, z->top_k, z->hidden, add);
    if (rank->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        tr_norm2_again(rank, layer, slot);
    tr_router_bwd(rank, layer, slot, dw, rank->work.dh);
    if (layer->shared_gate.w)
        gate_weight_bwd(rank, layer, slot, rank->work.dh);
}

void tr_moe_bwd(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep,
                void *grad)
{
    const struct pl_dims *z = &rank->d;
    const void *out = tr_output_grad(rank, grad);

    if (z->shared_ffn) {
        const void *dy = layer->shared_gate.w ? rank->work.gate : out, *dh;

        if (layer->shared_gate.w)
            gate_bwd(rank, layer, slot, out);
        dh = tr_ffn_bwd(rank, layer, slot, keep, z->shared_ffn, dy);

        if (dh != rank->work.dh)
            kn_copy(rank->pool, rank->work.dh, dh, z->local_rows * z->hidden * z->elem);
    }
    routed_bwd(rank, layer, slot, keep, out, z->shared_ffn > 0);
    tr_norm2_bwd(rank, layer, slot, grad, rank->work.dh);
}

void tr_moe_dw(struct tr_rank *rank, const struct tr_layer *layer, struct tr_slot slot, char *keep)
{
    struct tr_route t = tr_route(rank, layer, slot);
    struct tr_experts all = {0, rank->d.local_experts};

    if (rank->d.shared_ffn)
        tr_ffn_dw(rank, layer, slot, keep, rank->d.shared_ffn);
    dw_2(rank, layer, slot, &t, all, keep + layer->keep.dey);
    dw_13(rank, layer, slot, &t, all);
}
