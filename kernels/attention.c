/*
 * Attention: who computes what. Forward work is a block of query rows of one head; backward work is
 * one key/value head with all queries of its group, so that dk and dv have one writer. Heads that
 * are left over when each thread has as many as the others are shared by all threads, a block of
 * queries at a time, which add to dk and dv in a fixed order.
 */
#include "kernels/attn.h"
#include "kernels/backend.h"

enum { Q_BLOCK = KN_ATTN_TILE, MAX_ROWS = 4096 /* blocks of queries that threads share */ };

struct fwd {
    const struct kn_attn *a;
    const struct kn_attn_part *part;
    bool sums;
    void *o;
    size_t ldo, blocks;
    float *lse;
};

/* All keys of causal attention. */
static struct kn_attn_part whole(const struct kn_attn *attn)
{
    return (struct kn_attn_part){
        .keys = attn->seq, .q_rows = attn->seq, .k_rows = attn->seq, .causal = true};
}

static void check(const struct kn_attn *attn, const struct kn_attn_part *part)
{
    assert(!kn_attn_forgetful(attn) || (part->causal ? part->lead == 0 : part->lead >= part->keys));
    assert(part->q_rows >= attn->seq && part->k_rows >= part->keys &&
           (part->causal ? part->keys == attn->seq : part->keys > 0 || attn->seq == 0));
    assert(attn->d > 0 && attn->d <= KN_MAX_HEAD_DIM && attn->dv > 0 &&
           attn->dv <= KN_MAX_HEAD_DIM);
    assert(attn->scale > 0 && attn->kv_heads > 0 && attn->heads % attn->kv_heads == 0);
    assert(attn->ldq >= attn->heads * attn->d && attn->ldk >= attn->kv_heads * attn->d &&
           attn->ldv >= attn->kv_heads * attn->dv);
}

/* Unit u is (sample, head, pair of blocks): the first and the last block of a head together cost
 * the same as any other such pair, so equal shares of units are equal shares of work. */
static void fwd_units(void *arg, const struct kn_share *share)
{
    const struct fwd *f = arg;
    size_t pairs = (f->blocks + 1) / 2;

    for (size_t u = share->lo; u < share->hi; u++) {
        size_t sh = u / pairs, first = u % pairs, last = f->blocks - 1 - first;
        struct kn_attn_job j = {.a = f->a,
                                .part = f->part,
                                .sums = f->sums,
                                .sample = sh / f->a->heads,
                                .head = sh % f->a->heads,
                                .scratch = share->scratch,
                                .pool = share->pool,
                                .thread = share->thread};

        for (size_t b = first;; b = last) {
            j.q0 = b * Q_BLOCK;
            j.q1 = kn_min(f->a->seq, j.q0 + Q_BLOCK);
            (kn_ops()->attn_softmax ? kn_attn_tiled_fwd : kn_ops()->attn_fwd)(&j, f->o, f->ldo,
                                                                              f->lse);
            kn_pool_poll(share->pool, share->thread);
            if (b == last)
                break;
        }
    }
}

static void forward(struct kn_pool *pool, struct fwd *fwd)
{
    const struct kn_attn *attn = fwd->a;

    check(attn, fwd->part);
    assert(fwd->ldo >= attn->heads * attn->dv);
    fwd->blocks = (attn->seq + Q_BLOCK - 1) / Q_BLOCK;
    kn_parallel(pool, attn->batch * attn->heads * ((fwd->blocks + 1) / 2), 1, 1, fwd_units, fwd);
}

void kn_host_attn_fwd(struct kn_pool *pool, const struct kn_attn *attn, void *out, size_t ldo,
                      float *lse)
{
    struct kn_attn_part all = whole(attn);

    forward(pool, &(struct fwd){.a = attn, .part = &all, .o = out, .ldo = ldo, .lse = lse});
}

void kn_host_attn_part_fwd(struct kn_pool *pool, const struct kn_attn *attn,
                           const struct kn_attn_part *part, float *out, size_t ldo, float *lse)
{
    forward(pool,
            &(struct fwd){.a = attn, .part = part, .sums = true, .o = out, .ldo = ldo, .lse = lse});
}

struct bwd {
    const struct kn_attn *a;
    const struct kn_attn_part *part;
    bool sums_out; /* kn_attn_part_bwd's */
    const struct kn_attn_grad *g;
    float *delta; /* (batch, heads, seq) */
    float *sums;  /* (batch, kv_heads, seq, d + dv), with bf16 storage */

    /* Of the heads that are shared: the first, how many, blocks of queries in each query head, the
     * next row to be taken, and how far each has come. Rows of all these heads alternate. */
    size_t first, count, blocks;
    struct kn_pool *pool;
    atomic_size_t next;
    atomic_uint done[MAX_ROWS];
};

size_t kn_attn_bwd_bytes(const struct kn_attn *attn)
{
    size_t sums = attn->type == KN_F32 ? 0 : attn->kv_heads * (attn->d + attn->dv);

    return attn->batch * attn->seq * (attn->heads + sums) * sizeof(float);
}

/* delta = sum over dv of o d_o, the term that the softmax's normalization adds to every score's
 * gradient; for queries [q0, q1). */
static void delta_of_head(const struct bwd *bwd, size_t sample, size_t head, size_t q0, size_t q1)
{
    const struct kn_attn *a = bwd->a;
    float *delta = bwd->delta + (sample * a->heads + head) * a->seq;
    float bo[KN_MAX_HEAD_DIM], bd[KN_MAX_HEAD_DIM];

    for (size_t t = q0; t < q1; t++) {
        size_t row = sample * bwd->part->q_rows + t;
        const void *o = kn_ptr(a->type, bwd->g->o, row * bwd->g->ldo + head * a->dv);
        const void *d_o = kn_ptr(a->type, bwd->g->d_o, row * bwd->g->lddo + head * a->dv);

        delta[t] =
            kn_ops()->dot(kn_in(a->type, o, bo, a->dv), kn_in(a->type, d_o, bd, a->dv), a->dv);
    }
}

/* UNIT: a key/value head of a sample. */
static struct kn_attn_job job_of_unit(const struct bwd *bwd, size_t unit, struct kn_pool *pool,
                                      int thread, float *scratch)
{
    return (struct kn_attn_job){.a = bwd->a,
                                .part = bwd->part,
                                .sums = bwd->sums_out,
                                .sample = unit / bwd->a->kv_heads,
                                .head = unit % bwd->a->kv_heads,
                                .q0 = 0,
                                .q1 = bwd->a->seq,
                                .scratch = scratch,
                                .pool = pool,
                                .thread = thread};
}

static const float *delta_of(const struct bwd *bwd, const struct kn_attn_job *job)
{
    return bwd->delta + job->sample * bwd->a->heads * bwd->a->seq;
}

static float *sums_of(const struct bwd *bwd, size_t unit)
{
    return bwd->sums + unit * bwd->a->seq * (bwd->a->d + bwd->a->dv);
}

static void bwd_units(void *arg, const struct kn_share *share)
{
    const struct bwd *b = arg;
    const struct kn_attn *a = b->a;
    size_t group = a->heads / a->kv_heads;

    for (size_t u = share->lo; u < share->hi; u++) {
        struct kn_attn_job j = job_of_unit(b, u, share->pool, share->thread, share->scratch);

        for (size_t h = j.head * group; h < (j.head + 1) * group; h++)
            delta_of_head(b, j.sample, h, 0, a->seq);
        if (kn_ops()->attn_dscore)
            kn_attn_tiled_bwd(&j, b->g, delta_of(b, &j), sums_of(b, u));
        else
            kn_ops()->attn_bwd(&j, b->g, delta_of(b, &j));
    }
}

/* Rows are taken in order, and a row waits only for earlier ones, so the earliest never waits. */
static void bwd_shared_rows(void *arg, int thread, int threads)
{
    struct bwd *b = arg;
    size_t group = b->a->heads / b->a->kv_heads, rows = b->count * group * b->blocks, r;

    (void)threads;
    while ((r = atomic_fetch_add(&b->next, 1)) < rows) {
        size_t u = b->first + r % b->count, row = r / b->count;
        struct kn_attn_job j = job_of_unit(b, u, b->pool, thread, kn_pool_scratch(b->pool, thread));
        struct kn_attn_order order = {.done = b->done + r % b->count,
                                      .blocks = b->blocks,
                                      .causal = b->part->causal,
                                      .stride = b->count};
        size_t q0 = row % b->blocks * Q_BLOCK;

        delta_of_head(b, j.sample, j.head * group + row / b->blocks, q0,
                      kn_min(b->a->seq, q0 + Q_BLOCK));
        kn_attn_tiled_bwd_row(&j, b->g, delta_of(b, &j), sums_of(b, u), &order, row);
    }
}

static void bwd_shared_end(void *arg, const struct kn_share *share)
{
    const struct bwd *b = arg;

    for (size_t u = b->first + share->lo; u < b->first + share->hi; u++) {
        struct kn_attn_job j = job_of_unit(b, u, share->pool, share->thread, share->scratch);

        kn_attn_tiled_bwd_end(&j, b->g, sums_of(b, u));
    }
}

/* The heads from FIRST on, by all threads together. */
static void bwd_shared(struct kn_pool *pool, struct bwd *bwd)
{
    size_t rows = bwd->count * (bwd->a->heads / bwd->a->kv_heads) * bwd->blocks;

    assert(rows <= MAX_ROWS);
    for (size_t i = 0; i < rows; i++)
        atomic_init(&bwd->done[i], 0);
    atomic_init(&bwd->next, 0);
    bwd->pool = pool;
    kn_pool_run(pool, bwd_shared_rows, bwd);
    kn_parallel(pool, bwd->count, 1, 1, bwd_shared_end, bwd);
}

static void backward(struct kn_pool *pool, const struct kn_attn *attn,
                     const struct kn_attn_part *part, bool sums, const struct kn_attn_grad *grad,
                     void *workspace)
{
    size_t units = attn->batch * attn->kv_heads, threads = (size_t)kn_pool_threads(pool);
    struct bwd b;

    check(attn, part);
    assert(grad->ldo >= attn->heads * attn->dv && grad->lddo >= attn->heads * attn->dv);
    assert(grad->lddq >= attn->heads * attn->d && grad->lddk >= attn->kv_heads * attn->d &&
           grad->lddv >= attn->kv_heads * attn->dv);
    b.a = attn;
    b.part = part;
    b.sums_out = sums;
    b.g = grad;
    b.delta = workspace;
    b.sums = b.delta + attn->batch * attn->heads * attn->seq;
    b.blocks = (attn->seq + Q_BLOCK - 1) / Q_BLOCK;
    b.count = units % threads;
    if (!kn_ops()->attn_dscore || b.blocks < 2 ||
        b.count * (attn->heads / attn->kv_heads) * b.blocks > MAX_ROWS)
        b.count = 0;
    b.first = units - b.count;
    kn_parallel(pool, b.first, 1, 1, bwd_units, &b);
    if (b.count > 0)
        bwd_shared(pool, &b);
}

void kn_host_attn_bwd(struct kn_pool *pool, const struct kn_attn *attn,
                      const struct kn_attn_grad *grad, void *workspace)
{
    struct kn_attn_part all = whole(attn);

    backward(pool, attn, &all, false, grad, workspace);
}

void kn_host_attn_part_bwd(struct kn_pool *pool, const struct kn_attn *attn,
                           const struct kn_attn_part *part, const struct kn_attn_grad *grad,
                           void *workspace)
{
    backward(pool, attn, part, true, grad, workspace);
}
