/*
 * bench_search [--seeds N] [--trials N] [--only CASE] [--thin SHARE] TABLE.json...
 * bench_search --generated N [--from K] [--only CASE] [--parallel Q] [--rough SD] [--to-end]
 * bench_search --generated N --fidelity auto [--from K]
 * bench_search --warm N [--source OTHER.json TABLE.json... | --generated N]
 *
 * How many trials the search needs on tables of throughputs, one JSON object a line: the median
 * over seeds of the trials until within 5, 3 and 1 % of the best, the share of the trials up to the
 * 5 % hit that ran out of memory, and how well P(fits) was calibrated; for every way of searching,
 * random and grid next to it. With --fidelity, device-seconds with smaller trials over those
 * without (sized.h). With --warm, cold and informed by an earlier campaign. With --to-end, when
 * campaigns end by themselves, and what their winners lose. Then the time of an ask and of a refit
 * at 200 observations in large spaces. 2 % noise.
 */
#include <math.h>

#include "tests/bench/generate.h"
#include "tests/bench/landscape.h"
#include "tests/bench/sized.h"

struct options {
    int seeds, trials, generated, from, parallel;
    double noise, claimed, frequency, regret, thin, rough;
    const char *only, *source, *fidelity;
    int warm;
    bool no_speed, verbose, trace, to_end;
};

static const struct opt option_table[] = {
    {.name = "seeds",
     .type = OPT_INT,
     .offset = offsetof(struct options, seeds),
     .min = 1,
     .max = 1000,
     .standard = "20",
     .help = "campaigns a case"},
    {.name = "trials",
     .type = OPT_INT,
     .offset = offsetof(struct options, trials),
     .min = 1,
     .max = 100000,
     .standard = "120",
     .help = "trials a campaign at most"},
    {.name = "generated",
     .type = OPT_INT,
     .offset = offsetof(struct options, generated),
     .min = 0,
     .max = 100000,
     .standard = "0",
     .help = "campaigns a case, each on a random landscape (generate.h), instead of tables"},
    {.name = "from",
     .type = OPT_INT,
     .offset = offsetof(struct options, from),
     .min = 0,
     .max = 1000000,
     .standard = "0",
     .help = "the first of them"},
    {.name = "parallel",
     .type = OPT_INT,
     .offset = offsetof(struct options, parallel),
     .min = 1,
     .max = 1024,
     .standard = "1",
     .help = "trials at once; wall_5pct is the mean time to 5 %, in lengths of a trial"},
    {.name = "warm",
     .type = OPT_INT,
     .offset = offsetof(struct options, warm),
     .min = 0,
     .max = SE_MAX_SOURCE_TRIALS,
     .standard = "0",
     .help = "after so many trials of an earlier campaign (generate.h, or of --source)"},
    {.name = "source",
     .type = OPT_STR,
     .offset = offsetof(struct options, source),
     .metavar = "TABLE.json",
     .help = "with --warm and tables: where the earlier campaign was"},
    {.name = "fidelity",
     .type = OPT_STR,
     .offset = offsetof(struct options, fidelity),
     .metavar = "auto|JSON",
     .help = "with --generated: what smaller trials save; as trial.fidelity of a campaign"},
    {.name = "noise",
     .type = OPT_F64,
     .offset = offsetof(struct options, noise),
     .min = 0,
     .max = 1,
     .standard = "0.02",
     .help = "relative standard deviation of a measurement"},
    {.name = "claimed",
     .type = OPT_F64,
     .offset = offsetof(struct options, claimed),
     .min = -1,
     .max = 1,
     .standard = "-1",
     .help = "standard error that it claims to have, the rest being between runs; -1: all of it"},
    {.name = "frequency",
     .type = OPT_F64,
     .offset = offsetof(struct options, frequency),
     .min = 0,
     .max = 10,
     .standard = "1",
     .help = "how fast the factor of warped changes (radians a doubling of each key)"},
    {.name = "regret",
     .type = OPT_F64,
     .offset = offsetof(struct options, regret),
     .min = 0,
     .max = 1,
     .standard = "0.003",
     .help = "expected regret that ends a campaign"},
    {.name = "thin",
     .type = OPT_F64,
     .offset = offsetof(struct options, thin),
     .min = 0,
     .max = 1,
     .standard = "0",
     .help = "leave out this share of layouts, others for each seed, none within 5 % of the best"},
    {.name = "rough",
     .type = OPT_F64,
     .offset = offsetof(struct options, rough),
     .min = 0,
     .max = 3,
     .standard = "0",
     .help = "standard deviation of a log factor that each layout has of its own"},
    {.name = "to-end",
     .type = OPT_FLAG,
     .offset = offsetof(struct options, to_end),
     .help = "go on until a campaign ends by itself: trials_to_end, and what its winner lost"},
    {.name = "only",
     .type = OPT_STR,
     .offset = offsetof(struct options, only),
     .metavar = "CASE",
     .help = "only cases whose name holds this"},
    {.name = "no-speed",
     .type = OPT_FLAG,
     .offset = offsetof(struct options, no_speed),
     .help = "leave the timings out"},
    {.name = "verbose",
     .letter = 'v',
     .type = OPT_FLAG,
     .offset = offsetof(struct options, verbose),
     .help = "print every campaign"},
    {.name = "trace",
     .type = OPT_FLAG,
     .offset = offsetof(struct options, trace),
     .help = "print every trial"},
};

/* ---- priors that mislead ------------------------------------------------- */

struct reversed {
    const struct se_spec *spec;
    double mirror; /* sum of the least and the greatest log throughput */
    bool memory;
};

static void plain_prior(struct se_prior *ret, const struct pl_layout *l, const struct se_spec *s)
{
    struct pl_problem p = se_spec_problem(s);
    struct pl_cost cost;
    struct pl_memory memory;

    memset(ret, 0, sizeof(*ret));
    pl_cost(&cost, &p, l);
    pl_memory_worst(&memory, &p, l);
    ret->log_throughput = log(cost.tokens_per_s);
    ret->log_memory = log(memory.total);
}

/* The cost model's ranking turned round. */
static void reversed_prior(struct se_prior *ret, const struct pl_layout *l, void *arg)
{
    const struct reversed *r = arg;

    plain_prior(ret, l, r->spec);
    ret->log_throughput = r->mirror - ret->log_throughput;
}

static void reverse(struct reversed *r, const struct landscape *l)
{
    double lo = INFINITY, hi = -INFINITY;

    r->spec = &l->spec;
    for (size_t i = 0; i < l->n; i++) {
        struct se_prior p;

        plain_prior(&p, &l->layout[i], &l->spec);
        lo = fmin(lo, p.log_throughput);
        hi = fmax(hi, p.log_throughput);
    }
    r->mirror = lo + hi;
}

/* ---- cases --------------------------------------------------------------- */

struct one_case {
    const char *name;
    enum se_method method;
    bool prior, memory_prior, reversed, warped;
    int warm; /* 0: cold; else 1 + enum landscape_kin of the campaign that informs it */
};

static const struct one_case cases[] = {
    {"model", SE_BAYES, true, true, false, false, 0},
    {"warped", SE_BAYES, true, true, false, true, 0},
    {"prior-none", SE_BAYES, false, true, false, false, 0},
    {"memory-none", SE_BAYES, true, false, false, false, 0},
    {"both-none", SE_BAYES, false, false, false, false, 0},
    {"reversed", SE_BAYES, true, true, true, false, 0},
    {"random", SE_RANDOM, false, false, false, false, 0},
    {"grid", SE_GRID, false, false, false, false, 0},
};

/* --warm: an earlier campaign informs this one. Tables have one other, the generated ones several
 * kinds of it. */
enum {
    WARM_RELATED = 1 + LANDSCAPE_RELATED,
    WARM_UNRELATED = 1 + LANDSCAPE_UNRELATED,
    WARM_OPPOSED = 1 + LANDSCAPE_OPPOSED
};
static const struct one_case warm_cases[] = {
    {"cold", SE_BAYES, true, true, false, false, 0},
    {"warm", SE_BAYES, true, true, false, false, WARM_RELATED},
    {"warped-cold", SE_BAYES, true, true, false, true, 0},
    {"warped-warm", SE_BAYES, true, true, false, true, WARM_RELATED},
    {"unrelated", SE_BAYES, true, true, false, false, WARM_UNRELATED},
    {"opposed", SE_BAYES, true, true, false, false, WARM_OPPOSED},
};

static struct landscape_noise noise_of(const struct options *o)
{
    return (struct landscape_noise){o->noise, o->claimed < 0.0 ? o->noise : o->claimed};
}

/* The first trials of the earlier campaign of case C with landscape SEED. */
static void earlier(struct se_source *ret, const struct one_case *c, const struct options *o,
                    int seed)
{
    struct landscape kin;
    struct err e;

    if (!o->source) {
        landscape_generate_kin(&kin, (uint64_t)(o->from + seed), (enum landscape_kin)(c->warm - 1));
    } else if (landscape_load(&kin, o->source, &e) < 0) {
        fprintf(stderr, "bench_search: %s\n", e.text);
        exit(1);
    }
    if (c->warped)
        landscape_warp(&kin, o->frequency, 1000 + (uint64_t)seed);
    landscape_past(ret, &kin, noise_of(o), o->warm, 5000 + (uint64_t)seed);
    landscape_done(&kin);
}

static int by_int(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Median with 0 (never) as infinite, which is printed as -1. */
static double median(const int *v, int n)
{
    AUTO_FREE int *sorted = mem_alloc((size_t)n * sizeof(int));
    double lo, hi;

    for (int i = 0; i < n; i++)
        sorted[i] = v[i] > 0 ? v[i] : INT32_MAX;
    qsort(sorted, (size_t)n, sizeof(int), by_int);
    lo = sorted[(n - 1) / 2];
    hi = sorted[n / 2];
    return hi >= INT32_MAX ? -1.0 : 0.5 * (lo + hi);
}

/* Geometric mean, never counted as the budget: it moves where a median of small counts does not. */
static double geometric(const int *v, int n, int never)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        sum += log(v[i] > 0 ? v[i] : never);
    return exp(sum / n);
}

static void print_reliability(const struct race *sum)
{
    printf("\"p_fits\":{\"n\":%d,\"brier\":%.4f,\"bins\":[", sum->npredicted,
           sum->npredicted ? sum->log_score / sum->npredicted : 0.0);
    for (int b = 0; b < 10; b++)
        printf("%s[%d,%.3f,%.3f]", b ? "," : "", sum->bin_count[b],
               sum->bin_count[b] ? sum->bin_sum[b] / sum->bin_count[b] : 0.0,
               sum->bin_count[b] ? (double)sum->bin_fit[b] / sum->bin_count[b] : 0.0);
    printf("]}");
}

static void add(struct race *sum, const struct race *r)
{
    sum->log_score += r->log_score;
    sum->npredicted += r->npredicted;
    for (int b = 0; b < 10; b++) {
        sum->bin_count[b] += r->bin_count[b];
        sum->bin_fit[b] += r->bin_fit[b];
        sum->bin_sum[b] += r->bin_sum[b];
    }
}

/* How campaigns ended by themselves: after how many trials (TRIALS, of all together), and how far
 * their winners are from the best. */
static void print_end(const double *lost, int n, int trials)
{
    double sum = 0.0;
    int far = 0;

    for (int i = 0; i < n; i++) {
        sum += lost[i];
        far += lost[i] > 0.05;
    }
    printf("\"trials_to_end\":%.2f,\"lost\":%.4f,\"lost_over_5pct\":%d,", (double)trials / n,
           sum / n, far);
}

/* PRIORLESS is the median of the same table without a prior, or negative; returns this one's. */
static double run_case(const char *path, const struct one_case *c, const struct options *o,
                       double priorless)
{
    struct race sum = {0};
    AUTO_FREE int *hit5 = mem_alloc((size_t)o->seeds * sizeof(int));
    AUTO_FREE int *hit3 = mem_alloc((size_t)o->seeds * sizeof(int));
    AUTO_FREE int *hit1 = mem_alloc((size_t)o->seeds * sizeof(int));
    AUTO_FREE double *lost = mem_alloc((size_t)o->seeds * sizeof(double));
    int oom = 0, trials = 0, early = 0, wall5 = 0, wall1 = 0, all = 0;
    uint64_t begin = clock_mono_ns();
    char name[128] = "";
    bool measured = false;

    for (int seed = 0; seed < o->seeds; seed++) {
        struct landscape l;
        struct reversed r = {0};
        struct se_source past = {0};
        struct se_spec spec;
        struct race race;
        struct err e = {0};

        if (!path) {
            landscape_generate(&l, (uint64_t)(o->from + seed));
        } else if (landscape_load(&l, path, &e) < 0) {
            fprintf(stderr, "bench_search: %s%s%s\n", e.pointer, e.pointer[0] ? ": " : "", e.text);
            exit(1);
        }
        snprintf(name, sizeof(name), "%s", l.name);
        measured = l.measured;
        if (c->warped)
            landscape_warp(&l, o->frequency, 1000 + (uint64_t)seed);
        if (o->rough > 0.0)
            landscape_roughen(&l, o->rough, 3000 + (uint64_t)seed);
        if (o->thin > 0.0)
            landscape_thin(&l, o->thin, 9000 + (uint64_t)seed);
        spec = l.spec;
        spec.method = c->method;
        spec.use_prior = c->prior;
        spec.use_memory_prior = c->memory_prior;
        spec.seed = (uint64_t)seed;
        spec.regret_share = o->regret;
        spec.parallel = o->parallel;
        if (c->warm) {
            earlier(&past, c, o, seed);
            spec.source = &past;
            spec.nsources = 1;
        }
        if (c->reversed) {
            reverse(&r, &l);
            spec.prior_fn = reversed_prior;
            spec.prior_arg = &r;
        }
        landscape_race(&race, &l, &spec, noise_of(o),
                       c->method == SE_BAYES ? o->trials : 20 * o->trials, o->to_end,
                       77 + (uint64_t)seed, o->trace ? stderr : NULL);
        hit5[seed] = race.hit5;
        hit3[seed] = race.hit3;
        hit1[seed] = race.hit1;
        wall5 += race.wall5 ? race.wall5 : race.wall;
        wall1 += race.wall1 ? race.wall1 : race.wall;
        oom += race.oom5;
        trials += race.hit5 ? race.hit5 : race.trials;
        all += race.trials;
        lost[seed] = race.lost;
        early += race.hit1 == 0 && str_eq(race.reason, "converged");
        add(&sum, &race);
        if (o->verbose)
            fprintf(stderr, "%s %s seed %d: 5%% at %d, 1%% at %d, %d oom, %d trials %s\n", l.name,
                    c->name, seed, race.hit5, race.hit1, race.oom5, race.trials, race.reason);
        landscape_past_done(&past);
        landscape_done(&l);
    }
    printf("{\"bench\":\"search%s\",\"case\":\"%s/%s\",\"value\":%g,\"unit\":\"trials to 5 "
           "%%\",\"trials_to_3pct\":%g,\"trials_to_1pct\":%g,"
           "\"mean_5pct\":%.2f,\"mean_1pct\":%.2f,\"parallel\":%d,\"wall_5pct\":%.3f,"
           "\"wall_1pct\":%.3f,\"oom_share\":%.4f,\"stopped_early\":%d,"
           "\"seconds\":%.2f,",
           measured ? "_sweep" : "", name, c->name, median(hit5, o->seeds), median(hit3, o->seeds),
           median(hit1, o->seeds), geometric(hit5, o->seeds, o->trials),
           geometric(hit1, o->seeds, o->trials), o->parallel, (double)wall5 / o->seeds,
           (double)wall1 / o->seeds, (double)oom / trials, early,
           1e-9 * (double)(clock_mono_ns() - begin) / o->seeds);
    if (o->to_end)
        print_end(lost, o->seeds, all);
    if (c->reversed && priorless > 0.0)
        printf("\"to_priorless\":%.2f,", median(hit5, o->seeds) / priorless);
    print_reliability(&sum);
    printf("}\n");
    fflush(stdout);
    return median(hit5, o->seeds);
}

static void run_cases(const char *path, const struct options *o)
{
    const struct one_case *list = o->warm > 0 ? warm_cases : cases;
    size_t n = o->warm > 0 ? ARRAY_LEN(warm_cases) : ARRAY_LEN(cases);
    double priorless = -1.0;

    for (size_t c = 0; c < n; c++) {
        bool plain = list[c].method == SE_BAYES && !list[c].prior && list[c].memory_prior;

        if (o->only && !strstr(list[c].name, o->only))
            continue;
        if (o->warm > 0 && (path ? list[c].warm > WARM_RELATED : list[c].warped))
            continue; /* what there is of the one and not of the other */
        double trials = run_case(path, &list[c], o, priorless);

        if (plain)
            priorless = trials;
    }
}

/* ---- speed --------------------------------------------------------------- */

/* A campaign whose space has about the wanted number of legal layouts. */
static const struct {
    const char *name, *campaign;
} large[] = {
    {"1e5",
     "{'model': 'gpt-175B', 'cluster': {'profile': 'dgx-h100', 'nodes': 128}, 'trainer': 'any',"
     " 'workload': {'global_batch': 2048, 'precision': 'bf16'}, 'space': {'world': [1024], "
     "'overlap_p2p': 0,"
     " 'schedule': ['1f1b', 'interleaved']}}"},
    {"1e6",
     "{'model': 'gpt-175B', 'cluster': {'profile': 'dgx-h100', 'nodes': 512}, 'trainer': 'any',"
     " 'workload': {'global_batch': 4096, 'precision': 'bf16'}, 'space': {'world': [256, 512, "
     "1024, 2048, 4096],"
     " 'schedule': ['1f1b', 'interleaved']}}"},
};

/* Informed by WARM trials of a generated landscape, if that is not 0. */
static struct se_search *open_large(const char *text, double *seconds, struct se_spec *spec,
                                    int warm)
{
    struct se_source past = {0};
    struct landscape earlier;
    AUTO_FREE char *json = mem_strdup(text);
    AUTO_JSON *campaign = NULL;
    struct se_search *s = NULL;
    struct err e = {0};
    uint64_t begin;

    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (jx_parse(&campaign, json, strlen(json), &e) < 0 ||
        se_spec_parse(spec, campaign, NULL, &e) < 0) {
        fprintf(stderr, "bench_search: %s: %s\n", e.pointer, e.text);
        exit(1);
    }
    spec->async_refit = true;
    spec->parallel = 1000;
    spec->regret_share = 0.0;
    if (warm > 0) {
        landscape_generate(&earlier, 1);
        landscape_past(&past, &earlier, (struct landscape_noise){0.02, 0.02}, warm, 1);
        landscape_done(&earlier);
        spec->source = &past;
        spec->nsources = 1;
    }
    begin = clock_mono_ns();
    if (se_search_new(&s, spec, &e) < 0) {
        fprintf(stderr, "bench_search: %s: %s\n", e.pointer, e.text);
        exit(1);
    }
    *seconds = 1e-9 * (double)(clock_mono_ns() - begin);
    landscape_past_done(&past);
    spec->source = NULL;
    spec->nsources = 0;
    return s;
}

/* An outcome that differs smoothly from the prediction of nothing told: some out of memory. */
static void tell_something(struct se_search *s, const struct se_trial *t, struct rng *r)
{
    const struct pl_layout *l = &t->layout;
    struct se_outcome o = {.status = rng_unit(r) < 0.15 ? SE_OOM : SE_OK};
    struct err e;

    o.tokens_per_s = 3e6 * l->world / 1024 *
                     exp(0.2 * sin(log2(l->tp) + 2.0 * log2(l->pp)) - 0.1 * log2(l->micro_batch)) *
                     exp(0.02 * rng_normal(r));
    o.tokens_per_s_se = 0.02 * o.tokens_per_s;
    if (se_tell(s, t->id, &o, &e) < 0)
        fprintf(stderr, "bench_search: %s\n", e.text);
}

/* Seconds of this thread's processor: the same on a busy machine. */
static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The same of all threads together. */
static double process_cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Observations: a fifth proposed, as a campaign would have them, the others anywhere. */
static void observe_many(struct se_search *s, const struct se_spec *spec, int n, struct rng *r)
{
    struct pl_problem p = se_spec_problem(spec);
    struct pl_layout *list = NULL;
    size_t count = 0;
    struct err e;

    pl_space_list(&list, &count, SE_MAX_LAYOUTS, spec->space, &p, NULL, &e);
    for (int i = 0; i < n; i++) {
        struct se_trial t = {.id = i + 1};

        if (i % 5 != 0) {
            t.layout = list[rng_below(r, count)];
            if (se_restore(s, t.id, &t.layout, 0, &e) < 0)
                continue;
        } else if (se_ask(&t, s) != SE_TRIAL) {
            break;
        }
        tell_something(s, &t, r);
    }
    free(list);
}

static void run_speed(size_t which, int warm)
{
    double opened, begin, fit, ask[5], cpu[5];
    struct se_spec spec;
    struct se_search *s = open_large(large[which].campaign, &opened, &spec, warm);
    struct se_refit *refit;
    struct se_trial t;
    struct rng r;
    json_t *d;

    rng_seed(&r, 3);
    observe_many(s, &spec, 200, &r);
    refit = se_refit_new(s);
    begin = cpu_s();
    se_refit_run(refit);
    fit = 1e3 * (cpu_s() - begin);
    se_refit_adopt(s, refit);
    for (size_t i = 0; i < ARRAY_LEN(ask); i++) {
        uint64_t asked = clock_mono_ns();

        begin = process_cpu_s();
        if (se_ask(&t, s) != SE_TRIAL)
            break;
        cpu[i] = 1e3 * (process_cpu_s() - begin);
        ask[i] = 1e-6 * (double)(clock_mono_ns() - asked);
        tell_something(s, &t, &r);
    }
    qsort(ask, ARRAY_LEN(ask), sizeof(double), by_double);
    qsort(cpu, ARRAY_LEN(cpu), sizeof(double), by_double);
    d = se_diagnosis_json(s);
    printf("{\"bench\":\"ask\",\"case\":\"%s layouts, 200 observations%s\",\"value\":%.1f,"
           "\"unit\":\"ms\",\"worst\":%.1f,\"cpu_ms\":%.1f,\"refit_ms\":%.1f,\"open_ms\":%.0f,"
           "\"legal\":%zu,"
           "\"exact_posteriors\":%lld,\"proved\":%s}\n",
           large[which].name, warm > 0 ? ", warm start" : "", ask[2], ask[4], cpu[2], fit,
           1e3 * opened, se_legal(s), json_integer_value(json_object_get(d, "exact_posteriors")),
           json_is_true(json_object_get(d, "proved")) ? "true" : "false");
    fflush(stdout);
    json_decref(d);
    se_search_free(s);
    se_spec_done(&spec);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct opt_set set = {.program = "bench_search",
                          .usage = "bench_search [options] TABLE.json...",
                          .section = "bench",
                          .table = option_table,
                          .count = ARRAY_LEN(option_table),
                          .values = &o};
    struct err e = {0};
    int operands;

    opt_init(&set);
    if (opt_from_argv(&operands, &set, argc, argv, 0, &e) < 0) {
        fprintf(stderr, "bench_search: %s\n", e.text);
        return 2;
    }
    if (o.generated > 0 && o.fidelity) {
        struct sized_options sized = {o.from,  o.generated, o.trials,
                                      o.noise, o.fidelity,  o.verbose};

        if (sized_bench(&sized, &e) < 0)
            fprintf(stderr, "bench_search: %s: %s\n", e.pointer, e.text);
        opt_done(&set);
        return e.code < 0 ? 2 : 0;
    }
    if (o.generated > 0) {
        o.seeds = o.generated;
        run_cases(NULL, &o);
        opt_done(&set);
        return 0;
    }
    for (int i = 1; i <= operands; i++)
        run_cases(argv[i], &o);
    for (size_t i = 0; !o.no_speed && i < ARRAY_LEN(large); i++)
        run_speed(i, o.warm);
    opt_done(&set);
    return 0;
}
