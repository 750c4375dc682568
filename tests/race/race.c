/*
 * race [options] NAME=COMMAND... [TABLE.json...]
 *
 * Searches that are programs (racer.h) against each other, on tables of throughputs and on random
 * landscapes: in how many trials each comes within 5 and 1 % of the best layout, and how many of
 * them run out of memory. Every search gets the same campaign, the same list of layouts and the
 * same noise: a layout's nth measurement of one seed is the same number for all.
 *
 * One JSON object a line for each search and table, medians over seeds; then one table. A search
 * that ends or fails before it is within reach has -1, "never", and counts as one trial more than
 * it may have.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/generate.h"
#include "tests/bench/landscape.h"
#include "tests/race/racer.h"

enum { MAX_RACERS = 32, MAX_SEEDS = 1000, MAX_FOREIGN = 10000 };

struct options {
    int seeds, trials, generated, from;
    double noise, patience_s;
};

static const struct opt option_table[] = {
    {.name = "seeds",
     .type = OPT_INT,
     .offset = offsetof(struct options, seeds),
     .min = 1,
     .max = MAX_SEEDS,
     .standard = "5",
     .help = "campaigns of each search on each table"},
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
     .standard = "20",
     .help = "random landscapes, one campaign of each search on each"},
    {.name = "from",
     .type = OPT_INT,
     .offset = offsetof(struct options, from),
     .min = 0,
     .max = 1000000,
     .standard = "5000",
     .help = "the first of them"},
    {.name = "noise",
     .type = OPT_F64,
     .offset = offsetof(struct options, noise),
     .min = 0,
     .max = 1,
     .standard = "0.02",
     .help = "relative standard deviation of a measurement"},
    {.name = "patience",
     .type = OPT_F64,
     .offset = offsetof(struct options, patience_s),
     .min = 0.1,
     .max = 86400,
     .standard = "300",
     .help = "seconds that a search may take for one answer"},
};

/* ---- one campaign -------------------------------------------------------- */

struct run {
    int trials, hit5, hit1; /* trial that first was within 5, 1 % of the best; 0: never */
    int oom;                /* out of memory up to hit5, or the end */
};

struct referee {
    const struct landscape *landscape;
    const struct options *options;
    uint64_t seed;
    int *times; /* (landscape->n): each layout has been measured so often */
    int foreign;
    struct run run;
};

static size_t find(const struct landscape *landscape, const struct pl_layout *layout)
{
    size_t i = 0;

    while (i < landscape->n && !pl_layout_equal(&landscape->layout[i], layout))
        i++;
    return i;
}

static double noise_of(struct referee *referee, size_t index)
{
    char text[160];
    struct rng rng;

    pl_layout_text(text, &referee->landscape->layout[index]);
    rng_seed(&rng, str_hash(text, strlen(text),
                            referee->seed + ((uint64_t)referee->times[index]++ << 32)));
    return exp(referee->options->noise * rng_normal(&rng));
}

static void count(struct run *run, const struct landscape *landscape, double truth)
{
    run->trials++;
    run->oom += truth <= 0 && !run->hit5;
    if (!run->hit5 && truth >= 0.95 * landscape->best)
        run->hit5 = run->trials;
    if (!run->hit1 && truth >= 0.99 * landscape->best)
        run->hit1 = run->trials;
}

/* What is told of TRIAL, an answer to an ask. */
static int measure(json_t **ret, struct referee *referee, const json_t *trial, struct err *error)
{
    const struct landscape *landscape = referee->landscape;
    struct pl_problem problem = se_spec_problem(&landscape->spec);
    struct pl_layout layout;
    double truth, seen;
    size_t index;
    int id = 0, r;

    if ((r = jx_need(trial, "id", error)) < 0 ||
        (r = jx_get_int(&id, trial, "id", 0, INT32_MAX, error)) < 0 ||
        (r = jx_need(trial, "layout", error)) < 0 ||
        (r = pl_layout_parse(&layout, json_object_get(trial, "layout"), &problem, error)) < 0)
        return r;
    index = find(landscape, &layout);
    if (index == landscape->n) {
        *ret = json_pack("{s:s, s:i, s:s}", "op", "tell", "id", id, "status", "infeasible");
        return ++referee->foreign > MAX_FOREIGN
                   ? err_set(error, -E2BIG, "more than %d layouts that are not in the list",
                             MAX_FOREIGN)
                   : 0;
    }
    truth = landscape->tokens[index];
    count(&referee->run, landscape, truth);
    seen = truth * noise_of(referee, index);
    *ret = truth > 0
               ? json_pack("{s:s, s:i, s:s, s:f, s:f}", "op", "tell", "id", id, "status", "ok",
                           "tokens_per_s", seen, "tokens_per_s_se", referee->options->noise * seen)
               : json_pack("{s:s, s:i, s:s}", "op", "tell", "id", id, "status", "oom");
    return 0;
}

/* Ask, measure, tell. *RET_MORE: there was a trial. */
static int turn(bool *ret_more, struct referee *referee, struct racer *racer, struct err *error)
{
    AUTO_JSON *answer = NULL, *said = NULL;
    json_t *tell = NULL;
    const char *op;
    int r = racer_ask(&answer, racer, json_pack("{s:s}", "op", "ask"), error);

    if (r < 0)
        return r;
    op = json_string_value(json_object_get(answer, "op"));
    *ret_more = op && str_eq(op, "trial");
    if (!*ret_more)
        return op && str_eq(op, "done")
                   ? 0
                   : err_set(error, -EINVAL, "an ask was answered neither \"trial\" nor \"done\"");
    r = measure(&tell, referee, answer, error);
    if (r < 0) {
        json_decref(tell);
        return r;
    }
    r = racer_ask(&said, racer, tell, error);
    op = r == 0 ? json_string_value(json_object_get(said, "op")) : "ok";
    if (r == 0 && (!op || !str_eq(op, "ok")))
        r = err_set(error, -EINVAL, "a tell was not answered \"ok\"");
    return r;
}

static void race(struct run *ret, struct racer *racer, const struct landscape *landscape,
                 const struct options *options, uint64_t seed, const char *folder)
{
    AUTO_FREE char *campaign = mem_printf("%s/campaign.json", folder);
    AUTO_FREE char *layouts = mem_printf("%s/layouts.jsonl", folder);
    AUTO_FREE int *times = mem_alloc(landscape->n * sizeof(*times));
    struct referee referee = {
        .landscape = landscape, .options = options, .seed = seed, .times = times};
    struct err error = {0};
    bool more = true;
    int r = racer_start(racer, campaign, layouts, &error);

    while (r == 0 && more && !referee.run.hit1 && referee.run.trials < options->trials)
        r = turn(&more, &referee, racer, &error);
    if (r < 0)
        fprintf(stderr, "race: %s on %s, seed %" PRIu64 ", after %d trials: %s%s%s\n", racer->name,
                landscape->name, seed, referee.run.trials, error.pointer,
                error.pointer[0] ? ": " : "", error.text);
    racer_end(racer);
    *ret = referee.run;
}

/* ---- what the searches read ---------------------------------------------- */

static int write_campaign(const struct landscape *landscape, const struct options *options,
                          uint64_t seed, const char *folder, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/campaign.json", folder);
    AUTO_JSON *campaign = json_copy(landscape->campaign);
    AUTO_FREE char *text = NULL;

    json_object_set_new(campaign, "search", json_pack("{s:I}", "seed", (json_int_t)seed));
    json_object_set_new(campaign, "budget", json_pack("{s:i}", "trials", options->trials));
    text = jx_dump(campaign);
    return file_write_atomic(path, text, strlen(text), 0600, error);
}

static int write_layouts(const struct landscape *landscape, const char *folder, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/layouts.jsonl", folder);
    AUTO_STR text = {0};

    for (size_t i = 0; i < landscape->n; i++) {
        AUTO_JSON *layout = pl_layout_json(&landscape->layout[i]);
        AUTO_FREE char *line = jx_dump(layout);

        str_addf(&text, "%s\n", line);
    }
    return file_write_atomic(path, str_text(&text), text.len, 0600, error);
}

/* ---- results ------------------------------------------------------------- */

enum { GENERATED, COMPUTED, MEASURED, GROUPS };
static const char *const group_names[GROUPS] = {"generated", "computed", "measured"};

/* Of one search on the landscapes of one group. */
struct score {
    double *hit5, *hit1; /* (n): of each landscape, the median over seeds */
    int n, cap;
    long oom, trials; /* up to the 5 % hit, of all seeds */
};

static int by_value(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;

    return (x > y) - (x < y);
}

static double median(const double *value, int n)
{
    AUTO_FREE double *sorted = mem_alloc((size_t)n * sizeof(*sorted));

    memcpy(sorted, value, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static void add_score(struct score *score, double hit5, double hit1)
{
    if (score->n == score->cap) {
        score->cap = score->cap ? 2 * score->cap : 16;
        score->hit5 = mem_realloc(score->hit5, (size_t)score->cap * sizeof(double));
        score->hit1 = mem_realloc(score->hit1, (size_t)score->cap * sizeof(double));
    }
    score->hit5[score->n] = hit5;
    score->hit1[score->n++] = hit1;
}

/* -1 for what is beyond the trials that a campaign may have. */
static double shown(double hit, const struct options *options)
{
    return hit > options->trials ? -1 : hit;
}

/* All seeds of one search on one landscape. */
static int race_seeds(struct score *score, struct racer *racer, const struct landscape *landscape,
                      const struct options *options, int seeds, const char *folder,
                      struct err *error)
{
    double hit5[MAX_SEEDS], hit1[MAX_SEEDS];
    long oom = 0, trials = 0;
    int r = 0;

    for (int seed = 0; seed < seeds && r == 0; seed++) {
        struct run run;

        r = write_campaign(landscape, options, (uint64_t)seed + 1, folder, error);
        if (r < 0)
            return r;
        race(&run, racer, landscape, options, (uint64_t)seed + 1, folder);
        hit5[seed] = run.hit5 ? run.hit5 : options->trials + 1;
        hit1[seed] = run.hit1 ? run.hit1 : options->trials + 1;
        oom += run.oom;
        trials += run.hit5 ? run.hit5 : run.trials;
    }
    add_score(score, median(hit5, seeds), median(hit1, seeds));
    score->oom += oom;
    score->trials += trials;
    printf("{\"bench\":\"race\",\"case\":\"%s/%s\",\"value\":%g,\"unit\":\"trials to 5 %%\","
           "\"trials_to_1pct\":%g,\"oom_share\":%.4f,\"layouts\":%zu}\n",
           landscape->name, racer->name, shown(median(hit5, seeds), options),
           shown(median(hit1, seeds), options), trials ? (double)oom / (double)trials : 0,
           landscape->n);
    fflush(stdout);
    return 0;
}

static void print_hit(double hit, const struct options *options)
{
    if (hit > options->trials)
        printf(" %8s", "never");
    else
        printf(" %8g", hit);
}

static void print_table(struct score (*score)[GROUPS], const struct racer *racer, int racers,
                        const struct options *options)
{
    printf("\n%-10s %-20s %8s %8s %8s %8s %8s\n", "landscapes", "search", "to 5 %", "worst",
           "to 1 %", "no fit", "tables");
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < racers; i++) {
            const struct score *s = &score[i][group];
            double worst = 0;

            if (s->n == 0)
                continue;
            for (int k = 0; k < s->n; k++)
                worst = fmax(worst, s->hit5[k]);
            printf("%-10s %-20s", group_names[group], racer[i].name);
            print_hit(median(s->hit5, s->n), options);
            print_hit(worst, options);
            print_hit(median(s->hit1, s->n), options);
            printf(" %7.1f%% %8d\n", s->trials ? 100.0 * (double)s->oom / (double)s->trials : 0,
                   s->n);
        }
    printf("Trials, medians over tables; \"never\" is more than %d. No fit: share of the trials "
           "up to 5 %% that ran out of memory.\n",
           options->trials);
}

/* ---- the program --------------------------------------------------------- */

struct field {
    struct racer racer[MAX_RACERS];
    struct score score[MAX_RACERS][GROUPS];
    int n;
    char folder[4096];
};

/* All searches on one landscape, which is freed. */
static int race_all(struct field *field, struct landscape *landscape, int group, int seeds,
                    const struct options *options, struct err *error)
{
    int r = write_layouts(landscape, field->folder, error);

    for (int i = 0; i < field->n && r == 0; i++)
        r = race_seeds(&field->score[i][group], &field->racer[i], landscape, options, seeds,
                       field->folder, error);
    landscape_done(landscape);
    return r;
}

static int run_tables(struct field *field, char **operand, int operands,
                      const struct options *options, struct err *error)
{
    struct landscape landscape;
    int r = 0;

    for (int i = 0; i < options->generated && r == 0; i++) {
        landscape_generate(&landscape, (uint64_t)(options->from + i));
        snprintf(landscape.name, sizeof(landscape.name), "generated-%d", options->from + i);
        r = race_all(field, &landscape, GENERATED, 1, options, error);
    }
    for (int i = 0; i < operands && r == 0; i++) {
        if (strchr(operand[i], '='))
            continue;
        r = landscape_load(&landscape, operand[i], error);
        if (r == 0)
            r = race_all(field, &landscape, landscape.measured ? MEASURED : COMPUTED,
                         options->seeds, options, error);
    }
    return r;
}

/* NAME=COMMAND of the operands. */
static int read_racers(struct field *field, char **operand, int operands,
                       const struct options *options, struct err *error)
{
    for (int i = 0; i < operands; i++) {
        char *equal = strchr(operand[i], '=');

        if (!equal)
            continue;
        if (field->n == MAX_RACERS || equal == operand[i] || equal[1] == 0)
            return err_set(error, -EINVAL, "%s: NAME=COMMAND, at most %d of them", operand[i],
                           MAX_RACERS);
        field->racer[field->n++] = (struct racer){
            .name = mem_printf("%.*s", (int)(equal - operand[i]), operand[i]),
            .command = equal + 1,
            .patience_s = options->patience_s,
        };
    }
    return field->n ? 0 : err_set(error, -EINVAL, "no search was named: NAME=COMMAND");
}

static int run(struct field *field, char **operand, int operands, const struct options *options,
               struct err *error)
{
    const char *tmp = getenv("TMPDIR");
    struct err ignored;
    int r = read_racers(field, operand, operands, options, error);

    if (r < 0)
        return r;
    snprintf(field->folder, sizeof(field->folder), "%s/partune-race.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(field->folder))
        return err_set(error, -errno, "make a folder %s: %s", field->folder, strerror(errno));
    r = run_tables(field, operand, operands, options, error);
    file_remove_tree(field->folder, &ignored);
    if (r == 0)
        print_table(field->score, field->racer, field->n, options);
    return r;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct opt_set set = {.program = "race",
                          .usage = "race [options] NAME=COMMAND... [TABLE.json...]",
                          .section = "race",
                          .table = option_table,
                          .count = ARRAY_LEN(option_table),
                          .values = &o};
    static struct field field;
    struct err e = {0};
    int operands = 0;

    signal(SIGPIPE, SIG_IGN);
    opt_init(&set);
    if (opt_from_argv(&operands, &set, argc, argv, 0, &e) == 0)
        run(&field, argv + 1, operands, &o, &e);
    if (e.text[0])
        fprintf(stderr, "race: %s%s%s\n", e.pointer, e.pointer[0] ? ": " : "", e.text);
    for (int i = 0; i < field.n; i++) {
        free((char *)field.racer[i].name);
        for (int group = 0; group < GROUPS; group++) {
            free(field.score[i][group].hit5);
            free(field.score[i][group].hit1);
        }
    }
    opt_done(&set);
    return e.text[0] ? 2 : 0;
}
