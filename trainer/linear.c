#include "base/base.h"
#include "trainer/layer.h"

void tr_linear(struct tr_rank *r, void *y, const void *x, const void *w, uint64_t rows, uint64_t in,
               uint64_t out)
{
    struct kn_gemm g = { .m = rows, .n = out, .k = in, .a = x, .b = w, .c = y, .lda = in, .ldb = in,
                         .ldc = out, .tb = true, .at = r->type, .bt = r->type, .ct = r->type };

    kn_gemm(r->pool, &g);
}

void tr_linear_dx(struct tr_rank *r, void *dx, const void *dy, const void *w, uint64_t rows, uint64_t in,
                  uint64_t out)
{
    struct kn_gemm g = { .m = rows, .n = in, .k = out, .a = dy, .b = w, .c = dx, .lda = out, .ldb = in,
                         .ldc = in, .at = r->type, .bt = r->type, .ct = r->type };

    kn_gemm(r->pool, &g);
}

void tr_linear_dw(struct tr_rank *r, float *dw, const void *dy, const void *x, uint64_t rows, uint64_t in,
                  uint64_t out)
{
    struct kn_gemm g = { .m = out, .n = in, .k = rows, .a = dy, .b = x, .c = dw, .lda = out, .ldb = in,
                         .ldc = in, .ta = true, .beta = 1.0f, .at = r->type, .bt = r->type };

    kn_gemm(r->pool, &g);
}

const void *tr_gather_rows(struct tr_rank *r, const void *x)
{
    size_t        bytes = r->d.local_rows * r->d.hidden * r->d.elem;
    enum tr_phase was;

    if (!r->layout.sp)
        return x;
    was = tr_phase(&r->clock, TR_PHASE_TP);
    memcpy(r->work.gather + (size_t)r->comms.tp.rank * bytes, x, bytes);
    tr_all_gather(&r->comms.tp, r->type, r->work.gather, r->d.rows * r->d.hidden);
    tr_phase(&r->clock, was);
    return r->work.gather;
}

void *tr_partial(struct tr_rank *r)
{
    return r->layout.sp ? r->work.partial : r->work.dh;
}

const void *tr_reduce_rows(struct tr_rank *r)
{
    size_t        bytes = r->d.local_rows * r->d.hidden * r->d.elem;
    uint64_t      n = r->d.rows * r->d.hidden;
    enum tr_phase was;

    if (r->comms.tp.size == 1)
        return r->work.dh;
    was = tr_phase(&r->clock, TR_PHASE_TP);
    if (r->layout.sp)
        tr_reduce_scatter(&r->comms.tp, r->type, r->work.partial, n);
    else
        tr_all_reduce(&r->comms.tp, r->type, r->work.dh, n);
    tr_phase(&r->clock, was);
    return r->layout.sp ? r->work.partial + (size_t)r->comms.tp.rank * bytes : r->work.dh;
}
