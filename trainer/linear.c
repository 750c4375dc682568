#include "base/base.h"
#include "trainer/layer.h"
#include "trainer/tp_overlap.h"

#include <assert.h>

/* OUTPUT (ROWS x OUT, of type TYPE) = INPUT WEIGHT^T; rows of INPUT have LD elements. */
static void times_weight(struct tr_rank *rank, void *output, enum kn_type type, const void *input,
                         uint64_t ld, const void *weight, uint64_t rows, uint64_t in, uint64_t out)
{
    struct kn_gemm g = {.m = rows,
                        .n = out,
                        .k = in,
                        .a = input,
                        .b = weight,
                        .c = output,
                        .lda = ld,
                        .ldb = in,
                        .ldc = out,
                        .tb = true,
                        .at = rank->type,
                        .bt = rank->type,
                        .ct = type};

    kn_gemm(rank->pool, &g);
}

/* DX (ROWS x IN, in rows of LD elements of TYPE) = BETA DX + DY WEIGHT. */
static void back_through(struct tr_rank *rank, void *dx, uint64_t ld, enum kn_type type, float beta,
                         const void *dy, const void *weight, uint64_t rows, uint64_t in,
                         uint64_t out)
{
    struct kn_gemm g = {.m = rows,
                        .n = in,
                        .k = out,
                        .a = dy,
                        .b = weight,
                        .c = dx,
                        .lda = out,
                        .ldb = in,
                        .ldc = ld,
                        .beta = beta,
                        .at = rank->type,
                        .bt = rank->type,
                        .ct = type};

    kn_gemm(rank->pool, &g);
}

void tr_product_rows(struct tr_rank *rank, const struct tr_product *product, uint64_t first,
                     uint64_t rows)
{
    const char *from = (const char *)product->from + first * product->in * rank->d.elem;
    char *to = (char *)product->to + first * product->out * kn_type_size(product->type);

    if (product->back)
        back_through(rank, to, product->out, product->type, 0, from, product->weight, rows,
                     product->out, product->in);
    else
        times_weight(rank, to, product->type, from, product->in, product->weight, rows, product->in,
                     product->out);
}

void tr_linear(struct tr_rank *rank, void *output, const void *input, const void *weight,
               uint64_t rows, uint64_t in, uint64_t out)
{
    tr_linear_of(rank, output, input, in, weight, rows, in, out);
}

void tr_linear_of(struct tr_rank *rank, void *output, const void *input, uint64_t ld,
                  const void *weight, uint64_t rows, uint64_t in, uint64_t out)
{
    times_weight(rank, output, rank->type, input, ld, weight, rows, in, out);
}

void tr_linear_dx(struct tr_rank *rank, void *dx, const void *dy, const void *weight, uint64_t rows,
                  uint64_t in, uint64_t out)
{
    back_through(rank, dx, in, rank->type, 0, dy, weight, rows, in, out);
}

void tr_linear_dx_to(struct tr_rank *rank, void *dx, uint64_t ld, const void *dy,
                     const void *weight, uint64_t rows, uint64_t in, uint64_t out)
{
    back_through(rank, dx, ld, KN_F32, 0, dy, weight, rows, in, out);
}

/* Partial sums are added in fp32 whatever the storage: rounding each to bf16 first would make the
 * error grow with tp. So bf16 needs a buffer of its own for them, also where a product is added to
 * the sum. */
static enum kn_type partial_type(const struct tr_rank *rank)
{
    return rank->work.partial ? KN_F32 : rank->type;
}

static void *partial(struct tr_rank *rank)
{
    /* dh is as wide as an activation, and has this rank's rows only. */
    assert(rank->work.partial || ((rank->type == KN_F32 || rank->comms.tp.size == 1) &&
                                  rank->d.local_rows == rank->d.rows));
    return rank->work.partial ? rank->work.partial : rank->work.dh;
}

void tr_linear_partial(struct tr_rank *rank, const void *input, const void *weight, uint64_t rows,
                       uint64_t in, uint64_t out)
{
    times_weight(rank, partial(rank), partial_type(rank), input, in, weight, rows, in, out);
}

void tr_linear_dx_partial(struct tr_rank *rank, const void *dy, const void *weight, uint64_t rows,
                          uint64_t in, uint64_t out)
{
    back_through(rank, partial(rank), in, partial_type(rank), 0, dy, weight, rows, in, out);
}

void tr_linear_dw(struct tr_rank *rank, void *dw, const void *dy, const void *input, uint64_t rows,
                  uint64_t in, uint64_t out)
{
    tr_linear_dw_of(rank, dw, dy, input, in, rows, in, out);
}

void tr_linear_dw_of(struct tr_rank *rank, void *dw, const void *dy, const void *input, uint64_t ld,
                     uint64_t rows, uint64_t in, uint64_t out)
{
    struct kn_gemm g = {.m = out,
                        .n = in,
                        .k = rows,
                        .a = dy,
                        .b = input,
                        .c = dw,
                        .lda = out,
                        .ldb = ld,
                        .ldc = in,
                        .ta = true,
                        .beta = 1.0f,
                        .at = rank->type,
                        .bt = rank->type,
                        .ct = rank->params.grad_type};

    kn_gemm(rank->pool, &g);
}

const void *tr_gather_rows(struct tr_rank *rank, const void *input)
{
    return tr_gather(rank, input, rank->d.hidden);
}

const void *tr_gather(struct tr_rank *rank, const void *input, uint64_t width)
{
    size_t bytes = rank->d.local_rows * width * rank->d.elem;
    enum tr_phase was;

    if (!rank->layout.sp)
        return input;
    assert(rank->d.local_rows * (uint64_t)rank->comms.tp.size == rank->d.rows);
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    kn_copy(rank->pool, rank->work.gather + (size_t)rank->comms.tp.rank * bytes, input, bytes);
    tr_all_gather(&rank->comms.tp, rank->type, rank->work.gather, rank->d.rows * width);
    tr_phase(&rank->clock, was);
    return rank->work.gather;
}

const void *tr_reduce(struct tr_rank *rank, void *buf, enum kn_type type, uint64_t width)
{
    size_t bytes = rank->d.local_rows * width * kn_type_size(type);
    uint64_t n = rank->d.rows * width;
    enum tr_phase was;

    if (rank->comms.tp.size == 1)
        return buf;
    assert(rank->d.rows == (rank->layout.sp ? rank->d.local_rows * (uint64_t)rank->comms.tp.size
                                            : rank->d.local_rows));
    was = tr_phase(&rank->clock, TR_PHASE_TP);
    if (rank->layout.sp)
        tr_reduce_scatter(&rank->comms.tp, type, buf, n);
    else
        tr_all_reduce(&rank->comms.tp, type, buf, n);
    tr_phase(&rank->clock, was);
    return rank->layout.sp ? (char *)buf + (size_t)rank->comms.tp.rank * bytes : buf;
}

const void *tr_narrow(struct tr_rank *rank, const void *sum)
{
    enum kn_type t = partial_type(rank);

    if (t == rank->type)
        return sum;
    kn_convert(rank->pool, rank->type, rank->work.dh, t, sum, rank->d.local_rows * rank->d.hidden);
    return rank->work.dh;
}

const void *tr_reduce_rows(struct tr_rank *rank)
{
    return tr_narrow(rank, tr_reduce(rank, partial(rank), partial_type(rank), rank->d.hidden));
}

const void *tr_reduce_rows_add(struct tr_rank *rank, const void *dy, const void *weight,
                               uint64_t out)
{
    const struct pl_dims *d = &rank->d;
    enum kn_type t = partial_type(rank);
    void *sum = (void *)tr_reduce(rank, partial(rank), t, d->hidden);

    back_through(rank, sum, d->hidden, t, 1, dy, weight, d->local_rows, d->hidden, out);
    return tr_narrow(rank, sum);
}
