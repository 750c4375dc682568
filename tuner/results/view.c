/* Resources as JSON, as docs/reference/http.md shows them. */
#include <errno.h>
#include <math.h>

#include "tuner/results/trace.h"
#include "tuner/results/view.h"

static json_t *integer(int64_t value)
{
    return value == DB_NULL ? json_null() : json_integer((json_int_t)value);
}

static json_t *text(const char *text)
{
    return text ? json_string(text) : json_null();
}

/* A JSON column; null when it is NULL or was damaged. */
static json_t *column(const char *text)
{
    json_t *v = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;

    return v ? v : json_null();
}

/* ---- trial --------------------------------------------------------------- */

json_t *tn_trial_view(const struct db_trial *trial, bool simulated)
{
    AUTO_STR s = {0};

    tn_trial_text(&s, trial, simulated);
    return column(str_text(&s));
}

/* ---- campaign ------------------------------------------------------------ */

static void add_state(void *ctx, const char *state, int64_t count)
{
    json_object_set_new(ctx, state, json_integer((json_int_t)count));
}

static double elapsed(const struct db_campaign *campaign)
{
    int64_t now = clock_wall_ms();

    if (campaign->active_since == DB_NULL)
        return campaign->active_s;
    return campaign->active_s +
           (now > campaign->active_since ? (double)(now - campaign->active_since) / 1000.0 : 0);
}

/* Time left: what the trials that are left will take at the pace so far, and never more than the
 * wall budget. */
static double time_left(const struct db_campaign *campaign, const json_t *resolved,
                        const json_t *by_state)
{
    const json_t *budget = json_object_get(resolved, "budget");
    const json_t *wall = json_object_get(budget, "wall_s");
    double spent = elapsed(campaign), left = NAN;
    int64_t open = 0;

    for (int i = 0; i < 3; i++)
        open += json_integer_value(
            json_object_get(by_state, (const char *[]){"queued", "starting", "running"}[i]));
    if (strcmp(campaign->state, DB_RUNNING) != 0)
        return NAN;
    if (campaign->budget_trials != DB_NULL && campaign->trials > open && spent > 0)
        left = (double)(campaign->budget_trials - campaign->trials + open) * spent /
               (double)(campaign->trials - open);
    if (json_is_number(wall)) {
        double rest = json_number_value(wall) - spent;

        left = isnan(left) || rest < left ? rest : left;
    }
    return left < 0 ? 0 : left;
}

/* Price of all attempts, each on its cluster; NAN where one is unknown. */
static int cost_of(double *ret, struct db *db, const struct db_campaign *campaign,
                   const struct tn_terms *terms, struct err *error)
{
    json_t *one;
    size_t i;
    int r = 0;

    if (!json_is_array(terms->cluster)) {
        *ret = campaign->device_s / 3600 * tn_price(terms, NULL);
        return 0;
    }
    *ret = 0;
    json_array_foreach((json_t *)(uintptr_t)terms->cluster, i, one) {
        const struct db_slice slice = {.key = "cluster",
                                       .text = json_string_value(json_object_get(one, "name"))};
        const json_t *price = json_object_get(one, "price_per_device_hour");
        double device_s = 0;
        int64_t trials;

        if (r == 0)
            r = db_trial_spent(&trials, &device_s, db, campaign->id, &slice, error);
        *ret += device_s / 3600 * (json_is_number(price) ? json_number_value(price) : (double)NAN);
    }
    return r;
}

/* device_s of a simulated campaign is time that simulated devices were held. */
static int add_progress(json_t *view, struct db *db, const struct db_campaign *campaign,
                        const json_t *resolved, const struct tn_terms *terms, struct err *error)
{
    double cost = NAN;
    json_t *by_state = json_object();
    int64_t smaller = 0;
    double smaller_s = 0;
    int r = db_campaign_counts(db, campaign->id, add_state, by_state, error);

    if (r == 0)
        r = db_trial_smaller(&smaller, &smaller_s, db, campaign->id, error);
    if (r == 0 && !terms->simulated)
        r = cost_of(&cost, db, campaign, terms, error);
    json_object_set_new(
        view, "progress",
        json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "simulated",
                  terms->simulated, "trials", integer(campaign->trials), "budget",
                  integer(campaign->budget_trials), "device_s", tn_number(campaign->device_s),
                  "cost", tn_number(cost), "smaller_trials", integer(smaller), "smaller_device_s",
                  tn_number(smaller_s), "elapsed_s", tn_number(elapsed(campaign)), "eta_s",
                  tn_number(time_left(campaign, resolved, by_state)), "by_state", by_state));
    return r;
}

const char *tn_baseline_rule(const struct db_campaign *campaign)
{
    AUTO_JSON *spec = column(campaign->spec);
    const json_t *v = json_object_get(spec, "baseline");

    if (json_is_object(v))
        return "given";
    return pl_baseline_names[str_eq(json_string_value(v), "naive") ? PL_BASELINE_NAIVE
                                                                   : PL_BASELINE_DEFAULT];
}

/* {KEY: value, "best", "device_s_per_mtoken", "trials", "device_s"} of SLICE; "best" and the one
 * after it are null while nothing is measured. BASELINE: NULL where it has not succeeded. */
static int add_slice(json_t *list, struct db *db, const struct db_campaign *campaign,
                     const struct db_slice *slice, const struct tn_measure *baseline,
                     const struct tn_terms *terms, struct err *error)
{
    struct arena a = {0};
    struct tn_measure best;
    bool found = false;
    int64_t trials = 0;
    double device_s = 0;
    int r = db_trial_spent(&trials, &device_s, db, campaign->id, slice, error);

    if (r == 0 && trials > 0) {
        r = tn_measure_best_of(&best, NULL, db, &a, campaign, slice, error);
        found = r == 0;
    }
    if (r == 0 || r == -ENOENT)
        json_array_append_new(
            list,
            json_pack("{s:o, s:o, s:o, s:I, s:o}", slice->key,
                      slice->text ? json_string(slice->text)
                                  : json_integer((json_int_t)slice->value),
                      "best", found ? tn_measure_json(&best, baseline, terms) : json_null(),
                      "device_s_per_mtoken", tn_number(found ? tn_device_s_per_mtoken(&best) : NAN),
                      "trials", (json_int_t)trials, "device_s", tn_number(device_s)));
    arena_done(&a);
    return r == -ENOENT ? 0 : r;
}

/* As NAME of VIEW the best of each of VALUES of the layout key KEY, and what each has taken of the
 * budget, where VALUES are several. */
static int add_slices(json_t *view, const char *name, const char *key, const json_t *values,
                      struct db *db, const struct db_campaign *campaign,
                      const struct tn_terms *terms, struct err *error)
{
    struct arena a = {0};
    struct tn_measure baseline;
    json_t *list, *value;
    bool known;
    size_t i;
    int r;

    if (!json_is_array(values))
        return 0;
    r = tn_measure_get(&baseline, db, &a, campaign->id, TN_BASELINE, error);
    known = r == 0;
    r = r == -ENOENT ? 0 : r;
    list = json_array();
    json_object_set_new(view, name, list);
    json_array_foreach((json_t *)(uintptr_t)values, i, value)
        if (r == 0)
            r = add_slice(
                list, db, campaign,
                &(struct db_slice){.key = key,
                                   .value = json_integer_value(value),
                                   .text = json_string_value(json_object_get(value, "name"))},
                known ? &baseline : NULL, terms, error);
    arena_done(&a);
    return r;
}

/* Where the campaign lists several batches, world sizes or clusters, the best of each. */
static int add_shares(json_t *view, struct db *db, const struct db_campaign *campaign,
                      const json_t *resolved, const struct tn_terms *terms, struct err *error)
{
    const json_t *batches = json_object_get(json_object_get(resolved, "workload"), "global_batch"),
                 *worlds = json_object_get(json_object_get(resolved, "space"), "world");
    int r = add_slices(view, "batches", "global_batch", batches, db, campaign, terms, error);

    if (r == 0 && json_array_size(worlds) > 1)
        r = add_slices(view, "worlds", "world", worlds, db, campaign, terms, error);
    if (r == 0 && json_array_size(terms->cluster) > 1)
        r = add_slices(view, "clusters", "cluster", terms->cluster, db, campaign, terms, error);
    return r;
}

/* Nothing measured yet is no error. */
static int add_results(json_t *view, struct db *db, const struct db_campaign *campaign,
                       const struct tn_terms *terms, struct err *error)
{
    struct arena a = {0};
    struct tn_measure best, baseline;
    int r = tn_measure_get(&baseline, db, &a, campaign->id, TN_BASELINE, error);
    const struct tn_measure *base = r == 0 ? &baseline : NULL;

    json_object_set_new(view, "best", json_null());
    json_object_set_new(view, "baseline", base ? tn_measure_json(base, base, terms) : json_null());
    if (r == 0 || r == -ENOENT)
        r = tn_measure_best(&best, NULL, db, &a, campaign, error);
    if (r == 0)
        json_object_set_new(view, "best", tn_measure_json(&best, base, terms));
    arena_done(&a);
    return r == -ENOENT ? 0 : r;
}

/* What a verification found; of a simulated campaign it was simulated, too. */
static json_t *verify_view(const struct db_campaign *campaign, bool simulated)
{
    json_t *v = column(campaign->verify);

    if (json_is_object(v))
        json_object_set_new(v, "simulated", json_boolean(simulated));
    return v;
}

/* How many trials of how many earlier campaigns inform the search, and how many of those trials
 * were simulated; null without any. */
static json_t *warm_start_view(const json_t *resolved)
{
    const json_t *list = json_object_get(json_object_get(resolved, "search"), "warm_start");
    json_int_t trials = 0, simulated = 0;
    json_t *source;
    size_t i;

    if (json_array_size(list) == 0)
        return json_null();
    json_array_foreach((json_t *)(uintptr_t)list, i, source) {
        json_int_t n = (json_int_t)json_array_size(json_object_get(source, "trials"));

        trials += n;
        simulated += json_is_true(json_object_get(source, "simulated")) ? n : 0;
    }
    return json_pack("{s:I, s:I, s:I}", "campaigns", (json_int_t)json_array_size(list), "trials",
                     trials, "simulated", simulated);
}

/* Which smaller problems its trials may run; "full": none. */
static json_t *fidelity_view(const json_t *resolved)
{
    json_t *v = json_object_get(json_object_get(resolved, "trial"), "fidelity");

    return json_is_array(v) ? json_incref(v) : json_string("full");
}

int tn_campaign_view(json_t **ret, struct db *db, const struct db_campaign *campaign,
                     bool with_spec, struct err *error)
{
    AUTO_JSON *resolved = column(campaign->resolved);
    struct tn_terms terms = tn_terms_of(campaign, resolved);
    bool simulated = terms.simulated;
    char trace[TN_TRACE_TEXT];
    json_t *v = json_object();
    int r;

    json_object_set_new(v, "id", text(campaign->id));
    json_object_set_new(v, "name", text(campaign->name));
    json_object_set_new(v, "state", text(campaign->state));
    json_object_set_new(v, "reason", text(campaign->reason));
    json_object_set_new(v, "created", tn_time(campaign->created));
    json_object_set_new(v, "started", tn_time(campaign->started));
    json_object_set_new(v, "ended", tn_time(campaign->ended));
    if (with_spec)
        json_object_set_new(v, "spec", column(campaign->spec));
    json_object_set(v, "model", json_object_get(resolved, "model"));
    json_object_set(v, "cluster", json_object_get(resolved, "cluster"));
    json_object_set(v, "workload", json_object_get(resolved, "workload"));
    json_object_set_new(v, "objective", text(campaign->objective));
    json_object_set_new(v, "trainer", text(campaign->trainer));
    json_object_set_new(v, "launcher", text(campaign->launcher));
    json_object_set_new(v, "simulated", json_boolean(simulated));
    json_object_set_new(v, "warm_start", warm_start_view(resolved));
    json_object_set_new(v, "fidelity", fidelity_view(resolved));
    json_object_set_new(v, "space", column(campaign->space));
    json_object_set_new(v, "baseline_rule", json_string(tn_baseline_rule(campaign)));
    r = add_progress(v, db, campaign, resolved, &terms, error);
    if (r == 0)
        r = add_results(v, db, campaign, &terms, error);
    if (r == 0)
        r = add_shares(v, db, campaign, resolved, &terms, error);
    json_object_set_new(v, "verify", verify_view(campaign, simulated));
    json_object_set_new(v, "tags", column(campaign->tags));
    json_object_set_new(v, "notes", text(campaign->notes));
    json_object_set_new(v, "owner", text(campaign->owner));
    json_object_set_new(v, "priority", integer(campaign->priority));
    json_object_set_new(v, "trace_id", json_string(tn_trace_id(trace, campaign->traceparent)));
    if (r < 0)
        json_decref(v);
    else
        *ret = v;
    return r;
}

/* ---- events: the resource in its form at that moment, in the same transaction ---- */

static int add_line(struct db *writer, const char *id, int64_t trial, const char *kind,
                    const char *line, struct err *error)
{
    int64_t row;

    return db_event_add(
        &row, writer,
        &(struct db_event){
            .campaign = id, .trial = trial, .kind = kind, .data = line, .t = clock_wall_ms()},
        error);
}

static int add_event(struct db *writer, const char *id, int64_t trial, const char *kind,
                     json_t *owned_data, struct err *error)
{
    AUTO_JSON *data = owned_data;
    AUTO_FREE char *line = jx_dump(data);

    return add_line(writer, id, trial, kind, line, error);
}

int tn_event_campaign(struct db *writer, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    json_t *v = NULL;
    int r = db_campaign_get(&c, writer, &a, id, error);

    if (r == 0)
        r = tn_campaign_view(&v, writer, &c, false, error);
    if (r == 0)
        r = add_event(writer, id, DB_NULL, "campaign", v, error);
    arena_done(&a);
    return r;
}

int tn_event_trial(struct db *writer, const char *id, int64_t trial, struct err *error)
{
    struct arena a = {0};
    struct db_trial t;
    bool simulated;
    AUTO_STR s = {0};
    int r = db_trial_get(&t, writer, &a, id, trial, error);

    if (r == 0)
        r = tn_simulated(&simulated, writer, id, error);
    if (r == 0) {
        tn_trial_text(&s, &t, simulated);
        r = add_line(writer, id, trial, "trial", str_text(&s), error);
    }
    arena_done(&a);
    return r;
}

int tn_event_best(struct db *writer, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    struct tn_measure best, baseline;
    const struct tn_measure *base = NULL;
    AUTO_JSON *resolved = NULL;
    struct tn_terms terms;
    json_t *v;
    int r = db_campaign_get(&c, writer, &a, id, error);

    if (r == 0) {
        r = tn_measure_get(&baseline, writer, &a, id, TN_BASELINE, error);
        base = r == 0 ? &baseline : NULL;
        if (r == 0 || r == -ENOENT)
            r = tn_measure_best(&best, NULL, writer, &a, &c, error);
    }
    if (r == 0) {
        resolved = column(c.resolved);
        terms = tn_terms_of(&c, resolved);
        v = tn_measure_json(&best, base, &terms);
        json_object_set_new(v, "campaign", json_string(id));
        r = add_event(writer, id, best.n, "best", v, error);
    }
    arena_done(&a);
    return r == -ENOENT ? 0 : r;
}
