/* What the measurements of a campaign say, for the handlers: best, baseline, predictions, front. */
#include <errno.h>
#include <math.h>

#include "search/search.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

int tn_mark_simulated(json_t *view, struct tn_service *svc, const char *id, struct err *error)
{
    bool simulated;
    int r = tn_simulated(&simulated, tn_db(svc), id, error);

    if (r == 0)
        json_object_set_new(view, "simulated", json_boolean(simulated));
    return r;
}

int tn_best(json_t **ret, struct tn_service *svc, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    struct tn_measure m, baseline;
    const struct tn_measure *base = NULL;
    AUTO_JSON *tied = NULL, *resolved = NULL;
    struct tn_terms terms;
    int r = db_campaign_get(&c, tn_db(svc), &a, id, error);

    if (r == 0)
        r = tn_measure_best(&m, &tied, tn_db(svc), &a, &c, error);
    if (r == 0) {
        r = tn_measure_get(&baseline, tn_db(svc), &a, id, TN_BASELINE, error);
        base = r == 0 ? &baseline : NULL;
        r = r == -ENOENT ? 0 : r; /* it has not run, or failed */
    }
    if (r == 0) {
        resolved = json_loads(c.resolved, 0, NULL);
        terms = tn_terms_of(&c, resolved);
        *ret = tn_measure_json(&m, base, &terms);
        json_object_set(*ret, "tied_with", tied);
    }
    arena_done(&a);
    return r;
}

int tn_baseline(json_t **ret, struct tn_service *svc, const char *id, struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    struct tn_measure m;
    AUTO_JSON *resolved = NULL;
    struct tn_terms terms;
    int r = db_campaign_get(&c, tn_db(svc), &a, id, error);

    if (r == 0)
        r = tn_measure_get(&m, tn_db(svc), &a, id, TN_BASELINE, error);
    if (r == 0) {
        resolved = json_loads(c.resolved, 0, NULL);
        terms = tn_terms_of(&c, resolved);
        *ret = tn_measure_json(&m, &m, &terms);
        json_object_set_new(*ret, "tied_with", json_array());
        json_object_set_new(*ret, "baseline_rule", json_string(tn_baseline_rule(&c)));
    }
    arena_done(&a);
    return r;
}

/* Every successful trial of the campaign at full size, verification excepted. */
static int each_ok(struct tn_service *svc, const char *id,
                   void (*fn)(void *ctx, const struct db_trial *trial, bool simulated), void *ctx,
                   struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    struct db_filter f = {.state = "ok", .limit = 100000};
    struct db_trial *t = NULL;
    int n = 0;
    int64_t total;
    int r = db_campaign_get(&c, tn_db(svc), &a, id, error);

    if (r == 0)
        r = db_trial_list(&t, &n, &total, tn_db(svc), &a, id, &f, error);
    for (int i = 0; r == 0 && i < n; i++)
        if (strcmp(t[i].kind, "verify") != 0 && t[i].fidelity == DB_NULL)
            fn(ctx, &t[i], tn_is_simulated(c.launcher));
    arena_done(&a);
    return r;
}

static void add_prediction(void *ctx, const struct db_trial *trial, bool simulated)
{
    if (!isnan(trial->predicted_tokens_per_s))
        json_array_append_new(
            ctx, json_pack("{s:I, s:b, s:o, s:o, s:o}", "n", (json_int_t)trial->n, "simulated",
                           simulated, "predicted", tn_number(trial->predicted_tokens_per_s),
                           "tokens_per_s", tn_number(trial->tokens_per_s), "measured",
                           tn_number(simulated ? NAN : trial->tokens_per_s)));
}

int tn_predictions(json_t **ret_items, struct tn_service *svc, const char *id, struct err *error)
{
    json_t *items = json_array();
    int r = each_ok(svc, id, add_prediction, items, error);

    if (r < 0)
        json_decref(items);
    else
        *ret_items = items;
    return r;
}

struct point {
    int64_t n;
    double rate, memory;
};

struct points {
    struct point *v;
    int n, cap;
    bool simulated;
};

static void add_point(void *ctx, const struct db_trial *trial, bool simulated)
{
    struct points *p = ctx;

    p->simulated = simulated;
    if (!(trial->memory > 0))
        return;
    MEM_GROW(p->v, p->n, p->cap);
    p->v[p->n++] = (struct point){trial->n, trial->tokens_per_s, trial->memory};
}

static int by_memory(const void *left, const void *right)
{
    const struct point *p = left, *q = right;

    if (p->memory != q->memory)
        return p->memory < q->memory ? -1 : 1;
    return (p->rate < q->rate) - (p->rate > q->rate);
}

/* Sorted by memory, a trial is on the front if it is faster than all that need less. */
int tn_pareto(json_t **ret_items, struct tn_service *svc, const char *id, struct err *error)
{
    struct points p = {0};
    double fastest = 0;
    int r = each_ok(svc, id, add_point, &p, error);

    if (r == 0) {
        *ret_items = json_array();
        if (p.n > 0)
            qsort(p.v, (size_t)p.n, sizeof(p.v[0]), by_memory);
        for (int i = 0; i < p.n; i++)
            if (p.v[i].rate > fastest) {
                fastest = p.v[i].rate;
                json_array_append_new(*ret_items,
                                      json_pack("{s:I, s:b, s:f, s:f}", "n", (json_int_t)p.v[i].n,
                                                "simulated", p.simulated, "tokens_per_s",
                                                p.v[i].rate, "memory_bytes", p.v[i].memory));
            }
    }
    free(p.v);
    return r;
}

int tn_winner(struct tn_winner *ret, struct tn_service *svc, const char *id, int64_t trial,
              struct err *error)
{
    struct arena a = {0};
    struct db_campaign c;
    struct tn_measure m;
    struct tn_winner w = {.n = 0};
    AUTO_JSON *body = NULL, *layout = NULL;
    struct se_spec spec;
    int r = db_campaign_get(&c, tn_db(svc), &a, id, error);

    if (r == 0)
        r = trial > 0 ? tn_measure_get(&m, tn_db(svc), &a, id, trial, error)
                      : tn_measure_best(&m, NULL, tn_db(svc), &a, &c, error);
    if (r == 0)
        r = jx_parse(&body, c.resolved, strlen(c.resolved), error);
    if (r == 0)
        r = jx_parse(&layout, m.layout, strlen(m.layout), error);
    if (r == 0 && (r = se_spec_parse(&spec, body, tn_local_cluster(svc), error)) == 0) {
        w = (struct tn_winner){.model = spec.model,
                               .cluster = spec.cluster[0],
                               .workload = spec.workload,
                               .trainer = spec.trainer,
                               .n = m.n,
                               .tokens_per_s = m.mean,
                               .lo = m.lo,
                               .hi = m.hi,
                               .mfu = m.mfu,
                               .simulated = tn_is_simulated(c.launcher)};
        r = se_layout_parse(&w.layout, &spec, layout, error);
        if (r == 0)
            w.cluster = *se_cluster_of(&spec, &w.layout);
        w.layout.cluster = 0; /* it is alone now */
        se_spec_done(&spec);
    }
    if (r == 0) {
        snprintf(w.campaign, sizeof(w.campaign), "%s", c.id);
        snprintf(w.name, sizeof(w.name), "%s", c.name);
        *ret = w;
    }
    arena_done(&a);
    return r;
}
