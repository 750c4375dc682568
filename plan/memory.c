#include "plan/memory.h"

#include "base/base.h"

const char *const pl_mem_class_names[PL_MEM_CLASSES + 1] = {"weights",   "gradients",   "master",
                                                            "optimizer", "activations", "comm",
                                                            "logits",    "workspace",   NULL};

enum { EVERY_RANK = 256 }; /* up to so many ranks, the bundled trainer's are looked at one by one */

void pl_memory_rank(struct pl_memory *ret, const struct pl_model *m, const struct pl_layout *l,
                    const struct pl_workload *w, const struct pl_trainer *t, int rank)
{
    *ret = (struct pl_memory){.rank = rank};
    if (t->bundled)
        pl_memory_partune_rank(ret, m, l, w, rank);
    else
        pl_memory_gpu_rank(ret, m, l, w, t, rank);
    ret->rank = rank;
    ret->total = 0;
    for (int i = 0; i < PL_MEM_CLASSES; i++)
        ret->total += ret->bytes[i];
}

/* The plan of a GPU trainer depends on the stage alone, and where all layers are of one kind the
 * worst stage is the first (embedding, most micro-batches in flight) or the last (logits). */
static int step_of(const struct pl_model *m, const struct pl_layout *l, const struct pl_trainer *t)
{
    int stage = pl_axis_stride(l, PL_PP);
    bool mixed = m->moe.experts && (m->moe.every > 1 || m->moe.dense_layers > 0);

    if (t->bundled)
        return l->world <= EVERY_RANK ? 1 : stage;
    return mixed || l->pp < 3 ? stage : stage * (l->pp - 1);
}

void pl_memory_worst(struct pl_memory *ret, const struct pl_model *m, const struct pl_layout *l,
                     const struct pl_workload *w, const struct pl_trainer *t)
{
    int step = step_of(m, l, t);

    pl_memory_rank(ret, m, l, w, t, 0);
    for (int rank = step; rank < l->world; rank += step) {
        struct pl_memory one;

        pl_memory_rank(&one, m, l, w, t, rank);
        if (one.total > ret->total)
            *ret = one;
    }
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
    return worst.total <= p->cluster->device.memory_gib * (double)(1 << 30) * (1 - headroom);
}
