/*
 * What earlier projections were worth. When a later trial measures the very layout, model and batch
 * that a projection spoke of, on the same kind of device, what was said is compared with what was
 * seen; these past errors are shown with each new projection.
 */
#include "tuner/results/view.h"
#include "tuner/tuner.h"

enum { EARLIER = 100, CAMPAIGNS = 1000 };

/* A trial as the row of a projection would have it: what tells a campaign's clusters and batches
 * apart is not in its layout. */
struct seen {
    const struct db_trial *trial;
    char *layout;         /* owned; NULL: at no throughput of the full size, or not readable */
    const json_t *device; /* name of the devices that it ran on; the campaign's */
    json_int_t batch;
};

/* Of RESOLVED's cluster, which of several is that called NAME. */
static const json_t *device_name(const json_t *resolved, const char *name)
{
    json_t *cluster = json_object_get(resolved, "cluster"), *one;
    size_t i;

    json_array_foreach(cluster, i, one)
        if (str_eq(json_string_value(json_object_get(one, "name")), name))
            return json_object_get(json_object_get(one, "device"), "name");
    return json_object_get(json_object_get(cluster, "device"), "name");
}

static void see(struct seen *ret, const struct db_trial *trial, const json_t *resolved)
{
    AUTO_JSON *layout = json_loads(trial->layout, 0, NULL);
    const json_t *batch = json_object_get(json_object_get(resolved, "workload"), "global_batch");
    json_int_t own = json_integer_value(json_object_get(layout, "global_batch"));

    *ret = (struct seen){.trial = trial, .batch = own > 0 ? own : json_integer_value(batch)};
    if (!layout || !(trial->tokens_per_s > 0))
        return;
    ret->device = device_name(resolved, json_string_value(json_object_get(layout, "cluster")));
    json_object_del(layout, "cluster");
    json_object_del(layout, "global_batch");
    ret->layout = jx_dump(layout);
}

/* Was what ROW of PAST, a projection, describes measured by a trial that began after it? The first
 * is enough: repeats are not new evidence. */
static const struct db_trial *measured(const json_t *row, const struct db_artifact *past,
                                       const json_t *device, const struct seen *seen, int count)
{
    AUTO_FREE char *layout = jx_dump(json_object_get(row, "layout"));
    json_int_t batch = json_integer_value(json_object_get(row, "global_batch"));

    for (int i = 0; i < count; i++)
        if (seen[i].layout && seen[i].trial->created >= past->created && seen[i].batch == batch &&
            json_equal(seen[i].device, device) && !strcmp(seen[i].layout, layout))
            return seen[i].trial;
    return NULL;
}

/* What PAST, the projection of artifact AR, says against the COUNT trials SEEN of CAMPAIGN. */
static void compare(json_t *list, const struct db_artifact *ar, const json_t *past,
                    const struct db_campaign *campaign, const struct seen *seen, int count)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(past, "rows"), i, row) {
        const struct db_trial *trial =
            measured(row, ar, json_object_get(past, "device"), seen, count);
        double said = json_number_value(json_object_get(row, "tokens_per_s"));
        double lo = json_number_value(json_object_get(row, "lo"));
        double hi = json_number_value(json_object_get(row, "hi"));
        char when[CLOCK_TEXT];

        if (!trial || !(said > 0))
            continue;
        json_array_append_new(
            list,
            json_pack("{s:s, s:b, s:s, s:O, s:O, s:f, s:f, s:f, s:s, s:I, s:f, s:f, s:b}",
                      "campaign", ar->campaign, "simulated",
                      json_is_true(json_object_get(past, "simulated")), "created",
                      clock_format(when, ar->created), "devices", json_object_get(row, "devices"),
                      "text", json_object_get(row, "text"), "projected", said, "lo", lo, "hi", hi,
                      "measured_by", campaign->id, "trial", (json_int_t)trial->n, "measured",
                      trial->tokens_per_s, "error", said / trial->tokens_per_s - 1, "inside",
                      trial->tokens_per_s >= lo && trial->tokens_per_s <= hi));
    }
}

/* The same work: model, trainer, sequence length. Device and batch are each trial's. */
static bool same_work(const json_t *left, const json_t *right, const char *trainer)
{
    return json_equal(json_object_get(left, "model"), json_object_get(right, "model")) &&
           str_eq(json_string_value(json_object_get(left, "trainer")), trainer) &&
           json_equal(json_object_get(json_object_get(left, "workload"), "seq"),
                      json_object_get(json_object_get(right, "workload"), "seq"));
}

/* Earlier projections, and how they compare. */
struct history {
    struct db *db;
    struct arena *arena;
    struct db_artifact *artifact; /* (n) */
    json_t *past[EARLIER];        /* (n): their bodies, owned */
    int n;
    json_t *found; /* list of comparisons */
};

static int see_all(struct seen **ret, int *ret_count, const struct history *history,
                   const struct db_campaign *campaign, const json_t *resolved, struct err *error)
{
    struct db_filter f = {.state = "ok", .limit = 10000};
    struct db_trial *t = NULL;
    int64_t total;
    int r =
        db_trial_list(&t, ret_count, &total, history->db, history->arena, campaign->id, &f, error);

    if (r < 0)
        return r;
    *ret = mem_alloc((size_t)*ret_count * sizeof(**ret) + 1);
    for (int i = 0; i < *ret_count; i++)
        see(&(*ret)[i], &t[i], resolved);
    return 0;
}

static int against_campaign(struct history *history, const struct db_campaign *campaign,
                            struct err *error)
{
    AUTO_JSON *resolved = json_loads(campaign->resolved, 0, NULL);
    struct seen *seen = NULL;
    int count = 0, r = 0;

    if (tn_is_simulated(campaign->launcher)) /* a simulation is no evidence */
        return 0;
    for (int i = 0; r == 0 && i < history->n; i++) {
        if (!same_work(history->past[i], resolved, campaign->trainer))
            continue;
        if (!seen)
            r = see_all(&seen, &count, history, campaign, resolved, error);
        if (r == 0)
            compare(history->found, &history->artifact[i], history->past[i], campaign, seen, count);
    }
    for (int i = 0; seen && i < count; i++)
        free(seen[i].layout);
    free(seen);
    return r;
}

int tn_project_earlier(json_t **ret, struct db *db, struct arena *arena, struct err *error)
{
    struct history history = {.db = db, .arena = arena, .found = json_array()};
    struct db_filter f = {.limit = CAMPAIGNS};
    struct db_campaign *c = NULL;
    int count = 0;
    int64_t total;
    int r =
        db_artifact_list(&history.artifact, &history.n, db, arena, TN_PROJECTION, EARLIER, error);

    for (int i = 0; i < history.n; i++)
        history.past[i] = json_loads(history.artifact[i].body, 0, NULL);
    if (r == 0 && history.n > 0)
        r = db_campaign_list(&c, &count, &total, db, arena, &f, error);
    for (int i = 0; r == 0 && i < count; i++)
        r = against_campaign(&history, &c[i], error);
    for (int i = 0; i < history.n; i++)
        json_decref(history.past[i]);
    *ret = history.found;
    return r;
}
