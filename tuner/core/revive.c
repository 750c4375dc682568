/*
 * A stored campaign comes back to work: its search is rebuilt by replaying its trials, its queued
 * trials are queued, its attempts adopted or settled.
 *
 * That takes a moment, except for a search over many layouts, and one that earlier campaigns inform
 * (search.warm_start): it fits those first. Either may take seconds, so it is built on a thread of
 * its own, BUILDERS of them at a time, and a new campaign over many layouts begins so, too. These
 * threads have low priority, and what they start inherits it: a client that asks the daemon for
 * something meanwhile comes first. libuv's pool would not do: its threads cannot take back a
 * priority that they gave away, and other campaigns' trials wait for them. Until then the campaign
 * is what its row says and not in memory; requests that need it there are refused for the moment.
 * At the start nothing is launched until all are back, since they may hold cores, and /readyz says
 * so.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/revive.h"
#include "tuner/core/spec.h"
#include "tuner/core/verify.h"
#include "tuner/core/work.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"
#include "tuner/tuner.h"

struct tn_revival {
    struct tn_revival *next;
    uv_async_t built;
    pthread_t thread;
    bool begun;
    bool joined; /* there is no thread to wait for */
    struct tn_service *svc;
    char id[TN_ID_TEXT];
    bool at_start;
    struct tn_engine *engine;
    struct tn_space space; /* counted whole, where it was not and there was time */
    struct err why;        /* there is none */
};

/* Searches over more layouts are built in the background. */
enum { MANY = 5000 };

enum { BUILDERS = 4, NICE = 10 };

/* Seconds that counting a space may take, over which its campaign waits. */
static const double COUNT_S = 5;

bool tn_campaign_reviving(const struct tn_service *svc, const char *id)
{
    for (const struct tn_revival *v = tn_work(svc)->revivals; v; v = v->next)
        if (!strcmp(v->id, id))
            return true;
    return false;
}

int tn_reviving(const struct tn_service *svc, bool at_start)
{
    int n = 0;

    for (const struct tn_revival *v = tn_work(svc)->revivals; v; v = v->next)
        n += !at_start || v->at_start;
    return n;
}

int tn_campaign_is_back(const struct tn_service *svc, const char *id, struct err *error)
{
    if (!tn_campaign_reviving(svc, id))
        return 0;
    return err_set(error, -EAGAIN, "campaign %s is being restored; try again in a moment", id);
}

/* Queued trials join the queue; open ones are counted. */
static int take_trials(struct tn_campaign *campaign, const char *state, bool queue,
                       struct err *error)
{
    struct arena a = {0};
    struct db_filter f = {.state = state, .limit = 100000};
    struct db_trial *t = NULL;
    int n = 0;
    int64_t total;
    int r = db_trial_list(&t, &n, &total, tn_db(campaign->svc), &a, campaign->id, &f, error);

    for (int i = 0; r == 0 && i < n; i++) {
        struct tn_trial *trial = NULL;

        campaign->open += strcmp(t[i].kind, "verify") != 0;
        if (queue && (r = tn_trial_read(&trial, &t[i], campaign->engine, error)) == 0)
            tn_campaign_enqueue(campaign, trial);
    }
    arena_done(&a);
    return r;
}

static int join(struct tn_service *svc, const struct db_campaign *row, struct tn_engine *owned_en,
                struct err *error)
{
    struct tn_campaign *c = tn_campaign_load(svc, row, owned_en);
    int r = take_trials(c, "queued", true, error);

    if (r == 0)
        r = take_trials(c, "starting", false, error);
    if (r == 0)
        r = take_trials(c, "running", false, error);
    return r;
}

static int restore_verify(struct tn_campaign *campaign, const struct db_campaign *row,
                          struct err *error)
{
    if (!row->verify || !strstr(row->verify, "\"state\":\"running\""))
        return 0;
    return tn_verify_restore(campaign, row, error);
}

void tn_campaign_give_up(struct tn_service *svc, const struct db_campaign *row,
                         const struct err *why)
{
    struct err e = {0};

    tn_log_id(LOG_ERROR, svc, row->id, " cannot be searched: %s", why->text);
    if (strcmp(row->state, DB_PAUSED) != 0 &&
        tn_campaign_change(svc, row->id, "running verifying", DB_PAUSED, why->text, &e) < 0)
        tn_log_id(LOG_ERROR, svc, row->id, ": %s", e.text);
}

/* ---- in the background --------------------------------------------------- */

/* What the campaign's row says of its space. */
static struct tn_space known_space(const struct db_campaign *row)
{
    AUTO_JSON *v = json_loads(row->space ? row->space : "{}", 0, NULL);
    const json_t *exact = json_object_get(v, "exact");

    return (struct tn_space){
        .legal = (size_t)json_integer_value(json_object_get(v, "legal")),
        .fitting = (size_t)json_integer_value(json_object_get(v, "fitting")),
        .exact = !exact || json_is_true(exact), /* it was always, before it was said */
    };
}

/* Count a space that could not be counted while somebody waited. */
static void count_space(struct tn_revival *revival)
{
    struct tn_patience patience;
    struct tn_space space;

    assert(!revival->space.exact);
    tn_patience_start(&patience, COUNT_S, &tn_phase(revival->svc)->ending);
    tn_space_count(&space, revival->engine->spec, &patience.plan);
    if (space.exact || space.legal > revival->space.legal)
        revival->space = space;
}

static void *build(void *arg)
{
    struct tn_revival *v = arg;

    if (tn_engine_rebuild_from_file(&v->engine, v->svc, v->id, true, &tn_phase(v->svc)->ending,
                                    &v->why) == 0 &&
        !v->space.exact)
        count_space(v);
    uv_async_send(&v->built);
    return NULL;
}

static void *build_main(void *arg)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* Linux: of this thread */
    return build(arg);
}

struct prepared {
    const char *id;
    char *space;
};

static int prepared_job(struct db *writer, void *arg, struct err *error)
{
    struct prepared *x = arg;
    int r = db_campaign_set_space(writer, x->id, x->space, error);

    return r < 0 ? r : tn_event_campaign(writer, x->id, error);
}

/* The campaign no longer waits for its search. */
static int say_prepared(struct tn_revival *revival, const struct db_campaign *row,
                        const struct tn_spec *spec, struct err *error)
{
    AUTO_JSON *space = tn_space_json(&revival->space, spec);
    AUTO_FREE char *text = jx_dump(space);
    struct prepared x = {row->id, text};

    if (!str_eq(row->reason, TN_PREPARING))
        return 0;
    tn_log_id(LOG_INFO, revival->svc, row->id, " is prepared: legal=%s%zu",
              revival->space.exact ? "" : ">=", revival->space.legal);
    return tn_write(revival->svc, prepared_job, &x, error);
}

/* Its row is read again: it may have been paused or cancelled meanwhile. */
static void come_back(struct tn_revival *revival)
{
    struct tn_service *svc = revival->svc;
    struct arena a = {0};
    struct db_campaign row;
    int r = db_campaign_get(&row, tn_db(svc), &a, revival->id, &revival->why);

    if (r == 0 && revival->engine) {
        r = say_prepared(revival, &row, revival->engine->spec, &revival->why);
        if (r == 0)
            r = join(svc, &row, TAKE(revival->engine), &revival->why);
        if (r == 0)
            r = restore_verify(tn_campaign_find(svc, revival->id), &row, &revival->why);
        if (r < 0)
            tn_campaign_give_up(svc, &row, &revival->why);
    } else if (r == 0) {
        tn_campaign_give_up(svc, &row, &revival->why);
    }
    arena_done(&a);
    tn_recover_attempts(svc, revival->id);
    for (struct tn_attempt *at = tn_work(svc)->attempts; tn_phase(svc)->stopping && at;
         at = at->next)
        if (tn_phase(svc)->stop_how == TN_STOP_REQUEUE && !strcmp(at->campaign->id, revival->id))
            tn_attempt_stop(at, TN_STOP_SERVICE);
}

/* The oldest that waits, while fewer than BUILDERS are in work. */
static void begin_next(struct tn_service *svc)
{
    struct tn_revival *oldest = NULL;
    sigset_t all, before;
    int busy = 0;

    for (struct tn_revival *v = tn_work(svc)->revivals; v; v = v->next) {
        busy += v->begun;
        if (!v->begun)
            oldest = v; /* new ones are put first */
    }
    if (!oldest || busy >= BUILDERS)
        return;
    assert(busy < BUILDERS && !oldest->begun);
    oldest->begun = true;
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    oldest->joined = pthread_create(&oldest->thread, NULL, build_main, oldest) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (oldest->joined)
        build(oldest); /* no more threads to be had */
}

static void on_closed(uv_handle_t *handle)
{
    struct tn_revival *v = handle->data;
    struct tn_service *svc = v->svc;

    assert(tn_phase(svc)->works > 0);
    free(v);
    tn_phase(svc)->works--;
    tn_changed(svc);
}

static void on_built(uv_async_t *handle)
{
    struct tn_revival *v = handle->data, **at = &tn_work(v->svc)->revivals;
    struct tn_service *svc = v->svc;

    if (!v->joined)
        pthread_join(v->thread, NULL);
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    if (!tn_phase(svc)->closing && (v->engine || !atomic_load(&tn_phase(svc)->ending)))
        come_back(v);
    tn_engine_unref(v->engine);
    uv_close((uv_handle_t *)handle, on_closed);
    begin_next(svc);
    tn_changed(svc);
}

static void revive_async(struct tn_service *svc, const char *id, struct tn_space space,
                         bool at_start)
{
    struct tn_revival *v = mem_alloc(sizeof(*v));

    assert(!tn_campaign_reviving(svc, id));
    *v = (struct tn_revival){
        .next = tn_work(svc)->revivals, .svc = svc, .space = space, .at_start = at_start};
    v->built.data = v;
    snprintf(v->id, sizeof(v->id), "%s", id);
    tn_work(svc)->revivals = v;
    tn_phase(svc)->works++;
    uv_async_init(tn_loop(svc), &v->built, on_built);
    begin_next(svc);
}

void tn_campaign_prepare(struct tn_service *svc, const char *id, struct tn_space space)
{
    revive_async(svc, id, space, false);
}

/* ---- at once, or in the background --------------------------------------- */

static bool is_informed(const struct db_campaign *row)
{
    AUTO_JSON *v = json_loads(row->resolved, 0, NULL);

    return json_array_size(json_object_get(json_object_get(v, "search"), "warm_start")) > 0;
}

int tn_campaign_revive(struct tn_service *svc, const struct db_campaign *row, bool at_start,
                       struct err *error)
{
    struct tn_campaign *c = tn_campaign_find(svc, row->id);
    struct tn_space space = known_space(row);
    struct tn_engine *en = NULL;
    int r = 0;

    if (!c && (is_informed(row) || space.legal > MANY || !space.exact)) {
        revive_async(svc, row->id, space, at_start);
        return 0;
    }
    if (c) {
        tn_campaign_set_state(c, row->state);
    } else {
        r = tn_engine_rebuild(&en, svc, tn_db(svc), row->id, true, &tn_phase(svc)->ending, error);
        if (r == 0)
            r = join(svc, row, en, error);
    }
    if (r == 0)
        r = restore_verify(tn_campaign_find(svc, row->id), row, error);
    tn_changed(svc);
    return r;
}
