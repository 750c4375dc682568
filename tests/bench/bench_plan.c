/*
 * bench_plan [-v] [--no-fit] FILE.jsonl... [LANDSCAPE.json...]: the cost and memory models against
 * published measurements, and the memory plan's boundary against tables of throughputs.
 *
 * For each family of rows: mean and worst relative error of seconds an iteration, within-model rank
 * correlation (Kendall's tau-b), regret of the layout that the model would have chosen among those
 * measured, memory, and whether rows that ran out of memory are predicted to. Then the same with
 * constants fitted to all other families, so that nothing of the family judged is in them. One JSON
 * object a line; -v adds one for each row.
 *
 * What a row does not give is chosen by one rule for all: the fastest legal value that fits in
 * memory, by the model itself, of micro_batch, vp, sp, zero and recompute (full only in software
 * without streaming attention).
 */
#include <math.h>

#include "tests/bench/plan_parts.h"
#include "tests/bench/plan_predict.h"

enum { TAU_ROWS = 10, CHOICE_ROWS = 4 };

static double error_of(const struct row *r, const struct guess *p)
{
    return fabs(p->seconds / r->seconds - 1);
}

/* ---- statistics ------------------------------------------------------------------------------ */

struct tau {
    double concordant, discordant, tied_a, tied_b;
};

static void tau_add(struct tau *t, double a, double b)
{
    if (a == 0 && b == 0)
        return;
    if (a == 0)
        t->tied_a++;
    else if (b == 0)
        t->tied_b++;
    else if ((a > 0) == (b > 0))
        t->concordant++;
    else
        t->discordant++;
}

static double tau_b(const struct tau *t)
{
    double n = t->concordant + t->discordant;
    double d = sqrt((n + t->tied_a) * (n + t->tied_b));

    return d > 0 ? (t->concordant - t->discordant) / d : 0;
}

/* Members of the group of row FIRST, which must be its first member; 0 if it is not. */
static size_t group_of(size_t *ret, const struct rows *rows, size_t first, bool choice)
{
    const struct row *f = &rows->at[first];
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->at[i];

        if (!row_is_timed(r) ||
            (choice ? r->choice_group != f->choice_group : r->model_group != f->model_group))
            continue;
        if (i < first)
            return 0;
        ret[n++] = i;
    }
    return n;
}

static double group_tau(const struct rows *rows, const struct guess *p, const size_t *g, size_t n)
{
    struct tau t = {0};

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            tau_add(&t, rows->at[g[i]].seconds - rows->at[g[j]].seconds,
                    p[g[i]].seconds - p[g[j]].seconds);
    return tau_b(&t);
}

/* Two rows of one configuration: no function of it can order them. */
static bool same_configuration(const struct row *a, const struct row *b)
{
    return a->workload.global_batch == b->workload.global_batch &&
           a->workload.seq == b->workload.seq && pl_layout_equal(&a->layout, &b->layout) &&
           a->model.hidden == b->model.hidden && a->model.layers == b->model.layers &&
           a->model.heads == b->model.heads && a->model.ffn == b->model.ffn &&
           a->free_micro_batch == b->free_micro_batch && a->free_vp == b->free_vp &&
           str_eq(a->cluster.name, b->cluster.name) && a->trainer.eager == b->trainer.eager &&
           a->trainer.tp_overlap == b->trainer.tp_overlap;
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of the measured seconds of all rows of the group that repeat the configuration of row AT.
 */
static double median_seconds(const struct rows *rows, const size_t *g, size_t n, size_t at)
{
    AUTO_FREE double *v = mem_alloc(n * sizeof(*v));
    size_t m = 0;

    for (size_t i = 0; i < n; i++)
        if (same_configuration(&rows->at[g[i]], &rows->at[at]))
            v[m++] = rows->at[g[i]].seconds;
    qsort(v, m, sizeof(*v), by_seconds);
    return (v[(m - 1) / 2] + v[m / 2]) / 2;
}

static bool is_first_of_configuration(const struct rows *rows, const size_t *g, size_t at)
{
    for (size_t j = 0; j < at; j++)
        if (same_configuration(&rows->at[g[j]], &rows->at[g[at]]))
            return false;
    return true;
}

/* tau over the distinct configurations, each with the median of its repeats; and the tau over all
 * rows of a predictor that knows those medians, which no function of the configuration exceeds by
 * more than its luck with ties. */
static void group_distinct(double *ret_tau, double *ret_reach, size_t *ret_distinct,
                           const struct rows *rows, const struct guess *p, const size_t *g,
                           size_t n)
{
    AUTO_FREE double *median = mem_alloc(n * sizeof(*median));
    struct tau t = {0}, reach = {0};

    *ret_distinct = 0;
    for (size_t i = 0; i < n; i++) {
        bool first = is_first_of_configuration(rows, g, i);

        median[i] = median_seconds(rows, g, n, g[i]);
        *ret_distinct += first;
        for (size_t j = 0; j < i; j++) {
            tau_add(&reach, rows->at[g[i]].seconds - rows->at[g[j]].seconds, median[i] - median[j]);
            if (first && is_first_of_configuration(rows, g, j))
                tau_add(&t, median[i] - median[j], p[g[i]].seconds - p[g[j]].seconds);
        }
    }
    *ret_tau = tau_b(&t);
    *ret_reach = tau_b(&reach);
}

static double group_regret(const struct rows *rows, const struct guess *p, const size_t *g,
                           size_t n)
{
    size_t chosen = g[0], best = g[0];

    for (size_t i = 1; i < n; i++) {
        if (p[g[i]].seconds < p[chosen].seconds)
            chosen = g[i];
        if (rows->at[g[i]].seconds < rows->at[best].seconds)
            best = g[i];
    }
    return rows->at[chosen].seconds / rows->at[best].seconds - 1;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void say_row(const struct row *r, const struct guess *p)
{
    char text[160];

    printf("{\"bench\":\"plan_row\",\"case\":\"%s\",\"value\":%.5g,\"unit\":\"s\",\"reference\":%."
           "5g,\"error\":%.4f,"
           "\"fits\":%s,\"layout\":\"%s\"",
           r->id, p->seconds, r->seconds, p->seconds / r->seconds - 1, p->fits ? "true" : "false",
           pl_layout_text(text, &p->layout));
    for (int i = 0; i < PL_COST_CLASSES; i++)
        if (p->cost.seconds[i] > 0)
            printf(",\"%s\":%.4g", pl_cost_class_names[i], p->cost.seconds[i]);
    printf("}\n");
}

static void say_errors(const char *bench, const struct rows *rows, const struct guess *p)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows);
    struct bench_sum kind[3] = {{0}};

    for (size_t f = 0; f < n; f++) {
        struct bench_sum s = {0};

        for (size_t i = 0; i < rows->n; i++)
            if (row_is_timed(&rows->at[i]) && !strcmp(rows->at[i].family, family[f]))
                bench_sum_add(&s, error_of(&rows->at[i], &p[i]));
        bench_say_sum(bench, family[f], &s);
    }
    for (size_t i = 0; i < rows->n; i++)
        if (row_is_timed(&rows->at[i]))
            bench_sum_add(&kind[rows->at[i].layout.precision == PL_FP8 ? 2 : rows->at[i].moe],
                          error_of(&rows->at[i], &p[i]));
    bench_say_sum(bench, "dense", &kind[0]);
    bench_say_sum(bench, "moe", &kind[1]);
    bench_say_sum(bench, "fp8", &kind[2]);
}

static void say_ranks(const char *suffix, const struct rows *rows, const struct guess *p)
{
    AUTO_FREE size_t *g = mem_alloc((rows->n + 1) * sizeof(*g));
    char what[160];
    double taus = 0, apart = 0, reach, regrets = 0;
    size_t ntaus = 0, nregrets = 0, distinct;

    for (size_t i = 0; i < rows->n; i++) {
        size_t n = row_is_timed(&rows->at[i]) ? group_of(g, rows, i, false) : 0;

        if (n >= TAU_ROWS) {
            double t = group_tau(rows, p, g, n);

            snprintf(what, sizeof(what), "%s %s%s", rows->at[i].family, rows->at[i].model.name,
                     suffix);
            bench_say("plan_tau", what, t, "tau-b", n);
            taus += t;
            group_distinct(&t, &reach, &distinct, rows, p, g, n);
            bench_say("plan_tau_distinct", what, t, "tau-b", distinct);
            if (distinct < n)
                bench_say("plan_tau_reach", what, reach, "tau-b", n);
            apart += t;
            ntaus++;
        }
        n = row_is_timed(&rows->at[i]) ? group_of(g, rows, i, true) : 0;
        if (n >= CHOICE_ROWS) {
            double t = group_regret(rows, p, g, n);

            snprintf(what, sizeof(what), "%s %s %d%s", rows->at[i].family, rows->at[i].model.name,
                     rows->at[i].layout.world, suffix);
            bench_say("plan_regret", what, t, "share", n);
            regrets += t;
            nregrets++;
        }
    }
    snprintf(what, sizeof(what), "mean%s", suffix);
    if (ntaus) {
        bench_say("plan_tau", what, taus / (double)ntaus, "tau-b", ntaus);
        bench_say("plan_tau_distinct", what, apart / (double)ntaus, "tau-b", ntaus);
    }
    if (nregrets)
        bench_say("plan_regret", what, regrets / (double)nregrets, "share", nregrets);
}

/* ---- left out ----------------------------------------------------------------------------------
 */

static void say_left_out(const struct rows *rows)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows);
    AUTO_FREE struct guess *p = mem_alloc(rows->n * sizeof(*p));

    for (size_t f = 0; f < n; f++) {
        struct tuning k;

        tuning_fit(&k, rows, family[f]);
        for (size_t i = 0; i < rows->n; i++)
            if (row_is_timed(&rows->at[i]) && !strcmp(rows->at[i].family, family[f]))
                predict(&p[i], &rows->at[i], &k);
    }
    say_errors("plan_left_out", rows, p);
    say_ranks(" left out", rows, p);
}

/* What a fit to all families prefers, beside what the tree has. */
static void say_fit(const struct rows *rows)
{
    struct tuning fitted, shipped;
    double *at, prior, width;
    const char *name;

    tuning_fit(&fitted, rows, NULL);
    tuning_shipped(&shipped, rows);
    for (size_t i = 0; (at = tuning_value(&fitted, i, &name, &prior, &width)); i++)
        printf("{\"bench\":\"plan_constant\",\"case\":\"%s\",\"value\":%.4g,\"unit\":\"\","
               "\"prior\":%.4g,\"width\":%.4g,\"shipped\":%.4g}\n",
               name, *at, prior, width, *tuning_value(&shipped, i, &name, &prior, &width));
}

/* ---- memory and the whole -------------------------------------------------------------------- */

/* Rows that ran out of memory, and rows that ran. */
static void say_fits(const struct rows *rows, const struct guess *p, bool verbose)
{
    size_t oom = 0, predicted = 0, timed = 0, fit = 0;
    struct bench_sum held = {0};

    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->at[i];
        struct pl_problem q = {&r->model, &r->cluster, &r->workload, &r->trainer};

        if (!strcmp(r->type, "oom")) {
            oom++;
            predicted += !pl_fits(&q, &r->layout, 0);
        } else if (row_is_timed(r)) {
            timed++;
            fit += p[i].fits;
            bench_memory(&held, r, &p[i].layout, verbose);
        }
    }
    bench_say_sum("plan_memory", "what devices held", &held);
    if (oom)
        bench_say("plan_memory", "out-of-memory rows predicted", (double)predicted / (double)oom,
                  "share", oom);
    if (timed)
        bench_say("plan_memory", "rows that ran and are predicted to fit",
                  (double)fit / (double)timed, "share", timed);
}

int main(int argc, char **argv)
{
    struct rows rows = {0};
    struct tuning shipped;
    struct err e = {0};
    bool verbose = false, refit = true;
    AUTO_FREE struct guess *p = NULL;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v"))
            verbose = true;
        else if (!strcmp(argv[i], "--no-fit"))
            refit = false;
        else if (str_ends(argv[i], ".json")) {
            if (bench_boundary(argv[i], &e) < 0) {
                fprintf(stderr, "bench_plan: %s\n", e.text);
                return 1;
            }
        } else if (rows_load(&rows, argv[i], &e) < 0) {
            fprintf(stderr, "bench_plan: %s\n", e.text);
            return 1;
        }
    }
    if (rows.left_out)
        bench_say("plan_rows", "lines left out", (double)rows.left_out, "rows", rows.n);
    if (!rows.n) {
        fprintf(stderr, "usage: bench_plan [-v] [--no-fit] FILE.jsonl...\n");
        return 2;
    }
    tuning_shipped(&shipped, &rows);
    p = mem_alloc(rows.n * sizeof(*p));
    for (size_t i = 0; i < rows.n; i++) {
        if (!row_is_timed(&rows.at[i]))
            continue;
        predict(&p[i], &rows.at[i], &shipped);
        if (verbose)
            say_row(&rows.at[i], &p[i]);
    }
    say_errors("plan_seconds", &rows, p);
    say_ranks("", &rows, p);
    say_fits(&rows, p, verbose);
    bench_parts(&rows, verbose);
    bench_speed();
    if (refit) {
        say_fit(&rows);
        say_left_out(&rows);
    }
    rows_done(&rows);
    return 0;
}
