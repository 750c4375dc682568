/*
 * Parts of attention against their definition in double: queries against some keys, results added
 * to what the arrays hold. Bounds as in check_attn.c, with each array's earlier contents as one
 * term more. A merge weighs two outputs by exp(lse): an error of either lse is the same relative
 * error of the weights.
 */
#include "tests/kncheck/checks.h"

enum {
    MAX_KEYS = 300,
    CAUSAL = 1,
    MERGE = 2,
    PIECE = 4 /* of longer samples */,
    APART = 8,
    CAPPED = 16
};

/* batch, seq, keys, heads, kv_heads, d, flags, window, tokens of a document on average, dv (0: d);
 * APART: keys and queries are not neighbors. CAPPED: at 1 */
static const size_t part_cases[][MAX_DIMS] = {
    {1, 1, 1, 1, 1, 1, 0},
    {2, 5, 5, 2, 1, 7, CAUSAL},
    {2, 5, 5, 2, 1, 4, CAUSAL | MERGE | PIECE},
    {1, 17, 9, 3, 1, 16, 0},
    {2, 9, 33, 4, 2, 32, MERGE},
    {2, 33, 9, 4, 2, 33, MERGE | PIECE},
    {1, 128, 256, 2, 1, 8, MERGE},
    {1, 129, 129, 2, 1, 20, CAUSAL | MERGE},
    {1, 257, 130, 2, 2, 12, PIECE},
    {1, 130, 257, 8, 4, 6, MERGE | PIECE},
    {1, 285, 285, 4, 2, 9, CAUSAL | PIECE},
    {2, 140, 70, 2, 2, 9, 0}, /* threads share whole heads and the rest */
    {0, 4, 4, 1, 1, 4, 0},
    {1, 40, 20, 1, 1, 256, MERGE},
    {1, 70, 140, 4, 2, 64, MERGE},
    {1, 33, 33, 2, 1, 128, CAUSAL | PIECE},
    {2, 9, 9, 2, 1, 4, CAUSAL | MERGE | PIECE, 4},
    {1, 285, 285, 4, 2, 9, CAUSAL, 131},
    {1, 17, 9, 3, 1, 16, MERGE, 5},
    {1, 17, 9, 3, 1, 16, PIECE, 12}, /* and some queries see nothing */
    {2, 140, 140, 2, 1, 9, MERGE | APART, 150},
    {1, 200, 200, 4, 2, 6, MERGE, 60},
    {1, 200, 257, 2, 2, 12, MERGE | PIECE, 300},
    {1, 290, 40, 3, 3, 5, 0, 20},
    {1, 130, 130, 2, 1, 8, MERGE | APART, 4}, /* none sees anything */
    {1, 70, 140, 4, 2, 64, MERGE, 100},
    {2, 9, 9, 2, 1, 4, CAUSAL | MERGE | PIECE, 0, 3},
    {1, 285, 285, 4, 2, 9, CAUSAL, 0, 60},
    {2, 17, 9, 3, 1, 16, MERGE | PIECE, 0, 5},
    {2, 17, 9, 3, 1, 16, PIECE, 0, 12},
    {2, 140, 140, 2, 1, 9, MERGE | APART, 0, 90},
    {1, 200, 257, 2, 2, 12, MERGE | PIECE, 300, 200},
    {1, 290, 40, 3, 3, 5, 0, 0, 150},
    {1, 130, 130, 2, 1, 8, MERGE | APART, 0, 1},
    {1, 70, 140, 4, 2, 64, MERGE, 0, 100},
    {2, 9, 33, 4, 2, 24, MERGE, 0, 0, 16},
    {1, 129, 129, 2, 2, 12, CAUSAL | MERGE | PIECE, 0, 0, 19},
    {1, 200, 257, 2, 2, 9, MERGE | PIECE, 300, 200, 5},
    {2, 9, 9, 2, 1, 4, CAUSAL | MERGE | PIECE | CAPPED},
    {1, 130, 257, 8, 4, 6, MERGE | PIECE | CAPPED},
    {1, 200, 257, 2, 2, 9, MERGE | PIECE | CAPPED, 300, 200, 5},
};

struct part {
    size_t batch, seq, keys, heads, kv, d, wide, group, q_rows, k_rows, q_skip, k_skip, window,
        lead;
    bool causal, merge;
    double scale, cap;
    struct arr *q, *k, *v, *o, *d_o, *lse, *dq, *dk, *dv, *age;
};

static struct part part_of(struct check *c)
{
    const size_t *dim = c->dim;
    size_t piece = dim[6] & PIECE ? 1 : 0;
    struct part p = {.batch = dim[0],
                     .seq = dim[1],
                     .keys = dim[2],
                     .heads = dim[3],
                     .kv = dim[4],
                     .d = dim[5],
                     .wide = dim[9] ? dim[9] : dim[5],
                     .group = dim[3] / dim[4],
                     .q_rows = dim[1] + 3 * piece,
                     .k_rows = dim[2] + 2 * piece,
                     .q_skip = 2 * piece,
                     .k_skip = piece,
                     .window = dim[7],
                     .lead = dim[6] & CAUSAL ? 0 : dim[2] + (dim[6] & APART ? 5 : 0),
                     .causal = dim[6] & CAUSAL,
                     .merge = dim[6] & MERGE,
                     .scale = (double)(float)(1 / sqrt((double)dim[5])),
                     .cap = dim[6] & CAPPED ? 1 : 0};
    size_t extra = p.d % 2 ? 3 : 0;

    if (dim[8])
        p.age = kc_ages(c, p.batch, p.q_rows, dim[8], p.lead + dim[8]);
    p.q = kc_wide(c, "q", IN, c->t, p.batch * p.q_rows, p.heads * p.d, extra);
    p.k = kc_wide(c, "k", IN, c->t, p.batch * p.k_rows, p.kv * p.d, extra);
    p.v = kc_wide(c, "v", IN, c->t, p.batch * p.k_rows, p.kv * p.wide, extra);
    return p;
}

/* The first element of row ROW. */
static void *at_row(const struct arr *a, size_t row)
{
    return (char *)a->at + row * a->ld * kn_type_size(a->t);
}

static struct kn_attn attn_of(const struct check *c, const struct part *p)
{
    return (struct kn_attn){.batch = p->batch,
                            .seq = p->seq,
                            .heads = p->heads,
                            .kv_heads = p->kv,
                            .d = p->d,
                            .dv = p->wide,
                            .scale = (float)p->scale,
                            .cap = (float)p->cap,
                            .type = c->t,
                            .q = at_row(p->q, p->q_skip),
                            .k = at_row(p->k, p->k_skip),
                            .v = at_row(p->v, p->k_skip),
                            .ldq = p->q->ld,
                            .ldk = p->k->ld,
                            .ldv = p->v->ld,
                            .window = p->window,
                            .age = p->age ? (const int32_t *)p->age->at + p->q_skip : NULL};
}

static struct kn_attn_part kn_part_of(const struct part *p)
{
    return (struct kn_attn_part){.keys = p->keys,
                                 .q_rows = p->q_rows,
                                 .k_rows = p->k_rows,
                                 .lead = p->lead,
                                 .causal = p->causal,
                                 .merge = p->merge};
}

struct sum {
    double value, size; /* of the terms, and of their magnitudes */
};

/* Heads of width D. */
static struct sum dot(size_t d, const struct arr *x, size_t rx, size_t hx, const struct arr *y,
                      size_t ry, size_t hy)
{
    struct sum r = {0, 0};

    for (size_t i = 0; i < d; i++) {
        double e = AT(x, rx, hx * d + i) * AT(y, ry, hy * d + i);

        r.value += e;
        r.size += fabs(e);
    }
    return r;
}

/* The score of a product. */
static double score(const struct part *p, double product)
{
    return p->cap > 0 ? p->cap * tanh(p->scale * product / p->cap) : p->scale * product;
}

static double score_error(const struct part *p, struct sum s, double m)
{
    return (double)(p->d + 2) * EPS * p->scale * s.size +
           EPS * ((p->cap > 0 ? 23 : 3) * fabs(score(p, s.value)) + fabs(m) + 10);
}

static size_t seen(const struct part *p, size_t t)
{
    return p->causal ? t + 1 : p->keys;
}

/* The first key that query T of sample B sees, or one that is none. */
static size_t begin(const struct part *p, size_t b, size_t t)
{
    size_t own = p->lead + t, first = p->window && own >= p->window ? own + 1 - p->window : 0,
           age = p->age ? (size_t)kc_geti(p->age, b * p->q_rows + p->q_skip + t, 0) : own;

    return age < own - first ? own - age : first;
}

/* Rows of A (samples of ROWS rows) outside of the pieces keep what they have. */
static void keep_rest(struct arr *a, size_t rows, size_t skip, size_t piece)
{
    for (size_t i = 0; i < a->rows; i++)
        if (i % rows < skip || i % rows >= skip + piece)
            for (size_t j = 0; j < a->cols; j++)
                kc_exact(a, i, j, AT(a, i, j));
}

static void want_row(const struct part *s, size_t b, size_t h, size_t t)
{
    double p[MAX_KEYS], max = -INFINITY, sum = 0, off = 0, lse, both, mine = 1, before = 0;
    size_t row = b * s->q_rows + s->q_skip + t, first = b * s->k_rows + s->k_skip, n = seen(s, t),
           kvh = h / s->group, at = s->q_skip + t;
    struct sum sc[MAX_KEYS];
    bool blind = begin(s, b, t) >= n;
    double old = s->merge ? AT(s->lse, b * s->heads + h, at) : 0, tilt = 0;

    if (blind) {
        for (size_t i = 0; i < s->wide; i++)
            kc_exact(s->o, row, h * s->wide + i, s->merge ? AT(s->o, row, h * s->wide + i) : 0);
        kc_exact(s->lse, b * s->heads + h, at, s->merge ? old : -INFINITY);
        return;
    }
    for (size_t l = begin(s, b, t); l < n; l++) {
        sc[l] = dot(s->d, s->q, row, h, s->k, first + l, kvh);
        max = fmax(max, score(s, sc[l].value));
    }
    for (size_t l = begin(s, b, t); l < n; l++) {
        sum += p[l] = exp(score(s, sc[l].value) - max);
        off = fmax(off, score_error(s, sc[l], max));
    }
    lse = both = max + log(sum);
    off += (double)(n + 2) * EPS;
    if (s->merge) {
        double top = fmax(lse, old);

        both = top + log(exp(lse - top) + exp(old - top));
        mine = exp(lse - both);
        before = exp(old - both);
        tilt = off + EPS * (6 * fabs(lse) + 6 * fabs(old) + 40);
    }
    for (size_t i = 0; i < s->wide; i++) {
        double value = 0, size = 0, o = s->merge ? AT(s->o, row, h * s->wide + i) : 0;

        for (size_t l = begin(s, b, t); l < n; l++) {
            value += p[l] / sum * AT(s->v, first + l, kvh * s->wide + i);
            size += p[l] / sum * fabs(AT(s->v, first + l, kvh * s->wide + i));
        }
        kc_want(s->o, row, h * s->wide + i, mine * value + before * o,
                mine * size * (2 * off + 2 * (double)(n + 2) * EPS) +
                    (mine * size + before * fabs(o)) * tilt);
    }
    kc_want(s->lse, b * s->heads + h, at, both,
            off + 3 * EPS * (fabs(max) + log(sum)) + tilt + 2 * EPS * fabs(both));
}

static void fwd_run(struct check *c)
{
    struct part p = part_of(c);
    struct kn_attn a = attn_of(c, &p);
    struct kn_attn_part part = kn_part_of(&p);

    p.o = kc_wide(c, "o", INOUT, KN_F32, p.batch * p.q_rows, p.heads * p.wide, p.d % 2 ? 3 : 0);
    p.lse = kc_new(c, "lse", INOUT, KN_F32, p.batch * p.heads, p.q_rows);
    keep_rest(p.o, p.q_rows, p.q_skip, p.seq);
    for (size_t i = 0; i < p.lse->rows; i++)
        for (size_t j = 0; j < p.q_rows; j++)
            kc_exact(p.lse, i, j, AT(p.lse, i, j));
    for (size_t b = 0; b < p.batch; b++)
        for (size_t h = 0; h < p.heads; h++)
            for (size_t t = 0; t < p.seq; t++)
                want_row(&p, b, h, t);
    kc_begin(c);
    kn_attn_part_fwd(c->pool, &a, &part, at_row(p.o, p.q_skip), p.o->ld,
                     (float *)p.lse->at + p.q_skip);
}

const struct kc_op kc_attn_part_fwd = {"attn_part_fwd",
                                       "batch seq keys heads kv_heads d flags window document dv",
                                       CASES(part_cases), true, fwd_run};

/* What query T of head H adds to dq, dk and dv, the latter two as value and bound for each element
 * of the key/value head's keys. */
static void add_row(const struct part *s, size_t b, size_t h, size_t t, double *dk, double *dv)
{
    size_t row = b * s->q_rows + s->q_skip + t, first = b * s->k_rows + s->k_skip,
           kvh = h / s->group, d = s->d, wide = s->wide;
    struct sum delta = dot(wide, s->o, row, h, s->d_o, row, h);
    double lse = AT(s->lse, b * s->heads + h, s->q_skip + t),
           n = (double)((s->seq + s->keys) * s->group + 3) * EPS;
    double dq[256] = {0}, off[256] = {0};

    for (size_t l = begin(s, b, t); l < seen(s, t); l++) {
        struct sum sc = dot(d, s->q, row, h, s->k, first + l, kvh);
        struct sum dp = dot(wide, s->d_o, row, h, s->v, first + l, kvh);
        double x = score(s, sc.value), ep = score_error(s, sc, 2 * lse), p = exp(x - lse);
        double share = s->cap > 0 ? x / s->cap : 0, ds = s->scale * p * (dp.value - delta.value);
        double es = fabs(ds) * (ep + 4 * EPS) +
                    s->scale * p * (double)(wide + 2) * EPS * (dp.size + delta.size);

        if (s->cap > 0) {
            double moved =
                22 * EPS * fabs(share) + (double)(d + 2) * EPS * s->scale * sc.size / s->cap;

            es = es * (1 - share * share) + fabs(ds) * (2 * fabs(share) * moved + 4 * EPS);
            ds *= 1 - share * share;
        }

        for (size_t i = 0; i < d; i++) {
            double k = AT(s->k, first + l, kvh * d + i), q = AT(s->q, row, h * d + i);
            double *kv = dk + 2 * (l * d + i);

            dq[i] += ds * k;
            off[i] += fabs(k) * (es + n * fabs(ds));
            kv[0] += ds * q;
            kv[1] += fabs(q) * (es + n * fabs(ds));
        }
        for (size_t i = 0; i < wide; i++) {
            double y = AT(s->d_o, row, h * wide + i), *vv = dv + 2 * (l * wide + i);

            vv[0] += p * y;
            vv[1] += fabs(p * y) * (ep + n);
        }
    }
    for (size_t i = 0; i < d; i++) {
        double was = AT(s->dq, row, h * d + i);

        kc_want(s->dq, row, h * d + i, was + dq[i], off[i] + n * fabs(was));
    }
}

static void want_head(const struct part *s, size_t b, size_t kvh)
{
    double *dk = mem_alloc(2 * s->keys * s->d * sizeof(double));
    double *dv = mem_alloc(2 * s->keys * s->wide * sizeof(double));
    double n = (double)((s->seq + s->keys) * s->group + 3) * EPS;

    for (size_t h = kvh * s->group; h < (kvh + 1) * s->group; h++)
        for (size_t t = 0; t < s->seq; t++)
            add_row(s, b, h, t, dk, dv);
    for (size_t l = 0; l < s->keys; l++) {
        size_t row = b * s->k_rows + s->k_skip + l;

        for (size_t i = 0; i < s->d; i++) {
            size_t at = 2 * (l * s->d + i), col = kvh * s->d + i;
            double was = AT(s->dk, row, col);

            kc_want(s->dk, row, col, was + dk[at], dk[at + 1] + n * fabs(was));
        }
        for (size_t i = 0; i < s->wide; i++) {
            size_t at = 2 * (l * s->wide + i), col = kvh * s->wide + i;
            double was = AT(s->dv, row, col);

            kc_want(s->dv, row, col, was + dv[at], dv[at + 1] + n * fabs(was));
        }
    }
    free(dk);
    free(dv);
}

/* A log-sum-exp over these keys and as many others that score 0. */
static void fill_lse(const struct part *s)
{
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t t = 0; t < s->seq; t++) {
                size_t row = b * s->q_rows + s->q_skip + t, first = b * s->k_rows + s->k_skip;
                double sum = fmax(1, (double)seen(s, t) - (double)begin(s, b, t));

                for (size_t l = begin(s, b, t); l < seen(s, t); l++)
                    sum +=
                        exp(score(s, dot(s->d, s->q, row, h, s->k, first + l, h / s->group).value));
                kc_set(s->lse, b * s->heads + h, s->q_skip + t, log(sum));
            }
}

static void bwd_run(struct check *c)
{
    struct part p = part_of(c);
    struct kn_attn a = attn_of(c, &p);
    struct kn_attn_part part = kn_part_of(&p);
    size_t extra = p.d % 2 ? 3 : 0, nq = p.batch * p.q_rows, nk = p.batch * p.k_rows;

    p.o = kc_wide(c, "o", IN, c->t, nq, p.heads * p.wide, extra);
    p.d_o = kc_wide(c, "do", IN, c->t, nq, p.heads * p.wide, extra);
    p.lse = kc_new(c, "lse", IN, KN_F32, p.batch * p.heads, p.q_rows);
    p.dq = kc_wide(c, "dq", INOUT, KN_F32, nq, p.heads * p.d, extra);
    p.dk = kc_wide(c, "dk", INOUT, KN_F32, nk, p.kv * p.d, extra);
    p.dv = kc_wide(c, "dv", INOUT, KN_F32, nk, p.kv * p.wide, extra);
    fill_lse(&p);
    keep_rest(p.dq, p.q_rows, p.q_skip, p.seq);
    keep_rest(p.dk, p.k_rows, p.k_skip, p.keys);
    keep_rest(p.dv, p.k_rows, p.k_skip, p.keys);
    for (size_t b = 0; b < p.batch; b++)
        for (size_t h = 0; h < p.kv; h++)
            want_head(&p, b, h);

    struct kn_attn_grad g = {.o = at_row(p.o, p.q_skip),
                             .d_o = at_row(p.d_o, p.q_skip),
                             .ldo = p.o->ld,
                             .lddo = p.d_o->ld,
                             .lse = (const float *)p.lse->at + p.q_skip,
                             .dq = at_row(p.dq, p.q_skip),
                             .dk = at_row(p.dk, p.k_skip),
                             .dv = at_row(p.dv, p.k_skip),
                             .lddq = p.dq->ld,
                             .lddk = p.dk->ld,
                             .lddv = p.dv->ld};
    size_t bytes = p.batch * p.heads * p.seq * sizeof(float) + 1;
    void *work = kc_memory(bytes);

    kc_begin(c);
    kn_attn_part_bwd(c->pool, &a, &part, &g, work);
    kn_wait(c->pool);
    kn_free(work, bytes);
}

const struct kc_op kc_attn_part_bwd = {"attn_part_bwd",
                                       "batch seq keys heads kv_heads d flags window document dv",
                                       CASES(part_cases), true, bwd_run};
