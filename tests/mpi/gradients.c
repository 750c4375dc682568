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

enum { MAX = 4096 };

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
};

static const double *weight(const struct ref *f, enum pl_tensor t, int layer, int expert)
{
    return f->w + f->r->params.table.p[tr_param_find(&f->r->params, t, layer, expert)].offset;
}

/* y (out) = W (out, in) x (in) */
static void matvec(double *y, const double *w, const double *x, int out, int in)
{
    for (int o = 0; o < out; o++) {
        y[o] = 0;
        for (int i = 0; i < in; i++)
            y[o] += w[o * in + i] * x[i];
    }
}

static void rmsnorm(double *y, const double *x, const double *w, int n, double eps)
{
    double s = 0;

    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    s = 1 / sqrt(s / n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * s * w[i];
}

static void rotate(double *x, int pos, int d, double theta)
{
    for (int i = 0; i < d / 2; i++) {
        double a = pos * pow(theta, -2.0 * i / d), c = cos(a), s = sin(a), u = x[i],
               v = x[i + d / 2];

        x[i] = u * c - v * s;
        x[i + d / 2] = v * c + u * s;
    }
}

/* One query row against keys 0..t of its sequence. */
static void attend(double *o, const double *q, const double *k, const double *v, int t, int d,
                   int ld)
{
    double p[MAX], top = -INFINITY, sum = 0;

    for (int j = 0; j <= t; j++) {
        p[j] = 0;
        for (int i = 0; i < d; i++)
            p[j] += q[i] * k[j * ld + i] / sqrt(d);
        top = fmax(top, p[j]);
    }
    for (int j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - top);
    for (int i = 0; i < d; i++) {
        o[i] = 0;
        for (int j = 0; j <= t; j++)
            o[i] += p[j] / sum * v[j * ld + i];
    }
}

static void attention(const struct ref *f, double *x, int layer)
{
    const struct pl_model *m = &f->r->model;
    int nq = m->heads * f->hd, nk = m->kv_heads * f->hd, h = f->h;
    static double q[MAX], k[MAX], v[MAX], n[256], o[256], y[256];

    for (int r = 0; r < f->rows; r++) {
        rmsnorm(n, x + r * h, weight(f, PL_T_NORM1, layer, -1), h, m->norm_eps);
        matvec(q + r * nq, weight(f, PL_T_Q, layer, -1), n, nq, h);
        matvec(k + r * nk, weight(f, PL_T_K, layer, -1), n, nk, h);
        matvec(v + r * nk, weight(f, PL_T_V, layer, -1), n, nk, h);
        for (int i = 0; i < m->heads; i++)
            rotate(q + r * nq + i * f->hd, r % f->seq, f->hd, m->rope_theta);
        for (int i = 0; i < m->kv_heads; i++)
            rotate(k + r * nk + i * f->hd, r % f->seq, f->hd, m->rope_theta);
    }
    for (int r = 0; r < f->rows; r++) {
        int first = r / f->seq * f->seq;

        for (int i = 0; i < m->heads; i++) {
            int at = first * nk + i / (m->heads / m->kv_heads) * f->hd;

            attend(o + i * f->hd, q + r * nq + i * f->hd, k + at, v + at, r - first, f->hd, nk);
        }
        matvec(y, weight(f, PL_T_O, layer, -1), o, h, nq);
        for (int i = 0; i < h; i++)
            x[r * h + i] += y[i];
    }
}

/* y += scale x SwiGLU MLP of n */
static void swiglu(double *y, const double *n, const double *g, const double *u, const double *d,
                   int ffn, int h, double scale)
{
    double a[256], b[256], o[256];

    matvec(a, g, n, ffn, h);
    matvec(b, u, n, ffn, h);
    for (int i = 0; i < ffn; i++)
        a[i] = a[i] / (1 + exp(-a[i])) * b[i];
    matvec(o, d, a, h, ffn);
    for (int i = 0; i < h; i++)
        y[i] += scale * o[i];
}

static void mlp(const struct ref *f, double *x, int layer)
{
    double n[256];

    for (int r = 0; r < f->rows; r++) {
        rmsnorm(n, x + r * f->h, weight(f, PL_T_NORM2, layer, -1), f->h, f->r->model.norm_eps);
        swiglu(x + r * f->h, n, weight(f, PL_T_GATE, layer, -1), weight(f, PL_T_UP, layer, -1),
               weight(f, PL_T_DOWN, layer, -1), f->r->model.ffn, f->h, 1);
    }
}

/* Choices and weights of one token; the experts chosen get their weight, others 0. */
static void route(double *w, double *p, const double *logits, int experts, int top_k)
{
    double sum = 0, chosen = 0;

    for (int e = 0; e < experts; e++)
        sum += p[e] = exp(logits[e]);
    for (int e = 0; e < experts; e++) {
        int above = 0;

        p[e] /= sum;
        for (int o = 0; o < experts; o++)
            above += logits[o] > logits[e];
        w[e] = above < top_k ? p[e] : 0;
        chosen += w[e];
    }
    for (int e = 0; e < experts; e++)
        w[e] /= chosen;
}

enum { LAYERS = 4, SEQUENCES = 2, EXPERTS = 8 };

/* Choices that fell on each expert and its probabilities, added over a sequence's tokens in a
 * layer. */
struct routing {
    double freq[LAYERS][SEQUENCES][EXPERTS], psum[LAYERS][SEQUENCES][EXPERTS];
};

/* Choices in G are constants: they are filled when FIX, so that a difference never crosses a step
 * of them. */
static void moe(const struct ref *f, double *x, int layer, struct routing *g, bool fix)
{
    const struct pl_model *m = &f->r->model;
    int ne = m->moe.experts;
    double n[256], logits[64], w[64], p[64];

    memset(g->psum[layer], 0, sizeof(g->psum[layer]));
    for (int r = 0; r < f->rows; r++) {
        rmsnorm(n, x + r * f->h, weight(f, PL_T_NORM2, layer, -1), f->h, m->norm_eps);
        matvec(logits, weight(f, PL_T_ROUTER, layer, -1), n, ne, f->h);
        route(w, p, logits, ne, m->moe.top_k);
        for (int e = 0; e < ne; e++) {
            g->psum[layer][r / f->seq][e] += p[e];
            if (fix && w[e] > 0)
                g->freq[layer][r / f->seq][e] += 1;
            if (w[e] > 0)
                swiglu(x + r * f->h, n, weight(f, PL_T_EXPERT_GATE, layer, e),
                       weight(f, PL_T_EXPERT_UP, layer, e), weight(f, PL_T_EXPERT_DOWN, layer, e),
                       m->moe.expert_ffn, f->h, w[e]);
        }
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
        return pooled(f, g, 0, m->layers, 0, batch);
    for (int l = 0; l < m->layers; l++)
        if (m->moe.aux_loss == PL_AUX_MEGATRON)
            sum += pooled(f, g, l, l + 1, 0, batch) / m->moe.top_k;
        else
            for (int s = 0; s < batch; s++)
                sum += pooled(f, g, l, l + 1, s, s + 1) / (batch * f->r->moe_layers);
    return sum;
}

static double cross_entropy(const struct ref *f, const double *x, const int32_t *targets)
{
    const struct pl_model *m = &f->r->model;
    double sum = 0;

    for (int r = 0; r < f->rows; r++) {
        double n[256], logits[256], z = 0;

        rmsnorm(n, x + r * f->h, weight(f, PL_T_FINAL_NORM, -1, -1), f->h, m->norm_eps);
        matvec(logits, weight(f, m->tied ? PL_T_EMBED : PL_T_HEAD, -1, -1), n, m->vocab, f->h);
        for (int i = 0; i < m->vocab; i++)
            z += exp(logits[i]);
        sum += log(z) - logits[targets[r]];
    }
    return sum;
}

/* Objective of the whole batch, which lies in one micro-batch. */
static double objective(const struct ref *f, struct routing *g, bool fix)
{
    const struct tr_rank *r = f->r;
    static double x[MAX];

    for (int i = 0; i < f->rows; i++)
        memcpy(x + i * f->h, weight(f, PL_T_EMBED, -1, -1) + r->work.ids[i] * f->h,
               sizeof(double) * (size_t)f->h);
    for (int l = 0; l < r->model.layers; l++) {
        attention(f, x, l);
        if (pl_layer_is_moe(&r->model, l))
            moe(f, x, l, g, fix);
        else
            mlp(f, x, l);
    }
    return cross_entropy(f, x, r->work.targets) / f->rows +
           (r->moe_layers ? r->model.moe.aux_loss_coef * balance(f, g) : 0);
}

/* ---- the comparison ------------------------------------------------------ */

static void compare(const struct tr_rank *r, double *w, const char *name)
{
    static struct routing g;
    struct ref f = {.r = r,
                    .w = w,
                    .rows = (int)r->d.rows,
                    .seq = r->workload.seq,
                    .h = r->model.hidden,
                    .hd = r->model.head_dim};
    const double h = 1e-5;

    g = (struct routing){0};
    objective(&f, &g, true);
    for (int i = 0; i < r->params.table.n; i++) {
        const struct pl_param *p = &r->params.table.p[i];
        const float *grad = tr_param_grad(&r->params, i);
        double worst = 0, largest = 0;

        for (uint64_t k = 0; k < p->count; k++) {
            double *v = &w[p->offset + k], keep = *v, up, down, want;

            *v = keep + h;
            up = objective(&f, &g, false);
            *v = keep - h;
            down = objective(&f, &g, false);
            *v = keep;
            want = (up - down) / (2 * h);
            worst = fmax(worst, fabs(want - (double)grad[k]));
            largest = fmax(largest, fabs(want));
        }
        bool good = worst <= 1.1e-4 * largest + 1e-9 && (largest > 0 || p->expert >= 0);

        failures += !good;
        printf("%sok %d - %s %s: off by %.1e of %.1e\n", good ? "" : "not ", ++test_number, name,
               p->name, worst, largest);
    }
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
    tr_params_init(&r.params, &m, 3);
    for (uint64_t i = 0; i < r.params.table.count;
         i++) /* livelier than a start: norms differ from 1 */
        ((float *)r.params.weight)[i] *= 1.0f + 0.3f * (float)rng_normal_at(5, i);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i <= w.seq; i++)
            r.work.sample[i] = (int32_t)(rng_mix((uint64_t)(k * 100 + i)) % (uint64_t)m.vocab);
        tr_sample_put(&r, 0, k, r.work.sample);
    }
    tr_step_grads(&t, &r, 0);

    double *wide = mem_alloc(sizeof(double) * r.params.table.count);
    struct ref f = {
        .r = &r, .w = wide, .rows = (int)r.d.rows, .seq = w.seq, .h = m.hidden, .hd = m.head_dim};

    for (uint64_t i = 0; i < r.params.table.count; i++)
        wide[i] = (double)((float *)r.params.weight)[i];
    g = (struct routing){0};
    loss = objective(&f, &g, true);
    t.loss += r.moe_layers ? m.moe.aux_loss_coef * t.aux : 0;
    failures += !(fabs(loss - t.loss) < 1e-5 * loss);
    printf("%sok %d - %s: objective %.8f, in double %.8f\n",
           fabs(loss - t.loss) < 1e-5 * loss ? "" : "not ", ++test_number, name, t.loss, loss);
    compare(&r, wide, name);
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

    MPI_Init(&argc, &argv);
    run("dense", dense, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("tied", tied, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("experts", mixtral, PL_AUX_SEQUENCE, PL_RECOMPUTE_NONE);
    run("experts, selective", mixtral, PL_AUX_SEQUENCE, PL_RECOMPUTE_SELECTIVE);
    run("experts, huggingface", mixtral, PL_AUX_HUGGINGFACE, PL_RECOMPUTE_NONE);
    run("experts, megatron", mixtral, PL_AUX_MEGATRON, PL_RECOMPUTE_SELECTIVE);
    run("mixed, full", mixed, PL_AUX_SEQUENCE, PL_RECOMPUTE_FULL);
    run("mixed, huggingface, full", mixed, PL_AUX_HUGGINGFACE, PL_RECOMPUTE_FULL);
    run("mixed, megatron, full", mixed, PL_AUX_MEGATRON, PL_RECOMPUTE_FULL);
    printf("1..%d\n", test_number);
    MPI_Finalize();
    return failures != 0;
}
