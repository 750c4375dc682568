/*
 * One launch of a trial.
 *
 *     reserve -> folder, files -> committed as `starting` -> launched -> events ... -> last process
 * gone -> settled
 *
 * Nothing is launched before the commit, and a former daemon's attempt is taken over or settled, so
 * an attempt that was committed is settled exactly once, by whichever daemon lives then.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "tuner/core/attempt.h"
#include "tuner/core/campaign.h"
#include "tuner/core/engine.h"
#include "tuner/core/keep.h"
#include "tuner/core/launcher.h"
#include "tuner/core/spec.h"
#include "tuner/core/trainer.h"
#include "tuner/core/work.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/proc.h"
#include "tuner/machine/slots.h"
#include "tuner/output/observe.h"
#include "tuner/results/view.h"
#include "tuner/state/state.h"

enum { TICK_MS = 100, STEP_EVENT_MS = 500, READ_BUDGET = 1 << 20 };

/* ---- steps on their way into the database -------------------------------- */

struct batch_step {
    int64_t n;
    double ms;
    char *data;
};

struct tn_batch {
    struct tn_service *svc;
    char campaign[TN_ID_TEXT];
    int64_t n, attempt, offset;
    struct batch_step *step;
    int count, cap;
    char *event;   /* the step that subscribers get, or NULL */
    char *planned; /* memory, or NULL */
    bool running;  /* the trial said hello */
};

static void batch_free(void *arg)
{
    struct tn_batch *b = arg;

    for (int i = 0; i < b->count; i++)
        free(b->step[i].data);
    tn_events_ready(b->svc);
    free(b->step);
    free(b->event);
    free(b->planned);
    free(b);
}

static int batch_job(struct db *writer, void *arg, struct err *error)
{
    struct tn_batch *b = arg;
    int64_t id;
    int r = db_attempt_progress(writer, b->campaign, b->n, b->attempt, b->offset, error);

    for (int i = 0; r == 0 && i < b->count; i++)
        r = db_step_add(writer, b->campaign, b->n,
                        &(struct db_step){b->attempt, b->step[i].n, b->step[i].ms, b->step[i].data},
                        error);
    if (r == 0 && b->planned)
        r = db_trial_planned(writer, b->campaign, b->n, b->planned, error);
    if (r == 0 && b->running && db_trial_run(writer, b->campaign, b->n, NULL) == 0)
        r = tn_event_trial(writer, b->campaign, b->n, error);
    if (r == 0 && b->event)
        r = db_event_add(&id, writer,
                         &(struct db_event){.campaign = b->campaign,
                                            .trial = b->n,
                                            .kind = "step",
                                            .data = b->event,
                                            .t = clock_wall_ms()},
                         error);
    return r;
}

static struct tn_batch *batch_of(struct tn_attempt *attempt)
{
    if (!attempt->batch) {
        attempt->batch = mem_alloc(sizeof(*attempt->batch));
        attempt->batch->svc = attempt->svc;
        snprintf(attempt->batch->campaign, sizeof(attempt->batch->campaign), "%s",
                 attempt->campaign->id);
        attempt->batch->n = attempt->trial->n;
        attempt->batch->attempt = attempt->number;
    }
    return attempt->batch;
}

/* ---- reading events ------------------------------------------------------ */

static void take_step(struct tn_attempt *attempt, const char *text, const struct tn_step_line *line)
{
    struct tn_batch *b = batch_of(attempt);
    uint64_t now = tn_now_ms();

    if (attempt->seen.steps > TN_MAX_STEPS)
        return;
    MEM_GROW(b->step, b->count, b->cap);
    b->step[b->count++] = (struct batch_step){line->n, line->ms, mem_strdup(text)};
    if (now - attempt->last_step_event < STEP_EVENT_MS)
        return;
    attempt->last_step_event = now;
    free(b->event);
    b->event = mem_printf("{\"campaign\":\"%s\",\"n\":%lld,\"simulated\":%s,\"step\":%s}",
                          attempt->campaign->id, (long long)attempt->trial->n,
                          tn_is_simulated(attempt->launcher->name) ? "true" : "false", text);
}

struct reading {
    struct tn_attempt *a;
    enum tn_stream stream;
};

static void take_line(void *ctx, const char *text, size_t len, int64_t end)
{
    const struct reading *reading = ctx;
    struct tn_attempt *a = reading->a;
    bool had_plan = a->seen.planned != NULL;
    struct tn_step_line step = {0};
    enum tn_line kind = a->trainer->line(&step, a, reading->stream, text, len);
    AUTO_FREE char *json = step.json;

    if (kind == TN_LINE_NOTHING)
        return;
    a->last_event = tn_now_ms();
    /* What a former daemon stored is read only to know what it says. Of the other streams no offset
     * is kept: a step that is stored is not stored again. */
    if (reading->stream == TN_EVENTS && end <= a->stored)
        return;
    if (kind == TN_LINE_STEP)
        take_step(a, json ? json : text, &step);
    if (!had_plan && a->seen.planned && !a->trial->fidelity) {
        free(batch_of(a)->planned);
        batch_of(a)->planned = jx_dump(a->seen.planned);
    }
    if (!a->run_recorded) {
        a->run_recorded = true;
        batch_of(a)->running = true;
    }
    if (reading->stream == TN_EVENTS)
        a->stored = end;
    batch_of(a)->offset = a->stored;
}

static void read_stream(struct tn_attempt *attempt, enum tn_stream stream, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", attempt->folder, name);
    struct reading reading = {attempt, stream};

    attempt->reader[stream].returns = stream != TN_EVENTS;
    /* At the end everything is read; while it runs, a flood waits for the next tick. */
    while (tn_reader_poll(&attempt->reader[stream], path, READ_BUDGET, take_line, &reading) &&
           attempt->ended)
        ;
}

void tn_attempt_read(struct tn_attempt *attempt)
{
    const char *name = attempt->trainer->results_of ? attempt->trainer->results_of(attempt)
                                                    : attempt->trainer->results;

    if (name)
        read_stream(attempt, TN_EVENTS, name);
    if (attempt->trainer->logs) {
        read_stream(attempt, TN_STDOUT, "stdout");
        read_stream(attempt, TN_STDERR, "stderr");
    }
    if (attempt->batch)
        db_writer_post(tn_writer(attempt->svc), batch_job, TAKE(attempt->batch), batch_free);
}

/* ---- life of the struct -------------------------------------------------- */

static void attempt_free(struct tn_attempt *attempt)
{
    struct tn_attempt **at = &tn_work(attempt->svc)->attempts;

    assert(attempt->handles == 0);
    while (*at && *at != attempt)
        at = &(*at)->next;
    if (*at)
        *at = attempt->next;
    tn_seen_done(&attempt->seen);
    for (int i = 0; i < TN_STREAMS; i++)
        tn_reader_done(&attempt->reader[i]);
    free(attempt->launch);
    free(attempt->trial);
    free(attempt->folder);
    free(attempt->relative);
    free(attempt);
}

void tn_attempt_closed(uv_handle_t *handle)
{
    struct tn_attempt *a = handle->data;

    assert(a->handles > 0);
    if (--a->handles == 0)
        attempt_free(a);
}

static void close_handles(struct tn_attempt *attempt)
{
    if (attempt->handles == 0) {
        attempt_free(attempt);
        return;
    }
    if (!uv_is_closing((uv_handle_t *)&attempt->tick))
        uv_close((uv_handle_t *)&attempt->tick, tn_attempt_closed);
    if (attempt->launcher->close)
        attempt->launcher->close(attempt);
}

void tn_attempt_abandon(struct tn_attempt *attempt)
{
    tn_attempt_read(attempt);
    close_handles(attempt);
}

static struct tn_attempt *attempt_new(struct tn_trial *trial, int64_t number)
{
    struct tn_campaign *c = trial->campaign;
    struct tn_spec *s = c->engine->spec;
    struct tn_attempt *a = mem_alloc(sizeof(*a));

    assert(number > 0);
    assert(trial->n > 0);
    a->svc = c->svc;
    a->campaign = c;
    a->trial = trial;
    a->launcher = s->launcher;
    a->trainer = s->trainer;
    a->number = number;
    a->limits = pl_fidelity_limits(&s->se.limits,
                                   trial->fidelity ? &s->se.fidelity[trial->fidelity - 1] : NULL);
    if (!strcmp(trial->kind, "verify") && c->verify.steps > 0)
        a->limits.min_steps = a->limits.max_steps = c->verify.steps;
    a->relative =
        mem_printf("campaigns/%s/trials/%lld/%lld", c->id, (long long)trial->n, (long long)number);
    a->folder = mem_printf("%s/%s", tn_data_dir(c->svc), a->relative);
    snprintf(a->mark, sizeof(a->mark), "%s/%s/%lld/%lld", tn_instance(c->svc), c->id,
             (long long)trial->n, (long long)number);
    a->bound = NAN;
    a->launch = mem_alloc(s->launcher->state ? s->launcher->state : 1);
    tn_seen_init(&a->seen);
    for (int i = 0; i < TN_STREAMS; i++)
        tn_reader_init(&a->reader[i]);
    a->started = a->last_event = tn_now_ms();
    return a;
}

/* ---- the clock ----------------------------------------------------------- */

/* Throughput of a trial that was stopped is at most what its median step says, or one step in all
 * its time. */
static double bound_so_far(const struct tn_attempt *attempt)
{
    double ms = tn_seen_median_ms(&attempt->seen);

    if (isnan(ms))
        ms = (double)(tn_now_ms() - attempt->started);
    return ms > 0 ? tn_trial_tokens(attempt->trial) * 1000.0 / ms : NAN;
}

static void check_silence(struct tn_attempt *attempt, uint64_t now)
{
    const struct tn_config *settings = tn_settings(attempt->svc);
    double median = tn_seen_median_ms(&attempt->seen);
    double allowed = 1000.0 * (settings->hang_s > 0 ? settings->hang_s : 60);

    bool failing = attempt->seen.error || attempt->seen.hang[0] ||
                   attempt->log.suspect; /* one rank has died, the others wait for it */

    if ((attempt->seen.steps == 0 && !failing) || attempt->seen.summary)
        return;
    if (!isnan(median) && 10 * median > allowed)
        allowed = 10 * median;
    if ((double)(now - attempt->last_event) > allowed) {
        snprintf(attempt->trouble, sizeof(attempt->trouble),
                 "no event for %.1f s after step %d%s%s",
                 (double)(now - attempt->last_event) / 1000.0, attempt->seen.steps,
                 attempt->seen.hang[0] ? ": " : "", attempt->seen.hang);
        tn_attempt_stop(attempt, TN_STOP_HANG);
    }
}

/* A trial that cannot beat the incumbent any more is not worth its time, unless all its steps are
 * done. Skipped while the search is busy. */
static void check_prospects(struct tn_attempt *attempt)
{
    struct tn_engine *en = attempt->campaign->engine;
    const struct tn_seen *s = &attempt->seen;
    double mean, variance, rate, max = NAN;

    if (strcmp(attempt->trial->kind, "search") != 0 || attempt->trial->search_id == DB_NULL ||
        s->measured < 3 || s->measured >= attempt->limits.max_steps || s->summary ||
        !strcmp(attempt->campaign->state, DB_VERIFYING) || pthread_mutex_trylock(&en->lock) != 0)
        return;
    mean = s->sum / s->measured;
    variance = (s->sum2 - s->sum * mean) / (s->measured - 1);
    rate = tn_trial_tokens(attempt->trial) * 1000.0 / mean;
    /* d rate / rate = - d mean / mean */
    if (!se_can_win(&max, en->search, (int)attempt->trial->search_id, rate,
                    rate * sqrt((variance > 0 ? variance : 0) / s->measured) / mean, s->measured)) {
        attempt->bound = max;
        snprintf(attempt->trouble, sizeof(attempt->trouble),
                 "cannot win: at most %.0f tokens/s after %d steps", max, s->measured);
    }
    pthread_mutex_unlock(&en->lock);
    if (!isnan(attempt->bound))
        tn_attempt_stop(attempt, TN_STOP_PRUNED);
}

static void retry_settle(struct tn_attempt *attempt)
{
    struct err e = {0};

    if (tn_settle(attempt, &e) == 0) {
        close_handles(attempt);
        return;
    }
    tn_log_attempt(LOG_ERROR, attempt, " cannot be settled: %s", e.text);
    uv_timer_start(&attempt->tick, attempt->tick.timer_cb, 1000, 0);
}

static void on_tick(uv_timer_t *timer)
{
    struct tn_attempt *a = timer->data;
    int steps = a->seen.measured;
    uint64_t now;

    if (a->ended) {
        retry_settle(a);
        return;
    }
    tn_attempt_read(a);
    if (a->launcher->tick)
        a->launcher->tick(a);
    if (a->trainer->tick && !a->ended)
        a->trainer->tick(a);
    if (a->ended || a->stop != TN_STOP_NONE)
        return;
    now = tn_now_ms();
    if ((double)(now - a->started) > 1000.0 * a->limits.timeout_s) {
        snprintf(a->trouble, sizeof(a->trouble), "not finished after %.1f s%s%s",
                 a->limits.timeout_s, a->seen.hang[0] ? ": " : "", a->seen.hang);
        a->bound = bound_so_far(a);
        tn_attempt_stop(a, TN_STOP_TIMEOUT);
        return;
    }
    check_silence(a, now);
    if (a->stop == TN_STOP_NONE && a->seen.measured > steps)
        check_prospects(a);
}

void tn_attempt_tick_in(struct tn_attempt *attempt, uint64_t ms)
{
    uv_timer_start(&attempt->tick, on_tick, ms < TICK_MS ? ms : TICK_MS, TICK_MS);
}

static void watch(struct tn_attempt *attempt)
{
    struct tn_work *work = tn_work(attempt->svc);

    assert(attempt->handles == 0 && !attempt->ended);
    uv_timer_init(tn_loop(attempt->svc), &attempt->tick);
    attempt->tick.data = attempt;
    attempt->handles++;
    uv_timer_start(&attempt->tick, on_tick, TICK_MS, TICK_MS);
    attempt->next = work->attempts;
    work->attempts = attempt;
    attempt->campaign->running++;
}

void tn_attempt_stop(struct tn_attempt *attempt, enum tn_stop_reason why)
{
    assert(why != TN_STOP_NONE);
    if (attempt->ended || attempt->stop != TN_STOP_NONE)
        return;
    attempt->stop = why;
    tn_log_attempt(LOG_INFO, attempt, " is stopped: %s",
                   attempt->trouble[0]     ? attempt->trouble
                   : why == TN_STOP_CANCEL ? "cancelled"
                                           : "the daemon is stopping");
    if (!attempt->unadopted)
        attempt->launcher->stop(attempt);
}

void tn_attempt_ended(struct tn_attempt *attempt)
{
    if (attempt->ended)
        return;
    attempt->ended = true;
    tn_work(attempt->svc)->last_end = clock_mono_ns() / 1000;
    tn_attempt_read(attempt);
    if (attempt->trainer->finish)
        attempt->trainer->finish(attempt);
    retry_settle(attempt);
}

/* ---- start --------------------------------------------------------------- */

struct start {
    struct tn_attempt *a;
    struct db_attempt row;
};

static int start_job(struct db *writer, void *arg, struct err *error)
{
    struct start *s = arg;
    int r = db_trial_start(writer, s->row.campaign, s->row.n, s->row.created, error);

    if (r == 0)
        r = db_attempt_add(writer, &s->row, error);
    return r < 0 ? r : tn_event_trial(writer, s->row.campaign, s->row.n, error);
}

static int run_job(struct db *writer, void *arg, struct err *error)
{
    struct start *s = arg;

    return db_attempt_run(writer, s->row.campaign, s->row.n, s->row.attempt, s->row.job,
                          s->row.started, error);
}

static int commit_start(struct tn_attempt *attempt, struct err *error)
{
    char cpus[4 * TN_MAX_CORES], gpus[TN_GPUS_TEXT];
    struct start s = {attempt,
                      {.campaign = attempt->campaign->id,
                       .n = attempt->trial->n,
                       .attempt = attempt->number,
                       .state = "starting",
                       .folder = attempt->relative,
                       .cpus = tn_cpus_text(cpus, sizeof(cpus), attempt->cpus, attempt->ncpus),
                       .gpus = tn_gpus_held_text(gpus, sizeof(gpus),
                                                 &tn_machine(attempt->svc)->gpus, &attempt->gpus),
                       .job = attempt->job[0] ? attempt->job : NULL,
                       .devices = pl_layout_devices(&attempt->trial->run.layout),
                       .created = clock_wall_ms(),
                       .started = DB_NULL,
                       .ended = DB_NULL,
                       .exit_code = DB_NULL,
                       .signal = DB_NULL}};

    return tn_write(attempt->svc, start_job, &s, error);
}

static void commit_run(struct tn_attempt *attempt)
{
    struct start s = {attempt,
                      {.campaign = attempt->campaign->id,
                       .n = attempt->trial->n,
                       .attempt = attempt->number,
                       .job = attempt->job[0] ? attempt->job : NULL,
                       .started = clock_wall_ms()}};
    struct err e = {0};

    if (tn_write(attempt->svc, run_job, &s, &e) < 0)
        tn_log_attempt(LOG_WARN, attempt, ": %s", e.text);
}

void tn_attempt_runs(struct tn_attempt *attempt)
{
    assert(attempt->waits);
    attempt->waits = false;
    attempt->started = attempt->last_event = tn_now_ms();
    commit_run(attempt);
}

static void note_overhead(struct tn_service *svc)
{
    struct tn_work *work = tn_work(svc);
    double ms;

    if (!work->last_end)
        return;
    ms = (double)(clock_mono_ns() / 1000 - work->last_end) / 1000.0;
    work->last_end = 0;
    work->stats.overhead_ms_last = ms;
    if (ms > work->stats.overhead_ms_max)
        work->stats.overhead_ms_max = ms;
    log_debug("overhead between trials ms=%.1f", ms);
}

static int prepare(struct tn_attempt *attempt, struct err *error)
{
    /* Another user gets to the folder, which becomes its own, and sees nothing on the way. */
    unsigned mode = tn_settings(attempt->svc)->trial_user ? 0711 : 0700;
    int r = file_remove_tree(attempt->folder,
                             error); /* a former daemon died before it committed this attempt */

    if (r == 0)
        r = file_mkdirs(attempt->folder, mode, error);
    return r;
}

/* Committed, so it is settled like any other. It is no fault of the trial, unless its trainer has
 * said so. */
static void never_ran(struct tn_attempt *attempt, const struct err *error)
{
    if (!attempt->seen.error) {
        snprintf(attempt->trouble, sizeof(attempt->trouble), "%.399s",
                 error ? error->text : "cannot be launched");
        attempt->machine_lost = true;
    }
    tn_attempt_ended(attempt);
}

int tn_attempt_start(struct tn_trial *trial, struct err *error)
{
    struct tn_spec *s = trial->campaign->engine->spec;
    struct tn_attempt *a;
    int r = s->launcher->ready(trial->campaign->svc, s, error);

    assert(!trial->next);
    if (r == 0 && !s->launcher->elsewhere)
        r = tn_retain_room(trial->campaign->svc, error);
    if (r == 0 && !s->launcher->elsewhere)
        r = s->trainer->ready(trial->campaign->svc, s, error);
    if (r < 0)
        return r == -EBUSY ? -ENOENT : r;
    a = attempt_new(trial, trial->attempts + 1);
    if (!a->launcher->reserve(a)) {
        a->trial = NULL;
        attempt_free(a);
        return -EBUSY;
    }
    assert(a->ncpus >= 0 && a->ncpus <= TN_MAX_CORES);
    r = prepare(a, error);
    if (r == 0)
        r = commit_start(a, error);
    if (r < 0) {
        a->launcher->release(a);
        a->trial = NULL;
        attempt_free(a);
        return r;
    }
    trial->attempts++;
    watch(a);
    note_overhead(a->svc);
    r = a->launcher->start(a, error);
    tn_work(a->svc)->stats.all.attempts_started++;
    tn_work(a->svc)->stats.simulated.attempts_started += tn_is_simulated(a->launcher->name);
    if (r < 0) {
        never_ran(a, error);
        return 0;
    }
    tn_log_attempt(LOG_DEBUG, a, " started");
    if (!a->waits)
        commit_run(a);
    return 0;
}

/* ---- after a restart ----------------------------------------------------- */

static void on_adopt(uv_timer_t *timer);

static int adopt(struct tn_attempt *attempt, const struct db_attempt *row, struct err *error)
{
    int r = attempt->launcher->adopt(attempt, row, error);

    attempt->unadopted = r < 0;
    if (r < 0)
        return r;
    tn_log_attempt(LOG_INFO, attempt, " %s", r ? "adopted" : "ended while no daemon ran");
    if (r == 0) {
        tn_attempt_ended(attempt);
        return 0;
    }
    tn_work(attempt->svc)->stats.adopted++;
    if (row->state && !strcmp(row->state, "starting") && !attempt->waits)
        commit_run(attempt);
    tn_attempt_read(attempt);
    attempt->last_event = tn_now_ms();
    if (attempt->stop != TN_STOP_NONE) /* wanted meanwhile */
        attempt->launcher->stop(attempt);
    else if (strcmp(attempt->campaign->state, DB_CANCELLED) == 0)
        tn_attempt_stop(attempt, TN_STOP_CANCEL);
    return 0;
}

/* A full disk, say: what cannot be told now is asked again. Until then it counts as one that runs.
 */
static void adopt_later(struct tn_attempt *attempt, const struct err *error)
{
    tn_log_attempt(LOG_ERROR, attempt, " cannot be adopted: %s", error->text);
    uv_timer_start(&attempt->tick, on_adopt, 1000, 0);
}

static void on_adopt(uv_timer_t *timer)
{
    struct tn_attempt *a = timer->data;
    struct arena arena = {0};
    struct db_attempt row;
    struct err e = {0};
    int r =
        db_attempt_get(&row, tn_db(a->svc), &arena, a->campaign->id, a->trial->n, a->number, &e);

    uv_timer_start(&a->tick, on_tick, TICK_MS, TICK_MS);
    if (r == 0)
        r = adopt(a, &row, &e);
    if (r < 0)
        adopt_later(a, &e);
    arena_done(&arena);
}

int tn_attempt_recover(struct tn_campaign *campaign, struct tn_trial *trial,
                       const struct db_attempt *row, struct err *error)
{
    struct tn_attempt *a;

    trial->campaign = campaign;
    a = attempt_new(trial, row->attempt);
    a->stored = row->offset;
    a->was_adopted = true;
    if (row->cpus)
        a->ncpus = tn_cpus_parse(a->cpus, TN_MAX_CORES, row->cpus);
    if (a->ncpus < 0)
        a->ncpus = 0;
    assert(a->ncpus <= TN_MAX_CORES);
    tn_gpus_held_parse(&a->gpus, &tn_machine(campaign->svc)->gpus, row->gpus);
    if (row->started != DB_NULL || row->created != DB_NULL) { /* its time continues */
        int64_t age = clock_wall_ms() - (row->started != DB_NULL ? row->started : row->created);

        if (age > 0 && (uint64_t)age < a->started)
            a->started -= (uint64_t)age;
    }
    watch(a);
    if (adopt(a, row, error) < 0)
        adopt_later(a, error);
    return 0;
}
