/* Commands without a campaign: check, plan, presets, datasets, exporters. */
#include "plan/plan.h"
#include "tuner/client/client.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

static bool is_class(const char *key)
{
    return !str_eq(key, "total") && !str_eq(key, "rank") && !str_eq(key, "host");
}

static void print_bytes(const char *title, const json_t *bytes)
{
    double host = json_number_value(json_object_get(bytes, "host"));
    const char *key;
    char b[24];
    json_t *x;

    printf("%-8s %s:", title, str_human_bytes(b, cl_number(bytes, "total")));
    json_object_foreach((json_t *)(uintptr_t)bytes, key, x) {
        if (is_class(key) && json_number_value(x) > 0)
            printf(" %s %s", key, str_human_bytes(b, json_number_value(x)));
    }
    if (host > 0)
        printf("; in host memory %s", str_human_bytes(b, host));
    putchar('\n');
}

/* A campaign file holds what a plan is asked, and more: that goes. Keys of neither are left for the
 * daemon to refuse. */
static void campaign_to_job(json_t *body)
{
    static const char *const more[] = {"name",     "baseline", "budget", "trial",   "search",
                                       "launcher", "tags",     "notes",  "priority"};

    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        json_object_del(body, more[i]);
}

/* Does it fit, and into what? */
static void print_fits(const json_t *check)
{
    double offered = cl_number(check, "offered"), total = cl_number(check, "memory.total");
    char b[24], more[24];

    str_human_bytes(b, offered);
    if (total <= offered)
        printf("%-8s yes: a device has %s (after memory_headroom)\n", "fits", b);
    else
        printf("%-8s no: needs %s more than the %s of a device (after memory_headroom)\n", "fits",
               str_human_bytes(more, total - offered), b);
}

/* A file without a layout is a campaign: would it be accepted? */
static int check_campaign(struct cl *client, const json_t *body)
{
    AUTO_JSON *v = NULL;
    int code = cl_call(&v, client, "POST", "/v1/campaigns?dry_run=true", body);

    if (code == CL_OK && client->args.json)
        cl_print_json(v);
    else if (code == CL_OK)
        cl_print_dry_run(v);
    return code;
}

int cl_check(struct cl *client)
{
    AUTO_JSON *body = NULL, *v = NULL;
    json_t *rule;
    size_t i;
    bool legal, fits;
    int code = cl_load(&body, client->operand[0]);

    if (code == CL_OK)
        code = cl_model_option(client, body);
    if (code == CL_OK)
        code = cl_baseline_option(client, body);
    if (code != CL_OK)
        return code;
    if (!json_object_get(body, "layout"))
        return check_campaign(client, body);
    campaign_to_job(body);
    json_object_del(body, "objective");
    json_object_del(body, "space");
    code = cl_call(&v, client, "POST", "/v1/check", body);
    if (code != CL_OK)
        return code;
    legal = json_is_true(json_object_get(v, "legal"));
    fits = json_is_true(json_object_get(v, "fits"));
    if (client->args.json) {
        cl_print_json(v);
        return legal && fits ? CL_OK : CL_REFUSED;
    }
    printf("%-8s %s\n", "legal", legal ? "yes" : "no");
    json_array_foreach(json_object_get(v, "rules"), i, rule)
        printf("  %s: %s\n", cl_string(rule, "rule"), cl_string(rule, "detail"));
    if (json_is_object(json_object_get(v, "memory"))) {
        print_bytes("memory", json_object_get(v, "memory"));
        print_fits(v);
    }
    if (isfinite(cl_number(v, "cost.total")))
        printf("%-8s %.4g s an iteration expected\n", "time", cl_number(v, "cost.total"));
    if (json_is_object(json_object_get(v, "why")))
        cl_print_why(client, json_object_get(v, "why"));
    return legal && fits ? CL_OK : CL_REFUSED;
}

static const struct cl_column plan_columns[] = {
    {.title = "rank", .align = CL_RIGHT},
    {.title = "layout", .shrink = true},
    {.title = "global batch", .align = CL_RIGHT}, /* where there are several, as is: */
    {.title = "device-s/Mtoken", .align = CL_RIGHT, .drop = 4},
    {.title = "tokens/s", .align = CL_RIGHT},
    {.title = "tokens/J", .align = CL_RIGHT, .drop = 5}, /* where watts are known */
    {.title = "MFU", .align = CL_RIGHT, .drop = 1},
    {.title = "s/iteration", .align = CL_RIGHT, .drop = 2},
    {.title = "memory", .align = CL_RIGHT},
    {.title = "variants"},
    {.title = "why", .shrink = true, .drop = 3},
};

static const struct cl_column example_columns[] = {
    {.title = "devices", .align = CL_RIGHT},  {.title = "batch", .align = CL_RIGHT, .drop = 1},
    {.title = "best layout", .shrink = true}, {.title = "s/iteration", .align = CL_RIGHT},
    {.title = "MFU", .align = CL_RIGHT},      {.title = "efficiency", .align = CL_RIGHT, .drop = 2},
    {.title = "published", .drop = 3},        {.title = "published layout", .drop = 4},
};

/* "MFU 38.4 %, efficiency 100 %" of what was published of a row; "-" where nothing was. */
static void published(char buf[96], const json_t *row)
{
    const char *key;
    json_t *x;
    size_t n = 0;

    snprintf(buf, 96, "-");
    json_object_foreach((json_t *)(uintptr_t)row, key, x) {
        n += (size_t)snprintf(buf + n, 96 - n, "%s%s %.1f %%", n ? ", " : "", key,
                              100 * json_number_value(x));
        if (n >= 96)
            return;
    }
}

/* "rank 20 of 11460, 1.6 % slower"; "-" where no layout was published. */
static void published_layout(char buf[96], const json_t *json)
{
    if (!json_is_object(json))
        snprintf(buf, 96, "-");
    else if (!json_is_integer(json_object_get(json, "rank")))
        snprintf(buf, 96, "does not fit");
    else
        snprintf(buf, 96, "rank %.0f of %.0f, %.1f %% slower", cl_number(json, "rank"),
                 cl_number(json, "of"), 100 * cl_number(json, "slowdown"));
}

static int plan_example(struct cl *client)
{
    struct cl_table t = {.column = example_columns, .ncolumns = ARRAY_LEN(example_columns)};
    AUTO_FREE char *path = mem_printf("/v1/plan/examples/%s", client->args.example);
    AUTO_JSON *v = NULL;
    json_t *it;
    size_t i;
    int code = cl_call(&v, client, "GET", path, NULL);

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    printf("%s\n%s\n", cl_string(v, "title"), cl_string(v, "source"));
    json_array_foreach(json_object_get(v, "rows"), i, it) {
        char buf[96];

        published(buf, json_object_get(it, "published"));
        cl_table_add(&t, 0, "%.0f", cl_number(it, "devices"));
        cl_table_add(&t, 1, "%.0f", cl_number(it, "global_batch"));
        cl_table_add(&t, 2, "%s", cl_string(it, "text"));
        cl_table_add(&t, 3, "%.4g", cl_number(it, "seconds"));
        cl_table_add(&t, 4, "%.1f %%", 100 * cl_number(it, "mfu"));
        cl_table_add(&t, 5, "%.1f %%", 100 * cl_number(it, "efficiency"));
        cl_table_add(&t, 6, "%s", buf);
        published_layout(buf, json_object_get(it, "published_layout"));
        cl_table_add(&t, 7, "%s", buf);
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
    return CL_OK;
}

/* What each rule excludes, the strictest first. */
static void print_excluded(const struct cl *client, const json_t *excluded)
{
    static const struct cl_column columns[] = {{.title = "rule"},
                                               {.title = "excluded", .align = CL_RIGHT},
                                               {.title = "detail", .shrink = true, .drop = 1}};
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    json_t *it;
    size_t i;

    json_array_foreach(json_object_get(excluded, "excluded"), i, it) {
        cl_table_add(&t, 0, "%s", cl_string(it, "rule"));
        cl_table_add(&t, 1, "%.0f", cl_number(it, "count"));
        cl_table_add(&t, 2, "%s", cl_string(it, "sentence"));
    }
    if (t.rows) {
        printf("\nexcluded from %s%.0f candidates:\n",
               json_is_true(json_object_get(excluded, "exact")) ? "" : "at least ",
               cl_number(excluded, "candidates"));
        cl_table_print(client, &t, stdout);
    }
    cl_table_done(&t);
}

/* What a list does not show of the layouts that it stands for. */
struct left_out {
    double variants, equivalents;
};

static void print_left_out(struct left_out left_out)
{
    if (left_out.variants > 0)
        puts("variants differ in zero_scope and flags (sp, overlap)\n(--unfold lists each)");
    if (left_out.equivalents > 0)
        printf("%.0f equivalent layouts are omitted\n(the same seconds and memory as one that is "
               "listed)\n",
               left_out.equivalents);
}

/* Into COLUMNS those of a plan of one batch, or of SEVERAL, with or without JOULES. */
static struct cl_table plan_table(struct cl_column columns[ARRAY_LEN(plan_columns)], bool several,
                                  bool joules)
{
    int n = 0;

    for (int i = 0; i < (int)ARRAY_LEN(plan_columns); i++)
        if ((several || (i != 2 && i != 3)) && (joules || i != 5))
            columns[n++] = plan_columns[i];
    return (struct cl_table){.column = columns, .ncolumns = n};
}

static void plan_row(struct cl_table *table, size_t rank, const json_t *item, bool several)
{
    double per_joule = cl_number(item, "tokens_per_joule");
    double speed = cl_number(item, "tokens_per_s"), mfu = cl_number(item, "mfu"),
           variants = cl_number(item, "variants.count"),
           devices = cl_number(item, "layout.world") * cl_number(item, "layout.threads");
    char rate[32], b[24];
    int col = 0;

    cl_table_add(table, col++, "%zu", rank);
    cl_table_add(table, col++, "%s", cl_string(item, "text"));
    if (several) {
        cl_table_add(table, col++, "%.0f", cl_number(item, "layout.global_batch"));
        cl_table_add(table, col++, "%s", cl_rate(rate, 1e6 * devices / speed));
    }
    cl_table_add(table, col++, "%s", cl_rate(rate, speed));
    if (isfinite(per_joule))
        cl_table_add(table, col++, "%.4g", per_joule);
    cl_table_add(table, col++, isfinite(mfu) ? "%.1f %%" : "-", 100 * mfu);
    cl_table_add(table, col++, "%.4g", cl_number(item, "seconds.total"));
    cl_table_add(table, col++, "%s", str_human_bytes(b, cl_number(item, "memory.total")));
    if (variants > 0)
        cl_table_add(table, col, "+ %.0f, down to %.1f %%", variants,
                     100 * (cl_number(item, "variants.worst") / speed - 1));
    cl_table_add(table, col + 1, "%s", cl_string(item, "why"));
}

static struct left_out print_layouts(const struct cl *client, const json_t *plan)
{
    struct cl_column columns[ARRAY_LEN(plan_columns)];
    bool several = json_array_size(json_object_get(plan, "batches")) > 0;
    const json_t *items = json_object_get(plan, "items");
    struct cl_table t = plan_table(
        columns, several, isfinite(cl_number(json_array_get(items, 0), "tokens_per_joule")));
    struct left_out left_out = {0};
    json_t *it;
    size_t i;

    json_array_foreach(items, i, it) {
        double variants = cl_number(it, "variants.count");

        plan_row(&t, i + 1, it, several);
        left_out.variants += variants > 0 ? variants : 0;
        left_out.equivalents += cl_number(it, "equivalents");
    }
    if (t.rows)
        cl_table_print(client, &t, stdout);
    else
        printf("  %s\n", cl_string(plan, "reason"));
    cl_table_done(&t);
    return left_out;
}

int cl_job_body(json_t **ret, const struct cl *client, const char *needs)
{
    int code;

    if (!client->noperands && !client->args.model) {
        fprintf(stderr, "partune: %s\n", needs);
        return CL_USAGE;
    }
    if (client->noperands && (client->args.cluster || client->args.nodes || client->args.trainer)) {
        fprintf(stderr, "partune: --cluster, --nodes and --trainer need --model; a FILE has its "
                        "own\n");
        return CL_USAGE;
    }
    code = client->noperands ? cl_load(ret, client->operand[0]) : cl_new_campaign(ret, client);
    if (code == CL_OK)
        code = cl_model_option(client, *ret);
    if (code != CL_OK)
        return code;
    campaign_to_job(*ret);
    return CL_OK;
}

static void print_beyond(const json_t *beyond)
{
    double ratio = cl_number(beyond, "ratio");

    if (!json_is_object(beyond))
        return;
    printf("\noptions that this space does not name: %s\n", cl_string(beyond, "keys"));
    if (isfinite(ratio))
        printf("  expected %.2f times the first: %s\n", ratio, cl_string(beyond, "text"));
    else
        printf("  with them it is expected to fit: %s\n", cl_string(beyond, "text"));
}

/* The best of each part of ALONE, beside SPEED of a layout over both (NAN: none). */
static void print_alone(const json_t *alone, double speed)
{
    double sum = 0;
    char text[32];
    json_t *it;
    size_t i;

    puts("each part alone:");
    json_array_foreach((json_t *)(uintptr_t)alone, i, it) {
        double rate = cl_number(it, "best.tokens_per_s");

        sum += rate;
        if (!isfinite(rate)) {
            printf("  %s: %s\n", cl_string(it, "name"), cl_string(it, "reason"));
            continue;
        }
        printf("  %s, %.0f devices: %s tokens/s", cl_string(it, "name"), cl_number(it, "devices"),
               cl_rate(text, rate));
        if (isfinite(speed))
            printf("; both are %.2f times that", speed / rate);
        printf("  %s\n", cl_string(json_object_get(it, "best"), "text"));
    }
    if (isfinite(sum) && isfinite(speed))
        printf("two jobs, one on each part: %s tokens/s, %.2f times one job over both\n",
               cl_rate(text, sum), sum / speed);
}

/* Which stages lie where, and whether mixing pays. */
static void print_parts(const json_t *plan)
{
    const json_t *cluster = json_object_get(plan, "cluster"),
                 *alone = json_object_get(plan, "alone");
    const json_t *first = json_array_get(json_object_get(plan, "items"), 0);
    const json_t *it;
    size_t i;

    if (!alone)
        return;
    if (first)
        puts("\nstages of rank 1, in order:");
    json_array_foreach(json_object_get(first, "placement"), i, it) {
        double stages = cl_number(it, "stages");

        printf("  %s: %.0f stage%s with %.0f layers on %.0f devices\n", cl_string(it, "name"),
               stages, stages > 1 ? "s" : "", cl_number(it, "layers"), cl_number(it, "devices"));
    }
    printf("between the parts: %.4g GB/s per device%s\n", cl_number(cluster, "between.gbs"),
           json_is_true(json_object_get(cluster, "between_given"))
               ? ""
               : ", the slower of their networks; \"between\": {\"gbs\": N} of the cluster sets "
                 "another");
    print_alone(alone, cl_number(first, "tokens_per_s"));
}

int cl_plan(struct cl *client)
{
    AUTO_JSON *body = NULL, *plan = NULL;
    int code;

    if (client->args.example)
        return plan_example(client);
    code = cl_job_body(&body, client, "plan needs a FILE, --model NAME or --example NAME");
    if (code != CL_OK)
        return code;
    json_object_set_new(body, "top", json_integer(client->args.top));
    if (client->args.objective)
        json_object_set_new(body, "objective", json_string(client->args.objective));
    if (client->args.unfold)
        json_object_set_new(body, "fold", json_false());
    code = cl_call(&plan, client, "POST", "/v1/plan", body);
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(plan);
        return CL_OK;
    }
    if (!client->noperands)
        printf("global_batch %.0f; to change it or seq: partune new FILE, edit it, partune plan "
               "FILE\n",
               cl_number(body, "workload.global_batch"));
    if (json_is_false(json_object_get(plan, "exact")))
        printf("%.0f legal layouts were examined within the time limit, the most promising "
               "first; the space has more\n",
               cl_number(plan, "legal"));
    printf("%.0f legal layouts, %.0f fit; expected, not measured:\n", cl_number(plan, "legal"),
           cl_number(plan, "fitting"));
    print_left_out(print_layouts(client, plan));
    print_parts(plan);
    cl_print_shares(client, plan);
    print_beyond(json_object_get(plan, "beyond"));
    print_excluded(client, plan);
    return CL_OK;
}

/* Items that are strings, or objects with a name: a name a line. */
static int print_names(struct cl *client, const char *path)
{
    AUTO_JSON *v = NULL;
    json_t *it;
    size_t i;
    int code = cl_call(&v, client, "GET", path, NULL);

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    json_array_foreach(json_object_get(v, "items"), i, it) {
        const char *about = cl_string(it, "title");

        printf("%s%s%s\n", json_is_string(it) ? json_string_value(it) : cl_string(it, "name"),
               *about ? "  " : "", about);
    }
    return CL_OK;
}

/* Stacks are part of this program: no daemon is asked. */
static int print_stacks(const struct cl *client)
{
    AUTO_JSON *list = json_array();

    for (const char *const *name = pl_stack_presets(); *name; name++) {
        AUTO_JSON *stack = NULL;
        struct err e = {0};

        if (jx_parse(&stack, pl_stack_preset(*name), strlen(pl_stack_preset(*name)), &e) == 0)
            json_array_append(list, stack);
        if (!client->args.json)
            puts(*name);
    }
    if (client->args.json)
        cl_print_json(list);
    return CL_OK;
}

int cl_presets(struct cl *client)
{
    const char *kind = client->operand[0];

    if (str_eq(kind, "stacks"))
        return print_stacks(client);
    if (strcmp(kind, "models") && strcmp(kind, "clusters")) {
        fprintf(stderr, "partune: presets are `models`, `clusters` or `stacks`, not `%s`\n", kind);
        return CL_USAGE;
    }
    return print_names(client,
                       str_eq(kind, "models") ? "/v1/presets/models" : "/v1/presets/clusters");
}

int cl_datasets(struct cl *client)
{
    return print_names(client, "/v1/datasets");
}

int cl_exporters(struct cl *client)
{
    return print_names(client, "/v1/exporters");
}

/* A script has dozens of settings of its data and its optimizer: they are one paragraph, so that
 * what a person should read is not among them. */
static void print_ignored(const json_t *ignored)
{
    static const char other[] = "not a setting of the layout";
    AUTO_STR line = {0};
    json_t *it;
    size_t i;

    json_array_foreach(ignored, i, it)
        if (!str_starts(cl_string(it, "detail"), other))
            printf("  ignored %s: %s\n", cl_string(it, "setting"), cl_string(it, "detail"));
    json_array_foreach(ignored, i, it) {
        const char *setting = cl_string(it, "setting");

        if (!str_starts(cl_string(it, "detail"), other))
            continue;
        if (line.len + strlen(setting) > 90) {
            printf("%s\n", str_text(&line));
            str_trunc(&line, 0);
            str_add(&line, "   ");
        } else if (!line.len) {
            str_add(&line, "  no settings of the layout:");
        }
        str_addf(&line, " %s", setting);
    }
    if (line.len)
        printf("%s\n", str_text(&line));
}

int cl_import(struct cl *client)
{
    AUTO_FREE char *text = NULL;
    AUTO_FREE char *path = cl_path("/v1/import/", client->operand[0], "");
    AUTO_JSON *body = NULL, *v = NULL;
    const char *file = client->operand[1];
    struct err e = {0};
    size_t n;
    int code;

    if (!client->args.model || !client->args.world) {
        fprintf(stderr, "partune: import needs --model NAME and --world RANKS, which the file does "
                        "not give\n");
        return CL_USAGE;
    }
    if (file_read_all(&text, &n, str_eq(file, "-") ? "/dev/stdin" : file, 1 << 20, &e) < 0) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    body = json_pack("{s:s, s:i}", "text", text, "world", client->args.world);
    if (!body) {
        fprintf(stderr, "partune: %s is not text\n", file);
        return CL_FAILED;
    }
    if (client->args.call)
        json_object_set_new(body, "call", json_string(client->args.call));
    code = cl_model_option(client, body);
    if (code != CL_OK)
        return code;
    code = cl_call(&v, client, "POST", path, body);
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    printf("%s\n", cl_string(v, "text"));
    print_ignored(json_object_get(v, "ignored"));
    cl_print_json(json_object_get(v, "layout"));
    return CL_OK;
}
