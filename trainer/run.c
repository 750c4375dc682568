/*
 * The step loop and what surrounds it: start, resume, measurement, validation, checkpoints, stop.
 *
 * A step lasts from the end of the one before to its own end, so reading tokens and exchanging the
 * ranks' times are part of it; validation and checkpoints are not. Times are exchanged by one small
 * all-gather, so every rank sees the same numbers and decides alike whether to stop.
 */
#include "base/base.h"
#include "trainer/run.h"
#include "trainer/run_state.h"

#include "trainer/backend.h"
#include "trainer/balance.h"
#include "trainer/fail.h"
#include "trainer/hello.h"
#include "trainer/parts.h"
#include "trainer/peers.h"
#include "trainer/step.h"
#include "trainer/stop.h"
#include "trainer/team.h"
#include "trainer/timeline.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <unistd.h>

enum { MEASURED_MAX = 1 << 16, SPANS_MAX = 1 << 16 };

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

int tr_run_check_memory(int *ret_rank, enum pl_mem_class *ret_class, double *ret_asked,
                        const struct tr_config *config, struct err *error)
{
    for (int rank = 0; rank < config->layout.world;
         rank += pl_axis_stride(&config->layout, PL_PP)) {
        struct pl_buffers t;
        int k;

        pl_buffers_build(&t, &config->model, &config->layout, &config->workload, rank);
        k = tr_device_fits(ret_class, ret_asked, &t, config->device_memory, error);
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
                     c->device_memory, tr_fail_comm, &e) < 0)
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

/* All that the order of samples depends on, and whether there is a validation too. */
static int same_tokens(const struct run *run, struct err *error)
{
    struct tr_identity ours, theirs;
    char text[450];
    int r = 0;

    tr_tokens_identity(&ours, run->tokens);
    theirs = ours;
    run->team.share(run->team.ctx, &theirs, sizeof(theirs));
    if (tr_identity_differs(text, sizeof(text), &theirs, &ours)) {
        err_set(error, -ESTALE, "%s is not the same here: %s", run->c->workload.data, text);
        r = tr_team_stale(&run->team, "the data set", error);
    }
    return tr_team_agree(&run->team, r, error);
}

static void tokens_open(struct run *run)
{
    const struct tr_config *c = run->c;
    int samples = run->r.d.microbatches * run->r.layout.micro_batch;
    struct err e = {0};
    int r = tr_tokens_open(&run->tokens, c->data_dir, &c->sources, c->model.vocab, c->workload.seq,
                           (uint64_t)c->train.seed, &e);

    tr_require_all(&run->team, tr_team_agree(&run->team, r, &e), &e);
    tr_require_all(&run->team, same_tokens(run, &e), &e);
    run->ahead = mem_alloc((size_t)samples * sizeof(*run->ahead));
    run->prefetch = tr_prefetch_new(run->tokens, c->workload.seq, samples);
}

static void worst_planned(struct pl_memory *ret, const struct run *run)
{
    struct pl_problem problem = tr_config_problem(run->c);

    pl_memory_worst(ret, &problem, &run->c->layout);
}

static void say_hello(struct run *run)
{
    struct pl_memory planned;

    tr_hello(run->events, run->c, &run->r.comms);
    worst_planned(&planned, run);
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

/* The next step's samples of this rank are read while this one computes: those of a batch as large
 * as this one's, so that where a ramp grows only a part of them. */
static void prefetch(struct run *run)
{
    const struct tr_rank *r = &run->r;
    uint64_t first = run->samples + (uint64_t)r->workload.global_batch;
    int n = 0;

    if (!run->prefetch)
        return;
    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++)
            run->ahead[n++] = first + tr_sample_index(r, mb, k);
    tr_prefetch_ask(run->prefetch, run->ahead, n);
}

/* The global batch of the samples from FIRST on; those from END on are ignored. */
static void read_samples(struct run *run, enum tr_split split, uint64_t first, uint64_t end)
{
    struct tr_rank *r = &run->r;
    struct err e = {0};

    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++) {
            uint64_t i = first + tr_sample_index(r, mb, k);

            tr_require(tr_tokens_sample(r->work.sample, run->tokens, split, i, &e), &e);
            tr_sample_put(r, mb, k, r->work.sample);
            if (i >= end)
                tr_sample_ignore(r, mb, k);
        }
}

/* Each rank's step time, busy time and phases, in ms, to all ranks. */
static void exchange_times(struct run *run, const struct tr_clock *done, uint64_t step_ns)
{
    double mine[TIMES] = {(double)step_ns * 1e-6, ((double)step_ns - (double)done->wait_ns) * 1e-6,
                          [TIMES - 1] = run->async ? tr_ckpt_async_writer(run->async) : 0};
    struct tr_rank *r = &run->r;
    MPI_Request req;

    for (int i = 0; i < TR_PHASES; i++)
        mine[2 + i] = (double)done->ns[i] * 1e-6;
    MPI_Iallgather(mine, TIMES, MPI_DOUBLE, run->times, TIMES, MPI_DOUBLE, r->comms.world.comm,
                   &req);
    tr_wait(&r->comms.progress, tr_op_begin(TR_OP_ALL_GATHER, &r->comms.world), &req, 1);
}

static int ascending(const void *left, const void *right)
{
    double x = *(const double *)left, y = *(const double *)right;

    return (x > y) - (x < y);
}

/* The step's duration is that of the slowest rank; phases are means, and what they do not add up to
 * is `other`. */
static void fill_times(struct tr_step *ret, struct run *run)
{
    int n = run->c->layout.world;
    double sum = 0, writer = 0;

    for (int i = 0; i < n; i++) {
        const double *t = run->times + i * TIMES;

        writer = fmax(writer, t[TIMES - 1]);
        ret->ms = fmax(ret->ms, t[0]);
        run->busy[i] = t[1];
        if (t[1] > run->busy[ret->slowest])
            ret->slowest = i;
        for (int k = 0; k < TR_PHASES; k++)
            ret->phase_ms[k] += t[2 + k] / n;
    }
    for (int k = 0; k < TR_PHASES; k++)
        sum += ret->phase_ms[k];
    ret->phase_ms[TR_PHASE_OTHER] += ret->ms - sum;
    memcpy(run->sorted, run->busy, sizeof(*run->busy) * (size_t)n);
    qsort(run->sorted, (size_t)n, sizeof(*run->sorted), ascending);
    ret->rank_ms_min = run->sorted[0];
    ret->rank_ms_median = (run->sorted[(n - 1) / 2] + run->sorted[n / 2]) / 2;
    ret->rank_ms_max = run->sorted[n - 1];
    assert(ret->rank_ms_max == run->busy[ret->slowest]);
    ret->busy_ms = run->busy;
    ret->ranks = n;
    run->writer = (enum tr_writer)writer;
}

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

/* The step took MS, with as many sequences as the rank has been told last. */
static void measure(struct run *run, double ms)
{
    const struct tr_config *c = run->c;

    tr_measure_add(&run->measure, ms);
    if (c->ramp.start)
        tr_measure_add(&run->full_ms, ms * c->workload.global_batch / run->r.workload.global_batch);
}

static bool logs_layers(const struct run *run)
{
    return run->layers && run->step % run->c->train.layer_metrics_every == 0;
}

static void report_step(struct run *run, const struct tr_result *result, bool skipped,
                        const struct tr_clock *done, uint64_t step_ns)
{
    int64_t seq = run->c->workload.seq;
    struct tr_step s = {.n = run->step,
                        .loss = result->loss,
                        .grad_norm = result->norm,
                        .aux_loss = run->r.moe_layers ? result->aux : NAN,
                        .z_loss = run->c->train.z_loss_coef > 0 ? result->z : NAN,
                        .moe_z_loss = run->c->model.moe.z_loss_coef > 0 ? result->moe_z : NAN,
                        .mtp_loss = run->c->model.mtp ? result->mtp : NAN,
                        .tokens = run->r.workload.global_batch * seq,
                        .trained = (int64_t)run->samples * seq,
                        .skips = run->skip.sigma > 0,
                        .skipped = skipped,
                        .lr = tr_lr_at(&run->optim.schedule, run->step),
                        .warmup = run->step <= run->measured_from};

    if (logs_layers(run))
        s.layer = tr_layer_log(&s.nlayers, run->layers);

    exchange_times(run, done, step_ns);
    fill_times(&s, run);
    if (!s.warmup)
        measure(run, s.ms);
    if (run->loss_first == 0)
        run->loss_first = result->loss;
    run->loss_last = result->loss;
    tr_event_step(run->events, &s);
    tr_event_layers(run->events, &s);
    tr_watch_step(run->watch, &s);
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
    read_samples(run, TR_SPLIT_TRAIN, run->samples, UINT64_MAX);
    prefetch(run);
    tr_hang_section(run->hang, TR_AT_STEP, run->step + 1);
    r->moe_counts = run->step >= run->measured_from;
    tr_step_grads(&t, r, tr_stop_requested() ? 1.0 : 0.0);
    check_numbers(run, &t);
    assert(t.flag >= 0 && t.flag <= run->c->layout.world);
    run->step++;
    run->samples += (uint64_t)r->workload.global_batch;
    if (logs_layers(run))
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
    report_step(run, &t, skipped, &done, step_ns);
    return t.flag > 0;
}

/* ---- what happens between steps ------------------------------------------ */

static bool asked_anywhere(struct run *run)
{
    double asked = tr_stop_requested();

    tr_sum_double(&run->r.comms.world, &asked, 1);
    return asked > 0;
}

/* Samples of a validation: as many as asked for, or as the split has. */
static uint64_t validation_samples(const struct run *run)
{
    uint64_t asked = (uint64_t)run->c->train.validate_samples;
    uint64_t have = tr_tokens_samples(run->tokens, TR_SPLIT_VALIDATION);

    return asked < have ? asked : have;
}

/* Every token that counts does so once, whatever the batch and the layout: the last batch is
 * filled up with * ignored ones. True if somebody asked to stop: then there is no result. */
static bool validate(struct run *run)
{
    uint64_t batch = (uint64_t)run->c->workload.global_batch, n = validation_samples(run);
    double sum = 0, tokens = 0;

    assert(n > 0);
    tr_rank_batch(&run->r, run->c->workload.global_batch);
    for (uint64_t i = 0; i < n; i += batch) {
        struct tr_result t;

        tr_hang_section(run->hang, TR_AT_SAMPLES, run->step);
        read_samples(run, TR_SPLIT_VALIDATION, i, n);
        tr_hang_section(run->hang, TR_AT_VALIDATION, run->step);
        if (asked_anywhere(run))
            return true;
        tr_step_forward(&t, &run->r);
        sum += t.loss * t.tokens;
        tokens += t.tokens;
    }
    sum /= tokens;
    tr_event_validation(run->events, run->step, sum, (int64_t)n * run->c->workload.seq);
    tr_watch_validation(run->watch, sum);
    return false;
}

/* Reported before training: what a validation will lack. */
static void check_validation(struct run *run)
{
    uint64_t have = validation_samples(run);
    bool several = run->c->sources.count > 1;
    char text[240];

    if (!run->c->train.validate_every || have == (uint64_t)run->c->train.validate_samples)
        return;
    if (have == 0)
        snprintf(text, sizeof(text), "%s no validation split: no validation will run",
                 several ? "a data set of the first ones to be taken has" : "the data set has");
    else
        snprintf(text, sizeof(text),
                 "the validation split%s only %llu samples of %d tokens, --validate-samples is "
                 "%d: a validation uses each of them once",
                 several ? "s have by their weights" : " has", (unsigned long long)have,
                 run->c->workload.seq, run->c->train.validate_samples);
    tr_event_warning(run->events, "validation", text);
}

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
        if (validate(run))
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

/* What a rank has at the end: doubles alone. */
struct figures {
    double bytes[PL_MEM_CLASSES], total, growth;
    struct tr_reading reading;
};

enum { FIGURES = sizeof(struct figures) / sizeof(double) };

/* Measured memory of the rank that was handed out most, the largest growth of resident memory, the
 * joules of all devices or hosts, and what disturbed them. */
static void totals(struct pl_memory *ret, struct tr_summary *summary, struct run *run)
{
    struct tr_rank *r = &run->r;
    int best = 0, world = run->c->layout.world;
    AUTO_FREE struct figures *all = mem_alloc(sizeof(*all) * (size_t)world);
    AUTO_FREE struct tr_reading *reading = mem_alloc(sizeof(*reading) * (size_t)world);
    struct figures mine = {.total = r->device.used.total,
                           .growth = resident_bytes() - run->resident0,
                           .reading = tr_meter_reading(&run->meter)};

    memcpy(mine.bytes, r->device.used.bytes, sizeof(mine.bytes));
    tr_gather_double((double *)all, &r->comms.world, (const double *)&mine, FIGURES);
    for (int i = 0; r->rank == 0 && i < world; i++) {
        if (all[i].total > all[best].total)
            best = i;
        summary->resident_growth_bytes = fmax(summary->resident_growth_bytes, all[i].growth);
        summary->joules += all[i].reading.joules;
        reading[i] = all[i].reading;
    }
    memcpy(ret->bytes, all[best].bytes, sizeof(ret->bytes));
    ret->total = all[best].total;
    ret->rank = best;
    tr_meter_disturbed(summary->disturbed, sizeof(summary->disturbed), reading, world);
}

static void summarize(struct run *run)
{
    const struct tr_config *c = run->c;
    struct pl_memory planned, measured = {0};
    struct tr_stats s;
    double tokens = (double)c->workload.global_batch * c->workload.seq;
    AUTO_FREE double *uneven = NULL;
    struct tr_summary t = {.warmup_steps = run->measured_from,
                           .planned = &planned,
                           .measured = &measured,
                           .loss_first = run->loss_first,
                           .loss_last = run->loss_last,
                           .skips = run->skip.sigma > 0,
                           .skipped = run->skip.skipped,
                           .trained = run->step,
                           .ended = run->ended};

    if (run->r.moe_layers) {
        t.moe_layers = run->r.moe_layers;
        t.uneven = uneven = mem_alloc(sizeof(*uneven) * (size_t)t.moe_layers);
        t.imbalance = tr_balance_uneven(uneven, &run->r);
    }
    totals(&measured, &t, run);
    worst_planned(&planned, run);
    tr_measure_stats(&s, &run->measure);
    t.steps = run->measure.n;
    t.ms_median = s.median;
    t.ms_p10 = s.p10;
    t.ms_p90 = s.p90;
    t.ms_ci95 = s.ci95;
    if (c->ramp.start) /* throughput is of a step's own tokens */
        tr_measure_stats(&s, &run->full_ms);
    if (s.median > 0) {
        t.tokens_per_s = tokens / (s.median * 1e-3);
        /* A 95 % interval is 1.96 standard errors to each side; relative errors of time and rate
         * agree. */
        t.tokens_per_s_se = t.tokens_per_s * (s.ci95 / 1.96) / s.median;
    }
    tr_event_summary(run->events, &t);
}

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
    summarize(run);
    return TR_EXIT_OK;
}

int tr_run(const struct tr_config *config, struct tr_events *events)
{
    struct run u = {
        .c = config, .events = events, .start_ns = clock_mono_ns(), .resident0 = resident_bytes()};
    struct err e = {0};
    bool stopped = false;
    int code;

    tr_stop_watch(late);
    if (events && tr_watch_open(&u.watch, config, events, &e) < 0) /* rank 0 */
        tr_fail(TR_ERROR_IO, e.text);
    rank_init(&u);
    assert((events != NULL) == (u.r.rank == 0));
    tr_run_room(&u);
    tokens_open(&u);
    optim_init(&u);
    if (config->mode == TR_MODE_TRAIN && config->train.layer_metrics_every)
        u.layers = tr_layer_log_new(&u.r);
    say_hello(&u);
    tr_peers_meet(&u.r.comms.world);
    u.hang = tr_hang_new(&u.r.comms, &u.r.clock, config);
    check_validation(&u);
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
    tr_ckpt_async_free(u.async);
    tr_prefetch_free(u.prefetch);
    tr_hang_free(u.hang);
    tr_stop_over();
    tr_peers_done();
    tr_timeline_end(&u.r.clock);
    tr_layer_log_free(u.layers);
    tr_rank_done(&u.r);
    tr_tokens_free(u.tokens);
    free(u.ahead);
    tr_watch_free(u.watch);
    tr_lock_free(u.lock);
    tr_lock_free(u.claim_hf);
    tr_meter_close(&u.meter);
    tr_measure_done(&u.measure);
    tr_measure_done(&u.full_ms);
    free(u.part);
    free(u.times);
    free(u.busy);
    free(u.sorted);
    return code;
}
