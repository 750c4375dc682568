/* Embedding, and softmax cross-entropy over a vocabulary that is split between ranks. */
#include "kernels/ops.h"
#include "kernels/set.h"

enum { ROW_GRAIN = 8, COLUMN_UNIT = 16, COLUMN_GRAIN = 64 };

struct embed {
    enum kn_type t;
    void *y;
    float *dtable;
    const void *table, *dy;
    const int32_t *ids;
    size_t rows, d, v0, vocab;
};

static bool local(const struct embed *e, size_t r, size_t *ret)
{
    *ret = (size_t)((int64_t)e->ids[r] - (int64_t)e->v0);
    return e->ids[r] >= 0 && (size_t)e->ids[r] >= e->v0 && *ret < e->vocab;
}

static const void *row_of_id(const void *arg, size_t r)
{
    const struct embed *e = arg;
    size_t id;

    return local(e, r, &id) ? kn_ptr(e->t, e->table, id * e->d) : NULL;
}

static void embed_rows(void *arg, const struct kn_share *s)
{
    const struct embed *e = arg;

    kn_gather_rows(e->y, row_of_id, e, e->d * kn_type_size(e->t), s);
}

void kn_host_embed_fwd(struct kn_pool *p, enum kn_type t, void *y, const void *table,
                       const int32_t *ids, size_t rows, size_t d, size_t v0, size_t vocab)
{
    struct embed e = {
        .t = t, .y = y, .table = table, .ids = ids, .rows = rows, .d = d, .v0 = v0, .vocab = vocab};

    kn_parallel(p, rows, 1, ROW_GRAIN, embed_rows, &e);
}

/* Each thread has some columns of every row: no two write the same element, and the order of the
 * sum is that of the rows, whatever the number of threads. */
static void embed_columns(void *arg, const struct kn_share *s)
{
    const struct embed *e = arg;
    size_t n = s->hi - s->lo, id;

    for (size_t r = 0; r < e->rows; r++) {
        if (local(e, r, &id)) {
            const void *dy = kn_ptr(e->t, e->dy, r * e->d + s->lo);

            kn_ops()->axpy(e->dtable + id * e->d + s->lo, 1, kn_in(e->t, dy, s->scratch, n), n);
        }
    }
}

void kn_host_embed_bwd(struct kn_pool *p, enum kn_type t, float *dtable, const void *dy,
                       const int32_t *ids, size_t rows, size_t d, size_t v0, size_t vocab)
{
    struct embed e = {.t = t,
                      .dtable = dtable,
                      .dy = dy,
                      .ids = ids,
                      .rows = rows,
                      .d = d,
                      .v0 = v0,
                      .vocab = vocab};

    assert(d * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(p, d, COLUMN_UNIT, COLUMN_GRAIN, embed_columns, &e);
}

struct xent {
    enum kn_type t;
    void *l;
    const void *cl;
    size_t ld, cols, padded, v0;
    float *out, *target;
    const float *max, *sum;
    const int32_t *targets;
    float scale;
};

/* The column of row R's target on this rank, or COLS. */
static size_t target_column(const struct xent *x, size_t r)
{
    int64_t c = (int64_t)x->targets[r] - (int64_t)x->v0;

    return x->targets[r] >= 0 && c >= 0 && (size_t)c < x->cols ? (size_t)c : x->cols;
}

static void max_rows(void *arg, const struct kn_share *s)
{
    const struct xent *x = arg;

    for (size_t r = s->lo; r < s->hi; r++) {
        x->out[r] = kn_ops()->max_row(
            kn_in(x->t, kn_ptr(x->t, x->cl, r * x->ld), s->scratch, x->cols), x->cols);
        kn_row_done(s, r);
    }
}

void kn_host_xent_max(struct kn_pool *p, enum kn_type t, float *max, const void *logits, size_t ld,
                      size_t rows, size_t cols)
{
    struct xent x = {.t = t, .cl = logits, .ld = ld, .cols = cols, .out = max};

    assert(ld >= cols && cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(p, rows, 1, ROW_GRAIN, max_rows, &x);
}

static void sum_rows(void *arg, const struct kn_share *s)
{
    const struct xent *x = arg;

    for (size_t r = s->lo; r < s->hi; r++) {
        const float *l = kn_in(x->t, kn_ptr(x->t, x->cl, r * x->ld), s->scratch, x->cols);
        size_t c = target_column(x, r);

        x->out[r] = kn_ops()->sumexp_row(l, x->cols, x->max[r]);
        x->target[r] = c < x->cols ? l[c] : 0;
        kn_row_done(s, r);
    }
}

void kn_host_xent_sum(struct kn_pool *p, enum kn_type t, float *sum, float *target,
                      const void *logits, size_t ld, size_t rows, size_t cols, const float *max,
                      const int32_t *targets, size_t v0)
{
    struct xent x = {.t = t,
                     .cl = logits,
                     .ld = ld,
                     .cols = cols,
                     .out = sum,
                     .target = target,
                     .max = max,
                     .targets = targets,
                     .v0 = v0};

    assert(ld >= cols && cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(p, rows, 1, ROW_GRAIN, sum_rows, &x);
}

double kn_xent_loss(float *loss, size_t *ret_count, const float *max, const float *sum,
                    const float *target, const int32_t *targets, size_t rows)
{
    double total = 0;
    size_t count = 0;

    for (size_t r = 0; r < rows; r++) {
        double one = targets[r] < 0 ? 0 : log((double)sum[r]) + (double)max[r] - (double)target[r];

        count += targets[r] >= 0;
        total += one;
        if (loss)
            loss[r] = (float)one;
    }
    *ret_count = count;
    return total;
}

static void grad_rows(void *arg, const struct kn_share *s)
{
    const struct xent *x = arg;

    for (size_t r = s->lo; r < s->hi; r++) {
        void *row = kn_ptr(x->t, x->l, r * x->ld);
        size_t c = target_column(x, r), pad = x->targets[r] < 0 ? 0 : x->cols;

        if (x->targets[r] >= 0) {
            const float *l = kn_in(x->t, row, s->scratch, x->cols);
            float *d = kn_out(x->t, row, s->scratch);

            kn_ops()->softmax_row(d, l, x->cols, x->max[r], x->scale / x->sum[r]);
            if (c < x->cols)
                d[c] -= x->scale;
            kn_out_done(x->t, row, d, x->cols);
        }
        memset(kn_ptr(x->t, row, pad), 0, (x->padded - pad) * kn_type_size(x->t));
        kn_row_done(s, r);
    }
}

void kn_host_xent_grad(struct kn_pool *p, enum kn_type t, void *logits, size_t ld, size_t rows,
                       size_t cols, size_t padded, const float *max, const float *sum,
                       const int32_t *targets, size_t v0, float scale)
{
    struct xent x = {.t = t,
                     .l = logits,
                     .ld = ld,
                     .cols = cols,
                     .padded = padded,
                     .max = max,
                     .sum = sum,
                     .targets = targets,
                     .v0 = v0,
                     .scale = scale};

    assert(ld >= padded && padded >= cols && cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(p, rows, 1, ROW_GRAIN, grad_rows, &x);
}
