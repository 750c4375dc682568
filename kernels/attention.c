/*
 * Attention: who computes what. Forward work is a block of query rows of one head; backward work is
 * one key/value head with all queries of its group, so that dk and dv have one writer. Heads that
 * are left over when each thread has as many as the others are shared by all threads, a block of
 * queries at a time, which take turns at adding to dk and dv.
 */
#include "kernels/attn.h"
#include "kernels/set.h"

enum { Q_BLOCK = KN_ATTN_TILE, MAX_ROWS = 4096 /* blocks of queries that threads share */ };

struct fwd {
    const struct kn_attn *a;
    void *o;
    size_t ldo, blocks;
    float *lse;
};

static void check(const struct kn_attn *a)
{
    assert(a->d > 0 && a->d <= KN_MAX_HEAD_DIM && a->scale > 0 && a->kv_heads > 0 &&
           a->heads % a->kv_heads == 0);
    assert(a->ldq >= a->heads * a->d && a->ldk >= a->kv_heads * a->d &&
           a->ldv >= a->kv_heads * a->d);
}

/* Unit u is (sample, head, pair of blocks): the first and the last block of a head together cost
 * the same as any other such pair, so equal shares of units are equal shares of work. */
static void fwd_units(void *arg, const struct kn_share *s)
{
    const struct fwd *f = arg;
    size_t pairs = (f->blocks + 1) / 2;

    for (size_t u = s->lo; u < s->hi; u++) {
        size_t sh = u / pairs, first = u % pairs, last = f->blocks - 1 - first;
        struct kn_attn_job j = {.a = f->a,
                                .sample = sh / f->a->heads,
                                .head = sh % f->a->heads,
                                .scratch = s->scratch,
                                .pool = s->pool,
                                .thread = s->thread};

        for (size_t b = first;; b = last) {
            j.q0 = b * Q_BLOCK;
            j.q1 = kn_min(f->a->seq, j.q0 + Q_BLOCK);
            (kn_ops()->attn_softmax ? kn_attn_tiled_fwd : kn_ops()->attn_fwd)(&j, f->o, f->ldo,
                                                                              f->lse);
            kn_pool_poll(s->pool, s->thread);
            if (b == last)
                break;
        }
    }
}

void kn_host_attn_fwd(struct kn_pool *p, const struct kn_attn *a, void *o, size_t ldo, float *lse)
{
    struct fwd f = {.a = a, .o = o, .ldo = ldo, .lse = lse};

    check(a);
    f.blocks = (a->seq + Q_BLOCK - 1) / Q_BLOCK;
    kn_parallel(p, a->batch * a->heads * ((f.blocks + 1) / 2), 1, 1, fwd_units, &f);
}

struct bwd {
    const struct kn_attn *a;
    const struct kn_attn_grad *g;
    float *delta; /* (batch, heads, seq) */
    float *sums;  /* (batch, kv_heads, 2, seq, d), with bf16 storage */

    /* Of the heads that are shared: the first, how many, blocks of queries in each query head, the
     * next row to be taken, and how far each has come. Rows of all these heads alternate. */
    size_t first, count, blocks;
    struct kn_pool *pool;
    atomic_size_t next;
    atomic_uint done[MAX_ROWS];
};

size_t kn_attn_bwd_bytes(const struct kn_attn *a)
{
    size_t sums = a->type == KN_F32 ? 0 : 2 * a->kv_heads * a->d;

    return a->batch * a->seq * (a->heads + sums) * sizeof(float);
}

/* delta = sum over d of o d_o, the term that the softmax's normalisation adds to every score's
 * gradient; for queries [q0, q1). */
static void delta_of_head(const struct bwd *b, size_t sample, size_t head, size_t q0, size_t q1)
{
    const struct kn_attn *a = b->a;
    float *delta = b->delta + (sample * a->heads + head) * a->seq;
    float bo[KN_MAX_HEAD_DIM], bd[KN_MAX_HEAD_DIM];

    for (size_t t = q0; t < q1; t++) {
        size_t row = sample * a->seq + t;
        const void *o = kn_ptr(a->type, b->g->o, row * b->g->ldo + head * a->d);
        const void *d_o = kn_ptr(a->type, b->g->d_o, row * b->g->lddo + head * a->d);

        delta[t] = kn_ops()->dot(kn_in(a->type, o, bo, a->d), kn_in(a->type, d_o, bd, a->d), a->d);
    }
}

/* Unit U: a key/value head of a sample. */
static struct kn_attn_job job_of_unit(const struct bwd *b, size_t u, struct kn_pool *pool,
                                      int thread, float *scratch)
{
    return (struct kn_attn_job){.a = b->a,
                                .sample = u / b->a->kv_heads,
                                .head = u % b->a->kv_heads,
                                .q0 = 0,
                                .q1 = b->a->seq,
                                .scratch = scratch,
                                .pool = pool,
                                .thread = thread};
}

static const float *delta_of(const struct bwd *b, const struct kn_attn_job *j)
{
    return b->delta + j->sample * b->a->heads * b->a->seq;
}

static float *sums_of(const struct bwd *b, size_t u)
{
    return b->sums + u * 2 * b->a->seq * b->a->d;
}

static void bwd_units(void *arg, const struct kn_share *s)
{
    const struct bwd *b = arg;
    const struct kn_attn *a = b->a;
    size_t group = a->heads / a->kv_heads;

    for (size_t u = s->lo; u < s->hi; u++) {
        struct kn_attn_job j = job_of_unit(b, u, s->pool, s->thread, s->scratch);

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
        struct kn_attn_turns turns = {
            .done = b->done + r % b->count, .blocks = b->blocks, .stride = b->count};
        size_t q0 = row % b->blocks * Q_BLOCK;

        delta_of_head(b, j.sample, j.head * group + row / b->blocks, q0,
                      kn_min(b->a->seq, q0 + Q_BLOCK));
        kn_attn_tiled_bwd_row(&j, b->g, delta_of(b, &j), sums_of(b, u), &turns, row);
    }
}

static void bwd_shared_end(void *arg, const struct kn_share *s)
{
    const struct bwd *b = arg;

    for (size_t u = b->first + s->lo; u < b->first + s->hi; u++) {
        struct kn_attn_job j = job_of_unit(b, u, s->pool, s->thread, s->scratch);

        kn_attn_tiled_bwd_end(&j, b->g, sums_of(b, u));
    }
}

/* The heads from FIRST on, by all threads together. */
static void bwd_shared(struct kn_pool *p, struct bwd *b)
{
    size_t rows = b->count * (b->a->heads / b->a->kv_heads) * b->blocks;

    for (size_t i = 0; i < rows; i++)
        atomic_init(&b->done[i], 0);
    atomic_init(&b->next, 0);
    b->pool = p;
    kn_pool_run(p, bwd_shared_rows, b);
    kn_parallel(p, b->count, 1, 1, bwd_shared_end, b);
}

void kn_host_attn_bwd(struct kn_pool *p, const struct kn_attn *a, const struct kn_attn_grad *g,
                      void *workspace)
{
    size_t units = a->batch * a->kv_heads, threads = (size_t)kn_pool_threads(p);
    struct bwd b;

    check(a);
    b.a = a;
    b.g = g;
    b.delta = workspace;
    b.sums = b.delta + a->batch * a->heads * a->seq;
    b.blocks = (a->seq + Q_BLOCK - 1) / Q_BLOCK;
    b.count = units % threads;
    if (!kn_ops()->attn_dscore || b.blocks < 2 ||
        b.count * (a->heads / a->kv_heads) * b.blocks > MAX_ROWS)
        b.count = 0;
    b.first = units - b.count;
    kn_parallel(p, b.first, 1, 1, bwd_units, &b);
    if (b.count > 0)
        bwd_shared(p, &b);
}
