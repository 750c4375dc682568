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

#include "trainer/fail.h"
#include "trainer/hello.h"
#include "trainer/parts.h"
#include "trainer/step.h"
#include "trainer/stop.h"
#include "trainer/team.h"
#include "trainer/timeline.h"

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

int tr_run_check_memory(const struct tr_config *c, int *ret_rank, enum pl_mem_class *ret_class,
                        double *ret_asked, struct err *e)
{
    for (int rank = 0; rank < c->layout.world; rank += pl_axis_stride(&c->layout, PL_PP)) {
        struct pl_buffers t;
        int k;

        pl_buffers_build(&t, &c->model, &c->layout, &c->workload, rank);
        k = tr_device_fits(&t, c->device_memory, ret_class, ret_asked, e);
        pl_buffers_done(&t);
        if (k < 0) {
            *ret_rank = rank;
            return k;
        }
    }
    return 0;
}

/* ---- start ---- */

static void rank_init(struct run *u)
{
    const struct tr_config *c = u->c;
    enum pl_mem_class cls;
    double asked;
    struct err e = {0};

    if (tr_rank_init(&u->r, MPI_COMM_WORLD, &c->model, &c->layout, &c->workload, c->device_memory,
                     tr_fail_comm, &cls, &asked, &e) < 0)
        tr_fail(TR_ERROR_OOM, e.text);
    u->team = tr_team_of(&u->r.comms);
    u->part = tr_parts(&u->nparts, &u->r.params, &u->r.layout, true);
    u->times = mem_alloc(sizeof(double) * TIMES * (size_t)c->layout.world);
    u->busy = mem_alloc(sizeof(double) * (size_t)c->layout.world);
    u->sorted = mem_alloc(sizeof(double) * (size_t)c->layout.world);
    tr_measure_init(&u->measure, c->mode == TR_MODE_TRIAL ? c->trial.max_steps : MEASURED_MAX);
}

/* The order of samples depends on how many there are, and whether there is a validation too. */
static int same_tokens(const struct run *u, struct err *e)
{
    uint64_t n[TR_SPLITS], first[TR_SPLITS];
    int r = 0;

    for (int i = 0; i < TR_SPLITS; i++)
        n[i] = first[i] = tr_tokens_samples(u->tokens, i);
    u->team.share(u->team.ctx, first, sizeof(first));
    if (memcmp(n, first, sizeof(n)) != 0) {
        err_set(e, -ESTALE, "%s has other samples here", u->c->data);
        r = tr_elsewhere(&u->team, "the data set", e);
    }
    return tr_together(&u->team, r, e);
}

static void tokens_open(struct run *u)
{
    const struct tr_config *c = u->c;
    struct err e = {0};
    int r = tr_tokens_open(&u->tokens, c->data_dir, c->data, c->model.vocab, c->workload.seq,
                           (uint64_t)c->train.seed, &e);

    tr_require_all(&u->team, tr_together(&u->team, r, &e), &e);
    tr_require_all(&u->team, same_tokens(u, &e), &e);
}

static void worst_planned(const struct run *u, struct pl_memory *ret)
{
    pl_memory_worst(ret, &u->c->model, &u->c->layout, &u->c->workload, pl_trainer_find("partune"));
}

static void say_hello(struct run *u)
{
    struct pl_memory planned;

    tr_hello(u->events, u->c, &u->r.comms.world);
    worst_planned(u, &planned);
    tr_event_memory(u->events, &planned, (double)u->c->device_memory);
}

static void optim_init(struct run *u)
{
    const struct tr_train *t = &u->c->train;

    u->optim = (struct tr_optim){.lr = t->lr,
                                 .min_lr = t->min_lr,
                                 .warmup_steps = t->warmup_steps,
                                 .decay_steps = t->lr_decay_steps ? t->lr_decay_steps : t->steps,
                                 .weight_decay = t->weight_decay,
                                 .beta1 = t->beta1,
                                 .beta2 = t->beta2,
                                 .eps = t->eps,
                                 .clip = t->clip};
}

/* ---- asked to stop ---- */

/* A step that takes this much longer than the longest so far is not a step any more. */
enum { STEP_TIMES = 3, STEP_S = 5 };

static void late(void)
{
    tr_fail_stopped(
        "signal; the ranks did not answer each other in time, so the last steps are in no "
        "checkpoint");
}

/* A step begins, or what is as short. */
static void at_step(struct run *u)
{
    tr_fail_step(u->step);
    tr_stop_finish(STEP_S + STEP_TIMES * u->longest_s);
}

/* ---- one step ---- */

/* The global batch of the samples from FIRST on; those from END on are ignored. */
static void read_samples(struct run *u, enum tr_split split, uint64_t first, uint64_t end)
{
    struct tr_rank *r = &u->r;
    struct err e = {0};

    for (int mb = 0; mb < r->d.microbatches; mb++)
        for (int k = 0; k < r->layout.micro_batch; k++) {
            uint64_t i = first + tr_sample_index(r, mb, k);

            tr_require(tr_tokens_sample(u->tokens, split, i, r->work.sample, &e), &e);
            tr_sample_put(r, mb, k, r->work.sample);
            if (i >= end)
                tr_sample_ignore(r, mb, k);
        }
}

/* Every rank's step and busy time and phases, in ms, to all. */
static void exchange_times(struct run *u, const struct tr_clock *done, uint64_t step_ns)
{
    double mine[TIMES] = {(double)step_ns * 1e-6, ((double)step_ns - (double)done->wait_ns) * 1e-6};
    struct tr_rank *r = &u->r;
    MPI_Request req;

    for (int i = 0; i < TR_PHASES; i++)
        mine[2 + i] = (double)done->ns[i] * 1e-6;
    MPI_Iallgather(mine, TIMES, MPI_DOUBLE, u->times, TIMES, MPI_DOUBLE, r->comms.world.comm, &req);
    tr_wait(&r->comms.progress, &req, 1);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The step's duration is that of the slowest rank; phases are means, and what the mean lacks is
 * `other`. */
static void fill_times(struct run *u, struct tr_step *s)
{
    int n = u->c->layout.world;
    double sum = 0;

    for (int i = 0; i < n; i++) {
        const double *t = u->times + i * TIMES;

        s->ms = fmax(s->ms, t[0]);
        u->busy[i] = t[1];
        if (t[1] > u->busy[s->slowest])
            s->slowest = i;
        for (int k = 0; k < TR_PHASES; k++)
            s->phase_ms[k] += t[2 + k] / n;
    }
    for (int k = 0; k < TR_PHASES; k++)
        sum += s->phase_ms[k];
    s->phase_ms[TR_PHASE_OTHER] += s->ms - sum;
    memcpy(u->sorted, u->busy, sizeof(*u->busy) * (size_t)n);
    qsort(u->sorted, (size_t)n, sizeof(*u->sorted), ascending);
    s->rank_ms_min = u->sorted[0];
    s->rank_ms_median = (u->sorted[(n - 1) / 2] + u->sorted[n / 2]) / 2;
    s->rank_ms_max = u->sorted[n - 1];
    s->busy_ms = u->busy;
    s->ranks = n;
}

static void check_numbers(const struct run *u, const struct tr_result *t)
{
    char text[160];

    if (isfinite(t->loss) && isfinite(t->norm))
        return;
    if (u->r.rank != 0) /* all ranks see it: the first one speaks and ends the others */
        sleep(10);
    snprintf(text, sizeof(text), "step %d: loss %g, gradient norm %g", u->step + 1, t->loss,
             t->norm);
    tr_fail(TR_ERROR_NUMERIC, text);
}

static void report_step(struct run *u, const struct tr_result *t, const struct tr_clock *done,
                        uint64_t step_ns)
{
    const struct tr_config *c = u->c;
    struct tr_step s = {.n = u->step,
                        .loss = t->loss,
                        .grad_norm = t->norm,
                        .aux_loss = u->r.moe_layers ? t->aux : NAN,
                        .tokens = (int64_t)c->workload.global_batch * c->workload.seq,
                        .lr = tr_optim_lr(&u->optim, u->step),
                        .warmup = u->step <= u->measured_from};

    exchange_times(u, done, step_ns);
    fill_times(u, &s);
    if (!s.warmup)
        tr_measure_add(&u->measure, s.ms);
    if (u->loss_first == 0)
        u->loss_first = t->loss;
    u->loss_last = t->loss;
    tr_event_step(u->events, &s);
    tr_watch_step(u->watch, &s);
}

static void begin(struct run *u)
{
    tr_clock_reset(&u->r.clock);
    u->begun_ns = u->r.clock.since_ns;
}

static void write_timeline(struct run *u)
{
    char title[240], layout[160];
    struct err e = {0};

    if (!u->noted.span)
        return;
    snprintf(title, sizeof(title), "%s, step %d, %s", u->c->model.name, u->noted_step,
             pl_layout_text(layout, &u->c->layout));
    if (tr_timeline_write(u->c->timeline, &u->r.comms.world, &u->noted, u->noted_ns, title, &e) < 0)
        tr_event_warning(u->events, "timeline", e.text);
    tr_timeline_end(&u->noted);
}

/* The timeline is that of the first measured step, and noting ends with it. A trial keeps the notes
 * until it is over: collecting and writing them here would make the next step, which is measured,
 * begin unevenly. */
static void trace(struct run *u, const struct tr_clock *done)
{
    if (!done->span || u->step <= u->measured_from)
        return;
    u->noted = *done;
    u->noted_ns = u->begun_ns;
    u->noted_step = u->step;
    u->r.clock.span = NULL;
    u->r.clock.spans = u->r.clock.span_cap = 0;
    if (u->c->mode != TR_MODE_TRIAL)
        write_timeline(u);
}

/* Returns true if somebody asked to stop. What follows the step is charged to the next one. */
static bool one_step(struct run *u)
{
    struct tr_rank *r = &u->r;
    struct tr_result t;
    struct tr_clock done;
    uint64_t step_ns;

    read_samples(u, TR_SPLIT_TRAIN, u->samples, UINT64_MAX);
    tr_step_grads(r, &t, tr_stop_asked() ? 1.0 : 0.0);
    check_numbers(u, &t);
    u->step++;
    u->samples += (uint64_t)u->c->workload.global_batch;
    tr_optim_step(r, &u->optim, u->step, t.norm);
    tr_phase(&r->clock, TR_PHASE_OTHER);
    done = r->clock;
    step_ns = done.since_ns - u->begun_ns;
    trace(u, &done);
    u->longest_s = fmax(u->longest_s, (double)step_ns * 1e-9);
    begin(u);
    at_step(u);
    report_step(u, &t, &done, step_ns);
    return t.flag > 0;
}

/* ---- what happens between steps ---- */

static bool asked_anywhere(struct run *u)
{
    double asked = tr_stop_asked();

    tr_sum_double(&u->r.comms.world, &asked, 1);
    return asked > 0;
}

/* Samples of a validation: as many as asked for, or as the split has. */
static uint64_t validation_samples(const struct run *u)
{
    uint64_t asked = (uint64_t)u->c->train.validate_samples;
    uint64_t have = tr_tokens_samples(u->tokens, TR_SPLIT_VALIDATION);

    return asked < have ? asked : have;
}

/* Every sample counts once, whatever the batch and the layout: the last batch is filled up with
 * ignored ones. True if somebody asked to stop: then there is no result. */
static bool validate(struct run *u)
{
    uint64_t batch = (uint64_t)u->c->workload.global_batch, n = validation_samples(u);
    double sum = 0;

    for (uint64_t i = 0; i < n; i += batch) {
        struct tr_result t;

        read_samples(u, TR_SPLIT_VALIDATION, i, n);
        if (asked_anywhere(u))
            return true;
        tr_step_forward(&u->r, &t);
        sum += t.loss * (double)batch;
    }
    sum /= (double)n;
    tr_event_validation(u->events, u->step, sum, (int64_t)n * u->c->workload.seq);
    tr_watch_validation(u->watch, sum);
    return false;
}

/* Said before the training: what a validation will lack. */
static void check_validation(struct run *u)
{
    uint64_t have = validation_samples(u);
    char text[160];

    if (!u->c->train.validate_every || have == (uint64_t)u->c->train.validate_samples)
        return;
    if (have == 0)
        snprintf(text, sizeof(text), "the data set has no validation split: none will be made");
    else
        snprintf(text, sizeof(text),
                 "the validation split has %llu samples of %d tokens, not the %d of "
                 "--validate-samples: each of them counts once",
                 (unsigned long long)have, u->c->workload.seq, u->c->train.validate_samples);
    tr_event_warning(u->events, "validation", text);
}

static double since_start_s(const struct run *u)
{
    return (double)(clock_mono_ns() - u->start_ns) * 1e-9;
}

/* Every rank sees the same step times; elapsed time is not the same everywhere, so rank 0's counts.
 */
static bool timed_out(struct run *u)
{
    double late = 0;

    if (u->c->trial.timeout_s <= 0)
        return false;
    if (u->r.rank == 0 && since_start_s(u) > u->c->trial.timeout_s)
        late = 1;
    tr_sum_double(&u->r.comms.world, &late, 1);
    return late > 0;
}

static const char *trial_ends(struct run *u)
{
    const struct pl_trial_limits *t = &u->c->trial;
    struct tr_stats s;

    tr_measure_stats(&u->measure, &s);
    if (u->measure.n >= t->max_steps)
        return "max_steps";
    if (u->measure.n >= t->min_steps && s.ci95 <= t->ci * s.median)
        return "ci";
    return timed_out(u) ? "timeout" : NULL;
}

/* Returns true if somebody asked to stop. */
static bool between(struct run *u)
{
    const struct tr_config *c = u->c;
    bool last = c->mode == TR_MODE_TRAIN && u->step >= c->train.steps;

    if (c->mode == TR_MODE_TRIAL) {
        u->ended = trial_ends(u);
        return false;
    }
    if (last)
        u->ended = "steps";
    if (c->train.validate_every && (u->step % c->train.validate_every == 0 || last) &&
        tr_tokens_samples(u->tokens, TR_SPLIT_VALIDATION) > 0) {
        if (validate(u))
            return true;
        begin(u);
    }
    if (c->checkpoint.dir &&
        (last || (c->checkpoint.every && u->step % c->checkpoint.every == 0))) {
        tr_run_save(u);
        at_step(u);
        begin(u);
    }
    return false;
}

/* ---- the end ---- */

/* Measured memory of the rank that was handed out most, and the largest growth of resident memory.
 */
static void memory_totals(struct run *u, struct pl_memory *ret, double *ret_growth)
{
    struct tr_rank *r = &u->r;
    double mine[PL_MEM_CLASSES + 2];
    int n = (int)ARRAY_LEN(mine), best = 0;
    double *all = mem_alloc(sizeof(mine) * (size_t)u->c->layout.world);

    memcpy(mine, r->device.used.bytes, sizeof(r->device.used.bytes));
    mine[n - 2] = r->device.used.total;
    mine[n - 1] = resident_bytes() - u->resident0;
    tr_gather_double(&r->comms.world, mine, n, all);
    *ret_growth = 0;
    for (int i = 0; r->rank == 0 && i < u->c->layout.world; i++) {
        if (all[i * n + n - 2] > all[best * n + n - 2])
            best = i;
        *ret_growth = fmax(*ret_growth, all[i * n + n - 1]);
    }
    memcpy(ret->bytes, all + best * n, sizeof(ret->bytes));
    ret->total = all[best * n + n - 2];
    ret->rank = best;
    free(all);
}

static void summarize(struct run *u)
{
    const struct tr_config *c = u->c;
    struct pl_memory planned, measured = {0};
    struct tr_stats s;
    double tokens = (double)c->workload.global_batch * c->workload.seq;
    struct tr_summary t = {.warmup_steps = u->measured_from,
                           .planned = &planned,
                           .measured = &measured,
                           .loss_first = u->loss_first,
                           .loss_last = u->loss_last,
                           .ended = u->ended};

    memory_totals(u, &measured, &t.resident_growth_bytes);
    worst_planned(u, &planned);
    tr_measure_stats(&u->measure, &s);
    t.steps = u->measure.n;
    t.ms_median = s.median;
    t.ms_p10 = s.p10;
    t.ms_p90 = s.p90;
    t.ms_ci95 = s.ci95;
    if (s.median > 0) {
        t.tokens_per_s = tokens / (s.median * 1e-3);
        /* A 95 % interval is 1.96 standard errors to each side; relative errors of time and rate
         * agree. */
        t.tokens_per_s_se = t.tokens_per_s * (s.ci95 / 1.96) / s.median;
    }
    tr_event_summary(u->events, &t);
}

static int finish(struct run *u, bool stopped)
{
    const struct tr_config *c = u->c;

    if (stopped) {
        if (c->checkpoint.dir && u->step > 0)
            tr_run_save(u);
        tr_event_stopped(u->events, u->step, "signal");
        return TR_EXIT_STOPPED;
    }
    tr_run_save_hf(u);
    tr_optim_settle(&u->r);
    at_step(u);
    summarize(u);
    return TR_EXIT_OK;
}

int tr_run(const struct tr_config *c, struct tr_events *events)
{
    struct run u = {
        .c = c, .events = events, .start_ns = clock_mono_ns(), .resident0 = resident_bytes()};
    struct err e = {0};
    bool stopped = false;
    int code;

    tr_stop_watch(late);
    if (events) { /* rank 0 */
        if (tr_watch_open(&u.watch, c, events, &e) < 0)
            tr_fail(TR_ERROR_IO, e.text);
    }
    rank_init(&u);
    tr_run_room(&u);
    tokens_open(&u);
    optim_init(&u);
    say_hello(&u);
    check_validation(&u);
    tr_run_weights(&u);
    at_step(&u);
    u.measured_from = u.step + c->trial.warmup_steps;
    if (c->mode == TR_MODE_TRAIN && u.step >= c->train.steps)
        u.ended = "steps";
    if (c->timeline)
        tr_timeline_begin(&u.r.clock, SPANS_MAX);
    begin(&u);
    while (!u.ended && !stopped) {
        stopped = one_step(&u);
        if (!stopped)
            stopped = between(&u);
    }
    write_timeline(&u);
    code = finish(&u, stopped);
    tr_stop_over();
    tr_timeline_end(&u.r.clock);
    tr_rank_done(&u.r);
    tr_tokens_free(u.tokens);
    tr_watch_free(u.watch);
    tr_claim_free(u.claim);
    tr_claim_free(u.claim_hf);
    tr_measure_done(&u.measure);
    free(u.part);
    free(u.times);
    free(u.busy);
    free(u.sorted);
    return code;
}
