/* Why one layout is faster or slower than another: where the seconds went, and by which keys. */
#include "tuner/client/client.h"

#include <math.h>

static const double LEAST = 0.5e-5; /* seconds: less is not shown */

/* Words for the unit of WHY's seconds. */
struct unit {
    const char *name, *thousandth, *as; /* "1.3 x AS" */
};

static const struct unit *unit_of(const json_t *why)
{
    static const struct unit units[] = {{"seconds", "ms", "as fast"},
                                        {"device_seconds", "device-ms", "as fast per device"},
                                        {"joules", "mJ", "the tokens/J"}};
    size_t i = 0;

    while (i + 1 < ARRAY_LEN(units) && !str_eq(cl_string(why, "unit"), units[i].name))
        i++;
    return &units[i];
}

/* "measured   1.310 x as fast, a step of 99.8 ms instead of 130.7" of member KEY of BODY. */
static void print_ratio(const char *who, const json_t *body, const char *key,
                        const struct unit *unit, const char *of)
{
    const json_t *both = json_object_get(body, key);

    if (json_is_object(both))
        printf("%-10s %.3f x %s%s, a step takes %.1f %s instead of %.1f\n", who,
               cl_number(both, "ratio"), unit->as, of, 1e3 * cl_number(both, "to_s"),
               unit->thousandth, 1e3 * cl_number(both, "from_s"));
}

/* Where the two trials ran, and what the faster cluster alone brings. */
static void print_clusters(const json_t *why)
{
    const json_t *clusters = json_object_get(why, "clusters");
    const json_t *same = json_object_get(clusters, "same_layout");
    char of[160];

    if (!json_is_object(clusters))
        return;
    printf("%-10s %s instead of %s\n", "cluster", cl_string(clusters, "to"),
           cl_string(clusters, "from"));
    if (!json_is_object(same)) {
        printf("%-10s %s\n", "", cl_string(clusters, "reason"));
        return;
    }
    snprintf(of, sizeof(of), " on %s with the layout of trial %.0f%s", cl_string(clusters, "to"),
             cl_number(same, "trial"),
             json_is_true(json_object_get(same, "fits")) ? "" : " (out of memory on one of them)");
    print_ratio("expected", clusters, "same_layout", unit_of(why), of);
}

/* A cell of milliseconds, "-" where they are unknown. */
static void add_ms(struct cl_table *table, int column, double seconds, bool change)
{
    if (!isfinite(seconds))
        cl_table_add(table, column, "-");
    else if (fabs(seconds) < LEAST)
        cl_table_add(table, column, "0");
    else
        cl_table_add(table, column, change ? "%+.2f" : "%.2f", 1e3 * seconds);
}

static void print_classes(const struct cl *client, const json_t *why, bool simulated)
{
    const json_t *classes = json_object_get(why, "classes");
    char expected[32];
    struct cl_column columns[] = {{.title = expected},
                                  {.title = "before", .align = CL_RIGHT, .drop = 2},
                                  {.title = "after", .align = CL_RIGHT, .drop = 2},
                                  {.title = "change", .align = CL_RIGHT},
                                  {.title = "measured change", .align = CL_RIGHT, .drop = 1}};
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns) - 1};
    const json_t *row;
    size_t i;

    snprintf(expected, sizeof(expected), "expected %s", unit_of(why)->thousandth);
    if (simulated)
        columns[4].title = "simulated change";
    json_array_foreach(classes, i, row)
        if (isfinite(cl_number(row, "trial_to_s")))
            t.ncolumns = ARRAY_LEN(columns);
    json_array_foreach(classes, i, row) {
        double from = cl_number(row, "from_s"), to = cl_number(row, "to_s"),
               before = cl_number(row, "trial_from_s"), after = cl_number(row, "trial_to_s");

        if (fmax(fmax(from, to), fmax(before, after)) < LEAST)
            continue;
        cl_table_add(&t, 0, "%s", cl_string(row, "class"));
        add_ms(&t, 1, from, false);
        add_ms(&t, 2, to, false);
        add_ms(&t, 3, to - from, true);
        if (t.ncolumns > 4)
            add_ms(&t, 4, after - before, true);
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
}

/* The two classes that a key changed most: "tp -15.0, bubble +2.7". */
static void add_mostly(struct cl_table *table, int column, const json_t *classes)
{
    const char *name, *best[2] = {NULL, NULL};
    double most[2] = {0, 0};
    AUTO_STR text = {0};
    json_t *seconds;

    json_object_foreach((json_t *)(uintptr_t)classes, name, seconds) {
        double change = json_number_value(seconds);
        int at = fabs(change) > fabs(most[0]) ? 0 : fabs(change) > fabs(most[1]) ? 1 : 2;

        if (at == 0) {
            best[1] = best[0];
            most[1] = most[0];
        }
        if (at < 2) {
            best[at] = name;
            most[at] = change;
        }
    }
    for (int i = 0; i < 2 && best[i] && fabs(most[i]) >= LEAST; i++)
        str_addf(&text, "%s%s %+.2f", i ? ", " : "", best[i], 1e3 * most[i]);
    cl_table_add(table, column, "%s", str_text(&text));
}

static void print_keys(const struct cl *client, const json_t *why)
{
    const json_t *keys = json_object_get(why, "keys");
    struct cl_column columns[] = {{.title = "changed key", .shrink = true},
                                  {.title = "before", .shrink = true},
                                  {.title = "after", .shrink = true},
                                  {.title = unit_of(why)->thousandth, .align = CL_RIGHT},
                                  {.title = "rate", .align = CL_RIGHT, .drop = 1},
                                  {.title = "mostly", .drop = 2}};
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    char text[64];
    bool tied = false;
    const json_t *key;
    size_t i;

    json_array_foreach(keys, i, key) {
        bool together = cl_number(key, "alone") < 0.999;

        tied |= together;
        cl_table_add(&t, 0, "%s%s", cl_string(key, "key"), together ? " *" : "");
        cl_table_add(&t, 1, "%s", cl_text(text, key, "from"));
        cl_table_add(&t, 2, "%s", cl_text(text, key, "to"));
        add_ms(&t, 3, cl_number(key, "change_s"), true);
        cl_table_add(&t, 4, "%.3f x", cl_number(key, "ratio"));
        add_mostly(&t, 5, json_object_get(key, "classes"));
    }
    if (!t.rows)
        puts("the layouts are the same");
    else
        cl_table_print(client, &t, stdout);
    if (tied)
        puts("* shares an effect: some of the layouts in between are illegal");
    cl_table_done(&t);
}

void cl_print_why(const struct cl *client, const json_t *why)
{
    bool simulated = *cl_simulated_word(why) != '\0';

    print_ratio(simulated ? "simulated" : "measured", why, "trials", unit_of(why), "");
    print_ratio("expected", why, "predicted", unit_of(why), " by the cost model");
    print_clusters(why);
    putchar('\n');
    print_classes(client, why, simulated);
    putchar('\n');
    print_keys(client, why);
}

int cl_why(struct cl *client)
{
    AUTO_STR tail = {0};
    AUTO_JSON *v = NULL;
    int code;

    str_addf(&tail, "/trials/%s/why%s", client->operand[1], client->args.against ? "?" : "");
    cl_add_query(&tail, "against", client->args.against);
    code = cl_get_campaign(&v, client, client->operand[0], str_text(&tail));
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    printf("%-10s %.0f against trial %.0f\n", "trial", cl_number(v, "trial"),
           cl_number(v, "against"));
    cl_print_why(client, v);
    return CL_OK;
}
