/* Campaigns with smaller trials; see sized.h. */
#include "tests/bench/sized.h"

#include <math.h>

#include "tests/bench/generate.h"

struct cost {
    double full5, small5; /* device-seconds to the first trial within 5 %, at full and any size */
    double spent;
    int trials, full_trials, oom;
    bool hit, wrong; /* WRONG: it ended, and its winner is more than 3 % below the best */
};

static size_t index_of(const struct landscape *l, const struct pl_layout *at)
{
    size_t i = 0;

    while (!pl_layout_equal(&l->layout[i], at))
        i++;
    return i;
}

/* Device-seconds of a trial of TOKENS a second, and its outcome. One that runs out of memory has
 * started for nothing. */
static double run(struct se_outcome *ret, const struct landscape *l, const struct se_trial *t,
                  double tokens, double noise, struct rng *r)
{
    struct pl_problem p = se_spec_problem(&l->spec);
    struct pl_trial_limits limits = l->spec.limits;
    struct pl_reduced reduced = {.workload = l->spec.workload, .layout = t->layout};
    double seconds;

    if (t->fidelity > 0) {
        pl_reduce(&reduced, &p, &t->layout, &l->spec.fidelity[t->fidelity - 1]);
        limits = pl_fidelity_limits(&limits, &l->spec.fidelity[t->fidelity - 1]);
    }
    *ret = (struct se_outcome){.status = tokens > 0.0 ? SE_OK : SE_OOM};
    if (tokens <= 0.0)
        return reduced.layout.world * l->spec.trial_start_s;
    ret->tokens_per_s = tokens * exp(noise * rng_normal(r));
    ret->tokens_per_s_se = noise * ret->tokens_per_s;
    seconds = (double)reduced.workload.global_batch * reduced.workload.seq / tokens;
    return reduced.layout.world *
           (l->spec.trial_start_s + pl_trial_steps_expected(&limits) * seconds);
}

static void count(struct cost *cost, const struct se_trial *t, double truth, double best)
{
    cost->trials++;
    cost->full_trials += t->fidelity == 0;
    if (truth < 0.95 * best)
        return;
    if (cost->small5 == 0.0)
        cost->small5 = cost->spent;
    if (t->fidelity == 0 && !cost->hit) {
        cost->hit = true;
        cost->full5 = cost->spent;
    }
}

static void print_trial(const struct landscape *l, const struct se_trial *t, double truth,
                        double spent)
{
    char text[160];

    fprintf(stderr, "  %3d at %d %s: %.3f of the best, expected %.3f, fits %.2f; %.3g s; %s\n",
            t->id, t->fidelity, pl_layout_text(text, &t->layout), truth / l->best,
            t->predicted.tokens_per_s / l->best, t->predicted.p_fits, spent, t->why);
}

/* One campaign to its first full-size trial within 5 %, or its end. */
static void race(struct cost *ret, const struct landscape *l, const struct truth *x,
                 const struct se_spec *spec, const struct sized_options *o, uint64_t seed)
{
    AUTO(se_search) *s = NULL;
    struct se_trial t;
    struct se_best best;
    struct rng r;
    struct err e = {0};

    memset(ret, 0, sizeof(*ret));
    rng_seed(&r, seed);
    if (se_search_new(&s, spec, &e) < 0) {
        fprintf(stderr, "sized: %s\n", e.text);
        return;
    }
    while (ret->trials < o->trials && !ret->hit && se_ask(&t, s) == SE_TRIAL) {
        size_t i = index_of(l, &t.layout);
        struct se_outcome outcome;

        ret->spent +=
            run(&outcome, l, &t,
                t.fidelity > 0 ? landscape_small(x, l, i, t.fidelity) : l->tokens[i], o->noise, &r);
        ret->oom += outcome.status == SE_OOM;
        count(ret, &t, l->tokens[i], l->best);
        if (o->verbose)
            print_trial(l, &t, l->tokens[i], ret->spent);
        if (se_tell(s, t.id, &outcome, &e) < 0)
            fprintf(stderr, "sized: %s\n", e.text);
    }
    if (!ret->hit)
        ret->full5 = ret->spent;
    ret->wrong = !ret->hit &&
                 (se_best(&best, s) < 0 || l->tokens[index_of(l, &best.layout)] < 0.97 * l->best);
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(double), by_double);
    return 0.5 * (v[(n - 1) / 2] + v[n / 2]);
}

struct sums {
    double units[2], log_ratio, trials[2], full_trials, seen;
    int missed[2], wrong;
    double *ratio;
};

/* Device-seconds of a full-size trial of the best layout. */
static double unit_of(const struct landscape *l)
{
    struct se_trial t = {0};
    struct se_outcome outcome;
    struct rng r;
    size_t i = 0;

    while (l->tokens[i] < l->best)
        i++;
    t.layout = l->layout[i];
    rng_seed(&r, 1);
    return run(&outcome, l, &t, l->best, 0.0, &r);
}

static void one(struct sums *sum, const struct sized_options *o, const json_t *trial, int k)
{
    struct landscape l;
    struct truth *x = landscape_generate_sized(&l, (uint64_t)(o->from + k));
    struct se_spec spec = l.spec;
    double unit = unit_of(&l);
    struct cost full, small;
    struct err e = {0};

    spec.seed = (uint64_t)k;
    race(&full, &l, x, &spec, o, 77 + (uint64_t)k);
    pl_fidelities_parse(l.spec.fidelity, &l.spec.nfidelities, trial, &e);
    memcpy(spec.fidelity, l.spec.fidelity, sizeof(spec.fidelity));
    spec.nfidelities = l.spec.nfidelities;
    race(&small, &l, x, &spec, o, 77 + (uint64_t)k);
    sum->ratio[k] = small.full5 / full.full5;
    sum->units[0] += full.full5 / unit / o->count;
    sum->units[1] += small.full5 / unit / o->count;
    sum->log_ratio += log(sum->ratio[k]) / o->count;
    sum->seen += log((small.small5 > 0.0 ? small.small5 : small.spent) /
                     (full.small5 > 0.0 ? full.small5 : full.spent)) /
                 o->count;
    sum->trials[0] += (double)full.trials / o->count;
    sum->trials[1] += (double)small.trials / o->count;
    sum->full_trials += (double)small.full_trials / o->count;
    sum->missed[0] += !full.hit;
    sum->missed[1] += !small.hit;
    sum->wrong += small.wrong;
    if (o->verbose)
        fprintf(stderr,
                "landscape %d: %d trials %.3g s, with fidelities %d (%d full) %.3g s: %.3f\n",
                o->from + k, full.trials, full.full5, small.trials, small.full_trials, small.full5,
                sum->ratio[k]);
    free(x);
    landscape_done(&l);
}

int sized_bench(const struct sized_options *o, struct err *error)
{
    AUTO_JSON *trial = json_object();
    AUTO_JSON *value = o->fidelity[0] == '{' || o->fidelity[0] == '['
                           ? json_loads(o->fidelity, 0, NULL)
                           : json_string(o->fidelity);
    double AUTO_FREE *ratio = mem_alloc((size_t)o->count * sizeof(double));
    struct sums sum = {.ratio = ratio};
    struct pl_fidelity list[PL_MAX_FIDELITIES];
    int n = 0, r;

    json_object_set(trial, "fidelity", value ? value : json_null());
    if ((r = pl_fidelities_parse(list, &n, trial, error)) < 0)
        return r;
    for (int k = 0; k < o->count; k++)
        one(&sum, o, trial, k);
    printf("{\"bench\":\"fidelity\",\"case\":\"generated\",\"value\":%.3f,\"unit\":"
           "\"device-seconds to 5 %%, over "
           "without\",\"units\":%.2f,\"units_without\":%.2f,\"geometric\":%.3f,\"median\":%.3f,"
           "\"seen\":%.3f,\"landscapes\":%d,"
           "\"trials\":%.1f,\"full_trials\":%.1f,\"trials_without\":%.1f,\"missed\":%d,"
           "\"missed_without\":%d,\"wrong\":%d}\n",
           sum.units[1] / sum.units[0], sum.units[1], sum.units[0], exp(sum.log_ratio),
           median(ratio, o->count), exp(sum.seen), o->count, sum.trials[1], sum.full_trials,
           sum.trials[0], sum.missed[1], sum.missed[0], sum.wrong);
    fflush(stdout);
    return 0;
}
