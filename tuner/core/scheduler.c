/*
 * Who may start what, when.
 *
 * Campaigns take turns by priority, then by the device-seconds that they have used while others
 * were there. A campaign starts the head of its queue if there is room for it; with an empty queue
 * and fewer open trials than `search.parallel` it asks its search, which happens in libuv's pool
 * together with telling it what has been settled since.
 *
 * Of several clusters each has a queue of its own, in the one list: a trial waits for those of its
 * cluster alone. Where nothing there will run it (no worker comes), the search is asked for trials
 * on the others; else it decides where a trial is worth its price.
 *
 * While the next one in turn waits for more cores than are free, smaller trials of others go before
 * it, but not for ever: once it has waited for ROOM_MS, campaigns behind it start nothing on that
 * launcher until it has its cores. They also wait while it asks its search for the trial that it
 * will start, else the end of each of its trials would give their cores to the next campaign.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/launcher.h"
#include "tuner/core/revive.h"
#include "tuner/core/scheduler.h"
#include "tuner/core/verify.h"
#include "tuner/core/work.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

enum { ROOM_MS = 10000 };

/* ---- the end of a campaign ----------------------------------------------- */

struct finish {
    const char *id, *reason;
};

static int finish_job(struct db *writer, void *arg, struct err *error)
{
    struct finish *f = arg;
    int r = db_campaign_move(writer, f->id, DB_RUNNING, DB_DONE, f->reason, clock_wall_ms(), error);

    if (r == 0)
        r = db_trial_cancel_queued(writer, f->id, clock_wall_ms(), error);
    return r < 0 ? r : tn_event_campaign(writer, f->id, error);
}

static void finish(struct tn_campaign *campaign)
{
    struct finish f = {campaign->id, campaign->done};
    struct err e = {0};

    assert(campaign->done && campaign->running == 0);
    if (tn_write(campaign->svc, finish_job, &f, &e) < 0) {
        tn_log_campaign(LOG_ERROR, campaign, " cannot end: %s", e.text);
        campaign->retry_at = tn_now_ms() + 1000;
        return;
    }
    tn_log_campaign(LOG_INFO, campaign, " is done: %s", campaign->done);
    tn_campaign_clear_queue(campaign);
    tn_campaign_set_state(campaign, DB_DONE);
}

/* Share of the wall, device or cost budget that is gone; the largest one. */
static double spent(const struct tn_campaign *campaign)
{
    const struct se_budget *b = &campaign->engine->spec->se.budget;
    double active =
        campaign->active_s +
        (campaign->active_since ? (double)(tn_now_ms() - campaign->active_since) / 1000.0 : 0);
    double wall = b->wall_s > 0 ? active / b->wall_s : 0;
    double device = b->device_s > 0 ? campaign->device_s / b->device_s : 0;
    double cost = b->cost > 0 ? campaign->cost / b->cost : 0;

    return fmax(wall, fmax(device, cost));
}

static bool budget_over(const struct tn_campaign *campaign)
{
    int trials = campaign->engine->spec->se.budget.trials;

    return (trials > 0 && campaign->asked >= trials) || spent(campaign) >= 1;
}

/* ---- asking, in libuv's pool --------------------------------------------- */

struct ask {
    uv_work_t work;
    struct tn_campaign *c;
    struct tn_engine *engine;
    struct tn_tell *tells;
    bool want, refit_due;
    unsigned avoid; /* clusters, as se_avoid() */
    double spent;
    enum se_answer answer;
    struct se_trial trial;
    struct pl_reduced run; /* of a smaller trial */
    struct tn_inferred *inferred;
    int ninferred;
    int64_t repeat_of; /* trial number, or DB_NULL */
    char reason[64];
};

static void tell_all(struct ask *ask)
{
    while (ask->tells) {
        struct tn_tell *t = ask->tells;
        struct err e = {0};

        ask->tells = t->next;
        if (se_tell(ask->engine->search, t->id, &t->outcome, &e) < 0)
            tn_log_campaign(LOG_WARN, ask->c, ": the search rejects the outcome of trial %d: %s",
                            t->id, e.text);
        free(t);
    }
}

static void ask_work(uv_work_t *work)
{
    struct ask *k = work->data;

    pthread_mutex_lock(&k->engine->lock);
    tell_all(k);
    k->inferred = tn_infer(&k->ninferred, k->engine);
    se_spent(k->engine->search, k->spent);
    k->repeat_of = DB_NULL;
    if (k->want) {
        se_avoid(k->engine->search, k->avoid);
        k->answer = se_ask(&k->trial, k->engine->search);
        if (k->answer == SE_DONE)
            snprintf(k->reason, sizeof(k->reason), "%s", se_done_reason(k->engine->search));
        if (k->answer == SE_TRIAL && k->trial.repeat_of > 0 && k->trial.repeat_of <= k->engine->ids)
            k->repeat_of = k->engine->n_of[k->trial.repeat_of];
        if (k->answer == SE_TRIAL && k->trial.fidelity > 0)
            se_trial_run(&k->run, k->engine->search, &k->trial);
    }
    k->refit_due = se_refit_due(k->engine->search);
    pthread_mutex_unlock(&k->engine->lock);
}

/* The search gave a trial that could not be stored: give it back. */
static void give_back(struct tn_campaign *campaign, const struct se_trial *st,
                      const struct err *error)
{
    struct tn_tell *t = mem_alloc(sizeof(*t));

    *t = (struct tn_tell){.next = campaign->tells, .id = st->id, .outcome = {.status = SE_DISCARD}};
    campaign->tells = t;
    campaign->retry_at = tn_now_ms() + 1000;
    if (error->code != -ESTALE)
        tn_log_campaign(LOG_ERROR, campaign, " cannot add a trial: %s", error->text);
}

static void take_answer(struct tn_campaign *campaign, const struct ask *ask)
{
    struct err e = {0};
    int64_t n;

    if (ask->answer == SE_WAIT) {
        campaign->waiting = true;
        return;
    }
    if (ask->answer == SE_DONE) {
        campaign->done = !strcmp(ask->reason, "converged") ? "converged"
                         : !strcmp(ask->reason, "budget")  ? "budget"
                                                           : "exhausted";
        return;
    }
    assert(ask->answer == SE_TRIAL && ask->trial.id > 0);
    if (tn_trial_add_chosen(&n, campaign, &ask->trial, ask->trial.fidelity > 0 ? &ask->run : NULL,
                            ask->repeat_of, ask->repeat_of == DB_NULL ? "search" : "repeat",
                            &e) < 0) {
        give_back(campaign, &ask->trial, &e);
        return;
    }
    pthread_mutex_lock(&campaign->engine->lock);
    tn_engine_name(campaign->engine, ask->trial.id, n);
    pthread_mutex_unlock(&campaign->engine->lock);
    campaign->open++;
    campaign->asked++;
}

/* ---- asynchronous refits ------------------------------------------------- */

struct refit {
    uv_work_t work;
    struct tn_campaign *c;
    struct tn_engine *engine;
};

static void refit_work(uv_work_t *work)
{
    struct refit *f = work->data;
    struct se_refit *r;

    pthread_mutex_lock(&f->engine->lock);
    r = se_refit_new(f->engine->search);
    pthread_mutex_unlock(&f->engine->lock);
    se_refit_run(r);
    pthread_mutex_lock(&f->engine->lock);
    se_refit_adopt(f->engine->search, r);
    pthread_mutex_unlock(&f->engine->lock);
}

static void refit_done(uv_work_t *work, int status)
{
    struct refit *f = work->data;
    struct tn_service *svc = f->c->svc;

    assert(tn_phase(svc)->works > 0);
    assert(f->c->refitting);
    (void)status;
    f->c->refitting = false;
    tn_phase(svc)->works--;
    tn_engine_unref(f->engine);
    free(f);
    tn_changed(svc);
}

static void start_refit(struct tn_campaign *campaign)
{
    struct refit *f = mem_alloc(sizeof(*f));

    assert(!campaign->refitting);
    f->work.data = f;
    f->c = campaign;
    f->engine = tn_engine_ref(campaign->engine);
    campaign->refitting = true;
    tn_phase(campaign->svc)->works++;
    uv_queue_work(tn_loop(campaign->svc), &f->work, refit_work, refit_done);
}

static void ask_done(uv_work_t *work, int status)
{
    struct ask *k = work->data;
    struct tn_campaign *c = k->c;
    struct tn_service *svc = c->svc;

    assert(tn_phase(svc)->works > 0);
    assert(c->asking);
    (void)status;
    c->asking = c->wanting = false;
    tn_phase(svc)->works--;
    tn_infer_store(svc, c->id, k->inferred, k->ninferred);
    if (k->want)
        take_answer(c, k);
    if (k->refit_due && !c->refitting && !tn_phase(svc)->closing)
        start_refit(c);
    tn_engine_unref(k->engine);
    free(k->inferred);
    free(k);
    if (tn_phase(svc)->closing)
        return;
    tn_sched_run(svc); /* now, not on the next turn: the machine is idle */
}

/* Tell the search what has ended and, if WANT, ask it for a trial that is not on clusters AVOID. */
static void start_ask(struct tn_campaign *campaign, bool want, unsigned avoid)
{
    struct ask *k = mem_alloc(sizeof(*k));

    assert(!campaign->asking);
    k->work.data = k;
    k->c = campaign;
    k->engine = tn_engine_ref(campaign->engine);
    k->tells = TAKE(campaign->tells);
    k->want = want;
    k->avoid = avoid;
    k->spent = spent(campaign);
    campaign->asking = true;
    campaign->wanting = want;
    if (want)
        campaign->avoided = avoid;
    if (k->tells)
        campaign->waiting = false;
    tn_phase(campaign->svc)->works++;
    uv_queue_work(tn_loop(campaign->svc), &k->work, ask_work, ask_done);
}

/* ---- turns --------------------------------------------------------------- */

static void pause_for(struct tn_campaign *campaign, const struct err *why)
{
    struct err e = {0};

    if (tn_campaign_change(campaign->svc, campaign->id, "running verifying", DB_PAUSED, why->text,
                           &e) < 0 &&
        e.code != -ESTALE) {
        tn_log_campaign(LOG_ERROR, campaign, " cannot be paused: %s", e.text);
        campaign->retry_at = tn_now_ms() + 1000;
    }
}

/* Does CAMPAIGN, whose turn comes before that of others, want the next cores that are free? */
static bool claims(const struct tn_campaign *campaign)
{
    const struct tn_trial *t = campaign->queue;

    return campaign->active_since &&
           (campaign->wanting || (t && t->no_room && tn_now_ms() - t->no_room > ROOM_MS));
}

static bool must_wait(const struct tn_campaign *campaign)
{
    const struct tn_launcher *l = campaign->engine->spec->launcher;

    for (const struct tn_campaign *o = tn_work(campaign->svc)->campaigns;
         l->shared && o != campaign; o = o->next)
        if (o->engine->spec->launcher == l && claims(o))
            return true;
    return false;
}

/* Is TRIAL the first of the queue on its cluster? Of one cluster, that is the head. */
static bool comes_first(const struct tn_trial *trial)
{
    const struct tn_trial *t = trial->campaign->queue;

    while (t->layout.cluster != trial->layout.cluster)
        t = t->next;
    return t == trial;
}

/* Add to TEXT what is missing where no room will come for TRIAL by itself. */
static void add_lack(struct str *text, const struct tn_trial *trial)
{
    const struct tn_launcher *launcher = trial->campaign->engine->spec->launcher;

    if (trial->no_room && launcher->lacks)
        launcher->lacks(text, trial);
}

/* Tell what the first trial waits for whose room does not come by itself. */
static void tell_await(struct tn_campaign *campaign)
{
    AUTO_STR text = {0};
    struct err e = {0};

    for (const struct tn_trial *t = campaign->queue; t && text.len == 0; t = t->next)
        if (comes_first(t))
            add_lack(&text, t);
    if (text.len > 0) {
        AUTO_FREE char *awaits = mem_printf(TN_AWAITS "%.200s", text.text);

        if (tn_campaign_await(campaign, awaits, &e) == 0)
            return;
    } else if (tn_campaign_await(campaign, "", &e) == 0) {
        return;
    }
    tn_log_campaign(LOG_ERROR, campaign, ": %s", e.text);
    campaign->retry_at = tn_now_ms() + 1000;
}

/* Start TRIAL of the queue, whose turn it is: true if that changed something. *RET_NO_ROOM: it
 * finds no room. */
static bool start_trial(bool *ret_no_room, struct tn_campaign *campaign, struct tn_trial *trial)
{
    struct tn_trial **at = &campaign->queue;
    uint64_t waited = trial->no_room;
    struct err e = {0};
    int r;

    while (*at != trial)
        at = &(*at)->next;
    *at = trial->next; /* from here on the attempt owns it: it may be back in the queue already */
    trial->next = NULL;
    trial->no_room = 0;
    r = tn_attempt_start(trial, &e);
    *ret_no_room = r == -EBUSY;
    if (r == 0)
        return true;
    trial->next = *at;
    *at = trial;
    if (r == -EBUSY) {
        trial->no_room = waited ? waited : tn_now_ms();
        return false;
    }
    if (r == -ENOSPC || r == -EIO || r == -EROFS) { /* the store: nothing was started, try again */
        tn_log_campaign(LOG_ERROR, campaign, ": trial %lld cannot start: %s", (long long)trial->n,
                        e.text);
        campaign->retry_at = tn_now_ms() + 1000;
        return false;
    }
    pause_for(campaign, &e);
    return true;
}

/* Start a trial of the queue, the first that finds room on its cluster: true if that changed
 * something. */
static bool start_queued(struct tn_campaign *campaign)
{
    bool changed = false, no_room = true;

    if (must_wait(campaign))
        return false;
    for (struct tn_trial *t = campaign->queue, *next; t && no_room; t = next) {
        assert(t->campaign == campaign);
        next = t->next;
        if (comes_first(t) && t->not_before <= tn_now_ms())
            changed = start_trial(&no_room, campaign, t);
    }
    if (strcmp(campaign->state, DB_PAUSED) != 0)
        tell_await(campaign);
    return changed;
}

/* May the search be asked for another trial? Not while one waits for room that will come; where
 * none will, for one that is on none of the clusters AVOID, those of trials that wait. */
static bool room(unsigned *ret_avoid, const struct tn_campaign *campaign)
{
    const struct tn_spec *s = campaign->engine->spec;

    *ret_avoid = 0;
    for (const struct tn_trial *t = campaign->queue; t; t = t->next) {
        AUTO_STR missing = {0};

        if (comes_first(t))
            add_lack(&missing, t);
        if (s->se.nclusters == 1 || (comes_first(t) && missing.len == 0))
            return false;
        *ret_avoid |= 1U << t->layout.cluster;
    }
    return campaign->open < s->se.parallel &&
           (!s->launcher->wanted || s->launcher->wanted(campaign));
}

/* Is the search at its end, with nothing left to wait for? What is queued when time is up is never
 * started. */
static bool at_end(const struct tn_campaign *campaign)
{
    return campaign->done && campaign->running == 0 && (!campaign->queue || spent(campaign) >= 1);
}

static bool run_step(struct tn_campaign *campaign)
{
    unsigned avoid;

    if (!campaign->done && budget_over(campaign))
        campaign->done = "budget";
    if (campaign->queue && !(campaign->done && spent(campaign) >= 1) && start_queued(campaign))
        return true;
    if (campaign->asking)
        return false;
    if (at_end(campaign)) {
        if (campaign->tells)
            start_ask(campaign, false, 0); /* the last outcomes, so that the answers know them */
        else
            finish(campaign);
        return false;
    }
    if (campaign->done || !room(&avoid, campaign) ||
        (campaign->waiting && avoid == campaign->avoided && !campaign->tells)) {
        if (campaign->tells)
            start_ask(campaign, false, 0);
        return false;
    }
    start_ask(campaign, true, avoid);
    return false;
}

static bool step(struct tn_campaign *campaign)
{
    if (campaign->retry_at > tn_now_ms())
        return false;
    if (!strcmp(campaign->state, DB_RUNNING))
        return run_step(campaign);
    if (!strcmp(campaign->state, DB_VERIFYING)) {
        if (campaign->queue)
            return start_queued(campaign);
        if (campaign->running == 0)
            tn_verify_step(campaign);
        return campaign->queue != NULL;
    }
    return false;
}

/* Before RIGHT: higher priority, then less used. */
static bool before(const struct tn_campaign *left, const struct tn_campaign *right)
{
    return left->priority != right->priority ? left->priority > right->priority
                                             : left->share < right->share;
}

static void sort(struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);
    struct tn_campaign *sorted = NULL;

    while (work->campaigns) {
        struct tn_campaign *c = work->campaigns, **at = &sorted;

        work->campaigns = c->next;
        while (*at && !before(c, *at))
            at = &(*at)->next;
        c->next = *at;
        *at = c;
    }
    work->campaigns = sorted;
}

void tn_sched_run(struct tn_service *svc)
{
    struct tn_phase *phase = tn_phase(svc);
    bool again = true;

    phase->kicked = false;
    if (phase->stopping || phase->closing || tn_reviving(svc, true) > 0)
        return;
    tn_campaign_unload_idle(svc);
    for (int turns = 0; again && turns < 10000; turns++) {
        again = false;
        sort(svc);
        for (struct tn_campaign *c = tn_work(svc)->campaigns; c && !again; c = c->next)
            again = step(c);
    }
    tn_campaign_unload_idle(svc);
}
