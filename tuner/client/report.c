/*
 * `partune report`: a campaign as one HTML file that needs nothing else: style inside, charts as
 * SVG, no script. It prints on paper as it looks on the screen. All text from outside is escaped;
 * that a campaign is simulated is said at the top, in the title and at every number of tokens/s.
 */
#include "tuner/client/client.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "plan/plan.h"
#include "tuner/client/chart.h"

struct report {
    struct cl *client;
    FILE *out;
    const char *unit;                       /* "tokens/s" or "simulated tokens/s" */
    char worth[40];                         /* the unit of the objective */
    json_t *campaign, *trials, *importance; /* owned; importance may be NULL */
    json_t *winner, *start;                 /* layouts of best and baseline, borrowed */
};

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;color:#1a1f29;background:#fff;margin:0 auto;"
    "max-width:60rem;padding:1.5rem}\n"
    "h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 .5rem;"
    "border-bottom:1px solid #d5dae3}\n"
    "p.note{color:#57606f;margin:.2rem 0 1rem}\n"
    "p.simulated{border:2px solid #b45309;background:#fff7ed;padding:.6rem .9rem;font-weight:600}\n"
    "table{border-collapse:collapse;width:100%;font-size:.86rem}\n"
    "th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #e4e8ef;"
    "vertical-align:top}\n"
    "th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    "td.mono{font-family:ui-monospace,monospace;overflow-wrap:anywhere}\n"
    "tr.winner td{background:#eaf3ff;font-weight:600}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:.8rem}\n"
    ".tiles div{border:1px solid #d5dae3;border-radius:.4rem;padding:.6rem .8rem}\n"
    ".tiles span{display:block;color:#57606f;font-size:.82rem}.tiles b{font-size:1.2rem}\n"
    "svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif}\n"
    ".grid{stroke:#e4e8ef}.tick{fill:#57606f}.axis{fill:#1a1f29}\n"
    ".ok{fill:#2563eb;fill-opacity:.75}.inferred{fill:none;stroke:#2563eb;stroke-dasharray:2 2}"
    "td.inferred{text-align:right;font-style:italic;white-space:nowrap}\n"
    ".other{fill:none;stroke:#8a94a6;stroke-width:1.5}\n"
    ".best{fill:none;stroke:#0f172a;stroke-width:2}.front{fill:none;stroke:#0f766e;"
    "stroke-width:2}\n"
    ".base{fill:none;stroke:#b45309;stroke-dasharray:6 4;stroke-width:1.5}.bar{fill:#2563eb}\n"
    "figure{margin:0;break-inside:avoid}figcaption{color:#57606f;font-size:.86rem}\n"
    "@media print{body{padding:0;max-width:none;font-size:11pt}h2{break-after:avoid}"
    "tr{break-inside:avoid}thead{display:table-header-group}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n";

/* ---- pieces -------------------------------------------------------------- */

static void text(const struct report *report, const char *words)
{
    chart_escape(words, report->out);
}

static void tile(const struct report *report, const char *title, const char *value)
{
    fputs("<div><span>", report->out);
    text(report, title);
    fputs("</span><b>", report->out);
    text(report, value);
    fputs("</b></div>\n", report->out);
}

static void cell(const struct report *report, const char *kind, const char *value)
{
    fprintf(report->out, "<td class=\"%s\">", kind);
    text(report, value);
    fputs("</td>", report->out);
}

static const char *ratio_text(char buf[32], double ratio)
{
    snprintf(buf, 32, isfinite(ratio) ? "%.2f x" : "-", ratio);
    return buf;
}

static void tiles(const struct report *report)
{
    static const char *const ratio_titles[] = {
        [PL_TOKENS_PER_S] = "best / baseline",
        [PL_TOKENS_PER_S_PER_DEVICE] = "best / baseline, per device",
        [PL_TOKENS_PER_JOULE] = "best / baseline, tokens/J",
        [PL_TOKENS_PER_COST] = "best / baseline, tokens for a price"};
    const json_t *campaign = report->campaign;
    char rate[32], buf[64], seconds[24];

    fputs("<div class=\"tiles\">\n", report->out);
    snprintf(buf, sizeof(buf), "best, %s", report->unit);
    tile(report, buf, cl_rate(rate, cl_number(campaign, "best.tokens_per_s")));
    snprintf(buf, sizeof(buf), "baseline, %s", report->unit);
    tile(report, buf, cl_rate(rate, cl_number(campaign, "baseline.tokens_per_s")));
    tile(report, ratio_titles[cl_objective(campaign)],
         ratio_text(rate, cl_number(campaign, "best.ratio")));
    if (isfinite(cl_number(campaign, "best.mfu"))) {
        snprintf(buf, sizeof(buf), "%.1f %%", 100 * cl_number(campaign, "best.mfu"));
        tile(report, "MFU of the best", buf);
    }
    snprintf(buf, sizeof(buf), "%zu", json_array_size(report->trials));
    tile(report, "trials", buf);
    if (isfinite(cl_number(campaign, "progress.device_s")))
        tile(report, "device time",
             str_human_seconds(seconds, cl_number(campaign, "progress.device_s")));
    if (cl_number(campaign, "progress.smaller_trials") > 0)
        tile(report, "of which smaller trials",
             str_human_seconds(seconds, cl_number(campaign, "progress.smaller_device_s")));
    fputs("</div>\n", report->out);
}

/* ---- the job and its winner ---------------------------------------------- */

static void row(const struct report *report, const char *name, const char *value)
{
    fputs("<tr><th>", report->out);
    text(report, name);
    fputs("</th>", report->out);
    cell(report, "", value);
    fputs("</tr>\n", report->out);
}

static void job_table(const struct report *report)
{
    const json_t *campaign = report->campaign;
    char buf[64];
    AUTO_FREE char *state =
        mem_printf("%s%s%s", cl_string(campaign, "state"),
                   *cl_string(campaign, "reason") ? ": " : "", cl_string(campaign, "reason"));
    AUTO_STR clusters = {0};

    fputs("<h2>Job</h2>\n<table>\n", report->out);
    row(report, "model", cl_string(campaign, "model.name"));
    cl_clusters(&clusters, campaign);
    row(report, "cluster", str_text(&clusters));
    row(report, "global batch", cl_text(buf, campaign, "workload.global_batch"));
    row(report, "sequence length", cl_text(buf, campaign, "workload.seq"));
    row(report, "trainer", cl_string(campaign, "trainer"));
    row(report, "launcher", cl_string(campaign, "launcher"));
    row(report, "legal layouts", cl_text(buf, campaign, "space.legal"));
    row(report, "state", state);
    if (*cl_string(campaign, "notes"))
        row(report, "notes", cl_string(campaign, "notes"));
    fputs("</table>\n", report->out);
}

/* A value of a layout as text; caller frees. */
static char *value_of(const json_t *layout, const char *key)
{
    const json_t *value = json_object_get(layout, key);

    if (!value)
        return mem_strdup("-");
    return json_is_string(value) ? mem_strdup(json_string_value(value))
                                 : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
}

static void layout_table(const struct report *report)
{
    fprintf(report->out,
            "<h2>Winner and baseline</h2>\n<table><thead><tr><th>key</th>"
            "<th>winner (trial %.0f)</th><th>baseline</th></tr></thead><tbody>\n",
            cl_number(report->campaign, "best.trial"));
    for (const struct pl_layout_key *key = pl_layout_keys; key->name; key++) {
        AUTO_FREE char *mine = value_of(report->winner, key->name);
        AUTO_FREE char *theirs = value_of(report->start, key->name);

        if (str_eq(mine, theirs) && key->part == PL_OPTION)
            continue; /* rare ones, where nothing differs */
        fprintf(report->out, "<tr%s><th>", str_eq(mine, theirs) ? "" : " class=\"winner\"");
        text(report, key->name);
        fputs("</th>", report->out);
        cell(report, "", mine);
        cell(report, "", theirs);
        fputs("</tr>\n", report->out);
    }
    fputs("</tbody></table>\n<p class=\"note\">Marked: where they differ.</p>\n", report->out);
}

/* Where there are several of them, the best of each of LIST, by KEY, and what it took. */
static void share_table(const struct report *report, const char *list, const char *key,
                        const char *heading, const char *name)
{
    const json_t *slices = json_object_get(report->campaign, list);
    const json_t *it;
    bool named = str_eq(key, "cluster"), priced = named && cl_are_priced(slices);
    char buf[64];
    size_t i;

    if (!json_array_size(slices))
        return;
    fprintf(report->out,
            "<h2>%s</h2>\n<table><thead><tr><th>%s</th><th>%s</th><th>%s</th>%s<th>trial</"
            "th><th>layout</th><th>trials</th><th>device-seconds</th></tr>"
            "</thead><tbody>\n",
            heading, name, report->unit,
            named ? "tokens/s per device" : "device-seconds per million tokens",
            priced ? "<th>cost per million tokens</th>" : "");
    json_array_foreach(slices, i, it) {
        fputs("<tr>", report->out);
        cell(report, "", cl_value(buf, it, key));
        cell(report, "", cl_rate(buf, cl_number(it, "best.tokens_per_s")));
        cell(report, "",
             cl_rate(buf, named ? cl_per_device(it) : cl_number(it, "device_s_per_mtoken")));
        if (priced)
            cell(report, "", cl_rate(buf, cl_number(it, "best.cost_per_mtok")));
        cell(report, "", cl_text(buf, it, "best.trial"));
        cell(report, "", cl_string(it, "best.text"));
        cell(report, "", cl_text(buf, it, "trials"));
        cell(report, "", cl_rate(buf, cl_number(it, "device_s")));
        fputs("</tr>\n", report->out);
    }
    fputs("</tbody></table>\n", report->out);
}

static void verification(const struct report *report)
{
    const json_t *verify = json_object_get(report->campaign, "verify");
    bool same = str_eq(cl_string(verify, "verdict"), "same");
    char mean[32], lo[32], hi[32];

    fputs("<h2>Verification</h2>\n<p>", report->out);
    if (!same && !isfinite(cl_number(verify, "ratio"))) {
        fputs("The winner was not verified in interleaved runs: its throughput above was the "
              "highest of many and is too high on average.</p>\n",
              report->out);
        return;
    }
    if (same)
        fprintf(report->out,
                "<b>The winner is the baseline</b>: nothing to compare; it was %s again.</p>\n",
                *cl_simulated_word(verify) ? "simulated" : "measured");
    else
        fprintf(report->out,
                "%.0f %spairs of interleaved runs: winner / baseline = %.3f, 95 %% interval %.3f "
                "to %.3f: <b>%s</b>.</p>\n",
                cl_number(verify, "pairs"), cl_simulated_word(verify), cl_number(verify, "ratio"),
                cl_number(verify, "lo"), cl_number(verify, "hi"), cl_string(verify, "verdict"));
    if (isfinite(cl_number(verify, "prediction.tokens_per_s")))
        fprintf(report->out, "<p>Expected of the next run: %s %s, 95 %% interval %s to %s.</p>\n",
                cl_rate(mean, cl_number(verify, "prediction.tokens_per_s")), report->unit,
                cl_rate(lo, cl_number(verify, "prediction.lo")),
                cl_rate(hi, cl_number(verify, "prediction.hi")));
}

/* ---- charts -------------------------------------------------------------- */

static void widen(double *min, double *max, double value)
{
    if (isfinite(value)) {
        *min = fmin(*min, value);
        *max = fmax(*max, value);
    }
}

/* What the search learned from: runs of a verification are of a layout that was chosen. */
static bool is_result(const json_t *trial)
{
    return str_eq(cl_string(trial, "state"), "ok") && !str_eq(cl_string(trial, "kind"), "verify") &&
           !cl_is_smaller(trial);
}

/* Of the layout at full size, by the objective: as it ran, or as inferred. */
static double rate_of(const struct report *report, const json_t *trial)
{
    return cl_worth(report->campaign, trial,
                    cl_is_smaller(trial) ? "inferred.tokens_per_s" : "tokens_per_s");
}

static void tip(char buf[160], const json_t *trial)
{
    snprintf(buf, 160, "trial %.0f: %s, %s", cl_number(trial, "n"), cl_string(trial, "state"),
             cl_string(trial, "text"));
}

/* Throughput by trial, and the best so far. */
static void progress_chart(const struct report *report)
{
    struct chart chart = {.title = "Throughput of each trial",
                          .x_axis = "trial",
                          .y_axis = report->worth,
                          .x_min = 0,
                          .x_max = (double)json_array_size(report->trials),
                          .y_min = 0,
                          .y_max = -INFINITY};
    size_t n = json_array_size(report->trials), i;
    double *x = mem_alloc((n + 1) * sizeof(*x)), *y = mem_alloc((n + 1) * sizeof(*y)), best = 0;
    char words[160];
    json_t *trial;
    int steps = 0;

    json_array_foreach(report->trials, i, trial)
        widen(&chart.y_min, &chart.y_max, rate_of(report, trial));
    fputs("<figure>\n", report->out);
    chart_open(&chart, report->out);
    chart_level(
        &chart,
        cl_worth(report->campaign, json_object_get(report->campaign, "baseline"), "tokens_per_s"),
        "base", "baseline");
    json_array_foreach(report->trials, i, trial) {
        double rate = rate_of(report, trial);

        tip(words, trial);
        if (str_eq(cl_string(trial, "state"), "ok"))
            chart_point(&chart, cl_number(trial, "n"), rate_of(report, trial),
                        cl_is_smaller(trial) ? "inferred" : "ok", words);
        else
            chart_point(&chart, cl_number(trial, "n"), chart.y_min, "other", words);
        if (is_result(trial) && rate > best) {
            best = rate;
            x[steps] = cl_number(trial, "n");
            y[steps++] = best;
        }
    }
    x[steps] = (double)n;
    y[steps] = best;
    chart_line(&chart, x, y, steps ? steps + 1 : 0, true, "best");
    chart_close(&chart);
    fputs("<figcaption>Dots: successful trials; dashed circles: inferred from trials of smaller "
          "problems; circles at the bottom: trials without a result; line: best so far; dashed: "
          "baseline.</figcaption></figure>\n",
          report->out);
    free(x);
    free(y);
}

static void prediction_chart(const struct report *report)
{
    struct chart chart = {.title = "Predicted and measured throughput",
                          .x_axis = "predicted tokens/s before the run",
                          .y_axis = report->unit,
                          .x_min = INFINITY,
                          .x_max = -INFINITY};
    char words[160];
    json_t *trial;
    size_t i;

    json_array_foreach(report->trials, i, trial) {
        if (!str_eq(cl_string(trial, "state"), "ok") || cl_is_smaller(trial))
            continue;
        widen(&chart.x_min, &chart.x_max, cl_number(trial, "predicted.tokens_per_s"));
        widen(&chart.x_min, &chart.x_max, cl_number(trial, "tokens_per_s"));
    }
    chart.y_min = chart.x_min;
    chart.y_max = chart.x_max;
    fputs("<figure>\n", report->out);
    chart_open(&chart, report->out);
    chart_line(&chart, (double[]){chart.x_min, chart.x_max}, (double[]){chart.x_min, chart.x_max},
               2, false, "base");
    json_array_foreach(report->trials, i, trial) {
        tip(words, trial);
        if (str_eq(cl_string(trial, "state"), "ok"))
            chart_point(&chart, cl_number(trial, "predicted.tokens_per_s"),
                        cl_number(trial, "tokens_per_s"), "ok", words);
    }
    chart_close(&chart);
    fputs("<figcaption>Each dot is a trial; dashed: perfect prediction.</figcaption></figure>\n",
          report->out);
}

/* What a trial needed, else what was planned for it, in GiB. */
static double memory_of(const json_t *trial)
{
    double measured = cl_number(trial, "memory.measured.total");

    return (isfinite(measured) ? measured : cl_number(trial, "memory.planned.total")) /
           (1024.0 * 1024 * 1024);
}

static int by_memory(const void *left, const void *right)
{
    double a = memory_of(*(json_t *const *)left), b = memory_of(*(json_t *const *)right);

    return (a > b) - (a < b);
}

static void memory_chart(const struct report *report)
{
    struct chart chart = {.title = "Throughput and memory",
                          .x_axis = "memory of the fullest rank, GiB",
                          .y_axis = report->unit,
                          .x_min = INFINITY,
                          .x_max = -INFINITY,
                          .y_min = INFINITY,
                          .y_max = -INFINITY};
    size_t n = json_array_size(report->trials), count = 0, i;
    json_t **sorted = mem_alloc((n + 1) * sizeof(*sorted)), *trial;
    double *x = mem_alloc((n + 1) * sizeof(*x)), *y = mem_alloc((n + 1) * sizeof(*y)), best = 0;
    char words[160];
    int front = 0;

    json_array_foreach(report->trials, i, trial) {
        if (!is_result(trial) || !isfinite(memory_of(trial)))
            continue;
        sorted[count++] = trial;
        widen(&chart.x_min, &chart.x_max, memory_of(trial));
        widen(&chart.y_min, &chart.y_max, cl_number(trial, "tokens_per_s"));
    }
    qsort(sorted, count, sizeof(*sorted), by_memory);
    fputs("<figure>\n", report->out);
    chart_open(&chart, report->out);
    for (i = 0; i < count; i++) {
        double rate = cl_number(sorted[i], "tokens_per_s");

        tip(words, sorted[i]);
        chart_point(&chart, memory_of(sorted[i]), rate, "ok", words);
        if (rate > best) {
            best = rate;
            x[front] = memory_of(sorted[i]);
            y[front++] = rate;
        }
    }
    chart_line(&chart, x, y, front, true, "front");
    chart_close(&chart);
    fputs("<figcaption>Line: Pareto front (no other trial is both faster and "
          "smaller).</figcaption></figure>\n",
          report->out);
    free(sorted);
    free(x);
    free(y);
}

static void importance_chart(const struct report *report)
{
    enum { MOST = PL_LAYOUT_KEYS };
    const char *names[MOST], *key;
    double shares[MOST];
    json_t *value;
    int n = 0;

    json_object_foreach(json_object_get(report->importance, "shares"), key, value) {
        if (n < MOST && json_number_value(value) >= 0.005) {
            names[n] = key;
            shares[n++] = json_number_value(value);
        }
    }
    if (!n)
        return;
    fputs("<h2>What mattered</h2>\n<figure>\n", report->out);
    chart_bars("Share of each layout key in the variance of throughput", names, shares, n,
               report->out);
    fputs("<figcaption>Share of each layout key in the variance of throughput.</figcaption>"
          "</figure>\n",
          report->out);
}

/* ---- the table of trials ------------------------------------------------- */

static void trial_row(const struct report *report, const json_t *trial)
{
    bool winner = cl_number(trial, "n") == cl_number(report->campaign, "best.trial");
    const char *failure = cl_string(trial, "failure.detail"),
               *why = *failure ? failure : cl_string(trial, "why");
    char rate[72], expected[32], bytes[24], n[32];
    double gib = memory_of(trial);

    snprintf(n, sizeof(n), "%.0f", cl_number(trial, "n"));
    fprintf(report->out, "<tr%s>", winner ? " class=\"winner\"" : "");
    cell(report, "n", n);
    cell(report, "", cl_string(trial, "kind"));
    cell(report, "mono", cl_string(trial, "text"));
    cell(report, "", cl_string(trial, "state"));
    cell(report, cl_is_smaller(trial) ? "inferred" : "n", cl_trial_rate(rate, trial));
    cell(report, "n", cl_rate(expected, cl_number(trial, "predicted.tokens_per_s")));
    cell(report, "n", isfinite(gib) ? str_human_bytes(bytes, gib * 1024.0 * 1024 * 1024) : "-");
    cell(report, "", why);
    fputs("</tr>\n", report->out);
}

static void trial_table(const struct report *report)
{
    json_t *trial;
    size_t i;

    fputs("<h2>Trials</h2>\n<table><thead><tr><th class=\"n\">trial</th><th>kind</th>"
          "<th>layout</th><th>state</th><th class=\"n\">",
          report->out);
    text(report, report->unit);
    fputs("</th><th class=\"n\">expected</th><th class=\"n\">memory</th><th>why</th></tr></thead>"
          "<tbody>\n",
          report->out);
    json_array_foreach(report->trials, i, trial)
        trial_row(report, trial);
    fputs("</tbody></table>\n", report->out);
    fputs("<p class=\"note\">", report->out);
    cl_print_inferred(report->out, report->trials);
    fputs("</p>\n", report->out);
}

/* ---- the document -------------------------------------------------------- */

static void document(const struct report *report)
{
    const char *name = cl_string(report->campaign, "name"), *id = cl_string(report->campaign, "id");
    bool simulated = *cl_simulated_word(report->campaign) != '\0';
    char now[CLOCK_TEXT];

    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          report->out);
    text(report, name);
    fprintf(report->out, "%s - partune</title>\n<style>\n%s</style></head><body>\n<h1>",
            simulated ? " (simulated)" : "", style);
    text(report, name);
    fputs("</h1>\n<p class=\"note\">Campaign ", report->out);
    text(report, id);
    fprintf(report->out, ", report of %s by partune " PACKAGE_VERSION "</p>\n",
            clock_format(now, clock_wall_ms()));
    if (simulated)
        fputs("<p class=\"simulated\">Simulated: no training job ran. Every number of tokens/s in "
              "this report is the simulator's.</p>\n",
              report->out);
    tiles(report);
    job_table(report);
    if (report->winner) {
        layout_table(report);
        share_table(report, "batches", "global_batch", "Best of each batch size", "global batch");
        share_table(report, "worlds", "world", "Best of each world size", "world");
        share_table(report, "clusters", "cluster", "Best of each cluster", "cluster");
        verification(report);
    }
    fputs("<h2>Search</h2>\n", report->out);
    progress_chart(report);
    prediction_chart(report);
    memory_chart(report);
    importance_chart(report);
    trial_table(report);
    fputs("</body></html>\n", report->out);
}

static int read_all(struct report *report, const char *id)
{
    AUTO_FREE char *importance = cl_path("/v1/campaigns/", id, "/importance");
    int code = cl_get_campaign(&report->campaign, report->client, id, "");

    if (code == CL_OK)
        code = cl_all_trials(&report->trials, report->client, id);
    if (code != CL_OK)
        return code;
    cl_make_safe(report->trials);
    cl_make_safe(report->campaign);
    if (cl_try(&report->importance, report->client, "GET", importance, NULL) != 200) {
        json_decref(report->importance); /* too few trials have succeeded */
        report->importance = NULL;
    }
    report->winner = json_object_get(json_object_get(report->campaign, "best"), "layout");
    report->start = json_object_get(json_object_get(report->campaign, "baseline"), "layout");
    report->unit = *cl_simulated_word(report->campaign) ? "simulated tokens/s" : "tokens/s";
    snprintf(report->worth, sizeof(report->worth), "%s%s", cl_simulated_word(report->campaign),
             pl_objective_unit(cl_objective(report->campaign)));
    return CL_OK;
}

int cl_report(struct cl *client)
{
    struct report report = {.client = client};
    AUTO_FREE char *text = NULL;
    size_t size = 0;
    int code = read_all(&report, client->operand[0]);

    if (code == CL_OK) {
        report.out = open_memstream(&text, &size);
        if (!report.out)
            abort(); /* out of memory */
        document(&report);
        fclose(report.out);
        if (client->args.json && !client->args.output) {
            AUTO_JSON *v = json_pack("{s:s, s:s%}", "format", "html", "text", text, size);

            cl_print_json(v);
        } else {
            code = cl_deliver(client, text, size);
        }
    }
    json_decref(report.campaign);
    json_decref(report.trials);
    json_decref(report.importance);
    return code;
}
