/* Several sources of data: which one gives a sample, what their weights are, what is refused. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "trainer/blend.h"
#include "trainer/sources.h"

/* ---- the order ----------------------------------------------------------- */

/* Megatron's loop, one sample after the other, in whole numbers; in double it is TAKEN of that. */
static int next_source(const uint32_t *share, int n, const uint64_t *taken, uint64_t index)
{
    int64_t times = index ? (int64_t)index : 1, sum = 0, most = INT64_MIN;
    int best = 0;

    for (int k = 0; k < n; k++)
        sum += share[k];
    for (int k = 0; k < n; k++) {
        int64_t error = share[k] * times - sum * (int64_t)taken[k];

        if (error > most) {
            most = error;
            best = k;
        }
    }
    return best;
}

static void check_order(const uint32_t *share, int n, uint64_t samples)
{
    AUTO(tr_blend) *blend = tr_blend_new(share, n);
    uint64_t taken[TR_SOURCES_MAX] = {0}, own;

    for (uint64_t i = 0; i < samples; i++) {
        int k = next_source(share, n, taken, i);

        assert_int_equal(tr_blend_at(&own, blend, i), k);
        assert_int_equal(own, taken[k]++);
    }
}

static void samples_come_as_one_by_one(void **state)
{
    static const uint32_t first[] = {7, 3}, last[] = {1, 9}, equal[] = {1, 1, 1}, one[] = {1};
    struct rng r;

    (void)state;
    check_order(first, 2, 100);
    check_order(last, 2, 100);
    check_order(equal, 3, 100);
    check_order(one, 1, 10);
    rng_seed(&r, 5);
    for (int round = 0; round < 200; round++) {
        uint32_t share[TR_SOURCES_MAX], sum = 0;
        int n = 1 + (int)rng_below(&r, round < 150 ? 6 : TR_SOURCES_MAX);

        for (int k = 0; k < n; k++)
            sum += share[k] = 1 + (uint32_t)rng_below(&r, round % 3 ? 10 : 300);
        check_order(share, n, 4 * (uint64_t)sum + 3);
    }
}

/* Weights that doubles hold exactly: then Megatron-LM's own arithmetic gives the same. */
static void samples_come_as_in_doubles(void **state)
{
    static const uint32_t share[] = {3, 8, 5}; /* of 16 */
    static const double weight[] = {3 / 16.0, 8 / 16.0, 5 / 16.0};
    AUTO(tr_blend) *blend = tr_blend_new(share, 3);
    double taken[3] = {0};
    uint64_t own;

    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        double times = i ? (double)i : 1, most = weight[0] * times - taken[0];
        int best = 0;

        for (int k = 1; k < 3; k++)
            if (weight[k] * times - taken[k] > most) {
                most = weight[k] * times - taken[k];
                best = k;
            }
        assert_int_equal(tr_blend_at(&own, blend, i), best);
        taken[best]++;
    }
}

/* Far from 0 and without the samples before: by each source's share, and all of the index. */
static void any_index_is_found(void **state)
{
    static const uint32_t share[] = {123457, 500000, 376543};
    AUTO(tr_blend) *blend = tr_blend_new(share, 3);
    static const uint64_t from[] = {999998, 1999999, 1000000000, UINT64_C(1) << 50};
    uint64_t own, next[3];

    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(from); j++) {
        bool seen[3] = {false};

        for (uint64_t i = from[j]; i < from[j] + 1000; i++) {
            int k = tr_blend_at(&own, blend, i);
            double fair = (double)i * share[k] / 1e6;

            assert_true(!seen[k] || own == next[k]);
            assert_true((double)own > fair - 3 && (double)own < fair + 3);
            seen[k] = true;
            next[k] = own + 1;
        }
    }
}

static void a_validation_ends_where_a_source_does(void **state)
{
    struct rng r;

    (void)state;
    rng_seed(&r, 6);
    for (int round = 0; round < 300; round++) {
        uint32_t share[8];
        uint64_t have[8], taken[8] = {0}, i = 0;
        int n = 1 + (int)rng_below(&r, 8);

        for (int k = 0; k < n; k++) {
            share[k] = 1 + (uint32_t)rng_below(&r, 12);
            have[k] = rng_below(&r, round % 2 ? 4 : 200);
        }
        AUTO(tr_blend) *blend = tr_blend_new(share, n);
        for (int k; k = next_source(share, n, taken, i), taken[k] < have[k]; i++)
            taken[k]++;
        assert_int_equal(tr_blend_until(blend, have), i);
    }
}

/* ---- what names them ----------------------------------------------------- */

static void read_text(struct tr_sources *ret, const char *text)
{
    struct err e = {0};

    if (tr_sources_text(ret, text, &e) < 0)
        fail_msg("%s: %s", text, e.text);
}

static void one_name_is_one_source(void **state)
{
    static const char *const texts[] = {"web", "data dir/my set", "3 ", "0.5", "1 /data/web"};
    static const char *const names[] = {"web", "my set", "3 ", "0.5", "web"};
    struct tr_sources s;
    char name[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        read_text(&s, texts[i]);
        assert_int_equal(s.count, 1);
        assert_int_equal(s.v[0].share, 1);
        tr_sources_name(name, sizeof(name), &s);
        assert_string_equal(name, names[i]);
        tr_sources_done(&s);
    }
}

static void weights_become_whole_numbers(void **state)
{
    static const struct {
        const char *text;
        uint32_t share[3];
        int n;
    } cases[] = {
        {"0.7 web 0.3 code", {7, 3}, 2},
        {" 7\tweb 3 ./code ", {7, 3}, 2},
        {"0.5 a 0.25 b 0.25 c", {2, 1, 1}, 3},
        {"1 a 2 b", {1, 2}, 2},
        {"0.333333 a 0.333333 b 0.333333 c", {1, 1, 1}, 3},
        {"0.1 a 0.2 b 0.000001 c", {100000, 200000, 1}, 3},
        /* The sum 10^6 + 1 is over a million, so c = 2: halves, rounded up. */
        {"1 a 0.000001 b", {500000, 1}, 2},
        {"1e11 a 3e11 b", {0}, -1},
        {"1e11 a 3e10 b", {10, 3}, 2},
        /* c = 12347 */
        {"12345.678901 a 1 b", {999893, 81}, 2},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tr_sources s;
        struct err e = {0};
        int r = tr_sources_text(&s, cases[i].text, &e);

        if (cases[i].n < 0) {
            assert_int_equal(r, -EINVAL);
            continue;
        }
        assert_int_equal(r, 0);
        assert_int_equal(s.count, cases[i].n);
        for (int k = 0; k < s.count; k++)
            if (s.v[k].share != cases[i].share[k])
                fail_msg("%s: share %d is %u", cases[i].text, k, s.v[k].share);
        tr_sources_done(&s);
    }
}

static void lists_come_back(void **state)
{
    AUTO_JSON *in = unit_json("[{'path':'/a b/web','weight':0.7},{'path':'code','weight':3}]");
    AUTO_JSON *out = NULL;
    struct tr_sources s, again;
    char name[64];
    struct err e = {0};

    (void)state;
    assert_int_equal(tr_sources_json(&s, in, &e), 0);
    tr_sources_name(name, sizeof(name), &s);
    assert_string_equal(name, "0.7 web 3 code");
    out = tr_sources_array(&s);
    assert_int_equal(tr_sources_json(&again, out, &e), 0);
    assert_string_equal(again.v[0].path, "/a b/web");
    assert_int_equal(again.v[0].share, 7);
    assert_int_equal(again.v[1].share, 30);
    tr_sources_done(&s);
    tr_sources_done(&again);
}

static void bad_lists_are_refused_by_key(void **state)
{
    static const struct {
        const char *text, *json, *pointer, *says;
    } cases[] = {
        {"0.7 web 0.3", NULL, "/run/data", "no data set follows the weight 0.3"},
        {"0.7 web code 0.3", NULL, "/run/data", "\"code\" is no weight"},
        {"0 web 1 code", NULL, "/run/data", "the weight 0 of web is not in [1e-06, 1e+11]"},
        {"-1 web 1 code", NULL, "/run/data", "the weight -1 of web"},
        {"1 web nan code", NULL, "/run/data", "nan"},
        {"1 web 1e12 code", NULL, "/run/data", "the weight 1e+12 of code"},
        {"1 web 1 code 2 web", NULL, "/run/data", "web is given twice"},
        {"1 web 1 synthetic", NULL, "/run/data", "synthetic"},
        {"1 web 1e10 code", NULL, "/run/data", "the weight 1 of web is less than a millionth"},
        {NULL, "[]", "/run/data", "empty"},
        {NULL, "['web']", "/run/data/0", "object"},
        {NULL, "[{'path':'a','weight':1},{'weight':1}]", "/run/data/1/path", ""},
        {NULL, "[{'path':'a'}]", "/run/data/0/weight", ""},
        {NULL, "[{'path':'a','weight':0}]", "/run/data/0/weight", "0"},
        {NULL, "[{'path':'a','weight':-2}]", "/run/data/0/weight", "-2"},
        {NULL, "[{'path':'a','weight':'1'}]", "/run/data/0/weight", ""},
        {NULL, "[{'path':'','weight':1}]", "/run/data/0/path", ""},
        {NULL, "[{'path':'a','wieght':1}]", "/run/data/0/wieght", "weight"},
        {NULL, "[{'path':'a','weight':1},{'path':'a','weight':1}]", "/run/data/1", "given twice"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_JSON *json = cases[i].json ? unit_json(cases[i].json) : NULL;
        struct tr_sources s;
        struct err e = {0};
        int r = json ? tr_sources_json(&s, json, &e) : tr_sources_text(&s, cases[i].text, &e);

        assert_true(r < 0);
        if (!strstr(e.text, cases[i].says) || !str_eq(e.pointer, cases[i].pointer))
            fail_msg("%zu: %s: %s", i, e.pointer, e.text);
    }
}

static void no_more_than_the_limit(void **state)
{
    AUTO_STR text = {0};
    struct tr_sources s;
    struct err e = {0};

    (void)state;
    for (int i = 0; i < TR_SOURCES_MAX; i++)
        str_addf(&text, "1 s%d ", i);
    read_text(&s, str_text(&text));
    assert_int_equal(s.count, TR_SOURCES_MAX);
    tr_sources_done(&s);
    str_add(&text, "1 more");
    assert_int_equal(tr_sources_text(&s, str_text(&text), &e), -EINVAL);
    assert_non_null(strstr(e.text, "more than 64"));
}

/* ---- what two runs compare ----------------------------------------------- */

static void identities_differ_in_each_of_their_parts(void **state)
{
    struct tr_identity was = {.count = 2,
                              .v = {{"web", 7, 0xabc, {1000, 50}}, {"code", 3, 1, {500, 20}}}},
                       now, read;
    AUTO_JSON *json = tr_identity_json(&was);
    struct err e = {0};
    char text[400];

    (void)state;
    assert_int_equal(tr_identity_parse(&read, json, &e), 0);
    assert_false(tr_identity_differs(text, sizeof(text), &was, &read));
    for (int part = 0; part < 6; part++) {
        now = was;
        if (part == 0)
            now.v[1].name[0] = 'k';
        else if (part == 1)
            now.v[1].share = 4;
        else if (part == 2)
            now.v[1].crc32 = 2;
        else if (part == 5)
            now.count = 1;
        else
            now.v[1].tokens[part - 3]++;
        assert_true(tr_identity_differs(text, sizeof(text), &was, &now));
        assert_non_null(strstr(text, "source 2 is"));
        assert_non_null(
            strstr(text, "code (weight 3, 500 tokens, 20 to validate, crc32 00000001)"));
    }
    assert_int_equal(tr_identity_parse(&read, NULL, &e), 0);
    assert_int_equal(read.count, 0);
    json_object_set_new(json_array_get(json, 1), "crc32", json_string("x"));
    assert_int_equal(tr_identity_parse(&read, json, &e), -EINVAL);
    assert_string_equal(e.pointer, "/sources/1/crc32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_as_one_by_one),
        cmocka_unit_test(samples_come_as_in_doubles),
        cmocka_unit_test(any_index_is_found),
        cmocka_unit_test(a_validation_ends_where_a_source_does),
        cmocka_unit_test(one_name_is_one_source),
        cmocka_unit_test(weights_become_whole_numbers),
        cmocka_unit_test(lists_come_back),
        cmocka_unit_test(bad_lists_are_refused_by_key),
        cmocka_unit_test(no_more_than_the_limit),
        cmocka_unit_test(identities_differ_in_each_of_their_parts),
    };

    return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
