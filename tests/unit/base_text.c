/* err, str, arena, mem, clock, rng: the modules that work on values alone. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static void wrap_prefixes_the_cause(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(err_set(&e, -EIO, "short read"), -EIO);
    assert_int_equal(err_wrap(&e, "open store %s", "a.db"), -EIO);
    assert_string_equal(e.text, "open store a.db: short read");
}

static void pointer_grows_from_the_inside_out(void **state)
{
    struct err e = {0};

    (void)state;
    err_at(&e, -EINVAL, "/tp", "\"tp\" is 0");
    assert_int_equal(err_under(&e, "/layout"), -EINVAL);
    assert_string_equal(e.pointer, "/layout/tp");
}

static void overlong_error_is_cut_not_spilled(void **state)
{
    struct err e = {0};
    AUTO_FREE char *big = mem_alloc(5000);

    (void)state;
    memset(big, 'x', 4999);
    err_set(&e, -EINVAL, "%s", big);
    err_wrap(&e, "%s", big);
    err_at(&e, -EINVAL, big, "%s", big);
    err_under(&e, big);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
    assert_int_equal(strlen(e.pointer), sizeof(e.pointer) - 1);
}

static void string_grows_and_keeps_its_end(void **state)
{
    AUTO_STR s = {0};

    (void)state;
    assert_string_equal(str_text(&s), "");
    for (int i = 0; i < 1000; i++)
        str_addf(&s, "%d,", i % 10);
    assert_int_equal(s.len, 2000);
    assert_int_equal(strlen(s.text), 2000);
    str_trunc(&s, 4);
    assert_string_equal(s.text, "0,1,");
}

static void numbers_are_read_whole_or_refused(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "1x", "0x10", "+1", "--1", "1.5"};
    int64_t v = 7;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(str_to_i64(&v, bad[i], -100, 100), -EINVAL);
    assert_int_equal(str_to_i64(&v, "101", -100, 100), -ERANGE);
    assert_int_equal(str_to_i64(&v, "99999999999999999999", INT64_MIN, INT64_MAX), -ERANGE);
    assert_int_equal(v, 7);
    assert_int_equal(str_to_i64(&v, "-42", -100, 100), 0);
    assert_int_equal(v, -42);
}

static void sizes_are_powers_of_1024(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"512", 512},     {"64k", 65536}, {"1.5GiB", 1610612736}, {"2g", UINT64_C(1) << 31},
                {"3MB", 3 << 20}, {"0", 0}};
    static const char *const bad[] = {"", "k", "-1", "1x", "1 k", "nan", "1e400"};
    uint64_t v = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(str_to_bytes(&v, good[i].text), 0);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_true(str_to_bytes(&v, bad[i]) < 0);
}

static void nearest_name_is_offered_only_when_near(void **state)
{
    static const char *const names[] = {"micro_batch", "schedule", "tp", NULL};
    static const char *const devices[] = {"h200", "dgx-h100", NULL};

    (void)state;
    assert_string_equal(str_nearest("microbatch", names), "micro_batch");
    assert_string_equal(str_nearest("shedule", names), "schedule");
    assert_string_equal(str_nearest("shcedule", names), "schedule");
    assert_null(str_nearest("quantum_entanglement", names));
    assert_null(str_nearest("gb200", devices)); /* two edits of five letters */
    assert_string_equal(str_nearest("h2000", devices), "h200");
}

static void utf8_refuses_overlong_and_surrogates(void **state)
{
    (void)state;
    assert_true(str_is_utf8("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 15));
    assert_false(str_is_utf8("\xc0\xaf", 2));
    assert_false(str_is_utf8("\xed\xa0\x80", 3));
    assert_false(str_is_utf8("\xf4\x90\x80\x80", 4));
    assert_false(str_is_utf8("\xe2\x82", 2));
}

static void people_read_sizes_and_durations(void **state)
{
    char b[24];

    (void)state;
    assert_string_equal(str_human_bytes(b, 512), "512 B");
    assert_string_equal(str_human_bytes(b, 1.5 * 1024 * 1024), "1.5 MiB");
    assert_string_equal(str_human_seconds(b, 0.13), "130 ms");
    assert_string_equal(str_human_seconds(b, 3720.0 * 2), "2 h 04 min");
}

static void arena_hands_out_zeroed_aligned_memory(void **state)
{
    struct arena a = {0};

    (void)state;
    for (size_t n = 1; n < 10000; n = n * 3 + 1) {
        unsigned char *p = arena_alloc(&a, n);

        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 5), "x-5");
    arena_done(&a);
    assert_int_equal(a.total_bytes, 0);
}

static void sizes_multiply_without_wrapping(void **state)
{
    (void)state;
    assert_true(mem_mul(3, 4, 5) == 60);
    assert_true(mem_mul(SIZE_MAX / 2, 3, 1) == SIZE_MAX);
    assert_true(mem_mul(SIZE_MAX / 4, 2, 3) == SIZE_MAX);
}

static void injected_failure_hits_the_nth_allocation(void **state)
{
    void *a, *b;

    (void)state;
    mem_fail_at(2);
    a = mem_try_alloc(8);
    b = mem_try_alloc(8);
    mem_fail_at(0);
    assert_non_null(a);
    assert_null(b);
    free(a);
}

static void clock_prints_rfc3339(void **state)
{
    char b[CLOCK_TEXT];

    (void)state;
    assert_string_equal(clock_format(b, 1767225600123), "2026-01-01T00:00:00.123Z");
}

/* Known answers of Philox 4x32-10 with a zero and an all-ones block are in the Random123
 * distribution (kat_vectors); ours fixes the upper half of the counter to zero. */
static void philox_gives_the_published_vector(void **state)
{
    uint32_t w[4];

    (void)state;
    rng_philox(w, 0, 0);
    assert_int_equal(w[0], 0x6627e8d5);
    assert_int_equal(w[1], 0xe169c58d);
    assert_int_equal(w[2], 0xbc57ac4c);
    assert_int_equal(w[3], 0x9b00dbd8);
}

/* Mean and variance of n standard normals: the bounds are five standard errors, 5 / sqrt(n) and 5 *
 * sqrt(2 / n). */
static void normals_have_the_right_moments(void **state)
{
    enum { N = 100000 };
    struct rng r;
    double stream = 0, stream2 = 0, counter = 0, counter2 = 0;

    (void)state;
    rng_seed(&r, 42);
    for (int i = 0; i < N; i++) {
        double a = rng_normal(&r), b = rng_normal_at(7, (uint64_t)i);

        stream += a;
        stream2 += a * a;
        counter += b;
        counter2 += b * b;
    }
    assert_true(fabs(stream / N) < 5 / sqrt(N));
    assert_true(fabs(counter / N) < 5 / sqrt(N));
    assert_true(fabs(stream2 / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(counter2 / N - 1) < 5 * sqrt(2.0 / N));
}

static void below_stays_below(void **state)
{
    struct rng r;
    int seen[7] = {0};

    (void)state;
    rng_seed(&r, 1);
    for (int i = 0; i < 7000; i++)
        seen[rng_below(&r, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_true(abs(seen[i] - 1000) <= 5 * 30); /* five standard deviations of a binomial */
}

static int by_number(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return a < b ? -1 : a > b;
}

/* Of a text with blocks and a rest: no bit may be without effect, nor have that of another. */
static void every_bit_of_a_text_changes_its_hash(void **state)
{
    enum { N = 1000 };
    unsigned char text[N] = {0};
    uint64_t *seen = mem_alloc((8 * N + 1) * sizeof(*seen));

    (void)state;
    assert_true(str_hash("a", 1, 0) == UINT64_C(0xaf63dc4c8601ec8c)); /* FNV's own test */
    seen[8 * N] = str_hash(text, N, 0);
    for (size_t bit = 0; bit < 8 * N; bit++) {
        text[bit / 8] ^= (unsigned char)(1u << bit % 8);
        seen[bit] = str_hash(text, N, 0);
        text[bit / 8] = 0;
    }
    qsort(seen, 8 * N + 1, sizeof(*seen), by_number);
    for (size_t i = 0; i < 8 * N; i++)
        assert_true(seen[i] != seen[i + 1]);
    free(seen);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(wrap_prefixes_the_cause),
    cmocka_unit_test(pointer_grows_from_the_inside_out),
    cmocka_unit_test(overlong_error_is_cut_not_spilled),
    cmocka_unit_test(string_grows_and_keeps_its_end),
    cmocka_unit_test(numbers_are_read_whole_or_refused),
    cmocka_unit_test(sizes_are_powers_of_1024),
    cmocka_unit_test(nearest_name_is_offered_only_when_near),
    cmocka_unit_test(utf8_refuses_overlong_and_surrogates),
    cmocka_unit_test(people_read_sizes_and_durations),
    cmocka_unit_test(every_bit_of_a_text_changes_its_hash),
    cmocka_unit_test(arena_hands_out_zeroed_aligned_memory),
    cmocka_unit_test(sizes_multiply_without_wrapping),
    cmocka_unit_test(injected_failure_hits_the_nth_allocation),
    cmocka_unit_test(clock_prints_rfc3339),
    cmocka_unit_test(philox_gives_the_published_vector),
    cmocka_unit_test(normals_have_the_right_moments),
    cmocka_unit_test(below_stays_below),
};

UNIT_MAIN(tests)
