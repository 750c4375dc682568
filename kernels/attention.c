/*
 * Attention: who computes what. Forward work is a block of query rows of one head; backward work is
 * one key/value head with all queries of its group, so that dk and dv have one writer.
 */
#include "kernels/attn.h"

enum { Q_BLOCK = KN_ATTN_TILE };

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

void kn_attn_fwd(struct kn_pool *p, const struct kn_attn *a, void *o, size_t ldo, float *lse)
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
};

size_t kn_attn_bwd_bytes(const struct kn_attn *a)
{
    size_t sums = a->type == KN_F32 ? 0 : 2 * a->kv_heads * a->d;

    return a->batch * a->seq * (a->heads + sums) * sizeof(float);
}

/* delta = sum over d of o d_o, the term that the softmax's normalisation adds to every score's
 * gradient. */
static void delta_of_head(const struct bwd *b, size_t sample, size_t head)
{
    const struct kn_attn *a = b->a;
    float *delta = b->delta + (sample * a->heads + head) * a->seq;
    float bo[KN_MAX_HEAD_DIM], bd[KN_MAX_HEAD_DIM];

    for (size_t t = 0; t < a->seq; t++) {
        size_t row = sample * a->seq + t;
        const void *o = kn_ptr(a->type, b->g->o, row * b->g->ldo + head * a->d);
        const void *d_o = kn_ptr(a->type, b->g->d_o, row * b->g->lddo + head * a->d);

        delta[t] = kn_ops()->dot(kn_in(a->type, o, bo, a->d), kn_in(a->type, d_o, bd, a->d), a->d);
    }
}

static void bwd_units(void *arg, const struct kn_share *s)
{
    const struct bwd *b = arg;
    const struct kn_attn *a = b->a;
    size_t group = a->heads / a->kv_heads;

    for (size_t u = s->lo; u < s->hi; u++) {
        struct kn_attn_job j = {.a = a,
                                .sample = u / a->kv_heads,
                                .head = u % a->kv_heads,
                                .q0 = 0,
                                .q1 = a->seq,
                                .scratch = s->scratch,
                                .pool = s->pool,
                                .thread = s->thread};
        const float *delta = b->delta + j.sample * a->heads * a->seq;

        for (size_t h = j.head * group; h < (j.head + 1) * group; h++)
            delta_of_head(b, j.sample, h);
        if (kn_ops()->attn_dscore)
            kn_attn_tiled_bwd(&j, b->g, delta, b->sums + u * 2 * a->seq * a->d);
        else
            kn_ops()->attn_bwd(&j, b->g, delta);
    }
}

void kn_attn_bwd(struct kn_pool *p, const struct kn_attn *a, const struct kn_attn_grad *g,
                 void *workspace)
{
    struct bwd b = {.a = a, .g = g, .delta = workspace};

    check(a);
    b.sums = b.delta + a->batch * a->heads * a->seq;
    kn_parallel(p, a->batch * a->kv_heads, 1, 1, bwd_units, &b);
}
