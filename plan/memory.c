#include "plan/memory.h"

#include "base/base.h"

const char *const pl_mem_class_names[PL_MEM_CLASSES + 1] = {"weights",   "gradients",   "master",
                                                            "optimizer", "activations", "comm",
                                                            "logits",    "workspace",   NULL};

/* What many layouts of one problem share: the parameters of a stage, and whole plans of layouts
 * that differ in what takes no memory. Both tables are direct-mapped. */
struct pl_memory_ctx {
    struct pl_problem p;
    struct {
        bool full;
        struct pl_layout layout; /* without the keys that take no memory */
        struct pl_memory worst;
    } last[2 * (PL_FP8 + 1)]; /* by precision and overlap_p2p, which take turns in a walk */
    struct pl_param_counts counts[PL_COUNTS];
};

struct pl_memory_ctx *pl_memory_ctx_new(const struct pl_problem *p)
{
    struct pl_memory_ctx *x = mem_alloc(sizeof(*x));

    x->p = *p;
    return x;
}

struct pl_memory_ctx *pl_memory_ctx_free(struct pl_memory_ctx *x)
{
    free(x);
    return NULL;
}

static void plan_stage(struct pl_memory *ret, const struct pl_problem *p, const struct pl_layout *l,
                       int stage, struct pl_param_counts *counts)
{
    *ret = (struct pl_memory){.rank = stage * pl_axis_stride(l, PL_PP)};
    if (p->trainer->bundled)
        pl_memory_partune_stage(ret, p->model, l, p->workload, stage, counts);
    else
        pl_memory_gpu_rank(ret, p->model, l, p->workload, p->trainer, ret->rank);
    for (int i = 0; i < PL_MEM_CLASSES; i++)
        ret->total += ret->bytes[i];
}

void pl_memory_rank(struct pl_memory *ret, const struct pl_model *m, const struct pl_layout *l,
                    const struct pl_workload *w, const struct pl_trainer *t, int rank)
{
    const struct pl_problem p = {m, NULL, w, t};

    plan_stage(ret, &p, l, pl_axis_coord(l, PL_PP, rank), NULL);
    ret->rank = rank;
}

/*
 * The stage between the ends that needs most. Stages that hold alike layers differ in the
 * micro-batches that they keep: never more further down, but for zero-bubble's gradients between
 * the two halves of a backward pass, of which stage s keeps s + 1.
 */
static int middle_of(const struct pl_layout *l, const struct pl_workload *w)
{
    int most = l->schedule == PL_ZERO_BUBBLE ? pl_microbatches(l, w) - 1 : 1;

    return most < 1 ? 1 : most > l->pp - 2 ? l->pp - 2 : most;
}

/* The stage to look at after STAGE. The plan depends on the stage alone: it holds the embedding, or
 * the logits, or neither. Of a GPU trainer the worst is the first or the last. */
static int next_stage(const struct pl_problem *p, const struct pl_layout *l, int stage)
{
    if (pl_model_is_mixed(p->model) || l->pp < 3)
        return stage + 1;
    if (!p->trainer->bundled)
        return stage + l->pp - 1;
    return stage == 0 ? middle_of(l, p->workload) : stage == l->pp - 1 ? l->pp : l->pp - 1;
}

static void plan_worst(struct pl_memory *ret, const struct pl_problem *p, const struct pl_layout *l,
                       struct pl_param_counts *counts)
{
    plan_stage(ret, p, l, 0, counts);
    for (int stage = next_stage(p, l, 0); stage < l->pp; stage = next_stage(p, l, stage)) {
        struct pl_memory one;

        plan_stage(&one, p, l, stage, counts);
        if (one.total > ret->total)
            *ret = one;
    }
}

void pl_memory_worst(struct pl_memory *ret, const struct pl_model *m, const struct pl_layout *l,
                     const struct pl_workload *w, const struct pl_trainer *t)
{
    const struct pl_problem p = {m, NULL, w, t};

    plan_worst(ret, &p, l, NULL);
}

void pl_memory_at(struct pl_memory *ret, struct pl_memory_ctx *x, const struct pl_layout *l)
{
    struct pl_layout key = *l;
    int slot = 2 * l->precision + (l->overlap_p2p && x->p.trainer->bundled);

    key.overlap_grad_reduce = key.overlap_param_gather = key.overlap_moe_a2a = 0;
    if (!x->p.trainer->bundled) /* receives into what it has */
        key.overlap_p2p = 0;
    if (!x->last[slot].full || memcmp(&key, &x->last[slot].layout, sizeof(key)) != 0) {
        plan_worst(&x->last[slot].worst, &x->p, l, x->counts);
        x->last[slot].layout = key;
        x->last[slot].full = true;
    }
    *ret = x->last[slot].worst;
}

double pl_memory_offered(const struct pl_cluster *c, double headroom)
{
    return c->device.memory_gib * (double)(1 << 30) * (1 - headroom);
}

json_t *pl_memory_json(const struct pl_memory *m)
{
    json_t *v = json_pack("{s:f s:i}", "total", m->total, "rank", m->rank);

    for (int i = 0; i < PL_MEM_CLASSES; i++)
        json_object_set_new(v, pl_mem_class_names[i], json_real(m->bytes[i]));
    return v;
}

bool pl_fits(const struct pl_problem *p, const struct pl_layout *l, double headroom)
{
    struct pl_memory worst;

    pl_memory_worst(&worst, p->model, l, p->workload, p->trainer);
    return worst.total <= pl_memory_offered(p->cluster, headroom);
}
