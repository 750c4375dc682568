/*
 * Pipeline schedules, for every pp <= 8, up to 32 micro-batches and vp <= 4: all work is done once
 * and in order, memory is what the formula says, and no schedule can deadlock even if a send ends
 * only when its receiver asks for it and a stage owns just two send buffers for each direction.
 */
#include "plan/plan.h"
#include "plan/stages.h"
#include "tests/unit/unit.h"

enum { MAX_PP = 8, MAX_MB = 32, MAX_VP = 4, MAX_STEPS = 3 * MAX_MB * MAX_VP };

struct shape {
    enum pl_schedule schedule;
    int pp, vp, mbs;
    int most; /* micro-batches that the buffers are made for; 0: MBS */
};

static int steps_of(struct pl_step *ret, const struct shape *s, int stage)
{
    return pl_schedule_fewer(ret, s->schedule, stage, s->pp, s->vp, s->mbs,
                             s->most ? s->most : s->mbs);
}

static void each_shape(void (*fn)(const struct shape *))
{
    static const enum pl_schedule plain[] = {PL_GPIPE, PL_1F1B, PL_ZERO_BUBBLE};

    for (int pp = 1; pp <= MAX_PP; pp++)
        for (int mbs = 1; mbs <= MAX_MB; mbs++) {
            for (size_t i = 0; i < ARRAY_LEN(plain); i++)
                fn(&(struct shape){plain[i], pp, 1, mbs, 0});
            for (int vp = 2; vp <= MAX_VP && pp > 1; vp++)
                if (mbs % pp == 0)
                    fn(&(struct shape){PL_INTERLEAVED, pp, vp, mbs, 0});
            if (pp > 1)
                fn(&(struct shape){PL_ZB_V, pp, 2, mbs, 0});
            if (pp > 1 && mbs >= 2 * pp)
                fn(&(struct shape){PL_DUALPIPE_V, pp, 2, mbs, 0});
            if (pp % 2 == 0 && mbs % 2 == 0 && mbs >= 2 * pp)
                fn(&(struct shape){PL_DUALPIPE, pp, 1, mbs, 0});
        }
}

/* Each step of fewer micro-batches than the buffers are for. */
static void each_smaller(void (*fn)(const struct shape *))
{
    static const enum pl_schedule plain[] = {PL_GPIPE, PL_1F1B, PL_ZERO_BUBBLE};

    for (int pp = 1; pp <= MAX_PP; pp++)
        for (int mbs = 1; mbs < MAX_MB; mbs++)
            for (int most = mbs + 1; most <= MAX_MB; most++) {
                for (size_t i = 0; i < ARRAY_LEN(plain); i++)
                    fn(&(struct shape){plain[i], pp, 1, mbs, most});
                for (int vp = 2; vp <= MAX_VP && pp > 1; vp++)
                    if (mbs % pp == 0 && most % pp == 0)
                        fn(&(struct shape){PL_INTERLEAVED, pp, vp, mbs, most});
            }
}

static int chunks_of(const struct shape *s)
{
    return s->schedule == PL_DUALPIPE ? 2 : s->vp;
}

/* The micro-batches of a chunk begin with this one and are so many. */
static int first_of(const struct shape *s, int chunk)
{
    return s->schedule == PL_DUALPIPE && chunk ? s->mbs / 2 : 0;
}

static int count_of(const struct shape *s)
{
    return s->schedule == PL_DUALPIPE ? s->mbs / 2 : s->mbs;
}

static void check_complete(const struct shape *s)
{
    struct pl_step step[MAX_STEPS];

    for (int stage = 0; stage < s->pp; stage++) {
        int n = steps_of(step, s, stage);
        int next[3][MAX_VP] = {{0}}; /* forward, gradient of the input, of the weights */

        for (int c = 0; c < chunks_of(s); c++)
            next[0][c] = next[1][c] = next[2][c] = first_of(s, c);

        assert_int_equal(n, steps_of(NULL, s, stage));
        for (int i = 0; i < n; i++) {
            int c = step[i].chunk;

            if (step[i].op == PL_FORWARD)
                assert_int_equal(step[i].mb, next[0][c]++);
            if (step[i].op == PL_BACKWARD || step[i].op == PL_BACKWARD_INPUT)
                assert_int_equal(step[i].mb, next[1][c]++);
            if (step[i].op == PL_BACKWARD || step[i].op == PL_BACKWARD_WEIGHT)
                assert_int_equal(step[i].mb, next[2][c]++);
            assert_true(next[0][c] >= next[1][c] && next[1][c] >= next[2][c]);
        }
        assert_false(step[n - 1].with_next);
        for (int c = 0; c < chunks_of(s); c++)
            for (int pass = 0; pass < 3; pass++)
                assert_int_equal(next[pass][c], first_of(s, c) + count_of(s));
    }
}

static void every_pass_of_every_micro_batch_is_done_once_in_order(void **state)
{
    (void)state;
    each_shape(check_complete);
}

static void a_step_of_many_micro_batches_counts_them_all(void **state)
{
    enum { MANY = 70000 };
    static struct pl_step step[3 * MANY];

    (void)state;
    assert_int_equal(pl_schedule_steps(step, PL_1F1B, 0, 1, 1, MANY), 2 * MANY);
    for (int i = 0; i < 2 * MANY; i++)
        assert_int_equal(step[i].mb, i / 2);
    assert_int_equal(pl_schedule_live(PL_1F1B, 0, 1, 1, MANY, 0), 1);
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

static void check_live(const struct shape *s)
{
    for (int stage = 0; stage < s->pp; stage++)
        for (int c = 0; c < chunks_of(s); c++) {
            int live = pl_schedule_live(s->schedule, stage, s->pp, s->vp, s->mbs, c);
            int half = s->pp / 2, near = stage < half ? stage : s->pp - 1 - stage;

            switch (s->schedule) {
            case PL_GPIPE:
                assert_int_equal(live, s->mbs);
                break;
            case PL_1F1B:
                assert_int_equal(live, min(s->mbs, s->pp - stage));
                break;
            case PL_ZERO_BUBBLE:
                assert_int_equal(live, min(s->mbs, s->pp));
                break;
            case PL_INTERLEAVED: /* chunk 0 of stage 0 waits longest: pp + (pp - 1 - 2 stage) above
                                    its round */
                assert_true(live >= 1 && live <= s->mbs);
                if (s->mbs > s->pp)
                    assert_true(live <= 2 * s->pp);
                break;
            case PL_DUALPIPE: /* the direction that comes first waits for the other end */
                assert_int_equal(
                    live, min(s->mbs / 2, (c > 0) == (stage >= half) ? s->pp - near : near + 1));
                break;
            default: /* a V: what stays longest on the way down is back first */
                assert_int_equal(live, min(s->mbs, c ? stage + 1 : 2 * s->pp - stage));
                break;
            }
        }
}

static void live_micro_batches_follow_the_formula(void **state)
{
    (void)state;
    each_shape(check_live);
}

/* Most micro-batches of a chunk between a step of OPEN and the step that closes it. */
static int counted(const struct shape *s, int stage, int chunk, enum pl_step_op open)
{
    struct pl_step step[MAX_STEPS];
    int n = steps_of(step, s, stage), now = 0, most = 0;

    for (int i = 0; i < n; i++) {
        if (step[i].chunk != chunk)
            continue;
        now += step[i].op == open;
        now -= step[i].op == PL_BACKWARD || step[i].op == PL_BACKWARD_WEIGHT;
        most = now > most ? now : most;
    }
    return most;
}

static void check_counted(const struct shape *s)
{
    for (int stage = 0; stage < s->pp; stage++)
        for (int c = 0; c < chunks_of(s); c++) {
            assert_int_equal(pl_schedule_live(s->schedule, stage, s->pp, s->vp, s->mbs, c),
                             counted(s, stage, c, PL_FORWARD));
            if (pl_schedule_is_v(s->schedule) || s->schedule == PL_DUALPIPE)
                continue;
            assert_int_equal(pl_schedule_live_grads(s->schedule, stage, s->vp, s->mbs),
                             s->schedule == PL_ZERO_BUBBLE ? counted(s, stage, c, PL_BACKWARD_INPUT)
                                                           : 0);
        }
}

/* Most chunks of a stage between a forward pass and the gradient of its weights. */
static int chunks_at_once(const struct shape *s, int stage)
{
    struct pl_step step[MAX_STEPS];
    int n = steps_of(step, s, stage), now = 0, most = 0;

    for (int i = 0; i < n; i++) {
        now += step[i].op == PL_FORWARD;
        now -= step[i].op == PL_BACKWARD || step[i].op == PL_BACKWARD_WEIGHT;
        most = now > most ? now : most;
    }
    return most;
}

static void all_stages_of_a_v_hold_equally_much(void **state)
{
    (void)state;
    for (int pp = 2; pp <= MAX_PP; pp++)
        for (int mbs = 2 * pp; mbs <= MAX_MB; mbs++)
            for (int stage = 0; stage < pp; stage++) {
                assert_int_equal(chunks_at_once(&(struct shape){PL_ZB_V, pp, 2, mbs, 0}, stage),
                                 2 * pp);
                assert_int_equal(
                    chunks_at_once(&(struct shape){PL_DUALPIPE_V, pp, 2, mbs, 0}, stage),
                    2 * pp + 1);
                if (pp % 2 == 0 && mbs % 2 == 0) /* each a pp-th of the model: DeepSeek's PP + 1 */
                    assert_int_equal(
                        chunks_at_once(&(struct shape){PL_DUALPIPE, pp, 1, mbs, 0}, stage), pp + 1);
            }
}

static void what_lives_is_what_the_steps_open_and_close(void **state)
{
    (void)state;
    each_shape(check_counted);
}

static void check_fits(const struct shape *s)
{
    for (int stage = 0; stage < s->pp; stage++)
        for (int c = 0; c < s->vp; c++) {
            int live = pl_schedule_live(s->schedule, stage, s->pp, s->vp, s->most, c);

            assert_true(counted(s, stage, c, PL_FORWARD) <= live);
            if (s->schedule == PL_ZERO_BUBBLE)
                assert_true(counted(s, stage, c, PL_BACKWARD_INPUT) <=
                            pl_schedule_live_grads(s->schedule, stage, s->vp, s->most));
        }
}

static void fewer_micro_batches_fit_the_buffers_of_more(void **state)
{
    (void)state;
    each_smaller(check_complete);
    each_smaller(check_fits);
}

/*
 * The machine of the deadlock test. Message n of a direction (0 activations, 1 gradients) that
 * leaves virtual stage v is sent when v has computed it, and ends when the next virtual stage
 * starts the step that needs it.
 */
struct machine {
    const struct shape *s;
    struct pl_step step[MAX_PP][MAX_STEPS];
    int n[MAX_PP], at[MAX_PP];
    int sent[2][MAX_PP * MAX_VP], taken[2][MAX_PP * MAX_VP];
};

static int vstage(const struct machine *m, int stage, int chunk)
{
    return pl_virtual_stage(m->s->schedule, m->s->pp, stage, chunk);
}

/* Try the next step of a stage, as the interpreter does: wait for a buffer for the output, then for
 * the input, then compute and send. */
static bool advance(struct machine *m, int stage)
{
    const struct pl_step *p = &m->step[stage][m->at[stage]];
    int v = vstage(m, stage, p->chunk), runs = m->s->pp * m->s->vp;
    int begin = v / runs * runs, last = begin + runs - 1; /* of this direction */
    int mb = p->mb - first_of(m->s, p->chunk);
    int dir = p->op == PL_FORWARD ? 0 : 1;
    int from = dir == 0 ? v - 1 : v + 1, to = dir == 0 ? v + 1 : v - 1;

    if (m->at[stage] == m->n[stage])
        return false;
    if (p->op == PL_BACKWARD_WEIGHT) {
        m->at[stage]++;
        return true;
    }
    if (to >= begin && to <= last) {
        int pending = 0;

        for (int c = 0; c < chunks_of(m->s); c++)
            pending += m->sent[dir][vstage(m, stage, c)] - m->taken[dir][vstage(m, stage, c)];
        if (pending >= 2)
            return false;
    }
    if (from >= begin && from <= last) {
        if (m->sent[dir][from] <= mb)
            return false;
        m->taken[dir][from] = mb + 1;
    }
    if (to >= begin && to <= last)
        m->sent[dir][v] = mb + 1;
    m->at[stage]++;
    return true;
}

struct message {
    int chunk, mb; /* as its receiver counts them */
};

/* The messages that STAGE sends to the next one, cyclic, or with RECEIVES has from the one before,
 * in the order of its steps: outputs; with BACK gradients, the other way round. */
static int messages_of(struct message *ret, const struct shape *s, int stage, bool back,
                       bool receives)
{
    struct pl_step step[MAX_STEPS];
    int n = steps_of(step, s, stage), count = 0;

    for (int i = 0; i < n; i++) {
        int c = step[i].chunk, v = c * s->pp + stage;
        int end = back == receives ? s->pp * s->vp - 1 : 0; /* the virtual stage without one */

        if (step[i].op == PL_BACKWARD_WEIGHT || (step[i].op != PL_FORWARD) != back || v == end)
            continue;
        if (!receives)
            c = (back ? v - 1 : v + 1) / s->pp;
        ret[count++] = (struct message){c, step[i].mb};
    }
    return count;
}

/* trainer/link.h relies on it: these messages have no tags. */
static void check_order(const struct shape *s)
{
    struct message sent[MAX_STEPS], received[MAX_STEPS];

    if (pl_schedule_is_v(s->schedule) || s->schedule == PL_DUALPIPE)
        return; /* the trainer has none of these */
    for (int stage = 0; stage < s->pp; stage++)
        for (int back = 0; back < 2; back++) {
            int to = (stage + (back ? s->pp - 1 : 1)) % s->pp;
            int n = messages_of(sent, s, stage, back, false);

            assert_int_equal(messages_of(received, s, to, back, true), n);
            for (int i = 0; i < n; i++) {
                assert_int_equal(sent[i].chunk, received[i].chunk);
                assert_int_equal(sent[i].mb, received[i].mb);
            }
        }
}

static void neighbors_receive_in_the_order_in_which_the_other_sends(void **state)
{
    (void)state;
    each_shape(check_order);
    each_smaller(check_order);
}

static void check_deadlock(const struct shape *s)
{
    static struct machine m;
    bool moved = true;

    m = (struct machine){.s = s};
    for (int i = 0; i < s->pp; i++)
        m.n[i] = steps_of(m.step[i], s, i);
    while (moved) {
        moved = false;
        for (int i = 0; i < s->pp; i++)
            while (advance(&m, i))
                moved = true;
    }
    for (int i = 0; i < s->pp; i++)
        if (m.at[i] != m.n[i])
            fail_msg("schedule %d pp %d vp %d mbs %d: stage %d stops at step %d of %d",
                     (int)s->schedule, s->pp, s->vp, s->mbs, i, m.at[i], m.n[i]);
    for (int v = 0; v + 1 < s->pp * chunks_of(s); v++) {
        int messages = (v + 1) % (s->pp * s->vp) ? count_of(s) : 0; /* none between directions */

        assert_int_equal(m.sent[0][v], messages);
        assert_int_equal(m.taken[0][v], messages);
        assert_int_equal(m.sent[1][v + 1], messages);
        assert_int_equal(m.taken[1][v + 1], messages);
    }
}

static void no_schedule_deadlocks_with_two_send_buffers(void **state)
{
    (void)state;
    each_shape(check_deadlock);
    each_smaller(check_deadlock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_of_every_micro_batch_is_done_once_in_order),
        cmocka_unit_test(a_step_of_many_micro_batches_counts_them_all),
        cmocka_unit_test(live_micro_batches_follow_the_formula),
        cmocka_unit_test(all_stages_of_a_v_hold_equally_much),
        cmocka_unit_test(what_lives_is_what_the_steps_open_and_close),
        cmocka_unit_test(fewer_micro_batches_fit_the_buffers_of_more),
        cmocka_unit_test(no_schedule_deadlocks_with_two_send_buffers),
        cmocka_unit_test(neighbors_receive_in_the_order_in_which_the_other_sends),
    };

    return cmocka_run_group_tests_name("plan schedules", tests, NULL, NULL);
}
