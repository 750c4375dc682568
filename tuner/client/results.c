/* Commands about what a campaign found: standings, what mattered, what was believed. */
#include "tuner/client/client.h"

#include <math.h>

static int standing(struct cl *client, const char *what)
{
    AUTO_FREE char *tail = mem_printf("/%s", what);
    AUTO_JSON *v = NULL;
    int code = cl_get_campaign(&v, client, client->operand[0], tail);

    if (code != CL_OK)
        return code;
    if (!client->args.json)
        cl_print_result(stdout, what, v);
    cl_print_json(client->args.json ? v : json_object_get(v, "layout"));
    return CL_OK;
}

int cl_best(struct cl *client)
{
    return standing(client, "best");
}

int cl_baseline(struct cl *client)
{
    return standing(client, "baseline");
}

/* ---- lists --------------------------------------------------------------- */

/* GET a list, print it as it came, or hand it over: CL_OK with *RET NULL means that all is done. */
static int get_list(json_t **ret, struct cl *client, const char *tail)
{
    AUTO_FREE char *full =
        mem_printf("%s%cpage_size=%d", tail, strchr(tail, '?') ? '&' : '?', client->args.limit);
    AUTO_JSON *v = NULL;
    int code = cl_get_campaign(&v, client, client->operand[0], full);

    if (code == CL_OK && client->args.json)
        cl_print_json(v);
    else if (code == CL_OK)
        *ret = TAKE(v);
    return code;
}

static const json_t *first_item(const json_t *list)
{
    return json_array_get(json_object_get(list, "items"), 0);
}

static void print_list(const struct cl *client, struct cl_table *table, const json_t *json,
                       const char *what)
{
    cl_table_print(client, table, stdout);
    if (cl_number(json, "total") > table->rows)
        printf("%d of %.0f %s; more with --limit\n", table->rows, cl_number(json, "total"), what);
    cl_table_done(table);
}

int cl_trials(struct cl *client)
{
    struct cl_column columns[CL_TRIAL_COLUMNS];
    struct cl_table t;
    AUTO_STR tail = {0};
    AUTO_JSON *v = NULL;
    json_t *it;
    size_t i;
    int code;

    str_add(&tail, "/trials?");
    cl_add_query(&tail, "state", client->args.state);
    cl_add_query(&tail, "kind", client->args.kind);
    cl_add_query(&tail, "sort", client->args.sort);
    code = get_list(&v, client, str_text(&tail));
    if (!v)
        return code;
    t = cl_trial_table(columns, first_item(v));
    json_array_foreach(json_object_get(v, "items"), i, it)
        cl_trial_row(&t, it);
    print_list(client, &t, v, "trials");
    if (!client->args.json)
        cl_print_inferred(stdout, json_object_get(v, "items"));
    return CL_OK;
}

int cl_results(struct cl *client)
{
    const char *format = client->args.format;
    AUTO_FREE char *tail = mem_printf("/results.%s", format);
    AUTO_FREE char *path = cl_path("/v1/campaigns/", client->operand[0], tail);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int code;

    if (strcmp(format, "csv") && strcmp(format, "jsonl")) {
        fprintf(stderr, "partune: --format is csv or jsonl, not `%s`\n", format);
        return CL_USAGE;
    }
    code = cl_call_text(&text, &n, client, path);
    if (code == CL_OK && client->args.json && !client->args.output) {
        AUTO_JSON *v = json_pack("{s:s, s:s%}", "format", format, "text", text, n);

        cl_print_json(v);
        return CL_OK;
    }
    return code == CL_OK ? cl_deliver(client, text, n) : code;
}

static void add_number(struct cl_table *table, int col, int digits, double value)
{
    char text[32] = "-";

    if (isfinite(value))
        snprintf(text, sizeof(text), "%.*f", digits, value);
    cl_table_add(table, col, "%s", text);
}

int cl_steps(struct cl *client)
{
    struct cl_column columns[] = {
        {.title = "step", .align = CL_RIGHT},
        {.title = "ms", .align = CL_RIGHT},
        {.title = "loss", .align = CL_RIGHT},
        {.title = "gradient norm", .align = CL_RIGHT, .drop = 2},
        {.title = "fastest rank, ms", .align = CL_RIGHT, .drop = 3},
        {.title = "slowest rank, ms", .align = CL_RIGHT, .drop = 1},
        {.title = "slowest", .align = CL_RIGHT},
        {.title = "", .drop = 4},
    };
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    AUTO_FREE char *tail = mem_printf("/trials/%s/steps", client->operand[1]);
    AUTO_JSON *v = NULL;
    json_t *it;
    size_t i;
    int code = get_list(&v, client, tail);

    if (!v)
        return code;
    if (*cl_simulated_word(first_item(v)))
        columns[1].title = "simulated ms";
    json_array_foreach(json_object_get(v, "items"), i, it) {
        add_number(&t, 0, 0, cl_number(it, "n"));
        add_number(&t, 1, 1, cl_number(it, "ms"));
        add_number(&t, 2, 4, cl_number(it, "loss"));
        add_number(&t, 3, 3, cl_number(it, "grad_norm"));
        add_number(&t, 4, 1, cl_number(it, "ranks.min"));
        add_number(&t, 5, 1, cl_number(it, "ranks.max"));
        add_number(&t, 6, 0, cl_number(it, "ranks.slowest"));
        cl_table_add(&t, 7, "%s", json_is_true(json_object_get(it, "warmup")) ? "warm-up" : "");
    }
    print_list(client, &t, v, "steps");
    return CL_OK;
}

int cl_pareto(struct cl *client)
{
    struct cl_column columns[] = {{.title = "trial", .align = CL_RIGHT},
                                  {.title = "tokens/s", .align = CL_RIGHT},
                                  {.title = "memory", .align = CL_RIGHT}};
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    AUTO_JSON *v = NULL;
    char rate[32], bytes[24];
    json_t *it;
    size_t i;
    int code = get_list(&v, client, "/pareto");

    if (!v)
        return code;
    if (*cl_simulated_word(first_item(v)))
        columns[1].title = "simulated tokens/s";
    json_array_foreach(json_object_get(v, "items"), i, it) {
        add_number(&t, 0, 0, cl_number(it, "n"));
        cl_table_add(&t, 1, "%s", cl_rate(rate, cl_number(it, "tokens_per_s")));
        cl_table_add(&t, 2, "%s", str_human_bytes(bytes, cl_number(it, "memory_bytes")));
    }
    print_list(client, &t, v, "trials");
    return CL_OK;
}

int cl_predictions(struct cl *client)
{
    struct cl_column columns[] = {{.title = "trial", .align = CL_RIGHT},
                                  {.title = "predicted tokens/s", .align = CL_RIGHT},
                                  {.title = "tokens/s", .align = CL_RIGHT},
                                  {.title = "tokens/s / predicted", .align = CL_RIGHT}};
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    AUTO_JSON *v = NULL;
    char rate[32];
    json_t *it;
    size_t i;
    int code = get_list(&v, client, "/predictions");

    if (!v)
        return code;
    if (first_item(v)) { /* an empty list does not say which */
        bool simulated = *cl_simulated_word(first_item(v)) != '\0';

        columns[2].title = simulated ? "simulated tokens/s" : "measured tokens/s";
        columns[3].title = simulated ? "simulated / predicted" : "measured / predicted";
    }
    json_array_foreach(json_object_get(v, "items"), i, it) {
        double predicted = cl_number(it, "predicted"), given = cl_number(it, "tokens_per_s");

        add_number(&t, 0, 0, cl_number(it, "n"));
        cl_table_add(&t, 1, "%s", cl_rate(rate, predicted));
        cl_table_add(&t, 2, "%s", cl_rate(rate, given));
        add_number(&t, 3, 2, given / predicted);
    }
    print_list(client, &t, v, "trials");
    return CL_OK;
}

/* "2 (+12 %)": of the values of a key the one that makes faster, or slower, than all others. */
static void add_effect(struct cl_table *table, int column, const json_t *effects, bool fastest)
{
    const json_t *value, *pick = NULL;
    char text[64];
    size_t i;

    json_array_foreach(effects, i, value)
        if (!pick || (cl_number(value, "ratio") > cl_number(pick, "ratio")) == fastest)
            pick = value;
    if (pick)
        cl_table_add(table, column, "%s (%+.0f %%)", cl_text(text, pick, "value"),
                     100 * (cl_number(pick, "ratio") - 1));
}

struct share {
    const char *key;
    double share;
    size_t place; /* among all, for equal shares */
};

static int by_share(const void *left, const void *right)
{
    const struct share *a = left, *b = right;

    if (a->share != b->share)
        return a->share > b->share ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

/* The shares of SHARES, {KEY: number}, whose keys they borrow; owned by the caller. */
static struct share *largest_first(size_t *ret_count, const json_t *shares)
{
    struct share *ret = mem_alloc((json_object_size(shares) + 1) * sizeof(*ret));
    const char *key;
    json_t *x;
    size_t n = 0;

    json_object_foreach((json_t *)(uintptr_t)shares, key, x) {
        ret[n] = (struct share){key, json_number_value(x), n};
        n++;
    }
    qsort(ret, n, sizeof(*ret), by_share);
    *ret_count = n;
    return ret;
}

int cl_importance(struct cl *client)
{
    static const struct cl_column columns[] = {{.title = "key"},
                                               {.title = "share", .align = CL_RIGHT},
                                               {.title = "fastest"},
                                               {.title = "slowest", .drop = 1}};
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    AUTO_JSON *v = NULL;
    AUTO_FREE struct share *shares = NULL;
    size_t n;
    int code = cl_get_campaign(&v, client, client->operand[0], "/importance");

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    shares = largest_first(&n, json_object_get(v, "shares"));
    for (size_t i = 0; i < n; i++) {
        const json_t *effects = json_object_get(json_object_get(v, "effects"), shares[i].key);

        cl_table_add(&t, 0, "%s", shares[i].key);
        cl_table_add(&t, 1, "%.1f %%", 100 * shares[i].share);
        add_effect(&t, 2, effects, true);
        add_effect(&t, 3, effects, false);
    }
    if (t.rows) {
        cl_table_print(client, &t, stdout);
        puts("values: against the mean layout");
    } else {
        puts("too few trials have succeeded so far");
    }
    if (*cl_simulated_word(v))
        puts("of simulated trials");
    cl_table_done(&t);
    return CL_OK;
}

/* ---- what the search believes -------------------------------------------- */

/* The mean of tokens/s over two keys: X to the right, Y downwards. */
static void print_surface(const struct cl *client, const json_t *surface)
{
    enum { MOST = 12 };
    struct cl_column column[MOST + 1] = {{.title = ""}};
    char title[MOST][64], text[64], corner[80];
    const json_t *x = json_object_get(surface, "x"), *y = json_object_get(surface, "y");
    const json_t *mean = json_object_get(surface, "mean");
    size_t nx = json_array_size(json_object_get(x, "values"));
    struct cl_table t = {.column = column};

    nx = nx < MOST ? nx : MOST;
    t.ncolumns = (int)nx + 1;
    snprintf(corner, sizeof(corner), "%.30s, down; %.30s, across", cl_string(y, "key"),
             cl_string(x, "key"));
    for (size_t i = 0; i < nx; i++) {
        AUTO_JSON *one = json_pack("{s:O}", "v", json_array_get(json_object_get(x, "values"), i));

        column[i + 1] = (struct cl_column){.title = cl_text(title[i], one, "v"), .align = CL_RIGHT};
    }
    for (size_t j = 0; j < json_array_size(mean); j++) {
        AUTO_JSON *one = json_pack("{s:O}", "v", json_array_get(json_object_get(y, "values"), j));

        cl_table_add(&t, 0, "%s", cl_text(text, one, "v"));
        for (size_t i = 0; i < nx; i++) {
            json_t *cell = json_array_get(json_array_get(mean, j), i);

            cl_table_add(
                &t, (int)i + 1, "%s",
                cl_rate(text, json_is_number(cell) ? json_number_value(cell) : (double)NAN));
        }
    }
    printf("expected %stokens/s (%s)\n", cl_simulated_word(surface), corner);
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
}

int cl_surface(struct cl *client)
{
    AUTO_STR tail = {0};
    AUTO_JSON *v = NULL;
    int code;

    str_add(&tail, "/surface?");
    cl_add_query(&tail, "x", client->operand[1]);
    cl_add_query(&tail, "y", client->operand[2]);
    code = cl_get_campaign(&v, client, client->operand[0], str_text(&tail));
    if (code != CL_OK)
        return code;
    if (client->args.json)
        cl_print_json(v);
    else
        print_surface(client, v);
    return CL_OK;
}

int cl_diagnosis(struct cl *client)
{
    AUTO_JSON *v = NULL;
    int code = cl_get_campaign(&v, client, client->operand[0], "/diagnosis");

    if (code == CL_OK)
        cl_print_json(v);
    return code;
}
