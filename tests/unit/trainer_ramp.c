/* The batch ramp, compared with what Megatron-LM's RampupBatchsizeNumMicroBatchesCalculator gives
 * for the same numbers, and its refusals. */
#include "tests/unit/unit.h"
#include "trainer/ramp.h"

#include <errno.h>

static struct tr_ramp ramp_of(const char *text, int global_batch)
{
    struct tr_ramp ramp;
    struct err e = {0};

    if (tr_ramp_parse(&ramp, text, global_batch, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return ramp;
}

/* By hand: 32 to 128 by 32 over 300 samples are shares of 100. */
static void each_size_has_an_equal_share_of_the_samples(void **state)
{
    static const struct {
        uint64_t samples;
        int batch;
    } want[] = {{0, 32},   {99, 32},   {100, 64},  {199, 64},        {200, 96},
                {299, 96}, {300, 128}, {301, 128}, {UINT64_MAX, 128}};
    struct tr_ramp ramp = ramp_of("32,32,300", 128);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_int_equal(tr_ramp_batch(&ramp, want[i].samples), want[i].batch);
}

/* Megatron-LM divides in double: 9 / (9 / 7) is below 7, so the last share ends one sample later
 * than by exact fractions. */
static void shares_are_rounded_as_megatrons(void **state)
{
    struct tr_ramp ramp = ramp_of("1,1,9", 8);

    (void)state;
    assert_int_equal(tr_ramp_batch(&ramp, 8), 7);
    assert_int_equal(tr_ramp_batch(&ramp, 9), 7);
    assert_int_equal(tr_ramp_batch(&ramp, 10), 8);
}

/* The sizes of a whole run, made by Megatron-LM's class of 00caa53a: a step's size, and for how
 * many steps. 2 to 14 by 3 over 50 samples are shares of 12.5; 3 to 24 by 7 over 100 are shares of
 * 33.333...; one sample is over at once. */
static void a_run_has_megatrons_sizes(void **state)
{
    static const struct {
        const char *text;
        int global_batch, size[4], steps[4];
    } want[] = {{"2,3,50", 14, {2, 5, 8, 11}, {7, 3, 2, 1}},
                {"3,7,100", 24, {3, 10, 17, 24}, {12, 4, 2, 1}},
                {"1,1,1", 2, {1, 2, 2, 2}, {1, 1, 1, 1}}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct tr_ramp ramp = ramp_of(want[i].text, want[i].global_batch);
        uint64_t samples = 0;

        for (int k = 0; k < 4; k++)
            for (int n = 0; n < want[i].steps[k]; n++) {
                int batch = tr_ramp_batch(&ramp, samples);

                if (batch != want[i].size[k])
                    fail_msg("%s: %d after %llu samples, not %d", want[i].text, batch,
                             (unsigned long long)samples, want[i].size[k]);
                samples += (uint64_t)batch;
            }
        assert_int_equal(tr_ramp_batch(&ramp, samples), want[i].global_batch);
    }
}

static void sizes_never_shrink_and_end_with_the_global_batch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        int start = 1 + (int)(rng_mix(seed) % 9), increment = 1 + (int)(rng_mix(seed + 9999) % 7);
        int global = start + increment * (1 + (int)(rng_mix(seed * 31) % 40)), last = start;
        uint64_t over = 1 + rng_mix(seed * 77) % 5000;
        AUTO_FREE char *text = mem_printf("%d,%d,%llu", start, increment, (unsigned long long)over);
        struct tr_ramp ramp = ramp_of(text, global);

        for (uint64_t samples = 0; samples <= over; samples++) {
            int batch = tr_ramp_batch(&ramp, samples);

            assert_true(batch >= last && batch <= global && (batch - start) % increment == 0);
            last = batch;
        }
        assert_int_equal(tr_ramp_batch(&ramp, 0), start);
        assert_int_equal(tr_ramp_batch(&ramp, over + 1), global);
    }
}

static void what_is_no_ramp_is_refused_with_its_numbers(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "three integers"},
                 {"2,2", "three integers"},
                 {"2,2,50,1", "three integers"},
                 {"2,2,50,", "three integers"},
                 {"2,,50", "three integers"},
                 {"2,2,0", "three integers in 1..9007199254740992"},
                 {"0,2,50", "\"0,2,50\" is not START,INCREMENT,SAMPLES"},
                 {"2,-2,50", "three integers"},
                 {"2,2,9007199254740993", "three integers"},
                 {"16,2,50", "begins with 16 sequences, not less than global_batch 16"},
                 {"18,2,50", "begins with 18"},
                 {"2,4,50", "grows by 4, which does not divide global_batch 16 - start 2 = 14"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tr_ramp ramp;
        struct err e = {0};

        if (tr_ramp_parse(&ramp, cases[i].text, 16, &e) != -EINVAL ||
            !strstr(e.text, cases[i].says) || !str_eq(e.pointer, "/train/rampup_batch_size"))
            fail_msg("\"%s\": %d %s %s", cases[i].text, e.code, e.pointer, e.text);
    }
}

/* Each size of the ramp as the global batch itself: the rule says no exactly where one is
 * illegal. */
static void the_rule_is_that_of_every_size(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        int start = 1 + (int)(rng_mix(seed) % 24), increment = 1 + (int)(rng_mix(seed + 7) % 24);
        struct tr_ramp ramp = {start, increment, 100,
                               start + increment * (1 + (int)(rng_mix(seed + 5) % 9))};
        struct pl_layout l = {.micro_batch = 1 + (int)(seed % 2),
                              .dp = 1 + (int)(rng_mix(seed + 3) % 3),
                              .pp = 1 + (int)(rng_mix(seed + 4) % 3),
                              .vp = 1};
        int share = l.micro_batch * l.dp;
        bool good = true;
        struct err e = {0};

        l.vp = l.pp > 1 ? 1 + (int)(seed / 2 % 2) : 1;
        if (l.vp > 1)
            share *= l.pp;
        if (ramp.global_batch % share)
            continue; /* illegal without a ramp */
        for (int64_t size = ramp.start; size < ramp.global_batch; size += increment)
            good = good && size % share == 0;
        if ((tr_ramp_check(&ramp, &l, &e) == 0) != good)
            fail_msg("%d,%d to %lld: %s", start, increment, (long long)ramp.global_batch, e.text);
        assert_true(good || strstr(e.text, "illegal layout: rampup-"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_size_has_an_equal_share_of_the_samples),
        cmocka_unit_test(shares_are_rounded_as_megatrons),
        cmocka_unit_test(a_run_has_megatrons_sizes),
        cmocka_unit_test(sizes_never_shrink_and_end_with_the_global_batch),
        cmocka_unit_test(what_is_no_ramp_is_refused_with_its_numbers),
        cmocka_unit_test(the_rule_is_that_of_every_size),
    };

    return cmocka_run_group_tests_name("batch ramp", tests, NULL, NULL);
}
