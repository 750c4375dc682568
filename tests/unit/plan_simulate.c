/* The event simulator against the closed form, and what a timeline must be like. */
#include "plan/cost_parts.h"
#include "tests/unit/plan_world.h"

#include <math.h>

enum { MAX_PP = 8, MAX_VP = 4 };

struct made {
    struct pl_pipe p;
    struct pl_stage_time at[MAX_PP * MAX_VP];
};

static void make(struct made *m, enum pl_schedule schedule, int pp, int vp, int micro)
{
    m->p = (struct pl_pipe){schedule, pp, vp, micro, m->at, 0, true, NULL};
    for (int i = 0; i < pp * vp; i++)
        m->at[i] = (struct pl_stage_time){1, 2, 1};
}

static double simulated(const struct made *m)
{
    struct pl_timeline t;
    struct err e = {0};
    double total;

    if (pl_simulate(&t, &m->p, &e) < 0)
        fail_msg("%s", e.text);
    total = t.total;
    pl_timeline_done(&t);
    return total;
}

/* Sums of a few thousand terms of order 1: rounding stays far below a millionth. */
static const double ROUNDING = 1e-9;

static void agree(const struct made *m)
{
    double sim = simulated(m), closed = pl_pipe_seconds(&m->p);

    if (fabs(sim - closed) > ROUNDING)
        fail_msg("schedule %d pp %d vp %d, %d micro-batches: %g by events, %g", m->p.schedule,
                 m->p.pp, m->p.vp, m->p.microbatches, sim, closed);
}

static void equal_stages_take_what_the_closed_form_says(void **state)
{
    static const enum pl_schedule plain[] = {PL_GPIPE, PL_1F1B, PL_ZERO_BUBBLE};
    struct made m;

    (void)state;
    for (int pp = 1; pp <= MAX_PP; pp++) {
        for (int micro = pp; micro <= 4 * pp; micro += pp) {
            for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
                make(&m, plain[i], pp, 1, micro);
                /* ZB-H1 needs 2 pp - 1 micro-batches to fill all gaps; with fewer it is 1f1b's at
                 * worst */
                if (plain[i] == PL_ZERO_BUBBLE && micro < 2 * pp)
                    assert_true(simulated(&m) <= micro * 3 + (pp - 1) * 3 + ROUNDING);
                else
                    agree(&m);
            }
            for (int vp = 2; vp <= MAX_VP && pp > 1; vp++) {
                make(&m, PL_INTERLEAVED, pp, vp, micro);
                agree(&m);
                assert_true(fabs(simulated(&m) - (micro * vp + pp - 1) * 3) < ROUNDING);
            }
        }
    }
}

static const enum pl_schedule vees[] = {PL_ZB_V, PL_DUALPIPE_V, PL_DUALPIPE};

/* MADE of SCHEDULE, or false where it has no such pipeline. */
static bool make_v(struct made *m, enum pl_schedule schedule, int pp, int micro)
{
    bool both = schedule == PL_DUALPIPE;

    if ((both && (pp % 2 || micro % 2)) || (schedule != PL_ZB_V && micro < 2 * pp))
        return false;
    make(m, schedule, pp, both ? 1 : 2, micro);
    return true;
}

/* Exact for any ratio of the passes, but where micro-batches are too few to fill a V of uneven
 * passes. */
static void equal_stages_of_a_v_take_what_the_closed_form_says(void **state)
{
    struct rng r;
    struct made m;

    (void)state;
    rng_seed(&r, 11);
    for (size_t k = 0; k < ARRAY_LEN(vees); k++)
        for (int pp = 2; pp <= MAX_PP; pp++)
            for (int micro = 1; micro <= 4 * pp; micro++) {
                double forward = 0.2 + rng_unit(&r), input = 0.5 + rng_unit(&r) * 2,
                       weight = 0.1 + rng_unit(&r);

                if (!make_v(&m, vees[k], pp, micro))
                    continue;
                agree(&m);
                for (int i = 0; i < 2 * pp; i++)
                    m.at[i] = (struct pl_stage_time){forward, input + weight, weight};
                if (micro >= 2 * pp - 1) {
                    agree(&m);
                } else {
                    double above = simulated(&m) / pl_pipe_seconds(&m.p) - 1;

                    if (fabs(above) > 0.05)
                        fail_msg("pp %d, %d micro-batches: %g above the closed form", pp, micro,
                                 above);
                }
            }
}

/* Both directions event by event, with stages of unlike times: the ranks of either half do what
 * DualPipeV does on half as many with half of the micro-batches. */
static void dualpipe_is_two_mirrored_vs(void **state)
{
    struct rng r;

    (void)state;
    rng_seed(&r, 5);
    for (int pp = 2; pp <= MAX_PP; pp += 2)
        for (int micro = 2 * pp; micro <= 6 * pp; micro += 2) {
            struct made both, v;
            double sum = 0;

            make(&both, PL_DUALPIPE, pp, 1, micro);
            make(&v, PL_DUALPIPE_V, pp / 2, 2, micro / 2);
            for (int i = 0; i < pp; i++) {
                double weight = 0.5 + rng_unit(&r);

                both.at[i] = v.at[i] =
                    (struct pl_stage_time){0.5 + rng_unit(&r), weight + 0.5 + rng_unit(&r), weight};
                sum += both.at[i].forward + both.at[i].backward;
            }
            assert_true(simulated(&both) >= micro * sum / pp - ROUNDING);
            if (pp > 2)
                assert_true(fabs(simulated(&both) / simulated(&v) - 1) < ROUNDING);
            else
                assert_true(fabs(simulated(&both) - micro / 2 * sum) < ROUNDING);
        }
}

/* ZB-V has no bubble but the way to the last stage, and with input and weight apart DualPipeV's is
 * the paper's. */
static void bubbles_of_a_v_are_the_papers(void **state)
{
    struct made m;

    (void)state;
    for (int pp = 2; pp <= MAX_PP; pp++) {
        make(&m, PL_ZB_V, pp, 2, 4 * pp);
        assert_true(fabs(simulated(&m) - (4 * pp * 6 + pp - 1)) < ROUNDING);
        make(&m, PL_DUALPIPE_V, pp, 2, 4 * pp);
        for (int i = 0; i < 2 * pp; i++)
            m.at[i] = (struct pl_stage_time){1, 4, 1}; /* F&B 5, B 4, W 1: 6 a stage */
        assert_true(fabs(simulated(&m) - (4 * pp * 10 + (pp - 1) * 6 - 1)) < ROUNDING || pp == 2);
        if (pp % 2)
            continue;
        make(&m, PL_DUALPIPE, pp, 1, 4 * pp);
        for (int i = 0; i < pp; i++)
            m.at[i] = (struct pl_stage_time){1, 3, 1}; /* F&B 4, B 3, W 1 */
        assert_true(fabs(simulated(&m) - (4 * pp * 4 + (pp / 2 - 1) * 4)) <
                    (pp > 2 ? 1 + ROUNDING : ROUNDING));
    }
}

/* The ends of a V lie on one stage, which is then the slow one: the closed form is above the
 * events, by no more than the others' bubble. */
static void slow_ends_of_a_v_are_bounded(void **state)
{
    struct made m;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(vees); k++)
        for (int pp = 2; pp <= MAX_PP; pp++)
            for (int micro = 2 * pp; micro <= 8 * pp; micro += pp) {
                double above, bubble;

                if (!make_v(&m, vees[k], pp, micro))
                    continue;
                bubble = simulated(&m) - micro * 3 * m.p.vp;
                m.at[0] = (struct pl_stage_time){1.1, 2.1, 1.1};
                m.at[m.p.vp * pp - 1] = (struct pl_stage_time){1.4, 2.8, 1.4};
                above = pl_pipe_seconds(&m.p) - simulated(&m);
                if (above < -ROUNDING || above > bubble + ROUNDING)
                    fail_msg("schedule %d pp %d, %d micro-batches: %g above the events, bubble %g",
                             vees[k], pp, micro, above, bubble);
            }
}

/* So many messages show in the events as the closed form counts. */
static void messages_cost_what_the_closed_form_says(void **state)
{
    static const double MESSAGE = 0.01;
    struct made m;

    (void)state;
    for (int pp = 2; pp <= MAX_PP; pp *= 2)
        for (int vp = 1; vp <= MAX_VP; vp++)
            for (int schedule = PL_GPIPE; schedule <= PL_ZERO_BUBBLE; schedule++)
                for (int overlap = 0; overlap < 2; overlap++) {
                    double free_of, closed, sim, slack = vp > 1 && !overlap ? 4 * pp : 1e-6;

                    if ((schedule == PL_INTERLEAVED) != (vp > 1))
                        continue;
                    make(&m, (enum pl_schedule)schedule, pp, vp, 64);
                    free_of = simulated(&m);
                    m.p.message_s = MESSAGE;
                    m.p.overlap = overlap;
                    sim = (simulated(&m) - free_of) / MESSAGE;
                    closed = (pl_pipe_seconds(&m.p) - free_of) / MESSAGE;
                    if (fabs(sim - closed) > slack)
                        fail_msg("pp %d vp %d schedule %d overlap %d: %g by events, %g", pp, vp,
                                 schedule, overlap, sim, closed);
                }
}

/* Receipts that the events show, in MESSAGE each, less those that the closed form has. */
static double messages_beyond(struct made *m, double message_s)
{
    double sim, closed;

    m->p.message_s = 0;
    sim = -simulated(m);
    closed = -pl_pipe_seconds(&m->p);
    m->p.message_s = message_s;
    return (sim + simulated(m) - closed - pl_pipe_seconds(&m->p)) / message_s;
}

/* Passes of any ratio, equal ones too, and messages too short to make another path the critical
 * one. */
static void messages_of_a_v_cost_what_the_closed_form_says(void **state)
{
    static const double SHORT = 1e-6;
    struct rng r;
    struct made m;

    (void)state;
    rng_seed(&r, 7);
    for (size_t k = 0; k < ARRAY_LEN(vees); k++)
        for (int pp = 2; pp <= MAX_PP; pp++)
            for (int micro = 2 * pp; micro <= 5 * pp; micro++)
                for (int draw = 0; draw < 40; draw++) {
                    double forward = 1, input = 1, weight = 1;

                    if (!make_v(&m, vees[k], pp, micro))
                        continue;
                    if (draw > 2) {
                        forward = 0.2 + rng_unit(&r) * 2;
                        input = 0.2 + rng_unit(&r) * 2;
                        weight = 0.2 + rng_unit(&r) * 2;
                    }
                    for (int i = 0; i < m.p.vp * pp; i++)
                        m.at[i] = (struct pl_stage_time){forward, input + weight, weight};
                    m.p.overlap = draw & 2;
                    if (fabs(messages_beyond(&m, SHORT)) > 1e-3)
                        fail_msg("schedule %d pp %d, %d micro-batches, overlap %d, passes %g %g "
                                 "%g: %g messages more by events",
                                 vees[k], pp, micro, m.p.overlap, forward, input, weight,
                                 messages_beyond(&m, SHORT));
                }
}

/* The last stage carries the head, the first the embedding, as in every language model. */
static void one_slow_stage_takes_what_the_closed_form_says(void **state)
{
    static const enum pl_schedule plain[] = {PL_GPIPE, PL_1F1B};
    struct made m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        for (int pp = 2; pp <= MAX_PP; pp++)
            for (int slow = 0; slow < pp; slow++) {
                double sim, closed;

                make(&m, plain[i], pp, 1, 24);
                m.at[slow] = (struct pl_stage_time){1.5, 3, 1.5};
                sim = simulated(&m);
                closed = pl_pipe_seconds(&m.p);
                assert_true(fabs(sim - closed) < ROUNDING);
            }
}

/*
 * Interleaved and zero-bubble: exact where the last stage is the slow one, all of it or only its
 * last chunk, which carries the head. Elsewhere the closed form adds every stage after the slow
 * one, of which the events show a part or nothing: it is never below them, nor above by more than
 * that.
 */
static void slow_stages_of_other_schedules_are_bounded(void **state)
{
    struct made m;

    (void)state;
    for (int pp = 2; pp <= MAX_PP; pp *= 2)
        for (int vp = 1; vp <= MAX_VP; vp++)
            for (int micro = 2 * pp; micro <= 8 * pp; micro += pp)
                for (int slow = 0; slow < pp; slow++)
                    for (int from = 0; from<vp; from += vp> 1 ? vp - 1 : 1) {
                        /* what one stage adds: a pass of a chunk, less twice the weight's part */
                        double each = vp > 1 ? 3 : 1, above;

                        make(&m, vp > 1 ? PL_INTERLEAVED : PL_ZERO_BUBBLE, pp, vp, micro);
                        for (int c = from; c < vp; c++)
                            m.at[c * pp + slow] = (struct pl_stage_time){1.5, 3, 1.5};
                        above = pl_pipe_seconds(&m.p) - simulated(&m);
                        if (above < -ROUNDING || above > (pp - 1 - slow) * each + ROUNDING)
                            fail_msg("pp %d vp %d, %d micro-batches, slow stage %d from chunk %d: "
                                     "%g above the events",
                                     pp, vp, micro, slow, from, above);
                    }
}

static void every_stage_does_one_thing_at_a_time_in_order_of_need(void **state)
{
    struct made m;
    struct pl_timeline t;
    struct err e = {0};

    (void)state;
    make(&m, PL_INTERLEAVED, 4, 2, 8);
    assert_int_equal(pl_simulate(&t, &m.p, &e), 0);
    assert_int_equal(t.n, 4 * 2 * 8 * 2);
    for (size_t i = 1; i < t.n; i++)
        if (t.span[i].stage == t.span[i - 1].stage)
            assert_true(t.span[i].start >= t.span[i - 1].end);
    assert_true(fabs(t.idle - 9 / (48 + 9.0)) <
                1e-9); /* (pp - 1)(F + B) of (micro vp + pp - 1)(F + B) */
    pl_timeline_done(&t);
}

static void a_trace_has_a_named_lane_for_each_stage_and_every_span(void **state)
{
    struct made m;
    struct pl_timeline t;
    struct err e = {0};
    size_t i, lanes = 0, bars = 0;
    json_t *it;

    (void)state;
    make(&m, PL_1F1B, 4, 1, 8);
    assert_int_equal(pl_simulate(&t, &m.p, &e), 0);
    AUTO_JSON *v = pl_timeline_trace(&t);
    json_array_foreach(json_object_get(v, "traceEvents"), i, it) {
        bool bar = !strcmp(json_string_value(json_object_get(it, "ph")), "X");
        const struct pl_span *s = &t.span[bar ? bars : 0];

        lanes += !bar;
        bars += bar;
        if (bar) {
            assert_int_equal(json_integer_value(json_object_get(it, "tid")), s->stage);
            assert_true(fabs(json_number_value(json_object_get(it, "dur")) -
                             1e6 * (s->end - s->start)) < 1e-3);
        }
    }
    assert_int_equal(lanes, 4);
    assert_int_equal(bars, t.n);
    pl_timeline_done(&t);
}

static void a_shape_without_a_schedule_is_refused(void **state)
{
    struct made m;
    struct pl_timeline t;
    struct err e = {0};

    (void)state;
    make(&m, PL_INTERLEAVED, 4, 2, 6);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
    make(&m, PL_1F1B, 4, 2, 8);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
    make(&m, PL_ZB_V, 4, 1, 8);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
    make(&m, PL_DUALPIPE_V, 4, 2, 7);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
    make(&m, PL_DUALPIPE, 3, 1, 8);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
    make(&m, PL_DUALPIPE, 4, 1, 9);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
    make(&m, PL_DUALPIPE, 4, 1, 6);
    assert_true(pl_simulate(&t, &m.p, &e) < 0);
}

/* The pipeline part of an iteration, whatever the model: what the cost model says against the
 * events. */
static void the_cost_of_real_layouts_agrees_with_their_timeline(void **state)
{
    static const struct {
        const char *model, *layout;
    } row[] = {
        {"gpt-22B", "{'pp':4,'tp':2,'precision':'bf16','micro_batch':2}"},
        {"gpt-22B", "{'pp':4,'vp':4,'tp':4,'sp':1,'precision':'bf16'}"},
        {"llama-8b", "{'pp':8,'schedule':'zero-bubble','precision':'bf16','overlap_p2p':1}"},
        {"mixtral-8x7b",
         "{'pp':4,'ep':8,'vp':2,'precision':'bf16','recompute':'full','overlap_p2p':1}"},
        {"llama-8b", "{'pp':8,'schedule':'zb-v','precision':'bf16','overlap_p2p':1}"},
        {"llama-8b", "{'pp':8,'schedule':'dualpipe-v','precision':'bf16'}"},
        {"llama-8b", "{'pp':8,'schedule':'dualpipe','precision':'bf16'}"},
        {"mixtral-8x7b",
         "{'pp':4,'ep':8,'schedule':'dualpipe','precision':'bf16','overlap_p2p':1}"},
        {"gpt-22B", "{'pp':4,'schedule':'zb-v','tp':2,'precision':'bf16','recompute':'full'}"},
        {"llama-8b", "{'pp':2,'schedule':'gpipe','precision':'bf16','overlap_p2p':1}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct world x = world_of(row[i].model, "dgx-h100", 4, 256, "any");
        struct pl_problem p = world_problem(&x);
        struct pl_layout l = layout_of(&x, row[i].layout);
        struct pl_cost_ctx *k = pl_cost_ctx_new(&p, NULL);
        struct pl_stage_time *store;
        struct pl_timeline t;
        struct pl_pipe pipe;
        struct pl_cost c;
        struct err e = {0};
        double closed = 0;

        pl_cost_at(&c, k, &l);
        for (int j = PL_COST_FORWARD; j <= PL_COST_BUBBLE; j++)
            closed += c.seconds[j];
        pl_pipe_of(&pipe, &store, k, &l);
        assert_true(fabs(pl_pipe_seconds(&pipe) / closed - 1) < 1e-9);
        assert_int_equal(pl_simulate(&t, &pipe, &e), 0);
        if (fabs(t.total / closed - 1) > 0.03)
            fail_msg("%s %s: %g s by events, %g s in closed form", row[i].model, row[i].layout,
                     t.total, closed);
        pl_timeline_done(&t);
        free(store);
        pl_cost_ctx_free(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_stages_take_what_the_closed_form_says),
        cmocka_unit_test(equal_stages_of_a_v_take_what_the_closed_form_says),
        cmocka_unit_test(dualpipe_is_two_mirrored_vs),
        cmocka_unit_test(bubbles_of_a_v_are_the_papers),
        cmocka_unit_test(slow_ends_of_a_v_are_bounded),
        cmocka_unit_test(messages_cost_what_the_closed_form_says),
        cmocka_unit_test(messages_of_a_v_cost_what_the_closed_form_says),
        cmocka_unit_test(one_slow_stage_takes_what_the_closed_form_says),
        cmocka_unit_test(slow_stages_of_other_schedules_are_bounded),
        cmocka_unit_test(every_stage_does_one_thing_at_a_time_in_order_of_need),
        cmocka_unit_test(a_trace_has_a_named_lane_for_each_stage_and_every_span),
        cmocka_unit_test(a_shape_without_a_schedule_is_refused),
        cmocka_unit_test(the_cost_of_real_layouts_agrees_with_their_timeline),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
