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
    const struct pl_pipe *p;
    struct pl_step *step; /* of all stages, each at its stage's first */
    size_t *first;        /* of stage s; first[pp] is the end */
    size_t *next;
    double *clock;   /* of a stage */
    double *done[2]; /* forward, gradient of the input: [virtual stage * microbatches + mb], -1: not
                        yet */
    struct pl_span *span;
};

static void sim_done(struct sim *m)
{
    free(m->step);
    free(m->first);
    free(m->next);
    free(m->clock);
    free(m->done[0]);
    free(m->done[1]);
    free(m->span);
}

static void prepare(struct sim *m)
{
    const struct pl_pipe *p = m->p;
    size_t cells = (size_t)p->pp * (size_t)p->vp * (size_t)p->microbatches, n = 0;

    m->first = mem_alloc(((size_t)p->pp + 1) * sizeof(*m->first));
    m->next = mem_alloc((size_t)p->pp * sizeof(*m->next));
    m->clock = mem_alloc((size_t)p->pp * sizeof(*m->clock));
    m->step = mem_alloc(3 * cells * sizeof(*m->step));
    m->span = mem_alloc(3 * cells * sizeof(*m->span));
    for (int i = 0; i < 2; i++) {
        m->done[i] = mem_alloc(cells * sizeof(double));
        for (size_t j = 0; j < cells; j++)
            m->done[i][j] = -1;
    }
    for (int s = 0; s < p->pp; s++) {
        m->first[s] = m->next[s] = n;
        n += (size_t)pl_schedule_steps(m->step + n, p->schedule, s, p->pp, p->vp, p->microbatches);
    }
    m->first[p->pp] = n;
}

static double *cell(const struct sim *m, bool backward, int virtual, int mb)
{
    return &m->done[backward][(size_t) virtual * (size_t)m->p->microbatches + (size_t)mb];
}

/* When the step of STAGE may start; negative: not yet known. */
static double start_of(const struct sim *m, int stage, const struct pl_step *s)
{
    const struct pl_pipe *p = m->p;
    int at = s->chunk * p->pp + stage, last = p->pp * p->vp - 1;
    bool backward = s->op != PL_FORWARD, crosses;
    double need, now = m->clock[stage];

    if (s->op == PL_BACKWARD_WEIGHT) {
        need = *cell(m, true, at, s->mb);
        return need < 0 ? -1 : need > now ? need : now;
    }
    if (!backward && at == 0)
        return now;
    need = backward ? (at == last ? *cell(m, false, at, s->mb) : *cell(m, true, at + 1, s->mb))
                    : *cell(m, false, at - 1, s->mb);
    if (need < 0)
        return -1;
    crosses = p->pp > 1 && !(backward && at == last);
    if (crosses && p->overlap)
        need += p->message_s;
    return (need > now ? need : now) + (crosses && !p->overlap ? p->message_s : 0);
}

static double length_of(const struct sim *m, int stage, const struct pl_step *s)
{
    const struct pl_stage_time *t = &m->p->at[s->chunk * m->p->pp + stage];

    switch (s->op) {
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
static bool advance(struct sim *m, int stage)
{
    size_t i = m->next[stage];
    const struct pl_step *s = &m->step[i];
    double start, end;

    if (i == m->first[stage + 1] || (start = start_of(m, stage, s)) < 0)
        return false;
    end = start + length_of(m, stage, s);
    m->span[i] = (struct pl_span){start, end, stage, s->chunk, s->mb, s->op};
    m->clock[stage] = end;
    m->next[stage]++;
    if (s->op != PL_BACKWARD_WEIGHT)
        *cell(m, s->op != PL_FORWARD, s->chunk * m->p->pp + stage, s->mb) = end;
    return true;
}

int pl_simulate(struct pl_timeline *ret, const struct pl_pipe *p, struct err *e)
{
    struct sim m = {.p = p};
    double total = 0, busy = 0;
    bool moved = true;
    size_t ran = 0, all;

    if (p->pp < 1 || p->vp < 1 || p->microbatches < 1 ||
        (p->schedule == PL_INTERLEAVED) != (p->vp > 1) || (p->vp > 1 && p->microbatches % p->pp))
        return err_set(e, -EINVAL, "pp %d, vp %d and %d micro-batches have no such schedule", p->pp,
                       p->vp, p->microbatches);
    prepare(&m);
    all = m.first[p->pp];
    while (moved) {
        moved = false;
        for (int s = 0; s < p->pp; s++)
            while (advance(&m, s)) {
                moved = true;
                ran++;
            }
    }
    if (ran < all) {
        sim_done(&m);
        return err_set(e, -EDEADLK, "the schedule stops after %zu of %zu steps", ran, all);
    }
    for (size_t i = 0; i < all; i++) {
        busy += m.span[i].end - m.span[i].start;
        if (m.span[i].end > total)
            total = m.span[i].end;
    }
    *ret =
        (struct pl_timeline){TAKE(m.span), all, total, total > 0 ? 1 - busy / (total * p->pp) : 0};
    sim_done(&m);
    return 0;
}

void pl_timeline_done(struct pl_timeline *t)
{
    free(t->span);
    *t = (struct pl_timeline){0};
}

static const char *const ops[] = {"forward", "backward", "backward-input", "backward-weight"};

json_t *pl_timeline_json(const struct pl_timeline *t)
{
    json_t *list = json_array();

    for (size_t i = 0; i < t->n; i++) {
        const struct pl_span *s = &t->span[i];

        json_array_append_new(list, json_pack("{s:i s:i s:i s:s s:f s:f}", "stage", s->stage,
                                              "chunk", s->chunk, "micro_batch", s->mb, "op",
                                              ops[s->op], "start", s->start, "end", s->end));
    }
    return json_pack("{s:f s:f s:o}", "total", t->total, "idle", t->idle, "spans", list);
}

json_t *pl_timeline_trace(const struct pl_timeline *t)
{
    json_t *list = json_array();
    int named = 0;

    for (size_t i = 0; i < t->n; i++) {
        const struct pl_span *s = &t->span[i];

        for (; named <= s->stage; named++) {
            char stage[24];

            snprintf(stage, sizeof(stage), "stage %d", named);
            json_array_append_new(list, json_pack("{s:s s:s s:i s:i s:{s:s}}", "name",
                                                  "thread_name", "ph", "M", "pid", 0, "tid", named,
                                                  "args", "name", stage));
        }
        json_array_append_new(list, json_pack("{s:s s:s s:s s:i s:i s:f s:f s:{s:i s:i}}", "name",
                                              ops[s->op], "cat", "pipeline", "ph", "X", "pid", 0,
                                              "tid", s->stage, "ts", 1e6 * s->start, "dur",
                                              1e6 * (s->end - s->start), "args", "micro_batch",
                                              s->mb, "chunk", s->chunk));
    }
    return json_pack("{s:s s:o}", "displayTimeUnit", "ms", "traceEvents", list);
}
