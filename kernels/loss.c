/* Embedding, soft capping, and softmax cross-entropy over a vocabulary that is split between ranks.
 */
#include "kernels/ops.h"
#include "kernels/backend.h"

enum { ROW_GRAIN = 8, COLUMN_UNIT = 16, COLUMN_GRAIN = 64, PIECE = 256 };

struct embed {
    enum kn_type t, tt; /* TT: of DTABLE */
    void *y, *dtable;
    const void *table, *dy;
    const int32_t *ids;
    size_t rows, d, v0, vocab;
    float scale;
};

static bool local(size_t *ret, const struct embed *embed, size_t row)
{
    *ret = (size_t)((int64_t)embed->ids[row] - (int64_t)embed->v0);
    return embed->ids[row] >= 0 && (size_t)embed->ids[row] >= embed->v0 && *ret < embed->vocab;
}

static const void *row_of_id(const void *arg, size_t row)
{
    const struct embed *e = arg;
    size_t id;

    return local(&id, e, row) ? kn_ptr(e->t, e->table, id * e->d) : NULL;
}

static void embed_rows(void *arg, const struct kn_share *share)
{
    const struct embed *e = arg;

    kn_gather_rows(e->y, row_of_id, e, e->d * kn_type_size(e->t), share);
    for (size_t r = share->lo; r < share->hi && (e->scale < 1 || e->scale > 1); r++) {
        void *at = kn_ptr(e->t, e->y, r * e->d);
        const float *x = kn_in(e->t, at, share->scratch, e->d);
        float *y = kn_out(e->t, at, share->scratch);

        kn_ops()->scale(y, x, e->scale, e->d);
        kn_out_done(e->t, at, y, e->d);
    }
}

void kn_host_embed_fwd(struct kn_pool *pool, enum kn_type type, void *y, const void *table,
                       const int32_t *ids, size_t rows, size_t dim, size_t v0, size_t vocab,
                       float scale)
{
    struct embed e = {.t = type,
                      .y = y,
                      .table = table,
                      .ids = ids,
                      .rows = rows,
                      .d = dim,
                      .v0 = v0,
                      .vocab = vocab,
                      .scale = scale};

    assert(dim * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, ROW_GRAIN, embed_rows, &e);
}

/* SUM += scale dy[row], in the columns of SHARE. */
static void add_row(float *sum, const struct embed *embed, size_t row, float *scratch,
                    const struct kn_share *share)
{
    const void *dy = kn_ptr(embed->t, embed->dy, row * embed->d + share->lo);
    size_t n = share->hi - share->lo;

    kn_ops()->axpy(sum, embed->scale, kn_in(embed->t, dy, scratch, n), n);
}

/* Rows [lo, hi) in ascending chains of the same remainder of their ids. */
struct chains {
    int32_t *first, *next; /* (mask + 1), (hi - lo); -1: the end */
    size_t mask, lo, hi;
};

enum { MOST_CHAINS = 1 << 16 };

static int32_t *chain_of(const struct chains *chains, const struct embed *embed, size_t row)
{
    return &chains->first[(uint32_t)embed->ids[row] & chains->mask];
}

static void link_rows(struct chains *chains, const struct embed *embed)
{
    for (chains->mask = 1; chains->mask < chains->hi - chains->lo && chains->mask < MOST_CHAINS;)
        chains->mask *= 2;
    chains->next = chains->first + chains->mask--;
    memset(chains->first, 0xff, (chains->mask + 1) * sizeof(*chains->first));
    for (size_t r = chains->hi; r-- > chains->lo;) {
        int32_t *first = chain_of(chains, embed, r);

        chains->next[r - chains->lo] = *first;
        *first = (int32_t)(r - chains->lo);
    }
}

/* Row FROM of the chains, -1: none, or the first after it that has the id of row ROW. */
static int32_t same_id(const struct chains *chains, const struct embed *embed, int32_t from,
                       size_t row)
{
    while (from >= 0 && embed->ids[chains->lo + (size_t)from] != embed->ids[row])
        from = chains->next[from];
    return from;
}

/* Where an id is met first, all its rows are added in fp32 to its row of the table. */
static void embed_rounded(const struct embed *embed, struct chains *chains,
                          const struct kn_share *share)
{
    size_t n = share->hi - share->lo, id;
    float *sum = share->scratch, *dy = sum + n;

    link_rows(chains, embed);
    for (size_t r = chains->lo; r < chains->hi; r++) {
        int32_t i = same_id(chains, embed, *chain_of(chains, embed, r), r);
        void *to;

        if ((size_t)i != r - chains->lo || !local(&id, embed, r))
            continue;
        to = kn_ptr(embed->tt, embed->dtable, id * embed->d + share->lo);
        kn_ops()->to_f32(sum, to, n);
        for (; i >= 0; i = same_id(chains, embed, chains->next[i], r))
            add_row(sum, embed, chains->lo + (size_t)i, dy, share);
        kn_ops()->to_bf16(to, sum, n);
    }
}

/* Each thread has some columns of every row: no two write the same element, and the order of the
 * sum is that of the rows, whatever the number of threads. */
static void embed_columns(void *arg, const struct kn_share *share)
{
    const struct embed *e = arg;
    struct chains chains = {.first = (int32_t *)(share->scratch + 2 * (share->hi - share->lo))};
    size_t id;

    for (size_t r = 0; e->tt == KN_BF16 && r < e->rows; r = chains.hi) {
        chains.lo = r;
        chains.hi = kn_min(e->rows, r + KN_EMBED_ROWS);
        embed_rounded(e, &chains, share);
    }
    for (size_t r = 0; e->tt == KN_F32 && r < e->rows; r++)
        if (local(&id, e, r))
            add_row((float *)e->dtable + id * e->d + share->lo, e, r, share->scratch, share);
}

void kn_host_embed_bwd(struct kn_pool *pool, enum kn_type type, enum kn_type tt, void *dtable,
                       const void *dy, const int32_t *ids, size_t rows, size_t dim, size_t v0,
                       size_t vocab, float scale)
{
    struct embed e = {.t = type,
                      .tt = tt,
                      .dtable = dtable,
                      .dy = dy,
                      .ids = ids,
                      .rows = rows,
                      .d = dim,
                      .v0 = v0,
                      .vocab = vocab,
                      .scale = scale};

    assert(2 * dim * sizeof(float) + (MOST_CHAINS + KN_EMBED_ROWS) * sizeof(int32_t) <=
           KN_SCRATCH_BYTES);
    kn_parallel(pool, dim, COLUMN_UNIT, COLUMN_GRAIN, embed_columns, &e);
}

struct softcap {
    enum kn_type t;
    void *x;
    size_t ld, cols;
    float cap;
};

static void softcap_rows(void *arg, const struct kn_share *share)
{
    const struct softcap *s = arg;

    for (size_t r = share->lo; r < share->hi; r++) {
        void *at = kn_ptr(s->t, s->x, r * s->ld);
        const float *x = kn_in(s->t, at, share->scratch, s->cols);
        float *y = kn_out(s->t, at, share->scratch);

        kn_ops()->softcap_row(y, x, s->cols, s->cap);
        kn_out_done(s->t, at, y, s->cols);
        kn_row_done(share, r);
    }
}

void kn_host_softcap(struct kn_pool *pool, enum kn_type type, void *x, size_t ld, size_t rows,
                     size_t cols, float cap)
{
    struct softcap s = {.t = type, .x = x, .ld = ld, .cols = cols, .cap = cap};

    assert(cap > 0 && ld >= cols && cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, ROW_GRAIN, softcap_rows, &s);
}

struct xent {
    enum kn_type t;
    void *l;
    const void *cl;
    size_t ld, cols, padded, v0;
    float *out, *target;
    const float *max, *sum;
    const int32_t *targets;
    float scale, z, cap;
};

/* The column of ROW's target on this rank, or COLS. */
static size_t target_column(const struct xent *xent, size_t row)
{
    int64_t c = (int64_t)xent->targets[row] - (int64_t)xent->v0;

    return xent->targets[row] >= 0 && c >= 0 && (size_t)c < xent->cols ? (size_t)c : xent->cols;
}

static void max_rows(void *arg, const struct kn_share *share)
{
    const struct xent *x = arg;

    for (size_t r = share->lo; r < share->hi; r++) {
        x->out[r] = kn_ops()->max_row(
            kn_in(x->t, kn_ptr(x->t, x->cl, r * x->ld), share->scratch, x->cols), x->cols);
        kn_row_done(share, r);
    }
}

void kn_host_xent_max(struct kn_pool *pool, enum kn_type type, float *max, const void *logits,
                      size_t ld, size_t rows, size_t cols)
{
    struct xent x = {.t = type, .cl = logits, .ld = ld, .cols = cols, .out = max};

    assert(ld >= cols && cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, ROW_GRAIN, max_rows, &x);
}

static void sum_rows(void *arg, const struct kn_share *share)
{
    const struct xent *x = arg;

    for (size_t r = share->lo; r < share->hi; r++) {
        const float *l = kn_in(x->t, kn_ptr(x->t, x->cl, r * x->ld), share->scratch, x->cols);
        size_t c = target_column(x, r);

        x->out[r] = kn_ops()->sumexp_row(l, x->cols, x->max[r]);
        x->target[r] = c < x->cols ? l[c] : 0;
        kn_row_done(share, r);
    }
}

void kn_host_xent_sum(struct kn_pool *pool, enum kn_type type, float *sum, float *target,
                      const void *logits, size_t ld, size_t rows, size_t cols, const float *max,
                      const int32_t *targets, size_t v0)
{
    struct xent x = {.t = type,
                     .cl = logits,
                     .ld = ld,
                     .cols = cols,
                     .out = sum,
                     .target = target,
                     .max = max,
                     .targets = targets,
                     .v0 = v0};

    assert(ld >= cols && cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, ROW_GRAIN, sum_rows, &x);
}

double kn_xent_loss(float *ret_loss, size_t *ret_count, const float *max, const float *sum,
                    const float *target, const int32_t *targets, size_t rows)
{
    double total = 0;
    size_t count = 0;

    for (size_t r = 0; r < rows; r++) {
        double one = targets[r] < 0 ? 0 : log((double)sum[r]) + (double)max[r] - (double)target[r];

        count += targets[r] >= 0;
        total += one;
        if (ret_loss)
            ret_loss[r] = (float)one;
    }
    *ret_count = count;
    return total;
}

double kn_xent_z(const float *max, const float *sum, const int32_t *targets, size_t rows)
{
    double total = 0;

    for (size_t r = 0; r < rows; r++) {
        double log_z = targets[r] < 0 ? 0 : log((double)sum[r]) + (double)max[r];

        total += log_z * log_z;
    }
    return total;
}

/* What the softmax of a row is multiplied by. */
static float factor(const struct xent *xent, size_t row)
{
    double log_z;

    if (xent->z <= 0) /* not even by a rounding is it another number */
        return xent->scale;
    log_z = log((double)xent->sum[row]) + (double)xent->max[row];
    return (float)((double)xent->scale * (1 + 2 * (double)xent->z * log_z));
}

/* Columns [FIRST, LAST) of a row at L, of which C is the target's, with BY = factor / sum. The
 * cap's slope needs the logits beside the gradient. */
static void grad_columns(const struct xent *xent, size_t row, void *l, size_t first, size_t last,
                         size_t c, float by, float *scratch)
{
    void *at = kn_ptr(xent->t, l, first);
    size_t n = last - first;
    const float *x = kn_in(xent->t, at, scratch, n);
    float *d = kn_out(xent->t, at, scratch), *capped = scratch + n;

    if (xent->cap > 0)
        memcpy(capped, x, n * sizeof(float));
    kn_ops()->softmax_row(d, x, n, xent->max[row], by);
    if (c >= first && c < last)
        d[c - first] -= xent->scale;
    if (xent->cap > 0)
        kn_ops()->softcap_bwd_row(d, capped, n, xent->cap);
    kn_out_done(xent->t, at, d, n);
}

static void grad_rows(void *arg, const struct kn_share *share)
{
    const struct xent *x = arg;
    size_t step = x->cap > 0 ? PIECE : kn_max(x->cols, 1);

    for (size_t r = share->lo; r < share->hi; r++) {
        void *row = kn_ptr(x->t, x->l, r * x->ld);
        size_t c = target_column(x, r), pad = x->targets[r] < 0 ? 0 : x->cols;

        for (size_t i = 0; i < pad; i += step)
            grad_columns(x, r, row, i, kn_min(pad, i + step), c, factor(x, r) / x->sum[r],
                         share->scratch);
        memset(kn_ptr(x->t, row, pad), 0, (x->padded - pad) * kn_type_size(x->t));
        kn_row_done(share, r);
    }
}

void kn_host_xent_grad(struct kn_pool *pool, enum kn_type type, void *logits, size_t ld,
                       size_t rows, size_t cols, size_t padded, const float *max, const float *sum,
                       const int32_t *targets, size_t v0, float scale, float z, float cap)
{
    struct xent x = {.t = type,
                     .l = logits,
                     .ld = ld,
                     .cols = cols,
                     .padded = padded,
                     .max = max,
                     .sum = sum,
                     .targets = targets,
                     .v0 = v0,
                     .scale = scale,
                     .z = z,
                     .cap = cap};

    assert(z >= 0 && cap >= 0 && ld >= padded && padded >= cols);
    assert(cols * sizeof(float) <= KN_SCRATCH_BYTES);
    kn_parallel(pool, rows, 1, ROW_GRAIN, grad_rows, &x);
}
