/*
 * Who may start what, when.
 *
 * Campaigns take turns by priority, then by the device-seconds that they have used while others
 * were there. A campaign starts the head of its queue if there is room for it; with an empty queue
 * and fewer open trials than `search.parallel` it asks its search, which happens in libuv's pool
 * together with telling it what has been settled since.
 *
 * While the next one in turn waits for more cores than are free, smaller trials of others go before
 * it, but not for ever: once it has waited for ROOM_MS, campaigns behind it start nothing on that
 * launcher until it has its cores. They also wait while it asks its search for the trial that it
 * will start, else the end of each of its trials would give their cores to whoever is next.
 */
#include <errno.h>
#include <math.h>

#include "tuner/internal.h"

enum { ROOM_MS = 10000 };

void tn_sched_kick(struct tn_service *svc)
{
    if (svc->kicked || svc->closing)
        return;
    svc->kicked = true;
    uv_async_send(&svc->wake);
}

/* ---- the end of a campaign ---- */

struct finish {
    const char *id, *reason;
};

static int finish_job(struct db *w, void *arg, struct err *e)
{
    struct finish *f = arg;
    int r = db_campaign_move(w, f->id, DB_RUNNING, DB_DONE, f->reason, clock_wall_ms(), e);

    if (r == 0)
        r = db_trial_cancel_queued(w, f->id, clock_wall_ms(), e);
    return r < 0 ? r : tn_event_campaign(w, f->id, e);
}

static void finish(struct tn_campaign *c)
{
    struct finish f = {c->id, c->done};
    struct err e = {0};

    if (tn_write(c->svc, finish_job, &f, &e) < 0) {
        log_error("campaign %s cannot end: %s", c->id, e.text);
        c->retry_at = tn_now_ms() + 1000;
        return;
    }
    log_info("campaign %s%s is done: %s", c->id, tn_simulated_mark(c->engine->spec->launcher),
             c->done);
    tn_campaign_clear_queue(c);
    tn_campaign_set_state(c, DB_DONE);
}

/* Share of the wall or device budget that is gone; the larger one. */
static double spent(const struct tn_campaign *c)
{
    const struct se_budget *b = &c->engine->spec->se.budget;
    double active =
        c->active_s + (c->active_since ? (double)(tn_now_ms() - c->active_since) / 1000.0 : 0);
    double wall = b->wall_s > 0 ? active / b->wall_s : 0;
    double device = b->device_s > 0 ? c->device_s / b->device_s : 0;

    return wall > device ? wall : device;
}

static bool budget_over(const struct tn_campaign *c)
{
    int trials = c->engine->spec->se.budget.trials;

    return (trials > 0 && c->asked >= trials) || spent(c) >= 1;
}

/* ---- asking, in libuv's pool ---- */

struct ask {
    uv_work_t work;
    struct tn_campaign *c;
    struct tn_engine *engine;
    struct tn_tell *tells;
    bool want, refit_due;
    double spent;
    enum se_answer answer;
    struct se_trial trial;
    int64_t repeat_of; /* trial number, or DB_NULL */
    char reason[64];
};

static void tell_all(struct ask *k)
{
    while (k->tells) {
        struct tn_tell *t = k->tells;
        struct err e = {0};

        k->tells = t->next;
        if (se_tell(k->engine->search, t->id, &t->outcome, &e) < 0)
            log_warn("campaign %s: the search refuses the outcome of %d: %s", k->c->id, t->id,
                     e.text);
        free(t);
    }
}

static void ask_work(uv_work_t *w)
{
    struct ask *k = w->data;

    pthread_mutex_lock(&k->engine->lock);
    tell_all(k);
    se_spent(k->engine->search, k->spent);
    k->repeat_of = DB_NULL;
    if (k->want) {
        k->answer = se_ask(k->engine->search, &k->trial);
        if (k->answer == SE_DONE)
            snprintf(k->reason, sizeof(k->reason), "%s", se_done_reason(k->engine->search));
        if (k->answer == SE_TRIAL && k->trial.repeat_of > 0 && k->trial.repeat_of <= k->engine->ids)
            k->repeat_of = k->engine->n_of[k->trial.repeat_of];
    }
    k->refit_due = se_refit_due(k->engine->search);
    pthread_mutex_unlock(&k->engine->lock);
}

struct addition {
    struct db_trial row;
    int64_t n;
};

static int add_job(struct db *w, void *arg, struct err *e)
{
    struct addition *ad = arg;
    int r = db_trial_add(w, &ad->row, &ad->n, e);

    if (r == 0)
        r = tn_event_trial(w, ad->row.campaign, ad->n, e);
    return r;
}

static int add_trial(struct tn_campaign *c, const struct se_trial *st, int64_t repeat_of,
                     const char *kind, int64_t *ret_n, struct err *e)
{
    AUTO_JSON *layout = pl_layout_json(&st->layout);
    AUTO_FREE char *json = jx_dump(layout);
    char text[160];
    struct addition ad;
    struct db_trial *t = &ad.row;
    int r;

    db_trial_blank(t);
    t->campaign = c->id;
    t->kind = kind;
    t->repeat_of = repeat_of;
    t->search_id = st->id > 0 ? st->id : DB_NULL;
    t->layout = json;
    t->layout_text = pl_layout_text(text, &st->layout);
    t->why = st->why;
    if (st->predicted.tokens_per_s > 0)
        t->predicted_tokens_per_s = st->predicted.tokens_per_s;
    if (st->predicted.memory_bytes > 0)
        t->predicted_memory = st->predicted.memory_bytes;
    t->predicted_fits = st->predicted.p_fits;
    t->created = clock_wall_ms();
    r = tn_write(c->svc, add_job, &ad, e);

    if (r < 0)
        return r;
    tn_campaign_enqueue(c, tn_trial_new(&ad.row, &st->layout));
    *ret_n = ad.n;
    return 0;
}

int tn_trial_add(struct tn_campaign *c, const struct pl_layout *l, int64_t repeat_of,
                 const char *kind, const char *why, int64_t *ret_n, struct err *e)
{
    struct se_trial st = {.layout = *l, .predicted = {.p_fits = NAN}};

    snprintf(st.why, sizeof(st.why), "%s", why);
    return add_trial(c, &st, repeat_of, kind, ret_n, e);
}

/* The search gave a trial that could not be stored: give it back. */
static void give_back(struct tn_campaign *c, const struct se_trial *st, const struct err *e)
{
    struct tn_tell *t = mem_alloc(sizeof(*t));

    *t = (struct tn_tell){.next = c->tells, .id = st->id, .outcome = {.status = SE_DISCARD}};
    c->tells = t;
    c->retry_at = tn_now_ms() + 1000;
    if (e->code != -ESTALE)
        log_error("campaign %s cannot add a trial: %s", c->id, e->text);
}

static void take_answer(struct tn_campaign *c, const struct ask *k)
{
    struct err e = {0};
    int64_t n;

    if (k->answer == SE_WAIT) {
        c->waiting = true;
        return;
    }
    if (k->answer == SE_DONE) {
        c->done = !strcmp(k->reason, "converged") ? "converged"
                  : !strcmp(k->reason, "budget")  ? "budget"
                                                  : "exhausted";
        return;
    }
    if (add_trial(c, &k->trial, k->repeat_of, k->repeat_of == DB_NULL ? "search" : "repeat", &n,
                  &e) < 0) {
        give_back(c, &k->trial, &e);
        return;
    }
    pthread_mutex_lock(&c->engine->lock);
    tn_engine_name(c->engine, k->trial.id, n);
    pthread_mutex_unlock(&c->engine->lock);
    c->open++;
    c->asked++;
}

/* ---- refitting beside it ---- */

struct refit {
    uv_work_t work;
    struct tn_campaign *c;
    struct tn_engine *engine;
};

static void refit_work(uv_work_t *w)
{
    struct refit *f = w->data;
    struct se_refit *r;

    pthread_mutex_lock(&f->engine->lock);
    r = se_refit_new(f->engine->search);
    pthread_mutex_unlock(&f->engine->lock);
    se_refit_run(r);
    pthread_mutex_lock(&f->engine->lock);
    se_refit_adopt(f->engine->search, r);
    pthread_mutex_unlock(&f->engine->lock);
}

static void refit_done(uv_work_t *w, int status)
{
    struct refit *f = w->data;
    struct tn_service *svc = f->c->svc;

    (void)status;
    f->c->refitting = false;
    svc->works--;
    tn_engine_unref(f->engine);
    free(f);
    tn_sched_kick(svc);
}

static void start_refit(struct tn_campaign *c)
{
    struct refit *f = mem_alloc(sizeof(*f));

    f->work.data = f;
    f->c = c;
    f->engine = tn_engine_ref(c->engine);
    c->refitting = true;
    c->svc->works++;
    uv_queue_work(c->svc->loop, &f->work, refit_work, refit_done);
}

static void ask_done(uv_work_t *w, int status)
{
    struct ask *k = w->data;
    struct tn_campaign *c = k->c;
    struct tn_service *svc = c->svc;

    (void)status;
    c->asking = c->wanting = false;
    svc->works--;
    if (k->want)
        take_answer(c, k);
    if (k->refit_due && !c->refitting && !svc->closing)
        start_refit(c);
    tn_engine_unref(k->engine);
    free(k);
    if (svc->closing)
        return;
    tn_sched_run(svc); /* now, not on the next turn: the machine is idle */
}

static void start_ask(struct tn_campaign *c, bool want)
{
    struct ask *k = mem_alloc(sizeof(*k));

    k->work.data = k;
    k->c = c;
    k->engine = tn_engine_ref(c->engine);
    k->tells = TAKE(c->tells);
    k->want = want;
    k->spent = spent(c);
    c->asking = true;
    c->wanting = want;
    if (k->tells)
        c->waiting = false;
    c->svc->works++;
    uv_queue_work(c->svc->loop, &k->work, ask_work, ask_done);
}

/* ---- turns ---- */

static void pause_for(struct tn_campaign *c, const struct err *why)
{
    struct err e = {0};

    if (tn_campaign_change(c->svc, c->id, "running verifying", DB_PAUSED, why->text, &e) < 0 &&
        e.code != -ESTALE) {
        log_error("campaign %s cannot be paused: %s", c->id, e.text);
        c->retry_at = tn_now_ms() + 1000;
    }
}

/* Does C, whose turn comes before that of others, want the next cores that are free? */
static bool claims(const struct tn_campaign *c)
{
    const struct tn_trial *t = c->queue;

    return c->active_since &&
           (c->wanting || (t && t->no_room && tn_now_ms() - t->no_room > ROOM_MS));
}

static bool must_wait(const struct tn_campaign *c)
{
    const struct tn_launcher *l = c->engine->spec->launcher;

    for (const struct tn_campaign *o = c->svc->campaigns; l->shared && o != c; o = o->next)
        if (o->engine->spec->launcher == l && claims(o))
            return true;
    return false;
}

/* Start the head of the queue: true if that changed something. */
static bool start_head(struct tn_campaign *c)
{
    struct tn_trial *t = c->queue;
    struct err e = {0};
    uint64_t waited;
    int r;

    if (t->not_before > tn_now_ms() || must_wait(c))
        return false;
    c->queue = t->next; /* from here on the attempt owns it: it may be back in the queue already */
    t->next = NULL;
    waited = t->no_room;
    t->no_room = 0;
    r = tn_attempt_start(t, &e);
    if (r < 0) {
        t->next = c->queue;
        c->queue = t;
    }
    if (r == -EBUSY) {
        t->no_room = waited ? waited : tn_now_ms();
        return false;
    }
    if (r < 0 && (r == -ENOSPC || r == -EIO ||
                  r == -EROFS)) { /* the store: nothing was started, try again */
        log_error("campaign %s: trial %lld cannot start: %s", c->id, (long long)t->n, e.text);
        c->retry_at = tn_now_ms() + 1000;
        return false;
    }
    if (r < 0)
        pause_for(c, &e);
    return true;
}

/* Is the search at its end, with nothing left to wait for? What is queued when time is up is never
 * started. */
static bool at_end(const struct tn_campaign *c)
{
    return c->done && c->running == 0 && (!c->queue || spent(c) >= 1);
}

static bool run_step(struct tn_campaign *c)
{
    const struct tn_spec *s = c->engine->spec;
    bool room =
        !c->queue && c->open < s->se.parallel && (!s->launcher->wanted || s->launcher->wanted(c));

    if (!c->done && budget_over(c))
        c->done = "budget";
    if (c->queue && !(c->done && spent(c) >= 1) && start_head(c))
        return true;
    if (c->asking)
        return false;
    if (at_end(c)) {
        if (c->tells)
            start_ask(c, false); /* the last outcomes, so that the answers know them */
        else
            finish(c);
        return false;
    }
    if (c->done || !room || (c->waiting && !c->tells)) {
        if (c->tells)
            start_ask(c, false);
        return false;
    }
    start_ask(c, true);
    return false;
}

static bool step(struct tn_campaign *c)
{
    if (c->retry_at > tn_now_ms())
        return false;
    if (!strcmp(c->state, DB_RUNNING))
        return run_step(c);
    if (!strcmp(c->state, DB_VERIFYING)) {
        if (c->queue)
            return start_head(c);
        if (c->running == 0)
            tn_verify_step(c);
        return c->queue != NULL;
    }
    return false;
}

/* Before B: higher priority, then less used. */
static bool before(const struct tn_campaign *a, const struct tn_campaign *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->share < b->share;
}

static void sort(struct tn_service *svc)
{
    struct tn_campaign *sorted = NULL;

    while (svc->campaigns) {
        struct tn_campaign *c = svc->campaigns, **at = &sorted;

        svc->campaigns = c->next;
        while (*at && !before(c, *at))
            at = &(*at)->next;
        c->next = *at;
        *at = c;
    }
    svc->campaigns = sorted;
}

void tn_sched_run(struct tn_service *svc)
{
    bool again = true;

    svc->kicked = false;
    if (svc->stopping || svc->closing || tn_reviving(svc, true) > 0)
        return;
    tn_campaign_unload_idle(svc);
    for (int turns = 0; again && turns < 10000; turns++) {
        again = false;
        sort(svc);
        for (struct tn_campaign *c = svc->campaigns; c && !again; c = c->next)
            again = step(c);
    }
    tn_campaign_unload_idle(svc);
}
