/*
 * Attention in tiles: Dao, "FlashAttention-2", 2023, on the GEMM's micro-kernel.
 *
 * Scores are kept transposed, S^T = K Q^T (keys, queries), so that a vector register holds one key
 * against 16 queries: maximum, sum and rescaling of the softmax are then plain vector operations
 * without a horizontal step. Only Q (and d_o) is packed, once for each block of queries; every
 * other operand is read in the order that it has, since the micro-kernel takes its left operand
 * with any two strides:
 *
 *   forward    S^T = K Q^T    O^T += V^T P^T
 *   backward   S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q    dQ += dS K
 *
 * Causality: query q0 + b may see key k0 + a only if a + diag <= b, diag = k0 - q0; without it diag
 * is so low that every query sees every key. A window: only if a + low > b, low = k0 + window - q0;
 * without it low is so high that no key is too far behind. Parts of a product that lie wholly in
 * one of the two masked triangles are left out. The scores of the second are set to minus infinity
 * before the softmax, which knows of the first alone. So are those of keys of earlier documents;
 * blocks of keys that no query of a block sees are left out as a whole.
 */
#include "kernels/attn.h"

#include <float.h>

enum { TILE = KN_ATTN_TILE, LD = KN_ATTN_LD };

/* The part of the product that causality and the window leave. */
enum part {
    ALL,
    ROW_BELOW_COLUMN, /* c(i, j) matters only where i + diag <= j < i + low */
    DEPTH_BY_COLUMN,  /* terms l with l + diag <= j < l + low */
    DEPTH_FROM_ROW,   /* terms l with i + diag <= l < i + low */
    DEPTH_TO_ROW,     /* terms l with l + diag <= i < l + low */
};

/* c (m, n) = [c +] a b, where b's panel of columns at j starts at b + j bj. */
struct product {
    size_t m, n, k;
    const float *a;
    size_t rs, cs; /* in elements */
    const float *b;
    size_t bj, bs;
    float *c;
    size_t ldc;
    bool add;
    enum part part;
    ptrdiff_t diag, low;
};

static size_t clamp(ptrdiff_t value, size_t max)
{
    return value < 0 ? 0 : kn_min((size_t)value, max);
}

/* First and last term that the panel of rows [i, i + height) and columns [j, j + width) needs. */
static void depth(size_t *ret_from, size_t *ret_to, const struct product *product, size_t i,
                  size_t height, size_t j, size_t width)
{
    *ret_from = 0;
    *ret_to = product->k;
    if (product->part == DEPTH_BY_COLUMN) {
        *ret_from = clamp((ptrdiff_t)j + 1 - product->low, product->k);
        *ret_to = clamp((ptrdiff_t)(j + width) - product->diag, product->k);
    } else if (product->part == DEPTH_FROM_ROW) {
        *ret_from = clamp((ptrdiff_t)i + product->diag, product->k);
        *ret_to = clamp((ptrdiff_t)(i + height) - 1 + product->low, product->k);
    } else if (product->part == DEPTH_TO_ROW) {
        *ret_from = clamp((ptrdiff_t)i + 1 - product->low, product->k);
        *ret_to = clamp((ptrdiff_t)(i + height) - product->diag, product->k);
    }
}

/* Whether the panel of rows [i, i + height) and columns [j, j + width) has something that matters.
 */
static bool matters(const struct product *product, size_t i, size_t height, size_t j, size_t width)
{
    return product->part != ROW_BELOW_COLUMN ||
           ((ptrdiff_t)i + product->diag < (ptrdiff_t)(j + width) &&
            (ptrdiff_t)(i + height) - 1 + product->low > (ptrdiff_t)j);
}

static void multiply(const struct kn_gemm_isa *isa, const struct product *product)
{
    size_t panels = (product->m + isa->mr - 1) / isa->mr, low = product->m / panels,
           high = product->m % panels;

    for (size_t j = 0; j < product->n; j += isa->nr) {
        size_t w = kn_min(isa->nr, product->n - j);

        for (size_t q = 0, i = 0; q < panels; q++) {
            size_t h = low + (q < high), from, to;

            depth(&from, &to, product, i, h, j, w);
            if (matters(product, i, h, j, w))
                isa->ukr[h](to - from, product->a + i * product->rs + from * product->cs,
                            4 * product->rs, 4 * product->cs,
                            product->b + j * product->bj + from * product->bs, 4 * product->bs,
                            product->c + i * product->ldc + j, product->ldc, w, product->add,
                            (struct kn_prefetch){0});
            i += h;
        }
    }
}

/* ---- operands ------------------------------------------------------------ */

/* A block of rows of one head as fp32: where it is, or a copy, if it is bf16 or if its rows would
 * fight for the same lines of the cache. */
struct rows {
    const float *p;
    size_t ld;
};

static struct rows rows_of(enum kn_type type, const void *matrix, size_t ld, size_t row, size_t col,
                           size_t count, size_t dim, float *copy)
{
    if (type == KN_F32 && ld % 512 != 0)
        return (struct rows){(const float *)matrix + row * ld + col, ld};
    for (size_t i = 0; i < count; i++) {
        const void *from = kn_ptr(type, matrix, (row + i) * ld + col);

        if (type == KN_F32)
            memcpy(copy + i * dim, from, dim * sizeof(float));
        else
            kn_ops()->to_f32(copy + i * dim, from, dim);
    }
    return (struct rows){copy, dim};
}

static void put_rows(enum kn_type type, void *matrix, size_t ld, size_t row, size_t col,
                     size_t count, size_t dim, const float *from)
{
    for (size_t i = 0; i < count; i++) {
        void *to = kn_ptr(type, matrix, (row + i) * ld + col);

        if (type == KN_F32)
            memcpy(to, from + i * dim, dim * sizeof(float));
        else
            kn_ops()->to_bf16(to, from + i * dim, dim);
    }
}

/* Scratch of one thread: each field holds one tile. */
struct scratch {
    float k[TILE * KN_MAX_HEAD_DIM], v[TILE * KN_MAX_HEAD_DIM];    /* copies, if needed */
    float q[TILE * KN_MAX_HEAD_DIM], d_o[TILE * KN_MAX_HEAD_DIM];  /* copies, if needed */
    float qt[TILE * KN_MAX_HEAD_DIM], dot[TILE * KN_MAX_HEAD_DIM]; /* packed panels */
    float s[TILE * LD], ds[TILE * LD], capped[TILE * LD];
    float ot[KN_MAX_HEAD_DIM * LD], out[TILE * KN_MAX_HEAD_DIM];
    float max[TILE], sum[TILE], lse[TILE], delta[TILE];
};

static_assert(sizeof(struct scratch) <= KN_SCRATCH_BYTES, "a thread's scratch holds the tiles");

/* S^T = K Q^T, or dP^T = V dO^T, from packed queries. */
static void scores(const struct kn_gemm_isa *isa, float *s, struct rows k, const float *qt,
                   size_t keys, size_t queries, size_t dim, ptrdiff_t diag, ptrdiff_t low)
{
    struct product p = {.m = keys,
                        .n = queries,
                        .k = dim,
                        .a = k.p,
                        .rs = k.ld,
                        .cs = 1,
                        .b = qt,
                        .bj = dim,
                        .bs = isa->nr,
                        .c = s,
                        .ldc = LD,
                        .part = ROW_BELOW_COLUMN,
                        .diag = diag,
                        .low = low};

    multiply(isa, &p);
}

/* What struct kn_attn's cap is for scores that the scale has not multiplied yet. */
static float cap_of(const struct kn_attn *attn)
{
    return attn->cap / attn->scale;
}

/* Scores of ATTN, capped if it wants that, also into COPY: those that no query sees, too, so all
 * are numbers. */
static void capped_scores(const struct kn_gemm_isa *isa, float *s, const struct kn_attn *attn,
                          struct rows k, const float *qt, size_t keys, size_t queries,
                          ptrdiff_t diag, ptrdiff_t low, float *copy)
{
    if (attn->cap > 0)
        memset(s, 0, keys * LD * sizeof(float));
    scores(isa, s, k, qt, keys, queries, attn->d, diag, low);
    for (size_t a = 0; a < keys && attn->cap > 0; a++)
        kn_ops()->softcap_row(s + a * LD, s + a * LD, queries, cap_of(attn));
    if (attn->cap > 0 && copy)
        memcpy(copy, s, keys * LD * sizeof(float));
}

static ptrdiff_t diag_of(const struct kn_attn_job *job, size_t k0, size_t q0)
{
    return job->part->causal ? (ptrdiff_t)k0 - (ptrdiff_t)q0 : -(ptrdiff_t)TILE;
}

static ptrdiff_t low_of(const struct kn_attn_job *job, size_t k0, size_t q0)
{
    size_t window = job->a->window;

    return window ? (ptrdiff_t)(k0 + window) - (ptrdiff_t)(q0 + job->part->lead) : (ptrdiff_t)TILE;
}

/* S = VALUE where a key from K0 on is behind the window or the document of a query from Q0 on. */
static void forget_documents(float *s, const struct kn_attn_job *job, size_t k0, size_t keys,
                             size_t q0, size_t queries, float value)
{
    for (size_t a = 0, first = 0; a < keys; a++) {
        while (first < queries && kn_attn_behind(job, q0 + first) <= k0 + a)
            first++;
        if (first == queries)
            return;
        for (size_t b = first; b < queries; b++)
            s[a * LD + b] = value;
    }
}

/* S = VALUE where a key is too far behind. */
static void forget(float *s, const struct kn_attn_job *job, size_t k0, size_t keys, size_t q0,
                   size_t queries, float value)
{
    ptrdiff_t low = low_of(job, k0, q0);

    if (job->a->age) {
        forget_documents(s, job, k0, keys, q0, queries, value);
        return;
    }
    for (size_t a = 0; a < keys && (ptrdiff_t)a + low < (ptrdiff_t)queries; a++)
        for (size_t b = clamp((ptrdiff_t)a + low, queries); b < queries; b++)
            s[a * LD + b] = value;
}

/* First key of the block of keys that the queries from Q0 on begin with. */
static size_t first_key(const struct kn_attn_job *job, size_t q0)
{
    return kn_attn_behind(job, q0) / TILE * TILE;
}

/* ---- forward ------------------------------------------------------------- */

/* ROW = ROW / SUM, merged with OUT, which *LSE belongs to; *LSE of both. */
static void merge_row(float *row, float *lse, const float *out, float max, float sum, size_t dim)
{
    float mine = max + logf(sum), top = fmaxf(mine, *lse), before = expf(*lse - top),
          now = expf(mine - top);
    float both = before + now;

    kn_ops()->combine(row, now / both / sum, row, before / both, out, dim);
    *lse = top + logf(both);
}

static void write_out(const struct kn_attn_job *job, struct scratch *scratch, size_t queries,
                      void *out, size_t ldo, float *lse)
{
    const struct kn_attn *a = job->a;
    size_t to = kn_attn_q_row(job) + job->q0;

    kn_ops()->gemm_isa->transpose[KN_F32](scratch->out, a->dv, a->dv, scratch->ot, LD, queries);
    for (size_t q = 0; q < queries; q++) {
        float *row = scratch->out + q * a->dv, max = scratch->max[q] * (float)M_LN2;

        if (!(scratch->sum[q] > 0) && kn_attn_forgetful(job->a)) { /* it sees none of these keys */
            if (job->part->merge)
                memcpy(row, (const float *)out + (to + q) * ldo + job->head * a->dv,
                       a->dv * sizeof(*row));
            else
                lse[q] = -HUGE_VALF;
            continue;
        }
        if (job->part->merge) {
            merge_row(row, &lse[q], (const float *)out + (to + q) * ldo + job->head * a->dv, max,
                      scratch->sum[q], a->dv);
            continue;
        }
        lse[q] = max + logf(scratch->sum[q]);
        kn_ops()->scale(row, row, 1 / scratch->sum[q], a->dv);
    }
    put_rows(kn_attn_out_type(job), out, ldo, to, job->head * a->dv, queries, a->dv, scratch->out);
}

void kn_attn_tiled_fwd(const struct kn_attn_job *job, void *out, size_t ldo, float *lse)
{
    const struct kn_gemm_isa *isa = kn_ops()->gemm_isa;
    const struct kn_attn *a = job->a;
    struct scratch *w = (struct scratch *)(void *)job->scratch;
    size_t row = kn_attn_k_row(job), queries = job->q1 - job->q0,
           seen = kn_attn_seen(job, job->q1 - 1), kvh = job->head / (a->heads / a->kv_heads);
    struct rows q = rows_of(a->type, a->q, a->ldq, kn_attn_q_row(job) + job->q0, job->head * a->d,
                            queries, a->d, w->q);

    assert(queries <= TILE && job->q1 <= a->seq && job->head < a->heads);
    if (job->part->merge && kn_attn_behind(job, job->q0) >= seen)
        return;
    isa->transpose[KN_F32](w->qt, isa->nr, queries, q.p, q.ld, a->d);
    memset(w->ot, 0, a->dv * LD * sizeof(float));
    for (size_t i = 0; i < TILE; i++) {
        /* a tile may hold no key of a query */
        w->max[i] = kn_attn_forgetful(a) ? -FLT_MAX : -HUGE_VALF;
        w->sum[i] = 0;
    }
    for (size_t k0 = first_key(job, job->q0); k0 < seen; k0 += TILE) {
        size_t keys = kn_min(TILE, seen - k0);
        ptrdiff_t diag = diag_of(job, k0, job->q0), low = low_of(job, k0, job->q0);
        struct rows k = rows_of(a->type, a->k, a->ldk, row + k0, kvh * a->d, keys, a->d, w->k);
        struct rows v = rows_of(a->type, a->v, a->ldv, row + k0, kvh * a->dv, keys, a->dv, w->v);

        struct product p = {.m = a->dv,
                            .n = queries,
                            .k = keys,
                            .a = v.p,
                            .rs = 1,
                            .cs = v.ld,
                            .b = w->s,
                            .bj = 1,
                            .bs = LD,
                            .c = w->ot,
                            .ldc = LD,
                            .add = true,
                            .part = DEPTH_BY_COLUMN,
                            .diag = diag,
                            .low = low};

        capped_scores(isa, w->s, a, k, w->qt, keys, queries, diag, low, NULL);
        forget(w->s, job, k0, keys, job->q0, queries, -HUGE_VALF);
        kn_ops()->attn_softmax(w->s, keys, queries, diag, a->scale, w->max, w->sum, w->ot, a->dv);
        multiply(isa, &p);
    }
    write_out(job, w, queries, out, ldo, lse + kn_attn_lse(job, job->head) + job->q0);
}

/* ---- backward ------------------------------------------------------------ */

/* One tile: keys from k0 on against the block of queries from q0 on of one head. */
struct tile {
    struct scratch *w;
    size_t k0, keys, q0, queries, d, vd; /* vd: of a value */
    ptrdiff_t diag, low;
    struct rows k, v, q, d_o;
    float *dk, *dv; /* rows of the keys, leading dimensions lddk, lddv */
    size_t lddk, lddv;
    bool first;                        /* nothing has been added to dk and dv of these keys yet */
    bool begun;                        /* something has been added to dq */
    const struct kn_attn_order *order; /* NULL: nobody else adds to these dk and dv */
    size_t row;
    size_t last; /* block of queries of a head that sees these keys */
};

/* The last row before ROW that adds to key block K, which blocks of queries of a head see up to
 * LAST; or a negative number. */
static ptrdiff_t row_before(const struct kn_attn_order *order, size_t row, size_t k, size_t last)
{
    size_t block = row % order->blocks;

    if (block > (order->causal ? k : 0))
        return (ptrdiff_t)row - 1;
    return (ptrdiff_t)(row - block + last) - (ptrdiff_t)order->blocks; /* of the head before */
}

static void wait_for_earlier(const struct kn_attn_order *order, size_t row, size_t k, size_t last)
{
    ptrdiff_t before = row_before(order, row, k, last);

    if (before >= 0)
        kn_wait_above(&order->done[(size_t)before * order->stride], (unsigned)k);
}

/* S, DS -> P and the gradient of S. */
static void score_gradients(const struct kn_attn_job *job, const struct tile *tile)
{
    struct scratch *w = tile->w;

    kn_ops()->attn_dscore(w->s, w->ds, tile->keys, tile->queries, tile->diag, job->a->scale, w->lse,
                          w->delta);
    for (size_t i = 0; i < tile->keys && job->a->cap > 0; i++)
        kn_ops()->softcap_bwd_row(w->ds + i * LD, w->capped + i * LD, tile->queries,
                                  cap_of(job->a));
}

static void backward_tile(const struct kn_gemm_isa *isa, const struct kn_attn_job *job,
                          const struct tile *tile)
{
    struct scratch *w = tile->w;
    size_t k = tile->k0 / TILE;
    struct product dv = {.m = tile->keys,
                         .n = tile->vd,
                         .k = tile->queries,
                         .a = w->s,
                         .rs = LD,
                         .cs = 1,
                         .b = tile->d_o.p,
                         .bj = 1,
                         .bs = tile->d_o.ld,
                         .c = tile->dv,
                         .ldc = tile->lddv,
                         .add = !tile->first,
                         .part = DEPTH_FROM_ROW,
                         .diag = tile->diag,
                         .low = tile->low};
    struct product dk = dv;
    struct product dq = {.m = tile->queries,
                         .n = tile->d,
                         .k = tile->keys,
                         .a = w->ds,
                         .rs = 1,
                         .cs = LD,
                         .b = tile->k.p,
                         .bj = 1,
                         .bs = tile->k.ld,
                         .c = w->out,
                         .ldc = tile->d,
                         .add = tile->begun,
                         .part = DEPTH_TO_ROW,
                         .diag = tile->diag,
                         .low = tile->low};

    dk.n = tile->d;
    dk.a = w->ds;
    dk.b = tile->q.p;
    dk.bs = tile->q.ld;
    dk.c = tile->dk;
    dk.ldc = tile->lddk;
    capped_scores(isa, w->s, job->a, tile->k, w->qt, tile->keys, tile->queries, tile->diag,
                  tile->low, w->capped);
    scores(isa, w->ds, tile->v, w->dot, tile->keys, tile->queries, tile->vd, tile->diag, tile->low);
    forget(w->s, job, tile->k0, tile->keys, tile->q0, tile->queries, -HUGE_VALF);
    forget(w->ds, job, tile->k0, tile->keys, tile->q0, tile->queries, 0);
    score_gradients(job, tile);
    multiply(isa, &dq);
    if (tile->order)
        wait_for_earlier(tile->order, tile->row, k, tile->last);
    multiply(isa, &dv);
    multiply(isa, &dk);
    if (tile->order)
        atomic_store_explicit(&tile->order->done[tile->row * tile->order->stride], (unsigned)k + 1,
                              memory_order_release);
}

/* All keys for the block of queries from q0 on of HEAD. DK, DV (seq, ...): sums of this job. */
static void backward_block(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                           const float *delta, size_t head, size_t q0, struct tile *tile)
{
    const struct kn_gemm_isa *isa = kn_ops()->gemm_isa;
    const struct kn_attn *a = job->a;
    struct scratch *w = tile->w;
    size_t row = kn_attn_q_row(job), krow = kn_attn_k_row(job), q1 = kn_min(a->seq, q0 + TILE),
           seen = kn_attn_seen(job, q1 - 1), begin = first_key(job, q0);
    float *dk = tile->dk, *dv = tile->dv;
    bool first_head = head % (a->heads / a->kv_heads) == 0;

    if (kn_attn_behind(job, q0) >= seen)
        return;
    tile->q0 = q0;
    tile->queries = q1 - q0;
    tile->q = rows_of(a->type, a->q, a->ldq, row + q0, head * a->d, tile->queries, a->d, w->q);
    tile->d_o = rows_of(a->type, grad->d_o, grad->lddo, row + q0, head * a->dv, tile->queries,
                        a->dv, w->d_o);
    isa->transpose[KN_F32](w->qt, isa->nr, tile->queries, tile->q.p, tile->q.ld, a->d);
    isa->transpose[KN_F32](w->dot, isa->nr, tile->queries, tile->d_o.p, tile->d_o.ld, a->dv);
    memcpy(w->lse, grad->lse + kn_attn_lse(job, head) + q0, tile->queries * sizeof(float));
    memcpy(w->delta, delta + head * a->seq + q0, tile->queries * sizeof(float));
    for (size_t k0 = begin; k0 < seen; k0 += TILE) {
        tile->k0 = k0;
        tile->keys = kn_min(TILE, seen - k0);
        tile->diag = diag_of(job, k0, q0);
        tile->low = low_of(job, k0, q0);
        tile->last = (kn_attn_forgets(job, kn_min(job->part->keys, k0 + TILE) - 1) - 1) / TILE;
        tile->k =
            rows_of(a->type, a->k, a->ldk, krow + k0, job->head * a->d, tile->keys, a->d, w->k);
        tile->v =
            rows_of(a->type, a->v, a->ldv, krow + k0, job->head * a->dv, tile->keys, a->dv, w->v);
        /* earlier blocks of queries do not see these keys */
        tile->first = first_head && k0 == q0 && !job->sums;
        tile->begun = k0 > begin;
        tile->dk = dk + k0 * tile->lddk;
        tile->dv = dv + k0 * tile->lddv;
        backward_tile(isa, job, tile);
    }
    tile->dk = dk;
    tile->dv = dv;
    for (size_t i = 0; i < tile->queries && job->sums; i++)
        kn_ops()->add(w->out + i * a->d, w->out + i * a->d,
                      (const float *)grad->dq + (row + q0 + i) * grad->lddq + head * a->d, a->d);
    put_rows(kn_attn_out_type(job), grad->dq, grad->lddq, row + q0, head * a->d, tile->queries,
             a->d, w->out);
}

/* Where JOB's key/value head adds up dk and dv. */
static struct tile sums_of(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                           float *sums)
{
    const struct kn_attn *a = job->a;
    size_t row = kn_attn_k_row(job);
    struct tile t = {.w = (struct scratch *)(void *)job->scratch, .d = a->d, .vd = a->dv};

    if (kn_attn_out_type(job) == KN_F32) {
        t.dk = (float *)grad->dk + row * grad->lddk + job->head * a->d;
        t.dv = (float *)grad->dv + row * grad->lddv + job->head * a->dv;
        t.lddk = grad->lddk;
        t.lddv = grad->lddv;
    } else {
        t.dk = sums;
        t.dv = sums + a->seq * a->d;
        t.lddk = a->d;
        t.lddv = a->dv;
    }
    return t;
}

void kn_attn_tiled_bwd_row(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                           const float *delta, float *sums, const struct kn_attn_order *order,
                           size_t row)
{
    const struct kn_attn *a = job->a;
    size_t blocks = (a->seq + TILE - 1) / TILE, group = a->heads / a->kv_heads;
    struct tile t = sums_of(job, grad, sums);

    assert(row < group * blocks && (!order || order->blocks == blocks));
    t.order = order;
    t.row = row;
    backward_block(job, grad, delta, job->head * group + row / blocks, row % blocks * TILE, &t);
    kn_pool_poll(job->pool, job->thread);
}

void kn_attn_tiled_bwd_end(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                           const float *sums)
{
    const struct kn_attn *a = job->a;
    size_t row = job->sample * a->seq;

    if (kn_attn_out_type(job) == KN_F32)
        return;
    put_rows(a->type, grad->dk, grad->lddk, row, job->head * a->d, a->seq, a->d, sums);
    put_rows(a->type, grad->dv, grad->lddv, row, job->head * a->dv, a->seq, a->dv,
             sums + a->seq * a->d);
}

void kn_attn_tiled_bwd(const struct kn_attn_job *job, const struct kn_attn_grad *grad,
                       const float *delta, float *sums)
{
    size_t rows = job->a->heads / job->a->kv_heads * ((job->a->seq + TILE - 1) / TILE);

    for (size_t row = 0; row < rows; row++)
        kn_attn_tiled_bwd_row(job, grad, delta, sums, NULL, row);
    kn_attn_tiled_bwd_end(job, grad, sums);
}
