/* A pipeline's seconds in closed form, from the times of its stages. */
#include "plan/cost_parts.h"

#include <assert.h>

#include "base/base.h"
#include "plan/stages.h"

/*
 * Receipts that the slowest stage waits for, counted in the event simulator and exact there for
 * equal stages, but for interleaved schedules without overlap (within 4 pp).
 *
 * Where a message blocks its receiver, a stage in the middle waits for two a micro-batch and chunk;
 * one that overlaps compute shows only while the pipeline fills and drains. 1F1B is the exception:
 * its steady state is a chain of dependences around the pipeline, and messages on it show whether
 * or not they overlap compute.
 */
double pl_messages(int schedule, int pp, int vp, double micro, bool overlap)
{
    double ends = 2.0 * (pp - 2);

    if (pp == 1)
        return 0;
    switch (schedule) {
    case PL_GPIPE:
        return overlap ? 2.0 * (pp - 1) : 2 * micro + ends;
    case PL_INTERLEAVED:
        return overlap ? 2.0 * (pp * vp - 1) : (2 * vp - 1) * micro + 4.0 * (pp - 1);
    case PL_ZERO_BUBBLE:
        if (overlap)
            return 4.0 * (pp - 1);
        break;
    case PL_ZB_V:
        return overlap ? 5.0 * (pp - 1) - 2 : 2 * micro + 3.0 * (pp - 1);
    case PL_DUALPIPE_V: /* with overlap as 1F1B: a chain around the pipeline */
        if (!overlap)
            return pp == 2 ? 2 * micro + 2 : 4 * micro + 2.0 * pp - 10;
        return 2 * micro * (pp - 1) / pp + ends;
    default:
        if (overlap)
            return 2 * micro * (pp - 1) / pp + ends;
    }
    return pp == 2 ? micro + 1 : 2 * micro + ends - 1;
}

/*
 * 1F1B when stage S is the slowest: it works without a gap once it has the first micro-batch, the
 * stages before it add one micro-batch each, and those after it add one each less what S does ahead
 * meanwhile (it runs a forward ahead for each of them): their time T_j appears as T_j - (T_S -
 * T_j). With S last this is the textbook's (m + pp - 1) T.
 */
static double one_f_one_b(const double *t, int pp, int s, double micro)
{
    double before = 0, after = 0;

    for (int j = 0; j < s; j++)
        before += t[j];
    for (int j = s + 1; j < pp; j++)
        after += 2 * t[j] - t[s];
    return micro * t[s] + before + (after > 0 ? after : 0);
}

static double largest(const double *of, int n)
{
    double ret = 0;

    for (int i = 0; i < n; i++)
        ret = of[i] > ret ? of[i] : ret;
    return ret;
}

/*
 * With F forward, I and W the two halves of the backward pass of one chunk, each is the length of a
 * path around the V less what a stage computes: which of them is critical follows from their
 * ratios. They were counted in the event simulator, and are exact there for equal stages. Where F =
 * I = W all that is left of ZB-V's bubble is the way to the last stage and back. DualPipeV's is
 * DeepSeek's (pp - 1)(F&B + B - 3W) less the F of the end.
 */
double pl_v_bubble(int schedule, int pp, double micro, const struct pl_stage_time *chunk)
{
    double n = pp - 1, f = chunk->forward, w = chunk->weight, i = chunk->backward - w;

    if (schedule == PL_ZB_V) {
        const double path[] = {
            2 * n * (i - w),
            n * i,
            (2 * n - 1) * f - (n - 1) * i,
            f + (n - 1) * w,
            i + (n - 1) * w,
            (2 * n - 1) * f + i - 2 * n * w,
            2 * n * f - (2 * n + 1) * w,
            2 * n * f - n * i - w,
            2 * pp * (f + i) - 2 * i - 2 * micro * f, /* too few micro-batches to fill it */
        };

        return largest(path, ARRAY_LEN(path));
    }
    assert(schedule == PL_DUALPIPE_V);
    return largest((const double[]){2 * n * f, (n - 1) * f + n * i}, 2) + (i > w ? n * (i - w) : 0);
}

/* A V: the slowest stage works all the time but for the bubble of a V of chunks like those of the
 * other stages. */
static double v_seconds(const struct pl_pipe *pipe)
{
    struct pl_stage_time all = {0}, slow = {0}, each;
    double most = 0, others = 2.0 * (pipe->pp - 1);

    for (int s = 0; s < pipe->pp; s++) {
        const struct pl_stage_time *down = &pipe->at[s], *up = &pipe->at[2 * pipe->pp - 1 - s];
        struct pl_stage_time one = {down->forward + up->forward, down->backward + up->backward,
                                    down->weight + up->weight};

        all.forward += one.forward;
        all.backward += one.backward;
        all.weight += one.weight;
        if (one.forward + one.backward > most) {
            slow = one;
            most = one.forward + one.backward;
        }
    }
    each = (struct pl_stage_time){(all.forward - slow.forward) / others,
                                  (all.backward - slow.backward) / others,
                                  (all.weight - slow.weight) / others};
    return pipe->microbatches * most +
           pl_v_bubble((int)pipe->schedule, pipe->pp, pipe->microbatches, &each);
}

/*
 * The other schedules: the slowest stage works without a gap, and every other adds one micro-batch
 * while the pipeline fills and drains; a vp-th of it when interleaved (Narayanan et al. 2021); with
 * zero-bubble less twice the weight part, whose steps fill the gaps (Qi et al. 2023, ZB-H1: F + B -
 * 2W with B the whole backward pass).
 */
static double looped_seconds(const struct pl_pipe *pipe)
{
    double *t = mem_alloc((size_t)pipe->pp * sizeof(*t)), sum = 0, idle = 0, slow_idle = 0, seconds;
    int slow = 0;

    for (int s = 0; s < pipe->pp; s++) {
        double weight = 0;

        for (int c = 0; c < pipe->vp; c++) {
            const struct pl_stage_time *at = &pipe->at[c * pipe->pp + s];

            t[s] += at->forward + at->backward;
            weight += at->weight;
        }
        sum += t[s];
        idle += t[s] - 2 * weight;
        if (s == 0 || t[s] > t[slow]) {
            slow = s;
            slow_idle = t[s] - 2 * weight;
        }
    }
    idle = idle - slow_idle > 0 ? idle - slow_idle : 0;
    if (pipe->schedule == PL_ZERO_BUBBLE) {
        seconds = pipe->microbatches * t[slow] + idle;
    } else if (pipe->schedule == PL_1F1B) {
        double ours = one_f_one_b(t, pipe->pp, slow, pipe->microbatches);
        double last = one_f_one_b(t, pipe->pp, pipe->pp - 1, pipe->microbatches);

        seconds = ours > last ? ours : last;
    } else {
        seconds = pipe->microbatches * t[slow] + (sum - t[slow]) / pipe->vp;
    }
    free(t);
    return seconds;
}

double pl_pipe_seconds(const struct pl_pipe *pipe)
{
    bool v = pl_schedule_is_v(pipe->schedule);

    assert(pipe->pp >= 1 && pipe->vp >= 1 && pipe->microbatches >= 1);
    assert(!v || (pipe->pp > 1 && pipe->vp == 2));
    return (v ? v_seconds(pipe) : looped_seconds(pipe)) +
           pipe->message_s *
               pl_messages(pipe->schedule, pipe->pp, pipe->vp, pipe->microbatches, pipe->overlap);
}
