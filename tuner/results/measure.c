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

/* How much runs of one layout differ, in tokens/s and in tokens/J. */
struct spreads {
    struct se_spread rate, per_joule;
};

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

/* The same in tokens/J of the trials that have them. Power hardly changes from step to step: the
 * relative error of a run's joules is that of its seconds. */
static struct se_measured *metered(size_t *ret_count, struct arena *arena,
                                   const struct db_trial *trial, int count)
{
    struct se_measured *m = measured(arena, trial, count);
    size_t kept = 0;

    for (int i = 0; i < count; i++) {
        double per_joule = trial[i].tokens_per_joule;

        if (per_joule > 0)
            m[kept++] = (struct se_measured){m[i].layout, per_joule,
                                             m[i].se * (per_joule / trial[i].tokens_per_s)};
    }
    *ret_count = kept;
    return m;
}

static int devices_of(const char *layout)
{
    AUTO_JSON *v = json_loads(layout, 0, NULL);
    json_int_t world = json_integer_value(json_object_get(v, "world")),
               threads = json_integer_value(json_object_get(v, "threads"));

    return (int)((world > 0 ? world : 1) * (threads > 0 ? threads : 1));
}

static int spreads_of(struct spreads *ret, struct db *db, struct arena *arena, const char *campaign,
                      struct err *error)
{
    struct se_measured *with_joules;
    struct db_trial *t;
    size_t n;
    int count, r = db_trial_repeated(&t, &count, db, arena, campaign, error);

    if (r < 0)
        return r;
    with_joules = metered(&n, arena, t, count);
    *ret = (struct spreads){se_spread_of(measured(arena, t, count), (size_t)count),
                            se_spread_of(with_joules, n)};
    return 0;
}

static int measure(struct tn_measure *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, const struct spreads *spreads, struct err *error)
{
    struct se_pooled pooled;
    struct se_measured *with_joules;
    struct db_trial *t;
    size_t n;
    int count, r = db_trial_group(&t, &count, db, arena, campaign, trial, error);

    if (r < 0)
        return r;
    if (count == 0)
        return err_set(error, -ENOENT, "trial %lld has no measurement of the full size",
                       (long long)trial);
    pooled = se_pool(measured(arena, t, count), (size_t)count, spreads->rate);
    with_joules = metered(&n, arena, t, count);
    *ret = (struct tn_measure){.n = trial,
                               .layout = t[0].layout,
                               .text = t[0].layout_text,
                               .memory = t[0].memory,
                               .mean = pooled.mean,
                               .lo = pooled.lo,
                               .hi = pooled.hi,
                               .per_joule = {NAN, NAN, NAN},
                               .count = count,
                               .price = NAN,
                               .devices = devices_of(t[0].layout)};
    ret->mfu = t[0].mfu * ret->mean / t[0].tokens_per_s;
    if (n == (size_t)count)
        ret->per_joule = se_pool(with_joules, n, spreads->per_joule);
    return 0;
}

int tn_measure_get(struct tn_measure *ret, struct db *db, struct arena *arena, const char *campaign,
                   int64_t trial, struct err *error)
{
    struct spreads spreads;
    int r = spreads_of(&spreads, db, arena, campaign, error);

    return r < 0 ? r : measure(ret, db, arena, campaign, trial, &spreads, error);
}

struct se_pooled tn_measure_value(const struct tn_measure *measure, enum pl_objective objective,
                                  double price)
{
    double unit = pl_objective_value(objective, 1, measure->devices, 1, price);

    if (objective == PL_TOKENS_PER_JOULE)
        return measure->per_joule;
    return (struct se_pooled){unit * measure->mean, unit * measure->lo, unit * measure->hi};
}

enum { LEADERS = 48 };

/* {name: price} of several clusters, else NULL. */
static char *prices_of(const struct tn_terms *terms)
{
    AUTO_JSON *prices = json_object();
    json_t *one;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)terms->cluster, i, one)
        json_object_set(prices, json_string_value(json_object_get(one, "name")),
                        json_object_get(one, "price_per_device_hour"));
    return json_is_array(terms->cluster) ? jx_dump(prices) : NULL;
}

/* The best by single measurements. */
static int leaders_of(int64_t ret_leader[LEADERS], int *ret_count, struct db *db,
                      const struct db_campaign *campaign, const struct tn_terms *terms,
                      const struct db_slice *slice, struct err *error)
{
    AUTO_FREE char *prices = prices_of(terms);

    if (terms->objective == PL_TOKENS_PER_COST)
        return db_trial_cheapest(ret_leader, ret_count, db, LEADERS, campaign->id, prices, slice,
                                 error);
    return db_trial_leaders(ret_leader, ret_count, db, LEADERS, campaign->id, campaign->objective,
                            slice, error);
}

int tn_measure_best(struct tn_measure *ret, json_t **ret_tied, struct db *db, struct arena *arena,
                    const struct db_campaign *campaign, struct err *error)
{
    return tn_measure_best_of(ret, ret_tied, db, arena, campaign, NULL, error);
}

int tn_measure_best_of(struct tn_measure *ret, json_t **ret_tied, struct db *db,
                       struct arena *arena, const struct db_campaign *campaign,
                       const struct db_slice *slice, struct err *error)
{
    AUTO_JSON *resolved = json_loads(campaign->resolved, 0, NULL);
    struct tn_terms terms = tn_terms_of(campaign, resolved);
    struct tn_measure m[LEADERS];
    int64_t leader[LEADERS];
    struct spreads spreads = {0};
    struct se_pooled value[LEADERS];
    int best = -1, n = 0, r = spreads_of(&spreads, db, arena, campaign->id, error);

    if (r == 0)
        r = leaders_of(leader, &n, db, campaign, &terms, slice, error);
    assert(n <= LEADERS);
    for (int i = 0; r == 0 && i < n; i++) {
        r = measure(&m[i], db, arena, campaign->id, leader[i], &spreads, error);
        if (r < 0)
            break;
        if (terms.objective == PL_TOKENS_PER_COST)
            m[i].price = tn_price(&terms, m[i].layout);
        value[i] = tn_measure_value(&m[i], terms.objective, m[i].price);
        if (!isnan(value[i].mean) && (best < 0 || value[i].mean > value[best].mean))
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
            if (i != best && value[i].hi >= value[best].lo)
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
    return (struct tn_terms){.objective = pl_objective_of(campaign->objective),
                             .cluster = json_object_get(resolved, "cluster"),
                             .simulated = tn_is_simulated(campaign->launcher)};
}

double tn_price(const struct tn_terms *terms, const char *layout)
{
    AUTO_JSON *v = json_is_array(terms->cluster) ? json_loads(layout, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(v, "cluster"));
    const json_t *cluster = json_is_array(terms->cluster) ? NULL : terms->cluster, *price;
    json_t *one;
    size_t i;

    assert(layout || !json_is_array(terms->cluster));
    json_array_foreach((json_t *)(uintptr_t)terms->cluster, i, one)
        if (str_eq(json_string_value(json_object_get(one, "name")), name))
            cluster = one;
    price = json_object_get(cluster, "price_per_device_hour");
    return json_is_number(price) ? json_number_value(price) : (double)NAN;
}

/* Price of a million tokens. */
static double cost_of(const struct tn_measure *measure, double price)
{
    return price * measure->devices / 3600.0 / measure->mean * 1e6;
}

static double ratio_of(const struct tn_measure *measure, const struct tn_measure *baseline,
                       const struct tn_terms *terms)
{
    return tn_measure_value(measure, terms->objective, tn_price(terms, measure->layout)).mean /
           tn_measure_value(baseline, terms->objective, tn_price(terms, baseline->layout)).mean;
}

json_t *tn_measure_json(const struct tn_measure *measure, const struct tn_measure *baseline,
                        const struct tn_terms *terms)
{
    double ratio = baseline ? ratio_of(measure, baseline, terms) : (double)NAN;

    return json_pack(
        "{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:b, s:i, s:i, s:o, s:o, s:o}",
        "trial", (json_int_t)measure->n, "layout", json_loads(measure->layout, 0, NULL), "text",
        measure->text, "tokens_per_s", tn_number(measure->mean), "lo", tn_number(measure->lo), "hi",
        tn_number(measure->hi), "mfu", tn_number(measure->mfu), "ratio", tn_number(ratio),
        "memory_bytes", tn_number(measure->memory), "devices", measure->devices, "cost_per_mtok",
        tn_number(cost_of(measure, tn_price(terms, measure->layout))), "simulated",
        terms->simulated, "runs", measure->count, "measured", terms->simulated ? 0 : measure->count,
        "tokens_per_joule", tn_number(measure->per_joule.mean), "tokens_per_joule_lo",
        tn_number(measure->per_joule.lo), "tokens_per_joule_hi", tn_number(measure->per_joule.hi));
}
