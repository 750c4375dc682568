/*
 * The pipeline event by event: every stage runs the steps that its schedule lists, each as soon as
 * what it needs has arrived. A forward step needs the output of the virtual stage before, a
 * backward step the gradient of the one after (the last one its own forward step), a weight step
 * its own input step; pl_virtual_stage() says which chunk is which virtual stage. Where the V of a
 * schedule turns, both are on one stage, and no message is sent. DualPipe's second direction is a
 * pipeline of its own, behind the first one's virtual stages. Two steps that run together start
 * when both may, and their results exist when both are done.
 *
 * A message takes message_s, or what border_s says of its border. Without overlap the receiver
 * waits for it after both sides are ready; with overlap it travels while the receiver still
 * computes.
 */
#include "plan/plan.h"
#include "plan/stages.h"

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

static int chunks(const struct pl_pipe *pipe)
{
    return pipe->schedule == PL_DUALPIPE ? 2 : pipe->vp;
}

static void prepare(struct sim *sim)
{
    const struct pl_pipe *pipe = sim->pipe;
    size_t cells = (size_t)pipe->pp * (size_t)chunks(pipe) * (size_t)pipe->microbatches, n = 0;

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

static int virtual_of(const struct sim *sim, int stage, const struct pl_step *step)
{
    return pl_virtual_stage(sim->pipe->schedule, sim->pipe->pp, stage, step->chunk);
}

/* Do virtual stages AT and TO, which are neighbors, lie on different stages? */
static bool crosses_from(const struct pl_pipe *pipe, int at, int to)
{
    int later = at > to ? at : to;

    return pipe->pp > 1 && !(pl_schedule_is_v(pipe->schedule) && later == pipe->pp);
}

/* When the step of STAGE may start; negative: not yet known. */
static double start_of(const struct sim *sim, int stage, const struct pl_step *step)
{
    const struct pl_pipe *pipe = sim->pipe;
    int at = virtual_of(sim, stage, step), runs = pipe->pp * pipe->vp;
    bool first = at % runs == 0, last = at % runs == runs - 1;
    bool backward = step->op != PL_FORWARD, crosses;
    double need, now = sim->clock[stage], message_s;

    if (step->op == PL_BACKWARD_WEIGHT) {
        need = *cell(sim, true, at, step->mb);
        return need < 0 ? -1 : need > now ? need : now;
    }
    if (!backward && first)
        return now;
    need = backward ? (last ? *cell(sim, false, at, step->mb) : *cell(sim, true, at + 1, step->mb))
                    : *cell(sim, false, at - 1, step->mb);
    if (need < 0)
        return -1;
    crosses = !(backward && last) && crosses_from(pipe, at, backward ? at + 1 : at - 1);
    message_s = !crosses         ? 0
                : pipe->border_s ? pipe->border_s[backward ? at : at - 1]
                                 : pipe->message_s;
    if (pipe->overlap)
        need += message_s;
    return (need > now ? need : now) + (pipe->overlap ? 0 : message_s);
}

static double length_of(const struct sim *sim, int stage, const struct pl_step *step)
{
    const struct pl_stage_time *t =
        &sim->pipe->at[virtual_of(sim, stage, step) % (sim->pipe->pp * sim->pipe->vp)];

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

/* Run the next step of STAGE, with those that run together with it, if it can; returns how many
 * ran, 0 if it must wait. */
static size_t advance(struct sim *sim, int stage)
{
    size_t i = sim->next[stage], n = 0;
    double start = 0, end;

    if (i == sim->first[stage + 1])
        return 0;
    do {
        double one = start_of(sim, stage, &sim->step[i + n]);

        if (one < 0)
            return 0;
        start = one > start ? one : start;
    } while (sim->step[i + n++].with_next);
    end = start;
    for (size_t k = i; k < i + n; k++) {
        const struct pl_step *step = &sim->step[k];
        double from = end;

        end += length_of(sim, stage, step);
        sim->span[k] = (struct pl_span){from, end, stage, step->chunk, step->mb, step->op};
    }
    for (size_t k = i; k < i + n; k++)
        if (sim->step[k].op != PL_BACKWARD_WEIGHT)
            *cell(sim, sim->step[k].op != PL_FORWARD, virtual_of(sim, stage, &sim->step[k]),
                  sim->step[k].mb) = end;
    sim->clock[stage] = end;
    sim->next[stage] += n;
    return n;
}

/* Has the schedule steps for this shape? */
static bool has_steps(const struct pl_pipe *pipe)
{
    bool both = pipe->schedule == PL_DUALPIPE;
    int fewest = both || pipe->schedule == PL_DUALPIPE_V ? 2 * pipe->pp : 1;

    if (pipe->pp < 1 || pipe->vp < 1 || pipe->microbatches < fewest)
        return false;
    if (pl_schedule_is_v(pipe->schedule))
        return pipe->vp == 2;
    if (both)
        return pipe->vp == 1 && pipe->pp % 2 == 0 && pipe->microbatches % 2 == 0;
    return (pipe->schedule == PL_INTERLEAVED) == (pipe->vp > 1) &&
           (pipe->vp == 1 || pipe->microbatches % pipe->pp == 0);
}

int pl_simulate(struct pl_timeline *ret, const struct pl_pipe *pipe, struct err *error)
{
    struct sim m = {.pipe = pipe};
    double total = 0, busy = 0;
    size_t ran = 0, all, before;

    if (!has_steps(pipe))
        return err_set(error, -EINVAL, "pp %d, vp %d and %d micro-batches have no such schedule",
                       pipe->pp, pipe->vp, pipe->microbatches);
    prepare(&m);
    all = m.first[pipe->pp];
    do {
        before = ran;
        for (int s = 0; s < pipe->pp; s++)
            for (size_t n; (n = advance(&m, s)) > 0;)
                ran += n;
    } while (ran > before);
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
