/* Skipping of spikes: decisions of random series against a plain reading of OLMo-core's rule, which
 * keeps whole lists, and a window that goes through a checkpoint's JSON on the way. */
#include "tests/unit/unit.h"
#include "trainer/skip.h"

#include <math.h>

enum { STEPS = 700 };

struct series {
    double loss[STEPS], norm[STEPS];
};

static double uniform(uint64_t seed)
{
    return (double)(rng_mix(seed) >> 11) * 0x1p-53;
}

/* A loss that falls and a norm that wanders, with spikes of either, some one after the other. */
static void draw(struct series *ret, uint64_t seed)
{
    for (uint64_t i = 0; i < STEPS; i++) {
        double high = uniform(seed * 7 + i / 3) < 0.03 ? 1 + 6 * uniform(seed + i * 11) : 0;
        bool of_loss = rng_mix(seed + i * 13) % 2;

        ret->loss[i] =
            2 + 3 / (1 + 0.02 * (double)i) + 0.1 * uniform(seed * 1000 + i) + (of_loss ? high : 0);
        ret->norm[i] = 0.5 + 0.3 * uniform(seed * 5000 + i) + (of_loss ? 0 : high);
    }
}

/* torch.std_mean of value[from] to value[end - 1], in long double. */
static void std_mean(long double *ret_std, long double *ret_mean, const double *value, int from,
                     int end)
{
    long double sum = 0, squares = 0;

    for (int i = from; i < end; i++)
        sum += value[i];
    *ret_mean = sum / (end - from);
    for (int i = from; i < end; i++)
        squares += (value[i] - *ret_mean) * (value[i] - *ret_mean);
    *ret_std = sqrtl(squares / (end - from - 1));
}

/* 1: value[at] is a spike, 0: it is not, -1: rounding decides, so close it is to the threshold. */
static int is_spike(const double *value, int at, int interval, double sigma)
{
    long double std, mean, over;

    std_mean(&std, &mean, value, at > interval ? at - interval : 0, at);
    over = value[at] - mean - sigma * std;
    return fabsl(over) < 1e-12L * fabsl(mean) ? -1 : over > 0;
}

/* get_step_factor() after the loss and the norm of step AT (from 0) are appended. */
static int expected(const struct series *s, int at, int interval, double sigma)
{
    int have = at + 1 < interval + 1 ? at + 1 : interval + 1, loss, norm;

    if (have < (interval / 2 > 2 ? interval / 2 : 2))
        return 0;
    loss = is_spike(s->loss, at, interval, sigma);
    norm = is_spike(s->norm, at, interval, sigma);
    if (loss == 1 || norm == 1)
        return 1;
    return loss < 0 || norm < 0 ? -1 : 0;
}

static void decisions_are_those_of_the_rule(void **state)
{
    static const int intervals[] = {6, 7, 16, 128, 1024};
    static const double sigmas[] = {0.5, 3, 6};
    int skipped = 0, kept = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct tr_skip skip = {.sigma = sigmas[seed % ARRAY_LEN(sigmas)],
                               .interval = intervals[seed % ARRAY_LEN(intervals)]};
        struct series s;
        int count = 0;

        draw(&s, seed);
        for (int i = 0; i < STEPS; i++) {
            int want = expected(&s, i, skip.interval, skip.sigma);
            bool got = tr_skip_step(&skip, s.loss[i], s.norm[i]);

            if (want >= 0 && got != (want == 1))
                fail_msg("seed %d, step %d of interval %d, sigma %g: %d, not %d", (int)seed, i,
                         skip.interval, skip.sigma, got, want);
            count += got;
        }
        assert_int_equal(skip.skipped, count);
        assert_int_equal(skip.count, STEPS < skip.interval + 1 ? STEPS : skip.interval + 1);
        skipped += count;
        kept += STEPS - count;
    }
    assert_true(skipped > 200 && kept > 10000); /* both cases were met */
}

static void a_constant_series_skips_only_what_is_above_it(void **state)
{
    struct tr_skip skip = {.sigma = 6, .interval = 8};

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_false(tr_skip_step(&skip, 3, 1));
    assert_false(tr_skip_step(&skip, 2.5, 1)); /* below the mean is no spike */
    assert_true(tr_skip_step(&skip, 3, 9));
    assert_int_equal(skip.skipped, 1);
}

static void nothing_is_skipped_before_the_window_is_half_full(void **state)
{
    struct tr_skip skip = {.sigma = 1, .interval = 128};

    (void)state;
    for (int i = 0; i < 62; i++)
        assert_false(tr_skip_step(&skip, 3 + i % 2, 1 + i % 2));
    assert_false(tr_skip_step(&skip, 100, 1)); /* the 63rd */
    assert_true(tr_skip_step(&skip, 1000, 1)); /* the 64th = 128 / 2 */
}

/* Through text, as a checkpoint has it. */
static void reload(struct tr_skip *skip)
{
    AUTO_JSON *o = json_object(), *back = NULL;
    AUTO_FREE char *text = NULL;
    struct tr_skip saved;
    struct err e = {0};

    json_object_set_new(o, "skip_step", tr_skip_json(skip));
    text = json_dumps(o, JSON_INDENT(2));
    back = json_loads(text, 0, NULL);
    if (tr_skip_parse(&saved, back, &e) < 0)
        fail_msg("%s", e.text);
    *skip = (struct tr_skip){.sigma = skip->sigma, .interval = skip->interval};
    tr_skip_resume(skip, &saved);
}

static void a_resumed_window_is_the_uninterrupted_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct tr_skip one = {.sigma = 3, .interval = seed % 2 ? 32 : 128}, two = one;
        struct series s;

        draw(&s, seed);
        for (int i = 0; i < 300; i++) {
            assert_int_equal(tr_skip_step(&one, s.loss[i], s.norm[i]),
                             tr_skip_step(&two, s.loss[i], s.norm[i]));
            if (rng_mix(seed + (uint64_t)i) % 5 == 0)
                reload(&two);
            assert_int_equal(one.skipped, two.skipped);
            assert_int_equal(one.count, two.count);
            assert_memory_equal(one.loss, two.loss, sizeof(*one.loss) * (size_t)one.count);
            assert_memory_equal(one.norm, two.norm, sizeof(*one.norm) * (size_t)one.count);
        }
    }
}

static void another_interval_keeps_the_newest(void **state)
{
    struct tr_skip saved = {.sigma = 6, .interval = 32}, less = {.sigma = 6, .interval = 8},
                   off = {.interval = 128};

    (void)state;
    for (int i = 0; i < 40; i++)
        tr_skip_step(&saved, i, 1);
    saved.skipped = 3;
    tr_skip_resume(&less, &saved);
    assert_int_equal(less.count, 9);
    assert_float_equal(less.loss[0], 31, 0);
    assert_float_equal(less.loss[8], 39, 0);
    assert_int_equal(less.skipped, 3);
    tr_skip_resume(&off, &saved); /* the count is part of the bias correction */
    assert_int_equal(off.count, 0);
    assert_int_equal(off.skipped, 3);
}

static void a_damaged_window_is_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{'skip_step': 3}", "skip_step"},
        {"{'skip_step': {'skipped': -1, 'loss': [], 'grad_norm': []}}", "skipped"},
        {"{'skip_step': {'skipped': 0, 'grad_norm': []}}", "loss"},
        {"{'skip_step': {'skipped': 0, 'loss': [1, 'x'], 'grad_norm': [1, 2]}}", "item 1 of loss"},
        {"{'skip_step': {'skipped': 0, 'loss': [1, 2], 'grad_norm': [1]}}",
         "2 losses and 1 gradient norms"},
    };
    struct tr_skip skip = {.count = 77};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *text = mem_strdup(cases[i].text);
        AUTO_JSON *o = NULL;
        struct err e = {0};

        for (char *quote = text; (quote = strchr(quote, '\'')); *quote = '"') {
        }
        o = json_loads(text, 0, NULL);
        assert_non_null(o);
        assert_true(tr_skip_parse(&skip, o, &e) < 0);
        if (!strstr(e.text, cases[i].says) || skip.count != 77)
            fail_msg("%s: %s", cases[i].text, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_those_of_the_rule),
        cmocka_unit_test(a_constant_series_skips_only_what_is_above_it),
        cmocka_unit_test(nothing_is_skipped_before_the_window_is_half_full),
        cmocka_unit_test(a_resumed_window_is_the_uninterrupted_one),
        cmocka_unit_test(another_interval_keeps_the_newest),
        cmocka_unit_test(a_damaged_window_is_refused),
    };

    return cmocka_run_group_tests_name("skipped steps", tests, NULL, NULL);
}
