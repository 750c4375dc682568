/*
 * out = x2 + sum over the token's top k experts of w_e expert_e(norm(x2)), an expert being a SwiGLU
 * MLP.
 *
 * Buffers by stage, with p = members of the group that tokens travel in:
 *   p = 1   sorted rows are the experts' input, their output is what the tokens gather from
 *   p > 1   sorted rows stand in moe_send, travel to EX; outputs stand in moe_recv, travel back to
 * EY; the backward pass goes the same two ways with gradients
 */
#include "base/base.h"
#include "trainer/layer.h"

static bool travels(const struct tr_rank *r)
{
    return r->comms.moe.size > 1;
}

/* Weight matrices of the experts here: w1 and w3 as one (2 f, hidden), and w2 (hidden, f). */
static void *w13(const struct tr_layer *y)
{
    return y->expert.w;
}

static size_t w2_at(const struct tr_rank *r)
{
    return 2 * r->d.expert_ffn * r->d.hidden;
}

/* Experts X with all their rows here. Offsets of rows count from the first expert's, weights (B, or
 * with ta their gradients C) are given for the first expert. */
static void grouped(struct tr_rank *r, const struct tr_route *t, struct tr_experts x,
                    enum kn_type out, struct kn_gemm g)
{
    uint64_t stride = 3 * r->d.expert_ffn * r->d.hidden;

    g.ct = out;
    g.at = g.bt = r->type;
    if (g.ta)
        g.c = (float *)g.c + x.first * stride;
    else
        g.b = (const char *)g.b + x.first * stride * r->d.elem;
    kn_gemm_grouped(r->pool, &g, x.end - x.first, t->recv + x.first, stride);
}

static uint64_t rows_of(const struct tr_route *t, struct tr_experts x)
{
    return (uint64_t)(t->recv[x.end] - t->recv[x.first]);
}

/* Rows of X in activation A, WIDTH elements each. */
static char *rows_at(const struct tr_rank *r, const struct tr_layer *y, char *slot, enum pl_act a,
                     const struct tr_route *t, struct tr_experts x, uint64_t width)
{
    return (char *)tr_act(r, y, slot, a) + (uint64_t)t->recv[x.first] * width * r->d.elem;
}

static void swiglu(struct tr_rank *r, const struct tr_layer *y, char *slot,
                   const struct tr_route *t, struct tr_experts x)
{
    uint64_t f = r->d.expert_ffn;
    char *gu = rows_at(r, y, slot, PL_ACT_EGU, t, x, 2 * f);

    kn_swiglu_fwd(r->pool, r->type, rows_at(r, y, slot, PL_ACT_EA, t, x, f), f, gu, 2 * f,
                  gu + f * r->d.elem, 2 * f, rows_of(t, x), f);
}

static void experts_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot,
                        const struct tr_route *t, struct tr_experts x, void *out)
{
    uint64_t f = r->d.expert_ffn, h = r->d.hidden;
    const char *w = w13(y);

    grouped(r, t, x, r->type,
            (struct kn_gemm){.a = tr_act(r, y, slot, PL_ACT_EX),
                             .lda = h,
                             .b = w,
                             .ldb = h,
                             .tb = true,
                             .c = tr_act(r, y, slot, PL_ACT_EGU),
                             .ldc = 2 * f,
                             .n = 2 * f,
                             .k = h});
    swiglu(r, y, slot, t, x);
    grouped(r, t, x, tr_slice_type(r),
            (struct kn_gemm){.a = tr_act(r, y, slot, PL_ACT_EA),
                             .lda = f,
                             .b = w + w2_at(r) * r->d.elem,
                             .ldb = f,
                             .tb = true,
                             .c = out,
                             .ldc = h,
                             .n = h,
                             .k = f});
}

static void dw_2(struct tr_rank *r, const struct tr_layer *y, char *slot, const struct tr_route *t,
                 struct tr_experts x, const void *dy)
{
    uint64_t f = r->d.expert_ffn, h = r->d.hidden;

    grouped(r, t, x, KN_F32,
            (struct kn_gemm){.a = dy,
                             .lda = h,
                             .b = tr_act(r, y, slot, PL_ACT_EA),
                             .ldb = f,
                             .c = y->expert.g + w2_at(r),
                             .ldc = f,
                             .m = h,
                             .n = f,
                             .ta = true,
                             .beta = 1.0f});
}

/* EGU holds the gradient of gate and up by now. */
static void dw_13(struct tr_rank *r, const struct tr_layer *y, char *slot, const struct tr_route *t,
                  struct tr_experts x)
{
    uint64_t f = r->d.expert_ffn, h = r->d.hidden;

    grouped(r, t, x, KN_F32,
            (struct kn_gemm){.a = tr_act(r, y, slot, PL_ACT_EGU),
                             .lda = 2 * f,
                             .b = tr_act(r, y, slot, PL_ACT_EX),
                             .ldb = h,
                             .c = y->expert.g,
                             .ldc = h,
                             .m = 2 * f,
                             .n = h,
                             .ta = true,
                             .beta = 1.0f});
}

/* From DY (rows, hidden), gradient of the outputs, to DX, that of the inputs, which may be the same
 * array. The gradient of w1 and w3 is left to the caller. */
static void experts_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot,
                        const struct tr_route *t, struct tr_experts x, const void *dy, void *dx,
                        bool with_dw)
{
    uint64_t f = r->d.expert_ffn, h = r->d.hidden;
    const char *w = w13(y), *dea = r->work.moe_dea + (uint64_t)t->recv[x.first] * f * r->d.elem;
    char *gu = rows_at(r, y, slot, PL_ACT_EGU, t, x, 2 * f);

    if (r->layout.recompute == PL_RECOMPUTE_SELECTIVE && with_dw)
        swiglu(r, y, slot, t, x);
    grouped(r, t, x, r->type,
            (struct kn_gemm){.a = dy,
                             .lda = h,
                             .b = w + w2_at(r) * r->d.elem,
                             .ldb = f,
                             .c = r->work.moe_dea,
                             .ldc = f,
                             .n = f,
                             .k = h});
    if (with_dw)
        dw_2(r, y, slot, t, x, dy);
    kn_swiglu_bwd(r->pool, r->type, gu, 2 * f, gu + f * r->d.elem, 2 * f, dea, f, gu, 2 * f,
                  gu + f * r->d.elem, 2 * f, rows_of(t, x), f);
    grouped(r, t, x, tr_slice_type(r),
            (struct kn_gemm){.a = tr_act(r, y, slot, PL_ACT_EGU),
                             .lda = 2 * f,
                             .b = w,
                             .ldb = h,
                             .c = dx,
                             .ldc = h,
                             .n = h,
                             .k = 2 * f});
}

/* out = x2 [+ the shared experts], to which the routed ones are added. */
static void base(struct tr_rank *r, const struct tr_layer *y, char *slot, void *out)
{
    const void *x2 = tr_act(r, y, slot, PL_ACT_X2), *shared;
    uint64_t n = r->d.local_rows * r->d.hidden;

    if (!r->d.shared_ffn) {
        if (out)
            kn_copy(r->pool, out, x2, n * r->d.elem);
        return;
    }
    shared = tr_ffn_fwd(r, y, slot, r->d.shared_ffn, out != NULL);
    if (out)
        kn_add(r->pool, r->type, out, x2, shared, n);
}

void tr_moe_fwd(struct tr_rank *r, const struct tr_layer *y, char *slot, void *out)
{
    const struct pl_dims *d = &r->d;
    struct tr_route t = tr_route(r, y, slot);
    int32_t *src = tr_act(r, y, slot, PL_ACT_SRC), *place = tr_act(r, y, slot, PL_ACT_PLACE);
    void *ex = tr_act(r, y, slot, PL_ACT_EX), *ey = tr_act(r, y, slot, PL_ACT_EY);
    void *sorted = travels(r) ? (void *)r->work.moe_send : ex;
    void *made = travels(r) ? (void *)r->work.moe_recv : ey;

    tr_norm2(r, y, slot);
    tr_router_fwd(r, y, slot, out != NULL);
    kn_sort_by_key(t.send, src, place, tr_act(r, y, slot, PL_ACT_IDX), d->choices, d->experts);
    kn_permute(r->pool, r->type, sorted, tr_act(r, y, slot, PL_ACT_H2), src, d->choices, d->top_k,
               d->hidden);
    tr_route_exchange(r, &t);
    tr_dispatch_start(r, &t, ex, sorted);
    for (int part = 0; part < tr_moe_parts(r); part++) {
        tr_dispatch_wait(r, part);
        experts_fwd(r, y, slot, &t, tr_moe_part(r, part), made);
        tr_collect_start(r, &t, ey, made, part);
    }
    if (!r->layout.overlap_moe_a2a)
        tr_collect_finish(r, ey);
    base(r, y, slot, out);
    if (r->layout.overlap_moe_a2a)
        tr_collect_finish(r, ey);
    if (out)
        kn_unpermute(r->pool, r->type, out, ey, place, tr_act(r, y, slot, PL_ACT_W), d->local_rows,
                     d->top_k, d->hidden, true);
}

/* Gradients of the routed experts: DH (local_rows, hidden) = [DH +] that of H2. */
static void routed_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep,
                       const void *d, bool add)
{
    const struct pl_dims *z = &r->d;
    struct tr_route t = tr_route(r, y, slot);
    const int32_t *place = tr_act(r, y, slot, PL_ACT_PLACE);
    float *dw = r->work.moe_router + 2 * z->local_rows * z->experts;
    char *dx = travels(r) ? r->work.moe_recv : r->work.moe_send;
    char *dy = keep ? keep + y->keep.dey : dx, *sorted = travels(r) ? r->work.moe_send : dy;

    kn_unpermute_bwd(r->pool, r->type, sorted, dw, d, tr_act(r, y, slot, PL_ACT_EY), place,
                     tr_act(r, y, slot, PL_ACT_W), z->local_rows, z->top_k, z->hidden);
    tr_dispatch_start(r, &t, dy, sorted);
    for (int part = 0; part < tr_moe_parts(r); part++) {
        struct tr_experts x = tr_moe_part(r, part);

        tr_dispatch_wait(r, part);
        experts_bwd(r, y, slot, &t, x, dy, dx, !keep);
        tr_collect_start(r, &t, r->work.moe_send, dx, part);
        if (!r->layout.overlap_moe_a2a)
            tr_collect_finish(r, r->work.moe_send);
        if (!keep)
            dw_13(r, y, slot, &t, x);
    }
    if (r->layout.overlap_moe_a2a)
        tr_collect_finish(r, r->work.moe_send);
    kn_unpermute(r->pool, r->type, r->work.dh, r->work.moe_send, place, NULL, z->local_rows,
                 z->top_k, z->hidden, add);
    if (r->layout.recompute == PL_RECOMPUTE_SELECTIVE)
        tr_norm2(r, y, slot);
    tr_router_bwd(r, y, slot, dw, r->work.dh);
}

void tr_moe_bwd(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep, void *d)
{
    const struct pl_dims *z = &r->d;

    if (z->shared_ffn) {
        const void *dh = tr_ffn_bwd(r, y, slot, keep, z->shared_ffn, d);

        if (dh != r->work.dh)
            kn_copy(r->pool, r->work.dh, dh, z->local_rows * z->hidden * z->elem);
    }
    routed_bwd(r, y, slot, keep, d, z->shared_ffn > 0);
    kn_rmsnorm_bwd(r->pool, r->type, d, y->norm2.g, r->work.dh, tr_act(r, y, slot, PL_ACT_X2),
                   y->norm2.w, tr_act(r, y, slot, PL_ACT_RRMS2), z->local_rows, z->hidden, true);
}

void tr_moe_dw(struct tr_rank *r, const struct tr_layer *y, char *slot, char *keep)
{
    struct tr_route t = tr_route(r, y, slot);
    struct tr_experts all = {0, r->d.local_experts};

    if (r->d.shared_ffn)
        tr_ffn_dw(r, y, slot, keep, r->d.shared_ffn);
    dw_2(r, y, slot, &t, all, keep + y->keep.dey);
    dw_13(r, y, slot, &t, all);
}
