#include "tests/bench/plan_learn.h"

#include <math.h>

#include "tests/bench/plan_parts.h"
#include "tests/bench/plan_predict.h"

enum { LEARN_LEAST = 40, LEARN_ROWS = 8, DRAWS = 20, CHOICE = 4 };

struct family {
    const struct row **row; /* timed ones and those that ran out of memory */
    struct pl_sample *sample;
    bool *used;
    double *predicted; /* seconds */
    size_t n;
};

/* Sums over draws. */
struct marks {
    double seconds, tau, regret, memory, oom;
    size_t draws, ntau, nregret, nmemory, noom;
};

static void gather(struct family *ret, const struct rows *rows, const char *name)
{
    *ret = (struct family){.row = mem_alloc((rows->n + 1) * sizeof(*ret->row)),
                           .sample = mem_alloc((rows->n + 1) * sizeof(*ret->sample)),
                           .used = mem_alloc(rows->n + 1),
                           .predicted = mem_alloc((rows->n + 1) * sizeof(double))};
    for (size_t i = 0; i < rows->n; i++) {
        const struct row *r = &rows->at[i];
        bool oom = str_eq(r->type, "oom");

        if (!str_eq(r->family, name) || (!row_is_timed(r) && !oom))
            continue;
        ret->sample[ret->n] = (struct pl_sample){
            .model = &r->model,
            .cluster = &r->cluster,
            .workload = &r->workload,
            .layout = r->layout,
            .seconds = oom ? 0 : r->seconds,
            .bytes = json_number_value(json_object_get(r->measured, "mem_gib")) * 0x1p30,
            .allocator = !oom && r->allocator,
            .first_rank = !oom && r->first_rank,
            .oom = oom,
            .runs = &r->trainer};
        ret->row[ret->n++] = r;
    }
}

static void family_done(struct family *family)
{
    free(family->row);
    free(family->sample);
    free(family->used);
    free(family->predicted);
}

static bool counts(const struct family *family, size_t i)
{
    return !family->used[i] && !family->sample[i].oom;
}

/* Concordant less discordant pairs of one model, of all its pairs. */
static void add_tau(struct marks *marks, const struct family *family)
{
    double sum = 0, pairs = 0;

    for (size_t i = 0; i < family->n; i++)
        for (size_t j = 0; j < i; j++) {
            double a, b;

            if (!counts(family, i) || !counts(family, j) ||
                family->row[i]->model_group != family->row[j]->model_group)
                continue;
            a = family->sample[i].seconds - family->sample[j].seconds;
            b = family->predicted[i] - family->predicted[j];
            pairs++;
            sum += a * b > 0 ? 1 : a * b < 0 ? -1 : 0;
        }
    if (pairs > 0) {
        marks->tau += sum / pairs;
        marks->ntau++;
    }
}

/* Of each group that differs in the layout alone: how much slower the model's choice is. */
static void add_regret(struct marks *marks, const struct family *family)
{
    for (size_t i = 0; i < family->n; i++) {
        size_t chosen = i, best = i, n = 0;
        bool first = counts(family, i);

        for (size_t j = 0; first && j < family->n; j++) {
            if (!counts(family, j) || family->row[j]->choice_group != family->row[i]->choice_group)
                continue;
            first = j >= i;
            n++;
            chosen = family->predicted[j] < family->predicted[chosen] ? j : chosen;
            best = family->sample[j].seconds < family->sample[best].seconds ? j : best;
        }
        if (!first || n < CHOICE)
            continue;
        marks->regret += family->sample[chosen].seconds / family->sample[best].seconds - 1;
        marks->nregret++;
    }
}

static void judge(struct marks *marks, struct family *family, const struct pl_trainer *trainer)
{
    double error = 0, memory = 0, foreseen = 0;
    size_t timed = 0, sized = 0, ran_out = 0;

    for (size_t i = 0; i < family->n; i++) {
        const struct pl_sample *s = &family->sample[i];
        double bytes;

        pl_sample_predict(&family->predicted[i], &bytes, trainer, s);
        if (family->used[i])
            continue;
        if (s->oom) {
            ran_out++;
            foreseen += bytes > pl_memory_offered(s->cluster, 0);
            continue;
        }
        error += fabs(family->predicted[i] / s->seconds - 1);
        timed++;
        if (s->bytes > 0) {
            memory += fabs(bytes / s->bytes - 1);
            sized++;
        }
    }
    marks->seconds += timed ? error / (double)timed : 0;
    marks->draws++;
    if (sized) {
        marks->memory += memory / (double)sized;
        marks->nmemory++;
    }
    if (ran_out) {
        marks->oom += foreseen / (double)ran_out;
        marks->noom++;
    }
    add_tau(marks, family);
    add_regret(marks, family);
}

static void say(const char *family, const char *what, double sum, size_t n, size_t rows)
{
    char text[128];

    if (!n)
        return;
    snprintf(text, sizeof(text), "%s %s", family, what);
    bench_say("plan_learned", text, sum / (double)n, "mean of draws", rows);
}

static void say_marks(const char *name, const char *when, const struct marks *marks, size_t rows)
{
    char text[96];

    snprintf(text, sizeof(text), "%s %s:", name, when);
    say(text, "seconds", marks->seconds, marks->draws, rows);
    say(text, "tau", marks->tau, marks->ntau, rows);
    say(text, "regret", marks->regret, marks->nregret, rows);
    say(text, "memory", marks->memory, marks->nmemory, rows);
    say(text, "out of memory predicted", marks->oom, marks->noom, rows);
}

static void draw(struct pl_sample ret[LEARN_ROWS], struct family *family, struct rng *rng)
{
    memset(family->used, 0, family->n);
    for (int k = 0; k < LEARN_ROWS;) {
        size_t i = (size_t)rng_below(rng, family->n);

        if (family->used[i])
            continue;
        family->used[i] = true;
        ret[k++] = family->sample[i];
    }
}

static void learn_family(const struct rows *rows, const char *name)
{
    struct marks before = {0}, after = {0};
    struct family family;
    struct rng rng;

    gather(&family, rows, name);
    rng_seed(&rng, 1);
    for (int d = 0; d < DRAWS && family.n >= LEARN_LEAST; d++) {
        struct pl_sample few[LEARN_ROWS];
        struct pl_learned learned;
        struct pl_trainer shipped = family.row[0]->trainer;

        draw(few, &family, &rng);
        judge(&before, &family, &shipped);
        pl_learn(&learned, &shipped, few, LEARN_ROWS, "learned");
        judge(&after, &family, &learned.trainer);
    }
    if (before.draws) {
        say_marks(name, "as shipped", &before, family.n);
        say_marks(name, "learned from 8", &after, family.n);
    }
    family_done(&family);
}

void bench_learn(const struct rows *rows)
{
    const char *family[MAX_FAMILIES];
    size_t n = families_of(family, rows);

    for (size_t f = 0; f < n; f++)
        learn_family(rows, family[f]);
}
