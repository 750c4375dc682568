/* Those campaigns that are in memory: at work, paused, or with trials that still run. */
#include <assert.h>
#include <math.h>

#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/launcher.h"
#include "tuner/core/work.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

struct tn_campaign *tn_campaign_find(struct tn_service *svc, const char *id)
{
    for (struct tn_campaign *c = tn_work(svc)->campaigns; c; c = c->next)
        if (!strcmp(c->id, id))
            return c;
    return NULL;
}

void tn_campaign_set_state(struct tn_campaign *campaign, const char *state)
{
    uint64_t now = tn_now_ms();
    bool active = !strcmp(state, DB_RUNNING) || !strcmp(state, DB_VERIFYING);

    for (int i = 0; i < DB_CAMPAIGN_STATES; i++)
        if (!strcmp(db_campaign_states[i], state))
            campaign->state = db_campaign_states[i];
    assert(campaign->state && !strcmp(campaign->state, state));
    if (campaign->active_since) {
        campaign->active_s += (double)(now - campaign->active_since) / 1000.0;
        campaign->active_since = 0;
    }
    if (active)
        campaign->active_since = now ? now : 1;
}

/* A campaign that joins, or rejoins, starts at the lowest share of those at work, so absence earns
 * no credit. */
static void join_share(struct tn_campaign *campaign)
{
    double least = INFINITY;

    for (const struct tn_campaign *o = tn_work(campaign->svc)->campaigns; o; o = o->next)
        if (o != campaign && o->active_since && o->share < least)
            least = o->share;
    if (least < INFINITY && least > campaign->share)
        campaign->share = least;
}

struct change {
    const char *id, *from, *to, *reason;
};

static int change_job(struct db *writer, void *arg, struct err *error)
{
    struct change *ch = arg;
    int r = db_campaign_move(writer, ch->id, ch->from, ch->to, ch->reason, clock_wall_ms(), error);

    return r < 0 ? r : tn_event_campaign(writer, ch->id, error);
}

int tn_campaign_change(struct tn_service *svc, const char *id, const char *from, const char *to,
                       const char *reason, struct err *error)
{
    struct change ch = {id, from, to, reason};
    struct tn_campaign *c;
    int r = tn_write(svc, change_job, &ch, error);

    if (r < 0)
        return r;
    c = tn_campaign_find(svc, id);
    tn_log_id(LOG_INFO, svc, id, " is %s%s%s", to, reason ? ": " : "", reason ? reason : "");
    if (c) {
        tn_campaign_set_state(c, to);
        c->awaits[0] = '\0';
        join_share(c);
    }
    tn_changed(svc);
    return 0;
}

static int await_job(struct db *writer, void *arg, struct err *error)
{
    struct change *ch = arg;
    int r = db_campaign_set_reason(writer, ch->id, ch->from, ch->reason, error);

    return r < 0 ? r : tn_event_campaign(writer, ch->id, error);
}

int tn_campaign_await(struct tn_campaign *campaign, const char *awaits, struct err *error)
{
    struct change ch = {
        .id = campaign->id, .from = "running verifying", .reason = *awaits ? awaits : NULL};
    int r;

    assert(!*awaits || str_starts(awaits, TN_AWAITS));
    if (!strcmp(campaign->awaits, awaits))
        return 0;
    r = tn_write(campaign->svc, await_job, &ch, error);
    if (r < 0)
        return r;
    snprintf(campaign->awaits, sizeof(campaign->awaits), "%s", awaits);
    if (*awaits)
        tn_log_campaign(LOG_WARN, campaign, " is %s", awaits);
    return 0;
}

/* What its ended attempts cost on several clusters; 0 where nobody asks. */
static double cost_so_far(struct tn_service *svc, const char *id, const struct se_spec *spec)
{
    double cost = 0;

    assert(!(spec->budget.cost > 0) || spec->nclusters > 1);
    for (int i = 0; spec->budget.cost > 0 && i < spec->nclusters; i++) {
        const struct db_slice slice = {.key = "cluster", .text = spec->cluster[i].name};
        double device_s = 0;
        int64_t trials = 0;
        struct err e = {0};

        if (db_trial_spent(&trials, &device_s, tn_db(svc), id, &slice, &e) < 0)
            tn_log_id(LOG_ERROR, svc, id, ": its cost is not known: %s", e.text);
        cost += device_s * spec->cluster[i].price / 3600;
    }
    return cost;
}

struct tn_campaign *tn_campaign_load(struct tn_service *svc, const struct db_campaign *row,
                                     struct tn_engine *owned_en)
{
    struct tn_campaign *c = mem_alloc(sizeof(*c));
    int64_t now = clock_wall_ms();

    assert(!tn_campaign_find(svc, row->id));
    c->svc = svc;
    c->engine = owned_en;
    snprintf(c->id, sizeof(c->id), "%s", row->id);
    snprintf(c->traceparent, sizeof(c->traceparent), "%s", row->traceparent);
    tn_campaign_set_state(c, row->state);
    if (str_starts(row->reason ? row->reason : "", TN_AWAITS)) /* of the daemon before */
        snprintf(c->awaits, sizeof(c->awaits), "%s", row->reason);
    c->active_s = row->active_s;
    if (row->active_since != DB_NULL && now > row->active_since)
        c->active_s += (double)(now - row->active_since) / 1000.0;
    c->device_s = row->device_s;
    c->cost = cost_so_far(svc, row->id, &owned_en->spec->se);
    c->priority = row->priority;
    join_share(c);
    c->asked = (int)row->trials;
    c->next = tn_work(svc)->campaigns;
    tn_work(svc)->campaigns = c;
    return c;
}

void tn_campaign_clear_queue(struct tn_campaign *campaign)
{
    while (campaign->queue) {
        struct tn_trial *t = campaign->queue;

        campaign->queue = t->next;
        free(t);
    }
}

static void free_campaign(struct tn_campaign *campaign)
{
    assert(campaign->running == 0 && !campaign->asking && !campaign->refitting);
    tn_campaign_clear_queue(campaign);
    while (campaign->tells) {
        struct tn_tell *t = campaign->tells;

        campaign->tells = t->next;
        free(t);
    }
    tn_engine_unref(campaign->engine);
    free(campaign);
}

void tn_campaign_unload_idle(struct tn_service *svc)
{
    struct tn_campaign **at = &tn_work(svc)->campaigns;

    while (*at) {
        struct tn_campaign *c = *at;
        bool over = strcmp(c->state, DB_RUNNING) != 0 && strcmp(c->state, DB_VERIFYING) != 0 &&
                    strcmp(c->state, DB_PAUSED) != 0;

        if ((over || tn_phase(svc)->closing) && c->running == 0 && !c->asking && !c->refitting) {
            *at = c->next;
            free_campaign(c);
        } else {
            at = &c->next;
        }
    }
}

void tn_campaign_enqueue(struct tn_campaign *campaign, struct tn_trial *trial)
{
    struct tn_trial **at = &campaign->queue;

    while (*at && (*at)->n < trial->n)
        at = &(*at)->next;
    assert(!*at || (*at)->n > trial->n);
    trial->campaign = campaign;
    trial->next = *at;
    *at = trial;
    tn_changed(campaign->svc);
}

struct tn_trial *tn_trial_new(const struct db_trial *row, const struct tn_spec *spec,
                              const struct pl_layout *layout, const struct pl_reduced *run)
{
    struct tn_trial *t = mem_alloc(sizeof(*t));
    struct pl_problem problem = se_layout_problem(&spec->se, layout);

    assert(row->n > 0);
    t->n = row->n;
    t->search_id = row->search_id;
    t->attempts = row->attempts;
    t->layout = *layout;
    t->fidelity = row->fidelity == DB_NULL ? 0 : (int)row->fidelity;
    assert(!run == !t->fidelity);
    if (run)
        t->run = *run;
    else
        pl_whole(&t->run, &problem, layout);
    snprintf(t->kind, sizeof(t->kind), "%s", row->kind);
    return t;
}
