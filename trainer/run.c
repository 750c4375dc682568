/*
 * The step loop and what surrounds it: start, measurement, what is due between steps, stop.
 *
 * A step lasts from the end of the one before to its own end, so reading tokens and exchanging the
 * ranks' times are part of it; validation and checkpoints are not. Times are exchanged by one small
 * all-gather, so every rank sees the same numbers and decides alike whether to stop.
 */
#include "base/base.h"
#include "trainer/run.h"
#include "trainer/run_state.h"

#include "trainer/backend.h"
#include "trainer/fail.h"
#include "trainer/hello.h"
#include "trainer/parts.h"
#include "trainer/peers.h"
#include "trainer/stop.h"
#include "trainer/team.h"
#include "trainer/timeline.h"

#include <assert.h>
#include <math.h>
#include <unistd.h>

enum { MEASURED_MAX = 1 << 16, SPANS_MAX = 1 << 16 };

int tr_run_check_memory(int *ret_rank, enum pl_mem_class *ret_class, double *ret_asked,
                        const struct tr_config *config, struct err *error)
{
    for (int rank = 0; rank < config->layout.world;
         rank += pl_axis_stride(&config->layout, PL_PP)) {
        struct pl_buffers t;
        int k;

        pl_buffers_build(&t, &config->model, &config->layout, &config->workload, rank);
        k = tr_device_fits(ret_class, ret_asked, &t, tr_config_buffers(config), error);
        pl_buffers_done(&t);
        if (k < 0) {
            *ret_rank = rank;
            return k;
        }
    }
    return 0;
}

/* ---- start --------------------------------------------------------------- */

static void rank_init(struct run *run)
{
    const struct tr_config *c = run->c;
    enum pl_mem_class cls;
    double asked;
    struct err e = {0};

    if (tr_rank_init(&cls, &asked, &run->r, MPI_COMM_WORLD, &c->model, &c->layout, &c->workload,
                     tr_config_buffers(c), tr_fail_comm, &e) < 0)
        tr_fail(TR_ERROR_OOM, e.text);
    if (tr_sharing_check(&run->r.comms, c->device, &e) < 0)
        tr_fail(TR_ERROR_ILLEGAL, e.text);
    run->r.z_loss_coef = c->train.z_loss_coef;
    run->team = tr_team_of(&run->r.comms);
    run->part = tr_parts(&run->nparts, &run->r.params, &run->r.layout, true);
    run->times = mem_alloc(sizeof(double) * TIMES * (size_t)c->layout.world);
    run->busy = mem_alloc(sizeof(double) * (size_t)c->layout.world);
    run->sorted = mem_alloc(sizeof(double) * (size_t)c->layout.world);
    tr_measure_init(&run->measure, c->mode == TR_MODE_TRIAL ? c->trial.max_steps : MEASURED_MAX);
    if (c->ramp.start)
        tr_measure_init(&run->full_ms, MEASURED_MAX);
    tr_meter_open(&run->meter, &run->r.comms, c->mode == TR_MODE_TRIAL);
}

static void say_hello(struct run *run)
{
    struct pl_memory planned;

    tr_hello(run->events, run->c, &run->r.comms);
    tr_run_planned(&planned, run);
    tr_event_memory(run->events, &planned, (double)run->c->device_memory);
}

static void optim_init(struct run *run)
{
    const struct tr_train *t = &run->c->train;

    run->optim = (struct tr_optim){.schedule = tr_train_lr(t),
                                   .weight_decay = t->weight_decay,
                                   .beta1 = t->beta1,
                                   .beta2 = t->beta2,
                                   .eps = t->eps,
                                   .sgd_momentum = t->sgd_momentum,
                                   .muon_momentum = t->muon_momentum,
                                   .clip = t->clip};
    if (run->c->groups.count) {
        run->optim.groups = &run->c->groups;
        tr_optim_group(&run->r, &run->c->groups);
    }
    run->skip.interval = t->skip_step_interval;
    if (run->c->mode == TR_MODE_TRAIN)
        run->skip.sigma = t->skip_step_sigma;
}

/* ---- asked to stop ------------------------------------------------------- */

/* A step that takes this much longer than the longest so far is not a step any more. */
enum { STEP_TIMES = 3, STEP_S = 5 };

static void late(void)
{
    int gone = tr_peers_gone();
    char text[160];

    if (gone >= 0) {
        snprintf(text, sizeof(text),
                 "rank %d is gone from this host, so this rank was asked to stop", gone);
        tr_fail_comm(text);
    }
    tr_fail_stopped(
        "signal; the ranks did not answer each other in time, so the last steps are not "
        "checkpointed");
}

/* A step begins, or what is as short. */
static void at_step(struct run *run)
{
    tr_fail_step(run->step);
    tr_stop_finish(STEP_S + STEP_TIMES * run->longest_s);
}

/* ---- one step ------------------------------------------------------------ */

static void check_numbers(const struct run *run, const struct tr_result *result)
{
    char text[160];

    if (isfinite(result->loss) && isfinite(result->norm))
        return;
    if (run->r.rank != 0) /* all ranks see it */
        tr_fail_await_rank_0();
    snprintf(text, sizeof(text), "step %d: loss %g, gradient norm %g", run->step + 1, result->loss,
             result->norm);
    tr_fail(TR_ERROR_NUMERIC, text);
}

static void begin(struct run *run)
{
    tr_clock_reset(&run->r.clock);
    run->begun_ns = run->r.clock.since_ns;
    tr_meter_read(&run->meter, false);
}

static void write_timeline(struct run *run)
{
    char title[240], layout[160];
    struct err e = {0};

    if (!run->noted.span)
        return;
    snprintf(title, sizeof(title), "%s, step %d, %s", run->c->model.name, run->noted_step,
             pl_layout_text(layout, &run->c->layout));
    if (tr_timeline_write(run->c->timeline, &run->r.comms.world, &run->noted, run->noted_ns, title,
                          &e) < 0)
        tr_event_warning(run->events, "timeline", e.text);
    tr_timeline_end(&run->noted);
}

/* The timeline is that of the first measured step, after which recording ends. A trial keeps its
 * records until it ends: to collect and write them here would make ranks begin the next step, which
 * is measured, at different times. */
static void trace(struct run *run, const struct tr_clock *done)
{
    if (!done->span || run->step <= run->measured_from)
        return;
    run->noted = *done;
    run->noted_ns = run->begun_ns;
    run->noted_step = run->step;
    run->r.clock.span = NULL;
    run->r.clock.spans = run->r.clock.span_cap = 0;
    if (run->c->mode != TR_MODE_TRIAL)
        write_timeline(run);
}

/* The step's optimizer; true if it was skipped. */
static bool update(struct run *run, const struct tr_result *result)
{
    bool skips = run->skip.sigma > 0 && tr_skip_step(&run->skip, result->loss, result->norm);

    if (skips)
        tr_optim_skip(&run->r);
    else
        tr_optim_step(&run->r, &run->optim, run->step, result->norm);
    run->optim.skipped = run->skip.skipped;
    return skips;
}

/* Returns true if somebody asked to stop. What follows the step is charged to the next one. */
static bool one_step(struct run *run)
{
    struct tr_rank *r = &run->r;
    struct tr_result t;
    struct tr_clock done;
    uint64_t step_ns;
    bool skipped;

    if (run->c->ramp.start)
        tr_rank_batch(r, tr_ramp_batch(&run->c->ramp, run->samples));
    tr_hang_section(run->hang, TR_AT_SAMPLES, run->step + 1);
    tr_run_read(run, TR_SPLIT_TRAIN, run->samples, UINT64_MAX);
    tr_run_prefetch(run);
    tr_hang_section(run->hang, TR_AT_STEP, run->step + 1);
    r->moe_counts = run->step >= run->measured_from;
    tr_step_grads(&t, r, tr_stop_requested() ? 1.0 : 0.0);
    check_numbers(run, &t);
    assert(t.flag >= 0 && t.flag <= run->c->layout.world);
    run->step++;
    run->samples += (uint64_t)r->workload.global_batch;
    if (tr_run_logs_layers(run))
        tr_layer_log_take(run->layers, r);
    skipped = update(run, &t);
    tr_clock_end(&r->clock);
    done = r->clock;
    tr_meter_read(&run->meter, run->step > run->measured_from);
    step_ns = done.since_ns - run->begun_ns;
    trace(run, &done);
    run->longest_s = fmax(run->longest_s, (double)step_ns * 1e-9);
    tr_hang_step(run->hang, (double)step_ns * 1e-6);
    begin(run);
    at_step(run);
    tr_run_report(run, &t, skipped, &done, step_ns);
    return t.flag > 0;
}

/* ---- what happens between steps ------------------------------------------ */

static double since_start_s(const struct run *run)
{
    return (double)(clock_mono_ns() - run->start_ns) * 1e-9;
}

/* Every rank sees the same step times; elapsed time is not the same everywhere, so rank 0's counts.
 */
static bool timed_out(struct run *run)
{
    double late = 0;

    if (run->c->trial.timeout_s <= 0)
        return false;
    if (run->r.rank == 0 && since_start_s(run) > run->c->trial.timeout_s)
        late = 1;
    tr_sum_double(&run->r.comms.world, &late, 1);
    return late > 0;
}

static const char *trial_ends(struct run *run)
{
    const struct pl_trial_limits *t = &run->c->trial;
    struct tr_stats s;

    tr_measure_stats(&s, &run->measure);
    if (run->measure.n >= t->max_steps)
        return "max_steps";
    if (run->measure.n >= t->min_steps && s.ci95 <= t->ci * s.median)
        return "ci";
    return timed_out(run) ? "timeout" : NULL;
}

/* Returns true if somebody asked to stop. */
static bool between(struct run *run)
{
    const struct tr_config *c = run->c;
    bool last = c->mode == TR_MODE_TRAIN && run->step >= c->train.steps;

    if (c->mode == TR_MODE_TRIAL) {
        run->ended = trial_ends(run);
        return false;
    }
    if (last)
        run->ended = "steps";
    if (c->train.validate_every && (run->step % c->train.validate_every == 0 || last) &&
        tr_tokens_samples(run->tokens, TR_SPLIT_VALIDATION) > 0) {
        if (tr_run_validate(run))
            return true;
        begin(run);
    }
    if (c->checkpoint.dir && tr_run_checkpoint(run, last)) {
        at_step(run);
        begin(run);
    }
    return false;
}

/* ---- the end ------------------------------------------------------------- */

static int finish(struct run *run, bool stopped)
{
    const struct tr_config *c = run->c;

    if (stopped) {
        if (c->checkpoint.dir && run->step > 0)
            tr_run_save(run);
        tr_event_stopped(run->events, run->step, "signal");
        return TR_EXIT_STOPPED;
    }
    assert(run->ended);
    tr_run_save_hf(run);
    tr_optim_settle(&run->r);
    at_step(run);
    tr_run_summarize(run);
    return TR_EXIT_OK;
}

/* Collective. */
static void run_done(struct run *run)
{
    tr_ckpt_async_free(run->async);
    tr_prefetch_free(run->prefetch);
    tr_hang_free(run->hang);
    tr_stop_over();
    tr_peers_done();
    tr_timeline_end(&run->r.clock);
    tr_layer_log_free(run->layers);
    tr_rank_done(&run->r);
    tr_tokens_free(run->tokens);
    free(run->ahead);
    tr_watch_free(run->watch);
    tr_lock_free(run->lock);
    tr_lock_free(run->claim_hf);
    tr_meter_close(&run->meter);
    tr_measure_done(&run->measure);
    tr_measure_done(&run->full_ms);
    free(run->part);
    free(run->times);
    free(run->busy);
    free(run->sorted);
}

int tr_run(const struct tr_config *config, struct tr_events *events)
{
    struct run u = {.c = config,
                    .events = events,
                    .start_ns = clock_mono_ns(),
                    .resident0 = tr_run_resident_bytes()};
    struct err e = {0};
    bool stopped = false;
    int code;

    tr_stop_watch(late);
    if (events && tr_watch_open(&u.watch, config, events, &e) < 0) /* rank 0 */
        tr_fail(TR_ERROR_IO, e.text);
    rank_init(&u);
    assert((events != NULL) == (u.r.rank == 0));
    tr_run_room(&u);
    tr_run_tokens(&u);
    optim_init(&u);
    if (config->mode == TR_MODE_TRAIN && config->train.layer_metrics_every)
        u.layers = tr_layer_log_new(&u.r);
    say_hello(&u);
    tr_peers_meet(&u.r.comms.world);
    u.hang = tr_hang_new(&u.r.comms, &u.r.clock, config);
    tr_run_check_validation(&u);
    tr_run_weights(&u);
    tr_run_async(&u);
    at_step(&u);
    u.measured_from = u.step + config->trial.warmup_steps;
    if (config->mode == TR_MODE_TRAIN && u.step >= config->train.steps)
        u.ended = "steps";
    if (config->timeline)
        tr_timeline_begin(&u.r.clock, SPANS_MAX);
    begin(&u);
    while (!u.ended && !stopped) {
        stopped = one_step(&u);
        if (!stopped)
            stopped = between(&u);
    }
    write_timeline(&u);
    code = finish(&u, stopped);
    run_done(&u);
    return code;
}
