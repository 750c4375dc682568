/*
 * The pooled throughput of a layout, and the best of a campaign.
 *
 * How much runs of one layout differ is estimated over all repeats of the campaign (search.h,
 * "pooling repeats"), since two runs alone hardly say it.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "search/search.h"
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
                               .count = count};
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

static int world_of(const struct tn_measure *measure)
{
    AUTO_JSON *v = json_loads(measure->layout, 0, NULL);
    int world = (int)json_integer_value(json_object_get(v, "world"));

    return world > 0 ? world : 1;
}

enum { LEADERS = 48 };

int tn_measure_best(struct tn_measure *ret, json_t **ret_tied, struct db *db, struct arena *arena,
                    const struct db_campaign *campaign, struct err *error)
{
    bool each = str_eq(campaign->objective, "tokens_per_s_per_device");
    struct tn_measure m[LEADERS];
    int64_t leader[LEADERS];
    struct se_spread spread = {0};
    int best = -1, n = 0, r = spread_of(&spread, db, arena, campaign->id, error);

    if (r == 0)
        r = db_trial_leaders(leader, &n, db, LEADERS, campaign->id, each, error);
    assert(n <= LEADERS);
    for (int i = 0; r == 0 && i < n; i++) {
        r = measure(&m[i], db, arena, campaign->id, leader[i], spread, error);
        if (r == 0 && (best < 0 || m[i].mean / (each ? world_of(&m[i]) : 1) >
                                       m[best].mean / (each ? world_of(&m[best]) : 1)))
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
        double scale = each ? world_of(&m[best]) : 1;

        *ret_tied = json_array();
        for (int i = 0; i < n; i++)
            if (i != best && m[i].hi / (each ? world_of(&m[i]) : 1) >= m[best].lo / scale)
                json_array_append_new(*ret_tied, json_integer((json_int_t)m[i].n));
    }
    return 0;
}

json_t *tn_measure_json(const struct tn_measure *measure, double baseline, bool simulated)
{
    return json_pack("{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:i, s:i}", "trial",
                     (json_int_t)measure->n, "layout", json_loads(measure->layout, 0, NULL), "text",
                     measure->text, "tokens_per_s", tn_number(measure->mean), "lo",
                     tn_number(measure->lo), "hi", tn_number(measure->hi), "mfu",
                     tn_number(measure->mfu), "ratio", tn_number(measure->mean / baseline),
                     "memory_bytes", tn_number(measure->memory), "simulated", simulated, "runs",
                     measure->count, "measured", simulated ? 0 : measure->count);
}
