#include "tests/mpi/orders.h"

#include "base/base.h"
#include "kernels/backend.h"
#include "tests/mpi/draw.h"

#include <assert.h>

/* ---- sums ---------------------------------------------------------------- */

enum { ROWS = DRAW_BATCH * DRAW_SEQ * DRAW_TOP_K, ROWS_BYTES = 1 << 21 };

/* Which term of a product's sums stands at each place; copies of the operands in that order. */
struct term_order {
    uint64_t seed;
    size_t row[ROWS];
    char a[ROWS_BYTES], b[ROWS_BYTES];
};

static struct term_order order;

/* Rows FIRST to END in an order drawn from the seed and their numbers. */
static void shuffle_rows(size_t first, size_t end)
{
    struct rng r;

    assert(end <= ROWS);
    rng_seed(&r, rng_mix(order.seed) ^ first << 20 ^ end);
    for (size_t i = first; i < end; i++)
        order.row[i] = i;
    for (size_t i = end; i > first + 1; i--) {
        size_t other = first + rng_below(&r, i - first), swap = order.row[i - 1];

        order.row[i - 1] = order.row[other];
        order.row[other] = swap;
    }
}

/* The first ROWS rows of FROM (rows, WIDTH) with leading dimension LD, close together in TO. */
static void copy_rows(char *to, enum kn_type type, const void *from, size_t ld, size_t rows,
                      size_t width)
{
    size_t size = kn_type_size(type);

    assert(rows * width * size <= ROWS_BYTES);
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * width * size, (const char *)from + order.row[i] * ld * size, width * size);
}

/* The same of the first COLUMNS columns of FROM (ROWS, COLUMNS). */
static void copy_columns(char *to, enum kn_type type, const void *from, size_t ld, size_t rows,
                         size_t columns)
{
    size_t size = kn_type_size(type);

    assert(rows * columns * size <= ROWS_BYTES);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            memcpy(to + (i * columns + j) * size,
                   (const char *)from + (i * ld + order.row[j]) * size, size);
}

/* The same product of copies whose TERMS terms are shuffled. */
static struct kn_gemm shuffled(const struct kn_gemm *gemm, size_t terms)
{
    struct kn_gemm g = *gemm;

    if (g.ta)
        copy_rows(order.a, g.at, g.a, g.lda, terms, g.m);
    else
        copy_columns(order.a, g.at, g.a, g.lda, g.m, terms);
    if (g.tb)
        copy_columns(order.b, g.bt, g.b, g.ldb, g.n, terms);
    else
        copy_rows(order.b, g.bt, g.b, g.ldb, terms, g.n);
    g.a = order.a;
    g.b = order.b;
    g.lda = g.ta ? g.m : terms;
    g.ldb = g.tb ? terms : g.n;
    return g;
}

static void gemm_in_order(struct kn_pool *pool, const struct kn_gemm *gemm)
{
    struct kn_gemm g;

    shuffle_rows(0, gemm->k);
    g = shuffled(gemm, gemm->k);
    kn_host_gemm(pool, &g);
}

static void grouped_of_tokens(struct kn_pool *pool, const struct kn_gemm *gemm, size_t groups,
                              const int32_t *offsets, size_t wstride)
{
    struct kn_gemm g = *gemm;

    if (g.ta) {
        for (size_t e = 0; e < groups; e++)
            shuffle_rows((size_t)offsets[e], (size_t)offsets[e + 1]);
        g = shuffled(gemm, (size_t)offsets[groups]);
    }
    kn_host_gemm_grouped(pool, &g, groups, offsets, wstride);
}

/* ---- attention ----------------------------------------------------------- */

enum { PARTS = 3, SUMS = 1 << 17 };

/* Queries from SKIP on against keys from SKIP_K on. */
struct meeting {
    struct kn_attn a;
    struct kn_attn_part part;
    size_t skip, skip_k;
};

static float sum_o[SUMS], sum_dq[SUMS], sum_dk[SUMS], sum_dv[SUMS];

static void *at(enum kn_type type, const void *array, size_t index)
{
    return (char *)(uintptr_t)array + index * kn_type_size(type);
}

static struct meeting meeting_of(const struct kn_attn *attn, size_t q, size_t queries, size_t k,
                                 size_t keys)
{
    struct meeting m = {.a = *attn,
                        .part = {.keys = keys,
                                 .q_rows = attn->seq,
                                 .k_rows = attn->seq,
                                 .lead = q - k,
                                 .causal = q == k,
                                 .merge = q != k},
                        .skip = q,
                        .skip_k = k};

    assert(k <= q && q + queries <= attn->seq && k + keys <= attn->seq);
    m.a.seq = queries;
    m.a.q = at(attn->type, attn->q, q * attn->ldq);
    m.a.k = at(attn->type, attn->k, k * attn->ldk);
    m.a.v = at(attn->type, attn->v, k * attn->ldv);
    if (attn->age)
        m.a.age = attn->age + q;
    return m;
}

/* The first tokens of a sample among themselves, the others, and these against the first ones. */
static void cut(struct meeting *ret, const struct kn_attn *attn)
{
    size_t c = 1 + (size_t)(rng_mix(order.seed ^ attn->seq) % (attn->seq - 1));

    ret[0] = meeting_of(attn, 0, c, 0, c);
    ret[1] = meeting_of(attn, c, attn->seq - c, c, attn->seq - c);
    ret[2] = meeting_of(attn, c, attn->seq - c, 0, c);
}

static void attn_fwd_of_parts(struct kn_pool *pool, const struct kn_attn *attn, void *out,
                              size_t ldo, float *lse)
{
    size_t rows = attn->batch * attn->seq, wide = attn->heads * attn->dv;
    struct meeting m[PARTS];

    if (attn->seq < 2) {
        kn_host_attn_fwd(pool, attn, out, ldo, lse);
        return;
    }
    assert(rows * wide <= SUMS);
    cut(m, attn);
    for (int i = 0; i < PARTS; i++)
        kn_host_attn_part_fwd(pool, &m[i].a, &m[i].part, sum_o + m[i].skip * wide, wide,
                              lse + m[i].skip);
    kn_host_convert_rows(pool, attn->type, out, ldo, KN_F32, sum_o, wide, rows, wide);
}

static void part_bwd(struct kn_pool *pool, const struct kn_attn *attn, const struct meeting *m,
                     const struct kn_attn_grad *grad, void *workspace)
{
    size_t q = attn->heads * attn->d, k = attn->kv_heads * attn->d, v = attn->kv_heads * attn->dv;
    struct kn_attn_grad g = {.o = at(attn->type, grad->o, m->skip * grad->ldo),
                             .d_o = at(attn->type, grad->d_o, m->skip * grad->lddo),
                             .ldo = grad->ldo,
                             .lddo = grad->lddo,
                             .lse = grad->lse + m->skip,
                             .dq = sum_dq + m->skip * q,
                             .dk = sum_dk + m->skip_k * k,
                             .dv = sum_dv + m->skip_k * v,
                             .lddq = q,
                             .lddk = k,
                             .lddv = v};

    kn_host_attn_part_bwd(pool, &m->a, &m->part, &g, workspace);
}

static void attn_bwd_of_parts(struct kn_pool *pool, const struct kn_attn *attn,
                              const struct kn_attn_grad *grad, void *workspace)
{
    size_t q = attn->heads * attn->d, k = attn->kv_heads * attn->d, v = attn->kv_heads * attn->dv,
           rows = attn->batch * attn->seq;
    struct meeting m[PARTS];

    if (attn->seq < 2) {
        kn_host_attn_bwd(pool, attn, grad, workspace);
        return;
    }
    assert(rows * q <= SUMS && rows * v <= SUMS); /* k <= q */
    memset(sum_dq, 0, rows * q * sizeof(*sum_dq));
    memset(sum_dk, 0, rows * k * sizeof(*sum_dk));
    memset(sum_dv, 0, rows * v * sizeof(*sum_dv));
    cut(m, attn);
    for (int i = 0; i < PARTS; i++)
        part_bwd(pool, attn, &m[i], grad, workspace);
    kn_host_convert_rows(pool, attn->type, grad->dq, grad->lddq, KN_F32, sum_dq, q, rows, q);
    kn_host_convert_rows(pool, attn->type, grad->dk, grad->lddk, KN_F32, sum_dk, k, rows, k);
    kn_host_convert_rows(pool, attn->type, grad->dv, grad->lddv, KN_F32, sum_dv, v, rows, v);
}

const struct kn_backend *orders_backend(uint64_t seed)
{
    static struct kn_backend backend;

    order.seed = seed;
    backend = *kn_backend_host();
    backend.name = "terms in another order";
    backend.gemm = gemm_in_order;
    backend.gemm_grouped = grouped_of_tokens;
    backend.attn_fwd = attn_fwd_of_parts;
    backend.attn_bwd = attn_bwd_of_parts;
    return &backend;
}
