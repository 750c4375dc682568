/*
 * Every gradient of every layer against finite differences in double precision.
 *
 * A plain model in double, written from the definitions, gives the objective (cross-entropy plus
 * the weighted load-balancing loss) as a function of the flat weights; (L(w + h) - L(w - h)) / 2h
 * with h = 1e-5 has an error of about h^2 L''' + 1e-16 / h, some 1e-10. The trainer's fp32 gradient
 * passes through about 30 roundings of sums of at most 64 terms on its way, so an element may be
 * off by 2^-24 x 30 x 64 = 1.1e-4 of the largest magnitude that entered the sum; that is bounded by
 * the tensor's largest gradient, to which the difference is compared.
 */
#include "base/base.h"
#include "trainer/step.h"

#include <math.h>

enum { MAX = 4096, TENSORS = PL_T_EXPERT_DOWN_BIAS + 1, LAYERS = 4, EXPERTS = 8 };

static int test_number, failures;

static void die(const char *why)
{
    printf("Bail out! %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- the model in double ------------------------------------------------- */

struct ref {
    const struct tr_rank *r;
    const double *w; /* flat, as the trainer's */
    int rows, seq, h, hd;
    const double *at[TENSORS][LAYERS + 1][EXPERTS + 1]; /* those of no layer, of no expert first */
};

static void place_weights(struct ref *f)
{
    for (int i = 0; i < f->r->params.table.n; i++) {
        const struct pl_param *p = &f->r->params.table.p[i];

        if (p->layer >= LAYERS || p->expert >= EXPERTS)
            die("a model larger than the test's table of weights");
        f->at[p->tensor][p->layer + 1][p->expert + 1] = f->w + p->offset;
    }
}

/* NULL where the model has none. */
static const double *weight(const struct ref *f, enum pl_tensor t, int layer, int expert)
{
    return f->at[t][layer + 1][expert + 1];
}

/* y (out) = W (out, in) x (in) */
static void matvec(double *y, const double *w, const double *x, int out, int in)
{
    for (int o = 0; o < out; o++) {
        double sum = 0; /* not in y, which might be a part of x for all the compiler knows */

        for (int i = 0; i < in; i++)
            sum += w[o * in + i] * x[i];
        y[o] = sum;
    }
}

/* x (n) += b (n), unless b is NULL */
static void shift(double *x, const double *b, int n)
{
    for (int i = 0; b && i < n; i++)
        x[i] += b[i];
}

/* OFFSET: 1 where the scale is 1 + w */
static void layernorm(double *y, const double *x, const double *w, const double *b, int n,
                      double eps, double offset)
{
    double mean = 0, s = 0;

    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        s += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(s + eps) * (w[i] + offset) + (b ? b[i] : 0);
}

static void rmsnorm(double *y, const double *x, const double *w, int n, double eps, double offset)
{
    double s = 0;

    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    s = 1 / sqrt(s / n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * s * (w[i] + offset);
}

static double offset_of(const struct ref *f)
{
    return f->r->model.zero_centered_norm ? 1 : 0;
}

/* c tanh(x / c), or x where c is 0 */
static double capped(double x, double c)
{
    return c > 0 ? c * tanh(x / c) : x;
}

/* The model's norm of one row, by its scale; the shift is the tensor SHIFT. The row itself where
 * inputs have no norms. */
static void norm(const struct ref *f, double *y, const double *x, enum pl_tensor scale,
                 enum pl_tensor offset, int layer)
{
    const double *w = weight(f, scale, layer, -1), *b = weight(f, offset, layer, -1);

    if (!w)
        memcpy(y, x, sizeof(*y) * (size_t)f->h);
    else if (f->r->model.norm == PL_LAYERNORM)
        layernorm(y, x, w, b, f->h, f->r->model.norm_eps, offset_of(f));
    else
        rmsnorm(y, x, w, f->h, f->r->model.norm_eps, offset_of(f));
}

/* The rotation of a layer; that its frequencies are right is golden.c's matter. */
static void rotate(double *x, int pos, const struct pl_model *m, int layer)
{
    double frequency[256], amplitude = tr_rope_frequencies(frequency, m, tr_rope_of(m, layer));
    int d = pl_rotary_dim(m);

    for (int i = 0; i < d / 2; i++) {
        double a = pos * frequency[i], c = amplitude * cos(a), s = amplitude * sin(a), u = x[i],
               v = x[i + d / 2];

        x[i] = u * c - v * s;
        x[i + d / 2] = v * c + u * s;
    }
}

/* Widths of a head's key and value, and of the rows that they lie in. */
struct heads {
    int d, ldk, dv, ldv;
    double scale, cap;
};

/* One query row against keys FIRST..t of its sequence, and its head's SINK, whose value is 0. */
static void attend(double *o, const double *q, const double *k, const double *v, int first, int t,
                   const struct heads *w, const double *sink)
{
    double p[MAX], top = sink ? *sink : -INFINITY, sum = 0;

    for (int j = first; j <= t; j++) {
        p[j] = 0;
        for (int i = 0; i < w->d; i++)
            p[j] += q[i] * k[j * w->ldk + i] * w->scale;
        p[j] = capped(p[j], w->cap);
        top = fmax(top, p[j]);
    }
    for (int j = first; j <= t; j++)
        sum += p[j] = exp(p[j] - top);
    sum += sink ? exp(*sink - top) : 0;
    for (int i = 0; i < w->dv; i++) {
        o[i] = 0;
        for (int j = first; j <= t; j++)
            o[i] += p[j] / sum * v[j * w->ldv + i];
    }
}

/* Norms and rotation of the heads of one row. */
static void turn(const struct ref *f, double *x, int heads, enum pl_tensor scale, int layer,
                 int pos)
{
    const struct pl_model *m = &f->r->model;
    const double *w = weight(f, scale, layer, -1);

    if (m->qk_norm == PL_QK_FULL)
        rmsnorm(x, x, w, heads * f->hd, m->norm_eps, offset_of(f));
    for (int i = 0; i < heads; i++, x += f->hd) {
        if (m->qk_norm == PL_QK_HEAD)
            rmsnorm(x, x, w, f->hd, m->norm_eps, offset_of(f));
        if (m->positions == PL_ROPE &&
            (!m->no_rope_freq || (layer < m->layers ? layer + 1 : m->layers) % m->no_rope_freq))
            rotate(x, pos, m, layer);
    }
}

/* Queries, keys and values of all rows. */
struct qkv {
    double q[MAX], k[MAX], v[MAX];
};

static void heads_of(const struct ref *f, struct qkv *to, const double *x, int layer)
{
    const struct pl_model *m = &f->r->model;
    int nq = m->heads * f->hd, nk = m->kv_heads * f->hd, h = f->h;
    double *q = to->q, *k = to->k, *v = to->v, n[256];

    for (int r = 0; r < f->rows; r++) {
        norm(f, n, x + r * h, PL_T_NORM1, PL_T_NORM1_BIAS, layer);
        matvec(q + r * nq, weight(f, PL_T_Q, layer, -1), n, nq, h);
        matvec(k + r * nk, weight(f, PL_T_K, layer, -1), n, nk, h);
        matvec(v + r * nk, weight(f, PL_T_V, layer, -1), n, nk, h);
        shift(q + r * nq, weight(f, PL_T_Q_BIAS, layer, -1), nq);
        shift(k + r * nk, weight(f, PL_T_K_BIAS, layer, -1), nk);
        shift(v + r * nk, weight(f, PL_T_V_BIAS, layer, -1), nk);
        turn(f, q + r * nq, m->heads, PL_T_Q_NORM, layer, r % f->seq);
        turn(f, k + r * nk, m->kv_heads, PL_T_K_NORM, layer, r % f->seq);
    }
}

/* Y (out): the normalized product of N (in) and W, of the tensors' shapes. */
static void compress(const struct ref *f, double *y, const double *n, enum pl_tensor down,
                     enum pl_tensor bias, enum pl_tensor scale, int layer, int out, int normed)
{
    matvec(y, weight(f, down, layer, -1), n, out, f->h);
    shift(y, weight(f, bias, layer, -1), out);
    rmsnorm(y, y, weight(f, scale, layer, -1), normed, f->r->model.norm_eps, offset_of(f));
}

/* The same of latent attention: each head's key ends in what all share. */
static void latents_of(const struct ref *f, struct qkv *to, const double *x, int layer)
{
    const struct pl_model *m = &f->r->model;
    const struct pl_mla *a = &m->mla;
    int nope = a->qk_nope_head_dim, rope = a->qk_rope_head_dim, kv = a->kv_lora_rank, d = f->hd;
    double n[256], cq[256], c[256], own[256];

    for (int r = 0; r < f->rows; r++) {
        double *q = to->q + r * m->heads * d, *k = to->k + r * m->heads * d;

        norm(f, n, x + r * f->h, PL_T_NORM1, PL_T_NORM1_BIAS, layer);
        if (a->q_lora_rank)
            compress(f, cq, n, PL_T_Q_DOWN, PL_T_Q_DOWN_BIAS, PL_T_Q_LATENT, layer, a->q_lora_rank,
                     a->q_lora_rank);
        matvec(q, weight(f, a->q_lora_rank ? PL_T_Q_UP : PL_T_Q, layer, -1),
               a->q_lora_rank ? cq : n, m->heads * d, a->q_lora_rank ? a->q_lora_rank : f->h);
        compress(f, c, n, PL_T_KV_DOWN, PL_T_KV_DOWN_BIAS, PL_T_KV_LATENT, layer, kv + rope, kv);
        rotate(c + kv, r % f->seq, m, layer);
        matvec(own, weight(f, PL_T_K_UP, layer, -1), c, m->heads * nope, kv);
        matvec(to->v + r * m->heads * a->v_head_dim, weight(f, PL_T_V_UP, layer, -1), c,
               m->heads * a->v_head_dim, kv);
        for (int i = 0; i < m->heads; i++) {
            rotate(q + i * d + nope, r % f->seq, m, layer);
            memcpy(k + i * d, own + i * nope, sizeof(*k) * (size_t)nope);
            memcpy(k + i * d + nope, c + kv, sizeof(*k) * (size_t)rope);
        }
    }
}

/* x += y (h), after the norm that outputs may have */
static void add_output(const struct ref *f, double *x, double *y, enum pl_tensor scale, int layer)
{
    const double *w = weight(f, scale, layer, -1);

    if (w)
        rmsnorm(y, y, w, f->h, f->r->model.norm_eps, offset_of(f));
    for (int i = 0; i < f->h; i++)
        x[i] += f->r->model.residual_multiplier * y[i];
}

/* Of a model without a factor of its own: DeepSeek's for stretched positions. */
static double usual_scale(const struct pl_model *m)
{
    double term = 0.1 * m->rope_scaling.mscale_all_dim * log(m->rope_scaling.factor) + 1;

    return (pl_model_is_mla(m) && m->rope_scaling.kind == PL_ROPE_YARN ? term * term : 1) /
           sqrt(m->head_dim);
}

/* x += attention of what `from` is. */
static void attention(const struct ref *f, double *x, int layer)
{
    const struct pl_model *m = &f->r->model;
    bool latent = pl_model_is_mla(m);
    int dv = latent ? m->mla.v_head_dim : f->hd, h = f->h, nq = m->heads * f->hd;
    struct heads w = {f->hd,
                      m->kv_heads * f->hd,
                      dv,
                      m->kv_heads * dv,
                      m->attn_scale > 0 ? m->attn_scale : usual_scale(m),
                      m->attn_softcap};
    const double *sinks = weight(f, PL_T_SINKS, layer, -1);
    static struct qkv all;
    static double o[256], y[256];

    (latent ? latents_of : heads_of)(f, &all, x, layer);
    for (int r = 0; r < f->rows; r++) {
        int first = r / f->seq * f->seq, t = r - first;
        int behind =
            pl_layer_has_window(m, layer) && t >= m->sliding_window ? t + 1 - m->sliding_window : 0;

        for (int i = 0; i < m->heads; i++) {
            int head = i / (m->heads / m->kv_heads);

            attend(o + i * dv, all.q + r * nq + i * f->hd, all.k + first * w.ldk + head * f->hd,
                   all.v + first * w.ldv + head * dv, behind, t, &w, sinks ? sinks + i : NULL);
        }
        matvec(y, weight(f, PL_T_O, layer, -1), o, h, m->heads * dv);
        shift(y, weight(f, PL_T_O_BIAS, layer, -1), h);
        add_output(f, x + r * h, y, PL_T_POST_NORM1, layer);
    }
}

static double act(double x, enum pl_mlp mlp)
{
    if (mlp == PL_SWIGLU)
        return x / (1 + exp(-x));
    if (mlp == PL_RELU2)
        return fmax(x, 0) * fmax(x, 0);
    return mlp == PL_GELU ? x * (1 + erf(x / sqrt(2))) / 2
                          : x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
}

/* The gated activation of a gate and of what it weighs. */
static double gated(double gate, double up, enum pl_mlp mlp)
{
    if (mlp != PL_SWIGLU_CLAMPED)
        return act(gate, mlp) * up;
    gate = fmin(gate, 7);
    return (fmax(-7, fmin(up, 7)) + 1) * gate / (1 + exp(-1.702 * gate));
}

/* y += scale x gated MLP of n: that of EXPERT, or with -1 the shared experts' */
static void swiglu(const struct ref *f, double *y, const double *n, int layer, int expert, int ffn,
                   double scale)
{
    bool own = expert >= 0;
    double a[256], b[256], o[256];

    matvec(a, weight(f, own ? PL_T_EXPERT_GATE : PL_T_GATE, layer, expert), n, ffn, f->h);
    matvec(b, weight(f, own ? PL_T_EXPERT_UP : PL_T_UP, layer, expert), n, ffn, f->h);
    shift(a, own ? weight(f, PL_T_EXPERT_GATE_BIAS, layer, expert) : NULL, ffn);
    shift(b, own ? weight(f, PL_T_EXPERT_UP_BIAS, layer, expert) : NULL, ffn);
    for (int i = 0; i < ffn; i++)
        a[i] = gated(a[i], b[i], f->r->model.mlp);
    matvec(o, weight(f, own ? PL_T_EXPERT_DOWN : PL_T_DOWN, layer, expert), a, f->h, ffn);
    shift(o, own ? weight(f, PL_T_EXPERT_DOWN_BIAS, layer, expert) : NULL, f->h);
    for (int i = 0; i < f->h; i++)
        y[i] += scale * o[i];
}

/* y += the MLP of n, with its biases */
static void dense(const struct ref *f, double *y, const double *n, int layer)
{
    const double *gate = weight(f, PL_T_GATE, layer, -1);
    int ffn = f->r->model.ffn;
    double a[256], b[256], o[256];

    matvec(b, weight(f, PL_T_UP, layer, -1), n, ffn, f->h);
    shift(b, weight(f, PL_T_UP_BIAS, layer, -1), ffn);
    if (gate)
        matvec(a, gate, n, ffn, f->h);
    if (gate)
        shift(a, weight(f, PL_T_GATE_BIAS, layer, -1), ffn);
    for (int i = 0; i < ffn; i++)
        b[i] = gate ? gated(a[i], b[i], f->r->model.mlp) : act(b[i], f->r->model.mlp);
    matvec(o, weight(f, PL_T_DOWN, layer, -1), b, f->h, ffn);
    shift(o, weight(f, PL_T_DOWN_BIAS, layer, -1), f->h);
    add_output(f, y, o, PL_T_POST_NORM2, layer);
}

/* The norm that the feed-forward reads. */
static void second_norm(const struct ref *f, double *y, const double *x, int layer)
{
    bool shared = f->r->model.shared_norm;

    norm(f, y, x, shared ? PL_T_NORM1 : PL_T_NORM2, shared ? PL_T_NORM1_BIAS : PL_T_NORM2_BIAS,
         layer);
}

/* x += the MLP of what FROM, x itself or the layer's input, is after the norm. */
static void mlp(const struct ref *f, double *x, const double *from, int layer)
{
    double n[256];

    for (int r = 0; r < f->rows; r++) {
        second_norm(f, n, from + r * f->h, layer);
        dense(f, x + r * f->h, n, layer);
    }
}

enum {
    SEQUENCES = 2,
};

/* How many of the N numbers X are larger than x[of]. */
static int above(const double *x, int n, int of)
{
    int larger = 0;

    for (int i = 0; i < n; i++)
        larger += x[i] > x[of];
    return larger;
}

/* Experts outside of the best groups become -1: those with fewer than topk_group better ones by the
 * sum of their best. */
static void leave_groups(const struct pl_moe *moe, double *score)
{
    int each = moe->experts / moe->n_group, many = moe->top_k / moe->topk_group;
    double sum[EXPERTS] = {0};

    for (int e = 0; e < moe->experts; e++)
        if (above(score + e / each * each, each, e % each) < (many < 1 ? 1 : many))
            sum[e / each] += score[e];
    for (int e = 0; e < moe->experts; e++)
        if (above(sum, moe->n_group, e / each) >= moe->topk_group)
            score[e] = -1;
}

/* Is expert E among those of token TOKEN? */
static bool chosen(const struct pl_moe *moe, const double *score, int token, int e)
{
    for (int j = 0; moe->force_balance && j < moe->top_k; j++)
        if ((token * moe->top_k + j) % moe->experts == e)
            return true;
    return !moe->force_balance && above(score, moe->experts, e) < moe->top_k;
}

/* Weights of one token's experts, 0 of those that are not chosen, and each one's share of the
 * scores. BIAS (NULL: none) is added for the choice. */
static void route(double *w, double *share, const double *logits, const struct pl_moe *moe,
                  const float *bias, int token)
{
    bool sigmoid = moe->router == PL_ROUTER_SIGMOID;
    double sum = 0, all = 0, s[EXPERTS], score[EXPERTS];

    for (int e = 0; e < moe->experts; e++)
        sum += s[e] = sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e]);
    for (int e = 0; e < moe->experts; e++) {
        share[e] = s[e] / sum;
        s[e] = sigmoid ? s[e] : share[e];
        score[e] = s[e] + (bias ? (double)bias[e] : 0);
    }
    leave_groups(moe, score);
    for (int e = 0; e < moe->experts; e++) {
        w[e] = chosen(moe, score, token, e) ? s[e] : 0;
        all += w[e];
    }
    for (int e = 0; e < moe->experts; e++)
        w[e] *= moe->scaling / (moe->topk_norm ? all : 1);
}

/* Choices that fell on each expert and its probabilities, added over a sequence's tokens in a
 * layer. */
struct routing {
    double freq[LAYERS][SEQUENCES][EXPERTS], psum[LAYERS][SEQUENCES][EXPERTS];
    double z; /* (log Z)^2, added over rows and layers */
};

/* X += the shared experts of N, weighed by their gate if they have one. */
static void shared(const struct ref *f, double *x, const double *n, int layer)
{
    const double *gate = weight(f, PL_T_SHARED_GATE, layer, -1);
    double by = 0;

    if (gate)
        matvec(&by, gate, n, 1, f->h);
    if (f->r->model.moe.shared_ffn)
        swiglu(f, x, n, layer, -1, f->r->model.moe.shared_ffn, gate ? 1 / (1 + exp(-by)) : 1);
}

/* (log Z)^2 of a row of logits. */
static double z_of(const double *logits, int count)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += exp(logits[i]);
    return log(sum) * log(sum);
}

/* Choices in G are constants: they are filled when FIX, so that a difference never crosses a step
 * of them. */
static void moe(const struct ref *f, double *x, const double *from, int layer, struct routing *g,
                bool fix)
{
    const struct pl_model *m = &f->r->model;
    const float *bias = f->r->params.balance; /* all layers have experts where one is used */
    int ne = m->moe.experts;
    double n[256], y[256], logits[64], w[64], p[64];

    memset(g->psum[layer], 0, sizeof(g->psum[layer]));
    for (int r = 0; r < f->rows; r++) {
        second_norm(f, n, from + r * f->h, layer);
        matvec(logits, weight(f, PL_T_ROUTER, layer, -1), n, ne, f->h);
        shift(logits, weight(f, PL_T_ROUTER_BIAS, layer, -1), ne);
        memset(y, 0, sizeof(y));
        shared(f, y, n, layer);
        g->z += z_of(logits, ne);
        route(w, p, logits, &m->moe, bias ? bias + layer * ne : NULL, r + layer);
        for (int e = 0; e < ne; e++) {
            g->psum[layer][r / f->seq][e] += p[e];
            if (fix && w[e] > 0)
                g->freq[layer][r / f->seq][e] += 1;
            if (w[e] > 0)
                swiglu(f, y, n, layer, e, m->moe.expert_ffn, w[e]);
        }
        for (int i = 0; i < f->h; i++)
            x[r * f->h + i] += m->residual_multiplier * y[i];
    }
}

/* E sum_e f_e P_e over the tokens of sequences [s0, s1) in layers [l0, l1), of which the ones with
 * experts count. */
static double pooled(const struct ref *f, const struct routing *g, int l0, int l1, int s0, int s1)
{
    const struct pl_model *m = &f->r->model;
    double loss = 0, tokens = 0;

    for (int l = l0; l < l1; l++)
        tokens += pl_layer_is_moe(m, l) ? (s1 - s0) * f->seq : 0;
    for (int e = 0; e < m->moe.experts && tokens > 0; e++) {
        double freq = 0, prob = 0;

        for (int l = l0; l < l1; l++)
            for (int s = s0; s < s1; s++) {
                freq += g->freq[l][s][e] / tokens;
                prob += g->psum[l][s][e] / tokens;
            }
        loss += m->moe.experts * freq * prob;
    }
    return loss;
}

/* The load-balancing loss as enum pl_aux_loss defines it, of one micro-batch. */
static double balance(const struct ref *f, const struct routing *g)
{
    const struct pl_model *m = &f->r->model;
    int batch = f->rows / f->seq;
    double sum = 0;

    if (m->moe.aux_loss == PL_AUX_HUGGINGFACE)
        return pooled(f, g, 0, m->layers + m->mtp, 0, batch);
    for (int l = 0; l < m->layers + m->mtp; l++)
        if (m->moe.aux_loss == PL_AUX_MEGATRON)
            sum += pooled(f, g, l, l + 1, 0, batch) / m->moe.top_k;
        else
            for (int s = 0; s < batch; s++)
                sum += pooled(f, g, l, l + 1, s, s + 1) / (batch * f->r->moe_layers);
    return sum;
}

/* With the z-loss of the output. */
static double cross_entropy(const struct ref *f, const double *x, const int32_t *targets)
{
    const struct pl_model *m = &f->r->model;
    double sum = 0;

    for (int r = 0; r < f->rows; r++) {
        double n[256], logits[256], z = 0;

        norm(f, n, x + r * f->h, PL_T_FINAL_NORM, PL_T_FINAL_NORM_BIAS, -1);
        matvec(logits, weight(f, m->tied ? PL_T_EMBED : PL_T_HEAD, -1, -1), n, m->vocab, f->h);
        for (int i = 0; i < m->vocab; i++) {
            logits[i] = capped(m->logit_scale * logits[i], m->logit_softcap);
            z += exp(logits[i]);
        }
        sum += log(z) + f->r->z_loss_coef * log(z) * log(z) - logits[targets[r]];
    }
    return sum;
}

static void layer_of(const struct ref *f, double *x, int layer, struct routing *g, bool fix)
{
    static double before[MAX];
    const double *from = f->r->model.parallel_block ? before : x;

    memcpy(before, x, sizeof(before));
    attention(f, x, layer);
    if (pl_layer_is_moe(&f->r->model, layer))
        moe(f, x, from, layer, g, fix);
    else
        mlp(f, x, from, layer);
}

/* Row (hidden) of the embedding of WORD. */
static void embedding(const struct ref *f, double *x, int word)
{
    double scale = f->r->model.embedding_multiplier * (f->r->model.embed_scale ? sqrt(f->h) : 1);

    for (int k = 0; k < f->h; k++)
        x[k] = weight(f, PL_T_EMBED, -1, -1)[word * f->h + k] * scale;
}

/* Row (hidden) of a module's input: HIDDEN, normalized hidden row, and the embedding of WORD. */
static void join(const struct ref *f, double *x, const double *hidden, int word, int layer)
{
    double both[256], eps = f->r->model.norm_eps;

    embedding(f, both, word);
    rmsnorm(both, both, weight(f, PL_T_MTP_ENORM, layer, -1), f->h, eps, offset_of(f));
    rmsnorm(both + f->h, hidden, weight(f, PL_T_MTP_HNORM, layer, -1), f->h, eps, offset_of(f));
    matvec(x, weight(f, PL_T_MTP_PROJ, layer, -1), both, f->h, 2 * f->h);
}

/* Of a row (hidden) of normalized rows. */
static double surprise(const struct ref *f, const double *normed, int target)
{
    const struct pl_model *m = &f->r->model;
    double logits[256], z = 0;

    matvec(logits, weight(f, m->tied ? PL_T_EMBED : PL_T_HEAD, -1, -1), normed, m->vocab, f->h);
    for (int i = 0; i < m->vocab; i++)
        z += exp(logits[i] = capped(m->logit_scale * logits[i], m->logit_softcap));
    return log(z) - logits[target];
}

/* Loss of the modules behind X, the output of the last layer. Sequence s is tokens s seq ... of
 * work.ids, and its last token is the last of work.targets. */
static double further(const struct ref *f, const double *x, struct routing *g, bool fix)
{
    const struct tr_rank *r = f->r;
    const struct pl_model *m = &r->model;
    static double hidden[MAX], y[MAX];
    double loss = 0;

    for (int i = 0; i < f->rows && m->mtp; i++)
        norm(f, hidden + i * f->h, x + i * f->h, PL_T_FINAL_NORM, PL_T_FINAL_NORM_BIAS, -1);
    for (int k = 1; k <= m->mtp; k++) {
        int layer = m->layers + k - 1;
        double sum = 0;

        for (int i = 0; i < f->rows; i++)
            join(f, y + i * f->h, hidden + i * f->h,
                 i % f->seq + k < f->seq ? r->work.ids[i + k] : 0, layer);
        layer_of(f, y, layer, g, fix);
        for (int i = 0; i < f->rows; i++) {
            rmsnorm(hidden + i * f->h, y + i * f->h, weight(f, PL_T_MTP_NORM, layer, -1), f->h,
                    m->norm_eps, offset_of(f));
            if (i % f->seq + k < f->seq)
                sum += surprise(f, hidden + i * f->h, r->work.targets[i + k]);
        }
        loss += sum / (f->rows / f->seq * (f->seq - k)) / m->mtp;
    }
    return loss;
}

/* What has been computed before each layer, and before the first one behind the last. */
struct trunk {
    double x[LAYERS + 1][MAX];
    double z[LAYERS + 1]; /* of the layers before */
};

/* Objective of the whole batch, which lies in one micro-batch, from layer FIRST on, before which
 * the weights are those of the last call with FIRST 0. */
static double objective_from(int first, struct trunk *k, const struct ref *f, struct routing *g,
                             bool fix)
{
    const struct tr_rank *r = f->r;
    const double *positions = weight(f, PL_T_POSITIONS, -1, -1);
    size_t bytes = sizeof(double) * (size_t)(f->rows * f->h);
    int layers = r->model.layers;
    double mtp;

    for (int i = 0; first == 0 && i < f->rows; i++) {
        embedding(f, k->x[0] + i * f->h, r->work.ids[i]);
        shift(k->x[0] + i * f->h, positions ? positions + i % f->seq * f->h : NULL, f->h);
    }
    g->z = k->z[first];
    for (int l = first; l < layers; l++) {
        memcpy(k->x[l + 1], k->x[l], bytes);
        layer_of(f, k->x[l + 1], l, g, fix);
        k->z[l + 1] = g->z;
    }
    mtp = further(f, k->x[layers], g, fix);
    return cross_entropy(f, k->x[layers], r->work.targets) / f->rows +
           r->model.mtp_loss_coef * mtp +
           (r->moe_layers ? r->model.moe.aux_loss_coef * balance(f, g) : 0) +
           r->model.moe.z_loss_coef * g->z / f->rows;
}

static double objective(const struct ref *f, struct routing *g, bool fix)
{
    static struct trunk k;

    return objective_from(0, &k, f, g, fix);
}

/* ---- the comparison ------------------------------------------------------ */

/* Of one objective. Recomputation is not in it, so runs that differ in nothing else share them. */
struct differences {
    const char *model; /* its text, by address */
    enum pl_aux_loss aux;
    double z_loss_coef;
    double *want; /* (weights) */
};

/* The first layer whose output P changes: all of them for the embedding, none for the last norm. */
static int first_layer(const struct ref *f, const struct pl_param *p)
{
    int layers = f->r->model.layers;

    if (p->tensor == PL_T_EMBED || p->tensor == PL_T_POSITIONS)
        return 0;
    return p->layer < 0 || p->layer > layers ? layers : p->layer;
}

static void differentiate(double *want, const struct ref *f, double *w)
{
    static struct routing g;
    static struct trunk k;
    const double h = 1e-5;

    g = (struct routing){0};
    objective_from(0, &k, f, &g, true);
    for (int i = 0; i < f->r->params.table.n; i++) {
        const struct pl_param *p = &f->r->params.table.p[i];
        int first = first_layer(f, p);

        objective_from(0, &k, f, &g, false); /* the last tensor's layers without its steps */
        for (uint64_t j = p->offset; j < p->offset + p->count; j++) {
            double keep = w[j], up, down;

            w[j] = keep + h;
            up = objective_from(first, &k, f, &g, false);
            w[j] = keep - h;
            down = objective_from(first, &k, f, &g, false);
            w[j] = keep;
            want[j] = (up - down) / (2 * h);
        }
    }
}

/* Taken once for each MODEL, AUX and z-loss: weights and samples are the same each time. */
static const double *differences(const struct ref *f, double *w, const char *model,
                                 enum pl_aux_loss aux)
{
    static struct differences *taken;
    static int n, cap;

    for (int i = 0; i < n; i++)
        if (taken[i].model == model && taken[i].aux == aux &&
            taken[i].z_loss_coef == f->r->z_loss_coef)
            return taken[i].want;
    MEM_GROW(taken, n, cap);
    taken[n] = (struct differences){model, aux, f->r->z_loss_coef,
                                    mem_alloc(sizeof(double) * f->r->params.table.count)};
    differentiate(taken[n].want, f, w);
    return taken[n++].want;
}

/* Softmax does not see what is added to all keys alike, up to their rotation: terms as large as
 * those of the queries' bias, the tensor before, cancel. */
static void compare(const struct tr_rank *r, const double *want, const char *name)
{
    double before = 0;

    for (int i = 0; i < r->params.table.n; i++) {
        const struct pl_param *p = &r->params.table.p[i];
        const float *grad = tr_param_grad(&r->params, i);
        double worst = 0, largest = 0, terms;
        bool good;

        for (uint64_t k = 0; k < p->count; k++) {
            worst = fmax(worst, fabs(want[p->offset + k] - (double)grad[k]));
            largest = fmax(largest, fabs(want[p->offset + k]));
        }
        terms = p->tensor == PL_T_K_BIAS ? fmax(largest, before) : largest;
        good = worst <= 1.1e-4 * terms + 1e-9 && (largest > 0 || p->expert >= 0);
        before = largest;
        failures += !good;
        printf("%sok %d - %s %s: off by %.1e of %.1e\n", good ? "" : "not ", ++test_number, name,
               p->name, worst, largest);
    }
}

/* Norms differ from 1, biases from 0. */
static void lively(float *weight, uint64_t i)
{
    *weight *= 1.0f + 0.3f * (float)rng_normal_at(5, i);
    if (*weight == 0.0f)
        *weight = 0.1f * (float)rng_normal_at(6, i);
}

static void run(const char *name, const char *model, enum pl_aux_loss aux,
                enum pl_recompute recompute)
{
    struct pl_model m;
    struct pl_workload w = {.global_batch = 2, .data = "synthetic"};
    struct pl_layout l;
    struct tr_rank r;
    struct tr_result t;
    enum pl_mem_class cls;
    double asked, loss;
    struct err e = {0};
    json_t *v = json_loads(model, 0, NULL);
    static struct routing g;

    if (!v || pl_model_parse(&m, v, &e) < 0)
        die(e.text);
    json_decref(v);
    m.moe.aux_loss = aux;
    w.seq = m.seq;
    pl_layout_default(&l, &w);
    l.world = 1;
    l.micro_batch = 2;
    l.recompute = (int)recompute;
    pl_layout_derive(&l);
    if (tr_rank_init(&cls, &asked, &r, MPI_COMM_SELF, &m, &l, &w, UINT64_MAX, die, &e) < 0)
        die(e.text);
    r.z_loss_coef = strstr(name, "z-loss") ? 0.2 : 0;
    tr_params_init(&r.params, &m, 3);
    for (uint64_t i = 0; i < r.params.table.count;
         i++) /* livelier than a start: norms differ from 1 */
        lively((float *)r.params.weight + i, i);
    for (int i = 0; r.params.balance && i < r.moe_here * m.moe.experts; i++)
        r.params.balance[i] = 0.2f * (float)rng_normal_at(7, (uint64_t)i);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i <= w.seq; i++)
            r.work.sample[i] = (int32_t)(rng_mix((uint64_t)(k * 100 + i)) % (uint64_t)m.vocab);
        tr_sample_put(&r, 0, k, r.work.sample);
    }
    tr_step_grads(&t, &r, 0);

    double *wide = mem_alloc(sizeof(double) * r.params.table.count);
    struct ref f = {
        .r = &r, .w = wide, .rows = (int)r.d.rows, .seq = w.seq, .h = m.hidden, .hd = m.head_dim};

    place_weights(&f);

    for (uint64_t i = 0; i < r.params.table.count; i++)
        wide[i] = (double)((float *)r.params.weight)[i];
    g = (struct routing){0};
    loss = objective(&f, &g, true);
    t.loss += r.moe_layers ? m.moe.aux_loss_coef * t.aux : 0;
    t.loss += r.z_loss_coef * t.z + m.moe.z_loss_coef * t.moe_z + m.mtp_loss_coef * t.mtp;
    failures += !(fabs(loss - t.loss) < 1e-5 * loss);
    printf("%sok %d - %s: objective %.8f, in double %.8f\n",
           fabs(loss - t.loss) < 1e-5 * loss ? "" : "not ", ++test_number, name, t.loss, loss);
    compare(&r, differences(&f, wide, model, aux), name);
    free(wide);
    tr_rank_done(&r);
}

int main(int argc, char **argv)
{
    static const char dense[] = "{\"name\":\"d\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_"
                                "heads\":2,\"ffn\":20,\"vocab\":13,"
                                "\"seq\":7,\"init_std\":0.3}";
    static const char mixtral[] = "{\"name\":\"m\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_"
                                  "heads\":2,\"ffn\":20,\"vocab\":13,\"seq\":7,"
                                  "\"init_std\":0.3,\"moe\":{\"experts\":4,\"top_k\":2,\"expert_"
                                  "ffn\":12,\"aux_loss_coef\":0.5}}";
    static const char mixed[] = "{\"name\":\"x\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_"
                                "heads\":4,\"ffn\":20,\"vocab\":13,\"seq\":7,"
                                "\"init_std\":0.3,\"moe\":{\"experts\":3,\"top_k\":1,\"expert_"
                                "ffn\":12,\"aux_loss_coef\":0.5,\"every\":2}}";

    static const char tied[] = "{\"name\":\"t\",\"layers\":1,\"hidden\":16,\"heads\":4,\"kv_"
                               "heads\":2,\"ffn\":20,\"vocab\":13,"
                               "\"seq\":7,\"init_std\":0.3,\"tied\":true}";

    static const char gpt2[] = "{\"name\":\"gpt2\",\"layers\":2,\"hidden\":16,\"heads\":4,"
                               "\"ffn\":20,\"vocab\":13,\"seq\":7,\"init_std\":0.3,"
                               "\"mlp\":\"gelu-tanh\",\"norm\":\"layernorm\","
                               "\"positions\":\"learned\",\"tied\":true}";
    static const char neox[] = "{\"name\":\"neox\",\"layers\":2,\"hidden\":16,\"heads\":2,"
                               "\"ffn\":20,\"vocab\":13,\"seq\":7,\"init_std\":0.3,"
                               "\"mlp\":\"gelu\",\"norm\":\"layernorm\",\"parallel_block\":true,"
                               "\"partial_rotary_factor\":0.25}";
    static const char qwen3[] = "{\"name\":\"qwen3\",\"layers\":2,\"hidden\":16,\"heads\":4,"
                                "\"kv_heads\":2,\"head_dim\":6,\"ffn\":20,\"vocab\":13,"
                                "\"seq\":7,\"init_std\":0.3,\"qk_norm\":\"head\","
                                "\"rope_scaling\":{\"kind\":\"yarn\",\"factor\":3,"
                                "\"original_seq\":9,\"beta_fast\":1,\"beta_slow\":0.1}}";
    static const char biased[] = "{\"name\":\"biased\",\"layers\":1,\"hidden\":16,\"heads\":4,"
                                 "\"kv_heads\":2,\"ffn\":20,\"vocab\":13,\"seq\":7,"
                                 "\"init_std\":0.3,\"qkv_bias\":true,\"out_bias\":true,"
                                 "\"mlp_bias\":true,\"qk_norm\":\"head\"}";
    static const char windows[] =
        "{\"name\":\"windows\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,"
        "\"ffn\":20,\"vocab\":13,\"seq\":9,\"init_std\":0.3,\"sliding_window\":3,"
        "\"global_every\":2,\"rope_theta_local\":30,\"attn_scale\":0.8,"
        "\"rope_scaling\":{\"kind\":\"linear\",\"factor\":3}}";
#define GEMMA                                                                                      \
    "\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,\"head_dim\":6,\"ffn\":20,"             \
    "\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"tied\":true,\"mlp\":\"geglu\",\"post_norms\":true," \
    "\"zero_centered_norm\":true,\"embed_scale\":true,\"sliding_window\":3,\"global_every\":2,"
    static const char gemma2[] = "{\"name\":\"gemma2\"," GEMMA
                                 "\"attn_softcap\":1.5,\"logit_softcap\":2,\"attn_scale\":0.8}";
    static const char gemma3[] = "{\"name\":\"gemma3\"," GEMMA
                                 "\"qk_norm\":\"head\",\"rope_theta_local\":30,\"out_bias\":true,"
                                 "\"mlp_bias\":true}";
    static const char nemotron[] =
        "{\"name\":\"nemotron\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,"
        "\"head_dim\":8,\"ffn\":20,\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"mlp\":\"relu2\","
        "\"norm\":\"layernorm\",\"zero_centered_norm\":true,\"partial_rotary_factor\":0.5,"
        "\"qkv_bias\":false,\"out_bias\":false,\"mlp_bias\":true}";
    static const char olmoe[] =
        "{\"name\":\"olmoe\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,"
        "\"head_dim\":6,\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"qk_norm\":\"full\","
        "\"moe\":{\"experts\":4,\"top_k\":2,\"expert_ffn\":12,\"topk_norm\":false,"
        "\"aux_loss_coef\":0.5}}";
#define OLMO                                                                                       \
    "\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,\"head_dim\":6,\"ffn\":20,"             \
    "\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"pre_norms\":false,\"post_norms\":true"
#define MULTIPLIERS                                                                                \
    "\"embedding_multiplier\":3,\"residual_multiplier\":0.4,\"attn_scale\":0.7,\"logit_scale\":0." \
    "6"
    static const char olmo2[] = "{\"name\":\"olmo2\"," OLMO ",\"qk_norm\":\"full\"}";
    static const char olmo3[] =
        "{\"name\":\"olmo3\"," OLMO ",\"qk_norm\":\"full\",\"sliding_window\":3,\"global_every\":2,"
        "\"rope_theta_local\":10000,\"qkv_bias\":true,\"out_bias\":true,\"rope_scaling\":{\"kind\":"
        "\"yarn\",\"factor\":3,\"original_seq\":9,\"beta_fast\":1,\"beta_slow\":0.1}}";
    static const char cohere[] =
        "{\"name\":\"cohere\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,\"ffn\":20,"
        "\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"tied\":true,\"norm\":\"layernorm\",\"norm_"
        "bias\":"
        "false,\"parallel_block\":true,\"shared_norm\":true,\"qkv_bias\":false,\"mlp_bias\":false,"
        "\"logit_scale\":0.6,\"sliding_window\":3,\"global_every\":2,\"no_rope_freq\":2}";
    static const char shared_experts[] =
        "{\"name\":\"shared norm\",\"layers\":2,\"hidden\":16,\"heads\":4,\"ffn\":20,\"vocab\":13,"
        "\"seq\":7,\"init_std\":0.3,\"parallel_block\":true,\"shared_norm\":true,\"mtp\":1,"
        "\"moe\":{\"experts\":5,\"top_k\":2,\"expert_ffn\":12,\"shared_ffn\":10,\"aux_loss_coef\":"
        "0.5,"
        "\"every\":2}}";
    static const char unshifted[] =
        "{\"name\":\"unshifted\",\"layers\":2,\"hidden\":16,\"heads\":4,\"ffn\":20,\"vocab\":13,"
        "\"seq\":7,\"init_std\":0.3,\"mlp\":\"gelu\",\"norm\":\"layernorm\",\"norm_bias\":false,"
        "\"zero_centered_norm\":true}";
    static const char granite[] =
        "{\"name\":\"granite\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,\"ffn\":20,"
        "\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"tied\":true,\"out_bias\":true," MULTIPLIERS "}";
#define GRANITE_MOE(words)                                                                         \
    "{\"name\":\"granite moe\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,\"ffn\":20,"  \
    "\"vocab\":13,\"seq\":7,\"init_std\":0.3," MULTIPLIERS                                         \
    ",\"logit_softcap\":2,\"mtp\":1,\"moe\":{"                                                     \
    "\"experts\":5,\"top_k\":2,\"expert_ffn\":12,\"aux_loss_coef\":0.5" words "}}"
    static const char granite_norms[] = "{\"name\":\"granite norms\"," OLMO "," MULTIPLIERS "}";
    static const char olmo_mtp[] = "{\"name\":\"olmo mtp\"," OLMO ",\"zero_centered_norm\":true,"
                                   "\"mlp\":\"gelu\",\"mlp_bias\":true,\"mtp\":2,"
                                   "\"no_rope_freq\":2}";
    static const char nowhere[] =
        "{\"name\":\"nowhere\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,"
        "\"ffn\":20,\"vocab\":13,\"seq\":7,\"init_std\":0.3,\"mlp\":\"relu2\","
        "\"positions\":\"none\",\"qk_norm\":\"full\",\"zero_centered_norm\":true,\"qkv_bias\":"
        "true}";
#define LATENT                                                                                     \
    "\"layers\":2,\"hidden\":16,\"heads\":3,\"ffn\":20,\"vocab\":13,\"seq\":7,"                    \
    "\"init_std\":0.3,\"mla\":{\"kv_lora_rank\":9,\"qk_nope_head_dim\":5,"                         \
    "\"qk_rope_head_dim\":4,\"v_head_dim\":6"
    static const char olmo_latent[] = "{\"name\":\"olmo latent\"," LATENT ",\"q_lora_rank\":11},"
                                      "\"pre_norms\":false,\"post_norms\":true}";
    static const char latent[] = "{\"name\":\"latent\"," LATENT ",\"q_lora_rank\":11},"
                                 "\"qkv_bias\":true,\"out_bias\":true}";
    static const char queries[] =
        "{\"name\":\"queries\"," LATENT "},\"rope_scaling\":{\"kind\":\"yarn\",\"factor\":3,"
        "\"original_seq\":9,\"beta_fast\":1,\"beta_slow\":0.1,\"mscale\":0.7,"
        "\"mscale_all_dim\":1.3}}";
    static const char deepseek[] =
        "{\"name\":\"deepseek\"," LATENT ",\"q_lora_rank\":7},\"moe\":{\"experts\":8,\"top_k\":3,"
        "\"expert_ffn\":12,\"aux_loss_coef\":0.5,\"router\":\"sigmoid\",\"scaling\":2.5,"
        "\"n_group\":4,\"topk_group\":2,\"dense_layers\":1,\"shared_ffn\":10}}";
    static const char parallel[] =
        "{\"name\":\"p\",\"layers\":2,\"hidden\":16,\"heads\":4,\"ffn\":20,\"vocab\":13,"
        "\"seq\":7,\"init_std\":0.3,\"parallel_block\":true,\"norm\":\"layernorm\","
        "\"mlp_bias\":false,\"moe\":{\"experts\":3,\"top_k\":1,\"expert_ffn\":12,"
        "\"aux_loss_coef\":0.5,\"every\":2}}";

    static const char further1[] = "{\"name\":\"m1\",\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_"
                                   "heads\":2,\"ffn\":20,\"vocab\":13,\"seq\":7,\"init_std\":0.3,"
                                   "\"sliding_window\":3,\"global_every\":2,\"mtp\":1,"
                                   "\"mtp_loss_coef\":0.7}";
    static const char further2[] =
        "{\"name\":\"m2\"," LATENT ",\"q_lora_rank\":7},\"mtp\":2,\"mtp_loss_coef\":0.6,\"moe\":{"
        "\"experts\":8,\"top_k\":3,\"expert_ffn\":12,\"aux_loss_coef\":0.5,\"router\":\"sigmoid\","
        "\"scaling\":2.5,\"n_group\":4,\"topk_group\":2,\"dense_layers\":1,\"shared_ffn\":10,"
        "\"z_loss_coef\":0.1}}";
    static const char further3[] = "{\"name\":\"m3\",\"layers\":1,\"hidden\":16,\"heads\":4,\"kv_"
                                   "heads\":2,\"ffn\":20,\"vocab\":13,\"seq\":7,\"init_std\":0.3,"
                                   "\"tied\":true,\"mtp\":3}";

    static const char further4[] =
        "{\"name\":\"m4\"," GEMMA "\"attn_softcap\":1.5,\"logit_softcap\":2,\"mtp\":2}";

    /* Large enough that some gates and factors are cut off. */
#define OSS                                                                                        \
    "\"layers\":2,\"hidden\":16,\"heads\":4,\"kv_heads\":2,\"vocab\":13,\"seq\":7,"                \
    "\"init_std\":0.9,\"mlp\":\"swiglu-clamped\",\"qkv_bias\":true,\"out_bias\":true,"             \
    "\"mlp_bias\":true,\"attn_sinks\":true,\"sliding_window\":3,\"global_every\":2,"
    static const char oss[] = "{\"name\":\"oss\"," OSS "\"moe\":{\"experts\":6,\"top_k\":3,"
                              "\"expert_ffn\":12,\"aux_loss_coef\":0.5,\"router_bias\":true,"
                              "\"z_loss_coef\":0.1}}";
    static const char oss_dense[] = "{\"name\":\"oss dense\"," OSS "\"ffn\":20,\"mtp\":1}";
    static const char oss_latent[] =
        "{\"name\":\"oss latent\"," LATENT "},\"mlp\":\"swiglu-clamped\",\"attn_sinks\":true,"
        "\"moe\":{\"experts\":6,\"top_k\":2,\"expert_ffn\":12,\"shared_ffn\":10,\"every\":2,"
        "\"router_bias\":true,\"router\":\"sigmoid\"}}";

#define ROUTED(words)                                                                              \
    "{\"name\":\"r\",\"layers\":2,\"hidden\":16,\"heads\":4,\"ffn\":20,\"vocab\":13,\"seq\":7,"    \
    "\"init_std\":0.3,\"moe\":{\"experts\":8,\"top_k\":3,\"expert_ffn\":12,\"aux_loss_coef\":0."   \
    "5," words "}}"

    MPI_Init(&argc, &argv);
    run("dealt", ROUTED("\"force_balance\":true"), PL_AUX_SEQUENCE, PL_RECOMPUTE_FULL);
    run("as they are, scaled", ROUTED("\"topk_norm\":false,\"scaling\":1.5"), PL_AUX_MEGATRON,
        PL_RECOMPUTE_NONE);
    run("sigmoid", ROUTED("\"router\":\"sigmoid\""), PL_AUX_HUGGINGFACE, PL_RECOMPUTE_SELECTIVE);
    run("sigmoid, groups, biased",
        ROUTED("\"router\":\"sigmoid\",\"balance_bias\":true,\"scaling\":2.5,\"n_group\":4,"
               "\"topk_group\":2"),
        PL_AUX_SEQUENCE, PL_RECOMPUTE_FULL);
    run("softmax, groups, biased",
        ROUTED("\"topk_norm\":false,\"balance_bias\":true,\"n_group\":2,\"topk_group\":1"),
        PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("shared", ROUTED("\"shared_ffn\":10"), PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    for (int i = PL_RECOMPUTE_NONE; i <= PL_RECOMPUTE_FULL; i++)
        run("shared, with a gate", ROUTED("\"shared_ffn\":10,\"shared_gate\":true"),
            PL_AUX_SEQUENCE, (enum pl_recompute)i);
    run("z-loss", ROUTED("\"z_loss_coef\":0.3"), PL_AUX_SEQUENCE, PL_RECOMPUTE_FULL);
    run("z-loss, sigmoid", ROUTED("\"z_loss_coef\":0.3,\"router\":\"sigmoid\",\"every\":2"),
        PL_AUX_MEGATRON, PL_RECOMPUTE_SELECTIVE);
    run("dense, z-loss", dense, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("dense", dense, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("tied", tied, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("experts", mixtral, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("experts, selective", mixtral, PL_AUX_SEQUENCE, PL_RECOMPUTE_SELECTIVE);
    run("experts, huggingface", mixtral, PL_AUX_HUGGINGFACE, PL_RECOMPUTE_NONE);
    run("experts, megatron", mixtral, PL_AUX_MEGATRON, PL_RECOMPUTE_SELECTIVE);
    run("mixed, full", mixed, PL_AUX_SEQUENCE, PL_RECOMPUTE_FULL);
    run("mixed, huggingface, full", mixed, PL_AUX_HUGGINGFACE, PL_RECOMPUTE_FULL);
    run("mixed, megatron, full", mixed, PL_AUX_MEGATRON, PL_RECOMPUTE_FULL);
    for (int i = PL_RECOMPUTE_NONE; i <= PL_RECOMPUTE_FULL; i++) {
        run("gpt2", gpt2, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("neox", neox, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("qwen3", qwen3, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("biased", biased, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("windows", windows, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("gemma2", gemma2, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("gemma3", gemma3, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("nemotron", nemotron, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("olmoe", olmoe, PL_AUX_HUGGINGFACE, (enum pl_recompute)i);
        run("olmo2", olmo2, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("olmo3", olmo3, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("cohere", cohere, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("a shared norm, experts", shared_experts, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("layernorm without bias", unshifted, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("granite", granite, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("granite, experts", GRANITE_MOE(""), PL_AUX_HUGGINGFACE, (enum pl_recompute)i);
        run("granite, shared experts", GRANITE_MOE(",\"shared_ffn\":10"), PL_AUX_SEQUENCE,
            (enum pl_recompute)i);
        run("granite, shared experts, with a gate",
            GRANITE_MOE(",\"shared_ffn\":10,\"shared_gate\":true"), PL_AUX_SEQUENCE,
            (enum pl_recompute)i);
        run("granite, norms of outputs", granite_norms, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("mtp, no norms of inputs", olmo_mtp, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("without norms of inputs, latent", olmo_latent, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("without positions", nowhere, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("latent", latent, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("queries without a latent", queries, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("deepseek", deepseek, PL_AUX_SEQUENCE, (enum pl_recompute)i);
    }
    for (int i = PL_RECOMPUTE_NONE; i <= PL_RECOMPUTE_FULL; i++) {
        run("mtp", further1, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("mtp, deepseek", further2, (enum pl_aux_loss)i, (enum pl_recompute)i);
    }
    for (int i = PL_RECOMPUTE_NONE; i <= PL_RECOMPUTE_FULL; i++) {
        run("gpt-oss", oss, (enum pl_aux_loss)i, (enum pl_recompute)i);
        run("gpt-oss, dense, mtp", oss_dense, PL_AUX_SEQUENCE, (enum pl_recompute)i);
        run("sinks, latent", oss_latent, PL_AUX_SEQUENCE, (enum pl_recompute)i);
    }
    run("mtp, gemma", further4, PL_AUX_SEQUENCE, PL_RECOMPUTE_FULL);
    run("mtp, tied", further3, PL_AUX_SEQUENCE, PL_RECOMPUTE_SELECTIVE);
    run("parallel experts", parallel, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    printf("1..%d\n", test_number);
    MPI_Finalize();
    return failures != 0;
}
