/* partune project: a campaign's trials carried to other numbers of devices and other machines. */
#include "tuner/client/client.h"

#include <math.h>

static const struct cl_column columns[] = {
    {"devices", CL_RIGHT, false, 0, false},      {"batch", CL_RIGHT, false, 2, false},
    {"layout", CL_LEFT, true, 0, false},         {"tokens/s", CL_RIGHT, false, 0, false},
    {"95 % interval", CL_LEFT, false, 0, false}, {"MFU", CL_RIGHT, false, 3, false},
    {"efficiency", CL_RIGHT, false, 1, false},
};

static const struct cl_column past_columns[] = {
    {"devices", CL_RIGHT, false, 0, false},    {"layout", CL_LEFT, true, 0, false},
    {"projected", CL_RIGHT, false, 0, false},  {"measured", CL_RIGHT, false, 0, false},
    {"error", CL_RIGHT, false, 0, false},      {"inside", CL_LEFT, false, 2, false},
    {"by campaign", CL_LEFT, false, 1, false},
};

bool cl_devices(json_t *list, const char *text)
{
    AUTO_FREE char *copy = mem_strdup(text);
    char *rest = copy, *word;
    int64_t n;

    while ((word = strsep(&rest, ","))) {
        if (str_to_i64(&n, word, 1, 1 << 20) < 0)
            return false;
        json_array_append_new(list, json_integer((json_int_t)n));
    }
    return true;
}

static void print_rows(struct cl *client, const json_t *reply)
{
    struct cl_table t = {columns, ARRAY_LEN(columns), NULL, 0, 0};
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(reply, "rows"), i, row) {
        bool known = isfinite(cl_number(row, "tokens_per_s")),
             mfu = isfinite(cl_number(row, "mfu"));
        char rate[32], lo[32], hi[32];

        cl_table_add(&t, 0, "%.0f", cl_number(row, "devices"));
        cl_table_add(&t, 1, "%.0f", cl_number(row, "global_batch"));
        cl_table_add(&t, 2, "%s", known ? cl_string(row, "text") : cl_string(row, "reason"));
        cl_table_add(&t, 3, "%s", known ? cl_rate(rate, cl_number(row, "tokens_per_s")) : "-");
        if (known)
            cl_table_add(&t, 4, "%s - %s", cl_rate(lo, cl_number(row, "lo")),
                         cl_rate(hi, cl_number(row, "hi")));
        else
            cl_table_add(&t, 4, "-");
        cl_table_add(&t, 5, mfu ? "%.1f %%" : "-", 100 * cl_number(row, "mfu"));
        cl_table_add(&t, 6, known ? "%.1f %%" : "-", 100 * cl_number(row, "efficiency"));
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
}

static void print_past(struct cl *client, const json_t *reply)
{
    struct cl_table t = {past_columns, ARRAY_LEN(past_columns), NULL, 0, 0};
    json_t *it;
    size_t i;

    json_array_foreach(json_object_get(reply, "earlier"), i, it) {
        char said[32], seen[32];

        cl_table_add(&t, 0, "%.0f", cl_number(it, "devices"));
        cl_table_add(&t, 1, "%s", cl_string(it, "text"));
        cl_table_add(&t, 2, "%s", cl_rate(said, cl_number(it, "projected")));
        cl_table_add(&t, 3, "%s", cl_rate(seen, cl_number(it, "measured")));
        cl_table_add(&t, 4, "%+.1f %%", 100 * cl_number(it, "error"));
        cl_table_add(&t, 5, "%s", json_is_true(json_object_get(it, "inside")) ? "yes" : "no");
        cl_table_add(&t, 6, "%s", cl_string(it, "measured_by"));
    }
    if (t.rows) {
        puts("\nearlier projections that have been measured:");
        cl_table_print(client, &t, stdout);
    } else {
        puts("\nno trial has tested an earlier projection yet");
    }
    cl_table_done(&t);
}

/* Simulated trials teach what the simulator says, which is the cost model again. */
static const char *learned_from(const json_t *reply)
{
    double simulated = cl_number(reply, "calibration.simulated");

    if (!(simulated > 0))
        return "";
    return simulated < cl_number(reply, "calibration.trials") ? ", some of them simulated"
                                                              : ", all simulated";
}

/* Are there rows for whose machine and precision no trial was learned from? */
static bool any_transferred(const json_t *json)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(json, "rows"), i, row)
        if (json_is_true(json_object_get(row, "transferred")))
            return true;
    return false;
}

/* That the target is another machine, and what its intervals include for it. */
static void print_transfer(const json_t *json)
{
    AUTO_STR what = {0};
    json_t *word;
    size_t i;
    bool transferred = any_transferred(json);

    json_array_foreach(json_object_get(json_object_get(json, "transfer"), "changed"), i, word)
        str_addf(&what, "%s%s", i ? ", " : "", json_string_value(word));
    if (str_text(&what)[0])
        printf("projected to another machine (changed: %s): %s of %s\n", str_text(&what),
               cl_string(json, "cluster"), cl_string(json, "device"));
    if (transferred)
        printf("no trial ran on %s: the intervals include the variation of the cost model's error "
               "between machines (standard deviation %.0f %%)\n",
               str_text(&what)[0] ? "that machine at that precision" : "some of these precisions",
               100 * cl_number(json, "transfer.deviation"));
    else if (str_text(&what)[0])
        puts("the calibration includes trials on that machine");
}

int cl_project(struct cl *client)
{
    json_t *devices = json_array();
    AUTO_JSON *v = NULL;
    AUTO_JSON *body = json_pack("{s:s, s:o}", "campaign", client->operand[0], "devices", devices);
    char rate[32];
    int code;

    if (!client->args.sizes || !cl_devices(devices, client->args.sizes)) {
        fprintf(stderr, "partune: project needs --sizes N,N,…, whole numbers of devices\n");
        return CL_USAGE;
    }
    if (client->args.scaling)
        json_object_set_new(body, "scaling", json_string(client->args.scaling));
    if (client->args.layouts)
        json_object_set_new(body, "layouts", json_string(client->args.layouts));
    if (client->args.on)
        json_object_set_new(body, "cluster", json_string(client->args.on));
    code = cl_call(&v, client, "POST", "/v1/project", body);
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    printf("%s: %s tokens/s on %.0f devices, batch %.0f (%s)\n",
           *cl_simulated_word(json_object_get(v, "base")) ? "simulated" : "measured",
           cl_rate(rate, cl_number(v, "base.tokens_per_s")), cl_number(v, "base.devices"),
           cl_number(v, "base.global_batch"), cl_string(v, "base.text"));
    printf("calibrated on %.0f trials%s: %.3g x the cost model's time (%.3g to %.3g)\n",
           cl_number(v, "calibration.trials"), learned_from(v), cl_number(v, "calibration.factor"),
           cl_number(v, "calibration.lo"), cl_number(v, "calibration.hi"));
    print_transfer(v);
    printf("%s scaling, projected:\n", cl_string(v, "scaling"));
    print_rows(client, v);
    print_past(client, v);
    return CL_OK;
}
