/* The attempts of a stored campaign: adopted where it is back in memory, else ended. */
#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/kinds.h"
#include "tuner/core/revive.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

struct ending {
    const struct db_attempt *at;
    int64_t now;
};

static int ending_job(struct db *writer, void *arg, struct err *error)
{
    const struct ending *en = arg;
    const struct db_attempt *at = en->at;
    struct db_attempt end = {.campaign = at->campaign,
                             .n = at->n,
                             .attempt = at->attempt,
                             .ended = en->now,
                             .outcome = db_states[DB_STATE_REQUEUED].name,
                             .exit_code = DB_NULL,
                             .signal = DB_NULL};
    struct arena a = {0};
    struct db_campaign c;
    int r = db_attempt_end(writer, &end, error);

    if (r == 0)
        r = db_trial_requeue(writer, at->campaign, at->n, error);
    if (r == 0)
        r = db_campaign_get(&c, writer, &a, at->campaign, error);
    if (r == 0 && (!strcmp(c.state, DB_DONE) || !strcmp(c.state, DB_CANCELLED) ||
                   !strcmp(c.state, DB_FAILED)))
        r = db_trial_cancel_queued(writer, at->campaign, en->now,
                                   error); /* it starts nothing again */
    if (r == 0)
        r = tn_event_trial(writer, at->campaign, at->n, error);
    arena_done(&a);
    return r;
}

/* Nobody would watch it, so it must not run. */
static int end_attempt(struct tn_service *svc, const struct db_attempt *at, struct err *error)
{
    AUTO_FREE char *folder = mem_printf("%s/%s", tn_data_dir(svc), at->folder);
    AUTO_FREE char *mark = mem_printf("%s/%s/%lld/%lld", tn_instance(svc), at->campaign,
                                      (long long)at->n, (long long)at->attempt);
    struct ending en = {at, clock_wall_ms()};
    struct arena a = {0};
    const struct tn_launcher *l;
    struct db_campaign c;
    int r = db_campaign_get(&c, tn_db(svc), &a, at->campaign, error);

    if (r == 0) {
        l = tn_launcher_find(svc, c.launcher);
        if (l && l->forget)
            l->forget(svc, folder, mark);
        r = tn_write(svc, ending_job, &en, error);
    }
    arena_done(&a);
    if (r == 0)
        tn_log_id(LOG_WARN, svc, at->campaign, ": trial %lld was stopped and requeued",
                  (long long)at->n);
    return r;
}

static int recover_attempt(struct tn_service *svc, const struct db_attempt *at, struct err *error)
{
    struct tn_campaign *c = tn_campaign_find(svc, at->campaign);
    struct arena a = {0};
    struct db_trial row;
    struct tn_trial *trial = NULL;
    int r;

    if (!c)
        return end_attempt(svc, at, error);
    r = db_trial_get(&row, tn_db(svc), &a, at->campaign, at->n, error);
    if (r == 0)
        r = tn_trial_read(&trial, &row, c->engine, error);
    if (r == 0)
        r = tn_attempt_recover(c, trial, at, error);
    arena_done(&a);
    return r;
}

void tn_recover_attempt(struct tn_service *svc, const struct db_attempt *at)
{
    struct err e = {0};

    if (recover_attempt(svc, at, &e) < 0)
        tn_log_id(LOG_ERROR, svc, at->campaign, ": trial %lld: %s", (long long)at->n, e.text);
}

void tn_recover_attempts(struct tn_service *svc, const char *id)
{
    struct arena a = {0};
    struct db_attempt *at = NULL;
    struct err e = {0};
    int n = 0;

    if (db_attempt_open_list(&at, &n, tn_db(svc), &a, &e) < 0)
        tn_log_id(LOG_ERROR, svc, id, ": %s", e.text);
    for (int i = 0; i < n; i++)
        if (!strcmp(at[i].campaign, id))
            tn_recover_attempt(svc, &at[i]);
    arena_done(&a);
}
