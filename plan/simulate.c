/*
 * The pipeline event by event: every stage runs the steps that its schedule lists, each as soon as
 * what it needs has arrived. A forward step needs the output of the virtual stage before, a
 * backward step the gradient of the one after (the last one its own forward step), a weight step
 * its own input step. Virtual stage c * pp + s is chunk c of stage s.
 *
 * A message takes message_s. Without overlap the receiver waits for it after both sides are ready;
 * with overlap it travels while the receiver still computes.
 */
#include "plan/plan.h"

#include <errno.h>

#include "base/base.h"

struct sim {
    const struct pl_pipe *pipe;
    struct pl_step *step; /* of all stages, each at its stage's first */
    size_t *first;        /* of stage s; first[pp] is the end */
    size_t *next;
    double *clock;   /* of a stage */
    double *done[2]; /* forward, gradient of the input: [virtual stage * microbatches + mb], -1: not
                        yet */
    struct pl_span *span;
};

static void sim_done(struct sim *sim)
{
    free(sim->step);
    free(sim->first);
    free(sim->next);
    free(sim->clock);
    free(sim->done[0]);
    free(sim->done[1]);
    free(sim->span);
}

static void prepare(struct sim *sim)
{
    const struct pl_pipe *pipe = sim->pipe;
    size_t cells = (size_t)pipe->pp * (size_t)pipe->vp * (size_t)pipe->microbatches, n = 0;

    sim->first = mem_alloc(((size_t)pipe->pp + 1) * sizeof(*sim->first));
    sim->next = mem_alloc((size_t)pipe->pp * sizeof(*sim->next));
    sim->clock = mem_alloc((size_t)pipe->pp * sizeof(*sim->clock));
    sim->step = mem_alloc(3 * cells * sizeof(*sim->step));
    sim->span = mem_alloc(3 * cells * sizeof(*sim->span));
    for (int i = 0; i < 2; i++) {
        sim->done[i] = mem_alloc(cells * sizeof(double));
        for (size_t j = 0; j < cells; j++)
            sim->done[i][j] = -1;
    }
    for (int s = 0; s < pipe->pp; s++) {
        sim->first[s] = sim->next[s] = n;
        n += (size_t)pl_schedule_steps(sim->step + n, pipe->schedule, s, pipe->pp, pipe->vp,
                                       pipe->microbatches);
    }
    sim->first[pipe->pp] = n;
}

static double *cell(const struct sim *sim, bool backward, int virtual, int mb)
{
    return &sim->done[backward][(size_t) virtual * (size_t)sim->pipe->microbatches + (size_t)mb];
}

/* When the step of STAGE may start; negative: not yet known. */
static double start_of(const struct sim *sim, int stage, const struct pl_step *step)
{
    const struct pl_pipe *pipe = sim->pipe;
    int at = step->chunk * pipe->pp + stage, last = pipe->pp * pipe->vp - 1;
    bool backward = step->op != PL_FORWARD, crosses;
    double need, now = sim->clock[stage];

    if (step->op == PL_BACKWARD_WEIGHT) {
        need = *cell(sim, true, at, step->mb);
        return need < 0 ? -1 : need > now ? need : now;
    }
    if (!backward && at == 0)
        return now;
    need = backward
               ? (at == last ? *cell(sim, false, at, step->mb) : *cell(sim, true, at + 1, step->mb))
               : *cell(sim, false, at - 1, step->mb);
    if (need < 0)
        return -1;
    crosses = pipe->pp > 1 && !(backward && at == last);
    if (crosses && pipe->overlap)
        need += pipe->message_s;
    return (need > now ? need : now) + (crosses && !pipe->overlap ? pipe->message_s : 0);
}

static double length_of(const struct sim *sim, int stage, const struct pl_step *step)
{
    const struct pl_stage_time *t = &sim->pipe->at[step->chunk * sim->pipe->pp + stage];

    switch (step->op) {
    case PL_FORWARD:
        return t->forward;
    case PL_BACKWARD_INPUT:
        return t->backward - t->weight;
    case PL_BACKWARD_WEIGHT:
        return t->weight;
    default:
        return t->backward;
    }
}

/* Run the next step of STAGE if it can; false if it must wait. */
static bool advance(struct sim *sim, int stage)
{
    size_t i = sim->next[stage];
    const struct pl_step *step = &sim->step[i];
    double start, end;

    if (i == sim->first[stage + 1] || (start = start_of(sim, stage, step)) < 0)
        return false;
    end = start + length_of(sim, stage, step);
    sim->span[i] = (struct pl_span){start, end, stage, step->chunk, step->mb, step->op};
    sim->clock[stage] = end;
    sim->next[stage]++;
    if (step->op != PL_BACKWARD_WEIGHT)
        *cell(sim, step->op != PL_FORWARD, step->chunk * sim->pipe->pp + stage, step->mb) = end;
    return true;
}

int pl_simulate(struct pl_timeline *ret, const struct pl_pipe *pipe, struct err *error)
{
    struct sim m = {.pipe = pipe};
    double total = 0, busy = 0;
    bool moved = true;
    size_t ran = 0, all;

    if (pipe->pp < 1 || pipe->vp < 1 || pipe->microbatches < 1 ||
        (pipe->schedule == PL_INTERLEAVED) != (pipe->vp > 1) ||
        (pipe->vp > 1 && pipe->microbatches % pipe->pp))
        return err_set(error, -EINVAL, "pp %d, vp %d and %d micro-batches have no such schedule",
                       pipe->pp, pipe->vp, pipe->microbatches);
    prepare(&m);
    all = m.first[pipe->pp];
    while (moved) {
        moved = false;
        for (int s = 0; s < pipe->pp; s++)
            while (advance(&m, s)) {
                moved = true;
                ran++;
            }
    }
    if (ran < all) {
        sim_done(&m);
        return err_set(error, -EDEADLK, "the schedule stops after %zu of %zu steps", ran, all);
    }
    for (size_t i = 0; i < all; i++) {
        busy += m.span[i].end - m.span[i].start;
        if (m.span[i].end > total)
            total = m.span[i].end;
    }
    *ret = (struct pl_timeline){TAKE(m.span), all, total,
                                total > 0 ? 1 - busy / (total * pipe->pp) : 0};
    sim_done(&m);
    return 0;
}

void pl_timeline_done(struct pl_timeline *timeline)
{
    free(timeline->span);
    *timeline = (struct pl_timeline){0};
}

static const char *const ops[] = {"forward", "backward", "backward-input", "backward-weight"};

json_t *pl_timeline_trace(const struct pl_timeline *timeline)
{
    json_t *list = json_array();
    int named = 0;

    for (size_t i = 0; i < timeline->n; i++) {
        const struct pl_span *span = &timeline->span[i];

        for (; named <= span->stage; named++) {
            char stage[24];

            snprintf(stage, sizeof(stage), "stage %d", named);
            json_array_append_new(list, json_pack("{s:s s:s s:i s:i s:{s:s}}", "name",
                                                  "thread_name", "ph", "M", "pid", 0, "tid", named,
                                                  "args", "name", stage));
        }
        json_array_append_new(list, json_pack("{s:s s:s s:s s:i s:i s:f s:f s:{s:i s:i}}", "name",
                                              ops[span->op], "cat", "pipeline", "ph", "X", "pid", 0,
                                              "tid", span->stage, "ts", 1e6 * span->start, "dur",
                                              1e6 * (span->end - span->start), "args",
                                              "micro_batch", span->mb, "chunk", span->chunk));
    }
    return json_pack("{s:s s:o}", "displayTimeUnit", "ms", "traceEvents", list);
}
