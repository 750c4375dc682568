/*
 * Where a step's time goes, in milliseconds of a clock that stands still unless the test moves it:
 * on the host's clock, on an asynchronous backend, which runs its operations in kn_wait, and on a
 * device that computes while the host does something else.
 */
#include "tests/unit/unit.h"

#include "tests/unit/async_backend.h"
#include "trainer/phase.h"

enum { MS = 1000000, SPANS = 64 };

static uint64_t now_ns;

uint64_t __wrap_clock_mono_ns(void);

uint64_t __wrap_clock_mono_ns(void)
{
    return now_ns;
}

static void host_spends(uint64_t ms)
{
    now_ns += ms * MS;
}

static int ms_of(const struct tr_clock *clock, enum tr_phase phase)
{
    return (int)((clock->ns[phase] + MS / 2) / MS);
}

/* ---- a device ------------------------------------------------------------ */

static struct {
    uint64_t busy_ns;  /* it has work until then */
    uint64_t last_ns;  /* its last stamp is reached then */
    uint64_t delay_ns; /* of a stamp */
    double rate;       /* of its clock, over the host's */
    uint64_t stamp[KN_STAMPS];
} device;

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void device_gets(uint64_t ms)
{
    device.busy_ns = later(device.busy_ns, now_ns) + ms * MS;
}

/* Its stream waits for another one, which has work until UNTIL_NS. */
static void device_follows(uint64_t until_ns)
{
    device.busy_ns = later(device.busy_ns, until_ns);
}

static void device_wait(struct kn_pool *pool)
{
    (void)pool;
    now_ns = later(now_ns, later(device.busy_ns, device.last_ns));
}

static void device_stamp(struct kn_pool *pool, unsigned n)
{
    (void)pool;
    device.last_ns = device.stamp[n] = later(now_ns, device.busy_ns) + device.delay_ns;
}

static bool device_stamped(uint64_t *ret_ns, struct kn_pool *pool, unsigned from, unsigned to)
{
    (void)pool;
    if (device.stamp[to] > now_ns)
        return false;
    *ret_ns = (uint64_t)((double)(device.stamp[to] - device.stamp[from]) * device.rate);
    return true;
}

static struct kn_pool *device_pool(double rate, uint64_t delay_ns)
{
    static struct kn_backend backend;
    struct kn_pool *pool;

    backend = *kn_backend_host();
    backend.wait = device_wait;
    backend.stamp = device_stamp;
    backend.stamped = device_stamped;
    memset(&device, 0, sizeof(device));
    device.rate = rate;
    device.delay_ns = delay_ns;
    kn_backend_use(&backend);
    pool = kn_pool_new(1);
    kn_backend_use(NULL);
    return pool;
}

/* ---- a step -------------------------------------------------------------- */

/* A step of what POOL computes, with notes for a timeline. */
struct step {
    struct kn_pool *pool;
    struct tr_clock clock;
    struct tr_span span[SPANS];
    uint64_t begun_ns;
};

static void begin(struct step *step, struct kn_pool *pool)
{
    *step = (struct step){.pool = pool};
    now_ns += MS;
    tr_clock_init(&step->clock, pool);
    step->clock.span = step->span;
    step->clock.span_cap = SPANS;
    step->begun_ns = now_ns;
}

/* Phases add up to the step exactly, and spans follow each other. */
static void end(struct step *step)
{
    const struct tr_clock *clock = &step->clock;
    uint64_t sum = 0, at = step->begun_ns;

    kn_wait(step->pool);
    tr_clock_end(&step->clock);
    for (int i = 0; i < TR_PHASES; i++)
        sum += clock->ns[i];
    assert_int_equal(clock->since_ns, now_ns);
    assert_int_equal(sum, now_ns - step->begun_ns);
    assert_true(clock->wait_ns <= sum);
    for (int i = 0; i < clock->spans; i++) {
        assert_int_equal(clock->span[i].begin_ns, at);
        at = clock->span[i].end_ns;
    }
    if (clock->spans < SPANS)
        assert_int_equal(at, now_ns);
    tr_clock_done(&step->clock);
    kn_pool_free(step->pool);
}

/* In PHASE the host waits for others for so many milliseconds; then it goes on in the phase before.
 */
static void wait_in(struct tr_clock *clock, enum tr_phase phase, uint64_t ms)
{
    enum tr_phase was = tr_phase(clock, phase);
    uint64_t t = tr_clock_waits(clock);

    host_spends(ms);
    tr_clock_waited(clock, t);
    tr_phase(clock, was);
}

/* ---- on the host --------------------------------------------------------- */

static void on_the_host_time_is_charged_to_the_phase_that_the_host_is_in(void **state)
{
    struct step s;

    (void)state;
    begin(&s, kn_pool_new(1));
    assert_null(s.clock.marks);
    host_spends(1);
    assert_int_equal(tr_phase(&s.clock, TR_PHASE_FORWARD), TR_PHASE_OTHER);
    host_spends(10);
    wait_in(&s.clock, TR_PHASE_TP, 4);
    assert_int_equal(s.clock.wait_ns, 4 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_TP], 4 * MS); /* at once */
    host_spends(2);
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD], 12 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_OTHER], MS);
}

/* ---- on an asynchronous backend ------------------------------------------ */

static void run_slowly(const void *args)
{
    host_spends(*(const uint64_t *)args);
}

static void launch(struct kn_pool *pool, uint64_t ms)
{
    async_launch(pool, run_slowly, &ms, sizeof(ms));
}

static void operations_are_charged_to_the_phase_that_launched_them(void **state)
{
    struct step s;

    (void)state;
    kn_backend_use(async_backend(false));
    begin(&s, kn_pool_new(1));
    kn_backend_use(NULL);
    tr_phase(&s.clock, TR_PHASE_FORWARD);
    launch(s.pool, 20);
    tr_phase(&s.clock, TR_PHASE_BACKWARD);
    launch(s.pool, 40);
    tr_phase(&s.clock, TR_PHASE_DP);
    assert_true(async_pending(s.pool) >= 2); /* nothing has run */
    kn_wait(s.pool);
    wait_in(&s.clock, TR_PHASE_EP, 7);
    tr_phase(&s.clock, TR_PHASE_OPTIMIZER);
    launch(s.pool, 5);
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD], 20 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_BACKWARD], 40 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_DP], 0);
    assert_int_equal(s.clock.ns[TR_PHASE_EP], 7 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_OPTIMIZER], 5 * MS);
    assert_int_equal(s.clock.wait_ns, 7 * MS);
}

/* ---- on the device ------------------------------------------------------- */

static void a_wait_behind_computation_is_hidden_and_one_without_is_its_phases(void **state)
{
    struct step s;

    (void)state;
    begin(&s, device_pool(1, 0));
    tr_phase(&s.clock, TR_PHASE_FORWARD);
    device_gets(30);
    wait_in(&s.clock, TR_PHASE_TP, 10); /* 20 of the forward pass are left */
    device_gets(10);
    wait_in(&s.clock, TR_PHASE_EP, 40); /* the last 10 are exposed */
    tr_phase(&s.clock, TR_PHASE_BACKWARD);
    host_spends(3); /* and does not launch */
    device_gets(50);
    tr_phase(&s.clock, TR_PHASE_OTHER);
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD], 40 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_TP], 0);
    assert_int_equal(s.clock.ns[TR_PHASE_EP], 10 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_BACKWARD], 53 * MS);
    assert_int_equal(s.clock.wait_ns, 10 * MS);
}

static void a_collective_is_exposed_where_the_stream_computes_or_follows_it(void **state)
{
    uint64_t aside, t;
    struct step s;

    (void)state;
    begin(&s, device_pool(1, 0));
    tr_phase(&s.clock, TR_PHASE_TP);
    t = tr_clock_waits(&s.clock);
    device_gets(6);
    tr_clock_waited(&s.clock, t);
    tr_phase(&s.clock, TR_PHASE_BACKWARD);
    aside = now_ns + 40 * MS;
    device_gets(30);
    tr_phase(&s.clock, TR_PHASE_DP);
    t = tr_clock_waits(&s.clock);
    device_follows(aside);
    tr_clock_waited(&s.clock, t);
    tr_phase(&s.clock, TR_PHASE_OPTIMIZER);
    device_gets(2);
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_TP], 6 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_BACKWARD], 30 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_DP], 4 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_OPTIMIZER], 2 * MS);
    assert_int_equal(s.clock.wait_ns, 10 * MS);
}

/* Stamps are a millisecond late, and the device's clock is fast or slow by 2 %. */
static void neither_delays_nor_the_drift_of_clocks_add_up(void **state)
{
    static const double rate[] = {1, 1.02, 0.98};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rate); i++) {
        struct step s;

        begin(&s, device_pool(rate[i], MS));
        for (int k = 0; k < 50; k++) {
            tr_phase(&s.clock, TR_PHASE_FORWARD);
            device_gets(10);
            wait_in(&s.clock, TR_PHASE_PP_WAIT, 20);
        }
        tr_phase(&s.clock, TR_PHASE_BACKWARD);
        device_gets(1000);
        tr_phase(&s.clock, TR_PHASE_OTHER);
        end(&s);
        assert_in_range(ms_of(&s.clock, TR_PHASE_FORWARD), 485, 515);
        assert_in_range(ms_of(&s.clock, TR_PHASE_PP_WAIT), 485, 515);
        assert_in_range(ms_of(&s.clock, TR_PHASE_BACKWARD), 975, 1025);
        assert_in_range(s.clock.wait_ns, 485ull * MS, 515ull * MS);
        assert_in_range(ms_of(&s.clock, TR_PHASE_OTHER), 0, 25); /* of the last 1000 at most */
    }
}

static void a_stamp_on_an_empty_stream_need_not_be_reached(void **state)
{
    struct step s;

    (void)state;
    begin(&s, device_pool(1, 5 * MS));
    tr_phase(&s.clock, TR_PHASE_FORWARD);
    device_gets(30);
    kn_wait(s.pool);
    tr_phase(&s.clock, TR_PHASE_OPTIMIZER);
    host_spends(2);
    tr_phase(&s.clock, TR_PHASE_DP);
    host_spends(1);
    tr_clock_end(&s.clock);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD], 30 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_OPTIMIZER], 2 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_DP], MS);
    tr_clock_done(&s.clock);
    kn_pool_free(s.pool);
}

static void a_host_that_is_too_far_ahead_leaves_switches_out_and_loses_no_time(void **state)
{
    struct step s;

    (void)state;
    begin(&s, device_pool(1, 0));
    for (int i = 0; i < 2 * KN_STAMPS; i++) {
        tr_phase(&s.clock, i % 2 ? TR_PHASE_BACKWARD : TR_PHASE_FORWARD);
        device_gets(1);
    }
    kn_wait(s.pool);
    tr_phase(&s.clock, TR_PHASE_OPTIMIZER); /* stamps are free again */
    device_gets(7);
    tr_phase(&s.clock, TR_PHASE_OTHER);
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_OPTIMIZER], 7 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD] + s.clock.ns[TR_PHASE_BACKWARD],
                     2ull * KN_STAMPS * MS);
    assert_true(s.clock.ns[TR_PHASE_FORWARD] >= KN_STAMPS / 2 * (uint64_t)MS);
}

static void more_switches_than_stamps_are_all_charged_while_the_device_keeps_up(void **state)
{
    struct step s;

    (void)state;
    begin(&s, device_pool(1, 0));
    for (int i = 0; i < 3 * KN_STAMPS; i++) {
        tr_phase(&s.clock, i % 3 ? TR_PHASE_BACKWARD : TR_PHASE_FORWARD);
        device_gets(2);
        host_spends(2);
    }
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD], 2ull * KN_STAMPS * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_BACKWARD], 4ull * KN_STAMPS * MS);
}

static void a_step_after_another_begins_anew(void **state)
{
    struct step s;

    (void)state;
    begin(&s, device_pool(1, 4 * MS));
    tr_phase(&s.clock, TR_PHASE_FORWARD);
    device_gets(30);
    kn_wait(s.pool);
    tr_clock_end(&s.clock);
    host_spends(100); /* between steps */
    for (int i = 0; i < 3; i++)
        wait_in(&s.clock, TR_PHASE_DP, 1);
    tr_clock_reset(&s.clock);
    s.begun_ns = now_ns;
    tr_phase(&s.clock, TR_PHASE_BACKWARD);
    device_gets(20);
    end(&s);
    assert_int_equal(s.clock.ns[TR_PHASE_BACKWARD], 20 * MS);
    assert_int_equal(s.clock.ns[TR_PHASE_FORWARD] + s.clock.ns[TR_PHASE_DP], 0);
    assert_int_equal(s.clock.wait_ns, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(on_the_host_time_is_charged_to_the_phase_that_the_host_is_in),
    cmocka_unit_test(operations_are_charged_to_the_phase_that_launched_them),
    cmocka_unit_test(a_wait_behind_computation_is_hidden_and_one_without_is_its_phases),
    cmocka_unit_test(a_collective_is_exposed_where_the_stream_computes_or_follows_it),
    cmocka_unit_test(neither_delays_nor_the_drift_of_clocks_add_up),
    cmocka_unit_test(a_stamp_on_an_empty_stream_need_not_be_reached),
    cmocka_unit_test(a_host_that_is_too_far_ahead_leaves_switches_out_and_loses_no_time),
    cmocka_unit_test(more_switches_than_stamps_are_all_charged_while_the_device_keeps_up),
    cmocka_unit_test(a_step_after_another_begins_anew),
};

UNIT_MAIN(tests)
