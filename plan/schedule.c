/*
 * Pipeline schedules as data.
 *
 *   gpipe        all forwards, then all backwards (Huang et al. 2019): most memory, bubble
 *                (pp - 1) / (mb + pp - 1).
 *   1f1b         pp - 1 - stage forwards ahead, then alternate, then drain (PipeDream-flush): the
 *                same bubble, at most pp - stage micro-batches live.
 *   interleaved  each stage has vp chunks of layers and micro-batches pass in groups of pp
 *                (Narayanan et al. 2021): the bubble shrinks by vp, more messages, more live
 *                activations.
 *   zero-bubble  ZB-H1 (Qi et al. 2023): 1f1b whose backward is cut in two; the gradient of the
 *                weights, for which nothing waits, is put off by `stage` micro-batches and fills
 *                the drain. At most pp micro-batches live on any stage.
 *   zb-v         two chunks a stage in the shape of a V, so that the first stage also has the last
 *                chunk and begins to go back at once; no bubble where F = B = W, at most 2 pp
 *                chunks live (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", ZB-V).
 *   dualpipe-v   the same V; in its steady state a forward and a backward pass of different
 *                micro-batches run together (DeepSeek-V3's DualPipe, folded so that no weights are
 *                held twice); at most 2 pp + 1 chunks live.
 *   dualpipe     half of the micro-batches go down the stages, half up, each direction with its own
 *                copy of the weights (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report"). Ranks s
 *                and pp - 1 - s mirror each other, so that each runs the steps of dualpipe-v of
 *                half the pipeline: bubble (pp / 2 - 1)(F&B + B - 3W), at most pp + 1 chunks live.
 * The orders of zb-v and dualpipe-v are those of torch.distributed.pipelining.
 */
#include "base/base.h"
#include "plan/plan.h"
#include "plan/stages.h"

#include <assert.h>

struct out {
    struct pl_step *step; /* or NULL */
    int n;
};

static void put(struct out *out, enum pl_step_op op, int chunk, int mb)
{
    if (out->step)
        out->step[out->n] = (struct pl_step){(uint8_t)op, false, (uint16_t)chunk, mb};
    out->n++;
}

static void gpipe(struct out *out, int mbs)
{
    for (int i = 0; i < mbs; i++)
        put(out, PL_FORWARD, 0, i);
    for (int i = 0; i < mbs; i++)
        put(out, PL_BACKWARD, 0, i);
}

static void one_f_one_b(struct out *out, int stage, int pp, int mbs)
{
    int ahead = pp - 1 - stage, f = 0, b = 0;

    while (b < mbs) {
        if (f < mbs && f - b <= ahead)
            put(out, PL_FORWARD, 0, f++);
        else
            put(out, PL_BACKWARD, 0, b++);
    }
}

static void zero_bubble(struct out *out, int stage, int pp, int mbs)
{
    int ahead = pp - 1 - stage, f = 0, b = 0, w = 0;

    while (b < mbs) {
        if (f < mbs && f - b <= ahead) {
            put(out, PL_FORWARD, 0, f++);
            continue;
        }
        put(out, PL_BACKWARD_INPUT, 0, b++);
        if (b - w > stage)
            put(out, PL_BACKWARD_WEIGHT, 0, w++);
    }
    while (w < mbs)
        put(out, PL_BACKWARD_WEIGHT, 0, w++);
}

/* The k-th pass of a stage: groups of pp micro-batches go through chunk 0, then chunk 1, ... */
static void interleaved_put(struct out *out, enum pl_step_op op, int k, int pp, int vp)
{
    int in_group = k % (pp * vp), chunk = in_group / pp;

    put(out, op, op == PL_FORWARD ? chunk : vp - 1 - chunk, k / (pp * vp) * pp + in_group % pp);
}

/* Forward passes that a stage may be ahead of its backward passes, where a step has MOST
 * micro-batches at most. */
static int interleaved_ahead(int stage, int pp, int vp, int most)
{
    return most == pp ? most * vp : (pp - 1 - stage) * 2 + (vp - 1) * pp;
}

static void interleaved(struct out *out, int stage, int pp, int vp, int mbs, int most)
{
    int total = mbs * vp, ahead = interleaved_ahead(stage, pp, vp, most);
    int f = 0, b = 0;

    assert(mbs % pp == 0);
    while (b < total) {
        if (f < total && f - b <= ahead)
            interleaved_put(out, PL_FORWARD, f++, pp, vp);
        else
            interleaved_put(out, PL_BACKWARD, b++, pp, vp);
    }
}

/* ---- V ------------------------------------------------------------------- */

/* The two chunks of a stage, and the next micro-batch of each pass of them. */
struct vee {
    struct out *out;
    int mbs;
    int next[4][2]; /* [enum pl_step_op][chunk] */
};

/* Micro-batches that a step does not have are left out. */
static void vee_put(struct vee *vee, enum pl_step_op op, int chunk)
{
    int mb = vee->next[op][chunk]++;

    if (mb < vee->mbs)
        put(vee->out, op, chunk, mb);
}

static void vee_forward(struct vee *vee, int chunk)
{
    vee_put(vee, PL_FORWARD, chunk);
}

static void vee_input(struct vee *vee, int chunk)
{
    vee_put(vee, PL_BACKWARD_INPUT, chunk);
}

static void vee_weight(struct vee *vee, int chunk)
{
    vee_put(vee, PL_BACKWARD_WEIGHT, chunk);
}

static void vee_halves(struct vee *vee, int chunk)
{
    vee_input(vee, chunk);
    vee_weight(vee, chunk);
}

static void zb_v(struct out *out, int stage, int pp, int mbs)
{
    struct vee v = {.out = out, .mbs = mbs};
    const int *f = v.next[PL_FORWARD], *b = v.next[PL_BACKWARD_INPUT];
    int all = mbs > 2 * pp - 1 ? mbs : 2 * pp - 1; /* what fills the V */

    for (int i = 0; i < 2 * (pp - stage) - 1; i++)
        vee_forward(&v, 0);
    for (int i = 0; i < stage; i++) {
        vee_forward(&v, 1);
        vee_forward(&v, 0);
    }
    for (int i = stage; i < pp; i++) {
        vee_forward(&v, 1);
        vee_halves(&v, 1);
    }
    while (f[1] < f[0] || f[0] < all) {
        if (f[0] < all)
            vee_forward(&v, 0);
        vee_halves(&v, 0);
        vee_forward(&v, 1);
        vee_halves(&v, 1);
    }
    for (int i = 0; i < stage; i++) {
        vee_input(&v, 0);
        vee_input(&v, 1);
    }
    for (int i = stage; i < pp; i++)
        vee_halves(&v, 0);
    for (int chunk = 1; chunk >= 0; chunk--)
        while (v.next[PL_BACKWARD_WEIGHT][chunk] < b[chunk])
            vee_weight(&v, chunk);
}

/* The whole backward pass; nothing is put off. */
static void vee_backward(struct vee *vee, int chunk)
{
    vee->next[PL_BACKWARD_WEIGHT][chunk]++;
    put(vee->out, PL_BACKWARD, chunk, vee->next[PL_BACKWARD_INPUT][chunk]++);
}

/* A forward pass of CHUNK together with a backward pass of the other one. */
static void vee_pair(struct vee *vee, int chunk)
{
    vee_forward(vee, chunk);
    if (vee->out->step)
        vee->out->step[vee->out->n - 1].with_next = true;
    vee_backward(vee, 1 - chunk);
}

/* When nothing goes forward any more, the chunks take turns in 2 (stage + 1) backward passes, of
 * which the second half puts off the weights; they follow in the same order, at first between the
 * last passes of chunk 0. */
static void dualpipe_v_drain(struct vee *vee, int stage, int pp)
{
    int half = stage + 1, weights = 0;

    for (int i = 0; i < 2 * half; i++) {
        if (i < half)
            vee_backward(vee, 1 - i % 2);
        else
            vee_input(vee, 1 - i % 2);
    }
    for (; weights < pp; weights++) {
        vee_weight(vee, weights < half ? 1 - (half + weights) % 2 : 0);
        if (weights < pp - half)
            vee_input(vee, 0);
    }
}

static void dualpipe_v(struct out *out, int stage, int pp, int mbs)
{
    struct vee v = {.out = out, .mbs = mbs};

    assert(mbs >= 2 * pp);
    for (int i = 0; i < 2 * (pp - stage - 1); i++)
        vee_forward(&v, 0);
    for (int i = 0; i <= stage; i++) {
        vee_forward(&v, 0);
        vee_forward(&v, 1);
    }
    for (int i = stage + 1; i < pp; i++) {
        vee_halves(&v, 1);
        vee_forward(&v, 1);
    }
    for (int i = 0; i < mbs - 2 * pp + stage + 1; i++) {
        if (i == 0 && stage == pp - 1) { /* apart, the pass before the turn ends sooner */
            vee_forward(&v, 0);
            vee_backward(&v, 1);
        } else {
            vee_pair(&v, 0);
        }
        vee_pair(&v, 1);
    }
    for (int i = stage + 1; i < pp; i++) {
        vee_backward(&v, 1);
        vee_pair(&v, 1);
    }
    dualpipe_v_drain(&v, stage, pp);
}

/* The first half of the ranks goes forward in direction 0 first, the second half in direction 1. */
static void dualpipe(struct out *out, int stage, int pp, int mbs)
{
    bool second = stage >= pp / 2;

    assert(pp % 2 == 0 && mbs % 2 == 0);
    dualpipe_v(out, second ? pp - 1 - stage : stage, pp / 2, mbs / 2);
    for (int i = 0; out->step && i < out->n; i++) {
        out->step[i].chunk = second != (out->step[i].chunk > 0);
        out->step[i].mb += out->step[i].chunk ? mbs / 2 : 0;
    }
}

int pl_schedule_steps(struct pl_step *ret, enum pl_schedule schedule, int stage, int pp, int vp,
                      int microbatches)
{
    return pl_schedule_fewer(ret, schedule, stage, pp, vp, microbatches, microbatches);
}

int pl_schedule_fewer(struct pl_step *ret, enum pl_schedule schedule, int stage, int pp, int vp,
                      int microbatches, int most)
{
    struct out o = {.step = ret};

    assert(stage >= 0 && stage < pp && vp >= 1 && microbatches >= 1 && microbatches <= most);
    if (schedule == PL_ZB_V)
        zb_v(&o, stage, pp, microbatches);
    else if (schedule == PL_DUALPIPE_V)
        dualpipe_v(&o, stage, pp, microbatches);
    else if (schedule == PL_DUALPIPE && pp > 1)
        dualpipe(&o, stage, pp, microbatches);
    else if (vp > 1)
        interleaved(&o, stage, pp, vp, microbatches, most);
    else if (schedule == PL_GPIPE)
        gpipe(&o, microbatches);
    else if (schedule == PL_ZERO_BUBBLE)
        zero_bubble(&o, stage, pp, microbatches);
    else
        one_f_one_b(&o, stage, pp, microbatches);
    return o.n;
}

static int min(int left, int right)
{
    return left < right ? left : right;
}

/* Passes of CHUNK among the first DONE of a stage, where chunks take turns of PP passes each. */
static int passes_of(int done, int chunk, int pp, int vp)
{
    int rest = done % (pp * vp) - chunk * pp;

    return done / (pp * vp) * pp + (rest < 0 ? 0 : min(rest, pp));
}

/*
 * The forward pass number f comes after f - 1 - AHEAD backward passes. What a chunk holds grows
 * with its own forward passes only, so it is highest where a turn of them ends: f = turn * pp * vp
 * + (chunk + 1) * pp. Once backward passes have begun, all turns are alike.
 */
static int interleaved_live(int stage, int pp, int vp, int mbs, int chunk)
{
    int ahead = interleaved_ahead(stage, pp, vp, mbs), most = 0;

    for (int turn = 0; turn < mbs / pp; turn++) {
        int forward = turn * pp * vp + (chunk + 1) * pp, backward = forward - 1 - ahead;
        int now = (turn + 1) * pp - passes_of(backward > 0 ? backward : 0, vp - 1 - chunk, pp, vp);

        most = now > most ? now : most;
        if (backward > 0)
            break;
    }
    return most;
}

int pl_schedule_live(enum pl_schedule schedule, int stage, int pp, int vp, int microbatches,
                     int chunk)
{
    if (schedule == PL_DUALPIPE && pp > 1) {
        bool second = stage >= pp / 2;

        return pl_schedule_live(PL_DUALPIPE_V, second ? pp - 1 - stage : stage, pp / 2, 2,
                                microbatches / 2, second ? 1 - chunk : chunk);
    }
    assert(stage >= 0 && stage < pp && chunk >= 0 && chunk < vp);
    if (pl_schedule_is_v(schedule))
        return min(microbatches, chunk ? stage + 1 : 2 * pp - stage);
    if (vp > 1)
        return interleaved_live(stage, pp, vp, microbatches, chunk);
    if (schedule == PL_GPIPE)
        return microbatches;
    return min(microbatches, schedule == PL_ZERO_BUBBLE ? pp : pp - stage);
}

int pl_schedule_live_grads(enum pl_schedule schedule, int stage, int vp, int microbatches)
{
    assert(!pl_schedule_is_v(schedule) && schedule != PL_DUALPIPE);
    return schedule != PL_ZERO_BUBBLE || vp > 1 ? 0 : min(microbatches, stage + 1);
}

int pl_microbatches(const struct pl_layout *layout, const struct pl_workload *workload)
{
    return pl_batch(workload, layout) / (layout->micro_batch * layout->dp);
}
