/*
 * Causal attention against its definition in double.
 *
 * Bounds. With u = 2^-24, a score s = scale q.k is off by at most e = (d + 2) u scale sum |q| |k|.
 * Its exponential is taken of a difference whose operands are rounded, so a probability is off by
 * the relative error D <= max over keys of e + u (3 |s| + |m| + 10), m the maximum or the
 * log-sum-exp, 10 for the exponential itself and the factors. A cap, whose slope is at most 1,
 * adds 20 u |s|: 12 of check_loss.c, and what rounding of cap / scale moves twice. Sums of n terms
 * add n u. From there the bounds follow term by term. Where the products are matrix instructions on
 * bf16, p and ds are rounded to it before they are multiplied: c->operand of each term more.
 */
#include "tests/kncheck/checks.h"

enum { MAX_SEQ = 300 };

/* batch, seq, heads, kv_heads, d, window, tokens of a document on average, dv (0: d), tenths of the
 * cap */
static const size_t attn_cases[][MAX_DIMS] = {
    {1, 1, 1, 1, 1},
    {1, 2, 2, 1, 4},
    {2, 5, 2, 2, 7},
    {1, 17, 3, 1, 16},
    {2, 33, 4, 2, 32},
    {1, 31, 1, 1, 64},
    {1, 128, 2, 1, 8},
    {1, 129, 1, 1, 20},
    {1, 127, 2, 2, 5},
    {1, 257, 2, 1, 12},
    {0, 4, 1, 1, 4},
    {1, 40, 2, 1, 96},
    {1, 20, 1, 1, 256},
    {1, 285, 4, 2, 33},
    {1, 300, 8, 4, 6},
    {2, 140, 2, 2, 9}, /* threads share whole heads and the rest */
    {1, 64, 1, 1, 64},
    {2, 70, 4, 2, 64},
    {1, 33, 2, 1, 128},
    {1, 16, 2, 1, 128},
    {1, 200, 2, 1, 128}, /* widths of matrix instructions */

    {2, 5, 2, 1, 7, 1},
    {1, 17, 3, 1, 16, 3},
    {2, 33, 4, 2, 32, 33},
    {1, 129, 1, 1, 20, 400},
    {1, 257, 2, 1, 12, 128},
    {1, 300, 4, 2, 8, 129},
    {1, 300, 2, 1, 6, 20},
    {1, 285, 4, 2, 33, 1},
    {2, 140, 2, 2, 9, 7},
    {1, 299, 8, 4, 6, 200},
    {1, 200, 2, 1, 128, 70},
    {1, 150, 4, 2, 64, 64},
    {1, 140, 2, 1, 64, 5}, /* windows */

    {2, 5, 2, 1, 7, 0, 2},
    {2, 33, 4, 2, 32, 0, 9},
    {1, 300, 4, 2, 8, 0, 40},
    {2, 285, 4, 2, 33, 0, 90},
    {1, 299, 8, 4, 6, 0, 150},
    {2, 140, 2, 2, 9, 0, 1},
    {1, 300, 2, 1, 6, 20, 30},
    {1, 285, 4, 2, 9, 131, 70},
    {1, 200, 2, 1, 128, 0, 50},
    {1, 150, 4, 2, 64, 0, 200}, /* documents */

    {1, 2, 2, 1, 4, 0, 0, 1},
    {2, 33, 4, 2, 24, 0, 0, 16},
    {1, 257, 2, 1, 12, 0, 0, 19},
    {1, 150, 3, 3, 192, 0, 0, 128},
    {1, 140, 2, 2, 64, 0, 0, 128},
    {2, 140, 2, 2, 9, 7, 0, 5},
    {1, 285, 4, 2, 9, 131, 70, 33}, /* values of another width */

    {1, 2, 2, 1, 4, 0, 0, 0, 10},
    {2, 33, 4, 2, 32, 0, 0, 0, 500},
    {1, 257, 2, 1, 12, 0, 0, 0, 10},
    {1, 200, 2, 1, 128, 70, 0, 0, 20},
    {1, 150, 4, 2, 64, 0, 0, 0, 5},
    {1, 285, 4, 2, 9, 131, 70, 33, 10}, /* capped */
};

struct shape {
    size_t batch, seq, heads, kv, d, dv, window, group;
    double scale, cap;
    struct arr *age; /* NULL: one document */
};

struct arr *kc_ages(struct check *c, size_t batch, size_t seq, size_t length, size_t before)
{
    struct arr *ages = kc_int(c, "age", IN, batch * seq, 1);

    for (size_t row = 0; row < batch * seq; row++) {
        int32_t age = (int32_t)rng_below(&c->rng, before + 1);

        if (row % seq > 0)
            age = rng_below(&c->rng, length) ? kc_geti(ages, row - 1, 0) + 1 : 0;
        kc_seti(ages, row, 0, age);
    }
    return ages;
}

static struct shape shape_of(struct check *c)
{
    struct shape s = {.batch = c->dim[0],
                      .seq = c->dim[1],
                      .heads = c->dim[2],
                      .kv = c->dim[3],
                      .d = c->dim[4],
                      .dv = c->dim[7] ? c->dim[7] : c->dim[4],
                      .window = c->dim[5]};

    s.group = s.heads / s.kv;
    s.scale = (double)(float)(1 / sqrt((double)s.d));
    s.cap = (double)((float)c->dim[8] / 10);
    if (c->dim[6])
        s.age = kc_ages(c, s.batch, s.seq, c->dim[6], 2 * c->dim[6]);
    return s;
}

/* The first key that query T of sample B sees. */
static size_t begin(const struct shape *s, size_t b, size_t t)
{
    size_t first = s->window && t >= s->window ? t + 1 - s->window : 0,
           age = s->age ? (size_t)kc_geti(s->age, b * s->seq + t, 0) : t;

    return age < t - first ? t - age : first;
}

struct sum {
    double value, size; /* of the terms, and of their magnitudes */
};

/* Head HX of row X times head HY of row Y. */
static struct sum dot(const struct arr *x, size_t rx, size_t hx, const struct arr *y, size_t ry,
                      size_t hy, size_t d)
{
    struct sum r = {0, 0};

    for (size_t i = 0; i < d; i++) {
        double p = AT(x, rx, hx * d + i) * AT(y, ry, hy * d + i);

        r.value += p;
        r.size += fabs(p);
    }
    return r;
}

/* The score of a product. */
static double score(const struct shape *s, double product)
{
    return s->cap > 0 ? s->cap * tanh(s->scale * product / s->cap) : s->scale * product;
}

static double score_error(const struct shape *s, struct sum sum, double m)
{
    return (double)(s->d + 2) * EPS * s->scale * sum.size +
           EPS * ((s->cap > 0 ? 23 : 3) * fabs(score(s, sum.value)) + fabs(m) + 10);
}

/* What rounding an operand costs where the CUDA backend's matrix instructions take this width. */
static double operand(const struct check *c, const struct shape *s)
{
    return !(s->cap > 0) && s->dv == s->d && (s->d == 64 || s->d == 128) ? c->operand : 0;
}

static void want_row(const struct check *c, const struct shape *s, const struct arr *q,
                     const struct arr *k, const struct arr *v, struct arr *o, struct arr *lse,
                     size_t b, size_t h, size_t t)
{
    double p[MAX_SEQ], max = -INFINITY, sum = 0, off = 0;
    struct sum sc[MAX_SEQ];
    size_t row = b * s->seq, kvh = h / s->group;

    for (size_t l = begin(s, b, t); l <= t; l++) {
        sc[l] = dot(q, row + t, h, k, row + l, kvh, s->d);
        max = fmax(max, score(s, sc[l].value));
    }
    for (size_t l = begin(s, b, t); l <= t; l++) {
        sum += p[l] = exp(score(s, sc[l].value) - max);
        off = fmax(off, score_error(s, sc[l], max));
    }
    for (size_t i = 0; i < s->dv; i++) {
        double value = 0, size = 0;

        for (size_t l = begin(s, b, t); l <= t; l++) {
            value += p[l] / sum * AT(v, row + l, kvh * s->dv + i);
            size += p[l] / sum * fabs(AT(v, row + l, kvh * s->dv + i));
        }
        kc_want(o, row + t, h * s->dv + i, value,
                size * (operand(c, s) + 2 * off + 2 * (double)(t + 2) * EPS));
    }
    kc_want(lse, b * s->heads + h, t, max + log(sum),
            off + (double)(t + 2) * EPS + 3 * EPS * (fabs(max) + log(sum)));
}

static struct kn_attn attn_of(const struct check *c, const struct shape *s, const struct arr *q,
                              const struct arr *k, const struct arr *v)
{
    return (struct kn_attn){.batch = s->batch,
                            .seq = s->seq,
                            .heads = s->heads,
                            .kv_heads = s->kv,
                            .d = s->d,
                            .dv = s->dv,
                            .scale = (float)s->scale,
                            .cap = (float)s->cap,
                            .type = c->t,
                            .q = q->at,
                            .k = k->at,
                            .v = v->at,
                            .ldq = q->ld,
                            .ldk = k->ld,
                            .ldv = v->ld,
                            .window = s->window,
                            .age = s->age ? s->age->at : NULL};
}

static void fwd_run(struct check *c)
{
    struct shape s = shape_of(c);
    size_t n = s.batch * s.seq, extra = s.d % 2 ? 3 : 0;
    struct arr *q = kc_wide(c, "q", IN, c->t, n, s.heads * s.d, extra);
    struct arr *k = kc_wide(c, "k", IN, c->t, n, s.kv * s.d, extra);
    struct arr *v = kc_wide(c, "v", IN, c->t, n, s.kv * s.dv, extra);
    struct arr *o = kc_wide(c, "o", OUT, c->t, n, s.heads * s.dv, extra);
    struct arr *lse = kc_new(c, "lse", OUT, KN_F32, s.batch * s.heads, s.seq);
    struct kn_attn a = attn_of(c, &s, q, k, v);

    for (size_t b = 0; b < s.batch; b++)
        for (size_t h = 0; h < s.heads; h++)
            for (size_t t = 0; t < s.seq; t++)
                want_row(c, &s, q, k, v, o, lse, b, h, t);
    kc_begin(c);
    kn_attn_fwd(c->pool, &a, o->at, o->ld, lse->at);
}

const struct kc_op kc_attn_fwd = {"attn_fwd", "batch seq heads kv_heads d window document dv cap",
                                  CASES(attn_cases), true, fwd_run};

/* The matrices of one backward case, and the running sums of what dk and dv should be. */
struct grad {
    struct shape s;
    double operand;
    struct arr *q, *k, *v, *o, *d_o, *lse, *dq, *dk, *dv;
};

/* What query T of head H adds to dq, to DK (seq, d, 2) and to DV (seq, dv, 2): sums over queries,
 * value then bound. */
static void add_row(struct grad *g, size_t b, size_t h, size_t t, double *dk, double *dv)
{
    struct shape *s = &g->s;
    size_t row = b * s->seq, kvh = h / s->group, d = s->d, wide = s->dv;
    struct sum delta = dot(g->o, row + t, h, g->d_o, row + t, h, wide);
    double lse = AT(g->lse, b * s->heads + h, t),
           n = (double)(s->seq * s->group + 2) * EPS + g->operand;
    double dq[256] = {0}, off[256] = {0};

    for (size_t l = begin(s, b, t); l <= t; l++) {
        struct sum sc = dot(g->q, row + t, h, g->k, row + l, kvh, d);
        struct sum dp = dot(g->d_o, row + t, h, g->v, row + l, kvh, wide);
        double x = score(s, sc.value), ep = score_error(s, sc, 2 * lse), p = exp(x - lse);
        double share = s->cap > 0 ? x / s->cap : 0, ds = s->scale * p * (dp.value - delta.value);
        double es = fabs(ds) * (ep + 4 * EPS) +
                    s->scale * p * (double)(wide + 2) * EPS * (dp.size + delta.size);

        if (s->cap > 0) { /* the slope moves with the square of that share */
            double moved =
                22 * EPS * fabs(share) + (double)(d + 2) * EPS * s->scale * sc.size / s->cap;

            es = es * (1 - share * share) + fabs(ds) * (2 * fabs(share) * moved + 4 * EPS);
            ds *= 1 - share * share;
        }

        for (size_t i = 0; i < d; i++) {
            double k = AT(g->k, row + l, kvh * d + i), q = AT(g->q, row + t, h * d + i);
            double *kv = dk + 2 * (l * d + i);

            dq[i] += ds * k;
            off[i] += fabs(k) * (es + n * fabs(ds));
            kv[0] += ds * q;
            kv[1] += fabs(q) * (es + n * fabs(ds));
        }
        for (size_t i = 0; i < wide; i++) {
            double y = AT(g->d_o, row + t, h * wide + i), *vv = dv + 2 * (l * wide + i);

            vv[0] += p * y;
            vv[1] += fabs(p * y) * (ep + n);
        }
    }
    for (size_t i = 0; i < d; i++)
        kc_want(g->dq, row + t, h * d + i, dq[i], off[i]);
}

static void want_head(struct grad *g, size_t b, size_t kvh)
{
    struct shape *s = &g->s;
    double *dk = mem_alloc(2 * s->seq * s->d * sizeof(double));
    double *dv = mem_alloc(2 * s->seq * s->dv * sizeof(double));

    for (size_t h = kvh * s->group; h < (kvh + 1) * s->group; h++)
        for (size_t t = 0; t < s->seq; t++)
            add_row(g, b, h, t, dk, dv);
    for (size_t l = 0; l < s->seq; l++) {
        for (size_t i = 0; i < s->d; i++) {
            size_t at = 2 * (l * s->d + i);

            kc_want(g->dk, b * s->seq + l, kvh * s->d + i, dk[at], dk[at + 1]);
        }
        for (size_t i = 0; i < s->dv; i++) {
            size_t at = 2 * (l * s->dv + i);

            kc_want(g->dv, b * s->seq + l, kvh * s->dv + i, dv[at], dv[at + 1]);
        }
    }
    free(dk);
    free(dv);
}

/* The log-sum-exp that belongs to q and k, rounded as the forward pass stores it. */
static void fill_lse(struct grad *g)
{
    struct shape *s = &g->s;

    for (size_t b = 0; b < s->batch; b++) {
        for (size_t h = 0; h < s->heads; h++) {
            for (size_t t = 0; t < s->seq; t++) {
                double sum = 0;

                for (size_t l = begin(s, b, t); l <= t; l++)
                    sum += exp(score(
                        s, dot(g->q, b * s->seq + t, h, g->k, b * s->seq + l, h / s->group, s->d)
                               .value));
                kc_set(g->lse, b * s->heads + h, t, log(sum));
            }
        }
    }
}

static void bwd_run(struct check *c)
{
    struct grad g = {.s = shape_of(c)};
    struct shape s = g.s;
    size_t n = s.batch * s.seq, extra = s.d % 2 ? 3 : 0, wq = s.heads * s.d, wk = s.kv * s.d;
    size_t wo = s.heads * s.dv, wv = s.kv * s.dv;

    g.operand = operand(c, &s);
    g.q = kc_wide(c, "q", IN, c->t, n, wq, extra);
    g.k = kc_wide(c, "k", IN, c->t, n, wk, extra);
    g.v = kc_wide(c, "v", IN, c->t, n, wv, extra);
    g.o = kc_wide(c, "o", IN, c->t, n, wo, extra);
    g.d_o = kc_wide(c, "do", IN, c->t, n, wo, extra);
    g.lse = kc_new(c, "lse", IN, KN_F32, s.batch * s.heads, s.seq);
    g.dq = kc_wide(c, "dq", OUT, c->t, n, wq, extra);
    g.dk = kc_wide(c, "dk", OUT, c->t, n, wk, extra);
    g.dv = kc_wide(c, "dv", OUT, c->t, n, wv, extra);
    fill_lse(&g);
    for (size_t b = 0; b < s.batch; b++)
        for (size_t h = 0; h < s.kv; h++)
            want_head(&g, b, h);

    struct kn_attn a = attn_of(c, &s, g.q, g.k, g.v);
    struct kn_attn_grad d = {.o = g.o->at,
                             .d_o = g.d_o->at,
                             .ldo = g.o->ld,
                             .lddo = g.d_o->ld,
                             .lse = g.lse->at,
                             .dq = g.dq->at,
                             .dk = g.dk->at,
                             .dv = g.dv->at,
                             .lddq = g.dq->ld,
                             .lddk = g.dk->ld,
                             .lddv = g.dv->ld};
    size_t bytes = kn_attn_bwd_bytes(&a) + 1;
    void *work = kc_memory(bytes);

    kc_begin(c);
    kn_attn_bwd(c->pool, &a, &d, work);
    kn_wait(c->pool);
    kn_free(work, bytes);
}

const struct kc_op kc_attn_bwd = {"attn_bwd", "batch seq heads kv_heads d window document dv cap",
                                  CASES(attn_cases), true, bwd_run};
