/*
 * The pooled throughput of a layout, and the best of a campaign.
 *
 * How much runs of one layout differ is estimated over all repeats of the campaign (search.h,
 * "pooling repeats"), since two runs alone hardly say it.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/results/view.h"

static struct se_measured *measured(struct arena *arena, const struct db_trial *trial, int count)
{
    struct se_measured *m = arena_alloc(arena, (size_t)(count + 1) * sizeof(*m));

    assert(count >= 0);
    for (int i = 0; i < count; i++)
        m[i] = (struct se_measured){trial[i].repeat_of == DB_NULL ? trial[i].n : trial[i].repeat_of,
                                    trial[i].tokens_per_s,
                                    trial[i].tokens_per_s_se > 0 ? trial[i].tokens_per_s_se : 0.0};
    return m;
}

int tn_layout_devices(const char *layout)
{
    AUTO_JSON *v = json_loads(layout, 0, NULL);
    json_int_t world = json_integer_value(json_object_get(v, "world")),
               threads = json_integer_value(json_object_get(v, "threads"));

    return (int)((world > 0 ? world : 1) * (threads > 0 ? threads : 1));
}

static int spread_of(struct se_spread *ret, struct db *db, struct arena *arena,
                     const char *campaign, struct err *error)
{
    struct db_trial *t;
    int count, r = db_trial_repeated(&t, &count, db, arena, campaign, error);

    if (r == 0)
        *ret = se_spread_of(measured(arena, t, count), (size_t)count);
    return r;
}

static int measure(struct tn_measure *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, struct se_spread spread, struct err *error)
{
    struct se_pooled pooled;
    struct db_trial *t;
    int count, r = db_trial_group(&t, &count, db, arena, campaign, trial, error);

    if (r < 0)
        return r;
    if (count == 0)
        return err_set(error, -ENOENT, "trial %lld has no measurement of the full size",
                       (long long)trial);
    pooled = se_pool(measured(arena, t, count), (size_t)count, spread);
    *ret = (struct tn_measure){.n = trial,
                               .layout = t[0].layout,
                               .text = t[0].layout_text,
                               .memory = t[0].memory,
                               .mean = pooled.mean,
                               .lo = pooled.lo,
                               .hi = pooled.hi,
                               .count = count,
                               .devices = tn_layout_devices(t[0].layout)};
    ret->mfu = t[0].mfu * ret->mean / t[0].tokens_per_s;
    return 0;
}

int tn_measure_get(struct tn_measure *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, struct err *error)
{
    struct se_spread spread;
    int r = spread_of(&spread, db, arena, campaign, error);

    return r < 0 ? r : measure(ret, db, arena, campaign, trial, spread, error);
}

enum { LEADERS = 48 };

int tn_measure_best(struct tn_measure *ret, json_t **ret_tied, struct db *db, struct arena *arena,
                    const struct db_campaign *campaign, struct err *error)
{
    return tn_measure_best_of(ret, ret_tied, db, arena, campaign, 0, error);
}

int tn_measure_best_of(struct tn_measure *ret, json_t **ret_tied, struct db *db,
                       struct arena *arena, const struct db_campaign *campaign, int batch,
                       struct err *error)
{
    enum se_objective objective = se_objective_of(campaign->objective);
    struct tn_measure m[LEADERS];
    int64_t leader[LEADERS];
    struct se_spread spread = {0};
    int best = -1, n = 0, r = spread_of(&spread, db, arena, campaign->id, error);

    if (r == 0)
        r = db_trial_leaders(leader, &n, db, LEADERS, campaign->id,
                             objective == SE_TOKENS_PER_S_PER_DEVICE, batch, error);
    assert(n <= LEADERS);
    for (int i = 0; r == 0 && i < n; i++) {
        r = measure(&m[i], db, arena, campaign->id, leader[i], spread, error);
        if (r == 0 &&
            (best < 0 || se_objective_value(objective, m[i].mean, m[i].devices) >
                             se_objective_value(objective, m[best].mean, m[best].devices)))
            best = i;
    }
    if (r < 0)
        return r;
    if (best < 0)
        return err_set(error, -ENOENT, "no trial of campaign %s %s", campaign->id,
                       campaign->ended ? "succeeded" : "has succeeded yet");
    assert(best < n);
    *ret = m[best];
    if (ret_tied) {
        *ret_tied = json_array();
        for (int i = 0; i < n; i++)
            if (i != best && se_objective_value(objective, m[i].hi, m[i].devices) >=
                                 se_objective_value(objective, m[best].lo, m[best].devices))
                json_array_append_new(*ret_tied, json_integer((json_int_t)m[i].n));
    }
    return 0;
}

double tn_device_s_per_mtoken(const struct tn_measure *measure)
{
    return 1e6 * measure->devices / measure->mean;
}

/* ---- as JSON ------------------------------------------------------------- */

struct tn_terms tn_terms_of(const struct db_campaign *campaign, const json_t *resolved)
{
    const json_t *price =
        json_object_get(json_object_get(resolved, "cluster"), "price_per_device_hour");

    return (struct tn_terms){.objective = se_objective_of(campaign->objective),
                             .price =
                                 json_is_number(price) ? json_number_value(price) : (double)NAN,
                             .simulated = tn_is_simulated(campaign->launcher)};
}

/* Price of a million tokens. */
static double cost_of(const struct tn_measure *measure, double price)
{
    return price * measure->devices / 3600.0 / measure->mean * 1e6;
}

static double ratio_of(const struct tn_measure *measure, const struct tn_measure *baseline,
                       enum se_objective objective)
{
    return se_objective_value(objective, measure->mean, measure->devices) /
           se_objective_value(objective, baseline->mean, baseline->devices);
}

json_t *tn_measure_json(const struct tn_measure *measure, const struct tn_measure *baseline,
                        const struct tn_terms *terms)
{
    double ratio = baseline ? ratio_of(measure, baseline, terms->objective) : (double)NAN;

    return json_pack(
        "{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:b, s:i, s:i}", "trial",
        (json_int_t)measure->n, "layout", json_loads(measure->layout, 0, NULL), "text",
        measure->text, "tokens_per_s", tn_number(measure->mean), "lo", tn_number(measure->lo), "hi",
        tn_number(measure->hi), "mfu", tn_number(measure->mfu), "ratio", tn_number(ratio),
        "memory_bytes", tn_number(measure->memory), "devices", measure->devices, "cost_per_mtok",
        tn_number(cost_of(measure, terms->price)), "simulated", terms->simulated, "runs",
        measure->count, "measured", terms->simulated ? 0 : measure->count);
}
