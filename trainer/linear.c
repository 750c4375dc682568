#include "base/base.h"
#include "trainer/layer.h"

/* Y (ROWS x OUT, of type TYPE) = X W^T. */
static void times_weight(struct tr_rank *r, void *y, enum kn_type type, const void *x,
                         const void *w, uint64_t rows, uint64_t in, uint64_t out)
{
    struct kn_gemm g = {.m = rows,
                        .n = out,
                        .k = in,
                        .a = x,
                        .b = w,
                        .c = y,
                        .lda = in,
                        .ldb = in,
                        .ldc = out,
                        .tb = true,
                        .at = r->type,
                        .bt = r->type,
                        .ct = type};

    kn_gemm(r->pool, &g);
}

/* DX (ROWS x IN, of type TYPE) = DY W. */
static void back_through(struct tr_rank *r, void *dx, enum kn_type type, const void *dy,
                         const void *w, uint64_t rows, uint64_t in, uint64_t out)
{
    struct kn_gemm g = {.m = rows,
                        .n = in,
                        .k = out,
                        .a = dy,
                        .b = w,
                        .c = dx,
                        .lda = out,
                        .ldb = in,
                        .ldc = in,
                        .at = r->type,
                        .bt = r->type,
                        .ct = type};

    kn_gemm(r->pool, &g);
}

void tr_linear(struct tr_rank *r, void *y, const void *x, const void *w, uint64_t rows, uint64_t in,
               uint64_t out)
{
    times_weight(r, y, r->type, x, w, rows, in, out);
}

void tr_linear_dx(struct tr_rank *r, void *dx, const void *dy, const void *w, uint64_t rows,
                  uint64_t in, uint64_t out)
{
    back_through(r, dx, r->type, dy, w, rows, in, out);
}

/* Partial sums are added in fp32 whatever the storage: rounding each to bf16 first would make the
 * error grow with tp. So bf16 needs a buffer of its own for them. */
enum kn_type tr_partial_type(const struct tr_rank *r)
{
    return r->comms.tp.size > 1 ? KN_F32 : r->type;
}

void *tr_partial(struct tr_rank *r)
{
    return r->work.partial ? r->work.partial : r->work.dh;
}

void tr_linear_partial(struct tr_rank *r, const void *x, const void *w, uint64_t rows, uint64_t in,
                       uint64_t out)
{
    times_weight(r, tr_partial(r), tr_partial_type(r), x, w, rows, in, out);
}

void tr_linear_dx_partial(struct tr_rank *r, const void *dy, const void *w, uint64_t rows,
                          uint64_t in, uint64_t out)
{
    back_through(r, tr_partial(r), tr_partial_type(r), dy, w, rows, in, out);
}

void tr_linear_dw(struct tr_rank *r, float *dw, const void *dy, const void *x, uint64_t rows,
                  uint64_t in, uint64_t out)
{
    struct kn_gemm g = {.m = out,
                        .n = in,
                        .k = rows,
                        .a = dy,
                        .b = x,
                        .c = dw,
                        .lda = out,
                        .ldb = in,
                        .ldc = in,
                        .ta = true,
                        .beta = 1.0f,
                        .at = r->type,
                        .bt = r->type};

    kn_gemm(r->pool, &g);
}

const void *tr_gather_rows(struct tr_rank *r, const void *x)
{
    size_t bytes = r->d.local_rows * r->d.hidden * r->d.elem;
    enum tr_phase was;

    if (!r->layout.sp)
        return x;
    was = tr_phase(&r->clock, TR_PHASE_TP);
    kn_copy(r->pool, r->work.gather + (size_t)r->comms.tp.rank * bytes, x, bytes);
    tr_all_gather(&r->comms.tp, r->type, r->work.gather, r->d.rows * r->d.hidden);
    tr_phase(&r->clock, was);
    return r->work.gather;
}

const void *tr_reduce(struct tr_rank *r, void *buf, enum kn_type t)
{
    size_t bytes = r->d.local_rows * r->d.hidden * kn_type_size(t);
    uint64_t n = r->d.rows * r->d.hidden;
    enum tr_phase was;

    if (r->comms.tp.size == 1)
        return buf;
    was = tr_phase(&r->clock, TR_PHASE_TP);
    if (r->layout.sp)
        tr_reduce_scatter(&r->comms.tp, t, buf, n);
    else
        tr_all_reduce(&r->comms.tp, t, buf, n);
    tr_phase(&r->clock, was);
    return r->layout.sp ? (char *)buf + (size_t)r->comms.tp.rank * bytes : buf;
}

const void *tr_reduce_rows(struct tr_rank *r)
{
    enum kn_type t = tr_partial_type(r);
    const void *sum = tr_reduce(r, tr_partial(r), t);

    if (t == r->type)
        return sum;
    kn_convert(r->pool, r->type, r->work.dh, t, sum, r->d.local_rows * r->d.hidden);
    return r->work.dh;
}
