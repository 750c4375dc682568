/* A pipeline's seconds in closed form, from the times of its stages. */
#include "plan/cost_parts.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"
#include "plan/stages.h"

/* Do the two chunks of a rank lie at opposite distances from the ends of the pipeline? */
static bool has_v_bubble(int schedule)
{
    return pl_schedule_is_v(schedule) || schedule == PL_DUALPIPE;
}

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
    default:
        assert(!has_v_bubble(schedule));
        if (overlap)
            return 2 * micro * (pp - 1) / pp + ends;
    }
    return pp == 2 ? micro + 1 : 2 * micro + ends - 1;
}

/*
 * In 1F1B stage s runs a forward ahead for each stage behind it. So between stages s and e there is
 * a loop of dependences that takes all their passes and all messages between them, there and back,
 * and comes round with e - s + 1 micro-batches: a micro-batch of the steady state waits for
 *     2 sum_{s <= b < e} m_b / (e - s + 1)
 * and the pipeline for the largest of those. With equal messages that is all stages and
 * 2 m (PP - 1) / PP, as above; this is the m that gives the same.
 */
double pl_message_chain_s(int pp, const double *border_s)
{
    double chain = 0;

    for (int s = 0; s < pp - 1; s++) {
        double there = 0;

        for (int e = s + 1; e < pp; e++) {
            there += border_s[e - 1];
            chain = fmax(chain, 2 * there / (e - s + 1));
        }
    }
    return pp > 1 ? chain * pp / (2.0 * (pp - 1)) : 0;
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

/* A way through the events that may be the critical one: what it adds to a stage's own work. */
struct path {
    double seconds;
    double messages;
};

static double longest(const struct path *path, size_t n, double message_s)
{
    double ret = path[0].seconds + path[0].messages * message_s;

    for (size_t i = 1; i < n; i++) {
        double one = path[i].seconds + path[i].messages * message_s;

        ret = one > ret ? one : ret;
    }
    return ret;
}

/* With F = I = W all that is left is the way to the last stage and back. */
static double zb_v_bubble(int pp, double micro, const struct pl_stage_time *chunk, double message_s,
                          bool overlap)
{
    double n = pp - 1, f = chunk->forward, w = chunk->weight, i = chunk->backward - w;
    /* receipts beside those of the two chunks of the ends, or of the four in the middle */
    double twice = overlap ? 0 : 2 * micro, more = overlap ? 0 : pp == 2 ? twice : 4 * micro;
    bool two = !overlap && pp == 2, wait = !overlap && pp > 2;
    const struct path path[] = {
        {i + (n - 1) * w, overlap ? 3 * n : more - 2 * wait},
        {f + (n - 1) * w, overlap ? 3 * n - 2 : more - wait},
        {pp > 2 ? f + (n - 2) * i + w : 0,
         overlap ? 0 : more + (pp > 2 ? n - 3 : 0)}, /* where F = I = W */
        {n * i, overlap ? 5 * n - 2 : twice + (two ? 0 : 3 * n)},
        {2 * n * (i - w), overlap ? 6 * n - 2 : twice + (two ? 1 : 4 * n)},
        {(2 * n - 1) * f - (n - 1) * i, overlap ? 3 * n - 2 : twice + (two ? 0 : 2 * n - 1)},
        {(2 * n - 1) * f + i - 2 * n * w, overlap ? 4 * n - 2 : twice + (two ? 1 : 3 * n - 1)},
        {2 * n * f - n * i - w, overlap ? 3 * n : twice + (two ? 1 : 2 * n - 2)},
        {2 * n * f - (2 * n + 1) * w, overlap ? 4 * n : twice + (two ? 1 : 3 * n - 2)},
        /* fewer micro-batches than fill it */
        {2 * pp * (f + i) - 2 * i - 2 * micro * f, 4 * n + (overlap ? 0 : micro - 1)},
    };

    return longest(path, ARRAY_LEN(path) - (micro >= 2 * pp - 1), message_s);
}

/*
 * DeepSeek's (n + 1 - 1)(F&B + B - 3W), less the F of the end where input and weights take unlike
 * times; n + 1 ranks turn back. DualPipe's micro-batches cross to another rank where DualPipeV's
 * turn. With overlap messages show on a chain around the pipeline, as 1F1B's: every n + 1
 * micro-batches it saves the turn.
 */
static double dualpipe_bubble(bool crosses, double n, double micro,
                              const struct pl_stage_time *chunk, double message_s, bool overlap)
{
    double f = chunk->forward, w = chunk->weight, i = chunk->backward - w;
    double steady = 2 * micro, forward, input, weight = n;

    if (overlap) {
        double saved = floor((micro - 2) / (n + 1)) - 1;

        steady = 2 * (micro - 2 * (n + 1)) - (crosses ? 1 : 2) * saved;
        forward = crosses ? 6 * n + 2 : 5 * n - 2;
        input = 7 * n + (crosses ? 2 : -2);
    } else if (crosses) {
        steady = n > 0 ? 2 * micro : micro;
        forward = 3 * n + 1;
        input = 3 * n - 1;
    } else {
        steady = n > 1 ? 2 * micro : micro + 4;
        forward = 2 * n - 2;
        input = n > 1 ? 3 * n - 3 : -1;
        weight = n - 1;
    }
    return longest((const struct path[]){{2 * n * f, steady + forward},
                                         {(n - 1) * f + n * i, steady + input}},
                   2, message_s) +
           longest((const struct path[]){{0, 0}, {n * (i - w), weight}}, 2, message_s);
}

/*
 * With F forward, I and W the two halves of the backward pass of one chunk, each is the length of a
 * path around the V less what a stage computes: which of them is critical follows from their
 * ratios. They were counted in the event simulator, and are exact there for equal stages.
 */
double pl_v_bubble(int schedule, int pp, double micro, const struct pl_stage_time *chunk,
                   double message_s, bool overlap)
{
    assert(has_v_bubble(schedule));
    if (schedule == PL_ZB_V)
        return zb_v_bubble(pp, micro, chunk, message_s, overlap);
    if (schedule == PL_DUALPIPE)
        return dualpipe_bubble(true, pp / 2 - 1, micro / 2, chunk, message_s, overlap);
    return dualpipe_bubble(false, pp - 1, micro, chunk, message_s, overlap);
}

/* A V: the slowest stage works all the time but for the bubble of a V of chunks like those of the
 * other stages. */
static double v_seconds(const struct pl_pipe *pipe)
{
    struct pl_stage_time all = {0}, slow = {0}, each;
    bool both = pipe->schedule == PL_DUALPIPE;
    int ranks = both ? pipe->pp / 2 : pipe->pp;
    double most = 0, others = ranks > 1 ? 2.0 * (ranks - 1) : 1;

    for (int s = 0; s < ranks; s++) {
        const struct pl_stage_time *down = &pipe->at[s], *up = &pipe->at[2 * ranks - 1 - s];
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
    return most * (both ? pipe->microbatches / 2 : pipe->microbatches) +
           pl_v_bubble((int)pipe->schedule, pipe->pp, pipe->microbatches, &each, pipe->message_s,
                       pipe->overlap);
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
    assert(pipe->pp >= 1 && pipe->vp >= 1 && pipe->microbatches >= 1);
    assert(!pl_schedule_is_v(pipe->schedule) || (pipe->pp > 1 && pipe->vp == 2));
    assert(pipe->schedule != PL_DUALPIPE || (pipe->pp % 2 == 0 && pipe->vp == 1));
    assert(!pipe->border_s);
    if (has_v_bubble(pipe->schedule))
        return v_seconds(pipe);
    return looped_seconds(pipe) + pipe->message_s * pl_messages(pipe->schedule, pipe->pp, pipe->vp,
                                                                pipe->microbatches, pipe->overlap);
}
