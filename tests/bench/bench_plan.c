/*
 * bench_plan [-v] [--no-fit] FILE.jsonl...: the cost and memory models against published
 * measurements.
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

enum { MAX_FAMILIES = 64, TAU_ROWS = 10, CHOICE_ROWS = 4 };

struct result {
    double seconds;
    struct pl_cost cost;
    struct pl_layout layout;
    bool fits;
};

static bool is_timed(const struct row *r)
{
    return !strcmp(r->type, "training") && r->seconds > 0;
}

/* ---- prediction ------------------------------------------------------------------------------ */

struct choice {
    const struct row *r;
    struct pl_cost_ctx *x;
    struct pl_problem p;
    struct result best;
};

static void try_layout(struct choice *c, const struct pl_layout *l)
{
    struct pl_cost cost;
    bool fits = pl_fits(&c->p, l, 0);

    pl_cost_at(&cost, c->x, l);
    if (c->best.seconds > 0 &&
        (c->best.fits > fits || (c->best.fits == fits && c->best.seconds <= cost.total)))
        return;
    c->best = (struct result){cost.total, cost, *l, fits};
}

/* A choice of one setting that the row leaves open; false where it does not exist. */
static bool set_open(struct pl_layout *l, const struct row *r, int mb, int vp, int rest)
{
    int share = r->workload.global_batch / r->layout.dp;

    if (r->free_micro_batch)
        l->micro_batch = mb;
    if (r->free_vp)
        l->vp = vp;
    if (share % l->micro_batch)
        return false;
    /* embedding and loss may count as a layer each */
    if (l->vp > 1 && r->model.layers % (l->pp * l->vp) && (r->model.layers + 2) % (l->pp * l->vp))
        return false;
    if (l->vp > 1 && share / l->micro_batch % l->pp)
        return false;
    /* software with streaming attention runs without full recompute unless its authors say so */
    if (r->free_recompute && r->trainer.flash && rest % 3 == PL_RECOMPUTE_FULL)
        return false;
    if (r->free_recompute)
        l->recompute = rest % 3;
    else if (rest % 3)
        return false;
    if (r->free_sp)
        l->sp = rest / 3 % 2;
    else if (rest / 3 % 2)
        return false;
    if (r->free_zero)
        l->zero = rest / 6;
    else if (rest / 6)
        return false;
    pl_layout_canonical(l, &r->model);
    return true;
}

/* Settings that the row leaves open, nested: micro-batch, virtual stages, and recompute x sp x
 * zero. */
static void try_all(struct choice *c)
{
    const struct row *r = c->r;
    int share = r->workload.global_batch / r->layout.dp;
    int chunks = r->free_vp && r->layout.pp > 1 ? (r->model.layers + 2) / r->layout.pp : 1;

    for (int mb = 1; mb <= (r->free_micro_batch ? share : 1); mb++)
        for (int vp = 1; vp <= chunks; vp++)
            for (int rest = 0; rest < 3 * 2 * 2; rest++) {
                struct pl_layout l = r->layout;

                if (set_open(&l, r, mb, vp, rest))
                    try_layout(c, &l);
            }
}

static void predict(struct result *ret, const struct row *r, const struct pl_constants *k)
{
    struct choice c = {.r = r, .p = {&r->model, &r->cluster, &r->workload, &r->trainer}};

    c.x = pl_cost_ctx_new(&c.p, k);
    try_all(&c);
    if (c.best.seconds <= 0) /* nothing divides: as given */
        try_layout(&c, &r->layout);
    pl_cost_ctx_free(c.x);
    *ret = c.best;
}

static double error_of(const struct row *r, const struct result *p)
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

        if (!is_timed(r) ||
            (choice ? r->choice_group != f->choice_group : r->model_group != f->model_group))
            continue;
        if (i < first)
            return 0;
        ret[n++] = i;
    }
    return n;
}

static double group_tau(const struct rows *rows, const struct result *p, const size_t *g, size_t n)
{
    struct tau t = {0};

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            tau_add(&t, rows->at[g[i]].seconds - rows->at[g[j]].seconds,
                    p[g[i]].seconds - p[g[j]].seconds);
    return tau_b(&t);
}

static double group_regret(const struct rows *rows, const struct result *p, const size_t *g,
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

static void say_row(const struct row *r, const struct result *p)
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

static size_t families_of(const char *ret[MAX_FAMILIES], const struct rows *rows)
{
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        size_t j = 0;

        while (j < n && strcmp(ret[j], rows->at[i].family))
            j++;
        if (j == n && n < MAX_FAMILIES && is_timed(&rows->at[i]))
            ret[n++] = rows->at[i].family;
    }
    return n;
}

static void say_errors(const char *bench, const struct rows *rows, const struct result *p)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows);
    struct bench_sum kind[3] = {{0}};

    for (size_t f = 0; f < n; f++) {
        struct bench_sum s = {0};

        for (size_t i = 0; i < rows->n; i++)
            if (is_timed(&rows->at[i]) && !strcmp(rows->at[i].family, family[f]))
                bench_sum_add(&s, error_of(&rows->at[i], &p[i]));
        bench_say_sum(bench, family[f], &s);
    }
    for (size_t i = 0; i < rows->n; i++)
        if (is_timed(&rows->at[i]))
            bench_sum_add(&kind[rows->at[i].layout.precision == PL_FP8 ? 2 : rows->at[i].moe],
                          error_of(&rows->at[i], &p[i]));
    bench_say_sum(bench, "dense", &kind[0]);
    bench_say_sum(bench, "moe", &kind[1]);
    bench_say_sum(bench, "fp8", &kind[2]);
}

static void say_ranks(const char *suffix, const struct rows *rows, const struct result *p)
{
    AUTO_FREE size_t *g = mem_alloc((rows->n + 1) * sizeof(*g));
    char what[160];
    double taus = 0, regrets = 0;
    size_t ntaus = 0, nregrets = 0;

    for (size_t i = 0; i < rows->n; i++) {
        size_t n = is_timed(&rows->at[i]) ? group_of(g, rows, i, false) : 0;

        if (n >= TAU_ROWS) {
            double t = group_tau(rows, p, g, n);

            snprintf(what, sizeof(what), "%s %s%s", rows->at[i].family, rows->at[i].model.name,
                     suffix);
            bench_say("plan_tau", what, t, "tau-b", n);
            taus += t;
            ntaus++;
        }
        n = is_timed(&rows->at[i]) ? group_of(g, rows, i, true) : 0;
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
    if (ntaus)
        bench_say("plan_tau", what, taus / (double)ntaus, "tau-b", ntaus);
    if (nregrets)
        bench_say("plan_regret", what, regrets / (double)nregrets, "share", nregrets);
}

/* ---- fitting --------------------------------------------------------------------------------- */

static double *constant(struct pl_constants *k, const struct pl_constant_name *n)
{
    return (double *)(void *)((char *)k + n->offset);
}

/* Each constant is known beforehand to about 20 %, from microbenchmarks and the literature: a fit
 * that leaves the families out that determine it must not run away. */
static const double PRIOR_WIDTH = 0.2, PRIOR_WEIGHT = 0.005;

/* Mean over families of the mean absolute log error, so that a family of many rows does not rule;
 * LEFT_OUT's rows do not count. */
static double misfit(const struct rows *rows, const struct pl_constants *k, const char *left_out)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows), used = 0;
    double total = 0, penalty = 0;

    for (size_t f = 0; f < n; f++) {
        double sum = 0;
        size_t m = 0;

        if (left_out && !strcmp(family[f], left_out))
            continue;
        for (size_t i = 0; i < rows->n; i++) {
            struct result p;

            if (!is_timed(&rows->at[i]) || strcmp(rows->at[i].family, family[f]))
                continue;
            predict(&p, &rows->at[i], k);
            sum += fabs(log(p.seconds / rows->at[i].seconds));
            m++;
        }
        total += sum / (double)m;
        used++;
    }
    for (const struct pl_constant_name *c = pl_constant_names; c->name; c++) {
        struct pl_constants now = *k, usual = pl_default_constants;
        double off = log(*constant(&now, c) / *constant(&usual, c)) / PRIOR_WIDTH;

        penalty += PRIOR_WEIGHT * off * off;
    }
    return total / (double)used + penalty;
}

/* Coordinate search by shrinking factors: ten constants, a smooth objective with kinks. */
static void fit(struct pl_constants *k, const struct rows *rows, const char *left_out)
{
    double best = misfit(rows, k, left_out), step = 0.2;

    for (int round = 0; round < 6; round++, step /= 2)
        for (const struct pl_constant_name *n = pl_constant_names; n->name; n++)
            for (int sign = -1; sign <= 1; sign += 2) {
                double *at = constant(k, n), old = *at, now = old * (1 + sign * step), m;

                *at = fmin(fmax(now, n->min), n->max);
                m = misfit(rows, k, left_out);
                if (m < best)
                    best = m;
                else
                    *at = old;
            }
}

static void say_left_out(const struct rows *rows)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows);
    AUTO_FREE struct result *p = mem_alloc(rows->n * sizeof(*p));

    for (size_t f = 0; f < n; f++) {
        struct pl_constants k = pl_default_constants;

        fit(&k, rows, family[f]);
        for (size_t i = 0; i < rows->n; i++)
            if (is_timed(&rows->at[i]) && !strcmp(rows->at[i].family, family[f]))
                predict(&p[i], &rows->at[i], &k);
    }
    say_errors("plan_left_out", rows, p);
    say_ranks(" left out", rows, p);
}

static void say_fit(const struct rows *rows)
{
    struct pl_constants k = pl_default_constants;

    fit(&k, rows, NULL);
    for (const struct pl_constant_name *n = pl_constant_names; n->name; n++)
        printf("{\"bench\":\"plan_constant\",\"case\":\"%s\",\"value\":%.4g,\"unit\":\"\","
               "\"reference\":%.4g}\n",
               n->name, *constant(&k, n),
               *constant((struct pl_constants *)&pl_default_constants, n));
}

/* ---- memory and the whole -------------------------------------------------------------------- */

/* Rows that ran out of memory, and rows that ran. */
static void say_fits(const struct rows *rows, const struct result *p)
{
    size_t oom = 0, predicted = 0, timed = 0, fit = 0;

    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->at[i];
        struct pl_problem q = {&r->model, &r->cluster, &r->workload, &r->trainer};

        if (!strcmp(r->type, "oom")) {
            oom++;
            predicted += !pl_fits(&q, &r->layout, 0);
        } else if (is_timed(r)) {
            timed++;
            fit += p[i].fits;
        }
    }
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
    struct err e = {0};
    bool verbose = false, refit = true;
    AUTO_FREE struct result *p = NULL;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v"))
            verbose = true;
        else if (!strcmp(argv[i], "--no-fit"))
            refit = false;
        else if (rows_load(&rows, argv[i], &e) < 0) {
            fprintf(stderr, "bench_plan: %s\n", e.text);
            return 1;
        }
    }
    if (!rows.n) {
        fprintf(stderr, "usage: bench_plan [-v] [--no-fit] FILE.jsonl...\n");
        return 2;
    }
    p = mem_alloc(rows.n * sizeof(*p));
    for (size_t i = 0; i < rows.n; i++) {
        if (!is_timed(&rows.at[i]))
            continue;
        predict(&p[i], &rows.at[i], NULL);
        if (verbose)
            say_row(&rows.at[i], &p[i]);
    }
    say_errors("plan_seconds", &rows, p);
    say_ranks("", &rows, p);
    say_fits(&rows, p);
    bench_parts(&rows, verbose);
    bench_speed();
    if (refit) {
        say_fit(&rows);
        say_left_out(&rows);
    }
    rows_done(&rows);
    return 0;
}
