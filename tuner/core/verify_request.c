/* A verification is asked for: what it is to compare, and the campaign at work again. */
#include <errno.h>

#include "tuner/core/campaign.h"
#include "tuner/core/revive.h"
#include "tuner/core/verify.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

static int parse_wish(struct tn_verify *verify, const json_t *body, struct err *error)
{
    static const char *const keys[] = {"pairs", "steps", NULL};
    int r = body ? jx_keys(body, keys, error) : 0;

    *verify = (struct tn_verify){.pairs = 5};
    if (r == 0 && body)
        r = jx_get_int(&verify->pairs, body, "pairs", 1, TN_MAX_PAIRS, error);
    if (r == 0 && body)
        r = jx_get_int(&verify->steps, body, "steps", PL_LIMIT_STEPS_MIN, PL_LIMIT_STEPS_MAX,
                       error);
    return r;
}

static int start_verify(struct tn_service *svc, const struct db_campaign *row,
                        struct tn_verify *verify, struct err *error)
{
    struct arena a = {0};
    struct tn_measure best, baseline;
    struct db_campaign now;
    int r = tn_measure_best(&best, NULL, tn_db(svc), &a, row, error);

    if (r == 0)
        r = tn_measure_get(&baseline, tn_db(svc), &a, row->id, TN_BASELINE, error);
    if (r == -ENOENT)
        r = err_set(error, -ESTALE, "winner and baseline must both have succeeded");
    if (r == 0) {
        verify->winner_n = best.n;
        verify->baseline_n = baseline.n;
        verify->first_n =
            row->trials + 1; /* verification trials have higher numbers than all so far */
        r = db_trial_next(&verify->first_n, tn_db(svc), row->id, error);
    }
    if (r == 0)
        r = tn_verify_begin(svc, row, verify, error);
    if (r == 0)
        r = db_campaign_get(&now, tn_db(svc), &a, row->id, error);
    if (r == 0 && (r = tn_campaign_revive(svc, &now, false, error)) < 0)
        tn_campaign_give_up(svc, &now, error);
    arena_done(&a);
    return r;
}

int tn_campaign_verify(json_t **ret, struct tn_service *svc, const char *id, const json_t *body,
                       struct err *error)
{
    struct tn_campaign *c = tn_campaign_find(svc, id);
    struct arena a = {0};
    struct db_campaign row;
    struct tn_verify v;
    int r = parse_wish(&v, body, error);

    if (r == 0)
        r = tn_campaign_is_back(svc, id, error);
    if (r == 0)
        r = db_campaign_get(&row, tn_db(svc), &a, id, error);
    if (r == 0 && (!strcmp(row.state, DB_RUNNING) || !strcmp(row.state, DB_VERIFYING) ||
                   (c && c->running > 0)))
        r = err_set(error, -ESTALE, "campaign %s is busy (%s)", id, row.state);
    if (r == 0)
        r = start_verify(svc, &row, &v, error);
    arena_done(&a);
    return r < 0 ? r : tn_campaign_get(ret, svc, id, error);
}
