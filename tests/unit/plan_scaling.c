/*
 * Strong scaling against published runs: Lucie-7B on Jean Zay, 8 to 128 devices at a fixed batch
 * (tests/data/published-scaling.jsonl). What scaling loses there is the gradients' all-reduce over
 * four shared interfaces a node. Each fact of it is published and none fitted: the interfaces and
 * the share of their rate that BigScience measured (a100-opa), and that Megatron adds up gradients
 * in fp32 where it trains in bf16 (megatron/arguments.py sets accumulate_allreduce_grads_in_fp32).
 */
#include "tests/unit/unit.h"

#include <math.h>

#include "plan/plan.h"

enum { MAX_ROWS = 64 };

struct run {
    char id[64];
    int devices, batch;
    struct pl_layout layout;
    double measured, predicted, on_ideal; /* seconds; on_ideal: with a network without bounds */
};

struct runs {
    struct run at[MAX_ROWS];
    int n;
};

static double seconds_of(const struct pl_problem *problem, const struct pl_layout *layout)
{
    struct pl_cost cost;

    pl_cost(&cost, problem, layout);
    return cost.total;
}

static void parse_run(struct run *ret, const json_t *v)
{
    AUTO_JSON *layout = json_deep_copy(json_object_get(v, "layout"));
    struct pl_trainer trainer = *pl_trainer_find("any");
    struct pl_workload workload = {.precision = PL_BF16};
    struct pl_model model;
    struct pl_cluster cluster;
    struct pl_problem problem = {&model, &cluster, &workload, &trainer};
    struct err e = {0};

    trainer.half_grads = trainer.flash = false;
    snprintf(ret->id, sizeof(ret->id), "%s", json_string_value(json_object_get(v, "id")));
    ret->devices = (int)json_integer_value(json_object_get(v, "devices"));
    ret->batch = (int)json_integer_value(json_object_get(v, "global_batch"));
    ret->measured = json_number_value(json_object_get(v, "seconds_per_iteration"));
    json_object_set_new(layout, "world", json_integer(ret->devices));
    if (pl_model_parse(&model, json_object_get(v, "model"), &e) < 0 ||
        pl_cluster_parse(&cluster, json_object_get(v, "cluster"), NULL, &e) < 0)
        fail_msg("%s: %s %s", ret->id, e.pointer, e.text);
    workload.global_batch = ret->batch;
    workload.seq = model.seq;
    if (pl_layout_parse(&ret->layout, layout, &problem, &e) < 0)
        fail_msg("%s: %s %s", ret->id, e.pointer, e.text);
    ret->predicted = seconds_of(&problem, &ret->layout);
    cluster.link[cluster.nlinks - 1].gbs *= 1e4;
    ret->on_ideal = seconds_of(&problem, &ret->layout);
}

static void load(struct runs *ret)
{
    AUTO_FREE char *path = mem_printf("%s/tests/data/published-scaling.jsonl", getenv("PT_SRC"));
    AUTO_FREE char *text = NULL;
    struct err e = {0};
    size_t size;

    *ret = (struct runs){0};
    if (file_read_all(&text, &size, path, 1 << 20, &e) < 0)
        fail_msg("%s", e.text);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        AUTO_JSON *v = NULL;

        assert_int_equal(jx_parse(&v, line, (size_t)(end - line), &e), 0);
        assert_true(ret->n < MAX_ROWS);
        parse_run(&ret->at[ret->n++], v);
    }
    assert_true(ret->n > 20);
}

/* The run on one node that RUN is compared with: the same degrees and batch. */
static const struct run *first_of(const struct runs *runs, const struct run *run)
{
    for (int i = 0; i < runs->n; i++)
        if (runs->at[i].devices == 8 && runs->at[i].batch == run->batch &&
            runs->at[i].layout.tp == run->layout.tp && runs->at[i].layout.pp == run->layout.pp)
            return &runs->at[i];
    fail_msg("%s has no run on one node", run->id);
    return NULL;
}

/* Share of ideal strong scaling, in percent. */
static double efficiency(double first, double seconds, int devices)
{
    return 100 * first * 8 / (seconds * devices);
}

static void strong_scaling_loses_what_was_published(void **state)
{
    AUTO_FREE struct runs *runs = mem_alloc(sizeof(*runs));
    double off = 0, flat = 0, one_node = 0, last = 0;
    int n = 0, nodes = 0;

    (void)state;
    load(runs);
    print_message("# run | published | predicted | without a network\n");
    for (int i = 0; i < runs->n; i++) {
        const struct run *run = &runs->at[i], *first = first_of(runs, run);
        double published = efficiency(first->measured, run->measured, run->devices);
        double predicted = efficiency(first->predicted, run->predicted, run->devices);
        double ideal = efficiency(first->on_ideal, run->on_ideal, run->devices);

        if (run == first) {
            one_node += fabs(run->predicted / run->measured - 1);
            nodes++;
            continue;
        }
        print_message("# %s | %.0f %% | %.0f %% | %.0f %%\n", run->id, published, predicted, ideal);
        off += fabs(predicted - published);
        flat += fabs(ideal - published);
        if (run->devices == 128)
            last = fmax(last, predicted);
        n++;
    }
    print_message("# %d runs: %.1f points off, %.1f without a network; on one node %.1f %% off\n",
                  n, off / n, flat / n, 100 * one_node / nodes);
    assert_true(off / n < 6);
    assert_true(flat / n > 20); /* and the rows do tell one from the other */
    assert_true(last < 60);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(strong_scaling_loses_what_was_published),
};

UNIT_MAIN(tests)
