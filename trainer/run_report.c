/* What a run tells: of each step its times by rank and phase, and at its end a summary. */
#include "base/base.h"
#include "trainer/run_state.h"

#include "trainer/backend.h"
#include "trainer/balance.h"

#include <assert.h>
#include <math.h>
#include <unistd.h>

double tr_run_resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

void tr_run_planned(struct pl_memory *ret, const struct run *run)
{
    struct pl_problem problem = tr_config_problem(run->c);

    pl_memory_worst(ret, &problem, &run->c->layout);
}

/* ---- a step -------------------------------------------------------------- */

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

/* The step took MS, with as many sequences as the rank has been told last. */
static void measure(struct run *run, double ms)
{
    const struct tr_config *c = run->c;

    tr_measure_add(&run->measure, ms);
    if (c->ramp.start)
        tr_measure_add(&run->full_ms, ms * c->workload.global_batch / run->r.workload.global_batch);
}

bool tr_run_logs_layers(const struct run *run)
{
    return run->layers && run->step % run->c->train.layer_metrics_every == 0;
}

void tr_run_report(struct run *run, const struct tr_result *result, bool skipped,
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

    if (tr_run_logs_layers(run))
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

/* ---- the end ------------------------------------------------------------- */

/* What a rank has at the end: doubles alone. */
struct figures {
    double bytes[PL_MEM_CLASSES], total, growth;
    struct tr_reading reading;
};

enum { FIGURES = sizeof(struct figures) / sizeof(double) };

/* What the driver holds next to the rank's buffers, where the plan has it: the context, NCCL's
 * buffers, and what is left for libraries, code and fragments. */
static void add_driver(struct figures *mine, const struct run *run)
{
    double context = (double)tr_backend_context(), unused = (double)kn_unused_own();
    double nccl = run->r.device.nccl_bytes;

    if (context <= 0 || unused <= 0 || run->c->cluster.device.context_gib <= 0)
        return;
    mine->bytes[PL_MEM_CONTEXT] = context;
    mine->bytes[PL_MEM_NCCL] = nccl;
    mine->bytes[PL_MEM_LIBRARY] = fmax((double)tr_backend_gpu()->memory - unused - context - nccl -
                                           (double)run->r.device.own.bytes,
                                       0);
    for (int i = PL_MEM_CONTEXT; i < PL_MEM_CLASSES; i++)
        mine->total += mine->bytes[i];
}

/* Measured memory of the rank that was handed out most, the largest growth of resident memory, the
 * joules of all devices or hosts, and what disturbed them. */
static void totals(struct pl_memory *ret, struct tr_summary *summary, struct run *run)
{
    struct tr_rank *r = &run->r;
    int best = 0, world = run->c->layout.world;
    AUTO_FREE struct figures *all = mem_alloc(sizeof(*all) * (size_t)world);
    AUTO_FREE struct tr_reading *reading = mem_alloc(sizeof(*reading) * (size_t)world);
    struct figures mine = {.total = r->device.used.total,
                           .growth = tr_run_resident_bytes() - run->resident0,
                           .reading = tr_meter_reading(&run->meter)};

    memcpy(mine.bytes, r->device.used.bytes, sizeof(mine.bytes));
    add_driver(&mine, run);
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

void tr_run_summarize(struct run *run)
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
    tr_run_planned(&planned, run);
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
