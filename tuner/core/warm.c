/*
 * Earlier campaigns that a campaign names in "search.warm_start".
 *
 * What their trials said when it was submitted becomes part of its completed text, so that the
 * search is the same after a restart, and after they were deleted.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/engine.h"
#include "tuner/core/spec.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

static json_t *past_json(const struct se_outcome *outcome, int64_t fidelity, json_t *owned_layout)
{
    json_t *v =
        json_pack("{s:o, s:s}", "layout", owned_layout, "status", se_status_names[outcome->status]);

    if (fidelity != DB_NULL)
        json_object_set_new(v, "fidelity", json_integer((json_int_t)fidelity));
    if (outcome->tokens_per_s > 0)
        json_object_set_new(v, "tokens_per_s", json_real(outcome->tokens_per_s));
    if (outcome->tokens_per_s_se > 0)
        json_object_set_new(v, "tokens_per_s_se", json_real(outcome->tokens_per_s_se));
    if (outcome->peak_memory_bytes > 0)
        json_object_set_new(v, "peak_memory_bytes", json_real(outcome->peak_memory_bytes));
    if (outcome->tokens_per_joule > 0)
        json_object_set_new(v, "tokens_per_joule", json_real(outcome->tokens_per_joule));
    if (outcome->tokens_per_s_max > 0)
        json_object_set_new(v, "tokens_per_s_max", json_real(outcome->tokens_per_s_max));
    return v;
}

/* Trials of campaign ID that say something, in their order; of many an even part. */
static int trials_of(json_t **ret, struct db *db, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_filter f = {.limit = 100000};
    struct db_trial *t = NULL;
    AUTO_JSON *all = json_array();
    int64_t total;
    int n = 0, r = db_trial_list(&t, &n, &total, db, &a, id, &f, error);
    size_t known, kept;

    for (int i = 0; r == 0 && i < n; i++) {
        struct se_outcome o;
        json_t *layout = NULL;

        if (!db_trial_final(t[i].state))
            continue;
        tn_outcome_of(&o, &t[i]);
        if (o.status == SE_DISCARD)
            continue;
        r = jx_parse(&layout, t[i].layout, strlen(t[i].layout), error);
        if (r == 0)
            json_array_append_new(all, past_json(&o, t[i].fidelity, layout));
    }
    arena_done(&a);
    if (r < 0)
        return r;
    *ret = json_array();
    known = json_array_size(all);
    kept = known < SE_MAX_SOURCE_TRIALS ? known : SE_MAX_SOURCE_TRIALS;
    assert(kept <= SE_MAX_SOURCE_TRIALS && kept <= known);
    for (size_t i = 0; i < kept; i++)
        json_array_append(*ret, json_array_get(all, i * known / kept));
    return 0;
}

/* Campaign ID as an earlier one: what it was about, and its trials. */
static int source_of(json_t **ret, struct db *db, const char *id, struct err *error)
{
    static const char *const kept[] = {"model",       "cluster", "workload",
                                       "constraints", "rules",   "stack"};
    struct arena a = {0};
    struct db_campaign c;
    AUTO_JSON *resolved = NULL, *trials = NULL;
    json_t *v, *fidelity;
    int r = db_campaign_get(&c, db, &a, id, error);

    if (r == -ENOENT)
        err_at(error, r, "", "no campaign %s", id);
    if (r == 0)
        r = jx_parse(&resolved, c.resolved, strlen(c.resolved), error);
    if (r == 0)
        r = trials_of(&trials, db, id, error);
    if (r == 0 && json_array_size(trials) == 0)
        r = err_at(error, -EINVAL, "", "campaign %s has no trial with a result yet", id);
    if (r == 0) {
        v = json_pack("{s:s, s:s, s:b, s:O}", "campaign", id, "trainer", c.trainer, "simulated",
                      tn_is_simulated(c.launcher), "trials", trials);
        for (size_t i = 0; i < ARRAY_LEN(kept); i++)
            if (json_object_get(resolved, kept[i]))
                json_object_set(v, kept[i], json_object_get(resolved, kept[i]));
        fidelity = json_object_get(json_object_get(resolved, "trial"), "fidelity");
        if (fidelity)
            json_object_set_new(v, "trial", json_pack("{s:O}", "fidelity", fidelity));
        *ret = v;
    }
    arena_done(&a);
    return r;
}

static int replace_ids(json_t *list, const struct tn_service *svc, struct err *error)
{
    AUTO_FREE char *path = mem_printf("%s/partune.db", tn_data_dir(svc));
    AUTO_DB *db = NULL;
    json_t *v;
    size_t i;
    char at[48];
    int r;

    json_array_foreach(list, i, v) {
        json_t *source = NULL;

        if (!json_is_string(v))
            continue;
        if (!db && (r = db_open(&db, path, DB_READ, error)) < 0)
            return r;
        r = source_of(&source, db, json_string_value(v), error);
        if (r < 0) {
            snprintf(at, sizeof(at), "/search/warm_start/%zu", i);
            return err_under(error, at);
        }
        json_array_set_new(list, i, source);
    }
    return 0;
}

int tn_warm_start(json_t **ret, const struct tn_service *svc, const json_t *body, struct err *error)
{
    json_t *v = json_deep_copy(body);
    json_t *list = json_object_get(json_object_get(v, "search"), "warm_start");
    int r = 0;

    if (json_array_size(list) > SE_MAX_SOURCES)
        r = err_at(error, -EINVAL, "/search/warm_start", "at most %d earlier campaigns",
                   SE_MAX_SOURCES);
    else if (list)
        r = replace_ids(list, svc, error);
    if (r < 0)
        json_decref(v);
    else
        *ret = v;
    return r;
}
