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
 * Causality: key k0 + a may see query q0 + b only if a + diag <= b, diag = k0 - q0. Parts of a
 * product that lie wholly in the masked triangle are left out.
 */
#include "kernels/attn.h"

enum { TILE = KN_ATTN_TILE, LD = KN_ATTN_LD };

/* The part of the product that causality leaves. */
enum part {
    ALL,
    ROW_BELOW_COLUMN, /* c(i, j) matters only where i + diag <= j */
    DEPTH_BY_COLUMN,  /* terms l with l + diag <= j */
    DEPTH_FROM_ROW,   /* terms l with i + diag <= l */
    DEPTH_TO_ROW,     /* terms l with l + diag <= i */
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
    ptrdiff_t diag;
};

static size_t clamp(ptrdiff_t x, size_t max)
{
    return x < 0 ? 0 : kn_min((size_t)x, max);
}

/* First and last term that the panel of rows [i, i + h) and columns [j, j + w) needs. */
static void depth(const struct product *p, size_t i, size_t h, size_t j, size_t w, size_t *from,
                  size_t *to)
{
    *from = 0;
    *to = p->k;
    if (p->part == DEPTH_BY_COLUMN)
        *to = clamp((ptrdiff_t)(j + w) - p->diag, p->k);
    else if (p->part == DEPTH_FROM_ROW)
        *from = clamp((ptrdiff_t)i + p->diag, p->k);
    else if (p->part == DEPTH_TO_ROW)
        *to = clamp((ptrdiff_t)(i + h) - p->diag, p->k);
}

static void multiply(const struct kn_gemm_isa *isa, const struct product *p)
{
    size_t panels = (p->m + isa->mr - 1) / isa->mr, low = p->m / panels, high = p->m % panels;

    for (size_t j = 0; j < p->n; j += isa->nr) {
        size_t w = kn_min(isa->nr, p->n - j);

        for (size_t q = 0, i = 0; q < panels; q++) {
            size_t h = low + (q < high), from, to;

            depth(p, i, h, j, w, &from, &to);
            if (p->part != ROW_BELOW_COLUMN || (ptrdiff_t)i + p->diag < (ptrdiff_t)(j + w))
                isa->ukr[h](to - from, p->a + i * p->rs + from * p->cs, 4 * p->rs, 4 * p->cs,
                            p->b + j * p->bj + from * p->bs, 4 * p->bs, p->c + i * p->ldc + j,
                            p->ldc, w, p->add, (struct kn_soon){0});
            i += h;
        }
    }
}

/* ---- operands ---- */

/* A block of rows of one head as fp32: where it is, or a copy, if it is bf16 or if its rows would
 * fight for the same lines of the cache. */
struct rows {
    const float *p;
    size_t ld;
};

static struct rows rows_of(enum kn_type t, const void *m, size_t ld, size_t row, size_t col,
                           size_t n, size_t d, float *copy)
{
    if (t == KN_F32 && ld % 512 != 0)
        return (struct rows){(const float *)m + row * ld + col, ld};
    for (size_t i = 0; i < n; i++) {
        const void *from = kn_ptr(t, m, (row + i) * ld + col);

        if (t == KN_F32)
            memcpy(copy + i * d, from, d * sizeof(float));
        else
            kn_ops()->to_f32(copy + i * d, from, d);
    }
    return (struct rows){copy, d};
}

static void put_rows(enum kn_type t, void *m, size_t ld, size_t row, size_t col, size_t n, size_t d,
                     const float *from)
{
    for (size_t i = 0; i < n; i++) {
        void *to = kn_ptr(t, m, (row + i) * ld + col);

        if (t == KN_F32)
            memcpy(to, from + i * d, d * sizeof(float));
        else
            kn_ops()->to_bf16(to, from + i * d, d);
    }
}

/* Scratch of one thread: each field holds one tile. */
struct scratch {
    float k[TILE * KN_MAX_HEAD_DIM], v[TILE * KN_MAX_HEAD_DIM];    /* copies, if needed */
    float q[TILE * KN_MAX_HEAD_DIM], d_o[TILE * KN_MAX_HEAD_DIM];  /* copies, if needed */
    float qt[TILE * KN_MAX_HEAD_DIM], dot[TILE * KN_MAX_HEAD_DIM]; /* packed panels */
    float s[TILE * LD], ds[TILE * LD];
    float ot[KN_MAX_HEAD_DIM * LD], out[TILE * KN_MAX_HEAD_DIM];
    float max[TILE], sum[TILE], lse[TILE], delta[TILE];
};

static_assert(sizeof(struct scratch) <= KN_SCRATCH_BYTES, "a thread's scratch holds the tiles");

/* S^T = K Q^T, or dP^T = V dO^T, from packed queries. */
static void scores(const struct kn_gemm_isa *isa, float *s, struct rows k, const float *qt,
                   size_t keys, size_t queries, size_t d, ptrdiff_t diag)
{
    struct product p = {.m = keys,
                        .n = queries,
                        .k = d,
                        .a = k.p,
                        .rs = k.ld,
                        .cs = 1,
                        .b = qt,
                        .bj = d,
                        .bs = isa->nr,
                        .c = s,
                        .ldc = LD,
                        .part = ROW_BELOW_COLUMN,
                        .diag = diag};

    multiply(isa, &p);
}

/* ---- forward ---- */

static void write_out(const struct kn_attn_job *j, struct scratch *w, size_t queries, void *o,
                      size_t ldo, float *lse)
{
    const struct kn_attn *a = j->a;

    kn_ops()->gemm_isa->turn[KN_F32](w->out, a->d, a->d, w->ot, LD, queries);
    for (size_t q = 0; q < queries; q++) {
        float *row = w->out + q * a->d;

        lse[q] = w->max[q] * (float)M_LN2 + logf(w->sum[q]);
        kn_ops()->scale(row, row, 1 / w->sum[q], a->d);
    }
    put_rows(a->type, o, ldo, j->sample * a->seq + j->q0, j->head * a->d, queries, a->d, w->out);
}

void kn_attn_tiled_fwd(const struct kn_attn_job *j, void *o, size_t ldo, float *lse)
{
    const struct kn_gemm_isa *isa = kn_ops()->gemm_isa;
    const struct kn_attn *a = j->a;
    struct scratch *w = (struct scratch *)(void *)j->scratch;
    size_t row = j->sample * a->seq, queries = j->q1 - j->q0,
           kvh = j->head / (a->heads / a->kv_heads);
    struct rows q =
        rows_of(a->type, a->q, a->ldq, row + j->q0, j->head * a->d, queries, a->d, w->q);

    isa->turn[KN_F32](w->qt, isa->nr, queries, q.p, q.ld, a->d);
    memset(w->ot, 0, a->d * LD * sizeof(float));
    for (size_t i = 0; i < TILE; i++) {
        w->max[i] = -HUGE_VALF;
        w->sum[i] = 0;
    }
    for (size_t k0 = 0; k0 < j->q1; k0 += TILE) {
        size_t keys = kn_min(TILE, j->q1 - k0);
        ptrdiff_t diag = (ptrdiff_t)k0 - (ptrdiff_t)j->q0;
        struct rows k = rows_of(a->type, a->k, a->ldk, row + k0, kvh * a->d, keys, a->d, w->k);
        struct rows v = rows_of(a->type, a->v, a->ldv, row + k0, kvh * a->d, keys, a->d, w->v);

        struct product p = {.m = a->d,
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
                            .diag = diag};

        scores(isa, w->s, k, w->qt, keys, queries, a->d, diag);
        kn_ops()->attn_softmax(w->s, keys, queries, diag, a->scale, w->max, w->sum, w->ot, a->d);
        multiply(isa, &p);
    }
    write_out(j, w, queries, o, ldo, lse + (j->sample * a->heads + j->head) * a->seq + j->q0);
}

/* ---- backward ---- */

/* One tile: keys from k0 on against the block of queries from q0 on of one head. */
struct tile {
    struct scratch *w;
    size_t keys, queries, d;
    ptrdiff_t diag;
    struct rows k, v, q, d_o;
    float *dk, *dv; /* rows of the keys, leading dimensions lddk, lddv */
    size_t lddk, lddv;
    bool first;                        /* nothing has been added to dk and dv of these keys yet */
    bool begun;                        /* something has been added to dq */
    const struct kn_attn_turns *turns; /* NULL: nobody else adds to these dk and dv */
    size_t row;
};

/* The last row before ROW that adds to key block K, or -1. */
static ptrdiff_t row_before(const struct kn_attn_turns *u, size_t row, size_t k)
{
    if (row % u->blocks > k)
        return (ptrdiff_t)row - 1;
    return (ptrdiff_t)(row / u->blocks * u->blocks) - 1; /* the last block of the head before */
}

static void wait_turn(const struct kn_attn_turns *u, size_t row, size_t k)
{
    ptrdiff_t before = row_before(u, row, k);

    if (before >= 0)
        kn_wait_above(&u->done[(size_t)before * u->stride], (unsigned)k);
}

/* K: number of the block of keys. */
static void backward_tile(const struct kn_gemm_isa *isa, const struct tile *t, float scale,
                          size_t k)
{
    struct scratch *w = t->w;
    struct product dv = {.m = t->keys,
                         .n = t->d,
                         .k = t->queries,
                         .a = w->s,
                         .rs = LD,
                         .cs = 1,
                         .b = t->d_o.p,
                         .bj = 1,
                         .bs = t->d_o.ld,
                         .c = t->dv,
                         .ldc = t->lddv,
                         .add = !t->first,
                         .part = DEPTH_FROM_ROW,
                         .diag = t->diag};
    struct product dk = {.m = t->keys,
                         .n = t->d,
                         .k = t->queries,
                         .a = w->ds,
                         .rs = LD,
                         .cs = 1,
                         .b = t->q.p,
                         .bj = 1,
                         .bs = t->q.ld,
                         .c = t->dk,
                         .ldc = t->lddk,
                         .add = !t->first,
                         .part = DEPTH_FROM_ROW,
                         .diag = t->diag};
    struct product dq = {.m = t->queries,
                         .n = t->d,
                         .k = t->keys,
                         .a = w->ds,
                         .rs = 1,
                         .cs = LD,
                         .b = t->k.p,
                         .bj = 1,
                         .bs = t->k.ld,
                         .c = w->out,
                         .ldc = t->d,
                         .add = t->begun,
                         .part = DEPTH_TO_ROW,
                         .diag = t->diag};

    scores(isa, w->s, t->k, w->qt, t->keys, t->queries, t->d, t->diag);
    scores(isa, w->ds, t->v, w->dot, t->keys, t->queries, t->d, t->diag);
    kn_ops()->attn_dscore(w->s, w->ds, t->keys, t->queries, t->diag, scale, w->lse, w->delta);
    multiply(isa, &dq);
    if (t->turns)
        wait_turn(t->turns, t->row, k);
    multiply(isa, &dv);
    multiply(isa, &dk);
    if (t->turns)
        atomic_store_explicit(&t->turns->done[t->row * t->turns->stride], (unsigned)k + 1,
                              memory_order_release);
}

/* All keys for the block of queries from q0 on of head H. DK, DV (seq, ...): sums of this job. */
static void backward_block(const struct kn_attn_job *j, const struct kn_attn_grad *g,
                           const float *delta, size_t h, size_t q0, struct tile *t)
{
    const struct kn_gemm_isa *isa = kn_ops()->gemm_isa;
    const struct kn_attn *a = j->a;
    struct scratch *w = t->w;
    size_t row = j->sample * a->seq, q1 = kn_min(a->seq, q0 + TILE);
    float *dk = t->dk, *dv = t->dv;
    bool first_head = h % (a->heads / a->kv_heads) == 0;

    t->queries = q1 - q0;
    t->q = rows_of(a->type, a->q, a->ldq, row + q0, h * a->d, t->queries, a->d, w->q);
    t->d_o = rows_of(a->type, g->d_o, g->lddo, row + q0, h * a->d, t->queries, a->d, w->d_o);
    isa->turn[KN_F32](w->qt, isa->nr, t->queries, t->q.p, t->q.ld, a->d);
    isa->turn[KN_F32](w->dot, isa->nr, t->queries, t->d_o.p, t->d_o.ld, a->d);
    memcpy(w->lse, g->lse + (j->sample * a->heads + h) * a->seq + q0, t->queries * sizeof(float));
    memcpy(w->delta, delta + h * a->seq + q0, t->queries * sizeof(float));
    for (size_t k0 = 0; k0 < q1; k0 += TILE) {
        t->keys = kn_min(TILE, q1 - k0);
        t->diag = (ptrdiff_t)k0 - (ptrdiff_t)q0;
        t->k = rows_of(a->type, a->k, a->ldk, row + k0, j->head * a->d, t->keys, a->d, w->k);
        t->v = rows_of(a->type, a->v, a->ldv, row + k0, j->head * a->d, t->keys, a->d, w->v);
        t->first = first_head && k0 == q0; /* earlier blocks of queries do not see these keys */
        t->begun = k0 > 0;
        t->dk = dk + k0 * t->lddk;
        t->dv = dv + k0 * t->lddv;
        backward_tile(isa, t, a->scale, k0 / TILE);
    }
    t->dk = dk;
    t->dv = dv;
    put_rows(a->type, g->dq, g->lddq, row + q0, h * a->d, t->queries, a->d, w->out);
}

/* Where J's key/value head adds up dk and dv. */
static struct tile sums_of(const struct kn_attn_job *j, const struct kn_attn_grad *g, float *sums)
{
    const struct kn_attn *a = j->a;
    size_t row = j->sample * a->seq;
    struct tile t = {.w = (struct scratch *)(void *)j->scratch, .d = a->d};

    if (a->type == KN_F32) {
        t.dk = (float *)g->dk + row * g->lddk + j->head * a->d;
        t.dv = (float *)g->dv + row * g->lddv + j->head * a->d;
        t.lddk = g->lddk;
        t.lddv = g->lddv;
    } else {
        t.dk = sums;
        t.dv = sums + a->seq * a->d;
        t.lddk = t.lddv = a->d;
    }
    return t;
}

void kn_attn_tiled_bwd_row(const struct kn_attn_job *j, const struct kn_attn_grad *g,
                           const float *delta, float *sums, const struct kn_attn_turns *turns,
                           size_t row)
{
    const struct kn_attn *a = j->a;
    size_t blocks = (a->seq + TILE - 1) / TILE, group = a->heads / a->kv_heads;
    struct tile t = sums_of(j, g, sums);

    t.turns = turns;
    t.row = row;
    backward_block(j, g, delta, j->head * group + row / blocks, row % blocks * TILE, &t);
    kn_pool_poll(j->pool, j->thread);
}

void kn_attn_tiled_bwd_end(const struct kn_attn_job *j, const struct kn_attn_grad *g,
                           const float *sums)
{
    const struct kn_attn *a = j->a;
    size_t row = j->sample * a->seq;

    if (a->type == KN_F32)
        return;
    put_rows(a->type, g->dk, g->lddk, row, j->head * a->d, a->seq, a->d, sums);
    put_rows(a->type, g->dv, g->lddv, row, j->head * a->d, a->seq, a->d, sums + a->seq * a->d);
}

void kn_attn_tiled_bwd(const struct kn_attn_job *j, const struct kn_attn_grad *g,
                       const float *delta, float *sums)
{
    size_t rows = j->a->heads / j->a->kv_heads * ((j->a->seq + TILE - 1) / TILE);

    for (size_t row = 0; row < rows; row++)
        kn_attn_tiled_bwd_row(j, g, delta, sums, NULL, row);
    kn_attn_tiled_bwd_end(j, g, sums);
}
