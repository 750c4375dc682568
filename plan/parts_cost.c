/*
 * Seconds and bytes of a layout whose stages lie on two kinds of devices.
 *
 * Each part is a machine of its own for all that happens inside a stage: compute, the exchanges of
 * tp, cp and ep, and those of replicas, whose ranks are all in one part (pp is the slowest axis of
 * a mesh). So a stage's time comes from the context of its part, as if the whole layout ran there,
 * and the pipeline adds up stages as elsewhere. New are three things that both parts share:
 *
 *   messages   inside a part they take that part's link, between the parts the slower of what the
 *              link between gives either. Where they block, a stage waits for the slowest; where
 *              they overlap, 1F1B waits for a chain of them (pipe.c).
 *   the end    the exchange of gradients and the optimizer of the slowest stage's part follow on
 *              its work, as elsewhere. The other part's own slowest stage may end later, for its
 *              network or its memory is slower: what it is late by for that is waiting, in the
 *              class dp.
 *   tied       embeddings meet over the link between: first and last stage are in unlike parts.
 */
#include "plan/parts_rank.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

/* A division without regard to memory, which all layouts have that differ only in what no stage's
 * time depends on. */
struct known {
    bool full;
    struct pl_layout key;
    struct pl_parts_cut cut;
};

struct pl_parts_ctx {
    struct pl_problem problem; /* of the whole */
    const struct pl_parts *parts;
    struct pl_cost_ctx *cost[PL_PARTS];
    struct pl_cluster bridge[PL_PARTS];
    double limit[PL_PARTS], largest; /* bytes that a device offers; the larger one */
    double *before[PL_PARTS];
    struct known known[PL_PARTS]; /* by the first part */
    struct pl_parts_cut tight;    /* with regard to memory */
};

struct pl_parts_ctx *pl_parts_ctx_new(const struct pl_problem *problem, double headroom)
{
    struct pl_parts_ctx *ctx = mem_alloc(sizeof(*ctx));

    assert(problem->cluster->parts);
    ctx->problem = *problem;
    ctx->parts = problem->cluster->parts;
    for (int part = 0; part < PL_PARTS; part++) {
        struct pl_problem one = *problem;

        one.cluster = &ctx->parts->at[part];
        ctx->cost[part] = pl_cost_ctx_new(&one, NULL);
        ctx->limit[part] = pl_memory_offered(one.cluster, headroom);
        ctx->largest = fmax(ctx->largest, ctx->limit[part]);
        ctx->before[part] =
            mem_alloc(((size_t)problem->model->layers + 1) * sizeof(*ctx->before[part]));
        pl_parts_bridge(&ctx->bridge[part], ctx->parts, part);
    }
    return ctx;
}

struct pl_parts_ctx *pl_parts_ctx_free(struct pl_parts_ctx *ctx)
{
    for (int part = 0; ctx && part < PL_PARTS; part++) {
        pl_cost_ctx_free(ctx->cost[part]);
        free(ctx->before[part]);
    }
    free(ctx);
    return NULL;
}

static int part_of(const struct pl_parts_cut *cut, int stage)
{
    return stage < cut->head_stages ? cut->order : 1 - cut->order;
}

/* ---- bytes --------------------------------------------------------------- */

struct sizes {
    const struct pl_parts_ctx *ctx;
    struct pl_layout layout; /* its stages are a draft */
    struct pl_memory_shared shared;
};

static double part_bytes(struct pl_memory *ret, const struct sizes *sizes, int part,
                         const int *first, int stage)
{
    struct pl_layout layout = sizes->layout;

    layout.stages = pl_stages_draft(first, layout.pp);
    pl_memory_stage(ret, &sizes->ctx->problem, &layout, stage, &sizes->shared);
    ret->scaled = ret->total * (sizes->ctx->largest / sizes->ctx->limit[part]);
    return ret->scaled;
}

static bool fits(void *arg, const struct pl_parts_cut *cut, int stage, int first, int n)
{
    const struct sizes *sizes = arg;
    int layers = sizes->ctx->problem.model->layers, draft[PL_MAX_RUNS + 1];
    struct pl_memory memory;

    for (int s = 0; s <= sizes->layout.pp; s++)
        draft[s] = s <= stage ? first : s == stage + 1 ? first + n : layers;
    return part_bytes(&memory, sizes, part_of(cut, stage), draft, stage) <= sizes->ctx->largest;
}

/* The stage that is nearest to, or most beyond, what its device offers. */
static void worst_of(struct pl_memory *ret, const struct sizes *sizes,
                     const struct pl_parts_cut *cut)
{
    int stride = pl_axis_stride(&sizes->layout, PL_PP);

    *ret = (struct pl_memory){0};
    for (int s = 0; s < sizes->layout.pp; s++) {
        struct pl_memory one;

        if (part_bytes(&one, sizes, part_of(cut, s), cut->first, s) > ret->scaled) {
            *ret = one;
            ret->rank = s * stride;
        }
    }
}

/* ---- the division -------------------------------------------------------- */

static void times_of(struct pl_parts_times *ret, struct pl_parts_ctx *ctx,
                     const struct pl_layout *layout)
{
    *ret = (struct pl_parts_times){.layers = ctx->problem.model->layers};
    for (int part = 0; part < PL_PARTS; part++) {
        struct pl_stage_sum sum;

        for (int i = 0; i <= ret->layers; i++) {
            pl_cost_run(&sum, ctx->cost[part], layout, 0, i, false, false);
            ctx->before[part][i] = sum.total;
        }
        ret->before[part] = ctx->before[part];
        pl_cost_run(&sum, ctx->cost[part], layout, 0, 0, true, false);
        ret->head[part] = sum.total;
        pl_cost_run(&sum, ctx->cost[part], layout, 0, 0, false, true);
        ret->tail[part] = sum.total;
    }
}

static void start(struct pl_parts_cut *cut, const struct pl_parts_ctx *ctx,
                  const struct pl_layout *layout, int order)
{
    cut->order = order;
    cut->head_stages = pl_parts_stages(ctx->parts, order, layout->world / layout->pp);
}

static const struct pl_parts_cut *fastest(struct pl_parts_ctx *ctx, const struct pl_layout *layout,
                                          int order)
{
    struct known *known = &ctx->known[order];
    struct pl_layout key = *layout;
    struct pl_parts_times times;

    key.zero = key.zero_scope = key.shard = 0;
    key.overlap_grad_reduce = key.overlap_param_gather = key.overlap_p2p = 0;
    key.global_batch = key.grad_dtype = 0;
    if (known->full && pl_layout_equal(&known->key, &key))
        return &known->cut;
    known->full = true;
    known->key = key;
    start(&known->cut, ctx, layout, order);
    times_of(&times, ctx, layout);
    pl_parts_divide(&known->cut, layout->pp, &times, NULL, NULL);
    return &known->cut;
}

/* The division of LAYOUT and the bytes of its worst stage; NULL: nothing fits, and the bytes are
 * those of the fastest division. */
static const struct pl_parts_cut *division(struct pl_memory *ret, struct pl_parts_ctx *ctx,
                                           const struct pl_layout *layout, int order)
{
    const struct pl_parts_cut *cut = fastest(ctx, layout, order);
    struct sizes sizes = {.ctx = ctx, .layout = *layout};
    struct pl_parts_times times;

    *ret = (struct pl_memory){.total = INFINITY, .scaled = INFINITY};
    if (!cut->possible)
        return NULL;
    pl_memory_shared_of(&sizes.shared, &ctx->problem, layout, NULL);
    worst_of(ret, &sizes, cut);
    if (ret->scaled <= ctx->largest)
        return cut;
    start(&ctx->tight, ctx, layout, order);
    times_of(&times, ctx, layout);
    pl_parts_divide(&ctx->tight, layout->pp, &times, fits, &sizes);
    if (!ctx->tight.possible)
        return NULL;
    worst_of(ret, &sizes, &ctx->tight);
    return &ctx->tight;
}

/* ---- seconds ------------------------------------------------------------- */

/* The context's machine with the link to the other part as its network. */
static struct pl_op_ctx over_bridge(struct pl_parts_ctx *ctx, const struct pl_layout *layout,
                                    int part)
{
    struct pl_op_ctx op = *pl_cost_op(ctx->cost[part], layout);

    op.problem.cluster = &ctx->bridge[part];
    return op;
}

static int at_least_domain(const struct pl_op_ctx *op, int stride)
{
    int domain = pl_cluster_domain(op->problem.cluster);

    return stride > domain ? stride : domain;
}

static double message_of(struct pl_parts_ctx *ctx, const struct pl_layout *layout,
                         const struct pl_parts_cut *cut)
{
    int stride = pl_axis_stride(layout, PL_PP), pp = layout->pp, head = cut->head_stages;
    double inside[PL_PARTS], border[PL_MAX_RUNS], between = 0, largest;

    for (int part = 0; part < PL_PARTS; part++) {
        struct pl_op_ctx op = over_bridge(ctx, layout, part);

        between = fmax(between, pl_message_far_s(&op, layout, at_least_domain(&op, stride)));
        inside[part] = pl_message_s(pl_cost_op(ctx->cost[part], layout), layout);
    }
    largest = between;
    for (int s = 0; s < pp - 1; s++) {
        border[s] = s == head - 1 ? between : inside[part_of(cut, s)];
        largest = fmax(largest, border[s]);
    }
    return layout->schedule == PL_1F1B && layout->overlap_p2p ? pl_message_chain_s(pp, border)
                                                              : largest;
}

static double tied(struct pl_parts_ctx *ctx, const struct pl_layout *layout)
{
    double slower = 0;

    for (int part = 0; part < PL_PARTS; part++) {
        struct pl_op_ctx op = over_bridge(ctx, layout, part);
        struct pl_layout apart = *layout;

        apart.world = 2 * at_least_domain(&op, layout->world / 2);
        slower = fmax(slower, pl_tied_embedding_s(&op, &apart));
    }
    return slower;
}

/* What a part's slowest stage does. */
struct side {
    struct pl_stage_sum slow;
    int stage;
    double sync_s, update_s, end_s; /* end_s: with its work in all micro-batches */
};

static void pipeline_of(struct pl_pipeline *ret, struct side side[PL_PARTS],
                        struct pl_parts_ctx *ctx, const struct pl_layout *layout,
                        const struct pl_parts_cut *cut)
{
    *ret = (struct pl_pipeline){0};
    for (int s = 0; s < layout->pp; s++) {
        int part = part_of(cut, s), n = cut->first[s + 1] - cut->first[s];
        struct pl_stage_sum one;

        pl_cost_run(&one, ctx->cost[part], layout, cut->first[s], n, s == 0, s == layout->pp - 1);
        pl_pipeline_add(ret, &one, s, 1);
        if (one.total > side[part].slow.total) {
            side[part].slow = one;
            side[part].stage = s;
        }
    }
    pl_pipeline_end(ret);
}

/* SIDE's stage, with the exchanges and the optimizer of the part that COST knows. */
static void end_of(struct side *side, struct pl_cost_ctx *cost, const struct pl_layout *layout,
                   const struct pl_parts_cut *cut, double micro)
{
    const struct pl_op_ctx *op = pl_cost_op(cost, layout);
    int first = cut->first[side->stage], n = cut->first[side->stage + 1] - first;
    struct pl_held held;

    pl_cost_held(&held, cost, layout, side->stage, first, n);
    side->sync_s = pl_sync_s(op, layout, &side->slow, &held, micro);
    side->update_s = pl_update_s(op, layout, &held);
    side->end_s = micro * side->slow.total + side->sync_s + side->update_s;
}

/* What the part that does not set the pace is later by than the one that does, and than it were
 * with that one's network and memory. */
static double late(const struct side side[PL_PARTS], int pacing, struct pl_parts_ctx *ctx,
                   const struct pl_layout *layout, const struct pl_parts_cut *cut, double micro)
{
    struct side alike = side[1 - pacing];

    end_of(&alike, ctx->cost[pacing], layout, cut, micro);
    return fmax(0, side[1 - pacing].end_s - fmax(side[pacing].end_s, alike.end_s));
}

static void seconds_of(struct pl_cost *ret, struct pl_parts_ctx *ctx,
                       const struct pl_layout *layout, const struct pl_parts_cut *cut)
{
    double batch = pl_batch(ctx->problem.workload, layout);
    double micro = batch / ((double)layout->micro_batch * layout->dp), pace;
    struct side side[PL_PARTS] = {0};
    const struct pl_stage_sum *slow;
    const struct pl_op_ctx *op;
    struct pl_pipeline all;
    int pacing;

    pipeline_of(&all, side, ctx, layout, cut);
    for (int part = 0; part < PL_PARTS; part++)
        end_of(&side[part], ctx->cost[part], layout, cut, micro);
    slow = &all.slow;
    pacing = part_of(cut, all.slow_stage);
    op = pl_cost_op(ctx->cost[pacing], layout);
    *ret = (struct pl_cost){0};
    ret->seconds[PL_COST_FORWARD] = micro * slow->fwd;
    ret->seconds[PL_COST_BACKWARD] = micro * slow->bwd;
    ret->seconds[PL_COST_RECOMPUTE] = micro * slow->re;
    ret->seconds[PL_COST_TP] = micro * slow->tp;
    ret->seconds[PL_COST_CP] = micro * slow->cp;
    ret->seconds[PL_COST_EP] = micro * slow->ep;
    ret->seconds[PL_COST_BUBBLE] = pl_bubble_s(&all, layout, micro);
    ret->seconds[PL_COST_PP] =
        message_of(ctx, layout, cut) *
        pl_messages(layout->schedule, layout->pp, layout->vp, micro, layout->overlap_p2p);
    pace = micro * slow->total + ret->seconds[PL_COST_PP] + ret->seconds[PL_COST_BUBBLE];
    ret->seconds[PL_COST_OTHER] =
        pl_slowest_share(op, layout) * pace + pl_stall_s(op, layout, micro);
    ret->seconds[PL_COST_DP] =
        side[pacing].sync_s + tied(ctx, layout) + late(side, pacing, ctx, layout, cut, micro);
    ret->seconds[PL_COST_OPTIMIZER] = side[pacing].update_s;
    for (int i = 0; i < PL_COST_CLASSES; i++)
        ret->total += ret->seconds[i];
    ret->tokens_per_s = batch * ctx->problem.workload->seq / ret->total;
}

/* ---- both orders --------------------------------------------------------- */

bool pl_parts_price(struct pl_parts_ctx *ctx, struct pl_plan_entry *entry)
{
    bool any = false;

    assert(entry->layout.stages == PL_STAGES_EVEN);
    for (int order = 0; order < PL_PARTS; order++) {
        struct pl_memory memory;
        struct pl_cost cost = {0};
        const struct pl_parts_cut *cut = division(&memory, ctx, &entry->layout, order);

        if (cut)
            seconds_of(&cost, ctx, &entry->layout, cut);
        if (order > 0 && (cut ? any && cost.total >= entry->cost.total
                              : any || memory.scaled >= entry->memory.scaled))
            continue;
        any = any || cut;
        entry->memory = memory;
        entry->cost = cost;
        entry->first_part = order;
    }
    return any;
}

int pl_parts_write(struct pl_parts_ctx *ctx, struct pl_plan_entry *entry, struct err *error)
{
    int layers[PL_MAX_RUNS], pp = entry->layout.pp;
    struct pl_memory memory;
    const struct pl_parts_cut *cut = division(&memory, ctx, &entry->layout, entry->first_part);

    assert(cut);
    for (int s = 0; s < pp; s++)
        layers[s] = cut->first[s + 1] - cut->first[s];
    return pl_stages_list(&entry->layout.stages, layers, pp, error);
}
