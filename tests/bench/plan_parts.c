#include "tests/bench/plan_parts.h"

#include <math.h>

#include "plan/cost_parts.h"
#include "plan/memory_parts.h"

char *bench_string(const char *text)
{
    AUTO_JSON *v = json_string(text);

    return jx_dump(v);
}

void bench_say(const char *bench, const char *what, double value, const char *unit, size_t n)
{
    AUTO_FREE char *name = bench_string(what);

    printf("{\"bench\":\"%s\",\"case\":%s,\"value\":%.4g,\"unit\":\"%s\",\"rows\":%zu}\n", bench,
           name, value, unit, n);
}

void bench_sum_add(struct bench_sum *s, double error)
{
    s->mean += error;
    s->n++;
    if (error > s->worst)
        s->worst = error;
}

void bench_say_sum(const char *bench, const char *what, const struct bench_sum *s)
{
    char text[192];

    if (!s->n)
        return;
    snprintf(text, sizeof(text), "%s mean", what);
    bench_say(bench, text, s->mean / (double)s->n, "relative error", s->n);
    snprintf(text, sizeof(text), "%s worst", what);
    bench_say(bench, text, s->worst, "relative error", s->n);
}

static void compare(struct bench_sum *sum, bool verbose, const char *what, double got, double want)
{
    if (want <= 0)
        return;
    AUTO_FREE char *name = bench_string(what);

    bench_sum_add(sum, fabs(got / want - 1));
    if (verbose)
        printf("{\"bench\":\"plan_part\",\"case\":%s,\"value\":%.4g,\"reference\":%.4g,"
               "\"error\":%.4f}\n",
               name, got, want, got / want - 1);
}

/* [[bytes, microseconds, GB/s], ...] of an all-reduce inside one node. */
static void links(struct bench_sum *sum, const struct row *r, bool verbose)
{
    json_t *list = json_object_get(r->measured, "allreduce_bytes_timeus_busbwGBs"), *one;
    int devices = (int)json_integer_value(json_object_get(r->doc, "devices"));
    struct pl_rates rates;
    struct pl_op_ctx op = {&pl_default_constants, row_problem(r), &rates};
    struct pl_group g;
    size_t i;
    char what[256];

    if (!list || !r->cluster.nodes || devices < 2)
        return;
    pl_rates_of(&rates, op.constants, &op.problem, PL_BF16, 1);
    pl_group_of(&g, &op, devices, 1);
    json_array_foreach(list, i, one) {
        double bytes = json_number_value(json_array_get(one, 0)),
               us = json_number_value(json_array_get(one, 1));

        snprintf(what, sizeof(what), "%s %.0f MiB", r->id, bytes / (1 << 20));
        compare(sum, verbose, what, pl_all_reduce_s(&g, bytes) * 1e6, us);
    }
}

static void one_layer(struct bench_sum *sum, const struct row *r, bool verbose)
{
    struct pl_rates rates;
    struct pl_op_ctx op = {&pl_default_constants, row_problem(r), &rates};
    struct pl_layer_time y;
    double fwd = json_number_value(json_object_get(r->measured, "layer_forward_ms")) / 1e3;
    double bwd = json_number_value(json_object_get(r->measured, "layer_backward_ms")) / 1e3;
    char what[256];

    if (fwd <= 0 || bwd <= 0)
        return;
    pl_rates_of(&rates, op.constants, &op.problem, r->layout.precision, 1);
    pl_layer_time_of(&y, &op, &r->layout, r->moe);
    snprintf(what, sizeof(what), "%s forward", r->id);
    compare(sum, verbose, what, y.fwd + y.tp_fwd, fwd);
    snprintf(what, sizeof(what), "%s backward", r->id);
    compare(sum, verbose, what, y.bwd_input + y.bwd_weight + y.re + y.tp_bwd + y.tp_re, bwd);
}

/* Activations of each mode in percent of tensor parallelism alone. */
static void activations(struct bench_sum *sum, const struct row *r, bool verbose)
{
    static const struct {
        const char *name;
        int sp, recompute;
    } mode[] = {{"sp", 1, PL_RECOMPUTE_NONE},
                {"selective", 0, PL_RECOMPUTE_SELECTIVE},
                {"selective_sp", 1, PL_RECOMPUTE_SELECTIVE},
                {"full", 0, PL_RECOMPUTE_FULL}};
    json_t *percent = json_object_get(r->measured, "activation_memory_percent_of_tp_baseline");
    struct pl_problem problem = row_problem(r);
    struct pl_layout l = r->layout;
    double base;
    char what[256];

    if (!percent)
        return;
    l.sp = 0;
    l.recompute = PL_RECOMPUTE_NONE;
    base = pl_layer_activation_bytes(&problem, &l, r->moe);
    for (size_t i = 0; i < ARRAY_LEN(mode); i++) {
        double want = json_number_value(json_object_get(percent, mode[i].name));

        if (want <= 0)
            continue;
        l.sp = mode[i].sp;
        l.recompute = mode[i].recompute;
        snprintf(what, sizeof(what), "%s %s", r->id, mode[i].name);
        compare(sum, verbose, what, 100 * pl_layer_activation_bytes(&problem, &l, r->moe) / base,
                want);
    }
}

/* What a row's devices held at most, in GiB, next to the plan of the same. */
void bench_memory(struct bench_sum *sum, const struct row *r, const struct pl_layout *l,
                  bool verbose)
{
    double want = json_number_value(json_object_get(r->measured, "mem_gib"));
    struct pl_problem problem = row_problem(r);
    struct pl_memory m;

    if (want <= 0)
        return;
    if (r->first_rank)
        pl_memory_rank(&m, &problem, l, 0);
    else
        pl_memory_worst(&m, &problem, l);
    compare(sum, verbose, r->id,
            (r->allocator ? pl_memory_allocator(&m, &r->trainer) : m.total) / (1 << 30), want);
}

void bench_parts(const struct rows *rows, bool verbose)
{
    struct bench_sum link = {0}, layer = {0}, memory = {0};

    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->at[i];

        if (!strcmp(r->type, "microbenchmark"))
            links(&link, r, verbose);
        else if (!strcmp(r->type, "layer"))
            one_layer(&layer, r, verbose);
        else if (!strcmp(r->type, "memory"))
            activations(&memory, r, verbose);
    }
    bench_say_sum("plan_links", "all-reduce inside a node", &link);
    bench_say_sum("plan_layer", "one layer", &layer);
    bench_say_sum("plan_memory", "activations", &memory);
}

/* ---- speed --------------------------------------------------------------- */

enum { MOST = 1 << 23, STRIDE = 7919 };

/* Seconds of this process's own time: others may share the core. */
static double own_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rate(const char *what, size_t n, double start)
{
    bench_say("plan_speed", what, (double)n / (own_time() - start), "layouts/s", n);
}

/* The whole space of a 175B model on 12,288 devices. */
void bench_speed(void)
{
    AUTO_JSON *model = json_string("gpt-175B");
    AUTO_JSON *cluster = json_pack("{s:s s:i}", "profile", "dgx-a100", "nodes", 1536);
    struct pl_workload w = {.global_batch = 6144, .seq = 2048, .precision = PL_BF16};
    struct pl_model m;
    struct pl_cluster c;
    struct pl_problem p = {&m, &c, &w, pl_trainer_find("any")};
    struct pl_space s;
    AUTO_FREE struct pl_layout *l = NULL;
    struct pl_cost_ctx *x;
    struct pl_cost cost;
    struct pl_memory need;
    size_t n;
    double start;
    struct err e;

    if (pl_model_parse(&m, model, &e) < 0 || pl_cluster_parse(&c, cluster, NULL, &e) < 0 ||
        pl_space_parse(&s, NULL, &p, &e) < 0)
        return;
    start = own_time();
    if (pl_space_list(&l, &n, MOST, &s, &p, NULL, &e) < 0)
        return;
    rate("walk", n, start);
    x = pl_cost_ctx_new(&p, NULL);
    start = own_time();
    for (size_t i = 0; i < n; i++)
        pl_cost_at(&cost, x, &l[i]);
    rate("cost in the walk's order", n, start);
    start = own_time();
    for (size_t i = 0; i < n; i++)
        pl_cost_at(&cost, x, &l[i * STRIDE % n]);
    rate("cost in a scattered order", n, start);
    start = own_time();
    for (size_t i = 0; i < n; i++)
        pl_memory_worst(&need, &p, &l[i]);
    rate("memory", n, start);
    pl_cost_ctx_free(x);
}
