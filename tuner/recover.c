/*
 * After a restart: the database says what there is, the attempt folders and /proc say what lives.
 *
 * Each campaign that is not over gets its search back by replaying its trials. Each attempt that
 * has not ended is adopted or settled. A campaign that cannot be brought back (its data set is
 * gone, say) is paused with the reason; what runs of it is ended, and its trials are queued again
 * for the day when it is resumed.
 */
#include <errno.h>

#include "tuner/internal.h"

static int layout_of(struct pl_layout *ret, const struct tn_engine *en, const struct db_trial *t,
                     struct err *e)
{
    AUTO_JSON *v = NULL;
    int r = jx_parse(&v, t->layout, strlen(t->layout), e);

    if (r == 0)
        r = pl_layout_parse(ret, v, &en->spec->se.model, &en->spec->se.cluster,
                            &en->spec->se.workload, e);
    return r;
}

static int build_engine(struct tn_engine **ret, struct tn_service *svc,
                        const struct db_campaign *row, struct err *e)
{
    AUTO_JSON *body = NULL;
    struct tn_spec *spec = NULL;
    struct tn_engine *en = NULL;
    int r = jx_parse(&body, row->resolved, strlen(row->resolved), e);

    if (r == 0)
        r = tn_spec_parse(&spec, svc, body, NULL, e);
    if (r == 0)
        r = tn_engine_new(&en, spec, e);
    if (r == 0)
        r = tn_engine_replay(en, svc->db, row->id, e);
    if (r < 0)
        tn_engine_unref(en);
    else
        *ret = en;
    return r;
}

/* Queued trials join the queue; open ones are counted. */
static int take_trials(struct tn_campaign *c, const char *state, bool queue, struct err *e)
{
    struct arena a = {0};
    struct db_filter f = {.state = state, .limit = 100000};
    struct db_trial *t = NULL;
    int n = 0;
    int64_t total;
    int r = db_trial_list(c->svc->db, &a, &t, &n, &total, c->id, &f, e);

    for (int i = 0; r == 0 && i < n; i++) {
        struct pl_layout l;

        r = layout_of(&l, c->engine, &t[i], e);
        c->open += strcmp(t[i].kind, "verify") != 0;
        if (r == 0 && queue)
            tn_campaign_enqueue(c, tn_trial_new(&t[i], &l));
    }
    arena_done(&a);
    return r;
}

int tn_campaign_revive(struct tn_service *svc, const struct db_campaign *row, struct err *e)
{
    struct tn_campaign *c = tn_campaign_find(svc, row->id);
    struct tn_engine *en = NULL;
    int r = 0;

    if (!c) {
        r = build_engine(&en, svc, row, e);
        if (r < 0)
            return r;
        c = tn_campaign_load(svc, row, en);
        r = take_trials(c, "queued", true, e);
        if (r == 0)
            r = take_trials(c, "starting", false, e);
        if (r == 0)
            r = take_trials(c, "running", false, e);
    } else {
        tn_campaign_set_state(c, row->state);
    }
    if (r == 0 && row->verify && strstr(row->verify, "\"state\":\"running\""))
        r = tn_verify_restore(c, row, e);
    tn_sched_kick(svc);
    return r;
}

/* ---- attempts ---- */

struct ending {
    const struct db_attempt *at;
    int64_t now;
};

static int ending_job(struct db *w, void *arg, struct err *e)
{
    const struct ending *en = arg;
    const struct db_attempt *at = en->at;
    struct db_attempt end = {.campaign = at->campaign,
                             .n = at->n,
                             .attempt = at->attempt,
                             .ended = en->now,
                             .outcome = "requeued",
                             .exit_code = DB_NULL,
                             .signal = DB_NULL};
    struct arena a = {0};
    struct db_campaign c;
    int r = db_attempt_end(w, &end, e);

    if (r == 0)
        r = db_trial_requeue(w, at->campaign, at->n, e);
    if (r == 0)
        r = db_campaign_get(w, &a, &c, at->campaign, e);
    if (r == 0 && (!strcmp(c.state, DB_DONE) || !strcmp(c.state, DB_CANCELLED) ||
                   !strcmp(c.state, DB_FAILED)))
        r = db_trial_cancel_queued(w, at->campaign, en->now, e); /* it starts nothing again */
    if (r == 0)
        r = tn_event_trial(w, at->campaign, at->n, e);
    arena_done(&a);
    return r;
}

/* Nobody would watch it, so it must not run. */
static int end_attempt(struct tn_service *svc, const struct db_attempt *at, struct err *e)
{
    AUTO_FREE char *folder = mem_printf("%s/%s", svc->data_dir, at->folder);
    AUTO_FREE char *mark = mem_printf("%s/%s/%lld/%lld", svc->instance, at->campaign,
                                      (long long)at->n, (long long)at->attempt);
    struct ending en = {at, clock_wall_ms()};
    struct arena a = {0};
    const struct tn_launcher *l;
    struct db_campaign c;
    int r = db_campaign_get(svc->db, &a, &c, at->campaign, e);

    if (r == 0) {
        l = tn_launcher_find(c.launcher);
        tn_supervised_end(svc, folder, mark);
        if (l && l->forget)
            l->forget(svc, at);
        r = tn_write(svc, ending_job, &en, e);
    }
    arena_done(&a);
    if (r == 0)
        log_warn("trial %lld of campaign %s was ended, and is queued again", (long long)at->n,
                 at->campaign);
    return r;
}

static int recover_attempt(struct tn_service *svc, const struct db_attempt *at, struct err *e)
{
    struct tn_campaign *c = tn_campaign_find(svc, at->campaign);
    struct arena a = {0};
    struct db_trial row;
    struct pl_layout l;
    int r;

    if (!c)
        return end_attempt(svc, at, e);
    r = db_trial_get(svc->db, &a, &row, at->campaign, at->n, e);
    if (r == 0)
        r = layout_of(&l, c->engine, &row, e);
    if (r == 0)
        r = tn_attempt_recover(c, tn_trial_new(&row, &l), at, e);
    arena_done(&a);
    return r;
}

/* A campaign that cannot be brought back: recover_attempt() ends what runs of it. */
static void give_up(struct tn_service *svc, const struct db_campaign *row, const struct err *why)
{
    struct err e = {0};

    log_error("campaign %s cannot be brought back: %s", row->id, why->text);
    if (strcmp(row->state, DB_PAUSED) != 0 &&
        tn_campaign_change(svc, row->id, "running verifying", DB_PAUSED, why->text, &e) < 0)
        log_error("campaign %s: %s", row->id, e.text);
}

static bool has_attempt(const struct db_attempt *at, int n, const char *id)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(at[i].campaign, id))
            return true;
    return false;
}

static int revive_state(struct tn_service *svc, const char *state, const struct db_attempt *at,
                        int nat, bool only_with_attempts, struct err *e)
{
    struct arena a = {0};
    struct db_filter f = {.state = state, .limit = 100000};
    struct db_campaign *c = NULL;
    int n = 0;
    int64_t total;
    int r = db_campaign_list(svc->db, &a, &c, &n, &total, &f, e);

    for (int i = 0; r == 0 && i < n; i++) {
        struct err why = {0};

        if (only_with_attempts && !has_attempt(at, nat, c[i].id))
            continue;
        if (tn_campaign_revive(svc, &c[i], &why) < 0)
            give_up(svc, &c[i], &why);
    }
    arena_done(&a);
    return r;
}

int tn_recover(struct tn_service *svc, struct err *e)
{
    static const char *const over[] = {DB_DONE, DB_CANCELLED, DB_FAILED};
    static const char *const live[] = {DB_RUNNING, DB_PAUSED, DB_VERIFYING};
    struct arena a = {0};
    struct db_attempt *at = NULL;
    int n = 0;
    int r = db_attempt_open_list(svc->db, &a, &at, &n, e);

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(live); i++)
        r = revive_state(svc, live[i], at, n, false, e);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(over); i++)
        r = revive_state(svc, over[i], at, n, true, e);
    for (int i = 0; r == 0 && i < n; i++) {
        struct err why = {0};

        if (recover_attempt(svc, &at[i], &why) < 0)
            log_error("trial %lld of campaign %s: %s", (long long)at[i].n, at[i].campaign,
                      why.text);
    }
    arena_done(&a);
    return r;
}
