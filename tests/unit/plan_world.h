/* A model, a cluster, a workload and a trainer by name: what most tests of plan/ start from. */
#ifndef TESTS_UNIT_PLAN_WORLD_H
#define TESTS_UNIT_PLAN_WORLD_H

#include "tests/unit/problem.h"
#include "tests/unit/unit.h"

struct world {
    struct pl_model m;
    struct pl_cluster c;
    struct pl_workload w;
    const struct pl_trainer *t;
};

static inline struct pl_problem world_problem(const struct world *x)
{
    return *problem_of(x);
}

static inline struct world world_of(const char *model, const char *cluster, int nodes, int batch,
                                    const char *trainer)
{
    struct world x = {.t = pl_trainer_find(trainer)};
    struct err e = {0};
    AUTO_JSON *name = json_string(model);
    AUTO_JSON *where = json_string(cluster);
    AUTO_JSON *work = json_pack("{s:i}", "global_batch", batch);

    assert_non_null(x.t);
    if (pl_model_parse(&x.m, name, &e) < 0 || pl_cluster_parse(&x.c, where, NULL, &e) < 0 ||
        pl_workload_parse(&x.w, work, &x.m, x.t, &e) < 0)
        fail_msg("%s %s", e.pointer, e.text);
    x.c.nodes = nodes;
    return x;
}

/* A machine of CORES cores. */
static inline struct world world_cpu(const char *model, int cores, int batch, const char *trainer)
{
    struct world x = world_of(model, "local", 1, batch, trainer);

    x.c.devices_per_node = cores;
    return x;
}

static inline struct pl_layout layout_of(const struct world *x, const char *text)
{
    AUTO_JSON *v = unit_json(text);
    struct pl_layout l;
    struct err e = {0};

    if (pl_layout_parse(&l, v, problem_of(x), &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return l;
}

/* The model of an object, or of a name. */
static inline struct pl_model model_of(const char *text)
{
    AUTO_JSON *v = *text == '{' ? unit_json(text) : json_string(text);
    struct pl_model m;
    struct err e = {0};

    if (pl_model_parse(&m, v, &e) < 0)
        fail_msg("%s: %s %s", text, e.pointer, e.text);
    return m;
}

/* Of a step of the model JSON on eight H100. */
static inline double seconds_with(const char *json, const char *layout)
{
    struct world x = world_of("llama-8b", "dgx-h100", 1, 8, "any");
    struct pl_layout l;
    struct pl_cost cost;

    x.m = model_of(json);
    x.w.seq = x.m.seq;
    l = layout_of(&x, layout);
    pl_cost(&cost, problem_of(&x), &l);
    return cost.total;
}

#endif
