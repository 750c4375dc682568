/* `partune compare`: trials or campaigns side by side. */
#include "tuner/client/client.h"

#include <math.h>

/* "ID" or "ID/N" operands as the request's body; NULL where they are mixed. */
static json_t *compared(const struct cl *client)
{
    json_t *list = json_array();
    bool trials = strchr(client->operand[0], '/') != NULL;

    for (int i = 0; i < client->noperands; i++) {
        const char *slash = strchr(client->operand[i], '/');
        int64_t n = 0;

        if ((slash != NULL) != trials || (slash && str_to_i64(&n, slash + 1, 1, INT64_MAX) < 0)) {
            json_decref(list);
            return NULL;
        }
        if (trials)
            json_array_append_new(list, json_pack("{s:s%, s:I}", "campaign", client->operand[i],
                                                  (size_t)(slash - client->operand[i]), "n",
                                                  (json_int_t)n));
        else
            json_array_append_new(list, json_string(client->operand[i]));
    }
    return json_pack("{s:o}", trials ? "trials" : "campaigns", list);
}

/* The value at PATH of each of ITEMS: a text whole, however long. */
static void compare_row(struct cl_table *table, const json_t *items, const char *title,
                        const char *path)
{
    char text[64];
    json_t *it;
    size_t i;

    cl_table_add(table, 0, "%s", title);
    json_array_foreach((json_t *)(uintptr_t)items, i, it)
        cl_table_add(table, (int)i + 1, "%s",
                     *cl_string(it, path) ? cl_string(it, path) : cl_text(text, it, path));
}

static void rate_row(struct cl_table *table, const json_t *items, const char *title,
                     const char *path)
{
    char text[32];
    json_t *it;
    size_t i;

    cl_table_add(table, 0, "%s", title);
    json_array_foreach((json_t *)(uintptr_t)items, i, it)
        cl_table_add(table, (int)i + 1, "%s", cl_rate(text, cl_number(it, path)));
}

static void ratio_row(struct cl_table *table, const json_t *items, const char *title,
                      const char *path)
{
    json_t *it;
    size_t i;

    cl_table_add(table, 0, "%s", title);
    json_array_foreach((json_t *)(uintptr_t)items, i, it)
        cl_table_add(table, (int)i + 1, isfinite(cl_number(it, path)) ? "%.2f" : "-",
                     cl_number(it, path));
}

static bool any_smaller(const json_t *trials)
{
    json_t *it;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)trials, i, it)
        if (cl_is_smaller(it))
            return true;
    return false;
}

/* Of TRIALS, some of smaller problems: what each ran, and what is inferred of the full size. */
static void smaller_rows(struct cl_table *table, const json_t *trials)
{
    char text[72], ran[160];
    json_t *it;
    size_t i;

    cl_table_add(table, 0, "inferred, 95 %%");
    json_array_foreach((json_t *)(uintptr_t)trials, i, it)
        cl_table_add(table, (int)i + 1, "%s", cl_is_smaller(it) ? cl_trial_rate(text, it) : "-");
    cl_table_add(table, 0, "ran");
    json_array_foreach((json_t *)(uintptr_t)trials, i, it)
        cl_table_add(table, (int)i + 1, "%s",
                     cl_is_smaller(it) ? cl_what_ran(ran, it) : "the full size");
    rate_row(table, trials, "tokens/s of that", "run.tokens_per_s");
}

static void trial_rows(struct cl_table *table, const json_t *trials)
{
    compare_row(table, trials, "layout", "text");
    compare_row(table, trials, "state", "state");
    compare_row(table, trials, "simulated", "simulated");
    rate_row(table, trials, "tokens/s", "tokens_per_s");
    if (any_smaller(trials))
        smaller_rows(table, trials);
}

/* The best of CAMPAIGN at VALUE of a layout key: of its list of slices, or, where it has no other
 * value, its best. NULL: it has none. */
static const json_t *best_at(const json_t *campaign, const char *list, const char *key,
                             const json_t *value)
{
    const json_t *slices = json_object_get(campaign, list),
                 *best = json_object_get(campaign, "best"),
                 *only = json_object_get(json_object_get(best, "layout"), key);
    json_t *it;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)slices, i, it)
        if (json_equal(json_object_get(it, key), value))
            return json_object_get(it, "best");
    /* a layout names its batch, and its cluster, only where there are several */
    if (!only && str_eq(key, "cluster"))
        only = json_object_get(json_object_get(campaign, key), "name");
    else if (!only)
        only = json_object_get(json_object_get(campaign, "workload"), key);
    return !slices && json_equal(only, value) ? best : NULL;
}

static bool is_new(const json_t *seen, json_t *value)
{
    json_t *it;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)seen, i, it)
        if (json_equal(it, value))
            return false;
    return true;
}

/* Where one of CAMPAIGNS has several values of KEY (LIST of its resource), a row of rates for each:
 * NAME and the value. */
static void slice_rows(struct cl_table *table, const json_t *campaigns, const char *list,
                       const char *key, const char *name)
{
    AUTO_JSON *seen = json_array();
    json_t *campaign, *slice, *other;
    size_t i, j, k;

    json_array_foreach((json_t *)(uintptr_t)campaigns, i, campaign) {
        json_array_foreach(json_object_get(campaign, list), j, slice) {
            json_t *value = json_object_get(slice, key);
            char rate[32], text[64];

            if (!is_new(seen, value))
                continue;
            json_array_append(seen, value);
            cl_table_add(table, 0, "best at %s %s", name, cl_value(text, slice, key));
            json_array_foreach((json_t *)(uintptr_t)campaigns, k, other)
                cl_table_add(
                    table, (int)k + 1, "%s",
                    cl_rate(rate, cl_number(best_at(other, list, key, value), "tokens_per_s")));
        }
    }
}

static void campaign_rows(struct cl_table *table, const json_t *campaigns)
{
    json_t *campaign;
    size_t i;

    compare_row(table, campaigns, "name", "name");
    compare_row(table, campaigns, "state", "state");
    compare_row(table, campaigns, "simulated", "simulated");
    compare_row(table, campaigns, "model", "model.name");
    cl_table_add(table, 0, "cluster");
    json_array_foreach((json_t *)(uintptr_t)campaigns, i, campaign) {
        AUTO_STR clusters = {0};

        cl_clusters(&clusters, campaign);
        cl_table_add(table, (int)i + 1, "%s", str_text(&clusters));
    }
    compare_row(table, campaigns, "objective", "objective");
    compare_row(table, campaigns, "trials", "progress.trials");
    rate_row(table, campaigns, "device-s", "progress.device_s");
    rate_row(table, campaigns, "tokens/s", "best.tokens_per_s");
    ratio_row(table, campaigns, "x baseline", "best.ratio");
    compare_row(table, campaigns, "devices", "best.devices");
    slice_rows(table, campaigns, "batches", "global_batch", "global batch");
    slice_rows(table, campaigns, "worlds", "world", "world");
    slice_rows(table, campaigns, "clusters", "cluster", "cluster");
    compare_row(table, campaigns, "best layout", "best.text");
}

int cl_compare(struct cl *client)
{
    AUTO_JSON *body = compared(client), *v = NULL;
    struct cl_column column[6] = {{.title = ""}};
    struct cl_table t = {.column = column, .ncolumns = client->noperands + 1};
    bool trials = body && json_object_get(body, "trials");
    const json_t *items;
    json_t *key;
    size_t i;
    int code;

    if (!body) {
        fprintf(stderr,
                "partune: compare takes campaigns (ID ID) or trials (ID/N ID/N), not both\n");
        return CL_USAGE;
    }
    code = cl_call(&v, client, "POST", "/v1/compare", body);
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    for (int k = 0; k < client->noperands; k++)
        column[k + 1] = (struct cl_column){.title = client->operand[k], .shrink = true};
    items = json_object_get(v, "items");
    if (trials)
        trial_rows(&t, items);
    else
        campaign_rows(&t, items);
    json_array_foreach(json_object_get(v, "differs"), i, key) {
        AUTO_FREE char *path =
            mem_printf("%s.%s", trials ? "layout" : "best.layout", json_string_value(key));

        compare_row(&t, items, json_string_value(key), path);
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
    if (trials)
        cl_print_inferred(stdout, items);
    if (json_is_true(json_object_get(v, "mixed")))
        puts("simulated numbers cannot be compared with measured ones");
    return CL_OK;
}
