/*
 * sweep [--seconds N] [--repeats N] CAMPAIGN.json TABLE.json
 *
 * Measures every legal layout of a campaign's space with partune-train on this machine and keeps
 * the result as a table of throughputs: a landscape that is real. It works in slices: each call
 * resumes where TABLE.json ends and stops after --seconds, so that a long sweep can be shared with
 * other work. Every layout is measured --repeats times, in rounds of alternating direction, so that
 * a drift of the machine falls on all layouts alike; then those within 8 % of the best until they
 * have --leaders, since the best of many noisy values is the one that was luckiest.
 *
 * TABLE.json: the keys of the other landscapes (model, system, gpus, global_batch, hidden, layers,
 * heads, seq, ffn, origin, rows), next to them "campaign", which says all of it again in the
 * product's words, and "fingerprint", what measured. A row holds the keys of the layout that the
 * space varies ("mb" for micro_batch, as in the other tables), tokens_per_s (the median of its
 * repeats; null where the trial failed, with "status") and the repeats themselves.
 */
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/base.h"
#include "search/search.h"

extern char **environ;

struct options {
    double seconds;
    int repeats, leaders, steps;
    const char *train, *mpiexec, *scratch;
};

#define ROW(n, t, f, lo, hi, std, mv, hp)                                                          \
    {                                                                                              \
        .name = n, .type = t, .offset = offsetof(struct options, f), .min = lo, .max = hi,         \
        .standard = std, .metavar = mv, .help = hp                                                 \
    }

static const struct opt option_table[] = {
    ROW("seconds", OPT_F64, seconds, 1, 86400, "50", NULL, "end the slice after so long"),
    ROW("repeats", OPT_INT, repeats, 1, 100, "2", NULL, "measurements of each layout"),
    ROW("leaders", OPT_INT, leaders, 1, 100, "4", NULL, "measurements of those near the best"),
    ROW("steps", OPT_INT, steps, 2, 1000, "6", NULL, "measured steps of a trial"),
    ROW("train", OPT_STR, train, 0, 0, "./partune-train", "PROGRAM", "the trainer"),
    ROW("mpiexec", OPT_STR, mpiexec, 0, 0, "mpiexec", "PROGRAM", "starts the ranks"),
    ROW("scratch", OPT_STR, scratch, 0, 0, ".", "DIR", "for configuration and events"),
};

/* ---- the table ----------------------------------------------------------- */

static double seconds_now(void)
{
    return 1e-9 * (double)clock_mono_ns();
}

/* Model name of the processor, as the kernel prints it. */
static json_t *processor(void)
{
    AUTO_FREE char *text = NULL;
    const char *at;
    struct err e;

    if (file_read_all(&text, NULL, "/proc/cpuinfo", 16 << 20, &e) < 0 ||
        !(at = strstr(text, "model name")) || !(at = strchr(at, ':')))
        return json_null();
    at += strspn(at, ": \t");
    return json_stringn(at, strcspn(at, "\n"));
}

static json_t *row_of(const struct pl_layout *l, const struct pl_space *s)
{
    json_t *row = json_object(), *all = pl_layout_json(l);

    for (const struct pl_layout_key *k = pl_layout_keys; k->name; k++) {
        bool always = str_eq(k->name, "tp") || str_eq(k->name, "pp") || str_eq(k->name, "vp");

        if (k->part != PL_DERIVED && (always || pl_space_axis(s, k->name)->n > 1) &&
            json_object_get(all, k->name))
            json_object_set(row, str_eq(k->name, "micro_batch") ? "mb" : k->name,
                            json_object_get(all, k->name));
    }
    json_decref(all);
    json_object_set_new(row, "tokens_per_s", json_null());
    json_object_set_new(row, "repeats", json_array());
    return row;
}

static json_t *new_table(json_t *campaign, const struct se_spec *s, const struct pl_layout *l,
                         size_t n)
{
    const struct pl_model *m = &s->model;
    json_t *rows = json_array();
    json_t *print = json_pack("{s:o, s:i}", "cpu", processor(), "cores",
                              (int)pl_cluster_devices(&s->cluster[0]));

    for (size_t i = 0; i < n; i++)
        json_array_append_new(rows, row_of(&l[i], s->space));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:O, s:o, s:o}", "model",
                     m->name, "system", s->cluster[0].name, "gpus", l[0].world, "global_batch",
                     s->workload.global_batch, "hidden", m->hidden, "layers", m->layers, "heads",
                     m->heads, "seq", s->workload.seq, "ffn", m->ffn, "origin",
                     "measured with partune-train: the median of the repeats of each layout",
                     "campaign", campaign, "fingerprint", print, "rows", rows);
}

static int save(const json_t *table, const char *path, struct err *e)
{
    AUTO_FREE char *text = json_dumps(table, JSON_COMPACT | JSON_REAL_PRECISION(6));
    char *out = text ? mem_alloc(2 * strlen(text) + 2) : NULL, *p = out;
    int r;

    if (!text)
        return err_set(e, -ENOMEM, "the table cannot be written");
    for (const char *c = text; *c; c++) { /* a row a line, so that differences can be read */
        if (str_starts(c, "{\"tp\":"))
            *p++ = '\n';
        *p++ = *c;
    }
    *p++ = '\n';
    r = file_write_atomic(path, out, (size_t)(p - out), 0644, e);
    free(out);
    return r;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarize(json_t *row)
{
    json_t *list = json_object_get(row, "repeats");
    size_t n = json_array_size(list);
    AUTO_FREE double *v = mem_alloc(n * sizeof(*v) + 1);

    for (size_t i = 0; i < n; i++) {
        if (!json_is_number(json_array_get(list, i)))
            return; /* a trial that failed: null stays */
        v[i] = json_number_value(json_array_get(list, i));
    }
    qsort(v, n, sizeof(*v), compare);
    json_object_set_new(row, "tokens_per_s", json_real((v[(n - 1) / 2] + v[n / 2]) / 2));
}

/* ---- one trial ----------------------------------------------------------- */

static int write_config(const char *path, const struct se_spec *s, const struct pl_layout *l,
                        struct err *e)
{
    AUTO_JSON *v = json_pack("{s:o, s:o, s:o, s:o}", "model", pl_model_json(&s->model), "workload",
                             pl_workload_json(&s->workload), "cluster",
                             pl_cluster_json(&s->cluster[0]), "layout", pl_layout_json(l));
    AUTO_FREE char *text = jx_dump(v);

    return file_write_atomic(path, text, strlen(text), 0644, e);
}

static int run(const struct options *o, int ranks, const char *config, const char *events)
{
    char n[16], steps[16];
    const char *argv[] = {
        o->mpiexec,    "-bind-to", "core",        "-n",       n,      o->train,         "--config",
        config,        "--trial",  "--quiet",     "--events", events, "--warmup-steps", "1",
        "--min-steps", steps,      "--max-steps", steps,      NULL};
    pid_t pid;
    int status = -1;

    snprintf(n, sizeof(n), "%d", ranks);
    snprintf(steps, sizeof(steps), "%d", o->steps);
    remove(events);
    if (posix_spawnp(&pid, o->mpiexec, NULL, NULL, (char **)(uintptr_t)argv, environ))
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* What the events say: the summary's throughput, or the error's class into the row. */
static json_t *outcome(json_t *row, json_t *print, const char *events)
{
    AUTO_FREE char *text = NULL;
    json_t *ret = NULL;
    struct err e;

    if (file_read_all(&text, NULL, events, 64 << 20, &e) < 0)
        return NULL;
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        AUTO_JSON *v = NULL;
        const char *event;

        if (jx_parse(&v, line, strcspn(line, "\n"), &e) < 0)
            continue;
        event = json_string_value(json_object_get(v, "event"));
        if (event && str_eq(event, "hello")) {
            json_object_set(print, "version", json_object_get(v, "version"));
            json_object_set(print, "build", json_object_get(v, "build"));
        } else if (event && str_eq(event, "summary")) {
            json_decref(ret);
            ret = json_incref(json_object_get(v, "tokens_per_s"));
        } else if (event && str_eq(event, "error")) {
            json_object_set(row, "status", json_object_get(v, "class"));
            json_decref(ret);
            ret = json_null();
        }
    }
    return ret;
}

static int measure(const struct options *o, const struct se_spec *s, const struct pl_layout *l,
                   json_t *table, json_t *row, struct err *e)
{
    char config[512], events[512], text[160];
    json_t *got;
    int r, status;

    snprintf(config, sizeof(config), "%s/sweep.json", o->scratch);
    snprintf(events, sizeof(events), "%s/sweep.jsonl", o->scratch);
    if ((r = write_config(config, s, l, e)) < 0)
        return r;
    status = run(o, l->world, config, events);
    got = outcome(row, json_object_get(table, "fingerprint"), events);
    if (!got)
        return err_set(e, -EIO, "%s said nothing of %s (status %d)", o->train,
                       pl_layout_text(text, l), status);
    json_array_append_new(json_object_get(row, "repeats"), got);
    summarize(row);
    return 0;
}

/* ---- the slice ----------------------------------------------------------- */

static size_t repeats_of(const json_t *rows, size_t i)
{
    return json_array_size(json_object_get(json_array_get(rows, i), "repeats"));
}

static double tokens_of(const json_t *rows, size_t i)
{
    return json_number_value(json_object_get(json_array_get(rows, i), "tokens_per_s"));
}

/* How often row I is to be measured, when the best so far has BEST tokens/s. */
static size_t wanted(const struct options *o, const json_t *rows, size_t i, double best)
{
    static const double NEAR = 0.92;
    bool leads = repeats_of(rows, i) >= (size_t)o->repeats && tokens_of(rows, i) >= NEAR * best;

    return (size_t)(leads && o->leaders > o->repeats ? o->leaders : o->repeats);
}

/* The next row: of those that want more, one with the fewest repeats; in odd rounds the last of
 * them. N if none wants more. */
static size_t next_row(const struct options *o, const json_t *rows, size_t n)
{
    size_t least = SIZE_MAX, at = n;
    double best = 0;

    for (size_t i = 0; i < n; i++)
        best = fmax(best, tokens_of(rows, i));
    for (size_t i = 0; i < n; i++) {
        size_t has = repeats_of(rows, i);

        if (has >= wanted(o, rows, i, best) || has > least || (has == least && has % 2 == 0))
            continue;
        least = has;
        at = i;
    }
    return at;
}

static int slice(const struct options *o, const struct se_spec *s, const struct pl_layout *l,
                 size_t n, json_t *table, struct err *e)
{
    json_t *rows = json_object_get(table, "rows");
    double end = seconds_now() + o->seconds;
    size_t done = 0, i;
    int r = 0;

    while (r == 0 && seconds_now() < end && (i = next_row(o, rows, n)) < n) {
        r = measure(o, s, &l[i], table, json_array_get(rows, i), e);
        done += r == 0;
    }
    printf("%zu of %zu layouts measured in this slice; %s\n", done, n,
           next_row(o, rows, n) < n ? "more is wanted" : "the table is complete");
    return r;
}

static int sweep(const struct options *o, const char *from, const char *to, struct err *e)
{
    AUTO_JSON *campaign = NULL, *table = NULL;
    AUTO_FREE struct pl_layout *l = NULL;
    struct se_spec spec = {0};
    struct pl_problem p;
    size_t n = 0;
    int r, saved;

    if ((r = jx_load(&campaign, from, 1 << 20, e)) < 0 ||
        (r = se_spec_parse(&spec, campaign, NULL, e)) < 0)
        return r;
    p = se_spec_problem(&spec);
    r = pl_space_list(&l, &n, 100000, spec.space, &p, NULL, e);
    if (r == 0 && file_exists(to))
        r = jx_load(&table, to, 64 << 20, e);
    else if (r == 0)
        table = new_table(campaign, &spec, l, n);
    if (r == 0 && (!json_equal(json_object_get(table, "campaign"), campaign) ||
                   json_array_size(json_object_get(table, "rows")) != n))
        r = err_set(e, -EINVAL, "%s is the table of another campaign", to);
    if (r == 0) {
        r = slice(o, &spec, l, n, table, e);
        saved = save(table, to, e);
        r = r ? r : saved;
    }
    se_spec_done(&spec);
    return r;
}

int main(int argc, char **argv)
{
    struct options o;
    struct opt_set set = {.program = "sweep",
                          .usage = "sweep [options] CAMPAIGN.json TABLE.json",
                          .table = option_table,
                          .count = ARRAY_LEN(option_table),
                          .values = &o};
    struct err e = {0};
    int operands = 0, r;

    opt_init(&set);
    r = opt_from_argv(&operands, &set, argc, argv, 0, &e);
    if (r == 0 && operands != 2)
        r = err_set(&e, -EINVAL, "give a campaign and the table to write");
    if (r == 0)
        r = sweep(&o, argv[1], argv[2], &e);
    if (r < 0)
        fprintf(stderr, "sweep: %s%s%s\n", e.pointer, e.pointer[0] ? ": " : "", e.text);
    opt_done(&set);
    return r < 0 ? 1 : 0;
}
