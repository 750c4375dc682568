/* Resources as JSON, as docs/reference/http.md shows them. */
#include <errno.h>
#include <math.h>

#include "tuner/internal.h"

json_t *tn_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *tn_time(int64_t ms)
{
    char buf[CLOCK_TEXT];

    return ms == DB_NULL ? json_null() : json_string(clock_format(buf, ms));
}

static json_t *integer(int64_t v)
{
    return v == DB_NULL ? json_null() : json_integer((json_int_t)v);
}

static json_t *text(const char *s)
{
    return s ? json_string(s) : json_null();
}

/* A JSON column; null when it is NULL or was damaged. */
static json_t *column(const char *s)
{
    json_t *v = s ? json_loads(s, JSON_DECODE_ANY, NULL) : NULL;

    return v ? v : json_null();
}

/* ---- what is simulated ---- */

int tn_simulated(bool *ret, struct db *db, const char *id, struct err *e)
{
    return db_campaign_launched_by(db, ret, id, tn_launcher_simulated.name, e);
}

const char *tn_simulated_mark(const struct tn_launcher *launcher)
{
    return launcher == &tn_launcher_simulated ? " (simulated)" : "";
}

/* ---- trial ---- */

json_t *tn_trial_view(const struct db_trial *t, bool simulated)
{
    AUTO_STR s = {0};

    tn_trial_text(&s, t, simulated);
    return column(str_text(&s));
}

/* ---- campaign ---- */

static void add_state(void *ctx, const char *state, int64_t n)
{
    json_object_set_new(ctx, state, json_integer((json_int_t)n));
}

static double elapsed(const struct db_campaign *c)
{
    int64_t now = clock_wall_ms();

    if (c->active_since == DB_NULL)
        return c->active_s;
    return c->active_s + (now > c->active_since ? (double)(now - c->active_since) / 1000.0 : 0);
}

/* Time left: what the trials that are left will take at the pace so far, and never more than the
 * wall budget. */
static double time_left(const struct db_campaign *c, const json_t *resolved, const json_t *by_state)
{
    const json_t *budget = json_object_get(resolved, "budget");
    const json_t *wall = json_object_get(budget, "wall_s");
    double spent = elapsed(c), left = NAN;
    int64_t open = 0;

    for (int i = 0; i < 3; i++)
        open += json_integer_value(
            json_object_get(by_state, (const char *[]){"queued", "starting", "running"}[i]));
    if (strcmp(c->state, DB_RUNNING) != 0)
        return NAN;
    if (c->budget_trials != DB_NULL && c->trials > open && spent > 0)
        left = (double)(c->budget_trials - c->trials + open) * spent / (double)(c->trials - open);
    if (json_is_number(wall)) {
        double rest = json_number_value(wall) - spent;

        left = isnan(left) || rest < left ? rest : left;
    }
    return left < 0 ? 0 : left;
}

/* device_s of a simulated campaign is time that simulated devices were held. */
static int add_progress(json_t *v, struct db *db, const struct db_campaign *c,
                        const json_t *resolved, bool simulated, struct err *e)
{
    json_t *by_state = json_object();
    int r = db_campaign_counts(db, c->id, add_state, by_state, e);

    json_object_set_new(
        v, "progress",
        json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "simulated", simulated, "trials",
                  integer(c->trials), "budget", integer(c->budget_trials), "device_s",
                  tn_number(c->device_s), "elapsed_s", tn_number(elapsed(c)), "eta_s",
                  tn_number(time_left(c, resolved, by_state)), "by_state", by_state));
    return r;
}

const char *tn_baseline_rule(const struct db_campaign *c)
{
    AUTO_JSON *spec = column(c->spec);
    const json_t *v = json_object_get(spec, "baseline");

    if (json_is_object(v))
        return "given";
    return pl_baseline_names[str_eq(json_string_value(v), "naive") ? PL_BASELINE_NAIVE
                                                                   : PL_BASELINE_DEFAULT];
}

/* Nothing measured yet is no error. */
static int add_results(json_t *v, struct db *db, const struct db_campaign *c, bool simulated,
                       struct err *e)
{
    struct arena a = {0};
    struct tn_measure best, baseline = {.mean = NAN};
    int r = tn_measure_get(db, &a, &baseline, c->id, TN_BASELINE, e);

    json_object_set_new(v, "best", json_null());
    json_object_set_new(
        v, "baseline", r == 0 ? tn_measure_json(&baseline, baseline.mean, simulated) : json_null());
    if (r == 0 || r == -ENOENT)
        r = tn_measure_best(db, &a, &best, NULL, c, e);
    if (r == 0)
        json_object_set_new(v, "best", tn_measure_json(&best, baseline.mean, simulated));
    arena_done(&a);
    return r == -ENOENT ? 0 : r;
}

/* What a verification found; of a simulated campaign it was simulated, too. */
static json_t *verify_view(const struct db_campaign *c, bool simulated)
{
    json_t *v = column(c->verify);

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

int tn_campaign_view(json_t **ret, struct db *db, const struct db_campaign *c, bool with_spec,
                     struct err *e)
{
    AUTO_JSON *resolved = column(c->resolved);
    bool simulated = str_eq(c->launcher, tn_launcher_simulated.name);
    json_t *v = json_object();
    int r;

    json_object_set_new(v, "id", text(c->id));
    json_object_set_new(v, "name", text(c->name));
    json_object_set_new(v, "state", text(c->state));
    json_object_set_new(v, "reason", text(c->reason));
    json_object_set_new(v, "created", tn_time(c->created));
    json_object_set_new(v, "started", tn_time(c->started));
    json_object_set_new(v, "ended", tn_time(c->ended));
    if (with_spec)
        json_object_set_new(v, "spec", column(c->spec));
    json_object_set(v, "model", json_object_get(resolved, "model"));
    json_object_set(v, "cluster", json_object_get(resolved, "cluster"));
    json_object_set(v, "workload", json_object_get(resolved, "workload"));
    json_object_set_new(v, "objective", text(c->objective));
    json_object_set_new(v, "trainer", text(c->trainer));
    json_object_set_new(v, "launcher", text(c->launcher));
    json_object_set_new(v, "simulated", json_boolean(simulated));
    json_object_set_new(v, "warm_start", warm_start_view(resolved));
    json_object_set_new(v, "space", column(c->space));
    json_object_set_new(v, "baseline_rule", json_string(tn_baseline_rule(c)));
    r = add_progress(v, db, c, resolved, simulated, e);
    if (r == 0)
        r = add_results(v, db, c, simulated, e);
    json_object_set_new(v, "verify", verify_view(c, simulated));
    json_object_set_new(v, "tags", column(c->tags));
    json_object_set_new(v, "notes", text(c->notes));
    json_object_set_new(v, "owner", text(c->owner));
    json_object_set_new(v, "priority", integer(c->priority));
    if (r < 0)
        json_decref(v);
    else
        *ret = v;
    return r;
}

/* ---- events: the resource in its form at that moment, in the same transaction ---- */

static int add_line(struct db *w, const char *id, int64_t n, const char *kind, const char *line,
                    struct err *e)
{
    int64_t row;

    return db_event_add(
        w,
        &(struct db_event){
            .campaign = id, .trial = n, .kind = kind, .data = line, .t = clock_wall_ms()},
        &row, e);
}

static int add_event(struct db *w, const char *id, int64_t n, const char *kind, json_t *owned_data,
                     struct err *e)
{
    AUTO_JSON *data = owned_data;
    AUTO_FREE char *line = jx_dump(data);

    return add_line(w, id, n, kind, line, e);
}

int tn_event_campaign(struct db *w, const char *id, struct err *e)
{
    struct arena a = {0};
    struct db_campaign c;
    json_t *v = NULL;
    int r = db_campaign_get(w, &a, &c, id, e);

    if (r == 0)
        r = tn_campaign_view(&v, w, &c, false, e);
    if (r == 0)
        r = add_event(w, id, DB_NULL, "campaign", v, e);
    arena_done(&a);
    return r;
}

int tn_event_trial(struct db *w, const char *id, int64_t n, struct err *e)
{
    struct arena a = {0};
    struct db_trial t;
    bool simulated;
    AUTO_STR s = {0};
    int r = db_trial_get(w, &a, &t, id, n, e);

    if (r == 0)
        r = tn_simulated(&simulated, w, id, e);
    if (r == 0) {
        tn_trial_text(&s, &t, simulated);
        r = add_line(w, id, n, "trial", str_text(&s), e);
    }
    arena_done(&a);
    return r;
}

int tn_event_best(struct db *w, const char *id, struct err *e)
{
    struct arena a = {0};
    struct db_campaign c;
    struct tn_measure best, baseline = {.mean = NAN};
    json_t *v;
    int r = db_campaign_get(w, &a, &c, id, e);

    if (r == 0) {
        r = tn_measure_get(w, &a, &baseline, id, TN_BASELINE, e);
        if (r == 0 || r == -ENOENT)
            r = tn_measure_best(w, &a, &best, NULL, &c, e);
    }
    if (r == 0) {
        v = tn_measure_json(&best, baseline.mean, str_eq(c.launcher, tn_launcher_simulated.name));
        json_object_set_new(v, "campaign", json_string(id));
        r = add_event(w, id, best.n, "best", v, e);
    }
    arena_done(&a);
    return r == -ENOENT ? 0 : r;
}
