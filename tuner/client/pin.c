/*
 * A pinned layout: a job, the layout that won, and the interval in which one more of its runs is
 * expected. `verify --pin FILE` writes it, `verify --against FILE` runs the layout again and says
 * whether it became slower.
 *
 * Slower means: the geometric mean of the new runs is below the interval's lower end. The interval
 * holds one run 95 times in 100, and a mean of several varies less than one, so on an unchanged
 * system this is rarer than 1 in 40.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <math.h>

#include "plan/plan.h"

/* Keys of a campaign that say what a run of its trials is. */
static const char *const job_keys[] = {"model",     "cluster",     "workload", "trainer",
                                       "rules",     "stack",       "trial",    "launcher",
                                       "objective", "constraints", NULL};

struct pin {
    json_t *file; /* owned */
    const json_t *job, *layout;
    double rate, lo, hi;
};

/* ---- writing ------------------------------------------------------------- */

static json_t *job_of(const json_t *spec)
{
    json_t *job = json_object();

    for (const char *const *key = job_keys; *key; key++)
        if (json_object_get(spec, *key))
            json_object_set(job, *key, json_object_get(spec, *key));
    return job;
}

static int write_pin(struct cl *client, const json_t *campaign, const json_t *trial)
{
    const json_t *interval = json_object_get(json_object_get(campaign, "verify"), "prediction");
    AUTO_JSON *pin = json_pack(
        "{s:i, s:s, s:O, s:O, s:O, s:b, s:s, s:O, s:O, s:o}", "pin", 1, "text",
        cl_string(trial, "text"), "tokens_per_s", json_object_get(interval, "tokens_per_s"), "lo",
        json_object_get(interval, "lo"), "hi", json_object_get(interval, "hi"), "simulated",
        *cl_simulated_word(campaign) != '\0', "campaign", cl_string(campaign, "id"), "ended",
        json_object_get(campaign, "ended"), "layout", json_object_get(trial, "layout"), "job",
        job_of(json_object_get(campaign, "spec")));
    AUTO_FREE char *text = pin ? json_dumps(pin, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    AUTO_FREE char *line = text ? mem_printf("%s\n", text) : NULL;
    struct err e = {0};

    if (!line || !json_is_number(json_object_get(interval, "lo")))
        err_set(&e, -EINVAL, "the verification gives no interval: nothing to pin");
    else
        file_write_atomic(client->args.pin, line, strlen(line), 0644, &e);
    if (e.code) {
        fprintf(stderr, "partune: %s\n", e.text);
        return CL_FAILED;
    }
    if (!client->args.json)
        cl_say_done(client, "wrote", client->args.pin);
    return CL_OK;
}

int cl_pin(struct cl *client, const json_t *campaign)
{
    AUTO_FREE char *tail =
        mem_printf("/trials/%.0f", cl_number(json_object_get(campaign, "verify"), "winner"));
    AUTO_JSON *trial = NULL;
    int code = cl_get_campaign(&trial, client, cl_string(campaign, "id"), tail);

    return code == CL_OK ? write_pin(client, campaign, trial) : code;
}

/* ---- reading ------------------------------------------------------------- */

static int read_pin(struct pin *ret, const char *path)
{
    struct err e = {0};
    int code = cl_load(&ret->file, path);

    if (code != CL_OK)
        return code;
    ret->job = json_object_get(ret->file, "job");
    ret->layout = json_object_get(ret->file, "layout");
    ret->rate = cl_number(ret->file, "tokens_per_s");
    ret->lo = cl_number(ret->file, "lo");
    ret->hi = cl_number(ret->file, "hi");
    if (json_integer_value(json_object_get(ret->file, "pin")) != 1)
        err_set(&e, -EINVAL, "/pin must be 1: the file was not written by `partune verify --pin`");
    else if (!json_is_object(ret->job))
        err_set(&e, -EINVAL, "/job must be an object");
    else if (!json_is_object(ret->layout))
        err_set(&e, -EINVAL, "/layout must be an object");
    else if (!(ret->lo > 0 && ret->rate >= ret->lo && ret->hi >= ret->rate))
        err_set(&e, -EINVAL, "/lo, /tokens_per_s and /hi must be positive numbers in that order");
    if (!e.code)
        return CL_OK;
    fprintf(stderr, "partune: %s: %s\n", path, e.text);
    return CL_REFUSED;
}

/* A campaign whose one layout is the pinned one. */
static json_t *campaign_of(const struct pin *pin)
{
    json_t *campaign = job_of(pin->job), *space = json_object();

    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        json_t *value = json_object_get(pin->layout, key->name);

        if (value && key->part != PL_DERIVED && strcmp(key->name, "world") != 0)
            json_object_set_new(space, key->name, json_pack("[O]", value));
    }
    json_object_set_new(campaign, "name",
                        json_sprintf("check of %.60s", cl_string(pin->file, "text")));
    json_object_set_new(campaign, "space", space);
    json_object_set(campaign, "baseline", (json_t *)(uintptr_t)pin->layout);
    json_object_set_new(campaign, "budget", json_pack("{s:i}", "trials", 1));
    return campaign;
}

/* ---- running ------------------------------------------------------------- */

/* Submit, wait for the one trial, verify, wait again. *RET is the campaign, new reference. */
static int run_again(json_t **ret, struct cl *client, const struct pin *pin)
{
    AUTO_JSON *body = campaign_of(pin), *made = NULL, *done = NULL, *again = NULL;
    AUTO_JSON *pairs =
        json_pack("{s:i, s:i}", "pairs", client->args.pairs, "steps", client->args.steps);
    AUTO_FREE char *path = NULL;
    int code = cl_call(&made, client, "POST", "/v1/campaigns", body);

    if (code != CL_OK)
        return code;
    if (!client->args.json)
        printf("campaign %s: %d runs of %s\n", cl_string(made, "id"), client->args.pairs,
               cl_string(pin->file, "text"));
    code = cl_wait_campaign(&done, client, cl_string(made, "id"));
    if (code == CL_OK) {
        path = cl_path("/v1/campaigns/", cl_string(made, "id"), ":verify");
        code = cl_call(&again, client, "POST", path, pairs);
    }
    if (code == CL_OK)
        code = cl_wait_campaign(ret, client, cl_string(made, "id"));
    if (code != CL_OK && done)
        fprintf(stderr, "partune: campaign %s: %s %s\n", cl_string(done, "id"),
                cl_string(done, "state"), cl_string(done, "reason"));
    return code;
}

/* The rates of the runs, new reference, and their geometric mean; NAN: none succeeded. */
static int read_runs(json_t **ret_rates, double *ret_mean, struct cl *client, const char *id)
{
    AUTO_JSON *list = NULL;
    json_t *rates = json_array(), *trial;
    double sum = 0;
    size_t i;
    int code = cl_get_campaign(&list, client, id, "/trials?kind=verify&state=ok&page_size=1000");

    json_array_foreach(json_object_get(list, "items"), i, trial) {
        double rate = cl_number(trial, "tokens_per_s");

        if (rate > 0) {
            json_array_append_new(rates, json_real(rate));
            sum += log(rate);
        }
    }
    *ret_mean = json_array_size(rates) ? exp(sum / (double)json_array_size(rates)) : NAN;
    *ret_rates = rates;
    return code;
}

static int print_verdict(const struct cl *client, const struct pin *pin, const json_t *campaign,
                         json_t *rates, double mean)
{
    const char *verdict = mean < pin->lo ? "slower" : mean > pin->hi ? "faster" : "holds";
    char a[32], b[32], c[32];

    if (client->args.json) {
        AUTO_JSON *v = json_pack("{s:s, s:s, s:b, s:f, s:f, s:O, s:{s:f, s:f, s:f}}", "verdict",
                                 verdict, "campaign", cl_string(campaign, "id"), "simulated",
                                 *cl_simulated_word(campaign) != '\0', "ratio", mean / pin->rate,
                                 "tokens_per_s", mean, "runs", rates, "pinned", "tokens_per_s",
                                 pin->rate, "lo", pin->lo, "hi", pin->hi);

        cl_print_json(v);
    } else {
        printf("%-10s %s %stokens/s, 95 %% interval of a run %s to %s\n", "pinned",
               cl_rate(a, pin->rate), cl_simulated_word(pin->file), cl_rate(b, pin->lo),
               cl_rate(c, pin->hi));
        printf("%-10s %s %stokens/s over %zu runs\n", "now", cl_rate(a, mean),
               cl_simulated_word(campaign), json_array_size(rates));
        printf("%-10s %s: %.3f x the pinned rate\n", "verdict", verdict, mean / pin->rate);
    }
    return mean < pin->lo ? CL_SLOWER : CL_OK;
}

int cl_verify_against(struct cl *client)
{
    struct pin pin = {0};
    AUTO_JSON *campaign = NULL, *rates = NULL;
    double mean = NAN;
    int code = read_pin(&pin, client->args.against);

    if (code == CL_OK)
        code = run_again(&campaign, client, &pin);
    if (code == CL_OK)
        code = read_runs(&rates, &mean, client, cl_string(campaign, "id"));
    if (code == CL_OK && !(mean > 0)) {
        fprintf(stderr, "partune: no run of the pinned layout succeeded; see `partune trials %s`\n",
                cl_string(campaign, "id"));
        code = CL_FAILED;
    }
    if (code == CL_OK)
        code = print_verdict(client, &pin, campaign, rates, mean);
    json_decref(pin.file);
    return code;
}
