#include "plan/divide.h"
#include "plan/memory_parts.h"

#include <assert.h>

#include "base/base.h"

const char *const pl_mem_class_names[PL_MEM_CLASSES + 1] = {
    "weights",   "gradients", "master",  "optimizer", "activations", "comm", "logits",
    "workspace", "snapshot",  "context", "library",   "nccl",        NULL};

/* What many layouts of one problem share: the parameters of a stage, and whole plans of layouts
 * that differ in what takes no memory. Both tables are direct-mapped. */
struct pl_memory_ctx {
    struct pl_problem problem;
    struct {
        bool full;
        struct pl_layout layout; /* without the keys that take no memory */
        struct pl_memory worst;
    } last[8 * PL_PRECISIONS]; /* by precision and overlaps, which alternate in a walk */
    struct pl_param_counts counts[PL_COUNTS];
};

struct pl_memory_ctx *pl_memory_ctx_new(const struct pl_problem *problem)
{
    struct pl_memory_ctx *ctx = mem_alloc(sizeof(*ctx));

    assert(problem->model && problem->workload && problem->trainer);
    ctx->problem = *problem;
    return ctx;
}

struct pl_memory_ctx *pl_memory_ctx_free(struct pl_memory_ctx *ctx)
{
    free(ctx);
    return NULL;
}

void pl_memory_shared_of(struct pl_memory_shared *ret, const struct pl_problem *problem,
                         const struct pl_layout *layout, struct pl_param_counts *counts)
{
    ret->counts = counts;
    if (!problem->trainer->bundled)
        pl_gpu_layers_of(&ret->layers, problem, layout);
}

/* Bytes of the last classes. NCCL has buffers only where there are several ranks. */
static void driver_classes(double ret[PL_MEM_CLASSES], const struct pl_problem *problem,
                           const struct pl_layout *layout)
{
    const struct pl_device *device = problem->cluster ? &problem->cluster->device : NULL;

    ret[PL_MEM_CONTEXT] = ret[PL_MEM_LIBRARY] = ret[PL_MEM_NCCL] = 0;
    if (!device || device->cpu)
        return;
    ret[PL_MEM_CONTEXT] = device->context_gib * 0x1p30;
    ret[PL_MEM_LIBRARY] = device->library_gib * 0x1p30;
    ret[PL_MEM_NCCL] = layout->world > 1 ? device->nccl_gib * 0x1p30 : 0;
}

static double driver_bytes(const double bytes[PL_MEM_CLASSES])
{
    return bytes[PL_MEM_CONTEXT] + bytes[PL_MEM_LIBRARY] + bytes[PL_MEM_NCCL];
}

double pl_memory_driver(const struct pl_problem *problem, const struct pl_layout *layout)
{
    double bytes[PL_MEM_CLASSES];

    driver_classes(bytes, problem, layout);
    return driver_bytes(bytes);
}

/* What was measured leaves the estimate of all of it, of which fragments remain. */
static void add_driver(struct pl_memory *memory, const struct pl_problem *problem,
                       const struct pl_layout *layout)
{
    double reserve, held;

    driver_classes(memory->bytes, problem, layout);
    if (problem->trainer->bundled)
        return;
    reserve = pl_constants_of(problem->trainer)->reserve_gib * 0x1p30;
    held = driver_bytes(memory->bytes);
    memory->bytes[PL_MEM_WORKSPACE] -= held < reserve ? held : reserve;
}

void pl_memory_stage(struct pl_memory *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout, int stage,
                     const struct pl_memory_shared *shared)
{
    for (int i = 0; i < PL_MEM_CLASSES; i++) /* in few stores, many times faster than one memset */
        ret->bytes[i] = 0;
    ret->total = ret->host = 0;
    ret->rank = 0;
    if (problem->trainer->bundled)
        pl_memory_partune_stage(ret, problem, layout, stage, shared->counts);
    else
        pl_memory_gpu_stage(ret, problem, layout, &shared->layers, stage);
    add_driver(ret, problem, layout);
    for (int i = 0; i < PL_MEM_CLASSES; i++)
        ret->total += ret->bytes[i];
    ret->scaled = ret->total;
}

void pl_memory_rank(struct pl_memory *ret, const struct pl_problem *problem,
                    const struct pl_layout *layout, int rank)
{
    struct pl_layout divided;
    struct pl_memory_shared shared;

    assert(rank >= 0 && rank < layout->world);
    layout = pl_divided(&divided, problem, layout);
    pl_memory_shared_of(&shared, problem, layout, NULL);
    pl_memory_stage(ret, problem, layout, pl_axis_coord(layout, PL_PP, rank), &shared);
    ret->rank = rank;
}

/*
 * The stage between the ends that needs most. Stages that hold alike layers differ in the
 * micro-batches that they keep: never more further down, but for zero-bubble's gradients between
 * the two halves of a backward pass, of which stage s keeps s + 1.
 */
static int middle_of(const struct pl_layout *layout, const struct pl_workload *workload)
{
    int most = layout->schedule == PL_ZERO_BUBBLE ? pl_microbatches(layout, workload) - 1 : 1;

    return most < 1 ? 1 : most > layout->pp - 2 ? layout->pp - 2 : most;
}

/* The stage to look at after STAGE. The plan depends on the stage alone: it holds the embedding, or
 * the logits, or neither. Of a GPU trainer the worst is the first or the last. */
static int next_stage(const struct pl_problem *problem, const struct pl_layout *layout, int stage)
{
    if (pl_model_is_mixed(problem->model) || layout->pp < 3 || layout->stages != PL_STAGES_EVEN)
        return stage + 1;
    if (!problem->trainer->bundled)
        return stage + layout->pp - 1;
    return stage == 0                ? middle_of(layout, problem->workload)
           : stage == layout->pp - 1 ? layout->pp
                                     : layout->pp - 1;
}

static void plan_worst(struct pl_memory *ret, const struct pl_problem *problem,
                       const struct pl_layout *asked, struct pl_param_counts *counts)
{
    struct pl_layout divided;
    const struct pl_layout *layout = pl_divided(&divided, problem, asked);
    struct pl_memory_shared shared;
    int worst = 0;

    pl_memory_shared_of(&shared, problem, layout, counts);
    pl_memory_stage(ret, problem, layout, 0, &shared);
    for (int stage = next_stage(problem, layout, 0); stage < layout->pp;
         stage = next_stage(problem, layout, stage)) {
        struct pl_memory one;

        pl_memory_stage(&one, problem, layout, stage, &shared);
        if (one.total > ret->total) {
            *ret = one;
            worst = stage;
        }
    }
    ret->rank = worst * pl_axis_stride(layout, PL_PP);
}

void pl_memory_worst(struct pl_memory *ret, const struct pl_problem *problem,
                     const struct pl_layout *layout)
{
    plan_worst(ret, problem, layout, NULL);
}

/* LAYOUT without the keys that take no memory. Of the bundled trainer a transfer that overlaps has
 * a buffer of its own, and of weights and gradients that work in windows there is one window more.
 */
static void without_free_keys(struct pl_layout *ret, const struct pl_layout *layout, bool bundled)
{
    *ret = *layout;
    ret->overlap_moe_a2a = 0;
    if (!bundled)
        ret->overlap_p2p = 0;
    if (!bundled || layout->zero < 2)
        ret->overlap_grad_reduce = 0;
    if (layout->zero < 3)
        ret->overlap_param_gather = 0;
}

void pl_memory_at(struct pl_memory *ret, struct pl_memory_ctx *ctx, const struct pl_layout *layout)
{
    struct pl_layout key;
    int slot;

    without_free_keys(&key, layout, ctx->problem.trainer->bundled);
    slot = 8 * key.precision + 4 * key.overlap_p2p + 2 * key.overlap_grad_reduce +
           key.overlap_param_gather;
    if (!ctx->last[slot].full || !pl_layout_equal(&key, &ctx->last[slot].layout)) {
        plan_worst(&ctx->last[slot].worst, &ctx->problem, layout, ctx->counts);
        ctx->last[slot].layout = key;
        ctx->last[slot].full = true;
    }
    *ret = ctx->last[slot].worst;
}

double pl_memory_allocator(const struct pl_memory *memory, const struct pl_trainer *trainer)
{
    double reserve = trainer->bundled ? 0 : pl_constants_of(trainer)->reserve_gib * 0x1p30;
    double held = driver_bytes(memory->bytes), driver = held > reserve ? held : reserve;

    assert(memory->total >= driver);
    return memory->total - driver;
}

int pl_headroom_of(double *ret, const json_t *body, const struct pl_trainer *trainer,
                   struct err *error)
{
    static const char *const keys[] = {"memory_headroom", NULL};
    double headroom = trainer->bundled ? 0.0 : 0.05;
    json_t *v = NULL;
    int r = jx_get_object(&v, body, "constraints", error);

    if (r < 0)
        return r;
    if (v && ((r = jx_keys(v, keys, error)) < 0 ||
              (r = jx_get_f64(&headroom, v, "memory_headroom", 0.0, 0.9, error)) < 0))
        return err_under(error, "/constraints");
    *ret = headroom;
    return 0;
}

double pl_memory_offered(const struct pl_cluster *cluster, double headroom)
{
    assert(headroom >= 0 && headroom < 1);
    return cluster->device.memory_gib * (double)(1 << 30) * (1 - headroom);
}

json_t *pl_memory_json(const struct pl_memory *memory)
{
    json_t *v = json_pack("{s:f s:i}", "total", memory->total, "rank", memory->rank);

    for (int i = 0; i < PL_MEM_CLASSES; i++)
        if (i < PL_MEM_SNAPSHOT || memory->bytes[i] > 0)
            json_object_set_new(v, pl_mem_class_names[i], json_real(memory->bytes[i]));
    if (memory->host > 0)
        json_object_set_new(v, "host", json_real(memory->host));
    return v;
}

bool pl_fits(const struct pl_problem *problem, const struct pl_layout *layout, double headroom)
{
    struct pl_memory worst;

    pl_memory_worst(&worst, problem, layout);
    return worst.total <= pl_memory_offered(problem->cluster, headroom);
}
