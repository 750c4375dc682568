/*
 * bench_plan [-v] [--no-fit] [--no-speed] [--learn] FILE.jsonl... [LANDSCAPE.json...]
 *            [--as NAME FILE.jsonl...]...
 * The cost and memory models against published measurements, and the memory plan's boundary against
 * tables of throughputs. Files after --as are a set of their own, to which nothing is ever fitted;
 * its cases end in (NAME).
 *
 * For each family of rows: mean and worst relative error of seconds an iteration, within-model rank
 * correlation (Kendall's tau-b), regret of the layout that the model would have chosen among those
 * measured, memory, and whether rows that ran out of memory are predicted to. Then the same with
 * constants fitted to all other families, so that nothing of the family judged is in them. One JSON
 * object a line; -v adds one for each row.
 *
 * --learn: what is learned of the stack of each family of 40 rows or more from 8 of them.
 *
 * What a row does not give is chosen by one rule for all: the fastest legal value that fits in
 * memory, by the model itself, of micro_batch, vp, sp, zero and recompute (full only in software
 * without streaming attention).
 */
#include <errno.h>
#include <math.h>

#include "tests/bench/plan_learn.h"
#include "tests/bench/plan_parts.h"
#include "tests/bench/plan_predict.h"

enum { TAU_ROWS = 10, CHOICE_ROWS = 4 };

static double error_of(const struct row *r, const struct guess *p)
{
    return fabs(p->seconds / r->seconds - 1);
}

/* ---- statistics ---------------------------------------------------------- */

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

/* ---- printing ------------------------------------------------------------ */

static void say_row(const struct row *r, const struct guess *p)
{
    AUTO_FREE char *id = bench_string(r->id);
    char text[160];

    printf("{\"bench\":\"plan_row\",\"case\":%s,\"value\":%.5g,\"unit\":\"s\",\"reference\":%."
           "5g,\"error\":%.4f,"
           "\"fits\":%s,\"layout\":\"%s\"",
           id, p->seconds, r->seconds, p->seconds / r->seconds - 1, p->fits ? "true" : "false",
           pl_layout_text(text, &p->layout));
    for (int i = 0; i < PL_COST_CLASSES; i++)
        if (p->cost.seconds[i] > 0)
            printf(",\"%s\":%.4g", pl_cost_class_names[i], p->cost.seconds[i]);
    printf("}\n");
}

static void say_sum(const char *bench, const char *what, const char *suffix,
                    const struct bench_sum *s)
{
    char text[192];

    if (!s->n)
        return;
    snprintf(text, sizeof(text), "%s mean%s", what, suffix);
    bench_say(bench, text, s->mean / (double)s->n, "relative error", s->n);
    snprintf(text, sizeof(text), "%s worst%s", what, suffix);
    bench_say(bench, text, s->worst, "relative error", s->n);
}

static void say_errors(const char *bench, const char *suffix, const struct rows *rows,
                       const struct guess *p)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows);
    struct bench_sum kind[3] = {{0}};

    for (size_t f = 0; f < n; f++) {
        struct bench_sum s = {0};

        for (size_t i = 0; i < rows->n; i++)
            if (row_is_timed(&rows->at[i]) && !strcmp(rows->at[i].family, family[f]))
                bench_sum_add(&s, error_of(&rows->at[i], &p[i]));
        say_sum(bench, family[f], suffix, &s);
    }
    for (size_t i = 0; i < rows->n; i++)
        if (row_is_timed(&rows->at[i]))
            bench_sum_add(&kind[rows->at[i].layout.precision >= PL_FP8 ? 2 : rows->at[i].moe],
                          error_of(&rows->at[i], &p[i]));
    say_sum(bench, "dense", suffix, &kind[0]);
    say_sum(bench, "moe", suffix, &kind[1]);
    say_sum(bench, "fp8", suffix, &kind[2]);
}

static void say_ranks(const char *suffix, const struct rows *rows, const struct guess *p)
{
    AUTO_FREE size_t *g = mem_alloc((rows->n + 1) * sizeof(*g));
    char what[256];
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

/* ---- left out ------------------------------------------------------------ */

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
    say_errors("plan_left_out", "", rows, p);
    say_ranks(" left out", rows, p);
}

/* What a fit to all families prefers, next to what the tree has. */
static void say_fit(const struct rows *rows)
{
    struct tuning fitted, shipped;
    double *at, prior, width;
    const char *name;

    tuning_fit(&fitted, rows, NULL);
    tuning_shipped(&shipped, rows);
    for (size_t i = 0; (at = tuning_value(&fitted, i, &name, &prior, &width)); i++) {
        AUTO_FREE char *text = bench_string(name);

        printf("{\"bench\":\"plan_constant\",\"case\":%s,\"value\":%.4g,\"unit\":\"\","
               "\"prior\":%.4g,\"width\":%.4g,\"shipped\":%.4g}\n",
               text, *at, prior, width, *tuning_value(&shipped, i, &name, &prior, &width));
    }
}

/* ---- memory and the whole ------------------------------------------------ */

/* Bytes planned for a row that ran out of memory, over those of its device. */
static void say_oom(const struct row *r, const struct pl_problem *problem)
{
    struct pl_memory worst;
    char text[160];

    pl_memory_worst(&worst, problem, &r->layout);
    printf("{\"bench\":\"plan_oom\",\"case\":\"%s\",\"value\":%.4f,\"layout\":\"%s\"", r->id,
           worst.total / pl_memory_offered(problem->cluster, 0), pl_layout_text(text, &r->layout));
    for (int i = 0; i < PL_MEM_CLASSES; i++)
        printf(",\"%s\":%.4g", pl_mem_class_names[i], worst.bytes[i] / (1 << 30));
    printf("}\n");
}

/* Rows that ran out of memory, and rows that ran. */
static void say_fits(const char *suffix, const struct rows *rows, const struct guess *p,
                     bool verbose)
{
    size_t oom = 0, predicted = 0, timed = 0, fit = 0;
    struct bench_sum held = {0};
    char what[192];

    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->at[i];
        struct pl_problem q = row_problem(r);

        if (!strcmp(r->type, "oom")) {
            oom++;
            predicted += !pl_fits(&q, &r->layout, 0);
            if (verbose)
                say_oom(r, &q);
        } else if (row_is_timed(r)) {
            timed++;
            fit += p[i].fits;
            bench_memory(&held, r, &p[i].layout, verbose);
        }
    }
    say_sum("plan_memory", "what devices held", suffix, &held);
    snprintf(what, sizeof(what), "out-of-memory rows predicted%s", suffix);
    if (oom)
        bench_say("plan_memory", what, (double)predicted / (double)oom, "share", oom);
    snprintf(what, sizeof(what), "rows that ran and are predicted to fit%s", suffix);
    if (timed)
        bench_say("plan_memory", what, (double)fit / (double)timed, "share", timed);
}

/* What the model as shipped says of a set of rows. */
static void say_set(const char *suffix, const struct rows *rows, bool verbose)
{
    AUTO_FREE struct guess *p = mem_alloc(rows->n * sizeof(*p));
    struct tuning shipped;

    if (rows->left_out)
        bench_say("plan_rows", "lines left out", (double)rows->left_out, "rows", rows->n);
    tuning_shipped(&shipped, rows);
    for (size_t i = 0; i < rows->n; i++) {
        if (!row_is_timed(&rows->at[i]))
            continue;
        predict(&p[i], &rows->at[i], &shipped);
        if (verbose)
            say_row(&rows->at[i], &p[i]);
    }
    say_errors("plan_seconds", suffix, rows, p);
    say_ranks(suffix, rows, p);
    say_fits(suffix, rows, p, verbose);
}

enum { MAX_SETS = 16 };

/* The sets of the command line: the first without a name, those of --as after it. */
struct sets {
    struct rows rows[MAX_SETS];
    char suffix[MAX_SETS][48];
    size_t n;
    bool verbose, refit, speed, learn;
};

static int set_named(struct sets *s, const char *name, struct err *e)
{
    if (!name || s->n == MAX_SETS)
        return err_set(e, -EINVAL, "--as takes a name, at most %d times", MAX_SETS - 1);
    snprintf(s->suffix[s->n++], sizeof(s->suffix[0]), " (%s)", name);
    return 0;
}

static int read_arguments(struct sets *s, int argc, char **argv, struct err *e)
{
    int r = 0;

    *s = (struct sets){.n = 1, .refit = true, .speed = true};
    for (int i = 1; i < argc && r == 0; i++) {
        if (!strcmp(argv[i], "-v"))
            s->verbose = true;
        else if (!strcmp(argv[i], "--no-fit"))
            s->refit = false;
        else if (!strcmp(argv[i], "--no-speed"))
            s->speed = false;
        else if (!strcmp(argv[i], "--learn"))
            s->learn = true;
        else if (!strcmp(argv[i], "--as"))
            r = set_named(s, argv[++i], e);
        else if (str_ends(argv[i], ".json"))
            r = bench_boundary(argv[i], e);
        else
            r = rows_load(&s->rows[s->n - 1], argv[i], e);
    }
    if (r == 0 && !s->rows[0].n)
        r = err_set(
            e, -EINVAL,
            "usage: bench_plan [-v] [--no-fit] [--no-speed] [--learn] FILE.jsonl... [--as NAME "
            "FILE...]");
    return r;
}

int main(int argc, char **argv)
{
    struct sets s;
    struct err e = {0};
    int r = read_arguments(&s, argc, argv, &e);

    if (r < 0)
        fprintf(stderr, "bench_plan: %s%s%s\n", e.pointer, e.pointer[0] ? ": " : "", e.text);
    for (size_t i = 0; r == 0 && i < s.n; i++)
        if (s.rows[i].n)
            say_set(s.suffix[i], &s.rows[i], s.verbose);
    for (size_t i = 0; r == 0 && s.learn && i < s.n; i++)
        bench_learn(&s.rows[i]);
    if (r == 0)
        bench_parts(&s.rows[0], s.verbose);
    if (r == 0 && s.speed)
        bench_speed();
    if (r == 0 && s.refit) {
        say_fit(&s.rows[0]);
        say_left_out(&s.rows[0]);
    }
    for (size_t i = 0; i < s.n; i++)
        rows_done(&s.rows[i]);
    return r < 0 ? 1 : 0;
}
