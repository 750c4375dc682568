/* Commands about campaigns and trials: submit, ls, show, log, export, actions. */
#include "tuner/client/client.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "db/db.h"

static char *campaign_path(const char *id, const char *tail)
{
    return cl_path("/v1/campaigns/", id, tail);
}

/* Who chose the baseline, and where the rule had to give way. */
static void print_baseline_rule(const json_t *reply)
{
    static const char *const words[][2] = {
        {"default", "what a competent engineer would start from"},
        {"naive", "the largest data parallelism that fits"},
        {"given", "the campaign's own layout"}};
    const char *rule = cl_string(reply, "baseline_rule"), *note = cl_string(reply, "baseline_note");

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(rule, words[i][0]))
            printf("baseline         %s: %s%s%s\n", rule, words[i][1], *note ? ", " : "", note);
}

/* What the models expect of the baseline, and whether its attempt may take that long. */
static void print_baseline_expected(const json_t *reply)
{
    double memory = cl_number(reply, "baseline_expected.memory"),
           offered = cl_number(reply, "baseline_expected.offered"),
           least = cl_number(reply, "least_attempt_s"), most = cl_number(reply, "timeout_s");
    char needs[24], of[24];

    printf("                 %s\n                 expected: %.4g s an iteration, %s of %s%s\n",
           cl_string(reply, "baseline_expected.text"),
           cl_number(reply, "baseline_expected.seconds"), str_human_bytes(needs, memory),
           str_human_bytes(of, offered), memory > offered ? ": does not fit" : "");
    if (least > most)
        printf("timeout          trial.timeout_s %.0f is too short: the fewest steps of the "
               "baseline take about %.0f s\n",
               most, least);
}

/* What the trials of each of FIDELITIES run at most, one a line. */
static void print_fidelities(const json_t *fidelities)
{
    static const struct {
        const char *key, *one, *many;
    } bounds[] = {{"replicas", "replica", "replicas"},
                  {"stage_layers", "layer of a virtual stage", "layers of a virtual stage"},
                  {"micro_batches", "micro-batch of a replica", "micro-batches of a replica"},
                  {"steps", "measured step", "measured steps"},
                  {"devices", "device", "devices"}};
    json_t *fidelity;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)fidelities, i, fidelity) {
        const char *before = i ? " or at most" : " at most";

        printf("%-16s", i ? "" : "smaller trials");
        for (size_t k = 0; k < ARRAY_LEN(bounds); k++) {
            double most = cl_number(fidelity, bounds[k].key);

            if (!isfinite(most))
                continue;
            printf("%s %.0f %s", before, most, most > 1 ? bounds[k].many : bounds[k].one);
            before = ",";
        }
        putchar('\n');
    }
}

void cl_print_dry_run(const json_t *reply)
{
    const char *least = json_is_false(json_object_get(reply, "exact")) ? "at least " : "";
    const char *reason = cl_string(reply, "reason");
    char seconds[24];

    if (*cl_simulated_word(reply))
        puts("simulated        yes: no training job will run");
    print_baseline_rule(reply);
    print_baseline_expected(reply);
    printf("legal layouts    %s%.0f\nof which fit     %s%.0f\n", least, cl_number(reply, "legal"),
           least, cl_number(reply, "fitting"));
    if (*reason)
        printf("%s\n", reason);
    print_fidelities(json_object_get(reply, "fidelity"));
    if (*cl_string(reply, "fidelity_note"))
        printf("smaller trials   %s\n", cl_string(reply, "fidelity_note"));
    printf("expected trials  %.0f\nexpected time    %s\nnothing was started\n",
           cl_number(reply, "expected_trials"),
           isfinite(cl_number(reply, "expected_s"))
               ? str_human_seconds(seconds, cl_number(reply, "expected_s"))
               : "unknown");
}

int cl_submit(struct cl *client)
{
    AUTO_JSON *body = NULL, *v = NULL;
    int code = cl_load(&body, client->operand[0]);

    if (code == CL_OK)
        code = cl_baseline_option(client, body);
    if (code != CL_OK)
        return code;
    if (client->args.name)
        json_object_set_new(body, "name", json_string(client->args.name));
    code = cl_call(&v, client, "POST",
                   client->args.dry_run ? "/v1/campaigns?dry_run=true" : "/v1/campaigns", body);
    if (code != CL_OK)
        return code;
    if (client->args.json && client->args.watch && !client->args.dry_run) {
        cl_print_event("campaign", v); /* events follow, a line each */
    } else if (client->args.json) {
        cl_print_json(v);
    } else if (client->args.dry_run) {
        cl_print_dry_run(v);
    } else {
        printf(
            "campaign %s (%s): %s%.0f legal layouts%s\n", cl_string(v, "id"), cl_string(v, "name"),
            json_is_false(json_object_get(json_object_get(v, "space"), "exact")) ? "at least " : "",
            cl_number(v, "space.legal"),
            *cl_simulated_word(v) ? "; simulated, no training job will run" : "");
        if (!client->args.watch)
            printf("  follow it with: partune watch %s\n", cl_string(v, "id"));
    }
    return client->args.watch && !client->args.dry_run
               ? cl_watch_campaign(client, cl_string(v, "id"), CL_WATCH_ALL)
               : CL_OK;
}

static const struct cl_column campaign_columns[] = {
    {.title = "id"},
    {.title = "name", .shrink = true},
    {.title = "state", .state = true},
    {.title = "launcher"},
    {.title = "trials", .align = CL_RIGHT, .drop = 2},
    {.title = "best tokens/s", .align = CL_RIGHT},
    {.title = "x baseline", .align = CL_RIGHT, .drop = 1},
    {.title = "best layout", .shrink = true, .drop = 3},
    {.title = "created", .drop = 4},
};

int cl_ls(struct cl *client)
{
    struct cl_table t = {.column = campaign_columns, .ncolumns = ARRAY_LEN(campaign_columns)};
    AUTO_STR path = {0};
    AUTO_JSON *v = NULL;
    json_t *it;
    size_t i;
    int code;

    str_addf(&path, "/v1/campaigns?page_size=%d", client->args.limit);
    cl_add_query(&path, "state", client->args.state);
    cl_add_query(&path, "tag", client->args.tag);
    cl_add_query(&path, "name", client->args.name);
    cl_add_query(&path, "sort", client->args.sort);
    code = cl_call(&v, client, "GET", str_text(&path), NULL);
    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    json_array_foreach(json_object_get(v, "items"), i, it) {
        char rate[32];
        double budget = cl_number(it, "progress.budget"), ratio = cl_number(it, "best.ratio");

        cl_table_add(&t, 0, "%s", cl_string(it, "id"));
        cl_table_add(&t, 1, "%s", cl_string(it, "name"));
        cl_table_add(&t, 2, "%s", cl_string(it, "state"));
        cl_table_add(&t, 3, "%s", cl_string(it, "launcher"));
        cl_table_add(&t, 4, isfinite(budget) ? "%.0f/%.0f" : "%.0f",
                     cl_number(it, "progress.trials"), budget);
        cl_table_add(&t, 5, "%s", cl_rate(rate, cl_number(it, "best.tokens_per_s")));
        cl_table_add(&t, 6, isfinite(ratio) ? "%.2f" : "-", ratio);
        cl_table_add(&t, 7, "%s", cl_string(it, "best.text"));
        cl_table_add(&t, 8, "%.19s", cl_string(it, "created"));
    }
    if (t.rows)
        cl_table_print(client, &t, stdout);
    else if (client->args.state || client->args.tag || client->args.name)
        puts("no campaign matches; `partune ls` lists all");
    else
        puts("no campaign yet; start one with: partune new my.json, then partune submit my.json");
    if (cl_number(v, "total") > t.rows)
        printf("%d of %.0f campaigns; more with --limit\n", t.rows, cl_number(v, "total"));
    cl_table_done(&t);
    return CL_OK;
}

static void print_verdict(const json_t *verdict)
{
    const json_t *verify = json_object_get(verdict, "verify");
    char mean[32], lo[32], hi[32];

    if (!json_is_object(verify))
        return;
    if (str_eq(cl_string(verify, "verdict"), "same"))
        printf("%-10s %sthe winner is the baseline: nothing to compare\n", "verify",
               cl_simulated_word(verify));
    else if (isfinite(cl_number(verify, "ratio")))
        printf(
            "%-10s %s%s: winner / baseline = %.3f, 95 %% interval %.3f to %.3f over %.0f pairs\n",
            "verify", cl_simulated_word(verify),
            *cl_string(verify, "verdict") ? cl_string(verify, "verdict")
                                          : cl_string(verify, "state"),
            cl_number(verify, "ratio"), cl_number(verify, "lo"), cl_number(verify, "hi"),
            cl_number(verify, "pairs"));
    else
        printf("%-10s %s%s\n", "verify", cl_simulated_word(verify), cl_string(verify, "state"));
    if (isfinite(cl_number(verify, "prediction.tokens_per_s")))
        printf("%-10s %s %stokens/s of the winner's next run, 95 %% interval %s to %s\n",
               "expected", cl_rate(mean, cl_number(verify, "prediction.tokens_per_s")),
               cl_simulated_word(verify), cl_rate(lo, cl_number(verify, "prediction.lo")),
               cl_rate(hi, cl_number(verify, "prediction.hi")));
}

/* What the trials have cost, where there is more to say of it than device-seconds. */
static void print_cost(const json_t *campaign)
{
    double cost = cl_number(campaign, "progress.cost"),
           smaller = cl_number(campaign, "progress.smaller_trials");

    if (!isfinite(cost) && !(smaller > 0))
        return;
    printf("%-10s %.4g device-seconds", "cost", cl_number(campaign, "progress.device_s"));
    if (isfinite(cost))
        printf(", %.4g at the cluster's price", cost);
    if (smaller > 0)
        printf(", %.4g of them by %.0f trials of smaller problems",
               cl_number(campaign, "progress.smaller_device_s"), smaller);
    putchar('\n');
}

int cl_show(struct cl *client)
{
    AUTO_STR clusters = {0};
    AUTO_JSON *v = NULL;
    const json_t *states;
    const char *state;
    json_t *n;
    char buf[64];
    int code = cl_get_campaign(&v, client, client->operand[0], "");

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    printf("%-10s %s\n%-10s %s\n", "campaign", cl_string(v, "id"), "name", cl_string(v, "name"));
    printf("%-10s %s%s%s\n", "state", cl_string(v, "state"), *cl_string(v, "reason") ? ": " : "",
           cl_string(v, "reason"));
    printf("%-10s %s%s\n", "launcher", cl_string(v, "launcher"),
           *cl_simulated_word(v) ? ": no training job runs, every number is the simulator's" : "");
    if (json_is_object(json_object_get(v, "warm_start")))
        printf("%-10s %.0f trials of earlier campaigns, %.0f of them simulated\n", "informed by",
               cl_number(v, "warm_start.trials"), cl_number(v, "warm_start.simulated"));
    cl_clusters(&clusters, v);
    printf("%-10s %s on %s", "model", cl_string(v, "model.name"), str_text(&clusters));
    printf(", global batch %s\n", cl_text(buf, v, "workload.global_batch"));
    printf("%-10s %s legal layouts\n", "space", cl_text(buf, v, "space.legal"));
    if (cl_objective(v) != PL_TOKENS_PER_S)
        printf("%-10s %s (ratios, too)\n", "objective", pl_objective_unit(cl_objective(v)));
    printf("%-10s %s", "trials", cl_text(buf, v, "progress.trials"));
    if (isfinite(cl_number(v, "progress.budget")))
        printf(" of %s", cl_text(buf, v, "progress.budget"));
    putchar(';');
    states = json_object_get(json_object_get(v, "progress"), "by_state");
    json_object_foreach((json_t *)(uintptr_t)states, state, n)
        printf(" %s %lld", state, (long long)json_integer_value(n));
    putchar('\n');
    print_cost(v);
    cl_print_result(stdout, "best", json_object_get(v, "best"));
    cl_print_result(stdout, "baseline", json_object_get(v, "baseline"));
    print_verdict(v);
    if (*cl_string(v, "notes"))
        printf("%-10s %s\n", "notes", cl_string(v, "notes"));
    cl_print_shares(client, v);
    return CL_OK;
}

static void print_group(const char *title, const json_t *json, const char *unit, double scale)
{
    const char *key;
    bool any = false;
    json_t *x;

    if (!json_is_object(json))
        return;
    json_object_foreach((json_t *)(uintptr_t)json, key, x) {
        char b[24];

        if (!json_is_number(x) || json_number_value(x) == 0 || !strcmp(key, "rank"))
            continue;
        if (!any)
            printf("%-10s", title);
        any = true;
        if (*unit)
            printf(" %s %.*f %s;", key, 1, json_number_value(x) * scale, unit);
        else
            printf(" %s %s;", key, str_human_bytes(b, json_number_value(x)));
    }
    if (any)
        putchar('\n');
}

/* How fast the layout is, and by what. */
static void print_rates(const json_t *trial)
{
    const char *word = *cl_simulated_word(trial) ? "simulated" : "measured";
    char rate[32], lo[32], hi[32], ran[160];

    if (cl_is_smaller(trial)) {
        printf("%-10s %s\n", "ran", cl_what_ran(ran, trial));
        printf("%-10s %s tokens/s at that size\n", word,
               cl_rate(rate, cl_number(trial, "run.tokens_per_s")));
    }
    if (isfinite(cl_number(trial, "inferred.tokens_per_s")))
        printf("%-10s %s tokens/s at full size, 95 %% interval %s to %s", "inferred",
               cl_rate(rate, cl_number(trial, "inferred.tokens_per_s")),
               cl_rate(lo, cl_number(trial, "inferred.lo")),
               cl_rate(hi, cl_number(trial, "inferred.hi")));
    else
        printf("%-10s %s tokens/s", cl_is_smaller(trial) ? "inferred" : word,
               cl_rate(rate, cl_number(trial, "tokens_per_s")));
    printf(", expected %s\n", cl_rate(rate, cl_number(trial, "predicted.tokens_per_s")));
}

/* Where the time and the memory of RUN went. */
static void print_run(const json_t *run)
{
    const json_t *memory = json_object_get(run, "memory");

    if (isfinite(cl_number(run, "step_ms.median")))
        printf("%-10s median %.1f ms", "step", cl_number(run, "step_ms.median"));
    if (isfinite(cl_number(run, "step_ms.p10")))
        printf(", p10 %.1f, p90 %.1f", cl_number(run, "step_ms.p10"),
               cl_number(run, "step_ms.p90"));
    if (isfinite(cl_number(run, "step_ms.median")))
        putchar('\n');
    if (isfinite(cl_number(run, "expert_imbalance")))
        printf("%-10s the busiest of a layer has %.2f x the mean load\n", "experts",
               cl_number(run, "expert_imbalance"));
    if (isfinite(cl_number(run, "tokens_per_joule")))
        printf("%-10s %.4g tokens/J\n", "energy", cl_number(run, "tokens_per_joule"));
    print_group("phases", json_object_get(run, "phases_ms"), "ms", 1);
    print_group("planned", json_object_get(memory, "planned"), "", 1);
    print_group("measured", json_object_get(memory, "measured"), "", 1);
}

int cl_trial(struct cl *client)
{
    AUTO_FREE char *tail = mem_printf("/trials/%s", client->operand[1]);
    AUTO_JSON *v = NULL;
    char buf[64], seconds[24];
    int code = cl_get_campaign(&v, client, client->operand[0], tail);

    if (code != CL_OK)
        return code;
    if (client->args.json) {
        cl_print_json(v);
        return CL_OK;
    }
    printf("%-10s %.0f (%s), attempts %s\n", "trial", cl_number(v, "n"), cl_string(v, "kind"),
           cl_text(buf, v, "attempts"));
    printf("%-10s %s\n%-10s %s\n", "state", cl_string(v, "state"), "layout", cl_string(v, "text"));
    if (*cl_string(v, "why"))
        printf("%-10s %s\n", "why", cl_string(v, "why"));
    print_rates(v);
    print_run(cl_run_of(v));
    if (isfinite(cl_number(v, "device_s")))
        printf("%-10s %s on %.0f devices\n", "cost",
               str_human_seconds(seconds, cl_number(v, "device_s")), cl_number(v, "devices"));
    if (*cl_string(v, "warning"))
        printf("%-10s %s\n", "warning", cl_string(v, "warning"));
    if (json_is_object(json_object_get(v, "failure")))
        printf("%-10s %s: %s\n", "failure", cl_string(v, "failure.class"),
               cl_string(v, "failure.detail"));
    return CL_OK;
}

/* Bytes that are not text become question marks: JSON has no word for them. */
static void make_utf8(char *text, size_t size)
{
    for (size_t at = 0, k; at < size; at += k) {
        for (k = 1; k <= 4 && at + k <= size && !str_is_utf8(text + at, k);)
            k++;
        if (k > 4 || at + k > size) {
            text[at] = '?';
            k = 1;
        }
    }
}

/* A part of a log as JSON, for scripts: an object a line while it is followed, otherwise the whole
 * in one. */
static void print_part(const struct cl *client, size_t offset, char *text, size_t len)
{
    AUTO_JSON *v = NULL;

    make_utf8(text, len);
    v = json_pack("{s:s, s:I, s:s%}", "stream", client->args.stream, "offset", (json_int_t)offset,
                  "text", text, len);
    if (!client->args.follow) {
        cl_print_json(v);
    } else {
        AUTO_FREE char *line = jx_dump(v);

        puts(line);
        fflush(stdout);
    }
}

static bool trial_lives(struct cl *client)
{
    AUTO_FREE char *tail = mem_printf("/trials/%s", client->operand[1]);
    AUTO_JSON *v = NULL;

    return cl_get_campaign(&v, client, client->operand[0], tail) == CL_OK &&
           db_trial_live(cl_string(v, "state"));
}

int cl_log(struct cl *client)
{
    bool whole = client->args.json && !client->args.follow;
    AUTO_STR all = {0};
    size_t shown = 0;

    for (bool lives = true;;) {
        AUTO_FREE char *text = NULL;
        AUTO_FREE char *full = NULL;
        AUTO_STR tail = {0};
        size_t n = 0;
        int code;

        str_addf(&tail, "/trials/%s/log?offset=%zu", client->operand[1], shown);
        cl_add_query(&tail, "stream", client->args.stream);
        full = campaign_path(client->operand[0], str_text(&tail));
        code = cl_call_text(&text, &n, client, full);
        if (code != CL_OK)
            return code;
        shown += n;
        if (n && whole)
            str_addn(&all, text, n);
        else if (n && client->args.json)
            print_part(client, shown - n, text, n);
        else if (n)
            cl_write_text(client, text, n);
        if (n)
            continue;
        if (whole) {
            size_t size = all.len;
            AUTO_FREE char *everything = str_take(&all);

            print_part(client, 0, everything, size);
        }
        if (!client->args.follow || !lives)
            return CL_OK;
        lives = trial_lives(client); /* once more after its end: the last lines */
        sleep(1);
    }
}

int cl_timeline(struct cl *client)
{
    AUTO_FREE char *tail = mem_printf("/trials/%s/timeline", client->operand[1]);
    AUTO_FREE char *path = campaign_path(client->operand[0], tail);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int code = cl_call_text(&text, &n, client, path);

    return code == CL_OK ? cl_deliver(client, text, n) : code;
}

/* What the exporter writes, or with EXPLAIN that with a reason behind each line. */
static int get_export(char **ret, size_t *ret_size, struct cl *client, bool explain)
{
    AUTO_FREE char *path = NULL;
    AUTO_STR tail = {0};

    str_add(&tail, "/export/");
    str_add(&tail, client->args.to);
    str_addf(&tail, "?allow_loss=%s&allow_simulated=%s", client->args.allow_loss ? "true" : "false",
             client->args.allow_simulated ? "true" : "false");
    if (explain)
        str_add(&tail, "&explain=true");
    if (client->args.trial)
        str_addf(&tail, "&trial=%d", client->args.trial);
    path = campaign_path(client->operand[0], str_text(&tail));
    return cl_call_text(ret, ret_size, client, path);
}

static void print_export(const struct cl *client, char *text, size_t size)
{
    AUTO_JSON *v = NULL;

    if (!client->args.json) {
        cl_write_text(client, text, size);
        return;
    }
    v = json_pack("{s:s, s:s%}", "target", client->args.to, "text", text, size);
    cl_print_json(v);
}

int cl_export(struct cl *client)
{
    AUTO_FREE char *text = NULL;
    AUTO_FREE char *explained = NULL;
    bool both = client->args.explain && client->args.output;
    size_t n = 0;
    int code;

    if (!client->args.to) {
        fprintf(stderr, "partune: export needs --to TARGET; `partune exporters` lists them\n");
        return CL_USAGE;
    }
    code = get_export(&text, &n, client, client->args.explain && !both);
    if (code == CL_OK && client->args.output)
        code = cl_deliver(client, text, n);
    if (code == CL_OK && both) /* the reasons are printed: with them in it, the file is no job */
        code = get_export(&explained, &n, client, true);
    if (code == CL_OK && (both || !client->args.output))
        print_export(client, both ? explained : text, n);
    return code;
}

static int act(struct cl *client, const char *id, const char *action)
{
    AUTO_FREE char *tail = mem_printf(":%s", action);
    AUTO_FREE char *path = campaign_path(id, tail);
    AUTO_JSON *body = json_object(), *v = NULL;
    int code;

    if (!strcmp(action, "verify")) {
        json_object_set_new(body, "pairs", json_integer(client->args.pairs));
        json_object_set_new(body, "steps", json_integer(client->args.steps));
    }
    if (!strcmp(action, "clone") && client->args.with) {
        json_decref(body);
        body = NULL;
        code = cl_load(&body, client->args.with);
        if (code != CL_OK)
            return code;
    }
    if (!strcmp(action, "clone") && client->args.name)
        json_object_set_new(body, "name", json_string(client->args.name));
    code = cl_call(&v, client, "POST", path, body);
    if (code != CL_OK)
        return code;
    if (client->args.json && client->args.wait)
        cl_print_event("campaign", v);
    else if (client->args.json)
        cl_print_json(v);
    else
        printf("campaign %s: %s%s\n", cl_string(v, "id"), cl_string(v, "state"),
               cl_simulated_mark(v));
    return CL_OK;
}

int cl_cancel(struct cl *client)
{
    return act(client, client->operand[0], "cancel");
}

int cl_pause(struct cl *client)
{
    return act(client, client->operand[0], "pause");
}

int cl_resume(struct cl *client)
{
    return act(client, client->operand[0], "resume");
}

int cl_clone(struct cl *client)
{
    return act(client, client->operand[0], "clone");
}

int cl_verify(struct cl *client)
{
    AUTO_JSON *v = NULL;
    int code;

    if (client->args.against ? client->noperands || client->args.pin : !client->noperands) {
        fprintf(stderr, "partune: verify takes an ID, optionally with --pin FILE, or --against "
                        "FILE\n");
        return CL_USAGE;
    }
    if (client->args.against)
        return cl_verify_against(client);
    client->args.wait |= client->args.pin != NULL;
    code = act(client, client->operand[0], "verify");
    if (code != CL_OK || !client->args.wait)
        return code;
    code = cl_watch_campaign(client, client->operand[0], CL_WATCH_NOW);
    if (code != CL_OK)
        return code;
    code = cl_get_campaign(&v, client, client->operand[0], "");
    if (code != CL_OK)
        return code;
    if (client->args.json)
        cl_print_event("verify", json_object_get(v, "verify"));
    else
        print_verdict(v);
    if (client->args.pin && (code = cl_pin(client, v)) != CL_OK)
        return code;
    if (client->args.pin) /* a baseline that won, too, is worth keeping */
        return str_eq(cl_string(v, "verify.verdict"), "does not hold") ? CL_FAILED : CL_OK;
    return str_eq(cl_string(v, "verify.verdict"), "holds") ? CL_OK : CL_FAILED;
}

int cl_edit(struct cl *client)
{
    AUTO_FREE char *path = campaign_path(client->operand[0], "");
    AUTO_JSON *body = json_object(), *v = NULL;
    int64_t priority;
    int code;

    if (client->args.notes)
        json_object_set_new(body, "notes", json_string(client->args.notes));
    if (client->args.name)
        json_object_set_new(body, "name", json_string(client->args.name));
    if (client->args.tags) {
        AUTO_FREE char *tags = mem_strdup(client->args.tags);
        json_t *list = json_array();
        char *rest = tags, *tag;

        while ((tag = strsep(&rest, ",")))
            if (*tag)
                json_array_append_new(list, json_string(tag));
        json_object_set_new(body, "tags", list);
    }
    if (client->args.priority) {
        if (str_to_i64(&priority, client->args.priority, -100, 100) < 0) {
            fprintf(stderr, "partune: --priority is a number from -100 to 100, not `%s`\n",
                    client->args.priority);
            return CL_USAGE;
        }
        json_object_set_new(body, "priority", json_integer((json_int_t)priority));
    }
    if (!json_object_size(body)) {
        fprintf(stderr, "partune: edit needs --name, --notes, --tags or --priority\n");
        return CL_USAGE;
    }
    code = cl_call(&v, client, "PATCH", path, body);
    if (code == CL_OK && client->args.json)
        cl_print_json(v);
    else if (code == CL_OK)
        printf("campaign %s: %s%s\n", cl_string(v, "id"), cl_string(v, "name"),
               cl_simulated_mark(v));
    return code;
}

int cl_rm(struct cl *client)
{
    AUTO_FREE char *path = campaign_path(client->operand[0], "");
    AUTO_JSON *v = NULL;
    int code = cl_call(&v, client, "DELETE", path, NULL);

    return code == CL_OK ? cl_say_done(client, "deleted", client->operand[0]) : code;
}
