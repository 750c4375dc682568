/*
 * Seconds of an iteration in closed form. docs/explanation/cost-model.md explains the terms.
 *
 * What depends on the shape of the work alone (times of a layer, of embedding and head) is kept in
 * a direct-mapped table over (tp, sp, cp, ep, etp, micro_batch, recompute, precision, threads,
 * ...): a space of 10^6 layouts holds a few thousand such shapes, and the rest of a layout costs
 * tens of operations. Most of those go into the stages of the pipeline, on which zero and the
 * overlap flags of the optimizer and of messages have no bearing: neighbors of a walk share them.
 */
#include "plan/cost_stage.h"
#include "plan/divide.h"
#include "plan/offload.h"
#include "plan/recompute.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

const char *const pl_cost_class_names[PL_COST_CLASSES + 1] = {
    "forward", "backward", "recompute", "tp",        "cp",    "ep",
    "pp",      "bubble",   "dp",        "optimizer", "other", NULL};

enum { SHAPES = 4096 };

struct shape {
    int tp, sp, cp, ep, etp, micro_batch, recompute, precision, threads, overlap_moe, crowd,
        cp_comm, modules, tp_overlap, dispatch, graphs;
};

struct shape_time {
    struct shape key;
    bool full;
    struct pl_rates rates;
    struct pl_layer_time dense, moe;
    struct pl_ends_time ends;
    struct pl_layer_params params[2];
};

/* What a layout shares with those that differ from it in zero, zero_scope, shard,
 * overlap_grad_reduce, overlap_param_gather, overlap_p2p and grad_dtype. */
struct body {
    bool full;
    struct pl_layout key;
    struct pl_rates rates;
    struct pl_pipeline pipeline;
    struct pl_held held;
    double message_s;
};

/* By recompute, overlap_moe_a2a and precision, which alternate in a walk. */
enum { BODIES = (PL_RECOMPUTE_FULL + 1) * 2 * PL_PRECISIONS };

struct pl_cost_ctx {
    struct pl_op_ctx op;
    bool any_dense, any_moe;
    int *moe_before; /* MoE layers among the first i */
    struct shape_time table[SHAPES];
    struct body body[BODIES];
};

struct pl_cost_ctx *pl_cost_ctx_new(const struct pl_problem *problem,
                                    const struct pl_constants *constants)
{
    struct pl_cost_ctx *ctx = mem_alloc(sizeof(*ctx));
    int n = problem->model->layers;

    assert(problem->model && problem->cluster && problem->workload && problem->trainer);
    ctx->op.constants = constants ? constants : pl_constants_of(problem->trainer);
    ctx->op.problem = *problem;
    ctx->moe_before = mem_alloc(((size_t)n + 1) * sizeof(*ctx->moe_before));
    for (int i = 0; i < n; i++)
        ctx->moe_before[i + 1] = ctx->moe_before[i] + pl_layer_is_moe(problem->model, i);
    ctx->any_moe = ctx->moe_before[n] > 0;
    ctx->any_dense = ctx->moe_before[n] < n;
    return ctx;
}

struct pl_cost_ctx *pl_cost_ctx_free(struct pl_cost_ctx *ctx)
{
    if (ctx)
        free(ctx->moe_before);
    free(ctx);
    return NULL;
}

static double max(double left, double right)
{
    return left > right ? left : right;
}

/* ---- shapes -------------------------------------------------------------- */

/* Ranks that want a core, in percent of the cores; 100 where they fit, and on devices of their own.
 */
static int crowd_of(const struct pl_cluster *cluster, const struct pl_layout *layout)
{
    int64_t busy = (int64_t)layout->world * layout->threads, cores = pl_cluster_devices(cluster);

    return cluster->device.cpu && busy > cores ? (int)(busy * 100 / cores) : 100;
}

static uint64_t hash_of(const struct shape *shape)
{
    const int *v = &shape->tp;
    uint64_t h = 0;

    for (size_t i = 0; i < sizeof(*shape) / sizeof(int); i++)
        h = (h ^ (uint64_t)(unsigned)v[i]) * 0x9e3779b97f4a7c15U;
    return h >> 40;
}

static const struct shape_time *shape_of(struct pl_cost_ctx *ctx, const struct pl_layout *layout)
{
    /* A group that waits while its members share cores pays for the scheduler: 17 us for two ranks
     * a core, 0.8 ms for four (an 8-byte all-reduce with yielding waits, measured). */
    static const double TWO_A_CORE_S = 17e-6, GROWTH = 5.5;
    struct shape key = {layout->tp,
                        layout->sp,
                        layout->cp,
                        layout->ep,
                        layout->etp,
                        layout->micro_batch,
                        layout->recompute,
                        layout->precision,
                        layout->threads,
                        layout->overlap_moe_a2a,
                        crowd_of(ctx->op.problem.cluster, layout),
                        layout->cp_comm,
                        (int)pl_recompute_modules(layout),
                        layout->tp_overlap,
                        layout->moe_dispatch,
                        layout->cuda_graphs};
    struct shape_time *s = &ctx->table[hash_of(&key) % SHAPES];

    ctx->op.rates = &s->rates;
    if (s->full && !memcmp(&s->key, &key, sizeof(key)))
        return s;
    *s = (struct shape_time){.key = key, .full = true};
    pl_rates_of(&s->rates, ctx->op.constants, &ctx->op.problem, layout->precision, layout->threads);
    if (key.crowd > 100)
        s->rates.collective_s = TWO_A_CORE_S * pow(key.crowd / 200.0, GROWTH);
    if (ctx->any_dense)
        pl_layer_time_of(&s->dense, &ctx->op, layout, false);
    if (ctx->any_moe)
        pl_layer_time_of(&s->moe, &ctx->op, layout, true);
    pl_ends_time_of(&s->ends, &ctx->op, layout);
    pl_layer_params_of(s->params, ctx->op.problem.model, layout);
    return s;
}

/* ---- a stage ------------------------------------------------------------- */

/* COUNT layers, of which AGAIN are computed again. */
static void add_layers(struct pl_stage_sum *stage, const struct pl_layer_time *layer, double count,
                       double again)
{
    stage->fwd += count * layer->fwd;
    stage->bwd += count * (layer->bwd_input + layer->bwd_weight);
    stage->weight += count * layer->bwd_weight;
    stage->forward += count * (layer->fwd + layer->tp_fwd + layer->cp_fwd + layer->ep_fwd);
    stage->re += again * layer->re;
    stage->tp += count * (layer->tp_fwd + layer->tp_bwd) + again * layer->tp_re;
    stage->cp += count * (layer->cp_fwd + layer->cp_bwd) + again * layer->cp_re;
    stage->ep += count * (layer->ep_fwd + layer->ep_bwd) + again * layer->ep_re;
}

/* What the ends of the pipeline have; then the stage is whole. */
static void add_ends(struct pl_stage_sum *stage, const struct shape_time *time, bool first,
                     bool last)
{
    if (first) {
        stage->fwd += time->ends.embed_fwd;
        stage->forward += time->ends.embed_fwd;
        stage->bwd += time->ends.embed_bwd;
    }
    if (last) {
        stage->fwd += time->ends.head_fwd;
        stage->forward += time->ends.head_fwd;
        stage->bwd += time->ends.head_bwd;
        stage->tp += time->ends.tp_head;
    }
    stage->total = stage->fwd + stage->bwd + stage->re + stage->tp + stage->cp + stage->ep;
}

/*
 * Lost in the tensor-parallel collectives of a layer where stages exchange over a network: four
 * all-reduces, or ten gathers and scatters with sp, of which two gather the inputs again. Each
 * member may be the one that all others wait for.
 */
static double paused(const struct pl_op_ctx *op, const struct pl_layout *layout)
{
    double collectives = layout->sp ? 10 : 4;

    if (op->constants->pause_us <= 0 || layout->tp == 1 || layout->pp == 1 ||
        layout->world <= pl_cluster_domain(op->problem.cluster))
        return 0;
    return collectives * layout->tp * op->constants->pause_us * 1e-6;
}

/* The layers of STAGE, without what only the ends of the pipeline have. */
static void layers_of(struct pl_stage_sum *to, struct pl_cost_ctx *ctx,
                      const struct shape_time *time, const struct pl_layout *layout, int stage)
{
    struct pl_layer_count n = pl_stage_count(ctx->op.problem.model, layout, stage);
    struct pl_layer_count again = layout->recompute_method == PL_RECOMPUTE_BLOCK
                                      ? pl_recomputed_count(ctx->op.problem.model, layout, stage)
                                      : n;

    *to = (struct pl_stage_sum){.layers = n.dense + n.moe};
    if (n.dense)
        add_layers(to, &time->dense, n.dense, again.dense);
    if (n.moe)
        add_layers(to, &time->moe, n.moe, again.moe);
    to->tp += to->layers * paused(&ctx->op, layout);
}

/* The layers [FIRST, FIRST + N). */
static void run_of(struct pl_stage_sum *to, const struct pl_cost_ctx *ctx,
                   const struct shape_time *time, const struct pl_layout *layout, int first, int n)
{
    int again =
        layout->recompute_method == PL_RECOMPUTE_BLOCK ? pl_recomputed_layers(layout, n) : n;
    int moe = ctx->moe_before[first + n] - ctx->moe_before[first],
        moe_again = ctx->moe_before[first + again] - ctx->moe_before[first];

    *to = (struct pl_stage_sum){.layers = n};
    if (n > moe)
        add_layers(to, &time->dense, n - moe, again - moe_again);
    if (moe)
        add_layers(to, &time->moe, moe, moe_again);
}

static double split_of(const struct pl_stage_sum *stage)
{
    return stage->total - 2 * stage->weight;
}

void pl_pipeline_add(struct pl_pipeline *pipeline, const struct pl_stage_sum *one, int stage,
                     int times)
{
    pipeline->others += times * one->total; /* until the end: of all stages, as are these */
    pipeline->others_split += times * split_of(one);
    pipeline->others_forward += times * one->forward;
    pipeline->others_weight += times * one->weight;
    pipeline->later += times * one->total;
    pipeline->later_stages += times;
    pipeline->last = one->total;
    if (one->total > pipeline->slow.total) {
        pipeline->slow = *one;
        pipeline->slow_stage = stage;
        pipeline->later = pipeline->later_stages = 0;
    }
}

void pl_pipeline_end(struct pl_pipeline *pipeline)
{
    const struct pl_stage_sum *slow = &pipeline->slow;

    pipeline->others -= slow->total;
    pipeline->others_forward -= slow->forward;
    pipeline->others_weight -= slow->weight;
    pipeline->others_split = max(0, pipeline->others_split - split_of(slow));
}

static void pipeline_of(struct pl_pipeline *pipeline, struct pl_cost_ctx *ctx,
                        const struct shape_time *time, const struct pl_layout *layout)
{
    bool even =
        pl_stages_equal(layout, ctx->op.problem.model->layers) && !(ctx->any_moe && ctx->any_dense);
    int ranks = pl_unlike_stages(layout);
    struct pl_stage_sum layers;

    *pipeline = (struct pl_pipeline){0};
    for (int s = 0; s < ranks; s++) {
        struct pl_stage_sum one;
        int times = 1;

        if (s == 0 || !even)
            layers_of(&layers, ctx, time, layout, s);
        one = layers;
        add_ends(&one, time, s == 0, s == pl_loss_stage(layout));
        if (even && s == 1 && ranks > 3) { /* all between the ends are alike */
            times = ranks - 2;
            s = ranks - 2;
        }
        pl_pipeline_add(pipeline, &one, s, times);
    }
    pl_pipeline_end(pipeline);
}

/* ---- one stage of a division that no layout names ------------------------ */

const struct pl_op_ctx *pl_cost_op(struct pl_cost_ctx *ctx, const struct pl_layout *layout)
{
    shape_of(ctx, layout);
    return &ctx->op;
}

void pl_cost_run(struct pl_stage_sum *ret, struct pl_cost_ctx *ctx, const struct pl_layout *layout,
                 int first, int n, bool head, bool tail)
{
    const struct shape_time *time = shape_of(ctx, layout);

    run_of(ret, ctx, time, layout, first, n);
    ret->tp += n * paused(&ctx->op, layout);
    add_ends(ret, time, head, tail);
}

void pl_cost_held(struct pl_held *ret, struct pl_cost_ctx *ctx, const struct pl_layout *layout,
                  int stage, int first, int n)
{
    int moe = ctx->moe_before[first + n] - ctx->moe_before[first];

    pl_held_params(ret, ctx->op.problem.model, layout, stage,
                   (struct pl_layer_count){.dense = n - moe, .moe = moe},
                   shape_of(ctx, layout)->params);
}

/* ---- the whole ----------------------------------------------------------- */

static bool has_v_bubble(const struct pl_layout *layout)
{
    return layout->pp > 1 && (pl_schedule_is_v(layout->schedule) || pl_is_dualpipe(layout));
}

static double v_bubble(const struct pl_pipeline *pipeline, const struct pl_layout *layout,
                       double micro, double message_s)
{
    int ranks = pl_unlike_stages(layout);
    double chunks = ranks > 1 ? 2.0 * (ranks - 1) : 1;
    struct pl_stage_time each = {pipeline->others_forward / chunks,
                                 (pipeline->others - pipeline->others_forward) / chunks,
                                 pipeline->others_weight / chunks};

    return pl_v_bubble(layout->schedule, layout->pp, micro, &each, message_s, layout->overlap_p2p);
}

/* pipe.c has the formulas. */
double pl_bubble_s(const struct pl_pipeline *pipeline, const struct pl_layout *layout, double micro)
{
    double ours, last;

    if (layout->pp == 1)
        return 0;
    if (layout->schedule == PL_ZERO_BUBBLE)
        return pipeline->others_split;
    if (has_v_bubble(layout))
        return v_bubble(pipeline, layout, micro, 0);
    if (layout->schedule != PL_1F1B)
        return pipeline->others / layout->vp;
    ours = pipeline->others - pipeline->later +
           max(0, 2 * pipeline->later - pipeline->later_stages * pipeline->slow.total);
    last = micro * (pipeline->last - pipeline->slow.total) + pipeline->others +
           pipeline->slow.total - pipeline->last;
    return max(ours, last);
}

/* Seconds of messages that the critical path waits for. */
static double messages_of(const struct body *body, const struct pl_layout *layout, double micro,
                          double bubble)
{
    if (has_v_bubble(layout))
        return v_bubble(&body->pipeline, layout, micro, body->message_s) - bubble;
    return body->message_s *
           pl_messages(layout->schedule, layout->pp, layout->vp, micro, layout->overlap_p2p);
}

/* Ranks that share cores work in turn: nothing ends before all work is done. */
static double crowded(const struct pl_op_ctx *op, const struct pl_layout *layout,
                      const struct pl_pipeline *pipeline, double micro, double so_far)
{
    int64_t cores = pl_cluster_devices(op->problem.cluster),
            busy = (int64_t)layout->world * layout->threads;
    double work = micro * (pipeline->slow.total + pipeline->others) *
                  (double)(layout->world / pl_unlike_stages(layout)) * layout->threads;

    if (!op->problem.cluster->device.cpu || busy <= cores)
        return 0;
    return work / (double)cores > so_far ? work / (double)cores - so_far : 0;
}

/* The machine's rates for LAYOUT are in CTX afterwards. */
static const struct body *body_of(struct pl_cost_ctx *ctx, const struct pl_layout *layout)
{
    struct body *b = &ctx->body[(layout->recompute * 2 + layout->overlap_moe_a2a) * PL_PRECISIONS +
                                layout->precision];
    const struct pl_model *model = ctx->op.problem.model;
    const struct shape_time *y;
    struct pl_layout key = *layout;

    key.zero = key.zero_scope = key.shard = 0;
    key.overlap_grad_reduce = key.overlap_param_gather = key.overlap_p2p = 0;
    key.global_batch = key.grad_dtype = 0;
    if (b->full && pl_layout_equal(&b->key, &key)) {
        ctx->op.rates = &b->rates;
        return b;
    }
    y = shape_of(ctx, layout);
    b->full = true;
    b->key = key;
    b->rates = y->rates; /* whose place another shape may take */
    b->message_s = pl_message_s(&ctx->op, layout);
    pipeline_of(&b->pipeline, ctx, y, layout);
    pl_held_params(&b->held, model, layout, b->pipeline.slow_stage,
                   pl_stage_count(model, layout, b->pipeline.slow_stage), y->params);
    return b;
}

/* What waits for the host; half of the exchanges belong to each pass. */
static void offloaded(struct pl_cost *ret, const struct pl_op_ctx *op,
                      const struct pl_layout *layout, const struct body *body, double micro)
{
    const struct pl_stage_sum *slow = &body->pipeline.slow;
    double exchanged = (slow->tp + slow->cp + slow->ep) / 2;
    struct pl_offload_work work = {body->pipeline.slow_stage, pl_shard_params(layout, &body->held),
                                   micro, slow->fwd + exchanged, slow->bwd + slow->re + exchanged};

    pl_offload_seconds(ret, op, layout, &work);
}

void pl_cost_at(struct pl_cost *ret, struct pl_cost_ctx *ctx, const struct pl_layout *asked)
{
    struct pl_layout divided;
    const struct pl_layout *layout = pl_divided(&divided, &ctx->op.problem, asked);
    const struct body *b = body_of(ctx, layout);
    const struct pl_stage_sum *slow = &b->pipeline.slow;
    double batch = pl_batch(ctx->op.problem.workload, layout);
    double all = batch / ((double)layout->micro_batch * layout->dp), pace;
    double micro = all / pl_stage_copies(layout); /* that pass through each of a rank's chunks */

    *ret = (struct pl_cost){0};
    ret->seconds[PL_COST_FORWARD] = micro * slow->fwd;
    ret->seconds[PL_COST_BACKWARD] = micro * slow->bwd;
    ret->seconds[PL_COST_RECOMPUTE] = micro * slow->re;
    ret->seconds[PL_COST_TP] = micro * slow->tp;
    ret->seconds[PL_COST_CP] = micro * slow->cp;
    ret->seconds[PL_COST_EP] = micro * slow->ep;
    ret->seconds[PL_COST_BUBBLE] = pl_bubble_s(&b->pipeline, layout, all);
    ret->seconds[PL_COST_PP] = messages_of(b, layout, all, ret->seconds[PL_COST_BUBBLE]);
    pace = micro * slow->total + ret->seconds[PL_COST_PP] + ret->seconds[PL_COST_BUBBLE];
    ret->seconds[PL_COST_OTHER] = crowded(&ctx->op, layout, &b->pipeline, micro, pace) +
                                  pl_slowest_share(&ctx->op, layout) * pace +
                                  pl_stall_s(&ctx->op, layout, all);
    ret->seconds[PL_COST_DP] =
        pl_sync_s(&ctx->op, layout, slow, &b->held, micro) + pl_tied_embedding_s(&ctx->op, layout);
    ret->seconds[PL_COST_OPTIMIZER] = pl_update_s(&ctx->op, layout, &b->held);
    if (pl_offloads(layout))
        offloaded(ret, &ctx->op, layout, b, micro);
    for (int i = 0; i < PL_COST_CLASSES; i++)
        ret->total += ret->seconds[i];
    ret->tokens_per_s = batch * ctx->op.problem.workload->seq / ret->total;
}

void pl_cost(struct pl_cost *ret, const struct pl_problem *problem, const struct pl_layout *layout)
{
    struct pl_cost_ctx *ctx = pl_cost_ctx_new(problem, NULL);

    pl_cost_at(ret, ctx, layout);
    pl_cost_ctx_free(ctx);
}

json_t *pl_cost_json(const struct pl_cost *cost)
{
    json_t *v = json_pack("{s:f s:f}", "total", cost->total, "tokens_per_s", cost->tokens_per_s);

    for (int i = 0; i < PL_COST_CLASSES; i++)
        json_object_set_new(v, pl_cost_class_names[i], json_real(cost->seconds[i]));
    return v;
}

/* ---- the same pipeline, event by event ----------------------------------- */

void pl_pipe_of(struct pl_pipe *ret, struct pl_stage_time **store, struct pl_cost_ctx *ctx,
                const struct pl_layout *asked)
{
    struct pl_layout divided;
    const struct pl_layout *layout = pl_divided(&divided, &ctx->op.problem, asked);
    const struct shape_time *y = shape_of(ctx, layout);
    struct pl_stage_time *at = mem_alloc((size_t)layout->pp * (size_t)layout->vp * sizeof(*at));

    for (int i = 0; i < layout->pp * layout->vp; i++) {
        int first, n = pl_run_layers(&first, layout, ctx->op.problem.model->layers, i);
        struct pl_stage_sum s;

        run_of(&s, ctx, y, layout, first, n);
        add_ends(&s, y, i == 0, i == layout->pp * layout->vp - 1);
        at[i].forward = s.forward;
        at[i].backward = s.total - s.forward;
        at[i].weight = s.weight;
    }
    *store = at;
    *ret = (struct pl_pipe){
        .schedule = (enum pl_schedule)layout->schedule,
        .pp = layout->pp,
        .vp = layout->vp,
        .microbatches = pl_microbatches(layout, ctx->op.problem.workload),
        .at = at,
        .message_s = pl_message_s(&ctx->op, layout),
        .overlap = layout->overlap_p2p,
    };
}
