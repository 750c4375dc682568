/*
 * Optimizers: each step of one rank against the definition in double, and each layout against one
 * rank.
 *
 * The definitions are written here tensor by tensor, from the gradients that the trainer has, and
 * know nothing of buckets, spans and kernels. Bounds, with u = 2^-24: of SGD and LAMB a weight's
 * own rounding and that of its step, whose direction has some 64 rounded operations of numbers
 * around 1.
 * Newton-Schulz raises an error of a small singular value by 3.4445 in each of five steps, and each
 * step adds the rounding of products over the shorter side, S terms: 3.4445^5 x 5 x (S + 4) u.
 *
 * One more step is skipped on the way: weights and moments stay, and steps after it have the
 * learning rate of their number but the bias correction of one step less.
 *
 * All of it once more with parameter groups, whose settings the definition has from the names.
 *
 * Gradients in bf16 (grad_dtype): see of_micro_batches(). The step that follows is AdamW's, whose
 * definition has the gradients so rounded.
 *
 * Layouts: three steps; losses agree with one rank within 1e-4, norms of gradients, which follow
 * the steps, within 1e-3.
 */
#include "base/base.h"
#include "trainer/step.h"

#include <assert.h>
#include <math.h>

enum { STEPS = 3, SKIPPED = 2, MAX_SIDE = 64 };

static const struct tr_optim hyper = {.schedule = {.lr = 1e-2, .min_lr = 1e-3, .decay_steps = 8},
                                      .weight_decay = 0.1,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .sgd_momentum = 0.9,
                                      .muon_momentum = 0.95,
                                      .clip = 1.0};

/* What expected() knows of them, it has by itself. The third has twice the run's schedule. */
static const char groups_text[] =
    "[{'match':'*embed_tokens*','lr_mult':0.5,'wd_mult':2},{'match':'*norm*','wd_mult':1},"
    "{'match':'model.layers.[13].*','lr':2e-2,'min_lr':2e-3,'weight_decay':0.3},"
    "{'match':'*.mlp.*','lr_mult':0.25},{'match':'*[ko]_proj.weight','wd_mult':0}]";

#define TINY "'layers':4,'hidden':32,'heads':4,'kv_heads':4,'vocab':61,'seq':16,'ffn':48"

static const char *const models[] = {
    "{'name':'gpt2'," TINY ",'tied':true,'mlp':'gelu-tanh','norm':'layernorm',"
    "'positions':'learned'}",
    "{'name':'moe'," TINY ",'moe':{'experts':4,'top_k':2,'expert_ffn':24,'shared_ffn':16,"
    "'aux_loss_coef':0.02}}",
    "{'name':'latent'," TINY ",'mla':{'q_lora_rank':12,'kv_lora_rank':10,'qk_nope_head_dim':6,"
    "'qk_rope_head_dim':4,'v_head_dim':7}}",
    "{'name':'biases'," TINY ",'mlp_bias':true,'moe':{'experts':4,'top_k':2,'expert_ffn':24}}",
};

/* Of each model, on four ranks or two. */
static const char *const layouts[][14] = {
    {"{'tp':2,'dp':2}", "{'tp':4,'dp':1}", "{'pp':2,'tp':2,'dp':1}", "{'dp':4,'zero':1}",
     "{'dp':4,'zero':2}", "{'dp':4,'zero':3}", "{'dp':4,'zero':3,'shard':2}",
     "{'cp':2,'tp':2,'dp':1,'zero':1}",
     "{'tp':2,'dp':2,'zero':3,'overlap_param_gather':1,'overlap_grad_reduce':1}",
     "{'pp':2,'dp':2,'zero':1,'overlap_param_gather':1}", "{'dp':2,'zero':2}", NULL},
    {"{'ep':4,'dp':4,'zero':1}", "{'ep':2,'dp':4,'zero':3}", "{'ep':2,'tp':2,'sp':1,'dp':2}",
     "{'ep':2,'tp':2,'etp':2,'sp':1,'dp':2,'zero':1}",
     "{'ep':1,'tp':2,'etp':2,'sp':1,'dp':2,"
     "'zero':2}",
     "{'ep':4,'tp':2,'etp':1,'sp':1,'dp':2,'zero':3}", "{'pp':2,'ep':2,'dp':2,'zero':1}",
     "{'ep':2,'dp':4,'zero':1,'zero_scope':'plain'}", NULL},
    {"{'tp':2,'dp':2,'zero':3}", "{'tp':4,'sp':1,'dp':1}", "{'pp':2,'tp':2,'sp':1,'dp':1}",
     "{'dp':4,'zero':2}", "{'cp':2,'tp':2,'dp':1,'zero':1}", NULL},
    {"{'ep':2,'dp':4,'zero':3}", "{'ep':2,'tp':2,'etp':1,'sp':1,'dp':2,'zero':1}", NULL},
};

static int world_rank, world_size, number;
static bool failed;

static void die(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", world_rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void ok(bool good, const char *what, double most)
{
    failed |= !good;
    if (world_rank == 0)
        printf("%sok %d - %s: %.2e\n", good ? "" : "not ", ++number, what, most);
    fflush(stdout);
}

static json_t *quoted(const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text);
    json_error_t error;
    json_t *v;

    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    v = json_loads(copy, 0, &error);
    if (!v)
        die(error.text);
    return v;
}

struct job {
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_workload workload;
};

static void job_of(struct job *ret, const char *model)
{
    AUTO_JSON *v = quoted(model);
    struct err e = {0};

    *ret = (struct job){.workload = {.global_batch = 4, .data = "synthetic"}};
    if (pl_model_parse(&ret->model, v, &e) < 0 ||
        pl_cluster_parse(&ret->cluster, NULL, NULL, &e) < 0)
        die(e.text);
    ret->cluster.oversubscribe = true;
    ret->workload.seq = ret->model.seq;
}

static void put_sample_of(struct tr_rank *r, int mb, int k, uint64_t s)
{
    for (int i = 0; i <= r->workload.seq; i++)
        r->work.sample[i] =
            (int32_t)((rng_mix(s * 31 + (uint64_t)i / 3) + (uint64_t)i) % (uint64_t)r->model.vocab);
    tr_sample_put(r, mb, k, r->work.sample);
}

static void put_samples(struct tr_rank *r, int step)
{
    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++)
            put_sample_of(r, mb, k, (uint64_t)step * 4 + tr_sample_index(r, mb, k));
}

static void begin(struct tr_rank *r, struct job *job, const struct pl_layout *layout,
                  const struct tr_param_groups *groups, MPI_Comm comm)
{
    enum pl_mem_class cls;
    double asked;
    struct err e = {0};

    if (tr_rank_init(&cls, &asked, r, comm, &job->model, layout, &job->workload, UINT64_MAX, die,
                     &e) < 0)
        die(e.text);
    tr_params_init(&r->params, &job->model, 7);
    if (groups)
        tr_optim_group(r, groups);
}

/* ---- the definitions ----------------------------------------------------- */

/* out = X X^T, (rows, rows), or out = L X with square L. */
static void times_transposed(double *out, const double *x, int rows, int cols)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++) {
            double sum = 0;

            for (int k = 0; k < cols; k++)
                sum += x[i * cols + k] * x[j * cols + k];
            out[i * rows + j] = sum;
        }
}

static void times(double *out, const double *l, const double *x, int rows, int cols)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            double sum = 0;

            for (int k = 0; k < rows; k++)
                sum += l[i * rows + k] * x[k * cols + j];
            out[i * cols + j] = sum;
        }
}

/* Jordan's zeropower_via_newtonschulz5, in double. */
static void orthogonalize(double *u, int rows, int cols)
{
    static double x[MAX_SIDE * MAX_SIDE], y[MAX_SIDE * MAX_SIDE], a[MAX_SIDE * MAX_SIDE],
        b[MAX_SIDE * MAX_SIDE];
    bool turn = rows > cols;
    int m = turn ? cols : rows, n = turn ? rows : cols;
    double norm = 0;

    for (int i = 0; i < rows * cols; i++)
        norm += u[i] * u[i];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            x[i * n + j] = u[turn ? j * cols + i : i * cols + j] / (sqrt(norm) + 1e-7);
    for (int s = 0; s < 5; s++) {
        times_transposed(a, x, m, n);
        times(b, a, a, m, m);
        for (int i = 0; i < m * m; i++)
            b[i] = -4.7750 * a[i] + 2.0315 * b[i];
        times(y, b, x, m, n);
        for (int i = 0; i < m * n; i++)
            x[i] = 3.4445 * x[i] + y[i];
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            u[turn ? j * cols + i : i * cols + j] = x[i * n + j];
}

struct state {
    double *w, *m, *v; /* of one tensor; w: before and after the step */
};

static double size_of(const double *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* u = AdamW's or LAMB's direction without weight decay. */
static void adam(double *u, struct state *s, const double *g, uint64_t n, int step)
{
    for (uint64_t i = 0; i < n; i++) {
        s->m[i] = 0.9 * s->m[i] + 0.1 * g[i];
        s->v[i] = 0.95 * s->v[i] + 0.05 * g[i] * g[i];
        u[i] = s->m[i] / (1 - pow(0.9, step)) / (sqrt(s->v[i] / (1 - pow(0.95, step))) + 1e-8);
    }
}

/* Learning rate and weight decay of a tensor. */
struct settings {
    double lr, wd;
};

static struct settings expected(const struct pl_param *p, int step, bool grouped)
{
    struct settings s = {tr_lr_at(&hyper.schedule, step), p->decay ? 0.1 : 0};
    const char *name = p->name;

    if (!grouped)
        return s;
    if (strstr(name, "embed_tokens"))
        return (struct settings){s.lr / 2, 0.2};
    if (strstr(name, "norm"))
        return (struct settings){s.lr, 0.1};
    if (p->layer == 1 || p->layer == 3)
        return (struct settings){2 * s.lr, 0.3};
    if (strstr(name, ".mlp."))
        return (struct settings){s.lr / 4, s.wd};
    if (strstr(name, "k_proj.weight") || strstr(name, "o_proj.weight"))
        s.wd = 0;
    return s;
}

/* One step of tensor P; returns the bound of a weight's error beyond that of its own rounding. */
static double define(struct state *s, double *u, const double *g, const struct pl_param *p,
                     enum pl_optimizer optimizer, struct settings settings, int step)
{
    uint64_t n = p->shape[0] * p->shape[1];
    double lr = settings.lr, wd = settings.wd, rate = lr, keep = 1, unit = 0x1p-24;
    bool muon = optimizer == PL_MUON && pl_tensor_is_hidden(p->tensor);

    if (muon || optimizer == PL_SGD) {
        for (uint64_t i = 0; i < n; i++) {
            double gi = g[i] + (muon ? 0 : wd * s->w[i]);

            s->m[i] = (muon ? 0.95 : 0.9) * s->m[i] + gi;
            u[i] = muon ? gi + 0.95 * s->m[i] : s->m[i];
        }
    } else {
        adam(u, s, g, n, step);
    }
    if (muon) {
        uint64_t side = p->shape[0] < p->shape[1] ? p->shape[0] : p->shape[1];

        orthogonalize(u, (int)p->shape[0], (int)p->shape[1]);
        rate = lr * 0.2 * sqrt((double)(p->shape[0] + p->shape[1] - side));
        unit *= pow(3.4445, 5) * 5 * (double)(side + 4);
    } else {
        unit *= 64;
    }
    if (optimizer == PL_MUON || optimizer == PL_ADAMW)
        keep = 1 - lr * wd;
    for (uint64_t i = 0; optimizer == PL_LAMB && i < n; i++)
        u[i] += wd * s->w[i];
    if (optimizer == PL_LAMB && p->decay)
        rate *= size_of(s->w, n) / size_of(u, n);
    for (uint64_t i = 0; i < n; i++)
        s->w[i] = keep * s->w[i] - rate * u[i];
    return rate * unit;
}

/* The number of STEP among those that have an update, if it has one. */
static int updates(int step)
{
    return step - (step > SKIPPED);
}

/* Largest error of the tensors of a step, in bounds. */
static double compare(struct tr_rank *r, struct state *state, double *g, double *u, double scale,
                      int step, bool after)
{
    enum pl_optimizer optimizer = r->workload.optimizer;
    double worst = 0;

    for (int i = 0; i < r->params.table.n; i++) {
        const struct pl_param *p = &r->params.table.p[i];
        const float *w = tr_param_weight(&r->params, i), *grad = tr_param_grad(&r->params, i);
        uint64_t n = p->count;
        double bound;

        if (!after) { /* what the trainer has, and the step to expect */
            for (uint64_t k = 0; k < n; k++) {
                state[i].w[k] = (double)w[k];
                g[k] = (double)grad[k] * scale;
            }
            bound = step == SKIPPED ? 0
                                    : define(&state[i], u, g, p, optimizer,
                                             expected(p, step, r->params.group), updates(step));
            state[i].w[n] = bound;
            continue;
        }
        for (uint64_t k = 0; k < n; k++) {
            double want = state[i].w[k];

            worst =
                fmax(worst, fabs((double)w[k] - want) / (state[i].w[n] + 4 * 0x1p-24 * fabs(want)));
        }
    }
    return worst;
}

static void against_definition(struct job *job, const struct tr_param_groups *groups)
{
    struct pl_layout one;
    struct tr_rank r;
    struct state *state;
    double *g = mem_alloc(sizeof(*g) * 1 << 16), *u = mem_alloc(sizeof(*u) * 1 << 16), worst = 0;
    AUTO_FREE char *name =
        mem_printf("%s %s%s, in bounds", job->model.name,
                   pl_optimizer_names[job->workload.optimizer], groups ? " in groups" : "");

    pl_layout_replicas(&one, 1);
    begin(&r, job, &one, groups, MPI_COMM_SELF);
    state = mem_alloc(sizeof(*state) * (size_t)r.params.table.n);
    for (int i = 0; i < r.params.table.n; i++) {
        size_t bytes = sizeof(double) * (r.params.table.p[i].count + 1);

        state[i] = (struct state){mem_alloc(bytes), mem_alloc(bytes), mem_alloc(bytes)};
    }
    for (int step = 1; step <= STEPS + 1; step++) {
        struct tr_optim optim = hyper;
        struct tr_result t;

        put_samples(&r, step);
        tr_step_grads(&t, &r, 0);
        compare(&r, state, g, u, t.norm > 1 ? 1 / t.norm : 1, step, false);
        optim.skipped = step - updates(step);
        optim.groups = groups;
        if (step == SKIPPED)
            tr_optim_skip(&r);
        else
            tr_optim_step(&r, &optim, step, t.norm);
        worst = fmax(worst, compare(&r, state, g, u, 1, step, true));
    }
    ok(worst <= 1, name, worst);
    for (int i = 0; i < r.params.table.n; i++) {
        free(state[i].w);
        free(state[i].m);
        free(state[i].v);
    }
    free(state);
    free(g);
    free(u);
    tr_rank_done(&r);
}

/* ---- gradients in bf16 ---------------------------------------------------- */

enum { MICRO_BATCHES = 4, MOST = 1 << 18 };

/* Without what a micro-batch adds to a gradient in two products; one embedding is longer than a
 * piece of adamw_of_bf16(). */
static const char *const half_models[] = {
    "{'name':'gpt2'," TINY ",'mlp':'gelu-tanh','norm':'layernorm','positions':'learned'}",
    "{'name':'moe'," TINY ",'qk_norm':'head','moe':{'experts':4,'top_k':2,'expert_ffn':24,"
    "'shared_ffn':16,'shared_gate':true,'aux_loss_coef':0}}",
    "{'name':'latent'," TINY ",'mla':{'q_lora_rank':12,'kv_lora_rank':10,'qk_nope_head_dim':6,"
    "'qk_rope_head_dim':4,'v_head_dim':7}}",
    "{'name':'wide','layers':1,'hidden':32,'heads':4,'kv_heads':4,'vocab':2100,'seq':16,'ffn':48}",
};

static double nearest_bf16(double x)
{
    int e;

    frexp(x, &e);
    return ldexp(nearbyint(ldexp(x, 8 - e)), e - 8);
}

static double bf16_at(const void *array, uint64_t i)
{
    uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* RET, element after element of the table: the gradient of micro-batch I alone, which is that of a
 * batch of one over MICRO_BATCHES: a power of two, so that every rounding is the same. */
static void alone(double *ret, const struct job *job, int i)
{
    struct job one = *job;
    struct pl_layout layout;
    struct tr_result t;
    struct tr_rank r;

    one.workload.global_batch = 1;
    pl_layout_replicas(&layout, 1);
    layout.precision = PL_BF16;
    begin(&r, &one, &layout, NULL, MPI_COMM_SELF);
    put_sample_of(&r, 0, 0, 4 + (uint64_t)i);
    tr_step_grads(&t, &r, 0);
    for (int p = 0; p < r.params.table.n; p++) {
        const float *grad = tr_param_grad(&r.params, p);

        for (uint64_t k = 0; k < r.params.table.p[p].count; k++)
            *ret++ = (double)grad[k] / MICRO_BATCHES;
    }
    tr_rank_done(&r);
}

/*
 * What R has, against sums S_i = round(S_(i-1) + g_i) with the gradients EACH of micro-batches
 * alone. With u = 2^-8 of bf16, v = 2^-24 and at most N = 64 rows to a product, an element's error
 * is below N v times the sums of |g_i|, as products are summed in fp32, and where that turns one of
 * the roundings 2 u |S_i| more for each. Seldom: N v is 1/1000 of u; so of the elements 1 in 50, at
 * most, may differ. Returns the largest error in bounds; RET_OTHER: the share that differs.
 */
static double of_micro_batches(double *ret_other, struct tr_rank *r, double *each[MICRO_BATCHES])
{
    double worst = 0, other = 0, all = 0;
    size_t at = 0;

    for (int p = 0; p < r->params.table.n; p++) {
        const void *grad = tr_param_grad(&r->params, p);

        for (uint64_t k = 0; k < r->params.table.p[p].count; k++, at++) {
            double sum = 0, bound = 0x1p-126, got = bf16_at(grad, k);

            for (int i = 0; i < MICRO_BATCHES; i++) {
                sum = nearest_bf16(sum + each[i][at]);
                bound += 64 * 0x1p-24 * fabs(each[i][at]) + 2 * 0x1p-8 * fabs(sum);
            }
            worst = fmax(worst, fabs(got - sum) / bound);
            other += fabs(got - sum) > 0;
            all++;
        }
    }
    *ret_other = other / all;
    return worst;
}

/* AdamW's first step with these gradients, in bounds. */
static double half_step(struct tr_rank *r, double norm)
{
    AUTO_FREE double *w = mem_alloc(sizeof(*w) * MOST * 5);
    double *m = w + MOST, *v = m + MOST, *g = v + MOST, *u = g + MOST, worst = 0,
           scale = norm > 1 ? 1 / norm : 1;
    AUTO_FREE float *before = mem_alloc(sizeof(*before) * r->params.table.state_count);
    AUTO_FREE uint8_t *grads = mem_alloc(2 * r->params.table.grad.count);

    memcpy(before, r->params.master, sizeof(*before) * r->params.table.state_count);
    memcpy(grads, r->params.grad, 2 * r->params.table.grad.count);
    tr_optim_step(r, &hyper, 1, norm);
    for (int i = 0; i < r->params.table.n; i++) {
        const struct pl_param *p = &r->params.table.p[i];
        const char *grad = tr_param_grad(&r->params, i);
        struct state s = {w, m, v};
        uint64_t first, at, n = tr_param_state(&first, &at, &r->params, i);
        double bound;

        assert(n == p->count && n < MOST);
        for (uint64_t k = 0; k < n; k++) {
            w[k] = (double)before[at + k];
            g[k] = bf16_at(grads + (grad - (char *)r->params.grad), k) * scale;
            m[k] = v[k] = 0;
        }
        bound = define(&s, u, g, p, PL_ADAMW, expected(p, 1, false), 1);
        for (uint64_t k = 0; k < n; k++)
            worst = fmax(worst, fabs((double)r->params.master[at + k] - w[k]) /
                                    (bound + 4 * 0x1p-24 * fabs(w[k])));
    }
    return worst;
}

static void half_gradients(const char *model)
{
    double *each[MICRO_BATCHES], other, worst;
    struct pl_layout layout;
    struct tr_result t;
    struct tr_rank r;
    struct job job;

    job_of(&job, model);
    job.workload.precision = PL_BF16;
    pl_layout_replicas(&layout, 1);
    layout.precision = PL_BF16;
    layout.grad_dtype = PL_GRADS_BF16;
    for (int i = 0; i < MICRO_BATCHES; i++) {
        each[i] = mem_alloc(sizeof(double) * MOST);
        alone(each[i], &job, i);
    }
    begin(&r, &job, &layout, NULL, MPI_COMM_SELF);
    put_samples(&r, 1);
    tr_step_grads(&t, &r, 0);
    worst = of_micro_batches(&other, &r, each);
    ok(worst <= 1 && other < 0.02, "gradients in bf16 are sums over micro-batches, in bounds",
       worst);
    if (world_rank == 0)
        printf("# %s: %.1e of the elements differ\n", job.model.name, other);
    worst = half_step(&r, t.norm);
    ok(worst <= 1, "and AdamW's step has them, in bounds", worst);
    for (int i = 0; i < MICRO_BATCHES; i++)
        free(each[i]);
    tr_rank_done(&r);
}

/* ---- layouts ------------------------------------------------------------- */

static void train(double *ret, struct pl_memory *ret_used, struct job *job,
                  const struct pl_layout *layout, const struct tr_param_groups *groups,
                  MPI_Comm comm)
{
    struct tr_optim optim = hyper;
    struct tr_rank r;

    optim.groups = groups;
    begin(&r, job, layout, groups, comm);
    for (int step = 1; step <= STEPS; step++) {
        struct tr_result t;

        put_samples(&r, step);
        tr_step_grads(&t, &r, 0);
        tr_optim_step(&r, &optim, step, t.norm);
        ret[2 * step - 2] = t.loss;
        ret[2 * step - 1] = t.norm / 10; /* compared a tenth as closely */
    }
    tr_optim_settle(&r);
    *ret_used = r.device.used;
    tr_rank_done(&r);
}

/* Bytes of one rank's moments: no second for SGD, none of hidden matrices for Muon. */
static void moments(const struct job *job, const struct pl_memory *used)
{
    struct pl_params all;
    struct pl_layout one;
    uint64_t first = 0, second = 0;
    AUTO_FREE char *name = mem_printf("%s %s: bytes of moments of each parameter", job->model.name,
                                      pl_optimizer_names[job->workload.optimizer]);
    double want;

    pl_layout_replicas(&one, 1);
    pl_params_build(&all, &job->model, &one, 0);
    for (int i = 0; i < all.n; i++) {
        bool hidden = job->workload.optimizer == PL_MUON && pl_tensor_is_hidden(all.p[i].tensor);

        first += all.p[i].count;
        second += hidden || job->workload.optimizer == PL_SGD ? 0 : all.p[i].count;
    }
    want =
        4.0 * (double)(first + second); /* and at most 64 bytes a bucket and moment, rounded up */
    ok(used->bytes[PL_MEM_OPTIMIZER] >= want &&
           used->bytes[PL_MEM_OPTIMIZER] < want + 128.0 * (all.nbuckets + 1),
       name, used->bytes[PL_MEM_OPTIMIZER] / (double)first);
    pl_params_done(&all);
}

static double distance(const double *a, const double *b)
{
    double most = 0;

    for (int i = 0; i < 2 * STEPS; i++) {
        double d = fabs(a[i] - b[i]) / (i % 2 ? 10 * fabs(b[i]) : fabs(b[i]));

        if (!(d < INFINITY))
            return INFINITY;
        most = fmax(most, d);
    }
    return most;
}

static void one_layout(struct job *job, const char *text, const struct tr_param_groups *groups,
                       const double *want)
{
    AUTO_JSON *v = quoted(text);
    struct pl_problem problem = {&job->model, &job->cluster, &job->workload,
                                 pl_trainer_find("partune")};
    AUTO_FREE char *name =
        mem_printf("%s %s%s %s as one rank", job->model.name,
                   pl_optimizer_names[job->workload.optimizer], groups ? " in groups" : "", text);
    AUTO_FREE char *memory = mem_printf("%s: planned bytes are handed out, difference", name);
    struct pl_memory used, planned;
    struct pl_verdict verdict;
    struct pl_layout layout;
    struct err e = {0};
    MPI_Comm comm;
    double got[2 * STEPS], most = 0, apart = 0;

    if (pl_layout_parse(&layout, v, &problem, &e) < 0)
        die(e.text);
    if (!pl_layout_check(&verdict, &problem, &layout))
        die(mem_printf("%s: %s", text, verdict.v[0].text));
    if (layout.world > world_size)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank < layout.world ? 0 : MPI_UNDEFINED, world_rank,
                   &comm);
    if (comm != MPI_COMM_NULL) {
        train(got, &used, job, &layout, groups, comm);
        most = distance(got, want);
        pl_memory_worst(&planned, &problem, &layout);
        MPI_Bcast(&used, sizeof(used), MPI_BYTE, planned.rank, comm);
        apart = fabs(used.total - planned.total) +
                fabs(used.bytes[PL_MEM_OPTIMIZER] - planned.bytes[PL_MEM_OPTIMIZER]);
        MPI_Comm_free(&comm);
    }
    ok(most < 1e-4, name, most);
    ok(apart == 0, memory, apart);
}

static void groups_of(struct tr_param_groups *ret)
{
    AUTO_JSON *v = quoted(groups_text);
    struct err e = {0};

    if (tr_param_groups_parse(ret, v, &hyper.schedule, &e) < 0)
        die(e.text);
}

/* With GROUPS, or NULL. */
static void one_optimizer(struct job *job, const char *const *layout,
                          const struct tr_param_groups *groups)
{
    struct pl_layout one;
    double want[2 * STEPS];
    struct pl_memory used;

    against_definition(job, groups);
    pl_layout_replicas(&one, 1);
    train(want, &used, job, &one, groups, MPI_COMM_SELF);
    if (!groups)
        moments(job, &used);
    if (!groups && job->workload.optimizer == PL_ADAMW) /* parity.c has its layouts */
        return;
    for (int i = 0; layout[i]; i++)
        one_layout(job, layout[i], groups, want);
}

/* optimizers [number of an optimizer [of a model]]: all without. */
int main(int argc, char **argv)
{
    int only = argc > 1 ? (int)strtol(argv[1], NULL, 10) : -1;
    int model = argc > 2 ? (int)strtol(argv[2], NULL, 10) : -1;
    struct tr_param_groups groups;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    groups_of(&groups);
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct job job;

        job_of(&job, models[m]);
        for (int o = PL_ADAMW; o < PL_OPTIMIZERS; o++) {
            if ((only >= 0 && o != only) || (model >= 0 && (int)m != model))
                continue;
            job.workload.optimizer = (enum pl_optimizer)o;
            one_optimizer(&job, layouts[m], NULL);
            one_optimizer(&job, layouts[m], &groups);
        }
    }
    for (size_t m = 0; m < ARRAY_LEN(half_models) && only <= PL_ADAMW && model < 0; m++)
        half_gradients(half_models[m]);
    if (world_rank == 0)
        printf("1..%d\n", number);
    MPI_Finalize();
    return failed;
}
