/* What the client prints: numbers with separators, results on a line, and no foreign control
 * characters. */
#include "tuner/client/client.h"

#include <math.h>

static const json_t *at(const json_t *json, const char *path)
{
    while (json && path) {
        const char *dot = strchr(path, '.');
        char key[64];
        size_t n = dot ? (size_t)(dot - path) : strlen(path);

        if (n >= sizeof(key))
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        json = json_object_get(json, key);
        path = dot ? dot + 1 : NULL;
    }
    return json && !json_is_null(json) ? json : NULL;
}

const char *cl_string(const json_t *json, const char *path)
{
    const char *s = json_string_value(at(json, path));

    return s ? s : "";
}

double cl_number(const json_t *json, const char *path)
{
    const json_t *n = at(json, path);

    return json_is_number(n) ? json_number_value(n) : NAN;
}

char *cl_rate(char buf[32], double rate)
{
    char digits[24];
    int n, out = 0;

    if (!isfinite(rate)) {
        snprintf(buf, 32, "-");
        return buf;
    }
    n = snprintf(digits, sizeof(digits), "%.*f", fabs(rate) < 100 ? 1 : 0, rate);
    for (int i = 0; i < n && out < 30; i++) {
        const char *point = strchr(digits, '.');
        int whole = point ? (int)(point - digits) : n;

        buf[out++] = digits[i];
        if (i < whole - 1 && (whole - 1 - i) % 3 == 0 && digits[i] != '-')
            buf[out++] = ',';
    }
    buf[out] = '\0';
    return buf;
}

/* "256, 512, 1024" */
static void numbers_text(char buf[64], const json_t *list)
{
    AUTO_STR text = {0};
    json_t *value;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, value)
        str_addf(&text, "%s%lld", i ? ", " : "", (long long)json_integer_value(value));
    if (text.len < 64)
        snprintf(buf, 64, "%s", str_text(&text));
    else
        snprintf(buf, 64, "%zu values", json_array_size(list));
}

char *cl_text(char buf[64], const json_t *json, const char *path)
{
    const json_t *x = at(json, path);

    if (json_is_string(x))
        snprintf(buf, 64, "%s", json_string_value(x));
    else if (json_is_integer(x))
        snprintf(buf, 64, "%lld", (long long)json_integer_value(x));
    else if (json_is_number(x))
        snprintf(buf, 64, "%g", json_number_value(x));
    else if (json_is_boolean(x))
        snprintf(buf, 64, "%s", json_is_true(x) ? "yes" : "no");
    else if (json_array_size(x) && json_is_integer(json_array_get(x, 0)))
        numbers_text(buf, x);
    else
        snprintf(buf, 64, "-");
    return buf;
}

/* tokens_per_s, lo, hi: "41,000 ± 300" */
static char *rate_interval(char buf[64], const json_t *json)
{
    double mean = cl_number(json, "tokens_per_s");
    double half = (cl_number(json, "hi") - cl_number(json, "lo")) / 2;
    char a[32], b[32];

    if (isfinite(half))
        snprintf(buf, 64, "%s ± %s", cl_rate(a, mean), cl_rate(b, half));
    else
        snprintf(buf, 64, "%s", cl_rate(a, mean));
    return buf;
}

void cl_print_json(const json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    putchar('\n');
}

void cl_print_event(const char *event, const json_t *data)
{
    AUTO_JSON *v = json_pack("{s:s, s:O}", "event", event, "data", data);
    AUTO_FREE char *text = jx_dump(v);

    puts(text);
    fflush(stdout);
}

/* Length of the character at TEXT that a terminal would obey, not show: C0 and DEL, C1, and the
 * marks that turn the direction of text (U+200E, 200F, 202A-202E, 2066-2069). 0: it is harmless. */
static size_t steering(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;

    if (c[0] < ' ' || c[0] == 0x7f)
        return 1;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
        return 2;
    if (c[0] != 0xe2)
        return 0;
    return (c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xaa && c[2] <= 0xae))) ||
                   (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9)
               ? 3
               : 0;
}

static void clean(char *text, const char *keep)
{
    char *out = text;

    while (*text) {
        size_t n = strchr(keep, *text) ? 0 : steering(text);

        *out++ = n ? '?' : *text;
        text += n ? n : 1;
    }
    *out = '\0';
}

void cl_make_text_safe(char *text)
{
    clean(text, "\n\t");
}

void cl_make_safe(json_t *json)
{
    const char *key;
    json_t *it;
    size_t i;

    if (json_is_string(json)) {
        AUTO_FREE char *text = mem_strdup(json_string_value(json));

        clean(text, "");
        json_string_set_nocheck(json, text);
    } else if (json_is_array(json)) {
        json_array_foreach(json, i, it)
            cl_make_safe(it);
    } else if (json_is_object(json)) {
        json_object_foreach(json, key, it)
            cl_make_safe(it);
    }
}

const char *cl_simulated_word(const json_t *json)
{
    return json_is_true(at(json, "simulated")) ? "simulated " : "";
}

const char *cl_simulated_mark(const json_t *json)
{
    return json_is_true(at(json, "simulated")) ? " (simulated)" : "";
}

static const struct cl_column trial_columns[CL_TRIAL_COLUMNS] = {
    {"trial", CL_RIGHT, false, 0, false},    {"kind", CL_LEFT, false, 3, false},
    {"layout", CL_LEFT, true, 0, false},     {"state", CL_LEFT, false, 0, true},
    {"tokens/s", CL_RIGHT, false, 0, false}, {"expected", CL_RIGHT, false, 2, false},
    {"memory", CL_RIGHT, false, 1, false},   {"why", CL_LEFT, true, 4, false},
};

struct cl_table cl_trial_table(struct cl_column columns[CL_TRIAL_COLUMNS], const json_t *first)
{
    memcpy(columns, trial_columns, sizeof(trial_columns));
    if (*cl_simulated_word(first))
        columns[4].title = "simulated tokens/s";
    return (struct cl_table){.column = columns, .ncolumns = CL_TRIAL_COLUMNS};
}

bool cl_is_smaller(const json_t *trial)
{
    return json_is_object(at(trial, "run"));
}

const json_t *cl_run_of(const json_t *trial)
{
    const json_t *run = at(trial, "run");

    return json_is_object(run) ? run : trial;
}

char *cl_trial_rate(char buf[72], const json_t *trial)
{
    const json_t *inferred = at(trial, "inferred");
    char rate[64];

    if (isfinite(cl_number(inferred, "tokens_per_s")))
        snprintf(buf, 72, "~%s", rate_interval(rate, inferred));
    else
        snprintf(buf, 72, "%s", cl_rate(rate, cl_number(trial, "tokens_per_s")));
    return buf;
}

void cl_print_inferred(FILE *out, const json_t *trials)
{
    const json_t *trial;
    size_t i;

    json_array_foreach(trials, i, trial) {
        if (!cl_is_smaller(trial))
            continue;
        fprintf(out,
                "~ inferred from trials of smaller problems (± half of the 95 %% interval), not %s "
                "at full "
                "size\n",
                *cl_simulated_word(trial) ? "simulated" : "measured");
        return;
    }
}

char *cl_what_ran(char buf[160], const json_t *trial)
{
    snprintf(buf, 160, "%.0f layers, global batch %.0f, %.0f devices: %.80s",
             cl_number(trial, "run.layers"), cl_number(trial, "run.global_batch"),
             cl_number(trial, "run.devices"), cl_string(trial, "run.text"));
    return buf;
}

void cl_trial_row(struct cl_table *table, const json_t *trial)
{
    char rate[72], expected[32], mem[24], ran[160];
    /* A simulated trial has just what was planned for it. */
    double bytes = cl_number(trial, *cl_simulated_word(trial) ? "memory.planned.total"
                                                              : "memory.measured.total");
    const char *failure = cl_string(trial, "failure.detail"),
               *warning = cl_string(trial, "warning");
    const char *why = *failure ? failure : warning;

    if (!*why && cl_is_smaller(trial))
        why = cl_what_ran(ran, trial);

    cl_table_add(table, 0, "%.0f", cl_number(trial, "n"));
    cl_table_add(table, 1, "%s", cl_string(trial, "kind"));
    cl_table_add(table, 2, "%s", cl_string(trial, "text"));
    cl_table_add(table, 3, "%s", cl_string(trial, "state"));
    cl_table_add(table, 4, "%s", cl_trial_rate(rate, trial));
    cl_table_add(table, 5, "%s", cl_rate(expected, cl_number(trial, "predicted.tokens_per_s")));
    cl_table_add(table, 6, "%s", isfinite(bytes) ? str_human_bytes(mem, bytes) : "-");
    cl_table_add(table, 7, "%s", *why ? why : cl_string(trial, "why"));
}

enum pl_objective cl_objective(const json_t *campaign)
{
    return pl_objective_of(cl_string(campaign, "objective"));
}

/* Price of a device-hour where RESULT's layout runs; NAN: unknown. */
static double price_of(const json_t *campaign, const json_t *result)
{
    const json_t *clusters = json_object_get(campaign, "cluster"), *found = clusters;
    const char *name = cl_string(result, "layout.cluster");
    json_t *one;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)clusters, i, one)
        if (str_eq(cl_string(one, "name"), name))
            found = one;
    return cl_number(found, "price_per_device_hour");
}

double cl_worth(const json_t *campaign, const json_t *result, const char *rate)
{
    enum pl_objective objective = cl_objective(campaign);
    double devices = cl_number(result, "layout.world") * cl_number(result, "layout.threads");

    return objective == PL_TOKENS_PER_JOULE
               ? cl_number(result, "tokens_per_joule")
               : pl_objective_value(objective, cl_number(result, rate),
                                    devices > 0 ? (int)devices : 1, 1, price_of(campaign, result));
}

void cl_print_result(FILE *out, const char *title, const json_t *json)
{
    char interval[64];
    double ratio = cl_number(json, "ratio"), mfu = cl_number(json, "mfu");

    if (!json_is_object(json)) {
        fprintf(out, "%-10s none yet\n", title);
        return;
    }
    /* What matters first: a narrow terminal cuts the end. */
    fprintf(out, "%-10s %s %stokens/s", title, rate_interval(interval, json),
            cl_simulated_word(json));
    if (isfinite(ratio) && strcmp(title, "baseline"))
        fprintf(out, "  %.2f x baseline", ratio);
    if (isfinite(cl_number(json, "tokens_per_joule")))
        fprintf(out, "  %.4g tokens/J", cl_number(json, "tokens_per_joule"));
    if (isfinite(mfu))
        fprintf(out, "  MFU %.1f %%", 100 * mfu);
    if (isfinite(cl_number(json, "cost_per_mtok")))
        fprintf(out, "  %.3g per million tokens", cl_number(json, "cost_per_mtok"));
    fprintf(out, "  trial %.0f  %s\n", cl_number(json, "trial"), cl_string(json, "text"));
}

const char *cl_value(char buf[64], const json_t *json, const char *path)
{
    const char *text = cl_string(json, path);

    return *text ? text : cl_text(buf, json, path);
}

void cl_clusters(struct str *ret, const json_t *campaign)
{
    const json_t *clusters = json_object_get(campaign, "cluster");
    json_t *one;
    size_t i;

    if (json_is_object(clusters))
        str_add(ret, cl_string(clusters, "name"));
    json_array_foreach((json_t *)(uintptr_t)clusters, i, one)
        str_addf(ret, "%s%s", i ? ", " : "", cl_string(one, "name"));
}

double cl_per_device(const json_t *slice)
{
    return cl_number(slice, "best.tokens_per_s") / cl_number(slice, "best.devices");
}

bool cl_are_priced(const json_t *list)
{
    json_t *it;
    size_t i, priced = 0;

    json_array_foreach((json_t *)(uintptr_t)list, i, it) {
        bool known = isfinite(cl_number(it, "best.cost_per_mtok"));

        if (!known && *cl_string(it, "best.text"))
            return false;
        priced += known;
    }
    return priced > 0;
}

/* The best of each value of KEY in LIST, of a plan or of a campaign, which also has what each took
 * of the budget. Devices of different kinds are compared by their speed and what tokens cost, not
 * by their seconds. */
static void print_slices(const struct cl *client, const json_t *list, const char *key,
                         const char *name, bool plan)
{
    bool named = str_eq(key, "cluster");
    int cost = named && cl_are_priced(list); /* one column more */
    struct cl_column columns[] = {
        {.title = name, .align = named ? CL_LEFT : CL_RIGHT},
        {.title = "tokens/s", .align = CL_RIGHT},
        {.title = named ? "per device" : "device-s/Mtoken", .align = CL_RIGHT},
        {.title = "cost/Mtoken", .align = CL_RIGHT},
        {.title = "layout", .shrink = true},
        {.title = "x baseline", .align = CL_RIGHT, .drop = 2},
        {.title = "trial", .align = CL_RIGHT, .drop = 1},
        {.title = "trials", .align = CL_RIGHT, .drop = 3},
        {.title = "device-s", .align = CL_RIGHT, .drop = 4}};
    struct cl_table t = {.column = columns};
    json_t *it;
    size_t i;

    if (!cost)
        memmove(&columns[3], &columns[4], sizeof(columns) - 4 * sizeof(columns[0]));
    t.ncolumns = cost + (plan ? 4 : (int)ARRAY_LEN(columns) - 1);
    json_array_foreach((json_t *)(uintptr_t)list, i, it) {
        const char *text = cl_string(it, "best.text");
        char rate[32], each[32], trial[64], value[64];

        cl_table_add(&t, 0, "%s", cl_value(value, it, key));
        cl_table_add(&t, 1, "%s", cl_rate(rate, cl_number(it, "best.tokens_per_s")));
        cl_table_add(
            &t, 2, "%s",
            cl_rate(each, named ? cl_per_device(it) : cl_number(it, "device_s_per_mtoken")));
        if (cost)
            cl_table_add(&t, 3, "%s", cl_rate(each, cl_number(it, "best.cost_per_mtok")));
        cl_table_add(&t, cost + 3, "%s", *text ? text : plan ? "nothing fits" : "none yet");
        if (plan)
            continue;
        if (isfinite(cl_number(it, "best.ratio")))
            cl_table_add(&t, cost + 4, "%.2f", cl_number(it, "best.ratio"));
        cl_table_add(&t, cost + 5, "%s", cl_text(trial, it, "best.trial"));
        cl_table_add(&t, cost + 6, "%.0f", cl_number(it, "trials"));
        cl_table_add(&t, cost + 7, "%.4g", cl_number(it, "device_s"));
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
}

void cl_print_shares(const struct cl *client, const json_t *json)
{
    bool plan = json_object_get(json, "items") != NULL; /* has no trials */
    const json_t *batches = json_object_get(json, "batches"),
                 *worlds = json_object_get(json, "worlds"),
                 *clusters = json_object_get(json, "clusters");

    if (json_array_size(batches)) {
        printf("\nbest of each batch size%s:\n", cl_simulated_mark(json));
        print_slices(client, batches, "global_batch", "global batch", plan);
    }
    if (json_array_size(worlds)) {
        printf("\nbest of each world size%s:\n", cl_simulated_mark(json));
        print_slices(client, worlds, "world", "world", plan);
    }
    if (json_array_size(clusters)) {
        printf("\nbest of each cluster%s:\n", cl_simulated_mark(json));
        print_slices(client, clusters, "cluster", "cluster", plan);
    }
}
