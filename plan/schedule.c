/*
 * Pipeline schedules as data.
 *
 *   gpipe        all forwards, then all backwards (Huang et al. 2019): most memory, bubble
 *                (pp - 1) / (mb + pp - 1).
 *   1f1b         pp - 1 - stage forwards ahead, then alternate, then drain (PipeDream-flush): the
 * same bubble, at most pp - stage micro-batches live. interleaved  each stage has vp chunks of
 * layers and micro-batches pass in groups of pp (Narayanan et al. 2021): the bubble shrinks by vp,
 * more messages, more live activations. zero-bubble  ZB-H1 (Qi et al. 2023): 1f1b whose backward is
 * cut in two; the gradient of the weights, on which nobody waits, is put off by `stage`
 * micro-batches and fills the drain. At most pp micro-batches live on any stage.
 */
#include "base/base.h"
#include "plan/plan.h"

#include <assert.h>

struct out {
    struct pl_step *step; /* or NULL */
    int n;
};

static void put(struct out *o, enum pl_step_op op, int chunk, int mb)
{
    if (o->step)
        o->step[o->n] = (struct pl_step){(uint16_t)op, (uint16_t)chunk, mb};
    o->n++;
}

static void gpipe(struct out *o, int mbs)
{
    for (int i = 0; i < mbs; i++)
        put(o, PL_FORWARD, 0, i);
    for (int i = 0; i < mbs; i++)
        put(o, PL_BACKWARD, 0, i);
}

static void one_f_one_b(struct out *o, int stage, int pp, int mbs)
{
    int ahead = pp - 1 - stage, f = 0, b = 0;

    while (b < mbs) {
        if (f < mbs && f - b <= ahead)
            put(o, PL_FORWARD, 0, f++);
        else
            put(o, PL_BACKWARD, 0, b++);
    }
}

static void zero_bubble(struct out *o, int stage, int pp, int mbs)
{
    int ahead = pp - 1 - stage, f = 0, b = 0, w = 0;

    while (b < mbs) {
        if (f < mbs && f - b <= ahead) {
            put(o, PL_FORWARD, 0, f++);
            continue;
        }
        put(o, PL_BACKWARD_INPUT, 0, b++);
        if (b - w > stage)
            put(o, PL_BACKWARD_WEIGHT, 0, w++);
    }
    while (w < mbs)
        put(o, PL_BACKWARD_WEIGHT, 0, w++);
}

/* The k-th pass of a stage: groups of pp micro-batches go through chunk 0, then chunk 1, ... */
static void interleaved_put(struct out *o, enum pl_step_op op, int k, int pp, int vp)
{
    int in_group = k % (pp * vp), chunk = in_group / pp;

    put(o, op, op == PL_FORWARD ? chunk : vp - 1 - chunk, k / (pp * vp) * pp + in_group % pp);
}

static void interleaved(struct out *o, int stage, int pp, int vp, int mbs)
{
    int total = mbs * vp;
    int ahead = mbs == pp ? total : (pp - 1 - stage) * 2 + (vp - 1) * pp;
    int f = 0, b = 0;

    assert(mbs % pp == 0);
    while (b < total) {
        if (f < total && f - b <= ahead)
            interleaved_put(o, PL_FORWARD, f++, pp, vp);
        else
            interleaved_put(o, PL_BACKWARD, b++, pp, vp);
    }
}

int pl_schedule_steps(struct pl_step *out, enum pl_schedule schedule, int stage, int pp, int vp,
                      int microbatches)
{
    struct out o = {.step = out};

    if (vp > 1)
        interleaved(&o, stage, pp, vp, microbatches);
    else if (schedule == PL_GPIPE)
        gpipe(&o, microbatches);
    else if (schedule == PL_ZERO_BUBBLE)
        zero_bubble(&o, stage, pp, microbatches);
    else
        one_f_one_b(&o, stage, pp, microbatches);
    return o.n;
}

/* Most micro-batches of CHUNK between a step of OPEN and the step that closes it. */
static int live(enum pl_schedule schedule, int stage, int pp, int vp, int mbs, int chunk,
                enum pl_step_op open)
{
    struct pl_step *s = mem_alloc(sizeof(*s) * 3 * (size_t)vp * (size_t)mbs);
    int n = pl_schedule_steps(s, schedule, stage, pp, vp, mbs), now = 0, most = 0;

    for (int i = 0; i < n; i++) {
        if (s[i].chunk != chunk)
            continue;
        if (s[i].op == open)
            now++;
        else if (s[i].op == PL_BACKWARD || s[i].op == PL_BACKWARD_WEIGHT)
            now--;
        if (now > most)
            most = now;
    }
    free(s);
    return most;
}

int pl_schedule_live(enum pl_schedule schedule, int stage, int pp, int vp, int microbatches,
                     int chunk)
{
    return live(schedule, stage, pp, vp, microbatches, chunk, PL_FORWARD);
}

int pl_schedule_live_grads(enum pl_schedule schedule, int stage, int pp, int vp, int microbatches,
                           int chunk)
{
    if (schedule != PL_ZERO_BUBBLE || vp > 1)
        return 0;
    return live(schedule, stage, pp, vp, microbatches, chunk, PL_BACKWARD_INPUT);
}

int pl_microbatches(const struct pl_layout *l, const struct pl_workload *w)
{
    return w->global_batch / (l->micro_batch * l->dp);
}
