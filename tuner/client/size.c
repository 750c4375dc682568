/* partune size: how many devices a job needs, and what they bring, by the cost model. */
#include "tuner/client/client.h"

#include <math.h>

static const struct cl_column columns[] = {
    {.title = "devices", .align = CL_RIGHT},
    {.title = "layout", .shrink = true},
    {.title = "tokens/s", .align = CL_RIGHT},
    {.title = "95 % interval", .drop = 2},
    {.title = "MFU", .align = CL_RIGHT, .drop = 3},
    {.title = "efficiency", .align = CL_RIGHT, .drop = 1},
    {.title = "marginal", .align = CL_RIGHT, .drop = 4},
    {.title = "days", .align = CL_RIGHT},
    {.title = "cost", .align = CL_RIGHT},
};

/* "3.2", "1,430" */
static const char *days_of(char buf[32], double days)
{
    if (days >= 10)
        return cl_rate(buf, days);
    snprintf(buf, 32, "%.1f", days);
    return buf;
}

static void print_sizes(const struct cl *client, const json_t *sizing)
{
    struct cl_table t = {.column = columns, .ncolumns = ARRAY_LEN(columns)};
    json_t *it;
    size_t i;

    json_array_foreach(json_object_get(sizing, "items"), i, it) {
        bool fits = isfinite(cl_number(it, "tokens_per_s"));
        char rate[32], lo[32], hi[32];

        cl_table_add(&t, 0, "%.0f", cl_number(it, "devices"));
        cl_table_add(&t, 1, "%s", fits ? cl_string(it, "text") : cl_string(it, "reason"));
        if (!fits)
            continue;
        cl_table_add(&t, 2, "%s", cl_rate(rate, cl_number(it, "tokens_per_s")));
        cl_table_add(&t, 3, "%s - %s", cl_rate(lo, cl_number(it, "lo")),
                     cl_rate(hi, cl_number(it, "hi")));
        if (isfinite(cl_number(it, "mfu")))
            cl_table_add(&t, 4, "%.1f %%", 100 * cl_number(it, "mfu"));
        cl_table_add(&t, 5, "%.0f %%", 100 * cl_number(it, "efficiency"));
        cl_table_add(&t, 6, "%.0f %%", 100 * cl_number(it, "marginal"));
        if (isfinite(cl_number(it, "days")))
            cl_table_add(&t, 7, "%s (%s - %s)", days_of(rate, cl_number(it, "days")),
                         days_of(lo, cl_number(it, "days_lo")),
                         days_of(hi, cl_number(it, "days_hi")));
        if (isfinite(cl_number(it, "cost")))
            cl_table_add(&t, 8, "%s", cl_rate(rate, cl_number(it, "cost")));
    }
    cl_table_print(client, &t, stdout);
    cl_table_done(&t);
}

static void print_fewest(const struct cl *client, const json_t *sizing)
{
    double fewest = cl_number(sizing, "fewest"), sure = cl_number(sizing, "fewest_sure");

    if (!(client->args.days > 0))
        return;
    if (isfinite(fewest))
        printf("%.3g tokens in %.3g days: %.0f devices expected", client->args.tokens,
               client->args.days, fewest);
    else
        printf("%.3g tokens in %.3g days: more devices than listed", client->args.tokens,
               client->args.days);
    if (isfinite(sure))
        printf(", %.0f at the slow end of the interval\n", sure);
    else
        puts(isfinite(fewest) ? ", more than listed at the slow end of the interval" : "");
}

/* How far scaling pays, and whether all was looked at. */
static void print_pays(const json_t *sizing)
{
    double pays = cl_number(sizing, "pays"), largest = 0;
    bool whole = true;
    json_t *it;
    size_t i;

    json_array_foreach(json_object_get(sizing, "items"), i, it) {
        if (isfinite(cl_number(it, "tokens_per_s")))
            largest = cl_number(it, "devices");
        whole = whole && json_is_true(json_object_get(it, "exact"));
    }
    if (isfinite(pays) && pays < largest)
        printf("beyond %.0f devices, each added device brings less than half the tokens/s of the "
               "first ones\n",
               pays);
    else if (isfinite(pays))
        printf("up to %.0f devices, each added device brings at least half the tokens/s of the "
               "first ones\n",
               pays);
    if (!whole)
        puts("some spaces were only partly examined within the time limit: those sizes may have "
             "faster layouts");
}

int cl_size(struct cl *client)
{
    const struct cl_args *args = &client->args;
    AUTO_JSON *body = NULL, *sizing = NULL;
    json_t *devices = json_array();
    int code = cl_job_body(&body, client, "size needs a FILE or --model NAME");

    if (code == CL_OK && args->sizes && !cl_devices(devices, args->sizes)) {
        fprintf(stderr, "partune: --sizes must be whole numbers of devices, such as 64,128\n");
        code = CL_USAGE;
    }
    if (code == CL_OK && json_array_size(devices))
        json_object_set(body, "devices", devices);
    json_decref(devices);
    if (code != CL_OK)
        return code;
    json_object_del(body, "objective");
    if (args->tokens > 0)
        json_object_set_new(body, "tokens", json_real(args->tokens));
    if (args->days > 0)
        json_object_set_new(body, "days", json_real(args->days));
    if (args->price > 0)
        json_object_set_new(body, "price", json_real(args->price));
    code = cl_call(&sizing, client, "POST", "/v1/size", body);
    if (code != CL_OK)
        return code;
    if (args->json) {
        cl_print_json(sizing);
        return CL_OK;
    }
    printf("the best layout of each size, expected by the cost model, not measured; global_batch "
           "%.0f:\n",
           cl_number(body, "workload.global_batch"));
    print_sizes(client, sizing);
    print_fewest(client, sizing);
    print_pays(sizing);
    return CL_OK;
}
