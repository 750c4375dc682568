/*
 * Seconds of an iteration in closed form. docs/explanation/cost-model.md explains the terms.
 *
 * What depends on the shape of the work alone (times of a layer, of embedding and head) is kept in
 * a direct-mapped table over (tp, sp, cp, ep, etp, micro_batch, recompute, precision, threads,
 * ...): a space of 10^6 layouts holds a few thousand such shapes, and the rest of a layout costs
 * tens of operations. Most of those go into the stages of the pipeline, on which zero and the
 * overlap flags of the optimizer and of messages have no bearing: neighbours of a walk share them.
 */
#include "plan/cost.h"
#include "plan/memory.h"

#include <math.h>

#include "base/base.h"

const char *const pl_cost_class_names[PL_COST_CLASSES + 1] = {
    "forward", "backward", "recompute", "tp",        "cp",    "ep",
    "pp",      "bubble",   "dp",        "optimizer", "other", NULL};

enum { SHAPES = 4096 };

/* Tensors of a layer that a trainer without layer-wise gathering fetches one by one: weights and
 * biases. */
enum { LAYER_TENSORS = 12 };

struct shape {
    int tp, sp, cp, ep, etp, micro_batch, recompute, precision, threads, overlap_moe, crowd;
};

struct shape_time {
    struct shape key;
    bool full;
    struct pl_rates rates;
    struct pl_layer_time dense, moe;
    struct pl_ends_time ends;
};

struct stage {
    double fwd, bwd, weight, re, tp, cp, ep; /* of one micro-batch; weight is part of bwd */
    double total;
    double dense_params, expert_params;
    int layers;
};

/* All stages as sums: the slowest, and the whole. Equal stages in the middle are looked at once. */
struct pipeline {
    struct stage slow; /* the slowest stage, which sets the pace */
    int slow_stage;
    double later, later_stages; /* totals of the stages after it, and how many */
    double last;                /* total of the last stage */
    double others;              /* total of one micro-batch over all other stages */
    double others_split; /* the same of forward + backward - 2 x weight gradient: zero-bubble's idle
                            time */
};

/* What a layout shares with those that differ from it in zero, zero_scope, overlap_grad_reduce,
 * overlap_param_gather and overlap_p2p. */
struct body {
    bool full;
    struct pl_layout key;
    struct pl_rates rates;
    struct pipeline q;
    struct pl_held held;
    double message_s;
};

/* By recompute, overlap_moe_a2a and precision, which take turns in a walk. */
enum { BODIES = (PL_RECOMPUTE_FULL + 1) * 2 * (PL_FP8 + 1) };

struct pl_cost_ctx {
    struct pl_op_ctx op;
    bool any_dense, any_moe;
    int *moe_before; /* MoE layers among the first i */
    struct shape_time table[SHAPES];
    struct body body[BODIES];
};

struct pl_cost_ctx *pl_cost_ctx_new(const struct pl_problem *p,
                                    const struct pl_constants *constants)
{
    struct pl_cost_ctx *x = mem_alloc(sizeof(*x));
    int n = p->model->layers;

    x->op.k = constants ? constants : &pl_default_constants;
    x->op.m = p->model;
    x->op.c = p->cluster;
    x->op.w = p->workload;
    x->op.t = p->trainer;
    x->moe_before = mem_alloc(((size_t)n + 1) * sizeof(*x->moe_before));
    for (int i = 0; i < n; i++)
        x->moe_before[i + 1] = x->moe_before[i] + pl_layer_is_moe(p->model, i);
    x->any_moe = x->moe_before[n] > 0;
    x->any_dense = x->moe_before[n] < n;
    return x;
}

struct pl_cost_ctx *pl_cost_ctx_free(struct pl_cost_ctx *x)
{
    if (x)
        free(x->moe_before);
    free(x);
    return NULL;
}

static double max(double a, double b)
{
    return a > b ? a : b;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Ranks that want a core, in percent of the cores; 100 where they fit, and on devices of their own.
 */
static int crowd_of(const struct pl_cluster *c, const struct pl_layout *l)
{
    int64_t busy = (int64_t)l->world * l->threads, cores = pl_cluster_devices(c);

    return c->device.cpu && busy > cores ? (int)(busy * 100 / cores) : 100;
}

static uint64_t hash_of(const struct shape *k)
{
    const int *v = &k->tp;
    uint64_t h = 0;

    for (size_t i = 0; i < sizeof(*k) / sizeof(int); i++)
        h = (h ^ (uint64_t)(unsigned)v[i]) * 0x9e3779b97f4a7c15U;
    return h >> 40;
}

static const struct shape_time *shape_of(struct pl_cost_ctx *x, const struct pl_layout *l)
{
    /* A group that waits while its members share cores pays turns of the scheduler: 17 us for two
     * ranks a core, 0.8 ms for four (an 8-byte all-reduce with yielding waits, measured). */
    static const double TWO_A_CORE_S = 17e-6, GROWTH = 5.5;
    struct shape key = {l->tp,
                        l->sp,
                        l->cp,
                        l->ep,
                        l->etp,
                        l->micro_batch,
                        l->recompute,
                        l->precision,
                        l->threads,
                        l->overlap_moe_a2a,
                        crowd_of(x->op.c, l)};
    struct shape_time *s = &x->table[hash_of(&key) % SHAPES];

    if (s->full && !memcmp(&s->key, &key, sizeof(key))) {
        x->op.r = s->rates;
        return s;
    }
    *s = (struct shape_time){.key = key, .full = true};
    pl_rates_of(&x->op.r, x->op.k, x->op.c, x->op.t, l->precision, l->threads);
    if (key.crowd > 100)
        x->op.r.collective_s = TWO_A_CORE_S * pow(key.crowd / 200.0, GROWTH);
    s->rates = x->op.r;
    if (x->any_dense)
        pl_layer_time_of(&s->dense, &x->op, l, false);
    if (x->any_moe)
        pl_layer_time_of(&s->moe, &x->op, l, true);
    pl_ends_time_of(&s->ends, &x->op, l);
    return s;
}

/* ---- a stage --------------------------------------------------------------------------------- */

static void add_layers(struct stage *s, const struct pl_layer_time *y, double n)
{
    s->fwd += n * y->fwd;
    s->bwd += n * (y->bwd_input + y->bwd_weight);
    s->weight += n * y->bwd_weight;
    s->re += n * y->re;
    s->tp += n * (y->tp_fwd + y->tp_bwd + y->tp_re);
    s->cp += n * (y->cp_fwd + y->cp_bwd + y->cp_re);
    s->ep += n * (y->ep_fwd + y->ep_bwd + y->ep_re);
}

static void add_ends(struct stage *s, const struct shape_time *y, bool first, bool last)
{
    if (first) {
        s->fwd += y->ends.embed_fwd;
        s->bwd += y->ends.embed_bwd;
    }
    if (last) {
        s->fwd += y->ends.head_fwd;
        s->bwd += y->ends.head_bwd;
        s->tp += y->ends.tp_head;
    }
}

static void stage_of(struct stage *s, struct pl_cost_ctx *x, const struct shape_time *y,
                     const struct pl_layout *l, int stage)
{
    struct pl_layer_count n = pl_stage_count(x->op.m, l, stage);

    *s = (struct stage){.layers = n.dense + n.moe};
    if (n.dense)
        add_layers(s, &y->dense, n.dense);
    if (n.moe)
        add_layers(s, &y->moe, n.moe);
    add_ends(s, y, stage == 0, stage == l->pp - 1);
    s->total = s->fwd + s->bwd + s->re + s->tp + s->cp + s->ep;
}

static double split_of(const struct stage *s)
{
    return s->total - 2 * s->weight;
}

static void pipeline_of(struct pipeline *q, struct pl_cost_ctx *x, const struct shape_time *y,
                        const struct pl_layout *l)
{
    bool even = x->op.m->layers % (l->pp * l->vp) == 0 && !(x->any_moe && x->any_dense);
    double total = 0, split = 0;

    for (int s = 0; s < l->pp; s++) {
        struct stage one;
        int times = 1;

        stage_of(&one, x, y, l, s);
        if (even && s == 1 && l->pp > 3) { /* all between the ends are alike */
            times = l->pp - 2;
            s = l->pp - 2;
        }
        total += times * one.total;
        split += times * split_of(&one);
        q->later += times * one.total;
        q->later_stages += times;
        q->last = one.total;
        if (one.total > q->slow.total) {
            q->slow = one;
            q->slow_stage = s;
            q->later = q->later_stages = 0;
        }
    }
    q->others = total - q->slow.total;
    q->others_split = split - split_of(&q->slow);
    if (q->others_split < 0)
        q->others_split = 0;
}

/* ---- data parallel --------------------------------------------------------------------------- */

/* A collective that runs beside COMPUTE seconds of work: what shows. */
static double exposed(const struct pl_cost_ctx *x, bool overlapped, double comm, double compute)
{
    double hidden = comm < compute ? comm : compute;

    return overlapped ? comm - x->op.k->hidden * hidden : comm;
}

struct sync {
    struct pl_group dense, expert;
    double dense_bytes, expert_bytes; /* parameters of this rank */
};

static double both(const struct sync *s, double (*f)(const struct pl_group *, double), double each)
{
    double t = s->dense.size > 1 ? f(&s->dense, s->dense_bytes * each) : 0;

    return t +
           (s->expert_bytes > 0 && s->expert.size > 1 ? f(&s->expert, s->expert_bytes * each) : 0);
}

/* zero 3: every micro-batch gathers the weights for each pass and scatters the gradients. */
static double sharded_weights(const struct pl_cost_ctx *x, const struct sync *s,
                              const struct pl_layout *l, const struct stage *y, double micro,
                              double grad)
{
    double pieces = x->op.t->tensor_gather ? LAYER_TENSORS : 1;
    double gather = both(s, pl_gather_s, x->op.r.element), scatter = both(s, pl_gather_s, grad);
    double latency = both(s, pl_gather_s, 0);
    double each = (y->layers * pieces - 1) * latency; /* as many collectives as pieces */
    double fwd = gather + each, bwd = gather + scatter + 2 * each;

    if (x->op.t->tensor_gather &&
        y->re > 0) /* released after use, gathered again for the second forward pass */
        bwd += fwd;

    return micro * (exposed(x, l->overlap_param_gather, fwd, y->fwd + y->tp + y->ep) +
                    exposed(x, l->overlap_grad_reduce, bwd, y->bwd + y->re));
}

/* Passes of one micro-batch beside which gradients are reduced and weights gathered: the last and
 * the first. Interleaved, a chunk sees its last micro-batch pp steps before the next chunk does,
 * and its first likewise, so that all but the outermost chunk have pp passes. */
static double beside_of(const struct pl_layout *l, double micro)
{
    return l->schedule == PL_INTERLEAVED && l->vp > 1 ? (micro < l->pp ? micro : l->pp) : 1;
}

/* Bytes of one parameter's gradient where replicas add them up. */
static double gradient_element(const struct pl_cost_ctx *x, const struct pl_layout *l)
{
    return x->op.t->half_grads || l->precision == PL_FP32 ? x->op.r.element : 4;
}

/* The first stage and the last, which both hold a tied embedding, add up its gradient at the end of
 * a step: two ranks half the job or more apart, beside no work (docs/explanation/trainer.md). */
static double tied_embedding(const struct pl_cost_ctx *x, const struct pl_layout *l)
{
    struct pl_group pair;

    if (!x->op.m->tied || l->pp == 1)
        return 0;
    pl_group_of(&pair, x->op.k, x->op.c, &x->op.r, 2, l->world / 2);
    return pl_all_reduce_s(&pair, (double)x->op.m->vocab / l->tp * x->op.m->hidden *
                                      gradient_element(x, l));
}

static double data_parallel(const struct pl_cost_ctx *x, const struct pl_layout *l,
                            const struct stage *y, const struct pl_held *p, double micro)
{
    double grad = gradient_element(x, l);
    struct sync s = {.dense_bytes = p->dense, .expert_bytes = p->expert};
    double reduce, gather, each, beside;

    pl_group_of(&s.dense, x->op.k, x->op.c, &x->op.r, l->dp * l->cp, l->tp);
    pl_group_of(&s.expert, x->op.k, x->op.c, &x->op.r, l->edp, l->etp * l->ep);
    if (l->zero == 3 && l->pp == 1) /* under a pipeline weights stay gathered from one micro-batch
                                       to the next, as with zero 2 */
        return sharded_weights(x, &s, l, y, micro, grad);
    if (l->zero == 0)
        return exposed(x, l->overlap_grad_reduce, both(&s, pl_all_reduce_s, grad),
                       y->bwd * beside_of(l, micro));
    /* zero 2 scatters what each micro-batch adds; under a pipeline it waits for the last one */
    each = l->zero == 2 && l->pp == 1 ? micro : 1;
    beside = each > 1 ? each : beside_of(l, micro);
    reduce = both(&s, pl_gather_s, grad) * each;
    gather = both(&s, pl_gather_s, x->op.r.element);
    if (l->zero_scope ==
        PL_SCOPE_PLAIN) /* gradients meet over all replicas, weights within the smaller group */
        reduce += s.dense.size > 1 ? pl_gather_s(&s.dense, p->dense * grad) : 0;
    return exposed(x, l->overlap_grad_reduce, reduce, y->bwd * beside) +
           exposed(x, l->overlap_param_gather, gather, y->fwd * beside);
}

/* Adam reads gradient, master weight and two moments, and writes all but the gradient; the clipping
 * norm reads all gradients of the rank. */
static double optimizer(const struct pl_cost_ctx *x, const struct pl_layout *l,
                        const struct pl_held *p)
{
    double state = p->dense / pl_dense_shards(l) + p->expert / pl_expert_shards(l);
    double norm = l->zero >= 2 ? state : p->dense + p->expert;

    return (30 * state + 4 * norm) / x->op.r.memory + 10 * x->op.r.kernel_s;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static double message_s(const struct pl_cost_ctx *x, const struct pl_layout *l)
{
    struct pl_group g;
    double bytes =
        (double)x->op.w->seq / l->cp * l->micro_batch * x->op.m->hidden * x->op.r.element;
    int stride = pl_axis_stride(l, PL_PP);

    if (l->pp == 1)
        return 0;
    pl_group_of(&g, x->op.k, x->op.c, &x->op.r, 2, stride);
    /* each tp rank sends its share (SC21's scatter/gather, or sp), and gathers it inside the node
     */
    if (l->tp > 1 && !l->sp) {
        struct pl_group tp;

        pl_group_of(&tp, x->op.k, x->op.c, &x->op.r, l->tp, 1);
        return pl_send_s(&g, bytes / l->tp) + pl_gather_s(&tp, bytes);
    }
    return pl_send_s(&g, bytes / l->tp);
}

/* Seconds beyond the slowest stage's own work; pipe.c has the formulas. */
static double bubble_of(const struct pipeline *q, const struct pl_layout *l, double micro)
{
    double ours, last;

    if (l->pp == 1)
        return 0;
    if (l->schedule == PL_ZERO_BUBBLE)
        return q->others_split;
    if (l->schedule != PL_1F1B)
        return q->others / l->vp;
    ours = q->others - q->later + max(0, 2 * q->later - q->later_stages * q->slow.total);
    last = micro * (q->last - q->slow.total) + q->others + q->slow.total - q->last;
    return max(ours, last);
}

/* Ranks that share cores work in turn: nothing ends before all work is done. */
static double crowded(struct pl_cost_ctx *x, const struct pl_layout *l, const struct pipeline *q,
                      double micro, double so_far)
{
    int64_t cores = pl_cluster_devices(x->op.c), busy = (int64_t)l->world * l->threads;
    double work = micro * (q->slow.total + q->others) * (double)(l->world / l->pp) * l->threads;

    if (!x->op.c->device.cpu || busy <= cores)
        return 0;
    return work / (double)cores > so_far ? work / (double)cores - so_far : 0;
}

/* All wait for the slowest of world devices: the expected largest of so many normal deviates. */
static double slowest(const struct pl_cost_ctx *x, const struct pl_layout *l)
{
    return x->op.r.cpu ? 0 : x->op.k->jitter * sqrt(2 * log(l->world));
}

/* The machine's rates for L are in X afterwards. */
static const struct body *body_of(struct pl_cost_ctx *x, const struct pl_layout *l)
{
    struct body *b =
        &x->body[(l->recompute * 2 + l->overlap_moe_a2a) * (PL_FP8 + 1) + l->precision];
    const struct shape_time *y;
    struct pl_layout key = *l;

    key.zero = key.zero_scope = 0;
    key.overlap_grad_reduce = key.overlap_param_gather = key.overlap_p2p = 0;
    if (b->full && pl_layout_equal(&b->key, &key)) {
        x->op.r = b->rates;
        return b;
    }
    y = shape_of(x, l);
    *b = (struct body){.full = true, .key = key, .rates = x->op.r, .message_s = message_s(x, l)};
    pipeline_of(&b->q, x, y, l);
    pl_held_params(&b->held, x->op.m, l, b->q.slow_stage);
    return b;
}

void pl_cost_at(struct pl_cost *ret, struct pl_cost_ctx *x, const struct pl_layout *l)
{
    const struct body *b = body_of(x, l);
    const struct stage *slow = &b->q.slow;
    double micro = (double)x->op.w->global_batch / ((double)l->micro_batch * l->dp);
    double pace;

    *ret = (struct pl_cost){0};
    ret->seconds[PL_COST_FORWARD] = micro * slow->fwd;
    ret->seconds[PL_COST_BACKWARD] = micro * slow->bwd;
    ret->seconds[PL_COST_RECOMPUTE] = micro * slow->re;
    ret->seconds[PL_COST_TP] = micro * slow->tp;
    ret->seconds[PL_COST_CP] = micro * slow->cp;
    ret->seconds[PL_COST_EP] = micro * slow->ep;
    ret->seconds[PL_COST_PP] =
        pl_messages(l->schedule, l->pp, l->vp, micro, l->overlap_p2p) * b->message_s;
    ret->seconds[PL_COST_BUBBLE] = bubble_of(&b->q, l, micro);
    pace = micro * slow->total + ret->seconds[PL_COST_PP] + ret->seconds[PL_COST_BUBBLE];
    ret->seconds[PL_COST_OTHER] = crowded(x, l, &b->q, micro, pace) + slowest(x, l) * pace;
    ret->seconds[PL_COST_DP] = data_parallel(x, l, slow, &b->held, micro) + tied_embedding(x, l);
    ret->seconds[PL_COST_OPTIMIZER] = optimizer(x, l, &b->held);
    for (int i = 0; i < PL_COST_CLASSES; i++)
        ret->total += ret->seconds[i];
    ret->tokens_per_s = (double)x->op.w->global_batch * x->op.w->seq / ret->total;
}

void pl_cost(struct pl_cost *ret, const struct pl_model *m, const struct pl_cluster *c,
             const struct pl_layout *l, const struct pl_workload *w, const struct pl_trainer *t)
{
    const struct pl_problem p = {m, c, w, t};
    struct pl_cost_ctx *x = pl_cost_ctx_new(&p, NULL);

    pl_cost_at(ret, x, l);
    pl_cost_ctx_free(x);
}

json_t *pl_cost_json(const struct pl_cost *c)
{
    json_t *v = json_pack("{s:f s:f}", "total", c->total, "tokens_per_s", c->tokens_per_s);

    for (int i = 0; i < PL_COST_CLASSES; i++)
        json_object_set_new(v, pl_cost_class_names[i], json_real(c->seconds[i]));
    return v;
}

double pl_device_peak(const struct pl_device *d, int precision)
{
    double peak = precision == PL_FP8    ? d->tflops_fp8
                  : precision == PL_BF16 ? d->tflops_bf16
                                         : d->tflops_fp32;

    return peak > 0 ? peak : 0;
}

/* Share of the peak of L's devices that FLOPS a token at TOKENS_PER_S are; negative: unknown. */
static double share_of_peak(const struct pl_cluster *c, const struct pl_layout *l, double flops,
                            double tokens_per_s)
{
    double peak = pl_device_peak(&c->device, l->precision);

    if (peak <= 0 || l->world <= 0)
        return -1;
    return flops * tokens_per_s / (peak * 1e12 * l->world);
}

double pl_mfu(const struct pl_model *m, const struct pl_cluster *c, const struct pl_layout *l,
              const struct pl_workload *w, double tokens_per_s)
{
    return share_of_peak(c, l, pl_model_flops_per_token(m, w->seq), tokens_per_s);
}

double pl_peak_share(const struct pl_model *m, const struct pl_cluster *c,
                     const struct pl_layout *l, const struct pl_workload *w, double tokens_per_s)
{
    /* Scores and their product with the values: 2 x 2 seq heads head_dim a token forward, three
     * times that with the backward pass; half of it is masked. */
    double masked = 3 * 2.0 * w->seq * m->heads * m->head_dim * m->layers;

    return share_of_peak(c, l, pl_model_flops_per_token(m, w->seq) - masked, tokens_per_s);
}

/* ---- the same pipeline, event by event ------------------------------------------------------- */

void pl_pipe_of(struct pl_pipe *ret, struct pl_stage_time **store, struct pl_cost_ctx *x,
                const struct pl_layout *l)
{
    const struct shape_time *y = shape_of(x, l);
    struct pl_stage_time *at = mem_alloc((size_t)l->pp * (size_t)l->vp * sizeof(*at));

    for (int i = 0; i < l->pp * l->vp; i++) {
        int first, n = pl_stage_layers(l, x->op.m->layers, i % l->pp, i / l->pp, &first);
        int moe = x->moe_before[first + n] - x->moe_before[first];
        struct stage s = {0};
        double fwd = (n - moe) * (y->dense.tp_fwd + y->dense.cp_fwd + y->dense.ep_fwd) +
                     moe * (y->moe.tp_fwd + y->moe.cp_fwd + y->moe.ep_fwd);

        add_layers(&s, &y->dense, n - moe);
        add_layers(&s, &y->moe, moe);
        add_ends(&s, y, i == 0, i == l->pp * l->vp - 1);
        at[i].forward = s.fwd + fwd;
        at[i].backward = s.bwd + s.re + s.tp + s.cp + s.ep - fwd;
        at[i].weight = s.weight;
    }
    *store = at;
    *ret = (struct pl_pipe){
        .schedule = (enum pl_schedule)l->schedule,
        .pp = l->pp,
        .vp = l->vp,
        .microbatches = x->op.w->global_batch / (l->micro_batch * l->dp),
        .at = at,
        .message_s = message_s(x, l),
        .overlap = l->overlap_p2p,
    };
}
